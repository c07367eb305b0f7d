"""Outboxes of every kind for tests: a table in PostgreSQL or SQLite, what stores entries, and the relay for it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import bullmq_outbox.aio.psycopg
import bullmq_outbox.aio.sqlalchemy
import bullmq_outbox.sync.psycopg
import bullmq_outbox.sync.sqlalchemy
import bullmq_outbox.sync.sqlite
from bullmq_outbox import PostgresOutbox, Relayed, RelayOptions, SqliteOutbox
from bullmq_outbox.sqlalchemy import SqlalchemyOutbox
from bullmq_protocol import OutboxEntry
from tests.support import postgres


class Kind(NamedTuple):
    """What entries are stored and relayed by."""

    name: str
    dialect: str
    is_async: bool = False
    driver: str = ""
    """Of SQLAlchemy."""

    @property
    def listens(self) -> bool:
        return self.name.startswith("psycopg")


KINDS = (
    Kind("psycopg", "postgresql"),
    Kind("psycopg-asyncio", "postgresql", True),
    Kind("sqlalchemy-psycopg", "postgresql", False, "postgresql+psycopg"),
    Kind("sqlalchemy-asyncio-psycopg", "postgresql", True, "postgresql+psycopg"),
    Kind("sqlalchemy-asyncio-asyncpg", "postgresql", True, "postgresql+asyncpg"),
    Kind("sqlite", "sqlite"),
    Kind("sqlalchemy-sqlite", "sqlite", False, "sqlite"),
    Kind("sqlalchemy-asyncio-aiosqlite", "sqlite", True, "sqlite+aiosqlite"),
)


class Place:
    """A database with an outbox. All calls wait, those of asyncio in a loop of the place's own."""

    def __init__(self, kind: Kind, port: int, folder: Path, table: str, redis_url: str) -> None:
        self.kind, self.table, self.redis_url = kind, table, redis_url
        self.port = port
        self.conninfo = postgres.conninfo(port)
        self.file = folder / f"{table}.db"
        self._runner = asyncio.Runner() if kind.is_async else None
        self._metadata = sqlalchemy.MetaData()
        self.outbox: Any
        if kind.driver:
            host = f"postgres@127.0.0.1:{port}/postgres" if kind.dialect == "postgresql" else f"/{self.file}"
            address = f"{kind.driver}://{host}"
            self.engine: Any = (
                create_async_engine(address, pool_pre_ping=True)
                if kind.is_async
                else sqlalchemy.create_engine(address, pool_pre_ping=True)
            )
            self.outbox = SqlalchemyOutbox(self._metadata, table)
        else:
            self.outbox = PostgresOutbox(table) if kind.dialect == "postgresql" else SqliteOutbox(table)
        self.wait(self._create)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.kind.driver:
            self.wait(self.engine.dispose)
        if self._runner is not None:
            self._runner.close()
        if self.kind.dialect == "postgresql":
            with psycopg.connect(self.conninfo) as connection:
                connection.execute(f"DROP TABLE IF EXISTS {self.table} CASCADE".encode())

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the place, for calls from other threads."""
        assert self._runner is not None
        return self._runner.get_loop()

    def wait(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call something, and wait for what it returns if that is something to await."""
        if self._runner is None:
            return call(*arguments)

        async def called() -> Any:
            found = call(*arguments)
            return await found if inspect.isawaitable(found) else found

        return self._runner.run(called())

    def add(
        self, entries: OutboxEntry | Iterable[OutboxEntry], *, key: str | None = None, commits: bool = True
    ) -> None:
        """Store entries in a transaction, and commit it or roll it back."""
        self.wait(self._add, entries, key, commits)

    def relay(self, *, engine: Any = None, database: Any = None, **options: Any) -> Any:
        """Return a relay; with an engine of its own for one that runs in another event loop, or for another
        database."""
        modules = bullmq_outbox.aio if self.kind.is_async else bullmq_outbox.sync
        given = {name: options.pop(name) for name in ("limits", "scripts") if name in options}
        given["options"] = RelayOptions(**options)
        if self.kind.driver:
            return modules.sqlalchemy.OutboxRelay(self.outbox, engine or self.engine, self.redis_url, **given)
        if self.kind.dialect == "postgresql":
            return modules.psycopg.OutboxRelay(self.outbox, database or self.conninfo, self.redis_url, **given)
        return bullmq_outbox.sync.sqlite.OutboxRelay(self.outbox, database or self.file, self.redis_url, **given)

    def relay_once(self, **options: Any) -> Relayed:
        """Relay once, by a relay of its own."""

        async def relayed() -> Any:
            async with self.relay(**options) as relay:
                return await relay.relay_once()

        if self.kind.is_async:
            found: Relayed = self.wait(relayed)
            return found
        with self.relay(**options) as relay:
            return relay.relay_once()  # type: ignore[no-any-return]

    def rows(self, columns: str = "state") -> list[tuple[Any, ...]]:
        """Return the rows of the table in their order."""
        return self.execute(f"SELECT {columns} FROM {self.table} ORDER BY seq")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement beside, and commit."""
        if self.kind.dialect == "postgresql":
            with psycopg.connect(self.conninfo) as connection:
                cursor = connection.execute(statement.encode())
                return cursor.fetchall() if cursor.description else []
        database = sqlite3.connect(self.file, timeout=20)
        try:
            with database:
                return database.execute(statement).fetchall()
        finally:
            database.close()

    def running(self, **options: Any) -> Running:
        """Return a relay that runs in a thread, from the beginning of a `with` to its end."""
        return Running(self, options)

    # --- by kind ---

    def _create(self) -> Any:
        if self.kind.driver:
            return self._create_async() if self.kind.is_async else self._metadata.create_all(self.engine)
        if self.kind.is_async:
            return self._create_async()
        if self.kind.dialect == "postgresql":
            with psycopg.connect(self.conninfo) as connection:
                self.outbox.create(connection)
        else:
            bullmq_outbox.sync.sqlite.create(self.outbox, self.file)
        return None

    async def _create_async(self) -> None:
        if self.kind.driver:
            async with self.engine.begin() as connection:
                await connection.run_sync(self._metadata.create_all)
            return
        async with await psycopg.AsyncConnection.connect(self.conninfo) as connection:
            await self.outbox.create_async(connection)

    def _add(self, entries: Any, key: str | None, commits: bool) -> Any:
        if self.kind.is_async:
            return self._add_async(entries, key, commits)
        connection: Any
        if self.kind.driver:
            with Session(self.engine) as connection:
                self.outbox.add(connection, entries, key=key)
                (connection.commit if commits else connection.rollback)()
            return None
        if self.kind.dialect == "postgresql":
            connection = psycopg.connect(self.conninfo)
        else:
            connection = sqlite3.connect(self.file, timeout=20)
        try:
            self.outbox.add(connection, entries, key=key)
            (connection.commit if commits else connection.rollback)()
        finally:
            connection.close()
        return None

    async def _add_async(self, entries: Any, key: str | None, commits: bool) -> None:
        connection: Any
        if self.kind.driver:
            connection = AsyncSession(self.engine)
        else:
            connection = await psycopg.AsyncConnection.connect(self.conninfo)
        try:
            await self.outbox.add(connection, entries, key=key)
            await (connection.commit if commits else connection.rollback)()
        finally:
            await connection.close()


class Running:
    """A relay that runs in a thread of its own."""

    def __init__(self, place: Place, options: dict[str, Any]) -> None:
        self._place = place
        self._options = options
        self._thread = threading.Thread(target=self._main, name="relay")
        self._made = threading.Event()
        self._stop: Callable[[], object] = lambda: None
        self.relay: Any = None
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._made.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It may have ended already, and its loop with it.
        with contextlib.suppress(RuntimeError):
            self._stop()
        self._thread.join()
        if self.error is not None and error is None:
            raise self.error

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def _main(self) -> None:
        try:
            if self._place.kind.is_async:
                asyncio.run(self._run())
            else:
                self.relay = self._place.relay(**self._options)
                self._stop = self.relay.stop
                self._made.set()
                self.relay.run()
        except BaseException as error:
            self.error = error
        finally:
            self._made.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        # An engine belongs to a loop.
        engine = create_async_engine(self._place.engine.url) if self._place.kind.driver else None
        try:
            self.relay = self._place.relay(**{"engine": engine, **self._options})
            self._stop = lambda: loop.call_soon_threadsafe(self.relay.stop)
            self._made.set()
            await self.relay.run()
        finally:
            if engine is not None:
                await engine.dispose()
