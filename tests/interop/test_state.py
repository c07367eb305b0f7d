"""The comparison itself sees what it should see."""

from typing import Any

import pytest

from tests.interop import state

pytestmark = pytest.mark.any_python

STATE: dict[str, Any] = {
    "<0>:wait": {"type": "list", "expires": False, "value": ["b", "a"]},
    "<0>:completed": {"type": "zset", "expires": False, "value": [("a", 1.0), ("b", 2.0)]},
    "<0>:a": {"type": "hash", "expires": False, "value": {"atm": "1", "processedOn": "5", "stacktrace": '["x"]'}},
    "<0>:events": {"type": "stream", "expires": False, "value": [{"event": "waiting", "jobId": "a"}]},
}


def _changed(key: str, value: Any) -> state.State:
    return {**STATE, key: {**STATE.get(key, {"type": "string", "expires": False}), "value": value}}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("<0>:wait", ["a", "b"]),
        ("<0>:completed", [("a", 1.0)]),
        ("<0>:a", {"atm": "2", "processedOn": "5", "stacktrace": '["x"]'}),
        ("<0>:a", {"atm": "1", "processedOn": "5", "stacktrace": "[]"}),
        ("<0>:a", {"atm": "1", "stacktrace": '["x"]'}),
        ("<0>:events", [{"event": "waiting", "jobId": "a"}, {"event": "waiting", "jobId": "a"}]),
        ("<0>:stray", "text"),
    ],
)
def test_differences_are_seen(key: str, value: Any) -> None:
    (line,) = state.differences(_changed(key, value), STATE, races=("order", "wake"))
    assert line.startswith(f"{key}: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("<0>:completed", [("b", 3.0), ("a", 4.0)]),
        ("<0>:a", {"atm": "1", "processedOn": "77", "stacktrace": '["y"]'}),
        ("<0>:stalled-check", "123"),
    ],
)
def test_what_is_left_out_is_no_difference(key: str, value: Any) -> None:
    assert state.differences(_changed(key, value), STATE) == []


def test_a_run_that_was_due_at_once_is_no_difference() -> None:
    events = [{"event": "delayed", "jobId": "a"}, {"event": "waiting", "jobId": "a", "prev": "delayed"}]
    assert state.differences(_changed("<0>:events", events), STATE, races=("slot",)) == []
    (line,) = state.differences(_changed("<0>:events", [*events, {"event": "x"}]), STATE, races=("slot",))
    assert line.startswith("<0>:events: ")
