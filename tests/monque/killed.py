"""Schedulers in processes of their own on one collection, a third of which is killed in the middle.

`python -m tests.monque.killed [--jobs 5000] [--processes 8]` on the server that can be had here; each process runs four
jobs concurrently, in threads or in tasks. It says how many jobs ran again, and which of those nothing explains.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import click
import msgspec
from pymongo import MongoClient

from monque_protocol.document import new_document
from tests.monque.program import LOCK_MS
from tests.support import mongo_servers

_KINDS = ("threads", "asyncio")
_LIMIT_S = 150
_ROOT = Path(__file__).parents[2]


class Outcome(msgspec.Struct, frozen=True):
    """What became of the jobs. `unexplained`: ran again although none of the earlier runs was of a killed process."""

    jobs: int
    schedulers: int
    killed: int
    ran: int
    completed: int
    left: int
    again: int
    unexplained: dict[str, list[str]]
    took_s: float

    def __str__(self) -> str:
        return (
            f"{self.jobs} jobs, {self.schedulers} schedulers of 4, {self.killed} killed, which held {self.left}: "
            f"{self.completed} completed, {self.jobs - self.ran} never ran, {self.again} ran again, of these "
            f"{len(self.unexplained)} unexplained; {self.took_s:.0f} s"
        )


@contextmanager
def programs(url: str, collection: str, runs: Path, count: int) -> Iterator[list[Any]]:
    """Start schedulers; end those that are left."""
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.monque.program", _KINDS[number % 2], url, collection, str(runs)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
        )
        for number in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            assert process.stdin is not None
            process.stdin.close()
        for process in started:
            process.wait(60)


def _wait_for(stored: Any, count: int) -> None:
    limit = time.monotonic() + _LIMIT_S
    while stored.count_documents({"status": "completed"}) < count:
        assert time.monotonic() < limit, list(stored.aggregate([{"$group": {"_id": "$status", "n": {"$sum": 1}}}]))
        time.sleep(0.05)


def run(url: str, jobs: int, processes: int, folder: Path) -> Outcome:
    """Let the schedulers work, kill a third of them, and start one more after the time of the locks."""
    began = time.monotonic()
    collection, runs = f"jobs_{uuid4().hex}", folder / "runs"
    kind: Any = MongoClient
    with kind(url) as client:
        stored = client["monque_tests"][collection]
        now = time.time_ns() // 1_000_000
        stored.insert_many([new_document("mail", number, next_run_at=now, now=now) for number in range(jobs)])
        with programs(url, collection, runs, processes) as started:
            _wait_for(stored, jobs // 4)
            killed = started[: -(-processes // 3)]
            for process in killed:
                process.kill()
                process.wait()
            left = stored.count_documents({"status": "processing"})
            # What the killed ones had is recovered by a scheduler that starts after the time of the locks.
            time.sleep(LOCK_MS / 1000 + 0.5)
            with programs(url, collection, runs, 1):
                _wait_for(stored, jobs)
        dead = {str(process.pid) for process in killed}
        seen: dict[str, list[str]] = {}
        for line in runs.read_text().splitlines():
            job, _, process_id = line.split()
            seen.setdefault(job, []).append(process_id)
        again = {job: by for job, by in seen.items() if len(by) > 1}
        outcome = Outcome(
            jobs,
            processes,
            len(dead),
            len(seen),
            stored.count_documents({"status": "completed"}),
            left,
            len(again),
            {job: by for job, by in again.items() if not set(by[:-1]) <= dead},
            time.monotonic() - began,
        )
        stored.drop()
    return outcome


@click.command()
@click.option("--jobs", default=5_000, show_default=True)
@click.option("--processes", default=8, show_default=True)
def main(jobs: int, processes: int) -> None:
    """Run it on a server that is started for it, and print what became of the jobs."""
    with mongo_servers.start() as url, TemporaryDirectory() as folder:
        outcome = run(url, jobs, processes, Path(folder))
    click.echo(f"{mongo_servers.kind()}: {outcome}")
    sys.exit(bool(outcome.unexplained) or outcome.ran != jobs or outcome.completed != jobs)


if __name__ == "__main__":
    main()
