"""Queues on which clients of several versions work: what the profile `fleet` keeps right beside the others.

The peers are profiles, too: `STRICT` does what BullMQ 5.62.0 does, `V6_7` what 6.7.0 does. Letters are those of
specs/06-later-versions.md, section 5.3; line H is in tests/unit/test_schedule.py.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import anyio
import pytest

from bullmq_protocol import Deduplication, JobOptions, KeepJobs, NewJob, RepeatOptions, UsageError
from bullmq_protocol.command import Command
from bullmq_protocol.commands.queues import heal
from bullmq_protocol.common.reply import as_int, as_list, as_none, as_texts
from bullmq_protocol.model.cron import CronError
from bullmq_protocol.model.flow import FlowNode
from bullmq_protocol.scripts.profile import FLEET, STRICT, V6_7
from bullmq_protocol.worker.notices import JobFailed
from bullmq_protocol.worker.options import WorkerOptions
from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


class Peers(NamedTuple):
    """One queue, by clients of several versions."""

    ours: Any
    older: Any
    newer: Any


@pytest.fixture
async def peers(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Peers]:
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(adapter.Queue(name, server.url, scripts=profile))
            for profile in (FLEET, STRICT, V6_7)
        ]
        yield Peers(*made)
        await made[0].obliterate(force=True)


async def ids(queue: Any, state: str) -> list[str]:
    """Return the ids in one list, the next to run last."""
    return list(await queue.call(Command("LRANGE", (f"{queue.keys.base}{state}",), (0, -1), as_texts)))


async def redis(queue: Any, name: str, key: str, *args: str | int, decode: Any = as_none) -> Any:
    return await queue.call(Command(name, (key,), args, decode))


async def add(queue: Any, *numbers: int, **options: Any) -> list[Any]:
    return [await queue.add("n", {"n": number}, JobOptions(**options)) for number in numbers]


async def worked(
    adapter: Adapter, server: Server, name: str, count: int, profile: Any = FLEET, **options: Any
) -> list[int]:
    """Work until so many jobs are finished, and return what they were given, in their order."""
    ran: list[int] = []
    done = anyio.Event()

    async def process(job: Any) -> None:
        ran.append(job.data["n"])
        if len(ran) >= count:
            done.set()

    async with adapter.Worker(name, process, server.url, scripts=profile, options=WorkerOptions(**options)):
        with anyio.fail_after(30):
            await done.wait()
    return ran


# --- pausing: A to D


async def test_a_resume_loses_none_of_those_that_a_newer_client_has_set_aside(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    """A: of the jobs 1 to 4 a client of 5.62.0 would leave 3 alone."""
    await add(peers.newer, 1, 2)
    await peers.newer.pause()
    await add(peers.ours, 3)
    await add(peers.newer, 4)
    await peers.ours.resume()
    assert await peers.ours.get_job_counts("wait") == {"wait": 4, "paused": 0}
    assert await worked(adapter, server, name, 4) == [1, 2, 3, 4]


async def test_a_second_pause_loses_nothing(peers: Peers) -> None:
    """B"""
    await add(peers.ours, 1, 2)
    await peers.ours.pause()
    await add(peers.newer, 3)
    await peers.ours.pause()
    assert (await ids(peers.ours, "paused"), await ids(peers.ours, "wait")) == (["3", "2", "1"], [])


async def test_a_resume_joins_both_lists(peers: Peers) -> None:
    """C, and both lists are counted, listed and cleaned before."""
    await add(peers.ours, 1)
    await peers.ours.pause()
    await add(peers.newer, 2)
    assert (await ids(peers.ours, "paused"), await ids(peers.ours, "wait")) == (["1"], ["2"])
    assert await peers.ours.get_job_counts("wait") == {"wait": 1, "paused": 1}
    assert await peers.ours.get_waiting_count() == 2
    assert sorted(job.id for job in await peers.ours.get_jobs("wait")) == ["1", "2"]
    assert sorted(job.id for job in await peers.ours.get_jobs("wait", 0, 9)) == ["1", "2"]
    assert await peers.ours.get_counts_per_priority([0]) == {0: 2}
    await peers.ours.resume()
    assert (await ids(peers.ours, "wait"), await ids(peers.ours, "paused")) == (["2", "1"], [])


async def test_both_lists_are_cleaned(peers: Peers) -> None:
    await add(peers.ours, 1)
    await peers.ours.pause()
    await add(peers.newer, 2)
    assert sorted(await peers.ours.clean(0, state="wait")) == ["1", "2"]


async def test_a_resume_wakes_idle_workers(adapter: Adapter, server: Server, name: str, peers: Peers) -> None:
    """D: with `drain_delay` of a minute, only the marker wakes it."""
    await add(peers.newer, 1, 2, 3)
    await peers.newer.pause()
    await peers.ours.resume()
    assert await redis(peers.ours, "ZSCORE", peers.ours.keys.marker, "0", decode=lambda reply: reply) == b"0"
    assert await worked(adapter, server, name, 3, drain_delay=60) == [1, 2, 3]


async def test_a_long_resume_goes_page_by_page_and_writes_one_event(peers: Peers) -> None:
    keys = peers.ours.keys
    await redis(peers.ours, "HSET", keys.meta, "paused", "1")
    await redis(peers.ours, "RPUSH", keys.paused, *map(str, range(15_000)))
    await redis(peers.ours, "RPUSH", keys.wait, "x", "y")
    await peers.ours.resume()
    found = await ids(peers.ours, "wait")
    assert (len(found), found[:3], await ids(peers.ours, "paused")) == (15_002, ["x", "y", "0"], [])
    entries = as_list(await redis(peers.ours, "XRANGE", keys.events, "-", "+", decode=lambda reply: reply))
    assert [b"resumed" in entry[1] for entry in entries if b"resumed" in entry[1]] == [True]
    await redis(peers.ours, "DEL", keys.wait)


# --- jobs left behind: R


async def test_a_worker_heals_a_queue_that_was_resumed_halfway(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    await add(peers.ours, 1, 2)
    await redis(peers.ours, "RENAME", peers.ours.keys.wait, peers.ours.keys.paused)
    await add(peers.newer, 3)
    # Of a paused queue nothing is touched.
    await redis(peers.ours, "HSET", peers.ours.keys.meta, "paused", "1")
    assert await peers.ours.call(heal(peers.ours.keys)) == 0
    assert await ids(peers.ours, "paused") == ["2", "1"]
    await redis(peers.ours, "HDEL", peers.ours.keys.meta, "paused")
    assert sorted(await worked(adapter, server, name, 3, skip_stalled_check=True)) == [1, 2, 3]


# --- what looks for a waiting job: E, F, O


async def test_a_priority_moves_a_job_in_whichever_list(peers: Peers) -> None:
    """E"""
    (one,) = await add(peers.newer, 1)
    await peers.older.pause()
    (two,) = await add(peers.newer, 2)
    assert (await ids(peers.ours, "paused"), await ids(peers.ours, "wait")) == ([one.id], [two.id])
    for job in (one, two):
        await (await peers.ours.get_job(job.id)).change_priority(3)
    assert await peers.ours.get_prioritized_count() == 2
    assert await peers.ours.get_waiting_count() == 0


async def test_nothing_is_left_of_an_obliterated_queue(peers: Peers) -> None:
    """F"""
    await add(peers.ours, 1)
    await peers.ours.pause()
    await add(peers.newer, 2)
    await peers.ours.obliterate()
    keys = await peers.ours.call(Command("KEYS", (f"{peers.ours.keys.base}*",), (), as_texts))
    assert [key for key in keys if key != peers.ours.keys.meta] == []


async def test_a_scheduler_has_one_job_in_a_queue_that_a_newer_client_paused(peers: Peers) -> None:
    """O"""
    await peers.newer.upsert_job_scheduler("s", RepeatOptions(every=60_000), "n", {"n": 1})
    await peers.newer.pause()
    await peers.ours.upsert_job_scheduler("s", RepeatOptions(every=60_000), "n", {"n": 2})
    (job,) = await peers.ours.get_jobs(["waiting", "delayed"])
    assert job.data == {"n": 2}


# --- deduplication: G, K


async def test_the_last_of_those_that_came_meanwhile_runs(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    """G and G2: a newer client adds, our worker finishes; later nothing outdated runs."""
    kept = JobOptions(deduplication=Deduplication("d", keep_last_if_active=True))
    ran: list[int] = []
    begun, go_on, done = anyio.Event(), anyio.Event(), anyio.Event()

    async def process(job: Any) -> None:
        ran.append(job.data["n"])
        begun.set()
        if job.data["n"] == 1:
            await go_on.wait()
        if job.data["n"] in (3, 4):
            done.set()

    async with adapter.Worker(name, process, server.url, scripts=FLEET):
        with anyio.fail_after(30):
            await peers.newer.add("n", {"n": 1}, kept)
            await begun.wait()
            for number in (2, 3):
                await peers.newer.add("n", {"n": number}, kept)
            go_on.set()
            await done.wait()
            while await peers.ours.get_completed_count() < 2:
                await anyio.sleep(0.01)
    assert ran == [1, 3]
    await peers.newer.add("n", {"n": 4}, kept)
    assert await worked(adapter, server, name, 1) == [4]
    assert await peers.ours.get_job_counts("waiting", "delayed") == {"waiting": 0, "delayed": 0, "paused": 0}


async def test_our_own_last_add_is_kept_too(adapter: Adapter, server: Server, name: str, peers: Peers) -> None:
    kept = JobOptions(deduplication=Deduplication("d", keep_last_if_active=True))
    first = await peers.ours.add("n", {"n": 1}, kept)
    worker = adapter.Worker(name, None, server.url, scripts=FLEET)
    taken = await worker.get_next_job()
    for number in (2, 3):
        assert (await peers.ours.add("n", {"n": number}, kept)).id == first.id
    await worker.complete(taken)
    await worker.aclose()
    (job,) = await peers.ours.get_waiting()
    assert job.data == {"n": 3}


async def test_a_key_whose_job_is_gone_blocks_nobody(peers: Peers) -> None:
    """K"""
    await redis(peers.ours, "SET", peers.ours.keys.deduplication("d"), "99")
    job = await peers.ours.add("n", {"n": 1}, JobOptions(deduplication=Deduplication("d")))
    assert job.added and await job.get_state() == "waiting"
    assert await peers.ours.get_deduplication_job_id("d") == job.id


async def test_a_delayed_job_is_given_another_time(peers: Peers) -> None:
    def options(delay: int) -> JobOptions:
        return JobOptions(delay=delay, deduplication=Deduplication("d", reschedule=True))

    first = await peers.ours.add("n", {"n": 1}, options(600_000))
    again = await peers.ours.add("n", {"n": 2}, options(900_000))
    assert (again.id, again.added) == (first.id, False)
    (job,) = await peers.ours.get_delayed()
    assert (job.delay, job.data) == (900_000, {"n": 1})


async def test_a_job_gives_its_own_key_up(peers: Peers) -> None:
    one = await peers.ours.add("n", {"n": 1}, JobOptions(deduplication=Deduplication("d")))
    assert await one.remove_deduplication_key() is True
    two = await peers.ours.add("n", {"n": 2}, JobOptions(deduplication=Deduplication("d")))
    assert two.added
    assert await one.remove_deduplication_key() is False
    assert await (await peers.ours.add("n", {"n": 3})).remove_deduplication_key() is False


# --- schedulers: I, J


async def test_a_job_that_repeats_for_nobody_runs_once(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    """I: as BullMQ 6 adds a job with `repeat`."""
    job = await peers.ours.add("n", {"n": 1})
    await redis(peers.ours, "HSET", peers.ours.keys.job(job.id), "opts", '{"attempts":0,"repeat":{"every":1000}}')
    assert await worked(adapter, server, name, 1) == [1]
    assert await peers.ours.get_job_counts("waiting", "delayed") == {"waiting": 0, "delayed": 0, "paused": 0}


async def test_a_stalled_job_of_a_scheduler_that_is_gone_fails(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    """J"""
    keys = peers.ours.keys
    fields = {"name": "n", "data": '{"n":1}', "opts": '{"repeat":{"every":1000}}', "rjk": "gone", "stc": "6"}
    await redis(peers.ours, "HSET", keys.job("1"), *[part for pair in fields.items() for part in pair])
    await redis(peers.ours, "RPUSH", keys.active, "1")
    await redis(peers.ours, "SADD", keys.stalled, "1")
    failed = anyio.Event()

    async def process(job: Any) -> None:
        raise AssertionError

    async with adapter.Worker(name, process, server.url, scripts=FLEET) as worker:
        worker.on(JobFailed, lambda notice: failed.set())
        with anyio.fail_after(30):
            while not await peers.ours.get_failed_count():
                await anyio.sleep(0.01)
    assert (await peers.ours.get_job("1")).failed_reason == "job stalled more than allowable limit"


async def test_an_interval_keeps_its_offset(peers: Peers) -> None:
    job = await peers.ours.upsert_job_scheduler("s", RepeatOptions(every=600_000, offset=90_000), "n", {"n": 1})
    scheduler = await peers.ours.get_job_scheduler("s")
    assert (scheduler.offset, scheduler.next_at % 600_000) == (90_000, 90_000)
    assert job.opts.repeat["offset"] == 90_000


# --- flows: L


async def test_a_flow_with_a_finished_child_waits_for_the_others(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    """L: 5.62.0 would run the parent at once."""
    await peers.ours.add("child", {"n": 1}, JobOptions(job_id="own"))
    await worked(adapter, server, name, 1)
    async with adapter.FlowProducer(server.url, scripts=FLEET) as flows:
        children = [
            FlowNode("child", name, options=JobOptions(job_id="own")),
            FlowNode("child", name, options=JobOptions(delay=600_000)),
        ]
        flow = await flows.add(FlowNode("parent", name, children=children))
        assert await flow.job.get_state() == "waiting-children"
        assert await flow.job.get_dependencies_count("processed", "unprocessed") == {"processed": 1, "unprocessed": 1}
        await (await peers.ours.get_job(flow.children[1].job.id)).remove()
        assert await flow.job.get_state() == "waiting"


async def test_a_flow_of_finished_children_is_let_go(adapter: Adapter, server: Server, name: str, peers: Peers) -> None:
    await peers.ours.add("child", {"n": 1}, JobOptions(job_id="own"))
    await worked(adapter, server, name, 1)
    async with adapter.FlowProducer(server.url, scripts=FLEET) as flows:
        flow = await flows.add(
            FlowNode("parent", name, children=[FlowNode("child", name, options=JobOptions(job_id="own"))])
        )
        assert await flow.job.get_state() == "waiting"


async def test_a_child_whose_parent_is_gone_gets_a_new_one(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    async with adapter.FlowProducer(server.url, scripts=FLEET) as flows:
        tree = FlowNode("parent", name, children=[FlowNode("child", name, options=JobOptions(job_id="own"))])
        first = await flows.add(tree)
        await redis(peers.ours, "DEL", first.job.key)
        again = await flows.add(tree)
        assert (await peers.ours.get_job("own")).parent_key == again.job.key
        assert await again.job.get_dependencies_count("unprocessed") == {"unprocessed": 1}


# --- priorities: M; other refusals


async def test_what_a_peer_would_not_understand_is_refused(peers: Peers) -> None:
    """M, and H: a pattern on which a worker of BullMQ 6 hangs."""
    with pytest.raises(UsageError, match="priority: must be a whole number from 0 to 2097151: the profile STRICT"):
        await peers.ours.add("n", {"n": 1}, JobOptions(priority=2_097_152))
    with pytest.raises(CronError, match="BullMQ 6 refuses it: second: 0 comes twice; the profile STRICT takes it"):
        await peers.ours.upsert_job_scheduler("s", RepeatOptions(pattern="*/2,*/3 * * * * *", tz="UTC"))
    with pytest.raises(UsageError, match="keep_last_if_active: needs a profile of later versions"):
        await peers.older.add("n", {}, JobOptions(deduplication=Deduplication("d", keep_last_if_active=True)))
    assert await peers.ours.get_job_counts("waiting", "prioritized") == {"waiting": 0, "prioritized": 0, "paused": 0}
    (job,) = await add(peers.ours, 1, priority=2_097_151)
    assert await job.get_state() == "prioritized"


# --- retries, retention, counts


async def test_a_retry_counts_anew_and_keeps_its_priority(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    async def fail(job: Any) -> None:
        raise ValueError("boom")

    (job,) = await add(peers.ours, 1, priority=3)
    async with adapter.Worker(name, fail, server.url, scripts=FLEET):
        with anyio.fail_after(30):
            while not await peers.ours.get_failed_count():
                await anyio.sleep(0.01)
    failed = await peers.ours.get_job(job.id)
    assert (failed.attempts_made, failed.attempts_started) == (1, 1)
    await failed.retry(reset_attempts_made=True, reset_attempts_started=True)
    assert (failed.attempts_made, failed.attempts_started) == (0, 0)
    again = await peers.ours.get_job(job.id)
    assert (again.attempts_made, again.attempts_started, await again.get_state()) == (0, 0, "prioritized")


async def test_a_delayed_retry_brings_the_next_job(adapter: Adapter, server: Server, name: str, peers: Peers) -> None:
    await add(peers.ours, 1, 2, attempts=2, backoff=600_000)
    worker = adapter.Worker(name, None, server.url, scripts=FLEET)
    first = await worker.get_next_job()
    second = await worker.fail(first, ValueError("boom"), fetch_next=True)
    assert second is not None and second.data == {"n": 2}
    assert await worker.fail(second, ValueError("boom"), fetch_next=True) is None
    await worker.aclose()
    assert await peers.ours.get_delayed_count() == 2


async def test_age_takes_no_more_than_its_limit(adapter: Adapter, server: Server, name: str, peers: Peers) -> None:
    keep = KeepJobs(age=0, limit=2)
    await worked_with(adapter, server, name, peers, 5)
    done = await peers.ours.get_completed_count()
    assert done == 5
    await peers.ours.add("n", {"n": 6}, JobOptions(remove_on_complete=keep))
    await worked(adapter, server, name, 1)
    assert await peers.ours.get_completed_count() == 4


async def worked_with(adapter: Adapter, server: Server, name: str, peers: Peers, count: int) -> None:
    await peers.ours.add_bulk([NewJob("n", {"n": number}) for number in range(count)])
    await worked(adapter, server, name, count)


async def test_delayed_jobs_are_counted_up_to_a_moment(peers: Peers) -> None:
    soon, late = await add(peers.ours, 1, 2, delay=1000)
    await late.change_delay(600_000)
    due = soon.timestamp + 300_000
    assert await peers.ours.get_job_counts("delayed", due_before=due) == {"delayed": 1}
    assert await peers.ours.get_job_counts("delayed") == {"delayed": 2}


# --- orphans, cancelling


async def test_a_sweep_takes_what_a_resume_of_5_has_destroyed(peers: Peers) -> None:
    await add(peers.newer, 1, 2)
    await peers.newer.pause()
    await redis(peers.ours, "LPUSH", peers.ours.keys.paused, "x")
    await peers.older.resume()
    assert await peers.ours.get_job_state("1") == "unknown"
    await redis(peers.ours, "HSET", f"{peers.ours.keys.base}mine", "field", "value")
    await redis(peers.ours, "RPUSH", f"{peers.ours.keys.base}metrics:failed:data", "1")
    assert await peers.ours.remove_orphaned_jobs() == 2
    assert await redis(peers.ours, "EXISTS", f"{peers.ours.keys.base}mine", decode=as_int) == 1
    assert await redis(peers.ours, "EXISTS", f"{peers.ours.keys.base}metrics:failed:data", decode=as_int) == 1
    assert await peers.ours.get_job("1") is None
    (kept,) = await add(peers.ours, 3)
    assert await peers.ours.remove_orphaned_jobs(count=1) == 0
    assert await kept.get_state() == "waiting"
    await redis(peers.ours, "DEL", f"{peers.ours.keys.base}mine")


async def test_a_job_is_cancelled_in_the_worker_that_has_it(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    begun, ended = anyio.Event(), anyio.Event()

    async def process(job: Any) -> None:
        begun.set()
        if adapter.name == "threads":
            while not job.cancelled.is_set():
                await anyio.sleep(0.01)
            raise RuntimeError(job.cancelled.reason)
        await anyio.sleep_forever()

    (job,) = await add(peers.ours, 1)
    async with adapter.Worker(name, process, server.url, scripts=FLEET) as worker:
        worker.on(JobFailed, lambda notice: ended.set())
        with anyio.fail_after(30):
            await begun.wait()
            assert worker.cancel_job("no such job") is False
            assert worker.cancel_job(job.id, "no longer wanted") is True
            await ended.wait()
            assert worker.cancel_all_jobs() == 0
    assert (await peers.ours.get_job(job.id)).failed_reason == "no longer wanted"


# --- what peers see of us


async def test_peers_see_our_workers_and_what_we_stored(
    adapter: Adapter, server: Server, name: str, peers: Peers
) -> None:
    waiting = anyio.Event()

    async def process(job: Any) -> None:
        waiting.set()

    async with adapter.Worker(name, process, server.url, scripts=FLEET, options=WorkerOptions(name="ours")):
        await add(peers.ours, 1)
        with anyio.fail_after(30):
            await waiting.wait()
            while not await peers.newer.get_workers_count():
                await anyio.sleep(0.01)
        for queue in peers:
            (worker,) = await queue.get_workers()
            assert worker["rawname"].endswith(":w:ours")
            assert (await queue.get_version() or "").startswith("bullmq-protocol:")
    plain = await redis(peers.ours, "HGET", peers.ours.keys.job("1"), "opts", decode=lambda reply: reply)
    assert plain == b'{"attempts":0}'
