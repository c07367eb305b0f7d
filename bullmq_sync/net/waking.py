"""The calls of a link, and which of the threads that wait for them are woken when.

Of many threads whose replies have come, one is woken; when it runs, it wakes the next. All at once they would sleep
again immediately, until they get the GIL. Adds gather meanwhile, since most of these threads add again; the last one
sends them. Few threads are woken together; so are all if one does not run soon after it was woken, because others keep
the GIL. The main thread, where signals are handled, has no part in this: it is woken immediately.

Rule (6), after those of `link.py`: a call in `_to_wake` is done; while there is one, `_woken` is a thread that was
woken, and will wake the next.
"""

from __future__ import annotations

import threading
from collections import deque
from time import monotonic
from typing import Any

from bullmq_protocol.command import Command
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.net.wire import Pack, Wire

_FEW = 12
"""Fewer threads than this are woken together: else the server has nothing to do until the last one has run."""
_SOON_S = 0.002
"""A thread that was woken runs sooner, unless others keep the GIL: for up to 5 ms (`sys.setswitchinterval`)."""
_MOST_WOKEN_TOGETHER = 16
"""Where a thread has not, all threads are woken together this many times."""


class Call:
    """One caller's bytes, and the replies it waits for."""

    __slots__ = (
        "command",
        "deadline",
        "done",
        "dropped",
        "ends_merged",
        "failure",
        "from_main_thread",
        "limit_s",
        "members",
        "missing",
        "payload",
        "replies",
        "sent",
        "turn",
    )

    def __init__(self, payload: bytes, missing: int, limit_s: float, command: Command[Any] | None = None) -> None:
        self.payload = payload
        self.command = command
        """A command that is packed only when it is sent, because it may go together with others."""
        self.members: tuple[Call, ...] = ()
        """The calls that this one stands for: they wait themselves, it has their place in the order of replies."""
        self.missing = missing
        self.limit_s = limit_s
        self.deadline = monotonic() + limit_s
        self.replies: list[Any] = []
        self.sent = False
        self.done = False
        self.dropped = False
        self.ends_merged = False
        """Whether it is the last of a write with commands that go together."""
        self.turn: Any = None
        """A lock that its thread waits for: released when it is done, or has a role."""
        self.from_main_thread = False
        """Its thread may be within a signal's handler: no other waits for it to run."""
        self.failure: BullMQError | None = None

    def wake(self) -> None:
        """Let its thread run, if it waits."""
        turn = self.turn
        if turn is not None and turn.locked():
            turn.release()


class Waking(Wire[Call]):
    """Wakes the threads of calls that are done."""

    def __init__(self, pack: Pack) -> None:
        super().__init__(pack)
        self._to_wake: deque[Call] = deque()
        self._woken: Call | None = None
        self._woken_at = 0.0
        self._wakes_together = 0
        self._main = threading.main_thread().ident

    def _end_call(self, call: Call) -> None:
        call.done = True
        if call.turn is not None:
            if call.from_main_thread:
                call.wake()
            else:
                self._to_wake.append(call)

    def _wake_some(self, by: Call | None) -> None:
        """Wake one of the threads whose replies have come, unless one was woken and will do that; or all. The lock is
        held."""
        if self._woken is None and len(self._to_wake) < _FEW:
            self._wake_all()
            return
        now = monotonic()
        if self._woken is not None:
            if now - self._woken_at > _SOON_S:
                self._wakes_together = _MOST_WOKEN_TOGETHER
            elif self._woken is not by:
                return
        if self._wakes_together:
            self._wakes_together -= 1
            self._wake_all()
        else:
            self._woken_at = now
            self._wake_one()

    def _wake_one(self) -> None:
        to_wake = self._to_wake
        while to_wake:
            call = self._woken = to_wake[0]
            # It may have been woken for a role, and its thread have set `turn` to None.
            turn, waits = call.turn, False
            if turn is not None and turn.locked():
                turn.release()
                waits = True
            # Last, so that an interrupt in between leaves nobody behind.
            to_wake.popleft()
            if waits:
                return
        self._woken = None

    def _wake_all(self) -> None:
        for call in self._to_wake:
            call.wake()
        self._to_wake.clear()
        self._woken = None
