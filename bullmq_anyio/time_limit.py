"""A time limit for a handler: a cancel scope around it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from bullmq_anyio.job import Job
from bullmq_protocol.common.units import Millis
from bullmq_protocol.worker.routing import took_too_long


async def within(
    limit_ms: Millis, handler: Callable[[Job[Any, Any, Any]], Awaitable[Any]], job: Job[Any, Any, Any]
) -> Any:
    """Return what a handler returns. One that takes longer is cancelled; where it ends by that, this raises
    `TimeoutError`."""
    returned: list[Any] = []
    scope = anyio.move_on_after(limit_ms / 1000)
    try:
        with scope:
            returned.append(await handler(job))
    except RuntimeError:
        if not returned:
            raise
        # The handler left a scope open in this one. Its outcome is known.
        scope.deadline = math.inf
    if not returned:
        raise TimeoutError(took_too_long(limit_ms))
    return returned[0]
