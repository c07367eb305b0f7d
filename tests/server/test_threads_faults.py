"""What may go wrong under a worker on threads, and ends nothing: in the user's code, the system, and the library."""

import contextvars
import decimal
import errno
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from bullmq_protocol import JobOptions, NewJob, UsageError, WorkerOptions
from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.errors import Closed, ConnectionLost, JobNotFound
from bullmq_protocol.events.stream import AddedEvent, CompletedEvent
from bullmq_protocol.model.backoff import Backoff
from bullmq_protocol.observability.metrics import MetricsCollector
from bullmq_protocol.worker.events import JobReturned
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    JobActive,
    JobCompleted,
    JobFailed,
    Paused,
    Renewed,
    WorkerProblem,
)
from bullmq_sync import Connection, Job, Queue, QueueEvents, Worker, run_workers
from bullmq_sync import events as events_module
from bullmq_sync.driving import hands as hands_module
from bullmq_sync.net import link
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

_LIMIT_S = 60
VAR = contextvars.ContextVar("request", default="unset")
SEVERE = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("plain")]
severe = pytest.mark.parametrize("error", SEVERE, ids=lambda each: type(each).__name__)


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    end = time.monotonic() + 20
    while set(threading.enumerate()) - before:
        assert time.monotonic() < end, set(threading.enumerate()) - before
        time.sleep(0.005)


def nothing(job: Job[Any]) -> None:
    """A processor that has nothing to do."""


class Count:
    """How often something happened, for threads that wait for a number."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self._changed = threading.Condition()

    def __call__(self, each: Any) -> None:
        with self._changed:
            self.seen.append(each)
            self._changed.notify_all()

    def wait(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= number, _LIMIT_S), self.seen


def run_aside(worker: Worker[Any]) -> tuple[threading.Thread, Count]:
    """Run a worker in a thread of its own; return that, and what `run` raises."""
    raised = Count()

    def run() -> None:
        try:
            worker.run()
        except BaseException as caught:
            raised(caught)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + _LIMIT_S
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def settled(queue: Queue[Any]) -> dict[str, int]:
    return {state: count for state, count in queue.get_job_counts().items() if count}


# --- isolation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 50])
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "waits"])
def test_a_handler_sees_nothing_of_another(queue: Queue[Any], server: Server, concurrency: int, waits: bool) -> None:
    """Context variables, decimal's context and the exception in hand."""
    over = Count()

    def process(job: Job[Any]) -> None:
        found = (VAR.get(), decimal.getcontext().prec, sys.exc_info()[0])
        VAR.set("another job's")
        decimal.setcontext(decimal.Context(prec=3))
        if waits:
            time.sleep(0.001)
        over(found)
        if job.data % 3 == 0:
            raise ValueError("failed")

    queue.add_bulk([NewJob("n", number, JobOptions(attempts=1)) for number in range(200)])
    VAR.set("the worker's")
    try:
        with Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=concurrency)):
            over.wait(200)
            assert VAR.get() == "the worker's"
    finally:
        VAR.set("unset")
    # What was set where it was entered is seen by all.
    assert set(over.seen) == {("the worker's", decimal.getcontext().prec, None)}


def test_the_error_of_one_job_is_no_context_of_the_next(queue: Queue[Any], server: Server) -> None:
    failed = Count()

    def process(job: Job[Any]) -> None:
        raise ValueError(job.id)

    worker = Worker(queue.name, process, server.url)
    worker.on(JobFailed, failed)
    queue.add_bulk([NewJob("n") for _ in range(20)])
    with worker:
        failed.wait(20)
    assert {notice.exception.__context__ for notice in failed.seen} == {None}


def test_callbacks_and_strategies_reach_no_job(queue: Queue[Any], server: Server) -> None:
    """Nor each other: each runs in a copy of the context in which `run` was called."""
    found: list[tuple[str, str]] = []
    over = Count()

    def look(who: str) -> None:
        found.append((who, VAR.get()))
        VAR.set(who)

    def strategy(attempt: int, kind: str, error: BaseException, job: Job[Any]) -> int:
        # It belongs to the job, whose variables it sees.
        found.append(("strategy", VAR.get()))
        VAR.set("strategy")
        return 1

    class Collector(MetricsCollector):
        def job_processed(self, queue: str, status: str) -> None:
            look("metrics")

    def process(job: Job[Any]) -> None:
        look("handler")
        if job.attempts_made == 0:
            raise ValueError("once more")

    def run() -> None:
        VAR.set("run's")
        worker.run()

    worker = Worker(queue.name, process, server.url, backoff_strategy=strategy, metrics_collector=Collector())
    worker.on(JobActive, lambda notice: look("callback"))
    worker.on(JobActive, lambda notice: look("callback"))
    worker.on(JobCompleted, over)
    queue.add_bulk([NewJob("n", None, JobOptions(attempts=2, backoff=Backoff(type="mine"))) for _ in range(10)])
    thread = threading.Thread(target=run)
    thread.start()
    over.wait(10)
    worker.close()
    thread.join()
    seen = {who: {value for each, value in found if each == who} for who, _ in found}
    assert seen == {"handler": {"run's"}, "callback": {"run's"}, "metrics": {"run's"}, "strategy": {"handler"}}


def test_callbacks_of_events_are_apart(queue: Queue[Any], server: Server) -> None:
    seen = Count()

    def look(event: AddedEvent) -> None:
        value = VAR.get()
        VAR.set("another event's")
        seen(value)

    with QueueEvents(queue.name, server.url) as events:
        events.on(AddedEvent, look)
        queue.add_bulk([NewJob("n") for _ in range(5)])
        seen.wait(5)
    assert set(seen.seen) == {"unset"}


# --- what the user's code raises --------------------------------------------------------------------------------------


@severe
def test_callback_that_raises(queue: Queue[Any], server: Server, error: BaseException) -> None:
    over = Count()

    def raising(notice: Any) -> None:
        raise error

    worker = Worker(queue.name, nothing, server.url, options=WorkerOptions(concurrency=5))
    for kind in (JobActive, JobCompleted, JobFailed):
        worker.on(kind, raising)
    worker.on(JobCompleted, over)
    queue.add_bulk([NewJob("n") for _ in range(12)])
    with worker:
        over.wait(12)
    assert settled(queue) == {"completed": 12}


@severe
def test_backoff_strategy_that_raises(queue: Queue[Any], server: Server, error: BaseException) -> None:
    over, failed = Count(), Count()

    def strategy(*_: Any) -> int:
        raise error

    def process(job: Job[Any]) -> None:
        if job.data == "bad":
            raise ValueError("bad")

    worker = Worker(queue.name, process, server.url, backoff_strategy=strategy)
    worker.on(JobCompleted, over)
    worker.on(JobFailed, failed)
    options = JobOptions(attempts=2, backoff=Backoff(type="mine"))
    queue.add_bulk([NewJob("n", "bad", options), NewJob("n", "good", options)])
    with worker:
        failed.wait(1)
        over.wait(1)
    assert settled(queue) == {"completed": 1, "failed": 1}


@severe
def test_metrics_that_raise(queue: Queue[Any], server: Server, error: BaseException) -> None:
    over = Count()

    class Collector(MetricsCollector):
        def worker_active(self, queue: str, worker_id: str, active: bool) -> None:
            raise error

        def job_processed(self, queue: str, status: str) -> None:
            raise error

    worker = Worker(queue.name, nothing, server.url, metrics_collector=Collector())
    worker.on(JobCompleted, over)
    queue.add_bulk([NewJob("n") for _ in range(5)])
    with worker:
        over.wait(5)
    assert settled(queue) == {"completed": 5}


@severe
def test_log_handler_that_raises(queue: Queue[Any], server: Server, error: BaseException) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise error

    logger, handler, over = logging.getLogger("bullmq_sync"), Raising(), Count()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        worker = Worker(queue.name, nothing, server.url)
        worker.on(JobCompleted, over)
        queue.add_bulk([NewJob("n") for _ in range(5)])
        # Not in the main thread, where it would be taken for Ctrl-C.
        thread = threading.Thread(target=worker.run)
        thread.start()
        over.wait(5)
        closing = threading.Thread(target=worker.close)
        closing.start()
        closing.join()
        thread.join()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert settled(queue) == {"completed": 5}


def test_error_whose_words_raise(queue: Queue[Any], server: Server) -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise SystemExit(1)

        __repr__ = __str__

    failed = Count()

    def process(job: Job[Any]) -> None:
        raise Wordless

    worker = Worker(queue.name, process, server.url)
    worker.on(JobFailed, failed)
    queue.add_bulk([NewJob("n"), NewJob("n")])
    with worker:
        failed.wait(2)
    job = queue.get_job("1")
    assert job is not None
    assert "Wordless" in job.failed_reason


@severe
def test_callback_of_events_that_raises(queue: Queue[Any], server: Server, error: BaseException) -> None:
    seen = Count()

    def raising(event: Any) -> None:
        raise error

    with QueueEvents(queue.name, server.url) as events:
        events.on(AddedEvent, raising)
        events.on(AddedEvent, seen)
        queue.add_bulk([NewJob("n") for _ in range(3)])
        seen.wait(3)
        assert events.is_running


def test_leaving_events_waits_no_longer_for_a_callback_that_does_not_return(
    queue: Queue[Any], server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It has a second. Callers that wait for a job are woken immediately, and later events do not count as
    delivered."""
    began, ends, over = threading.Event(), threading.Event(), threading.Event()
    reported: list[str] = []
    woken: list[BaseException] = []

    def waits(event: AddedEvent) -> None:
        reported.append(event.entry_id)
        began.set()
        ends.wait()

    def wait_for(job: Job[Any]) -> None:
        try:
            job.wait_until_finished(events)
        except Closed as error:
            woken.append(error)
        over.set()

    events = QueueEvents(queue.name, server.url, last_event_id="0-0")
    events.on(AddedEvent, waits)
    jobs = queue.add_bulk([NewJob("a"), NewJob("b")])
    events.__enter__()
    assert began.wait(30)
    waiting = threading.Thread(target=wait_for, args=(jobs[0],), daemon=True)
    waiting.start()
    leaving = threading.Thread(target=events.__exit__, args=(None, None, None), daemon=True)
    leaving.start()
    leaving.join(30)
    assert not leaving.is_alive()
    assert over.wait(30)
    assert len(woken) == 1
    [words] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    message = f"the events of {queue.name} are closed, and wait no longer for a callback for AddedEvent"
    assert words == f"{message} that does not return"
    ends.set()
    until(lambda: not events.is_running)
    assert [events.last_event_id] == reported


def test_a_thread_that_has_come_back_from_a_handler_is_the_librarys(queue: Queue[Any], server: Server) -> None:
    """A close waits for it: what it still does is no code of the user's."""
    has_it: list[tuple[str, bool]] = []
    over = Count()

    def look(where: str) -> None:
        hand: Any = threading.current_thread()
        has_it.append((where, hand.handling))

    def process(job: Job[Any]) -> None:
        look("handler")
        if job.name == "bad":
            raise ValueError("no")

    def tell(notice: Any) -> None:
        look("callback")
        over(notice)

    worker = Worker(queue.name, process, server.url)
    worker.on(JobCompleted, tell)
    worker.on(JobFailed, tell)
    with worker:
        queue.add("good")
        over.wait(1)
        queue.add("bad")
        over.wait(2)
    assert has_it == [("handler", True), ("callback", False)] * 2


def test_interrupt_in_a_callback_of_the_main_thread_is_raised_there(queue: Queue[Any], server: Server) -> None:
    """Ctrl-C may strike there; what was decided is done all the same."""
    worker = Worker(queue.name, nothing, server.url)
    raised = False

    def raising(notice: Paused) -> None:
        raise KeyboardInterrupt

    with worker:
        remove = worker.on(Paused, raising)
        try:
            worker.pause()
        except KeyboardInterrupt:
            raised = True
        remove()
        assert (raised, worker.is_paused) == (True, True)
        over = Count()
        worker.on(JobCompleted, over)
        worker.resume()
        queue.add("n")
        over.wait(1)


# --- what the system refuses ------------------------------------------------------------------------------------------


class Shortage:
    """Lets a call of the system fail for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException) -> None:
        self.failed = 0
        self.on = False
        self.every = 1
        self._calls = 0
        real = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            self._calls += 1
            if self.on and self._calls % self.every == 0:
                self.failed += 1
                raise error
            return real(*args, **options)

        monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(
    "error", [RuntimeError("can't start new thread"), MemoryError()], ids=lambda each: type(each).__name__
)
def test_no_new_thread_for_a_moment(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Locks are renewed and jobs run as far as the threads that are there allow; then all goes on."""
    begun, gate, over, problems = Count(), threading.Event(), Count(), Count()

    def process(job: Job[Any]) -> None:
        begun(job.id)
        assert gate.wait(_LIMIT_S)

    options = WorkerOptions(concurrency=8, lock_renew_time=250, stalled_interval=500)
    worker = Worker(queue.name, process, server.url, options=options)
    renewed: list[int] = []
    worker.on(JobCompleted, over)
    worker.on(WorkerProblem, problems)
    worker.on(Renewed, lambda notice: renewed.append(len(notice.job_ids)))
    with worker:
        queue.add("n")
        begun.wait(1)
        shortage = Shortage(monkeypatch, threading.Thread, "start", error)
        shortage.on = True
        queue.add_bulk([NewJob("n") for _ in range(20)])
        problems.wait(1)
        assert "no new thread" in problems.seen[0].message
        until(lambda: shortage.failed > 3)
        assert worker.is_running
        shortage.on = False
        begun.wait(8)
        renewed.clear()
        until(lambda: renewed[1:4] == [8] * 3)
        assert settled(queue) == {"active": 8, "waiting": 13}
        gate.set()
        over.wait(21)
    assert settled(queue) == {"completed": 21}
    assert [job.attempts_made for job in queue.get_completed()] == [1] * 21


def test_no_thread_at_the_beginning(queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    over = Count()
    worker = Worker(queue.name, nothing, server.url)
    worker.on(JobCompleted, over)
    shortage = Shortage(monkeypatch, threading.Thread, "start", RuntimeError("can't start new thread"))
    shortage.on = True
    # Who enters it hears at once, and may do it again.
    with pytest.raises(RuntimeError, match="new thread"):
        worker.__enter__()
    assert not worker.is_running
    shortage.on = False
    queue.add("n")
    with worker:
        over.wait(1)


def test_no_thread_for_the_time_keeper(queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the main thread `run` waits until there is one: nothing is held yet."""
    worker = Worker(queue.name, lambda job: worker.close(), server.url)
    shortage = Shortage(monkeypatch, threading.Thread, "start", RuntimeError("can't start new thread"))
    real, tries = worker._driver._threads.stopped.wait, 0

    def wait(timeout: float | None = None) -> bool:
        nonlocal tries
        tries += 1
        shortage.on = tries < 3
        return real(timeout)

    monkeypatch.setattr(worker._driver._threads.stopped, "wait", wait)
    queue.add("n")
    shortage.on = True
    worker.run()
    assert shortage.failed >= 3
    assert settled(queue) == {"completed": 1}


def test_run_workers_without_threads(queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that began are closed before the error is raised."""
    real, begun = threading.Thread.start, 0

    def start(thread: threading.Thread) -> None:
        nonlocal begun
        if thread.name.endswith("runner"):
            begun += 1
            if begun == 3:
                raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    workers = [Worker(queue.name, nothing, server.url) for _ in range(3)]
    with pytest.raises(RuntimeError, match="new thread"):
        run_workers(*workers)
    assert [worker.is_running for worker in workers] == [False] * 3


def test_events_without_a_thread(queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    events = QueueEvents(queue.name, server.url)
    shortage = Shortage(monkeypatch, threading.Thread, "start", RuntimeError("can't start new thread"))
    shortage.on = True
    with pytest.raises(RuntimeError, match="new thread"):
        events.__enter__()
    assert not events.is_running
    shortage.on = False
    with events:
        assert events.is_running


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, os.strerror(errno.EMFILE)), MemoryError()], ids=lambda each: type(each).__name__
)
@pytest.mark.parametrize("place", ["socket", "getaddrinfo", "receive", "send"])
def test_no_socket_and_no_memory_for_a_moment(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    """A connection cannot be made, or breaks: worker and events go on when there is one again."""
    if place in ("socket", "getaddrinfo"):
        shortage = Shortage(monkeypatch, socket, place, error)
    elif place == "receive":
        shortage = Shortage(monkeypatch, link.PlainStream, "receive", error)
    else:
        shortage = Shortage(monkeypatch, link.Link, "_send", error)
    shortage.every = 2
    over, seen = Count(), Count()
    worker = Worker(queue.name, nothing, server.url, options=WorkerOptions(concurrency=4, max_reconnect_delay=20))
    worker.on(JobCompleted, over)
    events = QueueEvents(queue.name, server.url, max_reconnect_delay=20)
    events.on(CompletedEvent, seen)
    with events, worker:
        queue.add("n")
        over.wait(1)
        if place in ("socket", "getaddrinfo"):
            # So that they must connect anew.
            shortage.on = True
            kill(queue)
        else:
            shortage.on = True
        until(lambda: shortage.failed >= 1)
        shortage.on = False
        added = 0
        while added < 20:
            try:
                queue.add("n", options=JobOptions(job_id=f"j{added}"))
                added += 1
            except ConnectionLost:
                continue
        until(lambda: {f"j{number}" for number in range(20)} <= {event.job_id for event in seen.seen})
        assert (worker.is_running, events.is_running) == (True, True)
    counts = settled(queue)
    assert counts.pop("completed") == 21
    assert counts == {}


def kill(queue: Queue[Any]) -> None:
    """Cut every connection of the server but the asking one."""
    queue.call(
        Command("CLIENT", (), ("KILL", "TYPE", "normal", "SKIPME", "yes"), lambda reply: reply, repeat=Repeat.SAFE)
    )


# --- what breaks within -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["once", "for ever"])
@pytest.mark.parametrize("error", [RuntimeError("planted"), MemoryError()], ids=lambda each: type(each).__name__)
def test_machine_that_raises(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch, how: str, error: BaseException
) -> None:
    """`run` raises it, when all that the worker holds has been given back."""
    begun, gate = Count(), threading.Event()

    def process(job: Job[Any]) -> None:
        begun(job.id)
        assert gate.wait(_LIMIT_S)

    broken: list[bool] = []
    real = WorkerMachine.handle_all

    def handle_all(machine: WorkerMachine, events: Any, at: Any) -> Any:
        if broken:
            if how == "once":
                broken.clear()
            raise error
        return real(machine, events, at)

    monkeypatch.setattr(hands_module, "FORCED_STOP_S", 1.0)
    monkeypatch.setattr(WorkerMachine, "handle_all", handle_all)
    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=3, lock_renew_time=250))
    queue.add_bulk([NewJob("n") for _ in range(10)])
    thread, raised = run_aside(worker)
    begun.wait(3)
    # The next renewal meets it.
    broken.append(True)
    raised.wait(1)
    assert raised.seen == [error]
    assert settled(queue) == {"waiting": 10}
    gate.set()
    thread.join()


def test_jobs_that_no_thread_has_begun_are_given_back_by_a_worker_that_breaks(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = Count(), threading.Event()
    broken: list[bool] = []
    real = WorkerMachine.handle_all

    def handle_all(machine: WorkerMachine, events: Any, at: Any) -> Any:
        if broken:
            raise RuntimeError("planted")
        return real(machine, events, at)

    def process(job: Job[Any]) -> None:
        begun(job.id)
        assert gate.wait(_LIMIT_S)

    def none_is_found(machine: WorkerMachine) -> Iterator[Any]:
        """Stand for the last look for jobs of this worker, which would find them too."""
        yield from ()

    monkeypatch.setattr(hands_module, "FORCED_STOP_S", 2.0)
    monkeypatch.setattr(WorkerMachine, "handle_all", handle_all)
    monkeypatch.setattr(WorkerMachine, "give_back_strays", none_is_found)
    options = WorkerOptions(concurrency=8, lock_renew_time=250, stalled_interval=600_000)
    worker = Worker(queue.name, process, server.url, options=options)
    thread, raised = run_aside(worker)
    queue.add("n")
    begun.wait(1)
    shortage = Shortage(monkeypatch, threading.Thread, "start", RuntimeError("can't start new thread"))
    shortage.on = True
    queue.add_bulk([NewJob("n") for _ in range(20)])
    until(lambda: len(worker.snapshot().held) == 8)
    assert len(begun.seen) < 8
    # The next renewal meets it.
    broken.append(True)
    raised.wait(1)
    shortage.on = False
    assert str(raised.seen[0]) == "planted"
    assert settled(queue) == {"waiting": 21}
    gate.set()
    thread.join()


@pytest.mark.parametrize("how", ["once", "for ever"])
def test_machine_that_raises_over_outcomes(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It receives them again, and they are stored if it can; else their jobs are released."""
    broken: list[bool] = []
    real = WorkerMachine.handle_all

    def handle_all(machine: WorkerMachine, events: Any, at: Any) -> Any:
        if broken and (how == "for ever" or any(isinstance(each, JobReturned) for each in events)):
            if how == "once":
                broken.clear()
            raise RuntimeError("planted")
        return real(machine, events, at)

    def process(job: Job[Any]) -> None:
        broken.append(True)

    monkeypatch.setattr(hands_module, "FORCED_STOP_S", 2.0)
    monkeypatch.setattr(WorkerMachine, "handle_all", handle_all)
    queue.add("n")
    worker = Worker(queue.name, process, server.url)
    with pytest.raises(RuntimeError, match="planted"):
        worker.run()
    assert settled(queue) == ({"completed": 1} if how == "once" else {"waiting": 1})


def test_timer_that_dies_ends_the_worker(queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner hears of it: no worker lives on without renewals."""
    worker = Worker(queue.name, nothing, server.url, options=WorkerOptions(lock_duration=300))
    died = False

    def deadline(machine: WorkerMachine) -> Any:
        nonlocal died
        if threading.current_thread().name.endswith("timer") and not died:
            died = True
            raise RuntimeError("planted")
        return real(machine)

    real = WorkerMachine.deadline
    monkeypatch.setattr(WorkerMachine, "deadline", deadline)
    closed = Count()
    worker.on(ClosedNotice, closed)
    with pytest.raises(RuntimeError, match="planted"):
        # In the main thread, where the timer is a thread of its own.
        worker.run()
    assert died


# --- entered twice ----------------------------------------------------------------------------------------------------


def test_worker_entered_twice_is_refused(queue: Queue[Any], server: Server) -> None:
    worker = Worker(queue.name, nothing, server.url)
    over = Count()
    worker.on(JobCompleted, over)
    with worker:
        for call in (worker.__enter__, worker.run):
            with pytest.raises(UsageError, match="already running"):
                call()
        queue.add("n")
        over.wait(1)
        assert worker.is_running
    with pytest.raises(UsageError, match="has ended"):
        worker.__enter__()


def test_worker_entered_beside_run_is_refused(queue: Queue[Any], server: Server) -> None:
    worker = Worker(queue.name, nothing, server.url)
    thread = threading.Thread(target=worker.run)
    thread.start()
    until(lambda: worker.is_running)
    with pytest.raises(UsageError, match="already running"):
        worker.__enter__()
    assert worker.is_running
    worker.close()
    thread.join()


def test_events_entered_twice_or_beside_run_are_refused(queue: Queue[Any], server: Server) -> None:
    events = QueueEvents(queue.name, server.url)
    with events:
        for call in (events.__enter__, events.run):
            with pytest.raises(UsageError, match="already running"):
                call()
        assert events.is_running
    events = QueueEvents(queue.name, server.url)
    thread = threading.Thread(target=events.run)
    thread.start()
    until(lambda: events.is_running)
    with pytest.raises(UsageError, match="already running"):
        events.__enter__()
    events.close()
    thread.join()


# --- threads, names, silence ------------------------------------------------------------------------------------------


def test_idle_worker_keeps_two_threads(queue: Queue[Any], server: Server) -> None:
    """One that keeps time and one that waits for jobs; those that did more have ended."""
    before = set(threading.enumerate())
    over = Count()
    worker = Worker(queue.name, nothing, server.url, options=WorkerOptions(concurrency=10))
    worker.on(JobCompleted, over)
    queue.add_bulk([NewJob("n") for _ in range(100)])
    with worker:
        over.wait(100)
        until(lambda: len(set(threading.enumerate()) - before) == 2)
        queue.add("n")
        over.wait(101)
        until(lambda: len(set(threading.enumerate()) - before) == 2)


@pytest.mark.parametrize("lost", ["both", "the-named-one"])
def test_busy_worker_is_listed_at_once(queue: Queue[Any], server: Server, lost: str) -> None:
    """Though it has work from its first moment, again after a loss, whichever thread noticed it, and after a pause."""
    begun, gate = Count(), threading.Event()

    def process(job: Job[Any]) -> None:
        begun(job.id)
        assert gate.wait(_LIMIT_S)

    def listed(gone: str = "") -> str:
        rows = queue.get_workers()
        return rows[0]["id"] if len(rows) == 1 and rows[0]["id"] != gone else ""

    queue.add_bulk([NewJob("n") for _ in range(5)])
    with CutProxy(server.host, server.port) as proxy:
        options = WorkerOptions(name="busy", shutdown_timeout=0)
        worker = Worker(queue.name, process, proxy.url, options=options)
        with worker:
            begun.wait(1)
            gone = listed()
            assert gone
            if lost == "both":
                proxy.drop_all()
            else:
                with redis.Redis.from_url(server.url) as killer:
                    killer.client_kill_filter(_id=gone)
            until(lambda: listed(gone))
            worker.pause(wait=False)
            until(listed)
            worker.resume()
            until(listed)
            gate.set()
    until(lambda: queue.get_workers() == [])


@pytest.mark.parametrize("lost", [0, 1])
def test_close_beside_a_server_that_says_nothing(lost: int) -> None:
    """Also while the first fetch waits for a connection: the first attempt, which only asks for one, was lost."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(_LIMIT_S)
        # Longer than a test may take.
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}?connect_timeout_ms=600000"
        worker = Worker("q", nothing, url)
        thread = threading.Thread(target=worker.run)
        thread.start()
        for _ in range(lost):
            silent.accept()[0].close()
        with silent.accept()[0]:
            until(lambda: worker.snapshot().fetching or not lost)
            worker.close()
            thread.join(_LIMIT_S)
            assert not thread.is_alive()


def test_all_callers_are_asked_for_at_once(queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the reader, in one round trip: no caller asks again on its own."""
    monkeypatch.setattr(events_module, "_RECHECK_S", 1.0)
    monkeypatch.setattr(events_module, "_LOOK_MS", 100)
    steps: list[tuple[str, int]] = []

    class Counting(Connection):
        def perform(self, step: Command[Any] | Batch, /) -> Any:
            if isinstance(step, Batch) and step.commands[-1].name == "isFinished":
                steps.append((threading.current_thread().name, len(step.commands) - 1))
            return super().perform(step)

    connection = Counting(server.url)
    queue.add_bulk([NewJob("n") for _ in range(60)])
    gone = Count()

    def wait(job_id: str) -> None:
        try:
            events.wait_until_finished(job_id)
        except JobNotFound as error:
            gone(error)

    with QueueEvents(queue.name, connection) as events:
        callers = [threading.Thread(target=wait, args=(str(number + 1),), name="caller") for number in range(60)]
        for caller in callers:
            caller.start()
        until(lambda: steps.count(("caller", 1)) == 60)
        # Twice, so that none has only just begun.
        until(lambda: [count for _, count in steps].count(60) >= 2)
        # Without an event for any of them.
        queue.obliterate(force=True)
        gone.wait(60)
        for caller in callers:
            caller.join()
    connection.close()
    assert steps.count(("caller", 1)) == 60
    assert {name for name, count in steps if count > 1} == {f"bullmq events {queue.name}"}
