"""Calls of the commands: KEYS and ARGV in the order the specification gives (01 §7, 02 §4-8, 03 §3-9, 04 §3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

T = 1_700_000_000_000
"""The moment at which the cases happen, ms."""

Q = "bull:q:"
"""Base prefix of the queue most cases use."""

P = "bull:p:"
"""Base prefix of a second queue."""

Arg = str | bytes | int | float
Command = tuple[Arg, ...]

COUNTED = ("wait", "paused", "active", "delayed", "prioritized", "completed", "failed", "waiting-children")
"""The states a client counts."""


@dataclass(frozen=True, slots=True)
class Call:
    """One script call."""

    name: str
    keys: tuple[Arg, ...]
    args: tuple[Arg, ...]

    def with_arg(self, index: int, value: Arg) -> Call:
        """Return the call with one ARGV replaced (0 is ARGV[1])."""
        return replace(self, args=(*self.args[:index], value, *self.args[index + 1 :]))


def pack(value: Any) -> bytes:
    """Encode as MessagePack."""
    return msgspec.msgpack.encode(value)


def _keys(base: str, names: str) -> tuple[Arg, ...]:
    return tuple(base + name for name in names.split())


ADD_KEYS = {
    "addStandardJob": "wait paused meta id completed delayed active events marker",
    "addDelayedJob": "marker meta id delayed completed events",
    "addPrioritizedJob": "marker meta id prioritized delayed completed active events pc",
    "addParentJob": "meta id delayed waiting-children completed events",
}


def add_packed(command: str, base: str, head: Any, options: Any, data: Arg = "{}") -> Call:
    """Build an add command from the two packed arguments as they are (bytes stay as they are)."""
    first = head if isinstance(head, bytes) else pack(head)
    third = options if isinstance(options, bytes) else pack(options)
    return Call(command, _keys(base, ADD_KEYS[command]), (first, data, third))


def add(
    command: str,
    base: str = Q,
    *,
    id: Any = "",
    name: Any = "n",
    at: Any = T,
    data: Arg = "{}",
    options: Mapping[str, Any] | None = None,
    parent: tuple[str, str] | None = None,
    flags: Sequence[str] = (),
    scheduler: Any = None,
) -> Call:
    """Add a job; `parent` is (base prefix, id), `flags` are its failure flags, the key of `de.id` follows from it."""
    options = {"attempts": 0} if options is None else options
    key = pending = link = None
    if parent is not None:
        key = parent[0] + parent[1]
        pending = key + ":dependencies"
        link = {"id": parent[1], "queueKey": parent[0][:-1], **dict.fromkeys(flags, True)}
    dedup = options.get("de")
    dedup_id = dedup.get("id") if isinstance(dedup, Mapping) else None
    dedup_key = None if dedup_id is None else f"{base}de:{dedup_id}"
    head = [base, id, name, at, key, pending, link, scheduler, dedup_key]
    return add_packed(command, base, head, options, data)


FETCH_KEYS = "wait active prioritized events stalled limiter delayed paused meta pc marker"


def move_to_active(base: str = Q, *, at: Arg = T, **options: Any) -> Call:
    """Fetch the next job; `options` go into the packed map."""
    packed = {"token": "tk", "lockDuration": 30000} | options
    return Call("moveToActive", _keys(base, FETCH_KEYS), (base, str(at), pack(packed)))


def move_to_finished(
    base: str = Q,
    id: str = "1",
    *,
    outcome: str = "completed",
    value: Arg = "V",
    at: Arg = T,
    fetch: Arg = "0",
    update: Any = None,
    packed: bytes | None = None,
    **options: Any,
) -> Call:
    """Finish an active job; `update` is the field update, `options` go into the packed map (`packed` replaces it)."""
    field = "returnvalue" if outcome == "completed" else "failedReason"
    full = {"token": "tk", "lockDuration": 30000, "keepJobs": {"count": -1}, "attempts": 1, "maxMetricsSize": ""}
    third = pack(full | options) if packed is None else packed
    keys = (
        *_keys(base, f"wait active prioritized events stalled limiter delayed paused meta pc {outcome}"),
        base + id,
        f"{base}metrics:{outcome}",
        f"{base}marker",
    )
    extra = update if isinstance(update, bytes) else b"" if update is None else pack(update)
    return Call("moveToFinished", keys, (id, str(at), field, value, outcome, fetch, base, third, extra))


def stalled_check(base: str = Q, *, most: Arg = "1", at: Arg = T, interval: Arg = "30000") -> Call:
    """Run the stalled check."""
    keys = _keys(base, "stalled wait active stalled-check meta paused marker events")
    return Call("moveStalledJobsToWait", keys, (most, base, str(at), interval))


def extend_lock(base: str = Q, id: str = "1", *, token: Arg = "tk", duration: Arg = "30000") -> Call:
    """Renew one lock."""
    return Call("extendLock", (f"{base}{id}:lock", f"{base}stalled"), (token, duration, id))


def extend_locks(base: str = Q, *, tokens: Any, ids: Any, duration: Arg = "30000") -> Call:
    """Renew many locks."""
    first = tokens if isinstance(tokens, bytes) else pack(tokens)
    second = ids if isinstance(ids, bytes) else pack(ids)
    return Call("extendLocks", (f"{base}stalled",), (base, first, second, duration))


def release_lock(base: str = Q, id: str = "1", *, token: Arg = "tk") -> Call:
    """Release a lock."""
    return Call("releaseLock", (f"{base}{id}:lock",), (token, "30000"))


def rate_limit_ttl(base: str = Q, most: Arg = "0") -> Call:
    """Read how long the queue is rate limited."""
    return Call("getRateLimitTtl", (f"{base}limiter", f"{base}meta"), (most,))


def is_maxed(base: str = Q) -> Call:
    """Read whether the global concurrency is used up."""
    return Call("isMaxed", (f"{base}meta", f"{base}active"), ())


def move_to_delayed(
    base: str = Q,
    id: str = "1",
    *,
    at: Arg = T,
    delay: Arg = "0",
    token: Arg = "tk",
    skip: Arg = "0",
    update: Any = None,
) -> Call:
    """Move an active job to delayed."""
    keys = (*_keys(base, "marker active prioritized delayed"), base + id, *_keys(base, "events meta stalled"))
    extra = update if isinstance(update, bytes) else b"" if update is None else pack(update)
    return Call("moveToDelayed", keys, (base, str(at), id, token, delay, skip, extra))


def retry_job(
    base: str = Q, id: str = "1", *, at: Arg = T, push: Arg = "LPUSH", token: Arg = "tk", update: Any = None
) -> Call:
    """Put an active job back at once."""
    keys = (
        *_keys(base, "active wait paused"),
        base + id,
        *_keys(base, "meta events delayed prioritized pc marker stalled"),
    )
    extra = update if isinstance(update, bytes) else b"" if update is None else pack(update)
    return Call("retryJob", keys, (base, str(at), push, id, token, extra))


def back_to_wait(base: str = Q, id: str = "1", *, token: Arg = "tk") -> Call:
    """Give an active job back."""
    keys = _keys(base, "active wait stalled paused meta limiter prioritized marker events")
    return Call("moveJobFromActiveToWait", keys, (id, token, base + id))


SCHEDULER_KEYS = "repeat delayed wait paused meta prioritized marker id events pc"


def update_scheduler(
    base: str = Q,
    scheduler: str = "s",
    *,
    slot: Arg = "",
    data: Arg = "{}",
    options: Any = None,
    at: Arg = T,
    producer: str | None = None,
    producer_key: str | None = None,
) -> Call:
    """Advance a scheduler; `producer` is the id of the fetched job, `producer_key` its key if not the usual one."""
    id = "" if producer is None else producer
    key = ("" if producer is None else base + producer) if producer_key is None else producer_key
    packed = options if isinstance(options, bytes) else pack({} if options is None else options)
    keys = (*_keys(base, SCHEDULER_KEYS), key, f"{base}active")
    return Call("updateJobScheduler", keys, (slot, scheduler, data, packed, str(at), base, id))


def get_counts(base: str = Q, *names: Arg) -> Call:
    """Count jobs per state."""
    return Call("getCounts", (base,), names)


STATE_KEYS = "completed failed delayed active wait paused waiting-children prioritized"


def get_state(base: str = Q, id: Arg = "1", *, version: str = "getStateV2") -> Call:
    """Find the state of a job."""
    return Call(version, _keys(base, STATE_KEYS), (id,))


def is_finished(base: str = Q, id: str = "1", *, full: Arg = "") -> Call:
    """Ask whether a job is finished."""
    return Call("isFinished", (f"{base}completed", f"{base}failed", base + id), (id, full))


def update_progress(base: str = Q, id: str = "1", progress: Arg = "50") -> Call:
    """Set the progress."""
    return Call("updateProgress", (base + id, f"{base}events", f"{base}meta"), (id, progress))


def update_data(base: str = Q, id: str = "1", data: Arg = "{}") -> Call:
    """Set the data."""
    return Call("updateData", (base + id,), (data,))


def add_log(base: str = Q, id: str = "1", row: Arg = "row", keep: Arg = "") -> Call:
    """Append a log row."""
    return Call("addLog", (base + id, f"{base}{id}:logs"), (id, row, keep))


def save_stacktrace(base: str = Q, id: str = "1", trace: Arg = '["a"]', reason: Arg = "boom") -> Call:
    """Store a stack trace and a reason."""
    return Call("saveStacktrace", (base + id,), (trace, reason))


def pause(base: str = Q, *, on: bool = True) -> Call:
    """Pause or resume the queue."""
    first = "wait paused" if on else "paused wait"
    return Call(
        "pause", _keys(base, f"{first} meta prioritized events delayed marker"), ("paused" if on else "resumed",)
    )


def remove_job(base: str = Q, id: str = "1", *, children: Arg = "1") -> Call:
    """Remove a job, by default with its children."""
    return Call("removeJob", (base + id, f"{base}repeat"), (id, children, base))


def obliterate(base: str = Q, *, count: Arg = "1000", force: Arg = "") -> Call:
    """Destroy a paused queue."""
    return Call("obliterate", (f"{base}meta", base), (count, force))


def move_to_waiting_children(base: str = Q, id: str = "1", *, token: Arg = "tk", at: Arg = T, child: Arg = "") -> Call:
    """Park an active parent."""
    job = base + id
    keys = (
        *_keys(base, "active waiting-children"),
        job,
        f"{job}:dependencies",
        f"{job}:unsuccessful",
        *_keys(base, "stalled events"),
    )
    return Call("moveToWaitingChildren", keys, (token, child, str(at), id, base))


def promote(base: str = Q, id: str = "1") -> Call:
    """Make a delayed job ready."""
    return Call("promote", _keys(base, "delayed wait paused meta prioritized active pc events marker"), (base, id))


def change_delay(base: str = Q, id: str = "1", *, delay: Arg, at: Arg = T) -> Call:
    """Change the delay of a delayed job."""
    return Call("changeDelay", _keys(base, "delayed meta marker events"), (delay, str(at), id, base + id))


def change_priority(base: str = Q, id: str = "1", *, priority: Arg, lifo: Arg = "0") -> Call:
    """Change the priority of a job."""
    return Call(
        "changePriority", _keys(base, "wait paused meta prioritized active pc marker"), (priority, base, id, lifo)
    )


def reprocess_job(base: str = Q, id: str = "1", *, state: str = "failed", push: Arg = "LPUSH") -> Call:
    """Run a finished job again."""
    field = "failedReason" if state == "failed" else "returnvalue"
    keys = (base + id, *_keys(base, f"events {state} wait meta paused active marker"))
    return Call("reprocessJob", keys, (id, push, field, state))


def move_jobs_to_wait(
    base: str = Q, state: str = "failed", *, count: Arg = "1000", until: Arg = "1.7976931348623157e+308"
) -> Call:
    """Move a batch of finished or delayed jobs to wait."""
    keys = (base, *_keys(base, f"events {state} wait paused meta active marker"))
    return Call("moveJobsToWait", keys, (count, until, state))


def drain(base: str = Q, *, delayed: Arg = "0") -> Call:
    """Remove what waits."""
    return Call("drain", _keys(base, "wait paused delayed prioritized repeat"), (base, delayed))


def clean(base: str = Q, state: str = "completed", *, until: Arg = T, limit: Arg = "0") -> Call:
    """Remove old jobs of a state."""
    return Call("cleanJobsInSet", _keys(base, f"{state} events repeat"), (base, str(until), limit, state))


def remove_child_dependency(child: str, parent: str, base: str = Q) -> Call:
    """Break the link between two jobs, given by their keys."""
    return Call("removeChildDependency", (base,), (child, parent))


def remove_unprocessed_children(base: str = Q, id: str = "1") -> Call:
    """Remove the children that are neither finished nor locked."""
    return Call("removeUnprocessedChildren", (base + id, f"{base}meta"), (base, id))


def is_job_in_list(base: str = Q, name: str = "wait", id: str = "1") -> Call:
    """Look for an id in a list."""
    return Call("isJobInList", (base + name,), (id,))


def get_counts_per_priority(base: str = Q, *priorities: Arg) -> Call:
    """Count jobs per priority."""
    return Call("getCountsPerPriority", _keys(base, "wait paused meta prioritized"), priorities)


def get_ranges(base: str, start: Arg, end: Arg, *names: Arg, ascending: Arg = "0") -> Call:
    """Read ids per state."""
    return Call("getRanges", (base,), (start, end, ascending, *names))


def get_metrics(base: str = Q, outcome: str = "completed", *, start: Arg = "0", end: Arg = "-1") -> Call:
    """Read how many jobs finished per minute."""
    return Call("getMetrics", _keys(base, f"metrics:{outcome} metrics:{outcome}:data"), (start, end))


def get_dependency_counts(base: str, id: str, *kinds: Arg) -> Call:
    """Count a job's children."""
    job = base + id
    keys = (f"{job}:processed", f"{job}:dependencies", f"{job}:failed", f"{job}:unsuccessful")
    return Call("getDependencyCounts", keys, kinds)


def paginate(
    key: str, first: Arg = "0", last: Arg = "-1", cursor: Arg = "0", passed: Arg = "0", scans: Arg = "5", *fetch: Arg
) -> Call:
    """Read one page of a set or hash; any further argument asks for the hashes behind the elements."""
    return Call("paginate", (key,), (first, last, cursor, passed, scans, *fetch))


# Schedulers and repeatable jobs (part 04)


def add_scheduler(
    base: str = Q,
    scheduler: str = "s",
    *,
    slot: Arg = "",
    schedule: Any,
    data: Arg = "{}",
    template: Any = None,
    options: Any,
    at: Arg = T,
    producer_key: Arg = "",
) -> Call:
    """Create or replace a scheduler; maps are packed, bytes stay as they are."""
    keys = (*_keys(base, SCHEDULER_KEYS), f"{base}active")
    maps = (schedule, {} if template is None else template, options)
    packed = tuple(each if isinstance(each, bytes) else pack(each) for each in maps)
    args = (slot, packed[0], scheduler, data, packed[1], packed[2], str(at), base, producer_key)
    return Call("addJobScheduler", keys, args)


def remove_scheduler(base: str = Q, scheduler: str = "s") -> Call:
    """Remove a scheduler."""
    return Call("removeJobScheduler", _keys(base, "repeat delayed events"), (scheduler, base))


def get_scheduler(base: str = Q, scheduler: str = "s") -> Call:
    """Read a scheduler."""
    return Call("getJobScheduler", (f"{base}repeat",), (scheduler,))


def add_repeatable(
    base: str = Q, member: str = "m", oldest: str = "n::::1000", *, slot: Arg = T, schedule: Any = None
) -> Call:
    """Store a repeatable job of an older client; bytes stay as they are."""
    named = {"name": "n", "endDate": None, "tz": None, "pattern": None, "every": 1000} if schedule is None else schedule
    packed = named if isinstance(named, bytes) else pack(named)
    return Call("addRepeatableJob", _keys(base, "repeat delayed"), (str(slot), packed, oldest, member, base))


def update_repeatable(base: str = Q, member: str = "m", oldest: str = "n::::1000", *, slot: Arg = T) -> Call:
    """Move the slot of a repeatable job."""
    return Call("updateRepeatableJobMillis", (f"{base}repeat",), (str(slot), member, oldest))


def remove_repeatable(
    base: str = Q, member: str = "m", oldest: str = "n::::1000", *, oldest_id: str = "repeat:hash:"
) -> Call:
    """Remove a repeatable job."""
    return Call("removeRepeatable", _keys(base, "repeat delayed events"), (oldest_id, oldest, member, base))
