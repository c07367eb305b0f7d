"""BullMQ queues and workers for blocking programs: plain functions and threads, on a connection of their own."""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

if _missing := [name for name in ("redis", "hiredis") if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"bullmq_sync needs redis-py and hiredis ({_missing[0]} is missing): pip install 'bullmq-protocol[sync]'",
        name=_missing[0],
    )

from bullmq_protocol import VERSION
from bullmq_protocol.lazy import lazy_names

# Imported when they are asked for: a program that adds jobs loads nothing of a worker.
if TYPE_CHECKING:
    from bullmq_sync.base import Items, Pages
    from bullmq_sync.cancellation import Cancellation
    from bullmq_sync.connecting import connect
    from bullmq_sync.current import JobFilter, current_job
    from bullmq_sync.drive import clock, perform, run
    from bullmq_sync.events import EventStream, QueueEvents
    from bullmq_sync.job import Job
    from bullmq_sync.net.connection import Connection
    from bullmq_sync.net.redis_py import RedisPyTransport
    from bullmq_sync.notices import Notices
    from bullmq_sync.outbox import relay_entries
    from bullmq_sync.producers import FlowProducer, QueueEventsProducer
    from bullmq_sync.queue import Queue
    from bullmq_sync.router import Router
    from bullmq_sync.runner import run_workers
    from bullmq_sync.scripts import bullmq_scripts
    from bullmq_sync.worker import Worker
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "bullmq_sync.base": ("Items", "Pages"),
            "bullmq_sync.cancellation": ("Cancellation",),
            "bullmq_sync.connecting": ("connect",),
            "bullmq_sync.current": ("JobFilter", "current_job"),
            "bullmq_sync.drive": ("clock", "perform", "run"),
            "bullmq_sync.events": ("EventStream", "QueueEvents"),
            "bullmq_sync.job": ("Job",),
            "bullmq_sync.net.connection": ("Connection",),
            "bullmq_sync.notices": ("Notices",),
            "bullmq_sync.outbox": ("relay_entries",),
            "bullmq_sync.producers": ("FlowProducer", "QueueEventsProducer"),
            "bullmq_sync.queue": ("Queue",),
            "bullmq_sync.router": ("Router",),
            "bullmq_sync.runner": ("run_workers",),
            "bullmq_sync.scripts": ("bullmq_scripts",),
            "bullmq_sync.worker": ("Worker",),
            "bullmq_sync.net.redis_py": ("RedisPyTransport",),
        },
    )

__version__ = VERSION

__all__ = [
    "Cancellation",
    "Connection",
    "EventStream",
    "FlowProducer",
    "Items",
    "Job",
    "JobFilter",
    "Notices",
    "Pages",
    "Queue",
    "QueueEvents",
    "QueueEventsProducer",
    "RedisPyTransport",
    "Router",
    "Worker",
    "__version__",
    "bullmq_scripts",
    "clock",
    "connect",
    "current_job",
    "perform",
    "relay_entries",
    "run",
    "run_workers",
]

# Silent, unless the program says where records go.
logging.getLogger("bullmq_sync").addHandler(logging.NullHandler())
