"""Every blocking transport goes through the public conformance cases."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import msgspec
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bullmq_protocol.address import parse_url
from bullmq_protocol.testing.conformance import CASES, Case, Need
from bullmq_protocol.transport import Transport
from bullmq_sync.connection import Connection
from bullmq_sync.testing import run_case
from bullmq_sync.transports.redis_py import RedisPyTransport
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server

# A thread that waits for its own reply cannot be cancelled without the connection.
BLOCKING_CASES = [case for case in CASES if Need.CANCEL not in case.needs]


@pytest.fixture(scope="module")
def network(server: Server) -> Iterator[CutProxy]:
    with CutProxy(server.host, server.port) as proxy:
        yield proxy


def native(url: str) -> Connection:
    return Connection(msgspec.structs.replace(parse_url(url), command_timeout_ms=500))


def of_our_own(url: str) -> RedisPyTransport:
    return RedisPyTransport(msgspec.structs.replace(parse_url(url), command_timeout_ms=500))


def of_a_client(url: str) -> RedisPyTransport:
    return RedisPyTransport(redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=0.5))


@pytest.mark.parametrize("make", [native, of_our_own, of_a_client])
@pytest.mark.parametrize("case", BLOCKING_CASES, ids=str)
def test_blocking(case: Case, make: Callable[[str], Transport], server: Server, network: CutProxy) -> None:
    run_case(case, make, server.url, f"conformance-{uuid4().hex}", network=network)
