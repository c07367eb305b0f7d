"""Two databases of each server, and a client in this process, for all tests of the conformance run."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

import bullmq_sync
from bullmq_conformance import search
from bullmq_conformance.__main__ import compare
from bullmq_conformance.calls import Calls
from bullmq_conformance.keyspace import Moments, Side
from bullmq_conformance.program import Client, Local
from bullmq_conformance.scripts import PROFILES
from bullmq_conformance.search import Arena
from bullmq_conformance.wire import Wire
from tests.support.servers import Server

DATABASES = (12, 13)
"""A sequence begins by emptying them."""

MakeArena = Callable[..., Arena]


def local(version: str, kind: type[Calls] = Calls) -> Local:
    return Local(kind(bullmq_sync, PROFILES[version], "threads").methods())


def compared(
    client: Client, version: str, url: str, *, reference: Client | None = None, **options: int
) -> search.Report:
    """Compare a client with a reference, by default ours in this process; close both."""
    with closing(client), closing(reference or local(version)) as other:
        return compare(client, other, version, url, **options)


def url_of(server: Server, at: int = 0) -> str:
    return f"{server.url}/{DATABASES[at]}"


@pytest.fixture(autouse=True)
def _empty(request: pytest.FixtureRequest) -> None:
    """Empty both databases of the server, if the test has one: tests of other folders take databases as they come."""
    if "server" in request.fixturenames:
        server: Server = request.getfixturevalue("server")
        for at in (0, 1):
            with closing(Wire.of_url(url_of(server, at))) as wire:
                wire.run([("FLUSHDB",)])


@pytest.fixture
def arena(server: Server) -> Iterator[MakeArena]:
    """Make what compares a client with the reference of a version; all is closed at the end."""
    opened: list[Client | Wire] = []

    def make(client: Client, version: str = "5.62.0", reference: Client | None = None) -> Arena:
        reference, moments = reference or local(version), Moments()
        wires = [Wire.of_url(url_of(server, at)) for at in (0, 1)]
        made = Arena(client, reference, (Side(wires[0], moments), Side(wires[1], moments)), moments)
        opened.extend((client, reference, *wires))
        made.introduce(
            [
                {
                    "url": url_of(server, at),
                    "host": server.host,
                    "port": server.port,
                    "db": DATABASES[at],
                    "prefix": "bull",
                    "version": version,
                }
                for at in (0, 1)
            ]
        )
        return made

    yield make
    for each in opened:
        each.close()
