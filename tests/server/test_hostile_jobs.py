"""Jobs that another program stored, on real servers: no worker ends by them, and what is behind them runs.

The long run: `python -m tests.support.hostile_jobs --adapter asyncio --cases 100000`.
"""

import json
import logging
import random
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from bullmq_protocol import BullMQError, JobOptions, QueueKeys, WorkerOptions
from tests.support import hostile_jobs, servers
from tests.support.adapters import NAMES, Adapter
from tests.support.seen import until
from tests.support.servers import Server

_SEED = 20261128


@pytest.fixture(scope="module", params=servers.ends())
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that may be emptied."""
    with servers.start(request.param) as started:
        yield started


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("adapter_name", NAMES)
def test_a_good_job_behind_hostile_ones_completes(own: Server, adapter_name: str) -> None:
    made = hostile_jobs.Round(own, f"hostile-{adapter_name}", random.Random(_SEED), 120)
    hostile_jobs.run_round(adapter_name, made)
    assert made.good.is_set()
    assert made.looked > 20


async def test_whatever_is_stored_is_read_as_values_or_refused(adapter: Adapter, server: Server, name: str) -> None:
    hashes = hostile_jobs.Hashes(random.Random(_SEED))
    keys = QueueKeys.of(name)
    states: tuple[...] = ("waiting", "active", "delayed", "prioritized", "completed", "failed")
    with redis.Redis.from_url(server.url) as client:
        for number in range(60):
            job_id = f"h{number}"
            mapping: Any = hashes.hash()
            client.hset(keys.job(job_id), mapping=mapping)
            for key in (keys.wait, keys.active):
                client.lpush(key, job_id)
            for key in (keys.delayed, keys.prioritized, keys.completed, keys.failed):
                client.zadd(key, {job_id: number})
            client.zadd(keys.repeat, {job_id: number})
            client.hset(f"{keys.repeat}:{job_id}", mapping=mapping)
    async with adapter.Queue(name, server.url) as queue:
        jobs = [job for state in states for job in await queue.get_jobs([state])]
        assert len(jobs) == 60 * len(states)
        for number in range(60):
            found = await queue.get_job(f"h{number}")
            hostile_jobs.look_at(found)
            for method in (found.get_state, found.get_children_values, found.get_dependencies_count):
                try:
                    await method()
                except BullMQError:
                    continue
        for read in (queue.get_job_schedulers, queue.get_job_counts, queue.get_workers):
            try:
                await read()
            except BullMQError:
                continue
        await queue.obliterate(force=True)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError(0), "ValueError: 0"),
        (ValueError(), "ValueError"),
        (ValueError("no such account"), "no such account"),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_reason_names_the_type_where_the_text_says_nothing(
    adapter: Adapter, server: Server, name: str, error: Exception, reason: str
) -> None:
    async with adapter.Queue(name, server.url) as queue:
        job = await queue.add("a")

        async def fail(_: Any) -> None:
            raise error

        async with adapter.Worker(name, fail, server.url, options=WorkerOptions(drain_delay=0.1)):
            await until(lambda: _state_is(queue, job.id, "failed"))
        assert (await queue.get_job(job.id)).failed_reason == reason
        await queue.obliterate(force=True)


async def test_a_long_text_is_stored_whole_and_logged_in_part(
    adapter: Adapter, server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "x" * 3_000_000
    caplog.set_level(logging.DEBUG, logger=adapter.logger)
    async with adapter.Queue(name, server.url) as queue:
        job = await queue.add("a", options=JobOptions(attempts=2))

        async def fail(_: Any) -> None:
            raise ValueError(text)

        async with adapter.Worker(name, fail, server.url, options=WorkerOptions(drain_delay=0.1)):
            await until(lambda: _state_is(queue, job.id, "failed"))
        assert (await queue.get_job(job.id)).failed_reason == text
        lines = [record for record in caplog.records if getattr(record, "job_id", None) == job.id]
        assert any("failed" in record.getMessage() for record in lines)
        assert max(len(json.dumps(record.__dict__, default=str)) for record in lines) < 20_000
        await queue.obliterate(force=True)


async def _state_is(queue: Any, job_id: str, state: str) -> bool:
    return bool(await queue.get_job_state(job_id) == state)
