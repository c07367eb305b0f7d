"""Spans of queues, workers and flows, and traces that go from one to the other, on every adapter."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bullmq_otel import BullMQOtel
from bullmq_protocol import FlowNode, JobOptions, NewJob, Telemetry, UsageError, WorkerOptions
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

PARENT = {"trace": "0af7651916cd43dd8448eb211c80319c", "span": "b7ad6b7169203331"}
TRACEPARENT = f'{{"traceparent":"00-{PARENT["trace"]}-{PARENT["span"]}-01"}}'
OPTIONS = WorkerOptions(name="w")


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def telemetry(exporter: InMemorySpanExporter) -> BullMQOtel:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return BullMQOtel("tests", tracer_provider=provider)


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str, telemetry: BullMQOtel) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url, telemetry=telemetry)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


@pytest.fixture
def spans(exporter: InMemorySpanExporter, name: str) -> Callable[..., list[ReadableSpan]]:
    """Return the spans since the last call, of these operations."""

    def spans(*operations: str) -> list[ReadableSpan]:
        found = list(exporter.get_finished_spans())
        exporter.clear()
        return [span for span in found if not operations or span.attributes["bullmq.queue.operation"] in operations]

    return spans


@pytest.fixture
def work(adapter: Adapter, server: Server, name: str, telemetry: BullMQOtel) -> Callable[..., Any]:
    """Run a worker until this many attempts have ended; `result` is returned, or raised."""

    async def work(result: Any = None, attempts: int = 1) -> list[int]:
        inside: list[int] = []
        ended: list[Any] = []

        async def process(job: Any) -> Any:
            inside.append(trace.get_current_span().get_span_context().span_id)
            if isinstance(result, Exception):
                raise result
            return result

        worker = adapter.Worker(name, process, server.url, telemetry=telemetry, options=OPTIONS, worker_id="me")
        over = anyio.Event()

        def end(notice: Any) -> None:
            ended.append(notice)
            if len(ended) == attempts:
                over.set()

        for kind in (JobCompleted, JobFailed):
            worker.on(kind, end)
        with anyio.fail_after(60):
            async with worker:
                await over.wait()
        return inside

    return work


async def test_a_trace_goes_from_add_to_process(queue: Any, name: str, work: Any, spans: Any) -> None:
    await queue.add("a", 1, JobOptions(attempts=2))
    await work({"x": 1})
    [added, complete, process] = spans("add", "process", "complete")
    assert (added.name, added.kind) == (f"add {name}.a", trace.SpanKind.PRODUCER)
    assert dict(added.attributes) == {
        "bullmq.queue.name": name,
        "bullmq.queue.operation": "add",
        "bullmq.job.name": "a",
        "bullmq.job.id": "1",
    }
    assert (process.name, process.kind) == (f"process {name}", trace.SpanKind.CONSUMER)
    assert (process.context.trace_id, process.parent.span_id) == (added.context.trace_id, added.context.span_id)
    attributes = dict(process.attributes)
    begun, ended = (attributes.pop(f"bullmq.job.{word}.timestamp") for word in ("processed", "finished"))
    assert 0 < begun <= ended
    assert attributes == {
        "bullmq.queue.name": name,
        "bullmq.queue.operation": "process",
        "bullmq.worker.id": "me",
        "bullmq.worker.name": "w",
        "bullmq.job.id": "1",
        "bullmq.job.name": "a",
        "bullmq.job.attempts.made": 0,
    }
    [event] = process.events
    assert (event.name, dict(event.attributes)) == ("job completed", {"bullmq.job.result": '{"x":1}'})
    assert (complete.name, complete.parent.span_id) == (f"complete {name}", process.context.span_id)
    assert (await queue.get_job("1")).opts.attempts == 2


async def test_a_trace_of_another_language_goes_on(queue: Any, work: Any, spans: Any) -> None:
    await queue.add_bulk([NewJob("a", options=JobOptions(telemetry=Telemetry(metadata=TRACEPARENT)))])
    await work()
    [span] = spans("process")
    assert f"{span.context.trace_id:032x}" == PARENT["trace"]
    assert f"{span.parent.span_id:016x}" == PARENT["span"]


@pytest.mark.parametrize("metadata", ["{", "[1]", '{"traceparent":1}', '{"traceparent":"nonsense"}', "{}"])
async def test_a_context_that_cannot_be_read_counts_as_none(queue: Any, work: Any, spans: Any, metadata: str) -> None:
    await queue.add_bulk([NewJob("a", options=JobOptions(telemetry=Telemetry(metadata=metadata)))])
    await work()
    [span] = spans("process")
    assert span.parent is None


async def test_failed_attempts_store_their_context(queue: Any, name: str, work: Any, spans: Any) -> None:
    await queue.add("a", options=JobOptions(attempts=2))
    await work(ValueError("boom"), attempts=2)
    [added, retry, first, fail, second] = spans("add", "process", "retry", "fail", "delay")
    assert [span.name.split()[0] for span in (retry, first, fail, second)] == ["retry", "process", "fail", "process"]
    assert {span.context.trace_id for span in (added, retry, first, fail, second)} == {added.context.trace_id}
    assert [span.parent.span_id for span in (retry, fail)] == [span.context.span_id for span in (first, second)]
    assert first.attributes["bullmq.job.attempts.made"] == 0
    assert second.attributes["bullmq.job.attempts.made"] == 1
    for span in (first, second):
        [event] = span.events
        assert (event.name, dict(event.attributes)) == ("job failed", {"bullmq.job.failed.reason": "boom"})
        assert span.status.status_code is trace.StatusCode.UNSET
    job = await queue.get_job("1")
    assert f"-{fail.context.span_id:016x}-" in job.record.telemetry_metadata
    assert f"-{added.context.span_id:016x}-" in job.opts.telemetry.metadata


@pytest.mark.parametrize("given", [Telemetry(metadata="M", omit_context=True), Telemetry(omit_context=True)])
async def test_omitted_context_is_left_out(queue: Any, work: Any, given: Telemetry) -> None:
    await queue.add("a", options=JobOptions(telemetry=given))
    await queue.add_bulk([NewJob("b", options=JobOptions(telemetry=given))])
    await work(ValueError("boom"), attempts=2)
    for number in ("1", "2"):
        job = await queue.get_job(number)
        assert job.opts.telemetry == given
        assert job.record.telemetry_metadata is None


async def test_add_replaces_a_context_and_add_bulk_keeps_it(queue: Any) -> None:
    own = JobOptions(telemetry=Telemetry(metadata="M"))
    await queue.add("a", options=own)
    await queue.add_bulk([NewJob("b", options=own), NewJob("c")])
    stored = [(await queue.get_job(number)).opts.telemetry.metadata for number in ("1", "2", "3")]
    assert '"traceparent":"00-' in stored[0]
    assert stored[1] == "M"
    assert '"traceparent":"00-' in stored[2]


async def test_what_is_refused_is_recorded_and_raised(queue: Any, spans: Any) -> None:
    with pytest.raises(UsageError):
        await queue.add("a", options=JobOptions(attempts=0))
    for wrong in ({"name": "a"}, NewJob("a", options={"delay": 1})):  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            await queue.add_bulk([wrong])
    for span in spans():
        assert [event.name for event in span.events] == ["exception"]
        assert span.status.status_code is trace.StatusCode.UNSET


async def test_manual_work(adapter: Adapter, server: Server, queue: Any, name: str, telemetry: Any, spans: Any) -> None:
    worker = adapter.Worker(name, None, server.url, telemetry=telemetry, options=OPTIONS, worker_id="me")
    await queue.add("a")
    await queue.add("b", options=JobOptions(attempts=2))
    await worker.complete(await worker.get_next_job(block=False), {"x": 1})
    await worker.fail(await worker.get_next_job(block=False), ValueError("boom"))
    await worker.fail(await worker.get_next_job(block=False), ValueError("boom"))
    await worker.aclose()
    found = [span for span in spans() if span.name.split()[0] not in ("add", "close")]
    assert [span.name for span in found] == [
        f"{word} {name}" for word in ("getNextJob", "complete", "getNextJob", "retry", "getNextJob", "fail")
    ]
    assert dict(found[0].attributes) == {
        "bullmq.queue.name": name,
        "bullmq.queue.operation": "getNextJob",
        "bullmq.worker.id": "me",
        "bullmq.worker.name": "w",
        "bullmq.worker.options": '{"block":false}',
        "bullmq.job.id": "1",
    }
    assert f"-{found[5].context.span_id:016x}-" in (await queue.get_job("2")).record.telemetry_metadata


async def test_a_flow(adapter: Adapter, server: Server, queue: Any, name: str, telemetry: Any, spans: Any) -> None:
    flows = adapter.FlowProducer(server.url, telemetry=telemetry)
    given = JobOptions(attempts=2)
    grandchild = FlowNode("grandchild", name)
    await flows.add(
        FlowNode("root", name, options=given, children=[FlowNode("kid", name, options=given, children=[grandchild])])
    )
    await flows.add_bulk([FlowNode("alone", name, options=given)])
    with pytest.raises(UsageError):
        await flows.add(FlowNode("root", name, children=[FlowNode("", name)], options=JobOptions(attempts=0)))
    await flows.aclose()
    deepest, kid, root, flow, alone, bulk, *refused = spans()
    assert [span.name for span in (deepest, kid, root, flow, alone)] == [f"addNode {name}"] * 3 + [
        f"addFlow {name}",
        f"addNode {name}",
    ]
    assert (bulk.name, bulk.attributes["bullmq.queue.name"]) == ("addBulkFlows", "")
    assert [span.parent.span_id for span in (deepest, kid, root, alone)] == [
        span.context.span_id for span in (kid, root, flow, bulk)
    ]
    assert dict(flow.attributes)["bullmq.flow.name"] == "root"
    stored = {job.name: job for job in await queue.get_jobs()}
    assert f"-{kid.context.span_id:016x}-" in stored["kid"].opts.telemetry.metadata
    assert f"-{root.context.span_id:016x}-" in stored["root"].opts.telemetry.metadata
    assert not isinstance(stored["grandchild"].opts.telemetry, Telemetry)
    assert [span.name for span in refused] == [f"addNode {name}", f"addFlow {name}"]


def test_nothing_is_imported_unless_asked_for() -> None:
    # redis-py, which the blocking package needs, imports OpenTelemetry on its own where it is installed.
    look = (
        "import sys, bullmq_anyio; print([name for name in sys.modules if 'opentelemetry' in name]);"
        "import bullmq_sync; print('bullmq_otel' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\nFalse\n"
