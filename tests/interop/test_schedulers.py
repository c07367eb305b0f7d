"""Job schedulers that a Node client made, in the hands of our workers."""

import json
from itertools import pairwise
from typing import Any

import pytest
from redis import Redis

from tests.interop import state
from tests.interop.programs import COLOURS, Program, until, worker
from tests.support.servers import Server

RULES: dict[str, dict[str, Any]] = {
    "every": {"every": 120, "limit": 6},
    "cron": {"pattern": "* * * * * *", "tz": "Asia/Kolkata", "limit": 4},
}


@pytest.fixture(scope="module", params=RULES)
def all_node(
    request: pytest.FixtureRequest, home: Server, node: Program, raw: "Redis[bytes]"
) -> tuple[dict[str, Any], state.State]:
    rule = RULES[request.param]
    return rule, _work_off(home, node, raw, f"iq-{request.param}-node", rule, ("node", "node"))


@pytest.mark.parametrize("colour", COLOURS)
def test_we_advance_a_scheduler_and_node_goes_on(
    colour: str,
    home: Server,
    node: Program,
    raw: "Redis[bytes]",
    all_node: tuple[dict[str, Any], state.State],
    queue: str,
) -> None:
    rule, expected = all_node
    found = _work_off(home, node, raw, queue, rule, (colour, "node"))
    assert state.differences(found, expected, races=("wake",)) == []


def _work_off(
    home: Server, node: Program, raw: "Redis[bytes]", queue: str, rule: dict[str, Any], sides: tuple[str, str]
) -> state.State:
    """Let one worker take the first runs and another one the rest; check the slots."""
    limit, period = rule["limit"], rule.get("every", 1000)
    template = {"name": "tick", "data": {"value": "✓"}, "opts": {"attempts": 2, "keepLogs": 5, "priority": 3}}
    node.call("upsert_scheduler", queue=queue, id="tick", repeat=rule, template=template)
    done: list[str] = []
    for side in sides:
        with worker(side, home, queue) as working:
            working.wait(lambda _: working.count("completed") >= limit // 2, "half of the runs")
        assert working.of("error") == []
        done += working.ids("completed")
    slots = [int(job_id.removeprefix("repeat:tick:")) for job_id in done]
    assert len(set(slots)) == limit
    assert all(later > earlier and (later - earlier) % period == 0 for earlier, later in pairwise(slots))
    (scheduler,) = node.call("schedulers", queue=queue)
    assert (scheduler["iterationCount"], scheduler["next"]) == (limit, slots[-1])
    return state.read(raw, [queue], also={str(slot): f"<slot {index}>" for index, slot in enumerate(slots)})


@pytest.mark.parametrize("colour", COLOURS)
def test_a_rule_that_cannot_be_followed_puts_its_job_back_with_a_clear_error(
    colour: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    rule = {"pattern": "* * * * * *", "limit": 9}
    job_id = node.call("upsert_scheduler", queue=queue, id="cron", repeat=rule, template={"name": "n", "data": {}})
    key = f"bull:{queue}:{job_id}"
    options = json.loads(raw.hget(key, "opts") or "")
    raw.hset(key, "opts", json.dumps({**options, "repeat": {**options["repeat"], "tz": "Europe/Nowhere"}}))
    with worker(colour, home, queue) as ours:
        error: dict[str, Any] = ours.wait(lambda _: ours.of("error"), "the error")[0]
        assert "tz: is no known time zone" in error["message"]
        assert "(got 'Europe/Nowhere'); the job was put back" in error["message"]
        # The error is told as soon as it is known, the job is in delayed a moment later.
        until(lambda: node.call("state", queue=queue, id=job_id), "delayed")
    assert ours.ids("started") == []
    job = node.call("job", queue=queue, id=job_id)
    assert (job["attempts_made"], job["attempts_started"], job["failed_reason"]) == (0, 1, None)
    raw.hset(key, "opts", json.dumps(options))
    with worker("node", home, queue) as theirs:
        theirs.wait(lambda _: job_id in theirs.ids("completed"), "Node takes it")
    assert theirs.of("error") == []
