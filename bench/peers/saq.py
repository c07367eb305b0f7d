"""SAQ: one process with asyncio."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from saq import Queue, Worker

from bench.peers.common import IMPATIENT, Peer, beside, serve_peer, started

TRIES = 3
"""By default one."""


async def nothing(ctx: dict[str, Any], *, n: int) -> None:
    started(n)


class Saq(Peer):
    async def open(self) -> None:
        self._jobs = Queue.from_url(self.url, name=self.queue)
        await self._jobs.connect()

    async def close(self) -> None:
        await self._jobs.disconnect()

    async def add(self, n: int) -> object:
        return await self._jobs.enqueue("nothing", n=n, retries=TRIES, timeout=1 if IMPATIENT else 10)

    async def left(self) -> int:
        return await self._jobs.count("incomplete")

    @asynccontextmanager
    async def worker(self, concurrency: int) -> AsyncGenerator[None]:
        timers = {"sweep": 5} if IMPATIENT else None
        worker = Worker(self._jobs, [nothing], concurrency=concurrency, timers=timers)
        async with beside(worker.start(), worker.stop()):
            yield


if __name__ == "__main__":
    serve_peer(Saq)
