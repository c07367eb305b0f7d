"""Transactions under fault: entries of an outbox and MULTI with WATCH, while relays and Redis are killed.

`python -m tests.stress.outbox --transactions 20000 --kills 50 --seed 1 [postgresql sqlite multi]`. A third of the
transactions is rolled back at random, half of the others' jobs have a key that they are in order by, relays and Redis
are ended by SIGKILL at random. In the end every job of a committed transaction must be there, once; none of a
rolled back one; and those of a key in the order of the commits.

Redis has an append-only file with `appendfsync always`: an add that it has acknowledged must survive.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import psycopg
import redis

from bullmq_outbox import PostgresOutbox, SqliteOutbox
from bullmq_protocol import JobOptions, NewJob
from bullmq_sync import Queue
from tests.support import postgres, servers
from tests.support.servers import Server

ROOT = Path(__file__).parents[2]
QUEUE = "faults"
KINDS = ("postgresql", "sqlite", "multi")
_KEYS = 20
_RELAYS = 3
_PRODUCERS = 4
_ROLLED_BACK = 1 / 3
_PATIENCE_S = 120.0
_LEASE_MS = 500


class Order(NamedTuple):
    """A job of a committed transaction: its id, its key if it has one, and its place among those of the key."""

    id: str
    key: str | None
    place: int


@dataclass
class Report:
    """What a run came to."""

    kind: str
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether nothing was lost, doubled, out of nothing or out of order."""
        return not self.faults

    def text(self) -> str:
        """Return a line, and one for each of the first faults."""
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(self.counts.items()))
        head = f"{self.kind}, seed {self.seed}: {counts}; {self.seconds:.0f} s; {len(self.faults)} faults"
        return "\n".join([head, *(f"  {fault}" for fault in self.faults[:20])])


def audit(committed: Iterable[Order], jobs: Sequence[str]) -> list[str]:
    """Compare what was committed with the jobs that are there, oldest first; return what is wrong."""
    orders = {order.id: order for order in committed}
    there = Counter(jobs)
    faults = [f"lost: {order}" for order in orders.values() if order.id not in there]
    faults += [f"there {count} times: {job}" for job, count in there.items() if count > 1]
    faults += [f"of no committed transaction: {job}" for job in there if job not in orders]
    last: dict[str, int] = defaultdict(int)
    for job in jobs:
        order = orders.get(job)
        if order is None or order.key is None:
            continue
        if order.place < last[order.key]:
            faults.append(f"out of order: {order} after place {last[order.key]}")
        last[order.key] = max(last[order.key], order.place)
    return faults


class Killer:
    """Ends relays and Redis by SIGKILL, one at a time, as the transactions go on; and starts them again."""

    def __init__(self, server: Server, relays: Relays | None, kills: int, transactions: int, seed: int) -> None:
        self._server = server
        self._relays = relays
        self._moments = sorted(random.Random(seed).randrange(transactions) for _ in range(kills))
        self.planned = kills
        self._random = random.Random(seed + 1)
        self._done = 0
        self._changed = threading.Condition()
        self.counts: Counter[str] = Counter()

    def note(self) -> None:
        """Note that a transaction has ended."""
        with self._changed:
            self._done += 1
            self._changed.notify()

    def run(self) -> None:
        """Kill until the last one is due."""
        for moment in self._moments:
            with self._changed:
                self._changed.wait_for(lambda due=moment: self._done >= due)  # type: ignore[misc]
            # Not always right after a commit.
            time.sleep(self._random.random() * 0.05)
            if self._relays is None or self._random.random() < 0.4:
                self._server.kill()
                self._server.restart()
                self.counts["kills of Redis"] += 1
            else:
                self._relays.kill(self._random.randrange(_RELAYS))
                self.counts["kills of relays"] += 1


class Relays:
    """Processes of `bullmq-relay` side by side."""

    def __init__(self, database: str, url: str, log: Path) -> None:
        self._command = [
            *(sys.executable, "-m", "bullmq_outbox", database, "--redis", url, "--poll", "50", "--batch", "50"),
            *("--max-reconnect-delay", "100", "--lease", str(_LEASE_MS)),
        ]
        self._log = log.open("ab")
        self._processes = [self._started() for _ in range(_RELAYS)]

    def kill(self, number: int) -> None:
        """End one by SIGKILL, and start another."""
        self._processes[number].process.kill()
        self._processes[number].wait()
        self._processes[number] = self._started()

    def end(self) -> list[int]:
        """End all in good order; return their exit codes."""
        for each in self._processes:
            # Before it is ready, a signal ends it as it ends any program.
            each.ready.wait(_PATIENCE_S)
            each.process.terminate()
        codes = [each.wait() for each in self._processes]
        self._log.close()
        return codes

    def _started(self) -> _Relay:
        return _Relay(self._command, self._log)


class _Relay:
    """A process whose errors go into a log; it says there that it is ready for signals."""

    def __init__(self, command: Sequence[str], log: BinaryIO) -> None:
        self.ready = threading.Event()
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.PIPE, start_new_session=True)
        self._log = log
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def wait(self) -> int:
        """Wait for its end; return its exit code."""
        self._thread.join()
        return self.process.wait()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                if b"relaying until SIGTERM" in line:
                    self.ready.set()
                self._log.write(line)
                self._log.flush()
        # One that has ended before is waited for no longer.
        self.ready.set()


class Producers:
    """Threads that make transactions."""

    def __init__(self, make: Callable[[random.Random, int], str], transactions: int, seed: int) -> None:
        self._make = make
        self._left = iter(range(transactions))
        self._lock = threading.Lock()
        self._seed = seed
        self.counts: Counter[str] = Counter()
        self.errors: list[BaseException] = []

    def run(self, note: Callable[[], None]) -> None:
        """Make them all."""
        threads = [threading.Thread(target=self._produce, args=(number, note)) for number in range(_PRODUCERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _produce(self, number: int, note: Callable[[], None]) -> None:
        dice = random.Random(self._seed * 1_000 + number)
        try:
            while True:
                with self._lock:
                    transaction = next(self._left, None)
                if transaction is None or self.errors:
                    return
                outcome = self._make(dice, transaction)
                with self._lock:
                    self.counts[outcome] += 1
                note()
        except BaseException as error:
            self.errors.append(error)


_TABLES = (
    "CREATE TABLE keys (key text PRIMARY KEY, place bigint NOT NULL)",
    "CREATE TABLE orders (id text PRIMARY KEY, key text, place bigint NOT NULL)",
)


class Sql:
    """An application on an SQL database: it writes orders, and entries beside them."""

    def __init__(self, connect: Callable[[], Any], outbox: PostgresOutbox | SqliteOutbox) -> None:
        self._connect = connect
        self._outbox = outbox
        self._local = threading.local()
        self._opened: list[Any] = []
        self._queue = Queue[Any](QUEUE, "redis://127.0.0.1:1")
        self._mark = "%s" if isinstance(outbox, PostgresOutbox) else "?"
        with contextlib.closing(connect()) as connection:
            for statement in _TABLES:
                connection.execute(statement)
            for key in range(_KEYS):
                connection.execute(self._sql("INSERT INTO keys VALUES (?, 0)"), [f"key-{key}"])
            outbox.create(connection)
            connection.commit()

    def transact(self, dice: random.Random, number: int) -> str:
        """Make a transaction, and commit it or roll it back."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
            self._opened.append(connection)
        try:
            key = f"key-{dice.randrange(_KEYS)}" if dice.random() < 0.5 else None
            place = number
            if key is not None:
                # It locks the row: transactions of one key follow each other.
                connection.execute(self._sql("UPDATE keys SET place = place + 1 WHERE key = ?"), [key])
                [place] = connection.execute(self._sql("SELECT place FROM keys WHERE key = ?"), [key]).fetchone()
            entries = [self._queue.entry("n", {"n": number}) for _ in range(dice.choice((1, 1, 2, 3)))]
            for entry in entries:
                connection.execute(self._sql("INSERT INTO orders VALUES (?, ?, ?)"), [entry.id, key, place])
            self._outbox.add(connection, entries, key=key)
            if dice.random() < _ROLLED_BACK:
                connection.rollback()
                return "rolled back"
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return "committed"

    def close(self) -> None:
        """Close the queue, and the threads' connections."""
        self._queue.close()
        for each in self._opened:
            each.close()

    def await_relayed(self) -> None:
        """Wait until nothing waits in the outbox."""
        limit = time.monotonic() + _PATIENCE_S
        with contextlib.closing(self._connect()) as connection:
            while True:
                statement = f"SELECT count(*) FROM {self._outbox.table}"
                [left] = connection.execute(statement).fetchone()
                connection.rollback()
                if not left:
                    return
                assert time.monotonic() < limit, f"{left} entries were not relayed"
                time.sleep(0.05)

    def committed(self) -> list[Order]:
        """Return the orders that were committed."""
        with contextlib.closing(self._connect()) as connection:
            return [Order(*row) for row in connection.execute("SELECT id, key, place FROM orders").fetchall()]

    def _sql(self, statement: str) -> str:
        return statement.replace("?", self._mark)


class Multi:
    """An application whose data is in Redis: it watches a counter, and writes an order and its job in one MULTI."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._local = threading.local()
        self._opened: list[Any] = []
        self._queue = Queue[Any](QUEUE, url)
        self._lock = threading.Lock()
        self._committed: list[Order] = []
        self.counts: Counter[str] = Counter()

    def transact(self, dice: random.Random, number: int) -> str:
        """Make a transaction, and run or discard it; one that may have run is looked for before it is sent again."""
        key, rolled_back = f"key-{dice.randrange(_KEYS)}", dice.random() < _ROLLED_BACK
        order = f"order-{number}"
        ready = self._queue.adding([NewJob("n", {"n": number}, JobOptions(job_id=order))])
        limit = time.monotonic() + _PATIENCE_S
        while True:
            assert time.monotonic() < limit, f"{order} was not settled"
            try:
                outcome = self._attempt(ready, key, order, rolled_back=rolled_back)
            except redis.WatchError:
                self._count("conflicts")
                continue
            except (redis.ConnectionError, redis.TimeoutError, ConnectionError):
                self._count("broken connections")
                time.sleep(0.01)
                continue
            if outcome is None:
                return "rolled back"
            with self._lock:
                self._committed.append(Order(order, key, outcome))
            return "committed"

    def _attempt(self, ready: Any, key: str, order: str, *, rolled_back: bool) -> int | None:
        client = getattr(self._local, "client", None)
        if client is None:
            client = self._local.client = redis.Redis.from_url(self._url, decode_responses=True)
            self._opened.append(client)
        with client.pipeline() as pipeline:
            pipeline.watch(key, order)
            stored = pipeline.get(order)
            if stored is not None:
                # EXEC ran, and its reply was lost.
                self._count("found done")
                return int(stored)
            place = int(pipeline.get(key) or 0) + 1
            pipeline.multi()
            pipeline.set(key, place)
            pipeline.set(order, place)
            queued = ready.into_pipeline(pipeline)
            if rolled_back:
                return None
            [job] = queued.results(pipeline.execute())
            assert job.added is not False, f"{order} was there already"
            return place

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def committed(self) -> list[Order]:
        """Return the orders that were committed."""
        return self._committed

    def close(self) -> None:
        """Close the queue, and the threads' clients."""
        self._queue.close()
        for each in self._opened:
            each.close()

    def faults(self) -> list[str]:
        """Return what is wrong with the application's own data."""
        of_key = Counter(order.key for order in self._committed)
        with redis.Redis.from_url(self._url, decode_responses=True) as client:
            found = {key: int(client.get(key) or 0) for key in of_key if key is not None}
            orders = set(client.scan_iter("order-*", count=1_000))
        faults = [f"{key} is {found[key]}, not {of_key[key]}" for key in found if found[key] != of_key[key]]
        return faults + [f"data without a commit: {each}" for each in orders - {order.id for order in self._committed}]


def run(kind: str, transactions: int, kills: int, seed: int, *, fsync: str = "always") -> Report:
    """Run one kind; return what it came to."""
    report = Report(kind, seed)
    begun = time.monotonic()
    config = ("--appendonly", "yes", "--appendfsync", fsync)
    with tempfile.TemporaryDirectory() as folder, servers.start(config=config) as server:
        if kind == "multi":
            _multi(report, server, transactions, kills, seed)
        elif kind == "sqlite":
            _sqlite(report, server, transactions, kills, seed, Path(folder))
        else:
            with postgres.started() as port:
                address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
                sql = Sql(lambda: psycopg.connect(address), PostgresOutbox())
                _sql(report, server, transactions, kills, seed, sql, address, Path(folder))
    report.seconds = time.monotonic() - begun
    return report


def _sqlite(report: Report, server: Server, transactions: int, kills: int, seed: int, folder: Path) -> None:
    file = folder / "shop.db"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(file, timeout=_PATIENCE_S, check_same_thread=False)
        # The process of a relay is killed, not the machine: what was written to the file stays there.
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    with contextlib.closing(connect()) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    sql = Sql(connect, SqliteOutbox())
    _sql(report, server, transactions, kills, seed, sql, f"sqlite:///{file}", folder)


def _sql(
    report: Report, server: Server, transactions: int, kills: int, seed: int, sql: Sql, address: str, folder: Path
) -> None:
    relays = Relays(address, server.url, folder / "relays.log")
    try:
        _conduct(report, Killer(server, relays, kills, transactions, seed), sql, transactions, seed)
        sql.await_relayed()
    except BaseException:
        print((folder / "relays.log").read_text(errors="replace")[-4_000:], file=sys.stderr)
        raise
    finally:
        codes = relays.end()
        sql.close()
    if any(codes):
        report.faults.append(f"relays ended with {codes}")
    _compare(report, server, sql.committed())


def _multi(report: Report, server: Server, transactions: int, kills: int, seed: int) -> None:
    application = Multi(server.url)
    try:
        _conduct(report, Killer(server, None, kills, transactions, seed), application, transactions, seed)
        report.counts += application.counts
        report.faults += application.faults()
        _compare(report, server, application.committed())
    finally:
        application.close()


def _conduct(report: Report, killer: Killer, application: Sql | Multi, transactions: int, seed: int) -> None:
    producers = Producers(application.transact, transactions, seed)
    thread = threading.Thread(target=killer.run, daemon=True)
    thread.start()
    producers.run(killer.note)
    thread.join()
    report.counts += producers.counts + killer.counts
    if killer.counts.total() != killer.planned:
        report.faults.append(f"{killer.counts.total()} of {killer.planned} kills were done")


def _compare(report: Report, server: Server, committed: list[Order]) -> None:
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        # The list's end is its oldest job.
        jobs: Any = client.lrange(f"bull:{QUEUE}:wait", 0, -1)
        jobs.reverse()
        stored = {key.rpartition(":")[2] for key in client.scan_iter(f"bull:{QUEUE}:*", count=1_000, _type="hash")}
    report.counts["jobs"] = len(jobs)
    report.faults += audit(committed, jobs)
    report.faults += [f"in the list without data: {job}" for job in jobs if job not in stored]
    report.faults += [f"data without a place: {job}" for job in stored - set(jobs) - {"meta"}]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress.outbox", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default all")
    parser.add_argument("--transactions", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--appendfsync", default="always", choices=("always", "everysec", "no"))
    given = parser.parse_args(arguments)
    good = True
    for kind in given.kinds or KINDS:
        report = run(kind, given.transactions, given.kills, given.seed, fsync=given.appendfsync)
        print(report.text(), flush=True)
        good = good and report.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
