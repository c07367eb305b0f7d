"""Your own driver of the worker's machine in simulated time: your loop lives through a thousand lives.

A life has trouble in it: calls that are lost, refused and slow, a server that goes down, jobs that others have written,
pauses, closes, handlers that last longer than their locks; then quiet; then the close. What must hold is in
`simulate.py`. Write the loop as a generator (docs/testing.md has one), so that the same text runs on your sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias

from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.testing.simulate import Life, TraceLine, Violation, Worker
from bullmq_protocol.worker.actions import Notify, Stopped
from bullmq_protocol.worker.events import Event, Tick
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.typed import CommandCall, CommandWait, JobRun, WorkerAction


class Machine(Protocol):
    """What a loop may call of the worker's machine (docs/worker-machine.md)."""

    def start(self, at: Instant, *, paused: bool = False) -> list[WorkerAction]: ...
    def handle(self, event: Event, at: Instant) -> list[WorkerAction]: ...
    def handle_all(self, events: Sequence[Event], at: Instant) -> list[WorkerAction]: ...
    def deadline(self) -> Millis | None: ...


class Hands(Protocol):
    """What a loop has done for it; nothing waits here. What comes of it comes as an event, some time.

    `call` makes a call: `Replied` or `CallFailed`. `wait` does so on a connection that may block, and `cancel_wait`
    ends that: `WaitCancelled`, if nothing came before. `run` starts the handler of a job: `JobReturned` or `JobRaised`;
    `cancel_job` asks it to end. `now` reads the clocks, `roll` gives a random number from 0 to 1.
    """

    def now(self) -> Instant: ...
    def roll(self) -> float: ...
    def call(self, call: CommandCall) -> None: ...
    def wait(self, wait: CommandWait) -> None: ...
    def cancel_wait(self, ticket: int) -> None: ...
    def run(self, job: JobRun) -> None: ...
    def cancel_job(self, run: int) -> None: ...


Loop: TypeAlias = Generator[Millis | None, Event | None, None]
"""A loop that is under way: it yields until when it waits for an event, on the monotonic clock (None: as long as it
takes), and is sent the event, or None where none came by then. It returns when the machine has `Stopped`."""

MakeLoop: TypeAlias = Callable[[Machine, Hands], Loop]


class LoopLife(Life):
    """One seed, lived by loops: `run` raises `Violation` where a rule is broken.

    Args:
        seed: What everything in the life follows from.
        loop: The loop.
    """

    def __init__(self, seed: int, loop: MakeLoop) -> None:
        super().__init__(seed)
        self._loop = loop
        self._loops: dict[str, tuple[Loop, _Watched]] = {}

    def _begin(self, worker: Worker) -> None:
        watched = _Watched(worker.machine, lambda events: self._note(worker, events))
        self._loops[worker.name] = self._loop(watched, _SimulatedHands(self, worker)), watched
        self._go_on(worker, None)

    def _tell_all(self, worker: Worker, *events: Event) -> None:
        events = (*worker.returned, *events)
        worker.returned.clear()
        for event in events:
            # A loop learns by its own wait that a moment has come.
            self._go_on(worker, None if isinstance(event, Tick) else event)

    def _note(self, worker: Worker, events: Sequence[Event]) -> None:
        self.steps += len(events)
        at = self._at(worker)
        self._trace += [TraceLine(worker.name, at.wall, at.mono, event) for event in events]

    def _go_on(self, worker: Worker, event: Event | None) -> None:
        found = self._loops.get(worker.name)
        if found is None:
            return
        loop, watched = found
        try:
            deadline = loop.send(event)
        except StopIteration:
            pass
        except Violation:
            raise
        except Exception as error:
            self._fail("a loop raises nothing", f"{worker.name}: {error!r}")
        else:
            self._must(watched.stopped is None, "a loop ends when its machine has stopped", worker.name)
            self._see(worker, watched)
            self._set_loop_timer(worker, deadline)
            return
        del self._loops[worker.name]
        self._see(worker, watched)
        self._must(watched.stopped is not None, "a loop goes on until its machine has stopped", worker.name)
        assert watched.stopped is not None
        self._stop(worker, watched.stopped.error)

    def _see(self, worker: Worker, watched: _Watched) -> None:
        for action in watched.noted():
            self._noted(worker, action.notice)
        self._look_at(worker)

    def _set_timer(self, worker: Worker, deadline: Millis | None) -> None:
        """The loop says itself until when it waits."""

    def _set_loop_timer(self, worker: Worker, deadline: Millis | None) -> None:
        if deadline is None:
            worker.tick_at = None
        else:
            super()._set_timer(worker, deadline)

    def call(self, worker: Worker, call: CommandCall) -> None:
        """Make a call for a loop."""
        self._check_fetch(worker, call.command)
        self._call(worker, call)

    def wait(self, worker: Worker, wait: CommandWait) -> None:
        """Wait for a loop."""
        self._wait(worker, wait)

    def cancel_wait(self, worker: Worker, ticket: int) -> None:
        """End a wait."""
        self._in(1, self._wait_cancelled(worker, ticket))

    def handle(self, worker: Worker, job: JobRun) -> None:
        """Start a handler."""
        self._hold(worker, job)
        self._run(worker, job)

    def cancel(self, worker: Worker, run: int) -> None:
        """Ask a handler to end."""
        self._in(self._dice.pick(1, 300), self._ended(worker, run))

    def roll(self) -> float:
        """Return a random number, the same for the same seed."""
        return self._dice.below(1000) / 1000

    def at(self, worker: Worker) -> Instant:
        """Return the clocks of a worker."""
        return self._at(worker)


class _SimulatedHands:
    def __init__(self, life: LoopLife, worker: Worker) -> None:
        self._life = life
        self._worker = worker

    def now(self) -> Instant:
        return self._life.at(self._worker)

    def roll(self) -> float:
        return self._life.roll()

    def call(self, call: CommandCall) -> None:
        self._life.call(self._worker, call)

    def wait(self, wait: CommandWait) -> None:
        self._life.wait(self._worker, wait)

    def cancel_wait(self, ticket: int) -> None:
        self._life.cancel_wait(self._worker, ticket)

    def run(self, job: JobRun) -> None:
        self._life.handle(self._worker, job)

    def cancel_job(self, run: int) -> None:
        self._life.cancel(self._worker, run)


class _Watched:
    """A machine whose events and actions are seen, whatever the loop does with them."""

    def __init__(self, machine: WorkerMachine, note: Callable[[Sequence[Event]], None]) -> None:
        self._machine = machine
        self._note = note
        self._notices: list[Notify[Any]] = []
        self.stopped: Stopped | None = None

    def start(self, at: Instant, *, paused: bool = False) -> list[WorkerAction]:
        return self._seen(self._machine.start(at, paused=paused))

    def handle(self, event: Event, at: Instant) -> list[WorkerAction]:
        return self.handle_all((event,), at)

    def handle_all(self, events: Sequence[Event], at: Instant) -> list[WorkerAction]:
        self._note(events)
        return self._seen(self._machine.handle_all(events, at))

    def deadline(self) -> Millis | None:
        return self._machine.deadline()

    def noted(self) -> list[Notify[Any]]:
        notices, self._notices = self._notices, []
        return notices

    def _seen(self, actions: list[WorkerAction]) -> list[WorkerAction]:
        for action in actions:
            if isinstance(action, Notify):
                self._notices.append(action)
            elif isinstance(action, Stopped):
                self.stopped = action
        return actions


def simulate_loop(loop: MakeLoop, *, lives: int = 1_000, seed: int = 0) -> tuple[int, int]:
    """Let a loop live through lives of workers; return how many events it has passed on, and how many jobs there were.

    Args:
        loop: The loop: a generator function of the machine and of what makes its calls.
        lives: How many lives, one seed after the other; 1,000 by default.
        seed: The first seed; 0 by default. `LoopLife(seed, loop).run()` lives one again.

    Raises:
        Violation: A rule is broken. `rule` is which, `trace` what had happened, as lines of JSON.
    """
    steps = jobs = 0
    for each in range(seed, seed + lives):
        life = LoopLife(each, loop)
        steps += life.run()
        jobs += life.jobs
    return steps, jobs
