"""Payloads and results of every kind, through a server: queues, workers, manual work, flows, schedulers and waits."""

import datetime as dt
import json
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from bullmq_protocol.errors import JobFailedError, PayloadMismatch, UsageError
from bullmq_protocol.model.flow import FlowNode
from bullmq_protocol.model.job import NewJob
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.model.schedule import RepeatOptions
from bullmq_protocol.worker.notices import JobFailed
from tests.support.adapters import Adapter
from tests.support.points import Point, PointCodec
from tests.support.seen import Seen
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


class Mail(pydantic.BaseModel):
    to: str
    at: dt.datetime | None = None
    sender: str = pydantic.Field(default="", alias="from")


@attrs.define
class Call:
    number: str = attrs.field(validator=attrs.validators.min_len(2))


class Note(msgspec.Struct):
    text: str
    raw: bytes = b""


MAIL = Mail(to="me", at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), **{"from": "you"})
KINDS = [
    pytest.param(Mail, MAIL, {"to": 1}, "`$.to`", id="model"),
    pytest.param(pydantic.TypeAdapter(list[Mail]), [MAIL], [{"to": "x"}, {}], "`$[1].to`", id="adapter"),
    pytest.param(Call, Call("110"), {"number": "1"}, "'number'", id="attrs"),
    pytest.param(Note, Note("x", b"\xff"), {"text": 1}, "`$.text`", id="struct"),
    pytest.param(dict[str, bytes], {"a": b"\xff"}, {"a": 1}, "`$[...]`", id="bytes"),
    pytest.param(PointCodec(), Point(3), [1, 2], "too many values", id="codec"),
]


@pytest.mark.parametrize(("kind", "value", "wrong", "words"), KINDS)
async def test_the_way_there_and_back(
    adapter: Adapter, server: Server, name: str, kind: Any, value: Any, wrong: Any, words: str
) -> None:
    """A job goes through a worker, whose result is its payload; one that does not fit fails for good."""
    seen: list[Any] = []

    async def process(job: Any) -> Any:
        seen.append(job.data)
        return job.data

    worker = adapter.Worker(name, process, server.url, data_type=kind, result_type=kind)
    failures = Seen(worker, JobFailed)
    async with (
        adapter.Queue(name, server.url, data_type=kind) as queue,
        adapter.Queue(name, server.url) as untyped,
        adapter.QueueEvents(name, server.url) as events,
        worker,
    ):
        job = await queue.add("a", value)
        assert job.data == value
        assert await events.wait_until_finished(job.id, 10_000, result_type=kind) == value
        assert (await queue.get_job(job.id)).data == value
        assert await job.wait_until_finished(events, result_type=kind) == value
        assert await queue.wait_until_finished(job.id, events, result_type=kind) == value
        assert seen == [value]
        # What does not fit is never sent, and where another program sent it, it is not retried.
        with pytest.raises(UsageError, match=r"^data: "):
            await queue.add("b", object())
        bad = await untyped.add("b", wrong, JobOptions(attempts=3))
        with pytest.raises(JobFailedError, match="the data of the job does not fit: ") as caught:
            await events.wait_until_finished(bad.id, 10_000)
        assert words in caught.value.reason
        (failed,) = await failures.wait(JobFailed)
        assert failed.job.id == bad.id
        assert await untyped.get_job_counts("failed", "delayed") == {"failed": 1, "delayed": 0}
        assert seen == [value]
        with pytest.raises(PayloadMismatch):
            _ = (await queue.get_job(bad.id)).data


async def test_a_result_that_does_not_fit_fails_the_job_for_good(adapter: Adapter, server: Server, name: str) -> None:
    async def process(job: Any) -> Any:
        return {"to": 3}

    worker = adapter.Worker(name, process, server.url, result_type=Mail)
    async with adapter.Queue(name, server.url) as queue, adapter.QueueEvents(name, server.url) as events, worker:
        job = await queue.add("a", 1, JobOptions(attempts=3))
        with pytest.raises(JobFailedError) as caught:
            await job.wait_until_finished(events, 10_000)
        assert caught.value.reason == (
            "the result of the job does not fit the result type: Input should be a valid string - at `$.to`"
        )
        assert (await queue.get_job(job.id)).attempts_made == 1


async def test_manual_work_has_both_types(adapter: Adapter, server: Server, name: str) -> None:
    worker = adapter.Worker(name, None, server.url, data_type=Mail, result_type=PointCodec())
    async with adapter.Queue(name, server.url, data_type=Mail) as queue:
        await queue.add_bulk([NewJob("a", MAIL), NewJob("b", Mail(to="two"))])
        job = await worker.get_next_job()
        assert job.data == MAIL
        with pytest.raises(UsageError, match="returnvalue: is refused by dumps: AttributeError"):
            await worker.complete(job, 3)
        following = await worker.complete(job, Point(7), fetch_next=True)
        assert following.data == Mail(to="two")
        assert (await queue.get_job(job.id)).returnvalue == [7]
        await worker.complete(following, Point(8))
        await worker.aclose()


async def test_every_way_to_write_a_payload_checks_it(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url, data_type=Mail) as queue:
        with pytest.raises(UsageError, match=r"jobs\[1\]: data: does not fit .* at `\$\.to`"):
            await queue.add_bulk([NewJob("a", MAIL), NewJob("b", {"to": 1})])
        with pytest.raises(UsageError, match="does not fit"):
            await queue.upsert_job_scheduler("s", RepeatOptions(every=60_000), data=[])
        assert await queue.get_job_counts() == dict.fromkeys(await queue.get_job_counts(), 0)
        made = await queue.upsert_job_scheduler("s", RepeatOptions(every=60_000), data=MAIL)
        assert made.data == MAIL
        assert (await queue.get_job_scheduler("s")).template_data == json.dumps(
            {"to": "me", "at": "2026-01-02T00:00:00Z", "from": "you"}, separators=(",", ":")
        )
        job = await queue.add("a", MAIL)
        with pytest.raises(UsageError, match="data: does not fit"):
            await job.update_data({"to": 1})
        await job.update_data(Mail(to="two"))
        assert job.data == Mail(to="two")
        assert (await queue.get_job(job.id)).data == Mail(to="two")


async def test_nodes_of_a_flow_have_types_of_their_own(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.FlowProducer(server.url) as flows, adapter.Queue(name, server.url) as queue:
        page = FlowNode("page", name, Point(3), data_type=PointCodec())
        with pytest.raises(UsageError, match=r"flow\[0\]\.children\[0\]: data: does not fit .* `\$\.to`"):
            await flows.add(FlowNode("book", name, children=[FlowNode("page", name, {"to": 1}, data_type=Mail)]))
        with pytest.raises(UsageError, match=r"flow\[0\]: data_type: must be a type"):
            await flows.add(FlowNode("book", name, data_type=MAIL))
        assert await queue.get_job_counts() == dict.fromkeys(await queue.get_job_counts(), 0)
        flow = await flows.add(FlowNode("book", name, MAIL, children=[page], data_type=Mail))
        assert flow.job.data == MAIL
        assert flow.children[0].job.data == Point(3)
        assert (await queue.get_job(flow.children[0].job.id)).data == [3]


async def test_a_kind_of_job_brings_its_types(adapter: Adapter, server: Server, name: str) -> None:
    kind = JobType("point", pydantic.TypeAdapter(list[Mail]), result=PointCodec())

    async def process(job: Any) -> Any:
        return [len(job.data)]

    worker = adapter.Worker(name, process, server.url)
    async with adapter.Queue(name, server.url) as queue, adapter.QueueEvents(name, server.url) as events, worker:
        job = await queue.add(kind, [MAIL])
        assert job.data == [MAIL]
        assert await job.wait_until_finished(events, 10_000) == Point(1)
        with pytest.raises(UsageError, match="does not fit"):
            await queue.add(kind, 3)


async def test_a_router_writes_and_reads_by_the_kind_of_job(adapter: Adapter, server: Server, name: str) -> None:
    kind = JobType("point", Mail, result=PointCodec())
    seen: list[Any] = []

    async def process(job: Any) -> Any:
        seen.append(job.data)
        return Point(7) if job.data.to == "me" else 7

    async def around(job: Any, call_next: Any) -> Any:
        seen.append(await call_next(job))
        return seen[-1]

    router = adapter.Router()
    router.add(kind, process)
    router.add("plain", process, data_type=pydantic.TypeAdapter(Mail))
    worker = adapter.Worker(name, router, server.url, middleware=[around], result_type=int)
    async with adapter.Queue(name, server.url) as queue, adapter.QueueEvents(name, server.url) as events, worker:
        job = await queue.add(kind, MAIL)
        assert await job.wait_until_finished(events, 10_000) == Point(7)
        assert seen == [MAIL, Point(7)]
        # A result that is not of the kind's type fails its job for good; other jobs have the worker's type.
        bad = await queue.add(kind, Mail(to="you"), JobOptions(attempts=3))
        with pytest.raises(JobFailedError, match="the result of the job is refused by dumps: AttributeError"):
            await bad.wait_until_finished(events, 10_000)
        other = await queue.add("plain", {"to": "you"})
        assert await other.wait_until_finished(events, 10_000) == 7
        wrong = await queue.add("plain", {"to": 3}, JobOptions(attempts=3))
        with pytest.raises(JobFailedError, match=r"the data of the job does not fit: .* at `\$\.to`"):
            await wrong.wait_until_finished(events, 10_000)


@pytest.mark.parametrize("wrong", [MAIL, json.dumps, dt, "Mail", PointCodec])
async def test_what_is_no_type_is_refused_before_anything_is_opened(adapter: Adapter, name: str, wrong: Any) -> None:
    nowhere = "redis://127.0.0.1:1"
    for make in (
        lambda: adapter.Queue(name, nowhere, data_type=wrong),
        lambda: adapter.Worker(name, None, nowhere, data_type=wrong),
        lambda: adapter.Worker(name, None, nowhere, result_type=wrong),
    ):
        with pytest.raises(UsageError, match=r"^(data|result)_type: must "):
            make()
    events = adapter.QueueEvents(name, nowhere)
    with pytest.raises(UsageError, match=r"^result_type: must "):
        await events.wait_until_finished("1", result_type=wrong)
    await events.aclose()
