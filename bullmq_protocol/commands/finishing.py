"""End an active job: finish it, retry it, or give it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from bullmq_protocol.command import Command, Merge, Repeat
from bullmq_protocol.commands._merging import OUTCOMES
from bullmq_protocol.commands._shared import Fetched, FinishedReply, JobCode, Limiter
from bullmq_protocol.common.codec import number_text, pack, pack_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Millis
from bullmq_protocol.scripts._lua import MOVE_JOB_FROM_ACTIVE_TO_WAIT, MOVE_TO_DELAYED, MOVE_TO_FINISHED, RETRY_JOB


class FinishOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The packed options of moveToFinished.

    `keep_jobs` is the retention map (`count`, `age` in seconds); `limiter`, `lock_ms` and `worker_name` serve the next
    job only; `max_metrics_size` 0 switches metrics off.

    Source: specs/02-worker-path.md#sec-2-2
    """

    token: str
    keep_jobs: dict[str, int | float]
    lock_ms: Millis | None = None
    attempts: float = 0
    limiter: Limiter | None = None
    worker_name: str | None = None
    max_metrics_size: int = 0
    fail_parent_on_failure: bool = False
    continue_parent_on_failure: bool = False
    ignore_dependency_on_failure: bool = False
    remove_dependency_on_failure: bool = False

    def packed(self) -> bytes:
        """Return the msgpack map."""
        return PackedFinish(self.token, self.packed_rest()).packed()

    def packed_rest(self) -> bytes:
        """Return the members of the msgpack map after the token: the same for all jobs with the same options."""
        limiter = self.limiter
        rest = pack(
            {
                "name": self.worker_name,
                "keepJobs": self.keep_jobs,
                "limiter": None if limiter is None else limiter.packed(),
                "lockDuration": self.lock_ms,
                "attempts": self.attempts,
                "maxMetricsSize": self.max_metrics_size or "",
                "fpof": self.fail_parent_on_failure,
                "cpof": self.continue_parent_on_failure,
                "idof": self.ignore_dependency_on_failure,
                "rdof": self.remove_dependency_on_failure,
            }
        )
        return rest[1:]


class PackedFinish(msgspec.Struct, frozen=True):
    """Packed options of moveToFinished for one token; `rest` comes from `FinishOptions.packed_rest`."""

    token: str
    rest: bytes

    def packed(self) -> bytes:
        """Return the msgpack map."""
        return _FINISH_HEAD + pack_text(self.token) + self.rest


_FINISH_HEAD: Final = bytes((0x80 + 11,)) + pack("token")


def failure_fields(reason: str | None, stacktrace_json: str, telemetry: str | None = None) -> tuple[str, ...]:
    """Return the field update of a failed attempt: field, value, field, value ...

    Source: specs/05-worker-runtime.md#sec-10-2
    """
    head = () if reason is None else ("failedReason", reason)
    tail = () if telemetry is None else ("tm", telemetry)
    return (*head, "stacktrace", stacktrace_json, *tail)


def move_to_finished(
    keys: QueueKeys,
    job_id: str,
    *,
    outcome: Literal["completed", "failed"],
    value: str,
    now: Millis,
    options: FinishOptions | PackedFinish,
    fetch_next: bool,
    fields: Sequence[str] = (),
) -> Command[Fetched]:
    """End an active job as completed or failed, and take the next one with `fetch_next`.

    `value` is the return value as JSON text, or the failure's message.

    Keys:    wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc, completed or failed, job,
             metrics, marker
    Args:    id, now (ms), property name, value, outcome, fetch next, base prefix, packed options,
             packed fields or empty
    Reply:   0, or [fields, id, limit delay, next due time] -> Fetched
    Raises:  JobNotFound, LockMissing, WrongState, PendingChildren, LockMismatch, ChildFailed
    Repeat:  guarded by the token
    Cost:    O(active), plus jobs removed by retention, plus the fetch
    Source:  specs/02-worker-path.md#move-to-finished
    """
    if isinstance(options, FinishOptions):
        options = PackedFinish(options.token, options.packed_rest())
    completed = outcome == "completed"
    packed_fields = _packed_fields(fields)
    return Command(
        "moveToFinished",
        (
            *keys.of_fetch,
            keys.completed if completed else keys.failed,
            keys.job(job_id),
            keys.metrics_completed if completed else keys.metrics_failed,
            keys.marker,
        ),
        (
            job_id,
            now,
            "returnvalue" if completed else "failedReason",
            value,
            outcome,
            "1" if fetch_next else "0",
            keys.base,
            options.packed(),
            packed_fields,
        ),
        FinishedReply(job_id, now),
        MOVE_TO_FINISHED,
        None,
        Repeat.GUARDED,
        Merge(
            OUTCOMES,
            keys.base,
            len(value) + len(packed_fields),
            (options.token, options.rest),
        ),
    )


def retry_job(
    keys: QueueKeys, job_id: str, *, token: str, now: Millis, lifo: bool = False, fields: Sequence[str] = ()
) -> Command[int]:
    """Put an active job back to wait at once, counting an attempt.

    Keys:    active, wait, paused, job, meta, events, delayed, prioritized, pc, marker, stalled
    Args:    base prefix, now (ms), LPUSH or RPUSH, id, token, packed fields or empty
    Reply:   0 -> int
    Raises:  JobNotFound, LockMissing, WrongState, LockMismatch
    Repeat:  guarded by the token
    Cost:    O(active)
    Source:  specs/03-transitions-admin-getters.md#retry-job
    """
    return Command(
        "retryJob",
        (
            keys.active,
            keys.wait,
            keys.paused,
            keys.job(job_id),
            keys.meta,
            keys.events,
            keys.delayed,
            keys.prioritized,
            keys.pc,
            keys.marker,
            keys.stalled,
        ),
        (keys.base, now, "RPUSH" if lifo else "LPUSH", job_id, token, _packed_fields(fields)),
        JobCode("retryJob", job_id, state="active"),
        script=RETRY_JOB,
        repeat=Repeat.GUARDED,
    )


def move_to_delayed(
    keys: QueueKeys,
    job_id: str,
    *,
    token: str,
    now: Millis,
    delay: float,
    count_attempt: bool,
    fields: Sequence[str] = (),
    fetch: bytes | None = None,
) -> Command[Fetched | int]:
    """Put an active job into delayed, due at now + `delay` ms.

    With the switch `next_job_of_move_to_delayed` it can take the next job: `fetch` are the packed options for that. An
    answer without a job does not tell why there is none.

    Keys:    marker, active, prioritized, delayed, job, events, meta, stalled; with the switch also wait, limiter,
             paused (but for `waiting_layout` v6), pc
    Args:    base prefix, now (ms), id, token, delay (ms), 1 to count no attempt, packed fields or empty; with the
             switch also 1 to fetch, packed options or empty
    Reply:   0 -> int; with the switch also [fields, id, 0, 0] -> Fetched
    Raises:  JobNotFound, LockMissing, WrongState, LockMismatch
    Repeat:  guarded by the token
    Cost:    O(active + log delayed), plus the fetch
    Source:  specs/03-transitions-admin-getters.md#move-to-delayed, specs/06-later-versions.md#sec-11-7
    """
    switches = keys.switches
    more_keys: tuple[str, ...] = ()
    more_args: tuple[bytes | str, ...] = ()
    if switches.next_job_of_move_to_delayed:
        paused = () if switches.waiting_layout == "v6" else (keys.paused,)
        more_keys = (keys.wait, keys.limiter, *paused, keys.pc)
        more_args = ("0", "") if fetch is None else ("1", fetch)
    return Command(
        "moveToDelayed",
        (
            keys.marker,
            keys.active,
            keys.prioritized,
            keys.delayed,
            keys.job(job_id),
            keys.events,
            keys.meta,
            keys.stalled,
            *more_keys,
        ),
        (
            keys.base,
            now,
            job_id,
            token,
            number_text(delay),
            "0" if count_attempt else "1",
            _packed_fields(fields),
            *more_args,
        ),
        FinishedReply(job_id, now, "moveToDelayed") if more_keys else JobCode("moveToDelayed", job_id, state="active"),
        script=MOVE_TO_DELAYED,
        repeat=Repeat.GUARDED,
    )


def move_job_from_active_to_wait(keys: QueueKeys, job_id: str, *, token: str) -> Command[int]:
    """Give an active job back so that it runs next; no attempt is counted.

    Keys:    active, wait, stalled, paused, meta, limiter, prioritized, marker, events
    Args:    id, token, job key
    Reply:   remaining time of the rate limit in ms, 0 without one -> int
    Raises:  JobNotFound, LockMissing, LockMismatch
    Repeat:  guarded by the token
    Cost:    O(active)
    Source:  specs/03-transitions-admin-getters.md#move-job-from-active-to-wait
    """
    return Command(
        "moveJobFromActiveToWait",
        (
            keys.active,
            keys.wait,
            keys.stalled,
            keys.paused,
            keys.meta,
            keys.limiter,
            keys.prioritized,
            keys.marker,
            keys.events,
        ),
        (job_id, token, keys.job(job_id)),
        JobCode("moveJobFromActiveToWait", job_id, state="active"),
        script=MOVE_JOB_FROM_ACTIVE_TO_WAIT,
        repeat=Repeat.GUARDED,
    )


def _packed_fields(fields: Sequence[str]) -> bytes | str:
    return pack(list(fields)) if fields else ""
