"""Change streams as a hint, on a scripted server: opened, woken by, broken, opened again, given up, closed."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import pytest

from monque_protocol import events
from monque_protocol.document import Job
from monque_protocol.errors import MonqueConnectionError
from tests.monque.conftest import Monques
from tests.support.monque_server import Scripted, scripted
from tests.support.seen import LIMIT_S, Seen

pytestmark = pytest.mark.anyio
STREAM: dict[str, Any] = {"change_streams": True, "poll_interval": 3_600_000, "safety_poll_interval": 3_600_000}
KINDS = (
    *(events.ChangeStreamConnected, events.ChangeStreamError, events.ChangeStreamClosed),
    *(events.ChangeStreamFallback, events.JobCompleted),
)


@pytest.fixture(scope="module")
def mongodb() -> Iterator[str]:
    """The scripted server in place of the real one."""
    with scripted() as made:
        _MADE[made.url] = made
        yield made.url


_MADE: dict[str, Scripted] = {}


@pytest.fixture
def script(mongodb: str) -> Scripted:
    made = _MADE[mongodb]
    made.refuses = False
    made.collection.documents.clear()
    return made


async def handle(job: Job[Any]) -> None:
    return None


async def test_a_job_of_another_program_is_found_by_its_change(monque: Monques, script: Scripted) -> None:
    other = monque()
    async with monque(**STREAM) as scheduler:
        seen = Seen(scheduler, *KINDS)
        await scheduler.start()
        scheduler.worker("mail", handle)
        await seen.wait(events.ChangeStreamConnected)
        await other.initialize()
        await other.enqueue("mail", 1)
        await seen.wait(events.JobCompleted)
        # One that is due later is woken for.
        await other.enqueue("mail", 2, run_at=(await other.enqueue("none", 0)).created_at + 300)
        await seen.wait(events.JobCompleted, 2)
    assert [type(event) for event in seen.all if not isinstance(event, events.JobCompleted)] == [
        events.ChangeStreamConnected,
        events.ChangeStreamClosed,
    ]


async def test_a_stream_that_breaks_is_opened_again(monque: Monques, script: Scripted) -> None:
    async with monque(**STREAM) as scheduler:
        seen = Seen(scheduler, *KINDS)
        await scheduler.start()
        await seen.wait(events.ChangeStreamConnected)
        script.forget_cursors()
        await seen.wait(events.ChangeStreamError)
        await seen.wait(events.ChangeStreamConnected, 2)
        assert scheduler.snapshot().listening


async def test_a_server_without_change_streams_is_polled(monque: Monques, script: Scripted) -> None:
    script.refuses = True
    async with monque(change_streams=True, change_stream_retry=20) as scheduler:
        seen = Seen(scheduler, *KINDS)
        await scheduler.start()
        scheduler.worker("mail", handle)
        other = monque()
        await other.initialize()
        await other.enqueue("mail", 1)
        await seen.wait(events.JobCompleted)
        (fallback,) = await seen.wait(events.ChangeStreamFallback)
    assert fallback.reason.startswith("Exhausted 3 reconnection attempts: The $changeStream stage")
    assert len(seen.of(events.ChangeStreamError)) == 4 and not seen.of(events.ChangeStreamConnected)


async def test_lost_connections_cost_no_job(monque: Monques, script: Scripted) -> None:
    async with monque.running(poll_interval=50) as scheduler:
        scheduler.worker("mail", handle, concurrency=4)
        with anyio.fail_after(LIMIT_S):
            for number in range(60):
                added = False
                while not added:
                    with suppress(MonqueConnectionError):
                        await scheduler.enqueue("mail", number, unique_key=f"k{number}")
                        added = True
                if number % 10 == 5:
                    script.cut()
            while any(each["status"] in ("pending", "processing") for each in list(script.collection.documents)):
                await anyio.sleep(0.01)
    assert {each["status"] for each in script.collection.documents} == {"completed"}
