"""One socket: bytes out, replies in, for any number of callers at once. It has no task of its own.

Writing: who finds few replies outstanding sends at once. Else calls gather in the out-buffer until the tasks that are
ready have run once, and go in one write. If many come meanwhile, whoever fills the buffer up sends it, so that the
server begins while the others still pack. Replies are matched by order alone: a cancelled caller's are counted and
dropped. Adding: jobs that wait for the same write to add themselves to one queue go in one script call, whose reply is
shared out; who is alone sends what it always did.

Reading on asyncio (`LoopLink`): the event loop watches the socket for as long as the link lives, and gives each reply
to the future that its caller awaits; one timer, moved when it goes off, looks after the time limits. It holds the link
weakly: one that nobody uses any more goes as any object does. Elsewhere (`RoleLink`): one of the waiting callers holds
the read role; it resolves everybody's replies, and when its own is there it wakes another waiter to take the role.

Falling asleep and being woken costs more than a short script takes. So after a write a link that is shared stays awake
for a moment, as long as replies do come in that time: the first that does not ends it for the next writes.

Rules: (1) a `Call` whose bytes were handed to the operating system stays in `_pending` until its replies came or the
link died; (2) while somebody waits, the loop watches, somebody reads, or a waiter is on its way to; (3) bytes taken
from the socket are parsed before the next await; (4) a dead link stays dead.
"""

from __future__ import annotations

import math
import os
import socket
import ssl
import sys
import weakref
from _thread import get_ident
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from time import monotonic
from typing import Any, ClassVar, Protocol, cast

import anyio
import hiredis
import msgspec
from anyio.lowlevel import checkpoint, current_token

from bullmq_protocol.command import Arg, Command
from bullmq_protocol.errors import ConnectionLost, ServerError, TransportError, TransportTimeout, UsageError
from bullmq_protocol.net.wire import Wire, packer

_READ_SIZE = 1 << 16
_ENOUGH = 8
"""So many commands are worth a write of their own."""
_FIRST_GATHERED, _MOST_GATHERED = 4, 32
"""The same for jobs to be added. The more go together, the less each costs the server; but it shall begin early, so the
first writes have few, and each next one twice as many."""
_LARGE = 1024
"""So many bytes are worth a write of their own, too: the server begins with them at once."""
_FEW = 3
"""Fewer calls than these under way keep the server busy for no longer than a write takes."""
_AWAKE_S = 0.0002
"""So long after a write a link stays awake for a reply."""
_LOOK_S = 0.00004
"""So long at a time it looks at nothing but the socket, if nothing else goes on."""
_QUIET_S = 0.00002
"""Nothing else goes on where a turn of the event loop takes no longer."""
_let_others_run: Callable[[], None] = getattr(os, "sched_yield", lambda: None)
"""Who stays awake may be on the very processor on which the server is to run next. Windows has no such call."""
_FIRST_PAUSE = 8
_LONGEST_PAUSE = 128
"""So many writes go by, twice as many each time, after one whose reply did not come while the link was awake."""
_NOTHING = object()
_YOURS = object()
"""Wakes a waiter to take the read role."""
# hiredis declares it for tuples of one item, without a result.
pack = packer(
    cast(
        "Callable[[tuple[Arg, ...]], bytes]",
        hiredis.pack_command,  # pyright: ignore[reportUnknownMemberType]
    )
)
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Wake(Protocol):
    """What one task awaits and another one sets: the part of an asyncio future that is needed."""

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def cancel(self) -> bool: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...


class _TrioWake:
    """A future for one task of trio."""

    __slots__ = ("_done", "_error", "_result", "_task")
    trio: ClassVar[Any]
    """`trio.lowlevel`, from where it was loaded: who has asyncio alone need not have it."""

    def __init__(self) -> None:
        self._done = False
        self._task: Any = None
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._done

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def set_result(self, result: Any, /) -> None:
        self._result = result
        self._done = True
        if self._task is not None:
            self.trio.reschedule(self._task)
            self._task = None

    def set_exception(self, exception: BaseException, /) -> None:
        self._error = exception
        self.set_result(None)

    def cancel(self) -> bool:
        self._done = True
        return True

    def __await__(self) -> Generator[Any, Any, Any]:
        if not self._done:
            trio = self.trio
            self._task = trio.current_task()
            yield from trio.wait_task_rescheduled(self._aborted).__await__()
        return self.result()

    def _aborted(self, _: object) -> Any:
        self._task = None
        self._done = True
        return self.trio.Abort.SUCCEEDED


def wake_maker() -> Callable[[], Wake]:
    """Return what makes wakes in this event loop: each costs a third of an event of anyio's."""
    maker: Callable[[], Wake] | None = getattr(current_token().native_token, "create_future", None)
    if maker is not None:
        return maker
    _TrioWake.trio = sys.modules["trio.lowlevel"]
    return _TrioWake


class Call(msgspec.Struct, eq=False):
    """What one caller wrote, and what it waits for: done is it when its `wake` is, given up if it is cancelled."""

    wake: Wake
    payload: bytes
    missing: int
    deadline: float
    command: Command[Any] | None = None
    """A command that is packed only when it is sent, because it may go together with others."""
    members: tuple[Call, ...] = ()
    """The calls that this one stands for: they wait themselves, it has their place in the order of replies."""
    replies: list[Any] = []
    waiting: bool = False

    @property
    def awaited(self) -> bool:
        return any(not each.wake.done() for each in self.members or (self,))


class Link(Wire[Call]):
    """Who writes, and whose reply it is; a subclass moves the bytes and lets the callers wait.

    `exclusive`: cancelling a call kills the link, which ends a blocking command.
    """

    def __init__(self, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(pack)
        self._write_limit_s = math.inf if write_limit_ms is None else write_limit_ms / 1000
        self._exclusive = exclusive
        self._make_wake = wake_maker()
        self._thread = get_ident()
        self.process = os.getpid()
        self._out: list[Call] = []
        self._pending: deque[Call] = deque()
        self._unsent: Sequence[Call] = ()
        """Calls among the pending of which no byte was handed over yet."""
        self._rest: memoryview | None = None
        self._gathers = False
        self._enough_gathered = _FIRST_GATHERED
        self._death: tuple[type[TransportError], str] | None = None
        self.dead = False

    @property
    def owing(self) -> bool:
        """Replies are still to come."""
        return bool(self._pending or self._out)

    def has_ended(self) -> bool:
        """Look, without waiting, whether the server has closed an idle link or said something unasked."""
        if not self.dead and not self.owing:
            self._look()
        return self.dead

    def die(self, kind: type[TransportError], message: str) -> None:
        """Close the socket and fail every call with `kind`; only the first death counts."""
        if self.dead:
            return
        self._death = (kind, message)
        self.dead = True
        self._close()
        pending = [(each, True) for each in self._pending] + [(each, False) for each in self._out]
        unsent = self._unsent
        self._pending.clear()
        self._out.clear()
        self._unsent = ()
        self._rest = None
        for owner, sent in pending:
            sent = sent and owner not in unsent
            for call in owner.members or (owner,):
                if not call.wake.done():
                    # A server that refuses a connection says why before it closes it.
                    told = call.replies[0] if call.replies else None
                    why = f" ({told})" if isinstance(told, ServerError) else ""
                    call.wake.set_exception(kind(f"{message}{why}", maybe_applied=sent))

    @abstractmethod
    def is_strange(self) -> bool:
        """Tell whether this runs in another event loop than the link's."""

    @abstractmethod
    def request(self, payload: bytes | Command[Any], limit_ms: int | None, count: int = 1) -> Awaitable[Any]:
        """Write `payload` and wait for the reply to it, or for the list of `count` replies; errors are `ServerError`.

        A command is one with `merge`: several of one kind and queue that wait for the same write go in one script call.

        Raises `TransportError`. Cancelling withdraws what was not sent yet, and drops the replies of what was.
        """

    async def exchange(self, payload: bytes | Command[Any], count: int, limit_ms: int | None) -> list[Any]:
        """Do the same; return a list, of one reply too."""
        reply = await self.request(payload, limit_ms, count)
        return [reply] if count == 1 else reply

    def _call(self, payload: bytes | Command[Any], limit_ms: int | None, count: int) -> Call:
        """Return a new call; it is not in the out-buffer yet. Raises what the link died of."""
        if not self._pending and not self._out:
            # Something may have come that the event loop has not seen: the server may have closed it.
            self._look()
            self._enough_gathered = _FIRST_GATHERED
        if self._death is not None:
            kind, message = self._death
            raise kind(message, maybe_applied=False)
        deadline = math.inf if limit_ms is None else monotonic() + limit_ms / 1000
        if isinstance(payload, bytes):
            return Call(self._make_wake(), payload, count, deadline)
        self._gathers = True
        return Call(self._make_wake(), b"", count, deadline, payload)

    def _is_enough(self) -> bool:
        return len(self._out) >= (self._enough_gathered if self._gathers else _ENOUGH)

    def _is_urgent(self, call: Call) -> bool:
        """Tell whether it goes at once. Adds wait for each other as soon as there is one under way."""
        under_way = len(self._pending)
        return not under_way or (call.command is None and (under_way < _FEW or len(call.payload) >= _LARGE))

    def _send_out(self) -> None:
        """Hand over the out-buffer; what the socket does not take at once becomes the rest."""
        calls, self._out = self._out, []
        if self._gathers:
            self._gathers = False
            calls = self.merged(calls)
            self._enough_gathered = min(2 * self._enough_gathered, _MOST_GATHERED)
            if not calls:
                return
        self._pending += calls
        self._unsent = calls
        data = calls[0].payload if len(calls) == 1 else b"".join([call.payload for call in calls])
        position = self._send_now(data)
        if position:
            self._unsent = ()
        if position < len(data) and not self.dead:
            self._rest = memoryview(data)[position:]

    def _together(self, members: list[Call], payload: bytes, command: Command[Any]) -> Call:
        first = members[0]
        return Call(first.wake, payload, 1, first.deadline, command, members=tuple(members))

    def _refuse(self, call: Call, error: UsageError) -> None:
        call.wake.set_exception(error)

    def _share(self, merged: Call, reply: Any) -> None:
        """Give each member its part of the reply, or of the refusal."""
        members, command = merged.members, merged.command
        assert command is not None  # it has members
        for call, share in zip(members, self.shares(command, reply, len(members)), strict=True):
            wake = call.wake
            if not wake.done():
                wake.set_result(share)

    def _resolve(self, reply: Any) -> None:
        """Give one reply to the call whose turn it is."""
        pending = self._pending
        if not pending:
            # A server that refuses a connection may say so before anything is asked.
            why = str(reply) if isinstance(reply, ServerError) else "the server sent a reply that nobody asked for"
            self.die(ConnectionLost, why)
            return
        call = pending[0]
        if call.missing != 1:
            call.replies.append(reply)
            if len(call.replies) < call.missing:
                return
            reply = call.replies
        pending.popleft()
        if call.members:
            self._share(call, reply)
        elif not call.wake.done():
            # One is done that was cancelled.
            call.wake.set_result(reply)

    def _deadline(self) -> float:
        """Return when the oldest call that somebody awaits must have its reply."""
        for calls in (self._pending, self._out):
            for call in calls:
                if call.awaited:
                    return call.deadline
        return math.inf

    def _is_pending(self, call: Call) -> bool:
        return any(call is owner or call in owner.members for owner in self._pending)

    @abstractmethod
    def _send_now(self, data: bytes) -> int:
        """Hand over what can be handed over without waiting; return how many bytes that were."""

    @abstractmethod
    def _look(self) -> None:
        """Notice, without waiting, that the server has closed an idle connection."""

    @abstractmethod
    def _close(self) -> None:
        """Close the connection at once and wake who waits for it."""


class RoleLink(Link):
    """A link that is read by its callers."""

    def __init__(self, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(write_limit_ms, exclusive=exclusive)
        self._token = current_token().native_token
        self._writing = False
        self._gathering = False
        self._reading = False
        self._heir: Call | None = None
        """Who was woken to take the read role."""

    def is_strange(self) -> bool:
        # While somebody uses it, only another thread could bring another event loop.
        if self._reading or self._writing:
            return get_ident() != self._thread
        return current_token().native_token is not self._token

    async def request(self, payload: bytes | Command[Any], limit_ms: int | None, count: int = 1) -> Any:
        call = self._call(payload, limit_ms, count)
        self._out.append(call)
        try:
            if not self._writing:
                await self._write(call)
            elif self._gathering and self._rest is None and self._is_enough():
                self._send_out()
            while not (wake := call.wake).done():
                if self._reading:
                    call.waiting = True
                    await wake
                    call.waiting = False
                    if self._heir is call:
                        self._heir = None
                else:
                    await self._read(call)
            return wake.result()
        except BaseException:
            self._abandon(call)
            raise
        finally:
            if not self._reading and self._heir is None:
                self._pass_on()

    def _abandon(self, call: Call) -> None:
        call.waiting = False
        if self._heir is call:
            self._heir = None
        call.wake.cancel()
        if call in self._out:
            self._out.remove(call)
        elif self._exclusive and self._is_pending(call):
            self.die(ConnectionLost, "the call was cancelled")

    def _pass_on(self) -> None:
        # The newest waiter reads longest before the role has to change again.
        for calls in (self._out, self._pending):
            for owner in reversed(calls):
                for call in owner.members or (owner,):
                    if call.waiting and not call.wake.done():
                        self._heir = call
                        wake, call.wake = call.wake, self._make_wake()
                        wake.set_result(_YOURS)
                        return

    async def _write(self, mine: Call) -> None:
        self._writing = True
        try:
            if not self._is_urgent(mine):
                self._gathering = True
                await self._gather()
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

    async def _gather(self) -> None:
        """Let the tasks run that are ready."""
        await checkpoint()

    async def _finish(self) -> None:
        rest, self._rest = self._rest, None
        assert rest is not None
        # A half-written command would spoil the stream for everybody, so this is not cancelled.
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + self._write_limit_s) as scope:
            await self._send_rest(rest)
        if scope.cancelled_caught:
            self.die(TransportTimeout, "writing took longer than the time limit of a command")

    async def _read(self, call: Call) -> None:
        self._reading = True
        try:
            while not call.wake.done():
                await self._receive()
        finally:
            self._reading = False

    @abstractmethod
    async def _send_rest(self, rest: memoryview) -> None:
        """Hand over the rest; as soon as a byte went, nothing is `_unsent`. It is shielded from cancellation."""

    @abstractmethod
    async def _receive(self) -> None:
        """Wait for bytes and resolve the replies in them, or die at the `_deadline`. Keeps all it read."""


class SocketLink(Link):
    """A link over a connected, non-blocking socket, plain or TLS."""

    def __init__(self, sock: socket.socket, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(write_limit_ms, exclusive=exclusive)
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=_NOTHING)
        self._tired = 0
        self._pause = _FIRST_PAUSE

    def _learn(self, heard: bool) -> None:
        """Note whether it was worth to stay awake."""
        if heard:
            self._pause = _FIRST_PAUSE
        else:
            self._tired = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    @abstractmethod
    async def ended(self) -> None:
        """Wait until this link is dead: for one that nobody calls, so that anything the server says is its end."""

    def _send_now(self, data: bytes | memoryview) -> int:
        try:
            return self._sock.send(data)
        except _WOULD_BLOCK:
            pass
        except OSError as error:
            self.die(ConnectionLost, f"writing failed: {error}")
        return 0

    def _look(self) -> None:
        self._take()

    def _take(self) -> bool:
        """Read what is there; return False if nothing is."""
        sock = self._sock
        try:
            data = sock.recv(_READ_SIZE)
            while self._tls and data and cast("ssl.SSLSocket", sock).pending():
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


class LoopLink(SocketLink):
    """A link whose socket an event loop of asyncio's watches."""

    def __init__(self, sock: socket.socket, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(sock, write_limit_ms, exclusive=exclusive)
        self._loop = cast("Any", current_token().native_token)
        self._gathering = False
        self._timer: Any = None
        self._timer_at = math.inf
        self._write_timer: Any = None
        self._onlookers: list[Wake] = []
        self._awake = False
        self._awake_until = 0.0
        self._turned_at = 0.0
        self._heard = False
        self._watched = False
        self._loop.add_reader(sock, _weakly(self, LoopLink._on_readable))
        self._watched = True

    def __del__(self) -> None:
        # Else the event loop would know the number of a socket that is closed.
        if self._watched and not self.dead and not self._loop.is_closed():
            self._loop.remove_reader(self._sock)

    def is_strange(self) -> bool:
        return get_ident() != self._thread or not self._loop.is_running()

    def request(self, payload: bytes | Command[Any], limit_ms: int | None, count: int = 1) -> Awaitable[Any]:
        call = self._call(payload, limit_ms, count)
        self._out.append(call)
        if call.deadline < self._timer_at:
            self._set_timer(call.deadline)
        if self._exclusive:
            cast("Any", call.wake).add_done_callback(self._called)
        if self._rest is None and self._is_urgent(call):
            self._flush()
        elif not self._gathering:
            self._gathering = True
            self._loop.call_soon(self._gathered)
        elif self._is_enough() and self._rest is None:
            self._flush()
        return call.wake

    async def ended(self) -> None:
        if not self.dead:
            wake = self._make_wake()
            self._onlookers.append(wake)
            await wake

    def _gathered(self) -> None:
        self._gathering = False
        if self._rest is None:
            self._flush()

    def _flush(self) -> None:
        """Send what is in the out-buffer, but for the calls that were cancelled there."""
        out = self._out = [call for call in self._out if not call.wake.done()]
        if out:
            self._send_out()
            if self._tired:
                self._tired -= 1
            elif not self._exclusive:
                self._awake_until = monotonic() + _AWAKE_S
                self._heard = False
                if not self._awake:
                    self._awake = True
                    self._loop.call_soon(self._stay_awake)
            if self._rest is not None:
                self._loop.add_writer(self._sock, self._go_on)
                if self._write_limit_s < math.inf:
                    self._write_timer = self._loop.call_later(self._write_limit_s, self._write_late)

    def _on_readable(self) -> None:
        self._heard = True
        self._take()

    def _stay_awake(self) -> None:
        """Keep the event loop from sleeping, for a moment, while replies are owed."""
        now = monotonic()
        if now < self._awake_until:
            # A turn of the event loop takes many times as long as a look at the socket.
            is_quiet = now - self._turned_at < _QUIET_S
            while is_quiet and self._pending and not self._heard and monotonic() - now < _LOOK_S:
                self._heard = self._take()
                _let_others_run()
            if self._pending:
                self._turned_at = monotonic()
                self._loop.call_soon(self._stay_awake)
                return
        self._awake = False
        self._learn(self._heard)

    def _go_on(self) -> None:
        """Hand over more of the rest; it goes to its end, whoever is cancelled."""
        rest = self._rest
        assert rest is not None
        position = self._send_now(rest)
        if position:
            self._unsent = ()
        if self.dead:
            return
        if position < len(rest):
            self._rest = rest[position:]
            return
        self._rest = None
        self._loop.remove_writer(self._sock)
        if self._write_timer is not None:
            self._write_timer.cancel()
        self._flush()

    def _write_late(self) -> None:
        self.die(TransportTimeout, "writing took longer than the time limit of a command")

    def _called(self, wake: Any) -> None:
        if wake.cancelled() and any(call.wake is wake for call in self._pending):
            self.die(ConnectionLost, "the call was cancelled")

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(at - monotonic(), _weakly(self, LoopLink._check_time))

    def _check_time(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        # An event loop that was busy for long finds the reply there.
        self._take()
        if self.dead:
            return
        deadline = self._deadline()
        if deadline <= monotonic():
            self.die(TransportTimeout, "no reply within the time limit")
        elif deadline < math.inf:
            self._set_timer(deadline)

    def _close(self) -> None:
        if self._loop.is_closed():
            # Nobody is left who could wait.
            self._pending.clear()
            self._out.clear()
        else:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._sock.close()
        for wake in self._onlookers:
            if not wake.done():
                wake.set_result(None)


class WaitLink(SocketLink, RoleLink):
    """A link whose socket its callers wait for, each in turn."""

    def _close(self) -> None:
        anyio.notify_closing(self._sock)
        self._sock.close()

    async def ended(self) -> None:
        while not self.dead:
            try:
                await anyio.wait_readable(self._sock)
            except anyio.ClosedResourceError:
                return
            self._take()

    async def _send_rest(self, rest: memoryview) -> None:
        while rest and not self.dead:
            try:
                await anyio.wait_writable(self._sock)
            except anyio.ClosedResourceError:
                return
            position = self._send_now(rest)
            if position:
                self._unsent = ()
            rest = rest[position:]

    async def _receive(self) -> None:
        timed_out = False
        deadline = self._deadline()
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


class TrioLink(WaitLink):
    """The same for trio, whose own functions cost less than anyio's."""

    def __init__(self, sock: socket.socket, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(sock, write_limit_ms, exclusive=exclusive)
        self._trio = _TrioWake.trio

    def is_strange(self) -> bool:
        if self._reading or self._writing:
            return get_ident() != self._thread
        try:
            return self._trio.current_trio_token() is not self._token
        except RuntimeError:
            return True

    async def _gather(self) -> None:
        await self._trio.checkpoint()

    async def _receive(self) -> None:
        if self._tired:
            self._tired -= 1
        elif not self._exclusive:
            until = monotonic() + _AWAKE_S
            while monotonic() < until:
                await self._trio.checkpoint()
                if self.dead or self._take():
                    self._learn(True)
                    return
                _let_others_run()
            self._learn(False)
        await super()._receive()


def link_over(sock: socket.socket, write_limit_ms: int | None, *, exclusive: bool) -> SocketLink:
    """Return a link over a connected, non-blocking socket, for the event loop that runs."""
    if not hasattr(current_token().native_token, "add_reader"):
        return TrioLink(sock, write_limit_ms, exclusive=exclusive)
    try:
        return LoopLink(sock, write_limit_ms, exclusive=exclusive)
    except NotImplementedError:
        # An event loop of Windows that watches no sockets.
        return WaitLink(sock, write_limit_ms, exclusive=exclusive)


def _weakly(link: LoopLink, method: Callable[[LoopLink], object]) -> Callable[[], None]:
    """Return what calls a link's method, as long as there is the link."""
    known = weakref.ref(link)

    def call() -> None:
        found = known()
        if found is not None:
            method(found)

    return call
