"""Transports from addresses, and the one that performs the scripts of a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bullmq_anyio.net.cluster import ClusterConnection
from bullmq_anyio.net.connection import Connection
from bullmq_anyio.net.sentinel import SentinelConnection
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.errors import UsageError
from bullmq_protocol.net.topology import Address, ClusterOptions, SentinelOptions, parse_address
from bullmq_protocol.net.transport import AsyncTransport, how_to_wrap
from bullmq_protocol.scripts.profile import Profile, applier


def connect(server: str | Address) -> Connection | SentinelConnection | ClusterConnection:
    """Return the native transport for a server, for queues and workers to share. It opens nothing yet.

    Args:
        server: A URL, or options. `redis://`, `rediss://` and `unix://` name one server;
            `redis+sentinel://host:port,host:port/service` asks sentinels for the master;
            `redis+cluster://host:port,host:port` is a cluster, whose queues need a hash tag.

    Raises:
        UsageError: It is neither.

    Examples:
        >>> async with connect("redis://localhost:6379") as transport:
        ...     mail, prints = Queue("mail", transport), Queue("prints", transport)
    """
    options = parse_address(server) if isinstance(server, str) else server
    if isinstance(options, SentinelOptions):
        return SentinelConnection(options)
    if isinstance(options, ClusterOptions):
        return ClusterConnection(options)
    hint = how_to_wrap(options)
    if hint is not None:
        raise UsageError("connection", type(options), f"must be a URL, options or a transport: {hint}")
    return Connection(options)


def is_ours(transport: AsyncTransport) -> bool:
    """Whether none but this library's code runs in a call of this transport."""
    if isinstance(transport, Scripted):
        transport = transport.transport
    return type(transport) in (Connection, SentinelConnection, ClusterConnection)


class Scripted:
    """A transport whose scripts are those of a profile."""

    def __init__(self, transport: AsyncTransport, scripts: Profile) -> None:
        self.transport = transport
        self._scripts = scripts
        # The coroutine of the other one as it is: one around it would cost each call a twentieth of its time.
        self.perform: Callable[[Command[Any] | Batch], Any] = applier(scripts, transport.perform)

    def dedicated(self, *, client_name: str | None = None) -> AsyncTransport:
        return Scripted(self.transport.dedicated(client_name=client_name), self._scripts)

    async def aclose(self) -> None:
        await self.transport.aclose()
