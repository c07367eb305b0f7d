"""Benches for the oracle's tests: servers of their own, the oldest and the newest kind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle import scripts
from tests.oracle.harness import Bench
from tests.support import servers


@pytest.fixture(scope="session", params=servers.ends())
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Give a bench with our scripts as they are shipped."""
    with servers.start(request.param) as server, scripts.bench(server) as made:
        yield made


@pytest.fixture(scope="session")
def counting() -> Iterator[Bench]:
    """Give a bench on one server whose scripts of ours count their branches; tests may replace them."""
    with servers.start() as server, scripts.bench(server) as made:
        yield made
