"""Ends, bounds and orders that the cases by section leave open: parts 03 and 04 of the specification."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import (
    P,
    Q,
    T,
    add_scheduler,
    change_priority,
    clean,
    drain,
    is_job_in_list,
    move_jobs_to_wait,
    obliterate,
    paginate,
    remove_child_dependency,
    remove_unprocessed_children,
)
from tests.oracle.cases import Case, Has, case, job, meta, push, put, zadd

# fmt: off
BRANCHES: dict[str, str] = {}


def child(id: str, parent: str, base: str = Q) -> list[Any]:
    """A job that is the last pending child of a parent in `bull:p`."""
    return [job(id, base, parentKey=P + parent), job(parent, P), ("SADD", f"{P}{parent}:dependencies", base + id),
            zadd(f"{P}waiting-children", {parent: 1})]


def moves() -> list[Case]:
    return [
        case("03#4.2 3-list", "one occurrence, from the tail", job("1"), push("wait", "1", "a", "1"),
             change_priority(priority="1"), wait=["1", "a"]),
        case("03#4.5 2", "scores from 0 on", zadd("failed", {"1": -1, "2": 0, "3": 0.5}), move_jobs_to_wait(until="1"),
             wait=["3", "2"], failed={"1": -1}),
        case("03#4.5 zero", "a batch below 0 is all, and asks for more", zadd("failed", {"1": 1, "2": 2}),
             move_jobs_to_wait(count="-1"), reply=1, wait=["2", "1"]),
        case("03#4.5 3-order", "more jobs than go into one command",
             [zadd("failed", {str(n): n for n in range(start, start + 1000)}) for start in range(0, 7000, 1000)],
             zadd("failed", {"7000": 7000}), move_jobs_to_wait(count="10000"), reply=0, failed=None,
             wait=[str(n) for n in range(7000, -1, -1)]),
        case("03#9.6 yes", "the head of the list", push("wait", "1", "2"), is_job_in_list(), reply=1),
    ]


def removals() -> list[Case]:
    slots = {"a": 5, "b": 6, "c": 7}
    current = [f"repeat:{name}:{slot}" for name, slot in slots.items()]
    parents = [*child("1", "p1"), *child("2", "p2"), *child("3", "p3")]
    numbers = [str(n) for n in range(7001)]
    return [
        case("03#7.2 1 2-protected", "the current jobs of three schedulers", zadd("repeat", slots),
             [job(id, rjk=id[7]) for id in current], push("wait", *current), drain(), wait=current),
        case("03#7.2 4 parent-other", "in the order of the set", parents,
             zadd("prioritized", {"3": 1, "1": 2, "2": 3}), drain(), prioritized=None,
             after={"bull:p:wait": ["p3", "p1", "p2"]}),
        case("03#7.2 4", "more jobs than go into one command",
             [zadd("prioritized", dict.fromkeys(numbers[start:start + 1000], 1)) for start in range(0, 7001, 1000)],
             drain(), prioritized=None),
        case("03#7.3 zset-finished", "scores from 0 on", zadd("completed", {"1": -1, "2": 0, "3": 0.5}),
             clean(state="completed"), reply=["2", "3"], completed={"1": -1}),
        case("03#7.3 zset-limit", "scores from 0 on, with a limit", zadd("completed", {"1": -1, "2": 0, "3": 0.5}),
             clean(state="completed", limit="1"), reply=["2"], completed={"1": -1, "3": 0.5}),
        case("03#8.2 released", "the parent runs next", child("1", "par"), push(f"{P}wait", "w"), push("wait", "1"),
             remove_unprocessed_children(P, "par"), wait=None, after={"bull:p:wait": ["w", "par"]}),
        case("03#8.2 removed", "a delayed child that is in wait too", child("1", "par"), push("wait", "1"),
             zadd("delayed", {"1": 5}), remove_unprocessed_children(P, "par"), delayed=None, wait=["1"],
             events=["removed jobId 1 prev delayed"]),
        case("03#8.2 removed", "one occurrence, from the head", child("1", "par"), push("wait", "1", "a", "1"),
             remove_unprocessed_children(P, "par"), wait=["a", "1"]),
        case("03#8.3 3-released", "the parent runs next", child("1", "par"), push(f"{P}wait", "w"),
             remove_child_dependency(f"{Q}1", "bull:p:par"), reply=0, after={"bull:p:wait": ["w", "par"]}),
        case("03#7.4 parent-other", "the parent runs next", meta(paused=1), child("1", "par"), push(f"{P}wait", "w"),
             push("paused", "1"), obliterate(), after={"bull:p:wait": ["w", "par"]}),
        *destroyed_in_part(),
    ]


def destroyed_in_part() -> list[Case]:
    """What a call with count 1 leaves of three."""
    sets = ("delayed", "completed", "prioritized", "failed", "repeat")
    spent = {"delayed": "4-spent", "repeat": "5-spent", "completed": "6-spent", "prioritized": "8-spent",
             "failed": "9-spent", "active": "3-spent", "paused": "7-spent"}
    found = [
        case(f"03#7.4 {spent[name]}", f"one of three in {name}", meta(paused=1), [job(id) for id in "abc"],
             zadd(name, {"c": 3, "a": 1, "b": 2}), obliterate(count="1"), reply=1,
             after={name: {"b": 2, "c": 3}, "a": Has(name="n") if name == "repeat" else None, "b": Has(name="n")})
        for name in sets
    ]
    found += [
        case(f"03#7.4 {spent[name]}", f"one of four in {name}", meta(paused=1), [job(id) for id in "abcd"],
             push(name, *"abcd"), obliterate(count="1", force="1"), reply=1,
             after={name: ["b", "c", "d"], "a": None, "b": Has(name="n")})
        for name in ("active", "paused")
    ]
    return found


def pages() -> list[Case]:
    large = [("SADD", f"{Q}s", *[str(n) for n in range(start, start + 500)], "x" * 70) for start in (0, 500)]

    def unfinished(passed: int, taken: int) -> Any:
        return lambda reply: reply[0] not in (0, b"0") and reply[1] >= passed and len(reply[2]) == taken

    return [
        case("03#9.9 3-page", "a full page ends the scans", large, paginate(f"{Q}s", "0", "5"), reply=unfinished(6, 6)),
        case("03#9.9 past", "a page that was passed ends the scans", large, paginate(f"{Q}s", "0", "5", "0", "300"),
             reply=unfinished(300, 0)),
        case("03#9.9 3-most", "no scan is one scan", large, paginate(f"{Q}s", "0", "-1", "0", "0", "0"),
             reply=lambda reply: reply[0] not in (0, b"0") and 100 <= len(reply[2]) < 400),
    ]


def schedulers() -> list[Case]:
    def upsert(**options: Any) -> Any:
        return add_scheduler(schedule={"name": "sj", "every": 60_000}, options={"repeat": {"every": 60_000}, **options})

    def running(previous: int, **record: Any) -> list[Any]:
        """Scheduler `s`, whose current job has no hash any more."""
        return [zadd("repeat", {"s": previous}), put("repeat:s", name="old", **record)]

    def due(slot: int) -> Any:
        return lambda reply: reply == [f"repeat:s:{slot}".encode(), slot - T]

    grid = T // 60_000 * 60_000
    id = f"repeat:s:{T}"
    return [
        case("04#3.1 4-every", "the slot after the previous one is now", running(T - 60_000), upsert(), reply=due(T)),
        case("04#3.1 4-every", "catching up", running(T - 200_000), upsert(), reply=due(grid + 60_000)),
        case("04#3.1 3-options", "catching up with an offset", running(T - 200_000),
             upsert(repeat={"every": 60_000, "offset": 777}), reply=due(grid + 60_777),
             after={"repeat:s": Has(offset="777")}),
        case("04#1.5 2-deid", "a new scheduler's job with a deduplication id", upsert(de={"id": "d"}),
             after={id: Has(deid="d", rjk="s"), "de:d": None}),
        case("04#1.5 5.3", "a new scheduler's job with a priority", upsert(priority=3), prioritized={id: 12884901889},
             pc="1", wait=None),
        case("04#1.5 5.2-lifo", "a new scheduler's job, lifo", push("wait", "w"), upsert(lifo=True), wait=["w", id]),
    ]


CASES = [*moves(), *removals(), *pages(), *schedulers()]
