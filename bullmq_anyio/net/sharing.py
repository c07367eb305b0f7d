"""How tasks share work that is done once for all of them: an attempt to connect, a question for the map of a
cluster."""

from __future__ import annotations

import os

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint, current_token

from bullmq_anyio.net.dialling import Attempt
from bullmq_anyio.net.link import Link
from bullmq_anyio.net.room import check_room
from bullmq_anyio.net.skeleton import Skeleton, Walk
from bullmq_protocol.errors import BullMQError, Closed, ConnectionLost, TransportTimeout, UsageError


class Connecting(Skeleton):
    """A connection as far as it is made, remade and closed; a subclass knows to what, and what it is for."""

    def stop_connecting(self) -> None:
        if self._attempt is not None:
            self._attempt.give_up()

    async def aclose(self) -> None:
        check_room()
        self._closed = True
        for child in tuple(self._children):
            await child.aclose()
        if self._parent is not None:
            self._parent._children.discard(self)
        if self._attempt is not None and self._attempt.loop is current_token().native_token:
            # In another event loop it ends on its own, at its time limit.
            self._attempt.scope.cancel()
        links = self._links()
        for link in links:
            link.die(Closed, "the client is closed")
        if links:
            await cancel_shielded_checkpoint()

    def _ready(self) -> Link | None:
        """Return the link, or None if it has to be made. Raises `UsageError` in the wrong event loop."""
        link = self._link
        if link is None or link.dead or self._closed:
            return None
        if link.process != os.getpid():
            raise in_another_process(self._address)
        if link.is_of_another_loop():
            raise in_another_loop(self._address)
        return link

    async def _connected(self) -> Link:
        """Return the link; make it, unless another caller is about to."""
        check_room()
        while True:
            if self._closed:
                raise Closed
            link = self._ready()
            if link is not None:
                return link
            attempt = self._attempt
            if attempt is None:
                return await self._connect()
            if attempt.loop is not current_token().native_token:
                raise in_another_loop(self._address)
            await attempt.ended()

    async def _connect(self) -> Link:
        attempt = Attempt()
        try:
            self._attempt = attempt
            with anyio.move_on_after(self._connect_timeout_ms / 1000) as attempt.scope:
                attempt.link = await self._open(attempt)
                if self._closed:
                    raise Closed
                self._use(attempt.link)
                return attempt.link
            if self._closed:
                raise Closed
            if attempt.given_up:
                raise ConnectionLost(f"the attempt to connect to {self._address} was given up", maybe_applied=False)
            why = self._why_late(attempt)
            raise TransportTimeout(f"no connection to {self._address} in time{why}", maybe_applied=False)
        except BullMQError as error:
            attempt.failure = error
            raise
        except OSError as error:
            attempt.failure = ConnectionLost(f"cannot connect to {self._address}: {error}", maybe_applied=False)
            raise attempt.failure from error
        finally:
            try:
                self._end(attempt)
            except BaseException:
                # By a signal's handler: nobody must be left behind.
                self._end(attempt)
                raise

    def _end(self, attempt: Attempt) -> None:
        """Let an attempt be over, and wake the tasks that wait for it. Idempotent."""
        self._attempt = None
        attempt.over.set()
        link = attempt.link
        if link is not None and link is not self._link:
            link.die(ConnectionLost, "the attempt to connect was interrupted")


class Calling(Walk):
    """A connection whose calls are cancelled as tasks are."""

    async def _pause(self, pause_s: float) -> None:
        """Wait."""
        await anyio.sleep(pause_s)


class Turn:
    """One caller's turn."""

    def __init__(self) -> None:
        self.loop = current_token().native_token
        self.over = anyio.Event()


class Turns:
    """Lets one caller after the other do what only one may do at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._taken: Turn | None = None

    async def take(self, turn: Turn) -> None:
        """Wait until no task has the turn, and take it. Raises `UsageError` in the wrong event loop."""
        while (other := self._taken) is not None:
            if other.loop is not turn.loop:
                raise in_another_loop(self._address)
            await other.over.wait()
        self._taken = turn

    def leave(self, turn: Turn) -> None:
        """Let the next one have it, if this one has it. May be done twice."""
        if self._taken is turn:
            self._taken = None
        # Also where the first time was cut short just before.
        turn.over.set()


def in_another_loop(address: str) -> UsageError:
    """Return the error for the use of a connection in another event loop than its own."""
    return UsageError("connection", address, "belongs to another event loop: make one in each")


def in_another_process(address: str) -> UsageError:
    """Return the error for the use of a connection in the child of a fork."""
    return UsageError("connection", address, "belongs to the process that this one was forked from: make one in each")
