"""What an exception of a handler becomes: the event of its job's end.

Source: specs/05-worker-runtime.md#sec-8-2
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from bullmq_protocol.common.payloads import PayloadType
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UnrecoverableError, UsageError
from bullmq_protocol.model.failure import Failure, FailureKind, failure_of
from bullmq_protocol.model.options import result_text
from bullmq_protocol.observability.stack import StackTexts
from bullmq_protocol.worker.events import JobRaised
from bullmq_protocol.worker.outcome import Handled, strategy_type
from bullmq_protocol.worker.setup import WorkerSetup
from bullmq_protocol.worker.tracing import WorkerTracing

STRATEGY_FAILED = "the backoff strategy failed"


class WithData(Protocol):
    """A job whose data is decoded when it is asked for."""

    @property
    def data(self) -> Any: ...


def check_payload(job: WithData) -> None:
    """Decode the data of a job. Raises `UnrecoverableError` where it does not fit."""
    try:
        _ = job.data
    except msgspec.DecodeError as error:
        raise UnrecoverableError(f"the data of the job does not fit: {error}") from error


def _misfit(error: UsageError) -> UnrecoverableError:
    return UnrecoverableError(f"the result of the job {error.rule}")


class Failures:
    """Judges the exceptions of one worker's handlers, for any number of threads."""

    def __init__(self, setup: WorkerSetup, tracing: WorkerTracing | None) -> None:
        self._checks_data = setup.data_type is not None
        self._result_type = setup.result_type
        self._limits = setup.limits
        self._tracing = tracing
        self._asks_strategy = setup.asks_strategy
        self._stacks = StackTexts()

    def check_data(self, job: WithData) -> None:
        """Decode the data of a job that is to run. Raises `UnrecoverableError`, as if the handler did."""
        if self._checks_data:
            check_payload(job)

    def result_text(self, value: object, result_type: PayloadType | None = None) -> str:
        """Return the JSON of what a handler returned. Raises `UnrecoverableError` where it is not of the job's
        `result_type`, or the worker's, as another attempt would be in vain, and `UsageError` as the core's
        `result_text` does."""
        return result_text(value, self._limits, result_type or self._result_type, _misfit)

    def failure(self, error: BaseException, now_ms: Millis) -> Failure:
        """Reduce an exception to what is stored and logged of it. Never raises."""
        return failure_of(error, stack=self._stacks.of(error), now_ms=now_ms)

    def strategy_type(self, job: Handled, failure: Failure | BaseException) -> str | None:
        """Return the job's type of backoff if the user's strategy is to say when the next attempt is.

        An exception is reduced only where the job's type leaves it open.
        """
        kind = strategy_type(job) if self._asks_strategy else None
        if kind is None:
            return None
        if not isinstance(failure, Failure):
            failure = failure_of(failure, now_ms=0)
        return kind if failure.kind is FailureKind.ERROR else None

    def event(
        self,
        number: int,
        job: Handled,
        error: BaseException,
        failure: Failure,
        *,
        roll: float,
        delay: float | None = None,
        strategy_error: str | None = None,
    ) -> JobRaised:
        """Return the event of a handler that raised, with its span. `number` below 0: the job was taken manually.

        `delay` and `strategy_error` are from the user's backoff strategy.
        """
        if job.discarded and failure.kind is FailureKind.ERROR:
            failure = msgspec.structs.replace(failure, kind=FailureKind.UNRECOVERABLE)
        raised = JobRaised(number, failure, roll, delay, strategy_error, error)
        return raised if self._tracing is None or number < 0 else self._tracing.raised(job.record, raised)
