"""The relay on real servers, on every adapter: publishing, subscribing, reading, leases, and what there is to see."""

import re
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import redis

import bullmq_anyio
from bullmq_protocol import ConnectionOptions
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.reply import as_texts
from bullmq_protocol.errors import Closed, RelayRefused, TransportError, UsageError
from bullmq_protocol.relay import commands
from bullmq_protocol.relay.commands import RelayCounts, RelayMessage, RelaySubscription
from bullmq_protocol.scripts._lua_relay import RELAY_SCRIPTS
from bullmq_protocol.testing.conformance import Fault
from tests.support import pages
from tests.support.adapters import Adapter
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server

pytestmark = pytest.mark.any_python


@pytest.fixture
async def relay(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    relay = adapter.Relay(server.url, prefix=name)
    yield relay
    await relay.aclose()


@pytest.fixture
async def transport(server: Server) -> AsyncIterator[Any]:
    transport = bullmq_anyio.connect(server.url)
    yield transport
    await transport.aclose()


async def taken(node: Any, count: int) -> list[RelayMessage]:
    """Return the next messages."""
    found: list[RelayMessage] = []
    while len(found) < count:
        found.append(await anext(node))
    return found


async def test_a_message_goes_to_all_who_have_subscribed(relay: Any) -> None:
    async with relay.node("n1") as one, relay.node("n2") as two, relay.node("n3") as three:
        await one.subscribe("a.*", "e1")
        await one.subscribe("a.b", "e2")
        await one.subscribe("a.>", "e1")
        await two.subscribe(">")
        await three.subscribe("a")
        published = await relay.publish("a.b", {"x": [1]})
        assert (published.nodes, published.endpoints) == (2, 3)
        (seen,) = await taken(one, 1)
        assert (seen.topic, seen.message_id, seen.data) == ("a.b", published.message_id, {"x": [1]})
        assert sorted(seen.endpoints) == ["e1", "e2"]
        assert seen.timestamp is not None
        (again,) = await taken(two, 1)
        assert (again.message_id, again.endpoints) == (published.message_id, ("default",))
        assert (await relay.publish("a", 1)).nodes == 2
        assert [each.data for each in await taken(three, 1)] == [1]


async def test_a_node_that_waits_gets_what_comes(relay: Any) -> None:
    async with relay.node("n1") as node, anyio.create_task_group() as tasks:
        await node.subscribe("a")
        found: list[RelayMessage] = []

        async def wait() -> None:
            found.extend(await taken(node, 1))

        tasks.start_soon(wait)
        await relay.publish("a", "now")
    assert [each.data for each in found] == ["now"]


async def test_what_was_not_done_with_is_read_again(relay: Any) -> None:
    """A node that dies in its work leaves it to one that registers with the same id in time."""
    dead = relay.node("n1", batch_size=2)
    await dead.subscribe("a")
    for number in range(5):
        await relay.publish("a", number)
    assert [each.data for each in await taken(dead, 3)] == [0, 1, 2]
    async with relay.node("n1") as node:
        # 0 and 1 were done with when 2 was asked for
        assert [each.data for each in await taken(node, 3)] == [2, 3, 4]
        (seen,) = await relay.get_nodes()
        assert (seen.node, seen.subscriptions, seen.dropped) == ("n1", 1, 0)


async def test_what_is_retained_comes_with_the_subscription(relay: Any) -> None:
    await relay.publish("a.b", "first", retain=60_000)
    await relay.publish("a.b", "last", retain=60_000)
    async with relay.node("n1") as node:
        assert (await node.subscribe("a.b")).data == "last"
        assert await node.subscribe("a.*") is None
        assert await node.subscribe("a.c") is None
        ((message, expires_at),) = await relay.get_retained()
        assert (message.topic, message.data) == ("a.b", "last")
        assert expires_at > (message.timestamp or 0)
        assert await relay.delete_retained("a.b") is True
        assert await relay.delete_retained("a.b") is False
        assert await relay.get_retained() == []


async def test_an_inbox_keeps_the_newest(relay: Any) -> None:
    async with relay.node("n1", inbox_limit=2) as node:
        await node.subscribe("a")
        for number in range(5):
            await relay.publish("a", number)
        assert [each.data for each in await taken(node, 2)] == [3, 4]
        (seen,) = await relay.get_nodes()
        assert seen.dropped == 3


async def test_a_node_that_was_removed_registers_again(relay: Any, transport: Any) -> None:
    """It subscribes as before, and does not get what was published meanwhile."""
    async with relay.node("n1") as node:
        await node.subscribe("a")
        await node.subscribe("b.*", "e")
        assert await node.renew() is True
        await bullmq_anyio.perform(transport, commands.unregister_node(relay.keys, "n1"))
        assert (await relay.publish("a", "lost")).nodes == 0
        with pytest.raises(RelayRefused, match="not registered") as caught:
            await node.subscribe("c")
        assert caught.value.code == -3
        assert await node.renew() is False
        assert (await relay.publish("a", "found")).nodes == 1
        assert [each.data for each in await taken(node, 1)] == ["found"]
        found = await relay.get_subscriptions(node="n1")
        assert found == [RelaySubscription("n1", "default", "a"), RelaySubscription("n1", "e", "b.*")]


async def test_what_a_dead_node_left_goes_in_parts(relay: Any, transport: Any) -> None:
    """Registering again waits until what an earlier node of this id had subscribed to is gone."""
    async with relay.node("other"), relay.node("n1") as dead:
        for number in range(230):
            await dead.subscribe(f"m.{number}")
        await bullmq_anyio.perform(transport, commands.unregister_node(relay.keys, "n1"))
        assert len(await relay.get_subscriptions(node="n1")) == 130
        async with relay.node("n1") as node:
            assert await relay.get_subscriptions() == []
            await node.subscribe("a")
            assert (await relay.publish("a", 1)).nodes == 1


async def test_who_is_there(relay: Any) -> None:
    assert await relay.get_counts() == RelayCounts(0, 0, 0, 0)
    async with relay.node("n1", name="ada") as one, relay.node("n2") as two:
        await one.subscribe("a.*", "e1")
        await one.subscribe("a.b", "e1")
        await two.subscribe("a.*", "e2")
        await relay.publish("x", 1, retain=60_000)
        assert await relay.get_counts() == RelayCounts(2, 3, 2, 1)
        assert await relay.get_patterns() == [("a.*", 2), ("a.b", 1)]
        assert await relay.get_patterns(1, 1) == [("a.b", 1)]
        nodes = await relay.get_nodes()
        assert sorted(each.node for each in nodes) == ["n1", "n2"]
        assert any('"name":"ada"' in each.info for each in nodes)
        assert len(await relay.get_nodes(1)) == 1
        every = await relay.get_subscriptions()
        assert {each.node for each in every} == {"n1", "n2"}
        of_pattern = await relay.get_subscriptions(pattern="a.*")
        assert of_pattern == [RelaySubscription("n1", "e1", "a.*"), RelaySubscription("n2", "e2", "a.*")]
        assert await relay.get_namespaces() == ["default"]
        assert await relay.sweep() == []
        assert await one.remove_endpoint("e1") == 2
        assert await one.remove_endpoint() == 0
        assert [each.node for each in await relay.get_subscriptions()] == ["n2"]
    assert await relay.get_counts() == RelayCounts(0, 0, 0, 1)


async def test_a_sweep_removes_who_is_gone(relay: Any, transport: Any) -> None:
    await bullmq_anyio.perform(transport, commands.register_node(relay.keys, "n1", lease_ms=1))
    seen = await relay.sweep()
    while "n1" not in seen and await relay.get_nodes():
        # a millisecond of the server's clock
        seen += await relay.sweep()
    assert await relay.get_nodes() == []


async def test_closing_ends_the_iteration(relay: Any) -> None:
    async with relay.node("n1") as node, anyio.create_task_group() as tasks:
        await node.subscribe("a")
        seen: list[Any] = []

        async def read() -> None:
            async for message in node:
                seen.append(message.data)
                if message.data == 1:
                    tasks.start_soon(node.aclose)

        await relay.publish("a", 1)
        await read()
    assert (seen, node.closed) == ([1], True)
    with pytest.raises(Closed):
        await node.read()
    with pytest.raises(Closed):
        await node.subscribe("a")
    await node.aclose()
    assert await relay.get_counts() == RelayCounts(0, 0, 0, 0)


async def test_after_a_lost_connection_it_goes_on(adapter: Adapter, server: Server, name: str) -> None:
    with CutProxy(*server.url.removeprefix("redis://").split(":")) as proxy:
        relay = adapter.Relay(proxy.url, prefix=name)
        async with relay.node("n1") as node:
            await node.subscribe("a")
            await relay.publish("a", 1)
            await relay.publish("a", 2)
            proxy.arm(Fault.REFUSE)
            with pytest.raises(TransportError):
                await node.read()
            proxy.arm(Fault.NONE)
            assert [each.data for each in await taken(node, 2)] == [1, 2]
        await relay.aclose()


async def test_no_queue_has_a_key_of_the_relay(relay: Any, transport: Any, name: str) -> None:
    async with relay.node("n1") as node:
        await node.subscribe("a.*")
        await relay.publish("a.b", 1, retain=60_000)
        scan: Command[list[str]] = Command("KEYS", (f"{name}:*",), (), as_texts, repeat=Repeat.SAFE)
        found = await bullmq_anyio.perform(transport, scan)
        assert {key.split(":")[1] for key in found} == {""}
        assert all(key.startswith(f"{name}::relay:") for key in found)


async def test_its_rule_of_an_acl_lets_a_user_do_all(adapter: Adapter, server: Server, name: str) -> None:
    used = {
        command.lower()
        for script in RELAY_SCRIPTS.values()
        for command in re.findall(r"call\('([A-Z]+)'", script.source)
    }
    rule = [each.replace("~bull::", f"~{name}::") for each in pages.acl_rule("relay.md", "relay")]
    first = rule.index("+evalsha") + 1
    assert {each.removeprefix("+") for each in rule[first:]} == used
    admin = redis.Redis.from_url(server.url)
    admin.execute_command("ACL", "SETUSER", name, "reset", *rule)
    try:
        options = ConnectionOptions(host=server.host, port=server.port, username=name, password="password")
        relay = adapter.Relay(options, prefix=name)
        async with relay.node("n1", inbox_limit=1, blocking_timeout=10) as node:
            await node.subscribe("a.*")
            for number in range(3):
                await relay.publish("a.b", number, retain=60_000)
            assert [each.data for each in await node.read()] == [2]
            assert await node.read() == []
            assert await node.renew() is True
            await relay.delete_retained("a.b")
            await relay.sweep()
            for look in ("counts", "nodes", "subscriptions", "patterns", "retained", "namespaces"):
                await getattr(relay, f"get_{look}")()
            await node.remove_endpoint()
        await relay.aclose()
    finally:
        admin.execute_command("ACL", "DELUSER", name)
        admin.close()


BAD = [
    (lambda r: r.publish("a.*", 1), "topic"),
    (lambda r: r.publish("a", object()), "data"),
    (lambda r: r.publish("a", "x" * 600_000), "data"),
    (lambda r: r.publish("a", 1, retain=-1), "retain"),
    (lambda r: r.delete_retained(""), "topic"),
    (lambda r: r.sweep(0), "most"),
    (lambda r: r.get_nodes(-1), "start"),
    (lambda r: r.get_patterns(0, -2), "end"),
    (lambda r: r.get_retained("0"), "start"),
    (lambda r: r.get_subscriptions(node="n1", pattern="a"), "pattern"),
    (lambda r: r.get_subscriptions(node=""), "node"),
    (lambda r: r.get_subscriptions(pattern="a..b"), "pattern"),
    (lambda r: r.node("n1").subscribe("a.>.b"), "pattern"),
    (lambda r: r.node("n1").subscribe("a", "no id"), "endpoint"),
    (lambda r: r.node("n1").remove_endpoint(""), "endpoint"),
]


@pytest.mark.any_server
@pytest.mark.parametrize(("call", "field"), BAD)
async def test_a_bad_argument_is_refused(relay: Any, call: Any, field: str) -> None:
    with pytest.raises(UsageError) as caught:
        await call(relay)
    assert caught.value.field == field
    assert await relay.get_counts() == RelayCounts(0, 0, 0, 0)


@pytest.mark.any_server
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"namespace": "a b"}, "namespace"),
        ({"prefix": ""}, "prefix"),
        ({"max_bytes": 0}, "max_bytes"),
    ],
)
async def test_a_bad_option_of_a_relay_is_refused(adapter: Adapter, options: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        adapter.Relay(**options)
    assert caught.value.field == field


@pytest.mark.any_server
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"node_id": "a.b"}, "node_id"),
        ({"name": 7}, "name"),
        ({"lease": 2}, "lease"),
        ({"inbox_limit": 0}, "inbox_limit"),
        ({"batch_size": 0}, "batch_size"),
        ({"blocking_timeout": 0}, "blocking_timeout"),
    ],
)
async def test_a_bad_option_of_a_node_is_refused(relay: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(UsageError) as caught:
        relay.node(**{"node_id": "n1", **options})
    assert caught.value.field == field
