"""Pausing, resuming and destroying a queue that both sides use."""

import pytest
from redis import Redis

from tests.support.programs import ADAPTERS, AnswerError, Program, client, worker
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


def _events(raw: "Redis[bytes]", queue: str) -> list[str]:
    return [fields[b"event"].decode() for _, fields in raw.xrange(f"bull:{queue}:events")]


@pytest.mark.parametrize("direction", ["node pauses", "we pause"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_pause_of_one_side_holds_for_the_other(
    adapter: str, direction: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    with client(adapter, home) as ours:
        first, second = (node, ours) if direction == "node pauses" else (ours, node)
        side = adapter if first is node else "node"
        with worker(side, home, queue) as working:
            first.call("add", queue=queue, jobs=[{"name": "n", "data": {}}])
            working.wait(lambda _: working.count("completed") == 1, "the first job is done")
            first.call("pause", queue=queue)
            assert second.call("is_paused", queue=queue) is True
            jobs = [{"name": "n", "data": {}}, {"name": "n", "data": {}, "opts": {"priority": 3}}]
            second.call("add_bulk", queue=queue, jobs=jobs)
            counts = {"active": 0, "paused": 1, "prioritized": 1, "waiting": 0}
            for each in (first, second):
                assert each.call("counts", queue=queue, states=["active", "prioritized", "waiting"]) == counts
            second.call("resume", queue=queue)
            assert first.call("is_paused", queue=queue) is False
            working.wait(lambda _: working.count("completed") == 3, "the others are done")
        events = [event for event in _events(raw, queue) if event in ("active", "paused", "resumed", "completed")]
        assert events[:4] == ["active", "completed", "paused", "resumed"]
        assert events.count("completed") == 3


@pytest.mark.parametrize("direction", ["node destroys", "we destroy"])
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_one_side_destroys_what_the_other_made(
    adapter: str, direction: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    jobs = [
        {"name": "n", "data": {"value": 1, "logs": ["row"]}, "opts": {"jobId": "j-done"}},
        {"name": "n", "data": {"fatal": "no"}, "opts": {"jobId": "j-failed"}},
        {"name": "n", "data": {"hangs": 1}, "opts": {"jobId": "j-active"}},
        {"name": "n", "data": {}, "opts": {"jobId": "j-waiting"}},
        {"name": "n", "data": {}, "opts": {"jobId": "j-delayed", "delay": 100_000}},
        {"name": "n", "data": {}, "opts": {"jobId": "j-urgent", "priority": 1}},
    ]
    with client(adapter, home) as ours:
        maker, destroyer = (ours, node) if direction == "node destroys" else (node, ours)
        side = adapter if maker is ours else "node"
        maker.call("add_bulk", queue=queue, jobs=jobs)
        with worker(side, home, queue) as working:
            working.wait(lambda _: "j-active" in working.ids("started"), "the third job runs")
            working.kill()
        with pytest.raises(AnswerError, match="active jobs"):
            destroyer.call("obliterate", queue=queue)
        assert maker.call("state", queue=queue, id="j-waiting") == "waiting"
        assert maker.call("is_paused", queue=queue) is True
        destroyer.call("obliterate", queue=queue, force=True)
    assert list(raw.scan_iter(f"bull:{queue}:*")) == []


@pytest.mark.parametrize("side", ["node", *ADAPTERS])
def test_a_cap_of_0_switches_events_off(side: str, home: Server, raw: "Redis[bytes]", queue: str) -> None:
    """Both store the cap, and what they and the scripts do with it leaves the stream empty."""
    jobs = [{"name": "n", "data": {}} for _ in range(150)]
    with client(side, home, max_len_events=0) as program:
        program.call("add_bulk", queue=queue, jobs=jobs)
        program.call("add", queue=queue, jobs=[{"name": "n", "data": {}, "opts": {"delay": 1}}])
        assert raw.hget(f"bull:{queue}:meta", "opts.maxLenEvents") == b"0"
        assert (raw.exists(f"bull:{queue}:events"), raw.xlen(f"bull:{queue}:events")) == (1, 0)
        with worker(side, home, queue) as working:
            working.wait(lambda _: working.count("completed") == 151, "all jobs are done")
        # The few that are written without a cap stay until the next one with it.
        assert raw.xlen(f"bull:{queue}:events") <= 2
