"""The native connection on asyncio and trio: addresses, logins, losses, sharing, cancellation, close."""

import gc
import logging
import math
import os
import random
import signal
import socket
import socketserver
import ssl
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import msgspec
import pytest
import redis
from anyio.lowlevel import checkpoint

from bullmq_anyio.net import link
from bullmq_anyio.net.connection import Connection
from bullmq_protocol.command import Batch, Command, Repeat, Script
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.errors import (
    AuthenticationFailed,
    Closed,
    ConnectionLost,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.net.address import ConnectionOptions, parse_url
from bullmq_protocol.net.server_info import INFO_SECTIONS
from bullmq_protocol.testing.conformance import Fault
from tests.support import servers
from tests.support.cut_proxy import CutProxy
from tests.support.open_sockets import sockets
from tests.support.servers import Server

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("nothing_left")]

PING = Command("PING", (), (), as_none, repeat=Repeat.SAFE)


def command(*wire: bytes | str | int, repeat: Repeat = Repeat.UNSAFE, block_ms: int | None = None) -> Command[None]:
    name, *args = wire
    return Command(str(name), (), tuple(args), as_none, block_ms=block_ms, repeat=repeat)


@pytest.fixture
def key() -> str:
    return f"connection-{uuid4().hex}"


@pytest.fixture
def admin(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Connection]:
    made = Connection(server.url)
    yield made
    await made.aclose()


@pytest.fixture
async def nothing_left() -> AsyncIterator[None]:
    before = sockets()
    yield
    await _until(lambda: sockets() <= before)


async def _until(holds: Callable[[], Any]) -> None:
    with anyio.fail_after(30):
        while not holds():
            await anyio.sleep(0.001)


def _blocked(admin: redis.Redis) -> list[int]:
    waiting = ("blpop", "bzpopmin")
    return [int(row["id"]) for row in admin.client_list() if "b" in row["flags"] and row["cmd"].lower() in waiting]


class Aside:
    """A call in a task of its own, and how it ended."""

    def __init__(self, call: Callable[[], Awaitable[Any]]) -> None:
        self.reply: Any = None
        self.error: Exception | None = None
        self.scope = anyio.CancelScope()
        self.over = anyio.Event()
        self._call = call

    async def __call__(self) -> None:
        try:
            with self.scope:
                self.reply = await self._call()
        except Exception as error:
            self.error = error
        finally:
            self.over.set()


@contextmanager
def answering(words: bytes, *, once: bool = False) -> Iterator[str]:
    """Give the URL of a server that answers everything with these words; `once`: then it closes the connection."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while self.request.recv(1 << 16):
                self.request.sendall(words)
                if once:
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


# --- where and who ----------------------------------------------------------------------------------------------------


async def test_url_and_options_reach_the_same_database(server: Server, key: str) -> None:
    ways = [f"{server.url}/3", f"{server.url}?db=3", ConnectionOptions(host=server.host, port=server.port, db=3)]
    for number, way in enumerate(ways, 1):
        connection = Connection(way)
        assert await connection.perform(command("INCR", key)) == number
        await connection.aclose()


async def test_host_name_is_looked_up(server: Server) -> None:
    connection = Connection(f"redis://localhost:{server.port}")
    assert await connection.perform(PING) == b"PONG"
    await connection.aclose()
    nowhere = Connection("redis://no-such-host.invalid")
    with pytest.raises(ConnectionLost, match=r"no-such-host\.invalid") as caught:
        await nowhere.perform(PING)
    assert caught.value.maybe_applied is False
    await nowhere.aclose()


async def test_database_out_of_range(server: Server) -> None:
    connection = Connection(f"{server.url}/4711")
    with pytest.raises(UsageError, match="4711") as caught:
        await connection.perform(PING)
    assert caught.value.field == "db"
    await connection.aclose()


async def test_unix_socket(server: Server, key: str) -> None:
    if server.socket_path is None:
        with pytest.raises(UsageError):
            parse_url("unix://")
        return
    connection = Connection(f"unix://{server.socket_path}?db=2")
    assert await connection.perform(command("INCR", key)) == 1
    await connection.aclose()
    nowhere = Connection("unix:///no/such/socket")
    with pytest.raises(ConnectionLost):
        await nowhere.perform(PING)
    await nowhere.aclose()


async def test_tls(key: str) -> None:
    with servers.start(tls=True) as server:
        assert server.ca_file is not None
        context = ssl.create_default_context(cafile=str(server.ca_file))
        connection = Connection(ConnectionOptions(host=server.host, port=server.port, tls=context))
        big = b"x" * (6 << 20)
        await connection.perform(command("SET", key, big))
        async with anyio.create_task_group() as tasks:
            calls = [Aside(partial(connection.perform, command("ECHO", f"{number}"))) for number in range(100)]
            for call in calls:
                tasks.start_soon(call)
            assert await connection.perform(command("GET", key)) == big
        assert [call.reply for call in calls] == [b"%d" % number for number in range(100)]
        await connection.aclose()
        stranger = Connection(server.url)
        with pytest.raises(ConnectionLost, match=r"(?i)certificate") as caught:
            await stranger.perform(PING)
        assert caught.value.maybe_applied is False
        await stranger.aclose()
        plain = Connection(server.url.replace("rediss", "redis"))
        with pytest.raises(ConnectionLost):
            await plain.perform(PING)
        await plain.aclose()


async def test_password_of_the_default_user() -> None:
    with servers.start(config=("--requirepass", "se:cret/1")) as server:
        place = f"{server.host}:{server.port}"
        connection = Connection(f"redis://:se%3Acret%2F1@{place}")
        assert await connection.perform(PING) == b"PONG"
        await connection.aclose()
        for url, who in ((f"redis://:wrong@{place}", "default"), (f"redis://nobody:wrong@{place}", "nobody")):
            refused = Connection(url)
            with pytest.raises(AuthenticationFailed, match=f"user '{who}'") as caught:
                await refused.perform(PING)
            assert caught.value.code == "WRONGPASS"
            await refused.aclose()
        anonymous = Connection(f"redis://{place}")
        with pytest.raises(AuthenticationFailed) as caught:
            await anonymous.perform(PING)
        assert caught.value.code == "NOAUTH"
        await anonymous.aclose()


async def test_acl_user(server: Server, admin: redis.Redis, key: str) -> None:
    admin.execute_command("ACL", "SETUSER", key, "on", ">pass", f"~{key}*", "+@all")
    asked = 0

    def credentials() -> tuple[str, str]:
        nonlocal asked
        asked += 1
        return key, "pass"

    connection = Connection(ConnectionOptions(host=server.host, port=server.port, credentials=credentials))
    assert await connection.perform(command("ACL", "WHOAMI")) == key.encode()
    admin.execute_command("CLIENT", "KILL", "USER", key)
    assert await connection.perform(command("ACL", "WHOAMI")) == key.encode()
    assert asked == 2
    await connection.aclose()
    admin.execute_command("ACL", "DELUSER", key)


async def test_eviction_policy_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    with servers.start(config=("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")) as server:
        connection = Connection(server.url)
        with caplog.at_level(logging.WARNING, "bullmq_anyio"):
            await connection.perform(PING)
            server.restart()
            await connection.perform(PING)
            await connection.dedicated().perform(PING)
        await connection.aclose()
    assert sum("allkeys-lru" in record.getMessage() for record in caplog.records) == 1


async def test_what_the_server_says_of_itself(server: Server, connection: Connection) -> None:
    info = await connection.server_info()
    assert info.version >= (6, 2, 0)
    assert info.cluster is False


@pytest.mark.parametrize("way", [None, 6379, object(), "http://localhost"])
async def test_what_is_no_server_is_refused(way: Any) -> None:
    with pytest.raises(UsageError):
        Connection(way)


async def test_tls_must_be_a_context() -> None:
    with pytest.raises(UsageError, match="SSLContext"):
        Connection(ConnectionOptions(tls="yes"))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_it_is_made_before_an_event_loop_runs_and_serves_only_one(server: Server, backend: str) -> None:
    connection = Connection(server.url)
    assert await connection.perform(PING) == b"PONG"

    async def elsewhere() -> None:
        with pytest.raises(UsageError, match="event loop"):
            await connection.perform(PING)

    await anyio.to_thread.run_sync(partial(anyio.run, elsewhere, backend=backend))
    assert await connection.perform(PING) == b"PONG"
    await connection.aclose()
    other = Connection(server.url)

    async def use() -> None:
        assert await other.perform(PING) == b"PONG"
        await other.aclose()

    await anyio.to_thread.run_sync(partial(anyio.run, use, backend=backend))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_an_attempt_to_connect_serves_only_its_event_loop(backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = Connection(f"redis://127.0.0.1:{silent.getsockname()[1]}")

        async def elsewhere() -> None:
            with pytest.raises(UsageError, match="event loop"):
                await connection.perform(PING)

        first = Aside(partial(connection.perform, PING))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first)
            accepted, _ = await anyio.to_thread.run_sync(silent.accept)
            await anyio.to_thread.run_sync(partial(anyio.run, elsewhere, backend=backend))
            accepted.close()
        assert isinstance(first.error, ConnectionLost)
        await connection.aclose()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_closing_in_another_event_loop_ends_an_attempt_to_connect(backend: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        connection = Connection(ConnectionOptions(host=host, port=port, connect_timeout_ms=500))
        first = Aside(partial(connection.perform, PING))
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first)
                accepted, _ = await anyio.to_thread.run_sync(silent.accept)
                await anyio.to_thread.run_sync(partial(anyio.run, connection.aclose, backend=backend))
        accepted.close()
        assert isinstance(first.error, Closed)


async def test_what_nobody_uses_any_more_goes(server: Server, key: str) -> None:
    """Without being closed, while its event loop runs; its number may then be that of another socket."""
    before = sockets()
    for _ in range(3):
        connection = Connection(server.url)
        assert await connection.perform(command("INCR", key)) is not None
        assert len(sockets() - before) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del connection
            gc.collect()
        assert sockets() <= before


async def test_other_tasks_run_while_it_waits(connection: Connection, admin: redis.Redis, key: str) -> None:
    """Although it stays awake, and looks at nothing but the socket for a moment."""
    for _ in range(20):
        assert await connection.perform(PING) == b"PONG"
    call = Aside(partial(connection.perform, command("BLPOP", key, 0)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        turns = 0
        while turns < 1000 or not _blocked(admin):
            await checkpoint()
            turns += 1
        admin.rpush(key, "x")
    assert call.reply == [key.encode(), b"x"]


@pytest.mark.parametrize(("rarely_s", "stays_awake"), [(math.inf, True), (-1.0, False)])
async def test_a_connection_that_is_used_rarely_sleeps(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, rarely_s: float, stays_awake: bool
) -> None:
    """Rarely: for less than 1 % of the time."""
    assert link._RARELY_S == 100 * link._AWAKE_S
    monkeypatch.setattr(link, "_RARELY_S", rarely_s)
    learn, learned = link.SocketLink._learn, list[bool]()

    def noted(self: link.SocketLink, received: bool) -> None:
        learned.append(received)
        learn(self, received)

    monkeypatch.setattr(link.SocketLink, "_learn", noted)
    for _ in range(20):
        assert await connection.perform(PING) == b"PONG"
    assert (learned != []) is stays_awake


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_it_may_outlive_its_event_loop(server: Server, admin: redis.Redis, key: str, backend: str) -> None:
    """Even with a reply to come."""
    admin.ping()
    before = sockets()
    connection = Connection(server.url)

    async def leave() -> None:
        assert await connection.perform(PING) == b"PONG"
        call = Aside(partial(connection.perform, command("BLPOP", key, 0)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await _until(lambda: _blocked(admin))
            call.scope.cancel()

    async def use() -> None:
        with pytest.raises(UsageError, match="event loop"):
            await connection.perform(PING)

    def run() -> None:
        anyio.run(leave, backend=backend)
        anyio.run(use, backend=backend)

    await anyio.to_thread.run_sync(run)
    await use()
    await connection.aclose()
    assert sockets() <= before

    async def forget() -> None:
        assert await Connection(server.url).perform(PING) == b"PONG"
        gc.collect()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        await anyio.to_thread.run_sync(partial(anyio.run, forget, backend=backend))
        gc.collect()
    assert sockets() <= before


# --- sharing ----------------------------------------------------------------------------------------------------------


async def test_a_thousand_callers_share_one_connection(server: Server, admin: redis.Redis, key: str) -> None:
    connection = Connection(msgspec.structs.replace(parse_url(server.url), client_name=key))
    calls = [Aside(partial(connection.perform, command("ECHO", f"{number}"))) for number in range(1000)]
    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(call)
    assert [call.reply for call in calls] == [b"%d" % number for number in range(1000)]
    assert sum(row["name"] == key for row in admin.client_list()) == 1
    await connection.aclose()


async def test_scripts_travel_once_per_connection(server: Server, admin: redis.Redis, key: str) -> None:
    source = f"return '{key}'"
    script = Script("named", admin.script_load(source), 0, source)
    admin.script_flush()
    connection = Connection(server.url)
    call = Command("named", (), (), as_none, script)
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(connection.perform, call)
    before = admin.info("commandstats")
    assert await connection.perform(call) == key.encode()
    assert await connection.perform(Batch((call, call))) == [key.encode()] * 2
    after = admin.info("commandstats")
    assert after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"] == 3
    assert after["cmdstat_eval"]["calls"] == before["cmdstat_eval"]["calls"]
    await connection.aclose()


async def test_a_write_larger_than_the_buffers_is_not_torn_by_a_cancellation(connection: Connection, key: str) -> None:
    await connection.perform(PING)
    big = os.urandom(20 << 20)
    call = Aside(partial(connection.perform, command("SET", key, big)))
    others = [Aside(partial(connection.perform, command("ECHO", f"{number}"))) for number in range(20)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        for _ in range(5):
            await checkpoint()
        for other in others:
            tasks.start_soon(other)
        await checkpoint()
        call.scope.cancel()
    assert [other.reply for other in others] == [b"%d" % number for number in range(20)]
    assert await connection.perform(command("STRLEN", key)) == len(big)
    await connection.perform(command("DEL", key))


# --- cancellation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connected", [False, True])
async def test_cancelled_after_any_number_of_steps(server: Server, key: str, connected: bool) -> None:
    """Cancel one call after 0, 1, 2, ... turns of the event loop, in every await, until one is through before."""
    completed = False
    steps = 0
    while not completed:
        steps += 1 + steps // 20
        connection = Connection(server.url)
        if connected:
            await connection.perform(PING)
        call = Aside(partial(connection.perform, command("ECHO", "cancelled")))
        other = Aside(partial(connection.perform, command("ECHO", "kept")))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            tasks.start_soon(other)
            for _ in range(steps - 1):
                await checkpoint()
            call.scope.cancel()
        completed = call.reply is not None
        assert call.reply in (None, b"cancelled")
        assert (call.error, other.error, other.reply) == (None, None, b"kept")
        assert await connection.perform(command("ECHO", key)) == key.encode()
        await connection.aclose()


async def test_callers_cancelled_at_random(connection: Connection) -> None:
    dice = random.Random(4711)
    calls: list[tuple[bytes, Aside]] = []
    async with anyio.create_task_group() as tasks:
        for number in range(600):
            text = f"{number}-{'x' * dice.randrange(3000)}"
            batch = Batch((command("ECHO", text), command("ECHO", text)), atomic=number % 2 == 0)
            step = batch if number % 5 == 0 else command("ECHO", text)
            call = Aside(partial(connection.perform, step))
            calls.append((text.encode(), call))
            tasks.start_soon(call)
            for _ in range(dice.randrange(3)):
                await checkpoint()
            if dice.random() < 0.5:
                calls[-dice.randrange(1, min(len(calls), 20) + 1)][1].scope.cancel()
    for text, call in calls:
        assert call.error is None
        assert call.reply in (text, [text, text]) or (call.reply is None and call.scope.cancel_called)
    assert sum(call.reply is not None for _, call in calls) > 100


async def test_the_last_reader_may_leave(connection: Connection, admin: redis.Redis, key: str) -> None:
    """All callers are cancelled; their replies are counted when the next call reads."""
    calls = [Aside(partial(connection.perform, command("BLPOP", key, 0)))]
    calls += [Aside(partial(connection.perform, command("ECHO", "x"))) for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(call)
        await _until(lambda: _blocked(admin))
        for call in calls:
            call.scope.cancel()
    admin.rpush(key, "dropped")
    assert await connection.perform(command("ECHO", key)) == key.encode()


async def test_cancelled_blocking_call_is_forgotten_by_the_server(
    connection: Connection, admin: redis.Redis, key: str
) -> None:
    dedicated = connection.dedicated(client_name=key)
    for _ in range(2):
        call = Aside(partial(dedicated.perform, command("BLPOP", key, 0, block_ms=0)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await _until(lambda: _blocked(admin))
            call.scope.cancel()
        await _until(lambda: not _blocked(admin))
        assert all(row["name"] != key for row in admin.client_list())


# --- losses -----------------------------------------------------------------------------------------------------------


async def test_restart_between_two_calls_is_not_seen(key: str) -> None:
    with servers.start() as server:
        connection = Connection(server.url)
        for _ in range(3):
            assert await connection.perform(command("INCR", key)) == 1
            server.restart()
        await connection.aclose()


async def test_nobody_listens() -> None:
    with servers.start() as server:
        connection = Connection(server.url)
        server.kill()
        calls = [Aside(partial(connection.perform, PING)) for _ in range(10)]
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(call)
        errors = [call.error for call in calls]
        assert all(isinstance(error, ConnectionLost) and not error.maybe_applied for error in errors)
        # Each caller raises an exception of its own.
        assert len(set(map(id, errors))) == len(errors)
        server.restart()
        assert await connection.perform(PING) == b"PONG"
        await connection.aclose()


async def test_killed_while_many_wait(connection: Connection, admin: redis.Redis, key: str) -> None:
    hanging = Aside(partial(connection.perform, command("BLPOP", key, 0)))
    unsafe = [Aside(partial(connection.perform, command("INCR", f"{key}-n"))) for _ in range(10)]
    safe = [Aside(partial(connection.perform, PING)) for _ in range(10)]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hanging)
        await _until(lambda: _blocked(admin))
        for call in (*unsafe, *safe):
            tasks.start_soon(call)
        for _ in range(5):
            await checkpoint()
        (victim,) = _blocked(admin)
        admin.client_kill_filter(_id=str(victim))
    for call in (hanging, *unsafe):
        assert isinstance(call.error, ConnectionLost)
        assert call.error.maybe_applied is True
    assert [call.reply for call in safe] == [b"PONG"] * 10
    assert admin.get(f"{key}-n") is None


async def test_time_limits(server: Server, admin: redis.Redis, key: str) -> None:
    connection = Connection(msgspec.structs.replace(parse_url(server.url), command_timeout_ms=250))
    begun = anyio.current_time()
    with pytest.raises(TransportTimeout) as caught:
        await connection.perform(command("BLPOP", key, 0, repeat=Repeat.SAFE))
    assert caught.value.maybe_applied is True
    assert 0.07 < anyio.current_time() - begun < 10
    assert await connection.perform(PING) == b"PONG"
    # A wait has a limit of its own.
    assert await connection.dedicated().perform(command("BZPOPMIN", key, "0.3", block_ms=300)) is None
    await connection.aclose()


async def test_time_limit_of_writing(key: str) -> None:
    """What was not sent is tried once more; the server takes no new connection either."""
    with servers.start() as server:
        limits = {"command_timeout_ms": 250, "connect_timeout_ms": 250}
        connection = Connection(msgspec.structs.replace(parse_url(server.url), **limits))
        await connection.perform(PING)
        large = Aside(partial(connection.perform, command("SET", key, b"x" * (20 << 20))))
        behind = Aside(partial(connection.perform, command("INCR", f"{key}-n")))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(large)
                for _ in range(5):
                    await checkpoint()
                tasks.start_soon(behind)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        for call, sent in ((large, True), (behind, False)):
            assert isinstance(call.error, TransportTimeout)
            assert call.error.maybe_applied is sent
        await connection.aclose()
        patient = Connection(server.url)
        assert await patient.perform(command("EXISTS", key, f"{key}-n")) == 0
        await patient.aclose()


async def test_no_time_limit(server: Server, admin: redis.Redis, key: str) -> None:
    connection = Connection(msgspec.structs.replace(parse_url(server.url), command_timeout_ms=None))
    call = Aside(partial(connection.perform, command("BLPOP", key, 0)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await _until(lambda: _blocked(admin))
        admin.rpush(key, "x")
    assert call.reply == [key.encode(), b"x"]
    await connection.aclose()


async def test_time_limit_of_connecting(server: Server) -> None:
    with CutProxy(server.host, server.port) as proxy:
        proxy.arm(Fault.SWALLOW, "INFO", times=100)
        connection = Connection(msgspec.structs.replace(parse_url(proxy.url), connect_timeout_ms=250))
        for _ in range(2):
            with pytest.raises(TransportTimeout, match="connection") as caught:
                await connection.perform(PING)
            assert caught.value.maybe_applied is False
        proxy.arm(Fault.NONE)
        assert await connection.perform(PING) == b"PONG"
        await connection.aclose()


async def test_loading_server_is_not_ready() -> None:
    with answering(b"-LOADING Redis is loading the dataset in memory\r\n" * len(INFO_SECTIONS)) as url:
        connection = Connection(url)
        with pytest.raises(ConnectionLost, match="LOADING") as caught:
            await connection.perform(PING)
        assert caught.value.maybe_applied is False
        await connection.aclose()


async def test_too_many_clients() -> None:
    with answering(b"-ERR max number of clients reached\r\n", once=True) as url:
        connection = Connection(url)
        with pytest.raises(ConnectionLost, match="max number of clients"):
            await connection.perform(PING)
        await connection.aclose()


async def test_what_speaks_another_protocol() -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        connection = Connection(url)
        with pytest.raises(ConnectionLost, match="RESP"):
            await connection.perform(PING)
        await connection.aclose()


# --- closing ----------------------------------------------------------------------------------------------------------


async def test_close_while_connecting(server: Server) -> None:
    with CutProxy(server.host, server.port) as proxy:
        proxy.arm(Fault.SWALLOW, "INFO", times=100)
        connection = Connection(proxy.url)
        calls = [Aside(partial(connection.perform, PING)) for _ in range(3)]
        async with anyio.create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(call)
            await _until(lambda: proxy.struck)
            await connection.aclose()
        assert [type(call.error) for call in calls] == [Closed] * 3


async def test_closed_before_use(server: Server) -> None:
    connection = Connection(server.url)
    dedicated = connection.dedicated()
    await connection.aclose()
    await connection.aclose()
    for each in (connection, dedicated, connection.dedicated()):
        with pytest.raises(Closed):
            await each.perform(PING)


async def test_the_child_of_a_fork_is_asked_to_make_its_own(server: Server) -> None:
    connection = Connection(server.url)
    assert await connection.perform(command("ECHO", "parent")) == b"parent"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        asked = connection.perform(command("ECHO", "child"))
        try:
            asked.send(None)
        except UsageError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"forked from: make one in each" in os.read(read, 1000)
    os.close(read)
    os.close(write)
    assert await connection.perform(command("ECHO", "parent")) == b"parent"
    await connection.aclose()
