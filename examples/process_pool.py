"""CPU-bound work beside an event loop: the handler hands it to a pool of processes.

`python -m examples.process_pool [URL]`. A job that is cancelled (its lock was lost, the worker was closed) takes its
process with it, and a process that dies fails its job alone.
"""

import sys

import anyio
import anyio.to_process

from bullmq_anyio import Job, Queue, Worker
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from bullmq_protocol.worker.options import WorkerOptions

PROCESSES = 2


def primes(below: int) -> int:
    """Count primes, without mercy for the CPU. Runs in another process, so it must be importable there."""
    return sum(all(number % factor for factor in range(2, int(number**0.5) + 1)) for number in range(2, below))


async def main(url: str) -> None:
    limit = anyio.CapacityLimiter(PROCESSES)
    done: dict[str, str] = {}
    over = anyio.Event()

    async def count(job: Job[int]) -> int:
        return await anyio.to_process.run_sync(primes, job.data, cancellable=True, limiter=limit)

    def note(notice: JobCompleted | JobFailed) -> None:
        if isinstance(notice, JobFailed) and notice.retry_delay_ms is not None:
            return
        done[notice.job.id] = f"{notice.value} primes" if isinstance(notice, JobCompleted) else notice.reason
        if len(done) == 4:
            over.set()

    async with Queue("primes", url, data_type=int) as queue:
        worker = Worker("primes", count, url, data_type=int, options=WorkerOptions(concurrency=PROCESSES))
        worker.on(JobCompleted, note)
        worker.on(JobFailed, note)
        async with worker:
            for below in (100, 1000, 10_000, 20_000):
                await queue.add("count", below)
            await over.wait()
    for job_id in sorted(done):
        print(f"{job_id}: {done[job_id]}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
