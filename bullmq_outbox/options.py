"""The options of a relay."""

from __future__ import annotations

import msgspec

from bullmq_protocol.common.units import Duration, Millis, check_whole, to_ms
from bullmq_protocol.errors import UsageError

_LONGEST_MS = 10 * 366 * 24 * 3_600_000


class RelayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a relay takes entries, and what becomes of them. Durations are milliseconds or a `timedelta`.

    Attributes:
        batch: How many entries are taken at once, 1 to 10,000; 500 by default.
        poll: How long a relay that found nothing waits before it looks again, above 0; 500 ms by default. A
            notification of PostgreSQL cuts it short, where the driver receives one.
        keep: How long sent entries stay in the table, in state `sent`; 0, the default: they are deleted at once.
        max_attempts: How often an entry may be refused before it is given up, at least 1; 10 by default. None: never.
        retry_delay: The delay after the first refusal, which doubles with each; 1 s by default.
        max_retry_delay: The longest of these delays; 10 min by default.
        max_reconnect_delay: The longest delay before Redis or the database is tried again; 5 s by default. The first is
            100 ms.
        lease: On SQLite, how long entries belong to the relay that took them: one that is killed holds them up for as
            long. 30 s by default. On PostgreSQL it is the transaction that holds them, and this is not used.

    Examples:
        >>> from datetime import timedelta
        >>> RelayOptions(keep=timedelta(days=1)).checked().keep_ms
        86400000
    """

    batch: int = 500
    poll: Duration = 500
    keep: Duration = 0
    max_attempts: int | None = 10
    retry_delay: Duration = 1_000
    max_retry_delay: Duration = 600_000
    max_reconnect_delay: Duration = 5_000
    lease: Duration = 30_000

    def checked(self) -> RelaySettings:
        """Return the options as numbers.

        Raises:
            UsageError: One is wrong.
        """
        return RelaySettings(
            batch=check_whole("batch", self.batch, least=1, most=10_000),
            poll_ms=_duration("poll", self.poll, 1),
            keep_ms=_duration("keep", self.keep, 0),
            max_attempts=None if self.max_attempts is None else check_whole("max_attempts", self.max_attempts, least=1),
            retry_ms=_duration("retry_delay", self.retry_delay, 1),
            max_retry_ms=_duration("max_retry_delay", self.max_retry_delay, 1),
            max_reconnect_ms=_duration("max_reconnect_delay", self.max_reconnect_delay, 1),
            lease_ms=_duration("lease", self.lease, 1),
        )


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Checked options, all durations in milliseconds."""

    batch: int
    poll_ms: Millis
    keep_ms: Millis
    max_attempts: int | None
    retry_ms: Millis
    max_retry_ms: Millis
    max_reconnect_ms: Millis
    lease_ms: Millis


def check_relay_options(options: object) -> RelaySettings:
    """Return checked options. Raises `UsageError`."""
    if not isinstance(options, RelayOptions):
        raise UsageError("options", options, "must be a RelayOptions")
    return options.checked()


def _duration(field: str, value: Duration, least: Millis) -> Millis:
    ms = to_ms(field, value)
    if not least <= ms <= _LONGEST_MS:
        raise UsageError(field, value, f"must be at least {least} ms and at most ten years")
    return ms
