"""The table of an outbox: what makes it, and what stores entries in it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from bullmq_outbox.statements import DEFAULT_TABLE, Dialect, for_percent, statements_of
from bullmq_protocol.common.codec import check_text
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.outbox import OutboxEntry, checked_entry

LONGEST_KEY: Final = 255


class Outbox:
    """A table in which entries wait for a relay: `PostgresOutbox` and `SqliteOutbox`.

    It is a value: it holds names and SQL, and no connection.

    Attributes:
        dialect: `postgresql` or `sqlite`.
        table: The name of the table.
        statements: The SQL of the table.
    """

    dialect: Dialect

    def __init__(self, table: str = DEFAULT_TABLE, *, notify: bool = True) -> None:
        """Name the table. Nothing is sent.

        Args:
            table: Its name, on PostgreSQL with its schema or without; `bullmq_outbox` by default.
            notify: Whether `ddl` makes a trigger that notifies relays on PostgreSQL; True by default. Without it they
                find entries by polling.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> PostgresOutbox("shop.jobs").table
            'shop.jobs'
        """
        if type(notify) is not bool:
            raise UsageError("notify", notify, "must be True or False")
        self.table = table
        self.statements = statements_of(self.dialect, table)
        self._notify = notify

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table!r})"

    @property
    def ddl(self) -> tuple[str, ...]:
        """The statements that make the table, its indexes and its trigger where they are not there, for a migration."""
        return self.statements.create + (self.statements.notify if self._notify else ())

    def insert(
        self, entry: OutboxEntry | Iterable[OutboxEntry], *, key: str | None = None
    ) -> tuple[str, dict[str, str | None]]:
        """Return the statement that stores entries, and its parameters.

        Args:
            entry: What `Queue.entry` returned, one or several.
            key: What the entries are in order by: a later one of the same key is added after them. None, the default:
                they are in order with no others.

        Returns:
            Both arguments of `connection.execute`.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> connection.execute(*outbox.insert(queue.entry("welcome", {"to": "ada"})))
        """
        texts = msgspec.json.encode([each.to_json() for each in checked_entries(entry)]).decode()
        return self._written(self.statements.insert), {"entries": texts, "key": checked_key(key)}

    def add(self, connection: Any, entry: OutboxEntry | Iterable[OutboxEntry], *, key: str | None = None) -> Any:
        """Store entries in the transaction of a connection.

        Args:
            connection: The connection of your transaction, or a cursor: psycopg's, blocking or asynchronous, or
                sqlite3's.
            entry: What `Queue.entry` returned, one or several.
            key: What the entries are in order by, as in `insert`; None by default.

        Returns:
            What its `execute` returned: of an asynchronous connection something to await.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> with connection:
            ...     outbox.add(connection, queue.entry("welcome", {"to": "ada"}), key="user:17")
        """
        return connection.execute(*self.insert(entry, key=key))

    def create(self, connection: Any) -> None:
        """Make the table, its indexes and its trigger where they are not there.

        Args:
            connection: A blocking connection or cursor. Commit afterwards.

        Examples:
            >>> outbox.create(connection)
        """
        for statement in self.ddl:
            connection.execute(statement)

    async def create_async(self, connection: Any) -> None:
        """Do the same with an asynchronous connection or cursor.

        Args:
            connection: The connection. Commit afterwards.

        Examples:
            >>> await outbox.create_async(connection)
        """
        for statement in self.ddl:
            await connection.execute(statement)

    def _written(self, statement: str) -> str:
        return statement


class PostgresOutbox(Outbox):
    """The table of an outbox in PostgreSQL 14 or newer, for psycopg.

    Examples:
        >>> outbox = PostgresOutbox()
        >>> with psycopg.connect(address) as connection:
        ...     outbox.create(connection)
    """

    dialect = "postgresql"

    def _written(self, statement: str) -> str:
        return for_percent(statement)


class SqliteOutbox(Outbox):
    """The table of an outbox in SQLite 3.35 or newer, for Python's sqlite3.

    Examples:
        >>> outbox = SqliteOutbox()
        >>> outbox.create(sqlite3.connect("shop.db"))
    """

    dialect = "sqlite"


def checked_entries(entry: object) -> list[OutboxEntry]:
    """Return one entry or several as a list. Raises `UsageError`."""
    if isinstance(entry, OutboxEntry) or not isinstance(entry, Iterable):
        return [checked_entry(entry)]
    return [checked_entry(each) for each in cast("Iterable[object]", entry)]


def checked_key(key: object) -> str | None:
    """Return a key that entries are in order by. Raises `UsageError`."""
    if key is None:
        return None
    text = check_text("key", key)
    if not text or "\0" in text or len(text) > LONGEST_KEY:
        raise UsageError("key", key, f"must have 1 to {LONGEST_KEY} characters, and none of them NUL")
    return text
