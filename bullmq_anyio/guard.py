"""What keeps faults of the user's code from doing harm."""

from __future__ import annotations

import inspect
import logging
import sys
from asyncio import current_task
from collections.abc import Callable
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from bullmq_protocol.model.categories import is_one

_log = logging.getLogger("bullmq_anyio")


def is_interrupt(error: BaseException) -> bool:
    """Tell whether it may be Ctrl-C."""
    return is_one(error, KeyboardInterrupt)


def say(level: int, message: str, *args: object, extra: dict[str, Any] | None = None, trace: bool = False) -> None:
    """Log a line. A handler or a filter of the user that raises does no harm."""
    try:
        _log.log(level, message, *args, extra=extra, exc_info=sys.exc_info() if trace else None)
    except BaseException as error:
        # Nothing is awaited here: a cancellation is never the caller's.
        if is_interrupt(error):
            raise


def provider_raised(error: BaseException) -> None:
    """Log what a telemetry provider raised; Ctrl-C goes on.

    A cancellation does not: nothing of a provider is awaited, so that it is never the caller's.
    """
    if is_interrupt(error):
        raise error
    say(logging.ERROR, "the telemetry provider raised", trace=True)


async def call_back(function: Callable[[Any], object], argument: object, message: str, *args: object) -> None:
    """Call a function of the user's, and await what it returns where that can be awaited.

    What it raises is logged with `message`. Only Ctrl-C and a cancellation of the running task itself go on.
    """
    awaits = False
    try:
        answer = function(argument)
        if inspect.isawaitable(answer):
            awaits = True
            await answer
    except BaseException as error:
        if is_interrupt(error):
            raise
        if awaits and is_one(error, anyio.get_cancelled_exc_class()):
            # That of a scope comes again, and one of the task itself is counted; a cancelled future's does neither.
            for _ in range(2):
                await checkpoint()
            if is_cancelling():
                raise
        say(logging.ERROR, message, *args, trace=True)


def is_cancelling() -> bool:
    """Tell whether somebody cancels the running task itself and not a scope, which asyncio alone allows."""
    try:
        task = current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0
