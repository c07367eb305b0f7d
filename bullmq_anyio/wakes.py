"""What one task awaits and another one sets, once: smaller than an event of anyio's, and awaited by one task alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Protocol

from anyio.lowlevel import current_token


class Wake(Protocol):
    """What one task awaits and another one sets: the part of an asyncio future that is needed."""

    def done(self) -> bool: ...
    def result(self) -> Any: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: BaseException, /) -> None: ...
    def cancel(self) -> bool: ...
    def __await__(self) -> Generator[Any, Any, Any]: ...


class TrioWake:
    """A future for one task of trio."""

    __slots__ = ("_done", "_error", "_result", "_task")
    trio: ClassVar[Any]
    """`trio.lowlevel`, once it is loaded: a program with asyncio alone need not have it."""

    def __init__(self) -> None:
        self._done = False
        self._task: Any = None
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        # A task that was not woken yet is not.
        return self._done and self._task is None

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def set_result(self, result: Any, /) -> None:
        self._result = result
        self._done = True
        self.resume()

    def resume(self) -> None:
        """Wake the task, if it has not been woken."""
        task = self._task
        if task is not None:
            try:
                self._task = None
                self.trio.reschedule(task)
            except BaseException:
                self._task = task
                raise

    def set_exception(self, exception: BaseException, /) -> None:
        self._error = exception
        self.set_result(None)

    def cancel(self) -> bool:
        self._done = True
        return True

    def __await__(self) -> Generator[Any, Any, Any]:
        if not self._done:
            trio = self.trio
            self._task = trio.current_task()
            try:
                yield from trio.wait_task_rescheduled(self.aborted).__await__()
            finally:
                self._task = None
        return self.result()

    def aborted(self, _: object) -> Any:
        self._task = None
        self._done = True
        return self.trio.Abort.SUCCEEDED


def wake_maker() -> Callable[[], Wake]:
    """Return what makes wakes in this event loop: each costs a third of an event of anyio's."""
    maker: Callable[[], Wake] | None = getattr(current_token().native_token, "create_future", None)
    if maker is not None:
        return maker
    trio = TrioWake.trio = sys.modules["trio.lowlevel"]
    # If an interrupt came just then, nobody would know whether the task was woken; trio itself calls the other.
    trio.enable_ki_protection(TrioWake.resume)
    trio.enable_ki_protection(TrioWake.aborted)
    return TrioWake
