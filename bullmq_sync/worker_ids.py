"""Names for workers that are given none."""

from __future__ import annotations

import itertools
import os
import secrets
import socket

from bullmq_protocol.common.keys import MAX_NAME_LENGTH

# Counted on from a random figure: random ones alone would meet after some thousand.
_numbers = itertools.count(secrets.randbelow(1 << 24))


def made_worker_id() -> str:
    """Return host, process id and six hex digits."""
    tail = f"-{os.getpid()}-{next(_numbers) & 0xFFFFFF:06x}"
    return socket.gethostname()[: MAX_NAME_LENGTH - len(tail)] + tail
