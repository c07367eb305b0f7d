"""A Redis Cluster for asyncio and trio: each queue lives in one slot, so each step goes to one node.

There is a connection for each node that is needed, and a map of the slots, read at the first call and again when a node
was lost or said that a slot has moved. What is done about a refusal is decided in
`bullmq_protocol.net.topology.follow`.

Source: specs/01-data-model-and-adding.md#sec-2-2
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from bullmq_anyio.net.connection import Connection
from bullmq_anyio.net.room import check_room
from bullmq_anyio.net.sharing import Calling, Turn, Turns
from bullmq_anyio.net.sockets import check_tls
from bullmq_anyio.primitives import in_each_process
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.errors import (
    AuthenticationFailed,
    BullMQError,
    Closed,
    ConnectionLost,
    ServerError,
    ServerTooOld,
    TransportError,
    UsageError,
)
from bullmq_protocol.net.server_info import ServerInfo
from bullmq_protocol.net.topology import (
    CLUSTER_SLOTS,
    Act,
    ClusterOptions,
    Learn,
    Locate,
    Pause,
    Place,
    Send,
    SlotMap,
    follow,
    read_slots,
    slots_of,
    unserved,
)


class Node(Protocol):
    """The methods of a node's connection that are used here."""

    async def perform(self, step: Command[Any] | Batch, /) -> Any: ...
    async def server_info(self) -> ServerInfo: ...
    async def aclose(self) -> None: ...
    def dedicated(self, *, client_name: str | None = None) -> Node: ...
    def has_ended(self) -> bool: ...
    def stop_connecting(self) -> None: ...


class ClusterConnection(Calling):
    """An `AsyncTransport` to a cluster, as `Connection` is one to a server. Nothing is opened before the first call.

    Raises `UsageError` for a server that is no cluster, and for a transaction over several slots.
    """

    def __init__(self, options: ClusterOptions) -> None:
        check_tls(options.server.tls)
        super().__init__()
        self._options = options
        self._client_name = options.server.client_name
        self._parent: ClusterConnection | None = None
        self._children: set[ClusterConnection] = set()
        self._nodes: dict[Place, Node] = {}
        self._map = SlotMap()
        self._owners: dict[int | None, Place] = {}
        self._suspect: Place | None = None
        self._stale = True
        self._loads = 0
        self._stops = 0
        self._last: int | None = None
        in_each_process(self._begin)

    def _begin(self) -> None:
        super()._begin()
        self._loading = Turns(self._options.address)
        """Whose turn it is to ask for the map."""

    @property
    def options(self) -> ClusterOptions:
        """The options it was made with."""
        return self._options

    async def server_info(self) -> ServerInfo:
        """Return a node's server info; connects if that has not happened yet. Raises as `perform` does."""
        place = await self._locate(Locate(self._last))
        if place is None:
            raise unserved(self._last)
        return await self._node(place).server_info()

    def dedicated(self, *, client_name: str | None = None) -> ClusterConnection:
        """Return a transport with a connection of its own for blocking commands; cancelling a call on it drops it."""
        child = ClusterConnection(self._options)
        child._client_name = client_name if client_name is not None else self._client_name
        child._parent = self
        with self._lock:
            child._closed = self._closed
            self._children.add(child)
        return child

    def has_ended(self) -> bool:
        """Look, without waiting, whether the connection has been lost since it was used last."""
        place = self._owners.get(self._last)
        node = None if place is None else self._nodes.get(place)
        return node is not None and node.has_ended()

    def stop_connecting(self) -> None:
        """End attempts to connect that are under way: their callers get `ConnectionLost`."""
        self._stops += 1
        with self._lock:
            nodes = tuple(self._nodes.values())
        for node in nodes:
            node.stop_connecting()

    async def aclose(self) -> None:
        """Close all connections, also those made by `dedicated`. Waiting calls raise `Closed`. Idempotent."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
            nodes = tuple(self._nodes.values())
        self._wake()
        for child in children:
            await child.aclose()
        parent = self._parent
        if parent is not None:
            with parent._lock:
                parent._children.discard(self)
        for node in nodes:
            await node.aclose()

    async def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step to the node that serves its keys and return the raw reply, as `Connection.perform`.

        A batch over several slots that is not atomic becomes one for each.
        """
        slots = slots_of(step)
        if isinstance(step, Command) or len(slots) <= 1:
            return await self._follow(step, next(iter(slots), None))
        replies: list[Any] = [None] * len(step.commands)
        begun = False
        for slot, numbers in slots.items():
            try:
                part = await self._follow(Batch(tuple(step.commands[number] for number in numbers)), slot)
            except TransportError as error:
                if not begun:
                    raise
                raise type(error)(error.reason, maybe_applied=True) from error
            begun = True
            for number, reply in zip(numbers, part, strict=True):
                replies[number] = reply
        return replies

    async def _follow(self, step: Command[Any] | Batch, slot: int | None) -> Any:
        if slot is None:
            # Questions about a node, such as which clients it has, are for the one that was used last.
            slot = (self._parent or self)._last if self._last is None else self._last
        self._last = slot
        course = follow(step, slot, self._options.server.command_timeout_ms)
        resume: Any = course.send
        stops = (self._parent or self)._stops
        value: Any = None
        self._enter()
        try:
            while True:
                try:
                    act: Act = resume(value)
                except StopIteration as stop:
                    return stop.value
                try:
                    self._check_open()
                    resume, value = course.send, await self._do(act, stops)
                except Exception as error:
                    resume, value = course.throw, error
        finally:
            self._leave()

    async def _do(self, act: Act, stops: int) -> Any:
        root = self._parent or self
        match act:
            case Send(place, step):
                try:
                    return await self._node(place).perform(step)
                except TransportError:
                    root._suspect = place
                    root._stale = True
                    raise
            case Locate():
                if act.fresh and root._stops != stops:
                    raise _given_up()
                return await root._locate(act)
            case Learn(redirect):
                root._map = root._map.moved(redirect)
                root._stale = True
            case Pause(delay_ms):
                await self._pause(delay_ms / 1000)
        return None

    def _node(self, place: Place) -> Node:
        """Return the connection to a node."""
        node = self._nodes.get(place)
        if node is not None:
            return node
        made = self._make(place) if self._parent is None else self._parent._node(place)
        with self._lock:
            if self._closed:
                raise Closed
            node = self._nodes.get(place)
            if node is None:
                node = made if self._parent is None else made.dedicated(client_name=self._client_name)
                self._nodes[place] = node
        return node

    def _make(self, place: Place) -> Node:
        host, port = place
        return Connection(msgspec.structs.replace(self._options.server, host=host, port=port))

    # --- the map of the slots -----------------------------------------------------------------------------------------

    async def _locate(self, question: Locate) -> Place | None:
        if self._stale or question.fresh:
            loads, stops = self._loads, self._stops
            check_room()
            turn = Turn()
            try:
                await self._loading.take(turn)
                if self._stops != stops:
                    raise _given_up()
                # A caller that waited for another's question takes its answer.
                if self._loads == loads:
                    await self._ask(question.slot, question.avoid or self._suspect)
            finally:
                try:
                    self._loading.leave(turn)
                except BaseException:
                    # By a signal's handler: nobody must be left behind.
                    self._loading.leave(turn)
                    raise
        place = self._owners.get(question.slot) or self._map.owner(question.slot)
        if place is None:
            # Nothing else would have a map with such a gap asked for again.
            self._stale = True
            return None
        self._owners[question.slot] = place
        return place

    async def _ask(self, slot: int | None, avoid: Place | None) -> None:
        """Ask one node after the other for the map, the one that failed last, until one knows who serves the slot."""
        best: SlotMap | None = None
        asked: list[Place] = []
        known = sorted(dict.fromkeys((*self._map.nodes, *self._options.nodes)), key=lambda each: each == avoid)
        failures: list[str] = []
        while left := [place for place in known if place not in asked]:
            place = left[0]
            asked.append(place)
            try:
                found = read_slots(await self._node(place).perform(CLUSTER_SLOTS), place)
            except (Closed, AuthenticationFailed, ServerTooOld, UsageError):
                raise
            except BullMQError as error:
                if isinstance(error, ServerError) and "cluster support disabled" in str(error):
                    host, port = place
                    rule = "is no cluster: connect to it by redis://, with TLS by rediss://"
                    raise UsageError("nodes", f"{host}:{port}", rule) from error
                failures.append(f"{place[0]}:{place[1]}: {error}")
                continue
            serves = found.owner(slot) is not None
            if best is None or serves:
                best = found
            if serves:
                break
            known += found.nodes
        if best is not None:
            self._map = best
            self._loads += 1
            self._suspect = None
            self._stale = False
            self._owners.clear()
            return
        raise ConnectionLost(f"no node of the cluster answers: {'; '.join(failures)}", maybe_applied=False)


def _given_up() -> ConnectionLost:
    return ConnectionLost("the attempt to connect was given up", maybe_applied=False)
