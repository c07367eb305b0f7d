"""`bullmq_django.outbox` in a real Django project, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import importlib
import io
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bullmq_outbox import RelayOptions
from bullmq_protocol import Deduplication, JobOptions, Limits, UsageError
from bullmq_protocol.scripts.profile import STRICT
from bullmq_sync import Queue
from tests.support import pages, postgres
from tests.support.servers import Server, closed_port
from tests.support.web import program

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_PROJECT = Path(__file__).parents[2] / "examples" / "django_shop"


@pytest.fixture
def rows(project: object) -> Iterator[Any]:
    """Give the model, with no rows."""
    model = importlib.import_module("bullmq_django.outbox.models").OutboxRow
    model.objects.all().delete()
    yield model
    model.objects.all().delete()
    importlib.import_module("django.db").connections.close_all()


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any]("first", server.url, prefix=name) as queue:
        yield queue
        queue.obliterate(force=True)


def relay(server: Server, **options: Any) -> Any:
    made = importlib.import_module("bullmq_django.outbox.relay").OutboxRelay
    return made("default", server.url, options=RelayOptions(**options))


def relayed(server: Server, **options: Any) -> Any:
    with relay(server, **options) as each:
        return each.relay_once()


def waiting(queue: Queue[Any]) -> list[str]:
    return [job.name for job in queue.get_jobs("waiting", asc=True)]


def test_an_entry_follows_its_transaction(rows: Any, queue: Queue[Any], server: Server) -> None:
    transaction = importlib.import_module("django.db").transaction
    with transaction.atomic():
        [row] = rows.objects.add(queue.entry("a", {"n": 1}))
        rows.objects.add([queue.entry("b"), queue.entry("c")], key="k")
    assert str(row) == f"{row.pk} (waiting)"
    with transaction.atomic():
        rows.objects.add(queue.entry("gone"))
        transaction.set_rollback(True)
    assert rows.objects.count() == 3
    assert relayed(server).sent == 3 and rows.objects.count() == 0
    assert waiting(queue) == ["a", "b", "c"]
    for wrong, key in ((None, None), (queue.entry("a"), "")):
        with pytest.raises(UsageError):
            rows.objects.add(wrong, key=key)


def test_the_page_stores_an_entry_beside_an_order(rows: Any, queue: Queue[Any], server: Server) -> None:
    [text] = [each for each in pages.snippets("outbox.md") if "bullmq_django" in each]
    order = importlib.import_module("shop.models").Order
    transaction = importlib.import_module("django.db").transaction
    # The database is that of all tests of this process: another page's program stores an order, too.
    order.objects.all().delete()
    exec(text, {"transaction": transaction, "Order": order, "address": "ada@example.org", "queue": queue})
    [row] = rows.objects.all()
    stored = order.objects.get(address="ada@example.org")
    assert row.order_key == f"order:{stored.pk}" and relayed(server).sent == 1
    assert [job.data for job in queue.get_jobs("waiting")] == [{"order": stored.pk}]


def test_what_was_sent_is_kept_where_that_is_asked(rows: Any, queue: Queue[Any], server: Server) -> None:
    rows.objects.add(queue.entry("a"))
    assert relayed(server, keep=60_000).sent == 1
    [row] = rows.objects.all()
    assert row.state == rows.State.SENT and row.settled_at > 1_600_000_000_000
    rows.objects.update(settled_at=0)
    with relay(server, keep=60_000) as each:
        assert each.clean_up() == 1
    assert rows.objects.count() == 0


def test_a_relay_runs_until_it_is_stopped(rows: Any, queue: Queue[Any], server: Server) -> None:
    each = relay(server, poll=10)
    thread = threading.Thread(target=each.run)
    thread.start()
    rows.objects.add(queue.entry("a"))
    with importlib.import_module("redis").Redis.from_url(server.url, socket_timeout=None) as client:
        assert client.xread({queue.keys.events: "0"}, block=60_000)
    each.stop()
    thread.join()
    assert rows.objects.count() == 0 and waiting(queue) == ["a"]


def test_the_migrations_are_those_of_the_model(project: object) -> None:
    call_command = importlib.import_module("django.core.management").call_command
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    call_command("migrate", "bullmq_outbox", "zero", verbosity=0)
    call_command("migrate", verbosity=0)


def test_a_database_of_another_kind_is_refused(project: object) -> None:
    django_db = importlib.import_module("django.db")
    module = importlib.import_module("bullmq_django.outbox.relay")
    improper = importlib.import_module("django.core.exceptions").ImproperlyConfigured
    before = dict(django_db.connections.settings)
    django_db.connections.settings["none"] = {
        **before["default"],
        "ENGINE": "django.db.backends.dummy",
    }
    try:
        with pytest.raises(improper, match="must be postgresql or sqlite for the outbox, is unknown"):
            module.OutboxRelay("none")
    finally:
        del django_db.connections.settings["none"]


# --- other databases --------------------------------------------------------------------------------------------------


@contextmanager
def database(alias: str, **own: Any) -> Iterator[None]:
    """Have another database in `DATABASES`."""
    connections = importlib.import_module("django.db").connections
    connections.settings[alias] = {**connections.settings["default"], **own}
    try:
        yield
    finally:
        connections[alias].close()
        del connections[alias], connections.settings[alias]


def migrate(alias: str) -> None:
    importlib.import_module("django.core.management").call_command("migrate", database=alias, verbosity=0)


def command(**options: Any) -> str:
    """Run `manage.py bullmqrelay --once` here; return what it prints."""
    out = io.StringIO()
    call_command = importlib.import_module("django.core.management").call_command
    call_command("bullmqrelay", once=True, stdout=out, **options)
    return out.getvalue().strip()


def refused(**options: Any) -> str:
    """Return why the command ends."""
    error = importlib.import_module("django.core.management").CommandError
    with pytest.raises(error) as caught:
        command(**options)
    return str(caught.value)


def test_entries_may_be_in_another_database(rows: Any, queue: Queue[Any], server: Server, tmp_path: Path) -> None:
    transaction = importlib.import_module("django.db").transaction
    with database("second", NAME=tmp_path / "second.sqlite3"):
        migrate("second")
        others = rows.objects.db_manager("second")
        for name, is_committed in (("a", True), ("gone", False), ("b", True)):
            with transaction.atomic(using="second"):
                others.add(queue.entry(name), key="k")
                transaction.set_rollback(not is_committed, using="second")
        rows.objects.add(queue.entry("here"))
        assert command(database="second", redis=server.url) == "2 sent"
        assert (others.count(), rows.objects.count(), waiting(queue)) == (0, 1, ["a", "b"])
    assert command(redis=server.url) == "1 sent"


def test_the_command_says_what_is_wrong(rows: Any, server: Server, tmp_path: Path) -> None:
    assert refused(database="nowhere", redis=server.url) == "DATABASES has no 'nowhere'"
    assert refused(backend="nowhere") == "TASKS has no backend 'nowhere' of BullMQ's"
    with database("empty", NAME=tmp_path / "empty.sqlite3"):
        said = refused(database="empty", redis=server.url)
        assert said == "no such table: bullmq_outbox (manage.py migrate makes it)"
        with pytest.raises(importlib.import_module("django.db").OperationalError, match="no such table"):
            importlib.import_module("bullmq_django.outbox.relay").OutboxRelay("empty", server.url).run()


def test_the_command_goes_where_the_backend_does(
    backend: Any, rows: Any, queue: Queue[Any], server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    override_settings = importlib.import_module("django.test").override_settings
    settings = importlib.import_module("django.conf").settings.TASKS["default"]
    large, once = Limits(max_payload_bytes=None), Deduplication("d", keep_last_if_active=True)
    with closed_port() as closed:
        away = f"redis://127.0.0.1:{closed}"
        monkeypatch.setenv("BULLMQ_URL", away)
        rows.objects.add(queue.entry("a"))
        assert "Connection refused" in refused(redis=away)
        assert command() == "1 sent"
        own = {**settings["OPTIONS"], "limits": large, "scripts": STRICT}
        with override_settings(TASKS={"default": settings, "own": {**settings, "OPTIONS": own}}):
            with Queue[Any]("first", server.url, prefix=name, limits=large) as unbound:
                rows.objects.add(unbound.entry("large", "x" * 11_000_000))
            assert (command(), command(redis=server.url)) == ("0 sent", "0 sent")
            rows.objects.update(due_at=0)
            assert command(backend="own") == "1 sent"
            rows.objects.add(queue.entry("later", {}, JobOptions(deduplication=once)))
            assert command(backend="own") == "0 sent"
            rows.objects.update(due_at=0)
            assert command() == "1 sent"
    assert waiting(queue) == ["a", "large", "later"]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with postgres.started() as found:
        yield found


def of_postgresql(port: int, **options: Any) -> dict[str, Any]:
    place: dict[str, Any] = {"HOST": "127.0.0.1", "PORT": port, "USER": "postgres", "NAME": "postgres"}
    return {**place, "ENGINE": "django.db.backends.postgresql", "OPTIONS": options}


def test_a_relay_of_postgresql_is_woken(rows: Any, queue: Queue[Any], server: Server, port: int) -> None:
    made = importlib.import_module("bullmq_django.outbox.relay").OutboxRelay
    strict = importlib.import_module("psycopg").IsolationLevel.SERIALIZABLE
    with database("pg", **of_postgresql(port, isolation_level=strict)):
        migrate("pg")
        others = rows.objects.db_manager("pg")
        with made("pg", server.url) as once:
            others.add(queue.entry("a"))
            assert once.relay_once().sent == 1
            # Each statement must see what other relays have committed meanwhile.
            assert [*once._database.execute("SHOW transaction_isolation", {})] == [("read committed",)]
        assert once._database._wrapper.connection is None
        each = made("pg", server.url, options=RelayOptions(poll=3_600_000))
        batch, begun = each._relay_batch, iter([True])

        def with_another() -> Any:
            found = batch()
            if next(begun, False):
                # The statement that cleans up reads the notification of it.
                others.add(queue.entry("b"))
                importlib.import_module("django.db").connections["pg"].close()
            return found

        each._relay_batch = with_another
        thread = threading.Thread(target=each.run)
        thread.start()
        with importlib.import_module("redis").Redis.from_url(server.url, socket_timeout=None) as client:
            _await_added(client, queue, 2)
            importlib.import_module("django.db").connections["pg"].close()
            with importlib.import_module("psycopg").connect(postgres.conninfo(port)) as admin:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            others.add(queue.entry("c"))
            _await_added(client, queue, 3)
        each.stop()
        thread.join()
        assert waiting(queue) == ["a", "b", "c"]


def _await_added(client: Any, queue: Queue[Any], count: int) -> None:
    last, seen = "0", 0
    while seen < count:
        found = client.xread({queue.keys.events: last}, block=60_000)
        assert found, f"only {seen} of {count} jobs came"
        last = found[0][1][-1][0]
        seen += sum(fields[b"event"] == b"added" for _, fields in found[0][1])


def test_a_relay_waits_for_a_database_that_is_not_there_yet(
    rows: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    made = importlib.import_module("bullmq_django.outbox.relay").OutboxRelay
    with closed_port() as closed, database("away", **of_postgresql(closed)):
        each = made("away", server.url, options=RelayOptions(max_reconnect_delay=10))
        thread = threading.Thread(target=each.run)
        thread.start()
        while thread.is_alive() and len(caplog.records) < 2:
            thread.join(0.005)
        each.stop()
        thread.join()
    said = [record.getMessage() for record in caplog.records if record.name == "bullmq_outbox"]
    assert len(said) >= 2 and all(each.startswith("the relay tries again: OperationalError: ") for each in said)


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def backend(rows: Any, server: Server, name: str) -> Iterator[Any]:
    override_settings = importlib.import_module("django.test").override_settings
    shared = importlib.import_module("bullmq_django.queues").SHARED
    backend = {
        "BACKEND": "bullmq_django.outbox.backend.OutboxBackend",
        "QUEUES": ["first", "second"],
        "OPTIONS": {"connection": server.url, "prefix": name},
    }
    with override_settings(TASKS={"default": backend}):
        yield importlib.import_module("bullmq_django.framework").task_backends["default"]
        shared.close()


def test_a_task_follows_its_transaction(backend: Any, rows: Any, server: Server) -> None:
    transaction = importlib.import_module("django.db").transaction
    framework = importlib.import_module("bullmq_django.framework")
    tasks = importlib.import_module("tests.support.django_tasks_of_tests")
    tasks.CALLS.clear()
    with transaction.atomic():
        result = tasks.double.using(priority=20).enqueue(21, times=3)
    with transaction.atomic():
        tasks.double.enqueue(1)
        transaction.set_rollback(True)
    assert (result.status, result.args, result.kwargs) == ("READY", [21], {"times": 3})
    with pytest.raises(framework.TaskResultDoesNotExist):
        backend.get_result(result.id)
    again = asyncio.run(tasks.double.aenqueue(4))
    assert rows.objects.count() == 2
    assert relayed(server).sent == 2
    assert backend.get_result(result.id).status == "READY"
    for worker in importlib.import_module("bullmq_django.workers").workers_of("default", ["first"]):
        worker.run(until="idle")
    assert backend.get_result(result.id).return_value == 63
    assert backend.get_result(again.id).status == "SUCCESSFUL"


def test_a_task_that_is_awaited_follows_the_transaction_too(backend: Any, rows: Any, server: Server) -> None:
    transaction = importlib.import_module("django.db").transaction
    framework = importlib.import_module("bullmq_django.framework")
    tasks = importlib.import_module("tests.support.django_tasks_of_tests")
    async_to_sync = importlib.import_module("asgiref.sync").async_to_sync
    enqueued: list[Any] = []

    def receive(sender: Any, task_result: Any, **more: Any) -> None:
        enqueued.append((sender, task_result.id))

    framework.task_enqueued.connect(receive)
    try:
        with transaction.atomic():
            result = async_to_sync(tasks.double.aenqueue)(4)
            assert rows.objects.count() == 1
            transaction.set_rollback(True)
    finally:
        framework.task_enqueued.disconnect(receive)
    assert rows.objects.count() == 0 and enqueued == [(type(backend), result.id)]


# --- the command ------------------------------------------------------------------------------------------------------

_ADD = """
from django.db import transaction
from bullmq_django.outbox.models import OutboxRow
from bullmq_sync import Queue
import os, sys
queue = Queue("shop-mail", os.environ["BULLMQ_URL"], prefix=os.environ["SHOP_PREFIX"])
with transaction.atomic():
    OutboxRow.objects.add([queue.entry("a", {"n": 1}), queue.entry("b")], key="k")
"""


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_the_command_relays(database: str, server: Server, name: str, tmp_path: Path) -> None:
    if database == "sqlite":
        _relays(server, name, SHOP_SQLITE=str(tmp_path / "shop.sqlite3"))
        return
    with postgres.started() as port:
        _relays(server, name, SHOP_POSTGRES=str(port))


def _relays(server: Server, name: str, **database: str) -> None:
    environment = {"BULLMQ_URL": server.url, "SHOP_PREFIX": name, **database}
    add = ("shell", "-v", "0", "-c", _ADD)

    def manage(*arguments: str) -> Any:
        return program("manage.py", *arguments, folder=_PROJECT, **environment)

    with Queue[Any]("shop-mail", server.url, prefix=name) as queue:
        for arguments, last in ((("migrate",), None), (add, None), (("bullmqrelay", "--once"), "2 sent")):
            with manage(*arguments) as ended:
                assert ended.end(0) == 0, ended.text
                assert last is None or ended.lines[-1] == last
        assert waiting(queue) == ["a", "b"]
        # On PostgreSQL it is woken, on SQLite it polls.
        poll = "3600000" if "SHOP_POSTGRES" in database else "20"
        with manage("bullmqrelay", "--poll", poll) as running, manage(*add) as adding:
            assert adding.end(0) == 0, adding.text
            with importlib.import_module("redis").Redis.from_url(server.url, socket_timeout=None) as client:
                seen = 0
                last_id = "0"
                while seen < 4:
                    [[_, events]] = client.xread({queue.keys.events: last_id}, block=60_000)
                    last_id = events[-1][0]
                    seen += sum(fields[b"event"] == b"added" for _, fields in events)
            assert running.end(signal.SIGTERM) == 0, running.text
        assert waiting(queue) == ["a", "b", "a", "b"]
        with manage("bullmqrelay", "--batch", "0") as wrong:
            assert wrong.end(0) == 1 and "batch: must be at least 1" in wrong.text
        queue.obliterate(force=True)
