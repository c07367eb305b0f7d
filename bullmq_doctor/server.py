"""A client of redis-py for every kind of address, and what it is asked about the whole server."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisClusterException, ResponseError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.topology import Address, ClusterOptions, Place, SentinelOptions

SCANNED = 1000
"""Steps of SCAN, of a thousand keys each, in which the doctor looks for queues."""
_LIMITS: dict[str, Any] = {"socket_timeout": 10, "socket_connect_timeout": 5, "decode_responses": True}
_LIMITS["encoding_errors"] = "replace"


@contextmanager
def connected(address: Address) -> Generator[Any]:
    """Give a client for the time of a block: of the server, of the master behind sentinels, or of the whole cluster.

    The URL of one node of a cluster gives the whole cluster, too. Raises what redis-py raises.
    """
    if isinstance(address, ClusterOptions):
        with _cluster(address.nodes, address.server) as cluster:
            yield cluster
        return
    if isinstance(address, SentinelOptions):
        with _behind_sentinels(address) as master:
            yield master
        return
    with _single(address) as client:
        clustered = client.info("cluster").get("cluster_enabled") == 1
        if not clustered:
            yield client
    if clustered:
        with _cluster(((address.host, address.port),), address) as cluster:
            yield cluster


def _login(options: ConnectionOptions) -> dict[str, Any]:
    tls = {"ssl": True} if options.tls else {}
    return {"username": options.username, "password": options.password, **tls}


def _single(options: ConnectionOptions) -> Any:
    place: dict[str, Any] = {"host": options.host, "port": options.port}
    if options.unix_path is not None:
        place = {"unix_socket_path": options.unix_path}
    client: Any = redis.Redis
    return client(**place, **_login(options), db=options.db, protocol=2, retry=Retry(NoBackoff(), 0), **_LIMITS)


@contextmanager
def _behind_sentinels(options: SentinelOptions) -> Generator[Any]:
    at_sentinels = _login(options.sentinel(options.sentinels[0]))
    sentinel: Any = cast("Any", Sentinel)(
        options.sentinels,
        sentinel_kwargs={**at_sentinels, "protocol": 2, "retry": Retry(NoBackoff(), 0), **_LIMITS},
        **_login(options.server),
        db=options.server.db,
        protocol=2,
        retry=Retry(NoBackoff(), 0),
        **_LIMITS,
    )
    try:
        try:
            sentinel.discover_master(options.service)
        except MasterNotFoundError as error:
            # The rest of its text are objects.
            raise RedisConnectionError(str(error).partition(" : ")[0]) from error
        with sentinel.master_for(options.service) as client:
            yield client
    finally:
        for each in sentinel.sentinels:
            each.close()


@contextmanager
def _cluster(nodes: tuple[Place, ...], options: ConnectionOptions) -> Generator[Any]:
    start = [cast("Any", ClusterNode)(host, port) for host, port in nodes]
    try:
        found: Any = cast("Any", RedisCluster)(startup_nodes=start, **_login(options), **_LIMITS)
    except RedisClusterException as error:
        # It is no error like the others to redis-py.
        raise RedisConnectionError(str(error)) from error
    with found as cluster:
        try:
            yield cluster
        finally:
            # Closing it would leave the connections of its nodes.
            cluster.disconnect_connection_pools()


def is_cluster(client: Any) -> bool:
    return isinstance(client, RedisCluster)


def find_queues(client: Any, prefix: str, most_steps: int | None = SCANNED) -> tuple[set[str], bool]:
    """Return the names of the queues of a prefix, and whether the search was cut short; None: it never is."""
    begin, end = f"{prefix}:", ":meta"
    keys, cut = scan(client, begin, f"*{end}", most_steps)
    names = (key[len(begin) : -len(end)] for key in keys)
    return {name for name in names if name and ":" not in name}, cut


def scan(client: Any, begin: str, rest: str, most_steps: int | None = SCANNED) -> tuple[set[str], bool]:
    """Return the keys that begin so and match the rest, and whether the search was cut short."""
    found: set[str] = set()
    pattern = "".join(f"\\{letter}" if letter in "*?[]\\^" else letter for letter in begin)
    nodes: list[Any] = client.get_primaries() if is_cluster(client) else [None]
    for node in nodes:
        at = {} if node is None else {"target_nodes": node}
        cursor: Any = 0
        steps = 0
        while most_steps is None or steps < most_steps:
            answer: Any = client.scan(cursor=cursor, match=f"{pattern}{rest}", count=1000, **at)
            cursor, batch = answer
            if isinstance(cursor, dict):
                cursor = next(iter(cast("dict[str, int]", cursor).values()))
            found.update(batch)
            steps += 1
            if not cursor:
                break
        else:
            return found, True
    return found, False


def client_names(client: Any) -> tuple[list[str] | None, str | None]:
    """Return the names of all connections, or the error."""
    try:
        if is_cluster(client):
            lists = [client.client_list(target_nodes=node) for node in client.get_nodes()]
        else:
            lists = [client.client_list()]
    except ResponseError as error:
        return None, str(error)
    return [str(each.get("name", "")) for clients in lists for each in clients], None


def count_workers(keys: QueueKeys, names: list[str] | None) -> int | None:
    """Count the connections by which workers of this queue wait: ours, Node's and those of the Python port.

    Source: specs/03-transitions-admin-getters.md#sec-14
    """
    if names is None:
        return None
    own, named = keys.client_name(), keys.client_name("")
    return sum(name in (own, port_name(keys)) or name.startswith(named) for name in names)


def port_name(keys: QueueKeys) -> str:
    """Return how BullMQ's Python port names the connections of a worker.

    Source: specs/06-later-versions.md#sec-4-13
    """
    return keys.base.removesuffix(":")
