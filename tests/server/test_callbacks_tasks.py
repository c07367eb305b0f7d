"""The user's code around the handlers on asyncio and trio: what it raises or sets ends no worker and meets no job."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import anyio.to_thread
import pytest
import redis
import trio
from anyio.lowlevel import checkpoint

import bullmq_anyio.driver
import bullmq_anyio.tasks
from bullmq_anyio import Job, Queue, Worker
from bullmq_anyio.tasks import Handling, job_tasks
from bullmq_protocol import Backoff, JobOptions, NewJob, WorkerOptions
from bullmq_protocol.errors import UsageError
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    Closing,
    Disconnected,
    Drained,
    JobActive,
    JobCompleted,
    JobFailed,
    Paused,
    ReportRefused,
)
from tests.support.seen import Seen
from tests.support.servers import Server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]
REQUEST: ContextVar[str] = ContextVar("REQUEST", default="nobody's")


class Odd(BaseException):
    """No `Exception`."""


def cancelled_future() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    future.result()


async def await_cancelled_future() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


def raising(error: type[BaseException]) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


ODD: dict[str, Callable[[], None]] = {
    **{error.__name__: raising(error) for error in (SystemExit, GeneratorExit, Odd, ValueError, StopIteration)},
    "cancelled": cancelled_future,
}
PAIRS = [
    pytest.param(backend, kind, id=f"{backend}-{kind}")
    for backend in ("asyncio", "trio")
    for kind in ODD
    if backend == "asyncio" or kind != "cancelled"
]


@pytest.fixture
async def queue(server: Server, name: str) -> Any:
    async with Queue[Any](name, server.url) as queue:
        yield queue
        await queue.obliterate(force=True)


async def _process(job: Job[Any]) -> None:
    if job.name == "fails":
        raise LookupError("boom")


async def _three_complete(queue: Queue[Any], worker: Worker[Any], caplog: pytest.LogCaptureFixture, words: str) -> None:
    """Run the worker until it has done three jobs, and one that came later."""
    seen = Seen(worker, JobCompleted)
    await queue.add_bulk([NewJob("n", number) for number in range(3)])
    async with worker:
        await seen.wait(JobCompleted, 3)
        await queue.add("later")
        await seen.wait(JobCompleted, 4)
    assert (await queue.get_job_counts("active", "completed")) == {"active": 0, "completed": 4}
    assert words in caplog.text


@pytest.mark.parametrize("notice", [JobActive, JobCompleted])
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize(("anyio_backend", "kind"), PAIRS)
async def test_whatever_a_callback_raises_is_logged(
    queue: Queue[Any], server: Server, caplog: pytest.LogCaptureFixture, kind: str, is_async: bool, notice: Any
) -> None:
    async def awaiting(_: object) -> None:
        await anyio.sleep(0)
        if kind == "cancelled":
            await await_cancelled_future()
        ODD[kind]()

    worker = Worker(queue.name, _process, server.url)
    worker.on(notice, awaiting if is_async else lambda _: ODD[kind]())
    await _three_complete(queue, worker, caplog, f"a callback for {notice.__name__} raised")


@pytest.mark.parametrize(("anyio_backend", "kind"), PAIRS)
async def test_whatever_a_collector_raises_is_logged(
    queue: Queue[Any], server: Server, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    class Collector:
        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: ODD[kind]()

    worker = Worker(queue.name, _process, server.url, metrics_collector=Collector())  # type: ignore[arg-type]
    await _three_complete(queue, worker, caplog, "raised")
    assert "the metrics collector raised" in caplog.text


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize(("anyio_backend", "kind"), PAIRS)
async def test_whatever_a_strategy_raises_fails_its_job(
    queue: Queue[Any], server: Server, caplog: pytest.LogCaptureFixture, kind: str, is_async: bool
) -> None:
    async def awaiting(*_: object) -> float:
        await anyio.sleep(0)
        if kind == "cancelled":
            await await_cancelled_future()
        ODD[kind]()
        return 0

    def plain(*_: object) -> Any:
        ODD[kind]()

    strategy: Any = awaiting if is_async else plain
    worker = Worker(queue.name, _process, server.url, backoff_strategy=strategy)
    failed = Seen(worker, JobFailed)
    job = await queue.add("fails", 1, JobOptions(attempts=3, backoff=Backoff(type="mine")))
    await _three_complete(queue, worker, caplog, "")
    assert "the backoff strategy" in failed.of(JobFailed)[0].reason
    assert await job.get_state() == "failed"


async def test_a_strategys_cancellation_hits_nobody_else(queue: Queue[Any], server: Server) -> None:
    """A strategy has a task of its own: what cancels the handler's late does not reach it."""

    async def process(job: Job[Any]) -> None:
        if job.attempts_made == 0:
            if asyncio_task := _current_asyncio_task():
                asyncio.get_running_loop().call_soon(asyncio_task.cancel)
            raise LookupError

    async def strategy(*_: object) -> float:
        await anyio.sleep(0.01)
        return 0

    worker = Worker(queue.name, process, server.url, backoff_strategy=strategy)
    seen = Seen(worker, JobCompleted, JobFailed)
    await queue.add("n", 1, JobOptions(attempts=2, backoff=Backoff(type="mine")))
    async with worker:
        await seen.wait(JobCompleted)
    assert [notice.reason for notice in seen.of(JobFailed)] == ["LookupError"]


def _current_asyncio_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


@pytest.mark.parametrize("concurrency", [1, 50])
async def test_what_callbacks_set_reaches_no_job_and_no_later_callback(
    queue: Queue[Any], server: Server, concurrency: int
) -> None:
    found: list[str] = []
    rests: list[str] = []

    def look_and_set(where: str) -> None:
        found.append(REQUEST.get())
        REQUEST.set(where)

    async def awaiting(_: object) -> None:
        look_and_set("async callback")

    def returning(_: object) -> Awaitable[None]:
        look_and_set("callback")

        async def rest() -> None:
            # It goes on with what its own first part has set.
            rests.append(REQUEST.get())

        return rest()

    async def process(job: Job[Any]) -> None:
        look_and_set("job")
        if job.attempts_made == 0:
            raise LookupError

    def strategy(*_: object) -> float:
        look_and_set("strategy")
        return 0

    class Collector:
        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: REQUEST.set("collector")

    REQUEST.set("that of who made it")
    worker = Worker(
        queue.name,
        process,
        server.url,
        options=WorkerOptions(concurrency=concurrency),
        backoff_strategy=strategy,
        metrics_collector=Collector(),  # type: ignore[arg-type]
    )
    seen = Seen(worker, JobCompleted)
    for notice in (JobActive, JobCompleted, JobFailed):
        worker.on(notice, lambda _: look_and_set("plain callback"))
        worker.on(notice, awaiting)
        worker.on(notice, returning)
    options = JobOptions(attempts=2, backoff=Backoff(type="mine"))
    await queue.add_bulk([NewJob("n", number, options) for number in range(20)])
    REQUEST.set("run's")
    async with worker:
        await seen.wait(JobCompleted, 20)
    assert set(rests) == {"callback"}
    assert set(found) == {"run's"}
    assert len(found) > 20 * 10
    assert REQUEST.get() == "run's"


@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("place", ["callback", "strategy", "handler"])
async def test_a_nursery_left_open_is_ended_and_taken_for_closed(
    queue: Queue[Any], server: Server, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    """By a generator that is kept: trio would end the worker for it, and its tasks would go on for ever."""
    ended: list[str] = []
    kept: list[Any] = []
    nurseries: list[trio.Nursery] = []

    async def hang() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("task")

    async def rows() -> AsyncGenerator[int, None]:
        async with trio.open_nursery() as nursery:
            nurseries.append(nursery)
            nursery.start_soon(hang)
            yield 1

    async def leave_open(where: str) -> None:
        if where == place:
            kept.append(rows())
            await anext(kept[-1])
            await anyio.sleep(0)

    async def process(job: Job[Any]) -> None:
        await leave_open("handler")
        if job.attempts_made == 0:
            raise LookupError

    async def strategy(*_: object) -> float:
        await leave_open("strategy")
        return 0

    worker = Worker(queue.name, process, server.url, backoff_strategy=strategy)
    seen = Seen(worker, JobCompleted)
    worker.on(JobActive, lambda _: leave_open("callback"))
    options = JobOptions(attempts=2, backoff=Backoff(type="mine"))
    await queue.add_bulk([NewJob("n", number, options) for number in range(3)])
    async with worker:
        await seen.wait(JobCompleted, 3)
        with anyio.fail_after(30):
            while len(ended) < len(kept):
                await anyio.sleep(0.005)
    assert len(kept) == (3 if place == "strategy" else 6)
    assert len(ended) == len(kept)
    for nursery in nurseries:
        with pytest.raises(RuntimeError, match="closed"):
            nursery.start_soon(hang)
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_handler_is_cancelled_whatever_scopes_it_is_in(queue: Queue[Any], server: Server) -> None:
    ended: list[str] = []
    waiting = anyio.Semaphore(0)

    async def process(job: Job[Any]) -> None:
        try:
            if job.name == "scoped":
                with anyio.CancelScope(), anyio.CancelScope():
                    waiting.release()
                    await anyio.sleep_forever()
            if job.name == "left":
                with anyio.CancelScope():
                    await anyio.sleep(0)
            waiting.release()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            ended.append(job.name)
            raise

    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=6))
    await queue.add_bulk([NewJob(kind) for kind in ("left", "plain", "scoped") * 2])
    with anyio.fail_after(30):
        async with worker:
            for _ in range(6):
                await waiting.acquire()
            await worker.aclose(force=True)
    assert sorted(ended) == ["left", "left", "plain", "plain", "scoped", "scoped"]
    counts = await queue.get_job_counts("waiting", "active")
    assert (counts["waiting"], counts["active"]) == (6, 0)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_ctrl_c_in_a_callback_ends_the_worker_with_the_jobs_given_back(
    queue: Queue[Any], server: Server, is_async: bool
) -> None:
    await queue.add_bulk([NewJob("n", number) for number in range(3)])

    async def hang(_: Job[Any]) -> None:
        await anyio.sleep_forever()

    def plain(_: object) -> None:
        raise KeyboardInterrupt

    async def awaiting(_: object) -> None:
        await anyio.sleep(0)
        raise KeyboardInterrupt

    worker = Worker(queue.name, hang, server.url, options=WorkerOptions(concurrency=3))
    worker.on(JobActive, awaiting if is_async else plain)
    with pytest.raises(KeyboardInterrupt), anyio.fail_after(30):
        await worker.run()
    counts = await queue.get_job_counts("waiting", "active", "failed")
    assert (counts["waiting"], counts["active"], counts["failed"]) == (3, 0, 0)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_ctrl_c_in_a_strategy_ends_the_worker_with_the_jobs_given_back(
    queue: Queue[Any], server: Server, is_async: bool
) -> None:
    """No attempt is counted of the job whose strategy it met."""
    options = JobOptions(attempts=3, backoff=Backoff("mine", 1))
    await queue.add_bulk([NewJob("fails", {}, options), NewJob("hangs"), NewJob("hangs")])

    async def process(job: Job[Any]) -> None:
        if job.name == "fails":
            raise LookupError
        await anyio.sleep_forever()

    def plain(*_: object) -> float:
        raise KeyboardInterrupt

    async def awaiting(*_: object) -> float:
        await anyio.sleep(0)
        raise KeyboardInterrupt

    strategy: Any = awaiting if is_async else plain
    worker = Worker(queue.name, process, server.url, backoff_strategy=strategy, options=WorkerOptions(concurrency=3))
    with pytest.raises(KeyboardInterrupt), anyio.fail_after(30):
        await worker.run()
    counts = await queue.get_job_counts("waiting", "active", "failed", "delayed")
    assert counts == {"waiting": 3, "active": 0, "failed": 0, "delayed": 0, "paused": 0}
    found = await queue.get_job("1")
    assert found is not None
    assert (found.name, found.attempts_made) == ("fails", 0)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_job_cancelled_before_its_task_has_begun_is_heard_of(queue: Queue[Any], server: Server) -> None:
    """Who cancels all tasks of the program may meet one that has not run yet."""
    victims: list[str] = []

    def cancel_new_jobs(_: object) -> None:
        def strike() -> None:
            for task in asyncio.all_tasks():
                if task.get_name().startswith("bullmq job") and not victims:
                    victims.append(task.get_name())
                    task.cancel()

        asyncio.get_running_loop().call_soon(strike)
        asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(strike))

    worker = Worker(queue.name, _process, server.url, options=WorkerOptions(concurrency=4))
    seen = Seen(worker, JobCompleted, JobFailed)
    worker.on(JobActive, cancel_new_jobs)
    await queue.add_bulk([NewJob("n", number) for number in range(8)])
    async with worker:
        await seen.until(lambda: len(seen.all) == 8)
    counts = await queue.get_job_counts("active", "waiting")
    assert (counts["active"], counts["waiting"]) == (0, 0)
    # From Python 3.12 on a task begins as it is made.
    assert len(victims) == (sys.version_info < (3, 12))


async def test_a_job_cancelled_before_it_began_is_only_reported() -> None:
    """No scope is put around a task that has not taken its first step: it looks, and ends."""
    seen: list[tuple[bool, object]] = []

    async def attend(handling: Handling) -> None:
        handling.begun = True
        if handling.task is None:
            jobs.note(handling)
        await anyio.sleep(0)
        seen.append((handling.cancelled, handling.scope))
        jobs.left(handling)

    async with anyio.create_task_group() as tasks:
        jobs = job_tasks(attend, copy_context(), tasks)
        handling = Handling(1, Job.__new__(Job))
        jobs.start(handling, "job")
        # From Python 3.12 on a task of asyncio's begins as it is made.
        early = not handling.begun
        if early:
            jobs.cancel(handling)
        assert await jobs.begun([handling]) == []
        with anyio.fail_after(10):
            while not seen:
                await anyio.sleep(0)
    assert seen == [(early, None)]


# --- what it leaves behind ------------------------------------------------------------------------------------------


async def cancel_at_once(_: list[Any]) -> None:
    task = _current_asyncio_task()
    assert task is not None
    task.cancel()


async def cancel_later(_: list[Any]) -> None:
    task = _current_asyncio_task()
    assert task is not None
    for delay in (0, 0.001, 0.003):
        asyncio.get_running_loop().call_later(delay, task.cancel)


async def leave_scope(kept: list[Any]) -> None:
    kept.append(anyio.CancelScope(deadline=anyio.current_time() + 0.005))
    kept[-1].__enter__()


async def leave_two_scopes(kept: list[Any]) -> None:
    await leave_scope(kept)
    await leave_scope(kept)


async def leave_cancelled_scope(kept: list[Any]) -> None:
    await leave_scope(kept)
    kept[-1].cancel()


async def leave_group(kept: list[Any]) -> None:
    kept.append(anyio.create_task_group())
    await kept[-1].__aenter__()
    kept[-1].start_soon(anyio.sleep, 0.01)


Leave = Callable[[list[Any]], Awaitable[None]]
LEFT: dict[str, Leave] = {
    leave.__name__: leave
    for leave in (cancel_at_once, cancel_later, leave_scope, leave_two_scopes, leave_cancelled_scope, leave_group)
}
AT_ONCE = [name for name in LEFT if name != "leave_group"]
LEFT_BY = [
    pytest.param(backend, where, name, id=f"{backend}-{where}-{name}")
    for backend in ("asyncio", "trio")
    for where in ("callback", "async callback", "strategy", "async strategy", "collector")
    for name in (LEFT if where.startswith("async") else AT_ONCE)
    if backend == "asyncio" or not name.startswith("cancel_")
]


def at_once(leave: Leave, kept: list[Any]) -> None:
    """Run what awaits nothing."""
    with pytest.raises(StopIteration):
        leave(kept).__await__().__next__()


@pytest.mark.parametrize("concurrency", [1, 50])
@pytest.mark.parametrize(("anyio_backend", "where", "what"), LEFT_BY)
async def test_what_code_around_the_handlers_leaves_behind_meets_nobody(
    queue: Queue[Any], server: Server, where: str, what: str, concurrency: int
) -> None:
    kept: list[Any] = []
    leave = LEFT[what]
    again = "strategy" in where

    async def process(job: Job[Any]) -> None:
        if job.data % 2:
            await anyio.sleep(0.001)
        if again and job.attempts_made == 0:
            raise LookupError

    async def awaiting(*_: object) -> float:
        await leave(kept)
        return 1

    def plain(*_: object) -> float | None:
        at_once(leave, kept)
        return 1 if again else None

    class Collector:
        def __getattr__(self, name: str) -> Any:
            return plain

    code: Any = awaiting if where.startswith("async") else plain
    more: dict[str, Any] = {}
    if again:
        more["backoff_strategy"] = code
    if where == "collector":
        more["metrics_collector"] = Collector()
    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=concurrency), **more)
    if "callback" in where:
        worker.on(JobCompleted, code)
        worker.on(JobActive, code)
    seen = Seen(worker, JobCompleted, JobFailed, ReportRefused)
    options = JobOptions(attempts=2, backoff=Backoff(type="mine"))
    # At 50 as well, some jobs follow others.
    jobs = 15 if concurrency == 1 else 60
    await queue.add_bulk([NewJob("n", number, options) for number in range(jobs)])
    running = True

    async def run() -> None:
        nonlocal running
        await worker.run()
        running = False

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await seen.wait(JobCompleted, jobs)
        # What was left behind goes off meanwhile.
        await anyio.sleep(0.03)
        await queue.add("later", 0, options)
        await seen.wait(JobCompleted, jobs + 1)
        assert running
        await worker.aclose()
    strangers = [notice for notice in seen.all if not isinstance(notice, JobCompleted | JobFailed)]
    assert strangers == []
    assert len(seen.of(JobFailed)) == (jobs + 1 if again else 0)
    assert await queue.get_job_counts("active", "completed") == {"active": 0, "completed": jobs + 1}


@pytest.mark.parametrize("where", ["itself", "in a task"])
@pytest.mark.parametrize("kind", [JobActive, JobCompleted, Drained, Paused, Disconnected, Closing, ClosedNotice])
@pytest.mark.parametrize("what", ["close", "pause"])
async def test_a_callback_that_asks_its_own_worker_is_not_waited_for_by_itself(
    queue: Queue[Any], server: Server, what: str, kind: type[Any], where: str
) -> None:
    """The shutdown time is far longer than the test's."""
    begun, told = anyio.Event(), anyio.Event()

    async def process(_: Job[Any]) -> None:
        begun.set()
        if kind is Disconnected:
            await told.wait()

    async def ask(_: object) -> None:
        call = worker.aclose if what == "close" else worker.pause
        if where == "itself":
            await call()
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
        told.set()

    await queue.add("a")
    worker = Worker(queue.name, process, server.url, options=WorkerOptions(shutdown_timeout=600_000))
    worker.on(kind, ask)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await begun.wait()
            if kind is Disconnected:
                await anyio.to_thread.run_sync(_kill_clients, server.url)
            elif kind is Paused:
                await worker.pause()
            elif kind in (Closing, ClosedNotice):
                await worker.aclose()
            await told.wait()
            await worker.aclose()
    assert not worker.is_running


async def test_the_worker_waits_for_callbacks_at_its_end(queue: Queue[Any], server: Server) -> None:
    ended: list[str] = []

    async def slow(_: object) -> None:
        await anyio.sleep(0.05)
        ended.append("first")
        await anyio.sleep(0.05)
        ended.append("last")

    worker = Worker(queue.name, _process, server.url)
    seen = Seen(worker, JobCompleted)
    worker.on(JobCompleted, slow)
    await queue.add("n")
    async with worker:
        await seen.wait(JobCompleted)
    assert ended == ["first", "last"]


@pytest.mark.parametrize("how", ["after the shutdown time", "by force"])
@pytest.mark.parametrize("what", ["callback", "strategy"])
async def test_what_never_ends_beside_the_handlers_is_cancelled(
    queue: Queue[Any], server: Server, caplog: pytest.LogCaptureFixture, what: str, how: str
) -> None:
    """A close waits for callbacks and strategies no longer than for handlers, and names them."""
    ended: list[str] = []
    hanging = anyio.Event()

    async def hang(*_: object) -> float:
        hanging.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(what)

    options = WorkerOptions(shutdown_timeout=60_000 if how == "by force" else 20)
    worker = Worker(queue.name, _process, server.url, options=options, backoff_strategy=hang)
    if what == "callback":
        worker.on(JobCompleted, hang)
        await queue.add("n")
    else:
        await queue.add("fails", options=JobOptions(attempts=3, backoff=Backoff(type="mine")))
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await hanging.wait()
            await worker.aclose(force=how == "by force")
    assert ended == [what]
    assert "cancels what has not ended: bullmq" in caplog.text
    assert (await queue.get_job_counts("active"))["active"] == 0


async def test_a_close_by_force_cuts_short_one_that_waits(queue: Queue[Any], server: Server) -> None:
    """All that is left is an async callback, for which the other close would wait until the shutdown time is over."""
    ended: list[bool] = []
    hanging, closed = anyio.Event(), anyio.Event()

    async def hang(_: object) -> None:
        hanging.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    worker = Worker(queue.name, _process, server.url, options=WorkerOptions(shutdown_timeout=600_000))
    worker.on(JobCompleted, hang)
    worker.on(ClosedNotice, lambda _: closed.set())
    await queue.add("n")
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await hanging.wait()
            tasks.start_soon(worker.aclose)
            await closed.wait()
            for _ in range(20):
                await checkpoint()
            assert ended == []
            await worker.aclose(force=True)
    assert ended == [True]


async def test_a_cancelled_run_ends_its_callbacks(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bullmq_anyio.driver, "FORCED_STOP_S", 0.5)
    ended: list[str] = []
    hanging = anyio.Event()

    async def hang(_: object) -> None:
        hanging.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("callback")

    async def process(_: Job[Any]) -> None:
        return None

    worker = Worker(queue.name, process, server.url)
    worker.on(JobCompleted, hang)
    await queue.add("n")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await hanging.wait()
        tasks.cancel_scope.cancel()
    assert ended == ["callback"]


class Dumb(Exception):
    """Has no words but raises."""

    def __str__(self) -> str:
        raise SystemExit("no words")

    __repr__ = __str__


async def test_a_strategys_exception_without_words_fails_its_job(
    queue: Queue[Any], server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def strategy(*_: object) -> float:
        raise Dumb

    worker = Worker(queue.name, _process, server.url, backoff_strategy=strategy)
    failed = Seen(worker, JobFailed)
    await queue.add("fails", 1, JobOptions(attempts=3, backoff=Backoff(type="mine")))
    await _three_complete(queue, worker, caplog, "the backoff strategy failed")
    assert failed.of(JobFailed)[0].reason == "the backoff strategy failed: Dumb"


async def test_a_job_that_the_worker_cancelled_leaves_nothing(queue: Queue[Any], server: Server) -> None:
    class Request:
        """What a job keeps in its context."""

    held: ContextVar[Request] = ContextVar("held")
    known: list[weakref.ref[Request]] = []
    begun, ended = anyio.Event(), anyio.Event()

    async def process(_: Job[Any]) -> None:
        request = Request()
        known.append(weakref.ref(request))
        held.set(request)
        begun.set()
        try:
            with anyio.CancelScope():
                await anyio.Event().wait()
        finally:
            ended.set()

    options = WorkerOptions(lock_duration=1000, lock_renew_time=100, cancel_on_lost_lock=True)
    job = await queue.add("n")
    async with Worker(queue.name, process, server.url, options=options):
        await begun.wait()
        await anyio.to_thread.run_sync(_delete, server.url, queue.keys.lock(job.id))
        await ended.wait()
        with anyio.fail_after(10):
            while known[0]() is not None:
                await anyio.sleep(0.01)
                gc.collect()
    assert len(known) == 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("how", ["no scope", "a scope", "a scope left before", "a scope left open"])
def test_the_scope_of_a_cancelled_job_ends_as_any_other(server: Server, name: str, backend: str, how: str) -> None:
    """It knows the task no more, nor do scopes that the handler left open know it: else anyio would cancel for ever."""
    kept: list[Any] = []

    async def process(_: Job[Any]) -> None:
        if how == "a scope left before":
            with anyio.CancelScope():
                await checkpoint()
        if how == "a scope left open":
            kept.append((anyio.CancelScope if backend == "asyncio" else trio.CancelScope)())
            kept[0].__enter__()
        begun.set()
        if how == "a scope":
            with anyio.CancelScope():
                await anyio.Event().wait()
        else:
            await anyio.Event().wait()

    async def main() -> None:
        nonlocal begun
        begun = anyio.Event()
        async with Queue[Any](name, server.url) as queue:
            await queue.add("n")
            worker = Worker[Any](name, process, server.url)
            async with worker:
                await begun.wait()
                [handling] = worker._driver._dispatch.handling.values()
                await worker.aclose(force=True)
                scope: Any = handling.scope
            assert await queue.get_state("1") == "waiting"
            await queue.obliterate(force=True)
        if backend == "trio":
            assert scope._cancel_status.parent is None
            return
        assert (scope._host_task, scope._tasks, scope._child_scopes) == (None, set(), set())
        assert [each._parent_scope for each in kept] == [None] * len(kept)
        state = bullmq_anyio.tasks._backend._task_states.get(handling.task)
        assert state is None or state.cancel_scope is not scope

    begun: Any = None
    anyio.run(main, backend=backend)


def _kill_clients(url: str) -> None:
    client: Any = redis.Redis
    with client.from_url(url) as connected:
        connected.client_kill_filter(_type="normal", skipme=True)


def _delete(url: str, key: str) -> None:
    client: Any = redis.Redis
    with client.from_url(url) as connected:
        connected.delete(key)


async def test_run_is_refused_where_the_worker_was_entered(queue: Queue[Any], server: Server) -> None:
    worker = Worker(queue.name, _process, server.url)
    seen = Seen(worker, JobCompleted)
    async with worker:
        with pytest.raises(UsageError, match="already running"):
            await worker.run()
        await queue.add("n")
        await seen.wait(JobCompleted)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_job_of_an_eager_task_factory_knows_its_name(queue: Queue[Any], server: Server) -> None:
    names: list[tuple[str, str]] = []

    async def process(job: Job[Any]) -> None:
        task = _current_asyncio_task()
        assert task is not None
        names.append((task.get_name(), f"bullmq job {job.id} of {job.queue_name}"))

    loop = asyncio.get_running_loop()
    # From Python 3.12 on; before, it is as with none.
    factory: Any = getattr(asyncio, "eager_task_factory", None)
    worker = Worker(queue.name, process, server.url)
    seen = Seen(worker, JobCompleted)
    await queue.add_bulk([NewJob("n", number) for number in range(5)])
    loop.set_task_factory(factory)
    try:
        async with worker:
            await seen.wait(JobCompleted, 5)
    finally:
        loop.set_task_factory(None)
    assert len(names) == 5
    assert all(found == expected for found, expected in names)
