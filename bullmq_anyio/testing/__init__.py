"""The test kit for applications, on asyncio and trio (docs/testing.md), and the conformance cases for transports."""

from bullmq_anyio.testing.conformance import run_case
from bullmq_anyio.testing.handlers import FakeJob, HandlerRun, fake_job, run_handler
from bullmq_anyio.testing.queues import assert_added, assert_not_added, queued, travel, work_off

__all__ = [
    "FakeJob",
    "HandlerRun",
    "assert_added",
    "assert_not_added",
    "fake_job",
    "queued",
    "run_case",
    "run_handler",
    "travel",
    "work_off",
]
