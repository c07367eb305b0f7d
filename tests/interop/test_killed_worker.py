"""A worker is killed in the middle of a job."""

import time

import pytest
from redis import Redis

from tests.support.programs import ADAPTERS, Program, worker
from tests.support.servers import Server

LOCK_MS = STALLED_MS = 600
SLACK_S = 4
"""What a busy machine may add; below the five seconds after which an idle worker looks on its own."""


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_another_of_ours_finishes_the_job_of_a_killed_worker(
    adapter: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    took = _kill_and_wait(adapter, adapter, home, node, raw, queue)
    assert took <= (LOCK_MS + STALLED_MS) / 1000 + SLACK_S


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_we_finish_the_job_of_a_killed_node_worker(
    adapter: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    took = _kill_and_wait("node", adapter, home, node, raw, queue)
    assert took <= (LOCK_MS + STALLED_MS) / 1000 + SLACK_S


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_node_finishes_the_job_of_our_killed_worker(
    adapter: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    took = _kill_and_wait(adapter, "node", home, node, raw, queue)
    # Node's own timer runs from the end of its last check, not from the moment the common one is due.
    assert took <= (LOCK_MS + 3 * STALLED_MS) / 1000 + SLACK_S


def _kill_and_wait(victim: str, successor: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str) -> float:
    """Kill a worker in its job and return how many seconds later another one has finished it."""
    options = {"lockDuration": LOCK_MS, "stalledInterval": STALLED_MS}
    with worker(victim, home, queue, **options) as dying:
        (job_id,) = node.call("add", queue=queue, jobs=[{"name": "n", "data": {"hangs": 1, "value": "saved"}}])
        dying.wait(lambda _: dying.ids("started") == [job_id], "the job is running")
        with worker(successor, home, queue, **options) as saving:
            dying.kill()
            killed = time.monotonic()
            saving.wait(lambda _: saving.ids("completed") == [job_id], "the job is finished")
            took = time.monotonic() - killed
    assert [(line["id"], line["attempt"], line["starts"]) for line in saving.of("started")] == [(job_id, 1, 2)]
    job = node.call("job", queue=queue, id=job_id)
    assert (job["returnvalue"], job["attempts_made"], job["attempts_started"]) == ("saved", 1, 2)
    events = [fields[b"event"].decode() for _, fields in raw.xrange(f"bull:{queue}:events")]
    events = [event for event in events if event != "drained"]
    assert events == ["added", "waiting", "active", "waiting", "stalled", "active", "completed"]
    return took
