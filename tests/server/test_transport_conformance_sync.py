"""Every blocking transport goes through the public conformance cases."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from bullmq_protocol.net.address import parse_url
from bullmq_protocol.net.transport import Transport
from bullmq_protocol.testing.conformance import CASES, Case, Need, close_ends_waiting_calls
from bullmq_sync.net.connection import Connection
from bullmq_sync.testing import run_case
from tests.server.test_transport_conformance import limit_of
from tests.support.clients import OwnClient
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


def of_a_client(limit_ms: int, url: str, **options: Any) -> OwnClient:
    return OwnClient(url, socket_timeout=limit_ms / 1000, **options)


of_another_client = partial(of_a_client, protocol=3, decode_responses=True)


@pytest.mark.parametrize("case", BLOCKING_CASES, ids=str)
def test_native(case: Case, server: Server, network: CutProxy) -> None:
    run_case(case, partial(native, limit_of(case)), server.url, f"conformance-{uuid4().hex}", network=network)


@pytest.mark.parametrize("make", [of_a_client, of_another_client], ids=["client", "another"])
@pytest.mark.parametrize("case", BLOCKING_CASES, ids=str)
def test_client(case: Case, make: Callable[[int, str], Transport], server: Server, network: CutProxy) -> None:
    # Nothing but the client's time limit ends a call that waits on the shared transport.
    limit_ms = 3000 if case.play is close_ends_waiting_calls else limit_of(case)
    run_case(case, partial(make, limit_ms), server.url, f"conformance-{uuid4().hex}", network=network)
