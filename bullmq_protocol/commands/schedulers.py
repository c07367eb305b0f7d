"""Advance a job scheduler when its current job was fetched."""

from __future__ import annotations

from bullmq_protocol._lua import UPDATE_JOB_SCHEDULER
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.keys import QueueKeys
from bullmq_protocol.reply import as_optional_text
from bullmq_protocol.units import Millis


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
        (
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
            keys.job(producer_id),
            keys.active,
        ),
        ("" if next_at is None else next_at, scheduler_id, data_text, packed_options, now, keys.base, producer_id),
        as_optional_text,
        script=UPDATE_JOB_SCHEDULER,
        repeat=Repeat.GUARDED,
    )
