"""The end of a `with` block closes a transport: to one server, and around a client, which stays the caller's."""

import anyio.to_thread
import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

import bullmq_anyio
import bullmq_sync
from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from tests.support.adapters import Adapter
from tests.support.servers import Server
from tests.support.shared_transport import is_closed_by_its_block

pytestmark = pytest.mark.anyio


async def test_a_block_closes_a_connection(server: Server, adapter: Adapter, name: str) -> None:
    package = bullmq_sync if adapter.name == "threads" else bullmq_anyio
    await is_closed_by_its_block(package.connect(server.url), name)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_block_closes_what_is_around_a_client_of_redis_asyncio(server: Server, name: str) -> None:
    async with redis.asyncio.Redis.from_url(server.url, retry=AsyncRetry(NoBackoff(), 0), protocol=2) as client:
        await is_closed_by_its_block(RedisAsyncioTransport(client), name)
        assert await client.ping()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_block_closes_what_is_around_a_client_of_redis_py(server: Server, name: str) -> None:
    with redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0)) as client:
        await is_closed_by_its_block(bullmq_sync.connect(client), name)
        assert await anyio.to_thread.run_sync(client.ping)
