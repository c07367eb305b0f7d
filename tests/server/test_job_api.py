"""What can be done with one job, on every adapter and with both sources of scripts: moves, children, logs."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from bullmq_protocol import FlowNode, JobOptions, NewJob, UsageError
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.commands.getters import Dependencies, FailuresPage, JobLogs, KeysPage, ValuesPage
from bullmq_protocol.common.reply import as_int, as_text
from bullmq_protocol.errors import (
    ChildFailed,
    JobNotFound,
    LockMismatch,
    LockMissing,
    ParentNotFound,
    RetriedInPart,
    ServerError,
    WrongState,
)
from bullmq_protocol.operations.read_dependencies import Cursor, DependenciesPage, Dependency
from tests.support.adapters import Adapter
from tests.support.families import add_child, add_parent, complete, fail
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

BOTH_SOURCES = True
LATER = JobOptions(delay=100_000)


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


def now() -> int:
    return int(time.time() * 1000)


async def places(job: Any) -> dict[str, bool]:
    return {
        "completed": await job.is_completed(),
        "failed": await job.is_failed(),
        "delayed": await job.is_delayed(),
        "active": await job.is_active(),
        "waiting": await job.is_waiting(),
        "waiting-children": await job.is_waiting_children(),
    }


async def waiting(queue: Any) -> list[str]:
    return [job.id for job in await queue.get_waiting()]


# --- where it is ------------------------------------------------------------------------------------------------------


async def test_each_state_has_its_question(queue: Any, worker: Any) -> None:
    async def only(job: Any, state: str | None) -> bool:
        return [name for name, there in (await places(job)).items() if there] == ([state] if state else [])

    job = await queue.add("n")
    assert await only(job, "waiting")
    await queue.pause()
    assert await only(job, "waiting")
    await queue.resume()
    taken = await worker.get_next_job()
    assert await only(job, "active")
    await worker.complete(taken)
    assert await only(job, "completed")
    broken = await queue.add("n")
    await fail(worker)
    assert await only(broken, "failed")
    assert await only(await queue.add("n", {}, LATER), "delayed")
    # As in BullMQ, a prioritized job is not waiting.
    assert await only(await queue.add("n", {}, JobOptions(priority=1)), None)
    assert await only(await add_parent(queue, "parent", now()), "waiting-children")
    await queue.remove("parent")


# --- moves ------------------------------------------------------------------------------------------------------------


async def test_retry_of_a_failed_job(queue: Any, worker: Any) -> None:
    await queue.add("n")
    await fail(worker)
    job = await queue.get_job("1")
    with pytest.raises(WrongState):
        await job.retry("completed")
    assert (job.failed_reason, job.attempts_made) == ("boom", 1)
    await queue.add("n")
    await job.retry()
    assert (job.failed_reason, job.finished_on, job.processed_on) == (None, None, None)
    assert await waiting(queue) == ["2", "1"]
    again = await queue.get_job("1")
    assert (again.failed_reason, again.attempts_made) == (None, 1)
    with pytest.raises(WrongState):
        await job.retry()


@pytest.mark.strict_profile
async def test_retry_of_a_child_whose_failure_is_ignored(
    queue: Any, worker: Any, adapter: Adapter, server: Server
) -> None:
    """The job waits again, though the script ends with an error: the caller learns both."""
    ignored = JobOptions(job_id="child", ignore_dependency_on_failure=True)
    async with adapter.FlowProducer(server.url) as flows:
        children = [FlowNode("c", queue.name, options=ignored), FlowNode("c", queue.name, options=LATER)]
        await flows.add(FlowNode("p", queue.name, children=children))
    await fail(worker)
    job = await queue.get_job("child")
    assert await job.get_state() == "failed"
    with pytest.raises(RetriedInPart, match="job child waits again, but the retry stopped before its end") as caught:
        await job.retry()
    assert (caught.value.code, caught.value.job_id, caught.value.parent_key) == ("WRONGTYPE", "child", job.parent_key)
    assert isinstance(caught.value, ServerError)
    assert (await job.get_state(), job.failed_reason, job.finished_on) == ("waiting", None, None)
    assert (await worker.get_next_job()).id == "child"


async def test_another_error_of_a_retry_stays_what_it_is(
    queue: Any, worker: Any, adapter: Adapter, server: Server
) -> None:
    async with adapter.FlowProducer(server.url) as flows:
        await flows.add(FlowNode("p", queue.name, children=[FlowNode("c", queue.name, options=JobOptions(job_id="c"))]))
    await fail(worker)
    job = await queue.get_job("c")
    await queue.call(Command("SET", (queue.keys.wait,), ("x",), as_text, repeat=Repeat.SAFE))
    with pytest.raises(ServerError) as caught:
        await job.retry()
    assert (type(caught.value), caught.value.code) == (ServerError, "WRONGTYPE")
    await queue.call(Command("DEL", (queue.keys.wait,), (), as_int))


async def test_retry_of_a_completed_job_with_lifo(queue: Any, worker: Any) -> None:
    await queue.add("n", {}, JobOptions(lifo=True))
    await complete(worker, value=7)
    job = await queue.get_job("1")
    assert job.returnvalue == 7
    await queue.add("n")
    await job.retry("completed")
    assert job.returnvalue is None
    assert await waiting(queue) == ["1", "2"]
    await job.remove()
    with pytest.raises(JobNotFound):
        await job.retry("completed")


async def test_promote(queue: Any) -> None:
    job = await queue.add("n", {}, LATER)
    await job.promote()
    assert (job.delay, await job.get_state()) == (0, "waiting")
    assert (await queue.get_job(job.id)).delay == 0
    with pytest.raises(WrongState):
        await job.promote()


async def test_change_delay(queue: Any) -> None:
    job = await queue.add("n", {}, LATER)
    other = await queue.add("n", {}, JobOptions(delay=50_000))
    await job.change_delay(timedelta(seconds=10))
    assert job.delay == 10_000
    assert [each.id for each in await queue.get_delayed()] == [job.id, other.id]
    await job.change_delay(200_000)
    assert [each.id for each in await queue.get_delayed()] == [other.id, job.id]
    await job.promote()
    with pytest.raises(WrongState):
        await job.change_delay(5)


async def test_change_priority(queue: Any) -> None:
    first, second, third = await queue.add_bulk([NewJob("n", {}, JobOptions(priority=5))] * 3)
    await third.change_priority(2)
    assert third.priority == 2
    assert [job.id for job in await queue.get_prioritized()] == ["3", "1", "2"]
    await second.change_priority(5, lifo=True)
    assert [job.id for job in await queue.get_prioritized()] == ["3", "2", "1"]
    await first.change_priority()
    assert first.priority == 0
    assert await waiting(queue) == ["1"]
    await first.change_priority(queue.keys.switches.max_priority)
    assert [job.id for job in await queue.get_prioritized()] == ["3", "2", "1"]
    assert (await queue.get_job("1")).priority == queue.keys.switches.max_priority
    await first.remove()
    with pytest.raises(JobNotFound):
        await first.change_priority(1)


async def test_moves_of_an_active_job_are_noted(queue: Any, worker: Any) -> None:
    await queue.add("n")
    job = await worker.get_next_job()
    await job.move_to_delayed(now() + 60_000)
    assert 59_000 < job.delay <= 60_000


async def test_move_to_waiting_children(queue: Any, worker: Any) -> None:
    await queue.add("n", {}, JobOptions(job_id="parent"))
    parent = await worker.get_next_job()
    assert await parent.move_to_waiting_children() is False
    assert await parent.is_active()
    child = await add_child(queue, "parent", "c1")
    other = await add_child(queue, "parent", "c2")
    assert child.key == queue.keys.job("c1")
    assert await parent.move_to_waiting_children(child="bull:elsewhere:c1") is False
    with pytest.raises(LockMismatch):
        await parent.move_to_waiting_children("another token")
    with pytest.raises(UsageError, match="token"):
        await (await queue.get_job("parent")).move_to_waiting_children()
    assert await parent.move_to_waiting_children(child=child.key) is True
    assert await parent.is_waiting_children()
    with pytest.raises(LockMissing):
        await parent.move_to_waiting_children()
    assert await complete(worker, 2, {"v": 1}) == ["c1", "c2"]
    assert await waiting(queue) == ["parent"]
    assert await parent.get_children_values() == {child.key: {"v": 1}, other.key: {"v": 1}}
    again = await worker.get_next_job()
    await worker.complete(again)


async def test_a_failed_child_stops_its_parent(queue: Any, worker: Any) -> None:
    await queue.add("n", {}, JobOptions(job_id="parent"))
    parent = await worker.get_next_job()
    await add_child(queue, "parent", "c1", fail_parent_on_failure=True)
    await fail(worker)
    with pytest.raises(ChildFailed):
        await parent.move_to_waiting_children()
    assert (await parent.get_dependencies()).failed == [queue.keys.job("c1")]


# --- children ---------------------------------------------------------------------------------------------------------


async def family(queue: Any, worker: Any) -> Any:
    """A parent with children of every kind: c0 and c1 processed, c2 ignored, c4 pending, f0 to f2 failed."""
    parent = await add_parent(queue, "parent", now())
    await add_child(queue, "parent", "c0")
    await add_child(queue, "parent", "c1")
    await add_child(queue, "parent", "c2", ignore_dependency_on_failure=True)
    await add_child(queue, "parent", "c4")
    await complete(worker, 2, [1])
    await fail(worker)
    key = queue.keys.unsuccessful("parent")
    for number in range(3):
        await queue.call(Command("ZADD", (key,), (number, queue.keys.job(f"f{number}")), as_int, repeat=Repeat.SAFE))
    return parent


async def test_children_by_kind(queue: Any, worker: Any) -> None:
    parent = await family(queue, worker)
    key = queue.keys.job
    values = {key("c0"): [1], key("c1"): [1]}
    failures = {key("c2"): "boom"}
    failed = [key("f0"), key("f1"), key("f2")]
    assert await parent.get_dependencies() == Dependencies(values, [key("c4")], failures, failed)
    assert await parent.get_dependencies_count() == {"processed": 2, "unprocessed": 1, "ignored": 1, "failed": 3}
    assert await parent.get_dependencies_count("failed", "ignored") == {"failed": 3, "ignored": 1}
    assert await parent.get_children_values() == values
    assert await parent.get_ignored_children_failures() == await parent.get_failed_children_values() == failures
    everything = await parent.get_dependencies_page(
        processed=Cursor(), unprocessed=Cursor(), ignored=Cursor(), failed=Cursor(count=2)
    )
    assert everything == DependenciesPage(
        processed=ValuesPage(0, values),
        unprocessed=KeysPage(0, [key("c4")]),
        ignored=FailuresPage(0, failures),
        failed=KeysPage(2, failed[:2]),
    )
    second = await parent.get_dependencies_page(failed=Cursor(2, 2))
    assert second == DependenciesPage(failed=KeysPage(0, failed[2:]))
    walks = {
        kind: [child async for child in parent.iter_dependencies(kind, page_size=2)]
        for kind in ("processed", "unprocessed", "ignored", "failed")
    }
    assert walks == {
        "processed": [Dependency(child, value) for child, value in values.items()],
        "unprocessed": [Dependency(key("c4"))],
        "ignored": [Dependency(key("c2"), "boom")],
        "failed": list(map(Dependency, failed)),
    }
    await queue.remove("parent")


async def test_hundreds_of_children_in_pages(queue: Any) -> None:
    parent = await add_parent(queue, "parent", now())
    key = queue.keys.dependencies("parent")
    names = tuple(queue.keys.job(f"c{number}") for number in range(700))
    await queue.call(Command("SADD", (key,), names, as_int, repeat=Repeat.SAFE))
    found = [child.key async for child in parent.iter_dependencies("unprocessed", page_size=50)]
    assert sorted(found) == sorted(names)
    page = (await parent.get_dependencies_page(unprocessed=Cursor(count=50))).unprocessed
    assert 50 <= len(page.children) < 700
    assert page.cursor > 0
    await queue.remove("parent")


async def test_link_to_the_parent_can_be_broken(queue: Any) -> None:
    parent = await add_parent(queue, "parent", now())
    await add_child(queue, "parent", "c1")
    child = await queue.get_job("c1")
    assert child.parent_key == parent.key
    assert await child.remove_child_dependency() is True
    assert child.parent_key is None
    assert await waiting(queue) == ["parent", "c1"]
    # The stored options still name the parent, so a fresh copy asks again, and there is no link.
    assert await (await queue.get_job("c1")).remove_child_dependency() is False
    alone = await queue.add("n")
    with pytest.raises(ParentNotFound):
        await alone.remove_child_dependency()


async def test_unprocessed_children_can_be_removed(queue: Any, worker: Any) -> None:
    parent = await add_parent(queue, "parent", now())
    for number in range(3):
        await add_child(queue, "parent", f"c{number}")
    await complete(worker)
    locked = await worker.get_next_job()
    await parent.remove_unprocessed_children()
    assert [await queue.get_job(f"c{number}") is not None for number in range(3)] == [True, True, False]
    assert (await parent.get_dependencies()).unprocessed == [locked.key]
    await worker.complete(locked)
    assert await waiting(queue) == ["parent"]


@pytest.mark.parametrize("remove_children", [True, False])
async def test_remove_with_and_without_children(queue: Any, remove_children: bool) -> None:
    parent = await add_parent(queue, "parent", now())
    await add_child(queue, "parent", "c1")
    assert await parent.remove(remove_children=remove_children) is True
    assert (await queue.get_job("c1") is None) is remove_children


async def test_a_value_of_a_child_that_is_no_hash_is_an_error(queue: Any) -> None:
    parent = await add_parent(queue, "parent", now())
    key = queue.keys.processed("parent")
    await queue.call(Command("RPUSH", (key,), ("x",), as_int))
    for wrong in (
        parent.get_dependencies(),
        parent.get_children_values(),
        anext(parent.iter_dependencies("processed")),
    ):
        with pytest.raises(ServerError, match="WRONGTYPE"):
            await wrong
    await queue.call(Command("DEL", (key,), (), as_int))
    await queue.remove("parent")


# --- log --------------------------------------------------------------------------------------------------------------


async def test_log(queue: Any) -> None:
    job = await queue.add("n")
    for row in "abcde":
        await job.log(row)
    assert await job.get_logs() == JobLogs(list("abcde"), 5)
    assert await job.get_logs(1, 1) == JobLogs(["b"], 5)
    assert await job.get_logs(0, 1, asc=False) == JobLogs(["e", "d"], 5)
    assert [row async for row in job.iter_logs(page_size=2)] == list("abcde")
    await job.clear_logs(keep_logs=2)
    assert await job.get_logs() == JobLogs(["d", "e"], 2)
    await job.clear_logs()
    assert await job.get_logs() == JobLogs([], 0)
