"""Transports over clients of redis-py that nobody else uses: the client is closed with its transport."""

from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from redis.retry import Retry

from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_sync.net.dialling import login_of
from bullmq_sync.net.redis_py import RedisPyTransport


class OwnClient(RedisPyTransport):
    """A transport over a client of its own, without retries."""

    def __init__(self, server: str | ConnectionOptions, **options: Any) -> None:
        retry = Retry(NoBackoff(), 0)
        if isinstance(server, str):
            self.client = redis.Redis.from_url(server, retry=retry, **options)
        else:
            self.client = redis.Redis(retry=retry, **_options_of(server), **options)
        super().__init__(self.client)

    def close(self) -> None:
        super().close()
        self.client.close()


class OwnAsyncioClient(RedisAsyncioTransport):
    """The same for asyncio."""

    def __init__(
        self, url: str, *, connect_timeout_ms: int = 5000, command_timeout_ms: int | None = 3000, **options: Any
    ) -> None:
        retry = redis.asyncio.retry.Retry(NoBackoff(), 0)
        self.client = redis.asyncio.Redis.from_url(url, retry=retry, **options)
        super().__init__(self.client, connect_timeout_ms=connect_timeout_ms, command_timeout_ms=command_timeout_ms)

    async def aclose(self) -> None:
        await super().aclose()
        await self.client.aclose()


class _Login(redis.CredentialProvider):
    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options

    def get_credentials(self) -> Any:
        return login_of(self._options)


def _options_of(options: ConnectionOptions) -> dict[str, Any]:
    limit_ms = options.command_timeout_ms
    found: dict[str, Any] = {
        "host": options.host,
        "port": options.port,
        "db": options.db,
        "socket_timeout": None if limit_ms is None else limit_ms / 1000,
        "socket_connect_timeout": options.connect_timeout_ms / 1000,
    }
    if options.credentials is not None:
        found["credential_provider"] = _Login(options)
    return found
