"""The one task of a worker that waits for time to pass."""

from __future__ import annotations

import logging
import random
import time
from _thread import get_ident
from collections.abc import Callable
from typing import Any

import anyio
from anyio import from_thread
from anyio.lowlevel import current_token

from bullmq_anyio.clocks import clock as system_clock
from bullmq_anyio.driving.contact import Contact
from bullmq_anyio.driving.errands import Errands
from bullmq_anyio.driving.notifier import Notifier
from bullmq_anyio.driving.shared import Shared
from bullmq_anyio.driving.tasks import FORCED_STOP_S, Alarm
from bullmq_protocol.common.units import Millis
from bullmq_protocol.net.transport import subscribed
from bullmq_protocol.worker.dispatch import LOOK_MS
from bullmq_protocol.worker.events import ConnectionEnded, Event, Tick

_LOOK_S = LOOK_MS / 1000


class Timer:
    """Passes the tick to the machine, by `happen`, when its deadline has come; at the end it waits for the user's code
    that goes on."""

    def __init__(
        self,
        shared: Shared[Any],
        alarm: Alarm,
        errands: Errands,
        contact: Contact,
        notifier: Notifier,
        happen: Callable[[Event], None],
    ) -> None:
        self._dispatch = shared.dispatch
        self._machine = shared.machine
        self._tasks = shared.tasks
        self._clock = shared.clock
        self._alarm = alarm
        self._errands = errands
        self._contact = contact
        self._notifier = notifier
        self._happen = happen

    async def keep_time(self) -> None:
        """Keep time until the worker has stopped and nothing of the user's is left."""
        unsubscribe = subscribed(self._clock, self._wake_up())
        try:
            await self._tick()
            await self._await_handlers()
            await self._await_errands()
            self._alarm.event = None
        except anyio.get_cancelled_exc_class():
            if self._tasks.is_torn():
                raise
            self._tasks.spawn(self.keep_time)
        finally:
            unsubscribe()

    def _wake_up(self) -> Callable[[], None]:
        """Return what lets it look again when a clock of the user's jumps, from any thread."""
        loop, thread, alarm = current_token(), get_ident(), self._alarm

        def wake_up() -> None:
            if get_ident() == thread:
                alarm.set()
            else:
                from_thread.run_sync(alarm.set, token=loop)

        return wake_up

    def _left_s(self, due: Millis) -> float:
        if self._clock is system_clock:
            return due / 1000 - time.monotonic()
        return (due - self._clock().mono) / 1000

    async def _tick(self) -> None:
        machine, alarm, stopped = self._machine, self._alarm, self._tasks.stopped
        while stopped is not None and not stopped.is_set():
            alarm.due = due = machine.deadline()
            left = None if due is None else self._left_s(due)
            if left is None or left > 0:
                if machine.unattended:
                    left = _LOOK_S if left is None else min(left, _LOOK_S)
                await alarm.wait(left)
                self._look()
                continue
            self._happen(Tick(random.random()))
            if machine.deadline() == due:
                # It has not moved: do not spin.
                await anyio.sleep(0.001)

    def _look(self) -> None:
        found = self._contact.look()
        if isinstance(found, ConnectionEnded):
            self._happen(found)
        elif found is not None:
            self._tasks.spawn(self._contact.introduce)

    async def _await_handlers(self) -> None:
        """They are cancelled, and their jobs given back: a task cannot be stopped that goes on all the same."""
        while self._dispatch.handling:
            # It may be set for something else.
            if not await self._alarm.wait(FORCED_STOP_S):
                self.warn_of_handlers()

    def warn_of_handlers(self) -> None:
        """Say how many there are."""
        message = " is closed, and still waits for %d handlers that go on though they were cancelled"
        self._notifier.say(logging.WARNING, message, len(self._dispatch.handling))

    async def _await_errands(self) -> None:
        while self._errands:
            await self._alarm.wait(self._errands.left_s)
            if not self._errands.left_s:
                await self._end_errands()
                break

    async def _end_errands(self) -> None:
        """The shutdown time is over: cancel what still waits beside the handlers, and wait until it has left."""
        while self._errands:
            message = " is closed, and cancels what has not ended: %s"
            self._notifier.say(logging.WARNING, message, self._errands.names)
            self._errands.cancel()
            with anyio.move_on_after(FORCED_STOP_S):
                while self._errands:
                    await self._alarm.wait(None)
