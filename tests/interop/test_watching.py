"""What Node sees of our workers and jobs, and we of Node's workers."""

from typing import Any

import pytest

from tests.support.programs import ADAPTERS, Program, client, recorder, until, worker
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


def _names(reader: Program, queue: str) -> list[tuple[str, str]]:
    return sorted(
        (found["name"], found["rawname"].rpartition(":w:")[2]) for found in reader.call("workers", queue=queue)
    )


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_each_side_lists_the_workers_of_both(adapter: str, home: Server, node: Program, queue: str) -> None:
    with client(adapter, home) as ours:
        assert ours.call("workers", queue=queue) == node.call("workers", queue=queue) == []
        with worker(adapter, home, queue, name="ours"), worker("node", home, queue, name="node"):
            both = [(queue, "node"), (queue, "ours")]
            for reader in (node, ours):
                until(lambda reader=reader: _names(reader, queue), both)
            seen = {found["id"]: found["rawname"] for found in node.call("workers", queue=queue)}
            assert {found["id"]: found["rawname"] for found in ours.call("workers", queue=queue)} == seen
        for reader in (node, ours):
            until(lambda reader=reader: _names(reader, queue), [])


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_node_hears_and_counts_our_jobs(adapter: str, home: Server, node: Program, queue: str) -> None:
    jobs = [
        {"name": "n", "data": {"value": {"a": "✓"}, "progress": {"p": 1}}, "opts": {"jobId": "good"}},
        {"name": "n", "data": {"fails": 9}, "opts": {"jobId": "bad", "attempts": 2}},
        {"name": "n", "data": {"fatal": "no ✗"}, "opts": {"jobId": "worse", "delay": 30}},
        {"name": "n", "data": {"hangs": 1}, "opts": {"jobId": "running", "priority": 7}},
    ]
    with client(adapter, home) as ours, recorder(home, queue) as heard:
        ours.call("add_bulk", queue=queue, jobs=jobs)
        counts = {"active": 0, "completed": 0, "delayed": 1, "failed": 0, "paused": 0, "prioritized": 1}
        counts |= {"waiting": 2, "waiting-children": 0}
        assert node.call("counts", queue=queue) == ours.call("counts", queue=queue) == counts
        with worker(adapter, home, queue) as working:
            heard.wait(lambda events: _of(events, "running", "active"), "the last job is active")
            counts |= {"active": 1, "completed": 1, "delayed": 0, "failed": 2, "prioritized": 0, "waiting": 0}
            assert node.call("counts", queue=queue) == ours.call("counts", queue=queue) == counts
            working.kill()
        expected: dict[str, list[dict[str, Any]]] = {
            "good": [
                {"event": "added", "name": "n"},
                {"event": "waiting"},
                {"event": "active", "prev": "waiting"},
                {"event": "progress", "data": {"p": 1}},
                {"event": "completed", "returnvalue": {"a": "✓"}, "prev": "active"},
            ],
            "bad": [
                {"event": "added", "name": "n"},
                {"event": "waiting"},
                {"event": "active", "prev": "waiting"},
                {"event": "waiting", "prev": "active"},
                {"event": "active", "prev": "waiting"},
                {"event": "failed", "failedReason": "failure 2", "prev": "active"},
                {"event": "retries-exhausted", "attemptsMade": "2"},
            ],
            "running": [{"event": "added", "name": "n"}, {"event": "waiting"}, {"event": "active", "prev": "waiting"}],
        }
        for job_id, events in expected.items():
            assert _of(heard.events, job_id) == events
        worse = _of(heard.events, "worse")
        assert [event["event"] for event in worse] == [
            "added",
            "delayed",
            "waiting",
            "active",
            "failed",
            "retries-exhausted",
        ]
        assert worse[4] == {"event": "failed", "failedReason": "no ✗", "prev": "active"}


def _of(events: list[dict[str, Any]], job_id: str, name: str | None = None) -> list[dict[str, Any]]:
    """The events of one job, without its id."""
    found = []
    for line in events:
        fields = dict(line.get("fields", {}))
        if fields.pop("jobId", None) == job_id and name in (None, line["event"]):
            found.append({"event": line["event"], **fields})
    return found
