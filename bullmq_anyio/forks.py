"""What becomes of the child of a fork that leaves the user's code, or goes on in its parent's event loop."""

from __future__ import annotations

import logging
import os
import sys
from _thread import get_ident
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from anyio.lowlevel import current_token

from bullmq_anyio.guard import say
from bullmq_protocol.model.categories import is_one

WENT_ON = RuntimeError("the child of a fork went on in its parent's event loop")
_guarded: dict[object, tuple[int, Any, Callable[[], object]]] = {}
"""What works in an event loop: the loop's thread, the loop, and what ends a child that goes on in it."""


def guard_loop(owner: object, message: str, *args: object, extra: dict[str, Any]) -> None:
    """From now on, end the child of a fork that gives control back to the event loop that runs here: whichever task
    has forked, those of the parent would go on in the child. `leave_loop` ends this."""

    def end(*_: object) -> NoReturn:
        end_child(WENT_ON, message, *args, extra=extra)

    _guarded[owner] = (get_ident(), current_token().native_token, end)


def leave_loop(owner: object) -> None:
    """Guard the event loop no more for this owner. It may be called again."""
    _guarded.pop(owner, None)


def _after_fork() -> None:
    here = [(loop, end) for thread, loop, end in _guarded.values() if thread == get_ident()]
    # What the child makes in an event loop of its own is no concern of these.
    _guarded.clear()
    for loop, end in here:
        if hasattr(loop, "call_soon"):
            loop.call_soon(end)
            ready: object = getattr(loop, "_ready", None)
            if isinstance(ready, deque):
                # Before everything else that is due in the loop.
                ready.rotate()
        else:
            sys.modules["trio.lowlevel"].add_instrument(_AfterStep(end))


class _AfterStep:
    """An instrument of trio's."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def after_task_step(self, task: object) -> None:
        """Called when the task that has forked lets others run."""
        self._end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def end_child(error: BaseException | None, message: str, *args: object, extra: dict[str, Any]) -> NoReturn:
    """End this process, as one that leaves its main program with `error` ends.

    It has its parent's event loop in its hands: with one step more, be it to close something, it would take replies
    that are the parent's, or have the parent hear of no reply any more.
    """
    say(logging.ERROR, message, *args, extra=extra, error=error)
    status = 1 if error is not None and is_one(error, Exception) else 0
    if isinstance(error, SystemExit) and error.code is not None:
        status = error.code & 0xFF if isinstance(error.code, int) else 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(status)
