"""Jobs that are taken and finished manually, without `run`."""

from __future__ import annotations

import uuid
from typing import Any, Generic, TypeVar

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.units import Duration, check_flag, to_ms
from bullmq_protocol.errors import Closed, UsageError
from bullmq_protocol.model.options import result_text
from bullmq_protocol.observability.job_context import omits_context
from bullmq_protocol.observability.telemetry import NO_SPAN
from bullmq_protocol.worker.manual import ManualWork, Taken
from bullmq_protocol.worker.metering import lasted
from bullmq_protocol.worker.notices import JobCompleted, WorkerProblem
from bullmq_protocol.worker.outcome import failure_report
from bullmq_protocol.worker.setup import WorkerSetup
from bullmq_sync.drive import run
from bullmq_sync.driver import Driver
from bullmq_sync.driving.connections import Connections
from bullmq_sync.job import Job
from bullmq_sync.primitives import Lock, in_each_process

T = TypeVar("T")


class Manual(Generic[T]):
    """The manual work of one worker, over the connections of its driver."""

    def __init__(self, setup: WorkerSetup, driver: Driver[T]) -> None:
        self._driver = driver
        self._setup = setup
        self._tracing = driver.tracing
        self._steps = _Steps(driver.connections)
        self._clock = driver.clock
        self._work = ManualWork(setup.keys, setup.settings)
        in_each_process(self._renew)

    def _renew(self) -> None:
        self._lock = Lock()
        # guarded by _lock
        self._token = str(uuid.uuid4())
        self._count = 0
        self._waits = False

    def get_next_job(self, *, block: bool) -> Job[T] | None:
        """Take a job, or None. After an empty answer it waits once, up to the drain delay."""
        driver = self._driver
        driver.check_use()
        check_flag("block", block)
        if driver.is_closed():
            return None
        with self._lock:
            self._count += 1
            token = f"{self._token}:{self._count}"
            # One at a time waits, as they share a connection.
            waits = block and not self._waits
            self._waits = self._waits or waits
        try:
            job = self._taken(run(self._work.next_job(token, block=waits), self._steps, self._clock))
            if job is not None and self._tracing is not None:
                self._tracing.taken(job.record, block=block)
            return job
        except Closed:
            if not driver.is_closed():
                raise
            return None
        finally:
            if waits:
                with self._lock:
                    self._waits = False

    def complete(self, job: Job[T], value: Any, *, fetch_next: bool) -> Job[T] | None:
        """Store success; with `fetch_next` return the next job, if there is one."""
        driver = self._driver
        driver.check_use()
        token = _token_of(job)
        text = result_text(value, self._setup.limits, self._setup.result_type)
        check_flag("fetch_next", fetch_next)
        operation = self._work.complete(job.record, token, text, fetch_next=fetch_next)
        with NO_SPAN if self._tracing is None else self._tracing.completing():
            taken = run(operation, self._steps, self._clock)
        driver.notifier.meter_manual(JobCompleted(job.record, text, lasted(job.record, self._clock().wall)))
        return self._taken(taken)

    def fail(self, job: Job[T], error: BaseException, *, fetch_next: bool) -> Job[T] | None:
        """Store a failed attempt; with `fetch_next` return the next job, which only the end can bring."""
        driver = self._driver
        driver.check_use()
        token, record = _token_of(job), job.record
        if not isinstance(error, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("error", error, "must be an exception")
        check_flag("fetch_next", fetch_next)
        raised = driver.runs.raised_manually(job, error)
        report = failure_report(
            record,
            raised.failure,
            self._setup.settings,
            roll=raised.roll,
            strategy_delay=raised.strategy_delay_ms,
            strategy_error=raised.strategy_error,
            exception=error,
        )
        with NO_SPAN if self._tracing is None else self._tracing.failing(report) as span:
            operation = self._work.fail(
                record,
                token,
                raised.failure,
                roll=raised.roll,
                strategy_delay=raised.strategy_delay_ms,
                strategy_error=raised.strategy_error,
                telemetry=None if self._tracing is None or omits_context(record) else span.metadata() or None,
                fetch_next=fetch_next,
            )
            taken = run(operation, self._steps, self._clock)
        driver.notifier.meter_manual(report.notice(record, lasted(record, self._clock().wall)))
        return self._taken(taken)

    def _taken(self, taken: Taken) -> Job[T] | None:
        """Report a problem with a job that was taken, and return the job, if there is one."""
        if taken.problem is not None:
            self._driver.notifier.report(WorkerProblem(taken.problem))
        if taken.job is None:
            return None
        setup, transport = self._setup, self._driver.connections.transport
        return Job(taken.job, setup.keys, transport, setup.data_type, taken.token, setup.limits, setup.clock)

    def extend_lock(self, job: Job[T], duration: Duration | None) -> bool:
        """Renew a job's lock, by default for the worker's lock time."""
        self._driver.check_use()
        _check_job(job)
        return job.extend_lock(self._setup.settings.lock_ms if duration is None else to_ms("duration", duration))


class _Steps:
    """Where the steps of manual work go: waits to a connection of their own, the rest to the shared one."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        waits = isinstance(step, Command) and step.block_ms is not None
        transport = self._connections.named(manual=True) if waits else self._connections.transport
        return transport.perform(step)


def _check_job(job: object) -> None:
    if not isinstance(job, Job):
        raise UsageError("job", job, "must be a Job that get_next_job, complete or fail returned")


def _token_of(job: Job[Any]) -> str:
    _check_job(job)
    if job.token is None:
        raise UsageError("job", job, "was not taken by a worker: it has no lock")
    return job.token
