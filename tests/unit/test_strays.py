"""Jobs that a worker holds without knowing of them."""

from __future__ import annotations

from typing import Any

from bullmq_protocol.command import Batch
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.testing.scripted import ScriptedTransport
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.options import WorkerOptions

K = QueueKeys.of("q")


def _run(*exchanges: tuple[str, Any]) -> tuple[list[str], list[Any]]:
    transport = ScriptedTransport(exchanges)
    operation: Any = WorkerMachine(K, WorkerOptions().checked()[0], "me").give_back_strays()
    value: Any = None
    while True:
        try:
            step = operation.send(value)
        except StopIteration as stop:
            transport.check_done()
            return stop.value, transport.sent
        if isinstance(step, Batch):
            value = [transport.perform(each) for each in step.commands]
        else:
            value = transport.perform(step)


def test_own_locks_are_given_back_and_others_left() -> None:
    given, _ = _run(
        ("LRANGE", [b"1", b"2", b"3", b"4", b"5"]),
        ("GET", b"me:0"),
        ("GET", b"another:0"),
        ("GET", None),
        ("GET", b"me2:0"),
        ("GET", b"me:7"),
        ("moveJobFromActiveToWait", 0),
        # It was settled since.
        ("moveJobFromActiveToWait", -2),
    )
    assert given == ["1"]


def test_an_empty_list_asks_nothing_more() -> None:
    assert _run(("LRANGE", []))[0] == []
