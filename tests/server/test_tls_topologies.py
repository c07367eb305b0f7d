"""Sentinels and clusters that speak nothing but TLS, on every adapter."""

import functools
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import pytest

from bullmq_protocol import ClusterOptions, KeyLayout, SentinelOptions
from bullmq_protocol.errors import BullMQError, ConnectionLost, TransportError
from bullmq_protocol.net.address import ConnectionOptions
from tests.support import topology
from tests.support.adapters import Adapter, opened
from tests.support.servers import Server
from tests.support.topology import SERVICE, ClusterSet, SentinelSet, say

pytestmark = pytest.mark.anyio

_SOON_S = 20
_LONG_MS = 120_000
"""A quarter of it is enough for a handshake of TLS on however busy a machine."""
"""What takes a second, on a machine that is busy."""
_TAGGED = {"layout": KeyLayout.TAGGED_QUEUE}


@pytest.fixture(scope="module")
def guarded() -> Iterator[SentinelSet]:
    with SentinelSet(topology.tls_kind(), tls=True) as found:
        yield found


@pytest.fixture(scope="module")
def nodes() -> Iterator[ClusterSet]:
    with ClusterSet(topology.tls_kind(), tls=True) as found:
        yield found


@pytest.fixture
async def adapters(anyio_backend_name: str) -> AsyncIterator[list[Adapter]]:
    """The adapters that can be had in one event loop: a failover serves them all."""
    async with AsyncExitStack() as stack:
        names = ("asyncio", "threads") if anyio_backend_name == "asyncio" else ("trio",)
        yield [await stack.enter_async_context(asynccontextmanager(opened)(name)) for name in names]


def sentinel_options(found: SentinelSet, **fields: Any) -> SentinelOptions:
    server = ConnectionOptions(tls=ssl.create_default_context(cafile=found.ca_file))
    return SentinelOptions(**{"sentinels": tuple(found.addresses), "service": SERVICE, "server": server, **fields})


def cluster_options(found: ClusterSet, tls: Any = None) -> ClusterOptions:
    context = ssl.create_default_context(cafile=found.ca_file) if tls is None else tls
    return ClusterOptions(nodes=tuple(found.addresses), server=ConnectionOptions(tls=context))


async def in_thread(function: Any, *args: Any) -> Any:
    return await anyio.to_thread.run_sync(functools.partial(function, *args))


class _Side:
    """A queue and its worker in one adapter."""

    def __init__(self, adapter: Adapter, name: str, connection: Any, **layout: Any) -> None:
        self.queue = adapter.Queue(name, connection, **layout)
        self.worker = adapter.Worker(name, self._process, connection, **layout)
        self._done: set[str] = set()
        self._news = anyio.Event()

    async def _process(self, job: Any) -> None:
        self._done.add(job.id)
        news, self._news = self._news, anyio.Event()
        news.set()

    async def work_off_one(self) -> None:
        """Add a job, again while there is no connection, and wait until it has been worked off."""
        with anyio.fail_after(_SOON_S):
            while True:
                try:
                    job = await self.queue.add("x")
                    break
                except TransportError:
                    await anyio.sleep(0.05)
            while job.id not in self._done:
                await self._news.wait()


async def started(stack: AsyncExitStack, adapters: list[Adapter], name: str, *args: Any, **layout: Any) -> list[_Side]:
    sides = [_Side(adapter, f"{name}-{adapter.name}", *args, **layout) for adapter in adapters]
    for side in sides:
        await stack.enter_async_context(side.queue)
        await stack.enter_async_context(side.worker)
    return sides


def completed(server: Server, side: _Side) -> int:
    count: int = say(server, "ZCARD", side.queue.keys.completed)
    return count


# --- sentinels --------------------------------------------------------------------------------------------------------


async def test_sentinels_and_their_master_are_found(guarded: SentinelSet, adapter: Adapter, name: str) -> None:
    async with adapter.Queue(name, sentinel_options(guarded)) as queue:
        job = await queue.add("x", {"a": 1})
        assert say(guarded.master(), "HGET", queue.keys.job(job.id), "data") == '{"a":1}'


@pytest.mark.parametrize("which", ["both", "sentinels", "url"])
async def test_a_certificate_of_strangers_is_refused(
    guarded: SentinelSet, adapter: Adapter, which: str, name: str
) -> None:
    options: Any = {
        "both": sentinel_options(guarded, server=ConnectionOptions(tls=True, connect_timeout_ms=_LONG_MS)),
        "sentinels": sentinel_options(
            guarded, server=ConnectionOptions(connect_timeout_ms=_LONG_MS), sentinel_tls=True
        ),
        "url": f"rediss+sentinel://{guarded.hosts}/{SERVICE}?connect_timeout_ms={_LONG_MS}",
    }[which]
    async with adapter.Queue(name, options) as queue:
        with pytest.raises(ConnectionLost, match=r"(?i)certificate") as caught:
            await queue.add("x")
        assert caught.value.maybe_applied is False


@pytest.mark.parametrize("which", ["both", "sentinels"])
async def test_plain_words_to_those_with_tls_fail_and_end(
    guarded: SentinelSet, adapter: Adapter, which: str, name: str
) -> None:
    fields: Any = {"server": ConnectionOptions()} if which == "both" else {"sentinel_tls": False}
    async with adapter.Queue(name, sentinel_options(guarded, **fields)) as queue:
        with anyio.fail_after(_SOON_S), pytest.raises(ConnectionLost) as caught:
            await queue.add("x")
        assert caught.value.maybe_applied is False


async def test_workers_follow_a_failover(guarded: SentinelSet, adapters: list[Adapter], name: str) -> None:
    async with AsyncExitStack() as stack:
        sides = await started(stack, adapters, name, sentinel_options(guarded))
        for side in sides:
            await side.work_off_one()
        promoted = await in_thread(guarded.failover)
        for side in sides:
            await side.work_off_one()
            await in_thread(topology.until, functools.partial(completed, promoted, side), "the job is reported")


# --- clusters ---------------------------------------------------------------------------------------------------------


async def test_every_node_of_a_cluster_is_found(nodes: ClusterSet, adapter: Adapter, name: str) -> None:
    used = set()
    for number in range(6):
        async with adapter.Queue(f"{name}-{number}", cluster_options(nodes), **_TAGGED) as queue:
            job = await queue.add("x", {"a": 1})
            owner = nodes.master(queue.keys.slot)
            assert say(owner, "HGET", queue.keys.job(job.id), "data") == '{"a":1}'
            used.add(owner)
    assert len(used) > 1


@pytest.mark.parametrize("how", ["options", "url"])
async def test_a_certificate_of_strange_nodes_is_refused(
    nodes: ClusterSet, adapter: Adapter, how: str, name: str
) -> None:
    target: Any = cluster_options(nodes, tls=True) if how == "options" else f"rediss+cluster://{nodes.hosts}"
    async with adapter.Queue(name, target, **_TAGGED) as queue:
        with pytest.raises(BullMQError, match=r"(?i)certificate") as caught:
            await queue.add("x")
        assert isinstance(caught.value, ConnectionLost) and caught.value.maybe_applied is False


async def test_workers_follow_a_promotion(nodes: ClusterSet, adapters: list[Adapter], name: str) -> None:
    async with AsyncExitStack() as stack:
        sides = await started(stack, adapters, name, cluster_options(nodes), **_TAGGED)
        for side in sides:
            await side.work_off_one()
            promoted = await in_thread(nodes.promote, side.queue.keys.slot)
            await side.work_off_one()
            # This failover loses nothing.
            await in_thread(
                topology.until, lambda at=promoted, of=side: completed(at, of) == 2, "both jobs are reported"
            )
