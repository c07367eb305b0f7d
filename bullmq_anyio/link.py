"""One socket: bytes out, replies in, for any number of callers at once. It has no task of its own.

Writing: a caller puts its bytes into the out-buffer; the first one there sends everything the buffer holds in one
write, after letting the tasks that are ready run once if other replies are outstanding. If many come meanwhile, whoever
fills the buffer up sends it, so that the server begins while the others still pack. Reading: one of the waiting
callers holds the read role; it feeds the parser and resolves everybody's replies, and when its own is there it wakes
another waiter to take the role. Replies are matched by order alone: a cancelled caller's are counted and dropped.
Adding: jobs that wait for the same write to add themselves to one queue go in one script call, whose reply is shared
out; who is alone sends what it always did.

Rules: (1) a `Call` whose bytes were handed to the operating system stays in `_pending` until its replies came or the
link died; (2) while somebody waits, somebody reads, or a waiter is on its way to; (3) bytes taken from the socket are
parsed before the next await; (4) a dead link stays dead.
"""

from __future__ import annotations

import math
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import Any, Protocol, cast

import anyio
import hiredis
from anyio.lowlevel import checkpoint, current_token

from bullmq_protocol.command import Arg, Command
from bullmq_protocol.commands.batches import ADDING_SHA1, as_shares, merge_adds, parts, queue_of
from bullmq_protocol.errors import ConnectionLost, ServerError, TransportError, TransportTimeout, UsageError

_READ_SIZE = 1 << 16
_ENOUGH = 8
"""So many commands are worth a write of their own."""
_ENOUGH_ADDS = 32
"""The same if jobs to be added are among them: the more go together, the less each costs the server."""
_NOTHING = object()
# hiredis declares it for tuples of one item, without a result.
_pack_command = cast(
    "Callable[[tuple[Arg, ...]], bytes]",
    hiredis.pack_command,  # pyright: ignore[reportUnknownMemberType]
)
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wake(Protocol):
    """What one task awaits and another one sets: the part of an asyncio future that is needed."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...


class _EventWake:
    """An event in the shape of a future, for trio."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def done(self) -> bool:
        return self._event.is_set()

    def set_result(self, result: Any, /) -> None:
        self._event.set()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._event.wait().__await__()


def wake_maker() -> Callable[[], Wake]:
    """Return what makes wakes in this event loop: a bare future of asyncio's costs a third of an event."""
    maker: Callable[[], Wake] = getattr(current_token().native_token, "create_future", _EventWake)
    return maker


class Call:
    """What one caller wrote, and what it waits for."""

    __slots__ = (
        "add",
        "deadline",
        "done",
        "dropped",
        "failure",
        "members",
        "merged",
        "missing",
        "payload",
        "replies",
        "sent",
        "wake",
    )

    def __init__(self, payload: bytes, missing: int, deadline: float, add: Command[Any] | None = None) -> None:
        self.payload = payload
        self.add = add
        """A command that is packed only when it is sent, because it may go together with others."""
        self.members: tuple[Call, ...] = ()
        """The calls that this one stands for: they wait themselves, it has their place in the order of replies."""
        self.merged: Call | None = None
        self.missing = missing
        self.deadline = deadline
        self.replies: list[Any] = []
        self.sent = False
        self.done = False
        self.dropped = False
        self.wake: Wake | None = None
        self.failure: TransportError | None = None


class Link(ABC):
    """Who writes, who reads, and whose reply it is; a subclass moves the bytes.

    `exclusive`: cancelling a call kills the link, which ends a blocking command.
    """

    def __init__(self, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        self._write_limit_s = math.inf if write_limit_ms is None else write_limit_ms / 1000
        self._exclusive = exclusive
        self._make_wake = wake_maker()
        self._out: list[Call] = []
        self._pending: deque[Call] = deque()
        self._rest: tuple[memoryview, list[Call]] | None = None
        self._adds = False
        self._writing = False
        self._gathering = False
        self._reading = False
        self._death: tuple[type[TransportError], str] | None = None
        self.sourced: set[str] = set()
        """SHA-1 of the scripts whose source was sent over this link."""

    @property
    def dead(self) -> bool:
        return self._death is not None

    @property
    def idle(self) -> bool:
        """Nobody writes or reads."""
        return not self._writing and not self._reading

    @property
    def owing(self) -> bool:
        """Replies are still to come."""
        return bool(self._pending)

    def has_ended(self) -> bool:
        """Look, without waiting, whether the server has closed an idle link or said something unasked."""
        if self._death is None and self.idle:
            self._look()
        return self._death is not None

    def die(self, kind: type[TransportError], message: str) -> None:
        """Close the socket and fail every call with `kind`; only the first death counts."""
        if self._death is not None:
            return
        self._death = (kind, message)
        self._close()
        pending, self._pending = self._pending, deque()
        self._out.clear()
        for call in [each for owner in pending for each in (owner, *owner.members)]:
            # A server that refuses a connection says why before it closes it.
            why = f" ({call.replies[0]})" if call.replies and isinstance(call.replies[0], ServerError) else ""
            call.failure = kind(f"{message}{why}", maybe_applied=call.sent)
            call.done = True
            _rouse(call)

    def packed(self, command: Command[Any]) -> bytes:
        """Return a command's bytes: a script goes with its source the first time, then by its SHA-1."""
        script = command.script
        if script is None or script.sha1 in self.sourced:
            return pack(command.wire())
        self.sourced.add(script.sha1)
        return pack(command.wire(full_source=True))

    async def exchange(self, payload: bytes | Command[Any], count: int, limit_ms: int | None) -> list[Any]:
        """Write `payload` and return the `count` replies to it; error replies stand as `ServerError`.

        A command is one that `can_merge`: several of one queue that wait for the same write go in one script call.

        Raises `TransportError`. Cancelling withdraws what was not sent yet, and drops the replies of what was.
        """
        if not self._reading and not self._writing and self._death is None:
            # Between calls nobody watches the socket: see now whether the server has closed it.
            self._look()
        if self._death is not None:
            kind, message = self._death
            raise kind(message, maybe_applied=False)
        deadline = math.inf if limit_ms is None else monotonic() + limit_ms / 1000
        if isinstance(payload, bytes):
            call = Call(payload, count, deadline)
        else:
            call = Call(b"", count, deadline, payload)
            self._adds = True
        self._out.append(call)
        self._pending.append(call)
        try:
            if not self._writing:
                await self._write()
            elif self._gathering and len(self._out) >= (_ENOUGH_ADDS if self._adds else _ENOUGH):
                self._send_out()
            while not call.done:
                if self._reading:
                    wake = call.wake = self._make_wake()
                    await wake
                    call.wake = None
                else:
                    await self._read(call)
        except BaseException:
            self._abandon(call)
            raise
        finally:
            if self._pending and not self._reading:
                self._pass_on()
        if call.failure is not None:
            raise call.failure
        return call.replies

    def _abandon(self, call: Call) -> None:
        call.wake = None
        if call in self._out:
            self._out.remove(call)
            self._pending.remove(call)
            call.done = True
        elif not call.done:
            call.dropped = True
            if call.merged is not None:
                call.merged.dropped = all(each.dropped for each in call.merged.members)
            if self._exclusive:
                self.die(ConnectionLost, "the call was cancelled")

    def _pass_on(self) -> None:
        # The newest waiter reads longest before the role has to change again.
        for call in reversed(self._pending):
            for each in call.members or (call,):
                if each.wake is not None:
                    _rouse(each)
                    return

    async def _write(self) -> None:
        self._writing = True
        mine = self._out[-1]
        try:
            if len(self._pending) > 1:
                self._gathering = True
                await checkpoint()
        except BaseException:
            self._abandon(mine)
            raise
        finally:
            self._gathering = False
            try:
                while self._out or self._rest is not None:
                    if self._rest is None:
                        self._send_out()
                    else:
                        await self._finish()
            finally:
                self._writing = False

    def _send_out(self) -> None:
        """Hand over the out-buffer; what the socket does not take at once becomes the rest."""
        calls, self._out = self._out, []
        if self._adds:
            self._adds = False
            calls = self._merge(calls)
        data = calls[0].payload if len(calls) == 1 else b"".join([call.payload for call in calls])
        position = self._send_now(data)
        if position:
            mark_sent(calls)
        if position < len(data) and self._death is None:
            self._gathering = False
            self._rest = memoryview(data)[position:], calls

    def _merge(self, calls: list[Call]) -> list[Call]:
        """Pack the adds among the calls, those of one queue together, and give their places in the order of replies."""
        queues: dict[str, list[Call]] = {}
        result: list[Call] = []
        for call in calls:
            if call.add is None:
                result.append(call)
            else:
                queues.setdefault(queue_of(call.add), []).append(call)
        for base, adds in queues.items():
            for part in parts([call.add for call in adds if call.add is not None]):
                members, adds = adds[: len(part)], adds[len(part) :]
                if len(part) == 1:
                    members[0].payload = self.packed(part[0])
                    result += members
                    continue
                merged = Call(self.packed(merge_adds(base, part)), 1, members[0].deadline)
                merged.members = tuple(members)
                for call in members:
                    call.merged = merged
                result.append(merged)
        # What is sent now came last.
        for _ in calls:
            self._pending.pop()
        self._pending += result
        return result

    def _share(self, merged: Call) -> None:
        """Give each member its part of the reply, or the refusal."""
        (reply,) = merged.replies
        members = merged.members
        shares: list[Any]
        if isinstance(reply, ServerError):
            if reply.code == "NOSCRIPT":
                # Each sends its own command again; the next ones that go together send the source.
                self.sourced.discard(ADDING_SHA1)
            shares = [ServerError(str(reply)) for _ in members]
        else:
            shares = as_shares(reply, len(members))
        for call, share in zip(members, shares, strict=True):
            call.replies.append(share)
            call.done = True
            _rouse(call)

    async def _finish(self) -> None:
        rest, self._rest = self._rest, None
        if rest is None or self._death is not None:
            return
        # A half-written command would spoil the stream for everybody, so this is not cancelled.
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + self._write_limit_s) as scope:
            await self._send_rest(*rest)
        if scope.cancelled_caught:
            self.die(TransportTimeout, "writing took longer than the time limit of a command")

    async def _read(self, call: Call) -> None:
        self._reading = True
        try:
            while not call.done:
                await self._receive(next(each.deadline for each in self._pending if not each.dropped))
        finally:
            self._reading = False

    def _resolve(self, reply: Any) -> None:
        """Give one reply to the call whose turn it is."""
        pending = self._pending
        if not pending:
            # A server that refuses a connection may say so before anything is asked.
            why = str(reply) if isinstance(reply, ServerError) else "the server sent a reply that nobody asked for"
            self.die(ConnectionLost, why)
            return
        call = pending[0]
        call.replies.append(reply)
        if len(call.replies) == call.missing:
            pending.popleft()
            call.done = True
            if call.members:
                self._share(call)
            else:
                _rouse(call)

    @abstractmethod
    def _send_now(self, data: bytes) -> int:
        """Hand over what can be handed over without waiting; return how many bytes that were."""

    @abstractmethod
    async def _send_rest(self, rest: memoryview, calls: list[Call]) -> None:
        """Hand over the rest, marking the calls as sent; shielded from cancellation."""

    @abstractmethod
    async def _receive(self, deadline: float) -> None:
        """Wait for bytes and resolve the replies in them, or die at the deadline (`monotonic`). Keeps all it read."""

    @abstractmethod
    def _look(self) -> None:
        """Notice, without waiting, that the server has closed an idle connection."""

    @abstractmethod
    def _close(self) -> None:
        """Close the connection at once and wake who waits for it."""


class SocketLink(Link):
    """A link over a connected, non-blocking socket, plain or TLS."""

    def __init__(self, sock: socket.socket, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(write_limit_ms, exclusive=exclusive)
        self._sock = sock
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=_NOTHING)

    def _close(self) -> None:
        anyio.notify_closing(self._sock)
        self._sock.close()

    def _send_now(self, data: bytes) -> int:
        try:
            return self._sock.send(data)
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            self.die(ConnectionLost, f"writing failed: {error}")
        return 0

    async def _send_rest(self, rest: memoryview, calls: list[Call]) -> None:
        while rest and not self.dead:
            try:
                await anyio.wait_writable(self._sock)
                position = self._sock.send(rest)
            except _WOULD_BLOCK:
                continue
            except anyio.ClosedResourceError:
                return
            except OSError as error:
                self.die(ConnectionLost, f"writing failed: {error}")
                return
            mark_sent(calls)
            rest = rest[position:]

    async def _receive(self, deadline: float) -> None:
        timed_out = False
        try:
            if deadline == math.inf:
                await anyio.wait_readable(self._sock)
            else:
                with anyio.move_on_after(deadline - monotonic()) as scope:
                    await anyio.wait_readable(self._sock)
                timed_out = scope.cancelled_caught
        except anyio.ClosedResourceError:
            return
        # After a time-out too: an event loop that was busy for long finds the reply there.
        if not self._take() and timed_out:
            self.die(TransportTimeout, "no reply within the time limit")

    def _look(self) -> None:
        self._take()

    async def ended(self) -> None:
        """Wait until this link is dead: for one that nobody calls, so that anything the server says is its end."""
        while not self.dead:
            try:
                await anyio.wait_readable(self._sock)
            except anyio.ClosedResourceError:
                return
            self._take()

    def _take(self) -> bool:
        """Read what is there; return False if nothing is."""
        sock = self._sock
        try:
            data = sock.recv(_READ_SIZE)
            while isinstance(sock, ssl.SSLSocket) and data and sock.pending():
                data += sock.recv(_READ_SIZE)
        except _WOULD_BLOCK:
            return False
        except OSError as error:
            self.die(ConnectionLost, f"reading failed: {error}")
            return True
        if not data:
            self.die(ConnectionLost, "the server closed the connection")
            return True
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                self._resolve(reply)
        except (hiredis.ProtocolError, TypeError, MemoryError) as error:
            # hiredis raises TypeError for a map with a list as a key.
            self.die(ConnectionLost, f"the server sent no RESP: {error}")
        return True


def _rouse(call: Call) -> None:
    wake = call.wake
    # The future of a task that was cancelled in its wait is done.
    if wake is not None and not wake.done():
        wake.set_result(None)


def mark_sent(calls: list[Call]) -> None:
    """Note that bytes of these calls were handed to the operating system."""
    for call in calls:
        call.sent = True
        for each in call.members:
            each.sent = True


def pack(args: Sequence[Arg]) -> bytes:
    """Return the bytes of one command."""
    try:
        return _pack_command(tuple(args))
    except UnicodeEncodeError:
        pass
    # What `reply.as_text` read from bytes that are not UTF-8 goes back as those bytes.
    try:
        return _pack_command(
            tuple(arg.encode("utf-8", "surrogateescape") if isinstance(arg, str) else arg for arg in args)
        )
    except UnicodeEncodeError as error:
        raise UsageError("argument", error.object, "holds a lone surrogate, which has no form on the wire") from None
