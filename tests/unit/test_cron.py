"""The tables of the specification, and what they leave out: zones by name, the ends of the calendar, odd numbers."""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bullmq_protocol.model.cron import CronError, NoNextRun, fixed_zone, next_run, parse_cron

SPEC = (Path(__file__).parents[2] / "specs" / "04-schedulers-flows-events.md").read_text(encoding="utf-8")
RUNS = re.compile(r"^\| (\d+) \| (.*?) \| (tz=.*?) \| (\S+) \| (.*) \|$", re.MULTILINE)
ODD = re.compile(r"^\| `(.*?)`( with a blank in front)? \| ((?:throws|valid|no next run).*) \|$", re.MULTILINE)
START = "2026-01-15T10:07:30Z"


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def text(moment: int) -> str:
    return datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="auto").replace("+00:00", "Z")


def table_of_runs() -> list[Any]:
    rows = []
    for number, pattern, options, start, runs in RUNS.findall(SPEC):
        given = dict(option.split("=") for option in options.split(", "))
        found = re.findall(r"none \([^)]*\)|[0-9T:.-]+Z", runs)
        pattern = "   " if pattern == "three blanks" else pattern.strip("`")
        rows.append(pytest.param(pattern, given, start, found, id=number))
    return rows


def zone_of(given: dict[str, str]) -> tzinfo:
    return UTC if given.get("utc") == "true" else fixed_zone(given["tz"]) or ZoneInfo(given["tz"])


@pytest.mark.parametrize(("pattern", "given", "start", "runs"), table_of_runs())
def test_table_of_next_runs(pattern: str, given: dict[str, str], start: str, runs: list[str]) -> None:
    cron = parse_cron(pattern, nth=int(given["nthDayOfWeek"]) if "nthDayOfWeek" in given else None)
    end = ms(given["endDate"]) if "endDate" in given else None
    at = max(ms(start), ms(given.get("startDate", start)))
    for expected in runs:
        if expected.startswith("none"):
            with pytest.raises(NoNextRun, match=re.escape(expected[6:-1])):
                next_run(cron, at, zone_of(given), end=end)
        else:
            at = next_run(cron, at, zone_of(given), end=end)
            assert at == ms(expected), text(at)


def test_all_rows_of_the_tables_are_read() -> None:
    assert len(table_of_runs()) == 102
    assert len(ODD.findall(SPEC)) == SPEC.split('<a id="sec-5-8">')[1].split('<a id="sec-6">')[0].count("\n| `")


@pytest.mark.parametrize(("pattern", "blank", "result"), ODD.findall(SPEC), ids=lambda value: str(value)[:30])
def test_table_of_odd_patterns(pattern: str, blank: str, result: str) -> None:
    pattern = " " + pattern if blank else pattern
    quoted = re.search(r"`` (.*?) ``|`(.*?)`", result)
    said = next(found for found in quoted.groups() if found is not None) if quoted else ""
    if result.startswith("throws"):
        with pytest.raises(CronError) as raised:
            parse_cron(pattern)
        assert (raised.value.field, raised.value.value, raised.value.reason) == ("pattern", pattern, said)
        return
    cron = parse_cron(pattern)
    if result.startswith("valid"):
        assert text(next_run(cron, ms(START), UTC)) == result.removeprefix("valid, next ")
    else:
        with pytest.raises(NoNextRun) as missing:
            next_run(cron, ms(START), UTC)
        assert str(missing.value) == said


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("60 * * * *", "pattern: minute: Constraint error, got value 60 expected range 0-59 (got '60 * * * *')"),
        ("1 2 3 4 5 6 7", "pattern: Invalid cron expression (got '1 2 3 4 5 6 7')"),
        ("* * * * -L", "pattern: day of week: Constraint error, got value NaN expected range 0-7 (got '* * * * -L')"),
        ("* * * * 1#1.5x", "occurrence number"),
        ("* * * * 1#0b110", "occurrence number"),
        (f"{'9' * 30} * * * *", "got value 1e+30 expected"),
    ],
)
def test_an_error_names_part_value_and_rule(pattern: str, message: str) -> None:
    with pytest.raises(CronError, match=re.escape(message)):
        parse_cron(pattern)


def test_numbers_of_occurrences_are_read_as_javascript_does() -> None:
    assert [parse_cron(f"0 0 * * 1#{nth}").nth for nth in ("0x2", "0b10", "1e0", "+3", "2.")] == [2, 2, 1, 3, 2]
    with pytest.raises(NoNextRun, match="loop limit"):
        next_run(parse_cron("0 0 * * 1#1.5"), ms(START), UTC)


def test_a_step_may_be_larger_than_any_span() -> None:
    assert parse_cron(f"5/{'9' * 400} * * * *").minutes == (5,)


@pytest.mark.parametrize(
    ("pattern", "zone", "start", "runs"),
    [
        # The clock is put forward by half an hour at 02:00, which no search sees, and back at 02:00.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", ["2026-10-04T15:15:00Z"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z"]),
        # 02:45 becomes 03:45.
        ("0 3 * * *", "Pacific/Chatham", "2026-09-26T12:00:00Z", ["2026-09-26T14:15:00Z", "2026-09-27T13:15:00Z"]),
        # Midnight comes twice; the offset of the same time on the next day decides.
        ("0 0 * * 0", "America/Havana", "2017-11-05T00:00:00Z", ["2017-11-05T05:00:00Z", "2017-11-12T05:00:00Z"]),
        # 31 entries are all days of a month, also where some of them are the same.
        ("0 0 1-20,1-11 * 1", "UTC", "2026-11-28T00:00:00Z", ["2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"]),
        # A whole day is missing.
        ("0 0 * * *", "Pacific/Apia", "2011-12-29T12:00:00Z", ["2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"]),
        ("30 2 * * *", "Australia/Sydney", "2026-10-03T12:00:00Z", ["2026-10-03T16:30:00Z", "2026-10-04T15:30:00Z"]),
        ("0 0 31 12 *", "America/Sao_Paulo", "2026-12-31T03:00:00Z", ["2027-12-31T03:00:00Z"]),
    ],
)
def test_zones_with_odd_changes(pattern: str, zone: str, start: str, runs: list[str]) -> None:
    cron, at, found = parse_cron(pattern), ms(start), []
    for _ in runs:
        at = next_run(cron, at, ZoneInfo(zone))
        found.append(text(at))
    assert found == runs


def test_hours_that_come_twice_or_never() -> None:
    """A search may meet the gap and the repeated hour on its way to somewhere else."""
    new_york = ZoneInfo("America/New_York")
    assert text(next_run(parse_cron("0 5 * * *"), ms("2026-03-08T05:30:00Z"), new_york)) == "2026-03-08T09:00:00Z"
    assert text(next_run(parse_cron("0 1,4 * * *"), ms("2026-11-01T05:30:00Z"), new_york)) == "2026-11-01T09:00:00Z"


@pytest.mark.parametrize("start", ["9999-12-31T23:59:00Z", "9998-01-01T00:00:00Z"])
def test_the_calendar_ends(start: str) -> None:
    with pytest.raises(NoNextRun, match="calendar ends"):
        next_run(parse_cron("0 0 29 2 *"), ms(start), UTC)


class Nowhere(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    def fromutc(self, moment: datetime) -> datetime:
        return moment


@pytest.mark.parametrize(("year", "last"), [(2099, 28), (2100, 28), (2104, 29), (2399, 28), (2400, 29)])
def test_the_last_day_of_february(year: int, last: int) -> None:
    assert text(next_run(parse_cron("0 0 L * *"), ms(f"{year}-02-01T00:00:00Z"), UTC)) == f"{year}-02-{last}T00:00:00Z"


def test_a_zone_without_offset_counts_as_utc() -> None:
    assert text(next_run(parse_cron("0 12 * * *"), ms(START), Nowhere())) == "2026-01-15T12:00:00Z"


@pytest.mark.parametrize(
    ("name", "minutes"),
    [("utc", 0), ("UTC", 0), ("UTC+3", 180), ("utc-05", -300), ("UTC+05:30", 330), ("UTC-0:30", -30), ("UTC+24", None)],
)
def test_fixed_zones(name: str, minutes: int | None) -> None:
    assert fixed_zone(name) == (None if minutes is None else timezone(timedelta(minutes=minutes)))


@pytest.mark.parametrize("name", ["+03:00", "Europe/Berlin", "", "local", "UTC+", "UTC+123"])
def test_other_names_are_no_fixed_zones(name: str) -> None:
    assert fixed_zone(name) is None


@pytest.mark.parametrize(("start", "found"), [("2026-01-02", "2026-01-05"), ("2026-02-03", "2026-02-09")])
def test_all_days_with_the_last_are_no_choice_of_days(start: str, found: str) -> None:
    days = "1-30,L" if start < "2026-02" else "1-28,L"
    assert text(next_run(parse_cron(f"0 0 {days} * 1"), ms(f"{start}T00:00:00Z"), UTC)) == f"{found}T00:00:00Z"


@pytest.mark.parametrize(
    ("pattern", "runs"),
    [
        ("", "2026-01-15T10:08:00Z"),
        ("* * * *", "2026-01-15T11:00:00Z"),
        ("* * *", "2026-01-16T00:00:00Z"),
        ("@weekends", "2026-01-17T00:00:00Z"),
        ("0,0 * * * *", "2026-01-15T11:00:00Z"),
        ("*/2,*/3 * * * *", "2026-01-15T10:08:00Z"),
        ("0 0 * * 5/6", "2026-01-16T00:00:00Z"),
        ("0 0 31,L 2 *", "2026-02-28T00:00:00Z"),
        ("41 * 7 * 1#2", "2026-02-09T00:41:00Z"),
        ("0 0 * * 5L", "2026-01-30T00:00:00Z"),
    ],
)
def test_what_monques_parser_reads(pattern: str, runs: str) -> None:
    assert text(next_run(parse_cron(pattern, dialect="5.5"), ms(START), UTC)) == runs


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("* * * * * * *", "Invalid cron expression, too many fields"),
        ("*", "Constraint error, got value 0 expected range 1-12"),
        ("5,1,5 * * * *", "CronMinute Validation error, duplicate values found: 5"),
        ("0 0 L,L * *", "CronDayOfMonth Validation error, duplicate values found: L"),
        ("0 0 31 2 1", "Invalid explicit day of month definition"),
        ("H * * * *", "H stands for a value of chance, another one each time"),
    ],
)
def test_what_monques_parser_refuses(pattern: str, reason: str) -> None:
    with pytest.raises(CronError) as raised:
        parse_cron(pattern, dialect="5.5")
    assert raised.value.reason == reason


def test_monques_parser_leaves_out_the_hour_after_a_jump() -> None:
    zone = ZoneInfo("Europe/Berlin")
    found = [parse_cron("0 3 * * *", dialect=dialect) for dialect in ("4.9", "5.5")]
    at = ms("2025-03-29T12:00:00Z")
    assert [text(next_run(each, at, zone)) for each in found] == ["2025-03-30T01:00:00Z", "2025-03-31T01:00:00Z"]
