"""Schedulers in processes of their own on one collection, a third of which is killed; MONQUE_JOBS=5000 for more."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from pymongo import MongoClient

from monque_protocol.document import new_document

JOBS = int(os.environ.get("MONQUE_JOBS", "600"))
PROCESSES = int(os.environ.get("MONQUE_PROCESSES", "3"))
LIMIT_S = 150
KINDS = ("threads", "asyncio")
_ROOT = Path(__file__).parents[2]


@contextmanager
def programs(url: str, collection: str, runs: Path, count: int) -> Iterator[list[Any]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.monque.program", KINDS[number % 2], url, collection, str(runs)],
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


def finished(stored: Any) -> int:
    found: int = stored.count_documents({"status": "completed"})
    return found


def wait_for(stored: Any, count: int) -> None:
    limit = time.monotonic() + LIMIT_S
    while finished(stored) < count:
        assert time.monotonic() < limit, list(stored.aggregate([{"$group": {"_id": "$status", "n": {"$sum": 1}}}]))
        time.sleep(0.05)


def test_no_job_is_lost_and_none_runs_twice_while_its_owner_lives(mongodb: str, tmp_path: Path) -> None:
    collection, runs = f"jobs_{uuid4().hex}", tmp_path / "runs"
    client: Any = MongoClient(mongodb)
    stored = client["monque_tests"][collection]
    now = time.time_ns() // 1_000_000
    stored.insert_many([new_document("mail", number, next_run_at=now, now=now) for number in range(JOBS)])
    with programs(mongodb, collection, runs, PROCESSES) as started:
        wait_for(stored, JOBS // 4)
        killed = started[: max(1, PROCESSES // 3)]
        for process in killed:
            process.kill()
            process.wait()
        # What the killed ones had is recovered by a scheduler that starts after the time of the locks.
        left = {str(each["_id"]) for each in stored.find({"status": "processing"})}
        time.sleep(4.5)
        with programs(mongodb, collection, runs, 1):
            wait_for(stored, JOBS)
    dead = {str(process.pid) for process in killed}
    seen: dict[str, list[str]] = {}
    for line in runs.read_text().splitlines():
        job, _, process_id = line.split()
        seen.setdefault(job, []).append(process_id)
    assert len(seen) == JOBS == finished(stored)
    twice = {job: by for job, by in seen.items() if len(by) > 1}
    unexplained = {job: by for job, by in twice.items() if not set(by[:-1]) <= dead}
    assert unexplained == {}
    sys.stdout.write(
        f"\n{JOBS} jobs, {len(started)} schedulers, {len(dead)} killed: {len(twice)} ran again, of {len(left)}\n"
    )
    stored.drop()
    client.close()
