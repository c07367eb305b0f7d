"""Add 10,000 jobs and work them off on a server of its own: `make demo`.

The server is that of `BULLMQ_TEST_REDIS_URL`, else a `redis-server` or `valkey-server` on PATH, else a program out of
a wheel. Every 50th job fails at its first attempt and is retried with backoff; one job is delayed by a second.
"""

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bullmq_anyio import Job, Queue, Worker
from bullmq_protocol import Backoff, JobOptions, NewJob, WorkerOptions
from bullmq_protocol.testing.server import NoServer
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from examples.server import find_program

JOBS = 10_000
CHUNK = 500
EVERY_FAILING = 50
DELAYED = JOBS // 2
START_S = 10.0


class Progress:
    """A bar that moves where stdout is a terminal, and a line per tenth where it is not."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total = title, total
        self._moves = sys.stdout.isatty()
        self._shown = -1

    def show(self, done: int) -> None:
        steps = 100 if self._moves else 10
        step = done * steps // self._total
        if step == self._shown:
            return
        self._shown = step
        if self._moves:
            filled = done * 40 // self._total
            end = "\n" if done == self._total else ""
            print(f"\r{self._title:<8} [{'█' * filled:<40}] {done:>6,}", end=end, flush=True)
        else:
            print(f"{self._title} {done * 100 // self._total} %", flush=True)


async def process(job: Job[dict[str, int]]) -> int:
    if job.data["n"] % EVERY_FAILING == 0 and job.attempts_made == 0:
        raise ConnectionError("the first attempt fails")
    return job.data["n"] ** 2


def job_of(n: int) -> NewJob:
    delay = 1000 if n == DELAYED else 0
    return NewJob("square", {"n": n}, JobOptions(attempts=3, backoff=Backoff("exponential", 50), delay=delay))


async def demo(url: str) -> None:
    async with Queue("demo", url, data_type=dict[str, int]) as queue:
        bar = Progress("adding", JOBS)
        added = 0
        for first in range(0, JOBS, CHUNK):
            added += len(await queue.add_bulk([job_of(n) for n in range(first, first + CHUNK)]))
            bar.show(added)

        completed = retries = 0
        bar = Progress("working", JOBS)
        all_done = asyncio.Event()

        def on_completed(notice: JobCompleted) -> None:
            nonlocal completed
            completed += 1
            bar.show(completed)
            if completed == JOBS:
                all_done.set()

        def on_failed(notice: JobFailed) -> None:
            nonlocal retries
            retries += 1

        worker = Worker("demo", process, url, data_type=dict[str, int], options=WorkerOptions(concurrency=50))
        worker.on(JobCompleted, on_completed)
        worker.on(JobFailed, on_failed)
        start = time.perf_counter()
        async with worker:
            await all_done.wait()
            seconds = time.perf_counter() - start
        counts = await queue.get_job_counts("completed")
    rate = completed / seconds
    print(f"demo: {added} added, {counts['completed']} completed, {retries} retries, {rate:.0f} jobs/s")


@contextmanager
def server() -> Iterator[str]:
    """Start a server at a unix socket, so that no port is taken; give its URL."""
    external = os.environ.get("BULLMQ_TEST_REDIS_URL")
    if external:
        print("demo: the server of BULLMQ_TEST_REDIS_URL", flush=True)
        yield external
        return
    kind, program = find_program("demo")
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        socket = Path(folder, "server.sock")
        print(f"demo: starting {kind} at {socket}", flush=True)
        command = [program, "--port", "0", "--unixsocket", str(socket), "--dir", folder, "--save", ""]
        running = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            limit = time.monotonic() + START_S
            while not socket.exists():
                if running.poll() is not None or time.monotonic() > limit:
                    raise NoServer(f"{program} did not start")
                time.sleep(0.01)
            yield f"unix://{socket}"
        finally:
            running.terminate()
            running.wait()


def main() -> None:
    # Each retry would be a warning on the terminal.
    logging.getLogger("bullmq_anyio").setLevel(logging.ERROR)
    with server() as url:
        asyncio.run(demo(url))


if __name__ == "__main__":
    main()
