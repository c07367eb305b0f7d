"""Drives a scheduler in tasks of one event loop.

On asyncio calls are made by pymongo's `AsyncMongoClient`, or by the blocking client in worker threads, as on trio.

Nothing is decided here. Calls of the machine and the user's handlers run in two groups of tasks, in a scope of their
own that a cancellation from outside does not cut: the user's code is cancelled, and its jobs are given back. Each
handler has a task group of its own, each callback is called as if in a task of its own (`apart`), and both in copies of
the context in which the scheduler was entered: what they do to their task meets no other.
"""

from __future__ import annotations

import inspect
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from datetime import tzinfo
from functools import partial
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import current_token
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.database import Database

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.failure import Failure, FailureKind, failure_of
from bullmq_protocol.worker.actions import Action, Call, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.dispatch import Dispatcher, Queued, steps
from bullmq_protocol.worker.events import CloseRequested, Event, JobRaised, JobReturned, Tick, WaitCancelled
from bullmq_protocol.worker.snapshot import WorkerSnapshot
from monque_anyio import blocking
from monque_anyio.apart import Apart, apart, end_apart
from monque_anyio.clocks import clock
from monque_anyio.perform import Changes, perform
from monque_protocol.commands import Command
from monque_protocol.document import Document, Job, typed_job
from monque_protocol.options import Settings
from monque_protocol.scheduler import OneByOne, SchedulerMachine

LOGGER: Final = logging.getLogger("monque")
THREADS: Final = 32
"""How many calls of a blocking client are made at once."""
FORCED_STOP_S: Final = 5.0
_FOREVER_S: Final = 3_600.0
_RAISED: Final = "a callback of %s raised"

Handler = Callable[[Job[Any]], Awaitable[Any]]


class _Alone:
    """The user's code in a task of its own, and how it ended: what it does to that task meets no other."""

    def __init__(self, main: Callable[[], Awaitable[None]]) -> None:
        self._main = main
        self.begun = False
        self.done = False
        self.error: BaseException | None = None

    async def run(self, name: str) -> None:
        """Run it to its end. It raises nothing but the cancellation of the running task."""
        try:
            async with anyio.create_task_group() as own:
                own.start_soon(self._attend, name=name)
        except Exception as error:
            # It left a scope or a task group open: its task ends with that.
            self.error = self.error or error

    async def _attend(self) -> None:
        self.begun = True
        try:
            await self._main()
            self.done = True
        except BaseException as error:
            self.error = error


def _is_function(handler: object) -> bool:
    is_generator = inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler)
    return callable(handler) and not is_generator


class EventStream:
    """Iterates over the events of a scheduler, from the moment it was made until the scheduler is left."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque()
        self._news = anyio.Event()
        self._ended = False

    def put(self, notice: Any, /) -> None:
        """Keep an event."""
        self._kept.append(notice)
        self._wake()

    def end(self) -> None:
        """Let the iteration end after what is kept."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while not self._kept:
            if self._ended:
                raise StopAsyncIteration
            await self._news.wait()
        return self._kept.popleft()


class Driver:
    """Runs a scheduler."""

    def __init__(self, database: Any, settings: Settings, *, zone: tzinfo) -> None:
        if not isinstance(database, AsyncDatabase | Database):
            raise UsageError(
                "db", cast("object", database), "must be a database of pymongo: an AsyncDatabase, or a Database"
            )
        concern = cast("Any", database).write_concern
        if not concern.acknowledged:
            raise UsageError("db", concern, "must have a write concern that the server acknowledges")
        self.database: Any = cast("Any", database)
        self._blocks = not isinstance(database, AsyncDatabase)
        self.machine = SchedulerMachine(settings, zone=zone)
        self._dispatch: Dispatcher[Any, EventStream] = Dispatcher(self.machine, merging=OneByOne(), one_by_one=False)
        self._handlers: dict[str, tuple[Handler, Any]] = {}
        self._callbacks: dict[type, list[Callable[[Any], Any]]] = {}
        self._limiter: anyio.CapacityLimiter | None = None
        self._context: Context | None = None
        self._apart: Apart | None = None
        self._outer: TaskGroup | None = None
        self._calls: TaskGroup | None = None
        self._jobs: TaskGroup | None = None
        self._leaving = anyio.Event()
        self._stopped = anyio.Event()
        self._news = anyio.Event()
        self._under_way = 0
        self._changes: Any = None
        self._watching: anyio.CancelScope | None = None
        self._called_off = 0

    # --- commands -----------------------------------------------------------------------------------------------------

    async def perform(self, command: Command[Any]) -> Document:
        """Run one command for a caller, or for the machine."""
        if not self._blocks:
            if not hasattr(current_token().native_token, "create_task"):
                raise UsageError("db", self.database, "is for asyncio: give a blocking pymongo Database on trio")
            return await perform(self.database, command)
        return await anyio.to_thread.run_sync(blocking.perform, self.database, command, limiter=self._threads())

    def _threads(self) -> anyio.CapacityLimiter:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(THREADS)
        return self._limiter

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_entered(self) -> bool:
        """Whether it can start: it has tasks."""
        return self._calls is not None

    async def enter(self) -> None:
        """Make the tasks; they live until `leave`."""
        if self._outer is not None:
            raise UsageError("monque", self.machine.settings.me, "was entered before: make a new one")
        self._context = copy_context()
        self._apart = apart()
        self._outer = anyio.create_task_group()
        await self._outer.__aenter__()
        await self._outer.start(self._main)

    async def leave(self, error: BaseException | None) -> None:
        """Stop, cancel the handlers that still run, and give their jobs back. `error` is what ended the body."""
        outer = self._outer
        assert outer is not None
        cut = None if isinstance(error, Exception) else error
        with anyio.CancelScope(shield=True):
            await self.stop(force=cut is not None)
        self._leaving.set()
        try:
            # An error of the body is raised as it is, not in a group.
            await outer.__aexit__(None if cut is None else type(cut), cut, None)
        except BaseExceptionGroup as group:
            raise _sole(group) from None
        finally:
            end_apart(self._apart)
            for stream in self._dispatch.streams:
                stream.end()

    async def _main(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as calls:
                try:
                    async with anyio.create_task_group() as jobs:
                        self._calls, self._jobs = calls, jobs
                        calls.start_soon(self._keep_time)
                        task_status.started()
                        await self._leaving.wait()
                        jobs.cancel_scope.cancel()
                finally:
                    self._jobs = None
                    with anyio.move_on_after(FORCED_STOP_S, shield=True):
                        while self._under_way:
                            await self._wait_for_news()
                    self._calls = None
                    # Where this task was cancelled by others, nobody is left who would stop.
                    self._stopped.set()
                    calls.cancel_scope.cancel()
            if self._changes is not None:
                await self._end_changes()

    async def start(self) -> None:
        """Begin to take jobs; while it stops, once it has stopped."""
        while self.is_stopping and self._calls is not None:
            await self._stopped.wait()
        if not self.is_running:
            self._stopped = anyio.Event()
            self._act(self._dispatch.start(clock()))

    async def stop(self, *, force: bool = False) -> None:
        """Take no more jobs, and wait for those that run, as long as the shutdown may take."""
        if self.is_running:
            self._act(self._dispatch.ask(CloseRequested(force), clock()))
        elif not self.is_stopping:
            return
        elif force:
            self._act(self._dispatch.ask(CloseRequested(force), clock()))
        if self._calls is not None:
            await self._stopped.wait()

    @property
    def is_running(self) -> bool:
        return self.machine.snapshot().state == "running"

    @property
    def is_stopping(self) -> bool:
        return self.machine.snapshot().state == "shutting down"

    def snapshot(self) -> WorkerSnapshot:
        """Return the jobs it holds, and what it waits for."""
        return self.machine.snapshot(clock().mono)

    def handlers(self) -> dict[str, tuple[int, int]]:
        """Return concurrency and number of running jobs of each name that has a handler."""
        found = {name: self.machine.active(name) for name in self.machine.names}
        return {name: active for name, active in found.items() if active is not None}

    # --- requests -----------------------------------------------------------------------------------------------------

    def register(self, name: str, handler: Handler, concurrency: int | None, *, replace: bool, data_type: Any) -> None:
        """Run jobs of this name with a handler."""
        if not _is_function(handler):
            raise UsageError("handler", handler, "must be a function of the job, and no generator")
        actions = self.machine.register(name, concurrency, replace=replace, at=clock())
        self._handlers[name] = handler, data_type
        self._act(actions)

    def signal(self, name: str, next_run_at: Millis | None) -> None:
        """Say that a job of this name is due then."""
        self._act(self.machine.signal(name, next_run_at, clock()))

    def on(self, kind: type, callback: Callable[[Any], Any]) -> None:
        """Call this with each event of a kind."""
        self._callbacks.setdefault(kind, []).append(callback)

    def events(self) -> EventStream:
        """Return an iterator over the events from now on."""
        stream = EventStream()
        self._dispatch.streams = (*self._dispatch.streams, stream)
        return stream

    def notify(self, notice: Any) -> None:
        """Publish an event of a call of the user's."""
        actions: list[Action] = [Notify(notice)]
        self._dispatch.publish(actions)
        self._act(actions)

    # --- what the machine asks for ------------------------------------------------------------------------------------

    def _act(self, actions: list[Action]) -> None:
        """Start what is to be done. Raises a `KeyboardInterrupt` of a callback, after the rest."""
        interrupt: KeyboardInterrupt | None = None
        for step in steps(actions, merges=False, is_observed=lambda _: True):
            match step:
                case Queued():
                    self._dispatch.put(step)
                    self._begin()
                case Call():
                    self._start(self._carry, step)
                case Wait():
                    self._start(self._watch, step)
                case CancelWait(ticket):
                    self._cancel_wait(ticket)
                case Notify(notice):
                    interrupt = self._tell(notice, interrupt)
                case Stopped():
                    self._stopped.set()
                case _:
                    pass
        self._wake()
        if interrupt is not None:
            self._interrupted(interrupt)

    def _interrupted(self, interrupt: KeyboardInterrupt) -> None:
        """End the scheduler by Ctrl-C: its jobs are given back, no run is counted."""
        self._act(self._dispatch.ask(CloseRequested(force=True), clock()))
        raise interrupt

    def _begin(self) -> None:
        while (run := self._dispatch.begin()) is not None:
            if self._jobs is not None:
                self._in_context(self._jobs.start_soon, self._run, run, name=f"monque {run.job.id}")

    def _in_context(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        """Call a function in a copy of the context in which the scheduler was entered."""
        return (copy_context() if self._context is None else self._context.copy()).run(function, *args, **more)

    def _start(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        if self._calls is not None:
            self._under_way += 1
            self._in_context(self._calls.start_soon, self._counted, function, args)

    async def _counted(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        try:
            await function(*args)
        finally:
            self._under_way -= 1
            self._wake()

    async def _carry(self, call: Call[Any]) -> None:
        outcome: Any
        try:
            outcome = await self.perform(call.command)
        except Exception as error:
            outcome = error
        self._act(self._dispatch.answered(call, outcome, random.random(), clock()))

    async def _run(self, run: RunJob[Any]) -> None:
        number = run.run
        self._dispatch.handling[number] = run
        handler, data_type = self._handlers[run.job.name]
        alone = _Alone(partial(self._handle, handler, run.job, data_type))
        try:
            await alone.run(f"monque job {run.job.id}")
        finally:
            if isinstance(alone.error, KeyboardInterrupt):
                with suppress(KeyboardInterrupt):
                    self._interrupted(alone.error)
            self._act(self._dispatch.over(number, _ended(number, alone), clock()))
        if isinstance(alone.error, KeyboardInterrupt):
            raise alone.error

    async def _handle(self, handler: Handler, job: Job[Any], data_type: Any) -> None:
        result: Any = handler(job if data_type is None else typed_job(job, data_type))
        if inspect.isawaitable(result):
            await result

    # --- time ---------------------------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        while True:
            deadline = self.machine.deadline()
            now = clock().mono
            if deadline is not None and deadline <= now:
                self._act(self._dispatch.feed((Tick(random.random()),), clock()))
                continue
            with anyio.move_on_after(_FOREVER_S if deadline is None else min(_FOREVER_S, (deadline - now) / 1000)):
                await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        await self._news.wait()

    def _wake(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()

    # --- the change stream --------------------------------------------------------------------------------------------

    async def _watch(self, wait: Wait[Any]) -> None:
        outcome: Any = None
        try:
            with anyio.CancelScope() as self._watching:
                if wait.ticket != self._called_off:
                    outcome = await self._next_changes(wait.command)
        except Exception as error:
            outcome = error
        if wait.ticket == self._called_off:
            await self._end_changes()
            self._act(self._dispatch.feed((WaitCancelled(wait.ticket),), clock()))
        else:
            self._act(self._dispatch.answered(wait, outcome, random.random(), clock()))

    async def _next_changes(self, command: Command[Any]) -> Any:
        if self._changes is None:
            self._changes = blocking.Changes(self.database) if self._blocks else Changes(self.database)
        if self._blocks:
            return await anyio.to_thread.run_sync(self._changes.wait, command, limiter=self._threads())
        return await self._changes.wait(command)

    def _cancel_wait(self, ticket: int) -> None:
        # The task that waits may not have begun.
        self._called_off = ticket
        if self._changes is not None:
            self._changes.cancelled = True
        if self._watching is not None:
            self._watching.cancel()

    async def _end_changes(self) -> None:
        changes, self._changes = self._changes, None
        with anyio.move_on_after(1, shield=True):
            if changes is None:
                return
            if self._blocks:
                await anyio.to_thread.run_sync(changes.end, limiter=self._threads())
            else:
                await changes.end()

    # --- events -------------------------------------------------------------------------------------------------------

    def _tell(self, notice: object, interrupt: KeyboardInterrupt | None) -> KeyboardInterrupt | None:
        """Call the callbacks of an event; return the Ctrl-C that one of them raised, or that came before."""
        kind: type[object] = type(notice)
        for callback in tuple(self._callbacks.get(kind, ())):
            context = copy_context() if self._context is None else self._context.copy()
            call: Apart = Context.run if self._apart is None else self._apart
            try:
                result = call(context, callback, notice)
                if inspect.isawaitable(result):
                    self._await(context, result, kind.__name__)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    interrupt = error
                else:
                    LOGGER.exception(_RAISED, kind.__name__)
        return interrupt

    def _await(self, context: Context, result: Awaitable[Any], kind: str) -> None:
        if self._calls is not None:
            self._under_way += 1
            context.run(self._calls.start_soon, self._counted, self._finish, (result, kind))
        elif isinstance(result, Coroutine):
            # Nobody is there to await it: the scheduler is not entered, or was left.
            result.close()
            LOGGER.error("an async callback of %s was left out: the scheduler is not entered", kind)

    async def _finish(self, result: Awaitable[Any], kind: str) -> None:
        async def main() -> None:
            await result

        alone = _Alone(main)
        await alone.run("monque callback")
        if isinstance(alone.error, KeyboardInterrupt):
            self._interrupted(alone.error)
        if alone.error is not None:
            LOGGER.error(_RAISED, kind, exc_info=alone.error)


def _ended(number: int, alone: _Alone) -> Event:
    if alone.done:
        return JobReturned(number, "null")
    if alone.error is None or isinstance(alone.error, KeyboardInterrupt):
        return JobRaised(number, Failure(kind=FailureKind.CANCELLED, message="cancelled"), 0.5)
    return JobRaised(number, failure_of(alone.error), random.random(), exception=alone.error)


def _sole(error: BaseException) -> BaseException:
    """Return the exception of a group that has one, however deep; else the group."""
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return _sole(inner[0]) if len(inner) == 1 else error
