"""What the dispatcher decides for the drivers of a worker, one rule at a time."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bullmq_protocol.command import Command
from bullmq_protocol.commands.batches import MOST_JOBS
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ConnectionLost,
    ServerError,
    ServerTooOld,
    UsageError,
)
from bullmq_protocol.worker.actions import Action, Call, CancelJob, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.dispatch import (
    DELIVER,
    INTRODUCE,
    INTRODUCE_MS,
    LOOK_MS,
    MOST_DELIVERIES,
    Delivery,
    Dispatcher,
    Queued,
    RunEnd,
    called_off,
    closed_by_server,
    steps,
)
from bullmq_protocol.worker.events import (
    CloseRequested,
    ConnectionEnded,
    JobRaised,
    JobReturned,
    PauseRequested,
    ResumeRequested,
    Tick,
)
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    Closing,
    Disconnected,
    JobActive,
    JobCompleted,
    Notice,
    Paused,
    WorkerProblem,
)
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.snapshot import WorkerState
from bullmq_protocol.worker.typed import MERGING, CommandCall, CommandWait
from tests.support.machine_bench import NO_JOB, job_reply

KEYS = QueueKeys.of("q")
WALL = 1_700_000_000_000


class Stream:
    """Keeps notices."""

    def __init__(self) -> None:
        self.kept: list[Notice] = []

    def put(self, notice: Notice) -> None:
        self.kept.append(notice)


class Driver:
    """A dispatcher, with what it wants in view. No notice is delivered unless `tells` says so."""

    def __init__(self, *, merges: bool = True, one_by_one: bool = True, paused: bool = False, **options: Any) -> None:
        settings, _ = WorkerOptions(**options).checked()
        self.machine = WorkerMachine(KEYS, settings, "w", batches=merges)
        self.dispatch = Dispatcher[str, Stream](self.machine, merging=MERGING, one_by_one=one_by_one)
        self.merges = merges
        self.mono = 1_000
        self.tells: tuple[type[Notice], ...] = ()
        self.calls: list[CommandCall | CommandWait] = []
        self.others: list[Any] = []
        self.do(self.dispatch.start(self.at(), paused=paused))

    def at(self) -> Instant:
        return Instant(WALL + self.mono, self.mono)

    def do(self, actions: list[Action]) -> None:
        for step in steps(actions, merges=self.merges, is_observed=lambda kind: kind in self.tells):
            match step:
                case Queued():
                    self.dispatch.put(step)
                case Call() | Wait():
                    self.calls.append(step)
                case _:
                    self.others.append(step)

    def tell(self, *events: Any) -> None:
        self.do(self.dispatch.feed(events, self.at()))

    def call(self, name: str) -> CommandCall | CommandWait:
        """Take the oldest call of that name."""
        call = next(each for each in self.calls if each.command.name == name)
        self.calls.remove(call)
        return call

    def answer(self, name: str, outcome: Any) -> None:
        self.do(self.dispatch.answered(self.call(name), outcome, 0.5, self.at()))

    def fetched(self, count: int) -> None:
        """Let this many jobs come with the first fetch."""
        jobs = [job_reply(str(number)) for number in range(1, count + 1)]
        if self.calls[-1].command.name == "fetchMany":
            self.answer("fetchMany", jobs if count == self.machine.concurrency else [*jobs, NO_JOB])
        else:
            self.answer("moveToActive", jobs[0])

    def run(self) -> int:
        """Begin the next job."""
        work = self.dispatch.next()
        assert isinstance(work, RunJob)
        self.dispatch.handling[work.run] = work.job.id
        return work.run

    def end(self, number: int) -> None:
        """Let a handler return."""
        del self.dispatch.handling[number]
        self.dispatch.ended(JobReturned(number, "null"))

    def deliver(self) -> Delivery | None:
        """Do what `DELIVER` means, up to the call."""
        assert self.dispatch.next() is DELIVER
        if self.dispatch.has_returned:
            self.tell()
        return self.dispatch.take()

    def delivered(self, delivery: Delivery, outcome: Any) -> None:
        self.do(self.dispatch.delivered(delivery, outcome, 0.5, self.at()))


def stored(delivery: Delivery) -> list[Any]:
    return [0] * len(delivery.calls)


# --- steps ------------------------------------------------------------------------------------------------------------


def _actions(driver: Driver, count: int) -> list[Action]:
    """Return what the machine wants when this many jobs have come."""
    reply = [job_reply(str(number)) for number in range(1, count + 1)]
    return driver.dispatch.answered(driver.call("fetchMany"), reply, 0.5, driver.at())


def _kinds(actions: list[Action], *reported: type[Notice], merges: bool = True, held_up: bool = True) -> list[str]:
    names: list[str] = []
    for step in steps(actions, merges=merges, is_observed=lambda kind: kind in reported, held_up=held_up):
        match step:
            case Queued(jobs, outcomes):
                names.append(f"{len(jobs)} jobs, {len(outcomes)} outcomes")
            case Notify(notice):
                names.append(type(notice).__name__)
            case _:
                names.append(type(step).__name__)
    return names


def test_what_nobody_hears_of_is_left_out() -> None:
    assert _kinds(_actions(Driver(concurrency=3), 3)) == ["3 jobs, 0 outcomes"]


def test_a_job_waits_for_its_own_callbacks_alone() -> None:
    assert _kinds(_actions(Driver(concurrency=3), 3), JobActive) == [
        "JobActive",
        "1 jobs, 0 outcomes",
        "JobActive",
        "1 jobs, 0 outcomes",
        "JobActive",
        "1 jobs, 0 outcomes",
    ]


@pytest.mark.parametrize(("merges", "expected"), [(True, ["0 jobs, 2 outcomes"]), (False, ["Call", "Call"])])
def test_outcomes_wait_where_they_can_go_together(merges: bool, expected: list[str]) -> None:
    driver = Driver(concurrency=2)
    driver.fetched(2)
    for number in [driver.run() for _ in range(2)]:
        driver.end(number)
    assert _kinds(driver.dispatch.feed((), driver.at()), merges=merges) == expected


def test_a_job_waits_for_the_callbacks_before_it_and_not_for_those_behind_it() -> None:
    driver = Driver(concurrency=2)
    driver.fetched(2)
    for number in [driver.run() for _ in range(2)]:
        driver.end(number)
    delivery = driver.deliver()
    assert delivery is not None
    reply = [job_reply("3"), job_reply("4")]
    actions = driver.dispatch.delivered(delivery, reply, 0.5, driver.at())
    assert _kinds(actions, JobCompleted) == [
        "JobCompleted",
        "1 jobs, 0 outcomes",
        "JobCompleted",
        "1 jobs, 0 outcomes",
    ]
    assert _kinds(actions, JobCompleted, held_up=False) == ["JobCompleted", "JobCompleted", "2 jobs, 0 outcomes"]


def test_observers_are_asked_once_for_each_kind() -> None:
    asked: list[type[Notice]] = []
    list(steps(_actions(Driver(concurrency=3), 3), merges=True, is_observed=lambda kind: bool(asked.append(kind))))
    assert asked == [JobActive]


def test_the_named_connection_is_opened_after_what_may_have_closed_it() -> None:
    driver = Driver()
    driver.tells = (Paused,)
    driver.tell(PauseRequested(), ResumeRequested())
    assert driver.others == [INTRODUCE, Notify(Paused()), INTRODUCE]


def test_streams_have_what_happens_before_anybody_hears_of_it() -> None:
    driver = Driver(paused=True)
    stream = Stream()
    driver.dispatch.streams = (stream,)
    actions = driver.dispatch.feed((CloseRequested(),), driver.at())
    assert [type(notice) for notice in stream.kept] == [Closing]
    driver.do(actions)
    driver.dispatch.publish((Notify(WorkerProblem("m")), INTRODUCE))  # type: ignore[arg-type]
    assert stream.kept[1:] == [WorkerProblem("m")]


# --- hands ------------------------------------------------------------------------------------------------------------


def test_one_hand_is_wanted_where_there_is_work() -> None:
    driver = Driver(concurrency=2)
    dispatch = driver.dispatch
    assert (dispatch.has_work, dispatch.has_ready, dispatch.needs_hand(), dispatch.next()) == (
        False,
        False,
        False,
        None,
    )
    driver.fetched(2)
    assert (dispatch.has_work, dispatch.has_ready) == (True, True)
    assert [dispatch.needs_hand(), dispatch.needs_hand(), dispatch.coming] == [True, False, True]
    dispatch.coming = False
    first = driver.run()
    assert dispatch.needs_hand()
    dispatch.coming = False
    second = driver.run()
    assert not dispatch.needs_hand()
    driver.end(first)
    assert dispatch.needs_hand()
    assert dispatch.handling == {second: "2"}


@pytest.mark.parametrize(
    ("one_by_one", "over", "delivers"),
    [(True, 1, False), (True, 3, True), (False, 1, True)],
)
def test_jobs_begin_before_few_outcomes_are_taken(one_by_one: bool, over: int, delivers: bool) -> None:
    driver = Driver(concurrency=6, one_by_one=one_by_one)
    driver.fetched(6)
    for number in [driver.run() for _ in range(over)] if one_by_one else [driver.run()]:
        driver.end(number)
    assert (driver.dispatch.next() is DELIVER) is delivers


def test_many_jobs_gather_no_more_than_two_calls_take() -> None:
    driver = Driver(concurrency=1_000)
    driver.answer("fetchMany", [job_reply(str(number)) for number in range(MOST_JOBS)])
    driver.answer("fetchMany", [job_reply(str(number)) for number in range(MOST_JOBS)])
    for number in [driver.run() for _ in range(MOST_JOBS - 1)]:
        driver.end(number)
    last = driver.run()
    driver.end(last)
    assert driver.dispatch.next() is DELIVER


def test_at_most_two_deliveries_are_under_way() -> None:
    driver = Driver(concurrency=3)
    driver.fetched(3)
    runs = [driver.run() for _ in range(3)]
    deliveries: list[Delivery] = []
    for number in runs[:MOST_DELIVERIES]:
        driver.end(number)
        delivery = driver.deliver()
        assert delivery is not None
        deliveries.append(delivery)
    driver.end(runs[2])
    assert (driver.dispatch.next(), driver.dispatch.needs_hand(), driver.dispatch.has_work) == (None, False, False)
    driver.delivered(deliveries[0], 0)
    assert driver.dispatch.needs_hand()
    third = driver.deliver()
    assert third is not None
    assert [call.command.args[0] for call in third.calls] == ["3"]


def test_a_job_that_was_called_off_does_not_begin() -> None:
    driver = Driver(concurrency=3)
    driver.fetched(3)
    first = driver.run()
    driver.tell(CloseRequested(force=True))
    cancelled = [step for step in driver.others if isinstance(step, CancelJob)]
    handles = [driver.dispatch.call_off(step.run, step.reason) for step in cancelled]
    assert handles == ["1", None, None]
    # Those that never began are reported to the machine, and released.
    assert driver.dispatch.begin() is None
    assert driver.dispatch.has_returned
    assert driver.deliver() is None
    del driver.dispatch.handling[first]
    driver.dispatch.ended(None)
    for _ in range(3):
        driver.answer("moveJobFromActiveToWait", 0)
    assert driver.machine.running_jobs == 0


def test_a_hand_finds_what_was_called_off_and_goes_on() -> None:
    driver = Driver(concurrency=6, one_by_one=True)
    driver.fetched(6)
    assert driver.dispatch.call_off(1, "lock lost") is None
    work = driver.dispatch.next()
    assert isinstance(work, RunJob)
    assert (work.run, driver.dispatch.has_returned) == (2, True)
    assert called_off("lock lost").message == "lock lost"


def test_a_job_that_was_given_back_does_not_begin_however_late_it_is_put() -> None:
    driver = Driver(concurrency=1)
    actions = driver.dispatch.answered(driver.call("moveToActive"), job_reply("1"), 0.5, driver.at())
    driver.tell(CloseRequested(force=True))
    [cancelled] = [step for step in driver.others if isinstance(step, CancelJob)]
    assert driver.dispatch.call_off(cancelled.run, cancelled.reason) is None
    driver.answer("moveJobFromActiveToWait", 0)
    assert driver.machine.running_jobs == 0
    driver.do(actions)
    assert driver.dispatch.has_ready
    assert driver.dispatch.next() is DELIVER


def test_a_job_that_is_given_back_does_not_begin_in_a_worker_that_closes() -> None:
    """Also where nobody has called it off yet."""
    driver = Driver(concurrency=2)
    driver.fetched(2)
    driver.run()
    driver.dispatch.ending.closed = True
    driver.tell(CloseRequested(force=True))
    driver.answer("moveJobFromActiveToWait", 0)
    driver.answer("moveJobFromActiveToWait", 0)
    assert (driver.dispatch.next(), driver.dispatch.has_ready) == (None, False)


def test_what_the_user_asks_for_leaves_what_returned_for_later() -> None:
    driver = Driver()
    stream = Stream()
    driver.dispatch.streams = (stream,)
    driver.fetched(1)
    driver.end(driver.run())
    driver.do(driver.dispatch.ask(PauseRequested(), driver.at()))
    assert (stream.kept[-1], driver.dispatch.has_returned) == (Paused(), True)


def test_a_handler_that_raised_is_reported_at_once() -> None:
    driver = Driver()
    driver.fetched(1)
    number = driver.run()
    driver.do(driver.dispatch.over(number, JobRaised(number, called_off("x"), 0.5), driver.at()))
    assert (driver.dispatch.handling, driver.dispatch.has_returned) == ({}, False)
    assert driver.dispatch.next() is DELIVER


def test_what_returned_is_reported_again_where_the_machine_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    driver.fetched(1)
    driver.end(driver.run())

    def broken(*_: Any) -> Any:
        raise LookupError

    with monkeypatch.context() as patch:
        patch.setattr(WorkerMachine, "handle_all", broken)
        with pytest.raises(LookupError):
            driver.tell()
    assert driver.dispatch.has_returned
    driver.tell()
    assert not driver.dispatch.has_returned
    assert driver.dispatch.has_work
    driver.dispatch.ended(JobReturned(9, "null"))
    driver.dispatch.drop_returned()
    assert not driver.dispatch.has_returned


# --- outcomes ---------------------------------------------------------------------------------------------------------


def _three(driver: Driver) -> Delivery:
    """Let three handlers return; return what takes their outcomes to the server."""
    driver.tells = (JobCompleted, Disconnected)
    driver.fetched(3)
    for number in [driver.run() for _ in range(3)]:
        driver.end(number)
    delivery = driver.deliver()
    assert delivery is not None
    assert len(delivery.calls) == 3
    return delivery


def _completed(driver: Driver) -> list[str]:
    found = [step.notice for step in driver.others if isinstance(step, Notify)]
    return [notice.job.id for notice in found if isinstance(notice, JobCompleted)]


def test_outcomes_go_together() -> None:
    driver = Driver(concurrency=3)
    delivery = _three(driver)
    assert delivery.command().name == "finishMany"
    assert delivery.command() is delivery.command()
    driver.delivered(delivery, stored(delivery))
    assert _completed(driver) == ["1", "2", "3"]
    assert driver.dispatch.contacted
    assert not driver.dispatch.has_work


def test_one_outcome_goes_alone() -> None:
    driver = Driver()
    driver.tells = (JobCompleted,)
    driver.fetched(1)
    driver.end(driver.run())
    delivery = driver.deliver()
    assert delivery is not None
    assert delivery.command() is delivery.calls[0].command
    driver.delivered(delivery, 0)
    assert _completed(driver) == ["1"]


def test_outcomes_that_the_server_left_go_first_the_next_time() -> None:
    driver = Driver(concurrency=3)
    delivery = _three(driver)
    driver.delivered(delivery, [0])
    assert _completed(driver) == ["1"]
    following = driver.deliver()
    assert following is not None
    assert following.calls == delivery.calls[1:]
    driver.delivered(following, stored(following))
    assert _completed(driver) == ["1", "2", "3"]


def test_an_outcome_that_fails_does_not_fail_the_others() -> None:
    driver = Driver(concurrency=3)
    delivery = _three(driver)
    driver.delivered(delivery, [0, [b"OOM no memory"], 0])
    assert _completed(driver) == ["1", "3"]
    assert driver.machine.running_jobs == 1


@pytest.mark.parametrize("outcome", [[], [0, 0, 0, 0], 7, ConnectionLost("gone", maybe_applied=True), MemoryError()])
def test_a_delivery_that_fails_fails_all_its_outcomes(outcome: Any) -> None:
    driver = Driver(concurrency=3)
    delivery = _three(driver)
    driver.delivered(delivery, outcome)
    assert _completed(driver) == []
    lost = isinstance(outcome, (ConnectionLost, MemoryError))
    assert any(isinstance(step, Notify) and isinstance(step.notice, Disconnected) for step in driver.others) is lost


def test_a_reply_is_counted_again() -> None:
    class Odd(Delivery):
        def command(self) -> Command[Any]:
            return Command[Any]("X", (), (), lambda reply: [0] * cast("int", reply))

    for count in (0, 4):
        driver = Driver(concurrency=3)
        driver.delivered(Odd(_three(driver).calls, MERGING), count)
        assert _completed(driver) == []


def test_a_delivery_that_was_cut_off_is_made_by_another() -> None:
    driver = Driver(concurrency=3)
    delivery = _three(driver)
    driver.dispatch.requeue(delivery)
    following = driver.deliver()
    assert following is not None
    assert following.calls == delivery.calls
    assert driver.dispatch.next() is None
    driver.delivered(following, stored(following))
    driver.dispatch.put(Queued([], [delivery.calls[0]]))
    assert driver.dispatch.next() is DELIVER
    driver.dispatch.requeue(None)
    assert driver.dispatch.has_work


# --- contact ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "contacted", "ends"),
    [
        (AuthenticationFailed("NOAUTH no"), False, True),
        (AuthenticationFailed("NOAUTH no"), True, False),
        (ServerTooOld("old"), False, True),
        (UsageError("a", 1, "b"), False, True),
        (Closed("closed"), True, True),
        (ConnectionLost("lost", maybe_applied=False), False, False),
        (OSError("no socket"), False, False),
    ],
    ids=repr,
)
def test_what_nothing_can_mend_ends_the_worker(error: Exception, contacted: bool, ends: bool) -> None:
    driver = Driver()
    driver.dispatch.contacted = contacted
    driver.answer("moveToActive", error)
    assert driver.dispatch.ending.closed is ends
    assert driver.dispatch.ending.error is (error if ends else None)
    assert (driver.machine.state is WorkerState.DRAINING) is ends


def test_the_first_error_counts_and_none_after_the_close() -> None:
    ending = RunEnd()
    first = LookupError()
    ending.fail(first)
    ending.fail(ValueError())
    ending.stopped("gave up")
    assert (ending.error, ending.closed) == (first, True)
    driver = Driver()
    driver.dispatch.ending.closed = True
    driver.answer("moveToActive", Closed("closed"))
    assert driver.dispatch.ending.error is None
    driver.dispatch.ending.stopped(None)
    assert driver.dispatch.ending.error is None
    driver.dispatch.ending.stopped("gave up")
    assert str(driver.dispatch.ending.error) == "gave up"


def test_the_answer_of_a_wait_is_reported_too() -> None:
    driver = Driver()
    driver.answer("moveToActive", NO_JOB)
    driver.answer("BZPOPMIN", ConnectionLost("lost", maybe_applied=True))
    assert not driver.machine.adrift or driver.dispatch.may_close_offline


@pytest.mark.parametrize(
    ("error", "closed", "expected"),
    [
        (ConnectionLost("lost", maybe_applied=False), False, True),
        (ConnectionLost("given up", maybe_applied=False), True, False),
        (OSError("no socket"), False, True),
        (OSError("no socket"), True, False),
        (ServerError("NOPERM no"), False, False),
        (Closed("closed"), True, False),
    ],
    ids=repr,
)
def test_a_server_that_is_not_there_may_come(error: Exception, closed: bool, expected: bool) -> None:
    dispatch = Driver().dispatch
    dispatch.ending.closed = closed
    assert dispatch.unmet(error) is expected


@pytest.mark.parametrize(
    "error",
    [Closed("closed"), AuthenticationFailed("NOAUTH no"), ServerTooOld("old"), UsageError("a", 1, "b")],
    ids=repr,
)
def test_what_no_later_attempt_mends_is_known_at_once(error: BullMQError) -> None:
    with pytest.raises(type(error)) as caught:
        Driver().dispatch.unmet(error)
    assert caught.value is error


def test_who_holds_nothing_does_not_wait_for_a_silent_server() -> None:
    driver = Driver()
    assert driver.dispatch.may_close_offline
    driver.fetched(1)
    assert not driver.dispatch.may_close_offline


def test_the_connection_is_looked_at_while_nobody_waits() -> None:
    driver = Driver()
    dispatch = driver.dispatch
    assert not dispatch.should_look(1_000)
    driver.fetched(1)
    assert [dispatch.should_look(now) for now in (1_000, 1_001, 1_000 + LOOK_MS)] == [True, False, True]


def test_the_worker_is_listed_though_it_never_waits() -> None:
    driver = Driver()
    dispatch = driver.dispatch
    driver.fetched(1)
    assert dispatch.introducing(1_000)
    assert not dispatch.should_introduce(1_000, has_ended=True)
    due = 1_000 + INTRODUCE_MS
    assert dispatch.should_introduce(due, has_ended=False)
    dispatch.introduced()
    later = due + INTRODUCE_MS
    assert not dispatch.should_introduce(later, has_ended=False)
    assert dispatch.should_introduce(later, has_ended=True)
    dispatch.ending.closed = True
    assert not dispatch.introducing(later)


def test_who_waits_is_listed_already() -> None:
    driver = Driver()
    driver.answer("moveToActive", NO_JOB)
    assert not driver.dispatch.introducing(1_000)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_where_the_hands_are_gone_what_is_owed_is_done() -> None:
    driver = Driver(concurrency=3)
    delivery = _three(driver)
    stream = Stream()
    driver.dispatch.streams = (stream,)
    driver.dispatch.ended(JobReturned(99, "null"))
    actions = driver.dispatch.last_actions(driver.at())
    calls = [action for action in actions if isinstance(action, Call)]
    assert [call.ticket for call in calls] == [call.ticket for call in delivery.calls]
    assert {call.command.args[5] for call in calls} == {"0"}
    assert not driver.dispatch.has_returned
    assert [type(notice) for notice in stream.kept] == [Closing]


def test_where_the_machine_is_broken_its_jobs_are_named() -> None:
    driver = Driver(concurrency=3)
    driver.fetched(3)
    number = driver.run()
    driver.do(driver.dispatch.over(number, JobReturned(number, "null"), driver.at()))
    calls, ready = driver.dispatch.abandon()
    assert [command.name for command in calls] == ["moveToFinished"]
    assert ready == [("2", "w:1"), ("3", "w:2")]
    assert not driver.dispatch.has_ready


def test_the_end_is_reported() -> None:
    driver = Driver(paused=True)
    driver.tells = (ClosedNotice,)
    driver.answer("moveStalledJobsToWait", [])
    driver.answer("PTTL", 3_000)
    driver.tell(CloseRequested(), Tick(0.5))
    assert driver.others == [INTRODUCE, Notify(ClosedNotice()), Stopped(None)]


def test_it_is_quiet_where_nothing_runs_and_nothing_is_on_its_way() -> None:
    driver = Driver(paused=True)
    assert driver.dispatch.is_quiet
    driver = Driver(concurrency=2)
    # A fetch is under way.
    assert not driver.dispatch.is_quiet
    driver.fetched(1)
    assert not driver.dispatch.is_quiet


def test_a_connection_that_the_server_closed_is_an_event() -> None:
    assert closed_by_server(0.25) == ConnectionEnded("the server closed the connection", 0.25)
