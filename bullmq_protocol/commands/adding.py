"""Add jobs."""

from __future__ import annotations

from typing import Final

from bullmq_protocol._lua import ADD_DELAYED_JOB, ADD_PARENT_JOB, ADD_PRIORITIZED_JOB, ADD_STANDARD_JOB
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands._shared import AddedId
from bullmq_protocol.job import PreparedJob
from bullmq_protocol.keys import QueueKeys

_ADDED: Final = AddedId(None)


def add_job(keys: QueueKeys, job: PreparedJob) -> Command[str]:
    """Add one prepared job with the script that its options ask for.

    Reply:   the job's id -> str (also of the existing job, for a duplicate or a deduplicated one)
    Raises:  ParentNotFound, ParentNotReplaceable
    Repeat:  unsafe; guarded by the id when the caller gave one
    Source:  specs/01-data-model-and-adding.md#sec-8-1
    """
    match job.command:
        case "addStandardJob":
            return add_standard_job(keys, job)
        case "addDelayedJob":
            return add_delayed_job(keys, job)
        case "addPrioritizedJob":
            return add_prioritized_job(keys, job)
        case _:
            return add_parent_job(keys, job)


def add_standard_job(keys: QueueKeys, job: PreparedJob) -> Command[str]:
    """Add a job that can run at once, without priority.

    Keys:    wait, paused, meta, id, completed, delayed, active, events, marker
    Args:    packed head, data JSON, packed options
    Reply:   the job's id -> str
    Raises:  ParentNotFound, ParentNotReplaceable
    Repeat:  unsafe; guarded by the id when the caller gave one
    Cost:    O(1)
    Source:  specs/01-data-model-and-adding.md#add-standard-job
    """
    return Command(
        "addStandardJob",
        keys.of_standard_add,
        (job.head, job.data_text, job.packed_options),
        _ADDED if job.parent_key is None else AddedId(job.parent_key),
        script=ADD_STANDARD_JOB,
        repeat=_repeat(job),
    )


def add_delayed_job(keys: QueueKeys, job: PreparedJob) -> Command[str]:
    """Add a job that becomes available later.

    Keys:    marker, meta, id, delayed, completed, events
    Args:    packed head, data JSON, packed options
    Reply:   the job's id -> str
    Raises:  ParentNotFound, ParentNotReplaceable
    Repeat:  unsafe; guarded by the id when the caller gave one
    Cost:    O(log n)
    Source:  specs/01-data-model-and-adding.md#add-delayed-job
    """
    return Command(
        "addDelayedJob",
        keys.of_delayed_add,
        (job.head, job.data_text, job.packed_options),
        _ADDED if job.parent_key is None else AddedId(job.parent_key),
        script=ADD_DELAYED_JOB,
        repeat=_repeat(job),
    )


def add_prioritized_job(keys: QueueKeys, job: PreparedJob) -> Command[str]:
    """Add a job that can run at once, with a priority.

    Keys:    marker, meta, id, prioritized, delayed, completed, active, events, pc
    Args:    packed head, data JSON, packed options
    Reply:   the job's id -> str
    Raises:  ParentNotFound, ParentNotReplaceable
    Repeat:  unsafe; guarded by the id when the caller gave one
    Cost:    O(log n)
    Source:  specs/01-data-model-and-adding.md#add-prioritized-job
    """
    return Command(
        "addPrioritizedJob",
        keys.of_prioritized_add,
        (job.head, job.data_text, job.packed_options),
        _ADDED if job.parent_key is None else AddedId(job.parent_key),
        script=ADD_PRIORITIZED_JOB,
        repeat=_repeat(job),
    )


def add_parent_job(keys: QueueKeys, job: PreparedJob) -> Command[str]:
    """Add a job that waits for its children.

    Keys:    meta, id, delayed, waiting-children, completed, events
    Args:    packed head, data JSON, packed options
    Reply:   the job's id -> str
    Raises:  ParentNotFound, ParentNotReplaceable
    Repeat:  unsafe; guarded by the id when the caller gave one
    Cost:    O(log n)
    Source:  specs/01-data-model-and-adding.md#add-parent-job
    """
    return Command(
        "addParentJob",
        (keys.meta, keys.id, keys.delayed, keys.waiting_children, keys.completed, keys.events),
        (job.head, job.data_text, job.packed_options),
        _ADDED if job.parent_key is None else AddedId(job.parent_key),
        script=ADD_PARENT_JOB,
        repeat=_repeat(job),
    )


def _repeat(job: PreparedJob) -> Repeat:
    return Repeat.GUARDED if job.job_id else Repeat.UNSAFE
