"""What only tasks have: cancelling `run`, handlers that are cancelled or cancel, what is left behind."""

import asyncio
import contextlib
import gc
import random
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import pytest
import redis
from anyio.lowlevel import checkpoint

import bullmq_anyio.driving.timer
import bullmq_sync
from bullmq_anyio import Job, Queue, Worker
from bullmq_anyio.net.connection import Connection
from bullmq_protocol import JobOptions, NewJob, WorkerOptions
from bullmq_protocol.errors import AuthenticationFailed, UsageError
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.notices import (
    Closing,
    Drained,
    HandlerAbandoned,
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
)
from tests.support import servers
from tests.support.cut_proxy import CutProxy
from tests.support.open_sockets import sockets
from tests.support.servers import Server

pytestmark = [pytest.mark.anyio, pytest.mark.any_server, pytest.mark.usefixtures("nothing_left")]


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    """Compare tasks, threads and sockets."""
    before = sockets()
    threads = _threads()
    yield
    assert _threads() <= threads
    with anyio.fail_after(30):
        while not sockets() <= before:
            await anyio.sleep(0.001)
    assert [task.name for task in anyio.get_running_tasks() if "bullmq" in str(task.name)] == []
    # The worker's own tasks are in no list.
    unlisted = [each for each in gc.get_objects() if issubclass(type(each), asyncio.Task)]
    assert [each.get_name() for each in unlisted if not each.done() and "bullmq" in each.get_name()] == []


def _threads() -> set[threading.Thread]:
    # The test runner needs one of trio's.
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


@pytest.fixture
async def queue(server: Server) -> AsyncIterator[Queue[Any]]:
    queue: Queue[Any] = Queue(f"tasks-{uuid4().hex[:12]}", server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


@pytest.fixture(params=["when-cancelled", "from-the-start"])
def scopes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the scope of a job as ever, and as where the parts of anyio and trio are unknown."""
    if request.param == "from-the-start":
        monkeypatch.setattr("bullmq_anyio.tasks._KNOWN_SCOPES", False)
        monkeypatch.setattr("bullmq_anyio.tasks._knows_statuses", lambda nursery: False)


async def _until(holds: Callable[[], Any]) -> None:
    with anyio.fail_after(30):
        while not holds():
            await anyio.sleep(0.001)


@pytest.mark.usefixtures("scopes")
async def test_cancelling_run_gives_the_jobs_back(queue: Queue[Any], server: Server) -> None:
    started: list[str] = []
    cancelled: list[str] = []

    async def hang(job: Job[Any]) -> None:
        started.append(job.id)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(job.id)
            raise

    jobs = await queue.add_bulk([NewJob("hang") for _ in range(3)])
    worker = Worker(queue.name, hang, server.url, options=WorkerOptions(concurrency=3))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await _until(lambda: len(started) == 3)
        tasks.cancel_scope.cancel()
    assert sorted(cancelled) == sorted(job.id for job in jobs)
    assert worker.is_running is False
    counts = await queue.get_job_counts("active", "waiting")
    assert counts == {"active": 0, "waiting": 3, "paused": 0}
    for job in jobs:
        await job.refresh()
        assert job.attempts_made == 0

    done: list[str] = []

    async def note(job: Job[Any]) -> None:
        done.append(job.id)

    async with Worker(queue.name, note, server.url):
        await _until(lambda: len(done) == 3)


@pytest.mark.usefixtures("scopes")
async def test_cancelled_after_any_number_of_steps(queue: Queue[Any], server: Server) -> None:
    """Cancel `run` after 1, 2, 3, ... turns of the event loop: no job is lost, and none stays active."""
    runs: dict[str, int] = {}

    async def count(job: Job[Any]) -> None:
        await checkpoint()
        runs[job.id] = runs.get(job.id, 0) + 1

    jobs = await queue.add_bulk([NewJob("count") for _ in range(40)])
    steps = 0
    while (await queue.get_job_counts("completed"))["completed"] < len(jobs):
        steps += 1 + steps // 15
        worker = Worker(queue.name, count, server.url, options=WorkerOptions(concurrency=5))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            for _ in range(steps):
                await checkpoint()
            tasks.cancel_scope.cancel()
        counts = await queue.get_job_counts("active", "wait", "completed")
        assert counts["active"] == 0
        assert counts["wait"] + counts["completed"] == len(jobs)
    assert set(runs) == {job.id for job in jobs}


@pytest.mark.usefixtures("scopes")
async def test_graceful_close_cancels_handlers_after_the_shutdown_time(queue: Queue[Any], server: Server) -> None:
    started = anyio.Event()
    freed = anyio.Event()

    async def stubborn(job: Job[Any]) -> str:
        started.set()
        with anyio.CancelScope(shield=True):
            await freed.wait()
        return "too late"

    job = await queue.add("stubborn")
    worker = Worker(queue.name, stubborn, server.url, options=WorkerOptions(shutdown_timeout=50))
    moved: list[JobMoved] = []
    abandoned: list[HandlerAbandoned] = []
    worker.on(JobMoved, moved.append)
    worker.on(HandlerAbandoned, abandoned.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await started.wait()
        tasks.start_soon(worker.aclose)
        await _until(lambda: moved)
        # The job is free although its handler will not end.
        assert await job.get_state() == "waiting"
        assert worker.is_running is True
        freed.set()
    assert [notice.how for notice in moved] == ["given-back"]
    assert len(abandoned) == 1
    assert worker.is_running is False
    await job.refresh()
    assert (job.returnvalue, job.attempts_made) == (None, 0)


async def test_a_close_waits_for_a_handler_though_callbacks_end_meanwhile(queue: Queue[Any], server: Server) -> None:
    started, reported, over, leave = anyio.Event(), anyio.Event(), anyio.Event(), anyio.Event()
    ended: list[str] = []

    async def stubborn(_: Job[Any]) -> None:
        started.set()
        with anyio.CancelScope(shield=True):
            await leave.wait()
        ended.append("handler")

    async def tell(_: Closing) -> None:
        reported.set()
        await over.wait()

    await queue.add("a")
    worker = Worker(queue.name, stubborn, server.url)
    worker.on(Closing, tell)

    async def run() -> None:
        await worker.run()
        ended.append("worker")

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await started.wait()
            tasks.start_soon(worker.aclose, True)
            await reported.wait()
            while worker.snapshot().state != "stopped":
                await checkpoint()
            for _ in range(100):
                await checkpoint()
            over.set()
            with anyio.move_on_after(0.2):
                while not ended:
                    await anyio.sleep(0.01)
            assert ended == []
            leave.set()
    assert ended == ["handler", "worker"]


async def test_handler_that_ignores_its_cancellation_is_reported(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bullmq_anyio.driving.timer, "FORCED_STOP_S", 0.01)
    started = anyio.Event()

    def reported() -> bool:
        return "still waits for 1 handlers" in caplog.text

    async def stubborn(_: Job[Any]) -> None:
        started.set()
        with anyio.CancelScope(shield=True):
            await _until(reported)

    await queue.add("stubborn")
    worker = Worker(queue.name, stubborn, server.url, options=WorkerOptions(shutdown_timeout=0))
    async with worker:
        await started.wait()
    assert reported()


@pytest.mark.parametrize("processor", [lambda _: None, lambda _: 7, repr], ids=["none", "number", "text"])
async def test_processor_that_is_not_async_is_the_programs_fault(
    queue: Queue[Any], server: Server, processor: Any
) -> None:
    jobs = [await queue.add("a", attempts) for attempts in range(3)]
    worker = Worker(queue.name, processor, server.url, options=WorkerOptions(concurrency=2))
    with pytest.raises(UsageError, match="must be an async function"):
        await worker.run()
    # No job pays for it.
    assert {await job.get_state() for job in jobs} == {"waiting"}
    for job in jobs:
        await job.refresh()
    assert {(job.attempts_made, job.failed_reason) for job in jobs} == {(0, None)}


async def test_another_threads_event_loop_may_not_touch_it(queue: Queue[Any], server: Server) -> None:
    async def process(_: Job[Any]) -> None:
        pass

    worker = Worker(queue.name, process, server.url)

    async def touch() -> int:
        refused = 0
        for call in (worker.aclose, worker.pause):
            with pytest.raises(UsageError, match="event loop of another thread"):
                await call()
            refused += 1
        with pytest.raises(UsageError, match="event loop of another thread"):
            worker.resume()
        with pytest.raises(UsageError, match="event loop of another thread"):
            worker.concurrency = 3
        return refused

    active: list[JobCompleted] = []
    worker.on(JobCompleted, active.append)
    async with worker:
        await queue.add("a")
        await _until(lambda: active)
        # A thread of the test's own: anyio's would stay.
        refused: list[int] = []
        thread = threading.Thread(target=lambda: refused.append(anyio.run(touch)))
        thread.start()
        await _until(lambda: not thread.is_alive())
        assert refused == [2]
        assert worker.is_running


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancellation_that_is_not_ours_is_a_failure(
    queue: Queue[Any], server: Server, anyio_backend: Any
) -> None:
    async def meet(job: Job[Any]) -> str:
        if job.attempts_made == 0:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        return "second"

    job = await queue.add("meet", options=JobOptions(attempts=2))
    worker = Worker(queue.name, meet, server.url)
    failed: list[JobFailed] = []
    completed: list[JobCompleted] = []
    worker.on(JobFailed, failed.append)
    worker.on(JobCompleted, completed.append)
    async with worker:
        await _until(lambda: completed)
    assert [notice.reason for notice in failed] == ["CancelledError"]
    await job.refresh()
    assert job.returnvalue == "second"


@pytest.mark.usefixtures("scopes")
async def test_handlers_may_use_time_limits_and_tasks_of_their_own(queue: Queue[Any], server: Server) -> None:
    async def busy(job: Job[Any]) -> list[Any]:
        found: list[Any] = []
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep_forever()
        found.append(scope.cancelled_caught)
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(job.log, f"row {number}")
        found.append(await job.log("last"))
        return found

    job = await queue.add("busy")
    completed: list[JobCompleted] = []
    worker = Worker(queue.name, busy, server.url)
    worker.on(JobCompleted, completed.append)
    async with worker:
        await _until(lambda: completed)
    await job.refresh()
    assert job.returnvalue == [True, 4]


async def test_error_in_the_body_ends_the_worker_in_good_order(queue: Queue[Any], server: Server) -> None:
    async def slow(job: Job[Any]) -> str:
        started.set()
        await anyio.sleep(0.05)
        return "done"

    started = anyio.Event()
    job = await queue.add("slow")

    async def body() -> None:
        async with Worker(queue.name, slow, server.url):
            await started.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await body()
    assert await job.get_state() == "completed"


async def test_error_of_run_ends_the_body() -> None:
    async def never(job: Job[Any]) -> None:
        """Nothing is fetched."""

    with servers.start(config=("--requirepass", "secret")) as server, pytest.raises(AuthenticationFailed):
        async with Worker("guarded", never, server.url):
            await anyio.sleep_forever()


async def test_cancelling_run_while_the_server_is_gone(server: Server) -> None:
    async def hang(job: Job[Any]) -> None:
        started.set()
        await anyio.sleep_forever()

    started = anyio.Event()
    with servers.start() as own:
        queue: Queue[Any] = Queue("gone", own.url)
        await queue.add("hang")
        await queue.aclose()
        worker = Worker("gone", hang, own.url)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run)
                await started.wait()
                own.kill()
                tasks.cancel_scope.cancel()
    assert worker.is_running is False


async def test_callbacks_that_take_their_time_are_waited_for(queue: Queue[Any], server: Server) -> None:
    seen: list[str] = []

    async def note(notice: JobCompleted) -> None:
        await anyio.sleep(0.05)
        seen.append(notice.job.id)

    async def quick(job: Job[Any]) -> None:
        done.set()

    done = anyio.Event()
    job = await queue.add("quick")
    worker = Worker(queue.name, quick, server.url)
    worker.on(JobCompleted, note)
    async with worker:
        await done.wait()
    assert seen == [job.id]


async def test_close_from_every_side(queue: Queue[Any], server: Server) -> None:
    """From several tasks at once, twice, and before `run` has begun to work."""

    async def never(job: Job[Any]) -> None:
        """Nothing is added."""

    for steps in range(0, 60, 3):
        worker = Worker(queue.name, never, server.url)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            for _ in range(steps):
                await checkpoint()
            for force in (False, True, False):
                tasks.start_soon(partial(worker.aclose, force=force))
        assert worker.is_running is False
        await worker.aclose()
        # It says so if it had begun before the close.
        with contextlib.suppress(UsageError):
            await worker.run()
        assert worker.is_running is False


async def test_an_interrupt_in_a_handler_gives_the_jobs_back(queue: Queue[Any], server: Server) -> None:
    """trio raises KeyboardInterrupt in whatever runs: that is no failure of the job."""
    await queue.add_bulk([NewJob("n", {"first": True}), NewJob("n", {"first": False})])
    both = anyio.Event()

    async def process(job: Job[Any]) -> None:
        if job.data["first"]:
            await both.wait()
            raise KeyboardInterrupt
        both.set()
        await anyio.sleep_forever()

    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=2))
    with pytest.raises(KeyboardInterrupt):
        await worker.run()
    counts = await queue.get_job_counts("waiting", "active", "failed")
    assert (counts["waiting"], counts["active"], counts["failed"]) == (2, 0, 0)


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_an_interrupt_between_handlers_gives_the_jobs_back(queue: Queue[Any], server: Server) -> None:
    """Raised here by a callback. (asyncio turns Ctrl-C into a cancellation of `run`.)"""
    await queue.add_bulk([NewJob("n", {}), NewJob("n", {})])
    active: list[JobActive] = []

    async def process(_: Job[Any]) -> None:
        await anyio.sleep_forever()

    def interrupt(notice: JobActive) -> None:
        # The second one: the first job's handler may or may not have begun.
        active.append(notice)
        if len(active) == 2:
            raise KeyboardInterrupt

    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=2))
    worker.on(JobActive, interrupt)
    with pytest.raises(KeyboardInterrupt):
        await worker.run()
    counts = await queue.get_job_counts("waiting", "active", "failed")
    assert (counts["waiting"], counts["active"], counts["failed"]) == (2, 0, 0)


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()], ids=lambda each: type(each).__name__)
async def test_what_is_no_exception_fails_its_job_and_no_other(
    queue: Queue[Any], server: Server, error: BaseException
) -> None:
    other = anyio.Event()
    completed = anyio.Event()

    async def process(job: Job[Any]) -> None:
        if job.data == "odd":
            raise error
        await other.wait()

    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=2))
    worker.on(JobFailed, lambda _: other.set())
    worker.on(JobCompleted, lambda _: completed.set())
    await queue.add_bulk([NewJob("n", "odd"), NewJob("n", "good")])
    async with worker:
        with anyio.fail_after(30):
            await completed.wait()
    counts = await queue.get_job_counts("active", "completed", "failed")
    assert counts == {"active": 0, "completed": 1, "failed": 1}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_is_cancelled_with_all_others_gives_the_jobs_back(queue: Queue[Any], server: Server) -> None:
    """What `asyncio.run` does at its end with a worker in a task of its own."""
    await queue.add_bulk([NewJob("n", {}) for _ in range(4)])
    running = anyio.Event()
    started: list[str] = []

    async def process(job: Job[Any]) -> None:
        started.append(job.id)
        if len(started) == 4:
            running.set()
        await anyio.sleep_forever()

    def everything() -> set["asyncio.Task[Any]"]:
        return asyncio.all_tasks()

    before = everything()
    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=4))
    task = asyncio.get_running_loop().create_task(worker.run())
    with anyio.fail_after(30):
        await running.wait()
    for each in everything() - before:
        each.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    counts = await queue.get_job_counts("waiting", "active", "failed")
    assert (counts["waiting"], counts["active"], counts["failed"]) == (4, 0, 0)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_all_tasks_cancelled_at_any_step_lose_no_job(queue: Queue[Any], server: Server) -> None:
    """In another order each time: a call that is under way brings its reply all the same, and `run` ends."""
    rolls = random.Random(7)
    jobs = await queue.add_bulk([NewJob("n", {}) for _ in range(6)])
    before = asyncio.all_tasks()
    for _ in range(60):
        started: list[str] = []

        async def process(job: Job[Any], started: list[str] = started) -> None:
            started.append(job.id)
            await anyio.sleep_forever()

        worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=4))
        run = asyncio.get_running_loop().create_task(worker.run())
        if rolls.random() < 0.5:
            with anyio.fail_after(30):
                while len(started) < 4:
                    await checkpoint()
        for _ in range(rolls.randrange(40)):
            await checkpoint()
        everything = list(asyncio.all_tasks() - before)
        rolls.shuffle(everything)
        for each in everything:
            each.cancel()
        with anyio.fail_after(30):
            await asyncio.wait([run])
        assert run.cancelled()
        counts = await queue.get_job_counts("waiting", "active", "failed")
        assert (counts["waiting"], counts["active"], counts["failed"]) == (6, 0, 0)
    for job in jobs:
        await job.refresh()
        assert job.attempts_made == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_tasks_cancelled_at_random_under_load_lose_no_job(queue: Queue[Any], server: Server) -> None:
    """Handlers' tasks fail an attempt for it; the worker goes on, and each job completes once."""
    rolls = random.Random(8)
    jobs = await queue.add_bulk([NewJob("n", options=JobOptions(attempts=1000)) for _ in range(400)])
    before = asyncio.all_tasks()
    completed: dict[str, int] = {}
    failed: list[str] = []

    async def process(job: Job[Any]) -> None:
        for _ in range(rolls.randrange(4)):
            await anyio.sleep(0.001)

    def note(notice: JobCompleted) -> None:
        completed[notice.job.id] = completed.get(notice.job.id, 0) + 1

    async def dawdle(_: JobActive) -> None:
        await anyio.sleep(0.001)

    options = WorkerOptions(concurrency=20, skip_stalled_check=True)
    worker = Worker(queue.name, process, server.url, options=options)
    worker.on(JobCompleted, note)
    worker.on(JobActive, dawdle)
    worker.on(JobFailed, lambda notice: failed.append(notice.reason))
    run = asyncio.get_running_loop().create_task(worker.run())
    with anyio.fail_after(60):
        while len(completed) < len(jobs):
            for _ in range(rolls.randrange(10)):
                await checkpoint()
            victims = list(asyncio.all_tasks() - before - {run})
            if victims:
                rolls.choice(victims).cancel()
            assert not run.done()
    await worker.aclose()
    await run
    assert set(completed.values()) == {1}
    assert failed
    assert set(failed) == {"CancelledError"}
    counts = await queue.get_job_counts("completed", "active", "waiting")
    assert (counts["completed"], counts["active"], counts["waiting"]) == (400, 0, 0)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_worker_cancelled_while_it_closes_its_connections_has_ended_all_the_same(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = anyio.Event()
    closed: list[object] = []
    plain = Connection.aclose

    async def slow(connection: Connection) -> None:
        closing.set()
        await anyio.sleep(0.01)
        await plain(connection)
        closed.append(connection)

    async def process(job: Job[Any]) -> None:
        """Nothing is added."""

    monkeypatch.setattr(Connection, "aclose", slow)
    worker = Worker(queue.name, process, server.url)
    drained = anyio.Event()
    worker.on(Drained, lambda _: drained.set())
    run = asyncio.get_running_loop().create_task(worker.run())
    with anyio.fail_after(30):
        await drained.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.aclose)
            await closing.wait()
            run.cancel()
        await asyncio.wait([run])
    assert run.cancelled()
    assert not worker.is_running
    assert closed
    monkeypatch.undo()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_handler_that_cancels_its_own_task_does_not_stop_the_worker(queue: Queue[Any], server: Server) -> None:
    await queue.add_bulk([NewJob("n", index) for index in range(5)])
    last = anyio.Event()

    async def process(job: Job[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None
        if job.data == 0:
            task.cancel()
        elif job.data == 4:
            last.set()

    options = WorkerOptions(lock_duration=300, stalled_interval=300)
    async with Worker(queue.name, process, server.url, options=options):
        with anyio.fail_after(30):
            await last.wait()


async def test_what_ends_the_body_is_raised_as_it_is(queue: Queue[Any], server: Server) -> None:
    async def process(job: Job[Any]) -> None:
        await anyio.sleep_forever()

    with pytest.raises(SystemExit):
        async with Worker(queue.name, process, server.url):
            raise SystemExit(3)


async def test_entering_a_worker_that_runs_or_has_ended_is_refused(server: Server, queue: Queue[Any]) -> None:
    async def process(job: Job[Any]) -> None:
        """Nothing is added."""

    for entered in (True, False):
        worker = Worker(queue.name, process, server.url)
        drained = anyio.Event()
        worker.on(Drained, lambda _, drained=drained: drained.set())  # type: ignore[misc]
        async with anyio.create_task_group() as tasks:
            if entered:
                await worker.__aenter__()
            else:
                tasks.start_soon(worker.run)
            await drained.wait()
            for again in (worker.run, worker.__aenter__):
                with pytest.raises(UsageError, match="already running"):
                    await again()
            assert worker.is_running
            if entered:
                await worker.__aexit__(None, None, None)
            else:
                await worker.aclose()
        for again in (worker.run, worker.__aenter__):
            with pytest.raises(UsageError, match="has ended"):
                await again()


async def test_entering_twice_at_once_is_refused(server: Server, queue: Queue[Any]) -> None:
    async def process(job: Job[Any]) -> None:
        """Nothing is added."""

    worker = Worker(queue.name, process, server.url)
    async with worker:
        # `run` has not begun yet.
        with pytest.raises(UsageError, match="entered before"):
            await worker.__aenter__()


@pytest.mark.parametrize("module", [bullmq_anyio, bullmq_sync], ids=lambda each: each.__name__)
async def test_processor_that_cannot_take_one_argument_is_refused(module: Any) -> None:
    async def none() -> None: ...
    async def two(job: Job[Any], token: str) -> None: ...

    def blocking(job: Job[Any], token: str) -> None: ...

    for processor in (none, two) if module is bullmq_anyio else (lambda: None, blocking):
        with pytest.raises(UsageError, match="must take one argument, the job"):
            module.Worker("q", processor)


async def test_a_worker_that_always_has_work_is_listed_at_once(server: Server, queue: Queue[Any]) -> None:
    listed: list[list[dict[str, str]]] = []
    done = anyio.Event()

    async def process(job: Job[Any]) -> None:
        listed.append(await queue.get_workers())
        done.set()

    await queue.add("first")
    await queue.add("more")
    async with Worker(queue.name, process, server.url, options=WorkerOptions(name="busy")):
        await done.wait()
    assert [row["rawname"] for row in listed[0]] == [queue.keys.client_name("busy")]


@pytest.mark.parametrize("lost", ["both", "the-named-one"])
async def test_a_busy_worker_is_listed_again_after_a_loss_and_after_a_pause(
    server: Server, queue: Queue[Any], lost: str
) -> None:
    """Also where the other connection has seen no loss, or a repeated call has healed it."""
    begun, gate = anyio.Event(), anyio.Event()

    async def process(job: Job[Any]) -> None:
        begun.set()
        await gate.wait()

    async def until_listed(gone: str = "") -> str:
        """Return the number of its connection, which is another one than that."""
        with anyio.fail_after(30):
            while True:
                rows = await queue.get_workers()
                if len(rows) == 1 and rows[0]["id"] != gone:
                    return rows[0]["id"]
                await anyio.sleep(0.005)

    await queue.add_bulk([NewJob("n") for _ in range(5)])
    with CutProxy(server.host, server.port) as proxy:
        options = WorkerOptions(name="busy", lock_duration=60_000, shutdown_timeout=0)
        worker = Worker(queue.name, process, proxy.url, options=options)
        async with worker:
            with anyio.fail_after(30):
                await begun.wait()
            gone = await until_listed()
            if lost == "both":
                proxy.drop_all()
            else:
                with redis.Redis.from_url(server.url) as killer:
                    killer.client_kill_filter(_id=gone)
            await until_listed(gone)
            await worker.pause(wait=False)
            await until_listed()
            worker.resume()
            await until_listed()
            assert len(worker.snapshot().held) == 1
            gate.set()
    with anyio.fail_after(30):
        while await queue.get_workers():
            await anyio.sleep(0.005)


@pytest.mark.usefixtures("scopes")
@pytest.mark.parametrize("inner", ["none", "scope", "group", "limit"])
async def test_a_cancelled_handler_is_cancelled_again_until_it_leaves_but_not_where_it_is_shielded(
    queue: Queue[Any], server: Server, inner: str
) -> None:
    begun = anyio.Event()
    seen: list[str] = []

    async def waits() -> None:
        for time in ("first", "again", "at last"):
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                seen.append(time)
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.01)
            seen.append("shielded")
        await anyio.sleep_forever()

    async def process(job: Job[Any]) -> None:
        begun.set()
        try:
            match inner:
                case "none":
                    await waits()
                case "scope":
                    with anyio.CancelScope():
                        await waits()
                case "group":
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(waits)
                case _:
                    with anyio.move_on_after(60):
                        await waits()
        finally:
            seen.append("left")

    await queue.add("a")
    worker = Worker(queue.name, process, server.url, options=WorkerOptions(shutdown_timeout=1))
    moved: list[JobMoved] = []
    worker.on(JobMoved, moved.append)
    with anyio.fail_after(30):
        async with worker:
            await begun.wait()
            await checkpoint()
    assert seen == ["first", "again", "at last", "shielded", "left"]
    assert [notice.how for notice in moved] == ["given-back"]
    assert (await queue.get_job_counts())["waiting"] == 1


@pytest.mark.usefixtures("scopes")
async def test_a_cancelled_job_leaves_the_ones_beside_it_alone(queue: Queue[Any], server: Server) -> None:
    """It loses its lock; the others go on."""
    over: list[str] = []
    begun, gate = anyio.Event(), anyio.Event()

    async def process(job: Job[Any]) -> None:
        try:
            if job.name == "lost":
                begun.set()
                await anyio.sleep_forever()
            await gate.wait()
            await checkpoint()
        finally:
            over.append(job.name)

    lost = await queue.add("lost")
    await queue.add_bulk([NewJob("kept") for _ in range(3)])
    options = WorkerOptions(concurrency=5, lock_renew_time=250, cancel_on_lost_lock=True, skip_stalled_check=True)
    worker = Worker(queue.name, process, server.url, options=options)
    done: list[str] = []
    worker.on(JobCompleted, lambda notice: done.append(notice.job.name))
    with anyio.fail_after(60):
        async with worker:
            await begun.wait()
            with redis.Redis.from_url(server.url) as admin:
                admin.delete(queue.keys.lock(lost.id))
            await _until(lambda: over == ["lost"])
            gate.set()
            await _until(lambda: len(done) == 3)
    assert done == ["kept"] * 3


@pytest.mark.parametrize("how", ["once", "for ever"])
async def test_a_machine_that_raises_loses_no_job(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """`run` raises it. The handlers' results are reported again, and stored if the machine can; else given back."""
    begun: list[str] = []
    gate = anyio.Event()
    broken: list[bool] = []
    real = WorkerMachine.handle_all

    def handle_all(machine: WorkerMachine, events: Any, at: Any) -> Any:
        if broken:
            if how == "once":
                broken.clear()
            raise RuntimeError("planted")
        return real(machine, events, at)

    async def process(job: Job[Any]) -> None:
        begun.append(job.id)
        if len(begun) == 3:
            broken.append(True)
            gate.set()
        await gate.wait()

    monkeypatch.setattr(WorkerMachine, "handle_all", handle_all)
    await queue.add_bulk([NewJob("n") for _ in range(10)])
    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=3))
    with anyio.fail_after(30):
        with pytest.raises(RuntimeError, match="planted"):
            await worker.run()
    counts = await queue.get_job_counts("waiting", "active", "completed", "failed")
    assert (counts["active"], counts["failed"]) == (0, 0)
    # Handlers that had not returned yet are cancelled.
    assert (counts["completed"] > 0) is (how == "once")
    assert counts["waiting"] + counts["completed"] == 10


async def test_a_handler_that_ends_while_the_tasks_end_for_a_fault_holds_up_nothing(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whichever turn of the event loop: nobody would end a task that begins when the others are over."""
    broken: list[bool] = []
    turns = 0
    struck = anyio.Event()
    real = WorkerMachine.handle_all

    def handle_all(machine: WorkerMachine, events: Any, at: Any) -> Any:
        if broken:
            broken.clear()
            struck.set()
            raise RuntimeError("planted")
        return real(machine, events, at)

    async def process(job: Job[Any]) -> None:
        if job.name == "strikes":
            broken.append(True)
            return
        await struck.wait()
        with anyio.CancelScope(shield=True):
            for _ in range(turns):
                await checkpoint()

    monkeypatch.setattr(WorkerMachine, "handle_all", handle_all)
    while turns < 12:
        struck = anyio.Event()
        await queue.add_bulk([NewJob("waits"), NewJob("waits"), NewJob("strikes")])
        worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=3))
        with anyio.fail_after(30):
            with pytest.raises(RuntimeError, match="planted"):
                await worker.run()
        assert (await queue.get_job_counts("active"))["active"] == 0
        await queue.drain()
        turns += 1
