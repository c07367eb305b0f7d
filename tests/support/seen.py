"""Wait for what a worker tells."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

LIMIT_S = 30


class Seen:
    """The notices of a worker, and a way to wait for them."""

    def __init__(self, worker: Any, *kinds: type) -> None:
        self.all: list[Any] = []
        self._news = anyio.Event()
        for kind in kinds:
            worker.on(kind, self._take)

    def _take(self, notice: Any) -> None:
        self.all.append(notice)
        news, self._news = self._news, anyio.Event()
        news.set()

    def of(self, kind: type) -> list[Any]:
        return [notice for notice in self.all if type(notice) is kind]

    async def wait(self, kind: type, count: int = 1, limit_s: float = LIMIT_S) -> list[Any]:
        await self.until(lambda: len(self.of(kind)) >= count, limit_s)
        return self.of(kind)

    async def until(self, holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
        """Wait until it holds; looked at whenever the worker tells something."""
        with anyio.fail_after(limit_s):
            while not holds():
                await self._news.wait()


async def until(holds: Callable[[], Awaitable[Any]], limit_s: float = LIMIT_S) -> None:
    with anyio.fail_after(limit_s):
        while not await holds():
            await anyio.sleep(0.005)
