"""Read and administer a whole queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.codec import check_choice, plain
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.later import require_later
from bullmq_protocol.common.reply import Reply, as_bool, as_int, as_ints, as_list, as_none, as_optional_text, as_text
from bullmq_protocol.common.units import Millis, check_whole
from bullmq_protocol.errors import BullMQError, UnexpectedReply, UsageError
from bullmq_protocol.lazy import lazy_pattern
from bullmq_protocol.scripts._lua import GET_COUNTS, GET_RATE_LIMIT_TTL, IS_MAXED, OBLITERATE, PAUSE

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


STATES = (*DEFAULT_STATES, "wait", "repeat")
"""All names that are understood. `wait` is waiting without paused; `repeat` holds the schedulers' ids."""

_LABEL: Final = lazy_pattern("[A-Za-z_][A-Za-z0-9_]*")
_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})

SUMMARY_STATES = ("waiting", "prioritized", "active", "delayed", "completed", "failed")
_SUMMED_STATES: Final = (*SUMMARY_STATES, "paused")


class QueueNotPaused(BullMQError):
    """The queue must be paused before it is destroyed; `Queue.obliterate` pauses it."""


class QueueHasActiveJobs(BullMQError):
    """The queue has active jobs, and `Queue.obliterate` was called without `force`."""


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


def check_states(states: Sequence[str]) -> tuple[str, ...]:
    """Return the names as plain text, or raise `UsageError` for one that is no state.

    Source: specs/03-transitions-admin-getters.md#sec-11-1
    """
    named = (states,) if isinstance(states, str) else states
    return tuple(check_choice("state", state, STATES) for state in named)


def expand_states(keys: QueueKeys, states: Sequence[str]) -> tuple[str, ...]:
    """Return the states meant by a caller's names: without names all, `waiting` brings `paused` with it, none twice.

    Where jobs may wait in both lists, so does `wait` (specs/06-later-versions.md#sec-8-2). Raises `UsageError`.

    Source: specs/03-transitions-admin-getters.md#sec-11-1
    """
    named = check_states(states) or DEFAULT_STATES
    both = "waiting" in named or (keys.switches.merging_pause and "wait" in named)
    return tuple(dict.fromkeys((*named, "paused") if both else named))


def get_job_counts(
    keys: QueueKeys, states: Sequence[str] = (), *, due_before: Millis | None = None
) -> Command[dict[str, int]]:
    """Count the jobs per state, by the names that BullMQ's users know; without names: all states.

    `waiting` brings `paused` with it. An unknown name is refused. `due_before`: of delayed jobs count those that are
    due before this moment (specs/06-later-versions.md#sec-11-17).

    Keys:    base prefix
    Args:    the moment (ms) if there is one, state names as in the keys
    Reply:   one integer per state -> map from name to integer, in the order of the names
    Raises:  UsageError, UnexpectedReply
    Repeat:  safe
    Cost:    O(states)
    Source:  specs/03-transitions-admin-getters.md#sec-11-2
    """
    named = expand_states(keys, states)
    cut_off: tuple[Millis, ...] = ()
    if due_before is not None:
        cut_off = (check_whole("due_before", due_before, least=0),)
        require_later(keys.switches.counts_cut_off, "due_before", due_before)
    return Command(
        "getCounts",
        (keys.base,),
        (*cut_off, *("wait" if state == "waiting" else state for state in named)),
        NamedCounts(named),
        script=GET_COUNTS,
        repeat=Repeat.SAFE,
    )


class QueueSummary(msgspec.Struct, frozen=True):
    """The five figures of a queue. `waiting` counts all that is ready to run: paused and prioritized jobs too."""

    waiting: int
    active: int
    delayed: int
    completed: int
    failed: int


def get_summary(keys: QueueKeys) -> Command[QueueSummary]:
    """Return the five figures of a queue.

    Keys:    base prefix
    Args:    state names as in the keys
    Reply:   one integer per state -> QueueSummary
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/03-transitions-admin-getters.md#get-counts
    """
    counts = get_job_counts(keys, SUMMARY_STATES)
    return Command(counts.name, counts.keys, counts.args, _as_summary, script=counts.script, repeat=Repeat.SAFE)


def count_until(keys: QueueKeys, state: str, until: Millis | None) -> Command[int]:
    """Count the jobs of one of the sorted sets up to a score; None: all. Of finished jobs the score is when they did.

    Keys:    the state's set
    Reply:   number of jobs -> int
    Repeat:  safe
    Cost:    O(log n)
    Source:  specs/03-transitions-admin-getters.md#move-jobs-to-wait
    """
    highest = "+inf" if until is None else until
    return Command("ZCOUNT", (f"{keys.base}{state}",), (0, highest), as_int, repeat=Repeat.SAFE)


def pause(keys: QueueKeys, *, again: bool = False) -> Command[int | None]:
    """Pause the whole queue. `again`: go on with what a call before left, without a second event.

    Keys:    wait, paused, meta, prioritized, events, delayed, marker
    Args:    paused; with the profiles of later versions 1, or 0 for no event
    Reply:   nil, or how many jobs are left for another call -> None or int
    Repeat:  unsafe: a second run writes a second event
    Cost:    O(1); O(7000) where both lists are filled
    Source:  specs/03-transitions-admin-getters.md#pause, specs/06-later-versions.md#sec-8-2
    """
    names = (keys.wait, keys.paused, keys.meta, keys.prioritized, keys.events, keys.delayed, keys.marker)
    return Command("pause", names, ("paused", *_emit(keys, again)), _left(keys), script=PAUSE)


def resume(keys: QueueKeys, *, again: bool = False) -> Command[int | None]:
    """Resume a paused queue. `again`: go on with what a call before left, without a second event.

    Keys:    paused, wait, meta, prioritized, events, delayed, marker
    Args:    resumed; with the profiles of later versions 1, or 0 for no event
    Reply:   nil, or how many jobs are left for another call -> None or int
    Repeat:  unsafe: a second run writes a second event
    Cost:    O(1); O(7000) where both lists are filled
    Source:  specs/03-transitions-admin-getters.md#pause, specs/06-later-versions.md#sec-8-2
    """
    return Command("pause", _keys_of_resume(keys), ("resumed", *_emit(keys, again)), _left(keys), script=PAUSE)


def heal(keys: QueueKeys) -> Command[int]:
    """Put what stands in `paused` of a queue that is not paused in line again; for profiles whose pause merges.

    Keys:    paused, wait, meta, prioritized, events, delayed, marker
    Args:    healed, 0
    Reply:   how many jobs are left for another call -> int
    Repeat:  safe
    Cost:    O(1); O(7000) where both lists are filled
    Source:  specs/06-later-versions.md#sec-8-2
    """
    return Command("pause", _keys_of_resume(keys), ("healed", "0"), as_int, script=PAUSE, repeat=Repeat.SAFE)


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


class ClientsOf(msgspec.Struct, frozen=True):
    """Decode CLIENT LIST into the connections of one queue that have this name, or with `named` one that adds to it."""

    queue: str
    client_name: str
    named: bool

    def __call__(self, reply: Reply) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for line in as_text(reply).splitlines():
            row: dict[str, str] = {}
            for piece in line.split(" "):
                key, equals, value = piece.partition("=")
                if equals:
                    row[key] = value
            name = row.get("name", "")
            if name == self.client_name or (self.named and name.startswith(f"{self.client_name}:w:")):
                found.append({**row, "name": self.queue, "rawname": name})
        return found


def get_workers(keys: QueueKeys) -> Command[list[dict[str, str]]]:
    """List the connections by which this queue's workers wait: attributes of CLIENT LIST, the queue's name as `name`.

    Reply:   the text of CLIENT LIST -> one map per worker; `rawname` is the connection's own name
    Repeat:  safe
    Cost:    O(connections of the server)
    Source:  specs/03-transitions-admin-getters.md#sec-14
    """
    return Command("CLIENT LIST", (), (), ClientsOf(keys.name, keys.client_name(), True), repeat=Repeat.SAFE)


def get_queue_events(keys: QueueKeys) -> Command[list[dict[str, str]]]:
    """List the connections by which programs listen to this queue's events, as `get_workers` does.

    Reply:   the text of CLIENT LIST -> one map per listener; `rawname` is the connection's own name
    Repeat:  safe
    Cost:    O(connections of the server)
    Source:  specs/03-transitions-admin-getters.md#sec-14
    """
    return Command("CLIENT LIST", (), (), ClientsOf(keys.name, f"{keys.client_name()}:qe", False), repeat=Repeat.SAFE)


def prometheus_text(queue: str, counts: Mapping[str, int], labels: Mapping[str, str] = _NO_LABELS) -> str:
    """Return the counts of a queue in the text form of Prometheus, without a line end at its end.

    Raises `UsageError` for a label's name that Prometheus does not know.

    Source: specs/03-transitions-admin-getters.md#sec-15
    """
    extra = ""
    for name, value in plain(labels).items():
        if not _LABEL.fullmatch(str(name)) or name in ("queue", "state"):
            raise UsageError("label", name, "must be letters, digits and _, no digit first, and not queue or state")
        extra += f', {name}="{_escaped(value)}"'
    lines = ["# HELP bullmq_job_count Number of jobs in the queue by state", "# TYPE bullmq_job_count gauge"]
    lines += [
        f'bullmq_job_count{{queue="{_escaped(queue)}", state="{state}"{extra}}} {count}'
        for state, count in counts.items()
    ]
    return "\n".join(lines)


def ping() -> Command[None]:
    """Ask the server whether it answers.

    Repeat:  safe
    """
    return Command("PING", (), (), as_none, repeat=Repeat.SAFE)


def _as_summary(reply: Reply) -> QueueSummary:
    counts = NamedCounts(_SUMMED_STATES)(reply)
    return QueueSummary(
        waiting=counts["waiting"] + counts["paused"] + counts["prioritized"],
        active=counts["active"],
        delayed=counts["delayed"],
        completed=counts["completed"],
        failed=counts["failed"],
    )


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _keys_of_resume(keys: QueueKeys) -> tuple[str, ...]:
    return keys.paused, keys.wait, keys.meta, keys.prioritized, keys.events, keys.delayed, keys.marker


def _emit(keys: QueueKeys, again: bool) -> tuple[str, ...]:
    """The flag whether to write the event, which scripts of 5.x do not look at."""
    return ("0" if again else "1",) if _counts_the_rest(keys) else ()


def _left(keys: QueueKeys) -> Callable[[Reply], int | None]:
    return as_int if _counts_the_rest(keys) else as_none


def _counts_the_rest(keys: QueueKeys) -> bool:
    return keys.switches.merging_pause or keys.switches.waiting_layout == "v6"


def _obliterated(reply: Reply) -> bool:
    code = as_int(reply)
    if code == -1:
        raise QueueNotPaused("Cannot obliterate non-paused queue")
    if code == -2:
        raise QueueHasActiveJobs("Cannot obliterate queue with active jobs")
    return code == 1
