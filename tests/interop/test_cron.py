"""Random patterns, moments and zones through our search and through cron-parser; CRON_CASES=5000 for more."""

import os
import sys
import zoneinfo
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import settings

from bullmq_protocol.model.cron import CronError, Dialect, NoNextRun, fixed_zone, next_run, parse_cron, read_differently
from tests.support.cron_parser import ask_node
from tests.support.node import bullmq_folder, newer_folder

Case = dict[str, Any]

CASES = int(os.environ.get("CRON_CASES") or min(600, 4 * settings().max_examples))
SEED = int(os.environ.get("CRON_SEED", "4900"))
ZONES = (
    *("UTC", "America/New_York", "Europe/London", "Europe/Berlin", "Europe/Dublin", "America/Sao_Paulo"),
    *("Africa/Cairo", "Africa/Casablanca", "America/Havana", "America/St_Johns", "America/Santiago", "America/Nuuk"),
    *("America/Asuncion", "America/Scoresbysund", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Beirut"),
    *("Asia/Amman", "Asia/Gaza", "Asia/Damascus", "Australia/Sydney", "Australia/Lord_Howe", "Pacific/Apia"),
    *("Pacific/Chatham", "Pacific/Auckland", "Antarctica/Troll", "Atlantic/Azores"),
)
FIXED = ("UTC+3", "UTC-05", "utc", "UTC+05:30")
LEAST, MOST = (0, 0, 0, 1, 1, 0), (59, 59, 23, 31, 12, 7)
YEARS = range(2000, 2041)
DAY = 86_400_000
ODDITIES = (
    *("L", "5L", "L5", "-L", "L-2", "L/2", "L,5", "L,5L", "5L,3", "15,L", "0-7", "1-7", "0-6", "7", "7-7", "5/2"),
    *("*/2", "1#2", "mon#3", "2#5", "#1", "1#", "1#1#2", "1#6", "1,2#1", "1-2#1", "1/2#1", "?/3", "-1", "-1/5", "/5"),
    *("5/", "1-", "-", "--", "1--2", "1-2-3", "jan", "sun-sat", "mon-fri", "JAN-mar", "nov-feb", "1/0", "1-5/-3", "00"),
    *("007", "1/1/1", "*,*", "1,1", "?,?", "*?", "L,L", "1#0x2", "1#1.5", "5L#1", "*#2", "3-L", "0/7", "2-31", "satL"),
    *("W", "15W", "a", "1.5", "", "59/2", "*/90", "2026", "30 2", "31 2,4", "29 2"),
)
WORDS = ("@yearly", "@monthly", "@weekly", "@daily", "@hourly", "@annually", "@Daily", " @daily", "@midnight", "", " ")


def release() -> str:
    """Return the release of Python's zone data: the system's, or that of the package tzdata."""
    for folder in zoneinfo.TZPATH:
        listing = Path(folder) / "tzdata.zi"
        if listing.exists():
            return listing.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# version ")
    return files("tzdata").joinpath("zones").parent.joinpath("__init__.py").read_text().split('IANA_VERSION = "')[1][:5]


def zone_of(case: Case) -> tzinfo:
    return UTC if case.get("utc") else fixed_zone(case["tz"]) or ZoneInfo(case["tz"])


def ours(case: Case, dialect: Dialect = "4.9") -> dict[str, Any]:
    try:
        cron = parse_cron(case["pattern"], nth=case.get("nthDayOfWeek"), dialect=dialect)
    except CronError as error:
        return {"throws": error.reason}
    at, found = case["at"], []
    for _ in range(case["count"]):
        try:
            at = next_run(cron, at, zone_of(case), end=case.get("endDate"))
        except NoNextRun as error:
            return {"runs": found, "none": str(error)}
        found.append(at)
    return {"runs": found}


def offset(zone: str, at: int) -> int:
    found = datetime.fromtimestamp(at // 1000, ZoneInfo(zone)).utcoffset()
    assert found is not None
    return round(found.total_seconds() * 1000)


def changes(zone: str) -> list[int]:
    """Return when the zone's offset changes, to the second."""
    at, last = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000) for year in (YEARS[0], YEARS[-1]))
    found = []
    while at < last:
        low, high = at, at + 4 * DAY
        if offset(zone, low) != offset(zone, high):
            while high - low > 1000:
                middle = (low + high) // 2000 * 1000
                low, high = (middle, high) if offset(zone, middle) == offset(zone, low) else (low, middle)
            found.append(high)
        at += 4 * DAY
    return found


class Maker:
    """Makes cases, many of them where the clock is changed, or at the end of February or of a year."""

    def __init__(self, seed: int, zones: Mapping[str, Sequence[int]]) -> None:
        self.dice = Random(seed)
        self.zones = zones

    def case(self) -> Case:
        dice = self.dice
        tz = dice.choice((*self.zones, *FIXED)) if dice.random() < 0.9 else dice.choice(FIXED)
        near, change = None, 0
        kind = dice.random()
        if kind < 0.5 and self.zones.get(tz):
            change = dice.choice(self.zones[tz])
            near = (change + offset(tz, change)) % DAY // 3_600_000
            away = dice.choice((dice.randint(-7200, 7200), dice.randint(-172_800, 86_400), -1800, -60, -1, 0, 1, 1800))
            at = change + away * 1000
        elif kind < 0.65:
            year = dice.choice((2000, 2023, 2024, 2027, 2028, 2036, 2099, 2100))
            month, day = dice.choice(((2, 27), (2, 28), (12, 30), (12, 31), (1, 1), (3, 1)))
            at = (
                round(datetime(year, month, day, tzinfo=UTC).timestamp() * 1000)
                + dice.randint(-DAY, DAY) // 1000 * 1000
            )
        else:
            at = dice.randint(946_684_800, 2_050_000_000) * 1000
        case: Case = {"tz": tz, "count": dice.choice((1, 2, 4)), "at": at + dice.choice((0, 0, dice.randint(1, 999)))}
        if near is not None and dice.random() < 0.4:
            # Just before the change, at hours around it.
            case["at"] = change - dice.choice((1, dice.randint(1, 7200), dice.randint(1, 100_000))) * 1000
            hours = sorted({(near + dice.randint(-2, 1)) % 24 for _ in range(dice.choice((1, 1, 2)))})
            minutes = dice.choice(("0", "15", "30", "59", "*/15", "*/30", "0,1"))
            case["pattern"] = f"{minutes} {dice.choice((','.join(map(str, hours)), '*', '*/2'))} * * *"
        else:
            case["pattern"] = self.odd() if dice.random() < 0.25 else self.proper(near)
        if dice.random() < 0.06:
            case["nthDayOfWeek"] = dice.choice((0, 1, 2, 5, 6, -1, 3))
        if dice.random() < 0.06:
            case["utc"] = dice.random() < 0.5
        if dice.random() < 0.1:
            case["endDate"] = at + dice.choice((0, 1, -1, DAY, 3_600_000, 40 * DAY, dice.randint(0, 10**10)))
        return case

    def proper(self, near: int | None) -> str:
        stars = (0.2, 0.25, 0.25, 0.6, 0.7, 0.6)
        parts = ["*" if self.dice.random() < star else self.part(place, near) for place, star in enumerate(stars)]
        if near is not None and self.dice.random() < 0.6:
            parts[3:] = "***"
        return " ".join(parts if self.dice.random() < 0.25 else parts[1:])

    def odd(self) -> str:
        dice = self.dice
        if dice.random() < 0.06:
            return dice.choice(WORDS)
        parts = []
        count = dice.randint(1, 7)
        for place in range(count):
            kind = dice.random()
            if kind < 0.6:
                parts.append(self.part(min(max(0, place + 6 - count), 5), None))
            elif kind < 0.75:
                parts.append("".join(dice.choices("0123456789*-/,?L#aAjfnWe.", k=dice.randint(1, 5))))
            else:
                parts.append(dice.choice(ODDITIES))
        return dice.choice(("", "", "", "\t")) + dice.choice((" ", " ", " ", "  ", "\t")).join(parts)

    def part(self, place: int, near: int | None) -> str:
        return ",".join(self.item(place, near) for _ in range(self.dice.choice((1, 1, 1, 1, 2, 3))))

    def item(self, place: int, near: int | None) -> str:
        dice = self.dice
        least, most = LEAST[place], MOST[place]
        first, last = sorted((dice.randint(least, most), dice.randint(least, most)))
        if place == 2 and near is not None and dice.random() < 0.5:
            return str(min(23, max(0, near + dice.randint(-2, 2))))
        choices = [str(first)] * 4 + [f"{first}-{last}"] * 2
        choices += [
            f"{first}-{last}/{dice.randint(1, 9)}",
            f"*/{dice.randint(1, most + 3)}",
            f"{first}/{dice.randint(1, 12)}",
        ]
        if place == 3:
            choices += ["L", "15L", "?"]
        if place == 4:
            choices.append(dice.choice(("jan", "FEB", "Dec", "jul")))
        if place == 5:
            choices += [f"{first}L", dice.choice(("sun", "Fri", "monL", "?")), f"{first}#{dice.randint(1, 5)}"]
        return dice.choice(choices)


@pytest.fixture(scope="module")
def zones() -> dict[str, list[int]]:
    """The zones in which both sides see the same offsets, with their changes."""
    moments = {zone: sorted({at + away for at in changes(zone) for away in (-1000, 0)}) for zone in ZONES}
    answer = ask_node(moments, [])
    differing = [
        zone for zone in ZONES if answer["offsets"][zone] != [offset(zone, moment) for moment in moments[zone]]
    ]
    left_out = f"zones that differ, left out: {differing or 'none'}"
    sys.stdout.write(f"\n{answer['versions']}; zone data of Python: {release()}; {left_out}\n")
    assert len(differing) <= 4
    return {zone: [at for at in moments[zone] if at - 1000 in moments[zone]] for zone in ZONES if zone not in differing}


def test_random_patterns_are_due_when_cron_parser_says(zones: dict[str, list[int]]) -> None:
    maker = Maker(SEED, zones)
    cases = [maker.case() for _ in range(CASES)]
    answer = ask_node({}, cases)
    different = [
        {"case": case, "cron-parser": theirs, "ours": found}
        for case, theirs in zip(cases, answer["results"], strict=True)
        if (found := ours(case)) != theirs
    ]
    kinds = Counter(next(iter(set(result) - {"runs"}), "runs") for result in answer["results"])
    sys.stdout.write(f"\n{CASES} cases, seed {SEED}: {len(different)} differences; {dict(kinds)}\n")
    assert different[:5] == []


@pytest.mark.parametrize(
    ("pattern", "tz", "start", "count"),
    [
        ("*/7 * * * * *", "UTC", "2026-12-31T20:00:00+00:00", 3600),
        ("*/15 * * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00+00:00", 200),
        ("30 1,2 * * *", "America/New_York", "2026-03-01T00:00:00+00:00", 60),
    ],
)
def test_successive_runs(pattern: str, tz: str, start: str, count: int) -> None:
    at = round(datetime.fromisoformat(start).timestamp() * 1000)
    case: Case = {"pattern": pattern, "tz": tz, "at": at, "count": count}
    (theirs,) = ask_node({}, [case])["results"]
    assert (len(theirs["runs"]), ours(case)) == (count, theirs)


def plainer(result: dict[str, Any]) -> Any:
    """Leave out the words of errors, and how far each version looks for what comes once in decades."""
    return "throws" if "throws" in result else result["runs"][:1]


def test_random_patterns_are_due_when_the_cron_parser_of_bullmq_6_says() -> None:
    maker = Maker(SEED, {"UTC": []})
    cases: list[Case] = [
        {"pattern": maker.proper(None), "tz": "UTC", "at": maker.case()["at"], "count": 1} for _ in range(CASES)
    ]
    old, new = (ask_node({}, cases, folder=folder)["results"] for folder in (bullmq_folder, newer_folder))
    different = [
        {"case": case, "cron-parser": theirs, "ours": found}
        for case, theirs in zip(cases, new, strict=True)
        if plainer(found := ours(case, "5.10")) != plainer(theirs)
    ]
    missed = [
        {"case": case, "4.9": one, "5.10": other}
        for case, one, other in zip(cases, old, new, strict=True)
        if plainer(one) != plainer(other) and read_differently(case["pattern"]) is None
    ]
    sys.stdout.write(f"\n{CASES} cases, seed {SEED}: {len(different)} differences from 5.10, {len(missed)} missed\n")
    assert (different[:5], missed[:5]) == ([], [])
