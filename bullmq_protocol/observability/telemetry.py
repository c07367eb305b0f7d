"""Spans around operations. A provider makes them; without one nothing of this happens.

Source: specs/04-schedulers-flows-events.md#sec-12
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from bullmq_protocol.errors import UsageError

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
    """Begins spans; `bullmq_otel.BullMQOtel` is one. It is called while jobs wait, so it must not block.

    Its exceptions are logged and do no harm: the operation continues without its span.
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
    """Raise `UsageError` unless this is a provider or None; a class in place of an instance is refused, too."""
    if provider is not None and (isinstance(provider, type) or not callable(getattr(provider, "start_span", None))):
        raise UsageError("telemetry", provider, "must be an object with the method start_span, a BullMQOtel() for one")


def guarded(provider: TelemetryProvider | None, report: Callable[[BaseException], object]) -> TelemetryProvider | None:
    """Check a provider, and return one that does the same and raises nothing itself.

    `report` receives each exception, and may raise those that must propagate, such as Ctrl-C.
    """
    check_provider(provider)
    return None if provider is None else _Guarded(provider, report)


class _Guarded:
    """A provider whose exceptions are reported: it is the user's code, and its faults must not spread."""

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
    """The block in which a span is the current one. The body runs once, and its exceptions propagate unchanged."""

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
        """Run the body in such a span, and record its exception.

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
