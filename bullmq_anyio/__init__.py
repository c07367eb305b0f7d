"""Queues and workers on asyncio and trio."""

from bullmq_anyio.connection import Connection
from bullmq_anyio.job import Job
from bullmq_anyio.queue import Queue
from bullmq_anyio.worker import BackoffStrategy, Worker

__all__ = ["BackoffStrategy", "Connection", "Job", "Queue", "Worker"]
