"""The relay: its names, and every command with its exact keys, arguments and replies."""

from typing import Any

import pytest

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.errors import BullMQError, PayloadError, RelayRefused, UnexpectedReply, UsageError
from bullmq_protocol.relay import commands
from bullmq_protocol.relay.commands import (
    Inbox,
    Published,
    RelayCounts,
    RelayMessage,
    RelayNodeInfo,
    RelaySubscription,
    RetainedMessage,
    Subscribed,
)
from bullmq_protocol.relay.names import RelayKeys, check_id, check_pattern, check_topic
from bullmq_protocol.scripts._lua_relay import RELAY_SCRIPTS

pytestmark = pytest.mark.any_python

K = RelayKeys.of("shop")
B = "bull::relay:{shop}"
SIXTEEN = ".".join("abcdefghijklmnop")


def test_the_keys_of_a_namespace() -> None:
    assert (K.base, K.nodes, K.registry) == (B, f"{B}:nodes", "bull::relay:namespaces")
    assert K.inbox("n1") == f"{B}:n1:inbox"
    assert K.client_name("n1") == "YnVsbDo6cmVsYXk6e3Nob3B9:n1"
    assert RelayKeys.of(prefix="p").base == "p::relay:{default}"


@pytest.mark.parametrize("text", ["a", "a.b.c", "A_0:%-.x", SIXTEEN, "x" * 512])
def test_topics(text: str) -> None:
    assert check_topic("topic", text) == check_pattern("pattern", text) == text


@pytest.mark.parametrize("text", ["*", ">", "a.*", "a.*.c", "*.*", "a.>", "*.>"])
def test_patterns(text: str) -> None:
    assert check_pattern("pattern", text) == text
    with pytest.raises(UsageError, match=r"topic: must have no [*>], which only a pattern has"):
        check_topic("topic", text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "must have 1 to 512 bytes"),
        ("x" * 513, "must have 1 to 512 bytes"),
        (SIXTEEN + ".q", "must have at most 16 segments, has 17"),
        ("a..b", "between its dots"),
        (".a", "between its dots"),
        ("a.", "between its dots"),
        ("a b", "between its dots"),
        ("a.b|c", "between its dots"),
        ("\u00fc", "between its dots"),
        ("a*", "between its dots"),
        (7, "must be a string"),
    ],
)
def test_what_is_no_topic_and_no_pattern(text: Any, rule: str) -> None:
    for check, field in ((check_topic, "topic"), (check_pattern, "pattern")):
        with pytest.raises(UsageError, match=rule) as caught:
            check(field, text)
        assert caught.value.field == field


def test_the_rest_of_a_topic_stands_at_the_end_of_a_pattern() -> None:
    with pytest.raises(UsageError, match="pattern: must have > at its end only"):
        check_pattern("pattern", "a.>.b")


def test_ids() -> None:
    for good in ("a", "A_0-z", "x" * 64):
        assert check_id("node", good) == good
    for bad in ("", "x" * 65, "a.b", "a b", "\u00fc", "a|b", None):
        with pytest.raises(UsageError, match="node"):
            check_id("node", bad)
    with pytest.raises(UsageError, match="namespace"):
        RelayKeys.of("{x}")
    with pytest.raises(UsageError, match="prefix"):
        RelayKeys.of(prefix="")


MESSAGE = [b"k", b"msg", b"t", b"a.b", b"m", b"17", b"ts", b"99", b"d", b'{"x":1}', b"e", b"e1,e2"]
READ = RelayMessage("a.b", "17", 99, '{"x":1}', ("e1", "e2"), "5-0")
NODES = [b"n1", b"10", b"40", b'{"name":"n"}', b"20", b"3", b"1", 2]

ROWS: list[tuple[Command[Any], tuple[object, ...], list[tuple[Any, Any]], tuple[int, ...]]] = [
    (
        commands.register_node(K, "n1", info="{}", lease_ms=900, inbox_limit=5),
        (B, "n1", 900, "{}", "1", 5),
        [(1, True), (0, False)],
        (-5, -6),
    ),
    (commands.renew_node(K, "n1", lease_ms=900), (B, "n1", 900), [(1, True), (0, False)], ()),
    (commands.unregister_node(K, "n1"), (B, "n1"), [(1, True), (0, False)], ()),
    (commands.sweep_nodes(K, most=7), (B, 7), [([], []), ([b"n1", b"n2"], ["n1", "n2"])], ()),
    (
        commands.subscribe(K, "n1", "e1", "a.b"),
        (B, "n1", "e1", "a.b"),
        [
            ([1, b"", b"", b""], Subscribed(True)),
            ([0, b"17", b"99", b"7"], Subscribed(False, RelayMessage("a.b", "17", 99, "7"))),
        ],
        (-2, -3, -5),
    ),
    (commands.remove_endpoint(K, "n1", "e1"), (B, "n1", "e1"), [(0, 0), (3, 3)], ()),
    (
        commands.publish(K, "a.b", "7", timestamp=99, retain_ms=5, max_bytes=17, inbox_limit=4),
        (B, "a.b", "7", 99, 5, 17, 4),
        [([1700000000000001, 2, 3], Published("1700000000000001", 2, 3))],
        (-1, -4),
    ),
    (
        commands.read_inbox(K, "n1", after="4-0", count=9),
        (B, "n1", "4-0", 9),
        [
            (None, Inbox(())),
            ([[b"key", [[b"5-0", MESSAGE]]]], Inbox((READ,), "5-0")),
            ({b"key": [[b"5-0", MESSAGE], [b"6-0", [b"k", b"other"]]]}, Inbox((READ,), "6-0")),
            ([[b"key", [[b"6-0", [b"k", b"msg"]]]]], Inbox((RelayMessage("", "", None, "", (), "6-0"),), "6-0")),
        ],
        (),
    ),
    (commands.acknowledge(K, "n1", last="5-0"), (B, "n1", "5-0"), [(1, None)], ()),
    (commands.trim_inbox(K, "n1", last="5-0", limit=8), (B, "n1", "5-0", 8), [(0, 0), (4, 4)], ()),
    (commands.delete_retained(K, "a.b"), (B, "a.b"), [(1, True), (0, False)], (-1,)),
    (commands.get_counts(K), (B, "counts", 0, -1, "", ""), [([1, 2, 3, 4], RelayCounts(1, 2, 3, 4))], ()),
    (commands.is_used(K), (B, "used", 0, -1, "", ""), [(1, True), (0, False)], ()),
    (
        commands.get_nodes(K, 1, 2),
        (B, "nodes", 1, 2, "", ""),
        [
            ([], []),
            ([NODES], [RelayNodeInfo("n1", 10, 40, '{"name":"n"}', 20, 3, 1, 2)]),
            (
                [[b"n1", b"10", b"", b"", b"", b"0", b"0", 0]],
                [RelayNodeInfo("n1", 10, None, "", None, 0, 0, 0)],
            ),
        ],
        (),
    ),
    (
        commands.get_subscriptions(K),
        (B, "subscriptions", 0, -1, "", ""),
        [([[b"n1", b"e1", b"a.*"]], [RelaySubscription("n1", "e1", "a.*")])],
        (),
    ),
    (commands.get_subscriptions(K, 1, 2, node="n1"), (B, "subscriptions", 1, 2, "node", "n1"), [([], [])], ()),
    (commands.get_subscriptions(K, pattern=">"), (B, "subscriptions", 0, -1, "pattern", ">"), [([], [])], ()),
    (commands.get_patterns(K), (B, "patterns", 0, -1, "", ""), [([[b"a.*", 2]], [("a.*", 2)])], ()),
    (
        commands.get_retained(K),
        (B, "retained", 0, -1, "", ""),
        [([[b"a", b"40", b"17", b"now", b"7"]], [RetainedMessage(RelayMessage("a", "17", None, "7"), 40)])],
        (),
    ),
]


@pytest.mark.parametrize(("command", "args", "replies", "codes"), ROWS, ids=lambda part: getattr(part, "name", ""))
def test_a_command_and_its_replies(
    command: Command[Any], args: tuple[object, ...], replies: list[tuple[Any, Any]], codes: tuple[int, ...]
) -> None:
    script = RELAY_SCRIPTS[command.name]
    assert (command.script, command.keys, command.args) == (script, (K.nodes,), args)
    assert script.keys == 1
    assert (command.block_ms, command.merge) == (None, None)
    assert command.repeat is (Repeat.UNSAFE if command.name == "relayPublish" else Repeat.SAFE)
    for reply, value in replies:
        assert command.decode(reply) == value
    for code in codes:
        with pytest.raises(RelayRefused, match=command.name) as caught:
            command.decode(code)
        assert (caught.value.code, caught.value.command) == (code, command.name)


@pytest.mark.parametrize("command", [row[0] for row in ROWS if row[0].name != "relayAckInbox"], ids=lambda c: c.name)
@pytest.mark.parametrize("reply", [b"text", [b"x"], [[b"x"]], [[b"key", [[b"5-0"]]]], [[b"a", []], [b"b", []]], -99])
def test_another_reply_is_refused(command: Command[Any], reply: Any) -> None:
    good = {"relaySweep": ([b"x"],), "relayRemoveEndpoint": (-99,), "relayTrimInbox": (-99,)}
    flags = ("relayRegisterNode", "relayHeartbeat", "relayUnregisterNode", "relayDeleteRetained")
    if reply in good.get(command.name, ()) or (reply == -99 and (command.name in flags or command.args[1] == "used")):
        command.decode(reply)
        return
    with pytest.raises(UnexpectedReply):
        command.decode(reply)


def test_every_script_has_a_command() -> None:
    registry = (commands.get_namespaces(K), commands.touch_namespace(K, lifetime_ms=9))
    assert {row[0].name for row in ROWS} | {each.name for each in registry} == set(RELAY_SCRIPTS)
    assert [(each.keys, each.args, each.repeat) for each in registry] == [
        ((K.registry,), (), Repeat.SAFE),
        ((K.registry,), ("shop", 9), Repeat.SAFE),
    ]
    assert registry[0].decode([b"shop"]) == ["shop"]
    assert registry[1].decode(None) is None


def test_the_wait_for_messages() -> None:
    command = commands.wait_for_messages(K, "n1", after="5-0", block_ms=70)
    assert command.wire() == ("XREAD", "COUNT", "1", "BLOCK", "70", "STREAMS", f"{B}:n1:inbox", "5-0")
    assert (command.block_ms, command.repeat, command.decode([[b"x"]])) == (70, Repeat.SAFE, None)


def test_a_message_shows_none_of_its_text() -> None:
    assert READ.data == {"x": 1}
    assert repr(READ) == "RelayMessage(topic='a.b', message_id='17')"
    with pytest.raises(PayloadError):
        _ = RelayMessage("a", "1", 1, "no JSON").data


def test_an_unknown_code_is_said_to_be_one() -> None:
    error = RelayRefused("relayPublish", -42)
    assert isinstance(error, BullMQError)
    assert str(error) == "unknown code -42. relayPublish"
    assert str(RelayRefused("relaySubscribe", -3)) == "the node is not registered (any more). relaySubscribe"
