"""What a worker and a queue show of themselves, and what a failure hands on, on every adapter."""

from typing import Any

import anyio
import msgspec
import pytest

from bullmq_protocol import JobOptions, WorkerOptions, WorkerSnapshot
from bullmq_protocol.worker.notices import JobFailed
from tests.support.adapters import Adapter
from tests.support.servers import Server


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> Any:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


async def test_a_snapshot_of_a_running_job(adapter: Adapter, server: Server, queue: Any, name: str) -> None:
    begun, may_end = anyio.Event(), anyio.Event()

    async def process(job: Any) -> None:
        begun.set()
        await may_end.wait()

    await queue.add("mail")
    worker = adapter.Worker(name, process, server.url, options=WorkerOptions(lock_duration=30_000))
    with anyio.fail_after(60):
        async with worker:
            await begun.wait()
            seen = worker.snapshot()
            seen = seen if isinstance(seen, WorkerSnapshot) else await seen
            [held] = seen.held
            assert (held.id, held.name, held.attempt, held.phase) == ("1", "mail", 1, "running")
            assert held.handler_running and not held.lock_lost
            assert 0 <= held.renewed_ms_ago <= held.held_for_ms
            assert (seen.state, seen.taken, seen.left) == ("running", 1, 0)
            text = msgspec.json.encode(seen).decode()
            assert msgspec.json.decode(text, type=WorkerSnapshot) == seen
            # A lock's token is the worker's uuid and a number.
            job = await queue.get_job("1")
            assert "running" in repr(worker) and name in repr(worker)
            assert job.name == "mail"
            may_end.set()


async def test_reprs_hold_no_password(adapter: Adapter, name: str) -> None:
    url = "redis://user:secret@127.0.0.1:1"
    for shown in (adapter.Queue(name, url), adapter.Worker(name, None, url)):
        assert name in repr(shown)
        assert "bull" in repr(shown)
        assert "secret" not in repr(shown)


async def test_a_failure_hands_on_what_was_raised(adapter: Adapter, server: Server, queue: Any, name: str) -> None:
    error = ValueError("boom")
    caught: list[Any] = []
    over = anyio.Event()

    async def process(job: Any) -> None:
        raise error

    def note(notice: JobFailed) -> None:
        caught.append(notice.exception)
        over.set()

    await queue.add("a")
    worker = adapter.Worker(name, process, server.url)
    worker.on(JobFailed, note)
    with anyio.fail_after(60):
        async with worker:
            await over.wait()
    assert caught == [error]


async def test_a_child_is_added_to_a_job_that_is_there(adapter: Adapter, queue: Any) -> None:
    parent = await queue.add("parent", options=JobOptions(delay=3_600_000))
    await queue.add("child", options=JobOptions(parent=parent.ref))
    assert await parent.get_dependencies_count("unprocessed") == {"unprocessed": 1}
    [child] = [job for job in await queue.get_jobs() if job.name == "child"]
    assert child.parent_key == parent.key
