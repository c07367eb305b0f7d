"""Several jobs in one script call: what the single commands do, one after the other, for less of the server's time.

These scripts are ours, not BullMQ's: a source of scripts without them has `batches` False, and takes single commands.

Source: specs/08-batches.md#sec-1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, Final

import msgspec

from bullmq_protocol._lua import (
    ADD_DELAYED_JOB,
    ADD_MANY,
    ADD_PRIORITIZED_JOB,
    ADD_STANDARD_JOB,
    FETCH_MANY,
    FINISH_MANY,
)
from bullmq_protocol.codec import pack, pack_known
from bullmq_protocol.command import Arg, Command, Repeat
from bullmq_protocol.commands._shared import Fetched, Finish, Limiter, as_fetched_at
from bullmq_protocol.errors import ServerError, UnexpectedReply, UsageError
from bullmq_protocol.keys import QueueKeys
from bullmq_protocol.reply import Reply, as_list, as_text
from bullmq_protocol.units import Millis

MOST_JOBS: Final = 50
"""The most jobs of one call. With small payloads a call of so many holds the server for about a millisecond.

Source: specs/08-batches.md#bounds
"""

MOST_BYTES: Final = 1_000_000
"""The most bytes of payload that adds put into one call, if it is not a single job.

Source: specs/08-batches.md#bounds
"""

MOST_OUTCOME_BYTES: Final = 200_000
"""The most bytes of results and failures that go into one call, if it is not a single outcome.

Source: specs/08-batches.md#bounds
"""

_KINDS: Final = MappingProxyType({"addStandardJob": "0", "addDelayedJob": "1", "addPrioritizedJob": "2"})
ADDING_SHA1: Final = ADD_MANY.sha1
"""Name of the script of `add_many` on a server."""

_ADD_KEYS: Final = (
    "wait",
    "paused",
    "meta",
    "id",
    "completed",
    "delayed",
    "active",
    "events",
    "marker",
    "prioritized",
    "pc",
)
_SCRIPTS: Final = MappingProxyType(
    {script.name: script for script in (ADD_STANDARD_JOB, ADD_DELAYED_JOB, ADD_PRIORITIZED_JOB)}
)
# The map of a finish without its token.
_OPTIONS_HEAD: Final = bytes((0x80 + 10,))


def can_merge(command: Command[Any]) -> bool:
    """Tell whether `add_many` takes this command: one that adds a job without children, with our script."""
    return command.script is not None and command.script is _SCRIPTS.get(command.name)


def parts(adds: Sequence[Command[str]]) -> Iterator[Sequence[Command[str]]]:
    """Cut adds of one queue, in their order, into what goes into one call each: several that `can_merge`, or one.

    Source: specs/08-batches.md#bounds
    """
    sizes = [len(str(add.args[1])) if can_merge(add) else MOST_BYTES for add in adds]
    if len(sizes) <= MOST_JOBS and sum(sizes) <= MOST_BYTES:
        if adds:
            yield adds
        return
    begin = size = 0
    for at, own in enumerate(sizes):
        if at > begin and (size + own > MOST_BYTES or at - begin == MOST_JOBS):
            yield adds[begin:at]
            begin, size = at, 0
        size += own
    yield adds[begin:]


def add_many(keys: QueueKeys, adds: Sequence[Command[str]]) -> Command[list[Reply | ServerError]]:
    """Add several jobs in their order; `adds` are single commands of this queue that `can_merge`, at most `MOST_JOBS`.

    Keys:    wait, paused, meta, id, completed, delayed, active, events, marker, prioritized, pc
    Args:    per job: kind, packed head, data JSON, packed options
    Reply:   per job what its single command would have got -> raw replies, for those commands to decode, or errors
    Raises:  UsageError, UnexpectedReply
    Repeat:  unsafe; guarded when every job has an id of its own
    Cost:    O(jobs)
    Source:  specs/08-batches.md#add-many
    """
    return merge_adds(keys.base, adds)


def queue_of(add: Command[Any]) -> str:
    """Return the base prefix of the queue that an add command which `can_merge` is for."""
    meta = add.keys[2 if add.name == "addStandardJob" else 1]
    return meta[: -len("meta")]


def merge_adds(base: str, adds: Sequence[Command[str]]) -> Command[list[Reply | ServerError]]:
    """Do the same as `add_many`, given the base prefix.

    Source:  specs/08-batches.md#add-many
    """
    args: list[Arg] = []
    guarded = True
    for add in _bounded("adds", adds):
        kind = _KINDS.get(add.name)
        if kind is None:
            raise UsageError("adds", add.name, "must be addStandardJob, addDelayedJob or addPrioritizedJob")
        args.append(kind)
        args += add.args
        if add.repeat is not Repeat.GUARDED:
            guarded = False
    return Command(
        "addMany",
        tuple([base + name for name in _ADD_KEYS]),
        tuple(args),
        Replies(len(adds), len(adds)),
        script=ADD_MANY,
        repeat=Repeat.GUARDED if guarded else Repeat.UNSAFE,
    )


def fitting(finishes: Iterable[Command[Fetched]]) -> int:
    """Return how many of the first of these outcomes go into one call: at least one, if there is one.

    Source: specs/08-batches.md#bounds
    """
    count = size = 0
    for finish in islice(finishes, MOST_JOBS):
        value, fields = finish.args[3], finish.args[8]
        size += len(str(value)) + (len(fields) if isinstance(fields, bytes) else 0)
        if size > MOST_OUTCOME_BYTES and count:
            break
        count += 1
    return count


def finish_many(keys: QueueKeys, finishes: Sequence[Command[Fetched]]) -> Command[list[Reply | ServerError]]:
    """End several active jobs in their order; `finishes` are `move_to_finished` of this queue, as many as are fitting.

    The server stops early when the jobs it fetched are large, or retention removed many: the list is then shorter, and
    the rest is untouched, to be sent again.

    Keys:    wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc, completed, failed, metrics
             of both, marker
    Args:    base prefix, packed options, packed heads (per job: id, token, now, failed, fetch, numbers of its options
             and its outcome), per outcome: result, packed fields or empty
    Reply:   per job what its single command would have got, or a short answer -> raw replies, for those commands to
             decode, or errors
    Raises:  UsageError, UnexpectedReply
    Repeat:  guarded by the tokens
    Cost:    that of the single commands
    Source:  specs/08-batches.md#finish-many
    """
    heads: list[str | int] = []
    outcomes: dict[tuple[Arg, Arg], int] = {}
    known: dict[bytes, int] = {}
    for finish in _bounded("finishes", finishes):
        if not isinstance(finish, Finish):
            raise UsageError("finishes", finish.name, "must be moveToFinished")
        job_id, now, _, value, outcome, fetch, _, _, fields = finish.args
        number = known.setdefault(finish.rest, len(known) + 1)
        which = outcomes.setdefault((value, fields), len(outcomes) + 1)
        heads += (str(job_id), finish.token, str(now), int(outcome == "failed"), int(fetch == "1"), number, which)
    return Command(
        "finishMany",
        (
            *keys.of_fetch,
            keys.completed,
            keys.failed,
            keys.metrics_completed,
            keys.metrics_failed,
            keys.marker,
        ),
        (
            keys.base,
            b"\xdc" + len(known).to_bytes(2) + b"".join([_OPTIONS_HEAD + rest for rest in known]),
            pack_known(heads),
            *chain(*outcomes),
        ),
        Replies(1, len(finishes)),
        script=FINISH_MANY,
        repeat=Repeat.GUARDED,
    )


def fetch_many(
    keys: QueueKeys,
    *,
    tokens: Sequence[str],
    lock_ms: Millis,
    now: Millis,
    limiter: Limiter | None = None,
    worker_name: str | None = None,
) -> Command[list[Fetched]]:
    """Take several jobs, each locked with the token of its place; at most `MOST_JOBS`.

    The answers end with the first that has no job, and may end earlier when the jobs are large.

    Keys:    wait, active, prioritized, events, stalled, limiter, delayed, paused, meta, pc, marker
    Args:    base prefix, now (ms), packed options, packed tokens
    Reply:   per token what moveToActive would have answered, or a short answer -> list of Fetched, at least one
    Raises:  UsageError, UnexpectedReply
    Repeat:  unsafe: a lost reply leaves locked jobs in `active` until the stalled check finds them
    Cost:    that of the single commands
    Source:  specs/08-batches.md#fetch-many
    """
    options = {
        "lockDuration": lock_ms,
        "limiter": None if limiter is None else limiter.packed(),
        "name": worker_name,
    }
    return Command(
        "fetchMany",
        (
            *keys.of_fetch,
            keys.marker,
        ),
        (keys.base, now, pack(options), pack(list(_bounded("tokens", tokens)))),
        Answers(now),
        script=FETCH_MANY,
    )


class Replies(msgspec.Struct, frozen=True):
    """One raw reply per job; a job that failed on the server has a list of the error's text."""

    least: int
    most: int

    def __call__(self, reply: Reply) -> list[Reply | ServerError]:
        replies = as_list(reply)
        if not self.least <= len(replies) <= self.most:
            raise UnexpectedReply(f"{self.least} to {self.most} replies", reply)
        return [_one(each) for each in replies]


def as_shares(reply: Reply, count: int) -> list[Reply | ServerError]:
    """Return one raw reply per job of `add_many`; of a reply that is no such list, itself for each to refuse."""
    if isinstance(reply, list) and len(reply) == count:
        return [each if type(each) is bytes else _one(each) for each in reply]
    return [reply] * count


class Answers(msgspec.Struct, frozen=True):
    """One answer of a fetch at `now` per element."""

    now: Millis

    def __call__(self, reply: Reply) -> list[Fetched]:
        answers = as_list(reply)
        if not answers:
            raise UnexpectedReply("at least one answer", reply)
        return [as_fetched_at(each, self.now) for each in answers]


def _one(reply: Reply) -> Reply | ServerError:
    if isinstance(reply, list) and len(reply) == 1:
        return ServerError(as_text(reply[0]))
    return reply


def _bounded(field: str, items: Sequence[Any]) -> Sequence[Any]:
    if not 0 < len(items) <= MOST_JOBS:
        raise UsageError(field, len(items), f"must be 1 to {MOST_JOBS}")
    return items
