"""A queue: add jobs, look at them, administer it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import time_ns
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, overload

from msgspec import UNSET, UnsetType

from bullmq_anyio.base import Items, Pages, QueueBase, check_callback, expect_result, finish
from bullmq_anyio.drive import Connection, check_parents, is_cluster, run, unscripted
from bullmq_anyio.events import QueueEvents
from bullmq_anyio.guard import provider_raised
from bullmq_anyio.job import Job
from bullmq_anyio.zones import find_zone
from bullmq_protocol.command import Operation
from bullmq_protocol.commands import cleaning, getters, queues, schedulers, settings
from bullmq_protocol.commands import jobs as job_commands
from bullmq_protocol.commands.adding import add_job, add_or_find
from bullmq_protocol.commands.fetching import Limiter, rate_limit
from bullmq_protocol.commands.getters import JobLogs, Metrics
from bullmq_protocol.commands.queues import QueueSummary
from bullmq_protocol.commands.schedulers import JobScheduler
from bullmq_protocol.common.codec import check_choice, json_text, listed, plain, plain_text
from bullmq_protocol.common.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys, check_name
from bullmq_protocol.common.payloads import DataType, PayloadType, payload_type
from bullmq_protocol.common.units import Duration, Millis, check_flag, check_whole, to_ms
from bullmq_protocol.errors import BulkAddError, BullMQError, UsageError, without_login
from bullmq_protocol.events.waiters import check_reader
from bullmq_protocol.model.job import JobRecord, JobTemplate, NewJob, PreparedJob, check_options, template_of
from bullmq_protocol.model.job_type import JobType
from bullmq_protocol.model.options import DEFAULT_LIMITS, JobOptions, Limits, validate, within_size
from bullmq_protocol.model.outbox import OutboxEntry, entry_of
from bullmq_protocol.model.schedule import PreparedScheduler, RepeatOptions, prepare_scheduler
from bullmq_protocol.net.transport import AsyncTransport, Clock
from bullmq_protocol.observability.job_context import jobs_span, with_context
from bullmq_protocol.observability.telemetry import Attributes, TelemetryProvider, TelemetrySpan, Tracing, guarded
from bullmq_protocol.operations.add_jobs import add_each, add_many, add_one, added_record
from bullmq_protocol.operations.adding import Adding, add_in_one, require_one_slot
from bullmq_protocol.operations.clean import PAGE_SIZE, Clean
from bullmq_protocol.operations.move_all import MoveAll
from bullmq_protocol.operations.obliterate import Obliterate
from bullmq_protocol.operations.paging import Page
from bullmq_protocol.operations.pausing import pause_queue, resume_queue
from bullmq_protocol.operations.read_dependencies import DependencyRange, get_dependency_range
from bullmq_protocol.operations.read_jobs import JobPages, get_jobs
from bullmq_protocol.operations.read_logs import LogPages, get_job_logs
from bullmq_protocol.operations.read_schedulers import get_job_schedulers
from bullmq_protocol.operations.remove_orphans import RemoveOrphans
from bullmq_protocol.operations.upsert_scheduler import upsert_scheduler
from bullmq_protocol.scripts.profile import DEFAULT, Profile, applier, check_profile

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

_log = logging.getLogger("bullmq_anyio")

Kind: TypeAlias = JobType[Any, Any] | None
Kinds: TypeAlias = dict[int, JobType[Any, Any]]
"""The types of the jobs that have one, by their places."""

_NO_OPTIONS = JobOptions()
_MOST_TEMPLATES = 64
"""How many pairs of name and options a queue remembers."""


class Queue(QueueBase, Generic[T]):
    """A queue, by its name. It opens nothing before the first call, and all tasks of one event loop may share it.

    Every call raises `TransportError` when the connection fails, `ServerError` when the server refuses the call, and
    `UsageError` for a bad argument before anything is sent. The methods list further errors.

    Long operations work page by page: methods named `..._pages` and `iter_...` return iterators whose `rest` is the
    plan of the remaining pages; `pages` resumes such a plan.

    Args:
        name: The queue's name: 1 to 255 characters, no colon.
        connection: A URL, options (`ConnectionOptions`, `SentinelOptions`, `ClusterOptions`), a transport, which
            remains yours to close, or None, the default: the server that `BULLMQ_URL` names, else 127.0.0.1:6379.
        prefix: The beginning of all keys of the queue; `bull` by default, as in BullMQ.
        layout: Where the keys have the hash tag that a Redis Cluster needs. `KeyLayout.PLAIN`, the default: nowhere.
        default_job_options: Options for every job added here; the job's own options take precedence. None are set by
            default.
        limits: Limits on written data; by default 10 MiB for a payload or a result, and 255 characters for a name.
        max_len_events: About how many events the queue's stream keeps, for programs of every library; 10,000 by
            default. With 0 there are no events: readers get none, and callers that wait for a job notice its end only
            by polling every 15 s, or never if the job is removed when it ends.
        skip_meta_update: True does not write `max_len_events` and this library's version to the queue's meta hash at
            the first call. False by default.
        data_type: The type that payloads are checked against and read into: any type that msgspec decodes, a pydantic
            model, a `TypeAdapter`, or an object with `dumps` and `loads` (docs/payloads.md). None, the default: JSON
            values. For type checkers, a union must be given twice: `Queue[A | B](name, data_type=A | B)`.
        scripts: A profile of `bullmq_protocol.scripts.profile`: `FLEET`, the default, beside clients of BullMQ 5 and 6,
            `V6_7` beside BullMQ 6 alone, `STRICT` for what 5.62.0 does, or BullMQ's own scripts from `bullmq_scripts`.
        telemetry: A provider of spans, such as `BullMQOtel`; jobs then carry their trace context. None, the default: no
            spans. See `bullmq_protocol.observability.telemetry`.
        clock: The clock for new jobs, delays and schedulers, for tests (docs/testing.md): a `SimulatedClock`, or any
            function that returns an `Instant`. None, the default: the system's clocks.

    Source: specs/01-data-model-and-adding.md#sec-2

    Examples:
        >>> mail = Queue("mail", "redis://localhost:6379", default_job_options=JobOptions(attempts=3))
        >>> await mail.aclose()
    """

    @overload
    def __init__(
        self: Queue[Any],
        name: str,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        default_job_options: JobOptions = ...,
        limits: Limits = DEFAULT_LIMITS,
        max_len_events: int = 10_000,
        skip_meta_update: bool = False,
        data_type: None = None,
        scripts: Profile = DEFAULT,
        telemetry: TelemetryProvider | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        default_job_options: JobOptions = ...,
        limits: Limits = DEFAULT_LIMITS,
        max_len_events: int = 10_000,
        skip_meta_update: bool = False,
        data_type: DataType[T],
        scripts: Profile = DEFAULT,
        telemetry: TelemetryProvider | None = None,
        clock: Clock | None = None,
    ) -> None: ...
    def __init__(
        self,
        name: str,
        connection: Connection = None,
        *,
        prefix: str = DEFAULT_PREFIX,
        layout: KeyLayout = KeyLayout.PLAIN,
        default_job_options: JobOptions = JobOptions(),  # noqa: B008
        limits: Limits = DEFAULT_LIMITS,
        max_len_events: int = 10_000,
        skip_meta_update: bool = False,
        data_type: DataType[T] | None = None,
        scripts: Profile = DEFAULT,
        telemetry: TelemetryProvider | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._data_type = payload_type("data_type", data_type)
        telemetry = guarded(telemetry, provider_raised)
        super().__init__(
            QueueKeys.of(name, prefix=prefix, layout=layout, switches=check_profile(scripts).switches),
            connection,
            scripts=scripts,
            max_len_events=max_len_events,
            skip_meta_update=skip_meta_update,
            telemetry=telemetry,
            clock=clock,
        )
        if not isinstance(default_job_options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("default_job_options", default_job_options, "must be a JobOptions")
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("limits", limits, "must be a Limits")
        validate(default_job_options, limits=limits, switches=self._keys.switches)
        self._profile = scripts
        self._add_all = add_many if scripts.batches else add_each
        self._defaults = default_job_options
        self._limits = limits
        self._templates: dict[tuple[str | int, int] | None, tuple[JobTemplate, JobOptions, Kind]] = {}

    # --- adding -------------------------------------------------------------------------------------------------------

    @overload
    async def add(self, name: JobType[P, R], data: P, options: JobOptions | None = None) -> Job[P, R]: ...
    @overload
    async def add(self, name: str, data: T | UnsetType = UNSET, options: JobOptions | None = None) -> Job[T]: ...

    async def add(
        self, name: str | JobType[Any, Any], data: Any = UNSET, options: JobOptions | None = None
    ) -> Job[Any]:
        """Add one job and return it.

        After a lost connection (`TransportError` with `maybe_applied`) the job may have been added. If you chose its
        `job_id`, adding it again is harmless: an existing job stays as it is.

        Args:
            name: The kind of job, for the processor and for people: 1 to 255 characters. Or a `JobType`, which brings
                its name, the type of the payload, and options.
            data: The payload: any value with a JSON form, of the queue's `data_type` if it has one. `{}` by default.
            options: The job's options, on top of those of a `JobType` and the queue's `default_job_options`; None by
                default.

        Returns:
            The job as it was stored. Its `added` is False if a job with its id or deduplication id existed already.

        Raises:
            ParentNotFound: The parent named in the options does not exist.
            ParentNotReplaceable: The job exists already and belongs to another parent.

        Source: specs/01-data-model-and-adding.md#sec-8-1

        Examples:
            >>> job = await queue.add("welcome", {"to": "ada"}, JobOptions(attempts=3, delay=5_000))
            >>> job.id, job.delay
            ('1', 5000)
            >>> WELCOME = JobType("welcome", dict[str, str], options=JobOptions(attempts=3))
            >>> (await queue.add(WELCOME, {"to": "grace"})).opts.attempts
            3
        """
        kind: Kind = None
        # isinstance with a class of msgspec is slow where the answer is no.
        if type(name) is not str and isinstance(name, JobType):
            kind = name
            name, options = kind.name, kind.with_options(options)
        elif options is None:
            options = _NO_OPTIONS
        if self._tracing is not None:
            return await self._add_traced(self._tracing, name, data, options, kind)
        job = self._prepared(name, data, options, kind)
        is_open = self._checked and self._described
        if not is_open or job.parent_key is not None or job.deduplication_key is not None or job.job_id:
            return await self._add(job, kind)
        # As in `_add`: a coroutine less for most adds.
        command = add_job(self._keys, job)
        return self._job(added_record(job, command.decode(await self._transport.perform(command))), kind)

    async def _add(self, job: PreparedJob, kind: Kind) -> Job[Any]:
        if job.parent_key is not None:
            await check_parents(self._transport, self._keys, [job])
        if not (self._checked and self._described):
            await self._open()
        if job.deduplication_key is not None or job.job_id:
            return await self._add_or_find(job, kind)
        command = add_job(self._keys, job)
        return self._job(added_record(job, command.decode(await self._transport.perform(command))), kind)

    async def _add_or_find(self, job: PreparedJob, kind: Kind) -> Job[Any]:
        if self._add_all is not add_many:
            return self._job(await run(add_one(self._keys, job), self._transport), kind)
        command = add_or_find(self._keys, job)
        return self._job(added_record(job, *command.decode(await self._transport.perform(command))), kind)

    async def _add_traced(self, tracing: Tracing, name: str, data: Any, options: JobOptions, kind: Kind) -> Job[Any]:
        name = plain(name)
        with tracing.span("add", "producer", destination=f"{self.name}.{name}") as span:
            own = with_context(options, span.metadata(), replacing=True)
            added = await self._add(self._prepared(name, data, own, kind), kind)
            span.set_attributes({"bullmq.job.name": name, "bullmq.job.id": added.id})
            return added

    async def add_bulk(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[Job[T]]:
        """Add several jobs in one round trip, and return them in the same order.

        If an argument is wrong, nothing is sent, and the error says which (`jobs[2]: priority`). The server may refuse
        some jobs, such as those whose parents are gone, and add the others.

        Args:
            jobs: The jobs, each as a `NewJob(name, data, options)`, whose name may be a `JobType`, as in `add`.
            atomic: True adds them in one transaction: other clients see all of them or none, even if the connection
                breaks. False by default.

        Raises:
            BulkAddError: The server refused at least one job. Its `results` hold for each job the added `Job` or the
                error.

        Source: specs/01-data-model-and-adding.md#sec-8-2

        Examples:
            >>> jobs = await queue.add_bulk([NewJob("welcome", {"to": "ada"}), NewJob("welcome", {"to": "grace"})])
            >>> [job.id for job in jobs]
            ['1', '2']
        """
        jobs = listed("jobs", jobs)
        check_flag("atomic", atomic)
        if self._tracing is None:
            return await self._add_bulk(jobs, atomic)
        with jobs_span(self._tracing, jobs) as carrying:
            return await self._add_bulk(carrying, atomic)

    async def _add_bulk(self, jobs: Sequence[NewJob], atomic: bool) -> list[Job[T]]:
        prepared, kinds = self._prepare_all(jobs)
        if not prepared:
            return []
        await check_parents(self._transport, self._keys, prepared)
        return self._added(await self.run(self._add_all(self._keys, prepared, atomic=atomic)), kinds)

    def _added(self, found: Sequence[JobRecord | BullMQError], kinds: Kinds) -> list[Job[T]]:
        results: list[Job[Any] | BullMQError]
        if kinds:
            results = [
                self._job(result, kinds.get(place)) if isinstance(result, JobRecord) else result
                for place, result in enumerate(found)
            ]
        else:
            results = [self._job(result) if isinstance(result, JobRecord) else result for result in found]
        added = [result for result in results if isinstance(result, Job)]
        if len(added) < len(results):
            raise BulkAddError(results)
        return added

    def adding(self, jobs: Sequence[NewJob]) -> Adding[list[Job[T]]]:
        """Prepare jobs to be added in your own transaction, together with your own commands. Nothing is sent.

        Args:
            jobs: The jobs, each as a `NewJob(name, data, options)`, as in `add_bulk`; at least one.

        Returns:
            The commands, and a decoder of their replies: see `Adding`.

        Raises:
            UsageError: An argument is wrong; the error says which (`jobs[2]: priority`).

        Source: specs/08-batches.md#in-a-transaction

        Examples:
            >>> ready = queue.adding([NewJob("welcome", {"to": "ada"})])
            >>> [[job]] = await queue.commit(ready)
            >>> job.id
            '1'
        """
        jobs = listed("jobs", jobs)
        if not jobs:
            raise UsageError("jobs", jobs, "must hold at least one job")
        if self._tracing is None:
            return self._adding(jobs)
        with jobs_span(self._tracing, jobs) as carrying:
            return self._adding(carrying)

    def _adding(self, jobs: Sequence[NewJob]) -> Adding[list[Job[T]]]:
        prepared, kinds = self._prepare_all(jobs)

        def make() -> Operation[list[Job[T]]]:
            return self._added((yield from self._add_all(self._keys, prepared)), kinds)

        parents = [job.parent_key for job in prepared if job.parent_key is not None]
        return Adding(make, applier(self._profile), parents=parents, before=self._description())

    async def commit(self, *addings: Adding[Any]) -> list[Any]:
        """Add everything that this queue and others have prepared, in one transaction.

        If the server refuses a job, such as one whose parent is gone, it does not undo the rest; the error names the
        job.

        Args:
            addings: The values that `adding`, `adding_job_scheduler` and `FlowProducer.adding` returned, for queues of
                one server.

        Returns:
            For each of them, what its `results` returns.

        Raises:
            BulkAddError: The server refused a job.
            FlowAddError: The server refused a node of a flow.
            UsageError: On a cluster, the keys are in several slots; nothing is sent.

        Source: specs/08-batches.md#in-a-transaction

        Examples:
            >>> ready = queue.adding([NewJob("welcome", {"to": "ada"})])
            >>> book = flows.adding([FlowNode("book", "mail", children=[FlowNode("page", "mail")])])
            >>> [welcome], [added] = await queue.commit(ready, book)
            >>> welcome.name, added.job.name
            ('welcome', 'book')
        """
        for adding in addings:
            if not isinstance(adding, Adding):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError("addings", adding, "must be what `adding` or `adding_job_scheduler` returned")
        if await is_cluster(self._transport):
            require_one_slot(addings)
        return await run(add_in_one(addings), unscripted(self._transport))

    @overload
    def entry(self, name: JobType[P, Any], data: P, options: JobOptions | None = None) -> OutboxEntry: ...
    @overload
    def entry(self, name: str, data: T | UnsetType = UNSET, options: JobOptions | None = None) -> OutboxEntry: ...

    def entry(self, name: str | JobType[Any, Any], data: Any = UNSET, options: JobOptions | None = None) -> OutboxEntry:
        """Make an outbox entry: a job to be stored in your database, in the same transaction as your data.

        Nothing is sent. `relay_entries` adds the job when the transaction has been committed.

        Args:
            name: The kind of job, or a `JobType`, as in `add`.
            data: The payload, as in `add`; `{}` by default.
            options: The job's options, as in `add`; None by default.

        Returns:
            A plain value with a JSON form. Its id is the job's id: `job_id` in the options, or else a new UUID.

        Raises:
            UsageError: An argument is wrong. This fails in your transaction, not later.

        Source: specs/08-batches.md#outbox-entry

        Examples:
            >>> entry = queue.entry("welcome", {"to": "ada"})
            >>> entry.queue, entry.name, entry.data
            ('mail', 'welcome', '{"to":"ada"}')
        """
        kind: Kind = None
        if isinstance(name, JobType):
            kind = name
            name, options = kind.name, kind.with_options(options)
        elif options is None:
            options = _NO_OPTIONS
        if self._tracing is None:
            return self._entry(self._prepared(name, data, options, kind))
        label: str = plain(name)
        with self._tracing.span("add", "producer", destination=f"{self.name}.{label}") as span:
            own = with_context(options, span.metadata(), replacing=True)
            return self._entry(self._prepared(label, data, own, kind))

    def _entry(self, job: PreparedJob) -> OutboxEntry:
        return entry_of(self._keys, job, new_id=str(uuid.uuid4()), limits=self._limits)

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def get_job(self, job_id: str) -> Job[T] | None:
        """Read a job.

        Args:
            job_id: The id of the job.

        Returns:
            The job, or None if there is none with this id.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> found = await queue.get_job(job.id)
            >>> found.data
            {'to': 'ada'}
        """
        record = await self.call(job_commands.get_job(self._keys, _id(job_id)))
        return None if record is None else self._job(record)

    async def get_job_state(self, job_id: str) -> str:
        """Return the state of a job: `completed`, `failed`, `delayed`, `prioritized`, `active`, `waiting` or
        `waiting-children`; `unknown` if it is in none of them or does not exist.

        Args:
            job_id: The id of the job.

        Source: specs/03-transitions-admin-getters.md#get-state

        Examples:
            >>> await queue.get_job_state(job.id)
            'waiting'
        """
        return await self.call(job_commands.get_state(self._keys, _id(job_id)))

    async def get_state(self, job_id: str) -> str:
        """Return the same as `get_job_state`.

        Args:
            job_id: The id of the job.

        Source: specs/03-transitions-admin-getters.md#get-state

        Examples:
            >>> await queue.get_state(delayed.id)
            'delayed'
        """
        return await self.get_job_state(job_id)

    async def get_ranges(
        self, states: str | Sequence[str], start: int = 0, end: int = 1, asc: bool = False
    ) -> list[str]:
        """Return the ids of jobs by their positions in each of the states.

        Args:
            states: One state or several, `waiting` or `wait` among them; here `waiting` does not include `paused`.
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; 1 by default, as in BullMQ, so two ids of each state are returned. -1: to
                the end.
            asc: True puts the job first that runs next, is due next or finished first. False, the default, reverses the
                order.

        Returns:
            The ids, state by state in the order given, each id once.

        Source: specs/03-transitions-admin-getters.md#get-ranges

        Examples:
            >>> await queue.get_ranges("waiting", 0, -1) == [job.id]
            True
        """
        named = queues.check_states(_named(states))
        check_flag("asc", asc)
        return await self.call(getters.get_ranges(self._keys, named, start=start, end=end, ascending=asc))

    async def get_jobs(
        self, states: str | Sequence[str] = (), start: int = 0, end: int = -1, asc: bool = False
    ) -> list[Job[T]]:
        """Read the jobs at these positions in each of the states.

        The ids are read first, then the jobs; a job that is gone by then is left out. For more than a few thousand
        jobs, use `iter_jobs`.

        Args:
            states: One state or several; `waiting` includes `paused`. Empty, the default: all states.
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.
            asc: True puts the job first that runs next, is due next or finished first. False, the default, reverses the
                order.

        Returns:
            The jobs, state by state in the order given.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> found = await queue.get_jobs(["waiting", "delayed"])
            >>> len(found) == await queue.get_job_count_by_types("waiting", "delayed")
            True
        """
        check_flag("asc", asc)
        records = await self.run(get_jobs(self._keys, _named(states), start=start, end=end, ascending=asc))
        return self._jobs(records)

    async def get_waiting(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read waiting jobs, including paused ones, the next to run first.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The jobs; one that is gone by the time it is read is left out.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> [each.id for each in await queue.get_waiting()] == [job.id]
            True
        """
        return await self.get_jobs("waiting", start, end, asc=True)

    async def get_waiting_children(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read jobs that wait for their children, the longest waiting first.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The jobs; one that is gone by the time it is read is left out.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> [each.id for each in await queue.get_waiting_children()] == [parent.id]
            True
        """
        return await self.get_jobs("waiting-children", start, end, asc=True)

    async def get_active(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read active jobs, the first one taken first.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The jobs; one that is gone by the time it is read is left out.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> [each.id for each in await queue.get_active()] == [active.id]
            True
        """
        return await self.get_jobs("active", start, end, asc=True)

    async def get_delayed(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read delayed jobs, the next one due first.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The jobs; one that is gone by the time it is read is left out.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> [each.id for each in await queue.get_delayed()] == [delayed.id]
            True
        """
        return await self.get_jobs("delayed", start, end, asc=True)

    async def get_prioritized(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read jobs that wait with a priority, the next to run first.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The jobs; one that is gone by the time it is read is left out.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> [each.id for each in await queue.get_prioritized()] == [urgent.id]
            True
        """
        return await self.get_jobs("prioritized", start, end, asc=True)

    async def get_completed(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read completed jobs, the latest first.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The jobs; one that is gone by the time it is read is left out.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> [each.id for each in await queue.get_completed()] == [completed.id]
            True
        """
        return await self.get_jobs("completed", start, end)

    async def get_failed(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read jobs that failed for good, the latest first.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The jobs; one that is gone by the time it is read is left out.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> [each.id for each in await queue.get_failed()] == [failed.id]
            True
        """
        return await self.get_jobs("failed", start, end)

    def iter_jobs(self, states: str | Sequence[str] = (), page_size: int = 100, asc: bool = False) -> Items[Job[T]]:
        """Read all jobs in these states, one state after another, a page at a time.

        Jobs that change their state meanwhile may appear twice or not at all.

        Args:
            states: One state or several; `waiting` includes `paused`. Empty, the default: all states.
            page_size: Jobs per round trip, at least 1; 100 by default.
            asc: True puts the job first that runs next, is due next or finished first. False, the default, reverses the
                order.

        Returns:
            An iterator over the jobs; its `rest` is the plan of the remaining pages.

        Source: specs/03-transitions-admin-getters.md#sec-11-3

        Examples:
            >>> async for each in queue.iter_jobs("waiting"):
            ...     print(each.id == job.id)
            True
        """
        named = queues.expand_states(self._keys, _named(states))
        check_flag("asc", asc)
        check_whole("page_size", page_size, least=1)
        return Items(self.pages(JobPages(states=named, page_size=page_size, ascending=asc)), self._jobs)

    async def remove(self, job_id: str, *, remove_children: bool = True) -> bool:
        """Remove a job that is not locked, with its data and its children.

        Args:
            job_id: The id of the job.
            remove_children: False keeps the job's children; True by default.

        Returns:
            False if the job or one of its children is locked; then nothing is removed. True for a job that does not
                exist.

        Raises:
            JobBelongsToScheduler: It is the next job of a job scheduler: use `remove_job_scheduler`.

        Source: specs/03-transitions-admin-getters.md#remove-job

        Examples:
            >>> await queue.remove(job.id)
            True
        """
        checked = _id(job_id)
        shown = json_text({"removeChildren": check_flag("remove_children", remove_children)})
        with self._span("remove", attributes={"bullmq.job.id": checked, "bullmq.job.options": shown}):
            command = job_commands.remove_job(self._keys, checked, remove_children=remove_children)
            return await self.call(command) == 1

    async def update_job_progress(self, job_id: str, progress: Any) -> None:
        """Store a job's progress and announce it to the readers of events.

        Args:
            job_id: The id of the job.
            progress: Any value with a JSON form, up to `Limits.max_payload_bytes`.

        Raises:
            JobNotFound: There is no such job.

        Source: specs/03-transitions-admin-getters.md#update-progress

        Examples:
            >>> await queue.update_job_progress(job.id, {"sent": 2, "of": 5})
        """
        checked = _id(job_id)
        text = within_size("progress", json_text(progress, field="progress"), self._limits)
        with self._span("updateJobProgress", attributes={"bullmq.job.id": checked, "bullmq.job.progress": text}):
            await self.call(job_commands.update_progress(self._keys, checked, text))

    @overload
    async def wait_until_finished(
        self,
        job_id: str,
        queue_events: QueueEvents,
        timeout: Duration | None = None,
        *,
        result_type: None = None,
        may_not_exist: bool = False,
    ) -> Any: ...
    @overload
    async def wait_until_finished(
        self,
        job_id: str,
        queue_events: QueueEvents,
        timeout: Duration | None = None,
        *,
        result_type: DataType[R],
        may_not_exist: bool = False,
    ) -> R: ...
    async def wait_until_finished(
        self,
        job_id: str,
        queue_events: QueueEvents,
        timeout: Duration | None = None,
        *,
        result_type: Any = None,
        may_not_exist: bool = False,
    ) -> Any:
        """Wait until a job has finished, and return its result.

        Args:
            job_id: The id of the job.
            queue_events: A running `QueueEvents` of this queue; one serves any number of callers.
            timeout: How long to wait at most, in milliseconds or as a `timedelta`. None, the default: no limit.
            result_type: The type to read the result into, of any kind that `data_type` may be. None, the default: JSON
                values.
            may_not_exist: True also waits for a job that has not been added yet. False by default.

        Raises:
            JobFailedError: The job failed for good.
            JobNotFound: The job was removed or does not exist.
            WaitTimeout: It did not finish in time; it may still finish later.
            Closed: `queue_events` has been closed.
            PayloadMismatch: The result is not of `result_type`.

        Source: specs/04-schedulers-flows-events.md#sec-10

        Examples:
            >>> async with events, worker:
            ...     print(await queue.wait_until_finished(job.id, events, timeout=10_000))
            sent to ada
        """
        check_reader(queue_events, QueueEvents, self._keys)
        return await queue_events.wait_until_finished(
            job_id, timeout, result_type=result_type, may_not_exist=may_not_exist
        )

    async def add_job_log(self, job_id: str, row: str, keep_logs: int | None = None) -> int:
        """Append a row to a job's log.

        Args:
            job_id: The id of the job.
            row: The text, up to `Limits.max_payload_bytes`.
            keep_logs: How many of the newest rows to keep. None, the default, or 0: all.

        Returns:
            How many rows the log has now.

        Raises:
            JobNotFound: There is no such job.

        Source: specs/03-transitions-admin-getters.md#add-log

        Examples:
            >>> await queue.add_job_log(job.id, "looked up the address")
            1
        """
        checked = within_size("row", _row(row), self._limits)
        return await self.call(job_commands.add_log(self._keys, _id(job_id), checked, keep_logs=keep_logs))

    async def get_job_logs(self, job_id: str, start: int = 0, end: int = -1, asc: bool = True) -> JobLogs:
        """Read rows of a job's log, and the number of rows in it.

        Args:
            job_id: The id of the job.
            start: The first row, 0 by default; a negative one counts from the end.
            end: The last row, inclusive; -1, the end, by default.
            asc: True, the default: the oldest row first. False: the newest first, and positions count from it.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.add_job_log(job.id, "looked up the address")
            1
            >>> await queue.get_job_logs(job.id)
            JobLogs(logs=['looked up the address'], count=1)
        """
        check_flag("asc", asc)
        return await self.run(get_job_logs(self._keys, _id(job_id), start=start, end=end, ascending=asc))

    def iter_logs(self, job_id: str, page_size: int = 1000, asc: bool = True) -> Items[str]:
        """Read all rows of a job's log, a page at a time.

        Args:
            job_id: The id of the job.
            page_size: Rows per round trip, at least 1; 1,000 by default.
            asc: True, the default: the oldest row first. False: the newest first.

        Returns:
            An iterator over the rows; its `rest` is the plan of the remaining pages.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.add_job_log(job.id, "looked up the address")
            1
            >>> async for row in queue.iter_logs(job.id):
            ...     print(row)
            looked up the address
        """
        check_whole("page_size", page_size, least=1)
        check_flag("asc", asc)
        return Items(self.pages(LogPages(job_id=_id(job_id), page_size=page_size, ascending=asc)), list)

    async def get_dependencies(
        self, parent_id: str, kind: Literal["processed", "pending"], start: int = 0, end: int = -1
    ) -> DependencyRange:
        """Read children of a job, with their jobs, by their positions in the order in which Redis scans them.

        Args:
            parent_id: The id of the job that has children.
            kind: `processed` for the finished ones, with their return values; `pending` for those that the job still
                waits for.
            start: The first position, at least 0; 0 by default.
            end: The last position, inclusive; -1, the end, by default.

        Returns:
            The children; their records in `jobs` (None for a job that is gone); and their number in `total`.

        Source: specs/03-transitions-admin-getters.md#sec-13-5

        Examples:
            >>> found = await queue.get_dependencies(parent.id, "pending")
            >>> found.total, found.jobs[0].name
            (1, 'page')
        """
        checked = check_name("parent_id", parent_id, max_length=None)
        return await self.run(get_dependency_range(self._keys, checked, kind, start=start, end=end))

    # --- counts and figures -------------------------------------------------------------------------------------------

    async def get_job_counts(self, *states: str, due_before: Millis | None = None) -> dict[str, int]:
        """Count the jobs in each of these states.

        Args:
            states: Names of states; `waiting` adds a count of `paused`. Without any: all states.
            due_before: Count only the delayed jobs that are due before this time, in milliseconds since the epoch.
                None, the default: all. The profile `STRICT` refuses it.

        Returns:
            The number of jobs by state.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.add("welcome", {"to": "ada"})
            Job(...)
            >>> await queue.get_job_counts("waiting", "delayed")
            {'waiting': 1, 'delayed': 0, 'paused': 0}
        """
        return await self.call(queues.get_job_counts(self._keys, states, due_before=due_before))

    async def get_job_count_by_types(self, *states: str) -> int:
        """Count the jobs in these states together.

        Args:
            states: Names of states; `waiting` includes `paused`. Without any: all states.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_job_count_by_types("waiting", "delayed")
            0
        """
        return sum((await self.get_job_counts(*states)).values())

    async def count(self) -> int:
        """Count the jobs that have yet to run: waiting, paused, delayed and prioritized ones, and those that wait for
        their children.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.count()
            0
        """
        return await self.get_job_count_by_types("waiting", "delayed", "prioritized", "waiting-children")

    async def get_summary(self) -> QueueSummary:
        """Return five counts: jobs that are waiting (including paused and prioritized ones), active, delayed, completed
        and failed.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_summary()
            QueueSummary(waiting=0, active=0, delayed=0, completed=0, failed=0)
        """
        return await self.call(queues.get_summary(self._keys))

    async def get_waiting_count(self) -> int:
        """Count waiting jobs, including paused ones.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_waiting_count()
            0
        """
        return await self.get_job_count_by_types("waiting")

    async def get_waiting_children_count(self) -> int:
        """Count jobs that wait for their children.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_waiting_children_count()
            0
        """
        return await self.get_job_count_by_types("waiting-children")

    async def get_active_count(self) -> int:
        """Count active jobs.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_active_count()
            0
        """
        return await self.get_job_count_by_types("active")

    async def get_delayed_count(self) -> int:
        """Count delayed jobs.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_delayed_count()
            0
        """
        return await self.get_job_count_by_types("delayed")

    async def get_prioritized_count(self) -> int:
        """Count jobs that wait with a priority.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_prioritized_count()
            0
        """
        return await self.get_job_count_by_types("prioritized")

    async def get_completed_count(self) -> int:
        """Count completed jobs.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_completed_count()
            0
        """
        return await self.get_job_count_by_types("completed")

    async def get_failed_count(self) -> int:
        """Count jobs that failed for good.

        Source: specs/03-transitions-admin-getters.md#get-counts

        Examples:
            >>> await queue.get_failed_count()
            0
        """
        return await self.get_job_count_by_types("failed")

    async def get_counts_per_priority(self, priorities: Sequence[int]) -> dict[int, int]:
        """Count the waiting jobs of each of these priorities.

        Args:
            priorities: Whole numbers from 0 to 2,097,152; 0 stands for jobs without a priority.

        Returns:
            The number of jobs by priority.

        Source: specs/03-transitions-admin-getters.md#get-counts-per-priority

        Examples:
            >>> await queue.get_counts_per_priority([0, 1, 2])
            {0: 0, 1: 0, 2: 0}
        """
        return await self.call(getters.get_counts_per_priority(self._keys, listed("priorities", priorities)))

    async def get_metrics(self, outcome: Literal["completed", "failed"], start: int = 0, end: int = -1) -> Metrics:
        """Read how many jobs completed or failed per minute.

        There are points only if a worker of the queue has the option `metrics_max_data_points`.

        Args:
            outcome: `completed` or `failed`.
            start: The first point, 0 by default: the newest minute.
            end: The last point, inclusive; -1, the oldest, by default.

        Returns:
            The points, the newest first, and the totals that they were computed from.

        Source: specs/03-transitions-admin-getters.md#get-metrics

        Examples:
            >>> metrics = await queue.get_metrics("completed")
            >>> metrics.data, metrics.total
            ([], 0)
        """
        return await self.call(getters.get_metrics(self._keys, outcome, start=start, end=end))

    async def export_prometheus_metrics(self, labels: Mapping[str, str] | None = None) -> str:
        """Return the number of jobs in every state, in Prometheus' text format.

        Args:
            labels: Further labels for every line: names that Prometheus allows, other than `queue` and `state`, and
                their values. None by default.

        Source: specs/03-transitions-admin-getters.md#sec-15

        Examples:
            >>> text = await queue.export_prometheus_metrics({"region": "eu"})
            >>> print(text.splitlines()[0])
            # HELP bullmq_job_count Number of jobs in the queue by state
        """
        if labels is not None and not isinstance(labels, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("labels", labels, "must map names to values")
        queues.prometheus_text(self.name, {}, labels or {})
        return queues.prometheus_text(self.name, await self.get_job_counts(), labels or {})

    # --- the whole queue ----------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Pause the queue for all workers: running jobs continue, and no other job starts.

        Source: specs/03-transitions-admin-getters.md#pause

        Examples:
            >>> await queue.pause()
            >>> await queue.is_paused()
            True
        """
        with self._span("pause"):
            await self.run(pause_queue(self._keys))

    async def resume(self) -> None:
        """Let all workers take jobs again after `pause`.

        Source: specs/03-transitions-admin-getters.md#pause

        Examples:
            >>> await queue.pause()
            >>> await queue.resume()
            >>> await queue.is_paused()
            False
        """
        with self._span("resume"):
            await self.run(resume_queue(self._keys))

    async def is_paused(self) -> bool:
        """Tell whether the queue is paused.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.is_paused()
            False
        """
        return await self.call(queues.is_paused(self._keys))

    async def drain(self, delayed: bool = False) -> None:
        """Remove all waiting, paused and prioritized jobs in one call.

        Meanwhile the server does nothing else, which takes seconds with a million jobs; `clean` works in pages. Active
        and finished jobs stay, and so do those that wait for children, and the next jobs of schedulers.

        Args:
            delayed: True removes the delayed jobs too. False by default.

        Source: specs/03-transitions-admin-getters.md#drain

        Examples:
            >>> await queue.drain()
            >>> await queue.get_waiting_count()
            0
        """
        with self._span("drain", attributes={"bullmq.queue.drain.delay": delayed}):
            await self.call(cleaning.drain(self._keys, delayed=delayed))

    async def clean(
        self,
        grace: Duration,
        limit: int = 0,
        state: str = "completed",
        *,
        page_size: int = PAGE_SIZE,
        on_page: Callable[[Page[list[str]]], object] | None = None,
    ) -> list[str]:
        """Remove old jobs of one state, and return their ids.

        While it works on a page, the server does nothing else.

        Args:
            grace: The minimum age of the jobs to remove, in milliseconds or as a `timedelta`; 0: any age.
            limit: How many jobs to remove at most. 0, the default: all.
            state: `completed`, the default, `failed`, `waiting`, `wait`, `paused`, `active`, `delayed`, `prioritized`
                or `waiting-children`.
            page_size: How many jobs to remove at most in one call to the server, at least 1; 10,000 by default.
            on_page: Called with each page, whose `value` is the ids that it removed. None by default.

        Source: specs/03-transitions-admin-getters.md#clean-jobs-in-set

        Examples:
            >>> await queue.clean(0, 1_000, "failed") == [failed.id]
            True
        """
        check_callback(on_page)
        pages = self.clean_pages(grace, limit, state, page_size=page_size)
        asked: Attributes = {
            "bullmq.queue.grace": to_ms("grace", grace),
            "bullmq.job.type": str(plain(state)),
            "bullmq.queue.clean.limit": limit,
        }
        with self._span("clean", attributes=asked) as span:
            parts = await finish(pages, on_page)
            ids = [job_id for part in parts for job_id in part]
            span.set_attributes({"bullmq.job.ids": ids})
            return ids

    def clean_pages(
        self, grace: Duration, limit: int = 0, state: str = "completed", *, page_size: int = PAGE_SIZE
    ) -> Pages[list[str]]:
        """Remove old jobs of one state as `clean` does, one page at each step of the iteration.

        Args:
            grace: The minimum age of the jobs to remove, in milliseconds or as a `timedelta`; 0: any age.
            limit: How many jobs to remove at most. 0, the default: all.
            state: Any state that `clean` accepts; `completed` by default.
            page_size: How many jobs to remove at most in one page, at least 1; 10,000 by default.

        Returns:
            An iterator over the pages; its `rest` is the plan of the remaining ones, which `pages` resumes, even in
                another process. The `value` of a page is the ids that it removed.

        Source: specs/03-transitions-admin-getters.md#clean-jobs-in-set

        Examples:
            >>> async for page in queue.clean_pages(0, state="failed", page_size=100):
            ...     print(page.value == [failed.id])
            True
        """
        grace_ms = check_whole("grace", to_ms("grace", grace), least=0)
        plan = Clean(state=state, until=self._clock().wall - grace_ms, limit=limit, page_size=page_size)
        return self.pages(plan.checked())

    async def remove_orphaned_jobs(
        self, *, count: int = 1000, on_page: Callable[[Page[int]], object] | None = None
    ) -> int:
        """Remove jobs that are in no state of the queue, such as those that another client's pause has destroyed.

        This scans all keys of the server, or in a cluster those of the queue's node, some at a time. It touches nothing
        else under the queue's prefix, nor jobs whose ids contain colons. It may miss some jobs while the queue's slot
        moves to another node: then call it again.

        Args:
            count: About how many keys to scan in one call to the server, at least 1; 1,000 by default.
            on_page: Called with each page, whose `value` is the number of jobs it removed. None by default.

        Returns:
            The number of jobs removed.

        Source: specs/06-later-versions.md#sec-4-12

        Examples:
            >>> await queue.remove_orphaned_jobs()
            0
        """
        check_callback(on_page)
        check_whole("count", count, least=1)
        plan = RemoveOrphans(count=count, in_cluster=await is_cluster(self._transport))
        return sum(await finish(self.pages(plan), on_page))

    async def obliterate(
        self, *, force: bool = False, count: int = 1000, on_page: Callable[[Page[int]], object] | None = None
    ) -> None:
        """Pause the queue, then destroy it with all its jobs. This cannot be undone.

        Args:
            force: True destroys it even while jobs are active. False by default.
            count: Jobs per call to the server, at least 1; 1,000 by default.
            on_page: Called with each page, whose `value` is the number of jobs left. None by default.

        Raises:
            QueueHasActiveJobs: Jobs are active, and `force` is False. The queue stays paused.

        Source: specs/03-transitions-admin-getters.md#obliterate

        Examples:
            >>> await queue.obliterate(force=True)
            >>> await queue.get_job(job.id) is None
            True
        """
        check_callback(on_page)
        with self._span("obliterate"):
            await finish(self.obliterate_pages(force=force, count=count), on_page)

    def obliterate_pages(self, *, force: bool = False, count: int = 1000) -> Pages[int]:
        """Destroy the queue as `obliterate` does, one page at each step of the iteration.

        Args:
            force: True destroys it even while jobs are active. False by default.
            count: Jobs per page, at least 1; 1,000 by default.

        Returns:
            An iterator over the pages; its `rest` is the plan of the remaining ones, which `pages` resumes, even in
                another process. A page's `value` is the number of jobs left.

        Source: specs/03-transitions-admin-getters.md#obliterate

        Examples:
            >>> async for page in queue.obliterate_pages(count=100):
            ...     print(page.value, "left")
            0 left
        """
        check_flag("force", force)
        check_whole("count", count, least=1)
        return self.pages(Obliterate(force=force, count=count))

    async def retry_jobs(
        self,
        state: Literal["failed", "completed"] = "failed",
        *,
        count: int = 1000,
        timestamp: Millis | None = None,
        on_page: Callable[[Page[int]], object] | None = None,
    ) -> None:
        """Move all failed or completed jobs back to wait, regardless of their priorities.

        Args:
            state: `failed`, the default, or `completed`.
            count: Jobs per call to the server, at least 1; 1,000 by default.
            timestamp: Only jobs that finished at or before this time, in milliseconds since the epoch. None, the
                default: now, so a job that fails again at once is not retried twice.
            on_page: Called with each page, whose `value` is the number of jobs left. None by default.

        Source: specs/03-transitions-admin-getters.md#move-jobs-to-wait

        Examples:
            >>> await queue.retry_jobs()
            >>> await queue.get_job_state(failed.id)
            'waiting'
        """
        check_callback(on_page)
        pages = self.retry_pages(state, count=count, timestamp=timestamp)
        asked = {"state": state, "count": count, **({} if timestamp is None else {"timestamp": timestamp})}
        with self._span("retryJobs", "producer", attributes={"bullmq.queue.options": json_text(asked)}):
            await finish(pages, on_page)

    def retry_pages(
        self,
        state: Literal["failed", "completed"] = "failed",
        *,
        count: int = 1000,
        timestamp: Millis | None = None,
    ) -> Pages[int]:
        """Move finished jobs back to wait as `retry_jobs` does, one page at each step of the iteration.

        Args:
            state: `failed`, the default, or `completed`.
            count: Jobs per page, at least 1; 1,000 by default.
            timestamp: Only jobs that finished at or before this time, in milliseconds since the epoch. None, the
                default: now.

        Returns:
            An iterator over the pages; its `rest` is the plan of the remaining ones, which `pages` resumes, even in
                another process. A page's `value` is the number of jobs left.

        Source: specs/03-transitions-admin-getters.md#move-jobs-to-wait

        Examples:
            >>> async for page in queue.retry_pages("failed", count=100):
            ...     print(page.value, "left")
            0 left
        """
        finished: tuple[Literal["failed", "completed"], ...] = ("failed", "completed")
        source = check_choice("state", state, finished)
        check_whole("count", count, least=1)
        # Read once: a job that fails again at once is not retried again.
        until = self._clock().wall if timestamp is None else check_whole("timestamp", timestamp, least=0)
        return self.pages(MoveAll(state=source, count=count, until=until))

    async def promote_jobs(self, *, count: int = 1000, on_page: Callable[[Page[int]], object] | None = None) -> None:
        """Move all delayed jobs to wait, regardless of their priorities.

        Args:
            count: Jobs per call to the server, at least 1; 1,000 by default.
            on_page: Called with each page, whose `value` is the number of jobs left. None by default.

        Source: specs/03-transitions-admin-getters.md#move-jobs-to-wait

        Examples:
            >>> await queue.promote_jobs()
            >>> await queue.get_job_state(delayed.id)
            'waiting'
        """
        check_callback(on_page)
        pages = self.promote_pages(count=count)
        with self._span("promoteJobs", attributes={"bullmq.queue.options": json_text({"count": count})}):
            await finish(pages, on_page)

    def promote_pages(self, *, count: int = 1000) -> Pages[int]:
        """Move delayed jobs to wait as `promote_jobs` does, one page at each step of the iteration.

        Args:
            count: Jobs per page, at least 1; 1,000 by default.

        Returns:
            An iterator over the pages; its `rest` is the plan of the remaining ones, which `pages` resumes, even in
                another process. A page's `value` is the number of jobs left.

        Source: specs/03-transitions-admin-getters.md#move-jobs-to-wait

        Examples:
            >>> async for page in queue.promote_pages():
            ...     print(page.value, "left")
            0 left
        """
        check_whole("count", count, least=1)
        return self.pages(MoveAll(state="delayed", count=count))

    async def trim_events(self, max_length: int) -> int:
        """Trim the queue's event stream.

        Args:
            max_length: About how many events to keep, at least 0.

        Returns:
            The number of entries removed.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.trim_events(1_000)
            0
        """
        with self._span("trimEvents", attributes={"bullmq.queue.event.max.length": max_length}):
            return await self.call(cleaning.trim_events(self._keys, max_length))

    # --- limits -------------------------------------------------------------------------------------------------------

    async def set_global_concurrency(self, concurrency: int) -> None:
        """Limit how many jobs of the queue may be active at a time, across all workers.

        Args:
            concurrency: A number of jobs, at least 1.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.set_global_concurrency(4)
            >>> await queue.get_global_concurrency()
            4
        """
        await self.call(settings.set_global_concurrency(self._keys, concurrency))

    async def get_global_concurrency(self) -> int | None:
        """Return how many jobs of the queue may be active at a time, across all workers; None if there is no limit.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.get_global_concurrency()
        """
        return await self.call(settings.get_global_concurrency(self._keys))

    async def remove_global_concurrency(self) -> bool:
        """Lift the queue's global concurrency.

        Returns:
            False if none was set.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.remove_global_concurrency()
            False
        """
        return await self.call(settings.remove_global_concurrency(self._keys)) > 0

    async def is_maxed(self) -> bool:
        """Tell whether the queue's global concurrency is reached; False if none is set.

        Source: specs/02-worker-path.md#is-maxed

        Examples:
            >>> await queue.is_maxed()
            False
        """
        return await self.call(queues.is_maxed(self._keys))

    async def set_global_rate_limit(self, maximum: int, duration: Duration) -> None:
        """Limit how many jobs of the queue may start in a period, across all workers.

        Args:
            maximum: Jobs per period, at least 1.
            duration: The period, in milliseconds or as a `timedelta`, above 0.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.set_global_rate_limit(100, 60_000)
            >>> await queue.get_global_rate_limit()
            Limiter(max=100, duration=60000)
        """
        duration_ms = to_ms("duration", duration)
        await self.call(settings.set_global_rate_limit(self._keys, maximum, duration_ms))

    async def get_global_rate_limit(self) -> Limiter | None:
        """Return the queue's global rate limit, its `duration` in milliseconds; None if there is none.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.get_global_rate_limit()
        """
        return await self.call(settings.get_global_rate_limit(self._keys))

    async def remove_global_rate_limit(self) -> bool:
        """Lift the queue's global rate limit.

        Returns:
            False if none was set.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.remove_global_rate_limit()
            False
        """
        return await self.call(settings.remove_global_rate_limit(self._keys)) > 0

    async def rate_limit(self, duration: Duration) -> None:
        """Stop jobs of the queue from starting for some time. Workers without a limiter check this only after a
        `RateLimitError`.

        Args:
            duration: How long, in milliseconds or as a `timedelta`, above 0.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.rate_limit(30_000)
            >>> 0 < await queue.get_rate_limit_ttl() <= 30_000
            True
        """
        duration_ms = to_ms("duration", duration)
        if duration_ms <= 0:
            raise UsageError("duration", duration, "must be greater than 0")
        with self._span("rateLimit", attributes={"bullmq.queue.rate.limit": duration_ms}):
            await self.call(rate_limit(self._keys, ttl_ms=duration_ms))

    async def get_rate_limit_ttl(self, maximum: int | None = None) -> Millis:
        """Return how much longer the queue is rate limited, in milliseconds.

        Args:
            maximum: The number of jobs at which the queue counts as limited. None, the default, or 0: that of the
                global rate limit, if there is one.

        Returns:
            Milliseconds; 0 or less if it is not limited.

        Source: specs/02-worker-path.md#get-rate-limit-ttl

        Examples:
            >>> await queue.get_rate_limit_ttl(100)
            0
        """
        if maximum is not None:
            check_whole("maximum", maximum, least=0)
        return await self.call(queues.get_rate_limit_ttl(self._keys, maximum))

    async def remove_rate_limit_key(self) -> bool:
        """End the current period of a rate limit, or a limit that `rate_limit` set.

        Returns:
            False if there was none.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.rate_limit(30_000)
            >>> await queue.remove_rate_limit_key()
            True
        """
        return await self.call(cleaning.remove_rate_limit_key(self._keys)) > 0

    # --- deduplication ------------------------------------------------------------------------------------------------

    async def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Return the id of the job that owns a deduplication id; None if it is free.

        Args:
            deduplication_id: The id that jobs were added with (`Deduplication.id`).

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> job = await queue.add("report", options=JobOptions(deduplication=Deduplication("daily")))
            >>> await queue.get_deduplication_job_id("daily") == job.id
            True
        """
        checked = check_name("deduplication_id", deduplication_id, max_length=None)
        return await self.call(getters.get_deduplication_job_id(self._keys, checked))

    async def remove_deduplication_key(self, deduplication_id: str) -> bool:
        """Free a deduplication id, so that the next job with it is added. Jobs are unaffected.

        Args:
            deduplication_id: The id that jobs were added with (`Deduplication.id`).

        Returns:
            False if it was free.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.remove_deduplication_key("daily")
            False
        """
        checked = check_name("deduplication_id", deduplication_id, max_length=None)
        with self._span("removeDeduplicationKey", attributes={"bullmq.job.deduplication.key": checked}):
            return await self.call(cleaning.remove_deduplication_key(self._keys, checked)) > 0

    # --- schedulers ---------------------------------------------------------------------------------------------------

    @overload
    async def upsert_job_scheduler(
        self,
        scheduler_id: str,
        repeat: RepeatOptions,
        name: JobType[P, R],
        data: P,
        options: JobOptions | None = None,
    ) -> Job[P, R] | None: ...
    @overload
    async def upsert_job_scheduler(
        self,
        scheduler_id: str,
        repeat: RepeatOptions,
        name: str | None = None,
        data: T | UnsetType | None = UNSET,
        options: JobOptions | None = None,
    ) -> Job[T] | None: ...

    async def upsert_job_scheduler(
        self,
        scheduler_id: str,
        repeat: RepeatOptions,
        name: str | JobType[Any, Any] | None = None,
        data: Any = UNSET,
        options: JobOptions | None = None,
    ) -> Job[Any] | None:
        """Create or replace a job scheduler and its next job.

        If no worker has taken the next job yet, it is replaced and keeps its time.

        Args:
            scheduler_id: The scheduler's id: up to 255 characters, with at most three colons.
            repeat: When the jobs are due.
            name: The name of the jobs, or a `JobType`, as in `add`. None, the default: `scheduler_id`.
            data: The payload of the jobs, as in `add`; `{}` by default.
            options: Options of the jobs, on top of those of a `JobType` and the queue's `default_job_options`; None by
                default.

        Returns:
            The next job; None if the rule has no further run, and then nothing is written.

        Raises:
            CronError: The pattern is not a valid cron pattern. This is a `UsageError`.
            SchedulerIdTaken: Another job has the id that the next one would get.
            SchedulerSlotsTaken: There are jobs at the next time and the one after it.

        Source: specs/04-schedulers-flows-events.md#add-job-scheduler

        Examples:
            >>> rule = RepeatOptions(pattern="0 6 * * *", tz="utc")
            >>> job = await queue.upsert_job_scheduler("daily", rule, "report", {"of": "sales"})
            >>> job.name
            'report'
        """
        checked = check_name("scheduler_id", scheduler_id, max_length=None)
        template, kind = _scheduled(checked, name, data, options)
        with self._scheduler_span(checked, template) as span:
            prepared = self._prepare_scheduler(checked, repeat, template, kind, span)
            if prepared is None:
                return None
            record = await self.run(upsert_scheduler(self._keys, prepared))
            span.set_attributes({"bullmq.job.id": record.id})
            return self._job(record, kind)

    @overload
    def adding_job_scheduler(
        self,
        scheduler_id: str,
        repeat: RepeatOptions,
        name: JobType[P, R],
        data: P,
        options: JobOptions | None = None,
    ) -> Adding[Job[P, R]] | None: ...
    @overload
    def adding_job_scheduler(
        self,
        scheduler_id: str,
        repeat: RepeatOptions,
        name: str | None = None,
        data: T | UnsetType | None = UNSET,
        options: JobOptions | None = None,
    ) -> Adding[Job[T]] | None: ...

    def adding_job_scheduler(
        self,
        scheduler_id: str,
        repeat: RepeatOptions,
        name: str | JobType[Any, Any] | None = None,
        data: Any = UNSET,
        options: JobOptions | None = None,
    ) -> Adding[Job[Any]] | None:
        """Prepare a job scheduler to be created or replaced in your own transaction. Nothing is sent.

        Args:
            scheduler_id: The scheduler's id, as in `upsert_job_scheduler`.
            repeat: When the jobs are due.
            name: The name of the jobs, or a `JobType`, as in `add`. None, the default: `scheduler_id`.
            data: The payload of the jobs, as in `add`; `{}` by default.
            options: Options of the jobs, on top of those of a `JobType` and the queue's `default_job_options`; None by
                default.

        Returns:
            The same as `adding`; None if the rule has no further run.

        Raises:
            CronError: The pattern is not a valid cron pattern. This is a `UsageError`.

        Source: specs/08-batches.md#in-a-transaction

        Examples:
            >>> ready = queue.adding_job_scheduler("heartbeat", RepeatOptions(every=60_000))
            >>> [job] = await queue.commit(ready)
            >>> job.name
            'heartbeat'
        """
        checked = check_name("scheduler_id", scheduler_id, max_length=None)
        template, kind = _scheduled(checked, name, data, options)
        with self._scheduler_span(checked, template) as span:
            prepared = self._prepare_scheduler(checked, repeat, template, kind, span)
        if prepared is None:
            return None

        def make() -> Operation[Job[Any]]:
            return self._job((yield from upsert_scheduler(self._keys, prepared)), kind)

        return Adding(make, applier(self._profile), before=self._description())

    def _scheduler_span(
        self, scheduler_id: str, template: NewJob
    ) -> AbstractContextManager[TelemetrySpan, bool | None]:
        place, names = f"{self.name}.{template.name}", {"bullmq.job.scheduler.id": scheduler_id}
        return self._span("add", "producer", destination=place, attributes=names)

    def _prepare_scheduler(
        self, scheduler_id: str, repeat: RepeatOptions, template: NewJob, kind: Kind, span: TelemetrySpan
    ) -> PreparedScheduler | None:
        prepared = prepare_scheduler(
            self._keys,
            scheduler_id,
            repeat,
            template,
            defaults=self._defaults,
            limits=self._limits,
            now_ms=self._clock().wall,
            zones=find_zone,
            data_type=self._data_type if kind is None else kind.data_type,
            metadata=None if self._tracing is None else span.metadata() or None,
        )
        for warning in () if prepared is None else prepared.warnings:
            _log.warning("queue %s, job scheduler %s: %s", self.name, without_login(scheduler_id), warning)
        return prepared

    async def get_job_scheduler(self, scheduler_id: str) -> JobScheduler | None:
        """Read a job scheduler, or a repeatable job of an older client.

        Args:
            scheduler_id: The scheduler's id, or the repeatable job's key.

        Returns:
            The scheduler, with its rule, template and next time; None if there is none.

        Source: specs/04-schedulers-flows-events.md#get-job-scheduler

        Examples:
            >>> await queue.upsert_job_scheduler("heartbeat", RepeatOptions(every=60_000))
            Job(...)
            >>> scheduler = await queue.get_job_scheduler("heartbeat")
            >>> scheduler.every
            60000
        """
        checked = check_name("scheduler_id", scheduler_id, max_length=None)
        return await self.call(schedulers.get_job_scheduler(self._keys, checked))

    async def get_job_schedulers(self, start: int = 0, end: int = -1, asc: bool = False) -> list[JobScheduler]:
        """Read job schedulers and the repeatable jobs of older clients, ordered by the times of their next jobs.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.
            asc: True puts the one that is due next first; False, the default, puts it last.

        Source: specs/04-schedulers-flows-events.md#sec-4-7

        Examples:
            >>> await queue.get_job_schedulers()
            []
        """
        check_flag("asc", asc)
        return await self.run(get_job_schedulers(self._keys, start=start, end=end, ascending=asc))

    async def get_job_schedulers_count(self) -> int:
        """Count job schedulers, and the repeatable jobs of older clients.

        Source: specs/04-schedulers-flows-events.md#sec-4-1

        Examples:
            >>> await queue.get_job_schedulers_count()
            0
        """
        return await self.call(schedulers.count_job_schedulers(self._keys))

    async def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Remove a job scheduler, and its next job if that is delayed.

        Args:
            scheduler_id: The scheduler's id.

        Returns:
            False if there is none.

        Source: specs/04-schedulers-flows-events.md#remove-job-scheduler

        Examples:
            >>> await queue.upsert_job_scheduler("heartbeat", RepeatOptions(every=60_000))
            Job(...)
            >>> await queue.remove_job_scheduler("heartbeat")
            True
        """
        checked = check_name("scheduler_id", scheduler_id, max_length=None)
        return await self.call(schedulers.remove_job_scheduler(self._keys, checked))

    async def get_repeatable_jobs(self, start: int = 0, end: int = -1, asc: bool = False) -> list[JobScheduler]:
        """Return the same as `get_job_schedulers`, for older programs.

        Args:
            start: The first position, 0 by default; a negative one counts from the end.
            end: The last position, inclusive; -1, the end, by default.
            asc: True puts the one that is due next first; False, the default, puts it last.

        Source: specs/04-schedulers-flows-events.md#sec-4-7

        Examples:
            >>> await queue.get_repeatable_jobs()
            []
        """
        return await self.get_job_schedulers(start, end, asc)

    async def remove_repeatable(self, name: str, repeat: RepeatOptions, job_id: str | None = None) -> bool:
        """Remove a repeatable job of an older client, with its delayed job.

        Args:
            name: The name that it was added with.
            repeat: The rule that it was added with; only `every` or `pattern`, `tz` and `end_date` matter.
            job_id: The id that it was added with; None, the default, if it had none.

        Returns:
            False if there is none.

        Source: specs/04-schedulers-flows-events.md#remove-repeatable

        Examples:
            >>> await queue.remove_repeatable("heartbeat", RepeatOptions(every=60_000))
            False
        """
        if not isinstance(repeat, RepeatOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("repeat", repeat, "must be a RepeatOptions")
        key = schedulers.repeatable_key(name, repeat, job_id)
        named = {"bullmq.job.name": key.name, **({} if job_id is None else {"bullmq.job.id": key.job_id})}
        with self._span("removeRepeatable", destination=f"{self.name}.{key.name}", attributes=named):
            return await self.call(schedulers.remove_repeatable(self._keys, key))

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Remove a repeatable job of an older client, or a job scheduler.

        Args:
            key: Its key, as `get_job_schedulers` shows it.

        Returns:
            False if there is none.

        Source: specs/04-schedulers-flows-events.md#remove-repeatable

        Examples:
            >>> await queue.remove_repeatable_by_key("heartbeat")
            False
        """
        checked = check_name("key", key, max_length=None)
        with self._span("removeRepeatableByKey", attributes={"bullmq.job.key": checked}):
            return await self.call(schedulers.remove_repeatable_by_key(self._keys, checked))

    # --- other clients ------------------------------------------------------------------------------------------------

    async def get_version(self) -> str | None:
        """Return the library that opened the queue last, with its version; None if the queue has no meta hash.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.get_version()
            'bullmq-protocol:...'
        """
        return await self.call(queues.get_version(self._keys))

    async def get_workers(self) -> list[dict[str, str]]:
        """List this queue's workers, of every library.

        Returns:
            For each, the attributes of its connection from CLIENT LIST. `rawname` ends with the worker's own name, if
                it has one.

        Source: specs/03-transitions-admin-getters.md#sec-14

        Examples:
            >>> await queue.get_workers()
            []
        """
        return await self.call(queues.get_workers(self._keys))

    async def get_workers_count(self) -> int:
        """Count this queue's workers, of every library.

        Source: specs/03-transitions-admin-getters.md#sec-14

        Examples:
            >>> await queue.get_workers_count()
            0
        """
        return len(await self.get_workers())

    async def get_queue_events(self) -> list[dict[str, str]]:
        """List the programs that read the queue's events, of every library.

        Returns:
            For each, the attributes of its connection from CLIENT LIST.

        Source: specs/03-transitions-admin-getters.md#sec-14

        Examples:
            >>> await queue.get_queue_events()
            []
        """
        return await self.call(queues.get_queue_events(self._keys))

    async def remove_deprecated_priority_key(self) -> bool:
        """Remove the key that very old versions of BullMQ used for priorities.

        Returns:
            False if there was none.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await queue.remove_deprecated_priority_key()
            False
        """
        return await self.call(cleaning.remove_deprecated_priority_key(self._keys)) > 0

    # --- within -------------------------------------------------------------------------------------------------------

    def _prepare_all(self, jobs: Sequence[NewJob]) -> tuple[list[PreparedJob], Kinds]:
        prepared: list[PreparedJob] = []
        kinds: Kinds = {}
        try:
            for job in jobs:
                if not isinstance(job, NewJob):  # pyright: ignore[reportUnnecessaryIsInstance]
                    raise UsageError("job", job, "must be a NewJob(name, data, options)")
                name = job.name
                if isinstance(name, JobType):
                    kinds[len(prepared)] = name
                    prepared.append(self._prepared(name.name, job.data, name.with_options(job.options), name))
                else:
                    prepared.append(self._prepared(name, job.data, job.options))
        except UsageError as error:
            # As many are right as come before the wrong one.
            raise UsageError(f"jobs[{len(prepared)}]: {error.field}", error.value, error.rule) from None
        return prepared, kinds

    def _prepared(self, name: str, data: Any, options: JobOptions, kind: Kind = None) -> PreparedJob:
        if type(name) is not str:
            name = plain(name)
        key = (name if kind is None else id(kind), id(options)) if type(name) is str else None
        known = self._templates.get(key)
        if known is None:
            template = self._template(name, options, kind)
            if template.lasting and key is not None:
                if len(self._templates) >= _MOST_TEMPLATES:
                    self._templates.clear()
                # With what it was made of, so that nothing else gets its identity.
                self._templates[key] = template, options, kind
        else:
            template = known[0]
        for warning in template.model.warnings:
            _log.warning("queue %s, job %s: %s", self.name, without_login(name), warning)
        own = self._own_clock
        return template.prepare(data, time_ns() // 1_000_000 if own is None else own().wall)

    def _template(self, name: str, options: JobOptions, kind: Kind) -> JobTemplate:
        if not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("options", options, "must be a JobOptions, such as JobOptions(delay=1000)")
        checked = check_options(self._defaults, options, limits=self._limits, switches=self._keys.switches)
        if checked.options.repeat is not UNSET:
            raise UsageError("repeat", checked.options.repeat, "is for schedulers: use upsert_job_scheduler")
        data_type = self._data_type if kind is None else kind.data_type
        return template_of(self._keys, name, checked, limits=self._limits, data_type=data_type)

    def _job(self, record: JobRecord, kind: Kind = None) -> Job[Any]:
        if kind is None:
            return Job(record, self._keys, self._transport, self._data_type, None, self._limits, self._own_clock)
        job: Job[Any] = Job(record, self._keys, self._transport, kind.data_type, None, self._limits, self._own_clock)
        expect_result(job, kind.result_type)
        return job

    def _parts(self) -> Parts:
        return Parts(self._transport, self._profile, self._data_type, self._limits, self._own_clock)

    def _jobs(self, records: Sequence[JobRecord]) -> list[Job[T]]:
        return [self._job(record) for record in records]


class Parts(NamedTuple):
    """What a queue is made of, for the test kit."""

    transport: AsyncTransport
    scripts: Profile
    data_type: PayloadType | None
    limits: Limits
    clock: Clock | None


def parts_of(queue: Queue[Any]) -> Parts:
    """Return what a worker of the same queue is to have."""
    return queue._parts()  # pyright: ignore[reportPrivateUsage]


def _scheduled(
    scheduler_id: str, name: str | JobType[Any, Any] | None, data: Any, options: JobOptions | None
) -> tuple[NewJob, Kind]:
    if isinstance(name, JobType):
        return NewJob(name.name, data, name.with_options(options)), name
    if options is not None and not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("options", options, "must be a JobOptions, such as JobOptions(delay=1000)")
    label: str = scheduler_id if name is None else plain(name)
    return NewJob(label, data, JobOptions() if options is None else options), None


def _id(job_id: object) -> str:
    return check_name("job_id", job_id, max_length=None)


def _named(states: str | Sequence[str]) -> Sequence[str]:
    return (states,) if isinstance(states, str) else listed("states", states)


def _row(row: object) -> str:
    if not isinstance(row, str):
        raise UsageError("row", row, "must be a string")
    return plain_text(row)
