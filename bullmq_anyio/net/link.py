"""One socket: bytes out, replies in, for any number of callers at once. It has no task of its own.

Writing: a caller that finds few outstanding replies sends immediately. Otherwise calls gather in the out-buffer until
the tasks that are ready have run once, and go in one write. If many come meanwhile, the caller that fills the buffer
sends it, so that the server begins while the others still pack. Replies are matched by order alone: a cancelled
caller's are counted and dropped. Adding: jobs that wait for the same write to add themselves to one queue go in one
script call, whose reply is shared out; a single call sends its own command.

Reading on asyncio (`LoopLink`): the event loop watches the socket for as long as the link lives, and gives each reply
to the future that its caller awaits; one timer, moved when it goes off, looks after the time limits. It holds the link
weakly: one that nobody uses any more goes as any object does. Elsewhere (`WaitLink`): one of the waiting callers holds
the read role; it resolves everybody's replies, and when its own is there it wakes another waiter to take the role.

Going to sleep and being woken costs more than a short script takes. So after a write a link that is shared stays awake
for a moment, as long as replies do come in that time: the first that does not ends it for the next writes. A link that
is used rarely sleeps.

Rules: (1) a `Call` whose bytes were handed to the operating system stays in `_pending` until its replies came or the
link died; (2) while somebody waits, the loop watches, somebody reads, or a waiter is on its way to; (3) bytes taken
from the socket are parsed before the next await; (4) a dead link stays dead; (5) an exception that comes where none is
expected (of a signal's handler, for want of memory) finds everything as it was, or ends the link, and all waiting
callers get the error. So a call is in one of the lists at every moment, and counts as sent from before its bytes are
handed over.
"""

from __future__ import annotations

import math
import os
import socket
import ssl
import weakref
from _thread import get_ident
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, ClassVar, cast

import anyio
import hiredis
import msgspec
from anyio.lowlevel import checkpoint, current_token

from bullmq_anyio.net.resp import pack
from bullmq_anyio.net.room import check_room, check_room_to_send
from bullmq_anyio.net.sockets import let_others_run
from bullmq_anyio.wakes import TrioWake, Wake, wake_maker
from bullmq_protocol.command import Command
from bullmq_protocol.errors import ConnectionLost, ServerError, TransportError, TransportTimeout, UsageError
from bullmq_protocol.net.wire import NOTHING, READ_SIZE, Wire, unasked

_ENOUGH = 8
"""This many commands are worth a write of their own."""
_FIRST_GATHERED, _MOST_GATHERED = 4, 32
"""The same for jobs to be added. The more go together, the less each costs the server; but it shall begin early, so the
first writes have few, and each next one twice as many."""
_LARGE = 1024
"""This many bytes are worth a write of their own, too: the server begins with them immediately."""
_FEW = 3
"""Fewer calls than these under way keep the server busy for no longer than a write takes."""
_AWAKE_S = 0.0002
"""How long a link stays awake for a reply after a write."""
_RARELY_S = 100 * _AWAKE_S
"""It does not where this long has passed since the last write: a link that is used for less than 1 % of the time
sleeps."""
_LOOK_S = 0.00004
"""How long at a time it looks at nothing but the socket, if nothing else happens."""
_QUIET_S = 0.00002
"""Nothing else goes on where a turn of the event loop takes no longer."""
_FIRST_PAUSE = 8
_LONGEST_PAUSE = 128
"""How many writes are skipped, twice as many each time, after one whose reply did not come while the link was awake."""
_YOURS = object()
"""Wakes a waiter to take the read role."""
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Call(msgspec.Struct, eq=False):
    """One caller's bytes and the replies it waits for. It is done when its `wake` is, and given up if that is
    cancelled."""

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
    whole: bool = False
    """Its task is where an exception finds everything whole: it is expected there, because the task waits."""
    turn: Wake | None = None
    """What its task awaits, where it has just been given the read role; its reply comes by `wake`."""

    @property
    def awaited(self) -> bool:
        return any(not each.wake.done() for each in self.members or (self,))


class Link(Wire[Call]):
    """The order of writes and replies; a subclass moves the bytes and lets the callers wait.

    `exclusive`: cancelling a call kills the link, which ends a blocking command.
    """

    interrupted: ClassVar[bool] = False
    """A task that waits is cancelled instead."""

    def __init__(self, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(pack)
        self._write_limit_s = math.inf if write_limit_ms is None else write_limit_ms / 1000
        self._exclusive = exclusive
        self._make_wake = wake_maker()
        self._thread = get_ident()
        self.process = os.getpid()
        self._sending: Sequence[Call] = ()
        """The calls among the pending that the last write, or the one under way, is for."""
        self._touched = False
        """Whether bytes of them may have been handed over."""
        self._rest: memoryview | None = None
        self._gathers = False
        self._enough_gathered = _FIRST_GATHERED
        self._over = False
        """Whether all callers that waited at its death have got the error."""
        self.dead = False

    def has_ended(self) -> bool:
        """Look, without waiting, whether the server has closed an idle link or sent something unrequested."""
        check_room()
        if not self.dead and not self.owing:
            self._look()
        return self.dead

    def die(self, kind: type[TransportError], message: str) -> None:
        """Close the socket and fail every call with `kind`; only the first death counts."""
        if not self._over:
            self._die(kind, message)

    def drop(self, error: BaseException) -> None:
        """Die of an unexpected exception: it is unknown what it has cut short."""
        self.die(ConnectionLost, f"the connection was dropped ({type(error).__name__})")

    def _end(self) -> None:
        self.dead = True
        for owner in self._pending:
            self._tell(owner, self._touched or owner not in self._sending)
        for owner in self._out:
            self._tell(owner, False)
        self._close()
        self._over = True
        self._pending.clear()
        self._out = []
        self._sending = ()
        self._rest = None

    def _tell(self, owner: Call, sent: bool) -> None:
        """Let a call, or its members, learn what the link died of."""
        for call in owner.members or (owner,):
            for wake in (call.wake, call.turn):
                if wake is not None and not wake.done():
                    wake.set_exception(self._loss(call, maybe_applied=sent))

    @abstractmethod
    def is_of_another_loop(self) -> bool:
        """Tell whether this runs in another event loop than the link's."""

    @abstractmethod
    def request(self, payload: bytes | Command[Any], limit_ms: int | None, count: int = 1) -> Awaitable[Any]:
        """Write `payload` and wait for the reply to it, or for the list of `count` replies; errors are `ServerError`.

        A command is one with `merge`: several of one kind and queue that wait for the same write go in one script call.

        Raises `TransportError`. Cancelling withdraws a call that was not sent yet, and drops the replies of one that
        was.
        """

    async def exchange(self, payload: bytes | Command[Any], count: int, limit_ms: int | None) -> list[Any]:
        """Do the same; return a list, of one reply too."""
        reply = await self.request(payload, limit_ms, count)
        return [reply] if count == 1 else reply

    def _call(self, payload: bytes | Command[Any], limit_ms: int | None, count: int) -> Call:
        """Return a new call; it is not in the out-buffer yet. Raises what the link died of."""
        check_room_to_send()
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
        calls = self._out
        if self._gathers:
            self._gathers = False
            calls = self.merged(calls)
            self._enough_gathered = min(2 * self._enough_gathered, _MOST_GATHERED)
            if not calls:
                self._out = []
                return
        self._sending = calls
        self._touched = False
        self._pending += calls
        self._out = []
        data = calls[0].payload if len(calls) == 1 else b"".join([call.payload for call in calls])
        position = self._send_now(data)
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
            self.die(ConnectionLost, unasked(reply))
            return
        call = pending[0]
        if call.missing != 1:
            call.replies.append(reply)
            if len(call.replies) < call.missing:
                return
            reply = call.replies
        if call.members:
            self._share(call, reply)
        elif not call.wake.done():
            # One is done that was cancelled.
            call.wake.set_result(reply)
        # Last: an exception in between leaves nobody behind.
        pending.popleft()

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
        """Write as much as possible without waiting; return how many bytes that were. Nothing is `_touched` after it
        that was not before, if those are none."""

    @abstractmethod
    def _look(self) -> None:
        """Notice, without waiting, that the server has closed an idle connection."""

    @abstractmethod
    def _close(self) -> None:
        """Close the connection immediately and wake the tasks that wait for it."""


class SocketLink(Link):
    """A link over a connected, non-blocking socket, plain or TLS."""

    def __init__(self, sock: socket.socket, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(write_limit_ms, exclusive=exclusive)
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=NOTHING)
        self._tired = 0
        self._pause = _FIRST_PAUSE
        self._used_at = -math.inf

    def _learn(self, received: bool) -> None:
        """Note whether it was worth to stay awake."""
        if received:
            self._pause = _FIRST_PAUSE
        else:
            self._tired = self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    @abstractmethod
    async def ended(self) -> None:
        """Wait until this link is dead: for one that nobody calls, so that anything the server says is its end."""

    def _send_now(self, data: bytes | memoryview) -> int:
        touched, self._touched = self._touched, True
        try:
            return self._sock.send(data)
        except _WOULD_BLOCK:
            self._touched = touched
        except OSError as error:
            self._touched = touched
            self.die(ConnectionLost, f"writing failed: {error}")
        return 0

    def _look(self) -> None:
        self._take()

    def _take(self) -> bool:
        """Read the available bytes; return False if there are none. Any exception here ends the link."""
        try:
            sock = self._sock
            try:
                data = sock.recv(READ_SIZE)
                while self._tls and data and cast("ssl.SSLSocket", sock).pending():
                    data += sock.recv(READ_SIZE)
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
                while (reply := reader.gets()) is not NOTHING:
                    self._resolve(reply)
            except (hiredis.ProtocolError, TypeError, MemoryError) as error:
                # hiredis raises TypeError for a map with a list as a key.
                self.die(ConnectionLost, f"the server sent no RESP: {error}")
            return True
        except BaseException as error:
            self.drop(error)
            raise


class LoopLink(SocketLink):
    """A link whose socket an event loop of asyncio's watches."""

    _watched = False

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
        self._has_received = False
        self._loop.add_reader(sock, _weakly(self, LoopLink._on_readable))
        self._watched = True

    def __del__(self) -> None:
        # Else the event loop would know the number of a socket that is closed.
        if self._watched and not self.dead and not self._loop.is_closed():
            self._loop.remove_reader(self._sock)

    def is_of_another_loop(self) -> bool:
        return get_ident() != self._thread or not self._loop.is_running()

    def request(self, payload: bytes | Command[Any], limit_ms: int | None, count: int = 1) -> Awaitable[Any]:
        call = self._call(payload, limit_ms, count)
        try:
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
        except BaseException as error:
            call.wake.cancel()
            self.drop(error)
            raise

    async def ended(self) -> None:
        if not self.dead:
            wake = self._make_wake()
            self._onlookers.append(wake)
            await wake

    def _gathered(self) -> None:
        try:
            self._gathering = False
            if self._rest is None:
                self._flush()
        except BaseException as error:
            self.drop(error)
            raise

    def _flush(self) -> None:
        """Send the out-buffer, except calls that were cancelled there."""
        out = self._out = [call for call in self._out if not call.wake.done()]
        if out:
            self._send_out()
            now = monotonic()
            is_rare, self._used_at = now - self._used_at > _RARELY_S, now
            if self._tired:
                self._tired -= 1
            elif not (is_rare or self._exclusive):
                self._awake_until = now + _AWAKE_S
                self._has_received = False
                if not self._awake:
                    self._awake = True
                    self._loop.call_soon(self._stay_awake)
            if self._rest is not None:
                self._loop.add_writer(self._sock, self._go_on)
                if self._write_limit_s < math.inf:
                    self._write_timer = self._loop.call_later(self._write_limit_s, self._write_late)

    def _on_readable(self) -> None:
        # Where it is cut short it is called again: the socket stays readable.
        self._has_received = True
        self._take()

    def _stay_awake(self) -> None:
        """Keep the event loop from sleeping, for a moment, while replies are outstanding."""
        try:
            now = monotonic()
            if now < self._awake_until:
                # A turn of the event loop takes many times as long as a look at the socket.
                is_quiet = now - self._turned_at < _QUIET_S
                while is_quiet and self._pending and not self._has_received and monotonic() - now < _LOOK_S:
                    self._has_received = self._take()
                    let_others_run()
                if self._pending:
                    self._turned_at = monotonic()
                    self._loop.call_soon(self._stay_awake)
                    return
            self._awake = False
            self._learn(self._has_received)
        except BaseException as error:
            self.drop(error)
            raise

    def _go_on(self) -> None:
        """Write more of the rest; it is completed whichever task is cancelled."""
        try:
            rest = self._rest
            assert rest is not None
            position = self._send_now(rest)
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
        except BaseException as error:
            self.drop(error)
            raise

    def _write_late(self) -> None:
        self.die(TransportTimeout, "writing took longer than the time limit of a command")

    def _called(self, wake: Any) -> None:
        try:
            if wake.cancelled() and any(call.wake is wake for call in self._pending):
                self.die(ConnectionLost, "the call was cancelled")
        except BaseException as error:
            self.drop(error)
            raise

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(at - monotonic(), _weakly(self, LoopLink._check_time))

    def _check_time(self) -> None:
        try:
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
        except BaseException as error:
            self.drop(error)
            raise

    def _end(self) -> None:
        if self._loop.is_closed():
            # No caller is left that could wait.
            self._pending.clear()
            self._out = []
        super()._end()

    def _close(self) -> None:
        if self._sock.fileno() >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
        for timer in (self._timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        for wake in self._onlookers:
            if not wake.done():
                wake.set_result(None)
        self._sock.close()


class WaitLink(SocketLink):
    """A link whose socket its callers wait for: one of them reads for all."""

    def __init__(self, sock: socket.socket, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(sock, write_limit_ms, exclusive=exclusive)
        self._token = current_token().native_token
        self._writing = False
        self._gathering = False
        self._reading = False
        self._next_reader: Call | None = None
        """The call that was woken to take the read role."""

    def is_of_another_loop(self) -> bool:
        # While somebody uses it, only another thread could bring another event loop.
        if self._reading or self._writing:
            return get_ident() != self._thread
        return current_token().native_token is not self._token

    async def request(self, payload: bytes | Command[Any], limit_ms: int | None, count: int = 1) -> Any:
        call = self._call(payload, limit_ms, count)
        try:
            self._out.append(call)
            if not self._writing:
                await self._write(call)
            elif self._gathering and self._rest is None and self._is_enough():
                self._send_out()
            while not (wake := call.wake).done():
                if self._reading:
                    call.waiting = call.whole = True
                    await wake
                    call.waiting = call.whole = False
                    if self._next_reader is call:
                        self._next_reader = None
                else:
                    await self._read(call)
            if not self._reading and self._next_reader is None:
                self._pass_on()
            call.whole = True
            return wake.result()
        except BaseException as error:
            try:
                self._leave(call, error)
            except BaseException as another:
                self.drop(another)
                raise
            raise

    def _leave(self, call: Call, error: BaseException) -> None:
        """Give a call up whose task was cancelled, or met an exception where none is expected."""
        call.wake.cancel()
        if not call.whole:
            self.drop(error)
        self._withdraw(call)
        if self._next_reader is not None:
            return
        if not self._reading:
            self._pass_on()
        elif self._out and not self._writing:
            # It was to send what others have gathered, and no other call is about to.
            self.drop(error)

    def _withdraw(self, call: Call) -> None:
        call.waiting = False
        if self._next_reader is call:
            self._next_reader = None
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
                        self._next_reader = call
                        turn = call.turn = call.wake
                        call.wake = self._make_wake()
                        turn.set_result(_YOURS)
                        call.turn = None
                        return

    async def _write(self, mine: Call) -> None:
        self._writing = True
        try:
            if not self._is_urgent(mine):
                self._gathering = mine.whole = True
                try:
                    await self._gather()
                except BaseException:
                    # The others that have gathered go all the same.
                    mine.whole = self._gathering = False
                    self._withdraw(mine)
                    await self._send_all()
                    mine.whole = True
                    raise
                mine.whole = self._gathering = False
            if self._out and self._rest is None:
                self._send_out()
            if self._out or self._rest is not None:
                await self._send_all()
        finally:
            self._writing = self._gathering = False

    async def _send_all(self) -> None:
        while self._out or self._rest is not None:
            if self._rest is None:
                self._send_out()
            else:
                await self._finish()

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
                await self._receive(call)
        finally:
            self._reading = False

    def _close(self) -> None:
        if self._sock.fileno() >= 0:
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
        """Hand over the rest. It is shielded from cancellation."""
        while rest and not self.dead:
            try:
                await anyio.wait_writable(self._sock)
            except anyio.ClosedResourceError:
                return
            rest = rest[self._send_now(rest) :]

    async def _receive(self, reader: Call) -> None:
        """Wait for bytes and resolve the replies in them, or die at the `_deadline`. Keeps all it read.

        `reader` is `whole` while it waits, at no other time.
        """
        timed_out = False
        deadline = self._deadline()
        reader.whole = True
        try:
            if deadline == math.inf:
                await anyio.wait_readable(self._sock)
            else:
                with anyio.move_on_after(deadline - monotonic()) as scope:
                    await anyio.wait_readable(self._sock)
                timed_out = scope.cancelled_caught
        except anyio.ClosedResourceError:
            return
        reader.whole = False
        # After a time-out too: an event loop that was busy for long finds the reply there.
        if not self._take() and timed_out:
            self.die(TransportTimeout, "no reply within the time limit")


class TrioLink(WaitLink):
    """The same for trio, whose own functions cost less than anyio's."""

    def __init__(self, sock: socket.socket, write_limit_ms: int | None, *, exclusive: bool = False) -> None:
        super().__init__(sock, write_limit_ms, exclusive=exclusive)
        self._trio = TrioWake.trio

    def is_of_another_loop(self) -> bool:
        if self._reading or self._writing:
            return get_ident() != self._thread
        try:
            return self._trio.current_trio_token() is not self._token
        except RecursionError:
            raise
        except RuntimeError:
            return True

    async def _gather(self) -> None:
        await self._trio.checkpoint()

    async def _receive(self, reader: Call) -> None:
        now = monotonic()
        is_rare, self._used_at = now - self._used_at > _RARELY_S, now
        if self._tired:
            self._tired -= 1
        elif not (is_rare or self._exclusive):
            until = now + _AWAKE_S
            while monotonic() < until:
                reader.whole = True
                await self._trio.checkpoint()
                reader.whole = False
                if self.dead or self._take():
                    self._learn(True)
                    return
                let_others_run()
            self._learn(False)
        await super()._receive(reader)


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
