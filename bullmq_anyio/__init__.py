"""BullMQ queues and workers for asyncio and trio, on a connection of their own."""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING

if _missing := [name for name in ("anyio", "hiredis") if find_spec(name) is None]:
    raise ModuleNotFoundError(
        f"bullmq_anyio needs anyio and hiredis ({_missing[0]} is missing): pip install 'bullmq-protocol[anyio]'",
        name=_missing[0],
    )

from bullmq_protocol import VERSION
from bullmq_protocol.lazy import lazy_names

# Imported when they are asked for: a program that adds jobs loads nothing of a worker.
if TYPE_CHECKING:
    from bullmq_anyio.base import Items, Pages
    from bullmq_anyio.connecting import connect
    from bullmq_anyio.current import JobFilter, current_job
    from bullmq_anyio.drive import clock, perform, run
    from bullmq_anyio.events import EventStream, QueueEvents
    from bullmq_anyio.job import Job
    from bullmq_anyio.net.connection import Connection
    from bullmq_anyio.notices import Notices
    from bullmq_anyio.outbox import relay_entries
    from bullmq_anyio.producers import FlowProducer, QueueEventsProducer
    from bullmq_anyio.queue import Queue
    from bullmq_anyio.router import Router
    from bullmq_anyio.runner import run_workers
    from bullmq_anyio.scripts import bullmq_scripts
    from bullmq_anyio.worker import Worker
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "bullmq_anyio.base": ("Items", "Pages"),
            "bullmq_anyio.connecting": ("connect",),
            "bullmq_anyio.current": ("JobFilter", "current_job"),
            "bullmq_anyio.drive": ("clock", "perform", "run"),
            "bullmq_anyio.events": ("EventStream", "QueueEvents"),
            "bullmq_anyio.job": ("Job",),
            "bullmq_anyio.net.connection": ("Connection",),
            "bullmq_anyio.notices": ("Notices",),
            "bullmq_anyio.outbox": ("relay_entries",),
            "bullmq_anyio.producers": ("FlowProducer", "QueueEventsProducer"),
            "bullmq_anyio.queue": ("Queue",),
            "bullmq_anyio.router": ("Router",),
            "bullmq_anyio.runner": ("run_workers",),
            "bullmq_anyio.scripts": ("bullmq_scripts",),
            "bullmq_anyio.worker": ("Worker",),
        },
    )

__version__ = VERSION

__all__ = [
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
logging.getLogger("bullmq_anyio").addHandler(logging.NullHandler())
