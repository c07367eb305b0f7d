"""TLS where a server has none, and none where it has: every transport says so, whichever way it was asked."""

import functools
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio.to_thread
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import KeyLayout
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.errors import ConnectionLost, TransportError, TransportTimeout
from tests.support import servers
from tests.support.adapters import Adapter
from tests.support.clients import OwnClient
from tests.support.servers import Server

pytestmark = pytest.mark.anyio

Perform = Callable[[str], Awaitable[Any]]
_LIMIT = "connect_timeout_ms=1000"


def blocking(make: Callable[[str], Any]) -> Perform:
    def perform(url: str) -> Any:
        transport = make(url)
        try:
            return transport.perform(ping())
        finally:
            transport.close()

    async def in_thread(url: str) -> Any:
        return await anyio.to_thread.run_sync(functools.partial(perform, url))

    return in_thread


def client(url: str) -> OwnClient:
    return OwnClient(url.partition("?")[0], socket_timeout=0.3)


@pytest.fixture(params=["native", "threads", "client"])
async def perform(request: pytest.FixtureRequest, anyio_backend_name: str) -> Perform:
    """One command over a transport of its own."""

    async def native(url: str) -> Any:
        connection = bullmq_anyio.connect(url)
        try:
            return await connection.perform(ping())
        finally:
            await connection.aclose()

    ways: dict[str, Perform] = {
        "native": native,
        "threads": blocking(bullmq_sync.connect),
        "client": blocking(client),
    }
    return ways[request.param]


@pytest.fixture(scope="module")
def with_tls() -> Iterator[Server]:
    with servers.start(tls=True) as found:
        yield found


@contextmanager
def speaking_plainly() -> Iterator[int]:
    """A server that answers whatever it reads with an error in plain words."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    found, _ = listening.accept()
                except OSError:
                    return
                with found:
                    found.recv(1 << 16)
                    found.sendall(b"-ERR Protocol error: unbalanced quotes in request\r\n")

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join()


async def test_tls_to_a_port_without_it(perform: Perform, server: Server) -> None:
    with pytest.raises(TransportTimeout, match=r"handshake of TLS got no answer .*rediss") as caught:
        await perform(f"rediss://{server.host}:{server.port}?{_LIMIT}")
    assert caught.value.maybe_applied is False


async def test_tls_to_a_server_that_answers_in_plain_words(perform: Perform) -> None:
    with speaking_plainly() as port, pytest.raises(ConnectionLost, match="a port without TLS") as caught:
        await perform(f"rediss://127.0.0.1:{port}")
    assert caught.value.maybe_applied is False


async def test_plain_words_to_a_port_with_tls(perform: Perform, with_tls: Server) -> None:
    with pytest.raises(ConnectionLost, match=r"a port with TLS\? then rediss") as caught:
        await perform(f"redis://{with_tls.host}:{with_tls.port}")
    assert caught.value.maybe_applied is False


async def test_a_certificate_that_is_not_trusted_is_named_as_such(perform: Perform, with_tls: Server) -> None:
    with pytest.raises(ConnectionLost, match=r"(?i)certificate") as caught:
        await perform(f"rediss://{with_tls.host}:{with_tls.port}")
    assert "a port with" not in str(caught.value)


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_sentinels_and_nodes_are_distinguished(
    kind: str, adapter: Adapter, server: Server, with_tls: Server, name: str
) -> None:
    """Every sentinel and node that was asked is named with what it lacks."""
    path = "/jobs" if kind == "sentinel" else ""
    for url, reported in (
        (f"rediss+{kind}://{server.host}:{server.port}{path}?{_LIMIT}", "handshake of TLS got no answer"),
        (f"redis+{kind}://{with_tls.host}:{with_tls.port}{path}", "a port with TLS"),
    ):
        port = server.port if reported.startswith("handshake") else with_tls.port
        async with adapter.Queue(name, url, layout=KeyLayout.TAGGED_QUEUE) as queue:
            with pytest.raises(TransportError, match=f"{port}.*{reported}") as caught:
                await queue.add("x")
            assert caught.value.maybe_applied is False
