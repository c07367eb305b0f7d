"""Jobs per second and the time from adding a job to its handler: `python -m tests.monque.claims [--jobs 2000]`.

On the server that can be had here, for asyncio, asyncio on the blocking client, trio and threads, each with 20 slots.
Monque itself cannot be had from the registry: there is nothing to compare with.
"""

import asyncio
import statistics
import threading
import time
from typing import Any
from uuid import uuid4

import anyio
import click
from pymongo import AsyncMongoClient, MongoClient

import monque_anyio
import monque_sync
from monque_protocol.document import Job, new_document
from monque_protocol.events import JobCompleted
from tests.support import mongo_servers

SLOTS = 20
SINGLE = 50
"""How many jobs are added one by one, to an idle scheduler."""


def _fill(stored: Any, jobs: int) -> None:
    now = time.time_ns() // 1_000_000
    stored.insert_many([new_document("mail", number, next_run_at=now, now=now) for number in range(jobs)])


async def of_tasks(url: str, client_kind: Any, jobs: int) -> tuple[float, float]:
    collection = f"jobs_{uuid4().hex}"
    client = client_kind(url)
    with MongoClient(url) as plain:
        _fill(plain["claims"][collection], jobs)
    over, done = anyio.Event(), 0
    begun: dict[str, float] = {}
    async with monque_anyio.Monque(client["claims"], collection_name=collection, change_streams=False) as monque:

        async def handle(job: Job[Any]) -> None:
            begun[job.id] = time.perf_counter()

        def count(event: JobCompleted) -> None:
            nonlocal done
            done += 1
            if done == jobs:
                over.set()

        monque.on(JobCompleted, count)
        monque.worker("mail", handle, concurrency=SLOTS)
        began = time.perf_counter()
        await monque.start()
        await over.wait()
        rate = jobs / (time.perf_counter() - began)
        waits: list[float] = []
        for number in range(SINGLE):
            added = time.perf_counter()
            job = await monque.enqueue("mail", number)
            while job.id not in begun:
                await anyio.sleep(0.0005)
            waits.append(begun[job.id] - added)
    result = client.close()
    if result is not None:
        await result
    return rate, statistics.median(waits) * 1000


def of_threads(url: str, jobs: int) -> tuple[float, float]:
    collection = f"jobs_{uuid4().hex}"
    kind: Any = MongoClient
    with kind(url) as client:
        _fill(client["claims"][collection], jobs)
        over, done = threading.Event(), 0
        begun: dict[str, float] = {}
        with monque_sync.Monque(client["claims"], collection_name=collection, change_streams=False) as monque:
            lock = threading.Lock()

            def handle(job: Job[Any]) -> None:
                begun[job.id] = time.perf_counter()

            def count(event: JobCompleted) -> None:
                nonlocal done
                with lock:
                    done += 1
                    if done == jobs:
                        over.set()

            monque.on(JobCompleted, count)
            monque.worker("mail", handle, concurrency=SLOTS)
            began = time.perf_counter()
            monque.start()
            over.wait()
            rate = jobs / (time.perf_counter() - began)
            waits: list[float] = []
            for number in range(SINGLE):
                added = time.perf_counter()
                job = monque.enqueue("mail", number)
                while job.id not in begun:
                    time.sleep(0.0005)
                waits.append(begun[job.id] - added)
    return rate, statistics.median(waits) * 1000


@click.command()
@click.option("--jobs", default=2_000, show_default=True)
def main(jobs: int) -> None:
    """Measure, on a server that is started for it."""
    with mongo_servers.start() as url:
        click.echo(f"{mongo_servers.kind()}, {jobs} jobs, {SLOTS} slots")
        for name, (rate, wait) in (
            ("asyncio", asyncio.run(of_tasks(url, AsyncMongoClient, jobs))),
            ("asyncio, blocking client", asyncio.run(of_tasks(url, MongoClient, jobs))),
            ("trio", anyio.run(of_tasks, url, MongoClient, jobs, backend="trio")),
            ("threads", of_threads(url, jobs)),
        ):
            click.echo(f"{name}: {rate:.0f} jobs/s; {wait:.1f} ms from adding a job to its handler (median)")


if __name__ == "__main__":
    main()
