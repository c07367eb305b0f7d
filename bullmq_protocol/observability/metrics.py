"""What a worker's metrics are given to: the `MetricsCollector` protocol, and `NO_METRICS`, which takes nothing.

Source: requirements, "Observability"
"""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

from bullmq_protocol.errors import UsageError

ProcessedStatus: TypeAlias = Literal["completed", "failed", "retried"]
FailureReason: TypeAlias = Literal["transient_exhausted", "permanent"]
ConnectionStatus: TypeAlias = Literal["connected", "disconnected"]


class MetricsCollector(Protocol):
    """Where figures go. Called on the worker's way, from any of its threads: nothing in it may block.

    An exception in it is logged by the worker and does no harm.
    """

    def job_processed(self, queue: str, status: ProcessedStatus, /) -> None:
        """Count an attempt whose outcome was stored."""
        ...

    def job_failed(self, queue: str, reason: FailureReason, /) -> None:
        """Count a job that failed for good."""
        ...

    def job_duration(self, queue: str, seconds: float, /) -> None:
        """Take how long an attempt ran, whatever its outcome."""
        ...

    def queue_length(self, queue: str, state: str, length: int, /) -> None:
        """Take how many jobs a state of the queue holds, see `QueueLengths`."""
        ...

    def job_stalled(self, queue: str, /) -> None:
        """Count a job that this worker's stalled check returned to the queue."""
        ...

    def heartbeat_succeeded(self, queue: str, locks: int, /) -> None:
        """Count renewed locks."""
        ...

    def heartbeat_failed(self, queue: str, locks: int, /) -> None:
        """Count locks whose renewal failed, or that were found lost."""
        ...

    def lock_extended(self, queue: str, seconds: float, /) -> None:
        """Take how long a renewal of locks took."""
        ...

    def worker_active(self, queue: str, worker_id: str, active: bool, /) -> None:
        """Note that a worker began or ended."""
        ...

    def connection_status(self, queue: str, worker_id: str, status: ConnectionStatus | None, /) -> None:
        """Note the state of a worker's connection; None: the worker has ended."""
        ...

    def reconnect_attempted(self) -> None:
        """Count an attempt to reconnect."""
        ...

    def stalled_check_skipped(self, queue: str, /) -> None:
        """Count a stalled check that was due while the previous one still ran."""
        ...


class NoMetrics:
    """Take nothing. Also a base for collectors that want only some of the figures."""

    def job_processed(self, queue: str, status: ProcessedStatus, /) -> None:
        """Do nothing."""

    def job_failed(self, queue: str, reason: FailureReason, /) -> None:
        """Do nothing."""

    def job_duration(self, queue: str, seconds: float, /) -> None:
        """Do nothing."""

    def queue_length(self, queue: str, state: str, length: int, /) -> None:
        """Do nothing."""

    def job_stalled(self, queue: str, /) -> None:
        """Do nothing."""

    def heartbeat_succeeded(self, queue: str, locks: int, /) -> None:
        """Do nothing."""

    def heartbeat_failed(self, queue: str, locks: int, /) -> None:
        """Do nothing."""

    def lock_extended(self, queue: str, seconds: float, /) -> None:
        """Do nothing."""

    def worker_active(self, queue: str, worker_id: str, active: bool, /) -> None:
        """Do nothing."""

    def connection_status(self, queue: str, worker_id: str, status: ConnectionStatus | None, /) -> None:
        """Do nothing."""

    def reconnect_attempted(self) -> None:
        """Do nothing."""

    def stalled_check_skipped(self, queue: str, /) -> None:
        """Do nothing."""


def check_collector(collector: object) -> None:
    """Raise `UsageError` unless this is a collector; a class in place of an instance is refused, too."""
    wanted = [name for name in vars(NoMetrics) if not name.startswith("_")]
    if isinstance(collector, type) or not all(callable(getattr(collector, name, None)) for name in wanted):
        raise UsageError("metrics_collector", collector, "must be an object with the methods of MetricsCollector")


NO_METRICS: Final[MetricsCollector] = NoMetrics()
"""The default: a worker that has it hooks nothing in, so that it costs nothing."""
