"""Tests of `examples/fastapi_app.py`: its endpoints and its processor, on a server of the test kit."""

from collections.abc import Iterator

import anyio
import pytest
from fastapi.testclient import TestClient

from bullmq_anyio import Queue
from bullmq_anyio.testing import assert_added, fake_job, run_handler, work_off
from examples.fastapi_app import app, resize


@pytest.fixture
def client(bullmq_url: str) -> Iterator[TestClient]:
    """The application with its lifespan; it takes the server that `BULLMQ_URL` names, which is the test's own."""
    with TestClient(app) as made:
        yield made


def test_a_picture_is_resized(client: TestClient, bullmq_url: str) -> None:
    created = client.post("/pictures", json={"path": "a.png", "width": 64})
    assert created.status_code == 202
    place = created.headers["location"]
    assert client.get(place).json()["state"] == "waiting"

    async def work() -> None:
        async with Queue("pictures", bullmq_url) as queue:
            await assert_added(queue, "resize", path="a.png", width=64)
            done = await work_off(queue, resize)
            assert [job.result for job in done.completed] == ["64-a.png"]

    anyio.run(work)
    assert client.get(place).json() == {"state": "completed", "progress": 50, "result": "64-a.png", "reason": None}


def test_a_wrong_picture_makes_no_job(client: TestClient, bullmq_url: str) -> None:
    assert client.post("/pictures", json={"path": "a.png"}).status_code == 422
    # No other test's job is there.
    assert client.get("/pictures/1").status_code == 404


def test_the_processor_alone() -> None:
    async def run() -> None:
        job = fake_job({"path": "a.png", "width": 0})
        assert str((await run_handler(resize, job)).error) == "no picture is so narrow"
        assert job.recorded.progress == []

    anyio.run(run)
