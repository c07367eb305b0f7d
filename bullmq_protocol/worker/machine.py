"""The worker as a state machine: `handle(event, at) -> actions`.

Rules
-----
1. Everything that decides is in this file; it waits for nothing, reads no clock and rolls no dice.
2. Whoever drives it owes exactly one answer per `Call`, `Listen` and `RunJob` (see `actions`).

Invariants (tested by name)
---------------------------
- At most `concurrency` handlers are alive; cancelled ones count until they return.
- At most one fetch and one listen are in flight.
- Every `RunJob` ends in one finishing call, or in none after its lock was lost.
- Every held lock is renewed before `lock_renew_time`; none is renewed once its report is under way.
- A draining machine starts nothing but what a fetch under way brings.
- A stopped machine holds nothing and says nothing.
- A jump of the wall clock changes no timer but that of delayed jobs, which are due by the wall clock.
- Whatever a hash, a reply or a callback holds, `handle` returns: a job that cannot be handled fails, or is put back, or
  is left to the stalled check, and a notice says why.

Theory
------
A *run* is one started job. It holds a *lease* (the lock) from the moment its fetch was answered. Phases of a run:
`SCHEDULING` (its job scheduler is advanced first) -> `RUNNING` -> `REPORTING` (a finishing call is under way, or waits
for the connection), and `GIVING_BACK` at shutdown. A finishing call that succeeded may bring the next job, which
continues with the token of the one before.

Fetching is sequential: one fetch at a time, until an answer holds no job; from then on one `Listen` waits for the
queue's marker. The time of the next delayed job, as far as it is known, is a timer of its own.

When a call is lost the machine is *disconnected*: it starts nothing, probes with doubling delays, and on the first
answer sends again what is owed. A report that may have been applied before and is refused now counts as uncertain, not
as failed.

Values that other programs stored are read so that no step below raises for them. Should a step raise all the same, that
is a fault of this library. It is contained (`_contain`): the job that was being handled fails with a reason that names
the fault, what was under way counts as over, and a `WorkerProblem` carries the exception. The simulation and the tests
take such a notice for what it is, a violation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bullmq_protocol.command import Command, Operation
from bullmq_protocol.commands.batches import MOST_JOBS, fetch_many
from bullmq_protocol.commands.fetching import (
    NOTHING,
    Fetched,
    due_of,
    move_to_active,
    put_marker,
    stalled_check_ttl,
    wait_for_marker,
)
from bullmq_protocol.commands.finishing import move_job_from_active_to_wait
from bullmq_protocol.commands.locks import extend_locks, move_stalled_jobs_to_wait
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.common.codec import clean_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant, Millis
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
from bullmq_protocol.model.categories import is_transient_code
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.net.handshake import LOGIN_CODES
from bullmq_protocol.worker.actions import Action, Call, CancelJob, Listen, Notify, RunJob, Stopped, Unlisten
from bullmq_protocol.worker.advance import Schedule, Unschedulable, advance, put_back, put_back_problem, schedule_of
from bullmq_protocol.worker.events import (
    CallFailed,
    CloseRequested,
    ConnectionEnded,
    Event,
    JobRaised,
    JobReturned,
    PauseRequested,
    Replied,
    ResumeRequested,
    Tick,
    Unlistened,
)
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    Closing,
    Disconnected,
    Drained,
    HandlerAbandoned,
    JobActive,
    JobCompleted,
    JobMoved,
    JobStalled,
    LockLost,
    Notice,
    Paused,
    Reconnected,
    ReconnectFailed,
    RenewalFailed,
    Renewed,
    ReportRefused,
    Resumed,
    StalledCheckSkipped,
    WorkerProblem,
)
from bullmq_protocol.worker.options import WorkerSettings, check_concurrency
from bullmq_protocol.worker.outcome import (
    Finishing,
    Report,
    ReportKind,
    failed_by,
    failure_report,
    plain_failure,
    success_report,
)
from bullmq_protocol.worker.runs import Pending, PendingKind, Phase, Run
from bullmq_protocol.worker.snapshot import WorkerSnapshot, WorkerState, held_job
from bullmq_protocol.worker.strays import give_back_strays

FIRST_RECONNECT_MS = 100
RECONNECT_JITTER = 0.2
STALLED_RETRY_MS = 5_000
LONGEST_SLEEP_MS = 24 * 3_600_000
_ENDS = frozenset((PauseRequested, CloseRequested))
START_LIMIT_REASON = "job started more than allowable limit"


def _told(error: Exception) -> str:
    return f"the worker met a fault of its own: {type(error).__name__}: {error}"


class WorkerMachine:
    """One worker. `worker_id` begins every lock token (`<worker_id>:<n>`) and comes from the driver's random source.

    `batches`: the server's scripts are ours, so that several jobs can be fetched in one call.
    """

    def __init__(self, keys: QueueKeys, settings: WorkerSettings, worker_id: str, *, batches: bool = False) -> None:
        self._keys = keys
        self._settings = settings
        self._finishing = Finishing(settings)
        self._worker_id = worker_id
        self._batches = batches
        self._concurrency = settings.concurrency
        self._state = WorkerState.NEW
        self._at = Instant(0, 0)
        self._out: list[Action] = []
        self._next_ticket = 0
        self._next_token = 0
        self._pending: dict[int, Pending] = {}
        self._answered: Pending | None = None
        self._runs: dict[int, Run] = {}
        self._retries: dict[int, Millis] = {}
        self._abandoned: set[int] = set()
        # fetching
        self._fetching = False
        self._listen: int | None = None
        self._listening_since: Millis = 0
        self._unlistened = False
        self._marker_taken = False
        self._empty = False
        self._had_job = True
        self._limited_until: Millis | None = None
        self._next_due: Millis | None = None
        self._fetch_failures = 0
        self._fetch_pause_until: Millis | None = None
        self._unheard = 0
        # upkeep
        self._renew_at: Millis | None = None
        self._renewing = False
        self._stalled_at: Millis | None = None
        self._checking = False
        # connection
        self._connected = True
        self._lost_at: Millis = 0
        self._attempts = 0
        self._probe_at: Millis | None = None
        self._probing = False
        # shutdown
        self._shutdown_at: Millis | None = None
        self._asked_to_end = False
        self._given_back = False
        self._stop_error: str | None = None
        # counters
        self._taken = 0
        self._completed = 0
        self._failed = 0
        self._retried = 0

    # --- outside ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> WorkerState:
        return self._state

    @property
    def word(self) -> str:
        """The state in the user's words, as in a snapshot."""
        if self._state in (WorkerState.NEW, WorkerState.STOPPED):
            return "stopped"
        if self._state is WorkerState.DRAINING:
            return "shutting down"
        return self._state.value if self._connected else "disconnected"

    @property
    def running_jobs(self) -> int:
        """Runs that are not settled yet."""
        return len(self._runs)

    @property
    def adrift(self) -> bool:
        """Nothing is held, and the connection is lost: whoever closes need not wait for it."""
        return not self._connected and not self._runs

    @property
    def unattended(self) -> bool:
        """Nobody waits for the server, so that the end of the connection would be seen late: the driver looks."""
        return self._connected and self._listen is None

    @property
    def concurrency(self) -> int:
        """Jobs at a time; may be changed at run time, and takes effect with the next event."""
        return self._concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._concurrency = check_concurrency(value)

    def rename(self, worker_id: str) -> None:
        """Take another name for the tokens of its jobs, before it starts: in the child of a fork."""
        self._worker_id = worker_id

    def start(self, at: Instant, *, paused: bool = False) -> list[Action]:
        """Begin: a stalled check and the first fetch; `paused`: without the fetch, as after `PauseRequested`.

        Emits: Call, Notify
        """
        self._at = at
        self._out = []
        if self._state is WorkerState.NEW:
            self._state = WorkerState.PAUSED if paused else WorkerState.RUNNING
            if paused:
                self._notify(Paused())
            if not self._settings.skip_stalled_check:
                self._check_stalled()
        self._pump()
        return self._out

    def handle(self, event: Event, at: Instant) -> list[Action]:
        """Take one event; return what to do now. Late answers after `Stopped` yield nothing.

        Emits: any action
        """
        return self.handle_all((event,), at)

    def handle_all(self, events: Sequence[Event], at: Instant) -> list[Action]:
        """Take several events that happened at one moment, in their order; return what to do after all of them.

        A request to pause or to close among them holds for all: none fetches.

        Emits: any action
        """
        self._at = at
        self._out = []
        self._asked_to_end = len(events) > 1 and not _ENDS.isdisjoint(map(type, events))
        if self._state is WorkerState.STOPPED:
            return self._out
        for event in events:
            try:
                self._on_event(event)
            except Exception as error:
                self._contain(event, error)
        self._pump()
        return self._out

    def _on_event(self, event: Event) -> None:
        match event:
            case Replied():
                self._on_reply(event)
            case JobReturned():
                self._on_returned(event)
            case JobRaised():
                self._on_raised(event)
            case Tick():
                self._on_tick(event.roll)
            case CallFailed():
                self._on_call_failed(event)
            case Unlistened():
                self._drop_listen(event.ticket)
            case PauseRequested():
                self._on_pause()
            case ResumeRequested():
                self._on_resume()
            case ConnectionEnded():
                self._go_offline(event.message, event.roll)
            case _:
                self._on_close(event.force)

    def deadline(self) -> Millis | None:
        """Return the monotonic time of the next `Tick` that is wanted, or None."""
        if self._state in (WorkerState.NEW, WorkerState.STOPPED):
            return None
        at = self._at
        times: list[Millis | None] = [self._shutdown_at]
        if not self._connected:
            if not self._probing:
                times.append(self._probe_at)
        else:
            times.append(self._stalled_at)
            if not self._renewing:
                times.append(self._renew_at)
            if self._retries:
                times += self._retries.values()
            if self._may_fetch():
                if self._limited_until is not None or self._fetch_pause_until is not None:
                    times += (self._limited_until, self._fetch_pause_until)
                elif self._next_due is not None:
                    times.append(at.mono + max(0, self._next_due - at.wall))
        # A time far off (a job delayed for years) is looked at again once a day: no timer overflows.
        known = [time for time in times if time is not None]
        return min(*known, at.mono + LONGEST_SLEEP_MS) if known else None

    def owed(self) -> list[Action]:
        """Return the calls under way that settle a job: a driver whose tasks were cut off may make them again.

        None brings another job, which nobody would work on.
        """
        kinds = (PendingKind.REPORT, PendingKind.GIVE_BACK, PendingKind.PUT_BACK)
        return [
            Call(ticket, self._fetching_nothing(pending), shielded=True)
            for ticket, pending in self._pending.items()
            if pending.kind in kinds
        ]

    def give_back_strays(self) -> Operation[list[str]]:
        """Give back the jobs that a reply brought which the driver could not read: it has broken."""
        return give_back_strays(self._keys, self._worker_id)

    def _fetching_nothing(self, pending: Pending) -> Command[Any]:
        run = self._run_of(pending)
        if pending.kind is not PendingKind.REPORT or run.report is None:
            return pending.command
        run.report.fetch_next = False
        return run.report.command(self._keys, run.job, run.token, self._finishing, now=self._at.wall)

    def job_of(self, ticket: int) -> JobRecord | None:
        """Return the job that a call under way is about, if it is about one."""
        pending = self._pending.get(ticket)
        run = None if pending is None else self._runs.get(pending.run)
        return None if run is None else run.job

    def holds(self, job: JobRecord) -> bool:
        """Tell whether the run that was given this very record is not settled yet."""
        return any(run.job is job for run in list(self._runs.values()))

    def snapshot(self, at: Instant | None = None) -> WorkerSnapshot:
        """Return what the worker holds and waits for, seen at that moment (default: that of the last event)."""
        now = self._at if at is None else at
        runs = self._runs.values()
        return WorkerSnapshot(
            state=self.word,
            jobs=tuple(clean_text(run.job.id) for run in runs),
            reporting=tuple(clean_text(run.job.id) for run in runs if run.phase is Phase.REPORTING),
            fetching=self._fetching,
            listening=self._listen is not None,
            limited_for_ms=0 if self._limited_until is None else max(0, self._limited_until - now.mono),
            next_due_at=self._next_due,
            reconnect_attempts=self._attempts,
            held=tuple(held_job(run, now.mono) for run in runs),
            listening_for_ms=None if self._listen is None else max(0, now.mono - self._listening_since),
            next_timer_in_ms=None if (due := self.deadline()) is None else max(0, due - now.mono),
            reconnect_in_ms=(None if self._connected or self._probe_at is None else max(0, self._probe_at - now.mono)),
            disconnected_for_ms=None if self._connected else max(0, now.mono - self._lost_at),
            taken=self._taken,
            completed=self._completed,
            failed=self._failed,
            retried=self._retried,
            left=self._taken - self._completed - self._failed - self._retried - len(self._runs),
        )

    # --- plumbing ---------------------------------------------------------------------------------------------------

    def _call(self, command: Command[Any], pending: Pending, *, shielded: bool = False) -> None:
        ticket = self._next_ticket
        self._next_ticket += 1
        self._pending[ticket] = pending
        self._out.append(Call(ticket, command, shielded))

    def _notify(self, notice: Notice) -> None:
        self._out.append(Notify(notice))

    def _pump(self) -> None:
        """Start what the state allows: a fetch or a listen, or the end."""
        if self._marker_taken and self._connected and len(self._runs) >= self._concurrency:
            # its own fetch filled the worker while it listened: the marker is for another
            self._marker_taken = False
            self._call(put_marker(self._keys), Pending(PendingKind.MARKER, put_marker(self._keys)))
        if self._state is WorkerState.DRAINING:
            self._settle()
            return
        if not self._may_fetch():
            return
        now = self._at.mono
        if self._limited_until is not None:
            if now < self._limited_until:
                return
            self._limited_until = None
            self._empty = False
        if self._fetch_pause_until is not None:
            if now < self._fetch_pause_until:
                return
            self._fetch_pause_until = None
            self._empty = False
        due = self._next_due is not None and self._at.wall >= self._next_due
        if not self._empty or due:
            self._fetch()
        elif self._listen is None:
            self._start_listening()

    def _may_fetch(self) -> bool:
        return (
            self._state is WorkerState.RUNNING
            and self._connected
            and not self._fetching
            and len(self._runs) < self._concurrency
        )

    def _fetch(self) -> None:
        """Ask for as many jobs as there is room for."""
        free = self._concurrency - len(self._runs)
        count = min(free, MOST_JOBS) if self._batches and free > 1 else 1
        first = self._next_token
        self._next_token += count
        tokens = [f"{self._worker_id}:{number}" for number in range(first, first + count)]
        self._fetching = True
        self._marker_taken = False
        self._next_due = None
        settings = self._settings
        command: Command[Fetched] | Command[list[Fetched]]
        if count == 1:
            command = move_to_active(
                self._keys,
                token=tokens[0],
                lock_ms=settings.lock_ms,
                now=self._at.wall,
                limiter=settings.limiter,
                worker_name=settings.name,
            )
        else:
            command = fetch_many(
                self._keys,
                tokens=tokens,
                lock_ms=settings.lock_ms,
                now=self._at.wall,
                limiter=settings.limiter,
                worker_name=settings.name,
            )
        self._call(command, Pending(PendingKind.FETCH, command, tokens=tuple(tokens)))

    def _start_listening(self) -> None:
        ticket = self._next_ticket
        self._next_ticket += 1
        command = wait_for_marker(self._keys, block_ms=self._settings.drain_ms)
        self._pending[ticket] = Pending(PendingKind.LISTEN, command)
        self._listen = ticket
        self._listening_since = self._at.mono
        self._unlistened = False
        self._out.append(Listen(ticket, command))

    def _stop_listening(self) -> None:
        if self._listen is not None and not self._unlistened:
            self._unlistened = True
            self._out.append(Unlisten(self._listen))

    def _drop_listen(self, ticket: int) -> None:
        if self._pending.pop(ticket, None) is not None:
            self._listen = None
            # an interrupted wait may have taken a marker with it: ask instead of waiting for the next one
            self._empty = False

    # --- answers of the server --------------------------------------------------------------------------------------

    def _on_reply(self, event: Replied) -> None:
        pending = self._pending.pop(event.ticket, None)
        self._answered = pending
        if pending is None:
            return
        try:
            value = pending.command.decode(event.reply)
        except BullMQError as error:
            self._on_error(pending, error, str(error), transient=False)
            return
        kind = pending.kind
        if kind is PendingKind.REPORT:
            self._on_reported(self._runs[pending.run], value)
            return
        match kind:
            case PendingKind.FETCH:
                self._fetching = False
                self._fetch_failures = 0
                answers: Sequence[Fetched] = (value,) if isinstance(value, Fetched) else value
                for fetched, token in zip(answers, pending.tokens, strict=False):
                    self._take(fetched, token)
            case PendingKind.LISTEN:
                self._unheard = 0
                self._on_marker(value)
            case PendingKind.RENEW:
                self._on_renewed(pending, value)
            case PendingKind.STALLED:
                for job_id in value:
                    self._notify(JobStalled(job_id))
                if value:
                    self._empty = False
                if self._state is WorkerState.DRAINING:
                    self._checking = False
                else:
                    command = stalled_check_ttl(self._keys)
                    self._call(command, Pending(PendingKind.STALLED_TTL, command))
            case PendingKind.STALLED_TTL:
                self._checking = False
                # a key without TTL is not ours: fall back to the interval
                self._plan_check(self._settings.stalled_ms if value == -1 else max(value, 0) + 1)
            case PendingKind.SCHEDULE:
                self._on_advanced(pending, value)
            case PendingKind.PUT_BACK:
                run = self._run_of(pending)
                self._drop_run(run)
                self._notify(JobMoved(run.job, "delayed"))
            case PendingKind.GIVE_BACK:
                self._on_given_back(self._run_of(pending))
            case PendingKind.PROBE:
                self._on_probe_answered()
            case _:
                # the marker was put back: nothing hangs on the answer
                pass

    def _on_marker(self, score: float | None) -> None:
        self._listen = None
        if score is not None and score <= 0 and self._state is not WorkerState.RUNNING:
            # taken for nobody: put it back for another worker
            if self._connected:
                self._call(put_marker(self._keys), Pending(PendingKind.MARKER, put_marker(self._keys)))
            return
        self._marker_taken = score is not None
        if score is None or score <= 0:
            self._empty = False
            return
        due = due_of(score)
        if due is not None:
            self._next_due = due if self._next_due is None else min(due, self._next_due)

    def _take(self, fetched: Fetched, token: str) -> None:
        """Note what an answer of a fetch says, and start its job."""
        job = fetched.job
        delay = fetched.limit_delay_ms
        self._limited_until = self._at.mono + delay if delay > 0 else None
        if job is None:
            # A marker that came while this fetch was under way may tell of a job that the fetch did not see yet.
            if fetched.next_due_at > 0 and (self._next_due is None or fetched.next_due_at < self._next_due):
                self._next_due = fetched.next_due_at
            self._empty = True
            if self._had_job:
                self._had_job = False
                self._notify(Drained())
            return
        self._empty = False
        self._had_job = True
        self._taken = number = self._taken + 1
        run = self._runs[number] = Run(number, job, token, self._at.mono, self._at.mono)
        if self._renew_at is None and not self._settings.skip_lock_renewal:
            self._renew_at = self._at.mono + self._renewal_period()
        self._with(run, self._begin)

    def _begin(self, run: Run) -> None:
        schedule = schedule_of(run.job)
        if schedule is None:
            self._run(run)
        else:
            self._advance(run, schedule)

    # --- one job ----------------------------------------------------------------------------------------------------

    def _run(self, run: Run) -> None:
        if self._given_back:
            self._give_back(run)
            return
        if run.lost:
            self._drop_lost(run)
            return
        job = run.job
        run.phase = Phase.RUNNING
        self._notify(JobActive(job))
        limit = self._settings.max_started_attempts
        reason = job.deferred_failure
        if not reason and limit and job.attempts_started > limit:
            reason = START_LIMIT_REASON
        if reason:
            self._report_failure(run, failed_by(reason, FailureKind.UNRECOVERABLE), roll=0.0)
            return
        run.handler_alive = True
        self._out.append(RunJob(run.number, job, run.token))

    def _advance(self, run: Run, schedule: Schedule) -> None:
        run.phase = Phase.SCHEDULING
        run.schedule = schedule
        try:
            step = advance(self._keys, run.job, schedule, now=self._at.wall, zones=self._settings.zones)
        except Unschedulable as error:
            self._put_back(run, str(error))
            return
        if step is None:
            self._run(run)
        else:
            self._call(step.command, Pending(PendingKind.SCHEDULE, step.command, run=run.number, advance=step))

    def _on_advanced(self, pending: Pending, answer: Any) -> None:
        run = self._run_of(pending)
        try:
            following = None if pending.advance is None else pending.advance.following(answer)
        except Unschedulable as error:
            self._put_back(run, str(error))
            return
        if following is None:
            self._run(run)
        else:
            self._call(following, Pending(PendingKind.SCHEDULE, following, run=run.number))

    def _put_back(self, run: Run, message: str) -> None:
        """Delay a job whose schedule could not be advanced.

        Source: specs/05-worker-runtime.md#sec-6
        """
        self._notify(WorkerProblem(put_back_problem(message), run.job.id))
        command = put_back(self._keys, run.job, token=run.token, now=self._at.wall)
        self._call(command, Pending(PendingKind.PUT_BACK, command, run=run.number), shielded=True)

    def _on_returned(self, event: JobReturned) -> None:
        run = self._handler_ended(event.run)
        if run is not None:
            run.report = success_report(event.value)
            self._send_report(run)

    def _on_raised(self, event: JobRaised) -> None:
        run = self._handler_ended(event.run)
        if run is None:
            return
        failure = event.failure
        match failure.kind:
            case FailureKind.MOVED:
                self._drop_run(run)
                self._empty = False
                self._notify(JobMoved(run.job, failure.moved_to))
            case FailureKind.RATE_LIMIT:
                run.report = Report(ReportKind.RATE_LIMIT)
                self._send_report(run)
            case _:
                self._report_failure(
                    run,
                    failure,
                    roll=event.roll,
                    strategy_delay=event.strategy_delay_ms,
                    strategy_error=event.strategy_error,
                    exception=event.exception,
                    telemetry=event.telemetry,
                )

    def _handler_ended(self, number: int) -> Run | None:
        """Note that a handler is over; return its run if it is still to be reported."""
        if number in self._abandoned:
            self._abandoned.discard(number)
            return None
        run = self._runs.get(number)
        if run is None or not run.handler_alive:
            return None
        run.handler_alive = False
        if run.phase is Phase.GIVING_BACK:
            return None
        if run.lost:
            self._drop_lost(run)
            return None
        return run

    def _drop_lost(self, run: Run) -> None:
        self._drop_run(run)
        self._empty = False
        self._notify(ReportRefused(run.job, "the lock was lost", uncertain=False))

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
            self._settings,
            roll=roll,
            strategy_delay=strategy_delay,
            strategy_error=strategy_error,
            exception=exception,
            telemetry=telemetry,
        )
        self._send_report(run)

    def _send_report(self, run: Run) -> None:
        report = run.report
        assert report is not None  # whoever sends it has set it
        run.phase = Phase.REPORTING
        if self._retries:
            self._retries.pop(run.number, None)
        if not self._connected:
            return
        report.fetch_next = (
            self._limited_until is None
            and self._state is WorkerState.RUNNING
            and not self._asked_to_end
            and len(self._runs) <= self._concurrency
            and report.may_fetch_next
        )
        command = report.command(self._keys, run.job, run.token, self._finishing, now=self._at.wall)
        run.sent = True
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        self._pending[ticket] = Pending(PendingKind.REPORT, command, run.number)
        self._out.append(Call(ticket, command, shielded=True))

    def _on_reported(self, run: Run, value: Any) -> None:
        report = run.report
        assert report is not None  # it was sent
        self._drop_run(run)
        job = run.job
        duration = self._at.mono - run.started_at
        kind = report.kind
        if kind is ReportKind.COMPLETED:
            self._completed += 1
            self._notify(JobCompleted(job, report.value, duration))
        elif kind is ReportKind.RATE_LIMIT:
            self._limited_until = self._at.mono + value if value > 0 else None
            self._empty = False
            self._notify(JobMoved(job, "rate-limited"))
        else:
            if kind is ReportKind.FAILED:
                self._failed += 1
            else:
                self._retried += 1
            self._notify(report.notice(job, duration))
        if kind is ReportKind.RETRY or kind is ReportKind.DELAY:
            self._empty = False
        elif isinstance(value, Fetched):
            if report.fetch_next:
                self._take(value, run.token)
            else:
                self._empty = self._empty and value is NOTHING

    def _drop_run(self, run: Run) -> None:
        if run.handler_alive:
            self._abandoned.add(run.number)
            self._notify(HandlerAbandoned(run.job))
        self._runs.pop(run.number, None)
        if self._retries:
            self._retries.pop(run.number, None)
        if not self._runs:
            self._renew_at = None

    def _run_of(self, pending: Pending) -> Run:
        return self._runs[pending.run]

    # --- errors -----------------------------------------------------------------------------------------------------

    def _on_call_failed(self, event: CallFailed) -> None:
        pending = self._pending.pop(event.ticket, None)
        self._answered = pending
        if pending is None:
            return
        if event.lost:
            self._on_lost(pending, event)
        else:
            # What this login may not do the operator can mend; failing the job would not.
            transient = is_transient_code(event.code) or event.code in LOGIN_CODES
            self._on_error(pending, None, event.message, transient=transient)

    def _on_lost(self, pending: Pending, event: CallFailed) -> None:
        """The connection failed under this call: note what is owed, and go offline."""
        match pending.kind:
            case PendingKind.REPORT | PendingKind.GIVE_BACK | PendingKind.PUT_BACK | PendingKind.SCHEDULE:
                run = self._run_of(pending)
                run.uncertain = run.uncertain or event.maybe_applied
                run.resend = pending
                run.sent = False
            case PendingKind.FETCH:
                self._fetching = False
                self._empty = False
                if event.maybe_applied:
                    self._notify(WorkerProblem("a fetch got no answer; if it took a job, the stalled check returns it"))
            case PendingKind.LISTEN:
                self._listen = None
                self._empty = False
                self._unheard = 0 if event.maybe_applied else self._unheard + 1
                if self._connected and self._unheard > 1:
                    # it cannot connect, while calls get their answers
                    self._poll(event.message)
                    return
            case PendingKind.RENEW:
                self._renewal_failed(pending, event.message)
            case PendingKind.STALLED | PendingKind.STALLED_TTL:
                self._checking = False
                self._plan_check(0)
            case PendingKind.PROBE:
                self._probing = False
                self._probe_failed(event.message, event.roll)
                return
            case _:
                # the marker is only a courtesy: another worker asks by itself in time
                pass
        self._go_offline(event.message, event.roll)

    def _on_error(self, pending: Pending, error: BullMQError | None, message: str, *, transient: bool) -> None:
        """The server refused this call."""
        match pending.kind:
            case PendingKind.REPORT:
                self._on_report_refused(self._run_of(pending), error, message, transient=transient)
            case PendingKind.FETCH:
                self._fetching = False
                self._pause_fetching(message, self._patience(self._fetch_failures))
                self._fetch_failures += 1
            case PendingKind.LISTEN:
                self._listen = None
                self._unheard += 1
                self._poll(message)
            case PendingKind.RENEW:
                self._renewal_failed(pending, message)
            case PendingKind.STALLED | PendingKind.STALLED_TTL:
                self._checking = False
                self._plan_check(STALLED_RETRY_MS)
                self._notify(WorkerProblem(f"stalled check: {message}"))
            case PendingKind.SCHEDULE | PendingKind.PUT_BACK if transient:
                run = self._run_of(pending)
                self._notify(WorkerProblem(message, run.job.id))
                run.resend = pending
                self._retry_later(run)
            case PendingKind.SCHEDULE:
                run = self._run_of(pending)
                self._notify(WorkerProblem(message, run.job.id))
                self._put_back(run, message)
            case PendingKind.PUT_BACK:
                run = self._run_of(pending)
                self._drop_run(run)
                self._notify(
                    WorkerProblem(
                        f"Failed to move job {run.job.id} to delayed after scheduling error: {message}. "
                        "Job will become stalled and be retried automatically.",
                        run.job.id,
                    )
                )
            case PendingKind.GIVE_BACK:
                run = self._run_of(pending)
                self._drop_run(run)
                self._notify(WorkerProblem(f"could not give job {run.job.id} back: {message}", run.job.id))
            case PendingKind.PROBE:
                # an answer, even an error, shows that the connection is there
                self._on_probe_answered()
            case _:
                self._notify(WorkerProblem(f"could not put the marker back: {message}"))

    def _on_report_refused(self, run: Run, error: BullMQError | None, message: str, *, transient: bool) -> None:
        report = run.report
        assert report is not None  # it was sent
        run.sent = False
        if transient:
            self._notify(WorkerProblem(message, run.job.id))
            self._retry_later(run)
            return
        if isinstance(error, (JobNotFound, LockMissing, LockMismatch, WrongState)):
            self._drop_run(run)
            self._empty = False
            self._notify(ReportRefused(run.job, message, uncertain=run.uncertain))
            return
        if report.kind is ReportKind.COMPLETED and (
            not isinstance(error, ScriptError) or isinstance(error, (PendingChildren, ChildFailed))
        ):
            self._notify(WorkerProblem(message, run.job.id))
            kind = FailureKind.UNRECOVERABLE if isinstance(error, ChildFailed) else FailureKind.ERROR
            self._report_failure(run, failed_by(message, kind), roll=0.5, exception=error)
            return
        self._drop_run(run)
        self._empty = False
        self._notify(
            WorkerProblem(
                f"the outcome of job {run.job.id} could not be stored: {message}; it will be found stalled", run.job.id
            )
        )

    def _retry_later(self, run: Run) -> None:
        self._retries[run.number] = self._at.mono + self._patience(run.refusals)
        run.refusals += 1

    def _poll(self, message: str) -> None:
        """Ask now and then, and for the next delayed job in time, since waiting for the marker does not work."""
        wait = min(self._patience(self._unheard - 1), self._settings.drain_ms)
        if self._next_due is not None:
            wait = min(wait, max(self._next_due - self._at.wall, FIRST_RECONNECT_MS))
        self._pause_fetching(message, wait)

    def _pause_fetching(self, message: str, wait: Millis) -> None:
        self._notify(WorkerProblem(message))
        self._fetch_pause_until = self._at.mono + wait

    def _patience(self, failures: int) -> Millis:
        return min(FIRST_RECONNECT_MS << min(failures, 16), self._settings.max_reconnect_ms)

    # --- faults of our own ------------------------------------------------------------------------------------------

    def _with(self, run: Run, step: Callable[[Run], None]) -> None:
        """Take a step of one of several runs: what goes wrong with it is the trouble of this run alone."""
        try:
            step(run)
        except Exception as error:
            self._blame(run, error)

    def _tell_of(self, error: Exception, job_id: str | None = None) -> None:
        """Tell of a fault of our own. The tests of everything else let it raise instead."""
        self._notify(WorkerProblem(_told(error), job_id, exception=error))

    def _contain(self, event: Event, error: Exception) -> None:
        """Go on after a fault in the handling of an event: nothing that it was about stays under way."""
        pending = self._answered if isinstance(event, (Replied, CallFailed)) else None
        number = event.run if isinstance(event, (JobReturned, JobRaised)) else -1
        if pending is not None:
            number = pending.run
            self._let_go(pending.kind)
        now = self._at.mono
        if self._renew_at is not None:
            self._renew_at = max(self._renew_at, now + FIRST_RECONNECT_MS)
        if self._stalled_at is not None:
            self._stalled_at = max(self._stalled_at, now + FIRST_RECONNECT_MS)
        run = self._runs.get(number)
        if run is None:
            self._tell_of(error)
        else:
            self._blame(run, error)

    def _let_go(self, kind: PendingKind) -> None:
        """Take an answered call for over, whatever its handling did not come to."""
        match kind:
            case PendingKind.FETCH:
                self._fetching = False
                self._fetch_pause_until = self._at.mono + self._patience(self._fetch_failures)
                self._fetch_failures += 1
            case PendingKind.LISTEN:
                self._listen = None
                self._empty = False
            case PendingKind.RENEW:
                self._renewing = False
            case PendingKind.STALLED | PendingKind.STALLED_TTL:
                self._checking = False
                self._plan_check(STALLED_RETRY_MS)
            case PendingKind.PROBE:
                self._probing = False
                self._probe_at = self._at.mono + FIRST_RECONNECT_MS
            case _:
                pass

    def _blame(self, run: Run, error: Exception) -> None:
        """Fail the job that was being handled; where that meets a fault too, by a report that holds nothing of it."""
        self._tell_of(error, run.job.id)
        if any(pending.run == run.number for pending in self._pending.values()):
            # The answer of its call settles it.
            return
        run.faults += 1
        if run.lost or run.handler_alive or run.faults > 2:
            # Nothing may be reported, or not even that could be: the stalled check finds it.
            self._drop_run(run)
            self._empty = False
            return
        self._with(run, partial(self._report_fault, error=error))

    def _report_fault(self, run: Run, *, error: Exception) -> None:
        failure = failed_by(_told(error), FailureKind.UNRECOVERABLE)
        if run.faults > 1:
            run.report = plain_failure(failure, error)
            self._send_report(run)
        else:
            self._report_failure(run, failure, roll=0.0, exception=error)

    # --- connection -------------------------------------------------------------------------------------------------

    def _go_offline(self, message: str, roll: float) -> None:
        if not self._connected:
            return
        self._connected = False
        self._lost_at = self._at.mono
        self._attempts = 0
        self._notify(Disconnected(message))
        # Its connection may be as dead, and would be found so much later.
        self._stop_listening()
        self._probe_at = self._at.mono + self._reconnect_delay(roll)

    def _reconnect_delay(self, roll: float) -> Millis:
        base = min(FIRST_RECONNECT_MS << min(self._attempts, 30), self._settings.max_reconnect_ms)
        return max(1, round(base * (1 - RECONNECT_JITTER + 2 * RECONNECT_JITTER * roll)))

    def _probe_failed(self, message: str, roll: float) -> None:
        self._attempts += 1
        limit = self._settings.max_reconnect_attempts
        if limit and self._attempts >= limit and self._stop_error is None:
            self._stop_error = f"gave up after {self._attempts} attempts to reconnect: {message}"
            self._notify(WorkerProblem(self._stop_error))
            self._on_close(force=False)
        # Also while it ends: what running jobs come to is stored if the server is back in time.
        delay = self._reconnect_delay(roll)
        self._probe_at = self._at.mono + delay
        self._notify(ReconnectFailed(self._attempts, delay, message))

    def _on_probe_answered(self) -> None:
        self._probing = False
        self._probe_at = None
        self._connected = True
        self._notify(Reconnected(self._attempts + 1, self._at.mono - self._lost_at))
        self._attempts = 0
        self._empty = False
        self._fetch_pause_until = None
        for run in list(self._runs.values()):
            self._with(run, self._resume_run)
        self._renew()

    def _resume_run(self, run: Run) -> None:
        """Send again what this run still owes."""
        pending, run.resend = run.resend, None
        if pending is not None and pending.kind is not PendingKind.REPORT:
            self._call(pending.command, pending, shielded=True)
        elif run.phase is Phase.REPORTING and not run.sent:
            self._send_report(run)

    # --- upkeep -----------------------------------------------------------------------------------------------------

    def _on_tick(self, roll: float) -> None:
        now = self._at.mono
        if self._shutdown_at is not None and now >= self._shutdown_at:
            self._shutdown_at = None
            self._give_back_all()
        if not self._connected:
            if self._probe_at is not None and not self._probing and now >= self._probe_at:
                self._probing = True
                self._call(ping(), Pending(PendingKind.PROBE, ping()))
            return
        if self._renew_at is not None and now >= self._renew_at and not self._renewing:
            self._renew()
        if self._stalled_at is not None and now >= self._stalled_at:
            self._check_stalled()
        for number, retry_at in list(self._retries.items()):
            if now >= retry_at:
                del self._retries[number]
                self._with(self._runs[number], self._resume_run)

    def _renewal_period(self) -> Millis:
        return max(1, self._settings.renew_ms // 2)

    def _renew(self) -> None:
        if self._settings.skip_lock_renewal or self._renewing or not self._runs:
            return
        now = self._at.mono
        period = self._renewal_period()
        self._renew_at = now + period
        due = [
            run
            for run in self._runs.values()
            if run.phase in (Phase.SCHEDULING, Phase.RUNNING) and not run.lost and now - run.renewed_at >= period
        ]
        if not due:
            return
        self._renewing = True
        command = extend_locks(
            self._keys,
            job_ids=[run.job.id for run in due],
            tokens=[run.token for run in due],
            lock_ms=self._settings.lock_ms,
        )
        self._call(command, Pending(PendingKind.RENEW, command, runs=tuple(run.number for run in due), sent_at=now))

    def _on_renewed(self, pending: Pending, lost_ids: list[str]) -> None:
        self._renewing = False
        renewed: list[str] = []
        for number in pending.runs:
            run = self._runs.get(number)
            if run is None:
                continue
            if run.job.id not in lost_ids:
                run.renewed_at = max(run.renewed_at, pending.sent_at)
                renewed.append(run.job.id)
            elif run.phase in (Phase.SCHEDULING, Phase.RUNNING):
                self._lose(run)
        if renewed:
            self._notify(Renewed(tuple(renewed), self._at.mono - pending.sent_at))

    def _lose(self, run: Run) -> None:
        run.lost = True
        self._notify(LockLost(run.job))
        if run.handler_alive and self._settings.cancel_on_lost_lock:
            self._out.append(CancelJob(run.number, "lock lost"))

    def _renewal_failed(self, pending: Pending, message: str) -> None:
        self._renewing = False
        ids = tuple(run.job.id for number in pending.runs if (run := self._runs.get(number)) is not None)
        self._renew_at = self._at.mono + max(1, self._renewal_period() // 10)
        self._notify(RenewalFailed(ids, message))

    def _plan_check(self, wait: Millis) -> None:
        self._stalled_at = None if self._state is WorkerState.DRAINING else self._at.mono + wait

    def _check_stalled(self) -> None:
        if self._checking:
            self._plan_check(self._settings.stalled_ms)
            self._notify(StalledCheckSkipped())
            return
        self._checking = True
        self._plan_check(self._settings.stalled_ms)
        command = move_stalled_jobs_to_wait(
            self._keys,
            max_stalled_count=self._settings.max_stalled_count,
            now=self._at.wall,
            interval_ms=self._settings.stalled_ms,
        )
        self._call(command, Pending(PendingKind.STALLED, command))

    # --- pause, resume, close ---------------------------------------------------------------------------------------

    def _on_pause(self) -> None:
        if self._state is WorkerState.RUNNING:
            self._state = WorkerState.PAUSED
            self._stop_listening()
            self._notify(Paused())

    def _on_resume(self) -> None:
        if self._state is WorkerState.PAUSED:
            self._state = WorkerState.RUNNING
            self._empty = False
            self._notify(Resumed())

    def _on_close(self, force: bool) -> None:
        if self._state is not WorkerState.DRAINING:
            self._state = WorkerState.DRAINING
            self._stalled_at = None
            self._stop_listening()
            self._notify(Closing())
            self._shutdown_at = self._at.mono + self._settings.shutdown_ms
        if force or self._settings.shutdown_ms == 0:
            self._shutdown_at = None
            self._give_back_all()

    def _give_back_all(self) -> None:
        self._given_back = True
        for run in list(self._runs.values()):
            if run.phase is not Phase.GIVING_BACK:
                self._with(run, self._give_back)

    def _give_back(self, run: Run) -> None:
        """Return an unfinished job to the queue, so that another worker takes it at once; no attempt is counted."""
        if run.handler_alive:
            self._out.append(CancelJob(run.number, "worker closed"))
        if run.phase is Phase.REPORTING:
            if not run.sent:
                self._drop_undelivered(run)
            return
        if any(pending.run == run.number for pending in self._pending.values()):
            # the answer of its call settles it
            return
        if run.lost:
            self._drop_run(run)
        elif not self._connected:
            self._drop_undelivered(run)
        else:
            run.phase = Phase.GIVING_BACK
            run.resend = None
            self._retries.pop(run.number, None)
            command = move_job_from_active_to_wait(self._keys, run.job.id, token=run.token)
            self._call(command, Pending(PendingKind.GIVE_BACK, command, run=run.number), shielded=True)

    def _drop_undelivered(self, run: Run) -> None:
        self._drop_run(run)
        self._notify(
            WorkerProblem(
                f"job {run.job.id} could not be settled before shutdown; it will be found stalled", run.job.id
            )
        )

    def _on_given_back(self, run: Run) -> None:
        self._drop_run(run)
        self._notify(JobMoved(run.job, "given-back"))
        if run.job.priority:
            # a prioritised job goes back without a marker: announce it
            self._call(put_marker(self._keys), Pending(PendingKind.MARKER, put_marker(self._keys)))

    def _settle(self) -> None:
        """Stop once nothing is owed any more."""
        if self._given_back and not self._connected:
            for run in list(self._runs.values()):
                if not any(pending.run == run.number for pending in self._pending.values()):
                    self._drop_undelivered(run)
        if self._runs or self._pending:
            return
        self._state = WorkerState.STOPPED
        self._shutdown_at = None
        self._notify(ClosedNotice())
        self._out.append(Stopped(self._stop_error))
