"""Job schedulers that a Node client made, in the hands of our workers."""

from itertools import pairwise
from typing import Any

import pytest
from redis import Redis

from tests.interop import state
from tests.interop.programs import COLOURS, Program, until, worker
from tests.support.servers import Server

EVERY_MS = 120
LIMIT = 6


@pytest.fixture(scope="module")
def all_node(home: Server, node: Program, raw: "Redis[bytes]") -> state.State:
    return _work_off(home, node, raw, "iq-every-node", ("node", "node"))


@pytest.mark.parametrize("colour", COLOURS)
def test_we_advance_an_every_scheduler_and_node_goes_on(
    colour: str, home: Server, node: Program, raw: "Redis[bytes]", all_node: state.State, queue: str
) -> None:
    found = _work_off(home, node, raw, queue, (colour, "node"))
    assert state.differences(found, all_node, races=("wake",)) == []


def _work_off(home: Server, node: Program, raw: "Redis[bytes]", queue: str, sides: tuple[str, str]) -> state.State:
    """Let one worker take the first runs and another one the rest; check the slots."""
    template = {"name": "tick", "data": {"value": "✓"}, "opts": {"attempts": 2, "keepLogs": 5, "priority": 3}}
    node.call("upsert_scheduler", queue=queue, id="tick", repeat={"every": EVERY_MS, "limit": LIMIT}, template=template)
    done: list[str] = []
    for side in sides:
        with worker(side, home, queue) as working:
            working.wait(lambda _: working.count("completed") >= LIMIT // 2, "half of the runs")
        assert working.of("error") == []
        done += working.ids("completed")
    slots = [int(job_id.removeprefix("repeat:tick:")) for job_id in done]
    assert len(set(slots)) == LIMIT
    assert all(later > earlier and (later - earlier) % EVERY_MS == 0 for earlier, later in pairwise(slots))
    (scheduler,) = node.call("schedulers", queue=queue)
    assert (scheduler["iterationCount"], scheduler["next"]) == (LIMIT, slots[-1])
    return state.read(raw, [queue], also={str(slot): f"<slot {index}>" for index, slot in enumerate(slots)})


@pytest.mark.parametrize("colour", COLOURS)
def test_a_cron_schedulers_job_is_put_back_with_a_clear_error(
    colour: str, home: Server, node: Program, queue: str
) -> None:
    repeat = {"pattern": "* * * * * *"}
    job_id = node.call("upsert_scheduler", queue=queue, id="cron", repeat=repeat, template={"name": "n", "data": {}})
    with worker(colour, home, queue) as ours:
        error: dict[str, Any] = ours.wait(lambda _: ours.of("error"), "the error")[0]
        assert "cron patterns are not supported yet ('* * * * * *')" in error["message"]
        # The error is told as soon as it is known, the job is in delayed a moment later.
        until(lambda: node.call("state", queue=queue, id=job_id), "delayed")
    assert ours.ids("started") == []
    job = node.call("job", queue=queue, id=job_id)
    assert (job["attempts_made"], job["attempts_started"], job["failed_reason"]) == (0, 1, None)
    with worker("node", home, queue) as theirs:
        theirs.wait(lambda _: job_id in theirs.ids("completed"), "Node takes it")
    assert theirs.of("error") == []
