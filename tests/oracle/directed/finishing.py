"""Finishing jobs: part 02 of the specification, sections 3, 5, 12, 13, 17 and their examples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.oracle.calls import Call, P, Q, T, move_to_finished
from tests.oracle.cases import ERROR, NONE, Case, Error, Has, Ttl, case, job, limited, meta, push, put, took, zadd

# fmt: off
BRANCHES = {
    "02#W8": "zero own other missing nil false number",
    "02#W9": "empty nil false fields numbers",
    "02#W10": "1-missing 1-found 2",
    "02#W11": "none own other ttl gone failed",
    "02#W12": "1-missing 1-not-waiting 2 3.2 3.3 3.4 3.5",
    "02#W13": "absent fpof cpof idof-last idof-pending rdof none not-pending 1 2-waiting 2-delayed 3 4 4-failed "
    "completed-defa "
    "overwrites false-flag null-flag zero-flag precedence packed-flags event-prev key-from-parent",
    "02#W14": "given looked-up not-pending others last paused held missing ignores-priority flagless",
    "02#W15": "keys lock-stays",
    "02#W16": "age age-closed count equal unlink no-hash order",
    "02#W17": "1 2 3 4 5 6-one 6-more 6-batches 7 8 nil",
    "02#W19": "colons none",
    "02#W20": "absent 1 2 2-missing 3 fallback fallback-colons fallback-empty id-empty key-empty",
    "02#5": "1 2-pending 2-unsuccessful 3 4-missing 4-other 5 6 7 8 9 10 11-completed 11-failed 11-none 12 13-keep "
    "13-defa "
    "13-completed-defa 13-age 13-age-zero 13-count 13-count-equal 13-remove 13-remove-unlinks 13-remove-ignores-age "
    "14 15 "
    "15-zero 15-left 16 17 17-limited 17-held 17-job 17-next 17-old-0:0 17-old-other 17-real-0 17-0:0-none "
    "17-same-token "
    "17-parent-next 17-promotes 18 18-waiting 18-active 18-prioritized 18-delayed-ignored 19 failed-not-refused order "
    "fetch-text",
    "02#12": "table",
    "02#13": "table",
    "02#15.4": "no-lock-duration",
    "02#16": "order",
    "02#17/moveToFinished": "packed update keep-type job-type parent-text cap no-queue-key failed-no-queue-key "
    "parent-type "
    "parent-concurrency parent-pc fallback-no-colon atm time count age attempts metrics-size metrics-prev "
    "metrics-fraction",
    "02#18.2": "examples",
    "02#18.3": "examples",
}

D = T * 4096
CAP = {"opts.maxLenEvents": "10000"}
COMPLETED = "completed jobId 1 returnvalue V prev active"
FAILED = "failed jobId 1 failedReason V prev active"
EXHAUSTED = "retries-exhausted jobId 1 attemptsMade 1"
BASE = [job("1"), push("active", "1"), ("SET", f"{Q}1:lock", "tk", "PX", 30000), ("SADD", f"{Q}stalled", "1")]
FIELDS = ["failedReason", "boom", "stacktrace", "[]"]


def done(covers: str, title: str, *more: Any, reply: Any = 0, call: Call | None = None, after: Any = None, at: Any = T,
         outcome: str = "completed", fetch: str = "1", update: Any = None, options: dict[str, Any] | None = None,
         **keys: Any) -> Case:
    """Finish job 1 of `BASE`, by default with fetch."""
    finish = move_to_finished(outcome=outcome, fetch=fetch, update=update, at=at,
                              **(options or {})) if call is None else call
    return case(covers, title, BASE, *more, finish, reply=reply, after=after or {}, **keys)

BAD_AGES: tuple[Any, ...] = ("x", True, {})


def main_road() -> list[Case]:
    kids = [("SADD", f"{Q}1:dependencies", "x"), zadd("1:unsuccessful", {"y": 1})]
    wrong = {"token": "z"}
    no_lock = ("DEL", f"{Q}1:lock")
    old: list[Any] = [("XADD", f"{Q}events", "*", "event", f"e{i}") for i in range(200)]
    return [
        done("02#18.2 examples; 02#5 3 4-missing 7 8 9 12 13-keep 14 18 19; 02#W10 1-missing 2; 02#W8 own; 02#W9 "
        "empty; 02#W11 none",
             "completed, nothing waits", completed={"1": T}, stalled=None, meta=CAP, active=None,
             events=[COMPLETED, "drained"],
             after={"1:lock": None, "1": Has(atm="1", returnvalue="V", finishedOn=str(T))}),
        case("02#5 1", "no such job", move_to_finished(), reply=-1, meta=None),
        done("02#18.2 examples; 02#5 2-pending", "pending children come before the lock", kids, options=wrong, reply=-4,
             stalled={"1"}),
        done("02#18.2 examples; 02#5 2-unsuccessful", "failed children come before the lock", kids[1:], options=wrong,
             reply=-9),
        done("02#18.2 examples; 02#5 4-other; 02#W8 other", "failed with a wrong token", kids, options=wrong,
             outcome="failed", reply=-6),
        done("02#18.2 examples; 02#5 failed-not-refused", "failed with pending and failed children", kids,
             outcome="failed"),
        done("02#18.2 examples; 02#5 4-missing; 02#W8 missing", "no lock", no_lock, reply=-2, stalled={"1"},
             active=["1"]),
        done("02#18.2 examples; 02#W8 nil", "no token, a lock", options={"token": None}, reply=-6),
        done("02#W8 nil", "no token, no lock", no_lock, options={"token": None}, reply=-2),
        done("02#W8 number", "the number 0 is not the text", options={"token": 0}, reply=-6),
        done("02#W8 false", "the token false equals a missing lock", no_lock, options={"token": False}, reply=0,
             stalled=None),
        done("02#18.2 examples; 02#W8 zero", "token 0", options={"token": "0"}, stalled={"1"}, after={"1:lock": "tk"}),
        done("02#18.2 examples; 02#5 8 5; 02#W9 fields", "not active: found out late", ("DEL", f"{Q}active"),
             put("1", deid="d"),
             ("SET", f"{Q}de:d", "1"), outcome="failed", update=FIELDS, reply=-3, stalled=None, meta=None,
             after={"1:lock": None, "1": Has(failedReason="boom", stacktrace="[]", atm=None), "de:d": "1"}),
        done("02#5 8; 02#W9 fields", "not active, failed without a deduplication key", ("DEL", f"{Q}active"),
             outcome="failed", update=FIELDS, reply=-3, after={"1:lock": None, "1": Has(stacktrace="[]", atm=None)}),
        done("02#W9 fields; 02#5 15", "failed for the last time, with fields", outcome="failed", update=FIELDS,
             events=[FAILED, EXHAUSTED, "drained"], failed={"1": T},
             after={"1": Has(failedReason="V", stacktrace="[]", atm="1")}),
        done("02#17/moveToFinished cap", "the event stream is no stream", ("SET", f"{Q}events", "x"), reply=ERROR,
             completed=None, active=None, after={"1": Has(atm=None, finishedOn=None)}),
        done("02#W9 numbers", "numbers in the field update", outcome="failed", update=["n", 5, "f", 0.5, "big", 2**40],
             reply=0,
             after={"1": Has(n="5", f="0.5", big="1099511627776")}),
        done("02#W9 nil", "a packed nil as field update", outcome="failed", update=b"\xc0"),
        done("02#W9 false", "a packed false as field update", outcome="failed", update=b"\xc2"),
        done("02#18.2 examples; 02#5 15-left", "attempts left", put("1", atm=1), outcome="failed",
             options={"attempts": 3},
             events=[FAILED, "drained"], after={"1": Has(atm="2")}),
        done("02#18.2 examples; 02#5 15 15-zero", "attempts 0 are always used up", put("1", atm=5), outcome="failed",
             options={"attempts": 0}, events=[FAILED, "retries-exhausted jobId 1 attemptsMade 6", "drained"]),
        done("02#5 15", "attempts as a text", outcome="failed", options={"attempts": "1"},
             events=[FAILED, EXHAUSTED, "drained"]),
        done("02#18.2 examples; 02#5 13-defa", "failed: the deferred failure is done", put("1", defa="zz"),
             outcome="failed",
             after={"1": Has(defa=None)}),
        done("02#5 13-defa 13-count", "failed, with retention: the deferred failure is done", put("1", defa="zz"),
             outcome="failed", options={"keepJobs": {"count": 1}}, after={"1": Has(defa=None)}),
        done("02#5 13-completed-defa", "completed: a stale deferred failure stays", put("1", defa="zz"),
             after={"1": Has(defa="zz")}),
        done("02#18.2 examples; 02#5 8", "one occurrence, from the right", ("DEL", f"{Q}active"),
             push("active", "1", "2", "1"),
             active=["1", "2"]),
        done("02#W10 1-found 2", "the stream is trimmed first, and once", meta(**{"opts.maxLenEvents": "0"}),
             [("XADD", f"{Q}events", "*", "event", f"e{i}") for i in range(100)], events=[COMPLETED, "drained"]),
        done("02#W10 1-found 2", "199 entries and a cap of 100", meta(**{"opts.maxLenEvents": "100"}), old[1:]),
        done("02#W10 1-found 2", "as many entries as the usual cap keeps", meta(**CAP), old[:1] * 10_099),
        done("02#W10 1-found 2", "200 entries and a cap of 100", meta(**{"opts.maxLenEvents": "100"}), old),
        done("02#18.2 examples; 02#5 10; 02#W11 own", "the deduplication key is released", put("1", deid="d"),
             ("SET", f"{Q}de:d", "1"),
             after={"de:d": None}),
        done("02#18.2 examples; 02#W11 ttl", "a key with lifetime stays", put("1", deid="d"),
             ("SET", f"{Q}de:d", "1", "PX", 500_000),
             after={"de:d": Ttl(500_000, "1")}),
        done("02#18.2 examples; 02#W11 other", "another's key stays", put("1", deid="d"), ("SET", f"{Q}de:d", "2"),
             after={"de:d": "2"}),
        done("02#W11 gone", "no key", put("1", deid="d"), after={"de:d": None}),
        done("02#W11 failed", "failed: the same", put("1", deid="d"), ("SET", f"{Q}de:d", "1"), outcome="failed",
             after={"de:d": None}),
        done("02#18.2 examples", "upstream's bytes", call=move_to_finished(
            fetch="1", packed=bytes.fromhex(
                "de000ba5746f6b656ea2746ba46e616d65c0a86b6565704a6f6273de0001a5636f756e74ffa76c696d69746572c0ac6c6f63"
                "6b4475726174"
                "696f6ecd7530a8617474656d70747300ae6d61784d65747269637353697a65a0a466706f66c2a463706f66c2a469646f66c2"
                "a472646f66c2")),
             events=[COMPLETED, "drained"], completed={"1": T}),
    ]


def retention() -> list[Case]:
    old = zadd("completed", {str(i): T - i * 1000 for i in range(2, 8)})
    left: dict[str, float] = {"1": T, "2": T - 2000, "3": T - 3000}
    ten = [job("10"), push("active", "10"), ("SET", f"{Q}10:lock", "tk")]
    child = put("5", parentKey="bull:p:P")
    parent = [job("P", P, priority=4, delay=9), zadd(f"{P}waiting-children", {"P": 1}),
              ("SADD", "bull:p:P:dependencies", "bull:q:5")]
    older = [zadd("completed", {"5": T - 9000}), child, push("5:logs", "row"), ("SET", f"{Q}5:lock", "x"),
             ("SADD", f"{Q}5:dependencies", "a"), put("5:processed", a=1), put("5:failed", a=1),
             zadd("5:unsuccessful", {"a": 1})]
    gone = {f"5{part}": None for part in ("", ":logs", ":dependencies", ":processed", ":failed", ":unsuccessful")}
    keep = {"keepJobs": {"age": 1}}
    return [
        done("02#18.2 examples; 02#5 13-age-zero; 02#12 table", "age 0 removes the job itself",
             options={"keepJobs": {"age": 0}},
             completed=None, events=[COMPLETED, "drained"], after={"1": None}),
        case("02#18.2 examples; 02#5 13-count-equal; 02#W16 equal", "count with equal times removes the job itself",
             ten,
             zadd("completed", {"9": T, "8": T + 5}), move_to_finished(id="10", keepJobs={"count": 2}), reply=0,
             completed={"9": T, "8": T + 5}, after={"10": None}),
        done("02#18.2 examples; 02#5 13-age 13-count; 02#12 table; 02#W16 age age-closed count no-hash",
             "age, then count", old,
             options={"keepJobs": {"age": 5, "count": 3}}, completed=left),
        done("02#18.2 examples; 02#5 13-age; 02#12 table", "a fraction of seconds, count -1", old,
             options={"keepJobs": {"age": 4.5, "count": -1}}, completed={**left, "4": T - 4000}),
        done("02#W16 age-closed", "the interval is closed", old, options={"keepJobs": {"age": 4}}, completed=left),
        done("02#12 table; 02#5 13-count; 02#W16 count", "count 2", old, options={"keepJobs": {"count": 2}},
             completed={"1": T, "2": T - 2000}),
        done("02#12 table; 02#5 13-keep", "no rule", old, options={"keepJobs": {}},
             completed={"1": T, **{str(i): T - i * 1000 for i in range(2, 8)}}),
        done("02#12 table; 02#5 13-remove 13-remove-ignores-age; 02#W15 keys", "count 0 removes this job and no other",
             old,
             push("1:logs", "row"), options={"keepJobs": {"age": 1, "count": 0}},
             completed={str(i): T - i * 1000 for i in range(2, 8)}, events=[COMPLETED, "drained"],
             after={"1": None, "1:logs": None}),
        done("02#W16 unlink; 02#W14 looked-up last ignores-priority; 02#W15 keys lock-stays; 02#16 order",
             "an old child is unlinked",
             older, parent, options=keep, completed={"1": T},
             after={**gone, "5:lock": "x", "bull:p:P:dependencies": None, "bull:p:wait": ["P"],
                    "bull:p:marker": {"0": 0},
                    "bull:p:events": ["waiting jobId P prev waiting-children"], "bull:p:prioritized": None}),
        done("02#W14 others", "others are pending", older, parent, ("SADD", "bull:p:P:dependencies", "z"), options=keep,
             after={**gone, "bull:p:P:dependencies": {"z"}, "bull:p:wait": None}),
        done("02#W14 not-pending", "the child is not pending", older, parent,
             ("SREM", "bull:p:P:dependencies", "bull:q:5"), options=keep,
             after={**gone, "bull:p:wait": None}),
        done("02#W14 missing", "the parent does not exist", older, parent, ("DEL", "bull:p:P"), options=keep,
             after={**gone, "bull:p:P:dependencies": {"bull:q:5"}}),
        done("02#W14 paused", "the parent's queue is paused", older, parent, meta(P, paused=1), options=keep,
             after={"bull:p:paused": ["P"], "bull:p:marker": None}),
        done("02#W14 held", "the parent's queue is maxed", older, parent, meta(P, concurrency=0), options=keep,
             after={"bull:p:wait": ["P"], "bull:p:marker": None}),
        done("02#W19 colons", "a parent with colons in its id is not released", older,
             put("5", parentKey="bull:p:a:b:c"),
             job("a:b:c", P), zadd(f"{P}waiting-children", {"a:b:c": 1}),
             ("SADD", "bull:p:a:b:c:dependencies", "bull:q:5"),
             options=keep, after={"bull:p:a:b:c:dependencies": None, "bull:p:waiting-children": {"a:b:c": 1}}),
        done("02#W19 none", "a parent key without a colon", older, put("5", parentKey="nocolon"),
             ("HSET", "nocolon", "a", "b"),
             ("SADD", "nocolon:dependencies", "bull:q:5"), options=keep, reply=ERROR, events=None,
             completed={"1": T, "5": T - 9000},
             after={"5": Has(name=None, parentKey="nocolon")}),
        done("02#5 13-remove-unlinks; 02#W14 given flagless; 02#18.3 examples",
             "count 0: a failed child without flags is unlinked",
             put("1", parentKey="bull:p:P"), [job("P", P, priority=3), zadd(f"{P}waiting-children", {"P": 1})],
             ("SADD", "bull:p:P:dependencies", "bull:q:1"), outcome="failed", options={"keepJobs": {"count": 0}},
             failed=None,
             after={"bull:p:wait": ["P"], "bull:p:marker": {"0": 0}, "bull:p:P:failed": None}),
        done("02#W16 order; 02#16 order", "removal from the highest score down",
             zadd("completed", {"5": T - 9000, "6": T - 8000}),
             put("5", parentKey="bull:q:P5"), put("6", parentKey="bull:q:P6"), job("P5"), job("P6"),
             zadd("waiting-children", {"P5": 1, "P6": 1}), ("SADD", f"{Q}P5:dependencies", "bull:q:5"),
             ("SADD", f"{Q}P6:dependencies", "bull:q:6"), options=keep, fetch="0", wait=["P6", "P5"],
             events=["waiting jobId P6 prev waiting-children", "waiting jobId P5 prev waiting-children", COMPLETED]),
    ]


def metrics() -> list[Case]:
    k = 28333333
    rows: tuple[tuple[int, int, Any, str, int, str, list[str] | None], ...] = (
        (0, 100, 5, "1", k * 60000 + 100, "0", None),
        (0, 200, 5, "2", k * 60000 + 100, "0", None),
        (0, 59999, 5, "3", k * 60000 + 100, "0", None),
        (1, 0, 5, "4", (k + 1) * 60000, "3", ["3"]),
        (1, 500, 5, "5", (k + 1) * 60000, "3", ["3"]),
        (4, 1, 5, "6", (k + 4) * 60000 + 1, "5", ["0", "0", "2", "3"]),
        (2, 0, 5, "7", (k + 4) * 60000 + 1, "5", ["0", "0", "2", "3"]),
        (5, 0, 5, "8", (k + 5) * 60000, "7", ["2", "0", "0", "2", "3"]),
        (200, 0, 5, "9", (k + 200) * 60000, "8", ["0", "0", "0", "0", "1"]),
        (201, 0, 5, "10", (k + 201) * 60000, "9", ["1", "0", "0", "0", "0"]),
        (202, 0, 1, "11", (k + 202) * 60000, "10", ["1"]),
    )
    steps: list[Any] = []
    found = []
    for minute, ms, size, count, stamp, before, points in rows:
        steps = [*steps, *BASE, move_to_finished(at=(k + minute) * 60000 + ms, maxMetricsSize=size,
                                                 keepJobs={"count": 0})]
        found.append(case("02#13 table; 02#5 16; 02#W17 1 2 3 4 5 6-one 6-more 7 8", f"minute k+{minute} + {ms} ms",
                          steps, reply=0,
                          after={"metrics:completed": {"count": count, "prevTS": str(stamp), "prevCount": before},
                                 "metrics:completed:data": points}))
    past = put("metrics:completed", count=3, prevTS=T - 240_000, prevCount=1)
    return [
        *found,
        done("02#W17 6-batches", "a gap of 15001 minutes",
             put("metrics:completed", count=3, prevTS=T - 15_001 * 60_000, prevCount=1),
             options={"maxMetricsSize": 20_000}, after={"metrics:completed:data": [*["0"] * 15_000, "2"]}),
        done("02#W17 nil", "no size: the first job works", options={"maxMetricsSize": None}, reply=0,
             after={"metrics:completed": {"count": "1", "prevTS": str(T), "prevCount": "0"}}),
        done("02#W17 nil; 02#17/moveToFinished metrics-size", "no size: later ones fail", past,
             options={"maxMetricsSize": None},
             reply=ERROR,
             after={"metrics:completed": Has(count="4", prevCount="1"), "completed": {"1": T}}),
        done("02#W17 4", "size 0 in the map: only the count", past, options={"maxMetricsSize": 0},
             after={"metrics:completed": Has(count="4", prevCount="1"), "metrics:completed:data": None}),
        done("02#W17 4", "a negative size: only the count", past, options={"maxMetricsSize": -3},
             after={"metrics:completed": Has(count="4", prevCount="1")}),
        done("02#W17 3", "a size as text", past, options={"maxMetricsSize": "2"},
             after={"metrics:completed:data": ["0", "2"]}),
        done("02#17/moveToFinished metrics-size", "a size that is no number", past, options={"maxMetricsSize": "x"},
             reply=ERROR,
             after={"metrics:completed": Has(count="4")}),
        done("02#17/moveToFinished metrics-fraction", "a size with a fraction", past, options={"maxMetricsSize": 2.5},
             reply=ERROR,
             after={"metrics:completed": Has(count="4", prevCount="1", prevTS=str(T - 240_000)),
                    "metrics:completed:data": ["0", "2"]}),
        done("02#17/moveToFinished metrics-fraction", "a size below 1", past, options={"maxMetricsSize": 0.5},
             reply=ERROR,
             after={"metrics:completed:data": ["2"]}),
        done("02#17/moveToFinished metrics-prev", "an earlier time that is no number",
             put("metrics:completed", count=3, prevTS="x", prevCount=1),
             options={"maxMetricsSize": 5}, reply=ERROR, after={"metrics:completed": Has(count="4")}),
        done("02#17/moveToFinished metrics-prev", "an earlier count that is missing",
             put("metrics:completed", count=3, prevTS=T - 60_000),
             options={"maxMetricsSize": 5}, reply=ERROR, after={"metrics:completed": Has(count="4")}),
    ]


def fetching() -> list[Case]:
    one = [COMPLETED]
    return [
        done("02#18.2 examples; 02#5 18-delayed-ignored", "no fetch: delayed and paused jobs are not looked at",
             zadd("delayed", {"2": D}),
             push("paused", "3"), fetch="0", events=[COMPLETED, "drained"], delayed={"2": D}),
        done("02#5 18-waiting", "no fetch, a job waits", push("wait", "2"), fetch="0", events=one, wait=["2"]),
        done("02#5 18-prioritized", "no fetch, a prioritized job waits", zadd("prioritized", {"2": 1}), fetch="0",
             events=one),
        done("02#5 fetch-text", "anything but 1 is no fetch", push("wait", "2"), fetch="true", wait=["2"]),
        done("02#18.2 examples; 02#5 17 17-next", "only a delayed job", zadd("delayed", {"2": (T + 1000) * 4096 + 5}),
             reply=[0, 0, 0, T + 1000], events=one),
        done("02#18.2 examples; 02#5 17-held", "paused", meta(paused=1), reply=NONE, events=one),
        done("02#18.2 examples; 02#5 18-active", "another job is active", ("LPUSH", f"{Q}active", "9"), reply=0,
             events=one),
        done("02#18.2 examples", "nothing: the counter starts again", ("SET", f"{Q}pc", 5), pc=None),
        done("02#18.2 examples", "no fetch: the counter stays", ("SET", f"{Q}pc", 5), fetch="0", pc="5"),
        done("02#18.2 examples; 02#5 17-limited", "rate limited", ("SET", f"{Q}limiter", 5, "PX", 500_000),
             options={"limiter": {"max": 5, "duration": 1}}, reply=limited(500_000), events=one),
        done("02#18.2 examples; 02#5 17-job 17-same-token", "concurrency 1: the freed slot counts", meta(concurrency=1),
             push("wait", "2"),
             job("2"), at=T + 5, options={"name": "ww", "lockDuration": 123_400}, reply=took("2"), marker={"0": 0},
             events=[COMPLETED, "active jobId 2 prev waiting"],
             after={"2:lock": Ttl(123_400, "tk"), "2": Has(processedOn=str(T + 5), pb="ww"),
                    "1": Has(finishedOn=str(T + 5))}),
        done("02#18.2 examples; 02#5 17-held", "concurrency 1, another is active", meta(concurrency=1),
             push("wait", "2"),
             ("LPUSH", f"{Q}active", "9"), reply=NONE, events=one, marker=None),
        done("02#18.2 examples; 02#5 18-waiting", "concurrency 1, no fetch: nobody is told", meta(concurrency=1),
             push("wait", "2"),
             fetch="0", events=one, marker=None),
        done("02#18.2 examples; 02#5 17-old-0:0", "the old marker 0:0: a prioritized job", push("wait", "5", "0:0"),
             zadd("prioritized", {"6": 1}), reply=took("6"), wait=["5"]),
        done("02#18.2 examples; 02#5 17-old-other", "another old marker: no job", push("wait", "5", "0:77"),
             zadd("prioritized", {"6": 1}),
             reply=0, wait=["5"], prioritized={"6": 1}, active=None, events=one),
        done("02#5 17-real-0", "a real job whose id begins with 0: is lost", push("wait", "0:x"), job("0:x"), reply=0,
             wait=None,
             active=None, after={"0:x": Has(name="n")}),
        done("02#5 17-0:0-none", "the old marker 0:0 and nothing prioritized", push("wait", "0:0"),
             ("SET", f"{Q}pc", 4),
             options={"limiter": {"max": 3, "duration": 1000}}, reply=ERROR, pc=None, limiter=None, wait=None,
             active=None,
             completed={"1": T}, events=one),
        done("02#18.2 examples; 02#5 17-parent-next 11-completed order; 02#16 order",
             "the released parent is taken at once",
             push("wait", "w"), put("1", parentKey="bull:q:P", parent='{"id":"P","queueKey":"bull:q"}'), job("P"),
             ("SADD", f"{Q}P:dependencies", "bull:q:1"), zadd("waiting-children", {"P": 1}), reply=took("P"),
             wait=["w"],
             events=["waiting jobId P prev waiting-children", COMPLETED, "active jobId P prev waiting"]),
        done("02#5 17-promotes; 02#16 order", "due jobs are promoted", zadd("delayed", {"2": D, "3": D + 1}),
             outcome="failed",
             reply=took("2"), wait=["3"],
             events=[FAILED, EXHAUSTED, "waiting jobId 2 prev delayed", "waiting jobId 3 prev delayed",
                     "active jobId 2 prev waiting"]),
        done("02#15.4 no-lock-duration", "no lock duration: the next job is stranded", push("wait", "2"),
             options={"lockDuration": None},
             reply=ERROR, active=["2"], completed={"1": T}, after={"2:lock": None}),
    ]


CHILD = f"{Q}c"
RELEASED = {"bull:p:wait": ["P"], "bull:p:marker": {"0": 0}, "bull:p:events": ["waiting jobId P prev waiting-children"],
            "bull:p:waiting-children": None}
FPOF, CPOF, IDOF, RDOF = (f',"{flag}":true' for flag in ("fpof", "cpof", "idof", "rdof"))
UNSUCCESSFUL = {"bull:p:P:unsuccessful": {CHILD: T}}
DEFERRED = {"bull:p:P": Has(defa="child bull:q:c failed")}
TOLD = {"bull:p:P:failed": {CHILD: "V"}}


def child(covers: str, title: str, *more: Any, flags: str = "", outcome: str = "failed",
          where: str = "waiting-children",
          pending: int = 1, parent: dict[str, Any] | None = None, hashed: bool = True, link: bool = True,
          key: bool = True,
          listed: bool = True, id: str = "P", reply: Any = 0, options: dict[str, Any] | None = None,
          **after: Any) -> Case:
    """Child `c` of parent P in queue `bull:p` ends (02 §18.3)."""
    name = P + id
    own: dict[str, Any] = {"name": "n"}
    if key:
        own["parentKey"] = name
    if link:
        own["parent"] = f'{{"id":"{id}","queueKey":"bull:p"{flags}}}'
    steps: list[Any] = [put("c", **own), push("active", "c"), ("SET", f"{CHILD}:lock", "tk")]
    members = ([CHILD] if listed else []) + ([f"{Q}other"] if pending == 2 or not listed else [])
    steps.append(("SADD", f"{name}:dependencies", *members))
    if hashed:
        steps.append(put(name, **{"name": "p", "delay": 0, "priority": 0, **(parent or {})}))
    if where in ("waiting-children", "failed", "completed", "prioritized"):
        steps.append(zadd(P + where, {id: 1}))
    elif where == "delayed":
        steps.append(zadd(f"{P}delayed", {id: (T + 10_000) * 4096}))
    else:
        steps.append(push(P + where, id))
    finish = move_to_finished(id="c", outcome=outcome, **(options or {}))
    return case(f"02#18.3 examples; {covers}", title, steps, list(more), finish, reply=reply, **after)


def completed_children() -> list[Case]:
    def told(covers: str, title: str, *more: Any, **given: Any) -> Case:
        return child(covers, f"completed: {title}", *more, outcome="completed", **given)

    value = {"bull:p:P:processed": {CHILD: "V"}}
    waits = {"bull:p:waiting-children": {"P": 1}, "bull:p:wait": None}
    return [
        told("02#W20 1 2 3; 02#W12 2 3.3 3.5; 02#5 11-completed", "the last child",
             after={**RELEASED, **value, "bull:p:P:dependencies": None, "bull:p:meta": None}),
        told("02#W20 3", "others are pending", pending=2, after={**value, **waits}),
        told("02#W12 3.4", "the parent has a priority", parent={"priority": 4},
             after={"bull:p:prioritized": {"P": 17179869185}, "bull:p:pc": "1", "bull:p:marker": {"0": 0},
                    "bull:p:events": RELEASED["bull:p:events"]}),
        told("02#W12 3.4", "the parent has a priority, its queue is maxed", meta(P, concurrency=0),
             parent={"priority": 4},
             after={"bull:p:prioritized": {"P": 17179869185}, "bull:p:marker": None}),
        told("02#W12 3.2", "the parent has a delay", parent={"priority": 4, "delay": 5000},
             after={"bull:p:delayed": {"P": 6963200020480000}, "bull:p:marker": {"1": 1700000005000},
                    "bull:p:events": ["delayed jobId P delay 1700000005000"], "bull:p:P": Has(delay="5000")}),
        told("02#W12 3.3", "the parent's queue is paused", meta(P, paused=1),
             after={"bull:p:paused": ["P"], "bull:p:marker": None, "bull:p:events": RELEASED["bull:p:events"]}),
        told("02#W12 1-not-waiting", "the parent is active", where="active", after={**value, "bull:p:active": ["P"]}),
        told("02#W12 1-missing; 02#W20 2-missing", "the parent has no hash", hashed=False, after={**value, **waits}),
        told("02#W20 1", "the child is not pending", listed=False, after={"bull:p:P:processed": None, **waits}),
        told("02#W20 fallback", "no parent object", link=False, after={**RELEASED, **value}),
        told("02#W20 fallback", "a parent object with an empty id", put("c", parent='{"id":"","queueKey":"bull:p"}'),
             after={**RELEASED, **value}),
        told("02#W20 3", "a parent with colons in its id", id="a:b:c", after={"bull:p:wait": ["a:b:c"]}),
        told("02#W20 fallback-colons", "a parent with colons in its id, no parent object", id="a:b:c", link=False,
             after={"bull:p:wait": None, "bull:p:a:b:c:processed": {CHILD: "V"}}),
        told("02#W20 absent", "no parent key", key=False, after={"bull:p:P:processed": None, **waits}),
        told("02#W20 fallback-empty", "a parent key that ends in a colon", put("c", parentKey="bull:p:"), link=False,
             after={"bull:p:P:processed": None, **waits}),
        told("02#W20 id-empty; 02#5 11-none", "an empty id and no parent key",
             put("c", parent='{"id":"","queueKey":"bull:p"}'), key=False,
             after={"bull:p:P:processed": None, **waits}),
        told("02#W20 key-empty", "an empty parent key with a parent object", put("c", parentKey=""),
             ("SADD", ":dependencies", CHILD),
             after={":processed": {CHILD: "V"}, "bull:p:P:processed": None}),
        told("02#W20 1", "a second end has no effect on the parent", push("active", "c"), pending=2,
             after={"bull:p:P:dependencies": {f"{Q}other"}}),
    ]


def failed_children() -> list[Case]:
    stays = {"bull:p:P:dependencies": {CHILD}, "bull:p:waiting-children": {"P": 1}}
    found = [
        child("02#W13 none; 02#5 11-failed", "no flag", after=stays),
        child("02#W13 absent", "no parent object", link=False, after=stays),
        child("02#W13 fpof 1 2-waiting 3", "fpof, others pending", flags=FPOF, pending=2,
              after={**UNSUCCESSFUL, **DEFERRED, **RELEASED, "bull:p:P:dependencies": {f"{Q}other"}}),
        child("02#W13 fpof 2-delayed 3 event-prev", "fpof, the parent is delayed", flags=FPOF, where="delayed",
              parent={"delay": 10_000},
              after={**UNSUCCESSFUL, "bull:p:P": Has(defa="child bull:q:c failed", delay="0"), "bull:p:wait": ["P"],
                     "bull:p:events": RELEASED["bull:p:events"], "bull:p:delayed": None}),
        child("02#W13 fpof 2-waiting", "fpof, the parent waits for children and has a delay", flags=FPOF,
              parent={"delay": 7000},
              after={**UNSUCCESSFUL, **DEFERRED, "bull:p:delayed": {"P": 6963200028672000},
                     "bull:p:marker": {"1": 1700000007000},
                     "bull:p:events": ["delayed jobId P delay 1700000007000"]}),
        child("02#W13 fpof 3", "fpof, the parent has a priority", flags=FPOF, parent={"priority": 4},
              after={**UNSUCCESSFUL, **DEFERRED, "bull:p:prioritized": {"P": 17179869185}}),
        child("02#W13 4-failed", "fpof, the parent has failed", flags=FPOF, where="failed",
              after={**UNSUCCESSFUL, "bull:p:P": Has(defa=None)}),
        child("02#W13 1", "fpof, the parent has no hash", flags=FPOF, hashed=False,
              after={**UNSUCCESSFUL, "bull:p:P": None}),
        child("02#W13 not-pending", "fpof, the child is not pending", flags=FPOF, listed=False,
              after={"bull:p:P:unsuccessful": None}),
        child("02#W13 overwrites", "fpof, an earlier deferred failure is overwritten", flags=FPOF, where="wait",
              parent={"defa": "old"},
              after=DEFERRED),
        child("02#W13 packed-flags", "fpof in the packed options and in opts only", put("c", opts='{"fpof":true}'),
              options={"fpof": True}, after={**stays, "bull:p:P:unsuccessful": None}),
        child("02#W13 cpof", "cpof, others pending", flags=CPOF, pending=2, after={**TOLD, **RELEASED}),
        child("02#W13 cpof", "cpof, the parent is active", flags=CPOF, where="active",
              after={**TOLD, "bull:p:wait": None}),
        child("02#W13 cpof", "cpof, the parent is delayed", flags=CPOF, where="delayed",
              after={**TOLD, "bull:p:wait": None}),
        child("02#W13 cpof not-pending", "cpof, the child is not pending", flags=CPOF, listed=False,
              after={"bull:p:P:failed": None}),
        child("02#W13 idof-last", "idof, the last child", flags=IDOF, after={**TOLD, **RELEASED}),
        child("02#W13 idof-pending", "idof, others pending", flags=IDOF, pending=2,
              after={**TOLD, "bull:p:waiting-children": {"P": 1}}),
        child("02#W13 not-pending", "idof, the child is not pending", flags=IDOF, listed=False,
              after={"bull:p:P:failed": None}),
        child("02#W13 rdof", "rdof, the last child", flags=RDOF, after={**RELEASED, "bull:p:P:failed": None}),
        child("02#W13 rdof", "rdof, others pending", flags=RDOF, pending=2,
              after={"bull:p:P:dependencies": {f"{Q}other"}, "bull:p:wait": None, "bull:p:P:failed": None}),
        child("02#W13 precedence", "all flags: fpof", flags=FPOF + CPOF + IDOF + RDOF,
              after={**UNSUCCESSFUL, "bull:p:P:failed": None}),
        child("02#W13 precedence", "cpof and idof: cpof", flags=CPOF + IDOF, pending=2, after={**TOLD, **RELEASED}),
        child("02#W13 precedence", "idof and rdof: idof", flags=IDOF + RDOF, after={**TOLD, **RELEASED}),
        child("02#W13 false-flag", "fpof false, cpof true", flags=',"fpof":false' + CPOF, pending=2,
              after={**TOLD, **RELEASED}),
        child("02#W13 null-flag", "fpof null is on", flags=',"fpof":null', after=UNSUCCESSFUL),
        child("02#W13 zero-flag", "fpof 0 is on", flags=',"fpof":0', after=UNSUCCESSFUL),
        child("02#W13 zero-flag", "idof '' is on", flags=',"idof":""', after=TOLD),
        child("02#W13 key-from-parent", "the parent key is not used", put("c", parentKey="bull:p:other"), flags=FPOF,
              after=UNSUCCESSFUL),
        child("02#W13 key-from-parent", "no parent key, with a parent object", key=False, flags=FPOF,
              after=UNSUCCESSFUL),
    ]
    found += [
        child("02#W13 none; 02#W14 flagless", f"no flag, {keep}", options={"keepJobs": keep}, parent={"priority": 3},
              after={**RELEASED, "bull:p:P:failed": None})
        for keep in ({"count": 0}, {"age": 0})
    ]
    found += [
        child("02#W13 4 completed-defa", f"fpof, the parent is in {where}", flags=FPOF, where=where,
              after={**UNSUCCESSFUL, **DEFERRED, "bull:p:events": None})
        for where in ("wait", "paused", "prioritized", "active", "completed")
    ]
    return found


def failures() -> list[Case]:
    tied = {"parentKey": "bull:p:P"}
    one = ("SADD", "bull:p:P:dependencies", "bull:q:1")
    parent = [job("P", P), zadd(f"{P}waiting-children", {"P": 1}), one]
    good = '{"id":"P","queueKey":"bull:p"}'
    left: dict[str, Any] = {"active": None, "completed": None, "failed": None, "meta": CAP}
    found = [
        done("02#17/moveToFinished cap; 02#5 9", "a bad cap: the job is in no list", meta(**{"opts.maxLenEvents": "x"}),
             reply=ERROR,
             active=None,
             completed=None, events=None, after={"1:lock": None, "1": Has(atm=None)}),
        done("02#17/moveToFinished job-type", "the job is no hash", ("DEL", f"{Q}1"), ("SET", f"{Q}1", "x"),
             reply=Error("WRONGTYPE"), active=["1"],
             after={"1:lock": None}),
        done("02#17/moveToFinished no-queue-key", "a parent object without queue, the last child", parent,
             put("1", **tied, parent='{"id":"P"}'),
             reply=ERROR, **left, after={"bull:p:P:dependencies": None, "bull:p:P:processed": {"bull:q:1": "V"},
                                         "1": Has(atm=None)}),
        done("02#17/moveToFinished no-queue-key", "a parent object without queue, not the last", parent,
             ("SADD", "bull:p:P:dependencies", "z"),
             put("1", **tied, parent='{"id":"P"}'), reply=0),
        done("02#17/moveToFinished no-queue-key", "a parent object without id", parent,
             put("1", **tied, parent='{"queueKey":"bull:p"}'), reply=ERROR, **left),
        done("02#17/moveToFinished failed-no-queue-key", "failed, a parent object without queue", parent,
             put("1", **tied, parent='{"id":"P"}'),
             outcome="failed", reply=ERROR, **left, after={"bull:p:P:dependencies": {"bull:q:1"}}),
        done("02#17/moveToFinished parent-type", "the parent is no hash", parent, ("DEL", "bull:p:P"),
             ("SET", "bull:p:P", "x"),
             put("1", **tied, parent=good),
             reply=Error("WRONGTYPE"), **left, after={"bull:p:waiting-children": None, "bull:p:wait": None}),
        done("02#17/moveToFinished parent-concurrency", "the parent's queue has a bad concurrency", parent,
             meta(P, concurrency="x"),
             put("1", **tied, parent=good), reply=ERROR, **left,
             after={"bull:p:waiting-children": None, "bull:p:wait": None}),
        done("02#17/moveToFinished parent-pc", "the parent's queue has a bad counter", parent,
             put("bull:p:P", priority=3),
             ("SET", f"{P}pc", "x"),
             put("1", **tied, parent=good), reply=ERROR, **left, after={"bull:p:waiting-children": None}),
        done("02#17/moveToFinished fallback-no-colon", "a parent key without a colon",
             put("1", parentKey="nocolon", deid="d"),
             ("SET", f"{Q}de:d", "1"),
             reply=ERROR, **left, after={"de:d": None}),
        done("02#17/moveToFinished fallback-no-colon", "failed, a parent key without a colon",
             put("1", parentKey="nocolon"),
             outcome="failed",
             reply=ERROR, **left),
        done("02#17/moveToFinished atm", "attempts made that are no integer", put("1", atm="x"), reply=ERROR, **left),
        done("02#17/moveToFinished time; 02#5 12", "a time that is no number", at="abc", reply=ERROR, **left,
             after={"1": Has(atm="1", finishedOn=None)}),
        done("02#17/moveToFinished time", "a time that is no number, count 0", at="abc",
             options={"keepJobs": {"count": 0}},
             fetch="0", reply=0),
        done("02#17/moveToFinished packed; 02#5 3", "options that do not decode", call=move_to_finished(packed=b"\xc1"),
             reply=ERROR,
             stalled={"1"},
             after={"1:lock": "tk"}),
        done("02#17/moveToFinished age", "age as text works", zadd("completed", {"9": T - 5000}),
             options={"keepJobs": {"age": "4"}},
             completed={"1": T}),
        done("02#17/moveToFinished keep-type", "a text as rule counts as an empty map", options={"keepJobs": "str"},
             completed={"1": T}),
        done("02#5 6", "count nil and age nil", options={"keepJobs": {"count": None, "age": None}}, completed={"1": T}),
        done("02#17/moveToFinished count", "a negative fraction works", options={"keepJobs": {"count": -1.5}},
             completed={"1": T}),
    ]
    found += [
        done("02#17/moveToFinished packed", f"options {packed!r}", call=move_to_finished(packed=packed), reply=ERROR,
             after={"1:lock": "tk"})
        for packed in (b"", b"\xc0", b"\x05", b"\xc3")
    ]
    found += [
        done("02#17/moveToFinished update; 02#5 5", f"field update {update!r}", outcome="failed", update=update,
             reply=ERROR,
             active=["1"],
             stalled=None, after={"1:lock": None})
        for update in ([], ["a"], ["a", True], {"a": "b"}, "ab", 5)
    ]
    found += [
        done("02#17/moveToFinished keep-type; 02#5 6", f"keepJobs {keep}", outcome="failed", update=FIELDS,
             options={"keepJobs": keep},
             reply=ERROR, active=["1"], after={"1:lock": None, "1": Has(failedReason="boom")})
        for keep in (None, True, 5)
    ]
    found += [
        done("02#17/moveToFinished parent-text; 02#5 7", f"parent object {text!r}", put("1", **tied, parent=text),
             reply=ERROR,
             active=["1"], after={"1:lock": None})
        for text in ("", "{bad", "null", "5", "true")
    ]
    found += [
        done("02#17/moveToFinished parent-text", f"parent object {text!r} has neither id nor queue", parent,
             put("1", **tied, parent=text),
             reply=ERROR, active=None)
        for text in ("[]", '"x"')
    ]
    found += [
        done("02#17/moveToFinished count", f"count {count!r}", options={"keepJobs": {"count": count}}, reply=ERROR,
             completed={"1": T}, events=None, after={"1": Has(finishedOn=str(T))})
        for count in ("2", 1.5, True, False)
    ]
    found += [
        done("02#17/moveToFinished age", f"age {age!r}", options={"keepJobs": {"age": age}}, reply=ERROR,
             completed={"1": T},
             events=None)
        for age in BAD_AGES
    ]
    found += [
        done("02#17/moveToFinished attempts", f"attempts {attempts!r}", outcome="failed",
             options={"attempts": attempts},
             reply=ERROR,
             events=[FAILED], failed={"1": T})
        for attempts in (None, "x", True)
    ]
    return found


def plain(found: list[Case]) -> list[Case]:
    """Return the cases with a stored event cap: a plain job in such a queue takes the short way."""
    capped = ("HSETNX", f"{Q}meta", "opts.maxLenEvents", "10000")
    return [
        replace(each, title=f"{each.title} (event cap stored)", steps=(capped, *each.steps),
                after={key: value for key, value in each.after.items() if key != "meta"})
        for each in found
    ]


FOUND = [*main_road(), *retention(), *metrics(), *fetching(), *completed_children(), *failed_children(), *failures()]
PLAIN = plain(FOUND)
CASES = [*FOUND, *PLAIN]
