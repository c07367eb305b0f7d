"""The pytest plugin of the test kit: a Redis or Valkey server for the tests, and a place on it for each test.

pytest loads it at its start, wherever the library is installed. It imports the library when the first test asks for a
fixture, so that other test suites do not pay for it, and a measurement of coverage sees all of it.
"""

from __future__ import annotations

import importlib
import itertools
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from bullmq_protocol.testing.clock import SimulatedClock
    from bullmq_protocol.testing.server import Server

_DATABASES: Final = 1024
_numbers = itertools.cycle(range(1, _DATABASES))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--bullmq-server`."""
    parser.getgroup("bullmq").addoption(
        "--bullmq-server",
        metavar="URL|KIND",
        help="the server of the fixture bullmq_server: a URL, or redis-6.2, redis-7.0, valkey-9, or the kind of a "
        "program on PATH; by default BULLMQ_TEST_REDIS_URL, else the newest of Docker, PATH or a wheel",
    )


def _servers() -> Any:
    return importlib.import_module("bullmq_protocol.testing.server")


@pytest.fixture(scope="session")
def bullmq_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for all tests of the process, started when the first of them asks for it.

    With `--bullmq-server` or `BULLMQ_TEST_REDIS_URL` it may be one that runs already, which is left alone.
    """
    servers = _servers()
    asked: str | None = request.config.getoption("bullmq_server")
    server: Server | None = None
    refusal = ""
    try:
        if asked is not None and "://" in asked:
            server = servers.Server.external(asked)
        else:
            external = servers.external_url() is not None
            server = servers.start(asked, config=() if external else ("--databases", str(_DATABASES)))
    except (servers.NoServer, OSError, ValueError) as error:
        refusal = f"bullmq_server: {error}"
    if server is None:
        # Within `except` pytest would show the error twice.
        pytest.fail(refusal, pytrace=False)
    with server:
        yield server


@pytest.fixture
def bullmq_url(bullmq_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL for one test, which `BULLMQ_URL` names, too, while it runs.

    On a server of our own it names a database that no other test has, emptied when the test is over. On one that runs
    already it is that server's URL: there `bullmq_prefix` keeps tests apart.
    """
    servers = _servers()
    if not bullmq_server.alive:
        # An earlier test has killed it.
        bullmq_server.restart()
    url = bullmq_server.url if bullmq_server.is_external else f"{bullmq_server.url}/{next(_numbers)}"
    monkeypatch.setenv("BULLMQ_URL", url)
    yield url
    if not bullmq_server.is_external and bullmq_server.alive:
        servers.ask(url, "FLUSHDB")


@pytest.fixture
def bullmq_prefix(bullmq_server: Server, bullmq_url: str) -> Iterator[str]:
    """A prefix for the queues of one test; what is left under it is removed when the test is over."""
    prefix = f"test-{uuid.uuid4().hex[:16]}"
    yield prefix
    if bullmq_server.is_external:
        _servers().remove_keys(bullmq_url, prefix)


@pytest.fixture
def bullmq_clock() -> SimulatedClock:
    """A clock for queues and workers (`clock=`) that goes on as the system's does, and jumps when it is advanced."""
    instant: Any = importlib.import_module("bullmq_protocol.common.units").Instant
    clock: Any = importlib.import_module("bullmq_protocol.testing.clock").SimulatedClock

    def system() -> Any:
        return instant(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000)

    made: SimulatedClock = clock(along=system)
    return made
