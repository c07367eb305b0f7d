"""What the machine keeps: runs (started jobs) and calls whose answer is owed. Mutable, and the machine's alone."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.common.units import Millis
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker.advance import Advance, Schedule
from bullmq_protocol.worker.outcome import Report


class Phase(Enum):
    """Where a run stands."""

    SCHEDULING = "scheduling"
    RUNNING = "running"
    REPORTING = "reporting"
    GIVING_BACK = "giving-back"


class Run(msgspec.Struct, eq=False):
    """One started job and its lease.

    `lost`: the lock is gone, nothing may be reported. `sent`: the report is under way. `uncertain`: an earlier sending
    may have been applied. `faults`: faults of our own that its handling met.
    """

    number: int
    job: JobRecord
    token: str
    started_at: Millis
    renewed_at: Millis
    phase: Phase = Phase.RUNNING
    schedule: Schedule | None = None
    handler_alive: bool = False
    lost: bool = False
    report: Report | None = None
    sent: bool = False
    uncertain: bool = False
    refusals: int = 0
    faults: int = 0
    resend: Pending | None = None


class PendingKind(Enum):
    """What an answer is for."""

    FETCH = "fetch"
    LISTEN = "listen"
    REPORT = "report"
    RENEW = "renew"
    STALLED = "stalled"
    STALLED_TTL = "stalled-ttl"
    SCHEDULE = "schedule"
    PUT_BACK = "put-back"
    GIVE_BACK = "give-back"
    PROBE = "probe"
    MARKER = "marker"


class Pending(msgspec.Struct, frozen=True):
    """One call under way. `run` is -1 where the call belongs to no run."""

    kind: PendingKind
    command: Command[Any]
    run: int = -1
    tokens: tuple[str, ...] = ()
    runs: tuple[int, ...] = ()
    sent_at: Millis = 0
    advance: Advance | None = None
