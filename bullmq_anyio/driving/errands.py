"""The user's code that waits beside the handlers: async callbacks and backoff strategies."""

from __future__ import annotations

import math
import time
from contextvars import Context

from bullmq_anyio.driving.tasks import Alarm, WorkerTasks
from bullmq_anyio.tasks import Errand


class Errands:
    """Those that run. A close waits for them until its time is over; then they are cancelled."""

    def __init__(self, tasks: WorkerTasks, alarm: Alarm) -> None:
        self._tasks = tasks
        self._alarm = alarm
        self._running: dict[Errand, str] = {}
        self._until = math.inf

    def __len__(self) -> int:
        return len(self._running)

    def send(self, errand: Errand, name: str, context: Context) -> None:
        """Start one in this very context, by this name. Where the tasks are gone it does not begin."""
        jobs = self._tasks.jobs
        if jobs is None:
            return
        self._running[errand] = name
        main, on_fault = errand.main, errand.on_fault

        async def accounted() -> None:
            try:
                await main()
            finally:
                self._forget(errand)

        def gone(fault: BaseException | None) -> None:
            self._forget(errand)
            on_fault(fault)

        errand.main, errand.on_fault = accounted, gone
        jobs.send(errand, name, context)

    def _forget(self, errand: Errand) -> None:
        self._running.pop(errand, None)
        if not self._running:
            self._alarm.set()

    def limit(self, left_s: float) -> None:
        """Wait for them no longer than this many seconds from now on."""
        self._until = min(self._until, time.monotonic() + left_s)
        self._alarm.set()

    @property
    def left_s(self) -> float:
        """How many seconds a close waits for them."""
        return max(0.0, self._until - time.monotonic())

    @property
    def names(self) -> str:
        return ", ".join(sorted(set(self._running.values())))

    def cancel(self) -> None:
        """Cancel all that run."""
        for errand in tuple(self._running):
            if self._tasks.jobs is not None:
                self._tasks.jobs.cancel(errand)
