"""Deduplication: keeping the next job, repairing stale keys, moving the holder. Part 06, sections 11.1 and 11.2."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import Call, P, Q, T, add, clean, drain, obliterate, remove_job, remove_unprocessed_children
from tests.oracle.cases import ERROR, Case, Error, Has, Json, Ttl, case, job, meta, push, put, zadd
from tests.oracle.directed.adding import COMMANDS, STANDARD, add_packed, dedup, head
from tests.oracle.directed.later.versions import Version
from tests.oracle.later_calls import pausing, remove_deduplication_key

# fmt: off
BRANCHES = {
    "06#L3": "timed own-on own-zero own-empty own-false own-null ttl-bad ttl-bad-own",
    "06#L4": "repaired expiring there own drops-dn no-holder",
    "06#L5": "1-off 1-no-holder 2-waiting 2-type 3 3-jid 3-parent 3-no-parent 3-rjk 4-older 4-persist 4-prefix 5 lifo",
    "06#L7": "holder other none metrics",
    "06#11.2": "3-text 3-exact 10-nil r1 r2 r3 r3-dn r4-own r4-keep r4-timed r5-silent r5-kept r5-repaired order n1a "
    "n1a-own n1b-repaired n1b-kept n1c n1c-own n2 n2-own n2a n2b-repaired n2b-kept n2c n3 n3-no-delay n3-text "
    "n3-not-delayed n3-off n3-zero n3-same-ms n3-cap n3-active n3-extend n3-replace n3-after-kept",
    "06#11.3": "replace replace-held no-reschedule kept repaired",
    "06#4.2.7": "own other none",
    "06#4.2.8": "deid",
}

D = T * 4096
KEEP = {"keepLastIfActive": True}


def holder(*, state: str = "active", ttl: int | None = None, **fields: Any) -> list[Any]:
    """Job 1, which holds `d`, in a state."""
    expiry = () if ttl is None else ("PX", ttl)
    place: Any = {
        "active": push("active", "1"),
        "wait": push("wait", "1"),
        "delayed": zadd("delayed", {"1": (T + 5000) * 4096}),
        "completed": zadd("completed", {"1": T}),
    }[state]
    return [job("1", deid="d", **fields), place, ("SET", f"{Q}de:d", "1", *expiry), ("SET", f"{Q}id", "1")]


def gone(ttl: int | None = None) -> list[Any]:
    """A key whose job is gone, and a record kept for it."""
    return [("SET", f"{Q}de:d", "gone", *(() if ttl is None else ("PX", ttl))), put("dn:d", name="old")]


KEPT = Has(name="n", data="{}", jid="2", pk=None, pd=None, pdk=None, rjk=None)
SECOND = ["added jobId 2 name n", "waiting jobId 2"]
FIRST = ["added jobId 1 name n", "waiting jobId 1"]


def setting(v: Version) -> list[Case]:
    """L3: with which lifetime a key is set."""
    def free(covers: str, title: str, most: int | None, **de: Any) -> Case:
        return case(f"06#L3 {covers}", title, dedup(ttl=500_000, extend=True, **de), reply="1",
                    after={"de:d": Ttl(most, "1")})

    return [
        free("timed", "a lifetime", 500_000),
        free("own-on", "keepLastIfActive: none", v.since(500_000, None), keepLastIfActive=True),
        free("own-zero", "0 sets the flag", v.since(500_000, None), keepLastIfActive=0),
        free("own-empty", "the empty text sets it", v.since(500_000, None), keepLastIfActive=""),
        free("own-false", "false does not", 500_000, keepLastIfActive=False),
        free("own-null", "nil does not", 500_000, keepLastIfActive=None),
        *(case("06#L3 ttl-bad", f"{command}: a lifetime that is no number", dedup(command, ttl="x"), reply=ERROR,
               after={"de:d": None}) for command in COMMANDS),
        case("06#L3 ttl-bad-own", "nobody looks at it where the key has none of its own", dedup(ttl="x", replace=True,
             **KEEP), reply=v.since(ERROR, "1"), after={"de:d": v.only_later(Ttl(None, "1"))}),
    ]


def repairing(v: Version) -> list[Case]:
    """L4: a key whose job is gone."""
    def held(covers: str, title: str, *before: Any, call: Call) -> Case:
        return case(f"06#L4 {covers}", title, *before, call, reply="gone", after={"1": None})

    def taken(covers: str, title: str, call: Call, most: int | None = None) -> Case:
        if not v.six:
            return held(covers, title, gone(), call=call)
        return case(f"06#L4 {covers}", title, gone(), call, reply="1", events=FIRST,
                    after={"de:d": Ttl(most, "1"), "dn:d": None, "1": Has(deid="d")})

    return [
        taken("repaired drops-dn", "a plain add takes it over", dedup()),
        taken("repaired; 06#11.2 n2b-repaired", "with a lifetime", dedup(ttl=500_000), 500_000),
        taken("own", "with none of its own", dedup(ttl=500_000, **KEEP)),
        taken("repaired; 06#11.2 n1b-repaired", "extending", dedup(ttl=500_000, extend=True), 500_000),
        taken("own; 06#11.2 n1b-repaired", "extending, with none of its own",
              dedup(ttl=500_000, extend=True, **KEEP)),
        taken("repaired; 06#11.2 r5-repaired", "replacing", dedup(ttl=500_000, replace=True), 500_000),
        held("expiring", "a key with an expiry stays", gone(500_000), call=dedup()),
        held("expiring", "the same, extending", gone(500_000), call=dedup(ttl=900_000, extend=True)),
        case("06#L4 repaired", "extending by a part of a millisecond: the key goes, and none comes", gone(),
             dedup(ttl=0.5, extend=True), reply=ERROR, after={"de:d": v.in_six("gone", None), "1": None}),
        held("expiring", "the same, replacing", gone(500_000), call=dedup(replace=True)),
        case("06#L4 there", "the job is there, finished", holder(state="completed"), put("dn:d", name="old"), dedup(),
             reply="1", after={"de:d": "1", "dn:d": Has(name="old")}),
        case("06#L4 no-holder", "no key", put("dn:d", name="old"), dedup(), reply="1", after={"dn:d": Has(name="old")}),
    ]


def keeping(v: Version) -> list[Case]:
    """L5: the newest add during activity is kept."""
    events = v.deduplicated("1", "2")

    def kept(covers: str, title: str, *steps: Any, fields: Any = KEPT, **after: Any) -> Case:
        return case(f"06#L5 {covers}", title, *steps, reply="1", events=events, id="2",
                    after={"dn:d": v.only_later(fields), "2": None, **after})

    parent = job("P", P)
    found = [
        kept("1-off", "the flag is not set", holder(), dedup(), fields=None),
        case("06#L5 1-no-holder", "nobody holds the id", dedup(**KEEP), reply="1", after={"dn:d": None}),
        kept("2-waiting", "the holder waits", holder(state="wait"), dedup(**KEEP), fields=None),
        kept("3 3-jid 3-no-parent 5; 06#11.2 n2b-kept n2c", "the holder is active", holder(), dedup(**KEEP)),
        case("06#L5 3", "options as JSON of the script", holder(), dedup(options={"attempts": 3, "x": "a/b"}, **KEEP),
             after={"dn:d": v.only_later(Has(
                 opts=Json('{"attempts":3,"x":"a/b","de":{"id":"d","keepLastIfActive":true}}')))}),
        kept("3", "a flag that is 0", holder(), dedup(keepLastIfActive=0)),
        kept("1-off", "a flag that is false", holder(), dedup(keepLastIfActive=False), fields=None),
        case("06#L5 3-jid", "an id of its own", holder(), dedup(id="own", **KEEP), reply="1",
             after={"dn:d": v.only_later(Has(jid="own")), "own": None}),
        case("06#L5 3-parent", "a parent", holder(), parent,
             add(STANDARD, options={"de": {"id": "d", **KEEP}}, parent=(P, "P"), flags=["fpof"]), reply="1",
             after={"bull:p:P:dependencies": None, "dn:d": v.only_later(Has(
                 pk="bull:p:P", pd='{"id":"P","queueKey":"bull:p","fpof":true}', pdk="bull:p:P:dependencies"))}),
        case("06#L5 3-parent", "a set of children alone", holder(),
             add_packed(STANDARD, Q, head(pending="bull:p:X:dependencies", dedup=f"{Q}de:d"),
                        {"de": {"id": "d", **KEEP}}),
             after={"dn:d": v.only_later(Has(pk=None, pd=None, pdk="bull:p:X:dependencies"))}),
        case("06#L5 3-rjk", "a scheduler", holder(), add(STANDARD, options={"de": {"id": "d", **KEEP}}, scheduler="s"),
             after={"dn:d": v.only_later(Has(rjk="s"))}),
        kept("4-older", "what was kept before goes", holder(), put("dn:d", pk="old", x="old"), dedup(**KEEP),
             fields=KEPT) if v.later else
        case("06#L5 4-older", "a record of a newer client stays", holder(), put("dn:d", x="old"), dedup(**KEEP),
             after={"dn:d": {"x": "old"}}),
        kept("4-persist; 06#L3 own-on", "the key loses its lifetime", holder(ttl=500_000), dedup(**KEEP),
             **{"de:d": Ttl(v.since(500_000, None), "1")}),
        case("06#L5 4-prefix", "the key that is kept is made from the prefix", holder(ttl=500_000),
             ("SET", f"{Q}de:e", "1", "PX", "500000"),
             add_packed(STANDARD, Q, head(dedup=f"{Q}de:e"), {"de": {"id": "d", **KEEP}}), reply="1",
             after={"de:e": Ttl(500_000, "1"), "de:d": Ttl(v.since(500_000, None), "1"),
                    "dn:d": v.only_later(Has(jid="2"))}),
        case("06#L5 2-type", "`active` is no list", job("1"), ("SET", f"{Q}active", "x"), ("SET", f"{Q}de:d", "1"),
             add("addDelayedJob", options={"delay": 5, "de": {"id": "d", **KEEP}}),
             reply=v.since("1", Error("WRONGTYPE")), after={"dn:d": None}),
        kept("2-waiting", "the holder's id is a part of an active one's", holder(state="wait"), push("active", "11"),
             dedup(**KEEP), fields=None),
        kept("3", "the last of many", holder(), push("active", *[f"x{n}" for n in range(50)], "1"), dedup(**KEEP)),
    ]
    return found + [
        case("06#L5 3 lifo", f"{command} keeps its options", holder(),
             add(command, id="9", options={"delay": 5, "priority": 3, "lifo": True, "de": {"id": "d", **KEEP}}),
             reply="1", events=v.deduplicated("1", "9"), after={"dn:d": v.only_later(Has(
                 opts=Json('{"delay":5,"priority":3,"lifo":true,"de":{"id":"d","keepLastIfActive":true}}'), jid="9"))})
        for command in COMMANDS
    ]


def replacing(v: Version) -> list[Case]:
    """11.2, `replace` set."""
    removed = ["removed jobId 1 prev delayed", *v.deduplicated("2", "1")]

    def after(most: int | None, dn: Any = None) -> dict[str, Any]:
        return {"de:d": Ttl(most, "2"), "dn:d": dn, "1": None, "delayed": None}

    late = holder(state="delayed", ttl=500_000)
    return [
        case("06#11.2 r1 r2", "replacing, nobody holds the id", dedup(replace=True, ttl=500_000), reply="1",
             after={"de:d": Ttl(500_000, "1")}),
        case("06#11.2 r2", "replacing, nobody, with none of its own", dedup(replace=True, ttl=500_000, **KEEP),
             reply="1",
             after={"de:d": Ttl(v.since(500_000, None), "1")}),
        case("06#11.2 r3 r4-keep", "a delayed holder goes", late, dedup(replace=True, ttl=900_000), reply="2",
             events=[*removed, *SECOND], after=after(500_000)),
        case("06#11.2 r3-dn r4-timed", "what was kept for it goes with 6.7.0 alone", late, put("dn:d", name="old"),
             dedup(replace=True), reply="2", events=[*removed, *SECOND],
             after=after(None, v.in_six(Has(name="old"), None))),
        case("06#11.2 r4-own", "none of its own", late, dedup(replace=True, ttl=900_000, **KEEP), reply="2",
             after=after(v.since(500_000, None))),
        case("06#11.2 r4-own", "the same, extending", late, dedup(replace=True, extend=True, ttl=900_000, **KEEP),
             reply="2", after=after(v.since(900_000, None))),
        case("06#11.2 r4-timed", "replacing and extending", late, dedup(replace=True, extend=True, ttl=900_000),
             reply="2",
             after=after(900_000)),
        case("06#11.2 r4-timed", "a lifetime of zero is none", late, dedup(replace=True, ttl=0), reply="2",
             after=after(None)),
        case("06#11.2 r4-keep", "a part of a millisecond is a lifetime, which is not set", late,
             dedup(replace=True, ttl=0.5), reply="2", after=after(500_000)),
        case("06#11.2 r2", "replacing, nobody, a part of a millisecond", dedup(replace=True, ttl=0.5), reply=ERROR,
             after={"de:d": None}),
        case("06#11.2 r5-silent", "a holder that waits", holder(state="wait"), dedup(replace=True), reply="1",
             events=None, after={"2": None, "de:d": "1"}),
        case("06#11.2 r5-silent", "a holder that waits, the flag set", holder(state="wait"),
             dedup(replace=True, **KEEP), reply="1", events=None, after={"2": None, "dn:d": None}),
        case("06#11.2 r5-kept", "an active holder", holder(ttl=500_000), dedup(replace=True, **KEEP), reply="1",
             events=v.only_later(v.deduplicated("1", "2")),
             after={"dn:d": v.only_later(KEPT), "de:d": Ttl(v.since(500_000, None), "1")}),
        case("06#11.2 order", "a lifetime that is no number, found too late", late, dedup(replace=True, ttl="x"),
             reply=ERROR, after={"delayed": v.since({"1": float((T + 5000) * 4096)}, None)}),
        case("06#11.2 order", "a lifetime that is no number, not needed", holder(state="wait"),
             dedup(replace=True, ttl="x"), reply=v.since(ERROR, "1")),
    ]


def adding(v: Version) -> list[Case]:
    """11.2, `replace` not set, and what comes before and after."""
    events = v.deduplicated("1", "2")
    due = (T + 5000) * 4096.0
    moved = [*events, f"delayed jobId 1 delay {T + 9007}"]

    def late(covers: str, title: str, call: Call, delay: int | None, *, before: Any = (), **after: Any) -> Case:
        """A delayed holder, and to which delay from now 6.7.0 moves it."""
        if not v.six or delay is None:
            return case(f"06#11.2 {covers}", title, holder(state="delayed"), list(before), call, reply="1",
                        events=events, delayed={"1": due}, after={"1": Has(delay="0")})
        new = (T + 7 + delay) * 4096.0
        return case(f"06#11.2 {covers}", title, holder(state="delayed"), list(before), call,
                    **{"reply": "1", "delayed": {"1": new}, "marker": {"1": T + 7 + delay},
                       "events": [*events, f"delayed jobId 1 delay {T + 7 + delay}"],
                       "after": {"1": Has(delay=str(delay), timestamp=str(T), opts="{}"), "de:d": "1", "2": None},
                       **after})

    def again(command: str = STANDARD, *, options: Any = None, **de: Any) -> Call:
        return add(command, at=T + 7, options={**(options or {}), "de": {"id": "d", **de}})

    text = {"base": Q, "at": T}
    return [
        case("06#11.2 n1a", "nobody holds the id", dedup(ttl=500_000, extend=True), reply="1",
             after={"de:d": Ttl(500_000, "1")}),
        case("06#11.2 n1a-own", "nobody, with none of its own", dedup(ttl=500_000, extend=True, **KEEP), reply="1",
             after={"de:d": Ttl(v.since(500_000, None), "1")}),
        case("06#11.2 n1b-kept", "extending beside an active holder", holder(ttl=500_000),
             dedup(ttl=900_000, extend=True, **KEEP), reply="1", events=events,
             after={"dn:d": v.only_later(KEPT), "de:d": Ttl(v.since(900_000, None), "1")}),
        case("06#11.2 n1a", "extending, nobody, a part of a millisecond", dedup(ttl=0.5, extend=True), reply=ERROR),
        case("06#11.2 n1a", "extending by nothing", holder(state="wait", ttl=500_000), dedup(ttl=0, extend=True),
             reply="1", events=events, after={"de:d": Ttl(500_000, "1")}),
        case("06#11.2 n2", "a part of a millisecond", dedup(ttl=0.5), reply=ERROR),
        case("06#11.2 n1c", "extending beside a waiting holder", holder(state="wait", ttl=500_000),
             dedup(ttl=900_000, extend=True), reply="1", events=events, after={"de:d": Ttl(900_000, "1")}),
        case("06#11.2 n1c", "extending beside a holder without a lifetime", holder(state="wait"),
             dedup(ttl=900_000, extend=True), reply="1", events=events, after={"de:d": Ttl(900_000, "1")}),
        case("06#11.2 n1c", "extending by a part of a millisecond", holder(state="wait", ttl=500_000),
             dedup(ttl=0.5, extend=True), reply=ERROR, events=None, after={"de:d": Ttl(500_000, "1")}),
        case("06#11.2 n1c-own", "the same, the flag set: the lifetime goes", holder(state="wait", ttl=500_000),
             dedup(ttl=900_000, extend=True, **KEEP), reply="1", events=events,
             after={"dn:d": None, "de:d": Ttl(v.since(900_000, None), "1")}),
        case("06#11.2 n2 n2a", "a free id with a lifetime", dedup(ttl=500_000), reply="1", events=FIRST,
             after={"de:d": Ttl(500_000, "1")}),
        case("06#11.2 n2-own", "the same, the flag set", dedup(ttl=500_000, **KEEP), reply="1",
             after={"de:d": Ttl(v.since(500_000, None), "1")}),
        case("06#11.2 n2a", "a rule without an id", add(STANDARD, options={"de": {"ttl": 500_000}}), reply="1",
             events=FIRST, after={"1": Has(deid=None), "de:d": None}),
        case("06#11.2 n2c", "a holder that is finished", holder(state="completed"), dedup(), reply="1", events=events),
        late("n3", "moved by a delay", again("addDelayedJob", options={"delay": 9000}, reschedule=True), 9000,
             events=moved),
        late("n3", "moved by a standard add with a delay", again(options={"delay": 9000}, reschedule=True), 9000),
        late("n3", "moved by a prioritized add", again("addPrioritizedJob", options={"priority": 2, "delay": 9000},
             reschedule=True), 9000),
        late("n3-no-delay", "no delay: due now", again(reschedule=True), 0),
        late("n3-text", "a delay as text", again(options={"delay": "9000"}, reschedule=True), 9000),
        late("n3-text", "a delay that is no number", again(options={"delay": "x"}, reschedule=True), 0),
        late("n3-zero", "the flag is 0", again(reschedule=0), 0),
        late("n3-zero", "the flag is empty", again(reschedule=""), 0),
        late("n3-off", "the flag is false", again(reschedule=False), None),
        late("n3-extend", "extending", again(ttl=500_000, extend=True, reschedule=True), 0,
             after={"de:d": Ttl(500_000, "1")}),
        late("n3-same-ms", "to the same millisecond: one further",
             again(options={"delay": 4993}, reschedule=True), 4993, delayed={"1": due + 1},
             marker={"1": (due + 1) / 4096}),
        late("n3-cap", "the event is capped", again(reschedule=True), 0, before=[meta(**{"opts.maxLenEvents": "0"})],
             events=[]) if v.six else
        case("06#11.2 n3-cap", "nothing to cap", holder(state="delayed"), dedup(), reply="1"),
        case("06#11.2 n3-not-delayed", "a waiting holder stays", holder(state="wait"),
             again(options={"delay": 9000}, reschedule=True), reply="1", events=events, delayed=None),
        case("06#11.2 n3-active n3-after-kept", "an active holder: the job is kept", holder(),
             again(options={"delay": 9000}, reschedule=True, **KEEP), reply="1", events=events, delayed=None,
             after={"dn:d": v.only_later(Has(jid="2"))}),
        case("06#11.2 n3-after-kept", "a holder both active and delayed is kept for and moved", holder(),
             zadd("delayed", {"1": due}), again(options={"delay": 9000}, reschedule=True, **KEEP), reply="1",
             delayed={"1": v.in_six(due, (T + 9007) * 4096.0)}),
        case("06#11.2 n3-replace", "replacing comes first", holder(state="delayed"),
             again(options={"delay": 9000}, replace=True, reschedule=True), reply="2", delayed=None),
        case("06#11.2 3-text", "10^14 as an id", ("SET", f"{Q}id", "99999999999999"),
             add(STANDARD, at=text["at"]), wait=v.since(["100000000000000"], ["1e+14"]),
             after={"1e+14": Has(name="n")}),
        case("06#11.2 3-text", "10^14 as an id of a delayed job", ("SET", f"{Q}id", "99999999999999"),
             add("addDelayedJob", options={"delay": 5}),
             delayed={v.since("100000000000000", "1e+14"): float((T + 5) * 4096)}),
        case("06#11.2 3-exact", "10^14 - 1", ("SET", f"{Q}id", "99999999999998"), add(STANDARD), reply="99999999999999",
             wait=["99999999999999"]),
        case("06#11.2 10-nil", "nine elements", add(STANDARD), reply="1", wait=["1"]),
    ]


def nodes(v: Version) -> list[Case]:
    """11.3: parents, and ids of deduplication on flow nodes."""
    node = "addParentJob"
    late = holder(state="delayed")
    return [
        case("06#11.3 replace", "a delayed holder", late, dedup(node, replace=True), reply=v.since("2", "1"),
             events=v.since(["removed jobId 1 prev delayed", *v.deduplicated("2", "1"), "added jobId 2 name n",
                             "waiting-children jobId 2"], v.deduplicated("1", "2")),
             delayed=v.since(None, {"1": float((T + 5000) * 4096)})),
        case("06#11.3 replace-held", "a waiting holder", holder(state="wait"), dedup(node, replace=True), reply="1",
             events=v.only_later(v.deduplicated("1", "2"))),
        case("06#11.3 no-reschedule", "a delayed holder is not moved", late,
             dedup(node, options={"delay": 9000}, reschedule=True), reply="1",
             delayed={"1": float((T + 5000) * 4096)}),
        case("06#11.3 kept", "an active holder", holder(), dedup(node, replace=True, **KEEP), reply="1",
             after={"dn:d": v.only_later(KEPT)}),
        case("06#11.3 repaired", "a key whose job is gone", gone(), dedup(node), reply=v.in_six("gone", "1"),
             after={"waiting-children": v.in_six(None, {"1": float(T)})}),
        case("06#4.2.8 deid", "a stored id is no key", add_packed(node, Q, head(), {"de": {"id": "d"}}), reply=ERROR,
             after={"1": None}),
    ]


def releasing(v: Version) -> list[Case]:
    """L7: a holder that is removed takes what is kept for it along."""
    record = put("dn:d", name="old")
    left = v.since(Has(name="old"), None)
    ended = [*holder(state="completed"), record]
    waits = [*holder(state="wait"), record]
    child = [job("P", P), ("SADD", f"{P}P:dependencies", f"{Q}1")]
    found = [
        case("06#L7 holder", title, steps, call, after={"de:d": None, "dn:d": left, "1": None})
        for title, steps, call in (
            ("removed", ended, remove_job()),
            ("cleaned", ended, clean(until=T, limit="0")),
            ("drained", waits, drain(Q)),
            ("a child that is not done", [*waits, *child], remove_unprocessed_children(P, "P")),
        )
    ]
    return [
        *found,
        case("06#L7 holder", "obliterated", ended, pausing("paused"), obliterate(force="force"), reply=0,
             after={"de:d": None, "dn:d": left}),
        case("06#L7 other", "another holds the id", ended, ("SET", f"{Q}de:d", "9"), remove_job(), reply=1,
             after={"de:d": "9", "dn:d": Has(name="old")}),
        case("06#L7 none", "nobody holds it", ended, ("DEL", f"{Q}de:d"), remove_job(), reply=1,
             after={"dn:d": Has(name="old")}),
        case("06#L7 metrics", "a job without an id of deduplication", job("1"), push("wait", "1"), record, remove_job(),
             reply=1, after={"dn:d": Has(name="old")}),
    ]


def giving_up(v: Version) -> list[Case]:
    """`removeDeduplicationKey`."""
    if not v.later:
        return []
    record = put("dn:d", name="old")
    return [
        case("06#4.2.7 own", "its own key", holder(), record, remove_deduplication_key(), reply=1,
             after={"de:d": None, "dn:d": Has(name="old")}, events=None),
        case("06#4.2.7 other", "another's key", holder(), remove_deduplication_key(id="2"), reply=0,
             after={"de:d": "1"}),
        case("06#4.2.7 none", "no key", remove_deduplication_key(), reply=0),
        case("06#4.2.7 other", "a key of another type", push("de:d", "1"), remove_deduplication_key(), reply=ERROR),
    ]


def cases(v: Version) -> list[Case]:
    """All of them."""
    return [each for make in (setting, repairing, keeping, replacing, adding, nodes, releasing, giving_up)
            for each in make(v)]
