"""What tasks and threads do each in their own way, by one name in both packages, for what `tools/twin.py` writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import TracebackType

import anyio
from anyio.lowlevel import checkpoint

from bullmq_protocol.model.categories import is_one

SHORTAGE = (MemoryError, OSError)
"""What a call may raise beside our errors where the system gives no memory, or no socket."""


def is_interrupt(error: BaseException) -> bool:
    """Tell whether it may be Ctrl-C."""
    return is_one(error, KeyboardInterrupt)


class Lock(nullcontext[None]):
    """Nothing: tasks of one event loop take turns, and only at an `await`."""


class Event:
    """A flag that tasks wait for. It can be made where no event loop runs."""

    def __init__(self) -> None:
        self._is_set = False
        self._waited_for: anyio.Event | None = None

    def set(self) -> None:
        """Set it, and wake all that wait."""
        self._is_set = True
        if self._waited_for is not None:
            self._waited_for.set()
            self._waited_for = None

    def clear(self) -> None:
        self._is_set = False

    async def wait(self, limit_s: float | None = None) -> None:
        """Wait until it is set, at most `limit_s` seconds."""
        if self._is_set:
            await checkpoint()
            return
        if self._waited_for is None:
            self._waited_for = anyio.Event()
        waited_for = self._waited_for
        if limit_s is None:
            # Many may wait like this for long: a scope takes a kilobyte.
            await waited_for.wait()
            return
        with anyio.move_on_after(limit_s):
            await waited_for.wait()


def in_each_process(renew: Callable[[], None]) -> None:
    """Call a method, which makes what belongs to this process alone.

    It is not called in the child of a fork, where connections refuse to work: the child makes its own.
    """
    renew()


def shielded() -> anyio.CancelScope:
    """Return what keeps its body from being cancelled."""
    return anyio.CancelScope(shield=True)


def time_limit(limit_s: float | None) -> anyio.CancelScope:
    """Return what cuts its body off after `limit_s` seconds."""
    return anyio.move_on_after(limit_s)


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
