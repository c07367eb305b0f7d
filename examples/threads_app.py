"""A queue and a worker in a blocking program: `python -m examples.threads_app redis://localhost`."""

import sys
import threading

from bullmq_protocol import Backoff, JobOptions, UnrecoverableError, WorkerOptions
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from bullmq_sync import Job, Queue, Worker


def resize(job: Job[dict[str, int]]) -> str:
    if job.data["width"] <= 0:
        raise UnrecoverableError("no picture is so narrow")
    if job.attempts_made == 0:
        raise ConnectionError("the store does not answer")
    job.log(f"attempt {job.attempts_made + 1}")
    return f"{job.data['width']} pixels wide"


def main(url: str) -> None:
    with Queue("images-threads", url, data_type=dict[str, int]) as queue:
        options = JobOptions(attempts=3, backoff=Backoff("fixed", 50))
        jobs = [queue.add("resize", {"width": width}, options) for width in (640, 1280, 0)]
        finished = threading.Semaphore(0)
        worker = Worker("images-threads", resize, url, data_type=dict[str, int], options=WorkerOptions(concurrency=16))
        worker.on(JobCompleted, lambda notice: finished.release())
        worker.on(JobFailed, lambda notice: finished.release() if notice.retry_delay_ms is None else None)
        # A program that only works would call `worker.run()`.
        with worker:
            for _ in jobs:
                finished.acquire()
        for job in jobs:
            job.refresh()
            print(f"{job.id}: {job.get_state()}, {job.returnvalue or job.failed_reason}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost")
