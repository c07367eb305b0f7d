"""What the stalled check costs the server where much is active: 10,000 jobs, none of them stalled."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from redis import Redis

from bullmq_protocol import NewJob, QueueKeys, WorkerOptions
from bullmq_protocol.commands.locks import move_stalled_jobs_to_wait
from bullmq_sync import Connection, Queue, Worker
from tests.support.servers import Server

pytestmark = [pytest.mark.alone, pytest.mark.any_python]

JOBS = 10_000
CHUNK = 500
RUNS = 5
MOST_MS = 100


def test_stalled_check_over_10000_active_jobs_takes_the_server_under_100_ms(server: Server, name: str) -> None:
    keys = QueueKeys.of(name)
    with Queue[int](name, server.url) as queue, Redis.from_url(server.url) as raw:
        for first in range(0, JOBS, CHUNK):
            queue.add_bulk([NewJob("job", n) for n in range(first, first + CHUNK)])
        worker = Worker[int](name, None, server.url, options=WorkerOptions(lock_duration=3_600_000))
        taken = [worker.get_next_job(block=False) for _ in range(JOBS)]
        assert None not in taken
        spent = []
        with closing(Connection(server.url)) as connection:
            for _ in range(1 + RUNS):
                # Its throttle: at most one check per interval.
                raw.delete(keys.stalled_check)
                before = processor_ms(raw)
                now = int(time.time() * 1000)
                command = move_stalled_jobs_to_wait(keys, max_stalled_count=1, now=now, interval_ms=30_000)
                assert command.decode(connection.perform(command)) == []
                spent.append(processor_ms(raw) - before)
                # All are marked for the next check: that one looks at each lock.
                assert raw.scard(keys.stalled) == JOBS
        assert queue.get_job_counts("active") == {"active": JOBS}
        worker.close(force=True)
        queue.obliterate(force=True)
    # The first has nothing marked to look at.
    assert min(spent[1:]) < MOST_MS, spent


def processor_ms(raw: Redis) -> float:
    """Return the milliseconds of the processor that the server has used: what else runs here takes none of them."""
    stats = raw.info("cpu")
    return (float(stats["used_cpu_user"]) + float(stats["used_cpu_sys"])) * 1000
