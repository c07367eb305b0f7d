"""A worker on asyncio or trio: its life, from `run` or `async with` to its end.

Its parts are in `driving/`, one module for each concern. Slots make the machine's calls, start jobs and deliver their
outcomes. Each job has a task of its own, which runs the user's code and nothing else: what that leaves behind (a timer
that cancels the task, a cancel scope in a generator, context variables) meets nobody. The notifier tells the log,
callbacks and metrics, the contact waits on the named connection, and the timer for the machine's deadline.
"""

from __future__ import annotations

import logging
import random
from _thread import get_ident
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from types import TracebackType
from typing import Any, Generic, TypeVar, cast

import anyio

from bullmq_anyio.connecting import is_ours
from bullmq_anyio.drive import run
from bullmq_anyio.driving.base import DriverBase, within
from bullmq_anyio.driving.contact import Contact
from bullmq_anyio.driving.errands import Errands
from bullmq_anyio.driving.notifier import Notifier
from bullmq_anyio.driving.runs import BackoffStrategy, Runs
from bullmq_anyio.driving.shared import Shared
from bullmq_anyio.driving.slots import Slots
from bullmq_anyio.driving.tasks import FORCED_STOP_S, Alarm, WorkerTasks
from bullmq_anyio.driving.timer import Timer
from bullmq_anyio.job import Job
from bullmq_anyio.primitives import is_interrupt
from bullmq_anyio.tasks import Handling, job_tasks, start_unlisted
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.net.transport import AsyncTransport
from bullmq_protocol.scripts.profile import Profile
from bullmq_protocol.worker.actions import Call, Notify
from bullmq_protocol.worker.ending import Until, check_end
from bullmq_protocol.worker.events import CloseRequested, Event
from bullmq_protocol.worker.routing import check_manager
from bullmq_protocol.worker.setup import WorkerSetup

T = TypeVar("T")


class Driver(DriverBase[Handling], Generic[T]):
    """Runs a worker in tasks of one event loop."""

    def __init__(
        self,
        setup: WorkerSetup,
        processor: Callable[[Job[T]], Awaitable[Any]] | None,
        backoff_strategy: BackoffStrategy | None,
        transport: AsyncTransport,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]] | None,
        *,
        owned: bool,
        profile: Profile,
    ) -> None:
        shared = Shared[Handling](setup, transport, WorkerTasks(), owned=owned, profile=profile, one_by_one=False)
        super().__init__(shared)
        alarm = Alarm()
        self._errands = errands = Errands(self._tasks, alarm)
        self.notifier = notifier = Notifier(shared, errands, self._interrupt)
        self._contact = contact = Contact(shared, notifier)
        self.runs = runs = Runs[T](shared, processor, backoff_strategy, alarm, errands, notifier, self._interrupt)
        is_foreign = self.tracing is not None or not is_ours(transport)
        self._slots = Slots[T](shared, alarm, contact, notifier, runs, is_foreign=is_foreign)
        self._timer = Timer(shared, alarm, errands, contact, notifier, self._slots.happen)
        self._lifespan = lifespan
        self._running = False
        self._thread = 0
        self._finished: anyio.Event | None = None
        self._over = False
        self._background: _Background | None = None

    @property
    def is_running(self) -> bool:
        """Whether `run` is under way."""
        begins = self._background is not None and self._background.begins
        return self._running or (begins and not self.is_closed())

    # --- life ---------------------------------------------------------------------------------------------------------

    async def run(self, until: Until = None, max_jobs: int | None = None) -> None:
        """Take and process jobs until the worker is closed, or comes to its end. `async with` does this in the
        background."""
        check_end(until, max_jobs)
        self._check_first()
        self._check_entered()
        self._machine.end_when(until, max_jobs)
        await self._run()

    async def _run(self) -> None:
        self._setup.check_processor()
        ending, tasks = self._ending, self._tasks
        if ending.closed:
            return
        lifespan = None if self._lifespan is None else self._lifespan()
        if lifespan is not None:
            check_manager(lifespan, is_async=True)
        self._running = True
        self._thread = get_ident()
        self.notifier.enter_process()
        tasks.context = copy_context()
        tasks.context.run(within.set, self)
        # Requests from before `run` may have been made in another event loop.
        self.notifier.let_go()
        tasks.stopped = anyio.Event()
        self._finished = anyio.Event()
        try:
            self.notifier.meter_life(begins=True)
            if lifespan is None:
                await self._live()
            else:
                await self._live_within(lifespan)
        finally:
            # Where the lifespan did not begin, nobody has closed.
            ending.closed = True
            try:
                await self._close_for_good()
            finally:
                self._running = False
                self._over = True
                self._finished.set()
                self.notifier.end_streams()
                self.notifier.meter_life(begins=False)
                self.notifier.leave_process()
                self.notifier.let_go()

    async def _live_within(self, lifespan: AbstractAsyncContextManager[Any]) -> None:
        """Live within the user's context manager, which sees what ends the worker. A close from in there waits for
        nothing."""
        token = within.set(self)
        try:
            async with lifespan as state:
                within.reset(token)
                self.runs.use(state)
                # With what the user's code has set.
                self._tasks.context = copy_context()
                self._tasks.context.run(within.set, self)
                try:
                    await self._live()
                finally:
                    token = within.set(self)
        finally:
            within.reset(token)

    async def _live(self) -> None:
        ending, stopped = self._ending, self._tasks.stopped
        assert stopped is not None  # it was made as `run` began
        try:
            await self._contact.meet()
            # The work goes on in a shielded scope, so that a cancellation from outside does not cut it in the middle.
            async with anyio.create_task_group() as outer:
                start_unlisted(outer, self._work)
                try:
                    await stopped.wait()
                except BaseException as error:
                    self.notifier.check_process(error)
                    self._give_up()
                    raise
        finally:
            ending.closed = True
            await self._close_for_good()
        if ending.error is not None:
            raise ending.error

    async def _await_pause(self) -> None:
        while self._pauses and self._running and not self._dispatch.is_quiet and within.get() is not self:
            await self._slots.await_idle()

    def _may_close(self) -> bool:
        self._check_caller()
        return True

    async def _close(self, force: bool) -> None:
        self._ending.closed = True
        self._errands.limit(0.0 if force else self._setup.settings.shutdown_ms / 1000)
        if self._running and self._finished is not None:
            if self._tasks.group is None:
                await self.connections.aclose()
            self._slots.happen(CloseRequested(force))
            if self._dispatch.may_close_offline:
                await self.connections.aclose()
            if within.get() is not self:
                await self._finished.wait()
        elif not self._over:
            self._over = True
            await self.connections.aclose()
            self.notifier.end_streams()
            self.notifier.let_go()

    def _check_first(self) -> None:
        if self._over and (self._finished is not None or self._background is not None):
            raise UsageError("worker", self._setup.id, "has ended: make a new one to work again")
        if self._running:
            raise UsageError("worker", self._setup.id, "is already running")

    def _check_entered(self) -> None:
        if self._background is not None:
            raise UsageError("worker", self._setup.id, "is already running: it was entered before")

    def _check_caller(self) -> None:
        if self._tasks.group is not None and get_ident() != self._thread:
            raise UsageError("worker", self._setup.id, "runs in the event loop of another thread: call it from there")

    def check_use(self) -> None:
        """Nothing: any task may."""

    def _ask(self, event: Event) -> None:
        self._slots.ask(event)
        self._slots.wake_idle()

    @property
    def _is_over(self) -> bool:
        return self._over

    async def enter(self) -> None:
        """Run in the background."""
        self._check_first()
        self._check_entered()
        self._background = _Background()
        await self._background.start(self._run)

    async def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close, and wait for the background; return whether the body's error is the background's."""
        background = self._background
        if background is None:
            return None
        return await background.end(self.aclose, kind, error, trace)

    # --- the work and its end -----------------------------------------------------------------------------------------

    async def _work(self) -> None:
        within.set(self)
        tasks = self._tasks
        with anyio.CancelScope(shield=True) as tasks.scope:
            try:
                if self.is_closed():
                    return
                try:
                    async with anyio.create_task_group() as group:
                        tasks.jobs = job_tasks(self.runs.attend, tasks.context, group)
                        tasks.group = group
                        if self.tracing is not None:
                            self.tracing.started()
                        self._slots.start(self._dispatch.start(self.clock(), paused=self._pauses))
                        tasks.spawn(self._timer.keep_time)
                    tasks.group = None
                    if tasks.stopped is not None and not tasks.stopped.is_set():
                        raise _Interrupted(f"worker {self._setup.id}: another program's code has cancelled its tasks")
                except BaseException:
                    tasks.broken = True
                    await self.runs.end_all(self._timer.warn_of_handlers)
                    raise
            except anyio.get_cancelled_exc_class():
                tasks.group = None
                if not tasks.scope.cancel_called:
                    # asyncio.run cancels every task at its end, this one too.
                    await self._finish_up()
                raise
            except BaseException as error:
                # Ctrl-C met one of our tasks (trio raises it where it comes), or a fault of this library.
                tasks.group = None
                self._ending.error = _root(error)
                await self._finish_up()
            finally:
                tasks.group = None
                self._slots.stop()

    async def _finish_up(self) -> None:
        """The tasks are gone: release the running jobs, so that another worker takes them immediately."""
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + FORCED_STOP_S):
            try:
                await self._settle()
            except Exception:
                self.notifier.say(logging.ERROR, " broke while it gave its jobs back", trace=True)
            try:
                await run(self._machine.give_back_strays(), self.connections.transport)
            except BullMQError as error:
                self.notifier.say(logging.WARNING, " may still hold jobs: %s", error)

    async def _settle(self) -> None:
        actions = self._dispatch.last_actions(self.clock())
        while actions:
            match actions.pop(0):
                case Notify(notice):
                    self.notifier.tell(notice)
                case Call() as call:
                    outcome = await self._slots.perform(call)
                    actions += self._dispatch.answered(call, outcome, random.random(), self.clock())
                case _:
                    pass

    def _interrupt(self, error: BaseException) -> None:
        """End the worker with an error, which `run` raises when everything is given back."""
        ending = self._ending
        if ending.error is None or is_interrupt(error):
            ending.error = error
        self._give_up()

    def _give_up(self) -> None:
        """`run` is cancelled or interrupted: give the jobs back, but not for ever."""
        self._ending.closed = True
        if self._tasks.scope is not None:
            self._tasks.scope.deadline = anyio.current_time() + FORCED_STOP_S
            self._slots.happen(CloseRequested(force=True))

    async def _close_for_good(self) -> None:
        """Close the transports, even if this very task is cancelled meanwhile."""
        with anyio.CancelScope(shield=True):
            try:
                await self.connections.aclose()
            except anyio.get_cancelled_exc_class():
                await self.connections.aclose()
                raise


class _Interrupted(RuntimeError):
    """The worker's tasks are gone, and nobody has ended it."""


class _Background:
    """`run` in a task beside the body of an `async with`; its failure ends the body and is raised as it is."""

    def __init__(self) -> None:
        self._tasks = anyio.create_task_group()
        self._error: Exception | None = None
        self.begins = False
        """It is to run, and has not taken its first step."""

    async def start(self, run: Callable[[], Awaitable[None]]) -> None:
        await self._tasks.__aenter__()
        self.begins = True
        self._tasks.start_soon(self._run, run)

    async def _run(self, run: Callable[[], Awaitable[None]]) -> None:
        self.begins = False
        try:
            await run()
        except Exception as error:
            self._error = error
            self._tasks.cancel_scope.cancel()

    async def end(
        self,
        close: Callable[[bool], Awaitable[None]],
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if self._error is None and not isinstance(error, anyio.get_cancelled_exc_class()):
            await close(error is not None and not isinstance(error, Exception))
            await self._tasks.__aexit__(None, None, None)
            swallowed = False
        else:
            swallowed = await self._tasks.__aexit__(kind, error, trace) is True
        if self._error is not None:
            raise self._error
        return swallowed


def _root(error: BaseException) -> BaseException:
    """Return the first exception that a task group wraps; of several, Ctrl-C."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    roots = [_root(each) for each in group.exceptions]
    return next((each for each in roots if is_interrupt(each)), roots[0])
