"""Add prepared jobs, one or many, and say what was added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bullmq_protocol.command import Batch, Command, Operation
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.commands.batches import add_many as merge
from bullmq_protocol.commands.batches import parts
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.job import JobRecord, PreparedJob
from bullmq_protocol.keys import QueueKeys


def add_one(keys: QueueKeys, job: PreparedJob) -> Operation[JobRecord]:
    """Add one job.

    Steps:   one round trip
    Raises:  ParentNotFound, ParentNotReplaceable
    Source:  specs/01-data-model-and-adding.md#sec-8-1
    """
    job_id = yield from add_job(keys, job)
    return added_record(job, job_id)


def add_many(keys: QueueKeys, jobs: Sequence[PreparedJob]) -> Operation[list[JobRecord | BullMQError]]:
    """Add several jobs in their order; each gets its record, or the error that refused it.

    Jobs that follow each other go together in one script call, up to 50 and some 1,000,000 bytes.

    Steps:   one round trip; none for no jobs
    Atomic:  no: when the connection breaks, the first of them may have been added and the last not
    Source:  specs/08-batches.md#add-many
    """
    if not jobs:
        return []
    return _records(jobs, (yield from _merged(keys, [add_job(keys, job) for job in jobs])))


def add_each(keys: QueueKeys, jobs: Sequence[PreparedJob]) -> Operation[list[JobRecord | BullMQError]]:
    """Do the same with a script call per job, as BullMQ's own scripts need it.

    Source:  specs/01-data-model-and-adding.md#sec-8-4
    """
    if not jobs:
        return []
    return _records(jobs, (yield from Batch(tuple(add_job(keys, job) for job in jobs))))


def _merged(keys: QueueKeys, adds: Sequence[Command[str]]) -> Operation[list[Any]]:
    cut = list(parts(adds))
    calls: list[Command[Any]] = [part[0] if len(part) == 1 else merge(keys, part) for part in cut]
    results: list[Any] = []
    for part, reply in zip(cut, (yield from Batch(tuple(calls))), strict=True):
        if len(part) == 1 or isinstance(reply, BullMQError):
            results += [reply] * len(part)
        else:
            results += Batch(tuple(part)).decode(reply)
    return results


def _records(jobs: Sequence[PreparedJob], results: Sequence[Any]) -> list[JobRecord | BullMQError]:
    return [
        result if isinstance(result, BullMQError) else added_record(job, result)
        for job, result in zip(jobs, results, strict=True)
    ]


def added_record(job: PreparedJob, job_id: str) -> JobRecord:
    """Return the job as the caller gave it, with the id of the reply. It is not read back.

    After a duplicate or a deduplication the id is that of the existing job, all else that of the refused one.

    Source: specs/01-data-model-and-adding.md#sec-3-11
    """
    return JobRecord(job_id, {**job.shown, "data": job.data_text.encode(), "timestamp": b"%d" % job.timestamp})
