"""The worker as a state machine: `handle(event, at) -> actions`.

Rules
-----
1. Every decision is made in this file and the four parts it holds; they wait for nothing, read no clock and roll no
   dice.
2. The driver gives exactly one answer to each `Call`, `Wait` and `RunJob` (see `actions`).

Invariants (tested by name)
---------------------------
- At most `concurrency` handlers are alive; cancelled ones count until they return.
- At most one fetch and one wait are in flight.
- Every `RunJob` ends in one finishing call, or in none after its lock was lost.
- Every held lock is renewed before `lock_renew_time`; none is renewed once its report is under way.
- A draining machine starts only jobs that a fetch under way brings.
- A machine that was given an end closes for it only while it holds nothing, and never asks for more jobs than it may
  take.
- A stopped machine holds nothing and emits nothing.
- A jump of the wall clock changes no timer except that of delayed jobs, which are due by the wall clock.
- Whatever a hash, a reply or a callback holds, `handle` returns: a job that cannot be handled fails, is delayed, or is
  left to the stalled check, and a notice says why.

Theory
------
The machine hands each event to one of its parts: `Fetching` takes jobs and waits for the queue, `Running` keeps the
jobs from then until they are settled, `Upkeep` takes care of locks and the stalled check, `Contact` of a lost
connection. They share the state in `Shared`. A call under way is a value whose class is its kind, with three methods
side by side, for a call that is answered, refused, or lost (`_runs.Pending`).

Calls (held by tests/unit/test_machine_table.py, drawn in docs/worker-machine.md)
--------------------------------------------------------------------------------
The consequences of each kind of call: the notices, and the next calls. A lost call takes the worker offline
(`Disconnected`); its column says what follows when the connection is back.

================ ============================ ============================ =============================
call             answered                     refused                      lost
================ ============================ ============================ =============================
FetchCall        RunJob for each job; without WorkerProblem, moveToActive  WorkerProblem if it may have
                 one Drained, and Wait        ever later                   taken a job, moveToActive
WaitCall         moveToActive                 WorkerProblem, moveToActive  moveToActive; WorkerProblem
                                              ever later                   if calls do get answers
MarkerCall       nothing                      WorkerProblem                nothing
AdvanceCall      RunJob                       WorkerProblem, moveToDelayed updateJobScheduler again
DelayCall        JobMoved                     WorkerProblem; found stalled moveToDelayed again
ReportCall       JobCompleted or JobFailed,   ReportRefused; WorkerProblem moveToFinished anew
                 RunJob of the next job       and moveToFinished as failed
ReleaseCall      JobMoved                     WorkerProblem; found stalled WorkerProblem; found stalled
RenewCall        Renewed, LockLost            RenewalFailed, extendLocks   RenewalFailed, extendLocks
StalledCheckCall JobStalled, PTTL             WorkerProblem,               moveStalledJobsToWait
                                              moveStalledJobsToWait
StalledTtlCall   moveStalledJobsToWait        WorkerProblem,               moveStalledJobsToWait
                 after that time              moveStalledJobsToWait
HealCall         pause, if jobs are left      WorkerProblem                nothing
ProbeCall        Reconnected                  Reconnected: it is there     ReconnectFailed, PING later
================ ============================ ============================ =============================

After a refusal that the operator may fix (`is_transient_code`, a login), AdvanceCall, DelayCall and ReportCall are
repeated, after a WorkerProblem. A report that may have been applied earlier and is now refused counts as uncertain, not
as failed.

Values stored by other programs are read so that no step below raises for them. If a step raises all the same, that is a
fault of this library. It is contained (`_contain`): the job being handled fails with a reason that names the fault, the
call under way counts as over, and a `WorkerProblem` carries the exception. The simulation and the tests treat such a
notice as a violation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bullmq_protocol.command import Operation
from bullmq_protocol.common.codec import clean_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.categories import is_transient_code
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.net.handshake import LOGIN_CODES
from bullmq_protocol.worker._contact import Contact
from bullmq_protocol.worker._fetching import Fetching
from bullmq_protocol.worker._running import Running
from bullmq_protocol.worker._runs import Pending, Phase, held_job
from bullmq_protocol.worker._shared import Shared, earlier
from bullmq_protocol.worker._upkeep import Upkeep
from bullmq_protocol.worker.actions import Action, Call, Stopped
from bullmq_protocol.worker.ending import Ending, Until
from bullmq_protocol.worker.events import (
    CallFailed,
    CancelRequested,
    CloseRequested,
    ConnectionEnded,
    Event,
    JobRaised,
    JobReturned,
    PauseRequested,
    Replied,
    ResumeRequested,
    Tick,
    WaitCancelled,
)
from bullmq_protocol.worker.notices import ClosedNotice, Closing, Paused, Resumed
from bullmq_protocol.worker.options import WorkerSettings, check_concurrency
from bullmq_protocol.worker.snapshot import WorkerSnapshot, WorkerState
from bullmq_protocol.worker.strays import give_back_strays

LONGEST_SLEEP_MS: Final[Millis] = 24 * 3_600_000
_AT_REST = (WorkerState.NEW, WorkerState.STOPPED)
_ENDS = frozenset((PauseRequested, CloseRequested))


class WorkerMachine:
    """One worker. `worker_id` begins every lock token (`<worker_id>:<n>`) and comes from the driver's random source.

    `batches`: the server's scripts are ours, so several jobs can be fetched in one call.
    """

    def __init__(
        self,
        keys: QueueKeys,
        settings: WorkerSettings,
        worker_id: str,
        *,
        batches: bool = False,
    ) -> None:
        self._settings = settings
        self._shared = shared = Shared(keys, settings, worker_id)
        self._fetching = Fetching(shared, batches=batches)
        self._upkeep = Upkeep(shared, self._fetching)
        self._running = Running(shared, self._fetching, self._upkeep)
        self._contact = Contact(shared, self._fetching, self._running, self._upkeep, self._on_close)
        self._fetching.end = self._on_close
        self._answered: Pending | None = None
        self._shutdown_at: Millis | None = None

    # --- outside ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> WorkerState:
        return self._shared.state

    @property
    def word(self) -> str:
        """The state in the user's words, as in a snapshot."""
        state = self._shared.state
        if state in _AT_REST:
            return "stopped"
        if state is WorkerState.DRAINING:
            return "shutting down"
        return state.value if self._shared.connected else "disconnected"

    @property
    def running_jobs(self) -> int:
        """How many runs are not settled yet."""
        return len(self._shared.runs)

    @property
    def adrift(self) -> bool:
        """The connection is lost and no job is held: closing need not wait for the server."""
        return not self._shared.connected and not self._shared.runs

    @property
    def unattended(self) -> bool:
        """No call waits for the server, so the end of the connection would be noticed late: the driver must check."""
        return self._shared.connected and self._fetching.wait is None

    @property
    def concurrency(self) -> int:
        """Jobs at a time; may be changed at run time, and takes effect with the next event."""
        return self._shared.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._shared.concurrency = check_concurrency(value)

    def rename(self, worker_id: str) -> None:
        """Change the prefix of the lock tokens, before the start: in the child of a fork."""
        self._shared.worker_id = worker_id

    def end_when(self, until: Until, max_jobs: int | None) -> None:
        """Say, before the start, when it is to end although nobody closes it. Raises `UsageError`."""
        if until is not None or max_jobs is not None:
            self._fetching.ending = Ending(until, max_jobs)

    def start(self, at: Instant, *, paused: bool = False) -> list[Action]:
        """Begin: a stalled check and the first fetch; `paused`: without the fetch, as after `PauseRequested`.

        Emits: Call, Notify
        """
        shared = self._shared
        shared.at = at
        out: list[Action] = []
        shared.out = out
        if shared.state is WorkerState.NEW:
            shared.state = WorkerState.PAUSED if paused else WorkerState.RUNNING
            if paused:
                shared.notify(Paused())
            self._upkeep.heal()
            if not self._settings.skip_stalled_check:
                self._upkeep.check_stalled()
        self._fetching.proceed()
        return out

    def handle(self, event: Event, at: Instant) -> list[Action]:
        """Take one event; return the actions that follow. Late answers after `Stopped` yield nothing.

        Emits: any action
        """
        return self.handle_all((event,), at)

    def handle_all(self, events: Sequence[Event], at: Instant) -> list[Action]:
        """Take several events of one moment, in order; return the actions that follow. A request to pause or to close
        among them applies to all: none fetches.

        Emits: any action
        """
        shared = self._shared
        shared.before = shared.at
        shared.at = at
        shared.out = []
        shared.asked_to_end = len(events) > 1 and not _ENDS.isdisjoint(map(type, events))
        if shared.state is WorkerState.STOPPED:
            return shared.out
        for event in events:
            try:
                self._on_event(event)
            except Exception as error:
                self._contain(event, error)
        self._fetching.proceed()
        if shared.state is WorkerState.DRAINING:
            self._settle()
        return shared.out

    def deadline(self) -> Millis | None:
        """Return the monotonic time at which the next `Tick` is due, or None."""
        shared = self._shared
        if shared.state in _AT_REST:
            return None
        due = self._shutdown_at
        if shared.connected:
            # Upkeep's timers are compared here, inlined: this runs after every event.
            upkeep = self._upkeep
            stalled_at, renew_at = upkeep.stalled_at, None if upkeep.renewing else upkeep.renew_at
            if stalled_at is not None and (due is None or stalled_at < due):
                due = stalled_at
            if renew_at is not None and (due is None or renew_at < due):
                due = renew_at
            due = self._fetching.deadline(due)
            if self._running.retries:
                due = earlier(due, min(self._running.retries.values()))
        else:
            due = self._contact.deadline(due)
        # A distant time (a job delayed for years) is looked at again once a day, so that no timer overflows.
        return None if due is None else min(due, shared.at.mono + LONGEST_SLEEP_MS)

    def owed(self) -> list[Action]:
        """Return the calls under way that settle a job: a driver whose tasks were cancelled may make them again. None
        fetches another job, which nothing would process.
        """
        return [
            Call(ticket, self._running.without_fetch(pending), shielded=True)
            for ticket, pending in self._shared.pending.items()
            if pending.settles
        ]

    def give_back_strays(self) -> Operation[list[str]]:
        """Release jobs from a reply that the driver could not read because it was failing."""
        return give_back_strays(self._shared.keys, self._shared.worker_id)

    def job_of(self, ticket: int) -> JobRecord | None:
        """Return the job that a call under way is about, if it is about one."""
        pending = self._shared.pending.get(ticket)
        run = None if pending is None else pending.subject
        return None if run is None else run.job

    def holds(self, job: JobRecord) -> bool:
        """Tell whether the run that was given this very record is not settled yet."""
        return any(run.job is job for run in list(self._shared.runs.values()))

    def handlers_of(self, job_id: str | None) -> int:
        """Return how many handlers of this job go on, or of all jobs."""
        return len(self._running.handled(job_id))

    def snapshot(self, at: Instant | None = None) -> WorkerSnapshot:
        """Return the jobs the worker holds and the events it waits for, at that moment (default: that of the last
        event)."""
        shared, fetching, running, contact = self._shared, self._fetching, self._running, self._contact
        at = shared.at if at is None else at
        now = at.mono
        connected, probe_at, limited_until = shared.connected, contact.probe_at, fetching.limited_until
        # A list at once: another thread may ask.
        runs = list(shared.runs.values())
        return WorkerSnapshot(
            state=self.word,
            jobs=tuple(clean_text(run.job.id) for run in runs),
            reporting=tuple(clean_text(run.job.id) for run in runs if run.phase is Phase.REPORTING),
            fetching=fetching.under_way,
            listening=fetching.wait is not None,
            limited_for_ms=0 if limited_until is None else max(0, limited_until - now),
            next_due_at=fetching.next_due,
            reconnect_attempts=contact.attempts,
            held=tuple(held_job(run, now) for run in runs),
            listening_for_ms=None if fetching.wait is None else max(0, now - fetching.waiting_since),
            next_timer_in_ms=None if (due := self.deadline()) is None else max(0, due - now),
            reconnect_in_ms=None if connected or probe_at is None else max(0, probe_at - now),
            disconnected_for_ms=None if connected else max(0, now - contact.lost_at),
            taken=running.taken,
            completed=running.completed,
            failed=running.failed,
            retried=running.retried,
            left=running.taken - running.completed - running.failed - running.retried - len(runs),
            taken_at=at.wall,
            concurrency=shared.concurrency,
            lock_ms=0 if self._settings.skip_lock_renewal else self._settings.lock_ms,
            drain_ms=self._settings.drain_ms,
            asked_ms_ago=None if fetching.asked_at is None else max(0, now - fetching.asked_at),
        )

    # --- events -----------------------------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        # These two are the most frequent events: a `match` costs more, and so does `isinstance` for another kind.
        if type(event) is Replied:
            self._on_reply(event)
            return
        if type(event) is JobReturned:
            self._running.returned(event)
            return
        match event:
            case JobRaised():
                self._running.raised(event)
            case Tick():
                self._on_tick(event.roll)
            case CallFailed():
                self._on_call_failed(event)
            case WaitCancelled():
                self._fetching.wait_cancelled(event.ticket)
            case PauseRequested():
                self._on_pause()
            case ResumeRequested():
                self._on_resume()
            case CancelRequested():
                self._running.cancel(event.job_id, event.reason)
            case ConnectionEnded():
                self._contact.go_offline(event.message, event.roll)
            case _:
                self._on_close(force=event.force)

    def _on_reply(self, event: Replied) -> None:
        self._answered = pending = self._shared.pending.pop(event.ticket, None)
        if pending is None:
            return
        try:
            value = pending.command.decode(event.reply)
        except BullMQError as error:
            pending.refused(error, str(error), transient=False)
            return
        pending.answered(value)

    def _on_call_failed(self, event: CallFailed) -> None:
        self._answered = pending = self._shared.pending.pop(event.ticket, None)
        if pending is None:
            return
        if not event.lost:
            # A missing permission can be fixed by the operator; failing the job would not help.
            transient = is_transient_code(event.code) or event.code in LOGIN_CODES
            pending.refused(None, event.message, transient=transient)
        elif pending.lost(event) and (event.maybe_applied or not self._shared.is_leaving):
            self._contact.go_offline(event.message, event.roll)

    def _on_tick(self, roll: float) -> None:
        shared = self._shared
        if self._shutdown_at is not None and shared.at.mono >= self._shutdown_at:
            self._shutdown_at = None
            self._running.release_all()
        if shared.connected:
            self._upkeep.tick()
            self._running.tick()
        else:
            self._contact.tick()

    # --- pause, resume, close ---------------------------------------------------------------------------------------

    def _on_pause(self) -> None:
        shared = self._shared
        if shared.state is WorkerState.RUNNING:
            shared.state = WorkerState.PAUSED
            self._fetching.cancel_wait()
            shared.notify(Paused())

    def _on_resume(self) -> None:
        shared = self._shared
        if shared.state is WorkerState.PAUSED:
            shared.state = WorkerState.RUNNING
            self._fetching.empty = False
            shared.notify(Resumed())

    def _on_close(self, *, force: bool = False) -> None:
        shared, settings = self._shared, self._settings
        if shared.state is not WorkerState.DRAINING:
            shared.state = WorkerState.DRAINING
            self._upkeep.stop_checking()
            self._fetching.cancel_wait()
            shared.notify(Closing())
            self._shutdown_at = shared.at.mono + settings.shutdown_ms
        if force or settings.shutdown_ms == 0:
            self._shutdown_at = None
            self._running.release_all()

    def _settle(self) -> None:
        """Stop once no call is pending."""
        shared = self._shared
        self._running.settle()
        if shared.runs or shared.pending:
            return
        shared.state = WorkerState.STOPPED
        self._shutdown_at = None
        shared.notify(ClosedNotice())
        shared.out.append(Stopped(self._contact.given_up))

    # --- faults of our own ------------------------------------------------------------------------------------------

    def _contain(self, event: Event, error: Exception) -> None:
        """Continue after a fault in the handling of an event: its call or handler counts as over."""
        run = None
        pending = self._answered if isinstance(event, (Replied, CallFailed)) else None
        if pending is not None:
            pending.abandoned()
            run = pending.subject
        elif isinstance(event, (JobReturned, JobRaised)):
            run = self._shared.runs.get(event.run)
        self._upkeep.defer()
        if run is None or run.number not in self._shared.runs:
            self._shared.notify_fault(error)
        else:
            self._running.blame(run, error)
