"""What a worker tells its surroundings: local events, log lines and metrics are made from these.

Names follow BullMQ's local events (specs/05-worker-runtime.md#sec-16) where one exists.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

import msgspec

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.categories import Category
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker.lifecycle import (
    ClosedNotice,
    Closing,
    Disconnected,
    Drained,
    Paused,
    Reconnected,
    ReconnectFailed,
    RenewalFailed,
    Renewed,
    Resumed,
    StalledCheckSkipped,
    WorkerNotice,
    WorkerProblem,
)

__all__ = [
    "NOTICES",
    "ClosedNotice",
    "Closing",
    "Disconnected",
    "Drained",
    "HandlerAbandoned",
    "HandlerBlocked",
    "JobActive",
    "JobCompleted",
    "JobFailed",
    "JobMoved",
    "JobStalled",
    "LockLost",
    "Notice",
    "Paused",
    "ReconnectFailed",
    "Reconnected",
    "RenewalFailed",
    "Renewed",
    "ReportRefused",
    "Resumed",
    "StalledCheckSkipped",
    "WorkerProblem",
    "check_callback",
    "check_notice",
]


class JobActive(msgspec.Struct, frozen=True, tag="active"):
    """A job was picked up; its handler starts now."""

    job: JobRecord


class JobCompleted(msgspec.Struct, frozen=True, tag="completed"):
    """Success was stored. `value` is the JSON text of the return value."""

    job: JobRecord
    value: str
    duration_ms: Millis


class JobFailed(msgspec.Struct, frozen=True, tag="failed"):
    """A failed attempt was stored. `retry_delay_ms` is None when the job failed for good, else the delay of the retry.

    `exhausted` is True when the attempts are used up; `permanent` when the job failed for another reason. `category`
    says whether a retry could have helped (docs/errors.md), whatever became of the job. `exception` is what the handler
    raised, or None if none did (a failed child, a job started too often).
    """

    job: JobRecord
    reason: str
    attempts_made: int
    retry_delay_ms: float | None
    exhausted: bool
    permanent: bool
    duration_ms: Millis
    category: Category = Category.PERMANENT
    exception: Any = None


class JobMoved(msgspec.Struct, frozen=True, tag="moved"):
    """The job left the worker without an outcome: `how` is `delayed`, `waiting`, `waiting-children`, `rate-limited` or
    `given-back` (at shutdown)."""

    job: JobRecord
    how: str


class JobStalled(msgspec.Struct, frozen=True, tag="stalled"):
    """The stalled check returned this job to the queue."""

    job_id: str


class LockLost(msgspec.Struct, frozen=True, tag="lock-lost"):
    """A running job's lock could not be renewed: it is gone, or another worker has it. The job's report will not be
    sent.

    `blocked_ms` is how long nothing had renewed it, if a handler had blocked the worker, otherwise 0.
    """

    job: JobRecord
    blocked_ms: Millis = 0


class ReportRefused(msgspec.Struct, frozen=True, tag="report-refused"):
    """The report of a job was refused by the server, or dropped because the lock was lost before.

    `uncertain` is True when an earlier sending of the same report may have been applied. `blocked_ms` as in `LockLost`.
    """

    job: JobRecord
    reason: str
    uncertain: bool
    blocked_ms: Millis = 0


class HandlerBlocked(msgspec.Struct, frozen=True, tag="handler-blocked"):
    """The worker's timer came so late that a renewal of locks was skipped: a handler had blocked the event loop, or all
    threads of the process.

    `job_ids` are the jobs whose handlers were running; if there are several, it was one of them. `blocked_ms` is how
    long the worker could not run.
    """

    job_ids: tuple[str, ...]
    blocked_ms: Millis


class HandlerAbandoned(msgspec.Struct, frozen=True, tag="handler-abandoned"):
    """A handler was still running when the worker let go of its job; its result will not be stored."""

    job: JobRecord


Notice: TypeAlias = (
    JobActive
    | JobCompleted
    | JobFailed
    | JobMoved
    | JobStalled
    | LockLost
    | ReportRefused
    | WorkerNotice
    | HandlerAbandoned
    | HandlerBlocked
)

NOTICES: Final[tuple[type[Notice], ...]] = get_args(Notice)


def check_notice(kind: object) -> None:
    """Refuse anything but a kind of notice."""
    if not any(kind is known for known in NOTICES):
        raise UsageError("kind", kind, "must be a class of bullmq_protocol.worker.notices, such as JobCompleted")


def check_callback(kind: object, callback: object) -> None:
    """Refuse anything but a kind of notice, and a callback that cannot be called with one."""
    check_notice(kind)
    if not callable(callback):
        raise UsageError("callback", callback, "must be a function of the notice")
