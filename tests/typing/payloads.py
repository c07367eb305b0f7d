"""What mypy and pyright make of payloads and results of every kind: read by `make check`, never run."""

import dataclasses
import json
from typing import Any, Self, assert_type

import attrs
import msgspec
import pydantic

import bullmq_anyio
import bullmq_sync


class Mail(pydantic.BaseModel):
    to: str


@attrs.define
class Call:
    number: str


@dataclasses.dataclass
class Visit:
    place: str


class Note(msgspec.Struct):
    text: str


class Point:
    """It reads and writes itself."""

    def dumps(self) -> str:
        return "{}"

    @classmethod
    def loads(cls, text: str) -> Self:
        return cls()


class PointCodec:
    def dumps(self, value: Point) -> bytes:
        return b"{}"

    def loads(self, text: str) -> Point:
        return Point()


MAILS = pydantic.TypeAdapter(list[Mail])


async def queues() -> None:
    mails = bullmq_anyio.Queue("q", data_type=Mail)
    assert_type(mails, bullmq_anyio.Queue[Mail])
    assert_type((await mails.add("x", Mail(to="me"))).data, Mail)
    assert_type(bullmq_anyio.Queue("q", data_type=Call), bullmq_anyio.Queue[Call])
    assert_type(bullmq_anyio.Queue("q", data_type=Visit), bullmq_anyio.Queue[Visit])
    assert_type(bullmq_anyio.Queue("q", data_type=Note), bullmq_anyio.Queue[Note])
    assert_type(bullmq_anyio.Queue("q", data_type=int), bullmq_anyio.Queue[int])
    assert_type(bullmq_anyio.Queue("q", data_type=MAILS), bullmq_anyio.Queue[list[Mail]])
    # It is both a type and a codec: mypy wants to know which.
    point: bullmq_anyio.Queue[Point] = bullmq_anyio.Queue("q", data_type=Point)
    assert_type(point, bullmq_anyio.Queue[Point])
    assert_type(bullmq_anyio.Queue("q", data_type=PointCodec()), bullmq_anyio.Queue[Point])
    module: bullmq_sync.Queue[Any] = bullmq_sync.Queue("q", data_type=json)
    assert_type(module, bullmq_sync.Queue[Any])
    # No type: anything goes.
    anything = bullmq_anyio.Queue("q")
    assert_type((await anything.add("x", {"to": "me"})).data, Any)
    declared: bullmq_sync.Queue[Any] = bullmq_sync.Queue("q")
    assert_type(declared.add("x", 3).data, Any)
    job = await mails.get_job("1")
    assert_type(job, bullmq_anyio.Job[Mail] | None)


async def results(events: bullmq_anyio.QueueEvents, job: bullmq_anyio.Job[Mail]) -> None:
    queue = bullmq_anyio.Queue("q", data_type=Mail)
    assert_type(await events.wait_until_finished("1"), Any)
    assert_type(await events.wait_until_finished("1", result_type=int), int)
    assert_type(await events.wait_until_finished("1", 10, result_type=MAILS, may_not_exist=True), list[Mail])
    assert_type(await job.wait_until_finished(events, result_type=Mail), Mail)
    assert_type(await job.wait_until_finished(events), Any)
    assert_type(await queue.wait_until_finished("1", events, result_type=PointCodec()), Point)
    assert_type(await queue.wait_until_finished("1", events, result_type=list[int]), list[int])


def results_of_threads(events: bullmq_sync.QueueEvents, job: bullmq_sync.Job[Mail]) -> None:
    queue = bullmq_sync.Queue("q", data_type=Mail)
    assert_type(events.wait_until_finished("1", result_type=int), int)
    assert_type(job.wait_until_finished(events, result_type=Mail), Mail)
    assert_type(queue.wait_until_finished("1", events), Any)


async def typed(job: bullmq_anyio.Job[Mail]) -> int:
    assert_type(job.data, Mail)
    await job.update_data(Mail(to="you"))
    return len(job.data.to)


async def plain(job: bullmq_anyio.Job[Any]) -> None: ...


async def of_lists(job: bullmq_anyio.Job[list[Mail]]) -> str:
    return job.data[0].to


def blocking(job: bullmq_sync.Job[Mail]) -> int:
    return len(job.data.to)


def plain_blocking(job: bullmq_sync.Job[Any]) -> None: ...


def workers() -> None:
    assert_type(bullmq_anyio.Worker("q", typed, data_type=Mail), bullmq_anyio.Worker[Mail])
    assert_type(bullmq_anyio.Worker("q", typed, data_type=Mail, result_type=int), bullmq_anyio.Worker[Mail])
    assert_type(bullmq_anyio.Worker("q", of_lists, data_type=MAILS), bullmq_anyio.Worker[list[Mail]])
    assert_type(bullmq_anyio.Worker("q", plain), bullmq_anyio.Worker[Any])
    assert_type(bullmq_anyio.Worker("q", plain, result_type=None), bullmq_anyio.Worker[Any])
    assert_type(bullmq_anyio.Worker("q"), bullmq_anyio.Worker[Any])
    assert_type(bullmq_anyio.Worker("q", data_type=Mail), bullmq_anyio.Worker[Mail])
    assert_type(bullmq_sync.Worker("q", blocking, data_type=Mail, result_type=int), bullmq_sync.Worker[Mail])
    assert_type(bullmq_sync.Worker("q", plain_blocking), bullmq_sync.Worker[Any])
