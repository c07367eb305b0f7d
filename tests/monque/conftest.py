"""A server for Monque, and its adapters: asyncio, asyncio on the blocking client, trio, threads."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
import pytest
from pymongo import AsyncMongoClient, MongoClient

import monque_anyio
import monque_sync
from tests.support import mongo_servers
from tests.support.adapters import threads_of

ADAPTERS = ("asyncio", "blocking", "trio", "threads")
QUICK: dict[str, Any] = {"poll_interval": 100, "change_streams": False}


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "monque" in metafunc.fixturenames:
        pairs = [pytest.param(name, "trio" if name == "trio" else "asyncio", id=name) for name in ADAPTERS]
        # A mark, so that it goes before the parameters that `anyio_backend` has of its own.
        metafunc.definition.add_marker(pytest.mark.parametrize(("monque", "anyio_backend"), pairs, indirect=True))


@pytest.fixture(scope="session")
def mongodb() -> Iterator[str]:
    """Give the URL of a server, shared by the session: use collections of your own."""
    if mongo_servers.kind() is None:
        if os.environ.get("CI"):
            raise pytest.UsageError("CI is set and there is no server for Monque: tools/documentdb_root.sh")
        pytest.skip("Monque: no server: tests/support/mongo_servers.py says which are known")
    with mongo_servers.start() as url:
        yield url


class Monques:
    """Makes schedulers of one adapter on a collection of their own, and reads what is stored there."""

    def __init__(self, adapter: str, url: str, make: Any) -> None:
        self.adapter = adapter
        self.collection = f"jobs_{uuid4().hex}"
        self._make = make
        self._url = url
        kind: Any = AsyncMongoClient if adapter == "asyncio" else MongoClient
        self.client: Any = kind(url, serverSelectionTimeoutMS=5_000)
        self.plain: Any = MongoClient(url)

    def __call__(self, **options: Any) -> Any:
        return self._make(self.client["monque_tests"], **{"collection_name": self.collection, **QUICK, **options})

    @property
    def stored(self) -> Any:
        """The collection, by a blocking client."""
        return self.plain["monque_tests"][self.collection]

    @asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[Any]:
        async with self(**options) as monque:
            await monque.start()
            yield monque

    async def close(self) -> None:
        if self.adapter == "asyncio":
            await self.client.close()
        else:
            self.client.close()
        self.plain.close()


@pytest.fixture
async def monque(request: pytest.FixtureRequest, mongodb: str, anyio_backend: object) -> AsyncIterator[Monques]:
    name = request.param
    async with threads_of({monque_sync.Monque: monque_anyio.Monque}) as making:
        made = Monques(name, mongodb, making(monque_sync.Monque) if name == "threads" else monque_anyio.Monque)
        yield made
        await anyio.to_thread.run_sync(made.stored.drop)
        await made.close()
