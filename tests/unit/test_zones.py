"""Zones by name, in both adapters."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import ModuleType
from zoneinfo import ZoneInfo

import pytest

import bullmq_anyio.zones
import bullmq_sync.zones
from bullmq_protocol.model.cron import next_run, parse_cron

BOTH = pytest.mark.parametrize("zones", [bullmq_anyio.zones, bullmq_sync.zones])
WINTER, SUMMER = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def berlin() -> Iterator[None]:
    """A process whose zone is given by a rule, not by a name."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "CET-1CEST,M3.5.0,M10.5.0/3"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@BOTH
@pytest.mark.parametrize("name", ["Europe/Berlin", "europe/BERLIN"])
def test_names_in_any_case(zones: ModuleType, name: str) -> None:
    assert zones.find_zone(name) == ZoneInfo("Europe/Berlin")


@BOTH
@pytest.mark.parametrize(
    "name",
    ["", "Europe/Nowhere", "Europe", "../Europe/Berlin", "/etc/localtime", "posix/Europe/Rome", "Factory", "\0"],
)
def test_what_is_no_zone(zones: ModuleType, name: str) -> None:
    assert zones.find_zone(name) is None


@BOTH
def test_the_zone_of_the_process_by_its_name(zones: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert zones.find_zone("local") == ZoneInfo("Asia/Tokyo")


@BOTH
@pytest.mark.usefixtures("berlin")
def test_the_zone_of_the_process_as_the_system_knows_it(zones: ModuleType) -> None:
    local = zones.find_zone("local")
    assert [moment.astimezone(local).utcoffset() for moment in (WINTER, SUMMER)] == [
        timedelta(hours=1),
        timedelta(hours=2),
    ]
    assert datetime(2026, 7, 1, 12, tzinfo=local).astimezone(UTC).hour == 10
    assert (local.tzname(None), local.utcoffset(None), local.dst(None)) == ("local", None, None)
    after = round(datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp() * 1000)
    found = next_run(parse_cron("30 2 * * *"), after, local)
    assert datetime.fromtimestamp(found / 1000, UTC) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)


@BOTH
@pytest.mark.usefixtures("berlin")
@pytest.mark.slow
def test_offsets_of_the_zone_of_the_process(zones: ModuleType) -> None:
    local = zones.LocalZone()
    assert datetime(2026, 1, 1, 12, tzinfo=local).utcoffset() == timedelta(hours=1)
    assert datetime(2026, 7, 1, 12, tzinfo=local).utcoffset() == timedelta(hours=2)
    assert local.utcoffset(None) is None
