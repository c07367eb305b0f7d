"""Scenarios in three colours: a test that asks for `colour` runs on asyncio, on trio and on threads."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from tests.support.colours import NAMES, Colour, opened


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "colour" in metafunc.fixturenames:
        pairs = [(name, "asyncio" if name == "threads" else name) for name in NAMES]
        # A mark, so that it goes before the parameters that `anyio_backend` has of its own.
        metafunc.definition.add_marker(
            pytest.mark.parametrize(("colour", "anyio_backend"), pairs, indirect=True, ids=NAMES)
        )


@pytest.fixture
async def colour(request: pytest.FixtureRequest, anyio_backend: object) -> AsyncIterator[Colour]:
    async for each in opened(request.param):
        yield each


@pytest.fixture
def name() -> str:
    """Give a queue name that no other test uses."""
    return f"q-{uuid4().hex[:12]}"
