"""CPU-bound work beside threads: the handler hands it to a pool of processes and waits.

`python -m examples.process_pool_threads [URL]`. The worker, its connection and its limits stay in one process. A
process that dies breaks the whole pool (`BrokenProcessPool`): the handler makes a new one, and the attempts of the job
decide whether it is tried again.
"""

import multiprocessing
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_sync import Job, Queue, Worker
from examples.process_pool import PROCESSES, primes

# Spawned, not forked: a copy of a process with threads and open connections is no sound one.
_SPAWN = multiprocessing.get_context("spawn")


class Pool:
    """A pool that is made anew when one of its processes has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool = ProcessPoolExecutor(PROCESSES, _SPAWN)

    def count(self, job: Job[int]) -> int:
        """Handle one job."""
        pool = self._pool
        try:
            return pool.submit(primes, job.data).result()
        except BrokenProcessPool:
            with self._lock:
                if self._pool is pool:
                    self._pool = ProcessPoolExecutor(PROCESSES, _SPAWN)
            raise

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown()


def main(url: str) -> None:
    pool = Pool()
    done: dict[str, str] = {}
    over = threading.Event()

    def note(notice: JobCompleted | JobFailed) -> None:
        if isinstance(notice, JobFailed) and notice.retry_delay_ms is not None:
            return
        done[notice.job.id] = f"{notice.value} primes" if isinstance(notice, JobCompleted) else notice.reason
        if len(done) == 4:
            over.set()

    try:
        with Queue("primes", url, data_type=int) as queue:
            worker = Worker("primes", pool.count, url, data_type=int, options=WorkerOptions(concurrency=PROCESSES))
            worker.on(JobCompleted, note)
            worker.on(JobFailed, note)
            with worker:
                for below in (100, 1000, 10_000, 20_000):
                    queue.add("count", below)
                over.wait()
    finally:
        pool.close()
    for job_id in sorted(done):
        print(f"{job_id}: {done[job_id]}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
