"""Calls of the user's functions on the thread that reads events."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from bullmq_sync.guard import say
from bullmq_sync.primitives import is_interrupt
from bullmq_sync.subscribers import LEFT_S, RAISED, CallerBase


class Caller(CallerBase):
    """Calls functions of the user's, each call in a copy of the caller's context."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        # as those of the base
        self._kind: str | None = None

    def call(self, function: Callable[[Any], object], event: object) -> None:
        """Call a function. Exceptions are logged. Only Ctrl-C propagates."""
        self._kind = kind = type(event).__name__
        try:
            self._begun().run(function, event)
        except BaseException as error:
            if is_interrupt(error):
                raise
            say(logging.ERROR, RAISED, self._queue, kind, trace=True)
        finally:
            self._kind = self._call = None

    def close(self) -> None:
        """Let the running callback return soon; then it is no longer waited for."""
        self._ends = min(self._ends, time.monotonic() + LEFT_S)

    def is_over(self) -> bool:
        """Whether no further event is to be delivered."""
        return self._ends <= time.monotonic()

    def is_left(self) -> bool:
        """Whether a callback has had its time at a close, and still does not return. Logs it."""
        kind = self._kind
        if kind is None or time.monotonic() < self._ends:
            return False
        message = "the events of %s are closed, and wait no longer for a callback for %s that does not return"
        say(logging.WARNING, message, self._queue, kind)
        return True

    def end(self) -> None:
        """Nothing: no thread is kept for the calls."""
