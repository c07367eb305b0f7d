"""Several processes of workers on one queue, ours beside Node's: `python -m bench.processes`.

Ours are `bullmq-worker --processes N`, Node's are N programs of BullMQ 5.62.0, each with one worker. Handlers do
nothing, or compute until the clock that counts their time on a CPU has gone on by a millisecond. See docs/bench.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from bench import sides
from bench.arguments import chosen_from, positive
from bench.peers.common import cpu_of_all
from bench.processes_app import COMPUTE_US, QUEUE
from bench.report import Sample, rates, show_rates, undecided
from bullmq_protocol import NewJob
from bullmq_sync import Queue
from tests.support import servers
from tests.support.node import node_available
from tests.support.programs import Program, until
from tests.support.servers import Server

_ROOT = Path(__file__).parents[1]
KINDS: dict[str, tuple[str, ...]] = {
    "asyncio": ("tasks",),
    "uvloop": ("tasks", "--loop", "uvloop"),
    "trio": ("tasks", "--loop", "trio"),
    "threads": ("threads",),
}
NODE = "node-5"
BULK = 1_000
WAIT_S = 300.0
_POLL_S = 0.002


@dataclass(frozen=True)
class Load:
    """What handlers do, how many of them run at once in each process, and how many jobs there are in a round."""

    name: str
    compute_us: int
    concurrency: int
    jobs: int


def _queue(side: str) -> str:
    """Each side has a queue of its own: all workers of a table live from its start to its end."""
    return f"bench-{side}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # The processes below it end with it.
        process.kill()
        process.wait()


@contextmanager
def ours(kind: str, count: int, load: Load, server: Server) -> Iterator[list[int]]:
    """Run `bullmq-worker` with `count` processes; give the pid of the one that is above them."""
    target, *more = KINDS[kind]
    command = [sys.executable, "-m", "bullmq_cli", f"bench.processes_app:{target}", "--log-level", "error", *more]
    process = subprocess.Popen(
        [*command, "--processes", str(count), "--concurrency", str(load.concurrency)],
        cwd=_ROOT,
        env={**os.environ, "BULLMQ_URL": server.url, QUEUE: _queue(kind), COMPUTE_US: str(load.compute_us)},
        stdin=subprocess.DEVNULL,
    )
    try:
        yield [process.pid]
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        _kill(process)


@contextmanager
def nodes(count: int, load: Load, server: Server) -> Iterator[list[int]]:
    """Run `count` programs of Node, with one worker each; give their pids."""
    with ExitStack() as stack:
        programs = list[Program]()
        for _ in range(count):
            programs.append(program := sides.start(NODE, server))
            stack.callback(program.kill)
            program.call("work", queue=_queue(NODE), concurrency=load.concurrency, compute_us=load.compute_us)
        yield [program.pid for program in programs]
        for program in programs:
            program.call("stop")


def one_round(queue: Queue[Any], raw: redis.Redis, load: Load, roots: Sequence[int]) -> Sample:
    """Fill the paused queue, let the workers go, and wait until all jobs are completed."""
    queue.pause()
    for done in range(0, load.jobs, BULK):
        queue.add_bulk([NewJob("job", {"n": 1})] * min(BULK, load.jobs - done))
    completed = queue.keys.completed
    client, server, begun = sum(map(cpu_of_all, roots)), _cpu_s(raw), time.perf_counter()
    queue.resume()
    while raw.zcard(completed) < load.jobs:
        if time.perf_counter() - begun > WAIT_S:
            raise TimeoutError(f"{load.name}: {raw.zcard(completed)} of {load.jobs} jobs in {WAIT_S:g} s")
        time.sleep(_POLL_S)
    seconds = time.perf_counter() - begun
    sample = {
        "jobs": load.jobs,
        "seconds": seconds,
        "cpu_seconds": sum(map(cpu_of_all, roots)) - client,
        "server_seconds": _cpu_s(raw) - server,
    }
    raw.flushall()
    return sample


def _cpu_s(raw: redis.Redis) -> float:
    found = raw.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])


def compare(load: Load, count: int, kinds: Sequence[str], rounds: int, server: Server) -> dict[str, Any]:
    """Measure all sides with `count` processes each: in turns, after a round of each to get warm."""
    found: dict[str, list[Sample]] = {side: [] for side in (NODE, *kinds)}
    with ExitStack() as stack:
        raw = stack.enter_context(redis.Redis.from_url(server.url))
        raw.flushall()
        queues = {side: stack.enter_context(Queue[Any](_queue(side), server.url)) for side in found}
        roots = {NODE: stack.enter_context(nodes(count, load, server))}
        for kind in kinds:
            roots[kind] = stack.enter_context(ours(kind, count, load, server))
        for queue in queues.values():
            until(queue.get_workers_count, count)

        def rounds_from(first: int) -> dict[str, Any]:
            for number in range(first, rounds):
                order = list(found)
                turn = number % len(order)
                for side in order[turn:] + order[:turn]:
                    sample = one_round(queues[side], raw, load, roots[side])
                    if number >= 0:
                        found[side].append(sample)
            return rates(found)

        row = rounds_from(-1)
        return rounds_from(0) if undecided(row) else row


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench.processes", description=__doc__)
    parser.add_argument("--processes", default="1,2,4", help="comma list of how many there are, 1,2,4")
    parser.add_argument("--sides", default="asyncio", help="comma list of " + ", ".join(KINDS))
    parser.add_argument("--jobs", type=positive, default=4_000, help="jobs per side and round that compute")
    parser.add_argument("--idle-jobs", type=positive, default=40_000, help="jobs per side and round that do nothing")
    parser.add_argument("--rounds", type=positive, default=5, help="after one that does not count")
    parser.add_argument("--json", type=Path, default=_ROOT / ".cache" / "bench-processes.json")
    options = parser.parse_args(arguments)
    kinds = chosen_from(parser, "--sides", options.sides, tuple(KINDS))
    try:
        counts = [positive(each) for each in options.processes.split(",")]
    except (ValueError, argparse.ArgumentTypeError):
        parser.error(f"--processes: {options.processes!r}: a comma list of numbers from 1 on")
    if not node_available():
        parser.error("Node and npm are not installed")
    loads = (
        Load("a handler that computes for 1 ms", 1_000, 10, options.jobs),
        Load("a handler that does nothing", 0, 50, options.idle_jobs),
    )
    with servers.start() as server:
        about = {"server": server.kind, "cores": os.cpu_count(), "rounds": options.rounds}
        print(", ".join(f"{key} {value}" for key, value in about.items()))
        tables: dict[str, Any] = {}
        for load in loads:
            for count in counts:
                name = f"{load.name}, processes: {count}"
                tables[name] = compare(load, count, kinds, options.rounds, server)
                show_rates(name, tables[name])
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps({**about, "tables": tables}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sides.end_well_on_signals()
    sys.exit(main(sys.argv[1:]))
