"""What tells whether a job was added."""

from typing import Any

import pytest

from bullmq_protocol import Deduplication, JobOptions, NewJob, QueueKeys
from bullmq_protocol.command import Batch
from bullmq_protocol.errors import ParentNotFound, ServerError
from bullmq_protocol.model.job import JobRecord, PreparedJob, prepare
from bullmq_protocol.operations.add_jobs import add_each, add_one

KEYS = QueueKeys.of("q")


def prepared(**options: Any) -> PreparedJob:
    return prepare(KEYS, NewJob("n", 1, JobOptions(**options)), now_ms=5)


def added(job: PreparedJob, *reply: Any) -> JobRecord:
    operation = add_one(KEYS, job)
    step = next(operation)
    assert isinstance(step, Batch) == (len(reply) > 1)
    with pytest.raises(StopIteration) as stop:
        operation.send(list(reply) if len(reply) > 1 else reply[0])
    record: JobRecord = stop.value.value
    return record


def test_one_job() -> None:
    assert added(prepared(), b"1").added is True
    mine = prepared(job_id="mine")
    assert [added(mine, seen, b"mine").added for seen in (0, 1, ServerError("NOPERM x"))] == [True, False, None]
    once = prepared(deduplication=Deduplication("d"))
    assert [added(once, owner, b"7").added for owner in (None, b"7", b"6")] == [True, False, True]
    both = prepared(job_id="mine", deduplication=Deduplication("d"))
    assert [added(both, 0, b"7", reply).added for reply in (b"mine", b"7")] == [True, False]


def test_a_refusal_is_raised() -> None:
    operation = add_one(KEYS, prepared(job_id="mine"))
    next(operation)
    with pytest.raises(ParentNotFound):
        operation.send([0, -5])


def test_refused_jobs_of_several() -> None:
    operation = add_each(KEYS, [prepared(job_id="mine"), prepared()])
    next(operation)
    with pytest.raises(StopIteration) as stop:
        operation.send([0, -5, b"1"])
    refused, record = stop.value.value
    assert isinstance(refused, ParentNotFound)
    assert record.added is True
