"""What a worker is made of: its arguments, checked, and what both adapters make of them alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bullmq_protocol.common.keys import KeyLayout, QueueKeys, check_label
from bullmq_protocol.common.payloads import payload_type
from bullmq_protocol.common.switches import Switches
from bullmq_protocol.common.units import Instant, check_clock
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.cron import Zones
from bullmq_protocol.model.options import Limits, check_kept
from bullmq_protocol.observability.metrics import NO_METRICS, MetricsCollector, check_collector
from bullmq_protocol.observability.telemetry import TelemetryProvider
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.metering import METERED, Meter
from bullmq_protocol.worker.options import WorkerOptions, check_processor
from bullmq_protocol.worker.routing import check_lifespan, check_middleware, check_router
from bullmq_protocol.worker.tracing import TRACED, WorkerTracing

Callbacks = dict[type[Any], tuple[Callable[[Any], object], ...]]
"""The callbacks for notices, by the notice's kind."""


class WorkerSetup:
    """The checked arguments of a worker. Raises `UsageError`."""

    def __init__(
        self,
        name: str,
        processor: object,
        *,
        is_async: bool,
        prefix: str,
        layout: KeyLayout,
        switches: Switches,
        options: WorkerOptions,
        zones: Zones,
        data_type: Any,
        result_type: Any,
        worker_id: str | None,
        made_id: str,
        backoff_strategy: object,
        metrics_collector: MetricsCollector,
        telemetry: TelemetryProvider | None,
        limits: Limits,
        middleware: object = (),
        lifespan: object = None,
        clock: Callable[[], Instant] | None = None,
    ) -> None:
        self.keys = QueueKeys.of(name, prefix=prefix, layout=layout, switches=switches)
        if not check_router(processor, is_async=is_async):
            check_processor(processor, is_async=is_async)
        self.middleware = check_middleware(middleware, is_async=is_async)
        check_lifespan(lifespan, is_async=is_async)
        if backoff_strategy is not None and not callable(backoff_strategy):
            raise UsageError("backoff_strategy", backoff_strategy, "must be a function")
        if not isinstance(options, WorkerOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("options", options, "must be a WorkerOptions")
        self._processes = processor is not None
        self.asks_strategy = backoff_strategy is not None
        self.data_type = payload_type("data_type", data_type)
        self.result_type = payload_type("result_type", result_type)
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("limits", limits, "must be Limits")
        check_collector(metrics_collector)
        self.clock = check_clock(clock)
        self.settings, self.warnings = options.checked(zones=zones, switches=switches)
        for field in ("remove_on_complete", "remove_on_fail"):
            check_kept(field, getattr(options, field), switches)
        self.id = made_id if worker_id is None else check_label("worker_id", worker_id)
        self.extra: dict[str, Any] = {"worker_id": self.id, "queue": self.keys.name}
        """The fields of its log lines."""
        self.limits = limits
        self.telemetry = telemetry
        self.meter = None if metrics_collector is NO_METRICS else Meter(metrics_collector, self.keys.name, self.id)

    def check_processor(self) -> None:
        """Refuse to run without a processor: such a worker is for jobs that are taken manually."""
        if not self._processes:
            raise UsageError("processor", None, "no process function is defined")

    def callbacks(self, tracing: WorkerTracing | None) -> Callbacks:
        """Return the built-in callbacks for notices: metrics, then spans."""
        callbacks: Callbacks = {} if self.meter is None else dict.fromkeys(METERED, (self.meter,))
        if tracing is not None:
            for kind in TRACED:
                callbacks[kind] = (*callbacks.get(kind, ()), tracing)
        return callbacks

    def tracing(self, machine: WorkerMachine, now: Callable[[], Instant]) -> WorkerTracing | None:
        """Return what makes the spans, if there is a provider."""
        if self.telemetry is None:
            return None
        return WorkerTracing(self.telemetry, machine, self.settings, queue=self.keys.name, worker_id=self.id, now=now)
