"""The next run of a scheduler: part 04 of the specification, sections 1 and 3.2."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import Call, Q, T, update_scheduler
from tests.oracle.cases import ERROR, Case, Error, Has, case, job, meta, push, put, zadd

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


CASES = [*slots(), *steps()]
