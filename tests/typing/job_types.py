"""What mypy and pyright make of `JobType`: read by `make check`, never run."""

from typing import Any, assert_type

import msgspec

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import Adding, JobOptions, JobType, NewJob, RepeatOptions


class Welcome(msgspec.Struct):
    to: str


PLAIN = JobType("plain")
WELCOME = JobType("welcome", Welcome, result=int, options=JobOptions(attempts=3))
assert_type(PLAIN, JobType[Any, Any])
assert_type(WELCOME, JobType[Welcome, int])
assert_type(JobType("one way", Welcome), JobType[Welcome, Any])
assert_type(JobType("the other", result=int), JobType[Any, int])


async def asynchronous(queue: bullmq_anyio.Queue[Any]) -> None:
    assert_type(await queue.add(WELCOME, Welcome("me")), bullmq_anyio.Job[Welcome, int])
    assert_type((await queue.add(WELCOME, Welcome("me"))).data, Welcome)
    events = bullmq_anyio.QueueEvents("q")
    assert_type(await (await queue.add(WELCOME, Welcome("me"))).wait_until_finished(events), int)
    await queue.add(WELCOME, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


def blocking(queue: bullmq_sync.Queue[Any]) -> None:
    assert_type(queue.add(WELCOME, Welcome("me")), bullmq_sync.Job[Welcome, int])
    assert_type(queue.add(WELCOME, Welcome("me")).wait_until_finished(bullmq_sync.QueueEvents("q")), int)
    queue.add(WELCOME, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def of_schedulers(queue: bullmq_anyio.Queue[Any]) -> None:
    hourly = RepeatOptions(every=3_600_000)
    welcome = Welcome("me")
    assert_type(await queue.upsert_job_scheduler("s", hourly, WELCOME, welcome), bullmq_anyio.Job[Welcome, int] | None)
    assert_type(
        queue.adding_job_scheduler("s", hourly, WELCOME, welcome), Adding[bullmq_anyio.Job[Welcome, int]] | None
    )
    assert_type(await queue.upsert_job_scheduler("s", hourly), bullmq_anyio.Job[Any] | None)
    await queue.upsert_job_scheduler("s", hourly, WELCOME, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    queue.adding_job_scheduler("s", hourly, WELCOME, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    queue.entry(WELCOME, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]


def of_blocking_schedulers(queue: bullmq_sync.Queue[Welcome]) -> None:
    hourly = RepeatOptions(every=3_600_000)
    assert_type(queue.upsert_job_scheduler("s", hourly, WELCOME, Welcome("me")), bullmq_sync.Job[Welcome, int] | None)
    assert_type(queue.upsert_job_scheduler("s", hourly, "name", Welcome("me")), bullmq_sync.Job[Welcome] | None)
    queue.upsert_job_scheduler("s", hourly, "name", 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def of_bulks() -> list[NewJob]:
    NewJob(WELCOME, 3)  # type: ignore[misc]  # pyright: ignore[reportCallIssue, reportArgumentType]
    return [NewJob(WELCOME, Welcome("me")), NewJob(PLAIN, 3), NewJob("plain"), NewJob("plain", 3, JobOptions())]


async def handles(job: bullmq_anyio.Job[Welcome, int, str]) -> None:
    assert_type(job.state, str)


async def without_the_rest(job: bullmq_anyio.Job[Welcome]) -> None:
    assert_type(job, bullmq_anyio.Job[Welcome, Any, Any])
