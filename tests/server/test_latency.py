"""How late a delayed job starts on an idle worker, in three colours."""

import time
from typing import Any

import anyio

from bullmq_protocol import JobOptions, WorkerOptions
from tests.support.colours import Colour
from tests.support.servers import Server

JOBS = 100
DELAY_MS = 100
APART_S = 0.012
"""So far apart are the jobs, which take no time: the worker waits between them."""


async def test_a_delay_of_100_ms_starts_within_200_ms_for_95_of_100_jobs(
    colour: Colour, server: Server, name: str
) -> None:
    started: dict[str, float] = {}
    all_started = anyio.Event()

    async def process(job: Any) -> None:
        started[job.id] = time.time() * 1000 - job.timestamp
        if len(started) == JOBS:
            all_started.set()

    queue = colour.Queue(name, server.url)
    worker = colour.Worker(name, process, server.url, options=WorkerOptions(concurrency=10))
    async with queue, worker:
        for _ in range(JOBS):
            await queue.add("late", {}, JobOptions(delay=DELAY_MS))
            await anyio.sleep(APART_S)
        with anyio.fail_after(20):
            await all_started.wait()
    await queue.aclose()
    waited = sorted(started.values())
    assert waited[0] >= DELAY_MS
    assert waited[JOBS * 95 // 100 - 1] <= 2 * DELAY_MS
