"""OpenTelemetry spans for adding and processing jobs: `pip install bullmq-protocol[otel]`.

The trace context travels in BullMQ's own job option, as the JSON text of the propagation carrier, so that a trace goes
on in workers of other languages and from their producers.

Source: specs/04-schedulers-flows-events.md#sec-12-1
"""

from __future__ import annotations

import functools
import inspect
import json
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast

from msgspec.structs import replace

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"bullmq_otel needs opentelemetry-api ({error.name} is missing): pip install 'bullmq-protocol[otel]'",
        name=error.name,
    ) from error

from bullmq_protocol._version import VERSION
from bullmq_protocol.codec import json_text
from bullmq_protocol.errors import BullMQError, DelayedError, RateLimitError, WaitingChildrenError, WaitingError
from bullmq_protocol.job import JobRecord
from bullmq_protocol.options import JobOptions, Telemetry

__all__ = ["Adding", "context_of", "span_of_add", "traced"]

F = TypeVar("F", bound=Callable[..., Any])

_SIGNALS = (DelayedError, RateLimitError, WaitingChildrenError, WaitingError)
"""What a processor raises after it has moved its job: no failure."""


class _Job(Protocol):
    """The jobs of either package."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def queue_name(self) -> str: ...
    @property
    def attempts_made(self) -> int: ...
    @property
    def processed_on(self) -> int | None: ...
    @property
    def record(self) -> JobRecord: ...


class Adding:
    """An `add` under way: `options` to give to `Queue.add`, and `added` to call with the job."""

    def __init__(self, span: Span, options: JobOptions) -> None:
        self._span = span
        self.options = options

    def added(self, job: _Job) -> None:
        """Note the job's id on the span."""
        self._span.set_attribute("bullmq.job.id", job.id)


@contextmanager
def span_of_add(
    queue: str, name: str, options: JobOptions | None = None, *, tracer_provider: TracerProvider | None = None
) -> Generator[Adding]:
    """Open a span `add <queue>.<name>` around the addition of one job, whose options carry the span's context.

    A context given in the options is replaced, unless they say `omit_context`: then they stay as they are.

    Source: specs/04-schedulers-flows-events.md#sec-12-3
    """
    options = JobOptions() if options is None else options
    attributes = {"bullmq.queue.name": queue, "bullmq.queue.operation": "add", "bullmq.job.name": name}
    with _tracer(tracer_provider).start_as_current_span(
        f"add {queue}.{name}", kind=SpanKind.PRODUCER, attributes=attributes
    ) as span:
        if not isinstance(options.telemetry, Telemetry) or options.telemetry.omit_context is not True:
            carrier: dict[str, str] = {}
            propagate.inject(carrier)
            options = replace(options, telemetry=Telemetry(metadata=json.dumps(carrier, separators=(",", ":"))))
        yield Adding(span, options)


def traced(
    process: F, *, worker_id: str = "", worker_name: str = "", tracer_provider: TracerProvider | None = None
) -> F:
    """Return the processor, async or plain, such that each call runs in a span `process <queue>`.

    Its parent is the context in the job's options, if there is one. The span tells what the processor did, not whether
    the worker could report it.

    Source: specs/05-worker-runtime.md#sec-20
    """
    tracer = _tracer(tracer_provider)

    @contextmanager
    def span_of(job: _Job) -> Generator[Span]:
        attributes: dict[str, str | int] = {
            "bullmq.queue.name": job.queue_name,
            "bullmq.queue.operation": "process",
            "bullmq.worker.id": worker_id,
            "bullmq.worker.name": worker_name,
            "bullmq.job.id": job.id,
            "bullmq.job.name": job.name,
            "bullmq.job.attempts.made": job.attempts_made,
        }
        with tracer.start_as_current_span(
            f"process {job.queue_name}",
            context=context_of(job),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except _SIGNALS:
                raise
            except Exception as error:
                span.record_exception(error)
                span.set_status(StatusCode.ERROR, str(error))
                span.add_event("job failed", {"bullmq.job.failed.reason": str(error)})
                raise
            finally:
                span.set_attribute("bullmq.job.finished.timestamp", time.time_ns() // 1_000_000)
                if job.processed_on is not None:
                    span.set_attribute("bullmq.job.processed.timestamp", job.processed_on)

    if inspect.iscoroutinefunction(process) or inspect.iscoroutinefunction(getattr(process, "__call__", None)):  # noqa: B004

        @functools.wraps(process)
        async def run(job: Any, *rest: Any) -> Any:
            with span_of(job) as span:
                return _completed(span, await process(job, *rest))

        return cast("F", run)

    @functools.wraps(process)
    def run_plain(job: Any, *rest: Any) -> Any:
        with span_of(job) as span:
            return _completed(span, process(job, *rest))

    return cast("F", run_plain)


def context_of(job: _Job) -> Context | None:
    """Return the trace context that came with a job, or None; what cannot be read counts as none."""
    telemetry = job.record.opts.telemetry
    text = telemetry.metadata if isinstance(telemetry, Telemetry) else None
    if not isinstance(text, str):
        return None
    try:
        carrier: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(carrier, dict):
        return None
    found = cast("Mapping[str, object]", carrier)
    return propagate.extract({key: value for key, value in found.items() if isinstance(value, str)})


def _completed(span: Span, value: Any) -> Any:
    try:
        span.add_event("job completed", {"bullmq.job.result": json_text(value)})
    except BullMQError:
        # Not JSON: the worker fails the job for it.
        span.add_event("job failed", {"bullmq.job.failed.reason": "the return value is not JSON"})
    return value


def _tracer(provider: TracerProvider | None) -> trace.Tracer:
    return trace.get_tracer("bullmq-protocol", VERSION, provider)
