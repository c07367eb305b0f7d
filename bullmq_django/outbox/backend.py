"""A backend whose tasks are stored in the outbox, with the data of the same transaction."""

from __future__ import annotations

from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

from bullmq_django.backend import BullMQBackend
from bullmq_django.framework import Task, TaskResult, task_enqueued
from bullmq_django.outbox.models import OutboxRow
from bullmq_protocol.model.job import JobRecord
from bullmq_sync import Queue

P = ParamSpec("P")
R = TypeVar("R")


class OutboxBackend(BullMQBackend):
    """A `BullMQBackend` whose tasks are stored in `OutboxRow`: `manage.py bullmqrelay` adds their jobs.

    A task that is enqueued within `transaction.atomic` is there if, and only if, the transaction commits; Redis is not
    asked. Until a relay has added the job, `get_result` finds none.

    Examples:
        >>> TASKS = {"default": {"BACKEND": "bullmq_django.outbox.backend.OutboxBackend", "QUEUES": ["default"]}}
    """

    async def aenqueue(self, task: Task[P, R], args: list[Any], kwargs: dict[str, Any]) -> TaskResult[P, R]:
        """Store a task: `enqueue` on the thread that Django keeps for databases.

        Args:
            task: The task.
            args: Its positional arguments: JSON values.
            kwargs: Its arguments by name: JSON values.

        Returns:
            The result, whose `id` finds it when a relay has added the job.

        Raises:
            InvalidTask: As for `enqueue`; so for its other errors.

        Examples:
            >>> result = await send.aenqueue("ada@example.org")
        """
        result = await sync_to_async(self._add)(task, args, kwargs)
        await task_enqueued.asend(type(self), task_result=result)
        return result

    def _store(self, queue: Queue[Any], task: Task[..., Any], payload: dict[str, Any]) -> JobRecord:
        entry = queue.entry(task.module_path, payload, self._job_options(task))
        OutboxRow.objects.add(entry)
        stored = {"name": entry.name, "data": entry.data, "opts": entry.options, "timestamp": str(entry.timestamp)}
        return JobRecord(entry.id, {field: text.encode() for field, text in stored.items()}, None)
