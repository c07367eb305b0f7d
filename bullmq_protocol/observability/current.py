"""The job that the running code handles: a context variable, which each job's own task or thread has of its own."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, Protocol


class Attempted(Protocol):
    """A job, and how often it was tried."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def attempts_made(self) -> int: ...


class Handled(Attempted, Protocol):
    """A job that is handled."""

    @property
    def queue_name(self) -> str: ...


CURRENT: Final[ContextVar[Any]] = ContextVar("bullmq_job", default=None)
"""The job object of the adapter, None outside of handlers."""


def attempt_fields(job: Attempted, attempt: int | None = None) -> dict[str, Any]:
    """Return the fields of a log record about an attempt at a job: by default the one that is under way."""
    return {
        "job_id": job.id,
        "job_name": job.name,
        "attempt": job.attempts_made + 1 if attempt is None else attempt,
    }


def job_fields(job: Handled) -> dict[str, Any]:
    """Return the fields of a log record about a job that is handled."""
    return {**attempt_fields(job), "queue": job.queue_name}
