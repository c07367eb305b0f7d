"""Delay before a retry.

Source: specs/05-worker-runtime.md#sec-9-2
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, double
from bullmq_protocol.common.units import Duration, Millis, Number, check_whole, to_ms
from bullmq_protocol.errors import BullMQError, UsageError

DEFAULT_MAX_BACKOFF_DELAY_MS: Final[Millis] = 3_600_000
PLUS_MINUS_20: Final = 0.2
"""Extra jitter of +-20 %: a preset for `extra_jitter`."""

_HUGE: Final = 2.0**1023
_BUILT_IN: Final = frozenset(("fixed", "exponential"))


class Backoff(Struct, frozen=True, repr_omit_defaults=True):
    """How long to wait before a retry.

    Args:
        type: `fixed`: always `delay`. `exponential`: `delay`, then twice as long each time. Any other type is left to
            the worker's `backoff_strategy`.
        delay: In milliseconds, or a `timedelta`. Not stored by default, which means 0: no wait.
        jitter: From 0 to 1: the part of the delay that is left to chance, 0 by default: none.
        extra: Further members as another client stored them; none by default.
        max_delay: The longest delay that the two come to: milliseconds above 0, or a `timedelta`. No bound by default.
            It is this library's own: workers on Node do not know it.

    Source: specs/05-worker-runtime.md#sec-9-2

    Examples:
        >>> JobOptions(attempts=5, backoff=Backoff("exponential", 1_000, jitter=0.5))
        JobOptions(attempts=5, backoff=Backoff(type='exponential', delay=1000, jitter=0.5))
    """

    type: str
    delay: Duration | float | UnsetType = UNSET
    jitter: Number | UnsetType = UNSET
    extra: Mapping[str, Any] = {}
    max_delay: Duration | float | UnsetType = UNSET


class UnknownBackoff(BullMQError):
    """The job's backoff type is a custom one, and the worker has no strategy for it."""

    def __init__(self, type: str) -> None:
        super().__init__(
            f"Unknown backoff strategy {type}. If a custom backoff strategy is used, specify it on the worker."
        )
        self.type = type


def custom_type(backoff: Backoff | Duration | float | UnsetType | None) -> str | None:
    """Return the backoff type that only a strategy of the user's can answer, or None."""
    return backoff.type if isinstance(backoff, Backoff) and backoff.type not in _BUILT_IN else None


def backoff_delay(
    backoff: Backoff | Duration | float | UnsetType | None,
    attempt: int,
    *,
    roll: float,
    max_delay_ms: Millis | None = DEFAULT_MAX_BACKOFF_DELAY_MS,
    extra_jitter: float | None = None,
) -> float | None:
    """Return the milliseconds to wait before a retry; None: no backoff, retry at once.

    `attempt` is 1 for the first retry; `roll` in [0, 1) is the dice for the job's own jitter and for the worker's
    `extra_jitter` (0.2 means +-20 %); `max_delay_ms` caps the result last of all, after the job's own `max_delay`
    (None: no cap).

    Raises `UnknownBackoff` for a type that is not built in, `UsageError` for an attempt below 1.
    """
    check_whole("attempt", attempt, least=1)
    if backoff is None or backoff is UNSET:
        return None
    if not isinstance(backoff, Backoff):
        backoff = Backoff("fixed", backoff)
    if backoff.type not in _BUILT_IN:
        raise UnknownBackoff(backoff.type)
    if backoff.delay is UNSET:
        return None
    delay = float(duration_number(backoff.delay))
    if backoff.type == "exponential":
        delay = _exponential(delay, attempt)
    jitter = 0.0 if backoff.jitter is UNSET else backoff.jitter
    if jitter > 0:
        delay = _floor(roll * delay * jitter + delay * (1 - jitter))
    delay = capped(backoff, delay)
    return limit_delay(delay, roll=roll, max_delay_ms=max_delay_ms, extra_jitter=extra_jitter)


def capped(backoff: Backoff, delay: float) -> float:
    """Apply the job's own cap to a delay that is due."""
    if backoff.max_delay is UNSET:
        return delay
    most = duration_number(backoff.max_delay)
    # Another program may have stored a cap that is none.
    return min(delay, float(most)) if most > 0 else delay


def strategy_delay(answer: object) -> float:
    """Return the milliseconds that a backoff strategy of the user's asks for: a number or a `timedelta`; None is 0.

    Raises `UsageError` for anything else.
    """
    if answer is None:
        return 0.0
    if isinstance(answer, timedelta):
        return answer / timedelta(milliseconds=1)
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        raise UsageError("backoff strategy", answer, "must return milliseconds, a timedelta, or None")
    return float(answer)


def duration_number(value: Duration | float) -> Number:
    """Return a duration as a number of milliseconds, not checked."""
    return to_ms("duration", value) if isinstance(value, timedelta) else value


def limit_delay(delay: float, *, roll: float, max_delay_ms: Millis | None, extra_jitter: float | None) -> float:
    """Apply a worker's extra jitter and its cap to a delay that is due."""
    delay = double(delay)
    if extra_jitter is not None and delay > 0:
        delay = _floor(delay * (1 - extra_jitter + 2 * extra_jitter * roll))
    if math.isnan(delay):
        # As JavaScript: at once.
        return 0.0
    # Without a cap: the largest number of milliseconds that the scripts hold exactly.
    most = float(MAX_SAFE_INTEGER if max_delay_ms is None else max_delay_ms)
    return max(min(delay, most), -float(MAX_SAFE_INTEGER))


def _exponential(delay: float, attempt: int) -> float:
    try:
        exact = math.ldexp(delay, attempt - 1)
    except OverflowError:
        return math.copysign(_HUGE, delay)  # not infinite: jitter multiplies it by 0
    # Halves go up, as in JavaScript.
    whole = math.floor(exact)
    return float(whole + (exact - whole >= 0.5))


def _floor(delay: float) -> float:
    return float(math.floor(delay)) if math.isfinite(delay) else delay
