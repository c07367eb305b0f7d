"""Metrics of workers and queues for Prometheus: `pip install bullmq-protocol[prometheus]`."""

from __future__ import annotations

import threading
from typing import get_args

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"this needs prometheus-client ({error.name} is missing): pip install 'bullmq-protocol[prometheus]'",
        name=error.name,
    ) from error

from bullmq_protocol.observability.metrics import ConnectionStatus, FailureReason, ProcessedStatus

__all__ = ["PrometheusMetrics"]


class PrometheusMetrics:
    """A `MetricsCollector` that counts in a registry of prometheus_client. One serves all workers of a process.

    Raises `ValueError` for a second one in the same registry. `bullmq_redis_connection_status` counts the connections
    of this process by status.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._processed = Counter(
            "bullmq_jobs_processed_total", "Attempts by outcome", ("queue", "status"), registry=registry
        )
        self._failed = Counter(
            "bullmq_jobs_failed_total", "Jobs failed for good", ("queue", "reason"), registry=registry
        )
        self._duration = Histogram("bullmq_job_duration_seconds", "Time of an attempt", ("queue",), registry=registry)
        self._length = Gauge("bullmq_queue_length", "Jobs by state", ("queue", "state"), registry=registry)
        self._stalled = Counter(
            "bullmq_stalled_jobs_total", "Stalled jobs returned to the queue", ("queue",), registry=registry
        )
        self._heartbeats = Counter("bullmq_heartbeat_success_total", "Locks renewed", ("queue",), registry=registry)
        self._missed = Counter("bullmq_heartbeat_failure_total", "Locks not renewed", ("queue",), registry=registry)
        self._extended = Histogram(
            "bullmq_lock_extend_duration_seconds", "Time of a renewal", ("queue",), registry=registry
        )
        self._active = Gauge(
            "bullmq_active_workers", "1 for each running worker", ("queue", "worker_id"), registry=registry
        )
        self._connections = Gauge(
            "bullmq_redis_connection_status", "Workers by state of their connection", ("status",), registry=registry
        )
        self._reconnects = Counter("bullmq_redis_reconnect_attempts_total", "Attempts to reconnect", registry=registry)
        self._skipped = Counter(
            "bullmq_stalled_checker_skipped_total", "Stalled checks skipped", ("queue",), registry=registry
        )
        self._lock = threading.Lock()
        self._statuses: dict[tuple[str, str], ConnectionStatus] = {}
        self._show_statuses()

    def job_processed(self, queue: str, status: ProcessedStatus, /) -> None:
        self._processed.labels(queue, status).inc()

    def job_failed(self, queue: str, reason: FailureReason, /) -> None:
        self._failed.labels(queue, reason).inc()

    def job_duration(self, queue: str, seconds: float, /) -> None:
        self._duration.labels(queue).observe(seconds)

    def queue_length(self, queue: str, state: str, length: int, /) -> None:
        self._length.labels(queue, state).set(length)

    def job_stalled(self, queue: str, /) -> None:
        self._stalled.labels(queue).inc()

    def heartbeat_succeeded(self, queue: str, locks: int, /) -> None:
        self._heartbeats.labels(queue).inc(locks)

    def heartbeat_failed(self, queue: str, locks: int, /) -> None:
        self._missed.labels(queue).inc(locks)

    def lock_extended(self, queue: str, seconds: float, /) -> None:
        self._extended.labels(queue).observe(seconds)

    def worker_active(self, queue: str, worker_id: str, active: bool, /) -> None:
        """Show a running worker as 1; an ended one has no series any more. All counters of its queue are shown as 0."""
        if not active:
            self._active.remove(queue, worker_id)
            return
        self._active.labels(queue, worker_id).set(1)
        for status in get_args(ProcessedStatus):
            self._processed.labels(queue, status)
        for reason in get_args(FailureReason):
            self._failed.labels(queue, reason)
        for metric in (self._stalled, self._heartbeats, self._missed, self._skipped):
            metric.labels(queue)

    def connection_status(self, queue: str, worker_id: str, status: ConnectionStatus | None, /) -> None:
        with self._lock:
            if status is None:
                self._statuses.pop((queue, worker_id), None)
            else:
                self._statuses[queue, worker_id] = status
            self._show_statuses()

    def reconnect_attempted(self) -> None:
        self._reconnects.inc()

    def stalled_check_skipped(self, queue: str, /) -> None:
        self._skipped.labels(queue).inc()

    def _show_statuses(self) -> None:
        statuses = list(self._statuses.values())
        for status in get_args(ConnectionStatus):
            self._connections.labels(status).set(statuses.count(status))
