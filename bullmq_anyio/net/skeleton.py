"""What a connection is before it is connected, and what a subclass says of it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bullmq_anyio.net.closable import Closable
from bullmq_anyio.net.dialling import Attempt
from bullmq_anyio.net.link import Link
from bullmq_anyio.primitives import Lock
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import Closed


class Skeleton(Closable, ABC):
    """A connection that is made at need, and the points where subclasses differ."""

    def __init__(self, address: str, connect_timeout_ms: Millis) -> None:
        self._address = address
        self._connect_timeout_ms = connect_timeout_ms
        self._closed = False
        self._parent: Skeleton | None = None
        # guarded by _lock
        self._children: set[Skeleton] = set()
        self._begin()

    def _begin(self) -> None:
        """Have no connection yet."""
        self._lock = Lock()
        self._link: Link | None = None
        self._attempt: Attempt | None = None

    @abstractmethod
    def stop_connecting(self) -> None:
        """End an attempt to connect that is under way: its callers get `ConnectionLost`. Otherwise do nothing."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close this connection and those made by `dedicated`. Waiting calls raise `Closed`. Idempotent."""

    @abstractmethod
    async def _open(self, attempt: Attempt) -> Link:
        """Connect, log in, check the server. Raises our errors, or `OSError`."""

    def _why_late(self, attempt: Attempt) -> str:
        """Return what an attempt that took too long was waiting for, if there is more to tell."""
        return ""

    def _links(self) -> tuple[Link, ...]:
        """Return the links that are open, and those that were."""
        link = self._link
        return () if link is None else (link,)

    def _use(self, link: Link) -> None:
        """Let callers have a link. The lock is held."""
        self._link = link


class Walk(Closable):
    """A connection whose calls go on for several steps, and are ended by closing it."""

    def __init__(self) -> None:
        self._closed = False

    def _begin(self) -> None:
        self._lock = Lock()

    def _enter(self) -> None:
        """Begin a call."""

    def _leave(self) -> None:
        """End a call."""

    def _check_open(self) -> None:
        """Raise what ends the call."""
        if self._closed:
            raise Closed

    def _wake(self) -> None:
        """End the pauses between steps, if they can be ended."""
