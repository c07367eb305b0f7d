"""What tasks and threads do each in their own way, by one name in both packages, for what `tools/twin.py` writes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import anyio
from anyio.lowlevel import checkpoint


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
        with anyio.move_on_after(limit_s):
            if self._waited_for is None:
                self._waited_for = anyio.Event()
            await self._waited_for.wait()


def in_each_process(renew: Callable[[], None]) -> None:
    """Call a method, which makes what belongs to this process alone.

    It is not called in the child of a fork, where connections refuse to work: what is needed there is made there.
    """
    renew()
