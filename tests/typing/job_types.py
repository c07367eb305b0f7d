"""What mypy and pyright make of `JobType`: read by `make check`, never run."""

from typing import Any, assert_type

import msgspec

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import JobOptions, JobType


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


async def handles(job: bullmq_anyio.Job[Welcome, int, str]) -> None:
    assert_type(job.state, str)


async def without_the_rest(job: bullmq_anyio.Job[Welcome]) -> None:
    assert_type(job, bullmq_anyio.Job[Welcome, Any, Any])
