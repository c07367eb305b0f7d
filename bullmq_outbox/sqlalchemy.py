"""The table of an outbox for SQLAlchemy 2: `pip install 'bullmq-protocol[outbox-sqlalchemy]'`.

It needs no adapter and no relay: those are in `bullmq_outbox.sync.sqlalchemy` and `bullmq_outbox.aio.sqlalchemy`.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

if find_spec("sqlalchemy") is None:
    raise ModuleNotFoundError(
        "the outbox needs SQLAlchemy 2 here (sqlalchemy is missing): pip install 'bullmq-protocol[outbox-sqlalchemy]'",
        name="sqlalchemy",
    )

from sqlalchemy import DDL, BigInteger, Column, Index, Integer, MetaData, Table, Text, event, insert, text
from sqlalchemy.sql.dml import Insert

from bullmq_outbox.statements import DEFAULT_TABLE, DIALECTS, Statements, statements_of
from bullmq_outbox.tables import checked_entries, checked_key
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.outbox import OutboxEntry


class SqlalchemyOutbox:
    """A table in which entries wait for a relay, on PostgreSQL or SQLite.

    Attributes:
        table: The table, in the metadata given: `metadata.create_all` makes it, with its indexes and on PostgreSQL the
            trigger that notifies relays; Alembic finds it there.
    """

    table: Table

    def __init__(self, metadata: MetaData, table: str = DEFAULT_TABLE, *, notify: bool = True) -> None:
        """Add the table to metadata. Nothing is sent.

        Args:
            metadata: That of your tables: `Base.metadata`.
            table: Its name; `bullmq_outbox` by default. The metadata's schema comes before it.
            notify: Whether a trigger notifies relays on PostgreSQL; True by default.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> outbox = SqlalchemyOutbox(Base.metadata)
            >>> Base.metadata.create_all(engine)
        """
        if not isinstance(metadata, MetaData):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("metadata", type(metadata), "must be a MetaData")
        if type(notify) is not bool:
            raise UsageError("notify", notify, "must be True or False")
        self.name = f"{metadata.schema}.{table}" if metadata.schema else table
        for dialect in DIALECTS:
            statements_of(dialect, self.name)
        whole = BigInteger().with_variant(Integer, "sqlite")
        waits = text("state = 'waiting'")
        ordered, sent = text("state = 'waiting' AND order_key IS NOT NULL"), text("state = 'sent'")
        self.table = Table(
            table,
            metadata,
            Column("seq", whole, primary_key=True, autoincrement=True),
            Column("entry", Text, nullable=False),
            Column("order_key", Text),
            Column("state", Text, nullable=False, server_default="waiting"),
            Column("attempts", Integer, nullable=False, server_default=text("0")),
            Column("due_at", BigInteger, nullable=False, server_default=text("0")),
            Column("error", Text),
            Column("settled_at", BigInteger),
            Index(f"{table}_waiting", "seq", postgresql_where=waits, sqlite_where=waits),
            Index(f"{table}_ordered", "order_key", "due_at", postgresql_where=ordered, sqlite_where=ordered),
            Index(f"{table}_sent", "settled_at", postgresql_where=sent, sqlite_where=sent),
            # A number is never given twice: a relay that was held up for longer than its lease deletes by it.
            sqlite_autoincrement=True,
        )
        for statement in statements_of("postgresql", self.name).notify if notify else ():
            made: Any = DDL
            event.listen(self.table, "after_create", made(statement).execute_if(dialect="postgresql"))

    def __repr__(self) -> str:
        return f"SqlalchemyOutbox({self.name!r})"

    def insert(self, entry: OutboxEntry | Iterable[OutboxEntry], *, key: str | None = None) -> Insert:
        """Return the statement that stores entries, for `execute` of any session or connection.

        Args:
            entry: What `Queue.entry` returned, one or several.
            key: What the entries are in order by: a later one of the same key is added after them. None, the default:
                they are in order with no others.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> await session.execute(outbox.insert(queue.entry("welcome", {"to": "ada"}), key="user:17"))
        """
        order_key = checked_key(key)
        rows = [{"entry": each.to_json(), "order_key": order_key} for each in checked_entries(entry)]
        return insert(self.table).values(rows)

    def add(self, session: Any, entry: OutboxEntry | Iterable[OutboxEntry], *, key: str | None = None) -> Any:
        """Store entries in the transaction of a session or a connection.

        Args:
            session: A `Session`, a `Connection`, or one of asyncio's.
            entry: What `Queue.entry` returned, one or several.
            key: What the entries are in order by, as in `insert`; None by default.

        Returns:
            What its `execute` returned: of an asynchronous one something to await.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> with Session(engine) as session, session.begin():
            ...     session.add(Order(item="book"))
            ...     outbox.add(session, queue.entry("confirm", {"item": "book"}))
        """
        return session.execute(self.insert(entry, key=key))


def statements_for(outbox: object, dialect: str) -> Statements:
    """Return the SQL of an outbox in a database. Raises `UsageError`."""
    if not isinstance(outbox, SqlalchemyOutbox):
        raise UsageError("outbox", type(outbox), "must be a SqlalchemyOutbox")
    for known in DIALECTS:
        if known == dialect:
            return statements_of(known, outbox.name)
    raise UsageError("engine", dialect, f"must be of one of {', '.join(DIALECTS)}")
