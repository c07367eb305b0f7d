"""What real workers tell a metrics collector, on every adapter."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry

from bullmq_prometheus import PrometheusMetrics
from bullmq_protocol import JobOptions, WorkerOptions
from bullmq_protocol.errors import AuthenticationFailed, UnrecoverableError
from bullmq_protocol.observability.metrics import NoMetrics
from bullmq_protocol.operations.sample_lengths import QueueLengths
from bullmq_protocol.testing.conformance import Fault
from bullmq_protocol.worker.metering import METERED
from bullmq_protocol.worker.notices import Disconnected, JobCompleted, Reconnected, Renewed
from tests.support.adapters import Adapter
from tests.support.cut_proxy import CutProxy
from tests.support.servers import Server

pytestmark = pytest.mark.any_server

_LIMIT_S = 30


@pytest.fixture
async def queue(adapter: Adapter, server: Server, name: str) -> AsyncIterator[Any]:
    queue = adapter.Queue(name, server.url)
    yield queue
    await queue.obliterate(force=True)
    await queue.aclose()


class Prometheus:
    """A collector and what it shows about one queue."""

    def __init__(self, queue: str) -> None:
        self.registry = CollectorRegistry()
        self.metrics = PrometheusMetrics(self.registry)
        self._queue = queue

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"queue": self._queue, **labels})

    def connections(self) -> list[float | None]:
        """Return how many are connected, and how many are not."""
        return [
            self.registry.get_sample_value("bullmq_redis_connection_status", {"status": status})
            for status in ("connected", "disconnected")
        ]


@pytest.fixture
def shown(name: str) -> Prometheus:
    return Prometheus(name)


async def until(condition: Callable[[], bool], worker: Any) -> None:
    """Wait until the condition holds, looking again after each thing that is metered."""
    happened = anyio.Event()
    for kind in METERED:
        worker.on(kind, lambda notice: happened.set())
    with anyio.fail_after(_LIMIT_S):
        while not condition():
            await happened.wait()
            # Before the next look, so that nothing is missed between the two.
            happened = anyio.Event()


async def test_outcomes_and_lengths(adapter: Adapter, server: Server, queue: Any, name: str, shown: Prometheus) -> None:
    async def process(job: Any) -> str:
        if job.name == "bad":
            raise UnrecoverableError("never")
        if job.name == "flaky" and job.attempts_made == 0:
            raise ConnectionError("once")
        if job.name == "down":
            raise ConnectionError("always")
        return "done"

    for each in ("good", "bad", "flaky", "down"):
        await queue.add(each, options=JobOptions(attempts=2))
    lengths = QueueLengths(shown.metrics, queue.keys)
    assert (await queue.run(lengths.sample()))["waiting"] == 4
    assert shown("bullmq_queue_length", state="waiting") == 4
    worker = adapter.Worker(name, process, server.url, metrics_collector=shown.metrics, worker_id="w")

    def over() -> bool:
        statuses = [shown("bullmq_jobs_processed_total", status=status) for status in ("completed", "failed")]
        return statuses == [2, 2]

    async with worker:
        await until(over, worker)
        assert shown("bullmq_active_workers", worker_id="w") == 1
        assert shown.connections() == [1, 0]
    assert shown("bullmq_active_workers", worker_id="w") is None
    assert shown.connections() == [0, 0]
    assert shown("bullmq_jobs_processed_total", status="retried") == 2
    assert shown("bullmq_jobs_failed_total", reason="permanent") == 1
    assert shown("bullmq_jobs_failed_total", reason="transient_exhausted") == 1
    assert shown("bullmq_job_duration_seconds_count") == 6
    await queue.run(lengths.sample())
    assert [shown("bullmq_queue_length", state=state) for state in ("waiting", "completed", "failed")] == [0, 2, 2]


async def test_heartbeats(adapter: Adapter, server: Server, queue: Any, name: str, shown: Prometheus) -> None:
    renewed = anyio.Event()

    async def process(job: Any) -> None:
        with anyio.fail_after(_LIMIT_S):
            await renewed.wait()

    await queue.add("a")
    options = WorkerOptions(lock_renew_time=250)
    worker = adapter.Worker(name, process, server.url, options=options, metrics_collector=shown.metrics)
    worker.on(Renewed, lambda notice: renewed.set())
    async with worker:
        await until(lambda: shown("bullmq_jobs_processed_total", status="completed") == 1, worker)
    assert (shown("bullmq_heartbeat_success_total") or 0) >= 1
    assert shown("bullmq_lock_extend_duration_seconds_count") == shown("bullmq_heartbeat_success_total")
    assert shown("bullmq_heartbeat_failure_total") == 0


async def test_stalled_jobs(adapter: Adapter, server: Server, queue: Any, name: str, shown: Prometheus) -> None:
    await queue.add("a")
    dead = adapter.Worker(name, None, server.url, options=WorkerOptions(lock_duration=100))
    await dead.get_next_job()
    await dead.aclose()

    async def process(job: Any) -> None:
        pass

    options = WorkerOptions(stalled_interval=300)
    worker = adapter.Worker(name, process, server.url, options=options, metrics_collector=shown.metrics)
    async with worker:
        await until(lambda: shown("bullmq_jobs_processed_total", status="completed") == 1, worker)
    assert shown("bullmq_stalled_jobs_total") == 1


async def test_lost_connection(adapter: Adapter, server: Server, queue: Any, name: str, shown: Prometheus) -> None:
    with CutProxy(server.host, server.port) as proxy:
        back = anyio.Event()

        async def process(job: Any) -> None:
            # Only a renewal names the stalled set alone.
            proxy.arm(Fault.CUT_BEFORE, f"$1\r\n1\r\n${len(queue.keys.stalled)}\r\n{queue.keys.stalled}", times=2)
            with anyio.fail_after(_LIMIT_S):
                await back.wait()

        await queue.add("a")
        options = WorkerOptions(lock_renew_time=500, skip_stalled_check=True)
        worker = adapter.Worker(name, process, proxy.url, options=options, metrics_collector=shown.metrics)
        worker.on(Reconnected, lambda notice: back.set())
        seen: list[list[float | None]] = []
        worker.on(Disconnected, lambda notice: seen.append(shown.connections()))
        async with worker:
            await until(lambda: shown("bullmq_jobs_processed_total", status="completed") == 1, worker)
            assert shown.connections() == [1, 0]
    assert [0, 1] in seen
    assert (shown("bullmq_heartbeat_failure_total") or 0) >= 1
    assert (shown.registry.get_sample_value("bullmq_redis_reconnect_attempts_total") or 0) >= 1


async def test_nothing_is_left_of_a_worker_that_could_not_begin(
    adapter: Adapter, server: Server, name: str, shown: Prometheus
) -> None:
    url = server.url.replace("redis://", "redis://nobody:wrong@")
    with anyio.fail_after(_LIMIT_S), pytest.raises(AuthenticationFailed):
        await adapter.Worker(name, _nothing, url, metrics_collector=shown.metrics, worker_id="w").run()
    assert shown("bullmq_active_workers", worker_id="w") is None
    assert shown.connections() == [0, 0]


async def _nothing(job: Any) -> None:
    pass


class Broken(NoMetrics):
    """Raise wherever a worker tells something about itself or its jobs."""

    def job_processed(self, queue: str, status: str, /) -> None:
        raise RuntimeError("broken collector")

    def worker_active(self, queue: str, worker_id: str, active: bool, /) -> None:
        raise RuntimeError("broken collector")


async def test_a_broken_collector_does_no_harm(
    adapter: Adapter, server: Server, queue: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, adapter.logger)
    await queue.add("a")
    worker = adapter.Worker(name, _nothing, server.url, metrics_collector=Broken())
    done = anyio.Event()
    worker.on(JobCompleted, lambda notice: done.set())
    with anyio.fail_after(_LIMIT_S):
        async with worker:
            await done.wait()
    assert (await queue.get_job_counts("completed"))["completed"] == 1
    texts = [record.getMessage() for record in caplog.records]
    assert [text.split(": ", 1)[1] for text in texts] == [
        "the metrics collector raised",
        "a callback for JobCompleted raised",
        "the metrics collector raised",
    ]


async def test_jobs_taken_manually_are_counted(
    adapter: Adapter, server: Server, queue: Any, name: str, shown: Prometheus
) -> None:
    worker = adapter.Worker(name, None, server.url, metrics_collector=shown.metrics, worker_id="w")
    await queue.add("good")
    await queue.add("bad", options=JobOptions(attempts=2))
    await worker.complete(await worker.get_next_job(block=False), 1)
    await worker.fail(await worker.get_next_job(block=False), ValueError("once"))
    assert shown("bullmq_jobs_processed_total", status="retried") == 1
    await worker.fail(await worker.get_next_job(block=False), ValueError("twice"))
    assert [shown("bullmq_jobs_processed_total", status=status) for status in ("completed", "failed")] == [1, 1]
    assert shown("bullmq_jobs_failed_total", reason="permanent") == 1
    assert shown("bullmq_job_duration_seconds_count") == 3
    await worker.aclose()


async def test_a_collector_that_raises_does_no_harm_to_work_manually(
    adapter: Adapter, server: Server, queue: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(NoMetrics):
        def job_processed(self, queue: str, status: str) -> None:
            raise ValueError("broken")

    worker = adapter.Worker(name, None, server.url, metrics_collector=Broken(), worker_id="w")
    await queue.add("a")
    with caplog.at_level(logging.ERROR, adapter.logger):
        await worker.complete(await worker.get_next_job(block=False))
    assert "the metrics collector raised" in caplog.text
    assert await queue.get_job_state("1") == "completed"
    await worker.aclose()
