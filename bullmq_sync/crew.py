"""The threads of a worker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container
from typing import TypeAlias

from bullmq_protocol.worker.actions import Call, Listen
from bullmq_sync.forks import in_child
from bullmq_sync.primitives import SHORTAGE

Task: TypeAlias = Call | Listen | Callable[[], None] | None

_JOIN_S = 5.0
_IDLE_S = 2.0
"""A thread that had nothing to do for so long ends: an idle worker keeps none that it does not need."""


class Crew:
    """Threads that make calls, and without one whatever is there to do. One is made whenever none is idle, so that
    none ever waits for another; the last that became idle is woken first.

    Where the system gives no thread, what is to be done waits for the next that is free, and for `retry`. `on_short`
    is told of the first failure, with no lock held; `on_death` of what `work` raised, which ends its thread.
    """

    def __init__(
        self,
        work: Callable[[Task], None],
        name: str,
        *,
        on_short: Callable[[BaseException], None],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._work = work
        self._name = name
        self._on_short = on_short
        self._on_death = on_death
        self._lock = threading.Lock()
        # guarded by _lock: who has nothing to do, what has no thread yet, and all that are there
        self._idle: list[_Hand] = []
        self._backlog: deque[Task] = deque()
        self._hands: set[_Hand] = set()
        self._made = 0
        self._short = False
        self._closed = False
        in_child(self._forked)

    @property
    def short(self) -> bool:
        """Whether something waits because the system gave no thread."""
        with self._lock:
            return self._short

    def submit(self, task: Task) -> None:
        """Have a thread do it. It never raises for want of threads."""
        with self._lock:
            if self._idle:
                self._hand_over(self._idle.pop(), task)
                return
            # Not given to the new thread itself: where starting it fails, nobody knows how far it came.
            self._backlog.append(task)
        self._hire()

    def retry(self) -> None:
        """Try again to find threads for what waits for one."""
        with self._lock:
            missing = len(self._backlog)
            if not missing:
                self._short = False
        for _ in range(missing):
            if not self._hire():
                return

    def mine(self) -> bool:
        """Whether this is one of its threads."""
        hand = threading.current_thread()
        return isinstance(hand, _Hand) and hand.crew is self

    def handling(self, begins: bool) -> None:
        """Note that the user's code has this thread, or has it no more."""
        hand = threading.current_thread()
        if isinstance(hand, _Hand):
            hand.handling = begins

    def leave_behind(self, threads: Container[int | None]) -> None:
        """Wait no more for these, by their ident: the user's code has them."""
        with self._lock:
            for hand in self._hands:
                if hand.ident in threads:
                    hand.handling = True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for hand in idle:
                self._hand_over(hand, None, ends=True)

    def join(self) -> None:
        """Wait for the threads, but for those that the user's code does not give back."""
        end = time.monotonic() + _JOIN_S
        with self._lock:
            hands = tuple(self._hands)
        for hand in hands:
            while hand.is_alive() and not hand.handling and time.monotonic() < end:
                hand.join(0.05)

    def _hire(self) -> bool:
        """Start a thread for what waits; return whether there was one to have."""
        with self._lock:
            self._made += 1
            number = self._made
        try:
            hand = _Hand(self, f"{self._name} {number}")
            hand.start()
        except SHORTAGE as error:
            with self._lock:
                first, self._short = not self._short, True
            if first:
                self._on_short(error)
            return False
        return True

    def _hand_over(self, hand: _Hand, task: Task, *, ends: bool = False) -> None:
        """Wake a thread that is idle no more. The lock is held."""
        hand.task = task
        hand.ends = ends
        hand.turn.release()

    def serve(self, hand: _Hand) -> None:
        """The life of one thread."""
        with self._lock:
            self._hands.add(hand)
        try:
            while self._take(hand):
                self._work(hand.task)
        except BaseException as error:
            self._on_death(error)
        finally:
            with self._lock:
                self._hands.discard(hand)

    def _take(self, hand: _Hand) -> bool:
        """Give a thread its next task, when there is one; False: it is to end."""
        with self._lock:
            if self._backlog:
                hand.task = self._backlog.popleft()
                return True
            if self._closed:
                return False
            self._idle.append(hand)
        if not hand.turn.acquire(timeout=_IDLE_S):
            with self._lock:
                if hand in self._idle:
                    self._idle.remove(hand)
                    return False
            # It was woken at the last moment.
            hand.turn.acquire()
        return not hand.ends

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._idle = []
        self._backlog = deque()
        self._hands = set()


class _Hand(threading.Thread):
    """One thread, and what it waits for. `task` and `ends` are the crew's while it is idle, and its own while not."""

    def __init__(self, crew: Crew, name: str) -> None:
        # A handler that never ends must not keep the process alive.
        super().__init__(name=name, daemon=True)
        self.crew = crew
        self.task: Task = None
        self.ends = False
        self.handling = False
        """Set by the thread itself, or by who waits no more: the user's code has it."""
        self.turn = threading.Lock()
        self.turn.acquire()

    def run(self) -> None:
        self.crew.serve(self)
