"""What keeps faults of the user's code from doing harm."""

import logging
from asyncio import current_task

from bullmq_protocol.model.categories import is_one

_log = logging.getLogger("bullmq_anyio")


def provider_raised(error: BaseException) -> None:
    """Log what a telemetry provider raised; Ctrl-C goes on.

    A cancellation does not: nothing of a provider is awaited, so that it is never the caller's.
    """
    if is_one(error, KeyboardInterrupt):
        raise error
    _log.error("the telemetry provider raised", exc_info=error)


def is_cancelling() -> bool:
    """Tell whether somebody cancels the running task itself and not a scope, which asyncio alone allows."""
    try:
        task = current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0
