"""The native connection for asyncio and trio: one socket that any number of tasks share, made and remade at need.

`link` moves the bytes, `dialling` makes the socket; here is what a connection means: address, handshake, scripts, the
repeat rule. It owns no task and no task group, so it can be built anywhere, also before an event loop runs.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from bullmq_anyio.net.dialling import Attempt, dial, login_of
from bullmq_anyio.net.link import Link, SocketLink
from bullmq_anyio.net.resp import pack
from bullmq_anyio.net.sharing import Connecting
from bullmq_anyio.net.sockets import TlsContexts, check_tls, may_have_tls
from bullmq_protocol.command import Arg, Batch, Command
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    BullMQError,
    ConnectionLost,
    ServerError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions, parse_url
from bullmq_protocol.net.exchange import Ask, Course, answer, answers, limit_of, may_repeat
from bullmq_protocol.net.handshake import INFO_COMMANDS, NO_TLS, Handshake, login_commands, unanswered
from bullmq_protocol.net.server_info import ServerInfo

_log = logging.getLogger("bullmq_anyio")


class SharedConnection(Connecting):
    """One connection for any number of tasks. It connects at the first call, and again at the next call after a loss.

    Each call makes at most one attempt to connect; callers that come meanwhile share it. A call that cannot know
    whether its command ran raises with `maybe_applied=True`; only commands of the class SAFE are sent once more by
    themselves, and not after a time-out.
    """

    def __init__(
        self, address: str, *, connect_timeout_ms: Millis, command_timeout_ms: Millis | None, client_name: str | None
    ) -> None:
        super().__init__(address, connect_timeout_ms)
        self._command_timeout_ms = command_timeout_ms
        self._client_name = client_name
        self._info: ServerInfo | None = None
        self._warned = False

    @abstractmethod
    def _twin(self, client_name: str | None) -> SharedConnection:
        """Return a connection to the same server."""

    async def server_info(self) -> ServerInfo:
        """Return the server info; connects if that has not happened yet. Raises as `perform` does."""
        if self._info is None:
            await self._connected()
        assert self._info is not None
        return self._info

    def dedicated(self, *, client_name: str | None = None) -> SharedConnection:
        """Return a connection of its own for blocking commands; cancelling a call on it drops it."""
        child = self._twin(client_name if client_name is not None else self._client_name)
        child._parent = self
        child._warned = True
        with self._lock:
            child._closed = self._closed
            self._children.add(child)
        return child

    def has_ended(self) -> bool:
        """Look, without waiting, whether the connection has been lost since it was used last."""
        link = None if self._closed else self._link
        return link is not None and link.has_ended()

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of errors.

        Raises `ServerError`, `TransportError`; while connecting also `AuthenticationFailed` and `ServerTooOld`;
        `UsageError` in another event loop than the one it was connected in, and for a blocking command without
        `dedicated`.
        """
        link = self._ready() or await self._connected()
        try:
            # isinstance with a class of msgspec is slow where the answer is no.
            if type(step) is not Command and isinstance(step, Batch):
                return await self._run_batch(link, step)
            # Here and not in a function of its own: this is the hot path.
            payload = link.packed(step) if step.merge is None else step
            reply = await link.request(
                payload, self._command_timeout_ms if step.block_ms is None else self._limit(step)
            )
            return reply if type(reply) is not ServerError else await self._refused(link, step, reply)
        except (ConnectionLost, TransportTimeout) as error:
            if link.interrupted or not may_repeat(step, error):
                raise
        except BullMQError:
            raise
        except BaseException as error:
            # It may have come between sending and waiting: nobody else ends a blocking command.
            if self._parent is not None and link.owing:
                link.drop(error)
            raise
        link = await self._connected()
        if isinstance(step, Batch):
            return await self._run_batch(link, step)
        reply = await link.request(link.packed(step), self._limit(step))
        return reply if type(reply) is not ServerError else await self._refused(link, step, reply)

    def _limit(self, command: Command[Any]) -> Millis | None:
        return limit_of(command, self._command_timeout_ms, dedicated=self._parent is not None)

    async def _refused(self, link: Link, command: Command[Any], error: ServerError) -> Any:
        """Send a script again that the server lost; raise any other error."""
        return await self._follow(link, answer(command, error))

    async def _run_batch(self, link: Link, batch: Batch) -> list[Any]:
        replies: list[Any] = await self._follow(link, answers(batch))
        return replies

    async def _follow(self, link: Link, course: Course) -> Any:
        """Send what a course asks for, until it returns."""
        resume: Any = course.send
        value: Any = None
        while True:
            try:
                ask: Ask = resume(value)
            except StopIteration as stop:
                return stop.value
            payload = link.packed_all(ask.commands, afresh=ask.afresh, atomic=ask.atomic)
            count = len(ask.commands) + (2 if ask.atomic else 0)
            try:
                resume, value = course.send, await link.exchange(payload, count, self._command_timeout_ms)
            except TransportError as error:
                resume, value = course.throw, error

    async def _reach(self, options: ConnectionOptions, tls: TlsContexts, attempt: Attempt) -> SocketLink:
        """Connect to a server and log in. Raises our errors, or `OSError`."""
        commands, user = await login_commands_of(options, self._client_name)
        link: SocketLink | None = None
        try:
            link = await dial(options, tls, attempt, exclusive=self._parent is not None)
            await self._handshake(
                link, commands, user, options.address, tls=not may_have_tls(options), limit_ms=attempt.left_ms
            )
            return link
        except BaseException:
            if link is not None:
                link.die(ConnectionLost, "the handshake failed")
            raise

    async def _handshake(
        self,
        link: Link,
        commands: Sequence[tuple[Arg, ...]],
        user: str | None,
        address: str,
        *,
        tls: bool = True,
        limit_ms: Millis | None = None,
    ) -> None:
        """Send the first commands of a connection and INFO after them; check what the server says.

        Without `tls`, a server that ends the connection at once is reported as one that may have it.
        """
        handshake = Handshake(address, user, (*commands, *INFO_COMMANDS))
        commands = handshake.commands
        try:
            replies = await link.exchange(b"".join(map(pack, commands)), len(commands), limit_ms)
        except TransportError as error:
            # One that was there once has not changed its ways.
            raise unanswered(address, error, tls=tls or self._info is not None) from error
        result = handshake.read(replies)
        if result.unnamed is not None:
            _log.debug("the server refused the connection name %r: %s", self._client_name, result.unnamed)
        if result.warnings and not self._warned:
            self._warned = True
            for warning in result.warnings:
                _log.warning("%s: %s", address, warning)
        self._info = result.info


class Connection(SharedConnection):
    """The native connection: `Connection("redis://localhost")`, or with `ConnectionOptions`."""

    def __init__(self, server: ConnectionOptions | str = "redis://") -> None:
        options = parse_url(server) if isinstance(server, str) else server
        if not isinstance(options, ConnectionOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("connection", type(server), "must be a URL or ConnectionOptions")
        check_tls(options.tls)
        super().__init__(
            options.address,
            connect_timeout_ms=options.connect_timeout_ms,
            command_timeout_ms=options.command_timeout_ms,
            client_name=options.client_name,
        )
        self._options = options
        self._tls = TlsContexts()

    @property
    def options(self) -> ConnectionOptions:
        """The options it was made with."""
        return self._options

    def _twin(self, client_name: str | None) -> Connection:
        return Connection(msgspec.structs.replace(self._options, client_name=client_name))

    async def _open(self, attempt: Attempt) -> Link:
        return await self._reach(self._options, self._tls, attempt)

    def _why_late(self, attempt: Attempt) -> str:
        return f": {NO_TLS}" if attempt.awaits else ""


async def login_commands_of(
    options: ConnectionOptions, client_name: str | None
) -> tuple[Sequence[tuple[Arg, ...]], str | None]:
    """Return the first commands of a connection, and the user they log in."""
    login = await login_of(options)
    return login_commands(login, db=options.db, client_name=client_name), login[0]
