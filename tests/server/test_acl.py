"""The rules of docs/security.md let each role call every public method that is its own, on real servers."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import anyio
import pytest
import redis

import bullmq_anyio
from bullmq_protocol import (
    ConnectionOptions,
    Deduplication,
    FlowNode,
    JobOptions,
    NewJob,
    RepeatOptions,
    WorkerOptions,
)
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.errors import BullMQError, ServerError
from bullmq_protocol.events.stream import AddedEvent
from bullmq_protocol.operations.read_dependencies import Cursor
from bullmq_protocol.operations.read_jobs import JobPages, get_jobs
from tests.support import pages
from tests.support.adapters import Adapter
from tests.support.servers import Server

Calls = Mapping[str, Callable[[Any], Any]]

# What a producer may do with a queue: add, read, wait.
READING: Calls = {
    "call": lambda q: q.call(ping()),
    "run": lambda q: q.run(get_jobs(q.keys, ("waiting",))),
    "pages": lambda q: q.pages(JobPages(states=("completed",), page_size=1)),
    "get_job": lambda q: q.get_job("done"),
    "get_job_state": lambda q: q.get_job_state("done"),
    "get_state": lambda q: q.get_state("waits"),
    "get_ranges": lambda q: q.get_ranges(("waiting", "completed", "prioritized")),
    "get_jobs": lambda q: q.get_jobs(),
    "get_waiting": lambda q: q.get_waiting(),
    "get_waiting_children": lambda q: q.get_waiting_children(),
    "get_active": lambda q: q.get_active(),
    "get_delayed": lambda q: q.get_delayed(),
    "get_prioritized": lambda q: q.get_prioritized(),
    "get_completed": lambda q: q.get_completed(),
    "get_failed": lambda q: q.get_failed(),
    "iter_jobs": lambda q: q.iter_jobs(),
    "get_job_logs": lambda q: q.get_job_logs("done"),
    "iter_logs": lambda q: q.iter_logs("done"),
    "get_dependencies": lambda q: q.get_dependencies("parent", "pending"),
    "get_job_counts": lambda q: q.get_job_counts(),
    "get_job_count_by_types": lambda q: q.get_job_count_by_types(),
    "count": lambda q: q.count(),
    "get_summary": lambda q: q.get_summary(),
    "get_waiting_count": lambda q: q.get_waiting_count(),
    "get_waiting_children_count": lambda q: q.get_waiting_children_count(),
    "get_active_count": lambda q: q.get_active_count(),
    "get_delayed_count": lambda q: q.get_delayed_count(),
    "get_prioritized_count": lambda q: q.get_prioritized_count(),
    "get_completed_count": lambda q: q.get_completed_count(),
    "get_failed_count": lambda q: q.get_failed_count(),
    "get_counts_per_priority": lambda q: q.get_counts_per_priority([0, 1]),
    "get_metrics": lambda q: q.get_metrics("completed"),
    "export_prometheus_metrics": lambda q: q.export_prometheus_metrics(),
    "is_paused": lambda q: q.is_paused(),
    "get_global_concurrency": lambda q: q.get_global_concurrency(),
    "is_maxed": lambda q: q.is_maxed(),
    "get_global_rate_limit": lambda q: q.get_global_rate_limit(),
    "get_rate_limit_ttl": lambda q: q.get_rate_limit_ttl(),
    "get_deduplication_job_id": lambda q: q.get_deduplication_job_id("d"),
    "get_job_scheduler": lambda q: q.get_job_scheduler("s"),
    "get_job_schedulers": lambda q: q.get_job_schedulers(),
    "get_job_schedulers_count": lambda q: q.get_job_schedulers_count(),
    "get_repeatable_jobs": lambda q: q.get_repeatable_jobs(),
    "get_version": lambda q: q.get_version(),
}
PRODUCING: Calls = {
    "add": lambda q: q.add("n", 1, JobOptions(job_id="own", deduplication=Deduplication("x"))),
    "add_bulk": lambda q: q.add_bulk([NewJob("n"), NewJob("n", 1, JobOptions(priority=1)), NewJob("n")]),
    "upsert_job_scheduler": lambda q: q.upsert_job_scheduler("s", RepeatOptions(every=100_000), "scheduled"),
    "adding": lambda q: q.commit(q.adding([NewJob("n")])),
    "adding_job_scheduler": lambda q: q.commit(q.adding_job_scheduler("s", RepeatOptions(every=100_000), "scheduled")),
    "commit": lambda q: q.commit(q.adding([NewJob("n", 1, JobOptions(priority=1))])),
    "entry": lambda q: q.entry("n"),
    **READING,
    "remove_deduplication_key": lambda q: q.remove_deduplication_key("d"),
    "remove_job_scheduler": lambda q: q.remove_job_scheduler("s"),
}
ADMINISTERING: Calls = {
    **PRODUCING,
    "get_workers": lambda q: q.get_workers(),
    "get_workers_count": lambda q: q.get_workers_count(),
    "get_queue_events": lambda q: q.get_queue_events(),
    "update_job_progress": lambda q: q.update_job_progress("done", 5),
    "add_job_log": lambda q: q.add_job_log("done", "row", 5),
    "set_global_concurrency": lambda q: q.set_global_concurrency(5),
    "remove_global_concurrency": lambda q: q.remove_global_concurrency(),
    "set_global_rate_limit": lambda q: q.set_global_rate_limit(5, 5),
    "remove_global_rate_limit": lambda q: q.remove_global_rate_limit(),
    "rate_limit": lambda q: q.rate_limit(5),
    "remove_rate_limit_key": lambda q: q.remove_rate_limit_key(),
    "remove_repeatable": lambda q: q.remove_repeatable("n", RepeatOptions(every=5)),
    "remove_repeatable_by_key": lambda q: q.remove_repeatable_by_key("k"),
    "remove_deprecated_priority_key": lambda q: q.remove_deprecated_priority_key(),
    "trim_events": lambda q: q.trim_events(5),
    "promote_pages": lambda q: q.promote_pages(),
    "promote_jobs": lambda q: q.promote_jobs(),
    "retry_pages": lambda q: q.retry_pages(),
    "retry_jobs": lambda q: q.retry_jobs("completed"),
    "pause": lambda q: q.pause(),
    "resume": lambda q: q.resume(),
    "remove": lambda q: q.remove("parent"),
    "clean_pages": lambda q: q.clean_pages(0, state="wait"),
    "clean": lambda q: q.clean(0, state="failed"),
    "remove_orphaned_jobs": lambda q: q.remove_orphaned_jobs(),
    "drain": lambda q: q.drain(delayed=True),
    "obliterate_pages": lambda q: q.obliterate_pages(force=True),
    "obliterate": lambda q: q.obliterate(force=True),
}
JOB_READING: Calls = {
    "get_logs": lambda j: j.get_logs(),
    "iter_logs": lambda j: j.iter_logs(),
    "get_state": lambda j: j.get_state(),
    "finished_state": lambda j: j.finished_state(),
    "is_completed": lambda j: j.is_completed(),
    "is_failed": lambda j: j.is_failed(),
    "is_delayed": lambda j: j.is_delayed(),
    "is_waiting_children": lambda j: j.is_waiting_children(),
    "is_active": lambda j: j.is_active(),
    "is_waiting": lambda j: j.is_waiting(),
    "refresh": lambda j: j.refresh(),
    "get_children_values": lambda j: j.get_children_values(),
    "get_ignored_children_failures": lambda j: j.get_ignored_children_failures(),
    "get_failed_children_values": lambda j: j.get_failed_children_values(),
    "get_dependencies": lambda j: j.get_dependencies(),
    "get_dependencies_page": lambda j: j.get_dependencies_page(
        processed=Cursor(), unprocessed=Cursor(), ignored=Cursor(), failed=Cursor()
    ),
    "iter_dependencies": lambda j: j.iter_dependencies("processed"),
    "get_dependencies_count": lambda j: j.get_dependencies_count(),
}
JOB_WORKING: Calls = {
    **JOB_READING,
    "update_progress": lambda j: j.update_progress(5),
    "update_data": lambda j: j.update_data({"n": 1}),
    "log": lambda j: j.log("row"),
    "clear_logs": lambda j: j.clear_logs(),
    "extend_lock": lambda j: j.extend_lock(30_000),
    "change_priority": lambda j: j.change_priority(1),
    "change_delay": lambda j: j.change_delay(5),
    "promote": lambda j: j.promote(),
    "retry": lambda j: j.retry(),
    "remove_unprocessed_children": lambda j: j.remove_unprocessed_children(),
    "remove_child_dependency": lambda j: j.remove_child_dependency(),
    "remove_deduplication_key": lambda j: j.remove_deduplication_key(),
    "move_to_waiting_children": lambda j: j.move_to_waiting_children(),
    "move_to_wait": lambda j: j.move_to_wait(),
    "move_to_delayed": lambda j: j.move_to_delayed(5),
    "remove": lambda j: j.remove(),
    "discard": lambda j: j.discard(),
}


def public(kind: type) -> set[str]:
    return {
        name
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in ("aclose", "close")
    }


def test_every_method_is_somebodys() -> None:
    """`wait_until_finished` is called for itself: it needs a reader of events."""
    assert public(bullmq_anyio.Queue) == set(ADMINISTERING) | {"wait_until_finished"}
    assert public(bullmq_anyio.Job) == set(JOB_WORKING) | {"wait_until_finished"}
    assert public(bullmq_anyio.FlowProducer) == {"add", "add_bulk", "adding", "get_flow"}
    assert public(bullmq_anyio.QueueEventsProducer) == {"publish"}
    assert public(bullmq_anyio.QueueEvents) == {"on", "stream", "wait_until_finished", "run"}


class Users:
    """The three roles on a server, and what was refused to them."""

    def __init__(self, server: Server, name: str) -> None:
        self._server = server
        self._name = name
        self.admin = redis.Redis.from_url(server.url)
        for role in ("producer", "worker", "administrator"):
            self.admin.execute_command(
                "ACL", "SETUSER", f"{role}-{name}", "reset", *pages.acl_rule("security.md", role)
            )

    def login(self, role: str) -> ConnectionOptions:
        server = self._server
        return ConnectionOptions(
            host=server.host, port=server.port, username=f"{role}-{self._name}", password="password", client_name="c"
        )

    def refused(self) -> list[Any]:
        log: list[dict[bytes, Any]] = self.admin.execute_command("ACL", "LOG")
        return [
            (entry[b"reason"], entry[b"object"], entry[b"context"])
            for entry in log
            if self._name.encode() in entry[b"username"]
        ]

    def close(self) -> None:
        for role in ("producer", "worker", "administrator"):
            self.admin.execute_command("ACL", "DELUSER", f"{role}-{self._name}")
        self.admin.close()


@pytest.fixture
async def users(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Users]:
    """Users, and a queue that has a job in every state."""
    with contextlib.closing(Users(server, name)) as users:
        async with _filled(adapter, server, name) as queue:
            yield users
            assert users.refused() == []
            await queue.obliterate(force=True)


@contextlib.asynccontextmanager
async def _filled(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    async with (
        adapter.Queue(name, server.url) as queue,
        adapter.FlowProducer(server.url) as flows,
    ):
        worker = adapter.Worker(name, None, server.url)
        await queue.add("n", 1, JobOptions(job_id="done"))
        await worker.complete(await worker.get_next_job(), 1)
        await queue.add("n", 1, JobOptions(job_id="broken"))
        await worker.fail(await worker.get_next_job(), ValueError("no"))
        await queue.add("n", 1, JobOptions(job_id="later", delay=100_000))
        await queue.add("n", 1, JobOptions(job_id="urgent", priority=1))
        await queue.add("n", 1, JobOptions(deduplication=Deduplication("d")))
        await flows.add(
            FlowNode(
                "p", name, options=JobOptions(job_id="parent"), children=[FlowNode("c", name), FlowNode("c", name)]
            )
        )
        await queue.upsert_job_scheduler("s", RepeatOptions(every=100_000))
        await worker.aclose()
        yield queue


async def call_all(target: Any, calls: Calls) -> None:
    for method, call in calls.items():
        assert callable(getattr(target, method))
        try:
            answer = call(target)
            if inspect.isawaitable(answer):
                await answer
            elif hasattr(answer, "__anext__"):
                async for _ in answer:
                    break
        except ServerError as error:
            raise AssertionError(method) from error
        except BullMQError:
            pass  # it was let through to the server, which has its reasons


async def test_a_producer_may_add_read_and_wait(adapter: Adapter, users: Users, name: str) -> None:
    login = users.login("producer")
    async with adapter.Queue(name, login) as queue, adapter.QueueEvents(name, login, last_event_id="0-0") as events:
        await call_all(queue, PRODUCING)
        for job_id in ("done", "broken", "parent", "later", "urgent"):
            await call_all(await queue.get_job(job_id), JOB_READING)
        job = await queue.get_job("done")
        assert await job.wait_until_finished(events, 10_000) == 1
        assert await queue.wait_until_finished("done", events, 10_000) == 1
        async for event in events:
            assert isinstance(event, AddedEvent)
            break
    async with adapter.FlowProducer(login) as flows:
        await flows.add(FlowNode("p", name, children=[FlowNode("c", name, options=JobOptions(job_id="child"))]))
        await flows.add_bulk([FlowNode("p", name, options=JobOptions(deduplication=Deduplication("y")))])
        assert await flows.get_flow("parent", name) is not None
    publisher = adapter.QueueEventsProducer(name, login)
    await publisher.publish("mine")
    await publisher.aclose()


async def test_a_worker_may_do_all_with_its_jobs(adapter: Adapter, users: Users, server: Server, name: str) -> None:
    login = users.login("worker")
    hands = adapter.Worker(name, None, login)
    for _ in range(3):
        job = await hands.get_next_job()
        await call_all(job, JOB_WORKING)
    async with adapter.Queue(name, server.url) as queue:
        await queue.add_bulk([NewJob("n", n, JobOptions(attempts=2, backoff=1)) for n in range(6)])
        await hands.extend_lock(await hands.get_next_job())
        await hands.complete(await hands.get_next_job(), 1)
        await hands.fail(await hands.get_next_job(), ValueError("no"))
        await hands.aclose()

        def process(job: Any) -> Any:
            if job.attempts_made == 0:
                raise ValueError("again")
            return None

        async def process_later(job: Any) -> Any:
            return process(job)

        worker = adapter.Worker(
            name,
            process if adapter.name == "threads" else process_later,
            login,
            options=WorkerOptions(concurrency=2, stalled_interval=50, lock_duration=500),
        )
        async with worker:
            await queue.add("last", 1, JobOptions(job_id="last", attempts=3))
            with anyio.fail_after(30):
                while await queue.get_job_state("last") != "completed":
                    await anyio.lowlevel.checkpoint()
            await worker.pause()
            worker.resume()


async def test_an_administrator_may_do_all_with_a_queue(adapter: Adapter, users: Users, name: str) -> None:
    login = users.login("administrator")
    async with adapter.Queue(name, login) as queue, adapter.QueueEvents(name, login, last_event_id="0-0") as events:
        assert await queue.wait_until_finished("done", events, 10_000) == 1
        for job_id in ("later", "urgent", "broken", "parent"):
            await call_all(await queue.get_job(job_id), JOB_WORKING)
        await call_all(queue, ADMINISTERING)
