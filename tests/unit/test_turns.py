"""Callers of a client that takes a few calls at a time: none waits while others come again and again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from bullmq_sync.net.turns import InTurn


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        os.sched_yield()


def test_who_waits_comes_before_who_was_in() -> None:
    turns, order = InTurn(1), list[str]()

    def other() -> None:
        with turns:
            order.append("other")

    thread = threading.Thread(target=other)
    with turns:
        thread.start()
        until(lambda: turns.waiting == 1)
    # A semaphore would let this caller in at once, as the thread has hardly woken.
    with turns:
        order.append("again")
    thread.join()
    assert order == ["other", "again"]


def test_no_more_at_a_time_than_the_count() -> None:
    turns, ran = InTurn(2), threading.Event()

    def third() -> None:
        with turns:
            ran.set()

    thread = threading.Thread(target=third)
    with turns:
        with turns:
            thread.start()
            until(lambda: turns.waiting == 1)
            assert not ran.is_set()
        thread.join()
        assert ran.is_set()
    with turns, turns:
        assert turns.waiting == 0


class Interrupted:
    """A lock whose second `acquire`, by which a caller waits, is interrupted. Before that it may be released."""

    def __init__(self, *, released: bool) -> None:
        self._inner = threading.Lock()
        self._released = released
        self.turns: InTurn | None = None

    def acquire(self) -> bool:
        if self._inner.locked():
            if self._released and self.turns is not None:
                self.turns.__exit__(None, None, None)
            raise KeyboardInterrupt
        return self._inner.acquire()

    def release(self) -> None:
        self._inner.release()


@pytest.mark.parametrize("released", [False, True])
def test_a_caller_that_is_interrupted_leaves_its_place_to_others(
    monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    turns, lock = InTurn(1), Interrupted(released=released)
    lock.turns = turns
    turns.__enter__()
    with monkeypatch.context() as patch:
        patch.setattr("bullmq_sync.net.turns.threading", SimpleNamespace(Lock=lambda: lock))
        with pytest.raises(KeyboardInterrupt):
            turns.__enter__()
    if not released:
        turns.__exit__(None, None, None)
    assert turns.waiting == 0
    with turns:
        assert turns.waiting == 0
