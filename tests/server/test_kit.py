"""The test kit on a real server, in each adapter: working off, looking into a queue, and time travel."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import anyio
import msgspec
import pytest
import redis

import bullmq_anyio
import bullmq_anyio.testing
import bullmq_sync
import bullmq_sync.testing
from bullmq_protocol import (
    Backoff,
    Deduplication,
    DelayedError,
    JobOptions,
    KeyLayout,
    Limiter,
    Limits,
    RateLimitError,
    RepeatOptions,
    UsageError,
    WorkerOptions,
)
from bullmq_protocol.scripts.profile import FLEET, STRICT, Profile
from bullmq_protocol.testing.clock import SimulatedClock
from bullmq_protocol.worker.notices import JobCompleted, JobStalled
from tests.support.adapters import Adapter
from tests.support.seen import Seen, until
from tests.support.servers import Server

pytestmark = pytest.mark.anyio

DAY = 86_400_000


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock(along=bullmq_anyio.clock)


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str, clock: SimulatedClock) -> AsyncIterator[Any]:
    async with adapter.Queue(name, server.url, clock=clock) as made:
        yield made


async def greet(job: Any) -> str:
    return f"hello {job.data['to']}"


# --- work off ---------------------------------------------------------------------------------------------------------


async def test_everything_is_worked_off(adapter: Adapter, queue: Any) -> None:
    for to in ("ada", "grace"):
        await queue.add("welcome", {"to": to})

    async def spread(job: Any) -> str:
        if job.name == "welcome":
            await queue.add("farewell", job.data)
        return await greet(job)

    done = await adapter.kit.work_off(queue, spread)
    assert [(each.name, each.data["to"], each.result) for each in done.completed] == [
        ("welcome", "ada", "hello ada"),
        ("welcome", "grace", "hello grace"),
        ("farewell", "ada", "hello ada"),
        ("farewell", "grace", "hello grace"),
    ]
    assert (done.failed, done.retried, done.moved) == ((), (), ())
    assert (await adapter.kit.work_off(queue, greet)).completed == ()


async def test_what_a_processor_raises_is_raised(adapter: Adapter, queue: Any) -> None:
    job = await queue.add("welcome", {"to": "ada"})

    async def fail(job: Any) -> None:
        raise LookupError("nobody is there")

    with pytest.raises(LookupError, match="nobody is there") as caught:
        await adapter.kit.work_off(queue, fail)
    assert caught.value.__notes__ == [f"raised by the processor of job {job.id} (welcome)"]
    await queue.add("welcome", {"to": "ada"})
    done = await adapter.kit.work_off(queue, fail, raise_on_failure=False)
    (failed,) = done.failed
    assert (failed.reason, failed.attempts_made, type(failed.exception)) == ("nobody is there", 1, LookupError)
    with pytest.raises(UsageError, match="raise_on_failure"):
        await adapter.kit.work_off(queue, fail, raise_on_failure="no")


async def test_a_failure_that_a_retry_has_mended_is_none(adapter: Adapter, queue: Any) -> None:
    await queue.add("welcome", {"to": "ada"}, JobOptions(attempts=3))

    async def fail_twice(job: Any) -> str:
        if job.attempts_made < 2:
            raise ValueError("not yet")
        return await greet(job)

    done = await adapter.kit.work_off(queue, fail_twice)
    assert [each.attempts_made for each in done.retried] == [1, 2] and done.failed == ()
    assert [(each.attempts_made, each.result) for each in done.completed] == [(3, "hello ada")]


async def test_a_retry_that_waits_has_failed_so_far(adapter: Adapter, queue: Any, clock: SimulatedClock) -> None:
    await queue.add("welcome", {"to": "ada"}, JobOptions(attempts=2, backoff=Backoff("fixed", 1_800_000)))

    async def fail_once(job: Any) -> str:
        if job.attempts_made == 0:
            raise ValueError("not yet")
        return await greet(job)

    with pytest.raises(ValueError, match="not yet"):
        await adapter.kit.work_off(queue, fail_once)
    clock.advance(minutes=28)
    assert (await adapter.kit.work_off(queue, fail_once)).completed == ()
    clock.advance(minutes=2)
    assert [each.result for each in (await adapter.kit.work_off(queue, fail_once)).completed] == ["hello ada"]


async def test_it_ends_after_some_jobs_and_takes_what_a_worker_takes(adapter: Adapter, queue: Any) -> None:
    for to in ("ada", "grace", "alan"):
        await queue.add("welcome", {"to": to})

    async def loud(job: Any, call_next: Any) -> Any:
        return (await call_next(job)).upper()

    options = WorkerOptions(concurrency=2)
    done = await adapter.kit.work_off(queue, greet, max_jobs=2, middleware=[loud], options=options)
    assert sorted(each.result for each in done.completed) == ["HELLO ADA", "HELLO GRACE"]
    assert [each.data["to"] for each in await adapter.kit.queued(queue)] == ["alan"]


async def test_a_moved_job_is_told_of(adapter: Adapter, queue: Any) -> None:
    await queue.add("welcome", {"to": "ada"})

    async def later(job: Any) -> None:
        await job.move_to_delayed(job.timestamp + DAY)
        raise DelayedError

    done = await adapter.kit.work_off(queue, later)
    assert [(each.data["to"], each.how) for each in done.moved] == [("ada", "delayed")]


@pytest.mark.parametrize("layout", KeyLayout)
async def test_the_worker_has_what_the_queue_has(
    adapter: Adapter, server: Server, name: str, layout: KeyLayout
) -> None:
    kind: dict[str, Any] = {"prefix": "kit", "layout": layout, "data_type": dict[str, int]}
    async with adapter.Queue(name, server.url, **kind) as queue:
        await queue.add("count", {"n": 1})

        async def count(job: Any) -> int:
            return int(job.data["n"]) + 1

        assert [each.result for each in (await adapter.kit.work_off(queue, count)).completed] == [2]


class Count(msgspec.Struct):
    n: int


async def test_the_worker_has_the_types_and_limits_of_the_queue(adapter: Adapter, server: Server, name: str) -> None:
    kind: dict[str, Any] = {"data_type": Count, "limits": Limits(max_result_bytes=10)}
    async with adapter.Queue(name, server.url, **kind) as queue:
        await queue.add("count", Count(1))

        async def count(job: Any) -> str:
            assert type(job.data) is Count
            return "more than ten bytes"

        with pytest.raises(UsageError, match="exceeds the limit 10 bytes"):
            await adapter.kit.work_off(queue, count)


@pytest.mark.parametrize("own", [STRICT, FLEET], ids=["strict", "fleet"])
async def test_the_worker_has_the_profile_of_the_queue(
    adapter: Adapter, server: Server, name: str, own: Profile
) -> None:
    async with adapter.Queue(name, server.url, scripts=own) as queue:
        await queue.add("welcome", {"to": "ada"})
        with redis.Redis.from_url(server.url) as admin:
            admin.script_flush()
            assert len((await adapter.kit.work_off(queue, greet)).completed) == 1
            fetches = [profile.scripts["moveToActive"].sha1 for profile in (STRICT, FLEET)]
            assert admin.script_exists(*fetches) == [profile is own for profile in (STRICT, FLEET)]


async def test_no_queue_is_refused(adapter: Adapter) -> None:
    with pytest.raises(UsageError, match="queue: must be a Queue"):
        await adapter.kit.work_off("mail", greet)


# --- what a queue holds -----------------------------------------------------------------------------------------------


async def test_a_queue_shows_what_it_holds(adapter: Adapter, queue: Any) -> None:
    await queue.add("a", 1)
    await queue.add("b", 2, JobOptions(delay=DAY))
    await queue.add("c", 3, JobOptions(priority=7))
    held = await adapter.kit.queued(queue)
    assert [(each.name, each.data, each.state) for each in held] == [
        ("a", 1, "waiting"),
        ("c", 3, "prioritized"),
        ("b", 2, "delayed"),
    ]
    assert (held[1].priority, held[2].delay, held[0].queue) == (7, DAY, queue.name)
    await queue.pause()
    assert [each.name for each in await adapter.kit.queued(queue, "waiting")] == ["a"]
    assert await adapter.kit.queued(queue, ["completed"]) == []
    with pytest.raises(UsageError):
        await adapter.kit.queued(queue, "nowhere")


async def test_whether_a_job_was_added_in_any_state(adapter: Adapter, queue: Any) -> None:
    job = await queue.add("welcome", {"to": "ada", "cc": []})
    kit = adapter.kit
    assert (await kit.assert_added(queue, "welcome", to="ada")).id == job.id
    await kit.work_off(queue, greet)
    assert (await kit.assert_added(queue, "welcome", {"to": "ada", "cc": []})).state == "completed"
    await kit.assert_not_added(queue, "welcome", to="grace")
    with pytest.raises(AssertionError, match="to is 'ada', not 'grace'"):
        await kit.assert_added(queue, "welcome", to="grace")
    with pytest.raises(AssertionError, match="there is a job 'welcome' with to 'ada'"):
        await kit.assert_not_added(queue, "welcome", to="ada")


# --- time travel ------------------------------------------------------------------------------------------------------


async def test_a_waiting_worker_notices_the_jump(
    adapter: Adapter, server: Server, queue: Any, clock: SimulatedClock
) -> None:
    worker = adapter.Worker(queue.name, greet, server.url, clock=clock)
    seen = Seen(worker, JobCompleted)
    async with worker:
        for turn in range(3):
            await queue.add("welcome", {"to": "ada"}, JobOptions(delay=DAY))

            async def waits_for_it() -> bool:
                snapshot = worker.snapshot()
                return bool(snapshot.listening and snapshot.next_due_at)

            await until(waits_for_it)
            if turn:
                await anyio.to_thread.run_sync(lambda: clock.advance(days=1))
            else:
                clock.advance(days=1)
            with anyio.fail_after(4):
                # The wait alone takes five seconds, and the delay a day.
                await seen.wait(JobCompleted, turn + 1)


async def _listens(worker: Any) -> None:
    async def listens() -> bool:
        return bool(worker.snapshot().listening)

    await until(listens)


async def test_a_clock_forgets_workers_that_have_ended(
    adapter: Adapter, server: Server, queue: Any, clock: SimulatedClock
) -> None:
    async def subscribed() -> bool:
        return len(clock._subscribers) == 1

    async with adapter.Worker(queue.name, greet, server.url, clock=clock):
        # On threads the one that keeps the time does it.
        await until(subscribed)
    assert clock._subscribers == {}
    clock.advance(1)


async def test_a_week_of_cron_with_a_change_of_summer_time(adapter: Adapter, server: Server, name: str) -> None:
    clock = SimulatedClock(wall=datetime(2026, 10, 21, tzinfo=UTC))
    ran: list[str] = []

    async def report(job: Any) -> None:
        ran.append(datetime.fromtimestamp(clock.wall / 1000, UTC).strftime("%d %H:%M"))

    async with adapter.Queue(name, server.url, clock=clock) as queue:
        rule = RepeatOptions(pattern="30 6 * * *", tz="Europe/Berlin")
        await queue.upsert_job_scheduler("daily", rule, "report")
        for _ in range(7 * 24):
            clock.advance(hours=1)
            due = [each.id for each in await adapter.kit.queued(queue, "delayed")]
            if int(due[0].rpartition(":")[2]) <= clock.wall:
                await adapter.kit.work_off(queue, report)
    # Every hour was looked at: it ran in the hour that had begun, at 6:30 of the clocks in Berlin.
    assert ran == [f"{day} {'05' if day < 25 else '06'}:00" for day in range(21, 28)]


@pytest.mark.alone
async def test_a_week_of_cron_takes_less_than_a_second(adapter: Adapter, server: Server, name: str) -> None:
    clock = SimulatedClock(wall=datetime(2026, 10, 21, tzinfo=UTC))
    rule = RepeatOptions(pattern="30 6 * * *", tz="Europe/Berlin")
    ran: list[int] = []

    async def asynchronous() -> float:
        async def report(job: Any) -> None:
            ran.append(clock.wall)

        began = time.perf_counter()
        async with bullmq_anyio.Queue[Any](name, server.url, clock=clock) as queue:
            await queue.upsert_job_scheduler("daily", rule, "report")
            for _ in range(7):
                clock.advance(days=1)
                await bullmq_anyio.testing.work_off(queue, report)
        return time.perf_counter() - began

    def blocking() -> float:
        began = time.perf_counter()
        with bullmq_sync.Queue[Any](name, server.url, clock=clock) as queue:
            queue.upsert_job_scheduler("daily", rule, "report")
            for _ in range(7):
                clock.advance(days=1)
                bullmq_sync.testing.work_off(queue, lambda job: ran.append(clock.wall))
        return time.perf_counter() - began

    took = await anyio.to_thread.run_sync(blocking) if adapter.name == "threads" else await asynchronous()
    assert len(ran) == 7
    assert took < 1


async def test_a_rate_limit_passes(adapter: Adapter, queue: Any, clock: SimulatedClock) -> None:
    for to in ("ada", "grace"):
        await queue.add("welcome", {"to": to})
    options = WorkerOptions(limiter=Limiter(max=1, duration=3_600_000))
    assert len((await adapter.kit.work_off(queue, greet, options=options)).completed) == 1
    assert len((await adapter.kit.work_off(queue, greet, options=options)).completed) == 0
    await adapter.kit.travel(clock, queue, minutes=59)
    assert len((await adapter.kit.work_off(queue, greet, options=options)).completed) == 0
    await adapter.kit.travel(clock, queue, minutes=1)
    assert len((await adapter.kit.work_off(queue, greet, options=options)).completed) == 1


async def test_a_handler_may_limit_the_queue(adapter: Adapter, queue: Any, clock: SimulatedClock) -> None:
    for to in ("ada", "grace"):
        await queue.add("welcome", {"to": to})

    async def limited(job: Any) -> str:
        if await queue.get_rate_limit_ttl() <= 0 and not done:
            await queue.rate_limit(3_600_000)
            raise RateLimitError
        return await greet(job)

    done: list[Any] = []
    first = await adapter.kit.work_off(queue, limited)
    assert ([job.how for job in first.moved], first.completed) == (["rate-limited"], ())
    done.append(first)
    await adapter.kit.travel(clock, queue, hours=1)
    assert len((await adapter.kit.work_off(queue, limited)).completed) == 2


async def test_deduplication_passes(adapter: Adapter, queue: Any, clock: SimulatedClock) -> None:
    options = JobOptions(deduplication=Deduplication("x", ttl=3_600_000))
    first = await queue.add("welcome", 1, options)
    await adapter.kit.travel(clock, queue, minutes=59)
    assert (await queue.add("welcome", 2, options)).id == first.id
    await adapter.kit.travel(clock, queue, minutes=1)
    assert (await queue.add("welcome", 3, options)).added


async def test_all_queues_travel_and_the_clock_with_them(
    adapter: Adapter, server: Server, queue: Any, clock: SimulatedClock
) -> None:
    once = JobOptions(deduplication=Deduplication("x", ttl=3_600_000))
    later = JobOptions(delay=3_600_000)
    async with adapter.Queue(f"{queue.name}-other", server.url, clock=clock) as other:
        for each in (queue, other):
            await each.add("welcome", {"to": "ada"}, once)
            await each.add("remind", {"to": "ada"}, later)
        before = clock.wall
        await adapter.kit.travel(clock, queue, other, hours=1)
        assert clock.wall >= before + 3_600_000
        for each in (queue, other):
            assert (await each.add("welcome", {"to": "ada"}, once)).added
            done = await adapter.kit.work_off(each, greet)
            assert sorted(job.name for job in done.completed) == ["remind", "welcome", "welcome"]


async def test_a_job_whose_worker_has_died_stalls(
    adapter: Adapter, server: Server, queue: Any, clock: SimulatedClock
) -> None:
    job = await queue.add("welcome", {"to": "ada"})
    dead = adapter.Worker(queue.name, None, server.url, clock=clock)
    assert (await dead.get_next_job(block=False)).id == job.id
    worker = adapter.Worker(queue.name, greet, server.url, clock=clock)
    seen = Seen(worker, JobStalled, JobCompleted)
    async with worker:
        await _listens(worker)
        # The locks of workers that live stay.
        await adapter.kit.travel(clock, queue, hours=1)
        with redis.Redis.from_url(server.url) as admin:
            assert admin.pttl(f"{job.key}:lock") > 20_000

        await adapter.kit.travel(clock, queue, hours=1, locks=True)

        async def has_stalled() -> bool:
            # The first check notes which jobs are active, the second finds those without a lock. That of the worker
            # that takes the job then stays.
            await adapter.kit.travel(clock, queue, hours=1)
            return bool(seen.of(JobStalled))

        await until(has_stalled)
        assert (await seen.wait(JobCompleted))[0].job.id == job.id
    await dead.aclose()


async def test_only_a_simulated_clock_travels(adapter: Adapter, queue: Any) -> None:
    with pytest.raises(UsageError, match="clock: must be a SimulatedClock"):
        await adapter.kit.travel(bullmq_anyio.clock, queue, hours=1)
    with pytest.raises(UsageError, match="clock: must be a function"):
        adapter.Queue("mail", clock=5)
    with pytest.raises(UsageError, match="clock: must be a function"):
        adapter.Worker("mail", greet, clock=5)
    with pytest.raises(UsageError, match="clock: must be a function"):
        adapter.FlowProducer(clock=5)
