"""The stack text of an exception, as a job keeps it: from the user's first frame on, which a dashboard shows first.

To format one takes Python longer than all else that a failed job costs. Most jobs that fail do so in the same places,
so the text of each place is kept.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable
from types import CodeType, TracebackType

_MOST_PLACES = 1_000
_MOST_RECURRING = 3
"""Python leaves out what recurs more often."""
_OURS = frozenset(("bullmq_anyio", "bullmq_django", "bullmq_protocol", "bullmq_sync"))


# A class of classes may answer for its own.
_qualified_name: Callable[[type], str] = type.__dict__["__qualname__"].__get__


class StackTexts:
    """Writes the texts of `traceback.format_exception` without the library's frames at the beginning, for any number of
    threads."""

    def __init__(self) -> None:
        # By the code's id, which another may get once it is gone.
        self._places: dict[tuple[int, int, int], tuple[weakref.ref[CodeType], str]] = {}

    def of(self, exc: BaseException) -> str:
        """Return the stack text of an exception. It never raises, whatever the exception holds (but for Ctrl-C, which
        comes where it comes)."""
        try:
            stack = _from_the_user_on(exc.__traceback__)
            return self._quickly(exc, stack) or "".join(traceback.format_exception(type(exc), exc, stack))
        except KeyboardInterrupt:
            raise
        except BaseException:
            try:
                return f"{_qualified_name(type(exc))}: {exc}"
            except KeyboardInterrupt:
                raise
            except BaseException:
                return _qualified_name(type(exc))

    def _quickly(self, exc: BaseException, stack: TracebackType | None) -> str:
        """Return the text of a plain exception, "" for any other."""
        has_context = exc.__context__ is not None and not exc.__suppress_context__
        if stack is None or exc.__cause__ is not None or has_context or isinstance(exc, BaseExceptionGroup):
            return ""
        lines = ["Traceback (most recent call last):\n"]
        last: tuple[str, int, str] | None = None
        times = 0
        at: TracebackType | None = stack
        while at is not None:
            code = at.tb_frame.f_code
            place = (code.co_filename, at.tb_lineno, code.co_name)
            if place != last:
                lines += _left_out(times)
                last, times = place, 0
            times += 1
            if times <= _MOST_RECURRING:
                lines.append(self._line(at, code))
            at = at.tb_next
        lines += _left_out(times)
        # Without a frame; the stack is for its hints at names that were meant.
        shown = traceback.TracebackException(type(exc), exc, stack, limit=0, lookup_lines=False, compact=True)
        lines += shown.format_exception_only()
        return "".join(lines)

    def _line(self, at: TracebackType, code: CodeType) -> str:
        key = (id(code), at.tb_lasti, at.tb_lineno)
        found = self._places.get(key)
        if found is None or found[0]() is not code:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            found = self._places[key] = (weakref.ref(code), traceback.format_tb(at, limit=1)[0])
        return found[1]


def _left_out(times: int) -> list[str]:
    """Return Python's line for a place that comes `times` times in a row."""
    more = times - _MOST_RECURRING
    return [f"  [Previous line repeated {more} more time{'s' if more > 1 else ''}]\n"] if more > 0 else []


def _from_the_user_on(at: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with the first frame that is not the library's; None: all are."""
    while at is not None and str(at.tb_frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        at = at.tb_next
    return at
