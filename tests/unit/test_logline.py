"""What is logged about each notice: level, message, fields for structured logs."""

from __future__ import annotations

from typing import Any, get_args

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.categories import Category
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker import notices
from bullmq_protocol.worker.logline import DEBUG, ERROR, INFO, LONGEST_TEXT, LOWEST_LEVEL, WARNING, logline

JOB = JobRecord.from_fields("7", {"name": b"mail"})


def failed(**changes: Any) -> notices.JobFailed:
    values: dict[str, Any] = {
        "job": JOB,
        "reason": "boom",
        "attempts_made": 2,
        "retry_delay_ms": None,
        "exhausted": True,
        "permanent": False,
        "duration_ms": 12,
        "category": Category.TRANSIENT,
    }
    return notices.JobFailed(**{**values, **changes})


LINES: list[tuple[notices.Notice, int, str, dict[str, Any]]] = [
    (notices.JobActive(JOB), DEBUG, "picked up", {"job_id": "7", "job_name": "mail"}),
    (
        notices.JobCompleted(JOB, '"é"', 12),
        INFO,
        "completed",
        {"job_id": "7", "duration_ms": 12, "result_bytes": 4},
    ),
    (
        failed(retry_delay_ms=500.0, exhausted=False),
        WARNING,
        "retried in 500",
        {
            "job_id": "7",
            "attempts_made": 2,
            "duration_ms": 12,
            "error": "boom",
            "category": "transient",
            "delay_ms": 500.0,
        },
    ),
    (
        failed(),
        ERROR,
        "attempts are exhausted",
        {"job_id": "7", "attempts_made": 2, "duration_ms": 12, "error": "boom", "category": "transient"},
    ),
    (
        failed(category=Category.PERMANENT),
        ERROR,
        "attempts are exhausted",
        {"job_id": "7", "attempts_made": 2, "duration_ms": 12, "error": "boom", "category": "permanent"},
    ),
    (
        failed(permanent=True, exhausted=False, category=Category.PERMANENT),
        ERROR,
        "job 7 failed: boom",
        {"job_id": "7", "attempts_made": 2, "duration_ms": 12, "error": "boom", "category": "permanent"},
    ),
    (notices.JobMoved(JOB, "delayed"), INFO, "delayed", {"job_id": "7", "how": "delayed"}),
    (notices.JobStalled("7"), WARNING, "stalled", {"job_id": "7"}),
    (notices.LockLost(JOB), WARNING, "lost its lock", {"job_id": "7"}),
    (
        notices.ReportRefused(JOB, "gone", True),
        WARNING,
        "refused",
        {"job_id": "7", "error": "gone", "uncertain": True},
    ),
    (notices.Drained(), DEBUG, "no job", {}),
    (notices.RenewalFailed(("7",), "late"), WARNING, "heartbeat failed", {"job_ids": ["7"], "error": "late"}),
    (notices.Renewed(("7",), 3), DEBUG, "renewed", {"job_ids": ["7"], "duration_ms": 3}),
    (notices.StalledCheckSkipped(), WARNING, "skipped", {}),
    (notices.Disconnected("gone"), ERROR, "disconnected", {"error": "gone"}),
    (
        notices.ReconnectFailed(2, 200, "refused"),
        WARNING,
        "attempt 2",
        {"attempt": 2, "delay_ms": 200, "error": "refused"},
    ),
    (notices.Reconnected(3, 900), INFO, "reconnected", {"attempts": 3, "duration_ms": 900}),
    (notices.WorkerProblem("odd"), ERROR, "odd", {"error": "odd"}),
    (notices.WorkerProblem("odd", "7"), ERROR, "odd", {"error": "odd", "job_id": "7"}),
    (notices.Paused(), INFO, "paused", {}),
    (notices.Resumed(), INFO, "resumed", {}),
    (notices.Closing(), INFO, "shutting down", {}),
    (notices.ClosedNotice(), INFO, "closed", {}),
    (notices.HandlerAbandoned(JOB), WARNING, "still ran", {"job_id": "7"}),
]


@pytest.mark.parametrize(("notice", "level", "words", "fields"), LINES, ids=lambda value: type(value).__name__)
def test_line(notice: notices.Notice, level: int, words: str, fields: dict[str, Any]) -> None:
    line = logline(notice)
    assert line.level == level
    assert words in line.message
    assert line.fields == fields
    assert LOWEST_LEVEL[type(notice)] <= level


def test_the_words_of_each_line() -> None:
    assert [logline(notice).message for notice, *_ in LINES] == [
        "job 7 picked up",
        "job 7 completed in 12 ms",
        "job 7 failed (attempt 2), retried in 500.0 ms: boom",
        "job 7 failed, its attempts are exhausted: boom",
        "job 7 failed, its attempts are exhausted: boom",
        "job 7 failed: boom",
        "job 7 left the worker: delayed",
        "job 7 had stalled: its lock had expired",
        "job 7 lost its lock: its result will be refused",
        "the outcome of job 7 was refused: gone",
        "no job is ready",
        "heartbeat failed: late",
        "locks renewed",
        "stalled check skipped: the previous one still runs",
        "disconnected: gone",
        "attempt 2 to reconnect failed: refused",
        "reconnected after 900 ms",
        "odd",
        "odd",
        "paused",
        "resumed",
        "shutting down",
        "closed",
        "the handler of job 7 still ran when the worker let go of it; its result is not stored",
    ]


def test_every_notice_has_a_line() -> None:
    assert {type(notice) for notice, *_ in LINES} == set(get_args(notices.Notice)) == set(LOWEST_LEVEL)


@pytest.mark.parametrize("kind", ["completed", 5, Exception, None])
def test_what_is_no_kind_of_notice(kind: Any) -> None:
    with pytest.raises(UsageError, match="JobCompleted"):
        notices.check_notice(kind)
    notices.check_notice(notices.JobCompleted)


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
@pytest.mark.parametrize(("notice", "level", "part", "fields"), LINES)
def test_workers_of_every_adapter_write_it(
    package: Any,
    notice: notices.Notice,
    level: int,
    part: str,
    fields: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def tell() -> None:
        worker = package.Worker("q", None, worker_id="me")
        worker._driver.notifier.tell(notice)
        # The task in which the log was called ends with it.
        if package is bullmq_anyio:
            await worker.aclose()

    with caplog.at_level(DEBUG, package.__name__):
        anyio.run(tell)
    # asyncio says which selector it uses.
    caplog.records[:] = [record for record in caplog.records if record.name == package.__name__]
    [line] = caplog.records
    assert (line.levelno, line.name) == (level, package.__name__)
    assert part in line.getMessage()
    assert {name: vars(line).get(name) for name in ("worker_id", "queue", *fields)} == {
        "worker_id": "me",
        "queue": "q",
        **fields,
    }


def test_long_texts_are_cut_in_the_log_and_nowhere_else() -> None:
    reason = "x" * 3_000_000
    notice = failed(reason=reason)
    line = logline(notice)
    assert len(line.message) < LONGEST_TEXT + 100
    assert line.message.endswith(f"x... ({len(reason) + len('job 7 failed, its attempts are exhausted: ')} characters)")
    assert line.fields["error"] == f"{reason[:LONGEST_TEXT]}... (3000000 characters)"
    assert (line.fields["job_id"], line.fields["attempts_made"]) == ("7", 2)
    assert notice.reason == reason
    at_most = "x" * LONGEST_TEXT
    assert logline(notices.WorkerProblem(at_most)).message == at_most
    assert logline(notices.WorkerProblem("m", "y" * 5000)).fields["job_id"].endswith("(5000 characters)")


def test_what_cannot_be_called_is_no_callback() -> None:
    notices.check_callback(notices.JobCompleted, print)
    with pytest.raises(UsageError, match="callback: must be a function of the notice"):
        notices.check_callback(notices.JobCompleted, None)
    with pytest.raises(UsageError, match="kind: must be a class"):
        notices.check_callback(None, print)
