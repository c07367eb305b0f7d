"""The life of one job: its handler in a task of its own, and the event of its end for the machine."""

from __future__ import annotations

import inspect
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar, cast

import anyio

from bullmq_anyio.base import expected_result
from bullmq_anyio.driving.errands import Errands
from bullmq_anyio.driving.notifier import Notifier
from bullmq_anyio.driving.processing import Processing
from bullmq_anyio.driving.shared import Shared
from bullmq_anyio.driving.tasks import FORCED_STOP_S, Alarm
from bullmq_anyio.job import Job
from bullmq_anyio.primitives import is_interrupt
from bullmq_anyio.tasks import Errand, Handling
from bullmq_protocol.common.units import Millis
from bullmq_protocol.model.backoff import strategy_delay
from bullmq_protocol.model.categories import is_one, repr_of
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.observability.current import CURRENT
from bullmq_protocol.worker.events import Event, JobRaised, JobReturned
from bullmq_protocol.worker.failures import STRATEGY_FAILED
from bullmq_protocol.worker.routing import NotAsync, handler_not_async
from bullmq_protocol.worker.snapshot import WorkerState
from bullmq_protocol.worker.tracing import WorkerTracing

T = TypeVar("T")

BackoffStrategy = Callable[
    [int, str, BaseException, Job[Any]], "Millis | float | Awaitable[Millis | float | None] | None"
]
"""Called with attempt number, backoff type, error and job; returns milliseconds (-1: fail for good). May be async."""


class Runs(Processing[T]):
    """Runs the processor for each job, and asks the user's backoff strategy.

    `interrupt` ends the worker: Ctrl-C came, or the processor is not async.
    """

    wake_one: Callable[[], None]
    """Lets a slot look for outcomes. The slots set it."""

    def __init__(
        self,
        shared: Shared[Handling],
        processor: Callable[[Job[T]], Awaitable[Any]] | None,
        strategy: BackoffStrategy | None,
        alarm: Alarm,
        errands: Errands,
        notifier: Notifier,
        interrupt: Callable[[BaseException], None],
    ) -> None:
        super().__init__(shared, processor, notifier)
        self._strategy = strategy
        self._queue = shared.setup.keys.name
        self._dispatch = shared.dispatch
        self._machine = shared.machine
        self._tasks = shared.tasks
        self._alarm = alarm
        self._errands = errands
        self._interrupt = interrupt
        self._emptied: anyio.Event | None = None

    async def attend(self, handling: Handling) -> None:
        """Run a job's handler: what the job's own task does.

        Nothing of the library is awaited here, before or after: nothing that the handler leaves behind meets it.
        """
        handling.begun = True
        if handling.task is None and self._tasks.jobs is not None:
            self._tasks.jobs.note(handling)
        number, job = handling.number, handling.job
        CURRENT.set(job)
        event: Event | None = None
        failed: BaseException | None = None
        try:
            if handling.cancelled:
                event = _cancelled(number)
            elif self._tracing is not None:
                event = JobReturned(number, await self._traced(self._tracing, job))
            else:
                value = await self._process(job)
                # What only a router has, looked at here: each call would cost each job.
                result_type = None if self._routes is None else expected_result(job)
                event = JobReturned(number, self._failures.result_text(value, result_type))
        except BaseException as error:
            failed = error
        try:
            self._attended(handling, event, failed)
        except BaseException as fault:
            # Ctrl-C met it, or an exception that raises another whatever it is asked.
            self._dispatch.handling.pop(number, None)
            self._interrupt(fault)

    def _attended(self, handling: Handling, event: Event | None, error: BaseException | None) -> None:
        """Note how a handler ended; a task of the library passes it to the machine."""
        self._notifier.check_process(error)
        if error is not None:
            event = self._event_of(handling, error)
        if self._tasks.jobs is not None and handling.begun:
            self._tasks.jobs.left(handling)
        dispatch = self._dispatch
        del dispatch.handling[handling.number]
        if event is not None:
            dispatch.ended(event)
        if not dispatch.handling:
            if self._emptied is not None:
                self._emptied.set()
            if self._machine.state is WorkerState.STOPPED:
                self._alarm.set()
        if not dispatch.coming:
            self.wake_one()

    async def await_begin(self, started: Sequence[Handling]) -> None:
        """Let handlers that were just started take their first steps."""
        assert self._tasks.jobs is not None  # it started them
        for handling in await self._tasks.jobs.begun(started):
            self._attended(handling, None, anyio.get_cancelled_exc_class()())

    async def end_all(self, warn: Callable[[], None]) -> None:
        """The tasks are gone for a fault: cancel the handlers that are left, and wait for them."""
        jobs = self._tasks.jobs
        while self._dispatch.handling:
            for handling in tuple(self._dispatch.handling.values()):
                if jobs is not None:
                    jobs.cancel(handling)
            self._emptied = anyio.Event()
            with suppress(anyio.get_cancelled_exc_class()), anyio.CancelScope(shield=True):
                with anyio.move_on_after(FORCED_STOP_S):
                    await self._emptied.wait()
                    return
                warn()
        if jobs is not None:
            await jobs.call_back()

    def _event_of(self, handling: Handling, error: BaseException) -> Event | None:
        """Return the event of an exception in a handler; None if another task delivers it."""
        number, job = handling.number, cast("Job[T]", handling.job)
        if is_interrupt(error):
            # trio raises it in the code that runs: it is not the job's fault.
            self._interrupt(error)
            return _cancelled(number)
        if is_one(error, NotAsync):
            # A fault of the program, which no job should pay for.
            self._interrupt(cast("NotAsync", error).fault)
            return _cancelled(number)
        if handling.cancelled:
            return None if self._tasks.is_torn() else _cancelled(number)
        is_cancellation = is_one(error, anyio.get_cancelled_exc_class())
        if not is_cancellation and self._strategy_of(job, error) is None:
            return self._raised(number, job, error)
        if self._tasks.is_torn():
            # All tasks are cancelled, and the job is given back.
            return None
        errand = Errand(
            main=partial(self._answer_later, number, job, error), on_fault=partial(self._unanswered, number, job, error)
        )
        self._errands.send(errand, f"bullmq end of job {job.id} of {self._queue}", self._tasks.context.copy())
        return None

    def _unanswered(self, number: int, job: Job[T], error: BaseException, fault: BaseException | None) -> None:
        if fault is not None:
            self._interrupt(fault)
        elif self._tasks.is_torn():
            return
        self._dispatch.ended(self._raised(number, job, error, None, "the backoff strategy was cancelled"))
        self.wake_one()

    async def _answer_later(self, number: int, job: Job[T], error: BaseException) -> None:
        """Report an exception of a handler, where that takes some time."""
        event: Event
        try:
            delay, strategy_error = await self._ask_strategy(job, error)
            event = self._raised(number, job, error, delay, strategy_error)
        except anyio.get_cancelled_exc_class():
            if self._tasks.is_torn():
                raise
            event = self._raised(number, job, error, None, "the backoff strategy was cancelled")
        except KeyboardInterrupt as interrupt:
            self._interrupt(interrupt)
            event = _cancelled(number)
        self._dispatch.ended(event)
        self.wake_one()

    async def raised_manually(self, job: Job[T], error: BaseException) -> JobRaised:
        """Judge the failure of a job that was taken manually."""
        return self._raised(-1, job, error, *await self._ask_strategy(job, error))

    async def _traced(self, tracing: WorkerTracing, job: Job[T]) -> str:
        with tracing.running(job.record):
            returned = await self._process(job)
            value = self._failures.result_text(returned, None if self._routes is None else expected_result(job))
        tracing.returned(job.record)
        return value

    def _process(self, job: Job[T]) -> Awaitable[Any]:
        if self._is_plain:
            self._failures.check_data(job)
            call = self._call
        else:
            call = self._prepared(job)
        assert call is not None
        awaitable: Awaitable[Any] = call(job)
        kind: type[object] = type(awaitable)
        if kind is not CoroutineType and not inspect.isawaitable(awaitable):
            raise NotAsync("middleware[0]", self._middleware[0]) if self._middleware else self._not_async(job)
        return awaitable

    def _call_next(self, handler: Callable[[Job[T]], Awaitable[Any]]) -> Callable[[Job[T]], Awaitable[Any]]:
        def call_next(job: Job[T]) -> Awaitable[Any]:
            awaitable: Awaitable[Any] = handler(job)
            kind: type[object] = type(awaitable)
            if kind is not CoroutineType and not inspect.isawaitable(awaitable):
                raise self._not_async(job)
            return awaitable

        return call_next

    def _not_async(self, job: Job[T]) -> NotAsync:
        """Return the error for the handler of a job."""
        if self._routes is None:
            return NotAsync("processor", self.processor)
        return handler_not_async(job.name, self._routes.by_name[job.name].handler)

    def _strategy_of(self, job: Job[T], error: BaseException) -> str | None:
        """Return the job's type of backoff if the strategy is to be asked for the delay of its next attempt."""
        return self._failures.strategy_type(job, error)

    async def _ask_strategy(self, job: Job[T], error: BaseException) -> tuple[float | None, str | None]:
        """Return the delay that the strategy wants, and what went wrong with it.

        A cancellation and Ctrl-C are raised. The caller gives it a task or a context of its own.
        """
        kind = self._strategy_of(job, error)
        if kind is None or self._strategy is None:
            return None, None
        awaiting = False
        try:
            answer = self._strategy(job.attempts_made + 1, kind, error, job)
            awaiting = isinstance(answer, Awaitable)
            delay = await answer if isinstance(answer, Awaitable) else answer
            self._notifier.check_process(None)
            return strategy_delay(delay), None
        except BaseException as trouble:
            self._notifier.check_process(trouble)
            if is_interrupt(trouble) or (awaiting and is_one(trouble, anyio.get_cancelled_exc_class())):
                raise
            self._notifier.say(logging.ERROR, f": {STRATEGY_FAILED}", trace=True)
            return None, f"{STRATEGY_FAILED}: {repr_of(trouble)}"

    def _raised(
        self,
        number: int,
        job: Job[T],
        error: BaseException,
        delay: float | None = None,
        strategy_error: str | None = None,
    ) -> JobRaised:
        failure, roll = self._failures.failure(error, self._clock().wall), random.random()
        return self._failures.event(number, job, error, failure, roll=roll, delay=delay, strategy_error=strategy_error)


def _cancelled(number: int) -> JobRaised:
    return JobRaised(number, Failure(kind=FailureKind.CANCELLED, message="cancelled"), random.random())
