"""The job that the running code handles, and its fields in log records."""

import logging
from contextvars import copy_context
from typing import Any

import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import JobRecord, QueueKeys
from bullmq_protocol.observability.current import CURRENT, job_fields

FIELDS = {"job_id": "7", "job_name": "welcome", "queue": "mail", "attempt": 3}


def made(package: Any) -> Any:
    fields = {"name": b"welcome", "data": b"{}", "opts": b"{}", "timestamp": b"1", "atm": b"2"}
    return package.Job(JobRecord("7", fields), QueueKeys.of("mail"), None)


def filtered(package: Any, name: str = "", **given: Any) -> dict[str, Any]:
    record = logging.makeLogRecord({"name": "app.db", **given})
    assert package.JobFilter(name).filter(record)
    return {field: getattr(record, field) for field in FIELDS if hasattr(record, field)}


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_records_have_fields_within_a_job_alone(package: Any) -> None:
    job = made(package)

    def within() -> None:
        CURRENT.set(job)
        assert package.current_job() is job
        assert filtered(package) == FIELDS == job_fields(job)
        assert filtered(package, job_id="own") == {**FIELDS, "job_id": "own"}
        assert filtered(package, "app") == FIELDS
        assert filtered(package, "other") == {}

    copy_context().run(within)
    assert package.current_job() is None
    assert filtered(package) == {}
