"""What `fleet` does where no version does the same: part 06, section 8.2, and the rows of 11 that name it.

These run on our side alone.
"""

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
    drain,
    get_counts_per_priority,
    move_jobs_to_wait,
    move_to_active,
    move_to_finished,
    obliterate,
    promote,
    remove_job,
    reprocess_job,
    retry_job,
    stalled_check,
    update_scheduler,
)
from tests.oracle.cases import NONE, Case, Has, case, job, meta, push, put, took, zadd
from tests.oracle.directed.adding import dedup
from tests.oracle.directed.later.deduplicating import KEEP, gone, holder
from tests.oracle.directed.later.versions import Version
from tests.oracle.later_calls import pausing

# fmt: off
BRANCHES = {
    "06#8.2": "pause pause-both pause-again pause-long pause-empty pause-flag resume resume-both resume-long "
    "resume-none "
    "resume-open resume-delayed resume-prioritized resume-flag heal-paused heal-none heal heal-both heal-long "
    "heal-delayed "
    "heal-rest counts counts-meta debounced nrjid fallback fetch",
    "06#8.2/L1": "open neither wait paused both add deduplicated retry back promote due stalled reprocess many parent "
    "scheduler advance priority finish emptied emptied-priority emptied-drain emptied-scheduler other-queue",
    "06#8.2/look-up": "priority-wait priority-paused priority-both priority-neither scheduler-wait scheduler-paused "
    "scheduler-both obliterate drain",
}

PAUSED = meta(paused=1)
D = T * 4096
MANY = [f"p{n}" for n in range(7001)]


def pauses() -> list[Case]:
    """pause-7."""
    both = [push("wait", "5", "4"), push("paused", "3", "2")]
    return [
        case("06#8.2 pause", "pausing", push("wait", "2", "1"), ("ZADD", f"{Q}marker", 0, "0"), pausing("paused"),
             reply=0, wait=None, paused=["2", "1"], meta={"paused": "1"}, marker=None, events=["paused"]),
        case("06#8.2 pause-empty", "pausing an empty queue", pausing("paused"), reply=0, wait=None, paused=None,
             meta={"paused": "1"}, events=["paused"]),
        case("06#8.2 pause-both pause-again", "pausing where something was set aside: what waits comes behind", PAUSED,
             both, pausing("paused"), reply=0, wait=None, paused=["5", "4", "3", "2"], events=["paused"]),
        case("06#8.2 pause-long", "pausing, a long list beside: in two calls", push("wait", *MANY), push("paused", "x"),
             pausing("paused"), reply=1, wait=["p0"], paused=[*MANY[1:], "x"], events=["paused"]),
        case("06#8.2 pause-long", "pausing, and the rest", push("wait", *MANY), push("paused", "x"), pausing("paused"),
             pausing("paused", "0"), reply=0, wait=None, paused=[*MANY, "x"], events=["paused"]),
        case("06#8.2 pause-long", "pausing, a long list alone", push("wait", *MANY), pausing("paused"), reply=0,
             paused=MANY,
             wait=None),
        case("06#8.2 pause-flag", "without the event", push("wait", "1"), pausing("paused", "0"), reply=0,
             paused=["1"], events=None),
        case("06#8.2 pause-flag", "another flag is none", pausing("paused", ""), events=["paused"]),
        case("06#8.2 resume", "resuming", PAUSED, push("paused", "2", "1"), pausing("resumed"), reply=0,
             wait=["2", "1"], paused=None, meta=None, marker={"0": 0}, events=["resumed"]),
        case("06#8.2 resume-both", "both lists: what was set aside comes first", PAUSED, both, pausing("resumed"),
             reply=0, wait=["5", "4", "3", "2"], paused=None, marker={"0": 0}, events=["resumed"]),
        case("06#8.2 resume-long", "a long list beside: in two calls", PAUSED, push("paused", *MANY),
             push("wait", "x"), pausing("resumed"), reply=1, wait=["x", *MANY[:7000]], paused=["p7000"], meta=None,
             events=["resumed"]),
        case("06#8.2 resume-long resume-flag", "and the rest", push("paused", "p7000"), push("wait", "x"),
             pausing("resumed", "0"), reply=0, wait=["x", "p7000"], paused=None, events=None),
        case("06#8.2 resume-long", "a long list alone", PAUSED, push("paused", *MANY), pausing("resumed"), reply=0,
             wait=MANY, paused=None),
        case("06#8.2 resume-none", "resuming an empty queue", PAUSED, pausing("resumed"), reply=0, meta=None,
             marker=None, events=["resumed"]),
        case("06#8.2 resume-open", "resuming a queue that 6.x paused, or nobody", push("wait", "1"),
             pausing("resumed"), reply=0, wait=["1"], marker={"0": 0}),
        case("06#8.2 resume-delayed", "one is delayed", PAUSED, zadd("delayed", {"1": D}), pausing("resumed"),
             marker={"1": float(T)}),
        case("06#8.2 resume-prioritized", "one is prioritized", PAUSED, zadd("prioritized", {"1": 1}),
             pausing("resumed"), marker={"0": 0}),
        case("06#8.2 heal-paused", "healing leaves a paused queue alone", PAUSED, both, pausing("healed"), reply=0,
             wait=["5", "4"], paused=["3", "2"], marker=None, events=None),
        case("06#8.2 heal-none", "nothing was set aside", push("wait", "1"), pausing("healed"), reply=0, wait=["1"],
             marker=None, events=None, meta=None),
        case("06#8.2 heal", "what was left behind comes back", push("paused", "3", "2"), pausing("healed"), reply=0,
             wait=["3", "2"], paused=None, marker={"0": 0}, events=None, meta=None),
        case("06#8.2 heal-both", "before what waits", both, pausing("healed", "1"), reply=0,
             wait=["5", "4", "3", "2"], paused=None, marker={"0": 0}, events=None),
        case("06#8.2 heal-long heal-rest", "a long list beside: one is left", push("paused", *MANY), push("wait", "x"),
             pausing("healed"), reply=1, wait=["x", *MANY[:7000]], paused=["p7000"]),
        case("06#8.2 heal-rest", "and then none", push("paused", *MANY), push("wait", "x"), pausing("healed"),
             pausing("healed"), reply=0, wait=["x", *MANY], paused=None),
        case("06#8.2 heal-delayed", "the marker of what waits stands over that of what is delayed",
             push("paused", "1"), zadd("delayed", {"2": D}), pausing("healed"), marker={"0": 0}),
    ]


def placements() -> list[Case]:
    """L1: with each of the two lists there or not, then one command after the other."""
    lists = {
        "neither": ((), "paused"),
        "wait": (("wait",), "wait"),
        "paused": (("paused",), "paused"),
        "both": (("wait", "paused"), "paused"),
    }
    held = [job("1"), push("active", "1"), ("SET", f"{Q}1:lock", "tk")]
    failed = [job("1"), zadd("failed", {"1": T})]
    due = [job("1", delay=5), zadd("delayed", {"1": D})]
    family = [
        job("P"), zadd("waiting-children", {"P": T}), ("SADD", f"{Q}P:dependencies", f"{Q}1"),
        job("1", parentKey=f"{Q}P", parent='{"id":"P","queueKey":"bull:q"}'), zadd("delayed", {"1": D}),
    ]
    was = f"repeat:s:{T - 60_000}"
    every = {"repeat": {"every": 60_000}}
    record = [zadd("repeat", {"s": T - 60_000}), put("repeat:s", name="sj", ic=1, every=60_000), job(was, rjk="s")]
    now = f"repeat:s:{T}"
    ways: dict[str, tuple[list[Any], Any, str]] = {
        "add": ([], add("addStandardJob"), "1"),
        "deduplicated": ([], dedup(), "1"),
        "retry": (held, retry_job(), "1"),
        "back": (held, back_to_wait(), "1"),
        "promote": (due, promote(), "1"),
        "due": (due, move_to_active(), "1"),
        "stalled": ([job("1"), push("active", "1"), ("SADD", f"{Q}stalled", "1")], stalled_check(), "1"),
        "reprocess": (failed, reprocess_job(), "1"),
        "many": (failed, move_jobs_to_wait(), "1"),
        "parent": (family, remove_job(), "P"),
        "scheduler": ([], add_scheduler(schedule={"name": "sj", "every": 60_000}, options=every), now),
        "advance": (record, update_scheduler(options=every, producer=was), now),
        "priority": ([job("1", priority=3), zadd("prioritized", {"1": 3})], change_priority(priority="0"), "1"),
        "finish": ([*due, job("2"), push("active", "2"), ("SET", f"{Q}2:lock", "tk")],
                   move_to_finished(id="2", fetch="1"), "1"),
    }
    found = []
    for state, (there, target) in lists.items():
        for way, (made, call, id) in ways.items():
            right = way in ("back", "stalled", "parent")
            after = {name: [name[0]] if name in there else None for name in ("wait", "paused")}
            before = after[target] or []
            after[target] = [*before, id] if right else [id, *before]
            found.append(case(f"06#8.2/L1 {state} {way}", f"{way}, {state} filled", PAUSED,
                              [push(name, name[0]) for name in there], made, call, marker=None, after=after))
    return [
        *found,
        case("06#8.2/L1 open", "an open queue, something set aside", push("paused", "p"), add("addStandardJob"),
             wait=["1"], paused=["p"], marker={"0": 0}),
        case("06#8.2/L1 other-queue parent", "a parent in another queue, by its lists", meta(P, paused=1),
             push(f"{P}wait", "w"), job("P", P), zadd(f"{P}waiting-children", {"P": T}),
             ("SADD", f"{P}P:dependencies", f"{Q}1"), job("1", parentKey=f"{P}P",
             parent='{"id":"P","queueKey":"bull:p"}'), zadd("delayed", {"1": D}), remove_job(),
             after={f"{P}wait": ["w", "P"], f"{P}paused": None}),
        case("06#8.2/L1 emptied-priority emptied", "the list is emptied by the change itself", PAUSED, job("1"),
             push("wait", "1"), change_priority(priority="0"), wait=None, paused=["1"]),
        case("06#8.2/L1 emptied-scheduler", "the scheduler's job was the last that waited", PAUSED,
             zadd("repeat", {"s": T}), put("repeat:s", name="old", ic=3, every=60_000, offset=T % 60_000),
             job(now, rjk="s"), push("wait", now),
             add_scheduler(schedule={"name": "sj", "every": 60_000}, options=every), wait=None, paused=[now]),
        case("06#8.2/L1 emptied-drain", "draining takes the last that waits, then lets its parent go", meta(P,
             paused=1),
             PAUSED, job("1", parentKey=f"{P}P", parent='{"id":"P","queueKey":"bull:p"}'), push("wait", "1"),
             job("P", P), zadd(f"{P}waiting-children", {"P": T}), ("SADD", f"{P}P:dependencies", f"{Q}1"), drain(Q),
             wait=None, after={f"{P}paused": ["P"], f"{P}wait": None}),
    ]


def look_ups() -> list[Case]:
    """Who looks for a waiting job looks in both lists."""
    one = job("1")
    moved = {"prioritized": {"1": 3 * 2.0**32 + 1}, "after": {"1": Has(priority="3")}}
    to_three = change_priority(priority="3")
    now = f"repeat:s:{T}"
    upsert = add_scheduler(schedule={"name": "sj", "every": 60_000}, options={"repeat": {"every": 60_000}})
    record = [zadd("repeat", {"s": T}), put("repeat:s", name="old", ic=3, every=60_000, offset=T % 60_000),
              job(now, rjk="s", data="old")]
    found = []
    for name, how in (("open", []), ("paused", [PAUSED])):
        other = {"open": "wait", "paused": "paused"}[name]
        found += [
            case("06#8.2/look-up priority-wait", f"{name}, in wait", how, one, push("wait", "1", "w"), to_three,
                 reply=0,
                 wait=["w"], **moved),
            case("06#8.2/look-up priority-paused", f"{name}, in paused", how, one, push("paused", "1", "p"), to_three,
                 reply=0, paused=["p"], **moved),
            case("06#8.2/look-up priority-both", f"{name}, in both: wait comes first", how, one, push("wait", "1"),
                 push("paused", "1"), to_three, reply=0, wait=None, paused=["1"], **moved),
            case("06#8.2/look-up priority-paused", f"{name}, twice in paused: the right one goes", how, one,
                 push("paused", "1", "p", "1"), to_three, reply=0, paused=["1", "p"], **moved),
            case("06#8.2/look-up priority-neither", f"{name}, in neither", how, one, to_three, reply=0,
                 prioritized=None,
                 after={"1": Has(priority="3")}),
            case("06#8.2/look-up scheduler-wait", f"{name}, a scheduler's job in wait", how, record,
                 push("wait", "w", now), upsert, reply=[now, 0], wait=[now, "w"], after={now: Has(data="{}")}),
            case("06#8.2/look-up scheduler-paused", f"{name}, a scheduler's job in paused", how, record,
                 push("paused", "p", now), upsert, reply=[now, 0],
                 **({"paused": [now, "p"]} if how else {"paused": ["p"], "wait": [now]}), after={now: Has(data="{}")}),
            case("06#8.2/look-up scheduler-both", f"{name}, a scheduler's job in both: wait comes first", how, record,
                 push("wait", now),
                 push("paused", now), upsert, reply=[now, 0], **{other: [now, now] if how else [now]}),
            case("06#8.2 counts", f"{name}: the sum of both lists", how, push("wait", "a"), push("paused", "b", "c"),
                 zadd("prioritized", {"x": 3 * 2.0**32 + 1}), get_counts_per_priority(Q, "0", "3"), reply=[3, 1]),
        ]
    both = [PAUSED, one, job("2"), push("wait", "1"), push("paused", "2"), ("ZADD", f"{Q}marker", 0, "0")]
    return [
        *found,
        case("06#8.2 counts-meta", "`meta` is not read", push("meta", "x"), push("wait", "a"),
             get_counts_per_priority(Q, "0"), reply=[1]),
        case("06#8.2/look-up obliterate", "both lists go, and the marker", both, obliterate(), reply=0,
             after={"1": None, "2": None, "wait": None, "paused": None, "marker": None, "meta": None}),
        case("06#8.2/look-up drain", "both lists are drained", both, drain(Q), wait=None, paused=None),
        case("06#8.2 fetch", "a worker of a queue with a rest set aside", push("paused", "1"), one, job("2"),
             push("wait", "2"), move_to_active(), reply=took("2"), paused=["1"]),
        case("06#8.2 fetch", "a paused queue hands out nothing", PAUSED, one, push("wait", "1"), move_to_active(),
             reply=NONE),
    ]


def kept_from_5x() -> list[Case]:
    """What `fleet` keeps though 6.0.0 dropped it."""
    v = Version("5.81.5")
    was, now = f"repeat:s:{T - 60_000}", f"repeat:s:{T}"
    return [
        case("06#8.2 debounced", "both events", holder(), dedup(**KEEP), reply="1", events=v.deduplicated("1", "2"),
             after={"dn:d": Has(jid="2")}),
        case("06#8.2 debounced", "both events of a replacement, and what was kept goes", holder(state="delayed"),
             put("dn:d", name="old"), dedup(replace=True), reply="2", after={"dn:d": None},
             events=["removed jobId 1 prev delayed", *v.deduplicated("2", "1"), "added jobId 2 name n",
                     "waiting jobId 2"]),
        case("06#8.2 debounced", "both events, then that of the move", holder(state="delayed"), dedup(reschedule=True),
             reply="1", events=[*v.deduplicated("1", "2"), f"delayed jobId 1 delay {T}"]),
        case("06#8.2 debounced", "a repair has none", gone(), dedup(), reply="1",
             events=["added jobId 1 name n", "waiting jobId 1"]),
        case("06#8.2 nrjid fallback", "a scheduler's next run", zadd("repeat", {"s": T - 60_000}),
             put("repeat:s", name="sj", ic=1, every=60_000), job(was, rjk="s"),
             update_scheduler(options={"repeat": {"every": 60_000}}, data='{"b":2}', producer=was), reply=now,
             after={was: Has(nrjid=now), now: Has(data='{"b":2}'), "repeat:s": Has(data='{"b":2}')}),
        case("06#8.2 nrjid", "an upsert by a producing job", add_scheduler(
             schedule={"name": "sj", "every": 1000}, options={"repeat": {"every": 1000}}, producer_key=f"{Q}p"),
             after={"p": {"nrjid": now}}),
    ]


CASES: tuple[Case, ...] = tuple(
    each for make in (pauses, placements, look_ups, kept_from_5x) for each in make()
)
