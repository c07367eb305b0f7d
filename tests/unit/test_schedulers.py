"""The decoders of the scheduler commands, and the keys of repeatable jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bullmq_protocol.command import Command
from bullmq_protocol.commands import schedulers
from bullmq_protocol.commands.schedulers import JobScheduler, RepeatableKey, Schedule, ScheduledJob
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import SchedulerIdTaken, SchedulerSlotsTaken, UnexpectedReply, UsageError
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.model.schedule import RepeatOptions

K = QueueKeys.of("q")
NOW = 1_700_000_000_000
RULE = Schedule(name="jn", every=60_000, start_date=5, end_date=9, tz="UTC", limit=3)


def add() -> Command[ScheduledJob]:
    return schedulers.add_job_scheduler(
        K, "s", schedule=RULE, data_text="{}", packed_template=b"\x80", packed_options=b"\x80", now=NOW
    )


def test_a_schedule_is_packed_in_the_order_of_the_specification() -> None:
    decoded = msgspec.msgpack.decode(RULE.packed())
    assert list(decoded.items()) == [
        ("name", "jn"),
        ("startDate", 5),
        ("endDate", 9),
        ("tz", "UTC"),
        ("pattern", None),
        ("every", 60_000),
        ("limit", 3),
        ("offset", None),
    ]


def test_reply_of_add() -> None:
    assert add().decode([b"repeat:s:5", 17]) == ScheduledJob("repeat:s:5", 17)
    with pytest.raises(SchedulerIdTaken, match="job ID already exists"):
        add().decode(-10)
    with pytest.raises(SchedulerSlotsTaken, match="current and next time slots"):
        add().decode(-11)
    with pytest.raises(UnexpectedReply):
        add().decode([b"x"])


FULL = {
    "name": "jn",
    "limit": "5",
    "every": "60000",
    "offset": "1185",
    "opts": '{"kl":7,"attempts":3}',
    "data": '{"a":1}',
    "ic": "2",
    "startDate": "1.5",
    "endDate": "x",
    "tz": "UTC",
    "pattern": "",
}
FLAT = [text.encode() for item in FULL.items() for text in item]
READ = JobScheduler(
    key="s",
    name="jn",
    next_at=NOW,
    iteration_count=2,
    limit=5,
    start_date=1,
    tz="UTC",
    every=60_000,
    offset=1185,
    template_data='{"a":1}',
    template_opts=JobOptions(attempts=3, keep_logs=7),
)


@pytest.mark.parametrize(
    ("command", "reply", "value"),
    [
        (schedulers.remove_job_scheduler(K, "s"), 0, True),
        (schedulers.remove_job_scheduler(K, "s"), 1, False),
        (schedulers.get_job_scheduler(K, "s"), [], None),
        (schedulers.get_job_scheduler(K, "s"), [FLAT, b"1700000000000"], READ),
        (schedulers.get_job_scheduler(K, "s"), [[], b"1.5"], JobScheduler(key="s", next_at=1)),
        (
            schedulers.read_job_scheduler(K, "s", next_at=NOW),
            [b"opts", b"[1]", b"ic", b"inf"],
            JobScheduler(key="s", next_at=NOW),
        ),
        (
            schedulers.read_job_scheduler(K, "s"),
            [b"opts", b"{bad", b"name", b"jn"],
            JobScheduler(key="s", name="jn"),
        ),
        (
            schedulers.read_job_scheduler(K, "jn:cust:1893456000000:Europe/London:0 0 1 1 *", next_at=NOW),
            [],
            JobScheduler(
                key="jn:cust:1893456000000:Europe/London:0 0 1 1 *",
                name="jn",
                job_id="cust",
                end_date=1893456000000,
                tz="Europe/London",
                pattern="0 0 1 1 *",
                next_at=NOW,
            ),
        ),
        (
            schedulers.read_job_scheduler(K, "jn::::60000"),
            [],
            JobScheduler(key="jn::::60000", name="jn", every=60_000),
        ),
        (schedulers.get_scheduler_slots(K), [], []),
        (schedulers.get_scheduler_slots(K), [b"a", b"5", b"b", b"1.5"], [("a", 5), ("b", 1)]),
        (schedulers.get_scheduler_slots(K), [[b"a", 5.0], [b"b", 1.0]], [("a", 5), ("b", 1)]),
        (schedulers.count_job_schedulers(K), 3, 3),
        (schedulers.update_repeatable_job_millis(K, "m", "c", next_at=1), b"m", "m"),
        (schedulers.update_repeatable_job_millis(K, "m", "c", next_at=1), b"", None),
        (schedulers.remove_repeatable_by_key(K, "s"), 0, True),
        (schedulers.remove_repeatable(K, RepeatableKey(name="jn", rule="5")), 1, False),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_reply_is_read(command: Command[Any], reply: Any, value: Any) -> None:
    assert command.decode(reply) == value


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (schedulers.get_job_scheduler(K, "s"), [[]]),
        (schedulers.get_scheduler_slots(K), [b"a"]),
        (schedulers.get_scheduler_slots(K), [[b"a", None]]),
    ],
)
def test_another_shape_is_refused(command: Command[Any], reply: Any) -> None:
    with pytest.raises(UnexpectedReply):
        command.decode(reply)


def test_keys_of_repeatable_jobs() -> None:
    every = RepeatableKey(name="jn", rule="60000")
    assert (every.concatenated, every.hashed) == ("jn::::60000", "45058748743d4d95ccd17fd5fb7bcfb3")


@pytest.mark.parametrize(
    ("repeat", "job_id", "concatenated"),
    [
        (RepeatOptions(every=timedelta(minutes=1)), None, "jn::::60000"),
        (
            RepeatOptions(pattern="0 0 1 1 *", tz="Europe/London", end_date=datetime(2030, 1, 1, tzinfo=UTC)),
            "cust",
            "jn:cust:1893456000000:Europe/London:0 0 1 1 *",
        ),
    ],
)
def test_the_key_of_what_was_added(repeat: RepeatOptions, job_id: str | None, concatenated: str) -> None:
    assert schedulers.repeatable_key("jn", repeat, job_id).concatenated == concatenated


@pytest.mark.parametrize(
    ("name", "repeat", "job_id", "field"),
    [
        ("", RepeatOptions(every=5), None, "name"),
        ("jn", RepeatOptions(), None, "pattern"),
        ("jn", RepeatOptions(pattern=""), None, "pattern"),
        ("jn", RepeatOptions(every=1.5), None, "every"),  # type: ignore[arg-type]
        ("jn", RepeatOptions(every=5, tz=""), None, "tz"),
        ("jn", RepeatOptions(every=5), "", "job_id"),
    ],
)
def test_a_bad_key_is_refused(name: str, repeat: RepeatOptions, job_id: str | None, field: str) -> None:
    with pytest.raises(UsageError) as raised:
        schedulers.repeatable_key(name, repeat, job_id)
    assert raised.value.field == field


def test_the_data_of_a_template() -> None:
    assert JobScheduler(key="s", template_data='{"a":1}').data == {"a": 1}
    assert JobScheduler(key="s").data is None
