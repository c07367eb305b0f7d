"""Notices of a worker as a blocking iterator, with a buffer that never holds the worker up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

from bullmq_protocol.errors import UsageError
from bullmq_protocol.worker.notices import Notice
from bullmq_sync.primitives import Event, Lock, in_each_process


class Notices(Iterator[Notice]):
    """The notices of a worker, the oldest first. `Worker.notices` makes one.

    `dropped` counts the notices that a slow reader has missed.

    Source: specs/05-worker-runtime.md#sec-16

    Examples:
        >>> notices = worker.notices(buffer=100)
        >>> notices.dropped
        0
    """

    def __init__(self, buffer: int, forget: Callable[[Notices], None]) -> None:
        if type(buffer) is not int or buffer < 1:
            raise UsageError("buffer", buffer, "must be a whole number above 0")
        self.dropped = 0
        self._kept: deque[Notice] = deque(maxlen=buffer)
        self._buffer = buffer
        self._forget = forget
        self._closed = False
        in_each_process(self._renew)

    def _renew(self) -> None:
        self._lock = Lock()
        self._ready = Event()

    def put(self, notice: Notice) -> None:
        """Add a notice; the worker does this.

        Args:
            notice: The notice.

        Examples:
            >>> notices = worker.notices()
            >>> notices.put(Drained())
        """
        with self._lock:
            if len(self._kept) == self._buffer:
                self.dropped += 1
            self._kept.append(notice)
            self._ready.set()

    def close(self) -> None:
        """End the iteration after the notices that are kept.

        Examples:
            >>> notices = worker.notices()
            >>> notices.close()
            >>> for notice in notices:
            ...     print(notice)
        """
        self._forget(self)
        with self._lock:
            self._closed = True
            self._ready.set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Notice:
        while True:
            with self._lock:
                if self._kept:
                    return self._kept.popleft()
                if self._closed:
                    raise StopIteration
                self._ready.clear()
            self._ready.wait()
