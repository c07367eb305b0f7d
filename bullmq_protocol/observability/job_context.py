"""The context of a span in a job's options, by which the worker's span follows the producer's, and the spans of flows.

Source: specs/04-schedulers-flows-events.md#sec-12
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from bullmq_protocol.model.flow import FlowNode, PreparedNode
from bullmq_protocol.model.job import JobRecord, NewJob
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.model.options import JobOptions, Telemetry
from bullmq_protocol.observability.telemetry import Attributes, TelemetryProvider, TelemetrySpan, Tracing


def flow_span(provider: TelemetryProvider, root: FlowNode) -> AbstractContextManager[TelemetrySpan, bool | None]:
    """Add one flow in a span of its own."""
    tracing = Tracing(provider, str(getattr(root, "queue_name", "")))
    return tracing.span("addFlow", "producer", attributes={"bullmq.flow.name": names_of([root])[0]})


def bulk_span(
    provider: TelemetryProvider, roots: Sequence[FlowNode]
) -> AbstractContextManager[TelemetrySpan, bool | None]:
    """Add several flows in a span of their own."""
    names = names_of(roots)
    attributes: Attributes = {"bullmq.job.bulk.count": len(names), "bullmq.job.bulk.names": ",".join(names)}
    return Tracing(provider, "").span("addBulkFlows", "producer", attributes=attributes)


@contextmanager
def jobs_span(tracing: Tracing, jobs: Sequence[NewJob]) -> Generator[list[NewJob], None, None]:
    """Add several jobs in a span of their own; the body gets them with its context."""
    attributes: Attributes = {"bullmq.job.bulk.names": names_of(jobs), "bullmq.job.bulk.count": len(jobs)}
    with tracing.span("addBulk", "producer", attributes=attributes) as span:
        metadata = span.metadata()
        yield [new_with_context(job, metadata) for job in jobs]


class FlowTracing:
    """The spans of the nodes of flows: each below that of the node above it."""

    def __init__(self, provider: TelemetryProvider) -> None:
        self._provider = provider
        self._spans: list[TelemetrySpan] = []
        self._options: list[JobOptions] = []

    def options_of(self, node: FlowNode, above: int) -> JobOptions:
        """Begin the span of the next node, by level; return its options, which carry the context.

        A node without options carries none, as with BullMQ.

        Source: specs/04-schedulers-flows-events.md#sec-12-3
        """
        above_it = self._spans[above].active() if above >= 0 else nullcontext()
        with above_it:
            span = Tracing(self._provider, node.queue_name).begin("addNode", "producer")
        self._spans.append(span)
        options = node.options if node.options == JobOptions() else with_context(node.options, span.metadata())
        # Kept alive: the core tells options apart by their identity.
        self._options.append(options)
        return options

    def end(self, nodes: Sequence[PreparedNode]) -> None:
        """Name the jobs, as far as they were prepared, and end all spans, children first."""
        for index in reversed(range(len(self._spans))):
            if index < len(nodes):
                job = nodes[index].job
                self._spans[index].set_attributes({"bullmq.job.name": job.name, "bullmq.job.id": job.job_id})
            self._spans[index].end()


def with_context(options: Any, metadata: str, *, replacing: bool = False) -> Any:
    """Return options that carry the context, unless they say `omit_context`, or (but `replacing`) have one.

    Source: specs/04-schedulers-flows-events.md#sec-12-3
    """
    if not isinstance(options, JobOptions) or not metadata:
        # Refused where it is checked; or there is no context, as of a span that could not begin.
        return options
    given = options.telemetry
    if not isinstance(given, Telemetry):
        return replace(options, telemetry=Telemetry(metadata=metadata))
    own = given.metadata is not UNSET and given.metadata != ""
    if given.omit_context is True or (own and not replacing):
        return options
    return replace(options, telemetry=replace(given, metadata=metadata))


def new_with_context(job: Any, metadata: str) -> Any:
    """Return a job of a bulk whose options carry the context."""
    if not isinstance(job, NewJob):
        # Refused where it is checked.
        return job
    return NewJob(job.name, job.data, with_context(job.options, metadata))


def names_of(jobs: Sequence[NewJob] | Sequence[FlowNode]) -> list[str]:
    """Return the names for a span, whatever is among the jobs: invalid ones are refused later."""
    names: list[object] = [getattr(job, "name", "") for job in jobs]
    return [name.name if isinstance(name, JobType) else str(name) for name in names]


def context_of(job: JobRecord) -> str | None:
    """Return the context that came with a job, None without one."""
    telemetry = job.opts.telemetry
    metadata = telemetry.metadata if isinstance(telemetry, Telemetry) else None
    return metadata if isinstance(metadata, str) and metadata else None


def omits_context(job: JobRecord) -> bool:
    """Tell whether the job's options keep contexts out of it."""
    telemetry = job.opts.telemetry
    return isinstance(telemetry, Telemetry) and telemetry.omit_context is True
