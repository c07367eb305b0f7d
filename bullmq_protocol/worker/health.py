"""Whether a worker is well, judged by a snapshot: a pure function, for probes of orchestrators."""

from __future__ import annotations

from typing import Final

import msgspec

from bullmq_protocol.common.units import Millis
from bullmq_protocol.worker.snapshot import WorkerSnapshot

PATIENCE_MS: Final[Millis] = 60_000
"""How long, by default, a worker may be without its connection, or without asking for jobs."""
_LATE: Final = 0.75
"""The part of its duration after which a lock should have been renewed: that is due at half."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is.

    `ready`: it takes jobs, or could. `live`: nothing is wrong that only a new start would mend; `problems` say what is,
    in words without secrets.
    """

    live: bool
    ready: bool
    state: str
    problems: tuple[str, ...] = ()


def health(snapshot: WorkerSnapshot, now: Millis, *, patience_ms: Millis = PATIENCE_MS) -> Health:
    """Judge a worker.

    Args:
        snapshot: What `Worker.snapshot` gave.
        now: The wall clock, in milliseconds since 1970. What is older in the snapshot has lasted that much longer: a
            worker that makes no new one is found to be stuck.
        patience_ms: How long it may be without its connection, or without asking for jobs that it has room for. A
            minute by default.

    Examples:
        >>> health(WorkerMachine(QueueKeys.of("mail"), WorkerOptions().checked()[0], "w").snapshot(), 0).problems
        ()
    """
    age = max(0, now - snapshot.taken_at)
    problems: list[str] = []
    lost = snapshot.disconnected_for_ms
    is_taking = snapshot.state == "running"
    if lost is not None and snapshot.state == "disconnected":
        if lost + age > patience_ms:
            problems.append(f"disconnected for {lost + age} ms")
    elif is_taking:
        silent = _silent(snapshot, age)
        if silent > patience_ms:
            problems.append(f"neither fetches nor waits for jobs since {silent} ms")
    if lost is None and snapshot.lock_ms:
        late = [job.id for job in snapshot.held if job.handler_running and _is_late(job.renewed_ms_ago + age, snapshot)]
        if late:
            problems.append(f"locks are renewed late, of jobs {', '.join(late)}")
    return Health(live=not problems, ready=is_taking, state=snapshot.state, problems=tuple(problems))


def _silent(snapshot: WorkerSnapshot, age: Millis) -> Millis:
    """Return for how long it has not asked for jobs that it has room for; a wait for the marker may take its time."""
    if len(snapshot.held) >= snapshot.concurrency or snapshot.limited_for_ms > age or snapshot.asked_ms_ago is None:
        return 0
    return snapshot.asked_ms_ago + age - snapshot.drain_ms


def _is_late(renewed_ms_ago: Millis, snapshot: WorkerSnapshot) -> bool:
    return renewed_ms_ago > snapshot.lock_ms * _LATE
