"""Destroy a whole queue."""

from __future__ import annotations

from bullmq_protocol.command import Operation
from bullmq_protocol.commands.queues import obliterate_page, pause
from bullmq_protocol.errors import UsageError
from bullmq_protocol.keys import QueueKeys


def obliterate(keys: QueueKeys, *, force: bool = False, count: int = 1000) -> Operation[None]:
    """Pause the queue, then destroy it in pages of `count` jobs until nothing is left.

    Steps:   one round trip for the pause, one per page
    Atomic:  each page; a cut leaves a paused queue with the rest
    Raises:  UsageError, QueueHasActiveJobs (without `force`; the queue stays paused and is otherwise untouched)
    Source:  specs/03-transitions-admin-getters.md#sec-13-2
    """
    if type(count) is not int or count < 1:
        raise UsageError("count", count, "must be a whole number above 0")
    yield from pause(keys)
    while (yield from obliterate_page(keys, count=count, force=force)):
        pass
