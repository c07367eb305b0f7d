"""A server that answers, but refuses: what a worker does meanwhile, and what `add` raises."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.retry import Retry as SyncRetry

from bullmq_anyio import Queue, Worker
from bullmq_anyio.net.redis_asyncio import RedisAsyncioTransport
from bullmq_protocol import ConnectionOptions, NewJob, WorkerOptions
from bullmq_protocol.errors import ServerError
from bullmq_protocol.worker.notices import (
    Disconnected,
    JobActive,
    JobCompleted,
    JobFailed,
    JobStalled,
    ReportRefused,
    WorkerProblem,
)
from tests.support import servers
from tests.support.adapters import Adapter
from tests.support.seen import Seen
from tests.support.servers import Server

pytestmark = [pytest.mark.anyio, pytest.mark.any_python]

_USER = "worker"
_AT_ONCE = 3


class Refusal(NamedTuple):
    """A state of a server in which it refuses; `code` is what its error replies begin with."""

    code: str
    begin: Callable[[redis.Redis, Server], object]
    end: Callable[[redis.Redis, Server], object]
    says: str = ""
    """What the worker says, if not the code."""


def _config(**settings: Any) -> Callable[[redis.Redis, Server], object]:
    def do(admin: redis.Redis, server: Server) -> None:
        for name, value in settings.items():
            admin.config_set(name.replace("_", "-"), value)

    return do


def _call(*words: str | int) -> Callable[[redis.Redis, Server], object]:
    return lambda admin, server: admin.execute_command(*words)


def _stop_saving(admin: redis.Redis, server: Server) -> None:
    # What cannot be replaced by a file: saving fails.
    Path(server.folder, "dump.rdb", "full").mkdir(parents=True, exist_ok=True)
    admin.config_set("save", "3600 1")
    admin.bgsave()
    while admin.info("persistence")["rdb_last_bgsave_status"] == "ok":
        pass


def _be_busy(admin: redis.Redis, server: Server) -> None:
    admin.config_set("lua-time-limit", 1)
    patience = redis.Redis(host=server.host, port=server.port, socket_timeout=0.05, retry=SyncRetry(NoBackoff(), 0))
    with patience, pytest.raises(redis.TimeoutError):
        patience.eval("while true do end", 0)


def _kill_script(admin: redis.Redis, server: Server) -> None:
    admin.script_kill()


def _strip_login(admin: redis.Redis, server: Server) -> None:
    admin.execute_command("ACL", "SETUSER", _USER, "-evalsha", "-eval", "-bzpopmin")


def _lose_master(admin: redis.Redis, server: Server) -> None:
    admin.config_set("replica-serve-stale-data", "no")
    admin.execute_command("REPLICAOF", "127.0.0.1", 1)


def _be_master(admin: redis.Redis, server: Server) -> None:
    admin.execute_command("REPLICAOF", "NO", "ONE")
    admin.config_set("replica-serve-stale-data", "yes")


REFUSALS = {
    "replica": Refusal("READONLY", _call("REPLICAOF", "127.0.0.1", 1), _be_master),
    "replica without its master": Refusal("MASTERDOWN", _lose_master, _be_master),
    "memory": Refusal("OOM", _config(maxmemory=1), _config(maxmemory=0)),
    "too few replicas": Refusal("NOREPLICAS", _config(min_replicas_to_write=1), _config(min_replicas_to_write=0)),
    "cannot save": Refusal("MISCONF", _stop_saving, _config(save="")),
    "slow script": Refusal("BUSY", _be_busy, _kill_script),
    "permissions": Refusal("NOPERM", _strip_login, _call("ACL", "SETUSER", _USER, "+@all")),
}


@pytest.fixture(scope="module", params=servers.ends())
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    with servers.start(request.param) as server:
        with redis.Redis(host=server.host, port=server.port) as admin:
            admin.execute_command("ACL", "SETUSER", _USER, "on", ">pass", "~*", "&*", "+@all")
        yield server


@pytest.fixture
def admin(own: Server) -> Iterator[redis.Redis]:
    with redis.Redis(host=own.host, port=own.port) as client:
        yield client


def _refused(seen: Seen) -> list[str]:
    """What was said of the reports of the first jobs."""
    return [notice.message for notice in seen.of(WorkerProblem) if notice.job_id is not None]


async def work_through(
    refusal: Refusal, server: Server, admin: redis.Redis, queue: Any, make: Callable[[Any], Any]
) -> None:
    """Let a worker end jobs, several at once, while the server refuses; then let it go on."""
    gate = anyio.Event()

    async def process(job: Any) -> str:
        if job.name == "first":
            await gate.wait()
        return "done"

    worker = make(process)
    seen = Seen(worker, JobActive, JobCompleted, JobFailed, JobStalled, ReportRefused, WorkerProblem, Disconnected)
    await queue.add_bulk([NewJob("first")] * _AT_ONCE)
    async with worker:
        await seen.wait(JobActive, _AT_ONCE)
        await anyio.to_thread.run_sync(refusal.begin, admin, server)
        try:
            with pytest.raises(ServerError) as caught:
                await queue.add("refused")
            assert caught.value.code == refusal.code
            gate.set()
            # Without memory some reports go through: they begin with commands that need none.
            through = _AT_ONCE if refusal.code == "OOM" else 0
            await seen.until(lambda: len(_refused(seen)) + min(len(seen.of(JobCompleted)), through) >= _AT_ONCE)
            assert seen.of(JobCompleted) == [] or refusal.code == "OOM"
            assert {ServerError(message).code for message in _refused(seen)} <= {refusal.code}
        finally:
            await anyio.to_thread.run_sync(refusal.end, admin, server)
        await seen.wait(JobCompleted, _AT_ONCE)
        await queue.add("second")
        await seen.wait(JobCompleted, _AT_ONCE + 1)
        assert seen.of(JobFailed) + seen.of(JobStalled) + seen.of(ReportRefused) == []
    jobs = [await queue.get_job(notice.job.id) for notice in seen.of(JobCompleted)]
    assert [job.name for job in jobs] == ["first"] * _AT_ONCE + ["second"]
    assert {(job.returnvalue, job.attempts_made) for job in jobs} == {("done", 1)}
    # Those of a profile with both lists of waiting jobs have `paused`, too.
    counts = await queue.get_job_counts("active", "failed", "wait")
    assert counts.items() >= {"active": 0, "failed": 0, "wait": 0}.items() and not any(counts.values())


@pytest.mark.parametrize("state", REFUSALS)
async def test_refused(adapter: Adapter, own: Server, admin: redis.Redis, name: str, state: str) -> None:
    way = ConnectionOptions(host=own.host, port=own.port, username=_USER, password="pass")
    async with adapter.Queue(name, way) as queue:
        options = WorkerOptions(concurrency=_AT_ONCE + 1, drain_delay=1)
        make = partial(adapter.Worker, name, connection=way, options=options)
        await work_through(REFUSALS[state], own, admin, queue, make)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("state", REFUSALS)
async def test_refused_over_redis_asyncio(
    own: Server, admin: redis.Redis, name: str, state: str, anyio_backend: Any
) -> None:
    client = redis.asyncio.Redis(
        host=own.host, port=own.port, username=_USER, password="pass", retry=Retry(NoBackoff(), 0)
    )
    transport = RedisAsyncioTransport(client)
    async with Queue[Any](name, transport) as queue:
        options = WorkerOptions(concurrency=_AT_ONCE + 1, drain_delay=1)
        await work_through(
            REFUSALS[state], own, admin, queue, partial(Worker, name, connection=transport, options=options)
        )
    await transport.aclose()
    await client.aclose()
