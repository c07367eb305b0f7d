"""Servers that accept and say nothing: whoever closes then has not to wait, whatever the connection waits for."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import ClusterOptions, ConnectionOptions, KeyLayout, SentinelOptions
from bullmq_protocol.errors import Closed, ConnectionLost
from tests.support.colours import Colour
from tests.support.seen import until

pytestmark = [pytest.mark.anyio, pytest.mark.any_python]

_SOON_S = 20
_LONG_MS = 120_000
"""No attempt to connect ends by itself while a test runs."""
KINDS = ("redis", "rediss", "sentinel", "cluster")


class Silent:
    """Accepts, and closes the first connections; the others it keeps, and says nothing."""

    def __init__(self, refuses: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._refuses = refuses
        self.kept: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                found, _ = self._listening.accept()
            except OSError:
                return
            if self._refuses:
                self._refuses -= 1
                found.close()
            else:
                self.kept.append(found)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()
        for each in self.kept:
            each.close()

    async def is_asked(self) -> bool:
        return bool(self.kept)


@contextmanager
def silent(refuses: int = 0) -> Iterator[Silent]:
    found = Silent(refuses)
    try:
        yield found
    finally:
        found.close()


def options_for(kind: str, port: int, host: str = "127.0.0.1") -> Any:
    server = ConnectionOptions(host=host, port=port, tls=kind == "rediss", connect_timeout_ms=_LONG_MS)
    places = ((host, port),)
    if kind == "sentinel":
        return SentinelOptions(sentinels=places, service="jobs", server=server)
    return ClusterOptions(nodes=places, server=server) if kind == "cluster" else server


async def never(job: Any) -> None:
    raise AssertionError(job)


async def close_while_it_asks(colour: Colour, name: str, connection: Any, found: Silent) -> None:
    worker = colour.Worker(name, never, connection, layout=KeyLayout.TAGGED_QUEUE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(found.is_asked)
        with anyio.fail_after(_SOON_S):
            await worker.aclose()
    assert not worker.is_running


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("refuses", [0, 1], ids=["first attempt", "second attempt"])
async def test_a_worker_that_holds_nothing_closes_at_once(colour: Colour, kind: str, refuses: int, name: str) -> None:
    with silent(refuses) as found:
        await close_while_it_asks(colour, name, options_for(kind, found.port), found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("refuses", [0, 1], ids=["first attempt", "second attempt"])
async def test_so_does_one_over_a_shared_connection(colour: Colour, kind: str, refuses: int, name: str) -> None:
    """Which stays open: others may use it."""
    with silent(refuses) as found:
        options = options_for(kind, found.port)
        shared: Any = bullmq_sync.connect(options) if colour.name == "threads" else bullmq_anyio.connect(options)
        try:
            await close_while_it_asks(colour, name, shared, found)
        finally:
            if colour.name == "threads":
                await anyio.to_thread.run_sync(shared.close)
            else:
                await shared.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_queue_closes_at_once(colour: Colour, kind: str, name: str) -> None:
    with silent() as found:
        queue = colour.Queue(name, options_for(kind, found.port), layout=KeyLayout.TAGGED_QUEUE)

        async def add() -> None:
            with pytest.raises(Closed):
                await queue.add("x")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add)
            await until(found.is_asked)
            with anyio.fail_after(_SOON_S):
                await queue.aclose()


async def test_a_name_that_is_looked_up_for_ever(colour: Colour, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = threading.Event(), threading.Event()
    look_up = socket.getaddrinfo

    def slow(host: Any, *args: Any, **options: Any) -> Any:
        if host not in ("slow.example", b"slow.example") or options.get("flags") or (len(args) > 4 and args[4]):
            return look_up(host, *args, **options)
        asked.set()
        answered.wait()
        raise socket.gaierror("the test is over")

    async def is_asked() -> bool:
        return asked.is_set()

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    worker = colour.Worker(name, never, options_for("redis", 6379, "slow.example"))
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await until(is_asked)
            with anyio.fail_after(_SOON_S):
                await worker.aclose()
    finally:
        answered.set()


@pytest.mark.parametrize("kind", ["redis", "rediss"])
async def test_an_attempt_that_is_given_up_leaves_a_connection_that_works(colour: Colour, kind: str, name: str) -> None:
    """Who waits for it is told that nothing was sent; the next call makes an attempt of its own."""
    with silent() as found:
        options = options_for(kind, found.port)
        shared: Any = bullmq_sync.connect(options) if colour.name == "threads" else bullmq_anyio.connect(options)
        queue = colour.Queue(name, shared)
        for count in (1, 2):

            async def add() -> None:
                with pytest.raises(ConnectionLost, match="given up") as caught:
                    await queue.add("x")
                assert caught.value.maybe_applied is False

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(add)

                async def is_asked_again(count: int = count) -> bool:
                    return len(found.kept) == count

                await until(is_asked_again)
                shared.stop_connecting()
        await (anyio.to_thread.run_sync(shared.close) if colour.name == "threads" else shared.aclose())
