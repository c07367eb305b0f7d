"""What both adapters need from a connection. Any object of this shape will do.

A transport raises only `TransportError` (the connection), `ServerError` (an error reply to a single command) and, while
connecting, `AuthenticationFailed` or `ServerTooOld`. It repeats a command automatically only if nothing was sent, or if
the command's repeat class is SAFE; then once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Protocol

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.units import Instant


class AsyncTransport(Protocol):
    """A connection for asyncio or trio, which all tasks of one event loop may share."""

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of errors.

        Cancelling the caller never corrupts the connection: the reply, when it comes, is dropped. On a dedicated
        transport it drops the connection, which interrupts a blocking command.
        """
        ...

    def dedicated(self, *, client_name: str | None = None) -> AsyncTransport:
        """Return a transport with its own connection, for blocking commands. It connects at its first use, each time
        with this name."""
        ...

    async def aclose(self) -> None:
        """Close the connections this transport opened. Waiting calls raise `Closed`."""
        ...


class Transport(Protocol):
    """A blocking connection, which all threads may share."""

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of
        errors."""
        ...

    def dedicated(self, *, client_name: str | None = None) -> InterruptibleTransport:
        """Return a transport with its own connection, for blocking commands. It connects at its first use, each time
        with this name."""
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


class MovableClock(Clock, Protocol):
    """A clock that jumps, and tells those of it who wait for time to pass."""

    def subscribe(self, jumped: Callable[[], object], /) -> Callable[[], None]:
        """Call the function after each jump, on the thread that made it, until the returned function is called."""
        ...


def subscribed(clock: Clock, jumped: Callable[[], object]) -> Callable[[], None]:
    """Have `jumped` called after each jump of the clock, where it can jump; return what ends that."""
    subscribe: Callable[[Callable[[], object]], Callable[[], None]] | None = getattr(clock, "subscribe", None)
    return _nothing if subscribe is None else subscribe(jumped)


def _nothing() -> None:
    pass


# By module and name of the class, and that of a class above it: nobody's client need be imported.
_CLIENTS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        (
            "redis.asyncio.client",
            "Redis",
        ): "wrap it: bullmq_anyio.net.redis_asyncio.RedisAsyncioTransport(client), for bullmq_anyio",
        ("redis.asyncio.cluster", "RedisCluster"): "nothing wraps it: connect by redis+cluster://host:port",
        ("redis.asyncio.sentinel", "Sentinel"): "nothing wraps it: connect by redis+sentinel://host:port/service",
        ("redis.client", "Redis"): "wrap it: bullmq_sync.RedisPyTransport(client), for bullmq_sync",
        ("redis.cluster", "RedisCluster"): "give it to bullmq_sync as it is, or connect by redis+cluster://host:port",
        ("redis.sentinel", "Sentinel"): "give bullmq_sync its master_for(service), or connect by redis+sentinel://",
    }
)
_PACKAGES: Final = frozenset(("valkey", "coredis", "aioredis", "glide", "fakeredis", "aredis"))


def how_to_wrap(client: object) -> str | None:
    """Return how a client of another library becomes a transport, None for an object of an unknown type."""
    for kind in type(client).__mro__:
        known = _CLIENTS.get((kind.__module__, kind.__qualname__))
        if known is not None:
            return f"a client is no transport; {known}"
        if kind.__module__.partition(".")[0] in _PACKAGES:
            how = "connect by a URL, or write a transport for it (docs/transports.md)"
            return f"no transport of this library wraps it: {how}"
    return None
