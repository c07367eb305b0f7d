"""huey: threads of one process."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from huey import RedisHuey

from bench.peers.common import Peer, serve_peer, started


class Huey(Peer):
    async def open(self) -> None:
        self._huey = RedisHuey(self.queue, url=self.url)
        self._task = self._huey.task(retries=2, name="nothing")(started)

    async def close(self) -> None:
        self._huey.storage.conn.close()

    async def add(self, n: int) -> object:
        return self._task(n)

    async def add_many(self, numbers: Sequence[int]) -> None:
        # One after the other: huey has no call for several.
        for n in numbers:
            self._task(n)

    async def left(self) -> int:
        return self._huey.pending_count()

    @asynccontextmanager
    async def worker(self, concurrency: int) -> AsyncGenerator[None]:
        consumer = self._huey.create_consumer(workers=concurrency, periodic=False)
        consumer.start()
        try:
            yield
        finally:
            await asyncio.to_thread(consumer.stop, graceful=True)


if __name__ == "__main__":
    serve_peer(Huey)
