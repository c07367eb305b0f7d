"""Which threads callbacks and backoff strategies have, and how long a close waits for them."""

from __future__ import annotations

import threading
import time

from bullmq_protocol.worker.dispatch import LOOK_MS
from bullmq_sync.driving.threads import WorkerThreads

_CALLBACK_S = 1.0
"""How long a close waits for callbacks and strategies after the shutdown time."""


class Lending:
    """Nothing can stop the user's code on a thread: after a while a close goes without it."""

    def __init__(self, threads: WorkerThreads) -> None:
        self._threads = threads
        # changed under the lock of _threads, and read without it
        self._ends: float | None = None
        # set once
        self._lent: dict[int, str] = {}
        """Threads, and what to call that which has them. Each touches its own entry alone, without the lock, as that is
        once for each callback."""

    def lend(self, what: str) -> str | None:
        """Note that the user's code gets this thread; return what had it before: one callback may ask the worker for
        what calls others."""
        me, lent = threading.get_ident(), self._lent
        outer = lent.get(me)
        lent[me] = what
        return outer

    def take_back(self, outer: str | None) -> None:
        """Note that it has the thread no more."""
        if outer is None:
            del self._lent[threading.get_ident()]
        else:
            self._lent[threading.get_ident()] = outer
        if self._ends is not None:
            with self._threads.lock:
                self._threads.changed.notify_all()

    def limit(self, left_s: float) -> None:
        """Let a close that has waited this long stop waiting, after a moment. The lock is held."""
        ends = time.monotonic() + left_s + _CALLBACK_S
        self._ends = ends if self._ends is None else min(ends, self._ends)

    def left_s(self, now: float) -> float | None:
        """How long the timer may sleep for it. The lock is held."""
        return None if self._ends is None else max(self._ends - now, LOOK_MS / 1000)

    def lasting(self, now: float) -> dict[int, str]:
        """Return which threads the user's code still has where a close waits no longer. The lock is held."""
        ended = self._ends is not None and now >= self._ends
        return dict(self._lent) if ended else {}

    def is_left(self, thread: int | None) -> bool:
        """Whether this thread is one of those."""
        with self._threads.lock:
            return thread in self.lasting(time.monotonic())

    def await_all(self) -> str:
        """Wait for them in the time that a close has; return what to call those that do not return."""
        with self._threads.lock:
            # The thread that closes may still be notifying of it.
            while self._lent and self._ends is not None and time.monotonic() < self._ends:
                self._threads.changed.wait(self._ends - time.monotonic())
            return ", ".join(sorted(set(self._lent.copy().values())))
