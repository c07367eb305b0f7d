"""A transport over a client of redis.asyncio that was handed over: the client itself speaks. For asyncio only.

Each call takes a connection of the client's pool, as calls of the client do; at most as many at once as the pool has
some left. What waits for jobs takes one out of the pool, for itself alone.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio
import redis.asyncio
from anyio.lowlevel import cancel_shielded_checkpoint, current_token
from redis.exceptions import RedisError

from bullmq_anyio.net.dialling import Attempt
from bullmq_anyio.net.redis_client import ClientTransport, Line, check_client, read_on, say, taken_for, was_connecting
from bullmq_anyio.net.sharing import in_another_loop, in_another_process
from bullmq_anyio.primitives import shielded
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError, Closed, ConnectionLost, TransportTimeout, UsageError

_HOW_TO_BUILD = (
    "redis.asyncio.Redis(..., retry=Retry(NoBackoff(), 0)), with Retry from redis.asyncio.retry and NoBackoff from "
    "redis.backoff, and without retry_on_timeout and retry_on_error"
)


class _AsyncioTransport(ClientTransport):
    """What the shared transport and dedicated ones have in common: time limits, closing, one attempt for all."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        limit_ms: Millis | None,
        connect_limit_ms: Millis,
        parent: RedisAsyncioTransport | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(client, limit_ms, parent, name)
        self._connect_limit_ms = connect_limit_ms
        self._loop: object = None
        self._process = 0
        self._under_way: set[anyio.CancelScope] = set()
        self._attempt: Attempt | None = None

    def stop_connecting(self) -> None:
        """End an attempt to connect that is under way: its callers get `ConnectionLost`. Otherwise do nothing."""
        if self._attempt is not None:
            self._attempt.give_up()

    async def aclose(self) -> None:
        """End its calls and those of what `dedicated` made: they raise `Closed`. Idempotent."""
        self._closed = True
        for child in tuple(self._children):
            assert isinstance(child, _AsyncioTransport)
            await child.aclose()
        if self._parent is not None:
            self._parent._children.discard(self)
        if self._loop is current_token().native_token:
            # In another event loop they end on their own, at their time limit.
            for scope in tuple(self._under_way):
                scope.cancel()
        await cancel_shielded_checkpoint()

    def _handshake_limit_ms(self) -> Millis | None:
        return self._connect_limit_ms

    async def _handshake(self) -> None:
        self._check_place()
        while not self._is_checked:
            if self._closed:
                raise Closed
            attempt = self._attempt
            if attempt is None:
                await self._first_handshake()
                return
            await attempt.ended()

    async def _first_handshake(self) -> None:
        attempt = Attempt()
        try:
            self._attempt = attempt
            with attempt.scope:
                await super()._handshake()
                return
            raise ConnectionLost(f"the attempt to connect to {self._address} was given up", maybe_applied=False)
        except BullMQError as error:
            attempt.failure = error
            raise
        finally:
            try:
                self._end(attempt)
            except BaseException:
                # By a signal's handler: nobody must be left behind.
                self._end(attempt)
                raise

    def _end(self, attempt: Attempt) -> None:
        self._attempt = None
        attempt.over.set()

    async def _within(self, limit_ms: Millis | None, speak: Callable[[], Awaitable[list[Any]]]) -> list[Any]:
        """Call it; cut it off at its time limit, and when this is closed."""
        if self._closed:
            raise Closed
        was_sent = True
        with anyio.move_on_after(None if limit_ms is None else limit_ms / 1000) as scope:
            try:
                self._under_way.add(scope)
                return await speak()
            except anyio.get_cancelled_exc_class() as error:
                was_sent = not was_connecting(error)
                raise
            finally:
                self._under_way.discard(scope)
        if self._closed:
            raise Closed(maybe_applied=was_sent)
        reason = "no reply within the time limit" if was_sent else f"no connection to {self._address} in time"
        raise TransportTimeout(reason, maybe_applied=was_sent)

    def _check_place(self) -> None:
        """Raise `UsageError` in another event loop than at the first call, and in another process."""
        loop = current_token().native_token
        if self._loop is None:
            if not hasattr(loop, "add_reader"):
                raise UsageError("connection", self._address, "is a client for asyncio: give trio a URL")
            self._loop, self._process = loop, os.getpid()
        if self._process != os.getpid():
            raise in_another_process(self._address)
        if loop is not self._loop:
            raise in_another_loop(self._address)


class RedisAsyncioTransport(_AsyncioTransport):
    """A transport over a `redis.asyncio.Redis`, also one that `Sentinel.master_for` made. For a cluster use
    `bullmq_anyio.connect`.

    The client stays yours and is not closed. It must have its retries off. The server is checked at the first call, and
    again after a loss: `connect_timeout_ms` is for that, `command_timeout_ms` for other calls; the client's own limits
    hold as well. A call is repeated automatically only if it is `SAFE` and its connection broke; then once.

    Raises `UsageError` for a client that repeats commands automatically. `decode_responses` makes no difference.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        *,
        connect_timeout_ms: Millis = 5000,
        command_timeout_ms: Millis | None = 3000,
    ) -> None:
        check_client(client, redis.asyncio.Redis, _HOW_TO_BUILD)
        super().__init__(client, command_timeout_ms, connect_timeout_ms)
        self._turns = anyio.Semaphore(self._at_once)

    def dedicated(self, *, client_name: str | None = None) -> _DedicatedTransport:
        """Return a transport with a connection of its own, for blocking commands; made and named at first use.
        Cancelling a call on it drops the connection."""
        child = _DedicatedTransport(self._client, self._limit_ms, self._connect_limit_ms, self, client_name)
        self._children.add(child)
        return child

    async def _say(self, lines: Sequence[Line], limit_ms: Millis | None) -> list[Any]:
        self._check_place()
        async with self._turns:
            return await self._within(limit_ms, partial(self._speak, lines))

    async def _speak(self, lines: Sequence[Line]) -> list[Any]:
        try:
            return await say(self._client, lines)
        except (RedisError, OSError, GeneratorExit, anyio.get_cancelled_exc_class()):
            # A connection that is cancelled while it is used closes itself.
            raise
        except BaseException:
            # By a signal's handler, say, between a command and its reply. The connection is back in the pool, where the
            # reply would be taken for that to the next command.
            with shielded():
                await self._pool.disconnect(inuse_connections=False)
            raise


class _DedicatedTransport(_AsyncioTransport):
    """A transport over one connection of a client's pool."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        limit_ms: Millis | None,
        connect_limit_ms: Millis,
        parent: RedisAsyncioTransport,
        name: str | None,
    ) -> None:
        super().__init__(client, limit_ms, connect_limit_ms, parent, name)
        self._connection: Any = None
        self._owes = False
        """Whether replies are to come on it, or would be if it were still open."""
        self._turn = anyio.Lock()

    def dedicated(self, *, client_name: str | None = None) -> _DedicatedTransport:
        """Return another one."""
        assert isinstance(self._parent, RedisAsyncioTransport)
        return self._parent.dedicated(client_name=client_name)

    async def aclose(self) -> None:
        """Close its connection. A waiting call raises `Closed`. Idempotent."""
        await super().aclose()
        if self._loop is current_token().native_token and not self._turn.locked():
            await self._drop()

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply. Cancelling it drops the connection."""
        if self._connection is not None:
            async with self._turn:
                # While another call reads on it, nobody may: what is there is not the end.
                await self._look()
        return await super().perform(step)

    async def _look(self) -> None:
        """Drop a connection that was lost while it was idle, or is closed meanwhile."""
        if self._connection is None:
            return
        is_over = True
        try:
            is_over = await _has_ended(self._connection) or self._closed
        finally:
            if is_over:
                self._forget()
                await self._drop()

    async def _say(self, lines: Sequence[Line], limit_ms: Millis | None) -> list[Any]:
        self._check_place()
        async with self._turn:
            try:
                return await self._within(limit_ms, partial(self._speak, lines))
            except GeneratorExit:
                raise
            except BaseException:
                await self._drop()
                raise

    async def _speak(self, lines: Sequence[Line]) -> list[Any]:
        if self._owes:
            await self._drop()
        if self._connection is None:
            self._connection = await self._pool.get_connection(*taken_for(self._pool))
        connection = self._connection
        self._owes = True
        await connection.send_packed_command(connection.pack_commands(lines))
        # This leaves the limit of the client aside.
        replies = await read_on(connection, len(lines), {"timeout": math.inf})
        self._owes = False
        return replies

    async def _drop(self) -> None:
        """Give the connection back, closed: its name is not for others."""
        connection, self._connection = self._connection, None
        self._owes = False
        if connection is not None:
            with shielded():
                try:
                    await connection.disconnect(nowait=True)
                finally:
                    await self._pool.release(connection)


async def _has_ended(connection: Any) -> bool:
    """Tell whether an idle connection was lost. No reply is outstanding on it, so anything to read is its end."""
    try:
        # It had another name before redis-py 8.
        look = getattr(connection, "can_read", None) or connection.can_read_destructive
        return bool(await look())
    except (RedisError, OSError):
        return True
