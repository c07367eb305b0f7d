"""Room on the stack: near the recursion limit a call is refused before it has changed anything.

An exception in the middle of a change of what callers share costs them the connection. One that a function of the
user's brings about by calling us at the end of a long recursion can be known beforehand.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

_LEVELS = 50
"""More than the greatest depth of calls when a connection is made or closed: 40."""
_LEVELS_TO_SEND = 20
"""Twice the depth of calls from a link's `request` on. Each level costs 4 ns there, on Python 3.11."""


def _nested(levels: int) -> tuple[Any, ...]:
    result: tuple[Any, ...] = (int,)
    for _ in range(levels):
        result = (result,)
    return result


# From Python 3.12 on frames of Python alone count, and this is the one way to look that raises nothing.
_name_at: Callable[[int], str | None] | None = cast("Any", getattr(sys, "_getframemodulename", None))


def _by_frames(name_at: Callable[[int], str | None], levels: int) -> Callable[[], None]:
    limit = sys.getrecursionlimit
    text = (
        f"maximum recursion depth exceeded: fewer than {levels} levels are left, too few for a call of the connection"
    )

    def check() -> None:
        if name_at(limit() - levels) is not None:
            raise RecursionError(text)

    return check


def _by_nesting(levels: int) -> Callable[[], None]:
    # Here calls of C functions count as well. This one goes as many levels deep as the tuple has.
    kinds = _nested(levels)

    def check() -> None:
        isinstance(None, kinds)

    return check


def _checking(levels: int) -> Callable[[], None]:
    return _by_nesting(levels) if _name_at is None else _by_frames(_name_at, levels)


check_room = _checking(_LEVELS)
"""Raise `RecursionError` where a call of a connection may not come to its end."""
check_room_to_send = _checking(_LEVELS_TO_SEND)
"""The same where the connection is there: on the hot path."""
