"""A blocking transport to the master that sentinels name, over redis-py's connections.

At each attempt to connect all sentinels are asked. The word of the latest epoch counts, and the server that is named
must say itself that it is a master. All of them are listened to: a word of a failover, or the end of one, lets them be
asked anew. The first such word comes before the next master is one; its promotion is waited for, while nothing is sent
to the old one. That closes the seconds in which a master that is replaced as planned still takes commands, which are
lost afterwards. redis-py's own `Sentinel` asks for the state of the old master, and of one sentinel.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
from functools import partial
from time import monotonic, sleep
from typing import Any, Protocol, Self, cast

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedConnection

from bullmq_protocol.common.keys import is_client_name
from bullmq_protocol.common.reply import as_text
from bullmq_protocol.errors import AuthenticationFailed, BullMQError, ConnectionLost, ServerError, UsageError
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.handshake import LOGIN_CODES
from bullmq_protocol.net.server_info import read_server_info
from bullmq_protocol.net.topology import (
    SENTINEL_EVENTS,
    Named,
    Place,
    SentinelOptions,
    is_deposed,
    ranked,
    read_sentinel,
    sentinel_question,
)
from bullmq_sync.net.connection import login_of
from bullmq_sync.net.redis_py import (
    OURS,
    Connect,
    Ours,
    RawConnection,
    RedisPyTransport,
    TlsConnection,
    context_of,
    explained_end,
    exposed,
    from_client,
    has_ended,
    read_reply,
    seconds,
)

_LOOK_S = 0.05
"""So often a connection in use looks whether its sentinels have spoken."""
_ALONE_S = 10.0
"""So often a connection whose sentinels are all gone looks for one."""
_SOME_S = 60.0
"""So often a connection looks for those that are missing, and so long one that took too long is not asked again."""
_PROMOTION_S = 1.0
"""So long the promotion of the chosen replica is waited for: a tenth of that is what it takes."""
_ASK_AGAIN_S = 0.01
_ASKING_S = 1.0
"""The time limit for a sentinel of a client that has none."""


class _Managed(RawConnection, Protocol):
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    def log_in(self) -> None: ...
    def connect_to(self, address: Place, /) -> None: ...


class _Pool(Protocol):
    """What is used of redis-py's pool, whose own methods are untyped."""

    service_name: str
    sentinel_manager: Sentinel
    connection_class: type
    connection_kwargs: dict[str, Any]


class RedisPySentinelTransport(RedisPyTransport):
    """A transport as `RedisPyTransport`, to whatever server is the master of a service.

    `server` is `SentinelOptions`, or a client made by `redis.sentinel.Sentinel(...).master_for(...)`, which stays yours
    and must have its retries off. A command that a server refuses because it is not the master any more is sent to the
    next one, whatever its repeat class: it did not run.
    """

    def __init__(self, server: SentinelOptions | redis.Redis) -> None:
        if isinstance(server, SentinelOptions):
            pool, connect = _from_options(server)
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

    def _adopt(self, pool: _Pool) -> None:
        self._pool = pool
        self._watches: list[RawConnection] = []
        self._asked: RawConnection | None = None
        """To a sentinel that has not answered yet."""
        self._silent: dict[str, float] = {}
        """Sentinels that took too long, and until when they are passed over if others answer."""
        self._deposed = False
        self._look_at = 0.0
        self._complete_at = math.inf
        """When to look for the sentinels that are missing."""

    def _hand_on(self, other: RedisPyTransport) -> None:
        cast("Self", other)._adopt(self._pool)

    def _establish(self, connection: RawConnection) -> None:
        """Ask the sentinels, and connect to the master they name."""
        managed = cast("_Managed", connection)
        managed.log_in()
        answers, failures = self._ask_all()
        chosen, places = ranked(answers)
        if chosen is not None and self._is_promoted(managed, chosen):
            return
        for place in places:
            try:
                managed.connect_to(place)
                role = _role_of(managed)
                if role in ("", "master"):
                    return
                failures[f"they name {_shown(place)}"] = ConnectionLost("is no master", maybe_applied=False)
            except (AuthenticationError, AuthorizationError):
                raise
            except (RedisError, OSError) as error:
                told = explained_end(connection, error) if self._info is None else str(error)
                failures[f"they name {_shown(place)}"] = ConnectionLost(told, maybe_applied=False)
            managed.disconnect()
            self._check_open()
        self._check_open()
        raise self._failure(failures)

    def _is_promoted(self, connection: _Managed, chosen: Place) -> bool:
        """Wait until a replica says that it is the master, and be connected to it; False if that does not happen."""
        limit = monotonic() + _PROMOTION_S
        while monotonic() < limit:
            try:
                connection.connect_to(chosen)
                if _role_of(connection) == "master":
                    return True
            except (RedisError, OSError):
                # It is a master just now: then the sentinel ends all connections to it.
                pass
            connection.disconnect()
            self._check_open()
            sleep(_ASK_AGAIN_S)
        return False

    def _failure(self, failures: dict[str, BullMQError]) -> BullMQError:
        """Return the error for an attempt at which no master was found."""
        for error in failures.values():
            if isinstance(error, AuthenticationFailed):
                return error
        service = self._pool.service_name
        if not failures and self._info is None:
            places = ",".join(map(_place_of, self._pool.sentinel_manager.sentinels))
            return UsageError("service", service, f"is not known to the sentinels at {places}")
        told = "; ".join(f"{who}: {error}" for who, error in failures.items())
        return ConnectionLost(
            f"no master of {service!r} is to be had: {told or 'the sentinels do not know it'}", maybe_applied=False
        )

    def _opened(self, connection: RawConnection) -> None:
        self._deposed = False
        self._meet()

    def _is_current(self, connection: RawConnection) -> bool:
        if self._deposed:
            return False
        now = monotonic()
        if now < self._look_at:
            return True
        self._look_at = now + _LOOK_S
        if now < self._complete_at and not any(map(has_ended, self._watches)):
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
            sock = connection.socket
            if sock is None:
                return
            poller = select.poll()
            poller.register(sock, select.POLLIN)
            for watch in self._watches:
                if watch.socket is not None:
                    poller.register(watch.socket, select.POLLIN)
            left = math.inf if until is None else max(until - monotonic(), 0)
            left = min(left, max(self._complete_at - monotonic(), 0))
            ready = [number for number, _ in poller.poll(None if left == math.inf else left * 1000)]
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
        """Ask the sentinels, and listen to those that answer. No news is no reason to leave a master."""
        chosen, places = ranked(self._ask_all()[0])
        self._meet()
        return chosen is None and (not places or places[0] == (connection.host, int(connection.port)))

    def _meet(self) -> None:
        now = monotonic()
        self._look_at = now + _LOOK_S
        missing = len(self._pool.sentinel_manager.sentinels) - len(self._watches)
        self._complete_at = math.inf if not missing else now + (_SOME_S if self._watches else _ALONE_S)

    def _ask_all(self) -> tuple[list[Named], dict[str, BullMQError]]:
        """Ask all sentinels, and listen to those that answer; return answers, and failures by address."""
        self._stop_listening()
        answers: list[Named] = []
        failures: dict[str, BullMQError] = {}
        sentinels = {_place_of(each): each for each in self._pool.sentinel_manager.sentinels}
        for shown in sorted(sentinels, key=lambda each: self._silent.get(each, 0.0)):
            begun = monotonic()
            if answers and begun < self._silent.get(shown, 0.0):
                continue
            self._check_open()
            try:
                answers.append(self._ask(sentinels[shown], shown))
                self._silent.pop(shown, None)
            except BullMQError as error:
                failures[shown] = error
                if monotonic() - begun > _LOOK_S:
                    self._silent[shown] = monotonic() + _SOME_S
        return answers, failures

    def _ask(self, sentinel: redis.Redis, shown: str) -> Named:
        """Return what one sentinel says, and listen to it. Raises our errors."""
        pool = sentinel.connection_pool
        kwargs: dict[str, Any] = {
            "socket_timeout": _ASKING_S,
            "socket_connect_timeout": _ASKING_S,
            **{name: value for name, value in pool.connection_kwargs.items() if value is not None},
            **OURS,
            "retry": Retry(NoBackoff(), 0),
        }
        watch = self._asked = exposed(pool.connection_class)(**kwargs)
        cast("Ours", watch).is_over = self._is_over
        listens = False
        try:
            watch.connect()
            questions = sentinel_question(self._pool.service_name)
            data = b"".join(piece for question in questions for piece in watch.pack_command(*question))
            watch.send_packed_command((data,), False)
            replies = [read_reply(watch) for _ in questions]
            named = read_sentinel(replies[: -len(SENTINEL_EVENTS)])
            refused = any(isinstance(reply, ServerError) for reply in replies[-len(SENTINEL_EVENTS) :])
            listens = named.place is not None and not refused
        except (AuthenticationError, AuthorizationError, NoPermissionError) as refusal:
            raise AuthenticationFailed(f"NOAUTH {refusal} (the sentinel at {shown})") from refusal
        except ServerError as refusal:
            if refusal.code in LOGIN_CODES:
                raise AuthenticationFailed(f"{refusal} (the sentinel at {shown})") from refusal
            raise
        except (RedisError, OSError) as error:
            raise ConnectionLost(explained_end(watch, error), maybe_applied=False) from error
        finally:
            self._asked = None
            if listens:
                self._watches.append(watch)
            else:
                watch.disconnect()
        return named

    def _shut(self) -> None:
        super()._shut()
        sock = None if self._asked is None else self._asked.socket
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _stop_listening(self) -> None:
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.disconnect()


def _role_of(connection: RawConnection) -> str:
    """Return what a server says it is; nothing if it does not say. Raises redis-py's errors."""
    connection.send_packed_command(connection.pack_command("INFO", "replication"), False)
    reply = read_reply(connection)
    return "" if isinstance(reply, ServerError) else read_server_info(as_text(reply)).role


def _shown(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


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
    return redis.Redis(connection_pool=redis.ConnectionPool(**kwargs))
