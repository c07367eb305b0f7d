"""The job that the running code handles, and its place in the lines that this code logs."""

from __future__ import annotations

import logging
from typing import Any

from bullmq_anyio.job import Job
from bullmq_protocol.observability.current import CURRENT, job_fields


def current_job() -> Job[Any] | None:
    """Return the job that the running code handles.

    Tasks that a processor starts, and threads with a copy of its context (`asyncio.to_thread`, `anyio.to_thread`), have
    the same one.

    Returns:
        The job; None outside of processors.

    Examples:
        >>> current_job() is None
        True
    """
    job: Job[Any] | None = CURRENT.get()
    return job


class JobFilter(logging.Filter):
    """Adds `job_id`, `job_name`, `queue` and `attempt` to the records that a processor logs. It drops no record.

    Add it to handlers of `logging`, which see the records of all loggers. A record that has one of these fields keeps
    it. Outside of processors nothing is added: give a formatter that names them `defaults={"job_id": "-"}`.

    Args:
        name: As in `logging.Filter`: fields are added to records of this logger and those below it; all by default.

    Examples:
        >>> import logging
        >>> handler = logging.StreamHandler()
        >>> handler.addFilter(JobFilter())
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields, and return True.

        Args:
            record: The record.

        Examples:
            >>> import logging
            >>> JobFilter().filter(logging.makeLogRecord({}))
            True
        """
        job: Job[Any] | None = CURRENT.get()
        if job is not None and super().filter(record):
            for field, value in job_fields(job).items():
                record.__dict__.setdefault(field, value)
        return True
