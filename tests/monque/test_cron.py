"""Random cron expressions through our engine and through Monque's cron-parser 5.5 on Node; CRON_CASES for more."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bullmq_protocol.model.cron import CronError, NoNextRun, next_run, parse_cron
from tests.support.cron_parser import ask_node
from tests.support.node import installed

pytestmark = pytest.mark.node
CASES = int(os.environ.get("CRON_CASES") or 600)
SEED = int(os.environ.get("CRON_SEED", "5500"))
FOLDER = Path(__file__).parent / "node"
NOW = 1_766_000_000_123
PARTS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 59, ()),
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ("L",)),
    (1, 12, ("jan", "FEB", "mar-Jun")),
    (0, 7, ("sun", "MON", "mon-fri", "5L", "0L", "L", "1#2", "7#1", "fri#3")),
)
ODD = (
    *("", "*", "* *", "* * *", "* * * *", "5 * * *", "* * * * * * *", "@yearly", "@annually", "@midnight", "@Daily"),
    *(
        "@minutely",
        "@secondly",
        "@weekdays",
        "@weekends",
        "1,1 * * * *",
        "0,0 * * * *",
        "*/2,*/3 * * * *",
        "0 0 30 2 *",
    ),
    *("0 0 1-31 * 1", "0 0 L-2 * *", "0 0 15W * *", "0 0 1,L * *", "0 0 * * L", "0 0 * * 1#6", "0 0 * * 1-2#1"),
    *("22-2 * * * *", "0 0 * * mon-sun", "0 0 29 2 *", "*/0 * * * *", "-1 * * * *", "1.5 * * * *", "a * * * *"),
    *(
        "0 0 0 * *",
        "0 0 * 13 *",
        "0 0 * * 8",
        "1- * * * *",
        ",1 * * * *",
        "1/2/3 * * * *",
        "0 0 * * 0,7",
        "7 * 7 * 1#2",
    ),
    *("0 0 31 2 1", "0 0 31,L 2 *", "  * * * * *", "1,1,0,0 * * * *", "0 0 * * 5/6", "5,5 * * * *", "0 0 L,L * *"),
)


def cases() -> list[dict[str, Any]]:
    dice = Random(SEED)

    def item(least: int, most: int, words: tuple[str, ...]) -> str:
        first, last = sorted((dice.randint(least, most), dice.randint(least, most)))
        if words and dice.random() < 0.2:
            return dice.choice(words)
        text = dice.choice(("*", "?", str(first), str(last), f"{first}-{last}"))
        return text if dice.random() < 0.7 else f"{text}/{dice.randint(1, most)}"

    def expression() -> str:
        chosen = PARTS[-dice.choice((5, 5, 5, 6, 4)) :]
        return " ".join(
            ",".join(item(*part) for _ in range(dice.choice((1, 1, 1, 2, 3)))) if dice.random() < 0.5 else "*"
            for part in chosen
        )

    found = [
        {"pattern": each, "at": NOW, "count": 3, "tz": "UTC"} for each in (*ODD, *(expression() for _ in range(CASES)))
    ]
    for _ in range(CASES // 2):
        # Around a change of the clock.
        day = dice.choice(((2025, 3, 29), (2025, 10, 25), (2025, 3, 8), (2025, 11, 1)))
        at = round(datetime(*day, 22, tzinfo=UTC).timestamp()) * 1000 + dice.randint(0, 36_000) * 1000
        minutes, hours = (
            dice.choice(("0", "30", "*/30", "*/15")),
            dice.choice(("*", "*/2", "1", "2", "3", "1,2", "2-3")),
        )
        zone = dice.choice(("Europe/Berlin", "America/New_York"))
        found.append({"pattern": f"{minutes} {hours} * * *", "at": at, "count": 3, "tz": zone})
    return found


def ours(case: dict[str, Any]) -> list[int] | str:
    try:
        cron = parse_cron(case["pattern"], dialect="5.5")
    except CronError:
        return "refused"
    at, found = case["at"], []
    for _ in range(case["count"]):
        try:
            at = next_run(cron, at, ZoneInfo(case["tz"]))
        except NoNextRun:
            break
        found.append(at)
    return found


def test_expressions_are_due_when_monques_parser_says() -> None:
    asked = cases()
    answer = ask_node({}, asked, folder=lambda: installed(FOLDER))
    assert answer["versions"]["cronParser"] == "5.5.0"
    theirs = ["refused" if "throws" in each else each["runs"] for each in answer["results"]]
    wrong = [
        {"case": case, "cron-parser": expected, "ours": found}
        for case, expected in zip(asked, theirs, strict=True)
        if (found := ours(case)) != expected
    ]
    sys.stdout.write(
        f"\n{len(asked)} cases, seed {SEED}: {len(wrong)} differences; {theirs.count('refused')} refused\n"
    )
    assert wrong[:5] == []


def test_where_it_differs_from_the_parser_of_bullmq_5() -> None:
    def first(expression: str, dialect: Any, zone: str = "UTC", at: int = NOW) -> str:
        try:
            found = next_run(parse_cron(expression, dialect=dialect), at, ZoneInfo(zone))
        except (CronError, NoNextRun):
            return "refused"
        return datetime.fromtimestamp(found / 1000, ZoneInfo(zone)).strftime("%m-%d %H:%M:%S")

    march = round(datetime(2025, 3, 29, 12, tzinfo=UTC).timestamp() * 1000)
    table = {
        "1,1 * * * *": ("12-17 20:01:00", "refused"),
        "5 * * *": ("12-18 05:00:00", "12-18 05:00:00"),
        "* *": ("12-17 19:34:00", "refused"),
        "@weekdays": ("refused", "12-18 00:00:00"),
        "0 0 1-31 * 1": ("12-22 00:00:00", "12-18 00:00:00"),
        "0 0 31 2 1": ("refused", "refused"),
    }
    assert {each: (first(each, "4.9"), first(each, "5.5")) for each in table} == table
    assert first("0 3 * * *", "4.9", "Europe/Berlin", march) == "03-30 03:00:00"
    assert first("0 3 * * *", "5.5", "Europe/Berlin", march) == "03-31 03:00:00"
