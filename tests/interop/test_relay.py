"""Our relay and that of BullMQ 6.7.0 on Node: nodes of one namespace, messages both ways.

Source: specs/06-later-versions.md#sec-4-14
"""

from collections.abc import Iterator
from typing import Any

import pytest

from bullmq_sync.relay import Relay
from tests.support.programs import Program, relay, until
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


@pytest.fixture
def theirs(home: Server, queue: str) -> Iterator[Program]:
    with relay(home, queue) as started:
        yield started


@pytest.fixture
def ours(home: Server, queue: str) -> Iterator[Relay]:
    with Relay(home.url, namespace=queue) as made:
        yield made


def messages(program: Program) -> list[tuple[str, Any, bool]]:
    return [(each["topic"], each["data"], each["retained"]) for each in program.of("message")]


def test_messages_go_both_ways(theirs: Program, ours: Relay) -> None:
    with ours.node("ours") as node:
        node.subscribe("orders.*")
        theirs.call("subscribe", pattern="orders.>")
        sent = theirs.call("publish", topic="orders.created", data={"id": 7, "text": "ü"})
        assert (sent["nodes"], sent["endpoints"]) == (2, 2)
        (got,) = node.read()
        assert (got.topic, got.data, got.message_id) == ("orders.created", {"id": 7, "text": "ü"}, sent["mid"])
        back = ours.publish("orders.paid", [1, None, "x"])
        assert (back.nodes, back.endpoints) == (2, 2)
        (own,) = node.read()
        assert (own.topic, own.data, own.message_id) == ("orders.paid", [1, None, "x"], back.message_id)
        until(
            lambda: messages(theirs),
            [("orders.created", {"id": 7, "text": "ü"}, False), ("orders.paid", [1, None, "x"], False)],
        )
        assert theirs.of("message")[-1]["mid"] == back.message_id
        assert ours.publish("orders.paid.late", None).nodes == 1


def test_what_one_retains_the_other_gets(theirs: Program, ours: Relay) -> None:
    ours.publish("state.a", {"n": 1}, retain=60_000)
    theirs.call("subscribe", pattern="state.a")
    until(lambda: messages(theirs), [("state.a", {"n": 1}, True)])
    with ours.node("ours") as node:
        theirs.call("method", method="publish", args=["state.b", {"n": 2}, {"retain": 60_000}])
        retained = node.subscribe("state.b")
        assert retained is not None and retained.data == {"n": 2}
    assert {each.message.topic for each in ours.get_retained()} == {"state.a", "state.b"}
    assert {each["topic"] for each in theirs.call("method", method="getRetained", args=[])} == {"state.a", "state.b"}
    assert ours.delete_retained("state.b")
    theirs.call("method", method="deleteRetained", args=["state.a"])
    assert ours.get_retained() == []


def test_each_sees_the_other(theirs: Program, ours: Relay, queue: str) -> None:
    theirs.call("subscribe", pattern="a.b")
    with ours.node("ours") as node:
        node.subscribe("a.*", "mine")
        here, there = ours.get_counts(), theirs.call("method", method="getCounts", args=[])
        assert (here.nodes, here.subscriptions, here.patterns) == (2, 2, 2)
        assert (there["nodes"], there["subscriptions"], there["patterns"]) == (2, 2, 2)
        ids = {each.node for each in ours.get_nodes()}
        assert ids == {each["id"] for each in theirs.call("method", method="getNodes", args=[])}
        assert "ours" in ids
        assert {each.pattern for each in ours.get_subscriptions()} == {"a.b", "a.*"}
        found = theirs.call("method", method="getSubscriptions", args=[])
        assert {"nodeId": "ours", "endpointId": "mine", "pattern": "a.*"} in found
        assert queue in ours.get_namespaces()
        assert queue in theirs.call("method", method="getNamespaces", args=[])
    theirs.call("unsubscribe", pattern="a.b")
    assert ours.get_patterns() == []
    assert {each["id"] for each in theirs.call("method", method="getNodes", args=[])} == ids - {"ours"}
