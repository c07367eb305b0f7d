"""Every blocking transport goes through the public conformance cases."""

from collections.abc import Callable, Iterator
from functools import partial
from uuid import uuid4

import msgspec
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bullmq_protocol.net.address import parse_url
from bullmq_protocol.net.transport import Transport
from bullmq_protocol.testing.conformance import CASES, Case, Need
from bullmq_sync.net.connection import Connection
from bullmq_sync.net.redis_py import RedisPyTransport
from bullmq_sync.testing import run_case
from tests.server.test_transport_conformance import limit_of
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server

# A thread that waits for its own reply cannot be cancelled without the connection.
BLOCKING_CASES = [case for case in CASES if Need.CANCEL not in case.needs]


@pytest.fixture(scope="module")
def network(server: Server) -> Iterator[CutProxy]:
    with CutProxy(server.host, server.port) as proxy:
        yield proxy


def native(limit_ms: int, url: str) -> Connection:
    return Connection(msgspec.structs.replace(parse_url(url), command_timeout_ms=limit_ms))


def of_our_own(limit_ms: int, url: str) -> RedisPyTransport:
    return RedisPyTransport(msgspec.structs.replace(parse_url(url), command_timeout_ms=limit_ms))


def of_a_client(limit_ms: int, url: str) -> RedisPyTransport:
    client = redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=limit_ms / 1000)
    return RedisPyTransport(client)


@pytest.mark.parametrize("make", [native, of_our_own, of_a_client])
@pytest.mark.parametrize("case", BLOCKING_CASES, ids=str)
def test_blocking(case: Case, make: Callable[[int, str], Transport], server: Server, network: CutProxy) -> None:
    run_case(case, partial(make, limit_of(case)), server.url, f"conformance-{uuid4().hex}", network=network)
