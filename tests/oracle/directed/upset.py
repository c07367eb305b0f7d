"""What a command has written when one of its keys refuses: of another type, or a stream that takes no more entries.

So the order of what it writes is compared, and that nothing is written before what may refuse is asked.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import (
    Call,
    P,
    Q,
    T,
    add,
    add_scheduler,
    back_to_wait,
    change_delay,
    change_priority,
    extend_lock,
    extend_locks,
    move_jobs_to_wait,
    move_to_active,
    move_to_delayed,
    move_to_finished,
    move_to_waiting_children,
    pause,
    promote,
    reprocess_job,
    retry_job,
    stalled_check,
    update_scheduler,
)
from tests.oracle.cases import Case, case, job, meta, push, put, zadd

# fmt: off
BRANCHES: dict[str, str] = {}

LOCK = ("SET", f"{Q}1:lock", "tk", "PX", 300_000)
QUEUE = [
    meta(**{"opts.maxLenEvents": "10000"}), *[job(id) for id in "1234567"], push("active", "9", "1"), LOCK,
    ("SADD", f"{Q}stalled", "1", "9"), push("wait", "3", "2"), zadd("delayed", {"4": (T + 60_000) * 4096}),
    zadd("prioritized", {"5": 2**32 + 1}), ("SET", f"{Q}pc", "1"), zadd("completed", {"6": T - 5}),
    zadd("failed", {"7": T - 5}), zadd("marker", {"0": 0}), ("XADD", f"{Q}events", "1-1", "event", "old"),
]
LAST = 2**64 - 1
ROOM = {f"events take {count} more": ("XADD", f"{Q}events", f"{LAST}-{LAST - count}", "event", "last")
        for count in range(3)}
CHILD = [
    put("1", parentKey=f"{P}P"), job("P", P), zadd(f"{P}waiting-children", {"P": 1}),
    ("SADD", f"{P}P:dependencies", f"{Q}1"), meta(P, **{"opts.maxLenEvents": "10000"}),
]
DUE = [zadd("delayed", {"4": T * 4096})]
PENDING = [("SADD", f"{Q}1:dependencies", f"{Q}8")]
OF_PARENT = tuple(P + name for name in ("P", "P:dependencies", "P:processed", "P:failed", "P:unsuccessful",
                                        "waiting-children", "wait", "delayed", "events", "marker", "meta"))


def link(*flags: str, **fields: Any) -> list[Any]:
    """Job 1 as a child with flags; fields of its parent."""
    text = f'{{"id":"P","queueKey":"bull:p"{"".join(f""","{flag}":true""" for flag in flags)}}}'
    return [*CHILD, put("1", parent=text), *([put(f"{P}P", **fields)] if fields else [])]


CALLS: tuple[tuple[str, list[Any], Call, tuple[str, ...]], ...] = (
    ("a standard job", [], add("addStandardJob"), ()),
    ("a delayed job", [], add("addDelayedJob", options={"delay": 5}), ()),
    ("a delayed job with a bound of its own", [], add("addDelayedJob", options={"delay": 5, "kl": 3}, id="x"), ()),
    ("a prioritized job", [], add("addPrioritizedJob", options={"priority": 3}), ()),
    ("a parent", [], add("addParentJob"), ()),
    ("a child", CHILD, add("addStandardJob", parent=(P, "P")), OF_PARENT[:2]),
    ("a deduplicated job", [], add("addStandardJob", options={"de": {"id": "d"}}), (f"{Q}de:d",)),
    ("fetched", [], move_to_active(), (f"{Q}2", f"{Q}2:lock")),
    ("fetched, one is due", DUE, move_to_active(), (f"{Q}4",)),
    ("completed", [], move_to_finished(fetch="1"), (f"{Q}1:lock", f"{Q}2", f"{Q}2:lock", f"{Q}1:dependencies")),
    ("completed, one is due", DUE, move_to_finished(fetch="1"), (f"{Q}4", f"{Q}1:lock")),
    ("completed and removed", [], move_to_finished(keepJobs={"count": 0}), (f"{Q}1:lock", f"{Q}1:logs")),
    ("completed with retention", [], move_to_finished(keepJobs={"count": 1}), (f"{Q}6",)),
    ("completed with metrics", [], move_to_finished(maxMetricsSize=5), (f"{Q}metrics:completed:data",)),
    ("failed", [], move_to_finished(outcome="failed", update=["failedReason", "x"]), (f"{Q}1:lock",)),
    ("failed and removed", [], move_to_finished(outcome="failed", keepJobs={"count": 0}), ()),
    ("a child is completed", CHILD, move_to_finished(), OF_PARENT),
    ("a child is completed, its parent is delayed", link(delay=5), move_to_finished(), OF_PARENT),
    *((f"a child fails, {flag}", link(flag), move_to_finished(outcome="failed"), OF_PARENT)
      for flag in ("fpof", "cpof", "idof", "rdof")),
    ("a child fails, fpof, its parent is delayed",
     [*link("fpof", delay=5), ("DEL", f"{P}waiting-children"), zadd(f"{P}delayed", {"P": 5})],
     move_to_finished(outcome="failed"), OF_PARENT),
    ("retried", [], retry_job(), (f"{Q}1:lock",)),
    ("retried, one is due", DUE, retry_job(update=["failedReason", "x"]), (f"{Q}4",)),
    ("retried with a priority", [put("1", priority=3)], retry_job(), ()),
    ("moved to delayed", [], move_to_delayed(delay="5", update=["failedReason", "x"]), (f"{Q}1:lock",)),
    ("parked", PENDING, move_to_waiting_children(), (f"{Q}1:lock",)),
    ("given back", [], back_to_wait(), (f"{Q}1:lock",)),
    ("given back with a priority", [put("1", priority=3)], back_to_wait(), (f"{Q}pc",)),
    ("renewed", [], extend_lock(), ()),
    ("renewed with others", [], extend_locks(tokens=["tk"], ids=["1"]), (f"{Q}1:lock",)),
    ("stalled", [("DEL", f"{Q}1:lock")], stalled_check(most="5"), (f"{Q}1", f"{Q}9")),
    ("stalled too often", [("DEL", f"{Q}1:lock")], stalled_check(most="0"), (f"{Q}1", f"{Q}failed")),
    ("paused", [], pause(), ()),
    ("resumed", [meta(paused=1), push("paused", "8")], pause(on=False), ()),
    ("resumed, idle", [("DEL", f"{Q}prioritized", f"{Q}wait"), meta(paused=1)], pause(on=False), ()),
    ("promoted", [], promote(id="4"), (f"{Q}4",)),
    ("promoted with a priority", [put("4", priority=3)], promote(id="4"), ()),
    ("delayed anew", [], change_delay(id="4", delay="9"), (f"{Q}4",)),
    ("another priority", [], change_priority(id="2", priority="3"), (f"{Q}2",)),
    ("no priority any more", [], change_priority(id="5", priority="0"), (f"{Q}5",)),
    ("run again", [], reprocess_job(id="7"), ()),
    ("a completed job runs again", CHILD, reprocess_job(id="6", state="completed"), ()),
    *((f"all of {state} run", [], move_jobs_to_wait(state=state), (f"{Q}4", f"{Q}6", f"{Q}7"))
      for state in ("failed", "completed", "delayed")),
    ("a scheduler", [], add_scheduler(schedule={"name": "sj", "every": 60_000},
                                      options={"repeat": {"every": 60_000}}), (f"{Q}repeat:s",)),
    ("the next of a scheduler",
     [zadd("repeat", {"s": T}), put("repeat:s", name="sj", every=60_000, ic=1), job(f"repeat:s:{T}", rjk="s")],
     update_scheduler(options={"repeat": {"every": 60_000}}, producer=f"repeat:s:{T}"), (f"{Q}repeat:s",)),
)


def refused() -> list[Case]:
    found = []
    for title, made, call, others in CALLS:
        for key in dict.fromkeys((*map(str, call.keys), *others)):
            if key != Q:
                name = key.removeprefix(Q)
                found.append(case("02#1", f"{title}, {name} is a text", QUEUE, made, ("SET", key, "x"), call))
        if f"{Q}events" in call.keys or call.name == "moveToFinished":
            found += [case("02#1", f"{title}, {room}", QUEUE, made, entry, call) for room, entry in ROOM.items()]
    found += [case("03#3.4", f"retried, atm {count}", QUEUE, put("1", atm=count), retry_job())
              for count in ("abc", "9223372036854775807")]
    return found


CASES = refused()
