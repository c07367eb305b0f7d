"""Which spans a worker, a queue and a flow make, seen by a provider that notes everything."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

import pytest

from bullmq_protocol.command import Command
from bullmq_protocol.commands.locks import extend_locks, move_stalled_jobs_to_wait
from bullmq_protocol.commands.queues import ping
from bullmq_protocol.commands.schedulers import update_job_scheduler
from bullmq_protocol.common.codec import pack
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant
from bullmq_protocol.model.failure import Failure, FailureKind, failure_of
from bullmq_protocol.model.flow import FlowNode, prepare_flow
from bullmq_protocol.model.job import JobRecord, NewJob
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.model.options import JobOptions, Telemetry
from bullmq_protocol.model.schedule import RepeatOptions, prepare_scheduler
from bullmq_protocol.observability.job_context import (
    FlowTracing,
    bulk_span,
    context_of,
    flow_span,
    names_of,
    new_with_context,
    omits_context,
    with_context,
)
from bullmq_protocol.observability.telemetry import NO_SPAN, Attributes, SpanKind, TelemetrySpan, Tracing, guarded
from bullmq_protocol.worker.events import JobRaised
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.manual import ManualWork
from bullmq_protocol.worker.notices import (
    ClosedNotice,
    JobActive,
    JobCompleted,
    JobFailed,
    JobMoved,
    Paused,
    ReportRefused,
    WorkerProblem,
)
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.outcome import failure_report
from bullmq_protocol.worker.tracing import WorkerTracing

KEYS = QueueKeys.of("q")
C = "C"


class Span:
    def __init__(self, provider: Provider, name: str, kind: str, attributes: Attributes, parent: str | None) -> None:
        self.provider = provider
        self.name = name
        self.kind = kind
        self.attributes = dict(attributes)
        self.parent = parent
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.errors: list[str] = []
        self.ended = 0

    def metadata(self) -> str:
        return f"of {self.name}"

    def set_attributes(self, attributes: Attributes) -> None:
        self.attributes.update(attributes)

    def add_event(self, name: str, attributes: Attributes) -> None:
        self.events.append((name, dict(attributes)))

    def record_exception(self, error: BaseException | str) -> None:
        self.errors.append(str(error))

    def active(self) -> AbstractContextManager[object, bool | None]:
        return self.provider.inside(self)

    def end(self) -> None:
        self.ended += 1


class Provider:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.current: list[Span] = []

    def start_span(
        self, name: str, kind: SpanKind, attributes: Attributes, *, parent: str | None = None
    ) -> TelemetrySpan:
        above = self.current[-1].name if self.current and parent is None else parent
        self.spans.append(Span(self, name, kind, attributes, above))
        return self.spans[-1]

    @contextmanager
    def inside(self, span: Span) -> Any:
        self.current.append(span)
        yield
        self.current.pop()

    def named(self, name: str) -> Span:
        [span] = [span for span in self.spans if span.name == name]
        return span


def record(telemetry: str = "{}", **fields: str) -> JobRecord:
    texts = {"name": "n", "data": "{}", "opts": telemetry, "processedOn": "5", **fields}
    return JobRecord.from_fields("1", {name: text.encode() for name, text in texts.items()})


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def make(provider: Provider) -> Callable[..., WorkerTracing]:
    def make(**options: Any) -> WorkerTracing:
        settings, _ = WorkerOptions(**options).checked()
        machine = WorkerMachine(KEYS, settings, "w")
        return WorkerTracing(provider, machine, settings, queue="q", worker_id="me", now=lambda: Instant(7, 1))

    return make


@pytest.fixture
def tracing(make: Callable[..., WorkerTracing]) -> WorkerTracing:
    return make(name="w")


def raised(error: BaseException) -> JobRaised:
    return JobRaised(0, failure_of(error, stack="", now_ms=0), 0.5)


# --- a worker's jobs ----------------------------------------------------------------------------------------------


def test_a_completed_job(tracing: WorkerTracing, provider: Provider) -> None:
    job = record('{"tm":"C"}')
    tracing(JobActive(job))
    with tracing.running(job):
        assert [span.name for span in provider.current] == ["process q"]
    tracing.returned(job)
    tracing(JobCompleted(job, "1", 3))
    process, complete = provider.spans
    assert (process.kind, process.parent, complete.name, complete.parent) == ("consumer", C, "complete q", "process q")
    assert process.events == [("job completed", {"bullmq.job.result": "1"})]
    assert process.attributes["bullmq.job.finished.timestamp"] == 7
    assert process.attributes["bullmq.job.processed.timestamp"] == 5
    assert (process.ended, complete.ended) == (1, 1)


@pytest.mark.parametrize(
    ("options", "word"),
    [("{}", "fail"), ('{"attempts":2}', "retry"), ('{"attempts":2,"backoff":{"type":"fixed","delay":9}}', "delay")],
)
def test_a_failed_attempt(tracing: WorkerTracing, provider: Provider, options: str, word: str) -> None:
    job = record(options)
    tracing(JobActive(job))
    event = tracing.raised(job, raised(ValueError("boom")))
    assert event.telemetry == f"of {word} q"
    tracing(JobFailed(job, "boom", 1, None, exhausted=True, permanent=False, duration_ms=1))
    assert [(span.name, span.ended) for span in provider.spans] == [("process q", 1), (f"{word} q", 1)]
    assert provider.spans[0].events == [("job failed", {"bullmq.job.failed.reason": "boom"})]


def test_context_is_left_out_of_failures(tracing: WorkerTracing) -> None:
    job = record('{"omc":true}')
    tracing(JobActive(job))
    assert tracing.raised(job, raised(ValueError("boom"))).telemetry is None


def test_a_cancelled_job_makes_no_report(tracing: WorkerTracing, provider: Provider) -> None:
    job = record(processedOn="")
    tracing(JobActive(job))
    event = JobRaised(0, Failure(kind=FailureKind.CANCELLED, message="closed"), 0.5)
    assert tracing.raised(job, event) is event
    tracing(JobMoved(job, "given-back"))
    [span] = provider.spans
    assert (span.ended, span.events) == (1, [])
    assert "bullmq.job.processed.timestamp" not in span.attributes


def test_a_job_that_had_failed_before(tracing: WorkerTracing, provider: Provider) -> None:
    job = record()
    tracing(JobActive(job))
    tracing(JobFailed(job, "child", 1, None, exhausted=False, permanent=True, duration_ms=1))
    assert [(span.name, span.ended) for span in provider.spans] == [("process q", 1), ("fail q", 1)]


def test_a_refused_report_is_reported_as_text(tracing: WorkerTracing, provider: Provider) -> None:
    job = record()
    tracing(JobActive(job))
    tracing.returned(job)
    tracing(ReportRefused(job, "lost", False))
    assert [(span.errors, span.ended) for span in provider.spans] == [(["lost"], 1), (["lost"], 1)]


def test_problems_end_the_span_of_a_job_that_is_gone(tracing: WorkerTracing, provider: Provider) -> None:
    job, other = record(), JobRecord.from_fields("2", {})
    tracing(JobActive(job))
    tracing(JobActive(other))
    tracing(WorkerProblem("of none"))
    tracing(WorkerProblem("gone", "1"))
    assert [(span.errors, span.ended) for span in provider.spans] == [(["gone"], 1), ([], 0)]
    tracing(ClosedNotice())
    assert [span.ended for span in provider.spans] == [1, 1]


def test_problems_of_a_job_that_is_held_do_not_end_its_span(
    tracing: WorkerTracing, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerMachine, "holds", lambda machine, job: True)
    tracing(JobActive(record()))
    tracing(WorkerProblem("busy", "1"))
    assert [(span.errors, span.ended) for span in provider.spans] == [(["busy"], 0)]


def test_what_is_not_known_is_passed_over(tracing: WorkerTracing, provider: Provider) -> None:
    job = record()
    with tracing.running(job):
        tracing.returned(job)
    tracing(JobCompleted(job, "1", 1))
    tracing(JobFailed(job, "x", 1, None, exhausted=True, permanent=False, duration_ms=1))
    tracing(ReportRefused(job, "lost", False))
    tracing(Paused())
    assert provider.spans == []


# --- a worker's calls and methods ---------------------------------------------------------------------------------


def called(tracing: WorkerTracing, command: Command[Any], reply: Any) -> None:
    with tracing.call(0, command) as replied:
        replied.reply = reply


def test_a_stalled_check(tracing: WorkerTracing, provider: Provider) -> None:
    check = move_stalled_jobs_to_wait(KEYS, max_stalled_count=1, now=0, interval_ms=1)
    tracing.started()
    called(tracing, check, [b"1", b"2"])
    timer, span = provider.spans
    assert (timer.name, timer.ended, span.parent) == ("startStalledCheckTimer q", 1, timer.name)
    assert "bullmq.worker.id" in timer.attributes
    assert span.attributes["bullmq.worker.stalled.jobs"] == ["1", "2"]
    assert span.events == [("job stalled", {"bullmq.job.id": "1"}), ("job stalled", {"bullmq.job.id": "2"})]
    called(tracing, check, 5)
    assert provider.spans[-1].attributes["bullmq.worker.stalled.jobs"] == []


def test_without_stalled_checks_there_is_no_timer(make: Callable[..., WorkerTracing], provider: Provider) -> None:
    make(skip_stalled_check=True).started()
    assert provider.spans == []


def test_renewals_and_other_calls(tracing: WorkerTracing, provider: Provider) -> None:
    called(tracing, extend_locks(KEYS, job_ids=["1", "2"], tokens=["a", "b"], lock_ms=1), [])
    called(tracing, ping(), "PONG")
    [span] = provider.spans
    assert (span.name, span.attributes["bullmq.worker.jobs.to.extend.locks"]) == ("extendLocks q", ["1", "2"])


@pytest.mark.parametrize(("reply", "job_id"), [(b"repeat:s:9", "repeat:s:9"), (None, None)])
def test_the_next_job_of_a_scheduler(
    tracing: WorkerTracing, provider: Provider, reply: Any, job_id: str | None
) -> None:
    command = update_job_scheduler(KEYS, "s", producer_id="1", data_text="{}", packed_options=pack({}), now=0)
    called(tracing, command, reply)
    [span] = provider.spans
    assert (span.name, span.kind, span.attributes["bullmq.job.scheduler.id"]) == ("add q.", "producer", "s")
    assert span.attributes.get("bullmq.job.id") == job_id


def test_a_call_that_fails_is_recorded(tracing: WorkerTracing, provider: Provider) -> None:
    command = extend_locks(KEYS, job_ids=["1"], tokens=["a"], lock_ms=1)
    with pytest.raises(ValueError, match="lost"), tracing.call(0, command):
        raise ValueError("lost")
    assert (provider.spans[0].errors, provider.spans[0].ended) == (["lost"], 1)


def test_manual_work(make: Callable[..., WorkerTracing], provider: Provider) -> None:
    tracing = make()
    settings, _ = WorkerOptions().checked()
    job = record('{"tm":"C"}')
    tracing.taken(job, block=True)
    with tracing.completing(), tracing.own("pause"):
        pass
    failure = failure_of(ValueError("boom"), stack="", now_ms=0)
    with tracing.failing(failure_report(job, failure, settings, roll=0.5)) as span:
        operation = ManualWork(KEYS, settings).fail(job, "t", failure, roll=0.5, telemetry=span.metadata())
        operation.send(None)
        command = operation.send(Instant(1, 1))
    assert isinstance(command, Command)
    assert b"of fail q" in b"".join(arg for arg in command.args if isinstance(arg, bytes))
    assert [(span.name, span.parent) for span in provider.spans] == [
        ("getNextJob q", C),
        ("complete q", None),
        ("pause q", "complete q"),
        ("fail q", None),
    ]
    assert "bullmq.worker.name" not in provider.spans[0].attributes


# --- producers ----------------------------------------------------------------------------------------------------


def test_a_span_without_destination(provider: Provider) -> None:
    with Tracing(provider, "").span("addBulkFlows"):
        pass
    assert [span.name for span in provider.spans] == ["addBulkFlows"]


def test_no_span_does_nothing() -> None:
    with NO_SPAN as span, span.active():
        span.set_attributes({"a": 1})
        span.add_event("e", {})
        span.record_exception("x")
        span.end()
        assert span.metadata() == ""


OMIT = Telemetry(omit_context=True)
OWN = Telemetry(metadata="M")
BOTH = Telemetry(metadata="M", omit_context=True)


@pytest.mark.parametrize(
    ("given", "replacing", "expected"),
    [
        (None, False, Telemetry(metadata=C)),
        (None, True, Telemetry(metadata=C)),
        (OWN, False, OWN),
        (OWN, True, Telemetry(metadata=C)),
        (Telemetry(metadata=""), False, Telemetry(metadata=C)),
        (Telemetry(omit_context=False), False, Telemetry(metadata=C, omit_context=False)),
        (OMIT, False, OMIT),
        (OMIT, True, OMIT),
        (BOTH, False, BOTH),
        (BOTH, True, BOTH),
    ],
)
def test_which_context_is_stored(given: Telemetry | None, replacing: bool, expected: Telemetry) -> None:
    options = JobOptions() if given is None else JobOptions(telemetry=given)
    assert with_context(options, C, replacing=replacing).telemetry == expected
    if not replacing:
        assert new_with_context(NewJob("a", options=options), C).options.telemetry == expected


def test_what_will_be_refused_is_left_as_it_is() -> None:
    assert with_context({"delay": 1}, C) == {"delay": 1}
    assert new_with_context("job", C) == "job"
    assert names_of([NewJob(JobType("a")), NewJob("b"), cast("NewJob", 3)]) == ["a", "b", ""]


@pytest.mark.parametrize(
    ("stored", "context", "omitted"),
    [
        ("{}", None, False),
        ('{"tm":"C"}', C, False),
        ('{"tm":""}', None, False),
        ('{"tm":false,"omc":true}', None, True),
        ('{"omc":true}', None, True),
        ('{"tm":"C","omc":false}', C, False),
    ],
)
def test_what_came_with_a_job(stored: str, context: str | None, omitted: bool) -> None:
    assert (context_of(record(stored)), omits_context(record(stored))) == (context, omitted)


def test_a_flow(provider: Provider) -> None:
    given = JobOptions(attempts=2)
    root = FlowNode("root", "q", options=given, children=[FlowNode("a", "q2", options=given), FlowNode("b", "q")])
    nodes = FlowTracing(provider)
    with flow_span(provider, root):
        ids = iter("123")
        flow = prepare_flow([root], new_id=lambda: next(ids), now_ms=0, options_of=nodes.options_of)
        nodes.end(flow.nodes)
    assert [(span.name, span.parent, span.ended) for span in provider.spans] == [
        ("addFlow q", None, 1),
        ("addNode q", "addFlow q", 1),
        ("addNode q2", "addNode q", 1),
        ("addNode q", "addNode q", 1),
    ]
    assert provider.spans[2].attributes["bullmq.job.id"] == "2"
    stored = [node.job.options.telemetry for node in flow.nodes]
    assert stored[:2] == [Telemetry(metadata="of addNode q"), Telemetry(metadata="of addNode q2")]
    assert not isinstance(stored[2], Telemetry)


def test_a_flow_that_is_refused(provider: Provider) -> None:
    nodes = FlowTracing(provider)
    with bulk_span(provider, [FlowNode("a", "q"), FlowNode("b", "q")]):
        nodes.options_of(FlowNode("a", "q"), -1)
        nodes.end(())
    bulk, node = provider.spans
    assert (bulk.name, bulk.kind) == ("addBulkFlows", "producer")
    assert (bulk.attributes["bullmq.job.bulk.names"], bulk.attributes["bullmq.job.bulk.count"]) == ("a,b", 2)
    assert (node.ended, "bullmq.job.id" in node.attributes) == (1, False)


@pytest.mark.parametrize(
    ("given", "first"), [(JobOptions(), C), (JobOptions(telemetry=OWN), "M"), (JobOptions(telemetry=OMIT), None)]
)
def test_a_scheduler_keeps_the_context_out_of_its_template(given: JobOptions, first: str | None) -> None:
    prepared = prepare_scheduler(
        KEYS,
        "s",
        RepeatOptions(every=1000),
        NewJob("n", options=given),
        now_ms=0,
        zones=lambda name: None,  # type: ignore[arg-type, return-value]
        metadata=C,
    )
    assert prepared is not None
    assert prepared.options.get("tm") == first
    assert prepared.template.get("tm") == ("M" if first == "M" else None)


class Faulty(Provider):
    """Raises in one of its places, or in all of them."""

    def __init__(self, error: BaseException, place: str) -> None:
        super().__init__()
        self.error = error
        self.place = place

    def at(self, place: str) -> None:
        if self.place in (place, "everywhere"):
            raise self.error

    def start_span(
        self, name: str, kind: SpanKind, attributes: Attributes, *, parent: str | None = None
    ) -> TelemetrySpan:
        self.at("start_span")
        return FaultySpan(self, name, kind, attributes, parent)

    def inside(self, span: Span) -> Any:
        self.at("active")
        return FaultyBlock(self)


class FaultySpan(Span):
    provider: Faulty

    def metadata(self) -> str:
        self.provider.at("metadata")
        return super().metadata()

    def set_attributes(self, attributes: Attributes) -> None:
        self.provider.at("set_attributes")

    def add_event(self, name: str, attributes: Attributes) -> None:
        self.provider.at("add_event")

    def record_exception(self, error: BaseException | str) -> None:
        self.provider.at("record_exception")

    def end(self) -> None:
        self.provider.at("end")


class FaultyBlock:
    def __init__(self, provider: Faulty) -> None:
        self.provider = provider

    def __enter__(self) -> None:
        self.provider.at("enter")

    def __exit__(self, *error: object) -> bool:
        self.provider.at("exit")
        return True


PLACES = ("start_span", "metadata", "set_attributes", "add_event", "record_exception", "active", "enter", "exit", "end")


def around(provider: Any, outcome: BaseException | None) -> str:
    """Do what a worker does around a call; return the context."""
    with Tracing(provider, "q").span("op") as span:
        span.set_attributes({"a": 1})
        span.add_event("e", {})
        metadata = span.metadata()
        if outcome is not None:
            raise outcome
    return metadata


@pytest.mark.parametrize("error", [ValueError("v"), SystemExit(1), GeneratorExit(), BaseException("b")], ids=repr)
@pytest.mark.parametrize("place", PLACES)
def test_what_a_provider_raises_is_reported_and_does_no_harm(place: str, error: BaseException) -> None:
    reported: list[BaseException] = []
    provider = guarded(Faulty(error, place), reported.append)
    assert around(provider, None) == ("" if place in ("start_span", "metadata") else "of op q")
    # What the body raises goes on, whatever the provider makes of it.
    failure = LookupError("the body's")
    with pytest.raises(LookupError) as found:
        around(provider, failure)
    assert found.value is failure
    assert reported == [error] * (1 if place == "record_exception" else 2)


def test_what_is_to_go_on_is_raised_by_the_report() -> None:
    interrupt = KeyboardInterrupt()

    def report(error: BaseException) -> None:
        raise error

    for place in PLACES:
        provider = guarded(Faulty(interrupt, place), report)
        with pytest.raises(KeyboardInterrupt) as found:
            around(provider, LookupError() if place == "record_exception" else None)
        assert found.value is interrupt


class Odd(Provider):
    """Returns what it should not."""

    def __init__(self, metadata: Any) -> None:
        super().__init__()
        self.metadata = metadata

    def start_span(self, *args: Any, **named: Any) -> Any:
        span: Any = Span(self, "odd", "internal", {}, None)
        span.metadata = lambda: self.metadata
        return span


@pytest.mark.parametrize("metadata", [None, 7, b"{}", "\ud800"], ids=repr)
def test_a_context_that_is_no_text_is_reported_and_not_stored(metadata: Any) -> None:
    reported: list[BaseException] = []
    provider = guarded(Odd(metadata), reported.append)
    assert around(provider, None) == ""
    assert [isinstance(error, (TypeError, UnicodeError)) for error in reported] == [True]


def test_a_guarded_provider_without_faults_does_the_same(provider: Provider) -> None:
    reported: list[BaseException] = []
    safe: Any = guarded(provider, reported.append)
    assert around(safe, None) == "of op q"
    with pytest.raises(LookupError):
        around(safe, LookupError("body"))
    assert [(span.name, span.errors, span.ended) for span in provider.spans] == [
        ("op q", [], 1),
        ("op q", ["body"], 1),
    ]
    with Tracing(safe, "q").span("outer"), Tracing(safe, "q").span("inner"):
        pass
    assert provider.named("inner q").parent == "outer q"
    assert reported == []
    assert guarded(None, reported.append) is None


def test_without_a_context_options_stay_as_they_are() -> None:
    options = JobOptions(attempts=2)
    assert with_context(options, "") is options
    given = JobOptions(telemetry=Telemetry(metadata="own"))
    assert with_context(given, "", replacing=True) is given


@pytest.mark.parametrize("place", [*PLACES, "everywhere"])
def test_a_worker_goes_on_without_the_spans_of_a_faulty_provider(place: str) -> None:
    reported: list[BaseException] = []
    provider: Any = guarded(Faulty(SystemExit(1), place), reported.append)
    settings, _ = WorkerOptions().checked()
    machine = WorkerMachine(KEYS, settings, "w")
    tracing = WorkerTracing(provider, machine, settings, queue="q", worker_id="me", now=lambda: Instant(7, 1))
    tracing.started()
    job = record()
    tracing(JobActive(job))
    with tracing.running(job):
        pass
    tracing.returned(job)
    event = raised(ValueError("v"))
    attempt = tracing.raised(job, event)
    assert attempt.failure == event.failure
    has_none = place in ("start_span", "metadata", "everywhere")
    assert attempt.telemetry == (None if has_none else "of fail q")
    tracing(JobFailed(job, "reason", 1, None, exhausted=True, permanent=False, duration_ms=1))
    tracing(ClosedNotice())
    with tracing.own("pause"):
        pass
    assert bool(reported) == (place != "record_exception")


class HandsOn(Provider):
    """Its block raises again what the body raised."""

    def inside(self, span: Span) -> Any:
        class Block:
            def __enter__(self) -> None: ...

            def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
                if error is not None:
                    raise error

        return Block()


def test_a_block_that_hands_on_what_the_body_raised_has_no_fault_of_its_own() -> None:
    reported: list[BaseException] = []
    failure = LookupError("the body's")
    with pytest.raises(LookupError) as found:
        around(guarded(HandsOn(), reported.append), failure)
    assert found.value is failure
    assert reported == []
