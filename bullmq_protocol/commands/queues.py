"""Read and administer a whole queue."""

from __future__ import annotations

from collections.abc import Sequence

from bullmq_protocol._lua import GET_COUNTS, GET_RATE_LIMIT_TTL, IS_MAXED, OBLITERATE, PAUSE
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.keys import QueueKeys
from bullmq_protocol.reply import Reply, as_bool, as_int, as_ints, as_none, as_optional_text


class QueueNotPaused(BullMQError):
    """obliterate: the queue must be paused first."""


class QueueHasActiveJobs(BullMQError):
    """obliterate: the queue has active jobs and `force` was not given."""


def get_counts(keys: QueueKeys, states: Sequence[str]) -> Command[list[int]]:
    """Count the jobs in each of the states (`wait` for waiting).

    Keys:    base prefix
    Args:    state names as in the keys
    Reply:   one integer per state -> list of int
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(states)
    Source:  specs/03-transitions-admin-getters.md#get-counts
    """
    return Command("getCounts", (keys.base,), tuple(states), as_ints, script=GET_COUNTS, repeat=Repeat.SAFE)


def pause(keys: QueueKeys) -> Command[None]:
    """Pause the whole queue.

    Keys:    wait, paused, meta, prioritized, events, delayed, marker
    Args:    paused
    Reply:   nil -> None
    Repeat:  unsafe: a second run writes a second event
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#pause
    """
    names = (keys.wait, keys.paused, keys.meta, keys.prioritized, keys.events, keys.delayed, keys.marker)
    return Command("pause", names, ("paused",), as_none, script=PAUSE)


def resume(keys: QueueKeys) -> Command[None]:
    """Resume a paused queue.

    Keys:    paused, wait, meta, prioritized, events, delayed, marker
    Args:    resumed
    Reply:   nil -> None
    Repeat:  unsafe: a second run writes a second event
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#pause
    """
    names = (keys.paused, keys.wait, keys.meta, keys.prioritized, keys.events, keys.delayed, keys.marker)
    return Command("pause", names, ("resumed",), as_none, script=PAUSE)


def is_paused(keys: QueueKeys) -> Command[bool]:
    """Tell whether the whole queue is paused.

    Reply:   1 or 0 -> bool
    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("HEXISTS", (keys.meta,), ("paused",), as_bool, repeat=Repeat.SAFE)


def is_maxed(keys: QueueKeys) -> Command[bool]:
    """Tell whether the queue's global concurrency is reached.

    Keys:    meta, active
    Reply:   1 or nil -> bool
    Repeat:  safe
    Source:  specs/02-worker-path.md#is-maxed
    """
    return Command("isMaxed", (keys.meta, keys.active), (), as_bool, script=IS_MAXED, repeat=Repeat.SAFE)


def get_rate_limit_ttl(keys: QueueKeys, maximum: int | None = None) -> Command[int]:
    """Return how long the queue is rate limited, in ms.

    Keys:    limiter, meta
    Args:    maximum, or 0 when not given
    Reply:   ms; 0 when not limited; without any maximum -2 (no key) or -1 (no TTL) -> int
    Repeat:  safe
    Source:  specs/02-worker-path.md#get-rate-limit-ttl
    """
    return Command(
        "getRateLimitTtl",
        (keys.limiter, keys.meta),
        (maximum or "0",),
        as_int,
        script=GET_RATE_LIMIT_TTL,
        repeat=Repeat.SAFE,
    )


def obliterate_page(keys: QueueKeys, *, count: int, force: bool) -> Command[bool]:
    """Destroy at most `count` jobs of a paused queue.

    Keys:    meta, base prefix
    Args:    count, `force` or empty
    Reply:   1 call again, 0 finished -> True when there is more
    Raises:  QueueNotPaused, QueueHasActiveJobs
    Repeat:  unsafe: after the last page the queue is not paused any more
    Cost:    O(count)
    Source:  specs/03-transitions-admin-getters.md#obliterate
    """
    return Command("obliterate", (keys.meta, keys.base), (count, "force" if force else ""), _obliterated, script=OBLITERATE)


def write_meta(keys: QueueKeys, *, max_len_events: int, version: str) -> Command[None]:
    """Write what the construction of a queue object writes: event cap and library version.

    Repeat:  safe
    Source:  specs/01-data-model-and-adding.md#sec-2-5
    """
    return Command(
        "HMSET", (keys.meta,), ("opts.maxLenEvents", max_len_events, "version", version), as_none, repeat=Repeat.SAFE
    )


def get_version(keys: QueueKeys) -> Command[str | None]:
    """Return the library and version that last constructed a queue object here.

    Repeat:  safe
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    return Command("HGET", (keys.meta,), ("version",), as_optional_text, repeat=Repeat.SAFE)


def ping() -> Command[None]:
    """Ask the server whether it answers.

    Repeat:  safe
    """
    return Command("PING", (), (), as_none, repeat=Repeat.SAFE)


def _obliterated(reply: Reply) -> bool:
    code = as_int(reply)
    if code == -1:
        raise QueueNotPaused("Cannot obliterate non-paused queue")
    if code == -2:
        raise QueueHasActiveJobs("Cannot obliterate queue with active jobs")
    return code == 1


