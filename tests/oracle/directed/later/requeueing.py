"""Ends of jobs for which another is kept, and retention by age: part 06, sections 11.1 (L2, L6) and 11.6."""

from __future__ import annotations

import json
from typing import Any

from tests.oracle.calls import P, Q, T, move_to_active, move_to_delayed, move_to_finished, retry_job
from tests.oracle.cases import ERROR, Case, Error, Has, Json, Ttl, case, job, limited, meta, push, put, took, zadd
from tests.oracle.directed.later.versions import Version

# fmt: off
BRANCHES = {
    "06#L2": "delayed delay-text delay-bad delay-zero priority negative priority-text lifo lifo-zero fifo held",
    "06#L6": "1-none 1-no-deid 2 3-jid 3-counter 3-large 4-own 4-null 4-timed 4-no-de 4-bad 5 6 6-parent 6-no-pd "
    "6-rjk 6-deid "
    "6-exists 7-now 8 8-type 9 failed retried next deid-empty other-holder order opts-bad opts-text own-finished",
    "06#11.6.1": "1 2 3-fewer 3-limit 3-default none zero negative fraction text text-whole false order unlink dedup",
    "06#11.5": "defa defa-last full no-limit counted finish",
}

RECORD = '{"attempts":0,"de":{"id":"d","keepLastIfActive":true}}'


def active(*, ttl: int | None = None, **fields: Any) -> list[Any]:
    """Job 1 is active and locked, and holds `d`; the counter is at 2."""
    expiry = () if ttl is None else ("PX", ttl)
    return [
        job("1", deid="d", **fields), push("active", "1"), ("SET", f"{Q}1:lock", "tk"),
        ("SET", f"{Q}de:d", "1", *expiry), ("SET", f"{Q}id", "2"),
    ]


def kept(opts: Any = RECORD, **fields: Any) -> Any:
    """What is kept for `d`: by default as id 2."""
    values = {"name": "k", "data": '{"n":2}', "jid": "2", **fields}
    values["opts"] = opts if isinstance(opts, str) else json.dumps(opts)
    return put("dn:d", **{name: value for name, value in values.items() if value is not None})


def end(**given: Any) -> Any:
    """The active job ends."""
    return move_to_finished(at=T + 10, **given)


ENDED = "completed jobId 1 returnvalue V prev active"
DONE = {"de:d": None, "dn:d": Has(name="k"), "2": None}


def requeueing(v: Version) -> list[Case]:
    """L6."""
    later = v.later
    queued = ["added jobId 2 name k", "waiting jobId 2"]

    def again(covers: str, title: str, *steps: Any, opts: Any = RECORD, record: dict[str, Any] | None = None,
              state: Any = None, **after: Any) -> Case:
        """The kept job is put in line by later versions; 5.62.0 leaves it."""
        begun = active() if state is None else state
        if not later:
            return case(f"06#L6 {covers}", title, begun, kept(opts, **(record or {})), *steps, end(), reply=0,
                        after={"dn:d": Has(name="k")})
        more = {"dn:d": None, "2": Has(name="k", data='{"n":2}', timestamp=str(T + 10)), **after.pop("after", {})}
        return case(f"06#L6 {covers}", title, begun, kept(opts, **(record or {})), *steps, end(), reply=0,
                    **{"id": "3", "after": more, **after})

    def fails(covers: str, title: str, opts: Any = RECORD, *steps: Any, **record: Any) -> Case:
        reply = v.since(0, ERROR)
        return case(f"06#L6 {covers}", title, active(), kept(opts, **record), *steps, end(), reply=reply, active=None,
                    completed=v.since({"1": T + 10.0}, None), after={"dn:d": Has(name=record.get("name", "k"))})

    fields = {"name": "k", "data": '{"n":2}', "timestamp": str(T + 10), "delay": "0", "priority": "0", "deid": "d",
              "opts": Json(RECORD)}
    found = [
        case("06#L6 1-none", "nothing is kept", active(), end(), reply=0, id="2", after={"de:d": None, "2": None}),
        case("06#L6 1-no-deid", "the job has no id of deduplication", job("1"), push("active", "1"),
             ("SET", f"{Q}1:lock", "tk"), kept(), end(), reply=0, after={"dn:d": Has(name="k")}),
        again("2 3-jid 4-own 5 6 6-deid 7-now 9", "the kept job is put in line", wait=["2"], marker={"0": 0},
              completed={"1": T + 10.0}, meta={"opts.maxLenEvents": "10000"}, events=[*queued, ENDED],
              after={"de:d": Ttl(None, "2"), "2": fields}),
        again("3-counter", "without an id of its own it gets the counter's", record={"jid": None}, wait=["3"],
              after={"2": None, "3": Has(name="k"), "de:d": "3"}),
        again("3-large", "a counter of 10^14", ("SET", f"{Q}id", "99999999999999"), record={"jid": None},
              wait=["1e+14"],
              id="100000000000000", after={"2": None, "1e+14": Has(name="k"), "de:d": "1e+14"}),
        again("4-own", "the key has no lifetime", opts={"de": {"id": "d", "ttl": 500_000, "keepLastIfActive": True}},
              after={"de:d": Ttl(None, "2")}),
        again("4-null", "a flag that is null is set",
              opts={"de": {"id": "d", "ttl": 500_000, "keepLastIfActive": None}}, after={"de:d": Ttl(None, "2")}),
        again("4-timed", "the key has one", opts={"de": {"id": "d", "ttl": 500_000}}, after={"de:d": Ttl(500_000,
              "2")}),
        again("4-timed", "a flag that is false", opts={"de": {"id": "d", "ttl": 500_000, "keepLastIfActive": False}},
              after={"de:d": Ttl(500_000, "2")}),
        again("4-no-de", "no options of deduplication", opts={}, after={"de:d": Ttl(None, "2"), "2": Has(deid=None)}),
        again("6-deid", "the options name another id", opts={"de": {"id": "e"}},
              after={"de:d": "2", "de:e": None, "2": Has(deid="e")}),
        again("6-parent 8", "a parent", job("P", P), record={
            "pk": f"{P}P", "pd": '{"id":"P","queueKey":"bull:p"}', "pdk": f"{P}P:dependencies"},
            after={"2": Has(parentKey=f"{P}P", parent='{"id":"P","queueKey":"bull:p"}'),
                   "bull:p:P:dependencies": {f"{Q}2"}}),
        again("8", "a set of children alone", record={"pdk": f"{P}P:dependencies"},
              after={"2": Has(parentKey=None), "bull:p:P:dependencies": {f"{Q}2"}}),
        again("6-rjk", "a scheduler", record={"rjk": "s"}, after={"2": Has(rjk="s")}),
        again("6-exists", "the id is taken: the job is overwritten and stands twice", job("2", x="old"),
              push("wait", "2"), wait=["2", "2"], after={"2": Has(x="old", name="k")}),
        again("5", "the cap of the events", meta(**{"opts.maxLenEvents": "7"}), meta={"opts.maxLenEvents": "7"}),
        again("other-holder", "another holds the id", ("SET", f"{Q}de:d", "9"), after={"de:d": "2"}),
        again("own-finished", "the job itself is kept once more", record={"jid": "1"}, wait=["1"],
              after={"2": None, "de:d": "1", "1": Has(name="k")}),
        fails("4-bad", "options of deduplication that are a number", {"de": 5}),
        fails("opts-bad", "options that are no JSON", "{bad"),
        again("opts-text", "options that are a text have no members", opts='"x"', after={"de:d": Ttl(None, "2")}),
        fails("4-bad", "a lifetime that is no number", {"de": {"id": "d", "ttl": "x"}}),
        fails("6-no-pd", "a parent without its object", RECORD, pk=f"{P}P"),
        fails("8-type", "the parent's children are no set", RECORD, push("bull:p:P:dependencies", "x"),
              pdk=f"{P}P:dependencies"),
        case("06#L6 failed order", "a failed job", active(), kept(), end(outcome="failed", value="boom"), reply=0,
             events=[*(queued if later else []), "failed jobId 1 failedReason boom prev active",
                     "retries-exhausted jobId 1 attemptsMade 1", *([] if later else ["drained"])],
             after={"de:d": v.only_later("2")}),
        case("06#L6 order", "a parent's child: its events come after those of the kept job", active(
            parentKey=f"{P}P", parent='{"id":"P","queueKey":"bull:p"}'), job("P", P), zadd(f"{P}waiting-children",
            {"P": T}), ("SADD", f"{P}P:dependencies", f"{Q}1"), kept(), end(), reply=0,
            events=[*(queued if later else []), ENDED, *([] if later else ["drained"])],
            after={f"{P}events": ["waiting jobId P prev waiting-children"]}),
        case("06#L6 next", "the kept job is the next of the same call", active(), kept(), end(fetch="1"),
             reply=v.since(0, took("2")), active=v.only_later(["2"]), wait=None,
             events=[*(queued if later else []), ENDED, *(["active jobId 2 prev waiting"] if later else ["drained"])]),
        case("06#L6 next", "another waits longer", active(), kept(), job("9"), push("wait", "9"), end(fetch="1"),
             reply=took("9"), wait=v.only_later(["2"])),
        case("06#L6 retried", "a job that is retried", active(), kept(), retry_job(), reply=0, id="2",
             after={"dn:d": Has(name="k"), "de:d": "1"}),
        case("06#L6 retried", "a job that is put off", active(), kept(), move_to_delayed(delay="5"), reply=0, id="2",
             after={"dn:d": Has(name="k"), "de:d": "1"}),
        case("06#L6 deid-empty", "an empty id of deduplication", job("1", deid=""), push("active", "1"),
             ("SET", f"{Q}1:lock", "tk"), ("HSET", f"{Q}dn:", "name", "k", "data", "{}", "opts", "{}", "jid", "7"),
             end(),
             reply=0, wait=v.only_later(["7"]), after={"de:": v.only_later("7")}),
    ]
    return found + in_line(v)


def in_line(v: Version) -> list[Case]:
    """L2, as the requeue uses it."""
    def put_in(covers: str, title: str, options: dict[str, Any], *steps: Any, **after: Any) -> Case:
        steps = (active(), kept({**options, "de": {"id": "d"}}), *steps, end())
        if not v.later:
            return case(f"06#L2 {covers}", title, *steps, reply=0, after={"dn:d": Has(name="k")})
        return case(f"06#L2 {covers}", title, *steps, **{"reply": 0, **after})

    due = (T + 1010) * 4096.0
    score = 3 * 2.0**32 + 1
    return [
        put_in("delayed", "a delay", {"delay": 1000, "priority": 3}, delayed={"2": due}, marker={"1": T + 1010.0},
               prioritized=None, after={"2": Has(delay="1000", priority="3")}),
        put_in("delayed", "a delay, the queue paused", {"delay": 1000}, meta(paused=1), delayed={"2": due},
               marker={"1": T + 1010.0}),
        put_in("delay-text", "a delay as text", {"delay": "1000"}, delayed={"2": due}),
        put_in("delay-text", "a text of zero is a delay", {"delay": "0"}, delayed={"2": (T + 10) * 4096.0}, wait=None),
        put_in("delay-bad", "a delay that is no number", {"delay": "x"}, reply=ERROR, delayed=None,
               after={"2": Has(delay="x"), "dn:d": Has(name="k")}),
        put_in("delay-zero", "a delay of zero", {"delay": 0}, wait=["2"]),
        put_in("delayed", "a negative delay", {"delay": -5}, delayed={"2": (T + 10) * 4096.0}),
        put_in("priority", "a priority", {"priority": 3}, prioritized={"2": score}, pc="1", wait=None, marker={"0": 0}),
        put_in("priority held", "a priority, the queue paused", {"priority": 3}, meta(paused=1),
               prioritized={"2": score}, marker=None),
        put_in("negative", "a negative priority", {"priority": -1}, wait=["2"], prioritized=None,
               after={"2": Has(priority="-1")}),
        put_in("priority-text", "a priority as text", {"priority": "3"}, reply=ERROR, prioritized=None,
               after={"2": Has(priority="3"), "dn:d": Has(name="k"), "de:d": "2"}),
        put_in("lifo", "last in, first out", {"lifo": True}, push("wait", "w"), wait=["w", "2"]),
        put_in("lifo-zero", "0 is last in, first out", {"lifo": 0}, push("wait", "w"), wait=["w", "2"]),
        put_in("fifo", "first in, first out", {"lifo": False}, push("wait", "w"), wait=["2", "w"]),
        put_in("held", "a paused queue", {}, meta(paused=1), marker=None, wait=v.in_six(None, ["2"]),
               paused=v.in_six(["2"], None)),
        put_in("held", "as many active as may be", {}, meta(concurrency=1), push("active", "x"), wait=["2"],
               marker=None),
    ]


def ages(v: Version) -> list[Case]:
    """11.6.1: four jobs are too old, `d` the youngest of them."""
    old = {name: T - 20_000.0 + at for at, name in enumerate("abcd")}
    made = [zadd("completed", old), *[job(name) for name in old], *active()[:3]]

    def left(*names: str) -> dict[str, float]:
        return {"1": T + 10.0, **{name: old[name] for name in names}}

    def ended(covers: str, title: str, keep: dict[str, Any], *names: str, steps: Any = (), **after: Any) -> Case:
        """Which of the old ones stay with later versions; 5.62.0 removes all."""
        if not v.later:
            return case(f"06#11.6.1 {covers}", title, made, *steps, end(keepJobs=keep), reply=0)
        hashes = {name: Has(name="n") if name in names else None for name in old}
        return case(f"06#11.6.1 {covers}", title, made, *steps, end(keepJobs=keep),
                    **{"reply": 0, "completed": left(*names), "after": hashes, **after})

    def fails(covers: str, title: str, limit: Any, *steps: Any) -> Case:
        return case(f"06#11.6.1 {covers}", title, made, *steps, end(keepJobs={"age": 5, "limit": limit}),
                    reply=v.since(0, ERROR))

    return [
        ended("1 2 3-limit order", "the youngest two of them", {"age": 5, "limit": 2}, "a", "b"),
        ended("3-fewer", "all four", {"age": 5, "limit": 5}),
        ended("3-limit", "exactly four", {"age": 5, "limit": 4}),
        ended("3-default", "no limit: a thousand", {"age": 5}),
        ended("false", "a limit that is false: a thousand", {"age": 5, "limit": False}),
        ended("none", "none is old", {"age": 100, "limit": 2}, *old),
        ended("zero", "a limit of 0 removes none", {"age": 5, "limit": 0}, *old),
        ended("negative", "a negative one all", {"age": 5, "limit": -1}),
        fails("fraction", "a fraction", 1.5),
        fails("text", "a text", "x"),
        fails("text-whole", "a text of a number, and something to remove", "2"),
        ended("text-whole", "a text of a number, and nothing to remove", {"age": 100, "limit": "2"}, *old),
        ended("unlink", "a child is taken from its parent", {"age": 5, "limit": 1}, "a", "b", "c", steps=[
            put(f"{Q}d", parentKey=f"{P}P", parent='{"id":"P","queueKey":"bull:p"}'), job("P", P),
            ("SADD", f"{P}P:dependencies", f"{Q}d", "x")], after={f"{P}P:dependencies": {"x"}, "d": None}),
        ended("dedup", "keys of deduplication stay", {"age": 5, "limit": 1}, "a", "b", "c", steps=[
            put(f"{Q}d", deid="z"), ("SET", f"{Q}de:z", "d")], after={"de:z": "d", "d": None, "c": Has(name="n")}),
        case("06#11.6.1 1", "one that is just too old, and one that is not", job("new"), job("old"),
             zadd("completed", {"old": T + 10 - 5000, "new": T + 11 - 5000}), *active()[:3], end(keepJobs={"age": 5}),
             reply=0, completed={"1": T + 10.0, "new": T + 11.0 - 5000}, after={"old": None, "new": Has(name="n")}),
        case("06#11.6.1 3-default", "a thousand and one", zadd("completed", {f"j{n}": T - 20_000 + n
             for n in range(1001)}), *active()[:3], end(keepJobs={"age": 5}), reply=0,
             completed=v.since({"1": T + 10.0}, {"1": T + 10.0, "j0": T - 20_000.0})),
    ]


def limits(v: Version) -> list[Case]:
    """11.5: jobs that are fetched only to fail."""
    limiter = {"max": 2, "duration": 500_000}
    made = [job("1", defa="zz"), job("2"), push("wait", "2", "1")]
    none = v.in_six(Ttl(500_000, "1"), None)
    return [
        case("06#11.5 defa", "such a job takes no token", made, move_to_active(limiter=limiter), reply=took("1"),
             limiter=none),
        case("06#11.5 counted", "the next one does", made, move_to_active(limiter=limiter),
             move_to_active(limiter=limiter), reply=took("2"), limiter=Ttl(500_000, v.in_six("2", "1"))),
        case("06#11.5 full", "a full limit holds it back", made, ("SET", f"{Q}limiter", "2", "PX", "300000"),
             move_to_active(limiter=limiter), reply=limited(300_000)),
        case("06#11.5 defa-last", "no reason, but a field", job("1", defa=""), push("wait", "1"),
             move_to_active(limiter=limiter), reply=took("1"), limiter=none),
        case("06#11.5 no-limit", "no limit", made, move_to_active(), reply=took("1"), limiter=None),
        case("06#11.5 finish", "as the next job of an end", active()[:3], job("2", defa="zz"), push("wait", "2"),
             end(fetch="1", limiter=limiter), reply=took("2"), limiter=none),
        case("06#11.5 full", "a limiter of another type", made, push("limiter", "x"), move_to_active(limiter=limiter),
             reply=Error("WRONGTYPE")),
    ]


def cases(v: Version) -> list[Case]:
    """All of them."""
    return [each for make in (requeueing, ages, limits) for each in make(v)]
