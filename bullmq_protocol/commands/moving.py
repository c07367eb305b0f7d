"""Move jobs between states outside the worker's fetch and finish."""

from __future__ import annotations

from typing import Literal

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands._shared import JobCode, JobFlag
from bullmq_protocol.common.codec import check_choice, number_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.later import require_later
from bullmq_protocol.common.reply import as_bool
from bullmq_protocol.common.units import Millis, check_flag, check_whole
from bullmq_protocol.model.options import check_priority
from bullmq_protocol.scripts._lua import (
    CHANGE_DELAY,
    CHANGE_PRIORITY,
    MOVE_JOBS_TO_WAIT,
    MOVE_TO_WAITING_CHILDREN,
    PROMOTE,
    REPROCESS_JOB,
)

WHATEVER_DUE = "1.7976931348623157e+308"
"""The highest score, as BullMQ's clients write it: every delayed job."""


def move_to_waiting_children(
    keys: QueueKeys, job_id: str, *, token: str, now: Millis, child_key: str | None = None
) -> Command[bool]:
    """Park an active parent until its children are finished, or until the one child is.

    Keys:    active, waiting-children, job, dependencies, unsuccessful, stalled, events
    Args:    token, key of the child or empty, now (ms), id, base prefix
    Reply:   0 parked, 1 nothing pending (the job stays active) -> True when parked
    Raises:  JobNotFound, LockMissing, WrongState, LockMismatch, ChildFailed
    Repeat:  guarded by the token
    Cost:    O(active)
    Source:  specs/03-transitions-admin-getters.md#move-to-waiting-children
    """
    return Command(
        "moveToWaitingChildren",
        (
            keys.active,
            keys.waiting_children,
            keys.job(job_id),
            keys.dependencies(job_id),
            keys.unsuccessful(job_id),
            keys.stalled,
            keys.events,
        ),
        (token, child_key or "", now, job_id, keys.base),
        JobFlag(JobCode("moveToWaitingChildren", job_id, state="active"), 0),
        script=MOVE_TO_WAITING_CHILDREN,
        repeat=Repeat.GUARDED,
    )


def move_jobs_to_wait(
    keys: QueueKeys,
    *,
    state: Literal["failed", "completed", "delayed"],
    count: int = 1000,
    until: Millis | None = None,
) -> Command[bool]:
    """Move the first `count` failed, completed or delayed jobs to wait; of finished ones those until a moment.

    Priorities and parents are not looked at. `until` None: all of them.

    Keys:    base prefix, events, the state's set, wait, paused, meta, active, marker
    Args:    batch size, highest score, state
    Reply:   1 call again, 0 finished -> True when there may be more
    Raises:  UsageError (also for a count below 1, which would never end)
    Repeat:  unsafe: a second run moves the next batch
    Cost:    O(count * log n)
    Source:  specs/03-transitions-admin-getters.md#move-jobs-to-wait
    """
    check_whole("count", count, least=1)
    sources = {"failed": keys.failed, "completed": keys.completed, "delayed": keys.delayed}
    known = check_choice("state", state, sources)
    return Command(
        "moveJobsToWait",
        (keys.base, keys.events, sources[known], keys.wait, keys.paused, keys.meta, keys.active, keys.marker),
        (count, WHATEVER_DUE if until is None else until, known),
        as_bool,
        script=MOVE_JOBS_TO_WAIT,
    )


def reprocess_job(
    keys: QueueKeys,
    job_id: str,
    *,
    state: Literal["failed", "completed"],
    lifo: bool = False,
    reset_attempts_made: bool = False,
    reset_attempts_started: bool = False,
) -> Command[int]:
    """Run a finished job again.

    Its attempts are kept, unless one of the last two says that they count anew. Its priority is looked at with
    `single_retry` 6.3 alone.

    Keys:    job, events, the state's set, wait, meta, paused, active, marker; with `single_retry` 6.3 also prioritized
             and pc, and with `waiting_layout` v6 without paused
    Args:    id, LPUSH or RPUSH, failedReason or returnvalue, state; from `single_retry` 5.81 on 1 to count attempts
             made anew, 1 for those started
    Reply:   1 -> int
    Raises:  UsageError, JobNotFound, WrongState
    Repeat:  guarded: a second run finds the job not finished
    Cost:    O(log n)
    Source:  specs/03-transitions-admin-getters.md#reprocess-job, specs/06-later-versions.md#sec-11-10
    """
    known = check_choice("state", state, ("failed", "completed"))
    failed = known == "failed"
    switches = keys.switches
    resets: tuple[str, ...] = ()
    flags = {"reset_attempts_made": reset_attempts_made, "reset_attempts_started": reset_attempts_started}
    for name, flag in flags.items():
        if check_flag(name, flag):
            require_later(switches.single_retry != "5.62", name, flag)
    if switches.single_retry != "5.62":
        resets = tuple("1" if flag else "0" for flag in flags.values())
    return Command(
        "reprocessJob",
        (
            keys.job(job_id),
            keys.events,
            keys.failed if failed else keys.completed,
            keys.wait,
            keys.meta,
            *((keys.paused,) if switches.waiting_layout != "v6" else ()),
            keys.active,
            keys.marker,
            *((keys.prioritized, keys.pc) if switches.single_retry == "6.3" else ()),
        ),
        (job_id, "RPUSH" if lifo else "LPUSH", "failedReason" if failed else "returnvalue", known, *resets),
        JobCode("reprocessJob", job_id, state=known),
        script=REPROCESS_JOB,
        repeat=Repeat.GUARDED,
    )


def change_delay(keys: QueueKeys, job_id: str, *, delay: float, now: Millis) -> Command[int]:
    """Give a delayed job a new due time: now + `delay` ms.

    Keys:    delayed, meta, marker, events
    Args:    delay (ms), now (ms), id, job key
    Reply:   0 -> int
    Raises:  JobNotFound, WrongState
    Repeat:  unsafe: a second run writes a second event
    Cost:    O(log n)
    Source:  specs/03-transitions-admin-getters.md#change-delay
    """
    return Command(
        "changeDelay",
        (keys.delayed, keys.meta, keys.marker, keys.events),
        (number_text(delay), now, job_id, keys.job(job_id)),
        JobCode("changeDelay", job_id, state="delayed"),
        script=CHANGE_DELAY,
    )


def change_priority(keys: QueueKeys, job_id: str, *, priority: int, lifo: bool = False) -> Command[int]:
    """Change the priority of a job; one that waits is queued anew, with `lifo` in front of its equals.

    Keys:    wait, paused, meta, prioritized, active, pc, marker
    Args:    priority, base prefix, id, 1 for lifo
    Reply:   0 -> int
    Raises:  UsageError, JobNotFound
    Repeat:  unsafe: a second run puts the job behind those that came in between
    Cost:    O(log n + length of the list)
    Source:  specs/03-transitions-admin-getters.md#change-priority
    """
    check_priority(check_whole("priority", priority), keys.switches)
    check_flag("lifo", lifo)
    return Command(
        "changePriority",
        (keys.wait, keys.paused, keys.meta, keys.prioritized, keys.active, keys.pc, keys.marker),
        (priority, keys.base, job_id, "1" if lifo else "0"),
        JobCode("changePriority", job_id),
        script=CHANGE_PRIORITY,
    )


def promote(keys: QueueKeys, job_id: str) -> Command[int]:
    """Make a delayed job ready now.

    Keys:    delayed, wait, paused, meta, prioritized, active, pc, events, marker
    Args:    base prefix, id
    Reply:   0 -> int
    Raises:  WrongState
    Repeat:  guarded: a second run finds the job not delayed
    Cost:    O(log n)
    Source:  specs/03-transitions-admin-getters.md#promote
    """
    return Command(
        "promote",
        (
            keys.delayed,
            keys.wait,
            keys.paused,
            keys.meta,
            keys.prioritized,
            keys.active,
            keys.pc,
            keys.events,
            keys.marker,
        ),
        (keys.base, job_id),
        JobCode("promote", job_id, state="delayed"),
        script=PROMOTE,
        repeat=Repeat.GUARDED,
    )
