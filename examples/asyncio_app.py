"""A queue and a worker in an asyncio program: `python -m examples.asyncio_app redis://localhost`."""

import asyncio
import sys

from bullmq_anyio import Job, Queue, Worker
from bullmq_protocol import RETRY_3_EXPONENTIAL, NewJob, WorkerOptions
from bullmq_protocol.worker.notices import JobCompleted, JobFailed

PEOPLE = ("ada@example.org", "grace@example.org", "barbara@example.org")


async def send(job: Job[dict[str, str]]) -> dict[str, str]:
    await job.update_progress(50)
    await job.log(f"sending to {job.data['to']}")
    return {"sent": job.data["to"]}


async def main(url: str) -> None:
    async with Queue("mail-asyncio", url, data_type=dict[str, str], default_job_options=RETRY_3_EXPONENTIAL) as queue:
        jobs = await queue.add_bulk([NewJob("welcome", {"to": address}) for address in PEOPLE])
        done = asyncio.Semaphore(0)
        worker = Worker("mail-asyncio", send, url, data_type=dict[str, str], options=WorkerOptions(concurrency=50))
        worker.on(JobCompleted, lambda notice: done.release())
        worker.on(JobFailed, lambda notice: done.release() if notice.retry_delay_ms is None else None)
        # A program that only works would call `await worker.run()`.
        async with worker:
            for _ in jobs:
                await done.acquire()
        for job in jobs:
            await job.refresh()
            print(f"{job.id}: {await job.get_state()}, {job.returnvalue or job.failed_reason}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "redis://localhost"))
