"""Time limits of threads, in simulated time: when alarms come, what wakes their thread, and when it ends."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bullmq_protocol import JobRecord, QueueKeys
from bullmq_protocol.testing.scripted import ScriptedTransport
from bullmq_sync import Job, time_limit
from bullmq_sync.time_limit import Alarms


class World:
    """A clock that goes on where somebody waits, and threads that do not run by themselves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.waits: list[float] = []
        self.woken = 0
        self.threads: list[dict[str, Any]] = []
        self.while_waiting: Callable[[], object] | None = None

    def monotonic(self) -> float:
        return self.now

    # --- a condition

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

    def wait(self, timeout: float) -> None:
        self.waits.append(round(timeout, 6))
        if self.while_waiting is not None:
            act, self.while_waiting = self.while_waiting, None
            self.now += timeout / 2
            act()
        else:
            self.now += timeout

    def notify_all(self) -> None:
        self.woken += 1

    # --- a thread

    def thread(self, **options: Any) -> World:
        self.threads.append(options)
        return self

    def start(self) -> None: ...


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(time_limit, "time", world)
    simulated = SimpleNamespace(Thread=world.thread, Condition=lambda _: world, Lock=threading.Lock)
    monkeypatch.setattr(time_limit, "threading", simulated)
    return world


@pytest.fixture
def alarms(world: World) -> Alarms:
    return Alarms()


def serve(world: World, alarms: Alarms) -> list[tuple[str, float]]:
    """Run the life of the thread to its end; return what was called, and when."""
    called: list[tuple[str, float]] = []
    next_one = alarms._next

    def noted() -> Callable[[], object] | None:
        call: Any = next_one()
        return None if call is None else lambda: called.append((call(), round(world.now - 1_000, 6)))

    alarms._next = noted  # type: ignore[method-assign]
    alarms._serve()
    alarms._next = next_one  # type: ignore[method-assign]
    return called


def test_alarms_come_when_they_are_due(world: World, alarms: Alarms) -> None:
    for name, delay in (("c", 30.0), ("a", 10.0), ("at once", 0.0), ("b", 20.0)):
        alarms.set(delay, lambda name=name: name)  # type: ignore[misc]
    assert serve(world, alarms) == [("at once", 0), ("a", 10), ("b", 20), ("c", 30)]
    # It waits for each, and then a while for more.
    assert world.waits == [10, 10, 10, 2]
    assert not alarms._due and not alarms._waiting


def test_one_thread_serves_them_and_another_one_after_its_end(world: World, alarms: Alarms) -> None:
    alarms.set(1, str)
    alarms.set(2, str)
    assert [(each["name"], each["daemon"]) for each in world.threads] == [("bullmq time limits", True)]
    assert world.threads[0]["target"] == alarms._serve
    assert len(serve(world, alarms)) == 2
    alarms.set(1, str)
    assert len(world.threads) == 2


def test_what_is_taken_back_does_not_come(world: World, alarms: Alarms) -> None:
    first = alarms.set(10, lambda: "first")
    alarms.set(20, lambda: "second")
    third = alarms.set(30, lambda: "third")
    alarms.take_back(first)
    alarms.take_back(third)
    alarms.take_back(third)
    assert serve(world, alarms) == [("second", 20)]
    # Nothing is left to wait for: what was taken back is not waited for.
    assert world.waits == [20, 2]


def test_the_thread_is_woken_where_that_changes_what_it_waits_for(world: World, alarms: Alarms) -> None:
    late = alarms.set(20, str)
    assert world.woken == 1
    later = alarms.set(30, str)
    assert world.woken == 1
    soon = alarms.set(10, str)
    assert world.woken == 2
    # The thread finds out by itself, unless there is nothing left.
    for each in (soon, late):
        alarms.take_back(each)
    assert world.woken == 2
    alarms.take_back(later)
    assert world.woken == 3


def test_an_earlier_alarm_shortens_the_wait(world: World, alarms: Alarms) -> None:
    alarms.set(20, lambda: "late")
    world.while_waiting = lambda: alarms.set(1, lambda: "soon")
    assert serve(world, alarms) == [("soon", 11), ("late", 20)]
    assert world.waits == [20, 1, 9, 2]


def test_the_thread_ends_when_nothing_came_for_a_while(world: World, alarms: Alarms) -> None:
    gone = alarms.set(20, str)
    world.while_waiting = lambda: alarms.take_back(gone)
    assert serve(world, alarms) == []
    # It is woken at 10, and waits its time from there, however often it is woken.
    assert world.waits == [20, 2]
    alarms.take_back(alarms.set(20, str))
    world.waits.clear()
    world.while_waiting = lambda: None
    assert serve(world, alarms) == []
    assert world.waits == [2, 1]


def test_what_came_meanwhile_begins_the_while_anew(world: World, alarms: Alarms) -> None:
    alarms.take_back(alarms.set(20, str))

    def set_and_take_back() -> None:
        number = alarms.set(20, str)
        world.while_waiting = lambda: alarms.take_back(number)

    world.while_waiting = set_and_take_back
    assert serve(world, alarms) == []
    # Half of its time is over when the alarm is set, all of it when that is taken back.
    assert world.waits == [2, 20, 2]


def test_those_taken_back_are_forgotten_when_there_are_many(alarms: Alarms) -> None:
    waiting = [alarms.set(1_000, str) for _ in range(10)]
    for number in range(74):
        alarms.take_back(alarms.set(2_000, str))
        assert len(alarms._due) == 11 + number
    alarms.take_back(alarms.set(2_000, str))
    assert len(alarms._due) == 85
    waiting.append(alarms.set(2_000, str))
    assert len(alarms._due) == 11
    assert sorted(each[1] for each in alarms._due) == waiting


def test_order_holds_when_many_are_forgotten(world: World, alarms: Alarms) -> None:
    # In the heap 2 and 3 are below 1, and 10 is before it: without 0 and 1 it is none.
    numbers = [alarms.set(delay, lambda delay=delay: str(delay)) for delay in (0, 10, 1, 11, 12, 2, 3)]  # type: ignore[misc]
    for each in (numbers[0], numbers[2], *[alarms.set(1_000, str) for _ in range(80)]):
        alarms.take_back(each)
    alarms.set(20, lambda: "20")
    assert len(alarms._due) == 6
    assert serve(world, alarms) == [(str(delay), delay) for delay in (2, 3, 10, 11, 12, 20)]


class Recorded(Alarms):
    """Alarms that come when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[int, tuple[float, Callable[[], object]]] = {}
        self.taken_back: list[int] = []
        self._next_number = itertools.count(7)

    def set(self, delay_s: float, call: Callable[[], object]) -> int:
        number = next(self._next_number)
        self.calls[number] = delay_s, call
        return number

    def take_back(self, number: int) -> None:
        self.taken_back.append(number)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    recorded = Recorded()
    monkeypatch.setattr(time_limit, "_ALARMS", recorded)
    return recorded


@pytest.fixture
def job() -> Job[Any]:
    return Job(JobRecord.from_fields("1", {}), QueueKeys.of("q"), ScriptedTransport([]))


def test_a_handler_learns_that_its_time_is_over(recorded: Recorded, job: Job[Any]) -> None:
    def handler(given: Job[Any]) -> str:
        assert given is job
        [(delay_s, call)] = recorded.calls.values()
        assert delay_s == 1.5
        assert not given.cancelled.is_set()
        call()
        assert given.cancelled.is_set()
        return given.cancelled.reason or ""

    assert time_limit.within(1500, handler, job) == "the handler took longer than 1500 ms"
    assert recorded.taken_back == [7]


def test_the_alarm_is_taken_back_whatever_the_handler_does(recorded: Recorded, job: Job[Any]) -> None:
    def handler(_: Job[Any]) -> None:
        assert not recorded.taken_back
        raise LookupError("its own")

    with pytest.raises(LookupError, match="its own"):
        time_limit.within(10, handler, job)
    assert recorded.taken_back == [7]


def test_the_alarms_of_the_library_have_a_thread() -> None:
    came = threading.Event()
    time_limit._ALARMS.set(0, came.set)
    assert came.wait(60)
