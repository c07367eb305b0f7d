"""What the machine keeps: runs (started jobs) and calls whose answer is owed. Mutable, and the machine's alone."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.job import JobRecord
from bullmq_protocol.units import Millis
from bullmq_protocol.worker.advance import Advance, Schedule
from bullmq_protocol.worker.outcome import Report


class Phase(Enum):
    """Where a run stands."""

    SCHEDULING = "scheduling"
    RUNNING = "running"
    REPORTING = "reporting"
    GIVING_BACK = "giving-back"


class Run:
    """One started job and its lease."""

    __slots__ = (
        "handler_alive",
        "job",
        "lost",
        "number",
        "phase",
        "refusals",
        "renewed_at",
        "report",
        "resend",
        "schedule",
        "sent",
        "started_at",
        "token",
        "uncertain",
    )

    def __init__(self, number: int, job: JobRecord, token: str, now: Millis) -> None:
        self.number = number
        self.job = job
        self.token = token
        self.started_at = now
        self.renewed_at = now
        self.phase = Phase.RUNNING
        self.schedule: Schedule | None = None
        self.handler_alive = False
        self.lost = False
        """The lock is gone: nothing may be reported."""
        self.report: Report | None = None
        self.sent = False
        """The report is under way."""
        self.uncertain = False
        """An earlier sending may have been applied."""
        self.refusals = 0
        self.resend: Pending | None = None


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
    token: str = ""
    runs: tuple[int, ...] = ()
    sent_at: Millis = 0
    advance: Advance | None = None
