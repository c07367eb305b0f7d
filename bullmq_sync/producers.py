"""Adds whole flows of jobs, and publishes events of one's own."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from bullmq_protocol.commands.events import publish_event
from bullmq_protocol.common.codec import listed
from bullmq_protocol.common.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys, check_name
from bullmq_protocol.errors import BullMQError, UsageError, without_login
from bullmq_protocol.model.flow import FlowJob, FlowNode, PreparedFlow, prepare_flow, tree
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import DEFAULT_LIMITS, JobOptions, Limits
from bullmq_protocol.observability.telemetry import FlowTracing, TelemetryProvider, bulk_span, flow_span, guarded
from bullmq_protocol.operations.add_flow import add_flow
from bullmq_protocol.operations.add_jobs import added_record
from bullmq_protocol.operations.read_flow import read_flow
from bullmq_protocol.scripts.source import OWN, ScriptSource
from bullmq_sync.drive import Connection, check_server, clock, is_cluster, perform, run, transport_of
from bullmq_sync.guard import provider_raised
from bullmq_sync.job import Job

_log = logging.getLogger("bullmq_sync")


class FlowProducer:
    """Adds flows: trees of jobs in any queues, each parent of which waits for its children.

    Nothing is opened before the first call; safe to share between threads.

    `connection`, `limits`, `scripts` and `telemetry` are as in `Queue`; `prefix` is that of nodes without one, `layout`
    that of all.
    """

    def __init__(
        self,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        limits: Limits = DEFAULT_LIMITS,
        scripts: ScriptSource = OWN,
        telemetry: TelemetryProvider | None = None,
    ) -> None:
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("limits", limits, "must be a Limits")
        # Names the prefix and the layout where they are wrong.
        QueueKeys.of("any", prefix=prefix, layout=layout)
        self._telemetry = guarded(telemetry, provider_raised)
        self._prefix = prefix
        self._layout = layout
        self._limits = limits
        self._transport, self._owned = transport_of(connection, scripts)

    def add(self, flow: FlowNode, *, queues_options: Mapping[str, JobOptions] | None = None) -> FlowJob[Job[Any]]:
        """Add one flow in one transaction; `queues_options` are the default options of queues, by their names.

        Raises `UsageError` before anything is sent, also on a cluster for queues of several slots; `FlowAddError` if
        the server refused a node: its `results` say per node what happened, and the others are there.
        """
        if self._telemetry is None:
            return (self._add([flow], queues_options))[0]
        with flow_span(self._telemetry, flow):
            return (self._add([flow], queues_options))[0]

    def add_bulk(
        self, flows: Sequence[FlowNode], *, queues_options: Mapping[str, JobOptions] | None = None
    ) -> list[FlowJob[Job[Any]]]:
        """Add several flows in one transaction, as `add`."""
        flows = listed("flows", flows)
        if self._telemetry is None:
            return self._add(flows, queues_options)
        with bulk_span(self._telemetry, flows):
            return self._add(flows, queues_options)

    def _add(
        self, flows: Sequence[FlowNode], queues_options: Mapping[str, JobOptions] | None
    ) -> list[FlowJob[Job[Any]]]:
        prepared = self._prepare(flows, queues_options)
        if is_cluster(self._transport):
            prepared.require_one_slot()
        found = run(add_flow(prepared), self._transport)
        jobs = [
            (node.parent, self._job(node.keys, added_record(node.job, each.job_id, each.added)))
            for node, each in zip(prepared.nodes, found, strict=True)
        ]
        return tree(jobs)

    def get_flow(
        self, job_id: str, queue_name: str, prefix: str | None = None, *, depth: int = 10, max_children: int = 20
    ) -> FlowJob[Job[Any]] | None:
        """Read a job and its children, `depth` levels (1: the job alone) and at most `max_children` of each kind.

        The kinds are finished, pending, failed, ignored, in this order. Returns None when there is no such job.
        """
        checked = check_name("job_id", job_id, max_length=None)
        keys = QueueKeys.of(queue_name, prefix=self._prefix if prefix is None else prefix, layout=self._layout)
        reading = read_flow(keys, checked, depth=depth, max_children=max_children)
        found = run(reading, self._transport, opening=lambda: check_server(self._transport, keys))
        if found is None:
            return None
        jobs = [(above, self._job(each.keys, each.record)) for above, each in found.jobs]
        return tree(jobs, found.missing)[0]

    def close(self) -> None:
        """Close the connection, unless it is a transport of somebody else. May be called twice."""
        if self._owned:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _job(self, keys: QueueKeys, record: JobRecord) -> Job[Any]:
        return Job(record, keys=keys, transport=self._transport, limits=self._limits)

    def _prepare(self, flows: Sequence[FlowNode], queues_options: Mapping[str, JobOptions] | None) -> PreparedFlow:
        nodes = None if self._telemetry is None else FlowTracing(self._telemetry)
        try:
            prepared = prepare_flow(
                flows,
                new_id=_new_id,
                now_ms=clock().wall,
                prefix=self._prefix,
                layout=self._layout,
                queues_options=queues_options,
                limits=self._limits,
                options_of=None if nodes is None else nodes.options_of,
            )
        except BullMQError:
            if nodes is not None:
                nodes.end(())
            raise
        if nodes is not None:
            nodes.end(prepared.nodes)
        for node in prepared.nodes:
            for warning in node.job.warnings:
                _log.warning("queue %s, job %s: %s", node.keys.name, without_login(node.job.name), warning)
        return prepared


class QueueEventsProducer:
    """Publishes events of one's own on a queue's stream, for the readers of every library."""

    def __init__(
        self,
        name: str,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
    ) -> None:
        self._keys = QueueKeys.of(name, prefix=prefix, layout=layout)
        self._transport, self._owned = transport_of(connection)

    @property
    def name(self) -> str:
        return self._keys.name

    @property
    def keys(self) -> QueueKeys:
        return self._keys

    def publish(self, event_name: str, fields: Mapping[str, object] | None = None, *, max_events: int = 10_000) -> str:
        """Write an event; return its entry's id. The stream is trimmed to about `max_events` (BullMQ's default: 1,000).

        Values are text, numbers, True, False or None; readers get text. Raises `UsageError` for others.
        """
        command = publish_event(self._keys, event_name, {} if fields is None else fields, max_events=max_events)
        check_server(self._transport, self._keys)
        return perform(self._transport, command)

    def close(self) -> None:
        """Close the connection, unless it is a transport of somebody else. May be called twice."""
        if self._owned:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _new_id() -> str:
    return str(uuid.uuid4())
