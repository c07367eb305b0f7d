"""Pause and resume a queue, however many jobs are to be moved for it."""

from __future__ import annotations

from bullmq_protocol.command import Operation
from bullmq_protocol.commands.queues import pause, resume
from bullmq_protocol.common.keys import QueueKeys


def pause_queue(keys: QueueKeys) -> Operation[None]:
    """Pause the whole queue.

    Steps:   one round trip; where both lists are filled, one for 7,000 jobs
    Atomic:  from the first one on the queue is paused
    Source:  specs/06-later-versions.md#sec-8-2
    """
    left = yield from pause(keys)
    while left:
        left = yield from pause(keys, again=True)


def resume_queue(keys: QueueKeys) -> Operation[None]:
    """Let all workers take jobs again.

    Steps:   one round trip; where both lists are filled, one for 7,000 jobs
    Atomic:  from the first one on workers take jobs; where the last is missing, a worker heals the queue
    Source:  specs/06-later-versions.md#sec-8-2
    """
    left = yield from resume(keys)
    while left:
        left = yield from resume(keys, again=True)
