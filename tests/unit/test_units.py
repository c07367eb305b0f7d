"""Durations as whole milliseconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bullmq_protocol.common.units import check_flag, check_whole, to_ms
from bullmq_protocol.errors import UsageError


@pytest.mark.parametrize(
    ("value", "ms"), [(5, 5), (5.0, 5), (timedelta(seconds=1.5), 1500), (timedelta(microseconds=600), 1), (-3, -3)]
)
def test_durations(value: Any, ms: int) -> None:
    assert to_ms("delay", value) == ms


@pytest.mark.parametrize("value", [True, "5", None, 1.5, float("nan"), float("inf")])
def test_what_is_no_duration(value: Any) -> None:
    with pytest.raises(UsageError, match="delay") as caught:
        to_ms("delay", value)
    assert caught.value.value is value


def test_whole_numbers_within_their_bounds() -> None:
    assert [check_whole("n", value, least=1, most=3) for value in (1, 2, 3)] == [1, 2, 3]
    assert check_whole("n", -(10**30)) == -(10**30)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (0, "must be at least 1"),
        (4, "must be at most 3"),
        (True, "must be a whole number"),
        (1.0, "must be a whole number"),
        ("1", "must be a whole number"),
    ],
)
def test_what_is_no_such_number(value: Any, rule: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_whole("n", value, least=1, most=3)
    assert (caught.value.field, caught.value.value, caught.value.rule) == ("n", value, rule)


def test_flags() -> None:
    assert check_flag("on", True) is True and check_flag("on", False) is False
    with pytest.raises(UsageError) as caught:
        check_flag("on", 1)
    assert (caught.value.field, caught.value.value) == ("on", 1)
