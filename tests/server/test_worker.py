"""Workers on real servers, on every adapter."""

import json
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import bullmq_anyio
from bullmq_protocol import (
    Backoff,
    ConnectionOptions,
    DelayedError,
    JobOptions,
    KeepJobs,
    Limiter,
    Limits,
    NewJob,
    PermanentError,
    RateLimitError,
    RetryPolicy,
    TransientError,
    UnrecoverableError,
    UsageError,
    WaitingError,
    WorkerOptions,
)
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.reply import as_int, as_none, as_texts
from bullmq_protocol.errors import AuthenticationFailed, ConnectionLost, LockMissing, ServerTooOld
from bullmq_protocol.testing.conformance import Fault
from bullmq_protocol.worker.notices import (
    Closing,
    Disconnected,
    Drained,
    HandlerAbandoned,
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
    JobStalled,
    LockLost,
    Paused,
    Reconnected,
    RenewalFailed,
    ReportRefused,
    Resumed,
)
from tests.support import servers
from tests.support.adapters import Adapter
from tests.support.cut_proxy import CutProxy
from tests.support.seen import LIMIT_S as _LIMIT_S
from tests.support.seen import Seen, until
from tests.support.servers import Server

BOTH_SOURCES = True
_SLACK_S = 20
"""What a busy machine may add; below the half minute after which a worker looks for stalled jobs by default."""
_ROOT = Path(__file__).parents[2]


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


@pytest.fixture
def work(adapter: Adapter, server: Server, name: str) -> Callable[..., Any]:
    """Make a worker of the test's queue."""

    def make(process: Any, connection: Any = None, **options: Any) -> Any:
        others = {
            key: options.pop(key) for key in ("data_type", "backoff_strategy", "worker_id", "limits") if key in options
        }
        return adapter.Worker(name, process, connection or server.url, options=WorkerOptions(**options), **others)

    return make


async def nothing(job: Any) -> None:
    """A processor that has nothing to do."""


def delete(*keys: str) -> Command[int]:
    return Command("DEL", keys, (), as_int)


# --- outcomes ---------------------------------------------------------------------------------------------------------


async def test_what_is_returned_is_stored_as_json(queue: Any, work: Any) -> None:
    values = [None, 0, False, "", "text", 1.5, {"a": [1, "東京"]}, [], {"10": 1, "9": 2}]

    async def process(job: Any) -> Any:
        return values[job.data]

    await queue.add_bulk([NewJob("a", number) for number in range(len(values))])
    worker = work(process)
    seen = Seen(worker, JobCompleted)
    async with worker:
        done = await seen.wait(JobCompleted, len(values))
    assert [notice.value for notice in done] == [
        json.dumps(value, separators=(",", ":"), ensure_ascii=False) for value in [*values[:-1], {"9": 2, "10": 1}]
    ]
    for number, value in enumerate(values):
        job = await queue.get_job(str(number + 1))
        assert (job.returnvalue, job.attempts_made, job.attempts_started) == (value, 1, 1)
        assert job.finished_on >= job.processed_on >= job.timestamp


async def test_what_has_no_json_form_fails_the_job(queue: Any, work: Any) -> None:
    async def process(job: Any) -> Any:
        return {1, 2}

    await queue.add("a")
    worker = work(process)
    seen = Seen(worker, JobFailed)
    async with worker:
        (failed,) = await seen.wait(JobFailed)
    assert "returnvalue" in failed.reason
    assert await queue.get_state("1") == "failed"


class Unprintable(Exception):
    """Raises when it is looked at, as some clients' errors do."""

    def __getattr__(self, name: str) -> object:
        raise KeyError(name)

    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_an_exception_that_cannot_be_printed_fails_its_job_and_no_other(queue: Any, work: Any) -> None:
    other = anyio.Event()

    async def process(job: Any) -> None:
        if job.data == "odd":
            raise Unprintable
        await other.wait()

    await queue.add("n", "odd")
    await queue.add("n", "good")
    worker = work(process, concurrency=2)
    seen = Seen(worker, JobFailed, JobCompleted)
    async with worker:
        (failed,) = await seen.wait(JobFailed)
        assert failed.job.data == "odd"
        other.set()
        await seen.wait(JobCompleted)
    counts = await queue.get_job_counts("active", "completed", "failed")
    assert counts == {"active": 0, "completed": 1, "failed": 1}


class _Marked(str):
    """Text of a kind of its own, as Django's SafeString."""

    __slots__ = ()

    def __str__(self) -> str:
        return self

    def isascii(self) -> bool:
        raise LookupError("not asked")


async def test_an_exception_whose_text_is_of_a_kind_of_its_own_is_like_others(queue: Any, work: Any) -> None:
    async def process(job: Any) -> None:
        raise ConnectionError(_Marked("<b>no connection</b>"))

    job = await queue.add("n", options=JobOptions(attempts=2))
    worker = work(process)
    seen = Seen(worker, JobFailed)
    async with worker:
        await seen.wait(JobFailed, 2)
    found = await queue.get_job(job.id)
    assert (found.attempts_made, found.failed_reason) == (2, "<b>no connection</b>")


async def test_a_log_filter_that_raises_harms_no_job(queue: Any, work: Any, adapter: Adapter) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        raise AttributeError("request_id")

    async def process(job: Any) -> None:
        if job.data == "fails":
            raise LookupError

    await queue.add_bulk([NewJob("n", data) for data in ("fails", "good", "fails")])
    worker = work(process)
    seen = Seen(worker, JobCompleted, JobFailed)
    log = logging.getLogger(adapter.logger)
    log.addFilter(refuse)
    try:
        async with worker:
            await seen.wait(JobFailed, 2)
            await seen.wait(JobCompleted)
    finally:
        log.removeFilter(refuse)


async def test_retries_with_backoff_until_it_succeeds(queue: Any, work: Any) -> None:
    starts: list[float] = []

    async def process(job: Any) -> str:
        starts.append(time.monotonic())
        if len(starts) < 3:
            raise ValueError(f"no {len(starts)}")
        return "done"

    await queue.add("a", options=JobOptions(attempts=3, backoff=Backoff("exponential", 100)))
    worker = work(process)
    seen = Seen(worker, JobFailed, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted)
    assert [notice.retry_delay_ms for notice in seen.of(JobFailed)] == [100, 200]
    assert starts[1] - starts[0] >= 0.1
    assert starts[2] - starts[1] >= 0.2
    job = await queue.get_job("1")
    assert (job.attempts_made, job.returnvalue, job.failed_reason) == (3, "done", "no 2")
    assert len(job.stacktrace) == 2
    assert "ValueError: no 1" in job.stacktrace[0]


@pytest.mark.parametrize(
    ("error", "options", "worker_options", "tries"),
    [
        (ValueError("x"), {"attempts": 3}, {}, 3),
        (ValueError("x"), {}, {}, 1),
        (UnrecoverableError("x"), {"attempts": 3}, {}, 1),
        (PermanentError("x"), {"attempts": 3}, {}, 1),
        (TransientError("x"), {"attempts": 3}, {}, 3),
        (ValueError("x"), {"attempts": 3}, {"retry_policy": RetryPolicy.CATEGORISING}, 1),
        (ConnectionResetError("x"), {"attempts": 3}, {"retry_policy": RetryPolicy.CATEGORISING}, 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
async def test_tries(
    queue: Any, work: Any, error: BaseException, options: Any, worker_options: Any, tries: int
) -> None:
    started = 0

    async def process(job: Any) -> None:
        nonlocal started
        started += 1
        raise error

    await queue.add("a", options=JobOptions(**options))
    worker = work(process, **worker_options)
    seen = Seen(worker, JobFailed)
    async with worker:
        await seen.wait(JobFailed, tries)
    assert started == tries
    assert await queue.get_state("1") == "failed"
    job = await queue.get_job("1")
    assert (job.failed_reason, job.attempts_made) == ("x", tries)


async def test_discarded_job_is_not_retried(queue: Any, work: Any) -> None:
    async def process(job: Any) -> None:
        job.discard()
        raise ValueError("no")

    await queue.add("a", options=JobOptions(attempts=3))
    worker = work(process)
    seen = Seen(worker, JobFailed)
    async with worker:
        await seen.wait(JobFailed)
        assert await queue.get_state("1") == "failed"


async def test_strategy_of_the_users_own(queue: Any, work: Any) -> None:
    asked: list[Any] = []

    async def fail(job: Any) -> None:
        raise ValueError(job.name)

    def strategy(attempt: int, kind: str, error: BaseException, job: Any) -> float:
        asked.append((attempt, kind, str(error), job.id))
        if job.name == "broken":
            raise RuntimeError("strategy")
        return -1 if attempt == 2 else 20

    own = JobOptions(attempts=5, backoff=Backoff("own"))
    await queue.add("a", options=own)
    worker = work(fail, backoff_strategy=strategy)
    seen = Seen(worker, JobFailed)
    async with worker:
        first, second = await seen.wait(JobFailed, 2)
        assert (first.retry_delay_ms, second.retry_delay_ms) == (20, None)
        assert asked == [(1, "own", "a", "1"), (2, "own", "a", "1")]
        await queue.add("broken", options=own)
        broken = (await seen.wait(JobFailed, 3))[2]
        assert "strategy" in broken.reason
        assert await queue.get_state("2") == "failed"
    worker = work(fail)
    seen = Seen(worker, JobFailed)
    await queue.add("a", options=own)
    async with worker:
        (unknown,) = await seen.wait(JobFailed)
    assert unknown.reason.startswith("Unknown backoff strategy own.")


async def test_job_that_moves_itself(queue: Any, work: Any) -> None:
    async def process(job: Any) -> str:
        if job.attempts_started == 1:
            await job.move_to_delayed(int(time.time() * 1000) + 50)
            raise DelayedError
        if job.attempts_started == 2:
            await job.move_to_wait()
            raise WaitingError
        return "at last"

    await queue.add("a")
    worker = work(process)
    seen = Seen(worker, JobMoved, JobCompleted, JobFailed)
    async with worker:
        await seen.wait(JobCompleted)
    assert [notice.how for notice in seen.of(JobMoved)] == ["delayed", "waiting"]
    assert seen.of(JobFailed) == []
    assert (await queue.get_job("1")).attempts_made == 1


async def test_rate_limit_error_gives_the_job_back(queue: Any, work: Any) -> None:
    starts: list[float] = []

    async def process(job: Any) -> None:
        starts.append(time.monotonic())
        if len(starts) == 1:
            await queue.rate_limit(200)
            raise RateLimitError

    await queue.add("a")
    worker = work(process, limiter=Limiter(max=100, duration=1000))
    seen = Seen(worker, JobMoved, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted)
    assert [notice.how for notice in seen.of(JobMoved)] == ["rate-limited"]
    assert starts[1] - starts[0] >= 0.15
    assert (await queue.get_job("1")).attempts_made == 1


async def test_limiter(queue: Any, work: Any) -> None:
    await queue.add_bulk([NewJob("a") for _ in range(5)])
    worker = work(nothing, limiter=Limiter(max=2, duration=300), concurrency=3)
    seen = Seen(worker, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted, 5)
    # When they were fetched: a handler may begin later.
    starts = sorted([(await queue.get_job(str(number))).processed_on for number in range(1, 6)])
    assert starts[4] - starts[0] >= 500


async def test_retention(queue: Any, work: Any) -> None:
    await queue.add_bulk([NewJob("a"), NewJob("a"), NewJob("a", options=JobOptions(remove_on_complete=False))])
    worker = work(nothing, remove_on_complete=KeepJobs(count=0))
    seen = Seen(worker, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted, 3)
    assert (await queue.get_job_counts("completed"))["completed"] == 1
    assert await queue.get_job("1") is None


async def test_work_inside_a_processor(queue: Any, work: Any) -> None:
    async def process(job: Any) -> Any:
        await job.update_progress(50)
        await job.log("halfway")
        await job.update_data({"n": job.data["n"] + 1})
        assert await job.extend_lock(60_000) is True
        assert await job.get_state() == "active"
        return job.data

    await queue.add("a", {"n": 1})
    worker = work(process)
    seen = Seen(worker, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted)
    job = await queue.get_job("1")
    assert (job.progress, job.data, job.returnvalue) == (50, {"n": 2}, {"n": 2})


class Mail(msgspec.Struct):
    to: str


async def test_payload_that_does_not_fit_fails_for_good(queue: Any, work: Any) -> None:
    async def process(job: Any) -> Any:
        assert isinstance(job.data, Mail)
        return job.data.to

    retried = JobOptions(attempts=3)
    await queue.add_bulk([NewJob("a", {"to": "me"}, retried), NewJob("b", {"to": 7}, retried)])
    worker = work(process, data_type=Mail)
    seen = Seen(worker, JobCompleted, JobFailed)
    async with worker:
        await seen.wait(JobCompleted)
        (failed,) = await seen.wait(JobFailed)
    assert "does not fit" in failed.reason
    assert "`$.to`" in failed.reason
    assert await queue.get_state("2") == "failed"


async def test_limits_of_a_worker_bound_results_and_what_handlers_store(queue: Any, work: Any) -> None:
    async def process(job: Any) -> Any:
        if job.name == "update":
            await job.update_data("y" * 30)
        return "x" * len(job.name)

    await queue.add_bulk([NewJob("four"), NewJob("fives"), NewJob("update")])
    worker = work(process, limits=Limits(max_payload_bytes=20, max_result_bytes=6))
    seen = Seen(worker, JobCompleted, JobFailed)
    async with worker:
        await seen.wait(JobCompleted)
        reasons = {failed.job.name: failed.reason for failed in await seen.wait(JobFailed, 2)}
    assert "returnvalue: exceeds the limit 6 bytes, has 7" in reasons["fives"]
    assert "data: exceeds the limit 20 bytes, has 32" in reasons["update"]
    assert await queue.get_job_counts("completed", "failed") == {"completed": 1, "failed": 2}


async def test_emoji_nul_and_lone_surrogates_in_data(queue: Any, work: Any) -> None:
    data = {"emoji": "😀 👩‍👩‍👧", "nul": "a\x00b", "lone": "x\ud83d", "\udc00": [1]}

    async def process(job: Any) -> Any:
        assert job.data == data
        return job.data

    await queue.add("😀", data)
    worker = work(process)
    seen = Seen(worker, JobCompleted, JobFailed)
    async with worker:
        await seen.wait(JobCompleted)
    job = await queue.get_job("1")
    assert (job.name, job.data, job.returnvalue) == ("😀", data, data)


async def test_10_mb_refused(queue: Any) -> None:
    with pytest.raises(UsageError, match="exceed the limit"):
        await queue.add("a", "y" * (10 << 20))
    assert set((await queue.get_job_counts()).values()) == {0}


# --- order, concurrency, delays ---------------------------------------------------------------------------------------


async def test_order(queue: Any, work: Any) -> None:
    names: list[str] = []

    async def process(job: Any) -> None:
        names.append(job.name)

    await queue.add("first")
    await queue.add("low", options=JobOptions(priority=9))
    await queue.add("second")
    await queue.add("high", options=JobOptions(priority=1))
    await queue.add("last in", options=JobOptions(lifo=True))
    worker = work(process)
    seen = Seen(worker, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted, 5)
    assert names == ["last in", "first", "second", "high", "low"]


async def test_concurrency_is_reached_and_kept(queue: Any, work: Any) -> None:
    running = most = 0
    full = anyio.Event()

    async def process(job: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 5:
            full.set()
        with anyio.fail_after(_LIMIT_S):
            await full.wait()
        await anyio.sleep(0.002)
        running -= 1

    await queue.add_bulk([NewJob("a") for _ in range(40)])
    worker = work(process, concurrency=5)
    seen = Seen(worker, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted, 40)
    assert most == 5


async def test_concurrency_can_be_raised_while_it_runs(queue: Any, work: Any) -> None:
    gate = anyio.Event()

    async def process(job: Any) -> None:
        await gate.wait()

    await queue.add_bulk([NewJob("a") for _ in range(3)])
    worker = work(process)
    seen = Seen(worker, JobActive, JobCompleted)
    async with worker:
        await seen.wait(JobActive)
        assert worker.concurrency == 1
        worker.concurrency = 3
        await seen.wait(JobActive, 3)
        gate.set()
        await seen.wait(JobCompleted, 3)
    with pytest.raises(UsageError, match="concurrency"):
        worker.concurrency = 0


async def test_10_workers_100_jobs_none_twice(queue: Any, work: Any) -> None:
    started: Counter[str] = Counter()

    async def process(job: Any) -> None:
        started[job.id] += 1

    workers = [work(process, concurrency=3) for _ in range(10)]
    seen = [Seen(worker, JobCompleted) for worker in workers]
    await queue.add_bulk([NewJob("a") for _ in range(500)])

    async def all_done() -> bool:
        return bool((await queue.get_job_counts("completed"))["completed"] == 1000)

    async with anyio.create_task_group() as tasks:
        for worker in workers:
            tasks.start_soon(worker.run)
        await queue.add_bulk([NewJob("a") for _ in range(500)])
        await until(all_done)
        for worker in workers:
            await worker.aclose()
    assert len(started) == 1000
    assert set(started.values()) == {1}
    assert sum(len(each.of(JobCompleted)) for each in seen) == 1000


async def test_1000_worker_ids_all_different(adapter: Adapter, name: str) -> None:
    workers = [adapter.Worker(name) for _ in range(1000)]
    assert len({worker.id for worker in workers}) == 1000
    assert all(len(worker.id) <= 255 for worker in workers)
    assert adapter.Worker(name, worker_id="mine").id == "mine"


# --- locks and stalled jobs -------------------------------------------------------------------------------------------


async def test_lock_is_renewed_while_the_job_runs(queue: Any, work: Any) -> None:
    left: list[int] = []

    async def process(job: Any) -> None:
        # Until it was renewed so often, at an eighth of its time, that it lasted longer than one lock.
        while not left or (left[-1] > 0 and sum(after > before for before, after in pairwise(left)) < 9):
            left.append(await queue.call(Command("PTTL", (queue.keys.lock(job.id),), (), as_int, repeat=Repeat.SAFE)))
            await anyio.sleep(0.03)

    await queue.add("a")
    worker = work(process, lock_duration=2000, lock_renew_time=500, stalled_interval=300)
    other = work(nothing, stalled_interval=300)
    seen, others = Seen(worker, JobActive, JobCompleted), Seen(other, JobStalled)
    async with worker:
        await seen.wait(JobActive)
        async with other:
            await seen.wait(JobCompleted)
    assert min(left) > 0
    assert others.all == []


async def test_lost_lock_drops_the_report(queue: Any, work: Any, adapter: Adapter) -> None:
    lost = anyio.Event()
    ended: list[str] = []

    async def process(job: Any) -> None:
        await queue.call(delete(queue.keys.lock(job.id)))
        try:
            if adapter.name == "threads":
                await anyio.to_thread.run_sync(job.cancelled.wait, _LIMIT_S)
                ended.append(job.cancelled.reason)
            else:
                with anyio.fail_after(_LIMIT_S):
                    await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            ended.append("lock lost")
            raise
        finally:
            lost.set()

    await queue.add("a")
    worker = work(process, lock_renew_time=100, cancel_on_lost_lock=True, skip_stalled_check=True)
    seen = Seen(worker, LockLost, ReportRefused, JobCompleted, JobFailed)
    async with worker:
        await seen.wait(LockLost)
        await seen.wait(ReportRefused)
        await lost.wait()
    assert ended == ["lock lost"]
    assert (seen.of(JobCompleted), seen.of(JobFailed)) == ([], [])


async def test_heartbeat_failure_and_the_job_completes(
    adapter: Adapter, server: Server, queue: Any, work: Any, name: str
) -> None:
    with CutProxy(server.host, server.port) as proxy:
        failed = anyio.Event()

        async def process(job: Any) -> str:
            # Only a renewal names the stalled set alone.
            proxy.arm(Fault.CUT_BEFORE, f"$1\r\n1\r\n${len(queue.keys.stalled)}\r\n{queue.keys.stalled}", times=2)
            with anyio.fail_after(_LIMIT_S):
                await failed.wait()
            return "done"

        await queue.add("a")
        worker = work(process, proxy.url, lock_renew_time=200, skip_stalled_check=True)
        worker.on(RenewalFailed, lambda notice: failed.set())
        seen = Seen(worker, RenewalFailed, JobCompleted, JobFailed)
        async with worker:
            await seen.wait(JobCompleted)
        assert (await queue.get_job("1")).returnvalue == "done"
        assert seen.of(JobFailed) == []


async def test_stalled_job_is_found_and_run(queue: Any, work: Any, adapter: Adapter, server: Server, name: str) -> None:
    await queue.add("a")
    dead = adapter.Worker(name, None, server.url, options=WorkerOptions(lock_duration=300))
    assert (await dead.get_next_job()).id == "1"
    await dead.aclose()
    begun = time.monotonic()
    worker = work(nothing, stalled_interval=300)
    seen = Seen(worker, JobStalled, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted)
    assert [notice.job_id for notice in seen.of(JobStalled)] == ["1"]
    assert time.monotonic() - begun < 0.3 + 0.3 + _SLACK_S
    assert (await queue.get_job("1")).stalled_counter == 1


async def test_job_that_stalls_too_often_fails(
    queue: Any, work: Any, adapter: Adapter, server: Server, name: str
) -> None:
    await queue.add("a")
    dead = adapter.Worker(name, None, server.url, options=WorkerOptions(lock_duration=50))
    await dead.get_next_job()
    await dead.aclose()
    worker = work(nothing, stalled_interval=300, max_stalled_count=0)
    seen = Seen(worker, JobFailed)
    async with worker:
        (failed,) = await seen.wait(JobFailed)
    assert failed.reason == "job stalled more than allowable limit"


async def test_completion_races_the_stalled_check_and_one_wins(queue: Any, work: Any) -> None:
    """A worker that renews nothing finishes at about the moment when its lock ends and others look for it."""
    runs: Counter[str] = Counter()

    async def process(job: Any) -> int:
        runs[job.id] += 1
        if job.attempts_started < 3:
            await anyio.sleep(0.08 + int(job.id) % 5 / 50)
        return runs[job.id]

    await queue.add_bulk([NewJob("a") for _ in range(20)])
    options = {"lock_duration": 120, "stalled_interval": 60, "max_stalled_count": 100, "concurrency": 3}
    slow, other = work(process, skip_lock_renewal=True, **options), work(process, skip_lock_renewal=True, **options)
    seen, others = (Seen(worker, JobCompleted, ReportRefused) for worker in (slow, other))

    async def all_done() -> bool:
        return bool((await queue.get_job_counts("completed"))["completed"] == 20)

    async with slow, other:
        await until(all_done)
    completed = Counter(notice.job.id for notice in [*seen.of(JobCompleted), *others.of(JobCompleted)])
    assert set(completed.values()) == {1}
    assert len(completed) == 20
    # Some were late: the check, and the worker that took the job then, had won.
    assert len(seen.of(ReportRefused)) + len(others.of(ReportRefused)) > 0


_VICTIM = """
import sys
from bullmq_protocol import WorkerOptions
from bullmq_sync import Worker

def process(job):
    print("started", flush=True)
    sys.stdin.read()

Worker(sys.argv[1], process, sys.argv[2], options=WorkerOptions(lock_duration=300, stalled_interval=300)).run()
"""


async def test_sigkill_of_a_worker_mid_job(queue: Any, work: Any, server: Server, name: str) -> None:
    await queue.add("a")
    command = [sys.executable, "-c", _VICTIM, name, server.url]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=_ROOT) as victim:
        assert victim.stdout is not None
        assert await anyio.to_thread.run_sync(victim.stdout.readline) == b"started\n"
        worker = work(nothing, stalled_interval=300)
        seen = Seen(worker, JobCompleted, JobActive)
        async with worker:
            victim.kill()
            killed = time.monotonic()
            await seen.wait(JobCompleted)
        assert time.monotonic() - killed < 0.3 + 0.3 + _SLACK_S
    assert len(seen.of(JobActive)) == 1
    job = await queue.get_job("1")
    assert (job.attempts_made, job.attempts_started, job.stalled_counter) == (1, 2, 1)


# --- pause, resume, close ---------------------------------------------------------------------------------------------


async def test_pause_and_resume(queue: Any, work: Any) -> None:
    gate = anyio.Event()

    async def process(job: Any) -> None:
        await gate.wait()

    worker = work(process)
    seen = Seen(worker, JobActive, JobCompleted, Paused, Resumed)
    async with worker:
        await queue.add("a")
        await seen.wait(JobActive)
        await worker.pause(wait=False)
        assert worker.is_paused
        assert worker.snapshot().state == "paused"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.pause)
            gate.set()
        # It is reported a moment after the pause has begun.
        await seen.wait(JobCompleted)
        await queue.add("b")
        assert len(seen.of(JobCompleted)) == 1
        assert worker.snapshot().jobs == ()
        worker.resume()
        await seen.wait(JobCompleted, 2)
        assert not worker.is_paused
        await worker.pause()
    assert [type(notice) for notice in seen.all if type(notice) in (Paused, Resumed)] == [Paused, Resumed, Paused]


async def test_paused_before_it_runs(queue: Any, work: Any) -> None:
    await queue.add("a")
    worker = work(nothing)
    seen = Seen(worker, Paused, JobCompleted)
    await worker.pause()
    async with worker:
        await seen.wait(Paused)
        assert await queue.get_state("1") == "waiting"
        worker.resume()
        await seen.wait(JobCompleted)


async def test_a_pause_ends_where_the_worker_is_resumed(queue: Any, work: Any) -> None:
    """A caller that waits for it does not wait for the jobs that begin then."""
    gate = anyio.Event()
    over = anyio.Event()

    async def process(job: Any) -> None:
        await gate.wait()

    worker = work(process)
    seen = Seen(worker, JobActive, JobCompleted, Paused)

    async def pause() -> None:
        await worker.pause()
        over.set()

    async with worker:
        await queue.add("a")
        await seen.wait(JobActive)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pause)
            await seen.wait(Paused)
            assert not over.is_set()
            worker.resume()
            with anyio.fail_after(_LIMIT_S):
                await over.wait()
            assert seen.of(JobCompleted) == []
            gate.set()
        await seen.wait(JobCompleted)


async def test_a_worker_is_paused_before_it_runs(queue: Any, work: Any) -> None:
    worker = work(nothing)
    assert not worker.is_paused
    await worker.pause()
    assert worker.is_paused
    worker.resume()
    assert not worker.is_paused
    await worker.pause()
    async with worker:
        assert worker.is_paused
        worker.resume()
        assert not worker.is_paused
        await worker.pause()
        assert worker.is_paused
    assert not worker.is_paused


async def test_a_worker_runs_from_the_start_of_the_block_to_its_close(work: Any) -> None:
    worker = work(nothing)
    assert not worker.is_running
    async with worker:
        assert worker.is_running
        with pytest.raises(UsageError, match="is already running"):
            await worker.run()
    assert not worker.is_running
    # Left at once, it has ended all the same.
    for begin in (worker.run, worker.__aenter__):
        with pytest.raises(UsageError, match="has ended: make a new one to work again"):
            await begin()
    worker = work(nothing)
    async with worker:
        await worker.aclose()
        assert not worker.is_running
        with pytest.raises(UsageError, match="has ended: make a new one to work again"):
            await worker.run()


async def test_a_worker_keeps_nothing_of_what_is_over(queue: Any, work: Any) -> None:
    """Waits for jobs, pauses, callbacks and handlers leave no trace in a worker that lives long."""
    worker = work(nothing, drain_delay=0.01, concurrency=2)
    seen = Seen(worker, JobCompleted)
    async with worker:
        for count in range(1, 6):
            await queue.add("n")
            await seen.wait(JobCompleted, count)
            await worker.pause()
            worker.resume()

        async def is_empty() -> bool:
            driver = getattr(worker, "_target", worker)._driver
            dispatch = driver._dispatch
            names = ("_contact", "_errands", "_slots", "_lending")
            parts = [vars(getattr(driver, name)) for name in names if hasattr(driver, name)]

            def kept(*names: str) -> list[int]:
                return [len(part[name]) for part in parts for name in names if name in part]

            of_waits, others = kept("_waits", "_cancelled"), kept("_introducing", "_running", "_idle", "_lent")
            assert (len(of_waits), len(others)) in ((1, 3), (1, 1))
            return max(of_waits) <= 1 and not any(others) and not dispatch.handling and not dispatch.has_work

        await until(is_empty)


async def test_globally_paused_queue(queue: Any, work: Any) -> None:
    await queue.pause()
    await queue.add("a")
    worker = work(nothing)
    seen = Seen(worker, Drained, JobCompleted)
    async with worker:
        await seen.wait(Drained)
        assert seen.of(JobCompleted) == []
        await queue.resume()
        await seen.wait(JobCompleted)


async def test_close_waits_for_the_running_job(queue: Any, work: Any) -> None:
    gate = anyio.Event()

    async def process(job: Any) -> str:
        await gate.wait()
        return "done"

    await queue.add_bulk([NewJob("a"), NewJob("b")])
    worker = work(process)
    seen = Seen(worker, JobActive, Closing, JobCompleted)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await seen.wait(JobActive)
        assert worker.is_running
        tasks.start_soon(worker.aclose)
        await seen.wait(Closing)
        assert worker.snapshot().state == "shutting down"
        gate.set()
    assert len(seen.of(JobCompleted)) == 1
    assert await queue.get_job_counts("completed", "waiting") == {"completed": 1, "waiting": 1, "paused": 0}
    assert not worker.is_running
    assert worker.snapshot().state == "stopped"
    await worker.aclose()


@pytest.mark.parametrize("how", ["force", "at once", "after the shutdown time"])
async def test_close_gives_running_jobs_back(queue: Any, work: Any, adapter: Adapter, how: str) -> None:
    gate, running = anyio.Event(), anyio.Event()
    began: list[str] = []

    async def process(job: Any) -> str:
        began.append(job.id)
        if len(began) == 3:
            running.set()
        await gate.wait()
        return "too late"

    jobs = [NewJob("a"), NewJob("b", options=JobOptions(priority=3)), NewJob("c")]
    await queue.add_bulk(jobs)
    shutdown = {"force": 30_000, "at once": 0, "after the shutdown time": 150}[how]
    worker = work(process, concurrency=3, shutdown_timeout=shutdown)
    seen = Seen(worker, JobMoved, HandlerAbandoned)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        # They are all reported when they are fetched, before their handlers begin.
        await running.wait()
        begun = time.monotonic()
        await worker.aclose(how == "force")
    assert time.monotonic() - begun < 20
    assert {notice.how for notice in seen.of(JobMoved)} == {"given-back"}
    # A task ends when it is cancelled; a thread goes on.
    assert len(seen.of(HandlerAbandoned)) == (3 if adapter.name == "threads" else 0)
    assert await queue.get_job_counts("active", "waiting", "prioritized") == {
        "active": 0,
        "waiting": 2,
        "prioritized": 1,
        "paused": 0,
    }
    gate.set()
    # It does not find them when it looks on its own.
    other = work(nothing, drain_delay=600)
    seen = Seen(other, JobCompleted)
    async with other:
        await seen.wait(JobCompleted, 3)
    assert {(await queue.get_job(id_)).attempts_made for id_ in ("1", "2", "3")} == {1}


async def test_close_before_and_without_run(work: Any, queue: Any) -> None:
    worker = work(nothing)
    await worker.aclose()
    await worker.run()
    assert not worker.is_running
    async with work(nothing):
        pass


async def test_close_from_a_processor(anyio_backend: Any, server: Server, name: str) -> None:
    """On threads the scenario's processor is on no thread of the worker: see `test_worker_threads`."""

    async def process(job: Any) -> str:
        await worker.aclose()
        return "done"

    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add("a")
        worker = bullmq_anyio.Worker[Any](name, process, server.url)
        with anyio.fail_after(_LIMIT_S):
            await worker.run()
        job = await queue.get_job("1")
        assert job is not None
        assert job.returnvalue == "done"
        await queue.obliterate()


async def test_run_needs_a_processor_and_runs_once(work: Any, queue: Any) -> None:
    with pytest.raises(UsageError, match="processor"):
        await work(None).run()
    worker = work(nothing)
    seen = Seen(worker, Drained)
    async with worker:
        await seen.wait(Drained)
        with pytest.raises(UsageError, match="already running"):
            await worker.run()


# --- what it tells ----------------------------------------------------------------------------------------------------


async def test_callback_that_raises_loses_no_job(
    queue: Any, work: Any, adapter: Adapter, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(notice: Any) -> None:
        raise RuntimeError("callback")

    await queue.add_bulk([NewJob("a") for _ in range(5)])
    worker = work(nothing)
    removers = [worker.on(kind, broken) for kind in (JobActive, JobCompleted, Drained)]
    seen = Seen(worker, JobCompleted)

    def reported() -> Counter[str]:
        lines = [record.getMessage() for record in caplog.records]
        return Counter(line.split("callback for ")[1].split(" ")[0] for line in lines if "a callback for" in line)

    with caplog.at_level(logging.ERROR, adapter.logger):
        async with worker:
            await seen.wait(JobCompleted, 5)

            async def all_told() -> bool:
                return reported() == {"JobActive": 5, "JobCompleted": 5, "Drained": 1}

            await until(all_told)
            for remove in removers:
                remove()
            caplog.clear()
            await queue.add("a")
            await seen.wait(JobCompleted, 6)
    assert not reported()
    assert (await queue.get_job_counts("completed"))["completed"] == 6


async def test_callback_can_be_asynchronous(queue: Any, work: Any) -> None:
    reported = anyio.Event()

    async def tell(notice: JobCompleted) -> None:
        await anyio.sleep(0)
        assert notice.job.id == "1"
        reported.set()

    await queue.add("a")
    worker = work(nothing)
    worker.on(JobCompleted, tell)
    async with worker:
        with anyio.fail_after(_LIMIT_S):
            await reported.wait()


async def test_iterator_of_notices(queue: Any, work: Any) -> None:
    await queue.add("a")
    worker = work(nothing)
    seen = Seen(worker, JobCompleted)
    stream, narrow = worker.notices(), worker.notices(buffer=1)
    async with worker:
        await seen.wait(JobCompleted)
    kinds = [type(notice).__name__ async for notice in stream]
    assert kinds[:3] == ["JobActive", "JobCompleted", "Drained"]
    assert kinds[-2:] == ["Closing", "ClosedNotice"]
    assert stream.dropped == 0
    assert [type(notice).__name__ async for notice in narrow] == ["ClosedNotice"]
    assert narrow.dropped == len(kinds) - 1
    assert [notice async for notice in worker.notices()] == []


async def test_an_iterator_has_a_notice_before_callbacks_do(queue: Any, work: Any) -> None:
    await queue.add("a")
    worker = work(nothing)
    narrow = worker.notices(buffer=1)
    dropped: list[int] = []
    worker.on(JobCompleted, lambda _: dropped.append(narrow.dropped))
    seen = Seen(worker, JobCompleted)
    async with worker:
        await seen.wait(JobCompleted)
    # `JobActive` made room for it, and may be for what came with it.
    assert dropped[0] >= 1


async def test_log_lines(queue: Any, work: Any, adapter: Adapter, caplog: pytest.LogCaptureFixture) -> None:
    async def process(job: Any) -> None:
        if job.attempts_made == 0:
            raise ValueError("once")
        raise ValueError("for good")

    await queue.add("a", options=JobOptions(attempts=2))
    worker = work(process, worker_id="w-1")
    seen = Seen(worker, JobFailed)
    with caplog.at_level(logging.DEBUG, adapter.logger):
        async with worker:
            await seen.wait(JobFailed, 2)
    lines = [record for record in caplog.records if getattr(record, "job_id", "") == "1"]
    assert [record.levelname for record in lines] == ["DEBUG", "WARNING", "DEBUG", "ERROR"]
    assert {(record.worker_id, record.queue) for record in lines} == {("w-1", queue.name)}  # type: ignore[attr-defined]
    assert "attempts are exhausted: ValueError: for good" in lines[-1].getMessage()


async def test_worker_is_listed_by_its_name(queue: Any, work: Any) -> None:
    async with work(nothing, name="nick"), work(nothing):

        async def both() -> bool:
            return len(await queue.get_workers()) == 2

        await until(both)
        rows = await queue.get_workers()
    assert {row["name"] for row in rows} == {queue.name}
    base = queue.keys.client_name()
    assert sorted(row["rawname"] for row in rows) == [base, f"{base}:w:nick"]


# --- the connection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["idle", "processing"])
async def test_server_restarts(adapter: Adapter, name: str, when: str) -> None:
    with servers.start(config=("--appendonly", "yes", "--appendfsync", "always")) as server:
        gate = anyio.Event()

        async def process(job: Any) -> str:
            await gate.wait()
            return "done"

        async with adapter.Queue(name, server.url) as queue:
            worker = adapter.Worker(name, process, server.url)
            seen = Seen(worker, JobActive, JobCompleted, Disconnected, Reconnected, Drained)
            async with worker:
                if when == "processing":
                    await queue.add("a")
                    await seen.wait(JobActive)
                else:
                    await seen.wait(Drained)
                await anyio.to_thread.run_sync(server.kill)
                gate.set()
                await seen.wait(Disconnected)
                await anyio.to_thread.run_sync(server.restart)
                await seen.wait(Reconnected)
                if when == "idle":
                    await queue.add("a")
                await seen.wait(JobCompleted)
            assert (await queue.get_job("1")).returnvalue == "done"


async def test_connections_are_killed_while_jobs_run(queue: Any, work: Any) -> None:
    started: Counter[str] = Counter()

    async def process(job: Any) -> None:
        started[job.id] += 1
        await anyio.sleep(0.01)

    await queue.add_bulk([NewJob("a") for _ in range(100)])
    worker = work(process, concurrency=5, stalled_interval=500, lock_duration=1000, max_stalled_count=100)
    seen = Seen(worker, JobActive)
    kill = Command("CLIENT KILL", (), ("TYPE", "normal", "SKIPME", "yes"), as_none)

    async def all_done() -> bool:
        counts = await queue.get_job_counts("completed", "failed")
        return counts == {"completed": 100, "failed": 0}

    async with worker:
        for number in range(5):
            await seen.wait(JobActive, 10 + 10 * number)
            await queue.call(kill)
        await until(all_done)
    # What a lost fetch took is found stalled and run by its next one; no result is stored twice.
    assert len(started) == 100
    assert {(await queue.get_job(job_id)).attempts_made for job_id in started} == {1}


async def test_gives_up_after_the_set_number_of_attempts(adapter: Adapter, name: str) -> None:
    with servers.start() as server:
        worker = adapter.Worker(name, nothing, server.url, options=WorkerOptions(max_reconnect_attempts=3))
        seen = Seen(worker, Drained)
        raised: list[BaseException] = []

        async def run() -> None:
            try:
                await worker.run()
            except ConnectionLost as error:
                raised.append(error)

        with anyio.fail_after(_LIMIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await seen.wait(Drained)
                server.kill()
        assert "gave up after 3 attempts" in str(raised[0])


async def test_starts_before_its_server(adapter: Adapter, name: str) -> None:
    with servers.start() as server:
        server.kill()
        options = ConnectionOptions(host=server.host, port=server.port)
        worker = adapter.Worker(name, nothing, options)
        seen = Seen(worker, Disconnected, JobCompleted)
        async with worker:
            await seen.wait(Disconnected)
            await anyio.to_thread.run_sync(server.restart)
            async with adapter.Queue(name, options) as queue:
                await queue.add("a")
            await seen.wait(JobCompleted)


async def test_wrong_password_is_raised_at_once(adapter: Adapter, name: str) -> None:
    with servers.start(config=("--requirepass", "secret")) as server:
        url = f"redis://:wrong@{server.host}:{server.port}"
        with anyio.fail_after(30), pytest.raises(AuthenticationFailed):
            await adapter.Worker(name, nothing, url).run()
        with pytest.raises(AuthenticationFailed):
            async with adapter.Worker(name, nothing, url):
                await anyio.sleep(_LIMIT_S)


async def test_server_too_old_is_raised_at_once(adapter: Adapter, server: Server, name: str) -> None:
    with CutProxy(server.host, server.port) as proxy:
        proxy.arm(Fault.OLD_VERSION)
        with anyio.fail_after(30), pytest.raises(ServerTooOld, match=r"5\."):
            await adapter.Worker(name, nothing, proxy.url).run()


async def test_crossslot_refused_early(adapter: Adapter, name: str) -> None:
    with (
        servers.start(config=("--cluster-enabled", "yes")) as server,
        anyio.fail_after(30),
        pytest.raises(UsageError, match="CROSSSLOT"),
    ):
        await adapter.Worker(name, nothing, server.url).run()


# --- by hand ----------------------------------------------------------------------------------------------------------


async def test_jobs_taken_manually(queue: Any, work: Any) -> None:
    worker = work(None, drain_delay=0.5)
    assert await worker.get_next_job() is None
    begun = time.monotonic()
    assert await worker.get_next_job() is None
    assert time.monotonic() - begun >= 0.5
    patient = work(None, drain_delay=60)
    begun = time.monotonic()
    for _ in range(2):
        assert await patient.get_next_job(block=False) is None
    assert time.monotonic() - begun < 30
    await patient.aclose()
    await queue.add_bulk([NewJob(name) for name in ("a", "b", "c", "d")])
    job = await worker.get_next_job(block=False)
    assert job.name == "a"
    following = await worker.complete(job, "done", fetch_next=True)
    assert (following.name, following.token) == ("b", job.token)
    last = await worker.fail(following, ValueError("no"), fetch_next=True)
    assert last.name == "c"
    assert await worker.complete(last) is None
    other = await worker.get_next_job()
    assert other.name == "d"
    assert other.token != job.token
    with pytest.raises(LockMissing):
        await worker.complete(job)
    assert await queue.get_job_counts("completed", "failed", "active") == {"completed": 2, "failed": 1, "active": 1}
    found = await queue.get_job("2")
    assert (found.failed_reason, found.attempts_made) == ("no", 1)
    with pytest.raises(UsageError, match="job"):
        await worker.complete(found)
    await worker.aclose()
    assert await worker.get_next_job() is None


async def test_retry_manually(queue: Any, work: Any) -> None:
    await queue.add("a", options=JobOptions(attempts=2, backoff=60_000))
    worker = work(None, drain_delay=25)
    job = await worker.get_next_job()
    assert await worker.fail(job, ValueError("no"), fetch_next=True) is None
    assert await queue.get_state("1") == "delayed"
    assert await worker.get_next_job(block=False) is None
    await (await queue.get_job("1")).change_delay(50)
    begun = time.monotonic()
    again = None
    while again is None and time.monotonic() - begun < _LIMIT_S:
        again = await worker.get_next_job()
    assert (again.id, again.attempts_made) == ("1", 1)
    assert time.monotonic() - begun < _SLACK_S
    await worker.aclose()


async def test_waiting_manually_ends_with_close(queue: Any, work: Any) -> None:
    worker = work(None, drain_delay=20)
    assert await worker.get_next_job() is None
    found: list[Any] = []

    async def take() -> None:
        found.append(await worker.get_next_job())

    blocked = Command("CLIENT LIST", (), (), as_none, repeat=Repeat.SAFE)

    async def waits() -> bool:
        return any("flags=b" in line for line in await queue.call(replaced(blocked)))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            await until(waits)
            await worker.aclose()
    assert found == [None]


def replaced(command: Command[Any]) -> Command[list[str]]:
    """The same, its reply as lines."""
    return msgspec.structs.replace(command, decode=lambda reply: as_texts([reply])[0].splitlines())
