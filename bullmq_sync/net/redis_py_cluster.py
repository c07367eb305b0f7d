"""A Redis Cluster for threads, over redis-py's connections. Each queue lives in one slot, so each step has one node.

redis-py's own `RedisCluster` may be handed over: its nodes, its login and its remapping of addresses are used, not its
commands, which are sent again after a lost reply. The rest is as in `bullmq_anyio.net.cluster`.

Source: specs/01-data-model-and-adding.md#sec-2-2
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import msgspec
import redis

from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.units import Millis
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
)
from bullmq_sync.forks import in_child
from bullmq_sync.net.connection import Connection
from bullmq_sync.net.redis_py import RedisPyTransport

_Node = Connection | RedisPyTransport

_DEFAULT_LIMIT_MS: Millis = 3000


class RedisPyClusterTransport:
    """A `Transport` to a cluster, as `RedisPyTransport` is one to a server. Nothing is opened before the first call.

    `server` is `ClusterOptions`, for native connections to the nodes, or a `redis.RedisCluster`, which stays yours and
    is not closed. Raises `UsageError` for a server that is no cluster, and for a transaction over several slots.
    """

    def __init__(self, server: ClusterOptions | redis.RedisCluster) -> None:
        make: Callable[[Place], _Node]
        if isinstance(server, ClusterOptions):
            seeds, make, limit_ms = server.nodes, _from_options(server), server.server.command_timeout_ms
        elif isinstance(server, redis.RedisCluster):  # pyright: ignore[reportUnnecessaryIsInstance]
            seeds, make = _from_client(server)
            limit_ms = _DEFAULT_LIMIT_MS
        else:
            raise UsageError("connection", type(server), "must be ClusterOptions or a redis.RedisCluster")
        self._begin(seeds, make, limit_ms, None, None)

    def _begin(
        self,
        seeds: tuple[Place, ...],
        make: Callable[[Place], _Node],
        limit_ms: Millis | None,
        client_name: str | None,
        parent: RedisPyClusterTransport | None,
    ) -> None:
        self._seeds = seeds
        self._make = make
        self._limit_ms = limit_ms
        self._client_name = client_name
        self._parent = parent
        self._children: set[RedisPyClusterTransport] = set()
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._nodes: dict[Place, _Node] = {}
        self._map = SlotMap()
        self._owners: dict[int | None, Place] = {}
        self._suspect: Place | None = None
        self._stale = True
        self._loads = 0
        self._stops = 0
        self._last: int | None = None
        self._closed: bool = parent is not None and parent._closed
        self._pausing = threading.Event()
        self._interrupted = False
        self._busy = False
        in_child(self._forked)

    def _forked(self) -> None:
        """In the child of a fork: a thread of the parent may have held them."""
        self._lock, self._loading = threading.Lock(), threading.Lock()
        self._pausing = threading.Event()
        if self._closed:
            self._pausing.set()
        self._interrupted = self._busy = False

    def dedicated(self, *, client_name: str | None = None) -> RedisPyClusterTransport:
        """Return a transport with a connection of its own, for blocking commands; made and named at first use."""
        child = object.__new__(type(self))
        name = self._client_name if client_name is None else client_name
        child._begin(self._seeds, self._make, self._limit_ms, name, self)
        with self._lock:
            self._children.add(child)
        return child

    def server_info(self) -> ServerInfo:
        """Return what a node said of itself; connects if that has not happened yet. Raises as `perform` does."""
        return self._node(self._locate(Locate(self._last))).server_info()

    def perform(self, step: Command[Any] | Batch, /) -> Any:
        """Send one step to the node that serves its keys and return the raw reply, as `RedisPyTransport.perform`.

        A batch over several slots that is not atomic becomes one for each.
        """
        slots = slots_of(step)
        if isinstance(step, Command) or len(slots) <= 1:
            return self._follow(step, next(iter(slots), None))
        replies: list[Any] = [None] * len(step.commands)
        begun = False
        for slot, numbers in slots.items():
            try:
                part = self._follow(Batch(tuple(step.commands[number] for number in numbers)), slot)
            except TransportError as error:
                if not begun:
                    raise
                raise type(error)(error.reason, maybe_applied=True) from error
            begun = True
            for number, reply in zip(numbers, part, strict=True):
                replies[number] = reply
        return replies

    def interrupt(self) -> None:
        """Make a `perform` that is blocked in another thread raise `ConnectionLost` at once; otherwise do nothing."""
        with self._lock:
            if not self._busy:
                return
            self._interrupted = True
            nodes = tuple(self._nodes.values())
        self._pausing.set()
        for node in nodes:
            node.interrupt()

    def has_ended(self) -> bool:
        """Look, without waiting, whether the connection has been lost since it was used last."""
        place = self._owners.get(self._last)
        node = None if place is None else self._nodes.get(place)
        return node is not None and node.has_ended()

    def stop_connecting(self) -> None:
        """End attempts to connect that are under way: who waits for them gets `ConnectionLost`."""
        self._stops += 1
        with self._lock:
            nodes = tuple(self._nodes.values())
        for node in nodes:
            node.stop_connecting()

    def close(self) -> None:
        """Close all connections, also those made by `dedicated`. Waiting calls raise `Closed`. May be called twice."""
        with self._lock:
            self._closed = True
            children, self._children = self._children, set()
            nodes = tuple(self._nodes.values())
        self._pausing.set()
        for child in children:
            child.close()
        if self._parent is not None:
            with self._parent._lock:
                self._parent._children.discard(self)
        for node in nodes:
            node.close()

    def _follow(self, step: Command[Any] | Batch, slot: int | None) -> Any:
        if slot is None:
            # Questions about a node, such as which clients it has, are for the one that was used last.
            slot = (self._parent or self)._last if self._last is None else self._last
        self._last = slot
        course = follow(step, slot, self._limit_ms)
        resume: Any = course.send
        stops = (self._parent or self)._stops
        value: Any = None
        self._busy = True
        try:
            while True:
                try:
                    act: Act = resume(value)
                except StopIteration as stop:
                    return stop.value
                try:
                    self._check_open()
                    resume, value = course.send, self._do(act, stops)
                except Exception as error:
                    resume, value = course.throw, error
        finally:
            if self._parent is not None:
                with self._lock:
                    self._busy = self._interrupted = False
                    if not self._closed:
                        self._pausing.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed
        if self._interrupted:
            raise ConnectionLost("interrupted", maybe_applied=False)

    def _do(self, act: Act, stops: int) -> Any:
        root = self._parent or self
        match act:
            case Send(place, step):
                try:
                    return self._node(place).perform(step)
                except TransportError:
                    root._suspect = place
                    root._stale = True
                    raise
            case Locate():
                if act.fresh and root._stops != stops:
                    raise _given_up()
                return root._locate(act)
            case Learn(redirect):
                root._map = root._map.moved(redirect)
                root._stale = True
            case Pause(delay_ms):
                self._pausing.wait(delay_ms / 1000)
        return None

    def _node(self, place: Place) -> _Node:
        """Return the transport to a node."""
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

    # --- the map of the slots -----------------------------------------------------------------------------------------

    def _locate(self, question: Locate) -> Place:
        if self._stale or question.fresh:
            loads, stops = self._loads, self._stops
            with self._loading:
                # Whoever waited for another's question takes its answer.
                if self._stops != stops:
                    raise _given_up()
                if self._loads == loads:
                    self._load(question.avoid or self._suspect)
        place = self._owners.get(question.slot) or self._map.owner(question.slot)
        if place is None:
            raise ServerError(f"CLUSTERDOWN no node serves slot {question.slot}")
        self._owners[question.slot] = place
        return place

    def _load(self, avoid: Place | None) -> None:
        """Ask one node after the other for the map, the one that failed last."""
        known = dict.fromkeys((*self._map.nodes, *self._seeds))
        failures: list[str] = []
        for place in sorted(known, key=lambda each: each == avoid):
            try:
                self._map = read_slots(self._node(place).perform(CLUSTER_SLOTS), place)
            except (Closed, AuthenticationFailed, ServerTooOld, UsageError):
                raise
            except BullMQError as error:
                if isinstance(error, ServerError) and "cluster support disabled" in str(error):
                    host, port = place
                    rule = "is no cluster: connect to it by redis://, with TLS by rediss://"
                    raise UsageError("nodes", f"{host}:{port}", rule) from error
                failures.append(f"{place[0]}:{place[1]}: {error}")
                continue
            self._loads += 1
            self._suspect = None
            self._stale = False
            self._owners.clear()
            return
        raise ConnectionLost(f"no node of the cluster answers: {'; '.join(failures)}", maybe_applied=False)


def _given_up() -> ConnectionLost:
    return ConnectionLost("the attempt to connect was given up", maybe_applied=False)


def is_cluster_client(client: object) -> bool:
    """Whether it is a `redis.RedisCluster`."""
    return isinstance(client, redis.RedisCluster)


def _from_options(options: ClusterOptions) -> Callable[[Place], _Node]:
    def make(place: Place) -> _Node:
        host, port = place
        return Connection(msgspec.structs.replace(options.server, host=host, port=port))

    # What is wrong with the options shows at once.
    make(options.nodes[0])
    return make


def _from_client(client: redis.RedisCluster) -> tuple[tuple[Place, ...], Callable[[Place], _Node]]:
    manager: Any = client.nodes_manager
    seeds = tuple((str(node.host), int(node.port)) for node in manager.startup_nodes.values())

    def make(place: Place) -> _Node:
        host, port = manager.remap_host_port(*place)
        return RedisPyTransport(cast("redis.Redis", manager.create_redis_node(host, port, **manager.connection_kwargs)))

    return seeds, make
