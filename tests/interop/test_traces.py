"""Traces that go on between Node with `bullmq-otel` and all our adapters, and the spans both sides make."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis import Redis

from bullmq_otel import BullMQOtel
from bullmq_protocol import FlowNode, JobOptions, NewJob, RepeatOptions, UsageError, WorkerOptions
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from tests.support.adapters import NAMES, Adapter, opened
from tests.support.programs import AnswerError, Program, traced
from tests.support.servers import Server

pytestmark = [pytest.mark.any_python, pytest.mark.anyio]

KINDS = ("INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
HOUR = 3_600_000
_PYTHONS = {"exception.escaped"}


@pytest.fixture(scope="module")
def theirs(home: Server) -> Iterator[Program]:
    with traced(home) as started:
        yield started


@pytest.fixture(params=NAMES)
def side(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def anyio_backend(side: str) -> str:
    return "trio" if side == "trio" else "asyncio"


@pytest.fixture
async def ours(side: str, home: Server) -> AsyncIterator["Ours"]:
    async for adapter in opened(side):
        ours = Ours(adapter, home)
        yield ours
        await ours.close()


class Ours:
    """What `traced.js` offers, in one of our adapters."""

    def __init__(self, adapter: Adapter, server: Server) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.adapter = adapter
        self.given: dict[str, Any] = {"telemetry": BullMQOtel("tests", tracer_provider=provider)}
        self.url = server.url
        self.queues: dict[str, Any] = {}

    def queue(self, name: str) -> Any:
        if name not in self.queues:
            self.queues[name] = self.adapter.Queue(name, self.url, **self.given)
        return self.queues[name]

    async def work(self, queue: str, attempts: int) -> None:
        async def process(job: Any) -> Any:
            if "fail" in job.data:
                raise ValueError(job.data["fail"])
            if "next" in job.data:
                await self.queue(job.data["next"]).add("follow", job.data.get("then", {}))
            return {"done": True}

        worker = self.adapter.Worker(queue, process, self.url, options=WorkerOptions(name="w"), **self.given)
        over = anyio.Event()
        left = [attempts]

        def end(_: Any) -> None:
            left[0] -= 1
            if not left[0]:
                over.set()

        for kind in (JobCompleted, JobFailed):
            worker.on(kind, end)
        with anyio.fail_after(60):
            async with worker:
                await over.wait()
                await worker.pause()
                await _now(worker.resume())

    async def manual(self, queue: str, error: str | None = None) -> None:
        worker = self.adapter.Worker(queue, None, self.url, options=WorkerOptions(name="w"), **self.given)
        job = await worker.get_next_job(block=False)
        if error is None:
            await worker.complete(job, {"done": True})
        else:
            await worker.fail(job, ValueError(error))
        await worker.aclose()

    def spans(self) -> list[dict[str, Any]]:
        found = [_plain(span) for span in self.exporter.get_finished_spans()]
        self.exporter.clear()
        return found

    async def close(self) -> None:
        for queue in self.queues.values():
            await queue.aclose()


async def _now(value: Any) -> None:
    if value is not None:
        await value


def _plain(span: ReadableSpan) -> dict[str, Any]:
    """Return a span as `traced.js` does."""
    assert span.context is not None
    return {
        "name": span.name,
        "kind": KINDS.index(span.kind.name),
        "trace": f"{span.context.trace_id:032x}",
        "id": f"{span.context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "attributes": dict(span.attributes or {}),
        "events": [{"name": each.name, "attributes": dict(each.attributes or {})} for each in span.events],
        "status": span.status.status_code.value,
    }


def shapes(spans: list[dict[str, Any]], queue: str, without: tuple[str, ...] = ()) -> list[Any]:
    """Return what must be equal on both sides: names, kinds, parents, attributes' names, events, status."""
    names = {span["id"]: span["name"] for span in spans}
    return sorted(
        (
            span["name"].replace(queue, "Q"),
            span["kind"],
            names.get(span["parent"], "").replace(queue, "Q"),
            tuple(sorted(span["attributes"])),
            # Python's SDK adds `exception.escaped` on its own.
            tuple((event["name"], tuple(sorted(set(event["attributes"]) - _PYTHONS))) for event in span["events"]),
            span["status"],
        )
        for span in spans
        if span["attributes"]["bullmq.queue.operation"] not in without
    )


async def test_a_trace_goes_to_and_fro(ours: Ours, theirs: Program, queue: str) -> None:
    there, back, end = f"{queue}-there", f"{queue}-back", f"{queue}-end"
    theirs.call("spans")
    theirs.call("method", queue=queue, method="add", args=["start", {"next": there, "then": {"next": back}}])
    await ours.work(queue, 1)
    await anyio.to_thread.run_sync(lambda: theirs.call("work", queue=there, attempts=1, options={}))
    await ours.queue(back).add("start", {"fail": "boom"})
    await ours.work(back, 2)
    found = {span["id"]: span for span in (*theirs.call("spans"), *ours.spans())}
    way = []
    # From the last span of the chain back to the first.
    [last] = [
        span
        for span in found.values()
        if span["name"] == f"process {back}" and span["attributes"]["bullmq.job.name"] == "follow"
    ]
    span: dict[str, Any] | None = last
    while span is not None:
        way.append(span["name"])
        assert span["trace"] == last["trace"]
        span = found.get(span["parent"] or "")
    assert way == [
        f"process {back}",
        f"add {back}.follow",
        f"process {there}",
        f"add {there}.follow",
        f"process {queue}",
        f"add {queue}.start",
    ]
    assert end not in ours.queues


async def test_a_retried_job_keeps_its_trace(ours: Ours, theirs: Program, queue: str, raw: "Redis[bytes]") -> None:
    """The first attempt is Node's, the second ours: both below the span that added the job, which ours made."""
    theirs.call("spans")
    await ours.queue(queue).add("a", {"fail": "boom"}, JobOptions(attempts=2))
    await anyio.to_thread.run_sync(lambda: theirs.call("manual", queue=queue, error="boom"))
    stored = raw.hget(f"bull:{queue}:1", "tm")
    [retry] = [span for span in theirs.call("spans") if span["name"].startswith("retry")]
    assert stored is not None
    assert retry["id"].encode() in stored
    await ours.work(queue, 1)
    added, fail, process = (
        next(span for span in ours_spans if span["name"].startswith(word))
        for ours_spans in [ours.spans()]
        for word in ("add", "fail", "process")
    )
    assert (process["trace"], process["parent"]) == (added["trace"], added["id"])
    stored = raw.hget(f"bull:{queue}:1", "tm")
    assert stored is not None
    assert fail["id"].encode() in stored


async def test_queues_make_the_same_spans(ours: Ours, theirs: Program, queue: str) -> None:
    theirs.call("spans")
    there, here = f"{queue}-t", f"{queue}-o"

    def ask(method: str, *args: Any) -> None:
        theirs.call("method", queue=there, method=method, args=list(args))

    ask("add", "a", {"x": 1})
    ask("addBulk", [{"name": "b", "data": {}}, {"name": "c", "data": {}}])
    ask("pause")
    ask("resume")
    ask("updateJobProgress", "1", {"p": 1})
    ask("rateLimit", 10)
    ask("remove", "1")
    ask("drain", True)
    ask("clean", 0, 10, "completed")
    ask("retryJobs", {"state": "failed", "count": 10})
    ask("promoteJobs", {"count": 5})
    ask("trimEvents", 10)
    ask("removeDeduplicationKey", "d")
    ask("removeRepeatable", "n", {"every": 1000})
    ask("removeRepeatableByKey", "k")
    ask("upsertJobScheduler", "s", {"every": HOUR}, {"name": "sn", "data": {}})
    with pytest.raises(AnswerError):
        ask("add", "bad", {}, {"jobId": "0:1"})
    ask("obliterate", {"force": True})
    theirs.call("close", queue=there)

    mine = ours.queue(here)
    await mine.add("a", {"x": 1})
    await mine.add_bulk([NewJob("b"), NewJob("c")])
    await mine.pause()
    await mine.resume()
    await mine.update_job_progress("1", {"p": 1})
    await mine.rate_limit(10)
    await mine.remove("1")
    await mine.drain(True)
    await mine.clean(0, 10, "completed")
    await mine.retry_jobs("failed", count=10)
    await mine.promote_jobs(count=5)
    await mine.trim_events(10)
    await mine.remove_deduplication_key("d")
    await mine.remove_repeatable("n", RepeatOptions(every=1000))
    await mine.remove_repeatable_by_key("k")
    await mine.upsert_job_scheduler("s", RepeatOptions(every=HOUR), "sn")
    with pytest.raises(UsageError):
        await mine.add("bad", options=JobOptions(job_id="0:1"))
    await mine.obliterate(force=True)
    await mine.aclose()

    found, expected = shapes(ours.spans(), here), shapes(theirs.call("spans"), there)
    # Node pauses by a call of its own inside `obliterate`; ours is part of the first page.
    expected.remove(("pause Q", 0, "obliterate Q", ("bullmq.queue.name", "bullmq.queue.operation"), (), 0))
    assert found == expected


async def test_flows_make_the_same_spans(ours: Ours, theirs: Program, queue: str, home: Server) -> None:
    theirs.call("spans")
    there, here = f"{queue}-t", f"{queue}-o"
    leaf = {"name": "leaf", "queueName": there}
    kid = {"name": "kid", "queueName": there, "opts": {"attempts": 2}, "children": [leaf]}
    theirs.call("flow", flow={"name": "root", "queueName": there, "children": [kid]})
    theirs.call("flow", bulk=[{"name": "one", "queueName": there}, {"name": "two", "queueName": there}])
    flows = ours.adapter.FlowProducer(home.url, **ours.given)
    child = FlowNode("kid", here, options=JobOptions(attempts=2), children=[FlowNode("leaf", here)])
    await flows.add(FlowNode("root", here, children=[child]))
    await flows.add_bulk([FlowNode("one", here), FlowNode("two", here)])
    await flows.aclose()
    assert shapes(ours.spans(), here) == shapes(theirs.call("spans"), there)


async def test_workers_make_the_same_spans(ours: Ours, theirs: Program, queue: str) -> None:
    theirs.call("spans")
    there, here = f"{queue}-t", f"{queue}-o"
    retried = {"attempts": 2, "backoff": {"type": "fixed", "delay": 10}}
    for data, options in (({}, {}), ({"fail": "boom"}, retried), ({"fail": "boom"}, {"attempts": 2})):
        theirs.call("method", queue=there, method="add", args=["a", data, options])
    theirs.call("method", queue=there, method="upsertJobScheduler", args=["s", {"every": HOUR}, {"name": "sn"}])
    await anyio.to_thread.run_sync(lambda: theirs.call("work", queue=there, attempts=6, options={}))
    mine = ours.queue(here)
    await mine.add("a")
    await mine.add("a", {"fail": "boom"}, JobOptions(attempts=2, backoff=10))
    await mine.add("a", {"fail": "boom"}, JobOptions(attempts=2))
    await mine.upsert_job_scheduler("s", RepeatOptions(every=HOUR), "sn")
    await ours.work(here, 6)
    # Node begins its stalled checks anew at `resume`.
    upkeep = ("startStalledCheckTimer", "moveStalledJobsToWait")
    found, expected = ours.spans(), theirs.call("spans")
    assert shapes(found, here, upkeep) == shapes(expected, there, upkeep)
    parents = {span["id"]: span["name"] for span in (*found, *expected)}
    for spans in (found, expected):
        for span in spans:
            if span["name"].startswith(upkeep[1]):
                assert parents[span["parent"]].startswith(upkeep[0])
                assert set(span["attributes"]) == {
                    "bullmq.queue.name",
                    "bullmq.queue.operation",
                    "bullmq.worker.id",
                    "bullmq.worker.name",
                    "bullmq.worker.stalled.jobs",
                }


async def test_manual_work_makes_the_same_spans(ours: Ours, theirs: Program, queue: str) -> None:
    theirs.call("spans")
    there, here = f"{queue}-t", f"{queue}-o"
    for options in ({}, {"attempts": 2}):
        theirs.call("method", queue=there, method="add", args=["a", {}, options])
        await ours.queue(here).add("a", options=JobOptions(**options))
    for error in (None, "boom", "boom"):
        await anyio.to_thread.run_sync(lambda error=error: theirs.call("manual", queue=there, error=error))
        await ours.manual(here, error)
    assert shapes(ours.spans(), here) == shapes(theirs.call("spans"), there)
