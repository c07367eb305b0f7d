"""One socket: bytes out, replies in, for any number of threads at once. It has no thread of its own.

Writing: a caller puts its call into the out-buffer; a caller that finds no one writing sends everything there is, in
one write. Adds gather while `_MOST_MERGES_UNDER_WAY` writes with adds wait for their replies; the thread that reads one
sends what has gathered. Jobs for one queue that are sent together go in one script call, whose reply is split up; a
single call sends its own command. Reading: one of the waiting threads holds the read role; it feeds the parser, and
hands the role to another when its own reply is there. Replies are matched by order alone.

Which of the waiting threads are woken, and when, is in `waking.py`, with rule (6).

Rules: (1) `_lock` guards the book-keeping and is never held while waiting for the network; (2) a `Call` whose bytes
were handed to the operating system stays in `_pending` until its replies came or the link died; (3) while somebody
waits, somebody reads or writes, or has been woken to; (4) a dead link stays dead, and the thread with the last role
closes the socket, whose number could be used again; (5) an exception that comes where none is expected (of a signal's
handler, for want of memory) finds everything as it was, or ends the link, and all waiting callers get the error.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from itertools import chain
from time import monotonic
from typing import Any, Protocol

import hiredis

from bullmq_protocol.command import Command
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    Closed,
    ConnectionLost,
    ServerError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.wire import NOTHING, READ_SIZE, unasked
from bullmq_sync.net.resp import pack
from bullmq_sync.net.room import check_room, check_room_to_send
from bullmq_sync.net.sockets import let_others_run
from bullmq_sync.net.waking import Call, Waking

_ENOUGH_GATHERED = 32
"""This many adds are worth a write of their own."""
_MOST_MERGES_UNDER_WAY = 2
"""The server works on one write with adds while the next gathers."""
_LINGER_S = 0.0001
"""How long the reader looks for a reply before it sleeps: being woken costs more than many a reply takes."""
_RARELY_S = 100 * _LINGER_S
"""It does not look where this long has passed since the last time: a link that is used for less than 1 % of the time
sleeps."""
_MOST_PASSED_OVER = 64
"""Where replies take longer, the reader sleeps immediately, except one time in this many."""
_SLOW = (TransportTimeout, "writing took longer than the time limit of a command")


class Stream(Protocol):
    """A connected socket, plain or TLS. One thread receives at a time, and one sends."""

    @property
    def raw(self) -> socket.socket: ...

    def receive(self) -> bytes | None:
        """Wait for bytes and return them; b"" at the end, None if they were none of the server's words.

        Raises `BlockingIOError` at the time limit, and `OSError`.
        """
        ...

    def send(self, data: memoryview, /) -> int:
        """Hand over some of the bytes and return how many. Raises as `receive`."""
        ...


class PlainStream:
    """A socket as it is."""

    def __init__(self, sock: socket.socket) -> None:
        self.raw = sock
        self.send: Callable[[memoryview], int] = sock.send

    def receive(self) -> bytes | None:
        return self.raw.recv(READ_SIZE)


class TlsStream:
    """TLS in memory: OpenSSL must not read and write for one connection at the same time, the socket may."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self.raw = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()

    def shake_hands(self) -> None:
        """Begin; raises `OSError`, of which `ssl.SSLError` is one."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush()
                data = self.raw.recv(READ_SIZE)
                if not data:
                    raise ConnectionResetError("the server closed the connection in the handshake of TLS") from None
                self._incoming.write(data)
            except ssl.SSLError:
                # The server learns of a bad certificate, too.
                self._flush()
                raise
        self._flush()

    def receive(self) -> bytes | None:
        data = self.raw.recv(READ_SIZE)
        if not data:
            return data
        found: list[bytes] = []
        with self._lock:
            self._incoming.write(data)
            while True:
                try:
                    piece = self._tls.read(READ_SIZE)
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLZeroReturnError:
                    piece = b""
                if not piece:
                    return b"".join(found)
                found.append(piece)
            self._flush()
        return b"".join(found) or None

    def send(self, data: memoryview) -> int:
        with self._lock:
            self._tls.write(data)
            self._flush()
        return len(data)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self.raw.sendall(self._outgoing.read())


class Watch(Protocol):
    """What a wait on a link listens to beside it."""

    def may_read(self, until: float, /) -> bool:
        """Wait until there is something to read on the link; False if there is not."""
        ...

    def stop(self) -> None:
        """End its work, from any thread: the link is dead."""
        ...


class _Ear:
    """What the reader looks for bytes with, before it goes to sleep for them."""

    def __init__(self, sock: socket.socket) -> None:
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        self.poll = poll.poll
        self.passes_over = 0
        """How many times it does not look."""
        self.misses = 0
        """How many times it did not look, after it had in vain."""
        self.used_at = -math.inf
        """When it last looked, or did not because the link is used rarely."""


class Link(Waking):
    """The roles of writing and reading, and the order of replies.

    `exclusive`: a caller that is interrupted in its wait kills the link, which ends a blocking command.
    """

    def __init__(self, stream: Stream, limit_s: float, *, exclusive: bool = False) -> None:
        super().__init__(pack)
        self._stream = stream
        self._sock = stream.raw
        self._write_limit_s = limit_s
        self._exclusive = exclusive
        self._reader = hiredis.Reader(replyError=ServerError, notEnoughData=NOTHING)
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self._ear = _Ear(self._sock)
        self._lock = threading.Lock()
        self._gathered_calls = 0
        self._merges_under_way = 0
        self._writing: Call | None = None
        self._reading: Call | None = None
        self._sending: list[Call] = []
        self._receive_limit_s = math.inf
        self.interrupted = False
        self.watch: Watch | None = None
        _limit(self._sock, socket.SO_RCVTIMEO, math.inf)
        _limit(self._sock, socket.SO_SNDTIMEO, limit_s)

    @property
    def dead(self) -> bool:
        return self._death is not None

    @property
    def raw(self) -> socket.socket:
        return self._sock

    def die(self, kind: type[TransportError], message: str) -> None:
        """Close the socket and fail every call with `kind`; only the first death counts."""
        check_room()
        with self._lock:
            self._die(kind, message)

    def drop(self, error: BaseException) -> None:
        """Die of an unexpected exception: it is unknown what it has cut short."""
        with self._lock:
            self._drop(error)

    def has_ended(self) -> bool:
        """Look, without waiting, whether the server has closed an idle link or sent something unrequested."""
        check_room()
        with self._lock:
            if not self._pending and not self._out and self._reading is None and self._writing is None:
                self._look()
            return self.dead

    def interrupt(self) -> None:
        """End the calls that are under way, if there are any."""
        check_room()
        with self._lock:
            if self._pending or self._out:
                self.interrupted = True
                self._die(ConnectionLost, "interrupted")

    def abandon(self) -> None:
        """Close the socket without notifying the server: it belongs to the process that this one was forked from."""
        self._death = (Closed, "the connection belongs to another process")
        self._sock.close()

    def request(self, payload: bytes | Command[Any], limit_ms: Millis | None) -> Any:
        """Write `payload` and return the reply to it, as `exchange`."""
        return self.exchange(payload, 1, limit_ms)[0]

    def exchange(self, payload: bytes | Command[Any], count: int, limit_ms: Millis | None) -> list[Any]:
        """Write `payload` and return the `count` replies to it; error replies stand as `ServerError`.

        A command is one with `merge`: several of one kind and queue that wait for the same write go in one script call.

        Raises `TransportError`. Any other exception, of a signal's handler, withdraws a call that was not sent yet and
        drops the replies of one that was; in a thread that has a role it kills the link.
        """
        check_room_to_send()
        limit_s = math.inf if limit_ms is None else limit_ms / 1000
        call = Call(payload, count, limit_s) if isinstance(payload, bytes) else Call(b"", count, limit_s, payload)
        try:
            self._carry(call)
        except BaseException as error:
            # A signal's handler may raise again at any call. There is none outside of a `try`: nobody is left behind.
            try:
                self._withdraw(call, error)
            except BaseException:
                try:
                    self._withdraw(call, error)
                except BaseException:
                    self._withdraw(call, error)
                    raise
                raise
            raise
        if call.failure is not None:
            raise call.failure
        return call.replies

    def _carry(self, call: Call) -> None:
        with self._lock:
            if self._death is None and not self._pending and not self._out:
                self._look()
            if self._death is not None:
                kind, message = self._death
                call.failure = kind(message, maybe_applied=False)
                return
            self._out.append(call)
            if call.command is not None:
                self._gathered_calls += 1
            data = self._gathered(call)
            if not data:
                self._find_role(call)
        while True:
            while data:
                data = self._write(call, data)
            turn = call.turn
            if turn is not None:
                turn.acquire()
                call.turn = None
                if self._woken is call:
                    data = self._wake_next(call)
                    while data:
                        data = self._write(call, data)
            if self._reading is call:
                self._read(call)
            if call.done:
                return
            with self._lock:
                data = self._gathered(call)
                if not data:
                    self._find_role(call)

    def _find_role(self, call: Call) -> None:
        """Let a caller read, or else wait. The lock is held."""
        if call.done:
            return
        if self._reading is None:
            self._reading = call
        elif self._reading is not call:
            call.turn = threading.Lock()
            call.turn.acquire()
            call.from_main_thread = threading.get_ident() == self._main

    def _withdraw(self, call: Call, error: BaseException) -> None:
        with self._lock:
            waits, call.turn = call.turn is not None, None
            if call.done:
                if self._woken is not None:
                    # It may be the one that was to wake the next, or have stopped halfway.
                    self._wake_all()
            elif call in self._out and self._writing is not call:
                self._out.remove(call)
                self._gathered_calls = sum(each.command is not None for each in self._out)
            else:
                call.dropped = True
                if self._exclusive:
                    self._die(ConnectionLost, "the call was interrupted")
            if self._death is not None or self._writing is call or (self._reading is call and not waits):
                # Bytes may be lost.
                self._drop(error)
                self._writing = None if self._writing is call else self._writing
            if self._reading is call or self._reading is None:
                self._pass_on()
            else:
                # It may have been given the role and not been woken: no thread that has it waits.
                self._reading.wake()
            next_reader = self._next_reader()
            if next_reader is not None and self._writing is None:
                next_reader.wake()
            # What has gathered meanwhile may be the reader's own.
            data = self._gathered(call) if call.done else b""
            self._close_if_unused()
        while data:
            data = self._write(call, data)

    def _drop(self, error: BaseException) -> None:
        """Do as `drop`. The lock is held."""
        self._die(ConnectionLost, f"the connection was dropped ({type(error).__name__})")

    def _end(self) -> None:
        waiting = (*self._pending, *self._sending, *self._out)
        calls = [each for owner in waiting for each in (*owner.members, owner) if not each.done]
        for call in calls:
            call.failure = self._loss(call, maybe_applied=call.sent)
            call.done = True
        with contextlib.suppress(OSError):
            # Wakes the threads out of the socket.
            self._sock.shutdown(socket.SHUT_RDWR)
        watch = self.watch
        if watch is not None:
            watch.stop()
        for owner in waiting:
            # Also a call that is done already: its waking may have been interrupted.
            for call in (*owner.members, owner):
                call.wake()
        self._wake_all()
        self._pending.clear()
        self._out.clear()
        self._gathered_calls = self._merges_under_way = 0
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._death is not None and self._writing is None and self._reading is None:
            self._sock.close()

    # --- writing ------------------------------------------------------------------------------------------------------

    def _gathered(self, call: Call) -> bytes:
        """Take the role of writing and return the bytes to send; nothing, without the role, if that is for others or
        for later. The lock is held."""
        out = self._out
        count = self._gathered_calls
        if not out or (self._writing is not None and self._writing is not call):
            return b""
        gathers = self._merges_under_way >= _MOST_MERGES_UNDER_WAY or self._woken is not None
        if gathers and count == len(out) and count < _ENOUGH_GATHERED:
            return b""
        self._writing = call
        self._sending = out
        self._out = []
        if count:
            self._gathered_calls = 0
            self._merges_under_way += 1
            out = self.merged(out)
            if not out:
                self._merges_under_way -= 1
                self._writing = None
                return b""
            out[-1].ends_merged = True
        self._pending += out
        mark_sent(out, True)
        return out[0].payload if len(out) == 1 else b"".join([each.payload for each in out])

    def _wake_next(self, call: Call) -> bytes:
        """Wake the next thread; if there is none, return what has gathered, with the role of writing."""
        with self._lock:
            if self._woken is call:
                self._wake_some(call)
            return self._gathered(call)

    def _together(self, members: list[Call], payload: bytes, command: Command[Any]) -> Call:
        made = Call(payload, 1, members[0].limit_s, command)
        made.members = tuple(members)
        return made

    def _refuse(self, call: Call, error: UsageError) -> None:
        call.failure = error
        call.done = True
        call.wake()

    def _write(self, call: Call, data: bytes) -> bytes:
        """Send it; give the role back and return nothing, or the bytes that have come meanwhile."""
        trouble = self._send(data)
        with self._lock:
            self._sending = []
            if trouble is not None:
                self._die(*trouble)
            next_reader = self._next_reader() if call.done else None
            more = b"" if next_reader is not None else self._gathered(call)
            if not more:
                self._writing = None
                self._close_if_unused()
                self._find_role(call)
                if next_reader is not None:
                    next_reader.wake()
        return more

    def _send(self, data: bytes) -> tuple[type[TransportError], str] | None:
        rest = memoryview(data)
        begun = monotonic() if len(rest) > READ_SIZE else math.inf
        try:
            while rest and self._death is None:
                rest = rest[self._stream.send(rest) :]
                if rest and monotonic() - begun >= self._write_limit_s:
                    return _SLOW
        except BlockingIOError:
            return _SLOW
        except OSError as error:
            if len(rest) == len(data) and isinstance(self._stream, PlainStream):
                with self._lock:
                    mark_sent(self._sending, False)
            return ConnectionLost, f"writing failed: {error}"
        return None

    def _next_reader(self) -> Call | None:
        """Return a waiting call that can write what has gathered, in place of one that is done. The lock is held."""
        return next((each for each in self._out if each.turn is not None and self._reading is not each), None)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, call: Call) -> None:
        """Read until the call is done, then hand the role on."""
        if call.limit_s != self._receive_limit_s:
            self._receive_limit_s = call.limit_s
            _limit(self._sock, socket.SO_RCVTIMEO, call.limit_s)
        while not call.done:
            data = self._receive(call)
            while data:
                data = self._write(call, data)
        with self._lock:
            if self._reading is call:
                self._pass_on()

    def _pass_on(self) -> None:
        """Hand the role of reading on. The newest waiter reads longest before it changes again. The lock is held."""
        self._reading = None
        if self._death is not None:
            self._close_if_unused()
            return
        for call in chain(reversed(self._pending), reversed(self._out)):
            for each in call.members or (call,):
                if each.turn is not None and not each.done:
                    self._reading = each
                    each.wake()
                    return

    def _receive(self, call: Call) -> bytes:
        """Wait for bytes and resolve the replies in them, or die at the deadline; return what there is to write."""
        trouble: OSError | None = None
        data: bytes | None = None
        ear = self._ear
        if ear.passes_over:
            ear.passes_over -= 1
        elif len(self._pending) == 1 and not self._exclusive:
            self._linger()
        watch = self.watch
        try:
            if watch is None or watch.may_read(call.deadline):
                data = self._stream.receive()
        except BlockingIOError:
            pass
        except OSError as error:
            trouble = error
        with self._lock:
            if self._death is not None:
                return b""
            if trouble is not None:
                self._die(ConnectionLost, f"reading failed: {trouble}")
                return b""
            self._take(data)
            if self._to_wake:
                self._wake_some(None)
            # Threads that had to wait for long find the reply there.
            if self._is_late() and not self._poll.poll(0):
                self._die(TransportTimeout, "no reply within the time limit")
            return self._gathered(call)

    def _linger(self) -> None:
        """Look for bytes for a moment, as long as nobody else calls."""
        ear = self._ear
        now = monotonic()
        is_rare, ear.used_at = now - ear.used_at > _RARELY_S, now
        if is_rare:
            return
        end = now + _LINGER_S
        while monotonic() < end:
            if ear.poll(0):
                ear.misses = 0
                return
            if len(self._pending) > 1 or self._out:
                return
            let_others_run()
        ear.passes_over = ear.misses = min(2 * ear.misses or 1, _MOST_PASSED_OVER)

    def _is_late(self) -> bool:
        head = next((each for each in self._pending if not each.dropped), None)
        return head is not None and monotonic() >= head.deadline

    def _look(self) -> None:
        """Notice that the server has closed the connection, or sent something unrequested. The lock is held."""
        try:
            while self._death is None and self._poll.poll(0):
                try:
                    data = self._stream.receive()
                except BlockingIOError:
                    return
                except OSError as error:
                    self._die(ConnectionLost, f"reading failed: {error}")
                    return
                self._take(data)
        except BaseException as error:
            # Received bytes may be lost. The caller has no role from which it could be withdrawn.
            self._drop(error)
            raise

    def _take(self, data: bytes | None) -> None:
        """Resolve the replies in the received bytes. The lock is held."""
        if data is None:
            return
        if not data:
            self._die(ConnectionLost, "the server closed the connection")
            return
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not NOTHING:
                self._resolve(reply)
        except (hiredis.ProtocolError, TypeError, MemoryError) as error:
            # hiredis raises TypeError for a map with a list as a key.
            self._die(ConnectionLost, f"the server sent no RESP: {error}")

    def _resolve(self, reply: Any) -> None:
        """Give one reply to the call whose turn it is."""
        pending = self._pending
        if not pending:
            self._die(ConnectionLost, unasked(reply))
            return
        call = pending[0]
        call.replies.append(reply)
        if len(call.replies) < call.missing:
            return
        if call.ends_merged:
            self._merges_under_way -= 1
        if call.members:
            self._share(call)
        self._end_call(call)
        # Last, so that an interrupt in between leaves nobody behind.
        pending.popleft()

    def _share(self, merged: Call) -> None:
        """Give each member its part of the reply, or of the refusal."""
        members, command = merged.members, merged.command
        assert command is not None  # it has members
        for call, share in zip(members, self.shares(command, merged.replies[0], len(members)), strict=True):
            call.replies.append(share)
            self._end_call(call)


def mark_sent(calls: list[Call], sent: bool) -> None:
    """Note whether bytes of these calls were handed to the operating system."""
    for call in calls:
        call.sent = sent
        for each in call.members:
            each.sent = sent


def _limit(sock: socket.socket, option: int, limit_s: float) -> None:
    """Let the system end a wait: one call less than to wait for the socket first."""
    seconds = 0.0 if limit_s == math.inf else max(limit_s, 0.001)
    sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(seconds), int(seconds % 1 * 1_000_000)))
