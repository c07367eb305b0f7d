"""Slots of schedulers, what an upsert takes back, and where data come from: part 06, sections 11.15 and 11.16."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import P, Q, T, add_scheduler, update_scheduler
from tests.oracle.cases import ERROR, Case, Error, Has, case, job, meta, push, put, zadd
from tests.oracle.directed.later.versions import Version

# fmt: off
BRANCHES = {
    "06#11.15": "4 4-changed 4-absent 4-text 4-cron 5-wait 5-paused 5-six 5-delayed 5-prioritized 5-dedup 5-unlink "
    "6-kept "
    "6-changed 6-cron 6-offset 7-free 7-next 7-32 7-full 7-cron 7-cron-taken 7-delay 11-negative 11-priority "
    "11-delayed "
    "12 13 left eighth",
    "06#11.15.1": "start start-past start-zero start-text start-nan start-offset offset offset-next offset-none "
    "offset-negative offset-text offset-bad on-time on-time-equal late late-next late-negative late-large given "
    "computed floored",
    "06#11.16": "4 9-record 9-producer 9-none 9-empty 11-negative 12 12-none offset-bad",
}

MINUTE = 60_000
BASE = T // MINUTE * MINUTE
INTO = T - BASE
"""How far T lies in its minute."""


def upsert(every: Any = MINUTE, *, at: Any = T, slot: Any = "", options: Any = None, **schedule: Any) -> Any:
    """Create or replace scheduler `s`."""
    given = {"name": "sj", "every": every, **schedule}
    given = {name: value for name, value in given.items() if value is not None}
    repeat = {name: value for name, value in given.items() if name in ("every", "pattern", "offset")}
    return add_scheduler(schedule=given, slot=slot, at=at, options={"repeat": repeat, **(options or {})})


def live(slot: int = T + MINUTE, *, place: Any = None, every: Any = MINUTE, **record: Any) -> list[Any]:
    """Scheduler `s` with its next job, by default delayed."""
    id = f"repeat:s:{slot}"
    fields = {"name": "old", "ic": 3, "offset": INTO, **({} if every is None else {"every": every}), **record}
    placed = zadd("delayed", {id: slot * 4096}) if place is None else place(id)
    return [zadd("repeat", {"s": slot}), put("repeat:s", **fields), job(id, rjk="s", data="old"), placed]


def slots(v: Version) -> list[Case]:
    """11.15.1, for a scheduler that is made."""
    def first(covers: str, title: str, slot: int, *, delay: int | None = None, **given: Any) -> Case:
        return case(f"06#11.15.1 {covers}", title, upsert(**given),
                    reply=[f"repeat:s:{slot}", slot - T if delay is None else delay],
                    after={"repeat": {"s": float(slot)}})

    ahead = T + 900
    return [
        first("start", "a start in time", T + 5000, startDate=T + 5000),
        first("start-past", "a start in the past", T, startDate=T - 5000),
        first("start-zero", "a start of zero", T, startDate=0),
        first("start-text", "a start as text", T + 5000, startDate=str(T + 5000)),
        first("start-nan", "a start that is no date", T, startDate=float("nan")),
        first("start-offset", "a start makes the offset idle", T + 5000, startDate=T + 5000, offset=7),
        case("06#11.15.1 start-text", "a start that is no number", upsert(startDate="x"), reply=ERROR, repeat=None),
        first("offset", "an offset that is to come", v.since(T, ahead), offset=(INTO + 900) % MINUTE),
        first("offset-next", "an offset that has passed", v.since(T, BASE + MINUTE + max(INTO - 900, 0)),
              offset=max(INTO - 900, 0)),
        first("offset-next", "an offset of one", v.since(T, BASE + MINUTE + 1), offset=1),
        first("offset-next", "an offset of this very moment", v.since(T, T + MINUTE), offset=INTO),
        first("offset-none computed", "none", T),
        first("offset-none", "an offset of zero", T, offset=0),
        first("offset-negative", "a negative one", T, offset=-5),
        first("offset-text", "an offset as text", v.since(T, ahead), offset=str((INTO + 900) % MINUTE))
        if v.later else
        case("06#11.15.1 offset-text", "an offset as text", upsert(offset="900"), reply=[f"repeat:s:{T}", 0]),
        case("06#11.15.1 offset-bad", "an offset that is no number", upsert(offset="x"),
             reply=v.since(ERROR, [f"repeat:s:{T}", 0])),
        case("06#11.15.1 given", "an offset stays in the record", upsert(offset=7),
             after={"repeat:s": Has(offset="7")}),
        case("06#11.15.1 computed", "an offset is made of the slot", upsert(),
             after={"repeat:s": Has(offset=str(INTO))}),
        case("06#11.15.1 floored", "a slot is rounded down", upsert(1500.5), reply=[f"repeat:s:{T}", 0]),
    ]


def following(v: Version) -> list[Case]:
    """11.15.1, for a scheduler that goes on, and 11.16."""
    def after(covers: str, title: str, slot: int, following: int, *, at: int = T, section: str = "11.15.1",
              **record: Any) -> Case:
        was = f"repeat:s:{slot}"
        return case(f"06#{section} {covers}", title, zadd("repeat", {"s": slot}),
                    put("repeat:s", name="sj", ic=1, every=MINUTE, **record), job(was, rjk="s"),
                    update_scheduler(options={"repeat": {"every": MINUTE}}, at=at, producer=was),
                    reply=f"repeat:s:{following}", after={"repeat": {"s": float(following)}})

    was = f"repeat:s:{T}"
    late = BASE + 5 * MINUTE + 30_000
    record = [zadd("repeat", {"s": T}), job(was, rjk="s")]
    kept = put("repeat:s", name="sj", ic=1, every=MINUTE)
    next_id = f"repeat:s:{T + MINUTE}"

    def advance(data: str = "{}", **given: Any) -> Any:
        options = {"repeat": {"every": MINUTE}, **given.pop("options", {})}
        return update_scheduler(options=options, data=data, producer=was, **given)

    return [
        after("on-time", "on time", T, T + MINUTE),
        after("on-time-equal", "just on time", T - MINUTE, T),
        after("late", "late: this period's slot is to come", T, v.since(late + 30_000 + 40_000, late + 10_000), at=late,
              offset=40_000),
        after("late-next", "late: this period's slot has passed", T, v.since(late + 30_000 + 20_000, late + 50_000)
              if not v.later else late + 50_000, at=late, offset=20_000),
        after("late-next", "late: this period's slot is now", T, late + MINUTE if v.later else late + 60_000, at=late,
              offset=30_000),
        after("late-negative", "late, a negative offset", T, v.since(late + 30_000 - 70_000, late - 30_000 - 10_000)
              if v.later else late + 30_000 - 70_000, at=late, offset=-70_000),
        after("late-large", "late, an offset of more than a period", T,
              v.since(late + 30_000 + 100_000, late - 30_000 + 100_000), at=late, offset=100_000),
        case("06#11.16 offset-bad", "an offset in the record that is no number", record,
             put("repeat:s", name="sj", ic=1, every=MINUTE, offset="x"), advance(), reply=v.since(ERROR, next_id)),
        case("06#11.16 4 9-producer 12", "data of the producer", record, kept, advance('{"b":2}'), reply=next_id,
             after={next_id: Has(data=v.in_six('{"b":2}', "{}")), "repeat:s": Has(data=v.in_six('{"b":2}', None)),
                    was: Has(nrjid=v.in_six(next_id, None))}),
        case("06#11.16 9-record", "data of the record", record, kept, put("repeat:s", data='{"a":1}'),
             advance('{"b":2}'), after={next_id: Has(data='{"a":1}'), "repeat:s": Has(data='{"a":1}')}),
        case("06#11.16 9-none", "no data anywhere", record, kept, advance(), after={next_id: Has(data="{}"),
                                                                               "repeat:s": Has(data=None)}),
        case("06#11.16 9-empty", "empty data of the producer", record, kept, advance(""),
             after={next_id: Has(data=v.in_six("", "{}")), "repeat:s": Has(data=v.in_six("", None))}),
        case("06#11.16 12-none", "no producing job", record, kept, advance(producer_key=""),
             after={was: Has(nrjid=None)}),
        case("06#11.16 11-negative", "a negative priority, due now", zadd("repeat", {"s": T - MINUTE}), kept,
             update_scheduler(options={"repeat": {"every": MINUTE}, "priority": -1}, producer=f"repeat:s:{T - MINUTE}"),
             reply=was, wait=v.since(None, [was]), prioritized=v.since({was: 1.0 - 2.0**32}, None)),
    ]


def upserts(v: Version) -> list[Case]:
    """11.15, for a scheduler that is there."""
    soon = f"repeat:s:{T + MINUTE}"
    now = f"repeat:s:{T}"
    cron = {"every": None, "pattern": "* * * * *"}
    june = T + 90_000
    dated = f"repeat:s:{june}"
    taken = [job(f"repeat:s:{T + n * 1000}") for n in range(33)]

    def replaced(covers: str, title: str, state: Any, call: Any, slot: int, **after: Any) -> Case:
        return case(f"06#11.15 {covers}", title, state, call,
                    **{"reply": [f"repeat:s:{slot}", slot - T], "repeat": {"s": float(slot)}, **after})

    return [
        replaced("4 5-delayed 6-kept 13", "the same distance: the slot is kept", live(), upsert(), T + MINUTE,
                 after={soon: Has(data="{}"), "repeat:s": Has(ic="3", every="60000")}),
        replaced("4-changed 6-changed eighth", "another distance: the series starts anew", live(), upsert(1000),
                 v.since(T + MINUTE, T), after={soon: v.since(Has(data="{}"), None)}),
        replaced("4-absent 6-changed", "no distance before: the same", live(every=None, pattern="x"), upsert(),
                 v.since(T + MINUTE, T)),
        replaced("4-text", "a distance that is a text is another", live(), upsert("60000"), v.since(T + MINUTE, T)),
        replaced("4-cron 6-cron", "a pattern: the job moves to the client's slot", live(every=None, pattern="x"),
                 upsert(slot=str(june), **cron), v.since(T + MINUTE, june), after={soon: v.since(Has(data="{}"),
                        None)}),
        replaced("6-offset", "an offset that was sent stays", live(), upsert(offset=7), T + MINUTE,
                 after={"repeat:s": Has(offset="7")}),
        replaced("5-wait", "the job waits", live(T, place=lambda id: push("wait", id)), upsert(), T,
                 wait=[now], after={now: Has(data="{}")}),
        replaced("5-prioritized", "the job is prioritized", live(T, place=lambda id: zadd("prioritized", {id: 3})),
                 upsert(), T, wait=[now], prioritized=None),
        *_paused(v),
        replaced("5-dedup", "its deduplication goes along", [*live(), put(soon, deid="d"), ("SET", f"{Q}de:d", soon),
                 put("dn:d", name="k")], upsert(1000), v.since(T + MINUTE, T),
                 after={"de:d": None, "dn:d": v.since(Has(name="k"), None)}),
        replaced("5-unlink", "it is taken from its parent", [*live(), put(soon, parentKey=f"{P}P"), job("P", P),
                 ("SADD", f"{P}P:dependencies", f"{Q}{soon}", "x")], upsert(1000), v.since(T + MINUTE, T),
                 after={f"{P}P:dependencies": {"x"}}),
        replaced("7-free", "a busy job of the series: the next slot", live(T - 1000, place=lambda id: push("active",
                 id),
                 every=1000), upsert(1000), T),
        replaced("7-next", "the slot is taken: the next", [taken[0]], upsert(1000), T + 1000),
        *_full(v, taken),
        case("06#11.15 7-cron", "a pattern's slot is taken, nothing was taken back", job(dated),
             upsert(slot=str(june), **cron), reply=-10, repeat=None),
        case("06#11.15 7-cron-taken", "a pattern's slot is taken, a job was taken back: it is overwritten",
             live(every=None, pattern="x"), job(dated, x="old"), push("active", dated), upsert(slot=str(june), **cron),
             reply=v.since([soon, MINUTE], [dated, june - T]),
             delayed=v.since({soon: (T + MINUTE) * 4096.0}, {dated: june * 4096.0}), active=[dated]),
        case("06#11.15 7-delay", "a moment that is no number comes first", job(dated),
             upsert(slot=str(june), at="x", **cron), reply=v.since(-10, ERROR)),
        case("06#11.15 11-negative", "a negative priority", upsert(options={"priority": -1}), reply=[now, 0],
             wait=v.since(None, [now]), prioritized=v.since({now: 1.0 - 2.0**32}, None), marker={"0": 0}),
        case("06#11.15 11-priority", "a priority", upsert(options={"priority": 3}), reply=[now, 0], wait=None,
             prioritized={now: 3 * 2.0**32 + 1}),
        case("06#11.15 11-priority", "a priority as text", upsert(options={"priority": "x"}),
             reply=ERROR),
        case("06#11.15 11-delayed", "later, with a negative priority", upsert(startDate=T + 5,
             options={"priority": -1}),
             reply=[f"repeat:s:{T + 5}", 5], delayed={f"repeat:s:{T + 5}": (T + 5) * 4096.0}),
        case("06#11.15 12", "the producing job", add_scheduler(schedule={"name": "sj", "every": 1000},
             options={"repeat": {"every": 1000}}, producer_key=f"{Q}p"),
             after={"p": v.in_six({"nrjid": now}, None)}),
    ]


def _paused(v: Version) -> list[Case]:
    now = f"repeat:s:{T}"
    next_id = f"repeat:s:{T + MINUTE}"
    paused = meta(paused=1)
    return [
        case("06#11.15 5-paused", "paused, set aside", paused, live(T, place=lambda id: push("paused", id)), upsert(),
             reply=[now, 0], wait=v.in_six(None, [now]), paused=v.in_six([now], None), after={now: Has(data="{}")}),
        case("06#11.15 5-six", "paused, in wait: nobody looks there", paused,
             live(T, place=lambda id: push("wait", id)), upsert(), reply=[next_id, MINUTE], wait=[now],
             delayed={next_id: (T + MINUTE) * 4096.0}, after={now: Has(data="old")}),
        case("06#11.15 5-wait", "open, set aside: nobody looks there", live(T, place=lambda id: push("paused", id)),
             upsert(), reply=[next_id, MINUTE], paused=[now]),
    ]


def _full(v: Version, taken: list[Any]) -> list[Case]:
    """Thirty-two slots after the first."""
    def fill(count: int) -> Any:
        return taken[:count]

    return [
        case("06#11.15 7-32", "two are taken", fill(2), upsert(1000),
             reply=v.since(-11, [f"repeat:s:{T + 2000}", 2000])),
        case("06#11.15 7-32", "thirty-two are taken", fill(32), upsert(1000),
             reply=v.since(-11, [f"repeat:s:{T + 32_000}", 32_000])),
        case("06#11.15 7-full", "thirty-three are taken", fill(33), upsert(1000), reply=-11, repeat=None,
             after={"repeat:s": None}),
        case("06#11.15 7-full left", "thirty-three, and the distance changed: the job is gone, its record stays",
             live(), fill(33), upsert(1000), reply=v.since([f"repeat:s:{T + MINUTE}", MINUTE], -11),
             repeat={"s": T + float(MINUTE)}, delayed=v.since({f"repeat:s:{T + MINUTE}": (T + MINUTE) * 4096.0}, None),
             after={f"repeat:s:{T + MINUTE}": v.since(Has(data="{}"), None)}),
        case("06#11.15 7-full", "`repeat` is no sorted set", ("SET", f"{Q}repeat", "x"), upsert(),
             reply=Error("WRONGTYPE")),
    ]


def cases(v: Version) -> list[Case]:
    """All of them."""
    return [each for make in (slots, following, upserts) for each in make(v)]
