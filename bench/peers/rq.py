"""RQ: a pool of as many processes as jobs may run at once, which run them without a fork for each."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from rq import Queue, Retry

from bench.peers.common import IMPATIENT, serve_peer, started
from bench.peers.processes import OfProcesses

_RETRY = Retry(max=2)
"""Without it, a job whose worker was killed fails and is not run again."""


def nothing(n: int) -> None:
    started(n)


class Rq(OfProcesses):
    async def open(self) -> None:
        self._jobs = Queue(self.queue, connection=self.raw)

    @property
    def waiting(self) -> str:
        return self._jobs.key

    async def add(self, n: int) -> object:
        return self._jobs.enqueue("bench.peers.rq.nothing", n, retry=_RETRY)

    async def add_many(self, numbers: Sequence[int]) -> None:
        name = "bench.peers.rq.nothing"
        self._jobs.enqueue_many([Queue.prepare_data(name, (n,), retry=_RETRY) for n in numbers])

    async def left(self) -> int:
        return self._jobs.count + self._jobs.started_job_registry.get_job_count(cleanup=False)

    async def all_ready(self, concurrency: int) -> bool:
        return self.raw.scard("rq:workers") == concurrency

    @asynccontextmanager
    async def worker(self, concurrency: int) -> AsyncGenerator[None]:
        running = self._jobs.started_job_registry.key
        if IMPATIENT and (found := self.raw.zrange(running, 0, -1)):
            # Time passes for what was running: its timeout, and a minute.
            self.raw.zadd(running, dict.fromkeys(found, 1), xx=True)
        async with super().worker(concurrency):
            yield

    def program(self, concurrency: int) -> Sequence[str]:
        kind = ("--worker-class", "rq.worker.SimpleWorker", "--num-workers", str(concurrency))
        return ("rq.cli", "worker-pool", self.queue, *kind, "--url", self.url, "--quiet")


if __name__ == "__main__":
    serve_peer(Rq)
