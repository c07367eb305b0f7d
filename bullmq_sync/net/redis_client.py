"""What a transport over a client of redis-py is, apart from how the client is called: checks, errors, repetition.

The client itself speaks, in one plain call for each command and one pipeline for each batch: one that counts, traces,
logs in in its own way or is made for tests does all that here, too. It chooses the connections, of its own pool.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterCrossSlotError,
    ClusterDownError,
    ExecAbortError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import TimeoutError as RedisTimeoutError

from bullmq_protocol.command import Arg, Batch, Command
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    ServerError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import refusal_of_login
from bullmq_protocol.net.exchange import Ask, Course, answer, answers, limit_of, may_repeat
from bullmq_protocol.net.handshake import (
    INFO_COMMANDS,
    LOGIN_CODES,
    NO_TLS,
    WITH_TLS,
    Handshake,
    login_commands,
    without_tls,
)
from bullmq_protocol.net.server_info import ServerInfo
from bullmq_sync.net.closable import Closable
from bullmq_sync.net.room import check_room
from bullmq_sync.primitives import in_each_process

Line: TypeAlias = tuple[str | bytes, ...]
"""One command as the client takes it: its name, then bytes."""

_log = logging.getLogger("bullmq_sync")

# redis-py cuts the first word off these error replies.
_CODES: Final[Mapping[type[RedisError], str]] = MappingProxyType(
    {
        AskError: "ASK",
        AuthenticationError: "NOAUTH",
        BusyLoadingError: "LOADING",
        ClusterCrossSlotError: "CROSSSLOT",
        ClusterDownError: "CLUSTERDOWN",
        ExecAbortError: "EXECABORT",
        MasterDownError: "MASTERDOWN",
        MovedError: "MOVED",
        NoPermissionError: "NOPERM",
        NoScriptError: "NOSCRIPT",
        OutOfMemoryError: "OOM",
        ReadOnlyError: "READONLY",
        TryAgainError: "TRYAGAIN",
    }
)
FAILURES = (RedisError, OSError, TypeError, MemoryError)
"""What a call of the client raises of a connection. hiredis raises the last two for a map with a list as a key, and for
an array too long for the memory."""
RAW: Final[Mapping[str, Any]] = MappingProxyType({"NEVER_DECODE": True})
"""With `decode_responses` too, replies are bytes."""
_ENDINGS = ("Error while reading", "while writing to socket", "Connection closed by server")
"""Stands in redis-py's errors of a connection that the server ended."""
_AT_ONCE = 10
"""This many calls keep a server busy. More connections would cost both sides, and the pool has a limit."""
_MULTI: Line = ("MULTI ",)
_EXEC: Line = ("EXEC ",)


class ClientTransport(Closable, ABC):
    """What the transports over clients have in common. A failure of a connection lets the server be checked anew."""

    def __init__(
        self, client: Any, limit_ms: Millis | None, parent: ClientTransport | None = None, name: str | None = None
    ) -> None:
        self._client = client
        self._pool: Any = client.connection_pool
        self._limit_ms = limit_ms
        self._at_once = max(1, min(_AT_ONCE, self._pool.max_connections // 2))
        self._parent = parent
        self._client_name = name
        self._children: set[ClientTransport] = set()
        known: Mapping[str, Any] = self._pool.connection_kwargs
        self._user: str | None = known.get("username")
        self._password: str | None = known.get("password")
        self._address = _address_of(self._pool)
        self._info: ServerInfo | None = None
        self._warned = parent is not None
        self._closed: bool = parent is not None and parent._closed
        in_each_process(self._renew)

    def _renew(self) -> None:
        self._is_checked = False
        self._sourced: set[str] = set()

    def server_info(self) -> ServerInfo:
        """Return the server info; asks if that has not happened yet. Raises as `perform` does."""
        if self._info is None:
            self.perform(Batch(()))
        assert self._info is not None
        return self._info

    def has_ended(self) -> bool:
        """Tell False: the client looks at its connections itself."""
        return False

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of errors.

        Raises `ServerError` (an error reply to a single command), `ConnectionLost`, `TransportTimeout`, `Closed`, and
        while connecting `AuthenticationFailed` or `ServerTooOld`; `UsageError` for a blocking command that is not on a
        dedicated transport.
        """
        limit_ms = self._limit_ms
        if isinstance(step, Command):
            limit_ms = limit_of(step, limit_ms, dedicated=self._parent is not None)
        check_room()
        if not self._is_checked:
            self._handshake()
        try:
            return self._run(step, limit_ms)
        except (ConnectionLost, TransportTimeout) as error:
            if not self._may_repeat(step, error):
                raise
        self._handshake()
        return self._run(step, limit_ms)

    def _may_repeat(self, step: Command[Any] | Batch, error: TransportError) -> bool:
        # Each call makes one attempt to connect.
        return may_repeat(step, error) and not was_connecting(error.__cause__)

    def _run(self, step: Command[Any] | Batch, limit_ms: Millis | None) -> Any:
        if isinstance(step, Batch):
            return self._follow(answers(step))
        (reply,) = self._exchange((step,), limit_ms)
        return reply if type(reply) is not ServerError else self._follow(answer(step, reply))

    def _follow(self, course: Course) -> Any:
        """Send what a course asks for, until it returns."""
        resume: Any = course.send
        value: Any = None
        while True:
            try:
                ask: Ask = resume(value)
            except StopIteration as stop:
                return stop.value
            try:
                replies = self._exchange(ask.commands, self._limit_ms, afresh=ask.afresh, atomic=ask.atomic)
                resume, value = course.send, replies
            except TransportError as error:
                resume, value = course.throw, error

    def _exchange(
        self, commands: Sequence[Command[Any]], limit_ms: Millis | None, *, afresh: bool = False, atomic: bool = False
    ) -> list[Any]:
        """Send commands in one go and return their replies. A script goes with its source until one was answered."""
        known = () if afresh else self._sourced
        new: set[str] = set()
        lines: list[Line] = []
        for command in commands:
            script = command.script
            is_new = script is not None and script.sha1 not in known and script.sha1 not in new
            lines.append(line_of(command.wire(full_source=is_new)))
            if script is not None and is_new:
                new.add(script.sha1)
        if atomic:
            lines = [_MULTI, *lines, _EXEC]
        replies = self._said(lines, limit_ms)
        if new:
            self._sourced |= new
        return replies

    def _said(self, lines: Sequence[Line], limit_ms: Millis | None) -> list[Any]:
        if self._closed:
            raise Closed
        try:
            return self._say(lines, limit_ms)
        except FAILURES as error:
            self._forget()
            raise self._failure(error, is_alone=len(lines) == 1) from error
        except TransportError:
            self._forget()
            raise

    def _forget(self) -> None:
        """Ask for the server info again, and send the sources of scripts again: it may be another server."""
        self._is_checked = False
        self._sourced = set()

    @abstractmethod
    def _say(self, lines: Sequence[Line], limit_ms: Millis | None) -> list[Any]:
        """Let the client send commands in one go, and return the replies, errors as `ServerError`. Raises `FAILURES`.

        `limit_ms`: how long to wait for the replies; None is no limit.
        """

    def _handshake(self) -> None:
        """Ask for the server info; name the connection, if it is to have a name."""
        naming = login_commands((None, None), client_name=self._client_name)
        handshake = Handshake(self._address, self._user, (*naming, *INFO_COMMANDS))
        try:
            replies = self._said([line_of(each) for each in handshake.commands], self._handshake_limit_ms())
        except TransportError as error:
            # A reply that redis-py takes for the end of a connection comes without its batch.
            found = None if error.__cause__ is None else reply_of(error.__cause__)
            if found is not None and found.code in LOGIN_CODES:
                raise self._refused(found) from error
            raise type(error)(error.reason, maybe_applied=False) from error.__cause__
        result = handshake.read(replies)
        if result.unnamed is not None:
            _log.debug("the server refused the connection name %r: %s", self._client_name, result.unnamed)
        if result.warnings and not self._warned:
            self._warned = True
            for warning in result.warnings:
                _log.warning("%s: %s", self._address, warning)
        self._info = result.info
        self._is_checked = True

    def _handshake_limit_ms(self) -> Millis | None:
        """Return how long the first replies are waited for, and the connection before them."""
        return self._limit_ms

    def _failure(self, error: BaseException, *, is_alone: bool) -> Exception:
        """Return our own error for one of `FAILURES`. `is_alone`: nothing was sent but one command."""
        is_connecting = was_connecting(error)
        if self._closed:
            return Closed(maybe_applied=not is_connecting)
        kind = TransportTimeout if isinstance(error, (RedisTimeoutError, TimeoutError)) else ConnectionLost
        if isinstance(error, (TypeError, MemoryError)):
            return ConnectionLost(f"the server sent no RESP: {error!r}", maybe_applied=not is_connecting)
        if not is_connecting:
            # A master that was replaced refused the command: redis-py reports it as the end of the connection.
            is_refused = is_alone and isinstance(error.__context__, ReadOnlyError)
            return kind(str(error), maybe_applied=not is_refused)
        error.args = tuple(refusal_of_login(str(each), self._password) for each in error.args)
        found = reply_of(error)
        if found is not None:
            if isinstance(error, (AuthenticationError, AuthorizationError)) or found.code in LOGIN_CODES:
                return self._refused(found)
            if isinstance(error, ResponseError):
                return UsageError("connection", self._address, f"is refused by the server: {found}")
        # One that was there once has not changed its ways.
        reason = explained_end(self._pool.connection_class, error) if self._info is None else str(error)
        return kind(f"cannot connect to {self._address}: {reason}", maybe_applied=False)

    def _refused(self, found: ServerError) -> AuthenticationFailed:
        return AuthenticationFailed(f"{found} (user {self._user or 'default'!r} at {self._address})")


def say(client: Any, lines: Sequence[Line]) -> list[Any]:
    """Let a client send commands in one go, and return the replies as they came, errors as `ServerError`."""
    if len(lines) == 1:
        try:
            return [client.execute_command(*lines[0], **RAW)]
        except RedisError as error:
            found = None if was_connecting(error) else reply_of(error)
            if found is None:
                raise
            return [found]
    with client.pipeline(transaction=False) as pipeline:
        for line in lines:
            pipeline.execute_command(*line, **RAW)
        return [as_ours(each) for each in pipeline.execute(raise_on_error=False)]


def read_on(connection: Any, count: int, how: Mapping[str, Any]) -> list[Any]:
    """Return this many replies of a connection that was taken out of the client's pool, errors as `ServerError`."""
    replies: list[Any] = []
    for _ in range(count):
        try:
            replies.append(as_ours(connection.read_response(disable_decoding=True, disconnect_on_error=False, **how)))
        except RedisError as error:
            found = reply_of(error)
            if found is None:
                raise
            replies.append(found)
    return replies


def check_client(client: object, kind: type, how_to_build: str) -> None:
    """Refuse anything but a client, and a client that repeats commands automatically. Raises `UsageError`."""
    given = type(client)
    anything: Any = client
    if not isinstance(client, kind):
        reason = f"must be a {kind.__module__.removesuffix('.client')}.{kind.__name__}"
        raise UsageError("client", given, f"{reason}; a URL or options: bullmq_sync.connect(...)")
    known = anything.connection_pool.connection_kwargs
    retry = known.get("retry")
    if (
        # `get_retries()` came with redis-py 6.
        (retry is not None and getattr(retry, "_retries", None) != 0)
        or known.get("retry_on_timeout")
        or (known.get("retry_on_error") or ())
    ):
        raise UsageError("client", given, f"must not repeat commands automatically: build it as {how_to_build}")


def line_of(words: Sequence[Arg]) -> Line:
    """Return a command as the client takes it: a name for which none of its readers of replies stands, then bytes.

    The space after the name does that: redis-py splits names at spaces when it sends them, and looks them up whole.
    """
    name, *args = words
    try:
        return (
            f"{name!s} ",
            *[arg if isinstance(arg, bytes) else str(arg).encode("utf-8", "surrogateescape") for arg in args],
        )
    except UnicodeEncodeError as error:
        raise UsageError("argument", error.object, "holds a lone surrogate, which has no form on the wire") from None


def reply_of(error: BaseException) -> ServerError | None:
    """Return an error reply as it came, None for another error of redis-py."""
    if not isinstance(error, ResponseError) and type(error) not in _CODES:
        return None
    text = str(error)
    code: str | None = getattr(error, "status_code", None) or _CODES.get(cast("type[RedisError]", type(error)))
    return ServerError(text if code is None or text.startswith(f"{code} ") else f"{code} {text}")


def as_ours(reply: Any) -> Any:
    """Return a reply of the client with our errors in place of its own, also among the replies to a transaction."""
    if isinstance(reply, list):
        items = cast("Sequence[Any]", reply)
        return [reply_of(each) or each if isinstance(each, RedisError) else each for each in items]
    return (reply_of(reply) or reply) if isinstance(reply, RedisError) else reply


def taken_for(pool: Any) -> tuple[str, ...]:
    """Return what `get_connection` of a pool asks for: before redis-py 5.3 the name of a command, nothing since."""
    asked = signature(pool.get_connection).parameters.get("command_name")
    return ("PING",) if asked is not None and asked.default is Parameter.empty else ()


def was_connecting(error: BaseException | None) -> bool:
    """Tell whether an error came up before the client had a connection to send on: nothing was sent."""
    # The method of all pools, public in each version.
    return error is not None and _came_through(error, "get_connection")


def explained_end(kind: type, error: BaseException) -> str:
    """Return what to say of an error while a connection of this kind was made: about TLS, where it may be that."""
    reason = str(error)
    names = [each.__name__ for each in kind.__mro__]
    if any("SSL" in name for name in names):
        met = error.__context__
        if isinstance(error, RedisTimeoutError) and met is not None and _came_through(met, "_wrap_socket_with_ssl"):
            return NO_TLS
        return str(without_tls(OSError(reason)))
    is_plain = not any("Unix" in name for name in names)
    return f"{reason} {WITH_TLS}" if is_plain and any(words in reason for words in _ENDINGS) else reason


def _came_through(error: BaseException, function: str) -> bool:
    """Tell whether an error was raised in a function, or in one that it called."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == function:
            return True
        trace = trace.tb_next
    return False


def _address_of(pool: Any) -> str:
    """Return where the connections of a pool lead, for messages."""
    known: Mapping[str, Any] = pool.connection_kwargs
    service = getattr(pool, "service_name", None)
    if service is not None:
        return f"the master of {service!r}"
    path = known.get("path")
    return str(path) if path else f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
