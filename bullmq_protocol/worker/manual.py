"""Fetch and finish jobs manually: the machine's work for a worker, one step at a time for a caller.

Source: specs/05-worker-runtime.md#sec-17
"""

from __future__ import annotations

from typing import Any

import msgspec

from bullmq_protocol.command import NOW, Command, Operation
from bullmq_protocol.commands.fetching import Fetched, wait_for_marker
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import BullMQError, TransportError
from bullmq_protocol.model.failure import Failure
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.worker._fetching import QueueView
from bullmq_protocol.worker.advance import NotContinued, Unschedulable, advance, delay_job, delay_problem, schedule_of
from bullmq_protocol.worker.options import WorkerSettings
from bullmq_protocol.worker.outcome import Finishing, Report, ReportKind, failure_report, success_report

MAX_BLOCK_MS: Millis = 10_000


class Taken(msgspec.Struct, frozen=True):
    """A job, locked with `token`, and the problem with its schedule; or none, and why a job was taken and delayed."""

    job: JobRecord | None = None
    token: str = ""
    problem: str | None = None


class ManualWork:
    """Manual fetches, which share one view of the queue."""

    def __init__(self, keys: QueueKeys, settings: WorkerSettings) -> None:
        self._keys = keys
        self._settings = settings
        self._finishing = Finishing(settings, limited=keys.switches.age_retention_limit is not None)
        self._queue = QueueView(keys, settings)

    def next_job(self, token: str, *, block: bool = True) -> Operation[Taken]:
        """Take the next job, or none. After an empty answer wait once for one, up to the drain delay.

        Steps:   one blocking wait (with `block`, after an empty answer), one fetch, one to advance a scheduler
        Atomic:  a job whose answer is lost is found stalled
        Raises:  TransportError, ServerError
        Source:  specs/05-worker-runtime.md#sec-5-2
        """
        queue = self._queue
        at = yield from NOW
        if queue.limited_until is not None and at.mono < queue.limited_until:
            return Taken()
        if queue.empty and queue.limited_until is None and block:
            timeout = self._timeout(at)
            if timeout > 0:
                yield from self._wait(timeout)
                at = yield from NOW
                if queue.next_due is not None and queue.next_due > at.wall:
                    return Taken()
        fetched = yield from queue.fetch_one(token, at.wall)
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
        due = self._queue.next_due
        return self._settings.drain_ms if due is None else min(due - at.wall, MAX_BLOCK_MS)

    def _wait(self, timeout: Millis) -> Operation[None]:
        # However the wait ends, the time of the next delayed job is not lost: a fetch asks for it.
        queue = self._queue
        due, queue.next_due, queue.empty = queue.next_due, None, False
        score = yield from wait_for_marker(self._keys, block_ms=timeout)
        if score is not None and score > 0:
            queue.next_due, queue.empty = due, True
            queue.marker_read(score)

    def _take(self, fetched: Fetched, token: str) -> Operation[Taken]:
        at = yield from NOW
        # No marker is awaited while this caller fetches: the answer is newer than any marker.
        self._queue.next_due = None
        job = self._queue.take(fetched, at.mono)
        if job is None:
            return Taken()
        return (yield from self._advance(job, token, at))

    def _advance(self, job: JobRecord, token: str, at: Instant) -> Operation[Taken]:
        """Create the next run of the job's scheduler; if that fails, delay the job and say why."""
        schedule = schedule_of(job, self._keys.switches)
        if schedule is None:
            return Taken(job, token)
        try:
            step = advance(self._keys, job, schedule, now=at.wall, zones=self._settings.zones)
            while step is not None:
                step = step.following((yield from step.command))
            return Taken(job, token)
        except NotContinued as error:
            return Taken(job, token, str(error))
        except (Unschedulable, BullMQError) as error:
            if isinstance(error, TransportError):
                raise
            problem = delay_problem(str(error))
        yield from delay_job(self._keys, job, token=token, now=at.wall)
        return Taken(problem=problem)

    def _report(self, report: Report, job: JobRecord, token: str, fetch_next: bool) -> Operation[Taken]:
        at = yield from NOW
        report.fetch_next = fetch_next and report.may_fetch_next(self._keys)
        command: Command[Any] = report.command(self._keys, job, token, self._finishing, now=at.wall)
        answer = yield from command
        if report.fetch_next and isinstance(answer, Fetched) and (answer.job or report.kind is not ReportKind.DELAY):
            return (yield from self._take(answer, token))
        self._queue.empty = False
        return Taken()
