"""A package whose extra is not installed says what to install."""

import contextlib
import importlib
import importlib.util
import runpy
import sys
from zoneinfo import ZoneInfo

import pytest

from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.schedule import find_zone


@pytest.mark.parametrize(
    ("package", "library", "extra"),
    [
        ("bullmq_anyio", "anyio", "anyio"),
        ("bullmq_anyio", "hiredis", "anyio"),
        ("bullmq_sync", "redis", "sync"),
        ("bullmq_sync", "hiredis", "sync"),
        ("bullmq_prometheus", "prometheus_client", "prometheus"),
        ("bullmq_otel", "opentelemetry", "otel"),
        ("bullmq_cli.command", "click", "cli"),
        ("bullmq_django", "django", "django"),
        ("bullmq_cli.ctl.entry", "click", "cli"),
        ("bullmq_cli.ctl.entry", "rich", "cli"),
        ("bullmq_cli.ctl.entry", "redis", "cli"),
        ("bullmq_cli.ctl.entry", "hiredis", "cli"),
        ("bullmq_outbox.sqlalchemy", "sqlalchemy", "outbox-sqlalchemy"),
        *((f"bullmq_outbox.{kind}.psycopg", "psycopg", "outbox-psycopg") for kind in ("aio", "sync")),
        *((f"bullmq_outbox.{kind}.sqlalchemy", "sqlalchemy", "outbox-sqlalchemy") for kind in ("aio", "sync")),
        ("bullmq_doctor", "redis", "doctor"),
        ("bullmq_doctor", "click", "doctor"),
        ("bullmq_doctor", "rich", "doctor"),
        ("bullmq_conformance", "click", "conformance"),
        ("bullmq_conformance", "hiredis", "conformance"),
        ("bullmq_conformance", "hypothesis", "conformance"),
        ("bullmq_protocol.testing.strategies", "hypothesis", "testing"),
        ("bullmq_sync.testing.stateful", "hypothesis", "testing"),
    ],
)
def test_missing_library_is_named(package: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    # What it imports besides is there before its library is taken away. Not every Python here has each library.
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(package)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        runpy.run_path(spec.origin)
    assert str(caught.value).endswith(f"({library} is missing): pip install 'bullmq-protocol[{extra}]'")
    assert caught.value.name == library


def test_unknown_zone_names_the_package_of_zone_data() -> None:
    with pytest.raises(UsageError, match=r"pip install 'bullmq-protocol\[cron\]'"):
        find_zone("Europe/Nowhere", lambda name: None)
    assert find_zone("Europe/Berlin", ZoneInfo) == ZoneInfo("Europe/Berlin")
