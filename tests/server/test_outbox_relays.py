"""Relays of outboxes of every kind, on real databases and on a real Redis.

Those of asyncio stand on psycopg and SQLAlchemy, which know no trio.
"""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

import bullmq_outbox.aio.psycopg
import bullmq_outbox.aio.sqlalchemy
import bullmq_outbox.sync.psycopg
import bullmq_outbox.sync.sqlalchemy
import bullmq_outbox.sync.sqlite
from bullmq_outbox import PostgresOutbox, RelayOptions, SqliteOutbox
from bullmq_outbox.sqlalchemy import SqlalchemyOutbox
from bullmq_protocol import JobOptions, ParentRef, TransportError, UsageError
from bullmq_sync import Queue
from tests.support import pages, postgres, servers
from tests.support.outboxes import KINDS, Place
from tests.support.servers import Server, closed_port
from tests.support.web import program

pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

_PATIENCE_MS = 60_000
LISTENING = [kind for kind in KINDS if kind.listens]
POSTGRESQL = [kind for kind in KINDS if kind.dialect == "postgresql"]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with postgres.started() as found:
        yield found


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def place(request: pytest.FixtureRequest, port: int, tmp_path: Path, server: Server, name: str) -> Iterator[Place]:
    with Place(request.param, port, tmp_path, name.replace("-", "_"), server.url) as found:
        yield found


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


def of(*names: str) -> Any:
    """Make a test run for these kinds alone."""
    return pytest.mark.parametrize("place", [each for each in KINDS if each.name in names], indirect=True, ids=str)


def waiting(queue: Queue[Any]) -> list[str]:
    return [job.name for job in queue.get_jobs("waiting", asc=True)]


class Seen:
    """Reads a queue's events, to wait until jobs have been added."""

    def __init__(self, url: str, queue: Queue[Any]) -> None:
        self._client = redis.Redis.from_url(url, decode_responses=True, socket_timeout=None)
        self._key = queue.keys.events
        self._last = "0"
        self.added: list[str] = []

    def until(self, count: int) -> None:
        while len(self.added) < count:
            found: Any = self._client.xread({self._key: self._last}, block=_PATIENCE_MS)
            assert found, f"only {len(self.added)} of {count} jobs came"
            for self._last, fields in found[0][1]:
                self.added += [fields["jobId"]] if fields["event"] == "added" else []

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def seen(server: Server, queue: Queue[Any]) -> Iterator[Seen]:
    found = Seen(server.url, queue)
    yield found
    found.close()


# --- one relay --------------------------------------------------------------------------------------------------------


def test_what_was_committed_is_added_and_what_was_rolled_back_is_not(place: Place, queue: Queue[Any]) -> None:
    first = queue.entry("a", {"n": 'ü"\0'})
    place.add(first)
    place.add(queue.entry("gone"), commits=False)
    place.add([queue.entry("b", options=JobOptions(delay=3_600_000)), queue.entry("c")], key="k")
    found = place.relay_once()
    assert (found.sent, found.refused, found.more) == (3, (), False)
    assert waiting(queue) == ["a", "c"] and queue.get_delayed_count() == 1
    job = queue.get_job(first.id)
    assert job is not None and job.data == {"n": 'ü"\0'}
    assert (place.rows(), place.relay_once().sent) == ([], 0)


def test_an_entry_that_redis_refuses_stays_with_its_error_and_holds_nothing_up(place: Place, queue: Queue[Any]) -> None:
    child = JobOptions(parent=ParentRef(id="gone", queue="bull:nowhere"))
    place.add([queue.entry("a"), queue.entry("child", options=child), queue.entry("b")])
    place.add([queue.entry("other", options=child), queue.entry("behind")], key="k")
    found = place.relay_once(max_attempts=2, retry_delay=1)
    assert found.sent == 2 and [each.given_up for each in found.refused] == [False, False]
    assert waiting(queue) == ["a", "b"]
    assert place.rows("state, attempts, order_key") == [
        ("waiting", 1, None),
        ("waiting", 1, "k"),
        ("waiting", 0, "k"),
    ]
    place.execute(f"UPDATE {place.table} SET due_at = 0")
    found = place.relay_once(max_attempts=2, retry_delay=1)
    assert found.sent == 1 and [each.given_up for each in found.refused] == [True, True]
    assert waiting(queue) == ["a", "b", "behind"]
    [first, _] = place.rows("state, attempts, error")
    assert first[:2] == ("refused", 2) and first[2].startswith("ParentNotFound: ")
    assert place.relay_once().sent == 0


def test_sent_entries_are_kept_for_as_long_as_asked(place: Place, queue: Queue[Any]) -> None:
    place.add([queue.entry("a"), queue.entry("b")])
    assert place.relay_once(keep=3_600_000).sent == 2
    assert place.rows("state, error") == [("sent", None)] * 2
    place.execute(f"UPDATE {place.table} SET settled_at = settled_at - 3600001 WHERE seq = 1")
    relay = place.relay(keep=3_600_000)
    assert place.wait(relay.clean_up) == 1
    place.wait(relay.aclose if place.kind.is_async else relay.close)
    assert place.rows("seq, state") == [(2, "sent")]
    assert place.relay_once(keep=3_600_000).sent == 0


def test_a_redis_that_is_not_there_loses_nothing(place: Place, queue: Queue[Any]) -> None:
    place.add([queue.entry("a"), queue.entry("b")], key="k")
    url = place.redis_url
    with closed_port() as closed:
        place.redis_url = f"redis://127.0.0.1:{closed}"
        with pytest.raises(TransportError):
            place.relay_once()
    assert place.rows("state, attempts") == [("waiting", 0)] * 2
    place.redis_url = url
    assert place.relay_once().sent == 2
    assert waiting(queue) == ["a", "b"]


# --- a relay that runs ------------------------------------------------------------------------------------------------


def test_a_running_relay_takes_what_comes(place: Place, queue: Queue[Any], seen: Seen) -> None:
    place.add(queue.entry("before"))
    # Where notifications come, one wakes it: it would not look again within the test.
    with place.running(poll=3_600_000 if place.kind.listens else 20):
        seen.until(1)
        for number in range(2, 5):
            place.add([queue.entry("n")], key="k")
            seen.until(number)
    assert place.rows() == [] and waiting(queue) == ["before", "n", "n", "n"]


@of("psycopg", "psycopg-asyncio")
def test_without_the_trigger_it_polls(place: Place, queue: Queue[Any], seen: Seen) -> None:
    place.execute(f"DROP FUNCTION {place.table}_notify CASCADE")
    with place.running(poll=20):
        place.add(queue.entry("a"))
        seen.until(1)
        place.add(queue.entry("b"))
        seen.until(2)
    assert waiting(queue) == ["a", "b"]


def test_a_running_relay_outlives_redis_and_the_database(
    place: Place, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with servers.start(config=("--appendonly", "yes", "--appendfsync", "always")) as own:
        place.redis_url = own.url
        with Queue[Any](name, own.url) as queue, place.running(poll=20, max_reconnect_delay=50):
            place.add(queue.entry("a"))
            with closing(Seen(own.url, queue)) as seen:
                seen.until(1)
            own.kill()
            place.add(queue.entry("b"))
            if place.kind.dialect == "postgresql":
                place.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            own.restart()
            place.add(queue.entry("c"))
            with closing(Seen(own.url, queue)) as seen:
                seen.until(3)
            assert waiting(queue) == ["a", "b", "c"]
    assert place.rows() == []


def test_a_table_that_is_missing_ends_it(place: Place) -> None:
    place.execute(f"DROP TABLE {place.table}")
    with pytest.raises(Exception, match=r"does not exist|no such table"), place.running() as running:
        running.join()


# --- several relays ---------------------------------------------------------------------------------------------------


@of(*(kind.name for kind in POSTGRESQL))
def test_entries_that_another_relay_holds_are_passed_over_and_so_is_what_comes_after_them(
    place: Place, queue: Queue[Any]
) -> None:
    place.add(queue.entry("k1"), key="k")
    place.add(queue.entry("free"))
    place.add([queue.entry("k2"), queue.entry("k3")], key="k")
    place.add(queue.entry("l1"), key="l")
    with psycopg.connect(place.conninfo) as other:
        other.execute(f"SELECT 1 FROM {place.table} WHERE seq = 1 FOR UPDATE".encode())
        found = place.relay_once()
        assert (found.sent, found.blocked) == (2, True) and waiting(queue) == ["free", "l1"]
        # Nothing but what is blocked is left, in batches that are too small to see all of it.
        place.add([queue.entry("k4"), queue.entry("k5")], key="k")
        place.add(queue.entry("m1"), key="m")
        assert place.relay_once(batch=2).sent == 1 and waiting(queue) == ["free", "l1", "m1"]
        found = place.relay_once(batch=2)
        assert (found.sent, found.blocked) == (0, False)
        other.rollback()
    assert place.relay_once().sent == 5
    assert waiting(queue)[3:] == ["k1", "k2", "k3", "k4", "k5"]


def test_several_relays_keep_the_order_of_each_key(place: Place, queue: Queue[Any], seen: Seen) -> None:
    keys, each = 5, 24
    for number in range(each):
        for key in range(keys):
            place.add(queue.entry("n", {"key": key, "n": number}), key=f"k{key}")
    with place.running(batch=7, poll=20), place.running(batch=5, poll=20), place.running(batch=11, poll=20):
        seen.until(keys * each)
    assert len(seen.added) == len(set(seen.added)) == keys * each
    order: dict[int, list[int]] = {}
    for job in queue.get_jobs("waiting", asc=True):
        order.setdefault(job.data["key"], []).append(job.data["n"])
    assert order == {key: list(range(each)) for key in range(keys)}


# --- the page ---------------------------------------------------------------------------------------------------------


# That of Django runs in tests/frameworks.
_PROGRAMS = [each for each in pages.snippets("outbox.md") if "bullmq_django" not in each]


@pytest.mark.parametrize(
    ("text", "printed"),
    list(zip(_PROGRAMS, ["1", "2", "1", "2", "1", "confirm"], strict=True)),
    ids=["psycopg", "psycopg-asyncio", "sqlalchemy", "sqlalchemy-asyncio", "sqlite", "own-relay"],
)
def test_the_programs_of_the_page_run(text: str, printed: str, port: int, server: Server, tmp_path: Path) -> None:
    text = pages.with_server(text, server).replace("@localhost/", f"@127.0.0.1:{port}/")
    (tmp_path / "page.py").write_text(text, "utf-8")
    with Queue[Any]("mail", server.url) as queue:
        queue.obliterate(force=True)
        with program("page.py", folder=tmp_path) as ended:
            assert (ended.end(0), ended.text) == (0, printed)
        assert waiting(queue) == (["confirm", "pack"] if printed == "2" else ["confirm"])
        queue.obliterate(force=True)
    with psycopg.connect(postgres.conninfo(port)) as connection:
        connection.execute("DROP TABLE IF EXISTS bullmq_outbox CASCADE")


def test_the_page_keeps_to_what_is_true() -> None:
    text = pages.page("outbox.md")
    assert "exactly once" not in text.lower()
    assert [each for each in RelayOptions.__struct_fields__ if f"--{each.replace('_', '-')}" not in text] == []


# --- arguments, and the command ---------------------------------------------------------------------------------------


def test_wrong_arguments_are_refused(server: Server) -> None:
    metadata = bullmq_outbox.sqlalchemy.MetaData()
    engine = bullmq_outbox.sqlalchemy.text
    for sync in (bullmq_outbox.sync, bullmq_outbox.aio):
        relay: Any = sync.psycopg.OutboxRelay
        for outbox, database in ((SqliteOutbox(), ""), (None, ""), (PostgresOutbox(), 5)):
            with pytest.raises(UsageError, match=r"outbox|database"):
                relay(outbox, database)
        for name, wrong in (("options", {}), ("limits", 5), ("scripts", "fleet")):
            with pytest.raises(UsageError, match=name):
                relay(PostgresOutbox(), "", server.url, **{name: wrong})
        with pytest.raises(UsageError, match="batch"):
            relay(PostgresOutbox(), "", server.url, options=RelayOptions(batch=0))
        relay = sync.sqlalchemy.OutboxRelay
        with pytest.raises(UsageError, match="engine"):
            relay(SqlalchemyOutbox(bullmq_outbox.sqlalchemy.MetaData()), engine)
    with pytest.raises(UsageError, match="metadata"):
        SqlalchemyOutbox(None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="notify"):
        SqlalchemyOutbox(metadata, notify=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="table"):
        SqlalchemyOutbox(metadata, "a b")
    with pytest.raises(UsageError, match="outbox"):
        bullmq_outbox.sqlalchemy.statements_for(PostgresOutbox(), "sqlite")
    with pytest.raises(UsageError, match="engine"):
        bullmq_outbox.sqlalchemy.statements_for(SqlalchemyOutbox(metadata), "mysql")
    made: Any = bullmq_outbox.sync.sqlite.OutboxRelay
    for outbox, database in ((PostgresOutbox(), ""), (SqliteOutbox(), 5)):
        with pytest.raises(UsageError, match=r"outbox|database"):
            made(outbox, database)


@of("psycopg", "sqlite")
def test_the_command_relays_what_is_due_or_until_a_signal(place: Place, queue: Queue[Any], seen: Seen) -> None:
    if place.kind.dialect == "postgresql":
        host, address, *_ = (word.partition("=")[2] for word in place.conninfo.split())
        database = f"postgresql://postgres@{host}:{address}/postgres"
    else:
        database = f"sqlite:///{place.file}"
    given = ("-m", "bullmq_outbox", database, "--table", place.table)
    place.add([queue.entry("a"), queue.entry("b")])
    with program(*given, "--once", "--batch", "1", BULLMQ_URL=place.redis_url) as once:
        assert (once.end(0), once.lines) == (0, ["2 sent"])
    with program(*given, "--create", "--redis", place.redis_url, "--poll", "20") as running:
        place.add(queue.entry("c"))
        seen.until(3)
        assert running.end(signal.SIGTERM) == 0, running.text
    assert waiting(queue) == ["a", "b", "c"] and place.rows() == []


def test_the_command_says_what_is_wrong(tmp_path: Path, server: Server) -> None:
    file = tmp_path / "new.db"
    for arguments, code, words in (
        (["mysql://a"], 2, "must begin with postgresql:// or sqlite:///"),
        ([f"sqlite:///{file}"], 2, "--create makes it"),
        ([f"sqlite:///{file}", "--create", "--batch", "0"], 2, "batch"),
        ([f"sqlite:///{file}", "--create", "--once", "--redis", server.url], 0, "0 sent"),
    ):
        with program("-m", "bullmq_outbox", *arguments) as ended:
            assert ended.end(0) == code and words in ended.text
    with Queue[Any]("mail", server.url) as queue, closing(sqlite3.connect(file)) as database, database:
        SqliteOutbox().add(database, queue.entry("a"))
    given = ("-m", "bullmq_outbox", f"sqlite:///{file}", "--once", "--redis")
    with closed_port() as closed, program(*given, f"redis://127.0.0.1:{closed}") as ended:
        assert ended.end(0) == 1 and "bullmq-relay: " in ended.text
