"""Notices of a worker as an asynchronous iterator, with a buffer that never holds the worker up."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Self

import anyio

from bullmq_protocol.worker.notices import Notice


class Notices(AsyncIterator[Notice]):
    """Notices of a worker, oldest first. `dropped` counts those that a slow reader missed."""

    def __init__(self, buffer: int, forget: Callable[[Notices], None]) -> None:
        self.dropped = 0
        self._kept: deque[Notice] = deque(maxlen=buffer)
        self._buffer = buffer
        self._forget = forget
        self._closed = False
        self._ready: anyio.Event | None = None

    def put(self, notice: Notice) -> None:
        """Add one; the worker does this."""
        if len(self._kept) == self._buffer:
            self.dropped += 1
        self._kept.append(notice)
        self._wake()

    def close(self) -> None:
        """End the iteration after what is kept."""
        self._forget(self)
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        if self._ready is not None:
            self._ready.set()
            self._ready = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice:
        while not self._kept:
            if self._closed:
                raise StopAsyncIteration
            if self._ready is None:
                self._ready = anyio.Event()
            await self._ready.wait()
        return self._kept.popleft()
