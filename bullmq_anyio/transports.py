"""The native transports by address, and what transports with the scripts of a profile have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bullmq_anyio.net.cluster import ClusterConnection
from bullmq_anyio.net.connection import Connection
from bullmq_anyio.net.sentinel import SentinelConnection
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.errors import UsageError
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.topology import ClusterOptions, SentinelOptions, parse_address
from bullmq_protocol.net.transport import AsyncTransport, how_to_wrap
from bullmq_protocol.scripts.profile import Profile, applier


def native(server: object) -> Connection | SentinelConnection | ClusterConnection | None:
    """Return the native transport for a URL or options, None for what is neither."""
    options = parse_address(server) if isinstance(server, str) else server
    if isinstance(options, SentinelOptions):
        return SentinelConnection(options)
    if isinstance(options, ClusterOptions):
        return ClusterConnection(options)
    return Connection(options) if isinstance(options, ConnectionOptions) else None


def no_transport(server: object, rule: str) -> UsageError:
    """Return the error for what is no transport, nor becomes one."""
    hint = how_to_wrap(server)
    return UsageError("connection", type(server), rule if hint is None else f"{rule}: {hint}")


class ScriptedBase:
    """A transport whose scripts are those of a profile."""

    def __init__(self, transport: AsyncTransport, scripts: Profile) -> None:
        self.transport = transport
        self._scripts = scripts
        # What the other one returns, as it is: a call more around it would cost each call a twentieth of its time.
        self.perform: Callable[[Command[Any] | Batch], Any] = applier(scripts, transport.perform)

    async def aclose(self) -> None:
        await self.transport.aclose()
