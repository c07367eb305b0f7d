"""Destroy a whole queue, in pages."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from bullmq_protocol.command import Operation
from bullmq_protocol.commands.queues import get_counts, obliterate_page
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import check_whole
from bullmq_protocol.operations.paging import Page
from bullmq_protocol.operations.pausing import pause_queue

_DESTROYED = ("active", "delayed", "completed", "paused", "prioritized", "failed")


class Obliterate(msgspec.Struct, frozen=True, kw_only=True):
    """Pause the queue, then destroy it, `count` jobs at a time. A page is the number of jobs that are left.

    A cut leaves a paused queue with the rest. Raises `UsageError`, and `QueueHasActiveJobs` without `force`; the queue
    stays paused then and is otherwise untouched.

    Source: specs/03-transitions-admin-getters.md#sec-13-2
    """

    force: bool = False
    count: int = 1000
    paused: bool = False

    def page(self, keys: QueueKeys) -> Operation[Page[int]]:
        check_whole("count", self.count, least=1)
        if not self.paused:
            yield from pause_queue(keys)
        more = yield from obliterate_page(keys, count=self.count, force=self.force)
        if not more:
            return Page(0, None)
        left = yield from get_counts(keys, _DESTROYED)
        return Page(sum(left), replace(self, paused=True))
