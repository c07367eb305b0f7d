"""Fetching jobs, locks and limits: part 02 of the specification, sections 3, 4, 7, 8 and their examples."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import (
    Q,
    T,
    extend_lock,
    extend_locks,
    is_maxed,
    move_to_active,
    rate_limit_ttl,
    release_lock,
)
from tests.oracle.cases import (
    ERROR,
    NONE,
    Case,
    Error,
    Has,
    Ttl,
    about,
    case,
    job,
    limited,
    meta,
    push,
    put,
    took,
    zadd,
)

# fmt: off
BRANCHES = {
    "02#W1": "paused paused-empty maxed open zero not-numeric not-numeric-paused",
    "02#W2": "held ready",
    "02#W3": "next none",
    "02#W4": "1-none 1-limit 2 3.1 3.2-list 3.2-prioritized 3.3 3.4 ghost 4 paused maxed limited negative lifo "
    "stale-one",
    "02#W5": "meta-max worker-max no-max not-numeric duration-worker duration-meta 1 2-missing 2-not-numeric 3 4 "
    "4-no-ttl "
    "zero-acts-as-one negative-acts-as-one",
    "02#W6": "1 2 2-second 3 4 4-pc",
    "02#W7": "1-first 1-more 2 2-none 3 4 4-name 4-empty-name 5 6 7 no-hash pb-stays others-stay D-missing D-zero "
    "D-negative",
    "02#W18": "counted negative float wrap",
    "02#4": "1 2 3 4 5 6 7-next 7-none limited-first held-no-next",
    "02#7.1": "own other none",
    "02#7.2": "own other none nil-token empty duration ids-type tokens-type",
    "02#7.3": "own other none",
    "02#8.1": "given given-text zero-meta zero-bare no-ttl no-key",
    "02#8.2": "maxed paused-too open absent not-numeric",
    "02#10.2": "table",
    "02#17/moveToActive": "options-empty options-undecodable concurrency time due-not-hash due-pc due-nan limiter-text "
    "limiter-type "
    "options-type limiter-fraction D-missing token lock-duration job-not-hash name-true ats",
    "02#18.1": "examples",
    "02#18.5": "examples",
    "02#18.6": "examples",
}

D = T * 4096
ACTIVE_1 = "active jobId 1 prev waiting"


def hashed(*pairs: Any) -> list[str]:
    return [str(each) for each in pairs]


def gate() -> list[Case]:
    wait = push("wait", "1")
    return [
        case("02#18.1 examples; 02#4 7-none; 02#W4 1-none; 02#W1 open; 02#W3 none", "an empty queue", move_to_active(),
             reply=NONE,
             meta=None, events=None, marker=None),
        case("02#18.1 examples; 02#4 1 6; 02#W6 1 3; 02#W7 2 3 4 5 6 7", "a waiting job", wait, job("1"),
             move_to_active(),
             reply=[hashed("name", "n", "data", "{}", "opts", "{}", "timestamp", T, "delay", 0, "priority", 0,
                           "processedOn", T, "ats", 1), "1", 0, 0],
             wait=None, active=["1"], marker={"0": 0}, events=[ACTIVE_1], after={"1:lock": Ttl(30000, "tk")}),
        case("02#18.1 examples; 02#W7 no-hash 4-name", "an id without a hash", wait, move_to_active(name="w1"),
             reply=[hashed("processedOn", T, "pb", "w1", "ats", 1), "1", 0, 0]),
        case("02#18.1 examples; 02#W7 2-none", "token 0: no lock", wait, job("1"), move_to_active(token="0"),
             reply=took("1"),
             after={"1:lock": None}),
        case("02#W7 2-none", "token 0 of a limited worker", wait, job("1"),
             move_to_active(token="0", limiter={"max": 9, "duration": 400_000}), reply=took("1"),
             after={"1:lock": None}),
        case("02#W7 4-empty-name", "an empty name counts", wait, job("1"), move_to_active(name=""),
             after={"1": Has(pb="")}),
        case("02#W7 pb-stays others-stay", "what a job had stays", wait,
             job("1", pb="old", failedReason="boom", defa="zz", delay=5, finishedOn=9, ats=3), move_to_active(),
             after={"1": Has(pb="old", failedReason="boom", defa="zz", delay="5", finishedOn="9", ats="4")}),
        case("02#W7 6; 02#W1 maxed", "the marker is set though the queue is now maxed", wait, meta(concurrency=1),
             job("1"),
             move_to_active(), reply=took("1"), marker={"0": 0}),
        case("02#W1 paused; 02#4 5", "a paused queue", wait, meta(paused=1), move_to_active(), reply=NONE, wait=["1"]),
        case("02#W1 paused-empty", "paused with an empty value", wait, meta(paused=""), move_to_active(), reply=NONE),
        case("02#W1 zero", "concurrency 0", wait, meta(concurrency=0), move_to_active(), reply=NONE, wait=["1"]),
        case("02#W1 maxed", "concurrency used up", wait, meta(concurrency=1), push("active", "9"), move_to_active(),
             reply=NONE),
        case("02#W1 open", "concurrency not used up", wait, meta(concurrency=2), push("active", "9"), move_to_active(),
             reply=took("1")),
        case("02#W1 not-numeric; 02#17/moveToActive concurrency; 02#4 2", "concurrency is no number", wait,
             meta(concurrency="x"),
             zadd("delayed", {"5": D}), move_to_active(), reply=ERROR, delayed={"5": D}),
        case("02#W1 not-numeric-paused; 02#18.1 examples; 02#W4 paused ghost; 02#W2 held", "the same while paused",
             meta(paused=1, concurrency="x"), ("SET", f"{Q}pc", 3), zadd("delayed", {"5": D + 7}), move_to_active(),
             reply=NONE,
             paused=["5"], pc="3", marker=None, events=["waiting jobId 5 prev delayed"], after={"5": {"delay": "0"}}),
        case("02#18.1 examples; 02#W6 4-pc; 02#W3 next; 02#4 7-next", "only a delayed job", ("SET", f"{Q}pc", 3),
             zadd("delayed", {"5": (T + 500) * 4096 + 7}), move_to_active(), reply=[0, 0, 0, T + 500], pc=None),
        case("02#18.1 examples; 02#W4 negative", "a negative score is never promoted", zadd("delayed", {"5": -20481}),
             move_to_active(), reply=[0, 0, 0, -5], delayed={"5": -20481}),
        case("02#4 held-no-next", "a held queue does not report the next due time", meta(paused=1),
             zadd("delayed", {"5": (T + 500) * 4096}), move_to_active(), reply=NONE),
    ]


def promotion() -> list[Case]:
    many = zadd("delayed", {str(i): D + i for i in range(1, 1006)})
    ghosts = [put(str(i + 1), priority=p) for i, p in enumerate(("-1", "1.5", "x", "0", "2097152"))]
    return [
        case("02#18.1 examples; 02#W4 2 3.1 3.2-list 3.2-prioritized 3.3 3.4 maxed; 02#W18 counted; 02#4 3",
             "maxed, three due",
             meta(concurrency=1), push("active", "9"), zadd("delayed", {"5": D + 7, "6": D + 4095, "7": D + 4096}),
             job("5", priority=3, delay=9), move_to_active(), reply=NONE, prioritized={"5": 12884901889}, wait=["6"],
             delayed={"7": D + 4096}, pc="1", marker=None,
             events=["waiting jobId 5 prev delayed", "waiting jobId 6 prev delayed"], after={"5": Has(delay="0")}),
        case("02#18.1 examples; 02#W4 limited 4; 02#4 4; 02#W5 4; 02#W2 ready", "rate limited with a due job",
             ("SET", f"{Q}limiter", 1, "PX", 300_000), zadd("delayed", {"5": D}), move_to_active(limiter={"max": 1}),
             reply=limited(300_000), wait=["5"], marker={"0": 0}, events=["waiting jobId 5 prev delayed"]),
        case("02#18.1 examples; 02#4 limited-first", "limited is reported before paused", meta(paused=1),
             ("SET", f"{Q}limiter", 1, "PX", 300_000), move_to_active(limiter={"max": 1}), reply=limited(300_000)),
        case("02#18.1 examples; 02#W4 1-limit", "1005 due: 1000 are promoted", many, move_to_active(), reply=took("1"),
             marker={"0": 0}, delayed={str(i): D + i for i in range(1001, 1006)},
             wait=[str(i) for i in range(1000, 1, -1)]),
        case("02#18.1 examples; 02#W4 1-limit paused", "1005 due while paused", many, meta(paused=1), move_to_active(),
             reply=NONE,
             marker=None, paused=[str(i) for i in range(1000, 0, -1)]),
        case("02#18.1 examples; 02#W18 negative float wrap", "odd priorities, a counter at 2^32 - 1", meta(paused=1),
             ("SET", f"{Q}pc", "4294967295"), ghosts, zadd("delayed", {str(i): D + i for i in range(1, 6)}),
             move_to_active(),
             reply=NONE, prioritized={"1": -4294967296, "2": 6442450945, "5": 9007199254740994}, paused=["4", "3"],
             pc="4294967298"),
        case("02#18.1 examples; 02#W4 stale-one", "the delay marker is left as it is", zadd("marker", {"1": T}),
             zadd("delayed", {"2": D}), move_to_active(), reply=took("2"), marker={"0": 0, "1": T}),
        case("02#W4 lifo", "lifo is not looked at", push("wait", "1"), job("2", opts='{"lifo":true}'),
             zadd("delayed", {"2": D}),
             move_to_active(), reply=took("1"), wait=["2"]),
        case("02#W4 2", "due jobs run in the order of their time", zadd("delayed", {"2": D + 4096, "3": D}),
             move_to_active(at=T + 1), reply=took("3"), wait=["2"]),
    ]


def rates() -> list[Case]:
    wait = [push("wait", "2", "1"), job("1"), job("2")]

    def limit(most: int | None, worker: Any, reply: Any, covers: str, title: str, *more: Any, **after: Any) -> Case:
        settings = [] if most is None else [meta(max=most)]
        return case(f"02#W5 {covers}; 02#10.2 table", title, wait, *settings, *more, move_to_active(limiter=worker),
                    reply=reply,
                    **after)

    fast = {"max": 5, "duration": 500_000}
    full = ("SET", f"{Q}limiter", 5, "PX", 300_000)
    return [
        limit(None, fast, took("1"), "worker-max 2-missing 3 duration-worker", "the worker's limit",
              limiter=Ttl(500_000, "1")),
        limit(None, fast, limited(300_000), "4", "the worker's limit is reached", full, wait=["2", "1"]),
        limit(None, None, took("1"), "no-max 1", "no limit: the key is ignored", full, limiter=Ttl(300_000, "5")),
        limit(None, {"duration": 5}, took("1"), "no-max", "a duration alone is no limit", limiter=None),
        limit(6, fast, took("1"), "meta-max", "the queue's maximum beats the worker's, also upwards", full,
              limiter=Ttl(300_000, "6")),
        limit(3, fast, took("1"), "meta-max duration-worker", "the worker's duration beats the queue's",
              meta(duration=900_000),
              limiter=Ttl(500_000, "1")),
        limit(3, None, took("1"), "duration-meta", "the queue's limit alone", meta(duration=900_000),
              limiter=Ttl(900_000, "1")),
        limit(None, {"max": 5}, took("1"), "duration-meta", "the duration of the queue alone", meta(duration=900_000),
              limiter=Ttl(900_000, "1")),
        case("02#W5 not-numeric; 02#10.2 table", "a maximum that is no number switches limiting off", wait, full,
             meta(max="abc"),
             move_to_active(limiter={"max": 1, "duration": 5}), reply=took("1"), limiter=Ttl(300_000, "5")),
        case("02#W5 2-not-numeric; 02#17/moveToActive limiter-text", "a limiter that is no number", wait,
             ("SET", f"{Q}limiter", "abc"),
             zadd("delayed", {"5": D}), move_to_active(limiter=fast), reply=ERROR, delayed=None, wait=["5", "2", "1"]),
        case("02#18.1 examples; 02#W5 4-no-ttl; 02#W7 1-more", "a limiter without lifetime never limits", wait,
             ("SET", f"{Q}limiter", 5), move_to_active(limiter={"max": 1}), reply=took("1"), limiter=Ttl(None, "6")),
        case("02#18.1 examples; 02#W5 zero-acts-as-one", "maximum 0 lets one pass", wait,
             move_to_active(limiter={"max": 0, "duration": 100_000}),
             move_to_active(limiter={"max": 0, "duration": 100_000}),
             reply=limited(100_000), limiter=Ttl(100_000, "1")),
        case("02#W5 negative-acts-as-one", "a negative maximum lets one pass", wait,
             move_to_active(limiter={"max": -3, "duration": 100_000}),
             move_to_active(limiter={"max": -3, "duration": 100_000}),
             reply=limited(100_000)),
        case("02#18.1 examples; 02#W7 1-first D-negative", "a negative duration with a fraction", wait,
             meta(max=3, duration=5000),
             move_to_active(limiter={"max": 1, "duration": -700_000.9}), reply=took("1"), limiter=Ttl(700_000, "1")),
        case("02#W7 D-zero", "duration 0: the key is deleted at once", wait,
             move_to_active(limiter={"max": 1, "duration": 0}),
             reply=took("1"), limiter=None),
        case("02#W7 D-missing; 02#17/moveToActive D-missing; 02#10.2 table",
             "no duration: a key without lifetime, no lock", wait,
             move_to_active(limiter={"max": 5}), reply=ERROR, active=["1"], limiter=Ttl(None, "1"), events=None,
             after={"1:lock": None}),
        case("02#17/moveToActive D-missing; 02#10.2 table", "a maximum of the queue without duration", wait,
             meta(max=3),
             move_to_active(),
             reply=ERROR, active=["1"], limiter=Ttl(None, "1")),
        case("02#W5 meta-max", "the queue's maximum, a text with digits", wait, meta(max="2.5", duration=900_000),
             ("SET", f"{Q}limiter", 2, "PX", 300_000), move_to_active(), reply=took("1")),
    ]


def taking() -> list[Case]:
    return [
        case("02#18.1 examples; 02#W6 2 2-second", "old marker elements: only the first is skipped",
             push("wait", "5", "0:7", "0:123"),
             move_to_active(), reply=took("0:7"), active=["0:7"], wait=["5"], after={"0:7": Has(ats="1")}),
        case("02#W6 2 2-second", "old marker elements, of a limited worker", push("wait", "5", "0:7", "0:123"),
             move_to_active(limiter={"max": 9, "duration": 400_000}), reply=took("0:7"), active=["0:7"], wait=["5"]),
        case("02#18.1 examples; 02#W6 4", "an old marker alone, then a prioritized job", push("wait", "0:123"),
             zadd("prioritized", {"5": 1}), ("SET", f"{Q}pc", 3), move_to_active(), reply=took("5"), active=["5"],
             pc="3"),
        case("02#W6 4", "the lowest score of the prioritized", zadd("prioritized", {"5": 9, "6": 3}), move_to_active(),
             reply=took("6"), prioritized={"5": 9}, events=["active jobId 6 prev waiting"]),
        case("02#W6 1", "waiting jobs come before prioritized ones", push("wait", "2", "1"),
             zadd("prioritized", {"5": 1}),
             push("active", "9"), move_to_active(), reply=took("1"), active=["1", "9"], prioritized={"5": 1}),
        case("02#W6 4-pc; 02#4 7-none", "the counter starts again", ("SET", f"{Q}pc", 3), move_to_active(), reply=NONE,
             pc=None),
    ]


def locks() -> list[Case]:
    held = [("SET", f"{Q}1:lock", "a"), ("SET", f"{Q}2:lock", "b"), ("SADD", f"{Q}stalled", "1", "2", "3")]
    return [
        case("02#18.5 examples; 02#7.2 own other none", "many locks", held,
             extend_locks(tokens=["a", "c", "d"], ids=["1", "2", "3"], duration="500000"), reply=["2", "3"],
             stalled={"2", "3"},
             after={"1:lock": Ttl(500_000, "a"), "2:lock": Ttl(None, "b"), "3:lock": None}),
        case("02#18.5 examples; 02#7.2 own", "upstream's bytes", ("SET", f"{Q}1:lock", "tk"),
             ("SET", f"{Q}2:lock", "tk2"),
             extend_locks(tokens=bytes.fromhex("92a2746ba3746b32"), ids=bytes.fromhex("92a131a132")), reply=[]),
        case("02#18.5 examples; 02#7.2 empty", "no locks", extend_locks(tokens=[], ids=[]), reply=[]),
        case("02#7.2 nil-token", "a token too few", held, extend_locks(tokens=["a"], ids=["1", "2"]), reply=["2"]),
        case("02#7.2 duration", "a duration that is none fails at the first lock that matches", held,
             extend_locks(tokens=["x", "b"], ids=["1", "2"], duration="0"), reply=ERROR, stalled={"1", "2", "3"}),
        case("02#7.2 ids-type", "ids that are no array", held, extend_locks(tokens=["a"], ids=5), reply=ERROR),
        case("02#7.2 tokens-type", "tokens that are no array", held, extend_locks(tokens=5, ids=["1"]), reply=ERROR),
        case("02#7.2 tokens-type", "tokens that are no array, no ids", held, extend_locks(tokens=5, ids=[]), reply=[]),
        case("02#18.5 examples; 02#7.1 own", "one lock", held, extend_lock(id="2", token="b", duration="700000"),
             reply=1,
             stalled={"1", "3"}, after={"2:lock": Ttl(700_000, "b")}),
        case("02#18.5 examples; 02#7.1 other", "the lock of another", held, extend_lock(id="2", token="x"), reply=0,
             stalled={"1", "2", "3"}),
        case("02#18.5 examples; 02#7.1 none", "no lock", extend_lock(), reply=0, after={"1:lock": None}),
        case("02#18.5 examples; 02#7.3 other", "letting go another's lock", held, release_lock(token="x"), reply=0,
             after={"1:lock": "a"}),
        case("02#18.5 examples; 02#7.3 own", "letting go", held, release_lock(token="a"), reply=1,
             stalled={"1", "2", "3"},
             after={"1:lock": None}),
        case("02#7.3 none", "letting go nothing", release_lock(), reply=0),
    ]


def limits() -> list[Case]:
    rows: list[tuple[str, str | None, int | None, Any, str]] = [
        ("0", None, None, -2, "no-key zero-bare"),
        ("5", None, None, 0, "given"),
        ("abc", None, None, 0, "given-text"),
        ("", None, None, 0, "given-text"),
        ("0", None, 500_000, about(500_000), "zero-bare"),
        ("3", None, 500_000, about(500_000), "given"),
        ("4", None, 500_000, 0, "given"),
        ("abc", None, 500_000, 0, "given-text"),
        ("", None, 500_000, 0, "given-text"),
        ("00", None, 500_000, about(500_000), "given-text"),
        ("00", None, None, 0, "given-text"),
        ("0", "4", 500_000, 0, "zero-meta"),
        ("0", "3", 500_000, about(500_000), "zero-meta"),
        ("3", "4", 500_000, about(500_000), "given"),
        ("0", "abc", 500_000, 0, "zero-meta"),
        ("0", "3", None, 0, "zero-meta"),
        ("0", None, -1, -1, "no-ttl"),
        ("3", None, -1, 0, "no-ttl"),
    ]
    found = []
    for asked, most, left, reply, covers in rows:
        state: list[Any] = []
        if left is not None:
            state.append(("SET", f"{Q}limiter", 3, *(("PX", left) if left > 0 else ())))
        if most is not None:
            state.append(meta(max=most))
        title = f"asked {asked!r}, queue's maximum {most}, {left} ms left"
        found.append(case(f"02#8.1 {covers}; 02#18.6 examples", title, state, rate_limit_ttl(most=asked), reply=reply))
    return [
        *found,
        case("02#8.2 absent; 02#18.6 examples", "no concurrency", is_maxed(), reply=None),
        case("02#8.2 maxed paused-too; 02#18.6 examples", "concurrency 0, paused", meta(concurrency=0, paused=1),
             is_maxed(), reply=1),
        case("02#8.2 open; 02#18.6 examples", "nothing active", meta(concurrency=1), is_maxed(), reply=None),
        case("02#8.2 maxed", "one active", meta(concurrency=1), push("active", "1"), is_maxed(), reply=1),
        case("02#8.2 not-numeric", "concurrency is no number", meta(concurrency="x"), is_maxed(), reply=ERROR),
    ]


def failures() -> list[Case]:
    wait = [push("wait", "1"), job("1")]
    empty = move_to_active()
    found = [
        case("02#17/moveToActive options-undecodable", "options that do not decode", wait, zadd("delayed", {"5": D}),
             empty.with_arg(2, b"\xc1"), reply=ERROR, delayed={"5": D}),
        case("02#17/moveToActive options-empty", "empty options decode to nothing: found out after the promotion", wait,
             zadd("delayed", {"5": D}), empty.with_arg(2, b""), reply=ERROR, delayed=None, wait=["5", "1"]),
        case("02#17/moveToActive time", "a time that is no number", wait, zadd("delayed", {"5": D}),
             move_to_active(at="abc"),
             reply=ERROR,
             delayed={"5": D}),
        case("02#17/moveToActive due-not-hash", "a due job that is no hash: the batch is lost", ("SET", f"{Q}2", "x"),
             put("1", a="b"),
             zadd("delayed", {"1": D + 1, "2": D + 2, "3": D + 3}), move_to_active(), reply=Error("WRONGTYPE"),
             delayed=None,
             wait=["1"], marker=None, events=["waiting jobId 1 prev delayed"]),
        case("02#17/moveToActive due-pc", "a counter that is no integer", ("SET", f"{Q}pc", "x"), put("1", priority=3),
             zadd("delayed", {"1": D}), move_to_active(), reply=ERROR, delayed=None, prioritized=None),
        case("02#17/moveToActive due-nan", "a priority `nan`", put("1", priority="nan"), zadd("delayed", {"1": D}),
             move_to_active(),
             reply=ERROR, delayed=None, prioritized=None, pc="1"),
        case("02#17/moveToActive limiter-fraction", "a limiter with a fraction", wait,
             ("SET", f"{Q}limiter", "1.5", "PX", 300_000),
             move_to_active(limiter={"max": 3, "duration": 5}), reply=ERROR, active=["1"], events=None,
             after={"1:lock": None}),
        case("02#17/moveToActive limiter-type", "a limiter that is a text counts as an empty map", wait,
             move_to_active(limiter="str"),
             reply=took("1")),
        case("02#17/moveToActive limiter-type", "a limiter that is a number, the queue has a maximum, held", wait,
             meta(max=3, paused=1),
             move_to_active(limiter=7), reply=NONE),
        case("02#17/moveToActive limiter-type", "a limiter that is a number, the queue has a maximum", wait,
             meta(max=3),
             move_to_active(limiter=7),
             reply=ERROR, wait=["1"]),
        case("02#17/moveToActive name-true", "the name true", wait, move_to_active(name=True), reply=ERROR,
             active=["1"],
             events=[ACTIVE_1],
             after={"1:lock": Ttl(30000, "tk"), "1": Has(processedOn=None)}),
        case("02#W7 4-name", "the name false is none", wait, move_to_active(name=False), reply=took("1"),
             after={"1": Has(pb=None)}),
        case("02#17/moveToActive job-not-hash", "the job is no hash", push("wait", "1"), ("SET", f"{Q}1", "x"),
             move_to_active(),
             reply=Error("WRONGTYPE"), active=["1"], events=[ACTIVE_1], after={"1:lock": "tk"}),
        case("02#17/moveToActive ats", "a count of starts that is no integer", push("wait", "1"), job("1", ats="x"),
             move_to_active(name="w"),
             reply=ERROR, marker=None, after={"1": Has(processedOn=str(T), pb="w", ats="x")}),
    ]
    found += [
        case("02#17/moveToActive limiter-type", f"limiter {limiter}", wait, move_to_active(limiter=limiter),
             reply=ERROR,
             wait=["1"])
        for limiter in (7, True)
    ]
    found += [
        case("02#17/moveToActive options-type", f"options {packed!r}", wait, empty.with_arg(2, packed), reply=ERROR,
             wait=["1"])
        for packed in (b"\xc0", b"\x05", b"\xc3")
    ]
    found += [
        case("02#17/moveToActive token", f"token {token}", wait, move_to_active(token=token), reply=ERROR, active=["1"],
             events=None)
        for token in (None, False)
    ]
    found += [
        case("02#17/moveToActive lock-duration", f"lock duration {span}", wait, move_to_active(lockDuration=span),
             reply=ERROR,
             active=["1"], events=None, after={"1:lock": None})
        for span in (None, 0, -1, 1.5, "x")
    ]
    return found


CASES = [*gate(), *promotion(), *rates(), *taking(), *locks(), *limits(), *failures()]
