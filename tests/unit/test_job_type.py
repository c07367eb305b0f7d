"""A kind of job as a value."""

import copy
from typing import Any

import msgspec
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import Backoff, JobOptions, JobType, UsageError


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
    found = WELCOME.with_options(JobOptions(backoff=Backoff("fixed", 10), attempts=5, extra={"other": 2}))
    assert found == JobOptions(attempts=5, backoff=Backoff("fixed", 10), extra={"own": 1, "other": 2})


@pytest.mark.parametrize("package", [bullmq_anyio, bullmq_sync])
def test_a_job_takes_up_to_three_types(package: Any) -> None:
    for types in ((Welcome,), (Welcome, int), (Welcome, int, str)):
        assert package.Job[types].__args__ == types
    assert package.Job[Welcome].__origin__ is package.Job
