"""A relay for PostgreSQL on asyncio, by psycopg 3: `pip install 'bullmq-protocol[outbox-psycopg,anyio]'`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

if find_spec("psycopg") is None:
    raise ModuleNotFoundError(
        "the outbox needs psycopg 3 here (psycopg is missing): pip install 'bullmq-protocol[outbox-psycopg]'",
        name="psycopg",
    )

import psycopg
from psycopg.rows import tuple_row

from bullmq_anyio.drive import Connection as RedisConnection
from bullmq_outbox.aio.relay import RelayLoop, check_limits
from bullmq_outbox.options import RelayOptions
from bullmq_outbox.statements import for_percent
from bullmq_outbox.tables import PostgresOutbox
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.scripts.profile import DEFAULT, Profile


class OutboxRelay(RelayLoop):
    """Relays the entries of a `PostgresOutbox`. New ones wake it at once (LISTEN); it polls besides.

    Any number of relays may run side by side: each holds the entries that it works on by row locks (`FOR UPDATE SKIP
    LOCKED`), which end with its connection, however it ends.
    """

    def __init__(
        self,
        outbox: PostgresOutbox,
        database: str | Callable[[], Awaitable[psycopg.AsyncConnection[Any]]],
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
            >>> await relay.run()
        """
        if not isinstance(outbox, PostgresOutbox):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("outbox", outbox, "must be a PostgresOutbox")
        if not isinstance(database, str) and not callable(database):
            raise UsageError("database", type(database), "must be a text to connect to, or a function that connects")
        opened = _Database(database, outbox.statements.channel)
        super().__init__(outbox.statements, opened, connection, options, check_limits(limits), scripts)


class _Database:
    def __init__(self, database: str | Callable[[], Awaitable[psycopg.AsyncConnection[Any]]], channel: str) -> None:
        self._database = database
        self._channel = channel
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._texts: dict[str, bytes] = {}

    async def execute(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        connection = self._connection
        if connection is None:
            connection = await self._opened()
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = for_percent(statement).encode()
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(text, parameters)
            return await cursor.fetchall() if cursor.description else ()

    def will_pass(self, error: Exception) -> bool:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))

    async def commit(self) -> None:
        if self._connection is not None:
            await self._connection.commit()

    def fileno(self) -> int | None:
        return None if self._connection is None else self._connection.fileno()

    async def notified(self) -> bool:
        found = False
        if self._connection is not None:
            async for _ in self._connection.notifies(timeout=0):
                found = True
        return found

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _opened(self) -> psycopg.AsyncConnection[Any]:
        if isinstance(self._database, str):
            connection = await psycopg.AsyncConnection[Any].connect(self._database)
        else:
            connection = await self._database()
        try:
            await connection.set_autocommit(False)
            # Each statement must see what other relays have committed meanwhile.
            await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
            await connection.execute(f"LISTEN {self._channel}".encode())
            await connection.commit()
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return connection
