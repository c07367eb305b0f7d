"""Jobs added in a transaction of the caller's: beside its own commands, over several queues, with each client."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import coredis
import hiredis
import pytest
import redis
import redis.asyncio
from anyio import to_thread
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bullmq_sync
from bullmq_protocol import (
    Adding,
    BulkAddError,
    Deduplication,
    FlowAddError,
    FlowNode,
    JobOptions,
    KeyLayout,
    NewJob,
    ParentRef,
    QueueKeys,
    RepeatOptions,
    ServerError,
    UsageError,
)
from bullmq_protocol.command import Arg
from bullmq_protocol.scripts.profile import FLEET, STRICT
from tests.support import pages
from tests.support.adapters import Adapter
from tests.support.servers import Server
from tests.support.topology import ClusterSet

pytestmark = pytest.mark.any_python

PARENT = ParentRef(id="gone", queue="bull:nowhere")
Fill = Callable[[Any], object]


async def with_redis_py(server: Server, fill: Fill) -> list[Any]:
    def transact() -> list[Any]:
        with redis.Redis.from_url(server.url) as client, client.pipeline() as pipeline:
            fill(pipeline)
            return pipeline.execute(raise_on_error=False)

    return await to_thread.run_sync(transact)


async def with_redis_asyncio(server: Server, fill: Fill) -> list[Any]:
    async with redis.asyncio.Redis.from_url(server.url) as client, client.pipeline() as pipeline:
        fill(pipeline)
        found: list[Any] = await pipeline.execute(raise_on_error=False)
        return found


async def with_coredis(server: Server, fill: Fill) -> list[Any]:
    async with coredis.Redis.from_url(server.url) as client:
        async with client.pipeline(transaction=True, raise_on_error=False) as pipeline:
            fill(pipeline)
        return list(pipeline.results or ())


async def on_a_socket(server: Server, wires: Sequence[tuple[Arg, ...]]) -> list[Any]:
    """Send wires between MULTI and EXEC, with no client at all."""

    def transact() -> list[Any]:
        with redis.Redis.from_url(server.url) as client:
            connection = client.connection_pool.get_connection()
            try:
                lines = [("MULTI",), *wires, ("EXEC",)]
                connection.send_packed_command([hiredis.pack_command(tuple(line)) for line in lines])
                return [connection.read_response() for _ in lines][-1]
            finally:
                client.connection_pool.release(connection)

    return await to_thread.run_sync(transact)


CLIENTS: dict[str, tuple[Callable[[Server, Fill], Awaitable[list[Any]]], ...]] = {
    "asyncio": (with_redis_py, with_redis_asyncio, with_coredis),
    "trio": (with_redis_py, with_coredis),
    "threads": (with_redis_py,),
}


async def in_cluster_of_redis_py(address: tuple[str, int], fill: Fill, transaction: bool) -> list[Any]:
    def transact() -> list[Any]:
        with redis.RedisCluster(host=address[0], port=address[1]) as client:
            pipeline = client.pipeline(transaction=transaction)
            fill(pipeline)
            return pipeline.execute(raise_on_error=False)

    return await to_thread.run_sync(transact)


async def in_cluster_of_redis_asyncio(address: tuple[str, int], fill: Fill, transaction: bool) -> list[Any]:
    async with redis.asyncio.RedisCluster(host=address[0], port=address[1]) as client:
        pipeline = client.pipeline(transaction=transaction)
        fill(pipeline)
        found: list[Any] = await pipeline.execute(raise_on_error=False)
        return found


CLUSTER_CLIENTS: dict[str, tuple[Callable[[tuple[str, int], Fill, bool], Awaitable[list[Any]]], ...]] = {
    "asyncio": (in_cluster_of_redis_py, in_cluster_of_redis_asyncio),
    "trio": (in_cluster_of_redis_py,),
    "threads": (in_cluster_of_redis_py,),
}


async def test_jobs_of_each_kind_go_with_the_callers_own_commands(adapter: Adapter, server: Server, name: str) -> None:
    for number, transact in enumerate(CLIENTS[adapter.name]):
        own = f"{name}{number}"
        async with adapter.Queue(own, server.url) as queue, adapter.FlowProducer(server.url) as flows:
            ready = queue.adding(
                [
                    NewJob("plain", {"n": 1}),
                    NewJob("later", {"n": 2}, JobOptions(delay=3_600_000)),
                    NewJob("urgent", {"n": 3}, JobOptions(priority=2)),
                    NewJob("named", {"n": 4}, JobOptions(job_id="mine")),
                    NewJob("again", {"n": 5}, JobOptions(job_id="mine")),
                    NewJob("single", {"n": 6}, JobOptions(deduplication=Deduplication("d"))),
                    NewJob("double", {"n": 7}, JobOptions(deduplication=Deduplication("d"))),
                ]
            )
            hourly = queue.adding_job_scheduler("hourly", RepeatOptions(every=3_600_000), "tick", {"of": "clock"})
            book = flows.adding([FlowNode("book", own, children=[FlowNode("page", own, {"n": 8})])])
            assert isinstance(ready, Adding) and hourly is not None
            queued: list[Any] = []

            def fill(
                pipeline: Any, own: str = own, addings: Any = (ready, hourly, book), queued: list[Any] = queued
            ) -> None:
                pipeline.incr(f"orders:{own}")
                queued += [each.into_pipeline(pipeline) for each in addings]
                pipeline.incr(f"orders:{own}")

            replies = await transact(server, fill)
            assert (int(replies[0]), int(replies[-1])) == (1, 2)
            jobs, tick, [flow] = (each.results(replies) for each in queued)
            assert [job.name for job in jobs] == ["plain", "later", "urgent", "named", "again", "single", "double"]
            assert [job.added for job in jobs] == [True, True, True, True, False, True, False]
            assert [job.data["n"] for job in jobs] == [1, 2, 3, 4, 5, 6, 7]
            assert jobs[4].id == jobs[3].id == "mine" and jobs[6].id == jobs[5].id
            assert (tick.name, tick.data) == ("tick", {"of": "clock"})
            assert [child.job.name for child in flow.children] == ["page"]
            for job, state in zip(jobs, ["waiting", "delayed", "prioritized", "waiting"], strict=False):
                assert await queue.get_job_state(job.id) == state
            assert await queue.get_job_state(tick.id) == "waiting"
            assert await queue.get_job_state(flow.job.id) == "waiting-children"
            # The queue described itself, as its first call does.
            assert await queue.get_version() is not None
            await queue.obliterate(force=True)


async def test_wires_go_with_no_client_at_all(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url) as queue:
        ready = queue.adding([NewJob("a", {}), NewJob("b", {}, JobOptions(delay=9_000))])
        jobs = ready.results(await on_a_socket(server, ready.wires()))
        assert [(job.id, job.name) for job in jobs] == [("1", "a"), ("2", "b")]
        assert (await queue.get_job_counts("waiting", "delayed")).items() >= {"waiting": 1, "delayed": 1}.items()
        await queue.obliterate()


async def test_what_a_conflict_stops_is_sent_again_and_added_once(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url) as queue:
        ready = queue.adding([NewJob("paid", {"order": 7})])

        def order(*, disturbed: bool) -> Any:
            with redis.Redis.from_url(server.url) as client, client.pipeline() as pipeline:
                pipeline.watch(f"stock:{name}")
                stock = int(pipeline.get(f"stock:{name}") or 0)
                if disturbed:
                    client.incr(f"stock:{name}")
                with pytest.raises(UsageError, match=r"call its multi\(\) first"):
                    ready.into_pipeline(pipeline)
                pipeline.multi()
                pipeline.set(f"stock:{name}", stock - 1)
                queued = ready.into_pipeline(pipeline)
                return queued.results(pipeline.execute())

        with pytest.raises(redis.WatchError):
            await to_thread.run_sync(lambda: order(disturbed=True))
        assert await queue.count() == 0
        [job] = await to_thread.run_sync(lambda: order(disturbed=False))
        assert (await queue.get_jobs("waiting"))[0].id == job.id
        assert await queue.count() == 1
        await queue.obliterate()


async def test_loaded_scripts_are_named_and_a_lost_one_is_an_error(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url) as queue:
        ready = queue.adding([NewJob("n", {})])
        assert not any("EVAL" in wire for wire in ready.wires(loaded=True))
        assert sum("EVAL" in wire for wire in ready.wires()) == len(ready.scripts) == 1

        def send(*, load: bool) -> tuple[Any, Any]:
            with redis.Redis.from_url(server.url) as client, client.pipeline() as pipeline:
                client.script_flush()
                for script in ready.scripts if load else ():
                    assert client.script_load(script.source) in (script.sha1, script.sha1.encode())
                pipeline.incr(f"own:{name}")
                queued = ready.into_pipeline(pipeline, loaded=True)
                return queued, pipeline.execute(raise_on_error=False)

        queued, replies = await to_thread.run_sync(lambda: send(load=False))
        with pytest.raises(BulkAddError) as caught:
            queued.results(replies)
        [refused] = caught.value.results
        assert isinstance(refused, ServerError) and refused.code == "NOSCRIPT"
        # The rest of the transaction ran: that is what the documentation warns of.
        assert replies[0] == 1 and await queue.count() == 0
        queued, replies = await to_thread.run_sync(lambda: send(load=True))
        assert len(queued.results(replies)) == 1 and await queue.count() == 1
        await queue.obliterate()


async def test_several_queues_get_their_jobs_in_one_transaction(adapter: Adapter, server: Server, name: str) -> None:
    async with (
        adapter.Queue(name, server.url) as queue,
        adapter.Queue(f"{name}-other", server.url) as other,
        adapter.FlowProducer(server.url) as flows,
    ):
        await queue.count(), await other.count()
        before = await _transactions(server)
        [first], seconds, tick, [flow] = await queue.commit(
            queue.adding([NewJob("a", {})]),
            other.adding([NewJob("b", {"n": n}) for n in range(120)]),
            other.adding_job_scheduler("tick", RepeatOptions(every=60_000)),
            flows.adding([FlowNode("c", name, children=[FlowNode("d", f"{name}-other")])]),
        )
        assert await _transactions(server) == before + 1
        assert (first.name, len(seconds), tick.name, flow.job.name) == ("a", 120, "tick", "c")
        assert (await queue.count(), await other.count()) == (2, 122)
        assert await queue.commit() == []
        with pytest.raises(UsageError, match="must be what `adding`"):
            await queue.commit([NewJob("a", {})])
        with pytest.raises(BulkAddError, match="1 of 2 jobs were not added"):
            await queue.commit(queue.adding([NewJob("e", {}), NewJob("f", {}, JobOptions(parent=PARENT))]))
        with pytest.raises(FlowAddError):
            await queue.commit(flows.adding([FlowNode("g", name, options=JobOptions(parent=PARENT))]))
        # What was refused leaves the rest added.
        assert await queue.count() == 3
        for each in (queue, other):
            await each.obliterate(force=True)


async def test_what_is_added_first_describes_the_queue(adapter: Adapter, server: Server, name: str) -> None:
    for number in range(2):
        async with adapter.Queue(f"{name}{number}", server.url, max_len_events=500) as queue:
            ready = (
                queue.adding_job_scheduler("tick", RepeatOptions(every=60_000))
                if number
                else queue.adding([NewJob("a", {})])
            )
            await queue.commit(ready)
            with redis.Redis.from_url(server.url, decode_responses=True) as client:
                meta = client.hgetall(queue.keys.meta)
            assert meta["opts.maxLenEvents"] == "500" and meta["version"].startswith("bullmq-protocol:")
            with pytest.raises(UsageError, match="must hold at least one"):
                queue.adding([])
            await queue.obliterate(force=True)
    async with adapter.FlowProducer(server.url) as flows:
        with pytest.raises(UsageError, match="must hold at least one"):
            flows.adding([])


def test_a_queue_keeps_its_profile_in_the_transaction_of_another(server: Server, name: str) -> None:
    with (
        bullmq_sync.Queue(name, server.url, scripts=STRICT) as strict,
        bullmq_sync.Queue(f"{name}-other", server.url, scripts=FLEET) as fleet,
    ):
        addings = [queue.adding([NewJob("a", {}, JobOptions(delay=1))]) for queue in (strict, fleet)]
        assert addings[0].scripts[-1].sha1 != addings[1].scripts[-1].sha1
        with redis.Redis.from_url(server.url) as client:
            for queue in (strict, fleet):
                client.script_flush()
                queue.commit(*addings)
                assert client.script_exists(*(each.scripts[-1].sha1 for each in addings)) == [True, True]
        assert (strict.count(), fleet.count()) == (2, 2)
        for queue in (strict, fleet):
            queue.obliterate()


async def test_a_bulk_goes_in_one_transaction_where_that_is_asked(adapter: Adapter, server: Server, name: str) -> None:
    async with adapter.Queue(name, server.url) as queue:
        await queue.count()
        before = await _transactions(server)
        await queue.add_bulk([NewJob("n", {"n": n}) for n in range(120)])
        assert await _transactions(server) == before
        jobs = await queue.add_bulk([NewJob("n", {"n": n}) for n in range(120)], atomic=True)
        assert await _transactions(server) == before + 1
        assert [job.data["n"] for job in jobs] == list(range(120)) and await queue.count() == 240
        with pytest.raises(UsageError, match="atomic"):
            await queue.add_bulk([], atomic=1)
        await queue.obliterate()


def test_a_pipeline_that_would_not_run_it_as_one_is_refused(server: Server, name: str) -> None:
    ready = bullmq_sync.Queue(name, server.url).adding([NewJob("n", {})])
    with redis.Redis.from_url(server.url) as client:
        with pytest.raises(UsageError, match=r"client\.pipeline\(transaction=True\)"):
            ready.into_pipeline(client.pipeline(transaction=False))
        with pytest.raises(UsageError, match="must be a pipeline of redis-py or coredis"):
            ready.into_pipeline(client)
    with pytest.raises(UsageError, match="must be a pipeline"):
        ready.into_pipeline(None)


async def test_a_cluster_runs_it_in_one_slot_alone(adapter: Adapter, cluster: ClusterSet, name: str) -> None:
    url = f"redis+cluster://{cluster.hosts}"
    tagged = {"layout": KeyLayout.TAGGED_PREFIX}
    async with (
        adapter.Queue(name, url, **tagged) as queue,
        adapter.Queue(f"{name}-other", url, **tagged) as other,
        adapter.Queue(name, url, layout=KeyLayout.TAGGED_QUEUE) as elsewhere,
    ):
        addings = [each.adding([NewJob("a", {}), NewJob("b", {}, JobOptions(delay=1))]) for each in (queue, other)]
        apart = elsewhere.adding([NewJob("a", {})])
        found = await queue.commit(*addings)
        assert [len(jobs) for jobs in found] == [2, 2]
        with pytest.raises(UsageError, match="runs a transaction in one slot"):
            await queue.commit(addings[0], apart)
        child = queue.adding([NewJob("c", {}, JobOptions(parent=ParentRef(id="1", queue=elsewhere.keys.qualified)))])
        with pytest.raises(UsageError, match="runs a transaction in one slot"):
            await queue.commit(child)

        assert await queue.count() == 2
        for transact in CLUSTER_CLIENTS[adapter.name]:
            with pytest.raises(UsageError, match="runs a transaction in one slot"):
                await transact(cluster.addresses[0], child.into_pipeline, True)
            with pytest.raises(UsageError, match="must run as a transaction"):
                await transact(cluster.addresses[0], addings[0].into_pipeline, False)
            queued: list[Any] = []

            def fill(pipeline: Any, queued: list[Any] = queued) -> None:
                pipeline.incr("{bull}:orders")
                queued += [each.into_pipeline(pipeline) for each in addings]
                pipeline.incr("{bull}:orders")

            replies = await transact(cluster.addresses[0], fill, True)
            assert int(replies[-1]) == int(replies[0]) + 1
            assert [len(each.results(replies)) for each in queued] == [2, 2]
        assert await queue.count() == await other.count() == 2 + 2 * len(CLUSTER_CLIENTS[adapter.name])
        for each in (queue, other):
            await each.obliterate(force=True)


def test_a_conflict_in_a_cluster_adds_nothing(cluster: ClusterSet, name: str) -> None:
    tagged = {"layout": KeyLayout.TAGGED_PREFIX}
    host, port = cluster.addresses[0]
    with (
        bullmq_sync.Queue(name, f"redis+cluster://{cluster.hosts}", **tagged) as queue,
        redis.RedisCluster(host=host, port=port) as client,
    ):
        ready = queue.adding([NewJob("paid", {})])
        for disturbed in (True, False):
            pipeline = client.pipeline(transaction=True)
            pipeline.watch("{bull}:stock")
            with pytest.raises(UsageError, match=r"call its multi\(\) first"):
                ready.into_pipeline(pipeline)
            pipeline.multi()
            if disturbed:
                client.incr("{bull}:stock")
            pipeline.incr("{bull}:stock")
            queued = ready.into_pipeline(pipeline)
            if disturbed:
                with pytest.raises(redis.WatchError):
                    pipeline.execute()
                assert queue.count() == 0
            else:
                assert len(queued.results(pipeline.execute())) == queue.count() == 1
        queue.obliterate()


OPTIONS = st.sampled_from(
    [
        {},
        {"delay": 5_000},
        {"priority": 3},
        {"job_id": "one"},
        {"job_id": "two", "delay": 1},
        {"deduplication": Deduplication("d")},
        {"deduplication": Deduplication("t", ttl=60_000)},
        {"deduplication": Deduplication("r", replace=True), "delay": 9_000},
        {"lifo": True, "attempts": 3},
        {"parent": PARENT},
        {"remove_on_complete": True},
    ]
)
OTHERS = ["pause", "resume", "add", "promote", "remove"]


FLOWS = st.lists(st.integers(min_value=0, max_value=3), max_size=2)
"""Each with this many children."""


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(
    jobs=st.lists(OPTIONS, max_size=9),
    families=FLOWS,
    scheduled=st.booleans(),
    before=st.lists(st.sampled_from(OTHERS), max_size=4),
    between=st.lists(st.sampled_from(OTHERS), max_size=4),
)
def test_the_state_is_that_of_a_bulk(
    server: Server,
    jobs: list[dict[str, Any]],
    families: list[int],
    scheduled: bool,
    before: list[str],
    between: list[str],
) -> None:
    given_jobs = [
        NewJob(f"n{number}", {"n": number}, JobOptions(timestamp=_MOMENT + number, **each))
        for number, each in enumerate(jobs)
    ]
    trees = [_family(number, size) for number, size in enumerate(families)]
    states: list[object] = []
    for add in (_one_after_the_other, _in_a_transaction):
        with (
            bullmq_sync.Queue("same", server.url) as queue,
            bullmq_sync.FlowProducer(server.url) as flows,
            redis.Redis.from_url(server.url) as client,
        ):
            queue.obliterate(force=True)
            # Its first call describes the queue.
            queue.count()
            for other in before:
                _meddle(queue, other)

            def meddle(queue: Any = queue) -> None:
                for other in between:
                    _meddle(queue, other)

            told = add(queue, flows, client, given_jobs, trees, meddle, scheduled)
            states.append((told, _state(server, queue.keys)))
            queue.obliterate(force=True)
    assert states[0] == states[1]


def _one_after_the_other(
    queue: Any, flows: Any, client: Any, jobs: Any, trees: Any, meddle: Callable[[], None], scheduled: bool
) -> list[object]:
    meddle()
    calls: list[Callable[[], Any]] = []
    if jobs:
        calls.append(lambda: queue.add_bulk(jobs))
    if trees:
        calls.append(lambda: flows.add_bulk(trees))
    if scheduled:
        calls.append(lambda: queue.upsert_job_scheduler("tick", _YEARLY, "tick"))
    return [_outcome(call) for call in calls]


def _in_a_transaction(
    queue: Any, flows: Any, client: Any, jobs: Any, trees: Any, meddle: Callable[[], None], scheduled: bool
) -> list[object]:
    addings: list[Any] = [queue.adding(jobs)] if jobs else []
    if trees:
        addings.append(flows.adding(trees))
    if scheduled:
        addings.append(queue.adding_job_scheduler("tick", _YEARLY, "tick"))
    # What was prepared before is sent after.
    meddle()
    queued: list[Any] = []
    with client.pipeline() as pipeline:
        pipeline.incr("between")
        for each in addings:
            queued.append(each.into_pipeline(pipeline))
            pipeline.incr("between")
        replies = pipeline.execute(raise_on_error=False)
    return [_outcome(partial(part.results, replies)) for part in queued]


_MOMENT = 1_700_000_000_000
_YEARLY = RepeatOptions(pattern="0 0 1 1 *", tz="UTC")


def _family(number: int, size: int) -> FlowNode:
    def options(name: str) -> JobOptions:
        return JobOptions(job_id=f"{name}-{number}", timestamp=_MOMENT + number)

    children = [FlowNode("child", "same", {"n": each}, options(f"child-{each}")) for each in range(size)]
    return FlowNode("parent", "same", {"n": number}, options("parent"), children=children)


def _outcome(call: Callable[[], Any]) -> object:
    """Return what a call adds, as a value that two prefixes share."""
    try:
        return _told(call())
    except BulkAddError as error:
        return [str(each) if isinstance(each, Exception) else each.id for each in error.results]


def _told(found: Any) -> object:
    if isinstance(found, list):
        return [_told(each) for each in found]
    if hasattr(found, "children"):
        return _told(found.job), _told(list(found.children))
    return found and (found.id, found.added)


def _meddle(queue: bullmq_sync.Queue[Any], other: str) -> None:
    match other:
        case "pause":
            queue.pause()
        case "resume":
            queue.resume()
        case "add":
            queue.add("before", {}, JobOptions(job_id="one", timestamp=1_600_000_000_000))
        case "promote":
            queue.promote_jobs()
        case _:
            queue.remove("one")


def _state(server: Server, keys: QueueKeys) -> dict[str, Any]:
    """Return all that Redis holds of a queue, but for the ids of events, and what tells of the moment."""
    found: dict[str, Any] = {}
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        for key in client.scan_iter(f"{keys.base}*"):
            match client.type(key):
                case "hash":
                    value: Any = _without_moment(client.hgetall(key))
                case "zset":
                    value = client.zrange(key, 0, -1, withscores=True)
                case "list":
                    value = client.lrange(key, 0, -1)
                case "stream":
                    value = [fields for _, fields in client.xrange(key)]
                case "set":
                    value = client.smembers(key)
                case _:
                    value = client.get(key)
            found[key.removeprefix(keys.base)] = value
    return found


def _without_moment(fields: dict[str, str]) -> dict[str, str]:
    """Leave out what says when a scheduler's job was made: the two were made one after the other."""
    if not fields.get("rjk"):
        return fields
    options = {name: value for name, value in json.loads(fields["opts"]).items() if name not in ("delay", "timestamp")}
    return {**fields, "timestamp": "", "delay": "", "opts": json.dumps(options)}


async def _transactions(server: Server) -> int:
    def ask() -> int:
        with redis.Redis.from_url(server.url) as client:
            calls: int = client.info("commandstats").get("cmdstat_exec", {"calls": 0})["calls"]
            return calls

    return await to_thread.run_sync(ask)


@pytest.mark.parametrize(
    ("snippet", "printed"),
    list(zip(pages.snippets("transactions.md"), ["1 {'order': 17}\n", "ship 2\n", "remind None\n"], strict=True)),
    ids=["own commands", "watch", "lua"],
)
def test_the_examples_of_the_docs_run(
    server: Server, snippet: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with redis.Redis.from_url(server.url) as client:
        for key in client.scan_iter("bull:mail*"):
            client.delete(key)
        client.delete("reminded:ada")
    pages.run_here("transactions.md", snippet, server)
    assert capsys.readouterr().out == printed
