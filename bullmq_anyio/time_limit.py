"""A time limit for a handler: a cancel scope around it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, Final

import anyio

from bullmq_anyio.job import Job
from bullmq_protocol.common.units import Millis
from bullmq_protocol.worker.routing import handler_not_async, took_too_long

_NOTHING: Final = object()


async def within(
    limit_ms: Millis, handler: Callable[[Job[Any, Any, Any]], Awaitable[Any]], job: Job[Any, Any, Any]
) -> Any:
    """Return what a handler returns. One that takes longer is cancelled; where it ends by that, this raises
    `TimeoutError`."""
    returned: Any = _NOTHING
    raised: Exception | None = None
    scope = anyio.move_on_after(limit_ms / 1000)
    try:
        with scope:
            try:
                awaitable = handler(job)
                kind: type[object] = type(awaitable)
                if kind is not CoroutineType and not inspect.isawaitable(awaitable):
                    raise handler_not_async(job.name, handler)
                returned = await awaitable
            except Exception as error:
                raised = error
                raise
    except RuntimeError as error:
        if error is raised or (returned is _NOTHING and raised is None):
            raise
        # The handler left a scope open in this one. Its outcome is known.
        scope.deadline = math.inf
        if raised is not None:
            raise raised from raised.__cause__
    finally:
        # It knows this frame.
        raised = None
    if returned is _NOTHING:
        raise TimeoutError(took_too_long(limit_ms))
    return returned
