"""In which list a job waits, pausing, and who looks for it there: part 06, sections 11.1 (L1), 11.9, 11.11 to 11.13."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import (
    P,
    Q,
    T,
    add,
    add_scheduler,
    back_to_wait,
    change_priority,
    clean,
    drain,
    get_counts_per_priority,
    get_state,
    move_jobs_to_wait,
    move_to_active,
    move_to_delayed,
    move_to_finished,
    obliterate,
    promote,
    remove_child_dependency,
    remove_job,
    reprocess_job,
    retry_job,
    stalled_check,
    update_scheduler,
)
from tests.oracle.cases import ERROR, NONE, Case, Error, Has, case, job, meta, push, put, zadd
from tests.oracle.directed.later.versions import Version
from tests.oracle.later_calls import pausing, then_fetch

# fmt: off
BRANCHES = {
    "06#L1": "open paused concurrency both lifo add parent scheduler advance priority promote due retry back stalled "
    "reprocess many finish put-off",
    "06#11.9": "old-marker",
    "06#11.11": "wait paused nowhere to-zero field both",
    "06#11.12": "pause pause-empty pause-twice pause-both resume resume-empty resume-both resume-prioritized "
    "resume-delayed "
    "resume-open flag flag-odd flag-none event-uncapped reply rest rename-back",
    "06#11.13": "wait paused both budget marker none unlink leaves",
    "06#11.14": "drain state",
    "06#11.17": "priority-paused priority-open priority-both priority-meta priority-others",
}

PAUSED = meta(paused=1)
D = T * 4096


def family(state: str = "waiting-children") -> list[Any]:
    """Parent P of the same queue and its only child 1."""
    return [
        job("P"), zadd(state, {"P": T}), ("SADD", f"{Q}P:dependencies", f"{Q}1"),
        job("1", parentKey=f"{Q}P", parent='{"id":"P","queueKey":"bull:q"}'),
    ]


def held(id: str = "1", **fields: Any) -> list[Any]:
    """An active and locked job."""
    return [job(id, **fields), push("active", id), ("SET", f"{Q}{id}:lock", "tk")]


def lists(v: Version) -> list[Case]:
    """L1: a paused queue, `wait` has w and `paused` has p, then each command that puts a job in line."""
    def placed(covers: str, title: str, *steps: Any, id: str = "1", right: bool = False, **after: Any) -> Case:
        own = (lambda other: [other, id]) if right else (lambda other: [id, other])
        expected = {"wait": own("w"), "paused": ["p"]} if v.six else {"wait": ["w"], "paused": own("p")}
        return case(f"06#L1 {covers}", title, PAUSED, push("wait", "w"), push("paused", "p"), *steps,
                    **{**expected, "marker": None, **after})

    due = [job("1", delay=5), zadd("delayed", {"1": D})]
    record = [zadd("repeat", {"s": T - 60_000}), put("repeat:s", name="sj", ic=1, every=60_000)]
    was = f"repeat:s:{T - 60_000}"
    return [
        placed("paused add", "an add", add("addStandardJob")),
        placed("lifo", "an add, last in, first out", add("addStandardJob", options={"lifo": True}), right=True),
        placed("parent finish", "a parent, when its child ends", family(), push("active", "1"),
               ("SET", f"{Q}1:lock", "tk"), move_to_finished(), id="P", right=True),
        placed("parent", "a parent, when its child is removed", family(), zadd("delayed", {"1": D}), remove_job(),
               id="P", right=True),
        placed("parent", "a parent, when the link is cut", family(), remove_child_dependency(f"{Q}1", f"{Q}P"),
               id="P", right=True),
        case("06#L1 parent", "a parent elsewhere, when its child is cleaned", meta(P, paused=1), job("P", P),
             zadd(f"{P}waiting-children", {"P": T}), ("SADD", f"{P}P:dependencies", f"{Q}1"),
             job("1", parentKey=f"{P}P", parent='{"id":"P","queueKey":"bull:p"}'), zadd("completed", {"1": T}),
             clean(until=T, limit="0"), after={f"{P}wait": v.in_six(None, ["P"]), f"{P}paused": v.in_six(["P"], None)}),
        placed("scheduler", "a scheduler's first job", add_scheduler(schedule={"name": "sj", "every": 60_000},
               options={"repeat": {"every": 60_000}}), id=f"repeat:s:{T}"),
        placed("advance", "its next", record, job(was, rjk="s"), update_scheduler(
            options={"repeat": {"every": 60_000}}, producer=was), id=f"repeat:s:{T}"),
        placed("priority", "a priority taken away", job("1", priority=3), zadd("prioritized", {"1": 3}),
               change_priority(priority="0")),
        placed("priority lifo", "a priority taken away, last in", job("1", priority=3), zadd("prioritized", {"1": 3}),
               change_priority(priority="0", lifo="1"), right=True),
        placed("promote", "a promotion", due, promote()),
        placed("due", "a job that is due, at a fetch", due, move_to_active(), reply=NONE),
        placed("due finish", "a job that is due, at an end", due, held("2"), move_to_finished(id="2", fetch="1")),
        placed("due retry", "a job that is due, at a retry", due, held("2", priority=3), retry_job(id="2")),
        placed("retry", "a retry", held(), retry_job()),
        placed("retry", "a retry from the right", held(), retry_job(push="RPUSH"), right=True),
        placed("back", "a job given back", held(), back_to_wait(), right=True),
        placed("stalled", "a stalled job", job("1"), push("active", "1"), ("SADD", f"{Q}stalled", "1"), stalled_check(),
               right=True),
        placed("reprocess", "a job run again", job("1"), zadd("failed", {"1": T}), reprocess_job()),
        placed("many", "many run again", job("1"), zadd("failed", {"1": T}), move_jobs_to_wait()),
        placed("open", "an open queue", ("HDEL", f"{Q}meta", "paused"), add("addStandardJob"), wait=["1", "w"],
               paused=["p"], marker={"0": 0}),
        placed("concurrency", "as many active as may be", ("HDEL", f"{Q}meta", "paused"), meta(concurrency=1),
               push("active", "x"), add("addStandardJob"), wait=["1", "w"], paused=["p"]),
        placed("parent both", "a child that is there already", job("c"), zadd("completed", {"c": T}),
               put(f"{Q}c", returnvalue="1"), family(), ("DEL", f"{Q}P:dependencies"),
               add("addStandardJob", id="c", parent=(Q, "P")), id="P", right=True),
        *([placed("due put-off", "a job that is due, when another is put off", due, held("2"),
                  then_fetch(move_to_delayed(id="2", delay="99999")), reply=0, marker={"1": T + 99_999.0})]
          if v.later else []),
        case("06#L1 paused", "a prioritized job is in neither list", PAUSED, job("1", priority=3),
             zadd("failed", {"1": T}), reprocess_job(),
             wait=None, paused=v.in_six(["1"], None), prioritized=v.in_six(None, {"1": 3 * 2.0**32 + 1})),
        *(case("06#11.9 old-marker", f"promotion meets the old marker, {'paused' if paused else 'open'}",
               [PAUSED] if paused else [], push("wait", "0:5"), push("paused", "0:5"), due, promote(), reply=0,
               **_old_marker(v, paused=paused)) for paused in (True, False)),
    ]


def _old_marker(v: Version, *, paused: bool) -> dict[str, Any]:
    placed = "paused" if paused and not v.six else "wait"
    return {"wait": ["0:5"], "paused": ["0:5"], placed: ["1"]}


def priorities(v: Version) -> list[Case]:
    """11.11 and the counts per priority."""
    one = job("1")
    to_three = change_priority(priority="3")
    moved = {"prioritized": {"1": 3 * 2.0**32 + 1}, "after": {"1": Has(priority="3")}}
    stays = {"prioritized": None, "after": {"1": Has(priority="3")}}

    def which(five: bool, six: bool) -> dict[str, Any]:
        return moved if v.in_six(five, six) else stays

    some = [push("wait", "w"), push("paused", "p", "q", "r"), zadd("prioritized", {"x": 3 * 2.0**32 + 1})]
    return [
        case("06#11.11 wait", "open, in wait", one, push("wait", "1"), to_three, reply=0, **moved),
        case("06#11.11 wait", "paused, in wait", PAUSED, one, push("wait", "1"), push("paused", "p"), to_three, reply=0,
             **which(False, True)),
        case("06#11.11 paused", "paused, in paused", PAUSED, one, push("paused", "1"), to_three, reply=0,
             **which(True, False)),
        case("06#11.11 paused", "open, in paused", one, push("paused", "1"), to_three, reply=0, **stays),
        case("06#11.11 both", "in both, paused", PAUSED, one, push("wait", "1"), push("paused", "1"), to_three,
             wait=v.in_six(["1"], None), paused=v.in_six(None, ["1"])),
        case("06#11.11 nowhere field", "nowhere: the field alone", one, to_three, reply=0, **stays),
        case("06#11.11 to-zero", "to none, from the list", PAUSED, one, push("paused", "1", "p"), push("wait", "1",
             "w"),
             change_priority(priority="0"), paused=v.in_six(["1", "p"], ["1", "p"]), wait=["1", "w"]),
        case("06#11.17 priority-open priority-others", "counts, open", some, get_counts_per_priority(Q, "0", "3", "4"),
             reply=[1, 1, 0]),
        case("06#11.17 priority-paused priority-both", "counts, paused", PAUSED, some,
             get_counts_per_priority(Q, "0", "3"), reply=[v.in_six(3, 1), 1]),
        case("06#11.17 priority-meta", "`meta` is no hash", push("meta", "x"), some, get_counts_per_priority(Q, "0"),
             reply=v.in_six(ERROR, [1])),
    ]


def pauses(v: Version) -> list[Case]:
    """11.12: 4.1.2 and 4.1.3."""
    none = v.in_six(None, 0)
    jobs = [push("wait", "2", "1")]
    aside = [PAUSED, push("paused", "2", "1")]
    both = [PAUSED, push("paused", "3", "2"), push("wait", "5", "4")]
    many = [f"p{n}" for n in range(7001)]
    resumed, paused = ["resumed"], ["paused"]
    found = [
        case("06#11.12 pause reply", "pausing", jobs, ("ZADD", f"{Q}marker", 0, "0"), pausing("paused"), reply=none,
             wait=v.in_six(None, ["2", "1"]), paused=v.in_six(["2", "1"], None), meta={"paused": "1"}, marker=None,
             events=paused),
        case("06#11.12 pause-empty", "pausing an empty queue", pausing("paused"), reply=none, meta={"paused": "1"},
             events=paused),
        case("06#11.12 pause-twice", "pausing twice", jobs, pausing("paused"), pausing("paused"),
             events=["paused", "paused"], wait=v.in_six(None, ["2", "1"]), paused=v.in_six(["2", "1"], None)),
        case("06#11.12 pause-both", "5.x destroys what was set aside", both, pausing("paused"), reply=none,
             wait=v.in_six(None, ["5", "4"]), paused=v.in_six(["5", "4"], ["3", "2"])),
        case("06#11.12 resume rename-back", "resuming", aside, pausing("resumed"), reply=none, wait=["2", "1"],
             paused=None, meta=None, marker={"0": 0}, events=resumed),
        case("06#11.12 resume-empty", "resuming an empty queue", PAUSED, pausing("resumed"), reply=none, meta=None,
             marker=None, events=resumed),
        case("06#11.12 resume", "resuming where only wait is filled", PAUSED, jobs, pausing("resumed"), reply=none,
             wait=["2", "1"], marker=v.in_six(None, {"0": 0})),
        case("06#11.12 resume-both", "5.x destroys what waits", both, pausing("resumed"), reply=none, paused=None,
             wait=v.in_six(["3", "2"], ["5", "4", "3", "2"]), marker={"0": 0}),
        case("06#11.12 resume-prioritized", "resuming, one is prioritized", PAUSED, zadd("prioritized", {"1": 1}),
             pausing("resumed"), marker={"0": 0}),
        case("06#11.12 resume-delayed", "resuming, one is delayed", PAUSED, zadd("delayed", {"1": D}),
             pausing("resumed"), marker={"1": float(T)}),
        case("06#11.12 resume-open", "resuming a queue that is open", jobs, pausing("resumed"), reply=none,
             marker=v.in_six(None, {"0": 0}), events=resumed),
        case("06#11.12 resume-open", "the same, one delayed", jobs, zadd("delayed", {"1": D}), pausing("resumed"),
             marker=v.in_six({"1": float(T)}, {"0": 0})),
        case("06#11.12 flag", "no event", jobs, pausing("paused", "0"), events=v.in_six(paused, None)),
        case("06#11.12 flag", "no event of the resume", aside, pausing("resumed", "0"), events=v.in_six(resumed, None),
             wait=["2", "1"]),
        case("06#11.12 flag-odd", "an empty flag", pausing("paused", ""), events=paused),
        case("06#11.12 event-uncapped", "its event is not capped", meta(**{"opts.maxLenEvents": "0"}),
             pausing("paused"), events=paused),
    ]
    if v.six:
        found += [
            case("06#11.12 rest", "7001 were set aside, one waits: one is left", PAUSED, push("paused", *many),
                 push("wait", "w"), pausing("resumed"), reply=1, paused=["p7000"], wait=["w", *many[:7000]],
                 marker={"0": 0}, events=resumed),
            case("06#11.12 rest", "and then none", push("paused", "p7000"), push("wait", "w"), pausing("resumed", "0"),
                 reply=0, paused=None, wait=["w", "p7000"], events=None),
            case("06#11.12 rename-back", "7001 were set aside, none waits: all come back", PAUSED,
                 push("paused", *many), pausing("resumed"), reply=0, paused=None, wait=many),
            case("06#11.12 rest", "7000 were set aside, one waits", PAUSED, push("paused", *many[:7000]),
                 push("wait", "w"), pausing("resumed"), reply=0, paused=None),
        ]
    return [*found, case("06#11.12 flag-none", "another direction is a resume", aside, pausing("other"),
                         reply=none, events=["other"], meta=None)]


def removals(v: Version) -> list[Case]:
    """11.13 and 11.14."""
    both = [PAUSED, job("1"), job("2"), push("wait", "1"), push("paused", "2")]
    marked = ("ZADD", f"{Q}marker", 0, "0")
    all_gone = {"meta": None, "marker": v.since({"0": 0}, None)}
    parent = [job("P", P), zadd(f"{P}waiting-children", {"P": T}), ("SADD", f"{P}P:dependencies", f"{Q}1")]
    return [
        case("06#11.13 paused marker", "what was set aside goes, and the marker", PAUSED, job("2"), push("paused", "2"),
             marked, obliterate(), reply=0, paused=None, after={"2": None, **all_gone}),
        case("06#11.13 wait", "what waits goes with 6.7.0", PAUSED, job("1"), push("wait", "1"), obliterate(), reply=0,
             after={"1": v.in_six(Has(name="n"), None), "wait": v.in_six(["1"], None)}),
        case("06#11.13 both", "both go with 6.7.0", both, obliterate(), reply=0,
             after={"1": v.in_six(Has(name="n"), None), "2": None}),
        case("06#11.13 budget", "a budget that ends in wait", both, obliterate(count="1"), reply=1,
             after={"1": v.in_six(Has(name="n"), None), "2": v.in_six(None, Has(name="n")),
                    "paused": v.in_six(None, ["2"])}),
        case("06#11.13 budget", "a budget that ends before", both, zadd("completed", {"9": T}), job("9"),
             obliterate(count="1"), reply=1, after={"1": Has(name="n"), "2": Has(name="n"), "9": None}),
        case("06#11.13 unlink", "a child is taken from its parent", PAUSED, parent, job("1", parentKey=f"{P}P"),
             push("wait", "1"), obliterate(), reply=0,
             after={f"{P}P:dependencies": v.in_six({f"{Q}1"}, None), f"{P}wait": v.in_six(None, ["P"])}),
        case("06#11.13 none", "an empty queue", PAUSED, marked, obliterate(), reply=0, after=all_gone),
        case("06#11.13 leaves", "records that nobody owns stay", PAUSED, put("dn:x", name="k"),
             ("SET", f"{Q}de:x", "9"), obliterate(), reply=0, after={"dn:x": Has(name="k"), "de:x": "9"}),
        case("06#11.13 wait", "`wait` is no list", PAUSED, ("SET", f"{Q}wait", "x"), obliterate(),
             reply=v.in_six(0, Error("WRONGTYPE"))),
        case("06#11.14 drain", "draining empties both", both, drain(Q), wait=None, paused=None,
             after={"1": None, "2": None}),
        case("06#11.14 state", "a job of either list waits", both, get_state(id="1"), get_state(id="2"),
             reply="waiting"),
    ]


def cases(v: Version) -> list[Case]:
    """All of them."""
    return [each for make in (lists, priorities, pauses, removals) for each in make(v)]
