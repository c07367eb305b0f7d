"""Transports from addresses and clients, and the one that performs the scripts of a profile."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from bullmq_protocol.net.transport import InterruptibleTransport
from bullmq_sync.net.cluster import ClusterConnection
from bullmq_sync.net.connection import Connection
from bullmq_sync.net.sentinel import SentinelConnection
from bullmq_sync.transports import ScriptedBase, native, no_transport

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
    transport = native(server) or _wrapped(server)
    if transport is None:
        raise no_transport(server, "must be a URL, options, a client of redis-py or a transport")
    return transport


def _wrapped(client: object) -> RedisPyTransport | ClusterConnection | None:
    """Return a transport over a client of redis-py, None for what is none.

    redis-py takes longer to import than all of this package, and a program that has a client has imported it.
    """
    if "redis" not in sys.modules:
        return None
    transport: RedisPyTransport | ClusterConnection | None
    transport = importlib.import_module("bullmq_sync.net.redis_py_cluster").wrapped(client)
    return transport


class Scripted(ScriptedBase):
    """On threads."""

    def dedicated(self, *, client_name: str | None = None) -> InterruptibleTransport:
        return ScriptedListener(self.transport.dedicated(client_name=client_name), self._scripts)


class ScriptedListener(Scripted):
    """A dedicated one."""

    transport: InterruptibleTransport

    def interrupt(self) -> None:
        self.transport.interrupt()
