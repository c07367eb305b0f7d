"""Relays for threads: `psycopg`, `sqlalchemy` and `sqlite`. `bullmq_outbox.aio` has those for asyncio."""
