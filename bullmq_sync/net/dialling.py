"""Attempts to connect, in threads: shared by the callers that come while one is under way, ended by any other."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from types import TracebackType
from typing import TypeVar, cast

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError, ConnectionLost
from bullmq_protocol.net.address import ConnectionOptions, Login, checked_login
from bullmq_protocol.net.handshake import without_tls
from bullmq_sync.net.answer import Answer, failure_of, outcome_of
from bullmq_sync.net.link import Link, PlainStream, Stream, TlsStream
from bullmq_sync.net.sockets import Addresses, TlsContexts, no_address, numeric, set_up
from bullmq_sync.primitives import SHORTAGE, is_interrupt

T = TypeVar("T")

_CLOSE_WAIT_S = 1.0


class Attempt:
    """One attempt to connect, or a part of one."""

    def __init__(self, address: str, step_s: float, *, until: float = inf, whole: Attempt | None = None) -> None:
        self._step_s = step_s
        """How long a look-up may take, a connection to one address, a handshake."""
        self._until = until
        self._whole = whole
        self._parts: set[Attempt] = set()
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._looking: threading.Lock | None = None
        """Held until a name has been looked up."""
        self.turns: list[threading.Lock] = []
        """What the others wait for. Not an event: a signal's handler that raises in one may leave it locked."""
        self.thread = threading.get_ident()
        self.begun: Link | None = None
        """Not in use yet."""
        self.link: Link | None = None
        # Until it is known better.
        why = f"the attempt to connect to {address} was interrupted"
        self.failure: BullMQError | None = ConnectionLost(why, maybe_applied=False)
        self.stopped: BullMQError | None = None
        self.awaits: str | None = None
        """The address whose handshake of TLS was the last to begin, until it ends; one that took too long stays."""

    @property
    def left_s(self) -> float:
        """How long its next step may take. Raises what stopped it, and `TimeoutError`."""
        if self.stopped is not None:
            raise self.stopped
        left = min(self._step_s, self._until - monotonic())
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left

    @property
    def left_ms(self) -> Millis | None:
        """How long a reply may take. Raises as `left_s`."""
        return max(int(self.left_s * 1000), 1)

    def part(self, limit_s: float) -> Attempt:
        """Return a part of it: the body of its `scope` has `limit_s` seconds, and each of its steps ends by then."""
        part = Attempt("", self._step_s, until=min(monotonic() + limit_s, self._until), whole=self)
        with self._lock:
            part.stopped = self.stopped
            self._parts.add(part)
        return part

    @property
    def scope(self) -> Attempt:
        return self

    def __enter__(self) -> Attempt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        whole = self._whole
        if whole is not None:
            with whole._lock:
                whole._parts.discard(self)
            whole.awaits = whole.awaits or self.awaits
        return isinstance(error, TimeoutError)

    def pause(self, pause_s: float) -> None:
        """Wait. Raises as `left_s`."""
        sleep(min(pause_s, self.left_s))

    def hold(self, sock: socket.socket) -> None:
        """Know the socket, so that it can be shut. Raises what stopped it."""
        with self._lock:
            if self.stopped is not None:
                raise self.stopped
            self._sock = sock

    def let_go(self) -> None:
        """Close the socket."""
        if self._sock is not None:
            self._sock.close()

    def turn(self) -> threading.Lock:
        """Return what can be acquired when it is over. The connection's lock is held."""
        turn = threading.Lock()
        turn.acquire()
        self.turns.append(turn)
        return turn

    def stop(self, why: BullMQError) -> None:
        """Wake it out of its sockets."""
        with self._lock:
            self.stopped = self.stopped or why
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    self._sock.shutdown(socket.SHUT_RDWR)
            self._end_look_up()
            parts = tuple(self._parts)
        for part in parts:
            part.stop(why)

    def looked_up(self, options: ConnectionOptions) -> Addresses:
        """Look a name up in a thread, because nothing else ends a look-up."""
        found: list[Addresses | OSError] = []
        over = threading.Lock()
        over.acquire()

        def look_up() -> None:
            try:
                found.append(socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM))
            except OSError as error:
                found.append(error)
            finally:
                with self._lock:
                    self._end_look_up()

        with self._lock:
            if self.stopped is not None:
                raise self.stopped
            self._looking = over
        try:
            threading.Thread(target=look_up, name="bullmq look-up", daemon=True).start()
        except RuntimeError:
            # The system gives no new thread for the moment.
            look_up()
        if not over.acquire(timeout=self.left_s):
            raise TimeoutError("no answer in time")
        if self.stopped is not None:
            raise self.stopped
        (answer,) = found
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _end_look_up(self) -> None:
        """Wake the threads that wait for the address. The lock is held."""
        if self._looking is not None and self._looking.locked():
            self._looking.release()


def login_of(options: ConnectionOptions) -> Login:
    """Return user name and password; a coroutine is none."""
    try:
        answer = options.login()
    except Exception:
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        raise ConnectionLost(f"credentials raised {type(error).__name__}", maybe_applied=False) from error
    if isinstance(answer, tuple):
        return answer
    if isinstance(answer, Coroutine):
        answer.close()
    unawaited: object = cast("object", answer)
    return checked_login(unawaited)


def dial(options: ConnectionOptions, tls: TlsContexts, attempt: Attempt, *, exclusive: bool) -> Link:
    """Connect a socket, without the handshake of Redis."""
    attempt.awaits = None
    failure: OSError | None = None
    for family, kind, protocol, _, place in _addresses(options, attempt):
        sock = socket.socket(family, kind, protocol)
        try:
            attempt.hold(sock)
            sock.settimeout(attempt.left_s)
            sock.connect(place)
            if family != socket.AF_UNIX:
                set_up(sock)
            stream: Stream = PlainStream(sock)
            context = tls.of(options)
            if context is not None:
                attempt.awaits = f"{options.host}:{options.port}"
                sock.settimeout(attempt.left_s)
                stream = _start_tls(sock, context, options.host)
                attempt.awaits = None
            sock.settimeout(None)
            limit_ms = options.command_timeout_ms
            return Link(stream, inf if limit_ms is None else limit_ms / 1000, exclusive=exclusive)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):
                raise
            if not isinstance(error, TimeoutError):
                attempt.awaits = None
            failure = failure or error
    raise no_address(failure)


def _addresses(options: ConnectionOptions, attempt: Attempt) -> Addresses:
    if options.unix_path is not None:
        return [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", options.unix_path)]
    return numeric(options) or attempt.looked_up(options)


def _start_tls(sock: socket.socket, context: ssl.SSLContext, host: str) -> TlsStream:
    stream = TlsStream(sock, context, host)
    try:
        stream.shake_hands()
    except ssl.SSLError as error:
        raise without_tls(error) from error.__cause__
    return stream


# --- several at once --------------------------------------------------------------------------------------------------


def at_once(
    attempt: Attempt, calls: Sequence[Callable[[Attempt], Answer]], limit_s: float, grace_s: float
) -> list[Answer | BullMQError]:
    """Make all calls at the same time, in threads; return answers and failures in their order.

    Each call has a part of the attempt and `limit_s` seconds, and `grace_s` from when one of the answers suffices. If
    one raises an error that is neither ours nor an `OSError`, that is raised, and the answers of the others discarded.
    """
    made = [_Aside(attempt, call, limit_s) for call in calls]
    done: SimpleQueue[_Aside] = SimpleQueue()
    missing = set(made)
    is_whole = False
    try:
        if len(made) == 1:
            made[0].run(done)
        else:
            for each in made:
                each.start(done)
        until = monotonic() + limit_s + _CLOSE_WAIT_S
        with contextlib.suppress(Empty):
            while missing:
                each = done.get(timeout=max(until - monotonic(), 0))
                missing.discard(each)
                if each.error is not None:
                    raise each.error
                if isinstance(each.outcome, Answer) and each.outcome.suffices:
                    until = min(until, monotonic() + grace_s)
        if attempt.stopped is not None:
            raise attempt.stopped
        is_whole = True
    finally:
        for each in missing:
            each.give_up()
        with contextlib.suppress(Empty):
            # Their remaining steps end immediately, except the look-up of a name.
            until = monotonic() + _CLOSE_WAIT_S
            while missing:
                missing.discard(done.get(timeout=max(until - monotonic(), 0)))
        if not is_whole:
            for each in made:
                each.give_up()
    return [each.outcome for each in made]


class _Aside:
    """A call in a thread of its own."""

    def __init__(self, attempt: Attempt, call: Callable[[Attempt], Answer], limit_s: float) -> None:
        self._call = call
        self._part = attempt.part(limit_s)
        self._lock = threading.Lock()
        self._given_up = False
        self.outcome: Answer | BullMQError = failure_of(None, None)
        self.error: BaseException | None = None

    def start(self, done: SimpleQueue[_Aside]) -> None:
        try:
            threading.Thread(target=self.run, args=(done,), name="bullmq asking", daemon=True).start()
        except SHORTAGE:
            # One after the other, here.
            self.run(done)

    def run(self, done: SimpleQueue[_Aside]) -> None:
        try:
            self._take(outcome_of(self._part, self._call))
        except BaseException as error:
            self.error = error
        finally:
            done.put(self)

    def _take(self, outcome: Answer | BullMQError) -> None:
        with self._lock:
            if not self._given_up:
                self.outcome = outcome
                return
        if isinstance(outcome, Answer):
            outcome.discard()

    def give_up(self) -> None:
        """Wake it out of its socket, and discard its answer, whenever it comes."""
        with self._lock:
            self._given_up = True
            outcome, self.outcome = self.outcome, failure_of(None, None)
        self._part.stop(failure_of(None, None))
        if isinstance(outcome, Answer):
            outcome.discard()


def watched(
    link: Link,
    vigil: Callable[[], tuple[Sequence[Link], float | None]],
    look: Callable[[Link, Attempt], None],
    call: Callable[[], T],
) -> T:
    """Return what `call` returns, which waits on a link.

    Meanwhile `look` is called whenever one of the links of `vigil` has ended, and after as many seconds as it says.
    """
    link.watch = _Watch(link, vigil, look)
    try:
        return call()
    finally:
        link.watch = None


class _Watch:
    """What a thread that waits on a link listens to beside it."""

    def __init__(
        self,
        link: Link,
        vigil: Callable[[], tuple[Sequence[Link], float | None]],
        look: Callable[[Link, Attempt], None],
    ) -> None:
        self._link = link
        self._vigil = vigil
        self._look = look
        self._attempt = Attempt("", inf)

    def stop(self) -> None:
        self._attempt.stop(ConnectionLost("not needed any more", maybe_applied=False))

    def may_read(self, until: float) -> bool:
        """Wait until there is something to read. Otherwise the time is up, or the other source has been handled."""
        watches, limit_s = self._vigil()
        look_at = inf if limit_s is None else monotonic() + limit_s
        poll = select.poll()
        poll.register(self._link.raw, select.POLLIN)
        has_ended = False
        for watch in watches:
            number = watch.raw.fileno()
            if number < 0:
                has_ended = True
            else:
                poll.register(number, select.POLLIN)
        left_s = 0.0 if has_ended else max(min(until, look_at) - monotonic(), 0.0)
        ready = poll.poll(None if left_s == inf else left_s * 1000)
        mine = self._link.raw.fileno()
        if any(number == mine for number, _ in ready):
            return True
        if ready or has_ended or monotonic() >= look_at:
            try:
                self._look(self._link, self._attempt)
            except Exception as error:
                # Waiting callers learn it from their own calls.
                self._link.drop(error)
        return False
