"""Workers as the main thing of a program: they run until a signal ends them."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Any

import anyio

from bullmq_anyio.worker import Worker
from bullmq_protocol.errors import UsageError
from bullmq_protocol.worker.options import check_workers

STOPPING = (signal.SIGTERM, signal.SIGINT)
"""The signals that `run_workers` listens to: an orchestrator's, and Ctrl-C."""


async def run_workers(*workers: Worker[Any]) -> signal.Signals | None:
    """Run the workers until SIGTERM or SIGINT; return the signal, or None if they were all closed otherwise.

    The first signal closes them in good order: running jobs may end within `shutdown_timeout`, then they are given
    back to the queue, where another worker takes them at once. A second one cuts the wait short (`aclose(force=True)`).
    If a worker fails (see `Worker.run`), the others are closed in good order and its error is raised. Raises
    `UsageError` without workers and outside the main thread, which alone hears of signals.
    """
    check_workers(workers, Worker, "bullmq_anyio")
    running = _Running(workers)
    with ExitStack() as stack:
        try:
            signals = stack.enter_context(anyio.open_signal_receiver(*STOPPING))
        except (RuntimeError, ValueError) as error:
            rule = "hears of signals in the main thread only: use Worker.run here"
            raise UsageError("run_workers", workers, rule) from error
        async with anyio.create_task_group() as tasks:
            for worker in workers:
                tasks.start_soon(running.run, worker)
            tasks.start_soon(running.wait, tasks.cancel_scope)
            async for number in signals:
                tasks.start_soon(running.close, running.signal is not None)
                running.signal = running.signal or number
    if running.error is not None:
        raise running.error
    return running.signal


class _Running:
    def __init__(self, workers: tuple[Worker[Any], ...]) -> None:
        self.signal: signal.Signals | None = None
        self.error: Exception | None = None
        self._workers = workers
        self._left = len(workers)
        self._over = anyio.Event()

    async def run(self, worker: Worker[Any]) -> None:
        try:
            await worker.run()
        except Exception as error:
            if self.error is None:
                self.error = error
            await self.close(force=False)
        finally:
            self._left -= 1
            if not self._left:
                self._over.set()

    async def wait(self, scope: anyio.CancelScope) -> None:
        """End the wait for signals when no worker runs any more."""
        await self._over.wait()
        scope.cancel()

    async def close(self, force: bool) -> None:
        async with anyio.create_task_group() as tasks:
            for worker in self._workers:
                tasks.start_soon(worker.aclose, force)
