"""Tasks of a worker that `asyncio.all_tasks()` does not list."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import bullmq_anyio.tasks
from bullmq_anyio.tasks import start_unlisted

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_the_tasks_of_a_group_are_in_no_list() -> None:
    before, over = asyncio.all_tasks(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            start_unlisted(tasks, over.wait)
            assert asyncio.all_tasks() == before
        await anyio.lowlevel.checkpoint()
        assert asyncio.all_tasks() == before
        over.set()


async def test_starting_a_task_does_not_look_through_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    monkeypatch.setattr(bullmq_anyio.tasks, "_current", SimpleNamespace(_unregister_task=taken.append))
    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            start_unlisted(tasks, anyio.lowlevel.checkpoint)
    assert len(taken) == len(set(taken)) == 100


async def test_the_fault_of_one_ends_the_group() -> None:
    async def fail() -> None:
        raise LookupError

    with pytest.RaisesGroup(LookupError):
        async with anyio.create_task_group() as tasks:
            start_unlisted(tasks, anyio.sleep_forever)
            start_unlisted(tasks, fail)
