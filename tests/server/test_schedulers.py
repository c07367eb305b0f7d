"""Job schedulers and old repeatable jobs, on every adapter and with both sources of scripts."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from bullmq_protocol import CronError, JobOptions, NewJob, RepeatOptions, UsageError, WorkerOptions
from bullmq_protocol.commands.schedulers import RepeatableKey, Schedule, add_repeatable_job
from bullmq_protocol.errors import JobBelongsToScheduler
from bullmq_protocol.worker.notices import JobCompleted, WorkerProblem
from tests.support.adapters import Adapter
from tests.support.servers import Server
from tests.unit.test_schedule import BAD

pytestmark = pytest.mark.any_python

BOTH_SOURCES = True
SOON = timedelta(seconds=20)


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url, default_job_options=JobOptions(keep_logs=3))
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


async def work_off(adapter: Adapter, server: Server, queue: Any, count: int) -> list[Any]:
    """Let a worker finish this many jobs, and return what its handler was given."""
    taken: list[Any] = []
    problems: list[Any] = []
    enough = anyio.Event()

    async def process(job: Any) -> None:
        taken.append(job)

    def note(_: Any) -> None:
        if len(taken) >= count:
            enough.set()

    worker = adapter.Worker(queue.name, process, server.url, options=WorkerOptions(drain_delay=1))
    worker.on(JobCompleted, note)
    worker.on(WorkerProblem, problems.append)
    async with worker:
        with anyio.fail_after(SOON.total_seconds()):
            await enough.wait()
    assert problems == []
    return taken


async def test_a_scheduler_is_created_read_listed_and_removed(queue: Any) -> None:
    job = await queue.upsert_job_scheduler(
        "nightly", RepeatOptions(pattern="0 3 * * *", tz="Europe/Berlin", limit=9), "report", {"a": 1}
    )
    assert (job.name, job.data, job.repeat_job_key, job.opts.keep_logs) == ("report", {"a": 1}, "nightly", 3)
    assert await job.get_state() == "delayed"
    found = await queue.get_job_scheduler("nightly")
    assert (found.key, found.name, found.pattern, found.tz, found.limit) == (
        "nightly",
        "report",
        "0 3 * * *",
        "Europe/Berlin",
        9,
    )
    assert (found.data, found.template_opts.keep_logs, found.iteration_count) == ({"a": 1}, 3, 1)
    due = datetime.fromtimestamp(found.next_at / 1000, UTC)
    assert (due.minute, due.second) == (0, 0) and due.hour in (1, 2)
    assert job.id == f"repeat:nightly:{found.next_at}"

    other = await queue.upsert_job_scheduler("often", RepeatOptions(every=timedelta(minutes=1)))
    assert (other.name, other.data, other.delay) == ("often", {}, 0)
    assert [each.key for each in await queue.get_job_schedulers()] == ["nightly", "often"]
    assert [each.key for each in await queue.get_job_schedulers(0, 0, True)] == ["often"]
    assert await queue.get_repeatable_jobs() == await queue.get_job_schedulers()
    assert await queue.get_job_schedulers_count() == 2

    with pytest.raises(JobBelongsToScheduler):
        await queue.remove(job.id)
    assert await queue.remove_job_scheduler("nightly")
    assert not await queue.remove_job_scheduler("nightly")
    assert await queue.get_job_scheduler("nightly") is None
    assert await queue.get_job(job.id) is None
    assert await queue.remove_repeatable_by_key("often")
    assert await queue.get_job_schedulers_count() == 0


@pytest.mark.strict_profile
async def test_replacing_keeps_the_slot_of_a_job_that_waits(queue: Any) -> None:
    first = await queue.upsert_job_scheduler("s", RepeatOptions(pattern="0 3 1 1 *", tz="utc"), "a", 1)
    second = await queue.upsert_job_scheduler("s", RepeatOptions(every=5000), "b", 2)
    assert (second.id, second.name, second.data) == (first.id, "b", 2)
    assert await queue.get_job_count_by_types() == 1


async def test_nothing_is_sent_for_a_bad_rule(adapter: Adapter) -> None:
    """Sending would fail in another way: nobody listens there."""
    queue = adapter.Queue("q", "redis://127.0.0.1:1")
    for repeat, field, _ in BAD:
        with pytest.raises(UsageError, match=f"^{field}: "):
            await queue.upsert_job_scheduler("s", repeat)
    with pytest.raises(UsageError, match="four or more colons"):
        await queue.upsert_job_scheduler("a:b:c:d:e", RepeatOptions(every=5))
    await queue.aclose()


async def test_a_bad_pattern_is_distinguished(queue: Any) -> None:
    with pytest.raises(CronError) as raised:
        await queue.upsert_job_scheduler("s", RepeatOptions(pattern="0 25 * * *"))
    assert (raised.value.part, raised.value.reason) == ("hour", "Constraint error, got value 25 expected range 0-23")


async def test_without_a_next_run_there_is_no_scheduler(queue: Any) -> None:
    assert await queue.upsert_job_scheduler("s", RepeatOptions(pattern="0 0 31 2,4 *")) is None
    assert await queue.get_job_scheduler("s") is None


async def test_add_refuses_to_repeat(queue: Any) -> None:
    repeating = JobOptions(repeat={"every": 5})
    with pytest.raises(UsageError, match="use upsert_job_scheduler"):
        await queue.add("n", {}, repeating)
    with pytest.raises(UsageError, match="use upsert_job_scheduler"):
        await queue.add_bulk([NewJob("n"), NewJob("n", {}, repeating)])
    assert await queue.count() == 0


@pytest.mark.parametrize(
    "repeat",
    [
        RepeatOptions(every=50, limit=3),
        RepeatOptions(pattern="* * * * * *", limit=2, immediately=True),
        RepeatOptions(pattern="*/1 * * * * *", tz="Asia/Kathmandu", limit=1),
    ],
)
async def test_a_worker_runs_each_slot_once(
    adapter: Adapter, server: Server, queue: Any, repeat: RepeatOptions
) -> None:
    assert isinstance(repeat.limit, int)
    await queue.upsert_job_scheduler("s", repeat, "tick", {"a": 1}, JobOptions(attempts=2))
    jobs = await work_off(adapter, server, queue, repeat.limit)
    assert [(job.name, job.data, job.opts.attempts) for job in jobs] == [("tick", {"a": 1}, 2)] * repeat.limit
    assert [job.opts.repeat["count"] for job in jobs] == list(range(1, repeat.limit + 1))
    assert len({job.id for job in jobs}) == repeat.limit
    assert (await queue.get_job_scheduler("s")).iteration_count == repeat.limit


async def test_a_job_taken_manually_makes_the_next(adapter: Adapter, server: Server, queue: Any) -> None:
    await queue.upsert_job_scheduler("s", RepeatOptions(pattern="* * * * *", immediately=True))
    worker = adapter.Worker(queue.name, None, server.url)
    job = await worker.get_next_job()
    assert job.repeat_job_key == "s"
    (following,) = await queue.get_delayed()
    assert following.id == f"repeat:s:{(await queue.get_job_scheduler('s')).next_at}"
    assert following.opts.prev_millis % 60_000 == 0
    await worker.complete(job, None)
    await worker.aclose()


async def test_old_repeatable_jobs_are_listed_and_removed(queue: Any) -> None:
    key = RepeatableKey(name="jn", end_date=1_893_456_000_000, tz="Europe/London", rule="0 0 1 1 *")
    schedule = Schedule(name="jn", pattern="0 0 1 1 *", tz="Europe/London", end_date=1_893_456_000_000)
    await queue.call(add_repeatable_job(queue.keys, key, schedule, next_at=1_798_761_600_000))
    await queue.call(
        add_repeatable_job(queue.keys, RepeatableKey(name="x", rule="5000"), Schedule(name="x", every=5000), next_at=5)
    )
    last, first = await queue.get_repeatable_jobs()
    assert (last.key, last.name, last.pattern, last.tz, last.next_at) == (
        key.hashed,
        "jn",
        "0 0 1 1 *",
        "Europe/London",
        1_798_761_600_000,
    )
    assert (first.name, first.every) == ("x", 5000)
    rule = RepeatOptions(pattern="0 0 1 1 *", tz="Europe/London", end_date=datetime(2030, 1, 1, tzinfo=UTC))
    assert not await queue.remove_repeatable("other", rule)
    assert not await queue.remove_repeatable("jn", rule, "an id")
    assert await queue.remove_repeatable("jn", rule)
    assert await queue.remove_repeatable("x", RepeatOptions(every=timedelta(seconds=5)))
    assert await queue.get_repeatable_jobs() == []
    with pytest.raises(UsageError, match="must be given, or every"):
        await queue.remove_repeatable("x", RepeatOptions())
