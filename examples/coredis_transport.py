"""A custom transport over coredis, for asyncio and trio: `python -m examples.coredis_transport redis://localhost`.

It carries a queue and a worker like the library's own connection; docs/transports.md goes through it. coredis runs each
of its connections in a task, so the transport is given a task group to start them in.
"""

import copy
import re
import ssl
import sys
from collections.abc import Awaitable, Sequence
from typing import Any, Final, cast

import anyio
from anyio.abc import ByteStream, TaskGroup
from anyio.lowlevel import checkpoint_if_cancelled
from coredis.connection import BaseConnection, TCPLocation
from coredis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError
from coredis.parser import Parser

from bullmq_anyio import Job, Queue, Worker
from bullmq_protocol import Batch, Command, ConnectionOptions, NewJob, Repeat, parse_url
from bullmq_protocol.command import Arg
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
from bullmq_protocol.net.address import refusal_of_login
from bullmq_protocol.net.handshake import INFO_COMMANDS, Handshake
from bullmq_protocol.worker.notices import JobCompleted, JobFailed

# coredis cuts the first word off these error replies.
CODES: Final[dict[type[BaseException], str]] = {
    kind: code for code, kind in Parser.EXCEPTION_CLASSES.items() if isinstance(kind, type)
}
CODE = re.compile("[A-Z]+ ")
BLOCK_MARGIN_S = 2.0


class CoredisTransport:
    """A transport to the one server of a URL or `ConnectionOptions`, with its connections in `tasks`.

    It connects at the first call, and again at the next call after a loss.
    """

    def __init__(
        self, server: str | ConnectionOptions, tasks: TaskGroup, *, client_name: str | None = None, shared: bool = True
    ) -> None:
        self._options = options = parse_url(server) if isinstance(server, str) else server
        if options.unix_path is not None or options.credentials is not None:
            raise UsageError("server", options.address, "must be a host and a port, with a login that stays the same")
        self._tasks = tasks
        self._client_name = client_name or options.client_name
        self._shared = shared
        self._children: list[CoredisTransport] = []
        self._line: _Line | None = None
        self._attempt: _Attempt | None = None
        self._closed = False

    def dedicated(self, *, client_name: str | None = None) -> "CoredisTransport":
        """Return one with a connection of its own, which goes when a call on it is cancelled."""
        child = CoredisTransport(self._options, self._tasks, client_name=client_name, shared=False)
        child._closed = self._closed
        self._children.append(child)
        return child

    async def aclose(self) -> None:
        """Close all connections. Waiting calls raise `Closed`."""
        self._closed = True
        for child in self._children:
            await child.aclose()
        self._children.clear()
        if self._attempt is not None:
            self._attempt.scope.cancel()
        if self._line is not None:
            self._line.end(Closed, "the client is closed")

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply; for a batch a list, with errors as values."""
        if self._shared and isinstance(step, Command) and step.block_ms is not None:
            raise UsageError("command", step.name, "blocks its connection: perform it on one made by dedicated()")
        line = await self._connected()
        try:
            return await self._send(line, step)
        except ConnectionLost as error:
            if error.maybe_applied and step.repeat is not Repeat.SAFE:
                raise
        return await self._send(await self._connected(), step)

    async def _send(self, line: "_Line", step: Command[Any] | Batch) -> Any:
        if isinstance(step, Batch):
            return await self._send_batch(line, step)
        limit_s = self._limit_s(step)
        (reply,) = await line.ask([step.wire()], limit_s)
        if isinstance(reply, ServerError) and reply.code == "NOSCRIPT" and step.script is not None:
            # It did not run, so it may go again, whatever it is.
            (reply,) = await line.ask([step.wire(full_source=True)], limit_s)
        if isinstance(reply, ServerError):
            raise reply
        return reply

    async def _send_batch(self, line: "_Line", batch: Batch) -> list[Any]:
        commands = batch.commands
        if not commands:
            return []
        wires: list[Sequence[Arg]] = []
        sourced: set[str] = set()
        for command in commands:
            # A script goes whole the first time: inside MULTI a missing one would not undo the rest.
            sha1 = command.script.sha1 if command.script is not None else ""
            wires.append(command.wire(full_source=sha1 not in sourced))
            sourced.add(sha1)
        limit_s = self._limit_s()
        if batch.atomic:
            _, *queued, outcome = await line.ask([("MULTI",), *wires, ("EXEC",)], limit_s)
            if not isinstance(outcome, ServerError):
                return list(outcome)
            return [each if isinstance(each, ServerError) else outcome for each in queued]
        replies = await line.ask(wires, limit_s)
        again = [
            index
            for index, reply in enumerate(replies)
            if isinstance(reply, ServerError) and reply.code == "NOSCRIPT" and commands[index].script is not None
        ]
        if again:
            try:
                late = await line.ask([commands[index].wire(full_source=True) for index in again], limit_s)
            except TransportError as error:
                # The other commands of the batch did run.
                raise type(error)(error.reason, maybe_applied=True) from error
            for index, reply in zip(again, late, strict=True):
                replies[index] = reply
        return replies

    def _limit_s(self, command: Command[Any] | None = None) -> float | None:
        if command is not None and command.block_ms is not None:
            return command.block_ms / 1000 + BLOCK_MARGIN_S if command.block_ms else None
        limit_ms = self._options.command_timeout_ms
        return None if limit_ms is None else limit_ms / 1000

    async def _connected(self) -> "_Line":
        """Return the connection; make it if there is none. Who comes meanwhile shares the attempt and its failure."""
        while not self._closed:
            if self._line is not None and self._line.connection.usable:
                return self._line
            if self._attempt is None:
                return await self._connect()
            attempt = self._attempt
            await attempt.over.wait()
            if attempt.failure is not None:
                raise copy.copy(attempt.failure)
        raise Closed

    async def _connect(self) -> "_Line":
        attempt = self._attempt = _Attempt()
        address = self._options.address
        try:
            with anyio.move_on_after(self._options.connect_timeout_ms / 1000) as attempt.scope:
                self._line = await self._open()
                return self._line
            if self._closed:
                raise Closed
            raise TransportTimeout(f"no connection to {address} in time", maybe_applied=False)
        except BullMQError as error:
            attempt.failure = error
            raise
        finally:
            self._attempt = None
            attempt.over.set()

    async def _open(self) -> "_Line":
        options = self._options
        user = options.username or "default"
        try:
            stream = await _dial(options)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {options.address}: {error}", maybe_applied=False) from error
        connection = _Dialled(
            stream,
            TCPLocation(options.host, options.port),
            username=options.username,
            password=options.password,
            db=options.db,
            client_name=self._client_name,
        )
        try:
            # It raises what goes wrong up to the login, and nothing later.
            await self._tasks.start(connection.run)
        except (AuthenticationError, AuthorizationError) as error:
            refusal = refusal_of_login(f"{CODES[type(error)]} {error}", options.password)
            raise AuthenticationFailed(f"{refusal} (user {user!r} at {options.address})") from error
        except RedisError as error:
            # It makes an error of a cancellation, too, which those who share the attempt shall not get.
            await checkpoint_if_cancelled()
            raise ConnectionLost(f"{options.address} is not ready: {error}", maybe_applied=False) from error
        except BaseException:
            # Cancelled, perhaps before the task began.
            await anyio.aclose_forcefully(stream)
            raise
        line = _Line(connection, cancellable=not self._shared)
        try:
            # coredis asks for RESP3, whose maps and doubles the commands do not expect.
            handshake = Handshake(options.address, user, (("HELLO", 2), *INFO_COMMANDS))
            result = handshake.read(await line.ask(handshake.commands, None))
            if result.uninformed is not None:
                raise AuthenticationFailed(f"{result.uninformed} (user {user!r} at {options.address})")
        except BaseException as error:
            line.end(ConnectionLost, "the handshake failed")
            if isinstance(error, ConnectionLost):
                raise ConnectionLost(error.reason, maybe_applied=False) from error
            raise
        return line


async def _dial(options: ConnectionOptions) -> ByteStream:
    if not options.tls:
        return await anyio.connect_tcp(options.host, options.port)
    context = ssl.create_default_context() if options.tls is True else options.tls
    return await anyio.connect_tcp(options.host, options.port, ssl_context=context, tls_standard_compatible=False)


class _Dialled(BaseConnection):
    """A connection of coredis over a stream that is open: one that cannot connect leaves its own streams unclosed."""

    def __init__(self, stream: ByteStream, location: TCPLocation, **options: Any) -> None:
        super().__init__(location, **options)
        self._stream = stream

    async def _connect(self) -> ByteStream:
        return self._stream

    def describe(self) -> str:
        return f"Connection<{self.location}>"


class _Attempt:
    """One attempt to connect."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()
        self.failure: BullMQError | None = None


class _Line:
    """One connection of coredis, connected."""

    def __init__(self, connection: BaseConnection, *, cancellable: bool) -> None:
        self.connection = connection
        self._cancellable = cancellable
        self._death: tuple[type[TransportError], str] | None = None

    def end(self, kind: type[TransportError], reason: str) -> None:
        """Close it; waiting calls raise `kind`. Only the first reason counts."""
        self._death = self._death or (kind, reason)
        self.connection.invalidate(reason)

    async def ask(self, wires: Sequence[Sequence[Arg]], limit_s: float | None) -> list[Any]:
        """Send the commands together; return their replies, errors as `ServerError`. Raises `TransportError`."""
        # coredis would do this in the task that writes, where a failure costs the connection.
        encoded = [[_encoded(arg) for arg in wire] for wire in wires]
        requests: list[Awaitable[Any]] = []
        try:
            # Nothing waits in between, so nobody's commands come in between.
            for name, *args in encoded:
                requests.append(
                    self.connection.create_request(
                        name,
                        *args,
                        decode=False,
                        raise_exceptions=False,
                        timeout=limit_s,
                        # On a shared connection the reply to a cancelled call comes, and is dropped.
                        disconnect_on_cancellation=self._cancellable,
                    )
                )
        except (RedisError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise self._lost(error, maybe_applied=bool(requests)) from error
        return [self._ours(await request) for request in requests]

    def _ours(self, reply: Any) -> Any:
        if isinstance(reply, list):
            return [self._ours(item) for item in cast("list[Any]", reply)]
        if not isinstance(reply, BaseException):
            return reply
        if type(reply) in CODES:
            return ServerError(f"{CODES[type(reply)]} {reply}")
        if isinstance(reply, ResponseError):
            # Other codes are left as they are, but for ERR itself.
            return ServerError(str(reply) if CODE.match(str(reply)) else f"ERR {reply}")
        if isinstance(reply, TimeoutError):
            self.end(TransportTimeout, "no reply within the time limit")
        raise self._lost(reply, maybe_applied=True) from reply

    def _lost(self, error: BaseException, *, maybe_applied: bool) -> TransportError:
        kind, reason = self._death or (ConnectionLost, str(error))
        return kind(reason, maybe_applied=maybe_applied)


def _encoded(arg: Arg) -> bytes:
    if isinstance(arg, bytes):
        return arg
    try:
        # What was read from bytes that are not UTF-8 goes back as those bytes.
        return str(arg).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UsageError("argument", arg, "holds a lone surrogate, which has no form on the wire") from None


async def greet(job: Job[str]) -> str:
    return f"hello {job.data}"


async def main(url: str) -> None:
    async with anyio.create_task_group() as tasks:
        transport = CoredisTransport(url, tasks)
        done = anyio.Semaphore(0)
        async with Queue("greetings", transport, data_type=str) as queue:
            jobs = await queue.add_bulk([NewJob("greet", name) for name in ("ada", "grace")])
            worker = Worker("greetings", greet, transport, data_type=str)
            worker.on(JobCompleted, lambda notice: done.release())
            worker.on(JobFailed, lambda notice: done.release() if notice.retry_delay_ms is None else None)
            async with worker:
                for _ in jobs:
                    await done.acquire()
            for job in jobs:
                await job.refresh()
                print(f"{job.id}: {job.returnvalue or job.failed_reason}")
        # A queue leaves a transport that it was given open.
        await transport.aclose()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
