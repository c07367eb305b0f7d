"""What the parts of a machine share: the moment, the actions so far, the runs, and the calls under way."""

from __future__ import annotations

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant, Millis, reconnect_ms
from bullmq_protocol.worker._runs import Pending, Run
from bullmq_protocol.worker.actions import Action, Call, Notify
from bullmq_protocol.worker.notices import Notice, WorkerProblem
from bullmq_protocol.worker.options import WorkerSettings
from bullmq_protocol.worker.snapshot import WorkerState


def earlier(first: Millis | None, second: Millis | None) -> Millis | None:
    """Return the earlier of two moments, of which None never comes."""
    return second if first is None or (second is not None and second < first) else first


def fault_text(error: Exception) -> str:
    """Return the text about a fault of our own."""
    return f"the worker met a fault of its own: {type(error).__name__}: {error}"


class Shared:
    """The state that the parts of one machine share. `at` and `out` are of the events that are being handled, `before`
    is the moment of those before them.

    `asked_to_end`: a request to pause or to close is among them, so that none of them fetches.
    """

    __slots__ = (
        "asked_to_end",
        "at",
        "before",
        "concurrency",
        "connected",
        "keys",
        "next_ticket",
        "out",
        "pending",
        "runs",
        "settings",
        "state",
        "worker_id",
    )

    def __init__(self, keys: QueueKeys, settings: WorkerSettings, worker_id: str) -> None:
        self.keys = keys
        self.settings = settings
        self.worker_id = worker_id
        self.concurrency = settings.concurrency
        self.state = WorkerState.NEW
        self.connected = True
        self.asked_to_end = False
        self.at = self.before = Instant(0, 0)
        self.out: list[Action] = []
        self.runs: dict[int, Run] = {}
        self.pending: dict[int, Pending] = {}
        self.next_ticket = 0

    @property
    def is_leaving(self) -> bool:
        """Whether it ends and holds no job. A close may have ended its calls: that is no loss to report."""
        return self.state is WorkerState.DRAINING and not self.runs

    def owe(self, pending: Pending) -> int:
        """Keep a call until its answer; return its ticket."""
        ticket = self.next_ticket
        self.next_ticket = ticket + 1
        self.pending[ticket] = pending
        return ticket

    def call(self, pending: Pending, *, shielded: bool = False) -> None:
        """Make a call on the shared connection."""
        # As `owe`, inlined: it runs once for each job.
        ticket = self.next_ticket
        self.next_ticket = ticket + 1
        self.pending[ticket] = pending
        self.out.append(Call(ticket, pending.command, shielded))

    def is_called(self, run: Run) -> bool:
        """Whether a call about this run is under way, whose answer settles it."""
        return any(pending.subject is run for pending in self.pending.values())

    def notify(self, notice: Notice) -> None:
        """Emit a notice."""
        self.out.append(Notify(notice))

    def notify_fault(self, error: Exception, job_id: str | None = None) -> None:
        """Emit a notice of a fault of our own. All other tests let it raise instead."""
        self.notify(WorkerProblem(fault_text(error), job_id, exception=error))

    def patience(self, failures: int) -> Millis:
        """Return how long to wait after this many consecutive failures: ever longer."""
        return reconnect_ms(failures, self.settings.max_reconnect_ms)
