"""A time limit for a handler: `job.cancelled` is set when it is over. Nothing can stop a thread."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

from bullmq_protocol.common.units import Millis
from bullmq_protocol.worker.routing import took_too_long
from bullmq_sync.forks import in_child
from bullmq_sync.job import Job

_IDLE_S = 2.0
"""A thread that waits for nothing ends after this time."""

_MOST_GONE = 64


class Alarms:
    """One thread that calls functions when they are due. It is there only while there are some, and a little longer."""

    def __init__(self) -> None:
        self._numbers = count()
        self._renew()
        in_child(self._renew)

    def _renew(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        # guarded by _changed
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._waiting: set[int] = set()
        self._is_served = False

    def set(self, delay_s: float, call: Callable[[], object]) -> int:
        """Have a function called after a while, which must not raise; return the number by which to take it back."""
        number = next(self._numbers)
        at = time.monotonic() + delay_s
        with self._changed:
            if not self._is_served:
                threading.Thread(target=self._serve, name="bullmq time limits", daemon=True).start()
                self._is_served = True
            if len(self._due) > _MOST_GONE + 2 * len(self._waiting):
                # Those that were taken back long before they are due.
                self._due = [each for each in self._due if each[1] in self._waiting]
                heapq.heapify(self._due)
            heapq.heappush(self._due, (at, number, call))
            self._waiting.add(number)
            if self._due[0][1] == number:
                self._changed.notify_all()
        return number

    def take_back(self, number: int) -> None:
        """Do not call it any more."""
        with self._changed:
            self._waiting.discard(number)
            if not self._waiting:
                self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                call = self._next()
            if call is None:
                return
            call()

    def _next(self) -> Callable[[], object] | None:
        """Wait for a function that is due; None: there are none, and this thread is to end. The lock is held."""
        idle_until: float | None = None
        while True:
            now = time.monotonic()
            while self._due and (self._due[0][1] not in self._waiting or self._due[0][0] <= now):
                _, number, call = heapq.heappop(self._due)
                if number in self._waiting:
                    self._waiting.discard(number)
                    return call
            if self._due:
                idle_until = None
                self._changed.wait(self._due[0][0] - now)
                continue
            idle_until = now + _IDLE_S if idle_until is None else idle_until
            if now >= idle_until:
                self._is_served = False
                return None
            self._changed.wait(idle_until - now)


_ALARMS = Alarms()


def within(limit_ms: Millis, handler: Callable[[Job[Any, Any, Any]], Any], job: Job[Any, Any, Any]) -> Any:
    """Return what a handler returns. One that takes longer finds `job.cancelled` set; what it returns or raises then
    decides."""
    alarm = _ALARMS.set(limit_ms / 1000, lambda: job.cancelled.cancel(took_too_long(limit_ms)))
    try:
        return handler(job)
    finally:
        _ALARMS.take_back(alarm)
