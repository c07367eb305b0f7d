"""What tasks and threads do each in their own way, by one name in both packages, for what `tools/twin.py` writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import copy_context
from threading import Event, Lock
from types import TracebackType

from bullmq_protocol.model.categories import is_one
from bullmq_sync.forks import in_child

__all__ = ["SHORTAGE", "Background", "Event", "Lock", "in_each_process", "is_interrupt", "shielded", "time_limit"]

SHORTAGE = (RuntimeError, MemoryError, OSError)
"""What a call, or the start of a thread, may raise where the system gives no memory, no socket or no thread."""
_LOOK_S = 0.05


def is_interrupt(error: BaseException) -> bool:
    """Tell whether it may be Ctrl-C, which Python raises in the main thread alone, at any line."""
    return is_one(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


def in_each_process(renew: Callable[[], None]) -> None:
    """Call a method, which makes what belongs to this process alone, now and in the child of every fork.

    It must take no lock that it has not made: a thread of the parent may have held it.
    """
    renew()
    in_child(renew)


def shielded() -> nullcontext[None]:
    """Return nothing of note: a thread cannot be cancelled."""
    return nullcontext()


def time_limit(limit_s: float | None) -> nullcontext[None]:
    """Return nothing of note: a thread cannot be cut off. The calls of its body have time limits of their own."""
    return nullcontext()


class Background:
    """A thread that runs beside the body of a `with` until it is left, in a copy of the context. `error` is what ended
    it."""

    def __init__(self, main: Callable[[], None], name: str, is_left: Callable[[], bool] = lambda: False) -> None:
        """`is_left` tells that nobody is to wait for it: the user's code does not give it back."""
        self.error: BaseException | None = None
        self._main = main
        self._is_left = is_left
        # A callback that never ends must not keep the process alive.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def leave(
        self,
        close: Callable[[], None],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Call `close`, which ends it, and wait for its end; raise what ended it unless the body raised.

        The last three are what the body raised. From the thread itself it does not wait.
        """
        close()
        if self._thread is not threading.current_thread():
            while self._thread.is_alive() and not self._is_left():
                self._thread.join(_LOOK_S)
        if self.error is not None and error is None:
            raise self.error

    def _run(self) -> None:
        try:
            self._main()
        except BaseException as error:
            self.error = error
