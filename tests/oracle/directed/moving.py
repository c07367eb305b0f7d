"""Stalled checks, moves, edits, removals and reads: part 02 section 6, part 03 of the specification."""

from __future__ import annotations

import itertools
from typing import Any

from tests.oracle.calls import (
    COUNTED,
    P,
    Q,
    T,
    add_log,
    back_to_wait,
    extend_lock,
    get_counts,
    get_state,
    is_finished,
    is_maxed,
    move_to_delayed,
    obliterate,
    pause,
    rate_limit_ttl,
    release_lock,
    remove_job,
    retry_job,
    save_stacktrace,
    stalled_check,
    update_data,
    update_progress,
)
from tests.oracle.cases import ERROR, Case, Error, Has, Ttl, about, case, job, meta, push, put, zadd

# fmt: off
BRANCHES = {
    "02#6": "1 2 3 4-none 4.1 4.2 4.3 4.4 4.5 4.5-false 4.6 4.6-limit 4.7 4.7-paused 4.7-maxed 4.8 4.9 5 5-locked 6 "
    "no-hash priority left-end two-rounds",
    "02#17/moveStalledJobsToWait": "interval cap not-a-hash stc limit opts-text opts-array concurrency",
    "02#18.4": "examples",
    "03#S2": "missing found",
    "03#S3": "paused maxed open",
    "03#S4": "held ready",
    "03#S6": "due empty held",
    "03#S7": "positive none next full own-time fraction",
    "03#S8": "counted front",
    "03#S9": "zero own other missing",
    "03#S10": "empty array numbers bad",
    "03#S11": "1 2 3.1 3.2-list 3.2-prioritized 3.3 3.4 4",
    "03#S13": "own other none",
    "03#S14": "child-colons parent-colons none",
    "03#S15": "given looked-up no-parent parent-gone 1 2-soft 2-others 2-not-waiting 3-hard-same 3-hard-other hard-up "
    "hard-dedup ignores-priority soft-paused soft-held",
    "03#S16": "3 4-children 4-none 5-completed 5-waiting-children 5-delayed 5-failed 5-prioritized 5-wait 5-paused "
    "5-active "
    "5-unknown 5-first 5-once 6 7 7-none processed failed unsuccessful dependencies deep q-waiting-parent cap",
    "03#S17": "current older no-rjk no-scheduler fraction",
    "03#3.1": "1 2-missing 2-other 3 4 5 5-negative 6 6-skip 7 8 9 10 11 12 delay-text priority-kept",
    "03#3.3": "1 2-missing 2-other 3 3.1-freed 3.2-list 3.2-front 3.3 3-not-active 4 4-ttl paused",
    "03#3.4": "1 2 3 4-missing 4-other 5 6 7 8 9-list 9-lifo 9-prioritized 10 11 12",
    "03#5.1": "1 2",
    "03#5.2": "1 2 3 4 5",
    "03#5.3": "1 2 3 4 negative zero fraction more",
    "03#5.4": "1 2",
    "03#6.1": "own other",
    "03#6.2": "own other",
    "03#7.1": "1-had 1-none 2-paused 2-resumed-had 2-resumed-prioritized 2-resumed-later 2-resumed-nothing 3 4 "
    "overwrites wait-ignored again",
    "03#7.4": "1 2-active 2-force 3 3-lock 3-spent 4 4-spent 5 5-spent 6 6-spent 7 7-spent 8 8-spent 9 9-spent 10 "
    "leftovers "
    "any-force exact parent-same parent-other count-text",
    "03#8.1": "1 2-own 2-child 2-processed 3 4-missing 4 active no-children released",
    "03#9.1": "wait active set old-marker only-old-marker none wrong-type",
    "03#9.4": "completed failed delayed prioritized active wait paused waiting-children unknown first no-hash",
    "03#9.5": "missing completed failed else full-missing full-completed full-failed full-else full-nil",
    "03#9.10": "both",
    "03#16": "events",
    "03#17": "2 3 4 10 12",
}

D = T * 4096
CAP = {"opts.maxLenEvents": "10000"}
ACTIVE = [job("1"), push("active", "1"), ("SET", f"{Q}1:lock", "tk", "PX", 300_000), ("SADD", f"{Q}stalled", "1")]
BACK = ["waiting jobId 1 prev active"]


def place(state: str) -> Any:
    """Put job 1 into a state."""
    return push(state, "1") if state in ("wait", "paused", "active") else zadd(state, {"1": 1})


def stalled() -> list[Case]:
    one = [push("active", "1"), ("SADD", f"{Q}stalled", "1")]
    mixed = [
        push("active", "1", "2", "3", "5", "9", "1"),
        ("SADD", f"{Q}stalled", "1", "2", "3", "4", "5", "9"),
        ("SET", f"{Q}9:lock", "x"),
        job("1", stc=1),
        job("2", stc=1, priority=5),
        job("3", stc=1, opts='{"repeat":{"every":1000}}'),
        job("4", stc=1),
    ]
    over = "job stalled more than allowable limit"
    told = [text for id in ("1", "2", "3", "5") for text in (f"waiting jobId {id} prev active", f"stalled jobId {id}")]
    found = [
        case("02#18.4 examples; 02#6 2 3 4-none 6", "nothing is active", stalled_check(), reply=[], meta=CAP,
             after={"stalled-check": Ttl(30000, str(T))}),
        case("02#18.4 examples; 02#6 1", "a check was made just now", one, ("SET", f"{Q}stalled-check", "1"),
             stalled_check(), reply=[],
             active=["1"], meta=None),
        case("02#18.4 examples; 02#6 4.2 4.3 4.4 4.5 4.6 4.7 4.8 4.9 5 5-locked no-hash priority left-end",
             "all kinds of candidates",
             mixed, stalled_check(), reply=["1", "2", "3", "5"], active=["9", "1"], wait=["1", "2", "3", "5"],
             stalled={"9", "1"},
             marker={"0": 0}, prioritized=None, events=told,
             after={"1": Has(stc="2", defa=over), "2": Has(stc="2", defa=over), "3": Has(stc="2", defa=None),
                    "5": {"stc": "1"},
                    "4": Has(stc="1")}),
        case("02#6 4.1", "an old marker element", push("active", "0:11", "1"), ("SADD", f"{Q}stalled", "0:11"),
             stalled_check(), reply=[],
             active=["1"], events=None, stalled={"1"}),
        case("02#18.4 examples; 02#6 4.7-paused", "paused", one, meta(paused=1), job("1"), stalled_check(), reply=["1"],
             paused=["1"],
             marker=None, after={"1": Has(stc="1", defa=None)}),
        case("02#18.4 examples; 02#6 4.7-maxed", "concurrency 1: the second sets the marker", meta(concurrency=1),
             push("active", "1", "2"), ("SADD", f"{Q}stalled", "1", "2"), stalled_check(), reply=["1", "2"],
             wait=["1", "2"],
             marker={"0": 0}),
        case("02#6 4.7-maxed", "concurrency 0: no marker", meta(concurrency=0), one, stalled_check(), reply=["1"],
             marker=None),
        case("02#18.4 examples; 02#6 4.5-false 4.6-limit", "limit 0, repeat false", one,
             job("1", opts='{"repeat":false}'),
             stalled_check(most="0"), reply=["1"], after={"1": Has(defa=over)}),
        case("02#6 4.5", "repeat null is a value", one, job("1", opts='{"repeat":null}'), stalled_check(most="0"),
             reply=["1"],
             after={"1": Has(defa=None)}),
        case("02#6 two-rounds", "found by the second check after the lock is lost", job("1"), push("active", "1"),
             stalled_check(),
             ("DEL", f"{Q}stalled-check"), stalled_check(at=T + 1), reply=["1"], wait=["1"], active=None, stalled=None),
        case("02#6 3", "the stream is trimmed once", meta(**{"opts.maxLenEvents": "0"}), one,
             [("XADD", f"{Q}events", "*", "event", f"e{i}") for i in range(100)], stalled_check(),
             events=["waiting jobId 1 prev active", "stalled jobId 1"]),
        case("02#6 5", "many active jobs",
             *[push("active", *map(str, range(start, start + 5000))) for start in (0, 5000, 10000)],
             stalled_check(), reply=[], stalled={str(i) for i in range(15000)}),
        case("02#17/moveStalledJobsToWait cap", "a bad cap", meta(**{"opts.maxLenEvents": "-1"}), one, stalled_check(),
             reply=ERROR,
             active=["1"],
             after={"stalled-check": str(T)}),
        case("02#17/moveStalledJobsToWait not-a-hash", "the job is no hash: it is lost", one, ("SET", f"{Q}1", "x"),
             stalled_check(),
             reply=Error("WRONGTYPE"),
             active=None, wait=None, stalled=None),
        case("02#17/moveStalledJobsToWait stc", "a stalled counter that is no integer", one, job("1", stc="x"),
             stalled_check(),
             reply=ERROR, active=None,
             wait=None),
        case("02#17/moveStalledJobsToWait limit", "a limit that is no number", one, job("1"), stalled_check(most="x"),
             reply=ERROR,
             active=None,
             after={"1": Has(stc="1")}),
        case("02#17/moveStalledJobsToWait limit", "a limit that is no number, exempt", one,
             job("1", opts='{"repeat":{}}'),
             stalled_check(most="x"),
             reply=ERROR),
        case("02#17/moveStalledJobsToWait concurrency", "concurrency is no number", one, job("1", stc=5),
             meta(concurrency="x"),
             stalled_check(), reply=ERROR,
             active=None, wait=None, after={"1": Has(defa=over)}),
    ]
    found += [
        case("02#17/moveStalledJobsToWait interval", f"interval {interval!r}", one, stalled_check(interval=interval),
             reply=ERROR,
             meta=None,
             after={"stalled-check": None})
        for interval in ("0", "-1", "x", "1.5", "")
    ]
    found += [
        case("02#17/moveStalledJobsToWait opts-text", f"opts {text!r}", one, job("1", opts=text), stalled_check(),
             reply=ERROR, active=None,
             wait=None, after={"1": Has(stc="1")})
        for text in ("", "{bad", "null", "5", "true")
    ]
    found += [
        case("02#17/moveStalledJobsToWait opts-array", f"opts {text!r}: not exempt", one, job("1", opts=text),
             stalled_check(most="0"),
             reply=["1"],
             after={"1": Has(defa=over)})
        for text in ("[]", '"abc"', "[1]")
    ]
    return found


def put_off() -> list[Case]:
    bare = [put("m1", n=1), push("active", "m1")]
    return [
        case("03#17 10; 03#3.1 5 6 7 8 9 10 11 12; 03#S7 positive none; 03#S6 due; 03#S2 missing; 03#S9 zero; 03#16 "
        "events",
             "moved to delayed", bare, move_to_delayed(id="m1", at=1000, delay="500", token="0"), reply=0,
             delayed={"m1": 6144000},
             marker={"1": 1500}, meta=CAP, active=None, events=["delayed jobId m1 delay 1500"],
             after={"m1": {"n": "1", "delay": "500", "atm": "1"}}),
        case("03#17 10; 03#S7 next", "another for the same millisecond", bare, push("active", "m2"), put("m2", n=1),
             move_to_delayed(id="m1", at=1000, delay="500", token="0"),
             move_to_delayed(id="m2", at=1000, delay="500", token="0"),
             delayed={"m1": 6144000, "m2": 6144001}),
        case("03#S6 due", "the marker has a fraction", bare, zadd("delayed", {"x": 6144001}),
             move_to_delayed(id="m1", at=1000, delay="5000", token="0"), marker={"1": 1500.000244140625}),
        case("03#S7 full", "a full millisecond", bare, zadd("delayed", {"x": 6144000 + 4095}),
             move_to_delayed(id="m1", at=1000, delay="500", token="0"), delayed={"x": 6148095, "m1": 6148095}),
        case("03#S7 own-time; 03#3.1 5-negative 7", "a negative delay", bare,
             move_to_delayed(id="m1", at=1000, delay="-5", token="0"),
             delayed={"m1": 4096000}, events=["delayed jobId m1 delay 1000"], after={"m1": Has(delay="-5")}),
        case("03#S7 fraction", "a delay with a fraction", bare,
             move_to_delayed(id="m1", at=1000, delay="0.5", token="0"),
             delayed={"m1": 4098048}, events=["delayed jobId m1 delay 1000.5"], after={"m1": Has(delay="0.5")}),
        case("03#S6 held", "the delay marker in a paused queue", meta(paused=1), bare,
             move_to_delayed(id="m1", at=1000, delay="500", token="0"), marker={"1": 1500}),
        case("03#3.1 1", "no such job", move_to_delayed(), reply=-1, meta=None),
        case("03#3.1 2-missing; 03#S9 missing", "no lock", ACTIVE, ("DEL", f"{Q}1:lock"), move_to_delayed(), reply=-2,
             stalled={"1"}),
        case("03#3.1 2-other; 03#S9 other", "the lock of another", ACTIVE, move_to_delayed(token="x"), reply=-6,
             stalled={"1"}, active=["1"]),
        case("03#S9 own", "the own lock", ACTIVE, move_to_delayed(), reply=0, stalled=None, after={"1:lock": None}),
        case("03#3.1 3 4; 03#S10 array", "not active: found out late", ACTIVE, ("DEL", f"{Q}active"),
             move_to_delayed(update=["failedReason", "x"]), reply=-3, stalled=None, meta=None,
             after={"1:lock": None, "1": Has(failedReason="x", delay="0")}),
        case("03#3.1 4", "one occurrence, from the tail", ACTIVE, push("active", "2", "1"), move_to_delayed(),
             active=["1", "2"]),
        case("03#3.1 6-skip", "no attempt counted", ACTIVE, move_to_delayed(skip="1"), after={"1": Has(atm=None)}),
        case("03#3.1 6-skip", "anything but 0 counts none", ACTIVE, move_to_delayed(skip=""),
             after={"1": Has(atm=None)}),
        case("03#S10 numbers", "numbers in the extra fields", ACTIVE, move_to_delayed(update=["n", 5, "f", 0.5]),
             after={"1": Has(n="5", f="0.5")}),
        case("03#S10 empty", "no extra fields", ACTIVE, move_to_delayed(), after={"1": Has(failedReason=None)}),
        case("03#S10 bad", "extra fields with a boolean", ACTIVE, move_to_delayed(update=["a", True]), reply=ERROR,
             active=["1"],
             after={"1:lock": None}),
        case("03#S10 bad", "an empty array of extra fields", ACTIVE, move_to_delayed(update=[]), reply=ERROR,
             active=["1"]),
        case("03#3.1 delay-text", "a delay that is no number", ACTIVE, move_to_delayed(delay="abc"), reply=ERROR,
             active=None, delayed=None),
        case("03#3.1 priority-kept", "priority, time of start and their count stay", ACTIVE,
             put("1", priority=3, processedOn=5, ats=2),
             move_to_delayed(delay="5"), prioritized=None, after={"1": Has(priority="3", processedOn="5", ats="2")}),
        case("03#S2 found", "a stored cap is used", ACTIVE, meta(**{"opts.maxLenEvents": "0"}), move_to_delayed(),
             meta={"opts.maxLenEvents": "0"}),
    ]


def given_back() -> list[Case]:
    return [
        case("03#3.3 1", "no such job", back_to_wait(), reply=-1),
        case("03#3.3 2-missing", "no lock", ACTIVE, ("DEL", f"{Q}1:lock"), back_to_wait(), reply=-2),
        case("03#3.3 2-other", "the lock of another", ACTIVE, back_to_wait(token="x"), reply=-6),
        case("03#3.3 3 3.2-list 3.3 4; 03#S3 open; 03#S4 ready", "given back: it runs next", ACTIVE, push("wait", "w"),
             back_to_wait(),
             reply=0, wait=["w", "1"], active=None, marker={"0": 0}, events=BACK, stalled=None, meta=CAP,
             after={"1": Has(atm=None), "1:lock": None}),
        case("03#3.3 3.1-freed", "concurrency 1: the freed slot counts", ACTIVE, meta(concurrency=1), back_to_wait(),
             marker={"0": 0}),
        case("03#S3 maxed; 03#S4 held", "concurrency 1, another is active", ACTIVE, push("active", "9"),
             meta(concurrency=1), back_to_wait(),
             wait=["1"], marker=None),
        case("03#3.3 paused; 03#S3 paused", "paused", ACTIVE, meta(paused=""), back_to_wait(), paused=["1"],
             marker=None),
        case("03#3.3 3.2-front; 03#S8 front", "a priority: in front, no marker", ACTIVE, put("1", priority=3),
             ("SET", f"{Q}pc", 7),
             back_to_wait(), reply=0, prioritized={"1": 12884901888}, pc="7", marker=None, events=BACK),
        case("03#3.3 3.2-list", "a negative priority counts as none", ACTIVE, put("1", priority=-1), back_to_wait(),
             wait=["1"]),
        case("03#3.3 3-not-active", "not active is no error", ACTIVE, ("DEL", f"{Q}active"), back_to_wait(), reply=0,
             wait=None, events=None,
             meta=None, after={"1:lock": None}),
        case("03#3.3 3", "one occurrence, from the head", ACTIVE, push("active", "2", "1"), back_to_wait(),
             active=["2", "1"]),
        case("03#3.3 4-ttl", "the rest of the limit", ACTIVE, ("SET", f"{Q}limiter", 1, "PX", 300_000), back_to_wait(),
             reply=about(300_000)),
        case("03#3.3 4", "a limiter without lifetime", ACTIVE, ("SET", f"{Q}limiter", 1), back_to_wait(), reply=0),
    ]


def retried() -> list[Case]:
    return [
        case("03#3.4 3", "no such job", retry_job(), reply=-1, meta=None),
        case("03#3.4 2 3", "no such job: the due jobs are promoted all the same", zadd("delayed", {"2": D}),
             retry_job(), reply=-1, wait=["2"],
             events=["waiting jobId 2 prev delayed"]),
        case("03#3.4 4-missing", "no lock", ACTIVE, ("DEL", f"{Q}1:lock"), retry_job(), reply=-2),
        case("03#3.4 4-other", "the lock of another", ACTIVE, retry_job(token="x"), reply=-6),
        case("03#17 12; 03#3.4 1 5 6; 03#S11 2 3.1 3.2-list 3.2-prioritized 3.3 3.4 4; 03#S8 counted",
             "not active: found out late",
             put("w1", n=1), put("due", delay=1), put("due2", delay=1, priority=2), ("SET", f"{Q}w1:lock", "t"),
             ("SADD", f"{Q}stalled", "w1"), zadd("delayed", {"due": 4096, "due2": 8192}),
             retry_job(id="w1", at=1000, token="t", update=["failedReason", "x"]), reply=-3, wait=["due"],
             prioritized={"due2": 8589934593}, pc="1", marker={"0": 0}, stalled=None, meta=None,
             events=["waiting jobId due prev delayed", "waiting jobId due2 prev delayed"],
             after={"due": {"delay": "0"}, "due2": {"delay": "0", "priority": "2"}, "w1:lock": None,
                    "w1": Has(failedReason="x")}),
        case("03#3.4 9-list 10 11 12; 03#S11 1", "first in, first out", ACTIVE, push("wait", "w"), retry_job(), reply=0,
             wait=["1", "w"],
             active=None, marker={"0": 0}, events=BACK, after={"1": Has(atm="1")}),
        case("03#3.4 9-lifo", "last in, first out", ACTIVE, push("wait", "w"), retry_job(push="RPUSH"),
             wait=["w", "1"]),
        case("03#3.4 7 9-prioritized", "a priority: counted", ACTIVE, put("1", priority=3), retry_job(),
             prioritized={"1": 12884901889}, pc="1",
             marker={"0": 0}, events=BACK),
        case("03#3.4 8 1", "concurrency 1: the swept jobs are not announced, the retried one is", ACTIVE,
             meta(concurrency=1),
             retry_job(), marker={"0": 0}),
        case("03#3.4 8", "concurrency 1, another is active", ACTIVE, push("active", "9"), meta(concurrency=1),
             retry_job(), marker=None),
        case("03#3.4 1", "paused", ACTIVE, meta(paused=1), retry_job(), paused=["1"], marker=None),
        case("03#3.4 6", "one occurrence, from the tail", ACTIVE, push("active", "2", "1"), retry_job(),
             active=["1", "2"]),
    ]


def edits() -> list[Case]:
    logs = push("1:logs", "a", "b")
    return [
        case("03#5.1 1", "data: no such job", update_data(), reply=-1),
        case("03#5.1 2", "data", job("1"), update_data(data='{"z":1}'), reply=0, events=None,
             after={"1": Has(data='{"z":1}')}),
        case("03#5.2 1", "progress: no such job", update_progress(), reply=-1, meta=None),
        case("03#5.2 2 3 4 5; 03#16 events", "progress", job("1"), update_progress(progress='{"a":1}'), reply=0,
             meta=CAP,
             events=['progress jobId 1 data {"a":1}'], after={"1": Has(progress='{"a":1}')}),
        case("03#5.2 3", "progress with a bad cap: the field is written", meta(**{"opts.maxLenEvents": "x"}), job("1"),
             update_progress(),
             reply=ERROR, events=None, after={"1": Has(progress="50")}),
        case("03#5.3 1", "log: no such job", add_log(), reply=-1),
        case("03#5.3 2 3", "log", job("1"), logs, add_log(row="c"), reply=3, after={"1:logs": ["a", "b", "c"]}),
        case("03#5.3 4", "log, two to keep", job("1"), logs, add_log(row="c", keep="2"), reply=2,
             after={"1:logs": ["b", "c"]}),
        case("03#5.3 more", "log, more to keep than there are", job("1"), logs, add_log(row="c", keep="9"), reply=3),
        case("03#5.3 negative", "log, -1 to keep", job("1"), logs, add_log(row="c", keep="-1"), reply=-1,
             after={"1:logs": ["b", "c"]}),
        case("03#5.3 fraction", "log, a fraction to keep", job("1"), logs, add_log(row="c", keep="1.5"), reply=ERROR,
             after={"1:logs": ["a", "b", "c"]}),
        case("03#5.3 zero", "log, 0 to keep", job("1"), logs, add_log(row="c", keep="0"), reply=ERROR,
             shortest={"reply": 0},
             after={"1:logs": ["a", "b", "c"]}),
        case("03#5.4 1", "stack trace: no such job", save_stacktrace(), reply=-1),
        case("03#5.4 2", "stack trace", job("1"), save_stacktrace(), reply=0,
             after={"1": Has(stacktrace='["a"]', failedReason="boom")}),
        case("03#6.1 own", "renewing a lock", ACTIVE, extend_lock(), reply=1, stalled=None),
        case("03#6.1 other", "renewing another's lock", ACTIVE, extend_lock(token=""), reply=0),
        case("03#6.2 own", "releasing a lock", ACTIVE, release_lock(), reply=1, stalled={"1"}),
        case("03#6.2 other", "releasing another's lock", ACTIVE, release_lock(token=""), reply=0),
    ]


def pauses() -> list[Case]:
    return [
        case("03#7.1 1-had 2-paused 3 4; 03#16 events", "pausing", push("wait", "1"), zadd("marker", {"0": 0, "1": 5}),
             pause(), reply=None,
             paused=["1"], wait=None, meta={"paused": "1"}, marker=None, events=["paused"]),
        case("03#7.1 1-none again", "pausing a paused queue", meta(paused=1), push("paused", "1"), pause(),
             paused=["1"], events=["paused"]),
        case("03#7.1 overwrites", "pausing overwrites an older list", push("wait", "1"), push("paused", "2"), pause(),
             paused=["1"]),
        case("03#7.1 2-resumed-had", "resuming with waiting jobs", meta(paused=1, concurrency=0), push("paused", "1"),
             zadd("delayed", {"2": D}), pause(on=False), wait=["1"], marker={"0": 0}, meta={"concurrency": "0"},
             events=["resumed"]),
        case("03#7.1 2-resumed-prioritized", "resuming with prioritized jobs", meta(paused=1),
             zadd("prioritized", {"1": 1}),
             pause(on=False), marker={"0": 0}, meta=None),
        case("03#7.1 2-resumed-later", "resuming with delayed jobs", meta(paused=1), zadd("delayed", {"1": D}),
             pause(on=False),
             marker={"1": T}),
        case("03#7.1 2-resumed-nothing again; 03#S6 empty", "resuming a running, empty queue", zadd("marker", {"1": 5}),
             pause(on=False),
             marker={"1": 5}, events=["resumed"]),
        case("03#7.1 wait-ignored", "resuming, jobs in wait only", meta(paused=1), push("wait", "1"), pause(on=False),
             marker=None),
    ]


def family(*, priority: int = 0, where: str = P) -> list[Any]:
    """Job 1 is the last pending child of `par`, which waits in the queue `where`."""
    key = f"{where}par"
    return [job("1", parentKey=key, deid="d"), job("par", where, priority=priority, delay=9),
            ("SADD", f"{key}:dependencies", f"{Q}1"),
            zadd(f"{where}waiting-children", {"par": 1})]


def removals() -> list[Case]:
    told = ["removed jobId 1 prev wait"]
    wait = push("wait", "1")
    kids = [("SADD", f"{Q}1:dependencies", "bull:q:2"), put("1:processed", **{"bull:q:3": "1"}),
            put("1:failed", **{"bull:q:4": "e"}),
            zadd("1:unsuccessful", {"bull:q:5": 1}), *[job(id) for id in "2345"], push("wait", "2"),
            zadd("completed", {"3": 1}),
            zadd("failed", {"4": 1, "5": 1})]
    release = ["waiting jobId par prev waiting-children"]
    all_gone = {"2": None, "3": None, "4": None, "5": None}
    found = [
        case("03#8.1 3 4; 03#S16 6 7 cap; 03#16 events", "a waiting job", job("1"), push("1:logs", "x"),
             ("SET", f"{Q}1:lock2", "x"), wait,
             remove_job(), reply=1, wait=None, events=told, meta=CAP, after={"1": None, "1:logs": None}),
        case("03#8.1 4-missing; 03#S16 7-none", "no such job", remove_job(), reply=1, events=None, meta=None),
        case("03#S16 7-none 5-wait", "an id without keys leaves its list, silently", wait, remove_job(), reply=1,
             wait=None, events=None),
        case("03#8.1 2-own", "a locked job", job("1"), wait, ("SET", f"{Q}1:lock", ""), remove_job(), reply=0,
             wait=["1"]),
        case("03#8.1 2-child", "a locked pending child", job("1"), wait, ("SADD", f"{Q}1:dependencies", "bull:q:2"),
             ("SADD", f"{Q}2:dependencies", "bull:p:3"), ("SET", "bull:p:3:lock", "x"), remove_job(), reply=0,
             wait=["1"]),
        case("03#8.1 2-child no-children; 03#S16 4-none", "the same, without children", job("1"), wait,
             job("2", parentKey=f"{Q}1"),
             ("SADD", f"{Q}1:dependencies", "bull:q:2"), ("SET", f"{Q}2:lock", "x"), remove_job(children="0"), reply=1,
             wait=None,
             after={"2": Has(parentKey=f"{Q}1"), "1:dependencies": None}),
        case("03#8.1 2-processed", "a locked finished child is removed", job("1"), wait,
             put("1:processed", **{"bull:q:3": "1"}), job("3"),
             ("SET", f"{Q}3:lock", "x"), remove_job(), reply=1, after={"3": None, "3:lock": "x"}),
        case("03#S16 4-children processed failed unsuccessful dependencies", "all kinds of children", job("1"), wait,
             kids, remove_job(),
             reply=1, after=all_gone, completed=None, failed=None, wait=None,
             events=["removed jobId 3 prev completed", "removed jobId 4 prev failed", "removed jobId 5 prev failed",
                     "removed jobId 2 prev wait", "removed jobId 1 prev wait"]),
        case("03#S16 deep 4-children", "children of children, in two queues", job("1"),
             zadd("waiting-children", {"1": 1}),
             ("SADD", f"{Q}1:dependencies", "bull:p:2"), job("2", P, parentKey=f"{Q}1"),
             zadd(f"{P}waiting-children", {"2": 1}),
             ("SADD", "bull:p:2:dependencies", "bull:q:3"), job("3", parentKey="bull:p:2"), push("wait", "3"),
             remove_job(), reply=1,
             after={"1": None, "bull:p:2": None, "3": None, "bull:p:events": ["waiting jobId 2 prev waiting-children",
                                                                           "removed jobId 2 prev wait"]},
             events=["waiting jobId 1 prev waiting-children", "removed jobId 3 prev wait",
                     "removed jobId 1 prev wait"]),
        case("03#17 2; 03#S16 q-waiting-parent 3", "a waiting parent with one child each in two queues",
             job("1"), zadd("waiting-children", {"1": 1}), ("SADD", f"{Q}1:dependencies", "bull:q:kid", "bull:p:kid2"),
             job("kid", parentKey=f"{Q}1"), job("kid2", P, parentKey=f"{Q}1"), push("wait", "kid"),
             push(f"{P}wait", "kid2"), remove_job(),
             reply=1, marker={"0": 0}, meta=CAP, after={"1": None, "kid": None, "bull:p:kid2": None, "bull:p:meta": CAP,
                                                       "bull:p:events": ["removed jobId kid2 prev wait"]}),
        case("03#17 3; 03#S14 child-colons; 03#S16 5-unknown", "a child with colons in its id", job("1"),
             ("SADD", f"{Q}1:dependencies", "bull:q:a:b:c"), job("a:b:c", parentKey=f"{Q}1"), push("wait", "a:b:c"),
             zadd("waiting-children", {"1": 1}), remove_job(), reply=1, wait=["a:b:c"],
             events=["waiting jobId 1 prev waiting-children", "removed jobId 1 prev wait"],
             after={"a:b:c": None, "bull:q:a:b:events": ["removed jobId c prev unknown"], "bull:q:a:b:meta": CAP}),
        case("03#17 4; 03#S14 parent-colons", "a parent with colons in its id", job("x:y:z"),
             zadd("waiting-children", {"x:y:z": 1}),
             ("SADD", f"{Q}x:y:z:dependencies", "bull:q:1"), job("1", parentKey=f"{Q}x:y:z"), wait, remove_job(),
             reply=1, events=told,
             after={"x:y:z:dependencies": None, "waiting-children": {"x:y:z": 1}}),
        case("03#S14 none", "a child key without a colon", job("1"), put("1:processed", nocolon="1"), wait,
             remove_job(), reply=ERROR, wait=["1"]),
        case("03#S15 looked-up 2-soft ignores-priority; 03#8.1 released; 03#S16 3",
             "the last pending child of a parent", family(priority=4),
             wait, remove_job(), reply=1, events=told,
             after={"bull:p:wait": ["par"], "bull:p:marker": {"0": 0}, "bull:p:events": release,
                    "bull:p:par:dependencies": None,
                    "bull:p:prioritized": None}),
        case("03#S15 2-soft; 03#8.1 released", "the parent in the same queue: its event comes first", family(where=Q),
             wait, remove_job(),
             reply=1, wait=["par"], events=[*release, *told]),
        case("03#S15 soft-paused", "the parent's queue is paused", family(), wait, meta(P, paused=1), remove_job(),
             after={"bull:p:paused": ["par"], "bull:p:marker": None}),
        case("03#S15 soft-held", "the parent's queue is maxed", family(), wait, meta(P, concurrency=0), remove_job(),
             after={"bull:p:wait": ["par"], "bull:p:marker": None}),
        case("03#S15 2-others", "others are pending", family(), ("SADD", "bull:p:par:dependencies", "z"), wait,
             remove_job(),
             after={"bull:p:par:dependencies": {"z"}, "bull:p:wait": None}),
        case("03#S15 2-not-waiting", "the parent is not waiting for children", family(),
             ("DEL", f"{P}waiting-children"), wait, remove_job(),
             after={"bull:p:par:dependencies": None, "bull:p:wait": None}),
        case("03#S15 1", "the child is not pending", family(), ("DEL", "bull:p:par:dependencies"), wait, remove_job(),
             after={"bull:p:waiting-children": {"par": 1}}),
        case("03#S15 no-parent", "an empty parent key", job("1", parentKey=""), ("SADD", ":dependencies", f"{Q}1"),
             wait, remove_job(),
             reply=1, after={":dependencies": {f"{Q}1"}}),
        case("03#S15 parent-gone", "the parent does not exist", family(), ("DEL", "bull:p:par"), wait, remove_job(),
             reply=1,
             after={"bull:p:par:dependencies": {f"{Q}1"}}),
        case("03#S15 given", "a child whose own parent key is another", job("1"), wait,
             ("SADD", f"{Q}1:dependencies", "bull:q:2"),
             job("2", parentKey="bull:p:other"), remove_job(), reply=1, after={"2": None, "1:dependencies": None}),
        case("03#S13 own", "the deduplication key is released, lifetime or not", job("1", deid="d"), wait,
             ("SET", f"{Q}de:d", "1", "PX", 300_000), remove_job(), after={"de:d": None}),
        case("03#S13 other", "another's key stays", job("1", deid="d"), wait, ("SET", f"{Q}de:d", "2"), remove_job(),
             after={"de:d": "2"}),
        case("03#S13 none", "no key", job("1", deid="d"), wait, remove_job(), reply=1),
        case("03#S16 5-first 5-once", "in several states: the first found", job("1"), push("wait", "1", "1"),
             zadd("delayed", {"1": 1}),
             remove_job(), delayed=None, wait=["1", "1"], events=["removed jobId 1 prev delayed"]),
        case("03#S16 5-once", "one occurrence is taken out", job("1"), push("wait", "1", "2", "1"), remove_job(),
             wait=["2", "1"]),
        case("03#8.1 active", "an active job without lock", job("1"), push("active", "1"), remove_job(), reply=1,
             active=None,
             events=["removed jobId 1 prev active"]),
        case("03#S17 current; 03#8.1 1", "the current job of a scheduler", job("repeat:s:5", rjk="s"),
             zadd("repeat", {"s": 5}),
             ("SET", f"{Q}repeat:s:5:lock", "x"), remove_job(id="repeat:s:5"), reply=-8),
        case("03#S17 older", "an older job of a scheduler", job("repeat:s:4", rjk="s"), zadd("repeat", {"s": 5}),
             remove_job(id="repeat:s:4"),
             reply=1),
        case("03#S17 no-scheduler", "the scheduler is gone", job("repeat:s:5", rjk="s"), remove_job(id="repeat:s:5"),
             reply=1),
        case("03#S17 no-rjk", "no scheduler's id in the hash", job("repeat:s:5"), zadd("repeat", {"s": 5}),
             remove_job(id="repeat:s:5"), reply=1),
        case("03#S17 fraction", "a slot with a fraction", job("repeat:s:5.5", rjk="s"), zadd("repeat", {"s": 5.5}),
             remove_job(id="repeat:s:5.5"), reply=-8),
        case("03#S16 cap", "a bad cap: the job is gone by then", meta(**{"opts.maxLenEvents": "x"}), job("1"), wait,
             remove_job(), reply=ERROR,
             wait=None, events=None, after={"1": None}),
    ]
    found += [
        case(f"03#S16 5-{state}", f"a job in {state}", job("1"), zadd(state, {"1": 1}), remove_job(), reply=1,
             events=[f"removed jobId 1 prev {state}"], after={state: None})
        for state in ("completed", "waiting-children", "delayed", "failed", "prioritized")
    ]
    found += [
        case(f"03#S16 5-{state}", f"a job in {state}", job("1"), push(state, "1"), remove_job(), reply=1,
             events=[f"removed jobId 1 prev {state}"], after={state: None})
        for state in ("wait", "paused", "active")
    ]
    order = ("completed", "waiting-children", "delayed", "failed", "prioritized", "wait", "paused", "active")
    found += [
        case("03#S16 5-first", f"a job in {first} and {second}", job("1"), place(first), place(second), remove_job(),
             reply=1, events=[f"removed jobId 1 prev {first}"])
        for first, second in itertools.pairwise(order)
    ]
    return found


def destroyed() -> list[Case]:
    paused = meta(paused=1)
    full = [
        paused,
        push("active", "a1", "a2"),
        ("SET", f"{Q}a1:lock", "x"),
        ("SET", f"{Q}a2:lock", "x"),
        zadd("delayed", {"d": 1}),
        zadd("repeat", {"s": 1, "t": 2}),
        put("repeat:s", name="x"),
        put("repeat:t", name="x"),
        zadd("completed", {"c": 1}),
        push("paused", "p1", "p2"),
        zadd("prioritized", {"r": 1}),
        zadd("failed", {"f": 1}),
        *[job(id, deid="d") for id in ("a1", "a2", "d", "c", "p1", "p2", "r", "f")],
        ("SET", f"{Q}de:d", "r"),
        *[("SET", Q + name, "1") for name in ("id", "pc", "stalled-check", "limiter")],
        zadd("delay", {"z": 1}),
        ("SADD", f"{Q}stalled", "a1"),
        *[put(f"metrics:{kind}", count=1) for kind in ("completed", "failed")],
        *[push(f"metrics:{kind}:data", "1") for kind in ("completed", "failed")],
        ("XADD", f"{Q}events", "*", "event", "paused"),
    ]
    nothing = dict.fromkeys(
        ("a1", "a2", "d", "c", "p1", "p2", "r", "f", "active", "delayed", "repeat", "repeat:s", "repeat:t", "completed",
         "paused",
         "prioritized", "failed", "meta", "events", "id", "pc", "stalled", "stalled-check", "delay",
         "metrics:completed",
         "metrics:completed:data", "metrics:failed", "metrics:failed:data", "de:d", "a1:lock", "a2:lock"))
    counts = {"2": "3-spent", "3": "4-spent", "5": "5-spent", "6": "6-spent", "8": "7-spent", "9": "8-spent",
              "10": "9-spent exact"}
    leftover = [paused, zadd("waiting-children", {"w": 1}), job("w"), push("wait", "x"), zadd("marker", {"0": 0}),
                ("SET", f"{Q}limiter", "1"), ("SET", f"{Q}de:d", "w"), job("c2", P)]
    found = [
        case("03#7.4 1", "not paused", obliterate(), reply=-1),
        case("03#7.4 2-active", "active jobs", paused, push("active", "1"), obliterate(), reply=-2, active=["1"]),
        case("03#7.4 2-force 3 3-lock 4 5 6 7 8 9 10", "all of a queue, by force", full, obliterate(force="force"),
             reply=0, after=nothing),
        case("03#7.4 any-force", "any text is force", paused, push("active", "1"), job("1"), obliterate(force="0"),
             reply=0, active=None),
        case("03#7.4 leftovers", "what stays behind", leftover, obliterate(), reply=0,
             after={"waiting-children": {"w": 1}, "w": Has(name="n"), "wait": ["x"], "marker": {"0": 0}, "limiter": "1",
                    "de:d": "w"}),
        case("03#7.4 parent-same; 03#S15 3-hard-same hard-dedup; 03#S13 own",
             "hard removal takes a parent of the same queue along", paused,
             family(where=Q), put("par", deid="e"), ("SET", f"{Q}de:d", "other"), ("SET", f"{Q}de:e", "par"),
             push("paused", "1"),
             obliterate(), reply=0, after={"1": None, "par": None, "waiting-children": None, "de:d": None,
                                           "de:e": "par"}),
        case("03#S15 hard-up", "hard removal goes up the tree", paused, family(where=Q),
             put("par", parentKey="bull:q:gp", deid="e"),
             ("SET", f"{Q}de:e", "par"), job("gp", deid="g"), ("SET", f"{Q}de:g", "gp"),
             ("SADD", f"{Q}gp:dependencies", "bull:q:par"),
             zadd("waiting-children", {"gp": 1}), push("paused", "1"), obliterate(), reply=0,
             after={"1": None, "par": None, "gp": None, "waiting-children": None, "de:e": None, "de:g": "gp"}),
        case("03#7.4 parent-other; 03#S15 3-hard-other", "hard removal moves a parent of another queue silently",
             paused, family(priority=4),
             push("paused", "1"), obliterate(), reply=0,
             after={"bull:p:wait": ["par"], "bull:p:marker": {"0": 0}, "bull:p:events": None,
                    "bull:p:waiting-children": None}),
        case("03#7.4 exact", "nothing left to do in a second call", paused, push("paused", "1"), job("1"),
             obliterate(count="1"),
             obliterate(count="1"), reply=0, meta=None),
        case("03#7.4 count-text", "a count that is no number", paused, obliterate(count=""), reply=ERROR,
             meta={"paused": "1"}),
    ]
    found += [
        case(f"03#7.4 {covers}", f"count {count}", full, obliterate(count=count, force="force"), reply=1,
             meta={"paused": "1"})
        for count, covers in counts.items()
    ]
    return found


def reads() -> list[Case]:
    found = [
        case("03#9.1 wait active set none", "all counts", push("wait", "1"), push("active", "2", "3"),
             zadd("failed", {"4": 1}),
             get_counts(Q, *COUNTED), reply=[1, 0, 2, 0, 0, 0, 1, 0]),
        case("03#9.1 old-marker", "an old marker at the tail is removed", push("wait", "1", "0:5"),
             get_counts(Q, "wait"), reply=[1], wait=["1"]),
        case("03#9.1 only-old-marker", "an old marker alone stays", push("paused", "0:5"), get_counts(Q, "paused"),
             reply=[0], paused=["0:5"]),
        case("03#9.1 active", "an old marker among the active is not looked at", push("active", "0:5"),
             get_counts(Q, "active"), reply=[1]),
        case("03#9.1 wrong-type", "a name whose key has another type", push("failed", "1"), get_counts(Q, "failed"),
             reply=Error("WRONGTYPE")),
        case("03#9.1 none", "no names", get_counts(Q), reply=[]),
        case("03#9.5 missing", "finished? no such job", is_finished(), reply=-1),
        case("03#9.5 full-missing", "finished? no such job, in full", is_finished(full="1"),
             reply=[-1, "Missing key for job bull:q:1. isFinished"]),
        case("03#9.5 completed", "finished? completed", job("1"), zadd("completed", {"1": 1}), is_finished(), reply=1),
        case("03#9.5 full-completed", "finished? completed, in full", job("1", returnvalue="5"),
             zadd("completed", {"1": 1}),
             is_finished(full="1"), reply=[1, "5"]),
        case("03#9.5 full-nil", "finished? completed without value, in full", job("1"), zadd("completed", {"1": 1}),
             is_finished(full="1"),
             reply=[1, None]),
        case("03#9.5 failed", "finished? failed", job("1"), zadd("failed", {"1": 1}), is_finished(), reply=2),
        case("03#9.5 full-failed", "finished? failed, in full", job("1", failedReason="boom"), zadd("failed", {"1": 1}),
             is_finished(full="1"),
             reply=[2, "boom"]),
        case("03#9.5 else", "finished? not yet", job("1"), is_finished(), reply=0),
        case("03#9.5 full-else", "finished? not yet, in full", job("1"), is_finished(full="1"), reply=[0]),
        case("03#9.10 both", "limit and maximum", meta(concurrency=0), is_maxed(), reply=1),
        case("03#9.10 both", "no limit", rate_limit_ttl(), reply=-2),
    ]
    for version in ("getState", "getStateV2"):
        found += [
            case(f"03#9.4 {state} no-hash", f"{version}: {state}", zadd(state, {"1": 1}), get_state(version=version),
                 reply=state)
            for state in ("completed", "failed", "delayed", "prioritized", "waiting-children")
        ]
        found += [
            case(f"03#9.4 {state} no-hash", f"{version}: {state}", push(state, "2", "1"), get_state(version=version),
                 reply=name)
            for state, name in (("active", "active"), ("wait", "waiting"), ("paused", "waiting"))
        ]
        found += [
            case("03#9.4 unknown", f"{version}: nowhere", job("1"), get_state(version=version), reply="unknown"),
            case("03#9.4 first", f"{version}: in several", push("wait", "1"), push("active", "1"),
                 zadd("failed", {"1": 1}),
                 zadd("waiting-children", {"1": 1}), get_state(version=version), reply="failed"),
        ]
    order = ("completed", "failed", "delayed", "prioritized", "active", "wait", "waiting-children")
    found += [
        case("03#9.4 first", f"{version}: in {first} and {second}", place(first), place(second),
             get_state(version=version), reply="waiting" if first == "wait" else first)
        for version in ("getState", "getStateV2")
        for first, second in itertools.pairwise(order)
    ]
    return found


CASES = [*stalled(), *put_off(), *given_back(), *retried(), *edits(), *pauses(), *removals(), *destroyed(), *reads()]
