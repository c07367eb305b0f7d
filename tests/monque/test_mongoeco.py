"""A few scenarios on the other server without MongoDB: mongoeco, a server in Python, slow and for small data alone."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from monque_protocol.commands import Selector
from monque_protocol.document import Job
from monque_protocol.errors import JobStateError
from monque_protocol.events import JobCompleted, JobErrored, JobFailed
from monque_sync import Monque
from tests.support import mongo_servers


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    if not mongo_servers.MONGOECO.exists():
        raise pytest.UsageError("CI is set and mongoeco is missing: python -m tools.prepare")
    with mongo_servers.start("mongoeco") as url, MongoClient(url, serverSelectionTimeoutMS=10_000) as client:
        yield client["monque"]


def test_jobs_run_fail_and_are_retried(database: Any) -> None:
    over = threading.Event()
    seen: list[Any] = []
    with Monque(database, poll_interval=100, base_retry_interval=20, change_streams=False) as monque:

        def handle(job: Job[Any]) -> None:
            if job.data == 3 and job.fail_count == 0:
                raise ValueError("three")

        def note(event: Any) -> None:
            seen.append(event)
            if sum(isinstance(each, JobCompleted) for each in seen) == 10:
                over.set()

        for kind in (JobCompleted, JobFailed, JobErrored):
            monque.on(kind, note)
        monque.worker("mail", handle, concurrency=3)
        added = [monque.enqueue("mail", number) for number in range(10)]
        monque.start()
        assert over.wait(60), seen
        assert [str(each.error) for each in seen if not isinstance(each, JobCompleted)] == ["three"]
        assert monque.get_queue_stats("mail").completed == 10
        with pytest.raises(JobStateError):
            monque.cancel_job(added[0].id)


def test_keys_bulk_calls_and_pages(database: Any) -> None:
    with Monque(database, collection_name="managed", change_streams=False) as monque:
        first = monque.enqueue("mail", 1, unique_key="k", run_at=4_000_000_000_000)
        assert monque.enqueue("mail", 2, unique_key="k").id == first.id
        assert monque.cancel_jobs(Selector()) == 1
        assert monque.enqueue("mail", 3, unique_key="k").id != first.id
        assert [job.data for job in monque.get_jobs_with_cursor(limit=5).jobs] == [1, 3]
        assert monque.delete_jobs(Selector()) == 2
