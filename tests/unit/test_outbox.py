"""Entries of an outbox: checked when they are made, plain values, and the same job when they are relayed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bullmq_protocol import (
    Backoff,
    Deduplication,
    JobOptions,
    KeepJobs,
    KeyLayout,
    Limits,
    NewJob,
    OutboxEntry,
    ParentRef,
    QueueKeys,
    ServerError,
    UsageError,
    prepare,
)
from bullmq_protocol.model.outbox import entry_of, keys_of, prepared_entry
from bullmq_protocol.operations.add_jobs import add_many
from bullmq_protocol.operations.relay_entries import relay_entries
from bullmq_protocol.scripts.profile import FLEET, STRICT

KEYS = QueueKeys.of("mail")
NOW = 1_700_000_000_000


def entry(name: str = "n", data: Any = None, keys: QueueKeys = KEYS, **options: Any) -> OutboxEntry:
    job = prepare(keys, NewJob(name, {} if data is None else data, JobOptions(**options)), now_ms=NOW)
    return entry_of(keys, job, new_id="new")


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "attempts": st.integers(1, 9),
        "backoff": st.sampled_from([500, Backoff("exponential", 1000), Backoff("own")]),
        "delay": st.integers(0, 10**6),
        "priority": st.integers(0, 2**20),
        "lifo": st.booleans(),
        "timestamp": st.integers(1, 10**13),
        "job_id": st.sampled_from(["one", "two"]),
        "remove_on_complete": st.sampled_from([True, False, 5, KeepJobs(age=60, count=3)]),
        "keep_logs": st.integers(0, 9),
        "deduplication": st.sampled_from([Deduplication("d"), Deduplication("d", ttl=500, extend=True, replace=True)]),
        "parent": st.just(ParentRef(id="1", queue="bull:other")),
        "fail_parent_on_failure": st.booleans(),
        "extra": st.sampled_from([{"own": [1, "two"]}, {"7": "x"}]),
    },
)
_NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
DATA = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(data=DATA, options=OPTIONS)
def test_the_job_of_an_entry_is_the_one_that_was_checked(data: Any, options: dict[str, Any]) -> None:
    made = entry("n", data, **options)
    read = OutboxEntry.from_json(made.to_json())
    assert read == made
    own: dict[str, Any] = {**options, "job_id": made.id, "timestamp": made.timestamp}
    direct = prepare(KEYS, NewJob("n", {} if data is None else data, JobOptions(**own)), now_ms=NOW)
    relayed = prepared_entry(read, keys_of(read))
    assert (relayed.data_text, relayed.command, relayed.job_id) == (direct.data_text, direct.command, made.id)
    assert msgspec.msgpack.decode(relayed.packed_options) == msgspec.msgpack.decode(direct.packed_options)
    assert (relayed.deduplication_key, relayed.parent_key) == (direct.deduplication_key, direct.parent_key)
    assert made.due == made.timestamp + options.get("delay", 0)


def test_its_repr_shows_no_payload() -> None:
    assert repr(entry("n", {"card": 4})) == "OutboxEntry('n' of bull:mail, id='new')"


def test_its_repr_shows_no_login() -> None:
    assert "secret" not in repr(entry("https://ada:secret@host"))


def test_what_only_some_profiles_know_is_relayed_by_them() -> None:
    keys = QueueKeys.of("mail", switches=FLEET.switches)
    made = entry(keys=keys, deduplication=Deduplication("d", keep_last_if_active=True))
    assert prepared_entry(made, keys_of(made, FLEET.switches)).deduplication_key == f"{keys.base}de:d"
    with pytest.raises(UsageError, match="keep_last_if_active"):
        prepared_entry(made, keys_of(made))
    for switches, is_added in ((FLEET.switches, True), (STRICT.switches, False)):
        operation = relay_entries([made], add_many, switches=switches)
        assert (next(operation, None) is not None) is is_added


def test_the_limits_are_those_that_are_given() -> None:
    made = entry(data={"long": "text"})
    limits = Limits(max_payload_bytes=10)
    with pytest.raises(UsageError, match="data: exceeds the limit 10 bytes"):
        prepared_entry(made, KEYS, limits=limits)
    with pytest.raises(StopIteration) as stop:
        next(relay_entries([made], add_many, limits=limits))
    [refused] = stop.value.value
    assert isinstance(refused, UsageError) and refused.field == "data"
    large = prepare(KEYS, NewJob("n", "x" * 11_000_000), limits=Limits(max_payload_bytes=None), now_ms=NOW)
    assert entry_of(KEYS, large, new_id="new", limits=Limits(max_payload_bytes=None)).id == "new"
    with pytest.raises(UsageError, match="data: exceeds the limit"):
        entry_of(KEYS, large, new_id="new")


def test_queues_of_a_name_with_other_prefixes_are_others() -> None:
    other = QueueKeys.of("mail", prefix="shop")
    operation = relay_entries([entry("a", job_id="a"), entry("b", keys=other, job_id="b")], add_many)
    first: Any = next(operation)
    second: Any = operation.send([[b"a"]])
    assert [each.keys[0] for step in (first, second) for each in step.commands] == [KEYS.wait, other.wait]


def test_an_entry_of_another_release_that_has_more_is_read() -> None:
    made = entry()
    more = made.to_json().replace('"version":1', '"version":1,"later":{"a":1}')
    less = made.to_json().replace(',"version":1', "")
    assert more != made.to_json() != less
    assert OutboxEntry.from_json(more) == OutboxEntry.from_json(less) == made


def test_an_id_of_its_own_stays() -> None:
    assert (entry().id, entry(job_id="mine").id) == ("new", "mine")


@pytest.mark.parametrize("layout", list(KeyLayout))
def test_the_queue_is_found_again(layout: KeyLayout) -> None:
    keys = QueueKeys.of("mail", prefix="app", layout=layout)
    assert keys_of(entry(keys=keys)).base == keys.base


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: entry(""), "name"),
        (lambda: entry("n", {"a": object()}), "data"),
        (lambda: entry(priority=-1), "priority"),
        (lambda: entry(size_limit=3, data={"long": "text"}), "data"),
        (lambda: entry(job_id="7"), "job_id"),
    ],
)
def test_a_bad_job_fails_when_the_entry_is_made(make: Any, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"id":1}', b"\xff", None, 7, entry().to_json().replace('"version":1', '"version":2')]
)
def test_what_is_no_entry_is_refused(text: Any) -> None:
    with pytest.raises(UsageError):
        OutboxEntry.from_json(text)


def test_entries_go_queue_by_queue_in_their_order_and_bad_ones_hold_nothing_up() -> None:
    other = QueueKeys.of("other")
    entries: list[Any] = [
        entry("a", job_id="a"),
        entry("b", keys=other, job_id="b"),
        replace(entry("bad"), data="{"),
        replace(entry("worse"), options="[]"),
        replace(entry("worst"), options="no"),
        replace(entry("later"), version=2),
        replace(entry("nowhere"), queue="a:b"),
        "no entry",
        entry("c", job_id="c"),
    ]
    operation = relay_entries(entries, add_many)
    first: Any = next(operation)
    assert [each.keys[0] for each in first.commands] == [KEYS.wait]
    second: Any = operation.send([[b"a", [b"c", 0]]])
    assert [each.keys[0] for each in second.commands] == [other.wait]
    with pytest.raises(StopIteration) as stop:
        operation.send([ServerError("ERR no")])
    found = stop.value.value
    assert (found[0].id, found[0].added, found[8].id, found[8].added) == ("a", True, "c", False)
    assert isinstance(found[1], ServerError)
    fields = [each.field for each in found[2:8]]
    assert fields == ["data", "options", "options", "version", "queue name", "entry"]


def test_nothing_is_relayed_without_a_round_trip() -> None:
    with pytest.raises(StopIteration) as stop:
        next(relay_entries([], add_many))
    assert stop.value.value == []
