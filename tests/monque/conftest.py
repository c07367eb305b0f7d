"""A server for Monque, and its adapters: asyncio, asyncio on the blocking client, trio, threads."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import msgspec
import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

import monque_anyio
import monque_sync
from tests.support import mongo_servers
from tests.support.adapters import threads_of

ADAPTERS = ("asyncio", "blocking", "trio", "threads")
QUICK: dict[str, Any] = {"poll_interval": 100, "change_streams": False}


_WITHOUT_SERVER = ("test_change_streams", "test_cron", "test_demo")
_ON = {"test_documentdb": ("documentdb",), "test_partner": ("external", "docker", "mongod", "documentdb")}
"""What needs one kind of server, or cannot be had on one: Node's driver 7 does not understand mongoeco."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what the servers of this machine are not for: which there are is a choice, and nothing is skipped."""
    name, in_ci = collection_path.stem, bool(os.environ.get("CI"))
    if collection_path.suffix != ".py" or not name.startswith("test_") or name in _WITHOUT_SERVER:
        return None
    if name == "test_mongoeco":
        is_missing = not mongo_servers.MONGOECO.exists()
    elif mongo_servers.kind() is not None:
        return True if mongo_servers.kind() not in _ON.get(name, (mongo_servers.kind(),)) else None
    else:
        is_missing = True
    # CI has one, or says so.
    return True if is_missing and not in_ci else None


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
        raise pytest.UsageError("no server for Monque: tests/support/mongo_servers.py says which are known")
    with mongo_servers.start() as url:
        yield url


class Sent(msgspec.Struct, frozen=True):
    """A command that was answered."""

    name: str
    command: Any
    reply: Any


class Listener(CommandListener):
    """Keeps the commands of a client and their replies."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.most_claims = 0
        """How many claims of one name were under way at the same time."""
        self._started: dict[int, Any] = {}

    def started(self, event: CommandStartedEvent) -> None:
        self._started[event.request_id] = event.command
        claims = [
            each["query"].get("name") for each in list(self._started.values()) if "sort" in each and "query" in each
        ]
        self.most_claims = max([self.most_claims, *map(claims.count, claims)])

    def succeeded(self, event: CommandSucceededEvent) -> None:
        self.sent.append(Sent(event.command_name, self._started.pop(event.request_id), event.reply))

    def failed(self, event: CommandFailedEvent) -> None:
        self._started.pop(event.request_id)


class Monques:
    """Makes schedulers of one adapter on a collection of their own, and reads what is stored there."""

    def __init__(self, adapter: str, url: str, make: Any) -> None:
        self.adapter = adapter
        self.collection = f"jobs_{uuid4().hex}"
        self._make = make
        self._url = url
        kind: Any = AsyncMongoClient if adapter == "asyncio" else MongoClient
        self.listener = listener = Listener()
        self.sent = listener.sent
        """What the schedulers have sent to the server, as far as it was answered."""
        self.client: Any = kind(url, serverSelectionTimeoutMS=5_000, event_listeners=[listener])
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
