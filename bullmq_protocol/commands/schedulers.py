"""Create, read, advance and remove job schedulers; keep, read and remove repeatable jobs of older clients."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any, cast

import msgspec
from msgspec import UNSET

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.codec import clean_text, pack, parse_json
from bullmq_protocol.common.keys import QueueKeys, check_name
from bullmq_protocol.common.reply import Reply, as_fields, as_int, as_list, as_optional_float, as_optional_text, as_text
from bullmq_protocol.common.units import Millis, to_ms
from bullmq_protocol.errors import UnexpectedReply, UsageError, script_error
from bullmq_protocol.lazy import lazy_module
from bullmq_protocol.model.options import JobOptions, stored_options_from
from bullmq_protocol.model.schedule import RepeatOptions, given_moment
from bullmq_protocol.scripts._lua import (
    ADD_JOB_SCHEDULER,
    ADD_REPEATABLE_JOB,
    GET_JOB_SCHEDULER,
    REMOVE_JOB_SCHEDULER,
    REMOVE_REPEATABLE,
    UPDATE_JOB_SCHEDULER,
    UPDATE_REPEATABLE_JOB_MILLIS,
)

OLDEST_PARTS = 5
"""A key with at least this many parts between colons belongs to the oldest generation of repeatable jobs."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """What a scheduler's record holds beside the templates; dates are moments in ms, `every` is in ms.

    Source: specs/04-schedulers-flows-events.md#add-job-scheduler
    """

    name: str
    start_date: Millis | None = None
    end_date: Millis | None = None
    tz: str | None = None
    pattern: str | None = None
    every: float | None = None
    limit: int | None = None
    offset: Millis | None = None

    def packed(self) -> bytes:
        """Return the msgpack map."""
        return pack(
            {
                "name": self.name,
                "startDate": self.start_date,
                "endDate": self.end_date,
                "tz": self.tz,
                "pattern": self.pattern,
                "every": self.every,
                "limit": self.limit,
                "offset": self.offset,
            },
            field="schedule",
        )


class ScheduledJob(msgspec.Struct, frozen=True):
    """The job that a scheduler made, and in how many ms it is due."""

    job_id: str
    delay_ms: Millis


def add_job_scheduler(
    keys: QueueKeys,
    scheduler_id: str,
    *,
    schedule: Schedule,
    data_text: str,
    packed_template: bytes,
    packed_options: bytes,
    now: Millis,
    next_at: Millis | None = None,
    producer_id: str | None = None,
) -> Command[ScheduledJob]:
    """Create or replace a scheduler and its current job; `next_at` is None for an interval, the slot for a pattern.

    `packed_template` are the options that the record keeps, `packed_options` those of the job.

    Keys:    repeat, delayed, wait, paused, meta, prioritized, marker, id, events, pc, active
    Args:    next slot (ms) or empty, packed schedule, scheduler id, data JSON, packed template options, packed options,
             now (ms), base prefix, key of the producing job or empty
    Reply:   [id, delay] -> ScheduledJob
    Raises:  SchedulerIdTaken, SchedulerSlotsTaken
    Repeat:  unsafe: a second run may find the first job started
    Cost:    O(log n); O(list) when the current job waits
    Source:  specs/04-schedulers-flows-events.md#add-job-scheduler
    """
    return Command(
        "addJobScheduler",
        (*_shared_keys(keys), keys.active),
        (
            "" if next_at is None else next_at,
            schedule.packed(),
            scheduler_id,
            data_text,
            packed_template,
            packed_options,
            now,
            keys.base,
            "" if producer_id is None else keys.job(producer_id),
        ),
        _scheduled_job,
        script=ADD_JOB_SCHEDULER,
    )


def update_job_scheduler(
    keys: QueueKeys,
    scheduler_id: str,
    *,
    producer_id: str,
    data_text: str,
    packed_options: bytes,
    now: Millis,
    next_at: Millis | None = None,
) -> Command[str | None]:
    """Create the next job of a scheduler; `next_at` is None for an interval (`every`), the slot for a pattern.

    Keys:    repeat, delayed, wait, paused, meta, prioritized, marker, id, events, pc, producing job, active
    Args:    next slot (ms) or empty, scheduler id, fallback data JSON, packed options, now (ms), base prefix,
             producer id
    Reply:   the next job's id, nil when the scheduler is gone or has moved on -> str or None
    Raises:  UnexpectedReply
    Repeat:  guarded: a second run finds that the scheduler has moved on
    Cost:    O(log n)
    Source:  specs/04-schedulers-flows-events.md#update-job-scheduler
    """
    return Command(
        "updateJobScheduler",
        (*_shared_keys(keys), keys.job(producer_id), keys.active),
        ("" if next_at is None else next_at, scheduler_id, data_text, packed_options, now, keys.base, producer_id),
        as_optional_text,
        script=UPDATE_JOB_SCHEDULER,
        repeat=Repeat.GUARDED,
    )


def updated_scheduler(command: Command[str | None]) -> str:
    """Return the id of the scheduler that `update_job_scheduler` is for."""
    return str(command.args[1])


def remove_job_scheduler(keys: QueueKeys, scheduler_id: str) -> Command[bool]:
    """Remove a scheduler, and its current job if that is delayed.

    Keys:    repeat, delayed, events
    Args:    scheduler id, base prefix
    Reply:   0 removed, 1 not there -> True when removed
    Repeat:  guarded: a second run finds no scheduler
    Cost:    O(log n)
    Source:  specs/04-schedulers-flows-events.md#remove-job-scheduler
    """
    return Command(
        "removeJobScheduler",
        (keys.repeat, keys.delayed, keys.events),
        (scheduler_id, keys.base),
        _was_removed,
        script=REMOVE_JOB_SCHEDULER,
        repeat=Repeat.GUARDED,
    )


class JobScheduler(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler as it is stored, or a repeatable job of an older client. Dates and `next_at` are moments in ms.

    `offset` and `every` are in ms. A number that cannot be read is None.

    Source: specs/04-schedulers-flows-events.md#sec-4-7
    """

    key: str
    name: str | None = None
    next_at: Millis | None = None
    iteration_count: int | None = None
    limit: int | None = None
    start_date: Millis | None = None
    end_date: Millis | None = None
    tz: str | None = None
    pattern: str | None = None
    every: int | None = None
    offset: int | None = None
    template_data: str | None = None
    """JSON."""
    template_opts: JobOptions | None = None
    job_id: str | None = None
    """Part of the key of a repeatable job of the oldest generation."""

    @property
    def data(self) -> Any:
        """The template's data as JSON values, None without any. Raises `msgspec.DecodeError` if it is not JSON."""
        return None if self.template_data is None else parse_json(self.template_data)


class SchedulerRead(msgspec.Struct, frozen=True):
    """Decode the record of a scheduler, whose next slot is known."""

    key: str
    next_at: Millis | None

    def __call__(self, reply: Reply) -> JobScheduler:
        fields = as_fields(reply)
        parts = self.key.split(":")
        if not fields and len(parts) >= OLDEST_PARTS:
            name, job_id, end_date, tz, *pattern = parts
            rule = ":".join(pattern)
            every = _whole(rule)
            return JobScheduler(
                key=self.key,
                name=name,
                next_at=self.next_at,
                end_date=_whole(end_date),
                tz=tz or None,
                pattern=rule if every is None else None,
                every=every,
                job_id=job_id or None,
            )
        found = {field: value.decode("utf-8", "surrogateescape") for field, value in fields.items() if value}
        return JobScheduler(
            key=self.key,
            name=found.get("name"),
            next_at=self.next_at,
            iteration_count=_whole(found.get("ic")),
            limit=_whole(found.get("limit")),
            start_date=_whole(found.get("startDate")),
            end_date=_whole(found.get("endDate")),
            tz=found.get("tz"),
            pattern=found.get("pattern"),
            every=_whole(found.get("every")),
            offset=_whole(found.get("offset")),
            template_data=found.get("data"),
            template_opts=_template_options(found.get("opts", "")),
        )


class SchedulerFound(msgspec.Struct, frozen=True):
    """Decode getJobScheduler."""

    key: str

    def __call__(self, reply: Reply) -> JobScheduler | None:
        parts = as_list(reply)
        if not parts:
            return None
        if len(parts) != 2:
            raise UnexpectedReply("a record and a score, or nothing", reply)
        return SchedulerRead(self.key, _moment(parts[1]))(parts[0])


def get_job_scheduler(keys: QueueKeys, scheduler_id: str) -> Command[JobScheduler | None]:
    """Read one scheduler.

    Keys:    repeat
    Args:    scheduler id
    Reply:   [fields, next slot], or an empty array -> JobScheduler or None
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(fields)
    Source:  specs/04-schedulers-flows-events.md#get-job-scheduler
    """
    return Command(
        "getJobScheduler",
        (keys.repeat,),
        (scheduler_id,),
        SchedulerFound(scheduler_id),
        script=GET_JOB_SCHEDULER,
        repeat=Repeat.SAFE,
    )


def get_scheduler_slots(
    keys: QueueKeys, *, start: int = 0, end: int = -1, ascending: bool = False
) -> Command[list[tuple[str, Millis]]]:
    """Return the ids of schedulers and repeatable jobs with their next slots, the latest first unless `ascending`.

    Keys:    repeat
    Reply:   members and scores -> list of (id, next slot in ms)
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(log n + ids returned)
    Source:  specs/04-schedulers-flows-events.md#sec-4-1
    """
    name = "ZRANGE" if ascending else "ZREVRANGE"
    return Command(name, (keys.repeat,), (start, end, "WITHSCORES"), _slots, repeat=Repeat.SAFE)


def read_job_scheduler(keys: QueueKeys, scheduler_id: str, *, next_at: Millis | None = None) -> Command[JobScheduler]:
    """Read the record of a scheduler, or of a repeatable job, whose next slot is known already.

    Keys:    record
    Reply:   fields and values -> JobScheduler
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(fields)
    Source:  specs/04-schedulers-flows-events.md#sec-4-7
    """
    decode = SchedulerRead(scheduler_id, next_at)
    return Command("HGETALL", (f"{keys.repeat}:{scheduler_id}",), (), decode, repeat=Repeat.SAFE)


def count_job_schedulers(keys: QueueKeys) -> Command[int]:
    """Count the schedulers and repeatable jobs.

    Keys:    repeat
    Reply:   integer -> int
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/04-schedulers-flows-events.md#sec-4-1
    """
    return Command("ZCARD", (keys.repeat,), (), as_int, repeat=Repeat.SAFE)


class RepeatableKey(msgspec.Struct, frozen=True, kw_only=True):
    """What names a repeatable job of an older client: `rule` is the pattern, or `every` in ms as text.

    Source: specs/04-schedulers-flows-events.md#sec-6-1
    """

    name: str
    job_id: str = ""
    end_date: Millis | None = None
    tz: str = ""
    rule: str = ""

    @property
    def concatenated(self) -> str:
        """The member of the oldest generation."""
        end_date = "" if self.end_date is None else self.end_date
        return clean_text(f"{self.name}:{self.job_id}:{end_date}:{self.tz}:{self.rule}")

    @property
    def hashed(self) -> str:
        """The member of the newer generation."""
        return _hash(self.concatenated)


def repeatable_key(name: str, repeat: RepeatOptions, job_id: str | None = None) -> RepeatableKey:
    """Return the key of the repeatable job that was added with these arguments.

    Raises `UsageError`.

    Source: specs/04-schedulers-flows-events.md#sec-6-1
    """
    name = check_name("name", name, max_length=None)
    if repeat.pattern is not UNSET:
        rule = check_name("pattern", repeat.pattern, max_length=None)
    elif repeat.every is not UNSET:
        rule = str(to_ms("every", repeat.every))
    else:
        raise UsageError("pattern", None, "must be given, or every")
    return RepeatableKey(
        name=name,
        job_id="" if job_id is None else check_name("job_id", job_id, max_length=None),
        end_date=None if repeat.end_date is UNSET else given_moment("end_date", repeat.end_date),
        tz="" if repeat.tz is UNSET else check_name("tz", repeat.tz, max_length=None),
        rule=rule,
    )


def add_repeatable_job(keys: QueueKeys, key: RepeatableKey, schedule: Schedule, *, next_at: Millis) -> Command[str]:
    """Store a repeatable job of the older kind; its job is added by another command.

    Keys:    repeat, delayed
    Args:    next slot (ms), packed schedule, concatenated key, member key, base prefix
    Reply:   the member under which it is stored -> str
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(log n)
    Source:  specs/04-schedulers-flows-events.md#add-repeatable-job
    """
    packed = pack(
        {
            "name": schedule.name,
            "endDate": schedule.end_date,
            "tz": schedule.tz,
            "pattern": schedule.pattern,
            "every": schedule.every,
        },
        field="schedule",
    )
    return Command(
        "addRepeatableJob",
        (keys.repeat, keys.delayed),
        (next_at, packed, key.concatenated, key.hashed, keys.base),
        as_text,
        script=ADD_REPEATABLE_JOB,
        repeat=Repeat.SAFE,
    )


def update_repeatable_job_millis(
    keys: QueueKeys, member: str, concatenated: str, *, next_at: Millis
) -> Command[str | None]:
    """Move the next slot of a repeatable job, found under its member key or its concatenated key.

    Keys:    repeat
    Args:    next slot (ms), member key, concatenated key
    Reply:   the key that was found, or empty -> str, or None when there is none
    Repeat:  safe
    Cost:    O(log n)
    Source:  specs/04-schedulers-flows-events.md#update-repeatable-job-millis
    """
    return Command(
        "updateRepeatableJobMillis",
        (keys.repeat,),
        (next_at, member, concatenated),
        _text_or_none,
        script=UPDATE_REPEATABLE_JOB_MILLIS,
        repeat=Repeat.SAFE,
    )


def remove_repeatable(keys: QueueKeys, key: RepeatableKey) -> Command[bool]:
    """Remove a repeatable job of either older generation, with its delayed job.

    Keys:    repeat, delayed, events
    Args:    id of the oldest kind without its slot, concatenated key, member key, base prefix
    Reply:   0 removed, 1 not there -> True when removed
    Repeat:  guarded: a second run finds nothing
    Cost:    O(log n)
    Source:  specs/04-schedulers-flows-events.md#remove-repeatable
    """
    return _remove_repeatable(keys, oldest_stem(key.name, key.job_id, key.concatenated), key.concatenated, key.hashed)


def remove_repeatable_by_key(keys: QueueKeys, member: str) -> Command[bool]:
    """Remove a repeatable job of either older generation, or a scheduler, by its member of the set of schedulers.

    Keys:    repeat, delayed, events
    Args:    id of the oldest kind without its slot, concatenated key or empty, member key, base prefix
    Reply:   0 removed, 1 not there -> True when removed
    Repeat:  guarded: a second run finds nothing
    Cost:    O(log n)
    Source:  specs/04-schedulers-flows-events.md#remove-repeatable
    """
    name, job_id, *rest = (*member.split(":"), "")
    stem = oldest_stem(name, job_id, member)
    return _remove_repeatable(keys, stem, member if len(rest) > 1 else "", member)


def _remove_repeatable(keys: QueueKeys, oldest_stem: str, concatenated: str, member: str) -> Command[bool]:
    return Command(
        "removeRepeatable",
        (keys.repeat, keys.delayed, keys.events),
        (oldest_stem, concatenated, member, keys.base),
        _was_removed,
        script=REMOVE_REPEATABLE,
        repeat=Repeat.GUARDED,
    )


def _shared_keys(keys: QueueKeys) -> tuple[str, ...]:
    return (
        keys.repeat,
        keys.delayed,
        keys.wait,
        keys.paused,
        keys.meta,
        keys.prioritized,
        keys.marker,
        keys.id,
        keys.events,
        keys.pc,
    )


def _hash(text: str) -> str:
    # It loads OpenSSL, which a program without schedulers may do without.
    digest: str = lazy_module("hashlib").md5(clean_text(text).encode(), usedforsecurity=False).hexdigest()
    return digest


def oldest_stem(name: str, job_id: str, member: str) -> str:
    """Return the id of a job of the oldest generation without its slot.

    Source: specs/04-schedulers-flows-events.md#sec-6-1
    """
    return f"repeat:{_hash(f'{name}{job_id}{_hash(member)}')}:"


def _scheduled_job(reply: Reply) -> ScheduledJob:
    if isinstance(reply, int):
        raise script_error(reply, "addJobScheduler")
    parts = as_list(reply)
    if len(parts) != 2:
        raise UnexpectedReply("an id and a delay", reply)
    return ScheduledJob(as_text(parts[0]), as_int(parts[1]))


def _was_removed(reply: Reply) -> bool:
    return as_int(reply) == 0


def _text_or_none(reply: Reply) -> str | None:
    return as_text(reply) or None


def _moment(reply: Reply) -> Millis | None:
    score = as_optional_float(reply)
    return None if score is None or not isfinite(score) else int(score)


def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(float(text))
    except (ValueError, OverflowError):
        return None


def _slots(reply: Reply) -> list[tuple[str, Millis]]:
    parts = as_list(reply)
    pairs: Sequence[Sequence[Reply]]
    if parts and isinstance(parts[0], (list, tuple)):
        pairs = [as_list(part) for part in parts]
    else:
        pairs = [parts[index : index + 2] for index in range(0, len(parts), 2)]
    found: list[tuple[str, Millis]] = []
    for pair in pairs:
        slot = _moment(pair[1]) if len(pair) == 2 else None
        if slot is None:
            raise UnexpectedReply("ids and scores", reply)
        found.append((as_text(pair[0]), slot))
    return found


def _template_options(text: str) -> JobOptions | None:
    try:
        stored: Any = parse_json(text)
    except msgspec.DecodeError:
        return None
    return stored_options_from(cast("dict[str, Any]", stored)) if isinstance(stored, dict) else None
