"""Drives a scheduler in threads, on pymongo's blocking client.

Nothing is decided here. One lock is held around the machine and its dispatcher, and never around the user's code or a
call. A thread that got a reply, or ended a handler, goes on with the first thing that follows from it; the rest goes to
other threads, which are made when none is idle. Threads are daemons: a handler that never ends keeps no process alive.
Handlers and callbacks run in copies of the context in which the scheduler was entered.
"""

from __future__ import annotations

import inspect
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, copy_context
from datetime import tzinfo
from functools import partial
from typing import Any, Final, cast

from pymongo.database import Database

from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import UsageError
from bullmq_protocol.model.failure import failure_of
from bullmq_protocol.worker.actions import Action, Call, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.dispatch import Dispatcher, Queued, steps
from bullmq_protocol.worker.events import CloseRequested, Event, JobRaised, JobReturned, Tick, WaitCancelled
from bullmq_protocol.worker.snapshot import WorkerSnapshot
from monque_protocol.commands import Command
from monque_protocol.document import Document, Job, typed_job
from monque_protocol.options import Settings
from monque_protocol.scheduler import OneByOne, SchedulerMachine
from monque_sync.clocks import clock
from monque_sync.perform import Changes, perform

LOGGER: Final = logging.getLogger("monque")
_IDLE_S: Final = 2.0
_LONGEST_S: Final = 3_600.0
_AGAIN_S: Final = 0.1
_RAISED: Final = "a callback of %s raised"

Handler = Callable[[Job[Any]], Any]
Task = Callable[[], Any]
"""What a thread does; it returns what that thread goes on with, or None."""
_OTHERS: Final = (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
"""What is called and does nothing yet."""


class EventStream:
    """Iterates over the events of a scheduler, from the moment it was made until the scheduler is left."""

    def __init__(self) -> None:
        self._kept: deque[Any] = deque()
        self._news = threading.Condition()
        self._ended = False

    def put(self, notice: Any, /) -> None:
        """Keep an event."""
        with self._news:
            self._kept.append(notice)
            self._news.notify_all()

    def end(self) -> None:
        """Let the iteration end after what is kept."""
        with self._news:
            self._ended = True
            self._news.notify_all()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        with self._news:
            while not self._kept:
                if self._ended:
                    raise StopIteration
                self._news.wait()
            return self._kept.popleft()


def _is_plain(handler: object) -> bool:
    return callable(handler) and not any(is_other(handler) for is_other in _OTHERS)


class Threads:
    """Threads that do what they are given; one is made whenever none is idle, and ends when it is idle for long."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._news = threading.Condition()
        # guarded by _news: what waits for a thread, how many threads are idle and not yet taken, and their number.
        self._tasks: deque[Task] = deque()
        self._idle = 0
        self._made = 0

    def submit(self, task: Task) -> None:
        """Have a thread do it."""
        with self._news:
            self._tasks.append(task)
            if self._idle >= len(self._tasks):
                self._news.notify()
                return
        self.make()

    def make(self) -> bool:
        """Make a thread if something waits for one; return whether it still does, as there are no more to have."""
        with self._news:
            if self._idle >= len(self._tasks):
                return False
            self._made += 1
            number = self._made
        try:
            threading.Thread(target=self._serve, name=f"{self._name} {number}", daemon=True).start()
        except (RuntimeError, MemoryError):
            # One that gets idle takes it, and the timer asks again.
            return True
        return False

    def _serve(self) -> None:
        while (task := self._take()) is not None:
            following: Task | None = task
            while following is not None:
                following = following()

    def _take(self) -> Task | None:
        with self._news:
            self._idle += 1
            try:
                if not self._tasks:
                    self._news.wait(_IDLE_S)
                return self._tasks.popleft() if self._tasks else None
            finally:
                self._idle -= 1


class Driver:
    """Runs a scheduler."""

    def __init__(self, database: Any, settings: Settings, *, zone: tzinfo) -> None:
        if not isinstance(database, Database):
            raise UsageError("db", database, "must be a Database of pymongo's MongoClient")
        if not database.write_concern.acknowledged:
            raise UsageError("db", database.write_concern, "must have a write concern that the server acknowledges")
        self.database: Any = cast("Any", database)
        self.machine = SchedulerMachine(settings, zone=zone)
        self._dispatch: Dispatcher[Any, EventStream] = Dispatcher(self.machine, merging=OneByOne(), one_by_one=False)
        self._handlers: dict[str, tuple[Handler, Any]] = {}
        self._callbacks: dict[type, list[Callable[[Any], Any]]] = {}
        self._lock = threading.Condition()
        self._threads = Threads(f"monque {settings.me}")
        self._stopped = threading.Event()
        self._entered = False
        self._over = False
        self._changes: Changes | None = None
        self._called_off = 0
        self._context: Context | None = None
        self._fault: Exception | None = None

    # --- commands -----------------------------------------------------------------------------------------------------

    def perform(self, command: Command[Any]) -> Document:
        """Run one command for a caller, or for the machine."""
        return perform(self.database, command)

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def is_entered(self) -> bool:
        """Whether it can start: it has threads."""
        return self._entered

    def enter(self) -> None:
        """Keep time from now on, until `leave`."""
        if self._entered or self._over:
            raise UsageError("monque", self.machine.settings.me, "was entered before: make a new one")
        self._entered = True
        self._context = copy_context()
        threading.Thread(target=self._keep_time, name=f"monque {self.machine.settings.me} timer", daemon=True).start()

    def leave(self, error: BaseException | None) -> None:
        """Stop. Handlers that still run go on, and what becomes of them is stored."""
        self.stop(force=error is not None and not isinstance(error, Exception))
        with self._lock:
            self._entered = False
            self._over = True
            self._lock.notify_all()
        for stream in self._dispatch.streams:
            stream.end()
        if self._fault is not None and error is None:
            raise self._fault

    def start(self) -> None:
        """Begin to take jobs; while it stops, once it has stopped."""
        if self._fault is not None:
            raise self._fault
        while self.is_stopping:
            self._stopped.wait()
        self._stopped.clear()
        self._feed(lambda at: self._dispatch.start(at))

    def stop(self, *, force: bool = False) -> None:
        """Take no more jobs, and wait for those that run, as long as the shutdown may take."""
        if self.is_running or (force and self.is_stopping):
            self._feed(lambda at: self._dispatch.ask(CloseRequested(force), at))
        elif not self.is_stopping:
            return
        self._stopped.wait()

    @property
    def is_running(self) -> bool:
        with self._lock:
            return self._fault is None and self.machine.snapshot().state == "running"

    @property
    def is_stopping(self) -> bool:
        with self._lock:
            return self._fault is None and self.machine.snapshot().state == "shutting down"

    def snapshot(self) -> WorkerSnapshot:
        """Return the jobs it holds, and what it waits for."""
        with self._lock:
            return self.machine.snapshot(clock().mono)

    def handlers(self) -> dict[str, tuple[int, int]]:
        """Return concurrency and number of running jobs of each name that has a handler."""
        with self._lock:
            found = {name: self.machine.active(name) for name in self.machine.names}
            return {name: active for name, active in found.items() if active is not None}

    # --- requests -----------------------------------------------------------------------------------------------------

    def register(self, name: str, handler: Handler, concurrency: int | None, *, replace: bool, data_type: Any) -> None:
        """Run jobs of this name with a handler."""
        if not _is_plain(handler):
            raise UsageError("handler", handler, "must be a function of the job, not async, and no generator")

        def make(at: Instant) -> list[Action]:
            actions = self.machine.register(name, concurrency, replace=replace, at=at)
            self._handlers[name] = handler, data_type
            return actions

        self._feed(make)

    def signal(self, name: str, next_run_at: Millis | None) -> None:
        """Say that a job of this name is due then."""
        self._feed(lambda at: self.machine.signal(name, next_run_at, at))

    def on(self, kind: type, callback: Callable[[Any], Any]) -> None:
        """Call this with each event of a kind."""
        with self._lock:
            self._callbacks[kind] = [*self._callbacks.get(kind, ()), callback]

    def events(self) -> EventStream:
        """Return an iterator over the events from now on."""
        stream = EventStream()
        with self._lock:
            self._dispatch.streams = (*self._dispatch.streams, stream)
        return stream

    def notify(self, notice: Any) -> None:
        """Publish an event of a call of the user's."""

        def make(at: Instant) -> list[Action]:
            actions: list[Action] = [Notify(notice)]
            self._dispatch.publish(actions)
            return actions

        self._feed(make)

    # --- what the machine asks for ------------------------------------------------------------------------------------

    def _feed(self, make: Callable[[Instant], list[Action]]) -> None:
        for task in self._act(make):
            self._threads.submit(task)

    def _go_on(self, make: Callable[[Instant], list[Action]]) -> Task | None:
        """Do what follows; return what this thread goes on with."""
        tasks = self._decide(make)
        for task in tasks[1:]:
            self._threads.submit(task)
        return tasks[0] if tasks else None

    def _decide(self, make: Callable[[Instant], list[Action]]) -> list[Task]:
        """As `_act`; a fault of ours ends the scheduler, and is raised to its owner, not to this thread."""
        if self._fault is not None:
            return []
        try:
            return self._act(make)
        except Exception as error:
            LOGGER.exception("the scheduler %s ends by a fault of its own", self.machine.settings.me)
            self._fault = error
            self._stopped.set()
            with self._lock:
                self._lock.notify_all()
            return []

    def _act(self, make: Callable[[Instant], list[Action]]) -> list[Task]:
        """Get the machine's actions; return what threads are to do."""
        with self._lock:
            actions = make(clock())
            self._lock.notify_all()
        tasks: list[Task] = []
        interrupt: KeyboardInterrupt | None = None
        for step in steps(actions, merges=False, is_observed=lambda _: True):
            match step:
                case Queued():
                    tasks += self._begun(step)
                case Call():
                    tasks.append(partial(self._call, step))
                case Wait():
                    self._threads.submit(partial(self._watch, step))
                case CancelWait(ticket):
                    self._cancel_wait(ticket)
                case Notify(notice):
                    interrupt = self._tell(notice, interrupt)
                case Stopped():
                    self._stopped.set()
                case _:
                    pass
        if interrupt is not None:
            # In the user's thread: others have no Ctrl-C.
            for task in tasks:
                self._threads.submit(task)
            raise interrupt
        return tasks

    def _begun(self, queued: Queued) -> list[Task]:
        found: list[Task] = []
        with self._lock:
            self._dispatch.put(queued)
            while (run := self._dispatch.begin()) is not None:
                self._dispatch.handling[run.run] = run
                found.append(partial(self._run, run))
        return found

    def _call(self, call: Call[Any]) -> Task | None:
        outcome: Any
        try:
            outcome = self.perform(call.command)
        except Exception as error:
            outcome = error
        return self._go_on(lambda at: self._dispatch.answered(call, outcome, random.random(), at))

    def _run(self, run: RunJob[Any]) -> Task | None:
        event: Event
        handler, data_type = self._handlers[run.job.name]
        try:
            self._in_context(self._handle, handler, run.job, data_type)
            event = JobReturned(run.run, "null")
        except BaseException as error:
            event = JobRaised(run.run, failure_of(error), random.random(), exception=error)
        return self._go_on(lambda at: self._dispatch.over(run.run, event, at))

    def _in_context(self, function: Callable[..., Any], *args: Any) -> Any:
        return (copy_context() if self._context is None else self._context.copy()).run(function, *args)

    def _handle(self, handler: Handler, job: Job[Any], data_type: Any) -> None:
        result = handler(job if data_type is None else typed_job(job, data_type))
        if isinstance(result, Coroutine):
            # It has done nothing, and would seem to have succeeded.
            result.close()
            raise UsageError("handler", handler, "must not return a coroutine: monque_anyio runs async handlers")

    # --- time ---------------------------------------------------------------------------------------------------------

    def _keep_time(self) -> None:
        while True:
            with self._lock:
                deadline = self.machine.deadline()
                if self._fault is not None or (self._over and deadline is None and not self.machine.running_jobs):
                    return
                now = clock().mono
                if deadline is None or deadline > now:
                    wait_s = _LONGEST_S if deadline is None else min(_LONGEST_S, (deadline - now) / 1000)
                    self._lock.wait(_AGAIN_S if self._threads.make() else wait_s)
                    continue
            for task in self._decide(lambda at: self._dispatch.feed((Tick(random.random()),), at)):
                self._threads.submit(task)

    # --- the change stream --------------------------------------------------------------------------------------------

    def _watch(self, wait: Wait[Any]) -> Task | None:
        outcome: Any = None
        with self._lock:
            if self._changes is None:
                self._changes = Changes(self.database)
            changes = self._changes
            called_off = wait.ticket == self._called_off
        if not called_off:
            try:
                outcome = changes.wait(wait.command)
            except Exception as error:
                outcome = error
        with self._lock:
            called_off = wait.ticket == self._called_off
        if called_off:
            changes.end()
            self._changes = None
            return self._go_on(lambda at: self._dispatch.feed((WaitCancelled(wait.ticket),), at))
        return self._go_on(lambda at: self._dispatch.answered(wait, outcome, random.random(), at))

    def _cancel_wait(self, ticket: int) -> None:
        with self._lock:
            # The thread that waits may not have begun.
            self._called_off = ticket
            if self._changes is not None:
                self._changes.cancelled = True

    # --- events -------------------------------------------------------------------------------------------------------

    def _tell(self, notice: object, interrupt: KeyboardInterrupt | None) -> KeyboardInterrupt | None:
        """Call the callbacks of an event; return the Ctrl-C that came in one of them, or before."""
        kind: type[object] = type(notice)
        for callback in self._callbacks.get(kind, ()):
            try:
                result = self._in_context(callback, notice)
                if isinstance(result, Coroutine):
                    result.close()
                    LOGGER.error("a callback of %s is async, and was left out", kind.__name__)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                    interrupt = error
                else:
                    LOGGER.exception(_RAISED, kind.__name__)
        return interrupt
