"""What the tests of frameworks share. Those of `bullmq_django` run in one Django project: that of the example."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import django
import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

PROJECT = Path(__file__).parents[2] / "examples" / "django_shop"


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Set Django up, once in a process: the example's project with SQLite."""
    sys.path.insert(0, str(PROJECT))
    os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    os.environ["SHOP_SQLITE"] = str(tmp_path_factory.mktemp("django") / "shop.sqlite3")
    try:
        django.setup()
        call_command("migrate", verbosity=0)
        connections.close_all()
        backend = {"BACKEND": "bullmq_django.BullMQBackend", "QUEUES": ["first", "second"]}
        with override_settings(TASKS={"default": backend}):
            # Tasks are checked where they are defined, by the backend that there is then.
            importlib.import_module("tests.support.django_tasks_of_tests")
        yield PROJECT
        connections.close_all()
    finally:
        sys.path.remove(str(PROJECT))
        for name in ("DJANGO_SETTINGS_MODULE", "SHOP_SQLITE"):
            del os.environ[name]


@pytest.fixture
def name() -> str:
    """Give a queue name, or a prefix, that no other test uses."""
    return f"q-{uuid4().hex[:12]}"
