"""Read and administer a whole queue."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bullmq_protocol._lua import GET_COUNTS, GET_RATE_LIMIT_TTL, IS_MAXED, OBLITERATE, PAUSE
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.errors import BullMQError, UnexpectedReply, UsageError
from bullmq_protocol.keys import QueueKeys
from bullmq_protocol.reply import Reply, as_bool, as_int, as_ints, as_list, as_none, as_optional_text, as_text

DEFAULT_STATES = (
    "active",
    "completed",
    "delayed",
    "failed",
    "paused",
    "prioritized",
    "waiting",
    "waiting-children",
)


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


class NamedCounts(msgspec.Struct, frozen=True):
    """Decode getCounts into a map from the caller's names."""

    states: tuple[str, ...]

    def __call__(self, reply: Reply) -> dict[str, int]:
        counts = as_list(reply)
        if len(counts) != len(self.states):
            raise UnexpectedReply(f"{len(self.states)} counts", reply)
        return {state: 0 if count is None else as_int(count) for state, count in zip(self.states, counts, strict=True)}


def get_job_counts(keys: QueueKeys, states: Sequence[str] = ()) -> Command[dict[str, int]]:
    """Count the jobs per state, by the names that BullMQ's users know; without names: all states.

    `waiting` brings `paused` with it. An unknown name is refused.

    Keys:    base prefix
    Args:    state names as in the keys
    Reply:   one integer per state -> map from name to integer, in the order of the names
    Raises:  UsageError, UnexpectedReply
    Repeat:  safe
    Cost:    O(states)
    Source:  specs/03-transitions-admin-getters.md#sec-11-2
    """
    named = tuple(states) or DEFAULT_STATES
    for state in named:
        if state not in (*DEFAULT_STATES, "wait"):
            raise UsageError("state", state, f"must be one of {', '.join((*DEFAULT_STATES, 'wait'))}")
    if "waiting" in named:
        named = (*named, "paused")
    named = tuple(dict.fromkeys(named))
    return Command(
        "getCounts",
        (keys.base,),
        tuple("wait" if state == "waiting" else state for state in named),
        NamedCounts(named),
        script=GET_COUNTS,
        repeat=Repeat.SAFE,
    )


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
    return Command(
        "obliterate", (keys.meta, keys.base), (count, "force" if force else ""), _obliterated, script=OBLITERATE
    )


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


class WorkersOf(msgspec.Struct, frozen=True):
    """Decode CLIENT LIST into the connections of one queue's workers."""

    queue: str
    client_name: str

    def __call__(self, reply: Reply) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for line in as_text(reply).splitlines():
            row: dict[str, str] = {}
            for piece in line.split(" "):
                key, equals, value = piece.partition("=")
                if equals:
                    row[key] = value
            name = row.get("name", "")
            if name == self.client_name or name.startswith(f"{self.client_name}:w:"):
                found.append({**row, "name": self.queue, "rawname": name})
        return found


def get_workers(keys: QueueKeys) -> Command[list[dict[str, str]]]:
    """List the connections by which this queue's workers wait: attributes of CLIENT LIST, the queue's name as `name`.

    Reply:   the text of CLIENT LIST -> one map per worker; `rawname` is the connection's own name
    Repeat:  safe
    Cost:    O(connections of the server)
    Source:  specs/03-transitions-admin-getters.md#sec-14
    """
    return Command("CLIENT LIST", (), (), WorkersOf(keys.name, keys.client_name()), repeat=Repeat.SAFE)


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
