"""The BullMQ protocol, without I/O: keys, jobs, options, commands, operations and the worker as a state machine.

The names below, and the errors, are its stable surface; docs/stability.md says what else may be used. `bullmq_anyio`
and `bullmq_sync` run it all on a connection.
"""

from typing import TYPE_CHECKING

from bullmq_protocol._version import VERSION
from bullmq_protocol.lazy import lazy_names

# Imported when they are asked for: a program that adds jobs loads nothing of a worker.
if TYPE_CHECKING:
    from bullmq_protocol.command import NOW, Batch, Command, Now, Operation, Repeat, Script
    from bullmq_protocol.commands.fetching import Limiter
    from bullmq_protocol.common.keys import KeyLayout, QueueKeys
    from bullmq_protocol.common.units import Instant, Millis
    from bullmq_protocol.errors import (
        BulkAddError,
        BullMQError,
        ConnectionLost,
        DelayedError,
        FlowAddError,
        JobFailedError,
        JobNotFound,
        PermanentError,
        RateLimitError,
        ScriptError,
        ServerError,
        TransientError,
        TransportError,
        UnrecoverableError,
        UsageError,
        WaitingChildrenError,
        WaitingError,
        WaitTimeout,
    )
    from bullmq_protocol.model.backoff import Backoff
    from bullmq_protocol.model.cron import CronError
    from bullmq_protocol.model.failure import Failure, RetryPolicy
    from bullmq_protocol.model.flow import FlowJob, FlowNode
    from bullmq_protocol.model.job import JobRecord, NewJob, PreparedJob, prepare
    from bullmq_protocol.model.job_type import JobType
    from bullmq_protocol.model.options import (
        RETRY_3_EXPONENTIAL,
        Deduplication,
        JobOptions,
        KeepJobs,
        Limits,
        ParentRef,
        Telemetry,
    )
    from bullmq_protocol.model.outbox import OutboxEntry
    from bullmq_protocol.model.schedule import RepeatOptions
    from bullmq_protocol.net.address import ConnectionOptions, parse_url
    from bullmq_protocol.net.topology import ClusterOptions, SentinelOptions, parse_address
    from bullmq_protocol.net.transport import AsyncTransport, Clock, InterruptibleTransport, Transport
    from bullmq_protocol.operations.adding import Adding
    from bullmq_protocol.worker.machine import WorkerMachine
    from bullmq_protocol.worker.notices import (
        ClosedNotice,
        Closing,
        Disconnected,
        Drained,
        HandlerAbandoned,
        HandlerBlocked,
        JobActive,
        JobCompleted,
        JobFailed,
        JobMoved,
        JobStalled,
        LockLost,
        Paused,
        Reconnected,
        ReconnectFailed,
        RenewalFailed,
        Renewed,
        ReportRefused,
        Resumed,
        StalledCheckSkipped,
        WorkerProblem,
    )
    from bullmq_protocol.worker.options import WorkerOptions
    from bullmq_protocol.worker.snapshot import WorkerSnapshot, WorkerState
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "bullmq_protocol.command": ("NOW", "Batch", "Command", "Now", "Operation", "Repeat", "Script"),
            "bullmq_protocol.commands.fetching": ("Limiter",),
            "bullmq_protocol.common.keys": ("KeyLayout", "QueueKeys"),
            "bullmq_protocol.common.units": ("Instant", "Millis"),
            "bullmq_protocol.errors": (
                "BulkAddError",
                "BullMQError",
                "ConnectionLost",
                "DelayedError",
                "FlowAddError",
                "JobFailedError",
                "JobNotFound",
                "PermanentError",
                "RateLimitError",
                "ScriptError",
                "ServerError",
                "TransientError",
                "TransportError",
                "UnrecoverableError",
                "UsageError",
                "WaitingChildrenError",
                "WaitingError",
                "WaitTimeout",
            ),
            "bullmq_protocol.model.backoff": ("Backoff",),
            "bullmq_protocol.model.cron": ("CronError",),
            "bullmq_protocol.model.failure": ("Failure", "RetryPolicy"),
            "bullmq_protocol.model.flow": ("FlowJob", "FlowNode"),
            "bullmq_protocol.model.job": ("JobRecord", "NewJob", "PreparedJob", "prepare"),
            "bullmq_protocol.model.job_type": ("JobType",),
            "bullmq_protocol.model.options": (
                "RETRY_3_EXPONENTIAL",
                "Deduplication",
                "JobOptions",
                "KeepJobs",
                "Limits",
                "ParentRef",
                "Telemetry",
            ),
            "bullmq_protocol.model.outbox": ("OutboxEntry",),
            "bullmq_protocol.model.schedule": ("RepeatOptions",),
            "bullmq_protocol.net.address": ("ConnectionOptions", "parse_url"),
            "bullmq_protocol.net.topology": ("ClusterOptions", "SentinelOptions", "parse_address"),
            "bullmq_protocol.net.transport": ("AsyncTransport", "Clock", "InterruptibleTransport", "Transport"),
            "bullmq_protocol.operations.adding": ("Adding",),
            "bullmq_protocol.worker.machine": ("WorkerMachine",),
            "bullmq_protocol.worker.notices": (
                "ClosedNotice",
                "Closing",
                "Disconnected",
                "Drained",
                "HandlerAbandoned",
                "HandlerBlocked",
                "JobActive",
                "JobCompleted",
                "JobFailed",
                "JobMoved",
                "JobStalled",
                "LockLost",
                "Paused",
                "Reconnected",
                "ReconnectFailed",
                "RenewalFailed",
                "Renewed",
                "ReportRefused",
                "Resumed",
                "StalledCheckSkipped",
                "WorkerProblem",
            ),
            "bullmq_protocol.worker.options": ("WorkerOptions",),
            "bullmq_protocol.worker.snapshot": ("WorkerSnapshot", "WorkerState"),
        },
    )

__version__ = VERSION

__all__ = [
    "NOW",
    "RETRY_3_EXPONENTIAL",
    "VERSION",
    "Adding",
    "AsyncTransport",
    "Backoff",
    "Batch",
    "BulkAddError",
    "BullMQError",
    "Clock",
    "ClosedNotice",
    "Closing",
    "ClusterOptions",
    "Command",
    "ConnectionLost",
    "ConnectionOptions",
    "CronError",
    "Deduplication",
    "DelayedError",
    "Disconnected",
    "Drained",
    "Failure",
    "FlowAddError",
    "FlowJob",
    "FlowNode",
    "HandlerAbandoned",
    "HandlerBlocked",
    "Instant",
    "InterruptibleTransport",
    "JobActive",
    "JobCompleted",
    "JobFailed",
    "JobFailedError",
    "JobMoved",
    "JobNotFound",
    "JobOptions",
    "JobRecord",
    "JobStalled",
    "JobType",
    "KeepJobs",
    "KeyLayout",
    "Limiter",
    "Limits",
    "LockLost",
    "Millis",
    "NewJob",
    "Now",
    "Operation",
    "OutboxEntry",
    "ParentRef",
    "Paused",
    "PermanentError",
    "PreparedJob",
    "QueueKeys",
    "RateLimitError",
    "ReconnectFailed",
    "Reconnected",
    "RenewalFailed",
    "Renewed",
    "Repeat",
    "RepeatOptions",
    "ReportRefused",
    "Resumed",
    "RetryPolicy",
    "Script",
    "ScriptError",
    "SentinelOptions",
    "ServerError",
    "StalledCheckSkipped",
    "Telemetry",
    "TransientError",
    "Transport",
    "TransportError",
    "UnrecoverableError",
    "UsageError",
    "WaitTimeout",
    "WaitingChildrenError",
    "WaitingError",
    "WorkerMachine",
    "WorkerOptions",
    "WorkerProblem",
    "WorkerSnapshot",
    "WorkerState",
    "__version__",
    "parse_address",
    "parse_url",
    "prepare",
]
