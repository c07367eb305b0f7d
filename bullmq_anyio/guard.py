"""What keeps faults of the user's code from doing harm."""

from __future__ import annotations

import logging
import sys
from typing import Any

from bullmq_anyio.primitives import is_interrupt

_log = logging.getLogger("bullmq_anyio")


def say(
    level: int,
    message: str,
    *args: object,
    extra: dict[str, Any] | None = None,
    trace: bool = False,
    error: BaseException | None = None,
) -> None:
    """Log a line, with the traceback of the current exception (`trace`) or of `error`. A handler or a filter of the
    user that raises does no harm."""
    try:
        _log.log(level, message, *args, extra=extra, exc_info=sys.exc_info() if trace else error)
    except BaseException as raised:
        # Nothing is waited for here: a cancellation is never the caller's.
        if is_interrupt(raised):
            raise


def provider_raised(error: BaseException) -> None:
    """Log what a telemetry provider raised; Ctrl-C goes on.

    A cancellation does not: nothing of a provider is waited for, so that it is never the caller's.
    """
    if is_interrupt(error):
        raise error
    say(logging.ERROR, "the telemetry provider raised", trace=True)
