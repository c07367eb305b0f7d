"""Servers that accept and say nothing: closing does not wait, whatever the connection waits for."""

import contextlib
import functools
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

import bullmq_anyio.driving.connections
import bullmq_sync.driving.connections
from bullmq_protocol import ClusterOptions, ConnectionOptions, KeyLayout, QueueKeys, SentinelOptions
from bullmq_protocol.errors import Closed, ConnectionLost
from bullmq_protocol.worker.notices import Closing
from tests.support.adapters import Adapter
from tests.support.cut_proxy import CutProxy
from tests.support.seen import until
from tests.support.servers import Server

pytestmark = [pytest.mark.anyio, pytest.mark.any_python]

_SOON_S = 20
_LONG_MS = 120_000
"""No attempt to connect ends on its own while a test runs."""
KINDS = ("redis", "rediss", "sentinel", "cluster")
AT_ANY_ATTEMPT = pytest.mark.parametrize(
    ("kind", "refuses"),
    # The third one is a probe.
    [pytest.param(kind, refuses, id=f"{kind}-{refuses}") for kind in KINDS for refuses in (0, 1)]
    + [pytest.param("redis", 2, id="redis-2")],
)


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


async def close_while_it_asks(
    adapter: Adapter, name: str, connection: Any, found: Silent, caplog: pytest.LogCaptureFixture
) -> None:
    """Close a worker. That its owner ends what was under way is nothing to warn of."""
    worker = adapter.Worker(name, never, connection, layout=KeyLayout.TAGGED_QUEUE)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await until(found.is_asked)
        caplog.clear()
        with anyio.fail_after(_SOON_S):
            await worker.aclose()
    assert not worker.is_running
    assert warnings(caplog) == []


async def close_over_a_shared_connection(
    adapter: Adapter, kind: str, refuses: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with silent(refuses) as found:
        options = options_for(kind, found.port)
        shared: Any = bullmq_sync.connect(options) if adapter.name == "threads" else bullmq_anyio.connect(options)
        try:
            await close_while_it_asks(adapter, name, shared, found, caplog)
        finally:
            await close(adapter, shared)


async def close(adapter: Adapter, what: Any) -> None:
    """Close what both packages have."""
    await (anyio.to_thread.run_sync(what.close) if adapter.name == "threads" else what.aclose())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@AT_ANY_ATTEMPT
async def test_a_worker_that_holds_nothing_closes_at_once(
    adapter: Adapter, kind: str, refuses: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with silent(refuses) as found:
        await close_while_it_asks(adapter, name, options_for(kind, found.port), found, caplog)


@AT_ANY_ATTEMPT
async def test_so_does_one_over_a_shared_connection(
    adapter: Adapter, kind: str, refuses: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Which stays open: others may use it."""
    await close_over_a_shared_connection(adapter, kind, refuses, name, caplog)


@pytest.mark.parametrize("kind", KINDS)
async def test_calls_that_have_not_begun_do_not_connect_again(
    adapter: Adapter, kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At its start a worker makes several at once: each closing finds others of them begun."""
    for number in range(12):
        await close_over_a_shared_connection(adapter, kind, 1, f"{name}-{number}", caplog)


async def test_a_shared_connection_is_no_longer_for_a_worker_that_was_closed(
    adapter: Adapter, server: Server, name: str
) -> None:
    module: Any = bullmq_sync if adapter.name == "threads" else bullmq_anyio
    shared = module.connect(server.url)
    ended, other = (
        module.driving.connections.Connections(shared, QueueKeys.of(name), None, owned=False) for _ in range(2)
    )
    ended.check_open()
    await close(adapter, ended)
    for call in (ended.check_open, ended.named):
        with pytest.raises(ConnectionLost, match="the worker is closed"):
            call()
    await (anyio.to_thread.run_sync(other.meet) if adapter.name == "threads" else other.meet())
    await close(adapter, shared)


async def test_so_does_one_whose_named_connection_gets_no_answer(
    adapter: Adapter, server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server has said something to the other one by then."""
    module: Any = bullmq_sync if adapter.name == "threads" else bullmq_anyio
    with silent() as found:

        class Half(module.Connection):  # type: ignore[misc,name-defined]
            def dedicated(self, *, client_name: str | None = None) -> Any:
                return module.Connection(options_for("redis", found.port))

        connection = Half(server.url)
        await close_while_it_asks(adapter, name, connection, found, caplog)
        if adapter.name == "threads":
            await anyio.to_thread.run_sync(connection.close)
        else:
            await connection.aclose()


@pytest.mark.any_server
async def test_so_does_one_that_opens_its_named_connection_again(adapter: Adapter, server: Server, name: str) -> None:
    """It was lost while the worker had work, and gets no answer when its job has ended."""
    module: Any = bullmq_sync if adapter.name == "threads" else bullmq_anyio
    with silent() as found, CutProxy(server.host, server.port) as proxy:

        class Half(module.Connection):  # type: ignore[misc,name-defined]
            def dedicated(self, *, client_name: str | None = None) -> Any:
                return module.Connection(options_for("redis", proxy.port)).dedicated(client_name=client_name)

        begun, gate, closing = anyio.Event(), anyio.Event(), anyio.Event()

        async def process(job: Any) -> None:
            begun.set()
            await gate.wait()

        connection = Half(server.url)
        worker = adapter.Worker(name, process, connection)
        worker.on(Closing, lambda notice: closing.set())
        async with adapter.Queue(name, server.url) as queue, anyio.create_task_group() as tasks:
            await queue.add("n")
            tasks.start_soon(worker.run)
            with anyio.fail_after(_SOON_S):
                await begun.wait()
            await until(functools.partial(_is_listed, queue))
            proxy.retarget("127.0.0.1", found.port)
            proxy.drop_all()
            await until(found.is_asked)
            with anyio.fail_after(_SOON_S):
                async with anyio.create_task_group() as closers:
                    closers.start_soon(worker.aclose)
                    await closing.wait()
                    gate.set()
            assert (await queue.get_job_counts("completed", "active")) == {"completed": 1, "active": 0}
            await queue.obliterate(force=True)
        if adapter.name == "threads":
            await anyio.to_thread.run_sync(connection.close)
        else:
            await connection.aclose()


async def _is_listed(queue: Any) -> bool:
    return bool(await queue.get_workers())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
async def test_events_close_at_once(
    adapter: Adapter, kind: str, is_shared: bool, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    module: Any = bullmq_sync if adapter.name == "threads" else bullmq_anyio
    with silent() as found:
        options = options_for(kind, found.port)
        shared = module.connect(options) if is_shared else None
        events = adapter.QueueEvents(name, shared or options, layout=KeyLayout.TAGGED_QUEUE)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(events.run)
            await until(found.is_asked)
            with anyio.fail_after(_SOON_S):
                await events.aclose()
        if shared is not None:
            await (anyio.to_thread.run_sync(shared.close) if adapter.name == "threads" else shared.aclose())
    assert not events.is_running
    assert warnings(caplog) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_queue_closes_at_once(adapter: Adapter, kind: str, name: str) -> None:
    with silent() as found:
        queue = adapter.Queue(name, options_for(kind, found.port), layout=KeyLayout.TAGGED_QUEUE)

        async def add() -> None:
            with pytest.raises(Closed):
                await queue.add("x")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(add)
            await until(found.is_asked)
            with anyio.fail_after(_SOON_S):
                await queue.aclose()


async def test_a_name_that_is_looked_up_for_ever(adapter: Adapter, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    worker = adapter.Worker(name, never, options_for("redis", 6379, "slow.example"))
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await until(is_asked)
            with anyio.fail_after(_SOON_S):
                await worker.aclose()
    finally:
        answered.set()


@pytest.mark.parametrize("kind", ["redis", "rediss"])
async def test_an_attempt_that_is_given_up_leaves_a_connection_that_works(
    adapter: Adapter, kind: str, name: str
) -> None:
    """A waiting caller learns that nothing was sent; the next call makes an attempt of its own."""
    with silent() as found:
        options = options_for(kind, found.port)
        shared: Any = bullmq_sync.connect(options) if adapter.name == "threads" else bullmq_anyio.connect(options)
        queue = adapter.Queue(name, shared)
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
        await (anyio.to_thread.run_sync(shared.close) if adapter.name == "threads" else shared.aclose())


async def test_a_first_contact_that_fails_is_logged(
    adapter: Adapter, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine tells of its own attempts, which come later."""
    with silent(refuses=1) as found:
        worker = adapter.Worker(name, never, options_for("redis", found.port))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await until(found.is_asked)
            logged = warnings(caplog)
            await worker.aclose()
    assert [message for message in logged if "reading failed" in message or "closed" in message]
