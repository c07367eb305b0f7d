"""Calls of the user's functions from what reads events."""

from __future__ import annotations

import inspect
import logging
import math
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from bullmq_anyio.apart import Apart, apart, end_apart
from bullmq_anyio.forks import end_child, guard_loop, leave_loop
from bullmq_anyio.guard import say
from bullmq_anyio.primitives import is_interrupt
from bullmq_anyio.subscribers import LEFT_S, RAISED, CallerBase
from bullmq_protocol.model.categories import is_one

_LEFT = "the events of %s: the child of a fork left a callback, and ends"


class Caller(CallerBase):
    """Calls functions of the user's as if each call had a task of its own, in a copy of the caller's context. It is for
    one task, and keeps reusable objects until `end`."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        self._pid = os.getpid()
        self._apart: Apart | None = None
        self._scope: anyio.CancelScope | None = None

    async def call(self, function: Callable[[Any], object], event: object) -> None:
        """Call a function; if it returns an awaitable, await that in a task of its own.

        Exceptions are logged. Only Ctrl-C and a cancellation of the running task itself propagate.
        """
        try:
            await self._make(self._begun(), function, event)
        finally:
            self._call = None

    async def _make(self, context: Context, function: Callable[[Any], object], event: object) -> None:
        kind = type(event).__name__
        if self._apart is None:
            self._apart = apart()
            guard_loop(self, _LEFT, self._queue, extra={})
        try:
            answer = self._apart(context, function, event)
            is_awaited = inspect.isawaitable(answer)
        except BaseException as error:
            self._check_process(error)
            if is_interrupt(error):
                raise
            say(logging.ERROR, RAISED, self._queue, kind, trace=True)
            return
        self._check_process(None)
        if is_awaited:
            awaited = _Awaited(context, cast("Awaitable[object]", answer), self._check_process)
            with anyio.CancelScope(deadline=self._ends) as self._scope:
                await awaited.ended(RAISED, self._queue, kind)
            if self._scope.cancelled_caught:
                message = "the events of %s are closed: a callback for %s that had not ended was cancelled"
                say(logging.WARNING, message, self._queue, kind)
            self._scope = None

    def _check_process(self, error: BaseException | None) -> None:
        """End the child of a fork that comes out of a callback: the parent reads on."""
        if self._pid != os.getpid():
            end_child(error, _LEFT, self._queue, extra={})

    def close(self) -> None:
        """Let the awaited callback end soon; then it is cancelled."""
        self._ends = min(self._ends, anyio.current_time() + LEFT_S)
        if self._scope is not None:
            self._scope.deadline = self._ends

    def is_over(self) -> bool:
        """Whether no further event is to be delivered."""
        return self._ends < math.inf and self._ends <= anyio.current_time()

    def is_left(self) -> bool:
        """Never: a task can be cancelled."""
        return False

    def end(self) -> None:
        """Drop the kept objects. It may be called again."""
        end_apart(self._apart)
        leave_loop(self)


class _Awaited:
    """What a function of the user's returned, in a task of its own."""

    def __init__(
        self, context: Context, answer: Awaitable[object], check_process: Callable[[BaseException | None], None]
    ) -> None:
        self._context = context
        self._answer = answer
        self._check_process = check_process
        self._begun = False
        self._error: BaseException | None = None

    async def ended(self, message: str, *args: object) -> None:
        """Wait for its end. Its exception is logged; Ctrl-C is raised again."""
        try:
            async with anyio.create_task_group() as tasks:
                self._context.run(partial(tasks.start_soon, self._main, name="bullmq callback"))
        except Exception as error:
            # A scope that it left open: trio notices at the end of its task.
            self._error = self._error or error
        finally:
            answer: Any = self._answer
            if not self._begun and isinstance(answer, Coroutine):
                cast("Coroutine[Any, Any, object]", answer).close()
        raised = self._error
        if raised is not None:
            if is_interrupt(raised):
                raise raised
            if is_one(raised, anyio.get_cancelled_exc_class()):
                # trio: unless it was the caller that was cancelled.
                await checkpoint_if_cancelled()
            say(logging.ERROR, message, *args, error=raised)

    async def _main(self) -> None:
        self._begun = True
        try:
            await self._answer
        except BaseException as error:
            # The cancellation of the reader, too: it comes to the one that waits for this task.
            self._error = error
        self._check_process(self._error)
