"""From a call back to what a client was asked: the `inputs` of a vector, for calls that our builders can make."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from bullmq_protocol.common.codec import number_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import BullMQError
from tests.oracle.calls import Call
from tests.support import vectors
from tests.support.building import SHORT, build
from tests.support.json_schema import problems

LONG = {short: name for name, short in SHORT.items()}
JOB_SCHEMA = json.loads((vectors.SPECS / "schemas" / "job.json").read_text(encoding="utf-8"))
STORED_OPTIONS = {"$ref": "#/$defs/opts", "$defs": JOB_SCHEMA["$defs"]}
FINISH_FLAGS = {
    "fpof": "fail_parent_on_failure",
    "cpof": "continue_parent_on_failure",
    "idof": "ignore_dependency_on_failure",
    "rdof": "remove_dependency_on_failure",
}
SCHEDULE = {"startDate": "start_date", "endDate": "end_date"}


class NoInputs(Exception):
    """No client sends this."""


def canonical(call: Call) -> tuple[dict[str, Any], Call] | None:
    """Return inputs and the call that our builder makes of them, if it has the keys of the given one."""
    try:
        base = BASES[call.name](call) if call.name in BASES else _base_of(call)
        prefix, _, queue = base[:-1].rpartition(":")
        if not base.endswith(":"):
            return None
        found = {"prefix": prefix, "queue": queue, **INVERSES[call.name](Arguments(call, base))}
        command = build(call.name, found)
    except (NoInputs, BullMQError, KeyError, IndexError, TypeError, ValueError, AttributeError, msgspec.MsgspecError):
        return None
    if command.name != call.name or command.keys != call.keys:
        return None
    args = tuple(arg if isinstance(arg, bytes) else str(arg) for arg in command.args)
    return found, Call(call.name, command.keys, args)


class Arguments:
    """The arguments of a call as text, numbers and maps."""

    def __init__(self, call: Call, base: str) -> None:
        self.call = call
        self.base = base
        self.keys = QueueKeys.of(base[:-1].rpartition(":")[2], prefix=base[:-1].rpartition(":")[0])

    def text(self, at: int) -> str:
        value = self.call.args[at]
        return value.decode() if isinstance(value, bytes) else str(value)

    def rest(self, start: int) -> list[str]:
        return [self.text(at) for at in range(start, len(self.call.args))]

    def whole(self, at: int) -> int:
        return _whole(self.text(at))

    def number(self, at: int) -> int | float:
        number = float(self.text(at))
        found = int(number) if number.is_integer() else number
        if number_text(found) != self.text(at):
            raise NoInputs
        return found

    def packed(self, at: int) -> Any:
        value = self.call.args[at]
        if not isinstance(value, bytes):
            raise NoInputs
        return msgspec.msgpack.decode(value)

    def fields(self, at: int) -> list[str]:
        found = self.packed(at) if self.call.args[at] else []
        if not all(isinstance(each, str) for each in found):
            raise NoInputs
        return list(found)

    def job(self, at: int) -> str:
        """The id in a key of a job."""
        key = str(self.call.keys[at])
        if not key.startswith(self.base):
            raise NoInputs
        return key[len(self.base) :]


def _whole(text: str) -> int:
    if str(int(text)) != text:
        raise NoInputs
    return int(text)


def _base_of(call: Call) -> str:
    """Most commands have a key with a plain name at a known place."""
    for key in map(str, call.keys):
        head, _, tail = key.rpartition(":")
        if tail in ("meta", "wait", "active", "repeat", "events", "stalled", "completed"):
            return f"{head}:"
    raise NoInputs


def _first_key(call: Call) -> str:
    return str(call.keys[0])


def _job_base(call: Call) -> str:
    """Ids without a colon, as for jobs of our own."""
    key = str(call.keys[0])
    for end in (":lock", ":logs", ":processed", ":dependencies", ":failed", ":unsuccessful"):
        key = key.removesuffix(end)
    return f"{key.rpartition(':')[0]}:"


def _metrics_base(call: Call) -> str:
    return str(call.keys[0]).rpartition("metrics:")[0]


BASES: dict[str, Callable[[Call], str]] = {
    "obliterate": lambda call: str(call.keys[1]),
    "moveJobsToWait": _first_key,
    "getCounts": _first_key,
    "getRanges": _first_key,
    "removeChildDependency": _first_key,
    "updateData": _job_base,
    "saveStacktrace": _job_base,
    "addLog": _job_base,
    "releaseLock": _job_base,
    "getDependencyCounts": _job_base,
    "paginate": _job_base,
    "getMetrics": _metrics_base,
    "isJobInList": lambda call: f"{str(call.keys[0]).rpartition(':')[0]}:",
}


def _filled(**inputs: Any) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if value is not None}


def _add(given: Arguments) -> dict[str, Any]:
    head = [*given.packed(0), *[None] * 9][:9]
    options = _options(given, 2)
    public: dict[str, Any] = {}
    telemetry = {
        long: options[short] for short, long in (("tm", "metadata"), ("omc", "omitContext")) if short in options
    }
    for name, value in options.items():
        if value is None or (name == "attempts" and value == 0):
            continue
        if name in ("tm", "omc"):
            public["telemetry"] = telemetry
        else:
            public[LONG.get(name, name)] = value
    parent = head[6]
    if parent is not None:
        public.setdefault("parent", {"id": parent["id"], "queue": parent["queueKey"]})
        public |= {LONG[flag]: True for flag in ("fpof", "cpof", "idof", "rdof") if parent.get(flag)}
    if public.get("jobId") not in (None, head[1]):
        raise NoInputs
    return _filled(
        name=head[2],
        data=msgspec.json.decode(given.text(1)),
        options=public,
        now=_int(head[3]),
        generated_id=head[1] or None if "jobId" not in public else None,
        repeat_job_key=head[7],
        has_children=True if given.call.name == "addParentJob" else None,
    )


def _int(number: Any) -> int:
    if not isinstance(number, int | float) or isinstance(number, bool) or number != int(number):
        raise NoInputs
    return int(number)


def _move_to_active(given: Arguments) -> dict[str, Any]:
    options = given.packed(2)
    return _filled(
        token=options["token"],
        lock_ms=_int(options["lockDuration"]),
        now=given.whole(1),
        limiter=options.get("limiter"),
        worker_name=options.get("name"),
    )


def _move_to_finished(given: Arguments) -> dict[str, Any]:
    options = given.packed(7)
    limit = options.get("limiter")
    lock_ms = options.get("lockDuration")
    keep = options["keepJobs"]
    if not all(type(value) in (int, float) for value in keep.values()):
        raise NoInputs
    return {
        "job_id": given.text(0),
        "outcome": given.text(4),
        "value": given.text(3),
        "now": given.whole(1),
        "fetch_next": {"1": True, "0": False}[given.text(5)],
        "fields": given.fields(8),
        "options": _filled(
            token=options["token"],
            keep_jobs=keep,
            lock_ms=None if lock_ms is None else _int(lock_ms),
            attempts=options.get("attempts", 0),
            limiter=limit,
            worker_name=options.get("name"),
            max_metrics_size=_int(options["maxMetricsSize"]) if options["maxMetricsSize"] != "" else None,
            **{long: True for short, long in FINISH_FLAGS.items() if options.get(short)},
        ),
    }


def _schedule(map_: dict[str, Any]) -> dict[str, Any]:
    return {SCHEDULE.get(name, name): value for name, value in map_.items() if value is not None}


def _slot(given: Arguments) -> int | None:
    return None if given.text(0) == "" else given.whole(0)


def _options(given: Arguments, at: int) -> dict[str, Any]:
    """Stored options, each of its type."""
    found = given.packed(at)
    if not isinstance(found, dict):
        raise NoInputs
    if problems({name: value for name, value in found.items() if value is not None}, STORED_OPTIONS):
        raise NoInputs
    return found


def _add_scheduler(given: Arguments) -> dict[str, Any]:
    producer = given.text(8)
    return _filled(
        scheduler_id=given.text(2),
        schedule=_schedule(given.packed(1)),
        data_text=given.text(3),
        template=_options(given, 4),
        options=_options(given, 5),
        now=given.whole(6),
        next_at=_slot(given),
        producer_id=producer.removeprefix(given.base) or None,
    )


def _update_scheduler(given: Arguments) -> dict[str, Any]:
    return _filled(
        scheduler_id=given.text(1),
        producer_id=given.text(6),
        data_text=given.text(2),
        options=_options(given, 3),
        now=given.whole(4),
        next_at=_slot(given),
    )


def _repeatable_key(concatenated: str) -> dict[str, Any]:
    name, job_id, end_date, tz, *rule = concatenated.split(":")
    found = {"name": name, "job_id": job_id, "tz": tz, "rule": ":".join(rule)}
    return {**found, "end_date": _whole(end_date)} if end_date else found


def _add_repeatable(given: Arguments) -> dict[str, Any]:
    return {
        "key": _repeatable_key(given.text(2)),
        "schedule": _schedule(given.packed(1)),
        "next_at": given.whole(0),
    }


def _remove_repeatable(given: Arguments) -> dict[str, Any]:
    by_key = {"member": given.text(2)}
    command = build("removeRepeatable", {"prefix": given.keys.prefix, "queue": given.keys.name, **by_key})
    if list(command.args) == list(given.call.args):
        return by_key
    return {"key": _repeatable_key(given.text(1))}


def _lifo(push: str) -> bool:
    return {"RPUSH": True, "LPUSH": False}[push]


def _flag(text: str) -> bool:
    return {"1": True, "0": False}[text]


INVERSES: dict[str, Callable[[Arguments], dict[str, Any]]] = {
    **dict.fromkeys(("addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob"), _add),
    "moveToActive": _move_to_active,
    "moveToFinished": _move_to_finished,
    "moveStalledJobsToWait": lambda g: {
        "max_stalled_count": g.whole(0),
        "now": g.whole(2),
        "interval_ms": g.whole(3),
    },
    "extendLock": lambda g: {"job_id": g.text(2), "token": g.text(0), "lock_ms": g.whole(1)},
    "extendLocks": lambda g: {"tokens": g.fields(1), "job_ids": g.fields(2), "lock_ms": g.whole(3)},
    "releaseLock": lambda g: {"job_id": g.job(0).removesuffix(":lock"), "token": g.text(0)},
    "getRateLimitTtl": lambda g: _filled(maximum=g.whole(0) or None),
    "isMaxed": lambda g: {},
    "moveToDelayed": lambda g: {
        "job_id": g.text(2),
        "token": g.text(3),
        "now": g.whole(1),
        "delay": g.number(4),
        "count_attempt": not _flag(g.text(5)),
        "fields": g.fields(6),
    },
    "moveToWaitingChildren": lambda g: _filled(
        job_id=g.text(3), token=g.text(0), now=g.whole(2), child_key=g.text(1) or None
    ),
    "moveJobFromActiveToWait": lambda g: {"job_id": g.text(0), "token": g.text(1)},
    "retryJob": lambda g: {
        "job_id": g.text(3),
        "token": g.text(4),
        "now": g.whole(1),
        "lifo": _lifo(g.text(2)),
        "fields": g.fields(5),
    },
    "changeDelay": lambda g: {"job_id": g.text(2), "delay": g.number(0), "now": g.whole(1)},
    "changePriority": lambda g: {"job_id": g.text(2), "priority": g.whole(0), "lifo": _flag(g.text(3))},
    "promote": lambda g: {"job_id": g.text(1)},
    "reprocessJob": lambda g: {"job_id": g.text(0), "state": g.text(3), "lifo": _lifo(g.text(1))},
    "moveJobsToWait": lambda g: _filled(
        state=g.text(2), count=g.whole(0), until=None if "e+" in g.text(1) else g.whole(1)
    ),
    "updateData": lambda g: {"job_id": g.job(0), "data_json": g.text(0)},
    "updateProgress": lambda g: {"job_id": g.text(0), "progress_json": g.text(1)},
    "addLog": lambda g: _filled(
        job_id=g.text(0), row=g.text(1), keep_logs=g.whole(2) if g.text(2) not in ("", "0") else None
    ),
    "saveStacktrace": lambda g: {
        "job_id": g.job(0),
        "stacktrace_json": g.text(0),
        "failed_reason": g.text(1),
    },
    "pause": lambda g: {"paused": {"paused": True, "resumed": False}[g.text(0)]},
    "drain": lambda g: {"delayed": {"1": True, "0": False}[g.text(1)]},
    "cleanJobsInSet": lambda g: {"state": g.text(3), "until": g.number(1), "limit": g.whole(2)},
    "obliterate": lambda g: {"count": g.whole(0), "force": {"force": True, "": False}[g.text(1)]},
    "removeJob": lambda g: {"job_id": g.text(0), "remove_children": _flag(g.text(1))},
    "removeUnprocessedChildren": lambda g: {"job_id": g.text(1)},
    "removeChildDependency": lambda g: {"job_id": g.text(0).removeprefix(g.base), "parent_key": g.text(1)},
    "getCounts": lambda g: {"states": g.rest(0)},
    "getCountsPerPriority": lambda g: {"priorities": [_whole(each) for each in g.rest(0)]},
    "getRanges": lambda g: {
        "start": g.whole(0),
        "end": g.whole(1),
        "ascending": _flag(g.text(2)),
        "states": g.rest(3),
    },
    "getState": lambda g: {"job_id": g.text(0)},
    "getStateV2": lambda g: {"job_id": g.text(0)},
    "isFinished": lambda g: {"job_id": g.text(0)},
    "isJobInList": lambda g: {"list": str(g.call.keys[0])[len(g.base) :], "job_id": g.text(0)},
    "getMetrics": lambda g: {"outcome": str(g.call.keys[0]).rpartition(":")[2], "start": g.whole(0), "end": g.whole(1)},
    "getDependencyCounts": lambda g: {"job_id": g.job(0).removesuffix(":processed"), "kinds": g.rest(0)},
    "paginate": lambda g: {
        "job_id": g.job(0).rpartition(":")[0],
        "kind": g.job(0).rpartition(":")[2],
        "start": g.whole(0),
        "end": g.whole(1),
        "cursor": g.whole(2),
        "passed": g.whole(3),
        "max_scans": g.whole(4),
        "with_hashes": len(g.call.args) > 5,
    },
    "addJobScheduler": _add_scheduler,
    "updateJobScheduler": _update_scheduler,
    "removeJobScheduler": lambda g: {"scheduler_id": g.text(0)},
    "getJobScheduler": lambda g: {"scheduler_id": g.text(0)},
    "addRepeatableJob": _add_repeatable,
    "updateRepeatableJobMillis": lambda g: {
        "next_at": g.whole(0),
        "member": g.text(1),
        "concatenated": g.text(2),
    },
    "removeRepeatable": _remove_repeatable,
}
"""Per command, the inputs of a call; anything raised means that no client sends it."""
