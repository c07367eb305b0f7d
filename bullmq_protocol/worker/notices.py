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
    raised, None where none did (a failed child, a job started too often).
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
    """The stalled check put this job back."""

    job_id: str


class LockLost(msgspec.Struct, frozen=True, tag="lock-lost"):
    """A running job's lock could not be renewed: it is gone or another's. The job's report will not be sent."""

    job: JobRecord


class ReportRefused(msgspec.Struct, frozen=True, tag="report-refused"):
    """The report of a job was refused by the server, or dropped because the lock was lost before.

    `uncertain` is True when an earlier sending of the same report may have been applied.
    """

    job: JobRecord
    reason: str
    uncertain: bool


class Drained(msgspec.Struct, frozen=True, tag="drained"):
    """An answer held no job, after one that did."""


class RenewalFailed(msgspec.Struct, frozen=True, tag="renewal-failed"):
    """A lock renewal got no answer, or an error reply."""

    job_ids: tuple[str, ...]
    message: str


class Renewed(msgspec.Struct, frozen=True, tag="renewed"):
    """Locks were renewed."""

    job_ids: tuple[str, ...]
    duration_ms: Millis


class StalledCheckSkipped(msgspec.Struct, frozen=True, tag="stalled-check-skipped"):
    """A stalled check was due while the previous one still ran."""


class Disconnected(msgspec.Struct, frozen=True, tag="disconnected"):
    """The connection was lost; fetching stops until it is back."""

    message: str


class ReconnectFailed(msgspec.Struct, frozen=True, tag="reconnect-failed"):
    """An attempt to reconnect failed; the next follows after `delay_ms`."""

    attempt: int
    delay_ms: Millis
    message: str


class Reconnected(msgspec.Struct, frozen=True, tag="reconnected"):
    """The connection is back."""

    attempts: int
    duration_ms: Millis


class WorkerProblem(msgspec.Struct, frozen=True, tag="error"):
    """Something went wrong that ends no job by itself (BullMQ's local event `error`).

    `exception` is a fault of this library's own that the worker met and went on after: please report it.
    """

    message: str
    job_id: str | None = None
    exception: Any = None


class Paused(msgspec.Struct, frozen=True, tag="paused"):
    """The worker was paused locally."""


class Resumed(msgspec.Struct, frozen=True, tag="resumed"):
    """The worker was resumed."""


class Closing(msgspec.Struct, frozen=True, tag="closing"):
    """Shutdown began."""


class ClosedNotice(msgspec.Struct, frozen=True, tag="closed"):
    """Shutdown is complete."""


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
    | Drained
    | RenewalFailed
    | Renewed
    | StalledCheckSkipped
    | Disconnected
    | ReconnectFailed
    | Reconnected
    | WorkerProblem
    | Paused
    | Resumed
    | Closing
    | ClosedNotice
    | HandlerAbandoned
)

NOTICES: Final[tuple[type[Notice], ...]] = get_args(Notice)


def check_notice(kind: object) -> None:
    """Refuse what is no kind of notice."""
    if not any(kind is known for known in NOTICES):
        raise UsageError("kind", kind, "must be a class of bullmq_protocol.worker.notices, such as JobCompleted")
