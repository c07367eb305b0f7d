"""What a worker logs about a notice: level, message, and fields for structured logs. Both adapters share this table.

Levels are those of Python's `logging`. Adapters add `worker_id` and `queue` to the fields.

Source: requirements, "Observability"
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, assert_never, cast

import msgspec

from bullmq_protocol.errors import without_login
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    Closing,
    Disconnected,
    Drained,
    HandlerAbandoned,
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
    JobStalled,
    LockLost,
    Notice,
    Paused,
    Reconnected,
    ReconnectFailed,
    RenewalFailed,
    Renewed,
    ReportRefused,
    Resumed,
    StalledCheckSkipped,
    WorkerProblem,
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
    }
)
"""The lowest level a kind of notice is logged at: below it there is no need to make the line."""


class LogLine(msgspec.Struct, frozen=True):
    """One line for the log. `fields` go into `extra`."""

    level: int
    message: str
    fields: dict[str, Any]


LONGEST_TEXT: Final = 2_000
"""How many characters of a text go into a log line; text stored with a job is never cut."""


def logline(notice: Notice) -> LogLine:
    """Return what to log about a notice. Long texts are cut to `LONGEST_TEXT` characters, and those that look like a
    URL with a login are not shown from there on."""
    line = _line(notice)
    return LogLine(line.level, _shown(line.message), {name: _shown(value) for name, value in line.fields.items()})


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return without_login(cut(value))
    return [_shown(each) for each in cast("Any", value)] if isinstance(value, list) else value


def cut(value: Any) -> Any:
    """Return a text such that a line of the log can hold it; any other value as it is."""
    if not isinstance(value, str) or len(value) <= LONGEST_TEXT:
        return value
    return f"{value[:LONGEST_TEXT]}... ({len(value)} characters)"


def _line(notice: Notice) -> LogLine:
    level = LOWEST_LEVEL[type(notice)]
    match notice:
        case JobActive(job):
            return LogLine(level, f"job {job.id} picked up", {"job_id": job.id, "job_name": job.name})
        case JobCompleted(job, value, duration_ms):
            fields = {"job_id": job.id, "duration_ms": duration_ms, "result_bytes": len(value.encode())}
            return LogLine(level, f"job {job.id} completed in {duration_ms} ms", fields)
        case JobFailed():
            return _failed(notice)
        case JobMoved(job, how):
            return LogLine(level, f"job {job.id} left the worker: {how}", {"job_id": job.id, "how": how})
        case JobStalled(job_id):
            return LogLine(level, f"job {job_id} had stalled: its lock had expired", {"job_id": job_id})
        case LockLost(job):
            return LogLine(level, f"job {job.id} lost its lock: its result will be refused", {"job_id": job.id})
        case ReportRefused(job, reason, uncertain):
            fields = {"job_id": job.id, "error": reason, "uncertain": uncertain}
            return LogLine(level, f"the outcome of job {job.id} was refused: {reason}", fields)
        case Drained():
            return LogLine(level, "no job is ready", {})
        case RenewalFailed(job_ids, message):
            return LogLine(level, f"heartbeat failed: {message}", {"job_ids": list(job_ids), "error": message})
        case Renewed(job_ids, duration_ms):
            return LogLine(level, "locks renewed", {"job_ids": list(job_ids), "duration_ms": duration_ms})
        case StalledCheckSkipped():
            return LogLine(level, "stalled check skipped: the previous one still runs", {})
        case Disconnected(message):
            return LogLine(level, f"disconnected: {message}", {"error": message})
        case ReconnectFailed(attempt, delay_ms, message):
            fields = {"attempt": attempt, "delay_ms": delay_ms, "error": message}
            return LogLine(level, f"attempt {attempt} to reconnect failed: {message}", fields)
        case Reconnected(attempts, duration_ms):
            fields = {"attempts": attempts, "duration_ms": duration_ms}
            return LogLine(level, f"reconnected after {duration_ms} ms", fields)
        case WorkerProblem(message, job_id):
            fields = {"error": message}
            return LogLine(level, message, fields if job_id is None else {**fields, "job_id": job_id})
        case Paused():
            return LogLine(level, "paused", {})
        case Resumed():
            return LogLine(level, "resumed", {})
        case Closing():
            return LogLine(level, "shutting down", {})
        case ClosedNotice():
            return LogLine(level, "closed", {})
        case HandlerAbandoned(job):
            message = f"the handler of job {job.id} still ran when the worker let go of it; its result is not stored"
            return LogLine(level, message, {"job_id": job.id})
        case _:
            assert_never(notice)


def _failed(notice: JobFailed) -> LogLine:
    job_id = notice.job.id
    fields: dict[str, Any] = {
        "job_id": job_id,
        "attempts_made": notice.attempts_made,
        "duration_ms": notice.duration_ms,
        "category": notice.category.value,
        "error": notice.reason,
    }
    if notice.retry_delay_ms is not None:
        fields["delay_ms"] = notice.retry_delay_ms
        message = f"job {job_id} failed (attempt {notice.attempts_made}), retried in {notice.retry_delay_ms} ms"
        return LogLine(WARNING, f"{message}: {notice.reason}", fields)
    message = f"job {job_id} failed" if notice.permanent else f"job {job_id} failed, its attempts are exhausted"
    return LogLine(ERROR, f"{message}: {notice.reason}", fields)
