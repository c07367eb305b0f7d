"""Retries with backoff, whichever side takes the next attempt."""

from itertools import pairwise

import pytest

from tests.support.programs import ADAPTERS, Program, all_of, worker
from tests.support.servers import Server

DELAYS_MS = (100, 200, 400)
LATE_MS = 4000
"""How much later than due an attempt may start on a busy machine: less than an idle worker waits."""


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_exponential_backoff_over_both_sides(adapter: str, home: Server, node: Program, queue: str) -> None:
    opts = {"attempts": len(DELAYS_MS) + 1, "backoff": {"type": "exponential", "delay": DELAYS_MS[0]}}
    data = {"fails": len(DELAYS_MS), "work_ms": 10}
    workers = [worker(side, home, queue) for side in ("node", adapter)]
    with all_of(*workers):
        ids = node.call("add_bulk", queue=queue, jobs=[{"name": "n", "data": data, "opts": opts}] * 12)
        for each in workers:
            each.wait(lambda _: sum(one.count("completed") for one in workers) == len(ids), "all jobs are done")
    starts = sorted((line["id"], line["attempt"], line["at"]) for each in workers for line in each.of("started"))
    assert [start[:2] for start in starts] == sorted(
        (job_id, n + 1) for job_id in ids for n in range(len(DELAYS_MS) + 1)
    )
    failed = {(line["id"], line["attempts"]) for each in workers for line in each.of("failed")}
    assert failed == {(job_id, n + 1) for job_id in ids for n in range(len(DELAYS_MS))}
    for (_, attempt, at), (_, next_attempt, next_at) in pairwise(starts):
        if next_attempt == attempt + 1:
            gap = next_at - at - data["work_ms"]
            # The two sides' clocks are one clock, but it is read in whole milliseconds.
            assert DELAYS_MS[attempt - 1] - 2 <= gap <= DELAYS_MS[attempt - 1] + LATE_MS
    assert all(each.count("started") > 0 for each in workers)
