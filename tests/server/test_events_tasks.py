"""What only tasks have: cancelled readers and waits leave nothing behind, on asyncio and on trio."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

import bullmq_anyio.events as events_module
from bullmq_anyio import Connection, Queue, QueueEvents
from bullmq_anyio.guard import is_cancelling
from bullmq_protocol import NewJob
from bullmq_protocol.command import Batch
from bullmq_protocol.errors import JobNotFound
from bullmq_protocol.events.stream import AddedEvent
from tests.support.servers import Server


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


@pytest.mark.any_server
async def test_all_callers_are_asked_for_at_once(
    queue: Queue[Any], server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the reader, in a few round trips: none of 2,000 callers asks again by itself."""
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


async def test_a_reader_whose_task_is_cancelled_within_a_callback_ends(
    queue: Queue[Any], server: Server, name: str, anyio_backend_name: str
) -> None:
    if anyio_backend_name != "asyncio":
        # Only asyncio cancels a task itself: the reader's own is the same there as any other.
        assert not is_cancelling()
        return
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
