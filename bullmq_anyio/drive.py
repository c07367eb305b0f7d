"""Run commands and operations over an asynchronous transport, and read the clocks: what an adapter adds to the core."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from bullmq_anyio.net.cluster import ClusterConnection
from bullmq_anyio.net.connection import Connection as NativeConnection
from bullmq_anyio.net.sentinel import SentinelConnection
from bullmq_protocol.command import Batch, Command, Now, Operation
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.job import PreparedJob
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.topology import Address, ClusterOptions, SentinelOptions, parse_address
from bullmq_protocol.net.transport import AsyncTransport, Clock, how_to_wrap
from bullmq_protocol.scripts.source import OWN, ScriptSource

T = TypeVar("T")

Connection = str | Address | AsyncTransport | None
"""Where a server is: a URL (one server, sentinels, a cluster), options, a transport that is shared with its owner, or
None for the local server."""


def clock() -> Instant:
    """Read both clocks."""
    return Instant(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)


async def perform(transport: AsyncTransport, command: Command[T]) -> T:
    """Perform one command and return its decoded reply."""
    return command.decode(await transport.perform(command))


async def run(
    op: Operation[T],
    transport: AsyncTransport,
    clock: Clock = clock,
    opening: Callable[[], Awaitable[None]] | None = None,
) -> T:
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
            await opening()
            opening = None
        try:
            resume, value = op.send, clock() if isinstance(step, Now) else await transport.perform(step)
        except Exception as error:
            resume, value = op.throw, error


def transport_of(connection: Any, scripts: ScriptSource = OWN) -> tuple[AsyncTransport, bool]:
    """Return the transport to use, and whether it is ours to close. Nothing is opened.

    With a script source that is not ours, every step goes through it.

    Raises `UsageError` for what is no address, no client and no transport.
    """
    if not isinstance(scripts, ScriptSource):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("scripts", scripts, "must be a ScriptSource")
    transport: AsyncTransport
    owned = False
    if connection is None:
        transport, owned = NativeConnection(ConnectionOptions()), True
    elif callable(getattr(connection, "perform", None)) and callable(getattr(connection, "dedicated", None)):
        transport = cast("AsyncTransport", connection)
    else:
        hint = how_to_wrap(connection)
        if hint is not None:
            raise UsageError(
                "connection", cast("type[object]", type(connection)), f"must be a URL, options or a transport: {hint}"
            )
        transport, owned = connect(connection), True
    return (transport if scripts is OWN else Scripted(transport, scripts)), owned


def connect(server: str | Address) -> NativeConnection | SentinelConnection | ClusterConnection:
    """Return the native transport for a URL or for options, to be shared by queues and workers. Nothing is opened.

    `redis://`, `rediss://` and `unix://` name one server; `redis+sentinel://host:port,host:port/service` asks sentinels
    for the master; `redis+cluster://host:port,host:port` is a cluster, whose queues need a hash tag.
    Raises `UsageError`.
    """
    options = parse_address(server) if isinstance(server, str) else server
    if isinstance(options, SentinelOptions):
        return SentinelConnection(options)
    if isinstance(options, ClusterOptions):
        return ClusterConnection(options)
    return NativeConnection(options)


class Scripted:
    """A transport whose scripts are those of a source."""

    def __init__(self, transport: AsyncTransport, scripts: ScriptSource) -> None:
        self.transport = transport
        self._scripts = scripts

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        return await self.transport.perform(self._scripts.applied(step))

    def dedicated(self, *, client_name: str | None = None) -> AsyncTransport:
        return Scripted(self.transport.dedicated(client_name=client_name), self._scripts)

    async def aclose(self) -> None:
        await self.transport.aclose()


def has_ended(transport: AsyncTransport) -> bool:
    """Look, without waiting, whether the connection was lost since it was used last; False if it cannot be known."""
    look = getattr(transport.transport if isinstance(transport, Scripted) else transport, "has_ended", None)
    return look is not None and bool(look())


def stop_connecting(transport: AsyncTransport) -> None:
    """End an attempt to connect that is under way, where the transport can: nobody needs it any more."""
    stop = getattr(transport.transport if isinstance(transport, Scripted) else transport, "stop_connecting", None)
    if stop is not None:
        stop()


async def check_server(transport: AsyncTransport, keys: QueueKeys) -> None:
    """Refuse a queue that this server cannot hold: an untagged one on a cluster. Connects.

    Raises `UsageError`, and whatever connecting raises. A transport that does not know its server passes.
    """
    if await is_cluster(transport):
        keys.require_hash_tag()


async def check_parents(transport: AsyncTransport, keys: QueueKeys, jobs: Sequence[PreparedJob]) -> None:
    """Refuse, on a cluster, a parent in another slot. Connects, if a job has a parent at all."""
    parents = [job.parent_key for job in jobs if job.parent_key is not None]
    if parents and await is_cluster(transport):
        for parent in parents:
            keys.require_same_slot(parent)


async def is_cluster(transport: AsyncTransport) -> bool:
    """Tell whether the server is part of a cluster; False for a transport that does not know its server. Connects."""
    if isinstance(transport, Scripted):
        transport = transport.transport
    server_info = getattr(transport, "server_info", None)
    return server_info is not None and bool((await server_info()).cluster)
