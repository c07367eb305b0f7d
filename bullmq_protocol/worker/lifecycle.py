"""Notices about a worker itself: its connection, its locks, its pauses and its end.

Names follow BullMQ's local events (specs/05-worker-runtime.md#sec-16) where one exists.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from bullmq_protocol.common.units import Millis


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
    """A problem that in itself ends no job (BullMQ's local event `error`).

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


WorkerNotice: TypeAlias = (
    Drained
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
)
