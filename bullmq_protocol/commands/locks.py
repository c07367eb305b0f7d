"""Locks of active jobs, and the check for jobs whose lock is gone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.codec import pack_known
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import as_bool, as_texts
from bullmq_protocol.common.units import Millis
from bullmq_protocol.scripts._lua import EXTEND_LOCK, EXTEND_LOCKS, MOVE_STALLED_JOBS_TO_WAIT, RELEASE_LOCK


def extend_lock(keys: QueueKeys, job_id: str, *, token: str, lock_ms: Millis) -> Command[bool]:
    """Renew the lock of one active job.

    Keys:    job lock, stalled
    Args:    token, duration (ms), id
    Reply:   1 renewed, 0 not ours any more -> True, False
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/02-worker-path.md#extend-lock
    """
    return Command(
        "extendLock",
        (keys.lock(job_id), keys.stalled),
        (token, lock_ms, job_id),
        as_bool,
        script=EXTEND_LOCK,
        repeat=Repeat.SAFE,
    )


def extend_locks(
    keys: QueueKeys, *, job_ids: Sequence[str], tokens: Sequence[str], lock_ms: Millis
) -> Command[list[str]]:
    """Renew many locks in one call; `tokens` and `job_ids` go in pairs.

    Keys:    stalled
    Args:    base prefix, packed tokens, packed ids, duration (ms)
    Reply:   ids that were not renewed -> list of str
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(ids)
    Source:  specs/02-worker-path.md#extend-locks
    """
    return Command(
        "extendLocks",
        (keys.stalled,),
        (keys.base, pack_known([*tokens]), pack_known([*job_ids]), lock_ms),
        as_texts,
        script=EXTEND_LOCKS,
        repeat=Repeat.SAFE,
    )


def renewed_jobs(command: Command[list[str]]) -> list[str]:
    """Return the ids of the jobs that `extend_locks` is for."""
    ids = command.args[2]
    assert isinstance(ids, bytes)  # it packs them
    return msgspec.msgpack.decode(ids, type=list[str])


def release_lock(keys: QueueKeys, job_id: str, *, token: str) -> Command[bool]:
    """Delete the lock of a job if it is ours. No BullMQ client sends this.

    Keys:    job lock
    Args:    token, duration (not used)
    Reply:   1 deleted, 0 not ours -> True, False
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/02-worker-path.md#release-lock
    """
    return Command("releaseLock", (keys.lock(job_id),), (token, 0), as_bool, script=RELEASE_LOCK, repeat=Repeat.SAFE)


def move_stalled_jobs_to_wait(
    keys: QueueKeys, *, max_stalled_count: int, now: Millis, interval_ms: Millis
) -> Command[list[str]]:
    """Put active jobs without a lock back to wait, once per interval and queue.

    Keys:    stalled, wait, active, stalled-check, meta, paused, marker, events; with `stalled_exemption` live-scheduler
             also repeat
    Args:    maximum stalled count, base prefix, now (ms), interval (ms)
    Reply:   ids of the jobs that wait again -> list of str
    Raises:  UnexpectedReply
    Repeat:  safe: the throttle key makes a second run an empty one
    Cost:    O(stalled * active)
    Source:  specs/02-worker-path.md#move-stalled-jobs-to-wait
    """
    return Command(
        "moveStalledJobsToWait",
        (
            keys.stalled,
            keys.wait,
            keys.active,
            keys.stalled_check,
            keys.meta,
            keys.paused,
            keys.marker,
            keys.events,
            *((keys.repeat,) if keys.switches.stalled_exemption == "live-scheduler" else ()),
        ),
        (max_stalled_count, keys.base, now, interval_ms),
        as_texts,
        script=MOVE_STALLED_JOBS_TO_WAIT,
        repeat=Repeat.SAFE,
    )
