"""Looking at queues and administering them, on every adapter and with both sources of scripts."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest

from bullmq_protocol import Deduplication, JobOptions, NewJob, UsageError, WorkerOptions
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.commands.getters import JobLogs
from bullmq_protocol.commands.queues import QueueHasActiveJobs, QueueSummary
from bullmq_protocol.common.reply import as_int, as_none, as_text
from bullmq_protocol.errors import JobNotFound
from bullmq_protocol.operations.clean import Clean
from bullmq_protocol.operations.read_dependencies import RangedChild
from bullmq_protocol.operations.read_jobs import JobPages
from tests.support.adapters import Adapter
from tests.support.families import add_child, add_parent, complete, fail
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

BOTH_SOURCES = True
LATER = JobOptions(delay=100_000)


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


@pytest.fixture
async def worker(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    """A worker that takes jobs by hand."""
    worker = adapter.Worker(name, None, server.url)
    yield worker
    await worker.aclose()


def wire(name: str, *args: str | int) -> Command[Any]:
    decode = {
        "DEL": as_int,
        "EXISTS": as_int,
        "XLEN": as_int,
        "SET": as_text,
        "ZADD": as_int,
        "CLIENT SETNAME": as_none,
    }
    return Command(name, (), args, decode[name], repeat=Repeat.SAFE)


async def add(queue: Any, count: int, options: JobOptions | None = None) -> list[str]:
    return [job.id for job in await queue.add_bulk([NewJob("n", {}, options or JobOptions())] * count)]


def ids(jobs: list[Any]) -> list[str]:
    return [job.id for job in jobs]


async def items(found: Any) -> list[Any]:
    return [item async for item in found]


def now() -> int:
    return int(time.time() * 1000)


# --- jobs by state and place ------------------------------------------------------------------------------------------

PLACES = [
    # start, end, a list of five: newest first, next to run first; a set of four: latest first, first finished first
    (0, -1, "54321", "12345", "4321", "1234"),
    (0, 1, "54", "12", "43", "12"),
    (1, 2, "43", "23", "32", "23"),
    (-1, -1, "1", "5", "1", "4"),
    (0, -2, "5432", "1234", "432", "123"),
    (-3, -2, "32", "34", "32", "23"),
    (-2, -1, "21", "45", "21", "34"),
    (1, -1, "4321", "2345", "321", "234"),
    (2, 0, "", "", "", ""),
]


async def test_places(queue: Any) -> None:
    await add(queue, 5)
    for number in range(1, 5):
        await queue.call(wire("ZADD", queue.keys.completed, number, str(number)))
    for start, end, *expected in PLACES:
        found = [
            "".join(await queue.get_ranges(state, start, end, asc))
            for state in ("waiting", "completed")
            for asc in (False, True)
        ]
        assert found == expected, (start, end)
        assert ids(await queue.get_jobs(["waiting"], start, end, asc=True)) == list(expected[1])
    assert await queue.get_ranges(["completed", "wait", "completed"]) == ["4", "3", "5"]
    # The jobs of completed are those of waiting here; none comes twice.
    assert ids(await queue.get_jobs(["completed", "waiting"])) == list("43215")


async def test_getters_by_state(queue: Any, worker: Any) -> None:
    done = await add(queue, 3)
    assert await complete(worker, 3) == done
    broken = await add(queue, 2)
    assert await fail(worker, 2) == broken
    active = await add(queue, 2)
    assert [(await worker.get_next_job()).id for _ in active] == active
    waiting = await add(queue, 3)
    slow = [(await queue.add("n", {}, JobOptions(delay=delay))).id for delay in (90_000, 80_000)]
    urgent = [(await queue.add("n", {}, JobOptions(priority=priority))).id for priority in (9, 3)]
    parent = await add_parent(queue, "parent", now())
    assert ids(await queue.get_completed()) == done[::-1]
    assert ids(await queue.get_completed(0, 0)) == done[-1:]
    assert ids(await queue.get_failed()) == broken[::-1]
    assert ids(await queue.get_active()) == active
    assert ids(await queue.get_waiting()) == waiting
    assert ids(await queue.get_waiting(1, 1)) == waiting[1:2]
    assert ids(await queue.get_delayed()) == slow[::-1]
    assert ids(await queue.get_prioritized()) == urgent[::-1]
    assert ids(await queue.get_waiting_children()) == [parent.id]
    everything = {*done, *broken, *active, *waiting, *slow, *urgent, "parent"}
    assert set(ids(await queue.get_jobs())) == everything
    assert set(ids(await items(queue.iter_jobs()))) == everything
    assert (await queue.get_failed())[0].failed_reason == "boom"
    await queue.pause()
    assert ids(await queue.get_waiting()) == waiting
    assert ids(await queue.get_jobs("wait")) == (waiting[::-1] if queue.keys.switches.merging_pause else [])

    assert await queue.get_job_counts() == {
        "active": 2,
        "completed": 3,
        "delayed": 2,
        "failed": 2,
        "paused": 3,
        "prioritized": 2,
        "waiting": 0,
        "waiting-children": 1,
    }
    assert await queue.get_job_count_by_types("completed", "failed") == 5
    assert await queue.count() == 3 + 2 + 2 + 1
    assert await queue.get_summary() == QueueSummary(waiting=5, active=2, delayed=2, completed=3, failed=2)
    counts = [
        await count()
        for count in (
            queue.get_active_count,
            queue.get_completed_count,
            queue.get_delayed_count,
            queue.get_failed_count,
            queue.get_prioritized_count,
            queue.get_waiting_count,
            queue.get_waiting_children_count,
        )
    ]
    assert counts == [2, 3, 2, 2, 2, 3, 1]
    assert await queue.get_counts_per_priority([9, 3, 1, 0]) == {9: 1, 3: 1, 1: 0, 0: 3}
    assert await queue.get_job_state(slow[0]) == await queue.get_state(slow[0]) == "delayed"
    await queue.remove("parent")


async def test_jobs_whose_hash_is_gone_are_left_out(queue: Any) -> None:
    first, second, third = await add(queue, 3)
    await queue.call(wire("DEL", queue.keys.job(second)))
    assert ids(await queue.get_waiting()) == [first, third]
    assert await queue.get_ranges("waiting", 0, -1, True) == [first, second, third]
    assert ids(await items(queue.iter_jobs("waiting", page_size=1, asc=True))) == [first, third]


async def test_jobs_in_pages_go_on_in_another_program(queue: Any, adapter: Adapter, server: Server) -> None:
    added = await add(queue, 7)
    walk = queue.iter_jobs("waiting", page_size=3, asc=True)
    assert [(await anext(walk)).id for _ in range(3)] == added[:3]
    saved = msgspec.json.encode(walk.rest)
    async with adapter.Queue(queue.name, server.url) as other:
        found = [page.value async for page in other.pages(msgspec.json.decode(saved, type=JobPages))]
    assert [[record.id for record in page] for page in found] == [added[3:6], added[6:], []]


# --- clean ------------------------------------------------------------------------------------------------------------


async def test_clean_in_pages(queue: Any, worker: Any) -> None:
    done = await add(queue, 7)
    await complete(worker, 7)
    assert await queue.clean(timedelta(hours=1)) == []
    pages: list[list[str]] = []
    removed = await queue.clean(0, 5, "completed", page_size=2, on_page=lambda page: pages.append(page.value))
    assert removed == done[:5]
    assert pages == [done[0:2], done[2:4], done[4:5]]
    assert await queue.get_job(done[0]) is None
    assert await queue.clean(0) == done[5:]
    assert await queue.clean(0) == []


@pytest.mark.parametrize("state", ["waiting", "wait", "paused", "delayed", "prioritized", "failed", "active"])
async def test_clean_of_each_state(queue: Any, worker: Any, state: str) -> None:
    options = {"delayed": LATER, "prioritized": JobOptions(priority=1)}.get(state, JobOptions())
    added = await add(queue, 5, options)
    if state == "failed":
        await fail(worker, 5)
    if state == "paused":
        await queue.pause()
    if state == "active":
        for job_id in added:
            await worker.get_next_job()
            await queue.call(wire("DEL", queue.keys.lock(job_id)))
    assert await queue.clean(60_000, 0, state) == []
    # So that all are older than now.
    await anyio.sleep(0.002)
    assert sorted(await queue.clean(0, 3, state, page_size=2)) == sorted(added)[:3]
    left = set(await queue.get_ranges(state, 0, -1))
    assert len(left) == 2
    assert set(await queue.clean(0, 0, state, page_size=2)) == left
    assert await queue.get_job_count_by_types() == 0


async def test_clean_leaves_locked_jobs(queue: Any, worker: Any) -> None:
    await add(queue, 2)
    locked = await worker.get_next_job()
    assert await queue.clean(0, 0, "active") == []
    assert await queue.get_job_state(locked.id) == "active"


async def test_clean_goes_on_in_another_program(queue: Any, worker: Any, adapter: Adapter, server: Server) -> None:
    done = await add(queue, 5)
    await complete(worker, 5)
    walk = queue.clean_pages(0, 4, page_size=2)
    assert (await anext(walk)).value == done[:2]
    saved = msgspec.json.decode(msgspec.json.encode(walk.rest), type=Clean)
    async with adapter.Queue(queue.name, server.url) as other:
        assert [page.value async for page in other.pages(saved)] == [done[2:4]]


# --- drain, retry, promote, obliterate --------------------------------------------------------------------------------


async def test_drain(queue: Any, worker: Any) -> None:
    await add(queue, 2)
    await complete(worker)
    active = await worker.get_next_job()
    await add(queue, 3)
    await add(queue, 3, JobOptions(priority=5))
    slow = await add(queue, 2, LATER)
    await queue.drain()
    assert await queue.get_summary() == QueueSummary(waiting=0, active=1, delayed=2, completed=1, failed=0)
    assert await queue.get_job(slow[0]) is not None
    await queue.drain(delayed=True)
    assert await queue.get_job(slow[0]) is None
    assert await queue.get_summary() == QueueSummary(waiting=0, active=1, delayed=0, completed=1, failed=0)
    assert await queue.get_job_state(active.id) == "active"


@pytest.mark.parametrize("state", ["failed", "completed"])
async def test_retry_jobs(queue: Any, worker: Any, state: str) -> None:
    added = await add(queue, 7)
    await (fail if state == "failed" else complete)(worker, 4)
    await anyio.sleep(0.002)
    middle = now()
    await anyio.sleep(0.002)
    await (fail if state == "failed" else complete)(worker, 3)
    left: list[int] = []
    await queue.retry_jobs(state, count=2, timestamp=middle, on_page=lambda page: left.append(page.value))
    assert left == [2, 0, 0]
    assert ids(await queue.get_waiting()) == added[:4]
    assert [job.finished_on for job in await queue.get_waiting()] == [None] * 4
    assert await queue.get_job_count_by_types(state) == 3
    await queue.retry_jobs(state)
    assert ids(await queue.get_waiting()) == added
    assert await complete(worker, 7) == added


async def test_a_job_that_fails_again_is_retried_once(queue: Any, worker: Any) -> None:
    first, second = await add(queue, 2)
    await fail(worker, 2)
    await anyio.sleep(0.002)
    walk = queue.retry_pages(count=1)
    await anext(walk)
    await anyio.sleep(0.002)
    assert await fail(worker) == [first]
    rest = [page.value async for page in walk]
    assert rest[-1] == 0
    assert ids(await queue.get_waiting()) == [second]
    assert ids(await queue.get_failed()) == [first]


async def test_promote_jobs(queue: Any, worker: Any) -> None:
    slow = await add(queue, 5, LATER)
    left: list[int] = []
    await queue.promote_jobs(count=2, on_page=lambda page: left.append(page.value))
    assert left == [3, 1, 0]
    assert await complete(worker, 5) == slow
    await add(queue, 1, LATER)
    assert [page.value async for page in queue.promote_pages()] == [0]


async def test_obliterate_in_pages(queue: Any, worker: Any) -> None:
    await add(queue, 5)
    await complete(worker, 2)
    await worker.get_next_job()
    with pytest.raises(QueueHasActiveJobs):
        await queue.obliterate()
    assert await queue.is_paused() is True
    walk = queue.obliterate_pages(force=True, count=2)
    assert (await anext(walk)).value == 3
    left: list[int] = []
    await queue.obliterate(force=True, count=2, on_page=lambda page: left.append(page.value))
    assert left == [1, 0]
    assert await queue.call(wire("EXISTS", queue.keys.meta, queue.keys.paused, queue.keys.job("1"))) == 0


# --- logs and progress ------------------------------------------------------------------------------------------------


async def test_logs(queue: Any) -> None:
    (job_id,) = await add(queue, 1)
    assert await queue.get_job_logs(job_id) == JobLogs([], 0)
    assert [await queue.add_job_log(job_id, row) for row in "abcde"] == [1, 2, 3, 4, 5]
    assert await queue.get_job_logs(job_id) == JobLogs(list("abcde"), 5)
    assert await queue.get_job_logs(job_id, 1, 2) == JobLogs(list("bc"), 5)
    assert await queue.get_job_logs(job_id, 0, 1, asc=False) == JobLogs(list("ed"), 5)
    assert await items(queue.iter_logs(job_id, page_size=2)) == list("abcde")
    assert await items(queue.iter_logs(job_id, page_size=3, asc=False)) == list("edcba")
    assert await queue.add_job_log(job_id, "f", keep_logs=2) == 2
    assert await items(queue.iter_logs(job_id)) == ["e", "f"]
    with pytest.raises(JobNotFound):
        await queue.add_job_log("no-such", "x")


async def test_progress_by_id(queue: Any) -> None:
    (job_id,) = await add(queue, 1)
    await queue.update_job_progress(job_id, {"step": 3})
    assert (await queue.get_job(job_id)).progress == {"step": 3}
    with pytest.raises(JobNotFound):
        await queue.update_job_progress("no-such", 1)


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_global_concurrency(queue: Any, worker: Any) -> None:
    assert await queue.get_global_concurrency() is None
    assert await queue.remove_global_concurrency() is False
    await queue.set_global_concurrency(1)
    assert await queue.get_global_concurrency() == 1
    await add(queue, 2)
    job = await worker.get_next_job(block=False)
    assert await queue.is_maxed() is True
    assert await worker.get_next_job(block=False) is None
    await queue.set_global_concurrency(2)
    assert await queue.is_maxed() is False
    await worker.complete(job)
    assert await queue.remove_global_concurrency() is True
    assert await queue.get_global_concurrency() is None


async def test_global_rate_limit(queue: Any, worker: Any, adapter: Adapter, server: Server) -> None:
    assert await queue.get_global_rate_limit() is None
    await queue.set_global_rate_limit(1, timedelta(seconds=20))
    assert await queue.get_global_rate_limit() == Limiter(max=1, duration=20_000)
    await add(queue, 2)
    await worker.get_next_job(block=False)
    assert await worker.get_next_job(block=False) is None
    assert 10_000 < await queue.get_rate_limit_ttl() <= 20_000
    assert await queue.remove_rate_limit_key() is True
    assert await queue.remove_rate_limit_key() is False
    assert await queue.remove_global_rate_limit() is True
    assert await queue.get_global_rate_limit() is None
    # The first worker still waits for the end of the window it knows of.
    another = adapter.Worker(queue.name, None, server.url)
    assert (await another.get_next_job(block=False)).id == "2"
    await another.aclose()


async def test_deduplication_look_ups(queue: Any) -> None:
    assert await queue.get_deduplication_job_id("d") is None
    first = await queue.add("n", {}, JobOptions(deduplication=Deduplication("d")))
    assert await queue.get_deduplication_job_id("d") == first.id
    assert await queue.remove_deduplication_key("d") is True
    assert await queue.remove_deduplication_key("d") is False
    assert (await queue.add("n", {}, JobOptions(deduplication=Deduplication("d")))).id != first.id


# --- figures and company ----------------------------------------------------------------------------------------------


async def test_metrics(queue: Any, adapter: Adapter, server: Server) -> None:
    assert (await queue.get_metrics("completed")).total == 0
    options = WorkerOptions(metrics_max_data_points=10)
    minute = now() // 60_000
    await add(queue, 3)
    async with adapter.Worker(queue.name, nothing, server.url, options=options):
        with anyio.fail_after(30):
            while await queue.get_completed_count() < 3:
                await anyio.sleep(0.01)
    metrics = await queue.get_metrics("completed", 0, 4)
    assert (metrics.total, metrics.count) == (3, len(metrics.data))
    # There is a point once a minute is over.
    assert metrics.data == [] or now() // 60_000 > minute
    assert now() - metrics.prev_at < 60_000
    assert (await queue.get_metrics("failed")).total == 0


async def nothing(job: Any) -> None:
    pass


async def test_text_for_prometheus(queue: Any) -> None:
    await add(queue, 2)
    lines = (await queue.export_prometheus_metrics({"env": "test"})).split("\n")
    assert lines[0].startswith("# HELP bullmq_job_count")
    assert f'bullmq_job_count{{queue="{queue.name}", state="waiting", env="test"}} 2' in lines
    assert len(lines) == 10
    assert "env" not in await queue.export_prometheus_metrics()


async def test_workers_and_listeners(queue: Any, adapter: Adapter, server: Server) -> None:
    assert await queue.get_workers_count() == 0
    async with adapter.Worker(queue.name, nothing, server.url, options=WorkerOptions(name="w1")):
        with anyio.fail_after(30):
            while not await queue.get_workers():
                await anyio.sleep(0.01)
        (found,) = await queue.get_workers()
        assert found["rawname"] == queue.keys.client_name("w1")
        assert await queue.get_workers_count() == 1
    assert await queue.get_queue_events() == []
    await queue.call(wire("CLIENT SETNAME", f"{queue.keys.client_name()}:qe"))
    (listener,) = await queue.get_queue_events()
    assert (listener["name"], listener["rawname"]) == (queue.name, f"{queue.keys.client_name()}:qe")


async def test_events_can_be_trimmed(queue: Any) -> None:
    await add(queue, 300)
    before = await queue.call(wire("XLEN", queue.keys.events))
    removed = await queue.trim_events(10)
    assert removed > 0
    assert await queue.call(wire("XLEN", queue.keys.events)) == before - removed


async def test_deprecated_priority_key(queue: Any) -> None:
    assert await queue.remove_deprecated_priority_key() is False
    await queue.call(wire("SET", f"{queue.keys.base}priority", "x"))
    assert await queue.remove_deprecated_priority_key() is True


async def test_children_by_place(queue: Any, worker: Any) -> None:
    await add_parent(queue, "parent", now())
    for number in range(5):
        await add_child(queue, "parent", f"c{number}")
    assert await complete(worker, 2, {"ok": 1}) == ["c0", "c1"]
    done = await queue.get_dependencies("parent", "processed")
    assert sorted(done.items, key=lambda item: item.key) == [
        RangedChild(queue.keys.job(f"c{number}"), {"ok": 1}) for number in range(2)
    ]
    assert sorted(ids(done.jobs)) == ["c0", "c1"]
    assert done.total == 2
    pending = await queue.get_dependencies("parent", "pending", 1, 2)
    everyone = await queue.get_dependencies("parent", "pending")
    assert pending.items == everyone.items[1:3]
    assert (len(pending.jobs), pending.total) == (2, 3)
    await queue.remove("parent")


# --- bad arguments ----------------------------------------------------------------------------------------------------


async def test_bad_arguments_send_nothing(queue: Any) -> None:
    with pytest.raises(UsageError):
        await queue.clean(-1)
    with pytest.raises(UsageError):
        await queue.obliterate(count=0)
    # Not even the queue's own description was written.
    assert await queue.call(wire("EXISTS", queue.keys.id, queue.keys.events)) == 0


async def test_options_that_were_used_before(queue: Any) -> None:
    """What is remembered of options is theirs alone, and nothing is of those that can be changed."""
    mine = {"mine": 1}
    changed = JobOptions(extra=mine)
    first = await queue.add("n", {}, changed)
    mine["mine"] = 2
    second = await queue.add("n", {}, changed)
    stored = [await queue.get_job(job.id) for job in (first, second)]
    assert [job.opts.extra["mine"] for job in stored] == [1, 2]
    again = JobOptions(priority=5)
    for number in range(1, 100):
        # Objects that live shortly have the identities of earlier ones.
        added = await queue.add("n", {}, JobOptions(priority=number))
        assert (added.name, added.priority) == ("n", number)
        assert (await queue.add(f"other-{number}", {}, again)).priority == 5
    assert await queue.get_counts_per_priority([5, 99]) == {5: 100, 99: 1}
