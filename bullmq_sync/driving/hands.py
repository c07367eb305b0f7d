"""The threads of a worker at work: they pass events to the machine, make its calls, run jobs and deliver outcomes."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker.actions import Action, Call, CancelJob, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.dispatch import Delivery, Dispatcher, Introduce, Queued, steps
from bullmq_protocol.worker.events import CloseRequested, Event, JobReturned, WaitCancelled
from bullmq_protocol.worker.tracing import WorkerTracing
from bullmq_protocol.worker.typed import CommandCall, CommandWait
from bullmq_sync.driving.contact import Contact
from bullmq_sync.driving.notifier import Notifier
from bullmq_sync.driving.runs import Runs
from bullmq_sync.driving.shared import Shared
from bullmq_sync.driving.threads import FORCED_STOP_S
from bullmq_sync.job import Job
from bullmq_sync.primitives import SHORTAGE, is_interrupt
from bullmq_sync.thread_pool import Task, ThreadPool

T = TypeVar("T")

_DISPATCHER: type[Dispatcher[Any, Any]] = Dispatcher
"""Whose methods are named without the lock, and called with it."""


class Hands(Generic[T]):
    """Carries out what the machine decides.

    Nobody pumps: the thread that has an answer gives it to the machine, under one lock, and goes on with the first
    thing that the machine wants; for the others it finds or makes further threads. A thread that has nothing else to do
    runs the jobs that are ready, one after another, and takes outcomes to the server: those that are there when it goes
    are delivered in one call, and while two calls are under way, the next gathers.
    """

    def __init__(self, shared: Shared[Job[T]], contact: Contact, notifier: Notifier, runs: Runs[T]) -> None:
        setup, threads = shared.setup, shared.threads
        self._threads = threads
        # guarded by the lock of _threads
        self._dispatch = shared.dispatch
        self._machine = shared.machine
        # set once
        self._setup = setup
        self._transport = shared.transport
        self._connections = shared.connections
        self._ending = shared.dispatch.ending
        self._merges = shared.merges
        self._clock = shared.clock
        self._tracing = shared.tracing
        self._contact = contact
        self._notifier = notifier
        self._runs = runs
        self.pool = ThreadPool(
            self._carry, f"bullmq {setup.keys.name}", on_short=threads.short, on_death=self.break_off
        )

    # --- events for the machine ---------------------------------------------------------------------------------------

    def happen(self, event: Event) -> None:
        """Pass on an event that is no answer."""
        self.start(self._decide(_DISPATCHER.feed, (event,)))

    def ask(self, event: Event) -> None:
        """Pass a request of the user's to the machine: an exception over it is raised to the caller, and ends no
        worker.

        Jobs that have returned are left for the next event: what the machine decides about them is not to be lost.
        """
        threads = self._threads
        threads.check_process()
        try:
            with threads.lock:
                actions = self._dispatch.ask(event, self._clock())
                threads.due.notify_all()
                threads.changed.notify_all()
        except KeyboardInterrupt as error:
            # At the worst moment: decisions may be lost.
            self.break_off(error)
            raise
        self.start(actions)

    def _decide(self, tell: Callable[..., list[Action]], *what: Any) -> list[Action]:
        """Call one of the dispatcher's methods that pass events to the machine; return its actions."""
        threads = self._threads
        threads.check_process()
        try:
            with threads.lock:
                actions = tell(self._dispatch, *what, self._clock())
                due = self._machine.deadline()
                if due is not None and (threads.armed is None or due < threads.armed):
                    threads.due.notify_all()
                if threads.watched:
                    threads.changed.notify_all()
        except BaseException as error:
            # Nothing of this is the user's code: a fault of the library, no memory left, or Ctrl-C at the worst moment.
            self.break_off(error)
            if threads.stopped.is_set():
                # The machine raises on every event: it gets no more of them, the jobs are released without it.
                with threads.lock:
                    self._dispatch.drop_returned()
            if is_interrupt(error):
                raise
            return []
        return actions

    def break_off(self, error: BaseException) -> None:
        """A thread met an error from which it cannot continue: release everything, and let `run` raise it."""
        threads = self._threads
        if threads.is_parents:
            message = ": the child of a fork left the user's code: its result is dropped, the job is the parent's"
            self._notifier.say(logging.ERROR, message)
            return
        self._notifier.say(logging.ERROR, " broke", trace=True)
        with threads.lock:
            first = threads.break_ends is None
            if first:
                threads.break_ends = time.monotonic() + FORCED_STOP_S
            self._ending.fail(error)
            threads.due.notify_all()
        if not first:
            # The machine itself is broken.
            threads.stop()
            return
        try:
            self.happen(CloseRequested(force=True))
        except BaseException:
            threads.stop()
            raise

    # --- its actions --------------------------------------------------------------------------------------------------

    def start(self, actions: list[Action]) -> None:
        """Have threads carry out what the machine wants."""
        call = self._sort(actions)
        if call is not None:
            self.pool.submit(call)
        self._wake_one()
        threads = self._threads
        if threads.interrupt is not None and threading.current_thread() is threading.main_thread():
            error, threads.interrupt = threads.interrupt, None
            raise error

    def _carry(self, task: Task) -> None:
        """Make a call and those that follow from its answer, then run jobs and deliver outcomes as long as there are
        any; None: a thread was woken for these."""
        if task is None:
            with self._threads.lock:
                self._dispatch.coming = False
        elif callable(task):
            task()
        else:
            self._make(task)
        self._work_off()

    def _make(self, call: CommandCall | CommandWait | None) -> None:
        while call is not None:
            self._wake_one()
            outcome = self._contact.wait(call) if type(call) is Wait else self._call(call)
            if isinstance(outcome, WaitCancelled):
                actions = self._decide(_DISPATCHER.feed, (outcome,))
            else:
                actions = self._decide(_DISPATCHER.answered, call, outcome, random.random())
            call = self._sort(actions)

    def _sort(self, actions: list[Action]) -> CommandCall | CommandWait | None:
        """Perform actions without an answer, queue jobs and outcomes for the threads, return the first of the other
        calls, and find threads for the rest."""
        first: CommandCall | CommandWait | None = None
        reported = False
        for step in steps(actions, merges=self._merges, is_observed=self._notifier.is_observed):
            if type(step) is Queued:
                with self._threads.lock:
                    self._dispatch.put(step)
                    wakes = step.held_up and self._dispatch.needs_hand()
                if wakes:
                    self.pool.submit(None)
            elif type(step) is Notify:
                if not reported:
                    # Callbacks may take long, and an answer may have left outcomes, or let others go.
                    self._wake_one()
                    reported = True
                self._notifier.tell(step.notice)
            elif type(step) is Call or type(step) is Wait:
                if first is None:
                    first = step
                else:
                    self.pool.submit(step)
            else:
                self._do(step)
        return first

    def _do(self, step: Introduce | CancelWait | CancelJob | Stopped) -> None:
        match step:
            case Introduce():
                self.pool.submit(self._contact.introduce)
            case CancelWait(ticket):
                self._contact.cancel_wait(ticket)
            case CancelJob(number, reason):
                with self._threads.lock:
                    job = self._dispatch.call_off(number, reason)
                if job is not None:
                    job.cancelled.cancel(reason)
            case Stopped(error):
                self._ending.stopped(error)
                self._threads.stop()

    # --- calls --------------------------------------------------------------------------------------------------------

    def _call(self, call: CommandCall) -> Any:
        """Make a call; return the reply, or the error."""
        try:
            self._connections.check_open()
            if self._tracing is None:
                return self._transport.perform(call.command)
            return self._threads.apart(self._traced_call, self._tracing, call)
        except (BullMQError, *SHORTAGE) as error:
            return error

    def _traced_call(self, tracing: WorkerTracing, call: CommandCall) -> Any:
        with tracing.call(call.ticket, call.command) as replied:
            replied.reply = self._transport.perform(call.command)
        return replied.reply

    def _bring(self, delivery: Delivery) -> Any:
        """Take outcomes to the server; return the reply, or the error."""
        try:
            return self._transport.perform(delivery.command())
        except (BullMQError, *SHORTAGE) as error:
            return error

    # --- jobs and outcomes --------------------------------------------------------------------------------------------

    def _wake_one(self) -> None:
        """Let a thread look for work, if there is some and none is on its way."""
        with self._threads.lock:
            wakes = self._dispatch.needs_hand()
        if wakes:
            self.pool.submit(None)

    def _work_off(self) -> None:
        threads, setup = self._threads, self._setup
        event: Event | None = None
        number = 0
        while True:
            with threads.lock:
                dispatch = self._dispatch
                if event is not None:
                    del dispatch.handling[number]
                    dispatch.ended(event)
                    event = None
                work = dispatch.next()
                if work is None:
                    return
                job: Job[T] | None = None
                wakes = False
                if type(work) is RunJob:
                    number = work.run
                    job = dispatch.handling[number] = Job(
                        work.job, setup.keys, self._transport, setup.data_type, work.token, setup.limits, setup.clock
                    )
                    wakes = dispatch.needs_hand()
            if job is None:
                # A thread that delivers wakes another one when it has taken its outcomes.
                self._deliver()
                continue
            if wakes:
                self.pool.submit(None)
            event = threads.apart(self._runs.attend, number, job)
            # It may have forked, and this be the child.
            threads.check_process()
            if type(event) is not JobReturned or not self._merges:
                raised, event = event, None
                self._make(self._sort(self._decide(_DISPATCHER.over, number, raised)))

    def _deliver(self) -> None:
        """Take the outcomes that are there to the server."""
        threads = self._threads
        with threads.lock:
            returned = self._dispatch.has_returned
        first = self._sort(self._decide(_DISPATCHER.feed, ())) if returned else None
        if first is not None:
            self.pool.submit(first)
        with threads.lock:
            delivery = self._dispatch.take()
            wakes = delivery is not None and self._dispatch.needs_hand()
        if delivery is None:
            return
        if wakes:
            self.pool.submit(None)
        outcome = self._bring(delivery)
        self._make(self._sort(self._decide(_DISPATCHER.delivered, delivery, outcome, random.random())))
