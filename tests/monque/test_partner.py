"""A scheduler on Node's own driver and ours on one collection: each runs the jobs that the other has added.

Monque itself cannot be had from the registry. The partner is ours, written from the specification: this shows that the
types of both drivers agree, not that Monque does what the specification says.
"""

import json
import os
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson import json_util
from pymongo import MongoClient

from monque_protocol.document import Job, read_job
from monque_protocol.events import JobCompleted, JobFailed
from monque_sync import Monque
from tests.support.node import installed

pytestmark = pytest.mark.node
FOLDER = Path(__file__).parent / "node"
JOBS = 40
MIXED = 120


def test_each_runs_what_the_other_has_added(mongodb: str) -> None:
    collection, over = f"jobs_{uuid4().hex}", threading.Event()
    environment = {**os.environ, "NODE_PATH": str(installed(FOLDER))}
    seen: list[Any] = []
    client: Any = MongoClient(mongodb, tz_aware=True)
    with Monque(client["partner"], collection_name=collection, poll_interval=50, base_retry_interval=10) as monque:

        def handle(job: Job[Any]) -> None:
            if job.data["n"] % 10 == 0 and job.fail_count == 0:
                raise ValueError("first run")

        def note(event: Any) -> None:
            seen.append(event)
            if sum(isinstance(each, JobCompleted) and each.job.name == "to-python" for each in seen) == JOBS:
                over.set()

        monque.on(JobCompleted, note)
        monque.on(JobFailed, note)
        monque.worker("to-python", handle)
        ran: list[str] = []

        def share(job: Job[Any]) -> None:
            ran.append(job.id)
            if job.data["fails"] and job.fail_count == 0:
                raise ValueError("first run")

        later = time.time_ns() // 1_000_000 + 60_000
        for number in range(MIXED):
            # Each is asked for twice, and every tenth is cancelled before it is due.
            run_at = later if number % 10 == 9 else None
            for _ in range(2):
                job = monque.enqueue(
                    "mixed", {"n": number, "fails": number % 10 == 5}, unique_key=f"m{number}", run_at=run_at
                )
            if run_at is not None:
                monque.cancel_job(job.id)
        for number in range(JOBS):
            monque.enqueue("to-node", {"n": number, "fails": number % 10 == 5}, unique_key=f"k{number}")
        monque.start()
        command = ["node", str(FOLDER / "partner.js"), mongodb, "partner", collection, str(JOBS)]
        partner = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # It begins with those that both may run; then this one takes part.
        begun = {"name": "mixed", "heartbeatInterval": {"$exists": True}}
        while partner.poll() is None and client["partner"][collection].find_one(begun) is None:
            time.sleep(0.002)
        monque.worker("mixed", share, concurrency=2)
        output, errors = partner.communicate(timeout=100)
        assert partner.returncode == 0, errors
        assert over.wait(60)
    mixed = list(client["partner"][collection].find({"name": "mixed"}))
    theirs = {kind: list(client["partner"][collection].find({"name": kind})) for kind in ("to-python", "to-node")}
    client.drop_database("partner")
    client.close()
    # Both stores hold the same fields and types, whichever driver has written them, as both drivers read them.
    assert {len(each) for each in theirs.values()} == {JOBS}
    for each in (*theirs["to-python"], *theirs["to-node"]):
        assert type(each["failCount"]) is int and each["status"] == "completed" and "lockedAt" not in each
        assert {"_id", "name", "data", "status", "nextRunAt", "failCount", "createdAt", "updatedAt"} <= set(each)
        assert each["heartbeatInterval"] == 30_000 and "failReason" not in each
    *lines, last = output.splitlines()
    printed = [json_util.loads(line) for line in lines]
    stored = {str(each["_id"]): read_job(each) for each in theirs["to-node"]}
    assert {str(each["_id"]): read_job(each) for each in printed} == stored
    assert all("$numberInt" in json.dumps(json.loads(line)["failCount"]) for line in lines)
    # Each of those that both may run was finished once, by either: a second run is that of a retry.
    runs = Counter([*ran, *json.loads(last)])
    assert ran and json.loads(last)
    for each in mixed:
        number = each["data"]["n"]
        expected = {9: ("cancelled", 0, 0), 5: ("completed", 1, 2)}.get(number % 10, ("completed", 0, 1))
        assert (each["status"], each["failCount"], runs[str(each["_id"])]) == expected
    assert len(mixed) == MIXED
    assert sum(isinstance(event, JobFailed) and event.job.name == "to-python" for event in seen) == JOBS // 10
    assert sorted(job.fail_count for job in stored.values()) == [0] * (JOBS - 4) + [1] * 4
