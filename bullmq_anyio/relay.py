"""The relay of BullMQ 6.4.0 and later: messages from process to process, beside the queues."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self, TypeVar

from bullmq_anyio.drive import Connection, clock, perform, transport_of
from bullmq_anyio.net.closable import Closable
from bullmq_anyio.primitives import shielded
from bullmq_protocol import VERSION
from bullmq_protocol.command import Command
from bullmq_protocol.common.codec import check_text, json_text
from bullmq_protocol.common.keys import DEFAULT_PREFIX
from bullmq_protocol.common.units import Duration, check_whole, to_ms
from bullmq_protocol.errors import Closed, UsageError
from bullmq_protocol.net.transport import AsyncTransport
from bullmq_protocol.relay import commands
from bullmq_protocol.relay.commands import (
    DEFAULT_BATCH,
    DEFAULT_INBOX_LIMIT,
    DEFAULT_LEASE_MS,
    DEFAULT_MAX_BYTES,
    NO_ENTRY,
    Published,
    RelayCounts,
    RelayMessage,
    RelayNodeInfo,
    RelaySubscription,
    RetainedMessage,
)
from bullmq_protocol.relay.names import DEFAULT_NAMESPACE, RelayKeys, check_id, check_pattern, check_topic
from bullmq_protocol.scripts.profile import STRICT

R = TypeVar("R")


class Relay(Closable):
    """A namespace of the relay: publish messages, list nodes, and create nodes that receive messages. It opens nothing
    before the first call, and all tasks of one event loop may share it.

    Every call raises `TransportError` when the connection fails, `ServerError` when the server refuses the call, and
    `UsageError` for a bad argument before anything is sent.

    BullMQ calls its relay experimental: it may change in any version.

    Args:
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which
            remains yours to close, or None, the default: the server that `BULLMQ_URL` names, else 127.0.0.1:6379.
        prefix: The beginning of all keys; `bull` by default, as in BullMQ.
        namespace: The namespace of the messages: 1 to 64 letters, digits, `_` and `-`; `default` by default.
        max_bytes: The longest message that may be published, in bytes of its JSON; 524,288 by default.

    Source: specs/06-later-versions.md#sec-4-14

    Examples:
        >>> relay = Relay("redis://localhost:6379", namespace="printers")
        >>> await relay.aclose()
    """

    def __init__(
        self,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        namespace: str = DEFAULT_NAMESPACE,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        self._keys = RelayKeys.of(namespace, prefix=prefix)
        self._max_bytes = check_whole("max_bytes", max_bytes, least=1)
        self._transport, self._owned = transport_of(connection, STRICT)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.namespace!r}, prefix {self._keys.prefix!r}>"

    @property
    def namespace(self) -> str:
        """The namespace."""
        return self._keys.namespace

    @property
    def keys(self) -> RelayKeys:
        """The names of the namespace's keys in Redis."""
        return self._keys

    async def publish(self, topic: str, data: Any, *, retain: Duration = 0) -> Published:
        """Send a message to all nodes that have subscribed to its topic.

        After a lost connection (`TransportError` with `maybe_applied`) the message may have been sent.

        Args:
            topic: 1 to 16 segments between dots: letters, digits, `_`, `:`, `%` and `-`; at most 512 bytes.
            data: The message: any value with a JSON form.
            retain: How long later subscribers of the topic also get the message, in milliseconds or as a `timedelta`;
                0, the default: not at all. It replaces the message that was retained before.

        Returns:
            The message's id, and the number of nodes and endpoints that get it.

        Raises:
            UsageError: The topic is invalid, or the message longer than `max_bytes`.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> (await relay.publish("jobs.print", {"pages": 3})).nodes
            0
        """
        topic = check_topic("topic", topic)
        text = json_text(data, field="data")
        size = len(text.encode("utf-8", "surrogateescape"))
        if size > self._max_bytes:
            raise UsageError("data", size, f"must have at most {self._max_bytes} bytes as JSON")
        retain_ms = check_whole("retain", to_ms("retain", retain), least=0)
        command = commands.publish(
            self._keys, topic, text, timestamp=clock().wall, retain_ms=retain_ms, max_bytes=self._max_bytes
        )
        if retain_ms:
            await perform(self._transport, commands.touch_namespace(self._keys, lifetime_ms=retain_ms))
        return await perform(self._transport, command)

    async def delete_retained(self, topic: str) -> bool:
        """Delete the message that is retained for a topic.

        Args:
            topic: The topic.

        Returns:
            Whether there was one.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.delete_retained("jobs.print")
            False
        """
        return await perform(self._transport, commands.delete_retained(self._keys, check_topic("topic", topic)))

    def node(
        self,
        node_id: str,
        *,
        name: str = "",
        lease: Duration = DEFAULT_LEASE_MS,
        inbox_limit: int = DEFAULT_INBOX_LIMIT,
        batch_size: int = DEFAULT_BATCH,
        blocking_timeout: Duration = 5_000,
    ) -> RelayNode:
        """Return a node, which receives messages; `async with` registers it.

        Args:
            node_id: Its id, unique in the namespace: 1 to 64 letters, digits, `_` and `-`.
            name: A name for people; the id by default.
            lease: How long the server keeps the node without a renewal, in milliseconds or as a `timedelta`, at least
                3; 30,000 by default.
            inbox_limit: How many messages its inbox holds at most; beyond that the oldest are dropped. 10,000 by
                default.
            batch_size: How many are read at once; 100 by default.
            blocking_timeout: The longest wait in one call to the server, in milliseconds or as a `timedelta`; 5,000 by
                default. It never exceeds a third of the lease.

        Returns:
            The node.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> async with relay.node("printer-1") as node:
            ...     await node.subscribe("jobs.*")
        """
        return RelayNode(
            self._keys,
            self._transport,
            check_id("node_id", node_id),
            check_text("name", name) or node_id,
            check_whole("lease", to_ms("lease", lease), least=3),
            check_whole("inbox_limit", inbox_limit, least=1),
            check_whole("batch_size", batch_size, least=1),
            check_whole("blocking_timeout", to_ms("blocking_timeout", blocking_timeout), least=1),
        )

    async def sweep(self, most: int = 100) -> list[str]:
        """Remove nodes whose lease has ended, and retained messages whose time is up. Nodes do this once per lease.

        Args:
            most: How many nodes to remove at most; 100 by default.

        Returns:
            Their ids.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.sweep()
            []
        """
        return await perform(self._transport, commands.sweep_nodes(self._keys, most=check_whole("most", most, least=1)))

    async def get_counts(self) -> RelayCounts:
        """Count nodes, subscriptions, patterns and retained messages.

        Returns:
            The four counts.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> (await relay.get_counts()).subscriptions
            0
        """
        return await perform(self._transport, commands.get_counts(self._keys))

    async def get_nodes(self, start: int = 0, end: int = -1) -> list[RelayNodeInfo]:
        """Return the nodes in the order in which they were registered.

        Args:
            start: The first position; 0 by default.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The information about each node.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_nodes()
            []
        """
        return await perform(self._transport, commands.get_nodes(self._keys, *_page(start, end)))

    async def get_subscriptions(
        self, start: int = 0, end: int = -1, *, node: str | None = None, pattern: str | None = None
    ) -> list[RelaySubscription]:
        """Return which endpoints subscribe to which topics.

        Args:
            start: The first position; 0 by default.
            end: The last position, inclusive; -1, the end, by default.
            node: Only those of this node; None by default.
            pattern: Only those to this pattern, as it was given; None by default. Not with `node`.

        Returns:
            The subscriptions.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_subscriptions(pattern="jobs.*")
            []
        """
        page = _page(start, end)
        if node is not None and pattern is not None:
            raise UsageError("pattern", pattern, "must not be given with node")
        node = None if node is None else check_id("node", node)
        pattern = None if pattern is None else check_pattern("pattern", pattern)
        command = commands.get_subscriptions(self._keys, *page, node=node, pattern=pattern)
        return await perform(self._transport, command)

    async def get_patterns(self, start: int = 0, end: int = -1) -> list[tuple[str, int]]:
        """Return each pattern that has subscribers, with their number.

        Args:
            start: The first position; 0 by default.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The patterns, each with its number of subscriptions.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_patterns()
            []
        """
        return await perform(self._transport, commands.get_patterns(self._keys, *_page(start, end)))

    async def get_retained(self, start: int = 0, end: int = -1) -> list[RetainedMessage]:
        """Return the retained messages, the first to expire first.

        Args:
            start: The first position; 0 by default.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The messages, each with the time when it expires.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_retained()
            []
        """
        return await perform(self._transport, commands.get_retained(self._keys, *_page(start, end)))

    async def get_namespaces(self) -> list[str]:
        """Return all namespaces in use with this prefix.

        Returns:
            Their names.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_namespaces()
            []
        """
        return await perform(self._transport, commands.get_namespaces(self._keys))

    async def aclose(self) -> None:
        """Close the connection, unless it is a transport that you passed in. Calling it again does nothing.

        Examples:
            >>> await relay.aclose()
        """
        if self._owned:
            await self._transport.aclose()


class RelayNode(AsyncIterator[RelayMessage]):
    """A process that receives messages, one at each step of the iteration. `Relay.node` creates one.

    A batch counts as handled when the next one is read: after a crash, a node that registers with the same id before
    the lease has ended gets the rest of the batch again. Reading renews the lease; if a batch takes longer than the
    lease, call `renew` meanwhile. A node whose lease has ended registers again at its next read, with the subscriptions
    that it had, and misses what was published in between.

    After a `TransportError` the next step continues where it was. The iteration ends when the node is closed. A node is
    for one task; others may subscribe on it.

    Source: specs/06-later-versions.md#sec-4-14

    Examples:
        >>> async with relay.node("printer-1") as node:
        ...     await node.subscribe("jobs.*")
        ...     await relay.publish("jobs.print", {"pages": 3})
        ...     async for message in node:
        ...         print(message.topic, message.data["pages"])
        ...         break
        jobs.print 3
    """

    def __init__(
        self,
        keys: RelayKeys,
        transport: AsyncTransport,
        node_id: str,
        name: str,
        lease_ms: int,
        inbox_limit: int,
        batch_size: int,
        block_ms: int,
    ) -> None:
        self._keys = keys
        self._transport = transport
        self._waiting = transport.dedicated(client_name=keys.client_name(node_id))
        self._node_id = node_id
        self._name = name
        self._lease_ms = lease_ms
        self._inbox_limit = inbox_limit
        self._batch_size = batch_size
        self._block_ms = max(1, min(block_ms, lease_ms // 3))
        self._subscriptions: dict[tuple[str, str], None] = {}
        self._ready: deque[RelayMessage] = deque()
        self._last = NO_ENTRY
        self._done = NO_ENTRY
        self._renew_at: int | None = None
        self._sweep_at = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._node_id!r}, namespace {self._keys.namespace!r}>"

    @property
    def id(self) -> str:
        """Its id."""
        return self._node_id

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return self._closed

    async def start(self) -> None:
        """Register the node, as `async with` does. If it is registered already, nothing changes.

        Raises:
            RelayRefused: The namespace has a layout that this library does not know.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> node = relay.node("printer-1")
            >>> await node.start()
            >>> await node.aclose()
        """
        if self._closed:
            raise Closed
        if self._renew_at is None:
            await self._register()

    async def subscribe(self, pattern: str, endpoint: str = "default") -> RelayMessage | None:
        """Subscribe to a topic, or to all topics that match a pattern.

        Args:
            pattern: A topic, in which `*` stands for any segment, and `>` at the end for one or more.
            endpoint: The subscriber within this process: 1 to 64 letters, digits, `_` and `-`; `default` by default. A
                message has the names of all endpoints of the node that it is for.

        Returns:
            The message retained for the topic; None if there is none, or for a pattern with wildcards.

        Raises:
            RelayRefused: The node's lease has ended, or it was never registered.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> async with relay.node("printer-1") as node:
            ...     await node.subscribe("jobs.>", endpoint="log")
        """
        pattern, endpoint = check_pattern("pattern", pattern), check_id("endpoint", endpoint)
        await self.start()
        found = await self._perform(commands.subscribe(self._keys, self._node_id, endpoint, pattern))
        self._subscriptions[endpoint, pattern] = None
        return found.retained

    async def remove_endpoint(self, endpoint: str = "default") -> int:
        """End all subscriptions of an endpoint.

        Args:
            endpoint: Its name; `default` by default.

        Returns:
            The number of subscriptions ended.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> async with relay.node("printer-1") as node:
            ...     await node.subscribe("jobs.*")
            ...     print(await node.remove_endpoint())
            1
        """
        endpoint = check_id("endpoint", endpoint)
        removed = await self._perform(commands.remove_endpoint(self._keys, self._node_id, endpoint))
        for each in [each for each in self._subscriptions if each[0] == endpoint]:
            del self._subscriptions[each]
        return removed

    async def read(self) -> list[RelayMessage]:
        """Wait for messages and read them. All messages read before count as handled.

        Returns:
            The messages; none if none arrived within `blocking_timeout`.

        Raises:
            Closed: The node was closed.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> async with relay.node("printer-1", blocking_timeout=10) as node:
            ...     print(await node.read())
            []
        """
        await self.start()
        await self._keep()
        if self._done != self._last:
            trim = commands.trim_inbox(self._keys, self._node_id, last=self._last, limit=self._inbox_limit)
            await self._perform(trim)
            self._done = self._last
        found = await self._perform(self._reading())
        if found.last is None:
            wait = commands.wait_for_messages(self._keys, self._node_id, after=self._last, block_ms=self._block_ms)
            await perform(self._waiting, wait)
            found = await self._perform(self._reading())
        self._last = found.last or self._last
        return list(found.messages)

    async def renew(self) -> bool:
        """Renew the lease. Reading does this, too.

        Returns:
            Whether the node was still registered. If False, it has been registered again, with its subscriptions.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> async with relay.node("printer-1") as node:
            ...     print(await node.renew())
            True
        """
        await self.start()
        if not await self._perform(commands.renew_node(self._keys, self._node_id, lease_ms=self._lease_ms)):
            await self._register()
            return False
        await self._renewed()
        return True

    async def aclose(self) -> None:
        """End the iteration and the node's subscriptions, and forget its messages. Calling it again does nothing.

        Examples:
            >>> node = relay.node("printer-1")
            >>> await node.aclose()
            >>> node.closed
            True
        """
        if self._closed:
            return
        self._closed = True
        with shielded():
            try:
                if self._renew_at is not None:
                    await self._perform(commands.unregister_node(self._keys, self._node_id))
            finally:
                await self._waiting.aclose()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RelayMessage:
        try:
            while not self._ready:
                self._ready.extend(await self.read())
        except Closed:
            if self._closed:
                raise StopAsyncIteration from None
            raise
        return self._ready.popleft()

    def _reading(self) -> Command[commands.Inbox]:
        return commands.read_inbox(self._keys, self._node_id, after=self._last, count=self._batch_size)

    async def _register(self) -> None:
        """Register, and subscribe as before; the inbox begins anew."""
        about = {"name": self._name, "host": socket.gethostname(), "pid": os.getpid(), "version": VERSION}
        register = commands.register_node(
            self._keys,
            self._node_id,
            info=json_text(about),
            lease_ms=self._lease_ms,
            inbox_limit=self._inbox_limit,
        )
        while not await self._perform(register):
            # each call has removed a hundred of the subscriptions that were left
            continue
        for endpoint, pattern in list(self._subscriptions):
            await self._perform(commands.subscribe(self._keys, self._node_id, endpoint, pattern))
        await self._renewed()

    async def _renewed(self) -> None:
        self._renew_at = clock().mono + self._lease_ms // 3
        await self._perform(commands.touch_namespace(self._keys, lifetime_ms=self._lease_ms))

    async def _keep(self) -> None:
        """Renew the lease, and look for nodes that are gone, when it is time."""
        now = clock().mono
        if self._renew_at is not None and now >= self._renew_at:
            await self.renew()
        if now >= self._sweep_at:
            await self._perform(commands.sweep_nodes(self._keys))
            self._sweep_at = now + self._lease_ms

    async def _perform(self, command: Command[R]) -> R:
        return await perform(self._transport, command)


def _page(start: int, end: int) -> tuple[int, int]:
    return check_whole("start", start, least=0), check_whole("end", end, least=-1)
