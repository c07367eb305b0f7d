"""Read a job's log in pages."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bullmq_protocol.command import Operation
from bullmq_protocol.commands.getters import JobLogs, job_logs, read_job_logs
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.operations.paging import Page


class LogPages(msgspec.Struct, frozen=True, kw_only=True):
    """Read the rows of a job's log, the oldest first or (not `ascending`) the newest. A page is up to `page_size` rows.

    Raises `UsageError`.

    Source: specs/03-transitions-admin-getters.md#sec-10
    """

    job_id: str
    page_size: int = 1000
    ascending: bool = True
    start: int = 0

    def page(self, keys: QueueKeys) -> Operation[Page[list[str]]]:
        check_whole("page_size", self.page_size, least=1)
        end = self.start + self.page_size
        found = yield from get_job_logs(keys, self.job_id, start=self.start, end=end - 1, ascending=self.ascending)
        rest = replace(self, start=end) if found.logs and end < found.count else None
        return Page(found.logs, rest)


def get_job_logs(
    keys: QueueKeys, job_id: str, *, start: int = 0, end: int = -1, ascending: bool = True
) -> Operation[JobLogs]:
    """Read rows of a job's log, and how many there are; not ascending: the range counts from the newest.

    Steps:   one round trip
    Raises:  UsageError
    Source:  specs/03-transitions-admin-getters.md#sec-10
    """
    check_whole("start", start)
    check_whole("end", end)
    return job_logs(
        (yield from read_job_logs(keys, job_id, start=start, end=end, ascending=ascending)), ascending=ascending
    )
