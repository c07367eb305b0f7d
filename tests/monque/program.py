"""A scheduler as a program: `python -m tests.monque.program KIND URL COLLECTION RUNS`, until its standard input ends.

Each run is a line in the file RUNS, before its handler does anything else: the job, the owner, the process.
"""

import os
import sys
import time
from typing import Any

import anyio
from pymongo import AsyncMongoClient, MongoClient

import monque_anyio
import monque_sync
from monque_protocol.document import Job

OPTIONS: dict[str, Any] = {"poll_interval": 100, "change_streams": False, "heartbeat_interval": 500}
LOCK_MS = 4_000


class Runs:
    """The file of runs: lines of several processes do not mix."""

    def __init__(self, name: str) -> None:
        self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, job: Job[Any]) -> None:
        os.write(self._file, f"{job.id} {job.claimed_by} {os.getpid()}\n".encode())


def threads(url: str, collection: str, runs: Runs) -> None:
    def handle(job: Job[Any]) -> None:
        runs.note(job)
        time.sleep(0.002)

    database: Any = MongoClient(url)["monque_tests"]
    with monque_sync.Monque(database, collection_name=collection, lock_timeout=LOCK_MS, **OPTIONS) as monque:
        monque.worker("mail", handle, concurrency=4)
        monque.start()
        sys.stdin.read()


async def tasks(url: str, collection: str, runs: Runs) -> None:
    async def handle(job: Job[Any]) -> None:
        runs.note(job)
        await anyio.sleep(0.002)

    database: Any = AsyncMongoClient(url)["monque_tests"]
    async with monque_anyio.Monque(database, collection_name=collection, lock_timeout=LOCK_MS, **OPTIONS) as monque:
        monque.worker("mail", handle, concurrency=4)
        await monque.start()
        await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    kind, url, collection, file = sys.argv[1:]
    if kind == "threads":
        threads(url, collection, Runs(file))
    else:
        anyio.run(tasks, url, collection, Runs(file))
