"""Events of a scheduler: what its process learns of its jobs. Nobody else does.

Source: specs/monque.md#sec-10
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias, get_args

import msgspec

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError, UsageError
from monque_protocol.document import Job


class JobStarted(msgspec.Struct, frozen=True, tag="job:start"):
    """A job was claimed; its handler starts now."""

    job: Job[Any]


class JobCompleted(msgspec.Struct, frozen=True, tag="job:complete"):
    """Success was stored: `job` is the document after that. `duration_ms` is the time of the handler."""

    job: Job[Any]
    duration_ms: Millis


class JobFailed(msgspec.Struct, frozen=True, tag="job:fail"):
    """A failure was stored: `job` is the document after that. `error` is what the handler raised."""

    job: Job[Any]
    error: Any
    will_retry: bool


class JobErrored(msgspec.Struct, frozen=True, tag="job:error"):
    """A problem beside the handlers: a poll, a claim, a heartbeat, retention, the report of `job`, the shutdown."""

    error: BullMQError
    job: Job[Any] | None = None


class JobLost(msgspec.Struct, frozen=True, tag="job:lost"):
    """The outcome of a job was not stored: it is not this scheduler's any more. Monque has no such event.

    `uncertain`: an earlier sending of the same report, whose reply was lost, may have stored it.
    """

    job: Job[Any]
    uncertain: bool


class JobReleased(msgspec.Struct, frozen=True, tag="job:released"):
    """A claimed job is pending again, without an outcome. Monque has no such event.

    `reason` is `stopping`, `cancelled` or `lost reply`; with the last one `job` has id and name alone.
    """

    job: Job[Any]
    reason: str


class StaleRecovered(msgspec.Struct, frozen=True, tag="stale:recovered"):
    """Jobs that were locked for too long were taken from their owners."""

    count: int


class ChangeStreamConnected(msgspec.Struct, frozen=True, tag="changestream:connected"):
    """The server reports changes."""


class ChangeStreamError(msgspec.Struct, frozen=True, tag="changestream:error"):
    """The change stream broke, or could not be opened."""

    error: BullMQError


class ChangeStreamClosed(msgspec.Struct, frozen=True, tag="changestream:closed"):
    """The change stream was closed by `stop`."""


class ChangeStreamFallback(msgspec.Struct, frozen=True, tag="changestream:fallback"):
    """There is no change stream to have: the scheduler polls."""

    reason: str


class JobCancelled(msgspec.Struct, frozen=True, tag="job:cancelled"):
    """A job was cancelled here."""

    job: Job[Any]


class JobRetried(msgspec.Struct, frozen=True, tag="job:retried"):
    """A job was retried here; `previous_status` is `failed` or `cancelled`."""

    job: Job[Any]
    previous_status: str


class JobDeleted(msgspec.Struct, frozen=True, tag="job:deleted"):
    """A job was deleted here."""

    job_id: str


class JobsCancelled(msgspec.Struct, frozen=True, tag="jobs:cancelled"):
    """Jobs were cancelled here, by one command."""

    count: int


class JobsRetried(msgspec.Struct, frozen=True, tag="jobs:retried"):
    """Jobs were retried here, by one command."""

    count: int


class JobsDeleted(msgspec.Struct, frozen=True, tag="jobs:deleted"):
    """Jobs were deleted here, by one command."""

    count: int


SchedulerEvent: TypeAlias = (
    JobStarted
    | JobCompleted
    | JobFailed
    | JobErrored
    | JobLost
    | JobReleased
    | StaleRecovered
    | ChangeStreamConnected
    | ChangeStreamError
    | ChangeStreamClosed
    | ChangeStreamFallback
    | JobCancelled
    | JobRetried
    | JobDeleted
    | JobsCancelled
    | JobsRetried
    | JobsDeleted
)

EVENTS: Final[tuple[type[SchedulerEvent], ...]] = get_args(SchedulerEvent)


def check_callback(kind: object, callback: object) -> None:
    """Refuse anything but a kind of event, and a callback that cannot be called with one. Raises `UsageError`."""
    if not any(kind is known for known in EVENTS):
        raise UsageError("kind", kind, "must be a class of monque_protocol.events, such as JobCompleted")
    if not callable(callback):
        raise UsageError("callback", callback, "must be a function of the event")
