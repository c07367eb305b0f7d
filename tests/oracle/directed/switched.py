"""What profiles do otherwise than `strict`: cases of each switch, and the version of BullMQ that does the same.

Source: specs/06-later-versions.md#sec-8-3
"""

from __future__ import annotations

from dataclasses import replace

from bullmq_protocol.common.switches import Switches
from tests.oracle.calls import Call, Command, Q, stalled_check
from tests.oracle.cases import ERROR, Case, Has, case, job, push
from tests.oracle.scripts import Side

# fmt: off
REPEAT = '{"repeat":{"every":1000}}'
FAILS = Has(defa="job stalled more than allowable limit", stc="2")
EXEMPT = Has(defa=None, stc="2")


def _check() -> Call:
    call = stalled_check()
    return replace(call, keys=(*call.keys, f"{Q}repeat"))


def _suspect(**fields: str | int) -> list[Command]:
    """An active job without a lock that was active at the check before, and has stalled once."""
    return [push("active", "1"), ("SADD", f"{Q}stalled", "1"), job("1", **{"stc": 1, **fields})]


def live_schedulers() -> list[Case]:
    """A job stalls over the limit. Source: specs/06-later-versions.md#sec-4-4"""
    scheduler: Command = ("HSET", f"{Q}repeat:s", "name", "n")
    member: Command = ("ZADD", f"{Q}repeat", "1", "s")
    moved = {"wait": ["1"], "active": None}
    return [
        case("06#4.4 live", "its scheduler is there", _suspect(opts=REPEAT, rjk="s"), scheduler, _check(),
             reply=["1"], after={"1": EXEMPT, **moved}),
        case("06#4.4 gone", "its scheduler is gone", _suspect(opts=REPEAT, rjk="s"), _check(),
             reply=["1"], after={"1": FAILS, **moved}),
        case("06#4.4 no-rjk", "opts repeat it, and no scheduler is named", _suspect(opts=REPEAT), scheduler, _check(),
             after={"1": FAILS}),
        case("06#4.4 no-opts", "a scheduler is there, and opts do not repeat it", _suspect(rjk="s"), scheduler,
             _check(), after={"1": EXEMPT}),
        case("06#4.4 legacy", "a repeatable of the oldest kind", _suspect(rjk="s"), member, _check(),
             after={"1": EXEMPT}),
        case("06#4.4 empty", "an empty name is looked up like any other", _suspect(rjk=""), scheduler, member, _check(),
             after={"1": FAILS}),
        case("06#4.4 empty-live", "an empty name that is there", _suspect(rjk=""),
             ("HSET", f"{Q}repeat:", "name", "n"), _check(), after={"1": EXEMPT}),
        case("06#4.4 ordinary", "a job of no scheduler", _suspect(), _check(), after={"1": FAILS}),
        case("06#4.4 opts-text", "opts are no JSON: nobody reads them", _suspect(opts="x", rjk="s"), scheduler,
             _check(), reply=["1"], after={"1": EXEMPT}),
        case("06#11.8 below", "below the limit", _suspect(stc=0, rjk="s"), _check(),
             after={"1": Has(defa=None, stc="1")}),
        case("06#11.8 not-a-zset", "`repeat` is no sorted set", _suspect(rjk="s"),
             ("SET", f"{Q}repeat", "x"), _check(), reply=ERROR),
    ]


CASES: dict[Side, list[Case]] = {
    Side(Switches(stalled_exemption="live-scheduler"), "6.7.0"): live_schedulers(),
}
