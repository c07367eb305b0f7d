"""What a worker costs that has nothing to do, and what many reconnects leave behind."""

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis

from bullmq_protocol import WorkerOptions
from bullmq_protocol.worker.notices import Drained, Reconnected
from tests.support import servers
from tests.support.adapters import Adapter
from tests.support.seen import Seen, until

pytestmark = [pytest.mark.anyio, pytest.mark.alone, pytest.mark.any_python]

RECONNECTS = int(os.environ.get("RECONNECTS", "150"))
_PAGE = os.sysconf("SC_PAGE_SIZE")


async def nothing(job: Any) -> None:
    """A processor that has nothing to do."""


def _resident() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _clients(admin: redis.Redis) -> int:
    return len(admin.client_list()) - 1


async def test_idle_worker_needs_little(adapter: Adapter, name: str) -> None:
    """Two connections, and under one percent of a processor."""
    with servers.start() as server, redis.Redis(host=server.host, port=server.port) as admin:
        worker = adapter.Worker(name, nothing, server.url)
        seen = Seen(worker, Drained)
        async with worker:
            await seen.wait(Drained)

            async def waits() -> bool:
                # The snapshot says so while that connection is still being opened.
                return admin.info("clients")["blocked_clients"] == 1

            await until(waits)
            assert _clients(admin) == 2
            asked = admin.info("stats")["total_commands_processed"]
            spent, begun = time.process_time(), time.monotonic()
            await anyio.sleep(3)
            share = (time.process_time() - spent) / (time.monotonic() - begun)
            assert share < 0.01
            # One of them is the question itself.
            assert admin.info("stats")["total_commands_processed"] - asked < 8
            assert _clients(admin) == 2


async def test_many_idle_reconnects_leave_nothing(adapter: Adapter, name: str) -> None:
    with servers.start() as server, redis.Redis(host=server.host, port=server.port) as admin:
        worker = adapter.Worker(name, nothing, server.url, options=WorkerOptions(max_reconnect_delay=1))
        seen = Seen(worker, Reconnected)

        async def both() -> bool:
            # One of them waits for the marker.
            return _clients(admin) == 2 and any("b" in row["flags"] for row in admin.client_list())

        async def reconnect(times: int) -> None:
            for _ in range(times):
                await until(both)
                seen.all.clear()
                admin.client_kill_filter(_type="normal", skipme=True)
                await seen.wait(Reconnected)
            await until(both)

        async with worker:
            await reconnect(20)
            tasks, threads, memory = len(anyio.get_running_tasks()), threading.active_count(), _resident()
            await reconnect(RECONNECTS)
            grown = _resident() - memory
            assert grown < 5_000_000

            async def as_before() -> bool:
                # A thread of the worker that has nothing to do ends after two seconds.
                return len(anyio.get_running_tasks()) <= tasks and threading.active_count() <= threads

            await until(as_before)
            assert _clients(admin) == 2
