"""A task of its own for each job, without what a task group of anyio's costs: twice as much as the task itself.

On trio they are tasks of the worker's nursery, on asyncio plain tasks, for which the worker waits at its end.

What else is the user's and waits, async callbacks and backoff strategies, are *errands*: tasks of the same kind.
A plain callback is called between others' steps, as if in a task of its own (`apart`).

A job can be cancelled as by a cancel scope around its handler: again and again, until it leaves, and not where it
shields itself. Hardly any job ever is, and to enter a scope costs more than to make the task. So the scope is made when
a job is cancelled, and put around those that its task is in by then. That touches what anyio and trio keep to
themselves; with one that keeps it in another way each job begins in a scope.
"""

from __future__ import annotations

import asyncio
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, cast

import anyio
import anyio._backends._asyncio as _anyio_asyncio
import msgspec
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint, current_token

Attend = Callable[["Handling"], Awaitable[None]]

_backend: Any = _anyio_asyncio
_EAGER = sys.version_info >= (3, 12)


class Handling(msgspec.Struct, eq=False):
    """One job that is handled: its task, and whether it shall end."""

    number: int
    job: Any
    begun: bool = False
    """Its task has taken its first step."""
    cancelled: bool = False
    """The worker wants it to end."""
    task: Any = None
    scope: Any = None


class Errand(Handling, kw_only=True):
    """The user's code beside the handlers. `on_fault` is called where it never began, or with a fault of `main`."""

    number: int = -1
    job: Any = None
    main: Callable[[], Awaitable[None]]
    on_fault: Callable[[BaseException | None], None]


Late = Callable[[list[Any], "BaseException | None"], None]
"""Receives the value of a call, in a list, or its exception; an empty list and None if it was cancelled."""


class Postponed(asyncio.CancelledError):
    """The caller was cancelled; the outcome of its call is reported later."""


class JobTasks(ABC):
    """Starts jobs' tasks, each in a copy of the context, and cancels them."""

    def __init__(self, attend: Attend, context: Context, start_soon: Callable[..., object]) -> None:
        self._attend = attend
        self._context = context
        self.start_soon = start_soon
        """Starts any task of the worker, in the context it is called in."""

    @abstractmethod
    def start(self, handling: Handling, name: str) -> None:
        """Start a task that attends to the job."""

    @abstractmethod
    def note(self, handling: Handling) -> None:
        """Note, in a job's task, that it is this one; the task calls it where the job does not know its task."""

    @abstractmethod
    async def begun(self, started: Sequence[Handling]) -> list[Handling]:
        """Let tasks that were just started take their first steps; return those which were cancelled before it."""

    def cancel(self, handling: Handling) -> None:
        """Cancel a handler; one that has not begun will not."""
        handling.cancelled = True
        if handling.scope is None and handling.begun:
            handling.scope = self._scope_around(handling.task)
        if handling.scope is not None:
            handling.scope.cancel()

    @abstractmethod
    def left(self, handling: Handling) -> None:
        """Note, in a job's task, that the handler has ended."""

    @abstractmethod
    def send(self, errand: Errand, name: str, context: Context) -> None:
        """Start an errand's task in this very context."""

    @abstractmethod
    async def ask(self, asking: Coroutine[Any, Any, Any], is_torn: Callable[[], bool], late: Late) -> Any:
        """Make a call in which code of others runs: its reply is not lost, whichever task is cancelled.

        If that is the running task, and `is_torn` says no, this raises `Postponed`, and `late` gets the outcome.
        """

    @abstractmethod
    async def call_back(self) -> None:
        """Cancel the errands that the worker's group does not cancel, and wait for them, even if this task is
        cancelled."""

    @abstractmethod
    def _scope_around(self, task: Any) -> Any:
        """Return a cancel scope that encloses all that a task is in, as if it had entered this one first."""

    async def _run_errand(self, errand: Errand) -> None:
        errand.begun = True
        if errand.task is None:
            self.note(errand)
        if errand.cancelled:
            errand.on_fault(None)
            return
        try:
            await errand.main()
        finally:
            self.left(errand)

    async def _in_scope(self, handling: Handling) -> None:
        try:
            with anyio.CancelScope() as handling.scope:
                await (self._run_errand(handling) if isinstance(handling, Errand) else self._attend(handling))
        except RuntimeError:
            # The handler left a scope open in this one. Its outcome is known already.
            pass


class GroupTasks(JobTasks):
    """Starts tasks in the worker's group: trio's nursery, which is in there, if there is one."""

    def __init__(self, attend: Attend, context: Context, tasks: TaskGroup) -> None:
        self._nursery: Any = getattr(tasks, "_nursery", None)
        # What anyio puts around a nursery costs more than the nursery, and what a callback left open would break it.
        super().__init__(attend, context, (self._nursery or tasks).start_soon)
        known = self._nursery is not None and _knows_statuses(self._nursery)
        self._main = attend if known else self._in_scope

    def start(self, handling: Handling, name: str) -> None:
        self._context.copy().run(partial(self.start_soon, self._main, handling, name=name))

    def note(self, handling: Handling) -> None:
        handling.task = sys.modules["trio.lowlevel"].current_task()

    def send(self, errand: Errand, name: str, context: Context) -> None:
        main = self._run_errand if self._main is self._attend else self._in_scope
        context.run(partial(self.start_soon, main, errand, name=name))

    async def ask(self, asking: Coroutine[Any, Any, Any], is_torn: Callable[[], bool], late: Late) -> Any:
        # trio lets nobody cancel a task.
        return await asking

    async def call_back(self) -> None:
        """Nothing: they are the group's."""

    async def begun(self, started: Sequence[Handling]) -> list[Handling]:
        while not started[-1].begun:
            # trio runs the tasks of one turn in any order.
            await checkpoint()
        return []

    def left(self, handling: Handling) -> None:
        if handling.scope is not None and self._main is self._attend:
            handling.scope._cancel_status.parent = None
        if handling.task.child_nurseries:
            self._abandon()

    def _abandon(self) -> None:
        """Cut the running task off from nurseries that the user's code has left open."""
        # trio would end the worker for it: in a nursery of its own the task would end that one alone.
        task: Any = sys.modules["trio.lowlevel"].current_task()
        for nursery in task.child_nurseries:
            nursery.cancel_scope.cancel()
            nursery._closed = True
            task._child_nurseries.remove(nursery)

    def _scope_around(self, task: Any) -> Any:
        scope = sys.modules["trio"].CancelScope()
        root = self._nursery._cancel_status
        status = scope._cancel_status = type(root)(scope=scope, parent=root)
        outermost = task._cancel_status
        if outermost is root:
            task._activate_cancel_status(status)
        else:
            while outermost.parent is not None and outermost.parent is not root:
                outermost = outermost.parent
            outermost.parent = status
        return scope


def _knows_statuses(nursery: Any) -> bool:
    status: Any = cast("type[object]", type(getattr(nursery, "_cancel_status", None)))
    return (
        hasattr(status, "parent")
        and hasattr(sys.modules["trio.lowlevel"].Task, "_activate_cancel_status")
        and hasattr(nursery.cancel_scope, "_cancel_status")
    )


class LoopTasks(JobTasks):
    """Starts plain tasks of asyncio's. The event loop knows them weakly: they are kept with the job."""

    def __init__(self, attend: Attend, context: Context, tasks: TaskGroup, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(attend, context, partial(start_unlisted, tasks))
        self._main = attend if _KNOWN_SCOPES else self._in_scope
        self._loop = loop
        self._errands: set[Errand] = set()
        self._name = ""

    def start(self, handling: Handling, name: str) -> None:
        loop = self._loop
        coroutine: Any = self._main(handling)
        context = self._context.copy()
        if loop.get_task_factory() is not None:
            # The program's own way to make tasks. One that begins at once may get its name too late.
            self._name = name
            handling.task = loop.create_task(coroutine, name=name, context=context)
        elif _EAGER and sys.exc_info()[0] is None:
            # It runs at once, within the caller: not where that one has an exception in its hands.
            handling.task = _eager_task(coroutine, loop=loop, name=name, context=context, eager_start=True)
        else:
            handling.task = asyncio.Task(coroutine, loop=loop, name=name, context=context)

    def note(self, handling: Handling) -> None:
        task = handling.task = asyncio.current_task()
        if task is not None and self._name:
            task.set_name(self._name)

    def left(self, handling: Handling) -> None:
        scope: Any = handling.scope
        if scope is None or self._main is not self._attend:
            return
        # As anyio does at the end of a scope: anyio knows tasks weakly, but not from within what it knows of them.
        scope._host_task = None
        scope._tasks.clear()
        for child in scope._child_scopes:
            child._parent_scope = None
        scope._child_scopes.clear()
        state: Any = _backend._task_states.get(handling.task)
        if state is not None and state.cancel_scope is scope:
            state.cancel_scope = None

    def send(self, errand: Errand, name: str, context: Context) -> None:
        main: Any = self._run_errand(errand) if self._main is self._attend else self._in_scope(errand)
        self._errands.add(errand)
        errand.task = asyncio.Task(main, loop=self._loop, name=name, context=context)
        errand.task.add_done_callback(partial(self._returned, errand))

    def _returned(self, errand: Errand, task: asyncio.Task[None]) -> None:
        self._errands.discard(errand)
        fault = None if task.cancelled() else task.exception()
        if fault is not None or not errand.begun:
            errand.on_fault(fault)

    async def ask(self, asking: Coroutine[Any, Any, Any], is_torn: Callable[[], bool], late: Late) -> Any:
        outcome: list[Any] = []
        postponed = False

        async def keep() -> None:
            fault: BaseException | None = None
            try:
                # A task that is cancelled in its last step has no result.
                outcome.append(await asking)
            except BaseException as error:
                fault = None if isinstance(error, asyncio.CancelledError) else error
                if not postponed:
                    raise
            if postponed:
                late(outcome, fault)

        task = asyncio.Task(keep(), loop=self._loop, name="bullmq call")
        _current._unregister_task(task)
        over = self._loop.create_future()
        task.add_done_callback(partial(_wake, over))
        try:
            await over
        except asyncio.CancelledError:
            if is_torn():
                task.cancel()
                # It may not have begun.
                task.add_done_callback(lambda _: asking.close())
                raise
            postponed = True
            if task.done():
                late(outcome, None if task.cancelled() else task.exception())
            raise Postponed from None
        if not outcome:
            task.result()
        return outcome[0]

    async def call_back(self) -> None:
        while self._errands:
            for errand in tuple(self._errands):
                self.cancel(errand)
            with suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
                await asyncio.wait([errand.task for errand in self._errands])

    async def begun(self, started: Sequence[Handling]) -> list[Handling]:
        # Code that cancels all tasks meets some before they have begun: their jobs would never be reported.
        while not all(handling.begun or (handling.task is not None and handling.task.done()) for handling in started):
            await checkpoint()
        return [handling for handling in started if not handling.begun]

    def _scope_around(self, task: Any) -> Any:
        scope: Any = _backend.CancelScope()
        scope._host_task = task
        state: Any = _backend._task_states.get(task)
        innermost: Any = None if state is None else state.cancel_scope
        if innermost is not None:
            outermost = innermost
            while outermost._parent_scope is not None:
                outermost = outermost._parent_scope
            outermost._parent_scope = scope
            scope._child_scopes.add(outermost)
        else:
            scope._tasks.add(task)
            # As anyio makes one for a task that is not its own.
            _backend._task_states[task] = _backend.TaskState(None, scope)
        return scope


def _wake(over: asyncio.Future[None], task: asyncio.Task[None]) -> None:
    if not over.done():
        over.set_result(None)
    elif not task.cancelled():
        # Nobody asks for it any more.
        task.exception()


_eager_task: Any = asyncio.Task
"""With the argument `eager_start`, from Python 3.12 on."""


def _knows_scopes() -> bool:
    scope: Any = anyio.CancelScope if not hasattr(_backend, "CancelScope") else _backend.CancelScope()
    parts = ("_host_task", "_tasks", "_parent_scope", "_child_scopes")
    return (
        all(hasattr(scope, part) for part in parts)
        and hasattr(_backend, "TaskState")
        and isinstance(getattr(_backend, "_task_states", None), MutableMapping)
    )


_KNOWN_SCOPES = _knows_scopes()


_current: Any = asyncio.tasks


class _Unlisted(set["asyncio.Task[Any]"]):
    """The tasks of a group, none of which `asyncio.all_tasks()` lists: looking through all of them as each one starts
    would take longer the more there are."""

    def add(self, task: asyncio.Task[Any], /) -> None:
        super().add(task)
        _current._unregister_task(task)


def start_unlisted(
    tasks: TaskGroup, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any, name: str | None = None
) -> None:
    """Start a task of a group's that `asyncio.all_tasks()` does not list; all tasks of that group are such.

    Code that cancels all tasks (`asyncio.run` at its end) means those of the program: `run` is one, and ends the others
    in good order. A task that makes a call would lose its reply, and the job that it brings.
    """
    group: Any = tasks
    # trio has no such list, and its groups keep no such set.
    if type(getattr(group, "_tasks", None)) is set:
        group._tasks = _Unlisted(group._tasks)
    tasks.start_soon(function, *args, name=name)


def job_tasks(attend: Attend, context: Context, tasks: TaskGroup) -> JobTasks:
    """Return what starts the tasks of a worker's jobs. `tasks` is the worker's group, in the event loop that runs."""
    loop: Any = current_token().native_token
    if hasattr(loop, "create_task"):
        return LoopTasks(attend, context, tasks, loop)
    return GroupTasks(attend, context, tasks)
