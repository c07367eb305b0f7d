"""The job that the running code handles: a context variable, which each job's own task or thread has of its own."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, Protocol


class Handled(Protocol):
    """A job that is handled."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def queue_name(self) -> str: ...
    @property
    def attempts_made(self) -> int: ...


CURRENT: Final[ContextVar[Any]] = ContextVar("bullmq_job", default=None)
"""The job object of the adapter, None outside of handlers."""


def job_fields(job: Handled) -> dict[str, Any]:
    """Return the fields of a log record about a job."""
    return {"job_id": job.id, "job_name": job.name, "queue": job.queue_name, "attempt": job.attempts_made + 1}
