"""Adds the jobs of an outbox: entries that a program has stored with its own data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bullmq_protocol.common.codec import listed
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.model.outbox import OutboxEntry, keys_of
from bullmq_protocol.operations.add_jobs import add_each, add_many
from bullmq_protocol.operations.relay_entries import relay_entries as operation
from bullmq_protocol.scripts.profile import DEFAULT, Profile, check_profile
from bullmq_sync.drive import Connection, run, transport_of
from bullmq_sync.job import Job


def relay_entries(
    entries: Sequence[OutboxEntry],
    connection: Connection = None,
    *,
    limits: Limits = DEFAULT_LIMITS,
    scripts: Profile = DEFAULT,
) -> list[Job[Any] | BullMQError]:
    """Add the jobs of outbox entries, in their order within each queue.

    Relaying an entry again is harmless while its job exists: the job stays as it is. An entry that the server or this
    library refuses does not affect the others.

    Args:
        entries: The values that `Queue.entry` returned, for any queues of this server.
        connection: A URL, options, a client, or a transport, which remains yours to close: make one with `connect` to
            relay more than once. None, the default: the server that `BULLMQ_URL` names, else 127.0.0.1:6379.
        limits: Limits on written data; by default 10 MiB for a payload, and 255 characters for a name.
        scripts: The profile of the queues. `DEFAULT` of `bullmq_protocol.scripts.profile` by default.

    Returns:
        For each entry, the job, whose `added` is False if it existed already, or the error with which it was refused.

    Raises:
        TransportError: The connection failed. Some jobs may have been added: relay all of them again.

    Source: specs/08-batches.md#outbox

    Examples:
        >>> entry = queue.entry("welcome", {"to": "ada"})
        >>> transport = connect("redis://localhost:6379")
        >>> [[job.added for job in relay_entries([entry], transport)] for _ in range(2)]
        [[True], [False]]
        >>> transport.close()
    """
    entries = listed("entries", entries)
    if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("limits", limits, "must be a Limits")
    switches = check_profile(scripts).switches
    transport, owned = transport_of(connection, scripts)
    try:
        add = add_many if scripts.batches else add_each
        found = run(operation(entries, add, switches=switches, limits=limits), transport)
    finally:
        if owned:
            transport.close()
    known: dict[tuple[str, str], QueueKeys] = {}
    jobs: list[Job[Any] | BullMQError] = []
    for entry, each in zip(entries, found, strict=True):
        if isinstance(each, BullMQError):
            jobs.append(each)
            continue
        queue = (entry.prefix, entry.queue)
        if queue not in known:
            known[queue] = keys_of(entry, switches)
        jobs.append(Job(each, known[queue], transport, limits=limits))
    return jobs
