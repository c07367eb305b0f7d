"""Whether a job was added is what the call itself says, with our own scripts: nobody comes between."""

from typing import Any

import anyio

from bullmq_protocol import Deduplication, JobOptions
from tests.support.adapters import Adapter
from tests.support.servers import Server


async def test_of_adds_at_once_one_was_added(adapter: Adapter, server: Server, name: str) -> None:
    kinds = (
        JobOptions(job_id="mine"),
        JobOptions(deduplication=Deduplication("d")),
        JobOptions(job_id="own", deduplication=Deduplication("o")),
        JobOptions(delay=60_000, deduplication=Deduplication("l", ttl=50_000, replace=True, extend=True)),
    )
    reported: list[list[tuple[str, bool | None]]] = [[] for _ in kinds]

    async def add(to: Any, kind: int) -> None:
        job = await to.add("n", options=kinds[kind])
        reported[kind].append((job.id, job.added))

    async with adapter.Queue(name, server.url) as one, adapter.Queue(name, server.url) as other:
        for each in (one, other):
            await each.count()
        async with anyio.create_task_group() as tasks:
            for number in range(80):
                tasks.start_soon(add, (one, other)[number % 2], number // 2 % 4)
        assert await one.count() == 4
        await one.obliterate()
    *once, replaced = reported
    for each in once:
        assert len({job_id for job_id, _ in each}) == 1
        assert sorted(added is True for _, added in each) == [False] * 19 + [True]
        assert not any(added is None for _, added in each)
    # Each took the place of the one before.
    assert len({job_id for job_id, _ in replaced}) == 20
    assert all(added for _, added in replaced)
