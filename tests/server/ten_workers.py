"""Ten workers in one process work off 10,000 jobs: `python -m tests.server.ten_workers ADAPTER URL QUEUE`.

Prints one JSON object: jobs_per_s; rss_growth_mb of the process, from before the first job was added to its end; and
how many tasks (threads) there were: before, while the workers were idle before and after the jobs, and after closing.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import anyio
import trio

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import NewJob
from bullmq_protocol.worker.notices import JobCompleted

WORKERS = 10
JOBS = 10_000
CHUNK = 500


def rss_mb() -> float:
    """Resident memory now."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


class Counter:
    """Calls `reached` when all jobs are completed."""

    def __init__(self, reached: Callable[[], object]) -> None:
        self._reached = reached
        self._lock = threading.Lock()
        self.completed = 0

    def __call__(self, notice: JobCompleted) -> None:
        with self._lock:
            self.completed += 1
            if self.completed == JOBS:
                self._reached()


def chunks() -> list[list[NewJob]]:
    return [[NewJob("job", {"n": n}) for n in range(first, first + CHUNK)] for first in range(0, JOBS, CHUNK)]


def report(start: float, end: float, rss_before: float, lives: list[int]) -> None:
    figures = {"jobs_per_s": JOBS / (end - start), "rss_growth_mb": rss_mb() - rss_before}
    print(json.dumps({**figures, **dict(zip(("before", "idle_before", "idle_after", "left"), lives, strict=True))}))  # noqa: T201


async def asynchronous(adapter: str, url: str, name: str) -> None:
    def living() -> int:
        return len(asyncio.all_tasks()) if adapter == "asyncio" else trio.lowlevel.current_statistics().tasks_living

    async def nothing(job: bullmq_anyio.Job[Any]) -> None:
        pass

    lives = [living()]
    rss = rss_mb()
    done = anyio.Event()
    counter = Counter(done.set)
    workers = [bullmq_anyio.Worker(name, nothing, url) for _ in range(WORKERS)]
    queue = bullmq_anyio.Queue[Any](name, url)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(queue)
        await queue.pause()
        for worker in workers:
            worker.on(JobCompleted, counter)
            await stack.enter_async_context(worker)
        await idle([worker.snapshot for worker in workers], anyio.sleep)
        lives.append(living())
        for chunk in chunks():
            await queue.add_bulk(chunk)
        start = time.perf_counter()
        await queue.resume()
        await done.wait()
        end = time.perf_counter()
        await idle([worker.snapshot for worker in workers], anyio.sleep)
        lives.append(living())
    await anyio.sleep(0)
    lives.append(living())
    report(start, end, rss, lives)


async def idle(snapshots: list[Callable[[], Any]], sleep: Callable[[float], Any]) -> None:
    """Wait until every worker waits for the marker and holds no job."""
    while not all(found.listening and not found.jobs for found in (snapshot() for snapshot in snapshots)):
        await sleep(0.01)


def blocking(url: str, name: str) -> None:
    lives = [threading.active_count()]
    rss = rss_mb()
    done = threading.Event()
    counter = Counter(done.set)
    workers = [bullmq_sync.Worker[Any](name, lambda job: None, url) for _ in range(WORKERS)]
    queue = bullmq_sync.Queue[Any](name, url)
    snapshots = [worker.snapshot for worker in workers]
    with ExitStack() as stack:
        stack.enter_context(queue)
        queue.pause()
        for worker in workers:
            worker.on(JobCompleted, counter)
            stack.enter_context(worker)
        idle_blocking(snapshots)
        lives.append(threading.active_count())
        for chunk in chunks():
            queue.add_bulk(chunk)
        start = time.perf_counter()
        queue.resume()
        done.wait()
        end = time.perf_counter()
        idle_blocking(snapshots)
        lives.append(threading.active_count())
    lives.append(threading.active_count())
    report(start, end, rss, lives)


def idle_blocking(snapshots: list[Callable[[], Any]]) -> None:
    while not all(found.listening and not found.jobs for found in (snapshot() for snapshot in snapshots)):
        time.sleep(0.01)


if __name__ == "__main__":
    adapter, url, name = sys.argv[1:]
    if adapter == "threads":
        blocking(url, name)
    else:
        anyio.run(asynchronous, adapter, url, name, backend=adapter)
