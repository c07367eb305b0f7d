"""The life of one job: its handler on a thread of the worker's, and the event of its end for the machine."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from msgspec import UNSET

from bullmq_protocol.common.units import Millis
from bullmq_protocol.model.backoff import strategy_delay
from bullmq_protocol.model.categories import is_one, name_of
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.observability.current import CURRENT
from bullmq_protocol.worker.events import Event, JobRaised, JobReturned
from bullmq_protocol.worker.failures import STRATEGY_FAILED
from bullmq_protocol.worker.routing import Route, chained, known_as_call_next, routes_of
from bullmq_protocol.worker.tracing import WorkerTracing
from bullmq_sync.base import expected_result, lend_state
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
        self._middleware = shared.setup.middleware
        self._call: Callable[[Job[T]], Any] | None = None
        """The processor within the middleware; None with a router."""
        self._calls: dict[Route, Callable[[Job[T]], Any]] = {}
        """With a router: the handler of each route that a job has come for, within the middleware."""
        if self._routes is None and processor is not None:
            self._call = self._around(processor)
        self._is_plain = self._call is processor
        """Nothing is around the processor."""
        self._strategy = strategy
        self._failures = shared.failures
        self._tracing = shared.tracing
        self._clock = shared.clock
        self._lending = lending
        self._notifier = notifier

    def use(self, state: object) -> None:
        """Give every job what the lifespan has yielded."""
        self._state = state
        self._is_plain = False

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

    def _prepared(self, job: Job[T]) -> Callable[[Job[T]], Any] | None:
        """Return what to call for a job, once it is certain that there is a handler for its payload."""
        if self._state is not UNSET:
            lend_state(job, self._state)
        routes = self._routes
        if routes is None:
            self._failures.check_data(job)
            return self._call
        route = routed(routes, job)
        self._failures.check_data(job)
        call = self._calls.get(route)
        if call is None:
            call = self._calls[route] = self._around(route.call)
        return call

    def _around(self, handler: Callable[[Job[T]], Any]) -> Callable[[Job[T]], Any]:
        """Return a function of the job that calls a handler within the middleware."""
        if not self._middleware:
            return handler

        @known_as_call_next
        def call_next(job: Job[T]) -> Any:
            return handler(job)

        return chained(self._middleware, call_next)

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
