"""The user's functions, called between the steps of a task of ours as if in tasks of their own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import Context
from typing import Any
from weakref import getweakrefcount

from anyio.lowlevel import current_token

Apart = Callable[..., Any]
"""Called with a context, a function and its arguments; returns what that returns."""


async def _wait(waiter: asyncio.Future[None]) -> None:
    await waiter


_current: Any = asyncio.tasks
_enter, _leave = _current._enter_task, _current._leave_task
_lowlevel = "trio.lowlevel"
_CALLBACK = "bullmq callback"


def apart() -> Apart:
    """Return what calls the user's functions as if in tasks of their own.

    Their changes to the current task, and scopes they leave open, do not reach the running task. It may carry a call.
    """
    loop: Any = current_token().native_token
    if hasattr(loop, "create_task"):
        return _ApartOnAsyncio(loop)
    task: Any = sys.modules[_lowlevel].Task
    known = hasattr(task, "_activate_cancel_status") and hasattr(task, "_cancel_status")
    return _apart_on_trio if known else Context.run


class _ApartOnAsyncio:
    """Calls functions while a task that does nothing is the current one.

    To make a task costs more than all else here, so that one is used again if the function before did nothing to it:
    did not cancel or rename it, and left no reference to it, not even a weak one. Otherwise it ends.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        pair = self._make()
        task, _ = pair
        self._references = _references(task)
        self._unused: tuple[Any, asyncio.Future[None]] | None = pair

    def __call__(self, context: Context, function: Callable[..., Any], *args: object) -> Any:
        loop = self._loop
        runs = asyncio.current_task(loop)
        # The function may ask the worker for what calls another: that takes one of its own.
        pair, self._unused = self._unused or self._make(), None
        task, waiter = pair
        if runs is not None:
            _leave(loop, runs)
        _enter(loop, task)
        try:
            return context.run(function, *args)
        finally:
            _leave(loop, task)
            if runs is not None:
                _enter(loop, runs)
            touched = task._must_cancel or waiter.done() or task._callbacks is not None or task.get_name() != _CALLBACK
            if not touched and _references(task) == self._references:
                self._unused = pair
            elif not waiter.done():
                waiter.set_result(None)

    def end(self) -> None:
        """Let the task end. It may be called again."""
        pair, self._unused = self._unused, None
        if pair is not None and not self._loop.is_closed():
            _, waiter = pair
            waiter.set_result(None)

    def _make(self) -> tuple[Any, asyncio.Future[None]]:
        loop = self._loop
        waiter: asyncio.Future[None] = loop.create_future()
        # Its own context holds nothing, as it lives long.
        task: Any = asyncio.Task(_wait(waiter), loop=loop, name=_CALLBACK, context=Context())
        # It is nobody's to cancel, and ends with its last reference.
        _current._unregister_task(task)
        task._log_destroy_pending = False
        return task, waiter


def _references(task: object) -> tuple[int, int]:
    return sys.getrefcount(task), getweakrefcount(task)


def end_apart(call: Apart | None) -> None:
    """Let go of what `apart` returned."""
    if isinstance(call, _ApartOnAsyncio):
        call.end()


def _apart_on_trio(context: Context, function: Callable[..., Any], *args: object) -> Any:
    task: Any = sys.modules[_lowlevel].current_task()
    before = task._cancel_status
    try:
        return context.run(function, *args)
    finally:
        left = task._cancel_status
        if left is not before:
            task._activate_cancel_status(before)
            while left.parent is not None and left.parent is not before:
                left = left.parent
            left.parent = None
