"""The next run of a job scheduler or old repeatable job, as the worker that fetched its current job asks for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.commands.fetching import Fetched
from bullmq_protocol.commands.finishing import move_to_delayed
from bullmq_protocol.commands.schedulers import (
    JobScheduler,
    RepeatableKey,
    oldest_stem,
    read_job_scheduler,
    update_job_scheduler,
    update_repeatable_job_millis,
)
from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, clean_text, doubles, number_text, pack, parse_json
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.model.cron import Dialect, Zones
from bullmq_protocol.model.job import AddCommand, JobRecord, PreparedJob
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.model.schedule import (
    next_due,
    next_iteration,
    next_slot,
    number_of,
    options_of_next,
    stored_moment,
)

MAX_DELAY_MS = 300_000

MAX_ID_PARTS = 4
"""A repeat key with more parts belongs to the oldest generation of repeatable jobs."""


_READ: Final[Mapping[str, Dialect]] = MappingProxyType({"4.9": "4.9", "common": "either", "5.10": "5.10"})
"""How the patterns of other clients are read."""


class Unschedulable(BullMQError):
    """The next run cannot be computed."""


class NotContinued(BullMQError):
    """There is no next run, and the job itself is to be run."""


class Schedule(msgspec.Struct, frozen=True):
    """Which schedule a job belongs to: `scheduler_id` is None for a repeatable job of the oldest generation.

    `looked_up` is the key of what may be either: its record says so.
    """

    scheduler_id: str | None
    looked_up: str | None = None


class Advance(msgspec.Struct, frozen=True):
    """What creates the next run: a command, and then perhaps another one, which its answer decides on."""

    command: Command[Any]
    then: Callable[[Any], Advance | None] | None = None

    def following(self, answer: Any) -> Advance | None:
        """Return what comes after the command, None for nothing. Raises `Unschedulable` and `NotContinued`."""
        try:
            return None if self.then is None else self.then(answer)
        except UsageError as error:
            raise Unschedulable(f"repeatable job: {error}; the job was delayed") from None


def schedule_of(job: JobRecord, switches: Switches = STRICT_SWITCHES) -> Schedule | None:
    """Return the schedule that a fetched job must advance, or None.

    Source: specs/04-schedulers-flows-events.md#sec-4-5, specs/06-later-versions.md#sec-4-7-3
    """
    fields = job.fields
    options = fields.get("opts", b"")
    if not fields.get("rjk") and b"epeat" not in options and b"\\" not in options:
        # by far the most: nothing to be decoded
        return None
    key: object = job.repeat_job_key or job.opts.extra.get("repeatJobKey")
    rule = switches.repeat_continuation
    if isinstance(key, str):
        if not (_has_oldest_shape(key) if rule == "6" else key.count(":") >= MAX_ID_PARTS):
            return Schedule(key)
        if rule != "5.62":
            return Schedule(None, key)
    if not key and switches.repeat_without_rjk == "ordinary":
        return None
    return Schedule(None) if job.opts.repeat else None


def _has_oldest_shape(key: str) -> bool:
    """Tell whether BullMQ 6 takes a key for that of a repeatable job of the oldest generation.

    Source: specs/06-later-versions.md#sec-4-7-2
    """
    parts = key.split(":", MAX_ID_PARTS)
    if len(parts) <= MAX_ID_PARTS:
        return False
    end, rule = parts[2], parts[MAX_ID_PARTS]
    return (not end or _is_digits(end)) and (" " in rule or _is_digits(rule))


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def advance(keys: QueueKeys, job: JobRecord, schedule: Schedule, *, now: Millis, zones: Zones) -> Advance | None:
    """Return what creates the next run, or None when the schedule has ended.

    Raises `Unschedulable` for a rule that cannot be followed.

    Source: specs/04-schedulers-flows-events.md#sec-4-3, specs/06-later-versions.md#sec-4-7-2
    """
    key = schedule.looked_up
    if key is not None:

        def then(record: JobScheduler) -> Advance | None:
            if record.iteration_count is not None:
                return advance(keys, job, Schedule(key), now=now, zones=zones)
            if keys.switches.repeat_continuation == "6":
                raise NotContinued(
                    f"{key!r} is no job scheduler, and BullMQ 6 continues no repeatable job; this one runs"
                )
            return advance(keys, job, Schedule(None), now=now, zones=zones) if job.opts.repeat else None

        return Advance(read_job_scheduler(keys, key), then)
    scheduler_id = schedule.scheduler_id
    stored = _stored_options(job)
    repeat = stored.get("repeat")
    if not isinstance(repeat, dict):
        raise Unschedulable(f"job scheduler {scheduler_id!r}: the job has no repeat options; it was delayed")
    rule = cast("dict[str, Any]", repeat)
    try:
        if scheduler_id is None:
            return _advance_repeatable(keys, job, stored, rule, now=now, zones=zones)
        dialect = _READ[keys.switches.cron]
        due = next_due(rule, now=now, previous=stored.get("prevMillis"), zones=zones, dialect=dialect)
        if due is None:
            return None
        options = options_of_next(_base(stored), rule, scheduler_id, due, now=now, zones=zones, switches=keys.switches)
        command = update_job_scheduler(
            keys,
            scheduler_id,
            producer_id=job.id,
            data_text=job.data_text,
            packed_options=pack(options),
            now=now,
            next_at=due.next_at,
        )
    except UsageError as error:
        name = "repeatable job" if scheduler_id is None else f"job scheduler {scheduler_id!r}"
        raise Unschedulable(f"{name}: {error}; the job was delayed") from None
    return Advance(command)


def _base(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the job that was fetched as BullMQ reads them from its hash.

    Source: specs/04-schedulers-flows-events.md#sec-4-4
    """
    base: dict[str, Any] = {"attempts": stored.get("attempts", 0), **stored}
    backoff = number_of(stored.get("backoff"))
    if backoff is not None:
        base["backoff"] = {"type": "fixed", "delay": backoff}
    return base


def _advance_repeatable(
    keys: QueueKeys, job: JobRecord, stored: Mapping[str, Any], rule: dict[str, Any], *, now: Millis, zones: Zones
) -> Advance | None:
    """Advance a repeatable job of the oldest generation: move its slot, then add its next job.

    Source: specs/04-schedulers-flows-events.md#sec-6-4
    """
    rule.pop("immediately", None)
    pattern, every = rule.get("pattern") or rule.get("cron"), number_of(rule.get("every")) or 0
    if pattern and every:
        raise UsageError("every", every, "must not be given together with pattern")
    start, end = stored_moment("startDate", rule, zones), stored_moment("endDate", rule, zones)
    iteration = next_iteration(rule, now=now, end=end)
    if iteration is None:
        return None
    reference = max(now, number_of(stored.get("prevMillis")) or 0)
    if every > 0:
        slot = _slot_of(reference, every)
    elif pattern:
        slot = next_slot(rule, pattern, reference, now=now, start=start, end=end, zones=zones)
    else:
        raise UsageError("pattern", pattern, "must be given, or every")
    if slot is None:
        return None
    next_at = slot
    key = RepeatableKey(
        name=job.name or "",
        job_id=_text(rule.get("jobId")),
        end_date=None if end is None else math.floor(end),
        tz=_text(rule.get("tz")),
        rule=_text(pattern) or number_text(every),
    )
    options = _base(stored)
    options["repeat"] = {"offset": None, **rule, "pattern": pattern or None, "count": iteration}
    due_at = slot + math.floor(number_of(rule.get("offset")) or 0)

    def add(member: str | None) -> Advance | None:
        # Nothing was found: the repeatable job was removed meanwhile.
        if member is None:
            return None
        stem = f"repeat:{member}:" if member.count(":") < 2 else oldest_stem(key.name, _data_id(job), member)
        options.update(jobId=f"{stem}{next_at}", delay=max(0, due_at - now), timestamp=now, prevMillis=next_at)
        return Advance(_add(keys, job, options, member, now))

    command = update_repeatable_job_millis(keys, _text(rule.get("key")) or key.hashed, key.concatenated, next_at=slot)
    return Advance(command, add)


def _slot_of(reference: float, every: float) -> Millis | None:
    """Return the first moment after the reference that is a whole number of periods; None for one that never comes."""
    periods = reference / every
    slot = math.floor(periods) * every + every if math.isfinite(periods) else math.inf
    return math.floor(slot) if slot <= MAX_SAFE_INTEGER else None


def _add(keys: QueueKeys, job: JobRecord, options: Mapping[str, Any], member: str, now: Millis) -> Command[Any]:
    name, job_id = clean_text(job.name), str(options["jobId"])
    at_once: AddCommand = "addPrioritizedJob" if options.get("priority") else "addStandardJob"
    return add_job(
        keys,
        PreparedJob(
            command="addDelayedJob" if options["delay"] else at_once,
            name=name,
            job_id=job_id,
            timestamp=now,
            options=JobOptions(),
            data_text=job.data_text,
            head=pack((keys.base, job_id, name, now, None, None, None, member, None)),
            packed_options=pack(options),
            repeat_job_key=member,
        ),
    )


def _data_id(job: JobRecord) -> str:
    """Return the member `id` of the job's data as text."""
    try:
        data: object = parse_json(job.data_text)
    except msgspec.DecodeError:
        return ""
    return _text(cast("dict[str, object]", data).get("id")) if isinstance(data, dict) else ""


def _text(value: object) -> str:
    """Return text, or a number as text; the empty text for anything else."""
    if isinstance(value, str):
        return value
    number = number_of(value)
    return "" if number is None else number_text(number)


def _stored_options(job: JobRecord) -> dict[str, Any]:
    text = job.fields.get("opts")
    try:
        options: object = doubles(parse_json(text)) if text else {}
    except (msgspec.DecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", options) if isinstance(options, dict) else {}


def delay_problem(message: str) -> str:
    """Return the problem to report about a job whose schedule could not be advanced."""
    return f"Failed to add repeatable job for next iteration: {message}"


def delay_job(keys: QueueKeys, job: JobRecord, *, token: str, now: Millis) -> Command[Fetched | int]:
    """Return the command that delays such a job: 2 s the first time, doubling to five minutes; no attempt is counted.

    Source: specs/05-worker-runtime.md#sec-6
    """
    delay: float = min(1000 * 2 ** max(-9, min(job.attempts_started, 9)), MAX_DELAY_MS)
    return move_to_delayed(keys, job.id, token=token, now=now, delay=delay, count_attempt=False)
