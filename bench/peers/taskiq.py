"""taskiq with the broker that acknowledges, on Redis streams: one process with asyncio."""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from redis.asyncio import Redis
from taskiq import SimpleRetryMiddleware
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

from bench.peers.common import IMPATIENT, Peer, beside, serve_peer, started

_PATIENCE_S = 1.0


class Taskiq(Peer):
    async def open(self) -> None:
        self._broker = RedisStreamBroker(
            self.url, queue_name=self.queue, idle_timeout=2_000 if IMPATIENT else 600_000
        ).with_middlewares(SimpleRetryMiddleware(default_retry_count=3, default_retry_label=True))

        @self._broker.task(task_name="nothing")
        async def nothing(n: int) -> None:
            started(n)

        @self._broker.task(task_name="wake")
        async def wake() -> None: ...

        self._task, self._wake = nothing, wake
        await self._broker.startup()

    async def close(self) -> None:
        await self._broker.shutdown()

    async def add(self, n: int) -> object:
        return await self._task.kiq(n)

    async def left(self) -> int:
        # Streams keep what was acknowledged.
        async with Redis(connection_pool=self._broker.connection_pool) as raw:
            [group] = await raw.xinfo_groups(self.queue)
            waiting = await raw.xrange(self.queue, f"({group['last-delivered-id'].decode()}")
            return group["pending"] + len(waiting)

    @asynccontextmanager
    async def worker(self, concurrency: int) -> AsyncGenerator[None]:
        # As `run_receiver_task` does. The receiver cancels its read, and where the client of Redis swallows that, as
        # it does once in a while, the receiver waits for another job before it ends.
        finish = asyncio.Event()
        self._broker.is_worker_process = True
        with ThreadPoolExecutor() as executor:
            receiver = Receiver(self._broker, executor, max_async_tasks=concurrency, run_startup=False)

            ended = asyncio.Event()

            async def listen() -> None:
                await receiver.listen(finish)
                ended.set()

            async def stop() -> None:
                finish.set()
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        await ended.wait()
                except TimeoutError:
                    await self._wake.kiq()

            async with beside(listen(), stop()):
                yield


if __name__ == "__main__":
    serve_peer(Taskiq)
