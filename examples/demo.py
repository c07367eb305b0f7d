"""Add 10,000 jobs and work them off on a server that comes along: `make demo`.

Every 50th job fails at its first attempt and is retried with backoff; one job is delayed by a second.
"""

import asyncio
import logging
import sys
import time
from typing import Any

from bullmq_anyio import Job, Queue, Worker
from bullmq_protocol import Backoff, JobOptions, NewJob, WorkerOptions
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from tests.support import servers

JOBS = 10_000
CHUNK = 500
EVERY_FAILING = 50
DELAYED = JOBS // 2


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
    async with Queue[dict[str, int]]("demo", url) as queue:
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

        worker = Worker[Any]("demo", process, url, options=WorkerOptions(concurrency=50))
        worker.on(JobCompleted, on_completed)
        worker.on(JobFailed, on_failed)
        start = time.perf_counter()
        async with worker:
            await all_done.wait()
            seconds = time.perf_counter() - start
        counts = await queue.get_job_counts("completed")
    rate = completed / seconds
    print(f"demo: {added} added, {counts['completed']} completed, {retries} retries, {rate:.0f} jobs/s")


def main() -> None:
    # Each retry would be a warning on the terminal.
    logging.getLogger("bullmq_anyio").setLevel(logging.ERROR)
    with servers.start() as server:
        print(f"server: {server.kind} on port {server.port}", flush=True)
        asyncio.run(demo(server.url))


if __name__ == "__main__":
    main()
