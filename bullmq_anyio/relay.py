"""The relay of BullMQ 6.4.0 and later: messages from process to process, beside the queues."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self, TypeVar

from bullmq_anyio.drive import Connection, clock, perform, transport_of
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


class Relay:
    """A namespace of the relay: publish messages, see who is there, and make nodes that get them. Nothing is opened
    before the first call; safe to share between the tasks of one event loop.

    Every call raises `TransportError` when the connection fails, `ServerError` when the server refuses the call, and
    `UsageError` for a bad argument before anything is sent.

    BullMQ calls its relay experimental: it may change in any version.

    Args:
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which its
            owner closes, or None, the default: the server that `BULLMQ_URL` names, else 127.0.0.1:6379.
        prefix: What all keys begin with, as in BullMQ `bull` by default.
        namespace: Whose messages they are: 1 to 64 letters, digits, `_` and `-`; `default` by default.
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

        After a lost connection (`TransportError` with `maybe_applied`) it may have been sent.

        Args:
            topic: 1 to 16 segments between dots: letters, digits, `_`, `:`, `%` and `-`; at most 512 bytes.
            data: The message: any value with a JSON form.
            retain: For how long those get it too who subscribe to the topic later, in milliseconds or as a `timedelta`;
                0, the default: not at all. It takes the place of what was retained before.

        Returns:
            Its id, and how many nodes and endpoints get it.

        Raises:
            UsageError: The topic is none, or the message longer than `max_bytes`.

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
        """Return a node, which gets messages; `async with` registers it.

        Args:
            node_id: Its id, of no other node in the namespace: 1 to 64 letters, digits, `_` and `-`.
            name: What people call it; the id by default.
            lease: How long the server keeps it without a sign of life, in milliseconds or as a `timedelta`; 30,000 by
                default, at least 3.
            inbox_limit: How many messages wait for it at most; the oldest go first. 10,000 by default.
            batch_size: How many are read at once; 100 by default.
            blocking_timeout: The longest wait in one call of the server, in milliseconds or as a `timedelta`; 5,000 by
                default. A third of the lease is never exceeded.

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
        """Remove nodes whose lease is over, and messages that were retained for long enough. Nodes do this once per
        lease.

        Args:
            most: How many nodes at most; 100 by default.

        Returns:
            Their ids.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.sweep()
            []
        """
        return await perform(self._transport, commands.sweep_nodes(self._keys, most=check_whole("most", most, least=1)))

    async def get_counts(self) -> RelayCounts:
        """Count nodes, subscriptions, patterns and messages that are retained.

        Returns:
            The four counts.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> (await relay.get_counts()).subscriptions
            0
        """
        return await perform(self._transport, commands.get_counts(self._keys))

    async def get_nodes(self, start: int = 0, end: int = -1) -> list[RelayNodeInfo]:
        """Return the nodes in the order in which they came.

        Args:
            start: The place of the first; 0 by default.
            end: The place of the last; -1, the default: to the end.

        Returns:
            What is known of each.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_nodes()
            []
        """
        return await perform(self._transport, commands.get_nodes(self._keys, *_page(start, end)))

    async def get_subscriptions(
        self, start: int = 0, end: int = -1, *, node: str | None = None, pattern: str | None = None
    ) -> list[RelaySubscription]:
        """Return who gets what.

        Args:
            start: The place of the first; 0 by default.
            end: The place of the last; -1, the default: to the end.
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
        """Return each pattern that has subscribers, and how many.

        Args:
            start: The place of the first; 0 by default.
            end: The place of the last; -1, the default: to the end.

        Returns:
            Patterns with their numbers of subscriptions.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_patterns()
            []
        """
        return await perform(self._transport, commands.get_patterns(self._keys, *_page(start, end)))

    async def get_retained(self, start: int = 0, end: int = -1) -> list[RetainedMessage]:
        """Return the messages that are retained, that which goes first at the front.

        Args:
            start: The place of the first; 0 by default.
            end: The place of the last; -1, the default: to the end.

        Returns:
            The messages, each with the moment when it goes.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_retained()
            []
        """
        return await perform(self._transport, commands.get_retained(self._keys, *_page(start, end)))

    async def get_namespaces(self) -> list[str]:
        """Return the namespaces in use, of all with this prefix.

        Returns:
            Their names.

        Source: specs/06-later-versions.md#sec-4-14

        Examples:
            >>> await relay.get_namespaces()
            []
        """
        return await perform(self._transport, commands.get_namespaces(self._keys))

    async def aclose(self) -> None:
        """Close the connection, unless it is a transport that was handed over. Calling it again does nothing.

        Examples:
            >>> await relay.aclose()
        """
        if self._owned:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class RelayNode(AsyncIterator[RelayMessage]):
    """A process that gets messages, one at each step of the iteration. `Relay.node` makes one.

    A message counts as done with when the next batch is asked for: after a crash, a node that registers with the same
    id before its lease has ended gets the rest of the batch again. The lease is renewed by reading; who needs longer
    than the lease for a batch calls `renew` meanwhile. A node whose lease has ended registers again at its next read,
    with the subscriptions that it had: what was published between is lost to it.

    After a `TransportError` the next step goes on where it was. The iteration ends when the node is closed. It is for
    one task; others may subscribe on it.

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
        """Whether it was closed."""
        return self._closed

    async def start(self) -> None:
        """Register the node, which `async with` does. A node that is registered stays so.

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
        """Get the messages of a topic, or of all topics that fit a pattern.

        Args:
            pattern: A topic, in which `*` stands for any segment, and `>` at the end for one or more.
            endpoint: For whom in this process: 1 to 64 letters, digits, `_` and `-`; `default` by default. A message
                has the names of all endpoints of the node that it is for.

        Returns:
            The message that is retained for the topic; None if there is none, and for a pattern with wildcards.

        Raises:
            RelayRefused: The node's lease is over, or it was never registered.

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
            How many there were.

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
        """Wait for messages, and read them. All that were read before count as done with.

        Returns:
            The messages; none if none came within `blocking_timeout`.

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
        """Let the lease begin again. Reading does it too.

        Returns:
            Whether the node is still registered; False: it was not, and is again, with its subscriptions.

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
