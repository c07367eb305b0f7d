"""Masters that sentinels name, on every adapter: found, followed through failovers, and clear errors without one."""

import functools
import math
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import anyio.to_thread
import pytest
import redis
import redis.asyncio.sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

import bullmq_anyio
import bullmq_sync
from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from bullmq_protocol import JobOptions
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.reply import as_int, as_text
from bullmq_protocol.errors import AuthenticationFailed, ConnectionLost, TransportError, UsageError
from bullmq_protocol.net.address import ConnectionOptions
from bullmq_protocol.net.topology import SentinelOptions
from tests.support import servers, topology
from tests.support.adapters import Adapter, opened
from tests.support.open_sockets import sockets
from tests.support.shared_transport import is_closed_by_its_block
from tests.support.topology import SERVICE, SentinelSet, say

pytestmark = pytest.mark.anyio

_SOON_S = 20
"""What takes a second, on a machine that is busy."""
_HANGING_S = 120
_PROMOTED_S = 0.1
"""This long after the first word of a failover a sentinel makes a master of a replica."""
_BUSY_S = 0.02
"""On an idle machine a question takes less than a tenth of that."""


@pytest.fixture
async def adapters(anyio_backend_name: str) -> AsyncIterator[list[Adapter]]:
    """The adapters that can be had in one event loop: a failover serves them all."""
    async with AsyncExitStack() as stack:
        names = ("asyncio", "threads") if anyio_backend_name == "asyncio" else ("trio",)
        yield [await stack.enter_async_context(asynccontextmanager(opened)(name)) for name in names]


@pytest.fixture
def sound(sentinels: SentinelSet) -> SentinelSet:
    sentinels.restore()
    return sentinels


@pytest.fixture(scope="module")
def guarded() -> Iterator[SentinelSet]:
    with SentinelSet(topology.kinds()[-1], password="data-secret", sentinel_password="s-secret") as found:
        yield found


def url_of(found: SentinelSet, hosts: str | None = None) -> str:
    return f"redis+sentinel://{hosts or found.hosts}/{SERVICE}"


@contextmanager
def two_servers(kind: str) -> Iterator[tuple[servers.Server, servers.Server]]:
    config = ("--repl-diskless-sync-delay", "0")
    with servers.start(kind, config=config) as first, servers.start(kind, config=config) as second:
        yield first, second


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    return await anyio.to_thread.run_sync(functools.partial(function, *args))


async def eventually(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """Try again for as long as there is no connection, as users do who may add twice."""
    with anyio.fail_after(_SOON_S):
        while True:
            try:
                return await attempt()
            except TransportError:
                await anyio.sleep(0.05)


# --- finding ----------------------------------------------------------------------------------------------------------


async def test_the_master_is_found_and_has_the_job(sentinels: SentinelSet, adapter: Adapter, name: str) -> None:
    with servers.closed_port() as nobody:
        hosts = f"127.0.0.1:{nobody},{sentinels.hosts}"
        async with adapter.Queue(name, url_of(sentinels, hosts)) as queue:
            job = await queue.add("x", {"a": 1})
            assert say(sentinels.master(), "HEXISTS", queue.keys.job(job.id), "data") == 1


async def test_the_database_and_the_name_reach_the_master(sentinels: SentinelSet, adapter: Adapter, name: str) -> None:
    async with adapter.Queue(name, f"{url_of(sentinels)}/3?client_name={name}") as queue:
        await queue.add("x")
        rows = [row for row in say(sentinels.master(), "CLIENT", "LIST").splitlines() if f" name={name} " in row]
        assert len(rows) == 1 and " db=3 " in rows[0]


async def test_unknown_service(sentinels: SentinelSet, adapter: Adapter, name: str) -> None:
    url = f"redis+sentinel://{sentinels.hosts}/nobody"
    async with adapter.Queue(name, url) as queue:
        with pytest.raises(UsageError, match=f"not known to the sentinels at .*{sentinels.hosts}") as caught:
            await queue.add("x")
        assert caught.value.field == "service"

    async def process(job: Any) -> None:
        raise AssertionError(job)

    with pytest.raises(UsageError, match="nobody"):
        await adapter.Worker(name, process, url).run()


async def test_closing_leaves_no_socket_open(sentinels: SentinelSet, adapter: Adapter, name: str) -> None:
    """Neither where a master was found nor where none is."""
    before = sockets()
    for service in (SERVICE, "nobody"):
        queue = adapter.Queue(name, f"redis+sentinel://{sentinels.hosts}/{service}")
        try:
            await queue.add("x")
        except UsageError:
            assert service == "nobody"
        else:
            assert not sockets() <= before
        await queue.aclose()
        assert sockets() <= before


async def test_no_sentinel_answers(adapter: Adapter, name: str) -> None:
    with servers.closed_port() as first, servers.closed_port() as second:
        url = f"redis+sentinel://127.0.0.1:{first},127.0.0.1:{second}/jobs"
        async with adapter.Queue(name, url) as queue:
            with pytest.raises(ConnectionLost, match="no master of 'jobs' is to be had: ") as caught:
                await queue.add("x")
            assert caught.value.maybe_applied is False
            assert all(f"127.0.0.1:{port}: " in str(caught.value) for port in (first, second))
            assert str(caught.value).count("refused") == 2


async def test_a_server_among_the_sentinels_is_passed_over(sentinels: SentinelSet, adapter: Adapter, name: str) -> None:
    with servers.start(sentinels.kind) as server:
        hosts = f"{server.host}:{server.port}"
        async with adapter.Queue(name, f"redis+sentinel://{hosts},{sentinels.hosts}/{SERVICE}") as queue:
            assert (await queue.add("x")).id == "1"
        async with adapter.Queue(name, f"redis+sentinel://{hosts}/{SERVICE}") as queue:
            with pytest.raises(ConnectionLost, match=f"is to be had: {hosts}: .*(?i:unknown command)"):
                await queue.add("x")


async def test_passwords(guarded: SentinelSet, adapter: Adapter, name: str) -> None:
    right = f"redis+sentinel://:data-secret@{guarded.hosts}/{SERVICE}?sentinel_password=s-secret"
    async with adapter.Queue(name, right) as queue:
        await queue.add("x")
    for wrong in (right.partition("?")[0], right.replace("s-secret", "no"), right.replace("data-secret", "no")):
        async with adapter.Queue(name, wrong) as queue:
            with pytest.raises(AuthenticationFailed) as caught:
                await queue.add("x")
        assert "secret" not in str(caught.value)
        assert ("sentinel" in str(caught.value)) or wrong == right.replace("data-secret", "no")


async def test_credentials_are_asked_for_the_master(guarded: SentinelSet, adapter: Adapter, name: str) -> None:
    asked: list[int] = []

    def credentials() -> tuple[str | None, str | None]:
        asked.append(1)
        return None, "data-secret"

    options = SentinelOptions(
        sentinels=tuple(guarded.addresses),
        service=SERVICE,
        server=ConnectionOptions(credentials=credentials),
        sentinel_password="s-secret",
    )
    async with adapter.Queue(name, options) as queue:
        await queue.add("x")
    assert asked


async def test_a_client_of_redis_py_is_taken(sentinels: SentinelSet, name: str) -> None:
    def use() -> None:
        manager = Sentinel(sentinels.addresses, socket_timeout=5)
        client = manager.master_for(SERVICE, retry=Retry(NoBackoff(), 0))
        with bullmq_sync.Queue(name, client) as queue:  # type: ignore[arg-type]
            job = queue.add("x")
            assert job.id is not None
            assert client.exists(queue.keys.job(job.id)) == 1
        client.close()
        manager.close()

    await in_thread(use)


async def test_tls_of_the_master_is_verified(sentinels: SentinelSet, adapter: Adapter, name: str) -> None:
    """Sentinels without TLS name a master with it; what its certificate says is checked against that address."""
    sentinel, service = sentinels.sentinels[0], f"tls-{name}"
    with servers.start(tls=True) as master:
        say(sentinel, "SENTINEL", "MONITOR", service, master.host, master.port, 1)
        try:

            def options(tls: Any) -> SentinelOptions:
                places = ((sentinel.host, sentinel.port),)
                server = ConnectionOptions(tls=tls)
                return SentinelOptions(sentinels=places, service=service, server=server, sentinel_tls=False)

            trusted = ssl.create_default_context(cafile=master.ca_file)
            async with adapter.Queue(name, options(trusted)) as queue:
                await queue.add("x")
            async with adapter.Queue(name, options(True)) as queue:
                with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
                    await queue.add("x")
            with pytest.raises(UsageError, match="SSLContext"):
                adapter.Queue(name, options("yes"))
        finally:
            say(sentinel, "SENTINEL", "REMOVE", service)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_client_of_redis_asyncio_is_taken(sentinels: SentinelSet, name: str) -> None:
    """It asks the sentinels for each connection; a refusal of a former master makes it ask again."""
    sentinel, service = sentinels.sentinels[0], f"two-{name}"
    count = Command("INCR", (name,), (), as_int)
    with two_servers(sentinels.kind) as (first, second):
        say(sentinel, "SENTINEL", "MONITOR", service, first.host, first.port, 1)
        try:
            manager = redis.asyncio.sentinel.Sentinel([(sentinel.host, sentinel.port)])
            client = manager.master_for(service, retry=AsyncRetry(NoBackoff(), 0))
            transport = RedisAsyncioTransport(client)
            assert await transport.perform(count) == 1
            say(first, "REPLICAOF", second.host, second.port)
            say(sentinel, "SENTINEL", "REMOVE", service)
            say(sentinel, "SENTINEL", "MONITOR", service, second.host, second.port, 1)
            assert await transport.perform(count) == 1
            await transport.aclose()
            with pytest.raises(ConnectionLost, match="the master of 'nobody'"):
                await RedisAsyncioTransport(manager.master_for("nobody", retry=AsyncRetry(NoBackoff(), 0))).perform(
                    count
                )
            await client.aclose()
            for each in manager.sentinels:
                await each.aclose()
        finally:
            say(sentinel, "SENTINEL", "REMOVE", service)


# --- failovers --------------------------------------------------------------------------------------------------------


async def test_the_next_master_is_asked_after_a_refusal(sentinels: SentinelSet, adapter: Adapter, name: str) -> None:
    """The first master has become a replica, and no sentinel said so: its refusal does."""
    sentinel, service = sentinels.sentinels[0], f"two-{name}"
    with two_servers(sentinels.kind) as (first, second):
        say(sentinel, "SENTINEL", "MONITOR", service, first.host, first.port, 1)
        try:
            url = f"redis+sentinel://{sentinel.host}:{sentinel.port}/{service}"
            async with adapter.Queue(name, url) as queue:
                await queue.add("x")
                say(first, "REPLICAOF", second.host, second.port)
                async with adapter.Queue(name, url) as late:
                    with pytest.raises(ConnectionLost, match="no master") as caught:
                        await late.add("x")
                    assert caught.value.maybe_applied is False
                say(sentinel, "SENTINEL", "REMOVE", service)
                say(sentinel, "SENTINEL", "MONITOR", service, second.host, second.port, 1)
                added: list[str] = []

                async def add() -> None:
                    added.append((await queue.add("x")).id)

                async with anyio.create_task_group() as tasks:
                    for _ in range(20):
                        tasks.start_soon(add)
                assert len(set(added)) == 20
                assert all(say(second, "EXISTS", queue.keys.job(job_id)) == 1 for job_id in added)
                job = await queue.add("x")
                topology.until(lambda: say(first, "EXISTS", queue.keys.job(job.id)), "the replica has it")
        finally:
            say(sentinel, "SENTINEL", "REMOVE", service)


@pytest.mark.parametrize("atomic", [False, True])
async def test_batches_go_to_the_next_master(sentinels: SentinelSet, atomic: bool, name: str) -> None:
    sentinel, service = sentinels.sentinels[0], f"two-{name}"
    step = Batch(
        (Command("SET", (name,), ("1",), as_text), Command("INCR", (name,), (), as_int)),
        atomic=atomic,
    )
    with two_servers(sentinels.kind) as (first, second):
        url = f"redis+sentinel://{sentinel.host}:{sentinel.port}/{service}"
        options = SentinelOptions(sentinels=((sentinel.host, sentinel.port),), service=service)
        native = bullmq_anyio.connect(url)
        blocking = bullmq_sync.connect(options)
        say(sentinel, "SENTINEL", "MONITOR", service, first.host, first.port, 1)
        try:
            assert await native.perform(step) == [b"OK", 2]
            assert await in_thread(blocking.perform, step) == [b"OK", 2]
            say(first, "REPLICAOF", second.host, second.port)
            say(sentinel, "SENTINEL", "REMOVE", service)
            say(sentinel, "SENTINEL", "MONITOR", service, second.host, second.port, 1)
            assert await native.perform(step) == [b"OK", 2]
            assert await in_thread(blocking.perform, step) == [b"OK", 2]
            assert say(second, "GET", name) == "2"
        finally:
            await native.aclose()
            blocking.close()
            say(sentinel, "SENTINEL", "REMOVE", service)


@pytest.fixture(scope="module")
def wide() -> Iterator[SentinelSet]:
    with SentinelSet(topology.kinds()[-1], replicas=2) as found:
        yield found


@pytest.mark.alone
async def test_a_planned_failover_with_two_replicas_loses_no_add(
    wide: SentinelSet, adapters: list[Adapter], name: str
) -> None:
    """The sentinel that leads announces the new master when all replicas follow it, a second late or later; till then
    the old one takes commands. Any of the sentinels may lead.

    A tenth of a second passes between its first word and the promotion. Where processes of a busy machine have to wait
    as long, what was added meanwhile is lost; but nothing that was added later.
    """
    acknowledged: dict[str, dict[str, float]] = {}
    lateness = 0.0
    async with AsyncExitStack() as stack:
        await in_thread(wide.restore)
        queues = [
            await stack.enter_async_context(adapter.Queue(f"{name}-{adapter.name}", url_of(wide)))
            for adapter in adapters
        ]
        over = anyio.Event()

        async def add(queue: Any) -> None:
            reported = acknowledged[queue.name] = {}
            while not over.is_set():
                job = await queue.add("x")
                reported[job.id] = time.monotonic()

        async def measure() -> None:
            nonlocal lateness
            while not over.is_set():
                for each in (*wide.sentinels, *wide.nodes):
                    begun = time.monotonic()
                    # A server that changes its role ends its connections.
                    with suppress(OSError):
                        await in_thread(say, each, "PING")
                    lateness = max(lateness, time.monotonic() - begun)

        def hear(listener: Any) -> float:
            while listener.get_message(ignore_subscribe_messages=True, timeout=None) is None:
                pass
            return time.monotonic()

        old = await in_thread(wide.master)
        leads = wide.sentinels[-1]
        client: Any = stack.enter_context(redis.Redis(host=leads.host, port=leads.port))
        listener = stack.enter_context(client.pubsub())
        listener.subscribe("+selected-slave")
        word = math.inf
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(measure)
            for queue in queues:
                tasks.start_soon(add, queue)
            await in_thread(topology.until, lambda: say(leads, "SENTINEL", "FAILOVER", SERVICE), "a failover begins")
            word = await in_thread(hear, listener)
            promoted = await in_thread(wide.await_promotion, old)
            counts = {each: len(reported) for each, reported in acknowledged.items()}
            with anyio.fail_after(_HANGING_S):
                while any(len(acknowledged[each]) == counts[each] for each in counts):
                    await anyio.sleep(0.01)
            over.set()
        for queue in queues:
            reported = acknowledged[queue.name]
            stored = set(say(promoted, "LRANGE", queue.keys.wait, 0, -1))
            lost = sorted(moment - word for each, moment in reported.items() if each not in stored)
            assert len(lost) < len(reported)
            assert not lost or (lateness > _BUSY_S and lost[-1] < _PROMOTED_S + 5 * lateness), (lost, lateness)


@pytest.mark.parametrize("how", ["planned", "killed"])
async def test_workers_and_listeners_go_on_after_a_failover(
    sound: SentinelSet, adapters: list[Adapter], how: str, name: str
) -> None:
    """Within five seconds of the promotion; what the new master has is done, and what a caller was told of is there."""
    url = url_of(sound)
    async with AsyncExitStack() as stack:
        sides = [await _Side.start(stack, adapter, f"{name}-{adapter.name}", url) for adapter in adapters]
        for side in sides:
            await side.process_one()
        old = await in_thread(sound.kill_master if how == "killed" else sound.failover)
        if how == "killed":
            await in_thread(sound.await_promotion, old)
        promoted = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for side in sides:
                tasks.start_soon(side.process_one)
        # Measured 0.1 to 1.6 s; the promise is 5 s.
        assert anyio.current_time() - promoted < _SOON_S
        for side in sides:
            # The listener for events has followed, too.
            job = await eventually(functools.partial(side.queue.add, "wait"))
            assert await side.events.wait_until_finished(job.id, 15_000) == "done"
            counts = await side.queue.get_job_counts("waiting", "active", "failed")
            assert counts == {"waiting": 0, "active": 0, "failed": 0, "paused": 0}


class _Side:
    """A queue, its worker and its listener in one adapter."""

    def __init__(self, adapter: Adapter, name: str, url: str) -> None:
        self.done: set[str] = set()
        self._news = anyio.Event()
        self.queue = adapter.Queue(name, url)
        self.worker = adapter.Worker(name, self._process, url)
        self.events = adapter.QueueEvents(name, url, max_reconnect_delay=500)

    @classmethod
    async def start(cls, stack: AsyncExitStack, adapter: Adapter, name: str, url: str) -> "_Side":
        side = cls(adapter, name, url)
        for each in (side.queue, side.events, side.worker):
            await stack.enter_async_context(each)
        return side

    async def _process(self, job: Any) -> str:
        self.done.add(job.id)
        news, self._news = self._news, anyio.Event()
        news.set()
        return "done"

    async def process_one(self) -> None:
        """Add a job, again if it is lost with its master, and wait until it is done."""
        number = len(self.done)
        job_id = f"job-{number}"
        with anyio.fail_after(_SOON_S):
            while job_id not in self.done:
                await eventually(functools.partial(self.queue.add, "x", {}, JobOptions(job_id=job_id)))
                with anyio.move_on_after(1):
                    while job_id not in self.done:
                        await self._news.wait()


async def test_a_connection_outlives_its_sentinels(guarded: SentinelSet, name: str) -> None:
    """While the master answers, sentinels may come and go."""
    options = SentinelOptions(
        sentinels=tuple(guarded.addresses),
        service=SERVICE,
        server=ConnectionOptions(password="data-secret"),
        sentinel_password="s-secret",
    )
    native, blocking = bullmq_anyio.connect(options), bullmq_sync.connect(options)
    count = Command("INCR", (name,), (), as_int)
    assert await native.perform(count) == 1
    assert await in_thread(blocking.perform, count) == 2
    for sentinel in guarded.sentinels:
        sentinel.kill()
    try:
        await anyio.sleep(0.1)
        for number in (3, 5):
            assert await native.perform(count) == number
            assert await in_thread(blocking.perform, count) == number + 1
    finally:
        await in_thread(guarded.restore)
        await native.aclose()
        blocking.close()


async def test_closing_leaves_no_connection(sentinels: SentinelSet, name: str) -> None:
    native = bullmq_anyio.connect(f"{url_of(sentinels)}?client_name={name}")
    blocking = bullmq_sync.connect(f"{url_of(sentinels)}?client_name={name}")
    count = Command("INCR", (name,), (), as_int)
    wait = Command("BLPOP", (f"{name}-list",), (0,), as_text, block_ms=0)
    child = native.dedicated(client_name=f"{name}-child")
    listener = blocking.dedicated(client_name=f"{name}-child")
    await native.perform(count)
    await in_thread(blocking.perform, count)

    async def waits(perform: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises(TransportError):
            await perform()

    def connected(suffix: str) -> int:
        rows = say(sentinels.master(), "CLIENT", "LIST").splitlines()
        return sum(f" name={name}{suffix} " in row for row in rows)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waits, functools.partial(child.perform, wait))
        tasks.start_soon(waits, functools.partial(in_thread, listener.perform, wait))
        await in_thread(topology.until, lambda: connected("-child") == 2, "both wait")
        assert connected("") == 2
        await native.aclose()
        await in_thread(blocking.close)
    await in_thread(topology.until, lambda: connected("") + connected("-child") == 0, "all are gone")


async def test_a_block_closes_what_several_queues_share(sentinels: SentinelSet, adapter: Adapter, name: str) -> None:
    package = bullmq_sync if adapter.name == "threads" else bullmq_anyio
    await is_closed_by_its_block(package.connect(url_of(sentinels)), name)
