"""The worker machine: every rule at the top of machine.py, and every branch."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from bullmq_protocol.commands import schedulers
from bullmq_protocol.commands.batches import MOST_JOBS
from bullmq_protocol.commands.fetching import Limiter
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import Switches
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    ConnectionLost,
    DelayedError,
    RateLimitError,
    ServerError,
    ServerTooOld,
    TransportTimeout,
    UnexpectedReply,
    UnrecoverableError,
    UsageError,
    WaitingChildrenError,
    WaitingError,
)
from bullmq_protocol.model.failure import RetryPolicy, failure_of
from bullmq_protocol.model.options import KeepJobs
from bullmq_protocol.worker.actions import Call, Notify
from bullmq_protocol.worker.events import (
    CallFailed,
    CloseRequested,
    ConnectionEnded,
    JobRaised,
    JobReturned,
    PauseRequested,
    Replied,
    ResumeRequested,
    Tick,
    WaitCancelled,
)
from bullmq_protocol.worker.logline import logline
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    Disconnected,
    Drained,
    HandlerAbandoned,
    HandlerBlocked,
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
    JobStalled,
    LockLost,
    Paused,
    Reconnected,
    ReconnectFailed,
    RenewalFailed,
    Renewed,
    ReportRefused,
    StalledCheckSkipped,
    WorkerProblem,
)
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.snapshot import HeldJob, WorkerState
from tests.support.machine_bench import KEYS, NO_JOB, START, Bench, job_reply


def packed(call: Any, at: int) -> Any:
    return msgspec.msgpack.decode(call.command.args[at])


def idle(**options: Any) -> Bench:
    """A worker that has looked for work, found none, and listens."""
    bench = Bench(**options)
    if not bench.settings.skip_stalled_check:
        bench.settle_stalled()
    bench.reply("moveToActive", NO_JOB)
    assert bench.wait is not None
    return bench


def busy(job_id: str = "1", fields: dict[str, str] | None = None, **options: Any) -> Bench:
    """A worker of concurrency 1 (unless said) that runs one job."""
    bench = Bench(**options)
    if not bench.settings.skip_stalled_check:
        bench.settle_stalled()
    bench.reply("moveToActive", job_reply(job_id, **(fields or {})))
    return bench


# --- fetching


def test_start_checks_for_stalled_jobs_and_fetches() -> None:
    bench = Bench()
    assert bench.sent == ["moveStalledJobsToWait", "moveToActive"]
    assert bench.machine.start(bench.at()) == []


def test_fetch_carries_the_options() -> None:
    bench = Bench(name="w1", limiter=Limiter(max=3, duration=1000), lock_duration=20_000)
    assert packed(bench.call("moveToActive"), 2) == {
        "token": "w:0",
        "lockDuration": 20_000,
        "limiter": {"max": 3, "duration": 1000},
        "name": "w1",
    }


def test_a_machine_that_is_renamed_takes_jobs_under_tokens_of_its_own() -> None:
    settings, _ = WorkerOptions().checked()
    machine = WorkerMachine(KEYS, settings, "w")
    machine.rename("another")
    _, fetch = machine.start(Instant(START, 0))
    assert packed(fetch, 2)["token"] == "another:0"


def test_slots_are_filled_one_fetch_after_the_other() -> None:
    bench = Bench(concurrency=3)
    for number in range(3):
        assert packed(bench.call("moveToActive"), 2)["token"] == f"w:{number}"
        bench.reply("moveToActive", job_reply(str(number)))
    assert not bench.has("moveToActive")
    assert [run.job.id for run in bench.handlers.values()] == ["0", "1", "2"]


def test_several_jobs_are_fetched_in_one_call() -> None:
    bench = Bench(concurrency=4, batches=True, name="w1", limiter=Limiter(max=3, duration=1000))
    fetch = bench.call("fetchMany").command
    assert msgspec.msgpack.decode(fetch.args[3]) == ["w:0", "w:1", "w:2", "w:3"]  # type: ignore[arg-type]
    assert packed(bench.call("fetchMany"), 2) == {
        "lockDuration": 30_000,
        "limiter": {"max": 3, "duration": 1000},
        "name": "w1",
    }
    bench.reply("fetchMany", [job_reply("1"), job_reply("2"), NO_JOB])
    assert [(run.job.id, run.token) for run in bench.handlers.values()] == [("1", "w:0"), ("2", "w:1")]
    assert not bench.has("fetchMany")
    assert bench.wait is not None
    bench.marker([b"q:marker", b"0", b"0"])
    fetch = bench.call("fetchMany").command
    assert msgspec.msgpack.decode(fetch.args[3]) == ["w:4", "w:5"]  # type: ignore[arg-type]


def test_an_answer_that_ended_early_is_followed_by_another_fetch() -> None:
    bench = Bench(concurrency=3, batches=True)
    bench.reply("fetchMany", [job_reply("1"), job_reply("2")])
    # a single place is left
    assert packed(bench.call("moveToActive"), 2)["token"] == "w:3"
    bench.reply("moveToActive", job_reply("3"))
    assert [run.job.id for run in bench.handlers.values()] == ["1", "2", "3"]
    assert not bench.has("fetchMany")


def test_a_rate_limit_in_an_answer_of_several_suspends_fetching() -> None:
    bench = Bench(concurrency=3, batches=True)
    bench.reply("fetchMany", [job_reply("1"), [0, 0, 400, 0]])
    assert not bench.has("fetchMany")
    assert bench.machine.snapshot().limited_for_ms == 400
    bench.advance(400)
    bench.tell(Tick())
    assert bench.has("fetchMany")


def test_a_lost_or_undecodable_answer_of_several_is_as_one_of_a_single_fetch() -> None:
    bench = Bench(concurrency=3, batches=True)
    bench.reply("fetchMany", [])
    assert bench.said(WorkerProblem)
    bench.tick()
    bench.lose("fetchMany")
    assert "stalled check returns it" in bench.said(WorkerProblem)[-1].message
    assert bench.machine.word == "disconnected"


def test_no_more_jobs_are_asked_for_than_go_into_one_call() -> None:
    bench = Bench(concurrency=MOST_JOBS + 7, batches=True)
    assert len(msgspec.msgpack.decode(bench.call("fetchMany").command.args[3])) == MOST_JOBS  # type: ignore[arg-type]
    bench.reply("fetchMany", [job_reply(str(number)) for number in range(MOST_JOBS)])
    assert len(msgspec.msgpack.decode(bench.call("fetchMany").command.args[3])) == 7  # type: ignore[arg-type]


def test_events_that_happened_together_are_taken_in_their_order() -> None:
    bench = Bench(concurrency=2, batches=True)
    bench.reply("fetchMany", [job_reply("1"), job_reply("2")])
    runs = [bench.run_of("1"), bench.run_of("2")]
    bench.handlers.clear()
    bench.sent.clear()
    bench.tell(JobReturned(runs[1], "2"), JobReturned(runs[0], "1"), PauseRequested())
    assert bench.sent == ["moveToFinished", "moveToFinished"]
    reports = [call.command.args for call in bench.calls.values() if call.command.name == "moveToFinished"]
    assert [(args[0], args[3], args[5]) for args in reports] == [("2", "2", "0"), ("1", "1", "0")]
    assert bench.machine.state is WorkerState.PAUSED


def test_a_close_among_other_events_gives_back_what_still_runs() -> None:
    bench = Bench(concurrency=2, batches=True)
    bench.reply("fetchMany", [job_reply("1"), job_reply("2")])
    run = bench.run_of("1")
    del bench.handlers[run]
    bench.sent.clear()
    bench.tell(JobReturned(run, "1"), CloseRequested(force=True))
    assert bench.sent == ["moveToFinished", "moveJobFromActiveToWait"]


def test_an_empty_answer_leads_to_a_wait() -> None:
    bench = idle()
    assert bench.wait is not None
    assert bench.wait.command.block_ms == 5000
    assert bench.wait.command.wire() == ("BZPOPMIN", "bull:q:marker", "5")
    assert bench.said(Drained)


@pytest.mark.parametrize("marker", [None, [b"bull:q:marker", b"0", b"0"]])
def test_a_marker_or_its_absence_leads_to_a_fetch(marker: Any) -> None:
    bench = idle()
    bench.marker(marker)
    assert bench.has("moveToActive")


def test_a_delay_marker_sets_a_timer_and_listens_again() -> None:
    bench = idle()
    bench.marker([b"bull:q:marker", b"1", f"{START + 700}.5".encode()])
    assert not bench.has("moveToActive")
    assert bench.wait is not None
    assert bench.machine.deadline() == bench.mono + 700
    bench.tick()
    assert bench.has("moveToActive")


def test_the_next_due_time_of_an_answer_sets_a_timer() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", [0, 0, 0, START + 300])
    assert bench.machine.snapshot().next_due_at == START + 300
    bench.tick()
    assert bench.wall == START + 300
    assert bench.has("moveToActive")


def test_the_earlier_of_two_due_times_counts() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", [0, 0, 0, START + 300])
    bench.marker([b"k", b"1", str(START + 100).encode()])
    assert bench.machine.snapshot().next_due_at == START + 100
    bench.marker([b"k", b"1", str(START + 200).encode()])
    assert bench.machine.snapshot().next_due_at == START + 100


def test_a_rate_limit_suspends_fetching() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", [0, 0, 250, 0])
    assert bench.wait is None
    assert bench.machine.snapshot().limited_for_ms == 250
    bench.tell(Tick())
    assert not bench.has("moveToActive")
    bench.tick()
    assert bench.has("moveToActive")


def test_a_job_that_ends_brings_the_next_with_the_same_token() -> None:
    bench = busy()
    bench.returned("1", '"value"')
    call = bench.call("moveToFinished")
    assert call.shielded
    assert call.command.args[:6] == ("1", bench.wall, "returnvalue", '"value"', "completed", "1")
    assert packed(call, 7)["token"] == "w:0"
    bench.reply("moveToFinished", job_reply("2"))
    assert bench.said(JobCompleted)[0].value == '"value"'
    assert bench.handlers[bench.run_of("2")].token == "w:0"
    bench.returned("2")
    bench.reply("moveToFinished", 0)
    assert bench.wait is not None


def test_drained_is_said_once_per_change() -> None:
    bench = idle()
    bench.marker(None)
    bench.reply("moveToActive", NO_JOB)
    assert len(bench.said(Drained)) == 1


def test_a_lowered_concurrency_asks_for_no_next_job() -> None:
    bench = Bench(concurrency=2, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.reply("moveToActive", job_reply("2"))
    bench.machine.concurrency = 1
    bench.returned("1")
    assert bench.call("moveToFinished").command.args[5] == "0"
    bench.reply("moveToFinished", 0)
    assert not bench.has("moveToActive")
    assert bench.machine.concurrency == 1
    with pytest.raises(UsageError, match="concurrency"):
        bench.machine.concurrency = 0


def test_a_refused_fetch_backs_off_and_tells() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.refuse("moveToActive", "WRONGTYPE nope")
    assert not bench.has("moveToActive")
    assert bench.said(WorkerProblem)[0].message == "WRONGTYPE nope"
    assert bench.machine.deadline() == bench.mono + 100
    bench.tell(Tick())
    assert not bench.has("moveToActive")
    bench.tick()
    bench.refuse("moveToActive", "WRONGTYPE nope")
    assert bench.machine.deadline() == bench.mono + 200
    bench.tick()
    bench.reply("moveToActive", NO_JOB)
    assert bench.wait is not None


def test_an_undecodable_answer_backs_off() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", [1, 2])
    assert "expected" in bench.said(WorkerProblem)[0].message
    bench.tick()
    assert bench.has("moveToActive")


def test_a_refused_listen_backs_off() -> None:
    bench = idle(skip_stalled_check=True)
    wait = bench.wait
    assert wait is not None
    bench.wait = None
    bench.tell(CallFailed(wait.ticket, "WRONGTYPE x", lost=False, code="WRONGTYPE"))
    assert bench.wait is None
    bench.tick()
    assert bench.has("moveToActive")


# --- outcomes


def test_a_failure_with_attempts_left_is_retried_at_once() -> None:
    bench = busy(fields={"opts": '{"attempts":3,"lifo":true}', "stacktrace": '["old"]'})
    bench.raised("1", RuntimeError("boom"))
    call = bench.call("retryJob")
    assert call.command.args[2:5] == ("RPUSH", "1", "w:0")
    assert packed(call, 5) == ["failedReason", "boom", "stacktrace", '["old","stack"]']
    bench.reply("retryJob", 0)
    (failed,) = bench.said(JobFailed)
    assert (failed.reason, failed.attempts_made, failed.retry_delay_ms) == ("boom", 1, 0)
    assert bench.has("moveToActive")


def test_a_failure_with_backoff_is_delayed() -> None:
    bench = busy(fields={"opts": '{"attempts":3,"backoff":{"type":"exponential","delay":1000}}', "atm": "1"})
    bench.raised("1", RuntimeError("boom"))
    call = bench.call("moveToDelayed")
    assert call.command.args[1:6] == (bench.wall, "1", "w:0", "2000", "0")
    bench.reply("moveToDelayed", 0)
    assert bench.said(JobFailed)[0].retry_delay_ms == 2000


def test_the_last_attempt_fails_for_good() -> None:
    bench = busy(fields={"opts": '{"attempts":2,"removeOnFail":5}', "atm": "1"})
    bench.raised("1", RuntimeError("boom"))
    call = bench.call("moveToFinished")
    assert call.command.args[2:6] == ("failedReason", "boom", "failed", "1")
    options = packed(call, 7)
    assert (options["attempts"], options["keepJobs"], options["maxMetricsSize"]) == (2, {"count": 5}, "")
    bench.reply("moveToFinished", job_reply("2"))
    (failed,) = bench.said(JobFailed)
    assert failed.retry_delay_ms is None and failed.exhausted and not failed.permanent
    assert bench.run_of("2") is not None


def test_an_unrecoverable_error_fails_at_once() -> None:
    bench = busy(fields={"opts": '{"attempts":5}'})
    bench.raised("1", UnrecoverableError("no"))
    assert bench.call("moveToFinished").command.args[3] == "no"
    bench.reply("moveToFinished", 0)
    assert bench.said(JobFailed)[0].permanent


def test_the_categorising_policy_fails_a_permanent_error() -> None:
    bench = busy(fields={"opts": '{"attempts":5}'}, retry_policy=RetryPolicy.CATEGORISING)
    bench.raised("1", ValueError("bad"))
    assert bench.has("moveToFinished")


def test_a_custom_backoff_takes_the_strategys_delay() -> None:
    bench = busy(fields={"opts": '{"attempts":5,"backoff":{"type":"mine","delay":1}}'})
    bench.raised("1", RuntimeError("x"), strategy_delay_ms=123.0)
    assert bench.call("moveToDelayed").command.args[4] == "123"


def test_an_unknown_backoff_fails_with_a_clear_reason() -> None:
    bench = busy(fields={"opts": '{"attempts":5,"backoff":{"type":"mine","delay":1}}'})
    bench.raised("1", RuntimeError("x"))
    assert "mine" in bench.call("moveToFinished").command.args[3]


def test_a_broken_strategy_fails_with_its_error() -> None:
    bench = busy(fields={"opts": '{"attempts":5,"backoff":{"type":"mine","delay":1}}'})
    bench.raised("1", RuntimeError("x"), strategy_error="strategy broke")
    assert bench.call("moveToFinished").command.args[3] == "strategy broke"


@pytest.mark.parametrize(("error", "how"), [(DelayedError(), "delayed"), (WaitingChildrenError(), "waiting-children")])
def test_a_moved_job_sends_nothing(error: Exception, how: str) -> None:
    bench = busy()
    sent = len(bench.sent)
    bench.raised("1", error)
    assert bench.said(JobMoved)[0].how == how
    assert bench.sent[sent:] == ["moveToActive"]


def test_a_rate_limit_error_gives_the_job_back_and_waits() -> None:
    bench = busy()
    bench.raised("1", RateLimitError())
    assert bench.call("moveJobFromActiveToWait").command.args == ("1", "w:0", "bull:q:1")
    bench.reply("moveJobFromActiveToWait", 400)
    assert bench.machine.snapshot().limited_for_ms == 400
    bench.tick()
    assert bench.has("moveToActive")


def test_a_rate_limit_error_without_a_limit_fetches_at_once() -> None:
    bench = busy()
    bench.raised("1", RateLimitError())
    bench.reply("moveJobFromActiveToWait", 0)
    assert bench.has("moveToActive")


def test_a_deferred_failure_is_reported_without_running() -> None:
    bench = busy(fields={"defa": "child x failed", "opts": '{"attempts":3}'})
    assert not bench.handlers
    assert bench.said(JobActive)
    assert bench.call("moveToFinished").command.args[3] == "child x failed"


@pytest.mark.parametrize(("starts", "runs"), [("1", True), ("2", True), ("3", False)])
def test_a_job_may_be_started_as_often_as_is_said(starts: str, runs: bool) -> None:
    bench = busy(fields={"ats": starts}, max_started_attempts=2)
    assert bool(bench.handlers) is runs
    assert bench.has("moveToFinished") is not runs


def test_a_job_started_too_often_fails() -> None:
    bench = busy(fields={"ats": "3", "opts": '{"attempts":9}'}, max_started_attempts=2)
    assert bench.call("moveToFinished").command.args[3] == "job started more than allowable limit"


def test_flags_retention_and_metrics_go_along() -> None:
    bench = busy(
        fields={"opts": '{"fpof":true}'},
        remove_on_complete=KeepJobs(count=7, age=60),
        metrics_max_data_points=15,
    )
    bench.returned("1")
    options = packed(bench.call("moveToFinished"), 7)
    assert options["fpof"] is True and options["cpof"] is False
    assert options["keepJobs"] == {"count": 7, "age": 60}
    assert options["maxMetricsSize"] == 15


@pytest.mark.parametrize(
    ("option", "sent"),
    [
        ("true", {"count": 0}),
        ("false", {"count": -1}),
        ("3", {"count": 3}),
        ('{"age":5}', {"age": 5}),
        ("null", {"count": -1}),
    ],
)
def test_the_jobs_retention_wins(option: str, sent: dict[str, int]) -> None:
    bench = busy(fields={"opts": f'{{"removeOnComplete":{option}}}'})
    bench.returned("1")
    assert packed(bench.call("moveToFinished"), 7)["keepJobs"] == sent


# --- refused reports


@pytest.mark.parametrize("code", [-1, -2, -3, -6])
def test_a_refused_report_is_dropped(code: int) -> None:
    bench = busy()
    bench.returned("1")
    bench.reply("moveToFinished", code)
    (refused,) = bench.said(ReportRefused)
    assert not refused.uncertain
    assert bench.has("moveToActive")


def test_pending_children_make_the_job_fail_and_retry() -> None:
    bench = busy(fields={"opts": '{"attempts":2}'})
    bench.returned("1")
    bench.reply("moveToFinished", -4)
    assert packed(bench.call("retryJob"), 5)[1] == "Job 1 has pending dependencies. moveToFinished"


def test_a_failed_child_makes_the_job_fail_for_good() -> None:
    bench = busy(fields={"opts": '{"attempts":2}'})
    bench.returned("1")
    bench.reply("moveToFinished", -9)
    call = bench.call("moveToFinished")
    assert call.command.args[4] == "failed"
    assert "at least one failed child" in call.command.args[3]


def test_a_script_failure_of_the_report_fails_the_job_once() -> None:
    bench = busy()
    bench.returned("1")
    bench.refuse("moveToFinished", "ERR user_script broke")
    assert bench.call("moveToFinished").command.args[4] == "failed"
    bench.refuse("moveToFinished", "ERR user_script broke")
    assert not bench.has("moveToFinished")
    assert "found stalled" in bench.said(WorkerProblem)[-1].message
    assert bench.has("moveToActive")


def test_a_transient_refusal_of_the_report_is_repeated() -> None:
    bench = busy()
    bench.returned("1", "5")
    bench.refuse("moveToFinished", "OOM command not allowed")
    bench.tell(Tick(0.5))
    assert not bench.has("moveToFinished"), "not at once"
    bench.tick()
    assert bench.call("moveToFinished").command.args[3] == "5"
    bench.reply("moveToFinished", 0)
    assert bench.said(JobCompleted)


@pytest.mark.parametrize("code", ["READONLY", "MISCONF", "NOREPLICAS", "NOPERM"])
def test_what_the_operator_can_mend_keeps_the_outcome(code: str) -> None:
    bench = busy(max_reconnect_delay=300)
    bench.returned("1", "5")
    for _ in range(6):
        bench.refuse("moveToFinished", f"{code} no")
        refused = bench.mono
        while not bench.has("moveToFinished"):
            bench.tick()
        assert bench.mono - refused <= 300
    bench.reply("moveToFinished", 0)
    assert bench.said(JobCompleted)


@pytest.mark.parametrize("name", ["updateJobScheduler", "moveToDelayed"])
def test_a_transient_refusal_while_scheduling_is_repeated(name: str) -> None:
    bench = busy("repeat:s:5", {"rjk": "s", "opts": '{"repeat":{"every":1000}}'}, skip_lock_renewal=True)
    if name == "moveToDelayed":
        bench.refuse("updateJobScheduler", "ERR broken")
    for _ in range(2):
        bench.refuse(name, "READONLY no")
        assert not bench.has(name), "not at once"
        bench.tick()
    bench.reply(name, None if name == "updateJobScheduler" else 0)
    assert bool(bench.handlers) is (name == "updateJobScheduler")


def test_a_job_that_waits_for_its_schedule_is_given_back() -> None:
    bench = busy("repeat:s:5", {"rjk": "s", "opts": '{"repeat":{"every":1000}}'}, skip_stalled_check=True)
    bench.refuse("updateJobScheduler", "READONLY no")
    bench.close(force=True)
    bench.advance(1000)
    bench.tell(Tick(0.5))
    assert not bench.has("updateJobScheduler")
    bench.reply("moveJobFromActiveToWait", 0)
    assert bench.stopped is not None


# --- switches


def test_the_stalled_check_is_made_by_the_switch() -> None:
    settings = WorkerOptions().checked()[0]
    for value, keys in (("opts-repeat", 8), ("live-scheduler", 9)):
        own = QueueKeys.of("q", switches=Switches(stalled_exemption=cast("Any", value)))
        actions = WorkerMachine(own, settings, "w").start(Instant(0, 0))
        check = next(each.command for each in actions if isinstance(each, Call))
        assert (check.name, len(check.keys)) == ("moveStalledJobsToWait", keys)


# --- locks


def test_locks_are_renewed_before_half_their_time() -> None:
    bench = busy(lock_duration=1000)
    started = bench.mono
    bench.tick()
    call = bench.call("extendLocks")
    assert bench.mono - started <= 500
    assert packed(call, 1) == ["w:0"] and packed(call, 2) == ["1"]
    assert call.command.args[3] == 1000
    bench.reply("extendLocks", [])
    assert bench.said(Renewed)[0].job_ids == ("1",)
    bench.tick()
    assert bench.has("extendLocks")


def test_a_young_lock_waits_for_the_next_round() -> None:
    bench = Bench(concurrency=2, lock_duration=1000, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.advance(200)
    bench.reply("moveToActive", job_reply("2"))
    bench.tick()
    assert packed(bench.call("extendLocks"), 2) == ["1"]
    bench.reply("extendLocks", [])
    bench.tick()
    assert packed(bench.call("extendLocks"), 2) == ["1", "2"]


def test_a_lost_lock_lets_the_handler_run_and_drops_the_report() -> None:
    bench = busy(lock_duration=1000)
    bench.tick()
    bench.reply("extendLocks", [b"1"])
    assert bench.said(LockLost)[0].job.id == "1"
    assert not bench.cancelled
    bench.returned("1")
    assert not bench.has("moveToFinished")
    (refused,) = bench.said(ReportRefused)
    assert (refused.reason, refused.uncertain) == ("the lock was lost", False)
    assert bench.has("moveToActive")


def test_a_lost_lock_cancels_when_asked_to() -> None:
    bench = busy(lock_duration=1000, cancel_on_lost_lock=True)
    bench.tick()
    bench.reply("extendLocks", [b"1"])
    assert list(bench.cancelled.values()) == ["lock lost"]


def test_a_stopped_machine_wants_no_tick_though_its_last_call_was_a_renewal_that_failed() -> None:
    bench = Bench(lock_duration=1000, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.tick()
    bench.returned("1")
    bench.close()
    bench.reply("moveToFinished", 0)
    bench.refuse("extendLocks", "OOM command not allowed")
    assert bench.stopped is not None
    assert bench.machine.deadline() is None


def test_no_renewal_once_the_report_is_under_way() -> None:
    bench = busy(lock_duration=1000)
    bench.returned("1")
    bench.advance(600)
    bench.tell(Tick())
    assert not bench.has("extendLocks")


def test_a_handler_that_blocked_is_named_with_the_time_it_took() -> None:
    bench = busy(lock_duration=1000)
    bench.advance(1500)
    bench.returned("1")
    assert bench.said(HandlerBlocked) == [HandlerBlocked(("1",), 1500)]
    bench.refuse("moveToFinished", "Missing lock for job 1. moveToFinished")
    bench.advance(600)
    bench.tell(Tick())
    assert len(bench.said(HandlerBlocked)) == 1


def test_a_report_refused_after_a_blocked_time_says_so() -> None:
    bench = busy(lock_duration=1000)
    bench.advance(1500)
    bench.returned("1")
    bench.reply("moveToFinished", -2)
    assert bench.said(ReportRefused) == [
        ReportRefused(bench.said(ReportRefused)[0].job, "Missing lock for job 1. moveToFinished", False, 1500)
    ]


def test_a_late_renewal_names_the_handlers_that_ran() -> None:
    bench = busy(lock_duration=1000, concurrency=2)
    bench.reply("moveToActive", job_reply("2"))
    bench.advance(249)
    bench.tell(Tick())
    bench.advance(300)
    bench.tell(Tick())
    # Late by 299 ms, of which nothing is known but that the worker was called 300 ms ago.
    assert bench.said(HandlerBlocked) == [HandlerBlocked(("1", "2"), 300)]
    bench.reply("extendLocks", [b"1"])
    assert [(lost.job.id, lost.blocked_ms) for lost in bench.said(LockLost)] == [("1", 549)]
    bench.advance(600)
    bench.tell(Tick())
    assert packed(bench.call("extendLocks"), 2) == ["2"]
    bench.reply("extendLocks", [])
    bench.returned("2")
    bench.reply("moveToFinished", -2)
    assert bench.said(ReportRefused)[0].blocked_ms == 0
    assert len(bench.said(HandlerBlocked)) == 2


def test_a_renewal_that_is_a_little_late_is_not_told() -> None:
    bench = busy(lock_duration=1000)
    bench.advance(500)
    bench.tell(Tick())
    assert bench.has("extendLocks")
    bench.advance(2000)
    # It is under way: the server is slow, not the handler.
    bench.tell(Tick())
    bench.returned("1")
    assert not bench.said(HandlerBlocked)


def test_a_time_without_a_connection_is_not_told_as_blocked() -> None:
    bench = busy(lock_duration=1000, concurrency=2)
    bench.lose("moveToActive")
    bench.advance(2000)
    bench.tell(Tick(0.5))
    bench.returned("1")
    assert not bench.said(HandlerBlocked)


def test_a_renewal_answered_after_the_report_changes_nothing() -> None:
    bench = busy(lock_duration=1000)
    bench.tick()
    bench.returned("1")
    bench.reply("extendLocks", [b"1"])
    assert not bench.said(LockLost)
    bench.reply("moveToFinished", 0)
    assert bench.said(JobCompleted)


def test_a_renewal_answered_after_the_end_changes_nothing() -> None:
    bench = busy(lock_duration=1000)
    bench.tick()
    bench.returned("1")
    bench.reply("moveToFinished", 0)
    bench.reply("extendLocks", [])
    assert not bench.said(Renewed)


def test_heartbeat_failure_and_the_job_completes() -> None:
    bench = busy(lock_duration=1000)
    bench.tick()
    bench.refuse("extendLocks", "ERR broken")
    assert bench.said(RenewalFailed)[0].job_ids == ("1",)
    bench.tick()
    bench.reply("extendLocks", [])
    bench.returned("1")
    bench.reply("moveToFinished", 0)
    assert bench.said(JobCompleted)


def test_renewal_can_be_switched_off() -> None:
    bench = busy(skip_lock_renewal=True, skip_stalled_check=True)
    assert bench.machine.deadline() is None


# --- stalled check


def test_the_stalled_check_is_aimed_at_the_end_of_the_throttle() -> None:
    bench = Bench()
    bench.reply("moveStalledJobsToWait", [b"7"])
    assert bench.said(JobStalled)[0].job_id == "7"
    bench.reply("PTTL", 1234)
    assert bench.machine.deadline() == bench.mono + 1235


@pytest.mark.parametrize(("ttl", "wait"), [(-2, 1), (-1, 30_000)])
def test_a_throttle_without_a_ttl_or_without_a_key(ttl: int, wait: int) -> None:
    bench = Bench()
    bench.reply("moveStalledJobsToWait", [])
    bench.reply("PTTL", ttl)
    assert bench.machine.deadline() == bench.mono + wait


def test_a_check_is_skipped_while_the_previous_one_runs() -> None:
    bench = Bench(stalled_interval=2000)
    bench.reply("moveToActive", NO_JOB)
    bench.tick()
    assert bench.said(StalledCheckSkipped)
    assert bench.sent.count("moveStalledJobsToWait") == 1


def test_a_refused_check_is_repeated_later() -> None:
    bench = Bench()
    bench.refuse("moveStalledJobsToWait", "ERR x")
    assert bench.said(WorkerProblem)[-1].message == "stalled check: ERR x"
    assert bench.machine.deadline() == bench.mono + 5000
    bench.tick()
    assert bench.has("moveStalledJobsToWait")


def test_completion_races_the_stalled_check_and_one_wins() -> None:
    bench = busy(lock_duration=1000)
    bench.returned("1")
    bench.reply("moveToFinished", -2)
    assert bench.said(ReportRefused) and not bench.said(JobCompleted)
    bench.reply("moveToActive", job_reply("1", stc="1"))
    bench.returned("1")
    bench.reply("moveToFinished", 0)
    assert len(bench.said(JobCompleted)) == 1


# --- schedulers


def scheduled(repeat: dict[str, Any], **fields: str) -> Bench:
    options = {"attempts": 2, "repeat": repeat, "jobId": "repeat:s:5", "backoff": 7, "prevMillis": 1, "kl": 3}
    return busy("repeat:s:5", {"rjk": "s", "opts": json.dumps(options), **fields})


def test_an_interval_scheduler_is_advanced_before_its_job_runs() -> None:
    bench = scheduled({"every": 1000, "count": 4, "limit": 9})
    assert not bench.handlers
    call = bench.call("updateJobScheduler")
    assert call.command.args[:3] == ("", "s", "{}")
    assert call.command.args[4:] == (bench.wall, "bull:q:", "repeat:s:5")
    options = packed(call, 3)
    assert list(options) == ["attempts", "repeat", "jobId", "backoff", "kl", "delay", "timestamp", "repeatJobKey"]
    assert list(options["repeat"].items()) == [
        ("every", 1000),
        ("count", 5),
        ("limit", 9),
        ("offset", None),
        ("startDate", None),
        ("endDate", None),
    ]
    assert options["backoff"] == {"type": "fixed", "delay": 7}
    bench.reply("updateJobScheduler", b"repeat:s:6")
    assert bench.run_of("repeat:s:5") is not None


@pytest.mark.parametrize(
    "repeat", [{"every": 1000, "count": 4, "limit": 4}, {"every": 1000, "count": 1, "endDate": START - 1}]
)
def test_an_ended_schedule_runs_its_last_job(repeat: dict[str, Any]) -> None:
    bench = scheduled(repeat)
    assert not bench.has("updateJobScheduler")
    assert bench.run_of("repeat:s:5") is not None


@pytest.mark.parametrize(
    ("repeat", "word"),
    [
        ({"pattern": "60 * * * *", "tz": "UTC"}, "expected range 0-59"),
        ({"pattern": "* * * * *", "tz": "Europe/Nowhere"}, "no known time zone"),
        ({}, "no repeat options"),
        ({"limit": 3}, "must be given, or every"),
    ],
)
def test_what_cannot_be_scheduled_is_put_back(repeat: dict[str, Any], word: str) -> None:
    options = {"repeat": repeat} if repeat else {}
    bench = busy("repeat:s:5", {"rjk": "s", "opts": json.dumps(options), "ats": "3"})
    assert word in bench.said(WorkerProblem)[0].message
    assert bench.call("moveToDelayed").command.args[4:6] == ("8000", "1")
    bench.reply("moveToDelayed", 0)
    assert bench.said(JobMoved)[0].how == "delayed"
    assert not bench.handlers


def test_a_pattern_is_searched_from_the_slot_before() -> None:
    bench = scheduled({"pattern": "*/5 * * * * *", "tz": "utc", "count": 1}, ats="20")
    assert bench.call("updateJobScheduler").command.args[0] == START + 5_000 - START % 5_000
    later = {"repeat": {"pattern": "*/5 * * * * *", "tz": "utc"}, "prevMillis": START + 60_000}
    bench = busy("repeat:s:5", {"rjk": "s", "opts": json.dumps(later)})
    assert bench.call("updateJobScheduler").command.args[0] == START + 65_000 - START % 5_000


def oldest(repeat: dict[str, Any], **fields: str) -> Bench:
    """Take a job of the oldest generation of repeatable jobs; its member holds four colons."""
    options = {"repeat": {"count": 1, **repeat}, "jobId": "repeat:x:5", "prevMillis": START + 100}
    return busy("repeat:x:5", {"name": "jn", "opts": json.dumps(options), "ats": "20", **fields})


def test_an_old_repeatable_job_is_moved_on_and_added_again() -> None:
    bench = oldest({"every": 1000}, data='{"id":7}', rjk="jn::::1000")
    slot = (START + 100) // 1000 * 1000 + 1000
    assert bench.call("updateRepeatableJobMillis").command.args == (
        slot,
        schedulers.RepeatableKey(name="jn", rule="1000").hashed,
        "jn::::1000",
    )
    bench.reply("updateRepeatableJobMillis", "jn::::1000")
    added = bench.call("addDelayedJob")
    assert packed(added, 0)[1] == f"{schedulers.oldest_stem('jn', '7', 'jn::::1000')}{slot}"
    assert packed(added, 0)[7] == "jn::::1000"
    assert packed(added, 2) == {
        "attempts": 0,
        "repeat": {"offset": None, "count": 2, "every": 1000, "pattern": None},
        "jobId": f"{schedulers.oldest_stem('jn', '7', 'jn::::1000')}{slot}",
        "prevMillis": slot,
        "delay": slot - bench.wall,
        "timestamp": bench.wall,
    }
    bench.reply("addDelayedJob", "x")
    assert bench.run_of("repeat:x:5") is not None


@pytest.mark.parametrize(
    ("offset", "priority", "command", "delay"),
    [(40, 0, "addDelayedJob", 1040), (-1000, 0, "addStandardJob", 0), (-2000, 3, "addPrioritizedJob", 0)],
)
def test_the_offset_of_an_old_repeatable_job(offset: int, priority: int, command: str, delay: int) -> None:
    options = {"repeat": {"every": 1000, "offset": offset}, "priority": priority}
    bench = oldest({}, opts=json.dumps(options))
    bench.reply("updateRepeatableJobMillis", b"jn::::1000")
    added = packed(bench.call(command), 2)
    assert (added["delay"], added["prevMillis"]) == (delay, START + 1000)
    assert list(added["repeat"].items()) == [("offset", offset), ("every", 1000), ("pattern", None), ("count", 1)]


def test_an_old_repeatable_job_goes_on_from_a_slot_yet_to_come() -> None:
    bench = oldest({}, opts=json.dumps({"repeat": {"every": 1000}, "prevMillis": START + 7_100}))
    assert bench.call("updateRepeatableJobMillis").command.args[0] == (START + 7_100) // 1000 * 1000 + 1000


def test_an_old_repeatable_job_may_hold_what_utf8_cannot() -> None:
    """JavaScript has U+FFFD for it, also where a text is hashed."""
    bench = oldest({"every": 1000, "tz": "\ud800"})
    key = schedulers.RepeatableKey(name="jn", tz="\ufffd", rule="1000")
    assert bench.call("updateRepeatableJobMillis").command.args[1:] == (key.hashed, "jn:::\ufffd:1000")
    assert schedulers.oldest_stem("jn", "", "\udcff:::") == schedulers.oldest_stem("jn", "", "\ufffd:::")


def test_an_old_repeatable_job_may_hold_its_key() -> None:
    bench = oldest({"every": 1000, "key": "abc"})
    assert bench.call("updateRepeatableJobMillis").command.args[1] == "abc"


def test_an_old_repeatable_job_that_was_removed_is_not_added_again() -> None:
    bench = oldest({"pattern": "* * * * *", "tz": "UTC"})
    bench.reply("updateRepeatableJobMillis", b"")
    assert bench.run_of("repeat:x:5") is not None


@pytest.mark.parametrize(
    "repeat",
    [{"every": 1000, "limit": 1}, {"pattern": "0 0 * * *", "tz": "UTC", "endDate": START + 1}],
)
def test_an_old_repeatable_job_comes_to_its_end(repeat: dict[str, Any]) -> None:
    assert oldest(repeat).run_of("repeat:x:5") is not None


@pytest.mark.parametrize(
    ("repeat", "word"),
    [({"every": 5, "cron": "* * * * *"}, "together with pattern"), ({}, "must be given"), ({"cron": "x"}, "x")],
)
def test_an_old_repeatable_job_that_cannot_go_on_is_put_back(repeat: dict[str, Any], word: str) -> None:
    bench = oldest(repeat)
    assert "repeatable job" in bench.said(WorkerProblem)[0].message and word in bench.said(WorkerProblem)[0].message
    assert bench.call("moveToDelayed").command.args[4] == "300000"


@pytest.mark.parametrize(
    ("member", "data", "stem"),
    [
        ("abc", '{"id":1}', "repeat:abc:"),
        ("jn::::1000", "[]", schedulers.oldest_stem("jn", "", "jn::::1000")),
        ("jn::::1000", "no JSON", schedulers.oldest_stem("jn", "", "jn::::1000")),
        ("jn::::1000", '{"id":"b"}', schedulers.oldest_stem("jn", "b", "jn::::1000")),
        ("jn::::1000", '{"id":true}', schedulers.oldest_stem("jn", "", "jn::::1000")),
    ],
)
def test_the_next_id_of_an_old_repeatable_job(member: str, data: str, stem: str) -> None:
    bench = oldest({"pattern": "@yearly", "utc": True, "immediately": True}, data=data)
    bench.reply("updateRepeatableJobMillis", member)
    assert packed(bench.call("addDelayedJob"), 0)[1].startswith(stem)


def test_a_word_repeat_in_the_options_is_no_schedule() -> None:
    bench = busy("x", {"opts": '{"repeat":false,"repeatJobKeyish":1}'})
    assert bench.run_of("x") is not None


def test_a_refused_schedule_puts_the_job_back() -> None:
    bench = scheduled({"every": 1000})
    bench.refuse("updateJobScheduler", "ERR broken")
    assert bench.has("moveToDelayed")
    problem = bench.said(WorkerProblem)[-1]
    assert problem.message.endswith(": ERR broken") and problem.job_id == "repeat:s:5"
    bench.refuse("moveToDelayed", "ERR broken too")
    problem = bench.said(WorkerProblem)[-1]
    assert "Job will become stalled" in problem.message and problem.job_id == "repeat:s:5"
    assert bench.machine.running_jobs == 0


# --- loss of connection


def test_a_connection_that_ended_while_nobody_asked_is_lost_at_once() -> None:
    bench = Bench(concurrency=1)
    bench.reply("moveToActive", job_reply("1"))
    assert bench.machine.unattended
    bench.tell(ConnectionEnded("gone"))
    assert [notice.message for notice in bench.said(Disconnected)] == ["gone"]
    assert bench.machine.word == "disconnected" and not bench.machine.unattended
    bench.tell(ConnectionEnded("gone"))
    assert len(bench.said(Disconnected)) == 1
    waiting = idle()
    assert not waiting.machine.unattended


def test_a_lost_fetch_stops_fetching_and_probes_with_doubling_delays() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.lose("moveToActive")
    assert bench.said(Disconnected)
    assert "may" not in bench.said(Disconnected)[0].message
    assert "took a job" in bench.said(WorkerProblem)[0].message
    assert bench.machine.snapshot().state == "disconnected"
    delays = []
    for _ in range(4):
        before = bench.mono
        bench.tick()
        delays.append(bench.mono - before)
        bench.lose("PING", maybe_applied=False)
    assert delays == [100, 200, 400, 800]
    assert [notice.attempt for notice in bench.said(ReconnectFailed)] == [1, 2, 3, 4]
    bench.tick()
    bench.reply("PING", b"PONG")
    assert bench.said(Reconnected)[0].attempts == 5
    assert bench.has("moveToActive")


def test_the_jitter_of_the_reconnect_delay() -> None:
    for roll, delay in ((0.0, 80), (0.999999, 120)):
        bench = Bench(skip_stalled_check=True)
        bench.lose("moveToActive", maybe_applied=False, roll=roll)
        assert bench.machine.deadline() == bench.mono + delay
        assert not bench.said(WorkerProblem)


def test_the_reconnect_delay_has_a_maximum() -> None:
    bench = Bench(skip_stalled_check=True, max_reconnect_delay=300)
    bench.lose("moveToActive")
    for _ in range(5):
        bench.tick()
        bench.lose("PING")
    assert bench.machine.deadline() == bench.mono + 300


def test_running_jobs_go_on_and_finish_after_the_reconnect() -> None:
    bench = busy(lock_duration=30_000)
    bench.returned("1", "9")
    bench.lose("moveToFinished")
    bench.advance(20_000)
    bench.tick()
    bench.reply("PING", b"PONG")
    call = bench.call("moveToFinished")
    assert call.command.args[1] == bench.wall
    bench.reply("moveToFinished", 0)
    assert bench.said(JobCompleted)[0].value == "9"


def test_a_job_that_ends_while_disconnected_waits_for_the_connection() -> None:
    bench = Bench(concurrency=2, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.lose("moveToActive")
    bench.returned("1")
    assert not bench.has("moveToFinished")
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.reply("moveToFinished", 0)
    assert bench.said(JobCompleted)


@pytest.mark.parametrize("code", [-1, -2, -6])
def test_a_report_refused_after_a_lost_reply_is_uncertain(code: int) -> None:
    bench = busy()
    bench.returned("1")
    bench.lose("moveToFinished", maybe_applied=True)
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.reply("moveToFinished", code)
    assert bench.said(ReportRefused)[0].uncertain
    assert not bench.said(JobFailed)


def test_everything_under_way_survives_a_loss() -> None:
    bench = scheduled({"every": 1000})
    bench.lose("updateJobScheduler")
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.lose("updateJobScheduler")
    bench.tick()
    bench.refuse("PING", "LOADING still")
    bench.reply("updateJobScheduler", None)
    assert bench.run_of("repeat:s:5") is not None


def test_a_lost_renewal_is_repeated_after_the_reconnect() -> None:
    bench = busy(lock_duration=1000)
    bench.tick()
    bench.lose("extendLocks")
    assert bench.said(RenewalFailed)
    bench.tick()
    bench.reply("PING", b"PONG")
    assert bench.has("extendLocks")


def test_a_lost_check_and_a_lost_wait() -> None:
    bench = Bench()
    bench.lose("moveStalledJobsToWait")
    bench.reply("moveToActive", NO_JOB)
    assert bench.wait is None
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.tell(Tick())
    assert bench.has("moveStalledJobsToWait")
    bench.reply("moveToActive", NO_JOB)
    bench.lose_wait()
    assert len(bench.said(Disconnected)) == 2
    bench.lose("moveStalledJobsToWait")
    assert len(bench.said(Disconnected)) == 2


def given_up(**options: Any) -> Bench:
    """A worker that runs a job, and has made all its attempts to reconnect."""
    bench = busy(max_reconnect_attempts=2, **options)
    bench.tick()
    bench.lose("extendLocks")
    for _ in range(2):
        bench.tick()
        bench.lose("PING", maybe_applied=False)
    return bench


def test_giving_up_ends_as_close_does() -> None:
    bench = given_up(shutdown_timeout=10_000)
    assert bench.machine.snapshot().state == "shutting down"
    assert not bench.cancelled and bench.stopped is None
    gave_up = [notice for notice in bench.said(WorkerProblem) if "gave up after 2 attempts" in notice.message]
    begun = bench.mono
    while bench.stopped is None:
        bench.tick()
        if bench.has("PING"):
            bench.lose("PING", maybe_applied=False)
    assert bench.mono - begun <= 10_000
    assert "gave up after 2 attempts" in (bench.stopped.error or "")
    assert list(bench.cancelled.values()) == ["worker closed"]
    assert bench.said(HandlerAbandoned)
    # It tells once that it gave up, and claims of no job that it was given back.
    assert len(gave_up) == 1
    assert len([notice for notice in bench.said(WorkerProblem) if "gave up" in notice.message]) == 1
    assert "it will be found stalled" in bench.said(WorkerProblem)[-1].message
    assert not any("given back" in logline(notice, "q").message for notice in bench.notices)


def test_giving_up_with_no_time_to_shut_down_ends_at_once() -> None:
    bench = given_up(shutdown_timeout=0)
    assert bench.stopped is not None and "gave up" in (bench.stopped.error or "")
    assert list(bench.cancelled.values()) == ["worker closed"]


def test_what_ends_after_giving_up_is_stored_if_the_server_is_back_in_time() -> None:
    bench = given_up(shutdown_timeout=10_000)
    bench.returned("1")
    assert bench.stopped is None
    bench.tick()
    bench.reply("PING", b"PONG")
    assert bench.call("moveToFinished").command.args[5] == "0"
    bench.reply("moveToFinished", 0)
    assert bench.said(JobCompleted)
    assert bench.stopped is not None and "gave up" in (bench.stopped.error or "")


def test_a_second_loss_keeps_the_doubt_of_the_first() -> None:
    bench = busy()
    bench.returned("1")
    for maybe_applied in (True, False):
        bench.lose("moveToFinished", maybe_applied=maybe_applied)
        bench.tick()
        bench.reply("PING", b"PONG")
    bench.reply("moveToFinished", -2)
    assert bench.said(ReportRefused)[0].uncertain


def test_a_report_that_was_never_sent_is_refused_without_doubt() -> None:
    bench = busy()
    bench.returned("1")
    bench.lose("moveToFinished", maybe_applied=False)
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.reply("moveToFinished", -2)
    assert not bench.said(ReportRefused)[0].uncertain


def test_a_lock_is_as_old_as_the_call_that_renewed_it() -> None:
    bench = busy(lock_duration=4_000)
    bench.tick()
    sent = bench.mono
    bench.mono += 900
    bench.reply("extendLocks", [])
    held = bench.machine.snapshot(bench.at()).held[0]
    assert held.renewed_ms_ago == bench.mono - sent == 900
    assert bench.said(Renewed)[0].duration_ms == 900


# --- pause, resume, close


def test_pause_and_resume() -> None:
    bench = idle()
    bench.pause()
    assert bench.wait_cancelled
    bench.pause()
    bench.end_wait()
    assert bench.machine.snapshot().state == "paused"
    bench.resume()
    bench.resume()
    assert bench.has("moveToActive")


def test_a_start_in_pause_fetches_nothing() -> None:
    bench = Bench()
    machine = WorkerMachine(KEYS, bench.settings, "w")
    actions = machine.start(bench.at(), paused=True)
    assert Notify(Paused()) in actions
    assert [action.command.name for action in actions if isinstance(action, Call)] == ["moveStalledJobsToWait"]
    assert machine.snapshot().state == "paused"
    actions = machine.handle(ResumeRequested(), bench.at())
    assert [action.command.name for action in actions if isinstance(action, Call)] == ["moveToActive"]


def test_a_job_that_ends_while_paused_asks_for_no_next() -> None:
    bench = busy()
    bench.pause()
    bench.returned("1")
    assert bench.call("moveToFinished").command.args[5] == "0"
    bench.reply("moveToFinished", 0)
    assert not bench.has("moveToActive") and bench.wait is None
    bench.resume()
    assert bench.has("moveToActive")


def test_a_marker_taken_while_an_own_fetch_fills_the_worker_is_put_back() -> None:
    # found by the simulation (seed 2177): the other workers slept on until their drain delay
    bench = idle()
    bench.marker([b"k", b"1", str(START + 400).encode()])
    bench.tick()
    assert bench.has("moveToActive")
    bench.marker([b"k", b"0", b"0"])
    assert not bench.has("ZADD")
    bench.reply("moveToActive", job_reply("1"))
    assert bench.call("ZADD").command.args == (0, "0")
    bench.reply("ZADD", 1)
    assert bench.wait is None
    assert bench.sent.count("ZADD") == 1


def test_a_marker_taken_before_a_fetch_needs_no_putting_back() -> None:
    bench = idle()
    bench.marker([b"k", b"0", b"0"])
    bench.reply("moveToActive", job_reply("1"))
    assert not bench.has("ZADD")


def test_a_marker_taken_while_pausing_is_put_back() -> None:
    bench = idle()
    bench.pause()
    bench.marker([b"k", b"0", b"0"])
    assert bench.call("ZADD").command.wire() == ("ZADD", "bull:q:marker", 0, "0")
    bench.refuse("ZADD", "ERR no")
    assert "marker" in bench.said(WorkerProblem)[0].message


def test_close_while_idle_stops_at_once() -> None:
    bench = idle()
    bench.close()
    assert bench.wait_cancelled and bench.stopped is None
    bench.end_wait()
    assert bench.stopped is not None and bench.stopped.error is None
    assert bench.said(ClosedNotice)
    bench.tell(Tick())
    bench.tell(Replied(999, None))
    assert bench.machine.snapshot().state == "stopped"


def test_a_late_reply_to_an_ended_listen_is_taken() -> None:
    bench = idle()
    bench.close()
    bench.marker(None)
    assert bench.stopped is not None


def test_a_lost_connection_while_closing_idle_stops() -> None:
    bench = idle()
    bench.close()
    bench.lose_wait()
    assert bench.stopped is not None


def test_close_waits_for_running_jobs() -> None:
    bench = busy()
    bench.close()
    assert bench.machine.snapshot().state == "shutting down"
    bench.returned("1")
    assert bench.call("moveToFinished").command.args[5] == "0"
    bench.reply("moveToFinished", 0)
    assert bench.stopped is not None


def test_a_fetch_under_way_is_still_run_while_draining() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.close()
    bench.reply("moveToActive", job_reply("1"))
    assert bench.stopped is None
    bench.returned("1")
    bench.reply("moveToFinished", 0)
    assert bench.stopped is not None


def test_a_close_that_ends_its_own_calls_tells_of_no_loss() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.close()
    bench.lose("moveToActive", maybe_applied=False)
    assert bench.stopped is not None and not bench.said(Disconnected)
    bench = Bench(skip_stalled_check=True)
    bench.lose("moveToActive")
    bench.tick()
    bench.close()
    bench.lose("PING", maybe_applied=False)
    assert bench.stopped is not None and not bench.said(ReconnectFailed)


def test_a_loss_while_closing_is_told_where_it_may_have_cost_something() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.close()
    bench.lose("moveToActive")
    assert bench.stopped is not None and bench.said(Disconnected)
    bench = busy()
    bench.close()
    bench.returned("1")
    bench.lose("moveToFinished", maybe_applied=False)
    assert bench.stopped is None and bench.said(Disconnected)
    bench.tick()
    bench.lose("PING", maybe_applied=False)
    assert bench.said(ReconnectFailed)


def test_jobs_are_given_back_after_the_shutdown_timeout() -> None:
    bench = busy(shutdown_timeout=2000, lock_duration=60_000)
    bench.close()
    before = bench.mono
    bench.tick()
    assert bench.mono == before + 2000
    assert list(bench.cancelled.values()) == ["worker closed"]
    assert bench.call("moveJobFromActiveToWait").command.args[1] == "w:0"
    bench.reply("moveJobFromActiveToWait", 0)
    assert bench.said(JobMoved)[0].how == "given-back"
    assert bench.stopped is not None


def test_a_forced_close_gives_back_at_once_and_announces_priorities() -> None:
    bench = busy(fields={"priority": "3"})
    bench.close(force=True)
    bench.reply("moveJobFromActiveToWait", 0)
    assert bench.stopped is None
    bench.reply("ZADD", 0)
    assert bench.stopped is not None


def test_a_second_forced_close_overrides_a_graceful_one() -> None:
    bench = busy()
    bench.close()
    bench.close(force=True)
    bench.close(force=True)
    bench.reply("moveJobFromActiveToWait", 0)
    assert len(bench.said(HandlerAbandoned)) == 1
    assert bench.stopped is not None


def test_a_marker_that_comes_beside_an_older_fetch_is_not_forgotten() -> None:
    bench = busy(fields={"opts": '{"attempts":2,"backoff":100}'}, concurrency=2)
    bench.reply("moveToActive", NO_JOB)
    bench.raised("1", RuntimeError("again"))
    bench.reply("moveToDelayed", 0)
    due = bench.wall + 100
    # The fetch was answered before the job was delayed, and its answer comes after the marker.
    bench.marker([b"bull:q:marker", b"1", str(due).encode()])
    bench.reply("moveToActive", NO_JOB)
    assert bench.machine.snapshot(bench.at()).next_due_at == due
    bench.tick()
    assert bench.wall == due
    assert bench.has("moveToActive")


def test_a_handler_that_ends_when_it_is_cancelled_is_not_abandoned() -> None:
    bench = busy()
    bench.close(force=True)
    (number,) = bench.cancelled
    bench.tell(JobRaised(number, failure_of(RuntimeError("cancelled")), 0.5))
    bench.reply("moveJobFromActiveToWait", 0)
    assert bench.said(HandlerAbandoned) == []
    assert bench.stopped is not None


def test_no_shutdown_time_gives_back_at_once() -> None:
    bench = busy(shutdown_timeout=0)
    bench.close()
    assert bench.has("moveJobFromActiveToWait")


def test_a_result_after_giving_back_is_ignored() -> None:
    bench = busy()
    run = bench.run_of("1")
    bench.close(force=True)
    bench.tell(JobReturned(run, "1"))
    assert not bench.has("moveToFinished")
    bench.reply("moveJobFromActiveToWait", 0)
    assert bench.stopped is not None


def test_a_late_result_of_an_abandoned_handler_is_ignored() -> None:
    bench = Bench(concurrency=2, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.reply("moveToActive", job_reply("2"))
    run = bench.run_of("1")
    bench.close(force=True)
    bench.reply("moveJobFromActiveToWait", 0)
    bench.tell(JobReturned(run, "1"))
    assert not bench.has("moveToFinished")


def test_a_refused_give_back_is_reported() -> None:
    bench = busy()
    bench.close(force=True)
    bench.reply("moveJobFromActiveToWait", -2)
    (reported,) = bench.said(WorkerProblem)[:1]
    assert "could not give job 1 back" in reported.message
    assert reported.job_id == "1"
    assert bench.stopped is not None


def test_a_lost_give_back_is_repeated_or_dropped() -> None:
    bench = busy()
    bench.close(force=True)
    bench.lose("moveJobFromActiveToWait")
    assert bench.stopped is not None
    assert "could not be settled" in bench.said(WorkerProblem)[0].message
    assert bench.said(WorkerProblem)[0].job_id == "1"


def test_a_report_under_way_is_awaited_by_a_forced_close() -> None:
    bench = busy()
    bench.returned("1")
    bench.close(force=True)
    assert not bench.has("moveJobFromActiveToWait")
    bench.reply("moveToFinished", 0)
    assert bench.stopped is not None


def test_an_undelivered_report_is_dropped_at_the_end() -> None:
    bench = busy(shutdown_timeout=3000)
    bench.returned("1")
    bench.lose("moveToFinished")
    bench.close()
    for _ in range(20):
        if bench.stopped is not None:
            break
        bench.tick()
        if bench.has("PING"):
            bench.lose("PING")
    assert bench.stopped is not None
    assert "could not be settled" in bench.said(WorkerProblem)[-1].message


def test_a_report_is_delivered_after_a_reconnect_while_closing() -> None:
    bench = busy()
    bench.returned("1")
    bench.lose("moveToFinished")
    bench.close()
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.reply("moveToFinished", 0)
    assert bench.said(JobCompleted) and bench.stopped is not None


def test_a_lost_job_is_not_given_back() -> None:
    bench = busy(lock_duration=1000)
    bench.tick()
    bench.reply("extendLocks", [b"1"])
    bench.close(force=True)
    assert not bench.has("moveJobFromActiveToWait")
    assert list(bench.cancelled.values()) == ["worker closed"]
    assert bench.stopped is not None


@pytest.mark.parametrize("connected", [True, False])
def test_a_call_under_way_at_a_forced_close_is_waited_for(connected: bool) -> None:
    bench = busy("repeat:s:5", {"rjk": "s", "opts": "{}"}, lock_duration=1000, skip_stalled_check=True, concurrency=2)
    delayed = bench.call("moveToDelayed")
    bench.tick()
    if connected:
        # its lock is lost while it is put back
        bench.reply("extendLocks", [b"repeat:s:5"])
    else:
        bench.lose("extendLocks")
    bench.close(force=True)
    if bench.wait is not None:
        bench.end_wait()
    if bench.has("moveToActive"):
        bench.reply("moveToActive", NO_JOB)
    assert bench.stopped is None
    del bench.calls[delayed.ticket]
    bench.tell(Replied(delayed.ticket, 0))
    assert bench.stopped is not None
    assert bench.machine.running_jobs == 0


def test_a_schedule_under_way_at_a_forced_close_is_given_back_after_its_answer() -> None:
    bench = scheduled({"every": 1000})
    bench.close(force=True)
    bench.reply("updateJobScheduler", None)
    assert not bench.handlers
    bench.reply("moveJobFromActiveToWait", 0)
    assert bench.stopped is not None


def test_a_close_before_the_start_of_work_and_unknown_tickets() -> None:
    bench = Bench()
    bench.tell(Replied(777, None))
    bench.tell(CallFailed(778, "x", lost=True))
    bench.tell(WaitCancelled(779))
    bench.tell(JobReturned(780, "1"))
    bench.close()
    bench.reply("moveToActive", NO_JOB)
    bench.reply("moveStalledJobsToWait", [])
    assert bench.stopped is not None
    assert bench.machine.state is WorkerState.STOPPED


def test_a_check_under_way_at_close_plans_no_other() -> None:
    bench = busy()
    bench.tick()
    assert bench.has("extendLocks")
    bench.reply("extendLocks", [])
    bench.tick()
    bench.reply("extendLocks", [])
    bench = Bench()
    bench.reply("moveToActive", job_reply("1"))
    bench.reply("moveStalledJobsToWait", [])
    bench.close()
    bench.reply("PTTL", 5)
    assert bench.machine.deadline() == bench.mono + 7500


def test_a_wall_clock_jump_changes_no_timer() -> None:
    bench = busy(lock_duration=1000)
    deadline = bench.machine.deadline()
    bench.wall += 3_600_000
    bench.tell(Tick())
    assert bench.machine.deadline() == deadline
    bench.wall -= 7_200_000
    bench.tell(Tick())
    assert bench.machine.deadline() == deadline
    assert not bench.said(LockLost)


def test_options_that_are_not_json_read_as_none() -> None:
    bench = busy(fields={"opts": "{broken"})
    bench.returned("1")
    assert packed(bench.call("moveToFinished"), 7)["attempts"] == 0


def test_a_repeat_key_in_the_options_counts_where_the_hash_has_none() -> None:
    bench = busy("repeat:s:5", {"opts": '{"repeat":{"every":1000},"repeatJobKey":"s"}'})
    assert bench.call("updateJobScheduler").command.args[1] == "s"


def test_a_lost_marker_call_takes_the_machine_offline() -> None:
    bench = idle()
    bench.pause()
    bench.marker([b"k", b"0", b"0"])
    bench.lose("ZADD")
    assert bench.said(Disconnected)


def test_a_marker_taken_while_offline_is_not_put_back() -> None:
    bench = idle()
    bench.tick()
    bench.pause()
    bench.lose("moveStalledJobsToWait")
    bench.marker([b"k", b"0", b"0"])
    assert not bench.has("ZADD")


def test_a_lock_lost_while_scheduling_starts_no_handler() -> None:
    bench = busy(
        "repeat:s:5", {"rjk": "s", "opts": '{"repeat":{"every":1000}}'}, lock_duration=1000, cancel_on_lost_lock=True
    )
    bench.tick()
    bench.reply("extendLocks", [b"repeat:s:5"])
    assert not bench.cancelled
    bench.reply("updateJobScheduler", None)
    assert not bench.handlers
    assert bench.said(ReportRefused)


def test_an_answer_for_an_unknown_run_changes_nothing() -> None:
    bench = busy()
    bench.tell(JobRaised(99, failure_of(RuntimeError("x")), 0.5))
    assert bench.machine.running_jobs == 1


def test_a_report_under_way_is_awaited_even_when_offline() -> None:
    bench = Bench(concurrency=2, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.returned("1")
    bench.lose("moveToActive")
    bench.close(force=True)
    assert bench.stopped is None
    bench.lose("moveToFinished")
    assert bench.stopped is not None


def test_a_failed_report_that_is_refused_by_a_code_is_dropped() -> None:
    bench = busy()
    bench.raised("1", RuntimeError("x"))
    bench.reply("moveToFinished", -42)
    assert "could not be stored" in bench.said(WorkerProblem)[0].message


def test_a_time_far_off_is_looked_at_once_a_day() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", [0, 0, 0, START + 10**15])
    assert bench.machine.deadline() == bench.mono + 24 * 3_600_000
    bench.tick()
    assert not bench.has("moveToActive")
    assert bench.machine.deadline() == bench.mono + 24 * 3_600_000


def test_what_is_owed_can_be_made_again() -> None:
    bench = Bench(concurrency=2, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.returned("1")
    report = bench.call("moveToFinished")
    assert report.command.args[5] == "1"
    # The next job would come to somebody who is gone.
    for _ in range(2):
        (again,) = bench.machine.owed()
        assert isinstance(again, Call) and (again.ticket, again.shielded) == (report.ticket, True)
        assert again.command.args[5] == "0"
        assert again.command.args[:2] == report.command.args[:2]
    bench.reply("moveToFinished", 0)
    assert bench.machine.owed() == []


def test_a_job_that_is_being_given_back_is_owed_as_it_is() -> None:
    bench = Bench(shutdown_timeout=0, skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.close()
    (again,) = bench.machine.owed()
    assert isinstance(again, Call) and again.shielded
    assert again.command == bench.call("moveJobFromActiveToWait").command


def test_a_wait_that_cannot_connect_turns_into_asking_now_and_then() -> None:
    """The time between two questions doubles, up to the drain delay; the calls go on."""
    bench = Bench(skip_stalled_check=True, drain_delay=1)
    bench.reply("moveToActive", NO_JOB)
    bench.lose_wait(maybe_applied=False)
    bench.tick()
    bench.reply("PING", b"PONG")
    waits: list[int] = []
    for _ in range(6):
        bench.reply("moveToActive", NO_JOB)
        bench.lose_wait(maybe_applied=False)
        lost = bench.mono
        bench.tick()
        waits.append(bench.mono - lost)
    assert waits == [200, 400, 800, 1000, 1000, 1000]
    assert len(bench.said(Disconnected)) == 1
    bench.reply("moveToActive", NO_JOB)
    bench.marker(None)
    bench.reply("moveToActive", NO_JOB)
    bench.lose_wait(maybe_applied=False)
    assert len(bench.said(Disconnected)) == 2


def test_a_refused_wait_turns_into_asking_now_and_then() -> None:
    bench = Bench(skip_stalled_check=True, drain_delay=1)
    waits: list[int] = []
    for _ in range(5):
        bench.reply("moveToActive", NO_JOB)
        bench.refuse_wait("NOPERM no")
        refused = bench.mono
        bench.tick()
        waits.append(bench.mono - refused)
    assert waits == [100, 200, 400, 800, 1000]


def test_a_lost_call_ends_the_wait_too() -> None:
    """Its connection may be half open, and would be found only after the drain delay."""
    bench = busy(concurrency=2)
    bench.reply("moveToActive", NO_JOB)
    bench.returned("1")
    bench.lose("moveToFinished")
    assert bench.wait_cancelled
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.end_wait()
    assert bench.wait is None
    bench.reply("moveToFinished", 0)
    bench.reply("moveToActive", NO_JOB)
    assert bench.wait is not None


def test_adrift_is_who_holds_nothing_and_has_no_connection() -> None:
    bench = busy(concurrency=2)
    bench.lose("moveToActive")
    assert not bench.machine.adrift, "it holds a job"
    bench.returned("1")
    bench.tick()
    bench.reply("PING", b"PONG")
    bench.reply("moveToFinished", 0)
    assert not bench.machine.adrift, "it is connected"
    bench.lose("moveToActive")
    assert bench.machine.adrift


def test_who_cannot_wait_asks_for_a_delayed_job_in_time() -> None:
    bench = Bench(skip_stalled_check=True, drain_delay=5)
    for wait, due in ((100, 5_000), (200, 5_000), (300, 300), (100, 20)):
        bench.reply("moveToActive", [0, 0, 0, bench.wall + due])
        bench.refuse_wait("NOPERM no")
        assert bench.machine.deadline() == bench.mono + wait
        bench.tell(Tick(0.5))
        assert bench.machine.deadline() == bench.mono + wait, "it does not spin"
        bench.tick()
        assert bench.has("moveToActive")


def test_a_snapshot_tells_what_is_held_and_waited_for() -> None:
    bench = Bench(concurrency=2)
    bench.reply("moveToActive", job_reply("1", name="mail", ats="2"))
    bench.advance(1_000)
    bench.reply("moveToActive", job_reply("2"))
    bench.raised("2", ValueError("boom"))
    seen = bench.machine.snapshot(Instant(bench.wall + 500, bench.mono + 500))
    first, second = seen.held
    assert first == HeldJob(
        id="1",
        name="mail",
        attempt=2,
        phase="running",
        held_for_ms=1_500,
        renewed_ms_ago=1_500,
        lock_lost=False,
        handler_running=True,
    )
    assert (second.id, second.phase, second.handler_running) == ("2", "reporting", False)
    assert (seen.jobs, seen.reporting) == (("1", "2"), ("2",))
    assert seen.next_timer_in_ms is not None
    assert (seen.taken, seen.completed, seen.failed, seen.retried, seen.left) == (2, 0, 0, 0, 0)
    assert (seen.listening_for_ms, seen.reconnect_in_ms, seen.disconnected_for_ms) == (None, None, None)
    assert b"token" not in msgspec.json.encode(seen)


def test_a_snapshot_counts_what_became_of_jobs() -> None:
    bench = Bench(skip_stalled_check=True)
    bench.reply("moveToActive", job_reply("1"))
    bench.returned("1")
    bench.reply("moveToFinished", job_reply("2", opts='{"attempts":2}'))
    bench.raised("2", ValueError("boom"))
    bench.reply("retryJob", 0)
    bench.reply("moveToActive", job_reply("3"))
    bench.raised("3", ValueError("boom"))
    bench.reply("moveToFinished", job_reply("4"))
    bench.raised("4", WaitingError())
    seen = bench.machine.snapshot()
    assert (seen.taken, seen.completed, seen.retried, seen.failed, seen.left) == (4, 1, 1, 1, 1)


def test_a_snapshot_counts_on() -> None:
    bench = busy("1")
    for each in ("2", "3"):
        bench.returned(str(int(each) - 1))
        bench.reply("moveToFinished", job_reply(each))
    for each in ("4", "5"):
        bench.raised(str(int(each) - 1), ValueError("boom"))
        bench.reply("moveToFinished", job_reply(each))
    seen = bench.machine.snapshot()
    assert (seen.taken, seen.completed, seen.failed, seen.left) == (5, 2, 2, 0)


def test_a_snapshot_tells_how_long_it_has_listened_and_been_cut_off() -> None:
    bench = idle()
    begun = bench.machine.snapshot().listening_for_ms
    assert begun is not None
    bench.advance(300)
    assert bench.machine.snapshot(bench.at()).listening_for_ms == begun + 300
    bench.lose_wait()
    bench.advance(10)
    seen = bench.machine.snapshot(bench.at())
    assert seen.state == "disconnected"
    assert seen.disconnected_for_ms == 10
    assert seen.reconnect_in_ms is not None


def test_a_failure_carries_what_was_raised_and_its_context() -> None:
    bench = busy()
    error = ValueError("boom")
    bench.raised("1", error, exception=error, telemetry="C")
    ticket = bench.call("moveToFinished").ticket
    assert b"".join(arg for arg in bench.call("moveToFinished").command.args if isinstance(arg, bytes)).count(b"C")
    job = bench.machine.job_of(ticket)
    assert job is not None
    assert bench.machine.holds(job)
    bench.reply("moveToFinished", 0)
    [notice] = bench.said(JobFailed)
    assert notice.exception is error
    assert not bench.machine.holds(job)
    assert bench.machine.job_of(ticket) is None


def test_a_fetch_is_about_no_job() -> None:
    bench = Bench()
    assert bench.machine.job_of(bench.call("moveToActive").ticket) is None


@pytest.mark.parametrize(
    ("error", "lost", "maybe_applied", "code"),
    [
        (ConnectionLost("gone", maybe_applied=True), True, True, ""),
        (TransportTimeout("late", maybe_applied=False), True, False, ""),
        (AuthenticationFailed("WRONGPASS no"), True, False, ""),
        (ServerTooOld("5.0"), True, False, ""),
        (ServerError("OOM no memory"), False, False, "OOM"),
        (UnexpectedReply("a list", 1), False, False, ""),
    ],
)
def test_call_failed_of_an_error(error: BullMQError, lost: bool, maybe_applied: bool, code: str) -> None:
    event = CallFailed.of(7, error, roll=0.25)
    assert event == CallFailed(7, str(error), lost=lost, maybe_applied=maybe_applied, code=code, roll=0.25)
    assert CallFailed.of(7, error).roll == 0.5
