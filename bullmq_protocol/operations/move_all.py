"""Move all failed, completed or delayed jobs to wait, in pages."""

from __future__ import annotations

from typing import Literal

import msgspec

from bullmq_protocol.command import Operation
from bullmq_protocol.commands.moving import move_jobs_to_wait
from bullmq_protocol.commands.queues import count_until
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Millis
from bullmq_protocol.operations.paging import Page


class MoveAll(msgspec.Struct, frozen=True, kw_only=True):
    """Move the jobs of `state` to wait, `count` at a time; of finished ones those that finished at `until` or before.

    A page is the number of jobs that are still to be moved.

    Raises `UsageError`.

    Source: specs/03-transitions-admin-getters.md#sec-13-3
    """

    state: Literal["failed", "completed", "delayed"]
    count: int = 1000
    until: Millis | None = None

    def page(self, keys: QueueKeys) -> Operation[Page[int]]:
        more = yield from move_jobs_to_wait(keys, state=self.state, count=self.count, until=self.until)
        if not more:
            return Page(0, None)
        left = yield from count_until(keys, self.state, self.until)
        return Page(left, self)
