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

JOB = JobRecord.from_fields("7", {"name": b"mail", "atm": b"1"})
OF_IT = {"job_id": "7", "job_name": "mail", "attempt": 2}


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
    (notices.JobActive(JOB), DEBUG, "picked up", OF_IT),
    (
        notices.JobCompleted(JOB, '"é"', 12),
        INFO,
        "completed",
        {**OF_IT, "duration_ms": 12, "result_bytes": 4},
    ),
    (
        failed(retry_delay_ms=500.0, exhausted=False),
        WARNING,
        "retried in 500",
        {
            **OF_IT,
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
        {**OF_IT, "attempts_made": 2, "duration_ms": 12, "error": "boom", "category": "transient"},
    ),
    (
        failed(category=Category.PERMANENT),
        ERROR,
        "attempts are exhausted",
        {**OF_IT, "attempts_made": 2, "duration_ms": 12, "error": "boom", "category": "permanent"},
    ),
    (
        failed(permanent=True, exhausted=False, category=Category.PERMANENT),
        ERROR,
        "job 7 of q failed: boom",
        {**OF_IT, "attempts_made": 2, "duration_ms": 12, "error": "boom", "category": "permanent"},
    ),
    (notices.JobMoved(JOB, "delayed"), INFO, "delayed", {**OF_IT, "how": "delayed"}),
    (notices.JobStalled("7"), WARNING, "stalled", {"job_id": "7"}),
    (notices.LockLost(JOB), WARNING, "lost its lock", OF_IT),
    (notices.LockLost(JOB, 40), WARNING, "renewed it for 40 ms", {**OF_IT, "blocked_ms": 40}),
    (
        notices.ReportRefused(JOB, "gone", True),
        WARNING,
        "refused",
        {**OF_IT, "error": "gone", "uncertain": True},
    ),
    (
        notices.ReportRefused(JOB, "gone", False, 40),
        WARNING,
        "40 ms: gone",
        {**OF_IT, "error": "gone", "uncertain": False, "blocked_ms": 40},
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
    (notices.HandlerAbandoned(JOB), WARNING, "still ran", OF_IT),
    (notices.HandlerBlocked(("7",), 9), WARNING, ": job 7", {"job_ids": ["7"], "blocked_ms": 9}),
    (notices.HandlerBlocked(("7", "8"), 9), WARNING, "for 9 ms", {"job_ids": ["7", "8"], "blocked_ms": 9}),
]


@pytest.mark.parametrize(("notice", "level", "words", "fields"), LINES, ids=lambda value: type(value).__name__)
def test_line(notice: notices.Notice, level: int, words: str, fields: dict[str, Any]) -> None:
    line = logline(notice, "q")
    assert line.level == level
    assert words in line.message
    assert line.fields == fields
    assert LOWEST_LEVEL[type(notice)] <= level


def test_the_words_of_each_line() -> None:
    assert [logline(notice, "q").message for notice, *_ in LINES] == [
        "job 7 of q picked up",
        "job 7 of q completed in 12 ms",
        "job 7 of q failed (attempt 2), retried in 500.0 ms: boom",
        "job 7 of q failed, its attempts are exhausted: boom",
        "job 7 of q failed, its attempts are exhausted: boom",
        "job 7 of q failed: boom",
        "job 7 of q left the worker: delayed",
        "job 7 of q had stalled: its lock had expired",
        "job 7 of q lost its lock: its result will be refused",
        "job 7 of q lost its lock, as a handler had blocked the worker, and nothing had renewed it for 40 ms",
        "the outcome of job 7 of q was refused: gone",
        (
            "the outcome of job 7 of q was refused, as a handler had blocked the worker, and nothing had renewed its "
            "lock for 40 ms: gone"
        ),
        "no job of q is ready",
        "heartbeat failed for jobs of q: late",
        "locks of q renewed",
        "stalled check of q skipped: the previous one still runs",
        "worker of q disconnected: gone",
        "worker of q: attempt 2 to reconnect failed: refused",
        "worker of q reconnected after 900 ms",
        "worker of q: odd",
        "worker of q: odd",
        "worker of q paused",
        "worker of q resumed",
        "worker of q shutting down",
        "worker of q closed",
        "the handler of job 7 of q still ran when the worker let go of it; its result is not stored",
        "a handler blocked the worker of q for 9 ms, so that locks were renewed late: job 7",
        "a handler blocked the worker of q for 9 ms, so that locks were renewed late: one of the jobs 7, 8",
    ]


def test_templates_are_constant() -> None:
    """Collectors group lines by them: nothing of a job or a queue stands in them."""
    for notice, *_ in LINES:
        template = logline(notice, "the queue").template
        assert not any(word in template for word in ("7", "mail", "boom", "gone", "odd", "queue"))


def test_the_exception_goes_with_the_line_of_the_last_failure() -> None:
    error = ValueError("no such address")
    last = logline(failed(exception=error, reason="no such address"), "q")
    assert last.exception is error
    assert last.message == "job 7 of q failed, its attempts are exhausted: ValueError: no such address"
    assert last.fields["error_type"] == "ValueError"
    retried = failed(exception=KeyError(3), reason="KeyError: 3", retry_delay_ms=5.0)
    assert logline(retried, "q").exception is None
    assert logline(retried, "q").message.endswith("retried in 5.0 ms: KeyError: 3")
    assert logline(retried, "q", trace_retries=True).exception is retried.exception
    assert logline(failed(exception=None), "q", trace_retries=True).exception is None


def test_texts_that_no_log_can_hold_are_shown_by_a_stand_in() -> None:
    for text in ("x" * 3_000_000, "lone \ud800", "at redis://:hunter2@host"):
        shown = logline(failed(exception=ValueError(text)), "q").exception
        assert type(shown).__name__ == "ValueError"
        assert len(str(shown).encode()) < LONGEST_TEXT + 100
        assert "hunter2" not in str(shown)


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
    line = logline(notice, "q")
    assert len(line.message) < LONGEST_TEXT + 100
    assert line.message.endswith(f"x... ({len(reason)} characters)")
    assert line.fields["error"] == f"{reason[:LONGEST_TEXT]}... (3000000 characters)"
    assert (line.fields["job_id"], line.fields["attempts_made"]) == ("7", 2)
    assert notice.reason == reason
    at_most = "x" * LONGEST_TEXT
    assert logline(notices.WorkerProblem(at_most), "q").message == f"worker of q: {at_most}"
    assert logline(notices.WorkerProblem("m", "y" * 5000), "q").fields["job_id"].endswith("(5000 characters)")


def test_what_cannot_be_called_is_no_callback() -> None:
    notices.check_callback(notices.JobCompleted, print)
    with pytest.raises(UsageError, match="callback: must be a function of the notice"):
        notices.check_callback(notices.JobCompleted, None)
    with pytest.raises(UsageError, match="kind: must be a class"):
        notices.check_callback(None, print)
