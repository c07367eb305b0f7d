"""Waiting for children, moves of jobs that are not active, cleaning and paged reads: part 03 of the specification."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import (
    P,
    Q,
    T,
    change_delay,
    change_priority,
    clean,
    drain,
    get_counts_per_priority,
    get_dependency_counts,
    get_metrics,
    get_ranges,
    is_job_in_list,
    move_jobs_to_wait,
    move_to_waiting_children,
    paginate,
    promote,
    remove_child_dependency,
    remove_unprocessed_children,
    reprocess_job,
)
from tests.oracle.cases import ERROR, Case, Error, Has, Ttl, case, job, meta, push, put, zadd

# fmt: off
BRANCHES = {
    "03#3.2": "1 2 3-child 3-any 4-missing 4-other 4-empty 5 6 7 8 zero first-nine",
    "03#4.1": "1 2 2-own-score 3 4 5 6 7 8 zero",
    "03#4.2": "1 2 3-prioritized 3-list 3-other-list 3-none list-fifo list-lifo counted front 4 5 fraction bad "
    "bad-lifo",
    "03#4.3": "1 2 3 4-marker 5-list 5-prioritized 6 7 7-ghost 8 marker-stays",
    "03#4.4": "1 2 3-failed 3-completed 4 4-priority 5-unsuccessful 5-none 5-failed-hash 5-processed 5-gone 6 7 lifo",
    "03#4.5": "1 2 3-failed 3-completed 3-delayed 3-events 3-order 3-marker 3-held 3-none 4-more 4-done zero until",
    "03#7.2": "1 2 2-paused 2-protected 3 3-off 4 5 parent-same parent-other silent",
    "03#7.3": "list-limit list-all list-locked list-current list-age list-text list-empty list-order zset-delayed "
    "zset-limit "
    "zset-prioritized zset-finished zset-current-finished other event none hard",
    "03#8.2": "removed locked failed deep released kept",
    "03#8.3": "1 2 3-linked 3-not-linked 3-released 3-others",
    "03#9.2": "zero zero-paused some bad",
    "03#9.3": "list-down list-up list-up-others zset-down zset-up old-marker only-old-marker several",
    "03#9.6": "yes no",
    "03#9.7": "all range none",
    "03#9.8": "all else",
    "03#9.9": "1-none 1-set 1-hash 1-other 2 3-skip 3-page 3-fetch 3-fetch-missing 3-most 4 past empty-text",
    "03#17": "1 5 6 7 8 9 11 13 14 15 16",
}

D = T * 4096
CAP = {"opts.maxLenEvents": "10000"}
ACTIVE = [job("1"), push("active", "1"), ("SET", f"{Q}1:lock", "tk", "PX", 300_000), ("SADD", f"{Q}stalled", "1")]
RELEASED = ["waiting jobId par prev waiting-children"]


def waiting_for_children() -> list[Case]:
    kid = ("SADD", f"{Q}1:dependencies", f"{Q}kid")
    bad = zadd("1:unsuccessful", {f"{Q}x": 1})
    return [
        case("03#3.2 1", "no such job", move_to_waiting_children(), reply=-1),
        case("03#3.2 2 first-nine; 03#17 15", "a failed child comes before the lock", ACTIVE, bad,
             move_to_waiting_children(token="z"), reply=-9, stalled={"1"}),
        case("03#3.2 3-any; 03#17 15", "no pending child comes before the lock", ACTIVE,
             move_to_waiting_children(token="z"), reply=1, active=["1"], events=None),
        case("03#3.2 3-child", "the child asked for is not pending", ACTIVE, kid,
             move_to_waiting_children(child=f"{Q}other"), reply=1, active=["1"], after={"1:lock": "tk"}),
        case("03#3.2 3-child 4-missing; 03#17 15", "no lock", ACTIVE, kid, ("DEL", f"{Q}1:lock"),
             move_to_waiting_children(child=f"{Q}kid"), reply=-2),
        case("03#3.2 4-other; 03#17 15", "the lock of another", ACTIVE, kid, move_to_waiting_children(token="z"),
             reply=-6),
        case("03#3.2 4-empty", "no token", ACTIVE, kid, move_to_waiting_children(token=""), reply=-6),
        case("03#3.2 5", "not active: the lock is gone", ACTIVE, kid, ("DEL", f"{Q}active"), move_to_waiting_children(),
             reply=-3, stalled=None, after={"1:lock": None}),
        case("03#3.2 5 6 7 8", "parked", ACTIVE, kid, push("active", "2", "1"), move_to_waiting_children(), reply=0,
             active=["1", "2"], events=["waiting-children jobId 1 prev active"], meta=None, stalled=None,
             after={"waiting-children": {"1": T}}),
        case("03#3.2 zero", "token 0", ACTIVE, kid, move_to_waiting_children(token="0"), reply=0, stalled={"1"},
             after={"1:lock": "tk"}),
    ]


def changes() -> list[Case]:
    c1 = [put("c1", n=1), zadd("delayed", {"c1": 6144000})]
    queue = [put("w1", n=1), zadd("prioritized", {"p1": 12884901889, "p2": 12884901890}), ("SET", f"{Q}pc", 2)]
    w1 = push("wait", "a", "w1", "b")

    def priority(covers: str, title: str, *state: Any, to: str, lifo: str = "0", id: str = "w1", reply: Any = 0,
                 **after: Any) -> Case:
        return case(f"03#4.2 {covers}", title, queue, list(state), change_priority(id=id, priority=to, lifo=lifo),
                    reply=reply, **after)

    return [
        case("03#4.1 1", "delay: no such job", change_delay(delay="5"), reply=-1),
        case("03#4.1 2-own-score; 03#17 11", "the same due time: the own score counts", c1,
             change_delay(id="c1", delay="500", at=1000), reply=0, delayed={"c1": 6144001}),
        case("03#4.1 2 4 5 6 7 8", "a new delay", c1, change_delay(id="c1", delay="2000.0", at=1000), reply=0, meta=CAP,
             delayed={"c1": 3000 * 4096}, events=["delayed jobId c1 delay 3000"], marker={"1": 3000},
             after={"c1": Has(delay="2000")}),
        case("03#4.1 zero", "no delay", c1, change_delay(id="c1", delay="0", at=1000), delayed={"c1": 4096000}),
        case("03#4.1 3", "not delayed", put("c1", n=1), change_delay(id="c1", delay="5"), reply=-3, meta=None,
             after={"c1": {"n": "1"}}),
        case("03#4.2 1", "priority: no such job", change_priority(priority="1"), reply=-1),
        priority("3-list 2 front; 03#17 13", "from wait to the front of a priority", push("wait", "w1"), to="3",
                 lifo="1",
                 prioritized={"w1": 12884901888, "p1": 12884901889, "p2": 12884901890}, marker=None, wait=None, pc="2"),
        priority("counted fraction; 03#17 13", "a priority with a fraction", push("wait", "w1"), to="1.5",
                 prioritized={"p1": 12884901889, "p2": 12884901890, "w1": 6442450947}, marker={"0": 0}, pc="3",
                 after={"w1": Has(priority="1.5")}),
        priority("list-lifo 4 5; 03#17 13", "priority 0, next", w1, to="0", lifo="1", wait=["a", "b", "w1"],
                 marker={"0": 0}, meta=None, events=None, after={"w1": Has(priority="0")}),
        priority("list-fifo", "priority 0, last", w1, to="0", wait=["w1", "a", "b"]),
        priority("3-prioritized", "from prioritized to the list", put("p1", priority=3), to="0", id="p1", wait=["p1"],
                 prioritized={"p2": 12884901890}),
        priority("3-other-list", "in wait while paused: only the target is searched", meta(paused=1), w1, to="3",
                 wait=["a", "w1", "b"], prioritized={"p1": 12884901889, "p2": 12884901890},
                 after={"w1": Has(priority="3")}),
        priority("2", "paused: no marker", meta(paused=1), push("paused", "w1"), to="3", marker=None, paused=None,
                 pc="3"),
        priority("3-none", "in no list", to="3", wait=None, after={"w1": Has(priority="3")}),
        priority("bad", "a priority that is no number: the job is lost", w1, to="x", reply=ERROR, wait=["a", "b"],
                 pc="3",
                 after={"w1": Has(priority=None)}),
        priority("bad-lifo", "the same in front", w1, to="x", lifo="1", reply=ERROR, wait=["a", "b"], pc="2"),
    ]


def promotions() -> list[Case]:
    due = [job("1", delay=5), zadd("delayed", {"1": D}), zadd("marker", {"1": T})]
    return [
        case("03#4.3 1", "not delayed", job("1"), promote(), reply=-3),
        case("03#4.3 2 3 5-list 6 7 8 marker-stays", "promoted", due, push("wait", "w"), promote(), reply=0,
             delayed=None,
             wait=["1", "w"], marker={"0": 0, "1": T}, meta=None, events=["waiting jobId 1 prev delayed"],
             after={"1": Has(delay="0")}),
        case("03#4.3 5-prioritized", "a priority", due, put("1", priority=3), promote(), prioritized={"1": 12884901889},
             pc="1", marker={"0": 0, "1": T}),
        case("03#4.3 3", "paused", due, meta(paused=1), promote(), paused=["1"], marker={"1": T}),
        case("03#4.3 4-marker", "an old marker at the head is removed", due, push("wait", "0:5", "w"), promote(),
             wait=["1", "w"]),
        case("03#4.3 4-marker", "an old marker at the head, a priority", due, put("1", priority=3),
             push("wait", "0:5", "w"),
             promote(), wait=["w"]),
        case("03#4.3 7-ghost; 03#17 14", "no hash", zadd("delayed", {"ghost": 5}), promote(id="ghost"), reply=0,
             wait=["ghost"], marker={"0": 0}, events=["waiting jobId ghost prev delayed"],
             after={"ghost": {"delay": "0"}}),
    ]


def repeated() -> list[Case]:
    ran: dict[str, Any] = {"finishedOn": 1, "processedOn": 1, "atm": 2}
    failed = [job("1", failedReason="boom", returnvalue="5", **ran), zadd("failed", {"1": 1})]
    completed = [job("1", failedReason="boom", returnvalue="5", **ran), zadd("completed", {"1": 1})]
    child = [put("1", parentKey="bull:p:par"), job("par", P)]
    pending = "bull:p:par:dependencies"
    d = [put("d1", priority=5, delay=5000), put("d2", delay=1000), put("d3", delay=9000),
         zadd("delayed", {"d1": 5000, "d2": 1000, "d3": 9000}), zadd("marker", {"1": 1})]
    return [
        case("03#4.4 1", "no such job", reprocess_job(), reply=-1),
        case("03#4.4 2", "not in the state asked for", completed, reprocess_job(), reply=-3, completed={"1": 1}),
        case("03#4.4 3-failed 4 6 7", "a failed job", failed, push("wait", "w"), reprocess_job(), reply=1, failed=None,
             wait=["1", "w"], marker={"0": 0}, meta=CAP, events=["waiting jobId 1 prev failed"],
             after={"1": Has(failedReason=None, finishedOn=None, processedOn=None, returnvalue="5", atm="2")}),
        case("03#4.4 3-completed lifo", "a completed job, next", completed, push("wait", "w"),
             reprocess_job(state="completed", push="RPUSH"), reply=1, wait=["w", "1"],
             events=["waiting jobId 1 prev completed"], after={"1": Has(failedReason="boom", returnvalue=None)}),
        case("03#4.4 4-priority", "the priority is ignored", failed, put("1", priority=3), reprocess_job(), wait=["1"],
             prioritized=None),
        case("03#4.4 4", "paused", failed, meta(paused=1), reprocess_job(), paused=["1"], marker=None),
        case("03#4.4 5-unsuccessful", "a child whose failure counted", failed, child,
             zadd("bull:p:par:unsuccessful", {f"{Q}1": 1}), reprocess_job(), reply=1,
             after={"bull:p:par:unsuccessful": None, pending: {f"{Q}1"}}),
        case("03#4.4 5-none", "a child whose parent knows nothing of it", failed, child, reprocess_job(), reply=1,
             after={pending: None}),
        case("03#4.4 5-gone", "a child whose parent is gone", failed, put("1", parentKey="bull:p:par"),
             zadd("bull:p:par:unsuccessful", {f"{Q}1": 1}), reprocess_job(), reply=1, after={pending: None}),
        case("03#4.4 5-failed-hash; 03#17 1", "an ignored failure: half way", failed, child,
             put("bull:p:par:failed", **{f"{Q}1": "boom"}), reprocess_job(), reply=Error("WRONGTYPE"), failed=None,
             wait=["1"],
             marker={"0": 0}, events=None, meta=None,
             after={"bull:p:par:failed": {f"{Q}1": "boom"}, pending: None, "1": Has(failedReason=None)}),
        case("03#4.4 5-processed", "a completed child", completed, child, put("bull:p:par:processed", **{f"{Q}1": "5"}),
             reprocess_job(state="completed"), reply=1, after={"bull:p:par:processed": None, pending: {f"{Q}1"}}),
        case("03#4.4 5-none", "a completed child that was not counted", completed, child,
             reprocess_job(state="completed"),
             reply=1, after={pending: None}),
        case("03#4.5 1 2 3-delayed 3-events 3-order 3-marker 4-done; 03#17 9",
             "delayed jobs, without regard to priority", d,
             move_jobs_to_wait(state="delayed", until="1.7976931348623157e+308"), reply=0, delayed=None,
             wait=["d3", "d1", "d2"], marker={"0": 0, "1": 1}, prioritized=None,
             events=[f"waiting jobId {id} prev delayed" for id in ("d2", "d1", "d3")],
             after={"d1": {"priority": "5", "delay": "5000"}}),
        case("03#4.5 3-failed until", "failed jobs up to a time", failed, zadd("failed", {"2": 9, "3": 5}),
             move_jobs_to_wait(until=5), reply=0, failed={"2": 9}, wait=["3", "1"], meta=CAP,
             after={"1": Has(failedReason=None, finishedOn=None, processedOn=None, returnvalue="5"), "3": None}),
        case("03#4.5 3-completed", "completed jobs", completed, move_jobs_to_wait(state="completed"), reply=0,
             wait=["1"],
             after={"1": Has(failedReason="boom", returnvalue=None, finishedOn=None)}),
        case("03#4.5 4-more", "as many as asked for", failed, zadd("failed", {"2": 9}), move_jobs_to_wait(count="1"),
             reply=1,
             failed={"2": 9}),
        case("03#4.5 3-held", "paused", failed, meta(paused=1), move_jobs_to_wait(), paused=["1"], marker=None),
        case("03#4.5 3-held", "maxed", failed, meta(concurrency=0), move_jobs_to_wait(), wait=["1"], marker=None),
        case("03#4.5 3-none", "none", move_jobs_to_wait(), reply=0, meta=None),
        case("03#4.5 zero", "a batch of 0 asks for more for ever", failed, move_jobs_to_wait(count="0"), reply=1,
             failed={"1": 1}),
    ]


def family(child: str = "1", where: str = P, **fields: Any) -> list[Any]:
    """`child` of `bull:q` is the last pending child of `par`, which waits in the queue `where`."""
    key = f"{where}par"
    return [put(child, parentKey=key), job("par", where, **fields), ("SADD", f"{key}:dependencies", f"{Q}{child}"),
            zadd(f"{where}waiting-children", {"par": 1})]


def cleaning() -> list[Case]:
    slot = 1795821197496
    current = f"repeat:S:{slot}"
    scheduled = [zadd("repeat", {"S": slot}), job(current, rjk="S")]
    three = [job("1"), job("2"), job("3"), push("wait", "1", "2", "3")]
    tree = [put("gp", deid="DG"), put("par", deid="DP", parentKey=f"{Q}gp"), put("kid", deid="DK", parentKey=f"{Q}par"),
            ("SADD", f"{Q}gp:dependencies", f"{Q}par"), ("SADD", f"{Q}par:dependencies", f"{Q}kid"),
            zadd("waiting-children", {"gp": 1, "par": 1}), push("wait", "kid"), ("SET", f"{Q}de:DG", "gp"),
            ("SET", f"{Q}de:DP", "par"), ("SET", f"{Q}de:DK", "kid")]
    old = [job("x1", timestamp=999), job("x2", timestamp=1700000000000), push("wait", "x1", "x2")]
    return [
        case("03#7.2 1 2 2-paused 4 5 3-off silent", "drained, not the delayed", three, job("4"), push("paused", "4"),
             job("5"),
             zadd("prioritized", {"5": 1}), job("6"), zadd("delayed", {"6": 1}), push("1:logs", "x"),
             ("SET", f"{Q}1:lock", "x"),
             zadd("marker", {"0": 0}), drain(), reply=None, wait=None, paused=None, prioritized=None, delayed={"6": 1},
             marker={"0": 0}, events=None, meta=None,
             after={"1": None, "1:logs": None, "1:lock": "x", "5": None, "6": Has(name="n")}),
        case("03#7.2 3 1", "drained, the delayed too, but for a scheduler's job", scheduled, job("6"),
             zadd("delayed", {"6": 1, current: 2}), drain(delayed="1"), delayed={current: 2},
             after={"6": None, current: Has(name="n")}),
        case("03#7.2 2-protected; 03#17 5", "a protected id in the list: the wrong ones are cut off", scheduled,
             push("wait", "b1", current, "a1"), job("b1"), job("a1"), drain(), wait=["a1"],
             after={"b1": None, "a1": None, current: Has(name="n")}),
        case("03#7.2 4", "a protected prioritized job", scheduled, zadd("prioritized", {current: 1}), drain(),
             prioritized={current: 1}),
        case("03#7.2 parent-same", "a parent of the same queue goes along", family(where=Q), push("wait", "1"), drain(),
             after={"par": None, "waiting-children": None}),
        case("03#7.2 parent-other", "a parent of another queue is moved silently", family(), push("wait", "1"), drain(),
             after={"bull:p:wait": ["par"], "bull:p:events": None, "bull:p:marker": {"0": 0}}),
        case("03#7.3 list-all event", "all of a list", three, clean(state="wait"), reply=["1", "2", "3"], wait=None,
             meta=None,
             events=["cleaned count 3"], after={"1": None}),
        case("03#7.3 list-limit list-order", "a limit: those nearest to the tail, head to tail", three,
             clean(state="wait", limit="2"),
             reply=["2", "3"], wait=["1"]),
        case("03#7.3 list-locked", "active: locked ones stay", job("1"), job("2"), ("SET", f"{Q}1:lock", "x"),
             push("active", "1", "2"), clean(state="active"), reply=["2"], active=["1"]),
        case("03#7.3 list-locked", "wait: locks are not looked at", three, ("SET", f"{Q}1:lock", "x"),
             clean(state="wait"),
             reply=["1", "2", "3"], after={"1:lock": "x"}),
        case("03#7.3 list-current", "a scheduler's job stays", scheduled, push("wait", current), clean(state="wait"),
             reply=[],
             wait=[current]),
        case("03#7.3 list-age", "the first of three fields", job("1", finishedOn=9, processedOn=1),
             job("2", processedOn=1),
             job("3", timestamp=9), put("4", x=1), push("wait", "1", "2", "3", "4"), clean(state="wait", until=5),
             reply=["2", "4"],
             wait=["1", "3"]),
        case("03#7.3 list-text; 03#17 8", "ages are compared as texts", old,
             clean(state="wait", until=1795821224683, limit="10"),
             reply=["x2"], wait=["x1"]),
        case("03#7.3 list-text", "a time that is negative keeps all", old, clean(state="wait", until="-5"), reply=[],
             wait=["x1", "x2"],
             events=["cleaned count 0"]),
        case("03#7.3 list-empty", "empty elements disappear along the way", job("1", timestamp=9),
             push("wait", "", "1"), clean(state="wait", until=5),
             reply=[""], wait=["1"]),
        case("03#7.3 none", "nothing", clean(state="wait"), reply=[], events=["cleaned count 0"]),
        case("03#7.3 zset-delayed", "delayed: by time of start or creation, a scheduler's job stays", scheduled,
             job("1", processedOn=9), job("2", timestamp=1), zadd("delayed", {"1": 1, "2": 2, current: 3, "neg": -1}),
             clean(state="delayed", until=5), reply=["2"], delayed={"1": 1, current: 3, "neg": -1}),
        case("03#7.3 zset-limit", "delayed with a limit: only the first are looked at", job("1", timestamp=9),
             job("2", timestamp=1), zadd("delayed", {"1": 1, "2": 2}), clean(state="delayed", until=5, limit="1"),
             reply=[],
             delayed={"1": 1, "2": 2}),
        case("03#7.3 zset-prioritized", "prioritized: by creation alone",
             job("1", timestamp=1, processedOn=9, finishedOn=9),
             zadd("prioritized", {"1": 1}), clean(state="prioritized", until=5), reply=["1"], prioritized=None),
        case("03#7.3 zset-finished", "completed: by score", job("1", finishedOn=999),
             zadd("completed", {"1": 5, "2": 6}),
             clean(state="completed", until=5), reply=["1"], completed={"2": 6}),
        case("03#7.3 zset-finished", "failed with a limit", zadd("failed", {"1": 5, "2": 6, "3": 7}),
             clean(state="failed", until=9, limit="2"), reply=["1", "2"], failed={"3": 7}),
        case("03#7.3 zset-current-finished", "a finished scheduler's job is not spared", scheduled,
             zadd("completed", {current: 1}),
             clean(state="completed", until=5), reply=[current], after={current: None}),
        case("03#7.3 other", "waiting-children is treated like completed", job("1"), zadd("waiting-children", {"1": 1}),
             clean(state="waiting-children", until=5), reply=["1"], after={"1": None}),
        case("03#7.3 hard; 03#17 6", "a family goes along upwards", tree, clean(state="wait"), reply=["kid"],
             events=["cleaned count 1"],
             after={"gp": None, "par": None, "kid": None, "de:DK": None, "de:DP": None, "de:DG": "gp"}),
        case("03#7.3 hard; 03#17 7", "a parent elsewhere", family(priority=4), push("wait", "1"), clean(state="wait"),
             reply=["1"],
             after={"bull:p:wait": ["par"], "bull:p:marker": {"0": 0}, "bull:p:events": None}),
    ]


def unlinking() -> list[Case]:
    kids = {"done": Q, "lk": Q, "fl": Q, "w": P, "sub": Q}
    par = [
        job("par"), zadd("waiting-children", {"par": 1, "sub": 1}),
        *[put(f"{base}{id}", parentKey=f"{Q}par") for id, base in kids.items()],
        put("par:processed", **{f"{Q}done": 1}), zadd("completed", {"done": 1}),
        ("SADD", f"{Q}par:dependencies", f"{Q}lk", f"{Q}fl", f"{P}w", f"{Q}sub"), ("SET", f"{Q}lk:lock", "t"),
        push("active", "lk"),
        zadd("failed", {"fl": 1}), push(f"{P}wait", "w"), ("SADD", f"{Q}sub:dependencies", f"{Q}g1"),
        put("g1", parentKey=f"{Q}sub"), push("wait", "g1"),
    ]
    return [
        case("03#8.2 removed locked failed deep kept; 03#17 16", "all kinds of children", par,
             remove_unprocessed_children(id="par"),
             reply=None, events=["waiting jobId sub prev waiting-children", "removed jobId g1 prev wait",
                                 "removed jobId sub prev wait"],
             after={"par:dependencies": {f"{Q}lk", f"{Q}fl"}, "waiting-children": {"par": 1},
                    "done": Has(parentKey=f"{Q}par"),
                    "lk": Has(parentKey=f"{Q}par"), "fl": Has(parentKey=f"{Q}par"), "sub": None, "g1": None,
                    "bull:p:w": None,
                    "bull:p:events": ["removed jobId w prev wait"], "lk:lock": Ttl(None, "t")}),
        case("03#8.2 released", "the last pending child", family(where=Q), push("wait", "1"),
             remove_unprocessed_children(id="par"),
             reply=None, events=[*RELEASED, "removed jobId 1 prev wait"], wait=["par"],
             after={"1": None, "par": Has(name="n")}),
        case("03#8.2 removed", "no parent hash", ("SADD", f"{Q}par:dependencies", f"{Q}1"), job("1"), push("wait", "1"),
             remove_unprocessed_children(id="par"), reply=None, after={"1": None, "par:dependencies": None}),
        case("03#8.3 1", "no child", job("par", P), remove_child_dependency(f"{Q}1", "bull:p:par"), reply=-1),
        case("03#8.3 2", "no parent", job("1"), remove_child_dependency(f"{Q}1", ""), reply=-5),
        case("03#8.3 3-linked 3-released", "linked, the last", family(priority=4),
             remove_child_dependency(f"{Q}1", "bull:p:par"),
             reply=0, after={"1": None, "bull:p:wait": ["par"], "bull:p:events": RELEASED, "bull:p:prioritized": None}),
        case("03#8.3 3-linked 3-others", "linked, others are pending", family(), put("1", parent="x", name="n"),
             ("SADD", "bull:p:par:dependencies", "z"), remove_child_dependency(f"{Q}1", "bull:p:par"), reply=0,
             after={"1": {"name": "n"}, "bull:p:waiting-children": {"par": 1}, "bull:p:par:dependencies": {"z"}}),
        case("03#8.3 3-not-linked", "a wrong parent", family(), job("x", P),
             remove_child_dependency(f"{Q}1", "bull:p:x"), reply=1,
             after={"1": Has(parentKey="bull:p:par")}),
    ]


def first_part(reply: Any) -> bool:
    """A page that ends with one of several scans over 301 members."""
    return bool(reply[0] != b"0" and 90 <= reply[1] < 300 and len(reply[2]) == reply[1] and reply[3] == 301)


def reads() -> list[Case]:
    lists = push("wait", "a", "b", "c", "d")
    sets = zadd("failed", {"1": 1, "2": 2, "3": 3})
    points = [put("metrics:completed", count=5, prevTS=7), push("metrics:completed:data", "3", "2", "1")]
    kids = [put("1:processed", a=1), ("SADD", f"{Q}1:dependencies", "a", "b"), put("1:failed", a=1, b=2, c=3),
            zadd("1:unsuccessful", {"a": 1})]
    four = put("h", a=1, b=2, c=3, d=4)
    many = ("SADD", f"{Q}s", *[str(number) for number in range(300)])

    def page(covers: str, title: str, *args: Any, key: str = "h", state: Any = four, reply: Any) -> Case:
        return case(f"03#9.9 {covers}", title, state, paginate(f"{Q}{key}", *args), reply=reply)

    return [
        case("03#9.2 zero some", "priority 0 and others", push("wait", "1", "2"),
             zadd("prioritized", {"3": 2**32 + 1, "4": 3 * 2**32}),
             get_counts_per_priority(Q, "0", "1", "3", "2"), reply=[2, 1, 1, 0]),
        case("03#9.2 zero-paused", "priority 0 while paused", meta(paused=""), push("paused", "1"),
             push("wait", "2", "3"),
             get_counts_per_priority(Q, "0"), reply=[1]),
        case("03#9.2 bad", "a priority that is no number", get_counts_per_priority(Q, "x"), reply=ERROR),
        case("03#9.3 list-down", "a list, newest first", lists, get_ranges(Q, "0", "1", "wait", ascending="0"),
             reply=[["a", "b"]]),
        case("03#9.3 list-up", "a list, oldest first", lists, get_ranges(Q, "0", "1", "wait", ascending="1"),
             reply=[["c", "d"]]),
        case("03#9.3 list-up", "a list to its end", lists, get_ranges(Q, "1", "-1", "wait", ascending="1"),
             reply=[["a", "b", "c"]]),
        case("03#9.3 list-up-others", "other negative ends", lists, get_ranges(Q, "0", "-3", "wait", ascending="1"),
             reply=[["c", "d"]]),
        case("03#9.3 zset-down", "a set, highest first", sets, get_ranges(Q, "0", "1", "failed", ascending="0"),
             reply=[["3", "2"]]),
        case("03#9.3 zset-up several", "several, lowest first", sets, lists,
             get_ranges(Q, "1", "-1", "failed", "active", "completed", ascending="1"),
             reply=[["2", "3"], [], []]),
        case("03#9.3 old-marker", "an old marker at the tail is removed", push("wait", "a", "0:5"),
             get_ranges(Q, "0", "-1", "wait", ascending="0"),
             reply=[["a"]], wait=["a"]),
        case("03#9.3 only-old-marker", "an old marker alone", push("paused", "0:5"),
             get_ranges(Q, "0", "-1", "paused", ascending="1"), reply=[[]],
             paused=["0:5"]),
        case("03#9.6 yes", "in the list", lists, is_job_in_list(id="d"), reply=1),
        case("03#9.6 no", "not in the list", lists, is_job_in_list(id="e"), reply=None),
        case("03#9.7 all", "metrics", points, get_metrics(), reply=[["5", "7", None], ["3", "2", "1"], 3]),
        case("03#9.7 range", "a range of metrics", points, get_metrics(start="1", end="1"),
             reply=[["5", "7", None], ["2"], 3]),
        case("03#9.7 none", "no metrics", get_metrics(Q, "failed"), reply=[[None, None, None], [], 0]),
        case("03#9.8 all else", "children counted", kids,
             get_dependency_counts(Q, "1", "processed", "unprocessed", "ignored", "failed", "x"),
             reply=[1, 2, 3, 1, 1]),
        case("03#9.9 1-none", "a page of nothing", paginate(f"{Q}h"), reply=[0, 0, [], 0]),
        case("03#9.9 1-other", "a page of a list", push("h", "a"), paginate(f"{Q}h"), reply=ERROR),
        page("1-hash 2 3-page 4", "a whole hash",
             reply=["0", 4, [["a", "1"], ["b", "2"], ["c", "3"], ["d", "4"]], 4, []]),
        page("3-page", "a part of a hash", "1", "2", reply=["0", 3, [["b", "2"], ["c", "3"]], 4, []]),
        page("3-skip", "before the page", "50", "60", reply=["0", 4, [], 4, []]),
        page("past", "a page that was passed", "0", "1", "0", "7", reply=["0", 7, [], 4, []]),
        page("1-set 3-fetch 3-fetch-missing", "a set of integers with hashes", "0", "-1", "0", "0", "5", "1", key="s",
             state=[("SADD", f"{Q}s", "1", "2"), ("HSET", "2", "a", "b")],
             reply=["0", 2, ["1", "2"], 2, [[], ["a", "b"]]]),
        page("empty-text", "an empty sixth argument fetches too", "0", "0", "0", "0", "5", "", key="s",
             state=[("SADD", f"{Q}s", "1")], reply=["0", 1, ["1"], 1, [[]]]),
        page("3-most", "one scan of a hash in parts", "0", "-1", "0", "0", "1", key="s",
             state=[many, ("SADD", f"{Q}s", "x" * 70)],
             reply=first_part),
        page("3-skip", "the first part is before the page", "200", "-1", "0", "0", "5", key="s",
             state=[many, ("SADD", f"{Q}s", "x" * 70)],
             reply=lambda reply: reply[1] == 301 and len(reply[2]) == 101),
    ]


CASES = [*waiting_for_children(), *changes(), *promotions(), *repeated(), *cleaning(), *unlinking(), *reads()]
