"""Transports from addresses, and the one that performs the scripts of a profile."""

from __future__ import annotations

from bullmq_anyio.net.cluster import ClusterConnection
from bullmq_anyio.net.connection import Connection
from bullmq_anyio.net.sentinel import SentinelConnection
from bullmq_anyio.transports import ScriptedBase, native, no_transport
from bullmq_protocol.net.topology import Address
from bullmq_protocol.net.transport import AsyncTransport


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
    transport = native(server)
    if transport is None:
        raise no_transport(server, "must be a URL, options or a transport")
    return transport


def is_ours(transport: AsyncTransport) -> bool:
    """Whether none but this library's code runs in a call of this transport."""
    if isinstance(transport, Scripted):
        transport = transport.transport
    return type(transport) in (Connection, SentinelConnection, ClusterConnection)


class Scripted(ScriptedBase):
    """On asyncio and trio."""

    def dedicated(self, *, client_name: str | None = None) -> AsyncTransport:
        return Scripted(self.transport.dedicated(client_name=client_name), self._scripts)
