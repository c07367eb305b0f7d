"""Add the jobs of an outbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bullmq_protocol.command import Operation
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.model.job import JobRecord, PreparedJob
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.model.outbox import OutboxEntry, checked_entry, keys_of, prepared_entry


def relay_entries(
    entries: Sequence[OutboxEntry],
    add: Callable[[QueueKeys, Sequence[PreparedJob]], Operation[list[JobRecord | BullMQError]]],
    *,
    switches: Switches = STRICT_SWITCHES,
    limits: Limits = DEFAULT_LIMITS,
) -> Operation[list[JobRecord | BullMQError]]:
    """Add the jobs of entries, in their order within each queue; each gets its record, or the error that refused it.

    `add` is `add_many` of `operations.add_jobs`, with BullMQ's own scripts `add_each`. A job that exists already is
    left as it is, and its record has `added` False. An entry that is none, or of a later version, has its `UsageError`
    as its outcome and holds nothing up.

    Steps:   one round trip for each queue
    Atomic:  no: when the connection breaks, some may have been added; to add them all again is harmless
    Source:  specs/08-batches.md#outbox
    """
    outcomes: list[Any] = [None] * len(entries)
    queues: dict[str, tuple[QueueKeys, list[int], list[PreparedJob]]] = {}
    # Most entries are for a few queues: to check a name and to make all its keys costs as much as the rest.
    known: dict[str, QueueKeys] = {}
    for place, entry in enumerate(entries):
        try:
            queue = f"{checked_entry(entry).prefix!r} {entry.queue!r}"
            keys = known.get(queue)
            if keys is None:
                keys = known[queue] = keys_of(entry, switches)
            job = prepared_entry(entry, keys, limits=limits)
        except UsageError as error:
            outcomes[place] = error
            continue
        _, places, jobs = queues.setdefault(keys.base, (keys, [], []))
        places.append(place)
        jobs.append(job)
    for keys, places, jobs in queues.values():
        found = yield from add(keys, jobs)
        for place, outcome in zip(places, found, strict=True):
            outcomes[place] = outcome
    return outcomes
