"""The machine's state: runs (started jobs) and calls that have no answer yet. Mutable, and private to the machine."""

from __future__ import annotations

from abc import abstractmethod
from enum import Enum
from typing import Any, ClassVar

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, clean_text
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker.advance import Schedule
from bullmq_protocol.worker.events import CallFailed
from bullmq_protocol.worker.outcome import Report
from bullmq_protocol.worker.snapshot import HeldJob


class Phase(Enum):
    """Where a run stands."""

    SCHEDULING = "scheduling"
    RUNNING = "running"
    REPORTING = "reporting"
    RELEASING = "giving-back"


class Run(msgspec.Struct, eq=False):
    """One started job and its lease.

    `lost`: the lock is gone, nothing may be reported. `sent`: the report is under way. `uncertain`: an earlier attempt
    may have been applied. `faults`: how many exceptions of our own its handling has raised. `cancelled`: why its
    handler was to end. `blocked_ms`: for how long nothing had renewed the lock when that was found to be late.
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
    cancelled: str | None = None
    resend: RunCall | None = None
    blocked_ms: Millis = 0


class Pending(msgspec.Struct, frozen=True, eq=False):
    """A call under way. Its class is its kind and defines how it ends; exactly one of its methods is called."""

    command: Command[Any]

    settles: ClassVar[bool] = False
    """Whether it settles a job, so that it must be made even at the end."""

    @property
    def subject(self) -> Run | None:
        """The run that the call is about, if it is about one."""
        return None

    @property
    def asks(self) -> int:
        """How many jobs the answer may bring."""
        return 0

    @abstractmethod
    def answered(self, value: Any) -> None:
        """Take the decoded answer."""
        ...

    @abstractmethod
    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        """Take an error reply, or an answer that means an error or cannot be read.

        `error`: the exception of decoding, None for an error reply. `transient`: the cause may be fixed, so a retry
        makes sense.
        """
        ...

    @abstractmethod
    def lost(self, event: CallFailed) -> bool:
        """Note that the connection failed meanwhile; return whether that takes the worker offline."""
        ...

    def abandoned(self) -> None:
        """Treat it as over: handling its answer raised an exception of our own."""
        return


class RunCall(Pending, frozen=True, eq=False):
    """A call about one run. If lost, it is repeated when the connection is back."""

    run: Run

    @property
    def subject(self) -> Run | None:
        """The run that the call is about."""
        return self.run

    def lost(self, event: CallFailed) -> bool:
        """Keep it until the connection is back."""
        run = self.run
        run.uncertain = run.uncertain or event.maybe_applied
        run.resend = self
        run.sent = False
        return True


def held_job(run: Run, now: Millis) -> HeldJob:
    """Return a run as a snapshot shows it."""
    return HeldJob(
        id=clean_text(run.job.id),
        name=clean_text(run.job.name),
        attempt=max(-MAX_SAFE_INTEGER, min(run.job.attempts_started, MAX_SAFE_INTEGER)),
        phase=run.phase.value,
        held_for_ms=max(0, now - run.started_at),
        renewed_ms_ago=max(0, now - run.renewed_at),
        lock_lost=run.lost,
        handler_running=run.handler_alive,
    )
