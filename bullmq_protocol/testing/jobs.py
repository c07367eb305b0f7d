"""What tests ask of a queue: which jobs it holds, whether one was added, and what became of those that were processed.

The adapters do the asking: `queued`, `assert_added` and `work_off` of `bullmq_anyio.testing` and `bullmq_sync.testing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import UNSET

from bullmq_protocol.command import Operation
from bullmq_protocol.common.codec import json_text, listed, parse_json
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UsageError, shown
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.model.options import JobOptions
from bullmq_protocol.operations.read_jobs import get_jobs
from bullmq_protocol.worker.notices import JobCompleted, JobFailed, JobMoved

PENDING: Final = ("waiting", "prioritized", "delayed", "waiting-children")
"""The states of jobs that no worker has taken; `waiting` includes those of a paused queue."""
STATES: Final = (*PENDING, "active", "completed", "failed")
"""All states."""
_NEAREST = 3


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A job as plain values.

    Args:
        name: What kind of job it is.
        data: The payload, as JSON values.
        id: The job's id; "" where it is none yet.
        queue: The name of its queue.
        state: `waiting`, `prioritized`, `delayed`, `waiting-children`, `active`, `completed` or `failed`.
        delay: How long it waits before it may run, in milliseconds; 0 by default.
        priority: Its priority; 0, the default: none.
        attempts_made: How many attempts have finished; 0 by default.
        options: The options that are stored with it.
    """

    name: str
    data: Any
    id: str
    queue: str
    state: str
    delay: Millis = 0
    priority: int = 0
    attempts_made: int = 0
    options: JobOptions = JobOptions()


def queued_jobs(keys: QueueKeys, states: Sequence[str] = PENDING) -> Operation[list[QueuedJob]]:
    """Read the jobs in these states, one state after the other, the next to run first.

    Steps:   as get_jobs, for each state
    Atomic:  no
    Raises:  UsageError
    Source:  specs/03-transitions-admin-getters.md#sec-11-3
    """
    found: list[QueuedJob] = []
    for state in listed("states", states):
        records = yield from get_jobs(keys, [state], ascending=True)
        found += [queued_job(record, keys.name, state) for record in records]
    return found


def queued_job(record: JobRecord, queue: str, state: str) -> QueuedJob:
    """Return a job as plain values."""
    return QueuedJob(
        name=record.name,
        data=record.data,
        id=record.id,
        queue=queue,
        state=state,
        delay=record.delay or 0,
        priority=record.priority or 0,
        attempts_made=record.attempts_made,
        options=record.opts,
    )


# --- was it added? ----------------------------------------------------------------------------------------------------


class Wanted(msgspec.Struct, frozen=True):
    """What a job is to be: its name, and its payload, whole (`data`) or some of its members (`members`)."""

    name: str
    data: Any
    members: Mapping[str, Any]

    def differences(self, job: QueuedJob) -> list[str]:
        """Return a line for each thing that is otherwise; none for a job that fits."""
        lines: list[str] = []
        if job.name != self.name:
            lines.append(f"its name is {shown(job.name)}")
        if self.data is not UNSET and job.data != self.data:
            lines.append(f"its payload is {_text(job.data)}")
        data: Any = job.data
        found = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        for member, value in self.members.items():
            if member not in found:
                lines.append(f"{member} is missing")
            elif found[member] != value:
                lines.append(f"{member} is {_text(found[member])}, not {_text(value)}")
        return lines

    def __str__(self) -> str:
        data = [] if self.data is UNSET else [f"the payload {_text(self.data)}"]
        parts = [*data, *(f"{member} {_text(value)}" for member, value in self.members.items())]
        return f"job {shown(self.name)}{' with ' + ', '.join(parts) if parts else ''}"


def wanted(name: object, data: Any, members: Mapping[str, Any]) -> Wanted:
    """Return what a job is to be, its payload as it will be read. Raises `UsageError`."""
    name = name.name if isinstance(name, JobType) else name
    if not isinstance(name, str):
        raise UsageError("name", name, "must be a string or a JobType")
    return Wanted(
        name, data if data is UNSET else _plain(data), {each: _plain(value) for each, value in members.items()}
    )


def find_added(jobs: Sequence[QueuedJob], wanted: Wanted, queue: str) -> QueuedJob:
    """Return the last job that fits; raise `AssertionError` that names the nearest ones."""
    for job in reversed(jobs):
        if not wanted.differences(job):
            return job
    if not jobs:
        raise AssertionError(f"no {wanted} in queue {queue!r}, which is empty")
    # A job of the name is nearer than any other.
    nearest = sorted(jobs, key=lambda job: (job.name != wanted.name, len(wanted.differences(job))))[:_NEAREST]
    lines = [f"no {wanted} among the {_count(len(jobs))} of queue {queue!r}; the nearest:"]
    for job in nearest:
        lines.append(f"  {job.id} {job.name} ({job.state})")
        lines += [f"    {line}" for line in wanted.differences(job)]
    raise AssertionError("\n".join(lines))


def refuse_added(jobs: Sequence[QueuedJob], wanted: Wanted, queue: str) -> None:
    """Raise `AssertionError` if a job fits."""
    found = [job for job in jobs if not wanted.differences(job)]
    if found:
        lines = [f"  {job.id} {job.name} ({job.state}): {_text(job.data)}" for job in found]
        raise AssertionError("\n".join([f"there is a {wanted} in queue {queue!r}:", *lines]))


def _count(number: int) -> str:
    return f"{number} job{'' if number == 1 else 's'}"


def _plain(value: Any) -> Any:
    return parse_json(json_text(value, field="data"))


def _text(value: Any) -> str:
    return shown(value)


# --- what became of jobs ----------------------------------------------------------------------------------------------


class CompletedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that completed.

    Args:
        name: What kind of job it is.
        data: The payload, as JSON values.
        id: The job's id.
        result: What its processor returned, as JSON values.
        attempts_made: How many attempts it took.
    """

    name: str
    data: Any
    id: str
    result: Any
    attempts_made: int


class FailedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that failed.

    Args:
        name: What kind of job it is.
        data: The payload, as JSON values.
        id: The job's id.
        reason: The text of the failure.
        attempts_made: How many attempts were made, this one included.
        retry_delay_ms: The delay of the retry, in milliseconds; None where the job failed for good.
        exception: What the processor raised; None where none did.
    """

    name: str
    data: Any
    id: str
    reason: str
    attempts_made: int
    retry_delay_ms: float | None = None
    exception: Any = None


class MovedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that left the worker without an outcome.

    Args:
        name: What kind of job it is.
        data: The payload, as JSON values.
        id: The job's id.
        how: `delayed`, `waiting`, `waiting-children`, `rate-limited` or `given-back`.
    """

    name: str
    data: Any
    id: str
    how: str


class WorkedOff(msgspec.Struct, frozen=True):
    """What became of the jobs that were processed, each in the order in which it happened.

    Args:
        completed: The jobs that completed.
        failed: The jobs that failed for good.
        retried: The attempts that failed and are made again.
        moved: The jobs that left without an outcome.
    """

    completed: tuple[CompletedJob, ...] = ()
    failed: tuple[FailedAttempt, ...] = ()
    retried: tuple[FailedAttempt, ...] = ()
    moved: tuple[MovedJob, ...] = ()


Outcome: TypeAlias = CompletedJob | FailedAttempt | MovedJob


class Outcomes:
    """Gathers what a worker tells of its jobs: `add` takes its notices, from any thread."""

    def __init__(self) -> None:
        self._all: list[Outcome] = []

    def add(self, notice: JobCompleted | JobFailed | JobMoved) -> None:
        """Note what became of a job."""
        job = notice.job
        if isinstance(notice, JobCompleted):
            value = parse_json(notice.value)
            made = job.attempts_made + 1
            self._all.append(CompletedJob(name=job.name, data=job.data, id=job.id, result=value, attempts_made=made))
        elif isinstance(notice, JobMoved):
            self._all.append(MovedJob(name=job.name, data=job.data, id=job.id, how=notice.how))
        else:
            self._all.append(
                FailedAttempt(
                    name=job.name,
                    data=job.data,
                    id=job.id,
                    reason=notice.reason,
                    attempts_made=notice.attempts_made,
                    retry_delay_ms=notice.retry_delay_ms,
                    exception=notice.exception,
                )
            )

    def worked_off(self) -> WorkedOff:
        """Return all of it."""
        attempts = [each for each in self._all if isinstance(each, FailedAttempt)]
        return WorkedOff(
            tuple(each for each in self._all if isinstance(each, CompletedJob)),
            tuple(each for each in attempts if each.retry_delay_ms is None),
            tuple(each for each in attempts if each.retry_delay_ms is not None),
            tuple(each for each in self._all if isinstance(each, MovedJob)),
        )

    def check(self) -> None:
        """Raise what the last attempt of a job raised, if it failed; of several jobs an `ExceptionGroup`."""
        last = {each.id: each for each in self._all}
        failed = [each for each in last.values() if isinstance(each, FailedAttempt)]
        errors = [_error_of(each) for each in failed]
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{len(errors)} jobs failed", errors)


def _error_of(attempt: FailedAttempt) -> Exception:
    if not isinstance(attempt.exception, Exception):
        return AssertionError(f"job {attempt.id} ({attempt.name}) failed: {attempt.reason}")
    attempt.exception.add_note(f"raised by the processor of job {attempt.id} ({attempt.name})")
    return attempt.exception
