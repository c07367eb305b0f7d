"""Commands, batches and the time as steps of an operation."""

from __future__ import annotations

import pytest

from bullmq_protocol.command import NOW, Batch, Command, Operation, Repeat
from bullmq_protocol.commands.jobs import get_state, update_data
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import as_int
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import JobNotFound, ServerError

K = QueueKeys.of("q")


def test_an_operation_is_a_function_of_its_replies() -> None:
    count = Command("ZCARD", (K.failed,), (), as_int, repeat=Repeat.SAFE)

    def operation() -> Operation[tuple[int, int, str]]:
        now = yield from NOW
        number = yield from count
        states = yield from Batch((get_state(K, "1"),))
        return now.wall, number, states[0]

    running = operation()
    assert next(running) is NOW
    assert running.send(Instant(5, 6)) is count
    assert running.send(3) == Batch((get_state(K, "1"),))
    with pytest.raises(StopIteration) as stop:
        running.send([b"waiting"])
    assert stop.value.value == (5, 3, "waiting")


def test_a_batch_decodes_each_reply_or_gives_its_error() -> None:
    batch = Batch((get_state(K, "1"), update_data(K, "1", "{}"), get_state(K, "2")))
    refused = ServerError("WRONGTYPE no")
    state, missing, error = batch.decode([b"active", -1, refused])
    assert state == "active"
    assert isinstance(missing, JobNotFound)
    assert error is refused
    assert refused.code == "WRONGTYPE" and refused.message == "WRONGTYPE no"
    assert ServerError("something odd").code == "ERR"


def test_a_batch_is_safe_when_all_are() -> None:
    assert Batch((get_state(K, "1"), update_data(K, "1", "{}"))).repeat is Repeat.SAFE
    assert Batch((get_state(K, "1"), Command("INCR", ("k",), (), as_int))).repeat is Repeat.UNSAFE
