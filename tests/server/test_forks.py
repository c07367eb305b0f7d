"""Real forks of processes with threads: the child gets what it can use, and never waits for the parent's threads."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bullmq_protocol import NewJob, UsageError, WorkerOptions
from bullmq_protocol.worker.notices import Drained, JobActive, JobCompleted
from bullmq_sync import Job, Queue, QueueEvents, Worker
from bullmq_sync.thread_pool import ThreadPool
from bullmq_sync.time_limit import Alarms
from tests.support.clients import OwnClient
from tests.support.servers import Server

pytestmark = [
    pytest.mark.any_server,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
]

_LIMIT_S = 60


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


def child(act: Callable[[], object]) -> int:
    """Fork; return the child's id. It ends with 0 when `act` returns something true, with 1 otherwise."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.alarm(30)
        code = 0 if act() else 1
    finally:
        os._exit(code)


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except UsageError as error:
        return "runs in the process that this one was forked from" in str(error)
    return False


@pytest.mark.parametrize("transport", [str, OwnClient], ids=["native", "client"])
def test_child_uses_a_queue_whose_first_call_is_under_way(server: Server, name: str, transport: Any) -> None:
    """The lock of that call is held by a thread that the child has not."""
    for number in range(10):
        connection = transport(server.url)
        queue = Queue[Any](name, connection)
        begun = threading.Event()

        def call(queue: Queue[Any] = queue, begun: threading.Event = begun) -> None:
            begun.set()
            queue.add("parent's")

        thread = threading.Thread(target=call)
        thread.start()
        begun.wait()
        time.sleep(0.0002 * number)
        pid = child(lambda queue=queue: queue.add("child's"))  # type: ignore[misc]
        assert status_of(pid) == 0
        thread.join()
        queue.close()
        if transport is not str:
            connection.close()
    with Queue[Any](name, server.url) as queue:
        assert queue.count() == 20
        queue.obliterate(force=True)


def test_a_child_has_alarms_of_its_own() -> None:
    """The thread that serves those of the parent is not there, and its lock may be held."""
    alarms = Alarms()
    parents = alarms.set(3_600, print)

    def act() -> bool:
        called = threading.Event()
        alarms.set(0, called.set)
        return called.wait(20) and not alarms._waiting

    with alarms._changed:
        pid = child(act)
    assert status_of(pid) == 0
    alarms.take_back(parents)


def test_locks_that_are_held_at_the_fork_are_renewed(queue: Queue[Any], server: Server) -> None:
    """Each object, with its lock held by another thread at that very moment."""
    worker, events = Worker(queue.name, lambda job: None, server.url), QueueEvents(queue.name, server.url)
    transport = OwnClient(server.url)
    over = threading.Event()
    held = [
        queue._lock,
        queue._transport.transport._lock,  # type: ignore[attr-defined]
        worker._driver._threads.lock,
        worker._driver._hands.pool._lock,
        events._lock,
        transport._lock,
        transport.client.connection_pool._lock,
        transport.client.connection_pool._fork_lock,
    ]
    locked = threading.Event()

    def hold() -> None:
        for lock in held:
            lock.acquire()
        locked.set()
        over.wait()
        for lock in held:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    locked.wait()

    def use() -> bool:
        done = threading.Event()
        worker.on(JobCompleted, lambda notice: done.set())
        with events, worker:
            job = queue.add("n")
            job.wait_until_finished(events, 20_000)
            return done.wait(20) and Queue[Any](queue.name, transport).count() == 0

    pid = child(use)
    over.set()
    thread.join()
    assert status_of(pid) == 0


def test_a_worker_that_runs_stays_the_parents(queue: Queue[Any], server: Server) -> None:
    done = threading.Event()
    worker = Worker(queue.name, lambda job: None, server.url)
    worker.on(JobCompleted, lambda notice: done.set())
    notices = worker.notices()

    def use() -> bool:
        calls: list[Callable[[], object]] = [
            worker.run,
            worker.__enter__,
            worker.pause,
            worker.resume,
            worker.get_next_job,
            worker.snapshot,
            worker.notices,
            lambda: worker.on(JobCompleted, print),
            lambda: setattr(worker, "concurrency", 3),
            lambda: worker.complete(taken),
            lambda: worker.fail(taken, ValueError("no")),
            lambda: worker.extend_lock(taken),
        ]
        found = [refused(call) for call in calls]
        worker.close()
        worker.__exit__(None, None, None)
        # It ends, after the parent's notices from before the fork.
        reported = {type(notice) for notice in notices}
        return all(found) and not worker.is_running and reported <= {Drained}

    queue.add("n")
    other = Worker(queue.name, None, server.url)
    taken = other.get_next_job()
    assert taken is not None
    drained = threading.Event()
    worker.on(Drained, lambda notice: drained.set())
    with worker:
        assert drained.wait(_LIMIT_S)
        assert status_of(child(use)) == 0
        # The parent's goes on.
        queue.add("n")
        assert done.wait(_LIMIT_S)
    other.complete(taken)
    other.close()


def test_a_worker_that_has_not_begun_works_in_each_child(queue: Queue[Any], server: Server) -> None:
    """With tokens of its own."""
    worker = Worker(queue.name, lambda job: job.token, server.url)
    taken: list[str] = []

    def work() -> bool:
        done = threading.Event()
        worker.on(JobCompleted, lambda notice: done.set())
        with worker:
            return done.wait(20)

    for _ in range(3):
        queue.add("n")
        assert status_of(child(work)) == 0
    taken = [job.returnvalue for job in queue.get_completed()]
    assert len(set(taken)) == 3
    worker.close()


def test_jobs_taken_manually_in_a_child_have_tokens_of_its_own(queue: Queue[Any], server: Server) -> None:
    """Else the child could end the parent's jobs."""
    worker = Worker(queue.name, None, server.url)
    queue.add_bulk([NewJob("n"), NewJob("n")])

    def take() -> bool:
        job = worker.get_next_job(block=False)
        return job is not None and worker.complete(job, job.token) is None

    assert status_of(child(take)) == 0
    (done,) = queue.get_completed()
    taken = worker.get_next_job(block=False)
    assert taken is not None and taken.token != done.returnvalue
    worker.complete(taken)
    worker.close()


@pytest.mark.parametrize("way", ["returns", "raises"])
def test_child_that_leaves_a_handler_stores_nothing(queue: Queue[Any], server: Server, way: str) -> None:
    """Its thread ends, and with it the process; the parent's result counts."""
    pids: list[int] = []
    done = threading.Event()

    def process(job: Job[Any]) -> str:
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            if way == "raises":
                raise ValueError("the child's")
            return "the child's"
        pids.append(pid)
        os.waitpid(pid, 0)
        return "the parent's"

    worker = Worker(queue.name, process, server.url)
    worker.on(JobCompleted, lambda notice: done.set())
    with worker:
        queue.add_bulk([NewJob("n")])
        assert done.wait(_LIMIT_S)
    job = queue.get_job("1")
    assert job is not None
    assert (job.returnvalue, job.attempts_made, len(pids)) == ("the parent's", 1, 1)
    assert queue.get_job_counts("failed", "active") == {"failed": 0, "active": 0}


def test_child_that_leaves_a_callback_does_nothing(queue: Queue[Any], server: Server) -> None:
    done = threading.Event()
    pids: list[int] = []

    def fork(notice: JobCompleted) -> None:
        if not pids:
            pid = os.fork()
            if pid == 0:
                signal.alarm(30)
                return
            pids.append(pid)
            os.waitpid(pid, 0)

    worker = Worker(queue.name, lambda job: None, server.url)
    worker.on(JobCompleted, fork)
    ended: list[Any] = []

    def note(notice: JobCompleted) -> None:
        ended.append(notice)
        if len(ended) == 5:
            done.set()

    worker.on(JobCompleted, note)
    with worker:
        queue.add_bulk([NewJob("n") for _ in range(5)])
        assert done.wait(_LIMIT_S)
    assert queue.get_job_counts("completed", "active", "wait") == {"completed": 5, "active": 0, "wait": 0, "paused": 0}


def test_events_in_a_child_begin_anew(queue: Queue[Any], server: Server) -> None:
    events = QueueEvents(queue.name, server.url)

    def use() -> bool:
        if events.is_running:
            return False
        with events:
            return events.is_running

    with events:
        assert status_of(child(use)) == 0
        assert events.is_running


def test_child_that_leaves_a_callback_calls_no_other(queue: Queue[Any], server: Server) -> None:
    reader, writer = os.pipe()
    pids: list[int] = []
    done = threading.Event()

    def fork(notice: JobCompleted) -> None:
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            return
        pids.append(pid)
        os.waitpid(pid, 0)

    def tell(notice: JobCompleted) -> None:
        os.write(writer, b"%d " % os.getpid())
        done.set()

    worker = Worker(queue.name, lambda job: None, server.url)
    worker.on(JobCompleted, fork)
    worker.on(JobCompleted, tell)
    with worker:
        queue.add("n")
        assert done.wait(_LIMIT_S)
    os.close(writer)
    assert os.read(reader, 100) == b"%d " % os.getpid()
    os.close(reader)
    assert len(pids) == 1


def test_child_that_leaves_a_handler_runs_no_other_job(
    queue: Queue[Any], server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were fetched with its own are ready while it forks."""
    reader, writer = os.pipe()
    submit, forked = ThreadPool.submit, threading.Event()
    completed: list[JobCompleted] = []
    done = threading.Event()

    def later(pool: ThreadPool, task: Any) -> None:
        # The other jobs' threads come when the fork is made.
        if task is None and started.is_set():
            threading.Thread(target=lambda: (forked.wait(_LIMIT_S), submit(pool, task)), daemon=True).start()
        else:
            submit(pool, task)

    started = threading.Event()

    def process(job: Job[Any]) -> None:
        os.write(writer, b"%d " % os.getpid())
        if job.id != "1":
            return
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            return
        os.waitpid(pid, 0)
        forked.set()

    def note(notice: JobCompleted) -> None:
        completed.append(notice)
        if len(completed) == 6:
            done.set()

    monkeypatch.setattr(ThreadPool, "submit", later)
    queue.add_bulk([NewJob("n") for _ in range(6)])
    worker = Worker(queue.name, process, server.url, options=WorkerOptions(concurrency=6))
    worker.on(JobCompleted, note)
    worker.on(JobActive, lambda notice: started.set())
    with worker:
        assert done.wait(_LIMIT_S)
    os.close(writer)
    assert set(os.read(reader, 1000).split()) == {b"%d" % os.getpid()}
    os.close(reader)


def test_child_of_a_thread_of_a_handler_ends_with_its_thread(queue: Queue[Any], server: Server) -> None:
    pids: list[int] = []
    done = threading.Event()

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            return
        pids.append(pid)

    def process(job: Job[Any]) -> list[int]:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        return [os.getpid(), status_of(pids[-1])]

    worker = Worker(queue.name, process, server.url)
    worker.on(JobCompleted, lambda notice: done.set())
    with worker:
        queue.add("n")
        assert done.wait(_LIMIT_S)
    (job,) = queue.get_completed()
    assert (job.returnvalue, job.attempts_made) == ([os.getpid(), 0], 1)
    assert queue.get_job_counts("failed", "active") == {"failed": 0, "active": 0}
