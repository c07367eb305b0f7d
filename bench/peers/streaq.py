"""streaQ: one process with asyncio."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from streaq import StreaqRetry, Worker

from bench.peers.common import IMPATIENT, FirstStart, Peer, beside, serve_peer, started


async def nothing(n: int) -> None:
    try:
        started(n)
    except FirstStart:
        # Nothing else is tried again.
        raise StreaqRetry("again", delay=0) from None


class Streaq(Peer):
    async def open(self) -> None:
        adding = self._made(1)
        self._stack = AsyncExitStack()
        self._adding = await self._stack.enter_async_context(adding)
        self._task = adding.registry["nothing"]

    async def close(self) -> None:
        await self._stack.aclose()

    def _made(self, concurrency: int) -> Worker[None]:
        worker = Worker[None](
            self.url,
            queue_name=self.queue,
            concurrency=concurrency,
            idle_timeout=2 if IMPATIENT else 60,
            handle_signals=False,
        )
        worker.task(nothing)
        return worker

    async def add(self, n: int) -> object:
        return await self._task.enqueue(n)

    async def add_many(self, numbers: Sequence[int]) -> None:
        await self._adding.enqueue_many([self._task.enqueue(n) for n in numbers])

    async def left(self) -> int:
        return await self._adding.queue_size()

    @asynccontextmanager
    async def worker(self, concurrency: int) -> AsyncGenerator[None]:
        async with beside(self._made(concurrency).run_async()):
            yield


if __name__ == "__main__":
    serve_peer(Streaq)
