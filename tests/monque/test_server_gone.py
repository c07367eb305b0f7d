"""A server that is gone in the middle, behind a proxy: no job is lost or runs twice, and a stop ends all the same."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest
from pymongo import AsyncMongoClient, MongoClient

from bullmq_protocol.testing.conformance import Fault
from monque_protocol import events
from monque_protocol.document import Job
from tests.monque.conftest import Monques
from tests.support.cut_proxy import CutProxy
from tests.support.seen import LIMIT_S, Seen

pytestmark = pytest.mark.anyio
JOBS = 24
_PROXIES: dict[str, CutProxy] = {}


@pytest.fixture(scope="module")
def mongodb(mongodb: str) -> Iterator[str]:
    """The server behind a proxy."""
    host, _, port = mongodb.removeprefix("mongodb://").partition("/")[0].rpartition(":")
    with CutProxy(host, int(port)) as proxy:
        url = f"mongodb://{proxy.host}:{proxy.port}"
        _PROXIES[url] = proxy
        yield url


@pytest.fixture
async def proxy(monque: Monques, mongodb: str) -> AsyncIterator[CutProxy]:
    # It gives up soon, and repeats nothing by itself: this gateway would not know a write that is sent again.
    kind: Any = AsyncMongoClient if monque.adapter == "asyncio" else MongoClient
    before, monque.client = monque.client, kind(mongodb, serverSelectionTimeoutMS=200, retryWrites=False)
    yield _PROXIES[mongodb]
    _PROXIES[mongodb].arm(Fault.NONE)
    await _closed(before)


async def _closed(client: Any) -> None:
    done = client.close()
    if done is not None:
        await done


async def test_a_server_that_is_gone_for_a_while_costs_no_job_and_no_second_run(
    monque: Monques, proxy: CutProxy
) -> None:
    ran: Counter[int] = Counter()
    go_on = anyio.Event()
    async with monque.running(poll_interval=50, heartbeat_interval=50) as scheduler:
        seen = Seen(scheduler, events.JobStarted, events.JobCompleted, events.JobErrored, events.JobLost)

        async def handle(job: Job[Any]) -> None:
            ran[job.data] += 1
            await go_on.wait()

        for number in range(JOBS):
            await scheduler.enqueue("mail", number)
        scheduler.worker("mail", handle, concurrency=6)
        await seen.wait(events.JobStarted, 6)
        proxy.arm(Fault.REFUSE)
        await seen.wait(events.JobErrored)
        # These end while nobody can be told.
        go_on.set()
        await seen.wait(events.JobErrored, 2)
        proxy.arm(Fault.NONE)
        await seen.until(lambda: len(seen.of(events.JobCompleted)) + len(seen.of(events.JobLost)) == JOBS)
        assert scheduler.is_healthy
    assert all(event.uncertain for event in seen.of(events.JobLost))
    stored = await anyio.to_thread.run_sync(lambda: [each["status"] for each in monque.stored.find()])
    assert stored == ["completed"] * JOBS and ran == Counter(range(JOBS))


@pytest.mark.parametrize("marker", ["findAndModify", "heartbeatInterval"])
async def test_replies_that_are_lost_cost_no_job_and_no_second_run(
    monque: Monques, proxy: CutProxy, marker: str
) -> None:
    ran: Counter[int] = Counter()
    async with monque.running(poll_interval=50) as scheduler:
        seen = Seen(scheduler, events.JobCompleted, events.JobLost)

        async def handle(job: Job[Any]) -> None:
            ran[job.data] += 1

        for number in range(JOBS):
            await scheduler.enqueue("mail", number)
        # Reports and claims, or claims alone: what they have done is done.
        proxy.arm(Fault.CUT_AFTER, marker, times=4)
        scheduler.worker("mail", handle, concurrency=4)
        await seen.until(lambda: len(seen.of(events.JobCompleted)) + len(seen.of(events.JobLost)) == JOBS)
        assert proxy.struck == 4
    stored = await anyio.to_thread.run_sync(lambda: [each["status"] for each in monque.stored.find()])
    assert stored == ["completed"] * JOBS and ran == Counter(range(JOBS))


async def test_a_stop_ends_although_the_server_is_gone(monque: Monques, proxy: CutProxy) -> None:
    entered, go_on = anyio.Event(), anyio.Event()
    with anyio.fail_after(LIMIT_S):
        async with monque.running(shutdown_timeout=100) as scheduler:
            seen = Seen(scheduler, events.JobErrored)

            async def handle(job: Job[Any]) -> None:
                entered.set()
                await go_on.wait()

            scheduler.worker("mail", handle)
            await scheduler.enqueue("mail", None)
            await entered.wait()
            proxy.arm(Fault.REFUSE)
            go_on.set()
            await scheduler.stop()
            assert not scheduler.is_healthy
            assert any("Shutdown timed out" in str(event.error) for event in seen.all)
        assert scheduler.snapshot().state == "stopped"
