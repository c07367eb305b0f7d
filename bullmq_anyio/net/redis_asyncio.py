"""A transport like a `redis.asyncio` client that the user has: same address, same login, connections of its own.

The client's pool is not used: one connection of the client's kind is shared by all calls, as the native one is, so that
nothing repeats a command behind our back. For asyncio only.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol, cast

import anyio
import redis.asyncio
from redis.asyncio.retry import Retry
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

from bullmq_anyio.net.connection import SharedConnection
from bullmq_anyio.net.link import Link, RoleLink
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ServerError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import refusal_of_login
from bullmq_protocol.net.handshake import LOGIN_CODES

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
_HOW_TO_BUILD = (
    "must not repeat commands by itself: build it as redis.asyncio.Redis(..., retry=Retry(NoBackoff(), 0)), with Retry "
    "from redis.asyncio.retry and NoBackoff from redis.backoff, and without retry_on_timeout and retry_on_error"
)
_RESP3_ONLY = ("maint_", "maintenance_", "oss_cluster_", "orig_")


class RedisAsyncioTransport(SharedConnection):
    """A transport made from a `redis.asyncio.Redis`; the client stays its owner's and is not closed.

    With one of `redis.asyncio.sentinel.Sentinel.master_for` each connection asks the sentinels anew. For a cluster use
    `bullmq_anyio.connect`.

    Raises `UsageError` for a client that repeats commands by itself. `decode_responses` makes no difference.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        *,
        connect_timeout_ms: Millis = 5000,
        command_timeout_ms: Millis | None = 3000,
    ) -> None:
        if not isinstance(client, redis.asyncio.Redis):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("client", type(client), "must be a redis.asyncio.Redis")
        pool = cast("_Pool", client.connection_pool)
        known = pool.connection_kwargs
        if (
            # `get_retries()` came with redis-py 6.
            getattr(known.get("retry"), "_retries", 0) != 0
            or known.get("retry_on_timeout")
            or (known.get("retry_on_error") or ())
        ):
            raise UsageError("client", type(client), _HOW_TO_BUILD)
        service = getattr(pool, "service_name", None)
        place = known.get("path") or f"{known.get('host', 'localhost')}:{known.get('port', 6379)}"
        if service is not None:
            place = f"the master of {service!r}"
        super().__init__(
            f"{place}/{known.get('db') or 0}",
            connect_timeout_ms=connect_timeout_ms,
            command_timeout_ms=command_timeout_ms,
            client_name=known.get("client_name"),
        )
        self._client = client
        self._user: str | None = known.get("username")
        self._password: str | None = known.get("password")
        self._make = pool.connection_class
        self._arguments = {
            **{name: value for name, value in known.items() if not name.startswith(_RESP3_ONLY)},
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            "decode_responses": False,
            "health_check_interval": 0,
            "socket_timeout": None,
        }

    def _twin(self, client_name: str | None) -> RedisAsyncioTransport:
        twin = RedisAsyncioTransport(
            self._client, connect_timeout_ms=self._connect_timeout_ms, command_timeout_ms=self._command_timeout_ms
        )
        twin._client_name = client_name
        return twin

    async def _open(self) -> Link:
        connection = self._make(**{**self._arguments, "client_name": self._client_name})
        try:
            await connection.connect()
        except RedisError as error:
            await _drop(connection)
            error.args = tuple(refusal_of_login(str(each), self._password) for each in error.args)
            found = _server_error(error)
            if isinstance(error, (AuthenticationError, AuthorizationError)) or found.code in LOGIN_CODES:
                raise AuthenticationFailed(f"{found} (user {self._user or 'default'!r} at {self._address})") from error
            raise ConnectionLost(f"cannot connect to {self._address}: {error}", maybe_applied=False) from error
        except (TypeError, MemoryError) as error:
            # hiredis raises them for a map with a list as a key, and an array too long for the memory.
            await _drop(connection)
            raise ConnectionLost(f"the server sent no RESP: {error!r}", maybe_applied=False) from error
        except BaseException:
            await _drop(connection)
            raise
        link = _ConnectionLink(connection, self._command_timeout_ms, exclusive=self._parent is not None)
        try:
            await self._greet(link, (), self._user, self._address)
        except BaseException:
            link.die(ConnectionLost, "the handshake failed")
            raise
        return link


class _Transport(Protocol):
    def abort(self) -> None: ...


class _Writer(Protocol):
    transport: _Transport

    def get_extra_info(self, name: str) -> Any: ...


class _Reader(Protocol):
    def at_eof(self) -> bool: ...


class _Connection(Protocol):
    """What is used of redis.asyncio's connections."""

    _reader: _Reader | None
    _writer: _Writer | None

    async def connect(self) -> None: ...
    async def disconnect(self, nowait: bool = False) -> None: ...
    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None: ...
    async def read_response(self, disable_decoding: bool = False, *, disconnect_on_error: bool = True) -> Any: ...


class _Pool(Protocol):
    connection_class: Callable[..., _Connection]
    connection_kwargs: dict[str, Any]


class _ConnectionLink(RoleLink):
    """A link over one connection of redis.asyncio, connected."""

    def __init__(self, connection: _Connection, write_limit_ms: Millis | None, *, exclusive: bool) -> None:
        super().__init__(write_limit_ms, exclusive=exclusive)
        self._connection = connection

    def _close(self) -> None:
        # Its own disconnect() waits; this is at once, and ends a read that is under way.
        connection = self._connection
        writer = connection._writer  # pyright: ignore[reportPrivateUsage]
        connection._reader = connection._writer = None  # pyright: ignore[reportPrivateUsage]
        if writer is not None:
            writer.transport.abort()

    def _send_now(self, data: bytes) -> int:
        return 0

    async def _send_rest(self, rest: memoryview) -> None:
        self._unsent = ()
        try:
            await self._connection.send_packed_command(bytes(rest), check_health=False)
        except (RedisError, OSError) as error:
            self.die(ConnectionLost, f"writing failed: {error}")

    async def _receive(self) -> None:
        reply: Any = None
        deadline = self._deadline()
        with anyio.move_on_after(None if deadline == math.inf else deadline - monotonic()) as scope:
            try:
                # Cancelling this loses no bytes: what was read is in the parser.
                reply = await self._connection.read_response(True, disconnect_on_error=False)
            except RedisError as error:
                if not isinstance(error, ResponseError) and type(error) not in _CODES:
                    self.die(ConnectionLost, f"reading failed: {error}")
                    return
                reply = error
            except (OSError, TypeError, MemoryError) as error:
                self.die(ConnectionLost, f"reading failed: {error!r}")
                return
        if scope.cancelled_caught:
            self.die(TransportTimeout, "no reply within the time limit")
        elif not self.dead:
            self._resolve(_ours(reply))

    def _look(self) -> None:
        reader = self._connection._reader  # pyright: ignore[reportPrivateUsage]
        writer = self._connection._writer  # pyright: ignore[reportPrivateUsage]
        # The event loop may not have had the time to see the end.
        if reader is None or writer is None or reader.at_eof() or _has_ended(writer.get_extra_info("socket")):
            self.die(ConnectionLost, "the server closed the connection")


def _has_ended(sock: socket.socket) -> bool:
    # asyncio guards its own socket object against reading.
    with socket.socket(fileno=os.dup(sock.fileno())) as twin:
        twin.setblocking(False)
        try:
            return not twin.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


async def _drop(connection: _Connection) -> None:
    with anyio.CancelScope(shield=True):
        await connection.disconnect(nowait=True)


def _ours(reply: Any) -> Any:
    if isinstance(reply, RedisError):
        return _server_error(reply)
    if isinstance(reply, list):
        return [_ours(item) for item in cast("Sequence[Any]", reply)]
    return reply


def _server_error(error: RedisError) -> ServerError:
    text = str(error)
    code: str | None = getattr(error, "status_code", None) or _CODES.get(type(error))
    return ServerError(text if code is None or text.startswith(f"{code} ") else f"{code} {text}")
