"""What becomes of a job whose handler raised, as a worker decides it."""

from __future__ import annotations

from typing import Any

from bullmq_protocol.model.failure import Fail, Failure, Retry, decide
from bullmq_protocol.model.job import JobRecord


def decided(job: JobRecord, failure: Failure, **settings: Any) -> Retry | Fail:
    """Decide about this job. `settings` as `decide` takes them."""
    return decide(failure, attempts_made=job.attempts_made, attempts=job.attempts, backoff=job.opts.backoff, **settings)
