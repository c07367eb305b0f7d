"""How adds go together in one call, and outcomes: what `Command.merge` of the single commands says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, cast

import msgspec

from bullmq_protocol.command import Arg, Command, Merger, Repeat
from bullmq_protocol.common.codec import pack_known
from bullmq_protocol.common.reply import Reply, as_list
from bullmq_protocol.errors import ServerError, UnexpectedReply, UsageError
from bullmq_protocol.net.merge import as_share
from bullmq_protocol.scripts._lua import ADD_MANY, FINISH_MANY

MOST_JOBS: Final = 50
"""The most jobs of one call. With small payloads, a call of this size occupies the server for about a millisecond.

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
    "waiting-children",
)
_FINISH_KEYS: Final = (
    "wait",
    "active",
    "prioritized",
    "events",
    "stalled",
    "limiter",
    "delayed",
    "paused",
    "meta",
    "pc",
    "completed",
    "failed",
    "metrics:completed",
    "metrics:failed",
    "marker",
)


def _kept(names: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Return a function that gives the keys of these names by their base, and keeps them: a worker makes those of one
    queue thousands of times in a second."""

    @lru_cache(maxsize=64)
    def keys(base: str) -> tuple[str, ...]:
        return tuple([base + name for name in names])

    return keys


_add_keys: Final = _kept(_ADD_KEYS)
_finish_keys: Final = _kept(_FINISH_KEYS)


# The map of a finish without its token.
_OPTIONS_HEAD: Final = bytes((0x80 + 10,))


def merged_adds(base: str, adds: Sequence[Command[Any]]) -> Command[list[Reply | ServerError]]:
    args: list[Arg] = []
    guarded = True
    for add in bounded("adds", adds):
        args += _parts("adds", add, ADDS, "must be a command that adds a job, or lets a parent go")
        args += add.args
        if add.repeat is not Repeat.GUARDED:
            guarded = False
    return Command(
        "addMany",
        _add_keys(base),
        tuple(args),
        Replies(len(adds), len(adds)),
        script=ADD_MANY,
        repeat=Repeat.GUARDED if guarded else Repeat.UNSAFE,
    )


def merged_finishes(base: str, finishes: Sequence[Command[Any]]) -> Command[list[Reply | ServerError]]:
    heads: list[str | int] = []
    outcomes: dict[tuple[Arg, Arg], int] = {}
    known: dict[Arg, int] = {}
    for finish in bounded("finishes", finishes):
        token, rest = _parts("finishes", finish, OUTCOMES, "must be moveToFinished")
        job_id, now, _, value, outcome, fetch, _, _, fields = finish.args
        number = known.setdefault(rest, len(known) + 1)
        which = outcomes.setdefault((value, fields), len(outcomes) + 1)
        heads += (str(job_id), str(token), str(now), int(outcome == "failed"), int(fetch == "1"), number, which)
    return Command(
        "finishMany",
        _finish_keys(base),
        (
            base,
            b"\xdc" + len(known).to_bytes(2) + b"".join([_OPTIONS_HEAD + cast("bytes", rest) for rest in known]),
            pack_known(heads),
            *chain(*outcomes),
        ),
        Replies(1, len(finishes)),
        script=FINISH_MANY,
        repeat=Repeat.GUARDED,
    )


class Replies(msgspec.Struct, frozen=True):
    """One raw reply per job; a job that failed on the server has a list of the error's text."""

    least: int
    most: int

    def __call__(self, reply: Reply) -> list[Reply | ServerError]:
        replies = as_list(reply)
        if not self.least <= len(replies) <= self.most:
            raise UnexpectedReply(f"{self.least} to {self.most} replies", reply)
        return [as_share(each) for each in replies]


ADDS: Final = Merger("adds", ADD_MANY, MOST_JOBS, MOST_BYTES, merged_adds)
"""Adds, and the release of parents after them: their part is the kind."""

OUTCOMES: Final = Merger("outcomes", FINISH_MANY, MOST_JOBS, MOST_OUTCOME_BYTES, merged_finishes)
"""Ends of active jobs: their parts are the token, and the packed options without it."""


def _parts(field: str, command: Command[Any], into: Merger, rule: str) -> tuple[Arg, ...]:
    if command.merge is None or command.merge.into.name != into.name:
        raise UsageError(field, command.name, rule)
    return command.merge.parts


def bounded(field: str, items: Sequence[Any]) -> Sequence[Any]:
    if not 0 < len(items) <= MOST_JOBS:
        raise UsageError(field, len(items), f"must be 1 to {MOST_JOBS}")
    return items
