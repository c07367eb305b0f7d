"""Stalled jobs of schedulers that live, or are gone: part 06, sections 4.4 and 11.8."""

from __future__ import annotations

from tests.oracle.calls import Command, Q, stalled_check
from tests.oracle.cases import ERROR, Case, Has, case, job, push
from tests.oracle.directed.later.versions import Version

# fmt: off
BRANCHES = {
    "06#4.4": "live gone no-rjk no-opts legacy empty empty-live ordinary opts-text",
    "06#11.8": "below not-a-zset",
}

REPEAT = '{"repeat":{"every":1000}}'
FAILS = Has(defa="job stalled more than allowable limit", stc="2")
EXEMPT = Has(defa=None, stc="2")


def suspect(**fields: str | int) -> list[Command]:
    """An active job without a lock that was active at the check before, and has stalled once."""
    return [push("active", "1"), ("SADD", f"{Q}stalled", "1"), job("1", **{"stc": 1, **fields})]


def cases(v: Version) -> list[Case]:
    """A job stalls over the limit."""
    scheduler: Command = ("HSET", f"{Q}repeat:s", "name", "n")
    member: Command = ("ZADD", f"{Q}repeat", "1", "s")
    moved = {"wait": ["1"], "active": None}
    check = stalled_check()

    def outcome(before: Has, after: Has) -> dict[str, Has]:
        return {"1": v.since(before, after)}

    return [
        case("06#4.4 live", "its scheduler is there", suspect(opts=REPEAT, rjk="s"), scheduler, check, reply=["1"],
             after={"1": EXEMPT, **moved}),
        case("06#4.4 gone", "its scheduler is gone", suspect(opts=REPEAT, rjk="s"), check, reply=["1"],
             after={**outcome(EXEMPT, FAILS), **moved}),
        case("06#4.4 no-rjk", "opts repeat it, and no scheduler is named", suspect(opts=REPEAT), scheduler, check,
             after=outcome(EXEMPT, FAILS)),
        case("06#4.4 no-opts", "a scheduler is there, and opts do not repeat it", suspect(rjk="s"), scheduler, check,
             after=outcome(FAILS, EXEMPT)),
        case("06#4.4 legacy", "a repeatable of the oldest kind", suspect(rjk="s"), member, check,
             after=outcome(FAILS, EXEMPT)),
        case("06#4.4 empty", "an empty name is looked up like any other", suspect(rjk=""), scheduler, member, check,
             after={"1": FAILS}),
        case("06#4.4 empty-live", "an empty name that is there", suspect(rjk=""),
             ("HSET", f"{Q}repeat:", "name", "n"), check, after=outcome(FAILS, EXEMPT)),
        case("06#4.4 ordinary", "a job of no scheduler", suspect(), check, after={"1": FAILS}),
        case("06#4.4 opts-text", "opts are no JSON", suspect(opts="x", rjk="s"), scheduler, check,
             reply=v.since(ERROR, ["1"]), after={} if not v.later else {"1": EXEMPT}),
        case("06#11.8 below", "below the limit", suspect(stc=0, rjk="s"), check,
             after={"1": Has(defa=None, stc="1")}),
        case("06#11.8 not-a-zset", "`repeat` is no sorted set", suspect(rjk="s"), ("SET", f"{Q}repeat", "x"), check,
             reply=v.since(["1"], ERROR)),
    ]
