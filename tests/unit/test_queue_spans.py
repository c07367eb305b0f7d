"""The spans of a queue's methods, in both packages: names, kinds and attributes, whatever becomes of the call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import anyio
import pytest

import bullmq_anyio
import bullmq_sync
from bullmq_protocol import JobOptions, NewJob, RepeatOptions, UsageError
from bullmq_protocol.errors import ServerError
from bullmq_protocol.model.flow import FlowNode
from bullmq_protocol.observability.job_context import flow_span
from bullmq_protocol.observability.telemetry import Attributes, SpanKind
from bullmq_protocol.testing.scripted import AsyncScriptedTransport, ScriptedTransport

PACKAGES = {
    "anyio": (bullmq_anyio.Queue, bullmq_anyio.FlowProducer, AsyncScriptedTransport),
    "sync": (bullmq_sync.Queue, bullmq_sync.FlowProducer, ScriptedTransport),
}


class Span:
    def __init__(self, name: str, kind: SpanKind, attributes: Attributes) -> None:
        self.name, self.kind, self.attributes = name, kind, dict(attributes)
        self.ended = False

    def metadata(self) -> str:
        return "C"

    def set_attributes(self, attributes: Attributes) -> None:
        self.attributes.update(attributes)

    def add_event(self, name: str, attributes: Attributes) -> None:
        raise AssertionError("a queue adds no events")

    def record_exception(self, error: BaseException | str) -> None:
        assert str(error)

    def active(self) -> AbstractContextManager[object, bool | None]:
        return nullcontext()

    def end(self) -> None:
        self.ended = True


class Provider:
    def __init__(self) -> None:
        self.spans: list[Span] = []

    def start_span(self, name: str, kind: SpanKind, attributes: Attributes, *, parent: str | None = None) -> Span:
        self.spans.append(Span(name, kind, attributes))
        return self.spans[-1]


CALLS: list[tuple[Callable[[Any], Any], str, str, dict[str, Any]]] = [
    (
        lambda q: q.remove("7"),
        "remove q",
        "internal",
        {"bullmq.job.id": "7", "bullmq.job.options": '{"removeChildren":true}'},
    ),
    (
        lambda q: q.update_job_progress("7", {"a": 1}),
        "updateJobProgress q",
        "internal",
        {"bullmq.job.id": "7", "bullmq.job.progress": '{"a":1}'},
    ),
    (lambda q: q.pause(), "pause q", "internal", {}),
    (lambda q: q.resume(), "resume q", "internal", {}),
    (lambda q: q.drain(), "drain q", "internal", {"bullmq.queue.drain.delay": False}),
    (lambda q: q.drain(delayed=True), "drain q", "internal", {"bullmq.queue.drain.delay": True}),
    (
        lambda q: q.clean(5, 3, "failed"),
        "clean q",
        "internal",
        {"bullmq.queue.grace": 5, "bullmq.job.type": "failed", "bullmq.queue.clean.limit": 3},
    ),
    (lambda q: q.obliterate(), "obliterate q", "internal", {}),
    (
        lambda q: q.retry_jobs("completed", count=3, timestamp=9),
        "retryJobs q",
        "producer",
        {"bullmq.queue.options": '{"state":"completed","count":3,"timestamp":9}'},
    ),
    (
        lambda q: q.retry_jobs(count=3),
        "retryJobs q",
        "producer",
        {"bullmq.queue.options": '{"state":"failed","count":3}'},
    ),
    (lambda q: q.promote_jobs(count=3), "promoteJobs q", "internal", {"bullmq.queue.options": '{"count":3}'}),
    (lambda q: q.trim_events(5), "trimEvents q", "internal", {"bullmq.queue.event.max.length": 5}),
    (lambda q: q.rate_limit(50), "rateLimit q", "internal", {"bullmq.queue.rate.limit": 50}),
    (
        lambda q: q.remove_deduplication_key("d"),
        "removeDeduplicationKey q",
        "internal",
        {"bullmq.job.deduplication.key": "d"},
    ),
    (
        lambda q: q.upsert_job_scheduler("s", RepeatOptions(every=5), "jn"),
        "add q.jn",
        "producer",
        {"bullmq.job.scheduler.id": "s"},
    ),
    (
        lambda q: q.upsert_job_scheduler("s", RepeatOptions(every=5)),
        "add q.s",
        "producer",
        {"bullmq.job.scheduler.id": "s"},
    ),
    (
        lambda q: q.remove_repeatable("jn", RepeatOptions(every=5), "7"),
        "removeRepeatable q.jn",
        "internal",
        {"bullmq.job.name": "jn", "bullmq.job.id": "7"},
    ),
    (
        lambda q: q.remove_repeatable("jn", RepeatOptions(every=5)),
        "removeRepeatable q.jn",
        "internal",
        {"bullmq.job.name": "jn"},
    ),
    (
        lambda q: q.remove_repeatable_by_key("k"),
        "removeRepeatableByKey q",
        "internal",
        {"bullmq.job.key": "k"},
    ),
    (
        lambda q: q.add_bulk([NewJob("a"), NewJob("b")]),
        "addBulk q",
        "producer",
        {"bullmq.job.bulk.names": ["a", "b"], "bullmq.job.bulk.count": 2},
    ),
]


def attempted(call: Callable[[Any], Any], target: Any) -> BaseException | None:
    """Call it, and return what it raised."""

    async def attempt() -> None:
        found = call(target)
        if inspect.isawaitable(found):
            await found

    try:
        anyio.run(attempt)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("call", "name", "kind", "attributes"), CALLS, ids=[each[1] for each in CALLS])
def test_the_span_of_a_call(
    package: str, call: Callable[[Any], Any], name: str, kind: str, attributes: dict[str, Any]
) -> None:
    make, _, transport = PACKAGES[package]
    provider = Provider()
    # No reply is there: the call fails after its span has begun.
    attempted(call, make("q", transport([]), skip_meta_update=True, telemetry=provider))
    [span] = provider.spans
    assert (span.name, span.kind, span.ended) == (name, kind, True)
    assert span.attributes.pop("bullmq.queue.name") == "q"
    assert span.attributes.pop("bullmq.queue.operation") == name.split(" ")[0]
    assert span.attributes == attributes


LONG = "x" * 300


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.remove_deduplication_key(LONG),
        lambda q: q.get_deduplication_job_id(LONG),
        lambda q: q.get_dependencies(LONG, "pending"),
        lambda q: q.remove_repeatable_by_key(LONG),
        lambda q: q.get_job(LONG),
    ],
)
def test_what_others_have_named_may_be_long(package: str, call: Callable[[Any], Any]) -> None:
    make, _, transport = PACKAGES[package]
    error = attempted(call, make("q", transport([]), skip_meta_update=True))
    assert error is not None and not isinstance(error, UsageError)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_id_of_a_flow_may_be_long(package: str) -> None:
    _, make, transport = PACKAGES[package]
    error = attempted(lambda flows: flows.get_flow(LONG, "q"), make(transport([])))
    assert error is not None and not isinstance(error, UsageError)


@pytest.mark.parametrize("package", PACKAGES)
def test_default_options_are_checked_when_a_queue_is_made(package: str) -> None:
    make, _, transport = PACKAGES[package]
    with pytest.raises(UsageError) as caught:
        make("q", transport([]), default_job_options=JobOptions(attempts=0))
    assert (caught.value.field, caught.value.value) == ("attempts", 0)


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize(("length", "warned"), [(10, True), (100_000, False)])
def test_a_short_stream_of_events_is_warned_of(
    package: str, length: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    make, _, transport = PACKAGES[package]
    with caplog.at_level(logging.WARNING):
        make("q", transport([]), max_len_events=length)
    assert (f"max_len_events: {length} is short" in caplog.text) is warned


@pytest.mark.parametrize("package", PACKAGES)
def test_the_id_of_a_scheduler_is_named(package: str) -> None:
    make, _, transport = PACKAGES[package]
    queue = make("q", transport([]), skip_meta_update=True)
    error = attempted(lambda q: q.upsert_job_scheduler("", RepeatOptions(every=5)), queue)
    assert isinstance(error, UsageError) and (error.field, error.value) == ("scheduler_id", "")


def test_the_span_of_a_flow() -> None:
    provider = Provider()
    root = FlowNode("root", "q", children=(FlowNode("leaf", "q"),))
    with flow_span(provider, root):
        pass
    (span,) = provider.spans
    assert (span.name, span.kind) == ("addFlow q", "producer")
    assert span.attributes["bullmq.flow.name"] == "root"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_span_of_the_caller_goes_into_the_template_of_a_scheduler(package: str) -> None:
    make, _, transport = PACKAGES[package]
    for provider, stored in ((Provider(), True), (None, False)):
        script = transport([])
        queue = make("q", script, skip_meta_update=True, telemetry=provider)
        attempted(lambda q: q.upsert_job_scheduler("s", RepeatOptions(every=5000)), queue)
        (sent,) = [step for step in script.sent if getattr(step, "name", "") == "addJobScheduler"]
        assert any(isinstance(arg, bytes) and b"\xa2tm\xa1C" in arg for arg in sent.args) is stored


@pytest.mark.parametrize("package", PACKAGES)
def test_warnings_name_queue_and_scheduler(package: str, caplog: pytest.LogCaptureFixture) -> None:
    make, _, transport = PACKAGES[package]
    queue = make("q", transport([]), skip_meta_update=True)
    with caplog.at_level(logging.WARNING):
        attempted(lambda q: q.upsert_job_scheduler("s", RepeatOptions(every=5000, immediately=True)), queue)
    assert "queue q, job scheduler s: " in caplog.text


@pytest.mark.parametrize("package", PACKAGES)
def test_a_queue_says_that_it_could_not_describe_itself(package: str, caplog: pytest.LogCaptureFixture) -> None:
    make, _, transport = PACKAGES[package]
    queue = make("q", transport([(None, ServerError("NOPERM no meta"))]))
    with caplog.at_level(logging.WARNING):
        attempted(lambda q: q.get_job("1"), queue)
    assert "queue q: its meta hash could not be written: NOPERM no meta" in caplog.text


@pytest.mark.parametrize("package", PACKAGES)
def test_a_bad_job_among_several_is_shown(package: str) -> None:
    make, _, transport = PACKAGES[package]
    queue = make("q", transport([]), skip_meta_update=True)
    jobs = [NewJob("n"), NewJob("n", options=JobOptions(priority=-1))]
    error = attempted(lambda q: q.add_bulk(jobs), queue)
    assert isinstance(error, UsageError)
    assert (error.field, error.value) == ("jobs[1]: priority", -1)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_duration_of_a_lock_is_named(package: str) -> None:
    make, _, transport = PACKAGES[package]
    script = transport([(None, [b"name", b"n", b"data", b"{}"])])
    found: list[Any] = []

    async def read(queue: Any) -> None:
        job = queue.get_job("1")
        found.append(await job if inspect.isawaitable(job) else job)

    assert attempted(read, make("q", script, skip_meta_update=True)) is None
    error = attempted(lambda job: job.extend_lock("x"), found[0])
    assert isinstance(error, UsageError) and (error.field, error.value) == ("duration", "x")


@pytest.mark.parametrize("module", [bullmq_anyio, bullmq_sync])
def test_an_address_says_what_connects(module: Any) -> None:
    assert "Cluster" in type(module.connect("redis+cluster://h:1")).__name__
    assert "Sentinel" in type(module.connect("redis+sentinel://h:1/m")).__name__


@pytest.mark.parametrize("module", [bullmq_anyio, bullmq_sync])
def test_a_folder_without_scripts_is_shown(module: Any) -> None:
    with pytest.raises(UsageError) as caught:
        module.bullmq_scripts("/nowhere")
    assert (caught.value.field, caught.value.value) == ("folder", "/nowhere")
