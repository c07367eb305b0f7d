"""A call of which some bytes went out may have been applied, one of which none did was not: in every transport."""

import functools
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio.to_thread
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_anyio.net.link import SocketLink
from bullmq_protocol.command import Command
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.errors import ConnectionLost
from bullmq_protocol.net.server_info import INFO_SECTIONS
from tests.support.clients import OwnClient

pytestmark = [pytest.mark.anyio, pytest.mark.any_python]

# More than the buffers of both sides hold.
_LARGE = Command("SET", ("k",), (b"x" * (32 << 20),), as_none)


class Cutting:
    """Greets the first connection, takes some bytes of what comes then, and resets it; takes no other connection."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listening.getsockname()[1]}?connect_timeout_ms=20000"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._listening.accept()[0] as found:
            self._listening.close()
            asked = b""
            while asked.count(b"INFO") < len(INFO_SECTIONS):
                piece = found.recv(1 << 16)
                found.sendall(b"+OK\r\n" * piece.count(b"SETINFO"))
                asked += piece
            found.sendall(b"$0\r\n\r\n" * len(INFO_SECTIONS))
            taken = 0
            while taken < 1000:
                taken += len(found.recv(1000))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def close(self) -> None:
        self._thread.join()


@contextmanager
def cutting() -> Iterator[Cutting]:
    found = Cutting()
    try:
        yield found
    finally:
        found.close()


def client(url: str) -> OwnClient:
    return OwnClient(url.partition("?")[0], protocol=2)


async def lost(make: Callable[[str], Any], url: str) -> ConnectionLost:
    """Send the call over a transport and return what it raises."""
    transport = make(url)
    perform = transport.perform
    if make is not bullmq_anyio.connect:
        perform = functools.partial(anyio.to_thread.run_sync, transport.perform)
    try:
        with pytest.raises(ConnectionLost) as caught:
            await perform(_LARGE)
    finally:
        if make is bullmq_anyio.connect:
            await transport.aclose()
        else:
            transport.close()
    return caught.value


@pytest.mark.parametrize("make", [bullmq_anyio.connect, bullmq_sync.connect, client])
async def test_a_call_that_went_out_in_part_may_have_been_applied(
    make: Callable[[str], Any], anyio_backend_name: str
) -> None:
    with cutting() as server:
        assert (await lost(make, server.url)).maybe_applied is True


async def test_so_may_one_whose_first_bytes_went_later(
    monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    """The system took nothing at first, then a part."""
    send = SocketLink._send_now
    refused: list[int] = []

    def late(link: SocketLink, data: bytes | memoryview) -> int:
        if len(data) > 1 << 20 and not refused:
            refused.append(len(data))
            return 0
        return send(link, data)

    monkeypatch.setattr(SocketLink, "_send_now", late)
    with cutting() as server:
        assert (await lost(bullmq_anyio.connect, server.url)).maybe_applied is True
    assert refused


@pytest.mark.parametrize("make", [bullmq_anyio.connect, bullmq_sync.connect])
async def test_one_of_which_nothing_went_was_not(
    make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    """The system takes nothing, and then the connection is gone."""

    def never(link: Any, data: Any) -> int:
        if len(data) > 1 << 20:
            raise OSError("no byte was taken")
        return int(link._sock.send(data))

    def anyio_never(link: SocketLink, data: bytes | memoryview) -> int:
        if len(data) > 1 << 20:
            link.die(ConnectionLost, "no byte was taken")
            return 0
        return send(link, data)

    send = SocketLink._send_now
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with listening.accept()[0] as found:
                listening.close()
                asked = b""
                while asked.count(b"INFO") < len(INFO_SECTIONS):
                    asked += found.recv(1 << 16)
                found.sendall(b"$0\r\n\r\n" * len(INFO_SECTIONS))
                while found.recv(1 << 16):
                    pass

        serving = threading.Thread(target=serve)
        serving.start()
        if make is bullmq_anyio.connect:
            monkeypatch.setattr(SocketLink, "_send_now", anyio_never)
        else:
            monkeypatch.setattr("bullmq_sync.net.link.PlainStream.__init__", _refusing(never))
        error = await lost(make, f"redis://127.0.0.1:{listening.getsockname()[1]}")
        serving.join()
    assert error.maybe_applied is False


def _refusing(send: Callable[[Any, Any], int]) -> Callable[[Any, socket.socket], None]:
    def init(stream: Any, sock: socket.socket) -> None:
        stream.raw = stream._sock = sock
        stream.send = functools.partial(send, stream)

    return init
