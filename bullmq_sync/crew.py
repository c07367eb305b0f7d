"""The threads of a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from bullmq_protocol.worker.actions import Call, Listen

_JOIN_S = 5.0


class Crew:
    """Threads that make calls, and without one whatever is there to do. One is made whenever none is idle, so that
    none ever waits for another; the last that became idle is woken first."""

    def __init__(self, work: Callable[[Call | Listen | None], None], name: str) -> None:
        self._work = work
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[_Hand] = []
        self._threads: set[threading.Thread] = set()
        self._handling: set[int] = set()
        self._closed = False
        self._made = 0

    def submit(self, action: Call | Listen | None) -> None:
        with self._lock:
            if self._idle:
                hand = self._idle.pop()
                hand.action = action
                hand.turn.release()
                return
            self._made += 1
            name = f"{self._name} {self._made}"
            # A handler that never ends must not keep the process alive.
            thread = threading.Thread(target=self._loop, args=(_Hand(action),), name=name, daemon=True)
            self._threads.add(thread)
        thread.start()

    def mine(self) -> bool:
        """Whether this is one of its threads."""
        return threading.current_thread() in self._threads

    def handling(self, begins: bool) -> None:
        """Note that the user's code has this thread, or has it no more."""
        (self._handling.add if begins else self._handling.discard)(threading.get_ident())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for hand in idle:
                hand.ends = True
                hand.turn.release()

    def join(self) -> None:
        """Wait for the threads, but for those that the user's code does not give back."""
        end = time.monotonic() + _JOIN_S
        for thread in tuple(self._threads):
            while thread.is_alive() and thread.ident not in self._handling and time.monotonic() < end:
                thread.join(0.05)

    def _loop(self, hand: _Hand) -> None:
        while True:
            self._work(hand.action)
            with self._lock:
                ends = self._closed
                if not ends:
                    self._idle.append(hand)
            if not ends:
                hand.turn.acquire()
            if ends or hand.ends:
                self._threads.discard(threading.current_thread())
                return


class _Hand:
    """What one thread waits for."""

    __slots__ = ("action", "ends", "turn")

    def __init__(self, action: Call | Listen | None) -> None:
        self.action = action
        self.ends = False
        self.turn = threading.Lock()
        self.turn.acquire()
