"""The threads of a worker."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from bullmq_protocol.worker.typed import CommandCall, CommandWait
from bullmq_sync.forks import in_child
from bullmq_sync.primitives import SHORTAGE

Task: TypeAlias = CommandCall | CommandWait | Callable[[], None] | None

_JOIN_S = 5.0
_IDLE_S = 2.0
"""A thread that is idle for this long ends: an idle worker keeps none that it does not need."""


class ThreadPool:
    """Threads that make calls, and without one do any work there is. One is made whenever none is idle, so that none
    ever waits for another; the last one that became idle is woken first.

    If the system gives no thread, tasks wait for the next free one, and for `retry`. `on_short` receives the first
    failure, with no lock held; `on_death` an exception of `work`, which ends its thread.
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
        # guarded by _lock: idle threads, tasks without a thread, and all threads
        self._idle: list[_PoolThread] = []
        self._backlog: deque[Task] = deque()
        self._threads: set[_PoolThread] = set()
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
                self._wake(self._idle.pop(), task)
                return
            # Not given to the new thread itself: where starting it fails, nobody knows how far it came.
            self._backlog.append(task)
        self._add_thread()

    def retry(self) -> None:
        """Try again to find threads for what waits for one."""
        with self._lock:
            missing = len(self._backlog)
            if not missing:
                self._short = False
        for _ in range(missing):
            if not self._add_thread():
                return

    def mine(self) -> bool:
        """Whether this is one of its threads."""
        thread = threading.current_thread()
        return isinstance(thread, _PoolThread) and thread.pool is self

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for thread in idle:
                self._wake(thread, None, ends=True)

    def join(self, is_left: Callable[[int | None], bool] = lambda _: False) -> None:
        """Wait for the threads, but for those that the user's code does not give back; `is_left`, called with a
        thread's ident, names more of them."""
        end = time.monotonic() + _JOIN_S
        with self._lock:
            threads = tuple(self._threads)
        for thread in threads:
            while thread.is_alive() and not (thread.handling or is_left(thread.ident)) and time.monotonic() < end:
                thread.join(0.05)

    def _add_thread(self) -> bool:
        """Start a thread for what waits; return whether there was one to have."""
        with self._lock:
            self._made += 1
            number = self._made
        try:
            thread = _PoolThread(self, f"{self._name} {number}")
            thread.start()
        except SHORTAGE as error:
            with self._lock:
                first, self._short = not self._short, True
            if first:
                self._on_short(error)
            return False
        return True

    def _wake(self, thread: _PoolThread, task: Task, *, ends: bool = False) -> None:
        """Wake a thread that is idle no more. The lock is held."""
        thread.task = task
        thread.ends = ends
        thread.turn.release()

    def serve(self, thread: _PoolThread) -> None:
        """The life of one thread."""
        with self._lock:
            self._threads.add(thread)
        try:
            while self._take(thread):
                self._work(thread.task)
        except BaseException as error:
            self._on_death(error)
        finally:
            with self._lock:
                self._threads.discard(thread)

    def _take(self, thread: _PoolThread) -> bool:
        """Give a thread its next task, when there is one; False: it is to end."""
        with self._lock:
            if self._backlog:
                thread.task = self._backlog.popleft()
                return True
            if self._closed:
                return False
            self._idle.append(thread)
        if not thread.turn.acquire(timeout=_IDLE_S):
            with self._lock:
                if thread in self._idle:
                    self._idle.remove(thread)
                    return False
            # It was woken at the last moment.
            thread.turn.acquire()
        return not thread.ends

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._idle = []
        self._backlog = deque()
        self._threads = set()


def handling(begins: bool) -> None:
    """Note that the user's code has this thread, or has it no more, where it is one of a pool's."""
    thread = threading.current_thread()
    if isinstance(thread, _PoolThread):
        thread.handling = begins


class _PoolThread(threading.Thread):
    """One thread, and what it waits for. `task` and `ends` are the pool's while it is idle, and its own while not."""

    def __init__(self, pool: ThreadPool, name: str) -> None:
        # A handler that never ends must not keep the process alive.
        super().__init__(name=name, daemon=True)
        self.pool = pool
        self.task: Task = None
        self.ends = False
        self.handling = False
        """Set by the thread itself: the user's code has it."""
        self.turn = threading.Lock()
        self.turn.acquire()

    def run(self) -> None:
        self.pool.serve(self)
