"""What the doctor finds in a collection of Monque's, on a server."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from bson import DatetimeMS
from click.testing import CliRunner
from pymongo import MongoClient

from bullmq_doctor.examine import Severity
from bullmq_doctor.monque import examine, look, main
from monque_protocol import commands
from monque_protocol.document import new_document, to_date
from monque_sync.perform import perform

NOW = 1_766_000_000_000
MINUTE = 60_000


@pytest.fixture
def database(mongodb: str) -> Iterator[Any]:
    with MongoClient(mongodb, tz_aware=True) as client:
        name = f"doctor_{uuid4().hex[:8]}"
        yield client[name]
        client.drop_database(name)


def test_a_healthy_collection_has_no_findings(database: Any, mongodb: str) -> None:
    perform(database, commands.create_indexes("jobs", retention=True))
    database["jobs"].insert_one(new_document("mail", 1, next_run_at=NOW, now=NOW, unique_key="k"))
    assert examine(look(database, "jobs", NOW)) == []
    database["jobs"].update_one({}, {"$set": {"nextRunAt": to_date(4_000_000_000_000)}})
    done = CliRunner().invoke(main, [mongodb, database.name, "jobs"])
    assert (done.exit_code, done.output) == (0, "jobs: nothing is wrong\n")


def test_each_fault_is_found(database: Any, mongodb: str) -> None:
    jobs = database["jobs"]
    jobs.create_index([("name", 1), ("uniqueKey", 1)])

    def add(name: str = "mail", due: int = NOW, **more: Any) -> None:
        jobs.insert_one({**new_document(name, 1, next_run_at=due, now=NOW), **more})

    add(uniqueKey="k")
    add(uniqueKey="k")
    lock = {"status": "processing", "claimedBy": "gone"}
    add(**lock, lockedAt=to_date(NOW - 60 * MINUTE), lastHeartbeat=to_date(NOW))
    add(**lock, lockedAt=to_date(NOW - 5 * MINUTE), lastHeartbeat=to_date(NOW - 4 * MINUTE))
    add(due=NOW - 10 * MINUTE)
    add(status="failed", repeatInterval="* * * * *")
    add(repeatInterval="bad")
    add(name="a b")
    add(status="paused")
    findings = examine(look(database, "jobs", NOW))
    checks = [finding.check for finding in findings]
    assert set(checks) == {
        *("unique-index", "index", "key-conflict", "locked", "silent-owner", "late", "recurring-stopped"),
        *("recurring-cron", "name", "state"),
    }
    assert {finding.where for finding in findings} == {"jobs"} and checks.count("index") == 9
    assert findings[0].severity in Severity and all(finding.problem and finding.fix for finding in findings)
    (unique,) = [finding for finding in findings if finding.check == "unique-index"]
    assert "is not unique" in unique.problem
    done = CliRunner().invoke(main, [mongodb, database.name, "jobs"])
    assert done.exit_code == 3 and "error: jobs: " in done.output


def test_odd_documents_are_found_and_end_no_look(database: Any, mongodb: str) -> None:
    perform(database, commands.create_indexes("jobs", retention=False))
    odd = {"createdAt": DatetimeMS(2**62), "lockedAt": ["x"], "uniqueKey": {"a": 1}, "failCount": "many"}
    database["jobs"].insert_one({**new_document("mail", 1, next_run_at=NOW, now=NOW), **odd, "repeatInterval": 5})
    done = CliRunner().invoke(main, [mongodb, database.name, "jobs"])
    assert done.exit_code == 3 and "recurring job" in done.output and done.exception.__class__ is SystemExit


def test_a_server_that_is_not_there_is_said() -> None:
    done = CliRunner().invoke(main, ["mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50", "x"])
    assert done.exit_code == 4
