"""Our side of the bench, in the colour that argv names: `python -m bench.party '{"colour": ..., "url": ...}'`."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

import bullmq_anyio
import bullmq_sync
from bullmq_protocol.worker.notices import JobCompleted
from bullmq_protocol.worker.options import WorkerOptions
from tests.interop.python.lines import say, serve, serve_blocking

Timed = dict[str, float]


class _Stopwatch:
    """Seconds on the clock and of this process's CPU."""

    def __init__(self) -> None:
        self._start, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> Timed:
        return {"seconds": time.perf_counter() - self._start, "cpu_seconds": time.process_time() - self._cpu}


class _Anyio:
    def __init__(self, url: str, at_once: Callable[[list[Awaitable[Any]]], Awaitable[Any]]) -> None:
        self._url = url
        self._at_once = at_once

    async def add(self, queue: str, count: int, at_once: int) -> Timed:
        async with bullmq_anyio.Queue[Any](queue, self._url) as adding:
            await adding.get_version()
            watch = _Stopwatch()
            for done in range(0, count, at_once):
                await self._at_once([adding.add("job", {"n": n}) for n in range(done, done + at_once)])
            return watch.read()

    async def process(self, queue: str, count: int, concurrency: int) -> Timed:
        async def nothing(job: bullmq_anyio.Job[Any]) -> None:
            pass

        finished = anyio.Event()
        count_down = _CountDown(count, finished.set)
        worker = bullmq_anyio.Worker(queue, nothing, self._url, options=WorkerOptions(concurrency=concurrency))
        worker.on(JobCompleted, count_down)
        watch = _Stopwatch()
        async with worker:
            await finished.wait()
            return watch.read()


class _Threads:
    def __init__(self, url: str) -> None:
        self._url = url

    async def add(self, queue: str, count: int, at_once: int) -> Timed:
        with bullmq_sync.Queue[Any](queue, self._url) as adding:
            adding.get_version()

            def work(first: int) -> None:
                for n in range(first, count, at_once):
                    adding.add("job", {"n": n})

            threads = [threading.Thread(target=work, args=(first,)) for first in range(at_once)]
            watch = _Stopwatch()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return watch.read()

    async def process(self, queue: str, count: int, concurrency: int) -> Timed:
        finished = threading.Event()
        count_down = _CountDown(count, finished.set)
        worker = bullmq_sync.Worker[Any](
            queue, lambda job: None, self._url, options=WorkerOptions(concurrency=concurrency)
        )
        worker.on(JobCompleted, count_down)
        watch = _Stopwatch()
        with worker:
            finished.wait()
            return watch.read()


class _CountDown:
    def __init__(self, count: int, reached: Callable[[], object]) -> None:
        self._left = count
        self._reached = reached
        self._lock = threading.Lock()

    def __call__(self, notice: JobCompleted) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._reached()


async def _gathered(waiting: list[Awaitable[Any]]) -> None:
    await asyncio.gather(*waiting)


async def _nursed(waiting: list[Awaitable[Any]]) -> None:
    async def one(each: Awaitable[Any]) -> None:
        await each

    async with anyio.create_task_group() as tasks:
        for each in waiting:
            tasks.start_soon(one, each)


async def _main(colour: str, url: str) -> None:
    party = _Anyio(url, _gathered if colour == "asyncio" else _nursed)
    say(event="ready")
    await serve({"add": party.add, "process": party.process})


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    if config["colour"] == "threads":
        blocking = _Threads(config["url"])
        say(event="ready")
        serve_blocking({"add": blocking.add, "process": blocking.process})
    else:
        anyio.run(_main, config["colour"], config["url"], backend=config["colour"])
