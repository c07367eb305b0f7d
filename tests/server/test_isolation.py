"""Jobs apart from each other: any program that is right with one task (or thread) for each job is right here.

A table: what a handler leaves behind, and what the next ones must not see of it. docs/handlers.md has the rule.
"""

from __future__ import annotations

import asyncio
import contextvars
import decimal
import gc
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
import trio

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import NewJob, WorkerOptions
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

LIMIT_S = 60
REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("REQUEST", default="nobody's")
LOCAL = threading.local()
Rows = dict[str, type["Row"]]


class Row:
    """What one handler leaves behind (`leave`), and what a job may not find (`look` says what it found)."""

    asyncio = trio = threads = True
    """Where there is such a thing."""

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def look(self, job: Any) -> str | None:
        """Return what is wrong at the beginning of a job."""
        return None

    def leave(self, job: Any) -> None:
        """Leave something behind, in a job's task or thread."""

    async def leave_async(self, job: Any) -> None:
        """The same where it takes an await; on threads it is not called."""

    def failure(self, job: Any) -> BaseException | None:
        """Return what the job shall raise."""
        return None

    def after(self, ends: list[Any]) -> str | None:
        """Return what is wrong when all jobs have ended."""
        return None

    def end(self) -> None:
        """Take back what concerns the whole process."""


class ContextVariables(Row):
    def look(self, job: Any) -> str | None:
        found = REQUEST.get()
        return None if found == "run's" else f"{found} request"

    def leave(self, job: Any) -> None:
        REQUEST.set(f"job {job.id}'s")


class DecimalContext(Row):
    def look(self, job: Any) -> str | None:
        found = decimal.getcontext().prec
        return None if found == 28 else f"{found} digits"

    def leave(self, job: Any) -> None:
        decimal.setcontext(decimal.Context(prec=5))


class DecimalContextLeftOpen(DecimalContext):
    def leave(self, job: Any) -> None:
        decimal.localcontext(decimal.Context(prec=7)).__enter__()


class ExceptionContext(Row):
    """Where a handler raises, its exception hangs on nobody else's."""

    def look(self, job: Any) -> str | None:
        found = sys.exc_info()[1]
        return None if found is None else f"exc_info {found!r}"

    def failure(self, job: Any) -> BaseException | None:
        return LookupError(job.id)

    def after(self, ends: list[Any]) -> str | None:
        for notice in ends:
            raised = notice.exception
            if type(raised) is not LookupError or raised.__context__ is not None or raised.__cause__ is not None:
                return f"{raised!r} in the context of {raised.__context__!r}"
        return None


class TaskName(Row):
    threads = False

    def look(self, job: Any) -> str | None:
        found = anyio.get_current_task().name
        return None if found == f"bullmq job {job.id} of {job.queue_name}" else f"task {found}"


class OwnTask(Row):
    """No two jobs are one task."""

    threads = False

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.tasks: list[Any] = []

    def look(self, job: Any) -> str | None:
        found = asyncio.current_task() if self.backend == "asyncio" else trio.lowlevel.current_task()
        shared = any(found is each for each in self.tasks)
        self.tasks.append(found)
        return "the task of another job" if shared else None


class TimerThatCancelsTheTask(Row):
    trio = threads = False

    def leave(self, job: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        for delay in (0, 0.001, 0.005, 0.02):
            asyncio.get_running_loop().call_later(delay, task.cancel)


class TaskThatCancelsItself(Row):
    trio = threads = False

    def leave(self, job: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()


class CancelScopeLeftOpen(Row):
    threads = False

    def leave(self, job: Any) -> None:
        anyio.CancelScope(deadline=anyio.current_time() + 0.005).__enter__()


class CancelScopeOfTrioLeftOpen(Row):
    asyncio = threads = False

    def leave(self, job: Any) -> None:
        trio.CancelScope(deadline=trio.current_time() + 0.005).__enter__()


class GeneratorLeftOpen(Row):
    """A generator that is left in the middle of what it opened, and kept."""

    threads = False
    keeps = True

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.kept: list[Any] = []

    async def rows(self) -> AsyncGenerator[int, None]:
        with anyio.fail_after(0.005):
            yield 1
            yield 2

    async def leave_async(self, job: Any) -> None:
        generator = self.rows()
        assert await anext(generator) == 1
        if self.keeps:
            self.kept.append(generator)
        else:
            del generator
            gc.collect(0)


class TimeoutOfAsyncioInGenerator(GeneratorLeftOpen):
    trio = False

    async def rows(self) -> AsyncGenerator[int, None]:
        async with asyncio.timeout(0.005):
            yield 1
            yield 2


class TaskGroupInGenerator(GeneratorLeftOpen):
    async def rows(self) -> AsyncGenerator[int, None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 0.01)
            yield 1
            yield 2


class TaskGroupOfAsyncioInGenerator(GeneratorLeftOpen):
    trio = False

    async def rows(self) -> AsyncGenerator[int, None]:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_fail_soon())
            yield 1
            yield 2


class NurseryInGenerator(GeneratorLeftOpen):
    asyncio = False

    async def rows(self) -> AsyncGenerator[int, None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 0.01)
            yield 1
            yield 2


class CollectedGenerator(GeneratorLeftOpen):
    keeps = False


class CollectedTimeoutOfAsyncio(TimeoutOfAsyncioInGenerator):
    keeps = False


class CollectedTaskGroup(TaskGroupInGenerator):
    keeps = False
    # trio closes it as one that is still to be entered: "generator ignored GeneratorExit".
    trio = False


class GeneratorOfPlainPythonLeftOpen(DecimalContext):
    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.kept: list[Any] = []

    def rows(self) -> Iterator[int]:
        with decimal.localcontext(prec=5):
            yield 1
            yield 2

    def leave(self, job: Any) -> None:
        generator = self.rows()
        next(generator)
        self.kept.append(generator)


class ChildTasksLeftRunning(ContextVariables):
    """They go on with the context of their own job alone."""

    trio = threads = False

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.children: list[asyncio.Task[str]] = []
        self.expected: list[str] = []

    async def child(self) -> str:
        await asyncio.sleep(0.01)
        return REQUEST.get()

    def leave(self, job: Any) -> None:
        super().leave(job)
        self.expected.append(f"job {job.id}'s")
        self.children.append(asyncio.get_running_loop().create_task(self.child()))

    def after(self, ends: list[Any]) -> str | None:
        wrong = [child for child in self.children if child.done() and child.result() not in self.expected]
        if wrong or len({child.result() for child in self.children if child.done()}) < len(ends) // 2:
            return f"{wrong} of {len(self.children)}"
        return None


class ThreadLocals(Row):
    """Shared, as by any two tasks of one thread, and by what a thread of the worker runs one after the other."""

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.seen = 0
        LOCAL.__dict__.clear()

    def look(self, job: Any) -> str | None:
        self.seen += hasattr(LOCAL, "job")
        return None

    def leave(self, job: Any) -> None:
        LOCAL.job = job.id

    def after(self, ends: list[Any]) -> str | None:
        return None if self.seen > 0 else "not shared any more: docs/handlers.md says they are"

    def end(self) -> None:
        LOCAL.__dict__.clear()


class SignalHandlers(Row):
    """Shared: they are the process's. The worker itself touches none."""

    threads = False  # Only the main thread may set one.

    def __init__(self, backend: str) -> None:
        super().__init__(backend)
        self.before = signal.getsignal(signal.SIGUSR1)
        self.left: Any = self.before

    def look(self, job: Any) -> str | None:
        found = signal.getsignal(signal.SIGUSR1)
        return None if found is self.left else f"handler {found}"

    def leave(self, job: Any) -> None:
        self.left = self.ignore
        signal.signal(signal.SIGUSR1, self.left)

    @staticmethod
    def ignore(*_: object) -> None:
        """Stand for a handler of the user's."""

    def end(self) -> None:
        signal.signal(signal.SIGUSR1, self.before)


async def _fail_soon() -> None:
    await asyncio.sleep(0.005)
    raise LookupError("a child task's")


ROWS: Rows = {
    kind.__name__: kind
    for kind in (
        ContextVariables,
        DecimalContext,
        DecimalContextLeftOpen,
        ExceptionContext,
        TaskName,
        OwnTask,
        TimerThatCancelsTheTask,
        TaskThatCancelsItself,
        CancelScopeLeftOpen,
        CancelScopeOfTrioLeftOpen,
        GeneratorLeftOpen,
        TimeoutOfAsyncioInGenerator,
        TaskGroupInGenerator,
        TaskGroupOfAsyncioInGenerator,
        NurseryInGenerator,
        CollectedGenerator,
        CollectedTimeoutOfAsyncio,
        CollectedTaskGroup,
        GeneratorOfPlainPythonLeftOpen,
        ChildTasksLeftRunning,
        ThreadLocals,
        SignalHandlers,
    )
}


class Count:
    """Counts the ends of jobs, and tells when all are there."""

    def __init__(self, jobs: int, reached: Callable[[], object]) -> None:
        self.ends: list[Any] = []
        self._jobs = jobs
        self._reached = reached
        self._lock = threading.Lock()

    def __call__(self, notice: Any) -> None:
        with self._lock:
            self.ends.append(notice)
            if len(self.ends) == self._jobs:
                self._reached()


def jobs_at(concurrency: int) -> int:
    """Return how many jobs are needed so that some follow others."""
    return max(20, concurrency + 10)


def judge(row: Row, jobs: int, troubles: list[str], ends: list[Any], counts: dict[str, int], last: list[Any]) -> None:
    assert troubles == []
    failing = row.failure(ends[0].job) is not None
    assert {type(each) for each in ends} == {JobFailed if failing else JobCompleted}
    assert len({each.job.id for each in ends}) == len(ends) == jobs
    assert counts["active"] == counts["waiting"] == 0
    assert row.after(ends) is None
    # The worker lives.
    assert len(last) == 1


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "waiting"])
@pytest.mark.parametrize("concurrency", [1, 50])
@pytest.mark.parametrize(
    ("backend", "kind"),
    [(backend, name) for backend in ("asyncio", "trio") for name, row in ROWS.items() if getattr(row, backend)],
)
# trio says so of each generator that it closes itself.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
def test_on_tasks(server: Server, backend: str, kind: str, concurrency: int, waits: bool) -> None:
    # Not in the event loop of the plugin, which takes what a generator raises at its end for the test's.
    anyio.run(_on_tasks, server, ROWS[kind](backend), concurrency, waits, backend=backend)


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "waiting"])
@pytest.mark.parametrize(
    ("backend", "kind"),
    [(backend, name) for backend in ("asyncio", "trio") for name, row in ROWS.items() if getattr(row, backend)],
)
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
def test_on_tasks_of_a_backend_whose_parts_are_unknown(
    server: Server, backend: str, kind: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job begins in a scope then."""
    monkeypatch.setattr("bullmq_anyio.tasks._KNOWN_SCOPES", False)
    monkeypatch.setattr("bullmq_anyio.tasks._knows_statuses", lambda nursery: False)
    anyio.run(_on_tasks, server, ROWS[kind](backend), 5, waits, backend=backend)


async def _on_tasks(server: Server, row: Row, concurrency: int, waits: bool) -> None:
    queue = f"isolation-{uuid4().hex[:12]}"
    troubles: list[str] = []
    all_over, last_over = anyio.Event(), anyio.Event()
    last: list[Any] = []

    async def process(job: bullmq_anyio.Job[Any]) -> None:
        if job.name == "last":
            last.append(job)
            last_over.set()
            return
        trouble = row.look(job)
        if trouble is not None:
            troubles.append(f"job {job.id} found {trouble}")
        if waits:
            await anyio.sleep(0.001)
        # Nothing is awaited afterwards: what goes off here does not meet its own job.
        await row.leave_async(job)
        row.leave(job)
        error = row.failure(job)
        if error is not None:
            raise error

    REQUEST.set("run's")
    jobs = jobs_at(concurrency)
    count = Count(jobs, all_over.set)
    async with bullmq_anyio.Queue[Any](queue, server.url) as adding:
        await adding.add_bulk([NewJob("job", number) for number in range(jobs)])
        options = WorkerOptions(concurrency=concurrency)
        worker = bullmq_anyio.Worker[Any](queue, process, server.url, options=options)
        worker.on(JobCompleted, lambda notice: None if notice.job.name == "last" else count(notice))
        worker.on(JobFailed, count)
        try:
            with anyio.fail_after(LIMIT_S):
                async with worker:
                    await all_over.wait()
                    # What was left behind goes off meanwhile.
                    await anyio.sleep(0.03)
                    await adding.add("last")
                    await last_over.wait()
        finally:
            row.end()
        judge(row, jobs, troubles, count.ends, await adding.get_job_counts(), last)
        await adding.obliterate(force=True)


@pytest.mark.parametrize("waits", [False, True], ids=["at-once", "waiting"])
@pytest.mark.parametrize("concurrency", [1, 50])
@pytest.mark.parametrize("kind", [name for name, row in ROWS.items() if row.threads])
def test_on_threads(server: Server, kind: str, concurrency: int, waits: bool) -> None:
    row = ROWS[kind]("threads")
    queue = f"isolation-{uuid4().hex[:12]}"
    troubles: list[str] = []
    all_over, last_over = threading.Event(), threading.Event()
    last: list[Any] = []
    pause = threading.Event()

    def process(job: bullmq_sync.Job[Any]) -> None:
        if job.name == "last":
            last.append(job)
            last_over.set()
            return
        trouble = row.look(job)
        if trouble is not None:
            troubles.append(f"job {job.id} found {trouble}")
        row.leave(job)
        if waits:
            pause.wait(0.001)
        error = row.failure(job)
        if error is not None:
            raise error

    def work() -> None:
        REQUEST.set("run's")
        jobs = jobs_at(concurrency)
        count = Count(jobs, all_over.set)
        with bullmq_sync.Queue[Any](queue, server.url) as adding:
            adding.add_bulk([NewJob("job", number) for number in range(jobs)])
            options = WorkerOptions(concurrency=concurrency)
            worker = bullmq_sync.Worker[Any](queue, process, server.url, options=options)
            worker.on(JobCompleted, lambda notice: None if notice.job.name == "last" else count(notice))
            worker.on(JobFailed, count)
            with worker:
                assert all_over.wait(LIMIT_S)
                adding.add("last")
                assert last_over.wait(LIMIT_S)
            judge(row, jobs, troubles, count.ends, adding.get_job_counts(), last)
            adding.obliterate(force=True)

    contextvars.copy_context().run(work)
