"""Every transport for asyncio and trio goes through the public conformance cases."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from bullmq_anyio.net.connection import Connection
from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from bullmq_anyio.testing import run_case
from bullmq_protocol.net.address import parse_url
from bullmq_protocol.testing.conformance import CASES, Case, blocking_call_runs_out, no_reply_in_time
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server


@pytest.fixture(scope="module")
def network(server: Server) -> Iterator[CutProxy]:
    with CutProxy(server.host, server.port) as proxy:
        yield proxy


def limit_of(case: Case) -> int:
    """Return a time limit in ms: short for what waits for it or beyond it, else more than a busy machine takes."""
    return 500 if case.play in (no_reply_in_time, blocking_call_runs_out) else 20_000


def native(limit_ms: int, url: str) -> Connection:
    return Connection(msgspec.structs.replace(parse_url(url), command_timeout_ms=limit_ms))


def over_redis_asyncio(limit_ms: int, url: str) -> RedisAsyncioTransport:
    client = redis.asyncio.Redis.from_url(url, retry=Retry(NoBackoff(), 0), decode_responses=True)
    return RedisAsyncioTransport(client, command_timeout_ms=limit_ms)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_native(case: Case, server: Server, network: CutProxy, anyio_backend: Any) -> None:
    make = partial(native, limit_of(case))
    await run_case(case, make, server.url, f"conformance-{uuid4().hex}", network=network)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_redis_asyncio(case: Case, server: Server, network: CutProxy, anyio_backend: Any) -> None:
    make = partial(over_redis_asyncio, limit_of(case))
    await run_case(case, make, server.url, f"conformance-{uuid4().hex}", network=network)
