"""Drive a worker machine by hand, and check at every step what must always hold."""

from __future__ import annotations

from typing import Any

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant
from bullmq_protocol.model.failure import failure_of
from bullmq_protocol.worker.actions import Call, CancelJob, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.ending import Until
from bullmq_protocol.worker.events import (
    CallFailed,
    CloseRequested,
    Event,
    JobRaised,
    JobReturned,
    PauseRequested,
    Replied,
    ResumeRequested,
    Tick,
    WaitCancelled,
)
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.notices import Notice, WorkerProblem
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.snapshot import WorkerState
from bullmq_protocol.worker.typed import CommandCall, CommandWait

KEYS = QueueKeys.of("q")
START = 1_700_000_000_000
FINISHING = ("moveToFinished", "retryJob", "moveToDelayed", "moveJobFromActiveToWait")


def hash_of(**fields: str) -> list[bytes]:
    """Return a job's hash as a script replies it."""
    base = {"name": "n", "data": "{}", "opts": "{}", "timestamp": str(START), "delay": "0", "priority": "0"}
    flat: list[bytes] = []
    for field, value in {**base, "ats": "1", **fields}.items():
        flat += [field.encode(), value.encode()]
    return flat


def job_reply(job_id: str, **fields: str) -> list[Any]:
    """Return the answer of a fetch that holds a job."""
    return [hash_of(**fields), job_id.encode(), 0, 0]


NO_JOB: list[Any] = [0, 0, 0, 0]


SHIELDED = ("moveToFinished", "retryJob", "moveToDelayed", "moveJobFromActiveToWait")
"""The commands that settle a job."""
OPEN = ("moveToActive", "extendLocks", "moveStalledJobsToWait", "PING")


class Bench:
    """A machine with everything it asked for in view."""

    def __init__(
        self,
        *,
        batches: bool = False,
        keys: QueueKeys = KEYS,
        until: Until = None,
        max_jobs: int | None = None,
        **options: Any,
    ) -> None:
        settings, self.warnings = WorkerOptions(**options).checked(switches=keys.switches)
        self.settings = settings
        self.machine = WorkerMachine(keys, settings, "w", batches=batches)
        self.machine.end_when(until, max_jobs)
        self.wall = START
        self.mono = 50_000
        self.calls: dict[int, Call] = {}
        self.wait: CommandWait | None = None
        self.wait_cancelled = False
        self.handlers: dict[int, RunJob] = {}
        self.cancelled: dict[int, str] = {}
        self.notices: list[Notice] = []
        self.stopped: Stopped | None = None
        self.sent: list[str] = []
        self.finishing_of: dict[int, list[str]] = {}
        self.do(self.machine.start(self.at()))

    def at(self) -> Instant:
        return Instant(self.wall, self.mono)

    def do(self, actions: list[Any]) -> None:
        if self.stopped is not None:
            assert actions == [], "a stopped machine says nothing"
        for action in actions:
            match action:
                case Call():
                    assert action.shielded or action.command.name not in SHIELDED, "what settles a job is not cancelled"
                    assert not action.shielded or action.command.name not in OPEN, "what settles no job is cancelled"
                    self.calls[action.ticket] = action
                    self.sent.append(action.command.name)
                case Wait():
                    assert self.wait is None, "at most one wait is in flight"
                    self.wait = action
                    self.wait_cancelled = False
                case CancelWait():
                    assert self.wait is not None and self.wait.ticket == action.ticket
                    self.wait_cancelled = True
                case RunJob():
                    self.handlers[action.run] = action
                case CancelJob():
                    self.cancelled[action.run] = action.reason
                case Notify():
                    assert isinstance(action.notice, Notice), "a notice is none of the known ones"
                    if isinstance(action.notice, WorkerProblem):
                        assert isinstance(action.notice.message, str) and action.notice.message
                    self.notices.append(action.notice)
                case Stopped():
                    self.stopped = action
        fetches = [call for call in self.calls.values() if call.command.name in ("moveToActive", "fetchMany")]
        assert len(fetches) <= 1, "at most one fetch is in flight"
        live = [run for run in self.handlers if run not in self.cancelled or "closed" not in self.cancelled[run]]
        assert len(live) <= self.settings.concurrency, "at most `concurrency` handlers are alive"
        if self.stopped is not None:
            assert self.machine.state is WorkerState.STOPPED
            assert self.machine.running_jobs == 0
            assert self.machine.deadline() is None
            assert not self.calls and self.wait is None, "a stopped machine holds nothing"

    def tell(self, *events: Event) -> None:
        self.do(self.machine.handle_all(events, self.at()))

    def call(self, name: str) -> CommandCall:
        """Return the oldest call of that name under way."""
        for call in self.calls.values():
            if call.command.name == name:
                return call
        raise AssertionError(f"no call {name} among {[c.command.name for c in self.calls.values()]}")

    def has(self, name: str) -> bool:
        return any(call.command.name == name for call in self.calls.values())

    def reply(self, name: str, value: Any) -> None:
        call = self.call(name)
        del self.calls[call.ticket]
        self.tell(Replied(call.ticket, value))

    def lose(self, name: str, *, maybe_applied: bool = True, roll: float = 0.5) -> None:
        call = self.call(name)
        del self.calls[call.ticket]
        self.tell(CallFailed(call.ticket, "connection lost", lost=True, maybe_applied=maybe_applied, roll=roll))

    def refuse(self, name: str, message: str) -> None:
        call = self.call(name)
        del self.calls[call.ticket]
        self.tell(CallFailed(call.ticket, message, lost=False, code=message.split(" ")[0]))

    def marker(self, value: Any) -> None:
        wait = self.wait
        assert wait is not None
        self.wait = None
        self.tell(Replied(wait.ticket, value))

    def lose_wait(self, *, maybe_applied: bool = True) -> None:
        wait = self.wait
        assert wait is not None
        self.wait = None
        self.tell(CallFailed(wait.ticket, "connection lost", lost=True, maybe_applied=maybe_applied))

    def refuse_wait(self, message: str) -> None:
        wait = self.wait
        assert wait is not None
        self.wait = None
        self.tell(CallFailed(wait.ticket, message, lost=False, code=message.split(" ")[0]))

    def end_wait(self) -> None:
        wait = self.wait
        assert wait is not None and self.wait_cancelled
        self.wait = None
        self.tell(WaitCancelled(wait.ticket))

    def run_of(self, job_id: str) -> int:
        for number, action in self.handlers.items():
            if action.job.id == job_id:
                return number
        raise AssertionError(f"job {job_id} does not run")

    def returned(self, job_id: str, value: str = "null") -> None:
        run = self.run_of(job_id)
        del self.handlers[run]
        self.tell(JobReturned(run, value))

    def raised(self, job_id: str, error: BaseException, **more: Any) -> None:
        run = self.run_of(job_id)
        del self.handlers[run]
        self.tell(JobRaised(run, failure_of(error, stack="stack"), roll=more.pop("roll", 0.5), **more))

    def advance(self, ms: int) -> None:
        self.wall += ms
        self.mono += ms

    def tick(self) -> None:
        """Jump to the deadline and tick."""
        deadline = self.machine.deadline()
        assert deadline is not None, "no deadline"
        self.advance(max(0, deadline - self.mono))
        self.tell(Tick(0.5))

    def pause(self) -> None:
        self.tell(PauseRequested())

    def resume(self) -> None:
        self.tell(ResumeRequested())

    def close(self, *, force: bool = False) -> None:
        self.tell(CloseRequested(force))

    def said(self, kind: type[Any]) -> list[Any]:
        return [notice for notice in self.notices if isinstance(notice, kind)]

    def settle_stalled(self) -> None:
        """Answer the first stalled check and its TTL."""
        self.reply("moveStalledJobsToWait", [])
        self.reply("PTTL", self.settings.stalled_ms)
