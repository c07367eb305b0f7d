"""Read the event stream of a queue, and write to it."""

from __future__ import annotations

from collections.abc import Mapping

from bullmq_protocol.command import Batch, Command, Repeat
from bullmq_protocol.common.codec import check_text, number_text
from bullmq_protocol.common.keys import QueueKeys, check_name
from bullmq_protocol.common.reply import Reply, as_list, as_text
from bullmq_protocol.common.units import Millis, check_whole
from bullmq_protocol.errors import UnexpectedReply, UsageError
from bullmq_protocol.events.stream import RawEntry, is_entry_id
from bullmq_protocol.model.options import within_size

NO_ENTRY = "0-0"
"""Stands before every entry."""


def last_event_id(keys: QueueKeys) -> Command[str]:
    """Return the id of the newest entry; `0-0` for an empty stream.

    Keys:    events
    Reply:   entries -> str
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/04-schedulers-flows-events.md#sec-8-1
    """
    return Command("XREVRANGE", (keys.events,), ("+", "-", "COUNT", 1), _first_id, repeat=Repeat.SAFE)


def read_events(keys: QueueKeys, after: str, *, count: int) -> Batch:
    """Read the oldest entry's id, and up to `count` entries after one, at one moment. `events_after` reads the answer.

    Keys:    events
    Repeat:  safe
    Cost:    O(entries returned)
    Source:  specs/04-schedulers-flows-events.md#sec-8-1
    """
    return Batch(
        (
            Command("XRANGE", (keys.events,), ("-", "+", "COUNT", 1), _first_id, repeat=Repeat.SAFE),
            Command(f"XREAD COUNT {count} STREAMS", (keys.events,), (after,), as_entries, repeat=Repeat.SAFE),
        ),
        atomic=True,
    )


def read_events_back(keys: QueueKeys, before: str | None = None, *, count: int) -> Command[tuple[RawEntry, ...]]:
    """Read up to `count` of the newest entries before one (None: of all), the newest first.

    Keys:    events
    Args:    id of the entry, exclusive
    Reply:   entries -> tuple of RawEntry
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(entries returned)
    Source:  specs/04-schedulers-flows-events.md#sec-10
    """
    last = "+" if before is None else f"({before}"
    return Command("XREVRANGE", (keys.events,), (last, "-", "COUNT", count), _entries, repeat=Repeat.SAFE)


def wait_for_events(keys: QueueKeys, after: str, *, count: int, block_ms: Millis) -> Command[tuple[RawEntry, ...]]:
    """Wait for entries after one, at most `block_ms`.

    Keys:    events
    Args:    id of the entry
    Reply:   nil, or entries -> tuple of RawEntry
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(entries returned)
    Source:  specs/04-schedulers-flows-events.md#sec-8-1
    """
    return Command(
        f"XREAD COUNT {count} BLOCK {block_ms} STREAMS",
        (keys.events,),
        (after,),
        as_entries,
        block_ms=block_ms,
        repeat=Repeat.SAFE,
    )


def publish_event(
    keys: QueueKeys, name: str, fields: Mapping[str, object], *, max_events: int = 10_000
) -> Command[str]:
    """Write a custom entry, and trim the stream to about `max_events`.

    Numbers and booleans become their text in JavaScript, None the empty text; other values are refused.

    Keys:    events
    Args:    cap, name, fields and values
    Reply:   the entry's id -> str
    Raises:  UsageError, UnexpectedReply
    Repeat:  unsafe: a second run writes a second entry
    Cost:    O(1)
    Source:  specs/04-schedulers-flows-events.md#sec-9
    """
    name = check_name("name", name, max_length=None)
    check_whole("max_events", max_events, least=1)
    if not isinstance(fields, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("fields", fields, "must map names to values")
    texts = ["event", name]
    for given, value in fields.items():
        field = check_name("field", given, max_length=None)
        if field == "event":
            raise UsageError("field", field, "is the event's name")
        texts += (field, within_size(field, _text(field, value)))
    return Command("XADD", (keys.events,), ("MAXLEN", "~", max_events, "*", *texts), as_text)


def as_entries(reply: Reply) -> tuple[RawEntry, ...]:
    """Return the entries of XREAD on one stream, in the shape of RESP2 or RESP3; none for nil."""
    if not reply:
        return ()
    if isinstance(reply, dict):
        if len(reply) != 1:
            raise UnexpectedReply("one stream's entries", reply)
        (entries,) = reply.values()
    else:
        stream = as_list(as_list(reply)[0])
        if len(stream) != 2:
            raise UnexpectedReply("a stream's name and entries", reply)
        entries = stream[1]
    return _entries(entries)


def _entries(reply: Reply) -> tuple[RawEntry, ...]:
    return tuple(_entry(entry) for entry in as_list(reply))


def _entry(reply: Reply) -> RawEntry:
    parts = as_list(reply)
    if len(parts) != 2:
        raise UnexpectedReply("an entry's id and fields", reply)
    entry_id = as_text(parts[0])
    if not is_entry_id(entry_id):
        raise UnexpectedReply("an entry's id", entry_id)
    return RawEntry(entry_id, parts[1])


def _first_id(reply: Reply) -> str:
    entries = as_list(reply)
    return _entry(entries[0]).entry_id if entries else NO_ENTRY


def _text(field: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return number_text(value)
    if not isinstance(value, str):
        raise UsageError(field, value, "must be text, a number, True, False or None; make other values into text")
    return check_text(field, value)
