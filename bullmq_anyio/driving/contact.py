"""The contact of a worker to its server: whether it is there, and the waits for jobs."""

from __future__ import annotations

import logging
import random
from typing import Any

import anyio

from bullmq_anyio.driving.notifier import Notifier
from bullmq_anyio.driving.shared import Shared
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker.dispatch import closed_by_server
from bullmq_protocol.worker.events import ConnectionEnded, WaitCancelled
from bullmq_protocol.worker.typed import CommandWait


class Contact:
    """Waits on the named connection, opens it where nobody waits, and looks whether the server is there."""

    def __init__(self, shared: Shared[Any], notifier: Notifier) -> None:
        self._connections = shared.connections
        self._dispatch = shared.dispatch
        self._tasks = shared.tasks
        self._clock = shared.clock
        self._notifier = notifier
        self._waits: dict[int, anyio.CancelScope] = {}
        self._introducing: set[anyio.CancelScope] = set()

    async def meet(self) -> None:
        """Let what makes the server unusable be known at once; a server that is not there may come."""
        try:
            await self._connections.meet()
        except BullMQError as error:
            if self._dispatch.unmet(error):
                self._notifier.say(logging.WARNING, ": %s", error)
        else:
            self._dispatch.contacted = True
            await self.introduce()

    def look(self) -> ConnectionEnded | None:
        """Return the event for the machine if the connection was lost while no call waited for an answer."""
        now = self._clock().mono
        if not self._dispatch.should_look(now):
            return None
        if self._connections.has_ended():
            return closed_by_server(random.random())
        if self._dispatch.should_introduce(now, has_ended=self._connections.named_has_ended()):
            self._tasks.spawn(self.introduce)
        return None

    async def introduce(self) -> None:
        """Open the named connection, where it may be gone and nobody waits on it."""
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
