"""Flows that one side added and the other works off: the parents leave as with Node alone."""

from typing import Any

import pytest
from redis import Redis

from tests.interop import state
from tests.support.programs import ADAPTERS, Program, family, worker
from tests.support.servers import Server

FLAGS = {
    "none": {},
    "fail": {"failParentOnFailure": True},
    "continue": {"continueParentOnFailure": True},
    "ignore": {"ignoreDependencyOnFailure": True},
    "remove": {"removeDependencyOnFailure": True},
}


@pytest.fixture(scope="module")
def all_node(home: Server, node: Program, raw: "Redis[bytes]") -> state.State:
    return _work_off(home, node, node, raw, "iq-flow-node", "node")


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_parents_are_released_as_with_node_alone(
    adapter: str, home: Server, node: Program, raw: "Redis[bytes]", all_node: state.State, queue: str
) -> None:
    assert state.differences(_work_off(home, node, node, raw, queue, adapter), all_node, races=("wake",)) == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_our_flows_leave_as_those_of_node(
    adapter: str, home: Server, node: Program, raw: "Redis[bytes]", all_node: state.State, queue: str
) -> None:
    with family(adapter, home) as ours:
        assert state.differences(_work_off(home, ours, node, raw, queue, "node"), all_node, races=("wake",)) == []


def _flows(parents: str, children: str) -> list[dict[str, Any]]:
    def child(job_id: str, data: dict[str, Any], **opts: Any) -> dict[str, Any]:
        return {"name": "child", "queueName": children, "data": data, "opts": {"jobId": job_id, **opts}}

    def parent(job_id: str, below: list[dict[str, Any]], **opts: Any) -> dict[str, Any]:
        # A bare name like "delayed" would be a key of the queue's own.
        # In the order in which we store options.
        first = {name: opts.pop(name) for name in ("delay", "priority") if name in opts}
        opts = {**first, "jobId": f"of-{job_id}", **opts}
        return {"name": "parent", "queueName": parents, "data": {"value": job_id}, "opts": opts, "children": below}

    good = [child("good-1", {"value": {"a": "✓"}}), child("good-2", {}), child("good-3", {"fails": 1}, attempts=2)]
    flows = [parent("good", good)]
    for name, flag in FLAGS.items():
        below = [
            child(f"{name}-bad", {"fatal": f"no {name}"}, **flag),
            child(f"{name}-tired", {"fails": 2}, attempts=2, **flag),
            child(f"{name}-good", {"value": name}, **flag),
        ]
        flows.append(parent(name, below))
    # Released in this order, they are due in this order, and both before a worker of the parents begins.
    flows.append(parent("delayed", [child("of-delayed", {})], delay=10))
    flows.append(parent("urgent", [child("of-urgent", {})], priority=2))
    flows.append(parent("late", [child("of-late", {"fatal": "no"}, failParentOnFailure=True)], delay=60))
    middle = parent("middle", [child("deep", {"fatal": "deep"}, failParentOnFailure=True)], failParentOnFailure=True)
    flows.append(parent("top", [middle, child("of-top", {"value": 1})]))
    flows.append(parent("gone", [child("removed", {"value": 2}, removeOnComplete=True)], removeOnComplete=True))
    return flows


def _work_off(
    home: Server, producer: Program, node: Program, raw: "Redis[bytes]", queue: str, side: str
) -> state.State:
    parents, children = f"{queue}-p", f"{queue}-c"
    for flow in _flows(parents, children):
        producer.call("flow", flow=flow)
    for name, finished in ((children, 24), (parents, 11)):
        with worker(side, home, name) as working:
            working.wait(lambda _, all=finished: _finished(working) == all, f"{finished} jobs of {name}")
        assert working.of("error") == []
    assert node.call("counts", queue=parents, states=["waiting-children"]) == {"waiting-children": 1}
    return state.read(raw, [parents, children])


def _finished(working: Program) -> int:
    return working.count("completed") + sum(line["final"] for line in working.of("failed"))
