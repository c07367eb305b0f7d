"""Rules of schedulers: what is refused, when the next job is due, and what is packed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from bullmq_protocol.commands.schedulers import JobScheduler
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import FLEET_SWITCHES, STRICT_SWITCHES, V6_7_SWITCHES, Switches
from bullmq_protocol.errors import ServerError, UnexpectedReply, UsageError
from bullmq_protocol.model.backoff import Backoff
from bullmq_protocol.model.cron import CronError
from bullmq_protocol.model.job import JobRecord, NewJob
from bullmq_protocol.model.options import Deduplication, JobOptions, Limits, ParentRef, Telemetry
from bullmq_protocol.model.schedule import (
    Due,
    PreparedScheduler,
    RepeatOptions,
    check_scheduler_id,
    find_zone,
    next_due,
    no_zones,
    options_of_next,
    prepare_scheduler,
    rule_of,
    stored_moment,
)
from bullmq_protocol.operations.read_schedulers import get_job_schedulers
from bullmq_protocol.operations.upsert_scheduler import upsert_scheduler
from tests.support.refusals import shows

K = QueueKeys.of("q")
NOW = 1_700_000_000_000
EAST = timezone(timedelta(hours=9))


def zones(name: str) -> tzinfo | None:
    return {"local": EAST, "Asia/Tokyo": EAST}.get(name)


def prepared(
    repeat: RepeatOptions, scheduler_id: str = "s", template: NewJob | None = None, **options: Any
) -> PreparedScheduler | None:
    return prepare_scheduler(K, scheduler_id, repeat, template or NewJob("jn"), now_ms=NOW, zones=zones, **options)


BAD: list[tuple[Any, str, str]] = [
    (RepeatOptions(), "pattern", "must be given, or every"),
    (RepeatOptions(every=5, pattern="* * * * *"), "every", "together with pattern"),
    (RepeatOptions(every=0), "every", "at least 1"),
    (RepeatOptions(every=-5), "every", "at least 1"),
    (RepeatOptions(every=1.5), "every", "whole number"),  # type: ignore[arg-type]
    (RepeatOptions(every=timedelta(0)), "every", "at least 1"),
    (RepeatOptions(pattern=""), "pattern", "must not be empty"),
    (RepeatOptions(pattern=5), "pattern", "must be a string"),  # type: ignore[arg-type]
    (RepeatOptions(pattern="61 * * * *"), "pattern", "minute: Constraint error, got value 61 expected range 0-59"),
    (RepeatOptions(pattern="0 0 30 2 *"), "pattern", "Invalid explicit day of month definition"),
    (RepeatOptions(pattern="* * * * *", tz="Europe/Nowhere"), "tz", "is no known time zone"),
    (RepeatOptions(every=5, tz=""), "tz", "is no known time zone"),
    (RepeatOptions(every=5, tz=3), "tz", "must be a string: an IANA name"),  # type: ignore[arg-type]
    (RepeatOptions(every=5, tz=None), "tz", "leave it out for the local zone"),  # type: ignore[arg-type]
    (RepeatOptions(every=5, limit=0), "limit", "at least 1"),
    (RepeatOptions(every=5, limit=True), "limit", "whole number"),
    (RepeatOptions(every=5, offset=-1), "offset", "at least 0"),
    (RepeatOptions(every=5, end_date=NOW - 1), "end_date", "must be greater than the current timestamp"),
    (RepeatOptions(every=5, start_date=NOW + 9, end_date=NOW + 8), "end_date", "must not be before start_date"),
    (RepeatOptions(every=5, start_date=datetime(2026, 1, 1)), "start_date", "must have a time zone"),
    (RepeatOptions(every=5, start_date="2026-01-01"), "start_date", "or a datetime"),  # type: ignore[arg-type]
    (RepeatOptions(every=5, end_date=True), "end_date", "or a datetime"),
    (RepeatOptions(every=5, start_date=0), "start_date", "at least 1"),
    (RepeatOptions(pattern="* * * * *", immediately=True, start_date=NOW + 9), "immediately", "with start_date"),
    (RepeatOptions(every=5, immediately=1), "immediately", "True or False"),  # type: ignore[arg-type]
    ({"every": 5}, "repeat", "must be a RepeatOptions"),
]


@pytest.mark.parametrize(("repeat", "field", "rule"), BAD)
def test_a_bad_rule_is_refused(repeat: Any, field: str, rule: str) -> None:
    with pytest.raises(UsageError) as raised:
        prepared(repeat)
    assert raised.value.field == field
    assert rule in raised.value.rule
    assert shows(raised.value, repeat) or (repeat == RepeatOptions() and raised.value.value is None)


@pytest.mark.parametrize(
    ("scheduler_id", "rule"),
    [("", "empty"), (5, "string"), ("a:b::c:", "four or more colons"), ("x" * 9, "at most 8")],
)
def test_a_bad_id_is_refused(scheduler_id: Any, rule: str) -> None:
    with pytest.raises(UsageError, match=rule) as raised:
        check_scheduler_id(scheduler_id, Limits(max_name_length=8))
    assert (raised.value.field, raised.value.value) == ("scheduler_id", scheduler_id)


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("job_id", JobOptions(job_id="x")),
        ("delay", JobOptions(delay=5)),
        ("repeat", JobOptions(repeat={"every": 5})),
        ("deduplication", JobOptions(deduplication=Deduplication("x"))),
        ("parent", JobOptions(parent=ParentRef("1", "bull:p"))),
        ("attempts", JobOptions(attempts=0)),
    ],
)
def test_a_bad_template_is_refused(field: str, options: JobOptions) -> None:
    with pytest.raises(UsageError) as raised:
        prepared(RepeatOptions(every=5), template=NewJob("jn", None, options))
    assert raised.value.field == field
    assert raised.value.value is not None and shows(raised.value, options)


def test_ids_with_three_colons_are_good() -> None:
    assert check_scheduler_id("a:b:c:d") == "a:b:c:d"


def test_a_rule_is_stored_in_bullmqs_words() -> None:
    repeat = RepeatOptions(
        every=timedelta(minutes=1),
        tz="UTC+3",
        limit=5,
        offset=7,
        start_date=datetime(2026, 1, 1, tzinfo=EAST),
        end_date=1_893_456_000_000,
    )
    assert list(rule_of(repeat, now=NOW, zones=no_zones).items()) == [
        ("every", 60_000),
        ("tz", "UTC+3"),
        ("limit", 5),
        ("offset", None),
        ("startDate", 1_767_193_200_000),
        ("endDate", 1_893_456_000_000),
    ]


@pytest.mark.parametrize("name", ["local", "system", "Local", "Asia/Tokyo"])
def test_zones_are_asked_for_by_name(name: str) -> None:
    assert find_zone(name, zones) is EAST


def test_without_a_resolver_only_fixed_zones_are_known() -> None:
    assert find_zone("utc", no_zones) == UTC
    with pytest.raises(UsageError, match="no known time zone"):
        find_zone("local", no_zones)


@pytest.mark.parametrize(
    ("rule", "previous", "due"),
    [
        ({"every": 5}, None, Due(1)),
        ({"every": 5, "count": 3, "limit": 4}, None, Due(4)),
        ({"every": 5, "count": 4, "limit": 4}, None, None),
        ({"every": 5, "endDate": NOW}, None, Due(1)),
        ({"every": 5, "endDate": NOW - 1}, None, None),
        # 22:13:20 in UTC, 07:13:20 on the next day in the east.
        ({"pattern": "0 8 * * *"}, None, Due(1, 1_700_002_800_000)),
        ({"pattern": "0 8 * * *", "tz": "Asia/Tokyo"}, 1_700_002_800_000, Due(1, 1_700_089_200_000)),
        ({"pattern": "0 8 * * *", "tz": "Asia/Tokyo", "utc": True}, None, Due(1, 1_700_035_200_000)),
        ({"pattern": "* * * * * *", "tz": "utc"}, NOW + 5_500.5, Due(1, NOW + 6_000)),
        ({"pattern": "* * * * * *", "startDate": NOW + 100_000}, None, Due(1, NOW + 101_000)),
        ({"pattern": "* * * * * *", "startDate": "2023-11-15T07:20:00"}, None, Due(1, 1_700_000_401_000)),
        ({"pattern": "* * * * * *", "startDate": "2023-11-15"}, None, Due(1, 1_700_006_401_000)),
        ({"pattern": "* * * * * *", "startDate": "2023-11-15T01:00:00+01:00"}, None, Due(1, 1_700_006_401_000)),
        ({"pattern": "0 8 * * *", "endDate": NOW + 5}, None, None),
        ({"pattern": "0 0 31 2,4 *"}, None, None),
        ({"pattern": "0 8 * * 1", "nthDayOfWeek": 2, "utc": 1}, None, Due(1, 1_702_281_600_000)),
        ({"pattern": "0 8 * * *", "immediately": True}, None, Due(1, NOW)),
        ({"pattern": "0 8 * * *", "immediately": True}, NOW + 5, Due(1, NOW + 5)),
    ],
)
def test_the_next_job(rule: dict[str, Any], previous: object, due: Due | None) -> None:
    assert next_due(rule, now=NOW, previous=previous, zones=zones) == due


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({}, "pattern"),
        ({"every": 0, "pattern": ""}, "pattern"),
        ({"every": 1, "pattern": "* * * * *"}, "every"),
        ({"pattern": ["*"]}, "pattern"),
        ({"pattern": "* * * * *", "immediately": True, "startDate": 5}, "immediately"),
        ({"pattern": "* * * * *", "tz": 7}, "tz"),
        ({"every": 1, "endDate": "soon"}, "endDate"),
    ],
)
def test_a_stored_rule_that_cannot_be_followed(rule: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as raised:
        next_due(rule, now=NOW, zones=zones)
    assert raised.value.field == field
    assert raised.value.value == rule.get(field)


@pytest.mark.parametrize(
    ("value", "found"), [("", None), (0, None), (None, None), (True, None), (5.5, 5.5), ([], None)]
)
def test_a_stored_date(value: object, found: float | None) -> None:
    assert stored_moment("startDate", {"startDate": value}, zones) == found


def test_the_options_of_the_next_job_keep_their_places() -> None:
    base = {"timestamp": 3, "repeatJobKey": "s", "kl": 7, "prevMillis": 1}
    rule = {"immediately": True, "pattern": "x", "endDate": 9, "count": 1}
    options = options_of_next(base, rule, "s", Due(2, NOW + 5), now=NOW, zones=zones)
    assert list(options.items()) == [
        ("timestamp", NOW),
        ("kl", 7),
        ("prevMillis", NOW + 5),
        ("repeat", {"pattern": "x", "endDate": 9, "count": 2, "offset": None, "startDate": None}),
        ("jobId", f"repeat:s:{NOW + 5}"),
        ("delay", 5),
        ("repeatJobKey", "s"),
    ]


def test_the_next_job_of_an_interval_has_no_slot_yet() -> None:
    options = options_of_next({"prevMillis": 1}, {"every": 5}, "s", Due(1, None), now=NOW, zones=zones)
    assert (options["jobId"], options["delay"], options["timestamp"]) == ("repeat:s:undefined", 0, NOW)
    assert "prevMillis" not in options


def test_a_slot_that_is_over_is_due_at_once() -> None:
    assert options_of_next({}, {}, "s", Due(1, NOW - 5), now=NOW, zones=zones)["delay"] == 0


def test_what_is_packed_for_an_interval() -> None:
    """The first reference state of the specification."""
    template = JobOptions(
        attempts=3, remove_on_complete=True, priority=0, keep_logs=7, backoff=1000, telemetry=Telemetry("md")
    )
    found = prepared(
        RepeatOptions(every=60_000, limit=5),
        template=NewJob("jn", {"a": 1}, template),
        defaults=JobOptions(delay=5, job_id="x", fail_parent_on_failure=True, extra={"foo": 1}),
    )
    assert found is not None
    assert (found.name, found.data_text, found.next_at, found.warnings) == ("jn", '{"a":1}', None, ())
    assert found.template == {
        "fpof": True,
        "foo": 1,
        "attempts": 3,
        "backoff": 1000,
        "priority": 0,
        "removeOnComplete": True,
        "kl": 7,
        "tm": "md",
    }
    assert list(found.options)[-5:] == ["repeat", "jobId", "delay", "timestamp", "repeatJobKey"]
    assert found.options["repeat"] == {"every": 60_000, "limit": 5, "offset": None, "count": 1} | {
        "startDate": None,
        "endDate": None,
    }


def test_what_is_packed_for_a_pattern() -> None:
    found = prepared(RepeatOptions(pattern="0 8 * * *", immediately=True))
    assert found is not None
    assert (found.template, found.data_text, found.next_at) == ({}, "{}", NOW)
    assert found.options == {
        "repeat": {"pattern": "0 8 * * *", "offset": None, "count": 1, "startDate": None, "endDate": None},
        "jobId": f"repeat:s:{NOW}",
        "delay": 0,
        "timestamp": NOW,
        "prevMillis": NOW,
        "repeatJobKey": "s",
    }


def test_options_without_fields_and_backoffs_keep_their_form() -> None:
    options = JobOptions(backoff=Backoff("fixed", timedelta(seconds=1)), extra={"attempts_": 2})
    found = prepared(RepeatOptions(every=5), template=NewJob("jn", None, options))
    assert found is not None
    assert found.template == {"backoff": {"type": "fixed", "delay": 1000}, "attempts_": 2}


def test_immediately_together_with_every_is_warned_of() -> None:
    found = prepared(RepeatOptions(every=5, immediately=True))
    assert found is not None and "immediately has no effect" in found.warnings[0]


def test_no_next_run_is_no_scheduler() -> None:
    assert prepared(RepeatOptions(pattern="0 0 31 2,4 *")) is None


def answer(operation: Iterator[Any], *replies: Any) -> Any:
    """Answer an operation's steps in turn; return the steps and the result."""
    steps = [next(operation)]
    for reply in replies:
        try:
            steps.append(operation.send(reply))  # type: ignore[attr-defined]
        except StopIteration as stop:
            return steps, stop.value
    raise AssertionError("it goes on")


def test_a_scheduler_is_created_and_its_job_returned() -> None:
    rule = RepeatOptions(pattern="0 8 * * *", tz="Asia/Tokyo", limit=7, start_date=NOW + 1, end_date=NOW + 10**9)
    found = prepared(rule, template=NewJob("jn", {"a": 1}))
    assert found is not None
    (command,), job = answer(upsert_scheduler(K, found), [b"repeat:s:5", 17])
    assert (command.name, command.args[0], command.args[6]) == ("addJobScheduler", 1_700_002_800_000, NOW)
    schedule = msgspec.msgpack.decode(command.args[1])
    assert {field: value for field, value in schedule.items() if value is not None} == {
        "name": "jn",
        "tz": "Asia/Tokyo",
        "pattern": "0 8 * * *",
        "startDate": NOW + 1,
        "endDate": NOW + 10**9,
        "limit": 7,
    }
    assert command.args[2:4] == ("s", '{"a":1}')
    assert [msgspec.msgpack.decode(packed) for packed in command.args[4:6]] == [found.template, found.options]
    assert isinstance(job, JobRecord)
    assert (job.id, job.name, job.data, job.delay, job.repeat_job_key) == ("repeat:s:5", "jn", {"a": 1}, 17, "s")
    assert (job.timestamp, job.opts.job_id, job.opts.delay) == (NOW, "repeat:s:5", 17)


def test_an_interval_is_sent_as_such() -> None:
    found = prepared(RepeatOptions(every=5))
    assert found is not None
    (command,), _ = answer(upsert_scheduler(K, found), [b"repeat:s:5", 17])
    assert msgspec.msgpack.decode(command.args[1])["every"] == 5


def test_schedulers_are_listed_in_parts_of_a_hundred() -> None:
    slots = [part for number in range(101) for part in (b"s%d" % number, b"%d" % number)]
    record = [b"name", b"jn"]
    steps, found = answer(get_job_schedulers(K, start=1, end=5, ascending=True), slots, [record] * 100, [record])
    assert (steps[0].name, steps[0].args) == ("ZRANGE", (1, 5, "WITHSCORES"))
    assert [len(step.commands) for step in steps[1:]] == [100, 1]
    assert found[100] == JobScheduler(key="s100", name="jn", next_at=100)


def test_the_rule_of_an_old_repeatable_job_may_hold_colons() -> None:
    _, (found,) = answer(get_job_schedulers(K), [b"jn:7:9:UTC:a:b", b"5"], [[]])
    assert (found.key, found.name, found.next_at) == ("jn:7:9:UTC:a:b", "jn", 5)
    assert (found.tz, found.pattern, found.every) == ("UTC", "a:b", None)


def test_a_record_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ServerError, match="WRONGTYPE"):
        answer(get_job_schedulers(K), [b"s", b"1"], [ServerError("WRONGTYPE no hash")])
    with pytest.raises(UnexpectedReply):
        answer(get_job_schedulers(K), [b"s", b"1"], [7])
    for field in ("start", "end"):
        with pytest.raises(UsageError) as caught:
            answer(get_job_schedulers(K, **{field: True}))  # type: ignore[arg-type]
        assert (caught.value.field, caught.value.value) == (field, True)


def test_a_rule_may_end_now() -> None:
    rule = rule_of(RepeatOptions(every=1000, end_date=NOW), now=NOW, zones=zones)
    assert rule["endDate"] == NOW


def test_an_offset_of_another_type_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        rule_of(RepeatOptions(every=1000, offset="x"), now=NOW, zones=zones)  # type: ignore[arg-type]
    assert caught.value.field == "offset"


# --- profiles

FLEET = QueueKeys.of("q", switches=FLEET_SWITCHES)


def _fleet_rule(zone: tzinfo = UTC, **options: Any) -> dict[str, Any]:
    return rule_of(RepeatOptions(**options), now=NOW, zones=lambda name: zone, switches=FLEET_SWITCHES)


def test_in_a_fleet_the_zone_is_always_stored() -> None:
    paris = ZoneInfo("Europe/Paris")
    assert _fleet_rule(paris, pattern="0 6 * * *", tz="europe/paris")["tz"] == "Europe/Paris"
    assert _fleet_rule(paris, pattern="0 6 * * *")["tz"] == "Europe/Paris"
    assert _fleet_rule(paris, pattern="0 6 * * *", tz="local")["tz"] == "Europe/Paris"
    assert _fleet_rule(pattern="0 6 * * *", tz="UTC+3")["tz"] == "UTC+3"
    assert _fleet_rule(pattern="0 6 * * *")["tz"] == "UTC"
    assert "tz" not in _fleet_rule(every=1000)
    strict = rule_of(RepeatOptions(pattern="0 6 * * *"), now=NOW, zones=lambda name: paris)
    assert "tz" not in strict


def test_in_a_fleet_a_zone_must_mean_the_same_to_all() -> None:
    taken = "; the profiles STRICT and V6_7 take it"
    said = f"tz: must be an IANA name: other processes have local zones of their own{taken}"
    with pytest.raises(UsageError, match=said):
        _fleet_rule(timezone(timedelta(hours=3)), pattern="0 6 * * *")
    for name in ("Australia/Lord_Howe", "Australia/LHI"):
        with pytest.raises(UsageError, match=f"tz: changes its clock by half an hour.*{taken}"):
            _fleet_rule(ZoneInfo(name), pattern="0 6 * * *", tz=name)
        with pytest.raises(UsageError, match="tz: changes its clock by half an hour"):
            _fleet_rule(ZoneInfo(name), pattern="0 6 * * *")


def test_in_a_fleet_a_pattern_must_be_read_alike_by_all() -> None:
    """On a worker of BullMQ 6 the job of such a scheduler never runs: it goes round in `active`."""
    with pytest.raises(CronError, match="pattern: BullMQ 6 refuses it: second: 0 comes twice; the profile STRICT"):
        _fleet_rule(pattern="*/2,*/3 * * * * *")
    rule_of(RepeatOptions(pattern="*/2,*/3 * * * * *"), now=NOW, zones=no_zones)


@pytest.mark.parametrize(
    ("switches", "pattern", "said"),
    [
        (STRICT_SWITCHES, "@weekdays", "day of week: .*; the profile V6_7 takes it"),
        (V6_7_SWITCHES, "1,1 * * * *", "minute: 1 comes twice; the profile STRICT takes it"),
        (FLEET_SWITCHES, "1,1 * * * *", "BullMQ 6 refuses it: minute: 1 comes twice; the profile STRICT takes it"),
        (FLEET_SWITCHES, "@weekdays", r"day of week: BullMQ 5 refuses it \(.*\); the profile V6_7 takes it"),
        (FLEET_SWITCHES, "0 0 15 * 1-7", "BullMQ 5 and BullMQ 6 combine .*; the profiles STRICT and V6_7 take it"),
    ],
)
def test_a_refused_pattern_names_the_profiles_that_take_it(switches: Switches, pattern: str, said: str) -> None:
    with pytest.raises(CronError, match=f"^pattern: {said} "):
        rule_of(RepeatOptions(pattern=pattern), now=NOW, zones=no_zones, switches=switches)


@pytest.mark.parametrize("switches", [STRICT_SWITCHES, FLEET_SWITCHES, V6_7_SWITCHES])
def test_no_profile_is_named_for_a_pattern_that_all_refuse(switches: Switches) -> None:
    with pytest.raises(CronError) as raised:
        rule_of(RepeatOptions(pattern="61 * * * *"), now=NOW, zones=no_zones, switches=switches)
    assert "profile" not in str(raised.value)


def test_an_offset_is_stored_for_an_interval_in_later_versions() -> None:
    assert _fleet_rule(every=1000, offset=timedelta(milliseconds=900))["offset"] == 900
    assert _fleet_rule(pattern="0 6 * * *", offset=900)["offset"] is None
    prepared = prepare_scheduler(
        FLEET, "s", RepeatOptions(every=1000, offset=900), NewJob("n"), now_ms=NOW, zones=no_zones
    )
    assert prepared is not None
    assert (prepared.rule["offset"], prepared.options["repeat"]["offset"]) == (900, 900)
    due = Due(2, None)
    again = options_of_next({}, prepared.options["repeat"], "s", due, now=NOW, zones=no_zones, switches=FLEET_SWITCHES)
    assert again["repeat"]["offset"] == 900
    strange = options_of_next({}, {"offset": "x"}, "s", due, now=NOW, zones=no_zones, switches=FLEET_SWITCHES)
    assert strange["repeat"]["offset"] is None
