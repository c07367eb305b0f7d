"""Calls that the conformance cases make aside, each in a task of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from bullmq_protocol.net.transport import AsyncTransport

_LIMIT_S = 60


@asynccontextmanager
async def calls_aside() -> AsyncGenerator[Calls, None]:
    """Give what makes calls aside. At the end those that still run are cancelled; the body has 60 s."""
    with anyio.fail_after(_LIMIT_S):
        async with anyio.create_task_group() as tasks:
            yield Calls(tasks)
            tasks.cancel_scope.cancel()


class Calls:
    """Calls by name, each in a task."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._running: dict[str, _Running] = {}
        self._tasks = tasks

    def start(self, name: str, call: Callable[[], Awaitable[Any]], cancelled: Any) -> None:
        """Start a call. `cancelled` is what `settled` returns if it is cancelled."""
        running = self._running[name] = _Running(cancelled)
        self._tasks.start_soon(running.run, call)

    async def first_steps(self) -> None:
        """Let those that were started come to where they wait."""
        for _ in range(4):
            await checkpoint()

    async def settled(self, name: str) -> Any:
        """Wait for a call; return its value."""
        running = self._running[name]
        await running.over.wait()
        return running.outcome

    def abort(self, name: str, transport: AsyncTransport) -> None:
        """End a call that waits: cancel it."""
        self._running[name].scope.cancel()


class _Running:
    def __init__(self, cancelled: Any) -> None:
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()
        self.outcome = cancelled

    async def run(self, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            with self.scope:
                self.outcome = await call()
        finally:
            self.over.set()
