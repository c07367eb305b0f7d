"""The native connection for asyncio and trio: one socket that any number of tasks share, made and remade at need.

It owns no task and no task group, so it can be built anywhere, also before an event loop runs. `link` moves the bytes;
here is what a connection means: address, handshake, scripts, the repeat rule, closing.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import copy
import logging
import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import anyio
import msgspec
from anyio.lowlevel import cancel_shielded_checkpoint, current_token

from bullmq_anyio.net.link import Link, SocketLink, link_over, pack
from bullmq_protocol.command import Arg, Batch, Command
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    BullMQError,
    Closed,
    ConnectionLost,
    ServerError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions, checked_login, login_failed, parse_url
from bullmq_protocol.net.exchange import Ask, Course, answer, answers, limit_of, may_repeat
from bullmq_protocol.net.handshake import ASKING, NO_TLS, Greeting, opening, unanswered, without_tls
from bullmq_protocol.net.server_info import ServerInfo

_log = logging.getLogger("bullmq_anyio")

_MULTI, _EXEC = pack(("MULTI",)), pack(("EXEC",))


class SharedConnection(ABC):
    """One connection for any number of tasks. It connects at the first call, and again at the next call after a loss.

    Each call makes at most one attempt to connect; callers that come meanwhile share it. A call that cannot know
    whether its command ran raises with `maybe_applied=True`; only commands of the class SAFE are sent once more by
    themselves, and not after a time-out.
    """

    def __init__(
        self, address: str, *, connect_timeout_ms: Millis, command_timeout_ms: Millis | None, client_name: str | None
    ) -> None:
        self._address = address
        self._connect_timeout_ms = connect_timeout_ms
        self._command_timeout_ms = command_timeout_ms
        self._client_name = client_name
        self._parent: SharedConnection | None = None
        self._children: set[SharedConnection] = set()
        self._link: Link | None = None
        self._attempt: _Attempt | None = None
        self._closed = False
        self._info: ServerInfo | None = None
        self._warned = False

    @abstractmethod
    async def _open(self) -> Link:
        """Connect, log in, check the server. Raises our errors, or `OSError`."""

    @abstractmethod
    def _twin(self, client_name: str | None) -> SharedConnection:
        """Return a connection to the same server."""

    async def server_info(self) -> ServerInfo:
        """Return what the server said of itself; connects if that has not happened yet."""
        if self._info is None:
            await self._connected()
        assert self._info is not None
        return self._info

    def dedicated(self, *, client_name: str | None = None) -> SharedConnection:
        """Return a connection of its own for blocking commands; cancelling a call on it drops it."""
        child = self._twin(client_name if client_name is not None else self._client_name)
        child._parent = self
        child._closed = self._closed
        child._warned = True
        self._children.add(child)
        return child

    def has_ended(self) -> bool:
        """Look, without waiting, whether the connection has been lost since it was used last."""
        return self._link is not None and not self._closed and self._link.has_ended()

    def stop_connecting(self) -> None:
        """End an attempt to connect that is under way: who waits for it gets `ConnectionLost`. Otherwise do nothing."""
        attempt = self._attempt
        if attempt is not None and attempt.loop is current_token().native_token:
            attempt.given_up = True
            attempt.scope.cancel()

    async def aclose(self) -> None:
        """Close this connection and those made by `dedicated`. Waiting calls raise `Closed`. Idempotent."""
        self._closed = True
        for child in tuple(self._children):
            await child.aclose()
        if self._parent is not None:
            self._parent._children.discard(self)
        if self._attempt is not None and self._attempt.loop is current_token().native_token:
            # In another event loop it ends by itself, at its time limit.
            self._attempt.scope.cancel()
        if self._link is not None:
            self._link.die(Closed, "the client is closed")
            await cancel_shielded_checkpoint()

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of errors.

        Raises `ServerError`, `TransportError`; while connecting also `AuthenticationFailed` and `ServerTooOld`;
        `UsageError` in another event loop than the one it was connected in, and for a blocking command without
        `dedicated`.
        """
        link = self._ready() or await self._connected()
        try:
            if isinstance(step, Batch):
                return await self._run_batch(link, step)
            # Here and not in a coroutine of its own: this is the hot path.
            payload = link.packed(step) if step.merge is None else step
            reply = await link.request(
                payload, self._command_timeout_ms if step.block_ms is None else self._limit(step)
            )
            return reply if type(reply) is not ServerError else await self._refused(link, step, reply)
        except (ConnectionLost, TransportTimeout) as error:
            if not may_repeat(step, error):
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
            payload = link.packed_all(ask.commands, afresh=ask.afresh)
            count = len(ask.commands)
            if ask.atomic:
                payload = _MULTI + payload + _EXEC
                count += 2
            try:
                resume, value = course.send, await link.exchange(payload, count, self._command_timeout_ms)
            except TransportError as error:
                resume, value = course.throw, error

    def _ready(self) -> Link | None:
        """Return the link, or None if it has to be made. Raises `UsageError` in a strange event loop."""
        link = self._link
        if link is None or link.dead or self._closed:
            return None
        if link.process != os.getpid():
            text = "belongs to the process that this one was forked from: make one in each"
            raise UsageError("connection", self._address, text)
        if link.is_strange():
            raise in_another_loop(self._address)
        return link

    async def _connected(self) -> Link:
        while True:
            if self._closed:
                raise Closed
            link = self._ready()
            if link is not None:
                return link
            attempt = self._attempt
            if attempt is None:
                return await self._connect()
            if attempt.loop is not current_token().native_token:
                raise in_another_loop(self._address)
            await attempt.over.wait()
            if attempt.failure is not None:
                # one of its own for each task: the traceback belongs to who raises it
                raise copy.copy(attempt.failure)

    async def _connect(self) -> Link:
        limit_s = self._connect_timeout_ms / 1000
        attempt = self._attempt = _Attempt()
        try:
            with anyio.move_on_after(limit_s) as attempt.scope:
                link = await self._open()
                if self._closed:
                    link.die(Closed, "the client is closed")
                    raise Closed
                self._link = link
                return link
            if self._closed:
                raise Closed
            if attempt.given_up:
                raise ConnectionLost(f"the attempt to connect to {self._address} was given up", maybe_applied=False)
            why = self._why_late()
            raise TransportTimeout(f"no connection to {self._address} in time{why}", maybe_applied=False)
        except BullMQError as error:
            attempt.failure = error
            raise
        except OSError as error:
            attempt.failure = ConnectionLost(f"cannot connect to {self._address}: {error}", maybe_applied=False)
            raise attempt.failure from error
        finally:
            self._attempt = None
            attempt.over.set()

    def _why_late(self) -> str:
        """Return what an attempt that took too long was waiting for, if there is more to tell."""
        return ""

    async def _greet(
        self, link: Link, greeting: Sequence[tuple[Arg, ...]], user: str | None, address: str, *, tls: bool = True
    ) -> None:
        """Send the first commands of a connection and INFO after them; check what the server says.

        Without `tls`, a server that ends the connection at once is told as one that may have it.
        """
        saying = Greeting(address, user, (*greeting, *ASKING))
        commands = saying.commands
        try:
            replies = await link.exchange(b"".join(map(pack, commands)), len(commands), None)
        except TransportError as error:
            # One that was there once has not changed its ways.
            raise unanswered(address, error, tls=tls or self._info is not None) from error
        greeted = saying.read(replies)
        if greeted.unnamed is not None:
            _log.debug("the server refused the connection name %r: %s", self._client_name, greeted.unnamed)
        if greeted.warnings and not self._warned:
            self._warned = True
            for warning in greeted.warnings:
                _log.warning("%s: %s", address, warning)
        self._info = greeted.info


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

    async def _open(self) -> Link:
        self._tls.awaits = None
        greeting, user = await greeting_of(self._options, self._client_name)
        link = await dial(self._options, self._tls, exclusive=self._parent is not None)
        try:
            await self._greet(link, greeting, user, self._address, tls=not may_have_tls(self._options))
        except BaseException:
            link.die(ConnectionLost, "the handshake failed")
            raise
        return link

    def _why_late(self) -> str:
        return f": {NO_TLS}" if self._tls.awaits else ""


def in_another_loop(address: str) -> UsageError:
    """Return the error for the use of a connection in another event loop than its own."""
    return UsageError("connection", address, "belongs to another event loop: make one in each")


class TlsContexts:
    """Makes the context of the system's authorities once, when it is needed; knows who has not answered yet."""

    def __init__(self, shared: TlsContexts | None = None) -> None:
        self._shared = self if shared is None else shared
        self._default: ssl.SSLContext | None = None
        self.awaits: str | None = None
        """The address whose handshake was the last to begin, until it ends; one that is cut off stays."""

    def of(self, options: ConnectionOptions) -> ssl.SSLContext | None:
        """Return the context to use, None without TLS."""
        if not options.tls:
            return None
        if isinstance(options.tls, ssl.SSLContext):
            return options.tls
        shared = self._shared
        if shared._default is None:
            shared._default = ssl.create_default_context()
        return shared._default


def may_have_tls(options: ConnectionOptions) -> bool:
    """Tell whether plain words are sent to a port which may speak TLS."""
    return not options.tls and options.unix_path is None


def check_tls(tls: object) -> None:
    """Raise `UsageError` for what is neither a flag nor a context."""
    if not isinstance(tls, (bool, ssl.SSLContext)):
        raise UsageError("tls", tls, "must be True, False or an ssl.SSLContext")


async def greeting_of(
    options: ConnectionOptions, client_name: str | None
) -> tuple[Sequence[tuple[Arg, ...]], str | None]:
    """Return the first commands of a connection, and the user they log in."""
    login = options.login()
    if not isinstance(login, tuple):
        try:
            login = checked_login(await login)
        except BullMQError:
            raise
        except Exception as error:
            raise login_failed(error) from error
    return opening(login, db=options.db, client_name=client_name), login[0]


async def dial(options: ConnectionOptions, tls: TlsContexts, *, exclusive: bool) -> SocketLink:
    """Connect a socket, without the handshake of Redis."""
    tls.awaits = None
    sock = await _open_socket(options)
    context = tls.of(options)
    if context is not None:
        tls.awaits = f"{options.host}:{options.port}"
        try:
            sock = await _start_tls(sock, context, options.host)
        except OSError:
            tls.awaits = None
            raise
        tls.awaits = None
    return link_over(sock, options.command_timeout_ms, exclusive=exclusive)


class _Attempt:
    """One attempt to connect, shared by the callers that came while it was under way."""

    def __init__(self) -> None:
        self.loop = current_token().native_token
        self.over = anyio.Event()
        self.scope = anyio.CancelScope()
        self.given_up = False
        self.failure: BullMQError | None = None


async def _open_socket(options: ConnectionOptions) -> socket.socket:
    if options.unix_path is not None:
        return await _connect_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, options.unix_path)
    failure: OSError | None = None
    for family, kind, protocol, _, place in await _addresses(options):
        try:
            sock = await _connect_socket(family, kind, protocol, place)
            break
        except OSError as error:
            failure = failure or error
    else:
        raise failure or OSError("the host has no address")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


async def _addresses(options: ConnectionOptions) -> Sequence[tuple[int, int, int, str, Any]]:
    try:
        # An address in figures needs no look-up, hence no thread.
        return socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        )
    except socket.gaierror:
        return await anyio.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)


async def _connect_socket(family: int, kind: int, protocol: int, place: Any) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        try:
            sock.connect(place)
        except BlockingIOError:
            await anyio.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code)) from None
    except BaseException:
        sock.close()
        raise
    return sock


async def _start_tls(sock: socket.socket, context: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    wrapped: ssl.SSLSocket | None = None
    try:
        wrapped = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        while True:
            try:
                wrapped.do_handshake()
                return wrapped
            except ssl.SSLWantReadError:
                await anyio.wait_readable(wrapped)
            except ssl.SSLWantWriteError:
                await anyio.wait_writable(wrapped)
    except BaseException as error:
        (wrapped or sock).close()
        if not isinstance(error, OSError):
            raise
        raise without_tls(error) from error.__cause__
