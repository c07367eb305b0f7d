"""Add prepared jobs, one or many, and report which were added."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from bullmq_protocol.command import Batch, Operation
from bullmq_protocol.commands.adding import (
    AddedJob,
    add_job,
    add_or_find,
    looked_up,
    looks_before,
    may_give_way,
    were_added,
)
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.job import JobRecord, PreparedJob
from bullmq_protocol.net.merge import calls_of, cut, results_of


def add_one(keys: QueueKeys, job: PreparedJob) -> Operation[JobRecord]:
    """Add one job, with any scripts: with our own ones `add_or_find` is one command, which goes together with others.

    Steps:   one round trip
    Atomic:  no: the look at an existing job comes just before
    Raises:  ParentNotFound, ParentNotReplaceable
    Source:  specs/01-data-model-and-adding.md#sec-8-1
    """
    looks = looks_before(keys, job)
    if not looks:
        job_id = yield from add_job(keys, job)
        return added_record(job, job_id)
    *seen, reply = yield from Batch((*looks, add_job(keys, job)))
    if isinstance(reply, BullMQError):
        raise reply
    return added_record(job, reply, were_added([job], [seen], [reply])[0])


def add_many(
    keys: QueueKeys, jobs: Sequence[PreparedJob], *, atomic: bool = False
) -> Operation[list[JobRecord | BullMQError]]:
    """Add several jobs in their order; each gets its record, or the error that refused it.

    Jobs that follow each other go together in one script call, up to 50 and some 1,000,000 bytes.

    Steps:   one round trip; none for no jobs
    Atomic:  with `atomic`: nothing else comes between them, and a connection that breaks leaves all or none of them
    Source:  specs/08-batches.md#add-many
    """
    if not jobs:
        return []
    above = [job.command == "addParentJob" for job in jobs]
    adds = [
        add_or_find(keys, job) if not is_above and may_give_way(job) else add_job(keys, job)
        for job, is_above in zip(jobs, above, strict=True)
    ]
    parts = list(cut(adds))
    # That of a job with children does not say whether it was added.
    looks = [looks_before(keys, job) if is_above else () for job, is_above in zip(jobs, above, strict=True)]
    calls = (*chain(*looks), *calls_of(parts, one_script=atomic and len(parts) > 1))
    seen, replies = looked_up(looks, (yield from Batch(calls, atomic)))
    return _records(jobs, seen, results_of(parts, replies))


def add_each(
    keys: QueueKeys, jobs: Sequence[PreparedJob], *, atomic: bool = False
) -> Operation[list[JobRecord | BullMQError]]:
    """Do the same with a script call per job, as BullMQ's own scripts need it.

    Source:  specs/01-data-model-and-adding.md#sec-8-4
    """
    if not jobs:
        return []
    looks = [looks_before(keys, job) for job in jobs]
    seen, results = looked_up(
        looks, (yield from Batch((*chain(*looks), *(add_job(keys, job) for job in jobs)), atomic))
    )
    return _records(jobs, seen, results)


def _records(
    jobs: Sequence[PreparedJob], seen: Sequence[Sequence[Any]], results: Sequence[Any]
) -> list[JobRecord | BullMQError]:
    return [_record(*each) for each in zip(jobs, results, were_added(jobs, seen, results), strict=True)]


def _record(job: PreparedJob, result: str | AddedJob | BullMQError, added: bool | None) -> JobRecord | BullMQError:
    if isinstance(result, BullMQError):
        return result
    return added_record(job, *result) if isinstance(result, AddedJob) else added_record(job, result, added)


def added_record(job: PreparedJob, job_id: str, added: bool | None = True) -> JobRecord:
    """Return the job as the caller gave it, with the id of the reply. It is not read back.

    After a duplicate or a deduplication the id is that of the existing job, all else that of the refused one: `added`
    is False then.

    Source: specs/01-data-model-and-adding.md#sec-3-11
    """
    return JobRecord(job_id, {**job.shown, "data": job.data_text.encode(), "timestamp": b"%d" % job.timestamp}, added)
