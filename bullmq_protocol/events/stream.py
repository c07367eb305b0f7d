"""Entries of a queue's event stream as structs.

Source: specs/04-schedulers-flows-events.md#sec-8-3
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec import DecodeError, Struct

from bullmq_protocol.common.codec import parse_json, plain_text
from bullmq_protocol.common.reply import Reply, as_fields
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UnexpectedReply, UsageError


class AddedEvent(Struct, frozen=True, tag="added"):
    """A job's hash was created."""

    entry_id: str
    job_id: str
    name: str


class WaitingEvent(Struct, frozen=True, tag="waiting"):
    """A job can be taken. `prev` is the state it came from, if it is not new."""

    entry_id: str
    job_id: str
    prev: str | None = None


class DelayedEvent(Struct, frozen=True, tag="delayed"):
    """A job is due at `delay_at` (milliseconds since the epoch; the stream calls it `delay`)."""

    entry_id: str
    job_id: str
    delay_at: float


class ActiveEvent(Struct, frozen=True, tag="active"):
    """A job was taken by a worker. `prev` is always `waiting`."""

    entry_id: str
    job_id: str
    prev: str | None = None


class ProgressEvent(Struct, frozen=True, tag="progress"):
    """A job reported progress; `data_text` is its JSON."""

    entry_id: str
    job_id: str
    data_text: str

    @property
    def data(self) -> Any:
        """The progress as JSON values. Raises `msgspec.DecodeError` if it is not JSON."""
        return parse_json(self.data_text)


class CompletedEvent(Struct, frozen=True, tag="completed"):
    """A job finished; `returnvalue_text` is the JSON of its return value."""

    entry_id: str
    job_id: str
    returnvalue_text: str
    prev: str | None = None

    @property
    def returnvalue(self) -> Any:
        """The return value as JSON values. Raises `msgspec.DecodeError` if it is not JSON."""
        return parse_json(self.returnvalue_text)


class FailedEvent(Struct, frozen=True, tag="failed"):
    """A job failed for good."""

    entry_id: str
    job_id: str
    failed_reason: str
    prev: str | None = None


class RetriesExhaustedEvent(Struct, frozen=True, tag="retries-exhausted"):
    """A job's attempts are used up; comes after `failed`."""

    entry_id: str
    job_id: str
    attempts_made: int


class WaitingChildrenEvent(Struct, frozen=True, tag="waiting-children"):
    """A job waits for its children."""

    entry_id: str
    job_id: str
    prev: str | None = None


class StalledEvent(Struct, frozen=True, tag="stalled"):
    """A job's lock had expired; the job waits again."""

    entry_id: str
    job_id: str


class DrainedEvent(Struct, frozen=True, tag="drained"):
    """No job is left to be taken."""

    entry_id: str


class PausedEvent(Struct, frozen=True, tag="paused"):
    """The queue was paused."""

    entry_id: str


class ResumedEvent(Struct, frozen=True, tag="resumed"):
    """The queue was resumed."""

    entry_id: str


class CleanedEvent(Struct, frozen=True, tag="cleaned"):
    """Jobs were removed by `clean`."""

    entry_id: str
    count: int


class RemovedEvent(Struct, frozen=True, tag="removed"):
    """A job was removed; `prev` is the state it was in."""

    entry_id: str
    job_id: str
    prev: str | None = None


class DuplicatedEvent(Struct, frozen=True, tag="duplicated"):
    """A job was added with the id of an existing one."""

    entry_id: str
    job_id: str


class DebouncedEvent(Struct, frozen=True, tag="debounced"):
    """The deprecated twin of `deduplicated`, always written just before it."""

    entry_id: str
    job_id: str
    debounce_id: str


class DeduplicatedEvent(Struct, frozen=True, tag="deduplicated"):
    """A job was added with a deduplication id that another job held: one of the two was dropped.

    In modes that keep the old job, `job_id` is the old job and `deduplicated_job_id` the refused new one. In modes that
    replace it, `job_id` is the new job and `deduplicated_job_id` the removed old one.
    """

    entry_id: str
    job_id: str
    deduplication_id: str
    deduplicated_job_id: str


class CustomEvent(Struct, frozen=True, tag="custom"):
    """An entry that is not one of BullMQ's events: published by an event producer, or from a later version."""

    entry_id: str
    name: str
    fields: dict[str, str]


QueueEvent: TypeAlias = (
    AddedEvent
    | WaitingEvent
    | DelayedEvent
    | ActiveEvent
    | ProgressEvent
    | CompletedEvent
    | FailedEvent
    | RetriesExhaustedEvent
    | WaitingChildrenEvent
    | StalledEvent
    | DrainedEvent
    | PausedEvent
    | ResumedEvent
    | CleanedEvent
    | RemovedEvent
    | DuplicatedEvent
    | DebouncedEvent
    | DeduplicatedEvent
    | CustomEvent
)


class UndecodableEvent(Struct, frozen=True, tag="undecodable"):
    """An entry at which BullMQ's own reader stops: its return value or progress is not JSON, or it has no fields."""

    entry_id: str
    name: str
    fields: dict[str, str]
    reason: str


class EventsMissed(Struct, frozen=True, tag="missed"):
    """The stream was trimmed past the reader: entries after `after` and before `entry_id` may be gone unread.

    `entry_id` is the oldest entry left. There may have been nothing between the two; the server cannot tell.
    """

    after: str
    entry_id: str


ReadEvent: TypeAlias = QueueEvent | UndecodableEvent | EventsMissed
"""What a reader of the stream gives."""


class RawEntry(Struct, frozen=True):
    """An entry as the server sent it."""

    entry_id: str
    fields: Reply


def event_time(entry_id: str) -> Millis | None:
    """Return the moment of an entry (milliseconds since the epoch), taken from its id; None for a malformed id."""
    moment, _, _ = entry_id.partition("-")
    return int(moment) if moment.isascii() and moment.isdigit() and len(moment) <= 20 else None


def entry_place(entry_id: str) -> tuple[int, int]:
    """Return an entry's id as numbers, which compare as the stream is ordered."""
    moment, _, number = entry_id.partition("-")
    return int(moment), int(number or 0)


def is_entry_id(text: str) -> bool:
    return re.fullmatch(r"[0-9]{1,20}(-[0-9]{1,20})?", text) is not None


def check_entry_id(field: str, value: object) -> str:
    """Return the id of an entry, `<milliseconds>-<number>` or milliseconds alone, or raise `UsageError`."""
    text = plain_text(value) if isinstance(value, str) else ""
    if not is_entry_id(text):
        raise UsageError(field, value, "must be the id of an entry, <milliseconds>-<number>; 0-0: all that is there")
    return text


def read_entry(entry: RawEntry) -> QueueEvent | UndecodableEvent:
    """Return the event of one entry as the server sent it, never raising.

    Source: specs/04-schedulers-flows-events.md#sec-8-2
    """
    try:
        event = decode_entry(entry.entry_id, as_fields(entry.fields))
    except UnexpectedReply as error:
        return UndecodableEvent(entry.entry_id, "", {}, str(error))
    if isinstance(event, (CompletedEvent, ProgressEvent)):
        text = event.returnvalue_text if isinstance(event, CompletedEvent) else event.data_text
        try:
            parse_json(text)
        except DecodeError as error:
            name = "completed" if isinstance(event, CompletedEvent) else "progress"
            member = "returnvalue" if isinstance(event, CompletedEvent) else "data"
            return UndecodableEvent(entry.entry_id, name, {"jobId": event.job_id, member: text}, str(error))
    return event


def decode_entry(entry_id: str, fields: Mapping[str, bytes]) -> QueueEvent:
    """Return the event of one stream entry.

    An entry without the fields that its name calls for, or with one that does not read as a number, is a `CustomEvent`:
    any producer may publish one under BullMQ's names.
    """
    texts = {name: value.decode("utf-8", "surrogateescape") for name, value in fields.items()}
    name = texts.pop("event", "")
    build = _BUILDERS.get(name)
    if build is not None:
        try:
            return build(entry_id, texts)
        except (KeyError, ValueError):
            pass
    return CustomEvent(entry_id, name, texts)


_BUILDERS: Final[Mapping[str, Callable[[str, dict[str, str]], QueueEvent]]] = MappingProxyType(
    {
        "added": lambda entry, f: AddedEvent(entry, f["jobId"], f["name"]),
        "waiting": lambda entry, f: WaitingEvent(entry, f["jobId"], f.get("prev")),
        "delayed": lambda entry, f: DelayedEvent(entry, f["jobId"], float(f["delay"])),
        "active": lambda entry, f: ActiveEvent(entry, f["jobId"], f.get("prev")),
        "progress": lambda entry, f: ProgressEvent(entry, f["jobId"], f["data"]),
        "completed": lambda entry, f: CompletedEvent(entry, f["jobId"], f["returnvalue"], f.get("prev")),
        "failed": lambda entry, f: FailedEvent(entry, f["jobId"], f["failedReason"], f.get("prev")),
        "retries-exhausted": lambda entry, f: RetriesExhaustedEvent(entry, f["jobId"], int(f["attemptsMade"])),
        "waiting-children": lambda entry, f: WaitingChildrenEvent(entry, f["jobId"], f.get("prev")),
        "stalled": lambda entry, f: StalledEvent(entry, f["jobId"]),
        "drained": lambda entry, f: DrainedEvent(entry),
        "paused": lambda entry, f: PausedEvent(entry),
        "resumed": lambda entry, f: ResumedEvent(entry),
        "cleaned": lambda entry, f: CleanedEvent(entry, int(f["count"])),
        "removed": lambda entry, f: RemovedEvent(entry, f["jobId"], f.get("prev")),
        "duplicated": lambda entry, f: DuplicatedEvent(entry, f["jobId"]),
        "debounced": lambda entry, f: DebouncedEvent(entry, f["jobId"], f["debounceId"]),
        "deduplicated": lambda entry, f: DeduplicatedEvent(
            entry, f["jobId"], f["deduplicationId"], f["deduplicatedJobId"]
        ),
    }
)
