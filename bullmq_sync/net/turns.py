"""A limited number of callers at a time, in the order in which they come.

A `threading.Semaphore` keeps no order: a thread that ends a call takes its place again before the one that was woken
runs, and with few places some callers wait for seconds.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class InTurn:
    """A context manager that `count` callers may be in at a time. The longest waiting one comes first."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        # guarded by _lock
        self._free = count
        self._waiting: deque[threading.Lock] = deque()
        # on its own

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        with self._lock:
            return len(self._waiting)

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        try:
            mine.acquire()
        except BaseException:
            # By a signal's handler.
            with self._lock:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                else:
                    self._pass_on()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._pass_on()

    def _pass_on(self) -> None:
        """Hand a place on. The lock is held."""
        if self._waiting:
            self._waiting.popleft().release()
        else:
            self._free += 1
