"""Several commands in a row, as generators; and what becomes of an error in each of Monque's calls.

Source: specs/monque.md#sec-5
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

import msgspec

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import BullMQError, TransportError, UsageError
from monque_protocol import commands
from monque_protocol.commands import Command, ListFilter, Operation, Selector
from monque_protocol.cursor import Anchor, Sort, check_direction, decode_cursor, encode_cursor
from monque_protocol.document import Job, JobStatus, retried
from monque_protocol.errors import (
    MAX_TIME_EXPIRED,
    AggregationTimeoutError,
    CommandRefused,
    JobStateError,
    MonqueConnectionError,
)
from monque_protocol.options import Settings

T = TypeVar("T")

_OBJECT_ID: Final = re.compile("[0-9a-f]{24}", re.IGNORECASE)

INITIALIZE: Final = "initialize Monque"
ENQUEUE: Final = "enqueue job"
SCHEDULE: Final = "schedule job"
STATS: Final = "get queue stats"
SUMMARIES: Final = "get queue view summaries"


def wrapped(what: str, error: BullMQError) -> BullMQError:
    """Return what a caller gets for an error of the commands of a call, such as `enqueue job`.

    Source: specs/monque.md#sec-11
    """
    if isinstance(error, CommandRefused):
        if what in (STATS, SUMMARIES) and error.number == MAX_TIME_EXPIRED:
            return AggregationTimeoutError()
        return MonqueConnectionError(f"Failed to {what}: {error}", number=error.number)
    if isinstance(error, TransportError):
        return MonqueConnectionError(f"Failed to {what}: {error.reason}", maybe_applied=error.maybe_applied)
    return error


def check_id(key: object) -> bool:
    """Tell whether a text can be the id of a job: 24 hexadecimal digits. Raises `UsageError` for what is no text."""
    if not isinstance(key, str):
        raise UsageError("job_id", key, "must be text")
    return _OBJECT_ID.fullmatch(key) is not None


def initialize(settings: Settings, clock: Callable[[], Millis]) -> Operation[int]:
    """Make the indexes, recover stale jobs, and refuse to share the owner's name; return how many were recovered.

    Steps:   up to three commands
    Atomic:  no; each of them may be repeated
    Source:  specs/monque.md#sec-5-1
    """
    collection = settings.collection
    recovered = 0
    if settings.makes_indexes:
        yield from commands.create_indexes(collection, retention=settings.retains)
    if settings.recovers:
        recovered = yield from commands.recover_stale(collection, now=clock(), lock_ms=settings.lock_ms)
    other = yield from commands.find_collision(
        collection, me=settings.me, now=clock(), heartbeat_ms=settings.heartbeat_ms
    )
    if other is not None:
        raise MonqueConnectionError(
            f'Failed to initialize Monque: Another active Monque instance is using schedulerInstanceId "{settings.me}".'
            f' Found processing job "{other.name}" with recent heartbeat. Use a unique schedulerInstanceId or wait for '
            "the other instance to stop."
        )
    return recovered


class Changed(msgspec.Struct, frozen=True):
    """A job after a call, and its state before it where the call changed it, else None."""

    job: Job[Any]
    previous_status: str | None


def cancel(collection: str, key: Any, *, now: Millis) -> Operation[Changed | None]:
    """Cancel a pending job; None: there is no such job. One that is cancelled already stays as it is.

    Raises `JobStateError`.

    Source: specs/monque.md#sec-5-12
    """
    job = yield from commands.cancel(collection, key, now=now)
    if job is not None:
        return Changed(job, JobStatus.PENDING)
    found = yield from _found(collection, key, "cancel", stays=JobStatus.CANCELLED)
    return None if found is None else Changed(found, None)


def retry(collection: str, key: Any, *, now: Millis) -> Operation[Changed | None]:
    """Make a failed or cancelled job due now; None: there is no such job.

    Raises `JobStateError`.

    Source: specs/monque.md#sec-5-12
    """
    before = yield from commands.retry(collection, key, now=now)
    if before is not None:
        return Changed(retried(before, now), before.status)
    yield from _found(collection, key, "retry")
    return None


def reschedule(collection: str, key: Any, *, run_at: Millis, now: Millis) -> Operation[Changed | None]:
    """Give a pending job another time; None: there is no such job.

    Raises `JobStateError`.

    Source: specs/monque.md#sec-5-12
    """
    job = yield from commands.reschedule(collection, key, run_at=run_at, now=now)
    if job is not None:
        return Changed(job, JobStatus.PENDING)
    yield from _found(collection, key, "reschedule")
    return None


def _found(
    collection: str, key: Any, action: str, *, stays: str | None = None
) -> Generator[Command[Any], Any, Job[Any] | None]:
    job = yield from commands.get_job(collection, key)
    if job is None or job.status == stays:
        return job
    raise JobStateError(job.id, job.status, action)


def retry_many(collection: str, selector: Selector, *, now: Millis) -> Operation[tuple[int, list[Job[Any]]]]:
    """Make failed and cancelled jobs due within 30 seconds; return how many, and name and time of each.

    Steps:   two commands; the second one only reads
    Source:  specs/monque.md#sec-5-13
    """
    command = commands.retry_many(collection, selector, now=now)
    if command is None:
        return 0, []
    count = yield from command
    if not count:
        return 0, []
    return count, (yield from commands.find_retried(collection, selector, now=now))


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs in the order that was asked for. `cursor` is the token of its end, None of an empty page."""

    jobs: list[Job[Any]]
    cursor: str | None
    has_next_page: bool
    has_previous_page: bool


def get_page(
    collection: str,
    filter: ListFilter,
    sort: Sort,
    *,
    cursor: str | None,
    direction: str,
    limit: int,
    key_of: Callable[[str], Any],
) -> Operation[Page]:
    """Read a page; `key_of` makes an `_id` of 24 hexadecimal digits.

    Raises `InvalidCursorError`.

    Source: specs/monque.md#sec-5-15
    """
    forward = check_direction(direction) == "forward"
    anchor: tuple[Any, Anchor] | None = None
    if cursor is not None:
        place = decode_cursor(cursor, sort)
        anchor = key_of(place.id), place
    jobs = yield from commands.get_page(collection, filter, sort, direction=direction, anchor=anchor, limit=limit)
    more = len(jobs) > limit
    jobs = jobs[:limit]
    if not forward:
        jobs.reverse()
    return Page(
        jobs=jobs,
        cursor=encode_cursor(jobs[-1], sort, direction) if jobs else None,
        has_next_page=more if forward else cursor is not None,
        has_previous_page=cursor is not None if forward else more,
    )
