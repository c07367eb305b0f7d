"""A clock that tests advance themselves."""

from __future__ import annotations

from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import UsageError


class SimulatedClock:
    """Give the moment it was set to. `advance` moves both clocks, `jump_wall` the wall clock alone."""

    def __init__(self, *, wall: Millis = 1_700_000_000_000, mono: Millis = 0) -> None:
        self._wall = wall
        self._mono = mono

    def __call__(self) -> Instant:
        return Instant(wall=self._wall, mono=self._mono)

    @property
    def wall(self) -> Millis:
        return self._wall

    @property
    def mono(self) -> Millis:
        return self._mono

    def advance(self, ms: Millis) -> Instant:
        """Let time pass. Raises `UsageError` for a negative time: the monotonic clock never goes back."""
        if ms < 0:
            raise UsageError("ms", ms, "must not be negative")
        self._wall += ms
        self._mono += ms
        return self()

    def advance_to(self, mono: Millis) -> Instant:
        """Let time pass until a moment of the monotonic clock."""
        return self.advance(mono - self._mono)

    def jump_wall(self, ms: Millis) -> Instant:
        """Set the wall clock forward or back, as an operator or NTP does."""
        self._wall += ms
        return self()
