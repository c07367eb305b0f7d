"""Units: milliseconds and moments. The core receives the time as an argument and never reads a clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeAlias, cast

import msgspec

from bullmq_protocol.errors import UsageError

Number: TypeAlias = int | float
"""A number as JSON has it."""

Millis: TypeAlias = int
"""A whole number of milliseconds: a duration, or a moment since the Unix epoch."""

Duration: TypeAlias = int | timedelta
"""What callers may pass for a duration: milliseconds, or a `timedelta`."""

FIRST_RECONNECT_MS: Final[Millis] = 100
"""How long to wait before a lost connection is tried again."""


class Instant(msgspec.Struct, frozen=True):
    """One reading of both clocks, in milliseconds.

    `wall` (since the Unix epoch) goes on the wire; `mono` (any origin, never going back) drives timers. The two are
    never mixed: a jump of the wall clock changes no timer.
    """

    wall: Millis
    mono: Millis


def check_clock(value: Any) -> Callable[[], Instant] | None:
    """Return what tells the time, or None. Raises `UsageError` for what cannot be called."""
    if value is not None and not callable(value):
        raise UsageError("clock", value, "must be a function that returns an Instant, such as a SimulatedClock")
    return cast("Callable[[], Instant] | None", value)


def to_ms(field: str, value: object) -> Millis:
    """Return a `Duration` as whole milliseconds; `field` names it in the error.

    Raises `UsageError` for booleans, fractions of a millisecond, infinities and other types.
    """
    if isinstance(value, timedelta):
        exact = value / timedelta(milliseconds=1)
        return round(exact)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(field, value, "must be a number of milliseconds or a timedelta")
    if not math.isfinite(value) or value != int(value):
        raise UsageError(field, value, "must be a whole number of milliseconds")
    return int(value)


def reconnect_ms(failures: int, longest: Millis) -> Millis:
    """Return how long to wait before the next attempt to connect: longer after each failure, `longest` at most."""
    # A bound on the power, too: after years it would be a number of many figures.
    return min(FIRST_RECONNECT_MS << min(failures, 30), longest)


def check_whole(field: str, value: object, *, least: int | None = None, most: int | None = None) -> int:
    """Return a whole number within the bounds, or raise `UsageError`. Booleans are none."""
    if type(value) is not int:
        raise UsageError(field, value, "must be a whole number")
    if least is not None and value < least:
        raise UsageError(field, value, f"must be at least {least}")
    if most is not None and value > most:
        raise UsageError(field, value, f"must be at most {most}")
    return value


def check_flag(field: str, value: object) -> bool:
    """Return True or False, or raise `UsageError`."""
    if type(value) is not bool:
        raise UsageError(field, value, "must be True or False")
    return value
