"""Every command of the relay. The server's clock counts in all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from bullmq_protocol.command import Arg, Command, Repeat, Script
from bullmq_protocol.common.codec import parse_json
from bullmq_protocol.common.reply import Reply, as_bool, as_int, as_list, as_none, as_text, as_texts
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import RELAY_CODES, RelayRefused, UnexpectedReply
from bullmq_protocol.relay.names import RelayKeys
from bullmq_protocol.scripts._lua_relay import (
    RELAY_ACK_INBOX,
    RELAY_DELETE_RETAINED,
    RELAY_GET,
    RELAY_GET_NAMESPACES,
    RELAY_HEARTBEAT,
    RELAY_PUBLISH,
    RELAY_READ_INBOX,
    RELAY_REGISTER_NODE,
    RELAY_REMOVE_ENDPOINT,
    RELAY_SUBSCRIBE,
    RELAY_SWEEP,
    RELAY_TOUCH_NAMESPACE,
    RELAY_TRIM_INBOX,
    RELAY_UNREGISTER_NODE,
)

T = TypeVar("T")

LAYOUT: Final = "1"
NO_ENTRY: Final = "0-0"
"""Stands before every entry of an inbox."""
DEFAULT_LEASE_MS: Final = 30_000
DEFAULT_MAX_BYTES: Final = 524_288
DEFAULT_INBOX_LIMIT: Final = 10_000
DEFAULT_BATCH: Final = 100


class RelayMessage(msgspec.Struct, frozen=True):
    """A message of the relay.

    `text` is what its publisher sent, and `data` the JSON in it. `timestamp` is the publisher's wall clock, None where
    it is no number. `endpoints` of the node it is for, and `entry_id`, its place in the node's inbox, are empty for a
    message that was retained.

    Source: specs/06-later-versions.md#sec-4-14
    """

    topic: str
    message_id: str
    timestamp: Millis | None
    text: str
    endpoints: tuple[str, ...] = ()
    entry_id: str = ""

    @property
    def data(self) -> Any:
        """The JSON value in `text`. Raises `PayloadError` if there is none."""
        return parse_json(self.text)

    def __repr__(self) -> str:
        return f"RelayMessage(topic={self.topic!r}, message_id={self.message_id!r})"


class Published(msgspec.Struct, frozen=True):
    """What became of a message: its id, and how many nodes and endpoints of them have it in their inboxes."""

    message_id: str
    nodes: int
    endpoints: int


class Subscribed(msgspec.Struct, frozen=True):
    """Whether a subscription is new, and the message that was retained for its topic; a pattern with wildcards gets
    none."""

    added: bool
    retained: RelayMessage | None = None


class Inbox(msgspec.Struct, frozen=True):
    """What was read of an inbox, and the place of the last entry read, None if there was none."""

    messages: tuple[RelayMessage, ...]
    last: str | None = None


class RelayCounts(msgspec.Struct, frozen=True):
    """How much there is in a namespace. `nodes` counts those too whose lease is over until a sweep removes them."""

    nodes: int
    subscriptions: int
    patterns: int
    retained: int


class RelayNodeInfo(msgspec.Struct, frozen=True):
    """A node as others see it. Moments are the server's clock; a node that is gone has no `lease_end`.

    `info` is the JSON text that the node sent about itself, `backlog` and `dropped` count messages of its inbox.
    """

    node: str
    registered_at: Millis
    lease_end: Millis | None
    info: str
    heartbeat_at: Millis | None
    backlog: int
    dropped: int
    subscriptions: int


class RelaySubscription(msgspec.Struct, frozen=True):
    """An endpoint of a node, and a pattern that it gets the messages of."""

    node: str
    endpoint: str
    pattern: str


class RetainedMessage(NamedTuple):
    """A message that later subscribers of its topic get, and when it goes, by the server's clock."""

    message: RelayMessage
    expires_at: Millis


# --- nodes ----------------------------------------------------------------------------------------------------------


def register_node(
    keys: RelayKeys,
    node: str,
    *,
    info: str = "{}",
    lease_ms: Millis = DEFAULT_LEASE_MS,
    inbox_limit: int = DEFAULT_INBOX_LIMIT,
) -> Command[bool]:
    """Give a node an inbox until its lease ends. False: subscriptions that an earlier one of this id left are being
    removed, 100 in each call; call again.

    Keys:    nodes
    Args:    base, node, lease (ms), info (JSON), layout, most entries of the inbox
    Reply:   1 registered, 0 not yet -> True, False
    Raises:  RelayRefused (-5, -6), UnexpectedReply
    Repeat:  safe
    Cost:    O(log nodes), for a new one also O(subscriptions left)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    args = (node, lease_ms, info, LAYOUT, inbox_limit)
    return _command(RELAY_REGISTER_NODE, keys, args, as_bool)


def renew_node(keys: RelayKeys, node: str, *, lease_ms: Millis = DEFAULT_LEASE_MS) -> Command[bool]:
    """Let a node's lease begin again. False: the node is not registered any more.

    Keys:    nodes
    Args:    base, node, lease (ms)
    Reply:   1 renewed, 0 not registered -> True, False
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(log nodes)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_HEARTBEAT, keys, (node, lease_ms), as_bool)


def unregister_node(keys: RelayKeys, node: str) -> Command[bool]:
    """Remove a node with its inbox and subscriptions.

    Keys:    nodes
    Args:    base, node
    Reply:   1 removed, 0 there was none -> True, False
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(subscriptions of the node), at most 100
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_UNREGISTER_NODE, keys, (node,), as_bool)


def sweep_nodes(keys: RelayKeys, *, most: int = 100) -> Command[list[str]]:
    """Remove nodes whose lease is over, and what was retained for too long.

    Keys:    nodes
    Args:    base, most nodes
    Reply:   ids -> list of str
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(nodes removed, and at most 100 of their subscriptions)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_SWEEP, keys, (most,), as_texts)


def subscribe(keys: RelayKeys, node: str, endpoint: str, pattern: str) -> Command[Subscribed]:
    """Let an endpoint of a node get the messages of all topics that fit a pattern.

    Keys:    nodes
    Args:    base, node, endpoint, pattern
    Reply:   added, then id, timestamp and data of the message retained, or three empty texts -> Subscribed
    Raises:  RelayRefused (-2, -3, -5), UnexpectedReply
    Repeat:  safe
    Cost:    O(log subscriptions)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_SUBSCRIBE, keys, (node, endpoint, pattern), _SubscribedReply(pattern))


def remove_endpoint(keys: RelayKeys, node: str, endpoint: str) -> Command[int]:
    """Remove all subscriptions of an endpoint.

    Keys:    nodes
    Args:    base, node, endpoint
    Reply:   how many there were -> int
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(subscriptions of the endpoint)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_REMOVE_ENDPOINT, keys, (node, endpoint), as_int)


# --- messages -------------------------------------------------------------------------------------------------------


def publish(
    keys: RelayKeys,
    topic: str,
    text: str,
    *,
    timestamp: Millis,
    retain_ms: Millis = 0,
    max_bytes: int = DEFAULT_MAX_BYTES,
    inbox_limit: int = DEFAULT_INBOX_LIMIT,
) -> Command[Published]:
    """Put a message into the inbox of each node that has subscribed to its topic. With `retain_ms` above 0, later
    subscribers of the topic itself get it too, for this long.

    Keys:    nodes
    Args:    base, topic, data, timestamp, how long it is retained (ms), most bytes, inbox limit of nodes without one
    Reply:   id, nodes, endpoints -> Published
    Raises:  RelayRefused (-1, -4), UnexpectedReply
    Repeat:  unsafe: a second run publishes it again
    Cost:    O(patterns with wildcards of the topic's first segment, and subscribers)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    args = (topic, text, timestamp, retain_ms, max_bytes, inbox_limit)
    return _command(RELAY_PUBLISH, keys, args, _published, Repeat.UNSAFE)


def read_inbox(keys: RelayKeys, node: str, *, after: str = NO_ENTRY, count: int = DEFAULT_BATCH) -> Command[Inbox]:
    """Read a node's messages after a place, and record that all up to that place are done with.

    Keys:    nodes
    Args:    base, node, place, most entries
    Reply:   nil, or what XREAD gives -> Inbox
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(entries returned)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_READ_INBOX, keys, (node, after, count), _inbox)


def acknowledge(keys: RelayKeys, node: str, *, last: str) -> Command[None]:
    """Record that a node is done with all messages up to a place.

    Keys:    nodes
    Args:    base, node, place
    Reply:   1 -> None
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_ACK_INBOX, keys, (node, last), as_none)


def trim_inbox(keys: RelayKeys, node: str, *, last: str = NO_ENTRY, limit: int = DEFAULT_INBOX_LIMIT) -> Command[int]:
    """Delete the messages up to a place that a node is done with, and then the oldest above a limit.

    Keys:    nodes
    Args:    base, node, place, most entries that stay
    Reply:   entries left -> int
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(entries deleted)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_TRIM_INBOX, keys, (node, last, limit), as_int)


def wait_for_messages(keys: RelayKeys, node: str, *, after: str, block_ms: Millis) -> Command[None]:
    """Wait until a node has a message after a place, at most `block_ms`.

    Keys:    inbox
    Args:    place
    Reply:   any -> None
    Repeat:  safe
    Cost:    O(1)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    name = f"XREAD COUNT 1 BLOCK {block_ms} STREAMS"
    return Command(name, (keys.inbox(node),), (after,), as_none, block_ms=block_ms, repeat=Repeat.SAFE)


def delete_retained(keys: RelayKeys, topic: str) -> Command[bool]:
    """Delete the message that is retained for a topic.

    Keys:    nodes
    Args:    base, topic
    Reply:   1 deleted, 0 there was none -> True, False
    Raises:  RelayRefused (-1), UnexpectedReply
    Repeat:  safe
    Cost:    O(log topics)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _command(RELAY_DELETE_RETAINED, keys, (topic,), as_bool)


# --- what there is --------------------------------------------------------------------------------------------------


def get_counts(keys: RelayKeys) -> Command[RelayCounts]:
    """Count nodes, subscriptions, patterns and messages that are retained.

    Keys:    nodes
    Args:    base, view, start, end, filter, its value
    Reply:   four integers -> RelayCounts
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(log subscriptions)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _view(keys, "counts", _counts)


def is_used(keys: RelayKeys) -> Command[bool]:
    """Tell whether a node lives, or a message is retained.

    Keys:    nodes
    Args:    base, view, start, end, filter, its value
    Reply:   1, 0 -> True, False
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(log nodes)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _view(keys, "used", as_bool)


def get_nodes(keys: RelayKeys, start: int = 0, end: int = -1) -> Command[list[RelayNodeInfo]]:
    """Return the nodes in the order in which they came.

    Keys:    nodes
    Args:    base, view, start, end (inclusive, -1: the last), filter, its value
    Reply:   arrays of eight -> list of RelayNodeInfo
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(nodes returned)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _view(keys, "nodes", _rows(_node, 8), start, end)


def get_subscriptions(
    keys: RelayKeys, start: int = 0, end: int = -1, *, node: str | None = None, pattern: str | None = None
) -> Command[list[RelaySubscription]]:
    """Return all subscriptions, those of a node, or those to a pattern.

    Keys:    nodes
    Args:    base, view, start, end (inclusive, -1: the last), filter, its value
    Reply:   arrays of three -> list of RelaySubscription
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(subscriptions returned)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    kind, value = ("node", node) if node is not None else ("pattern", pattern) if pattern is not None else ("", "")
    return _view(keys, "subscriptions", _rows(_subscription, 3), start, end, kind, value)


def get_patterns(keys: RelayKeys, start: int = 0, end: int = -1) -> Command[list[tuple[str, int]]]:
    """Return each pattern that has subscribers, and how many.

    Keys:    nodes
    Args:    base, view, start, end (inclusive, -1: the last), filter, its value
    Reply:   arrays of two -> list of (str, int)
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(patterns returned)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _view(keys, "patterns", _rows(_pattern, 2), start, end)


def get_retained(keys: RelayKeys, start: int = 0, end: int = -1) -> Command[list[RetainedMessage]]:
    """Return the messages that are retained, that which goes first at the front.

    Keys:    nodes
    Args:    base, view, start, end (inclusive, -1: the last), filter, its value
    Reply:   arrays of five -> list of RetainedMessage
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(messages returned)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    return _view(keys, "retained", _rows(_retained, 5), start, end)


def get_namespaces(keys: RelayKeys) -> Command[list[str]]:
    """Return the namespaces that are in use, of all with the prefix of these keys.

    Keys:    registry
    Reply:   names -> list of str
    Raises:  UnexpectedReply
    Repeat:  safe
    Cost:    O(namespaces)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    script = RELAY_GET_NAMESPACES
    return Command(script.name, (keys.registry,), (), as_texts, script=script, repeat=Repeat.SAFE)


def touch_namespace(keys: RelayKeys, *, lifetime_ms: Millis) -> Command[None]:
    """Let the namespace count as in use for this long.

    Keys:    registry
    Args:    namespace, ms
    Reply:   nil -> None
    Repeat:  safe
    Cost:    O(log namespaces)
    Source:  specs/06-later-versions.md#sec-4-14
    """
    script = RELAY_TOUCH_NAMESPACE
    args = (keys.namespace, lifetime_ms)
    return Command(script.name, (keys.registry,), args, as_none, script=script, repeat=Repeat.SAFE)


# --- calls and replies ----------------------------------------------------------------------------------------------


class _Checked(msgspec.Struct, frozen=True):
    """A reply that may be a code."""

    command: str
    decode: Callable[[Reply], Any]

    def __call__(self, reply: Reply) -> Any:
        if isinstance(reply, int) and reply in RELAY_CODES:
            raise RelayRefused(self.command, reply)
        return self.decode(reply)


def _command(
    script: Script,
    keys: RelayKeys,
    args: tuple[Arg, ...],
    decode: Callable[[Reply], T],
    repeat: Repeat = Repeat.SAFE,
) -> Command[T]:
    checked: Callable[[Reply], T] = _Checked(script.name, decode)
    return Command(script.name, (keys.nodes,), (keys.base, *args), checked, script=script, repeat=repeat)


def _view(
    keys: RelayKeys,
    view: str,
    decode: Callable[[Reply], T],
    start: int = 0,
    end: int = -1,
    kind: str = "",
    value: str = "",
) -> Command[T]:
    return _command(RELAY_GET, keys, (view, start, end, kind, value), decode)


class _Rows(msgspec.Struct, frozen=True):
    row: Callable[[Sequence[Reply]], Any]
    size: int

    def __call__(self, reply: Reply) -> list[Any]:
        return [self.row(_sized(each, self.size)) for each in as_list(reply)]


def _rows(row: Callable[[Sequence[Reply]], T], size: int) -> Callable[[Reply], list[T]]:
    return _Rows(row, size)


def _sized(reply: Reply, size: int) -> Sequence[Reply]:
    parts = as_list(reply)
    if len(parts) != size:
        raise UnexpectedReply(f"an array of {size}", reply)
    return parts


def _counts(reply: Reply) -> RelayCounts:
    return RelayCounts(*map(as_int, _sized(reply, 4)))


def _node(parts: Sequence[Reply]) -> RelayNodeInfo:
    node, registered, lease_end, info, heartbeat, backlog, dropped, subscriptions = parts
    return RelayNodeInfo(
        as_text(node),
        as_int(registered),
        _optional_int(lease_end),
        as_text(info),
        _optional_int(heartbeat),
        as_int(backlog),
        as_int(dropped),
        as_int(subscriptions),
    )


def _subscription(parts: Sequence[Reply]) -> RelaySubscription:
    return RelaySubscription(*map(as_text, parts))


def _pattern(parts: Sequence[Reply]) -> tuple[str, int]:
    return as_text(parts[0]), as_int(parts[1])


def _retained(parts: Sequence[Reply]) -> RetainedMessage:
    topic, expires_at, message_id, timestamp, text = parts
    return RetainedMessage(_message(as_text(topic), message_id, timestamp, text), as_int(expires_at))


def _published(reply: Reply) -> Published:
    number, nodes, endpoints = map(as_int, _sized(reply, 3))
    return Published(str(number), nodes, endpoints)


class _SubscribedReply(msgspec.Struct, frozen=True):
    topic: str

    def __call__(self, reply: Reply) -> Subscribed:
        added, message_id, timestamp, text = _sized(reply, 4)
        message = _message(self.topic, message_id, timestamp, text) if as_text(message_id) else None
        return Subscribed(as_bool(added), message)


def _inbox(reply: Reply) -> Inbox:
    if not reply:
        return Inbox(())
    streams = list(reply.values()) if isinstance(reply, dict) else [_sized(each, 2)[1] for each in as_list(reply)]
    if len(streams) != 1:
        raise UnexpectedReply("one stream's entries", reply)
    messages: list[RelayMessage] = []
    last = None
    for entry in as_list(streams[0]):
        place, flat = _sized(entry, 2)
        last = as_text(place)
        values = as_texts(flat)
        fields = dict(zip(values[::2], values[1::2], strict=False))
        # another kind of entry is one of a later version
        if fields.get("k") == "msg":
            messages.append(
                RelayMessage(
                    fields.get("t", ""),
                    fields.get("m", ""),
                    _moment(fields.get("ts", "")),
                    fields.get("d", ""),
                    tuple(each for each in fields.get("e", "").split(",") if each),
                    last,
                )
            )
    return Inbox(tuple(messages), last)


def _message(topic: str, message_id: Reply, timestamp: Reply, text: Reply) -> RelayMessage:
    return RelayMessage(topic, as_text(message_id), _moment(as_text(timestamp)), as_text(text))


def _moment(text: str) -> Millis | None:
    return int(text) if text.isdecimal() else None


def _optional_int(reply: Reply) -> int | None:
    return None if reply in (None, b"", "") else as_int(reply)
