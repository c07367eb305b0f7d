"""A relay for the table of `bullmq_django.outbox`, on a connection of its own to one of `DATABASES`."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import InterfaceError, OperationalError, connections
from django.db.utils import load_backend

from bullmq_django.outbox.models import OutboxRow
from bullmq_outbox.options import RelayOptions
from bullmq_outbox.statements import DIALECTS, Statements, for_percent, is_of_the_statement, statements_of
from bullmq_outbox.sync.relay import RelayLoop, check_limits
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.scripts.profile import DEFAULT, Profile
from bullmq_sync.drive import Connection as RedisConnection


class OutboxRelay(RelayLoop):
    """Relays the entries of `OutboxRow`. On PostgreSQL with psycopg 3 new ones wake it at once; it polls besides."""

    def __init__(
        self,
        database: str = "default",
        connection: RedisConnection = None,
        *,
        options: RelayOptions = RelayOptions(),  # noqa: B008
        limits: Limits = DEFAULT_LIMITS,
        scripts: Profile = DEFAULT,
    ) -> None:
        """Nothing is opened.

        Args:
            database: The name in `DATABASES`; `default` by default. PostgreSQL or SQLite.
            connection: Where Redis is, as for `relay_entries`. None, the default: the server that `BULLMQ_URL` names,
                else 127.0.0.1:6379.
            options: How entries are taken; by default `RelayOptions()`.
            limits: Bounds on written data, as for `relay_entries`.
            scripts: The profile, as of the queues.

        Raises:
            ImproperlyConfigured: The database is neither, or there is none of this name.
            UsageError: An argument is wrong.

        Examples:
            >>> OutboxRelay("default", "redis://localhost").run()
        """
        opened = _Database(database)
        super().__init__(opened.statements, opened, connection, options, check_limits(limits), scripts)


class _Database:
    def __init__(self, alias: str) -> None:
        if alias not in connections.settings:
            raise ImproperlyConfigured(f"DATABASES has no {alias!r}")
        # A connection of its own: the relay's transactions are none of the thread's.
        settings = copy.deepcopy(connections.settings[alias])
        settings["OPTIONS"].pop("isolation_level", None)
        self._wrapper: Any = load_backend(settings["ENGINE"]).DatabaseWrapper(settings, alias)
        # `run` may be on another thread than the call that made or closes it.
        self._wrapper.inc_thread_sharing()
        vendor = self._wrapper.vendor
        if vendor not in DIALECTS:
            known = " or ".join(DIALECTS)
            raise ImproperlyConfigured(f"DATABASES[{alias!r}] must be {known} for the outbox, is {vendor}")
        self.statements: Statements = statements_of(vendor, OutboxRow._meta.db_table)
        self._open = False

    def execute(self, statement: str, parameters: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        if not self._open:
            self._begin()
        with self._wrapper.cursor() as cursor:
            cursor.execute(for_percent(statement), parameters)
            found: Sequence[Sequence[Any]] = cursor.fetchall() if cursor.description else ()
            return found

    def will_pass(self, error: Exception) -> bool:
        return isinstance(error, (OperationalError, InterfaceError)) and not is_of_the_statement(error)

    def commit(self) -> None:
        if self._open:
            self._wrapper.commit()

    def fileno(self) -> int | None:
        if not self._open or not self._listens():
            return None
        number: int = self._wrapper.connection.fileno()
        return number

    def notified(self) -> bool:
        return self._open and self._listens() and bool(list(self._wrapper.connection.notifies(timeout=0)))

    def close(self) -> None:
        self._open = False
        self._wrapper.close()

    def _begin(self) -> None:
        # `connect` raises the driver's own errors.
        self._wrapper.ensure_connection()
        self._wrapper.set_autocommit(False)
        self._open = True
        if self._listens():
            with self._wrapper.cursor() as cursor:
                cursor.execute(f"LISTEN {self.statements.channel}")
            self._wrapper.commit()

    def _listens(self) -> bool:
        # Of psycopg 2 it is a list.
        return callable(getattr(self._wrapper.connection, "notifies", None))
