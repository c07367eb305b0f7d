"""A server that answers with anything but RESP: every transport raises an error of ours, and no other."""

import random
import socketserver
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from bullmq_protocol import ConnectionOptions
from bullmq_protocol.errors import BullMQError
from tests.support.adapters import Adapter
from tests.support.hostile import Hostile

pytestmark = pytest.mark.any_python

_LIMIT_S = 60
_WIRES = Hostile(random.Random(20261128))
ANSWERS = [
    b"",
    b"hello",
    b"\r\n",
    b"\0" * 1000,
    b"\xff" * 1000,
    b"+\xff\xfe\r\n" * 20,
    b"-\xff\xfe\r\n" * 20,
    b"-\r\n" * 20,
    b":abc\r\n",
    b":99999999999999999999999\r\n" * 20,
    b"$-5\r\n",
    b"$10\r\nabc",
    b"$99999999999999999999\r\n",
    b"$4000000000\r\n",
    b"*-1\r\n" * 20,
    b"*-7\r\n",
    b"*4000000000\r\n",
    b"*99999999999999999999\r\n",
    b"*1\r\n" * 8 + b"+x\r\n",
    b"*1\r\n" * 50_000,
    b"%1\r\n*0\r\n+x\r\n" * 20,
    b"~1\r\n*0\r\n" * 20,
    b">1\r\n+x\r\n" * 20,
    b"HTTP/1.1 400 Bad Request\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
    *(_WIRES.wire() for _ in range(60)),
]


@contextmanager
def hostile_server(answer: bytes) -> Generator[tuple[str, int]]:
    """Give the address of a server that says this to whatever it is asked, and hangs up."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield "127.0.0.1", server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


async def test_no_resp(adapter: Adapter, name: str) -> None:
    for answer in ANSWERS:
        with hostile_server(answer) as (host, port):
            options = ConnectionOptions(host=host, port=port, connect_timeout_ms=20_000)
            async with adapter.Queue(name, options) as queue:
                with anyio.fail_after(_LIMIT_S):
                    await _is_ours(queue.add("x"), answer)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_resp_over_redis_asyncio(name: str) -> None:
    for answer in ANSWERS:
        with hostile_server(answer) as (host, port):
            client = redis.asyncio.Redis(host=host, port=port, retry=Retry(NoBackoff(), 0))
            transport = RedisAsyncioTransport(client)
            with anyio.fail_after(_LIMIT_S):
                await _is_ours(transport.server_info(), answer)
            await transport.aclose()
            await client.aclose()


async def _is_ours(call: Any, answer: bytes) -> None:
    error: Exception | None = None
    try:
        await call
    except Exception as caught:
        error = caught
    # Some of it happens to be a reply.
    taken = error is None and answer[:1] in (b"+", b":", b"$", b"*", b"_", b"#", b",", b"(", b"=", b"%", b"~", b">")
    assert taken or isinstance(error, BullMQError), (answer[:100], error)
