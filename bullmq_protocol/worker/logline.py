"""What a worker logs about a notice: level, message, and fields for structured logs. Both adapters share this table.

Levels are those of Python's `logging`. Adapters add `worker_id` and `queue` to the fields.

Source: requirements, "Observability"
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, assert_never, cast

import msgspec

from bullmq_protocol.common.codec import clean_text
from bullmq_protocol.errors import without_login
from bullmq_protocol.model.categories import name_of
from bullmq_protocol.observability.current import attempt_fields
from bullmq_protocol.observability.redacted import redacted
from bullmq_protocol.worker.lifecycle import (
    ClosedNotice,
    Closing,
    Disconnected,
    Drained,
    Paused,
    Reconnected,
    ReconnectFailed,
    RenewalFailed,
    Renewed,
    Resumed,
    StalledCheckSkipped,
    WorkerNotice,
    WorkerProblem,
)
from bullmq_protocol.worker.notices import (
    HandlerAbandoned,
    HandlerBlocked,
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
    JobStalled,
    LockLost,
    Notice,
    ReportRefused,
)

DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40

LOWEST_LEVEL: Final[Mapping[type[Notice], int]] = MappingProxyType(
    {
        JobActive: DEBUG,
        JobCompleted: INFO,
        JobFailed: WARNING,
        JobMoved: INFO,
        JobStalled: WARNING,
        LockLost: WARNING,
        ReportRefused: WARNING,
        Drained: DEBUG,
        RenewalFailed: WARNING,
        Renewed: DEBUG,
        StalledCheckSkipped: WARNING,
        Disconnected: ERROR,
        ReconnectFailed: WARNING,
        Reconnected: INFO,
        WorkerProblem: ERROR,
        Paused: INFO,
        Resumed: INFO,
        Closing: INFO,
        ClosedNotice: INFO,
        HandlerAbandoned: WARNING,
        HandlerBlocked: WARNING,
    }
)
"""The lowest level a kind of notice is logged at: below it there is no need to make the line."""


class LogLine(msgspec.Struct, frozen=True):
    """One line for the log: a template that is the same for all lines of its kind, as collectors group them by it, and
    what goes into it. `fields` go into `extra`; the traceback of `exception` goes with the line."""

    level: int
    template: str
    args: tuple[Any, ...]
    fields: dict[str, Any]
    exception: BaseException | None = None

    @property
    def message(self) -> str:
        """The template with its arguments."""
        return self.template % self.args


LONGEST_TEXT: Final = 2_000
"""How many characters of a text go into a log line; text stored with a job is never cut."""


def logline(notice: Notice, queue: str, *, trace_retries: bool = False) -> LogLine:
    """Return what to log about a notice of a worker of this queue.

    Long texts are cut to `LONGEST_TEXT` characters, and those that look like a URL with a login are not shown from
    there on. The exception that failed a job for good goes with the line; `trace_retries`: those of retried attempts,
    too.
    """
    template, args, fields = _line(notice, queue)
    level = LOWEST_LEVEL[type(notice)]
    exception: BaseException | None = None
    if isinstance(notice, JobFailed):
        is_last = notice.retry_delay_ms is None
        level = ERROR if is_last else WARNING
        if (is_last or trace_retries) and isinstance(notice.exception, BaseException):
            exception = redacted(notice.exception, _shown_text)
    shown = {name: _shown(value) for name, value in fields.items()}
    return LogLine(level, template, tuple(map(_shown, args)), shown, exception)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return without_login(cut(value))
    return [_shown(each) for each in cast("Any", value)] if isinstance(value, list) else value


def _shown_text(text: str) -> str:
    return without_login(cut(clean_text(text)))


def cut(value: Any) -> Any:
    """Return a text such that a line of the log can hold it; any other value as it is."""
    if not isinstance(value, str) or len(value) <= LONGEST_TEXT:
        return value
    return f"{value[:LONGEST_TEXT]}... ({len(value)} characters)"


_Line: TypeAlias = tuple[str, tuple[Any, ...], dict[str, Any]]


def _line(notice: Notice, queue: str) -> _Line:
    match notice:
        case JobActive(job):
            return "job %s of %s picked up", (job.id, queue), attempt_fields(job)
        case JobCompleted(job, value, duration_ms):
            fields = {**attempt_fields(job), "duration_ms": duration_ms, "result_bytes": len(value.encode())}
            return "job %s of %s completed in %s ms", (job.id, queue, duration_ms), fields
        case JobFailed():
            return _failed(notice, queue)
        case JobMoved(job, how):
            return "job %s of %s left the worker: %s", (job.id, queue, how), {**attempt_fields(job), "how": how}
        case JobStalled(job_id):
            return "job %s of %s had stalled: its lock had expired", (job_id, queue), {"job_id": job_id}
        case LockLost(job, blocked_ms):
            if not blocked_ms:
                return "job %s of %s lost its lock: its result will be refused", (job.id, queue), attempt_fields(job)
            template = (
                "job %s of %s lost its lock, as a handler had blocked the worker, and nothing had renewed it for %s ms"
            )
            return template, (job.id, queue, blocked_ms), {**attempt_fields(job), "blocked_ms": blocked_ms}
        case ReportRefused(job, reason, uncertain, blocked_ms):
            fields = {**attempt_fields(job), "error": reason, "uncertain": uncertain}
            if not blocked_ms:
                return "the outcome of job %s of %s was refused: %s", (job.id, queue, reason), fields
            template = (
                "the outcome of job %s of %s was refused, as a handler had blocked the worker, and nothing had renewed "
                "its lock for %s ms: %s"
            )
            return template, (job.id, queue, blocked_ms, reason), {**fields, "blocked_ms": blocked_ms}
        case HandlerBlocked(job_ids, blocked_ms):
            fields = {"job_ids": list(job_ids), "blocked_ms": blocked_ms}
            who = f"job {job_ids[0]}" if len(job_ids) == 1 else f"one of the jobs {', '.join(job_ids)}"
            template = "a handler blocked the worker of %s for %s ms, so that locks were renewed late: %s"
            return template, (queue, blocked_ms, who), fields
        case HandlerAbandoned(job):
            template = "the handler of job %s of %s still ran when the worker let go of it; its result is not stored"
            return template, (job.id, queue), attempt_fields(job)
        case _:
            return _of_the_worker(notice, queue)


def _of_the_worker(notice: WorkerNotice, queue: str) -> _Line:
    match notice:
        case Drained():
            return "no job of %s is ready", (queue,), {}
        case RenewalFailed(job_ids, message):
            fields: dict[str, Any] = {"job_ids": list(job_ids), "error": message}
            return "heartbeat failed for jobs of %s: %s", (queue, message), fields
        case Renewed(job_ids, duration_ms):
            return "locks of %s renewed", (queue,), {"job_ids": list(job_ids), "duration_ms": duration_ms}
        case StalledCheckSkipped():
            return "stalled check of %s skipped: the previous one still runs", (queue,), {}
        case Disconnected(message):
            return "worker of %s disconnected: %s", (queue, message), {"error": message}
        case ReconnectFailed(attempt, delay_ms, message):
            fields = {"attempt": attempt, "delay_ms": delay_ms, "error": message}
            return "worker of %s: attempt %s to reconnect failed: %s", (queue, attempt, message), fields
        case Reconnected(attempts, duration_ms):
            fields = {"attempts": attempts, "duration_ms": duration_ms}
            return "worker of %s reconnected after %s ms", (queue, duration_ms), fields
        case WorkerProblem(message, job_id):
            fields = {"error": message}
            return "worker of %s: %s", (queue, message), fields if job_id is None else {**fields, "job_id": job_id}
        case Paused():
            return "worker of %s paused", (queue,), {}
        case Resumed():
            return "worker of %s resumed", (queue,), {}
        case Closing():
            return "worker of %s shutting down", (queue,), {}
        case ClosedNotice():
            return "worker of %s closed", (queue,), {}
        case _:
            assert_never(notice)


def _failed(notice: JobFailed, queue: str) -> _Line:
    job, reason, attempts = notice.job, notice.reason, notice.attempts_made
    fields: dict[str, Any] = {
        **attempt_fields(job, attempts),
        "attempts_made": attempts,
        "duration_ms": notice.duration_ms,
        "category": notice.category.value,
        "error": reason,
    }
    said = reason
    if isinstance(notice.exception, BaseException):
        fields["error_type"] = kind = name_of(notice.exception)
        # Some reasons begin with it.
        said = reason if reason.startswith(kind) else f"{kind}: {reason}"
    if notice.retry_delay_ms is not None:
        fields["delay_ms"] = notice.retry_delay_ms
        template = "job %s of %s failed (attempt %s), retried in %s ms: %s"
        return template, (job.id, queue, attempts, notice.retry_delay_ms, said), fields
    if notice.permanent:
        return "job %s of %s failed: %s", (job.id, queue, said), fields
    return "job %s of %s failed, its attempts are exhausted: %s", (job.id, queue, said), fields
