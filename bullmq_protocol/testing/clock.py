"""A clock that tests advance themselves: that of the simulation, and of queues and workers under test (`clock=`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from bullmq_protocol.common.units import Duration, Instant, Millis, check_whole, to_ms
from bullmq_protocol.errors import UsageError
from bullmq_protocol.net.transport import Clock

_BEGIN: Final = Instant(wall=1_700_000_000_000, mono=0)


class SimulatedClock:
    """Give the moment it was set to. `advance` moves both clocks, `jump_wall` the wall clock alone.

    Several workers on any threads may read it; one thread at a time moves it.

    Args:
        wall: Where the wall clock begins: milliseconds since the epoch, or a `datetime` with a time zone. None, the
            default: the moment of `along`, without that 1,700,000,000,000.
        mono: Where the monotonic clock begins, in milliseconds; 0 by default.
        along: Clocks with which it goes on between its jumps, such as `bullmq_anyio.clock`. None, the default: it
            stands still.

    Raises:
        UsageError: `wall` is no whole number, or a `datetime` without a time zone.

    Examples:
        >>> clock = SimulatedClock(wall=1_700_000_000_000)
        >>> clock.advance(hours=24).wall
        1700086400000
    """

    def __init__(self, *, wall: Millis | datetime | None = None, mono: Millis = 0, along: Clock | None = None) -> None:
        began = _BEGIN if along is None else along()
        # Both in one value: a reader on another thread sees no half of a jump.
        self._begin = Instant((began.wall if wall is None else _moment("wall", wall)) - began.mono, mono - began.mono)
        self._along = along
        self._subscribers: dict[object, Callable[[], object]] = {}

    def __call__(self) -> Instant:
        begin = self._begin
        if self._along is None:
            return begin
        passed = self._along().mono
        return Instant(begin.wall + passed, begin.mono + passed)

    @property
    def wall(self) -> Millis:
        """The wall clock: milliseconds since the epoch."""
        return self().wall

    @property
    def mono(self) -> Millis:
        """The monotonic clock, in milliseconds."""
        return self().mono

    def advance(
        self, ms: Duration = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> Instant:
        """Let time pass, and wake those who wait for it.

        Args:
            ms: How much, in milliseconds or as a `timedelta`; 0 by default. The others are added to it.
            seconds: In seconds; 0 by default.
            minutes: In minutes; 0 by default.
            hours: In hours; 0 by default.
            days: In days of 24 hours; 0 by default.

        Raises:
            UsageError: The time is negative, which the monotonic clock does not allow, or no whole number of
                milliseconds.
        """
        whole = span_ms(ms, seconds=seconds, minutes=minutes, hours=hours, days=days)
        self._jump(whole, whole)
        return self()

    def advance_to(self, mono: Millis) -> Instant:
        """Let time pass until a moment of the monotonic clock."""
        return self.advance(mono - self.mono)

    def advance_until(self, moment: Millis | datetime) -> Instant:
        """Let time pass until a moment of the wall clock: milliseconds since the epoch, or a `datetime` with a time
        zone."""
        return self.advance(_moment("moment", moment) - self.wall)

    def jump_wall(self, ms: Millis) -> Instant:
        """Set the wall clock forward or back, as an operator or NTP does."""
        self._jump(ms, 0)
        return self()

    def subscribe(self, jumped: Callable[[], object], /) -> Callable[[], None]:
        """Call a function after each jump, on the thread that made it; return what ends that."""
        key = object()
        self._subscribers[key] = jumped
        return partial(self._unsubscribe, key)

    def _unsubscribe(self, key: object) -> None:
        self._subscribers.pop(key, None)

    def _jump(self, wall: Millis, mono: Millis) -> None:
        begin = self._begin
        self._begin = Instant(begin.wall + wall, begin.mono + mono)
        for each in tuple(self._subscribers.values()):
            each()


def span_ms(ms: Duration = 0, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> Millis:
    """Return a time as `SimulatedClock.advance` takes it, in milliseconds. Raises `UsageError`."""
    more = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
    whole = to_ms("ms", ms) + to_ms("ms", more)
    if whole < 0:
        raise UsageError("ms", whole, "must not be negative")
    return whole


def _moment(field: str, value: Millis | datetime) -> Millis:
    if not isinstance(value, datetime):
        return check_whole(field, value)
    if value.tzinfo is None:
        raise UsageError(field, value, "must have a time zone")
    return round(value.timestamp() * 1000)
