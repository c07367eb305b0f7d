"""Remove many jobs of a queue, what belongs to a job, and links between jobs."""

from __future__ import annotations

from collections.abc import Sequence

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands._shared import JobCode, JobFlag
from bullmq_protocol.common.codec import check_choice, number_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import as_bool, as_int, as_none, as_texts
from bullmq_protocol.common.units import check_flag, check_whole
from bullmq_protocol.scripts._lua import CLEAN_JOBS_IN_SET, DRAIN, REMOVE_CHILD_DEPENDENCY, REMOVE_UNPROCESSED_CHILDREN
from bullmq_protocol.scripts._lua_later import REMOVE_DEDUPLICATION_KEY, REMOVE_ORPHANED_JOBS

JOB_PARTS = ("logs", "dependencies", "processed", "failed", "unsuccessful", "lock")
"""What the keys of a job end with, but for its hash."""
_STATES = (
    *("wait", "paused", "active", "delayed", "prioritized", "completed", "failed", "waiting-children"),
    *("stalled", "repeat"),
)
CLEANABLE = ("wait", "paused", "active", "delayed", "prioritized", "completed", "failed", "waiting-children")


def drain(keys: QueueKeys, *, delayed: bool = False) -> Command[None]:
    """Remove all waiting and prioritized jobs, and with `delayed` the delayed ones; current jobs of schedulers stay.

    Keys:    wait, paused, delayed, prioritized, repeat
    Args:    base prefix, 1 for the delayed jobs too
    Reply:   nil -> None
    Raises:  UsageError
    Repeat:  unsafe: jobs that were added in between would go too
    Cost:    O(jobs removed), in one run of the script
    Source:  specs/03-transitions-admin-getters.md#drain
    """
    check_flag("delayed", delayed)
    names = (keys.wait, keys.paused, keys.delayed, keys.prioritized, keys.repeat)
    return Command("drain", names, (keys.base, "1" if delayed else "0"), as_none, script=DRAIN)


def clean_jobs_in_set(keys: QueueKeys, state: str, *, until: float, limit: int) -> Command[list[str]]:
    """Remove the jobs of one state that are not newer than `until` (ms), at most `limit` of them; 0: all.

    Keys:    the state's list or set, events, repeat
    Args:    base prefix, highest timestamp (ms), limit, state as in the keys
    Reply:   the ids that were removed -> list of str
    Raises:  UsageError (another state), UnexpectedReply
    Repeat:  unsafe: the ids of the first run are lost
    Cost:    O(jobs read); for wait, paused and active also O(length of the list)
    Source:  specs/03-transitions-admin-getters.md#clean-jobs-in-set
    """
    state = check_choice("state", state, CLEANABLE)
    return Command(
        "cleanJobsInSet",
        (f"{keys.base}{state}", keys.events, keys.repeat),
        (keys.base, number_text(until), limit, state),
        as_texts,
        script=CLEAN_JOBS_IN_SET,
    )


def remove_child_dependency(keys: QueueKeys, job_id: str, parent_key: str) -> Command[bool]:
    """Break the link between a job and its parent; the parent is released if this was its last child.

    Keys:    base prefix
    Args:    key of the child, key of the parent
    Reply:   0 unlinked, 1 was not linked -> True when unlinked
    Raises:  JobNotFound, ParentNotFound
    Repeat:  guarded: a second run finds no link
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#remove-child-dependency
    """
    return Command(
        "removeChildDependency",
        (keys.base,),
        (keys.job(job_id), parent_key),
        JobFlag(JobCode("removeChildDependency", job_id, parent_key=parent_key or "undefined"), 0),
        script=REMOVE_CHILD_DEPENDENCY,
        repeat=Repeat.GUARDED,
    )


def remove_unprocessed_children(keys: QueueKeys, job_id: str) -> Command[None]:
    """Remove all children of a job, and theirs, that are neither finished nor locked.

    Keys:    job, meta
    Args:    base prefix, id
    Reply:   nil -> None
    Repeat:  safe
    Cost:    O(size of the pending tree + lists searched)
    Source:  specs/03-transitions-admin-getters.md#remove-unprocessed-children
    """
    return Command(
        "removeUnprocessedChildren",
        (keys.job(job_id), keys.meta),
        (keys.base, job_id),
        as_none,
        script=REMOVE_UNPROCESSED_CHILDREN,
        repeat=Repeat.SAFE,
    )


def clear_logs(keys: QueueKeys, job_id: str, *, keep: int = 0) -> Command[None]:
    """Remove a job's log rows but the newest `keep`.

    Keys:    job logs
    Raises:  UsageError
    Repeat:  safe
    Cost:    O(rows removed)
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    if check_whole("keep", keep, least=0):
        return Command("LTRIM", (keys.logs(job_id),), (-keep, -1), as_none, repeat=Repeat.SAFE)
    return Command("DEL", (keys.logs(job_id),), (), as_none, repeat=Repeat.SAFE)


def trim_events(keys: QueueKeys, max_length: int) -> Command[int]:
    """Trim the event stream to about `max_length` entries.

    Keys:    events
    Reply:   number of entries removed -> int
    Raises:  UsageError
    Repeat:  safe
    Cost:    O(entries removed)
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    check_whole("max_length", max_length, least=0)
    return Command("XTRIM", (keys.events,), ("MAXLEN", "~", max_length), as_int, repeat=Repeat.SAFE)


def remove_deduplication_key(keys: QueueKeys, deduplication_id: str) -> Command[int]:
    """Let go of a deduplication id, so that the next job with it is added. Stored jobs are not touched.

    Keys:    deduplication key
    Reply:   1, or 0 when the id was free -> int
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("DEL", (keys.deduplication(deduplication_id),), (), as_int, repeat=Repeat.SAFE)


def remove_own_deduplication_key(keys: QueueKeys, deduplication_id: str, job_id: str) -> Command[bool]:
    """Let go of a deduplication id if this job owns it, so that the next job with it is added.

    Keys:    deduplication key
    Args:    id of the job
    Reply:   1, or 0 when another job owns it, or none -> bool
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/06-later-versions.md#sec-4-2-7
    """
    return Command(
        "removeDeduplicationKey",
        (keys.deduplication(deduplication_id),),
        (job_id,),
        as_bool,
        script=REMOVE_DEDUPLICATION_KEY,
        repeat=Repeat.SAFE,
    )


def remove_orphaned_jobs(keys: QueueKeys, job_ids: Sequence[str], *, in_cluster: bool = False) -> Command[int]:
    """Remove those of these jobs that are in no state of the queue, with all that belongs to them.

    `in_cluster`: the states are named as keys. A node to which their slot is moving then refuses the call, as long as
    it has not all of them: it would take jobs for orphans whose list is still to come.

    Keys:    base prefix; in a cluster the states, too
    Args:    number of states, states, number of parts of a job, parts, ids
    Reply:   how many ids were in no state -> int
    Repeat:  safe
    Cost:    O(ids * (wait + paused + active))
    Source:  specs/06-later-versions.md#sec-4-12
    """
    states = tuple(f"{keys.base}{state}" for state in _STATES) if in_cluster else ()
    return Command(
        "removeOrphanedJobs",
        (keys.base, *states),
        (len(_STATES), *_STATES, len(JOB_PARTS), *JOB_PARTS, *job_ids),
        as_int,
        script=REMOVE_ORPHANED_JOBS,
        repeat=Repeat.SAFE,
    )


def remove_rate_limit_key(keys: QueueKeys) -> Command[int]:
    """End the current rate limit window, or a manual limit.

    Keys:    limiter
    Reply:   1, or 0 when there was none -> int
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("DEL", (keys.limiter,), (), as_int, repeat=Repeat.SAFE)


def remove_deprecated_priority_key(keys: QueueKeys) -> Command[int]:
    """Remove the key that very old versions used for priorities.

    Keys:    priority
    Reply:   1, or 0 when there was none -> int
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("DEL", (f"{keys.base}priority",), (), as_int, repeat=Repeat.SAFE)
