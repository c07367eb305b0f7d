"""A kind of job as a value."""

import copy
from typing import Any

import msgspec
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import Backoff, JobOptions, JobType, NewJob, QueueKeys, RepeatOptions, UsageError, prepare
from bullmq_protocol.model import job_type
from bullmq_protocol.model.schedule import prepare_scheduler
from bullmq_sync.zones import find_zone


class Welcome(msgspec.Struct):
    to: str


WELCOME = JobType("welcome", Welcome, result=int, options=JobOptions(attempts=3, extra={"own": 1}))


def test_it_holds_what_it_is_made_of() -> None:
    assert (WELCOME.name, WELCOME.data_type, WELCOME.result_type) == ("welcome", Welcome, int)
    plain = JobType("plain")
    assert (plain.data_type, plain.result_type, plain.options) == (Any, Any, JobOptions())


def test_it_is_a_frozen_value() -> None:
    with pytest.raises(AttributeError):
        WELCOME.name = "other"  # type: ignore[misc]
    same = JobType("welcome", Welcome, result=int, options=JobOptions(attempts=3, extra={"own": 1}))
    assert same == WELCOME
    assert copy.deepcopy(same) == same
    assert len({same, WELCOME}) == 1
    assert same != JobType("welcome", Welcome)


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("", {}, "name"),
        (1, {}, "name"),
        ("x", {"data_type": object()}, "data_type"),
        ("x", {"result": pytest}, "result"),
        ("x", {"options": {"attempts": 3}}, "options"),
    ],
)
def test_what_is_wrong_is_refused_by_field(name: Any, arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        JobType(name, **arguments)
    assert caught.value.field == field


def test_options_of_one_job_go_on_top() -> None:
    assert WELCOME.with_options(None) is WELCOME.options
    assert WELCOME.with_options(JobOptions()) is WELCOME.options
    found = WELCOME.with_options(JobOptions(backoff=Backoff("fixed", 10), attempts=5, extra={"other": 2}))
    assert found == JobOptions(attempts=5, backoff=Backoff("fixed", 10), extra={"own": 1, "other": 2})


@pytest.mark.parametrize("wrong", [{"delay": 5}, 5, Backoff("fixed", 10)])
def test_what_are_no_options_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"^options: must be a JobOptions"):
        WELCOME.with_options(wrong)


def test_another_type_error_is_not_taken_for_wrong_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise TypeError("another fault")

    monkeypatch.setattr(job_type, "merged", refuse)
    with pytest.raises(TypeError, match="another fault"):
        WELCOME.with_options(JobOptions(attempts=1))


def test_a_job_to_be_added_may_have_a_type() -> None:
    keys = QueueKeys.of("q")
    job = prepare(keys, NewJob(WELCOME, Welcome("ada"), JobOptions(attempts=5)), now_ms=1, data_type=int)
    assert (job.name, job.data_text, job.options.attempts) == ("welcome", '{"to":"ada"}', 5)
    assert job.options.extra == {"own": 1}
    with pytest.raises(UsageError, match=r"^data: "):
        prepare(keys, NewJob(WELCOME, 3), now_ms=1, data_type=int)  # type: ignore[call-overload]  # pyright: ignore
    template = NewJob(WELCOME, Welcome("ada"))
    rule = RepeatOptions(every=1_000)
    scheduler = prepare_scheduler(keys, "s", rule, template, now_ms=1, zones=find_zone, data_type=int)
    assert scheduler is not None
    assert (scheduler.name, scheduler.data_text, scheduler.template["attempts"]) == ("welcome", '{"to":"ada"}', 3)


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_a_job_takes_up_to_three_types(package: Any) -> None:
    for types in ((Welcome,), (Welcome, int), (Welcome, int, str)):
        assert package.Job[types].__args__ == types
    assert package.Job[Welcome].__origin__ is package.Job
