"""From a job to the result of a task, and between the priorities of both."""

from __future__ import annotations

import traceback
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
from django.conf import settings
from django.utils.module_loading import import_string

from bullmq_django.framework import Task, TaskError, TaskResult, TaskResultStatus
from bullmq_protocol import JobFailedError, JobOptions
from bullmq_protocol.model.job import JobRecord

HIGHEST = 100
"""The most urgent priority that Django knows; the least is as far below 0."""
_STATUS = MappingProxyType(
    {
        "active": TaskResultStatus.RUNNING,
        "completed": TaskResultStatus.SUCCESSFUL,
        "failed": TaskResultStatus.FAILED,
    }
)
FINISHED = ("completed", "failed")
_TASK: Any = Task
_HEAD = "Traceback (most recent call last):"


class Call(msgspec.Struct, frozen=True):
    """The payload of a job: what the task's function is called with."""

    args: list[Any] = []
    kwargs: dict[str, Any] = {}


_OTHERS = "jobs that are no tasks need a queue of their own, and a worker for it"


class UnknownTask(Exception):
    """A job names no task of this program, or its payload is none of a task's."""


def to_bullmq(priority: int) -> int:
    """Return BullMQ's priority for Django's. Its least number is the most urgent, and 0 comes before all of them."""
    return HIGHEST + 1 - priority


def from_bullmq(options: JobOptions) -> int:
    """Return Django's priority of a job with these options, the most urgent for one without any."""
    priority = options.priority
    return HIGHEST if not priority else max(-HIGHEST, HIGHEST + 1 - int(priority))


def find_task(name: str) -> Task[..., Any]:
    """Return the task that a job names by its path. Raises `UnknownTask`."""
    try:
        found: Any = import_string(name)
    except ImportError as error:
        raise UnknownTask(f"{name!r} is no task of this program: {error}; {_OTHERS}") from None
    if not isinstance(found, _TASK):
        kind = type(found).__name__
        raise UnknownTask(f"{name!r} is no task of this program: an object of type {kind!r}; {_OTHERS}")
    task: Task[..., Any] = found
    return task


def result_id(queue: str, job_id: str) -> str:
    """Return the id by which a program asks for a result."""
    return f"{queue}:{job_id}"


def result_of(
    job: JobRecord, queue: str, alias: str, state: str, *, task: Task[..., Any] | None = None
) -> TaskResult[..., Any]:
    """Return the result of a task as its job is. Raises `UnknownTask`."""
    options = job.opts
    delay = int(options.delay) if isinstance(options.delay, int | float) else 0
    if task is None:
        task = find_task(job.name).using(
            priority=from_bullmq(options) if options.priority else 0,
            queue_name=queue,
            backend=alias,
            run_after=moment((job.timestamp or 0) + delay) if delay > 0 else None,
        )
    try:
        call = job.data_as(Call)
    except msgspec.DecodeError as error:
        raise UnknownTask(f"the payload is not that of a task: {error}") from None
    status = _STATUS.get(state, TaskResultStatus.READY)
    started = moment(job.processed_on)
    result = TaskResult(
        task=task,
        id=result_id(queue, job.id),
        status=status,
        enqueued_at=moment(job.timestamp),
        started_at=started,
        last_attempted_at=started,
        finished_at=moment(job.finished_on),
        args=call.args,
        kwargs=call.kwargs,
        backend=alias,
        errors=_errors(job),
        worker_ids=_workers(job),
    )
    if status is TaskResultStatus.SUCCESSFUL:
        set_value(result, job.returnvalue)
    return result


def set_value(result: TaskResult[..., Any], value: Any) -> None:
    """Give a result its value, as the framework's own backends do."""
    object.__setattr__(result, "_return_value", value)


def moment(millis: int | None) -> datetime | None:
    """Return a moment as Django has them: with a zone where `USE_TZ` says so, else in local time."""
    if millis is None:
        return None
    found = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
    return found if settings.USE_TZ else found.astimezone().replace(tzinfo=None)


def _workers(job: JobRecord) -> list[str]:
    """Return one name for each attempt. BullMQ keeps that of the last alone: earlier ones are "" here."""
    count = max(job.attempts_started, 1 if job.processed_by else 0)
    return [""] * (count - 1) + [job.processed_by or ""] if count else []


def _errors(job: JobRecord) -> list[TaskError]:
    errors = [TaskError(exception_class_path=class_path(str(text)), traceback=str(text)) for text in job.stacktrace]
    if not errors and job.failed_reason:
        # No code of the task's failed: the job stalled too often, say.
        path = f"{JobFailedError.__module__}.{JobFailedError.__qualname__}"
        errors.append(TaskError(exception_class_path=path, traceback=job.failed_reason))
    return errors


def error_of(error: BaseException) -> TaskError:
    """Return an exception as results have them."""
    kind = type(error)
    text = "".join(traceback.format_exception(error))
    return TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=text)


def class_path(text: str) -> str:
    """Return the path of the exception's class, as the end of its traceback names it."""
    lines = text.rpartition(_HEAD)[2].lstrip("\n").splitlines() or [""]
    line = next((line for line in lines if line and not line[0].isspace()), lines[0])
    name = line.partition(":")[0].strip()
    return name if "." in name else f"builtins.{name}"
