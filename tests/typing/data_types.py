"""What mypy and pyright make of `data_type`: read by `make check`, never run."""

from typing import Any, assert_type

import msgspec

import bullmq_anyio
import bullmq_sync


class Mail(msgspec.Struct, tag=True):
    to: str


class Call(msgspec.Struct, tag=True):
    number: str


async def asynchronous() -> None:
    one = bullmq_anyio.Queue("one", data_type=Mail)
    assert_type(one, bullmq_anyio.Queue[Mail])
    assert_type((await one.add("x", Mail("me"))).data, Mail)
    many = bullmq_anyio.Queue("many", data_type=list[Mail])
    assert_type((await many.add("x", [])).data, list[Mail])
    # Python 3.11 has no word for "the type that this expression stands for": a union is named once more.
    either = bullmq_anyio.Queue[Mail | Call]("either", data_type=Mail | Call)
    assert_type((await either.add("x", Call("1"))).data, Mail | Call)
    declared: bullmq_anyio.Queue[Mail | None] = bullmq_anyio.Queue("declared", data_type=Mail | None)
    assert_type((await declared.add("x")).data, Mail | None)

    async def process(job: bullmq_anyio.Job[Mail | Call]) -> Any:
        assert_type(job.data, Mail | Call)

    worker = bullmq_anyio.Worker[Mail | Call]("either", process, data_type=Mail | Call)
    assert_type(worker, bullmq_anyio.Worker[Mail | Call])


def blocking() -> None:
    one = bullmq_sync.Queue("one", data_type=Mail)
    assert_type(one.add("x", Mail("me")).data, Mail)
    either = bullmq_sync.Queue[Mail | Call]("either", data_type=Mail | Call)
    assert_type(either.add("x", Call("1")).data, Mail | Call)

    def process(job: bullmq_sync.Job[Mail | Call]) -> Any:
        assert_type(job.data, Mail | Call)

    worker = bullmq_sync.Worker[Mail | Call]("either", process, data_type=Mail | Call)
    assert_type(worker, bullmq_sync.Worker[Mail | Call])
