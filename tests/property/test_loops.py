"""Drivers of others in simulated time: one that is right lives, and each fault is found."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from bullmq_protocol.common.units import Millis
from bullmq_protocol.testing.loops import Hands, Loop, LoopLife, Machine, simulate_loop
from bullmq_protocol.testing.simulate import Violation
from bullmq_protocol.worker.actions import Action, Call, CancelJob, CancelWait, RunJob, Stopped, Wait
from bullmq_protocol.worker.events import Event, Tick

LIVES = min(max(settings().max_examples // 5, 3), 1_000)


class _Loop:
    """A loop with room for faults."""

    def __init__(self, machine: Machine, hands: Hands) -> None:
        self._machine = machine
        self._hands = hands
        self._actions: deque[Action] = deque(machine.start(hands.now()))

    def run(self) -> Loop:
        while True:
            while self._actions:
                if self.does(self._actions.popleft()):
                    return
            self.takes((yield self.until()))

    def until(self) -> Millis | None:
        return self._machine.deadline()

    def takes(self, event: Event | None) -> None:
        self._actions.extend(self._machine.handle(event or Tick(self._hands.roll()), self._hands.now()))

    def does(self, action: Action) -> bool:
        hands = self._hands
        match action:
            case Call() as call:
                hands.call(call)
            case Wait() as wait:
                hands.wait(wait)
            case CancelWait(ticket):
                hands.cancel_wait(ticket)
            case RunJob() as job:
                hands.run(job)
            case CancelJob(run):
                hands.cancel_job(run)
            case Stopped():
                return True
            case _:
                pass
        return False


def _making(kind: type[_Loop]) -> Callable[[Machine, Hands], Loop]:
    return lambda machine, hands: kind(machine, hands).run()


def test_a_loop_lives() -> None:
    steps, jobs = simulate_loop(_making(_Loop), lives=LIVES)
    assert steps > 100 * LIVES
    assert jobs > 10 * LIVES


def test_lives_begin_with_the_seed() -> None:
    lives = [LoopLife(seed, _making(_Loop)) for seed in (7, 8)]
    steps = sum(life.run() for life in lives)
    assert simulate_loop(_making(_Loop), lives=2, seed=7) == (steps, sum(life.jobs for life in lives))


def test_the_same_seed_gives_the_same_life() -> None:
    def life(seed: int) -> tuple[int, int, Millis]:
        made = LoopLife(seed, _making(_Loop))
        made.run()
        return made.steps, made.jobs, made.now

    assert life(7) == life(7) != life(8)


class _AllAtOnce(_Loop):
    def takes(self, event: Event | None) -> None:
        events = [event or Tick(self._hands.roll())]
        self._actions.extend(self._machine.handle_all(events, self._hands.now()))


def test_a_loop_may_pass_on_several_events() -> None:
    assert simulate_loop(_making(_AllAtOnce), lives=2)[0] > 0


class _NoClock(_Loop):
    """It waits for events alone."""

    def until(self) -> Millis | None:
        return None


class _GoesOn(_Loop):
    def does(self, action: Action) -> bool:
        super().does(action)
        return False


class _LeavesEarly(_Loop):
    calls = 0

    def does(self, action: Action) -> bool:
        self.calls += isinstance(action, Call)
        return self.calls > 20 or super().does(action)


class _Breaks(_Loop):
    def takes(self, event: Event | None) -> None:
        if event is None:
            raise LookupError("no event")
        super().takes(event)


class _Loses(_Loop):
    """Of the calls, it makes not every one."""

    calls = 0

    def does(self, action: Action) -> bool:
        self.calls += isinstance(action, Call)
        return not (isinstance(action, Call) and self.calls % 10 == 0) and super().does(action)


class _Twice(_Loop):
    """It makes a report twice."""

    def does(self, action: Action) -> bool:
        if isinstance(action, Call) and action.command.name == "moveToFinished":
            super().does(action)
        return super().does(action)


class _FetchesTwice(_Loop):
    """It makes a fetch twice."""

    def does(self, action: Action) -> bool:
        if isinstance(action, Call) and action.command.name == "moveToActive":
            super().does(action)
        return super().does(action)


class _ForgetsItsClock(_Loop):
    """After some time it waits for events alone."""

    waits = 0

    def until(self) -> Millis | None:
        self.waits += 1
        return super().until() if self.waits < 20 else None

    def takes(self, event: Event | None) -> None:
        assert event is not None or self.waits < 20, "woken at a moment that it does not wait for any more"
        super().takes(event)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        (_FetchesTwice, "at most one fetch is in flight"),
        (_ForgetsItsClock, "waiting work is picked up"),
        (_NoClock, "waiting work is picked up"),
        (_GoesOn, "a loop ends when its machine has stopped"),
        (_LeavesEarly, "a loop goes on until its machine has stopped"),
        (_Breaks, "a loop raises nothing"),
        (_Loses, "every held lock is renewed in time|waiting work is picked up|a close ends"),
        (_Twice, "one finishing call for a started job"),
    ],
)
def test_a_fault_of_a_loop_is_found(kind: type[_Loop], rule: str) -> None:
    with pytest.raises(Violation) as caught:
        simulate_loop(_making(kind), lives=20)
    header: Any = caught.value.trace.splitlines()[0]
    assert '"violation"' in header
    # Which of its rules it breaks first depends on the life.
    found = list(_broken(kind))
    assert any(re.search(rule, each) for each in found), found
    assert kind is _Breaks or not any("a loop raises nothing" in each for each in found)


def _broken(kind: type[_Loop]) -> Iterator[str]:
    for seed in range(20):
        try:
            LoopLife(seed, _making(kind)).run()
        except Violation as violation:
            yield violation.rule
