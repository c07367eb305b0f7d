"""A queue: add jobs, look at them, administer it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from msgspec import UNSET

from bullmq_anyio.drive import Connection, check_server, clock, perform, run, transport_of
from bullmq_anyio.job import Job
from bullmq_protocol import VERSION
from bullmq_protocol.command import Command, Operation
from bullmq_protocol.commands import jobs as job_commands
from bullmq_protocol.commands import queues as commands
from bullmq_protocol.commands.fetching import rate_limit
from bullmq_protocol.errors import AuthenticationFailed, BulkAddError, BullMQError, ServerError, UsageError
from bullmq_protocol.job import JobRecord, NewJob, PreparedJob, prepare
from bullmq_protocol.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys
from bullmq_protocol.operations.add_jobs import add_many, add_one
from bullmq_protocol.operations.obliterate import obliterate
from bullmq_protocol.options import DEFAULT_LIMITS, JobOptions, Limits
from bullmq_protocol.units import Duration, Millis, to_ms

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger("bullmq_anyio")

SHORT_EVENT_STREAM = 100


class Queue(Generic[T]):
    """A queue by its name. Nothing is opened before the first call; safe to share between the tasks of one event loop.

    `connection` is a URL, a `ConnectionOptions`, a transport (which stays its owner's), or None for the local server.
    `data_type`, when given, is anything msgspec can decode: payloads are checked against it and read into it; else they
    are JSON values. Every call raises `TransportError` where the connection fails, and `ServerError` where the server
    refuses.
    """

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
        data_type: type[T] | None = None,
    ) -> None:
        self._keys = QueueKeys.of(name, prefix=prefix, layout=layout)
        if type(max_len_events) is not int or max_len_events < 1:
            raise UsageError("max_len_events", max_len_events, "must be a whole number above 0")
        if max_len_events < SHORT_EVENT_STREAM:
            _log.warning("max_len_events: %d is short; slow listeners will miss events", max_len_events)
        if not isinstance(default_job_options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("default_job_options", default_job_options, "must be a JobOptions")
        self._defaults = default_job_options
        self._limits = limits
        self._max_len_events = max_len_events
        self._data_type: Any = Any if data_type is None else data_type
        self._transport, self._owned = transport_of(connection)
        self._checked = False
        self._described = skip_meta_update

    @property
    def name(self) -> str:
        return self._keys.name

    @property
    def keys(self) -> QueueKeys:
        """The names of the queue's keys in Redis."""
        return self._keys

    async def add(self, name: str, data: Any = UNSET, options: JobOptions | None = None) -> Job[T]:
        """Add one job; without data it has `{}`.

        Raises `UsageError` before anything is sent, `ParentNotFound`, `ParentNotReplaceable`. After a lost connection
        (`TransportError` with `maybe_applied`) the job may be there; with an id of your own it can be added again.
        """
        prepared = self._prepare(NewJob(name, data, JobOptions() if options is None else options))
        return self._job(await self.run(add_one(self._keys, prepared)))

    async def add_bulk(self, jobs: Sequence[NewJob]) -> list[Job[T]]:
        """Add several jobs in one round trip, in their order; nothing is sent if one of them is wrong.

        Raises `BulkAddError` if the server refused one: its `results` hold per job the job, or the error.
        """
        prepared = [self._prepare(job) for job in jobs]
        if not prepared:
            return []
        results = [
            self._job(result) if isinstance(result, JobRecord) else result
            for result in await self.run(add_many(self._keys, prepared))
        ]
        added = [result for result in results if isinstance(result, Job)]
        if len(added) < len(results):
            raise BulkAddError(results)
        return added

    async def get_job(self, job_id: str) -> Job[T] | None:
        """Read a job; None when there is none with this id."""
        record = await self.call(job_commands.get_job(self._keys, _checked_id(job_id)))
        return None if record is None else self._job(record)

    async def get_state(self, job_id: str) -> str:
        """Return the state of a job: `completed`, `failed`, `delayed`, `prioritized`, `active`, `waiting`,
        `waiting-children`, or `unknown` (also when there is no such job)."""
        return await self.call(job_commands.get_state(self._keys, _checked_id(job_id)))

    async def get_job_counts(self, *states: str) -> dict[str, int]:
        """Count the jobs in these states, or in all of them; `waiting` brings `paused` with it."""
        return await self.call(commands.get_job_counts(self._keys, states))

    async def pause(self) -> None:
        """Pause the queue for all workers; running jobs go on."""
        await self.call(commands.pause(self._keys))

    async def resume(self) -> None:
        """Let all workers go on."""
        await self.call(commands.resume(self._keys))

    async def is_paused(self) -> bool:
        """Tell whether the queue is paused."""
        return await self.call(commands.is_paused(self._keys))

    async def remove(self, job_id: str, *, remove_children: bool = True) -> bool:
        """Remove a job with its data and, by default, its children; False when one of them is locked.

        Raises `JobBelongsToScheduler`. A job that is not there counts as removed.
        """
        command = job_commands.remove_job(self._keys, _checked_id(job_id), remove_children=remove_children)
        return await self.call(command) == 1

    async def obliterate(self, *, force: bool = False, count: int = 1000) -> None:
        """Pause the queue, then destroy it with all its jobs, `count` at a time. It cannot be undone.

        Raises `QueueHasActiveJobs` without `force`; the queue stays paused then.
        """
        await self.run(obliterate(self._keys, force=force, count=count))

    async def is_maxed(self) -> bool:
        """Tell whether the queue's global concurrency is reached."""
        return await self.call(commands.is_maxed(self._keys))

    async def get_rate_limit_ttl(self, maximum: int | None = None) -> Millis:
        """Return how long the queue is rate limited, in milliseconds; 0 or below: it is not."""
        return await self.call(commands.get_rate_limit_ttl(self._keys, maximum))

    async def rate_limit(self, duration: Duration) -> None:
        """Limit the queue by hand for so long. Workers without a limiter look at it only after a `RateLimitError`."""
        duration_ms = to_ms("duration", duration)
        if duration_ms <= 0:
            raise UsageError("duration", duration, "must be greater than 0")
        await self.call(rate_limit(self._keys, ttl_ms=duration_ms))

    async def get_version(self) -> str | None:
        """Return the library and version that last opened the queue."""
        return await self.call(commands.get_version(self._keys))

    async def get_workers(self) -> list[dict[str, str]]:
        """List the workers of this queue, of every library: attributes of CLIENT LIST; `rawname` ends with the worker's
        name."""
        return await self.call(commands.get_workers(self._keys))

    async def call(self, command: Command[R]) -> R:
        """Perform any command of the core."""
        await self._open()
        return await perform(self._transport, command)

    async def run(self, operation: Operation[R]) -> R:
        """Run any operation of the core."""
        await self._open()
        return await run(operation, self._transport)

    async def aclose(self) -> None:
        """Close the connection, unless it is a transport of somebody else. May be called twice."""
        if self._owned:
            await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _open(self) -> None:
        """Before the first call: check that the server can hold the queue, and describe it in its meta hash."""
        if not self._checked:
            # Calls that come meanwhile share the attempt to connect, and its failure.
            await check_server(self._transport, self._keys)
            self._checked = True
        if not self._described:
            self._described = True
            await self._describe()

    async def _describe(self) -> None:
        version = f"bullmq-protocol:{VERSION}"
        try:
            await perform(
                self._transport, commands.write_meta(self._keys, max_len_events=self._max_len_events, version=version)
            )
        except BullMQError as error:
            # The call that follows meets the same fault, or shows that it was none.
            _log.warning("queue %s: its meta hash could not be written: %s", self.name, error)
            self._described = isinstance(error, ServerError) and not isinstance(error, AuthenticationFailed)

    def _prepare(self, job: NewJob) -> PreparedJob:
        prepared = prepare(
            self._keys,
            job,
            defaults=self._defaults,
            limits=self._limits,
            now_ms=clock().wall,
            data_type=self._data_type,
        )
        for warning in prepared.warnings:
            _log.warning("queue %s, job %s: %s", self.name, prepared.name, warning)
        return prepared

    def _job(self, record: JobRecord) -> Job[T]:
        return Job(record, keys=self._keys, transport=self._transport, data_type=self._data_type)


def _checked_id(job_id: object) -> str:
    if not isinstance(job_id, str) or not job_id:
        raise UsageError("job_id", job_id, "must be a string that is not empty")
    return job_id
