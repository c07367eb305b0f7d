"""What a telemetry provider raises or leaves behind does no harm, on every adapter."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import FlowNode, JobOptions, WorkerOptions
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.schedule import RepeatOptions
from bullmq_protocol.worker.notices import JobCompleted, JobFailed
from tests.support.adapters import Adapter
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

_LIMIT_S = 60
TRAIL: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("TRAIL", default=())


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


class Faulty:
    """A provider and its spans, which raises one error after the other in one of its methods."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.errors = itertools.cycle(ERRORS)

    def at(self, place: str) -> None:
        if self.place == place:
            raise next(self.errors)("the provider's")

    def start_span(self, *span: Any, **parent: Any) -> Self:
        self.at("start_span")
        return self

    def metadata(self) -> str:
        self.at("metadata")
        return "{}"

    def set_attributes(self, attributes: object) -> None:
        self.at("set_attributes")

    def add_event(self, name: str, attributes: object) -> None:
        self.at("add_event")

    def record_exception(self, error: object) -> None:
        self.at("record_exception")

    def active(self) -> Self:
        self.at("active")
        return self

    def end(self) -> None:
        self.at("end")

    def __enter__(self) -> None:
        self.at("enter")

    def __exit__(self, *error: object) -> bool:
        self.at("exit")
        # As if it could take what a handler raises.
        return True


PLACES = ("start_span", "metadata", "set_attributes", "add_event", "record_exception", "active", "enter", "exit", "end")
ERRORS = (
    ValueError("v"),
    SystemExit(3),
    GeneratorExit(),
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
)


@pytest.mark.parametrize("place", PLACES)
async def test_whatever_a_provider_raises_jobs_end_and_the_worker_lives(
    adapter: Adapter, server: Server, name: str, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    caplog.set_level(logging.ERROR, adapter.logger)
    provider = Faulty(place)

    async def process(job: Any) -> str:
        if job.name == "bad":
            raise LookupError("the handler's")
        return job.name

    queue = adapter.Queue(name, server.url, telemetry=provider)
    flows = adapter.FlowProducer(server.url, telemetry=provider)
    worker = adapter.Worker(
        name, process, server.url, telemetry=provider, options=WorkerOptions(concurrency=2, stalled_interval=1000)
    )
    completed, failed = [], []
    done = anyio.Event()

    def note(notice: Any) -> None:
        (completed if isinstance(notice, JobCompleted) else failed).append(notice.job.name)
        if len(completed) + len(failed) == 9:
            done.set()

    worker.on(JobCompleted, note)
    worker.on(JobFailed, note)
    with anyio.fail_after(_LIMIT_S):
        for job in ("good", "bad"):
            await queue.add(job)
            await queue.add(job)
        await queue.add("twice", options=JobOptions(attempts=2))
        await flows.add(FlowNode("parent", name, children=[FlowNode("child", name)]))
        await queue.upsert_job_scheduler("often", RepeatOptions(every=100, limit=2))
        async with worker:
            await done.wait()
            await worker.pause()
            worker.resume()
        # By hand, where spans are around the caller's own calls.
        worker = adapter.Worker(name, None, server.url, telemetry=provider)
        await queue.add("good")
        await queue.add("bad", options=JobOptions(attempts=1))
        await worker.complete(await worker.get_next_job(block=False), 1)
        await worker.fail(await worker.get_next_job(block=False), ValueError("once"))
        await worker.aclose()
        assert sorted(failed) == ["bad", "bad"]
        counts = await queue.get_job_counts()
        assert (counts["active"], counts["failed"]) == (0, 3)
        # The caller's own error is the caller's, whatever the provider does.
        with pytest.raises(BullMQError):
            await queue.add("no", object())
        await queue.obliterate(force=True)
        await flows.aclose()
        await queue.aclose()
    assert {record.getMessage() for record in caplog.records} == {"the telemetry provider raised"}


class Leaves:
    """A provider that leaves a value behind in each of its methods, and never takes it back."""

    def start_span(self, name: str, kind: object, attributes: Any, **parent: Any) -> "LeavingSpan":
        TRAIL.set((*TRAIL.get(), f"start {name}"))
        return LeavingSpan(attributes.get("bullmq.job.id", name))


class LeavingSpan:
    def __init__(self, of: str) -> None:
        self.of = of

    def _leave(self, what: str) -> None:
        TRAIL.set((*TRAIL.get(), f"{what} {self.of}"))

    def metadata(self) -> str:
        self._leave("metadata")
        return "{}"

    def set_attributes(self, attributes: object) -> None:
        self._leave("attributes")

    def add_event(self, name: str, attributes: object) -> None:
        self._leave("event")

    def record_exception(self, error: object) -> None:
        self._leave("exception")

    def active(self) -> AbstractContextManager[None]:
        self._leave("active")
        return nullcontext()

    def end(self) -> None:
        self._leave("end")


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_what_a_provider_sets_reaches_no_other_job(
    adapter: Adapter, server: Server, queue: Any, name: str, concurrency: int
) -> None:
    found: dict[str, tuple[str, ...]] = {}
    done = anyio.Event()

    def look(job: Any) -> None:
        found[job.id] = TRAIL.get()

    async def process(job: Any) -> None:
        look(job)
        await anyio.lowlevel.checkpoint()
        if job.name == "bad":
            raise LookupError("the handler's")

    def blocking(job: Any) -> None:
        look(job)
        if job.name == "bad":
            raise LookupError("the handler's")

    ends: list[str] = []

    def note(notice: Any) -> None:
        ends.append(notice.job.id)
        if len(ends) == 30:
            done.set()

    for number in range(30):
        await queue.add("bad" if number % 3 == 0 else "good")
    worker = adapter.Worker(
        name,
        # On its own thread, not in the scenario's event loop.
        functools.partial(blocking) if adapter.name == "threads" else process,
        server.url,
        telemetry=Leaves(),
        options=WorkerOptions(concurrency=concurrency),
    )
    worker.on(JobCompleted, note)
    worker.on(JobFailed, note)
    with anyio.fail_after(_LIMIT_S):
        async with worker:
            await done.wait()
    # The job's own span is what its handler runs in.
    assert found == {str(number): (f"active {number}",) for number in range(1, 31)}


class _Asking:
    """Calls back into the worker when the span of its stalled checks begins."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self.asked = 0
        self._ask = ask

    def start_span(self, name: str, *_: object, **__: object) -> Faulty:
        if "startStalledCheckTimer" in name:
            self._ask()
            self.asked += 1
        return Faulty("nowhere")

    def __getattr__(self, name: str) -> Any:
        return getattr(Faulty("nowhere"), name)


@pytest.mark.parametrize("what", ["snapshot", "pause", "resume", "close"])
def test_a_provider_may_ask_a_worker_of_threads_whatever_it_likes(server: Server, name: str, what: str) -> None:
    """No lock is held where the user's code runs."""
    done = threading.Event()

    def process(_: Any) -> None:
        """There is nothing to do."""

    def ask() -> None:
        if what == "pause":
            worker.pause(wait=False)
            worker.resume()
        else:
            getattr(worker, what)()

    provider: Any = _Asking(ask)
    with bullmq_sync.Queue[Any](name, server.url) as queue:
        worker = bullmq_sync.Worker[Any](name, process, server.url, telemetry=provider)
        worker.on(JobCompleted, lambda _: done.set())
        queue.add("n")
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        if what != "close":
            assert done.wait(_LIMIT_S)
            worker.close()
        thread.join(_LIMIT_S)
        assert not thread.is_alive()
        assert provider.asked == 1
        assert queue.get_job_counts("active")["active"] == 0
        queue.obliterate(force=True)


@pytest.mark.parametrize("what", ["snapshot", "pause", "aclose"])
@pytest.mark.anyio
async def test_a_provider_may_ask_a_worker_of_tasks_whatever_it_likes(server: Server, name: str, what: str) -> None:
    done = anyio.Event()

    async def process(_: Any) -> None:
        """There is nothing to do."""

    def ask() -> None:
        if what == "snapshot":
            worker.snapshot()
            worker.resume()
            return
        asked = worker.pause(wait=False) if what == "pause" else worker.aclose()
        with contextlib.suppress(StopIteration):
            # Neither waits within the worker.
            asked.send(None)
        asked.close()
        worker.resume()

    provider: Any = _Asking(ask)
    async with bullmq_anyio.Queue[Any](name, server.url) as queue:
        worker = bullmq_anyio.Worker[Any](name, process, server.url, telemetry=provider)
        worker.on(JobCompleted, lambda _: done.set())
        await queue.add("n")
        with anyio.fail_after(_LIMIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(worker.run)
                if what != "aclose":
                    await done.wait()
                    await worker.aclose()
        assert provider.asked == 1
        assert (await queue.get_job_counts("active"))["active"] == 0
        await queue.obliterate(force=True)
