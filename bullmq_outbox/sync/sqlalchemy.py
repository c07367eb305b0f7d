"""A relay on threads by SQLAlchemy 2, for PostgreSQL and SQLite: `pip install
'bullmq-protocol[outbox-sqlalchemy,sync]'`, and the driver of your database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

if find_spec("sqlalchemy") is None:
    raise ModuleNotFoundError(
        "the outbox needs SQLAlchemy 2 here (sqlalchemy is missing): pip install 'bullmq-protocol[outbox-sqlalchemy]'",
        name="sqlalchemy",
    )

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from bullmq_outbox.options import RelayOptions
from bullmq_outbox.sqlalchemy import SqlalchemyOutbox, statements_for
from bullmq_outbox.statements import is_of_the_statement
from bullmq_outbox.sync.relay import RelayLoop, check_limits
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.scripts.profile import DEFAULT, Profile
from bullmq_sync.drive import Connection as RedisConnection


class OutboxRelay(RelayLoop):
    """Relays the entries of a `SqlalchemyOutbox`, by polling.

    Where new entries are to wake it at once on PostgreSQL, run the relay of `psycopg` on the same table.
    """

    def __init__(
        self,
        outbox: SqlalchemyOutbox,
        engine: Engine,
        connection: RedisConnection = None,
        *,
        options: RelayOptions = RelayOptions(),  # noqa: B008
        limits: Limits = DEFAULT_LIMITS,
        scripts: Profile = DEFAULT,
    ) -> None:
        """Nothing is opened.

        Args:
            outbox: The table.
            engine: The engine of the database, PostgreSQL or SQLite. The relay takes one connection of it at a time,
                and does not dispose of it.
            connection: Where Redis is, as for `relay_entries`. None, the default: the server that `BULLMQ_URL` names,
                else 127.0.0.1:6379.
            options: How entries are taken; by default `RelayOptions()`.
            limits: Bounds on written data, as for `relay_entries`.
            scripts: The profile, as of the queues.

        Raises:
            UsageError: An argument is wrong, or the database is neither.

        Examples:
            >>> relay = OutboxRelay(outbox, engine, "redis://localhost")
            >>> relay.run()
        """
        if not isinstance(engine, Engine):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("engine", type(engine), "must be an Engine")
        statements = statements_for(outbox, engine.dialect.name)
        super().__init__(statements, _Database(engine), connection, options, check_limits(limits), scripts)


class _Database:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        connection = self._connection
        if connection is None:
            connection = self._connection = self._engine.connect()
            if self._engine.dialect.name == "postgresql":
                # Each statement must see what other relays have committed meanwhile.
                connection.execution_options(isolation_level="READ COMMITTED")
        result = connection.execute(text(statement), parameters)
        return result.all() if result.returns_rows else ()

    def will_pass(self, error: Exception) -> bool:
        # Some drivers raise the system's errors where no connection can be made.
        lost = isinstance(error, OSError) or (isinstance(error, DBAPIError) and error.connection_invalidated)
        return lost or (isinstance(error, (OperationalError, InterfaceError)) and not is_of_the_statement(error))

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
