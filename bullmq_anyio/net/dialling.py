"""Attempts to connect, in tasks: shared by the callers that come while one is under way, cut off at their limit."""

from __future__ import annotations

import copy
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import anyio
from anyio.lowlevel import current_token

from bullmq_anyio.net.answer import Answer, failure_of, outcome_of
from bullmq_anyio.net.link import Link, SocketLink, link_over
from bullmq_anyio.net.sockets import Addresses, TlsContexts, no_address, numeric, set_up
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.net.address import ConnectionOptions, Login, checked_login, login_failed
from bullmq_protocol.net.handshake import without_tls

T = TypeVar("T")


class Attempt:
    """One attempt to connect, or a part of one."""

    left_ms: Millis | None = None
    """How long a reply may take: its scope ends what takes too long."""

    def __init__(self) -> None:
        self.loop = current_token().native_token
        self.over = anyio.Event()
        self.scope = anyio.CancelScope()
        self.given_up = False
        self.failure: BullMQError | None = None
        self.link: Link | None = None
        self.parts: list[Attempt] = []
        self.in_handshake: str | None = None

    @property
    def awaits(self) -> str | None:
        """The address whose handshake of TLS was the last to begin, until it ends; one that is cut off stays."""
        return self.in_handshake or next((each.awaits for each in self.parts if each.awaits is not None), None)

    def give_up(self) -> None:
        """End it, in its own event loop: its callers get `ConnectionLost`."""
        if self.loop is current_token().native_token:
            self.given_up = True
            self.scope.cancel()

    async def ended(self) -> None:
        """Wait until another task has ended it. Raises its failure."""
        await self.over.wait()
        if self.failure is not None:
            # One of its own for each task: the traceback belongs to the task that raises it.
            raise copy.copy(self.failure)

    def part(self, limit_s: float) -> Attempt:
        """Return a part of it: the body of its `scope` ends after `limit_s` seconds."""
        part = Attempt()
        part.scope = anyio.move_on_after(limit_s)
        self.parts.append(part)
        return part

    async def pause(self, pause_s: float) -> None:
        """Wait."""
        await anyio.sleep(pause_s)


async def login_of(options: ConnectionOptions) -> Login:
    """Return user name and password."""
    login = options.login()
    if isinstance(login, tuple):
        return login
    try:
        return checked_login(await login)
    except BullMQError:
        raise
    except Exception as error:
        raise login_failed(error) from error


async def dial(options: ConnectionOptions, tls: TlsContexts, attempt: Attempt, *, exclusive: bool) -> SocketLink:
    """Connect a socket, without the handshake of Redis."""
    attempt.in_handshake = None
    attempt.parts.clear()
    sock: socket.socket | None = None
    try:
        sock = await _open_socket(options)
        context = tls.of(options)
        if context is not None:
            attempt.in_handshake = f"{options.host}:{options.port}"
            try:
                sock = await _start_tls(sock, context, options.host)
            except OSError:
                attempt.in_handshake = None
                raise
            attempt.in_handshake = None
        return link_over(sock, options.command_timeout_ms, exclusive=exclusive)
    except BaseException:
        if sock is not None:
            sock.close()
        raise


async def _open_socket(options: ConnectionOptions) -> socket.socket:
    if options.unix_path is not None:
        return await _connect_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, options.unix_path)
    failure: OSError | None = None
    sock: socket.socket | None = None
    try:
        for family, kind, protocol, _, place in await _addresses(options):
            try:
                sock = await _connect_socket(family, kind, protocol, place)
                set_up(sock)
                return sock
            except OSError as error:
                failure = failure or error
                if sock is not None:
                    sock.close()
    except BaseException:
        if sock is not None:
            sock.close()
        raise
    raise no_address(failure)


async def _addresses(options: ConnectionOptions) -> Addresses:
    known = numeric(options)
    if known is not None:
        return known
    return await anyio.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)


async def _connect_socket(family: int, kind: int, protocol: int, place: Any) -> socket.socket:
    sock: socket.socket | None = None
    try:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            sock.connect(place)
        except BlockingIOError:
            await anyio.wait_writable(sock)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code)) from None
        return sock
    except BaseException:
        if sock is not None:
            sock.close()
        raise


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


# --- several at once --------------------------------------------------------------------------------------------------


async def at_once(
    attempt: Attempt, calls: Sequence[Callable[[Attempt], Awaitable[Answer]]], limit_s: float, grace_s: float
) -> list[Answer | BullMQError]:
    """Make all calls at the same time, each in a part of the attempt; return answers and failures in their order.

    Each has `limit_s` seconds, and `grace_s` from when one of the answers suffices. If an error comes up that is
    neither ours nor an `OSError`, it is raised, and the answers of the others are discarded.
    """
    outcomes: list[Answer | BullMQError] = [failure_of(None, None) for _ in calls]

    async def make(number: int, call: Callable[[Attempt], Awaitable[Answer]]) -> None:
        outcome = outcomes[number] = await outcome_of(attempt.part(limit_s), call)
        if isinstance(outcome, Answer) and outcome.suffices:
            tasks.cancel_scope.deadline = min(tasks.cancel_scope.deadline, anyio.current_time() + grace_s)

    try:
        async with anyio.create_task_group() as tasks:
            for number, call in enumerate(calls):
                tasks.start_soon(make, number, call)
        return outcomes
    except BaseException as error:
        for outcome in outcomes:
            if isinstance(outcome, Answer):
                outcome.discard()
        if not isinstance(error, BaseExceptionGroup):
            raise
        # For want of memory, or an interrupt.
        raise _first(cast("BaseException", error)) from None


def _first(error: BaseException) -> BaseException:
    """Return the first error of a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


async def watched(
    link: Link,
    vigil: Callable[[], tuple[Sequence[SocketLink], float | None]],
    look: Callable[[Link, Attempt], Awaitable[None]],
    call: Callable[[], Awaitable[T]],
) -> T:
    """Return what `call` returns, which waits on a link.

    Meanwhile `look` is called whenever one of the links of `vigil` has ended, and after as many seconds as it says.
    """
    outcome: T | None = None
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_guard, link, vigil, look)
        try:
            outcome = await call()
        except Exception as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return cast("T", outcome)


async def _guard(
    link: Link,
    vigil: Callable[[], tuple[Sequence[SocketLink], float | None]],
    look: Callable[[Link, Attempt], Awaitable[None]],
) -> None:
    try:
        while not link.dead:
            await _word(*vigil())
            await look(link, Attempt())
    except Exception as error:
        # Waiting callers learn it from their own calls.
        link.drop(error)


async def _word(watches: Sequence[SocketLink], limit_s: float | None) -> None:
    """Wait until one of them has ended."""
    with anyio.move_on_after(limit_s):
        if not watches:
            await anyio.sleep_forever()
        async with anyio.create_task_group() as tasks:

            async def listen(watch: SocketLink) -> None:
                await watch.ended()
                tasks.cancel_scope.cancel()

            for watch in watches:
                tasks.start_soon(listen, watch)
