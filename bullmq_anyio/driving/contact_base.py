"""Whether a worker's server is there: what tasks and threads do about it in the same way."""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from bullmq_anyio.driving.notifier import Notifier
from bullmq_anyio.driving.shared import Shared
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker.dispatch import INTRODUCE, Introduce, closed_by_server
from bullmq_protocol.worker.events import ConnectionEnded


class ContactBase(ABC):
    """The first call to the server, and the looks at connections that nobody waits on."""

    _lost: ClassVar[tuple[type[Exception], ...]] = (BullMQError,)
    """What a call raises that comes to nothing, and may be made again."""

    def __init__(self, shared: Shared[Any], notifier: Notifier) -> None:
        self._notifier = notifier
        self._connections = shared.connections
        self._tasks = shared.tasks
        self._clock = shared.clock
        # guarded by the lock of _tasks
        self._dispatch = shared.dispatch

    @abstractmethod
    async def introduce(self) -> None:
        """Open the named connection, where it may be gone and nobody waits on it."""

    async def meet(self) -> None:
        """Let what makes the server unusable be known at once; a server that is not there may come."""
        try:
            await self._connections.meet()
        except self._lost as error:
            with self._tasks.lock:
                warns = self._dispatch.unmet(error)
            if warns:
                self._notifier.say(logging.WARNING, ": %s", error if isinstance(error, BullMQError) else repr(error))
        else:
            with self._tasks.lock:
                self._dispatch.contacted = True
            await self.introduce()

    def look(self) -> ConnectionEnded | Introduce | None:
        """Return what is to be done if a connection was lost while no call waited for an answer."""
        now = self._clock().mono
        with self._tasks.lock:
            looks = self._dispatch.should_look(now)
        if not looks:
            return None
        if self._connections.has_ended():
            return closed_by_server(random.random())
        gone = self._connections.named_has_ended()
        with self._tasks.lock:
            return INTRODUCE if self._dispatch.should_introduce(now, has_ended=gone) else None
