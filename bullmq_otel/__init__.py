"""OpenTelemetry for queues, workers and flows: `pip install bullmq-protocol[otel]`, then `telemetry=BullMQOtel()`.

The trace context travels in BullMQ's own job option, as the JSON text of the propagation carrier, so that a trace goes
on in workers of other languages and from their producers.

Source: specs/04-schedulers-flows-events.md#sec-12-1
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Final, cast

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, TracerProvider
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"bullmq_otel needs opentelemetry-api ({error.name} is missing): pip install 'bullmq-protocol[otel]'",
        name=error.name,
    ) from error

from bullmq_protocol import VERSION
from bullmq_protocol.observability import telemetry

__all__ = ["BullMQOtel"]

_KINDS: Final = MappingProxyType(
    {"internal": SpanKind.INTERNAL, "producer": SpanKind.PRODUCER, "consumer": SpanKind.CONSUMER}
)


class BullMQOtel:
    """Makes OpenTelemetry spans; one serves all queues and workers of a process.

    `tracer_name` and `version` name the tracer; without a `tracer_provider` it is the global one's. Contexts go in and
    out by the global propagator.
    """

    def __init__(
        self,
        tracer_name: str = "bullmq-protocol",
        *,
        version: str = VERSION,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer(tracer_name, version, tracer_provider)

    def start_span(
        self,
        name: str,
        kind: telemetry.SpanKind,
        attributes: telemetry.Attributes,
        *,
        parent: str | None = None,
    ) -> telemetry.TelemetrySpan:
        """Begin a span below `parent`, or below the current one; a text that cannot be read counts as none."""
        context = None if parent is None else _context_from(parent)
        return _Span(self._tracer.start_span(name, context=context, kind=_KINDS[kind], attributes=attributes))


class _Span:
    def __init__(self, span: Span) -> None:
        self._span = span

    def metadata(self) -> str:
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(self._span))
        return json.dumps(carrier, separators=(",", ":"))

    def set_attributes(self, attributes: telemetry.Attributes) -> None:
        self._span.set_attributes(attributes)

    def add_event(self, name: str, attributes: telemetry.Attributes) -> None:
        self._span.add_event(name, attributes)

    def record_exception(self, error: BaseException | str) -> None:
        if isinstance(error, str):
            self._span.add_event("exception", {"exception.message": error})
        elif isinstance(error, Exception):
            self._span.record_exception(error)

    def active(self) -> AbstractContextManager[object, bool | None]:
        return _current(self._span)

    def end(self) -> None:
        self._span.end()


@contextmanager
def _current(span: Span) -> Generator[None, None, None]:
    with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
        yield


def _context_from(text: str) -> Context | None:
    try:
        carrier: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(carrier, dict):
        return None
    found = cast("Mapping[str, object]", carrier)
    return propagate.extract({key: value for key, value in found.items() if isinstance(value, str)})
