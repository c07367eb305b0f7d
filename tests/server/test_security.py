"""Certificates are verified, secrets stay secret, and the rules of docs/security.md are all that a user needs."""

import logging
import pickle
import re
import ssl
import traceback
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import anyio
import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from bullmq_anyio import Connection
from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from bullmq_protocol import (
    ClusterOptions,
    ConnectionOptions,
    Deduplication,
    DelayedError,
    FlowNode,
    JobOptions,
    KeepJobs,
    Limiter,
    RepeatOptions,
    SentinelOptions,
    WaitingChildrenError,
    WorkerOptions,
)
from bullmq_protocol.errors import AuthenticationFailed, BullMQError, ConnectionLost, UsageError
from bullmq_protocol.scripts.profile import STRICT
from bullmq_protocol.worker.notices import (
    JobActive,
    JobCompleted,
    JobFailed,
    LockLost,
    Reconnected,
    ReconnectFailed,
    ReportRefused,
)
from bullmq_sync.net.redis_py import RedisPyTransport
from tests.support import pages, servers
from tests.support.adapters import Adapter
from tests.support.seen import Seen
from tests.support.servers import Server

_SECRET = "s3cr3t-Xyzzy"


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secured() -> Iterator[Server]:
    with servers.start(tls=True) as server:
        yield server


@pytest.mark.any_python
async def test_tls_is_verified_by_default(secured: Server, adapter: Adapter, name: str) -> None:
    """A certificate that nobody trusts is refused, and one for another name."""
    trusted = ssl.create_default_context(cafile=secured.ca_file)
    good = ConnectionOptions(host=secured.host, port=secured.port, tls=trusted)
    # The same address in a form that stands in no certificate.
    other_name = ConnectionOptions(host="127.1", port=secured.port, tls=trusted)
    untrusted = ConnectionOptions(host=secured.host, port=secured.port, tls=True)
    async with adapter.Queue(name, good) as queue:
        await queue.add("x")
        await queue.obliterate(force=True)
    for refused in (secured.url, untrusted, other_name):
        async with adapter.Queue(name, refused) as queue:
            with pytest.raises(ConnectionLost, match=r"(?i)certificate") as caught:
                await queue.add("x")
            assert not caught.value.maybe_applied


@pytest.mark.any_python
@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_tls_of_handed_over_clients_is_verified(secured: Server) -> None:
    for url in (secured.url, f"rediss://127.1:{secured.port}?ssl_ca_certs={secured.ca_file}"):
        client = redis.asyncio.Redis.from_url(url, retry=AsyncRetry(NoBackoff(), 0))
        transport = RedisAsyncioTransport(client)
        with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
            await transport.server_info()
        await transport.aclose()
        await client.aclose()
        with redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as blocking:
            sync_transport = RedisPyTransport(blocking)
            with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
                await anyio.to_thread.run_sync(sync_transport.server_info)
            sync_transport.close()


# --- secrets ----------------------------------------------------------------------------------------------------------


class Told:
    """What was shown of errors and objects."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def show(self, *things: object) -> None:
        for each in things:
            self.texts += [repr(each), str(each)]

    def error(self, error: BaseException) -> None:
        assert isinstance(error, BullMQError)
        self.show(error, *error.args, vars(error))
        self.texts += traceback.format_exception(error)
        self.texts.append(pickle.dumps(error).decode("latin-1"))
        self.texts += traceback.format_exception(pickle.loads(pickle.dumps(error)))

    async def fails(self, kind: type[BaseException], call: Callable[[], Awaitable[Any]]) -> None:
        with pytest.raises(kind) as caught:
            await call()
        self.error(caught.value)

    def refuses(self, call: Callable[[], Any]) -> None:
        with pytest.raises(UsageError) as caught:
            call()
        self.error(caught.value)

    def check(self, *secrets: str) -> None:
        assert len(self.texts) > 20
        for secret in secrets:
            assert [text for text in self.texts if secret in text] == []


@pytest.fixture
def reported(caplog: pytest.LogCaptureFixture) -> Iterator[Told]:
    caplog.set_level(logging.DEBUG)
    found = Told()
    yield found
    found.texts += [logging.Formatter("%(message)s").format(record) for record in caplog.records]
    found.texts += [repr(vars(record)) for record in caplog.records]
    found.check(_SECRET, _SECRET[3:])


async def _added(adapter: Adapter, name: str, connection: Any) -> None:
    async with adapter.Queue(name, connection) as queue:
        await queue.add("x")


URLS = (
    "redis//:{}@h",
    "redis:/:{}@h",
    "user:{}@h:1",
    "http://user:{}@h",
    "redis://:{}@h:port",
    "redis://:{}",
    "redis://user:{}:6379",
    "redis://:x/{}@h",
    "redis://u:1/{}@h",
    "redis://u:1?{}@h",
    "redis://u:1?{}=@h",
    "redis://:x#{}@h",
    "redis://h:port?password={}",
    "redis://h?password={}",
    "redis://:{}@h/one",
    "redis://:{}@h?db=x",
    "unix://:{}@",
    "unix://:x/{}@/run/redis.sock",
    "redis+sentinel://:{}@h:port/service",
    "redis+sentinel://:{}@/service",
    "redis+sentinel://:{}@h",
    "redis+sentinel://:x/{}@h/service",
    "redis+sentinel://:{}?x@h/service",
    "redis+sentinel://h/service?sentinel_password={}&x=1",
    "redis+sentinel://h/service?sentinel_password={}&sentinel_password=1",
    "redis+cluster://:{}@h:port",
    "redis+cluster://:{}@h/1",
)


async def test_no_secret_in_refusals_of_urls(reported: Told, adapter: Adapter) -> None:
    for url in URLS:
        reported.refuses(partial(adapter.Queue, "q", url.format(_SECRET)))


async def test_no_secret_in_refusals_of_options(reported: Told, adapter: Adapter) -> None:
    url = f"redis://:{_SECRET}@h"

    def credentials(answer: str) -> tuple[None, str]:
        return None, answer

    asking = partial(credentials, _SECRET)
    for wrong in (url.encode(), [url], {"password": _SECRET}, ("h", _SECRET), redis.Redis(password=_SECRET)):
        if not (adapter.name == "threads" and isinstance(wrong, redis.Redis)):
            reported.refuses(partial(adapter.Queue, "q", wrong))
    reported.refuses(partial(ConnectionOptions, host=url))
    reported.refuses(partial(ConnectionOptions, password=_SECRET.encode()))
    reported.refuses(partial(ConnectionOptions, credentials=asking, password=_SECRET))
    reported.refuses(partial(ConnectionOptions, password=_SECRET, port=0))
    reported.refuses(partial(ConnectionOptions, password=f"{_SECRET}\ud800"))
    for places in (url, (url,), ((url, 1),), ((f":{_SECRET}@h", 1),)):
        reported.refuses(partial(SentinelOptions, sentinels=places, service="s"))
        reported.refuses(partial(ClusterOptions, nodes=places))
    reported.refuses(partial(SentinelOptions, sentinels=(("h", 1),), service="s", server=url))
    reported.refuses(partial(SentinelOptions, sentinels=(("h", 1),), service="s", sentinel_password=_SECRET.encode()))
    reported.refuses(partial(RedisPyTransport, redis.Redis(password=_SECRET, retry=Retry(NoBackoff(), 2))))
    reported.refuses(partial(RedisAsyncioTransport, redis.Redis(password=_SECRET)))
    reported.refuses(
        partial(RedisAsyncioTransport, redis.asyncio.Redis(password=_SECRET, retry=AsyncRetry(NoBackoff(), 2)))
    )
    options = ConnectionOptions(password=_SECRET)
    reported.show(
        options,
        ConnectionOptions(credentials=asking),
        SentinelOptions(sentinels=(("h", 1),), service="s", server=options, sentinel_password=_SECRET),
        ClusterOptions(nodes=(("h", 1),), server=options),
    )


async def test_no_secret_where_no_connection_is_made(
    reported: Told, adapter: Adapter, server: Server, name: str
) -> None:
    def options(**fields: Any) -> ConnectionOptions:
        return ConnectionOptions(**{"host": server.host, "port": server.port, "connect_timeout_ms": 2000} | fields)

    with_secret = options(password=_SECRET, username="nobody")
    nowhere = ((server.host, 1),)
    for kind, connection in (
        (AuthenticationFailed, with_secret),
        (AuthenticationFailed, server.url.replace("://", f"://nobody:{_SECRET}@")),
        (AuthenticationFailed, options(credentials=lambda: ("nobody", _SECRET))),
        (AuthenticationFailed, options(credentials=lambda: _SECRET)),
        (AuthenticationFailed, options(credentials=lambda: ("nobody", _SECRET.encode()))),
        (AuthenticationFailed, options(credentials=lambda: {"password": _SECRET})),
        (BullMQError, options(credentials=lambda: ("nobody", f"{_SECRET}\ud800"))),
        (ConnectionLost, options(password=_SECRET, port=1)),
        (ConnectionLost, options(unix_path="/no/such/socket", password=_SECRET)),
        (ConnectionLost, f"redis://:{_SECRET}@no-such-host.invalid"),
        (BullMQError, options(password=_SECRET, tls=True)),
        (BullMQError, SentinelOptions(sentinels=nowhere, service="s", server=with_secret, sentinel_password=_SECRET)),
        (BullMQError, ClusterOptions(nodes=nowhere, server=with_secret)),
    ):
        await reported.fails(kind, partial(_added, adapter, name, connection))


@pytest.mark.any_python
@pytest.mark.parametrize("kind", servers.ends())
async def test_no_secret_where_the_server_does_not_know_auth(
    reported: Told, adapter: Adapter, name: str, kind: str
) -> None:
    """Such a server repeats the arguments of the command in its reply."""
    with servers.start(kind, config=("--rename-command", "AUTH", "")) as server:
        for username in (None, "me"):
            options = ConnectionOptions(host=server.host, port=server.port, username=username, password=_SECRET)
            await reported.fails(BullMQError, partial(_added, adapter, name, options))
        if adapter.name == "asyncio":
            # With RESP3 HELLO logs in.
            client = redis.asyncio.Redis(
                host=server.host, port=server.port, password=_SECRET, protocol=2, retry=AsyncRetry(NoBackoff(), 0)
            )
            await reported.fails(BullMQError, RedisAsyncioTransport(client).server_info)
            await client.aclose()


async def test_no_secret_in_the_life_of_a_worker(reported: Told, adapter: Adapter, server: Server, name: str) -> None:
    """Neither passwords nor lock tokens: jobs that end in each way, a lost connection, a changed password."""
    tokens: list[str] = []

    async def process(job: Any) -> Any:
        tokens.append(job.token)
        reported.show(job)
        if job.name == "fails":
            raise ValueError("broken")
        if job.name == "loses":
            admin.delete(f"{job.key}:lock")
        return job.name

    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", name, "on", f">{_SECRET}", "~*", "&*", "+@all")
        options = ConnectionOptions(host=server.host, port=server.port, username=name, password=_SECRET)
        worker = adapter.Worker(name, process, options, options=WorkerOptions(max_reconnect_delay=50))
        kinds = (JobActive, JobCompleted, LockLost, ReportRefused, JobFailed, ReconnectFailed, Reconnected)
        seen = Seen(worker, *kinds)
        async with adapter.Queue(name, options) as queue, worker:
            reported.show(queue, worker, worker.snapshot())
            await queue.add("fails", options=JobOptions(attempts=2))
            await queue.add("loses")
            await queue.add("completes")
            await seen.wait(JobActive, 4)
            await seen.wait(JobFailed)
            admin.execute_command("ACL", "SETUSER", name, "resetpass", ">other")
            admin.execute_command("CLIENT", "KILL", "USER", name)
            await seen.wait(ReconnectFailed)
            admin.execute_command("ACL", "SETUSER", name, f">{_SECRET}")
            await seen.wait(Reconnected)
            reported.show(worker, worker.snapshot(), *seen.all)
        async with adapter.Queue(name, server.url) as queue:
            await queue.obliterate(force=True)
        admin.execute_command("ACL", "DELUSER", name)
    assert len(tokens) >= 4
    reported.check(*{token.rpartition(":")[0] for token in tokens})


def test_no_secret_in_reprs_of_connections(reported: Told) -> None:
    options = ConnectionOptions(password=_SECRET)
    connection = Connection(options)
    client = redis.Redis(password=_SECRET, retry=Retry(NoBackoff(), 0))
    transport = RedisPyTransport(client)
    reported.show(connection, connection.options, connection.dedicated(), transport, transport.dedicated())
    reported.texts += [""] * 20


# --- users of the server ----------------------------------------------------------------------------------------------


def _rules(user: str) -> list[str]:
    """Return the words of a user's rule in the docs."""
    words = pages.acl_rule("security.md", user)
    assert words[:5] == ["on", ">password", "resetkeys", "~bull:*", "resetchannels"]
    return words


def test_rules_hold_all_commands_of_the_scripts() -> None:
    """Also those of rare branches."""
    adding = "addDelayedJob addJobScheduler addMany addParentJob addPrioritizedJob addStandardJob getCounts getStateV2"
    working = (
        "addLog changeDelay extendLock extendLocks fetchMany finishMany getDependencyCounts getRateLimitTtl isMaxed "
        "moveJobFromActiveToWait moveStalledJobsToWait moveToActive moveToDelayed moveToFinished moveToWaitingChildren "
        "releaseLock removeChildDependency removeUnprocessedChildren retryJob saveStacktrace updateData "
        "updateJobScheduler updateProgress"
    )
    for user, scripts in (("producer", adding), ("worker", working)):
        rules = _rules(user)
        for script in scripts.split():
            used = re.findall(r"""call\(\s*['"]([A-Za-z]+)['"]""", STRICT.scripts[script].source)
            assert used
            assert {f"+{command.lower()}" for command in used} <= set(rules), script


async def test_rules_suffice(adapter: Adapter, server: Server, name: str) -> None:
    """Two users work together by the rules of the docs: one adds everything, one runs it."""
    ended: list[str] = []

    async def process(job: Any) -> Any:
        if job.name == "once" and job.attempts_made == 0:
            raise ValueError("again")
        if job.name == "fails":
            raise ValueError("no")
        if job.name == "later" and job.data != "moved":
            await job.update_data("moved")
            await job.move_to_delayed(1)
            raise DelayedError
        if job.name == "parent":
            if await job.move_to_waiting_children():
                raise WaitingChildrenError
            assert len(await job.get_children_values()) == 1
            assert await job.get_dependencies_count() is not None
            await job.get_ignored_children_failures()
        await job.log("row")
        await job.update_progress(50)
        await job.extend_lock(30_000)
        ended.append(job.name)
        return job.name

    with redis.Redis.from_url(server.url) as admin:
        for user in ("producer", "worker", "administrator"):
            admin.execute_command("ACL", "SETUSER", f"{user}-{name}", "reset", *_rules(user))

        def login(user: str) -> ConnectionOptions:
            return ConnectionOptions(
                host=server.host, port=server.port, username=f"{user}-{name}", password="password", client_name="c"
            )

        limits = WorkerOptions(
            concurrency=2,
            limiter=Limiter(max=1000, duration=1000),
            metrics_max_data_points=5,
            remove_on_complete=KeepJobs(count=5, age=3600),
            remove_on_fail=KeepJobs(count=5),
            stalled_interval=100,
            lock_duration=2000,
            lock_renew_time=20,
        )
        worker = adapter.Worker(name, process, login("worker"), options=limits)
        seen = Seen(worker, JobCompleted, JobFailed, ReconnectFailed)
        async with (
            adapter.Queue(name, login("producer")) as queue,
            adapter.FlowProducer(login("producer")) as flows,
            adapter.QueueEvents(name, login("producer")) as events,
        ):
            await queue.add("standard")
            await queue.add("delayed", options=JobOptions(delay=1))
            await queue.add("urgent", options=JobOptions(priority=1))
            await queue.add("later")
            await queue.add("fails")
            await queue.add("once", options=JobOptions(attempts=2, backoff=1))
            await queue.add("custom", options=JobOptions(job_id="mine"))
            await queue.add("custom", options=JobOptions(job_id="mine"))
            await queue.add("single", options=JobOptions(deduplication=Deduplication(id="d", ttl=1000, replace=True)))
            await queue.add("single", options=JobOptions(deduplication=Deduplication(id="d", ttl=1000, replace=True)))
            await flows.add(FlowNode("parent", name, children=(FlowNode("child", name),)))
            await queue.upsert_job_scheduler("s", RepeatOptions(every=20, limit=2), "scheduled")
            assert (await queue.get_job_counts())["waiting"] > 0
            waited = await queue.add("waited")
            async with worker:
                assert await waited.wait_until_finished(events) == "waited"
                wanted = {"standard", "delayed", "urgent", "later", "once", "custom", "single", "parent", "child"}
                await seen.until(lambda: wanted | {"scheduled", "waited"} <= set(ended))
                await seen.wait(JobFailed)
            assert await waited.get_state() in ("completed", "unknown")
        assert seen.of(ReconnectFailed) == []
        async with adapter.Queue(name, login("administrator")) as queue:
            assert await queue.get_metrics("completed") is not None
            assert await queue.get_workers() == []
            await queue.get_jobs(("completed", "failed"))
            await queue.pause()
            await queue.resume()
            await queue.drain(delayed=True)
            await queue.clean(0, state="completed")
            await queue.obliterate(force=True)
        refused = [entry for entry in admin.execute_command("ACL", "LOG") if name in str(entry)]
        # redis-py tells its version and goes on without.
        assert [entry for entry in refused if entry[b"object"] not in (b"client", b"client|setinfo")] == []
        for user in ("producer", "worker", "administrator"):
            admin.execute_command("ACL", "DELUSER", f"{user}-{name}")
