"""The common part of both kinds of drivers, and the requests that a worker takes at any time."""

from __future__ import annotations

import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from typing import Generic, TypeVar

from bullmq_protocol.common.keys import check_name
from bullmq_protocol.common.units import check_flag
from bullmq_protocol.worker.events import CancelRequested, Event, PauseRequested, ResumeRequested, Tick
from bullmq_protocol.worker.notices import Notice, check_callback
from bullmq_protocol.worker.options import check_concurrency
from bullmq_protocol.worker.snapshot import WorkerSnapshot, WorkerState
from bullmq_protocol.worker.tracing import own_span
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.shared import Shared
from bullmq_sync.guard import say
from bullmq_sync.notices import Notices

H = TypeVar("H")
N = TypeVar("N", bound=Notice)


within: ContextVar[object] = ContextVar("bullmq_sync.worker", default=None)
"""The worker whose handlers and callbacks this code is part of."""


class DriverBase(ABC, Generic[H]):
    """What users ask of a worker, on asyncio, trio or threads. `H` is the data kept of a job that runs."""

    notifier: Notifier

    def __init__(self, shared: Shared[H]) -> None:
        setup = shared.setup
        for warning in setup.warnings:
            say(logging.WARNING, "worker %s: %s", setup.id, warning, extra=setup.extra)
        self._shared = shared
        self._threads = shared.threads
        # guarded by the lock of _threads
        self._dispatch = shared.dispatch
        self._machine = shared.machine
        self._pauses = False
        """It was paused, and not resumed since."""
        # set once
        self._setup = setup
        self._ending = shared.dispatch.ending
        self.tracing = shared.tracing
        self.clock = shared.clock
        self.connections = shared.connections

    @abstractmethod
    def check_use(self) -> None:
        """Refuse callers that may not use it at all."""

    @abstractmethod
    def _check_caller(self) -> None:
        """Refuse callers that may not make requests."""

    @abstractmethod
    def _may_close(self) -> bool:
        """Whether it is this process's to close. Refuses callers that may not."""

    @abstractmethod
    def _close(self, force: bool) -> None:
        """Close, and wait for what is not the caller itself."""

    @abstractmethod
    def _ask(self, event: Event) -> None:
        """Pass a request of the user's to the machine."""

    @abstractmethod
    def _await_pause(self) -> None:
        """Wait until nothing runs, it is resumed or has ended; not for itself."""

    @property
    @abstractmethod
    def _is_over(self) -> bool:
        """Whether it will emit no further notice."""

    @property
    def concurrency(self) -> int:
        """How many jobs run at a time, at least 1. May be set while the worker runs."""
        with self._threads.lock:
            return self._machine.concurrency

    @concurrency.setter
    def concurrency(self, value: int) -> None:
        self._check_caller()
        with self._threads.lock:
            self._machine.concurrency = check_concurrency(value)
        self._ask(Tick(random.random()))

    @property
    def is_paused(self) -> bool:
        """Whether the worker itself is paused, also before it runs. A paused queue does not count."""
        with self._threads.lock:
            state = self._machine.state
            return state is WorkerState.PAUSED or (state is WorkerState.NEW and self._pauses and not self.is_closed())

    def is_closed(self) -> bool:
        """Whether it was closed, or is to end."""
        return self._ending.closed

    def __repr__(self) -> str:
        keys = self._setup.keys
        with self._threads.lock:
            word = self._machine.word
        return f"<Worker {keys.name!r}, prefix {keys.prefix!r}, id {self._setup.id!r}, {word}>"

    def snapshot(self) -> WorkerSnapshot:
        """Return what the worker holds and waits for: a plain value, which `msgspec.json` can encode."""
        self.check_use()
        with self._threads.lock:
            return self._machine.snapshot(self.clock())

    def pause(self, *, wait: bool = True) -> None:
        """Start no further job."""
        check_flag("wait", wait)
        self._check_caller()
        with own_span(self.tracing, "pause", {} if wait else {"bullmq.worker.do.not.wait.active": True}):
            with self._threads.lock:
                self._pauses = True
            self._ask(PauseRequested())
            if wait:
                self._await_pause()

    def close(self, force: bool = False) -> None:
        """Close the worker, and wait until that is done."""
        check_flag("force", force)
        if self._may_close():
            with own_span(self.tracing, "close", {"bullmq.worker.force.close": force}):
                self._close(force)

    def resume(self) -> None:
        """Take jobs again after `pause`."""
        self._check_caller()
        with own_span(self.tracing, "resume"):
            with self._threads.lock:
                self._pauses = False
            self._ask(ResumeRequested())

    def cancel(self, job_id: str | None, reason: str) -> int:
        """Cancel the handlers of this job, or all; return how many."""
        check_name("reason", reason, max_length=None)
        self._check_caller()
        with self._threads.lock:
            count = self._machine.handlers_of(job_id)
        if count:
            self._ask(CancelRequested(job_id, reason))
        return count

    def on(self, kind: type[N], callback: Callable[[N], object]) -> Callable[[], None]:
        """Call a function with each notice of one kind."""
        check_callback(kind, callback)
        self.check_use()
        return self.notifier.subscribers.add(kind, callback)

    def notices(self, buffer: int = 1000) -> Notices:
        """Return a reader of all notices from now on. It ends with the worker."""
        self.check_use()
        stream = self.notifier.stream(buffer)
        if self._is_over:
            stream.close()
        return stream
