"""A blocking transport over redis-py: one connection that many threads share.

Whoever finds nobody at work leads: it takes every call that is pending, writes them in one go, reads the replies in
order, and hands the lead to a call that came meanwhile. There is no thread and no timer behind it. The connections are
redis-py's, but not its client, which would send commands again that may have run.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, cast

import redis
from redis.backoff import NoBackoff
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
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from bullmq_protocol.command import Arg, Batch, Command
from bullmq_protocol.common.keys import is_client_name
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ConnectionLost,
    ServerError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions, Login, parse_url, refusal_of_login
from bullmq_protocol.net.exchange import is_lost_script, limit_of, may_repeat, outcomes
from bullmq_protocol.net.handshake import ASKING, LOGIN_CODES, NO_TLS, WITH_TLS, Greeting, without_tls
from bullmq_protocol.net.server_info import INFO_SECTIONS, ServerInfo
from bullmq_protocol.net.topology import explained
from bullmq_protocol.net.transport import how_to_wrap
from bullmq_protocol.net.wire import packer
from bullmq_sync.forks import in_child
from bullmq_sync.net.connection import login_of

_log = logging.getLogger("bullmq_sync")

_CLOSE_WAIT_S = 1.0
# redis-py cuts the first word off these error replies.
_CODES: dict[type[RedisError], str] = {
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
# Stands in redis-py's errors of a connection that the server ended.
_ENDINGS = ("Error while reading", "while writing to socket", "Connection closed by server")
_MULTI = b"*1\r\n$5\r\nMULTI\r\n"
_EXEC = b"*1\r\n$4\r\nEXEC\r\n"
_INFO = b"".join(b"*2\r\n$4\r\nINFO\r\n$%d\r\n%b\r\n" % (len(name), name.encode()) for name in INFO_SECTIONS)
_DEFAULTS = ConnectionOptions()
# What a connection of ours has whatever the user's client has: plain bytes of RESP 2, no PING before a command.
OURS: dict[str, Any] = {"protocol": 2, "decode_responses": False, "health_check_interval": 0}
_RESP3_ONLY = ("maint_", "orig_", "oss_cluster_")
_HOW_TO_BUILD = (
    "must be built with its retries off, because a command that may have run is never sent again by itself: "
    "redis.Redis(..., retry=Retry(NoBackoff(), 0), retry_on_timeout=False, retry_on_error=[])"
)


class RawConnection(Protocol):
    """What is used of redis-py's connections, whose own methods are untyped."""

    @property
    def socket(self) -> socket.socket | None: ...
    @property
    def username(self) -> str | None: ...
    @property
    def password(self) -> str | None: ...
    def connect(self) -> None: ...
    def disconnect(self) -> None: ...
    def pack_command(self, *args: Arg) -> Sequence[bytes]: ...
    def send_packed_command(self, command: Sequence[bytes], check_health: bool, /) -> None: ...
    def can_read(self, timeout: float = 0) -> bool: ...
    def read_response(self, disable_decoding: bool, /, *, disconnect_on_error: bool) -> Any: ...


Connect = Callable[["str | None"], RawConnection]


class _Call:
    """One `perform` under way. `turn` is released when the call is answered, or when it is to lead."""

    __slots__ = ("begun", "done", "error", "leads", "moved", "open", "parts", "repeated", "replies", "step", "turn")

    def __init__(self, step: Command[Any] | Batch, pack: Callable[[Command[Any]], bytes]) -> None:
        self.step = step
        commands = step.commands if isinstance(step, Batch) else (step,)
        self.parts = [pack(command) for command in commands]
        self.replies: list[Any] = [None] * len(commands)
        # Numbers of the commands that have no reply yet.
        self.open: Sequence[int] = range(len(commands))
        self.error: BaseException | None = None
        self.leads = False
        self.repeated = False
        # Whether it was refused by a server that is not the one to ask any more.
        self.moved = False
        # Whether a part of it has run, while the rest is still to be sent.
        self.begun = False
        self.done = False
        self.turn = threading.Lock()
        self.turn.acquire()

    def finish(self, error: BaseException | None = None) -> None:
        self.error = error
        self.done = True
        if not self.leads:
            self.turn.release()


class RedisPyTransport:
    """A `Transport`, safe to share between threads; `dedicated()` gives one that can also be interrupted.

    `server` is a URL, a `ConnectionOptions`, or a `redis.Redis` whose address and login are then used for connections
    of our own; the client itself stays yours, is not closed, and must have its retries off (`UsageError` otherwise).
    A connection is made at the first call, checked (`AuthenticationFailed`, `ServerTooOld` below Redis 6.2), and made
    again by the next call after it was lost. A call is sent again by itself only if nothing of it was sent, or if it is
    `SAFE` and its connection broke; then once.
    """

    def __init__(self, server: str | ConnectionOptions | redis.Redis) -> None:
        if isinstance(server, str):
            server = parse_url(server)
        if isinstance(server, ConnectionOptions):
            connect, limit_s = _from_options(server), seconds(server.command_timeout_ms)
        elif isinstance(server, redis.Redis):  # pyright: ignore[reportUnnecessaryIsInstance]
            connect, limit_s = from_client(server)
        else:
            raise UsageError("connection", type(server), _what_it_must_be(server))
        self._begin(connect, limit_s, None, None)

    def _begin(
        self, connect: Connect, limit_s: float | None, client_name: str | None, parent: RedisPyTransport | None
    ) -> None:
        self._connect = connect
        self._limit_s = limit_s
        self._client_name = client_name
        self._parent = parent
        self._children: set[RedisPyTransport] = set()
        # Never connected: it turns commands into bytes.
        packing = self._packer = connect(None)
        self._pack_words = packer(lambda words: b"".join(packing.pack_command(*words)))
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._pending: list[_Call] = []
        self._led_by: int | None = None
        self._connection: RawConnection | None = None
        self._pid = 0
        self._loaded: set[str] = set()
        self._closed: bool = parent is not None and parent._closed
        self._interrupted = False
        self._connecting = False
        self._info: ServerInfo | None = None
        self._warned = parent is not None
        in_child(self._forked)

    def _forked(self) -> None:
        """In the child of a fork: what threads of the parent hold, and wait for, is theirs."""
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._pending = []
        self._led_by = None
        self._interrupted = False

    def dedicated(self, *, client_name: str | None = None) -> RedisPyTransport:
        """Return a transport with a connection of its own, for blocking commands; made and named at first use."""
        other = object.__new__(type(self))
        self._hand_on(other)
        other._begin(self._connect, self._limit_s, client_name, self)
        with self._lock:
            self._children.add(other)
        return other

    def server_info(self) -> ServerInfo:
        """Return what the server said of itself; connects if that has not happened yet. Raises as `perform` does."""
        if self._info is None:
            self.perform(Batch(()))
        assert self._info is not None
        return self._info

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of errors.

        Raises `ServerError` (an error reply to a single command), `ConnectionLost`, `TransportTimeout`, `Closed`, and
        while connecting `AuthenticationFailed` or `ServerTooOld`; `UsageError` for a blocking command that is not on a
        dedicated transport.
        """
        if isinstance(step, Command):
            limit_of(step, None, dedicated=self._parent is not None)
        call = _Call(step, self._pack)
        with self._lock:
            if self._closed:
                raise Closed
            self._pending.append(call)
            if self._led_by is None:
                self._led_by = threading.get_ident()
                call.leads = True
        if not call.leads:
            self._await_turn(call)
        if not call.done:
            self._lead()
        if call.error is not None:
            raise call.error
        if isinstance(step, Batch):
            return call.replies
        (reply,) = call.replies
        if isinstance(reply, ServerError):
            raise explained(reply)
        return reply

    def interrupt(self) -> None:
        """Make a `perform` that is blocked in another thread raise `ConnectionLost` at once; otherwise do nothing."""
        with self._lock:
            if self._led_by is not None:
                self._interrupted = True
                self._shut()

    def has_ended(self) -> bool:
        """Look, without waiting, whether the connection has been lost since it was used last."""
        with self._lock:
            connection = self._connection
            return self._led_by is None and connection is not None and has_ended(connection)

    def stop_connecting(self) -> None:
        """End an attempt to connect that is under way: who waits for it gets `ConnectionLost`. Otherwise do nothing."""
        with self._lock:
            if self._led_by is not None and self._connecting:
                self._interrupted = True
                for call in self._pending:
                    call.finish(ConnectionLost("the attempt to connect was given up", maybe_applied=False))
                self._pending = []
                self._shut()

    def close(self) -> None:
        """Close its connection and those made by `dedicated`. Waiting calls raise `Closed`. May be called twice."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
        for child in children:
            child.close()
        if self._parent is not None:
            with self._parent._lock:
                self._parent._children.discard(self)
        with self._idle:
            if self._led_by is None:
                self._drop()
            elif self._led_by != threading.get_ident():
                self._shut()
                # The leader drops the connection. While it is still connecting nothing can wake it, but it will.
                self._idle.wait_for(lambda: self._led_by is None, _CLOSE_WAIT_S)

    # --- leading ------------------------------------------------------------------------------------------------------

    def _await_turn(self, call: _Call) -> None:
        try:
            call.turn.acquire()
        except BaseException:
            # A signal handler raised: whoever waits behind this call must not wait for it.
            with self._lock:
                if call in self._pending:
                    self._pending.remove(call)
                if call.leads:
                    self._pass_on()
            raise

    def _lead(self) -> None:
        """Answer every call that is pending now, then pass the lead on."""
        with self._lock:
            self._led_by = threading.get_ident()
            calls, self._pending = self._pending, []
        try:
            waiting = calls
            while waiting:
                waiting = self._round(waiting)
        except BaseException as error:
            # An interrupt from the keyboard, in the thread that leads: the others learn that their call is lost.
            self._drop()
            for call in calls:
                if not call.done:
                    call.finish(ConnectionLost(f"the connection was dropped ({error!r})", maybe_applied=True))
            raise
        finally:
            with self._lock:
                if self._closed:
                    self._drop()
                self._pass_on()

    def _pass_on(self) -> None:
        """Give the lead to the oldest pending call, if there is one. The lock is held."""
        self._interrupted = False
        if self._closed:
            for call in self._pending:
                call.finish(Closed())
            self._pending = []
        if self._pending:
            self._pending[0].leads = True
            self._pending[0].turn.release()
        else:
            self._led_by = None
            self._idle.notify_all()

    def _round(self, calls: list[_Call]) -> list[_Call]:
        """Write all calls, read their replies; return those to be sent once more."""
        again: list[_Call] = []
        sent = False
        try:
            connection = self._ready()
            data = b"".join([piece for call in calls for piece in self._pieces(call)])
            self._check_open()
            self._set_limit(connection, self._limit_s)
            sent = True
            connection.send_packed_command((data,), False)
            while calls:
                call = calls[0]
                self._read_call(connection, call)
                calls = calls[1:]
                if call.open:
                    again.append(call)
                else:
                    call.finish()
        except (BullMQError, RedisError, OSError) as caught:
            self._drop()
            for call in calls:
                error = self._ours(caught, sent or call.begun)
                # Where nothing was sent a fresh connection was just tried.
                lost = sent and not (self._interrupted or call.repeated)
                if lost and type(error) is ConnectionLost and may_repeat(call.step, error):
                    call.repeated = True
                    again.append(call)
                else:
                    call.finish(error)
        return again

    # --- bytes --------------------------------------------------------------------------------------------------------

    def _pack(self, command: Command[Any], *, full_source: bool = False) -> bytes:
        return self._pack_words(command.wire(full_source=full_source))

    def _pieces(self, call: _Call) -> list[bytes]:
        """Return what to send for a call's open commands: a script in full if this connection has not sent it yet."""
        commands = call.step.commands if isinstance(call.step, Batch) else (call.step,)
        # Inside MULTI a missing script would not undo the rest, so there each one comes in full before it is used.
        atomic = isinstance(call.step, Batch) and call.step.atomic
        loaded: set[str] = set() if atomic else self._loaded
        pieces: list[bytes] = [_MULTI] if atomic else []
        for number in call.open:
            script = commands[number].script
            if script is None or script.sha1 in loaded:
                pieces.append(call.parts[number])
            else:
                loaded.add(script.sha1)
                pieces.append(self._pack(commands[number], full_source=True))
        if atomic:
            pieces.append(_EXEC)
        return pieces

    def _read_call(self, connection: RawConnection, call: _Call) -> None:
        step = call.step
        if isinstance(step, Batch) and step.atomic:
            self._read_transaction(connection, call)
            return
        if isinstance(step, Command) and step.block_ms is not None:
            limit_s = seconds(limit_of(step, None, dedicated=True))
            self._set_limit(connection, limit_s)
            self._await_reply(connection, limit_s)
        missing: list[int] = []
        for number in call.open:
            reply = read_reply(connection)
            command = step.commands[number] if isinstance(step, Batch) else step
            if command.script is not None and is_lost_script(command, reply):
                self._loaded.discard(command.script.sha1)
                missing.append(number)
            elif not call.moved and self._must_move(reply):
                missing.append(number)
            call.replies[number] = reply
        call.begun = len(missing) < len(call.open)
        call.moved = any(self._must_move(call.replies[number]) for number in missing)
        call.open = missing

    def _read_transaction(self, connection: RawConnection, call: _Call) -> None:
        replies = [read_reply(connection) for _ in range(len(call.replies) + 2)]
        call.replies = [_server_error(each) if isinstance(each, RedisError) else each for each in outcomes(replies)]
        refused = all(isinstance(reply, ServerError) for reply in call.replies)
        if not call.moved and refused and any(map(self._must_move, call.replies)):
            call.moved = True
        else:
            call.open = ()

    # --- the connection -----------------------------------------------------------------------------------------------

    def _ready(self) -> RawConnection:
        """Return a connection that is open, as far as can be known without sending."""
        connection = self._connection
        ours = connection is not None and self._pid == os.getpid()
        if connection is not None and ours and not has_ended(connection) and self._is_current(connection):
            return connection
        self._drop()
        self._connecting = True
        try:
            return self._connected()
        finally:
            self._connecting = False

    def _connected(self) -> RawConnection:
        self._check_open()
        connection = self._connect(self._client_name)
        cast("Ours", connection).is_over = self._is_over
        self._pid = os.getpid()
        # Known from here on, so that `close` and `interrupt` reach it.
        self._connection = connection
        try:
            self._establish(connection)
            connection.send_packed_command((_INFO,), False)
            replies = [read_reply(connection) for _ in INFO_SECTIONS]
        except RedisError as error:
            error.args = tuple(refusal_of_login(str(each), connection.password) for each in error.args)
            answer = _server_error(error)
            if isinstance(error, (AuthenticationError, AuthorizationError)) or answer.code in LOGIN_CODES:
                raise AuthenticationFailed(str(answer)) from error
            if isinstance(error, ResponseError):
                raise UsageError("connection", repr(self._packer), f"is refused by the server: {answer}") from error
            if self._info is None and (told := explained_end(connection, error)) != str(error):
                raise RedisConnectionError(told) from error
            raise
        self._check_server(connection, replies)
        self._opened(connection)
        return connection

    # What several servers need beside: see redis_py_sentinel.

    def _hand_on(self, other: RedisPyTransport) -> None:
        """Give a dedicated transport what it shares with this one."""

    def _establish(self, connection: RawConnection) -> None:
        """Connect it. Raises our errors, and redis-py's."""
        connection.connect()

    def _opened(self, connection: RawConnection) -> None:
        """See to a fresh connection; raise if it is not to be used."""

    def _is_current(self, connection: RawConnection) -> bool:
        """Whether a connection that is open is still the one to use."""
        return True

    def _must_move(self, reply: Any) -> bool:
        """Whether a reply means that the command did not run and belongs elsewhere: it is sent again, once."""
        return False

    def _await_reply(self, connection: RawConnection, limit_s: float | None) -> None:
        """Wait for the reply to a blocking command, if more than its time limit can end the waiting."""

    def _check_server(self, connection: RawConnection, replies: list[Any]) -> None:
        greeted = Greeting(_address_of(connection), connection.username, ASKING).read(replies)
        if greeted.warnings and not self._warned:
            self._warned = True
            for warning in greeted.warnings:
                _log.warning("%s: %s", _address_of(connection), warning)
        self._info = greeted.info

    def _is_over(self) -> bool:
        return self._closed or self._interrupted

    def _check_open(self) -> None:
        if self._closed:
            raise Closed
        if self._interrupted:
            raise ConnectionLost("interrupted", maybe_applied=False)

    def _set_limit(self, connection: RawConnection, limit_s: float | None) -> None:
        sock = connection.socket
        if sock is not None and sock.gettimeout() != limit_s:
            sock.settimeout(limit_s)

    def _shut(self) -> None:
        """Wake the thread that leads out of its socket. It alone closes the socket, whose number could be reused."""
        sock = None if self._connection is None else self._connection.socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._loaded.clear()
        if connection is not None:
            connection.disconnect()

    def _ours(self, error: Exception, sent: bool) -> Exception:
        """Return our own error for one call; each thread raises an exception of its own."""
        ours: Exception
        if isinstance(error, BullMQError):
            ours = type(error).__new__(type(error), *error.args)
            ours.__dict__.update(error.__dict__)
            if isinstance(ours, TransportError):
                ours.maybe_applied = sent
            return ours
        if self._closed:
            ours = Closed(maybe_applied=sent)
        elif self._interrupted:
            ours = ConnectionLost("interrupted", maybe_applied=sent)
        elif isinstance(error, (RedisTimeoutError, TimeoutError)):
            ours = TransportTimeout(str(error), maybe_applied=sent)
        else:
            ours = ConnectionLost(str(error), maybe_applied=sent)
        ours.__cause__ = error
        return ours


def context_of(tls: Any) -> ssl.SSLContext | None:
    """Return the context that the option means, None without TLS. Raises `UsageError`."""
    if not isinstance(tls, (bool, ssl.SSLContext)):
        raise UsageError("tls", tls, "must be True, False or an ssl.SSLContext")
    return ssl.create_default_context() if tls is True else (tls or None)


def _from_options(options: ConnectionOptions) -> Connect:
    context = context_of(options.tls)
    common: dict[str, Any] = {
        "db": options.db,
        "socket_timeout": seconds(options.command_timeout_ms),
        "socket_connect_timeout": seconds(options.connect_timeout_ms),
        **OURS,
    }

    place: dict[str, Any]
    if options.unix_path is not None:
        make, place = exposed(redis.UnixDomainSocketConnection), {"path": options.unix_path}
    elif context is not None:
        make, place = exposed(TlsConnection), {"host": options.host, "port": options.port, "context": context}
    else:
        make, place = exposed(redis.Connection), {"host": options.host, "port": options.port}

    def connect(client_name: str | None) -> RawConnection:
        name = options.client_name if client_name is None else client_name
        if name is not None and not is_client_name(name):
            _log.debug("the server would refuse the connection name %r", name)
            name = None
        retry = Retry(NoBackoff(), 0)
        connection = make(**place, **common, client_name=name, retry=retry)
        cast("Ours", connection).login = partial(login_of, options)
        return connection

    return connect


class Ours:
    """Show the socket, which redis-py keeps to itself: its time limit depends on the command, and it can be shut.
    `login` is asked whenever it connects."""

    _sock: socket.socket | None
    username: str | None
    password: str | None
    login: Callable[[], Login] | None = None
    is_over: Callable[[], bool] | None = None
    """Whether it was closed while nobody could see its socket yet."""

    def _connect(self) -> Any:
        sock = self._sock = cast("Any", super())._connect()
        if self.is_over is not None and self.is_over():
            self._sock = None
            sock.close()
            raise OSError("closed while it was being connected")
        return sock

    def log_in(self) -> None:
        if self.login is not None:
            self.username, self.password = self.login()

    def connect(self) -> None:
        self.log_in()
        cast("Any", super()).connect()

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> Any:
        # That of redis-py's own connections with TLS.
        return _shaking_hands(lambda: cast("Any", super(Ours, self))._wrap_socket_with_ssl(sock))

    def can_read(self, timeout: float = 0) -> bool:
        try:
            return bool(cast("Any", super()).can_read(timeout))
        except (TypeError, MemoryError) as error:
            raise _no_resp(error) from error

    def read_response(self, *args: Any, **options: Any) -> Any:
        # Not that of the sentinels' connections, which make a lost connection of a refusal.
        try:
            return cast("Any", redis.Connection.read_response)(self, *args, **options)
        except (TypeError, MemoryError) as error:
            raise _no_resp(error) from error

    @property
    def socket(self) -> socket.socket | None:
        return self._sock


def _shaking_hands(begin: Callable[[], Any]) -> Any:
    try:
        return begin()
    except TimeoutError as error:
        raise RedisTimeoutError(NO_TLS) from error
    except OSError as error:
        raise without_tls(error) from error.__cause__


def _no_resp(error: Exception) -> RedisConnectionError:
    """Return the end of the connection: hiredis raised for an array too long for the memory, or for a list as a key."""
    return RedisConnectionError(f"the server sent no RESP: {error!r}")


def exposed(kind: type) -> Callable[..., RawConnection]:
    """Return a class of redis-py's connections as one of ours."""
    return cast("Callable[..., RawConnection]", type(kind.__name__, (Ours, kind), {}))


class TlsConnection(redis.Connection):
    """redis-py's own one takes no `ssl.SSLContext`."""

    def __init__(self, *, context: ssl.SSLContext, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self._context = context

    def _connect(self) -> socket.socket:
        plain: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
        try:
            # Before the handshake redis-py sets the limit of commands.
            plain.settimeout(self.socket_connect_timeout)
            sock = _shaking_hands(lambda: self._context.wrap_socket(plain, server_hostname=self.host))
            sock.settimeout(self.socket_timeout)
            return cast("socket.socket", sock)
        except BaseException:
            plain.close()
            raise


_NOT_PLAIN = (TlsConnection, redis.SSLConnection, redis.UnixDomainSocketConnection)


def _address_of(connection: Any) -> str:
    path: str | None = getattr(connection, "path", None)
    return path or f"{connection.host}:{connection.port}"


def explained_end(connection: object, error: Exception) -> str:
    """Return what to say of an error at the first commands: one with TLS ends the connection on plain words."""
    told = str(error)
    is_plain = not isinstance(connection, _NOT_PLAIN) and any(words in told for words in _ENDINGS)
    return f"{told} {WITH_TLS}" if is_plain else told


def _what_it_must_be(client: object) -> str:
    hint = how_to_wrap(client)
    return "must be a URL, a ConnectionOptions or a redis.Redis" + ("" if hint is None else f": {hint}")


def from_client(client: redis.Redis) -> tuple[Connect, float | None]:
    """Return what makes connections like those of a client, and its time limit for commands."""
    pool = client.connection_pool
    known: dict[str, Any] = pool.connection_kwargs
    retry = known.get("retry")
    if (
        (retry is not None and getattr(retry, "_retries", None) != 0)  # `get_retries` came with redis-py 6
        or known.get("retry_on_timeout")
        or (known.get("retry_on_error") or ())
    ):
        raise UsageError("connection", type(client), _HOW_TO_BUILD)
    kwargs = {key: value for key, value in known.items() if not key.startswith(_RESP3_ONLY)} | OURS
    kwargs.setdefault("socket_timeout", seconds(_DEFAULTS.command_timeout_ms))
    kwargs.setdefault("socket_connect_timeout", seconds(_DEFAULTS.connect_timeout_ms))
    make = exposed(pool.connection_class)

    def connect(client_name: str | None) -> RawConnection:
        name = {} if client_name is None or not is_client_name(client_name) else {"client_name": client_name}
        return make(**{**kwargs, **name})

    return connect, kwargs["socket_timeout"]


def read_reply(connection: RawConnection) -> Any:
    """Return one reply, an error reply as a `ServerError` value. Raises redis-py's errors of a broken connection."""
    try:
        return connection.read_response(True, disconnect_on_error=False)
    except RedisError as error:
        if isinstance(error, ResponseError) or type(error) in _CODES:
            return _server_error(error)
        raise


def _server_error(error: RedisError) -> ServerError:
    text = str(error)
    code: str | None = getattr(error, "status_code", None) or _CODES.get(type(error))
    return ServerError(text if code is None or text.startswith(f"{code} ") else f"{code} {text}")


def has_ended(connection: RawConnection) -> bool:
    """Whether the server closed an idle connection. Nothing is owed on it, so anything to read is its end."""
    sock = connection.socket
    if sock is None:
        return True
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


def seconds(limit_ms: Millis | None) -> float | None:
    """Return a time limit as redis-py takes it."""
    return None if limit_ms is None else limit_ms / 1000
