"""Queues on real servers, on every adapter: adding, reading, pausing, removing, destroying, and bad input."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from bullmq_protocol import (
    VERSION,
    Backoff,
    ConnectionOptions,
    Deduplication,
    JobOptions,
    KeyLayout,
    Limits,
    NewJob,
    ParentRef,
    UsageError,
)
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.fetching import move_to_active
from bullmq_protocol.commands.queues import QueueHasActiveJobs
from bullmq_protocol.common.reply import as_fields, as_int, as_texts
from bullmq_protocol.errors import AuthenticationFailed, BulkAddError, Closed, ConnectionLost, ParentNotFound
from tests.support import servers
from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

BOTH_SOURCES = True


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


def wire(name: str, *args: str) -> Command[Any]:
    decode = {"LRANGE": as_texts, "HGETALL": as_fields, "EXISTS": as_int, "PTTL": as_int}[name]
    return Command(name, (), args, decode, repeat=Repeat.SAFE)


# --- adding -----------------------------------------------------------------------------------------------------------


async def test_added_job_can_be_read(queue: Any) -> None:
    added = await queue.add("mail", {"to": "grün 東京 🐂", "n": 1.5}, JobOptions(attempts=3))
    assert (added.id, added.name, added.data) == ("1", "mail", {"to": "grün 東京 🐂", "n": 1.5})
    found = await queue.get_job("1")
    assert (found.id, found.name, found.data, found.queue_name) == ("1", "mail", added.data, queue.name)
    assert found.opts.attempts == added.opts.attempts == 3
    assert found.timestamp == added.timestamp
    assert (found.attempts_made, found.attempts_started, found.delay, found.priority) == (0, 0, 0, 0)
    assert (found.progress, found.returnvalue, found.failed_reason, found.stacktrace) == (0, None, None, [])
    assert await queue.get_job("2") is None
    assert await queue.get_state("1") == "waiting"
    assert await queue.get_state("2") == "unknown"


async def test_job_without_data_has_an_empty_object(queue: Any) -> None:
    assert (await queue.add("mail")).data == {}
    assert (await queue.get_job("1")).data == {}
    assert (await queue.add("mail", None)).data is None
    assert (await queue.get_job("2")).data is None


async def test_each_option_finds_its_state(queue: Any) -> None:
    await queue.add("a", options=JobOptions(delay=timedelta(minutes=1)))
    await queue.add("b", options=JobOptions(priority=7))
    await queue.add("c", options=JobOptions(job_id="own"))
    await queue.add("d", options=JobOptions(lifo=True))
    assert await queue.get_job_counts("delayed", "prioritized", "waiting") == {
        "delayed": 1,
        "prioritized": 1,
        "waiting": 2,
        "paused": 0,
    }
    assert (await queue.get_job("1")).delay == 60_000
    assert (await queue.get_job("2")).priority == 7
    assert await queue.call(wire("LRANGE", queue.keys.wait, "0", "-1")) == ["own", "4"]


async def test_defaults_of_a_queue_are_under_the_options_of_a_call(adapter: Adapter, server: Server, name: str) -> None:
    defaults = JobOptions(attempts=3, backoff=Backoff("exponential", 1000))
    async with adapter.Queue(name, server.url, default_job_options=defaults) as queue:
        job = await queue.add("a", options=JobOptions(attempts=5))
        assert (job.opts.attempts, job.opts.backoff.delay) == (5, 1000)
        await queue.obliterate()


async def test_duplicate_and_deduplicated_jobs_have_the_id_of_the_first(queue: Any) -> None:
    await queue.add("a", {"n": 1}, JobOptions(job_id="same"))
    again = await queue.add("b", {"n": 2}, JobOptions(job_id="same"))
    assert (again.id, again.name) == ("same", "b")
    assert (await queue.get_job("same")).name == "a"
    first = await queue.add("a", options=JobOptions(deduplication=Deduplication("d")))
    assert (await queue.add("a", options=JobOptions(deduplication=Deduplication("d")))).id == first.id
    assert await queue.get_job_counts("waiting") == {"waiting": 2, "paused": 0}


async def test_jobs_that_were_not_added_say_so(queue: Any, adapter: Adapter, name: str) -> None:
    mine = JobOptions(job_id="mine")
    once = JobOptions(deduplication=Deduplication("d"))
    latest = JobOptions(delay=100_000, deduplication=Deduplication("l", ttl=50_000, replace=True, extend=True))

    async def reported(data: int, options: JobOptions | None = None) -> tuple[str, bool | None]:
        job = await queue.add("n", data, options)
        return job.id, job.added

    assert [await reported(1), await reported(1)] == [("1", True), ("2", True)]
    assert [await reported(1, mine), await reported(2, mine)] == [("mine", True), ("mine", False)]
    first, first_added = await reported(1, once)
    assert (first_added, await reported(2, once)) == (True, (first, False))
    # With an id of its own it gives way, too; or is a duplicate, before anything else.
    assert await reported(3, JobOptions(job_id="own", deduplication=Deduplication("d"))) == (first, False)
    assert await reported(3, JobOptions(job_id="mine", deduplication=Deduplication("new"))) == ("mine", False)
    assert await reported(3, JobOptions(job_id="own", deduplication=Deduplication("new"))) == ("own", True)
    old, new = await reported(1, latest), await reported(2, latest)
    assert old[0] != new[0]
    assert old[1] is new[1] is True
    # Read jobs do not know; a refreshed one is the job that is there.
    job = await queue.add("n", 9, mine)
    assert (job.added, job.data, (await queue.get_job("mine")).added) == (False, 9, None)
    await job.refresh()
    assert (job.added, job.data) == (False, 1)

    twice = JobOptions(job_id="twice")
    again = JobOptions(deduplication=Deduplication("e"))
    found = await queue.add_bulk(
        [NewJob("n", 1, each) for each in (JobOptions(), mine, twice, twice, again, again, once, JobOptions())]
    )
    assert [each.added for each in found] == [True, False, True, False, True, False, False, True]


async def test_missing_parent(queue: Any) -> None:
    with pytest.raises(ParentNotFound, match="no-such"):
        await queue.add("a", options=JobOptions(parent=ParentRef("no-such", queue.keys.qualified)))


async def test_bulk_keeps_the_order(queue: Any) -> None:
    jobs = await queue.add_bulk([NewJob(f"n{number}", {"number": number}) for number in range(250)])
    assert [job.id for job in jobs] == [str(number) for number in range(1, 251)]
    assert [job.data["number"] for job in jobs] == list(range(250))
    waiting = await queue.call(wire("LRANGE", queue.keys.wait, "0", "-1"))
    assert waiting == [str(number) for number in range(250, 0, -1)]
    assert await queue.add_bulk([]) == []


async def test_bulk_tells_each_job_apart(queue: Any) -> None:
    orphan = JobOptions(parent=ParentRef("no-such", queue.keys.qualified))
    with pytest.raises(BulkAddError, match="1 of 3") as caught:
        await queue.add_bulk([NewJob("a"), NewJob("b", options=orphan), NewJob("c")])
    first, second, third = caught.value.results
    assert (first.name, third.name) == ("a", "c")
    assert isinstance(second, ParentNotFound)
    assert await queue.get_job_counts("waiting") == {"waiting": 2, "paused": 0}


async def test_nothing_of_a_bulk_is_sent_if_one_is_wrong(queue: Any) -> None:
    wrong: list[Any] = [NewJob("b", options=JobOptions(priority=-1)), NewJob("b", {1, 2}), "b"]
    for job, field in zip(wrong, ("priority", "data", "job"), strict=True):
        with pytest.raises(UsageError) as caught:
            await queue.add_bulk([NewJob("a"), NewJob("a"), job])
        assert caught.value.field == f"jobs[2]: {field}"
    for none in (None, NewJob("a"), "a"):
        with pytest.raises(UsageError, match="jobs: must be a list"):
            await queue.add_bulk(none)
    assert set((await queue.get_job_counts()).values()) == {0}


class Mail(msgspec.Struct):
    to: str
    size: int = 0


async def test_typed_payload(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url, data_type=Mail) as queue:
        assert (await queue.add("a", Mail("me", 3))).data == Mail("me", 3)
        assert (await queue.get_job("1")).data == Mail("me", 3)
        with pytest.raises(UsageError, match="data type"):
            await queue.add("a", {"size": "big"})
        await queue.obliterate()


# --- the whole queue --------------------------------------------------------------------------------------------------


async def test_meta_hash_names_this_library_once(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url, max_len_events=500) as queue:
        assert await queue.get_version() == f"bullmq-protocol:{VERSION}"
        meta = await queue.call(wire("HGETALL", queue.keys.meta))
        assert meta == {"opts.maxLenEvents": b"500", "version": f"bullmq-protocol:{VERSION}".encode()}
        await queue.obliterate()
        assert await queue.get_version() is None
    async with adapter.Queue(name, server.url, skip_meta_update=True) as queue:
        assert await queue.get_version() is None


async def test_pause_and_resume(queue: Any) -> None:
    await queue.add("a")
    assert await queue.is_paused() is False
    await queue.pause()
    assert await queue.is_paused() is True
    assert await queue.get_job_counts("waiting") == {"waiting": 0, "paused": 1}
    await queue.resume()
    assert await queue.is_paused() is False
    assert await queue.get_job_counts("waiting") == {"waiting": 1, "paused": 0}


async def test_counts_by_name(queue: Any) -> None:
    await queue.add("a")
    assert await queue.get_job_counts() == {
        "active": 0,
        "completed": 0,
        "delayed": 0,
        "failed": 0,
        "paused": 0,
        "prioritized": 0,
        "waiting": 1,
        "waiting-children": 0,
    }
    assert (await queue.get_job_counts("wait", "wait"))["wait"] == 1
    with pytest.raises(UsageError, match="state"):
        await queue.get_job_counts("finished")


async def test_remove(queue: Any) -> None:
    job = await queue.add("a")
    assert await queue.remove(job.id) is True
    assert await queue.get_job(job.id) is None
    assert await queue.remove(job.id) is True
    locked = await queue.add("b")
    await queue.call(move_to_active(queue.keys, token="t", lock_ms=30_000, now=1))
    assert await queue.remove(locked.id) is False
    assert await queue.get_state(locked.id) == "active"


async def test_obliterate(queue: Any) -> None:
    await queue.add_bulk([NewJob("a") for _ in range(25)])
    await queue.call(move_to_active(queue.keys, token="t", lock_ms=30_000, now=1))
    with pytest.raises(QueueHasActiveJobs):
        await queue.obliterate()
    assert await queue.is_paused() is True
    await queue.obliterate(force=True, count=7)
    assert await queue.call(wire("EXISTS", queue.keys.wait, queue.keys.meta, queue.keys.id, queue.keys.job("3"))) == 0
    with pytest.raises(UsageError, match="count"):
        await queue.obliterate(count=0)


async def test_manual_rate_limit(queue: Any) -> None:
    assert await queue.get_rate_limit_ttl(10) == 0
    await queue.rate_limit(timedelta(seconds=20))
    assert 19_000 < await queue.get_rate_limit_ttl() <= 20_000
    assert await queue.is_maxed() is False
    with pytest.raises(UsageError, match="duration"):
        await queue.rate_limit(0)


@pytest.mark.parametrize("layout", list(KeyLayout))
async def test_key_layouts(adapter: Adapter, server: Server, name: str, layout: KeyLayout) -> None:
    async with adapter.Queue(name, server.url, layout=layout, prefix="own") as queue:
        await queue.add("a")
        base = {
            KeyLayout.PLAIN: f"own:{name}:",
            KeyLayout.TAGGED_QUEUE: f"own:{{{name}}}:",
            KeyLayout.TAGGED_PREFIX: f"{{own}}:{name}:",
        }[layout]
        assert await queue.call(wire("EXISTS", f"{base}wait", f"{base}1", f"{base}meta")) == 3
        await queue.obliterate()


async def test_workers_of_another_queue_are_not_listed(queue: Any) -> None:
    assert await queue.get_workers() == []


async def test_limits_can_be_lifted(adapter: Adapter, server: Server, name: str) -> None:
    limits = Limits(max_payload_bytes=None, max_name_length=None)
    async with adapter.Queue(name, server.url, limits=limits) as queue:
        job = await queue.add("n" * 300, "y" * (10 << 20))
        assert len((await queue.get_job(job.id)).data) == 10 << 20
        await queue.obliterate()


# --- the connection ---------------------------------------------------------------------------------------------------


async def test_closed_queue(adapter: Adapter, server: Server, name: str) -> None:
    queue = adapter.Queue(name, server.url)
    await queue.aclose()
    await queue.aclose()
    with pytest.raises(Closed):
        await queue.add("a")


async def test_wrong_password(adapter: Adapter, name: str) -> None:
    with servers.start(config=("--requirepass", "secret")) as server:
        place = f"{server.host}:{server.port}"
        async with adapter.Queue(name, f"redis://:wrong@{place}") as queue:
            with pytest.raises(AuthenticationFailed):
                await queue.add("a")
        async with adapter.Queue(name, f"redis://:secret@{place}") as queue:
            assert (await queue.add("a")).id == "1"


async def test_server_that_comes_later(adapter: Adapter, name: str) -> None:
    with servers.start() as server:
        server.kill()
        options = ConnectionOptions(host=server.host, port=server.port, connect_timeout_ms=1000)
        async with adapter.Queue(name, options) as queue:
            with pytest.raises(ConnectionLost) as caught:
                await queue.add("a")
            assert caught.value.maybe_applied is False
            server.restart()
            assert (await queue.add("a")).id == "1"
            assert await queue.get_version() == f"bullmq-protocol:{VERSION}"


async def test_untagged_queue_is_refused_on_a_cluster(adapter: Adapter, name: str) -> None:
    with servers.start(config=("--cluster-enabled", "yes")) as server:
        async with adapter.Queue(name, server.url) as queue:
            with pytest.raises(UsageError, match="TAGGED_PREFIX"):
                await queue.add("a")
