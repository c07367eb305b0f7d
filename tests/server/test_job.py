"""What can be done with one job, on every adapter."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bullmq_protocol import JobOptions, UsageError
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.jobs import FinishedState
from bullmq_protocol.common.reply import as_int, as_texts
from bullmq_protocol.errors import JobNotFound, LockMismatch, LockMissing
from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = [pytest.mark.every_server, pytest.mark.any_python]
BOTH_SOURCES = True


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


@pytest.fixture
async def worker(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    """A worker that takes jobs by hand."""
    worker = adapter.Worker(name, None, server.url)
    yield worker
    await worker.aclose()


async def events(queue: Any, name: str) -> int:
    """Count the events of this name in the stream."""
    source = """local n = 0
        for _, e in ipairs(redis.call('XRANGE', KEYS[1], '-', '+')) do
          for i = 1, #e[2], 2 do if e[2][i] == 'event' and e[2][i + 1] == ARGV[1] then n = n + 1 end end
        end
        return n"""
    found: int = await queue.call(Command("EVAL", (), (source, 1, queue.keys.events, name), as_int))
    return found


async def test_progress(queue: Any) -> None:
    job = await queue.add("a")
    for value in (50, 12.5, {"step": 3}, "half", None):
        await job.update_progress(value)
        assert job.progress == value
        assert (await queue.get_job(job.id)).progress == value
    assert await events(queue, "progress") == 5
    with pytest.raises(UsageError, match="progress"):
        await job.update_progress(float("nan"))
    for wrong in (101, -1, 1.5, True, "50"):
        with pytest.raises(UsageError, match="0 to 100"):
            await job.update_progress(wrong, strict=True)
    await job.update_progress(100, strict=True)


async def test_log(queue: Any) -> None:
    job = await queue.add("a", options=JobOptions(keep_logs=2))
    assert [await job.log(row) for row in ("one", "two", "three")] == [1, 2, 2]
    rows = await queue.call(Command("LRANGE", (queue.keys.logs(job.id),), (0, -1), as_texts, repeat=Repeat.SAFE))
    assert rows == ["two", "three"]
    with pytest.raises(UsageError, match="row"):
        await job.log(7)


async def test_data_can_be_replaced(queue: Any) -> None:
    job = await queue.add("a", {"n": 1})
    assert job.data == {"n": 1}
    await job.update_data({"n": 2})
    assert job.data == {"n": 2}
    assert (await queue.get_job(job.id)).data == {"n": 2}


async def test_refresh(queue: Any) -> None:
    job = await queue.add("a", {"n": 1})
    other = await queue.get_job(job.id)
    await other.update_data({"n": 2})
    assert job.data == {"n": 1}
    await job.refresh()
    assert job.data == {"n": 2}


async def test_states_of_a_job(queue: Any, worker: Any) -> None:
    job = await queue.add("a")
    assert await job.get_state() == "waiting"
    assert await job.finished_state() == FinishedState("pending")
    taken = await worker.get_next_job()
    assert await job.get_state() == "active"
    await worker.complete(taken, {"ok": True})
    assert await job.get_state() == "completed"
    assert await job.finished_state() == FinishedState("completed", '{"ok":true}')


async def test_remove(queue: Any, worker: Any) -> None:
    job = await queue.add("a")
    assert await job.remove() is True
    for gone in (job.update_progress(1), job.log("x"), job.update_data({}), job.refresh(), job.finished_state()):
        with pytest.raises(JobNotFound):
            await gone
    assert await job.get_state() == "unknown"
    locked = await queue.add("b")
    await worker.get_next_job()
    assert await locked.remove() is False


async def test_lock(queue: Any, worker: Any) -> None:
    added = await queue.add("a")
    job = await worker.get_next_job()
    key = queue.keys.lock(job.id)
    assert await job.extend_lock(120_000) is True
    assert 100_000 < await queue.call(Command("PTTL", (key,), (), as_int, repeat=Repeat.SAFE)) <= 120_000
    assert await worker.extend_lock(job) is True
    assert await queue.call(Command("PTTL", (key,), (), as_int, repeat=Repeat.SAFE)) <= 30_000
    # Without the token it is nobody's.
    assert await added.extend_lock(1000) is False
    await queue.call(Command("DEL", (key,), (), as_int, repeat=Repeat.SAFE))
    assert await job.extend_lock(1000) is False
    with pytest.raises(UsageError, match="duration"):
        await job.extend_lock(0)


async def test_move_to_delayed(queue: Any, worker: Any) -> None:
    await queue.add("a")
    job = await worker.get_next_job()
    due = int(time.time() * 1000) + 60_000
    await job.move_to_delayed(due)
    assert await job.get_state() == "delayed"
    await job.refresh()
    assert 59_000 < job.delay <= 60_000
    assert (job.attempts_made, job.attempts_started) == (0, 1)
    with pytest.raises(LockMissing):
        await job.move_to_delayed(due)


async def test_move_to_wait(queue: Any, worker: Any) -> None:
    await queue.add("a")
    job = await worker.get_next_job()
    with pytest.raises(LockMismatch):
        await job.move_to_wait("another token")
    assert await job.move_to_wait() == 0
    assert await job.get_state() == "waiting"
    with pytest.raises(LockMissing):
        await job.move_to_wait()
