"""What an adapter needs from a connection, in both colours. Any object of this shape will do.

A transport raises only `TransportError` (the connection), `ServerError` (an error reply to a single command) and, while
connecting, `AuthenticationFailed` or `ServerTooOld`. It repeats a command by itself only when nothing was sent, or
when the
command's repeat class is SAFE; then once.
"""

from __future__ import annotations

from typing import Any, Protocol

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.units import Instant


class AsyncTransport(Protocol):
    """A connection for asyncio or trio. Safe to share between tasks of one event loop."""

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of errors.

        Cancelling the caller never corrupts the connection: the reply, when it comes, is dropped. On a dedicated
        transport
        it drops the connection, which interrupts a blocking command.
        """
        ...

    def dedicated(self, *, client_name: str | None = None) -> AsyncTransport:
        """Return a transport with a connection of its own, for blocking commands; made at first use, named so each
        time."""
        ...

    async def aclose(self) -> None:
        """Close the connections this transport opened. Waiting calls raise `Closed`."""
        ...


class Transport(Protocol):
    """A blocking connection. Safe to share between threads."""

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of
        errors."""
        ...

    def dedicated(self, *, client_name: str | None = None) -> InterruptibleTransport:
        """Return a transport with a connection of its own, for blocking commands; made at first use, named so each
        time."""
        ...

    def close(self) -> None:
        """Close the connections this transport opened. Waiting calls raise `Closed`."""
        ...


class InterruptibleTransport(Transport, Protocol):
    """A dedicated blocking connection that another thread can wake."""

    def interrupt(self) -> None:
        """Make a `perform` that is blocked in another thread raise `ConnectionLost` at once; otherwise do nothing."""
        ...


class Clock(Protocol):
    """Read both clocks. Lives in the adapters and in `bullmq_protocol.testing`."""

    def __call__(self) -> Instant: ...
