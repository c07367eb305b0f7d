"""The recipes of docs/observability.md, with the real libraries, around workers that work."""

import io
import json
import logging
import threading
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import anyio
import anyio.to_thread
import pytest
import sentry_sdk
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

import bullmq_sync
from bullmq_anyio import Worker
from bullmq_otel import BullMQOtel
from bullmq_protocol import DelayedError, JobOptions
from bullmq_sync import Queue
from tests.support import pages
from tests.support.servers import Server

# What is looked at are records and events made in this process: the server has no part in them.
pytestmark = [pytest.mark.any_server, pytest.mark.any_python]

log = logging.getLogger("tests.application")
log.setLevel(logging.INFO)


def recipe(library: str, **changes: str) -> str:
    found = pages.snippets("observability.md")
    [code] = [each for each in found if f"import {library}" in each or f"from {library}" in each]
    for before, after in changes.items():
        assert before in code
        code = code.replace(before, after)
    return code


@pytest.fixture(autouse=True)
def _root_is_left_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers, root.level = handlers, level


def work(name: str, server: Server, worker: Any, backend: str = "asyncio") -> None:
    """Let a worker do the jobs."""
    with Queue[Any](name, server.url) as queue:
        for data, options in JOBS:
            queue.add("welcome", data, options)
        if isinstance(worker, bullmq_sync.Worker):
            worker.run(until="idle")
        else:

            async def run() -> None:
                await worker.run(until="idle")

            anyio.run(run, backend=backend)
        queue.obliterate(force=True)


async def greet(job: Any) -> None:
    log.info("write to %s", job.data)
    await anyio.to_thread.run_sync(log.info, "in a thread")
    if job.data == "nobody":
        raise ValueError("no such address")
    if job.data == "later":
        await job.move_to_delayed(job.timestamp + 3_600_000, job.token)
        raise DelayedError


def greet_on_thread(job: Any) -> None:
    log.info("write to %s", job.data)
    thread = threading.Thread(target=copy_context().run, args=(log.info, "in a thread"))
    thread.start()
    thread.join()
    if job.data == "nobody":
        raise ValueError("no such address")
    if job.data == "later":
        job.move_to_delayed(job.timestamp + 3_600_000, job.token)
        raise DelayedError


JOBS = [("ada", JobOptions(job_id="a")), ("nobody", JobOptions(job_id="b", attempts=2)), ("later", JobOptions())]


BACKENDS = pytest.mark.parametrize("backend", ["asyncio", "trio", "threads"])


def worker_of(backend: str, name: str, server: Server) -> Any:
    if backend == "threads":
        return bullmq_sync.Worker[Any](name, greet_on_thread, server.url)
    return Worker[Any](name, greet, server.url)


def on_threads(code: str) -> str:
    """Return a recipe as the page says it is on threads."""
    return code.replace("async def", "def").replace("await ", "").replace("bullmq_anyio", "bullmq_sync")


@BACKENDS
def test_structlog_shows_the_job_and_the_traceback(server: Server, name: str, backend: str) -> None:
    written = io.StringIO()
    made: dict[str, Any] = {"written": written}
    code = recipe("structlog").replace("StreamHandler()", "StreamHandler(written)")
    exec(on_threads(code) if backend == "threads" else code, made)
    work(name, server, worker_of(backend, name, server), backend)
    lines = [json.loads(line) for line in written.getvalue().splitlines() if line.startswith("{")]
    own = [line for line in lines if line["event"] in ("write to ada", "in a thread") and line["job_id"] == "a"]
    assert len(own) == 2
    for line in own:
        assert (line["job_name"], line["queue"], line["attempt"], line["level"]) == ("welcome", name, 1, "info")
    retried, last = [line for line in lines if line.get("error_type") == "ValueError"]
    assert "exception" not in retried
    assert (last["attempt"], last["level"], last["job_id"]) == (2, "error", "b")
    assert 'raise ValueError("no such address")' in last["exception"]


class Sent(Transport):
    """In place of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(event)


@BACKENDS
def test_sentry_gets_one_event_of_each_job_that_failed_for_good(server: Server, name: str, backend: str) -> None:
    sent = Sent()
    # Its other integrations patch threads, for ever.
    integrations = [LoggingIntegration()]
    sentry_sdk.init(
        "https://key@sentry.example/1", transport=sent, default_integrations=False, integrations=integrations
    )
    try:
        made: dict[str, Any] = {"send": greet_on_thread if backend == "threads" else greet}
        code = pages.with_server(recipe("sentry_sdk").replace('"mail"', repr(name)), server)
        exec(on_threads(code) if backend == "threads" else code, made)
        work(name, server, made["worker"], backend)
    finally:
        sentry_sdk.get_client().close()
        sentry_sdk.init(default_integrations=False)
    [event] = sent.events
    assert event["exception"]["values"][-1]["type"] == "ValueError"
    assert event["tags"] == {"queue": name, "job_name": "welcome"}
    assert event["contexts"]["job"] == {"id": "b", "attempt": 2}
    said = [each["message"] for each in event["breadcrumbs"]["values"] if each["category"] == "tests.application"]
    # Those of this attempt, and of no other job.
    assert said == ["write to nobody", "in a thread"]


def test_opentelemetry_gets_records_with_the_job_and_its_trace(server: Server, name: str) -> None:
    exporter = InMemoryLogRecordExporter()
    made: dict[str, Any] = {"Kept": lambda _: SimpleLogRecordProcessor(exporter)}
    exec(recipe("opentelemetry", **{"BatchLogRecordProcessor(Cons": "Kept(Cons"}), made)
    worker = Worker[Any](name, greet, server.url, telemetry=BullMQOtel("tests", tracer_provider=TracerProvider()))
    work(name, server, worker)
    made["provider"].shutdown()
    records = [each.log_record for each in exporter.get_finished_logs()]
    own = [each for each in records if each.attributes and each.body == "write to ada"]
    assert len(own) == 1
    assert {key: own[0].attributes[key] for key in ("job_id", "job_name", "queue", "attempt")} == {  # type: ignore[index]
        "job_id": "a",
        "job_name": "welcome",
        "queue": name,
        "attempt": 1,
    }
    assert own[0].trace_id
    [last] = [each for each in records if str(each.body).startswith("job b") and "exhausted" in str(each.body)]
    assert last.attributes is not None
    assert last.attributes["exception.type"] == "ValueError"
    assert 'raise ValueError("no such address")' in str(last.attributes["exception.stacktrace"])
