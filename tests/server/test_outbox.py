"""Entries of an outbox are relayed: once, in their order, whatever happens between."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec.structs import replace

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import Deduplication, JobOptions, JobType, KeyLayout, Limits, OutboxEntry, UsageError
from tests.support.adapters import Adapter
from tests.support.servers import Server
from tests.support.topology import ClusterSet

WELCOME = JobType("welcome", dict[str, str], options=JobOptions(attempts=3))


async def relayed(adapter: Adapter, entries: list[OutboxEntry], url: str) -> list[Any]:
    if adapter.name == "threads":
        return bullmq_sync.relay_entries(entries, url, scripts=adapter.scripts)
    found: list[Any] = await bullmq_anyio.relay_entries(entries, url, scripts=adapter.scripts)
    return found


async def test_entries_are_the_jobs_that_were_asked_for_and_come_once(
    adapter: Adapter, server: Server, name: str
) -> None:
    async with adapter.Queue(name, server.url) as queue, adapter.Queue(f"{name}-other", server.url) as other:
        entries = [
            queue.entry("a", {"n": 1.5}),
            other.entry(WELCOME, {"to": "ada"}),
            queue.entry("b", options=JobOptions(delay=3_600_000, priority=3)),
            queue.entry("c", options=JobOptions(job_id="mine")),
            queue.entry("d", options=JobOptions(deduplication=Deduplication("d"))),
            queue.entry("e", options=JobOptions(deduplication=Deduplication("d"))),
        ]
        assert await queue.count() == 0
        spoiled = replace(entries[0], id="spoiled", data="{")
        read = [OutboxEntry.from_json(each.to_json()) for each in [*entries, spoiled]]
        *jobs, refused = await relayed(adapter, read, server.url)
        assert isinstance(refused, UsageError) and refused.field == "data"
        assert [job.added for job in jobs] == [True, True, True, True, True, False]
        assert [job.id for job in jobs[:5]] == [each.id for each in entries[:5]] and jobs[5].id == jobs[4].id
        assert (jobs[1].queue_name, jobs[1].opts.attempts) == (f"{name}-other", 3)
        first, delayed = await queue.get_job(entries[0].id), await queue.get_job(entries[2].id)
        assert (first.name, first.data, first.timestamp) == ("a", {"n": 1.5}, entries[0].timestamp)
        assert await queue.get_job_state(delayed.id) == "delayed" and delayed.delay == 3_600_000
        # Oldest first, as they were stored.
        waiting = await queue.get_jobs("waiting", asc=True)
        assert [job.name for job in waiting] == ["a", "c", "d"]
        again = await relayed(adapter, read[:5], server.url)
        assert [job.added for job in again] == [False] * 5
        assert (await queue.count(), await other.count()) == (4, 1)
        for each in (queue, other):
            await each.obliterate()


async def test_a_bad_job_fails_where_the_entry_is_made(adapter: Adapter, name: str) -> None:
    # No server is asked.
    async with adapter.Queue(name, "redis://127.0.0.1:1", data_type=dict[str, int]) as queue:
        with pytest.raises(UsageError, match="data"):
            queue.entry("n", {"a": "text"})
        with pytest.raises(UsageError, match="must be a JobOptions"):
            queue.entry("n", {"a": 1}, {"delay": 5})
        with pytest.raises(UsageError, match="priority"):
            queue.entry("n", {"a": 1}, JobOptions(priority=-1))
        with pytest.raises(UsageError, match="repeat"):
            queue.entry("n", {"a": 1}, JobOptions(repeat={"every": 5}))
        assert queue.entry("n", {"a": 1}).due <= queue.entry("n", {"a": 1}, JobOptions(delay=1)).due
    with pytest.raises(UsageError, match="limits"):
        bullmq_sync.relay_entries([], limits=5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="entries"):
        bullmq_sync.relay_entries(5)  # type: ignore[arg-type]


async def test_an_entry_has_the_limits_of_its_queue(adapter: Adapter, name: str) -> None:
    long = "n" * 300
    async with adapter.Queue(name, "redis://127.0.0.1:1", limits=Limits(max_name_length=300)) as queue:
        assert queue.entry(long).name == long
        with pytest.raises(UsageError, match="at most 300"):
            queue.entry(long + "n")
    async with adapter.Queue(name, "redis://127.0.0.1:1") as queue:
        with pytest.raises(UsageError, match="at most 255"):
            queue.entry(long)


async def test_an_entry_warns_as_an_added_job_does(
    adapter: Adapter, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with adapter.Queue(name, "redis://127.0.0.1:1") as queue:
        with caplog.at_level(logging.WARNING, adapter.logger):
            queue.entry("n", {}, JobOptions(attempts=2, backoff=7_200_000))
    [warning] = [record.getMessage() for record in caplog.records if record.name == adapter.logger]
    assert warning.startswith(f"queue {name}, job n: backoff.delay: 7200000 ms is more than one hour")


async def test_a_relay_goes_on_in_a_cluster_queue_by_queue(adapter: Adapter, cluster: ClusterSet, name: str) -> None:
    url = f"redis+cluster://{cluster.hosts}"
    queues = [adapter.Queue(f"{name}-{number}", url, layout=KeyLayout.TAGGED_QUEUE) for number in range(3)]
    entries = [queue.entry("n", {"n": number}) for number in range(4) for queue in queues]
    jobs = await relayed(adapter, entries, url)
    assert [job.added for job in jobs] == [True] * 12
    for queue in queues:
        assert await queue.count() == 4
        await queue.obliterate()
        await queue.aclose()
