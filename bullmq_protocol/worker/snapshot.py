"""A worker as seen from outside: its state, and a snapshot of the jobs it holds and the events it waits for."""

from __future__ import annotations

from enum import Enum

import msgspec

from bullmq_protocol.common.units import Millis


class WorkerState(Enum):
    """The machine's own states; `snapshot()` speaks the user's words."""

    NEW = "new"
    RUNNING = "running"
    PAUSED = "paused"
    DRAINING = "draining"
    STOPPED = "stopped"


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker holds. `attempt` counts its starts, this one included; `phase` is `scheduling`, `running`,
    `reporting` (its outcome is under way, or waits for the connection) or `giving-back`."""

    id: str
    name: str | None
    attempt: int
    phase: str
    held_for_ms: Millis
    renewed_ms_ago: Millis
    lock_lost: bool
    handler_running: bool


class WorkerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker holds and waits for; a plain value without secrets, which msgspec can encode.

    `state` is `stopped`, `running`, `paused`, `disconnected` or `shutting down`. `jobs` are the ids of `held`,
    `reporting` those whose outcome is still to be stored. `listening_for_ms`: how long it has waited for the queue's
    marker. `next_due_at`: the next delayed job, as far as it is known. `reconnect_attempts` failed since the loss, the
    next follows in `reconnect_in_ms`. Of the jobs `taken` so far, `left` is the number of those that are gone without
    an outcome of this worker: moved, given back, refused.

    For `health`: `taken_at` is when the snapshot was made, in milliseconds since 1970; `lock_ms` and `drain_ms` are the
    options `lock_duration` (0: locks are not renewed) and `drain_delay`; `asked_ms_ago`: how long ago the worker
    fetched last, or began to wait for the marker.
    """

    state: str
    jobs: tuple[str, ...]
    reporting: tuple[str, ...]
    fetching: bool
    listening: bool
    limited_for_ms: Millis
    next_due_at: Millis | None
    reconnect_attempts: int
    held: tuple[HeldJob, ...]
    listening_for_ms: Millis | None
    next_timer_in_ms: Millis | None
    reconnect_in_ms: Millis | None
    disconnected_for_ms: Millis | None
    taken: int
    completed: int
    failed: int
    retried: int
    left: int
    taken_at: Millis = 0
    concurrency: int = 1
    lock_ms: Millis = 0
    drain_ms: Millis = 0
    asked_ms_ago: Millis | None = None
