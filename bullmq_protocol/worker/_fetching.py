"""Fetching: take jobs while there are any, wait for the queue's marker when there are none.

`QueueView` is the knowledge of the queue that a worker has, or a caller that fetches manually. `Fetching` is the
worker's part: one fetch at a time until an answer holds no job, then one wait. The time of the next delayed job is a
timer of its own, as far as it is known.

Source: specs/05-worker-runtime.md#sec-5
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from bullmq_protocol.command import Command
from bullmq_protocol.commands.batches import MOST_JOBS, fetch_many
from bullmq_protocol.commands.fetching import Fetched, due_of, move_to_active, put_marker, wait_for_marker
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import FIRST_RECONNECT_MS, Millis
from bullmq_protocol.errors import BullMQError
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker._runs import Pending
from bullmq_protocol.worker._shared import Shared, earlier
from bullmq_protocol.worker.actions import CancelWait, Wait
from bullmq_protocol.worker.ending import Ending
from bullmq_protocol.worker.events import CallFailed
from bullmq_protocol.worker.notices import Drained, WorkerProblem
from bullmq_protocol.worker.options import WorkerSettings
from bullmq_protocol.worker.snapshot import WorkerState

LOOK_MS: Final[Millis] = 250
"""How long a worker waits that ends together with others when all are idle: then it looks again."""


class QueueView:
    """What answers and markers have revealed about a queue.

    `empty`: the last answer held no job, and no marker has come since. `limited_until` (monotonic): no job is given out
    before. `next_due` (wall clock): when the next delayed job is due, if known.
    """

    def __init__(self, keys: QueueKeys, settings: WorkerSettings) -> None:
        self._keys = keys
        self._settings = settings
        self.empty = False
        self.limited_until: Millis | None = None
        self.next_due: Millis | None = None

    def fetch_one(self, token: str, now: Millis) -> Command[Fetched]:
        """Return the command that takes the next job."""
        settings = self._settings
        return move_to_active(
            self._keys,
            token=token,
            lock_ms=settings.lock_ms,
            now=now,
            limiter=settings.limiter,
            worker_name=settings.name,
        )

    def take(self, fetched: Fetched, now: Millis) -> JobRecord | None:
        """Take the answer to a fetch; return its job. `now` is monotonic."""
        delay = fetched.limit_delay_ms
        self.limited_until = now + delay if delay > 0 else None
        job = fetched.job
        if job is None:
            # A marker that came during this fetch may stand for a job that the fetch did not see.
            due = fetched.next_due_at
            if due > 0 and (self.next_due is None or due < self.next_due):
                self.next_due = due
            self.empty = True
            return None
        self.empty = False
        return job

    def marker_read(self, score: float | None) -> None:
        """Take the result of a wait for the marker: None after its time, else the score of the marker."""
        if score is None or score <= 0:
            self.empty = False
            return
        due = due_of(score)
        if due is not None:
            self.next_due = due if self.next_due is None else min(due, self.next_due)


class FetchCall(Pending, frozen=True, eq=False):
    """The fetch."""

    fetching: Fetching
    tokens: tuple[str, ...]

    @property
    def asks(self) -> int:
        """How many jobs the answer may bring."""
        return len(self.tokens)

    def answered(self, value: Any) -> None:
        fetching = self.fetching
        fetching.under_way = False
        fetching.failures = 0
        answers: Sequence[Fetched] = (value,) if isinstance(value, Fetched) else value
        for fetched, token in zip(answers, self.tokens, strict=False):
            fetching.begin(fetched, token)

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        fetching = self.fetching
        fetching.under_way = False
        fetching.pause(message, fetching.patience())
        fetching.failures += 1

    def lost(self, event: CallFailed) -> bool:
        fetching = self.fetching
        fetching.under_way = False
        fetching.empty = False
        if event.maybe_applied:
            fetching.problem("a fetch got no answer; if it took a job, the stalled check returns it")
        return True

    def abandoned(self) -> None:
        fetching = self.fetching
        fetching.under_way = False
        fetching.pause_silently(fetching.patience())
        fetching.failures += 1


class WaitCall(Pending, frozen=True, eq=False):
    """The wait for the marker, on a connection of its own."""

    fetching: Fetching

    def answered(self, value: Any) -> None:
        fetching = self.fetching
        fetching.failed_waits = 0
        fetching.marked(value)

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        fetching = self.fetching
        fetching.wait = None
        fetching.failed_waits += 1
        fetching.poll(message)

    def lost(self, event: CallFailed) -> bool:
        fetching = self.fetching
        fetching.wait = None
        fetching.empty = False
        fetching.failed_waits = 0 if event.maybe_applied else fetching.failed_waits + 1
        if fetching.connected and fetching.failed_waits > 1:
            # the wait cannot connect, while calls are answered
            fetching.poll(event.message)
            return False
        return True

    def abandoned(self) -> None:
        self.fetching.wait = None
        self.fetching.empty = False


class MarkerCall(Pending, frozen=True, eq=False):
    """Restores a marker that was taken and not needed. This is a courtesy: other workers poll anyway."""

    shared: Shared

    def answered(self, value: Any) -> None:
        return

    def refused(self, error: BullMQError | None, message: str, transient: bool) -> None:
        self.shared.notify(WorkerProblem(f"could not put the marker back: {message}"))

    def lost(self, event: CallFailed) -> bool:
        return True


def announce(shared: Shared) -> None:
    """Put a marker, so that another worker asks."""
    shared.call(MarkerCall(put_marker(shared.keys), shared))


class Fetching(QueueView):
    """How a worker fetches. `batches`: several jobs can be fetched in one call."""

    start: Callable[[JobRecord, str], object]
    """Starts the job that was fetched with this token; set once, by `Running`."""
    end: Callable[[], object]
    """Closes the worker gracefully; set once, by the machine."""

    def __init__(self, shared: Shared, *, batches: bool) -> None:
        super().__init__(shared.keys, shared.settings)
        self._shared = shared
        self._batches = batches
        self._next_token = 0
        self.under_way = False
        self.failures = 0
        self.asked_at: Millis | None = None
        """When it fetched last, or began to wait."""
        self.ending: Ending | None = None
        """When it ends although nobody closes it. None: never."""
        self._pause_until: Millis | None = None
        self._had_job = True
        # the wait
        self.wait: int | None = None
        self.waiting_since: Millis = 0
        self.failed_waits = 0
        """Consecutive waits that failed before anything was sent."""
        self._wait_cancelled = False
        self._marker_taken = False

    @property
    def connected(self) -> bool:
        """Whether calls are answered."""
        return self._shared.connected

    # --- what to do next --------------------------------------------------------------------------------------------

    def proceed(self) -> None:
        """Fetch, or wait, where the state allows it."""
        shared = self._shared
        if self._marker_taken and shared.connected and len(shared.runs) >= shared.concurrency:
            # its own fetch filled the worker during the wait: the marker is for another worker
            self._marker_taken = False
            announce(shared)
        if not self._may_fetch():
            return
        if self.ending is not None and not self.fitting(self.ending):
            self._end_if_used_up(self.ending)
            return
        if self.limited_until is not None:
            if shared.at.mono < self.limited_until:
                if self.ending is not None and self.ending.ends_limited and not shared.runs:
                    self._end_limited(self.ending)
                return
            self.limited_until = None
            self.empty = False
        if self._pause_until is not None:
            if shared.at.mono < self._pause_until:
                return
            self._pause_until = None
            self.empty = False
        if not self.empty or (self.next_due is not None and shared.at.wall >= self.next_due):
            self._fetch()
        elif self.ending is not None and self.ending.watches and not shared.runs:
            self._end_or_ask(self.ending)
        elif self.wait is None:
            self._wait()

    def deadline(self, due: Millis | None) -> Millis | None:
        """Return when there is something to do without an event, while connected, or `due` if that is earlier."""
        if self.next_due is None and self.limited_until is None and self._pause_until is None:
            return due
        if not self._may_fetch():
            return due
        paused_until = earlier(self.limited_until, self._pause_until)
        if paused_until is not None or self.next_due is None:
            return earlier(due, paused_until)
        at = self._shared.at
        return earlier(due, at.mono + max(0, self.next_due - at.wall))

    def resume(self) -> None:
        """Ask at once: the connection is back."""
        self.empty = False
        self._pause_until = None

    def fitting(self, ending: Ending, count: int = 1) -> int:
        """Return how many jobs of `count` may be asked for."""
        return ending.fitting(count, sum(pending.asks for pending in self._shared.pending.values()))

    def _end_if_used_up(self, ending: Ending) -> None:
        """End when the last job is over: earlier it would have the time of a shutdown alone."""
        if ending.is_used_up and not self._shared.runs:
            self.end()

    def _end_or_ask(self, ending: Ending) -> None:
        """Nothing is held, and the last answer was empty: end if that is so of all who end together."""
        if not ending.has_asked:
            if self.wait is None:
                self._fetch()
            else:
                self.cancel_wait()
        elif ending.found_nothing():
            self.end()
        elif self.wait is None:
            self._wait()

    def _end_limited(self, ending: Ending) -> None:
        """Nothing is held, and nothing is given out for now. A fetch would bring a job all the same where the limit is
        that of a handler, and the worker has no limiter."""
        if not ending.has_asked:
            ending.asks(holds=False)
        if ending.found_nothing():
            self.end()

    def _may_fetch(self) -> bool:
        shared = self._shared
        return (
            len(shared.runs) < shared.concurrency
            and not self.under_way
            and shared.connected
            and shared.state is WorkerState.RUNNING
        )

    # --- the fetch --------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Ask for as many jobs as there is room for."""
        shared = self._shared
        free = shared.concurrency - len(shared.runs)
        count = min(free, MOST_JOBS) if self._batches and free > 1 else 1
        ending = self.ending
        if ending is not None:
            count = self.fitting(ending, count)
            ending.asks(holds=bool(shared.runs))
        first = self._next_token
        self._next_token += count
        tokens = tuple([f"{shared.worker_id}:{number}" for number in range(first, first + count)])
        self.under_way = True
        self.asked_at = shared.at.mono
        self._marker_taken = False
        self.next_due = None
        settings = shared.settings
        command: Command[Fetched] | Command[list[Fetched]]
        if count == 1:
            command = self.fetch_one(tokens[0], shared.at.wall)
        else:
            command = fetch_many(
                shared.keys,
                tokens=tokens,
                lock_ms=settings.lock_ms,
                now=shared.at.wall,
                limiter=settings.limiter,
                worker_name=settings.name,
            )
        shared.call(FetchCall(command, self, tokens))

    def begin(self, fetched: Fetched, token: str) -> None:
        """Take the answer to a fetch, and start its job."""
        job = self.take(fetched, self._shared.at.mono)
        if job is not None:
            self._had_job = True
            if self.ending is not None:
                self.ending.took()
            self.start(job, token)
        elif self._had_job:
            self._had_job = False
            self._shared.notify(Drained())

    def pause(self, message: str, wait: Millis) -> None:
        """Fetch later, and say why."""
        self.problem(message)
        self.pause_silently(wait)

    def pause_silently(self, wait: Millis) -> None:
        """Fetch later."""
        self._pause_until = self._shared.at.mono + wait

    def patience(self) -> Millis:
        """Return how long to wait after the failures so far."""
        return self._shared.patience(self.failures)

    def problem(self, message: str) -> None:
        """Report a problem that the operator may be able to fix."""
        self._shared.notify(WorkerProblem(message))

    # --- the wait for the marker ------------------------------------------------------------------------------------

    def _wait(self) -> None:
        shared = self._shared
        block_ms = shared.settings.drain_ms
        if self.ending is not None and self.ending.watches:
            block_ms = min(block_ms, LOOK_MS)
        command = wait_for_marker(shared.keys, block_ms=block_ms)
        self.wait = shared.owe(WaitCall(command, self))
        self.waiting_since = self.asked_at = shared.at.mono
        self._wait_cancelled = False
        shared.out.append(Wait(self.wait, command))

    def cancel_wait(self) -> None:
        """Interrupt the wait, if there is one."""
        if self.wait is not None and not self._wait_cancelled:
            self._wait_cancelled = True
            self._shared.out.append(CancelWait(self.wait))

    def wait_cancelled(self, ticket: int) -> None:
        """Note that the wait was interrupted."""
        if self._shared.pending.pop(ticket, None) is not None:
            self.wait = None
            # an interrupted wait may have taken a marker with it: ask instead of waiting for the next one
            self.empty = False

    def marked(self, score: float | None) -> None:
        """Take the result of the wait."""
        shared = self._shared
        self.wait = None
        if score is not None and score <= 0 and shared.state is not WorkerState.RUNNING:
            # not needed here: restore it for another worker
            if shared.connected:
                announce(shared)
            return
        self._marker_taken = score is not None
        self.marker_read(score)

    def poll(self, message: str) -> None:
        """Poll, and fetch the next delayed job on time: waiting for the marker does not work."""
        shared = self._shared
        wait = min(shared.patience(self.failed_waits - 1), shared.settings.drain_ms)
        if self.next_due is not None:
            wait = min(wait, max(self.next_due - shared.at.wall, FIRST_RECONNECT_MS))
        self.pause(message, wait)
