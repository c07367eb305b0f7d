"""What the log says of jobs that failed, and of handlers that block the event loop."""

import logging
import threading
from typing import Any

import anyio
import pytest

import bullmq_anyio
from bullmq_protocol import HandlerBlocked, JobOptions, Renewed, ReportRefused, WorkerOptions
from bullmq_protocol.observability.metrics import NoMetrics
from tests.support.adapters import Adapter
from tests.support.servers import Server

SECRET = "redis://:hunter2@host/0"


class Reasons(NoMetrics):
    def __init__(self) -> None:
        self.failed: list[str] = []

    def job_failed(self, queue: str, reason: Any, /) -> None:
        self.failed.append(reason)


async def send(job: Any) -> None:
    raise ValueError(job.data)


async def failing(adapter: Adapter, server: Server, name: str, data: str, **options: Any) -> list[str]:
    """Let a job fail twice, for good the second time; return the reasons that the metrics collector was told."""
    metrics = Reasons()
    async with adapter.Queue(name, server.url) as queue:
        await queue.add("welcome", data, JobOptions(attempts=2, job_id="mine"))
        options = {"options": WorkerOptions(**options), "metrics_collector": metrics}
        await adapter.Worker(name, send, server.url, **options).run(until="idle")
        await queue.obliterate(force=True)
    return metrics.failed


def of_failures(caplog: pytest.LogCaptureFixture, adapter: Adapter) -> list[logging.LogRecord]:
    return [each for each in caplog.records if each.name == adapter.logger and " failed" in each.msg]


async def test_the_last_failure_carries_the_traceback(
    adapter: Adapter, server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        reasons = await failing(adapter, server, name, "no such address")
    retried, last = of_failures(caplog, adapter)
    assert (retried.levelno, retried.exc_info) == (logging.WARNING, None)
    assert (last.levelno, last.msg) == (logging.ERROR, "job %s of %s failed, its attempts are exhausted: %s")
    assert last.args == ("mine", name, "ValueError: no such address")
    assert last.exc_info is not None
    text = logging.Formatter().format(last)
    assert "raise ValueError(job.data)" in text
    assert text.endswith("ValueError: no such address")
    for record, attempt in ((retried, 1), (last, 2)):
        found = vars(record)
        assert [found[each] for each in ("job_id", "job_name", "queue", "attempt", "error_type", "category")] == [
            *("mine", "welcome", name, attempt, "ValueError", "permanent")
        ]
    # A retry could not have helped, though it was tried.
    assert reasons == ["permanent"]


async def test_retries_carry_it_where_that_is_asked_for(
    adapter: Adapter, server: Server, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await failing(adapter, server, name, "no such address", trace_retries=True)
    texts = [logging.Formatter().format(each) for each in of_failures(caplog, adapter)]
    assert ["raise ValueError(job.data)" in text for text in texts] == [True, True]


async def test_no_login_is_shown(adapter: Adapter, server: Server, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await failing(adapter, server, name, f"cannot reach {SECRET}", trace_retries=True)
    records = of_failures(caplog, adapter)
    assert len(records) == 2
    for record in records:
        text = logging.Formatter().format(record) + repr(vars(record)) + repr(record.exc_info)
        assert "hunter2" not in text
        assert "raise ValueError(job.data)" in text
        assert "cannot reach" in text


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_handler_that_blocks_the_loop_is_named(
    server: Server, name: str, backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lock is gone when it returns: nothing could renew it."""
    told: list[Any] = []

    async def blocking(job: Any) -> None:
        # What an event loop is not to be: it waits for nobody.
        threading.Event().wait(0.6)

    async def main() -> None:
        options = WorkerOptions(lock_duration=200, stalled_interval=60_000, skip_stalled_check=True)
        worker = bullmq_anyio.Worker[Any](name, blocking, server.url, options=options)

        async def end(notice: ReportRefused) -> None:
            told.append(notice)
            await worker.aclose()

        worker.on(HandlerBlocked, told.append)
        worker.on(ReportRefused, end)
        async with bullmq_anyio.Queue[Any](name, server.url) as queue:
            await queue.add("x", None, JobOptions(job_id="mine"))
            await worker.run()
            await queue.obliterate(force=True)

    with caplog.at_level(logging.WARNING):
        anyio.run(main, backend=backend)
    blocked, refused = told
    assert blocked.job_ids == ("mine",)
    assert blocked.blocked_ms >= 600
    assert refused.blocked_ms >= 600
    lines = [each.getMessage() for each in caplog.records if "blocked" in each.getMessage()]
    late = f"for {blocked.blocked_ms} ms, so that locks were renewed late: job mine"
    held = f"nothing had renewed its lock for {refused.blocked_ms} ms: {refused.reason}"
    assert lines == [
        f"a handler blocked the worker of {name} {late}",
        f"the outcome of job mine of {name} was refused, as a handler had blocked the worker, and {held}",
    ]


async def test_a_handler_that_waits_is_not_named(adapter: Adapter, server: Server, name: str) -> None:
    told: list[HandlerBlocked] = []
    renewed = anyio.Event()

    async def handler(job: Any) -> None:
        await renewed.wait()

    options = WorkerOptions(lock_duration=1_000, concurrency=2)
    worker = adapter.Worker(name, handler, server.url, options=options)
    worker.on(HandlerBlocked, told.append)
    worker.on(Renewed, lambda notice: renewed.set())
    async with adapter.Queue(name, server.url) as queue:
        await queue.add("x")
        await worker.run(until="idle")
        await queue.obliterate(force=True)
    assert told == []
