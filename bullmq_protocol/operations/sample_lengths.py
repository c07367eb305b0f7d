"""Sample how long a queue is, for metrics."""

from __future__ import annotations

import msgspec

from bullmq_protocol.command import Operation
from bullmq_protocol.commands.queues import get_job_counts
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.observability.metrics import MetricsCollector


class QueueLengths(msgspec.Struct, frozen=True):
    """Count a queue's jobs per state when asked, and tell a collector: `await queue.run(lengths.sample())`.

    Source: specs/03-transitions-admin-getters.md#sec-11-2
    """

    collector: MetricsCollector
    keys: QueueKeys

    def sample(self) -> Operation[dict[str, int]]:
        """Count now, in one command. Returns the counts by state, as `Queue.get_job_counts`.

        Raises `UnexpectedReply`, and what the collector raises.
        """
        counts = yield from get_job_counts(self.keys)
        for state, length in counts.items():
            self.collector.queue_length(self.keys.name, state, length)
        return counts
