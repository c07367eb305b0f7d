"""What a relay of an outbox decides, on SQLite in memory and on a Redis that is a function."""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

import bullmq_outbox.aio.wake
import bullmq_outbox.sync.wake
from bullmq_outbox import Outbox, PostgresOutbox, Relayed, RelayOptions, SqliteOutbox
from bullmq_outbox.decisions import Add, Commit, Execute, Pace, Row, clean, in_order, relay_batch, waves
from bullmq_outbox.serving import add_options, options_of
from bullmq_outbox.statements import for_percent, statements_of
from bullmq_protocol import (
    BullMQError,
    NewJob,
    OutboxEntry,
    QueueKeys,
    ServerError,
    TransportError,
    UsageError,
    prepare,
)
from bullmq_protocol.model.outbox import entry_of

NOW = 1_700_000_000_000
STATEMENTS = statements_of("sqlite")
KEYS = QueueKeys.of("mail")


def entry(name: str) -> OutboxEntry:
    return entry_of(KEYS, prepare(KEYS, NewJob(name, {}), now_ms=NOW), new_id=f"id-{name}")


class Bench:
    """A relay whose steps are carried out here, one after the other."""

    def __init__(self, **options: Any) -> None:
        self.database = sqlite3.connect(":memory:")
        self.outbox = SqliteOutbox()
        self.outbox.create(self.database)
        self.settings = RelayOptions(**options).checked()
        self.calls: list[list[str]] = []
        self.replies: dict[str, BullMQError] = {}
        self.before_add: Callable[[], object] = lambda: None
        self.fails: BullMQError | None = None

    def add(self, *names: str, key: str | None = None) -> None:
        with self.database:
            self.outbox.add(self.database, [entry(name) for name in names], key=key)

    def relay(self, now: int = NOW) -> Relayed:
        found: Relayed = self.drive(relay_batch(STATEMENTS, self.settings, now))
        assert not self.database.in_transaction
        return found

    def drive(self, steps: Generator[Any, Any, Any]) -> Any:
        try:
            step = next(steps)
            while True:
                if isinstance(step, Execute):
                    step = steps.send(self.database.execute(step.statement, step.parameters).fetchall())
                elif isinstance(step, Commit):
                    step = steps.send(self.database.commit())
                else:
                    step = self._answer(steps, step)
        except StopIteration as stop:
            return stop.value

    def _answer(self, steps: Generator[Any, Any, Any], step: Add) -> Any:
        # What is asked of Redis is asked while the database is free.
        assert not self.database.in_transaction
        self.before_add()
        self.calls.append([each.name for each in step.entries])
        if self.fails is not None:
            return steps.throw(self.fails)
        return steps.send([self.replies.get(each.name) for each in step.entries])

    def rows(self, columns: str = "state, attempts, due_at") -> list[Any]:
        return self.database.execute(f"SELECT {columns} FROM bullmq_outbox ORDER BY seq").fetchall()


@pytest.fixture
def bench() -> Generator[Bench]:
    made = Bench()
    yield made
    made.database.close()


def made_with(**options: Any) -> Bench:
    return Bench(**options)


# --- what is taken ----------------------------------------------------------------------------------------------------


def test_entries_are_added_in_their_order_and_deleted(bench: Bench) -> None:
    bench.add("a", "b")
    bench.add("c")
    assert bench.relay() == Relayed(sent=3)
    assert (bench.calls, bench.rows()) == ([["a", "b", "c"]], [])
    assert bench.relay() == Relayed() and len(bench.calls) == 1


def test_no_more_than_a_batch_is_taken_and_more_is_said() -> None:
    bench = made_with(batch=2)
    bench.add("a", "b", "c")
    assert [bench.relay(), bench.relay()] == [Relayed(sent=2, more=True), Relayed(sent=1)]
    assert bench.calls == [["a", "b"], ["c"]]
    bench.database.close()


def test_an_entry_that_another_relay_took_is_left_until_its_lease_ends() -> None:
    bench = made_with(lease=1_000)
    bench.add("a")
    other: list[Relayed] = []
    bench.before_add = lambda: other.append(bench.relay()) if not other else None
    assert (bench.relay().sent, other) == (1, [Relayed()])
    # The one that took it is gone.
    bench.add("b")
    bench.before_add = lambda: other.pop(100)
    with pytest.raises(IndexError):
        bench.relay()
    bench.before_add = lambda: None
    assert (bench.relay(NOW + 999).sent, bench.relay(NOW + 1_000).sent) == (0, 1)
    bench.database.close()


# --- order ------------------------------------------------------------------------------------------------------------


def test_each_call_has_at_most_one_entry_of_a_key(bench: Bench) -> None:
    bench.add("a", "b", key="k")
    bench.add("c")
    bench.add("d", "e", "f", key="l")
    assert bench.relay().sent == 6
    assert bench.calls == [["a", "c", "d"], ["b", "e"], ["f"]]


def test_a_refused_entry_keeps_later_ones_of_its_key_back_until_it_is_given_up() -> None:
    bench = made_with(max_attempts=2, retry_delay=100)
    bench.add("a", "b", key="k")
    bench.add("c", key="l")
    bench.add("d")
    bench.replies["a"] = ServerError("WRONGTYPE of the wrong type")
    found = bench.relay()
    assert (found.sent, [each.given_up for each in found.refused], bench.calls) == (2, [False], [["a", "c", "d"]])
    assert bench.rows() == [("waiting", 1, NOW + 100), ("waiting", 0, 0)]
    # Not due: what is behind it waits, and what has no key or another one does not.
    bench.add("e")
    bench.add("f", key="k")
    assert bench.relay(NOW + 99).sent == 1 and bench.calls[1:] == [["e"]]
    found = bench.relay(NOW + 100)
    assert [each.given_up for each in found.refused] == [True] and found.sent == 2
    assert bench.calls[2:] == [["a"], ["b"], ["f"]]
    assert bench.rows("state, attempts, error, settled_at") == [
        ("refused", 2, "ServerError: WRONGTYPE of the wrong type", NOW + 100)
    ]
    bench.database.close()


def test_rows_behind_one_that_another_relay_holds_are_left_out() -> None:
    rows = [Row(2, "k", 0, ""), Row(3, None, 0, ""), Row(5, "k", 0, ""), Row(6, "l", 0, "")]
    assert in_order(rows, [("k", 2), ("k", 5), ("l", 6)]) == rows
    assert in_order(rows, [("k", 4), ("k", 2)]) == [rows[0], rows[1], rows[3]]
    assert in_order(rows, [("k", 1), ("k", 4)]) == [rows[1], rows[3]]
    assert [[row.seq for row in wave] for wave in waves(rows)] == [[2, 3, 6], [5]]
    assert list(waves([])) == []


class Rows:
    """Answers the steps of a relay on PostgreSQL with rows that are given for each statement, one after the other."""

    def __init__(self, *taken: list[Any], ahead: list[list[Any]]) -> None:
        self._replies = {"take": list(taken), "ahead": ahead}
        self.asked: list[tuple[str, Any]] = []

    def drive(self, **options: Any) -> Relayed:
        statements = statements_of("postgresql")
        names = {getattr(statements, name): name for name in ("begin", "take", "ahead", "delete", "refuse")}
        steps = relay_batch(statements, RelayOptions(**options).checked(), NOW)
        step: Any = next(steps)
        try:
            while True:
                reply: Any = None
                if isinstance(step, Execute):
                    name = names[step.statement]
                    self.asked.append((name, step.parameters))
                    reply = self._replies[name].pop(0) if name in self._replies else []
                elif isinstance(step, Add):
                    reply = [None] * len(step.entries)
                step = steps.send(reply)
        except StopIteration as stop:
            found: Relayed = stop.value
            return found


TEXT = entry("a").to_json()


def test_where_only_blocked_entries_are_found_others_are_looked_for() -> None:
    rows = Rows([(5, "k", 0, TEXT), (6, "k", 0, TEXT)], [(7, "l", 0, TEXT)], ahead=[[("k", 4), ("k", 5)], [("l", 7)]])
    assert rows.drive(batch=2) == Relayed(sent=1)
    # The transaction holds them: nothing is claimed.
    assert rows.asked == [
        ("begin", {}),
        ("take", {"now": NOW, "most": 2, "passed": "[]"}),
        ("ahead", {"keys": '["k"]', "below": 6}),
        ("take", {"now": NOW, "most": 2, "passed": '["k"]'}),
        ("ahead", {"keys": '["l"]', "below": 7}),
        ("delete", {"seqs": "[7]"}),
    ]


def test_a_relay_that_finds_all_keys_taken_says_so() -> None:
    count = 20
    taken = [[(number, f"k{number}", 0, TEXT)] for number in range(1, count)]
    rows = Rows(*taken, ahead=[[(f"k{number}", 0)] for number in range(1, count)])
    assert rows.drive() == Relayed(blocked=True)
    assert [name for name, _ in rows.asked] == ["begin", *["take", "ahead"] * 8]


# --- what becomes of them ---------------------------------------------------------------------------------------------


def test_sent_entries_are_kept_where_that_is_asked_and_cleaned_up_later() -> None:
    bench = made_with(keep=timedelta(seconds=5))
    bench.add(*(f"n{number}" for number in range(1_500)))
    while bench.relay().sent:
        pass
    assert {row[0] for row in bench.rows("state, settled_at")} == {"sent"}
    assert {row[1] for row in bench.rows("state, settled_at")} == {NOW}
    assert bench.drive(clean(STATEMENTS, bench.settings, NOW + 5_000)) == 0
    assert bench.drive(clean(STATEMENTS, bench.settings, NOW + 5_001)) == 1_500
    assert bench.rows() == []
    bench.database.close()


def test_refused_entries_hold_nothing_up_and_are_tried_later_and_later() -> None:
    bench = made_with(max_attempts=None, retry_delay=100, max_retry_delay=500)
    bench.add("a", "b")
    bench.replies["a"] = ServerError("ERR \0\ud800")
    now, delays = NOW, []
    for attempt in range(1, 6):
        found = bench.relay(now)
        assert found.sent == (attempt == 1)
        assert [(each.attempts, each.given_up, each.seq) for each in found.refused] == [(attempt, False, 1)]
        assert "'a' of bull:mail" in found.refused[0].job and "data" not in found.refused[0].job
        [[due, error]] = bench.rows("due_at, error")
        assert error == "ServerError: ERR \\0\\ud800"
        delays.append(due - now)
        now = due
    assert delays == [100, 200, 400, 500, 500]
    bench.database.close()


def test_an_error_is_stored_in_short_and_without_a_login(bench: Bench) -> None:
    bench.add("a", "b")
    bench.replies["a"] = ServerError("ERR " + "x" * 5_000)
    bench.replies["b"] = ServerError("ERR redis://ada:secret@host:6379 is away")
    bench.relay()
    [[long], [login]] = bench.rows("error")
    assert len(long) == 1_000 and long.endswith("x...")
    assert login.startswith("ServerError: ERR ") and "secret" not in login


def test_a_relay_that_is_late_changes_nothing_that_another_has_settled() -> None:
    bench = made_with(lease=1_000, keep=60_000)
    bench.add("a")
    other: list[Relayed] = []

    def another() -> None:
        if not other:
            other.append(Relayed())
            other[0] = bench.relay(NOW + 1_000)
            # Only the late one is refused.
            bench.replies["a"] = ServerError("ERR late")

    bench.before_add = another
    assert [each.attempts for each in bench.relay().refused] == [1]
    assert other == [Relayed(sent=1)] and bench.rows("state, attempts, error") == [("sent", 0, None)]
    bench.database.close()


def test_entries_that_are_kept_hold_up_none_of_their_key() -> None:
    bench = made_with(keep=60_000, lease=1_000)
    for name in "ab":
        bench.add(name, key="k")
        # At the same moment: the lease of those before has not ended.
        assert bench.relay() == Relayed(sent=1)
    assert bench.calls == [["a"], ["b"]]
    bench.database.close()


def test_numbers_are_never_used_again(bench: Bench) -> None:
    for number in range(1, 4):
        bench.add("a")
        assert bench.rows("seq") == [(number,)] and bench.relay().sent == 1


def test_two_relays_take_one_after_the_other(tmp_path: Path) -> None:
    first, second = (sqlite3.connect(tmp_path / "shop.db", timeout=0) for _ in range(2))
    with closing(first), closing(second):
        SqliteOutbox().create(first)
        first.execute(STATEMENTS.begin)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            second.execute(STATEMENTS.begin)
        first.commit()
        second.execute(STATEMENTS.begin)
        second.rollback()


def test_a_waiting_relay_wakes_when_it_is_stopped() -> None:
    waiting, asynchronous = bullmq_outbox.sync.wake.Wake(), bullmq_outbox.aio.wake.Wake()
    waiting.set()
    waiting.wait(3_600, None)
    waiting.close()

    async def main() -> None:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(asynchronous.wait, 3_600, None)
                await anyio.wait_all_tasks_blocked()
                asynchronous.set()
            await asynchronous.wait(3_600, None)

    anyio.run(main)


def test_what_is_no_entry_is_refused_and_no_call_is_made_for_it(bench: Bench) -> None:
    bench.add("a")
    bench.database.execute("UPDATE bullmq_outbox SET entry = 'x' || entry")
    bench.database.commit()
    found = bench.relay()
    assert (found.sent, len(found.refused), bench.calls) == (0, 1, [])
    assert isinstance(found.refused[0].error, UsageError) and found.refused[0].job == ""
    assert bench.rows("attempts") == [(1,)]


@pytest.mark.parametrize("reply", ["OOM command not allowed", "READONLY you cannot", "NOAUTH no", "LOADING Redis is"])
def test_what_the_server_says_of_itself_counts_against_no_entry(bench: Bench, reply: str) -> None:
    bench.add("a", "b", key="k")
    bench.add("c")
    bench.replies["a"] = ServerError(reply)
    found = bench.relay()
    assert (found.sent, found.refused, str(found.trouble)) == (1, (), reply)
    assert bench.rows() == [("waiting", 0, 0)] * 2
    assert bench.calls == [["a", "c"]]
    del bench.replies["a"]
    assert bench.relay() == Relayed(sent=2)


def test_entries_of_a_queue_that_the_login_may_not_use_hold_up_no_others() -> None:
    bench = made_with(batch=2, retry_delay=1_000, max_retry_delay=50_000, max_attempts=1)
    bench.add("a", "b", key="k")
    bench.add("c", "d")
    bench.replies["a"] = ServerError("NOPERM no keys")
    # The delay is as long as they have waited: at least the first, at most the longest.
    for waited, delay in ((0, 1_000), (7_000, 7_000), (90_000, 50_000)):
        now = NOW + waited
        found = bench.relay(now)
        assert (found.sent, found.refused, found.put_off, str(found.trouble)) == (0, (), 1, "NOPERM no keys")
        assert Pace(bench.settings).after(found) == 0
        assert bench.rows("attempts, due_at, state")[0] == (0, now + delay, "waiting")
        assert bench.rows("error")[0] == ("ServerError: NOPERM no keys",)
        assert bench.rows("due_at")[1] == (0,)
    assert bench.relay(now).sent == 2 and bench.calls[-1] == ["c", "d"]
    assert bench.relay(now + delay - 1) == Relayed()
    bench.replies.clear()
    assert bench.relay(now + delay).sent == 2 and bench.calls[-2:] == [["a"], ["b"]]
    bench.database.close()


def test_what_was_added_before_the_connection_broke_is_done_with(bench: Bench) -> None:
    bench.add("a", "b", key="k")
    bench.add("c")

    def fail_second() -> None:
        if bench.calls:
            bench.fails = TransportError("gone", maybe_applied=True)

    bench.before_add = fail_second
    with pytest.raises(TransportError, match="gone"):
        bench.relay()
    assert bench.rows() == [("waiting", 0, 0)] and bench.calls == [["a", "c"], ["b"]]
    bench.fails = None
    bench.calls.clear()
    assert bench.relay() == Relayed(sent=1)


# --- when -------------------------------------------------------------------------------------------------------------


def test_the_pace_of_a_relay() -> None:
    pace = Pace(RelayOptions(poll=200, max_reconnect_delay=350).checked())
    assert pace.after(Relayed(sent=500, more=True)) == 0
    assert pace.after(Relayed(sent=3)) == 200 and pace.after(Relayed(blocked=True)) == 20
    assert [pace.after_error() for _ in range(4)] == [100, 200, 350, 350]
    assert pace.after(Relayed(trouble=ServerError("OOM"), more=True)) == 350
    assert pace.after(Relayed()) == 200 and pace.after_error() == 100
    assert Pace(RelayOptions(poll=5).checked()).after(Relayed(blocked=True)) == 5
    assert [pace.is_to_clean(at) for at in (50, 60, 10_049, 10_050, 10_051, 3)] == [
        True,
        False,
        False,
        True,
        False,
        True,
    ]


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"batch": 0}, "batch"),
        ({"batch": 10_001}, "batch"),
        ({"batch": True}, "batch"),
        ({"poll": 0}, "poll"),
        ({"poll": 1.5}, "poll"),
        ({"keep": -1}, "keep"),
        ({"keep": timedelta(days=36_500)}, "keep"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"retry_delay": 0}, "retry_delay"),
        ({"max_retry_delay": "1"}, "max_retry_delay"),
        ({"max_reconnect_delay": 0}, "max_reconnect_delay"),
        ({"lease": 0}, "lease"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        RelayOptions(**options).checked()
    assert caught.value.field == field


@pytest.mark.parametrize(
    "table", ["", "a b", "1a", "a;b", "Jobs", "shop.Jobs", "Shop.jobs", "a.b.c", "x" * 42, None, "a\n"]
)
def test_a_table_must_have_a_plain_name(table: Any) -> None:
    for kind in (PostgresOutbox, SqliteOutbox):
        with pytest.raises(UsageError, match="table"):
            kind(table)


def test_arguments_of_an_outbox(bench: Bench) -> None:
    outbox: Outbox = bench.outbox
    for wrong in (None, "text", [entry("a"), 5], NewJob("a", {})):
        with pytest.raises(UsageError):
            outbox.insert(wrong)  # type: ignore[arg-type]
    for key in ("", 5, "a\0b", "x" * 256, "\ud800"):
        with pytest.raises(UsageError, match="key"):
            outbox.insert(entry("a"), key=key)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="notify"):
        PostgresOutbox(notify=1)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="dialect"):
        statements_of("mysql")  # type: ignore[arg-type]
    outbox.add(bench.database, (entry(name) for name in "ab"), key="k")
    assert bench.rows("seq, order_key") == [(1, "k"), (2, "k")]
    assert repr(PostgresOutbox("shop.jobs")) == "PostgresOutbox('shop.jobs')"


def test_names_in_a_schema() -> None:
    made = PostgresOutbox("shop.jobs").ddl
    assert "TABLE IF NOT EXISTS shop.jobs (" in made[0] and "INDEX IF NOT EXISTS jobs_waiting ON shop.jobs" in made[1]
    assert "FUNCTION shop.jobs_notify()" in made[-2] and "NOTIFY jobs;" in made[-2]
    assert len(PostgresOutbox("shop.jobs", notify=False).ddl) == len(made) - 2
    assert statements_of("postgresql", "shop.jobs").channel == "jobs"
    text, parameters = PostgresOutbox().insert(entry("a"))
    assert "CAST(%(key)s AS text)" in text and parameters["key"] is None
    assert for_percent("a = :now AND b::text = :due") == "a = %(now)s AND b::text = %(due)s"


def test_options_of_a_shell() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser)
    assert options_of(vars(parser.parse_args([]))) == RelayOptions()
    given = parser.parse_args(["--batch", "7", "--max-attempts", "0", "--keep", "5000"])
    assert options_of(vars(given)) == RelayOptions(batch=7, max_attempts=None, keep=5_000)
