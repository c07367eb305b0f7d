"""The spans of a worker: one per job it processes, and those of its upkeep.

Source: specs/05-worker-runtime.md#sec-20
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any, Final

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.commands.locks import renewed_jobs
from bullmq_protocol.commands.schedulers import updated_scheduler
from bullmq_protocol.common.codec import json_text
from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.failure import FailureKind
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.observability.job_context import context_of, omits_context
from bullmq_protocol.observability.telemetry import NO_SPAN, Attributes, TelemetryProvider, TelemetrySpan, Tracing
from bullmq_protocol.worker.events import JobRaised
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
    Notice,
    ReportRefused,
    WorkerProblem,
)
from bullmq_protocol.worker.options import WorkerSettings
from bullmq_protocol.worker.outcome import Report, ReportKind, failure_report

TRACED: Final[tuple[type[Notice], ...]] = (
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
    ReportRefused,
    WorkerProblem,
    ClosedNotice,
)
"""The kinds of notices that spans begin and end with."""

_OPERATIONS: Final = MappingProxyType({ReportKind.FAILED: "fail", ReportKind.RETRY: "retry", ReportKind.DELAY: "delay"})


def own_span(
    tracing: WorkerTracing | None, operation: str, attributes: Attributes | None = None
) -> AbstractContextManager[TelemetrySpan, bool | None]:
    """Return the span of a method of the worker, if it makes any."""
    return NO_SPAN if tracing is None else tracing.own(operation, attributes)


class Replies:
    """Where the reply of a traced call is put."""

    def __init__(self) -> None:
        self.reply: Any = None


class _Processed:
    """A job's span, and that of its report."""

    __slots__ = ("job", "report", "span")

    def __init__(self, job: JobRecord, span: TelemetrySpan) -> None:
        self.job = job
        self.span = span
        self.report: TelemetrySpan = NO_SPAN


class WorkerTracing:
    """What a worker with telemetry calls: with its notices, and around handlers, calls and its own methods."""

    def __init__(
        self,
        provider: TelemetryProvider,
        machine: WorkerMachine,
        settings: WorkerSettings,
        *,
        queue: str,
        worker_id: str,
        now: Callable[[], Instant],
    ) -> None:
        self._tracing = Tracing(provider, queue)
        self._machine = machine
        self._settings = settings
        self._now = now
        self._worker: dict[str, Any] = {"bullmq.worker.id": worker_id}
        if settings.name is not None:
            self._worker["bullmq.worker.name"] = settings.name
        self._timer: TelemetrySpan = NO_SPAN
        # By the record, which the machine hands out with each notice of the same run.
        self._jobs: dict[int, _Processed] = {}

    # --- the worker's own -------------------------------------------------------------------------------------------

    def own(
        self, operation: str, attributes: Attributes | None = None
    ) -> AbstractContextManager[TelemetrySpan, bool | None]:
        """Run a method of the worker in its span."""
        return self._tracing.span(operation, attributes={**self._worker, **(attributes or {})})

    def started(self) -> None:
        """Note that the stalled checks begin; their spans are children of this one."""
        if not self._settings.skip_stalled_check:
            self._timer = self._tracing.begin("startStalledCheckTimer", attributes=self._worker)
            self._timer.end()

    @contextmanager
    def call(self, ticket: int, command: Command[Any]) -> Generator[Replies, None, None]:
        """Run a call of the machine in its span, if it is one of upkeep."""
        replies = Replies()
        match command.name:
            case "moveStalledJobsToWait":
                with self._timer.active(), self.own(command.name) as span:
                    yield replies
                    stalled: list[str] = _decoded(command, replies.reply) or []
                    span.set_attributes({"bullmq.worker.stalled.jobs": stalled})
                    for job_id in stalled:
                        span.add_event("job stalled", {"bullmq.job.id": job_id})
            case "extendLocks":
                with self.own(command.name, {"bullmq.worker.jobs.to.extend.locks": renewed_jobs(command)}):
                    yield replies
            case "updateJobScheduler":
                job = self._machine.job_of(ticket)
                name = "" if job is None else job.name or ""
                place = f"{self._tracing.queue}.{name}"
                scheduler = {"bullmq.job.scheduler.id": updated_scheduler(command)}
                with self._tracing.span("add", "producer", destination=place, attributes=scheduler) as span:
                    yield replies
                    job_id = _decoded(command, replies.reply)
                    if job_id:
                        span.set_attributes({"bullmq.job.id": job_id})
            case _:
                yield replies

    # --- jobs -------------------------------------------------------------------------------------------------------

    def running(self, job: JobRecord) -> AbstractContextManager[object, bool | None]:
        """Run a job's handler inside its span."""
        return self._span_of(job).active()

    def returned(self, job: JobRecord) -> None:
        """Note that the handler returned: the job is to be completed."""
        self._report(job, "complete")

    def raised(self, job: JobRecord, event: JobRaised) -> JobRaised:
        """Note that the handler raised; return the event with the context to be stored, if the attempt failed."""
        if event.failure.kind not in (FailureKind.ERROR, FailureKind.UNRECOVERABLE):
            return event
        report = failure_report(
            job,
            event.failure,
            self._settings,
            roll=event.roll,
            strategy_delay=event.strategy_delay_ms,
            strategy_error=event.strategy_error,
        )
        span = self._report(job, _OPERATIONS[report.kind])
        return event if omits_context(job) else msgspec.structs.replace(event, telemetry=span.metadata() or None)

    def __call__(self, notice: Notice) -> None:
        """Take a notice of a kind in `TRACED`."""
        match notice:
            case JobActive(job):
                self._jobs[id(job)] = _Processed(job, self._begin(job))
            case JobCompleted(job, value):
                self._end(job, ("job completed", {"bullmq.job.result": value}))
            case JobFailed(job, reason):
                known = self._jobs.get(id(job))
                if known is not None and known.report is NO_SPAN:
                    # No handler ran: it had failed before.
                    self._report(job, "fail")
                self._end(job, ("job failed", {"bullmq.job.failed.reason": reason}))
            case JobMoved(job):
                self._end(job)
            case ReportRefused(job, reason):
                self._refused(job, reason)
                self._end(job)
            case WorkerProblem(message, job_id) if job_id is not None:
                for known in [each for each in list(self._jobs.values()) if each.job.id == job_id]:
                    self._refused(known.job, message)
                    if not self._machine.holds(known.job):
                        self._end(known.job)
            case ClosedNotice():
                for known in list(self._jobs.values()):
                    self._end(known.job)
            case _:
                pass

    # --- manual -----------------------------------------------------------------------------------------------------

    def taken(self, job: JobRecord, *, block: bool) -> None:
        """Note that a job was taken manually."""
        attributes = {"bullmq.worker.options": json_text({"block": block}), "bullmq.job.id": job.id}
        self._tracing.begin("getNextJob", parent=context_of(job), attributes={**self._worker, **attributes}).end()

    def completing(self) -> AbstractContextManager[TelemetrySpan, bool | None]:
        """Complete a job manually in its span."""
        return self._tracing.span("complete")

    def failing(self, report: Report) -> AbstractContextManager[TelemetrySpan, bool | None]:
        """Fail a job manually in a span of the outcome."""
        return self._tracing.span(_OPERATIONS[report.kind])

    # --- within -----------------------------------------------------------------------------------------------------

    def _begin(self, job: JobRecord) -> TelemetrySpan:
        attributes = {
            **self._worker,
            "bullmq.job.id": job.id,
            "bullmq.job.name": job.name or "",
            "bullmq.job.attempts.made": job.attempts_made,
        }
        return self._tracing.begin("process", "consumer", parent=context_of(job), attributes=attributes)

    def _span_of(self, job: JobRecord) -> TelemetrySpan:
        known = self._jobs.get(id(job))
        return NO_SPAN if known is None else known.span

    def _report(self, job: JobRecord, operation: str) -> TelemetrySpan:
        known = self._jobs.get(id(job))
        if known is None:
            return NO_SPAN
        with known.span.active():
            known.report = self._tracing.begin(operation)
        return known.report

    def _refused(self, job: JobRecord, reason: str) -> None:
        known = self._jobs.get(id(job))
        if known is not None:
            known.report.record_exception(reason)
            known.span.record_exception(reason)

    def _end(self, job: JobRecord, event: tuple[str, Attributes] | None = None) -> None:
        known = self._jobs.pop(id(job), None)
        if known is None:
            return
        known.report.end()
        if event is not None:
            known.span.add_event(*event)
        finished: dict[str, Millis] = {"bullmq.job.finished.timestamp": self._now().wall}
        if job.processed_on is not None:
            finished["bullmq.job.processed.timestamp"] = job.processed_on
        known.span.set_attributes(finished)
        known.span.end()


def _decoded(command: Command[Any], reply: Any) -> Any:
    """Return what the machine will read, too; None where it finds a fault."""
    try:
        return command.decode(reply)
    except BullMQError:
        return None
