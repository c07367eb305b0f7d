"""`run_workers` in programs of their own, ended by signals."""

import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import UsageError, WorkerOptions
from bullmq_protocol.errors import ConnectionLost
from bullmq_protocol.worker.notices import Drained
from bullmq_sync import Queue
from tests.support.adapters import NAMES
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

_ROOT = Path(__file__).parents[2]

_ANYIO = """
import logging, sys
import anyio
from bullmq_anyio import Worker, run_workers
from bullmq_protocol import WorkerOptions
from bullmq_protocol.worker.notices import Closing

name, url, adapter, shutdown = sys.argv[1:]
logging.basicConfig(format="%(message)s")

async def process(job):
    print("started", flush=True)
    if job.name == "long":
        await anyio.sleep_forever()
    await anyio.to_thread.run_sync(sys.stdin.readline)

async def main():
    options = WorkerOptions(shutdown_timeout=int(shutdown))
    workers = [Worker(each, process, url, options=options) for each in (name, name + "-idle")]
    workers[0].on(Closing, lambda _: print("closing", flush=True))
    print(await run_workers(*workers), flush=True)

anyio.run(main, backend=adapter)
"""

_THREADS = """
import logging, sys, threading
from bullmq_protocol import WorkerOptions
from bullmq_protocol.worker.notices import Closing
from bullmq_sync import Worker, run_workers

name, url, adapter, shutdown = sys.argv[1:]
logging.basicConfig(format="%(message)s")

def process(job):
    print("started", flush=True)
    if job.name == "long":
        threading.Event().wait()
    sys.stdin.readline()

options = WorkerOptions(shutdown_timeout=int(shutdown))
workers = [Worker(each, process, url, options=options) for each in (name, name + "-idle")]
workers[0].on(Closing, lambda _: print("closing", flush=True))
print(run_workers(*workers), flush=True)
"""


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT have its usual handler: a shell starts what runs in its background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


@contextmanager
def program(kind: str, server: Server, name: str, *, shutdown: int, text: str = "") -> Generator[subprocess.Popen[str]]:
    text = text or (_THREADS if kind == "threads" else _ANYIO)
    command = [sys.executable, "-c", text, name, server.url, kind, str(shutdown)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=_ROOT
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def ended(started: subprocess.Popen[str]) -> tuple[str, str, int]:
    """Return the rest of what it printed, its errors, and its exit code."""
    # `communicate` would lose what `readline` has read ahead.
    assert started.stdout is not None
    assert started.stderr is not None
    return started.stdout.read().rstrip(), started.stderr.read(), started.wait()


def line(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().rstrip()


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_lets_running_jobs_end(
    queue: Queue[Any], server: Server, name: str, kind: str, number: signal.Signals
) -> None:
    job = queue.add("short", 1)
    with program(kind, server, name, shutdown=60_000) as started:
        assert line(started) == "started"
        started.send_signal(number)
        assert line(started) == "closing"
        assert started.stdin is not None
        started.stdin.write("go on\n")
        started.stdin.flush()
        assert ended(started) == (str(number), "", 0)
    assert queue.get_state(job.id) == "completed"


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize(("shutdown", "signals"), [(10, 1), (0, 1), (60_000, 2)], ids=["soon", "at-once", "second"])
def test_jobs_are_given_back_at_once(
    queue: Queue[Any], server: Server, name: str, kind: str, shutdown: int, signals: int
) -> None:
    job = queue.add("long", 1)
    with program(kind, server, name, shutdown=shutdown) as started:
        assert line(started) == "started"
        started.send_signal(signal.SIGTERM)
        assert line(started) == "closing"
        if signals == 2:
            started.send_signal(signal.SIGINT)
        output, errors, code = ended(started)
    # Not after the lock of 30 s: another worker may have it now, and no attempt was counted.
    assert queue.get_state(job.id) == "waiting"
    found = queue.get_job(job.id)
    assert found is not None
    assert found.attempts_made == 0
    assert (output, code) == (str(signal.SIGTERM), 0)
    warning = (
        f"the handler of job {job.id} of {name} still ran when the worker let go of it; its result is not stored\n"
    )
    assert errors == (warning if kind == "threads" else "")


def test_the_error_of_one_worker_ends_all(server: Server, name: str) -> None:
    options = WorkerOptions(max_reconnect_attempts=1, max_reconnect_delay=1)
    nowhere = "redis://127.0.0.1:1"
    threads = [
        bullmq_sync.Worker[Any](name, print, server.url),
        bullmq_sync.Worker[Any](name, print, nowhere, options=options),
    ]
    with pytest.raises(ConnectionLost):
        bullmq_sync.run_workers(*threads)
    assert not any(worker.is_running for worker in threads)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_the_error_of_one_worker_ends_all_tasks(server: Server, name: str, backend: str) -> None:
    async def process(_: object) -> None:
        pass

    async def main() -> None:
        options = WorkerOptions(max_reconnect_attempts=1, max_reconnect_delay=1)
        workers = [
            bullmq_anyio.Worker[Any](name, process, server.url),
            bullmq_anyio.Worker[Any](name, process, "redis://127.0.0.1:1", options=options),
        ]
        with pytest.raises(ConnectionLost):
            await bullmq_anyio.run_workers(*workers)
        assert not any(worker.is_running for worker in workers)

    anyio.run(main, backend=backend)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ends_when_all_workers_are_closed(server: Server, name: str, backend: str) -> None:

    async def main() -> None:
        async def process(_: object) -> None:
            await worker.aclose()

        worker = bullmq_anyio.Worker[Any](name, process, server.url)
        async with bullmq_anyio.Queue[Any](name, server.url) as queue:
            await queue.add("a")
            assert await bullmq_anyio.run_workers(worker) is None
            await queue.obliterate(force=True)

    anyio.run(main, backend=backend)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ends_when_all_workers_on_threads_are_closed(queue: Queue[Any], server: Server, name: str) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    def process(_: object) -> None:
        worker.close()

    worker = bullmq_sync.Worker[Any](name, process, server.url)
    queue.add("a")
    assert bullmq_sync.run_workers(worker) is None
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_refuses_other_threads_and_no_workers(server: Server, name: str) -> None:
    refused: list[UsageError] = []

    def elsewhere() -> None:
        for call in (
            lambda: bullmq_sync.run_workers(bullmq_sync.Worker[Any](name, print, server.url)),
            lambda: anyio.run(bullmq_anyio.run_workers, bullmq_anyio.Worker[Any](name, None, server.url)),
        ):
            with pytest.raises(
                UsageError, match=r"receives signals in the main thread only: use Worker\.run here"
            ) as caught:
                call()
            refused.append(caught.value)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(refused) == 2
    with pytest.raises(UsageError, match="one or more workers"):
        bullmq_sync.run_workers()
    with pytest.raises(UsageError, match="one or more workers"):
        anyio.run(bullmq_anyio.run_workers)


def test_refuses_workers_of_the_other_package_and_lists(server: Server, name: str) -> None:
    async def process(_: object) -> None:
        pass

    ours, others = bullmq_sync.Worker[Any](name, print, server.url), bullmq_anyio.Worker[Any](name, process, server.url)
    for wrong in (others, [ours], 5):
        with pytest.raises(UsageError, match="must be workers of bullmq_sync"):
            bullmq_sync.run_workers(wrong)  # type: ignore[arg-type]
    for wrong in (ours, [others], None):
        with pytest.raises(UsageError, match="must be workers of bullmq_anyio"):
            anyio.run(bullmq_anyio.run_workers, wrong)


_SERVER = """
import os, signal, sys, threading
import anyio
import bullmq_anyio, bullmq_sync
from bullmq_protocol.worker.notices import Drained

name, url, adapter, _ = sys.argv[1:]
again = threading.Event()
reported = []

def own(number, frame):
    # What a web server has: the second signal comes while it shuts down.
    reported.append(number)
    print("own", number, flush=True)
    if len(reported) == 2:
        again.set()

for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, own)

def drained(_):
    print("started", flush=True)

async def process(job):
    pass

async def main():
    worker = bullmq_anyio.Worker(name, process, url)
    worker.on(Drained, drained)
    print("ran", await bullmq_anyio.run_workers(worker), flush=True)
    while not again.is_set():
        await anyio.sleep(0.01)

if adapter == "threads":
    worker = bullmq_sync.Worker(name, print, url)
    worker.on(Drained, drained)
    print("ran", bullmq_sync.run_workers(worker), flush=True)
    again.wait()
else:
    anyio.run(main, backend=adapter)
print("lifespan closed", flush=True)
"""


@pytest.mark.parametrize("kind", NAMES)
def test_the_programs_own_handlers_hear_of_the_signal_and_of_the_next(server: Server, name: str, kind: str) -> None:
    with program(kind, server, name, shutdown=0, text=_SERVER) as started:
        assert line(started) == "started"
        started.send_signal(signal.SIGTERM)
        assert [line(started), line(started)] == [f"own {signal.SIGTERM:d}", f"ran {signal.SIGTERM}"]
        started.send_signal(signal.SIGTERM)
        assert ended(started) == (f"own {signal.SIGTERM:d}\nlifespan closed", "", 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_handlers_are_given_back_whatever_ends_the_run(server: Server, name: str, backend: str) -> None:
    def own(*_: object) -> None:
        """The program's own."""

    async def process(_: object) -> None:
        """Nothing is added."""

    async def main() -> None:
        worker = bullmq_anyio.Worker[Any](name, process, server.url)
        drained = anyio.Event()
        worker.on(Drained, lambda _: drained.set())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bullmq_anyio.run_workers, worker)
            await drained.wait()
            assert signal.getsignal(signal.SIGTERM) is not own
            tasks.cancel_scope.cancel()
        assert signal.getsignal(signal.SIGTERM) is own

    before = signal.signal(signal.SIGTERM, own)
    try:
        anyio.run(main, backend=backend)
    finally:
        signal.signal(signal.SIGTERM, before)
