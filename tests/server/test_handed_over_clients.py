"""A client that was handed over speaks itself, on asyncio and on threads: what it does beside, and what it costs."""

import functools
import hashlib
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

import bullmq_anyio
import bullmq_sync
from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from bullmq_protocol import WorkerOptions
from bullmq_protocol.command import Batch, Command, Repeat, Script
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ServerError,
    TransportTimeout,
    UsageError,
)
from bullmq_protocol.testing.conformance import Fault
from bullmq_protocol.worker.notices import JobCompleted
from bullmq_sync import RedisPyTransport
from tests.server.test_silent_server import close_while_it_asks, silent, warnings
from tests.support import servers
from tests.support.adapters import opened
from tests.support.cut_proxy import CutProxy
from tests.support.seen import Seen, until
from tests.support.servers import Server

pytestmark = pytest.mark.anyio

Perform: TypeAlias = Callable[[Command[Any] | Batch], Any]


@pytest.fixture(params=["asyncio", "threads"])
def way(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def key() -> str:
    return f"client-{uuid4().hex}"


def command(*wire: bytes | str | int, repeat: Repeat = Repeat.UNSAFE, block_ms: int | None = None) -> Command[None]:
    name, *args = wire
    return Command(str(name), (), tuple(args), as_none, block_ms=block_ms, repeat=repeat)


class Marked:
    """What a class of clients does beside: it notes each command."""

    said: list[Any]
    torn = False

    def execute_command(self, *args: Any, **options: Any) -> Any:
        self.said.append(args[0])
        return super().execute_command(*args, **options)  # type: ignore[misc]

    def pipeline(self, *args: Any, **options: Any) -> Any:
        self.said.append("pipeline")
        return super().pipeline(*args, **options)  # type: ignore[misc]

    def parse_response(self, *args: Any, **options: Any) -> Any:
        if self.torn:
            self.torn = False
            raise KeyboardInterrupt
        return super().parse_response(*args, **options)  # type: ignore[misc]


class Client(Marked, redis.Redis):
    """One for threads."""


class AsyncClient(Marked, redis.asyncio.Redis):
    """One for asyncio."""


class Side:
    """A client that notes what it says, its transport, and how that is called from a task."""

    def __init__(self, way: str, url: str, **options: Any) -> None:
        self.way = way
        limits = {"connect_timeout_ms": 20_000, "command_timeout_ms": 20_000}
        options.setdefault("socket_timeout", 20)
        if way == "asyncio":
            retry: Any = redis.asyncio.retry.Retry(NoBackoff(), 0)
            self.client: Any = AsyncClient.from_url(url, retry=retry, **options)
            self.transport: Any = RedisAsyncioTransport(self.client, **limits)
        else:
            self.client = Client.from_url(url, retry=Retry(NoBackoff(), 0), **options)
            self.transport = RedisPyTransport(self.client)
        self.client.said = []

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        if self.way == "asyncio":
            return await function(*args)
        return await anyio.to_thread.run_sync(functools.partial(function, *args))

    async def perform(self, step: Command[Any] | Batch) -> Any:
        return await self.call(self.transport.perform, step)

    async def close(self) -> None:
        await self.call(self.transport.aclose if self.way == "asyncio" else self.transport.close)
        await self.call(self.client.aclose if self.way == "asyncio" else self.client.close)


@asynccontextmanager
async def side(way: str, url: str, **options: Any) -> AsyncGenerator[Side]:
    found = Side(way, url, **options)
    try:
        yield found
    finally:
        await found.close()


# --- the client speaks ------------------------------------------------------------------------------------------------


async def test_every_call_is_one_of_the_client(way: str, server: Server, key: str) -> None:
    async with side(way, server.url) as own:
        assert await own.perform(command("INCR", key)) == 1
        assert own.client.said == ["pipeline", "INCR "]
        batch = Batch((command("INCR", key), command("DEL", key)))
        assert await own.perform(batch) == [2, 1]
        assert await own.perform(Batch(batch.commands, atomic=True)) == [1, 1]
        assert own.client.said == ["pipeline", "INCR ", "pipeline", "pipeline"]


async def test_a_worker_over_it(way: str, server: Server, key: str) -> None:
    """Through a pool of four connections, with more jobs at once than these."""
    done: list[int] = []
    async with side(way, server.url, max_connections=4, decode_responses=True) as own:
        if way == "asyncio":
            queue: Any = bullmq_anyio.Queue(key, own.transport)
            async with anyio.create_task_group() as tasks:
                for number in range(30):
                    tasks.start_soon(queue.add, "job", number)

            async def process(job: Any) -> None:
                done.append(job.data)

            worker: Any = bullmq_anyio.Worker(key, process, own.transport, options=WorkerOptions(concurrency=10))
            seen = Seen(worker, JobCompleted)
            async with worker:
                await seen.wait(JobCompleted, 30)
            await queue.obliterate(force=True)
        else:
            blocking: Any = bullmq_sync.Queue(key, own.transport)

            def work() -> None:
                over = threading.Semaphore(0)
                threads = [threading.Thread(target=blocking.add, args=("job", number)) for number in range(30)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                options = WorkerOptions(concurrency=10)
                with bullmq_sync.Worker[Any](
                    key, lambda job: done.append(job.data), own.transport, options=options
                ) as w:
                    w.on(JobCompleted, lambda _: over.release())
                    for _ in range(30):
                        assert over.acquire(timeout=30)
                blocking.obliterate(force=True)

            await anyio.to_thread.run_sync(work)
    assert sorted(done) == list(range(30))


async def test_its_own_login_is_used_at_each_connect(way: str, server: Server, key: str) -> None:
    passwords = ["first"]

    class Login(redis.CredentialProvider):
        def get_credentials(self) -> Any:
            return key, passwords[-1]

    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", key, "on", ">first", "~*", "+@all")
        async with side(way, server.url, credential_provider=Login()) as own:
            assert await own.perform(command("ACL", "WHOAMI")) == key.encode()
            admin.execute_command("ACL", "SETUSER", key, "resetpass", ">second")
            admin.execute_command("CLIENT", "KILL", "USER", key)
            with pytest.raises(AuthenticationFailed, match="WRONGPASS") as caught:
                await own.perform(command("PING", repeat=Repeat.SAFE))
            assert "first" not in str(caught.value)
            passwords.append("second")
            assert await own.perform(command("ACL", "WHOAMI")) == key.encode()
        admin.execute_command("ACL", "DELUSER", key)


@pytest.mark.parametrize("kind", [redis.Redis, redis.asyncio.Redis])
def test_the_other_kind_of_client_is_refused(kind: Any) -> None:
    make: Any = RedisAsyncioTransport if kind is redis.Redis else RedisPyTransport
    with pytest.raises(UsageError, match=r"must be a redis\.(asyncio\.)?Redis; a URL or options: bullmq_\w+\.connect"):
        make(kind())


# --- replies are nobody else's ----------------------------------------------------------------------------------------


async def test_an_exception_between_a_command_and_its_reply(way: str, server: Server, key: str) -> None:
    """The connection is in the pool again, with a reply to come that nobody waits for."""
    async with side(way, server.url) as own:
        await own.perform(command("PING"))
        own.client.torn = True
        with pytest.raises(KeyboardInterrupt):
            await own.perform(command("BLPOP", key, 0))
        with anyio.fail_after(30):
            assert await own.perform(command("ECHO", key)) == key.encode()


async def test_cancelled_calls(server: Server, key: str) -> None:
    """Each at another moment of its way, among others that go on; the pool has all its connections afterwards."""
    slow = "for _ = 1, 2000 do redis.call('EXISTS', KEYS[1]) end return ARGV[1]"
    script = Script("slow", hashlib.sha1(slow.encode()).hexdigest(), 1, slow)
    wrong: list[Any] = []
    cancelled = 0
    async with side("asyncio", server.url, max_connections=4) as own:

        async def call(number: int, turns: int | None) -> None:
            nonlocal cancelled
            text = f"{number}-{turns}"
            with anyio.CancelScope() as scope:
                if turns is not None:
                    tasks.start_soon(give_up, scope, turns)
                found = await own.perform(Command("slow", (key,), (text,), as_none, script))
                if found != text.encode():
                    wrong.append((text, found))
            cancelled += scope.cancelled_caught

        async def give_up(scope: anyio.CancelScope, turns: int) -> None:
            for _ in range(turns):
                await anyio.sleep(0)
            scope.cancel()

        for number in range(40):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call, number, None)
                tasks.start_soon(call, number, number)
                tasks.start_soon(call, number, 2 * number)
        assert wrong == []
        assert cancelled > 20
        dedicated = own.transport.dedicated()
        with anyio.move_on_after(0.05) as scope:
            await dedicated.perform(command("BZPOPMIN", key, 0, block_ms=0))
        assert scope.cancelled_caught
        assert await dedicated.perform(command("ECHO", key)) == key.encode()
        assert own.client.connection_pool._in_use_connections == {dedicated._connection}
        await dedicated.aclose()
        assert own.client.connection_pool._in_use_connections == set()


async def test_calls_at_once_on_a_dedicated_connection(server: Server, key: str) -> None:
    """One has its reply in the buffer, and its task has not run yet: that is no end of the connection."""
    async with side("asyncio", server.url) as own:
        dedicated = own.transport.dedicated()
        number = await dedicated.perform(command("CLIENT", "ID"))
        found: list[Any] = []

        async def wait() -> None:
            found.append(await dedicated.perform(command("BZPOPMIN", key, 0, block_ms=0)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            with redis.Redis.from_url(server.url) as other:
                other.zadd(key, {"one": 1})
            stream = dedicated._connection._parser._stream
            with anyio.fail_after(30):
                while not stream._buffer:
                    await anyio.sleep(0)
                assert await dedicated.perform(command("CLIENT", "ID")) == number
        assert [reply[:2] for reply in found] == [[key.encode(), b"one"]]


async def test_closed_while_it_is_looked_at(server: Server, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with side("asyncio", server.url) as own:
        dedicated = own.transport.dedicated()
        await dedicated.perform(command("PING"))

        async def can_read() -> bool:
            await anyio.sleep_forever()
            return False

        monkeypatch.setattr(dedicated._connection, "can_read", can_read)
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(_close_and_cancel, dedicated, scope)
                await dedicated.perform(command("PING"))
        assert own.client.connection_pool._in_use_connections == set()


async def _close_and_cancel(transport: Any, scope: anyio.CancelScope) -> None:
    await anyio.wait_all_tasks_blocked()
    await transport.aclose()
    scope.cancel()


class OldPool(redis.ConnectionPool):
    """Takes what pools took before redis-py 5.3."""

    def get_connection(self, command_name: str, *_: Any, **__: Any) -> Any:
        assert command_name
        return super().get_connection()


class OldAsyncPool(redis.asyncio.ConnectionPool):
    """The same for asyncio."""

    async def get_connection(self, command_name: str, *_: Any, **__: Any) -> Any:
        assert command_name
        return await super().get_connection()


async def test_a_pool_that_asks_for_the_name_of_a_command(way: str, server: Server, key: str) -> None:
    async with side(way, server.url) as own:
        pool = own.client.connection_pool
        pool.__class__ = OldAsyncPool if way == "asyncio" else OldPool
        dedicated = own.transport.dedicated()
        assert await own.call(dedicated.perform, command("BZPOPMIN", key, "0.01", block_ms=10)) is None


# --- losses -----------------------------------------------------------------------------------------------------------


async def test_what_was_certainly_not_sent_is_reported_so(way: str) -> None:
    """Also after the first contact, though the client connects on its own in the middle of a call."""
    with servers.start() as server:
        # With RESP3 redis.asyncio 8 does not look at a connection before it writes.
        async with side(way, server.url, protocol=2) as own:
            await own.perform(command("PING"))
            await anyio.to_thread.run_sync(server.kill)
            for _ in range(2):
                with pytest.raises(ConnectionLost, match="cannot connect to") as caught:
                    await own.perform(command("INCR", "counter"))
                assert caught.value.maybe_applied is False
            server.restart()
            assert await own.perform(command("INCR", "counter")) == 1


async def test_a_pool_without_a_connection_left(way: str, server: Server, key: str) -> None:
    async with side(way, server.url, max_connections=1) as own:
        waiting = own.transport.dedicated()
        await own.call(waiting.perform, command("BZPOPMIN", key, "0.01", block_ms=10))
        with pytest.raises(ConnectionLost, match="Too many connections") as caught:
            await own.perform(command("INCR", key))
        assert caught.value.maybe_applied is False


async def test_a_server_that_does_not_answer(way: str, server: Server, key: str) -> None:
    with CutProxy(server.host, server.port) as proxy:
        async with side(way, proxy.url, socket_timeout=0.5) as own:
            await own.perform(command("PING"))
            proxy.arm(Fault.SWALLOW, key)
            with pytest.raises(TransportTimeout) as caught:
                await own.perform(command("SET", key, 1, repeat=Repeat.SAFE))
            assert caught.value.maybe_applied is True
            assert await own.perform(command("EXISTS", key)) == 0


async def test_a_lost_batch_says_that_it_may_have_run(way: str, server: Server, key: str) -> None:
    """A reply that redis-py takes for the end of the connection leaves the others unread."""
    loading = command("EVAL", "return redis.error_reply('LOADING x')", 0)
    async with side(way, server.url) as own:
        with pytest.raises(ServerError, match="LOADING x"):
            await own.perform(loading)
        with pytest.raises(ConnectionLost) as caught:
            await own.perform(Batch((command("INCR", key), loading, command("INCR", key))))
        assert caught.value.maybe_applied is True
        assert await own.perform(command("DEL", key)) == 1


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_a_client_without_a_time_limit_is_warned_about(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "bullmq_sync")
    async with side("threads", server.url, socket_timeout=None) as own:
        assert await own.perform(command("PING")) == b"PONG"
        assert await own.call(own.transport.dedicated().perform, command("PING")) == b"PONG"
    assert [record.getMessage() for record in caplog.records] == [
        f"{server.host}:{server.port}: the client has no socket_timeout: a call may wait for its reply for ever"
    ]


async def test_the_limit_of_asyncio_is_that_of_the_transport(server: Server, key: str) -> None:
    """The client's own may be none."""
    client = redis.asyncio.Redis.from_url(
        server.url, retry=redis.asyncio.retry.Retry(NoBackoff(), 0), socket_timeout=None
    )
    transport = RedisAsyncioTransport(client, command_timeout_ms=200)
    with pytest.raises(TransportTimeout) as caught:
        await transport.perform(command("BLPOP", key, 0, repeat=Repeat.SAFE))
    assert caught.value.maybe_applied is True
    await transport.aclose()
    await client.aclose()


async def test_another_event_loop_is_refused(server: Server) -> None:
    async with side("asyncio", server.url) as own:
        await own.perform(command("PING"))

        def elsewhere() -> None:
            with pytest.raises(UsageError, match="belongs to another event loop"):
                anyio.run(own.transport.perform, command("PING"))
            with pytest.raises(UsageError, match="give trio a URL"):
                anyio.run(RedisAsyncioTransport(own.client).perform, command("PING"), backend="trio")

        await anyio.to_thread.run_sync(elsewhere)


def limit_s(way: str) -> float:
    """On threads nothing else ends a call of the client's."""
    return 1 if way == "threads" else 120


@pytest.mark.parametrize("refuses", [0, 1])
async def test_closed_while_it_connects(way: str, refuses: int, key: str, caplog: pytest.LogCaptureFixture) -> None:
    with silent(refuses) as found:
        url = f"redis://127.0.0.1:{found.port}"
        async with side(way, url, socket_timeout=limit_s(way)) as own, asynccontextmanager(opened)(way) as adapter:
            await close_while_it_asks(adapter, key, own.transport, found, caplog)


async def test_events_closed_while_they_connect(way: str, key: str, caplog: pytest.LogCaptureFixture) -> None:
    with silent() as found:
        url = f"redis://127.0.0.1:{found.port}"
        async with side(way, url, socket_timeout=limit_s(way)) as own, asynccontextmanager(opened)(way) as adapter:
            events = adapter.QueueEvents(key, own.transport)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(events.run)
                await until(found.is_asked)
                with anyio.fail_after(20):
                    await events.aclose()
    assert warnings(caplog) == []
