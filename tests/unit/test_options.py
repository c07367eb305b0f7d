"""Options of a job: merged, checked, stored, read back."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.backoff import Backoff
from bullmq_protocol.model.job import check_options
from bullmq_protocol.model.options import (
    MAX_PRIORITY,
    RETRY_3_EXPONENTIAL,
    Deduplication,
    JobOptions,
    KeepJobs,
    Limits,
    ParentRef,
    Telemetry,
    check_job_id,
    given,
    merge,
    result_text,
    stored,
    stored_options_from,
    validate,
)
from bullmq_protocol.model.schedule import RepeatOptions
from tests.support.refusals import shows

PARENT = ParentRef("P", "bull:q")

# --- storing and reading ---

STORED: list[tuple[JobOptions, dict[str, Any]]] = [
    (JobOptions(), {"attempts": 0}),
    (JobOptions(attempts=3), {"attempts": 3}),
    (JobOptions(backoff=Backoff("fixed", 100)), {"attempts": 0, "backoff": {"type": "fixed", "delay": 100}}),
    (
        JobOptions(backoff=Backoff("exponential", 5, 0.5)),
        {"attempts": 0, "backoff": {"type": "exponential", "delay": 5, "jitter": 0.5}},
    ),
    (JobOptions(backoff=Backoff("own", extra={"x": 1})), {"attempts": 0, "backoff": {"type": "own", "x": 1}}),
    (JobOptions(delay=0.5), {"attempts": 0, "delay": 0.5}),
    (JobOptions(priority=7, lifo=False), {"attempts": 0, "priority": 7, "lifo": False}),
    (JobOptions(timestamp=1, job_id="A"), {"attempts": 0, "timestamp": 1, "jobId": "A"}),
    (JobOptions(parent=PARENT), {"attempts": 0, "parent": {"id": "P", "queue": "bull:q"}}),
    (
        JobOptions(remove_on_complete=True, remove_on_fail=100),
        {"attempts": 0, "removeOnComplete": True, "removeOnFail": 100},
    ),
    (
        JobOptions(remove_on_complete=KeepJobs(count=5), remove_on_fail=KeepJobs(age=4.5, limit=9)),
        {"attempts": 0, "removeOnComplete": {"count": 5}, "removeOnFail": {"age": 4.5, "limit": 9}},
    ),
    (
        JobOptions(keep_logs=7, stack_trace_limit=2, size_limit=9),
        {"attempts": 0, "kl": 7, "stackTraceLimit": 2, "sizeLimit": 9},
    ),
    (JobOptions(repeat={"every": 5}, prev_millis=3), {"attempts": 0, "repeat": {"every": 5}, "prevMillis": 3}),
    (
        JobOptions(deduplication=Deduplication("d", 50, extend=True, replace=False)),
        {"attempts": 0, "de": {"id": "d", "ttl": 50, "extend": True, "replace": False}},
    ),
    (
        JobOptions(deduplication=Deduplication("d", keep_last_if_active=True)),
        {"attempts": 0, "de": {"id": "d", "keepLastIfActive": True}},
    ),
    (JobOptions(fail_parent_on_failure=True), {"attempts": 0, "fpof": True}),
    (JobOptions(continue_parent_on_failure=True), {"attempts": 0, "cpof": True}),
    (JobOptions(ignore_dependency_on_failure=True), {"attempts": 0, "idof": True}),
    (JobOptions(remove_dependency_on_failure=False), {"attempts": 0, "rdof": False}),
    (JobOptions(telemetry=Telemetry("ctx", True)), {"attempts": 0, "tm": "ctx", "omc": True}),
    (JobOptions(telemetry=Telemetry("ctx")), {"attempts": 0, "tm": "ctx"}),
    (JobOptions(telemetry=Telemetry(omit_context=False)), {"attempts": 0, "omc": False}),
    (JobOptions(extra={"later": [1], "b": "x"}), {"attempts": 0, "later": [1], "b": "x"}),
]


@pytest.mark.parametrize(("options", "mapping"), STORED, ids=[repr(options) for options, _ in STORED])
def test_options_are_stored_under_their_short_names_and_read_back(options: JobOptions, mapping: dict[str, Any]) -> None:
    assert stored(options) == mapping
    assert given(stored_options_from(mapping)) == {"attempts": 0, **given(options)}


@pytest.mark.parametrize(
    ("options", "mapping"),
    [
        (JobOptions(backoff=100), {"attempts": 0, "backoff": {"type": "fixed", "delay": 100}}),
        (JobOptions(backoff=timedelta(seconds=2)), {"attempts": 0, "backoff": {"type": "fixed", "delay": 2000}}),
        (
            JobOptions(backoff=Backoff("fixed", timedelta(seconds=1))),
            {"attempts": 0, "backoff": {"type": "fixed", "delay": 1000}},
        ),
        (JobOptions(delay=timedelta(milliseconds=1500)), {"attempts": 0, "delay": 1500}),
        (
            JobOptions(remove_on_fail=KeepJobs(1, timedelta(hours=1))),
            {"attempts": 0, "removeOnFail": {"count": 1, "age": 3600.0}},
        ),
        (
            JobOptions(deduplication=Deduplication("d", timedelta(seconds=1))),
            {"attempts": 0, "de": {"id": "d", "ttl": 1000}},
        ),
        (
            JobOptions(repeat={"pattern": "* * * * *", "endDate": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)}),
            {"attempts": 0, "repeat": {"pattern": "* * * * *", "endDate": 1700000000000}},
        ),
        (JobOptions(repeat_job_key="s"), {"attempts": 0}),
        (JobOptions(telemetry=Telemetry()), {"attempts": 0}),
        (JobOptions(extra={"gone": None, "b": 1}), {"attempts": 0, "b": 1}),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_options_are_stored_as_javascript_would_have_them(options: JobOptions, mapping: dict[str, Any]) -> None:
    assert stored(options) == mapping


def test_attempts_come_first_and_names_like_integers_before_them() -> None:
    options = JobOptions(timestamp=5, delay=1, attempts=2, extra={"b": 1, "10": 2, "2": 3, "01": 4})
    assert list(stored(options)) == ["2", "10", "attempts", "delay", "timestamp", "b", "01"]


def test_the_call_wins_over_the_defaults_and_brings_the_id() -> None:
    defaults = JobOptions(attempts=3, lifo=True, job_id="default", extra={"a": 1, "b": 1})
    call = JobOptions(attempts=5, delay=7, extra={"b": 2})
    assert merge(defaults, call) == JobOptions(attempts=5, lifo=True, delay=7, extra={"a": 1, "b": 2})
    assert merge(defaults, JobOptions(job_id="own")).job_id == "own"
    assert merge(defaults, JobOptions()) == JobOptions(attempts=3, lifo=True, extra={"a": 1, "b": 1})
    assert merge(JobOptions(), call) == call


def test_read_numbers_are_integers_where_they_are_whole() -> None:
    options = stored_options_from({"attempts": 3.0, "delay": 1e14, "priority": 1.5, "backoff": 2.0})
    assert given(options) == {"attempts": 3, "delay": 10**14, "priority": 1.5, "backoff": Backoff("fixed", 2)}
    assert type(options.attempts) is int


@pytest.mark.parametrize(
    "mapping",
    [
        {"attempts": "3"},
        {"attempts": True},
        {"attempts": math.inf},
        {"backoff": "fast"},
        {"backoff": {"delay": 5}},
        {"lifo": 1},
        {"jobId": 5},
        {"parent": {"id": "P"}},
        {"parent": "P"},
        {"removeOnComplete": "yes"},
        {"repeat": []},
        {"de": {"ttl": 5}},
        {"fpof": "true"},
        {"tm": False},
        {"omc": "x"},
        {"debounce": {"id": "d"}},
    ],
    ids=repr,
)
def test_values_of_a_strange_type_are_kept(mapping: dict[str, Any]) -> None:
    options = stored_options_from(mapping)
    assert options == JobOptions(extra=mapping)
    assert stored(options) == {"attempts": 0, **mapping}


def test_strange_members_are_kept_beside_good_ones() -> None:
    mapping = {"backoff": {"type": "fixed", "delay": "5", "x": 1}, "removeOnFail": {"count": "3"}}
    options = stored_options_from(mapping)
    assert options.backoff == Backoff("fixed", extra={"delay": "5", "x": 1})
    assert options.remove_on_fail == KeepJobs(extra={"count": "3"})
    assert stored(options) == {"attempts": 0, **mapping}


def test_nulls_count_as_absent() -> None:
    assert stored_options_from({"delay": None, "other": None}) == JobOptions()


# --- checking ---

GOOD: list[JobOptions] = [
    JobOptions(),
    RETRY_3_EXPONENTIAL,
    JobOptions(attempts=1, priority=0, delay=0, keep_logs=0, stack_trace_limit=0),
    JobOptions(attempts=3.0, priority=MAX_PRIORITY, timestamp=1, size_limit=1),
    JobOptions(backoff=1),
    JobOptions(backoff=0.5),
    JobOptions(backoff=timedelta(milliseconds=1)),
    JobOptions(backoff=Backoff("own")),
    JobOptions(backoff=Backoff("own", 10, 1)),
    JobOptions(backoff=Backoff("fixed", timedelta(seconds=1), 0.0)),
    JobOptions(delay=timedelta(days=1)),
    JobOptions(delay=5, repeat={"every": 5, "count": 1}),
    JobOptions(remove_on_complete=-1, remove_on_fail=KeepJobs(-1, timedelta(0))),
    JobOptions(remove_on_complete=True, remove_on_fail=False),
    JobOptions(remove_on_complete=KeepJobs(), remove_on_fail=KeepJobs(age=0.5)),
    JobOptions(parent=PARENT, fail_parent_on_failure=True, ignore_dependency_on_failure=False),
    JobOptions(deduplication=Deduplication("d"), prev_millis=0, repeat_job_key="s"),
    JobOptions(deduplication=Deduplication("d", timedelta(seconds=1), True, False)),
    JobOptions(telemetry=Telemetry()),
    JobOptions(telemetry=Telemetry("", True), lifo=True),
    JobOptions(extra={"later": 1}),
]


@pytest.mark.parametrize("options", GOOD, ids=repr)
def test_good_options_pass_without_a_warning(options: JobOptions) -> None:
    assert validate(options) == []


def options_of(**fields: Any) -> JobOptions:
    """Build options as an unchecked caller does."""
    return JobOptions(**fields)


BAD: list[tuple[JobOptions, str, str]] = [
    (options_of(attempts=0), "attempts", "at least 1"),
    (options_of(attempts=-1), "attempts", "at least 1"),
    (options_of(attempts=1.5), "attempts", "whole number"),
    (options_of(attempts="3"), "attempts", "whole number"),
    (options_of(attempts=True), "attempts", "whole number"),
    (options_of(attempts=None), "attempts", "whole number"),
    (options_of(attempts=2**53), "attempts", "at least 1"),
    (options_of(backoff=0), "backoff", "above 0"),
    (options_of(backoff=-1), "backoff", "above 0"),
    (options_of(backoff=math.nan), "backoff", "above 0"),
    (options_of(backoff=math.inf), "backoff", "above 0"),
    (options_of(backoff=True), "backoff", "above 0"),
    (options_of(backoff="fixed"), "backoff", "above 0"),
    (options_of(backoff=timedelta(0)), "backoff", "above 0"),
    (options_of(backoff=Backoff("", 5)), "backoff.type", "empty"),
    (options_of(backoff=Backoff(5, 5)), "backoff.type", "string"),  # type: ignore[arg-type]
    (options_of(backoff=Backoff("fixed", 0)), "backoff.delay", "above 0"),
    (options_of(backoff=Backoff("own", -5)), "backoff.delay", "above 0"),
    (options_of(backoff=Backoff("exponential")), "backoff.delay", "must be given"),
    (options_of(backoff=Backoff("fixed", 5, 1.1)), "backoff.jitter", "from 0 to 1"),
    (options_of(backoff=Backoff("fixed", 5, -0.1)), "backoff.jitter", "from 0 to 1"),
    (options_of(backoff=Backoff("fixed", 5, True)), "backoff.jitter", "from 0 to 1"),
    (options_of(backoff=Backoff("fixed", 5, math.nan)), "backoff.jitter", "from 0 to 1"),
    (options_of(delay=-1), "delay", "at least 0"),
    (options_of(delay=timedelta(seconds=-1)), "delay", "at least 0"),
    (options_of(delay=0.5), "delay", "whole number"),
    (options_of(delay="5"), "delay", "milliseconds or a timedelta"),
    (options_of(delay=True), "delay", "milliseconds or a timedelta"),
    (options_of(delay=2**53), "delay", "at least 0"),
    (options_of(delay=5, repeat={"every": 5}), "delay", "repeat"),
    (options_of(priority=-1), "priority", "from 0 to 2097152"),
    (options_of(priority=MAX_PRIORITY + 1), "priority", "from 0 to 2097152"),
    (options_of(priority=0.5), "priority", "whole number"),
    (options_of(priority=2.0**60), "priority", "from 0 to 2097152"),
    (options_of(priority=math.nan), "priority", "whole number"),
    (options_of(priority=False), "priority", "whole number"),
    (options_of(lifo=1), "lifo", "True or False"),
    (options_of(timestamp=0), "timestamp", "at least 1"),
    (options_of(timestamp=-5), "timestamp", "at least 1"),
    (options_of(timestamp=datetime(2023, 11, 14, tzinfo=UTC)), "timestamp", "whole number"),
    (options_of(parent=("P", "bull:q")), "parent", "ParentRef"),
    (options_of(parent=ParentRef("", "bull:q")), "parent.id", "empty"),
    (options_of(parent=ParentRef("P", "q")), "parent.queue", "qualified"),
    (options_of(parent=ParentRef("\ud800", "bull:q")), "parent.id", "surrogates"),
    (options_of(remove_on_complete="x"), "remove_on_complete", "KeepJobs"),
    (options_of(remove_on_complete=1.5), "remove_on_complete", "KeepJobs"),
    (options_of(remove_on_fail=-2), "remove_on_fail", "at least -1"),
    (options_of(remove_on_fail=KeepJobs(1.5)), "remove_on_fail.count", "whole number"),  # type: ignore[arg-type]
    (options_of(remove_on_fail=KeepJobs(-2)), "remove_on_fail.count", "at least -1"),
    (options_of(remove_on_fail=KeepJobs(age=-1)), "remove_on_fail.age", "at least 0"),
    (options_of(remove_on_fail=KeepJobs(age="5")), "remove_on_fail.age", "seconds"),  # type: ignore[arg-type]
    (options_of(remove_on_fail=KeepJobs(age=True)), "remove_on_fail.age", "seconds"),
    (options_of(keep_logs=-1), "keep_logs", "at least 0"),
    (options_of(stack_trace_limit=-1), "stack_trace_limit", "at least 0"),
    (options_of(size_limit=0), "size_limit", "at least 1"),
    (options_of(repeat=5), "repeat", "mapping"),
    (options_of(repeat=RepeatOptions(every=5)), "repeat", "to add one use upsert_job_scheduler"),
    (options_of(prev_millis=-1), "prev_millis", "at least 0"),
    (options_of(repeat_job_key=5), "repeat_job_key", "string"),
    (options_of(deduplication="d"), "deduplication", "Deduplication"),
    (options_of(deduplication=Deduplication("")), "deduplication.id", "empty"),
    (options_of(deduplication=Deduplication(None)), "deduplication.id", "string"),  # type: ignore[arg-type]
    (options_of(deduplication=Deduplication("d", 0)), "deduplication.ttl", "at least 1"),
    (options_of(deduplication=Deduplication("d", 1.5)), "deduplication.ttl", "whole number"),  # type: ignore[arg-type]
    (options_of(deduplication=Deduplication("d", "5")), "deduplication.ttl", "timedelta"),  # type: ignore[arg-type]
    (options_of(deduplication=Deduplication("d", extend=1)), "deduplication.extend", "True or False"),  # type: ignore[arg-type]
    (options_of(deduplication=Deduplication("d", replace="")), "deduplication.replace", "True or False"),  # type: ignore[arg-type]
    (options_of(fail_parent_on_failure=1), "fail_parent_on_failure", "True or False"),
    (options_of(telemetry="x"), "telemetry", "Telemetry"),
    (options_of(telemetry=Telemetry(5)), "telemetry.metadata", "string"),  # type: ignore[arg-type]
    (options_of(telemetry=Telemetry(omit_context=0)), "telemetry.omit_context", "True or False"),  # type: ignore[arg-type]
    (options_of(extra=[1]), "extra", "mapping"),
    (options_of(extra={5: 1}), "extra", "string"),
    *(
        (options_of(extra={name: 1}), "extra", "field of its own")
        for name in ("attempts", "jobId", "job_id", "fpof", "removeOnFail", "failParentOnFailure", "tm", "debounce")
    ),
]


@pytest.mark.parametrize(("options", "field", "rule"), BAD, ids=[f"{field}: {options!r}" for options, field, _ in BAD])
def test_bad_options_are_refused_with_field_value_and_rule(options: JobOptions, field: str, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate(options)
    assert caught.value.field == field
    assert rule in caught.value.rule
    assert field in str(caught.value)
    assert shows(caught.value, options)


def test_flags_for_the_parent_exclude_each_other() -> None:
    options = JobOptions(
        fail_parent_on_failure=True, remove_dependency_on_failure=True, continue_parent_on_failure=False
    )
    with pytest.raises(UsageError, match="together: remove_dependency_on_failure, fail_parent_on_failure"):
        validate(options)


@pytest.mark.parametrize(
    "backoff", [3_600_001, timedelta(hours=2), Backoff("own", 3_600_001), Backoff("fixed", timedelta(hours=2))]
)
def test_a_backoff_above_one_hour_warns(backoff: Any) -> None:
    (warning,) = validate(JobOptions(backoff=backoff))
    assert "more than one hour" in warning
    assert validate(JobOptions(backoff=Backoff("fixed", 3_600_000))) == []


@pytest.mark.parametrize(
    "job_id",
    [
        "A",
        "0123",
        "1e3",
        "-5.5",
        "Infinity",
        "  ",
        "a:b:c",
        "repeat:s:1700000000000",
        "12345678901234567890123",
        "-0",
        "ä😀",
        "9007199254740993",
        "waits",
        "x" * 255,
        "１２",
    ],
)
def test_ids_that_a_caller_may_choose(job_id: str) -> None:
    assert validate(JobOptions(job_id=job_id)) == []


@pytest.mark.parametrize(
    ("job_id", "rule"),
    [
        ("", "empty"),
        ("0", "'0'"),
        ("0:", "'0:'"),
        ("0:a:b", "'0:'"),
        ("12", "integer"),
        ("-5", "integer"),
        ("9007199254740992", "integer"),
        ("NaN", "integer"),
        ("a:b", "':'"),
        ("a:b:c:d", "':'"),
        (":", "':'"),
        ("meta", "own keys"),
        ("waiting-children", "own keys"),
        ("stalled-check", "own keys"),
        ("de:a:b", "own keys"),
        ("metrics:completed:data", "own keys"),
        ("x" * 256, "at most 255"),
        ("\udfff", "surrogates"),
        (12, "string"),
        (None, "string"),
    ],
)
def test_ids_that_collide_or_hold_forbidden_colons_are_refused(job_id: Any, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate(JobOptions(job_id=job_id))
    assert caught.value.field == "job_id"
    assert rule in caught.value.rule


def test_the_length_of_ids_can_be_lifted() -> None:
    check_job_id("job_id", "x" * 256, Limits(max_name_length=None))
    with pytest.raises(UsageError, match="at most 3 characters, has 4"):
        check_job_id("job_id", "abcd", Limits(max_name_length=3))


def test_options_named_like_numbers_come_first() -> None:
    assert list(stored(JobOptions(extra={"10": "b", "x": "c", "9": "a"})).items())[:3] == [
        ("9", "a"),
        ("10", "b"),
        ("attempts", 0),
    ]


def test_a_return_value_that_is_no_json_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        result_text(object())
    assert caught.value.field == "returnvalue"


def test_options_that_contain_themselves_are_refused() -> None:
    extra: dict[str, Any] = {}
    extra["of"] = [extra]
    with pytest.raises(UsageError, match="must not be cyclic or nested too deeply"):
        check_options(JobOptions(), JobOptions(extra=extra))
