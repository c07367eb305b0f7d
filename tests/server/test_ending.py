"""Workers that end when there is nothing left to do, or after a number of jobs, on asyncio, trio and threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import JobOptions, UsageError, WorkerOptions
from bullmq_sync import Queue
from tests.support.adapters import NAMES
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

Process = Callable[[Any], Any]


@pytest.fixture
def queues(server: Server, name: str) -> Iterator[list[Queue[Any]]]:
    with Queue[Any](name, server.url) as first, Queue[Any](f"{name}-2", server.url) as second:
        yield [first, second]
        first.obliterate(force=True)
        second.obliterate(force=True)


def work(kind: str, server: Server, process: Process, names: list[str], concurrency: int = 1, **ends: Any) -> None:
    """Run workers of these queues under `run_workers`, one alone by `Worker.run`."""
    options = WorkerOptions(concurrency=concurrency)
    if kind == "threads":
        threads = [bullmq_sync.Worker[Any](name, process, server.url, options=options) for name in names]
        if len(threads) == 1:
            threads[0].run(**ends)
        else:
            assert bullmq_sync.run_workers(*threads, **ends) is None
        return

    async def process_in_task(job: Any) -> Any:
        return await anyio.to_thread.run_sync(process, job)

    async def main() -> None:
        tasks = [bullmq_anyio.Worker[Any](name, process_in_task, server.url, options=options) for name in names]
        if len(tasks) == 1:
            await tasks[0].run(**ends)
        else:
            assert await bullmq_anyio.run_workers(*tasks, **ends) is None

    anyio.run(main, backend=kind)


def counts(queue: Queue[Any], *states: str) -> dict[str, int]:
    found = queue.get_job_counts(*states)
    return {state: found[state] for state in states}


@pytest.mark.parametrize("concurrency", [1, 5])
@pytest.mark.parametrize("kind", NAMES)
def test_all_that_waits_is_done_and_what_is_delayed_stays(
    queues: list[Queue[Any]], server: Server, kind: str, concurrency: int
) -> None:
    queue = queues[0]
    for number in range(12):
        queue.add("a", number)
    later = queue.add("later", options=JobOptions(delay=3_600_000))

    def process(job: Any) -> None:
        if job.data == 11:
            queue.add("another", 12)

    work(kind, server, process, [queue.name], concurrency, until="idle")
    assert counts(queue, "completed", "waiting", "active", "delayed") == {
        "completed": 13,
        "waiting": 0,
        "active": 0,
        "delayed": 1,
    }
    assert queue.get_state(later.id) == "delayed"


@pytest.mark.parametrize("kind", NAMES)
def test_several_end_when_none_of_them_has_work(queues: list[Queue[Any]], server: Server, kind: str) -> None:
    first, second = queues
    first.add("there", 5)

    def process(job: Any) -> None:
        if job.data:
            (first if job.queue_name == second.name else second).add("back", job.data - 1)

    work(kind, server, process, [first.name, second.name], until="idle")
    assert first.get_completed_count() + second.get_completed_count() == 6


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("kind", NAMES)
def test_no_more_jobs_are_taken_than_were_allowed(
    queues: list[Queue[Any]], server: Server, kind: str, concurrency: int
) -> None:
    queue = queues[0]
    for number in range(10):
        queue.add("a", number)
    work(kind, server, lambda job: job.data, [queue.name], concurrency, max_jobs=7)
    assert counts(queue, "completed", "waiting", "active") == {"completed": 7, "waiting": 3, "active": 0}


@pytest.mark.parametrize("kind", NAMES)
def test_the_first_that_has_had_its_jobs_ends_the_others(queues: list[Queue[Any]], server: Server, kind: str) -> None:
    first, second = queues
    first.add("a")
    work(kind, server, lambda job: job.data, [first.name, second.name], max_jobs=1)
    assert first.get_completed_count() == 1


@pytest.mark.parametrize("kind", NAMES)
def test_wrong_ends_are_refused_before_anything_is_opened(server: Server, name: str, kind: str) -> None:

    for ends, field in (({"until": "empty"}, "until"), ({"max_jobs": 0}, "max_jobs")):
        for names in ([name], [name, f"{name}-2"]):
            with pytest.raises(UsageError) as caught:
                work(kind, server, print, names, **ends)
            assert caught.value.field == field
