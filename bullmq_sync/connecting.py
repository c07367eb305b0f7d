"""Transports from addresses and clients, and the one that performs the scripts of a profile."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.errors import UsageError
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.topology import ClusterOptions, SentinelOptions, parse_address
from bullmq_protocol.net.transport import InterruptibleTransport, Transport, how_to_wrap
from bullmq_protocol.scripts.profile import Profile, applier
from bullmq_sync.net.cluster import ClusterConnection
from bullmq_sync.net.connection import Connection
from bullmq_sync.net.sentinel import SentinelConnection

if TYPE_CHECKING:
    from bullmq_sync.net.redis_py import RedisPyTransport


def connect(server: Any) -> Connection | SentinelConnection | ClusterConnection | RedisPyTransport:
    """Return the transport for a server, or around a client of redis-py, for queues and workers to share. It opens
    nothing yet.

    Args:
        server: A URL, options, or a client. `redis://`, `rediss://` and `unix://` name one server;
            `redis+sentinel://host:port,host:port/service` asks sentinels for the master;
            `redis+cluster://host:port,host:port` is a cluster, whose queues need a hash tag. A client is a
            `redis.Redis` with its retries off, also one of `Sentinel.master_for`, or a `redis.RedisCluster`; it stays
            yours to close.

    Raises:
        UsageError: It is none of these.

    Examples:
        >>> with connect("redis://localhost:6379") as transport:
        ...     mail, prints = Queue("mail", transport), Queue("prints", transport)
    """
    options: Any = parse_address(server) if isinstance(server, str) else server
    if isinstance(options, SentinelOptions):
        return SentinelConnection(options)
    if isinstance(options, ClusterOptions):
        return ClusterConnection(options)
    if isinstance(options, ConnectionOptions):
        return Connection(options)
    wrapped = _wrapped(options)
    if wrapped is not None:
        return wrapped
    hint = how_to_wrap(options)
    rule = "must be a URL, options, a client of redis-py or a transport"
    kind: type[object] = type(options)  # pyright: ignore[reportUnknownVariableType]
    raise UsageError("connection", kind, rule if hint is None else f"{rule}: {hint}")


def _wrapped(client: object) -> RedisPyTransport | ClusterConnection | None:
    """Return a transport over a client of redis-py, None for what is none.

    redis-py takes longer to import than all of this package, and a program that has a client has imported it.
    """
    if "redis" not in sys.modules:
        return None
    transport: RedisPyTransport | ClusterConnection | None
    transport = importlib.import_module("bullmq_sync.net.redis_py_cluster").wrapped(client)
    return transport


class Scripted:
    """A transport whose scripts are those of a profile."""

    def __init__(self, transport: Transport, scripts: Profile) -> None:
        self.transport = transport
        self._scripts = scripts
        self.perform: Callable[[Command[Any] | Batch], Any] = applier(scripts, transport.perform)

    def dedicated(self, *, client_name: str | None = None) -> InterruptibleTransport:
        return ScriptedListener(self.transport.dedicated(client_name=client_name), self._scripts)

    def close(self) -> None:
        self.transport.close()


class ScriptedListener(Scripted):
    """A dedicated one."""

    transport: InterruptibleTransport

    def interrupt(self) -> None:
        self.transport.interrupt()
