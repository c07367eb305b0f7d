"""What the kit says of jobs: plain values, readable differences, outcomes; and how it shortens what expires."""

from typing import Any

import pytest
from msgspec import UNSET

from bullmq_protocol import JobRecord, JobType, QueueKeys, ServerError, UsageError
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.errors import UnexpectedReply
from bullmq_protocol.testing.expiry import shorten_expiry
from bullmq_protocol.testing.jobs import (
    CompletedJob,
    FailedAttempt,
    MovedJob,
    Outcomes,
    QueuedJob,
    WorkedOff,
    find_added,
    queued_jobs,
    refuse_added,
    wanted,
)
from bullmq_protocol.worker.notices import JobCompleted, JobFailed, JobMoved

KEYS = QueueKeys.of("mail")


def _job(job_id: str, name: str, data: Any, state: str = "waiting") -> QueuedJob:
    return QueuedJob(name=name, data=data, id=job_id, queue="mail", state=state)


def _record(job_id: str) -> JobRecord:
    fields = {"name": b"welcome", "data": b'{"to":"ada"}', "opts": b'{"delay":5}', "delay": b"5", "priority": b"2"}
    return JobRecord(job_id, {**fields, "timestamp": b"1", "atm": b"1"})


# --- what a queue holds -----------------------------------------------------------------------------------------------


def test_jobs_are_read_state_by_state() -> None:
    # `waiting` has two lists: that of a paused queue comes with it.
    ranges = iter([[[b"2", b"1"], []], [[b"3"]]])
    fields = [each for pair in _record("").fields.items() for each in (pair[0].encode(), pair[1])]
    operation = queued_jobs(KEYS, ("waiting", "delayed"))
    step = next(operation)
    found: list[QueuedJob] = []
    try:
        while True:
            step = operation.send([fields] * len(step.commands) if isinstance(step, Batch) else next(ranges))
    except StopIteration as stop:
        found = stop.value
    assert [(each.id, each.state) for each in found] == [("1", "waiting"), ("2", "waiting"), ("3", "delayed")]
    assert (found[0].data, found[0].delay, found[0].priority, found[0].attempts_made) == ({"to": "ada"}, 5, 2, 1)
    assert found[0].options.delay == 5


def test_a_wrong_list_of_states_is_refused() -> None:
    with pytest.raises(UsageError):
        next(queued_jobs(KEYS, 5))  # type: ignore[arg-type]


# --- was it added? ----------------------------------------------------------------------------------------------------

JOBS = [
    _job("1", "welcome", {"to": "ada", "cc": ["x"]}),
    _job("2", "farewell", {"to": "grace"}, "failed"),
    _job("3", "welcome", "plain", "completed"),
    _job("4", "welcome", {"to": "grace"}, "delayed"),
]


def test_the_last_job_that_fits_is_found() -> None:
    assert find_added(JOBS, wanted("welcome", UNSET, {}), "mail").id == "4"
    assert find_added(JOBS, wanted("welcome", UNSET, {"to": "ada"}), "mail").id == "1"
    # A tuple is a list in JSON.
    assert find_added(JOBS, wanted("welcome", {"to": "ada", "cc": ("x",)}, {}), "mail").id == "1"
    assert find_added(JOBS, wanted("welcome", UNSET, {"cc": ("x",)}), "mail").id == "1"
    assert find_added(JOBS, wanted("welcome", "plain", {}), "mail").id == "3"


def test_the_difference_can_be_read() -> None:
    with pytest.raises(AssertionError) as caught:
        find_added(JOBS, wanted("welcome", UNSET, {"to": "alan", "cc": ["x"]}), "mail")
    assert str(caught.value) == (
        "no job 'welcome' with to 'alan', cc ['x'] among the 4 jobs of queue 'mail'; the nearest:\n"
        "  1 welcome (waiting)\n"
        "    to is 'ada', not 'alan'\n"
        "  3 welcome (completed)\n"
        "    to is missing\n"
        "    cc is missing\n"
        "  4 welcome (delayed)\n"
        "    to is 'grace', not 'alan'\n"
        "    cc is missing"
    )


def test_a_job_of_the_name_is_nearer_than_any_other() -> None:
    others = [_job(f"{number}", "farewell", {"to": "alan", "cc": 1}) for number in range(5, 9)]
    with pytest.raises(AssertionError) as caught:
        find_added([*others, *JOBS], wanted("welcome", UNSET, {"to": "alan", "cc": 1}), "mail")
    nearest = [line for line in str(caught.value).splitlines() if line.startswith("  ") and line[2] != " "]
    assert nearest == ["  1 welcome (waiting)", "  3 welcome (completed)", "  4 welcome (delayed)"]


def test_a_whole_payload_is_compared_as_a_whole() -> None:
    with pytest.raises(AssertionError) as caught:
        find_added(JOBS[1:2], wanted("welcome", {"to": "ada"}, {}), "mail")
    assert str(caught.value) == (
        "no job 'welcome' with the payload {'to': 'ada'} among the 1 job of queue 'mail'; the nearest:\n"
        "  2 farewell (failed)\n"
        "    its name is 'farewell'\n"
        "    its payload is {'to': 'grace'}"
    )


def test_an_empty_queue_is_called_empty() -> None:
    with pytest.raises(AssertionError, match="no job 'welcome' in queue 'mail', which is empty"):
        find_added([], wanted("welcome", UNSET, {}), "mail")


def test_what_must_not_be_there_is_shown() -> None:
    refuse_added(JOBS, wanted("welcome", UNSET, {"to": "alan"}), "mail")
    with pytest.raises(AssertionError) as caught:
        refuse_added(JOBS, wanted("farewell", UNSET, {}), "mail")
    assert str(caught.value) == "there is a job 'farewell' in queue 'mail':\n  2 farewell (failed): {'to': 'grace'}"


def test_a_name_is_text() -> None:
    with pytest.raises(UsageError, match="name"):
        wanted(5, UNSET, {})
    assert wanted(JobType("welcome", dict[str, str]), UNSET, {}).name == "welcome"


# --- what became of jobs ----------------------------------------------------------------------------------------------


def _failed(job_id: str, error: object, delay: float | None = None) -> JobFailed:
    return JobFailed(_record(job_id), "why", 2, delay, delay is None, False, 3, exception=error)


def test_outcomes_are_sorted_by_their_kind() -> None:
    outcomes, error = Outcomes(), ValueError("why")
    outcomes.add(_failed("1", error, 10.0))
    outcomes.add(JobCompleted(_record("1"), '"ok"', 3))
    outcomes.add(JobMoved(_record("2"), "delayed"))
    outcomes.add(_failed("3", error))
    values: dict[str, Any] = {"name": "welcome", "data": {"to": "ada"}}
    attempt: dict[str, Any] = {**values, "reason": "why", "attempts_made": 2, "exception": error}
    assert outcomes.worked_off() == WorkedOff(
        (CompletedJob(id="1", result="ok", attempts_made=2, **values),),
        (FailedAttempt(id="3", **attempt),),
        (FailedAttempt(id="1", retry_delay_ms=10.0, **attempt),),
        (MovedJob(id="2", how="delayed", **values),),
    )


def test_what_the_last_attempt_raised_is_raised() -> None:
    outcomes, error = Outcomes(), ValueError("why")
    outcomes.check()
    outcomes.add(_failed("1", KeyError("first"), 0.0))
    outcomes.add(JobCompleted(_record("1"), "null", 3))
    outcomes.add(_failed("2", error, 10.0))
    with pytest.raises(ValueError, match="why") as caught:
        outcomes.check()
    assert caught.value is error
    assert error.__notes__ == ["raised by the processor of job 2 (welcome)"]


def test_several_failures_are_a_group() -> None:
    outcomes = Outcomes()
    outcomes.add(_failed("1", ValueError("one")))
    outcomes.add(_failed("2", None))
    with pytest.raises(ExceptionGroup, match="2 jobs failed") as caught:
        outcomes.check()
    one, two = caught.value.exceptions
    assert isinstance(one, ValueError)
    assert repr(two) == "AssertionError('job 2 (welcome) failed: why')"


# --- what expires by the server's clock -------------------------------------------------------------------------------


def _names(commands: Any) -> list[tuple[Any, ...]]:
    return [(command.name, *command.keys, *command.args) for command in commands]


def test_what_expires_does_so_earlier() -> None:
    names = [b"bull:mail:limiter", b"bull:mail:1", b"bull:mail:de:x", b"bull:mail:1:lock"]
    steps: list[Any] = []

    def replies() -> Any:
        yield [True, ("7", [name.decode() for name in names])]
        yield [500, -1, 5_000]
        yield [1, 1]
        yield [True, ("0", [])]

    operation, given = shorten_expiry(KEYS, 500), replies()
    step = next(operation)
    changed = None
    while changed is None:
        steps.append(_names(step.commands))
        try:
            step = operation.send(next(given))
        except StopIteration as stop:
            changed = stop.value
    assert changed == 2
    assert steps == [
        [("EXISTS", "bull:mail:meta"), ("SCAN", "0", "MATCH", "bull:mail:*", "COUNT", 1000)],
        [("PTTL", "bull:mail:limiter"), ("PTTL", "bull:mail:1"), ("PTTL", "bull:mail:de:x")],
        [("UNLINK", "bull:mail:limiter"), ("PEXPIRE", "bull:mail:de:x", 4_500)],
        [("EXISTS", "bull:mail:meta"), ("SCAN", "7", "MATCH", "bull:mail:*", "COUNT", 1000)],
    ]


def test_locks_expire_where_that_is_asked_for() -> None:
    operation = shorten_expiry(QueueKeys.of("[q]*"), 500, locks=True)
    step = next(operation)
    assert isinstance(step, Batch)
    assert step.commands[1].args[2] == r"bull:\[q\]\*:*"
    step = operation.send([True, ("0", ["bull:[q]*:1:lock"])])
    assert isinstance(step, Batch)
    assert _names(step.commands) == [("PTTL", "bull:[q]*:1:lock")]
    with pytest.raises(StopIteration) as stop:
        operation.send([-2])
    assert stop.value.value == 0


def test_faults_of_the_server_are_raised() -> None:
    operation = shorten_expiry(KEYS, 500)
    step = next(operation)
    assert isinstance(step, Batch)
    with pytest.raises(ServerError):
        operation.send([True, ServerError("OOM")])
    scan: Command[Any] = step.commands[1]
    assert scan.decode([b"0", [b"a"]]) == ("0", ["a"])
    with pytest.raises(UnexpectedReply):
        scan.decode([b"0"])
    operation = shorten_expiry(KEYS, 500)
    next(operation)
    operation.send([True, ("0", ["bull:mail:limiter"])])
    with pytest.raises(ServerError):
        operation.send([ServerError("NOPERM")])
    with pytest.raises(UsageError, match="ms"):
        next(shorten_expiry(KEYS, -1))
