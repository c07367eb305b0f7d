"""The `OPTIONS` of a backend in `TASKS`."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

import msgspec
from django.core.exceptions import ImproperlyConfigured

from bullmq_protocol import JobOptions, KeepJobs, KeyLayout, WorkerOptions
from bullmq_protocol.common.keys import DEFAULT_PREFIX
from bullmq_protocol.model.options import DEFAULT_LIMITS, Limits
from bullmq_protocol.observability.metrics import NO_METRICS, MetricsCollector
from bullmq_protocol.observability.telemetry import TelemetryProvider
from bullmq_protocol.scripts.profile import DEFAULT, Profile

DAY_S = 24 * 3_600


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend is given. Those without a text here are `Queue`'s and `Worker`'s arguments of the same name."""

    connection: Any = None
    prefix: str = DEFAULT_PREFIX
    layout: KeyLayout = KeyLayout.PLAIN
    scripts: Profile = DEFAULT
    limits: Limits = DEFAULT_LIMITS
    telemetry: TelemetryProvider | None = None
    metrics_collector: MetricsCollector = NO_METRICS
    job_options: JobOptions = JobOptions()
    """For each task, beside its delay, its priority and its id, which the task itself decides."""
    worker_options: WorkerOptions = WorkerOptions()
    priorities: bool = True
    """Whether tasks have priorities: without them jobs stand in one line, which costs the server less."""

    def queue_arguments(self) -> dict[str, Any]:
        """Return the arguments of a queue, its name and its connection left out."""
        return {
            "prefix": self.prefix,
            "layout": self.layout,
            "scripts": self.scripts,
            "limits": self.limits,
            "telemetry": self.telemetry,
        }

    def of_worker(self) -> WorkerOptions:
        """Return the options of a worker: it has a name, which results give."""
        if self.worker_options.name is not None:
            return self.worker_options
        return msgspec.structs.replace(self.worker_options, name=f"{socket.gethostname()}-{os.getpid()}")


KEPT = JobOptions(remove_on_complete=KeepJobs(age=DAY_S), remove_on_fail=KeepJobs(age=7 * DAY_S))
"""How long results are kept by default: those of tasks that succeeded a day, of others a week."""
_OF_THE_TASK = ("delay", "priority", "job_id")


def read(alias: str, given: Mapping[str, Any]) -> Options:
    """Return the options of a backend, or raise `ImproperlyConfigured` with the first wrong one."""
    known = Options.__struct_fields__
    for name in given:
        if name not in known:
            raise _wrong(alias, name, f"is no option: there are {', '.join(known)}")
    for name, kind in (("job_options", JobOptions), ("worker_options", WorkerOptions), ("priorities", bool)):
        if name in given and not isinstance(given[name], kind):
            raise _wrong(alias, name, f"must be a {kind.__name__}, is a {type(given[name]).__name__}")
    job_options: JobOptions = given.get("job_options", JobOptions())
    for name in _OF_THE_TASK:
        if getattr(job_options, name) is not msgspec.UNSET:
            raise _wrong(alias, "job_options", f"must leave {name} to the tasks")
    kept = {
        name: getattr(KEPT, name)
        for name in ("remove_on_complete", "remove_on_fail")
        if getattr(job_options, name) is msgspec.UNSET
    }
    fields: dict[str, Any] = {**given, "job_options": msgspec.structs.replace(job_options, **kept)}
    return Options(**fields)


def _wrong(alias: str, name: str, rule: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"TASKS[{alias!r}]['OPTIONS'][{name!r}] {rule}")
