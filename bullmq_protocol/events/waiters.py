"""Callers that wait for jobs to finish: any number of them, served by one reader of the event stream.

A caller is added first and then asks for the job's state, so that no event is missed in between. The entries' ids
separate events from before the state was read from later ones.

Source: specs/04-schedulers-flows-events.md#sec-10
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

import msgspec

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.payloads import read_as
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import JobFailedError, JobNotFound, UsageError
from bullmq_protocol.events.stream import (
    CompletedEvent,
    EventsMissed,
    FailedEvent,
    ReadEvent,
    RemovedEvent,
    UndecodableEvent,
    entry_place,
)

T = TypeVar("T")

RECHECK_MS: Final[Millis] = 15_000
"""States are read again after this long: whole queues can be removed without an event for each job."""

MISSING: Final = "missing"


class Finished(msgspec.Struct, frozen=True):
    """How a job ended: `completed` with the JSON of its return value, `failed` with its reason, or `missing`."""

    status: str
    value: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """The server's answer: the stream's newest entry, and how the job ended; None: it has not.

    `certain`: the stream was read, too, and shows that a job that is gone was alive after it last ended.
    """

    newest_id: str
    finished: Finished | None = None
    certain: bool = False


class Waiter:
    """One caller. `wake` is called whenever it has something to look at. With `may_not_exist` it also waits for a job
    that is still to be added."""

    __slots__ = ("_early", "_limit", "_since", "finished", "job_id", "may_not_exist", "must_ask", "wake")

    def __init__(self, job_id: str, wake: Callable[[], object], *, may_not_exist: bool = False) -> None:
        self.job_id = job_id
        self.may_not_exist = may_not_exist
        self.finished: Finished | None = None
        self.must_ask = True
        self.wake = wake
        self._since: tuple[int, int] | None = None
        self._early: tuple[tuple[int, int], Finished] | None = None
        self._limit: tuple[int, int] | None = None

    @property
    def waits(self) -> bool:
        """Whether the answer has come and the job had not ended."""
        return self.finished is None and self._since is not None

    def on_event(self, place: tuple[int, int], finished: Finished) -> None:
        """Take an event. One older than the state that was read last belongs to an earlier end."""
        if self._since is None:
            if self._early is None or finished.status != MISSING:
                self._early = (place, finished)
        elif place > self._since:
            self.settle(finished)

    def answered(self, answer: Answer) -> None:
        """Take the state that was asked for."""
        early, self._early = self._early, None
        if answer.finished is None or (self.may_not_exist and answer.finished.status == MISSING):
            self._since = entry_place(answer.newest_id)
            if early is not None and early[0] > self._since:
                self.settle(early[1])
        elif answer.finished.status != MISSING:
            self.settle(answer.finished)
        elif early is not None and (early[0] > entry_place(answer.newest_id) or not answer.certain):
            self.settle(early[1])
        elif answer.certain:
            self.settle(answer.finished)
        else:
            # The event of its end may still be on the way.
            self._since = (-1, -1)
            self._limit = entry_place(answer.newest_id)

    def expects(self, place: tuple[int, int]) -> bool:
        """Note how far the reader is; return whether the job is gone and its end may still be on the way."""
        if self._limit is not None and place >= self._limit:
            self.settle(Finished(MISSING))
        return self._limit is not None and self.finished is None

    def settle(self, finished: Finished) -> None:
        """Note how the job ended; the first report counts."""
        if self.finished is None:
            self.finished = finished
            self.wake()


class Waiters:
    """All callers that one reader serves. Not safe for threads: the driver has a lock."""

    def __init__(self) -> None:
        self.closed = False
        self._by_job: dict[str, list[Waiter]] = {}
        self._limited: list[Waiter] = []
        self._place = (-1, -1)

    def __len__(self) -> int:
        return sum(map(len, self._by_job.values()))

    def add(self, job_id: str, wake: Callable[[], object], *, may_not_exist: bool = False) -> Waiter:
        """Let a caller wait for a job."""
        waiter = Waiter(job_id, wake, may_not_exist=may_not_exist)
        self._by_job.setdefault(job_id, []).append(waiter)
        return waiter

    def discard(self, waiter: Waiter) -> None:
        """Forget a caller."""
        waiters = self._by_job[waiter.job_id]
        waiters.remove(waiter)
        if not waiters:
            del self._by_job[waiter.job_id]

    def answer(self, waiter: Waiter, answer: Answer) -> None:
        """Give a caller the state it asked for."""
        waiter.answered(answer)
        self._limited.append(waiter)
        self._look_at_limits()

    def to_ask(self, *, everyone: bool) -> list[Waiter]:
        """Return the callers whose jobs' states are to be read again, and count them as read: all, or those that missed
        events; never one whose first question is not answered yet."""
        found = [waiter for waiter in self._all() if waiter.waits and (everyone or waiter.must_ask)]
        for waiter in found:
            waiter.must_ask = False
        return found

    def take(self, event: ReadEvent) -> None:
        """Pass an event to the callers it concerns."""
        match event:
            case CompletedEvent(job_id=job_id, returnvalue_text=text):
                self._on_event(event.entry_id, job_id, Finished("completed", text))
            case FailedEvent(job_id=job_id, failed_reason=reason):
                self._on_event(event.entry_id, job_id, Finished("failed", reason))
            case RemovedEvent(job_id=job_id):
                self._on_event(event.entry_id, job_id, Finished(MISSING))
            case UndecodableEvent(name="completed", fields=fields):
                self._on_event(event.entry_id, fields["jobId"], Finished("completed"))
            case EventsMissed():
                for waiter in self._all():
                    waiter.must_ask = True
                    waiter.wake()
            case _:
                pass

    def reached(self, entry_id: str) -> None:
        """Note how far the reader is."""
        self._place = entry_place(entry_id)
        if self._limited:
            self._look_at_limits()

    def close(self) -> None:
        """Wake all callers: the reader has ended."""
        self.closed = True
        for waiter in self._all():
            waiter.wake()

    def _all(self) -> list[Waiter]:
        return [waiter for waiters in self._by_job.values() for waiter in waiters]

    def _look_at_limits(self) -> None:
        self._limited = [waiter for waiter in self._limited if waiter.expects(self._place)]

    def _on_event(self, entry_id: str, job_id: str, finished: Finished) -> None:
        for waiter in self._by_job.get(job_id, ()):
            waiter.on_event(entry_place(entry_id), finished)


def check_reader(events: Any, kind: type[Any], keys: QueueKeys) -> None:
    """Raise `UsageError` for a reader of another queue's events."""
    if not isinstance(events, kind):
        raise UsageError("queue_events", events, "must be a QueueEvents")
    if events.keys.base != keys.base:
        raise UsageError("queue_events", events.keys.qualified, f"must read the job's queue, {keys.qualified}")


@overload
def result_of(finished: Finished, job_id: str, type: type[T]) -> T: ...
@overload
def result_of(finished: Finished, job_id: str, type: Any) -> Any: ...
def result_of(finished: Finished, job_id: str, type: Any) -> Any:
    """Return a job's return value as this type, whatever `payload_type` takes; None if it is not JSON.

    Raises `JobFailedError`, `JobNotFound`, and `msgspec.ValidationError` if the value does not fit.
    """
    if finished.status == "failed":
        raise JobFailedError(job_id, finished.value or "")
    if finished.status == MISSING:
        raise JobNotFound("waitUntilFinished", job_id=job_id)
    if finished.value is None:
        return None
    try:
        return read_as(finished.value, type)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return None
