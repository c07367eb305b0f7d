"""What BullMQ 5 and BullMQ 6 read in a cron pattern: each of the two, both alike, or one of them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from bullmq_protocol.model.cron import CronError, Dialect, next_run, parse_cron, read_differently

START = round(datetime(2026, 1, 15, 10, 7, 30, tzinfo=UTC).timestamp() * 1000)


def days(pattern: str, dialect: Dialect, count: int = 3) -> list[str] | str:
    """Return the next days, or what the error says."""
    try:
        cron = parse_cron(pattern, dialect=dialect)
    except CronError as error:
        return error.rule
    found: list[str] = []
    at = START
    while len(found) < count:
        at = next_run(cron, at, UTC)
        found.append(datetime.fromtimestamp(at / 1000, UTC).strftime("%m-%d"))
    return found


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("1,1 * * * *", "minute: 1 comes twice"),
        ("1-5,3 * * * *", "minute: 3 comes twice"),
        ("*/2,*/3 * * * * *", "second: 0 comes twice"),
        ("*,5 * * * *", "minute: 5 comes twice"),
        ("* * * * 0,7", "day of week: 0 comes twice"),
        ("0 0 L,L * *", "day of month: L comes twice"),
        ("0 0 * * 5L,5L", "day of week: 5L comes twice"),
        ("* * * * L", "day of week: L needs a day of the week in front of it"),
    ],
)
def test_what_bullmq_6_refuses(pattern: str, why: str) -> None:
    parse_cron(pattern)
    assert days(pattern, "5.10") == why
    assert days(pattern, "common") == f"BullMQ 6 refuses it: {why}"
    assert parse_cron(pattern, dialect="either") == parse_cron(pattern)
    assert read_differently(pattern) == f"BullMQ 6 refuses it: {why}"


@pytest.mark.parametrize(
    ("pattern", "found", "why"),
    [
        ("@annually", ["01-01", "01-01", "01-01"], 'day of week: Validation error, cannot resolve alias "ann"'),
        ("@weekdays", ["01-16", "01-19", "01-20"], None),
        ("@weekends", ["01-17", "01-18", "01-24"], None),
        ("@minutely", ["01-15", "01-15", "01-15"], None),
        ("@secondly", ["01-15", "01-15", "01-15"], None),
        ("? * * * *", ["01-15", "01-15", "01-15"], "minute: Invalid characters, got value: ?"),
        ("0 0 31 11 1", ["11-02", "11-09", "11-16"], "day of month: Invalid explicit day of month definition"),
        ("0 0 L,31 2 *", ["02-28", "02-28", "02-29"], "day of month: Invalid explicit day of month definition"),
        ("0 0 30,5L 2 *", ["02-28", "02-28", "02-29"], "day of month: Invalid explicit day of month definition"),
    ],
)
def test_what_bullmq_5_refuses(pattern: str, found: list[str], why: str | None) -> None:
    old = days(pattern, "4.9")
    assert isinstance(old, str) and why in (old, None)
    assert days(pattern, "5.10") == days(pattern, "either") == found
    assert "BullMQ 5 refuses it (" in days(pattern, "common")
    assert read_differently(pattern) == f"BullMQ 5 refuses it: {old}"


@pytest.mark.parametrize(
    ("pattern", "old", "new"),
    [
        # In a single month BullMQ 5 forgets a day like 5L, which BullMQ 6 takes for the last one.
        ("0 0 1,5L 2 *", ["02-01", "02-01", "02-01"], ["02-01", "02-28", "02-01"]),
        # A step that ends at 7 means Sunday too, in BullMQ 5 alone.
        ("0 0 * * 2/6", ["01-18", "01-20", "01-25"], ["01-20", "01-27", "02-03"]),
        ("0 0 * * 6-7/5", ["01-17", "01-18", "01-24"], ["01-17", "01-24", "01-31"]),
        # With an occurrence within the month BullMQ 5 asks for both, BullMQ 6 for one of the two.
        ("0 0 7 * 1#2", ["02-09", "03-09", "04-13"], ["02-07", "02-09", "03-07"]),
        ("0 0 L * 1#2", ["02-09", "03-09", "04-13"], ["01-31", "02-09", "02-28"]),
        # All values of a part are none in BullMQ 5; in BullMQ 6 only `*` and `?` are.
        ("0 0 15 * 1-7", ["02-15", "03-15", "04-15"], ["01-16", "01-17", "01-18"]),
        ("0 0 15 * */1", ["02-15", "03-15", "04-15"], ["01-16", "01-17", "01-18"]),
        ("0 0 1-31 * 3", ["01-21", "01-28", "02-04"], ["01-16", "01-17", "01-18"]),
        ("0 0 1-29 2 3", ["02-04", "02-11", "02-18"], ["02-01", "02-02", "02-03"]),
    ],
)
def test_what_both_read_in_two_ways(pattern: str, old: list[str], new: list[str]) -> None:
    assert days(pattern, "4.9") == days(pattern, "either") == old
    assert days(pattern, "5.10") == new
    why = read_differently(pattern)
    assert why is not None and why.startswith("BullMQ 5 and BullMQ 6 ")
    assert days(pattern, "common") == why


@pytest.mark.parametrize(
    "pattern",
    [
        *("* * * * *", "*/5 * * * *", "0 12 * * mon-fri", "0 0 1,15 * 3", "0 0 L * *", "0 0 * * 5L", "0 0 * * 1#2"),
        *("@daily", "@hourly", "0 0 31 * *", "0 0 29 2 *", "1-3,4-6 * * * *", "* * ? * ?", "0 0 1-31 * *", "* * * *"),
        *("0 0 L * 5", "0 0 5 * 5L", "0 0 * * 7", "0 0 * * 0-7"),
    ],
)
def test_what_both_read_alike(pattern: str) -> None:
    found = days(pattern, "4.9")
    assert not isinstance(found, str)
    assert found == days(pattern, "5.10") == days(pattern, "common") == days(pattern, "either")
    assert read_differently(pattern) is None


@pytest.mark.parametrize("pattern", ["61 * * * *", "x * * * *", "1,,2 * * * *", "0 0 31 4 *"])
def test_what_both_refuse(pattern: str) -> None:
    said: Any = days(pattern, "4.9")
    assert isinstance(said, str) and said == days(pattern, "common") == days(pattern, "either")
    assert isinstance(days(pattern, "5.10"), str)
    assert read_differently(pattern) is None


@pytest.mark.parametrize("pattern", ["H * * * *", "H(0-5) * * * *", "0 H/3 * * *", "* * * * H"])
def test_nobody_is_given_a_value_of_chance(pattern: str) -> None:
    assert "H stands for a value of chance, another one each time" in days(pattern, "5.10")
    assert "Invalid characters" in days(pattern, "common")
    chance = "BullMQ 5 refuses it, and for BullMQ 6 H stands for a value of chance, another one each time"
    assert read_differently(pattern) == chance


def test_the_option_of_bullmq_5_is_unknown_to_bullmq_6() -> None:
    assert parse_cron("0 0 * * 1", nth=2).nth == 2
    assert parse_cron("0 0 * * 1", nth=2, dialect="5.10").nth is None
    assert parse_cron("0 0 * * 1", nth=2, dialect="either").nth == 2
