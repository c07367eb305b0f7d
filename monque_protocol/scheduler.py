"""The scheduler as a state machine: events in, actions out. Time and dice are arguments.

It takes the place of a worker's machine (`bullmq_protocol.worker.dispatch.Machine`), with the same actions and events:
a `Call` has a `Command` of ours, a `Wait` is the change stream, and a `Notify` an event of `monque_protocol.events`.

Rules
-----
- A name is *due* when it may have due jobs: after a poll, a signal, or a claim that found one. While a due name has a
  free slot, claims are under way: one, and one more for each that finds a job. An empty answer ends that, unless a
  signal came meanwhile.
- A claim whose reply was lost may have claimed, and a release that was lost has perhaps released nothing. Then nothing
  is claimed until it is known what this scheduler owns, and what it owns and does not run is released. If the server
  refuses to tell, that is left to stale recovery.
- The report of a job is guarded by its owner's name: when its reply is lost, it is sent again until one comes, then
  guarded by the moment of the claim, too, as the job may be pending, and claimed here, again.

Invariants (tests/unit/test_monque_scheduler.py, and the simulation)
--------------------------------------------------------------------
- Of a name run at most `concurrency` jobs, of all names at most `instance_concurrency`, claims under way included.
- Every run ends in one report that was answered, or one release; a job that is not ours any more is left alone.
- At most one heartbeat, one change stream and one look for lost claims are under way.
- After `CloseRequested` nothing is claimed; a claim that comes back then is released. A stopped machine holds nothing
  but runs whose handlers outlive the time for the shutdown; their reports are still sent, until the client is closed.
- A jump of the wall clock changes no timer but that of the next known job.

Source: specs/monque.md#sec-8
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Final, TypeAlias

import msgspec

from bullmq_protocol.common.codec import clean_text
from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import BullMQError, TransportError, UsageError
from bullmq_protocol.model.failure import FailureKind
from bullmq_protocol.worker.actions import Action, Call, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.events import (
    CallFailed,
    CloseRequested,
    Event,
    JobRaised,
    JobReturned,
    Replied,
    Tick,
    WaitCancelled,
)
from bullmq_protocol.worker.snapshot import HeldJob, WorkerSnapshot, WorkerState
from monque_protocol import commands
from monque_protocol.backoff import backoff_delay
from monque_protocol.commands import Change, Command
from monque_protocol.cron import next_cron
from monque_protocol.document import Job, JobStatus
from monque_protocol.errors import CommandRefused, ShutdownTimeoutError, WorkerRegistrationError
from monque_protocol.events import (
    ChangeStreamClosed,
    ChangeStreamConnected,
    ChangeStreamError,
    ChangeStreamFallback,
    JobCompleted,
    JobErrored,
    JobFailed,
    JobLost,
    JobReleased,
    JobStarted,
)
from monque_protocol.options import Settings, check_concurrency, check_name

STREAM_ATTEMPTS: Final = 3
"""How many attempts to open the change stream again may fail in a row."""
WAKE_AFTER_MS: Final[Millis] = 200
"""How long after the time of a known job it is looked for: clocks of other schedulers may be ahead."""
WAKE_LEAST_MS: Final[Millis] = 100
MOST_WAKES: Final = 1_000
"""How many times of known jobs are kept; what is beyond is found by a poll."""
MOST_REASON: Final = 65_536
"""How many characters of a failure's reason are stored: with a longer one the document might be too large."""
LOST_REPLY: Final = "lost reply"
"""Why a claim of which no reply came is released."""
RESEND_MS: Final[Millis] = 100
RESEND_MOST_MS: Final[Millis] = 5_000


class _Kind(Enum):
    CLAIM = "claim"
    CLAIMS = "claims"
    REPORT = "report"
    RELEASE = "release"
    HEARTBEAT = "heartbeat"
    CLEAN = "clean"


class _Handler:
    """A name whose jobs are run."""

    def __init__(self, name: str, concurrency: int) -> None:
        self.name = name
        self.concurrency = concurrency
        self.running = 0
        self.claiming = 0
        self.due = True
        """It may have due jobs."""
        self.width = 1
        """How many claims may be under way: one more for each that found a job."""
        self.again = False
        """A signal came while claims were under way."""


class _Run:
    """A job that this scheduler runs."""

    def __init__(self, number: int, job: Job[Any], handler: _Handler, started: Millis) -> None:
        self.number = number
        self.job = job
        self.handler = handler
        self.started = started
        self.ended = started
        self.phase = "running"
        self.report: Command[Job[Any] | None] | None = None
        self.error: Any = None
        self.failed = False
        self.sent = 0
        """How often the report was sent without a reply."""
        self.resend_at: Millis | None = None
        self.reason = ""
        """Why it is released instead of reported."""


class _Pending(msgspec.Struct):
    kind: _Kind
    command: Command[Any]
    handler: _Handler | None = None
    run: _Run | None = None
    job: Job[Any] | None = None


Actions: TypeAlias = list[Action]


class OneByOne:
    """How outcomes are merged: no two commands of a scheduler go together."""

    most = 1

    def fitting(self, commands: Any, /) -> int:
        return 0

    def merged(self, commands: Sequence[Any], /) -> Any:
        raise NotImplementedError


class SchedulerMachine:
    """The state machine of a scheduler. `zone` is that of the process, in which cron expressions are read."""

    def __init__(self, settings: Settings, *, zone: tzinfo) -> None:
        self.settings = settings
        self._zone = zone
        self._state = WorkerState.NEW
        self._handlers: dict[str, _Handler] = {}
        self._runs: dict[int, _Run] = {}
        self._calls: dict[int, _Pending] = {}
        self._tickets = 0
        self._numbers = 0
        self._claiming = 0
        # A lost reply may have claimed a job.
        self._lost_claim = False
        self._poll_at: Millis = 0
        # When known jobs are due, the next one first.
        self._wakes: list[Millis] = []
        self._heartbeat_at: Millis = 0
        self._retention_at: Millis = 0
        self._drain_until: Millis | None = None
        self._given_up = False
        # The change stream: the wait under way, whether it reports, failed attempts, and when the next one follows.
        self._stream: int | None = None
        self._streams = False
        self._stream_attempts = 0
        self._stream_at: Millis | None = None
        self._taken = 0
        self._completed = 0
        self._failed = 0
        self._retried = 0
        self._left = 0

    # --- as a dispatcher sees it --------------------------------------------------------------------------------------

    @property
    def concurrency(self) -> int:
        """How many jobs it runs concurrently."""
        together = sum(handler.concurrency for handler in self._handlers.values())
        most = self.settings.instance_concurrency
        return together if most is None else min(together, most)

    @property
    def running_jobs(self) -> int:
        """How many jobs it holds."""
        return len(self._runs)

    @property
    def adrift(self) -> bool:
        """Never: a driver of MongoDB finds out whether its server is there."""
        return False

    @property
    def unattended(self) -> bool:
        """Never, for the same reason."""
        return False

    @property
    def state(self) -> WorkerState:
        """Its own state."""
        return self._state

    def holds(self, job: Any, /) -> bool:
        """Tell whether it still holds the job."""
        return any(run.job.id == job.id for run in self._runs.values())

    def owed(self) -> Actions:
        """Return the calls that settle jobs and have no answer yet."""
        return [
            Call(ticket, pending.command, shielded=True)
            for ticket, pending in self._calls.items()
            if pending.kind in (_Kind.REPORT, _Kind.RELEASE)
        ]

    def active(self, name: str) -> tuple[int, int] | None:
        """Return the concurrency of a name and how many of its jobs run; None: it has no handler."""
        handler = self._handlers.get(name)
        return None if handler is None else (handler.concurrency, handler.running)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that have a handler, in the order of their registration."""
        return tuple(self._handlers)

    # --- requests -----------------------------------------------------------------------------------------------------

    def register(self, name: str, concurrency: int | None, *, replace: bool, at: Instant) -> Actions:
        """Take jobs of this name from now on. Those of a handler that it replaces do not count any more.

        Raises `WorkerRegistrationError`, and what the checks of name and concurrency raise.

        Source: specs/monque.md#sec-8-1
        """
        check_name(name)
        most = self.settings.concurrency if concurrency is None else check_concurrency("concurrency", concurrency)
        if name in self._handlers and not replace:
            raise WorkerRegistrationError(name)
        self._handlers[name] = _Handler(name, most)
        return self._claims(at)

    def start(self, at: Instant, *, paused: bool = False) -> Actions:
        """Begin, or begin again after a stop. `paused` is refused: Monque knows no pause."""
        if paused:
            raise UsageError("paused", paused, "must be False: a scheduler has no pause")
        if self._state in (WorkerState.RUNNING, WorkerState.DRAINING):
            return []
        settings = self.settings
        self._state = WorkerState.RUNNING
        self._drain_until = None
        self._given_up = False
        self._heartbeat_at = at.mono + settings.heartbeat_ms
        self._stream_attempts = 0
        actions: Actions = []
        if settings.change_streams and self._stream is None:
            actions.append(self._watch())
        if settings.retains:
            actions += self._clean(at)
        return actions + self._poll(at)

    def handle(self, event: Event, at: Instant) -> Actions:
        """Return what is to be done after this event."""
        match event:
            case Replied(ticket, reply):
                return self._on_reply(ticket, reply, at)
            case CallFailed():
                return self._on_failure(event, at)
            case JobReturned(number):
                return self._on_returned(number, at)
            case JobRaised():
                return self._on_raised(event, at)
            case WaitCancelled():
                return self._on_stream_cancelled(event.ticket, at)
            case Tick():
                return self._on_time(at)
            case CloseRequested(force):
                return self._on_close(force, at)
            case _:
                # Pauses, and the end of a connection: a driver of MongoDB has many.
                return []

    def handle_all(self, events: Sequence[Event], at: Instant) -> Actions:
        """Return what is to be done after these events."""
        return [action for event in events for action in self.handle(event, at)]

    def signal(self, name: str, next_run_at: Millis | None, at: Instant) -> Actions:
        """A job of this name is due then; None: a slot may be free.

        Source: specs/monque.md#sec-8-3
        """
        if self._state is not WorkerState.RUNNING:
            return []
        if next_run_at is not None and next_run_at > at.wall:
            due = at.mono + max(next_run_at - at.wall + WAKE_AFTER_MS, WAKE_LEAST_MS)
            if len(self._wakes) < MOST_WAKES or due < self._wakes[0]:
                heappush(self._wakes, due)
            return []
        handler = self._handlers.get(name)
        if handler is None:
            return []
        handler.due = True
        handler.again = handler.claiming > 0
        return self._claims(at)

    # --- time ---------------------------------------------------------------------------------------------------------

    def deadline(self) -> Millis | None:
        """Return when the next `Tick` is owed, on the monotonic clock; None: none is."""
        times = [run.resend_at for run in self._runs.values() if run.resend_at is not None]
        if self._state is WorkerState.RUNNING:
            times += [self._poll_at, self._heartbeat_at]
            times += self._wakes[:1]
            if self._stream_at is not None:
                times.append(self._stream_at)
            if self.settings.retains:
                times.append(self._retention_at)
        if self._drain_until is not None:
            times.append(self._drain_until)
        return min(times, default=None)

    def _on_time(self, at: Instant) -> Actions:
        now = at.mono
        actions: Actions = []
        for run in list(self._runs.values()):
            if run.resend_at is not None and run.resend_at <= now:
                run.resend_at = None
                actions.append(self._send(run))
        if self._drain_until is not None and self._drain_until <= now:
            self._drain_until = None
            error = ShutdownTimeoutError(self.settings.shutdown_ms, [run.job for run in self._runs.values()])
            return [*actions, Notify(JobErrored(error)), *self._stop()]
        if self._state is not WorkerState.RUNNING:
            return actions
        if self._heartbeat_at <= now:
            actions += self._beat(at)
        if self.settings.retains and self._retention_at <= now:
            actions += self._clean(at)
        if self._stream_at is not None and self._stream_at <= now:
            self._stream_at = None
            actions.append(self._watch())
        if self._poll_at <= now or (self._wakes and self._wakes[0] <= now):
            actions += self._poll(at)
        return actions

    def _poll(self, at: Instant) -> Actions:
        """Look for due jobs of every name.

        Source: specs/monque.md#sec-8-2
        """
        settings = self.settings
        self._poll_at = at.mono + (settings.safety_poll_ms if self._streams else settings.poll_ms)
        while self._wakes and self._wakes[0] <= at.mono:
            heappop(self._wakes)
        for handler in self._handlers.values():
            handler.due = True
        return self._claims(at)

    def _beat(self, at: Instant) -> Actions:
        """Give the jobs of this scheduler a sign of life: one command for all. Without jobs there is nothing to do."""
        settings = self.settings
        self._heartbeat_at = at.mono + settings.heartbeat_ms
        if not self._runs or any(pending.kind is _Kind.HEARTBEAT for pending in self._calls.values()):
            return []
        return [self._call(_Kind.HEARTBEAT, commands.heartbeat(settings.collection, me=settings.me, now=at.wall))]

    def _clean(self, at: Instant) -> Actions:
        settings = self.settings
        self._retention_at = at.mono + settings.retention_ms
        kept = ((JobStatus.COMPLETED, settings.keep_completed_ms), (JobStatus.FAILED, settings.keep_failed_ms))
        return [
            self._call(_Kind.CLEAN, commands.clean(settings.collection, str(status), now=at.wall, keep_ms=keep_ms))
            for status, keep_ms in kept
            if keep_ms is not None
        ]

    # --- claims -------------------------------------------------------------------------------------------------------

    def _claims(self, at: Instant) -> Actions:
        """Send the claims that there is room for."""
        if self._state is not WorkerState.RUNNING:
            return []
        settings = self.settings
        if self._lost_claim:
            return self._look_for_claims()
        actions: Actions = []
        for handler in self._handlers.values():
            free = handler.concurrency - handler.running - handler.claiming
            if settings.instance_concurrency is not None:
                free = min(free, settings.instance_concurrency - len(self._runs) - self._claiming)
            wanted = min(free, handler.width - handler.claiming)
            for _ in range(wanted if handler.due else 0):
                command = commands.claim(
                    settings.collection, handler.name, me=settings.me, now=at.wall, heartbeat_ms=settings.heartbeat_ms
                )
                handler.claiming += 1
                self._claiming += 1
                actions.append(self._call(_Kind.CLAIM, command, handler=handler))
        return actions

    def _look_for_claims(self) -> Actions:
        """Ask what this scheduler owns, once no claim is under way."""
        if self._claiming or any(pending.kind is _Kind.CLAIMS for pending in self._calls.values()):
            return []
        command = commands.find_claims(self.settings.collection, me=self.settings.me)
        return [self._call(_Kind.CLAIMS, command)]

    def _on_claimed(self, handler: _Handler, job: Job[Any] | None, at: Instant) -> Actions:
        self._unclaim(handler)
        if job is None:
            handler.due, handler.again, handler.width = handler.again, False, 1
            return self._after(at)
        self._taken += 1
        if self._state is not WorkerState.RUNNING:
            return self._release(job, "stopping", at)
        handler.due = True
        handler.width = min(handler.width + 1, handler.concurrency)
        handler.running += 1
        self._numbers += 1
        run = _Run(self._numbers, job, handler, at.mono)
        self._runs[run.number] = run
        actions: Actions = [Notify(JobStarted(job)), RunJob(run.number, job, self.settings.me)]
        return actions + self._claims(at)

    def _unclaim(self, handler: _Handler) -> None:
        handler.claiming -= 1
        self._claiming -= 1

    def _on_owned(self, jobs: Sequence[Job[Any]], at: Instant) -> Actions:
        """Release what a lost reply has claimed."""
        self._lost_claim = False
        held = {run.job.id for run in self._runs.values()}
        held |= {pending.job.id for pending in self._calls.values() if pending.job is not None}
        actions: Actions = []
        for job in jobs:
            if job.id not in held:
                self._taken += 1
                actions += self._release(job, LOST_REPLY, at)
        for handler in self._handlers.values():
            handler.due = True
        return actions + self._after(at)

    def _release(self, job: Job[Any], reason: str, at: Instant) -> Actions:
        settings = self.settings
        command = commands.release(settings.collection, job, me=settings.me, now=at.wall)
        if reason == LOST_REPLY:
            command = commands.of_claim(command, job)
        self._left += 1
        return [Notify(JobReleased(job, reason)), self._call(_Kind.RELEASE, command, job=job)]

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _on_returned(self, number: int, at: Instant) -> Actions:
        run = self._runs[number]
        run.ended = at.mono
        settings, job = self.settings, run.job
        if job.repeat_interval is None:
            run.report = commands.complete(settings.collection, job, me=settings.me, now=at.wall)
            return [self._send(run)]
        try:
            due = next_cron(job.repeat_interval, after=at.wall, zone=self._zone)
        except BullMQError as error:
            # As Monque: the run counts as failed, although its handler succeeded.
            return self._fail(run, str(error), error, 0.5, at)
        run.report = commands.complete_recurring(settings.collection, job, me=settings.me, now=at.wall, next_run_at=due)
        return [self._send(run)]

    def _on_raised(self, event: JobRaised, at: Instant) -> Actions:
        run = self._runs[event.run]
        run.ended = at.mono
        if event.failure.kind is FailureKind.CANCELLED and self._state is not WorkerState.RUNNING:
            self._drop(run)
            return self._release(run.job, "cancelled", at) + self._after(at)
        return self._fail(run, event.failure.message or "", event.exception, event.roll, at)

    def _fail(self, run: _Run, reason: str, error: Any, roll: float, at: Instant) -> Actions:
        settings, job = self.settings, run.job
        reason = clean_text(reason)[:MOST_REASON]
        run.failed, run.error = True, error
        runs = job.fail_count + 1
        if runs >= settings.max_retries:
            run.report = commands.fail(settings.collection, job, me=settings.me, now=at.wall, reason=reason)
        else:
            delay = backoff_delay(runs, base_ms=settings.base_retry_ms, most_ms=settings.max_backoff_ms, roll=roll)
            run.report = commands.retry_later(
                settings.collection, job, me=settings.me, now=at.wall, next_run_at=at.wall + delay, reason=reason
            )
        return [self._send(run)]

    def _send(self, run: _Run) -> Action:
        assert run.report is not None
        run.phase = "reporting"
        report = commands.of_claim(run.report, run.job) if run.sent else run.report
        return self._call(_Kind.REPORT, report, run=run, shielded=True)

    def _on_reported(self, run: _Run, job: Job[Any] | None, at: Instant) -> Actions:
        self._drop(run)
        if job is None:
            self._left += 1
            notice: Any = JobLost(run.job, uncertain=run.sent > 0)
        elif run.failed:
            will_retry = job.status == JobStatus.PENDING
            self._retried += will_retry
            self._failed += not will_retry
            notice = JobFailed(job, run.error, will_retry)
        else:
            self._completed += 1
            notice = JobCompleted(job, run.ended - run.started)
        actions: Actions = [Notify(notice)]
        if job is not None and job.status == JobStatus.PENDING:
            actions += self.signal(job.name, job.next_run_at, at)
        return actions + self._after(at)

    def _on_report_failed(self, run: _Run, error: BullMQError, at: Instant) -> Actions:
        if isinstance(error, TransportError) and not self._given_up:
            run.sent += error.maybe_applied
            run.phase = "waiting"
            run.resend_at = at.mono + min(RESEND_MS * 2 ** min(run.sent, 6), RESEND_MOST_MS)
            return []
        if not run.failed and not self._given_up:
            # As Monque: a success that cannot be stored counts as a failure.
            return self._fail(run, str(error), error, 0.5, at)
        self._drop(run)
        self._left += 1
        return [Notify(JobErrored(error, run.job)), *self._after(at)]

    def _drop(self, run: _Run) -> None:
        del self._runs[run.number]
        run.handler.running -= 1

    def _after(self, at: Instant) -> Actions:
        """A slot is free, or an answer has come: go on, or end."""
        return self._stop_if_done() if self._state is WorkerState.DRAINING else self._claims(at)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _call(
        self,
        kind: _Kind,
        command: Command[Any],
        *,
        handler: _Handler | None = None,
        run: _Run | None = None,
        job: Job[Any] | None = None,
        shielded: bool = False,
    ) -> Call[Command[Any]]:
        self._tickets += 1
        self._calls[self._tickets] = _Pending(kind, command, handler, run, job)
        return Call(self._tickets, command, shielded=shielded or kind is _Kind.RELEASE)

    def _on_reply(self, ticket: int, reply: Any, at: Instant) -> Actions:
        if ticket == self._stream:
            return self._on_changes(reply, at)
        pending = self._calls[ticket]
        try:
            value = pending.command.decode(reply)
        except BullMQError as error:
            return self._failed_call(ticket, error, at)
        del self._calls[ticket]
        if pending.handler is not None:
            return self._on_claimed(pending.handler, value, at)
        if pending.run is not None:
            return self._on_reported(pending.run, value, at)
        return self._on_owned(value, at) if pending.kind is _Kind.CLAIMS else self._after(at)

    def _on_failure(self, event: CallFailed, at: Instant) -> Actions:
        if event.lost:
            error: BullMQError = TransportError(event.message, maybe_applied=event.maybe_applied)
        else:
            error = CommandRefused(event.message, int(event.code) if event.code.isdecimal() else None)
        if event.ticket == self._stream:
            return self._on_stream_failed(error, at)
        return self._failed_call(event.ticket, error, at)

    def _failed_call(self, ticket: int, error: BullMQError, at: Instant) -> Actions:
        pending = self._calls.pop(ticket)
        if pending.run is not None:
            return self._on_report_failed(pending.run, error, at)
        actions: Actions = []
        self._poll_at = min(self._poll_at, at.mono + self.settings.poll_ms)
        if pending.kind is not _Kind.RELEASE:
            # Monque says nothing of a release that failed: stale recovery finds the job.
            actions.append(Notify(JobErrored(error)))
        if pending.handler is not None:
            self._unclaim(pending.handler)
            # Not at once again: the next poll tries.
            pending.handler.due = pending.handler.again = False
            pending.handler.width = 1
        if isinstance(error, TransportError):
            if pending.kind is _Kind.CLAIMS:
                # At the end once is enough: stale recovery finds them.
                self._lost_claim = self._state is not WorkerState.DRAINING
            elif pending.kind is _Kind.RELEASE or (pending.kind is _Kind.CLAIM and error.maybe_applied):
                self._lost_claim = True
        elif pending.kind is _Kind.CLAIMS:
            # To ask again would be refused again, and nothing is claimed meanwhile.
            self._lost_claim = False
        return actions + self._stop_if_done()

    # --- the change stream --------------------------------------------------------------------------------------------

    def _watch(self) -> Action:
        self._tickets += 1
        self._stream = self._tickets
        return Wait(self._tickets, commands.watch(self.settings.collection))

    def _on_changes(self, reply: Any, at: Instant) -> Actions:
        try:
            changes: list[Change] = commands.watch(self.settings.collection).decode(reply)
        except BullMQError as error:
            return self._on_stream_failed(error, at)
        actions: Actions = []
        if not self._streams:
            # Not before the server has answered: one without change streams would seem to have them again and again.
            self._streams = True
            self._stream_attempts = 0
            actions.append(Notify(ChangeStreamConnected()))
        if self._state is not WorkerState.RUNNING:
            return [*actions, *self._on_stream_cancelled(self._stream, at)]
        for change in changes:
            actions += self.signal(change.name, change.next_run_at, at)
        return [*actions, self._watch()]

    def _on_stream_failed(self, error: BullMQError, at: Instant) -> Actions:
        self._stream = None
        self._streams = False
        if self._state is not WorkerState.RUNNING:
            return self._stop_if_done()
        self._poll_at = min(self._poll_at, at.mono + self.settings.poll_ms)
        actions: Actions = [Notify(ChangeStreamError(error))]
        self._stream_attempts += 1
        if self._stream_attempts > STREAM_ATTEMPTS:
            reason = f"Exhausted {STREAM_ATTEMPTS} reconnection attempts: {error}"
            return [*actions, Notify(ChangeStreamFallback(reason))]
        self._stream_at = at.mono + self.settings.stream_retry_ms * 2 ** (self._stream_attempts - 1)
        return actions

    def _on_stream_cancelled(self, ticket: int | None, at: Instant) -> Actions:
        if ticket != self._stream:
            return []
        self._stream = None
        actions: Actions = [Notify(ChangeStreamClosed())] if self._streams else []
        self._streams = False
        if self._state is WorkerState.RUNNING:
            # That of an earlier life.
            self._stream_at = at.mono
        return actions + self._stop_if_done()

    # --- the end ------------------------------------------------------------------------------------------------------

    def _on_close(self, force: bool, at: Instant) -> Actions:
        if self._state is WorkerState.RUNNING:
            self._state = WorkerState.DRAINING
            self._stream_at = None
            self._wakes.clear()
            self._drain_until = at.mono + (0 if force else self.settings.shutdown_ms)
            actions: Actions = [] if self._stream is None else [CancelWait(self._stream)]
            return actions + self._stop_if_done()
        if self._state is WorkerState.DRAINING and force:
            self._drain_until = at.mono
        # What is stopped is asked for nothing but by a client that was closed: no report can be sent any more.
        self._given_up = self._given_up or (self._state is WorkerState.STOPPED and force)
        return []

    def _stop_if_done(self) -> Actions:
        if self._state is not WorkerState.DRAINING:
            return []
        if self._lost_claim:
            return self._look_for_claims()
        return [] if self._runs or self._calls or self._stream is not None else self._stop()

    def _stop(self) -> Actions:
        self._state = WorkerState.STOPPED
        self._drain_until = None
        return [Stopped()]

    # --- seen from outside --------------------------------------------------------------------------------------------

    def snapshot(self, now: Millis = 0) -> WorkerSnapshot:
        """Return the jobs it holds and the events it waits for; `now` is on the monotonic clock."""
        held = [
            HeldJob(
                id=run.job.id,
                name=run.job.name,
                attempt=run.job.fail_count + 1,
                phase=run.phase,
                held_for_ms=max(0, now - run.started),
                renewed_ms_ago=max(0, now - max(run.started, self._heartbeat_at - self.settings.heartbeat_ms)),
                lock_lost=False,
                handler_running=run.phase == "running",
            )
            for run in self._runs.values()
        ]
        words = {WorkerState.RUNNING: "running", WorkerState.DRAINING: "shutting down"}
        deadline = self.deadline()
        return WorkerSnapshot(
            state=words.get(self._state, "stopped"),
            jobs=tuple(each.id for each in held),
            reporting=tuple(each.id for each in held if not each.handler_running),
            fetching=self._claiming > 0,
            listening=self._streams,
            limited_for_ms=0,
            next_due_at=None,
            reconnect_attempts=self._stream_attempts,
            held=tuple(held),
            listening_for_ms=None,
            next_timer_in_ms=None if deadline is None else max(0, deadline - now),
            reconnect_in_ms=None if self._stream_at is None else max(0, self._stream_at - now),
            disconnected_for_ms=None,
            taken=self._taken,
            completed=self._completed,
            failed=self._failed,
            retried=self._retried,
            left=self._left,
        )
