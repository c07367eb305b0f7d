"""The sockets of the connections that the packages make, on asyncio, trio and threads."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = pytest.mark.anyio


def _options_of(port: int) -> dict[int, tuple[int, int]]:
    """Return of this process's sockets that are connected to a port whether they send at once, and look for a dead
    peer."""
    found: dict[int, tuple[int, int]] = {}
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(place.readlink()).startswith("socket:"):
                with socket.socket(fileno=os.dup(int(place.name))) as sock:
                    if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getpeername()[1] == port:
                        at_once = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                        alive = sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                        found[sock.getsockname()[1]] = (at_once, alive)
    return found


async def test_they_send_at_once_and_notice_a_dead_peer(adapter: Adapter, server: Server, name: str) -> None:
    before = _options_of(server.port)
    async with adapter.Queue(name, server.url) as queue:
        await queue.count()
        worker = adapter.Worker(name, None, server.url)
        assert await worker.get_next_job(block=False) is None
        options = [each for port, each in _options_of(server.port).items() if port not in before]
        await worker.aclose()
    assert len(options) >= 2
    assert all(at_once and alive for at_once, alive in options)
