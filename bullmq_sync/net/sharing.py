"""How threads share work that is done once for all of them, and end each other's waits: an attempt to connect, a
question for the map of a cluster."""

from __future__ import annotations

import copy
import threading
from typing import Any

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError, Closed, ConnectionLost, TransportTimeout
from bullmq_sync.forks import in_child
from bullmq_sync.net.dialling import Attempt
from bullmq_sync.net.link import Link
from bullmq_sync.net.room import check_room
from bullmq_sync.net.skeleton import Skeleton, Walk

_CLOSE_WAIT_S = 1.0


class Connecting(Skeleton):
    """A connection as far as it is made, remade, interrupted and closed; a subclass knows to what, and what it is
    for."""

    def __init__(self, address: str, connect_timeout_ms: Millis) -> None:
        super().__init__(address, connect_timeout_ms)
        # changed under _lock, as `_link` is, which is looked at without it: one that is dead is never used again
        in_child(self._forked)

    def _begin(self) -> None:
        super()._begin()
        # guarded by _lock, and what an attempt holds with it
        self._attempt = None

    def _forked(self) -> None:
        """In the child of a fork: drop the parent's state, whose threads are not here."""
        links, attempt = self._links(), self._attempt
        self._begin()
        for link in links:
            link.abandon()
        if attempt is not None:
            attempt.let_go()

    def interrupt(self) -> None:
        """Make a `perform` that is under way in another thread raise `ConnectionLost` at once; otherwise do nothing."""
        check_room()
        with self._lock:
            link, attempt = self._link, self._attempt
            if attempt is not None:
                attempt.stop(ConnectionLost("interrupted", maybe_applied=False))
        if link is not None:
            link.interrupt()

    def stop_connecting(self) -> None:
        with self._lock:
            if self._attempt is not None:
                why = f"the attempt to connect to {self._address} was given up"
                self._attempt.stop(ConnectionLost(why, maybe_applied=False))

    def close(self) -> None:
        check_room()
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
            links, attempt = self._links(), self._attempt
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
        for link in links:
            link.die(Closed, "the client is closed")
        if attempt is not None and turn is not None and attempt.thread != threading.get_ident():
            # What its `credentials` do cannot be ended.
            turn.acquire(timeout=_CLOSE_WAIT_S)

    def _ready(self) -> Link | None:
        """Return the link, or None if it has to be made."""
        link = self._link
        return None if link is None or link.dead or self._closed else link

    def _connected(self) -> Link:
        """Return the link; make it, unless another caller is about to."""
        check_room()
        mine: Attempt | None = None
        turn: threading.Lock | None = None
        try:
            with self._lock:
                if self._closed:
                    raise Closed
                link, attempt = self._ready(), self._attempt
                if link is not None:
                    return link
                if attempt is None:
                    attempt = self._attempt = mine = Attempt(self._address, self._connect_timeout_ms / 1000)
                else:
                    turn = attempt.turn()
            if mine is not None:
                self._connect(mine)
            elif turn is not None:
                turn.acquire()
        finally:
            try:
                self._finish(mine)
            except BaseException:
                # By a signal's handler, at any point in it: nobody must be left behind.
                self._finish(mine)
                raise
        if attempt.failure is not None:
            # One of its own for each thread: the traceback belongs to the thread that raises it.
            raise attempt.failure if mine is not None else copy.copy(attempt.failure)
        assert attempt.link is not None
        return attempt.link

    def _connect(self, attempt: Attempt) -> None:
        try:
            link = attempt.begun = self._open(attempt)
            with self._lock:
                if attempt.stopped is None:
                    self._use(link)
                    attempt.link = link
                    attempt.failure = None
        except TimeoutError:
            why = f"no connection to {self._address} in time{self._why_late(attempt)}"
            attempt.failure = TransportTimeout(why, maybe_applied=False)
        except BullMQError as error:
            attempt.failure = error
        except (OSError, MemoryError) as error:
            why = f"cannot connect to {self._address}: {_words(error)}"
            attempt.failure = ConnectionLost(why, maybe_applied=False)
            attempt.failure.__cause__ = error

    def _finish(self, attempt: Attempt | None) -> None:
        if attempt is not None:
            self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        """Let an attempt be over, and wake the threads that wait for it. Idempotent."""
        try:
            if attempt.link is None:
                if attempt.begun is None:
                    attempt.let_go()
                elif attempt.begun is not self._link:
                    attempt.begun.die(ConnectionLost, "the handshake failed")
        finally:
            with self._lock:
                if self._attempt is attempt:
                    self._attempt = None
                attempt.failure = attempt.stopped or attempt.failure
                for turn in attempt.turns:
                    if turn.locked():
                        turn.release()


class Calling(Walk):
    """A connection whose calls another thread can interrupt."""

    _nodes: dict[Any, Any]
    """The connections that a call may be waiting on."""

    def _begin(self) -> None:
        super()._begin()
        self._pausing = threading.Event()
        if self._closed:
            self._pausing.set()
        self._interrupted = False
        self._calls = 0

    def interrupt(self) -> None:
        """Make a `perform` that is blocked in another thread raise `ConnectionLost` at once; otherwise do nothing."""
        with self._lock:
            if not self._calls:
                return
            self._interrupted = True
            nodes = tuple(self._nodes.values())
        self._pausing.set()
        for node in nodes:
            node.interrupt()

    def _enter(self) -> None:
        with self._lock:
            self._calls += 1

    def _leave(self) -> None:
        with self._lock:
            self._calls = max(self._calls - 1, 0)
            if not self._calls and self._interrupted:
                self._interrupted = False
                if not self._closed:
                    self._pausing.clear()

    def _check_open(self) -> None:
        super()._check_open()
        if self._interrupted:
            raise ConnectionLost("interrupted", maybe_applied=False)

    def _pause(self, pause_s: float) -> None:
        """Wait."""
        self._pausing.wait(pause_s)

    def _wake(self) -> None:
        self._pausing.set()


class Turn:
    """One caller's turn."""

    def __init__(self) -> None:
        self.waiting: list[threading.Lock] = []
        """What the others wait for, as in an attempt."""


class Turns:
    """Lets one caller after the other do what only one may do at a time."""

    def __init__(self, address: str) -> None:
        self._lock = threading.Lock()
        self._taken: Turn | None = None

    def take(self, turn: Turn) -> None:
        """Wait until nobody has the turn, and take it."""
        while True:
            with self._lock:
                if self._taken is None:
                    self._taken = turn
                    return
                over = threading.Lock()
                over.acquire()
                self._taken.waiting.append(over)
            over.acquire()

    def leave(self, turn: Turn) -> None:
        """Let the next one have it, if this one has it. May be done twice."""
        with self._lock:
            if self._taken is turn:
                self._taken = None
            for over in turn.waiting:
                if over.locked():
                    over.release()


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
