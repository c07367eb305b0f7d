"""What a worker tells of jobs that are taken by hand, on every adapter."""

from __future__ import annotations

import pytest

from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.reply import as_int
from bullmq_protocol.worker.notices import WorkerProblem
from tests.support.adapters import Adapter
from tests.support.seen import Seen
from tests.support.servers import Server

pytestmark = pytest.mark.anyio


async def test_only_a_schedule_that_cannot_go_on_is_a_problem(adapter: Adapter, server: Server, name: str) -> None:
    worker = adapter.Worker(name, None, server.url)
    seen = Seen(worker, WorkerProblem)
    async with adapter.Queue(name, server.url) as queue:
        try:
            added = await queue.add("good", {"a": 1})
            taken = await worker.get_next_job(block=False)
            assert (taken.id, taken.data) == (added.id, {"a": 1})
            await worker.complete(taken, None)
            assert seen.of(WorkerProblem) == []
            bad = queue.keys.job((await queue.add("bad")).id)
            stored = ("rjk", "s", "opts", '{"repeat":{"pattern":"61 * * * *"}}')
            await queue.call(Command("HSET", (bad,), stored, as_int, repeat=Repeat.SAFE))
            assert await worker.get_next_job(block=False) is None
            (problem,) = seen.of(WorkerProblem)
            assert "expected range 0-59" in problem.message
            assert await queue.get_job_count_by_types("delayed") == 1
        finally:
            await worker.aclose()
            await queue.obliterate(force=True)
