"""`run_workers` in the process of the tests: what each signal, and the end of one worker, does to all of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import WorkerOptions
from bullmq_protocol.errors import ConnectionLost
from bullmq_protocol.testing.conformance import Fault
from bullmq_protocol.worker.notices import Closing, Drained
from bullmq_sync import Queue
from tests.support.adapters import NAMES
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

_LIMIT_S = 30
_PATIENT = WorkerOptions(shutdown_timeout=600_000)


@pytest.fixture
def reported() -> Iterator[list[int]]:
    """What the program's own handlers of the two signals hear; they must be there again at the end."""
    heard: list[int] = []

    def own(number: int, _: object) -> None:
        heard.append(number)

    before = {number: signal.signal(number, own) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield heard
        assert [signal.getsignal(number) for number in before] == [own, own]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture
def queue(server: Server, name: str) -> Iterator[Queue[Any]]:
    with Queue[Any](name, server.url) as queue:
        yield queue
        queue.obliterate(force=True)


class Running:
    """Two workers of one kind under `run_workers`: a busy one, and one that has nothing to do."""

    def __init__(self, kind: str, name: str, url: str, idle_url: str = "", idle: WorkerOptions | None = None) -> None:
        self.kind = kind
        self.both_run, self.closing = threading.Event(), threading.Event()
        self.over = threading.Event()
        """Set when `run_workers` has returned."""
        self.threads: list[threading.Thread] = []
        package: Any = bullmq_sync if kind == "threads" else bullmq_anyio
        process: Any = self._on_thread if kind == "threads" else self._in_task
        self.busy = package.Worker(name, process, url, options=_PATIENT)
        self.idle = package.Worker(f"{name}-idle", process, idle_url or url, options=idle or _PATIENT)
        self.busy.on(Closing, lambda _: self.closing.set())
        self.idle.on(Drained, lambda _: self.both_run.set())

    def run(self, first: Callable[[], None], then: Callable[[], None], *, ends: bool) -> Any:
        """Call one function in the processor, and the other when its worker closes; a job that does not end waits."""
        self._first, self._then, self._ends = first, then, ends
        try:
            if self.kind == "threads":
                return bullmq_sync.run_workers(self.busy, self.idle)

            async def main() -> Any:
                with anyio.fail_after(_LIMIT_S):
                    return await bullmq_anyio.run_workers(self.busy, self.idle)

            return anyio.run(main, backend=self.kind)
        finally:
            self.over.set()
            assert not self.busy.is_running and not self.idle.is_running

    async def _in_task(self, _: object) -> str:
        await self._wait(self.both_run)
        self._first()
        await self._wait(self.closing)
        self._then()
        if not self._ends:
            await anyio.sleep_forever()
        return "done"

    async def _wait(self, event: threading.Event) -> None:
        while not event.is_set():
            await anyio.sleep(0.005)

    def _on_thread(self, _: object) -> str:
        assert self.both_run.wait(_LIMIT_S)
        self.threads = threading.enumerate()
        self._first()
        assert self.closing.wait(_LIMIT_S)
        self._then()
        if not self._ends:
            assert self.over.wait(_LIMIT_S)
        return "done"


def tell(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def nothing() -> None:
    """Do nothing."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", NAMES)
def test_a_signal_closes_all_and_lets_jobs_end(
    queue: Queue[Any], server: Server, name: str, reported: list[int], kind: str, number: signal.Signals
) -> None:
    job = queue.add("a")
    running = Running(kind, name, server.url)
    found = running.run(tell(number), nothing, ends=True)
    assert found is number
    assert reported == [number]
    assert queue.get_state(job.id) == "completed"
    names = {f"bullmq {each.name} runner" for each in (running.busy, running.idle)}
    runners = [each for each in running.threads if each.name in names]
    assert len(runners) == (2 if kind == "threads" else 0)
    assert all(each.daemon for each in runners)


@pytest.mark.parametrize("kind", NAMES)
def test_a_second_signal_gives_jobs_back(
    queue: Queue[Any], server: Server, name: str, reported: list[int], kind: str
) -> None:
    job = queue.add("a")
    running = Running(kind, name, server.url)
    found = running.run(tell(signal.SIGTERM), tell(signal.SIGINT), ends=False)
    # The program's own handler hears of the first, which ended the run.
    assert found is signal.SIGTERM
    assert reported == [signal.SIGTERM]
    assert queue.get_state(job.id) == "waiting"


@pytest.mark.parametrize("kind", NAMES)
def test_the_error_of_one_lets_the_jobs_of_others_end(
    queue: Queue[Any], server: Server, name: str, reported: list[int], kind: str
) -> None:
    job = queue.add("a")
    once = WorkerOptions(max_reconnect_attempts=1, max_reconnect_delay=1)
    with CutProxy(server.host, server.port) as proxy:
        running = Running(kind, name, server.url, proxy.url, once)
        with pytest.raises(ConnectionLost):
            running.run(lambda: proxy.arm(Fault.REFUSE), nothing, ends=True)
    assert reported == []
    assert queue.get_state(job.id) == "completed"


@pytest.mark.parametrize("kind", ["asyncio", "trio"])
def test_who_sets_a_handler_while_they_run_keeps_it(queue: Queue[Any], server: Server, name: str, kind: str) -> None:
    def new(*_: object) -> None:
        """The program's new one."""

    before = signal.getsignal(signal.SIGTERM)
    queue.add("a")
    running = Running(kind, name, server.url)

    def exchange() -> None:
        signal.signal(signal.SIGTERM, new)
        signal.raise_signal(signal.SIGINT)

    heard: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        assert running.run(exchange, nothing, ends=True) is signal.SIGINT
        assert signal.getsignal(signal.SIGTERM) is new
        assert heard == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, usual)
