"""Forks in the user's code on asyncio and trio: a child that leaves it ends, and touches nothing of its parent's."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
import sniffio
import trio

from bullmq_anyio import Job, Queue, QueueEvents, Worker
from bullmq_protocol import JobOptions, NewJob, WorkerOptions
from bullmq_protocol.events.stream import AddedEvent
from bullmq_protocol.model.options import Backoff
from bullmq_protocol.worker.notices import JobCompleted
from tests.support.servers import Server

pytestmark = [pytest.mark.any_server, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]

_JOBS = 12
_WAYS = {"returns": 0, "raises": 1, "exits": 3, "exits with nothing": 0, "exits with words": 1}


@pytest.fixture
async def queue(anyio_backend: object, server: Server, name: str) -> AsyncIterator[Queue[Any]]:
    queue: Queue[Any] = Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


class Forking:
    """Forks, twice in all; the children leave in one way."""

    def __init__(self, way: str) -> None:
        self._way = way
        self.children: list[int] = []

    def __call__(self) -> None:
        """Go on in the parent, and in a child that returns."""
        if len(self.children) == 2:
            return
        child = os.fork()
        if child:
            self.children.append(child)
            return
        # Whatever goes wrong there, nothing is left of it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        if self._way == "raises":
            raise ValueError("the child's")
        if self._way.startswith("exits"):
            sys.exit({"exits": 3, "exits with words": "words"}.get(self._way))

    def statuses(self) -> list[int]:
        """Wait for the children; return how they ended."""
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in self.children]


@pytest.mark.parametrize("way", list(_WAYS))
@pytest.mark.parametrize("where", ["handler", "callback", "async callback", "strategy", "async strategy"])
async def test_a_child_that_leaves_the_users_code_ends(
    queue: Queue[Any], server: Server, name: str, where: str, way: str
) -> None:
    fork = Forking(way)
    done = anyio.Event()
    completed: list[str] = []

    async def process(job: Job[Any]) -> str:
        await anyio.sleep(0.001)
        if where == "handler":
            fork()
        elif where.endswith("strategy") and job.attempts_made == 0:
            raise ValueError("the first attempt")
        return str(os.getpid())

    def strategy(*_: object) -> Any:
        async def later() -> int:
            await anyio.lowlevel.checkpoint()
            fork()
            return 1

        if where == "async strategy":
            return later()
        if where == "strategy":
            fork()
        return 1

    def note(notice: JobCompleted) -> Any:
        completed.append(notice.job.id)
        if len(completed) == _JOBS:
            done.set()

        async def later() -> None:
            await anyio.lowlevel.checkpoint()
            fork()

        if where == "async callback":
            return later()
        if where == "callback":
            fork()
        return None

    worker = Worker(name, process, server.url, options=WorkerOptions(concurrency=4), backoff_strategy=strategy)
    worker.on(JobCompleted, note)
    options = JobOptions(attempts=2, backoff=Backoff("own"))
    jobs = await queue.add_bulk([NewJob("n", None, options) for _ in range(_JOBS)])
    with anyio.fail_after(30):
        async with worker:
            await done.wait()
    assert fork.statuses() == [_WAYS[way]] * 2
    for job in jobs:
        await job.refresh()
        assert job.returnvalue == str(os.getpid())


@pytest.mark.parametrize("way", list(_WAYS))
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_child_that_leaves_a_callback_of_events_ends(
    queue: Queue[Any], server: Server, name: str, is_async: bool, way: str
) -> None:
    fork = Forking(way)
    reported: list[str] = []
    done = anyio.Event()

    def note(event: AddedEvent) -> None:
        fork()
        reported.append(event.job_id)
        if len(reported) == _JOBS:
            done.set()

    async def note_later(event: AddedEvent) -> None:
        await anyio.lowlevel.checkpoint()
        note(event)

    with anyio.fail_after(30):
        async with QueueEvents(name, server.url) as events:
            events.on(AddedEvent, note_later if is_async else note)
            jobs = await queue.add_bulk([NewJob("n") for _ in range(_JOBS)])
            await done.wait()
    assert reported == [job.id for job in jobs]
    assert fork.statuses() == [_WAYS[way]] * 2


@pytest.mark.parametrize("goes_on", [True, False], ids=["goes on", "ends"])
@pytest.mark.parametrize("where", ["handler", "task of a handler", "task of a callback"])
async def test_a_child_that_gives_control_back_to_the_event_loop_ends(
    queue: Queue[Any], server: Server, name: str, where: str, goes_on: bool
) -> None:
    """Else the tasks of its parent's worker go on in it, on the parent's sockets."""
    children: list[int] = []
    forked, done = anyio.Event(), anyio.Event()
    completed: list[str] = []

    async def fork() -> None:
        child = os.fork()
        if child:
            children.append(child)
            forked.set()
            return
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)
        if goes_on or where == "handler":
            await (trio.lowlevel.checkpoint() if is_trio else asyncio.sleep(0))
            os._exit(7)

    async def process(job: Job[Any]) -> str:
        if job.id == "1":
            if where == "handler":
                await fork()
            elif where == "task of a handler":
                tasks.start_soon(fork)
        await anyio.sleep(0.001)
        return str(os.getpid())

    def note(notice: JobCompleted) -> None:
        completed.append(notice.job.id)
        if len(completed) == 1 and where == "task of a callback":
            tasks.start_soon(fork)
        if len(completed) == _JOBS:
            done.set()

    is_trio = sniffio.current_async_library() == "trio"
    worker = Worker(name, process, server.url)
    worker.on(JobCompleted, note)
    jobs = await queue.add_bulk([NewJob("n") for _ in range(_JOBS)])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, worker:
            await forked.wait()
            (child,) = children
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            await done.wait()
    for job in jobs:
        await job.refresh()
        assert (job.returnvalue, job.attempts_made) == (str(os.getpid()), 1)


async def test_a_child_of_a_thread_touches_nothing(queue: Queue[Any], server: Server, name: str) -> None:
    """It has no event loop: the thread comes back to nobody, and waits."""
    children: list[int] = []
    done = anyio.Event()
    completed: list[str] = []

    def fork() -> None:
        child = os.fork()
        if child:
            children.append(child)
            return
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)

    async def process(job: Job[Any]) -> str:
        if job.id == "1":
            await anyio.to_thread.run_sync(fork)
        return str(os.getpid())

    def note(notice: JobCompleted) -> None:
        completed.append(notice.job.id)
        if len(completed) == _JOBS:
            done.set()

    worker = Worker(name, process, server.url, options=WorkerOptions(concurrency=4))
    worker.on(JobCompleted, note)
    jobs = await queue.add_bulk([NewJob("n") for _ in range(_JOBS)])
    with anyio.fail_after(30):
        async with worker:
            await done.wait()
    (child,) = children
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(completed) == _JOBS
    for job in jobs:
        await job.refresh()
        assert (job.returnvalue, job.attempts_made) == (str(os.getpid()), 1)
