"""A relay for PostgreSQL on threads, by psycopg 3: `pip install 'bullmq-protocol[outbox-psycopg,sync]'`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

if find_spec("psycopg") is None:
    raise ModuleNotFoundError(
        "the outbox needs psycopg 3 here (psycopg is missing): pip install 'bullmq-protocol[outbox-psycopg]'",
        name="psycopg",
    )

import psycopg
from psycopg.rows import tuple_row

from bullmq_outbox.options import RelayOptions
from bullmq_outbox.statements import for_percent
from bullmq_outbox.sync.relay import RelayLoop, check_limits
from bullmq_outbox.tables import PostgresOutbox
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.scripts.profile import DEFAULT, Profile
from bullmq_sync.drive import Connection as RedisConnection


class OutboxRelay(RelayLoop):
    """Relays the entries of a `PostgresOutbox`. New ones wake it at once (LISTEN); it polls besides.

    Any number of relays may run side by side: each holds the entries that it works on by row locks (`FOR UPDATE SKIP
    LOCKED`), which end with its connection, however it ends.
    """

    def __init__(
        self,
        outbox: PostgresOutbox,
        database: str | Callable[[], psycopg.Connection[Any]],
        connection: RedisConnection = None,
        *,
        options: RelayOptions = RelayOptions(),  # noqa: B008
        limits: Limits = DEFAULT_LIMITS,
        scripts: Profile = DEFAULT,
    ) -> None:
        """Nothing is opened.

        Args:
            outbox: The table.
            database: What psycopg connects to, as text, or a function that opens a connection for the relay alone.
            connection: Where Redis is, as for `relay_entries`. None, the default: the server that `BULLMQ_URL` names,
                else 127.0.0.1:6379.
            options: How entries are taken; by default `RelayOptions()`.
            limits: Bounds on written data, as for `relay_entries`.
            scripts: The profile, as of the queues.

        Raises:
            UsageError: An argument is wrong.

        Examples:
            >>> relay = OutboxRelay(PostgresOutbox(), "dbname=shop", "redis://localhost")
            >>> relay.run()
        """
        if not isinstance(outbox, PostgresOutbox):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("outbox", outbox, "must be a PostgresOutbox")
        if not isinstance(database, str) and not callable(database):
            raise UsageError("database", type(database), "must be a text to connect to, or a function that connects")
        opened = _Database(database, outbox.statements.channel)
        super().__init__(outbox.statements, opened, connection, options, check_limits(limits), scripts)


class _Database:
    def __init__(self, database: str | Callable[[], psycopg.Connection[Any]], channel: str) -> None:
        self._database = database
        self._channel = channel
        self._connection: psycopg.Connection[Any] | None = None
        self._texts: dict[str, bytes] = {}

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        connection = self._connection
        if connection is None:
            connection = self._opened()
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = for_percent(statement).encode()
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(text, parameters)
            return cursor.fetchall() if cursor.description else ()

    def will_pass(self, error: Exception) -> bool:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))

    def commit(self) -> None:
        if self._connection is not None:
            self._connection.commit()

    def fileno(self) -> int | None:
        return None if self._connection is None else self._connection.fileno()

    def notified(self) -> bool:
        found = False
        if self._connection is not None:
            for _ in self._connection.notifies(timeout=0):
                found = True
        return found

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> psycopg.Connection[Any]:
        if isinstance(self._database, str):
            connection = psycopg.Connection[Any].connect(self._database)
        else:
            connection = self._database()
        try:
            connection.set_autocommit(False)
            # Each statement must see what other relays have committed meanwhile.
            connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            connection.execute(f"LISTEN {self._channel}".encode())
            connection.commit()
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection
