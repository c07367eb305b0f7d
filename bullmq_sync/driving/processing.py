"""What is called for each job: the processor, or the handler that a router has for it, within the middleware."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import UNSET

from bullmq_protocol.worker.routing import Route, chained, known_as_call_next, routes_of
from bullmq_sync.base import lend_state
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.shared import Shared
from bullmq_sync.job import Job
from bullmq_sync.router import routed

T = TypeVar("T")


class Processing(ABC, Generic[T]):
    """Finds what to call for a job. A subclass calls it, and judges how that ends."""

    def __init__(self, shared: Shared[Any], processor: Callable[[Job[T]], Any] | None, notifier: Notifier) -> None:
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
        self._failures = shared.failures
        self._tracing = shared.tracing
        self._clock = shared.clock
        self._notifier = notifier

    def use(self, state: object) -> None:
        """Give every job what the lifespan has yielded."""
        self._state = state
        self._is_plain = False

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
        return chained(self._middleware, known_as_call_next(self._call_next(handler)))

    @abstractmethod
    def _call_next(self, handler: Callable[[Job[T]], Any]) -> Callable[[Job[T]], Any]:
        """Return the `call_next` of the innermost middleware, which calls the handler."""
