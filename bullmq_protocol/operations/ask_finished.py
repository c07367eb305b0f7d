"""Ask how jobs ended, beside the event stream, and in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bullmq_protocol.command import Batch, Operation
from bullmq_protocol.commands.events import NO_ENTRY, last_event_id, read_events_back
from bullmq_protocol.commands.jobs import is_finished
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import as_fields
from bullmq_protocol.errors import BullMQError, JobNotFound, UnexpectedReply
from bullmq_protocol.events.stream import RawEntry
from bullmq_protocol.events.waiters import MISSING, Answer, Finished

PAGES_BACK: Final = (100, 900, 3000, 6000)
"""How many entries are read back at a time: 10,000 in all, the number a queue keeps by default."""

_BEFORE_THE_END: Final = frozenset((b"added", b"waiting", b"delayed", b"active", b"waiting-children", b"stalled"))


def ask_finished(keys: QueueKeys, job_id: str, *, look_back: bool = False) -> Operation[Answer]:
    """Read a job's end, and the stream's newest entry: before that when it has not ended, after it when it is gone.

    With `look_back` the end of a job that is gone is looked for among the newest 10,000 entries of the stream.

    Steps:   one round trip; two for a job that is gone, up to five with `look_back`
    Atomic:  no
    Source:  specs/04-schedulers-flows-events.md#sec-10
    """
    newest, state = yield from Batch((last_event_id(keys), is_finished(keys, job_id)))
    if isinstance(state, JobNotFound):
        if look_back:
            return (yield from _look_back(keys, job_id.encode("utf-8", "surrogateescape")))
        newest = yield from last_event_id(keys)
        return Answer(newest, Finished(MISSING))
    for each in (newest, state):
        if isinstance(each, BullMQError):
            raise each
    return Answer(newest, None if state.status == "pending" else Finished(state.status, state.value))


def _look_back(keys: QueueKeys, job_id: bytes) -> Operation[Answer]:
    newest, before = NO_ENTRY, None
    for count in PAGES_BACK:
        entries = yield from read_events_back(keys, before, count=count)
        if entries and before is None:
            newest = entries[0].entry_id
        for entry in entries:
            found = _end(entry, job_id)
            if found is not None:
                return Answer(newest, found, certain=True)
        if len(entries) < count:
            break
        before = entries[-1].entry_id
    return Answer(newest, Finished(MISSING))


def _end(entry: RawEntry, job_id: bytes) -> Finished | None:
    """Return the end of a job that is gone, as an entry shows it; None if the entry shows none. A removal shows none:
    it comes after the end."""
    try:
        fields = as_fields(entry.fields)
    except UnexpectedReply:
        return None
    if fields.get("jobId") != job_id:
        return None
    name = fields.get("event")
    if name == b"completed":
        return Finished("completed", _text(fields.get("returnvalue")))
    if name == b"failed":
        return Finished("failed", _text(fields.get("failedReason")))
    # It was alive after the last end in the stream.
    return Finished(MISSING) if name in _BEFORE_THE_END else None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "surrogateescape")


def ask_again(keys: QueueKeys, job_ids: Sequence[str]) -> Operation[dict[str, Answer]]:
    """Read the ends of many jobs that had not ended before, and whose events are read since.

    A job is left out about which the server could not answer.

    Steps:   one round trip; two if a job is gone
    Atomic:  no
    Source:  specs/04-schedulers-flows-events.md#sec-10
    """
    newest, *states = yield from Batch((last_event_id(keys), *[is_finished(keys, job_id) for job_id in job_ids]))
    if isinstance(newest, BullMQError):
        raise newest
    answers: dict[str, Answer] = {}
    gone: list[str] = []
    for job_id, state in zip(job_ids, states, strict=True):
        if isinstance(state, JobNotFound):
            gone.append(job_id)
        elif not isinstance(state, BullMQError):
            finished = None if state.status == "pending" else Finished(state.status, state.value)
            answers[job_id] = Answer(newest, finished)
    if gone:
        # The events of their ends stand before the entry that is the newest now.
        newest = yield from last_event_id(keys)
        answers |= dict.fromkeys(gone, Answer(newest, Finished(MISSING)))
    return answers
