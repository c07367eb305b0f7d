"""Workers as the main thing of a program: they run until a signal ends them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Literal

from bullmq_protocol.worker.options import check_workers, hand_on
from bullmq_sync.driving.running import Running
from bullmq_sync.signals import stopping_signals
from bullmq_sync.worker import Worker


def run_workers(
    *workers: Worker[Any],
    until: Literal["idle"] | None = None,
    max_jobs: int | None = None,
    on_signal: Callable[[signal.Signals], object] | None = None,
) -> signal.Signals | None:
    """Run workers until SIGTERM or SIGINT.

    The first signal closes them gracefully: running jobs have `shutdown_timeout` to finish, then they are returned to
    the queue, where another worker takes them at once. A second one cuts the wait short (`close(force=True)`). If a
    worker fails (see `Worker.run`), the others are closed gracefully and its error is raised.

    This is for programs that mainly run workers. At its end it restores the previous signal handlers, and calls the
    program's own handler with the signal. In a web server, which has its own shutdown, use `with worker:`
    instead.

    Args:
        workers: One worker or several.
        until: "idle" ends them when none of them has anything left to do, as in `Worker.run`. None by default.
        max_jobs: How many jobs, at least 1, a worker takes before it ends; the first one to end closes the others
            gracefully. None, the default: no limit.
        on_signal: A function that is called with each signal as it arrives; it may interrupt any line of the main
            thread. None by default.

    Returns:
        The signal; None if all workers ended for another reason.

    Raises:
        UsageError: There are no workers, or this is not the main thread, the only one that gets signals.
    """
    check_workers(workers, Worker, "bullmq_sync")
    running = Running(workers, until, max_jobs)

    def receive(number: signal.Signals) -> None:
        if on_signal is not None:
            on_signal(number)
        running.receive(number)

    with stopping_signals(workers, receive) as before:
        running.serve()
    if running.signal is not None:
        hand_on(running.signal, before[running.signal])
    if running.error is not None:
        raise running.error
    return running.signal
