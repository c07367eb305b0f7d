"""Tests of `examples/fastapi_app.py`: its endpoints and its processor, on a server of the test kit."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from bullmq_anyio import Queue
from bullmq_anyio.testing import assert_added, fake_job, queued, run_handler, work_off
from examples.fastapi_app import app, resize

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def opened() -> AsyncIterator[httpx.AsyncClient]:
    """Serve the application within its lifespan. It takes the server that `BULLMQ_URL` names: the test's own."""
    async with app.router.lifespan_context(app) as state:

        async def served(scope: Any, receive: Any, send: Any) -> None:
            # What a web server hands to each request.
            await app({**scope, "state": dict(state or {})}, receive, send)

        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            yield client


async def test_a_picture_is_resized(bullmq_url: str) -> None:
    async with opened() as client, Queue("pictures", bullmq_url) as queue:
        created = await client.post("/pictures", json={"path": "a.png", "width": 64})
        place = created.headers["location"]
        assert (await client.get(place)).json()["state"] == "waiting"
        await assert_added(queue, "resize", path="a.png", width=64)

        done = await work_off(queue, resize)

        assert [job.result for job in done.completed] == ["64-a.png"]
        shown = {"state": "completed", "progress": 50, "result": "64-a.png", "reason": None}
        assert (await client.get(place)).json() == shown


async def test_a_wrong_picture_makes_no_job(bullmq_url: str) -> None:
    async with opened() as client, Queue("pictures", bullmq_url) as queue:
        assert (await client.post("/pictures", json={"path": "a.png"})).status_code == 422
        assert await queued(queue) == []


async def test_the_processor_alone() -> None:
    job = fake_job({"path": "a.png", "width": 0})
    assert str((await run_handler(resize, job)).error) == "no picture is so narrow"
    assert job.recorded.progress == []
