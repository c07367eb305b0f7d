"""What is reported of an attempt: the packed options, the fields of a failure, and the notice of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bullmq_protocol.commands._shared import Limiter
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import FLEET_SWITCHES
from bullmq_protocol.errors import LockMismatch
from bullmq_protocol.model.failure import Category, Failure, FailureKind
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import KeepJobs
from bullmq_protocol.worker.options import WorkerOptions, WorkerSettings
from bullmq_protocol.worker.outcome import (
    Finishing,
    Report,
    ReportKind,
    failed_by,
    failure_report,
    finish_options,
    keep_jobs,
    success_report,
)

K = QueueKeys.of("q")
BOOM = Failure(kind=FailureKind.ERROR, name="Error", message="boom", stack="at 1", category=Category.TRANSIENT)


def settings(**options: Any) -> WorkerSettings:
    return WorkerOptions(**options).checked(zones=lambda name: None)[0]


def job(opts: str, **fields: bytes) -> JobRecord:
    return JobRecord("7", {"opts": opts.encode(), **fields})


def packed(opts: str, given: WorkerSettings, *, completed: bool) -> dict[str, Any]:
    read: dict[str, Any] = msgspec.msgpack.decode(finish_options(job(opts), "t", given, completed=completed).packed())
    return read


def test_the_retention_of_a_worker_is_that_of_the_outcome() -> None:
    given = settings(remove_on_complete=KeepJobs(count=3), remove_on_fail=KeepJobs(count=5))
    assert packed("{}", given, completed=True)["keepJobs"] == {"count": 3}
    assert packed("{}", given, completed=False)["keepJobs"] == {"count": 5}
    own = '{"removeOnComplete":1,"removeOnFail":2}'
    assert packed(own, given, completed=True)["keepJobs"] == {"count": 1}
    assert packed(own, given, completed=False)["keepJobs"] == {"count": 2}


@pytest.mark.parametrize(
    ("own", "kept"),
    [(None, -1), (True, 0), (False, -1), (0, 0), (4, 4), (KeepJobs(count=6), 6)],
)
def test_the_retention_of_a_job(own: Any, kept: int) -> None:
    assert keep_jobs(own, None) == {"count": kept}
    assert keep_jobs(own, KeepJobs(count=9)) == {"count": 9 if own is None else kept}


def test_all_options_of_an_outcome() -> None:
    given = settings(lock_duration=10_000, limiter=Limiter(max=3, duration=400), name="me", metrics_max_data_points=60)
    found = packed('{"attempts":4}', given, completed=True)
    assert (found["token"], found["lockDuration"], found["attempts"]) == ("t", 10_000, 4)
    assert (found["limiter"], found["name"], found["maxMetricsSize"]) == ({"max": 3, "duration": 400}, "me", 60)


@pytest.mark.parametrize("short", ["fpof", "cpof", "idof", "rdof"])
def test_what_a_failure_does_to_the_parent(short: str) -> None:
    found = packed(f'{{"{short}":true}}', settings(), completed=False)
    assert {each: found[each] for each in ("fpof", "cpof", "idof", "rdof")} == {
        each: each == short for each in ("fpof", "cpof", "idof", "rdof")
    }


def test_the_fields_of_the_last_failure() -> None:
    report = failure_report(job("{}"), BOOM, settings(), roll=0.5, telemetry="C", exception=7)
    assert (report.kind, report.value, report.exception) == (ReportKind.FAILED, "boom", 7)
    assert report.fields == ("failedReason", "boom", "stacktrace", '["at 1"]', "tm", "C")
    assert report.exhausted and not report.permanent


def test_the_fields_of_a_failure_that_is_retried() -> None:
    report = failure_report(job('{"attempts":2}'), BOOM, settings(), roll=0.5, telemetry="C", exception=7)
    assert (report.kind, report.value, report.exception, report.delay) == (ReportKind.RETRY, "boom", 7, 0)
    assert report.fields == ("failedReason", "boom", "stacktrace", '["at 1"]', "tm", "C")
    delayed = failure_report(job('{"attempts":2,"backoff":{"type":"fixed","delay":30}}'), BOOM, settings(), roll=0.5)
    assert (delayed.kind, delayed.delay) == (ReportKind.DELAY, 30)
    assert delayed.fields == ("failedReason", "boom", "stacktrace", '["at 1"]')


def test_the_delay_of_a_retry_has_a_maximum() -> None:
    retried = job('{"attempts":2,"backoff":{"type":"fixed","delay":5000}}')
    assert failure_report(retried, BOOM, settings(max_backoff_delay=40), roll=0.5).delay == 40


def test_a_limit_of_stack_traces() -> None:
    long = job('{"stackTraceLimit":1}', stacktrace=b'["old"]')
    report = failure_report(long, BOOM, settings(), roll=0.5)
    assert report.fields[3] == '["at 1"]'
    report = failure_report(job("{}", stacktrace=b'["old"]'), BOOM, settings(), roll=0.5)
    assert report.fields[3] == '["old","at 1"]'


def test_a_strategy_that_fails_is_the_reason() -> None:
    retried = job('{"attempts":2,"backoff":{"type":"mine"}}')
    report = failure_report(retried, BOOM, settings(), roll=0.5, strategy_error="no strategy")
    assert (report.kind, report.value) == (ReportKind.FAILED, "no strategy")
    assert report.fields[1] == "no strategy"
    last = failure_report(job("{}"), BOOM, settings(), roll=0.5, strategy_error="no strategy")
    assert last.value == "boom"


@pytest.mark.parametrize(
    ("kind", "name", "category"),
    [
        (FailureKind.UNRECOVERABLE, "UnrecoverableError", Category.PERMANENT),
        (FailureKind.ERROR, "Error", Category.TRANSIENT),
    ],
)
def test_failures_that_no_handler_raised(kind: FailureKind, name: str, category: Category) -> None:
    found = failed_by("why", kind)
    assert (found.kind, found.name, found.message, found.stack) == (kind, name, "why", f"{name}: why")
    assert found.category is category


def test_the_command_of_each_outcome() -> None:
    finishing = Finishing(settings())

    def sent(report: Report, opts: str = "{}") -> Any:
        return report.command(K, job(opts), "t", finishing, now=9)

    done = sent(success_report('"x"'))
    assert done.name == "moveToFinished" and done.args[3] == '"x"' and "completed" in done.args
    failed = sent(Report(ReportKind.FAILED, "boom"))
    assert failed.name == "moveToFinished" and "failed" in failed.args
    assert sent(Report(ReportKind.RETRY)).args[2] == "LPUSH" and sent(Report(ReportKind.RETRY)).name == "retryJob"
    assert sent(Report(ReportKind.RETRY), '{"lifo":true}').args[2] == "RPUSH"
    assert sent(Report(ReportKind.DELAY, delay=30)).name == "moveToDelayed"
    assert sent(Report(ReportKind.RATE_LIMIT)).name == "moveJobFromActiveToWait"


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        ('{"removeOnComplete":{"age":5,"limit":7}}', {"age": 5, "limit": 7}),
        ('{"removeOnComplete":{"age":5,"limit":2.5}}', {"age": 5}),
        ('{"removeOnComplete":{"age":5,"limit":"x"}}', {"age": 5}),
        ('{"removeOnComplete":{"age":5,"limit":1e300}}', {"age": 5}),
    ],
)
def test_retention_by_age_has_a_limit_where_the_scripts_know_one(own: str, kept: dict[str, int]) -> None:
    for limited in (False, True):
        options = Finishing(settings(), limited=limited).options(job(own), "t", completed=True)
        found = msgspec.msgpack.decode(options.packed())["keepJobs"]
        assert found == (kept if limited else {"age": 5})


def test_a_delayed_retry_can_take_the_next_job() -> None:
    keys = QueueKeys.of("q", switches=FLEET_SWITCHES)
    report = Report(ReportKind.DELAY, delay=30)
    finishing = Finishing(settings(name="w", limiter=Limiter(max=1, duration=5)))
    command = report.command(keys, job("{}"), "t", finishing, now=1)
    assert command.keys[8:] == (keys.wait, keys.limiter, keys.paused, keys.pc)
    assert command.args[7:] == ("0", "")
    report.fetch_next = True
    flag, options = report.command(keys, job("{}"), "t", finishing, now=1).args[7:]
    assert (flag, msgspec.msgpack.decode(options)) == (
        "1",
        {"token": "t", "lockDuration": 30_000, "limiter": {"max": 1, "duration": 5}, "name": "w"},
    )
    assert command.decode(0).job is None
    assert command.decode([[b"name", b"n"], b"8", 0, 0]).job.id == "8"
    with pytest.raises(LockMismatch, match="moveToDelayed"):
        command.decode(-6)


def test_only_what_ends_a_job_brings_the_next() -> None:
    able = {kind for kind in ReportKind if Report(kind).may_fetch_next(K)}
    assert able == {ReportKind.COMPLETED, ReportKind.FAILED}
    able = {kind for kind in ReportKind if Report(kind).may_fetch_next(QueueKeys.of("q", switches=FLEET_SWITCHES))}
    assert able == {ReportKind.COMPLETED, ReportKind.FAILED, ReportKind.DELAY}


@pytest.mark.parametrize("kind", [ReportKind.RETRY, ReportKind.DELAY, ReportKind.FAILED])
def test_the_notice_of_a_failure(kind: ReportKind) -> None:
    of = job("{}", atm=b"2")
    report = Report(kind, "boom", delay=30, exhausted=True, permanent=True, exception=7)
    notice = report.notice(of, 11)
    assert (notice.job, notice.attempts_made, notice.duration_ms, notice.exception) == (of, 3, 11, 7)
    assert (notice.exhausted, notice.permanent) == (True, True)
    assert notice.retry_delay_ms == (None if kind is ReportKind.FAILED else 30)
