"""Tasks for the tests of `bullmq_django`: what they are called with is noted."""

from __future__ import annotations

import threading
from typing import Any

from django.db import connection

try:
    from django.tasks import task
except ModuleNotFoundError:
    from django_tasks import task

CALLS: list[Any] = []
BOUND: list[bool] = []
"""Whether there was a connection to the database before a task used one, on its thread."""
NO_TASK = "text"


@task(queue_name="first")
def double(number: int, *, times: int = 2) -> int:
    CALLS.append((number, times))
    return number * times


@task(queue_name="first")
async def triple(number: int) -> int:
    return number * 3


@task(queue_name="first", takes_context=True)
def flaky(context: Any, until: int) -> list[Any]:
    CALLS.append(context.attempt)
    if context.attempt < until:
        raise ConnectionError(f"attempt {context.attempt}")
    result = context.task_result
    return [result.id, result.status, result.args, len(result.worker_ids)]


@task(queue_name="second")
def unserialisable() -> object:
    return object()


@task(queue_name="second")
def uses_database() -> str:
    BOUND.append(connection.connection is not None)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return threading.current_thread().name


@task(queue_name="second")
def fails_with_database() -> None:
    uses_database.func()
    raise ConnectionError("the other side is away")
