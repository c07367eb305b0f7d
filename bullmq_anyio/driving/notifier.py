"""Delivery of a worker's notices: to the log, the user's callbacks, metrics, and readers."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from types import CoroutineType
from typing import Any

import anyio

from bullmq_anyio.apart import Apart, apart, end_apart
from bullmq_anyio.driving.audience import Audience, log
from bullmq_anyio.driving.errands import Errands
from bullmq_anyio.driving.shared import Shared
from bullmq_anyio.forks import end_child, guard_loop, leave_loop
from bullmq_anyio.guard import say
from bullmq_anyio.primitives import is_interrupt
from bullmq_anyio.tasks import Errand
from bullmq_protocol.model.categories import is_one
from bullmq_protocol.worker.logline import LOWEST_LEVEL
from bullmq_protocol.worker.notices import Notice

_LEFT = "worker %s: the child of a fork left the user's code: its result is dropped, the job is the parent's"


class Notifier(Audience):
    """Calls the user's plain functions as if in a task of their own, and sends awaitables on an errand.

    `interrupt` receives Ctrl-C, the only thing raised there that ends the worker: trio raises it in the code that runs.
    """

    def __init__(self, shared: Shared[Any], errands: Errands, interrupt: Callable[[BaseException], None]) -> None:
        super().__init__(shared)
        self._queue = shared.setup.keys.name
        self._errands = errands
        self._interrupt = interrupt
        self._apart: Apart | None = None
        self._process: int | None = None
        """Where the worker runs, while it does."""

    def check_process(self, error: BaseException | None) -> None:
        """End the child of a fork that leaves the user's code, with what that raised: the parent does the work."""
        if self._process is not None and self._process != os.getpid():
            end_child(error, _LEFT, self._id, extra=self._extra)

    def enter_process(self) -> None:
        """Note that the worker runs in this process and event loop: no child of a fork goes on in them."""
        self._process = os.getpid()
        guard_loop(self, _LEFT, self._id, extra=self._extra)

    def leave_process(self) -> None:
        """Note that it runs no more."""
        self._process = None
        leave_loop(self)

    def tell(self, notice: Notice) -> None:
        kind = type(notice)
        if log.isEnabledFor(LOWEST_LEVEL[kind]):
            line = self.line(notice)
            extra = {**self._extra, **line.fields}
            write = partial(say, line.level, line.template, *line.args, extra=extra, error=line.exception)
            self._call_apart(copy_context(), write)
        for callback in self.subscribers.of_kind.get(kind, ()):
            context = self._tasks.context.copy()
            try:
                answer = self._call_apart(context, callback, notice)
                if answer is not None and inspect.isawaitable(answer):
                    self._take_along(context, answer, kind)
            except BaseException as error:
                self._callback_raised(kind, error)

    def _take_along(self, context: Context, answer: Awaitable[object], kind: type[Notice]) -> None:
        """Await what an async callback returned in a task of its own."""
        if self._tasks.group is not None and self._tasks.jobs is not None:
            errand = Errand(
                main=partial(self._await_callback, answer, kind), on_fault=partial(self._callback_failed, answer, kind)
            )
            self._errands.send(errand, f"bullmq callback for {kind.__name__} of {self._queue}", context)
        elif isinstance(answer, CoroutineType):
            # The tasks are gone.
            answer.close()

    async def _await_callback(self, answer: Awaitable[object], kind: type[Notice]) -> None:
        try:
            await answer
        except BaseException as error:
            self.check_process(error)
            if is_one(error, anyio.get_cancelled_exc_class()) and self._tasks.is_torn():
                raise
            self._callback_raised(kind, error)
        else:
            self.check_process(None)

    def _callback_failed(self, answer: Awaitable[object], kind: type[Notice], fault: BaseException | None) -> None:
        if isinstance(answer, CoroutineType):
            answer.close()
        if fault is not None:
            self._interrupt(fault)
        elif not self._tasks.is_torn():
            self.say(logging.ERROR, ": a callback for %s was cancelled", kind.__name__)

    def _callback_raised(self, kind: type[Notice], error: BaseException) -> None:
        if is_interrupt(error):
            self._interrupt(error)
        else:
            self.say(logging.ERROR, ": a callback for %s raised", kind.__name__, trace=True)

    def say(self, level: int, message: str, *args: object, trace: bool = False) -> None:
        """Log a line that begins with the worker, as if in a task of its own: handlers and filters are the user's."""
        call = partial(say, level, f"worker %s{message}", self._id, *args, extra=self._extra, trace=trace)
        self._call_apart(copy_context(), call)

    def _call_apart(self, context: Context, function: Callable[..., Any], *args: object) -> Any:
        if self._apart is None:
            self._apart = apart()
        raised: BaseException | None = None
        try:
            return self._apart(context, function, *args)
        except BaseException as error:
            raised = error
            raise
        finally:
            self.check_process(raised)

    def _metered(self, tell: Callable[..., None], *notice: Notice) -> None:
        try:
            self._call_apart(self._tasks.context.copy(), tell, *notice)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.say(logging.ERROR, ": the metrics collector raised", trace=True)

    def let_go(self) -> None:
        """Let go of what calls are made in: the next may come in another event loop."""
        end_apart(self._apart)
        self._apart = None
