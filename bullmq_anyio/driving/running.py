"""Workers that run together in one program, as tasks of one event loop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Literal

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import current_token

from bullmq_anyio.worker import Worker
from bullmq_protocol.worker.ending import Together


def _caller() -> Callable[..., object]:
    """Return what calls a function in the event loop that runs, from a handler of a signal."""
    token: Any = current_token().native_token
    found: Callable[..., object] | None = getattr(token, "call_soon_threadsafe", None)
    return token.run_sync_soon if found is None else found


class Running(Together[Worker[Any], signal.Signals]):
    """Runs workers together: `serve` ends when all of them have."""

    def __init__(self, workers: tuple[Worker[Any], ...], until: Literal["idle"] | None, max_jobs: int | None) -> None:
        super().__init__(workers, until, max_jobs)
        self._left = len(workers)
        self._over = anyio.Event()
        self._arrived: list[signal.Signals] = []
        self._news = anyio.Event()
        self._call = _caller()

    def receive(self, number: signal.Signals) -> None:
        """Note a signal, from its handler: any line of the main thread may be interrupted."""
        self._call(self._note, number)

    def _note(self, number: signal.Signals) -> None:
        self._arrived.append(number)
        self._news.set()

    async def serve(self) -> None:
        """Run the workers, and close them at each signal, until all have ended."""
        async with anyio.create_task_group() as tasks:
            for worker in self.workers:
                tasks.start_soon(self._run, worker)
            tasks.start_soon(self._wait, tasks.cancel_scope)
            await self._watch(tasks)

    async def _watch(self, tasks: TaskGroup) -> None:
        """Close the workers at each signal, until the end."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._arrived:
                tasks.start_soon(self._close, self.signalled(self._arrived.pop(0)))

    async def _run(self, worker: Worker[Any]) -> None:
        try:
            await worker.run(until=self.until, max_jobs=self.max_jobs)
            if self.ends_all:
                await self._close(force=False)
        except Exception as error:
            self.failed(error)
            await self._close(force=False)
        finally:
            self._left -= 1
            if not self._left:
                self._over.set()

    async def _wait(self, scope: anyio.CancelScope) -> None:
        """End the wait for signals when no worker runs any more."""
        await self._over.wait()
        scope.cancel()

    async def _close(self, force: bool) -> None:
        async with anyio.create_task_group() as tasks:
            for worker in self.workers:
                tasks.start_soon(worker.aclose, force)
