"""How a worker runs a task: with fresh connections to the databases, and the framework's signals."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from django.db import close_old_connections, reset_queries

from bullmq_django.backend import BullMQBackend
from bullmq_django.framework import TaskContext, normalize_json, task_finished, task_started
from bullmq_django.results import Call, UnknownTask, error_of, moment, result_of, set_value
from bullmq_protocol import JobCompleted, JobFailed, JobRecord, UnrecoverableError
from bullmq_sync import Job, Worker


@contextmanager
def fresh_connections() -> Generator[None]:
    """Close connections to databases before and after, as Django does around a request: those that are broken, or older
    than `CONN_MAX_AGE`."""
    reset_queries()
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


class Runner:
    """Runs the tasks of one queue of a backend."""

    def __init__(self, backend: BullMQBackend, queue: str) -> None:
        self._backend = backend
        self._queue = queue

    def worker(self) -> Worker[Call]:
        """Return a worker. Nothing is opened."""
        options = self._backend.bullmq_options
        worker = Worker[Call](
            self._queue,
            self.run,
            options.connection,
            options=options.of_worker(),
            data_type=Call,
            metrics_collector=options.metrics_collector,
            **options.queue_arguments(),
        )
        worker.on(JobCompleted, self._completed)
        worker.on(JobFailed, self._failed)
        return worker

    def run(self, job: Job[Call]) -> Any:
        """Run the task of a job; return its value."""
        with fresh_connections():
            result = self._result(job.record, "active")
            task_started.send(type(self._backend), task_result=result)
            args: list[Any] = [TaskContext(task_result=result)] if result.task.takes_context else []
            return normalize_json(result.task.call(*args, *result.args, **result.kwargs))

    def _result(self, job: JobRecord, state: str) -> Any:
        try:
            return result_of(job, self._queue, self._backend.alias, state)
        except UnknownTask as error:
            raise UnrecoverableError(str(error)) from None

    def _completed(self, notice: JobCompleted) -> None:
        result = self._result(notice.job, "completed")
        set_value(result, msgspec.json.decode(notice.value))
        self._finished(result)

    def _failed(self, notice: JobFailed) -> None:
        if notice.retry_delay_ms is not None:
            return
        try:
            result = self._result(notice.job, "failed")
        except UnrecoverableError:
            # There is no task to give notice of.
            return
        if notice.exception is None:
            self._finished(result)
            return
        result.errors.append(error_of(notice.exception))
        try:
            # Those who receive the signal log the exception that is being handled.
            raise notice.exception
        except BaseException:
            self._finished(result)

    def _finished(self, result: Any) -> None:
        object.__setattr__(result, "finished_at", moment(time.time_ns() // 1_000_000))
        with fresh_connections():
            task_finished.send(type(self._backend), task_result=result)
