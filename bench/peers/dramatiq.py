"""dramatiq: threads of one process."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.common import IMPATIENT, Peer, serve_peer, started


class Dramatiq(Peer):
    async def open(self) -> None:
        # By default it looks for dead workers in one of a thousand calls, and gives each a minute.
        impatient = {"maintenance_chance": 1_000_000, "heartbeat_timeout": 1_000} if IMPATIENT else {}
        self._broker = RedisBroker(url=self.url, **impatient)
        dramatiq.set_broker(self._broker)
        self._actor = dramatiq.Actor(
            started,
            broker=self._broker,
            actor_name="nothing",
            queue_name=self.queue,
            priority=0,
            options={"min_backoff": 1} if IMPATIENT else {},
        )

    async def close(self) -> None:
        self._broker.close()

    async def add(self, n: int) -> object:
        return self._actor.send(n)

    async def add_many(self, numbers: Sequence[int]) -> None:
        # One after the other: a group does the same.
        for n in numbers:
            self._actor.send(n)

    async def left(self) -> int:
        return self._broker.client.hlen(f"dramatiq:{self.queue}.msgs")

    @asynccontextmanager
    async def worker(self, concurrency: int) -> AsyncGenerator[None]:
        worker = dramatiq.Worker(self._broker, worker_threads=concurrency)
        worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(worker.stop)


if __name__ == "__main__":
    serve_peer(Dramatiq)
