"""Relays of outboxes of every kind, on real databases and on a real Redis.

Those of asyncio stand on psycopg and SQLAlchemy, which know no trio.
"""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
import redis
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import bullmq_anyio
import bullmq_outbox.aio.psycopg
import bullmq_outbox.aio.sqlalchemy
import bullmq_outbox.sync.psycopg
import bullmq_outbox.sync.sqlalchemy
import bullmq_outbox.sync.sqlite
from bullmq_outbox import PostgresOutbox, Relayed, RelayOptions, SqliteOutbox
from bullmq_outbox.__main__ import main
from bullmq_outbox.decisions import Add, Execute, clean, relay_batch
from bullmq_outbox.serving import serve
from bullmq_outbox.sqlalchemy import SqlalchemyOutbox
from bullmq_outbox.statements import for_percent, statements_of
from bullmq_protocol import Deduplication, JobOptions, Limits, ParentRef, ServerError, TransportError, UsageError
from bullmq_protocol.errors import Closed
from bullmq_protocol.scripts.profile import STRICT
from bullmq_sync import Queue, bullmq_scripts, connect
from tests.support import pages, postgres, servers
from tests.support.node import bullmq_folder
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


def test_numbers_are_never_used_again(place: Place, queue: Queue[Any]) -> None:
    for number in range(1, 4):
        place.add(queue.entry("n"))
        assert place.rows("seq") == [(number,)]
        assert place.relay_once().sent == 1


def test_entries_are_taken_in_their_order_wherever_they_stand(place: Place, queue: Queue[Any]) -> None:
    place.add([queue.entry(name) for name in "abc"])
    # PostgreSQL writes a changed row behind the others.
    place.execute(f"UPDATE {place.table} SET attempts = 1 WHERE seq = 1")
    assert [place.relay_once(batch=2).sent for _ in range(2)] == [2, 1]
    assert waiting(queue) == ["a", "b", "c"]


def test_a_refused_entry_is_logged_without_its_payload(
    place: Place, queue: Queue[Any], caplog: pytest.LogCaptureFixture
) -> None:
    child = JobOptions(parent=ParentRef(id="gone", queue="bull:nowhere"))
    entry = queue.entry("child", {"card": "4711"}, child)
    place.add(entry)
    for attempt, fate in ((1, "and will be tried again"), (2, "and given up")):
        place.relay_once(max_attempts=2)
        place.execute(f"UPDATE {place.table} SET due_at = 0")
        [record] = [each for each in caplog.records if each.name == "bullmq_outbox"]
        assert record.levelname == "ERROR"
        text = f"outbox entry 1 was refused (attempt {attempt}) {fate}: {entry!r}: "
        assert record.getMessage().startswith(text) and "4711" not in caplog.text
        caplog.clear()


def test_the_profile_and_the_limits_are_those_of_the_relay(place: Place, server: Server, name: str) -> None:
    large = Limits(max_payload_bytes=None)
    once = JobOptions(deduplication=Deduplication("d", keep_last_if_active=True))
    with Queue[Any](name, server.url, limits=large) as queue:
        place.add([queue.entry("large", "x" * 11_000_000), queue.entry("once", {}, once)])
        found = place.relay_once(scripts=STRICT, retry_delay=1)
        assert ["data" in str(each.error) or "keep_last" in str(each.error) for each in found.refused] == [True, True]
        place.execute(f"UPDATE {place.table} SET due_at = 0")
        assert place.relay_once(limits=large).sent == 2
        queue.obliterate(force=True)


@pytest.mark.node
@of("psycopg", "psycopg-asyncio", "sqlite")
def test_it_may_have_bullmqs_own_scripts(place: Place, queue: Queue[Any]) -> None:
    place.add([queue.entry("a"), queue.entry("b", options=JobOptions(delay=3_600_000))])
    assert place.relay_once(scripts=bullmq_scripts(bullmq_folder())).sent == 2
    assert waiting(queue) == ["a"] and queue.get_delayed_count() == 1


def test_a_closed_relay_has_closed_what_it_opened(place: Place, queue: Queue[Any]) -> None:
    transport: Any = bullmq_anyio.connect(place.redis_url) if place.kind.is_async else connect(place.redis_url)
    url, place.redis_url = place.redis_url, transport
    lent, place.redis_url = place.relay(), url
    relay = place.relay()
    place.add([queue.entry("a"), queue.entry("b")])
    close = "aclose" if place.kind.is_async else "close"
    for each in (lent, relay):
        assert place.wait(each.relay_once).sent == (2 if each is lent else 0)
        assert each._database._connection is not None
        place.wait(getattr(each, close))
        assert each._database._connection is None
    if place.kind.driver:
        assert place.engine.pool.checkedout() == 0
    place.add(queue.entry("c"))
    with pytest.raises(Closed):
        place.wait(relay.relay_once)
    # What was handed over is its owner's to close.
    assert place.wait(lent.relay_once).sent == 1
    for each in (relay, lent, transport):
        place.wait(getattr(each, close))


def test_a_relay_does_one_thing_at_a_time(place: Place, queue: Queue[Any], seen: Seen) -> None:
    with place.running(poll=20) as running:
        place.add(queue.entry("a"))
        seen.until(1)
        for call in (running.relay.relay_once, running.relay.clean_up, running.relay.run):
            with pytest.raises(UsageError, match="relay: is at work already, or has run"):
                place.wait(call)
        place.add(queue.entry("b"))
        seen.until(2)
    with pytest.raises(UsageError, match="has run: make another one"):
        place.wait(running.relay.run)


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


def test_a_running_relay_waits_for_a_database_that_is_not_there_yet(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    no_file = place.file.with_name("no") / "no.db"
    with closed_port() as closed:
        given: dict[str, Any] = {"database": postgres.conninfo(closed)}
        if place.kind.driver:
            host = f"postgres@127.0.0.1:{closed}/postgres" if place.kind.dialect == "postgresql" else f"/{no_file}"
            make = create_async_engine if place.kind.is_async else create_engine
            given = {"engine": make(f"{place.kind.driver}://{host}")}
        elif place.kind.dialect == "sqlite":
            given = {"database": no_file}
        with place.running(max_reconnect_delay=10, **given) as running:
            # It is ended while it waits: a thread of aiosqlite that still connects would tell a loop that is closed.
            waits = iter([1])
            running.relay._pace.after_error = lambda: next(waits, 3_600_000)
            # The second comes after the first has been waited for.
            _await(lambda: len(_said(caplog)) >= 2 or running.error is not None)
    assert all(each.startswith("the relay tries again: ") for each in _said(caplog))
    if place.kind.driver:
        place.wait(given["engine"].dispose)


def _said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "bullmq_outbox"]


def _await(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_MS / 1_000
    while not holds():
        assert time.monotonic() < end
        threading.Event().wait(0.005)


@of("psycopg", "psycopg-asyncio", "sqlite", "sqlalchemy-asyncio-aiosqlite")
def test_after_an_error_it_waits(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    with closed_port() as closed, Queue[Any]("mail", f"redis://127.0.0.1:{closed}") as queue:
        place.redis_url = f"redis://127.0.0.1:{closed}"
        place.add(queue.entry("a"))
        relay = place.relay()
        relay._pace.after_error = lambda: 3_600_000
        ended = threading.Thread(target=place.wait, args=(relay.run,))
        ended.start()
        _await(lambda: bool(_said(caplog)))
        # It would have tried again many times by then.
        threading.Event().wait(0.1)
        relay.stop() if not place.kind.is_async else place.loop.call_soon_threadsafe(relay.stop)
        ended.join()
        assert len(_said(caplog)) == 1


@pytest.mark.parametrize("kind", servers.ends())
@of("psycopg", "psycopg-asyncio", "sqlite")
def test_a_server_that_takes_nothing_now_is_waited_for(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with servers.start(kind) as own, closing(redis.Redis.from_url(own.url)) as admin:
        place.redis_url = own.url
        with Queue[Any]("mail", own.url) as queue, closing(Seen(own.url, queue)) as seen:
            admin.config_set("maxmemory", "1")
            place.add([queue.entry("a"), queue.entry("b")], key="k")
            with place.running(max_reconnect_delay=10, poll=20):
                _await(lambda: bool(_said(caplog)))
                assert all(each.startswith("the server takes no jobs now: ") for each in _said(caplog))
                admin.config_set("maxmemory", "0")
                seen.until(2)
            assert waiting(queue) == ["a", "b"] and place.rows() == []


@pytest.mark.parametrize("kind", servers.ends())
@of("psycopg", "psycopg-asyncio", "sqlite")
def test_a_queue_that_the_login_may_not_use_holds_up_no_other(
    place: Place, kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with servers.start(kind) as own, closing(redis.Redis.from_url(own.url)) as admin:
        admin.execute_command("ACL", "SETUSER", "relay", "on", ">secret", "+@all", f"~bull:{name}:*", "&*")
        place.redis_url = own.url.replace("://", "://relay:secret@")
        with (
            Queue[Any](name, own.url) as queue,
            Queue[Any]("other", own.url) as other,
            closing(Seen(own.url, queue)) as seen,
        ):
            place.add([other.entry("not mine") for _ in range(6)])
            place.add([queue.entry("a"), queue.entry("b")])
            # Turns that find but these would be no faster than the longest delay.
            with place.running(batch=2, poll=20, max_reconnect_delay=3_600_000):
                seen.until(2)
            assert waiting(queue) == ["a", "b"] and place.rows("state, attempts") == [("waiting", 0)] * 6
            [[error], *_] = place.rows("error")
            assert error.startswith("ServerError: NOPERM ") and "2 outbox entries are put off: NOPERM " in caplog.text
            place.execute(f"UPDATE {place.table} SET due_at = 0")
            with pytest.raises(ServerError, match="NOPERM"):
                serve(_Blocking(place), once=True)
            admin.execute_command("ACL", "SETUSER", "relay", "~*")
            place.execute(f"UPDATE {place.table} SET due_at = 0")
            assert place.relay_once().sent == 6 and len(waiting(other)) == 6


class _Blocking:
    """A relay on threads or asyncio, as `bullmq-relay` has it."""

    def __init__(self, place: Place) -> None:
        self._place, self._relay = place, place.relay(batch=2)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._relay, "aclose" if name == "close" and self._place.kind.is_async else name)
        return lambda: self._place.wait(call)


def test_a_running_relay_deletes_what_was_kept_for_long_enough(place: Place, queue: Queue[Any], seen: Seen) -> None:
    place.add([queue.entry("a"), queue.entry("b")])
    place.execute(f"UPDATE {place.table} SET state = 'sent', settled_at = 1")
    place.add(queue.entry("c"))
    # What it has begun when it is stopped it does to its end.
    with place.running(keep=3_600_000, poll=20):
        seen.until(1)
    assert place.rows("seq, state") == [(3, "sent")]


@of("psycopg", "psycopg-asyncio")
def test_a_notification_that_comes_during_a_turn_counts(place: Place, queue: Queue[Any], seen: Seen) -> None:
    relay = place.relay(poll=3_600_000)
    batch, begun = relay._relay_batch, iter([True])

    def first() -> None:
        if next(begun, False):
            # The statement that cleans up reads the notification.
            with psycopg.connect(place.conninfo) as connection:
                PostgresOutbox(place.table).add(connection, queue.entry("a"))

    async def asynchronous() -> Any:
        found = await batch()
        first()
        return found

    def blocking() -> Any:
        found = batch()
        first()
        return found

    relay._relay_batch = asynchronous if place.kind.is_async else blocking
    running = threading.Thread(target=place.wait, args=(relay.run,))
    running.start()
    try:
        seen.until(1)
    finally:
        relay.stop() if not place.kind.is_async else place.loop.call_soon_threadsafe(relay.stop)
        running.join()


@of("sqlalchemy-psycopg", "sqlalchemy-asyncio-asyncpg")
def test_a_table_of_sqlalchemy_wakes_relays_of_psycopg(place: Place, queue: Queue[Any], seen: Seen) -> None:
    relay = bullmq_outbox.sync.psycopg.OutboxRelay(
        PostgresOutbox(place.table), place.conninfo, place.redis_url, options=RelayOptions(poll=3_600_000)
    )
    running = threading.Thread(target=relay.run)
    running.start()
    try:
        for number in range(1, 4):
            place.add(queue.entry("n"))
            seen.until(number)
    finally:
        relay.stop()
        running.join()


@of("psycopg-asyncio", "sqlalchemy-asyncio-asyncpg")
def test_a_cancelled_relay_holds_no_entries(place: Place, name: str) -> None:
    with servers.start() as own, Queue[Any](name, own.url) as queue:
        place.redis_url = own.url
        place.add(queue.entry("a"))
        relay = place.relay()

        async def cancelled() -> None:
            with anyio.move_on_after(0.5):
                await relay.relay_once()
                raise AssertionError("Redis has answered")

        # It takes connections, and answers nothing.
        os.kill(own.pid, signal.SIGSTOP)
        try:
            place.wait(cancelled)
            # Nobody holds it.
            place.execute(f"SET lock_timeout = {_PATIENCE_MS}; SELECT seq FROM {place.table} FOR UPDATE")
        finally:
            os.kill(own.pid, signal.SIGCONT)
        assert place.wait(relay.relay_once).sent == 1 and waiting(queue) == ["a"]
        place.wait(relay.aclose)


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


class Turns:
    """Turns of a relay at moments of the test's, on a real database, with a Redis that is a function."""

    def __init__(self, place: Place, **options: Any) -> None:
        self._dialect: Any = place.kind.dialect
        self._connection: Any = (
            psycopg.connect(place.conninfo) if self._dialect == "postgresql" else sqlite3.connect(place.file)
        )
        self._statements = statements_of(self._dialect, place.table)
        self._settings = RelayOptions(**options).checked()
        self.refuses: set[str] = set()
        self.calls: list[list[str]] = []
        self.found: list[int] = []
        """How many rows each statement returned."""

    def relay(self, now: int) -> Relayed:
        found: Relayed = self._drive(relay_batch(self._statements, self._settings, now))
        return found

    def clean(self, now: int) -> int:
        self.found.clear()
        count: int = self._drive(clean(self._statements, self._settings, now))
        return count

    def _drive(self, steps: Any) -> Any:
        try:
            step = next(steps)
            while True:
                step = steps.send(self._perform(step))
        except StopIteration as stop:
            return stop.value

    def _perform(self, step: Any) -> Any:
        if isinstance(step, Execute):
            text = for_percent(step.statement) if self._dialect == "postgresql" else step.statement
            cursor = self._connection.execute(text, step.parameters)
            rows = cursor.fetchall() if cursor.description else []
            self.found.append(len(rows))
            return rows
        if isinstance(step, Add):
            self.calls.append([each.name for each in step.entries])
            return [ServerError("ERR no") if each.name in self.refuses else None for each in step.entries]
        return self._connection.commit()

    def close(self) -> None:
        self._connection.close()


@of("psycopg", "sqlite")
def test_entries_come_when_they_are_due_and_hold_up_those_behind_them_alone(place: Place, queue: Queue[Any]) -> None:
    now = 1_700_000_000_000
    place.add([queue.entry("a"), queue.entry("b")], key="k")
    place.add([queue.entry("c"), queue.entry("d")], key="l")
    with closing(Turns(place, retry_delay=100, keep=60_000, max_attempts=2)) as turns:
        # Of "l" the second waits for later, as after a lease.
        place.execute(f"UPDATE {place.table} SET due_at = {now + 150} WHERE seq = 4")
        turns.refuses = {"a"}
        assert (turns.relay(now).sent, turns.calls) == (1, [["a", "c"]])
        assert turns.relay(now + 99).sent == 0 and turns.calls == [["a", "c"]]
        turns.refuses = set()
        assert (turns.relay(now + 100).sent, turns.calls[1:]) == (2, [["a"], ["b"]])
        assert (turns.relay(now + 150).sent, turns.calls[3:]) == (1, [["d"]])
        assert place.rows("state, attempts, error") == [("sent", number, None) for number in (1, 0, 0, 0)]
        # Neither what is kept nor what was given up holds up what comes after it.
        place.add([queue.entry("e"), queue.entry("f")], key="k")
        turns.refuses = {"e"}
        assert turns.relay(now + 200).sent == 0
        turns.refuses = {"e", "f"}
        assert [each.given_up for each in turns.relay(now + 300).refused] == [True, False]
        turns.refuses = set()
        assert (turns.relay(now + 400).sent, turns.calls[-1]) == (1, ["f"])
        assert place.rows("state")[4:] == [("refused",), ("sent",)]


@of("psycopg", "sqlite")
def test_only_what_was_sent_is_cleaned_up_a_thousand_at_once(place: Place, queue: Queue[Any]) -> None:
    now = 1_700_000_000_000
    place.add([queue.entry("n") for _ in range(1_504)])
    place.execute(f"UPDATE {place.table} SET state = 'sent', settled_at = {now - 5_001}")
    for seq, state, settled in ((1, "refused", 1), (2, "sent", now - 5_000), (3, "waiting", "NULL"), (4, "sent", now)):
        place.execute(f"UPDATE {place.table} SET state = '{state}', settled_at = {settled} WHERE seq = {seq}")
    with closing(Turns(place, keep=5_000)) as turns:
        assert (turns.clean(now), turns.found) == (1_500, [1_000, 500])
    assert place.rows("seq, state") == [(1, "refused"), (2, "sent"), (3, "waiting"), (4, "sent")]


@of(*(kind.name for kind in POSTGRESQL))
def test_several_relays_clean_up_side_by_side(place: Place, queue: Queue[Any]) -> None:
    place.add([queue.entry("a"), queue.entry("b")])
    place.execute(f"UPDATE {place.table} SET state = 'sent', settled_at = 1")
    relay = place.relay()
    with psycopg.connect(place.conninfo) as other:
        other.execute(f"SELECT 1 FROM {place.table} WHERE seq = 1 FOR UPDATE".encode())
        assert place.wait(relay.clean_up) == 1
    assert place.wait(relay.clean_up) == 1
    place.wait(relay.aclose if place.kind.is_async else relay.close)


@of(*(kind.name for kind in POSTGRESQL))
def test_each_statement_sees_what_others_have_committed(place: Place, queue: Queue[Any]) -> None:
    """Whatever connections of the application are like."""
    strict = f"{place.conninfo} options='-c default_transaction_isolation=serializable'"
    made: list[Any] = []

    def connect_() -> Any:
        made.append(psycopg.connect(strict, autocommit=True, row_factory=dict_row))
        return made[-1]

    async def connect_async() -> Any:
        made.append(await psycopg.AsyncConnection.connect(strict, autocommit=True, row_factory=dict_row))
        return made[-1]

    given: dict[str, Any] = {"database": connect_async if place.kind.is_async else connect_}
    if place.kind.driver:
        make = create_async_engine if place.kind.is_async else create_engine
        given = {"engine": make(place.engine.url, isolation_level="SERIALIZABLE")}
    relay = place.relay(**given)
    place.add([queue.entry("a"), queue.entry("b")], key="k")
    assert place.wait(relay.relay_once).sent == 2
    [[level]] = place.wait(relay._database.execute, "SHOW transaction_isolation", {})
    assert level == "read committed"
    assert [each.autocommit for each in made] == ([] if place.kind.driver else [False])
    place.wait(relay.aclose if place.kind.is_async else relay.close)
    assert [each.closed for each in made] == ([] if place.kind.driver else [True])
    if place.kind.driver:
        place.wait(given["engine"].dispose)


@of("psycopg", "psycopg-asyncio")
def test_a_connection_that_is_in_use_is_refused_and_closed(place: Place) -> None:
    made: list[Any] = []

    def connect_() -> Any:
        made.append(psycopg.connect(place.conninfo))
        made[-1].execute("SELECT 1")
        return made[-1]

    async def connect_async() -> Any:
        made.append(await psycopg.AsyncConnection.connect(place.conninfo))
        await made[-1].execute("SELECT 1")
        return made[-1]

    relay = place.relay(database=connect_async if place.kind.is_async else connect_)
    with pytest.raises(psycopg.ProgrammingError, match="autocommit"):
        place.wait(relay.relay_once)
    assert [each.closed for each in made] == [True]
    place.wait(relay.aclose if place.kind.is_async else relay.close)


@of("sqlite")
def test_a_relay_of_sqlite_waits_for_a_lock_and_may_be_closed_by_another_thread(
    place: Place, queue: Queue[Any]
) -> None:
    place.add(queue.entry("a"))
    relay = place.relay()
    assert relay.relay_once().sent == 1
    [[busy_ms]] = relay._database.execute("PRAGMA busy_timeout", {})
    assert busy_ms == 20_000
    errors: list[BaseException] = []

    def close() -> None:
        try:
            relay.close()
        except BaseException as error:
            errors.append(error)

    closing_it = threading.Thread(target=close)
    closing_it.start()
    closing_it.join()
    assert errors == []


@of("sqlalchemy-psycopg", "sqlalchemy-asyncio-asyncpg")
def test_a_table_may_be_in_a_schema(place: Place, queue: Queue[Any]) -> None:
    place.execute(f"CREATE SCHEMA {place.table}_shop")
    metadata = bullmq_outbox.sqlalchemy.MetaData(schema=f"{place.table}_shop")
    outbox = SqlalchemyOutbox(metadata, "jobs")

    def create(connection: Any) -> None:
        metadata.create_all(connection)
        # The other driver of SQLAlchemy runs this here, too.
        connection.execute(outbox.insert([queue.entry("a"), queue.entry("b")], key="k"))

    async def create_async() -> None:
        async with place.engine.begin() as connection:
            await connection.run_sync(create)

    if place.kind.is_async:
        place.wait(create_async)
    else:
        with place.engine.begin() as connection:
            create(connection)
    place.outbox = outbox
    assert place.relay_once(batch=1).sent == 1
    other = bullmq_outbox.sync.psycopg.OutboxRelay(PostgresOutbox(outbox.name), place.conninfo, place.redis_url)
    with other:
        assert other.relay_once().sent == 1
    assert waiting(queue) == ["a", "b"]
    place.execute(f"DROP SCHEMA {place.table}_shop CASCADE")


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
        running.line("relaying until SIGTERM or SIGINT")
        place.add(queue.entry("c"))
        seen.until(3)
        assert running.end(signal.SIGTERM) == 0, running.text
    assert waiting(queue) == ["a", "b", "c"] and place.rows() == []


@of("psycopg", "sqlite")
def test_the_command_takes_what_sqlalchemy_does_and_cleans_up(
    place: Place, queue: Queue[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"postgresql+asyncpg://postgres@127.0.0.1:{place.port}/postgres"
    database = address if place.kind.dialect == "postgresql" else f"sqlite+aiosqlite:///{place.file}"
    place.add([queue.entry("a"), queue.entry("b"), queue.entry("c")])
    place.execute(f"UPDATE {place.table} SET state = 'sent', settled_at = 1 WHERE seq = 1")
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    given = [database, "--table", place.table, "--redis", place.redis_url, "--once", "--keep", "3600000"]
    assert main(given) == 0 and capsys.readouterr().out == "2 sent\n"
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert place.rows("seq, state") == [(2, "sent"), (3, "sent")]


@of("psycopg", "sqlite")
def test_the_command_says_what_the_database_says(
    place: Place, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    is_postgresql = place.kind.dialect == "postgresql"
    database = f"postgresql://postgres@127.0.0.1:{place.port}/postgres" if is_postgresql else f"sqlite:///{place.file}"
    given = [database, "--table", f"{place.table}_no", "--redis", server.url, "--once"]
    assert main(given) == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r"bullmq-relay: .*_no\b.* \(--create makes it\)\n", said), said
    if not is_postgresql:
        place.file.write_bytes(b"something else " * 100)
        assert main(given) == 1
        assert capsys.readouterr().err == "bullmq-relay: file is not a database\n"
        return
    with closed_port() as closed:
        given[0] = f"postgresql://postgres:secret@127.0.0.1:{closed}/postgres"
        for more in ([], ["--create"]):
            assert main([*given, *more]) == 1
            said = capsys.readouterr().err
            assert re.match("bullmq-relay: connection failed: .*Connection refused", said), said
            assert "secret" not in said
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "bullmq_outbox.sync.psycopg")
    assert main(given) == 1
    assert "pip install 'bullmq-protocol[outbox-psycopg]'" in capsys.readouterr().err


@of("sqlite")
def test_the_command_ends_where_redis_takes_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with servers.start(config=("--maxmemory", "1")) as own, Queue[Any]("mail", own.url) as queue:
        place.add(queue.entry("a"))
        given = [f"sqlite:///{place.file}", "--table", place.table, "--redis", own.url, "--once"]
        assert main(given) == 1
        assert "bullmq-relay: OOM" in capsys.readouterr().err
    assert place.rows("state, attempts") == [("waiting", 0)]


def test_the_command_says_what_is_wrong(tmp_path: Path, server: Server) -> None:
    file = tmp_path / "new.db"
    for arguments, code, words in (
        (["mysql://a"], 2, "must begin with postgresql:// or sqlite:///"),
        (["sqlite://"], 2, "must begin with postgresql:// or sqlite:///"),
        (["sqlite:///"], 2, "must begin with postgresql:// or sqlite:///"),
        (["shop.db"], 2, "must begin with postgresql:// or sqlite:///"),
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
