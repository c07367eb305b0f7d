"""A Redis Cluster by a client of redis-py that was handed over: its nodes, its login and its remapping of addresses.

Its commands are not used: it sends them again after a lost reply.
"""

from __future__ import annotations

from typing import Any, cast

import redis

from bullmq_protocol.errors import UsageError
from bullmq_protocol.net.topology import ClusterOptions, Place
from bullmq_sync.net.cluster import ClusterConnection, Node
from bullmq_sync.net.redis_py import RedisPyTransport


class RedisPyClusterTransport(ClusterConnection):
    """A `Transport` to the cluster of a `redis.RedisCluster`, which stays yours and is not closed.

    Raises `UsageError` for a server that is no cluster, and for a transaction over several slots.
    """

    def __init__(self, client: redis.RedisCluster) -> None:
        if not isinstance(client, redis.RedisCluster):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("connection", type(client), "must be a redis.RedisCluster")
        self._manager: Any = client.nodes_manager
        seeds = ((str(node.host), int(node.port)) for node in self._manager.startup_nodes.values())
        super().__init__(ClusterOptions(nodes=tuple(seeds)))

    def _make(self, place: Place) -> Node:
        manager = self._manager
        host, port = manager.remap_host_port(*place)
        return RedisPyTransport(cast("redis.Redis", manager.create_redis_node(host, port, **manager.connection_kwargs)))


def wrapped(client: object) -> RedisPyTransport | RedisPyClusterTransport | None:
    """Return the transport over a `redis.Redis` or a `redis.RedisCluster`, None for another object."""
    if isinstance(client, redis.RedisCluster):
        return RedisPyClusterTransport(client)
    return RedisPyTransport(client) if isinstance(client, redis.Redis) else None
