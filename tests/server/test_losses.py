"""Lost, half-open and silent connections, and how soon workers of every adapter work again."""

import logging
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
import redis

from bullmq_protocol import ConnectionOptions, Deduplication, JobOptions, KeyLayout, NewJob, WorkerOptions
from bullmq_protocol.command import Command
from bullmq_protocol.common.keys import key_slot
from bullmq_protocol.errors import ConnectionLost, ServerError, TransportError
from bullmq_protocol.testing.conformance import Fault
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    Disconnected,
    Drained,
    JobActive,
    JobCompleted,
    JobFailed,
    JobStalled,
    Reconnected,
    ReconnectFailed,
    ReportRefused,
    WorkerProblem,
)
from tests.support import servers
from tests.support.adapters import Adapter
from tests.support.cut_proxy import CutProxy
from tests.support.seen import Seen, until
from tests.support.servers import Server

pytestmark = pytest.mark.anyio

_AGAIN_S = 20
"""Within this time workers work again once the server is back, on however busy a machine; what would be wrong takes
longer than `LIMIT_S`."""
_DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


async def nothing(job: Any) -> None:
    """A processor that has nothing to do."""


def quick(server: Any, **limits: int) -> ConnectionOptions:
    """Options with time limits that a test can wait for."""
    return ConnectionOptions(host=server.host, port=server.port, **{"command_timeout_ms": 400, **limits})


def is_idle(worker: Any) -> Callable[[], Awaitable[bool]]:
    async def idle() -> bool:
        held = worker.snapshot()
        return held.listening and not held.jobs and not held.fetching

    return idle


# --- outages ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attempts", "longest"), [(3, 30_000), (8, 200)], ids=["short", "longer"])
async def test_works_again_soon_after_an_outage(adapter: Adapter, name: str, attempts: int, longest: int) -> None:
    """The pause between two attempts is at most as long as the outage, or `max_reconnect_delay`."""
    with servers.start(config=_DURABLE) as server:
        options = WorkerOptions(max_reconnect_delay=longest)
        worker = adapter.Worker(name, nothing, server.url, options=options)
        seen = Seen(worker, Drained, Disconnected, ReconnectFailed, Reconnected, JobCompleted)
        async with worker, adapter.Queue(name, server.url) as queue:
            await seen.wait(Drained)
            await anyio.to_thread.run_sync(server.kill)
            failed = await seen.wait(ReconnectFailed, attempts)
            assert all(notice.delay_ms <= longest * 1.2 for notice in failed)
            await anyio.to_thread.run_sync(server.restart)
            back = time.monotonic()
            await queue.add("a")
            await seen.wait(JobCompleted)
            assert time.monotonic() - back < _AGAIN_S
        assert len(seen.of(Disconnected)) == len(seen.of(Reconnected)) == 1


async def test_a_loss_is_reported_while_all_slots_are_busy(adapter: Adapter, name: str) -> None:
    """No call is under way, and none is due for minutes: the end of the idle connection tells."""
    gate = anyio.Event()

    async def process(job: Any) -> None:
        await gate.wait()

    with servers.start(config=_DURABLE) as server:
        options = WorkerOptions(lock_duration=600_000, stalled_interval=600_000)
        worker = adapter.Worker(name, process, server.url, options=options)
        seen = Seen(worker, JobActive, Disconnected, Reconnected, JobCompleted)
        async with worker, adapter.Queue(name, server.url) as queue:
            await queue.add("a")
            await seen.wait(JobActive)

            async def is_quiet() -> bool:
                # Else a call that is under way would tell.
                with redis.Redis(host=server.host, port=server.port) as admin:
                    own = str(admin.client_id())
                    return all(int(row["idle"]) >= 1 for row in admin.client_list() if row["id"] != own)

            await until(is_quiet)
            await anyio.to_thread.run_sync(server.kill)
            await seen.wait(Disconnected)
            assert worker.snapshot().state == "disconnected"
            await anyio.to_thread.run_sync(server.restart)
            await seen.wait(Reconnected)
            gate.set()
            await seen.wait(JobCompleted)


async def test_a_server_that_comes_back_empty(adapter: Adapter, name: str) -> None:
    """What the server forgot cannot be reported; the worker says so and goes on."""
    gate = anyio.Event()

    async def process(job: Any) -> None:
        if job.name == "old":
            await gate.wait()

    with servers.start() as server:
        worker = adapter.Worker(name, process, server.url)
        seen = Seen(worker, JobActive, Disconnected, Reconnected, ReportRefused, JobCompleted, JobFailed)
        async with worker, adapter.Queue(name, server.url) as queue:
            await queue.add("old")
            await seen.wait(JobActive)
            await anyio.to_thread.run_sync(server.kill)
            gate.set()
            await seen.wait(Disconnected)
            await anyio.to_thread.run_sync(server.restart)
            await seen.wait(ReportRefused)
            await queue.add("new")
            await seen.wait(JobCompleted)
        assert [notice.job.name for notice in seen.of(JobCompleted)] == ["new"]
        assert seen.of(JobFailed) == []


async def test_a_server_that_is_loading(adapter: Adapter, name: str) -> None:
    # A hundredth of a second for each key; every 2 MB the server looks who is there.
    config = ("--key-load-delay", "10000")
    with servers.start(config=config) as server, redis.Redis(host=server.host, port=server.port) as admin:
        for number in range(250):
            admin.set(f"filler-{number}", random.randbytes(100_000))
        worker = adapter.Worker(name, nothing, server.url, options=WorkerOptions(max_reconnect_delay=100))
        seen = Seen(worker, Drained, WorkerProblem, Reconnected, JobCompleted)
        async with worker, adapter.Queue(name, server.url) as queue:
            await seen.wait(Drained)
            admin.save()
            await anyio.to_thread.run_sync(server.kill)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, server.restart)
                await seen.wait(Reconnected)
                # It lets connections in, and refuses commands.
                await seen.until(lambda: any("LOADING" in notice.message for notice in seen.of(WorkerProblem)))
            await queue.add("a")
            await seen.wait(JobCompleted)


async def test_a_server_that_takes_no_more_clients(
    adapter: Adapter, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with servers.start() as server, redis.Redis(host=server.host, port=server.port) as admin:
        worker = adapter.Worker(name, nothing, server.url, options=WorkerOptions(max_reconnect_delay=100))
        seen = Seen(worker, Drained, ReconnectFailed, Reconnected, JobCompleted)
        with caplog.at_level(logging.WARNING, adapter.logger):
            async with worker, adapter.Queue(name, server.url) as queue:
                await seen.wait(Drained)
                admin.config_set("maxclients", 1)
                admin.client_kill_filter(_type="normal", skipme=True)
                await seen.wait(ReconnectFailed, 2)
                with pytest.raises(ConnectionLost, match="max number of clients") as caught:
                    await queue.add("a")
                assert caught.value.maybe_applied is False
                admin.config_set("maxclients", 1000)
                await seen.wait(Reconnected)
                await queue.add("a")
                await seen.wait(JobCompleted)
    assert any("max number of clients" in record.getMessage() for record in caplog.records)


async def test_a_cluster_that_is_down(adapter: Adapter, name: str) -> None:
    """One node, of which the queue's slot is taken away and given back."""
    layout = KeyLayout.TAGGED_QUEUE
    with (
        servers.start(config=("--cluster-enabled", "yes")) as server,
        redis.Redis(host=server.host, port=server.port) as admin,
    ):
        for begin in range(0, 16384, 4096):
            admin.execute_command("CLUSTER", "ADDSLOTS", *range(begin, begin + 4096))
        while b"cluster_state:ok" not in admin.execute_command("CLUSTER", "INFO", NEVER_DECODE=[]):
            await anyio.sleep(0.01)
        gate = anyio.Event()

        async def process(job: Any) -> None:
            await gate.wait()

        worker = adapter.Worker(name, process, server.url, layout=layout)
        seen = Seen(worker, JobActive, JobCompleted, JobFailed, WorkerProblem)
        async with worker, adapter.Queue(name, server.url, layout=layout) as queue:
            await queue.add("a")
            await seen.wait(JobActive)
            slot = key_slot(queue.keys.wait)
            admin.execute_command("CLUSTER", "DELSLOTS", slot)
            with pytest.raises(ServerError) as caught:
                await queue.add("b")
            assert caught.value.code == "CLUSTERDOWN"
            gate.set()
            await seen.until(lambda: any(notice.job_id == "1" for notice in seen.of(WorkerProblem)))
            admin.execute_command("CLUSTER", "ADDSLOTS", slot)
            await seen.wait(JobCompleted)
            assert seen.of(JobFailed) == []


# --- silence ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["report", "wait"])
async def test_a_half_open_connection_is_found_and_replaced(
    adapter: Adapter, server: Server, name: str, what: str
) -> None:
    """The proxy takes the bytes and answers nothing: within the time limit of the call that is a loss."""

    async def process(job: Any) -> str:
        return "swallow this"

    with CutProxy(server.host, server.port) as proxy:
        worker = adapter.Worker(name, process, quick(proxy), options=WorkerOptions(drain_delay=0.5))
        seen = Seen(worker, Disconnected, Reconnected, JobCompleted, JobFailed)
        async with adapter.Queue(name, server.url) as queue:
            proxy.arm(Fault.SWALLOW, {"report": "swallow this", "wait": "BZPOPMIN"}[what])
            if what == "report":
                await queue.add("a")
            begun = time.monotonic()
            async with worker:
                await seen.wait(Reconnected)
                # command_timeout_ms, or the drain delay and two seconds
                assert time.monotonic() - begun < {"report": 0.4, "wait": 2.5}[what] + _AGAIN_S
                assert proxy.struck == 1
                if what == "wait":
                    await queue.add("a")
                await seen.wait(JobCompleted)
            job = await queue.get_job("1")
            assert (job.returnvalue, job.attempts_made, seen.of(JobFailed)) == ("swallow this", 1, [])
            await queue.obliterate(force=True)


async def test_a_server_that_stops_answering(adapter: Adapter, name: str) -> None:
    """SIGSTOP: connections stay open, and even new ones are taken by the system."""
    release = anyio.Event()

    async def process(job: Any) -> str:
        await release.wait()
        return "done"

    with servers.start() as server:
        worker = adapter.Worker(name, process, quick(server), options=WorkerOptions(max_reconnect_delay=200))
        seen = Seen(worker, JobActive, Disconnected, Reconnected, ReportRefused, JobCompleted, JobFailed)
        async with worker, adapter.Queue(name, server.url) as queue:
            await queue.add("a")
            await seen.wait(JobActive)
            os.kill(server.pid, signal.SIGSTOP)
            begun = time.monotonic()
            try:
                release.set()
                await seen.wait(Disconnected)
                assert time.monotonic() - begun < 0.4 + _AGAIN_S
            finally:
                os.kill(server.pid, signal.SIGCONT)
            back = time.monotonic()
            # The server may have found the first report in its buffers when it went on: then the second is refused.
            await seen.until(lambda: bool(seen.of(JobCompleted) + seen.of(ReportRefused)))
            await queue.add("b")
            await seen.until(lambda: any(notice.job.id == "2" for notice in seen.of(JobCompleted)))
            assert time.monotonic() - back < _AGAIN_S
            job = await queue.get_job("1")
            assert (job.returnvalue, job.attempts_made) == ("done", 1)
        assert all(notice.uncertain for notice in seen.of(ReportRefused))
        assert seen.of(JobFailed) == []


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_close_during_the_blocking_wait_is_immediate(adapter: Adapter, server: Server, name: str) -> None:
    worker = adapter.Worker(name, nothing, server.url, options=WorkerOptions(drain_delay=60))
    async with worker:
        await until(is_idle(worker))
        begun = time.monotonic()
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_close_while_there_is_no_connection(adapter: Adapter, name: str, how: str, force: bool) -> None:
    """Between two attempts, and during one that hangs: nothing can be given back, so nothing is waited for."""
    with servers.start() as server:
        options = WorkerOptions(shutdown_timeout=60_000, max_reconnect_delay=60_000, stalled_interval=300)
        worker = adapter.Worker(name, nothing, quick(server, connect_timeout_ms=60_000), options=options)
        seen = Seen(worker, Drained, Disconnected, ReconnectFailed, ClosedNotice)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await seen.wait(Drained)
            if how == "killed":
                await anyio.to_thread.run_sync(server.kill)
                await seen.wait(ReconnectFailed)
            else:
                os.kill(server.pid, signal.SIGSTOP)
                await seen.wait(Disconnected)
                # The first attempt comes after a tenth of a second, and hangs.
                await anyio.sleep(0.2)
            begun = time.monotonic()
            await worker.aclose(force)
        assert time.monotonic() - begun < 20
        assert not worker.is_running
        if how == "stopped":
            os.kill(server.pid, signal.SIGCONT)


# --- adding once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [JobOptions(job_id="mine"), JobOptions(deduplication=Deduplication(id="mine"))],
    ids=["job_id", "deduplication"],
)
@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.CUT_MID_REPLY], ids=lambda each: each.name)
async def test_an_add_whose_reply_was_lost_can_be_repeated(
    adapter: Adapter, server: Server, name: str, fault: Fault, options: JobOptions
) -> None:
    with CutProxy(server.host, server.port) as proxy:
        async with adapter.Queue(name, proxy.url) as queue:
            await queue.get_job_counts()
            proxy.arm(fault, "payload of this test")
            with pytest.raises(TransportError) as caught:
                await queue.add("a", "payload of this test", options)
            assert caught.value.maybe_applied is True
            proxy.arm(Fault.NONE)
            job = await queue.add("a", "payload of this test", options)
            assert await queue.get_job_counts("waiting") == {"waiting": 1, "paused": 0}
            assert (await queue.get_job(job.id)).data == "payload of this test"
            await queue.obliterate(force=True)


async def test_a_job_without_an_id_is_not_added_again_by_itself(adapter: Adapter, server: Server, name: str) -> None:
    with CutProxy(server.host, server.port) as proxy:
        async with adapter.Queue(name, proxy.url) as queue:
            await queue.get_job_counts()
            proxy.arm(Fault.CUT_AFTER, "payload of this test", times=10)
            with pytest.raises(ConnectionLost, match="may have run"):
                await queue.add("a", "payload of this test")
            assert proxy.struck == 1
            proxy.arm(Fault.NONE)
            assert await queue.get_job_counts("waiting") == {"waiting": 1, "paused": 0}
            await queue.obliterate(force=True)


# --- repeating --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.CUT_MID_REPLY], ids=lambda each: each.name)
@pytest.mark.parametrize("kind", ["finished", "retried"])
async def test_a_report_whose_reply_was_lost_counts_once(
    adapter: Adapter, server: Server, name: str, fault: Fault, kind: str
) -> None:
    """Guarded by the token: it is sent again, and an outcome is stored once."""
    starts: list[int] = []

    async def process(job: Any) -> str:
        starts.append(job.attempts_made)
        if kind == "retried" and job.attempts_made == 0:
            raise RuntimeError("mark of this test")
        return "mark of this test"

    with CutProxy(server.host, server.port) as proxy:
        async with adapter.Queue(name, server.url) as queue:
            job = await queue.add("a", None, JobOptions(attempts=3))
            worker = adapter.Worker(name, process, proxy.url)
            seen = Seen(worker, Reconnected, JobCompleted, JobFailed, ReportRefused)
            proxy.arm(fault, "mark of this test")

            async def done() -> bool:
                return await job.get_state() == "completed"

            async with worker:
                await seen.wait(Reconnected)
                await until(done)
            assert proxy.struck == 1
            await job.refresh()
            assert starts == ([0] if kind == "finished" else [0, 1])
            assert (job.returnvalue, job.attempts_made) == ("mark of this test", len(starts))
            assert all(notice.uncertain for notice in seen.of(ReportRefused))
            finished = [event for event in await _events(queue) if event == "completed"]
            assert len(finished) == 1
            await queue.obliterate(force=True)


async def _events(queue: Any) -> list[str]:
    entries = await queue.call(Command("XRANGE", (queue.keys.events,), ("-", "+"), _as_it_is))
    found = [dict(zip(fields[::2], fields[1::2], strict=True)) for _, fields in entries]
    return [fields[b"event"].decode() for fields in found]


def _as_it_is(reply: Any) -> Any:
    return reply


async def test_a_fetch_whose_reply_was_lost_is_not_repeated_and_loses_no_job(
    adapter: Adapter, server: Server, name: str
) -> None:
    """The job that it took waits for its lock to end, then the stalled check gives it back."""
    starts: list[str] = []

    async def process(job: Any) -> None:
        starts.append(job.id)

    with CutProxy(server.host, server.port) as proxy:
        async with adapter.Queue(name, server.url) as queue:
            await queue.add("a")
            options = WorkerOptions(lock_duration=1000, stalled_interval=300)
            worker = adapter.Worker(name, process, proxy.url, options=options)
            seen = Seen(worker, JobCompleted, JobStalled, WorkerProblem)
            # Only a fetch and a report name the lock's duration; there is nothing to report yet.
            proxy.arm(Fault.CUT_AFTER, "lockDuration")
            async with worker:
                await seen.wait(JobCompleted)
            assert starts == ["1"]
            assert len(seen.of(JobStalled)) == 1
            assert any("a fetch got no answer" in notice.message for notice in seen.of(WorkerProblem))
            await queue.obliterate(force=True)


# --- what is left -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["waiting", "running", "reporting"])
async def test_a_close_leaves_no_lock_and_no_connection(
    adapter: Adapter, server: Server, name: str, phase: str
) -> None:
    async def process(job: Any) -> None:
        if phase == "running":
            await anyio.sleep_forever()

    async with adapter.Queue(name, server.url) as queue:
        worker = adapter.Worker(name, process, server.url, options=WorkerOptions(concurrency=3))
        seen = Seen(worker, JobActive, JobCompleted)
        with redis.Redis(host=server.host, port=server.port) as admin:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run)
                if phase == "waiting":
                    await until(is_idle(worker))
                else:
                    await queue.add_bulk([NewJob("a") for _ in range(200 if phase == "reporting" else 3)])
                    await seen.wait(JobActive, 3)
                await worker.aclose(True)
            assert list(admin.scan_iter(f"{queue.keys.base}*:lock", count=10_000)) == []
            held = worker.snapshot()
            assert (held.state, held.jobs, held.fetching, held.listening) == ("stopped", (), False, False)
        assert (await queue.get_job_counts("active")) == {"active": 0}
        await queue.obliterate(force=True)
