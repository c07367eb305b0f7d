"""Workers as the main thing of a program: they run until a signal ends them."""

from __future__ import annotations

import contextvars
import signal
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Literal

from bullmq_protocol.worker.ending import Idle, shared_end
from bullmq_protocol.worker.options import check_workers, hand_on
from bullmq_sync.primitives import SHORTAGE
from bullmq_sync.signals import stopping_signals
from bullmq_sync.worker import Worker

_LOOK_S = 0.5
"""A signal that comes just before the wait begins does not end it: its handler runs when the wait is over."""


def run_workers(
    *workers: Worker[Any],
    until: Literal["idle"] | None = None,
    max_jobs: int | None = None,
    on_signal: Callable[[signal.Signals], object] | None = None,
) -> signal.Signals | None:
    """Run workers, each in a thread, until SIGTERM or SIGINT.

    The first signal closes them gracefully: running jobs may end within `shutdown_timeout`, then they are given back to
    the queue, where another worker takes them at once. A second one cuts the wait short (`close(force=True)`). If a
    worker fails (see `Worker.run`), the others are closed gracefully and its error is raised.

    This is for programs that exist to run workers. At its end the signals have the handlers back that it found, and a
    handler of the program's own is called with the signal.

    Args:
        workers: One worker or several.
        until: "idle" ends them when there is nothing left to do for any of them, as `Worker.run`. None by default.
        max_jobs: After how many jobs a worker takes no more, at least 1; the first that has ended ends the others
            gracefully. None, the default: none does.
        on_signal: A function that is called with each of the signals as it arrives; it may interrupt any line of the
            main thread. None by default.

    Returns:
        The signal; None if all workers were closed in another way.

    Raises:
        UsageError: There are no workers, or this is not the main thread, which alone gets signals.
    """
    check_workers(workers, Worker, "bullmq_sync")
    # A handler of a signal may interrupt any line of this thread, so it does no more than this queue allows.
    arrived: SimpleQueue[signal.Signals | _Thread] = SimpleQueue()
    received: signal.Signals | None = None
    error: BaseException | None = None
    idle = None if until is None else shared_end(until, len(workers))

    def receive(number: signal.Signals) -> None:
        if on_signal is not None:
            on_signal(number)
        arrived.put(number)

    with stopping_signals(workers, receive) as before:
        threads = _started(workers, arrived, partial(_run, until=idle, max_jobs=max_jobs))
        left = len(threads)
        while left:
            match _next(arrived):
                case signal.Signals() as number:
                    _close(workers, force=received is not None)
                    received = received or number
                case ended:
                    ended.join()
                    left -= 1
                    if ended.error is not None and error is None:
                        error = ended.error
                        _close(workers, force=False)
                    elif left and (idle is not None or max_jobs is not None):
                        _close(workers, force=False)
    if received is not None:
        hand_on(received, before[received])
    if error is not None:
        raise error
    return received


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


def _run(worker: Worker[Any], *, until: Idle | None, max_jobs: int | None) -> None:
    worker.run(until=until, max_jobs=max_jobs)


def _started(
    workers: tuple[Worker[Any], ...], arrived: SimpleQueue[Any], work: Callable[[Worker[Any]], object]
) -> list[_Thread]:
    """Start them all, or none: where the system gives no thread, those that run are closed before that is raised."""
    threads: list[_Thread] = []
    try:
        for worker in workers:
            thread = _Thread(worker, arrived, work)
            thread.start()
            threads.append(thread)
    except SHORTAGE:
        for worker in workers[: len(threads)]:
            worker.close()
        for thread in threads:
            thread.join()
        raise
    return threads


def _next(arrived: SimpleQueue[signal.Signals | _Thread]) -> signal.Signals | _Thread:
    while True:
        try:
            return arrived.get(timeout=_LOOK_S)
        except Empty:
            continue


def _close(workers: tuple[Worker[Any], ...], *, force: bool) -> None:
    """Close all of them at the same time, without waiting."""
    for worker in workers:
        name = f"bullmq {worker.name} closing"
        try:
            threading.Thread(target=worker.close, args=(force,), name=name, daemon=True).start()
        except SHORTAGE:
            # One after the other, here. None of it takes long: `run` waits for the rest.
            worker._driver.begin_closing(force)  # pyright: ignore[reportPrivateUsage]
