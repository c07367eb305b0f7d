"""What tasks and threads do each in their own way, by one name in both packages, for what `tools/twin.py` writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

import anyio
from anyio.lowlevel import checkpoint

from bullmq_anyio.wakes import Wake, wake_maker
from bullmq_protocol.model.categories import is_one

SHORTAGE = (MemoryError, OSError)
"""What a call may raise beside our errors where the system gives no memory, or no socket."""


def is_interrupt(error: BaseException) -> bool:
    """Tell whether it may be Ctrl-C."""
    return is_one(error, KeyboardInterrupt)


class Lock(nullcontext[None]):
    """Nothing: tasks of one event loop take turns, and only at an `await`."""


class Event:
    """A flag that tasks of one event loop wait for. It can be made where no event loop runs."""

    __slots__ = ("_is_set", "_waiting")

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: tuple[Wake, ...] = ()

    def set(self) -> None:
        """Set it, and wake all that wait."""
        self._is_set = True
        waiting, self._waiting = self._waiting, ()
        for wake in waiting:
            # One that was cancelled is done.
            if not wake.done():
                wake.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, limit_s: float | None = None) -> None:
        """Wait until it is set, at most `limit_s` seconds."""
        if self._is_set:
            await checkpoint()
            return
        wake = wake_maker()()
        self._waiting += (wake,)
        try:
            if limit_s is None:
                # Many may wait like this for long: a scope takes a kilobyte.
                await wake
                return
            with anyio.move_on_after(limit_s):
                await wake
        finally:
            # `set` has dropped it, unless the wait was cut off.
            self._waiting = tuple(each for each in self._waiting if each is not wake)


def in_each_process(renew: Callable[[], None]) -> None:
    """Call a method, which makes what belongs to this process alone.

    It is not called in the child of a fork, where connections refuse to work: the child makes its own.
    """
    renew()


def shielded() -> anyio.CancelScope:
    """Return what keeps its body from being cancelled."""
    return anyio.CancelScope(shield=True)


def time_limit(limit_s: float | None) -> AbstractContextManager[object]:
    """Return what cuts its body off after `limit_s` seconds."""
    return nullcontext() if limit_s is None else anyio.move_on_after(limit_s)


class Background:
    """A task that runs beside the body of an `async with` until it is left. `error` is what ended it."""

    def __init__(
        self, main: Callable[[], Awaitable[None]], name: str, is_left: Callable[[], bool] = lambda: False
    ) -> None:
        """`is_left` is for threads, which cannot be cancelled."""
        self.error: Exception | None = None
        self._main = main
        self._name = name
        self._tasks = anyio.create_task_group()

    async def start(self) -> None:
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run, name=self._name)

    async def leave(
        self,
        close: Callable[[], Awaitable[None]],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Call `close`, which ends it, and wait for its end; raise what ended it unless the body raised.

        The last three describe the body's exception. Where that is a cancellation, the rest is shielded from it.
        """
        if error is None or isinstance(error, Exception):
            await close()
            await self._tasks.__aexit__(None, None, None)
            if self.error is not None and error is None:
                raise self.error
            return None
        with shielded():
            await close()
        return await self._tasks.__aexit__(kind, error, trace)

    async def _run(self) -> None:
        try:
            await self._main()
        except Exception as error:
            self.error = error
