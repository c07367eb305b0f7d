"""What no client leaves, but a server may hold; and plain jobs at the borders of what counts as plain."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import (
    Command,
    P,
    Q,
    T,
    add,
    add_packed,
    clean,
    extend_locks,
    move_to_active,
    move_to_finished,
    rate_limit_ttl,
    remove_job,
    retry_job,
    stalled_check,
    update_scheduler,
)
from tests.oracle.cases import ERROR, Case, Has, Ttl, case, job, meta, push, put, zadd

# fmt: off
BRANCHES = {"03#8.1": "own-descendant"}

CAP = {"opts.maxLenEvents": "10000"}
LOCK = ("SET", f"{Q}1:lock", "tk", "PX", 300_000)
ACTIVE = [meta(**CAP), job("1"), push("active", "1"), LOCK]
WIDE = ("9999999999999", "99999999999998", "99999999999999", "999999999999999")
ENDED = {"active": None, "after": {"1:lock": None}}


def descendants() -> list[Case]:
    return [
        case("03#8.1 own-descendant", "its own pending child", job("1"), ("SADD", f"{Q}1:dependencies", f"{Q}1"),
             remove_job(), reply=ERROR, after={"1": Has(name="n")}),
        case("03#8.1 own-descendant", "its own pending grandchild", job("1"), job("2"),
             ("SADD", f"{Q}1:dependencies", f"{Q}2"), ("SADD", f"{Q}2:dependencies", f"{Q}1"), remove_job(),
             reply=ERROR, after={"1": Has(name="n"), "2": Has(name="n")}),
        case("03#8.1 own-descendant", "its own finished child, after another", job("1"), job("2"), push("wait", "2"),
             put("1:processed", **{f"{Q}2": "1"}), put("1:failed", **{f"{Q}1": "e"}), remove_job(), reply=ERROR,
             wait=None, after={"1": Has(name="n"), "2": None}),
        case("03#8.1 own-descendant", "a child by two ways", [job(id) for id in "1234"],
             ("SADD", f"{Q}1:dependencies", f"{Q}2", f"{Q}3"), ("SADD", f"{Q}2:dependencies", f"{Q}4"),
             ("SADD", f"{Q}3:dependencies", f"{Q}4"), remove_job(), reply=1, after=dict.fromkeys("1234")),
    ]


def moments() -> list[Case]:
    """A moment that is no number, where the straight way of a plain job would look at what is due."""
    others: dict[str, tuple[Any, ...]] = {
        "a delayed job": (zadd("delayed", {"9": (T + 9) * 4096}),),
        "pending children": (("SADD", f"{Q}1:dependencies", f"{Q}9"),),
        "failed children": (zadd("1:unsuccessful", {"9": 1}),),
        "nothing else": (),
    }
    found = []
    for at in ("abc", "nan", "", "-5", "1700000000000.5", "0x10", " 7"):
        for title, more in others.items():
            for fetch in "01":
                found += [
                    case("02#5 11-none", f"moment {at!r}, {title}, {outcome}, {kept}, fetch {fetch}", ACTIVE, *more,
                         push("wait", "2"), job("2"),
                         move_to_finished(at=at, fetch=fetch, outcome=outcome, keepJobs={"count": count}))
                    for outcome in ("completed", "failed")
                    for kept, count in (("kept", -1), ("removed", 0))
                ]
        found.append(case("02#5 8", f"moment {at!r}, a delayed job, not active", ACTIVE, others["a delayed job"][0],
                          ("DEL", f"{Q}active"), move_to_finished(at=at), reply=-3))
    return found


def widths() -> list[Case]:
    """Counts that Lua and the server write differently one later."""
    found = []
    for count in WIDE:
        later = str(int(count) + 1)
        found += [
            case("02#5 12", f"atm {count}", ACTIVE, put("1", atm=count), move_to_finished(outcome="failed"),
                 after={"1": Has(atm=later)}),
            case("02#W7 3", f"ats {count}", meta(**CAP), job("1", ats=count), push("wait", "1"), move_to_active(),
                 after={"1": Has(ats=later)}),
            case("02#W7 3", f"ats {count} of the next", ACTIVE, job("2", ats=count), push("wait", "2"),
                 move_to_finished(fetch="1"), after={"2": Has(ats=later)}),
            case("02#W10 1-found 2", f"cap {count}", ACTIVE, meta(**{"opts.maxLenEvents": count}), move_to_finished(),
                 **ENDED),
        ]
    return found


def plain_ends() -> list[Case]:
    small = meta(**{"opts.maxLenEvents": "100"})
    old = [("XADD", f"{Q}events", "*", "event", "old")] * 250
    removing = {"keepJobs": {"count": 0}}
    measured = put("metrics:completed", count="7", prevTS=T - 120_000, prevCount="5")
    return [
        case("02#W10 1-found 2", "removed, on a stream longer than its cap", ACTIVE, small, old,
             move_to_finished(**removing), completed=None),
        case("02#W10 1-found 2", "removed with a failure's fields, on a long stream", ACTIVE, small, old,
             move_to_finished(outcome="failed", update=["failedReason", "boom", "stacktrace", "[]"], **removing)),
        case("02#W9 fields", "a failure's fields with the attempts made", ACTIVE,
             move_to_finished(outcome="failed", update=["failedReason", "boom", "atm", "5"], attempts=6),
             after={"1": Has(atm="6")}),
        case("02#W9 fields", "a failure's fields with a deduplication id", ACTIVE, ("SET", f"{Q}de:d", "1"),
             move_to_finished(outcome="failed", update=["deid", "d"]), after={"de:d": None}),
        case("02#W17 5 6-more 8", "metrics in an else plain queue", ACTIVE, measured,
             move_to_finished(maxMetricsSize=5), after={"metrics:completed": Has(count="8", prevCount="7")}),
        case("02#W17 4", "the last point is of no moment", ACTIVE,
             put("metrics:completed", count="7", prevTS="nan", prevCount="5"), move_to_finished(maxMetricsSize=5),
             after={"metrics:completed": Has(count="8", prevTS="nan", prevCount="5")}),
    ]


def limits() -> list[Case]:
    used = ("SET", f"{Q}limiter", "5", "PX", 300_000)
    found = [case("02#8.1 given-text", f"a maximum of {most!r}", used, rate_limit_ttl(most=most))
             for most in ("nan", "inf", "-inf", "-nan", "0x5", "5.0", "5.5", " 5")]
    found += [case("02#8.1 zero-meta", f"a stored maximum of {most!r}", used, meta(max=most), rate_limit_ttl())
              for most in ("nan", "inf", "-inf", "0x5")]
    found += [case("02#W5 1", f"a fetch with a stored maximum of {most!r}", used, meta(max=most, duration="5000"),
                   job("1"), push("wait", "1"), move_to_active()) for most in ("nan", "inf", "-inf")]
    return found


def neighbours() -> list[Case]:
    """Families and keys that the straight ways look at, of another type, or with several members."""
    plain_fetch = [meta(**CAP), job("1"), push("wait", "1")]
    several = [job(id) for id in "1234567"]
    found = [
        case("02#W4 1-none", f"delayed is {title}", plain_fetch, made, move_to_active(), reply=ERROR)
        for title, made in (("a text", ("SET", f"{Q}delayed", "x")), ("a list", push("delayed", "1")))
    ]
    found += [
        case("02#5 8", f"delayed is {title}, fetch {fetch}", ACTIVE, made, move_to_finished(fetch=fetch))
        for title, made in (("a text", ("SET", f"{Q}delayed", "x")), ("a list", push("delayed", "1")))
        for fetch in "01"
    ]
    found += [
        case("03#8.1 own-descendant", f"three children in {kind}", several,
             put(f"1:{kind}", **{f"{Q}{id}": "1" for id in "234"}), put("3:processed", **{f"{Q}5": "1", f"{Q}6": "1"}),
             remove_job(), reply=1, after={**dict.fromkeys("123456"), "7": Has(name="n")})
        for kind in ("processed", "failed")
    ]
    found.append(
        case("03#8.1 own-descendant", "three children in unsuccessful", several,
             zadd("1:unsuccessful", {f"{Q}{id}": 1 for id in "234"}), zadd("3:unsuccessful", {f"{Q}5": 1, f"{Q}6": 2}),
             remove_job(), reply=1, after={**dict.fromkeys("123456"), "7": Has(name="n")}))
    return found


def due() -> list[Case]:
    """Delayed jobs at the borders of what is due, before an else plain call."""
    found = []
    for score in (-4096, -1, 0, 1, T * 4096, (T + 1) * 4096 - 2, (T + 1) * 4096 - 1, (T + 1) * 4096, (T + 2) * 4096):
        delayed = [zadd("delayed", {"9": score}), job("9", delay=5)]
        found += [
            case("02#W4 1-none", f"score {score}, fetched", meta(**CAP), job("1"), push("wait", "1"), delayed,
                 move_to_active()),
            case("02#5 17-promotes", f"score {score}, finished", ACTIVE, delayed, move_to_finished(fetch="1")),
            case("03#3.4 2", f"score {score}, retried", ACTIVE, delayed, retry_job()),
        ]
    old = [push("active", "0:5", "0:5"), push("wait", "0:5")]
    ids = [f"x{at}" for at in range(2001)]
    locks = [("SET", f"{Q}{id}:lock", "tk", "PX", 300_000) for id in ids]
    return [*found,
            case("02#7.2 own", "more locks than go into one command", locks, ("SADD", f"{Q}stalled", *ids),
                 extend_locks(tokens=["tk"] * 2001, ids=ids, duration="900000"), reply=[], stalled=None,
                 after={f"{id}:lock": Ttl(900_000, "tk") for id in ("x0", "x999", "x1000", "x1001", "x1999", "x2000")}),
            case("02#W6 2", "an old marker that is active twice", meta(**CAP), job("1"), old, move_to_active()),
            case("02#5 17-old-other", "an old marker that is active twice", ACTIVE, old, move_to_finished(fetch="1"))]


def longest() -> list[Case]:
    """Streams at the border of the usual cap, where whole nodes of 100 entries go."""

    def old(count: int) -> Command:
        text = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'event', 'old') end"
        return ("EVAL", text, 1, f"{Q}events", count)

    found = []
    for count in (10_098, 10_099, 10_100):
        found += [
            case("01#6.1 missing", f"no cap, {count} events", old(count),
                 add("addStandardJob", options={"attempts": 0, "de": {"id": "d"}})),
            case("02#W10 1-found 2", f"the usual cap, {count} events", ACTIVE, old(count), move_to_finished()),
            case("02#W10 1-missing", f"no cap when a job ends, {count} events", ACTIVE, ("DEL", f"{Q}meta"), old(count),
                 move_to_finished()),
        ]
    return found


def no_ids() -> list[Case]:
    """Ids and tokens that are no texts: they come back as they are, which no table of replies names."""
    locked = [("SET", f"{Q}{id}:lock", "tk", "PX", 300_000) for id in ("1", "2", "3", "")]
    stalled = ("SADD", f"{Q}stalled", "1", "2", "3")
    odd = {"a list": ["x"], "a number": 3, "a map": {"x": 1}, "a number that has no lock": 9, "nothing": None,
           "true": True}
    return [
        *(case("02#7.2 own", f"an id is {title}", locked, stalled,
               extend_locks(tokens=["tk"] * 4, ids=["1", "2", id, "3"], duration="900000"))
          for title, id in odd.items()),
        case("02#7.2 own", "a token is false, and no lock", extend_locks(tokens=[False], ids=["1"]), reply=ERROR),
    ]


def borders() -> list[Case]:
    """Values at the border of a condition."""
    held_by = meta(**CAP, paused=1, concurrency=5)
    return [
        case("01#6.4 B-free", "B: half a millisecond", add("addStandardJob", options={"de": {"id": "d", "ttl": .5}}),
             reply=ERROR),
        case("01#7.4 paused", "paused, with concurrency", held_by,
             add("addPrioritizedJob", options={"attempts": 0, "priority": 2}), marker=None),
        case("01#10 head", "no base prefix", meta(**CAP), add_packed("addStandardJob", Q, [None, "", "n", T], {}),
             reply=ERROR, after={"id": "1"}),
        case("01#10 head", "a base prefix that is a number", meta(**CAP),
             add_packed("addStandardJob", Q, [5, "", "n", T], {})),
        *(case("01#6.5 no-parents", f"the own id {name}, nothing there", meta(**CAP), add("addStandardJob", id=name))
          for name in ("id", "meta", "wait", "events")),
        case("01#7.3 4", "half a millisecond of delay below 0", add("addDelayedJob", options={"delay": -.5})),
        case("01#6.5 same-parent", "no key of pending children",
             [job("P", P), job("1", parentKey=f"{P}P")],
             add_packed("addStandardJob", Q, [Q, "1", "n", T, f"{P}P", None, {"id": "P", "queueKey": P[:-1]}], {}),
             reply="1"),
        case("03#7.3 zset-finished", "a parent without a name", ("HSET", "", "name", "n"), job("1", parentKey=""),
             zadd("completed", {"1": 1}), clean(), completed=None),
    ]


def seldom() -> list[Case]:
    """What tells a small fault in a script from the right one, and nothing else does."""
    child = put("1", parentKey=f"{Q}P", parent=f'{{"id":"P","queueKey":"{Q[:-1]}"}}')
    family = [job("P", delay=1), zadd("waiting-children", {"P": 1}), ("SADD", f"{Q}P:dependencies", f"{Q}1")]
    leaf = [job("leaf"), push("wait", "leaf")]
    many = [f"c{at}" for at in range(120)]
    shared = [job("1"), put("1:processed", **{Q + id: "1" for id in many}), *leaf]
    for id in many:
        shared += [job(id), put(f"{id}:processed", **{f"{Q}leaf": "1"})]
    old = [push("active", "0:5", "0:5"), push("wait", "0:5")]
    limited = meta(**CAP, max=5, duration=5000)
    # a stream of this many entries loses a node of 100 for the one cap, and none for the next
    text = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'event', 'old') end"
    return [
        case("02#W12 3.2", "the parent has a delay of 1 ms", ACTIVE, child, family, move_to_finished(),
             delayed={"P": (T + 1) * 4096}),
        case("02#5 13-completed-defa 13-count", "completed, with retention: a stale deferred failure stays", ACTIVE,
             put("1", defa="why"), move_to_finished(keepJobs={"count": 5}), after={"1": Has(defa="why")}),
        case("02#5 13-count", "a part of a job is kept", ACTIVE, move_to_finished(keepJobs={"count": -0.5})),
        case("02#5 13-count", "a part of a job with a parent is kept", ACTIVE, child,
             move_to_finished(keepJobs={"count": -0.5})),
        case("02#17/moveToFinished packed", "the options are a text", ACTIVE, ("DEL", f"{Q}1:lock"),
             move_to_finished(packed=b"\xa3abc")),
        *(case("02#W10 1-found 2", f"a cap of {cap}, {count} events", ACTIVE, meta(**{"opts.maxLenEvents": cap}),
               ("EVAL", text, 1, f"{Q}events", count), move_to_finished())
          for cap, count in (("10001", 10_100), ("9999", 10_099))),
        case("03#8.1 own-descendant", "a child of 120 children", shared, remove_job(), reply=1,
             after=dict.fromkeys(("1", "leaf", *many))),
        case("02#W7 3", "a job that is called as a field is", meta(**CAP), job("1", name="pb"), push("wait", "1"),
             move_to_active(name="w"), after={"1": Has(name="pb", pb="w")}),
        case("02#W7 3", "a job that is called as a counter is", meta(**CAP), job("1", name="ats", ats="4"),
             push("wait", "1"), move_to_active(), after={"1": Has(name="ats", ats="5")}),
        case("04#3.2 2", "options without a schedule", zadd("repeat", {"s": T}),
             put("repeat:s", name="sj", every="60000"), update_scheduler(options={}, producer=f"repeat:s:{T}")),
        case("01#6.2 5-custom", "the counter's own name, nothing there", add("addStandardJob", id="id")),
        case("02#W6 2", "an old marker that is active twice, a stored limit", limited, job("1"), old, move_to_active()),
        case("02#5 17-old-other", "an old marker that is active twice, a stored limit", ACTIVE, limited, old,
             move_to_finished(fetch="1")),
        case("02#6 4.1", "an old marker that is active twice", meta(**CAP), old, ("SADD", f"{Q}stalled", "0:5"),
             stalled_check(), active=["0:5"]),
    ]


UNTOLD = [*longest(), *seldom(), *no_ids()]
"""Cases that become no vectors."""
CASES = [*UNTOLD, *borders(), *due(), *neighbours(), *descendants(), *moments(), *widths(), *plain_ends(), *limits()]
