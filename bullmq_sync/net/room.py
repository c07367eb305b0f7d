"""Room on the stack: near the recursion limit a call is refused before it has changed anything.

An exception in the middle of a change of what callers share costs them the connection. One that a function of the
user's brings about by calling us at the end of a long recursion can be known beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

_LEVELS = 50
"""The greatest depth of calls in a step of a connection."""
_TEXT = f"maximum recursion depth exceeded: fewer than {_LEVELS} levels are left, too few for a call of the connection"


def _nested(levels: int) -> tuple[Any, ...]:
    result: tuple[Any, ...] = (int,)
    for _ in range(levels):
        result = (result,)
    return result


# From Python 3.12 on frames of Python alone count, and this is the one way to look that raises nothing.
_name_at: Callable[[int], str | None] | None = cast("Any", getattr(sys, "_getframemodulename", None))


def _by_frames(name_at: Callable[[int], str | None]) -> Callable[[], None]:
    limit = sys.getrecursionlimit

    def check_room() -> None:
        if name_at(limit() - _LEVELS) is not None:
            raise RecursionError(_TEXT)

    return check_room


def _by_nesting() -> Callable[[], None]:
    # Here calls of C functions count as well. This one goes as many levels deep as the tuple has, at 10 ns each.
    kinds = _nested(_LEVELS)

    def check_room() -> None:
        isinstance(None, kinds)

    return check_room


check_room = _by_nesting() if _name_at is None else _by_frames(_name_at)
"""Raise `RecursionError` where a call of a connection may not come to its end."""
