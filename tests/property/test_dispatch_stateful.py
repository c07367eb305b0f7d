"""Random drivers of a dispatcher: no work waits while nobody is on the way, and each outcome goes to the server once.

Hands take single steps in any order, as threads do: each step is what a driver does under its lock, or one wait.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import ConnectionLost
from bullmq_protocol.model.failure import failure_of
from bullmq_protocol.worker.actions import Action, CancelJob, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.dispatch import MOST_DELIVERIES, Delivery, Dispatcher, Introduce, Queued, steps
from bullmq_protocol.worker.events import (
    CloseRequested,
    Event,
    JobRaised,
    JobReturned,
    PauseRequested,
    ResumeRequested,
    Tick,
    WaitCancelled,
)
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.notices import JobActive, JobCompleted, Notice
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.snapshot import WorkerState
from bullmq_protocol.worker.typed import MERGING, CommandCall, CommandWait
from tests.support.machine_bench import NO_JOB, job_reply

KEYS = QueueKeys.of("q")
WALL = 1_700_000_000_000
MOVES, CALLBACK, SERVER, HANDLER = "moves", "callback", "server", "handler"
"""Where a hand stands: between two steps of the driver, in a callback, or waiting for a server or a handler."""
Place = tuple[str, Any]
Hand = Generator[Place, Any, None]
_MOVES: Place = (MOVES, None)


class DriverLife(RuleBasedStateMachine):
    """A driver as that of threads, whose hands are run step by step."""

    one_by_one = True
    kinds: tuple[type[Notice], ...] = (JobActive, JobCompleted)
    """What there are callbacks for."""
    dispatcher: type[Dispatcher[str, Any]] = Dispatcher

    def __init__(self) -> None:
        super().__init__()
        options, _ = WorkerOptions(concurrency=3, stalled_interval=600_000).checked()
        self.machine = WorkerMachine(KEYS, options, "w", batches=True)
        self.dispatch = self.dispatcher(self.machine, merging=MERGING, one_by_one=self.one_by_one)
        self.mono = 1_000
        self.jobs = 0
        self.closed = False
        self.hands: dict[Hand, Place] = {}
        self.wait_cancelled: set[int] = set()
        self.reported: set[int] = set()
        """The outcomes that the server has answered."""
        self.begin(self.carried(self.dispatch.start(self.at())))

    def at(self) -> Instant:
        return Instant(WALL + self.mono, self.mono)

    # --- the driver -------------------------------------------------------------------------------------------------

    def begin(self, hand: Hand) -> None:
        self.hands[hand] = next(hand)

    def move(self, hand: Hand, outcome: Any = None) -> None:
        try:
            self.hands[hand] = hand.send(outcome)
        except StopIteration:
            del self.hands[hand]

    def woken(self) -> Hand:
        yield _MOVES
        self.dispatch.coming = False
        yield from self.work_off()

    def wake(self) -> None:
        if self.dispatch.needs_hand():
            self.begin(self.woken())

    def carried(self, actions: list[Action]) -> Hand:
        yield _MOVES
        call = yield from self.sort(actions)
        if call is not None:
            self.begin(self.carry(call))
        self.wake()

    def carry(self, call: CommandCall | CommandWait) -> Hand:
        yield _MOVES
        yield from self.make(call)
        yield from self.work_off()

    def make(self, call: CommandCall | CommandWait | None) -> Hand:
        while call is not None:
            self.wake()
            yield _MOVES
            outcome = yield SERVER, call
            if isinstance(outcome, WaitCancelled):
                actions = self.dispatch.feed((outcome,), self.at())
            else:
                actions = self.dispatch.answered(call, outcome, 0.5, self.at())
            call = yield from self.sort(actions)

    def sort(self, actions: list[Action]) -> Generator[Place, Any, CommandCall | CommandWait | None]:
        first: CommandCall | CommandWait | None = None
        is_first = True
        for step in steps(actions, merges=True, is_observed=lambda kind: kind in self.kinds):
            match step:
                case Queued():
                    yield _MOVES
                    self.dispatch.put(step)
                    if step.held_up:
                        self.wake()
                case Notify():
                    if is_first:
                        self.wake()
                        is_first = False
                    yield CALLBACK, None
                case CancelJob(number, reason):
                    self.dispatch.call_off(number, reason)
                case CancelWait(ticket):
                    self.wait_cancelled.add(ticket)
                case Introduce() | Stopped():
                    pass
                case _:
                    if first is None:
                        first = step
                    else:
                        self.begin(self.carry(step))
        return first

    def work_off(self) -> Hand:
        while True:
            work = self.dispatch.next()
            if work is None:
                return
            if isinstance(work, RunJob):
                self.dispatch.handling[work.run] = work.job.id
                self.wake()
                event = yield HANDLER, work
                yield _MOVES
                if isinstance(event, JobReturned):
                    del self.dispatch.handling[work.run]
                    self.dispatch.ended(event)
                else:
                    call = yield from self.sort(self.dispatch.over(work.run, event, self.at()))
                    yield from self.make(call)
            else:
                yield from self.deliver()

    def deliver(self) -> Hand:
        yield _MOVES
        if self.dispatch.has_returned:
            first = yield from self.sort(self.dispatch.feed((), self.at()))
            if first is not None:
                self.begin(self.carry(first))
            yield _MOVES
        delivery = self.dispatch.take()
        if delivery is None:
            return
        self.wake()
        outcome = yield SERVER, delivery
        call = yield from self.sort(self.dispatch.delivered(delivery, outcome, 0.5, self.at()))
        yield from self.make(call)

    # --- what happens -----------------------------------------------------------------------------------------------

    def at_place(self, kind: str) -> list[tuple[Hand, Any]]:
        return [(hand, what) for hand, (place, what) in self.hands.items() if place == kind]

    @precondition(lambda self: self.at_place(MOVES))
    @rule(data=st.data())
    def a_hand_moves(self, data: st.DataObject) -> None:
        self.move(data.draw(st.sampled_from(self.at_place(MOVES)))[0])

    @precondition(lambda self: self.at_place(CALLBACK))
    @rule(data=st.data())
    def a_callback_ends(self, data: st.DataObject) -> None:
        self.move(data.draw(st.sampled_from(self.at_place(CALLBACK)))[0])

    @precondition(lambda self: self.at_place(HANDLER))
    @rule(data=st.data(), raises=st.sampled_from((False, False, False, True)))
    def a_handler_ends(self, data: st.DataObject, raises: bool) -> None:
        hand, work = data.draw(st.sampled_from(self.at_place(HANDLER)))
        failure = failure_of(RuntimeError("boom"), stack="stack")
        event: Event = JobRaised(work.run, failure, 0.5) if raises else JobReturned(work.run, "null")
        self.move(hand, event)

    @precondition(lambda self: self.at_place(SERVER))
    @rule(data=st.data(), lost=st.sampled_from((False,) * 9 + (True,)), short=st.booleans(), more=st.booleans())
    def the_server_answers(self, data: st.DataObject, lost: bool, short: bool, more: bool) -> None:
        hand, call = data.draw(st.sampled_from(self.at_place(SERVER)))
        if lost:
            self.move(hand, ConnectionLost("lost", maybe_applied=True))
        elif isinstance(call, Delivery):
            count = 1 if short else len(call.calls)
            for each in call.calls[:count]:
                assert each.ticket not in self.reported, "an outcome is stored once"
                self.reported.add(each.ticket)
            replies = [self.next_job(each.command) if more else 0 for each in call.calls[:count]]
            self.move(hand, replies if len(call.calls) > 1 else replies[0])
        elif isinstance(call, Wait):
            wait_cancelled = call.ticket in self.wait_cancelled
            self.move(hand, WaitCancelled(call.ticket) if wait_cancelled else [b"k", b"m", b"0"] if more else None)
        else:
            self.move(hand, self.reply(call, more=more))

    def next_job(self, command: Any) -> Any:
        if command.args[5] != "1":
            return 0
        self.jobs += 1
        return job_reply(str(self.jobs), opts='{"attempts":2}')

    def reply(self, call: CommandCall, *, more: bool) -> Any:
        match call.command.name:
            case "fetchMany" | "moveToActive":
                count = 3 if call.command.name == "fetchMany" else 1
                self.jobs += 3
                jobs = [job_reply(str(self.jobs - 3 + each), opts='{"attempts":2}') for each in range(count)]
                replies = jobs if more else [NO_JOB]
                return replies if call.command.name == "fetchMany" else replies[0]
            case "moveStalledJobsToWait" | "extendLocks":
                return []
            case _:
                return 0

    @precondition(lambda self: self.machine.deadline() is not None)
    @rule()
    def time_passes(self) -> None:
        deadline = self.machine.deadline()
        assert deadline is not None
        self.mono = max(self.mono, deadline)
        self.begin(self.carried(self.dispatch.feed((Tick(0.5),), self.at())))

    @precondition(lambda self: self.jobs > 6)
    @rule(event=st.sampled_from((PauseRequested(), ResumeRequested(), ResumeRequested())))
    def the_caller_pauses(self, event: Event) -> None:
        self.begin(self.carried(self.dispatch.feed((event,), self.at())))

    @precondition(lambda self: self.jobs > 9 and not self.closed)
    @rule(force=st.booleans())
    def the_caller_closes(self, force: bool) -> None:
        self.closed = True
        self.begin(self.carried(self.dispatch.feed((CloseRequested(force),), self.at())))

    @precondition(lambda self: self.at_place(MOVES))
    @rule()
    def all_hands_come_to_rest(self) -> None:
        while moving := self.at_place(MOVES):
            self.move(moving[0][0])

    # --- what holds -------------------------------------------------------------------------------------------------

    @invariant()
    def no_work_waits_while_nobody_is_on_the_way(self) -> None:
        assert not self.dispatch.has_work or self.at_place(MOVES)

    @invariant()
    def each_outcome_is_in_one_place(self) -> None:
        under_way = [what for _, what in self.at_place(SERVER) if isinstance(what, Delivery)]
        assert len(under_way) <= MOST_DELIVERIES
        tickets = [call.ticket for delivery in under_way for call in delivery.calls]
        assert len(set(tickets)) == len(tickets)

    def teardown(self) -> None:
        """Let everything end: nothing is left, and nobody waits."""
        for _ in range(80):
            if self.machine.state is WorkerState.STOPPED:
                break
            self.at_rest()
            for hand, what in self.at_place(HANDLER):
                self.move(hand, JobReturned(what.run, "null"))
            for hand, _ in self.at_place(CALLBACK):
                self.move(hand)
            self.at_rest()
            if not self.closed:
                self.the_caller_closes_now()
            for hand, what in self.at_place(SERVER):
                self.answered_at_the_end(hand, what)
            self.at_rest()
            if not (self.at_place(SERVER) or self.at_place(CALLBACK)) and self.machine.deadline() is not None:
                self.mono = max(self.mono, self.machine.deadline() or 0)
                self.begin(self.carried(self.dispatch.feed((Tick(0.5),), self.at())))
        assert self.machine.state is WorkerState.STOPPED, self.machine.snapshot()

    def at_rest(self) -> None:
        while moving := self.at_place(MOVES):
            self.move(moving[0][0])

    def the_caller_closes_now(self) -> None:
        self.closed = True
        self.begin(self.carried(self.dispatch.feed((CloseRequested(),), self.at())))

    def answered_at_the_end(self, hand: Hand, what: Any) -> None:
        if isinstance(what, Delivery):
            self.move(hand, [0] * len(what.calls) if len(what.calls) > 1 else 0)
        elif isinstance(what, Wait):
            self.move(hand, WaitCancelled(what.ticket) if what.ticket in self.wait_cancelled else None)
        else:
            self.move(hand, self.reply(what, more=False))


class PatientLife(DriverLife):
    """As on asyncio and trio, where outcomes go before other jobs begin."""

    one_by_one = False


class FewCallbacksLife(DriverLife):
    """Callbacks for jobs that completed alone."""

    kinds = (JobCompleted,)


class _ForgetsToWake(Dispatcher[str, Any]):
    """Wakes nobody for outcomes."""

    def needs_hand(self) -> bool:
        return self.has_ready and super().needs_hand()


class _DeliversTwice(Dispatcher[str, Any]):
    """Takes an outcome to the server again that is under way."""

    def take(self) -> Delivery | None:
        delivery = super().take()
        if delivery is not None:
            self.put(Queued([], [delivery.calls[0]]))
        return delivery


class _DeliversTooMuch(Dispatcher[str, Any]):
    """Counts no deliveries."""

    def take(self) -> Delivery | None:
        delivery = super().take()
        if delivery is not None:
            self.requeue(None)
        return delivery


def _three_jobs(dispatch: type[Dispatcher[str, Any]]) -> None:
    """Three jobs begin, end one after the other, and are reported; what holds is looked at after each step."""

    class Chosen(DriverLife):
        dispatcher = dispatch

    life = Chosen()

    def rest() -> None:
        life.at_rest()
        life.no_work_waits_while_nobody_is_on_the_way()
        life.each_outcome_is_in_one_place()

    rest()
    for hand, call in life.at_place(SERVER):
        if not isinstance(call, Wait):
            life.move(hand, life.reply(call, more=True))
            rest()
    while notified := life.at_place(CALLBACK):
        life.move(notified[0][0])
        rest()
    handlers = life.at_place(HANDLER)
    assert len(handlers) == MOST_DELIVERIES + 1
    for hand, work in handlers:
        life.move(hand, JobReturned(work.run, "null"))
        rest()
    for hand, call in life.at_place(SERVER):
        if isinstance(call, Delivery):
            life.move(hand, [0] * len(call.calls) if len(call.calls) > 1 else 0)
            rest()
    life.teardown()


def test_three_jobs_are_reported() -> None:
    _three_jobs(Dispatcher)


@pytest.mark.parametrize("fault", [_ForgetsToWake, _DeliversTwice, _DeliversTooMuch], ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault: type[Dispatcher[str, Any]]) -> None:
    """No search: what one finds in a given number of lives depends on the modules that are loaded."""
    with pytest.raises(AssertionError):
        _three_jobs(fault)


TestDriverLife = DriverLife.TestCase
TestPatientLife = PatientLife.TestCase
TestFewCallbacksLife = FewCallbacksLife.TestCase
