"""Outcomes survive what becomes of the calls that deliver them: left by the server, cancelled, broken, or not owed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
import redis

import bullmq_anyio
import bullmq_anyio.worker
import bullmq_sync
import bullmq_sync.worker
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
    ReportRefused,
    WorkerProblem,
)
from tests.support.colours import Colour
from tests.support.seen import LIMIT_S, Seen
from tests.support.servers import Server

JOBS = 120


async def _all_completed(queue: Any, count: int) -> None:
    counts = await queue.get_job_counts("waiting", "active", "completed", "failed")
    assert {state: number for state, number in counts.items() if number} == {"completed": count}


async def test_outcomes_that_the_server_left_are_sent_again(
    colour: Colour, server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that fetched large jobs, the server works on the first outcome of each call alone."""
    left = 0

    def first_alone(finishes: Sequence[Command[Any]]) -> Command[Any]:
        nonlocal left
        left += len(finishes) - 1
        return merged(finishes[:1])

    module = bullmq_sync.worker if colour.name == "threads" else bullmq_anyio.worker
    monkeypatch.setattr(module, "merged", first_alone)
    began: list[str] = []
    together = anyio.Event()

    async def process(job: Any) -> str:
        began.append(job.id)
        if len(began) == 20:
            together.set()
        await together.wait()
        return str(job.id)

    async with colour.Queue(name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number) for number in range(JOBS)])
        worker = colour.Worker(name, process, server.url, options=WorkerOptions(concurrency=20))
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
    """Holds the reply to the first outcome, and cancels who retries a job meanwhile, before the call."""

    retries = 0

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.sent, self.free = anyio.Event(), anyio.Event()

    async def perform(self, step: Any, /) -> Any:
        step_name = getattr(step, "name", "")
        task = asyncio.current_task()
        assert task is not None
        if step_name == "retryJob":
            self.retries += 1
            if self.retries == 1:
                assert "_carry" not in repr(task.get_coro())
                task.cancel()
                await asyncio.sleep(0)
        reply = await super().perform(step)
        if step_name in ("moveToFinished", "finishMany") and not self.sent.is_set():
            self.sent.set()
            await self.free.wait()
        return reply


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_call_that_follows_from_outcomes_outlives_the_slot_that_makes_it(server: Server, name: str) -> None:
    """Cancelled before it is sent, it is made by another."""
    connection = _Held(server.url)

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        if job.data == "fails" and job.attempts_made == 0:
            await connection.sent.wait()
            # The slot that holds the reply tells the machine of this one.
            asyncio.get_running_loop().call_later(0.01, connection.free.set)
            raise LookupError

    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add_bulk([NewJob("n", data, JobOptions(attempts=2)) for data in ("fails", "good")])
        worker = bullmq_anyio.Worker[Any](name, process, connection, options=WorkerOptions(concurrency=2))
        worker._deliveries = 1  # one more is under way, so that no other slot takes what comes meanwhile
        seen = Seen(worker, JobCompleted)
        async with worker:
            await seen.wait(JobCompleted, 2)
        assert connection.retries == 2
        await _all_completed(queue, 2)
        await queue.obliterate(force=True)
    await connection.aclose()


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
async def test_a_fetch_whose_task_is_cancelled_is_told_and_made_again_later(server: Server, name: str) -> None:
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


class _Noting(bullmq_anyio.Connection):
    """Notes the task that takes the latest outcome to the server."""

    task: asyncio.Task[Any] | None = None

    async def perform(self, step: Any, /) -> Any:
        if getattr(step, "name", "") in ("moveToFinished", "finishMany"):
            self.task = asyncio.current_task()
        return await super().perform(step)


@pytest.mark.anyio
@pytest.mark.any_python  # From 3.12 on a task begins as it is made: there is no such moment.
@pytest.mark.parametrize("anyio_backend", ["asyncio"] if sys.version_info < (3, 12) else [])
async def test_a_job_cancelled_before_it_began_is_heard_of_though_its_slot_is_cancelled(
    server: Server, name: str
) -> None:
    connection = _Noting(server.url)
    victims: list[str] = []
    struck = False

    def strike() -> None:
        for task in asyncio.all_tasks():
            if task.get_name().startswith("bullmq job"):
                victims.append(task.get_name())
                task.cancel()

    def cancel_the_slot(_: object) -> None:
        nonlocal struck
        if connection.task is not None and not struck:
            struck = True
            connection.task.cancel()
            asyncio.get_running_loop().call_soon(strike)

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        """A processor that has nothing to do."""

    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number) for number in range(8)])
        worker = bullmq_anyio.Worker[Any](name, process, connection)
        seen = Seen(worker, JobCompleted, JobFailed)
        worker.on(JobActive, cancel_the_slot)
        async with worker:
            await seen.until(lambda: len(seen.all) == 8)
        await queue.obliterate(force=True)
    await connection.aclose()
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
    colour: Colour, server: Server, name: str, concurrency: int, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` raises what broke it when what the handlers returned is stored, and the rest is given back: also the jobs
    that came with the reply."""
    # The call that broke is waited for no longer.
    monkeypatch.setattr(bullmq_sync.worker, "_FORCED_STOP_S", 2.0)
    together = anyio.Event()
    runs = 0

    async def process(job: Any) -> str:
        nonlocal runs
        runs += 1
        if runs == concurrency:
            together.set()
        await together.wait()
        return str(job.id)

    connection: Any = (_BreakingThreads if colour.name == "threads" else _BreakingTasks)(server.url)
    connection.how = how
    async with colour.Queue(name, server.url) as queue:
        await queue.add_bulk([NewJob("n", number) for number in range(2 * concurrency)])
        worker = colour.Worker(name, process, connection, options=WorkerOptions(concurrency=concurrency))
        with pytest.raises(_Odd):
            await worker.run()
        counts = await queue.get_job_counts("waiting", "active", "completed", "failed")
        assert counts["active"] == counts["failed"] == 0
        assert counts["completed"] >= 1
        assert counts["waiting"] + counts["completed"] == 2 * concurrency
        await queue.obliterate(force=True)
    if colour.name == "threads":
        connection.close()
    else:
        await connection.aclose()


async def test_jobs_that_are_ours_no_more_leave_deliveries_free(colour: Colour, server: Server, name: str) -> None:
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

    async with colour.Queue(name, server.url) as queue:
        await queue.add_bulk([NewJob("stolen") for _ in range(4)])
        await queue.add("ours")
        options = WorkerOptions(lock_duration=400, stalled_interval=600_000)
        worker = colour.Worker(name, process, server.url, options=options)
        seen = Seen(worker, LockLost, ReportRefused, JobCompleted)
        async with worker:
            await seen.wait(JobCompleted)
        assert [notice.job.name for notice in seen.of(JobCompleted)] == ["ours"]
        assert len(seen.of(ReportRefused)) == 4
        await queue.obliterate(force=True)


@pytest.mark.parametrize("what", ["pause", "resume", "concurrency"])
async def test_a_fault_over_what_the_user_asks_for_is_the_callers(
    colour: Colour, server: Server, name: str, what: str, monkeypatch: pytest.MonkeyPatch
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
    async with colour.Queue(name, server.url) as queue:
        worker = colour.Worker(name, process, server.url)
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
