"""The life of one job: its handler on a thread of the worker's, and the event of its end for the machine."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from bullmq_protocol.common.units import Millis
from bullmq_protocol.model.backoff import strategy_delay
from bullmq_protocol.model.categories import is_one, name_of
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.observability.current import CURRENT
from bullmq_protocol.worker.events import Event, JobRaised, JobReturned
from bullmq_protocol.worker.failures import STRATEGY_FAILED
from bullmq_protocol.worker.tracing import WorkerTracing
from bullmq_sync.base import expected_result
from bullmq_sync.driving.lending import Lending
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.processing import Processing
from bullmq_sync.driving.shared import Shared
from bullmq_sync.job import Job
from bullmq_sync.thread_pool import handling

T = TypeVar("T")

BackoffStrategy = Callable[[int, str, BaseException, Job[Any]], "Millis | float | None"]
"""Called with attempt number, backoff type, error and job; returns milliseconds (-1: fail for good)."""


class Runs(Processing[T]):
    """Runs the processor for each job, and asks the user's backoff strategy."""

    def __init__(
        self,
        shared: Shared[Job[T]],
        processor: Callable[[Job[T]], Any] | None,
        strategy: BackoffStrategy | None,
        lending: Lending,
        notifier: Notifier,
    ) -> None:
        super().__init__(shared, processor, notifier)
        self._strategy = strategy
        self._lending = lending

    def attend(self, number: int, job: Job[T]) -> Event:
        """Run a job's handler."""
        CURRENT.set(job)
        try:
            return JobReturned(
                number, self._process(job) if self._tracing is None else self._traced(self._tracing, job)
            )
        except BaseException as error:
            return self._raised(number, job, error)

    def raised_manually(self, job: Job[T], error: BaseException) -> JobRaised:
        """Judge the failure of a job that was taken manually."""
        return copy_context().run(self._raised, -1, job, error)

    def _traced(self, tracing: WorkerTracing, job: Job[T]) -> str:
        with tracing.running(job.record):
            value = self._process(job)
        tracing.returned(job.record)
        return value

    def _process(self, job: Job[T]) -> str:
        if self._is_plain:
            self._failures.check_data(job)
            call = self._call
        else:
            call = self._prepared(job)
        assert call is not None
        handling(True)
        try:
            value = call(job)
        finally:
            handling(False)
        return self._failures.result_text(value, None if self._routes is None else expected_result(job))

    def _call_next(self, handler: Callable[[Job[T]], Any]) -> Callable[[Job[T]], Any]:
        def call_next(job: Job[T]) -> Any:
            return handler(job)

        return call_next

    def _raised(self, number: int, job: Job[T], error: BaseException) -> JobRaised:
        try:
            failure = self._failures.failure(error, self._clock().wall)
        except BaseException:
            # Its own words raise, and nothing that could be caught.
            failure = Failure(kind=FailureKind.ERROR, message=name_of(error))
        delay: float | None = None
        strategy_error: str | None = None
        kind = self._failures.strategy_type(job, failure)
        if kind is not None and self._strategy is not None:
            try:
                delay = strategy_delay(self._ask_strategy(self._strategy, number, job, kind, error))
            except BaseException as trouble:
                if number < 0 and not is_one(trouble, Exception):
                    # Manual: it is the caller's own thread.
                    raise
                strategy_error = f"{STRATEGY_FAILED}: {_words(trouble)}"
                self._notifier.say(logging.ERROR, f": {STRATEGY_FAILED}", trace=True)
        return self._failures.event(
            number, job, error, failure, roll=random.random(), delay=delay, strategy_error=strategy_error
        )

    def _ask_strategy(
        self, strategy: BackoffStrategy, number: int, job: Job[T], kind: str, error: BaseException
    ) -> float | None:
        if number < 0:
            # Manual: nobody waits for it but the caller.
            return strategy(job.attempts_made + 1, kind, error, job)
        outer = self._lending.lend("the backoff strategy")
        try:
            return strategy(job.attempts_made + 1, kind, error, job)
        finally:
            self._lending.take_back(outer)


def _words(error: BaseException) -> str:
    try:
        return repr(error)
    except BaseException:
        return name_of(error)
