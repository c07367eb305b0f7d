"""`bullmq-relay DATABASE`: relay the entries of an outbox until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bullmq_outbox.serving import add_options, options_of, said_by_database, serve
from bullmq_outbox.statements import DEFAULT_TABLE
from bullmq_outbox.tables import PostgresOutbox, SqliteOutbox
from bullmq_protocol.errors import BullMQError, UsageError

_POSTGRESQL = ("postgresql", "postgres")
_DATABASES = ("psycopg", "sqlite3")
_FAILED, _USAGE = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 after a signal, 1 after an error, 2 for a wrong option."""
    parser = argparse.ArgumentParser(
        prog="bullmq-relay", description="Relay the entries of an outbox to Redis until SIGTERM or SIGINT."
    )
    parser.add_argument("database", metavar="DATABASE", help="postgresql://... or sqlite:///FILE")
    parser.add_argument("--redis", help="where Redis is [default: BULLMQ_URL, else redis://127.0.0.1:6379]")
    parser.add_argument("--table", default=DEFAULT_TABLE, help="the table of the outbox [default: %(default)s]")
    parser.add_argument("--create", action="store_true", help="make the table first, where it is not there")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    add_options(parser)
    given = parser.parse_args(arguments)
    logging.basicConfig(level=given.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        count = serve(_relay(given), once=given.once)
    except UsageError as error:
        print(f"bullmq-relay: {error}", file=sys.stderr)  # noqa: T201
        return _USAGE
    except (BullMQError, ModuleNotFoundError) as error:
        print(f"bullmq-relay: {error}", file=sys.stderr)  # noqa: T201
        return _FAILED
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _DATABASES:
            raise
        print(f"bullmq-relay: {said_by_database(error, '--create makes it')}", file=sys.stderr)  # noqa: T201
        return _FAILED
    if given.once:
        print(f"{count} sent")  # noqa: T201
    return 0


def _relay(given: argparse.Namespace) -> Any:
    options = options_of(vars(given))
    scheme, _, rest = given.database.partition("://")
    # What SQLAlchemy calls the driver is none of the command's.
    kind = scheme.partition("+")[0]
    if kind in _POSTGRESQL:
        # Imported by name: who has SQLite alone needs no psycopg.
        made: Any = importlib.import_module("bullmq_outbox.sync.psycopg")
        outbox: Any = PostgresOutbox(given.table)
        address = f"postgresql://{rest}"
        relay = made.OutboxRelay(outbox, address, given.redis, options=options)
        if given.create:
            with made.psycopg.connect(address) as connection:
                outbox.create(connection)
        return relay
    if kind != "sqlite" or rest[:1] != "/" or rest == "/":
        raise UsageError("DATABASE", given.database, "must begin with postgresql:// or sqlite:///")
    file = Path(rest[1:])
    outbox = SqliteOutbox(given.table)
    made = importlib.import_module("bullmq_outbox.sync.sqlite")
    relay = made.OutboxRelay(outbox, file, given.redis, options=options)
    if given.create:
        made.create(outbox, file)
    elif not file.exists():
        raise UsageError("DATABASE", given.database, "must be a file that is there; --create makes it")
    return relay


if __name__ == "__main__":
    sys.exit(main())
