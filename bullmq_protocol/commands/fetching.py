"""Take jobs, and wait for them."""

from __future__ import annotations

import math

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands._shared import NOTHING, Fetched, Limiter, as_fetched, packed_fetch
from bullmq_protocol.common.codec import MAX_SAFE_INTEGER, number_text
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_int, as_list, as_none, as_optional_float
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UnexpectedReply
from bullmq_protocol.scripts._lua import MOVE_TO_ACTIVE

__all__ = [
    "NOTHING",
    "Fetched",
    "Limiter",
    "due_of",
    "move_to_active",
    "packed_fetch",
    "put_marker",
    "rate_limit",
    "stalled_check_ttl",
    "wait_for_marker",
]


def move_to_active(
    keys: QueueKeys,
    *,
    token: str,
    lock_ms: Millis,
    now: Millis,
    limiter: Limiter | None = None,
    worker_name: str | None = None,
) -> Command[Fetched]:
    """Promote due jobs, take the next job, lock it and return its data.

    Keys:    wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc, marker
    Args:    base prefix, now (ms), packed options
    Reply:   [fields, id, limit delay, next due time] -> Fetched
    Raises:  UnexpectedReply
    Repeat:  unsafe: a lost reply leaves a locked job in `active` until the stalled check finds it
    Cost:    O(log n), plus up to 1,000 due jobs
    Source:  specs/02-worker-path.md#move-to-active
    """
    return Command(
        "moveToActive",
        (
            *keys.of_fetch,
            keys.marker,
        ),
        (keys.base, now, packed_fetch(token, lock_ms, limiter, worker_name)),
        as_fetched,
        script=MOVE_TO_ACTIVE,
    )


def wait_for_marker(keys: QueueKeys, *, block_ms: Millis) -> Command[float | None]:
    """Wait until a job may be there, at most `block_ms`.

    Keys:    marker
    Args:    timeout in seconds
    Reply:   nil, or [key, member, score] -> None, or the score: 0 means now, else the due time in ms
    Raises:  UnexpectedReply
    Repeat:  unsafe: it consumes the marker
    Source:  specs/02-worker-path.md#sec-9-5
    """
    return Command("BZPOPMIN", (keys.marker,), (number_text(block_ms / 1000),), _marker_score, block_ms=block_ms)


def put_marker(keys: QueueKeys) -> Command[None]:
    """Set the ready marker: given back by a worker that took it and will make no fetch.

    Repeat:  safe
    Source:  specs/01-data-model-and-adding.md#sec-2-10
    """
    return Command("ZADD", (keys.marker,), (0, "0"), as_none, repeat=Repeat.SAFE)


def _marker_score(reply: Reply) -> float | None:
    if reply is None:
        return None
    parts = as_list(reply)
    if len(parts) != 3:
        raise UnexpectedReply("key, member and score", reply)
    return as_optional_float(parts[2])


def due_of(score: float) -> Millis | None:
    """Return the moment that a marker's score names; None for one that never comes.

    A job may be delayed for ever (`delay: Number.MAX_VALUE`): the score of its marker is infinite.

    Source: specs/05-worker-runtime.md#sec-5-4
    """
    return math.floor(score) if abs(score) <= MAX_SAFE_INTEGER else None


def rate_limit(keys: QueueKeys, *, ttl_ms: Millis) -> Command[None]:
    """Limit the queue manually for `ttl_ms`. Fetches without a maximum ignore it.

    Repeat:  safe
    Source:  specs/02-worker-path.md#sec-10-3
    """
    return Command("SET", (keys.limiter,), (9007199254740991, "PX", ttl_ms), as_none, repeat=Repeat.SAFE)


def stalled_check_ttl(keys: QueueKeys) -> Command[int]:
    """Return the milliseconds until the next stalled check may run: -2 when it may run now.

    Repeat:  safe
    Source:  specs/02-worker-path.md#sec-6
    """
    return Command("PTTL", (keys.stalled_check,), (), as_int, repeat=Repeat.SAFE)
