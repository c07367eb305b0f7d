"""Our side of the bench: `python -m bench.client '{"adapter": "asyncio", "url": ..., "profile": "fleet"}'`."""

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import anyio
import trio

import bullmq_anyio
import bullmq_sync
from bench.lines import Stopwatch, Timed, payload
from bullmq_protocol import FlowNode, JobOptions, KeepJobs, NewJob
from bullmq_protocol.scripts.profile import DEFAULT, Profile
from bullmq_protocol.worker.notices import JobCompleted
from bullmq_protocol.worker.options import WorkerOptions
from tests.support.lines import profile_named, say, serve, serve_blocking

_MEMORY = WorkerOptions(concurrency=50, remove_on_complete=KeepJobs(count=0))


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


def _rss_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def _check(job: Any, fails: int) -> None:
    if job.attempts_made < fails:
        raise RuntimeError("again")


def _family(queue: str, n: int, children: int) -> FlowNode:
    below = tuple(FlowNode("child", queue, {"n": c}) for c in range(children))
    return FlowNode("parent", queue, {"n": n}, children=below)


class Anyio:
    """Queues and workers of `bullmq_anyio`."""

    def __init__(
        self, url: str, at_once: Callable[[list[Awaitable[Any]]], Awaitable[Any]], scripts: Profile = DEFAULT
    ) -> None:
        self._url = url
        self._at_once = at_once
        self._scripts = scripts
        self._queue = partial(bullmq_anyio.Queue[Any], scripts=scripts)
        self._worker = partial(bullmq_anyio.Worker[Any], scripts=scripts)

    async def add(self, queue: str, count: int, at_once: int, bytes: int, opts: dict[str, Any]) -> Timed:
        options = JobOptions(**opts)
        async with self._queue(queue, self._url) as adding:
            await adding.get_version()
            watch = Stopwatch()
            if at_once == 1:
                for n in range(count):
                    await adding.add("job", payload(n, bytes), options)
                return watch.read()
            for done in range(0, count, at_once):
                some = range(done, done + at_once)
                await self._at_once([adding.add("job", payload(n, bytes), options) for n in some])
            return watch.read()

    async def bulk(self, queue: str, count: int, size: int, opts: dict[str, Any]) -> Timed:
        options = JobOptions(**opts)
        async with self._queue(queue, self._url) as adding:
            await adding.get_version()
            watch = Stopwatch()
            for done in range(0, count, size):
                await adding.add_bulk([NewJob("job", {"n": n}, options) for n in range(done, done + size)])
            return watch.read()

    async def flows(self, queue: str, count: int, children: int) -> Timed:
        async with bullmq_anyio.FlowProducer(self._url, scripts=self._scripts) as producer:
            watch = Stopwatch()
            for n in range(count):
                await producer.add(_family(queue, n, children))
            return watch.read()

    async def process(self, queue: str, count: int, concurrency: int, fails: int) -> Timed:
        async def work(job: bullmq_anyio.Job[Any]) -> None:
            _check(job, fails)

        finished = anyio.Event()
        worker = self._worker(queue, work, self._url, options=WorkerOptions(concurrency=concurrency))
        worker.on(JobCompleted, _CountDown(count, finished.set))
        watch = Stopwatch()
        async with worker:
            await finished.wait()
            return watch.read()

    async def latency(self, queue: str, count: int, pause_ms: float) -> dict[str, list[float]]:
        started, hit = 0.0, anyio.Event()

        async def work(job: bullmq_anyio.Job[Any]) -> None:
            nonlocal started
            started = time.perf_counter()
            hit.set()

        ms = []
        async with self._queue(queue, self._url) as adding, self._worker(queue, work, self._url):
            await adding.get_version()
            for n in range(count):
                await anyio.sleep(pause_ms / 1000)
                hit = anyio.Event()
                asked = time.perf_counter()
                await adding.add("job", {"n": n})
                await hit.wait()
                ms.append((started - asked) * 1000)
        return {"ms": ms}

    async def memory(self, queue: str, count: int, first: int, size: int) -> Timed:
        async def nothing(job: bullmq_anyio.Job[Any]) -> None:
            pass

        early, reached = 0.0, anyio.Event()
        worker = self._worker(queue, nothing, self._url, options=_MEMORY)
        down = _CountDown(size, lambda: reached.set())
        worker.on(JobCompleted, lambda notice: down(notice))
        async with self._queue(queue, self._url) as adding, worker:
            for done in range(size, count + 1, size):
                reached = anyio.Event()
                down = _CountDown(size, reached.set)
                await adding.add_bulk([NewJob("job", {"n": n}) for n in range(size)])
                await reached.wait()
                if done == first:
                    early = _rss_mb()
            return {"early_mb": early, "late_mb": _rss_mb()}


class Threads:
    """Queues and workers of `bullmq_sync`."""

    def __init__(self, url: str, scripts: Profile = DEFAULT) -> None:
        self._url = url
        self._scripts = scripts
        self._queue = partial(bullmq_sync.Queue[Any], scripts=scripts)
        self._worker = partial(bullmq_sync.Worker[Any], scripts=scripts)

    async def add(self, queue: str, count: int, at_once: int, bytes: int, opts: dict[str, Any]) -> Timed:
        options = JobOptions(**opts)
        with self._queue(queue, self._url) as adding:
            adding.get_version()

            def work(first: int) -> None:
                for n in range(first, count, at_once):
                    adding.add("job", payload(n, bytes), options)

            threads = [threading.Thread(target=work, args=(first,)) for first in range(at_once)]
            watch = Stopwatch()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return watch.read()

    async def bulk(self, queue: str, count: int, size: int, opts: dict[str, Any]) -> Timed:
        options = JobOptions(**opts)
        with self._queue(queue, self._url) as adding:
            adding.get_version()
            watch = Stopwatch()
            for done in range(0, count, size):
                adding.add_bulk([NewJob("job", {"n": n}, options) for n in range(done, done + size)])
            return watch.read()

    async def flows(self, queue: str, count: int, children: int) -> Timed:
        with bullmq_sync.FlowProducer(self._url, scripts=self._scripts) as producer:
            watch = Stopwatch()
            for n in range(count):
                producer.add(_family(queue, n, children))
            return watch.read()

    async def process(self, queue: str, count: int, concurrency: int, fails: int) -> Timed:
        finished = threading.Event()
        options = WorkerOptions(concurrency=concurrency)
        worker = self._worker(queue, lambda job: _check(job, fails), self._url, options=options)
        worker.on(JobCompleted, _CountDown(count, finished.set))
        watch = Stopwatch()
        with worker:
            finished.wait()
            return watch.read()

    async def latency(self, queue: str, count: int, pause_ms: float) -> dict[str, list[float]]:
        started: SimpleQueue[float] = SimpleQueue()

        def work(job: Any) -> None:
            started.put(time.perf_counter())

        ms = []
        with self._queue(queue, self._url) as adding, self._worker(queue, work, self._url):
            adding.get_version()
            for n in range(count):
                time.sleep(pause_ms / 1000)
                asked = time.perf_counter()
                adding.add("job", {"n": n})
                ms.append((started.get() - asked) * 1000)
        return {"ms": ms}

    async def memory(self, queue: str, count: int, first: int, size: int) -> Timed:
        done_one: SimpleQueue[None] = SimpleQueue()
        early = 0.0
        worker = self._worker(queue, lambda job: None, self._url, options=_MEMORY)
        worker.on(JobCompleted, lambda notice: done_one.put(None))
        with self._queue(queue, self._url) as adding, worker:
            for done in range(size, count + 1, size):
                adding.add_bulk([NewJob("job", {"n": n}) for n in range(size)])
                for _ in range(size):
                    done_one.get()
                if done == first:
                    early = _rss_mb()
            return {"early_mb": early, "late_mb": _rss_mb()}


def calls(client: Anyio | Threads) -> dict[str, Any]:
    return {name: getattr(client, name) for name in ("add", "bulk", "flows", "process", "latency", "memory")}


async def _gathered(waiting: list[Awaitable[Any]]) -> None:
    await asyncio.gather(*waiting)


async def _nursed(waiting: list[Awaitable[Any]]) -> None:
    async def one(each: Awaitable[Any]) -> None:
        await each

    async with trio.open_nursery() as nursery:
        for each in waiting:
            nursery.start_soon(one, each)


async def _main(adapter: str, url: str, profile: str) -> None:
    say(event="ready")
    await serve(calls(Anyio(url, _nursed if adapter == "trio" else _gathered, profile_named(profile))))


if __name__ == "__main__":
    # The others write no lines for failed attempts either.
    logging.disable()
    config = json.loads(sys.argv[1])
    if config["adapter"] == "threads":
        say(event="ready")
        serve_blocking(calls(Threads(config["url"], profile_named(config["profile"]))))
    else:
        adapter = config["adapter"]
        backend = {"uvloop": "asyncio"}.get(adapter, adapter)
        uvloop = {"use_uvloop": True} if adapter == "uvloop" else {}
        anyio.run(_main, adapter, config["url"], config["profile"], backend=backend, backend_options=uvloop)
