"""Adds that wait for the same write go in one script call: nobody but the server notices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from bullmq_anyio import Connection, Queue
from bullmq_protocol import Deduplication, JobOptions, NewJob, ParentRef, ServerError, UsageError, prepare
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.errors import BulkAddError, ParentNotFound
from tests.server.conftest import originals
from tests.support.adapters import Adapter
from tests.support.servers import Server

GONE = JobOptions(parent=ParentRef("gone", "bull:nowhere"))


def _calls(reply: Any) -> int:
    lines = [line for line in reply.decode().splitlines() if line.startswith(("cmdstat_evalsha:", "cmdstat_eval:"))]
    return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in lines)


SCRIPT_CALLS = Command("INFO", (), ("commandstats",), _calls, repeat=Repeat.SAFE)
FORGET = Command("SCRIPT FLUSH", (), (), lambda _: None, repeat=Repeat.SAFE)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def queue(anyio_backend: str, server: Server, name: str) -> AsyncIterator[Queue[Any]]:
    async with Queue[Any](name, server.url) as made:
        # From here on there is a connection, with a call under way, so that others gather.
        await made.add("first", {})
        yield made


async def add_at_once(queue: Any, options: list[JobOptions | None]) -> list[Any]:
    """Add jobs in as many tasks; return their ids, or what was raised."""
    added: list[Any] = [None] * len(options)

    async def add(number: int) -> None:
        try:
            added[number] = (await queue.add("n", {"n": number}, options[number])).id
        except Exception as error:
            added[number] = error

    async with anyio.create_task_group() as tasks:
        for number in range(len(options)):
            tasks.start_soon(add, number)
    return added


async def test_adds_at_once_take_few_calls(queue: Queue[Any]) -> None:
    before = await queue.call(SCRIPT_CALLS)
    added = await add_at_once(queue, [None] * 100)
    assert sorted(map(int, added)) == list(range(2, 102))
    assert await queue.call(SCRIPT_CALLS) - before <= 10
    assert await queue.get_job_counts("waiting") == {"waiting": 101, "paused": 0}
    for number, job_id in enumerate(added):
        job = await queue.get_job(job_id)
        assert job is not None
        assert job.data == {"n": number}


async def test_adds_that_may_give_way_take_few_calls(queue: Queue[Any]) -> None:
    before = await queue.call(SCRIPT_CALLS)
    kinds = [[JobOptions(job_id=f"own-{at}"), JobOptions(deduplication=Deduplication(f"d{at}"))] for at in range(30)]
    added = await add_at_once(queue, [None, *(each for kind in kinds for each in kind * 2)])
    assert await queue.call(SCRIPT_CALLS) - before <= 10
    assert added[1::4] == added[3::4] == [f"own-{at}" for at in range(30)]
    assert added[2::4] == added[4::4]
    assert await queue.get_job_counts("waiting") == {"waiting": 62, "paused": 0}


async def test_each_gets_its_own_answer(queue: Queue[Any]) -> None:
    kinds = [None, GONE, JobOptions(delay=5000), JobOptions(priority=3), JobOptions(job_id="mine")]
    added = await add_at_once(queue, kinds * 8)
    assert all(isinstance(each, ParentNotFound) for each in added[1::5])
    assert set(added[4::5]) == {"mine"}
    assert await queue.get_job_counts("waiting", "delayed", "prioritized") == {
        "waiting": 10,
        "paused": 0,
        "delayed": 8,
        "prioritized": 8,
    }


async def test_a_cancelled_add_does_not_touch_the_others(queue: Queue[Any]) -> None:
    added: list[str] = []

    async def add(scope: anyio.CancelScope) -> None:
        with scope:
            added.append((await queue.add("n", {})).id)

    scopes = [anyio.CancelScope() for _ in range(60)]
    async with anyio.create_task_group() as tasks:
        for scope in scopes:
            tasks.start_soon(add, scope)
        for _ in range(2):
            await anyio.lowlevel.checkpoint()
        for scope in scopes[::2]:
            scope.cancel()
    assert len(set(added)) == len(added) >= 30
    counts = await queue.get_job_counts("waiting")
    assert len(added) + 1 <= counts["waiting"] <= 61


async def test_what_has_no_form_on_the_wire_does_not_touch_the_others(queue: Queue[Any]) -> None:
    good = add_job(queue.keys, prepare(queue.keys, NewJob("n"), now_ms=1))
    bad = msgspec.structs.replace(good, args=(good.args[0], '"\ud800"', good.args[2]))
    added: list[str] = []
    errors: list[UsageError] = []

    async def add(command: Command[str]) -> None:
        try:
            added.append(await queue.call(command))
        except UsageError as error:
            errors.append(error)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(add, bad if number % 20 == 7 else good)
    assert (len(set(added)), len(errors)) == (57, 3)
    assert await queue.get_job_counts("waiting") == {"waiting": 58, "paused": 0}


async def test_scripts_that_the_server_forgot_are_sent_again(queue: Queue[Any]) -> None:
    await add_at_once(queue, [None] * 20)
    for _ in range(2):
        await queue.call(FORGET)
        added = await add_at_once(queue, [None] * 20)
        assert len(set(added)) == 20
    assert (await queue.get_job_counts("waiting"))["waiting"] == 61


@pytest.mark.parametrize(("size", "writes"), [(10, 4), (2000, 6)])
async def test_a_large_command_waits_for_no_others(
    anyio_backend: str, server: Server, monkeypatch: pytest.MonkeyPatch, size: int, writes: int
) -> None:
    connection = Connection(server.url)
    echo = Command("ECHO", (), ("x" * size,), lambda reply: reply, repeat=Repeat.SAFE)
    assert len(await connection.perform(echo)) == size
    link, sent = connection._link, []
    assert link is not None
    send = link._send_now
    monkeypatch.setattr(link, "_send_now", lambda data: sent.append(len(data)) or send(data))
    async with anyio.create_task_group() as tasks:
        for _ in range(6):
            tasks.start_soon(connection.perform, echo)
    # the first three find few under way
    assert len(sent) == writes
    await connection.aclose()


async def test_a_refusal_reaches_everybody(queue: Queue[Any]) -> None:
    limit = Command("CONFIG SET", (), ("maxmemory", 1), lambda _: None, repeat=Repeat.SAFE)
    free = Command("CONFIG SET", (), ("maxmemory", 0), lambda _: None, repeat=Repeat.SAFE)
    await queue.call(limit)
    try:
        added = await add_at_once(queue, [None] * 20)
    finally:
        await queue.call(free)
    assert [isinstance(each, ServerError) and each.code for each in added] == ["OOM"] * 20
    assert len(set(map(id, added))) == 20


@pytest.mark.node
async def test_scripts_of_bullmq_are_called_one_by_one(anyio_backend: str, server: Server, name: str) -> None:
    async with Queue[Any](name, server.url, scripts=originals()) as queue:
        await queue.add("first", {})
        before = await queue.call(SCRIPT_CALLS)
        assert len(set(await add_at_once(queue, [None] * 20))) == 20
        assert len(await queue.add_bulk([NewJob("n")] * 20)) == 20
        assert await queue.call(SCRIPT_CALLS) - before >= 40


async def test_a_bulk_takes_few_calls(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url) as queue:
        await queue.add("first", {})
        before = await queue.call(SCRIPT_CALLS)
        added = await queue.add_bulk([NewJob("n", {"n": number}) for number in range(250)])
        assert [job.id for job in added] == [str(number) for number in range(2, 252)]
        assert await queue.call(SCRIPT_CALLS) - before <= 6
        with pytest.raises(BulkAddError) as raised:
            await queue.add_bulk([NewJob("n"), NewJob("n", options=GONE), NewJob("n")])
        first, refused, last = raised.value.results
        assert isinstance(refused, ParentNotFound)
        assert (first.id, last.id) == ("252", "253")
