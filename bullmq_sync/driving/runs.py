"""The life of one job: its handler on a thread of the worker's, and the event of its end for the machine."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar, cast

from msgspec import UNSET

from bullmq_protocol.common.units import Millis
from bullmq_protocol.model.backoff import strategy_delay
from bullmq_protocol.model.categories import is_one, name_of
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.observability.current import CURRENT
from bullmq_protocol.worker.events import Event, JobRaised, JobReturned
from bullmq_protocol.worker.failures import STRATEGY_FAILED
from bullmq_protocol.worker.routing import chained, known_as_call_next, routes_of
from bullmq_protocol.worker.tracing import WorkerTracing
from bullmq_sync.base import expected_result, handler_of, lend_state, set_handler
from bullmq_sync.driving.lending import Lending
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.shared import Shared
from bullmq_sync.job import Job
from bullmq_sync.router import routed
from bullmq_sync.thread_pool import handling

T = TypeVar("T")

BackoffStrategy = Callable[[int, str, BaseException, Job[Any]], "Millis | float | None"]
"""Called with attempt number, backoff type, error and job; returns milliseconds (-1: fail for good)."""


class Runs(Generic[T]):
    """Runs the processor for each job, and asks the user's backoff strategy."""

    def __init__(
        self,
        shared: Shared[Job[T]],
        processor: Callable[[Job[T]], Any] | None,
        strategy: BackoffStrategy | None,
        lending: Lending,
        notifier: Notifier,
    ) -> None:
        self.processor = processor
        self._routes = routes_of(processor)
        self._state: Any = UNSET
        self._chain: Callable[[Job[T]], Any] | None = None
        """What is called in place of the processor, if anything is around it."""
        if self._routes is not None or shared.setup.middleware:
            self._chain = chained(shared.setup.middleware, self._called)
        self._strategy = strategy
        self._failures = shared.failures
        self._tracing = shared.tracing
        self._clock = shared.clock
        self._lending = lending
        self._notifier = notifier

    def use(self, state: object) -> None:
        """Give every job what the lifespan has yielded."""
        self._state = state
        self._chain = self._chain or self._called

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
        if self._chain is not None:
            return self._process_within(self._chain, job)
        self._failures.check_data(job)
        handling(True)
        try:
            value = cast("Callable[[Job[T]], Any]", self.processor)(job)
        finally:
            handling(False)
        return self._failures.result_text(value)

    @known_as_call_next
    def _called(self, job: Job[T]) -> Any:
        return cast("Callable[[Job[T]], Any]", handler_of(job) or self.processor)(job)

    def _process_within(self, chain: Callable[[Job[T]], Any], job: Job[T]) -> str:
        """Call what is around the processor, once it is certain that there is a handler for the job's payload."""
        if self._state is not UNSET:
            lend_state(job, self._state)
        if self._routes is not None:
            set_handler(job, routed(self._routes, job))
        self._failures.check_data(job)
        handling(True)
        try:
            value = chain(job)
        finally:
            handling(False)
        return self._failures.result_text(value, expected_result(job))

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
