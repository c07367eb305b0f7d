"""How a job ends: which command reports it, with which arguments."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from bullmq_protocol.command import Command
from bullmq_protocol.commands.fetching import packed_fetch
from bullmq_protocol.commands.finishing import (
    FinishOptions,
    PackedFinish,
    failure_fields,
    move_job_from_active_to_wait,
    move_to_delayed,
    move_to_finished,
    retry_job,
)
from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, clean_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Millis
from bullmq_protocol.model.backoff import custom_type
from bullmq_protocol.model.categories import Category
from bullmq_protocol.model.failure import Failure, FailureKind, Retry, decide, stacktrace_json
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import KeepJobs, Retention, retention_map
from bullmq_protocol.model.schedule import number_of
from bullmq_protocol.worker.notices import JobFailed
from bullmq_protocol.worker.options import WorkerSettings

_MOST_PACKED = 64
_LONGEST_KEPT = 4096


class Handled(Protocol):
    """A job of the user's, as a handler has it."""

    @property
    def record(self) -> JobRecord: ...

    @property
    def discarded(self) -> bool:
        """It asked not to be retried."""
        ...


def strategy_type(job: Handled) -> str | None:
    """Return the backoff type of a job whose attempt failed, if the user's strategy is to say when the next one is."""
    record = job.record
    if job.discarded or record.attempts_made + 1 >= record.attempts:
        return None
    return custom_type(record.opts.backoff)


class ReportKind(Enum):
    """Which command reports the outcome."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    DELAY = "delay"
    RATE_LIMIT = "rate-limit"


class Finishing:
    """The packed options of moveToFinished of one worker, kept as long as jobs come with the same options.

    `limited`: the script takes a limit of retention by age.
    """

    __slots__ = ("_limited", "_packed", "_settings")

    def __init__(self, settings: WorkerSettings, *, limited: bool = False) -> None:
        self._settings = settings
        self._limited = limited
        self._packed: dict[tuple[bytes, bool], bytes] = {}

    def options(self, job: JobRecord, token: str, *, completed: bool) -> PackedFinish:
        """Return the options for this job."""
        text = job.fields.get("opts", b"")
        rest = self._packed.get((text, completed))
        if rest is None:
            rest = finish_options(job, token, self._settings, completed=completed, limited=self._limited).packed_rest()
            if len(self._packed) >= _MOST_PACKED:
                self._packed.clear()
            if len(text) <= _LONGEST_KEPT:
                self._packed[text, completed] = rest
        return PackedFinish(token, rest)

    def fetch(self, token: str) -> bytes:
        """Return the options for a job that is taken with this token."""
        settings = self._settings
        return packed_fetch(token, settings.lock_ms, settings.limiter, settings.name)


class Report(msgspec.Struct, eq=False):
    """One outcome to be stored. Its command is built when it is sent, because the time goes with it."""

    kind: ReportKind
    value: str = ""
    fields: tuple[str, ...] = ()
    delay: float = 0
    exhausted: bool = False
    permanent: bool = False
    category: Category = Category.PERMANENT
    exception: Any = None
    fetch_next: bool = False
    plain: bool = False
    """Nothing of the job's options goes into it."""

    def may_fetch_next(self, keys: QueueKeys) -> bool:
        """Only moveToFinished can bring the next job, and in later versions moveToDelayed."""
        kind = self.kind
        if kind is ReportKind.COMPLETED or kind is ReportKind.FAILED:
            return not self.plain
        return kind is ReportKind.DELAY and keys.switches.next_job_of_move_to_delayed

    def command(
        self, keys: QueueKeys, job: JobRecord, token: str, finishing: Finishing, *, now: Millis
    ) -> Command[Any]:
        """Return the command that stores this outcome.

        Source: specs/05-worker-runtime.md#sec-8-3
        """
        completed = self.kind is ReportKind.COMPLETED
        if completed or self.kind is ReportKind.FAILED:
            return move_to_finished(
                keys,
                job.id,
                outcome="completed" if completed else "failed",
                value=self.value,
                now=now,
                options=_plain_options(token) if self.plain else finishing.options(job, token, completed=completed),
                fetch_next=self.fetch_next,
                fields=self.fields,
            )
        match self.kind:
            case ReportKind.RETRY:
                lifo = job.opts.lifo is True
                return retry_job(keys, job.id, token=token, now=now, lifo=lifo, fields=self.fields)
            case ReportKind.DELAY:
                return move_to_delayed(
                    keys,
                    job.id,
                    token=token,
                    now=now,
                    delay=self.delay,
                    count_attempt=True,
                    fields=self.fields,
                    fetch=finishing.fetch(token) if self.fetch_next else None,
                )
            case _:
                return move_job_from_active_to_wait(keys, job.id, token=token)

    def notice(self, job: JobRecord, duration: Millis) -> JobFailed:
        """Return the notice of a stored failure."""
        retried = self.kind in (ReportKind.RETRY, ReportKind.DELAY)
        return JobFailed(
            job,
            self.value,
            job.attempts_made + 1,
            self.delay if retried else None,
            exhausted=self.exhausted,
            permanent=self.permanent,
            duration_ms=duration,
            category=self.category,
            exception=self.exception,
        )


def success_report(value: str) -> Report:
    """Return the report of a returned value (JSON text)."""
    return Report(ReportKind.COMPLETED, value)


def failure_report(
    job: JobRecord,
    failure: Failure,
    settings: WorkerSettings,
    *,
    roll: float,
    strategy_delay: float | None = None,
    strategy_error: str | None = None,
    exception: Any = None,
    telemetry: str | None = None,
) -> Report:
    """Decide between retry, delayed retry and failing for good. `telemetry` is a context to be stored with the failure.

    A backoff type without a strategy, or a strategy that failed, fails the job with that reason (BullMQ leaves it in
    `active` until the stalled check finds it).

    Source: specs/05-worker-runtime.md#sec-9
    """
    decision = decide(
        failure,
        attempts_made=job.attempts_made,
        attempts=job.attempts,
        backoff=job.opts.backoff,
        policy=settings.retry_policy,
        roll=roll,
        max_backoff_delay_ms=settings.max_backoff_ms,
        extra_jitter=settings.extra_jitter,
        strategy_delay_ms=strategy_delay,
        discarded=0 < settings.last_start <= job.attempts_started,
    )
    trace = stacktrace_json(job.stacktrace_text, failure.stack, stack_trace_limit(job))
    telemetry = None if telemetry is None else clean_text(telemetry)
    if isinstance(decision, Retry):
        kind = ReportKind.DELAY if decision.delay_ms else ReportKind.RETRY
        fields = failure_fields(failure.message, trace, telemetry)
        return Report(
            kind,
            value=failure.message or "",
            fields=fields,
            delay=decision.delay_ms,
            category=failure.category,
            exception=exception,
        )
    reason = decision.reason
    if strategy_error is not None and not decision.exhausted and failure.kind is FailureKind.ERROR:
        reason = clean_text(strategy_error)
    return Report(
        ReportKind.FAILED,
        value=reason,
        fields=failure_fields(reason, trace, telemetry),
        exhausted=decision.exhausted,
        permanent=decision.permanent,
        category=failure.category,
        exception=exception,
    )


def _plain_options(token: str) -> FinishOptions:
    return FinishOptions(token=token, keep_jobs={"count": -1})


def plain_failure(failure: Failure, exception: Exception) -> Report:
    """Return a report that fails a job for good and leaves aside whatever its hash holds."""
    reason = failure.message or ""
    fields = failure_fields(reason, stacktrace_json(None, failure.stack))
    return Report(ReportKind.FAILED, value=reason, fields=fields, permanent=True, exception=exception, plain=True)


def failed_by(reason: str, kind: FailureKind) -> Failure:
    """Return a failure that no handler raised: a deferred one, or a refused report."""
    reason = clean_text(reason)
    unrecoverable = kind is FailureKind.UNRECOVERABLE
    name = "UnrecoverableError" if unrecoverable else "Error"
    category = Category.PERMANENT if unrecoverable else Category.TRANSIENT
    return Failure(kind=kind, name=name, message=reason, stack=f"{name}: {reason}", category=category)


def stack_trace_limit(job: JobRecord) -> float | None:
    """Return the job's option, or None."""
    limit = job.opts.stack_trace_limit
    return None if isinstance(limit, UnsetType) else limit


def finish_options(
    job: JobRecord, token: str, settings: WorkerSettings, *, completed: bool, limited: bool = False
) -> FinishOptions:
    """Return the packed options of moveToFinished for this job and worker.

    Source: specs/05-worker-runtime.md#sec-11
    """
    options = job.opts
    own = options.remove_on_complete if completed else options.remove_on_fail
    default = settings.remove_on_complete if completed else settings.remove_on_fail
    return FinishOptions(
        token=token,
        keep_jobs=keep_jobs(own, default, limited=limited),
        lock_ms=settings.lock_ms,
        attempts=job.attempts,
        limiter=settings.limiter,
        worker_name=settings.name,
        max_metrics_size=settings.metrics_max_data_points,
        fail_parent_on_failure=options.fail_parent_on_failure is True,
        continue_parent_on_failure=options.continue_parent_on_failure is True,
        ignore_dependency_on_failure=options.ignore_dependency_on_failure is True,
        remove_dependency_on_failure=options.remove_dependency_on_failure is True,
    )


def keep_jobs(
    own: Retention | UnsetType | None, default: KeepJobs | None, *, limited: bool = False
) -> dict[str, int | float]:
    """Return the retention map: the job's option wins, then the worker's; neither keeps everything.

    `limited`: with the limit of retention by age (specs/06-later-versions.md#sec-11-6-1).

    Source: specs/02-worker-path.md#sec-2-3
    """
    if own is UNSET or own is None:
        return {"count": -1} if default is None else retention_map(default)
    if own is True:
        return {"count": 0}
    if own is False:
        return {"count": -1}
    stored: dict[str, Any] = retention_map(own) if isinstance(own, KeepJobs) else {"count": own}
    kept: dict[str, int | float] = {}
    for name in ("count", "age"):
        # A value that is no number the script can use counts as absent.
        value = number_of(stored.get(name))
        if value is not None:
            kept[name] = _count(value) if name == "count" else value
    limit = number_of(stored.get("limit")) if limited else None
    if limit is not None and limit == math.floor(limit) and abs(limit) <= MAX_SAFE_INTEGER:
        kept["limit"] = int(limit)
    return kept


def _count(stored: float) -> int:
    """Return a stored number of jobs to keep as one that the script can use, never a smaller one.

    Source: specs/05-worker-runtime.md#sec-11
    """
    return math.ceil(stored) if 0 <= stored <= MAX_SAFE_INTEGER else -1
