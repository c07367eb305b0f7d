"""The transport of docs/transports.md goes through the public conformance cases, as everybody's own should."""

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import anyio
import msgspec
import pytest
from anyio.abc import TaskGroup

from bullmq_anyio import Job, Queue, Worker
from bullmq_anyio.testing import run_case
from bullmq_protocol import NewJob, parse_url
from bullmq_protocol.command import Batch, Command
from bullmq_protocol.common.reply import as_none
from bullmq_protocol.errors import ServerError, UsageError
from bullmq_protocol.testing.conformance import CASES, Case
from bullmq_protocol.worker.notices import JobCompleted
from examples.coredis_transport import CoredisTransport
from tests.server.test_transport_conformance import limit_of
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server

pytestmark = [pytest.mark.anyio, pytest.mark.any_python]

CODES = (
    *("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "OOM", "MISCONF", "NOREPLICAS", "BUSY"),
    *("NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT", "NOGROUP", "NOKEY", "EXECABORT", "ERR"),
)


@pytest.fixture(scope="module")
def network(server: Server) -> Iterator[CutProxy]:
    with CutProxy(server.host, server.port) as proxy:
        yield proxy


@pytest.fixture
async def tasks(anyio_backend: Any) -> AsyncIterator[TaskGroup]:
    async with anyio.create_task_group() as group:
        yield group


def command(*wire: bytes | str | int) -> Command[None]:
    name, *args = wire
    return Command(str(name), (), tuple(args), as_none)


@pytest.mark.parametrize("case", CASES, ids=str)
async def test_conformance(case: Case, server: Server, network: CutProxy, anyio_backend: Any) -> None:
    async with anyio.create_task_group() as tasks:

        def make(url: str) -> CoredisTransport:
            options = msgspec.structs.replace(parse_url(url), command_timeout_ms=limit_of(case))
            return CoredisTransport(options, tasks)

        # The group ends on its own: every connection does once its transport is closed.
        await run_case(case, make, server.url, f"conformance-{uuid4().hex}", network=network)


async def test_codes_of_errors(server: Server, tasks: TaskGroup) -> None:
    transport = CoredisTransport(server.url, tasks)
    for code in CODES:
        fails = command("EVAL", "return redis.error_reply(ARGV[1])", 0, f"{code} told so")
        with pytest.raises(ServerError) as caught:
            await transport.perform(fails)
        assert (caught.value.code, str(caught.value)) == (code, f"{code} told so")
        for atomic in (False, True):
            (value,) = await transport.perform(Batch((fails,), atomic=atomic))
            assert isinstance(value, ServerError) and value.code == code
    await transport.aclose()


async def double(job: Job[int]) -> int:
    return job.data * 2


async def test_a_queue_and_a_worker_over_it(server: Server, tasks: TaskGroup, name: str) -> None:
    transport = CoredisTransport(server.url, tasks)
    queue: Queue[Any] = Queue(name, transport)
    done = anyio.Semaphore(0)
    worker: Worker[Any] = Worker(name, double, transport)
    worker.on(JobCompleted, lambda notice: done.release())
    async with worker:
        jobs = await queue.add_bulk([NewJob("double", number) for number in range(30)])
        for _ in jobs:
            await done.acquire()
    for job in jobs:
        await job.refresh()
    assert [job.returnvalue for job in jobs] == [2 * number for number in range(30)]
    await queue.obliterate(force=True)
    await queue.aclose()
    await transport.aclose()


async def test_text_that_has_no_form_on_the_wire_costs_no_connection(server: Server, tasks: TaskGroup) -> None:
    transport = CoredisTransport(server.url, tasks)
    identity = await transport.perform(command("CLIENT", "ID"))
    with pytest.raises(UsageError, match="lone surrogate"):
        await transport.perform(command("ECHO", "\ud800"))
    assert await transport.perform(command("CLIENT", "ID")) == identity
    await transport.aclose()


async def test_what_it_cannot_connect_to_is_refused(tasks: TaskGroup) -> None:
    with pytest.raises(UsageError, match="a host and a port"):
        CoredisTransport("unix:///run/redis.sock", tasks)
