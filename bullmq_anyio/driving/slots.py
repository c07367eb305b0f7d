"""The long-lived tasks of a worker: they pass events to the machine, make its calls, start jobs and deliver
outcomes."""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio.lowlevel import checkpoint

from bullmq_anyio.driving.contact import Contact
from bullmq_anyio.driving.notifier import Notifier
from bullmq_anyio.driving.runs import Runs
from bullmq_anyio.driving.shared import Shared
from bullmq_anyio.driving.tasks import Alarm
from bullmq_anyio.forks import WENT_ON
from bullmq_anyio.job import Job
from bullmq_anyio.tasks import Handling, Late, Postponed
from bullmq_anyio.wakes import Wake, wake_maker
from bullmq_protocol.command import Command
from bullmq_protocol.commands.batches import MOST_JOBS
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.worker.actions import Action, Call, CancelJob, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.dispatch import DELIVER, Delivery, Introduce, Queued, steps
from bullmq_protocol.worker.events import CallFailed, Event, WaitCancelled
from bullmq_protocol.worker.typed import CommandCall, CommandWait, JobRun

T = TypeVar("T")

_MOST_CARRIERS: Final = 64
"""This many tasks stay that have no call: jobs that fail need one each, and often many at the same time."""


class Slots(Generic[T]):
    """Carries out what the machine decides.

    Nobody pumps: the task that has an answer gives it to the machine and goes on with the first thing that the machine
    wants; for the others it starts further tasks. A slot starts the jobs' tasks and takes their outcomes to the server.
    The outcomes that are there when a slot goes are delivered in one call; while two calls are under way, the next
    gathers. Rule: a slot that leaves work behind and waits has woken another one for it, or one that is on its way sees
    it.
    """

    def __init__(
        self,
        shared: Shared[Handling],
        alarm: Alarm,
        contact: Contact,
        notifier: Notifier,
        runs: Runs[T],
        *,
        is_foreign: bool,
    ) -> None:
        self._setup = shared.setup
        self._transport = shared.transport
        self._connections = shared.connections
        self._dispatch = shared.dispatch
        self._machine = shared.machine
        self._tracing = shared.tracing
        self._tasks = shared.tasks
        self._alarm = alarm
        self._contact = contact
        self._notifier = notifier
        self._runs = runs
        self._merges = shared.merges
        self._clock = shared.clock
        self._is_foreign = is_foreign
        """Code of others runs in its calls."""
        self._sleeping: list[Wake] = []
        self._carriers: list[_Carrier] = []
        """Without a call."""
        self._idle: list[anyio.Event] = []
        runs.wake_one = self._wake_one

    # --- events for the machine ---------------------------------------------------------------------------------------

    def happen(self, event: Event) -> None:
        """Pass on an event that is no answer."""
        if self._tasks.group is not None:
            self.start(self._decide(self._dispatch.feed, (event,)))

    def ask(self, event: Event) -> None:
        """Pass on a request of the user's. Jobs that have returned are left for the next event: if the machine raises
        over this one, which is raised to the caller, its decisions about them are not lost."""
        if self._tasks.group is not None:
            self.start(self._decide(self._dispatch.ask, event))

    def _decide(self, tell: Callable[..., list[Action]], *what: Any) -> list[Action]:
        """Call one of the dispatcher's methods that pass events to the machine; return its actions."""
        actions = tell(*what, self._clock())
        alarm = self._alarm
        if alarm.event is not None:
            due = self._machine.deadline()
            if due is not None and (alarm.due is None or due < alarm.due):
                alarm.event.set()
        if self._idle and self._dispatch.is_quiet:
            self.wake_idle()
        return actions

    async def await_idle(self) -> None:
        """Wait until nothing runs and nothing is on its way, or `wake_idle` is called."""
        event = anyio.Event()
        self._idle.append(event)
        await event.wait()

    def wake_idle(self) -> None:
        """Let those look again that wait for an idle worker."""
        idle, self._idle = self._idle, []
        for event in idle:
            event.set()

    def stop(self) -> None:
        """Let all end that waits."""
        if self._tasks.stopped is not None:
            self._tasks.stopped.set()
        self._alarm.set()
        self._contact.stop()
        self.wake_idle()
        sleeping, self._sleeping = self._sleeping, []
        carriers, self._carriers = self._carriers, []
        for wake in (*sleeping, *(carrier.wake for carrier in carriers)):
            if not wake.done():
                wake.set_result(None)

    # --- its actions --------------------------------------------------------------------------------------------------

    def start(self, actions: list[Action]) -> None:
        """Have tasks carry out what the machine wants."""
        call = self._sort(actions)
        if call is not None:
            self._send(call)
        self._wake_one()

    def _send(self, call: CommandCall | CommandWait) -> None:
        """Have a task make a call: one that has none, or a new one."""
        while self._carriers:
            carrier = self._carriers.pop()
            # The future of a task that was cancelled in its wait is done.
            if not carrier.wake.done():
                carrier.call = call
                carrier.wake.set_result(None)
                return
        self._tasks.spawn(self._carry, call)

    async def _carry(self, call: CommandCall | CommandWait) -> None:
        """Make calls, each with those that follow from its answer. A task for each would take a tenth more CPU time for
        a job that fails."""
        carrier = _Carrier()
        following: CommandCall | CommandWait | None = call
        # A task that waits keeps no call: each may hold much of the user's.
        del call
        while following is not None and await self._make_all(following):
            # A job that was waited for starts without the turn of the loop in which a slot wakes up.
            following = None
            if self._tasks.group is not None and self._dispatch.needs_hand() and not await self._slot(stays=False):
                return
            following = await self._next_call(carrier)

    async def _next_call(self, carrier: _Carrier) -> CommandCall | CommandWait | None:
        """Wait for a call; None: there is no need."""
        # What code of others leaves in a task's context is not for the next call.
        if self._is_over() or self._is_foreign or len(self._carriers) >= _MOST_CARRIERS:
            return None
        wake = carrier.next_wake()
        self._carriers.append(carrier)
        try:
            await wake
        except anyio.get_cancelled_exc_class():
            if self._tasks.is_torn():
                raise
            # asyncio: somebody cancelled this very task, perhaps after it had got a call.
            if carrier.call is not None:
                self._send(carrier.call)
            return None
        return carrier.call

    async def _make_all(self, call: CommandCall | CommandWait) -> bool:
        """Make a call, tell its answer, and go on with what the machine wants then; return False if the task was
        cancelled."""
        following: CommandCall | CommandWait | None = call
        try:
            while following is not None:
                outcome: Any = await (
                    self._contact.wait(following) if isinstance(following, Wait) else self._call(following)
                )
                if isinstance(outcome, WaitCancelled):
                    actions = self._decide(self._dispatch.feed, (outcome,))
                else:
                    actions = self._decide(self._dispatch.answered, following, outcome, random.random())
                following = self._sort(actions)
                if following is not None:
                    self._wake_one()
        except anyio.get_cancelled_exc_class() as error:
            if self._tasks.is_torn():
                raise
            # asyncio: somebody cancelled this very task: another goes on for it.
            if not isinstance(error, Postponed):
                self._hand_over(following)
            return False
        except BaseException:
            # Before the other tasks are cancelled for it: their handlers have not failed.
            self._tasks.broken = True
            raise
        return True

    def _hand_over(self, action: Action | None) -> None:
        match action:
            case Call(ticket, _, shielded) if not shielded:
                self.happen(CallFailed(ticket, "the task was cancelled", lost=False))
            case Call():
                self._send(action)
            case Wait(ticket):
                self.happen(WaitCancelled(ticket))
            case _:
                pass

    def _sort(self, actions: list[Action]) -> CommandCall | CommandWait | None:
        """Perform actions without an answer, queue jobs and outcomes for the slots, return the first of the other
        calls, and start tasks for the rest."""
        first: CommandCall | CommandWait | None = None
        notifier = self._notifier
        for step in steps(actions, merges=self._merges, is_observed=notifier.is_observed, held_up=False):
            if type(step) is Notify:
                notifier.tell(step.notice)
            elif type(step) is Call or type(step) is Wait:
                if type(step) is Wait:
                    self._contact.will_wait(step.ticket)
                if first is None:
                    first = step
                else:
                    self._send(step)
            else:
                self._do(step)
        return first

    def _do(self, step: Queued | Introduce | CancelWait | CancelJob | Stopped) -> None:
        match step:
            case Introduce():
                self._tasks.spawn(self._contact.introduce)
            case CancelWait(ticket):
                self._contact.cancel_wait(ticket)
            case CancelJob(number, reason):
                handling = self._dispatch.call_off(number, reason)
                if handling is not None and self._tasks.jobs is not None:
                    self._tasks.jobs.cancel(handling)
            case Stopped(error):
                self._dispatch.ending.stopped(error)
                self.stop()
            case Queued():
                self._dispatch.put(step)

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _call(self, call: CommandCall) -> Any:
        """Make a call; return the reply, or the error."""

        def late(outcome: list[Any], fault: BaseException | None) -> None:
            if outcome:
                self._tasks.spawn(self._go_on, self._dispatch.answered, call, outcome[0])
            elif fault is not None:
                self._tasks.spawn(self._tasks.fail, fault)
            else:
                self._hand_over(call)

        return await self._reply(self.perform(call), late)

    async def _reply(self, asking: Coroutine[Any, Any, Any], late: Late) -> Any:
        """Return what a call gives; `late` is called with it where this task is cancelled before."""
        if self._tasks.jobs is None or not self._is_foreign:
            return await asking
        return await self._tasks.jobs.ask(asking, self._tasks.is_torn, late)

    async def _go_on(self, tell: Callable[..., list[Action]], what: CommandCall | Delivery, outcome: Any) -> None:
        """Pass on an answer that no caller waited for any more."""
        self.start(self._decide(tell, what, outcome, random.random()))

    async def perform(self, call: CommandCall) -> Any:
        """Send a call, in its span; return the reply, or the error."""
        try:
            self._connections.check_open()
            if self._tracing is None:
                return await self._transport.perform(call.command)
            with self._tracing.call(call.ticket, call.command) as replied:
                replied.reply = await self._transport.perform(call.command)
            return replied.reply
        except BullMQError as error:
            return error

    async def _bring(self, command: Command[Any]) -> Any:
        """Take outcomes to the server; return the reply, or the error."""
        try:
            return await self._transport.perform(command)
        except BullMQError as error:
            return error

    # --- slots --------------------------------------------------------------------------------------------------------

    def _wake_one(self) -> None:
        """Let a slot look for work, if there is some and none is on its way."""
        if self._tasks.group is None or not self._dispatch.needs_hand():
            return
        while self._sleeping:
            wake = self._sleeping.pop()
            # The future of a task that was cancelled in its wait is done.
            if not wake.done():
                wake.set_result(None)
                return
        self._tasks.spawn(self._slot)

    async def _slot(self, *, stays: bool = True) -> bool:
        """Start jobs and deliver outcomes until the end; or, unless it stays, until there is nothing to do and another
        slot sleeps. Return False if the task was cancelled."""
        dispatch = self._dispatch
        dispatch.coming = False
        slot = _Slot()
        try:
            while True:
                work = dispatch.next()
                if type(work) is RunJob:
                    await self._launch(slot, work)
                elif work is DELIVER:
                    await self._deliver(slot)
                elif self._is_over() or (self._sleeping and not stays):
                    return True
                else:
                    await self._sleep(slot)
        except anyio.get_cancelled_exc_class() as error:
            if self._tasks.is_torn():
                raise
            # asyncio: somebody cancelled this very task: others go on for it.
            if not isinstance(error, Postponed):
                self._hand_over(slot.call)
            if slot.started:
                self._tasks.spawn(self._runs.await_begin, slot.started)
            dispatch.coming = False
            self._wake_one()
            return False
        except BaseException:
            # Before the other tasks are cancelled for it: their handlers have not failed.
            self._tasks.broken = True
            raise

    def _is_over(self) -> bool:
        return self._tasks.stopped is None or self._tasks.stopped.is_set()

    async def _launch(self, slot: _Slot, first: JobRun) -> None:
        """Start tasks for jobs that are ready, and let those end that do not wait.

        Half of what may run at a time: their outcomes are on their way while the other half runs.
        """
        dispatch, jobs, setup = self._dispatch, self._tasks.jobs, self._setup
        assert jobs is not None  # it came with the tasks
        started: list[Handling] = []
        left = (min(self._machine.concurrency, MOST_JOBS * 2) + 1) // 2
        action: JobRun | None = first
        # This slot looks for outcomes when the jobs have begun.
        dispatch.coming = True
        try:
            while action is not None:
                number, record = action.run, action.job
                job: Job[T] = Job(
                    record, setup.keys, self._transport, setup.data_type, action.token, setup.limits, setup.clock
                )
                handling = dispatch.handling[number] = Handling(number, job)
                started.append(handling)
                try:
                    jobs.start(handling, f"bullmq job {record.id} of {setup.keys.name}")
                except BaseException:
                    # No memory for a task: the job has not begun.
                    dispatch.handling.pop(number, None)
                    raise
                if handling.begun:
                    # It began within this step, and may have forked: in the child it waits.
                    self._notifier.check_process(WENT_ON)
                left -= 1
                action = dispatch.begin() if left else None
            if not started[-1].begun:
                slot.started = started
                await self._runs.await_begin(started)
                slot.started = ()
        finally:
            dispatch.coming = False

    async def _sleep(self, slot: _Slot) -> None:
        wake = slot.next_wake()
        # Where the task is cancelled in its wait, it stays there until it is passed over: it is done.
        self._sleeping.append(wake)
        await wake
        self._dispatch.coming = False

    def _react(self, actions: list[Action]) -> CommandCall | None:
        """Sort actions; return the call that the slot makes itself."""
        call = self._sort(actions)
        if type(call) is Wait:
            self._send(call)
            return None
        return call

    async def _make(self, slot: _Slot, call: CommandCall | None) -> None:
        """Make a call, and those that follow from its answer."""
        while call is not None:
            self._wake_one()
            slot.call = call
            outcome = await self._call(call)
            slot.call = None
            call = self._react(self._decide(self._dispatch.answered, call, outcome, random.random()))

    async def _deliver(self, slot: _Slot) -> None:
        """Take the outcomes that are there to the server."""
        dispatch = self._dispatch
        delivery: Delivery | None = None
        try:
            if dispatch.handling:
                # Handlers that end in this turn of the loop come along.
                if dispatch.has_ready:
                    self._wake_one()
                await checkpoint()
            if dispatch.has_returned:
                call = self._react(self._decide(dispatch.feed, ()))
                if call is not None:
                    self._send(call)
            delivery = dispatch.take()
            if delivery is None:
                return
            self._wake_one()
            late = partial(self._delivered_late, delivery)
            outcome = await self._reply(self._bring(delivery.command()), late)
        except Postponed:
            raise
        except BaseException:
            dispatch.requeue(delivery)
            raise
        await self._make(slot, self._react(self._decide(dispatch.delivered, delivery, outcome, random.random())))

    def _delivered_late(self, delivery: Delivery, outcome: list[Any], fault: BaseException | None) -> None:
        if outcome:
            self._tasks.spawn(self._go_on, self._dispatch.delivered, delivery, outcome[0])
            return
        self._dispatch.requeue(delivery)
        if fault is not None:
            self._tasks.spawn(self._tasks.fail, fault)
        else:
            self._wake_one()


class _Sleeper:
    """A task that may wait to be woken."""

    __slots__ = ("_make_wake", "wake")
    wake: Wake
    """Of the wait that it is in."""

    def __init__(self) -> None:
        # Found when it first waits: some never do.
        self._make_wake: Callable[[], Wake] | None = None

    def next_wake(self) -> Wake:
        """Make what wakes it from the wait that comes."""
        if self._make_wake is None:
            self._make_wake = wake_maker()
        self.wake = self._make_wake()
        return self.wake


class _Carrier(_Sleeper):
    """A task that makes calls."""

    __slots__ = ("call",)

    def __init__(self) -> None:
        super().__init__()
        self.call: CommandCall | CommandWait | None = None
        """What it was woken for."""

    def next_wake(self) -> Wake:
        self.call = None
        return super().next_wake()


class _Slot(_Sleeper):
    """What a slot is at: a call that it makes, or the jobs that it has just started."""

    __slots__ = ("call", "started")

    def __init__(self) -> None:
        super().__init__()
        self.call: CommandCall | None = None
        self.started: Sequence[Handling] = ()
