"""Entries of the event stream."""

import msgspec
import pytest

from bullmq_protocol.events import stream
from bullmq_protocol.events.stream import (
    CompletedEvent,
    CustomEvent,
    ProgressEvent,
    QueueEvent,
    decode_entry,
    event_time,
)

ID = "1700000000000-3"


@pytest.mark.parametrize(
    ("fields", "event"),
    [
        ({"event": "added", "jobId": "1", "name": "n"}, stream.AddedEvent(ID, "1", "n")),
        ({"event": "waiting", "jobId": "1"}, stream.WaitingEvent(ID, "1")),
        ({"event": "waiting", "jobId": "1", "prev": "active"}, stream.WaitingEvent(ID, "1", "active")),
        ({"event": "delayed", "jobId": "1", "delay": "1700000001000"}, stream.DelayedEvent(ID, "1", 1700000001000)),
        ({"event": "delayed", "jobId": "1", "delay": "1795820201817.7"}, stream.DelayedEvent(ID, "1", 1795820201817.7)),
        ({"event": "active", "jobId": "1", "prev": "waiting"}, stream.ActiveEvent(ID, "1", "waiting")),
        ({"event": "progress", "jobId": "1", "data": "[50]"}, ProgressEvent(ID, "1", "[50]")),
        (
            {"event": "completed", "jobId": "1", "returnvalue": '{"a":1}', "prev": "active"},
            CompletedEvent(ID, "1", '{"a":1}', "active"),
        ),
        (
            {"event": "failed", "jobId": "1", "failedReason": "no", "prev": "active"},
            stream.FailedEvent(ID, "1", "no", "active"),
        ),
        (
            {"event": "retries-exhausted", "jobId": "1", "attemptsMade": "3"},
            stream.RetriesExhaustedEvent(ID, "1", 3),
        ),
        ({"event": "waiting-children", "jobId": "1"}, stream.WaitingChildrenEvent(ID, "1")),
        ({"event": "stalled", "jobId": "1"}, stream.StalledEvent(ID, "1")),
        ({"event": "drained"}, stream.DrainedEvent(ID)),
        ({"event": "paused"}, stream.PausedEvent(ID)),
        ({"event": "resumed"}, stream.ResumedEvent(ID)),
        ({"event": "cleaned", "count": "7"}, stream.CleanedEvent(ID, 7)),
        ({"event": "removed", "jobId": "1", "prev": "failed"}, stream.RemovedEvent(ID, "1", "failed")),
        ({"event": "duplicated", "jobId": "1"}, stream.DuplicatedEvent(ID, "1")),
        ({"event": "debounced", "jobId": "1", "debounceId": "d"}, stream.DebouncedEvent(ID, "1", "d")),
        (
            {"event": "deduplicated", "jobId": "1", "deduplicationId": "d", "deduplicatedJobId": "2"},
            stream.DeduplicatedEvent(ID, "1", "d", "2"),
        ),
        ({"event": "mine", "a": "ä"}, CustomEvent(ID, "mine", {"a": "ä"})),
        ({"event": "waiting", "id": "1"}, CustomEvent(ID, "waiting", {"id": "1"})),
        ({"event": "cleaned", "count": "many"}, CustomEvent(ID, "cleaned", {"count": "many"})),
        ({"a": "1"}, CustomEvent(ID, "", {"a": "1"})),
        ({}, CustomEvent(ID, "", {})),
    ],
    ids=lambda value: value.get("event", "none") if isinstance(value, dict) else "",
)
def test_an_entry_becomes_its_event(fields: dict[str, str], event: QueueEvent) -> None:
    assert decode_entry(ID, {name: value.encode() for name, value in fields.items()}) == event


def test_json_in_events_is_decoded_when_it_is_looked_at() -> None:
    assert ProgressEvent(ID, "1", '{"done":5}').data == {"done": 5}
    assert CompletedEvent(ID, "1", r'"\ud800"').returnvalue == "\ud800"
    with pytest.raises(msgspec.DecodeError):
        _ = CompletedEvent(ID, "1", "no json").returnvalue


def test_the_time_of_an_event_is_in_its_id() -> None:
    assert event_time(ID) == 1700000000000
    assert event_time("$") is None
    assert (event_time("7"), event_time("7-1-2")) == (7, 7)
    assert event_time("²-1") is None
