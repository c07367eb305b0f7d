"""Tests of `examples/django_shop`: its views and its tasks, on a server of the test kit and on SQLite.

`BULLMQ_URL` names the test's own server, and the project's settings name none. pytest-django would set the project and
its database up in place of the first fixture.
"""

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.core.management import call_command
from django.db import connections
from django.test import Client

from bullmq_sync.testing import assert_added, assert_not_added

PROJECT = Path(__file__).parents[1] / "django_shop"


@pytest.fixture(scope="session", autouse=True)
def _project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    sys.path.insert(0, str(PROJECT))
    os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
    os.environ["SHOP_SQLITE"] = str(tmp_path_factory.mktemp("shop") / "shop.sqlite3")
    django.setup()
    call_command("migrate", verbosity=0)
    yield
    connections.close_all()


class Shop:
    """What a test does with the project."""

    def __init__(self) -> None:
        self.client = Client()
        # Only a project that is set up can import them.
        self._framework: Any = importlib.import_module("bullmq_django.framework")
        self._workers: Any = importlib.import_module("bullmq_django.workers")
        self._queues: Any = importlib.import_module("bullmq_django.queues")

    def queue(self, name: str) -> Any:
        return self._framework.task_backends["default"].queue(name)

    def work(self, name: str) -> None:
        """Run the project's own worker of a queue until nothing is left to do."""
        (worker,) = self._workers.workers_of("default", [name])
        worker.run(until="idle")

    def close(self) -> None:
        """Close the connections: the next test has another database of Redis."""
        self._queues.SHARED.close()
        connections.close_all()


@pytest.fixture
def shop(bullmq_url: str) -> Iterator[Shop]:
    made = Shop()
    yield made
    made.close()


def test_an_order_is_confirmed_and_written_about(shop: Shop) -> None:
    answer = shop.client.post("/orders", {"address": "ada@example.org"}, content_type="application/json")
    order = answer.json()["order"]
    orders, mail = shop.queue("shop-orders"), shop.queue("shop-mail")
    job = assert_added(orders, "shop.tasks.confirm")
    assert (job.state, job.data["args"]) == ("prioritized", [order])

    shop.work("shop-orders")
    assert shop.client.get(f"/orders/{order}").json()["state"] == "confirmed"
    shop.work("shop-mail")
    assert shop.client.get(f"/orders/{order}").json()["state"] == "written"
    assert assert_added(mail, "shop.tasks.write").state == "completed"


def test_an_order_that_is_not_stored_has_no_job(shop: Shop) -> None:
    with pytest.raises(KeyError):
        shop.client.post("/orders", json.dumps({}), content_type="application/json")
    assert_not_added(shop.queue("shop-orders"), "shop.tasks.confirm")
