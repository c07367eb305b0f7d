"""Ask how a job ended, beside the event stream."""

from __future__ import annotations

from bullmq_protocol.command import Batch, Operation
from bullmq_protocol.commands.events import last_event_id
from bullmq_protocol.commands.jobs import is_finished
from bullmq_protocol.errors import BullMQError, JobNotFound
from bullmq_protocol.keys import QueueKeys
from bullmq_protocol.waiters import MISSING, Answer, Finished


def ask_finished(keys: QueueKeys, job_id: str) -> Operation[Answer]:
    """Read a job's end, and the stream's newest entry: before that when it has not ended, after it when it is gone.

    Steps:   one round trip; two for a job that is gone
    Atomic:  no
    Source:  specs/04-schedulers-flows-events.md#sec-10
    """
    newest, state = yield from Batch((last_event_id(keys), is_finished(keys, job_id)))
    if isinstance(state, JobNotFound):
        newest = yield from last_event_id(keys)
        return Answer(newest, Finished(MISSING))
    for each in (newest, state):
        if isinstance(each, BullMQError):
            raise each
    return Answer(newest, None if state.status == "pending" else Finished(state.status, state.value))
