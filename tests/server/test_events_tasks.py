"""What only tasks have: cancelled readers and waits leave nothing behind, on asyncio and on trio."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from bullmq_anyio import Queue, QueueEvents
from bullmq_protocol.stream import AddedEvent
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
