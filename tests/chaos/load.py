"""What the load is made of: the programs in Python read it here, `program.js` receives it."""

KEPT, LEAN = QUEUES = "kept", "lean"
"""`lean` removes its completed jobs."""
CONCURRENCY = {KEPT: 6, LEAN: 4}
LANES = 5
"""Adds at a time, per producer."""
BULK = 5
ROOM = 150
"""A producer rests while more jobs wait in its queue."""
PERIOD_S, SPARSE_S, REST_S = 20, 6, 1.0
"""Each period of the wall clock begins with a time in which lanes rest after each add, so that workers have to wait."""
ATTEMPTS = 3
RETRY_MS = 200
MAX_LEN_EVENTS = 100_000_000
