"""Add jobs."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from bullmq_protocol.command import Command, Merge, Repeat
from bullmq_protocol.commands._merging import ADDS
from bullmq_protocol.commands._shared import AddedId, AddedOrFound
from bullmq_protocol.commands._shared import AddedJob as AddedJob
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import as_bool, as_none, as_optional_text
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.model.job import PreparedJob
from bullmq_protocol.scripts._lua import (
    ADD_DELAYED_JOB,
    ADD_MANY,
    ADD_PARENT_JOB,
    ADD_PRIORITIZED_JOB,
    ADD_STANDARD_JOB,
)
from bullmq_protocol.scripts._lua_later import RELEASE_PARENT_IF_NO_PENDING_DEPENDENCIES

_ADDED: Final = AddedId(None)
_FOUND: Final = AddedOrFound(None)

KINDS: Final = MappingProxyType(
    {
        "addStandardJob": "0",
        "addDelayedJob": "1",
        "addPrioritizedJob": "2",
        "addParentJob": "3",
        "releaseParentIfNoPendingDependencies": "4",
    }
)
"""The commands that may share one call, and their codes in it.

Source: specs/08-batches.md#add-many
"""

# Looked up here once: adding a job is a hot path.
_STANDARD: Final = (KINDS["addStandardJob"],)
_DELAYED: Final = (KINDS["addDelayedJob"],)
_PRIORITIZED: Final = (KINDS["addPrioritizedJob"],)
_PARENT: Final = (KINDS["addParentJob"],)
_RELEASE: Final = (KINDS["releaseParentIfNoPendingDependencies"],)
_GUARDED: Final = Repeat.GUARDED
_UNSAFE: Final = Repeat.UNSAFE


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
        repeat=_GUARDED if job.job_id else _UNSAFE,
        merge=Merge(ADDS, keys.base, len(job.data_text), _STANDARD),
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
        repeat=_GUARDED if job.job_id else _UNSAFE,
        merge=Merge(ADDS, keys.base, len(job.data_text), _DELAYED),
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
        repeat=_GUARDED if job.job_id else _UNSAFE,
        merge=Merge(ADDS, keys.base, len(job.data_text), _PRIORITIZED),
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
        repeat=_GUARDED if job.job_id else _UNSAFE,
        # Versions differ in the deduplication of a job with children, not of others.
        merge=None if job.options.deduplication is not UNSET else Merge(ADDS, keys.base, len(job.data_text), _PARENT),
    )


def add_or_find(keys: QueueKeys, job: PreparedJob) -> Command[AddedJob]:
    """Add one job without children, and tell whether it was added or gave way to an existing one.

    This is addMany for one job: it goes together with other adds. With BullMQ's own scripts nothing tells.

    Keys:    wait, paused, meta, id, completed, delayed, active, events, marker, prioritized, pc, waiting-children
    Args:    kind, packed head, data JSON, packed options
    Reply:   the job's id, or that of the existing job, and 0 -> AddedJob
    Raises:  UsageError for a job with children; ParentNotFound, ParentNotReplaceable
    Repeat:  unsafe; guarded by the id when the caller gave one
    Cost:    that of the single command
    Source:  specs/08-batches.md#add-many
    """
    kind = KINDS[job.command]
    if job.command == "addParentJob":
        raise UsageError("job", job.command, "must be a job without children")
    return Command(
        "addMany",
        keys.of_many_adds,
        (kind, job.head, job.data_text, job.packed_options),
        _FOUND if job.parent_key is None else AddedOrFound(job.parent_key),
        script=ADD_MANY,
        repeat=_GUARDED if job.job_id else _UNSAFE,
        # The kind is among the arguments.
        merge=Merge(ADDS, keys.base, len(job.data_text), ()),
    )


def release_parent(queue: str, parent_id: str, *, now: Millis) -> Command[None]:
    """Let a parent go that has no pending child, at the end of the transaction that adds a flow with deferred releases.

    `queue` is the qualified name of its queue.

    Keys:    parent, its pending children
    Args:    qualified name of the parent's queue, id of the parent, now (ms)
    Reply:   nil -> None
    Repeat:  safe
    Cost:    O(log n)
    Source:  specs/06-later-versions.md#sec-4-9-3
    """
    parent = f"{queue}:{parent_id}"
    return Command(
        "releaseParentIfNoPendingDependencies",
        (parent, f"{parent}:dependencies"),
        (queue, parent_id, now),
        as_none,
        script=RELEASE_PARENT_IF_NO_PENDING_DEPENDENCIES,
        repeat=Repeat.SAFE,
        merge=Merge(ADDS, f"{queue}:", 0, _RELEASE),
    )


Look: TypeAlias = tuple[Command[Any], ...]


def may_give_way(job: PreparedJob) -> bool:
    """Tell whether a job may be answered by an existing one: it has an id of its own, or a deduplication id."""
    return job.options.job_id is not UNSET or job.deduplication_key is not None


def looks_before(keys: QueueKeys, job: PreparedJob) -> Look:
    """Return the commands which, sent just before, reveal whether a job was added: none for a job whose id comes from
    the counter. `add_or_find` needs none.

    For a job with a custom id: does it exist? For one with a deduplication id: which job owns it?

    Source: specs/01-data-model-and-adding.md#sec-6-2
    """
    looks: list[Command[Any]] = []
    if job.options.job_id is not UNSET:
        looks.append(Command("EXISTS", (keys.job(job.job_id),), (), as_bool, repeat=Repeat.SAFE))
    if job.deduplication_key is not None:
        looks.append(Command("GET", (job.deduplication_key,), (), as_optional_text, repeat=Repeat.SAFE))
    return tuple(looks)


def looked_up(looks: Sequence[Look], answers: Sequence[Any]) -> tuple[list[Sequence[Any]], Sequence[Any]]:
    """Return the answers to each job's looks, and the answers after them."""
    seen: list[Sequence[Any]] = []
    place = 0
    for look in looks:
        seen.append(answers[place : place + len(look)])
        place += len(look)
    return seen, answers[place:]


def were_added(jobs: Sequence[PreparedJob], seen: Sequence[Sequence[Any]], results: Sequence[Any]) -> list[bool | None]:
    """Tell from the looks before a call, and from its results, which jobs were added: False for a job that gave way to
    an existing one or to an earlier one of the same call, and for one that was refused; None if its looks were
    refused."""
    known: set[str] = set()
    owners: dict[str, str] = {}
    return [_was_added(job, look, result, known, owners) for job, look, result in zip(jobs, seen, results, strict=True)]


def _was_added(
    job: PreparedJob, seen: Sequence[Any], result: str | BullMQError, known: set[str], owners: dict[str, str]
) -> bool | None:
    if isinstance(result, BullMQError):
        return False
    if not seen:
        return True
    if any(isinstance(each, BullMQError) for each in seen):
        return None
    key = job.deduplication_key
    if job.options.job_id is not UNSET:
        # Another id is that of the job that owns the deduplication id.
        added = result == job.job_id and not seen[0] and result not in known
    else:
        added = result != owners.get(key or "", seen[-1])
    known.add(result)
    if key is not None:
        owners[key] = result
    return added
