"""Calls that are recorded beside the directed cases: options those have no need of, and small commands."""

from __future__ import annotations

from typing import Any

from bullmq_protocol.commands.schedulers import RepeatableKey
from tests.oracle.calls import (
    COUNTED,
    Call,
    P,
    Q,
    T,
    add,
    add_log,
    add_repeatable,
    clean,
    extend_lock,
    get_counts,
    get_counts_per_priority,
    get_dependency_counts,
    get_metrics,
    get_scheduler,
    is_job_in_list,
    move_to_finished,
    paginate,
    release_lock,
    remove_repeatable,
    remove_scheduler,
    remove_unprocessed_children,
    retry_job,
    save_stacktrace,
    update_data,
    update_progress,
    update_repeatable,
)
from tests.oracle.cases import Case, case, job, meta, push, put, zadd
from tests.support import building

SECTIONS = {
    "addStandardJob": "01#7.2",
    "addDelayedJob": "01#7.3",
    "addPrioritizedJob": "01#7.4",
    "addParentJob": "01#7.5",
}
NEEDED: dict[str, dict[str, Any]] = {
    "addStandardJob": {},
    "addDelayedJob": {"delay": 5000},
    "addPrioritizedJob": {"priority": 3},
    "addParentJob": {},
}
FLAGS = {
    "fpof": "failParentOnFailure",
    "cpof": "continueParentOnFailure",
    "idof": "ignoreDependencyOnFailure",
    "rdof": "removeDependencyOnFailure",
}
CAP = {"opts.maxLenEvents": "10000"}


def adding() -> list[Case]:
    """Every option of a job, every flag of a child, every mode of deduplication, for each of the four commands."""
    found = []
    for command, section in SECTIONS.items():

        def made(title: str, *state: Any, command: str = command, section: str = section, **given: Any) -> Case:
            options = {"attempts": 0, **NEEDED[command], **given.pop("options", {})}
            return case(section, f"{command}: {title}", *state, add(command, options=options, **given))

        stored = {
            "attempts": 3,
            "backoff": {"type": "exponential", "delay": 1000, "jitter": 0.5},
            "timestamp": T,
            "jobId": "A",
            "removeOnComplete": True,
            "removeOnFail": {"age": 3600, "count": 10},
            "kl": 5,
            "stackTraceLimit": 2,
            "sizeLimit": 1000,
            "tm": "trace",
            "omc": True,
        }
        repeat = {"every": 1000, "count": 1}
        found += [
            made("options that are only stored", options=stored, id="A"),
            made(
                "a job of a scheduler",
                options={"repeat": repeat, "prevMillis": T, "jobId": f"repeat:rk:{T}"},
                id=f"repeat:rk:{T}",
                scheduler="rk",
            ),
            made("a number as backoff is `fixed`", options={"backoff": {"type": "fixed", "delay": 1000}}),
            made("a backoff of a type without delay", options={"backoff": {"type": "own"}, "removeOnFail": 5}),
            made("lifo", push("wait", "x"), options={"lifo": True}),
            made("not lifo", push("wait", "x"), options={"lifo": False}),
            made("a paused queue", meta(paused=1, **CAP), push("paused", "x")),
        ]
        if command == "addDelayedJob":
            found.append(made("a delayed job with a priority", options={"priority": 7}))
        for flag in FLAGS:
            found.append(
                made(
                    f"a child with {FLAGS[flag]}",
                    job("F", P),
                    zadd(f"{P}waiting-children", {"F": T}),
                    parent=(P, "F"),
                    flags=[flag],
                    options={"parent": {"id": "F", "queue": P[:-1]}, flag: True},
                )
            )
        for title, mode in (
            ("simple", {}),
            ("throttle", {"ttl": 600_000}),
            ("throttle with extension", {"ttl": 600_000, "extend": True}),
            ("replace", {"replace": True}),
            ("debounce", {"ttl": 600_000, "replace": True}),
            ("debounce with extension", {"ttl": 600_000, "replace": True, "extend": True}),
        ):
            options = {"de": {"id": "d", **mode}}
            owner = [job("9"), zadd("delayed", {"9": (T + 5) * 4096}), ("SET", f"{Q}de:d", "9", "PX", 300_000)]
            found += [
                made(f"deduplication, {title}: the id is free", options=options),
                made(f"deduplication, {title}: the owner is delayed", *owner, options=options),
            ]
        for title, fields in (("ready", {}), ("delayed", {"delay": 5000}), ("prioritized", {"priority": 4})):
            found.append(
                made(
                    f"a finished job becomes the last child of a parent, which is then {title}",
                    job("A", returnvalue='"v"', finishedOn=T),
                    zadd("completed", {"A": T}),
                    job("F", P, **fields),
                    zadd(f"{P}waiting-children", {"F": T}),
                    id="A",
                    parent=(P, "F"),
                    options={"parent": {"id": "F", "queue": P[:-1]}},
                )
            )
        found.append(made("a job that exists", job("A"), id="A"))
        parents = [job("F", P), job("G", P), job("A", parentKey=f"{P}G", parent='{"id":"G","queueKey":"bull:p"}')]
        linked = {"parent": {"id": "F", "queue": P[:-1]}}
        found.append(made("a job of another parent", *parents, id="A", parent=(P, "F"), options=linked))
    return found


def editing() -> list[Case]:
    return [
        case("03#5.1", "data of a job with other fields", job("1", data='{"a":1}', progress="5"), update_data()),
        case("03#5.1", "data that is text", job("1"), update_data(data='"ü"')),
        case("03#5.1", "data that is empty", job("1"), update_data(data="")),
        case("03#5.2", "an object as progress", job("1"), update_progress(progress='{"done":3,"of":7}')),
        case("03#5.2", "a number over an object", job("1", progress='{"a":1}'), update_progress(progress="100")),
        case("03#5.3", "a row that is no ASCII", job("1"), add_log(row="Grüße ✓")),
        case("03#5.3", "the newest two rows stay", job("1"), push("1:logs", "a", "b", "c"), add_log(keep="2")),
        case("03#5.4", "a stack trace over an older one", job("1", stacktrace='["a"]'), save_stacktrace()),
        case("03#5.4", "an empty reason", job("1"), save_stacktrace(trace="[]", reason="")),
        case("03#6.1", "a lock is renewed and no longer stalled", ("SET", f"{Q}1:lock", "tk", "PX", 30_000),
             ("SADD", f"{Q}stalled", "1", "2"), extend_lock(duration="60000")),
        *(
            case("03#7.3", f"the oldest two of {state}", *(job(id, timestamp=T - 10) for id in "123"),
                 push(state, "1", "2", "3") if state in ("wait", "paused", "active") else
                 zadd(state, {"1": T - 9, "2": T - 8, "3": T + 5}), clean(state=state, limit="2"))
            for state in COUNTED
        ),
        case("03#6.2", "a lock of another", ("SET", f"{Q}1:lock", "other", "PX", 30_000), release_lock()),
    ]  # fmt: skip


def reading() -> list[Case]:
    children = [
        put(f"{Q}F:processed", **{f"{Q}a": '{"x":1}', f"{Q}b": "null"}),
        ("SADD", f"{Q}F:dependencies", f"{P}c"),
        put(f"{Q}F:failed", **{f"{Q}e": "boom"}),
        ("ZADD", f"{Q}F:unsuccessful", 5, f"{Q}g", 7, f"{Q}h"),
    ]
    kinds = ("processed", "unprocessed", "ignored", "failed")
    metrics = [
        put("metrics:completed", count="7", prevTS=T, prevCount="5"),
        push("metrics:completed:data", "2", "0", "3"),
    ]
    waiting = [
        push("wait", "1", "2"),
        zadd("prioritized", {"3": 4_294_967_297, "4": 4_294_967_298, "5": 12_884_901_889}),
    ]
    return [
        case("03#9.1", "counts of lists and sets", *waiting, get_counts(Q, "wait", "prioritized", "failed", "repeat")),
        case("03#9.2", "priorities 0, 1 and 3", *waiting, get_counts_per_priority(Q, "0", "1", "3")),
        case("03#9.2", "priority 0 of a paused queue", meta(paused=1), push("paused", "1"),
             get_counts_per_priority(Q, "0")),
        case("03#9.2", "the largest priority, which nobody has", *waiting, get_counts_per_priority(Q, "2097152")),
        case("03#9.6", "first of wait", push("wait", "1", "2"), is_job_in_list(Q, "wait", "1")),
        case("03#9.6", "in another list", push("wait", "1", "2"), is_job_in_list(Q, "active", "1")),
        case("03#9.6", "in active", push("active", "1", "2"), is_job_in_list(Q, "active", "2")),
        case("03#9.7", "all points", *metrics, get_metrics(Q, "completed")),
        case("03#9.7", "the newest point", *metrics, get_metrics(Q, "completed", end="0")),
        case("03#9.7", "points of the other outcome", *metrics, get_metrics(Q, "failed")),
        case("03#9.7", "a count without points", put("metrics:failed", count="1"), get_metrics(Q, "failed")),
        case("03#9.8", "all kinds of children", *children, get_dependency_counts(Q, "F", *kinds)),
        case("03#9.8", "no children", get_dependency_counts(Q, "F", *kinds)),
        *(case("03#9.8", f"one kind: {kind}", *children, get_dependency_counts(Q, "F", kind)) for kind in kinds),
        *(
            case("03#9.9", f"a page of {kind}, {title}", *children, job("a"), paginate(f"{Q}F:{kind}", *args))
            for kind in ("processed", "dependencies", "failed")
            for title, args in (("all", ()), ("the first", ("0", "0")), ("past the end", ("5", "9")))
            if kind != "failed" or not args
        ),
        case("03#9.9", "a page with hashes", *children, job("a"),
             paginate(f"{Q}F:processed", "0", "-1", "0", "0", "5", "1")),
        case("03#9.9", "a page of a child that is gone, with hashes", *children,
             paginate(f"{Q}F:dependencies", "0", "-1", "0", "0", "5", "1")),
        case("03#9.9", "a page of nothing", paginate(f"{Q}F:processed")),
    ]  # fmt: skip


def scheduling() -> list[Case]:
    key = RepeatableKey(name="n", rule="1000")
    cron = RepeatableKey(name="n", job_id="j", end_date=T + 10**9, tz="Europe/Paris", rule="0 0 1 1 *")
    every = {"name": "n", "endDate": None, "tz": None, "pattern": None, "every": 1000}
    pattern = {"name": "n", "endDate": T + 10**9, "tz": "Europe/Paris", "pattern": "0 0 1 1 *", "every": None}
    old = [zadd("repeat", {key.concatenated: T})]
    new = [zadd("repeat", {key.hashed: T}), put(f"repeat:{key.hashed}", name="n", every="1000")]

    def pending(id: str) -> list[Any]:
        return [job(id), zadd("delayed", {id: T * 4096})]

    def adds(title: str, of: RepeatableKey, schedule: Any, *state: Any) -> Case:
        call = add_repeatable(Q, of.hashed, of.concatenated, slot=T + 1000, schedule=schedule)
        return case("04#6.2", title, *state, call)

    def removes(title: str, *state: Any, by_key: str | None = None) -> Case:
        return case("04#6.2", title, *state, removal(key, by_key))

    record = [zadd("repeat", {"s": T}), put("repeat:s", name="sj", every="1000", ic="2", data='{"a":1}')]
    return [
        adds("a repeatable job with an interval", key, every),
        adds("a repeatable job with a pattern", cron, pattern),
        adds("a repeatable job that is there, its job delayed", key, every, *new, *pending(f"repeat:{key.hashed}:{T}")),
        adds("a repeatable job of the oldest kind", key, every, *old),
        case("04#6.2", "the next slot of a member", *new, update_repeatable(Q, key.hashed, key.concatenated)),
        case("04#6.2", "the next slot of the oldest kind", *old, update_repeatable(Q, key.hashed, key.concatenated)),
        case("04#6.2", "the next slot of nothing", update_repeatable(Q, key.hashed, key.concatenated)),
        case("04#6.2", "the next slot, another is there", zadd("repeat", {"s": T}),
             update_repeatable(Q, key.hashed, key.concatenated, slot=T + 1000)),
        removes("a repeatable job is removed", *new),
        removes("a repeatable job is removed with its delayed job", *new, *pending(f"repeat:{key.hashed}:{T}")),
        removes("a repeatable job of the oldest kind is removed", *old),
        removes("no repeatable job is removed"),
        removes("a repeatable job is removed by its key", *new, by_key=key.hashed),
        removes("the oldest kind is removed by its key", *old, by_key=key.concatenated),
        removes("a scheduler is removed by its key", *record, by_key="s"),
        case("04#3.3", "a scheduler with its delayed job", *record, *pending(f"repeat:s:{T}"), remove_scheduler()),
        case("04#3.3", "a scheduler whose job waits", *record, job(f"repeat:s:{T}"), push("wait", f"repeat:s:{T}"),
             remove_scheduler()),
        case("04#3.4", "a scheduler with a record", *record, get_scheduler()),
        case("04#3.4", "a scheduler with a template", zadd("repeat", {"s": T}),
             put("repeat:s", name="sj", pattern="* * * * *", tz="UTC", limit="5", opts='{"attempts":3}'),
             get_scheduler()),
        case("04#3.4", "another scheduler", *record, get_scheduler(Q, "other")),
    ]  # fmt: skip


def removal(key: RepeatableKey, by_key: str | None) -> Call:
    """The arguments as 04 §6.2 gives them, by our own builder."""
    made = building.build(
        "removeRepeatable",
        {"prefix": "bull", "queue": "q", **({"member": by_key} if by_key else {"key": {"name": "n", "rule": "1000"}})},
    )
    stem, concatenated, member, _ = made.args
    return remove_repeatable(Q, str(member), str(concatenated), oldest_id=str(stem))


def families() -> list[Case]:
    parent = [job("F"), zadd("waiting-children", {"F": T})]

    def child(id: str, place: Any) -> list[Any]:
        return [job(id, parentKey=f"{Q}F"), place, ("SADD", f"{Q}F:dependencies", f"{Q}{id}")]

    return [
        case("03#8.2", "a waiting child", *parent, *child("1", push("wait", "1")), remove_unprocessed_children(Q, "F")),
        case("03#8.2", "a delayed child with logs", *parent, *child("1", zadd("delayed", {"1": T * 4096})),
             push("1:logs", "a"), remove_unprocessed_children(Q, "F")),
        case("03#8.2", "a locked child stays", *parent, *child("1", push("active", "1")),
             ("SET", f"{Q}1:lock", "tk", "PX", 30_000), remove_unprocessed_children(Q, "F")),
        case("03#8.2", "a failed child stays", *parent, *child("1", zadd("failed", {"1": T})),
             remove_unprocessed_children(Q, "F")),
        case("03#8.2", "no children", *parent, remove_unprocessed_children(Q, "F")),
    ]  # fmt: skip


def finishing() -> list[Case]:
    gap = put("metrics:completed", count=3, prevTS=T - 7_003 * 60_000, prevCount=1)
    held = [job("1"), push("active", "1"), ("SET", f"{Q}1:lock", "tk", "PX", 300_000)]
    failure = ["failedReason", "boom", "stacktrace", '["at x"]']
    return [
        case("02#W17", "more points than go into one command", *held, gap, move_to_finished(maxMetricsSize=7001)),
        case("02#W9", "trace context of a failed attempt", *held,
             move_to_finished(outcome="failed", value="boom", update=[*failure, "tm", "trace"])),
        case("02#W9", "trace context of an attempt that is retried", *held,
             retry_job(update=[*failure, "tm", "trace"])),
    ]  # fmt: skip


CASES: tuple[Case, ...] = (*finishing(), *adding(), *editing(), *reading(), *scheduling(), *families())
