"""Scenarios for each adapter: a test that asks for `adapter` runs on asyncio, on trio and on threads.

Those of a module that says `BOTH_SOURCES = True` run with our scripts on every server, and with BullMQ's own on the
newest, there on asyncio and on threads: on trio the same text runs as on asyncio. `BULLMQ_TEST_PROFILE` names the
profile of ours: `strict`, `fleet` or `6.7`; by default it is that of queues which are given none.
"""

import functools
import os
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest

from bullmq_anyio import bullmq_scripts
from bullmq_protocol.scripts.profile import DEFAULT, FLEET, STRICT, V6_7, Profile
from tests.support import servers, topology
from tests.support.adapters import NAMES, Adapter, opened
from tests.support.node import bullmq_folder

PROFILE = {"": DEFAULT, "strict": STRICT, "fleet": FLEET, "6.7": V6_7}[os.environ.get("BULLMQ_TEST_PROFILE", "")]
"""The profile of the adapters' queues and workers."""


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for name in ("sentinels", "cluster"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, topology.kinds(), indirect=True, scope="module")
    if "adapter" in metafunc.fixturenames:
        pairs = [pytest.param((name, False), "asyncio" if name == "threads" else name, id=name) for name in NAMES]
        if getattr(metafunc.module, "BOTH_SOURCES", False):
            pairs += [
                pytest.param(
                    (name, True),
                    "asyncio" if name == "threads" else name,
                    id=f"{name}-bullmq-scripts",
                    marks=(pytest.mark.node, pytest.mark.any_python),
                )
                for name in ("asyncio", "threads")
            ]
        # A mark, so that it goes before the parameters that `anyio_backend` has of its own.
        metafunc.definition.add_marker(pytest.mark.parametrize(("adapter", "anyio_backend"), pairs, indirect=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    newest = servers.kinds()[-1:]
    left_out = [item for item in items if _is_repetition(item, newest)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not _is_repetition(item, newest)]


def _is_repetition(item: pytest.Item, newest: tuple[str, ...]) -> bool:
    params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return params.get("adapter", ("", False))[1] and "server" in params and params["server"] not in newest


@pytest.fixture
async def adapter(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[Adapter]:
    name, original = request.param
    profile = STRICT if request.node.get_closest_marker("strict_profile") else PROFILE
    async for each in opened(name, originals() if original else profile):
        yield each


@functools.cache
def originals() -> Profile:
    """BullMQ's own scripts."""
    return bullmq_scripts(bullmq_folder())


# Each is used by one module, and its processes are a burden to all others.
@pytest.fixture(scope="module")
def sentinels(request: pytest.FixtureRequest) -> Iterator[topology.SentinelSet]:
    with topology.SentinelSet(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[topology.ClusterSet]:
    with topology.ClusterSet(request.param) as found:
        yield found


@pytest.fixture(autouse=True)
def _restored(request: pytest.FixtureRequest) -> None:
    """Start what an earlier test has killed."""
    for name in ("sentinels", "cluster"):
        if name in request.fixturenames:
            request.getfixturevalue(name).restore()


@pytest.fixture
def name() -> str:
    """Give a queue name that no other test uses."""
    return f"q-{uuid4().hex[:12]}"
