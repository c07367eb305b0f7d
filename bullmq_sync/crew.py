"""The threads of a worker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from bullmq_protocol.worker.actions import Call, Listen

_JOIN_S = 5.0


class Crew:
    """Threads that make calls, and without one whatever is there to do. One is made whenever none is idle, so that
    none ever waits for another."""

    def __init__(self, work: Callable[[Call | Listen | None], None], name: str) -> None:
        self._work = work
        self._name = name
        self._wake = threading.Condition()
        self._actions: deque[Call | Listen | None] = deque()
        self._idle = 0
        self._threads: set[threading.Thread] = set()
        self._handling: set[threading.Thread] = set()
        self._closed = False
        self._made = 0

    def submit(self, action: Call | Listen | None) -> None:
        with self._wake:
            self._actions.append(action)
            if self._idle >= len(self._actions):
                self._wake.notify()
                return
            self._made += 1
            # A handler that never ends must not keep the process alive.
            thread = threading.Thread(target=self._loop, name=f"{self._name} {self._made}", daemon=True)
            self._threads.add(thread)
        thread.start()

    def mine(self) -> bool:
        """Whether this is one of its threads."""
        return threading.current_thread() in self._threads

    def handling(self, begins: bool) -> None:
        """Note that the user's code has this thread, or has it no more."""
        (self._handling.add if begins else self._handling.discard)(threading.current_thread())

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def join(self) -> None:
        """Wait for the threads, but for those that the user's code does not give back."""
        end = time.monotonic() + _JOIN_S
        for thread in tuple(self._threads):
            while thread.is_alive() and thread not in self._handling and time.monotonic() < end:
                thread.join(0.05)

    def _loop(self) -> None:
        while True:
            with self._wake:
                self._idle += 1
                while not self._actions and not self._closed:
                    self._wake.wait()
                self._idle -= 1
                if not self._actions:
                    self._threads.discard(threading.current_thread())
                    return
                action = self._actions.popleft()
            self._work(action)
