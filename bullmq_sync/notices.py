"""Notices of a worker as an iterator, with a buffer that never holds the worker up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

from bullmq_protocol.worker.notices import Notice


class Notices(Iterator[Notice]):
    """Notices of a worker, oldest first. `dropped` counts those that a slow reader missed."""

    def __init__(self, buffer: int, forget: Callable[[Notices], None]) -> None:
        self.dropped = 0
        self._kept: deque[Notice] = deque(maxlen=buffer)
        self._buffer = buffer
        self._forget = forget
        self._closed = False
        self._ready = threading.Condition()

    def put(self, notice: Notice) -> None:
        """Add one; the worker does this."""
        with self._ready:
            if len(self._kept) == self._buffer:
                self.dropped += 1
            self._kept.append(notice)
            self._ready.notify()

    def close(self) -> None:
        """End the iteration after what is kept."""
        self._forget(self)
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    def _forked(self) -> None:
        """In the child of a fork: whoever tells is in the parent."""
        self._ready = threading.Condition()
        self._closed = True

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Notice:
        with self._ready:
            self._ready.wait_for(lambda: self._kept or self._closed)
            if not self._kept:
                raise StopIteration
            return self._kept.popleft()
