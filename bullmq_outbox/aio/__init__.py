"""Relays for asyncio: `psycopg` and `sqlalchemy`. `bullmq_outbox.sync` has those for threads."""
