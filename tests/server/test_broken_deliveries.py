"""Outcomes survive what becomes of the calls that deliver them: left by the server, cancelled, broken, or not owed."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
import redis

import bullmq_anyio
import bullmq_protocol.worker.typed
import bullmq_sync
import bullmq_sync.driving.hands
from bullmq_protocol import JobOptions, NewJob, QueueKeys, WorkerOptions
from bullmq_protocol.command import Command
from bullmq_protocol.net.merge import merged
from bullmq_protocol.worker.events import PauseRequested, ResumeRequested, Tick
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.notices import (
    Drained,
    JobActive,
    JobCompleted,
    JobFailed,
    LockLost,
    Paused,
    ReportRefused,
    WorkerProblem,
)
from tests.support.adapters import Adapter
from tests.support.seen import LIMIT_S, Seen
from tests.support.servers import Server

JOBS = 120


async def _all_completed(queue: Any, count: int) -> None:
    counts = await queue.get_job_counts("waiting", "active", "completed", "failed")
    assert {state: number for state, number in counts.items() if number} == {"completed": count}


async def test_outcomes_that_the_server_left_are_sent_again(
    adapter: Adapter, server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that fetched large jobs, the server works on the first outcome of each call alone."""
    left = 0

    def first_alone(finishes: Sequence[Command[Any]]) -> Command[Any]:
        nonlocal left
        left += len(finishes) - 1
        return merged(finishes[:1])

    monkeypatch.setattr(bullmq_protocol.worker.typed, "merged", first_alone)
    began: list[str] = []
    together = anyio.Event()

    async def process(job: Any) -> str:
        began.append(job.id)
        if len(began) == 20:
            together.set()
        await together.wait()
        return str(job.id)

    async with adapter.Queue(name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number) for number in range(JOBS)])
        worker = adapter.Worker(name, process, server.url, options=WorkerOptions(concurrency=20))
        seen = Seen(worker, JobCompleted)
        async with worker:
            await seen.wait(JobCompleted, JOBS)
        assert left > 0
        # Each once, with a result of its own.
        assert sorted(began) == sorted(str(number) for number in range(1, JOBS + 1))
        assert {(notice.job.id, notice.value) for notice in seen.all} == {(each, f'"{each}"') for each in began}
        await _all_completed(queue, JOBS)
        await queue.obliterate(force=True)


class _Cancelling(bullmq_anyio.Connection):
    """Cancels the task that makes calls of these names, before they are sent; the first three only."""

    calls = 0
    names: tuple[str, ...] = ()

    def dedicated(self, *, client_name: str | None = None) -> Any:
        child: Any = super().dedicated(client_name=client_name)
        plain = child.perform

        async def perform(step: Any, /) -> Any:
            await self._cancel(step)
            return await plain(step)

        child.perform = perform
        return child

    async def perform(self, step: Any, /) -> Any:
        await self._cancel(step)
        return await super().perform(step)

    async def _cancel(self, step: Any) -> None:
        if getattr(step, "name", "") in self.names and self.calls < 3:
            self.calls += 1
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("names", [("moveToFinished", "finishMany"), ("moveToActive", "fetchMany")], ids=lambda n: n[1])
@pytest.mark.parametrize("concurrency", [1, 8])
async def test_calls_outlive_the_task_that_makes_them(
    server: Server, name: str, concurrency: int, names: tuple[str, ...]
) -> None:
    """asyncio lets anybody cancel any task (`asyncio.all_tasks`). More often than calls may be under way."""

    async def process(job: bullmq_anyio.Job[Any]) -> str:
        return job.id

    connection = _Cancelling(server.url)
    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number) for number in range(40)])
        options = WorkerOptions(concurrency=concurrency)
        worker = bullmq_anyio.Worker[Any](name, process, connection, options=options)
        seen = Seen(worker, JobCompleted)
        async with worker:
            await seen.wait(JobCompleted)
            connection.names = names
            await seen.wait(JobCompleted, 40)
            await queue.add_bulk([NewJob("n", number) for number in range(10)])
            await seen.wait(JobCompleted, 50)
        assert connection.calls == 3
        # Those that were there first are stored first.
        if concurrency == 1:
            assert [notice.job.id for notice in seen.all] == [str(number) for number in range(1, 51)]
        await _all_completed(queue, 50)
        await queue.obliterate(force=True)
    await connection.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("concurrency", [1, 8])
async def test_failed_attempts_outlive_the_task_that_makes_their_calls(
    server: Server, name: str, concurrency: int
) -> None:
    """They go one by one, and some follow from the answer to outcomes: the task that made these makes them, too."""

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        if job.attempts_made == 0 and job.data % 2:
            await asyncio.sleep(0.001)
            raise LookupError

    connection = _Cancelling(server.url)
    connection.names = ("retryJob",)
    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number, JobOptions(attempts=2)) for number in range(40)])
        options = WorkerOptions(concurrency=concurrency)
        worker = bullmq_anyio.Worker[Any](name, process, connection, options=options)
        seen = Seen(worker, JobCompleted, JobFailed)
        async with worker:
            await seen.wait(JobCompleted, 40)
        assert connection.calls == 3
        assert len(seen.of(JobFailed)) == 20
        await _all_completed(queue, 40)
        await queue.obliterate(force=True)
    await connection.aclose()


class _Held(bullmq_anyio.Connection):
    """Holds the reply to the first outcome, and cancels who retries a job meanwhile: before the call, or after it."""

    retries = 0

    def __init__(self, url: str, when: str) -> None:
        super().__init__(url)
        self.when = when
        self.sent, self.free = anyio.Event(), anyio.Event()

    async def perform(self, step: Any, /) -> Any:
        step_name = getattr(step, "name", "")
        task = asyncio.current_task()
        assert task is not None
        if step_name == "retryJob":
            self.retries += 1
            if self.retries == 1 and self.when == "before":
                task.cancel()
                await asyncio.sleep(0)
        reply = await super().perform(step)
        if step_name == "retryJob" and self.when == "after":
            task.cancel()
        if step_name in ("moveToFinished", "finishMany") and not self.sent.is_set():
            self.sent.set()
            await self.free.wait()
        return reply


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_call_that_follows_from_outcomes_outlives_the_slot_that_makes_it(
    server: Server, name: str, when: str
) -> None:
    """Cancelled before it is sent, it is made by another; afterwards it is over."""
    connection = _Held(server.url, when)

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        if job.data == "fails" and job.attempts_made == 0:
            await connection.sent.wait()
            # The slot that holds the reply tells the machine of this one.
            asyncio.get_running_loop().call_later(0.01, connection.free.set)
            raise LookupError

    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add_bulk([NewJob("n", data, JobOptions(attempts=2)) for data in ("fails", "good")])
        worker = bullmq_anyio.Worker[Any](name, process, connection, options=WorkerOptions(concurrency=2))
        worker._driver._dispatch._deliveries = (
            1  # one more is under way, so that no other slot takes what comes meanwhile
        )
        seen = Seen(worker, JobCompleted)
        async with worker:
            await seen.wait(JobCompleted, 2)
        assert connection.retries == (2 if when == "before" else 1)
        await _all_completed(queue, 2)
        await queue.obliterate(force=True)
    await connection.aclose()


def _slots() -> list[asyncio.Task[Any]]:
    """The tasks of a worker's that make calls: they are in no list.

    One that is cancelled before its first step cannot go on, and no program can find it: these are left out.
    """
    # `isinstance` asks a weak proxy, which raises where its object is gone.
    tasks = [each for each in gc.get_objects() if issubclass(type(each), asyncio.Task) and not each.done()]
    return [
        task
        for task in tasks
        if task.get_name().endswith(("Slots._slot", "Slots._carry"))
        and inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED
    ]


class _Answering(bullmq_anyio.Connection):
    """Cancels who waits for the reply to a call of this name, when it is there."""

    name = ""
    made = 0
    struck = 0

    async def perform(self, step: Any, /) -> Any:
        self.made += getattr(step, "name", "") == self.name
        reply = await super().perform(step)
        if getattr(step, "name", "") == self.name and reply is not None and self.struck < 3:
            found = _slots()
            self.struck += bool(found)
            for slot in found:
                slot.cancel()
            await asyncio.sleep(0.01)
        return reply


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("call", ["moveToActive", "fetchMany", "moveToFinished", "finishMany", "retryJob"])
async def test_a_reply_is_not_lost_with_the_task_that_waits_for_it(server: Server, name: str, call: str) -> None:
    """No job that it brings stays active until it is found stalled, and no outcome is stored twice."""
    runs: Counter[str] = Counter()

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        runs[job.id] += 1
        if job.data % 2 and job.attempts_made == 0:
            raise LookupError

    connection = _Answering(server.url)
    connection.name = call
    concurrency = 8 if call in ("fetchMany", "finishMany") else 1
    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        options = WorkerOptions(concurrency=concurrency)
        worker = bullmq_anyio.Worker[Any](name, process, connection, options=options)
        seen = Seen(worker, JobCompleted, JobFailed, ReportRefused, WorkerProblem)
        async with worker:
            for begun in range(0, 40, 8):
                numbers = range(begun, begun + 8)
                await queue.add_bulk([NewJob("n", number, JobOptions(attempts=2)) for number in numbers])
                await seen.wait(JobCompleted, begun + 8)
        assert connection.struck == 3
        assert (seen.of(ReportRefused), seen.of(WorkerProblem), len(seen.of(JobFailed))) == ([], [], 20)
        assert sum(runs.values()) == 60
        assert call != "retryJob" or connection.made == 20
        await _all_completed(queue, 40)
        await queue.obliterate(force=True)
    await connection.aclose()


class _BreakingLate(_Answering):
    """Breaks over a call for which nobody waits any more."""

    async def perform(self, step: Any, /) -> Any:
        before = self.struck
        reply = await super().perform(step)
        if self.struck > before:
            raise _Odd
        return reply


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("call", ["fetchMany", "finishMany"])
async def test_a_fault_of_a_call_that_nobody_waits_for_ends_the_worker(server: Server, name: str, call: str) -> None:
    async def process(job: bullmq_anyio.Job[Any]) -> None:
        """A processor that has nothing to do."""

    connection = _BreakingLate(server.url)
    connection.name = call
    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number) for number in range(20)])
        worker = bullmq_anyio.Worker[Any](name, process, connection, options=WorkerOptions(concurrency=8))
        with pytest.raises(_Odd):
            await worker.run()
        counts = await queue.get_job_counts("waiting", "active", "completed", "failed")
        assert (counts["active"], counts["failed"], counts["waiting"] + counts["completed"]) == (0, 0, 20)
        await queue.obliterate(force=True)
    await connection.aclose()


class _CancellingLog(logging.Handler):
    """Cancels whatever runs when a line is logged, at once and later, as code that is not to be trusted."""

    struck = 0

    def emit(self, record: logging.LogRecord) -> None:
        task = asyncio.current_task()
        if task is not None and "bullmq" in record.name:
            self.struck += 1
            task.cancel()
            asyncio.get_running_loop().call_later(0.002, task.cancel)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("concurrency", [1, 8])
async def test_a_log_handler_that_cancels_its_task_does_no_harm(
    server: Server, name: str, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def process(job: bullmq_anyio.Job[Any]) -> None:
        if job.attempts_made == 0:
            raise LookupError

    handler = _CancellingLog()
    logger = logging.getLogger("bullmq_anyio")
    caplog.set_level(logging.DEBUG, "bullmq_anyio")
    logger.addHandler(handler)
    try:
        async with bullmq_anyio.Queue[Any](name, server.url) as queue:
            worker = bullmq_anyio.Worker[Any](name, process, server.url, options=WorkerOptions(concurrency=concurrency))
            seen = Seen(worker, JobCompleted, WorkerProblem, ReportRefused)
            async with worker:
                await queue.add_bulk([NewJob("n", number, JobOptions(attempts=2)) for number in range(20)])
                await seen.wait(JobCompleted, 20)
            assert handler.struck >= 60
            assert len(seen.all) == 20
            await _all_completed(queue, 20)
            await queue.obliterate(force=True)
    finally:
        logger.removeHandler(handler)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_wait_for_jobs_outlives_the_task_that_waits(server: Server, name: str) -> None:
    async def process(job: bullmq_anyio.Job[Any]) -> None:
        """A processor that has nothing to do."""

    connection = _Cancelling(server.url)
    connection.names = ("BZPOPMIN",)
    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        worker = bullmq_anyio.Worker[Any](name, process, connection)
        seen = Seen(worker, JobCompleted)
        async with worker:
            with anyio.fail_after(LIMIT_S):
                while connection.calls < 3:
                    await anyio.sleep(0.001)
            await queue.add("n")
            await seen.wait(JobCompleted)
        await _all_completed(queue, 1)
        await queue.obliterate(force=True)
    await connection.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_fetch_whose_task_is_cancelled_is_reported_and_made_again_later(server: Server, name: str) -> None:
    """It may have been sent: nobody repeats it as it is."""

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        """A processor that has nothing to do."""

    connection = _Cancelling(server.url)
    connection.names = ("moveToActive", "fetchMany")
    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add("n")
        worker = bullmq_anyio.Worker[Any](name, process, connection)
        seen = Seen(worker, JobCompleted, WorkerProblem)
        async with worker:
            await seen.wait(JobCompleted)
        assert connection.calls == 3
        assert ["the task was cancelled" in notice.message for notice in seen.of(WorkerProblem)] == [True] * 3
        await queue.obliterate(force=True)
    await connection.aclose()


@pytest.mark.anyio
@pytest.mark.any_python  # From 3.12 on a task begins as it is made: there is no such moment.
@pytest.mark.parametrize("anyio_backend", ["asyncio"] if sys.version_info < (3, 12) else [])
async def test_a_job_cancelled_before_it_began_is_heard_of_though_its_slot_is_cancelled(
    server: Server, name: str
) -> None:
    victims: list[str] = []
    struck = False

    def strike() -> None:
        for task in asyncio.all_tasks():
            if task.get_name().startswith("bullmq job"):
                victims.append(task.get_name())
                task.cancel()

    def cancel_the_slot(_: object) -> None:
        nonlocal struck
        running = [slot for slot in _slots() if slot.get_coro().cr_running]
        if running and seen.all and not struck:
            struck = True
            running[0].cancel()
            asyncio.get_running_loop().call_soon(strike)

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        """A processor that has nothing to do."""

    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number) for number in range(8)])
        worker = bullmq_anyio.Worker[Any](name, process, server.url)
        seen = Seen(worker, JobCompleted, JobFailed)
        worker.on(JobActive, cancel_the_slot)
        async with worker:
            await seen.until(lambda: len(seen.all) == 8)
        await queue.obliterate(force=True)
    assert victims


class _Odd(BaseException):
    """No `Exception`."""


class _Breaks:
    """Breaks over the first call with outcomes, as a fault of the library would: before it is sent, or over its
    reply."""

    broken = False
    how = "unsent"

    def breaks(self, step: Any) -> bool:
        if getattr(step, "name", "") in ("moveToFinished", "finishMany") and not self.broken:
            self.broken = True
            return True
        return False


class _BreakingTasks(_Breaks, bullmq_anyio.Connection):
    async def perform(self, step: Any, /) -> Any:
        if self.breaks(step):
            if self.how == "answered":
                await super().perform(step)
            raise _Odd
        return await super().perform(step)


class _BreakingThreads(_Breaks, bullmq_sync.Connection):
    def perform(self, step: Any, /) -> Any:
        if self.breaks(step):
            if self.how == "answered":
                super().perform(step)
            raise _Odd
        return super().perform(step)


@pytest.mark.parametrize("how", ["unsent", "answered"])
@pytest.mark.parametrize("concurrency", [1, 8])
async def test_outcomes_outlive_what_breaks_over_them(
    adapter: Adapter, server: Server, name: str, concurrency: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` raises what broke it when what the handlers returned is stored, and the rest is given back: also the jobs
    that came with the reply."""
    # The call that broke is waited for no longer.
    monkeypatch.setattr(bullmq_sync.driving.hands, "FORCED_STOP_S", 2.0)
    together = anyio.Event()
    runs = 0

    async def process(job: Any) -> str:
        nonlocal runs
        runs += 1
        if runs == concurrency:
            together.set()
        await together.wait()
        return str(job.id)

    connection: Any = (_BreakingThreads if adapter.name == "threads" else _BreakingTasks)(server.url)
    connection.how = how
    async with adapter.Queue(name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number) for number in range(2 * concurrency)])
        worker = adapter.Worker(name, process, connection, options=WorkerOptions(concurrency=concurrency))
        with pytest.raises(_Odd):
            await worker.run()
        counts = await queue.get_job_counts("waiting", "active", "completed", "failed")
        assert counts["active"] == counts["failed"] == 0
        assert counts["completed"] >= 1
        assert counts["waiting"] + counts["completed"] == 2 * concurrency
        await queue.obliterate(force=True)
    if adapter.name == "threads":
        connection.close()
    else:
        await connection.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_handlers_that_leave_when_their_worker_breaks_are_not_complained_of(
    server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They may take a moment, and nobody waits longer than they do."""
    both = anyio.Event()
    left: list[bool] = []

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        if job.name == "first":
            await both.wait()
            return
        both.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.02)
            left.append(True)

    connection = _BreakingTasks(server.url)
    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add_bulk([NewJob("first"), NewJob("second")])
        worker = bullmq_anyio.Worker[Any](name, process, connection, options=WorkerOptions(concurrency=2))
        with pytest.raises(_Odd):
            await worker.run()
        assert left == [True]
        assert "still waits for" not in caplog.text
        await queue.obliterate(force=True)
    await connection.aclose()


async def test_jobs_that_are_ours_no_more_leave_deliveries_free(adapter: Adapter, server: Server, name: str) -> None:
    """What a handler returned is not sent where the lock was lost; those behind it are, however often that happens."""
    keys = QueueKeys.of(name)
    lost = 0

    async def process(job: Any) -> None:
        nonlocal lost
        if job.name == "stolen":
            lost += 1
            with redis.Redis.from_url(server.url) as other:
                other.set(f"{keys.job(job.id)}:lock", "another's")
            await seen.wait(LockLost, lost)

    async with adapter.Queue(name, server.url) as queue:
        await queue.add_bulk([NewJob("stolen") for _ in range(4)])
        await queue.add("ours")
        options = WorkerOptions(lock_renew_time=100, stalled_interval=600_000)
        worker = adapter.Worker(name, process, server.url, options=options)
        seen = Seen(worker, LockLost, ReportRefused, JobCompleted)
        async with worker:
            await seen.wait(JobCompleted)
        assert [notice.job.name for notice in seen.of(JobCompleted)] == ["ours"]
        assert len(seen.of(ReportRefused)) == 4
        await queue.obliterate(force=True)


async def test_a_fault_over_what_the_user_asks_for_loses_no_outcome(
    adapter: Adapter, server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the machine has decided about jobs is not lost with it."""
    broken: list[bool] = []
    real = WorkerMachine.handle_all
    ran = 0

    def handle_all(machine: WorkerMachine, events: Any, at: Any) -> Any:
        if broken and any(isinstance(event, ResumeRequested) for event in events):
            broken.clear()
            real(machine, [event for event in events if not isinstance(event, ResumeRequested)], at)
            raise _Odd
        return real(machine, events, at)

    async def process(job: Any) -> None:
        nonlocal ran
        ran += 1
        if ran == 8:
            broken.append(True)
            with pytest.raises(_Odd):
                worker.resume()

    monkeypatch.setattr(WorkerMachine, "handle_all", handle_all)
    async with adapter.Queue(name, server.url) as queue:
        await queue.add_bulk([NewJob("n") for _ in range(8)])
        worker = adapter.Worker(name, process, server.url, options=WorkerOptions(concurrency=8))
        seen = Seen(worker, JobCompleted)
        async with worker:
            await seen.wait(JobCompleted, 8)
        assert broken == []
        await queue.obliterate(force=True)


class _Slow:
    """Holds the reply to the first fetch that brings a job."""

    def begin(self) -> None:
        self.asked, self.free = threading.Event(), threading.Event()

    def brings(self, step: Any, reply: Any) -> bool:
        if getattr(step, "name", "") in ("moveToActive", "fetchMany") and reply and not self.asked.is_set():
            self.asked.set()
            return True
        return False


class _SlowTasks(_Slow, bullmq_anyio.Connection):
    async def perform(self, step: Any, /) -> Any:
        reply = await super().perform(step)
        if self.brings(step, reply):
            while not self.free.is_set():
                await anyio.sleep(0.001)
        return reply


class _SlowThreads(_Slow, bullmq_sync.Connection):
    def perform(self, step: Any, /) -> Any:
        reply = super().perform(step)
        if self.brings(step, reply):
            assert self.free.wait(LIMIT_S)
        return reply


async def test_a_pause_waits_for_jobs_that_are_on_their_way(adapter: Adapter, server: Server, name: str) -> None:
    """After it nothing runs, and none begins."""
    over = anyio.Event()
    ran: list[bool] = []

    async def process(job: Any) -> None:
        ran.append(over.is_set())

    async def pause() -> None:
        await worker.pause()
        over.set()

    connection: Any = (_SlowThreads if adapter.name == "threads" else _SlowTasks)(server.url)
    connection.begin()
    async with adapter.Queue(name, server.url) as queue:
        await queue.add("n")
        worker = adapter.Worker(name, process, connection)
        seen = Seen(worker, Paused)
        async with worker, anyio.create_task_group() as tasks:
            with anyio.fail_after(LIMIT_S):
                while not connection.asked.is_set():
                    await anyio.sleep(0.001)
            tasks.start_soon(pause)
            await seen.wait(Paused)
            await anyio.wait_all_tasks_blocked() if adapter.name == "trio" else await anyio.sleep(0)
            assert not over.is_set()
            connection.free.set()
            with anyio.fail_after(LIMIT_S):
                await over.wait()
            held = worker.snapshot()
            assert (held.jobs, held.fetching) == ((), False)
            counts = await queue.get_job_counts("waiting", "active", "completed")
            assert (counts["active"], counts["waiting"] + counts["completed"], True in ran) == (0, 1, False)
        await queue.obliterate(force=True)
    if adapter.name == "threads":
        connection.close()
    else:
        await connection.aclose()


@pytest.mark.parametrize("what", ["pause", "resume", "concurrency"])
async def test_a_fault_over_what_the_user_asks_for_is_the_callers(
    adapter: Adapter, server: Server, name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends no worker: that one ends by its owner."""
    kind = {"pause": PauseRequested, "resume": ResumeRequested, "concurrency": Tick}[what]
    broken: list[bool] = []
    real = WorkerMachine.handle_all

    def handle_all(machine: WorkerMachine, events: Any, at: Any) -> Any:
        if broken and any(isinstance(event, kind) for event in events):
            broken.clear()
            raise _Odd
        return real(machine, events, at)

    async def process(job: Any) -> None:
        """A processor that has nothing to do."""

    async def ask(worker: Any) -> None:
        if what == "concurrency":
            worker.concurrency = 3
        elif what == "pause":
            await worker.pause()
        else:
            worker.resume()

    monkeypatch.setattr(WorkerMachine, "handle_all", handle_all)
    async with adapter.Queue(name, server.url) as queue:
        worker = adapter.Worker(name, process, server.url)
        seen = Seen(worker, JobCompleted, Drained)
        async with worker:
            await seen.wait(Drained)
            if what == "resume":
                await worker.pause()
            broken.append(True)
            with pytest.raises(_Odd):
                await ask(worker)
            assert worker.is_running
            assert broken == []
            # Asked again, it does so.
            if what == "pause":
                await worker.pause()
                assert worker.is_paused
            worker.resume()
            await queue.add("n")
            await seen.wait(JobCompleted)
        await queue.obliterate(force=True)
