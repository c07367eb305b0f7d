"""What keeps faults of the user's code from ending a thread of the library."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from bullmq_protocol.model.categories import is_one

_log = logging.getLogger("bullmq_sync")


def is_interrupt(error: BaseException) -> bool:
    """Tell whether it may be Ctrl-C, which Python raises in the main thread alone, at any line."""
    return is_one(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def say(level: int, message: str, *args: object, extra: dict[str, Any] | None = None, trace: bool = False) -> None:
    """Log a line. A handler or a filter of the user that raises does no harm."""
    try:
        _log.log(level, message, *args, extra=extra, exc_info=sys.exc_info() if trace else None)
    except BaseException as error:
        if is_interrupt(error):
            raise


def provider_raised(error: BaseException) -> None:
    """Log what a telemetry provider raised; Ctrl-C goes on."""
    if is_interrupt(error):
        raise error
    say(logging.ERROR, "the telemetry provider raised", trace=True)


def call_back(function: Callable[[Any], object], argument: object, message: str, *args: object) -> None:
    """Call a function of the user's, in a copy of this thread's context.

    What it raises is logged with `message`. Only Ctrl-C goes on.
    """
    try:
        copy_context().run(function, argument)
    except BaseException as error:
        if is_interrupt(error):
            raise
        say(logging.ERROR, message, *args, trace=True)
