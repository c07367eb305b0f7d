"""What a job costs where one load is spread over several queues: `python -m bench.partitions`.

No-op jobs are added in bulk and processed on asyncio: in one queue of one server, in six queues of one server, and in
six queues of a cluster with three masters, two queues on each. Given is the CPU time that the client and the servers
take for a job, the least of several rounds: on two cores no rate could show a gain.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import anyio
import redis

from bench.arguments import positive
from bullmq_anyio import Job, Queue, Worker, connect
from bullmq_protocol import KeyLayout, NewJob, QueueKeys, WorkerOptions
from tests.support import servers
from tests.support.servers import Server
from tests.support.topology import ClusterSet

MASTERS, QUEUES, SLOTS = 3, 6, 16_384
CONCURRENCY = 48
BULK = 500
LAYOUT = KeyLayout.TAGGED_QUEUE


@dataclass
class Place:
    """Where jobs go: servers, and the queues there."""

    name: str
    url: str
    nodes: Sequence[Server]
    queues: Sequence[str]


def spread(queues: int, masters: int) -> list[str]:
    """Return names of queues whose slots are spread evenly over masters that have equal parts of them."""
    found: list[list[str]] = [[] for _ in range(masters)]
    for number in count():
        name = f"part-{number}"
        part = found[QueueKeys.of(name, layout=LAYOUT).slot * masters // SLOTS]
        if len(part) < queues // masters:
            part.append(name)
        if sum(map(len, found)) == queues:
            return [name for part in found for name in part]
    raise AssertionError("count() does not end")


async def handle(job: Job[Any]) -> None: ...


async def work(place: Place, jobs: int) -> None:
    """Add jobs to all queues, and process them."""
    options = WorkerOptions(concurrency=CONCURRENCY // len(place.queues))
    async with connect(place.url) as transport:
        for name in place.queues:
            for _ in range(0, jobs // len(place.queues), BULK):
                await Queue(name, transport, layout=LAYOUT).add_bulk([NewJob("job")] * BULK)
        async with anyio.create_task_group() as group:
            for name in place.queues:
                worker = Worker(name, handle, transport, layout=LAYOUT, options=options)
                group.start_soon(partial(worker.run, until="idle"))


def cpu_s(nodes: Sequence[Server]) -> float:
    """Return the seconds of CPU that servers have taken."""
    taken = 0.0
    for node in nodes:
        with redis.Redis(port=node.port) as raw:
            info = raw.info("cpu")
            taken += info["used_cpu_user"] + info["used_cpu_sys"]
    return taken


def cost_us(place: Place, jobs: int) -> tuple[float, float]:
    """Return the microseconds that client and servers take for a job."""
    for node in place.nodes:
        with redis.Redis(port=node.port) as raw:
            raw.flushall()
    before, begun = cpu_s(place.nodes), time.process_time()
    anyio.run(work, place, jobs)
    client = time.process_time() - begun
    return client * 1e6 / jobs, (cpu_s(place.nodes) - before) * 1e6 / jobs


@contextmanager
def places() -> Iterator[tuple[Place, ...]]:
    """Start the servers."""
    names = spread(QUEUES, MASTERS)
    with servers.start() as server, ClusterSet(server.kind) as cluster:
        masters = cluster.nodes[:MASTERS]
        yield (
            Place("one server, one queue", server.url, [server], names[:1]),
            Place("one server, six queues", server.url, [server], names),
            Place("three masters, six queues", f"redis+cluster://{cluster.hosts}", masters, names),
        )


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench.partitions", description=__doc__)
    parser.add_argument("--jobs", type=positive, default=30_000, help="per round, a multiple of 3,000")
    parser.add_argument("--rounds", type=positive, default=5, help="of which the least is shown, 5")
    options = parser.parse_args(arguments)
    if options.jobs % (step := QUEUES * BULK):
        parser.error(f"--jobs: {options.jobs} is no multiple of {step:,}")
    with places() as all_places:
        found: dict[str, list[tuple[float, float]]] = {place.name: [] for place in all_places}
        for _ in range(options.rounds):
            for place in all_places:
                found[place.name].append(cost_us(place, options.jobs))
        for name, rounds in found.items():
            client, server = (min(values) for values in zip(*rounds, strict=True))
            sys.stdout.write(f"{name:28} client {client:6.1f} us, server {server:6.1f} us of CPU a job\n")


if __name__ == "__main__":
    main(sys.argv[1:])
