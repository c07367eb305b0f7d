"""Monque's scheduler: events in, actions out, on a collection in memory, in time that the test sets."""

from collections.abc import Callable
from datetime import UTC
from typing import Any

import msgspec
import pytest
from bson import ObjectId

from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import BullMQError, ConnectionLost, UsageError
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.worker.actions import Call, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.events import (
    CallFailed,
    CloseRequested,
    JobRaised,
    JobReturned,
    PauseRequested,
    Replied,
    Tick,
    WaitCancelled,
)
from bullmq_protocol.worker.snapshot import WorkerState
from monque_protocol import commands, events
from monque_protocol.document import to_date
from monque_protocol.errors import CommandRefused, ShutdownTimeoutError, WorkerRegistrationError
from monque_protocol.options import JobRetention, SchedulerOptions, settings_of
from monque_protocol.scheduler import MOST_REASON, MOST_WAKES, OneByOne, SchedulerMachine
from tests.support.monque_model import Collection

NOW = 1_766_000_000_000
LOST = ConnectionLost("cut", maybe_applied=True)
NOT_SENT = ConnectionLost("no connection", maybe_applied=False)


class Bench:
    """A machine, a collection that executes what it asks for, and what is still to be answered."""

    def __init__(self, **options: Any) -> None:
        given: dict[str, Any] = {"change_streams": False, "scheduler_instance_id": "me", **options}
        self.settings = settings_of(SchedulerOptions(**given), random_id="")
        self.machine = SchedulerMachine(self.settings, zone=UTC)
        self.collection = Collection(ObjectId)
        self.mono = 0
        self.skew = 0
        self.calls: list[Call[Any]] = []
        self.jobs: list[RunJob[Any]] = []
        self.notices: list[Any] = []
        self.waits: list[Any] = []
        self.stopped = 0

    def at(self) -> Instant:
        return Instant(NOW + self.mono + self.skew, self.mono)

    def take(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Call():
                    self.calls.append(action)
                case RunJob():
                    self.jobs.append(action)
                case Notify(notice):
                    self.notices.append(notice)
                case Wait() | CancelWait():
                    self.waits.append(action)
                case _:
                    assert isinstance(action, Stopped)
                    self.stopped += 1

    def start(self, *names: str) -> "Bench":
        for name in names or ("mail",):
            self.take(self.machine.register(name, None, replace=False, at=self.at()))
        self.take(self.machine.start(self.at()))
        return self

    def handle(self, event: Any) -> None:
        self.take(self.machine.handle(event, self.at()))

    def answer(self, call: Call[Any]) -> None:
        """Execute a call and answer it."""
        self.calls.remove(call)
        try:
            reply = self.collection.run(call.command.document)
        except BullMQError as error:
            self.handle(CallFailed.of(call.ticket, error))
        else:
            self.handle(Replied(call.ticket, reply))

    def lose(self, call: Call[Any], error: BullMQError, *, applied: bool = False) -> None:
        self.calls.remove(call)
        if applied:
            self.collection.run(call.command.document)
        self.handle(CallFailed.of(call.ticket, error))

    def settle(self) -> "Bench":
        while self.calls:
            self.answer(self.calls[0])
        return self

    def add(self, name: str = "mail", **more: Any) -> Any:
        key = ObjectId()
        given = {"next_run_at": self.at().wall, "now": self.at().wall, **more}
        self.collection.run(commands.insert("monque_jobs", key, name, {}, **given).document)
        return key

    def document(self, key: Any) -> Any:
        return next(each for each in self.collection.documents if each["_id"] == key)

    def tick(self, ms: int) -> None:
        self.mono += ms
        deadline = self.machine.deadline()
        assert deadline is not None and deadline <= self.mono
        self.handle(Tick())

    def returns(self, run: RunJob[Any]) -> None:
        self.jobs.remove(run)
        self.handle(JobReturned(run.run, "null"))

    def raises(self, run: RunJob[Any], message: str = "no", **more: Any) -> None:
        self.jobs.remove(run)
        self.handle(JobRaised(run.run, Failure(message=message, **more), 0.5, exception="the exception"))

    def seen(self, kind: type) -> list[Any]:
        return [notice for notice in self.notices if type(notice) is kind]


def names(calls: list[Call[Any]]) -> list[str]:
    return [call.command.name for call in calls]


# --- claims -----------------------------------------------------------------------------------------------------------


def test_one_claim_looks_and_each_job_found_brings_another_one() -> None:
    bench = Bench()
    keys = [bench.add() for _ in range(9)]
    bench.start()
    seen = []
    while bench.calls:
        seen.append(len(bench.calls))
        for call in tuple(bench.calls):
            bench.answer(call)
    # Slots: 5.
    assert (seen, len(bench.jobs)) == ([1, 2, 2], 5)
    assert [bench.document(key)["status"] for key in keys] == ["processing"] * 5 + ["pending"] * 4
    bench.returns(bench.jobs[0])
    assert names(bench.calls) == ["findAndModify"]
    bench.answer(bench.calls[0])
    # Its slot is filled at once.
    assert len(bench.calls) == 1
    bench.settle()
    assert len(bench.jobs) == 5


def test_an_empty_answer_ends_the_looking_until_the_next_poll() -> None:
    bench = Bench().start().settle()
    assert bench.machine.deadline() == 1000
    bench.add()
    bench.tick(1000)
    bench.settle()
    assert len(bench.jobs) == 1


def test_a_signal_while_a_claim_is_under_way_is_not_lost() -> None:
    bench = Bench().start()
    bench.calls, (call,) = [], bench.calls
    reply = bench.collection.run(call.command.document)
    bench.add()
    bench.take(bench.machine.signal("mail", NOW, bench.at()))
    assert bench.calls == []
    bench.handle(Replied(call.ticket, reply))
    bench.settle()
    assert len(bench.jobs) == 1


def test_names_without_a_handler_are_left_alone() -> None:
    bench = Bench()
    key = bench.add("other")
    bench.start().settle()
    bench.take(bench.machine.signal("other", NOW, bench.at()))
    assert (bench.calls, bench.document(key)["status"]) == ([], "pending")


def test_the_limit_of_all_names_is_kept() -> None:
    bench = Bench(instance_concurrency=3)
    for name in ("mail", "report"):
        for _ in range(5):
            bench.add(name)
    bench.start("mail", "report").settle()
    assert bench.machine.running_jobs == 3 == len(bench.jobs) == bench.machine.concurrency
    assert Bench().start("a", "b").machine.concurrency == 10


def test_a_handler_may_be_replaced_and_not_doubled() -> None:
    bench = Bench()
    bench.add()
    bench.start().settle()
    with pytest.raises(WorkerRegistrationError):
        bench.machine.register("mail", 1, replace=False, at=bench.at())
    bench.take(bench.machine.register("mail", 1, replace=True, at=bench.at()))
    assert bench.machine.active("mail") == (1, 0) and bench.machine.active("x") is None
    assert (bench.machine.names, bench.machine.running_jobs) == (("mail",), 1)
    for wrong in (("a b", 1), ("a", -1), ("a", "3")):
        with pytest.raises(BullMQError):
            bench.machine.register(*wrong, replace=False, at=bench.at())  # type: ignore[arg-type]


def test_known_times_wake_it_up() -> None:
    bench = Bench(poll_interval=60_000).start().settle()
    for later in (5_000, 2_000, 9_000):
        bench.add(next_run_at=NOW + later)
        bench.take(bench.machine.signal("mail", NOW + later, bench.at()))
    assert bench.machine.deadline() == 2_200
    bench.tick(2_200)
    bench.settle()
    assert (len(bench.jobs), bench.machine.deadline()) == (1, 5_200)
    for _ in range(MOST_WAKES + 5):
        bench.take(bench.machine.signal("mail", NOW + 50_000, bench.at()))
    bench.tick(10_000)
    bench.settle()
    assert (len(bench.jobs), bench.machine.deadline()) == (3, 30_000)


def test_a_jump_of_the_wall_clock_changes_no_timer() -> None:
    bench = Bench().start().settle()
    bench.skew = 3_600_000
    assert bench.machine.deadline() == 1000
    bench.tick(1000)
    assert bench.machine.deadline() == 2000


def test_a_claim_that_fails_is_reported_and_tried_at_the_next_poll() -> None:
    bench = Bench().start()
    bench.lose(bench.calls[0], CommandRefused("not primary", 10107))
    (errored,) = bench.seen(events.JobErrored)
    assert (errored.error.number, errored.job, bench.calls) == (10107, None, [])
    bench.tick(1000)
    bench.lose(bench.calls[0], NOT_SENT)
    bench.tick(1000)
    assert names(bench.calls) == ["findAndModify"]


def test_what_a_lost_reply_has_claimed_is_released() -> None:
    bench = Bench()
    keys = [bench.add() for _ in range(3)]
    bench.start()
    bench.answer(bench.calls[0])
    first, second = bench.calls
    bench.lose(first, LOST, applied=True)
    bench.tick(1000)
    # It waits for the other claim, which may bring a job that it runs.
    assert bench.calls == [second]
    bench.answer(second)
    (look,) = bench.calls
    assert look.command.document["filter"] == {"claimedBy": "me", "status": "processing"}
    bench.tick(1000)
    assert bench.calls == [look]
    bench.answer(look)
    assert [each.reason for each in bench.seen(events.JobReleased)] == ["lost reply"]
    bench.settle()
    assert len(bench.jobs) == 3 and {bench.document(key)["status"] for key in keys} == {"processing"}


def test_a_release_that_is_lost_is_looked_for_again() -> None:
    bench = Bench()
    key = bench.add()
    bench.start()
    bench.lose(bench.calls[0], LOST, applied=True)
    bench.tick(1000)
    bench.answer(bench.calls[0])
    release = next(call for call in bench.calls if call.command.name == "update")
    assert bench.machine.owed() == [release]
    bench.lose(release, LOST)
    bench.settle()
    bench.tick(1000)
    bench.lose(bench.calls[0], NOT_SENT)
    bench.tick(1000)
    bench.settle()
    assert (len(bench.jobs), bench.document(key)["claimedBy"]) == (1, "me")


def test_a_release_that_was_not_sent_is_sent_again_after_a_look() -> None:
    bench = Bench()
    key = bench.add()
    bench.start()
    bench.lose(bench.calls[0], LOST, applied=True)
    bench.tick(1000)
    bench.answer(bench.calls[0])
    claim, release = sorted(bench.calls, key=lambda call: call.command.name)
    assert release.command.document["updates"][0]["q"]["lockedAt"] == to_date(NOW)
    bench.answer(claim)
    bench.lose(release, NOT_SENT)
    bench.settle()
    # The claim that went with the release found nothing, as it had not arrived.
    assert bench.document(key)["claimedBy"] == "me" and bench.jobs == []
    bench.tick(1000)
    bench.settle()
    assert len(bench.jobs) == 1 and bench.document(key)["status"] == "processing"


def test_a_look_that_the_server_refuses_holds_up_no_claims() -> None:
    bench = Bench()
    lost = bench.add()
    bench.start()
    bench.lose(bench.calls[0], LOST, applied=True)
    bench.add()
    bench.tick(1000)
    assert names(bench.calls) == ["find"]
    bench.lose(bench.calls[0], CommandRefused("not authorized", 13))
    bench.tick(1000)
    bench.settle()
    assert len(bench.jobs) == 1 and bench.document(lost)["status"] == "processing"
    assert [str(each.error) for each in bench.seen(events.JobErrored)][1:] == ["not authorized"]


# --- outcomes ---------------------------------------------------------------------------------------------------------


def one(**more: Any) -> tuple[Bench, RunJob[Any], Any]:
    options = {name: more.pop(name) for name in tuple(more) if name in SchedulerOptions.__struct_fields__}
    bench = Bench(**options)
    key = bench.add(**more)
    bench.start().settle()
    (run,) = bench.jobs
    return bench, run, key


def test_success_is_stored() -> None:
    bench, run, key = one()
    assert (run.job.status, run.token, bench.machine.holds(run.job)) == ("processing", "me", True)
    assert bench.seen(events.JobStarted)[0].job == run.job
    bench.mono += 250
    bench.returns(run)
    assert bench.machine.owed() == bench.calls and bench.calls[0].shielded
    bench.settle()
    (done,) = bench.seen(events.JobCompleted)
    assert (done.job.status, done.job.locked_at, done.duration_ms) == ("completed", None, 250)
    assert bench.document(key)["status"] == "completed" and not bench.machine.holds(run.job)


def test_a_recurring_job_is_pending_again() -> None:
    bench, run, key = one(repeat_interval="*/10 * * * * *")
    bench.returns(run)
    bench.settle()
    assert bench.document(key)["nextRunAt"] == to_date(NOW + 10_000)
    assert bench.seen(events.JobCompleted)[0].job.status == "pending"
    bench.tick(1000)
    bench.settle()
    bench.tick(9_200)
    bench.settle()
    assert len(bench.jobs) == 1


def test_a_bad_expression_makes_a_run_that_failed() -> None:
    bench, run, key = one(repeat_interval="bad", max_retries=1)
    bench.returns(run)
    bench.settle()
    (failed,) = bench.seen(events.JobFailed)
    assert failed.job.fail_reason.startswith('Invalid cron expression "bad"') and not failed.will_retry
    assert bench.document(key)["status"] == "failed"


def test_a_failure_is_retried_by_backoff_until_runs_are_used_up() -> None:
    bench, run, key = one(max_retries=2)
    bench.raises(run, "boom")
    bench.settle()
    (failed,) = bench.seen(events.JobFailed)
    assert (failed.will_retry, failed.error, failed.job.fail_count) == (True, "the exception", 1)
    document = bench.document(key)
    assert (document["status"], document["failReason"]) == ("pending", "boom")
    assert document["nextRunAt"] == to_date(NOW + 2000)
    bench.tick(2_200)
    bench.settle()
    bench.raises(bench.jobs[0], "boom again")
    bench.settle()
    assert (bench.document(key)["status"], bench.document(key)["failCount"]) == ("failed", 2)
    assert [each.will_retry for each in bench.seen(events.JobFailed)] == [True, False]
    counts = bench.machine.snapshot()
    assert (counts.taken, counts.completed, counts.failed, counts.retried, counts.left) == (2, 0, 1, 1, 0)


def test_a_reason_is_stored_as_far_as_a_document_can_hold_it() -> None:
    bench, run, key = one()
    bench.raises(run, "x" * 20_000_000 + "\ud800")
    bench.settle()
    assert bench.document(key)["failReason"] == "x" * MOST_REASON


def test_a_job_that_another_has_is_left_alone() -> None:
    bench, run, key = one()
    bench.document(key)["claimedBy"] = "other"
    bench.returns(run)
    bench.settle()
    (lost,) = bench.seen(events.JobLost)
    assert (lost.job, lost.uncertain) == (run.job, False)
    assert not bench.seen(events.JobCompleted) and bench.document(key)["status"] == "processing"


def test_a_report_whose_reply_is_lost_is_sent_again_and_its_outcome_is_uncertain() -> None:
    bench, run, key = one()
    bench.returns(run)
    first = bench.calls[0]
    bench.lose(first, NOT_SENT)
    bench.tick(100)
    bench.lose(bench.calls[0], LOST, applied=True)
    assert bench.machine.snapshot(bench.mono).reporting == (str(key),)
    bench.tick(200)
    again = bench.calls[0].command.document
    assert again["update"] == first.command.document["update"]
    assert again["query"] == {**first.command.document["query"], "lockedAt": to_date(NOW)}
    bench.settle()
    assert bench.seen(events.JobLost)[0].uncertain
    assert bench.document(key)["status"] == "completed"


def test_a_report_that_is_sent_again_does_not_end_a_later_claim_of_the_same_scheduler() -> None:
    bench, run, key = one(base_retry_interval=0)
    bench.mono += 50
    bench.raises(run)
    bench.lose(bench.calls[0], LOST, applied=True)
    # It is pending again, and due.
    bench.mono += 10
    bench.take(bench.machine.signal("mail", None, bench.at()))
    bench.settle()
    assert len(bench.jobs) == 1 and bench.machine.running_jobs == 2
    bench.tick(200)
    bench.settle()
    assert bench.seen(events.JobLost)[0].uncertain and bench.machine.running_jobs == 1
    assert bench.document(key)["status"] == "processing"
    bench.returns(bench.jobs[0])
    bench.settle()
    assert bench.document(key)["status"] == "completed" and len(bench.seen(events.JobStarted)) == 2


def test_a_success_that_is_refused_counts_as_a_failure_and_a_failure_that_is_refused_is_reported() -> None:
    bench, run, key = one()
    bench.returns(run)
    bench.lose(bench.calls[0], CommandRefused("document validation failed", 121))
    assert bench.calls[0].command.document["update"]["$set"]["failReason"] == "document validation failed"
    bench.lose(bench.calls[0], CommandRefused("odd reply"))
    (errored,) = bench.seen(events.JobErrored)
    assert (errored.job, str(errored.error), errored.error.number) == (run.job, "odd reply", None)
    assert not bench.machine.holds(run.job) and bench.document(key)["status"] == "processing"


def test_a_reply_that_cannot_be_read_is_an_error_of_the_command() -> None:
    bench, run, _ = one()
    bench.returns(run)
    call = bench.calls.pop()
    bench.handle(Replied(call.ticket, {"ok": 1}))
    assert bench.calls[0].command.document["update"]["$set"]["status"] == "pending"


def test_a_cancelled_handler_has_failed_or_is_released_at_the_end() -> None:
    bench, run, key = one()
    bench.raises(run, kind=FailureKind.CANCELLED)
    bench.settle()
    assert bench.document(key)["failCount"] == 1
    bench, run, key = one()
    bench.handle(CloseRequested())
    bench.raises(run, kind=FailureKind.CANCELLED)
    bench.settle()
    assert (bench.document(key)["status"], bench.document(key)["failCount"], bench.stopped) == ("pending", 0, 1)
    assert bench.seen(events.JobReleased)[0].reason == "cancelled"


# --- heartbeat and retention ------------------------------------------------------------------------------------------


def test_one_heartbeat_is_for_all_and_none_without_jobs() -> None:
    bench = Bench(heartbeat_interval=500, poll_interval=100_000)
    keys = [bench.add() for _ in range(3)]
    bench.start().settle()
    bench.tick(500)
    assert names(bench.calls) == ["update"]
    bench.tick(500)
    assert len(bench.calls) == 1
    bench.settle()
    assert {bench.document(key)["lastHeartbeat"] for key in keys} == {to_date(NOW + 500)}
    for run in tuple(bench.jobs):
        bench.returns(run)
    bench.settle()
    bench.tick(500)
    assert bench.calls == []


def test_a_heartbeat_that_fails_is_reported() -> None:
    bench, _, _ = one(heartbeat_interval=500)
    bench.tick(500)
    bench.lose(bench.calls[0], LOST)
    assert len(bench.seen(events.JobErrored)) == 1


def test_retention_deletes_what_is_old() -> None:
    bench = Bench(job_retention=JobRetention(completed=1_000, interval=5_000), poll_interval=100_000)
    key = bench.add()
    bench.start().settle()
    bench.returns(bench.jobs[0])
    bench.settle()
    bench.tick(5_000)
    assert names(bench.calls) == ["delete"]
    bench.settle()
    assert key not in [each["_id"] for each in bench.collection.documents]
    assert bench.machine.deadline() == 10_000


# --- the change stream ------------------------------------------------------------------------------------------------


def batch(*documents: Any) -> dict[str, Any]:
    return {"cursor": {"firstBatch": [{"operationType": "insert", "fullDocument": each} for each in documents]}}


def test_a_change_stream_is_a_hint_and_polls_become_rare() -> None:
    bench = Bench(change_streams=True).start().settle()
    (wait,) = bench.waits
    bench.handle(Replied(wait.ticket, batch()))
    assert bench.seen(events.ChangeStreamConnected)
    bench.tick(1000)
    bench.settle()
    assert bench.machine.deadline() == 30_000
    key = bench.add()
    bench.handle(Replied(bench.waits[-1].ticket, batch(bench.document(key))))
    bench.settle()
    assert len(bench.jobs) == 1 and len(bench.seen(events.ChangeStreamConnected)) == 1
    bench.handle(CloseRequested(force=True))
    assert isinstance(bench.waits[-1], CancelWait)
    bench.returns(bench.jobs[0])
    bench.settle()
    bench.handle(WaitCancelled(bench.waits[-1].ticket))
    bench.handle(WaitCancelled(bench.waits[-1].ticket))
    assert (len(bench.seen(events.ChangeStreamClosed)), bench.stopped) == (1, 1)


def test_a_change_stream_that_breaks_is_opened_again_and_given_up_after_three_attempts() -> None:
    bench = Bench(change_streams=True, poll_interval=100_000, change_stream_retry=500).start().settle()
    refused = CommandRefused("$changeStream is not supported", 40573)
    for delay in (500, 1000, 2000):
        bench.handle(CallFailed.of(bench.waits[-1].ticket, refused))
        assert bench.machine.deadline() == bench.mono + delay
        bench.tick(delay)
    bench.handle(CallFailed.of(bench.waits[-1].ticket, refused))
    (fallback,) = bench.seen(events.ChangeStreamFallback)
    assert fallback.reason == "Exhausted 3 reconnection attempts: $changeStream is not supported"
    assert (len(bench.waits), len(bench.seen(events.ChangeStreamError))) == (4, 4)
    assert not bench.seen(events.ChangeStreamConnected)


def test_changes_that_cannot_be_read_break_the_stream() -> None:
    bench = Bench(change_streams=True).start().settle()
    bench.handle(Replied(bench.waits[0].ticket, {}))
    assert bench.seen(events.ChangeStreamError)


@pytest.mark.parametrize(
    "answer",
    [lambda ticket: Replied(ticket, batch()), lambda ticket: CallFailed.of(ticket, LOST)],
    ids=["reply", "loss"],
)
def test_a_stream_that_answers_after_the_close_ends(answer: Callable[[int], Any]) -> None:
    bench = Bench(change_streams=True).start().settle()
    bench.handle(CloseRequested())
    assert bench.stopped == 0
    bench.handle(answer(bench.waits[0].ticket))
    assert bench.stopped == 1


# --- the end ----------------------------------------------------------------------------------------------------------


def test_a_claim_that_comes_after_the_close_is_released() -> None:
    bench = Bench()
    key = bench.add()
    bench.start()
    bench.handle(CloseRequested())
    bench.handle(CloseRequested())
    bench.settle()
    assert (bench.document(key)["status"], bench.stopped, bench.jobs) == ("pending", 1, [])
    assert [each.reason for each in bench.seen(events.JobReleased)] == ["stopping"]
    assert bench.machine.deadline() is None and bench.machine.state is WorkerState.STOPPED


def test_it_stops_when_the_last_job_is_reported() -> None:
    bench, run, _ = one()
    bench.add()
    bench.handle(CloseRequested())
    assert (bench.stopped, bench.machine.deadline()) == (0, 30_000)
    assert bench.machine.snapshot().state == "shutting down"
    bench.returns(run)
    bench.settle()
    assert (bench.stopped, bench.seen(events.JobErrored)) == (1, [])
    assert bench.machine.signal("mail", NOW, bench.at()) == []


def test_after_its_time_it_stops_and_a_late_handler_still_reports() -> None:
    bench, run, key = one(shutdown_timeout=500)
    bench.handle(CloseRequested())
    bench.tick(500)
    (errored,) = bench.seen(events.JobErrored)
    assert isinstance(errored.error, ShutdownTimeoutError) and errored.error.incomplete_jobs == (run.job,)
    assert bench.stopped == 1
    bench.returns(run)
    bench.lose(bench.calls[0], NOT_SENT)
    bench.tick(100)
    bench.settle()
    assert (bench.document(key)["status"], bench.stopped) == ("completed", 1)


def test_reports_of_a_stopped_scheduler_end_with_its_client() -> None:
    bench, run, _ = one(shutdown_timeout=500)
    bench.handle(CloseRequested())
    bench.tick(500)
    bench.returns(run)
    bench.lose(bench.calls[0], NOT_SENT)
    bench.tick(100)
    # As the dispatcher asks where the client was closed.
    bench.handle(CloseRequested(force=True))
    bench.lose(bench.calls[0], NOT_SENT)
    assert (bench.machine.deadline(), bench.machine.running_jobs, bench.calls) == (None, 0, [])
    assert bench.seen(events.JobErrored)[-1].job == run.job


def test_force_ends_the_time() -> None:
    bench, _, _ = one()
    bench.handle(CloseRequested())
    bench.handle(CloseRequested(force=True))
    bench.tick(0)
    assert bench.stopped == 1


def test_a_lost_claim_is_looked_for_before_the_end_but_once() -> None:
    bench = Bench()
    key = bench.add()
    bench.start()
    claim = bench.calls[0]
    bench.handle(CloseRequested())
    bench.lose(claim, LOST, applied=True)
    bench.settle()
    assert (bench.document(key)["status"], bench.stopped) == ("pending", 1)
    bench = Bench().start()
    claim = bench.calls[0]
    bench.handle(CloseRequested())
    bench.lose(claim, LOST)
    bench.lose(bench.calls[0], LOST)
    assert bench.stopped == 1


def test_it_can_start_again() -> None:
    bench = Bench(change_streams=True, shutdown_timeout=100).start().settle()
    bench.take(bench.machine.start(bench.at()))
    assert len(bench.waits) == 1
    bench.handle(CloseRequested())
    bench.tick(100)
    assert bench.stopped == 1
    bench.take(bench.machine.start(bench.at()))
    bench.settle()
    # The old stream has not ended yet: there is one at a time.
    assert [type(each) for each in bench.waits] == [Wait, CancelWait]
    bench.handle(WaitCancelled(bench.waits[0].ticket))
    bench.tick(0)
    assert isinstance(bench.waits[-1], Wait)


def test_pauses_are_unknown() -> None:
    bench = Bench().start().settle()
    bench.handle(PauseRequested())
    assert bench.calls == [] and not (bench.machine.adrift or bench.machine.unattended)
    with pytest.raises(UsageError):
        SchedulerMachine(bench.settings, zone=UTC).start(bench.at(), paused=True)


def test_a_snapshot_can_be_encoded() -> None:
    bench, run, _ = one()
    bench.mono += 40
    held = bench.machine.snapshot(bench.mono)
    assert (held.jobs, held.held[0].held_for_ms, held.next_timer_in_ms) == ((run.job.id,), 40, 960)
    assert msgspec.json.encode(held)
    bench.take(bench.machine.handle_all([JobReturned(run.run, "null"), Tick()], bench.at()))
    assert SchedulerMachine(bench.settings, zone=UTC).snapshot().state == "stopped"


def test_no_two_commands_go_together() -> None:
    alone = OneByOne()
    assert (alone.most, alone.fitting([1, 2])) == (1, 0)
    with pytest.raises(NotImplementedError):
        alone.merged([1, 2])
