"""What only a worker on threads has: handlers that cannot be stopped, signals, threads of its own."""

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from bullmq_protocol import Backoff, JobOptions, NewJob, UsageError, WorkerOptions
from bullmq_protocol.errors import Closed, ConnectionLost
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    Closing,
    Disconnected,
    Drained,
    HandlerAbandoned,
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
    Paused,
)
from bullmq_sync import Job, Queue, Worker, connect, thread_pool
from tests.support.open_sockets import sockets
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

_LIMIT_S = 30
_ROOT = Path(__file__).parents[2]


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = set(threading.enumerate())
    opened = sockets()
    yield
    end = time.monotonic() + 5
    while set(threading.enumerate()) - before or len(sockets() - opened) > 1:
        # The queue of the test is closed after this.
        assert time.monotonic() < end, (set(threading.enumerate()) - before, sockets() - opened)
        time.sleep(0.005)


class Told(threading.Event):
    """Set when the worker has emitted this many notices of a kind."""

    def __init__(self, worker: Worker[Any], kind: type[Any], count: int = 1) -> None:
        super().__init__()
        self.notices: list[Any] = []
        self._count = count
        worker.on(kind, self._take)

    def _take(self, notice: Any) -> None:
        self.notices.append(notice)
        if len(self.notices) == self._count:
            self.set()

    def wait(self, timeout: float | None = _LIMIT_S) -> bool:
        assert super().wait(timeout), "it was not reported in time"
        return True


def nothing(job: Job[Any]) -> None:
    """A processor that has nothing to do."""


def in_thread(call: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_cancelled_handler_that_looks_ends_early(queue: Queue[Any], server: Server, name: str) -> None:
    begun, ended = threading.Event(), threading.Event()

    def process(job: Job[Any]) -> None:
        begun.set()
        assert job.cancelled.wait(_LIMIT_S)
        assert job.cancelled.reason == "worker closed"
        ended.set()

    queue.add("a")
    worker = Worker[Any](name, process, server.url)
    with worker:
        # Not only fetched: a handler that has not begun never does.
        assert begun.wait(_LIMIT_S)
        worker.close(force=True)
    assert ended.wait(_LIMIT_S)
    assert queue.get_state("1") == "waiting"


def test_handler_that_does_not_look_is_left_to_itself(queue: Queue[Any], server: Server, name: str) -> None:
    begun, gate, over = threading.Event(), threading.Event(), threading.Event()

    def process(job: Job[Any]) -> str:
        begun.set()
        gate.wait(_LIMIT_S)
        over.set()
        return "too late"

    queue.add("a")
    worker = Worker[Any](name, process, server.url, options=WorkerOptions(shutdown_timeout=50))
    abandoned, moved = Told(worker, HandlerAbandoned), Told(worker, JobMoved)
    with worker:
        assert begun.wait(_LIMIT_S)
    assert (abandoned.notices[0].job.id, moved.notices[0].how) == ("1", "given-back")
    assert not over.is_set()
    other = Worker[Any](name, nothing, server.url)
    completed = Told(other, JobCompleted)
    with other:
        completed.wait()
        gate.set()
        assert over.wait(_LIMIT_S)
    job = queue.get_job("1")
    assert job is not None
    assert (job.returnvalue, job.attempts_made) == (None, 1)


@pytest.mark.parametrize("force", [False, True])
def test_close_from_a_processor(queue: Queue[Any], server: Server, name: str, force: bool) -> None:
    def process(job: Job[Any]) -> str:
        worker.close(force)
        return "done"

    queue.add("a")
    worker = Worker[Any](name, process, server.url)
    runner = in_thread(worker.run)
    runner.join(_LIMIT_S)
    assert not runner.is_alive()
    assert queue.get_state("1") == ("waiting" if force else "completed")


def test_pause_from_a_processor(queue: Queue[Any], server: Server, name: str) -> None:
    def process(job: Job[Any]) -> None:
        worker.pause()

    queue.add_bulk([NewJob("a"), NewJob("b")])
    worker = Worker[Any](name, process, server.url)
    done = Told(worker, JobCompleted)
    with worker:
        done.wait()
        assert worker.is_paused
        assert queue.get_job_counts("waiting") == {"waiting": 1, "paused": 0}


@pytest.mark.parametrize("runs_in", ["the main thread", "another"])
@pytest.mark.parametrize("kind", [JobActive, JobCompleted, Drained, Paused, Disconnected, Closing, ClosedNotice])
@pytest.mark.parametrize("what", ["close", "pause"])
def test_a_callback_that_asks_its_own_worker_is_not_waited_for_by_itself(
    queue: Queue[Any], server: Server, name: str, what: str, kind: type[Any], runs_in: str
) -> None:
    """On whichever thread it is called: a pool's, the timer's, or that of the user who pauses or closes the worker.
    The shutdown time is far longer than the test's."""
    begun, told = threading.Event(), threading.Event()

    def process(job: Job[Any]) -> None:
        begun.set()
        if kind is Disconnected:
            # The timer's thread alone looks at the connection then.
            assert told.wait(_LIMIT_S)

    def ask(_: object) -> None:
        if what == "close":
            worker.close()
        else:
            worker.pause()
        told.set()

    def cause() -> None:
        assert begun.wait(_LIMIT_S)
        if kind is Disconnected:
            with redis.Redis.from_url(server.url) as killer:
                # A connection that is being made may be none yet.
                while not told.is_set():
                    killer.client_kill_filter(_type="normal", skipme=True)
                    told.wait(1)
        elif kind is Paused:
            worker.pause()
        elif kind in (Closing, ClosedNotice):
            worker.close()
        assert told.wait(_LIMIT_S)
        worker.close()

    queue.add("a")
    worker = Worker[Any](name, process, server.url, options=WorkerOptions(shutdown_timeout=600_000))
    worker.on(kind, ask)
    causing = in_thread(cause)
    if runs_in == "another":
        runner = in_thread(worker.run)
        runner.join(_LIMIT_S)
        assert not runner.is_alive()
    else:
        worker.run()
    causing.join(_LIMIT_S)
    assert not causing.is_alive()
    assert told.is_set()


@pytest.mark.parametrize("error", [SystemExit("bye"), KeyboardInterrupt("stop")], ids=["exit", "interrupt"])
def test_what_ends_programs_fails_only_the_job(
    queue: Queue[Any], server: Server, name: str, error: BaseException
) -> None:
    def process(job: Job[Any]) -> None:
        raise error

    queue.add("a", options=JobOptions(attempts=2))
    worker = Worker[Any](name, process, server.url)
    failed = Told(worker, JobFailed, 2)
    with worker:
        failed.wait()
    job = queue.get_job("1")
    assert job is not None
    assert job.failed_reason == str(error)


_PROGRAM = """
import signal, sys, threading
from bullmq_protocol import WorkerOptions
from bullmq_sync import Worker

# A shell starts what runs in its background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
name, url, how = sys.argv[1:]
gate = threading.Event()

def process(job):
    print("started", flush=True)
    if how == "forced":
        threading.Event().wait()
    gate.wait(20)

worker = Worker(name, process, url, options=WorkerOptions(shutdown_timeout=20_000))
if how == "graceful":
    def stop(*_):
        threading.Timer(0.1, gate.set).start()
        worker.close()
    signal.signal(signal.SIGTERM, stop)
try:
    worker.run()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("over", [t.name for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon], flush=True)
"""


@pytest.mark.parametrize("how", ["graceful", "forced"])
def test_signals(queue: Queue[Any], server: Server, name: str, how: str) -> None:
    queue.add("a")
    command = [sys.executable, "-c", _PROGRAM, name, server.url, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"started\n"
        program.send_signal(signal.SIGTERM if how == "graceful" else signal.SIGINT)
        begun = time.monotonic()
        output = program.stdout.read()
    assert time.monotonic() - begun < 20
    assert program.returncode == 0
    if how == "graceful":
        assert output == b"over []\n"
        assert queue.get_state("1") == "completed"
    else:
        # The job is given back at once, though its handler never ends, and the process ends all the same.
        assert output == b"interrupted\nover []\n"
        assert queue.get_state("1") == "waiting"


def test_transport_of_somebody_else_is_shared_and_stays_open(server: Server, name: str) -> None:
    transport = connect(server.url)
    queue = Queue[Any](name, transport)
    worker = Worker[Any](name, nothing, transport)
    done = Told(worker, JobCompleted)
    with worker:
        queue.add("a")
        done.wait()
    queue.close()
    assert queue.get_job_counts("completed") == {"completed": 1}
    queue.obliterate()
    transport.close()


def test_transport_that_its_owner_closes_ends_the_worker(server: Server, name: str) -> None:
    transport = connect(server.url)
    worker = Worker[Any](name, nothing, transport)
    closed = Told(worker, ClosedNotice)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except Closed as error:
            raised.append(error)

    runner = in_thread(run)
    while not worker.snapshot().listening:
        time.sleep(0.001)
    transport.close()
    runner.join(_LIMIT_S)
    closed.wait()
    assert len(raised) == 1


def test_background_failure_is_raised_at_the_end(name: str) -> None:
    with pytest.raises(UsageError, match="processor"), Worker[Any](name):
        pass


def test_gives_up_on_a_server_that_it_never_met(name: str) -> None:
    transport = connect("redis://127.0.0.1:1")
    worker = Worker[Any](name, nothing, transport, options=WorkerOptions(max_reconnect_attempts=1))
    with pytest.raises(ConnectionLost, match="gave up after 1 attempt"):
        worker.run()
    transport.close()


def test_needs_no_more_threads_than_concurrency(queue: Queue[Any], server: Server, name: str) -> None:
    most = 0

    def process(job: Job[Any]) -> None:
        nonlocal most
        most = max(most, threading.active_count())

    before = threading.active_count()
    for _ in range(4):
        queue.add_bulk([NewJob("a", options=JobOptions(remove_on_complete=True)) for _ in range(500)])
    worker = Worker[Any](name, process, server.url, options=WorkerOptions(concurrency=10))
    done = Told(worker, JobCompleted, 2000)
    with worker:
        done.wait(60)
    # Ten handlers, and beside them: run, the timer, the wait, a fetch, upkeep, the named connection, and one that was
    # woken for a job that another took meanwhile, before it has looked, which takes long on a busy machine.
    assert most - before <= 10 + 7


def test_a_job_given_back_while_its_callback_ran_never_begins(
    queue: Queue[Any], server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another worker's by then."""
    monkeypatch.setattr(thread_pool, "_JOIN_S", 0.05)
    inside, gate = threading.Event(), threading.Event()
    begun: list[str] = []

    def hang(_: JobActive) -> None:
        inside.set()
        assert gate.wait(_LIMIT_S)

    queue.add("a")
    worker = Worker[Any](name, lambda job: begun.append(job.id), server.url)
    worker.on(JobActive, hang)
    runner = in_thread(worker.run)
    assert inside.wait(_LIMIT_S)
    callers = [thread for thread in threading.enumerate() if thread.name.startswith(f"bullmq {name}")]
    worker.close(force=True)
    runner.join(_LIMIT_S)
    assert queue.get_state("1") == "waiting"
    gate.set()
    for thread in callers:
        thread.join(_LIMIT_S)
    assert begun == []


@pytest.mark.parametrize("how", ["after the shutdown time", "by force"])
@pytest.mark.parametrize("kind", [JobActive, JobCompleted, Drained, Closing, ClosedNotice])
def test_a_callback_that_never_returns_holds_up_no_close(
    queue: Queue[Any],
    server: Server,
    name: str,
    kind: type[Any],
    how: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is decided behind it is done all the same: no job stays active."""
    monkeypatch.setattr(thread_pool, "_JOIN_S", 0.1)
    inside, gate, over = threading.Event(), threading.Event(), threading.Event()

    def hang(_: object) -> None:
        inside.set()
        assert gate.wait(_LIMIT_S)

    queue.add_bulk([NewJob("a") for _ in range(6)])
    options = WorkerOptions(concurrency=3, shutdown_timeout=60_000 if how == "by force" else 20)
    worker = Worker[Any](name, nothing, server.url, options=options)
    completed = Told(worker, JobCompleted, 1)
    worker.on(kind, hang)
    runner = in_thread(worker.run)
    if kind in (Closing, ClosedNotice):
        completed.wait()
    else:
        assert inside.wait(_LIMIT_S)
    # Where the one who closes tells of it, its own thread is in the callback.
    closing = in_thread(lambda: (worker.close(force=how == "by force"), over.set()))
    runner.join(_LIMIT_S)
    assert not runner.is_alive()
    assert inside.is_set()
    counts = queue.get_job_counts("waiting", "active", "completed", "failed")
    assert (counts["active"], counts["failed"], counts["waiting"] + counts["completed"]) == (0, 0, 6)
    assert f"waits no longer for what does not return: a callback for {kind.__name__}" in caplog.text
    if kind not in (Closing, ClosedNotice):
        assert over.wait(_LIMIT_S)
    gate.set()
    closing.join(_LIMIT_S)
    assert queue.get_job_counts("waiting", "active", "completed", "failed") == counts


def test_a_running_job_is_given_back_though_a_callback_that_never_returns_is_before_it(
    queue: Queue[Any], server: Server, name: str
) -> None:
    """The thread that has it would have taken the job back."""
    inside, begun, gate = threading.Event(), threading.Event(), threading.Event()

    def hang(_: Closing) -> None:
        inside.set()
        assert gate.wait(_LIMIT_S)

    def process(job: Job[Any]) -> None:
        begun.set()
        assert gate.wait(_LIMIT_S)

    queue.add("a")
    worker = Worker[Any](name, process, server.url)
    worker.on(Closing, hang)
    runner = in_thread(worker.run)
    assert begun.wait(_LIMIT_S)
    closing = in_thread(lambda: worker.close(force=True))
    runner.join(_LIMIT_S)
    assert not runner.is_alive()
    assert inside.is_set()
    assert queue.get_state("1") == "waiting"
    gate.set()
    closing.join(_LIMIT_S)


@pytest.mark.parametrize("how", ["after the shutdown time", "by force"])
def test_a_strategy_that_never_returns_holds_up_no_close(
    queue: Queue[Any],
    server: Server,
    name: str,
    how: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a callback: its thread is left behind, and its job given back."""
    monkeypatch.setattr(thread_pool, "_JOIN_S", 4 * _LIMIT_S)
    inside, gate = threading.Event(), threading.Event()

    def hang(attempt: int, kind: str, error: BaseException, job: Job[Any]) -> int:
        inside.set()
        assert gate.wait(_LIMIT_S)
        return 0

    def process(job: Job[Any]) -> None:
        raise LookupError

    queue.add("a", {}, JobOptions(attempts=3, backoff=Backoff("mine", 1)))
    options = WorkerOptions(shutdown_timeout=60_000 if how == "by force" else 20)
    worker = Worker[Any](name, process, server.url, backoff_strategy=hang, options=options)
    runner = in_thread(worker.run)
    assert inside.wait(_LIMIT_S)
    callers = [thread for thread in threading.enumerate() if thread.name.startswith(f"bullmq {name}")]
    worker.close(force=how == "by force")
    runner.join(_LIMIT_S)
    # Nobody has waited for it until it returned.
    assert not gate.is_set()
    assert any(thread.is_alive() for thread in callers)
    assert "waits no longer for what does not return: the backoff strategy" in caplog.text
    assert queue.get_state("1") == "waiting"
    gate.set()
    for thread in callers:
        thread.join(_LIMIT_S)
    job = queue.get_job("1")
    assert job is not None
    assert (job.attempts_made, queue.get_state("1")) == (0, "waiting")


def test_a_job_does_not_wait_for_callbacks_of_others(queue: Queue[Any], server: Server, name: str) -> None:
    """Nobody else is on the way while the thread that brought both jobs is held up."""
    ran = threading.Event()
    waited: list[bool] = []

    def hold(notice: JobActive) -> None:
        if notice.job.name == "second":
            waited.append(ran.wait(_LIMIT_S))

    def process(job: Job[Any]) -> None:
        if job.name == "first":
            ran.set()

    options = WorkerOptions(concurrency=2, stalled_interval=600_000)
    worker = Worker[Any](name, process, server.url, options=options)
    worker.on(JobActive, hold)
    completed = Told(worker, JobCompleted, 2)
    with worker:
        while not worker.snapshot().listening:
            time.sleep(0.005)
        queue.add_bulk([NewJob("first"), NewJob("second")])
        assert completed.wait(_LIMIT_S)
    assert waited == [True]


def test_a_wait_that_is_called_off_before_it_begins_never_begins(
    queue: Queue[Any], server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread comes late: the connection on which it would wait is closed by then, and it opens no other."""
    worker = Worker[Any](name, nothing, server.url, options=WorkerOptions(drain_delay=4 * _LIMIT_S))
    contact = worker._driver._contact
    wait, cancel_wait = contact.wait, contact.cancel_wait
    called_off = threading.Event()

    def wait_late(action: Any) -> Any:
        assert called_off.wait(_LIMIT_S)
        return wait(action)

    def call_off(ticket: int) -> None:
        cancel_wait(ticket)
        called_off.set()

    monkeypatch.setattr(contact, "wait", wait_late)
    monkeypatch.setattr(contact, "cancel_wait", call_off)
    with worker:
        while not worker.snapshot().listening:
            time.sleep(0.005)
        pausing = in_thread(worker.pause)
        pausing.join(_LIMIT_S)
        assert not pausing.is_alive()
        assert not worker.snapshot().listening


def test_a_wait_that_is_called_off_as_it_begins_ends(
    queue: Queue[Any], server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread has found that it is to wait, and has no connection yet: it does not open one that nobody closes."""
    worker = Worker[Any](name, nothing, server.url, options=WorkerOptions(drain_delay=4 * _LIMIT_S))
    driver = worker._driver
    named, cancel_wait = driver.connections.named, driver._contact.cancel_wait
    pausing: list[threading.Thread] = []
    called_off = threading.Event()

    def find(**given: Any) -> Any:
        if driver._hands.pool.mine() and not pausing:
            pausing.append(in_thread(worker.pause))
            # It comes as soon as it can: where it has to wait for this thread, that is later.
            called_off.wait(0.2)
        return named(**given)

    def call_off(ticket: int) -> None:
        cancel_wait(ticket)
        called_off.set()

    monkeypatch.setattr(driver.connections, "named", find)
    monkeypatch.setattr(driver._contact, "cancel_wait", call_off)
    with worker:
        while not pausing:
            time.sleep(0.005)
        pausing[0].join(_LIMIT_S)
        assert not pausing[0].is_alive()
        assert not worker.snapshot().listening


def test_a_callback_that_returns_in_time_is_not_named(
    queue: Queue[Any], server: Server, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's threads may be over while who closes it still tells of that."""
    inside, begun, joined = threading.Event(), threading.Event(), threading.Event()

    def process(job: Job[Any]) -> None:
        begun.set()
        assert inside.wait(_LIMIT_S)

    def tell(_: Closing) -> None:
        inside.set()
        assert joined.wait(_LIMIT_S)

    def join(*args: Any) -> None:
        real(*args)
        joined.set()

    queue.add("a")
    worker = Worker[Any](name, process, server.url, options=WorkerOptions(shutdown_timeout=_LIMIT_S * 1000))
    worker.on(Closing, tell)
    real = worker._driver._hands.pool.join
    monkeypatch.setattr(worker._driver._hands.pool, "join", join)
    runner = in_thread(worker.run)
    assert begun.wait(_LIMIT_S)
    worker.close()
    runner.join(_LIMIT_S)
    assert caplog.text == ""


def test_slow_log_handler_does_no_harm(queue: Queue[Any], server: Server, name: str) -> None:
    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            time.sleep(0.02)

    logger = logging.getLogger("bullmq_sync")
    handler = Slow()
    logger.addHandler(handler)
    level, logger.level = logger.level, logging.DEBUG
    try:
        queue.add_bulk([NewJob("a") for _ in range(20)])
        worker = Worker[Any](name, nothing, server.url, options=WorkerOptions(concurrency=5))
        done = Told(worker, JobCompleted, 20)
        with worker:
            done.wait()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert queue.get_job_counts("completed") == {"completed": 20}


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit()], ids=lambda each: type(each).__name__)
def test_what_is_no_exception_fails_its_job_and_no_other(
    queue: Queue[Any], server: Server, error: BaseException
) -> None:
    def process(job: Job[Any]) -> None:
        if job.data == "odd":
            raise error
        assert failed.wait(_LIMIT_S)

    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=2))
    failed, completed = Told(worker, JobFailed), Told(worker, JobCompleted)
    queue.add_bulk([NewJob("n", "odd"), NewJob("n", "good")])
    with worker:
        assert completed.wait(_LIMIT_S)
    counts = queue.get_job_counts("active", "completed", "failed")
    assert counts == {"active": 0, "completed": 1, "failed": 1}


def test_the_body_does_not_begin_beside_a_worker_that_cannot_work(queue: Queue[Any], server: Server) -> None:
    begun = False
    with pytest.raises(UsageError, match="processor"), Worker(queue.name, None, server.url):
        begun = True
    assert begun is False


def test_a_worker_whose_name_the_server_refuses_works_unnamed(queue: Queue[Any], server: Server) -> None:
    worker = Worker(queue.name, lambda job: None, server.url, options=WorkerOptions(name="two words ü"))
    completed = Told(worker, JobCompleted)
    with worker:
        queue.add("n")
        assert completed.wait(_LIMIT_S)
    assert worker.is_running is False
