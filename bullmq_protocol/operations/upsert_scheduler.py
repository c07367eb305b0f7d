"""Create or replace a job scheduler, and say which job it made."""

from __future__ import annotations

from bullmq_protocol.command import Operation
from bullmq_protocol.commands.schedulers import Schedule, add_job_scheduler
from bullmq_protocol.common.codec import json_text, pack
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.schedule import PreparedScheduler


def upsert_scheduler(keys: QueueKeys, prepared: PreparedScheduler) -> Operation[JobRecord]:
    """Create or replace a scheduler with its current job, and return that job as it was sent.

    Steps:   one round trip
    Raises:  SchedulerIdTaken, SchedulerSlotsTaken
    Source:  specs/04-schedulers-flows-events.md#sec-4-4
    """
    rule = prepared.rule
    made = yield from add_job_scheduler(
        keys,
        prepared.scheduler_id,
        schedule=Schedule(
            name=prepared.name,
            start_date=rule.get("startDate"),
            end_date=rule.get("endDate"),
            tz=rule.get("tz"),
            pattern=rule.get("pattern"),
            every=rule.get("every"),
            limit=rule.get("limit"),
            offset=rule.get("offset"),
        ),
        data_text=prepared.data_text,
        packed_template=pack(prepared.template),
        packed_options=pack(prepared.options),
        now=prepared.now,
        next_at=prepared.next_at,
    )
    options = {**prepared.options, "jobId": made.job_id, "delay": made.delay_ms}
    return JobRecord.from_fields(
        made.job_id,
        {
            "name": prepared.name.encode(),
            "data": prepared.data_text.encode(),
            "opts": json_text(options).encode(),
            "timestamp": b"%d" % prepared.now,
            "delay": b"%d" % made.delay_ms,
            "rjk": prepared.scheduler_id.encode(),
        },
    )
