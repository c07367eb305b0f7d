"""Spans of adding and processing, and traces that go from one to the other, in three colours."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from bullmq_otel import span_of_add, traced
from bullmq_protocol import DelayedError, JobOptions, Telemetry
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from tests.support.colours import Colour
from tests.support.servers import Server

PARENT = {"trace": "0af7651916cd43dd8448eb211c80319c", "span": "b7ad6b7169203331"}
TRACEPARENT = f'{{"traceparent":"00-{PARENT["trace"]}-{PARENT["span"]}-01"}}'


@pytest.fixture
async def queue(colour: Colour, server: Server, name: str) -> AsyncIterator[Any]:
    queue = colour.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
async def job(queue: Any) -> Any:
    return await queue.add("a")


@pytest.fixture
def work(
    colour: Colour, server: Server, name: str, exporter: InMemorySpanExporter, provider: TracerProvider
) -> Callable[[Any], Any]:
    """Run a worker with this processor until it has finished a job; return the span of it."""

    async def work(result: Any) -> ReadableSpan:
        inside: list[int] = []

        def look() -> Any:
            inside.append(trace.get_current_span().get_span_context().span_id)
            if isinstance(result, Exception):
                raise result
            return result

        async def process(job: Any) -> Any:
            return look()

        def process_plain(job: Any) -> Any:
            return look()

        plain = colour.name == "threads"
        processor = traced(
            process_plain if plain else process, worker_id="w", worker_name="n", tracer_provider=provider
        )
        # A plain processor is called on the worker's own thread, with its own context.
        worker = colour.Worker(name, _Plain(processor) if plain else processor, server.url)
        over = anyio.Event()
        for kind in (JobCompleted, JobFailed):
            worker.on(kind, lambda notice: over.set())
        with anyio.fail_after(30):
            async with worker:
                await over.wait()
        [span] = [span for span in exporter.get_finished_spans() if span.name.startswith("process")]
        assert inside == [span.context.span_id]
        return span

    return work


class _Plain:
    """A callable that the three-coloured tests do not bring into the event loop."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, job: Any) -> Any:
        return self._function(job)


async def test_a_trace_goes_from_add_to_process(
    queue: Any, name: str, work: Any, exporter: InMemorySpanExporter, provider: TracerProvider
) -> None:
    with span_of_add(name, "a", JobOptions(attempts=2), tracer_provider=provider) as adding:
        job = await queue.add("a", 1, adding.options)
        adding.added(job)
    span = await work({"x": 1})
    [added] = [span for span in exporter.get_finished_spans() if span.name.startswith("add")]
    assert (added.name, added.kind) == (f"add {name}.a", trace.SpanKind.PRODUCER)
    assert dict(added.attributes) == {
        "bullmq.queue.name": name,
        "bullmq.queue.operation": "add",
        "bullmq.job.name": "a",
        "bullmq.job.id": "1",
    }
    assert (span.name, span.kind) == (f"process {name}", trace.SpanKind.CONSUMER)
    assert (span.context.trace_id, span.parent.span_id) == (added.context.trace_id, added.context.span_id)
    attributes = dict(span.attributes)
    begun, ended = (attributes.pop(f"bullmq.job.{word}.timestamp") for word in ("processed", "finished"))
    assert 0 < begun <= ended
    assert attributes == {
        "bullmq.queue.name": name,
        "bullmq.queue.operation": "process",
        "bullmq.worker.id": "w",
        "bullmq.worker.name": "n",
        "bullmq.job.id": "1",
        "bullmq.job.name": "a",
        "bullmq.job.attempts.made": 0,
    }
    [event] = span.events
    assert (event.name, dict(event.attributes)) == ("job completed", {"bullmq.job.result": '{"x":1}'})
    assert (await queue.get_job("1")).opts.attempts == 2


async def test_a_trace_of_another_language_goes_on(queue: Any, work: Any) -> None:
    await queue.add("a", options=JobOptions(telemetry=Telemetry(metadata=TRACEPARENT)))
    span = await work(None)
    assert f"{span.context.trace_id:032x}" == PARENT["trace"]
    assert f"{span.parent.span_id:016x}" == PARENT["span"]


@pytest.mark.parametrize("metadata", ["", "{", "[1]", '{"traceparent":1}', '{"traceparent":"nonsense"}', "{}"])
async def test_a_context_that_cannot_be_read_counts_as_none(queue: Any, work: Any, metadata: str) -> None:
    await queue.add("a", options=JobOptions(telemetry=Telemetry(metadata=metadata)))
    span = await work(None)
    assert span.parent is None


async def test_a_failure_is_recorded(queue: Any, work: Any) -> None:
    await queue.add("a")
    span = await work(ValueError("boom"))
    failed, exception = sorted(span.events, key=lambda event: event.name == "exception")
    assert (failed.name, dict(failed.attributes)) == ("job failed", {"bullmq.job.failed.reason": "boom"})
    assert exception.attributes["exception.type"] == "ValueError"
    assert span.status.status_code is trace.StatusCode.ERROR


async def test_a_move_is_no_failure(exporter: InMemorySpanExporter, provider: TracerProvider, job: Any) -> None:
    class Later:
        async def __call__(self, job: Any) -> None:
            raise DelayedError

    with pytest.raises(DelayedError):
        await traced(Later(), tracer_provider=provider)(job)
    [span] = exporter.get_finished_spans()
    assert (span.events, span.status.status_code) == ((), trace.StatusCode.UNSET)


async def test_an_object_with_an_async_call_is_awaited_inside(
    exporter: InMemorySpanExporter, provider: TracerProvider, job: Any
) -> None:
    class Process:
        async def __call__(self, job: Any) -> int:
            await anyio.lowlevel.checkpoint()
            assert exporter.get_finished_spans() == ()
            return 7

    assert await traced(Process(), tracer_provider=provider)(job) == 7
    [span] = exporter.get_finished_spans()
    assert [event.name for event in span.events] == ["job completed"]


async def test_a_result_that_is_not_json_is_told(queue: Any, work: Any) -> None:
    await queue.add("a")
    span = await work(object())
    assert [event.name for event in span.events] == ["job failed"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (Telemetry(metadata="M", omit_context=True), Telemetry(metadata="M", omit_context=True)),
        (Telemetry(omit_context=True), Telemetry(omit_context=True)),
    ],
)
async def test_omitted_context_is_left_alone(
    queue: Any, name: str, provider: TracerProvider, given: Telemetry, stored: Telemetry
) -> None:
    with span_of_add(name, "a", JobOptions(telemetry=given), tracer_provider=provider) as adding:
        await queue.add("a", options=adding.options)
    assert (await queue.get_job("1")).opts.telemetry == stored


async def test_a_context_of_ones_own_is_replaced(queue: Any, name: str, provider: TracerProvider) -> None:
    own = JobOptions(telemetry=Telemetry(metadata="M"))
    with span_of_add(name, "a", own, tracer_provider=provider) as adding:
        await queue.add("a", options=adding.options)
    assert '"traceparent":"00-' in (await queue.get_job("1")).opts.telemetry.metadata
