"""What the load is made of, shared by the programs in Python and in Node (`program.js` holds the same figures)."""

KEPT, LEAN = QUEUES = "kept", "lean"
"""`lean` removes its completed jobs."""
CONCURRENCY = {KEPT: 5, LEAN: 3}
LANES = 3
"""Adds at a time, per producer."""
BULK = 5
ROOM = 150
"""A producer rests while more jobs wait in its queue."""
ATTEMPTS = 3
RETRY_MS = 200
MAX_LEN_EVENTS = 100_000_000
