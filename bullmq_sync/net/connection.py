"""The native connection for threads: one socket that any number of them share, made and remade at need.

It has no thread of its own. `link` moves the bytes; here is what a connection means: address, handshake, scripts, the
repeat rule, closing.

Source: specs/05-worker-runtime.md#sec-1
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import socket
import ssl
import threading
from collections.abc import Coroutine
from typing import Any, cast

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import (
    BullMQError,
    Closed,
    ConnectionLost,
    ServerError,
    TransportError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions, Login, checked_login, parse_url
from bullmq_protocol.net.exchange import Ask, Course, answer, answers, limit_of, may_repeat
from bullmq_protocol.net.handshake import ASKING, NO_TLS, Greeting, opening, unanswered, without_tls
from bullmq_protocol.net.server_info import ServerInfo
from bullmq_sync.forks import in_child
from bullmq_sync.guard import is_interrupt
from bullmq_sync.net.link import Link, PlainStream, Stream, TlsStream, pack

_log = logging.getLogger("bullmq_sync")

_MULTI, _EXEC = pack(("MULTI",)), pack(("EXEC",))
_CLOSE_WAIT_S = 1.0


class Connection:
    """A `Transport` to one server, safe to share between threads; `dedicated()` gives one that can be interrupted.

    `server` is a URL (`redis://`, `rediss://`, `unix://`) or `ConnectionOptions`. It connects at the first call, checks
    the server (`AuthenticationFailed`, `ServerTooOld` below Redis 6.2), and connects again at the next call after a
    loss. Each call makes at most one attempt; callers that come meanwhile share it. A call that cannot know whether
    its command ran raises with `maybe_applied=True`; only commands of the class SAFE are sent once more by themselves,
    and not after a time-out. The child of a fork makes a connection of its own.
    """

    def __init__(self, server: ConnectionOptions | str = "redis://") -> None:
        options = parse_url(server) if isinstance(server, str) else server
        if not isinstance(options, ConnectionOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("connection", type(server), "must be a URL or ConnectionOptions")
        if not isinstance(options.tls, (bool, ssl.SSLContext)):
            raise UsageError("tls", options.tls, "must be True, False or an ssl.SSLContext")
        self._options = options
        # Made when it is needed: reading the system's authorities takes a while.
        self._context: ssl.SSLContext | None = options.tls if isinstance(options.tls, ssl.SSLContext) else None
        self._limit_s = _seconds(options.command_timeout_ms)
        self._client_name = options.client_name
        self._parent: Connection | None = None
        self._info: ServerInfo | None = None
        self._warned = False
        self._lock = threading.Lock()
        # changed under _lock; a link is looked at without it, and one that is dead is never used again
        self._link: Link | None = None
        # guarded by _lock, and what an attempt holds with it
        self._attempt: _Attempt | None = None
        self._children: set[Connection] = set()
        self._closed = False
        in_child(self._forked)

    @property
    def options(self) -> ConnectionOptions:
        """The options it was made with."""
        return self._options

    def server_info(self) -> ServerInfo:
        """Return what the server said of itself; connects if that has not happened yet. Raises as `perform` does."""
        if self._info is None:
            self._connected()
        assert self._info is not None
        return self._info

    def dedicated(self, *, client_name: str | None = None) -> Connection:
        """Return a connection of its own for blocking commands, which another thread can interrupt."""
        child = Connection(self._options)
        if client_name is not None:
            child._client_name = client_name
        child._parent = self
        child._warned = True
        with self._lock:
            child._closed = self._closed
            self._children.add(child)
        return child

    def interrupt(self) -> None:
        """Make a `perform` that is under way in another thread raise `ConnectionLost` at once; otherwise do nothing."""
        with self._lock:
            link, attempt = self._link, self._attempt
            if attempt is not None:
                attempt.stop(ConnectionLost("interrupted", maybe_applied=False))
        if link is not None:
            link.interrupt()

    def has_ended(self) -> bool:
        """Look, without waiting, whether the connection has been lost since it was used last."""
        with self._lock:
            link = None if self._closed else self._link
        return link is not None and link.has_ended()

    def stop_connecting(self) -> None:
        """End an attempt to connect that is under way: who waits for it gets `ConnectionLost`. Otherwise do nothing."""
        with self._lock:
            if self._attempt is not None:
                why = f"the attempt to connect to {self._options.address} was given up"
                self._attempt.stop(ConnectionLost(why, maybe_applied=False))

    def close(self) -> None:
        """Close this connection and those made by `dedicated`. Waiting calls raise `Closed`. May be called twice."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
            link, attempt = self._link, self._attempt
            turn: threading.Lock | None = None
            if attempt is not None:
                attempt.stop(Closed())
                turn = attempt.turn()
        for child in children:
            child.close()
        parent = self._parent
        if parent is not None:
            with parent._lock:
                parent._children.discard(self)
        if link is not None:
            link.die(Closed, "the client is closed")
        if attempt is not None and turn is not None and attempt.thread != threading.get_ident():
            # What its `credentials` do cannot be ended.
            turn.acquire(timeout=_CLOSE_WAIT_S)

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step and return its raw reply: for a `Batch` a list, with `ServerError` values in place of errors.

        Raises `ServerError`, `TransportError`; while connecting also `AuthenticationFailed` and `ServerTooOld`;
        `UsageError` for a blocking command without `dedicated`.
        """
        link = self._link
        if link is None or link.dead:
            link = self._connected()
        try:
            if isinstance(step, Batch):
                return self._run_batch(link, step)
            return self._run(link, step, link.packed(step) if step.merge is None else step)
        except (ConnectionLost, TransportTimeout) as error:
            if link.interrupted or not may_repeat(step, error):
                raise
        link = self._connected()
        if isinstance(step, Batch):
            return self._run_batch(link, step)
        return self._run(link, step, link.packed(step))

    def _run(self, link: Link, step: Command[Any], payload: bytes | Command[Any]) -> Any:
        limit_s = self._limit_s if step.block_ms is None else self._block_limit(step)
        reply = link.exchange(payload, 1, limit_s)[0]
        return reply if type(reply) is not ServerError else self._follow(link, answer(step, reply))

    def _block_limit(self, command: Command[Any]) -> float:
        return _seconds(limit_of(command, None, dedicated=self._parent is not None))

    def _run_batch(self, link: Link, batch: Batch) -> list[Any]:
        replies: list[Any] = self._follow(link, answers(batch))
        return replies

    def _follow(self, link: Link, course: Course) -> Any:
        """Send what a course asks for, until it returns."""
        resume: Any = course.send
        value: Any = None
        while True:
            try:
                ask: Ask = resume(value)
            except StopIteration as stop:
                return stop.value
            payload = link.packed_all(ask.commands, afresh=ask.afresh)
            count = len(ask.commands)
            if ask.atomic:
                payload = _MULTI + payload + _EXEC
                count += 2
            try:
                resume, value = course.send, link.exchange(payload, count, self._limit_s)
            except TransportError as error:
                resume, value = course.throw, error

    # --- connecting ---------------------------------------------------------------------------------------------------

    def _connected(self) -> Link:
        mine: _Attempt | None = None
        turn: threading.Lock | None = None
        try:
            with self._lock:
                if self._closed:
                    raise Closed
                link, attempt = self._link, self._attempt
                if link is not None and not link.dead:
                    return link
                if attempt is None:
                    attempt = self._attempt = mine = _Attempt(self._options.address)
                else:
                    turn = attempt.turn()
            if mine is not None:
                self._connect(mine)
            elif turn is not None:
                turn.acquire()
        finally:
            if mine is not None:
                try:
                    self._end(mine)
                except BaseException:
                    # By a signal's handler, at any point in it: nobody must be left behind.
                    self._end(mine)
                    raise
        if attempt.failure is not None:
            # One of its own for each thread: the traceback belongs to who raises it.
            raise attempt.failure if mine is not None else copy.copy(attempt.failure)
        assert attempt.link is not None
        return attempt.link

    def _connect(self, attempt: _Attempt) -> None:
        address = self._options.address
        try:
            login = self._login()
            commands = opening(login, db=self._options.db, client_name=self._client_name)
            saying = Greeting(address, login[0], (*commands, *ASKING))
            link = attempt.begun = Link(self._dial(attempt), self._limit_s, exclusive=self._parent is not None)
            self._greet(link, saying)
            with self._lock:
                if attempt.stopped is None:
                    self._link = attempt.link = link
                    attempt.failure = None
        except TimeoutError as error:
            why = f": {error}" if str(error) == NO_TLS else ""
            attempt.failure = TransportTimeout(f"no connection to {address} in time{why}", maybe_applied=False)
        except BullMQError as error:
            attempt.failure = error
        except (OSError, MemoryError) as error:
            attempt.failure = ConnectionLost(f"cannot connect to {address}: {_words(error)}", maybe_applied=False)
            attempt.failure.__cause__ = error

    def _login(self) -> Login:
        try:
            return login_of(self._options)
        except Exception:
            raise
        except BaseException as error:
            if is_interrupt(error):
                raise
            raise ConnectionLost(f"credentials raised {type(error).__name__}", maybe_applied=False) from error

    def _end(self, attempt: _Attempt) -> None:
        """Let the attempt be over, and wake who waits for it. May be done twice."""
        if attempt.begun is not None and attempt.link is None:
            attempt.begun.die(ConnectionLost, "the handshake failed")
        with self._lock:
            if self._attempt is attempt:
                self._attempt = None
            attempt.sock = None
            attempt.failure = attempt.stopped or attempt.failure
            for turn in attempt.turns:
                if turn.locked():
                    turn.release()

    def _dial(self, attempt: _Attempt) -> Stream:
        """Connect a socket, and begin TLS."""
        options = self._options
        limit_s = options.connect_timeout_ms / 1000
        failure: OSError | None = None
        for family, kind, protocol, place in self._places(attempt):
            sock = socket.socket(family, kind, protocol)
            try:
                with self._lock:
                    if attempt.stopped is not None:
                        raise attempt.stopped
                    attempt.sock = sock
                sock.settimeout(limit_s)
                sock.connect(place)
                if family != socket.AF_UNIX:
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                stream: Stream = PlainStream(sock)
                if options.tls:
                    if self._context is None:
                        self._context = ssl.create_default_context()
                    stream = tls = TlsStream(sock, self._context, options.host)
                    try:
                        tls.shake_hands()
                    except TimeoutError as error:
                        raise TimeoutError(NO_TLS) from error
                    except ssl.SSLError as error:
                        raise without_tls(error) from error.__cause__
                sock.settimeout(None)
                return stream
            except BaseException as error:
                sock.close()
                if not isinstance(error, OSError):
                    raise
                failure = failure or error
        raise failure or OSError("the host has no address")

    def _places(self, attempt: _Attempt) -> list[tuple[int, int, int, Any]]:
        """Return where to connect to. A name is looked up in a thread, because nothing else ends a look-up."""
        options = self._options
        if options.unix_path is not None:
            return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, options.unix_path)]
        try:
            return _looked_up(options, socket.AI_NUMERICHOST | socket.AI_NUMERICSERV)
        except socket.gaierror:
            pass
        found: list[list[tuple[int, int, int, Any]] | OSError] = []
        over = threading.Lock()
        over.acquire()

        def look_up() -> None:
            try:
                found.append(_looked_up(options))
            except OSError as error:
                found.append(error)
            finally:
                with self._lock:
                    attempt.end_look_up()

        with self._lock:
            if attempt.stopped is not None:
                raise attempt.stopped
            attempt.looking = over
        try:
            threading.Thread(target=look_up, name="bullmq look-up", daemon=True).start()
        except RuntimeError:
            # The system gives no new thread for the moment.
            look_up()
        # The time limit is that of the whole attempt.
        if not over.acquire(timeout=options.connect_timeout_ms / 1000):
            raise TimeoutError
        if attempt.stopped is not None:
            raise attempt.stopped
        (answer,) = found
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _greet(self, link: Link, saying: Greeting) -> None:
        payload = b"".join(map(pack, saying.commands))
        limit_s = self._options.connect_timeout_ms / 1000
        try:
            replies = link.exchange(payload, len(saying.commands), limit_s)
        except TransportError as error:
            # One that was there once has not changed its ways.
            is_settled = bool(self._options.tls) or self._options.unix_path is not None or self._info is not None
            raise unanswered(saying.address, error, tls=is_settled) from error
        greeted = saying.read(replies)
        if greeted.unnamed is not None:
            _log.debug("the server refused the connection name %r: %s", self._client_name, greeted.unnamed)
        if greeted.warnings and not self._warned:
            self._warned = True
            for warning in greeted.warnings:
                _log.warning("%s: %s", saying.address, warning)
        self._info = greeted.info

    def _forked(self) -> None:
        """In the child of a fork: let go of what is the parent's, whose threads are not here."""
        link, self._link = self._link, None
        if link is not None:
            link.abandon()
        attempt, self._attempt = self._attempt, None
        if attempt is not None and attempt.sock is not None:
            attempt.sock.close()
        self._lock = threading.Lock()


class _Attempt:
    """One attempt to connect, shared by the threads that come while it is under way."""

    def __init__(self, address: str) -> None:
        self.turns: list[threading.Lock] = []
        """What the others wait for. Not an event: a signal's handler that raises in one may leave it locked."""
        self.thread = threading.get_ident()
        self.sock: socket.socket | None = None
        self.begun: Link | None = None
        """Not greeted yet."""
        self.link: Link | None = None
        # Until it is known better.
        why = f"the attempt to connect to {address} was interrupted"
        self.failure: BullMQError | None = ConnectionLost(why, maybe_applied=False)
        self.stopped: BullMQError | None = None
        self.looking: threading.Lock | None = None
        """Held until a name has been looked up."""

    def turn(self) -> threading.Lock:
        """Return what can be acquired when it is over. The connection's lock is held."""
        turn = threading.Lock()
        turn.acquire()
        self.turns.append(turn)
        return turn

    def stop(self, why: BullMQError) -> None:
        """Wake it out of its socket. The connection's lock is held."""
        self.stopped = self.stopped or why
        if self.sock is not None:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
        self.end_look_up()

    def end_look_up(self) -> None:
        """Wake who waits for the address. The connection's lock is held."""
        if self.looking is not None and self.looking.locked():
            self.looking.release()


def login_of(options: ConnectionOptions) -> Login:
    """Return user name and password; a coroutine is none."""
    answer = options.login()
    if isinstance(answer, tuple):
        return answer
    if isinstance(answer, Coroutine):
        answer.close()
    unawaited: object = cast("object", answer)
    return checked_login(unawaited)


def _looked_up(options: ConnectionOptions, flags: int = 0) -> list[tuple[int, int, int, Any]]:
    found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, kind, protocol, place) for family, kind, protocol, _, place in found]


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _seconds(limit_ms: Millis | None) -> float:
    return math.inf if limit_ms is None else limit_ms / 1000
