"""Fetch and finish jobs by hand: what the machine does for a worker, one step at a time for a caller.

Source: specs/05-worker-runtime.md#sec-17
"""

from __future__ import annotations

from typing import Any

import msgspec

from bullmq_protocol.command import NOW, Command, Operation
from bullmq_protocol.commands.fetching import Fetched, due_of, move_to_active, wait_for_marker
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import BullMQError, TransportError
from bullmq_protocol.model.failure import Failure
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker.advance import Unschedulable, advance, put_back, put_back_problem, schedule_of
from bullmq_protocol.worker.options import WorkerSettings
from bullmq_protocol.worker.outcome import Finishing, Report, failure_report, success_report

MAX_BLOCK_MS: Millis = 10_000


class Taken(msgspec.Struct, frozen=True):
    """A job, locked with `token`; or none, and what went wrong when one was taken and put back."""

    job: JobRecord | None = None
    token: str = ""
    problem: str | None = None


class ManualWork:
    """The state that fetches by hand share: was the last answer empty, until when is the queue limited, what is due."""

    def __init__(self, keys: QueueKeys, settings: WorkerSettings) -> None:
        self._keys = keys
        self._settings = settings
        self._finishing = Finishing(settings)
        self._empty = False
        self._limited_until: Millis | None = None
        self._next_due: Millis | None = None

    def next_job(self, token: str, *, block: bool = True) -> Operation[Taken]:
        """Take the next job, or none. After an empty answer wait once for one, up to the drain delay.

        Steps:   one blocking wait (with `block`, after an empty answer), one fetch, one to advance a scheduler
        Atomic:  a job whose answer is lost is found stalled
        Raises:  TransportError, ServerError
        Source:  specs/05-worker-runtime.md#sec-5-2
        """
        at = yield from NOW
        if self._limited_until is not None and at.mono < self._limited_until:
            return Taken()
        if self._empty and self._limited_until is None and block:
            timeout = self._timeout(at)
            if timeout > 0:
                yield from self._wait(timeout)
                at = yield from NOW
                if self._next_due is not None and self._next_due > at.wall:
                    return Taken()
        settings = self._settings
        fetched = yield from move_to_active(
            self._keys,
            token=token,
            lock_ms=settings.lock_ms,
            now=at.wall,
            limiter=settings.limiter,
            worker_name=settings.name,
        )
        return (yield from self._take(fetched, token))

    def complete(self, job: JobRecord, token: str, value: str, *, fetch_next: bool = False) -> Operation[Taken]:
        """Store success (`value` is JSON text); with `fetch_next` take the next job with the same token.

        Steps:   one, and one to advance a scheduler
        Raises:  JobNotFound, LockMissing, LockMismatch, WrongState, PendingChildren, ChildFailed
        Source:  specs/05-worker-runtime.md#sec-17
        """
        return (yield from self._report(success_report(value), job, token, fetch_next))

    def fail(
        self,
        job: JobRecord,
        token: str,
        failure: Failure,
        *,
        roll: float,
        strategy_delay: float | None = None,
        strategy_error: str | None = None,
        telemetry: str | None = None,
        fetch_next: bool = False,
    ) -> Operation[Taken]:
        """Store a failed attempt: a retry, a delayed retry, or the end; only the end can bring the next job.

        `telemetry` is a trace context to be stored with it.

        Steps:   one, and one to advance a scheduler
        Raises:  JobNotFound, LockMissing, LockMismatch, WrongState
        Source:  specs/05-worker-runtime.md#sec-9-1
        """
        report = failure_report(
            job,
            failure,
            self._settings,
            roll=roll,
            strategy_delay=strategy_delay,
            strategy_error=strategy_error,
            telemetry=telemetry,
        )
        return (yield from self._report(report, job, token, fetch_next))

    def _timeout(self, at: Instant) -> Millis:
        if self._next_due is None:
            return self._settings.drain_ms
        return min(self._next_due - at.wall, MAX_BLOCK_MS)

    def _wait(self, timeout: Millis) -> Operation[None]:
        # Whatever ends the wait, the time of the next delayed job is not lost: a fetch asks for it.
        due, self._next_due = self._next_due, None
        self._empty = False
        score = yield from wait_for_marker(self._keys, block_ms=timeout)
        if score is not None and score > 0:
            marked = due_of(score)
            known = [moment for moment in (marked, due) if moment is not None]
            self._next_due = min(known, default=None)
            self._empty = True

    def _take(self, fetched: Fetched, token: str) -> Operation[Taken]:
        at = yield from NOW
        limit = fetched.limit_delay_ms
        self._limited_until = at.mono + limit if limit > 0 else None
        self._next_due = fetched.next_due_at if fetched.next_due_at > 0 else None
        job = fetched.job
        self._empty = job is None
        if job is None:
            return Taken()
        problem = yield from self._advance(job, token, at)
        return Taken(job, token) if problem is None else Taken(problem=problem)

    def _advance(self, job: JobRecord, token: str, at: Instant) -> Operation[str | None]:
        """Create the next run of the job's scheduler; where that fails, put the job back and return why."""
        schedule = schedule_of(job)
        if schedule is None:
            return None
        try:
            step = advance(self._keys, job, schedule, now=at.wall, zones=self._settings.zones)
            if step is not None:
                following = step.following((yield from step.command))
                if following is not None:
                    yield from following
            return None
        except (Unschedulable, BullMQError) as error:
            if isinstance(error, TransportError):
                raise
            problem = put_back_problem(str(error))
        yield from put_back(self._keys, job, token=token, now=at.wall)
        return problem

    def _report(self, report: Report, job: JobRecord, token: str, fetch_next: bool) -> Operation[Taken]:
        at = yield from NOW
        report.fetch_next = fetch_next and report.may_fetch_next
        command: Command[Any] = report.command(self._keys, job, token, self._finishing, now=at.wall)
        answer = yield from command
        if report.fetch_next and isinstance(answer, Fetched):
            return (yield from self._take(answer, token))
        self._empty = False
        return Taken()
