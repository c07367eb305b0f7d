"""Exceptions that come where none is expected: at any line of some modules, one at a time."""

import asyncio
import functools
import linecache
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

Site = tuple[str, int]
"""Where it comes: a function and a line, the first of a function before anything in it has run."""


_APART = ("__del__", "<genexpr>", "aborted")
"""Functions where nobody sees what is raised, and one that the event loop calls, not we."""
_LOOP = (asyncio.events.__file__,)
"""What calls for the event loop. A callback that cannot be called at all is nobody's to see."""


@functools.cache
def _is_left_out(file: str, number: int) -> bool:
    """Nothing can be raised at `try:`, and where it is all the same, no outer `try` sees it. `with` is passed at its
    end, too, and an exception just before `__exit__` is called leaves a lock held.
    """
    line = linecache.getline(file, number).strip()
    return line == "try:" or line.startswith(("with ", "async with "))


class Planter:
    """Counts the steps of a thread through some modules, and raises at one of them, once."""

    def __init__(self, *modules: ModuleType) -> None:
        self._files = {module.__file__ for module in modules}
        self.seen: dict[Site, int] = {}
        """How often each place was passed: with an aim, those of its function."""
        self._site: Site | None = None
        self._occurrence = 0
        self._error: Callable[[], BaseException] = MemoryError
        self.struck = False

    def aim(self, site: Site | None, occurrence: int = 1, error: Callable[[], BaseException] = MemoryError) -> None:
        """Raise at the n-th time that a place is passed from now on; nowhere for None."""
        self.seen = {}
        self._site, self._occurrence, self._error = site, occurrence, error
        self.struck = False

    @contextmanager
    def here(self) -> Generator[None]:
        """Watch this thread."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in self._files or code.co_name in _APART or not self._looks_at(code.co_qualname):
            return None
        caller = frame.f_back
        if caller is not None and caller.f_code.co_filename not in _LOOP:
            self._pass(frame)
        return self._stepped

    def _looks_at(self, function: str) -> bool:
        """Where it has an aim, the other functions run at their usual speed."""
        return self._site is None or (not self.struck and function == self._site[0])

    def _stepped(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._pass(frame)
        return self._stepped

    def _pass(self, frame: FrameType) -> None:
        if _is_left_out(frame.f_code.co_filename, frame.f_lineno):
            return
        site = (frame.f_code.co_qualname, frame.f_lineno)
        count = self.seen[site] = self.seen.get(site, 0) + 1
        if site == self._site and count == self._occurrence and not self.struck:
            self.struck = True
            raise self._error()
