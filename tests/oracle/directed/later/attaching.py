"""Children that exist, releases of parents, and children run again: part 06, sections 11.1 (L8), 11.4, 11.10, 11.18."""

from __future__ import annotations

from typing import Any

from tests.oracle.calls import Call, P, Q, T, add, add_packed, move_jobs_to_wait, reprocess_job
from tests.oracle.cases import ERROR, Case, Error, Has, case, job, meta, push, put, zadd
from tests.oracle.directed.adding import COMMANDS, STANDARD, head
from tests.oracle.directed.later.versions import Version
from tests.oracle.later_calls import deferring, release_parent, resetting

# fmt: off
BRANCHES = {
    "06#11.4": "1-absent 1-equal 1-no-parent 2 2-empty 2-none 3 3-deferring 3-none 4 completed completed-last "
    "completed-deferring not-completed pending-none flag-zero flag-false no-returnvalue link-nil link-nil-deferring "
    "missing",
    "06#4.9.3": "1 1-empty 2-pending 2-missing 2-not-waiting 2 2-delayed 2-priority 2-paused 2-type 3 seventh",
    "06#L8": "no-parent parent-gone unsuccessful ignored nothing completed completed-nothing other-state bulk "
    "bulk-delayed",
    "06#11.10": "1-missing 1-not-there 2 2-made 2-started 2-both 2-odd 3-priority 3-priority-text 3-list 3-lifo 3-held "
    "4 5 bulk-priority",
}

PARENT = '{"id":"P","queueKey":"bull:p"}'
WAITING = f"{P}waiting-children"
PENDING = f"{P}P:dependencies"


def waiting_parent(*pending: str, base: str = P, **fields: Any) -> list[Any]:
    """Parent P, which waits for children."""
    made = [job("P", base, **fields), zadd(f"{base}waiting-children", {"P": T})]
    return [*made, ("SADD", f"{base}P:dependencies", *pending)] if pending else made


def child_of(command: str = STANDARD, id: str = "A", **given: Any) -> Call:
    """Add a child of P."""
    return add(command, id=id, parent=(P, "P"), options={"delay": 5, "priority": 3}, **given)


def existing(v: Version) -> list[Case]:
    """11.4."""
    duplicated = ["duplicated jobId A"]
    moved = {"1": None, "id": "1", "events": duplicated}
    linked = Has(parentKey=f"{P}P", parent=PARENT)
    done = [job("A", returnvalue='"r"'), zadd("completed", {"A": T})]
    free = {f"{P}events": ["waiting jobId P prev waiting-children"], WAITING: None, f"{P}wait": ["P"]}
    held = {f"{P}events": None, WAITING: {"P": float(T)}, f"{P}wait": None}
    elsewhere = job("A", parentKey=f"{P}X", parent="x")
    found = [
        case("06#11.4 missing", "the parent is missing", job("A"), child_of(), reply=-5, id=None),
        case("06#11.4 1-absent 4 not-completed", "a child without a parent", waiting_parent(), job("A"), child_of(),
             reply="A", after={"A": linked, PENDING: {f"{Q}A"}, **moved}),
        case("06#11.4 1-equal", "a child of this parent", waiting_parent(), job("A", parentKey=f"{P}P"), child_of(),
             reply="A", after={"A": linked, PENDING: {f"{Q}A"}}),
        case("06#11.4 1-no-parent", "no parent was asked for", job("A"), add(STANDARD, id="A"), reply="A",
             after={"A": Has(parentKey=None), "events": duplicated}),
        case("06#11.4 2", "the old parent is gone", waiting_parent(), elsewhere, child_of(), reply="A",
             after={"A": v.in_six(Has(parentKey=f"{P}X", parent="x"), linked), PENDING: v.in_six(None, {f"{Q}A"}),
                    "events": duplicated}),
        case("06#11.4 2-empty", "the old parent is an empty text", waiting_parent(), job("A", parentKey=""), child_of(),
             reply="A", after={"A": v.in_six(Has(parentKey=""), linked), PENDING: v.in_six(None, {f"{Q}A"})}),
        case("06#11.4 2-none", "the old parent is gone, and none was asked for", elsewhere, add(STANDARD, id="A"),
             reply="A", after={"A": Has(parentKey=f"{P}X", parent="x")}),
        case("06#11.4 2 completed", "the old parent is gone, and the child is done", waiting_parent("x"), elsewhere,
             done, child_of(), reply="A",
             after={f"{P}P:processed": v.in_six(None, {f"{Q}A": '"r"'}), **held}),
        case("06#11.4 3", "the old parent is there", waiting_parent(), job("X", P), elsewhere, child_of(), reply=-7,
             after={"P:events": None, "events": None, f"{P}P": Has(flowAttachmentFailed=None), PENDING: None}),
        case("06#11.4 3-none", "the old parent is there, and none was asked for", job("X", P), elsewhere,
             add(STANDARD, id="A"), reply="A", events=duplicated),
        case("06#11.4 completed-last", "a child that is done was the last", waiting_parent(), done, child_of(),
             reply="A", after={f"{P}P:processed": {f"{Q}A": '"r"'}, "A": linked, **free}),
        case("06#11.4 completed", "a child that is done, others are not", waiting_parent("x"), done, child_of(),
             reply="A", after={f"{P}P:processed": {f"{Q}A": '"r"'}, **held}),
        case("06#11.4 pending-none", "no set of children", waiting_parent(), job("A"),
             add_packed(STANDARD, Q, head(id="A", key=f"{P}P", link={"id": "P", "queueKey": "bull:p"}), {}),
             reply="A", after={"A": linked, PENDING: None}),
        case("06#11.4 no-returnvalue", "a done child without a value", waiting_parent(), job("A"),
             zadd("completed", {"A": T}), child_of(), reply=ERROR, after={f"{P}P:processed": None}),
        case("06#11.4 link-nil", "a done child, and no object of the parent", waiting_parent(), done,
             add_packed(STANDARD, Q, head(id="A", key=f"{P}P", pending=PENDING), {}), reply=ERROR,
             after={f"{P}P:processed": None, "A": Has(parentKey=None)}),
    ]
    found += [case("06#11.4 missing", f"{command}, the parent is missing", child_of(command), reply=-5, id=None)
              for command in COMMANDS]
    if v.later:
        late = v.in_six(free, held)
        found += [
            case("06#11.4 completed-deferring", "deferring, a child that is done was the last", waiting_parent(), done,
                 deferring(child_of()), reply="A", after={f"{P}P:processed": {f"{Q}A": '"r"'}, "A": linked, **late}),
            case("06#11.4 flag-zero", "0 defers", waiting_parent(), done, deferring(child_of(), 0), after=late),
            case("06#11.4 flag-zero", "an empty text defers", waiting_parent(), done, deferring(child_of(), ""),
                 after=late),
            case("06#11.4 flag-false", "false does not", waiting_parent(), done, deferring(child_of(), False),
                 after=free),
            case("06#11.4 3-deferring", "deferring, the old parent is there", waiting_parent(), job("X", P), elsewhere,
                 deferring(child_of()), reply=-7, after={f"{P}P": Has(flowAttachmentFailed=v.in_six(None, "1"))}),
            case("06#11.4 link-nil-deferring", "deferring, a done child, and no object of the parent",
                 waiting_parent(), done,
                 deferring(add_packed(STANDARD, Q, head(id="A", key=f"{P}P", pending=PENDING), {})),
                 reply=v.in_six(ERROR, "A"), after={"A": Has(parentKey=v.in_six(None, f"{P}P"),
                                                             parent=v.in_six(None, "null"))}),
        ]
        found += [
            case("06#11.4 completed-deferring", f"deferring, {command}", waiting_parent(), done,
                 deferring(child_of(command)), after=late)
            for command in COMMANDS
        ]
        found += [
            case("06#11.4 3-deferring", f"deferring, {command}, the old parent is there", waiting_parent(),
                 job("X", P), elsewhere, deferring(child_of(command)), reply=-7,
                 after={f"{P}P": Has(flowAttachmentFailed=v.in_six(None, "1"))})
            for command in COMMANDS
        ]
    return found


def releases(v: Version) -> list[Case]:
    """4.9.3, which 6.7.0 has alone."""
    if not v.six:
        # nothing of it: the branches are those of the new command
        return []
    waits = {WAITING: {"P": float(T)}, f"{P}wait": None, f"{P}events": None}
    flag = {"flowAttachmentFailed": "1"}
    return [
        case("06#4.9.3 1", "an attachment failed", waiting_parent(**flag), release_parent(), reply=None,
             after={f"{P}P": Has(flowAttachmentFailed=None, name="n"), **waits}),
        case("06#4.9.3 1-empty", "an empty field counts", waiting_parent(flowAttachmentFailed=""), release_parent(),
             reply=None, after={f"{P}P": Has(flowAttachmentFailed=None), **waits}),
        case("06#4.9.3 1 3", "asked twice", waiting_parent(**flag), release_parent(), release_parent(), reply=None,
             after={WAITING: None, f"{P}wait": ["P"]}),
        case("06#4.9.3 2-pending", "a child is pending", waiting_parent("x"), release_parent(), reply=None,
             after=waits),
        case("06#4.9.3 2-missing", "no such parent", zadd(WAITING, {"P": T}), release_parent(), reply=None,
             after=waits),
        case("06#4.9.3 2-not-waiting", "the parent does not wait", job("P", P), push(f"{P}wait", "P"), release_parent(),
             reply=None, after={f"{P}events": None, f"{P}wait": ["P"]}),
        case("06#4.9.3 2 3", "nothing is pending", waiting_parent(), push(f"{P}wait", "w"), release_parent(),
             reply=None, after={WAITING: None, f"{P}wait": ["w", "P"], f"{P}marker": {"0": 0},
                                f"{P}events": ["waiting jobId P prev waiting-children"]}),
        case("06#4.9.3 2-delayed", "a parent with a delay", waiting_parent(delay=1000), release_parent(), reply=None,
             after={f"{P}delayed": {"P": (T + 1000) * 4096.0}, f"{P}marker": {"1": T + 1000.0},
                    f"{P}events": [f"delayed jobId P delay {T + 1000}"]}),
        case("06#4.9.3 2-priority", "a parent with a priority", waiting_parent(priority=3), release_parent(),
             reply=None, after={f"{P}prioritized": {"P": 3 * 2.0**32 + 1}, f"{P}pc": "1"}),
        case("06#4.9.3 2-paused", "its queue is paused", waiting_parent(), meta(P, paused=1), release_parent(),
             reply=None, after={f"{P}wait": ["P"], f"{P}paused": None, f"{P}marker": None}),
        case("06#4.9.3 2-type", "its children are no set", waiting_parent(), push(PENDING, "x"), release_parent(),
             reply=Error("WRONGTYPE")),
        case("06#4.9.3 seventh", "the example of section 12, row 7", job("P"), waiting_parent(base=Q)[1],
             job("P2"), ("ZADD", f"{Q}waiting-children", T, "P2"), job("c", parentKey=f"{Q}P"),
             deferring(add(STANDARD, id="c", parent=(Q, "P2"))), release_parent(Q, "P2"), reply=None, events=None,
             after={"waiting-children": {"P": float(T), "P2": float(T)}, "P2": Has(flowAttachmentFailed=None)}),
    ]


def again(v: Version) -> list[Case]:
    """L8 and 11.10."""
    child = job("1", parentKey=f"{P}P", parent=PARENT, atm=3, ats=4, failedReason="r", finishedOn=5, processedOn=6)
    failed = [child, zadd("failed", {"1": T})]
    done = [job("1", parentKey=f"{P}P", parent=PARENT, returnvalue="r"), zadd("completed", {"1": T})]
    parent = job("P", P)
    key = f"{Q}1"
    bulk = move_jobs_to_wait()
    waiting = {"events": ["waiting jobId 1 prev failed"]}
    back = {PENDING: {key}}

    def retried(covers: str, title: str, made: Any = 0, started: Any = 0, **left: Any) -> Case:
        fields = {"finishedOn": None, "processedOn": None, "failedReason": None, "atm": "3", "ats": "4"}
        return case(f"06#11.10 {covers}", title, failed, resetting(reprocess_job(), made, started), reply=1,
                    wait=["1"], failed=None, after={"1": Has({**fields, **(left if v.later else {})}), **waiting})

    return [
        case("06#11.10 1-missing", "no such job", zadd("failed", {"1": T}), reprocess_job(), reply=-1),
        case("06#11.10 1-not-there", "a job that has not failed", child, reprocess_job(), reply=-3, wait=None),
        retried("2 3-list 5", "nothing is reset", "0", "0"),
        retried("2-made", "the attempts made are", "1", "0", atm=None),
        retried("2-started", "the attempts started are", "0", "1", ats=None),
        retried("2-both", "both are", "1", "1", atm=None, ats=None),
        retried("2-odd", "anything but 1 resets nothing", "true", ""),
        case("06#11.10 3-priority", "a job with a priority", job("1", priority=2), zadd("failed", {"1": T}),
             reprocess_job(push="RPUSH"), reply=1, marker={"0": 0},
             **({"prioritized": {"1": 2 * 2.0**32 + 1}, "pc": "1", "wait": None} if v.six else
                {"prioritized": None, "wait": ["1"]})),
        case("06#11.10 3-priority 3-held", "a job with a priority, paused", meta(paused=1), job("1", priority=2),
             zadd("failed", {"1": T}), reprocess_job(), reply=1, marker=None,
             prioritized=v.in_six(None, {"1": 2 * 2.0**32 + 1})),
        case("06#11.10 3-priority-text", "a priority that is no number", job("1", priority="x"),
             zadd("failed", {"1": T}), reprocess_job(), reply=1, wait=["1"]),
        case("06#11.10 3-priority", "a negative priority", job("1", priority=-1), zadd("failed", {"1": T}),
             reprocess_job(), reply=1, wait=v.in_six(["1"], None), prioritized=v.in_six(None, {"1": 1.0 - 2.0**32})),
        case("06#11.10 3-lifo", "from the right", failed, push("wait", "w"), reprocess_job(push="RPUSH"), reply=1,
             wait=["w", "1"]),
        case("06#11.10 3-held", "as many active as may be", failed, meta(concurrency=0), reprocess_job(), reply=1,
             marker=None),
        case("06#L8 no-parent; 06#11.10 4", "no parent", job("1"), zadd("failed", {"1": T}), reprocess_job(), reply=1),
        case("06#L8 parent-gone", "the parent is gone", failed, reprocess_job(), reply=1, after={PENDING: None}),
        case("06#L8 unsuccessful", "a failure that its parent waits beside", failed, parent,
             zadd(f"{P}P:unsuccessful", {key: T}), reprocess_job(), reply=1,
             after={f"{P}P:unsuccessful": None, **back, **waiting}),
        case("06#L8 ignored", "an ignored failure", failed, parent, put(f"{P}P:failed", **{key: "r"}), reprocess_job(),
             reply=v.since(Error("WRONGTYPE"), 1), wait=["1"],
             after={f"{P}P:failed": v.since({key: "r"}, None), PENDING: v.since(None, {key}),
                    "events": v.only_later(waiting["events"])}),
        case("06#L8 nothing", "a failure that its parent does not know", failed, parent,
             reprocess_job(), reply=1, after={PENDING: None, **waiting}),
        case("06#L8 completed", "a child that is done", done, parent, put(f"{P}P:processed", **{key: "r"}),
             reprocess_job(state="completed"), reply=1, after={f"{P}P:processed": None, **back}),
        case("06#L8 completed-nothing", "a child that is done, which its parent does not know", done, parent,
             reprocess_job(state="completed"), reply=1, after={PENDING: None}),
        case("06#L8 bulk", "many: one of them an ignored failure", failed, parent, put(f"{P}P:failed", **{key: "r"}),
             bulk, reply=0, wait=["1"], after={f"{P}P:failed": v.in_six({key: "r"}, None),
                                               PENDING: v.in_six(None, {key})}),
        case("06#L8 bulk", "many: one that its parent waits beside", failed, parent,
             zadd(f"{P}P:unsuccessful", {key: T}), bulk, reply=0,
             after={f"{P}P:unsuccessful": v.in_six({key: float(T)}, None), PENDING: v.in_six(None, {key})}),
        case("06#L8 bulk", "many: one that is done", done, parent, put(f"{P}P:processed", **{key: "r"}),
             move_jobs_to_wait(state="completed"), reply=0,
             after={f"{P}P:processed": v.in_six({key: "r"}, None), PENDING: v.in_six(None, {key})}),
        case("06#L8 bulk-delayed", "many: delayed ones are put back nowhere", child, zadd("delayed", {"1": T * 4096}),
             parent, put(f"{P}P:processed", **{key: "r"}), move_jobs_to_wait(state="delayed"), reply=0, wait=["1"],
             after={PENDING: None, f"{P}P:processed": {key: "r"}}),
        case("06#L8 other-state bulk", "many: another state's child stays", child, zadd("failed", {"1": T}), parent,
             put(f"{P}P:processed", **{key: "r"}), bulk, reply=0, after={PENDING: None}),
        case("06#11.10 bulk-priority", "many: a priority is not looked at", job("1", priority=2),
             zadd("failed", {"1": T}), bulk, reply=0, wait=["1"], prioritized=None),
    ]


def cases(v: Version) -> list[Case]:
    """All of them."""
    return [each for make in (existing, releases, again) for each in make(v)]
