"""The contact of a worker to its server: whether it is there, and the waits for jobs."""

from __future__ import annotations

import logging
from typing import Any

import anyio

from bullmq_anyio.driving.contact_base import ContactBase
from bullmq_anyio.driving.notifier import Notifier
from bullmq_anyio.driving.shared import Shared
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker.events import WaitCancelled
from bullmq_protocol.worker.typed import CommandWait


class Contact(ContactBase):
    """Waits on the named connection, opens it where nobody waits, and looks whether the server is there."""

    def __init__(self, shared: Shared[Any], notifier: Notifier) -> None:
        super().__init__(shared, notifier)
        self._waits: dict[int, anyio.CancelScope] = {}
        self._introducing: set[anyio.CancelScope] = set()

    async def introduce(self) -> None:
        if not self._dispatch.introducing(self._clock().mono):
            return
        scope = anyio.CancelScope()
        self._introducing.add(scope)
        try:
            with scope:
                await self._connections.introduce()
                self._dispatch.introduced()
        except BullMQError as error:
            # It opens when the worker waits; its failure is reported then.
            self._notifier.say(logging.DEBUG, " is in no list of workers yet: %s", error)
        except anyio.get_cancelled_exc_class():
            # asyncio: unless somebody cancelled this very task, which no other misses.
            if self._tasks.is_torn():
                raise
        finally:
            self._introducing.discard(scope)

    def will_wait(self, ticket: int) -> None:
        """Note that a wait is to begin: it may be called off before."""
        self._waits[ticket] = anyio.CancelScope()

    def cancel_wait(self, ticket: int) -> None:
        """Call off a wait."""
        if ticket in self._waits:
            self._waits[ticket].cancel()

    async def wait(self, call: CommandWait) -> Any:
        """Wait for jobs; return the reply, the error, or that it was called off."""
        outcome: Any = WaitCancelled(call.ticket)
        try:
            with self._waits[call.ticket]:
                try:
                    outcome = await self._connections.named().perform(call.command)
                except BullMQError as error:
                    outcome = error
        finally:
            del self._waits[call.ticket]
        return outcome

    def stop(self) -> None:
        """Open nothing any more."""
        for scope in self._introducing:
            scope.cancel()
