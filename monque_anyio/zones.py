"""Time zones by their names, from the system or from the package tzdata (extra `cron`), for cron patterns."""

import os
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache
from importlib import import_module

from bullmq_protocol.model.cron import LOCAL

_ZONES = "zoneinfo"
"""It reads the configuration of Python: imported where a zone is asked for."""
# Files that the system keeps beside the zones, and a zone that stands for none.
_NO_ZONES = frozenset(("", "factory", "localtime", "posixrules"))


class LocalZone(tzinfo):
    """The zone of the process, as the C library knows it."""

    def fromutc(self, moment: datetime) -> datetime:
        return moment.replace(tzinfo=UTC).astimezone()

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None if moment is None else moment.replace(tzinfo=None).astimezone().utcoffset()

    def tzname(self, moment: datetime | None) -> str:
        return LOCAL

    def dst(self, moment: datetime | None) -> None:
        return None


def find_zone(name: str) -> tzinfo | None:
    """Return the zone with an IANA name in any case, or `local`: that of the process; None when there is none."""
    if name != LOCAL:
        return _named(name)
    # Where the system has no zone data, the C library would take a name for UTC.
    return _named(os.environ.get("TZ", "").removeprefix(":")) or LocalZone()


@lru_cache(maxsize=256)
def _named(name: str) -> tzinfo | None:
    lowered = name.lower()
    if lowered in _NO_ZONES or lowered.startswith(("posix/", "right/")):
        return None
    return _read(name) or _read(_spellings().get(lowered, ""))


@cache
def _spellings() -> dict[str, str]:
    available: set[str] = import_module(_ZONES).available_timezones()
    return {name.lower(): name for name in available}


def _read(name: str) -> tzinfo | None:
    try:
        found: tzinfo | None = import_module(_ZONES).ZoneInfo(name) if name else None
    except (KeyError, OSError, ValueError):
        return None
    return found
