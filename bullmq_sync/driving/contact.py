"""The contact of a worker to its server: whether it is there, and the waits for jobs."""

from __future__ import annotations

import contextlib
import logging
import random
from typing import Any

from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker.dispatch import INTRODUCE, Introduce, closed_by_server
from bullmq_protocol.worker.events import ConnectionEnded, WaitCancelled
from bullmq_protocol.worker.typed import CommandWait
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.shared import Shared
from bullmq_sync.primitives import SHORTAGE


class Contact:
    """Waits on the named connection, opens it where nobody waits, and looks whether the server is there."""

    def __init__(self, shared: Shared[Any], notifier: Notifier) -> None:
        self._notifier = notifier
        self._connections = shared.connections
        self._threads = shared.threads
        self._clock = shared.clock
        # guarded by the lock of _threads
        self._dispatch = shared.dispatch
        self._cancelled: set[int] = set()

    def meet(self) -> None:
        """Let what makes the server unusable be known at once; a server that is not there may come."""
        try:
            self._connections.meet()
        except (BullMQError, *SHORTAGE) as error:
            with self._threads.lock:
                warns = self._dispatch.unmet(error)
            if warns:
                self._notifier.say(logging.WARNING, ": %s", error if isinstance(error, BullMQError) else repr(error))
        else:
            with self._threads.lock:
                self._dispatch.contacted = True
            self.introduce()

    def look(self) -> ConnectionEnded | Introduce | None:
        """Return the actions that follow if a connection was lost while no call waited for an answer."""
        now = self._clock().mono
        with self._threads.lock:
            looks = self._dispatch.should_look(now)
        if not looks:
            return None
        if self._connections.has_ended():
            return closed_by_server(random.random())
        gone = self._connections.named_has_ended()
        with self._threads.lock:
            return INTRODUCE if self._dispatch.should_introduce(now, has_ended=gone) else None

    def introduce(self) -> None:
        """Open the named connection: a worker that always has work never waits on it, and is to be listed too."""
        with self._threads.lock:
            if not self._dispatch.introducing(self._clock().mono):
                return
        # A fault there is met again by the wait, and reported then.
        with contextlib.suppress(BullMQError, *SHORTAGE):
            self._connections.introduce()
            with self._threads.lock:
                self._dispatch.introduced()

    def wait(self, call: CommandWait) -> Any:
        """Wait for jobs; return the reply, the error, or that it was called off."""
        ticket, threads = call.ticket, self._threads
        with threads.lock:
            cancelled = ticket in self._cancelled
            self._cancelled.discard(ticket)
            # Found before it may be called off: that closes it.
            connection = None if cancelled else self._connections.named()
        if connection is None:
            return WaitCancelled(ticket)
        outcome: Any
        try:
            outcome = connection.perform(call.command)
        except (BullMQError, *SHORTAGE) as error:
            outcome = error
        with threads.lock:
            cancelled = isinstance(outcome, Exception) and ticket in self._cancelled
            self._cancelled.discard(ticket)
        return WaitCancelled(ticket) if cancelled else outcome

    def cancel_wait(self, ticket: int) -> None:
        """Call off a wait."""
        with self._threads.lock:
            self._cancelled.add(ticket)
        # Closed and not only interrupted: that also ends a wait which is just about to begin.
        self._connections.drop()
