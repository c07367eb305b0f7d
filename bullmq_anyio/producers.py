"""Adds whole flows of jobs, and publishes custom events."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from os import urandom
from typing import Any

from bullmq_anyio.clocks import clock as system_clock
from bullmq_anyio.drive import Connection, check_server, is_cluster, perform, run, transport_of
from bullmq_anyio.guard import provider_raised
from bullmq_anyio.job import Job
from bullmq_anyio.net.closable import Closable
from bullmq_protocol.command import Operation
from bullmq_protocol.commands.events import publish_event
from bullmq_protocol.common.codec import listed
from bullmq_protocol.common.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys, check_name
from bullmq_protocol.common.units import check_clock
from bullmq_protocol.errors import BullMQError, UsageError, without_login
from bullmq_protocol.model.flow import FlowJob, FlowNode, PreparedFlow, prepare_flow, tree
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import DEFAULT_LIMITS, JobOptions, Limits
from bullmq_protocol.net.transport import Clock
from bullmq_protocol.observability.job_context import FlowTracing, bulk_span, flow_span
from bullmq_protocol.observability.telemetry import TelemetryProvider, guarded
from bullmq_protocol.operations.add_flow import add_flow
from bullmq_protocol.operations.add_jobs import added_record
from bullmq_protocol.operations.adding import Adding
from bullmq_protocol.operations.read_flow import read_flow
from bullmq_protocol.scripts.profile import DEFAULT, Profile, applier, check_profile

_log = logging.getLogger("bullmq_anyio")
_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


class FlowProducer(Closable):
    """Adds flows: trees of jobs in any queues, in which each parent waits for its children.

    It opens nothing before the first call, and all tasks of one event loop may share it.

    Every call raises `TransportError` when the connection fails, `ServerError` when the server refuses the call, and
    `UsageError` for a bad argument before anything is sent. The methods list further errors.

    Args:
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which
            remains yours to close, or None, the default: the server that `BULLMQ_URL` names, else 127.0.0.1:6379.
        prefix: The beginning of the keys of nodes that have no prefix of their own; `bull` by default, as in BullMQ.
        layout: Where the keys of all nodes have the hash tag that a Redis Cluster needs. `KeyLayout.PLAIN`, the
            default: nowhere.
        limits: Limits on written data; by default 10 MiB for a payload or a result, and 255 characters for a name.
        scripts: A profile of `bullmq_protocol.scripts.profile`: `FLEET`, the default, beside clients of BullMQ 5 and 6,
            `V6_7` beside BullMQ 6 alone, `STRICT` for what 5.62.0 does, or BullMQ's own scripts from `bullmq_scripts`.
        telemetry: A provider of spans, such as `BullMQOtel`; jobs then carry their trace context. None, the default: no
            spans. See `bullmq_protocol.observability.telemetry`.
        clock: The clock for new jobs and delays, for tests (docs/testing.md): a `SimulatedClock`, or any function that
            returns an `Instant`. None, the default: the system's clocks.

    Source: specs/04-schedulers-flows-events.md#sec-7

    Examples:
        >>> async with FlowProducer("redis://localhost:6379") as flows:
        ...     print(FlowNode("book", "prints", children=[FlowNode("page", "renders", {"number": 1})]))
        FlowNode('book', 'prints', 1 child)
    """

    def __init__(
        self,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        limits: Limits = DEFAULT_LIMITS,
        scripts: Profile = DEFAULT,
        telemetry: TelemetryProvider | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._own_clock = check_clock(clock)
        self._clock = system_clock if clock is None else clock
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("limits", limits, "must be a Limits")
        # Names the prefix and the layout where they are wrong.
        self._profile = check_profile(scripts)
        self._switches = scripts.switches
        QueueKeys.of("any", prefix=prefix, layout=layout)
        self._telemetry = guarded(telemetry, provider_raised)
        self._prefix = prefix
        self._layout = layout
        self._limits = limits
        self._transport, self._owned = transport_of(connection, scripts)

    async def add(self, flow: FlowNode, *, queues_options: Mapping[str, JobOptions] | None = None) -> FlowJob[Job[Any]]:
        """Add one flow in one transaction.

        Args:
            flow: The root job, with its children.
            queues_options: Default options by queue name; the options of a node take precedence. None by default.

        Returns:
            The jobs in the shape of the flow.

        Raises:
            UsageError: A node is wrong, the flow contains itself, or its queues are in several slots of a cluster.
                Nothing is sent.
            FlowAddError: The server refused at least one node. Its `results` say for each node what happened; the
                others were added.

        Source: specs/04-schedulers-flows-events.md#sec-7-2

        Examples:
            >>> pages = [FlowNode("page", "mail", {"number": number}) for number in (1, 2)]
            >>> flow = await flows.add(FlowNode("book", "mail", children=pages))
            >>> flow.job.name, [child.job.data for child in flow.children]
            ('book', [{'number': 1}, {'number': 2}])
        """
        if self._telemetry is None:
            return (await self._add([flow], queues_options))[0]
        with flow_span(self._telemetry, flow):
            return (await self._add([flow], queues_options))[0]

    async def add_bulk(
        self, flows: Sequence[FlowNode], *, queues_options: Mapping[str, JobOptions] | None = None
    ) -> list[FlowJob[Job[Any]]]:
        """Add several flows in one transaction.

        Args:
            flows: The root jobs, each with its children.
            queues_options: Default options by queue name; the options of a node take precedence. None by default.

        Returns:
            The jobs in the shape of the flows, in their order.

        Raises:
            UsageError: As in `add`; nothing is sent.
            FlowAddError: The server refused at least one node, as in `add`.

        Source: specs/04-schedulers-flows-events.md#sec-7-2

        Examples:
            >>> added = await flows.add_bulk([FlowNode("book", "mail"), FlowNode("leaflet", "mail")])
            >>> [each.job.name for each in added]
            ['book', 'leaflet']
        """
        flows = listed("flows", flows)
        if self._telemetry is None:
            return await self._add(flows, queues_options)
        with bulk_span(self._telemetry, flows):
            return await self._add(flows, queues_options)

    def adding(
        self, flows: Sequence[FlowNode], *, queues_options: Mapping[str, JobOptions] | None = None
    ) -> Adding[list[FlowJob[Job[Any]]]]:
        """Prepare flows to be added in your own transaction, together with your own commands. Nothing is sent.

        Args:
            flows: The root jobs, each with its children; at least one.
            queues_options: Default options by queue name; the options of a node take precedence. None by default.

        Returns:
            The commands, and a decoder of their replies: see `Adding`. `Queue.commit` sends them.

        Raises:
            UsageError: As in `add`.

        Source: specs/08-batches.md#in-a-transaction

        Examples:
            >>> ready = flows.adding([FlowNode("book", "mail", children=[FlowNode("page", "mail")])])
            >>> ready.scripts[0].name
            'addMany'
        """
        flows = listed("flows", flows)
        if not flows:
            raise UsageError("flows", flows, "must hold at least one flow")
        if self._telemetry is None:
            return self._adding(flows, queues_options)
        with bulk_span(self._telemetry, flows):
            return self._adding(flows, queues_options)

    def _adding(
        self, flows: Sequence[FlowNode], queues_options: Mapping[str, JobOptions] | None
    ) -> Adding[list[FlowJob[Job[Any]]]]:
        prepared = self._prepare(flows, queues_options)
        parents = [node.job.parent_key for node in prepared.nodes if node.job.parent_key is not None]
        return Adding(lambda: self._operation(prepared), applier(self._profile), parents=parents)

    async def _add(
        self, flows: Sequence[FlowNode], queues_options: Mapping[str, JobOptions] | None
    ) -> list[FlowJob[Job[Any]]]:
        prepared = self._prepare(flows, queues_options)
        if await is_cluster(self._transport):
            prepared.require_one_slot()
        return await run(self._operation(prepared), self._transport)

    def _operation(self, prepared: PreparedFlow) -> Operation[list[FlowJob[Job[Any]]]]:
        found = yield from add_flow(prepared, together=self._profile.batches)
        jobs = [
            (node.parent, self._job(node.keys, added_record(node.job, each.job_id, each.added), node.data_type))
            for node, each in zip(prepared.nodes, found, strict=True)
        ]
        return tree(jobs)

    async def get_flow(
        self, job_id: str, queue_name: str, prefix: str | None = None, *, depth: int = 10, max_children: int = 20
    ) -> FlowJob[Job[Any]] | None:
        """Read a job and its children: the finished ones first, then the pending, the failed and the ignored ones.

        Args:
            job_id: The id of the root job.
            queue_name: The name of its queue.
            prefix: The prefix of its queue. None, the default: the producer's.
            depth: How many levels to read, at least 1, which is the job alone; 10 by default.
            max_children: How many children of each kind to read at most for a job, at least 1; 20 by default.

        Returns:
            The jobs in the shape of the flow; `missing` has the keys of children that are gone. None if there is no
                such job.

        Source: specs/04-schedulers-flows-events.md#sec-7-5

        Examples:
            >>> flow = await flows.get_flow(parent.id, "mail")
            >>> flow.job.name, len(flow.children)
            ('book', 3)
        """
        checked = check_name("job_id", job_id, max_length=None)
        place = self._prefix if prefix is None else prefix
        keys = QueueKeys.of(queue_name, prefix=place, layout=self._layout, switches=self._switches)
        reading = read_flow(keys, checked, depth=depth, max_children=max_children)
        found = await run(reading, self._transport, opening=lambda: check_server(self._transport, keys))
        if found is None:
            return None
        jobs = [(above, self._job(each.keys, each.record)) for above, each in found.jobs]
        return tree(jobs, found.missing)[0]

    async def aclose(self) -> None:
        """Close the connection, unless it is a transport that you passed in. Calling it again does nothing.

        Examples:
            >>> await flows.aclose()
        """
        if self._owned:
            await self._transport.aclose()

    def _job(self, keys: QueueKeys, record: JobRecord, data_type: Any = None) -> Job[Any]:
        return Job(record, keys, self._transport, data_type, None, self._limits, self._own_clock)

    def _prepare(self, flows: Sequence[FlowNode], queues_options: Mapping[str, JobOptions] | None) -> PreparedFlow:
        nodes = None if self._telemetry is None else FlowTracing(self._telemetry)
        try:
            prepared = prepare_flow(
                flows,
                new_id=_new_id,
                now_ms=self._clock().wall,
                prefix=self._prefix,
                layout=self._layout,
                switches=self._switches,
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


class QueueEventsProducer(Closable):
    """Publishes your own events on a queue's stream, for readers of every library.

    Every call raises `TransportError` when the connection fails, `ServerError` when the server refuses the call, and
    `UsageError` for a bad argument before anything is sent.

    Args:
        name: The queue's name: 1 to 255 characters, no colon.
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which
            remains yours to close, or None, the default: the server that `BULLMQ_URL` names, else 127.0.0.1:6379.
        prefix: The beginning of all keys of the queue; `bull` by default, as in BullMQ.
        layout: Where the keys have the hash tag that a Redis Cluster needs. `KeyLayout.PLAIN`, the default: nowhere.

    Source: specs/04-schedulers-flows-events.md#sec-9

    Examples:
        >>> async with QueueEventsProducer("mail", "redis://localhost:6379") as producer:
        ...     print(producer.name)
        mail
    """

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
        """The queue's name."""
        return self._keys.name

    @property
    def keys(self) -> QueueKeys:
        """The names of the queue's keys in Redis."""
        return self._keys

    async def publish(
        self, event_name: str, fields: Mapping[str, object] | None = None, *, max_events: int = 10_000
    ) -> str:
        """Write an event to the queue's stream, and return the id of its entry.

        Args:
            event_name: The event's name: any text.
            fields: The event's fields: text, numbers, True, False or None, which readers get as text. None by default:
                no fields.
            max_events: About how many entries the stream keeps; at least 1; 10,000 by default (BullMQ: 1,000).

        Source: specs/04-schedulers-flows-events.md#sec-9

        Examples:
            >>> entry_id = await producer.publish("bounced", {"address": "ada@example.org"})
        """
        command = publish_event(self._keys, event_name, {} if fields is None else fields, max_events=max_events)
        await check_server(self._transport, self._keys)
        return await perform(self._transport, command)

    async def aclose(self) -> None:
        """Close the connection, unless it is a transport that you passed in. Calling it again does nothing.

        Examples:
            >>> await producer.aclose()
        """
        if self._owned:
            await self._transport.aclose()


def _new_id() -> str:
    # What `str(uuid.uuid4())` returns, in a third of the time: a flow needs one for each of its jobs.
    digits = urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"
