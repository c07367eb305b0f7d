"""Schedulers and repeatable jobs: part 04 of the specification, sections 1, 3, 4.8 and 6."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import (
    Call,
    P,
    Q,
    T,
    add_repeatable,
    add_scheduler,
    get_scheduler,
    remove_repeatable,
    remove_scheduler,
    update_repeatable,
    update_scheduler,
)
from tests.oracle.cases import ERROR, Case, Error, Has, Json, case, job, meta, push, put, zadd

# fmt: off
BRANCHES = {
    "04#1.1": "missing found",
    "04#1.2": "key",
    "04#1.3": "later now catch-up vectors fraction-floored offset-text offset-none offset-bad",
    "04#1.5": "1 2 2-priority 2-deid 2-deid-empty 2-no-parent 3 4.1-free 4.1-next 4.1-full 4.2 4.3 4.4 5.1-paused "
    "5.1-maxed "
    "5.1-open 5.2-fifo 5.2-lifo 5.2-zero-lifo 5.3 5.4 delayed-priority no-dedup-key counter",
    "04#3.2": "1 2 3-record 3-options 4-cron 4-neither 5 5-empty 5-older 6 7 8 9-record 9-producer 9-empty 10 "
    "10-negative 11 "
    "12 12-none 12-other 13 options-ignored every-wins no-record data-bad-type repeat-bad options-nan idempotent",
    "04#1.3/first": "now start start-past start-text start-nan start-bad offset offset-given",
    "04#1.4": "1 2 3 fields offset-sent offset-kept offset-none offset-bad opts opts-empty data data-empty data-text "
    "ic ic-kept name-absent type nan",
    "04#1.6": "1 2 3 3-paused 3-other-list none dedup parent lock silent",
    "04#3.1": "1 2 3-schedule 3-options 3-default 3-bad 4-every 4-cron 5 5-no-hash 6-same 6-new 7-cron 7-after 7-busy "
    "8 8-past 9 10 11 12 12-none 13 decode late-error",
    "04#3.3": "1-delayed 1-other 2 3 no-score no-dedup",
    "04#3.4": "found no-record absent",
    "04#4.8": "1 2 3",
    "04#6.2/addRepeatableJob": "1 1-not-delayed 1-next-exists 2-oldest 2-member 3 3-fields 4 name decode",
    "04#6.2/updateRepeatableJobMillis": "member oldest none bad",
    "04#6.2/removeRepeatable": "1 1-not-delayed 2 2-hash-stays 3 4 5 by-key",
}

D = T * 4096
CAP = {"opts.maxLenEvents": "10000"}
EVERY = {"repeat": {"every": 60_000, "count": 2, "offset": None}, "jobId": "repeat:s:undefined"}


def scheduler(slot: float = T, **record: Any) -> list[Any]:
    """Scheduler `s` whose current job, due at `slot`, is being processed."""
    producer = f"repeat:s:{slot:.14g}"
    return [zadd("repeat", {"s": slot}), put("repeat:s", **{"name": "sj", "ic": 1, **record}), job(producer, rjk="s")]


def advance(slot: str = "", *, at: Any = T, producer: str = f"repeat:s:{T}", options: Any = None, **given: Any) -> Call:
    return update_scheduler(slot=slot, at=at, producer=producer, options=EVERY if options is None else options, **given)


def slots() -> list[Case]:
    rows: tuple[tuple[int, float, int, str, int], ...] = (
        (1000000, 60000, 1001000, "40000", 1060000),
        (1000000, 60000, 1060000, "40000", 1060000),
        (1000000, 60000, 1060001, "40000", 1120000),
        (1000000, 60000, 1200000, "40000", 1300000),
        (1000000, 60000, 1234567, "40000", 1300000),
        (1000000, 60000, 1234567, "0", 1260000),
        (1000000, 60000, 1234567, "777", 1260777),
        (1000000, 60000, 1234567, "59999", 1319999),
        (1000000, 1500.5, 1001000, "59999", 1001500),
    )
    found = [
        case(f"04#1.3 vectors {'catch-up' if before + every < now else 'now' if before + every == now else 'later'} "
        f"offset-text", f"previous {before}, every {every}, now {now}, offset {offset}",
        scheduler(before, every=every, offset=offset), advance(at=now, producer=f"repeat:s:{before}"),
        reply=f"repeat:s:{following}", after={"repeat": {"s": following}})
        for before, every, now, offset, following in rows
    ]
    late = T + 234_567
    return [
        *found,
        case("04#1.3 fraction-floored", "a slot with a fraction is rounded down", scheduler(every=1500.5, offset=0),
             advance(), reply=f"repeat:s:{T + 1500}"),
        case("04#1.3 offset-none", "no offset in the record, one in the options", scheduler(every=60000),
             advance(at=late, options={"repeat": {"every": 60000, "offset": 777}}),
             reply=f"repeat:s:{(late // 60000 + 1) * 60000 + 777}"),
        case("04#1.3 offset-none", "no offset anywhere", scheduler(every=60000), advance(at=late),
             reply=f"repeat:s:{(late // 60000 + 1) * 60000}"),
        case("04#1.3 offset-bad", "an offset that is no number ends the script though it has no use",
             scheduler(every=60000, offset=""), advance(), reply=ERROR, repeat={"s": T}, events=None),
        case("04#1.3 offset-bad", "the same when catching up", scheduler(every=60000, offset="x"), advance(at=late),
             reply=ERROR, repeat={"s": T}),
    ]


def steps() -> list[Case]:
    due = T + 60_000
    next_id = f"repeat:s:{due}"
    now = scheduler(T - 60_000, every=60_000)
    was = f"repeat:s:{T - 60_000}"
    cron = {"repeat": {"pattern": "* * * * *", "count": 2}, "jobId": "x"}
    added = [f"added jobId {next_id} name sj", f"delayed jobId {next_id} delay {due}"]
    ready = [f"added jobId repeat:s:{T} name sj", f"waiting jobId repeat:s:{T}"]

    def at_once(covers: str, title: str, *more: Any, extra: dict[str, Any] | None = None, **given: Any) -> Case:
        return case(
            f"04#1.5 {covers}",
            title,
            now,
            list(more),
            advance(producer=was, options={**EVERY, **(extra or {})}),
            reply=f"repeat:s:{T}",
            **given,
        )

    return [
        case("04#3.2 1 2 3-record 6 8 10 11 12 13; 04#1.1 missing; 04#1.2 key; 04#1.5 1 2 3 4.1-free 4.2 4.3 4.4 "
        "counter", "the next run of an `every` scheduler", scheduler(every=60_000), advance(), reply=next_id, id="1",
        meta=CAP, repeat={"s": due}, delayed={next_id: due * 4096}, marker={"1": due}, events=added,
        after={"repeat:s": Has(ic="2", data=None), f"repeat:s:{T}": Has(nrjid=next_id),
               next_id: Has(name="sj", data="{}", timestamp=str(T), delay="60000", priority="0", rjk="s", deid=None,
                            parentKey=None)}),
        case("04#3.2 4-cron", "the next run of a cron scheduler", scheduler(pattern="* * * * *"),
             advance(str(due), options=cron), reply=next_id, repeat={"s": due}, delayed={next_id: due * 4096}),
        case("04#3.2 1", "no such scheduler", advance(), reply=None, meta=None, id=None),
        case("04#3.2 3-options", "no period in the record, one in the options", scheduler(), advance(), reply=next_id),
        case("04#3.2 every-wins", "the record's period beats a cron slot", scheduler(every=60_000),
             advance(str(T + 5), options=cron), reply=next_id),
        case("04#3.2 4-neither", "neither a period nor a slot", scheduler(), advance(options=cron), reply=ERROR,
             meta=None, repeat={"s": T}),
        case("04#3.2 4-neither", "the same for a producer that is not the current job", scheduler(),
             advance(options=cron, producer="x"), reply=ERROR),
        case("04#3.2 5-older", "the producer is not the current job", scheduler(every=60_000),
             advance(producer="repeat:s:5"), reply=None, meta=None, repeat={"s": T}),
        case("04#3.2 5-empty", "no producer", scheduler(every=60_000), advance(producer=""), reply=None),
        case("04#3.2 5", "the slot of the producer in 14 digits", scheduler(1e14, every=1),
             advance(at=10**14, producer="repeat:s:1e+14"), reply=None, events=["duplicated jobId repeat:s:1e+14"]),
        case("04#3.2 idempotent", "twice for one producer", scheduler(every=60_000), advance(), advance(), reply=None,
             repeat={"s": due}, id="1", events=added),
        case("04#3.2 7; 04#1.1 found", "the next job exists", meta(**{"opts.maxLenEvents": "50"}),
             scheduler(every=60_000), job(next_id), advance(), reply=None, id=None, repeat={"s": T},
             events=[f"duplicated jobId {next_id}"], meta={"opts.maxLenEvents": "50"},
             after={"repeat:s": Has(ic="1"), f"repeat:s:{T}": Has(nrjid=None)}),
        case("04#3.2 9-record", "the record's data", scheduler(every=60_000, data='{"a":1}'), advance(data='{"b":2}'),
             after={next_id: Has(data='{"a":1}'), "repeat:s": Has(data='{"a":1}')}),
        case("04#3.2 9-producer", "the producer's data become the template", scheduler(every=60_000),
             advance(data='{"b":2}'), after={next_id: Has(data='{"b":2}'), "repeat:s": Has(data='{"b":2}')}),
        case("04#3.2 9-empty", "an empty text is data", scheduler(every=60_000), advance(data=""),
             after={"repeat:s": Has(data="")}),
        case("04#3.2 10-negative", "a slot in the past is due now", scheduler(pattern="x"),
             advance(str(T - 5), options=cron), reply=f"repeat:s:{T - 5}", wait=[f"repeat:s:{T - 5}"],
             after={f"repeat:s:{T - 5}": Has(delay="0")}),
        case("04#3.2 12-none", "no producing job", scheduler(every=60_000), advance(producer_key=""),
             after={f"repeat:s:{T}": Has(nrjid=None)}),
        case("04#3.2 12-other", "the producing job has no hash", scheduler(every=60_000),
             advance(producer_key=f"{Q}prod"), after={"prod": {"nrjid": next_id}}),
        case("04#3.2 options-ignored", "the template options of the record are not read",
             scheduler(every=60_000, opts='{"priority":9}'), advance(), after={next_id: Has(priority="0")}),
        case("04#3.2 no-record", "the record is missing", zadd("repeat", {"s": T}), advance(data='{"b":2}'),
             reply=ERROR, id="1", repeat={"s": due}, after={"repeat:s": {"ic": "1", "data": '{"b":2}'}, next_id: None}),
        case("04#3.2 data-bad-type", "the record is no hash", zadd("repeat", {"s": T}), push("repeat:s", "x"),
             advance(), reply=Error("WRONGTYPE"), meta=None),
        case("04#3.2 repeat-bad", "repeat is a number", scheduler(every=60_000), advance(options={"repeat": 5}),
             reply=ERROR, meta=None),
        case("04#3.2 repeat-bad", "repeat is a text", scheduler(every=60_000), advance(options={"repeat": "x"}),
             reply=next_id),
        case("04#3.2 options-nan", "NaN among the options", scheduler(every=60_000),
             advance(options={**EVERY, "bad": float("nan")}), reply=ERROR, id="1", repeat={"s": due}, events=None,
             after={next_id: None}),
        case("04#1.5 4.1-next", "another due in the same millisecond", scheduler(every=60_000),
             zadd("delayed", {"x": due * 4096 + 3}), advance(), delayed={"x": due * 4096 + 3, next_id: due * 4096 + 4}),
        case("04#1.5 4.1-full", "a full millisecond", scheduler(every=60_000),
             zadd("delayed", {"x": due * 4096 + 4095}), advance(),
             delayed={"x": due * 4096 + 4095, next_id: due * 4096 + 4095}),
        case("04#1.5 delayed-priority", "a delay and a priority", scheduler(every=60_000),
             advance(options={**EVERY, "priority": 3}), prioritized=None, after={next_id: Has(priority="3")}),
        case("04#1.5 2-deid no-dedup-key", "a deduplication id is only stored", scheduler(every=60_000),
             advance(options={**EVERY, "de": {"id": "d"}}), after={next_id: Has(deid="d"), "de:d": None}),
        case("04#1.5 2-deid-empty", "an empty deduplication id", scheduler(every=60_000),
             advance(options={**EVERY, "de": {"id": ""}}), after={next_id: Has(deid="")}),
        case("04#1.5 2-no-parent", "a parent is not written", scheduler(every=60_000),
             advance(options={**EVERY, "parent": {"id": "P", "queue": "bull:q"}}),
             after={next_id: Has(parent=None, parentKey=None)}),
        at_once("5.1-open 5.2-fifo 5.4", "due now", push("wait", "w"), wait=[f"repeat:s:{T}", "w"], marker={"0": 0},
                events=ready),
        at_once("5.1-paused", "due now, paused", meta(paused=1), paused=[f"repeat:s:{T}"], marker=None),
        at_once("5.1-maxed", "due now, maxed", meta(concurrency=1), push("active", "x"), wait=[f"repeat:s:{T}"],
                marker=None ),
        at_once("5.2-lifo", "due now, lifo", push("wait", "w"), extra={"lifo": True}, wait=["w", f"repeat:s:{T}"]),
        at_once("5.2-zero-lifo", "due now, lifo 0", push("wait", "w"), extra={"lifo": 0}, wait=["w", f"repeat:s:{T}"]),
        at_once("5.3 2-priority", "due now, a priority", extra={"priority": 3, "lifo": True},
                prioritized={f"repeat:s:{T}": 12884901889}, pc="1", marker={"0": 0}, wait=None, events=ready),
        at_once("5.3", "due now, a priority, maxed", meta(concurrency=0), extra={"priority": 3}, marker=None, pc="1"),
    ]


def upsert(**given: Any) -> Call:
    """Create or replace scheduler `s`: every minute, or by `schedule`."""
    schedule = {"name": "sj", "every": 60_000}
    return add_scheduler(**{"schedule": schedule, "options": EVERY, **given})


def cron(slot: Any = T + 60_000, **given: Any) -> Call:
    """Create or replace scheduler `s` by a pattern."""
    schedule = {"name": "sj", "pattern": "* * * * *"}
    options = {"repeat": {"pattern": "* * * * *", "count": 1}}
    return add_scheduler(**{"slot": str(slot), "schedule": schedule, "options": options, **given})


CURRENT = f"repeat:s:{T}"
OLD = [zadd("repeat", {"s": T}), put("repeat:s", name="old", every="5000", offset=777, ic=4, data="1", zzz="1")]
WAITING = [*OLD, job(CURRENT, rjk="s")]


def first_slots() -> list[Case]:
    def start(value: Any, **more: Any) -> Call:
        return upsert(schedule={"name": "sj", "every": 60_000, "startDate": value, **more})

    def due(slot: int) -> list[Any]:
        return [f"repeat:s:{slot}".encode(), slot - T]

    def replies(slot: int) -> Any:
        return lambda reply: reply == due(slot)

    return [
        case("04#1.3/first now offset; 04#3.1 3-default 4-every", "the first slot is now", upsert(), reply=replies(T),
             repeat={"s": T}, after={"repeat:s": Has(offset=str(T % 60_000))}),
        case("04#1.3/first start", "a start date to come", start(T + 5000), reply=replies(T + 5000),
             after={"repeat:s": Has(offset=str((T + 5000) % 60_000), startDate=str(T + 5000))}),
        case("04#1.3/first start-past", "a start date that has passed", start(T - 5000), reply=replies(T)),
        case("04#1.3/first start-text", "a start date as text", start(str(T + 5000)), reply=replies(T + 5000)),
        case("04#1.3/first start-nan", "a start date that is no number counts as none", start(float("nan")),
             reply=replies(T)),
        case("04#1.3/first start-bad", "a start date that is no text of a number", start("x"), reply=ERROR, meta=CAP,
             repeat=None),
        case("04#1.3/first offset-given; 04#3.1 3-schedule", "an offset in the schedule", start(None, offset=12),
             reply=replies(T), after={"repeat:s": Has(offset="12")}),
        case("04#3.1 3-options", "an offset in the options", upsert(options={"repeat": {"every": 1, "offset": 13}}),
             reply=replies(T), after={"repeat:s": Has(offset="13")}),
        case("04#3.1 3-bad", "repeat is true", upsert(options={"repeat": True}), reply=ERROR, meta=CAP, repeat=None),
        case("04#3.1 3-bad", "repeat is a number", cron(options={"repeat": 5}), reply=ERROR, meta=CAP),
        case("04#3.1 3-default", "no repeat among the options", upsert(options={}), reply=replies(T)),
    ]


def records() -> list[Case]:
    full = {"name": "jn", "tz": "UTC", "limit": 0, "pattern": "x", "startDate": 1, "endDate": 2, "every": 1.5,
            "offset": 3}
    return [
        case("04#1.4 1 2 3 fields offset-sent opts data ic", "every field", upsert(schedule=full, data='{"a":1}',
             template={"kl": 7}), repeat={"s": T},
             after={"repeat:s": {"name": "jn", "tz": "UTC", "limit": "0", "pattern": "x", "startDate": "1",
                                 "endDate": "2", "every": "1.5", "offset": "3", "opts": '{"kl":7}',
                                 "data": '{"a":1}', "ic": "1"}}),
        case("04#1.4 opts-empty data-empty", "no templates", cron(),
             after={"repeat:s": {"name": "sj", "pattern": "* * * * *", "offset": "0", "ic": "1"}}),
        case("04#1.4 data-text", "an empty text is data", cron(data=""), after={"repeat:s": Has(data="")}),
        case("04#1.4 opts-empty", "an empty list of options is none", cron(template=[]),
             after={"repeat:s": Has(opts=None)}),
        case("04#1.4 ic-kept; 04#3.1 6-new", "only the count of iterations survives, the job has started", OLD,
             cron(), after={"repeat:s": {"name": "sj", "pattern": "* * * * *", "offset": "0", "ic": "4"}}),
        case("04#1.4 offset-kept; 04#3.1 6-same", "the offset survives with the slot", WAITING,
             zadd("delayed", {CURRENT: 5}), cron(),
             after={"repeat:s": {"name": "sj", "pattern": "* * * * *", "offset": "777", "ic": "4"}}),
        case("04#1.4 offset-none", "no offset before", zadd("repeat", {"s": T}), job(CURRENT),
             zadd("delayed", {CURRENT: 5}), cron(),
             after={"repeat:s": {"name": "sj", "pattern": "* * * * *", "ic": "1"}}),
        case("04#1.4 offset-bad; 04#3.1 late-error", "a stored offset that is no number", WAITING,
             put("repeat:s", offset="x"), zadd("delayed", {CURRENT: 5}), cron(), reply=ERROR, repeat={"s": T},
             delayed=None, id=None, after={"repeat:s": None, CURRENT: None}),
        case("04#1.4 name-absent; 04#3.1 late-error", "a schedule without a name", cron(schedule={"tz": "UTC"}),
             reply=ERROR, repeat={"s": T + 60_000}, id=None, events=None, after={"repeat:s": None}),
        case("04#1.4 type", "a record of another type", push("repeat:s", "x"), cron(), reply=Error("WRONGTYPE"),
             repeat={"s": T + 60_000}, after={"repeat:s": ["x"]}),
        case("04#1.4 nan", "NaN in the template: it comes before the count of iterations", push("repeat:s", "x"),
             cron(template={"a": float("nan")}), reply=Error("ERR"), repeat={"s": T + 60_000}),
    ]


def taken_back() -> list[Case]:
    back = [CURRENT.encode(), 0]

    def same(reply: Any) -> bool:
        return bool(reply == back)

    told = [f"added jobId {CURRENT} name sj", f"waiting jobId {CURRENT}"]
    later = f"repeat:s:{T + 60_000}"
    return [
        case("04#1.6 1 silent; 04#3.1 5", "a delayed job", WAITING, zadd("delayed", {CURRENT: D, "x": D}),
             zadd("marker", {"1": T}), upsert(), reply=same, delayed={"x": D}, repeat={"s": T}, wait=[CURRENT],
             events=told, marker={"0": 0, "1": T}),
        case("04#1.6 2", "a prioritized job", WAITING, zadd("prioritized", {CURRENT: 5}), upsert(), reply=same,
             prioritized=None, events=told),
        case("04#1.6 3", "a waiting job: one occurrence, from the head", WAITING,
             push("wait", "a", CURRENT, "b", CURRENT), upsert(), reply=same, wait=[CURRENT, "a", "b", CURRENT]),
        case("04#1.6 3-paused", "a job in a paused queue", WAITING, meta(paused=1), push("paused", CURRENT), upsert(),
             reply=same, paused=[CURRENT], marker=None),
        case("04#1.6 3-other-list", "paused, but the job is in wait: it is left", WAITING, meta(paused=1),
             push("wait", CURRENT), upsert(at=T + 1), wait=[CURRENT], delayed={later: (T + 60_000) * 4096}),
        case("04#1.6 none; 04#3.1 7-after", "an active job: the next slot", WAITING, push("active", CURRENT), upsert(),
             repeat={"s": T + 60_000}, active=[CURRENT], delayed={later: (T + 60_000) * 4096},
             after={CURRENT: Has(name="n"), "repeat:s": Has(offset=str((T + 60_000) % 60_000))}),
        case("04#3.1 5-no-hash", "a delayed id without hash is left", OLD, zadd("delayed", {CURRENT: 5}), upsert(),
             delayed={CURRENT: 5, later: (T + 60_000) * 4096}),
        case("04#1.6 dedup", "its deduplication key is released", WAITING, put(CURRENT, deid="d"),
             ("SET", f"{Q}de:d", CURRENT), zadd("delayed", {CURRENT: 5}), upsert(), reply=same, after={"de:d": None}),
        case("04#1.6 parent", "a parent is released silently", WAITING, put(CURRENT, parentKey="bull:p:par"),
             job("par", P), ("SADD", "bull:p:par:dependencies", Q + CURRENT), zadd(f"{P}waiting-children", {"par": 1}),
             zadd("delayed", {CURRENT: 5}), upsert(), reply=same,
             after={"bull:p:wait": ["par"], "bull:p:events": None, CURRENT: Has(parentKey=None)}),
        case("04#1.6 lock", "its lock stays, its logs go", WAITING, push(f"{CURRENT}:logs", "row"),
             ("SET", f"{Q}{CURRENT}:lock", "x"), zadd("delayed", {CURRENT: 5}), upsert(), reply=same,
             after={f"{CURRENT}:lock": "x", f"{CURRENT}:logs": None}),
    ]


def upserts() -> list[Case]:
    due = T + 60_000
    id = f"repeat:s:{due}"
    in_a_minute = [id.encode(), 60_000]
    told = [f"added jobId {id} name sj", f"delayed jobId {id} delay {due}"]
    return [
        case("04#3.1 1 2 4-cron 6-new 8 9 10 11 12-none 13", "a new cron scheduler", cron(data='{"a":1}'),
             reply=lambda reply: reply == in_a_minute, id="1", meta=CAP, repeat={"s": due}, delayed={id: due * 4096},
             marker={"1": due}, events=told,
             after={id: Has(name="sj", data='{"a":1}', timestamp=str(T), delay="60000", priority="0", rjk="s")}),
        case("04#3.1 8-past", "a slot that has passed", cron(T - 5),
             reply=lambda reply: reply == [f"repeat:s:{T - 5}".encode(), 0], wait=[f"repeat:s:{T - 5}"]),
        case("04#3.1 4-cron", "the slot stays text", cron("1e3"), reply=lambda reply: reply == [b"repeat:s:1e3", 0],
             repeat={"s": 1000}),
        case("04#3.1 7-cron", "a job with that id exists", job(id), cron(), reply=-10, meta=CAP, repeat=None, id=None,
             after={"repeat:s": None}),
        case("04#3.1 7-after", "the first slot is taken", job(f"repeat:s:{T}"), upsert(), repeat={"s": due},
             reply=lambda reply: reply == in_a_minute),
        case("04#3.1 7-busy", "both slots are taken", job(f"repeat:s:{T}"), job(id), upsert(), reply=-11, meta=CAP,
             repeat=None, id=None),
        case("04#3.1 12", "a producing job, without hash", cron(producer_key=f"{Q}prod"),
             after={"prod": {"nrjid": id}}),
        case("04#3.1 decode", "options that do not decode: before anything", cron(options=b"\xc1"), reply=ERROR,
             meta=None),
        case("04#3.1 decode", "a template that does not decode: before anything", cron(template=b"\xc1"), reply=ERROR,
             meta=None),
        case("04#3.1 decode", "a schedule that does not decode: after the score", zadd("repeat", {"s": T}),
             cron(schedule=b"\xc1"), reply=ERROR, meta=CAP),
        case("04#3.1 decode", "a set of schedulers of another type comes before the schedule", push("repeat", "x"),
             cron(schedule=b"\xc1"), reply=Error("WRONGTYPE"), meta=CAP),
        case("04#3.1 late-error", "NaN in the options: all but the job is there",
             cron(options={"repeat": {}, "x": float("nan")}), reply=ERROR, id="1", repeat={"s": due}, events=None,
             after={"repeat:s": Has(ic="1"), id: None}),
        case("04#3.1 late-error", "a time that is no number", cron(at="x"), reply=ERROR, meta=CAP, repeat=None),
    ]


def removed() -> list[Case]:
    gone = f"removed jobId {CURRENT} prev delayed"
    return [
        case("04#3.3 1-delayed 2 no-dedup", "with its delayed job", WAITING, put(CURRENT, deid="d"),
             ("SET", f"{Q}de:d", CURRENT), zadd("delayed", {CURRENT: D}), zadd("marker", {"1": T}),
             push(f"{CURRENT}:logs", "row"), remove_scheduler(), reply=0, repeat=None, delayed=None, meta=None,
             marker={"1": T}, events=[gone], after={"repeat:s": None, CURRENT: None, f"{CURRENT}:logs": None,
                                                   "de:d": CURRENT}),
        case("04#3.3 1-other 2", "its job waits: it stays", WAITING, push("wait", CURRENT), remove_scheduler(), reply=0,
             repeat=None, wait=[CURRENT], events=None, after={"repeat:s": None, CURRENT: Has(rjk="s")}),
        case("04#3.3 3 no-score", "no such scheduler: a record without a score stays", put("repeat:s", name="x"),
             remove_scheduler(), reply=1, after={"repeat:s": {"name": "x"}}),
        case("04#3.3 1-delayed", "a slot with a fraction", zadd("repeat", {"s": T + 0.5}),
             zadd("delayed", {f"repeat:s:{T}.5": D}), remove_scheduler(), reply=0, delayed=None,
             events=[f"removed jobId repeat:s:{T}.5 prev delayed"]),
        case("04#3.4 found", "a scheduler", zadd("repeat", {"s": T}), put("repeat:s", name="x"), get_scheduler(),
             reply=[["name", "x"], str(T)]),
        case("04#3.4 no-record", "a scheduler without record", zadd("repeat", {"s": 5.5}), get_scheduler(),
             reply=[[], "5.5"]),
        case("04#3.4 absent", "no such scheduler", put("repeat:s", name="x"), get_scheduler(), reply=[]),
    ]


def reference_states() -> list[Case]:
    every, now = {"every": 60_000, "limit": 5, "count": 1, "offset": None}, 1795819921185
    template = {"attempts": 3, "removeOnComplete": True, "priority": 0, "kl": 7,
                "backoff": {"type": "fixed", "delay": 1000}, "tm": "md"}
    options = {**template, "repeat": every, "jobId": "repeat:s1:undefined", "delay": float("nan"),
               "timestamp": 1795819921183, "repeatJobKey": "s1"}
    id = f"repeat:s1:{now}"
    stored = ('{"tm":"md","repeatJobKey":"s1","backoff":{"type":"fixed","delay":1000},"kl":7,"timestamp":1795819921183,'
              f'"repeat":{{"every":60000,"limit":5,"count":1}},"removeOnComplete":true,"jobId":"{id}","priority":0,'
              '"delay":0,"attempts":3}')
    newyear = 1798761600000
    yearly = {"name": "jn", "startDate": 1795824000000, "endDate": 1893456000000, "tz": "Europe/London",
              "pattern": "0 0 1 1 *", "every": None, "limit": None, "offset": None}
    rule = {"pattern": "0 0 1 1 *", "tz": "Europe/London", "endDate": 1893456000000, "count": 1}
    thrice = {"repeat": {"every": 400, "limit": 3, "count": 1}}
    ids = [f"repeat:s1:{T + 400 * n}" for n in range(3)]
    return [
        case("04#4.8 1", "the first upsert of an `every` scheduler",
             add_scheduler(Q, "s1", schedule={"name": "jn", "startDate": None, "endDate": None, "tz": None,
                                              "pattern": None, "every": 60_000, "limit": 5, "offset": None},
                           data='{"a":1}', template=template, options=options, at=now),
             repeat={"s1": now}, wait=[id], marker={"0": 0}, id="1",
             events=[f"added jobId {id} name jn", f"waiting jobId {id}"],
             after={"repeat:s1": {"name": "jn", "limit": "5", "every": "60000", "offset": "1185", "data": '{"a":1}',
                                  "ic": "1",
                                  "opts": Json('{"kl":7,"tm":"md","removeOnComplete":true,"priority":0,'
                                               '"backoff":{"type":"fixed","delay":1000},"attempts":3}')},
                    id: {"name": "jn", "data": '{"a":1}', "opts": Json(stored), "timestamp": str(now), "delay": "0",
                         "priority": "0", "rjk": "s1"}}),
        case("04#4.8 2", "a cron scheduler with a zone and dates",
             add_scheduler(Q, "s1", slot=str(newyear), schedule=yearly, data='{"a":1}', options={"repeat": rule},
                           at=1795819942368),
             repeat={"s1": newyear}, delayed={f"repeat:s1:{newyear}": 7367727513600000}, marker={"1": newyear},
             events=[f"added jobId repeat:s1:{newyear} name jn", f"delayed jobId repeat:s1:{newyear} delay {newyear}"],
             after={"repeat:s1": {"name": "jn", "tz": "Europe/London", "pattern": "0 0 1 1 *",
                                  "startDate": "1795824000000", "endDate": "1893456000000", "offset": "0",
                                  "data": '{"a":1}', "ic": "1"}}),
        case("04#4.8 3", "three runs",
             add_scheduler(Q, "s1", schedule={"name": "jn", "every": 400, "limit": 3}, options=thrice),
             update_scheduler(Q, "s1", options=thrice, producer=ids[0]),
             update_scheduler(Q, "s1", options=thrice, at=T + 400, producer=ids[1]), reply=ids[2], id="3",
             repeat={"s1": T + 800},
             after={"repeat:s1": Has(ic="3"), ids[0]: Has(nrjid=ids[1]), ids[1]: Has(nrjid=ids[2]),
                    ids[2]: Has(nrjid=None)}),
    ]


def repeatables() -> list[Case]:
    key, oldest = "45058748743d4d95ccd17fd5fb7bcfb3", "jn::::60000"
    named = {"name": "jn", "endDate": 5, "tz": "UTC", "pattern": "* * * * *", "every": 60_000}
    id = f"repeat:{key}:{T}"
    there = [zadd("repeat", {key: T}), put(f"repeat:{key}", name="old", zzz="1"), job(id, deid="d"),
             zadd("delayed", {id: D})]
    told = [f"removed jobId {id} prev delayed"]

    def add(slot: Any = T + 60_000, **given: Any) -> Call:
        return add_repeatable(Q, key, oldest, slot=slot, **given)

    return [
        case("04#6.2/addRepeatableJob 2-member 3 3-fields 4", "a new one", add(schedule=named), reply=key,
             repeat={key: T + 60_000}, events=None,
             after={f"repeat:{key}": {"name": "jn", "endDate": "5", "tz": "UTC", "pattern": "* * * * *",
                                      "every": "60000"}}),
        case("04#6.2/addRepeatableJob 1 3", "its delayed job is replaced; old fields stay", there,
             ("SET", f"{Q}de:d", id), add(), reply=key, delayed=None, events=None,
             after={id: None, "de:d": None, f"repeat:{key}": {"name": "n", "every": "1000", "zzz": "1"}}),
        case("04#6.2/addRepeatableJob 1-not-delayed", "its job is not delayed", there, ("DEL", f"{Q}delayed"), add(),
             repeat={key: T + 60_000}, after={id: Has(name="n")}),
        case("04#6.2/addRepeatableJob 1-next-exists", "the next job exists: the job stays", there,
             job(f"repeat:{key}:{T + 60_000}"), add(), delayed={id: D}, repeat={key: T + 60_000}),
        case("04#6.2/addRepeatableJob 2-oldest 4", "one of the oldest kind keeps its member",
             zadd("repeat", {oldest: 5}), add(), reply=oldest, repeat={oldest: T + 60_000},
             after={f"repeat:{oldest}": {"name": "n", "every": "1000"}, f"repeat:{key}": None}),
        case("04#6.2/addRepeatableJob name", "no name", add(schedule={"every": 5}), reply=ERROR,
             repeat={key: T + 60_000}, after={f"repeat:{key}": None}),
        case("04#6.2/addRepeatableJob decode", "a schedule that does not decode: after the score", there,
             add(schedule=b"\xc1"), reply=ERROR, repeat={key: T + 60_000}, delayed=None),
        case("04#6.2/updateRepeatableJobMillis member", "by the member key", zadd("repeat", {key: 5, oldest: 6}),
             update_repeatable(Q, key, oldest), reply=key, repeat={key: T, oldest: 6}),
        case("04#6.2/updateRepeatableJobMillis oldest", "by the concatenated key", zadd("repeat", {oldest: 6}),
             update_repeatable(Q, key, oldest), reply=oldest, repeat={oldest: T}),
        case("04#6.2/updateRepeatableJobMillis none", "neither", update_repeatable(Q, key, oldest), reply="",
             repeat=None),
        case("04#6.2/updateRepeatableJobMillis bad", "a slot that is no number", zadd("repeat", {key: 5}),
             update_repeatable(Q, key, oldest, slot="x"), reply=ERROR, repeat={key: 5}),
        case("04#6.2/removeRepeatable 3 4", "by the member key", there, remove_repeatable(Q, key, oldest), reply=0,
             repeat=None, delayed=None, events=told, meta=None, after={f"repeat:{key}": None, id: None}),
        case("04#6.2/removeRepeatable 1-not-delayed 3 4", "its job is not delayed: it stays", there,
             ("DEL", f"{Q}delayed"), remove_repeatable(Q, key, oldest), reply=0, repeat=None, events=None,
             after={id: Has(name="n")}),
        case("04#6.2/removeRepeatable 1 2 2-hash-stays", "one of the oldest kind; a hash of that name stays",
             zadd("repeat", {oldest: T, key: 5}), put(f"repeat:{oldest}", name="x"), job(f"repeat:hash:{T}"),
             zadd("delayed", {f"repeat:hash:{T}": D}), remove_repeatable(Q, key, oldest), reply=0, repeat={key: 5},
             delayed=None, events=[f"removed jobId repeat:hash:{T} prev delayed"],
             after={f"repeat:{oldest}": {"name": "x"}, f"repeat:hash:{T}": None}),
        case("04#6.2/removeRepeatable 5", "neither", put(f"repeat:{key}", name="x"), remove_repeatable(Q, key, oldest),
             reply=1, after={f"repeat:{key}": {"name": "x"}}),
        case("04#6.2/removeRepeatable by-key", "a scheduler, by its id", WAITING, zadd("delayed", {CURRENT: D}),
             remove_repeatable(Q, "s", ""), reply=0, repeat=None, after={"repeat:s": None, CURRENT: None}),
    ]


CASES = [
    *slots(), *steps(), *first_slots(), *records(), *taken_back(), *upserts(), *removed(), *reference_states(),
    *repeatables(),
]
