"""Read jobs by their place in the states of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from bullmq_protocol.command import Batch, Operation
from bullmq_protocol.commands.getters import get_jobs_at, get_ranges
from bullmq_protocol.commands.jobs import get_job
from bullmq_protocol.commands.queues import expand_states
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.operations.paging import Page

IDS_AT_ONCE = 10_000
JOBS_AT_ONCE = 100
"""How many jobs are read in one round trip; it bounds the server's output buffer."""


class JobPages(msgspec.Struct, frozen=True, kw_only=True):
    """Read all jobs in these states, one state after the other; without states in all of them. A page is up to
    `page_size` jobs.

    Jobs that move meanwhile may appear twice or be missed.

    Raises `UsageError`.

    Source: specs/03-transitions-admin-getters.md#sec-11-3
    """

    states: tuple[str, ...] = ()
    page_size: int = JOBS_AT_ONCE
    ascending: bool = False
    start: int = 0

    def page(self, keys: QueueKeys) -> Operation[Page[list[JobRecord]]]:
        check_whole("page_size", self.page_size, least=1)
        states = expand_states(keys, self.states)
        end = self.start + self.page_size - 1
        ids = yield from get_ranges(keys, states[:1], start=self.start, end=end, ascending=self.ascending)
        jobs = yield from read_jobs(keys, ids)
        if len(ids) == self.page_size:
            return Page(jobs, replace(self, states=states, start=self.start + self.page_size))
        return Page(jobs, replace(self, states=states[1:], start=0) if states[1:] else None)


def get_jobs(
    keys: QueueKeys, states: Sequence[str] = (), *, start: int = 0, end: int = -1, ascending: bool = False
) -> Operation[list[JobRecord]]:
    """Read jobs by their place in each of the states; both ends of the range are included.

    Jobs whose hash is gone are left out; with a profile of later versions up to 100 places are filled with jobs from
    later places, in one call.

    Steps:   one round trip for the ids (one per 10,000 ids and state where there are more), one per 100 jobs
    Atomic:  no
    Raises:  UsageError
    Source:  specs/03-transitions-admin-getters.md#sec-11-3
    """
    check_whole("start", start)
    check_whole("end", end)
    named = expand_states(keys, states)
    if keys.switches.text_ids and 0 <= start <= end < start + JOBS_AT_ONCE:
        return (yield from get_jobs_at(keys, named, start=start, end=end, ascending=ascending))
    ids = yield from _ids(keys, named, start, end, ascending)
    return (yield from read_jobs(keys, ids))


def read_jobs(keys: QueueKeys, job_ids: Sequence[str]) -> Operation[list[JobRecord]]:
    """Read the jobs with these ids, in their order, without those that are gone.

    Steps:   one round trip per 100 jobs
    Source:  specs/03-transitions-admin-getters.md#sec-11-3
    """
    found: list[JobRecord] = []
    for first in range(0, len(job_ids), JOBS_AT_ONCE):
        batch = Batch(tuple(get_job(keys, job_id) for job_id in job_ids[first : first + JOBS_AT_ONCE]))
        for record in (yield from batch):
            if isinstance(record, BullMQError):
                raise record
            if record is not None:
                found.append(cast("JobRecord", record))
    return found


def _ids(keys: QueueKeys, states: tuple[str, ...], start: int, end: int, ascending: bool) -> Operation[list[str]]:
    counted_from_start = start >= 0 and end >= -1
    size = end - start + 1 if end >= 0 else None
    if not counted_from_start or (size is not None and size <= IDS_AT_ONCE):
        return (yield from get_ranges(keys, states, start=start, end=end, ascending=ascending))
    # Read all states at once; if one of them is longer, read each in parts.
    first = yield from get_ranges(keys, states, start=start, end=start + IDS_AT_ONCE - 1, ascending=ascending)
    if len(first) < IDS_AT_ONCE:
        return first
    found: dict[str, None] = {}
    for state in states:
        at = start
        while size is None or at <= end:
            last = at + IDS_AT_ONCE - 1 if size is None else min(at + IDS_AT_ONCE - 1, end)
            part = yield from get_ranges(keys, (state,), start=at, end=last, ascending=ascending)
            found.update(dict.fromkeys(part))
            at = last + 1
            if len(part) < IDS_AT_ONCE:
                break
    return list(found)
