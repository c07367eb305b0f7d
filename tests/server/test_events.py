"""Events on real servers, on every adapter: reading, callbacks, losses of connection, and waiting for jobs."""

import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest

from bullmq_protocol import JobOptions, KeyLayout, NewJob, UsageError, WorkerOptions
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.events import last_event_id, publish_event
from bullmq_protocol.commands.queues import get_queue_events
from bullmq_protocol.common.reply import as_int, as_text
from bullmq_protocol.errors import (
    AuthenticationFailed,
    Closed,
    JobFailedError,
    JobNotFound,
    ServerError,
    UnrecoverableError,
    WaitTimeout,
)
from bullmq_protocol.events.stream import (
    AddedEvent,
    CustomEvent,
    EventsMissed,
    UndecodableEvent,
    WaitingEvent,
)
from bullmq_protocol.testing.conformance import Fault
from tests.support import servers
from tests.support.adapters import Adapter
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


@pytest.fixture
async def events(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    events = adapter.QueueEvents(name, server.url, blocking_timeout=500)
    yield events
    await events.aclose()


@pytest.fixture
async def publisher(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    publisher = adapter.QueueEventsProducer(name, server.url)
    yield publisher
    await publisher.aclose()


@pytest.fixture
async def worker(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    """A worker that takes jobs by hand."""
    worker = adapter.Worker(name, None, server.url)
    yield worker
    await worker.aclose()


async def take(stream: Any, count: int) -> list[Any]:
    """Read this many events."""
    found = []
    with anyio.fail_after(30):
        async for event in stream:
            found.append(event)
            if len(found) == count:
                break
    return found


def names(events: list[Any]) -> list[str]:
    return [f"{type(event).__name__} {getattr(event, 'job_id', '')}" for event in events]


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_iterator_begins_now_and_gives_typed_events(queue: Any, events: Any, worker: Any) -> None:
    await queue.add("before")
    async with events:
        await queue.add("mail", {"a": 1}, JobOptions(lifo=True))
        await worker.complete(await worker.get_next_job(), {"ok": "ja ✓"})
        found = await take(events, 4)
    assert names(found) == ["AddedEvent 2", "WaitingEvent 2", "ActiveEvent 2", "CompletedEvent 2"]
    assert found[0].name == "mail"
    assert found[3].returnvalue == {"ok": "ja ✓"}


async def test_reader_resumes_from_an_id_without_losing_or_repeating(queue: Any, events: Any, adapter: Adapter) -> None:
    await queue.add_bulk([NewJob("a")] * 10)
    first = events.stream("0-0")
    early = await take(first, 7)
    assert first.last_event_id == early[-1].entry_id
    second = events.stream(first.last_event_id)
    late = await take(second, 13)
    assert names(early + late) == [f"{kind} {n}" for n in range(1, 11) for kind in ("AddedEvent", "WaitingEvent")]
    assert len({event.entry_id for event in early + late}) == 20


async def test_more_events_than_fit_in_one_read_come_in_order(queue: Any, events: Any) -> None:
    await queue.add_bulk([NewJob("a")] * 1500)
    found = await take(events.stream("0-0"), 3000)
    assert [event.job_id for event in found] == [str(n) for n in range(1, 1501) for _ in range(2)]


async def test_start_tells_where_a_stream_begins(queue: Any, events: Any) -> None:
    stream = events.stream()
    assert stream.last_event_id is None
    assert await stream.start() == "0-0"
    assert await stream.start() == stream.last_event_id == "0-0"
    await queue.add("a")
    assert names(await take(stream, 1)) == ["AddedEvent 1"]


async def test_callbacks_get_their_kind_in_order(
    adapter: Adapter, queue: Any, events: Any, caplog: pytest.LogCaptureFixture
) -> None:
    added: list[str] = []
    waiting: list[str] = []
    ready = anyio.Event()

    async def slowly(event: WaitingEvent) -> None:
        await anyio.lowlevel.checkpoint()
        waiting.append(event.job_id)
        if event.job_id == "3":
            ready.set()

    def wrong(event: AddedEvent) -> None:
        raise RuntimeError("of the user's")

    events.on(AddedEvent, wrong)
    events.on(AddedEvent, lambda event: added.append(event.job_id))
    events.on(WaitingEvent, slowly)
    gone = events.on(AddedEvent, lambda event: added.append("gone"))
    gone()
    gone()
    with caplog.at_level(logging.ERROR, adapter.logger), anyio.fail_after(30):
        async with events:
            assert events.is_running
            await queue.add_bulk([NewJob("a")] * 3)
            await ready.wait()
    assert added == waiting == ["1", "2", "3"]
    assert sum("AddedEvent raised" in record.message for record in caplog.records) == 3
    assert not events.is_running
    assert events.last_event_id is not None


async def test_published_events_are_read_and_bad_ones_refused(events: Any, publisher: Any) -> None:
    stream = events.stream("0-0")
    first = await publisher.publish("said", {"text": "grün", "n": 1.5, "yes": True, "nothing": None})
    await publisher.publish("drained")
    found = await take(stream, 2)
    assert found[0] == CustomEvent(first, "said", {"text": "grün", "n": "1.5", "yes": "true", "nothing": ""})
    assert type(found[1]).__name__ == "DrainedEvent"
    for bad in ({"a": [1]}, {"a": {}}, {"event": "x"}, {"": "x"}):
        with pytest.raises(UsageError):
            await publisher.publish("said", bad)
    with pytest.raises(UsageError, match="name"):
        await publisher.publish("")
    with pytest.raises(UsageError, match="max_events"):
        await publisher.publish("said", {}, max_events=0)


async def test_undecodable_entry_is_reported_and_reading_goes_on(queue: Any, events: Any, publisher: Any) -> None:
    stream = events.stream("0-0")
    await publisher.publish("completed", {"jobId": "9", "returnvalue": "{no json"})
    await publisher.publish("progress", {"jobId": "9", "data": "]"})
    await queue.add("a")
    bad, worse, good = await take(stream, 3)
    assert isinstance(bad, UndecodableEvent) and isinstance(worse, UndecodableEvent)
    assert (bad.name, bad.fields) == ("completed", {"jobId": "9", "returnvalue": "{no json"})
    assert (worse.name, worse.fields["data"]) == ("progress", "]")
    assert isinstance(good, AddedEvent)


async def test_reader_goes_on_after_lost_connections(adapter: Adapter, server: Server, queue: Any, name: str) -> None:
    """No event is lost or comes twice, also when the very first one comes while the connection is gone."""
    with CutProxy(server.host, server.port) as proxy:
        events = adapter.QueueEvents(name, proxy.url, blocking_timeout=500)
        async with events:
            heard: list[str] = []
            done = anyio.Event()

            def hear(event: AddedEvent) -> None:
                heard.append(event.job_id)
                if len(heard) == 60:
                    done.set()

            events.on(AddedEvent, hear)
            for _ in range(3):
                proxy.arm(Fault.REFUSE)
                proxy.drop_all()
                await queue.add_bulk([NewJob("a")] * 10)
                proxy.arm(Fault.NONE)
                await queue.add_bulk([NewJob("a")] * 10)
            with anyio.fail_after(30):
                await done.wait()
        assert heard == [str(n) for n in range(1, 61)]


async def test_trimmed_stream_is_reported_and_read_on(queue: Any, events: Any) -> None:
    stream = events.stream("0-0")
    await queue.add_bulk([NewJob("a")] * 5)
    first = await take(stream, 2)
    await queue.add_bulk([NewJob("a")] * 10)
    trim = Command("XTRIM", (queue.keys.events,), ("MAXLEN", 4), as_int, repeat=Repeat.SAFE)
    await queue.call(trim)
    again = events.stream(first[-1].entry_id)
    found = await take(again, 5)
    assert found[0] == EventsMissed(first[-1].entry_id, found[1].entry_id)
    assert names(found[1:]) == ["AddedEvent 14", "WaitingEvent 14", "AddedEvent 15", "WaitingEvent 15"]
    assert again.last_event_id == found[-1].entry_id


async def test_reader_has_one_connection_with_its_name(queue: Any, events: Any) -> None:
    async with events:
        await queue.add("a")
        await take(events.stream("0-0"), 1)
        named = await queue.call(get_queue_events(queue.keys))
        assert [each["rawname"] for each in named] == [f"{queue.keys.client_name()}:qe"] * 2
    with anyio.fail_after(30):
        while await queue.get_queue_events():
            await anyio.lowlevel.checkpoint()


async def test_closing_ends_iterators(queue: Any, events: Any) -> None:
    found: list[Any] = []

    async def read() -> None:
        found.extend([event async for event in events])

    with anyio.fail_after(30):
        async with events, anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await queue.add("a")
            while len(await queue.get_queue_events()) < 2:
                await anyio.lowlevel.checkpoint()
            await events.aclose()
    assert names(found) in ([], ["AddedEvent 1", "WaitingEvent 1"])
    assert [event async for event in events.stream()] == []
    with pytest.raises(Closed):
        await events.run()


async def test_server_that_is_not_there_is_tried_again(adapter: Adapter, server: Server, queue: Any, name: str) -> None:
    with CutProxy(server.host, server.port) as proxy:
        proxy.arm(Fault.REFUSE)
        async with adapter.QueueEvents(name, proxy.url) as events:
            assert events.last_event_id is None
            proxy.arm(Fault.NONE)
            job = await queue.add("a")
            with pytest.raises(WaitTimeout):
                await job.wait_until_finished(events, 300)


async def test_wrong_password_is_reported_at_once(adapter: Adapter, name: str) -> None:
    with servers.start(config=("--requirepass", "secret")) as server:
        with pytest.raises(AuthenticationFailed):
            async with adapter.QueueEvents(name, server.url):
                pass
        with pytest.raises(AuthenticationFailed):
            await take(adapter.QueueEvents(name, server.url), 1)


async def test_key_of_another_type_is_tried_again(adapter: Adapter, queue: Any, events: Any) -> None:
    await queue.call(Command("SET", (queue.keys.events,), ("x",), as_text))
    stream = events.stream("0-0")
    assert await stream.read() == []
    await queue.call(Command("DEL", (queue.keys.events,), (), as_int))
    await queue.add("a")
    assert names(await take(stream, 1)) == ["AddedEvent 1"]


async def test_bad_arguments_are_refused(adapter: Adapter, queue: Any, events: Any, name: str) -> None:
    for wrong in ({"last_event_id": "$"}, {"blocking_timeout": 0}, {"max_reconnect_delay": 0}, {"prefix": 1}):
        with pytest.raises(UsageError):
            adapter.QueueEvents(name, **wrong)
    with pytest.raises(UsageError, match="kind"):
        events.on(dict, print)
    with pytest.raises(UsageError, match="callback"):
        events.on(AddedEvent, 5)
    with pytest.raises(UsageError, match="last_event_id"):
        events.stream("now")
    job = await queue.add("a")
    with pytest.raises(UsageError, match="not running"):
        await job.wait_until_finished(events)
    with pytest.raises(UsageError, match="QueueEvents"):
        await job.wait_until_finished(None)
    other = adapter.QueueEvents("other")
    with pytest.raises(UsageError, match="must read the job's queue"):
        await job.wait_until_finished(other)
    async with events:
        with pytest.raises(UsageError, match="already running"):
            await events.run()
        with pytest.raises(UsageError, match="timeout"):
            await job.wait_until_finished(events, 0)
        with pytest.raises(UsageError, match="job_id"):
            await queue.wait_until_finished("", events)


async def test_untagged_queue_is_refused_on_a_cluster(adapter: Adapter, name: str) -> None:
    with servers.start(config=("--cluster-enabled", "yes")) as server:
        with pytest.raises(UsageError, match="TAGGED_PREFIX"):
            async with adapter.QueueEvents(name, server.url):
                pass
        tagged = adapter.QueueEventsProducer(name, server.url, layout=KeyLayout.TAGGED_QUEUE)
        with pytest.raises(ServerError):
            # It is a cluster without slots.
            await tagged.publish("said")
        await tagged.aclose()


# --- waiting ----------------------------------------------------------------------------------------------------------


class Result(msgspec.Struct):
    n: int


async def test_result_of_a_job_that_finishes_later_or_before(queue: Any, events: Any, worker: Any) -> None:
    async with events, anyio.create_task_group() as tasks:
        job = await queue.add("a")
        found: list[Any] = []

        async def wait() -> None:
            found.append(await job.wait_until_finished(events, 10_000))

        tasks.start_soon(wait)
        await worker.complete(await worker.get_next_job(), {"n": 3})
        assert await queue.wait_until_finished(job.id, events, 10_000, result_type=Result) == Result(3)
        assert await job.wait_until_finished(events) == {"n": 3}
        with pytest.raises(msgspec.ValidationError):
            await job.wait_until_finished(events, result_type=int)
    assert found == [{"n": 3}]


async def test_failure_raises_with_its_reason(queue: Any, events: Any, worker: Any) -> None:
    async with events:
        job = await queue.add("a")
        taken = await worker.get_next_job()
        raised: list[JobFailedError] = []

        async def wait() -> None:
            with pytest.raises(JobFailedError, match="no ✗") as error:
                await job.wait_until_finished(events, 10_000)
            raised.append(error.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await worker.fail(taken, UnrecoverableError("no ✗"))
        await wait()
    assert [(error.job_id, error.reason) for error in raised] == [(job.id, "no ✗")] * 2


async def test_failure_before_a_retry_does_not_count(queue: Any, events: Any, worker: Any) -> None:
    """The reader is behind: it gives out the end of the job's life before."""
    job = await queue.add("a")
    await worker.fail(await worker.get_next_job(), UnrecoverableError("first"))
    await job.retry()
    old = events.stream("0-0")
    assert names(await take(old, 4))[-1] == f"FailedEvent {job.id}"
    async with events:
        with pytest.raises(WaitTimeout) as late:
            await job.wait_until_finished(events, 200)
        assert (late.value.job_id, late.value.timeout_ms) == (job.id, 200)
        await worker.complete(await worker.get_next_job(), "second")
        assert await job.wait_until_finished(events, 10_000) == "second"


async def test_removed_job_is_reported(queue: Any, events: Any, worker: Any) -> None:
    async with events:
        with pytest.raises(JobNotFound):
            await queue.wait_until_finished("none", events, 10_000)
        job = await queue.add("a")

        async def wait() -> None:
            with pytest.raises(JobNotFound, match=job.id):
                await job.wait_until_finished(events, 10_000)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await job.remove()


async def test_result_of_a_job_that_is_removed_at_its_end(queue: Any, events: Any, worker: Any) -> None:
    """Whether the wait begins before the end, or after the reader has passed it."""
    gone = JobOptions(remove_on_complete=True, remove_on_fail=True)
    async with events, anyio.create_task_group() as tasks:
        found: list[Any] = []

        async def wait(job: Any) -> None:
            found.append(await job.wait_until_finished(events, 10_000))

        for _ in range(20):
            job = await queue.add("a", options=gone)
            taken = await worker.get_next_job()
            tasks.start_soon(wait, job)
            await worker.complete(taken, "done")
        with anyio.fail_after(30):
            while len(found) < 20:
                await anyio.lowlevel.checkpoint()
        assert found == ["done"] * 20
        job = await queue.add("a", options=gone)
        await worker.complete(await worker.get_next_job(), {"n": 1})
        failing = await queue.add("a", options=gone)
        await worker.fail(await worker.get_next_job(), ValueError("broken"))
        for _ in range(150):
            await queue.call(publish_event(queue.keys, "mine", {"jobId": "other"}))
        newest = await queue.call(last_event_id(queue.keys))
        while events.last_event_id != newest:
            await anyio.lowlevel.checkpoint()
        assert await job.wait_until_finished(events, 10_000, result_type=dict[str, int]) == {"n": 1}
        with pytest.raises(JobFailedError, match="broken"):
            await failing.wait_until_finished(events, 10_000)


async def test_a_job_that_was_taken_away_is_reported(queue: Any, events: Any, worker: Any) -> None:
    """An earlier life of its id has ended well, but the last one has not."""
    once = JobOptions(job_id="once", remove_on_complete=True)
    async with events:
        await queue.add("a", options=once)
        await worker.complete(await worker.get_next_job(), "first")
        job = await queue.add("a", options=once)
        await job.remove()
        with pytest.raises(JobNotFound):
            await job.wait_until_finished(events, 10_000)
        with pytest.raises(JobNotFound):
            await events.wait_until_finished("never", 10_000)


async def test_waiting_for_a_job_that_is_still_to_be_added(queue: Any, events: Any, worker: Any) -> None:
    async with events, anyio.create_task_group() as tasks:
        found: dict[str, Any] = {}

        async def wait(job_id: str) -> None:
            try:
                found[job_id] = await queue.wait_until_finished(job_id, events, 20_000, may_not_exist=True)
            except JobNotFound as error:
                found[job_id] = error

        tasks.start_soon(wait, "later")
        tasks.start_soon(wait, "removed")
        with pytest.raises(WaitTimeout):
            await events.wait_until_finished("never", 300, may_not_exist=True)
        await queue.add("a", options=JobOptions(job_id="later", remove_on_complete=True))
        await worker.complete(await worker.get_next_job(), "done")
        await (await queue.add("a", options=JobOptions(job_id="removed"))).remove()
        with anyio.fail_after(30):
            while len(found) < 2:
                await anyio.lowlevel.checkpoint()
        assert found["later"] == "done"
        assert isinstance(found["removed"], JobNotFound)
        # Also where the wait begins after its end.
        assert await events.wait_until_finished("later", 10_000, may_not_exist=True) == "done"
        with pytest.raises(UsageError, match="may_not_exist"):
            await events.wait_until_finished("later", may_not_exist=1)
        with pytest.raises(UsageError, match="result_type"):
            await events.wait_until_finished("later", result_type=threading.Thread)


@pytest.mark.alone
@pytest.mark.any_server
async def test_results_of_jobs_that_are_awaited_at_once(
    adapter: Adapter, server: Server, queue: Any, events: Any, name: str
) -> None:
    """50 callers, each of which adds a job that is removed at its end and waits for it, 2,000 in all."""
    gone = JobOptions(remove_on_complete=True)
    found: list[int] = []

    def give(job: Any) -> Any:
        return job.data

    async def give_later(job: Any) -> Any:
        return job.data

    async def call(first: int) -> None:
        for number in range(first, 2000, 50):
            job = await queue.add("a", number, gone)
            found.append(await job.wait_until_finished(events, 60_000))

    worker = adapter.Worker(
        name, give if adapter.name == "threads" else give_later, server.url, options=WorkerOptions(concurrency=20)
    )
    async with events, worker, anyio.create_task_group() as tasks:
        for first in range(50):
            tasks.start_soon(call, first)
    assert sorted(found) == list(range(2000))


async def test_closing_the_events_ends_the_waiting(queue: Any, events: Any) -> None:
    job = await queue.add("a")
    async with events:

        async def wait() -> None:
            with pytest.raises(Closed):
                await job.wait_until_finished(events)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await queue.get_job_counts()
            await events.aclose()


@pytest.mark.parametrize("how", ["itself", "in a task"])
@pytest.mark.parametrize("is_removed", [False, True], ids=["kept", "removed"])
async def test_a_callback_may_wait_for_a_job_on_the_reader_that_calls_it(
    queue: Any, events: Any, worker: Any, how: str, is_removed: bool
) -> None:
    """No event comes as long as it has not returned: it asks."""
    begun, over = anyio.Event(), anyio.Event()
    results: list[Any] = []

    async def wait(job_id: str) -> None:
        results.append(await events.wait_until_finished(job_id))

    async def follow(event: AddedEvent) -> None:
        begun.set()
        if how == "itself":
            await wait(event.job_id)
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait, event.job_id)
        over.set()

    events.on(AddedEvent, follow)
    with anyio.fail_after(60):
        async with events:
            await queue.add("a", options=JobOptions(remove_on_complete=is_removed))
            await begun.wait()
            await worker.complete(await worker.get_next_job(), {"done": 1})
            await over.wait()
    assert results == [{"done": 1}]


async def test_a_callback_that_waits_on_its_own_reader_learns_what_never_comes(
    adapter: Adapter, server: Server, queue: Any, events: Any
) -> None:
    """A job that is gone, one that does not end in time, and the end of the events."""
    over = anyio.Event()
    raised: list[Any] = []

    async def follow(event: AddedEvent) -> None:
        for job_id, timeout in (("none", None), (event.job_id, 300), (event.job_id, None)):
            try:
                await events.wait_until_finished(job_id, timeout=timeout)
            except (JobNotFound, WaitTimeout, Closed) as error:
                raised.append(type(error))
                if isinstance(error, WaitTimeout):
                    over.set()

    events.on(AddedEvent, follow)
    with anyio.fail_after(60):
        async with events:
            await queue.add("a")
            await over.wait()
    assert raised == [JobNotFound, WaitTimeout, Closed]


async def test_queue_that_is_emptied_without_a_word_is_noticed(
    queue: Any, events: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullmq_anyio.events._RECHECK_S", 0.05)
    monkeypatch.setattr("bullmq_sync.events._RECHECK_S", 0.05)
    async with events, anyio.create_task_group() as tasks:
        job = await queue.add("a")

        async def wait() -> None:
            with pytest.raises(JobNotFound):
                await job.wait_until_finished(events, 10_000)

        tasks.start_soon(wait)
        await queue.get_job_counts()
        await queue.obliterate(force=True)


async def test_waiting_outlives_lost_connections(
    adapter: Adapter, server: Server, queue: Any, worker: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullmq_anyio.events._RECHECK_S", 0.05)
    monkeypatch.setattr("bullmq_sync.events._RECHECK_S", 0.05)
    job = await queue.add("a")
    with CutProxy(server.host, server.port) as proxy:
        async with adapter.QueueEvents(name, proxy.url, blocking_timeout=500) as events:
            found: list[Any] = []

            async def wait() -> None:
                found.append(await events.wait_until_finished(job.id, 10_000))

            proxy.arm(Fault.NONE, queue.keys.job(job.id), times=1000)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                # It asks again: so its first question is answered, the only one that may not be lost.
                with anyio.fail_after(30):
                    while proxy.struck < 2:
                        await anyio.sleep(0.005)
                proxy.arm(Fault.REFUSE)
                proxy.drop_all()
                await worker.complete(await worker.get_next_job(), "done")
                await anyio.sleep(0.2)
                proxy.arm(Fault.NONE)
    assert found == ["done"]


@pytest.mark.any_server
async def test_thousand_callers_share_the_same_connections(
    adapter: Adapter, server: Server, queue: Any, events: Any, name: str
) -> None:
    count = 1000
    results: list[Any] = []

    async def work(job: Any) -> Any:
        return job.data

    async def wait(job: Any) -> None:
        results.append(await job.wait_until_finished(events, 60_000))

    async def connections() -> int:
        clients: Command[str] = Command("CLIENT LIST", (), (), as_text, repeat=Repeat.SAFE)
        return len((await queue.call(clients)).splitlines())

    jobs = await queue.add_bulk([NewJob("a", n) for n in range(count)])
    async with events, adapter.Worker(name, work, server.url) as worker:
        await worker.pause()
        before = most = await connections()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for job in jobs:
                    tasks.start_soon(wait, job)
                for _ in range(50):
                    most = max(most, await connections())
                worker.resume()
                while len(results) < count:
                    most = max(most, await connections())
    # One to ask for the state of the jobs, and the two of the worker.
    assert most <= before + 3
    assert sorted(results) == list(range(count))
