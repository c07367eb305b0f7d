"""From notices to metrics: one function, and the worker's end of it. Both adapters share them.

Source: requirements, "Observability"
"""

from __future__ import annotations

from typing import Final

from bullmq_protocol.common.units import Millis
from bullmq_protocol.model.categories import Category
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.observability.metrics import MetricsCollector
from bullmq_protocol.worker.notices import (
    Disconnected,
    JobCompleted,
    JobFailed,
    JobStalled,
    LockLost,
    Notice,
    Reconnected,
    ReconnectFailed,
    RenewalFailed,
    Renewed,
    StalledCheckSkipped,
)

METERED: Final[tuple[type[Notice], ...]] = (
    JobCompleted,
    JobFailed,
    JobStalled,
    LockLost,
    RenewalFailed,
    Renewed,
    StalledCheckSkipped,
    Disconnected,
    ReconnectFailed,
    Reconnected,
)
"""The kinds of notices that `collect` makes something of."""


def collect(notice: Notice, collector: MetricsCollector, queue: str, worker_id: str) -> None:
    """Give the collector what a notice says; raises what the collector raises."""
    match notice:
        case JobCompleted():
            collector.job_processed(queue, "completed")
            collector.job_duration(queue, notice.duration_ms / 1000)
        case JobFailed():
            if notice.retry_delay_ms is not None:
                collector.job_processed(queue, "retried")
            else:
                collector.job_processed(queue, "failed")
                transient = notice.category is Category.TRANSIENT
                collector.job_failed(queue, "transient_exhausted" if transient else "permanent")
            collector.job_duration(queue, notice.duration_ms / 1000)
        case JobStalled():
            collector.job_stalled(queue)
        case LockLost():
            collector.heartbeat_failed(queue, 1)
        case RenewalFailed(job_ids):
            collector.heartbeat_failed(queue, len(job_ids))
        case Renewed(job_ids, duration_ms):
            collector.heartbeat_succeeded(queue, len(job_ids))
            collector.lock_extended(queue, duration_ms / 1000)
        case StalledCheckSkipped():
            collector.stalled_check_skipped(queue)
        case Disconnected():
            collector.connection_status(queue, worker_id, "disconnected")
        case ReconnectFailed():
            collector.reconnect_attempted()
        case Reconnected():
            collector.reconnect_attempted()
            collector.connection_status(queue, worker_id, "connected")
        case _:
            pass


class Meter:
    """What a worker calls: with each notice of a kind in `METERED`, and at its beginning and end."""

    def __init__(self, collector: MetricsCollector, queue: str, worker_id: str) -> None:
        self._collector = collector
        self._queue = queue
        self._worker_id = worker_id

    def __call__(self, notice: Notice) -> None:
        collect(notice, self._collector, self._queue, self._worker_id)

    def started(self) -> None:
        """Note that the worker runs; like the machine it takes the connection to be there until a call fails."""
        self._collector.worker_active(self._queue, self._worker_id, True)
        self._collector.connection_status(self._queue, self._worker_id, "connected")

    def ended(self) -> None:
        """Note that the worker has ended."""
        self._collector.worker_active(self._queue, self._worker_id, False)
        self._collector.connection_status(self._queue, self._worker_id, None)


def lasted(job: JobRecord, now: Millis) -> Millis:
    """Return how long ago a job was taken manually, by the clock that noted it."""
    return max(0, now - (now if job.processed_on is None else job.processed_on))
