"""Spans around operations, and their context in jobs. A provider makes them; without one nothing of this happens.

Source: specs/04-schedulers-flows-events.md#sec-12
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.flow import FlowNode, PreparedNode
from bullmq_protocol.model.job import JobRecord, NewJob
from bullmq_protocol.model.options import JobOptions, Telemetry

R = TypeVar("R")

SpanKind: TypeAlias = Literal["internal", "producer", "consumer"]
Attributes: TypeAlias = Mapping[str, str | int | float | bool | Sequence[str]]


class TelemetrySpan(Protocol):
    """A span that has begun. What its methods raise is logged and does no harm."""

    def metadata(self) -> str:
        """Return its context as the text that travels in jobs: the JSON of a propagation carrier."""
        ...

    def set_attributes(self, attributes: Attributes) -> None: ...
    def add_event(self, name: str, attributes: Attributes) -> None: ...
    def record_exception(self, error: BaseException | str) -> None: ...
    def active(self) -> AbstractContextManager[object, bool | None]:
        """Make it the current span, the parent of others, inside a `with`; its end is not that of the span."""
        ...

    def end(self) -> None: ...


class TelemetryProvider(Protocol):
    """What begins spans; `bullmq_otel.BullMQOtel` for one. It is called on the worker's way: it must not block.

    What it raises is logged and does no harm: the operation goes on without its span.
    """

    def start_span(
        self, name: str, kind: SpanKind, attributes: Attributes, *, parent: str | None = None
    ) -> TelemetrySpan:
        """Begin a span. `parent` is the text of a job (whatever another client left there) and may be unreadable;
        without one the parent is the current span."""
        ...


class _NoSpan:
    def metadata(self) -> str:
        return ""

    def set_attributes(self, attributes: Attributes) -> None: ...
    def add_event(self, name: str, attributes: Attributes) -> None: ...
    def record_exception(self, error: BaseException | str) -> None: ...
    def active(self) -> AbstractContextManager[object, bool | None]:
        return nullcontext()

    def end(self) -> None: ...
    def __enter__(self) -> TelemetrySpan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


NO_SPAN: Final = _NoSpan()
"""The span of an operation without telemetry; stands in a `with`, too."""


def check_provider(provider: object) -> None:
    """Raise `UsageError` for what is no provider, a class in place of an object of it for one. None is none."""
    if provider is not None and (isinstance(provider, type) or not callable(getattr(provider, "start_span", None))):
        raise UsageError("telemetry", provider, "must be an object with the method start_span, a BullMQOtel() for one")


def guarded(provider: TelemetryProvider | None, report: Callable[[BaseException], object]) -> TelemetryProvider | None:
    """Check a provider, and return one that does the same and raises nothing of its own.

    `report` is given what it raises, and may raise what shall go on, as Ctrl-C.
    """
    check_provider(provider)
    return None if provider is None else _Guarded(provider, report)


class _Guarded:
    """A provider whose faults are reported. It is the user's code, whose faults are nobody else's."""

    def __init__(self, provider: TelemetryProvider, report: Callable[[BaseException], object]) -> None:
        self._provider = provider
        self.report = report

    def start_span(
        self, name: str, kind: SpanKind, attributes: Attributes, *, parent: str | None = None
    ) -> TelemetrySpan:
        span = self.call(lambda: self._provider.start_span(name, kind, attributes, parent=parent), None)
        return NO_SPAN if span is None else _GuardedSpan(span, self)

    def call(self, function: Callable[[], R], otherwise: R) -> R:
        """Return what the provider's function returns, or the other value where it raises."""
        try:
            return function()
        except BaseException as error:
            self.report(error)
            return otherwise


class _GuardedSpan:
    __slots__ = ("_guard", "_span")

    def __init__(self, span: TelemetrySpan, guard: _Guarded) -> None:
        self._span = span
        self._guard = guard

    def metadata(self) -> str:
        # It is stored with jobs: it must be text that can be.
        return self._guard.call(lambda: str.encode(self._span.metadata()).decode(), "")

    def set_attributes(self, attributes: Attributes) -> None:
        self._guard.call(lambda: self._span.set_attributes(attributes), None)

    def add_event(self, name: str, attributes: Attributes) -> None:
        self._guard.call(lambda: self._span.add_event(name, attributes), None)

    def record_exception(self, error: BaseException | str) -> None:
        self._guard.call(lambda: self._span.record_exception(error), None)

    def active(self) -> AbstractContextManager[object, bool | None]:
        return _GuardedBlock(self._span, self._guard)

    def end(self) -> None:
        self._guard.call(self._span.end, None)


class _GuardedBlock:
    """The block in which a span is the current one. The body runs once, and what it raises goes on as it is."""

    __slots__ = ("_block", "_guard", "_span")

    def __init__(self, span: TelemetrySpan, guard: _Guarded) -> None:
        self._span = span
        self._guard = guard
        self._block: AbstractContextManager[object, bool | None] | None = None

    def __enter__(self) -> None:
        self._block = self._guard.call(self._enter, None)

    def _enter(self) -> AbstractContextManager[object, bool | None]:
        block = self._span.active()
        block.__enter__()
        return block

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        try:
            block.__exit__(kind, error, trace)
        except BaseException as another:
            if another is not error:
                self._guard.report(another)


class Tracing:
    """The spans of one queue."""

    def __init__(self, provider: TelemetryProvider, queue: str) -> None:
        self.provider = provider
        self.queue = queue

    def begin(
        self,
        operation: str,
        kind: SpanKind = "internal",
        *,
        destination: str | None = None,
        parent: str | None = None,
        attributes: Attributes | None = None,
    ) -> TelemetrySpan:
        """Begin a span `<operation> <destination>`; the destination is the queue, if none is given."""
        named = {"bullmq.queue.name": self.queue, "bullmq.queue.operation": operation}
        place = self.queue if destination is None else destination
        name = f"{operation} {place}" if place else operation
        return self.provider.start_span(name, kind, {**named, **(attributes or {})}, parent=parent)

    @contextmanager
    def span(
        self,
        operation: str,
        kind: SpanKind = "internal",
        *,
        destination: str | None = None,
        attributes: Attributes | None = None,
    ) -> Generator[TelemetrySpan, None, None]:
        """Run the body in such a span, and record what it raises.

        Source: specs/04-schedulers-flows-events.md#sec-12-2
        """
        span = self.begin(operation, kind, destination=destination, attributes=attributes)
        try:
            with span.active():
                yield span
        except BaseException as error:
            span.record_exception(error)
            raise
        finally:
            span.end()


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
    """Return the names for a span, whatever is among the jobs: what is wrong is refused later."""
    return [str(getattr(job, "name", "")) for job in jobs]


def context_of(job: JobRecord) -> str | None:
    """Return the context that came with a job, None without one."""
    telemetry = job.opts.telemetry
    metadata = telemetry.metadata if isinstance(telemetry, Telemetry) else None
    return metadata if isinstance(metadata, str) and metadata else None


def omits_context(job: JobRecord) -> bool:
    """Tell whether the job's options keep contexts out of it."""
    telemetry = job.opts.telemetry
    return isinstance(telemetry, Telemetry) and telemetry.omit_context is True
