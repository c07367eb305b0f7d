"""Resident memory: of a worker that has nothing to do, and of callers that wait.

`python -m bench.waiting`. Each figure is of a process of its own. Callers of `add` wait because the server is paused,
those of `wait_until_finished` because no worker is there.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import msgspec
import redis

import bullmq_anyio
from bench.arguments import chosen_from, positive
from bench.lines import say
from bullmq_protocol.model.job import NewJob
from bullmq_protocol.net.address import ConnectionOptions, parse_url
from tests.support import servers

# A program that has a worker, and nothing else.
_IDLE = {
    "tasks": """
import anyio, sys, bullmq_anyio
async def main():
    async def nothing(job): pass
    async with bullmq_anyio.Worker("bench-waiting", nothing, sys.argv[1]):
        await anyio.sleep(1)
        print('"kb": ' + open("/proc/self/status").read().partition("VmRSS:")[2].split()[0])
anyio.run(main, backend=sys.argv[2])
""",
    "threads": """
import sys, time, bullmq_sync
with bullmq_sync.Worker("bench-waiting", lambda job: None, sys.argv[1]):
    time.sleep(1)
    print('"kb": ' + open("/proc/self/status").read().partition("VmRSS:")[2].split()[0])
""",
}
_ROOT = Path(__file__).parents[1]
_QUEUE = "bench-waiting"
_PAUSED_MS = 3_600_000
ADAPTERS = ("asyncio", "trio", "threads")
WHAT = ("idle", "event", "add", "finish")
"""`event`: tasks that wait for nothing of ours, for comparison."""
_SETTLED_S = 1.0


def _patient(url: str) -> ConnectionOptions:
    """Nobody shall give up while this many begin, or while the server is paused."""
    return msgspec.structs.replace(parse_url(url), connect_timeout_ms=_PAUSED_MS, command_timeout_ms=None)


def _rss_kb() -> int:
    gc.collect()
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])


async def _held(count: int, wait: Callable[[int], Coroutine[Any, Any, object]]) -> None:
    """Say by how much memory grows by callers that wait, and end."""
    before = held = _rss_kb()
    async with anyio.create_task_group() as tasks:
        for n in range(count):
            tasks.start_soon(wait, n)
        await anyio.sleep(_SETTLED_S)
        while True:
            # They have all begun when nothing more comes.
            held = _rss_kb()
            await anyio.sleep(_SETTLED_S)
            if _rss_kb() <= held + 64:
                break
        say(kb=held - before)
        # This many tasks need not be cancelled.
        os._exit(0)


async def _on_tasks(what: str, count: int, url: str) -> None:
    if what == "event":
        event = anyio.Event()

        async def wait(n: int) -> None:
            await event.wait()

        await _held(count, wait)
        return
    transport = bullmq_anyio.connect(_patient(url))
    async with (
        bullmq_anyio.Queue[Any](_QUEUE, transport) as queue,
        bullmq_anyio.QueueEvents(_QUEUE, transport) as events,
    ):
        jobs: list[bullmq_anyio.Job[Any]] = []
        if what == "finish":
            for first in range(0, count, 1_000):
                jobs += await queue.add_bulk([NewJob("job", {"n": n}) for n in range(first, min(first + 1_000, count))])
            await _held(count, lambda n: jobs[n].wait_until_finished(events))
            return
        await queue.add("job", {"n": 0})
        options = parse_url(url)
        with redis.Redis(options.host, options.port) as raw:
            raw.execute_command("CLIENT", "PAUSE", _PAUSED_MS)  # pyright: ignore[reportUnknownMemberType]
            await _held(count, lambda n: queue.add("job", {"n": n}))


def _measured(adapter: str, what: str, count: int) -> int:
    with servers.start() as server:
        if what == "idle":
            program = ["-c", _IDLE["threads" if adapter == "threads" else "tasks"], server.url, adapter]
        else:
            program = ["-m", "bench.waiting", "--one", adapter, what, str(count), server.url]
        done = subprocess.run(
            [sys.executable, *program],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return int(done.stdout.rpartition('"kb": ')[2].rstrip("}\n"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.waiting", description=__doc__)
    parser.add_argument("--rounds", type=positive, default=3, help="of which the median is shown, 3")
    parser.add_argument("--callers", type=positive, default=100_000, help="how many wait, 100,000")
    parser.add_argument("--only", default=",".join(WHAT), help="comma list of " + ", ".join(WHAT))
    parser.add_argument("--one", nargs=4, metavar=("ADAPTER", "WHAT", "COUNT", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        adapter, what, count, url = options.one
        anyio.run(_on_tasks, what, int(count), url, backend=adapter)
        return
    for what in chosen_from(parser, "--only", options.only, WHAT):
        for adapter in ADAPTERS:
            if adapter == "threads" and what != "idle":
                continue
            callers: int = options.callers
            found = statistics.median(_measured(adapter, what, callers) for _ in range(options.rounds))
            if what == "idle":
                print(f"{adapter}: a worker that has nothing to do: {found / 1024:.1f} MB")
            else:
                each = found * 1024 / callers
                print(f"{adapter}: {callers:,} that wait ({what}): {found / 1024:.0f} MB, {each:,.0f} bytes each")


if __name__ == "__main__":
    main()
