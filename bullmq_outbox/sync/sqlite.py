"""A relay for SQLite, by Python's own sqlite3: `pip install 'bullmq-protocol[sync]'`."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bullmq_outbox.options import RelayOptions
from bullmq_outbox.statements import is_of_the_statement
from bullmq_outbox.sync.relay import RelayLoop, check_limits
from bullmq_outbox.tables import SqliteOutbox
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.scripts.profile import DEFAULT, Profile
from bullmq_sync.drive import Connection as RedisConnection

_BUSY_S = 20.0


class OutboxRelay(RelayLoop):
    """Relays the entries of a `SqliteOutbox`, by polling.

    Any number of relays may run side by side. The database is locked while one takes entries and while it notes what
    became of them, but not while Redis is asked: a lease keeps other relays from them meanwhile.
    """

    def __init__(
        self,
        outbox: SqliteOutbox,
        database: str | os.PathLike[str] | Callable[[], sqlite3.Connection],
        connection: RedisConnection = None,
        *,
        options: RelayOptions = RelayOptions(),  # noqa: B008
        limits: Limits = DEFAULT_LIMITS,
        scripts: Profile = DEFAULT,
    ) -> None:
        """Nothing is opened.

        Args:
            outbox: The table.
            database: The file, or a function that opens a connection for the relay alone.
            connection: Where Redis is, as for `relay_entries`. None, the default: the server that `BULLMQ_URL` names,
                else 127.0.0.1:6379.
            options: How entries are taken; by default `RelayOptions()`.
            limits: Bounds on written data, as for `relay_entries`.
            scripts: The profile, as of the queues.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> relay = OutboxRelay(SqliteOutbox(), "shop.db", "redis://localhost")
            >>> relay.run()
        """
        if not isinstance(outbox, SqliteOutbox):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("outbox", outbox, "must be a SqliteOutbox")
        if not isinstance(database, (str, os.PathLike)) and not callable(database):
            raise UsageError("database", type(database), "must be a file, or a function that connects")
        super().__init__(outbox.statements, _Database(database), connection, options, check_limits(limits), scripts)  # pyright: ignore[reportUnknownArgumentType]


def create(outbox: SqliteOutbox, file: str | os.PathLike[str]) -> None:
    """Make the table in a file, where it is not there.

    Args:
        outbox: The table.
        file: The file, which is made if it is not there.

    Examples:
        >>> create(SqliteOutbox(), "shop.db")
    """
    with contextlib.closing(sqlite3.connect(file, timeout=_BUSY_S)) as connection, connection:
        outbox.create(connection)


class _Database:
    def __init__(self, database: str | os.PathLike[str] | Callable[[], sqlite3.Connection]) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._opened()
        return connection.execute(statement, parameters).fetchall()

    def will_pass(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.OperationalError) and not is_of_the_statement(error)

    def commit(self) -> None:
        if self._connection is not None:
            self._connection.commit()

    def fileno(self) -> int | None:
        return None

    def notified(self) -> bool:
        return False

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> sqlite3.Connection:
        if callable(self._database):
            return self._database()
        # `run` may be on another thread than the call that made or closes it.
        return sqlite3.connect(self._database, timeout=_BUSY_S, check_same_thread=False)
