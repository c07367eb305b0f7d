"""arq: one process with asyncio."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Retry, Worker, func

from bench.peers.common import IMPATIENT, FirstStart, Peer, beside, serve_peer, started

POLL_S = 0.01
"""By default half a second, in which as many jobs start as may run at once."""


async def nothing(ctx: dict[str, Any], n: int) -> None:
    try:
        started(n)
    except FirstStart:
        # Nothing else is tried again.
        raise Retry from None


class Arq(Peer):
    async def open(self) -> None:
        self._pool = await create_pool(RedisSettings.from_dsn(self.url), default_queue_name=self.queue)

    async def close(self) -> None:
        await self._pool.aclose()

    async def add(self, n: int) -> object:
        return await self._pool.enqueue_job("nothing", n)

    async def left(self) -> int:
        return await self._pool.zcard(self.queue)

    @asynccontextmanager
    async def worker(self, concurrency: int) -> AsyncGenerator[None]:
        worker = Worker(
            [func(nothing, name="nothing")],
            queue_name=self.queue,
            redis_settings=RedisSettings.from_dsn(self.url),
            max_jobs=concurrency,
            poll_delay=POLL_S,
            # A job is run again once the key of its worker has expired: ten seconds later than this.
            job_timeout=1 if IMPATIENT else 300,
            handle_signals=False,
        )
        try:
            async with beside(worker.async_run()):
                yield
        finally:
            await worker.close()


if __name__ == "__main__":
    serve_peer(Arq)
