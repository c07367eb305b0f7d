"""The transports to sentinels and clusters go through the public conformance cases that need no network of the test."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_anyio.testing import run_case
from bullmq_protocol.common.keys import key_slot
from bullmq_protocol.testing.conformance import CASES, Case, Need
from bullmq_sync.testing import run_case as run_blocking_case
from tests.support import topology
from tests.support.topology import SERVICE, ClusterSet, SentinelSet

_CASES = [case for case in CASES if Need.NETWORK not in case.needs]
_BLOCKING_CASES = [case for case in _CASES if Need.CANCEL not in case.needs]


pytestmark = pytest.mark.any_python


@pytest.fixture(scope="module")
def url_of_sentinels() -> Iterator[str]:
    with SentinelSet(topology.kinds()[-1]) as sentinels:
        yield f"redis+sentinel://{sentinels.hosts}/{SERVICE}"


@pytest.fixture(scope="module")
def url_of_cluster() -> Iterator[str]:
    with ClusterSet(topology.kinds()[-1]) as cluster:
        yield f"redis+cluster://{cluster.hosts}"


@pytest.fixture(params=["sentinels", "cluster"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"url_of_{request.param}"))


@pytest.fixture
def key() -> str:
    return f"{{conformance-{uuid4().hex}}}"


def at_the_node_of(key: str, connect: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make transports whose questions about a node (`CLIENT LIST`) go to the one that has the key, from the start."""

    def make(url: Any) -> Any:
        transport = connect(url)
        transport._last = key_slot(key)
        return transport

    return make


@pytest.mark.parametrize("case", _CASES, ids=str)
async def test_native(case: Case, url: str, key: str, anyio_backend: Any) -> None:
    await run_case(case, at_the_node_of(key, bullmq_anyio.connect), url, key)


@pytest.mark.parametrize("case", _BLOCKING_CASES, ids=str)
def test_redis_py(case: Case, url: str, key: str) -> None:
    run_blocking_case(case, at_the_node_of(key, bullmq_sync.connect), url, key)
