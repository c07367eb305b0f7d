"""Run commands and operations over a blocking transport."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, cast

from bullmq_protocol.command import Batch, Command, Now, Operation
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.model.job import PreparedJob
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.topology import Address
from bullmq_protocol.net.transport import Clock, Transport
from bullmq_protocol.scripts.profile import DEFAULT, STRICT, Profile, check_profile
from bullmq_sync.clocks import clock as clock
from bullmq_sync.connecting import Scripted, connect

T = TypeVar("T")

Connection = str | Address | Transport | None
"""Where a server is: a URL (one server, sentinels, a cluster), options, a transport that is shared with its owner, or
None for the local server."""


class Performer(Protocol):
    """The part of a transport that operations need."""

    @property
    def perform(self) -> Callable[[Command[Any] | Batch], Any]: ...


def perform(transport: Performer, command: Command[T]) -> T:
    """Perform one command over a transport.

    Args:
        transport: The transport, such as one from `connect`.
        command: A command from `bullmq_protocol.commands`.

    Returns:
        The decoded reply.

    Raises:
        BullMQError: What the command's own docstring lists.

    Examples:
        >>> from bullmq_protocol.commands.queues import ping
        >>> perform(transport, ping())
    """
    return command.decode(transport.perform(command))


def run(
    op: Operation[T],
    transport: Performer,
    clock: Clock = clock,
    opening: Callable[[], None] | None = None,
) -> T:
    """Run an operation to its end over a transport: perform each step, answer each question for the time.

    Args:
        op: An operation from `bullmq_protocol.operations`.
        transport: The transport, such as one from `connect`.
        clock: The clocks to read; those of the system by default.
        opening: Called once before the first step, after the arguments were checked; None by default.

    Returns:
        What the operation returns.

    Raises:
        BullMQError: What the operation's own docstring lists.

    Examples:
        >>> from bullmq_protocol.operations.read_jobs import get_jobs
        >>> run(get_jobs(QueueKeys.of("no-such-queue")), transport)
        []
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


def transport_of(connection: Any, scripts: Profile = DEFAULT) -> tuple[Transport, bool]:
    """Return the transport to use, and whether it is ours to close. Nothing is opened.

    With another profile than `STRICT` every step goes through it.

    Raises `UsageError` for anything but an address, a client or a transport.
    """
    check_profile(scripts)
    transport: Transport
    owned = False
    if connection is None:
        transport, owned = connect(os.environ.get("BULLMQ_URL") or ConnectionOptions()), True
    elif callable(getattr(connection, "perform", None)) and callable(getattr(connection, "dedicated", None)):
        transport = cast("Transport", connection)
    else:
        transport, owned = connect(connection), True
    return (transport if scripts is STRICT else Scripted(transport, scripts)), owned


def unscripted(transport: Transport) -> Transport:
    """Return the transport that performs scripts as they are."""
    return transport.transport if isinstance(transport, Scripted) else transport


def has_ended(transport: Transport) -> bool:
    """Look, without waiting, whether the connection was lost since it was used last; False if it cannot be known."""
    look = getattr(unscripted(transport), "has_ended", None)
    return look is not None and bool(look())


def stop_connecting(transport: Transport) -> None:
    """End an attempt to connect that is under way, where the transport can: nobody needs it any more."""
    stop = getattr(unscripted(transport), "stop_connecting", None)
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
    server_info = getattr(unscripted(transport), "server_info", None)
    if server_info is None:
        return False
    info = server_info()
    return bool(info.cluster)
