"""The decisions that all drivers of a worker share: which work is next, which outcomes are merged, when to wake a hand.

A driver works with *hands*: threads, or long-lived tasks. The dispatcher stands between them and the machine, and keeps
the work that waits for a hand. Like the machine it waits for nothing, reads no clock, rolls no dice and takes no lock:
a driver with threads holds one lock around each of its methods.

Rules for the driver
--------------------
1. The actions that `feed` and its siblings return go through `steps`, in order and outside the lock: the user's
   callbacks are called there. `Queued` goes to `put`, `Notify` to log and callbacks; each `Call` and `Wait` is made
   immediately, by this hand or another, and `answered` takes its answer.
2. An idle hand asks `next`. For a `RunJob` it runs the handler, which is registered in `handling` meanwhile; for
   `DELIVER` it reports finished handlers to the machine (`feed` without events, if `has_returned`), then takes outcomes
   (`take`), makes the call, and passes the answer to `delivered`.
3. Before a hand waits for a server, for the user's code or for work, it asks `needs_hand`, and if that is True wakes
   another hand, or makes one. The woken hand sets `coming` to False before it asks `next`.

Invariants (tests/property/test_dispatch_stateful.py, and the simulation)
-------------------------------------------------------------------------
- No work waits unless a hand is on its way: about to ask `next` or `needs_hand`, or just woken.
- At most `MOST_DELIVERIES` calls with outcomes are under way.
- Each outcome is in one call at a time; until it is answered it is in the queue or in a call.
- Streams receive notices in the order of events, each before the log and the callbacks.

Source: specs/08-batches.md#sec-1
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, final

import msgspec

from bullmq_protocol.common.reply import Reply
from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ConnectionLost,
    ServerError,
    ServerTooOld,
    TransportError,
    UnexpectedReply,
    UsageError,
)
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.worker.actions import Action, Call, CancelJob, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.events import CallFailed, CloseRequested, ConnectionEnded, Event, JobRaised, Replied
from bullmq_protocol.worker.lifecycle import Paused, Reconnected, Resumed
from bullmq_protocol.worker.snapshot import WorkerSnapshot

MOST_DELIVERIES: Final = 2
"""How many calls with outcomes may be under way: the server works on one while the next one fills."""
LOOK_MS: Final[Millis] = 250
"""How often a worker whose hands are all busy checks whether its connection has ended."""
INTRODUCE_MS: Final[Millis] = 1000
"""How often it tries to open its named connection."""

# No later attempt can fix these, as long as the server has never answered.
_FATAL = (AuthenticationFailed, ServerTooOld, UsageError)
# After these the named connection may be gone, and a worker that is always busy opens no other.
_NAMED: tuple[type, ...] = (Paused, Resumed, Reconnected)


@final
class Queued(msgspec.Struct, frozen=True):
    """Jobs and outcomes to queue for hands. `held_up`: this hand runs callbacks first, before it may take any of
    them."""

    jobs: list[RunJob[Any]]
    outcomes: list[Call[Any]]
    held_up: bool = False


class Introduce(msgspec.Struct, frozen=True):
    """Open the named connection, whose name lists the worker."""


class Deliver(msgspec.Struct, frozen=True):
    """Report finished handlers to the machine, and outcomes to the server."""


INTRODUCE: Final = Introduce()
DELIVER: Final = Deliver()

Step: TypeAlias = Queued | Introduce | Call[Any] | Wait[Any] | CancelWait | CancelJob | Notify[Any] | Stopped


def steps(
    actions: Iterable[Action], *, merges: bool, is_observed: Callable[[type[Any]], bool], held_up: bool = True
) -> list[Step]:
    """Return the driver's steps for these actions, in order.

    A job begins after the callbacks before it, including its own, and does not wait for those after it. `merges`:
    outcomes wait to be merged with others. Notices whose kind is not observed (`is_observed`) are left out. `held_up`:
    other hands continue while this one runs callbacks; otherwise all work is queued at the end.
    """
    observed: dict[type[object], bool] = {}
    jobs: list[RunJob[Any]] = []
    outcomes: list[Call[Any]] = []
    found: list[Step] = []
    for action in actions:
        # No `match`: it would be the most expensive part of this function.
        if type(action) is RunJob:
            jobs.append(action)
        elif type(action) is Notify:
            kind: type[object] = type(action.notice)  # pyright: ignore[reportUnknownVariableType]
            if kind not in observed:
                observed[kind] = is_observed(kind)
                if kind in _NAMED:
                    found.append(INTRODUCE)
            if observed[kind]:
                if held_up and (jobs or outcomes):
                    found.append(Queued(jobs, outcomes, held_up=True))
                    jobs, outcomes = [], []
                found.append(action)
        elif merges and type(action) is Call and action.command.merge is not None:
            outcomes.append(action)
        else:
            found.append(action)
    if jobs or outcomes:
        found.append(Queued(jobs, outcomes))
    return found


class Stream(Protocol):
    """A queue of notices for a reader."""

    def put(self, notice: Any, /) -> object:
        """Keep a notice."""
        ...


class Machine(Protocol):
    """The state machine of a worker, as pure as the dispatcher, as the dispatcher uses it."""

    @property
    def concurrency(self) -> int:
        """How many jobs it runs concurrently."""
        ...

    @property
    def running_jobs(self) -> int:
        """How many jobs it holds."""
        ...

    @property
    def adrift(self) -> bool:
        """Whether it is offline and holds nothing, so that closing need not wait for the server."""
        ...

    @property
    def unattended(self) -> bool:
        """Whether it waits for no answer, so that it would not notice the end of its connection."""
        ...

    def start(self, at: Instant, *, paused: bool = False) -> list[Action]: ...
    def handle(self, event: Event, at: Instant) -> list[Action]: ...
    def handle_all(self, events: Sequence[Event], at: Instant) -> list[Action]: ...
    def holds(self, job: Any, /) -> bool:
        """Tell whether it still holds the job."""
        ...

    def owed(self) -> list[Action]:
        """Return the calls that settle jobs and have no answer yet."""
        ...

    def snapshot(self) -> WorkerSnapshot:
        """Return the jobs it holds and the events it waits for."""
        ...


class Merging(Protocol):
    """How calls of one kind are merged."""

    @property
    def most(self) -> int:
        """How many jobs one call may settle."""
        ...

    def fitting(self, commands: Iterable[Any], /) -> int:
        """Return how many of these, from the first on, fit into one call: at least one, if there is one."""
        ...

    def merged(self, commands: Sequence[Any], /) -> Any:
        """Return the call that does the work of all of these; its `decode` gives one raw reply, or error, for each."""
        ...


H = TypeVar("H")
S = TypeVar("S", bound=Stream)


class RunEnd:
    """Whether a worker is to end, and the error that its `run` then raises: the first one."""

    def __init__(self) -> None:
        self.closed = False
        self.error: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """End because of an error."""
        if self.error is None:
            self.error = error
        self.closed = True

    def stopped(self, error: str | None) -> None:
        """Note the error with which the machine has stopped."""
        if error is not None and self.error is None:
            self.error = ConnectionLost(error, maybe_applied=False)


class Delivery:
    """Outcomes that share one call."""

    __slots__ = ("_command", "_merging", "calls")

    def __init__(self, calls: Sequence[Call[Any]], merging: Merging) -> None:
        self.calls = calls
        self._merging = merging
        self._command: Any = calls[0].command if len(calls) == 1 else None

    def command(self) -> Any:
        """Return the call that reports them: a single outcome keeps its own. Packing several takes a while."""
        if self._command is None:
            self._command = self._merging.merged([call.command for call in self.calls])
        return self._command


class Dispatcher(Generic[H, S]):
    """The machine of a worker, and the work that waits for a hand.

    `merging`: how outcomes are merged. `one_by_one`: a hand runs one job at a time, so that starting the others comes
    before reporting a few outcomes. `handling`: the driver's data about each running job, by the number of its run.
    """

    def __init__(self, machine: Machine, *, merging: Merging, one_by_one: bool) -> None:
        self.machine = machine
        self._merging = merging
        self.ending = RunEnd()
        self.handling: dict[int, H] = {}
        self.streams: tuple[S, ...] = ()
        self.contacted = False
        """The server has answered."""
        self.coming = False
        """A hand is on its way to `next`."""
        self._one_by_one = one_by_one
        self._ready: deque[RunJob[Any]] = deque()
        self._called_off: dict[int, str] = {}
        # Ended handlers that the machine does not know of yet: they are reported together, at the latest before
        # anything else.
        self._returned: list[Event] = []
        self._outcomes: deque[Call[Any]] = deque()
        self._deliveries = 0
        self._look_at: Millis = 0
        self._introduce_at: Millis = 0
        self._listed = False

    # --- the machine ------------------------------------------------------------------------------------------------

    def start(self, at: Instant, *, paused: bool = False) -> list[Action]:
        """Start the machine; return its actions."""
        actions = self.machine.start(at, paused=paused)
        self.publish(actions)
        return actions

    def feed(self, events: Sequence[Event], at: Instant) -> list[Action]:
        """Pass events to the machine, ended handlers first; return its actions."""
        returned = self._returned
        if returned:
            events = [*returned, *events]
        actions = self.machine.handle_all(events, at)
        if returned:
            # Not before: if that raised, they are reported again, and a run that is over ends once.
            returned.clear()
        if self.streams:
            self.publish(actions)
        return actions

    def ask(self, event: Event, at: Instant) -> list[Action]:
        """Pass a request of the user's to the machine, and nothing else: ended handlers are left for the next event,
        because a fault in this one is raised to the user."""
        actions = self.machine.handle(event, at)
        self.publish(actions)
        return actions

    def publish(self, actions: Iterable[Action]) -> None:
        """Put the notices into the streams."""
        for action in actions:
            if type(action) is Notify:
                for stream in self.streams:
                    stream.put(action.notice)

    def answered(
        self, call: Call[Any] | Wait[Any], outcome: Reply | Exception, roll: float, at: Instant
    ) -> list[Action]:
        """Pass the reply to a call, or its exception, to the machine. `roll` as in `CallFailed`."""
        if isinstance(outcome, Exception):
            return self.feed(self._failures((call,), outcome, roll), at)
        self.contacted = True
        return self.feed((Replied(call.ticket, outcome),), at)

    def over(self, number: int, event: Event, at: Instant) -> list[Action]:
        """Report how a handler registered in `handling` ended."""
        del self.handling[number]
        self._returned.append(event)
        return self.feed((), at)

    def _failures(self, calls: Iterable[Call[Any] | Wait[Any]], error: Exception, roll: float) -> list[Event]:
        events: list[Event] = []
        if not isinstance(error, BullMQError):
            # No memory, no socket, no thread: these calls count as lost.
            error = ConnectionLost(f"the call could not be made: {error!r}", maybe_applied=True)
        if isinstance(error, Closed) or (isinstance(error, _FATAL) and not self.contacted):
            # The connection will not come back. The machine drops pending calls as after any loss.
            if not self.ending.closed:
                self.ending.fail(error)
            events.append(CloseRequested(force=True))
        events += [CallFailed.of(call.ticket, error, roll=roll) for call in calls]
        return events

    # --- what waits for a hand --------------------------------------------------------------------------------------

    @property
    def has_returned(self) -> bool:
        """Whether handlers have ended that the machine does not know of."""
        return bool(self._returned)

    @property
    def has_ready(self) -> bool:
        """Whether a job waits for a hand."""
        return bool(self._ready)

    @property
    def has_work(self) -> bool:
        """Whether `next` has something to do."""
        return bool(self._ready or ((self._returned or self._outcomes) and self._deliveries < MOST_DELIVERIES))

    def put(self, queued: Queued) -> None:
        """Queue jobs and outcomes for hands."""
        self._ready += queued.jobs
        self._outcomes += queued.outcomes

    def next(self) -> RunJob[Any] | Deliver | None:
        """Return work for an idle hand; None if there is none."""
        while True:
            waiting = len(self._returned) + len(self._outcomes)
            if waiting and self._deliveries < MOST_DELIVERIES and not (self._ready and self._gathers(waiting)):
                self._deliveries += 1
                return DELIVER
            if not self._ready:
                return None
            if not (self._called_off or self.ending.closed):
                # As in `begin`.
                return self._ready.popleft()
            action = self.begin()
            if action is not None:
                return action

    def _gathers(self, waiting: int) -> bool:
        """Whether this many outcomes should wait for more while there are jobs to begin."""
        return self._one_by_one and waiting * 2 < min(self.machine.concurrency, self._merging.most * 2)

    def begin(self) -> RunJob[Any] | None:
        """Return the next job that is ready and was not called off."""
        ready = self._ready
        while ready:
            action = ready.popleft()
            if self._called_off and action.run in self._called_off:
                self.ended(JobRaised(action.run, called_off(self._called_off.pop(action.run)), 0.5))
            elif not self.ending.closed or self.machine.holds(action.job):
                return action
        return None

    def ended(self, event: Event | None) -> None:
        """Note how a handler ended, in whichever hand; the machine learns of it with the next event."""
        if event is not None:
            self._returned.append(event)

    def call_off(self, number: int, reason: str) -> H | None:
        """Return the driver's data about a job to cancel; None: its handler is over, or will not begin."""
        handling = self.handling.get(number)
        if handling is None:
            # Not begun: it is ready, or among actions whose sorting waits for a callback. By the time that ends the
            # machine may have released the job: it must not begin all the same.
            self._called_off[number] = reason
        return handling

    def needs_hand(self) -> bool:
        """Whether to wake or make a hand: there is work, and none is on its way. From then on, that one is."""
        if self.coming or not (
            self._ready or ((self._returned or self._outcomes) and self._deliveries < MOST_DELIVERIES)
        ):
            return False
        self.coming = True
        return True

    # --- outcomes ---------------------------------------------------------------------------------------------------

    def take(self) -> Delivery | None:
        """Return outcomes to report in one call; None: there are none, and the delivery is over."""
        count = self._merging.fitting(call.command for call in self._outcomes)
        if not count:
            self._deliveries -= 1
            return None
        return Delivery([self._outcomes.popleft() for _ in range(count)], self._merging)

    def delivered(self, delivery: Delivery, outcome: Reply | Exception, roll: float, at: Instant) -> list[Action]:
        """Pass the reply to a delivery, or its exception, to the machine, once for each of its calls. Outcomes that the
        server did not get to return to the queue.

        `roll` as in `CallFailed`.
        """
        self._deliveries -= 1
        calls = delivery.calls
        if isinstance(outcome, Exception):
            return self.feed(self._failures(calls, outcome, roll), at)
        if len(calls) == 1:
            self.contacted = True
            return self.feed((Replied(calls[0].ticket, outcome),), at)
        try:
            replies: list[Reply | ServerError] = delivery.command().decode(outcome)
            if not 0 < len(replies) <= len(calls):
                raise UnexpectedReply("an answer for each outcome", len(replies))
        except BullMQError as error:
            return self.feed(self._failures(calls, error, roll), at)
        self.contacted = True
        self._outcomes.extendleft(reversed(calls[len(replies) :]))
        events: list[Event] = []
        for call, reply in zip(calls, replies, strict=False):
            if isinstance(reply, ServerError):
                events += self._failures((call,), reply, roll)
            else:
                events.append(Replied(call.ticket, reply))
        return self.feed(events, at)

    def requeue(self, delivery: Delivery | None) -> None:
        """Let another hand deliver: this one was cancelled."""
        self._deliveries -= 1
        if delivery is not None:
            self._outcomes.extendleft(reversed(delivery.calls))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing runs, and nothing is on its way."""
        held = self.machine.snapshot()
        return not (held.jobs or held.fetching or held.listening)

    # --- contact ----------------------------------------------------------------------------------------------------

    def unmet(self, error: Exception) -> bool:
        """Judge the exception of the first call; return whether to log a warning: a server that is down may come up.
        An attempt that a close has ended is not reported.

        Raises errors that no later attempt can fix, so that they surface immediately.
        """
        if isinstance(error, Closed):
            if not self.ending.closed:
                raise error
            return False
        if isinstance(error, TransportError) or not isinstance(error, BullMQError):
            return not self.ending.closed
        if isinstance(error, AuthenticationFailed) or not isinstance(error, ServerError):
            raise error
        return False

    @property
    def may_close_offline(self) -> bool:
        """Whether closing need not wait for the server: it is down, or has never answered, and no job is held."""
        return self.machine.adrift or not (self.contacted or self.machine.running_jobs)

    def should_look(self, now: Millis) -> bool:
        """Whether to check if the connection has ended: while no call waits for an answer, nothing else would
        notice."""
        if now < self._look_at or not (self.contacted and self.machine.unattended):
            return False
        self._look_at = now + LOOK_MS
        return True

    def should_introduce(self, now: Millis, *, has_ended: bool) -> bool:
        """Whether to open the named connection again: it was not opened, or has ended. Its loss may go unnoticed: a
        repeated call reconnects.
        """
        if now < self._introduce_at or (self._listed and not has_ended):
            return False
        self._introduce_at = now + INTRODUCE_MS
        return True

    def introducing(self, now: Millis) -> bool:
        """Whether to open the named connection now: a worker that is always busy never waits on it, but should be
        listed too."""
        if self.ending.closed or self.machine.snapshot().listening:
            return False
        self._listed = False
        self._introduce_at = now + INTRODUCE_MS
        return True

    def introduced(self) -> None:
        """Note that the named connection is open."""
        self._listed = True

    # --- the end ----------------------------------------------------------------------------------------------------

    def last_actions(self, at: Instant) -> list[Action]:
        """Return what remains to be done when all hands are gone: calls that settle jobs, and notices."""
        actions = self.machine.owed()
        actions += self.machine.handle_all((*self._returned, CloseRequested(force=True)), at)
        self._returned.clear()
        self.publish(actions)
        return actions

    def abandon(self) -> tuple[list[Any], list[tuple[str, str]]]:
        """Give up: the machine raises on every event. Return its unanswered calls that settle jobs, and id and token of
        the jobs that were ready."""
        calls = [action.command for action in self.machine.owed() if isinstance(action, Call)]
        ready = [(action.job.id, action.token) for action in self._ready]
        self._ready.clear()
        return calls, ready

    def drop_returned(self) -> None:
        """Forget ended handlers: the machine raises on every event, and the jobs are released without it."""
        self._returned.clear()


def called_off(reason: str) -> Failure:
    """Return the failure of a handler that was cancelled."""
    return Failure(kind=FailureKind.CANCELLED, message=reason)


def closed_by_server(roll: float) -> ConnectionEnded:
    """Return the event of a connection on which no call waits, and which the server has closed."""
    return ConnectionEnded("the server closed the connection", roll)
