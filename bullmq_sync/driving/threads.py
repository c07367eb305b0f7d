"""The state that the threads of a worker share: one lock, its conditions, and the context in which they run."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError

R = TypeVar("R")

FORCED_STOP_S = 10.0
"""How long to wait for a thread that is broken or was interrupted."""


class WorkerThreads:
    """One lock for the dispatcher, and for what its threads tell each other."""

    def __init__(self, worker_id: str) -> None:
        self._id = worker_id
        self.renew()
        # guarded by lock
        self.armed: Millis | None = None
        """The deadline that the timer waits for."""
        self.watched = 0
        """How many threads wait for `changed`, which every event of the machine notifies."""
        self.shortage: BaseException | None = None
        """The system gave no thread, and the timer has not seen it."""
        self.break_ends: float | None = None
        """When a broken worker waits no longer."""
        self.left_behind = False
        """A close has gone without threads that callbacks have not given back."""
        # set once
        self.context: contextvars.Context | None = None
        self.is_parents = False
        """This is the child of a fork, and the parent runs the worker."""
        self.interrupt: BaseException | None = None
        """Ctrl-C in a callback; the main thread's own."""

    def renew(self) -> None:
        """Make the locks that no thread of another process may hold."""
        self.lock = threading.Lock()
        self.changed, self.due = threading.Condition(self.lock), threading.Condition(self.lock)
        self.stopped = threading.Event()

    def check_process(self) -> None:
        """Refuse what the child of a fork asks of a worker that its parent runs."""
        if self.is_parents:
            rule = "runs in the process that this one was forked from: make a new one here"
            raise UsageError("worker", self._id, rule)

    def apart(self, call: Callable[..., R], *args: Any) -> R:
        """Call the user's code in a copy of the context in which `run` was called: variables set there reach nobody
        else."""
        context = self.context
        return (contextvars.copy_context() if context is None else context.copy()).run(call, *args)

    def short(self, error: BaseException) -> None:
        """Let the timer ask for threads again; called on any thread, which has its own work to do."""
        with self.lock:
            self.shortage = error
            self.due.notify_all()

    def stop(self) -> None:
        """Let all end that waits."""
        self.stopped.set()
        with self.lock:
            self.due.notify_all()
            self.changed.notify_all()
