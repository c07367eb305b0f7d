"""A blocking transport over a client of redis-py that was handed over: the client itself speaks.

Each call takes a connection of the client's pool, as calls of the client do; at most as many at once as the pool has
some left. What waits for jobs takes one out of the pool, for itself alone.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

import redis
from redis.exceptions import RedisError

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import Closed, ConnectionLost, TransportError, TransportTimeout
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_sync.net.redis_client import ClientTransport, Line, check_client, read_on, say, taken_for
from bullmq_sync.net.turns import InTurn

_log = logging.getLogger("bullmq_sync")

_HOW_TO_BUILD = (
    "redis.Redis(..., retry=Retry(NoBackoff(), 0), retry_on_timeout=False, retry_on_error=[]), with Retry from "
    "redis.retry and NoBackoff from redis.backoff"
)
_CLOSE_WAIT_S = 1.0
_DEFAULT_S = (ConnectionOptions().command_timeout_ms or 0) / 1000


class _BlockingTransport(ClientTransport):
    def stop_connecting(self) -> None:
        """Do nothing: the client's own time limit alone ends an attempt to connect."""


class RedisPyTransport(_BlockingTransport):
    """A `Transport` over a `redis.Redis`, also one that `Sentinel.master_for` made; safe to share between threads.

    The client stays yours and is not closed. It must have its retries off, and should have a `socket_timeout`: nothing
    else ends a call to a server that does not answer, not even `close`. The server is checked at the first call, and
    again after a loss (`AuthenticationFailed`, `ServerTooOld` below Redis 6.2). A call is repeated automatically only
    if it is `SAFE` and its connection broke; then once. `dedicated()` takes a connection out of the client's pool.

    Raises `UsageError` for a client that repeats commands automatically. `decode_responses` makes no difference.
    """

    def __init__(self, client: redis.Redis) -> None:
        check_client(client, redis.Redis, _HOW_TO_BUILD)
        self._process = os.getpid()
        super().__init__(client, _limit_ms_of(client))
        if self._limit_ms is None:
            _log.warning("%s: the client has no socket_timeout: a call may wait for its reply for ever", self._address)

    def _renew(self) -> None:
        super()._renew()
        _free(self._pool, self._process)
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._turns = InTurn(self._at_once)

    def dedicated(self, *, client_name: str | None = None) -> RedisPyConnection:
        """Return a transport with a connection of its own, for blocking commands; made and named at first use."""
        other = RedisPyConnection(self._client, self._limit_ms, self, client_name)
        with self._lock:
            self._children.add(other)
        return other

    def close(self) -> None:
        """Close what `dedicated` made. Calls that wait raise `Closed` once the client lets them go: at its time limit
        at the latest. May be called twice."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
        for child in children:
            assert isinstance(child, RedisPyConnection)
            child.close()

    def _say(self, lines: Sequence[Line], limit_ms: Millis | None) -> list[Any]:
        with self._turns:
            if self._closed:
                raise Closed
            try:
                return say(self._client, lines)
            except (RedisError, OSError):
                raise
            except BaseException:
                # By a signal's handler, say, between a command and its reply. The connection is back in the pool, where
                # the reply would be taken for that to the next command.
                self._pool.disconnect(inuse_connections=False)
                raise


class RedisPyConnection(_BlockingTransport):
    """A transport over one connection of a client's pool, which another thread can interrupt."""

    def _renew(self) -> None:
        super()._renew()
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        # Guarded by _lock. In the child of a fork the connection is the parent's.
        self._connection: Any = None
        self._owes = False
        """Whether replies are to come on it, or would be if it were still open."""
        self._used_by: int | None = None
        self._interrupted = False

    def dedicated(self, *, client_name: str | None = None) -> RedisPyConnection:
        """Return another one."""
        assert isinstance(self._parent, RedisPyTransport)
        return self._parent.dedicated(client_name=client_name)

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply. `interrupt` from another thread makes it raise `ConnectionLost`."""
        with self._turn:
            try:
                with self._lock:
                    self._interrupted = False
                    self._used_by = threading.get_ident()
                if self._connection is not None and (self._owes or _has_ended(self._connection)):
                    self._forget()
                    self._drop()
                return super().perform(step)
            finally:
                self._used_by = None

    def interrupt(self) -> None:
        """Make a `perform` that is blocked in another thread raise `ConnectionLost` at once; otherwise do nothing."""
        with self._lock:
            if self._used_by is not None:
                self._interrupted = True
                self._shut()

    def close(self) -> None:
        """Close its connection. A waiting call raises `Closed`. May be called twice."""
        parent = self._parent
        assert isinstance(parent, RedisPyTransport)
        with parent._lock:  # pyright: ignore[reportPrivateUsage]
            parent._children.discard(self)
        with self._lock:
            self._closed = True
            self._shut()
            is_mine = self._used_by == threading.get_ident()
        # While it is still connecting nothing can wake it, but it will.
        if not is_mine and self._turn.acquire(timeout=_CLOSE_WAIT_S):
            try:
                self._drop()
            finally:
                self._turn.release()

    def _say(self, lines: Sequence[Line], limit_ms: Millis | None) -> list[Any]:
        try:
            connection = self._connection
            if connection is None:
                connection = self._connect()
            self._owes = True
            connection.send_packed_command(connection.pack_commands(lines))
            if not connection.can_read(timeout=None if limit_ms is None else limit_ms / 1000):
                raise TransportTimeout("no reply within the time limit", maybe_applied=True)
            replies = read_on(connection, len(lines), {})
            self._owes = False
            return replies
        except BaseException:
            self._drop()
            raise

    def _connect(self) -> Any:
        self._check_open()
        connection = self._pool.get_connection(*taken_for(self._pool))
        with self._lock:
            # From here on `close` and `interrupt` reach it.
            self._connection = connection
        self._check_open()
        return connection

    def _check_open(self) -> None:
        if self._closed:
            raise Closed
        if self._interrupted:
            raise ConnectionLost("interrupted", maybe_applied=False)

    def _failure(self, error: BaseException, *, is_alone: bool) -> Exception:
        failure = super()._failure(error, is_alone=is_alone)
        if self._interrupted and isinstance(failure, TransportError) and not self._closed:
            return ConnectionLost("interrupted", maybe_applied=failure.maybe_applied)
        return failure

    def _may_repeat(self, step: Command[Any] | Batch, error: TransportError) -> bool:
        return not self._interrupted and super()._may_repeat(step, error)

    def _shut(self) -> None:
        """Wake the thread that reads. It alone closes the socket, whose number could be reused. The lock is held."""
        # That of a client with a cache is around another one.
        sock = getattr(getattr(self._connection, "_conn", self._connection), "_sock", None)
        if isinstance(sock, socket.socket):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _drop(self) -> None:
        """Give the connection back, closed: its name is not for others."""
        with self._lock:
            connection, self._connection = self._connection, None
        self._owes = False
        if connection is not None:
            try:
                connection.disconnect()
            finally:
                self._pool.release(connection)


def _free(pool: Any, process: int) -> None:
    """In the child of a fork, free the locks of a pool: redis-py 8 waits for those of the parent's threads."""
    if process == os.getpid():
        return
    for name in ("_fork_lock", "_lock"):
        renew = getattr(getattr(pool, name, None), "_at_fork_reinit", None)
        if renew is not None:
            renew()


def _limit_ms_of(client: redis.Redis) -> Millis | None:
    limit_s: float | None = client.connection_pool.connection_kwargs.get("socket_timeout", _DEFAULT_S)
    return None if limit_s is None else int(limit_s * 1000)


def _has_ended(connection: Any) -> bool:
    """Tell whether an idle connection was lost. No reply is outstanding on it, so anything to read is its end."""
    try:
        return bool(connection.can_read())
    except (RedisError, OSError):
        return True
