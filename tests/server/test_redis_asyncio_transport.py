"""The transport over a `redis.asyncio` client: which clients it takes, and what it makes of them."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from bullmq_anyio import Queue
from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.errors import AuthenticationFailed, UsageError
from tests.support import servers
from tests.support.servers import Server

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def command(*wire: bytes | str | int, repeat: Repeat = Repeat.UNSAFE) -> Command[None]:
    name, *args = wire
    return Command(str(name), (), tuple(args), as_none, repeat=repeat)


def client_of(server: Server, **options: Any) -> redis.asyncio.Redis:
    return redis.asyncio.Redis(host=server.host, port=server.port, retry=Retry(NoBackoff(), 0), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"protocol": 2},
        {"protocol": 3},
        {"protocol": 2, "max_connections": 1},
        {"protocol": 2, "decode_responses": True},
        {"protocol": 3, "decode_responses": True},
        {"protocol": 2, "db": 3, "client_name": "mine"},
    ],
)
async def test_any_client_without_retries_will_do(server: Server, options: dict[str, Any]) -> None:
    client = client_of(server, **options)
    transport = RedisAsyncioTransport(client)
    key = f"redis-asyncio-{uuid4().hex}"
    await transport.perform(command("HSET", key, "a", b"\xff\x00"))
    wanted = [b"a", b"\xff\x00"]
    assert await transport.perform(command("HGETALL", key)) == (
        wanted if options.get("protocol") == 2 else {wanted[0]: wanted[1]}
    )
    assert await transport.perform(command("CLIENT", "GETNAME")) == (b"mine" if "client_name" in options else None)
    dedicated = transport.dedicated(client_name="other")
    assert await dedicated.perform(command("CLIENT", "GETNAME")) == b"other"
    # It leaves a pool of one connection to the others.
    await dedicated.aclose()
    replies: list[Any] = []

    async def echo(number: int) -> None:
        replies.append(await transport.perform(command("ECHO", f"{number}")))

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(echo, number)
    assert sorted(replies, key=int) == [b"%d" % number for number in range(200)]
    await transport.aclose()
    # The client stays its owner's.
    assert await client.delete(key) == 1
    await client.aclose()


@pytest.mark.parametrize(
    "build",
    [
        lambda: redis.asyncio.Redis(retry=Retry(NoBackoff(), 1)),
        lambda: redis.asyncio.Redis(retry=Retry(NoBackoff(), 0), retry_on_error=[redis.ConnectionError]),
    ],
)
async def test_client_with_retries_is_refused(build: Callable[[], redis.asyncio.Redis]) -> None:
    client = build()
    with pytest.raises(UsageError, match=r"Retry\(NoBackoff\(\), 0\)"):
        RedisAsyncioTransport(client)
    await client.aclose()


@pytest.mark.parametrize("client", [None, "redis://localhost", redis.Redis])
async def test_what_is_no_client_is_refused(client: Any) -> None:
    with pytest.raises(UsageError):
        RedisAsyncioTransport(client)


async def test_losses_and_logins() -> None:
    with servers.start(config=("--requirepass", "secret")) as server:
        # With RESP3 redis-py 8 does not look at a connection before it writes.
        client = client_of(server, password="secret", protocol=2)
        transport = RedisAsyncioTransport(client)
        for _ in range(3):
            # A restart between two calls is not seen.
            assert await transport.perform(command("INCR", "counter")) == 1
            await anyio.to_thread.run_sync(server.restart)
        await transport.aclose()
        await client.aclose()
        for options in ({}, {"password": "wrong"}, {"username": "nobody", "password": "wrong"}):
            stranger = client_of(server, **options)
            refused = RedisAsyncioTransport(stranger)
            with pytest.raises(AuthenticationFailed) as caught:
                await refused.perform(command("PING"))
            assert caught.value.code in ("WRONGPASS", "NOAUTH")
            assert f"'{options.get('username', 'default')}'" in str(caught.value)
            await refused.aclose()
            await stranger.aclose()


async def test_a_login_without_info_is_warned_about_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    user = f"blind-{uuid4().hex}"
    async with redis.asyncio.Redis.from_url(server.url) as admin:
        await admin.execute_command("ACL", "SETUSER", user, "on", ">pass", "~*", "+@all", "-info")
        client = client_of(server, username=user, password="pass")
        transport = RedisAsyncioTransport(client)
        with caplog.at_level(logging.WARNING, "bullmq_anyio"):
            assert await transport.perform(command("PING")) == b"PONG"
            await admin.execute_command("CLIENT", "KILL", "USER", user)
            assert await transport.perform(command("PING", repeat=Repeat.SAFE)) == b"PONG"
            assert await transport.dedicated().perform(command("PING")) == b"PONG"
        assert sum("NOPERM" in record.getMessage() for record in caplog.records) == 1
        assert (await transport.server_info()).version_text == ""
        await transport.aclose()
        await client.aclose()
        await admin.execute_command("ACL", "DELUSER", user)


async def test_queue_over_it(server: Server) -> None:
    client = client_of(server)
    transport = RedisAsyncioTransport(client)
    queue: Queue[Any] = Queue(f"over-{uuid4().hex[:12]}", transport)
    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(partial(queue.add, "job", {"number": number}))
    assert (await queue.get_job_counts("wait"))["wait"] == 50
    await queue.obliterate(force=True)
    # A transport that was handed over stays its owner's.
    await queue.aclose()
    assert await transport.perform(command("PING")) == b"PONG"
    await transport.aclose()
    await client.aclose()
