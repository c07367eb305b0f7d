"""A job: as read from its hash, and as prepared for adding.

Source: specs/01-data-model-and-adding.md#sec-3-1
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, Struct

from bullmq_protocol.common.codec import json_text, pack, parse_json
from bullmq_protocol.common.keys import QueueKeys, check_name
from bullmq_protocol.common.payloads import PayloadType, payload_type, read_as
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError
from bullmq_protocol.lazy import lazy_pattern
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.model.options import (
    DEFAULT_LIMITS,
    JobOptions,
    Limits,
    ParentRef,
    merged,
    stored_of,
    stored_options_from,
    validate_of,
)

P = TypeVar("P")
T = TypeVar("T")

AddCommand: TypeAlias = Literal["addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob"]

_NO_OPTIONS: Final = JobOptions()
# The options in the hash of a job without any, and as what they are read.
_PLAIN_TEXT: Final = b'{"attempts":0}'
_PLAIN: Final = JobOptions(attempts=0)
NO_OPTIONS_PACKED: Final = pack(stored_of({}))
"""The options stored for a job without any."""

# MessagePack for an array of nine, and of ten.
_HEAD_OF_NINE: Final = b"\x99"
_HEAD_OF_TEN: Final = b"\x9a"
_DEFERRING: Final = pack("1")
_pack_moment: Final = msgspec.msgpack.Encoder().encode
_replace: Final = msgspec.structs.replace
_JS_INTEGER: Final = lazy_pattern(rb"\s*([+-]?[0-9]+)")
_KNOWN_FIELDS: Final = frozenset(
    (
        "id",
        "name",
        "data",
        "opts",
        "timestamp",
        "delay",
        "priority",
        "parentKey",
        "parent",
        "rjk",
        "deid",
        "nrjid",
        "progress",
        "processedOn",
        "pb",
        "ats",
        "atm",
        "stc",
        "defa",
        "failedReason",
        "stacktrace",
        "returnvalue",
        "finishedOn",
        "tm",
        "attemptsMade",
    )
)


# The longest number that JavaScript reads is shorter; Python refuses to read one of thousands of figures.
_MOST_FIGURES = 309


class ParentInfo(Struct, frozen=True, kw_only=True):
    """A job's link to its parent: the parent's id, its qualified queue name, and what this job's failure means to it.

    Source: specs/01-data-model-and-adding.md#sec-3-7
    """

    id: str
    queue_key: str
    fail_parent_on_failure: bool = False
    remove_dependency_on_failure: bool = False
    ignore_dependency_on_failure: bool = False
    continue_parent_on_failure: bool = False


class JobRecord(Struct, frozen=True, dict=True, omit_defaults=True):
    """One job as read from its hash. Fields are decoded when they are looked at; unknown ones are kept.

    Moments and durations are milliseconds. A field that is missing, or no number where one belongs, reads as None (the
    counters as 0). `added` is for jobs that were just added: whether they were, or gave way to an existing job; None
    where nothing tells.

    Source: specs/01-data-model-and-adding.md#sec-3-10
    """

    id: str
    fields: dict[str, bytes]
    added: bool | None = None

    @classmethod
    def from_fields(cls, job_id: str, fields: Mapping[str, bytes]) -> JobRecord:
        """Take the fields of a job's hash as they were read; `job_id` counts unless the hash has a field `id`."""
        own_id = fields.get("id")
        if own_id is not None:
            job_id = own_id.decode("utf-8", "surrogateescape")
        return cls(job_id, fields if isinstance(fields, dict) else dict(fields))

    @property
    def name(self) -> str:
        return self._text("name") or ""

    @property
    def data_text(self) -> str:
        """The data's JSON text; `{}` if there is none."""
        return self._text("data") or "{}"

    @cached_property
    def data(self) -> Any:
        """The data as JSON values. Raises `msgspec.DecodeError` if it is not JSON."""
        return self.data_as(Any)

    @overload
    def data_as(self, type: type[T]) -> T: ...
    @overload
    def data_as(self, type: Any) -> Any: ...
    def data_as(self, type: Any) -> Any:
        """Return the data read into a type: whatever a `data_type` may be. Raises `msgspec.ValidationError` if it does
        not fit."""
        return read_as(self.fields.get("data") or b"{}", type)

    @cached_property
    def opts(self) -> JobOptions:
        """The options, with `attempts` 0 where none are stored. Text that is no JSON object reads as no options."""
        raw = self.fields.get("opts")
        if raw == _PLAIN_TEXT:
            return _PLAIN
        try:
            mapping: Any = parse_json(raw) if raw else None
        except msgspec.DecodeError:
            mapping = None
        if not isinstance(mapping, dict):
            return JobOptions(attempts=0)
        return stored_options_from({"attempts": 0, **cast("dict[str, Any]", mapping)})

    @property
    def attempts(self) -> float:
        """Tries in all, as stored: 0 and 1 both mean a single one."""
        attempts = self.opts.attempts
        return 0 if attempts is UNSET else attempts

    @property
    def timestamp(self) -> Millis | None:
        return self._int("timestamp")

    @property
    def delay(self) -> Millis | None:
        return self._int("delay")

    @property
    def priority(self) -> int | None:
        return self._int("priority")

    @property
    def attempts_made(self) -> int:
        """Finished attempts; the field of old versions counts if both are there."""
        return self._int("attemptsMade" if self.fields.get("attemptsMade") else "atm") or 0

    @property
    def attempts_started(self) -> int:
        return self._int("ats") or 0

    @property
    def stalled_counter(self) -> int:
        return self._int("stc") or 0

    @property
    def processed_on(self) -> Millis | None:
        return self._int("processedOn")

    @property
    def finished_on(self) -> Millis | None:
        return self._int("finishedOn")

    @property
    def progress(self) -> Any:
        """The progress as JSON values; 0 if none was reported. Raises `PayloadError` if it is not JSON."""
        raw = self.fields.get("progress")
        return parse_json(raw) if raw else 0

    @property
    def returnvalue(self) -> Any:
        """The return value as JSON values; None if there is none, or if it is not JSON."""
        return self.returnvalue_as(Any)

    @overload
    def returnvalue_as(self, type: type[T]) -> T | None: ...
    @overload
    def returnvalue_as(self, type: Any) -> Any: ...
    def returnvalue_as(self, type: Any) -> Any:
        """Return the return value read into a type (whatever a `result_type` may be); None if there is none, or if it
        is not JSON.

        Raises `msgspec.ValidationError` if it does not fit.
        """
        raw = self.fields.get("returnvalue")
        if not raw:
            return None
        try:
            return read_as(raw, type)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return None

    @property
    def failed_reason(self) -> str | None:
        return self._text("failedReason")

    @property
    def stacktrace(self) -> list[Any]:
        """One text per failed attempt, oldest first."""
        raw = self.fields.get("stacktrace")
        if not raw:
            return []
        try:
            found = parse_json(raw, list[Any])
        except msgspec.DecodeError:
            return []
        return found

    @property
    def stacktrace_text(self) -> str | None:
        """The stack traces' JSON text as stored."""
        return self._text("stacktrace")

    @property
    def deferred_failure(self) -> str | None:
        """The reason with which this activation must fail."""
        return self._text("defa")

    @property
    def parent_key(self) -> str | None:
        """The parent's job key; taken from the options if the field is gone, as BullMQ does."""
        own = self._text("parentKey")
        if own is not None:
            return own
        parent = self.opts.parent
        return None if parent is UNSET else f"{parent.queue}:{parent.id}"

    @property
    def parent(self) -> ParentInfo | None:
        """The link to the parent; built from the options if the field is gone, as BullMQ does.

        Raises `PayloadError` if the field is not JSON.
        """
        raw = self.fields.get("parent")
        if raw:
            found = parse_json(raw)
            return _parent_info(cast("dict[str, Any]", found)) if isinstance(found, dict) else None
        parent = self.opts.parent
        return None if parent is UNSET else _parent_info(_parent_object(parent, self.opts))

    def without_parent(self) -> JobRecord:
        """Return the job after its link to the parent is gone, which the stored options keep."""
        fields = {name: value for name, value in self.fields.items() if name not in ("parentKey", "parent")}
        if self.opts.parent is not UNSET:
            options = {name: value for name, value in parse_json(fields["opts"]).items() if name != "parent"}
            fields["opts"] = json_text(options, field="opts").encode()
        return JobRecord(self.id, fields)

    @property
    def repeat_job_key(self) -> str | None:
        """The job scheduler that made this job."""
        return self._text("rjk")

    @property
    def deduplication_id(self) -> str | None:
        own = self._text("deid")
        if own is not None:
            return own
        deduplication = self.opts.deduplication
        return None if deduplication is UNSET else deduplication.id

    @property
    def processed_by(self) -> str | None:
        """The name of the worker that took the job, if it has one."""
        return self._text("pb")

    @property
    def next_repeatable_job_id(self) -> str | None:
        return self._text("nrjid")

    @property
    def telemetry_metadata(self) -> str | None:
        """Trace context of the last failed attempt. The job's own is `opts.telemetry`."""
        return self._text("tm")

    @property
    def unknown(self) -> dict[str, bytes]:
        """Fields of other clients."""
        return {name: value for name, value in self.fields.items() if name not in _KNOWN_FIELDS}

    def _text(self, field: str) -> str | None:
        raw = self.fields.get(field)
        return raw.decode("utf-8", "surrogateescape") if raw else None

    def _int(self, field: str) -> int | None:
        raw = self.fields.get(field)
        if not raw or len(raw) > _MOST_FIGURES:
            return None
        if raw.isdigit():
            return int(raw)
        match = _JS_INTEGER.match(raw)
        return int(match[1]) if match else None


def _parent_object(parent: ParentRef, options: JobOptions) -> dict[str, Any]:
    found: dict[str, Any] = {"id": parent.id, "queueKey": parent.queue}
    for name, flag in (
        ("fpof", options.fail_parent_on_failure),
        ("rdof", options.remove_dependency_on_failure),
        ("idof", options.ignore_dependency_on_failure),
        ("cpof", options.continue_parent_on_failure),
    ):
        if flag is True:
            found[name] = True
    return found


def _parent_info(found: dict[str, Any]) -> ParentInfo:
    return ParentInfo(
        id=str(found.get("id", "")),
        queue_key=str(found.get("queueKey", "")),
        fail_parent_on_failure=bool(found.get("fpof")),
        remove_dependency_on_failure=bool(found.get("rdof")),
        ignore_dependency_on_failure=bool(found.get("idof")),
        continue_parent_on_failure=bool(found.get("cpof")),
    )


class NewJob(Struct, frozen=True, gc=False):
    """A job to be added with `add_bulk`.

    Args:
        name: What kind of job it is: 1 to 255 characters. Or a `JobType`, which brings its name, the type of the
            payload, and options.
        data: The payload: any value with a JSON form; `{}` by default.
        options: The job's options, on top of those of a `JobType`; none by default.

    Examples:
        >>> NewJob("welcome", {"to": "ada"}, JobOptions(priority=1)).name
        'welcome'
        >>> WELCOME = JobType("welcome", dict[str, str], options=JobOptions(attempts=3))
        >>> NewJob(WELCOME, {"to": "ada"}).data
        {'to': 'ada'}
    """

    name: str | JobType[Any, Any]
    data: Any = UNSET
    options: JobOptions = JobOptions()

    if TYPE_CHECKING:

        @overload
        def __init__(self, name: JobType[P, Any], data: P, options: JobOptions = ...) -> None: ...
        @overload
        def __init__(self, name: str, data: Any = ..., options: JobOptions = ...) -> None: ...
        def __init__(self, name: Any, data: Any = UNSET, options: Any = ...) -> None: ...


def resolved(new_job: NewJob, data_type: Any) -> tuple[str, Any, JobOptions, Any]:
    """Return name, payload, options and the payload's type, where a `JobType` may bring them."""
    kind = new_job.name
    if isinstance(kind, JobType):
        return kind.name, new_job.data, kind.with_options(new_job.options), kind.data_type
    return kind, new_job.data, new_job.options, data_type


class PreparedJob(Struct, frozen=True, kw_only=True, gc=False):
    """A checked and serialised job: what the add commands put on the wire.

    `job_id` is the id argument, empty for one from the counter. `head` is ARGV[1], `packed_options` ARGV[3]. `shown`
    are the fields of its record that all jobs of its name and options share.

    Source: specs/01-data-model-and-adding.md#sec-7-1
    """

    command: AddCommand
    name: str
    job_id: str
    timestamp: Millis
    options: JobOptions
    data_text: str
    head: bytes
    packed_options: bytes
    parent_key: str | None = None
    parent_dependencies_key: str | None = None
    parent: dict[str, Any] | None = None
    repeat_job_key: str | None = None
    deduplication_key: str | None = None
    warnings: tuple[str, ...] = ()
    shown: dict[str, bytes] = {}


def prepare(
    keys: QueueKeys,
    new_job: NewJob,
    *,
    defaults: JobOptions = JobOptions(),  # noqa: B008
    limits: Limits = DEFAULT_LIMITS,
    now_ms: Millis,
    data_type: Any = Any,
    generated_id: str | None = None,
    parent: ParentRef | None = None,
    has_children: bool = False,
) -> PreparedJob:
    """Merge, check and serialise a job to be added, and choose its command.

    `data_type`, whatever `payload_type` takes, must be able to read the data's JSON again. `generated_id` is an id of
    the caller's making that is not stored in the options (flows); `parent` goes after all other options, as in flows;
    `has_children` makes it a parent that waits for them.

    Raises `UsageError`, naming field, value and rule.

    Source: specs/01-data-model-and-adding.md#sec-8-1
    """
    if not isinstance(new_job, NewJob):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("job", new_job, "must be a NewJob(name, data, options)")
    if not isinstance(new_job.options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("options", new_job.options, "must be a JobOptions, such as JobOptions(delay=1000)")
    name, data, options, data_type = resolved(new_job, data_type)
    checked = check_options(defaults, options, limits=limits, parent=parent, switches=keys.switches)
    return prepare_checked(
        keys,
        name,
        data,
        checked,
        limits=limits,
        now_ms=now_ms,
        data_type=data_type,
        generated_id=generated_id,
        has_children=has_children,
    )


class CheckedOptions(Struct, frozen=True, gc=False):
    """The options of a job, checked and packed: what jobs with the same options and parent have in common."""

    found: dict[str, Any]
    options: JobOptions
    packed: bytes
    warnings: tuple[str, ...]
    parent_key: str | None
    parent_dependencies_key: str | None
    parent: dict[str, Any] | None


def check_options(
    defaults: JobOptions,
    options: JobOptions,
    *,
    limits: Limits = DEFAULT_LIMITS,
    parent: ParentRef | None = None,
    switches: Switches = STRICT_SWITCHES,
) -> CheckedOptions:
    """Merge, check and pack options; `parent` goes after all others. Raises `UsageError`."""
    found = merged(defaults, options)
    if parent is not None:
        found["parent"] = parent
    warnings = validate_of(found, limits=limits, switches=switches) if found else ()
    if "parent" in found and "deduplication" in found and switches.deduplication_in_families != "5.62":
        raise UsageError("deduplication", found["deduplication"].id, _NOT_WITH_PARENT)
    packed = pack(stored_of(found)) if found else NO_OPTIONS_PACKED
    made = JobOptions(**found) if found else _NO_OPTIONS
    parent_key = dependencies_key = parent_map = None
    if "parent" in found:
        ref: ParentRef = found["parent"]
        parent_key = f"{ref.queue}:{ref.id}"
        dependencies_key = f"{parent_key}:dependencies"
        parent_map = _parent_object(ref, made)
    return CheckedOptions(found, made, packed, tuple(warnings), parent_key, dependencies_key, parent_map)


_NOT_WITH_PARENT: Final = (
    "cannot be used together with parent, which BullMQ refuses since 5.70.4; the profile STRICT takes it"
)


class JobTemplate(Struct, frozen=True, gc=False):
    """What jobs of one name with the same options have in common: all of `prepare` that is not about the data."""

    model: PreparedJob
    start: bytes
    before: bytes
    named: bytes
    after: bytes
    timestamp: Millis | None
    """The moment that the options say. The head has it between `before` and `after`; `before` is `start`, the id, and
    `named`."""
    size_limit: float | None
    most_bytes: float
    """The most bytes of data, by the queue's limits and by the options."""
    payload: PayloadType | None
    """How data are written and checked; None: as any JSON value."""
    lasting: bool
    """Whether it holds for later jobs too: the options hold nothing that can be changed."""

    def prepare(self, data: Any, now_ms: Millis, job_id: str | None = None) -> PreparedJob:
        """Do the rest of `prepare`; `job_id` is for a job whose id is not that of the template.

        Raises `UsageError`.
        """
        given: object = data
        if type(given) is not dict and isinstance(given, JobOptions):
            raise UsageError("data", data, "is a JobOptions: options come after the data")
        if self.payload is None:
            data_text = "{}" if data is UNSET else json_text(data)
        elif data is UNSET:
            data_text = self.payload.check_text("data", data, "{}")
        else:
            data_text = self.payload.checked("data", data)
        size = len(data_text) if data_text.isascii() else len(data_text.encode())
        if size > self.most_bytes:
            self._refuse(size)
        timestamp = self.timestamp or now_ms
        if job_id is None:
            head = self.before + _pack_moment(timestamp) + self.after
            return _replace(self.model, timestamp=timestamp, data_text=data_text, head=head)
        head = self.start + pack(job_id) + self.named + _pack_moment(timestamp) + self.after
        return _replace(self.model, job_id=job_id, timestamp=timestamp, data_text=data_text, head=head)

    def _refuse(self, size: int) -> NoReturn:
        name, limit = self.model.name, self.size_limit
        if limit is not None and size > limit:
            raise UsageError("data", name, f"the size of job {name} exceeds the limit {limit} bytes, has {size}")
        options = len(self.model.packed_options)
        most = self.most_bytes + options
        raise UsageError("data", name, f"data and options exceed the limit {most} bytes, have {size + options}")


def template_of(
    keys: QueueKeys,
    name: str,
    checked: CheckedOptions,
    *,
    limits: Limits = DEFAULT_LIMITS,
    data_type: Any = Any,
    generated_id: str | None = None,
    has_children: bool = False,
    deferring: bool = False,
) -> JobTemplate:
    """Return what prepares jobs of one name. Raises `UsageError` for the name.

    `deferring`: the add lets no parent go (specs/06-later-versions.md#sec-11-2).
    """
    name = check_name("name", name, max_length=limits.max_name_length)
    found = checked.found
    job_id = found.get("job_id") or generated_id or ""
    deduplication_key = keys.deduplication(found["deduplication"].id) if "deduplication" in found else None
    repeat_job_key = found.get("repeat_job_key")
    after = (
        checked.parent_key,
        checked.parent_dependencies_key,
        checked.parent,
        repeat_job_key,
        deduplication_key,
    )
    most = math.inf if limits.max_payload_bytes is None else limits.max_payload_bytes - len(checked.packed)
    size_limit = found.get("size_limit")
    model = PreparedJob(
        command=_choose(found, has_children),
        name=name,
        job_id=job_id,
        timestamp=0,
        options=checked.options,
        data_text="",
        head=b"",
        packed_options=checked.packed,
        parent_key=checked.parent_key,
        parent_dependencies_key=checked.parent_dependencies_key,
        parent=checked.parent,
        repeat_job_key=repeat_job_key,
        deduplication_key=deduplication_key,
        warnings=checked.warnings,
        shown=_shown(name, checked, repeat_job_key),
    )
    # Short arrays have one byte before their items.
    start, named = (_HEAD_OF_TEN if deferring else _HEAD_OF_NINE) + pack(keys.base), pack(name)
    return JobTemplate(
        model,
        start,
        start + pack(job_id) + named,
        named,
        pack(after)[1:] + (_DEFERRING if deferring else b""),
        found.get("timestamp"),
        size_limit,
        most if size_limit is None else min(most, size_limit),
        payload_type("data_type", data_type),
        not found or all(map(_is_fixed, found.values())),
    )


def prepare_checked(
    keys: QueueKeys,
    name: str,
    data: Any,
    checked: CheckedOptions,
    *,
    limits: Limits = DEFAULT_LIMITS,
    now_ms: Millis,
    data_type: Any = Any,
    generated_id: str | None = None,
    has_children: bool = False,
) -> PreparedJob:
    """Do the rest of `prepare`, with options that are checked already."""
    template = template_of(
        keys,
        name,
        checked,
        limits=limits,
        data_type=data_type,
        generated_id=generated_id,
        has_children=has_children,
    )
    return template.prepare(data, now_ms)


def _shown(name: str, checked: CheckedOptions, repeat_job_key: str | None) -> dict[str, bytes]:
    packed = checked.packed
    # A job without options is the common case, and the fast one.
    options = _PLAIN_TEXT if packed == NO_OPTIONS_PACKED else json_text(msgspec.msgpack.decode(packed)).encode()
    shown = {"name": name.encode(), "opts": options}
    if not checked.found:
        return shown
    for field, value in (("delay", checked.options.delay), ("priority", checked.options.priority)):
        if isinstance(value, (int, float)):
            shown[field] = b"%d" % value
    for field, text in (("parentKey", checked.parent_key), ("rjk", repeat_job_key)):
        if text is not None:
            shown[field] = text.encode()
    return shown


def _is_fixed(value: object) -> bool:
    return not isinstance(value, Mapping) and not getattr(value, "extra", None)


def _choose(found: Mapping[str, Any], has_children: bool) -> AddCommand:
    if has_children:
        return "addParentJob"
    if found.get("delay"):
        return "addDelayedJob"
    if found.get("priority"):
        return "addPrioritizedJob"
    return "addStandardJob"
