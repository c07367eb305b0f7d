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


class Course:
    """How the jobs of one scheduler go: when each began, and whether as many have ended as were there at first."""

    def __init__(self, url: str, jobs: int, over: anyio.Event | threading.Event) -> None:
        self.collection = f"jobs_{uuid4().hex}"
        self._jobs = self._left = jobs
        self._over = over
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}
        self._waits: list[float] = []
        self._started = self._rate = 0.0
        now = time.time_ns() // 1_000_000
        kind: Any = MongoClient
        with kind(url) as client:
            stored = client["claims"][self.collection]
            stored.insert_many([new_document("mail", number, next_run_at=now, now=now) for number in range(jobs)])

    def watch(self, monque: Any) -> None:
        """Count what ends, from now on."""
        monque.on(JobCompleted, self._ended)
        self._started = time.perf_counter()

    def begins(self, job: Job[Any]) -> None:
        self._begun[job.id] = time.perf_counter()

    def _ended(self, _: JobCompleted) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._rate = self._jobs / (time.perf_counter() - self._started)
                self._over.set()

    def waited(self, job: Job[Any], added: float) -> bool:
        """Tell whether a job that was added at this moment has begun, and note how long that took."""
        if job.id not in self._begun:
            return False
        self._waits.append(self._begun[job.id] - added)
        return True

    def result(self) -> tuple[float, float]:
        """Return the jobs per second, and the median wait in milliseconds."""
        return self._rate, statistics.median(self._waits) * 1000


async def of_tasks(url: str, client_kind: Any, jobs: int) -> tuple[float, float]:
    over = anyio.Event()
    course = Course(url, jobs, over)
    client = client_kind(url)
    async with monque_anyio.Monque(client["claims"], collection_name=course.collection, change_streams=False) as monque:

        async def handle(job: Job[Any]) -> None:
            course.begins(job)

        monque.worker("mail", handle, concurrency=SLOTS)
        course.watch(monque)
        await monque.start()
        await over.wait()
        for number in range(SINGLE):
            added = time.perf_counter()
            job = await monque.enqueue("mail", number)
            while not course.waited(job, added):
                await anyio.sleep(0.0005)
    result = client.close()
    if result is not None:
        await result
    return course.result()


def of_threads(url: str, jobs: int) -> tuple[float, float]:
    over = threading.Event()
    course = Course(url, jobs, over)
    kind: Any = MongoClient
    with (
        kind(url) as client,
        monque_sync.Monque(client["claims"], collection_name=course.collection, change_streams=False) as monque,
    ):
        monque.worker("mail", course.begins, concurrency=SLOTS)
        course.watch(monque)
        monque.start()
        over.wait()
        for number in range(SINGLE):
            added = time.perf_counter()
            job = monque.enqueue("mail", number)
            while not course.waited(job, added):
                time.sleep(0.0005)
    return course.result()


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
