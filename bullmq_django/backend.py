"""The backend: from a task to a job, and from a job to its result."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

import msgspec
from asgiref.sync import sync_to_async
from django.core import checks
from django.utils import timezone
from django.utils.crypto import get_random_string

from bullmq_django.framework import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from bullmq_django.options import Options, read
from bullmq_django.queues import SHARED
from bullmq_django.results import FINISHED, UnknownTask, result_of, to_bullmq
from bullmq_protocol import JobOptions, TransportError, UsageError
from bullmq_protocol.model.job import JobRecord
from bullmq_sync import Job, Queue

P = ParamSpec("P")
R = TypeVar("R")

ID_LENGTH = 22
LONGEST_ID = 63
"""What Django promises of a result's id: fewer than 64 characters."""
LONGEST_NAME = LONGEST_ID - ID_LENGTH - 1
_MOST_LOOKS = 3


class BullMQBackend(BaseTaskBackend):
    """Tasks as jobs of BullMQ's queues, one queue for each of `QUEUES`.

    A job's name is the task's path (`shop.tasks.send`), its payload `{"args": [...], "kwargs": {...}}`. Workers are
    started by `manage.py bullmqworker`.

    Args:
        alias: The backend's name in `TASKS`.
        params: Its settings: `QUEUES`, the names of the queues, and `OPTIONS`, which docs/django.md lists.

    Raises:
        ImproperlyConfigured: An option is unknown or wrong.

    Examples:
        >>> TASKS = {
        ...     "default": {
        ...         "BACKEND": "bullmq_django.BullMQBackend",
        ...         "QUEUES": ["default", "mail"],
        ...         "OPTIONS": {"connection": "redis://localhost:6379"},
        ...     }
        ... }
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.bullmq_options: Options = read(alias, params.get("OPTIONS") or {})
        self.supports_priority = self.bullmq_options.priorities

    def queue(self, name: str) -> Queue[Any]:
        """Return the queue of a name, which all threads of the process share: its owner is this package.

        Args:
            name: One of `QUEUES`.

        Raises:
            UsageError: The name, or an option, is not one that a queue can have.

        Examples:
            >>> waiting = task_backends["default"].queue("mail").get_waiting_count()
        """
        return SHARED.get(self.alias, name, self.bullmq_options)

    def validate_task(self, task: Task[..., Any]) -> None:
        """Refuse a task that cannot be a job.

        Args:
            task: The task.

        Raises:
            InvalidTask: Why it cannot.

        Examples:
            >>> task_backends["default"].validate_task(send)
        """
        super().validate_task(task)
        if len(task.queue_name) > LONGEST_NAME:
            raise InvalidTask(f"queue_name {task.queue_name!r} must have at most {LONGEST_NAME} characters")

    def enqueue(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Add the job of a task.

        When the connection breaks and the job may have been added, it is added again with the same id, which is
        harmless.

        Args:
            task: The task.
            args: Its positional arguments: JSON values.
            kwargs: Its arguments by name: JSON values.

        Returns:
            The result, whose `id` finds it again.

        Raises:
            InvalidTask: The task cannot be a job.
            TypeError: An argument is no JSON value.
            TransportError: The server cannot be reached.
            UsageError: A payload is too large.

        Examples:
            >>> result = send.enqueue("ada@example.org")
            >>> result.status
            TaskResultStatus.READY
        """
        result = self._add(task, args, kwargs)
        task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Add the job of a task without blocking the event loop: `enqueue` on a thread.

        Args:
            task: The task.
            args: Its positional arguments: JSON values.
            kwargs: Its arguments by name: JSON values.

        Returns:
            The result, whose `id` finds it again.

        Raises:
            InvalidTask: As for `enqueue`; so for its other errors.

        Examples:
            >>> result = await send.aenqueue("ada@example.org")
        """
        # Not on the one thread that Django keeps for what needs the same thread: the queue serves any number of them.
        result = await sync_to_async(self._add, thread_sensitive=False)(task, args, kwargs)
        await task_enqueued.asend(type(self), task_result=result)
        return result

    def _add(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        self.validate_task(task)
        payload = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        record = self._store(self.queue(task.queue_name), task, payload)
        found: Any = result_of(record, task.queue_name, self.alias, "waiting", task=task)
        result: TaskResult[P, R] = found
        return result

    def _store(self, queue: Queue[Any], task: Task[..., Any], payload: dict[str, Any]) -> JobRecord:
        return _added(queue, task.module_path, payload, self._job_options(task)).record

    def _job_options(self, task: Task[..., Any]) -> JobOptions:
        own: dict[str, Any] = {"job_id": get_random_string(ID_LENGTH)}
        if self.supports_priority:
            own["priority"] = to_bullmq(task.priority)
        if task.run_after is not None:
            own["delay"] = _until(task.run_after)
        return msgspec.structs.replace(self.bullmq_options.job_options, **own)

    def get_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return how far a task has come.

        Args:
            result_id: The `id` of a result.

        Raises:
            TaskResultDoesNotExist: There is no such job, or no longer; or its task is none of this program's.
            TransportError: The server cannot be reached.

        Examples:
            >>> task_backends["default"].get_result(result.id).status
            TaskResultStatus.SUCCESSFUL
        """
        name, _, job_id = str(result_id).partition(":")
        if not job_id or (self.queues and name not in self.queues):
            raise TaskResultDoesNotExist(result_id)
        try:
            queue = self.queue(name)
        except UsageError:
            raise TaskResultDoesNotExist(result_id) from None
        job, state = _seen(queue, job_id)
        if job is None:
            raise TaskResultDoesNotExist(result_id)
        try:
            return result_of(job.record, name, self.alias, state)
        except UnknownTask as error:
            raise TaskResultDoesNotExist(f"{result_id}: {error}") from None

    async def aget_result(self, result_id: str) -> TaskResult[..., Any]:
        """Return how far a task has come, without blocking the event loop: `get_result` on a thread.

        Args:
            result_id: The `id` of a result.

        Raises:
            TaskResultDoesNotExist: As for `get_result`; so for its other errors.

        Examples:
            >>> result = await task_backends["default"].aget_result(result.id)
        """
        return await sync_to_async(self.get_result, thread_sensitive=False)(result_id)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Look the settings over, without the server.

        Args:
            **kwargs: What Django gives to checks; ignored.

        Returns:
            What is wrong.

        Examples:
            >>> task_backends["default"].check()
            []
        """
        return [*super().check(**kwargs), *self._wrong_settings()]

    def _wrong_settings(self) -> Iterator[checks.CheckMessage]:
        place = f"TASKS[{self.alias!r}]"
        for name in sorted(self.queues) or [""]:
            if len(name) > LONGEST_NAME:
                problem = f"{place}: a queue's name must have at most {LONGEST_NAME} characters: {name!r}"
                yield checks.Error(problem, id="bullmq.E001")
                continue
            try:
                # Made apart from those in use: nothing is opened.
                Queue[Any](name or "any", self.bullmq_options.connection, **self.bullmq_options.queue_arguments())
            except UsageError as error:
                yield checks.Error(f"{place}: {error}", id="bullmq.E002")
                # It may be about all of them.
                return


def _added(queue: Queue[Any], name: str, payload: dict[str, Any], options: JobOptions) -> Job[Any]:
    try:
        return queue.add(name, payload, options)
    except TransportError as error:
        if not error.maybe_applied:
            raise
    return queue.add(name, payload, options)


def _seen(queue: Queue[Any], job_id: str) -> tuple[Job[Any] | None, str]:
    """Return a job and its state, seen together: between the two calls it may have ended."""
    state, job = queue.get_job_state(job_id), queue.get_job(job_id)
    for _ in range(_MOST_LOOKS):
        if job is None or (state in FINISHED) == (job.finished_on is not None):
            break
        state, job = queue.get_job_state(job_id), queue.get_job(job_id)
    return job, state


def _until(moment: datetime) -> int:
    """Return the milliseconds until a moment, at least 0."""
    now = timezone.now() if timezone.is_aware(moment) else datetime.now()
    return max(0, round((moment - now).total_seconds() * 1000))
