"""Running: a job's life in a worker, from the answer that brought it to the answer that settles it.

Phases of a run: `SCHEDULING` (its job scheduler is advanced first) -> `RUNNING` -> `REPORTING` (a finishing call is
under way, or waits for the connection), and `RELEASING` at shutdown. A finishing call that succeeded may bring the
next job, which continues with the token of the one before.

Source: specs/05-worker-runtime.md#sec-8
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from bullmq_protocol.command import Command
from bullmq_protocol.commands.fetching import NOTHING, Fetched
from bullmq_protocol.commands.finishing import move_job_from_active_to_wait
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    BullMQError,
    ChildFailed,
    JobNotFound,
    LockMismatch,
    LockMissing,
    PendingChildren,
    ScriptError,
    WrongState,
)
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker._fetching import Fetching, announce
from bullmq_protocol.worker._runs import Pending, Phase, Run, RunCall
from bullmq_protocol.worker._shared import Shared, fault_text
from bullmq_protocol.worker._upkeep import Upkeep
from bullmq_protocol.worker.actions import Call, CancelJob, Notify, RunJob
from bullmq_protocol.worker.advance import (
    Advance,
    NotContinued,
    Schedule,
    Unschedulable,
    advance,
    delay_job,
    delay_problem,
    schedule_of,
)
from bullmq_protocol.worker.events import JobRaised, JobReturned
from bullmq_protocol.worker.notices import (
    HandlerAbandoned,
    JobActive,
    JobCompleted,
    JobMoved,
    ReportRefused,
    WorkerProblem,
)
from bullmq_protocol.worker.outcome import (
    Finishing,
    Report,
    ReportKind,
    failed_by,
    failure_report,
    plain_failure,
    success_report,
)
from bullmq_protocol.worker.snapshot import WorkerState

START_LIMIT_REASON: Final = "job started more than allowable limit"


class AdvanceCall(RunCall, frozen=True, eq=False):
    """Create the next run of the job's scheduler; `step` of the first of two calls knows the second."""

    running: Running
    step: Advance | None = None

    def answered(self, value: Any) -> None:
        self.running.advanced(self.run, self.step, value)

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        self.running.problem(self.run, message)
        if transient:
            self.running.retry_later(self.run, self)
        else:
            self.running.delay(self.run, message)


class DelayCall(RunCall, frozen=True, eq=False):
    """Delay a job whose scheduler could not be advanced."""

    running: Running
    settles = True

    def answered(self, value: Any) -> None:
        self.running.moved(self.run, "delayed")

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        run = self.run
        if transient:
            self.running.problem(run, message)
            self.running.retry_later(run, self)
            return
        self.running.drop(run)
        self.running.problem(
            run,
            f"Failed to move job {run.job.id} to delayed after scheduling error: {message}. "
            "Job will become stalled and be retried automatically.",
        )


class ReportCall(RunCall, frozen=True, eq=False):
    """Store the outcome of a job."""

    running: Running
    settles = True

    @property
    def asks(self) -> int:
        """How many jobs the answer may bring."""
        return int(self.run.report is not None and self.run.report.fetch_next)

    def answered(self, value: Any) -> None:
        running, run = self.running, self.run
        shared, fetching = running.shared, running.fetching
        report = run.report
        assert report is not None  # it was sent
        running.drop(run)
        job = run.job
        duration = shared.at.mono - run.started_at
        kind = report.kind
        if kind is ReportKind.COMPLETED:
            running.completed += 1
            shared.out.append(Notify(JobCompleted(job, report.value, duration)))
        elif kind is ReportKind.RATE_LIMIT:
            fetching.limited_until = shared.at.mono + value if value > 0 else None
            fetching.empty = False
            shared.notify(JobMoved(job, "rate-limited"))
        else:
            shared.notify(report.notice(job, duration))
            if kind is not ReportKind.FAILED:
                running.retried += 1
                if report.fetch_next and isinstance(value, Fetched) and value.job is not None:
                    fetching.begin(value, run.token)
                else:
                    # Why moveToDelayed has brought no job it does not tell.
                    fetching.empty = False
                return
            running.failed += 1
        if isinstance(value, Fetched):
            if report.fetch_next:
                fetching.begin(value, run.token)
            else:
                fetching.empty = fetching.empty and value is NOTHING

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        run = self.run
        run.sent = False
        if transient:
            self.running.problem(run, message)
            self.running.retry_later(run, self)
        else:
            self.running.report_refused(run, error, message)


class ReleaseCall(RunCall, frozen=True, eq=False):
    """Give an unfinished job back to the queue."""

    running: Running
    settles = True

    def answered(self, value: Any) -> None:
        run = self.run
        self.running.moved(run, "given-back")
        if run.job.priority:
            self.running.announce()

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        run = self.run
        self.running.drop(run)
        self.running.problem(run, f"could not give job {run.job.id} back: {message}")


class Running:
    """The runs of a worker, and counts of their outcomes.

    `released`: the shutdown time is over, so no run begins any more.
    """

    def __init__(self, shared: Shared, fetching: Fetching, upkeep: Upkeep) -> None:
        self.shared = shared
        self.fetching = fetching
        self._upkeep = upkeep
        self._finishing = Finishing(shared.settings, limited=shared.keys.switches.age_retention_limit is not None)
        self.retries: dict[int, Millis] = {}
        """When a run's refused call is made again, by the run's number."""
        self._abandoned: set[int] = set()
        self.released = False
        self.taken = 0
        self.completed = 0
        self.failed = 0
        self.retried = 0
        fetching.start = self.start

    # --- timers -----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Repeat the calls that were refused a while ago."""
        now = self.shared.at.mono
        for number, retry_at in list(self.retries.items()):
            if now >= retry_at:
                del self.retries[number]
                self._guarded(self.shared.runs[number], self._resume)

    # --- begin ------------------------------------------------------------------------------------------------------

    def start(self, job: JobRecord, token: str) -> None:
        """Begin a run of the job that a fetch brought."""
        shared = self.shared
        mono = shared.at.mono
        self.taken = number = self.taken + 1
        run = shared.runs[number] = Run(number, job, token, mono, mono)
        if self._upkeep.renew_at is None:
            self._upkeep.plan_renewal()
        try:
            schedule = schedule_of(job, shared.keys.switches)
            if schedule is None:
                self._run(run)
            else:
                self._advance(run, schedule)
        except Exception as error:
            self.blame(run, error)

    def _run(self, run: Run) -> None:
        if self.released:
            self._release(run)
            return
        if run.lost:
            self._drop_lost(run)
            return
        shared = self.shared
        job = run.job
        run.phase = Phase.RUNNING
        shared.out.append(Notify(JobActive(job)))
        limit = shared.settings.max_started_attempts
        reason = job.deferred_failure
        if not reason and limit and job.attempts_started > limit:
            reason = START_LIMIT_REASON
        if reason:
            self._report_failure(run, failed_by(reason, FailureKind.UNRECOVERABLE), roll=0.0)
            return
        run.handler_alive = True
        shared.out.append(RunJob(run.number, job, run.token))

    # --- the job's scheduler ----------------------------------------------------------------------------------------

    def _advance(self, run: Run, schedule: Schedule) -> None:
        shared = self.shared
        run.phase = Phase.SCHEDULING
        run.schedule = schedule
        try:
            step = advance(shared.keys, run.job, schedule, now=shared.at.wall, zones=shared.settings.zones)
        except Unschedulable as error:
            self.delay(run, str(error))
            return
        if step is None:
            self._run(run)
        else:
            shared.call(AdvanceCall(step.command, run, self, step))

    def advanced(self, run: Run, step: Advance | None, answer: Any) -> None:
        """Continue: with the next call, if there is one, or with the job."""
        try:
            following = None if step is None else step.following(answer)
        except Unschedulable as error:
            self.delay(run, str(error))
            return
        except NotContinued as error:
            self.problem(run, str(error))
            following = None
        if following is None:
            self._run(run)
        else:
            self.shared.call(AdvanceCall(following.command, run, self, following))

    def delay(self, run: Run, message: str) -> None:
        """Delay a job whose schedule could not be advanced.

        Source: specs/05-worker-runtime.md#sec-6
        """
        shared = self.shared
        self.problem(run, delay_problem(message))
        command = delay_job(shared.keys, run.job, token=run.token, now=shared.at.wall)
        shared.call(DelayCall(command, run, self), shielded=True)

    # --- the end of a handler ---------------------------------------------------------------------------------------

    def returned(self, event: JobReturned) -> None:
        """Report success."""
        run = self._handler_ended(event.run)
        if run is not None:
            run.report = success_report(event.value)
            self._send_report(run)

    def raised(self, event: JobRaised) -> None:
        """Report the outcome of a failure, if there is one to report."""
        run = self._handler_ended(event.run)
        if run is None:
            return
        failure, strategy_delay = event.failure, event.strategy_delay_ms
        if failure.kind is FailureKind.CANCELLED and run.cancelled is not None:
            # Nobody asked the strategy.
            failure, strategy_delay = replace(failure, message=run.cancelled), strategy_delay or 0.0
        match failure.kind:
            case FailureKind.MOVED:
                self.fetching.empty = False
                self.moved(run, failure.moved_to)
            case FailureKind.RATE_LIMIT:
                run.report = Report(ReportKind.RATE_LIMIT)
                self._send_report(run)
            case _:
                self._report_failure(
                    run,
                    failure,
                    roll=event.roll,
                    strategy_delay=strategy_delay,
                    strategy_error=event.strategy_error,
                    exception=event.exception,
                    telemetry=event.telemetry,
                )

    def cancel(self, job_id: str | None, reason: str) -> None:
        """Cancel the handler of this job, or all handlers: how each ends decides what becomes of its job.

        Source: specs/06-later-versions.md#sec-4-13
        """
        for run in self.handled(job_id):
            run.cancelled = reason
            self.shared.out.append(CancelJob(run.number, reason))

    def handled(self, job_id: str | None) -> list[Run]:
        """Return the runs of this job, or of all, whose handlers go on."""
        runs = list(self.shared.runs.values())
        return [run for run in runs if run.handler_alive and (job_id is None or run.job.id == job_id)]

    def _handler_ended(self, number: int) -> Run | None:
        """Note that a handler is over; return its run if it is still to be reported."""
        if self._abandoned and number in self._abandoned:
            self._abandoned.discard(number)
            return None
        run = self.shared.runs.get(number)
        if run is None or not run.handler_alive:
            return None
        run.handler_alive = False
        renew_at = self._upkeep.renew_at
        if renew_at is not None and self.shared.at.mono > renew_at:
            self._upkeep.note_late(run)
        if run.phase is Phase.RELEASING:
            return None
        if run.lost:
            self._drop_lost(run)
            return None
        return run

    # --- the report -------------------------------------------------------------------------------------------------

    def _report_failure(
        self,
        run: Run,
        failure: Failure,
        *,
        roll: float,
        strategy_delay: float | None = None,
        strategy_error: str | None = None,
        exception: Any = None,
        telemetry: str | None = None,
    ) -> None:
        run.report = failure_report(
            run.job,
            failure,
            self.shared.settings,
            roll=roll,
            strategy_delay=strategy_delay,
            strategy_error=strategy_error,
            exception=exception,
            telemetry=telemetry,
        )
        self._send_report(run)

    def _send_report(self, run: Run) -> None:
        shared = self.shared
        report = run.report
        assert report is not None  # set by every caller
        run.phase = Phase.REPORTING
        if self.retries:
            self.retries.pop(run.number, None)
        if not shared.connected:
            return
        report.fetch_next = (
            self.fetching.limited_until is None
            and shared.state is WorkerState.RUNNING
            and not shared.asked_to_end
            and len(shared.runs) <= shared.concurrency
            and report.may_fetch_next(shared.keys)
            and ((ending := self.fetching.ending) is None or self.fetching.fitting(ending) > 0)
        )
        command = report.command(shared.keys, run.job, run.token, self._finishing, now=shared.at.wall)
        run.sent = True
        # As `Shared.call` does: it is the call that is made most.
        ticket = shared.next_ticket
        shared.next_ticket = ticket + 1
        shared.pending[ticket] = ReportCall(command, run, self)
        shared.out.append(Call(ticket, command, shielded=True))

    def report_refused(self, run: Run, error: BullMQError | None, message: str) -> None:
        """End the run if the server says that the job is not ours, or report a failure in place of a success."""
        report = run.report
        assert report is not None  # it was sent
        if isinstance(error, (JobNotFound, LockMissing, LockMismatch, WrongState)):
            self._drop_refused(run, message, uncertain=run.uncertain)
            return
        if report.kind is ReportKind.COMPLETED and (
            not isinstance(error, ScriptError) or isinstance(error, (PendingChildren, ChildFailed))
        ):
            self.problem(run, message)
            kind = FailureKind.UNRECOVERABLE if isinstance(error, ChildFailed) else FailureKind.ERROR
            self._report_failure(run, failed_by(message, kind), roll=0.5, exception=error)
            return
        self.drop(run)
        self.fetching.empty = False
        self.problem(run, f"the outcome of job {run.job.id} could not be stored: {message}; it will be found stalled")

    # --- calls made again -------------------------------------------------------------------------------------------

    def retry_later(self, run: Run, call: RunCall) -> None:
        """Repeat a call after a while: the cause of the refusal may be fixed by then."""
        run.resend = call
        self.retries[run.number] = self.shared.at.mono + self.shared.patience(run.refusals)
        run.refusals += 1

    def resume_all(self) -> None:
        """Resend the calls that settle runs: the connection is back."""
        for run in list(self.shared.runs.values()):
            self._guarded(run, self._resume)

    def _resume(self, run: Run) -> None:
        call, run.resend = run.resend, None
        if call is not None and not isinstance(call, ReportCall):
            self.shared.call(call, shielded=True)
        elif run.phase is Phase.REPORTING and not run.sent:
            # Not the same command: its time changes, and so does whether it fetches the next job.
            self._send_report(run)

    # --- back to the queue ------------------------------------------------------------------------------------------

    def release_all(self) -> None:
        """Release all jobs: the shutdown time is over."""
        self.released = True
        for run in list(self.shared.runs.values()):
            if run.phase is not Phase.RELEASING:
                self._guarded(run, self._release)

    def _release(self, run: Run) -> None:
        """Return an unfinished job to the queue, so that another worker takes it at once; no attempt is counted."""
        shared = self.shared
        if run.handler_alive:
            shared.out.append(CancelJob(run.number, "worker closed"))
        if run.phase is Phase.REPORTING:
            if not run.sent:
                self._drop_undelivered(run)
            return
        if shared.is_called(run):
            return
        if run.lost:
            self.drop(run)
        elif not shared.connected:
            self._drop_undelivered(run)
        else:
            run.phase = Phase.RELEASING
            run.resend = None
            self.retries.pop(run.number, None)
            command = move_job_from_active_to_wait(shared.keys, run.job.id, token=run.token)
            shared.call(ReleaseCall(command, run, self), shielded=True)

    def announce(self) -> None:
        """Wake another worker for a released job: the script sets no marker for a prioritised one."""
        announce(self.shared)

    def without_fetch(self, call: Pending) -> Command[Any]:
        """Return the command of a call that settles a job, so that it brings no other."""
        run = call.subject
        if run is None or run.report is None or not isinstance(call, ReportCall):
            return call.command
        run.report.fetch_next = False
        return run.report.command(self.shared.keys, run.job, run.token, self._finishing, now=self.shared.at.wall)

    def settle(self) -> None:
        """Drop the runs that can no longer be released: the connection is lost."""
        shared = self.shared
        if self.released and not shared.connected:
            for run in list(shared.runs.values()):
                if not shared.is_called(run):
                    self._drop_undelivered(run)

    # --- the end of a run -------------------------------------------------------------------------------------------

    def drop(self, run: Run) -> None:
        """End a run: no call about it is pending any more."""
        shared = self.shared
        if run.handler_alive:
            self._abandoned.add(run.number)
            shared.notify(HandlerAbandoned(run.job))
        shared.runs.pop(run.number, None)
        if self.fetching.ending is not None:
            self.fetching.ending.ended()
        if self.retries:
            self.retries.pop(run.number, None)
        if not shared.runs:
            self._upkeep.renew_at = None

    def _drop_undelivered(self, run: Run) -> None:
        """End a run whose outcome never reached the server."""
        self.drop(run)
        self.problem(run, f"job {run.job.id} could not be settled before shutdown; it will be found stalled")

    def _drop_lost(self, run: Run) -> None:
        self._drop_refused(run, "the lock was lost", uncertain=False)

    def _drop_refused(self, run: Run, message: str, *, uncertain: bool) -> None:
        self.drop(run)
        self.fetching.empty = False
        self.shared.notify(ReportRefused(run.job, message, uncertain, run.blocked_ms))

    def moved(self, run: Run, where: str) -> None:
        """End a run whose job is somewhere else now."""
        self.drop(run)
        self.shared.notify(JobMoved(run.job, where))

    def problem(self, run: Run, message: str) -> None:
        """Report a problem with a job that the operator may be able to fix."""
        self.shared.notify(WorkerProblem(message, run.job.id))

    # --- faults of our own ------------------------------------------------------------------------------------------

    def _guarded(self, run: Run, step: Callable[[Run], None]) -> None:
        """Take a step of one of several runs: an exception affects this run alone."""
        try:
            step(run)
        except Exception as error:
            self.blame(run, error)

    def blame(self, run: Run, error: Exception) -> None:
        """Fail the job that was being handled; if that raises too, with a report that contains none of its data."""
        self.shared.notify_fault(error, run.job.id)
        if self.shared.is_called(run):
            return
        run.faults += 1
        if run.lost or run.handler_alive or run.faults > 2:
            # Nothing may be reported, or even the plain report failed: the stalled check will find the job.
            self.drop(run)
            self.fetching.empty = False
            return
        self._guarded(run, partial(self._report_fault, error=error))

    def _report_fault(self, run: Run, *, error: Exception) -> None:
        failure = failed_by(fault_text(error), FailureKind.UNRECOVERABLE)
        if run.faults > 1:
            run.report = plain_failure(failure, error)
            self._send_report(run)
        else:
            self._report_failure(run, failure, roll=0.0, exception=error)
