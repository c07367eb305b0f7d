"""A job that waits in a table of the caller's database, until a relay adds it.

Source: specs/08-batches.md#outbox-entry
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Struct

from bullmq_protocol.common.codec import parse_json
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError, without_login
from bullmq_protocol.model.job import PreparedJob, check_options, prepare_checked
from bullmq_protocol.model.options import DEFAULT_LIMITS, JobOptions, Limits, stored_options_from, within_size

OUTBOX_VERSION: Final = 1
"""The version of the entries that are written, and the highest that is read."""


class OutboxEntry(Struct, frozen=True, kw_only=True):
    """A checked job as a plain value, to be stored with the rows of a transaction and added after it.

    `Queue.entry` makes one. `to_json` and `from_json` are its form in a table; every field may as well have a column of
    its own. The entry's id is the job's: an entry that is relayed twice adds nothing while the job is kept.

    Attributes:
        id: The id of the job.
        prefix: What the keys of its queue begin with.
        queue: The name of its queue, with the hash tag if it has one.
        name: The name of the job.
        data: The payload as JSON.
        options: The options as JSON, as BullMQ stores them; what is null in `extra` is left out of the job.
        timestamp: When the entry was made, in milliseconds since the epoch. Delays count from there.
        version: The form of the entry; 1.

    Examples:
        >>> entry = queue.entry("welcome", {"to": "ada"}, JobOptions(delay=5_000))
        >>> OutboxEntry.from_json(entry.to_json()) == entry
        True
        >>> entry.due - entry.timestamp
        5000
    """

    id: str
    prefix: str
    queue: str
    name: str
    data: str
    options: str
    timestamp: Millis
    version: int = OUTBOX_VERSION

    def __repr__(self) -> str:
        # The payload may be secret.
        return f"OutboxEntry({without_login(self.name)!r} of {self.prefix}:{self.queue}, id={self.id!r})"

    @property
    def due(self) -> Millis:
        """When the job may run, in milliseconds since the epoch."""
        delay: Any = _options_of(self).delay
        return self.timestamp + (0 if delay is UNSET else int(delay))

    def to_json(self) -> str:
        """Return the entry as JSON text."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_json(text: str | bytes) -> OutboxEntry:
        """Return the entry of a JSON text.

        Args:
            text: What `to_json` returned.

        Raises:
            UsageError: It is no entry, or one of a later version.
        """
        if not isinstance(text, (str, bytes)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("entry", text, "must be the JSON of an OutboxEntry")
        try:
            return checked_entry(msgspec.json.decode(text, type=OutboxEntry))
        except (msgspec.DecodeError, UnicodeError) as error:
            raise UsageError("entry", text, f"must be the JSON of an OutboxEntry: {error}") from None


def checked_entry(entry: object) -> OutboxEntry:
    """Return an entry of a version that is known. Raises `UsageError`."""
    if not isinstance(entry, OutboxEntry):
        raise UsageError("entry", entry, "must be an OutboxEntry")
    if entry.version != OUTBOX_VERSION:
        raise UsageError("version", entry.version, f"must be {OUTBOX_VERSION}: the entry is of another release")
    return entry


def entry_of(keys: QueueKeys, job: PreparedJob, *, new_id: str, limits: Limits = DEFAULT_LIMITS) -> OutboxEntry:
    """Make an entry of a job that is ready to be added, with the id `new_id` if it brings none.

    Raises `UsageError` where the relay would.
    """
    entry = OutboxEntry(
        id=job.job_id or new_id,
        prefix=keys.prefix,
        queue=keys.name,
        name=job.name,
        data=job.data_text,
        options=job.shown["opts"].decode(),
        timestamp=job.timestamp,
    )
    # What the relay will do must succeed now.
    prepared_entry(entry, keys, limits=limits)
    return entry


def keys_of(entry: OutboxEntry, switches: Switches = STRICT_SWITCHES) -> QueueKeys:
    """Return the keys of its queue. Raises `UsageError`."""
    return QueueKeys.of(entry.queue, prefix=entry.prefix, switches=switches)


def prepared_entry(entry: OutboxEntry, keys: QueueKeys, *, limits: Limits = DEFAULT_LIMITS) -> PreparedJob:
    """Return the job to add; `keys` are `keys_of` the entry. Raises `UsageError` for an entry that somebody has
    changed."""
    try:
        parse_json(entry.data.encode())
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError("data", entry.data, f"must be JSON: {error}") from None
    within_size("data", entry.data, limits)
    options = msgspec.structs.replace(_options_of(entry), job_id=entry.id, timestamp=entry.timestamp)
    checked = check_options(JobOptions(), options, limits=limits, switches=keys.switches)
    job = prepare_checked(keys, entry.name, UNSET, checked, limits=limits, now_ms=entry.timestamp)
    # As it was written: to read it and write it again would change some numbers.
    return msgspec.structs.replace(job, data_text=entry.data)


def _options_of(entry: OutboxEntry) -> JobOptions:
    try:
        found: Any = parse_json(entry.options.encode())
    except (msgspec.DecodeError, UnicodeError):
        found = None
    if not isinstance(found, dict):
        raise UsageError("options", entry.options, "must be the JSON of an object")
    known = cast("dict[str, Any]", found)
    return stored_options_from({name: each for name, each in known.items() if (name, each) != ("attempts", 0)})
