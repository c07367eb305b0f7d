"""Options of a job: those a caller gives, those stored and under which name, and the checks between the two.

Source: specs/01-data-model-and-adding.md#sec-3-2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, check_text, double, json_text, number_text, plain
from bullmq_protocol.common.keys import MAX_NAME_LENGTH, refuse_login
from bullmq_protocol.common.later import require_later
from bullmq_protocol.common.payloads import PayloadType
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.common.units import Duration, Millis, Number, to_ms
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.lazy import lazy_pattern
from bullmq_protocol.model.backoff import Backoff, duration_number

MAX_PRIORITY: Final = 2_097_152
MAX_PAYLOAD_BYTES: Final = 10 * 2**20
LONG_BACKOFF_MS: Final = 3_600_000

S = TypeVar("S", bound=Struct)


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on the data that this library writes, never on what it reads. None removes a limit.

    Args:
        max_payload_bytes: The maximum size, in UTF-8 bytes, of a job's data as JSON plus its packed options; also of
            updated data, of a progress value and of a log row. 10 MiB by default.
        max_name_length: The maximum number of characters in a job's name, and in its id; 255 by default.
        max_result_bytes: The maximum size of a result, in UTF-8 bytes of its JSON; 10 MiB by default.

    Examples:
        >>> Limits(max_payload_bytes=64 * 1024).max_result_bytes
        10485760
    """

    max_payload_bytes: int | None = MAX_PAYLOAD_BYTES
    max_name_length: int | None = MAX_NAME_LENGTH
    max_result_bytes: int | None = MAX_PAYLOAD_BYTES


DEFAULT_LIMITS: Final = Limits()


def within_size(field: str, text: str, limits: Limits = DEFAULT_LIMITS) -> str:
    """Return a text that is stored as it is, or raise `UsageError` for one over the limit of a payload in bytes."""
    return _within(field, text, limits.max_payload_bytes)


def result_text(
    value: object,
    limits: Limits = DEFAULT_LIMITS,
    result_type: PayloadType | None = None,
    misfit: Callable[[UsageError], BullMQError] | None = None,
) -> str:
    """Return the JSON of a return value, or raise `UsageError` for one over the limit of a result in bytes, or not of
    its type. In place of the latter `misfit`, if given, makes the error to raise."""
    if result_type is not None:
        try:
            text = result_type.checked("returnvalue", value)
        except UsageError as error:
            if misfit is None:
                raise
            raise misfit(error) from error
    elif value is None:
        return "null"
    else:
        text = json_text(value, field="returnvalue")
    return _within("returnvalue", text, limits.max_result_bytes)


def _within(field: str, text: str, most: int | None) -> str:
    if most is not None and len(text) * 4 > most:
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > most:
            raise UsageError(field, f"{text[:20]}...", f"exceeds the limit {most} bytes, has {size}")
    return text


class KeepJobs(Struct, frozen=True, repr_omit_defaults=True):
    """Which finished jobs to keep. The others are removed whenever a job finishes.

    Args:
        count: How many of the newest to keep; 0: none, -1: all. By default only `age` decides.
        age: How long to keep them, in **seconds** or as a `timedelta`. By default only `count` decides.
        extra: Further members as another client stored them; none by default.
        limit: How many jobs at most are removed by `age` when a job finishes, at least 1; 1,000 by default. The profile
            `STRICT` refuses it and removes all.

    Source: specs/05-worker-runtime.md#sec-11

    Examples:
        >>> JobOptions(remove_on_complete=KeepJobs(count=1_000, age=24 * 3_600))
        JobOptions(remove_on_complete=KeepJobs(count=1000, age=86400))
    """

    count: int | UnsetType = UNSET
    age: Number | timedelta | UnsetType = UNSET
    extra: Mapping[str, Any] = {}
    limit: int | UnsetType = UNSET


Retention: TypeAlias = bool | int | KeepJobs
"""True: keep nothing; False: keep all; a number: keep that many; or `KeepJobs`."""


class ParentRef(Struct, frozen=True, repr_omit_defaults=True):
    """A job's parent; `Job.ref` returns one.

    Args:
        id: The parent's id.
        queue: The qualified name of its queue, `<prefix>:<name>` (`QueueKeys.qualified`).
        extra: Further members as another client stored them; none by default.

    Examples:
        >>> ParentRef("1", "bull:mail")
        ParentRef(id='1', queue='bull:mail')
    """

    id: str
    queue: str
    extra: Mapping[str, Any] = {}


class Deduplication(Struct, frozen=True, repr_omit_defaults=True):
    """Add only one of several jobs with the same deduplication id.

    Args:
        id: The deduplication id: any text that is not empty.
        ttl: How long the job holds the id, in milliseconds or as a `timedelta`, above 0. By default until it finishes.
        extend: True: each add restarts `ttl`. False by default.
        replace: True: the new job replaces a delayed one. False by default.
        extra: Further members as another client stored them; none by default.
        keep_last_if_active: True: while the job is active, the last add with the id is kept, and becomes a job when the
            active one finishes; `ttl` is then ignored. False by default; the profile `STRICT` refuses True.
        reschedule: True: an add gives a delayed job the new delay, counted from now. False by default; the profile
            `STRICT` refuses True.

    Source: specs/01-data-model-and-adding.md#sec-6-4, specs/06-later-versions.md#sec-4-2

    Examples:
        >>> JobOptions(deduplication=Deduplication("daily-report", ttl=60_000))
        JobOptions(deduplication=Deduplication(id='daily-report', ttl=60000))
    """

    id: str
    ttl: Duration | UnsetType = UNSET
    extend: bool | UnsetType = UNSET
    replace: bool | UnsetType = UNSET
    extra: Mapping[str, Any] = {}
    keep_last_if_active: bool | UnsetType = UNSET
    reschedule: bool | UnsetType = UNSET


class Telemetry(Struct, frozen=True, repr_omit_defaults=True):
    """The trace context that travels with a job.

    Args:
        metadata: The context as text, in the form of the telemetry provider; not stored by default.
        omit_context: True: spans of the job do not continue the trace in which it was added. False by default.

    Source: specs/04-schedulers-flows-events.md#sec-12-3
    """

    metadata: str | UnsetType = UNSET
    omit_context: bool | UnsetType = UNSET


class JobOptions(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """The options of a job. Options that are not given are not stored, so that the stored text equals BullMQ's.

    Args:
        attempts: How often to try in total, at least 1; 1 by default (stored as 0).
        backoff: How long to wait before a retry: a `Backoff`, or a fixed time in milliseconds or as a `timedelta`. No
            wait by default.
        delay: How long to wait before the job may run, in milliseconds or as a `timedelta`; 0 by default.
        priority: From 1, the most urgent, to 2,097,151 (2,097,152 with the profile `STRICT`). 0, the default: no
            priority, which runs before all others.
        lifo: True: the job runs before those that are already waiting. False by default.
        timestamp: When the job was created, in milliseconds since the epoch; now by default.
        job_id: Your own id; an existing job with this id stays as it is. By default the queue's counter assigns one.
        parent: The job that waits for this one; none by default.
        remove_on_complete: Which completed jobs to keep when this one completes: True keeps none, False all, a number
            that many, or a `KeepJobs`. By default the worker's option decides, whose own default is to keep all.
        remove_on_fail: The same for failed jobs when this one fails for good.
        keep_logs: How many rows of its log to keep, at least 0; all by default.
        stack_trace_limit: How many stack traces to keep, at least 0; all by default.
        size_limit: The maximum size of the data, in bytes of its JSON, at least 1; by default only `Limits` applies.
        repeat: The repeat rule that another client stored. Not for adding: use `upsert_job_scheduler`.
        prev_millis: When a scheduler's job is due, in milliseconds since the epoch, as the scheduler sets it.
        repeat_job_key: The scheduler that made the job, stored in its own field.
        deduplication: The deduplication id, and what a further add with it does; none by default.
        fail_parent_on_failure: True: if this job fails, so does its parent. False by default; at most one of these
            four.
        continue_parent_on_failure: True: if this job fails, its parent runs without waiting for the other children.
            False by default.
        ignore_dependency_on_failure: True: if this job fails, its parent counts it as done. False by default.
        remove_dependency_on_failure: True: if this job fails, its parent forgets it. False by default.
        telemetry: The trace context; set by queues with a telemetry provider.
        extra: Options that this library does not know, under their stored names; none by default.

    Source: specs/01-data-model-and-adding.md#sec-3-3

    Examples:
        >>> JobOptions(attempts=3, backoff=1_000, remove_on_complete=True)
        JobOptions(attempts=3, backoff=1000, remove_on_complete=True)
    """

    attempts: Number | UnsetType = UNSET
    backoff: Backoff | Duration | float | UnsetType = UNSET
    delay: Duration | float | UnsetType = UNSET
    priority: Number | UnsetType = UNSET
    lifo: bool | UnsetType = UNSET
    timestamp: Number | UnsetType = UNSET
    job_id: str | UnsetType = UNSET
    parent: ParentRef | UnsetType = UNSET
    remove_on_complete: Retention | UnsetType = UNSET
    remove_on_fail: Retention | UnsetType = UNSET
    keep_logs: Number | UnsetType = UNSET
    stack_trace_limit: Number | UnsetType = UNSET
    size_limit: Number | UnsetType = UNSET
    repeat: Mapping[str, Any] | UnsetType = UNSET
    prev_millis: Number | UnsetType = UNSET
    repeat_job_key: str | UnsetType = UNSET
    deduplication: Deduplication | UnsetType = UNSET
    fail_parent_on_failure: bool | UnsetType = UNSET
    continue_parent_on_failure: bool | UnsetType = UNSET
    ignore_dependency_on_failure: bool | UnsetType = UNSET
    remove_dependency_on_failure: bool | UnsetType = UNSET
    telemetry: Telemetry | UnsetType = UNSET
    extra: Mapping[str, Any] = {}


RETRY_3_EXPONENTIAL: Final = JobOptions(attempts=3, backoff=Backoff("exponential", 1000))
"""Three tries with 1 and 2 seconds between them: a ready-made value for a queue's default job options."""

_NO_OPTIONS: Final = JobOptions()


def given(options: JobOptions) -> dict[str, Any]:
    """Return the options that are set, by field name. Their texts are plain ones."""
    if options == _NO_OPTIONS:
        return {}
    found = {field: value for field, value in msgspec.structs.asdict(options).items() if value is not UNSET}
    if not found["extra"]:
        del found["extra"]
    try:
        return cast("dict[str, Any]", plain(found))
    except RecursionError:
        # Refused where it is packed.
        return found


def merge(defaults: JobOptions, call: JobOptions) -> JobOptions:
    """Lay the options of one call over a queue's defaults. The job id always comes from the call.

    Source: specs/01-data-model-and-adding.md#sec-3-4
    """
    return JobOptions(**merged(defaults, call))


def merged(defaults: JobOptions, call: JobOptions) -> dict[str, Any]:
    """Merge as `merge` does; return the set options by field name, the defaults' first: the order of storing."""
    base = given(defaults)
    if not base:
        return given(call)
    base.pop("job_id", None)
    over = given(call)
    if "extra" in base and "extra" in over:
        over["extra"] = {**base["extra"], **over["extra"]}
    return {**base, **over}


# --- storing --------------------------------------------------------------------------------------------------------


def stored(options: JobOptions) -> dict[str, Any]:
    """Return the option map to pack: short names, `attempts` first, values as JavaScript would have them.

    Source: specs/01-data-model-and-adding.md#sec-3-2
    """
    return stored_of(given(options))


def stored_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the option map to pack for options given by field name, in their order."""
    result: dict[str, Any] = {}
    extra: Mapping[str, Any] = found.get("extra", {})
    for name in sorted((name for name in extra if _INTEGER.fullmatch(name)), key=int):
        result[name] = extra[name]
    result["attempts"] = found["attempts"] if "attempts" in found else extra.get("attempts", 0)
    for field, value in found.items():
        write = _WRITERS[field]
        if write is None:
            continue
        name, convert = write
        if convert is None:
            result[name] = value
        elif field == "telemetry":
            if value.metadata is not UNSET:
                result["tm"] = value.metadata
            if value.omit_context is not UNSET:
                result["omc"] = value.omit_context
        else:
            result[name] = convert(value)
    for name, value in extra.items():
        if value is not None:
            result.setdefault(name, value)
    return result


def retention_map(value: Retention) -> Any:
    """Return a retention as it is stored in a job's options."""
    if not isinstance(value, KeepJobs):
        return value
    age = value.age
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    return _members(value, count=value.count, age=seconds, limit=value.limit)


def _members(value: Backoff | KeepJobs | ParentRef | Deduplication, **members: Any) -> dict[str, Any]:
    return {**{name: member for name, member in members.items() if member is not UNSET}, **value.extra}


def _write_duration(value: Any) -> Any:
    return duration_number(value) if value is not UNSET else UNSET


def _write_backoff(value: Backoff | Duration | float) -> dict[str, Any]:
    if not isinstance(value, Backoff):
        return {"type": "fixed", "delay": duration_number(value)}
    return _members(
        value,
        type=value.type,
        delay=_write_duration(value.delay),
        jitter=value.jitter,
        maxDelay=_write_duration(value.max_delay),
    )


def _write_parent(value: ParentRef) -> dict[str, Any]:
    return _members(value, id=value.id, queue=value.queue)


def _write_deduplication(value: Deduplication) -> dict[str, Any]:
    return _members(
        value,
        id=value.id,
        ttl=_write_duration(value.ttl),
        extend=value.extend,
        replace=value.replace,
        keepLastIfActive=value.keep_last_if_active,
        reschedule=value.reschedule,
    )


def _write_repeat(value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: round(member.timestamp() * 1000) if isinstance(member, datetime) else member
        for name, member in value.items()
    }


_WRITERS: Final[Mapping[str, tuple[str, Callable[[Any], Any] | None] | None]] = MappingProxyType(
    {
        "attempts": None,
        "backoff": ("backoff", _write_backoff),
        "delay": ("delay", duration_number),
        "priority": ("priority", None),
        "lifo": ("lifo", None),
        "timestamp": ("timestamp", None),
        "job_id": ("jobId", None),
        "parent": ("parent", _write_parent),
        "remove_on_complete": ("removeOnComplete", retention_map),
        "remove_on_fail": ("removeOnFail", retention_map),
        "keep_logs": ("kl", None),
        "stack_trace_limit": ("stackTraceLimit", None),
        "size_limit": ("sizeLimit", None),
        "repeat": ("repeat", _write_repeat),
        "prev_millis": ("prevMillis", None),
        "repeat_job_key": None,
        "deduplication": ("de", _write_deduplication),
        "fail_parent_on_failure": ("fpof", None),
        "continue_parent_on_failure": ("cpof", None),
        "ignore_dependency_on_failure": ("idof", None),
        "remove_dependency_on_failure": ("rdof", None),
        "telemetry": ("tm", _write_duration),
        "extra": None,
    }
)


# --- reading --------------------------------------------------------------------------------------------------------


class _Misfit(Exception):
    """A stored value that is not of its option's type: it is kept in `extra` under its stored name."""


def stored_options_from(mapping: Mapping[str, Any]) -> JobOptions:
    """Read stored options. Nulls count as absent; unknown names, and values of an unexpected type, are kept in `extra`.

    Source: specs/01-data-model-and-adding.md#sec-3-2
    """
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    telemetry: dict[str, Any] = {}
    for name, value in mapping.items():
        reader = _READERS.get(name)
        if value is None:
            continue
        if reader is None:
            extra[name] = value
            continue
        field, read = reader
        try:
            result = read(value)
        except _Misfit:
            extra[name] = value
            continue
        if name == "tm" or name == "omc":
            telemetry[field] = result
        else:
            known[field] = result
    if telemetry:
        known["telemetry"] = Telemetry(**telemetry)
    return JobOptions(**known, extra=extra)


def _read_number(value: Any) -> Number:
    if type(value) is not int and type(value) is not float:
        raise _Misfit
    number = double(value)
    if not math.isfinite(number):
        raise _Misfit
    # Beyond the integers that a double holds exactly it stays a double, which is what the scripts make of it.
    is_whole = abs(number) <= MAX_SAFE_INTEGER and number == math.floor(number)
    return int(number) if is_whole else number


def _read_bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise _Misfit


def _read_text(value: Any) -> str:
    if type(value) is str:
        return value
    raise _Misfit


def _read_mapping(value: Any) -> Mapping[str, Any]:
    if type(value) is dict:
        return cast("dict[str, Any]", value)
    raise _Misfit


def _read_struct(kind: type[S], required: int, readers: Mapping[str, Callable[[Any], Any]], value: Any) -> S:
    known: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for name, member in _read_mapping(value).items():
        read = readers.get(name)
        try:
            if read is None:
                raise _Misfit
            known[_NAMES.get(name, name)] = read(member)
        except _Misfit:
            extra[name] = member
    if any(name not in known for name in kind.__struct_fields__[:required]):
        raise _Misfit
    return kind(**known, extra=extra)


def _read_backoff(value: Any) -> Backoff:
    if type(value) is dict:
        return _read_struct(Backoff, 1, _BACKOFF_READERS, value)
    return Backoff("fixed", _read_number(value))


def _read_retention(value: Any) -> Retention:
    if type(value) is bool:
        return value
    if type(value) is dict:
        return _read_struct(KeepJobs, 0, _KEEP_READERS, value)
    return cast("int", _read_number(value))


def _read_parent(value: Any) -> ParentRef:
    return _read_struct(ParentRef, 2, _PARENT_READERS, value)


def _read_deduplication(value: Any) -> Deduplication:
    return _read_struct(Deduplication, 1, _DEDUPLICATION_READERS, value)


_BACKOFF_READERS: Final = MappingProxyType(
    {"type": _read_text, "delay": _read_number, "jitter": _read_number, "maxDelay": _read_number}
)
_KEEP_READERS: Final = MappingProxyType({"count": _read_number, "age": _read_number, "limit": _read_number})
_PARENT_READERS: Final = MappingProxyType({"id": _read_text, "queue": _read_text})
_DEDUPLICATION_READERS: Final = MappingProxyType(
    {
        "id": _read_text,
        "ttl": _read_number,
        "extend": _read_bool,
        "replace": _read_bool,
        "keepLastIfActive": _read_bool,
        "reschedule": _read_bool,
    }
)
_NAMES: Final = MappingProxyType({"maxDelay": "max_delay", "keepLastIfActive": "keep_last_if_active"})
"""The fields of members whose stored name is another one."""
_READERS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = MappingProxyType(
    {
        "attempts": ("attempts", _read_number),
        "backoff": ("backoff", _read_backoff),
        "delay": ("delay", _read_number),
        "priority": ("priority", _read_number),
        "lifo": ("lifo", _read_bool),
        "timestamp": ("timestamp", _read_number),
        "jobId": ("job_id", _read_text),
        "parent": ("parent", _read_parent),
        "removeOnComplete": ("remove_on_complete", _read_retention),
        "removeOnFail": ("remove_on_fail", _read_retention),
        "kl": ("keep_logs", _read_number),
        "stackTraceLimit": ("stack_trace_limit", _read_number),
        "sizeLimit": ("size_limit", _read_number),
        "repeat": ("repeat", _read_mapping),
        "prevMillis": ("prev_millis", _read_number),
        "de": ("deduplication", _read_deduplication),
        "fpof": ("fail_parent_on_failure", _read_bool),
        "cpof": ("continue_parent_on_failure", _read_bool),
        "idof": ("ignore_dependency_on_failure", _read_bool),
        "rdof": ("remove_dependency_on_failure", _read_bool),
        "tm": ("metadata", _read_text),
        "omc": ("omit_context", _read_bool),
    }
)


# --- checking -------------------------------------------------------------------------------------------------------

_INTEGER: Final = lazy_pattern(r"0|[1-9][0-9]*")
_SIGNED_INTEGER: Final = lazy_pattern(r"-?(?:0|[1-9][0-9]*)")
_RESERVED_IDS: Final = frozenset(
    (
        "id",
        "meta",
        "wait",
        "paused",
        "active",
        "prioritized",
        "delayed",
        "waiting-children",
        "completed",
        "failed",
        "stalled",
        "stalled-check",
        "limiter",
        "pc",
        "marker",
        "events",
        "repeat",
        "priority",
        "delay",
    )
)
# In the order in which BullMQ names them in its error.
_PARENT_FLAGS: Final = (
    "remove_dependency_on_failure",
    "fail_parent_on_failure",
    "continue_parent_on_failure",
    "ignore_dependency_on_failure",
)
_TAKEN_NAMES: Final = frozenset(
    {
        *_READERS,
        *(name for name in _WRITERS if name != "extra"),
        "jobId",
        "removeOnComplete",
        "removeOnFail",
        "keepLogs",
        "stackTraceLimit",
        "sizeLimit",
        "prevMillis",
        "repeatJobKey",
        "failParentOnFailure",
        "continueParentOnFailure",
        "ignoreDependencyOnFailure",
        "removeDependencyOnFailure",
        "debounce",
    }
)


def validate(
    options: JobOptions, *, limits: Limits = DEFAULT_LIMITS, switches: Switches = STRICT_SWITCHES
) -> list[str]:
    """Check options that a caller gives for a new job; return warnings. `switches` say what the queue's profile knows.

    Raises `UsageError`, naming field, value and rule.

    Source: specs/01-data-model-and-adding.md#sec-3-8
    """
    return validate_of(given(options), limits=limits, switches=switches)


def validate_of(
    found: Mapping[str, Any], *, limits: Limits = DEFAULT_LIMITS, switches: Switches = STRICT_SWITCHES
) -> list[str]:
    """Check options given by field name, as `validate` does."""
    for field, value in found.items():
        _CHECKS[field](field, value, limits)
    _check_known(found, switches)
    if found.get("delay") and found.get("repeat") and not found["repeat"].get("count"):
        raise UsageError("delay", found["delay"], "cannot be used together with repeat")
    flags = [flag for flag in _PARENT_FLAGS if found.get(flag)]
    if len(flags) > 1:
        raise UsageError(flags[0], True, f"cannot be used together: {', '.join(flags)}")
    backoff = found.get("backoff")
    if backoff is None:
        return []
    wait = backoff.delay if isinstance(backoff, Backoff) else backoff
    if wait is not UNSET and duration_number(wait) > LONG_BACKOFF_MS:
        return [f"backoff.delay: {duration_number(wait)} ms is more than one hour; is it meant in milliseconds?"]
    return []


def check_priority(priority: float, switches: Switches) -> None:
    """Refuse a whole number that is no priority in the profile, and name STRICT where that alone takes it.

    Source: specs/06-later-versions.md#sec-4-15
    """
    most = switches.max_priority
    if not 0 <= priority <= most:
        hint = f": the profile STRICT alone takes {MAX_PRIORITY}" if most < priority <= MAX_PRIORITY else ""
        raise UsageError("priority", priority, f"must be a whole number from 0 to {most}{hint}")


def _check_known(found: Mapping[str, Any], switches: Switches) -> None:
    """Refuse what the profile does not know, and what later versions refuse.

    Source: specs/06-later-versions.md#sec-4-15
    """
    check_priority(found.get("priority", 0), switches)
    for field in ("remove_on_complete", "remove_on_fail"):
        check_kept(field, found.get(field), switches)
    deduplication = found.get("deduplication")
    if deduplication is not None:
        for name in ("keep_last_if_active", "reschedule"):
            if getattr(deduplication, name) is True:
                require_later(getattr(switches, name), f"deduplication.{name}", True)


def check_kept(field: str, kept: object, switches: Switches) -> None:
    """Refuse a limit of retention by age where the profile knows none. Raises `UsageError`."""
    if isinstance(kept, KeepJobs) and kept.limit is not UNSET:
        require_later(switches.age_retention_limit is not None, f"{field}.limit", kept.limit)


def check_job_id(field: str, value: object, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check an id of the caller's: no integer (the counter's), no key of the queue, colons only as BullMQ allows them.

    Source: specs/01-data-model-and-adding.md#sec-2-6
    """
    text = check_text(field, value)
    _check_length(field, text, limits)
    if text == "0" or text.startswith("0:"):
        raise UsageError(field, text, "must not be '0' or start with '0:'")
    if text == "NaN" or (_SIGNED_INTEGER.fullmatch(text) and _is_integer_to_javascript(text)):
        raise UsageError(field, text, "must not be an integer: those are the ids that the queue's counter gives")
    if ":" in text and text.count(":") != 2:
        raise UsageError(field, text, "must not contain ':' (or else exactly two, as ids of repeated jobs do)")
    if text in _RESERVED_IDS or text.startswith(("de:", "metrics:")):
        raise UsageError(field, text, "is the name of one of the queue's own keys")


def _is_integer_to_javascript(text: str) -> bool:
    # Longer texts of digits do not survive a double, so the counter can never give them.
    return len(text) < 23 and number_text(float(text)) == text


def _check_length(field: str, text: str, limits: Limits) -> None:
    if not text:
        raise UsageError(field, text, "must not be empty")
    if limits.max_name_length is not None and len(text) > limits.max_name_length:
        raise UsageError(field, text, f"must have at most {limits.max_name_length} characters, has {len(text)}")


def _integral(field: str, value: object) -> float:
    if type(value) is not int and not (type(value) is float and value.is_integer()):
        raise UsageError(field, value, "must be a whole number")
    return value


def _whole(field: str, value: object, least: int) -> int:
    found = _integral(field, value)
    if not least <= found <= MAX_SAFE_INTEGER:
        raise UsageError(field, value, f"must be a whole number of at least {least}")
    return int(found)


def _check_attempts(field: str, value: object, limits: Limits) -> None:
    _whole(field, value, 1)


def _check_backoff(field: str, value: object, limits: Limits) -> None:
    if not isinstance(value, Backoff):
        _check_wait(field, value)
        return
    if not check_text("backoff.type", value.type):
        raise UsageError("backoff.type", value.type, "must not be empty")
    if value.delay is not UNSET:
        _check_wait("backoff.delay", value.delay)
    elif value.type in ("fixed", "exponential"):
        raise UsageError("backoff.delay", value.delay, f"must be given for the type {value.type!r}")
    jitter = value.jitter
    if jitter is not UNSET and (type(jitter) not in (int, float) or not 0 <= jitter <= 1):
        raise UsageError("backoff.jitter", jitter, "must be a number from 0 to 1")
    if value.max_delay is not UNSET:
        _check_wait("backoff.max_delay", value.max_delay)


def _check_wait(field: str, value: object) -> None:
    if isinstance(value, timedelta):
        value = to_ms(field, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_SAFE_INTEGER:
        raise UsageError(field, value, "must be a number of milliseconds above 0, a timedelta above 0, or a Backoff")


def _milliseconds(field: str, value: object, least: int) -> Millis:
    return _whole(field, to_ms(field, cast("Duration", value)), least)


def _check_delay(field: str, value: object, limits: Limits) -> None:
    _milliseconds(field, value, 0)


def _check_integral(field: str, value: object, limits: Limits) -> None:
    _integral(field, value)


def _check_bool(field: str, value: object, limits: Limits) -> None:
    if type(value) is not bool:
        raise UsageError(field, value, "must be True or False")


def _check_positive(field: str, value: object, limits: Limits) -> None:
    _whole(field, value, 1)


def _check_natural(field: str, value: object, limits: Limits) -> None:
    _whole(field, value, 0)


def _check_retention(field: str, value: object, limits: Limits) -> None:
    if isinstance(value, bool):
        return
    if not isinstance(value, KeepJobs):
        if type(value) is not int:
            raise UsageError(field, value, "must be a bool, a number of jobs, or KeepJobs")
        _whole(field, value, -1)
        return
    if value.count is not UNSET:
        _whole(f"{field}.count", value.count, -1)
    age = value.age.total_seconds() if isinstance(value.age, timedelta) else value.age
    if age is not UNSET and (type(age) not in (int, float) or not 0 <= age <= MAX_SAFE_INTEGER):
        raise UsageError(f"{field}.age", age, "must be a number of seconds (or a timedelta) of at least 0")
    if value.limit is not UNSET:
        _whole(f"{field}.limit", value.limit, 1)


def _check_parent(field: str, value: object, limits: Limits) -> None:
    if not isinstance(value, ParentRef):
        raise UsageError(field, value, "must be a ParentRef")
    if not check_text("parent.id", value.id):
        raise UsageError("parent.id", value.id, "must not be empty")
    queue = check_text("parent.queue", value.queue)
    refuse_login("parent.queue", queue)
    if ":" not in queue:
        raise UsageError("parent.queue", queue, "must be the qualified name <prefix>:<queue>")


def _check_repeat(field: str, value: object, limits: Limits) -> None:
    if not isinstance(value, Mapping):
        rule = "must be a mapping, as other clients store it; to add one use upsert_job_scheduler"
        raise UsageError(field, value, rule)


def _check_repeat_job_key(field: str, value: object, limits: Limits) -> None:
    check_text(field, value)


def _check_deduplication(field: str, value: object, limits: Limits) -> None:
    if not isinstance(value, Deduplication):
        raise UsageError(field, value, "must be a Deduplication")
    if not check_text("deduplication.id", value.id):
        raise UsageError("deduplication.id", value.id, "must not be empty")
    if value.ttl is not UNSET:
        _milliseconds("deduplication.ttl", value.ttl, 1)
    for name in ("extend", "replace", "keep_last_if_active", "reschedule"):
        flag = getattr(value, name)
        if flag is not UNSET:
            _check_bool(f"deduplication.{name}", flag, limits)


def _check_telemetry(field: str, value: object, limits: Limits) -> None:
    if not isinstance(value, Telemetry):
        raise UsageError(field, value, "must be a Telemetry")
    if value.metadata is not UNSET:
        check_text("telemetry.metadata", value.metadata)
    if value.omit_context is not UNSET:
        _check_bool("telemetry.omit_context", value.omit_context, limits)


def _check_extra(field: str, value: object, limits: Limits) -> None:
    if not isinstance(value, Mapping):
        raise UsageError(field, value, "must be a mapping")
    for name in cast("Mapping[object, object]", value):
        if check_text(field, name) in _TAKEN_NAMES:
            raise UsageError(field, name, "holds unknown options only; this one has a field of its own")


_CHECKS: Final[Mapping[str, Callable[[str, object, Limits], None]]] = MappingProxyType(
    {
        "attempts": _check_attempts,
        "backoff": _check_backoff,
        "delay": _check_delay,
        "priority": _check_integral,
        "lifo": _check_bool,
        "timestamp": _check_positive,
        "job_id": check_job_id,
        "parent": _check_parent,
        "remove_on_complete": _check_retention,
        "remove_on_fail": _check_retention,
        "keep_logs": _check_natural,
        "stack_trace_limit": _check_natural,
        "size_limit": _check_positive,
        "repeat": _check_repeat,
        "prev_millis": _check_natural,
        "repeat_job_key": _check_repeat_job_key,
        "deduplication": _check_deduplication,
        "fail_parent_on_failure": _check_bool,
        "continue_parent_on_failure": _check_bool,
        "ignore_dependency_on_failure": _check_bool,
        "remove_dependency_on_failure": _check_bool,
        "telemetry": _check_telemetry,
        "extra": _check_extra,
    }
)
