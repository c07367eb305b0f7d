"""Delay before a retry: the specification's table, the cap, jitter, and unknown types."""

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec import UNSET

from bullmq_protocol.common.codec import MAX_SAFE_INTEGER
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.backoff import (
    PLUS_MINUS_20,
    Backoff,
    UnknownBackoff,
    backoff_delay,
    custom_type,
    strategy_delay,
)
from bullmq_protocol.model.options import RETRY_3_EXPONENTIAL

HOUR = 3_600_000
SECOND = Backoff("exponential", 1000)


@pytest.mark.parametrize(
    ("attempt", "delay"),
    [
        (1, 1000),
        (2, 2000),
        (3, 4000),
        (5, 16_000),
        (10, 512_000),
        (12, 2_048_000),
        (13, HOUR),
        (15, HOUR),
        (10_000, HOUR),
    ],
)
def test_retry_schedule_with_a_base_of_one_second(attempt: int, delay: int) -> None:
    assert backoff_delay(SECOND, attempt, roll=0.5) == delay


def test_backoff_cap_at_attempt_15_is_one_hour() -> None:
    assert backoff_delay(SECOND, 15, roll=0.0) == HOUR


@pytest.mark.parametrize(
    ("backoff", "attempt", "delay"),
    [
        (Backoff("exponential", 1.25), 2, 3),
        (Backoff("exponential", 2.5), 1, 3),
        (Backoff("exponential", 0.5), 1, 1),
        (Backoff("exponential", -1.5), 1, -1),
        (SECOND, 31, 1_073_741_824_000),
        (SECOND, 10_000, MAX_SAFE_INTEGER),
        (Backoff("exponential", 0), 10_000, 0),
        (Backoff("exponential", timedelta(seconds=1)), 2, 2000),
        (Backoff("fixed", 1.7), 3, 1.7),
        (Backoff("fixed", timedelta(seconds=1)), 3, 1000),
        (700, 9, 700),
        (timedelta(seconds=2), 1, 2000),
        (Backoff("fixed", 100, 0), 1, 100),
        (Backoff("fixed"), 1, None),
        (Backoff("exponential"), 1, None),
        (None, 1, None),
        (UNSET, 1, None),
    ],
)
def test_table_of_the_specification(backoff: Any, attempt: int, delay: float | None) -> None:
    assert backoff_delay(backoff, attempt, roll=0.99, max_delay_ms=None) == delay


@pytest.mark.parametrize(
    ("backoff", "attempt", "roll", "delay"),
    [
        (Backoff("fixed", 1000, 0.5), 1, 0.0, 500),
        (Backoff("fixed", 1000, 0.5), 1, 0.9999, 999),
        (Backoff("exponential", 1000, 0.25), 3, 0.0, 3000),
        (Backoff("exponential", 1000, 0.25), 3, 0.9999, 3999),
        (Backoff("fixed", 1000, 1), 1, 0.0, 0),
        (Backoff("fixed", 1.7, 0.5), 1, 0.5, 1),
        (Backoff("exponential", 1000, 0.5), 10_000, 0.5, MAX_SAFE_INTEGER),
        (Backoff("exponential", 1, 1), 1025, 0.0, 0),
    ],
)
def test_jitter_of_the_job(backoff: Backoff, attempt: int, roll: float, delay: float) -> None:
    assert backoff_delay(backoff, attempt, roll=roll, max_delay_ms=None) == delay


@pytest.mark.parametrize(("roll", "delay"), [(0.0, 800), (0.5, 1000), (0.999999, 1199)])
def test_extra_jitter_of_the_worker(roll: float, delay: float) -> None:
    assert backoff_delay(Backoff("fixed", 1000), 1, roll=roll, extra_jitter=PLUS_MINUS_20) == delay


def test_the_cap_comes_last() -> None:
    assert backoff_delay(SECOND, 10_000, roll=0.99, extra_jitter=0.2) == HOUR
    assert backoff_delay(Backoff("fixed", 2.0**1023), 1, roll=0.99, extra_jitter=1.0) == HOUR
    assert backoff_delay(Backoff("fixed", 1000), 1, roll=0.99, extra_jitter=0.2, max_delay_ms=1000) == 1000
    assert backoff_delay(Backoff("fixed", 2 * HOUR), 1, roll=0.5) == HOUR
    assert backoff_delay(Backoff("fixed", 2 * HOUR), 1, roll=0.5, max_delay_ms=None) == 2 * HOUR


def test_an_unknown_type_is_an_error_that_names_it() -> None:
    with pytest.raises(UnknownBackoff, match="Unknown backoff strategy mine") as caught:
        backoff_delay(Backoff("mine", 5), 1, roll=0.5)
    assert caught.value.type == "mine"


def test_custom_types_are_distinguished_from_built_in_ones() -> None:
    assert custom_type(Backoff("mine")) == "mine"
    assert [custom_type(backoff) for backoff in (Backoff("fixed", 1), SECOND, 5, UNSET, None)] == [None] * 5


def test_the_ready_made_options_try_three_times() -> None:
    assert RETRY_3_EXPONENTIAL.attempts == 3
    assert [backoff_delay(RETRY_3_EXPONENTIAL.backoff, n, roll=0.5) for n in (1, 2)] == [1000, 2000]


def test_delays_are_finite() -> None:
    delays = [backoff_delay(Backoff("exponential", base), 2000, roll=0.5) for base in (-1000, 0, 1000)]
    assert all(delay is not None and not math.isnan(delay) for delay in delays)


@pytest.mark.parametrize(("answer", "ms"), [(None, 0.0), (5, 5.0), (-1, -1.0), (timedelta(seconds=2), 2000.0)])
def test_what_a_strategy_may_return(answer: object, ms: float) -> None:
    assert strategy_delay(answer) == ms


@pytest.mark.parametrize("answer", ["5", True, Decimal(5), object()])
def test_what_a_strategy_may_not_return(answer: object) -> None:
    with pytest.raises(UsageError, match="backoff strategy"):
        strategy_delay(answer)
