"""The arguments of a worker, as both adapters check them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from bullmq_protocol.common.keys import KeyLayout, QueueKeys
from bullmq_protocol.common.switches import FLEET_SWITCHES, STRICT_SWITCHES
from bullmq_protocol.common.units import Instant
from bullmq_protocol.errors import UnrecoverableError, UsageError
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import DEFAULT_LIMITS, KeepJobs, Limits
from bullmq_protocol.observability.metrics import NO_METRICS
from bullmq_protocol.observability.telemetry import NO_SPAN, TelemetrySpan
from bullmq_protocol.worker.events import JobRaised
from bullmq_protocol.worker.failures import Failures
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.metering import METERED
from bullmq_protocol.worker.options import WorkerOptions
from bullmq_protocol.worker.outcome import strategy_type
from bullmq_protocol.worker.setup import WorkerSetup
from bullmq_protocol.worker.tracing import TRACED, WorkerTracing, own_span


class _Collector:
    """Counts nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


class _Provider:
    """Makes no spans."""

    def start_span(self, name: str, kind: str, attributes: object, *, parent: object = None) -> TelemetrySpan:
        return NO_SPAN


def setup(processor: Any = lambda job: job, **changes: Any) -> WorkerSetup:
    given: dict[str, Any] = {
        "is_async": False,
        "prefix": "bull",
        "layout": KeyLayout.PLAIN,
        "switches": STRICT_SWITCHES,
        "options": WorkerOptions(),
        "zones": lambda name: None,
        "data_type": None,
        "result_type": None,
        "worker_id": None,
        "made_id": "made",
        "backoff_strategy": None,
        "metrics_collector": NO_METRICS,
        "telemetry": None,
        "limits": DEFAULT_LIMITS,
        "middleware": (),
        "lifespan": None,
    }
    return WorkerSetup("q", processor, **(given | changes))


def test_a_limit_of_retention_needs_a_profile_that_knows_one() -> None:
    options = WorkerOptions(remove_on_fail=KeepJobs(age=5, limit=9))
    assert setup(options=options, switches=FLEET_SWITCHES).settings.remove_on_fail == options.remove_on_fail
    with pytest.raises(UsageError, match=r"remove_on_fail\.limit: needs a profile of later versions"):
        setup(options=options)
    with pytest.raises(UsageError, match=r"remove_on_fail\.limit: must be at least 1"):
        setup(options=WorkerOptions(remove_on_fail=KeepJobs(limit=0)), switches=FLEET_SWITCHES)


def test_what_is_not_given_is_made() -> None:
    made = setup()
    assert (made.keys, made.id, made.data_type, made.meter) == (QueueKeys.of("q"), "made", None, None)
    machine = WorkerMachine(made.keys, made.settings, "w")
    tracing = made.tracing(machine, lambda: Instant(0, 0))
    assert (tracing, made.callbacks(tracing)) == (None, {})
    assert own_span(tracing, "pause") is NO_SPAN
    assert made.extra == {"worker_id": "made", "queue": "q"}
    given = setup(worker_id="me", data_type=int, backoff_strategy=lambda *_: 1)
    assert given.id == "me"
    assert given.data_type is not None
    assert given.data_type.kind is int


@pytest.mark.parametrize("field", ["options", "limits", "backoff_strategy"])
def test_what_cannot_be_is_refused(field: str) -> None:
    with pytest.raises(UsageError) as caught:
        setup(**{field: 7})
    assert caught.value.field == field


def test_a_worker_without_a_processor_cannot_run() -> None:
    setup().check_processor()
    with pytest.raises(UsageError) as caught:
        setup(None).check_processor()
    assert caught.value.field == "processor"


def test_metrics_hear_of_a_notice_before_spans_do() -> None:
    made = setup(metrics_collector=_Collector(), telemetry=_Provider())
    tracing = made.tracing(WorkerMachine(made.keys, made.settings, "w"), lambda: Instant(0, 0))
    callbacks = made.callbacks(tracing)
    assert set(callbacks) == {*METERED, *TRACED}
    with own_span(tracing, "pause") as span:
        assert span is NO_SPAN
    both = next(kind for kind in METERED if kind in TRACED)
    assert callbacks[both] == (made.meter, tracing)
    assert callbacks[next(kind for kind in TRACED if kind not in METERED)] == (tracing,)


class _Job(NamedTuple):
    record: JobRecord
    discarded: bool = False


@pytest.mark.parametrize(
    ("opts", "made", "discarded", "kind"),
    [
        ('{"attempts":3,"backoff":{"type":"mine","delay":5}}', 0, False, "mine"),
        ('{"attempts":3,"backoff":{"type":"mine","delay":5}}', 2, False, None),
        ('{"attempts":3,"backoff":{"type":"mine","delay":5}}', 0, True, None),
        ('{"attempts":3,"backoff":{"type":"fixed","delay":5}}', 0, False, None),
        ('{"attempts":3}', 0, False, None),
    ],
)
def test_a_strategy_is_asked_for_its_own_types_while_attempts_are_left(
    opts: str, made: int, discarded: bool, kind: str | None
) -> None:
    record = JobRecord("1", {"opts": opts.encode(), "atm": str(made).encode()})
    assert strategy_type(_Job(record, discarded)) == kind


@pytest.mark.parametrize(("discarded", "kind"), [(True, FailureKind.UNRECOVERABLE), (False, FailureKind.ERROR)])
def test_a_discarded_job_is_not_tried_again(discarded: bool, kind: FailureKind) -> None:
    error, job = LookupError(), _Job(JobRecord("1", {}), discarded)
    event = Failures(setup(), None).event(3, job, error, Failure(message="m"), roll=0.25, delay=7)
    assert (event.run, event.failure.kind, event.roll, event.strategy_delay_ms) == (3, kind, 0.25, 7)
    assert event.exception is error


@pytest.mark.parametrize(("number", "traced"), [(3, True), (-1, False)])
def test_what_is_done_manually_has_spans_of_its_own(number: int, traced: bool) -> None:
    seen: list[JobRaised] = []

    class Noting(WorkerTracing):
        def raised(self, job: JobRecord, event: JobRaised) -> JobRaised:
            seen.append(event)
            return event

    made = setup()
    machine = WorkerMachine(made.keys, made.settings, "w")
    tracing = Noting(_Provider(), machine, made.settings, queue="q", worker_id="w", now=lambda: Instant(0, 0))
    job = _Job(JobRecord("1", {}))
    Failures(made, tracing).event(number, job, LookupError(), Failure(message="m"), roll=0.5)
    assert bool(seen) is traced


class _WithData(NamedTuple):
    data_text: bytes

    @property
    def data(self) -> int:
        return msgspec.json.decode(self.data_text, type=int)


def test_data_that_does_not_fit_fails_the_job_for_good() -> None:
    checking = Failures(setup(data_type=int), None)
    checking.check_data(_WithData(b"1"))
    with pytest.raises(UnrecoverableError, match="does not fit: Expected `int`, got `str`"):
        checking.check_data(_WithData(b'"1"'))
    Failures(setup(), None).check_data(_WithData(b'"1"'))


def test_a_result_that_does_not_fit_fails_the_job_for_good() -> None:
    checking = Failures(setup(result_type=list[int], limits=Limits(max_result_bytes=6)), None)
    assert checking.result_text([1, 2]) == "[1,2]"
    with pytest.raises(UnrecoverableError) as caught:
        checking.result_text([1, "2"])
    assert str(caught.value) == (
        "the result of the job does not fit the result type: Expected `int`, got `str` - at `$[1]`"
    )
    with pytest.raises(UsageError, match="returnvalue: exceeds the limit 6 bytes"):
        checking.result_text([1, 2, 3])
    assert Failures(setup(), None).result_text([1, "2"]) == '[1,"2"]'


def test_a_failure_has_the_stack_of_its_exception() -> None:
    try:
        raise LookupError("no")
    except LookupError as error:
        failure = Failures(setup(), None).failure(error, 0)
    assert (failure.kind, failure.message) == (FailureKind.ERROR, "no")
    assert failure.stack.startswith("Traceback") and "in test_a_failure_has_the_stack" in failure.stack


@pytest.mark.parametrize(
    ("strategy", "kind", "asked"),
    [
        (lambda *_: 1, FailureKind.ERROR, "mine"),
        (lambda *_: 1, FailureKind.UNRECOVERABLE, None),
        (None, FailureKind.ERROR, None),
    ],
)
def test_the_strategy_is_asked_over_errors(strategy: Any, kind: FailureKind, asked: str | None) -> None:
    job = _Job(JobRecord("1", {"opts": b'{"attempts":3,"backoff":{"type":"mine"}}'}))
    failures = Failures(setup(backoff_strategy=strategy), None)
    assert failures.strategy_type(job, Failure(kind=kind, message="m")) == asked
    error = UnrecoverableError("m") if kind is FailureKind.UNRECOVERABLE else LookupError("m")
    assert failures.strategy_type(job, error) == asked
    assert failures.strategy_type(_Job(JobRecord("1", {})), error) is None
