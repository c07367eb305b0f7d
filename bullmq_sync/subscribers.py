"""The user's functions by the kind of their argument: notices of a worker, events of a queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from typing import Any

from bullmq_sync.primitives import Lock, in_each_process

RAISED = "events of %s: a callback for %s raised"
LEFT_S = 1.0
"""How long a close waits for a callback for an event that has not ended."""

_part_of: ContextVar[object] = ContextVar("bullmq_sync.callback", default=None)
"""The call that this code is part of."""

Functions = Mapping[type[Any], tuple[Callable[[Any], object], ...]]


class Subscribers:
    """Functions by kind, those of a kind in the order in which they were added."""

    def __init__(self, known: Functions) -> None:
        # replaced as a whole under _lock, and read without it
        self.of_kind: Functions = known
        in_each_process(self._renew)

    def _renew(self) -> None:
        self._lock = Lock()

    def add(self, kind: type[Any], function: Callable[[Any], object]) -> Callable[[], None]:
        """Add a function; return what removes it."""
        with self._lock:
            self.of_kind = {**self.of_kind, kind: (*self.of_kind.get(kind, ()), function)}

        def remove() -> None:
            with self._lock:
                left = list(self.of_kind.get(kind, ()))
                if function in left:
                    left.remove(function)
                self.of_kind = {**self.of_kind, kind: tuple(left)}

        return remove


class CallerBase:
    """What calls the user's functions for events, one at a time. Each attribute is set at once, by the caller or by a
    close, and read by others."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._call: object = None
        self._ends = math.inf

    def _begun(self) -> Context:
        """Note that a call begins, until `_call` is None; return its context."""
        self._call = call = object()
        context = copy_context()
        context.run(_part_of.set, call)
        return context

    def is_calling(self) -> bool:
        """Whether the running code, or the task that started it, is a call that has not ended: no event is read before
        it has."""
        return self._call is not None and _part_of.get() is self._call
