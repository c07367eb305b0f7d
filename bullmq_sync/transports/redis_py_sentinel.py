"""A blocking transport to the master that sentinels name, over redis-py's own Sentinel.

The sentinel that named the master is listened to: a word of a switch, or its end, lets the sentinels be asked anew.
That closes the seconds in which a master that was replaced as planned still takes commands, which are lost afterwards.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import select
from functools import partial
from time import monotonic
from typing import Any, Protocol, Self, cast

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError, ResponseError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool, SentinelManagedConnection

from bullmq_protocol.address import ConnectionOptions
from bullmq_protocol.errors import AuthenticationFailed, ConnectionLost, ServerError, UsageError
from bullmq_protocol.keys import is_client_name
from bullmq_protocol.topology import Place, SentinelOptions, is_deposed
from bullmq_sync.connection import login_of
from bullmq_sync.transports.redis_py import (
    OURS,
    Connect,
    Ours,
    RawConnection,
    RedisPyTransport,
    TlsConnection,
    context_of,
    exposed,
    from_client,
    has_ended,
    read_reply,
    seconds,
)

_LOOK_S = 0.05
"""So often a connection in use looks whether its sentinel has spoken."""
_ALONE_S = 10.0
"""So often a connection whose sentinels are all gone looks for one."""


class _Managed(RawConnection, Protocol):
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class _Pool(Protocol):
    """What is used of redis-py's pool, whose own methods are untyped."""

    service_name: str
    sentinel_manager: Sentinel
    connection_class: type
    connection_kwargs: dict[str, Any]

    def get_master_address(self) -> Place: ...


class RedisPySentinelTransport(RedisPyTransport):
    """A transport as `RedisPyTransport`, to whatever server is the master of a service.

    `server` is `SentinelOptions`, or a client made by `redis.sentinel.Sentinel(...).master_for(...)`, which stays yours
    and must have its retries off. A command that a server refuses because it is not the master any more is sent to the
    next one, whatever its repeat class: it did not run.
    """

    def __init__(self, server: SentinelOptions | redis.Redis) -> None:
        if isinstance(server, SentinelOptions):
            pool, connect = _from_options(server)
            self._own = True
            limit_s = seconds(server.server.command_timeout_ms)
        else:
            if not is_sentinel_client(server):
                raise UsageError(
                    "connection", type(server), "must be SentinelOptions or a client of Sentinel.master_for"
                )
            connect, limit_s = from_client(server)
            pool = cast("_Pool", server.connection_pool)
        self._adopt(pool)
        self._begin(connect, limit_s, None, None)

    _own = False
    """Whether the clients of the sentinels are ours."""

    def close(self) -> None:
        """Close its connections and those made by `dedicated`. Waiting calls raise `Closed`. May be called twice."""
        super().close()
        if self._own:
            for sentinel in self._pool.sentinel_manager.sentinels:
                # Closing the client would leave the connections of a pool that was made for it.
                sentinel.connection_pool.disconnect()

    def _adopt(self, pool: _Pool) -> None:
        self._pool = pool
        self._watch: RawConnection | None = None
        self._deposed = False
        self._look_at = 0.0

    def _hand_on(self, other: RedisPyTransport) -> None:
        cast("Self", other)._adopt(self._pool)

    def _explain(self, error: RedisError) -> None:
        if not isinstance(error, MasterNotFoundError):
            return
        pool = self._pool
        told: list[str] = []
        unknown = 0
        for sentinel in pool.sentinel_manager.sentinels:
            try:
                is_known = pool.service_name in sentinel.sentinel_masters()
            except (AuthenticationError, AuthorizationError, NoPermissionError) as refusal:
                raise AuthenticationFailed(f"NOAUTH {refusal} (the sentinel at {_place_of(sentinel)})") from error
            except RedisError as failure:
                told.append(f"{_place_of(sentinel)}: {failure}")
            else:
                unknown += not is_known
                told.append(f"{_place_of(sentinel)}: {'names none that is up' if is_known else 'does not know it'}")
        if told and unknown == len(told) and self._info is None:
            places = ",".join(map(_place_of, pool.sentinel_manager.sentinels))
            raise UsageError("service", pool.service_name, f"is not known to the sentinels at {places}") from error
        raise ConnectionLost(
            f"no master of {pool.service_name!r} is to be had: {'; '.join(told)}", maybe_applied=False
        ) from error

    def _opened(self, connection: RawConnection) -> None:
        if self._info is not None and self._info.role not in ("", "master"):
            raise ConnectionLost("the sentinels name a server that is no master", maybe_applied=False)
        self._deposed = False
        self._listen()

    def _is_current(self, connection: RawConnection) -> bool:
        if self._deposed:
            return False
        now = monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + (_ALONE_S if self._watch is None else _LOOK_S)
        if self._watch is not None and not has_ended(self._watch):
            return True
        return self._is_still_named(cast("_Managed", connection))

    def _must_move(self, reply: Any) -> bool:
        if not is_deposed(reply):
            return False
        self._deposed = True
        return True

    def _await_reply(self, connection: RawConnection, limit_s: float | None) -> None:
        """Wait for the reply, or for the word that there is another master."""
        until = None if limit_s is None else monotonic() + limit_s
        while not connection.can_read(0):
            sock, watch = connection.socket, None if self._watch is None else self._watch.socket
            if sock is None:
                return
            poller = select.poll()
            poller.register(sock, select.POLLIN)
            if watch is not None:
                poller.register(watch, select.POLLIN)
            left = None if until is None else max(until - monotonic(), 0)
            if watch is None:
                left = _ALONE_S if left is None else min(left, _ALONE_S)
            ready = [number for number, _ in poller.poll(None if left is None else left * 1000)]
            if sock.fileno() in ready:
                return
            if until is not None and monotonic() >= until:
                raise TimeoutError("no reply within the time limit")
            if not self._is_still_named(cast("_Managed", connection)):
                raise ConnectionLost("the sentinels name another master", maybe_applied=True)

    def _drop(self) -> None:
        super()._drop()
        self._stop_listening()

    def _is_still_named(self, connection: _Managed) -> bool:
        """Ask the sentinels, and listen to the one that answers. No news is no reason to leave a master."""
        self._stop_listening()
        try:
            place = self._pool.get_master_address()
        except RedisError:
            self._look_at = monotonic() + _ALONE_S
            return True
        if tuple(place) != (connection.host, connection.port):
            return False
        self._listen()
        return True

    def _listen(self) -> None:
        self._stop_listening()
        # The one that answered is first.
        pool = self._pool.sentinel_manager.sentinels[0].connection_pool
        kwargs: dict[str, Any] = {**pool.connection_kwargs, **OURS, "retry": Retry(NoBackoff(), 0)}
        watch = exposed(pool.connection_class)(**kwargs)
        try:
            watch.connect()
            watch.send_packed_command(watch.pack_command("SUBSCRIBE", "+switch-master"), False)
            refused = isinstance(read_reply(watch), ServerError)
        except RedisError:
            refused = True
        if refused:
            watch.disconnect()
        else:
            self._watch = watch
        self._look_at = monotonic() + (_ALONE_S if refused else _LOOK_S)

    def _stop_listening(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.disconnect()


def is_sentinel_client(client: object) -> bool:
    """Whether a client was made by `Sentinel.master_for`."""
    if not isinstance(client, redis.Redis):
        return False
    pool: Any = client.connection_pool
    return isinstance(pool, SentinelConnectionPool) and bool(cast("Any", pool).is_master)


class _TlsManagedConnection(SentinelManagedConnection, TlsConnection):
    """A connection to the master with an `ssl.SSLContext`."""


def _from_options(options: SentinelOptions) -> tuple[_Pool, Connect]:
    manager = Sentinel([])  # type: ignore[no-untyped-call]
    limit_s = options.server.connect_timeout_ms / 1000 / (len(options.sentinels) + 1)
    manager.sentinels = [_sentinel_client(options.sentinel(place), limit_s) for place in options.sentinels]
    server = options.server
    context = context_of(server.tls)
    kwargs: dict[str, Any] = {
        "db": server.db,
        "socket_timeout": seconds(server.command_timeout_ms),
        "socket_connect_timeout": seconds(server.connect_timeout_ms),
        "retry": Retry(NoBackoff(), 0),
        "connection_class": SentinelManagedConnection if context is None else _TlsManagedConnection,
        **OURS,
    }
    if context is not None:
        kwargs["context"] = context
    pool = cast("_Pool", SentinelConnectionPool(options.service, manager, **kwargs))  # type: ignore[no-untyped-call]
    make = exposed(pool.connection_class)

    def connect(client_name: str | None) -> RawConnection:
        name = server.client_name if client_name is None else client_name
        if name is not None and not is_client_name(name):
            name = None
        connection = make(**pool.connection_kwargs, client_name=name)
        cast("Ours", connection).login = partial(login_of, server)
        return connection

    return pool, connect


def _place_of(sentinel: redis.Redis) -> str:
    kwargs: dict[str, Any] = sentinel.connection_pool.connection_kwargs
    return f"{kwargs.get('host')}:{kwargs.get('port')}"


def _sentinel_client(options: ConnectionOptions, limit_s: float) -> redis.Redis:
    context = context_of(options.tls)
    kwargs: dict[str, Any] = {
        "connection_class": redis.Connection if context is None else TlsConnection,
        "host": options.host,
        "port": options.port,
        "username": options.username,
        "password": options.password,
        "socket_timeout": limit_s,
        "socket_connect_timeout": limit_s,
        "retry": Retry(NoBackoff(), 0),
        **OURS,
    }
    if context is not None:
        kwargs["context"] = context
    return _SentinelClient(connection_pool=redis.ConnectionPool(**kwargs))


class _SentinelClient(redis.Redis):
    """Asks one sentinel. One that refuses the question, because it is none, is passed over as one that is down."""

    def sentinel_masters(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return cast("Any", super()).sentinel_masters(*args, **kwargs)
        except NoPermissionError:
            raise
        except ResponseError as refusal:
            raise redis.ConnectionError(str(refusal)) from refusal
