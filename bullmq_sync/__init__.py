"""BullMQ queues and workers for blocking programs: plain functions, threads, redis-py."""

from bullmq_sync.base import Cancellation, Items, Pages
from bullmq_sync.drive import clock, perform, run
from bullmq_sync.events import EventStream, QueueEvents
from bullmq_sync.job import Job
from bullmq_sync.notices import Notices
from bullmq_sync.producers import FlowProducer, QueueEventsProducer
from bullmq_sync.queue import Queue
from bullmq_sync.scripts import bullmq_scripts
from bullmq_sync.transports.redis_py import RedisPyTransport
from bullmq_sync.worker import Worker

__all__ = [
    "Cancellation",
    "EventStream",
    "FlowProducer",
    "Items",
    "Job",
    "Notices",
    "Pages",
    "Queue",
    "QueueEvents",
    "QueueEventsProducer",
    "RedisPyTransport",
    "Worker",
    "bullmq_scripts",
    "clock",
    "perform",
    "run",
]
