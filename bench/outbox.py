"""How many entries of an outbox relays bring from PostgreSQL to Redis, and how long one takes from the commit to the
start of its job: `python -m bench.outbox`, on a machine that does nothing else.

PostgreSQL is as durable as it is by default. Relays are processes of `bullmq-relay`; commits and the worker share one
process.
"""

from __future__ import annotations

import argparse
import os
import queue
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import redis

from bullmq_outbox import PostgresOutbox
from bullmq_sync import Job, Queue, Worker
from tests.support import postgres, servers

_ROOT = Path(__file__).parents[1]
QUEUE = "bench-outbox"
_FILLED = 1_000
_WAIT_S = 300.0
_FIRST = 20
"""How many commits are not timed: the first ones start programs and connections."""


@contextmanager
def relays(count: int, database: str, url: str, *options: str) -> Generator[None]:
    """Run relays side by side."""
    command = [sys.executable, "-m", "bullmq_outbox", database, "--redis", url, "--log-level", "warning", *options]
    started = [subprocess.Popen(command, cwd=_ROOT) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait()


def throughput(database: str, url: str, outbox: PostgresOutbox, entries: int, count: int, *, keys: int) -> float:
    """Fill the table, start relays, and return how many entries a second went through, from the first job on."""
    with Queue[Any](QUEUE, url) as jobs, psycopg.connect(database) as connection:
        for start in range(0, entries, _FILLED):
            made = [jobs.entry("n", {"n": number, "to": "ada@example.org"}) for number in range(start, start + _FILLED)]
            if not keys:
                outbox.add(connection, made)
            else:
                for number, entry in enumerate(made):
                    outbox.add(connection, entry, key=f"key-{number % keys}")
        connection.commit()
        with psycopg.connect(database, autocommit=True) as tidy:
            tidy.execute("VACUUM ANALYZE bullmq_outbox")
        with redis.Redis.from_url(url) as client, relays(count, database, url):
            waiting = jobs.keys.wait
            limit = time.monotonic() + _WAIT_S
            # Until the first batch Python starts.
            while not (first := int(client.llen(waiting))):
                assert time.monotonic() < limit
                time.sleep(0.001)
            begun = time.monotonic()
            while (last := int(client.llen(waiting))) < entries:
                assert time.monotonic() < limit, f"{last} of {entries}"
                time.sleep(0.002)
            taken = time.monotonic() - begun
        jobs.obliterate(force=True)
    return (entries - first) / taken


def latencies(database: str, url: str, outbox: PostgresOutbox, count: int, *options: str) -> list[float]:
    """Commit entries one by one, each when the one before has started; return the milliseconds from commit to start."""
    started: queue.SimpleQueue[float] = queue.SimpleQueue()

    def process(job: Job[Any]) -> None:
        started.put(time.monotonic())

    found: list[float] = []
    worker = Worker[Any](QUEUE, process, url)
    with (
        Queue[Any](QUEUE, url) as jobs,
        worker,
        relays(1, database, url, *options),
        psycopg.connect(database) as connection,
    ):
        for number in range(count + _FIRST):
            outbox.add(connection, jobs.entry("n", {"n": number}))
            connection.commit()
            committed = time.monotonic()
            begun = started.get(timeout=_WAIT_S)
            if number >= _FIRST:
                found.append(1_000 * (begun - committed))
    with Queue[Any](QUEUE, url) as jobs:
        jobs.obliterate(force=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.outbox", description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000, help="to relay in each round; default 100,000")
    parser.add_argument("--rounds", type=int, default=3, help="of throughput; default 3")
    parser.add_argument("--latencies", type=int, default=500, help="how many commits are timed; default 500")
    given = parser.parse_args(arguments)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with servers.start() as server, postgres.started(durable=True) as port:
        database = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        outbox = PostgresOutbox()
        with psycopg.connect(database) as connection:
            outbox.create(connection)
        for count, keys in ((1, 0), (2, 0), (1, 1_000), (2, 1_000)):
            rates = [
                throughput(database, server.url, outbox, given.entries, count, keys=keys) for _ in range(given.rounds)
            ]
            shown = ", ".join(f"{rate:,.0f}" for rate in rates)
            what = f"{count} relay{'s' if count > 1 else ''}, {f'{keys:,} keys' if keys else 'no keys'}"
            print(f"{what}: {statistics.median(rates):,.0f} entries/s ({shown})", flush=True)
        for name, options in (("LISTEN/NOTIFY", ()), ("polling every 50 ms", ("--poll", "50"))):
            if options:
                with psycopg.connect(database) as connection:
                    connection.execute("DROP FUNCTION bullmq_outbox_notify CASCADE")
            found = sorted(latencies(database, server.url, outbox, given.latencies, *options))
            p50, p99 = found[len(found) // 2], found[len(found) * 99 // 100]
            print(f"commit to start, {name}: p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
