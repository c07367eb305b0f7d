"""What only tasks have: cancelled readers and waits leave nothing behind, on asyncio and on trio."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

import bullmq_anyio.apart
import bullmq_anyio.events as events_module
from bullmq_anyio import Connection, Queue, QueueEvents
from bullmq_protocol import NewJob
from bullmq_protocol.command import Batch
from bullmq_protocol.errors import Closed, JobNotFound
from bullmq_protocol.events.stream import AddedEvent
from tests.server.test_callbacks_tasks import AT_ONCE, LEFT, at_once
from tests.support.servers import Server

pytestmark = pytest.mark.any_server


@pytest.fixture
async def queue(anyio_backend: object, server: Server, name: str) -> AsyncIterator[Queue[Any]]:
    queue: Queue[Any] = Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


async def gone(queue: Queue[Any]) -> None:
    """Wait until no reader of the queue is connected."""
    with anyio.fail_after(30):
        while await queue.get_queue_events():
            await anyio.lowlevel.checkpoint()


async def test_cancelled_wait_within_the_block_closes_the_reader(queue: Queue[Any], server: Server, name: str) -> None:
    job = await queue.add("a")
    with anyio.CancelScope() as scope:
        async with QueueEvents(name, server.url) as events, anyio.create_task_group() as tasks:
            tasks.start_soon(job.wait_until_finished, events)
            await queue.get_job_counts()
            scope.cancel()
    assert scope.cancelled_caught
    assert not events.is_running
    await gone(queue)


async def test_error_in_the_block_is_raised_as_it_is(queue: Queue[Any], server: Server, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        async with QueueEvents(name, server.url):
            raise ZeroDivisionError
    await gone(queue)


async def test_cancelled_step_of_an_iterator_loses_nothing(queue: Queue[Any], server: Server, name: str) -> None:
    async with QueueEvents(name, server.url) as events:
        stream = events.stream()
        # Else it begins where the first step, which may take longer than its time, finds the end.
        await stream.start()
        for number in range(1, 4):
            with anyio.move_on_after(0.05) as scope:
                await stream.__anext__()
            assert scope.cancelled_caught
            await queue.add("a")
            with anyio.fail_after(30):
                event = await stream.__anext__()
                assert isinstance(event, AddedEvent)
                assert event.job_id == str(number)
                await stream.__anext__()


async def test_all_callers_are_asked_for_at_once(
    queue: Queue[Any], server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the reader, in a few round trips: none of 2,000 callers asks again on its own."""
    monkeypatch.setattr(events_module, "_RECHECK_S", 1.0)
    monkeypatch.setattr(events_module, "_LOOK_MS", 100)
    callers = 2000
    own: list[int] = []
    asked: list[int] = []

    class Counting(Connection):
        async def perform(self, step: Any, /) -> Any:
            if isinstance(step, Batch) and step.commands[-1].name == "isFinished":
                by_caller = "wait" in str(anyio.get_current_task().name)
                (own if by_caller else asked).append(len(step.commands) - 1)
            return await super().perform(step)

    connection = Counting(server.url)
    jobs = await queue.add_bulk([NewJob("n") for _ in range(callers)])
    gone: list[str] = []

    async def wait(job_id: str) -> None:
        with pytest.raises(JobNotFound):
            await events.wait_until_finished(job_id)
        gone.append(job_id)

    with anyio.fail_after(120):
        async with QueueEvents(name, connection) as events, anyio.create_task_group() as tasks:
            for job in jobs:
                tasks.start_soon(wait, job.id)
            while len(own) < callers:
                await anyio.sleep(0.01)
            asked.clear()
            while sum(asked) < 3 * callers:
                await anyio.sleep(0.01)
            rounds = asked.copy()
            # Without an event for any of them.
            await queue.obliterate(force=True)
    await connection.aclose()
    assert len(gone) == callers
    assert own == [1] * callers
    # The first round may have begun with few.
    assert rounds[-8:] == [250] * 8
    assert len(rounds) <= sum(rounds) / 250 + 8


class _NoException(BaseException):
    pass


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, _NoException, asyncio.CancelledError])
async def test_whatever_a_callback_raises_the_reader_goes_on(
    queue: Queue[Any], server: Server, name: str, error: type[BaseException], waits: bool
) -> None:
    seen: list[str] = []
    second = anyio.Event()

    def at_once(event: AddedEvent) -> None:
        seen.append(event.job_id)
        if len(seen) == 2:
            second.set()
        raise error

    async def later(event: AddedEvent) -> None:
        await anyio.lowlevel.checkpoint()
        at_once(event)

    async with QueueEvents(name, server.url) as events:
        events.on(AddedEvent, later if waits else at_once)
        await queue.add_bulk([NewJob("a"), NewJob("b")])
        with anyio.fail_after(30):
            await second.wait()
        await queue.add("c")
        with anyio.fail_after(30):
            while len(seen) < 3:
                await anyio.lowlevel.checkpoint()
        assert events.is_running
    assert seen == ["1", "2", "3"]


async def test_a_reader_cancelled_within_a_callback_ends(queue: Queue[Any], server: Server, name: str) -> None:
    began = anyio.Event()

    async def waits(_: AddedEvent) -> None:
        began.set()
        await anyio.sleep_forever()

    events = QueueEvents(name, server.url)
    events.on(AddedEvent, waits)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.run)
        with anyio.fail_after(30):
            while not began.is_set():
                await queue.add("a")
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    assert not events.is_running
    await gone(queue)


async def test_a_cancelled_reader_is_no_fault_of_its_callback(
    queue: Queue[Any], server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    began = anyio.Event()

    async def waits(_: AddedEvent) -> None:
        began.set()
        await anyio.sleep_forever()

    events = QueueEvents(name, server.url, last_event_id="0-0")
    events.on(AddedEvent, waits)
    await queue.add("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(events.run)
        with anyio.fail_after(30):
            await began.wait()
        tasks.cancel_scope.cancel()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("how", ["block", "close"])
async def test_a_close_cancels_a_callback_that_does_not_end(
    queue: Queue[Any], server: Server, name: str, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """It has a second. The events that come after it do not count as delivered."""
    began, reported = anyio.Event(), list[str]()

    async def waits(event: AddedEvent) -> None:
        reported.append(event.entry_id)
        began.set()
        await anyio.sleep_forever()

    events = QueueEvents(name, server.url, last_event_id="0-0")
    events.on(AddedEvent, waits)
    await queue.add_bulk([NewJob("a"), NewJob("b")])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            if how == "close":
                tasks.start_soon(events.run)
                await began.wait()
                await events.aclose()
            else:
                async with events:
                    await began.wait()
    [words] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert words == f"the events of {name} are closed: a callback for AddedEvent that had not ended was cancelled"
    assert [events.last_event_id] == reported


async def test_a_close_lets_a_callback_end_and_wakes_who_waits(queue: Queue[Any], server: Server, name: str) -> None:
    began, closes = anyio.Event(), anyio.Event()
    ended: list[str] = []

    async def waits(event: AddedEvent) -> None:
        began.set()
        await closes.wait()
        await anyio.sleep(0.1)
        ended.append("callback")

    async def wait_for(job: Any) -> None:
        with pytest.raises(Closed):
            await job.wait_until_finished(events)
        ended.append("wait")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, QueueEvents(name, server.url) as events:
            events.on(AddedEvent, waits)
            tasks.start_soon(wait_for, await queue.add("a"))
            await began.wait()
            closes.set()
    assert ended == ["wait", "callback"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_reader_whose_task_is_cancelled_within_a_callback_ends(
    queue: Queue[Any], server: Server, name: str
) -> None:
    began = asyncio.Event()

    async def waits(_: AddedEvent) -> None:
        began.set()
        await asyncio.sleep(3600)

    events = QueueEvents(name, server.url)
    events.on(AddedEvent, waits)
    task = asyncio.create_task(events.run())
    with anyio.fail_after(30):
        while not began.is_set():
            await queue.add("a")
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not events.is_running


# --- callbacks apart --------------------------------------------------------------------------------------------------


_VAR: ContextVar[str] = ContextVar("of a callback", default="unset")
LEFT_BY = [
    pytest.param(backend, is_async, name, id=f"{backend}-{'async' if is_async else 'plain'}-{name}")
    for backend in ("asyncio", "trio")
    for is_async in (False, True)
    for name in (LEFT if is_async else AT_ONCE)
    if backend == "asyncio" or not name.startswith("cancel_")
]


@pytest.mark.parametrize(("anyio_backend", "is_async", "what"), LEFT_BY)
async def test_what_a_callback_leaves_behind_meets_neither_the_reader_nor_the_next_one(
    queue: Queue[Any], server: Server, is_async: bool, what: str
) -> None:
    kept: list[Any] = []
    leave = LEFT[what]
    seen: list[str] = []

    async def awaiting(_: object) -> None:
        await leave(kept)

    def plain(_: object) -> None:
        at_once(leave, kept)

    async def look(event: AddedEvent) -> None:
        await anyio.sleep(0.001)
        seen.append(event.job_id)

    async with QueueEvents(queue.name, server.url) as events:
        events.on(AddedEvent, awaiting if is_async else plain)
        events.on(AddedEvent, look)
        added = [(await queue.add("n")).id for _ in range(10)]
        with anyio.fail_after(30):
            while len(seen) < 10:
                await anyio.sleep(0.001)
            # What was left behind goes off meanwhile.
            await anyio.sleep(0.03)
            added.append((await queue.add("later")).id)
            while len(seen) < 11:
                await anyio.sleep(0.001)
        assert seen == added
        assert events.is_running


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_reader_calls_all_callbacks_apart_in_one_task(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make one costs more than to call them. It ends with the reader."""
    kind: Any = bullmq_anyio.apart._ApartOnAsyncio
    real, made = kind._make, list[Any]()

    def make(self: Any) -> Any:
        made.append(real(self))
        return made[-1]

    monkeypatch.setattr(kind, "_make", make)
    seen: list[AddedEvent] = []
    async with QueueEvents(queue.name, server.url) as events:
        events.on(AddedEvent, seen.append)
        await queue.add_bulk([NewJob("n") for _ in range(20)])
        with anyio.fail_after(30):
            while len(seen) < 20:
                await anyio.sleep(0.001)
    [(task, _)] = made
    with anyio.fail_after(30):
        await asyncio.wait([task])


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_what_a_callback_sets_reaches_no_other(queue: Queue[Any], server: Server, is_async: bool) -> None:
    seen: list[str] = []

    def note(event: AddedEvent) -> None:
        seen.append(_VAR.get())
        _VAR.set(event.job_id)

    async def note_later(event: AddedEvent) -> None:
        note(event)
        await anyio.lowlevel.checkpoint()
        assert _VAR.get() == event.job_id

    token = _VAR.set("the reader's")
    async with QueueEvents(queue.name, server.url) as events:
        events.on(AddedEvent, note_later if is_async else note)
        await queue.add_bulk([NewJob("n") for _ in range(5)])
        with anyio.fail_after(30):
            while len(seen) < 5:
                await anyio.sleep(0.001)
    _VAR.reset(token)
    assert set(seen) == {"the reader's"}


async def test_what_a_plain_function_sets_is_there_in_what_it_returns(queue: Queue[Any], server: Server) -> None:
    seen: list[str] = []

    async def later() -> None:
        seen.append(_VAR.get())

    def begin(event: AddedEvent) -> Any:
        _VAR.set(f"set by {event.job_id}")
        return later()

    async with QueueEvents(queue.name, server.url) as events:
        events.on(AddedEvent, begin)
        added = [(await queue.add("n")).id for _ in range(3)]
        with anyio.fail_after(30):
            while len(seen) < 3:
                await anyio.sleep(0.001)
    assert seen == [f"set by {each}" for each in added]


@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit, RecursionError])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_whatever_a_callback_of_events_raises_is_logged(
    queue: Queue[Any], server: Server, is_async: bool, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def plain(_: AddedEvent) -> None:
        raise kind("so")

    async def awaiting(_: AddedEvent) -> None:
        await anyio.lowlevel.checkpoint()
        raise kind("so")

    async with QueueEvents(queue.name, server.url) as events:
        events.on(AddedEvent, awaiting if is_async else plain)
        events.on(AddedEvent, lambda event: seen.append(event.job_id))
        await queue.add_bulk([NewJob("n") for _ in range(3)])
        with anyio.fail_after(30):
            while len(seen) < 3:
                await anyio.sleep(0.001)
        assert events.is_running
    reported = [record for record in caplog.records if record.getMessage().endswith("a callback for AddedEvent raised")]
    assert [record.exc_info[0] for record in reported if record.exc_info] == [kind] * 3
