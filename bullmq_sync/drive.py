"""Run commands and operations over a blocking transport, and read the clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from bullmq_protocol.command import Batch, Command, Now, Operation
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.job import PreparedJob
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.topology import Address, ClusterOptions, SentinelOptions, parse_address
from bullmq_protocol.net.transport import Clock, InterruptibleTransport, Transport
from bullmq_protocol.scripts.source import OWN, ScriptSource
from bullmq_sync.net.connection import Connection as NativeConnection
from bullmq_sync.net.redis_py import RedisPyTransport
from bullmq_sync.net.redis_py_cluster import RedisPyClusterTransport, is_cluster_client
from bullmq_sync.net.redis_py_sentinel import RedisPySentinelTransport, is_sentinel_client

T = TypeVar("T")

Connection = str | Address | Transport | None
"""Where a server is: a URL (one server, sentinels, a cluster), options, a transport that is shared with its owner, or
None for the local server."""


def clock() -> Instant:
    """Read both clocks."""
    return Instant(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)


class Performer(Protocol):
    """The part of a transport that operations need."""

    @property
    def perform(self) -> Callable[[Command[Any] | Batch], Any]: ...


def perform(transport: Performer, command: Command[T]) -> T:
    """Perform one command and return its decoded reply."""
    return command.decode(transport.perform(command))


def run(op: Operation[T], transport: Performer, clock: Clock = clock, opening: Callable[[], None] | None = None) -> T:
    """Run an operation to its end: perform each step, answer each question for the time.

    `opening` is called once before the first step is performed, and after its arguments were checked.
    """
    resume: Any = op.send
    value: Any = None
    while True:
        try:
            step = resume(value)
        except StopIteration as stop:
            return cast("T", stop.value)
        if opening is not None:
            opening()
            opening = None
        try:
            resume, value = op.send, clock() if isinstance(step, Now) else transport.perform(step)
        except Exception as error:
            resume, value = op.throw, error


def transport_of(connection: Any, scripts: ScriptSource = OWN) -> tuple[Transport, bool]:
    """Return the transport to use, and whether it is ours to close. Nothing is opened.

    With a script source that is not ours, every step goes through it.

    Raises `UsageError` for what is no address, no client and no transport.
    """
    if not isinstance(scripts, ScriptSource):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("scripts", scripts, "must be a ScriptSource")
    transport: Transport
    owned = False
    if connection is None:
        transport, owned = NativeConnection(ConnectionOptions()), True
    elif callable(getattr(connection, "perform", None)) and callable(getattr(connection, "dedicated", None)):
        transport = cast("Transport", connection)
    else:
        transport, owned = connect(connection), True
    return (transport if scripts is OWN else Scripted(transport, scripts)), owned


def connect(server: Any) -> NativeConnection | RedisPyTransport | RedisPyClusterTransport:
    """Return the transport for a URL, options or a client of redis-py, to be shared by queues and workers.

    `redis://`, `rediss://` and `unix://` name one server; `redis+sentinel://host:port,host:port/service` asks sentinels
    for the master; `redis+cluster://host:port,host:port` is a cluster, whose queues need a hash tag. A client is a
    `redis.Redis` with its retries off, also one of `Sentinel.master_for`, or a `redis.RedisCluster`; it stays yours.
    Nothing is opened. Raises `UsageError`.
    """
    options: Any = parse_address(server) if isinstance(server, str) else server
    if isinstance(options, SentinelOptions) or is_sentinel_client(options):
        return RedisPySentinelTransport(options)
    if isinstance(options, ClusterOptions) or is_cluster_client(options):
        return RedisPyClusterTransport(options)
    return NativeConnection(options) if isinstance(options, ConnectionOptions) else RedisPyTransport(options)


class Scripted:
    """A transport whose scripts are those of a source."""

    def __init__(self, transport: Transport, scripts: ScriptSource) -> None:
        self.transport = transport
        self._scripts = scripts

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        return self.transport.perform(self._scripts.applied(step))

    def dedicated(self, *, client_name: str | None = None) -> InterruptibleTransport:
        return ScriptedListener(self.transport.dedicated(client_name=client_name), self._scripts)

    def close(self) -> None:
        self.transport.close()


class ScriptedListener(Scripted):
    """A dedicated one."""

    transport: InterruptibleTransport

    def interrupt(self) -> None:
        self.transport.interrupt()


def has_ended(transport: Transport) -> bool:
    """Look, without waiting, whether the connection was lost since it was used last; False if it cannot be known."""
    look = getattr(transport.transport if isinstance(transport, Scripted) else transport, "has_ended", None)
    return look is not None and bool(look())


def stop_connecting(transport: Transport) -> None:
    """End an attempt to connect that is under way, where the transport can: nobody needs it any more."""
    stop = getattr(transport.transport if isinstance(transport, Scripted) else transport, "stop_connecting", None)
    if stop is not None:
        stop()


def check_server(transport: Transport, keys: QueueKeys) -> None:
    """Refuse a queue that this server cannot hold: an untagged one on a cluster. Connects.

    Raises `UsageError`, and whatever connecting raises. A transport that does not know its server passes.
    """
    if is_cluster(transport):
        keys.require_hash_tag()


def check_parents(transport: Transport, keys: QueueKeys, jobs: Sequence[PreparedJob]) -> None:
    """Refuse, on a cluster, a parent in another slot. Connects, if a job has a parent at all."""
    parents = [job.parent_key for job in jobs if job.parent_key is not None]
    if parents and is_cluster(transport):
        for parent in parents:
            keys.require_same_slot(parent)


def is_cluster(transport: Transport) -> bool:
    """Tell whether the server is part of a cluster; False for a transport that does not know its server. Connects."""
    if isinstance(transport, Scripted):
        transport = transport.transport
    server_info = getattr(transport, "server_info", None)
    return server_info is not None and bool(server_info().cluster)
