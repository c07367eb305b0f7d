"""Jobs that follow an SQL transaction: tables of entries, and relays that add their jobs.

`Queue.entry` makes an entry, an outbox stores it in your transaction, and a relay adds the job afterwards:

- `PostgresOutbox` and `SqliteOutbox` here, `bullmq_outbox.sqlalchemy.SqlalchemyOutbox`, `bullmq_django.outbox`;
- `OutboxRelay` of `bullmq_outbox.sync.psycopg`, `.sqlite` and `.sqlalchemy` for threads, of `bullmq_outbox.aio.psycopg`
  and `.sqlalchemy` for asyncio; and the command `bullmq-relay`.

All of them have the same columns, so any relay serves any of them. docs/outbox.md has a program for each.
"""

from bullmq_outbox.decisions import Refusal, Relayed
from bullmq_outbox.options import RelayOptions
from bullmq_outbox.tables import Outbox, PostgresOutbox, SqliteOutbox

__all__ = ["Outbox", "PostgresOutbox", "Refusal", "RelayOptions", "Relayed", "SqliteOutbox"]
