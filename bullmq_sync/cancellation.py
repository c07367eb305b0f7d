"""How a handler in a thread learns that it is to end. (A task is cancelled: `bullmq_anyio` has nothing of the kind.)"""

from __future__ import annotations

import threading


class Cancellation(threading.Event):
    """Set when the worker wants a handler to end; threads cannot be stopped, so the handler must look. See `reason`."""

    reason: str | None = None

    def cancel(self, reason: str) -> None:
        """Set it, saying why. What came first stays the reason."""
        # In one step: a time limit and the worker may do it at once.
        self.__dict__.setdefault("reason", reason)
        self.set()


class Cancellable:
    """A job whose handler can look whether it is to end."""

    _cancelled: Cancellation | None = None

    @property
    def cancelled(self) -> Cancellation:
        """Set when the worker wants the handler to end; see its `reason`."""
        if self._cancelled is not None:
            return self._cancelled
        # Made when it is looked at, by the handler or the worker: only a job in a handler is ever cancelled.
        made: Cancellation = self.__dict__.setdefault("_cancelled", Cancellation())
        return made
