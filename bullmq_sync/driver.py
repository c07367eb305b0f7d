"""A worker on threads: its life, from `run` or `with` to its end.

Its parts are in `driving/`, one module for each concern. Hands make the machine's calls, run jobs and deliver their
outcomes. The notifier tells the log, callbacks and metrics, the contact waits on the named connection, and the timer
for the machine's deadline.

Rules: (1) a thread that leaves work behind and waits has woken another one for it, or one that is on its way sees it;
(2) what two threads touch is named with its lock where it is made, and touched under it alone; (3) the user's code is
called with no lock held, in a copy of the context in which `run` was called, and may raise anything; (4) what ends a
thread of the worker otherwise ends the worker: it releases its jobs, and `run` raises; (5) the child of a fork is no
part of a worker that its parent runs.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

from bullmq_protocol.commands.finishing import move_job_from_active_to_wait
from bullmq_protocol.errors import ScriptError, ServerError, UsageError
from bullmq_protocol.net.transport import Transport
from bullmq_protocol.scripts.profile import Profile
from bullmq_protocol.worker.ending import Until, check_end
from bullmq_protocol.worker.events import CloseRequested, Event
from bullmq_protocol.worker.routing import check_manager
from bullmq_protocol.worker.setup import WorkerSetup
from bullmq_protocol.worker.snapshot import WorkerState
from bullmq_sync.drive import perform, run
from bullmq_sync.driving.base import DriverBase, within
from bullmq_sync.driving.contact import Contact
from bullmq_sync.driving.hands import Hands
from bullmq_sync.driving.lending import Lending
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.runs import BackoffStrategy, Runs
from bullmq_sync.driving.shared import Shared
from bullmq_sync.driving.threads import FORCED_STOP_S, WorkerThreads
from bullmq_sync.driving.timer import Timer
from bullmq_sync.forks import in_child
from bullmq_sync.guard import say
from bullmq_sync.job import Job
from bullmq_sync.primitives import Background

T = TypeVar("T")

_LOOK_S = 0.5
"""A signal that comes just before a wait begins does not end it: its handler runs when the wait is over."""


class Driver(DriverBase[Job[T]], Generic[T]):
    """Runs a worker on threads."""

    def __init__(
        self,
        setup: WorkerSetup,
        processor: Callable[[Job[T]], Any] | None,
        backoff_strategy: BackoffStrategy | None,
        transport: Transport,
        lifespan: Callable[[], AbstractContextManager[Any]] | None,
        *,
        owned: bool,
        profile: Profile,
    ) -> None:
        threads = WorkerThreads(setup.id)
        super().__init__(Shared[Job[T]](setup, transport, threads, owned=owned, profile=profile, one_by_one=True))
        shared = self._shared
        # guarded by the lock of _threads
        self._runner: int | None = None
        # set once
        self._lending = Lending(threads)
        self.notifier = Notifier(shared, self._lending)
        self._contact = Contact(shared, self.notifier)
        self.runs = Runs[T](shared, processor, backoff_strategy, self._lending, self.notifier)
        self._hands = Hands[T](shared, self._contact, self.notifier, self.runs)
        name = f"bullmq {setup.keys.name} timer"
        self._timer = Timer(shared, self._lending, self._contact, self.notifier, self._hands, name)
        self._lifespan = lifespan
        self._finished = threading.Event()
        self._met = threading.Event()
        self._background: Background | None = None
        in_child(self._forked)

    @property
    def is_running(self) -> bool:
        """Whether `run` is under way."""
        with self._threads.lock:
            return self._runner is not None and not (self._finished.is_set() or self._threads.is_parents)

    # --- life ---------------------------------------------------------------------------------------------------------

    def run(self, until: Until = None, max_jobs: int | None = None) -> None:
        """Take and process jobs until the worker is closed, or comes to its end. `with` does this in the background."""
        check_end(until, max_jobs)
        if self._claim(until, max_jobs):
            self._work()

    def _claim(self, until: Until = None, max_jobs: int | None = None) -> bool:
        """Note that it begins to run; False: it was closed before. What cannot be is refused before anything is
        opened."""
        self._setup.check_processor()
        self.check_use()
        with self._threads.lock:
            if self._finished.is_set():
                raise UsageError("worker", self._setup.id, "has ended: make a new one to work again")
            if self._runner is not None:
                raise UsageError("worker", self._setup.id, "is already running")
            if self.is_closed():
                return False
            self._machine.end_when(until, max_jobs)
            self._runner = threading.get_ident()
        context = contextvars.copy_context()
        context.run(within.set, self)
        self._threads.context = context
        return True

    def _work(self) -> None:
        """What `run` is after `_claim`, whose context is that of all handlers and callbacks."""
        with self._threads.lock:
            self._runner = threading.get_ident()
        try:
            self.notifier.meter_life(begins=True)
            if self._lifespan is None:
                self._live()
            else:
                self._live_within(self._lifespan)
        finally:
            if not self._threads.is_parents:
                self.notifier.meter_life(begins=False)
                self._finished.set()
                self.notifier.end_streams()

    def _live_within(self, lifespan: Callable[[], AbstractContextManager[Any]]) -> None:
        """Live within the user's context manager, which sees what ends the worker. A close from in there waits for
        nothing: it is the runner's own thread."""
        has_lived = False
        try:
            manager = lifespan()
            check_manager(manager, is_async=False)
            with manager as state:
                self.runs.use(state)
                # With what the user's code has set.
                context = contextvars.copy_context()
                context.run(within.set, self)
                self._threads.context = context
                has_lived = True
                self._live()
        finally:
            if not has_lived:
                self._leave(None)

    def _live(self) -> None:
        threads = self._threads
        # Only there a signal's handler may come in at any line, also where a lock is held.
        hears_signals = threading.current_thread() is threading.main_thread()
        timer: threading.Thread | None = None
        try:
            self._contact.meet()
            self._met.set()
            if hears_signals:
                timer = self._timer.start()
            if self.tracing is not None and not self.is_closed():
                threads.apart(self.tracing.started)
            with threads.lock:
                if self.is_closed():
                    if self._ending.error is not None:
                        raise self._ending.error
                    return
                actions = self._dispatch.start(self.clock(), paused=self._pauses)
                threads.due.notify_all()
            self._hands.start(actions)
            if not hears_signals:
                self._timer.keep_time()
            while not threads.stopped.wait(_LOOK_S):
                pass
        except BaseException as error:
            self._give_up(error, keeps_time=timer is None)
            raise
        finally:
            self._leave(timer)
        if self._ending.error is not None:
            raise self._ending.error

    def _may_close(self) -> bool:
        # Else the parent is the one at work.
        return not self._threads.is_parents

    def _close(self, force: bool) -> None:
        if self.begin_closing(force) and not self._is_within() and self._runs_elsewhere():
            while not self._finished.wait(_LOOK_S):
                if self.connections.given_up:
                    # A call that had just begun may be connecting since.
                    self.connections.close()

    def begin_closing(self, force: bool) -> bool:
        """Close, but wait for nothing; return whether there is something to wait for."""
        with self._threads.lock:
            self._ending.closed = True
            running = self._runner is not None
            begun = self._machine.state is not WorkerState.NEW
            self._lending.limit(0.0 if force else self._setup.settings.shutdown_ms / 1000)
            self._threads.due.notify_all()
        if not running:
            self.connections.close()
            self.notifier.end_streams()
            return False
        if not begun:
            self.connections.close()
        self._hands.happen(CloseRequested(force))
        if begun:
            self._cut_loose()
        return True

    def _is_within(self) -> bool:
        """Whether this is code that the worker waits for: on its threads, or a callback's on the thread of
        a caller that closes or pauses it."""
        return self._hands.pool.mine() or within.get() is self

    def _runs_elsewhere(self) -> bool:
        with self._threads.lock:
            return self._runner != threading.get_ident()

    def _cut_loose(self) -> None:
        """Do not wait for a server that is down, or has never answered, if no job is held."""
        with self._threads.lock:
            offline = self._dispatch.may_close_offline
        if offline:
            self.connections.close()

    def _has_paused(self) -> bool:
        """Whether nobody need wait for a pause: nothing runs, it was resumed or has ended. The lock is held."""
        is_over = self._threads.stopped.is_set() or self._runner is None
        return self._dispatch.is_quiet or not self._pauses or is_over

    def _await_pause(self) -> None:
        threads = self._threads
        if self._is_within():
            return
        with threads.lock:
            threads.watched += 1
            try:
                threads.changed.wait_for(self._has_paused)
            finally:
                threads.watched -= 1

    def enter(self) -> None:
        """Run in the background."""
        background = Background(self._work_aside, f"bullmq {self._setup.keys.name} worker")
        if self._claim():
            try:
                background.start()
            except BaseException:
                with self._threads.lock:
                    self._runner = None
                raise
            self._background = background
            # The body must not begin beside a worker that cannot work: a wrong password.
            while background.is_alive and not self._met.wait(0.01):
                pass
            if background.error is not None:
                raise background.error

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close, and wait for the background."""
        if self._background is None or self._threads.is_parents:
            self.close()
        else:
            self._background.leave(self.close, kind, error, trace)

    def _work_aside(self) -> None:
        try:
            self._work()
        except BaseException as error:
            say(logging.ERROR, "the worker ended: %s", error)
            raise

    # --- processes ----------------------------------------------------------------------------------------------------

    def check_use(self) -> None:
        """Refuse the child of a fork."""
        self._threads.check_process()

    _check_caller = check_use

    def _ask(self, event: Event) -> None:
        self._hands.ask(event)

    @property
    def _is_over(self) -> bool:
        return self._finished.is_set()

    def _forked(self) -> None:
        """In the child of a fork: a worker that runs stays the parent's, one that does not becomes one of its own."""
        self._threads.renew()
        self._met = threading.Event()
        if self._runner is not None:
            self._threads.is_parents = True
            self._finished = threading.Event()
            self._finished.set()
            for stream in self._dispatch.streams:
                # The threads that notify are in the parent. Its lock may still be a thread's of the parent.
                stream._renew()  # pyright: ignore[reportPrivateUsage]
                stream.close()
            return
        if not self._finished.is_set():
            self._finished = threading.Event()
        self._machine.rename(str(uuid.uuid4()))

    # --- the end ------------------------------------------------------------------------------------------------------

    def _give_up(self, error: BaseException, *, keeps_time: bool) -> None:
        """`run` is interrupted: give the jobs back, but not for ever."""
        threads = self._threads
        if threads.is_parents:
            return
        self._ending.closed = True
        with threads.lock:
            begun = self._machine.state is not WorkerState.NEW
        if begun:
            self._hands.happen(CloseRequested(force=True))
            self._cut_loose()
            if keeps_time:
                self._timer.keep_time(time.monotonic() + FORCED_STOP_S)
            if not threads.stopped.wait(FORCED_STOP_S):
                self.notifier.say(logging.ERROR, " could not stop in order: %r", error)
        threads.stop()

    def _release_without_machine(self) -> None:
        """The machine could not: make its pending calls, and release jobs that are not settled."""
        transport = self.connections.transport
        with self._threads.lock:
            calls, ready = self._dispatch.abandon()
            held = [(job.id, job.token or "") for job in self._dispatch.handling.values()]
        calls += [move_job_from_active_to_wait(self._setup.keys, each, token=token) for each, token in (*held, *ready)]
        for command in calls:
            try:
                perform(transport, command)
            except (ServerError, ScriptError):
                # It is settled, or another's.
                continue
        with self._threads.lock:
            strays = self._machine.give_back_strays()
        run(strays, transport)

    def _leave(self, timer: threading.Thread | None) -> None:
        threads, pool = self._threads, self._hands.pool
        if threads.is_parents:
            return
        self._ending.closed = True
        threads.stop()
        with threads.lock:
            unsettled = self._machine.state not in (WorkerState.NEW, WorkerState.STOPPED)
            gives_back = unsettled and (threads.break_ends is not None or threads.left_behind)
        if gives_back:
            try:
                self._release_without_machine()
            except Exception:
                message = ": what it held could not be given back; it will be found stalled"
                self.notifier.say(logging.ERROR, message, trace=True)
        pool.close()
        self.connections.close()
        if timer is not None:
            timer.join()
        pool.join(self._lending.is_left)
        lasting = self._lending.await_all()
        if lasting:
            message = " is closed, and waits no longer for what does not return: %s"
            self.notifier.say(logging.WARNING, message, lasting)
