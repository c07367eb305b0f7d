"""Read job schedulers, and the repeatable jobs of older clients, which share their set."""

from __future__ import annotations

from typing import Final, cast

from bullmq_protocol.command import Batch, Operation
from bullmq_protocol.commands.schedulers import JobScheduler, get_scheduler_slots, read_job_scheduler
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.errors import BullMQError

RECORDS_AT_ONCE: Final = 100


def get_job_schedulers(
    keys: QueueKeys, *, start: int = 0, end: int = -1, ascending: bool = False
) -> Operation[list[JobScheduler]]:
    """Read schedulers by the order of their next slots, the latest first unless `ascending`; both ends included.

    Steps:   one round trip for the ids, one per 100 records
    Atomic:  no
    Raises:  UsageError
    Source:  specs/04-schedulers-flows-events.md#sec-4-1
    """
    check_whole("start", start)
    check_whole("end", end)
    slots = yield from get_scheduler_slots(keys, start=start, end=end, ascending=ascending)
    found: list[JobScheduler] = []
    for first in range(0, len(slots), RECORDS_AT_ONCE):
        reads = (
            read_job_scheduler(keys, scheduler_id, next_at=next_at)
            for scheduler_id, next_at in slots[first : first + RECORDS_AT_ONCE]
        )
        for scheduler in (yield from Batch(tuple(reads))):
            if isinstance(scheduler, BullMQError):
                raise scheduler
            found.append(cast("JobScheduler", scheduler))
    return found
