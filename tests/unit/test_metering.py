"""What becomes of each notice as a metric; the default takes nothing."""

import inspect
import json
from typing import Any, get_args

import pytest

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import UnrecoverableError
from bullmq_protocol.model.categories import Category
from bullmq_protocol.model.failure import FailureKind, RetryPolicy, failure_of
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.observability.metrics import NO_METRICS, MetricsCollector, NoMetrics
from bullmq_protocol.operations.sample_lengths import QueueLengths
from bullmq_protocol.worker import notices
from bullmq_protocol.worker.metering import METERED, Meter, collect, lasted
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.outcome import failed_by, failure_report

JOB = JobRecord.from_fields("7", {"name": b"mail"})
METHODS = [name for name in vars(MetricsCollector) if not name.startswith("_")]


class Recorder:
    """Record the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        assert name in METHODS
        return lambda *args: self.calls.append((name, *args))


def failed(**changes: Any) -> notices.JobFailed:
    values: dict[str, Any] = {"retry_delay_ms": None, "exhausted": True, "permanent": False, "duration_ms": 1500}
    values["category"] = Category.TRANSIENT
    return notices.JobFailed(**{"job": JOB, "reason": "boom", "attempts_made": 2, **values, **changes})


CALLS: list[tuple[notices.Notice, list[tuple[Any, ...]]]] = [
    (notices.JobCompleted(JOB, "1", 250), [("job_processed", "q", "completed"), ("job_duration", "q", 0.25)]),
    (failed(retry_delay_ms=0.0, exhausted=False), [("job_processed", "q", "retried"), ("job_duration", "q", 1.5)]),
    (
        failed(),
        [("job_processed", "q", "failed"), ("job_failed", "q", "transient_exhausted"), ("job_duration", "q", 1.5)],
    ),
    (
        failed(category=Category.PERMANENT),
        [("job_processed", "q", "failed"), ("job_failed", "q", "permanent"), ("job_duration", "q", 1.5)],
    ),
    (notices.JobStalled("7"), [("job_stalled", "q")]),
    (notices.LockLost(JOB), [("heartbeat_failed", "q", 1)]),
    (notices.RenewalFailed(("7", "8"), "late"), [("heartbeat_failed", "q", 2)]),
    (notices.Renewed(("7", "8"), 3), [("heartbeat_succeeded", "q", 2), ("lock_extended", "q", 0.003)]),
    (notices.StalledCheckSkipped(), [("stalled_check_skipped", "q")]),
    (notices.Disconnected("gone"), [("connection_status", "q", "w", "disconnected")]),
    (notices.ReconnectFailed(1, 100, "refused"), [("reconnect_attempted",)]),
    (notices.Reconnected(2, 300), [("reconnect_attempted",), ("connection_status", "q", "w", "connected")]),
    (notices.JobActive(JOB), []),
    (notices.JobMoved(JOB, "delayed"), []),
    (notices.ReportRefused(JOB, "gone", False), []),
    (notices.Drained(), []),
    (notices.WorkerProblem("odd"), []),
    (notices.Paused(), []),
    (notices.Resumed(), []),
    (notices.Closing(), []),
    (notices.ClosedNotice(), []),
    (notices.HandlerAbandoned(JOB), []),
    (notices.HandlerBlocked(("7",), 9), []),
]


@pytest.mark.parametrize(("notice", "calls"), CALLS, ids=lambda value: type(value).__name__)
def test_what_a_notice_tells_the_collector(notice: notices.Notice, calls: list[tuple[Any, ...]]) -> None:
    recorder = Recorder()
    collect(notice, recorder, "q", "w")
    assert recorder.calls == calls
    assert (type(notice) in METERED) == bool(calls)


def test_every_notice_is_looked_at() -> None:
    assert {type(notice) for notice, _ in CALLS} == set(get_args(notices.Notice))


def test_a_worker_tells_beginning_and_end() -> None:
    recorder = Recorder()
    meter = Meter(recorder, "q", "w")
    meter.started()
    meter(notices.JobStalled("7"))
    meter.ended()
    assert recorder.calls == [
        ("worker_active", "q", "w", True),
        ("connection_status", "q", "w", "connected"),
        ("job_stalled", "q"),
        ("worker_active", "q", "w", False),
        ("connection_status", "q", "w", None),
    ]


def test_lengths_are_reported_by_state() -> None:
    recorder = Recorder()
    steps = QueueLengths(recorder, QueueKeys.of("q")).sample()
    command: Any = next(steps)
    with pytest.raises(StopIteration) as end:
        steps.send(list(range(len(command.args))))
    counts = end.value.value
    assert (command.name, {"active", "waiting"} <= set(counts)) == ("getCounts", True)
    assert recorder.calls == [("queue_length", "q", state, length) for state, length in counts.items()]


@pytest.mark.parametrize("name", METHODS)
def test_the_default_takes_everything_and_does_nothing(name: str) -> None:
    parameters = list(inspect.signature(getattr(MetricsCollector, name)).parameters.values())[1:]
    assert inspect.signature(getattr(NoMetrics, name)) == inspect.signature(getattr(MetricsCollector, name))
    assert getattr(NO_METRICS, name)(*range(len(parameters))) is None


def test_how_long_a_job_taken_manually_has_lasted() -> None:
    assert lasted(JobRecord("1", {"processedOn": b"100"}), 130) == 30
    assert lasted(JobRecord("1", {"processedOn": b"100"}), 90) == 0
    assert lasted(JobRecord("1", {}), 130) == 0


@pytest.mark.parametrize(
    ("error", "attempts", "policy", "strategy_delay", "category"),
    [
        (ValueError("x"), 1, RetryPolicy.BULLMQ, None, Category.PERMANENT),
        (ConnectionError("x"), 1, RetryPolicy.BULLMQ, None, Category.TRANSIENT),
        (ValueError("x"), 2, RetryPolicy.BULLMQ, None, Category.PERMANENT),
        (ConnectionError("x"), 2, RetryPolicy.BULLMQ, None, Category.TRANSIENT),
        (ValueError("x"), 2, RetryPolicy.CATEGORISING, None, Category.PERMANENT),
        (ConnectionError("x"), 2, RetryPolicy.BULLMQ, -1, Category.TRANSIENT),
        (UnrecoverableError("x"), 2, RetryPolicy.BULLMQ, None, Category.PERMANENT),
    ],
)
def test_the_category_is_that_of_the_error_whatever_becomes_of_the_job(
    error: Exception, attempts: int, policy: RetryPolicy, strategy_delay: float | None, category: Category
) -> None:
    backoff: dict[str, Any] = {} if strategy_delay is None else {"backoff": {"type": "own", "delay": 5}}
    job = JobRecord.from_fields("7", {"opts": json.dumps({"attempts": attempts, **backoff}).encode()})
    settings, _ = WorkerOptions(retry_policy=policy).checked()
    report = failure_report(job, failure_of(error), settings, roll=0.5, strategy_delay=strategy_delay)
    assert report.notice(job, 5).category is category


@pytest.mark.parametrize(
    ("kind", "category"),
    [(FailureKind.UNRECOVERABLE, Category.PERMANENT), (FailureKind.ERROR, Category.TRANSIENT)],
)
def test_the_category_of_a_failure_that_no_handler_raised(kind: FailureKind, category: Category) -> None:
    assert failed_by("the child failed", kind).category is category
