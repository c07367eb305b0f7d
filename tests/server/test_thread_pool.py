"""The threads of a worker: none waits for another, none is kept for nothing, and none is owed where there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bullmq_sync import thread_pool as pool_module
from bullmq_sync.thread_pool import ThreadPool, handling

LIMIT_S = 20


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


class Bench:
    """A pool whose threads note what they do, and on whom."""

    def __init__(self) -> None:
        self.by: list[tuple[Any, threading.Thread]] = []
        self.short: list[BaseException] = []
        self.died: list[BaseException] = []
        self.pool = ThreadPool(self.work, "pool", on_short=self.report_short, on_death=self.died.append)

    def work(self, task: Any) -> None:
        if callable(task):
            task()
        self.by.append((task, threading.current_thread()))

    def report_short(self, error: BaseException) -> None:
        # It is called with no lock held.
        assert self.pool.short
        self.short.append(error)

    def do(self, task: Any = None) -> threading.Thread:
        """Have it done, and return who did it, when that one is idle again."""
        done = len(self.by)
        self.pool.submit(task)
        until(lambda: len(self.by) > done and self.pool._idle)
        return self.by[-1][1]

    def hold(self, count: int = 1) -> threading.Event:
        """Keep this many threads busy; return what lets them go."""
        gate, inside = threading.Event(), threading.Semaphore(0)

        def work() -> None:
            inside.release()
            assert gate.wait(LIMIT_S)

        for _ in range(count):
            self.pool.submit(work)
        for _ in range(count):
            assert inside.acquire(timeout=LIMIT_S)
        return gate


@pytest.fixture
def bench() -> Iterator[Bench]:
    before = set(threading.enumerate())
    bench = Bench()
    yield bench
    bench.pool.close()
    bench.pool.join()
    until(lambda: set(threading.enumerate()) <= before)
    assert bench.pool._threads == set()


def refuse(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def start(_: threading.Thread) -> None:
        raise error

    monkeypatch.setattr(threading.Thread, "start", start)


def test_an_idle_thread_is_woken_and_none_is_made(bench: Bench) -> None:
    assert len({bench.do() for _ in range(50)}) == 1


def test_nobody_waits_for_another(bench: Bench) -> None:
    gate = bench.hold(5)
    gate.set()
    until(lambda: len(bench.pool._idle) == 5)
    last = bench.pool._idle[-1]
    assert bench.do() is last


def test_an_idle_thread_ends_after_its_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_IDLE_S", 0.02)
    thread = bench.do()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert bench.pool._idle == []
    assert bench.do() is not thread


class Late:
    """What a thread waits for, which is released in the very moment when the thread has waited long enough."""

    def __init__(self, turn: Any, wake: Callable[[], bool]) -> None:
        self._turn = turn
        self._wake = wake
        self.release = turn.release

    def acquire(self, timeout: float | None = None) -> bool:
        if timeout is None:
            return bool(self._turn.acquire(timeout=LIMIT_S))
        return not self._wake() and bool(self._turn.acquire(timeout=0.02))


def test_a_thread_that_is_woken_as_its_time_ends_does_what_it_was_given(bench: Bench) -> None:
    given: list[str] = []

    def wake() -> bool:
        if given:
            return False
        given.append("late")
        bench.pool.submit("late")
        return True

    thread = bench.do()
    hand: Any = thread
    hand.turn = Late(hand.turn, wake)
    bench.pool.submit("one")
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert [(task, by is thread) for task, by in bench.by[1:]] == [("one", True), ("late", True)]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError(), OSError(11, "again")])
def test_what_finds_no_thread_waits_for_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    # Each waits for the others.
    together = threading.Barrier(3, timeout=LIMIT_S)
    with monkeypatch.context() as patch:
        refuse(patch, error)
        for _ in range(3):
            bench.pool.submit(lambda: together.wait() and None)
        bench.pool.retry()
        assert (bench.short, bench.by, bench.pool.short) == ([error], [], True)
    bench.pool.retry()
    until(lambda: len(bench.by) == 3)
    bench.pool.retry()
    assert bench.pool.short is False
    # Another shortage is reported again.
    gate = threading.Event()
    until(lambda: len(bench.pool._idle) == len(bench.pool._threads))
    for _ in tuple(bench.pool._idle):
        bench.pool.submit(lambda: gate.wait(LIMIT_S))
    with monkeypatch.context() as patch:
        refuse(patch, error)
        bench.pool.submit("d")
    assert bench.short == [error, error]
    gate.set()
    until(lambda: "d" in [task for task, _ in bench.by])


def test_one_thread_is_tried_for_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system gives none, the others are not asked for."""
    tries: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        tries.append(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        for _ in range(5):
            bench.pool.submit("x")
        tries.clear()
        bench.pool.retry()
        assert len(tries) == 1
    bench.pool.retry()
    until(lambda: len(bench.by) == 5)


def test_who_is_free_takes_what_waits_for_a_thread(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = bench.hold()
    with monkeypatch.context() as patch:
        refuse(patch, RuntimeError("can't start new thread"))
        bench.pool.submit("first")
        bench.pool.submit("second")
        gate.set()
        until(lambda: len(bench.by) == 3)
    assert [task for task, _ in bench.by[1:]] == ["first", "second"]
    assert len({thread for _, thread in bench.by}) == 1


def test_a_close_ends_idle_threads_at_once_and_others_when_they_are_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than a test may take.
    monkeypatch.setattr(pool_module, "_IDLE_S", 600.0)
    gate = bench.hold(2)
    bench.do()
    bench.pool.close()
    gate.set()
    bench.pool.join()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pool ")]
    # What a closed pool is given is done all the same, and its thread kept by nobody.
    bench.pool.submit("late")
    until(lambda: bench.by[-1][0] == "late" and not bench.pool._threads)


def test_an_idle_thread_of_a_closed_pool_does_nothing(bench: Bench) -> None:
    bench.do("one")
    bench.pool.close()
    bench.pool.join()
    assert [task for task, _ in bench.by] == ["one"]


@pytest.mark.parametrize("handles", [False, True])
def test_a_join_waits_for_all_but_the_users_code(bench: Bench, monkeypatch: pytest.MonkeyPatch, handles: bool) -> None:
    monkeypatch.setattr(pool_module, "_JOIN_S", LIMIT_S)
    gate, inside = threading.Event(), threading.Event()
    ended: list[str] = []

    def hold() -> None:
        handling(True)
        if not handles:
            handling(False)
        inside.set()
        assert gate.wait(LIMIT_S)
        ended.append("work")

    bench.pool.submit(hold)
    assert inside.wait(LIMIT_S)
    bench.pool.close()
    joining = threading.Thread(target=lambda: (bench.pool.join(), ended.append("join")))
    joining.start()
    if handles:
        joining.join(LIMIT_S)
    gate.set()
    joining.join(LIMIT_S)
    until(lambda: len(ended) == 2)
    assert ended == (["join", "work"] if handles else ["work", "join"])


def test_a_join_does_not_wait_for_ever(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_JOIN_S", 0.02)
    gate = bench.hold()
    bench.pool.close()
    bench.pool.join()
    assert bench.by == []
    gate.set()


def test_what_work_raises_ends_its_thread_and_is_reported(bench: Bench) -> None:
    fault = SystemExit(3)

    def fail() -> None:
        raise fault

    bench.pool.submit(fail)
    until(lambda: bench.died and not bench.pool._threads)
    assert bench.died == [fault]
    bench.do("another")
    assert [task for task, _ in bench.by] == ["another"]


def test_a_pool_knows_its_threads(bench: Bench) -> None:
    other = ThreadPool(bench.work, "other", on_short=bench.report_short, on_death=bench.died.append)
    found: list[tuple[bool, bool]] = []
    bench.do(lambda: found.append((bench.pool.mine(), other.mine())))
    assert found == [(True, False)]
    assert bench.pool.mine() is False
