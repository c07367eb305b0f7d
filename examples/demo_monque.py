"""Add 500 jobs and run them by Monque, on the server that this machine can have: `make demo-monque`.

That is the first of `tests/support/mongo_servers.py`; where there is none, a scripted one in memory. Every tenth job
fails at its first run and is retried with backoff, a recurring job ticks each second, and a unique key is asked for
twice.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from pymongo import AsyncMongoClient

from examples.demo import Progress
from monque_anyio import Monque
from monque_protocol.document import Job
from monque_protocol.events import JobCompleted, JobFailed
from tests.support import mongo_servers
from tests.support.monque_server import scripted

JOBS = 500


@contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Start a server; give its name and its URL."""
    kind = mongo_servers.kind()
    if kind is None:
        with scripted() as made:
            yield "scripted, in memory", made.url
    else:
        with mongo_servers.start(kind) as url:
            yield kind, url


async def process(job: Job[Any]) -> None:
    if job.data["n"] % 10 == 0 and job.fail_count == 0:
        raise ConnectionError("the first run fails")


async def tick(job: Job[Any]) -> None:
    """What recurs needs no payload."""


async def demo(url: str) -> None:
    client: Any = AsyncMongoClient(url)
    retries = ticks = done = 0
    over = anyio.Event()
    async with Monque(client["demo"], poll_interval=100, base_retry_interval=50) as monque:
        adding = Progress("adding", JOBS)
        for number in range(JOBS):
            await monque.enqueue("square", {"n": number})
            adding.show(number + 1)
        first = await monque.enqueue(
            "report", {"n": 1}, unique_key="daily", run_at=time.time_ns() // 1_000_000 + 60_000
        )
        again = await monque.enqueue("report", {"n": 2}, unique_key="daily")
        await monque.schedule("* * * * * *", "tick", None, unique_key="tick")
        working = Progress("working", JOBS)

        def on_completed(event: JobCompleted) -> None:
            nonlocal ticks, done
            if event.job.name == "tick":
                ticks += 1
            else:
                done += 1
                working.show(done)
            if done == JOBS and ticks >= 2:
                over.set()

        def on_failed(event: JobFailed) -> None:
            nonlocal retries
            retries += event.will_retry

        monque.on(JobCompleted, on_completed)
        monque.on(JobFailed, on_failed)
        monque.worker("square", process, concurrency=20)
        monque.worker("tick", tick)
        await monque.start()
        await over.wait()
        stats = await monque.get_queue_stats("square")
    await client.close()
    print(f"unique key: {'the same job' if first.id == again.id else 'two jobs'}; the recurring job ran {ticks} times")
    print(f"{stats.completed} completed, {stats.failed} failed, {retries} retried")


def main() -> None:
    began = time.monotonic()
    with server() as (name, url):
        print(f"server: {name}")
        anyio.run(demo, url)
    print(f"{time.monotonic() - began:.1f} s in all")


if __name__ == "__main__":
    main()
