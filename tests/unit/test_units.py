"""Durations as whole milliseconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from bullmq_protocol.errors import UsageError
from bullmq_protocol.units import to_ms


@pytest.mark.parametrize(
    ("value", "ms"), [(5, 5), (5.0, 5), (timedelta(seconds=1.5), 1500), (timedelta(microseconds=600), 1), (-3, -3)]
)
def test_durations(value: Any, ms: int) -> None:
    assert to_ms("delay", value) == ms


@pytest.mark.parametrize("value", [True, "5", None, 1.5, float("nan"), float("inf")])
def test_what_is_no_duration(value: Any) -> None:
    with pytest.raises(UsageError, match="delay"):
        to_ms("delay", value)
