"""Workers as the main thing of a program: they run until a signal ends them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Literal

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from bullmq_anyio.signals import stopping_signals
from bullmq_anyio.worker import Worker
from bullmq_protocol.worker.ending import Idle, shared_end
from bullmq_protocol.worker.options import check_workers, hand_on


async def run_workers(
    *workers: Worker[Any],
    until: Literal["idle"] | None = None,
    max_jobs: int | None = None,
    on_signal: Callable[[signal.Signals], object] | None = None,
) -> signal.Signals | None:
    """Run workers until SIGTERM or SIGINT.

    The first signal closes them gracefully: running jobs may end within `shutdown_timeout`, then they are given back to
    the queue, where another worker takes them at once. A second one cuts the wait short (`aclose(force=True)`). If a
    worker fails (see `Worker.run`), the others are closed gracefully and its error is raised.

    This is for programs that exist to run workers. At its end the signals have the handlers back that it found, and a
    handler of the program's own is called with the signal. A web server closes workers itself when it shuts down: write
    `async with worker:` there.

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
    check_workers(workers, Worker, "bullmq_anyio")
    running = _Running(workers, None if until is None else shared_end(until, len(workers)), max_jobs)
    call = _caller()

    def receive(number: signal.Signals) -> None:
        if on_signal is not None:
            on_signal(number)
        call(running.receive, number)

    with stopping_signals(workers, receive) as before:
        async with anyio.create_task_group() as tasks:
            for worker in workers:
                tasks.start_soon(running.run, worker)
            tasks.start_soon(running.wait, tasks.cancel_scope)
            await running.watch(tasks)
    if running.signal is not None:
        hand_on(running.signal, before[running.signal])
    if running.error is not None:
        raise running.error
    return running.signal


def _caller() -> Callable[..., object]:
    """Return what calls a function in the event loop that runs, from a handler of a signal."""
    token: Any = current_token().native_token
    found: Callable[..., object] | None = getattr(token, "call_soon_threadsafe", None)
    return token.run_sync_soon if found is None else found


class _Running:
    def __init__(self, workers: tuple[Worker[Any], ...], until: Idle | None, max_jobs: int | None) -> None:
        self.signal: signal.Signals | None = None
        self.error: Exception | None = None
        self._workers = workers
        self._until: Idle | None = until
        self._max_jobs = max_jobs
        self._left = len(workers)
        self._over = anyio.Event()
        self._arrived: list[signal.Signals] = []
        self._news = anyio.Event()

    def receive(self, number: signal.Signals) -> None:
        self._arrived.append(number)
        self._news.set()

    async def watch(self, tasks: TaskGroup) -> None:
        """Close the workers at each signal, until the end."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._arrived:
                number = self._arrived.pop(0)
                tasks.start_soon(self.close, self.signal is not None)
                self.signal = self.signal or number

    async def run(self, worker: Worker[Any]) -> None:
        try:
            await worker.run(until=self._until, max_jobs=self._max_jobs)
            if self._until is not None or self._max_jobs is not None:
                await self.close(force=False)
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
