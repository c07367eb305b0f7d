"""The tasks of a worker: where they start, what wakes the one that keeps time, and whether all are being cancelled."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from bullmq_anyio.primitives import Lock
from bullmq_anyio.tasks import JobTasks
from bullmq_protocol.common.units import Millis

FORCED_STOP_S = 10.0
"""How long to wait for cancelled tasks, before they are reported again, or given up."""


class WorkerTasks:
    """The task group of a worker that runs. Nobody else cancels tasks in it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.context = copy_context()
        """What jobs and callbacks begin in a copy of: the context of `run`."""
        self.group: TaskGroup | None = None
        """Present while the machine takes events."""
        self.jobs: JobTasks | None = None
        self.scope: anyio.CancelScope | None = None
        """Shields the work, so that a cancellation from outside does not cut it in the middle."""
        self.broken = False
        """A fault ends them."""
        self.stopped: anyio.Event | None = None

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any, name: str | None = None) -> None:
        """Start a task of the worker's in a context of its own, wherever this runs."""
        # Nobody would cancel one that joins a group whose others have been cancelled and are over.
        if self.jobs is not None and not self.is_torn():
            self.context.copy().run(partial(self.jobs.start_soon, function, *args, name=name))

    def is_torn(self) -> bool:
        """Whether the tasks are being cancelled as a whole, by us or for a fault."""
        scope, group = self.scope, self.group
        return self.broken or scope is None or scope.cancel_called or group is None or group.cancel_scope.cancel_called

    async def fail(self, fault: BaseException) -> None:
        """End the worker with a fault, as if a task of the library had met it."""
        self.broken = True
        raise fault


class Alarm:
    """Wakes the task that keeps time."""

    def __init__(self) -> None:
        self.due: Millis | None = None
        """The deadline that it waits for."""
        self.event: anyio.Event | None = None
        """None: nobody waits."""

    def set(self) -> None:
        """Let it look again."""
        if self.event is not None:
            self.event.set()

    async def wait(self, limit_s: float | None) -> bool:
        """Wait until it is set, at most `limit_s` seconds; return whether it was."""
        self.event = event = anyio.Event()
        with anyio.move_on_after(limit_s):
            await event.wait()
            return True
        return False
