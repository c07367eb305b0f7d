"""Schedulers on a server, in each adapter: adding, running, retrying, managing, reading, stopping."""

import time
from collections import Counter
from typing import Any

import anyio
import msgspec
import pytest
from pymongo import MongoClient, WriteConcern

import monque_anyio
import monque_sync
from bullmq_protocol.errors import UsageError
from monque_protocol import events
from monque_protocol.commands import ListFilter, Selector
from monque_protocol.cursor import Sort
from monque_protocol.document import Job
from monque_protocol.errors import (
    InvalidCronError,
    InvalidCursorError,
    InvalidJobIdentifierError,
    JobStateError,
    MonqueConnectionError,
    PayloadTooLargeError,
    WorkerRegistrationError,
)
from monque_protocol.options import JobRetention
from tests.monque.conftest import Monques
from tests.support.seen import LIMIT_S, Seen

pytestmark = pytest.mark.anyio


async def succeed(job: Job[Any]) -> None:
    return None


async def test_jobs_are_run_and_their_documents_are_monques(monque: Monques) -> None:
    async with monque() as scheduler:
        seen = Seen(scheduler, events.JobStarted, events.JobCompleted)
        ran: list[Any] = []

        async def handle(job: Job[Any]) -> None:
            ran.append(job)

        scheduler.worker("mail", handle)
        added = [await scheduler.enqueue("mail", {"n": number}) for number in range(20)]
        await scheduler.start()
        assert scheduler.is_healthy
        done = await seen.wait(events.JobCompleted, 20)
    assert sorted(job.data["n"] for job in ran) == list(range(20))
    assert {job.status for job in ran} == {"processing"} and len(seen.of(events.JobStarted)) == 20
    assert {event.job.id for event in done} == {job.id for job in added}
    assert all(event.job.status == "completed" and event.duration_ms >= 0 for event in done)
    for document in monque.stored.find():
        assert set(document) == {
            *("_id", "name", "data", "status", "nextRunAt", "failCount", "createdAt", "updatedAt"),
            "heartbeatInterval",
        }
        assert (document["status"], document["failCount"], document["heartbeatInterval"]) == ("completed", 0, 30_000)
    assert not scheduler.is_healthy


async def test_what_fails_is_retried_and_then_failed(monque: Monques) -> None:
    async with monque.running(max_retries=3, base_retry_interval=5) as scheduler:
        seen = Seen(scheduler, events.JobFailed)

        async def handle(job: Job[Any]) -> None:
            raise ValueError(f"no {job.fail_count}")

        scheduler.worker("mail", handle)
        added = await scheduler.enqueue("mail", None)
        failed = await seen.wait(events.JobFailed, 3)
        assert [event.will_retry for event in failed] == [True, True, False]
        assert [str(event.error) for event in failed] == ["no 0", "no 1", "no 2"]
        stored = await scheduler.get_job(added.id)
        assert (stored.status, stored.fail_count, stored.fail_reason) == ("failed", 3, "no 2")
        again = await scheduler.retry_job(added.id)
        assert (again.status, again.fail_count, again.fail_reason) == ("pending", 0, None)
        await seen.wait(events.JobFailed, 6)


async def test_a_recurring_job_runs_again_and_again(monque: Monques) -> None:
    async with monque.running() as scheduler:
        seen = Seen(scheduler, events.JobCompleted)
        scheduler.worker("tick", succeed)
        added = await scheduler.schedule("* * * * * *", "tick", {}, unique_key="one")
        assert (await scheduler.schedule("@daily", "tick", {}, unique_key="one")).id == added.id
        done = await seen.wait(events.JobCompleted, 2)
        assert {event.job.id for event in done} == {added.id}
        assert done[0].job.status == "pending" and done[1].job.next_run_at > done[0].job.next_run_at
        assert done[0].job.next_run_at % 1000 == 0 and added.repeat_interval == "* * * * * *"


async def test_a_unique_key_holds_while_a_job_is_active(monque: Monques) -> None:
    async with monque() as scheduler:
        later = time.time_ns() // 1_000_000 + 60_000
        first = await scheduler.enqueue("mail", 1, unique_key="k", run_at=later)
        assert first.next_run_at == later
        assert (await scheduler.enqueue("mail", 2, unique_key="k")).data == 1
        assert (await scheduler.enqueue("report", 3, unique_key="k")).data == 3
        seen = Seen(scheduler, events.JobCancelled, events.JobRetried, events.JobDeleted)
        assert (await scheduler.cancel_job(first.id)).status == "cancelled"
        assert (await scheduler.cancel_job(first.id)).status == "cancelled"
        assert (await scheduler.enqueue("mail", 4, unique_key="k")).data == 4
        with pytest.raises(MonqueConnectionError, match=r"^Failed to retry job: ") as raised:
            await scheduler.retry_job(first.id)
        assert raised.value.number == 11000
        assert await scheduler.delete_job(first.id) and not await scheduler.delete_job(first.id)
        assert [type(event) for event in seen.all] == [events.JobCancelled, events.JobDeleted]
        assert await scheduler.cancel_job("nothing") is None is await scheduler.get_job(first.id)
        running = monque.stored.find_one({"name": "report"})
        monque.stored.update_one({"_id": running["_id"]}, {"$set": {"status": "processing"}})
        for change in (scheduler.cancel_job, scheduler.retry_job):
            with pytest.raises(JobStateError, match="job in status 'processing'"):
                await change(str(running["_id"]))


async def test_many_are_managed_by_one_command(monque: Monques) -> None:
    async with monque() as scheduler:
        seen = Seen(scheduler, events.JobsCancelled, events.JobsRetried, events.JobsDeleted)
        for number in range(6):
            await scheduler.enqueue("mail" if number < 4 else "report", number)
        assert await scheduler.cancel_jobs(Selector(name="mail")) == 4
        assert await scheduler.cancel_jobs(Selector(status="failed")) == 0
        assert await scheduler.retry_jobs(Selector(name="mail")) == 4
        due = [document["nextRunAt"] for document in monque.stored.find({"name": "mail"})]
        assert len(set(due)) > 1
        assert await scheduler.delete_jobs(Selector()) == 6
        assert [event.count for event in seen.all] == [4, 4, 6]


async def test_jobs_are_read_in_lists_pages_and_counts(monque: Monques) -> None:
    async with monque() as scheduler:
        scheduler.worker("mail", succeed, concurrency=3)
        added = [await scheduler.enqueue("mail", number, run_at=1000 - number) for number in range(7)]
        assert [job.data for job in await scheduler.get_jobs(limit=3, skip=1)] == [5, 4, 3]
        assert await scheduler.get_jobs(name="mail", status=["failed", "completed"]) == []
        cursor, seen = None, []
        while True:
            page = await scheduler.get_jobs_with_cursor(cursor=cursor, limit=3, sort=Sort("nextRunAt", "desc"))
            seen += [job.data for job in page.jobs]
            cursor = page.cursor
            if not page.has_next_page:
                break
        assert seen == list(range(7))
        page = await scheduler.get_jobs_with_cursor(limit=2, direction="backward", filter=ListFilter(name="mail"))
        assert [job.id for job in page.jobs] == [job.id for job in added[-2:]]
        with pytest.raises(InvalidCursorError):
            await scheduler.get_jobs_with_cursor(cursor=cursor)
        stats = await scheduler.get_queue_stats()
        assert (stats.pending, stats.total, stats.avg_processing_duration_ms) == (7, 7, None)
        await scheduler.enqueue("other", 0)
        assert await scheduler.get_queue_stats() == stats
        views = await scheduler.get_queue_view_summaries()
        assert [(view.name, view.stats.pending, view.has_registered_worker) for view in views] == [
            ("mail", 7, True),
            ("other", 1, False),
        ]
        assert views[0].worker.concurrency == 3
        await scheduler.reschedule_job(added[0].id, 50_000)
        assert (await scheduler.get_job(added[0].id)).next_run_at == 50_000


async def test_bad_input_is_refused_before_anything_is_sent(monque: Monques) -> None:
    scheduler = monque(max_payload_size=50)
    with pytest.raises(MonqueConnectionError, match=r"^Monque not initialized"):
        await scheduler.enqueue("mail", 1)
    async with scheduler:
        refused: list[tuple[type[Exception], Any]] = [
            (InvalidJobIdentifierError, lambda: scheduler.enqueue("a b", 1)),
            (InvalidJobIdentifierError, lambda: scheduler.enqueue("mail", 1, unique_key=" ")),
            (PayloadTooLargeError, lambda: scheduler.now("mail", "x" * 50)),
            (PayloadTooLargeError, lambda: scheduler.now("mail", {"x": object()})),
            (InvalidCronError, lambda: scheduler.schedule("61 * * * *", "mail", 1)),
            (UsageError, lambda: scheduler.enqueue("mail", 1, run_at="soon")),
            (UsageError, lambda: scheduler.get_jobs(limit=-1)),
            (UsageError, lambda: scheduler.get_jobs(status="odd")),
            (UsageError, lambda: scheduler.get_jobs_with_cursor(direction="up")),
        ]
        for error, call in refused:
            with pytest.raises(error):
                await call()
        scheduler.worker("mail", succeed)
        with pytest.raises(WorkerRegistrationError):
            scheduler.worker("mail", succeed)
        with pytest.raises(UsageError):
            scheduler.worker("other", "handler")
        assert monque.stored.count_documents({}) == 0


class Mail(msgspec.Struct):
    to: str


async def test_typed_payloads(monque: Monques) -> None:
    async with monque.running(max_retries=1) as scheduler:
        seen = Seen(scheduler, events.JobCompleted, events.JobFailed)
        got: list[Any] = []

        async def handle(job: Job[Mail]) -> None:
            got.append(job.data)

        scheduler.worker("mail", handle, data_type=Mail)
        await scheduler.enqueue("mail", Mail("x"))
        await scheduler.enqueue("mail", {"to": 5})
        await seen.wait(events.JobCompleted)
        (failed,) = await seen.wait(events.JobFailed)
        assert got == [Mail("x")] and "Expected `str`" in failed.job.fail_reason


async def test_stop_waits_for_what_runs_and_takes_nothing_more(monque: Monques) -> None:
    entered, go_on = anyio.Event(), anyio.Event()
    async with monque.running() as scheduler:
        seen = Seen(scheduler, events.JobCompleted, events.JobErrored)

        async def handle(job: Job[Any]) -> None:
            entered.set()
            await go_on.wait()

        scheduler.worker("mail", handle, concurrency=1)
        for _ in range(3):
            await scheduler.enqueue("mail", None)
        with anyio.fail_after(LIMIT_S):
            await entered.wait()
        async with anyio.create_task_group() as group:
            group.start_soon(scheduler.stop)
            while scheduler.snapshot().state == "running":
                await anyio.lowlevel.checkpoint()
            go_on.set()
        assert len(await seen.wait(events.JobCompleted)) == 1 and not seen.of(events.JobErrored)
        assert Counter(each["status"] for each in monque.stored.find()) == {"completed": 1, "pending": 2}
        await scheduler.start()
        await seen.wait(events.JobCompleted, 3)


async def test_what_outlives_its_time_is_given_back_at_the_end_of_tasks(monque: Monques) -> None:
    entered, go_on = anyio.Event(), anyio.Event()
    async with monque.running(shutdown_timeout=50) as scheduler:
        seen = Seen(scheduler, events.JobErrored, events.JobReleased, events.JobCompleted)

        async def handle(job: Job[Any]) -> None:
            entered.set()
            await go_on.wait()

        scheduler.worker("mail", handle)
        await scheduler.enqueue("mail", None)
        with anyio.fail_after(LIMIT_S):
            await entered.wait()
    (errored,) = await seen.wait(events.JobErrored)
    assert str(errored.error) == "Shutdown timed out after 50ms with 1 incomplete jobs"
    if monque.adapter == "threads":
        # Its thread goes on, and what becomes of the job is stored.
        go_on.set()
        await seen.wait(events.JobCompleted)
    else:
        first, *more = [event.reason for event in seen.of(events.JobReleased)]
        # A claim that was under way may find it again.
        assert first == "cancelled" and set(more) <= {"stopping"}
        assert monque.stored.find_one()["status"] == "pending"


async def test_a_stale_job_is_recovered_and_a_name_that_is_in_use_refused(monque: Monques) -> None:
    async with monque(lock_timeout=60_000) as scheduler:
        await scheduler.enqueue("mail", None)
    command = {"$set": {"status": "processing", "claimedBy": "gone"}, "$currentDate": {"lastHeartbeat": True}}
    monque.stored.update_one({}, [{"$set": command["$set"] | {"lockedAt": "$createdAt", "lastHeartbeat": "$$NOW"}}])
    with pytest.raises(MonqueConnectionError, match='instance is using schedulerInstanceId "gone"'):
        await monque(scheduler_instance_id="gone").initialize()
    scheduler = monque(lock_timeout=1)
    seen = Seen(scheduler, events.StaleRecovered)
    await scheduler.initialize()
    assert [event.count for event in seen.all] == [1]
    document = monque.stored.find_one()
    assert document["status"] == "pending" and "claimedBy" not in document


async def test_retention_and_heartbeats(monque: Monques) -> None:
    go_on = anyio.Event()
    retention = JobRetention(completed=0, interval=50)
    async with monque.running(heartbeat_interval=20, job_retention=retention) as scheduler:
        seen = Seen(scheduler, events.JobCompleted)

        async def handle(job: Job[Any]) -> None:
            await go_on.wait()

        scheduler.worker("mail", handle)
        await scheduler.enqueue("mail", None)
        with anyio.fail_after(LIMIT_S):
            while True:
                document = await anyio.to_thread.run_sync(monque.stored.find_one)
                if document.get("lastHeartbeat", 0) != document.get("lockedAt", 0):
                    break
            assert document["claimedBy"] == scheduler.scheduler_instance_id
            go_on.set()
            await seen.wait(events.JobCompleted)
            while await anyio.to_thread.run_sync(monque.stored.find_one) is not None:
                await anyio.lowlevel.checkpoint()


async def test_events_can_be_iterated_and_a_callback_that_raises_harms_nobody(monque: Monques, caplog: Any) -> None:
    async with monque.running() as scheduler:

        def broken(event: Any) -> None:
            raise ValueError("no")

        scheduler.on(events.JobStarted, broken)
        stream = scheduler.events()
        scheduler.worker("mail", succeed)
        await scheduler.enqueue("mail", None)
        seen: list[type] = []
        with anyio.fail_after(LIMIT_S):
            while events.JobCompleted not in seen:
                seen.append(type(await _next(stream)))
        assert seen == [events.JobStarted, events.JobCompleted]
    assert "a callback of JobStarted raised" in caplog.text


async def _next(stream: Any) -> Any:
    if hasattr(stream, "__anext__"):
        return await stream.__anext__()
    return await anyio.to_thread.run_sync(next, stream)


async def test_two_schedulers_share_the_work_and_no_job_runs_twice(monque: Monques) -> None:
    ran: Counter[str] = Counter()
    owners: Counter[str] = Counter()
    async with monque.running() as first, monque.running() as second:
        watched = [Seen(scheduler, events.JobCompleted) for scheduler in (first, second)]
        for scheduler in (first, second):

            async def handle(job: Job[Any]) -> None:
                ran[job.id] += 1
                owners[job.claimed_by or ""] += 1
                await anyio.sleep(0.001)

            scheduler.worker("mail", handle, concurrency=4)
        for number in range(120):
            await first.enqueue("mail", number)
        with anyio.fail_after(LIMIT_S):
            while sum(len(seen.all) for seen in watched) < 120:
                await anyio.sleep(0.01)
    assert set(ran.values()) == {1} and len(ran) == 120 and len(owners) == 2


def test_databases_that_cannot_be_used_are_refused(mongodb: str) -> None:
    with MongoClient(mongodb) as client:
        database = client.get_database("x", write_concern=WriteConcern(w=0))
        for package in (monque_anyio, monque_sync):
            for wrong in (None, client, database):
                with pytest.raises(UsageError, match=r"^db: "):
                    package.Monque(wrong)


@pytest.mark.parametrize("why", ["another index", "two active jobs"])
async def test_start_up_is_refused_where_the_unique_index_cannot_be_made(monque: Monques, why: str) -> None:
    if why == "another index":
        monque.stored.create_index([("name", 1), ("uniqueKey", 1)])
    else:
        active = {"name": "mail", "uniqueKey": "k", "status": "pending"}
        monque.stored.insert_many([{**active, "n": number} for number in range(2)])
    with pytest.raises(MonqueConnectionError, match=r"^Failed to initialize Monque: ") as raised:
        await monque().initialize()
    # Names and codes of MongoDB: options conflict, key specs conflict, duplicate key.
    assert raised.value.number in (85, 86, 11000)
    with pytest.raises(MonqueConnectionError, match=r"^Monque not initialized"):
        await monque().enqueue("mail", 1)
    async with monque(skip_index_creation=True) as scheduler:
        assert (await scheduler.enqueue("mail", 1)).status == "pending"
