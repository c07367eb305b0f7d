"""Flows on real servers, on every adapter and with both sources of scripts: adding, refusals, reading back, steps."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from bullmq_protocol import Deduplication, JobOptions, KeyLayout, NewJob, ParentRef, Telemetry, UsageError
from bullmq_protocol.command import Command, Repeat
from bullmq_protocol.common.reply import as_int, as_none, as_optional_text
from bullmq_protocol.errors import (
    FlowAddError,
    NodeRefused,
    ParentNotFound,
    ParentNotReplaceable,
    ServerError,
    UnrecoverableError,
    WaitingChildrenError,
)
from bullmq_protocol.model.flow import FlowJob, FlowNode
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from bullmq_protocol.worker.options import WorkerOptions
from tests.support import servers
from tests.support.adapters import Adapter
from tests.support.families import add_parent, complete, fail
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

BOTH_SOURCES = True


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


@pytest.fixture
async def flows(adapter: Adapter, server: Server, queue: Any) -> AsyncIterator[Any]:
    async with adapter.FlowProducer(server.url) as flows:
        yield flows


@pytest.fixture
async def worker(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    """A worker that takes jobs by hand."""
    worker = adapter.Worker(name, None, server.url)
    yield worker
    await worker.aclose()


def node(queue: Any, name: str, *children: FlowNode, data: Any = None, **options: Any) -> FlowNode:
    return FlowNode(name, queue.name, data, JobOptions(**options), children=children)


def shape(flow: FlowJob[Any]) -> Any:
    return {flow.job.name: [shape(child) for child in flow.children]} if flow.children else flow.job.name


# --- adding -----------------------------------------------------------------------------------------------------------


async def test_flow_is_added_and_read_back_and_its_parents_are_released(queue: Any, flows: Any, worker: Any) -> None:
    tall = node(queue, "root", node(queue, "left", node(queue, "deep")), node(queue, "right"), data={"r": 1})
    added = await flows.add(tall)
    assert shape(added) == {"root": [{"left": ["deep"]}, "right"]}
    assert added.job.data == {"r": 1}
    assert len(added.job.id) == 36
    assert await queue.get_job_counts("waiting", "waiting-children") == {
        "paused": 0,
        "waiting": 2,
        "waiting-children": 2,
    }
    left = added.children[0].job
    assert left.parent_key == added.job.key
    found = await flows.get_flow(added.job.id, queue.name)
    assert {name for child in shape(found)["root"] for name in child} >= {"left"}
    assert await complete(worker, 2, "child") != []
    assert await left.get_state() == "waiting"
    assert await complete(worker, 1, {"v": 2}) == [left.id]
    assert await added.job.get_state() == "waiting"
    values = await added.job.get_children_values()
    assert values == {left.key: {"v": 2}, added.children[1].job.key: "child"}
    again = await flows.get_flow(added.job.id, queue.name)
    assert sorted(map(str, shape(again)["root"])) == sorted(map(str, [{"left": ["deep"]}, "right"]))
    assert shape(await flows.get_flow(added.job.id, queue.name, depth=1)) == "root"
    assert len((await flows.get_flow(added.job.id, queue.name, max_children=1)).children) == 1
    assert await flows.get_flow("none", queue.name) is None


async def test_flow_goes_across_queues_and_prefixes_with_the_options_of_each(
    adapter: Adapter, server: Server, queue: Any, flows: Any, name: str
) -> None:
    tree = FlowNode(
        "p",
        queue.name,
        children=[
            FlowNode("c", f"{name}-c", prefix="other", options=JobOptions(priority=3)),
            FlowNode("d", f"{name}-c"),
        ],
    )
    added = await flows.add(tree, queues_options={f"{name}-c": JobOptions(attempts=4)})
    first, second = (child.job for child in added.children)
    assert (first.key, second.key) == (f"other:{name}-c:{first.id}", f"bull:{name}-c:{second.id}")
    async with (
        adapter.Queue(f"{name}-c", server.url, prefix="other") as other,
        adapter.Queue(f"{name}-c", server.url) as plain,
    ):
        stored = await other.get_job(first.id)
        assert (stored.priority, stored.opts.attempts, stored.parent_key) == (3, 4, added.job.key)
        assert (await plain.get_job(second.id)).opts.attempts == 4
        assert added.job.opts.attempts == 0
        found = await flows.get_flow(added.job.id, queue.name)
        assert sorted(child.job.key for child in found.children) == sorted([first.key, second.key])
        await other.call(Command("DEL", (first.key,), (), as_int))
        found = await flows.get_flow(added.job.id, queue.name)
        assert found.missing == (first.key,)
        await plain.obliterate(force=True)
        await other.obliterate(force=True)


async def test_many_flows_in_one_transaction(queue: Any, flows: Any) -> None:
    added = await flows.add_bulk([node(queue, "a", node(queue, "b")), node(queue, "c")])
    assert list(map(shape, added)) == [{"a": ["b"]}, "c"]
    assert await flows.add_bulk([]) == []
    assert await queue.count() == 3


@pytest.mark.parametrize("elsewhere", [False, True], ids=["one-queue", "two-queues"])
async def test_a_flow_is_whole_where_the_server_has_lost_its_scripts(
    adapter: Adapter, server: Server, queue: Any, flows: Any, name: str, elsewhere: bool
) -> None:
    forget = Command("SCRIPT FLUSH", (), (), as_none, repeat=Repeat.SAFE)
    async with adapter.Queue(f"{name}-b" if elsewhere else name, server.url) as other:
        for number in (1, 2, 3):
            added = await flows.add(node(queue, "p", *[node(other, "c") for _ in range(5)], node(queue, "d")))
            keys = {child.job.key for child in added.children}
            assert set((await added.job.get_dependencies()).unprocessed) == keys
            # Each as often as it was added, in its queue and among the ids that were counted.
            here = await queue.get_job_counts("waiting", "waiting-children")
            there = await other.get_job_counts("waiting")
            assert here["waiting-children"] == number
            assert here["waiting"] + (there["waiting"] if elsewhere else 0) == 6 * number
            assert int(await queue.call(Command("GET", (queue.keys.id,), (), as_optional_text))) == (
                2 * number if elsewhere else 7 * number
            )
            await queue.call(forget)
        if elsewhere:
            await other.obliterate(force=True)


@pytest.mark.parametrize(
    ("policy", "after_failure", "after_all", "counts"),
    [
        ("", "waiting-children", "waiting-children", (1, 1, 0, 0)),
        ("fail_parent", "waiting", "waiting", (1, 0, 0, 1)),
        ("continue_parent", "waiting", "waiting", (1, 0, 1, 0)),
        ("ignore_dependency", "waiting-children", "waiting", (1, 0, 1, 0)),
        ("remove_dependency", "waiting-children", "waiting", (1, 0, 0, 0)),
    ],
)
async def test_failure_policies(
    queue: Any, flows: Any, worker: Any, policy: str, after_failure: str, after_all: str, counts: tuple[int, ...]
) -> None:
    options = {f"{policy}_on_failure": True} if policy else {}
    bad, good = node(queue, "bad", **options), node(queue, "good", **options)
    parent = (await flows.add(node(queue, "p", bad, good))).job
    taken_bad, taken_good = await worker.get_next_job(), await worker.get_next_job()
    await worker.fail(taken_bad, UnrecoverableError("no"))
    assert await parent.get_state() == after_failure
    await worker.complete(taken_good)
    assert await parent.get_state() == after_all
    kinds = ("processed", "unprocessed", "ignored", "failed")
    assert await parent.get_dependencies_count() == dict(zip(kinds, counts, strict=True))
    assert list((await parent.get_ignored_children_failures()).values()) == ["no"] * counts[2]
    if policy == "fail_parent":
        assert (await worker.get_next_job()).record.deferred_failure == f"child {taken_bad.key} failed"


async def test_empty_children_make_an_ordinary_job(queue: Any, flows: Any) -> None:
    added = await flows.add(FlowNode("p", queue.name, children=[]))
    assert await added.job.get_state() == "waiting"


async def test_delayed_and_urgent_parents_count_from_their_release(queue: Any, flows: Any, worker: Any) -> None:
    late = await flows.add(node(queue, "late", node(queue, "c"), delay=100_000))
    urgent = await flows.add(node(queue, "urgent", node(queue, "c"), priority=2))
    await complete(worker, 2)
    assert [await late.job.get_state(), await urgent.job.get_state()] == ["delayed", "prioritized"]


async def test_depth_and_width(queue: Any, flows: Any) -> None:
    deep = node(queue, "bottom")
    for _ in range(1000):
        deep = node(queue, "x", deep)
    added = await flows.add(deep)
    assert (await queue.get_job_counts("waiting-children"))["waiting-children"] == 1000
    found = await flows.get_flow(added.job.id, queue.name, depth=2000)
    depth = 0
    while found.children:
        depth, found = depth + 1, found.children[0]
    assert (depth, found.job.name) == (1000, "bottom")
    wide = await flows.add(node(queue, "wide", *[node(queue, "c")] * 2000))
    assert len((await flows.get_flow(wide.job.id, queue.name, max_children=5000)).children) == 2000
    assert (await wide.job.get_dependencies_count())["unprocessed"] == 2000


async def test_a_root_that_is_done_releases_its_parent_outside_the_flow(queue: Any, flows: Any, worker: Any) -> None:
    outer = await add_parent(queue, "outer", 1)
    await queue.add("r", None, JobOptions(job_id="r"))
    await complete(worker)
    await flows.add(node(queue, "r", job_id="r", parent=ParentRef("outer", queue.keys.qualified)))
    assert await outer.get_state() == "waiting"


# --- refusals ---------------------------------------------------------------------------------------------------------


async def test_missing_parent_is_reported_with_every_node(queue: Any, flows: Any) -> None:
    with pytest.raises(FlowAddError, match=r"2 of 2 nodes were refused; the first, flow\[0\] \('p'") as error:
        await flows.add(node(queue, "p", node(queue, "c"), parent=ParentRef("none", queue.keys.qualified)))
    assert [type(each) for each in error.value.results] == [ParentNotFound, ParentNotFound]
    assert await queue.count() == 0


async def test_child_of_another_parent_is_reported(queue: Any, flows: Any) -> None:
    await flows.add(node(queue, "one", node(queue, "c", job_id="c")))
    with pytest.raises(FlowAddError, match=r"flow\[0\].children\[1\] \('c' c of") as error:
        await flows.add(node(queue, "two", node(queue, "d"), node(queue, "c", job_id="c")))
    assert [type(each) for each in error.value.results] == [str, str, ParentNotReplaceable]
    # The others are there.
    assert (await queue.get_job(error.value.results[0])).name == "two"


@pytest.mark.strict_profile
async def test_child_whose_parent_is_gone_is_reported(queue: Any, flows: Any) -> None:
    one = await flows.add(node(queue, "one", node(queue, "c", job_id="c")))
    await one.job.remove(remove_children=False)
    with pytest.raises(FlowAddError, match="keeps its own parent"):
        await flows.add(node(queue, "two", node(queue, "c", job_id="c")))


@pytest.mark.strict_profile
async def test_deduplicated_nodes_are_reported_but_a_single_job_is_as_in_a_queue(queue: Any, flows: Any) -> None:
    once = Deduplication("d")
    first = await queue.add("first", options=JobOptions(deduplication=once))
    assert (await flows.add(node(queue, "single", deduplication=once))).job.id == first.id
    for tree in (
        node(queue, "p", node(queue, "c"), deduplication=once),
        node(queue, "p", node(queue, "c", deduplication=once)),
    ):
        with pytest.raises(FlowAddError) as error:
            await flows.add(tree)
        refused = [each for each in error.value.results if isinstance(each, NodeRefused)]
        assert [each.existing_id for each in refused] == [first.id]


async def test_existing_children_are_linked(queue: Any, flows: Any, worker: Any) -> None:
    await queue.add("ready", options=JobOptions(job_id="done"))
    await complete(worker, 1, "before")
    await queue.add("open", options=JobOptions(job_id="open"))
    added = await flows.add(node(queue, "p", node(queue, "open", job_id="open"), node(queue, "ready", job_id="done")))
    assert await added.job.get_children_values() == {queue.keys.job("done"): "before"}
    assert await added.job.get_state() == "waiting-children"
    assert await complete(worker, 1) == ["open"]
    assert await added.job.get_state() == "waiting"


async def test_bad_flows_are_refused_before_anything_is_sent(queue: Any, flows: Any) -> None:
    children: list[FlowNode] = []
    loop = FlowNode("loop", queue.name, children=children)
    children.append(loop)
    for bad, rule in (
        (loop, "contains itself"),
        (node(queue, "p", node(queue, "")), r"children\[0\]: name"),
        (node(queue, "p", node(queue, "c", job_id="1")), r"children\[0\]: job_id"),
        ("p", "FlowNode"),
    ):
        with pytest.raises(UsageError, match=rule):
            await flows.add(bad)
    for wrong in ({"depth": 0}, {"max_children": 0}):
        with pytest.raises(UsageError):
            await flows.get_flow("1", queue.name, **wrong)
    assert await queue.count() == 0


async def test_flow_of_several_slots_is_refused_on_a_cluster(adapter: Adapter, name: str) -> None:
    with servers.start(config=("--cluster-enabled", "yes")) as server:
        tree = FlowNode("p", name, children=[FlowNode("c", f"{name}-c")])
        async with adapter.FlowProducer(server.url, layout=KeyLayout.TAGGED_QUEUE) as flows:
            with pytest.raises(UsageError, match="TAGGED_PREFIX"):
                await flows.add(tree)
        async with adapter.FlowProducer(server.url) as flows:
            with pytest.raises(UsageError, match="TAGGED_PREFIX"):
                await flows.add(tree)
        async with adapter.FlowProducer(server.url, layout=KeyLayout.TAGGED_PREFIX) as flows:
            with pytest.raises((FlowAddError, ServerError)) as error:
                await flows.add(tree)
            # It is a cluster without slots: what was sent is refused by the server.
            assert not isinstance(error.value, UsageError)


# --- within a processor -----------------------------------------------------------------------------------------------


async def test_processor_adds_children_in_steps_and_waits_for_them(
    adapter: Adapter, server: Server, queue: Any, flows: Any, name: str
) -> None:
    ended = anyio.Event()
    starts: list[tuple[str, int]] = []

    async def work(job: Any) -> Any:
        if job.name != "steps":
            return job.data["n"]
        starts.append((job.data["step"], job.attempts_made))
        parent = ParentRef(job.id, queue.keys.qualified)
        if job.data["step"] == "first":
            await queue.add("child", {"n": 1}, JobOptions(parent=parent))
            await job.update_data({"step": "second"})
            if await job.move_to_waiting_children():
                raise WaitingChildrenError
        if job.data["step"] == "second":
            await flows.add(FlowNode("child", name, {"n": 2}, JobOptions(parent=parent)))
            await job.update_data({"step": "last"})
            if await job.move_to_waiting_children():
                raise WaitingChildrenError
        assert not await job.move_to_waiting_children()
        return sorted((await job.get_children_values()).values())

    results: list[Any] = []

    def completed(notice: JobCompleted) -> None:
        if notice.job.name == "steps":
            ended.set()

    worker = adapter.Worker(name, work, server.url)
    worker.on(JobCompleted, completed)
    worker.on(JobFailed, lambda notice: results.append(notice.reason))
    job = await queue.add("steps", {"step": "first"})
    async with worker:
        with anyio.fail_after(30):
            await ended.wait()
    await job.refresh()
    assert (job.returnvalue, results) == ([1, 2], [])
    assert starts[0] == ("first", 0) and starts[-1] == ("last", 0)
    assert {attempts for _, attempts in starts} == {0}


# --- what travels with a job ------------------------------------------------------------------------------------------


async def test_trace_context_is_carried_unchanged(queue: Any, flows: Any, worker: Any) -> None:
    trace = Telemetry('{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}', omit_context=True)
    added = [
        await queue.add("a", options=JobOptions(telemetry=trace)),
        *(await queue.add_bulk([NewJob("b", options=JobOptions(telemetry=trace))])),
        (await flows.add(node(queue, "c", telemetry=trace))).job,
    ]
    for job in added:
        assert job.opts.telemetry == (await queue.get_job(job.id)).opts.telemetry == trace
        taken = await worker.get_next_job()
        assert taken.opts.telemetry == trace
        await worker.fail(taken, RuntimeError("x"))
        assert (await queue.get_job(job.id)).opts.telemetry == trace


async def test_workers_write_metrics_that_queues_read(adapter: Adapter, server: Server, queue: Any, name: str) -> None:
    assert await queue.get_metrics("completed") == await queue.get_metrics("failed")
    worker = adapter.Worker(name, None, server.url, options=WorkerOptions(metrics_max_data_points=5))
    await queue.add_bulk([NewJob("a")] * 3)
    await complete(worker, 2)
    await fail(worker, 1)
    completed, failed = await queue.get_metrics("completed"), await queue.get_metrics("failed")
    assert (completed.total, failed.total) == (2, 1)
    assert completed.prev_at > 0
    await worker.aclose()
