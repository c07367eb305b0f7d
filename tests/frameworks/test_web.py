"""Every example of a web application serves requests in processes of its own, and a worker beside it does its jobs."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bullmq_protocol.events.stream import CompletedEvent
from bullmq_sync import Queue, QueueEvents
from tests.support import postgres
from tests.support.servers import Server
from tests.support.web import ROOT, Program, ask, program, server_sent

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_ENDED = -signal.SIGTERM
"""How uvicorn ends: in good order, then by the signal itself."""
_UVICORN = ("-m", "uvicorn", "--port", "0")
_WORKER = ("-m", "bullmq_cli")
_PROJECT = ROOT / "examples" / "django_shop"


def test_fastapi_adds_jobs_shows_them_and_sends_events(server: Server) -> None:
    with (
        program(*_UVICORN, "examples.fastapi_app:app", BULLMQ_URL=server.url) as web,
        program(*_WORKER, "examples.fastapi_app:worker", BULLMQ_URL=server.url) as worker,
    ):
        port = web.port()
        created = ask(port, "POST", "/pictures", {"path": "a.png", "width": 64})
        assert (created.status, created.json) == (202, {"id": "1"})
        # The answer ends with the job.
        followed = ask(port, "GET", f"{created.headers['location']}/events")
        assert followed.headers["content-type"].startswith("text/event-stream")
        assert server_sent(followed.body) == [("active", None), ("progress", 50), ("completed", "64-a.png")]
        shown = {"state": "completed", "progress": 50, "result": "64-a.png", "reason": None}
        assert ask(port, "GET", created.headers["location"]).json == shown
        ask(port, "POST", "/pictures", {"path": "b.png", "width": 0})
        refused = server_sent(ask(port, "GET", "/pictures/2/events").body)
        assert refused == [("active", None), ("failed", "no picture is so narrow")]
        assert ask(port, "GET", "/pictures/3").status == 404
        assert ask(port, "POST", "/pictures", {"path": "a.png"}).status == 422
        assert (web.end(), worker.end()) == (_ENDED, 0), web.text + worker.text


def test_starlette_waits_for_the_jobs_of_its_own_worker(server: Server) -> None:
    with program(*_UVICORN, "examples.starlette_app:app", BULLMQ_URL=server.url) as web:
        port = web.port()
        assert ask(port, "POST", "/squares/12").json == {"square": 144}
        refused = ask(port, "POST", "/squares/1000001")
        assert (refused.status, refused.json) == (422, {"reason": "too large"})
        assert web.end() == _ENDED, web.text


def test_flask_in_forks_of_one_process(server: Server) -> None:
    gunicorn = ("-m", "gunicorn", "-c", "python:examples.flask_gunicorn", "-b", "127.0.0.1:0")
    with (
        program(*gunicorn, BULLMQ_URL=server.url) as web,
        program(*_WORKER, "examples.flask_app:worker", BULLMQ_URL=server.url) as worker,
    ):
        port = web.port()
        processes: set[str] = set()
        done = 0
        while len(processes) < 2:
            created = ask(port, "POST", "/letters", {"to": f"{done}@example.org"})
            shown = ask(port, "GET", created.headers["location"])
            assert shown.json == {"state": "completed", "result": f"sent to {done}@example.org"}
            processes |= {created.headers["x-process"], shown.headers["x-process"]}
            done += 1
        assert str(web.process.pid) not in processes
        refused = ask(port, "POST", "/letters", {"to": "nobody"})
        assert ask(port, "GET", refused.headers["location"]).json == {"state": "failed", "reason": "no address"}
        assert (web.end(), worker.end()) == (0, 0), web.text + worker.text


class Shop:
    """The Django project in processes, and events of its queues."""

    def __init__(self, server: Server, name: str, **database: str) -> None:
        self.environment = {"BULLMQ_URL": server.url, "SHOP_PREFIX": name, **database}
        self.mail = QueueEvents("shop-mail", server.url, prefix=name)
        self.orders = Queue[Any]("shop-orders", server.url, prefix=name)

    def manage(self, *arguments: str) -> Any:
        return program("manage.py", *arguments, folder=_PROJECT, **self.environment)

    def web(self) -> Any:
        gunicorn = ("-m", "gunicorn", "shop.wsgi", "-b", "127.0.0.1:0", "--worker-class", "gthread", "--threads", "4")
        return program(*gunicorn, folder=_PROJECT, **self.environment)


def _written(shop: Shop, count: int) -> list[Any]:
    """Wait until this many letters are written; return what their tasks returned."""
    values: list[Any] = []
    stream = shop.mail.stream("0-0")
    for event in stream:
        if isinstance(event, CompletedEvent):
            values.append(event.returnvalue)
            if len(values) == count:
                break
    stream.close()
    return values


def test_django_on_postgresql_leaves_no_connection_behind(server: Server, name: str) -> None:
    with postgres.started() as database:
        shop = Shop(server, name, SHOP_POSTGRES=str(database))
        with shop.manage("migrate") as migration:
            assert migration.end(0) == 0, migration.text
        with shop.web() as web, shop.manage("bullmqworker", "--concurrency", "4") as worker:
            port = web.port()
            orders = [ask(port, "POST", "/orders", {"address": f"{number}@example.org"}) for number in range(12)]
            assert [order.status for order in orders] == [202] * 12
            values = _written(shop, 12)
            assert {value["to"] for value in values} == {f"{number}@example.org" for number in range(12)}
            assert [(value["subject"], value["attempt"]) for value in values] == [("confirmed", 1)] * 12
            shown = [ask(port, "GET", f"/orders/{order.json['order']}").json["state"] for order in orders]
            assert shown == ["written"] * 12
            _await_no_connection(database, worker)
            assert (web.end(), worker.end()) == (0, 0), web.text + worker.text
        shop.orders.close()
        shop.mail.close()


_OTHERS = """SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"""


def _await_no_connection(database: int, worker: Program) -> None:
    """Look until no other has a connection to the database: one that is closed takes the server a moment."""
    with psycopg.connect(postgres.conninfo(database), autocommit=True) as connection:
        for _ in range(2_000):
            row = connection.execute(_OTHERS).fetchone()
            if row == (0,):
                return
            connection.execute("SELECT pg_sleep(0.005)")
    raise AssertionError(worker.text)


def test_the_command_of_django_on_sqlite(server: Server, name: str, tmp_path: Path) -> None:
    shop = Shop(server, name, SHOP_SQLITE=str(tmp_path / "shop.sqlite3"))
    watched = tmp_path / "watched"
    watched.mkdir()
    with shop.manage("bullmqworker", "--reload", str(watched)) as worker:
        worker.line("queues shop-mail, shop-orders")
        (watched / "changed.py").write_text("a = 1\n")
        worker.line("changed: ")
        worker.line("queues shop-mail, shop-orders")
        job = shop.orders.add("shop.tasks.refuse", {"args": ["sold out"]})
        worker.line("state=FAILED")
        worker.line("LookupError: sold out")
        job.refresh()
        assert (job.failed_reason, job.get_state()) == ("sold out", "failed")
        assert worker.end() == 0, worker.text
    with shop.manage("bullmqworker", "--queue", "elsewhere") as refused:
        assert refused.end(0) == 2, refused.text
    assert "has no queue 'elsewhere': there are shop-mail, shop-orders" in refused.text
    shop.orders.close()
    shop.mail.close()


def test_the_workers_of_django_by_the_other_command(server: Server, name: str, tmp_path: Path) -> None:
    shop = Shop(server, name, SHOP_SQLITE=str(tmp_path / "shop.sqlite3"), DJANGO_SETTINGS_MODULE="shop.settings")
    job = shop.orders.add("shop.tasks.refuse", {"args": ["sold out"]})
    command = (*_WORKER, "bullmq_django.workers:made", "--burst", "--no-logging")
    with program(*command, folder=_PROJECT, BULLMQ_DJANGO_QUEUES="shop-orders", **shop.environment) as worker:
        assert worker.end(0) == 0, worker.text
    assert job.get_state() == "failed"
    shop.orders.close()
    shop.mail.close()
