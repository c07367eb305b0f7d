"""Workers that run together in one program, each on a thread."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Literal

from bullmq_protocol.worker.ending import Together
from bullmq_sync.primitives import SHORTAGE
from bullmq_sync.worker import Worker

_LOOK_S = 0.5
"""A signal that comes just before the wait begins does not end it: its handler runs when the wait is over."""


class Running(Together[Worker[Any], signal.Signals]):
    """Runs workers together: `serve` ends when all of them have."""

    def __init__(self, workers: tuple[Worker[Any], ...], until: Literal["idle"] | None, max_jobs: int | None) -> None:
        super().__init__(workers, until, max_jobs)
        # A handler of a signal may interrupt any line of this thread, so it does no more than this queue allows.
        self._arrived: SimpleQueue[signal.Signals | _Thread] = SimpleQueue()

    def receive(self, number: signal.Signals) -> None:
        """Note a signal, from its handler: any line of the main thread may be interrupted."""
        self._arrived.put(number)

    def serve(self) -> None:
        """Run the workers, and close them at each signal, until all have ended."""
        left = len(self._started())
        while left:
            match self._next():
                case signal.Signals() as number:
                    self._close(force=self.signalled(number))
                case ended:
                    ended.join()
                    left -= 1
                    if ended.error is not None and self.error is None:
                        self.failed(ended.error)
                        self._close(force=False)
                    elif left and self.ends_all:
                        self._close(force=False)

    def _run(self, worker: Worker[Any]) -> None:
        worker.run(until=self.until, max_jobs=self.max_jobs)

    def _started(self) -> list[_Thread]:
        """Start all, or none: where the system gives no thread, those that run are closed before that is raised."""
        threads: list[_Thread] = []
        try:
            for worker in self.workers:
                thread = _Thread(worker, self._arrived, self._run)
                thread.start()
                threads.append(thread)
        except SHORTAGE:
            for worker in self.workers[: len(threads)]:
                worker.close()
            for thread in threads:
                thread.join()
            raise
        return threads

    def _next(self) -> signal.Signals | _Thread:
        while True:
            try:
                return self._arrived.get(timeout=_LOOK_S)
            except Empty:
                continue

    def _close(self, *, force: bool) -> None:
        """Close all of them at the same time, without waiting."""
        for worker in self.workers:
            name = f"bullmq {worker.name} closing"
            try:
                threading.Thread(target=worker.close, args=(force,), name=name, daemon=True).start()
            except SHORTAGE:
                # One after the other, here. None of it takes long: `run` waits for the rest.
                worker._driver.begin_closing(force)  # pyright: ignore[reportPrivateUsage]


class _Thread(threading.Thread):
    """One worker's `run`, in the starter's context; reports when it is over."""

    def __init__(self, worker: Worker[Any], arrived: SimpleQueue[Any], work: Callable[[Worker[Any]], object]) -> None:
        super().__init__(name=f"bullmq {worker.name} runner", daemon=True)
        self.error: BaseException | None = None
        self._worker = worker
        self._arrived = arrived
        self._work = work
        self._context = contextvars.copy_context()

    def run(self) -> None:
        try:
            self._context.run(self._work, self._worker)
        except BaseException as error:
            self.error = error
        self._arrived.put(self)
