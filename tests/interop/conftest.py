"""One server and one client per side for all interop tests; each test has queues of its own."""

import uuid
from collections.abc import Iterator

import pytest
import redis

from tests.support import servers
from tests.support.programs import Program, client
from tests.support.servers import Server


@pytest.fixture(scope="session")
def home() -> Iterator[Server]:
    with servers.start() as started:
        yield started


@pytest.fixture(scope="session")
def node(home: Server) -> Iterator[Program]:
    """Node's client."""
    with client("node", home) as started:
        yield started


@pytest.fixture(scope="session")
def raw(home: Server) -> Iterator["redis.Redis[bytes]"]:
    """A plain connection, to look at what is stored."""
    with redis.Redis.from_url(home.url) as connection:
        yield connection


@pytest.fixture
def queue() -> str:
    """A name that no other test uses."""
    return f"iq-{uuid.uuid4().hex[:12]}"
