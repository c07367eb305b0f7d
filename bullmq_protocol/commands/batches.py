"""Several jobs in one script call: what the single commands do, one after the other, for less of the server's time.

These scripts are ours, not BullMQ's: a source of scripts without them has `batches` False, and takes single commands.

Source: specs/08-batches.md#sec-1
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bullmq_protocol.command import Command
from bullmq_protocol.commands._merging import MOST_BYTES as MOST_BYTES
from bullmq_protocol.commands._merging import MOST_JOBS as MOST_JOBS
from bullmq_protocol.commands._merging import MOST_OUTCOME_BYTES as MOST_OUTCOME_BYTES
from bullmq_protocol.commands._merging import bounded, merged_adds, merged_finishes
from bullmq_protocol.commands._shared import Fetched, Limiter, as_fetched_at
from bullmq_protocol.common.codec import pack
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.reply import Reply, as_list
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import ServerError, UnexpectedReply
from bullmq_protocol.scripts._lua import FETCH_MANY


def add_many(keys: QueueKeys, adds: Sequence[Command[str]]) -> Command[list[Reply | ServerError]]:
    """Add several jobs in their order; `adds` are `add_job` of this queue, at most `MOST_JOBS`.

    One with children and a deduplication id goes alone.

    Keys:    wait, paused, meta, id, completed, delayed, active, events, marker, prioritized, pc, waiting-children
    Args:    per job: kind, packed head, data JSON, packed options
    Reply:   per job what its single command would have got -> raw replies, for those commands to decode, or errors
    Raises:  UsageError, UnexpectedReply
    Repeat:  unsafe; guarded when every job has an id of its own
    Cost:    O(jobs)
    Source:  specs/08-batches.md#add-many
    """
    return merged_adds(keys.base, adds)


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
    return merged_finishes(keys.base, finishes)


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
        (keys.base, now, pack(options), pack(list(bounded("tokens", tokens)))),
        Answers(now),
        script=FETCH_MANY,
    )


class Answers(msgspec.Struct, frozen=True):
    """One answer of a fetch at `now` per element."""

    now: Millis

    def __call__(self, reply: Reply) -> list[Fetched]:
        answers = as_list(reply)
        if not answers:
            raise UnexpectedReply("at least one answer", reply)
        return [as_fetched_at(each, self.now) for each in answers]
