"""The contact of a worker to its server: whether it is there, and the waits for jobs."""

from __future__ import annotations

import contextlib
from typing import Any

from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker.events import WaitCancelled
from bullmq_protocol.worker.typed import CommandWait
from bullmq_sync.driving.contact_base import ContactBase
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.shared import Shared
from bullmq_sync.primitives import SHORTAGE


class Contact(ContactBase):
    """Waits on the named connection, opens it where nobody waits, and looks whether the server is there."""

    _lost = (BullMQError, *SHORTAGE)

    def __init__(self, shared: Shared[Any], notifier: Notifier) -> None:
        super().__init__(shared, notifier)
        # guarded by the lock of _threads
        self._cancelled: set[int] = set()

    def introduce(self) -> None:
        # A worker that always has work never waits on it, and is to be listed too.
        with self._threads.lock:
            if not self._dispatch.introducing(self._clock().mono):
                return
        # A fault there is met again by the wait, and reported then.
        with contextlib.suppress(*self._lost):
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
        except self._lost as error:
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
