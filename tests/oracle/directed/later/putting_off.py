"""Putting a job off and fetching the next in the same call: part 06, section 11.7."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import Q, T, move_to_delayed
from tests.oracle.cases import ERROR, Case, Error, Has, Ttl, case, job, meta, push, put, took, zadd
from tests.oracle.directed.later.versions import Version
from tests.oracle.later_calls import then_fetch

# fmt: off
BRANCHES = {
    "06#11.7": "1-8 missing no-lock other-lock not-active 8-off 8-odd 9-job 9-priority 9-token 9-name 9-limited "
    "9-limit-taken 9-held 9-maxed 9-nothing 9-due 9-due-dropped 9-deferred 9-old-marker 9-limiter-freed 9-broken "
    "9-off-broken "
    "9-marker 10 itself",
}

D = T * 4096


def held(**fields: Any) -> list[Any]:
    """Job 1 is active and locked."""
    return [job("1", atm=1, **fields), push("active", "1"), ("SET", f"{Q}1:lock", "tk")]


def off(delay: Any = 1000, *, fetch: Any = "1", **options: Any) -> Any:
    """Job 1 is put off, and the next one asked for."""
    return then_fetch(move_to_delayed(delay=str(delay)), fetch, **options)


def _flat(steps: tuple[Any, ...]) -> list[Any]:
    return [each for step in steps for each in (step if isinstance(step, list) else [step])]


def cases(v: Version) -> list[Case]:
    """All of them; 5.62.0 is never asked for the next."""
    due = (T + 1000) * 4096.0
    put_off = [f"delayed jobId 1 delay {T + 1000}"]
    second = [job("2"), push("wait", "2")]

    def taken(covers: str, title: str, *steps: Any, call: Any = None, **after: Any) -> Case:
        """Job 2 is the reply of later versions."""
        made = [*held(), *_flat(steps), off() if call is None else call]
        if not v.later:
            return case(f"06#11.7 {covers}", title, made, reply=0, active=None)
        return case(f"06#11.7 {covers}", title, made,
                    **{"reply": took("2"), "delayed": {"1": due}, "active": ["2"], "marker": {"0": 0}, **after})

    def none(covers: str, title: str, *steps: Any, call: Any = None, **after: Any) -> Case:
        """Nothing is taken."""
        made = [*held(), *_flat(steps), off() if call is None else call]
        if not v.later:
            return case(f"06#11.7 {covers}", title, made, reply=0)
        return case(f"06#11.7 {covers}", title, made,
                    **{"reply": 0, "delayed": {"1": due}, "active": None, "marker": {"1": T + 1000.0}, **after})

    limiter = {"max": 1, "duration": 500_000}
    now = zadd("delayed", {"3": D - 4096})
    return [
        case("06#11.7 missing", "no such job", off(), reply=-1),
        case("06#11.7 no-lock", "no lock", held()[:2], second, off(), reply=-2, wait=["2"]),
        case("06#11.7 other-lock", "another's lock", held(), ("SET", f"{Q}1:lock", "x"), second, off(), reply=-6,
             wait=["2"]),
        case("06#11.7 not-active", "not active", held(), ("DEL", f"{Q}active"), second, off(), reply=-3, wait=["2"]),
        taken("1-8 9-job 9-token 9-marker", "the next job", second, events=[*put_off, "active jobId 2 prev waiting"],
              wait=None, after={"1": Has(delay="1000", atm="2"), "2": Has(processedOn=str(T), ats="1"),
                                "2:lock": Ttl(30_000, "tk2"), "1:lock": None}),
        taken("9-name", "the worker's name", second, call=off(name="w1"), after={"2": Has(pb="w1")}),
        taken("9-priority", "a prioritized one", job("2", priority=3), zadd("prioritized", {"2": 3 * 2.0**32 + 1}),
              after={"prioritized": None}),
        taken("9-limit-taken", "one that takes a token", second, call=off(limiter=limiter),
              after={"limiter": Ttl(500_000, "1")}),
        taken("9-deferred", "one that is fetched to fail", job("2", defa="zz"), push("wait", "2"),
              call=off(limiter=limiter), after={"limiter": v.in_six(Ttl(500_000, "1"), None)}),
        taken("9-due", "one that is due", job("2", delay=5), zadd("delayed", {"2": D - 4096}),
              after={"2": Has(delay="0")}, events=[*put_off, "waiting jobId 2 prev delayed",
                                                   "active jobId 2 prev waiting"]),
        taken("9-limiter-freed", "a limit without a lifetime holds nobody", second, ("SET", f"{Q}limiter", "5"),
              call=off(limiter={"max": 5, "duration": 500_000}), after={"limiter": "6"}),
        none("9-old-marker", "an old marker ahead of a job", second, ("RPUSH", f"{Q}wait", "0:5"), wait=["2"]),
        none("9-nothing 10", "nothing waits", events=put_off),
        none("9-held", "a paused queue", second, meta(paused=1), wait=["2"]),
        none("9-maxed", "as many active as may be", second, push("active", "x"), meta(concurrency=1), active=["x"],
             wait=["2"]),
        none("9-limited", "a limit that is reached", second, ("SET", f"{Q}limiter", "1", "PX", "300000"),
             call=off(limiter=limiter), wait=["2"], after={"limiter": Ttl(300_000, "1")}),
        none("9-due-dropped", "one that is due is promoted though it is not taken", job("3", delay=5), now,
             meta(paused=1), wait=v.in_six(None, ["3"]), paused=v.in_six(["3"], None), after={"3": Has(delay="0")}),
        none("9-old-marker", "an old marker alone", push("wait", "0:5")),
        taken("9-old-marker", "the old marker of a prioritized one", job("2", priority=3), push("wait", "0:0"),
              zadd("prioritized", {"2": 3 * 2.0**32 + 1}), wait=None, prioritized=None),
        case("06#11.7 9-old-marker", "the old marker of a prioritized one that is not there", held(),
             push("wait", "0:0"), off(), reply=v.since(0, ERROR), delayed={"1": due}),
        none("8-off", "it is not asked for", second, call=off(fetch="0"), wait=["2"], events=put_off),
        none("8-odd", "anything but 1", second, call=off(fetch="true"), wait=["2"]),
        none("8-off 9-off-broken", "a broken map, not asked for", second,
             call=off(fetch="0").with_arg(8, b"\xc1"), wait=["2"]),
        case("06#11.7 9-broken", "a broken map", held(), second, off().with_arg(8, b"\xc1"),
             reply=v.since(0, ERROR), delayed={"1": due}, marker=v.since({"1": T + 1000.0}, None)),
        case("06#11.7 9-broken", "an empty map", held(), second, off().with_arg(8, ""), reply=v.since(0, ERROR)),
        case("06#11.7 itself", "put off by nothing: it is due at once", held(), off(delay=0),
             reply=v.since(0, took("1")), active=v.only_later(["1"]), delayed=v.since({"1": float(D)}, None)),
        case("06#11.7 9-limited", "a limiter of another type", held(), second, push("limiter", "x"),
             off(limiter=limiter), reply=v.since(0, Error("WRONGTYPE")), delayed={"1": due}),
        case("06#11.7 1-8", "fields of an update", held(), put(f"{Q}1", x=1),
             then_fetch(move_to_delayed(delay="1000", skip="1", update=["failedReason", "r"])), reply=0,
             after={"1": Has(failedReason="r", atm="1")}),
    ]
