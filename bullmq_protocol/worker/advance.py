"""The next run of a job scheduler, as the worker that fetched its current job asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from bullmq_protocol.codec import pack, parse_json
from bullmq_protocol.command import Command
from bullmq_protocol.commands.schedulers import update_job_scheduler
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.job import JobRecord
from bullmq_protocol.keys import QueueKeys
from bullmq_protocol.units import Millis

MAX_ID_PARTS = 4
"""A repeat key with more parts belongs to the oldest generation of repeatable jobs."""


class Unschedulable(BullMQError):
    """The next run cannot be computed here."""


class Schedule(msgspec.Struct, frozen=True):
    """Which schedule a job belongs to: `scheduler_id` is None for an old repeatable job."""

    scheduler_id: str | None


def schedule_of(job: JobRecord) -> Schedule | None:
    """Return the schedule that a fetched job must advance, or None.

    Source: specs/04-schedulers-flows-events.md#sec-4-5
    """
    key: object = job.repeat_job_key or job.opts.extra.get("repeatJobKey")
    if isinstance(key, str) and key.count(":") < MAX_ID_PARTS:
        return Schedule(key)
    return Schedule(None) if job.opts.repeat else None


def advance(keys: QueueKeys, job: JobRecord, schedule: Schedule, *, now: Millis) -> Command[str | None] | None:
    """Return the command that creates the next run, or None when the schedule has ended.

    Raises `Unschedulable` for cron patterns and old repeatable jobs.

    Source: specs/04-schedulers-flows-events.md#sec-4-3
    """
    scheduler_id = schedule.scheduler_id
    if scheduler_id is None:
        raise Unschedulable("repeatable jobs of old clients are not supported yet; the job was put back")
    stored = _stored_options(job)
    repeat = stored.get("repeat")
    if not isinstance(repeat, dict):
        raise Unschedulable(f"job scheduler {scheduler_id!r}: the job has no repeat options; it was put back")
    rule = cast("dict[str, Any]", repeat)
    if rule.get("pattern"):
        raise Unschedulable(
            f"job scheduler {scheduler_id!r}: cron patterns are not supported yet ({rule['pattern']!r}); "
            "the job was put back"
        )
    if not rule.get("every"):
        raise Unschedulable(f"job scheduler {scheduler_id!r}: neither pattern nor every; the job was put back")
    count = rule.get("count")
    iteration = int(count) + 1 if count else 1
    limit = rule.get("limit")
    if limit is not None and iteration > limit:
        return None
    end = rule.get("endDate")
    if end and isinstance(end, (int, float)) and now > end:
        return None
    return update_job_scheduler(
        keys,
        scheduler_id,
        producer_id=job.id,
        data_text=job.data_text,
        packed_options=pack(_next_options(stored, rule, scheduler_id, iteration, now)),
        now=now,
    )


def _next_options(
    stored: Mapping[str, Any], rule: Mapping[str, Any], scheduler_id: str, iteration: int, now: Millis
) -> dict[str, Any]:
    """Return the option map of the next run, its members in their order.

    Source: specs/04-schedulers-flows-events.md#sec-4-4
    """
    backoff = stored.get("backoff")
    options: dict[str, Any] = {"attempts": stored.get("attempts", 0)}
    options.update((name, value) for name, value in stored.items() if name not in ("attempts", "repeatJobKey"))
    if isinstance(backoff, (int, float)) and not isinstance(backoff, bool):
        options["backoff"] = {"type": "fixed", "delay": backoff}
    options["repeat"] = {
        **rule,
        "offset": None,
        "count": iteration,
        "startDate": rule.get("startDate"),
        "endDate": rule.get("endDate"),
    }
    options["jobId"] = f"repeat:{scheduler_id}:undefined"
    options["delay"] = 0
    options["timestamp"] = now
    options.pop("prevMillis", None)
    options["repeatJobKey"] = scheduler_id
    return options


def _stored_options(job: JobRecord) -> dict[str, Any]:
    text = job.fields.get("opts")
    options: object = parse_json(text) if text else {}
    return cast("dict[str, Any]", options) if isinstance(options, dict) else {}
