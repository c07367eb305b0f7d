"""What a router, a middleware and a lifespan cost a job: `python -m bench.around`.

A worker processes no-op jobs of a transport in memory, at concurrency 50, on asyncio, trio and threads, with more and
more around its handler. Counted are Python's instructions, which do not depend on what else the machine does, and CPU
time, the least of several runs, each in a process of its own. Nothing is sent, so that a microsecond shows.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec

import bullmq_anyio
import bullmq_sync
from bench import memory
from bench.memory import Memory, MemoryOnThreads
from bullmq_protocol import JobType, WorkerOptions

ROOT = Path(__file__).parents[1]
ADAPTERS = ("asyncio", "trio", "threads")
AROUND = ("nothing", "router", "router, middleware", "router, middleware, lifespan")
ASKED = "router, middleware"
MOST_US = 2.0
JSON, TYPED = "payloads as JSON gives them", "a struct as payload"
FEW, MANY = 500, 1_500
_NAME = "n"
_OPTIONS = WorkerOptions(concurrency=50)


class Payload(msgspec.Struct):
    """With a type the payload is read, by the worker or by the router."""


KIND = JobType(_NAME, Payload)


async def handle(job: Any) -> None: ...


async def pass_on(job: Any, call_next: Any) -> Any:
    return await call_next(job)


@contextlib.asynccontextmanager
async def live(worker: Any) -> AsyncIterator[None]:
    yield


def handle_on_thread(job: Any) -> None: ...


def pass_on_on_thread(job: Any, call_next: Any) -> Any:
    return call_next(job)


@contextlib.contextmanager
def live_on_thread(worker: Any) -> Iterator[None]:
    yield


def arguments(package: Any, around: str, *, typed: bool) -> tuple[Any, dict[str, Any]]:
    """Return the processor of a worker, and what else is around each job."""
    is_async = package is bullmq_anyio
    handler: Any = handle if is_async else handle_on_thread
    options: dict[str, Any] = {}
    if "middleware" in around:
        options["middleware"] = [pass_on if is_async else pass_on_on_thread]
    if "lifespan" in around:
        options["lifespan"] = live if is_async else live_on_thread
    if "router" not in around:
        return handler, {**options, "data_type": Payload if typed else None}
    router = package.Router()
    router.add(KIND if typed else _NAME, handler)
    return router, options


async def _work(jobs: int, around: str, *, typed: bool) -> None:
    transport = Memory(jobs)
    processor, more = arguments(bullmq_anyio, around, typed=typed)
    async with bullmq_anyio.Worker[Any]("q", processor, transport, options=_OPTIONS, worker_id="w", **more):
        await transport.over.wait()


def _work_on_threads(jobs: int, around: str, *, typed: bool) -> None:
    transport = MemoryOnThreads(jobs)
    processor, more = arguments(bullmq_sync, around, typed=typed)
    with bullmq_sync.Worker[Any]("q", processor, transport, options=_OPTIONS, worker_id="w", **more):
        transport.over.wait()


def _run(adapter: str, around: str, jobs: int, *, typed: bool) -> None:
    if adapter == "threads":
        _work_on_threads(jobs, around, typed=typed)
        return

    async def work() -> None:
        await _work(jobs, around, typed=typed)

    anyio.run(work, backend=adapter)


def cpu_us(adapter: str, around: str, jobs: int, *, typed: bool) -> float:
    """Return the microseconds of CPU that a job takes."""
    begun = time.process_time()
    _run(adapter, around, jobs, typed=typed)
    return (time.process_time() - begun) * 1_000_000 / jobs


def instructions(adapter: str, around: str, *, typed: bool) -> float:
    """Return the instructions of Python that a job takes: two lengths, whose difference is free of begin and end."""
    few = memory.instructions(lambda: _run(adapter, around, FEW, typed=typed))
    many = memory.instructions(lambda: _run(adapter, around, MANY, typed=typed))
    return (many - few) / (MANY - FEW)


def _ask(*given: str) -> float:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "bench.around", "--one", *given]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return float(done.stdout)


def main(given: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--adapters", default=",".join(ADAPTERS))
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.one:
        adapter, around, payload, jobs = options.one
        typed = payload == TYPED
        print(
            cpu_us(adapter, around, int(jobs), typed=typed) if int(jobs) else instructions(adapter, around, typed=typed)
        )
        return
    for payload in (JSON, TYPED):
        for adapter in options.adapters.split(","):
            counted = {around: _ask(adapter, around, payload, "0") for around in AROUND}
            least = dict.fromkeys(AROUND, float("inf"))
            for _ in range(options.rounds):
                for around in AROUND:
                    least[around] = min(least[around], _ask(adapter, around, payload, str(options.jobs)))
            print(f"{adapter}, {payload}:")
            for around, us in least.items():
                more, more_us = counted[around] - counted["nothing"], us - least["nothing"]
                asked = f" (asked: at most {MOST_US:.0f})" if around == ASKED else ""
                print(
                    f"  {around:30} {counted[around]:7.1f} instructions a job, {more:+6.1f}; "
                    f"{us:6.2f} us of CPU, {more_us:+.2f}{asked}",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
