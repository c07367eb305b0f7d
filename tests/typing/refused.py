"""What mypy and pyright refuse: read by `make check`, never run. A line that one of them takes is an error to it: its
comment would be of no use.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from typing import Any

import pydantic

import bullmq_anyio
import bullmq_sync


class Mail(pydantic.BaseModel):
    to: str


class Call(pydantic.BaseModel):
    number: str


MAILS = pydantic.TypeAdapter(list[Mail])


async def queues() -> None:
    mails = bullmq_anyio.Queue("q", data_type=Mail)
    await mails.add("x", 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await mails.add("x", Call(number="1"))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await mails.add("x", {"to": "me"})  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await bullmq_anyio.Queue("q", data_type=MAILS).add("x", Mail(to="me"))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    job = await mails.add("x", Mail(to="me"))
    job.data.number  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] # noqa: B018
    await job.update_data(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    bullmq_anyio.Queue("q", data_type=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    bullmq_anyio.Queue("q", data_type=Mail(to="me"))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def queues_of_threads() -> None:
    bullmq_sync.Queue("q", data_type=Mail).add("x", 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def results(events: bullmq_anyio.QueueEvents, job: bullmq_anyio.Job[Mail]) -> None:
    text: str = await events.wait_until_finished("1", result_type=int)  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    mail: Mail = await job.wait_until_finished(events, result_type=MAILS)  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    del text, mail


async def typed(job: bullmq_anyio.Job[Mail]) -> int:
    return len(job.data.to)


async def untyped(job: bullmq_anyio.Job[Any]) -> int:
    return 1


def blocking(job: bullmq_sync.Job[Mail]) -> int:
    return len(job.data.to)


def workers() -> None:
    # A typed handler without `data_type`, or with another.
    bullmq_anyio.Worker("q", typed)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    bullmq_sync.Worker("q", blocking)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    bullmq_anyio.Worker("q", typed, data_type=Call)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    # Another result than the worker is to give. (To pyright the two types have a union.)
    bullmq_anyio.Worker("q", untyped, result_type=str)  # type: ignore[arg-type]
    bullmq_sync.Worker("q", blocking, data_type=Mail, result_type=str)  # type: ignore[arg-type]
