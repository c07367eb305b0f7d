"""Lives of workers in simulated time, against the model of the server: trouble, then quiet, then the close.

A step is one event handled by a machine. Everything follows from the seed. A broken rule is raised as a `Violation`,
whose trace is JSON lines and replays: the same seed gives the same events.

`Life` drives machines alone: what one wants is done at once. `DispatchedLife` drives them as the adapters do, through a
`Dispatcher`, with hands that come late, callbacks that take their time, outcomes that go together, and answers that the
server cuts short.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, Protocol, cast

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.commands.finishing import move_to_delayed
from bullmq_protocol.commands.queues import pause, resume
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_text
from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import ConnectionLost, ServerError
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.model.job import NewJob, prepare
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.testing.model import ServerModel
from bullmq_protocol.worker.actions import Action, Call, CancelJob, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.dispatch import MOST_DELIVERIES, Dispatcher, Introduce, Merging, Queued, steps
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
from bullmq_protocol.worker.notices import JobActive, JobCompleted, LockLost, Notice, WorkerProblem
from bullmq_protocol.worker.options import WorkerOptions, WorkerSettings
from bullmq_protocol.worker.snapshot import WorkerState
from bullmq_protocol.worker.typed import MERGING, CommandCall, CommandWait, JobRun, WorkerAction


class MakeDispatcher(Protocol):
    """Makes a dispatcher: the class itself, or one with a fault."""

    def __call__(self, machine: WorkerMachine, /, *, merging: Merging, one_by_one: bool) -> Dispatcher[JobRun, Any]: ...


class MakeMachine(Protocol):
    """Makes a machine: the class itself, or one with a fault."""

    def __call__(
        self, keys: QueueKeys, settings: WorkerSettings, worker_id: str, /, *, batches: bool
    ) -> WorkerMachine: ...


_FETCHES = ("moveToActive", "fetchMany")
_HOSTILE = (
    *(("opts", text) for text in ("{bad", "null", "[]", '{"attempts":1e16}', '{"attempts":3,"backoff":1e308}')),
    *(("opts", f'{{"{name}":1.7976931348623157e+308}}') for name in ("attempts", "removeOnComplete", "removeOnFail")),
    *(("defa", "\udcff"), ("stacktrace", "[1e300,99999999999999999999]"), ("ats", "9" * 300), ("atm", "-5")),
    *(("rjk", "\udcff"), ("data", "{bad"), ("parent", "7"), ("stc", "-5"), ("deid", "\udcff"), ("name", "")),
)
"""Fields as another program may have stored them."""
EPOCH = 1_700_000_000_000
TROUBLE_MS = 20_000
QUIET_MS = 20_000
PATIENCE_MS = 1_000
DUE_MS = 100
WATCH_MS = 100
REPORT_MS = 10_000
CLOSE_MS = 30_000
BACKLOG = 20
STEP_LIMIT = 20_000


class Violation(AssertionError):
    """An invariant or a bound does not hold; `trace` is JSON lines, a header and one event a line."""

    def __init__(self, rule: str, detail: str, trace: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule
        self.trace = trace


class TraceHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a trace. `dispatched`: of a `DispatchedLife`."""

    seed: int
    steps: int
    violation: str
    dispatched: bool = False


class TraceLine(msgspec.Struct, frozen=True):
    """One event of one worker."""

    worker: str
    wall: Millis
    mono: Millis
    event: Event


class Dice:
    """A small generator of numbers (splitmix64), the same on every Python."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, limit: int) -> int:
        """Return a whole number from 0 to `limit` - 1."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (z ^ (z >> 31)) % limit

    def chance(self, per_mille: int) -> bool:
        return self.below(1000) < per_mille

    def pick(self, *choices: Any) -> Any:
        return choices[self.below(len(choices))]


class _Held:
    """One started run as seen from outside."""

    def __init__(self, job_id: str, now: Millis) -> None:
        self.job_id = job_id
        self.alive = True
        self.lost = False
        self.renewed_at = now
        self.owed_since: Millis | None = None
        self.sending = False
        self.settled = False


class _Noting:
    """A machine that records the events it receives."""

    def __init__(self, machine: WorkerMachine, note: Callable[[Sequence[Event]], None]) -> None:
        self._machine = machine
        self._note = note

    def handle_all(self, events: Sequence[Event], at: Instant) -> list[Action]:
        """Note the events, and handle them."""
        self._note(events)
        return self._machine.handle_all(events, at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)


class Worker:
    """A machine and what its driver holds."""

    def __init__(self, name: str, machine: WorkerMachine, settings: WorkerSettings, *, batches: bool) -> None:
        self.name = name
        self.machine = machine
        self.settings = settings
        self.skew: Millis = 0
        self.batches = batches
        self.returned: list[Event] = []
        """Ended handlers, which the machine receives later, with others."""
        self.calls: dict[int, Command[Any]] = {}
        self.wait: CommandWait | None = None
        self.waiting = False
        self.handlers: dict[int, JobRun] = {}
        self.held: dict[tuple[str, str], _Held] = {}
        self.tick_at: Millis | None = None
        self.room_since: Millis | None = None
        self.paused = False
        self.failed_probes = 0
        self.gave_up = False
        self.closing_since: Millis | None = None
        self.stopped = False


class _World:
    """Time, trouble and the server of one life, and what must hold in it."""

    _dispatched = False

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.steps: int = 0
        self.now: Millis = 0
        self._dice = dice = Dice(seed)
        self._heap: list[tuple[Millis, int, Callable[[], None]]] = []
        self._order = 0
        self._keys = QueueKeys.of("q")
        self._model = ServerModel(self._keys)
        self._trace: list[TraceLine] = []
        self._workers: list[Worker] = []
        self._down = False
        self._crowded_until: Millis = -QUIET_MS
        """Till then the server lets no new connection in; the waits need one each time."""
        self._calm_since: Millis = 0
        self._idle_since: Millis | None = None
        self._faults = dice.pick(0, 3, 20, 80)
        self._limiter = Limiter(max=5, duration=400) if dice.chance(150) else None
        self._drain_ms = dice.pick(500, 2_000, 5_000)

    def _in(self, delay: Millis, act: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self.now + delay, self._order, act))

    def _fail(self, rule: str, detail: str) -> None:
        header = TraceHeader(self.seed, self.steps, f"{rule}: {detail}", self._dispatched)
        trace = b"\n".join([msgspec.json.encode(line) for line in (header, *self._trace)])
        raise Violation(rule, f"{detail} (seed {self.seed}, step {self.steps})", trace.decode() + "\n")

    def _must(self, holds: bool, rule: str, detail: str) -> None:
        if not holds:
            self._fail(rule, detail)

    @property
    def _troubled(self) -> bool:
        return self.now < TROUBLE_MS

    def _unrest(self, lasting: Millis = 0) -> None:
        self._calm_since = max(self._calm_since, self.now + lasting)

    def _fault(self) -> bool:
        return self._troubled and self._dice.chance(self._faults)

    def _at(self, worker: Worker) -> Instant:
        return Instant(EPOCH + self.now + worker.skew, self.now)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def _check_fetch(self, worker: Worker, command: Command[Any]) -> None:
        """See, when a call is decided on, that it brings no job where none may come."""
        name = command.name
        may_fetch = not worker.paused and worker.closing_since is None
        if name in _FETCHES:
            fetches = sum(1 for call in worker.calls.values() if call.name in _FETCHES)
            self._must(not fetches, "at most one fetch is in flight", worker.name)
            self._must(may_fetch, "a paused or draining worker fetches nothing", worker.name)
        elif name in ("moveToFinished", "moveToDelayed"):
            wants = command.args[5] == "1" if name == "moveToFinished" else command.args[7:8] == ("1",)
            self._must(may_fetch or not wants, "a paused or draining worker fetches nothing", worker.name)

    def _check_call(self, worker: Worker, command: Command[Any]) -> None:
        """See, when a call is made, that its job is the worker's to settle, and its locks are to be renewed."""
        name = command.name
        if name == "extendLocks":
            self._check_renewal(worker, command)
        owner = _finishing(command)
        held = None if owner is None else worker.held.get(owner)
        if held is None:
            return
        detail = f"{worker.name}: job {held.job_id} by {name}"
        self._must(not held.lost, "nothing is reported after the lock was lost", detail)
        self._must(not held.sending and not held.settled, "one finishing call for a started job", detail)
        # A worker that closes of itself does so within the event.
        closes = worker.closing_since is not None or worker.machine.state is WorkerState.DRAINING
        over = not held.alive or closes
        self._must(over, "nothing is reported before the handler is over", detail)
        held.sending = True

    def _check_renewal(self, worker: Worker, command: Command[Any]) -> None:
        tokens, ids = _unpacked(command.args[1]), _unpacked(command.args[2])
        owners = zip(ids, tokens, strict=True)
        for held in [worker.held[owner] for owner in owners if owner in worker.held]:
            over = held.sending or held.settled
            self._must(not over, "no lock is renewed once its report is under way", f"{worker.name}: {held.job_id}")
            held.renewed_at = self.now

    def _check_reports(self, worker: Worker) -> None:
        """What ended a good while ago, in calm, is reported."""
        for key, held in list(worker.held.items()):
            if held.owed_since is None:
                continue
            if held.settled or held.lost:
                del worker.held[key]
                continue
            lasting = self.now - max(held.owed_since, self._calm_since)
            self._must(lasting <= REPORT_MS, "every outcome is reported", f"{worker.name}: {key}")

    def _watch(self) -> None:
        self._in(WATCH_MS, self._watch)
        for worker in self._workers:
            if not worker.stopped:
                self._check_upkeep(worker)
        self._check_liveness()

    def _check_upkeep(self, worker: Worker) -> None:
        self._check_reports(worker)
        limit = worker.settings.renew_ms + PATIENCE_MS // 2
        for held in worker.held.values():
            if held.alive and not held.lost and not held.sending and not held.settled:
                age = self.now - max(held.renewed_at, self._calm_since + PATIENCE_MS)
                self._must(age <= limit, "every held lock is renewed in time", f"{worker.name}: {held.job_id}")
        if worker.closing_since is not None and not self._down:
            lasting = self.now - max(worker.closing_since, self._calm_since)
            self._must(lasting < CLOSE_MS, "a close ends", worker.name)

    def _check_liveness(self) -> None:
        model = self._model
        limited = self._limiter is not None
        bound = self._drain_ms + PATIENCE_MS
        free = [worker.room_since for worker in self._workers if worker.room_since is not None]
        ready = bool(model.wait or model.prioritized) and "paused" not in model.meta and not limited
        if not (ready and free):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = self.now
        else:
            idle = self.now - max(self._idle_since, self._calm_since)
            self._must(idle <= bound, "waiting work is picked up", f"idle for {idle} ms")
        if model.delayed and free and not limited and "paused" not in model.meta:
            due = int(model.delayed[0][0] / 4096) - EPOCH
            late = self.now - max(due, min(free), self._calm_since + bound)
            skewed = any(worker.skew for worker in self._workers)
            polled = self.now < self._crowded_until + bound
            self._must(skewed or polled or late <= DUE_MS, "a due delayed job starts", f"{late} ms late")


class Life(_World):
    """One seed: a queue, its producer, some workers, and their trouble."""

    def __init__(self, seed: int, make: MakeMachine = WorkerMachine) -> None:
        super().__init__(seed)
        self.jobs = 0
        self._make = make
        self._named = 0

    def run(self) -> int:
        """Live it to the end; return the number of steps. Raises `Violation`."""
        for _ in range(1 + self._dice.below(3)):
            self._hire()
        self._in(1, self._produce)
        self._in(500, self._disturb)
        self._in(WATCH_MS, self._watch)
        self._in(TROUBLE_MS, self._quiet)
        self._in(TROUBLE_MS + QUIET_MS, self._close_all)
        while any(not worker.stopped for worker in self._workers):
            self.now, _, act = heapq.heappop(self._heap)
            act()
            if self.steps > STEP_LIMIT:
                self._fail("a worker does not spin", f"{self.steps} steps")
        return self.steps

    # --- producer and trouble -----------------------------------------------------------------------------------------

    def _produce(self) -> None:
        if self.now < TROUBLE_MS + QUIET_MS:
            self._in(5 + self._dice.below(self._dice.pick(50, 400, 3_000)), self._produce)
        if len(self._model.wait) + len(self._model.prioritized) < BACKLOG:
            dice = self._dice
            options = JobOptions(
                attempts=1 + dice.below(3),
                backoff=dice.pick(msgspec.UNSET, 100),
                delay=dice.pick(0, 0, 0, 10 + dice.below(3_000)),
                priority=dice.pick(0, 0, 0, 1, 2),
            )
            self.jobs += 1
            job = prepare(self._keys, NewJob("n", None, options), now_ms=EPOCH + self.now)
            stored = self._model.jobs[as_text(self._ask(add_job(self._keys, job)))]
            if dice.chance(150):
                # the last job of a scheduler that was removed, or one that cannot be followed
                stored["rjk"] = "s"
                stored["opts"] = '{"repeat":{"every":1000}}' if dice.chance(800) else "{}"
            if dice.chance(100):
                field, value = dice.pick(*_HOSTILE)
                stored[field] = value

    def _disturb(self) -> None:
        if not self._troubled:
            return
        dice = self._dice
        self._in(200 + dice.below(2_500), self._disturb)
        worker = self._workers[dice.below(len(self._workers))]
        self._unrest()
        match dice.below(10 if self._faults else 6):
            case 0:
                worker.paused = True
                self._tell(worker, PauseRequested())
            case 1 | 2:
                self._resume(worker)
            case 3:
                self._close(worker, force=dice.chance(500))
            case 4:
                self._ask(pause(self._keys))
            case 5:
                self._ask(resume(self._keys))
            case 6:
                worker.skew += dice.pick(-3_600_000, 3_600_000)
            case 7:
                for job_id in self._model.active[:1]:
                    self._model.values.pop(self._keys.lock(job_id), None)
            case 8:
                self._crowded_until = self.now + 10 + dice.below(4_000)
            case _:
                self._outage(10 + dice.below(4_000))

    def _ask(self, command: Command[Any]) -> Any:
        reply = self._model.answer(command, EPOCH + self.now)
        for worker in self._workers:
            if worker.waiting and self._model.marker:
                self._serve(worker)
        return reply

    def _resume(self, worker: Worker) -> None:
        worker.paused = False
        self._tell(worker, ResumeRequested())

    def _close(self, worker: Worker, *, force: bool) -> None:
        if worker.closing_since is None:
            worker.closing_since = self.now
        self._tell(worker, CloseRequested(force))

    def _outage(self, lasting: Millis) -> None:
        self._down = True
        self._unrest(lasting)
        self._in(lasting, self._up)
        for worker in self._workers:
            if worker.waiting and worker.wait is not None:
                worker.waiting = False
                self._in(1, self._lost(worker, worker.wait.ticket, maybe_applied=True))

    def _up(self) -> None:
        self._down = False
        self._unrest()

    def _quiet(self) -> None:
        self._up()
        self._ask(resume(self._keys))
        for worker in self._workers:
            worker.skew = 0
            self._resume(worker)

    def _close_all(self) -> None:
        for worker in self._workers:
            self._close(worker, force=self._dice.chance(300))

    def _hire(self) -> None:
        dice = self._dice
        lock_ms = dice.pick(1_000, 2_000)
        settings, _ = WorkerOptions(
            concurrency=dice.pick(1, 2, 3, 5),
            lock_duration=lock_ms,
            stalled_interval=3_000,
            drain_delay=self._drain_ms / 1000,
            limiter=self._limiter,
            cancel_on_lost_lock=dice.chance(500),
            shutdown_timeout=dice.pick(0, 1_000, 3_000),
            max_reconnect_delay=700,
            max_reconnect_attempts=dice.pick(0, 0, 5),
        ).checked()
        self._named += 1
        name = f"w{self._named}"
        batches = dice.chance(500)
        worker = Worker(name, self._make(self._keys, settings, name, batches=batches), settings, batches=batches)
        self._workers.append(worker)
        self._begin(worker)

    # --- the driver ---------------------------------------------------------------------------------------------------

    def _begin(self, worker: Worker) -> None:
        self._done(worker, worker.machine.start(self._at(worker)))

    def _tell(self, worker: Worker, event: Event) -> None:
        if worker.batches and isinstance(event, JobReturned) and self._dice.chance(500):
            worker.returned.append(event)
            self._in(self._dice.below(3), lambda: self._tell_all(worker))
        else:
            self._tell_all(worker, event)

    def _tell_all(self, worker: Worker, *events: Event) -> None:
        events = (*worker.returned, *events)
        worker.returned.clear()
        if events:
            self.steps += len(events)
            at = self._at(worker)
            self._trace += [TraceLine(worker.name, at.wall, at.mono, event) for event in events]
            self._done(worker, worker.machine.handle_all(events, at))

    def _done(self, worker: Worker, actions: Sequence[WorkerAction]) -> None:
        self._must(not (worker.stopped and actions), "a stopped worker says nothing", f"{worker.name}: {actions}")
        for action in actions:
            match action:
                case Call():
                    self._check_fetch(worker, action.command)
                    self._call(worker, action)
                case Wait():
                    self._wait(worker, action)
                case RunJob():
                    self._hold(worker, action)
                    self._run(worker, action)
                case CancelJob():
                    # a thread cannot be cancelled: it only ends some time
                    self._in(self._dice.pick(1, 300), self._ended(worker, action.run))
                case CancelWait():
                    self._in(1, self._wait_cancelled(worker, action.ticket))
                case Notify(notice):
                    self._noted(worker, notice)
                case _:
                    self._stop(worker, action.error)
        self._look_at(worker)

    def _noted(self, worker: Worker, notice: Notice) -> None:
        match notice:
            case LockLost(job):
                for held in worker.held.values():
                    held.lost = held.lost or held.job_id == job.id
            case WorkerProblem(exception=Exception() as fault):
                self._fail("the machine meets no fault of its own", f"{worker.name}: {fault!r}")
            case _:
                pass

    def _look_at(self, worker: Worker) -> None:
        """Check the invariants after each event of a machine, and set its timer."""
        machine = worker.machine
        if machine.state is WorkerState.DRAINING and worker.closing_since is None:
            # It gave up to reconnect.
            worker.closing_since = self.now
        alive = len(worker.handlers)
        limit = worker.settings.concurrency
        self._must(alive <= limit, "at most `concurrency` handlers are alive", f"{worker.name}: {alive}")
        room = machine.state is WorkerState.RUNNING and machine.running_jobs < limit and alive < limit
        worker.room_since = (self.now if worker.room_since is None else worker.room_since) if room else None
        self._set_timer(worker, machine.deadline())

    def _set_timer(self, worker: Worker, deadline: Millis | None) -> None:
        if deadline is not None and deadline != worker.tick_at:
            worker.tick_at = deadline
            self._in(max(deadline - self.now, 0) + self._dice.below(4), self._ticked(worker, deadline))

    def _ticked(self, worker: Worker, deadline: Millis) -> Callable[[], None]:
        def act() -> None:
            if worker.tick_at == deadline:
                worker.tick_at = None
                self._tell(worker, Tick(self._dice.below(1000) / 1000))

        return act

    def _call(self, worker: Worker, action: CommandCall) -> None:
        command, ticket = action.command, action.ticket
        self._check_call(worker, command)
        worker.calls[ticket] = command
        dice = self._dice
        there, back = 1 + dice.below(3), 1 + dice.below(3)
        if self._down:
            self._in(there, self._lost(worker, ticket, maybe_applied=False))
            return
        kind = dice.below(5) if self._fault() else 5
        if kind == 0:
            self._unrest(there)
            self._in(there, self._lost(worker, ticket, maybe_applied=dice.chance(500)))
            return
        if kind == 1:
            self._unrest(there)
            error = CallFailed(ticket, "OOM no memory", lost=False, code="OOM")
            self._in(there, lambda: self._answer(worker, error))
            return
        if kind == 2:
            back += 50 + dice.below(1_500)
            self._unrest(there + back)

        def arrive() -> None:
            if self._down:
                self._in(1, self._lost(worker, ticket, maybe_applied=True))
                return
            reply = self._ask(command)
            if kind in (3, 4):
                self._unrest(back)
                self._in(back, self._lost(worker, ticket, maybe_applied=True))
            else:
                self._in(back, lambda: self._answer(worker, Replied(ticket, reply)))

        self._in(there, arrive)

    def _lost(self, worker: Worker, ticket: int, *, maybe_applied: bool) -> Callable[[], None]:
        roll = self._dice.below(1000) / 1000
        event = CallFailed(ticket, "connection lost", lost=True, maybe_applied=maybe_applied, roll=roll)
        return lambda: self._answer(worker, event)

    def _answer(self, worker: Worker, event: Replied | CallFailed | WaitCancelled) -> None:
        if worker.wait is not None and worker.wait.ticket == event.ticket:
            worker.wait = None
            worker.waiting = False
        else:
            command = worker.calls.pop(event.ticket)
            self._settle(worker, command, event)
            if command.name == "PING":
                lost = isinstance(event, CallFailed) and event.lost
                worker.failed_probes = worker.failed_probes + 1 if lost else 0
                worker.gave_up = worker.gave_up or 0 < worker.settings.max_reconnect_attempts <= worker.failed_probes
        self._reply_to(worker, event)
        over = worker.stopped or worker.machine.state is WorkerState.DRAINING
        self._must(over or not worker.gave_up, "a worker gives up when it was asked to", worker.name)

    def _reply_to(self, worker: Worker, event: Replied | CallFailed | WaitCancelled) -> None:
        self._tell(worker, event)

    def _settle(self, worker: Worker, command: Command[Any], event: Event) -> None:
        owner = _finishing(command)
        held = None if owner is None else worker.held.get(owner)
        if held is not None:
            held.sending = False
            held.settled = isinstance(event, Replied)

    def _wait(self, worker: Worker, action: CommandWait) -> None:
        self._must(worker.wait is None, "at most one wait is in flight", worker.name)
        worker.wait = action
        if self._down or self.now < self._crowded_until:
            self._in(1, self._lost(worker, action.ticket, maybe_applied=False))
            return
        worker.waiting = True
        block_ms = action.command.block_ms or 0
        self._in(block_ms, self._empty_handed(worker, action.ticket, lambda: Replied(action.ticket, None)))
        if self._model.marker:
            self._serve(worker)

    def _serve(self, worker: Worker) -> None:
        action = worker.wait
        assert action is not None  # it waits
        worker.waiting = False
        reply = self._model.answer(action.command, EPOCH + self.now)
        if self._fault():
            self._unrest(2)
            self._in(2, self._lost(worker, action.ticket, maybe_applied=True))
        else:
            self._in(1 + self._dice.below(3), lambda: self._answer(worker, Replied(action.ticket, reply)))

    def _empty_handed(self, worker: Worker, ticket: int, event: Callable[[], Any]) -> Callable[[], None]:
        def act() -> None:
            if worker.waiting and worker.wait is not None and worker.wait.ticket == ticket:
                self._answer(worker, event())

        return act

    def _wait_cancelled(self, worker: Worker, ticket: int) -> Callable[[], None]:
        return self._empty_handed(worker, ticket, lambda: WaitCancelled(ticket))

    def _hold(self, worker: Worker, action: JobRun) -> None:
        worker.held[action.job.id, action.token] = _Held(action.job.id, self.now)
        self._idle_since = None

    def _run(self, worker: Worker, action: JobRun) -> None:
        worker.handlers[action.run] = action
        dice = self._dice
        lasting = dice.pick(1, 20, 20, 150, 150, 1_200, worker.settings.lock_ms * 3)
        self._in(1 + dice.below(lasting), self._ended(worker, action.run))

    def _ended(self, worker: Worker, run: int) -> Callable[[], None]:
        def act() -> None:
            action = worker.handlers.pop(run, None)
            if action is None:
                return
            held = worker.held[action.job.id, action.token]
            held.alive = False
            held.owed_since = self.now
            kind = self._dice.below(16)
            if kind >= 5:
                self._over(worker, run, JobReturned(run, "1"))
                return
            if kind == 0:
                held.settled = True
                moved = move_to_delayed(
                    self._keys,
                    action.job.id,
                    token=action.token,
                    now=EPOCH + self.now,
                    delay=500,
                    count_attempt=False,
                )
                self._ask(moved)
            failure = (
                Failure(kind=FailureKind.MOVED, message=None, moved_to="delayed"),
                Failure(kind=FailureKind.RATE_LIMIT, message=None),
                Failure(kind=FailureKind.UNRECOVERABLE, message="never"),
                Failure(message="boom"),
                Failure(message="bang"),
            )[kind]
            self._over(worker, run, JobRaised(run, failure, roll=self._dice.below(1000) / 1000))

        return act

    def _over(self, worker: Worker, run: int, event: Event) -> None:
        self._tell(worker, event)

    def _stop(self, worker: Worker, error: str | None) -> None:
        machine = worker.machine
        holds = (
            machine.running_jobs,
            len(worker.calls),
            int(worker.wait is not None),
            int(machine.deadline() is not None),
        )
        self._must(not any(holds), "a stopped worker holds nothing", f"{worker.name}: {holds}")
        self._must(error is None or worker.gave_up, "a worker gives up when it was asked to", f"{worker.name}: {error}")
        if self.now - self._calm_since > REPORT_MS:
            locks = {job_id: self._model.lock_owner(job_id, EPOCH + self.now) for job_id in self._model.active}
            kept = [job_id for job_id, owner in locks.items() if (owner or "").startswith(f"{worker.name}:")]
            self._must(not kept, "a worker that stops in calm leaves no job active", f"{worker.name}: {kept}")
            owed = [held.job_id for held in worker.held.values() if not (held.settled or held.lost)]
            self._must(not owed, "a worker that stops in calm owes nothing", f"{worker.name}: {owed}")
        worker.stopped = True
        self._in(400, lambda: self._tell(worker, Tick(0.5)))
        if self.now < TROUBLE_MS:
            self._hire()


Sleep = Callable[[Callable[[Any], None]], None]
"""What a hand waits for: called with a function that resumes it with an outcome."""
Hand = Generator[Sleep, Any, None]


class _Drive:
    """A dispatcher and what its driver holds."""

    def __init__(self, dispatch: Dispatcher[JobRun, Any], *, one_by_one: bool, kinds: tuple[type[Notice], ...]) -> None:
        self.dispatch = dispatch
        self.one_by_one = one_by_one
        self.kinds = kinds
        self.moving = 0
        """Hands that do not wait: they are within each other's steps, or continue in this turn."""
        self.deliveries = 0
        self.calls: dict[int, Callable[[Any], None]] = {}
        """By ticket, the function that resumes the hand that made the call."""
        self.handlers: dict[int, Callable[[Any], None]] = {}
        """By run, the function that resumes the hand that runs the job."""


class DispatchedLife(Life):
    """A life whose workers have dispatchers, and hands as drivers with threads or with tasks have them.

    The same seed gives other events than in `Life`.
    """

    _dispatched = True

    def __init__(self, seed: int, dispatch: MakeDispatcher = Dispatcher, make: MakeMachine = WorkerMachine) -> None:
        super().__init__(seed, make)
        self._make_dispatcher = dispatch
        self._drives: dict[str, _Drive] = {}

    # --- events of the driver -----------------------------------------------------------------------------------------

    def _begin(self, worker: Worker) -> None:
        def note(events: Sequence[Event]) -> None:
            self.steps += len(events)
            at = self._at(worker)
            self._trace += [TraceLine(worker.name, at.wall, at.mono, event) for event in events]

        one_by_one = self._dice.chance(500)
        noting = cast("WorkerMachine", _Noting(worker.machine, note))
        dispatch = self._make_dispatcher(noting, merging=MERGING, one_by_one=one_by_one)
        kinds = self._dice.pick((), (), (JobCompleted,), (JobActive, JobCompleted))
        drive = _Drive(dispatch, one_by_one=one_by_one, kinds=kinds)
        self._drives[worker.name] = drive
        self._start(worker, drive, dispatch.start(self._at(worker)))

    def _tell(self, worker: Worker, event: Event) -> None:
        drive = self._drives[worker.name]
        self._start(worker, drive, drive.dispatch.feed((event,), self._at(worker)))

    def _reply_to(self, worker: Worker, event: Replied | CallFailed | WaitCancelled) -> None:
        go_on = self._drives[worker.name].calls.pop(event.ticket)
        match event:
            case Replied():
                go_on(event.reply)
            case CallFailed():
                lost = ConnectionLost(event.message, maybe_applied=event.maybe_applied)
                go_on(lost if event.lost else ServerError(event.message))
            case _:
                go_on(event)

    def _over(self, worker: Worker, run: int, event: Event) -> None:
        drive = self._drives[worker.name]
        go_on = drive.handlers.pop(run, None)
        if go_on is not None:
            go_on(event)
            return
        del drive.dispatch.handling[run]
        drive.dispatch.ended(event)
        self._wake(worker, drive)
        self._check_hands(worker, drive)

    # --- hands --------------------------------------------------------------------------------------------------------

    def _go(self, worker: Worker, drive: _Drive, hand: Hand, outcome: Any = None) -> None:
        """Run a hand until it waits."""
        drive.moving += 1
        sleep = next(hand, None) if outcome is None else _sent(hand, outcome)
        drive.moving -= 1
        if sleep is not None:
            sleep(lambda following: self._go(worker, drive, hand, (following,)))
        self._check_hands(worker, drive)

    def _check_hands(self, worker: Worker, drive: _Drive) -> None:
        dispatch = drive.dispatch
        nobody = not (drive.moving or dispatch.coming)
        self._must(not (nobody and dispatch.has_work), "no work waits while nobody is on the way", worker.name)
        detail = f"{worker.name}: {drive.deliveries}"
        self._must(drive.deliveries <= MOST_DELIVERIES, "at most two deliveries are under way", detail)

    def _sleep(self, delay: Millis) -> Sleep:
        return lambda go_on: self._in(delay, lambda: go_on(None))

    def _wake(self, worker: Worker, drive: _Drive) -> None:
        if drive.dispatch.needs_hand():
            self._in(self._dice.below(3), lambda: self._go(worker, drive, self._woken(worker, drive)))

    def _woken(self, worker: Worker, drive: _Drive) -> Hand:
        drive.dispatch.coming = False
        yield from self._work_off(worker, drive)

    def _start(self, worker: Worker, drive: _Drive, actions: list[Action]) -> None:
        def start() -> Hand:
            call = yield from self._sort(worker, drive, actions)
            if call is not None:
                self._go(worker, drive, self._carry(worker, drive, call))
            self._wake(worker, drive)

        self._go(worker, drive, start())

    def _carry(self, worker: Worker, drive: _Drive, call: CommandCall | CommandWait) -> Hand:
        yield from self._follow(worker, drive, call)
        if drive.one_by_one:
            yield from self._work_off(worker, drive)
        else:
            self._wake(worker, drive)

    def _follow(self, worker: Worker, drive: _Drive, call: CommandCall | CommandWait | None) -> Hand:
        """Make a call, and those that follow from its answer."""
        while call is not None:
            self._wake(worker, drive)
            outcome = yield from self._made(worker, drive, call)
            at = self._at(worker)
            if isinstance(outcome, WaitCancelled):
                actions = drive.dispatch.feed((outcome,), at)
            else:
                actions = drive.dispatch.answered(call, outcome, self._dice.below(1000) / 1000, at)
            call = yield from self._sort(worker, drive, actions)

    def _made(self, worker: Worker, drive: _Drive, call: CommandCall | CommandWait) -> Generator[Sleep, Any, Any]:
        def make(go_on: Callable[[Any], None]) -> None:
            drive.calls[call.ticket] = go_on
            if isinstance(call, Wait):
                self._wait(worker, call)
            else:
                self._call(worker, call)

        (outcome,) = yield make
        return outcome

    def _sort(
        self, worker: Worker, drive: _Drive, actions: list[Action]
    ) -> Generator[Sleep, Any, CommandCall | CommandWait | None]:
        """Do what the dispatcher wants done; return the first of its calls."""
        self._see(worker, actions)
        first: CommandCall | CommandWait | None = None
        is_first = True
        held_up = drive.one_by_one
        for step in steps(
            actions, merges=worker.batches, is_observed=lambda kind: kind in drive.kinds, held_up=held_up
        ):
            match step:
                case Queued():
                    drive.dispatch.put(step)
                    if step.held_up:
                        self._wake(worker, drive)
                case Notify():
                    if is_first:
                        self._wake(worker, drive)
                        is_first = False
                    if drive.one_by_one:
                        # Callbacks hold up the thread they are called on.
                        yield self._sleep(self._dice.pick(0, 0, 0, 0, 1, 30))
                case Introduce():
                    pass
                case CancelWait(ticket):
                    self._in(1, self._wait_cancelled(worker, ticket))
                case CancelJob(run, reason):
                    if drive.dispatch.call_off(run, reason) is not None:
                        self._in(self._dice.pick(1, 300), self._ended(worker, run))
                case Stopped(error):
                    left_over = drive.dispatch.has_work or drive.dispatch.has_ready
                    self._must(not left_over, "a stopped worker holds nothing", worker.name)
                    self._stop(worker, error)
                case _:
                    if first is None:
                        first = step
                    else:
                        self._go(worker, drive, self._carry(worker, drive, step))
        return first

    def _see(self, worker: Worker, actions: list[Action]) -> None:
        self._must(not (worker.stopped and actions), "a stopped worker says nothing", f"{worker.name}: {actions}")
        for action in actions:
            if isinstance(action, Notify):
                self._noted(worker, action.notice)
            elif isinstance(action, Call):
                self._check_fetch(worker, action.command)
            elif isinstance(action, RunJob):
                self._hold(worker, action)
        self._look_at(worker)

    def _work_off(self, worker: Worker, drive: _Drive) -> Hand:
        while True:
            work = drive.dispatch.next()
            if work is None:
                return
            if not isinstance(work, RunJob):
                yield from self._deliver(worker, drive)
            elif drive.one_by_one:
                yield from self._handle(worker, drive, work)
            else:
                yield from self._launch(worker, drive, work)

    def _handle(self, worker: Worker, drive: _Drive, work: JobRun) -> Hand:
        """Run a job on this hand, as a thread does."""
        dispatch = drive.dispatch
        dispatch.handling[work.run] = work
        self._wake(worker, drive)
        self._begun(worker, work)
        (event,) = yield lambda go_on: drive.handlers.update({work.run: go_on})
        if isinstance(event, JobReturned) and worker.batches:
            del dispatch.handling[work.run]
            dispatch.ended(event)
        else:
            call = yield from self._sort(worker, drive, dispatch.over(work.run, event, self._at(worker)))
            yield from self._follow(worker, drive, call)

    def _begun(self, worker: Worker, work: JobRun) -> None:
        settled = worker.held[work.job.id, work.token].settled
        self._must(not settled, "a job that was given back does not begin", f"{worker.name}: {work.job.id}")
        self._run(worker, work)

    def _launch(self, worker: Worker, drive: _Drive, first: JobRun) -> Hand:
        """Begin jobs beside this hand, as a task does."""
        dispatch = drive.dispatch
        left = (worker.settings.concurrency + 1) // 2
        work: JobRun | None = first
        dispatch.coming = True
        while work is not None:
            dispatch.handling[work.run] = work
            self._begun(worker, work)
            left -= 1
            work = dispatch.begin() if left else None
        yield self._sleep(0)
        dispatch.coming = False

    def _deliver(self, worker: Worker, drive: _Drive) -> Hand:
        dispatch = drive.dispatch
        if dispatch.handling and not drive.one_by_one:
            # Handlers that end in this turn of the loop come along.
            if dispatch.has_ready:
                self._wake(worker, drive)
            drive.moving += 1
            yield self._sleep(0)
            drive.moving -= 1
        if dispatch.has_returned:
            call = yield from self._sort(worker, drive, dispatch.feed((), self._at(worker)))
            if call is not None:
                self._go(worker, drive, self._carry(worker, drive, call))
        delivery = dispatch.take()
        if delivery is None:
            return
        drive.deliveries += 1
        self._wake(worker, drive)
        if len(delivery.calls) == 1:
            outcome = yield from self._made(worker, drive, delivery.calls[0])
        else:
            (outcome,) = yield lambda go_on: self._send(worker, delivery.calls, go_on)
        drive.deliveries -= 1
        actions = dispatch.delivered(delivery, outcome, self._dice.below(1000) / 1000, self._at(worker))
        call = yield from self._sort(worker, drive, actions)
        yield from self._follow(worker, drive, call)

    # --- several outcomes in one call ---------------------------------------------------------------------------------

    def _send(self, worker: Worker, calls: Sequence[CommandCall], go_on: Callable[[Any], None]) -> None:
        for call in calls:
            self._check_call(worker, call.command)
            self._must(call.ticket not in worker.calls, "one finishing call for a started job", worker.name)
            worker.calls[call.ticket] = call.command
        dice = self._dice
        there, back = 1 + dice.below(3), 1 + dice.below(3)
        lost = ConnectionLost("connection lost", maybe_applied=True)

        def end(outcome: Any) -> Callable[[], None]:
            def act() -> None:
                replies = cast("list[Reply]", outcome) if isinstance(outcome, list) else []
                for place, call in enumerate(calls):
                    answered = place < len(replies) and replies[place] != [_REFUSED]
                    event = Replied(call.ticket, None) if answered else CallFailed(call.ticket, "", lost=True)
                    self._settle(worker, worker.calls.pop(call.ticket), event)
                go_on(outcome)

            return act

        kind = dice.below(6) if self._fault() else 6
        if self._down or kind == 0:
            self._unrest(there)
            self._in(there, end(ConnectionLost("connection lost", maybe_applied=not self._down)))
            return
        if kind == 1:
            self._unrest(there)
            self._in(there, end(ServerError("OOM no memory")))
            return
        if kind == 2:
            back += 50 + dice.below(1_500)
        if kind < 6:
            self._unrest(there + back)
        # It stops early where the jobs it fetched are large.
        count = 1 + dice.below(len(calls)) if dice.chance(300) else len(calls)
        refused = dice.below(count) if kind == 5 else -1

        def arrive() -> None:
            if self._down:
                self._in(1, end(lost))
                return
            replies: list[Reply] = [
                [_REFUSED] if place == refused else self._ask(call.command) for place, call in enumerate(calls[:count])
            ]
            self._in(back, end(lost if kind in (3, 4) else replies))

        self._in(there, arrive)


_REFUSED: Final = b"OOM no memory"


def _sent(hand: Hand, outcome: Any) -> Sleep | None:
    try:
        return hand.send(outcome)
    except StopIteration:
        return None


def simulate(steps: int, *, seed: int = 0, make: MakeMachine = WorkerMachine) -> tuple[int, int, int]:
    """Live one life after the other, from this seed on, until this many steps are done; return steps, lives and jobs.

    Raises `Violation`.
    """
    return _live(steps, seed, lambda each: Life(each, make))


def simulate_dispatched(
    steps: int, *, seed: int = 0, dispatch: MakeDispatcher = Dispatcher, make: MakeMachine = WorkerMachine
) -> tuple[int, int, int]:
    """Live lives as `simulate` does, each worker's machine behind a dispatcher.

    Raises `Violation`.
    """
    return _live(steps, seed, lambda each: DispatchedLife(each, dispatch, make))


def _live(steps: int, seed: int, born: Callable[[int], Life]) -> tuple[int, int, int]:
    done = lives = jobs = 0
    while done < steps:
        life = born(seed + lives)
        done += life.run()
        lives += 1
        jobs += life.jobs
    return done, lives, jobs


def replay(trace: str, make: MakeMachine = WorkerMachine) -> str:
    """Live the life of a trace again; return the trace of its violation, or "" where there is none any more."""
    return replay_dispatched(trace, Dispatcher, make)


def replay_dispatched(trace: str, dispatch: MakeDispatcher, make: MakeMachine = WorkerMachine) -> str:
    """Do what `replay` does, with dispatchers of that kind where the trace is of a life with dispatchers."""
    header = msgspec.json.decode(trace.split("\n", 1)[0], type=TraceHeader)
    life = DispatchedLife(header.seed, dispatch, make) if header.dispatched else Life(header.seed, make)
    try:
        life.run()
    except Violation as violation:
        return violation.trace
    return ""


def _finishing(command: Command[Any]) -> tuple[str, str] | None:
    """Return id and token of the job that this command ends, or None."""
    args = command.args
    match command.name:
        case "moveToFinished":
            return str(args[0]), str(_unpacked(args[7])["token"])
        case "retryJob":
            return str(args[3]), str(args[4])
        case "moveToDelayed":
            return str(args[2]), str(args[3])
        case "moveJobFromActiveToWait":
            return str(args[0]), str(args[1])
        case _:
            return None


def _unpacked(packed: Any) -> Any:
    return msgspec.msgpack.decode(packed)
