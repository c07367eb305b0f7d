"""Every transport for asyncio and trio goes through the public conformance cases."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from bullmq_anyio.net.connection import Connection
from bullmq_anyio.testing import run_case
from bullmq_protocol.net.address import parse_url
from bullmq_protocol.testing.conformance import CASES, Case, blocking_call_runs_out, no_reply_in_time
from tests.support.clients import OwnAsyncioClient
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


def of_a_client(limit_ms: int, url: str) -> OwnAsyncioClient:
    return OwnAsyncioClient(url, command_timeout_ms=limit_ms)


def of_another_client(limit_ms: int, url: str) -> OwnAsyncioClient:
    # Its own limit is not for what blocks on purpose.
    options: dict[str, Any] = {"socket_timeout": 1, "decode_responses": True, "protocol": 3, "max_connections": 4}
    return OwnAsyncioClient(url, command_timeout_ms=limit_ms, **options)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_native(case: Case, server: Server, network: CutProxy, anyio_backend: Any) -> None:
    make = partial(native, limit_of(case))
    await run_case(case, make, server.url, f"conformance-{uuid4().hex}", network=network)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("make", [of_a_client, of_another_client], ids=["client", "another"])
async def test_client(
    case: Case, make: Callable[[int, str], OwnAsyncioClient], server: Server, network: CutProxy, anyio_backend: Any
) -> None:
    await run_case(case, partial(make, limit_of(case)), server.url, f"conformance-{uuid4().hex}", network=network)
