"""Jobs with a typed payload in a trio program: `python -m examples.trio_app redis://localhost`."""

import math
import sys

import msgspec
import trio

from bullmq_anyio import Job, Queue, Worker
from bullmq_protocol import JobOptions, WorkerOptions
from bullmq_protocol.worker.notices import JobCompleted, JobFailed


class Circle(msgspec.Struct):
    radius: float


async def area(job: Job[Circle]) -> float:
    await trio.sleep(0.01)
    return round(math.pi * job.data.radius**2, 2)


async def main(url: str) -> None:
    async with Queue("circles", url, data_type=Circle) as queue:
        small = await queue.add("area", Circle(1))
        large = await queue.add("area", Circle(10), JobOptions(delay=100, priority=2))
        worker = Worker("circles", area, url, options=WorkerOptions(concurrency=10), data_type=Circle)
        results = worker.notices()
        async with worker:
            left = {small.id, large.id}
            async for notice in results:
                if isinstance(notice, JobCompleted):
                    print(f"{notice.job.id}: {notice.value}")
                    left.discard(notice.job.id)
                if isinstance(notice, JobFailed) and notice.retry_delay_ms is None:
                    print(f"{notice.job.id} failed: {notice.reason}")
                    left.discard(notice.job.id)
                if not left:
                    break


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
