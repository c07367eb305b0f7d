"""Monque: add jobs, run them, manage them.

Source: specs/monque.md#sec-12
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, TypeVar, cast
from uuid import uuid4

import bson
import msgspec
from bson import ObjectId
from bson.errors import BSONError

from bullmq_protocol.common.units import Millis, check_whole
from bullmq_protocol.errors import BullMQError, UsageError
from bullmq_protocol.worker.snapshot import WorkerSnapshot
from monque_anyio.clocks import clock
from monque_anyio.driver import Driver, EventStream, Handler
from monque_anyio.zones import find_zone
from monque_protocol import commands, operations
from monque_protocol.commands import Command, ListFilter, QueueStats, Selector, check_filter, check_selector
from monque_protocol.cron import next_cron
from monque_protocol.cursor import Sort, check_direction, check_sort
from monque_protocol.document import Job, check_data_type, moment, payload_of
from monque_protocol.errors import MonqueConnectionError, PayloadTooLargeError
from monque_protocol.events import (
    JobCancelled,
    JobDeleted,
    JobRetried,
    JobsCancelled,
    JobsDeleted,
    JobsRetried,
    StaleRecovered,
    check_callback,
)
from monque_protocol.operations import Page, wrapped
from monque_protocol.options import SchedulerOptions, check_key, check_name, check_payload, options_from, settings_of

T = TypeVar("T")

_MOST_CACHED: Final = 100
LOCAL: Final = "local"


class WorkerView(msgspec.Struct, frozen=True):
    """The handler of a name in this scheduler: its concurrency, and how many jobs it runs."""

    concurrency: int
    active_count: int


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of a name, and its handler here, if it has one."""

    name: str
    has_persisted_jobs: bool
    has_registered_worker: bool
    stats: QueueStats
    worker: WorkerView | None


class Monque:
    """A scheduler on a database of pymongo, which is used as it is.

    Entered with `async with`, it prepares the collection (`initialize`), and at the end it stops and releases the jobs
    that are still running. Without that it can add and manage jobs, once it is initialized.

    Args:
        db: An `AsyncDatabase` on asyncio, or a blocking `Database`, whose calls are then made in worker threads; on
            trio always that.
        options: `SchedulerOptions`, or None, the default, to pass options as keywords.
        given: Options as keywords: see `SchedulerOptions`.

    Raises:
        UsageError: The database is of another kind, or an option is wrong.

    Source: specs/monque.md#sec-12

    Examples:
        >>> async with Monque(db, collection_name="jobs", max_retries=5) as monque:
        ...     monque.worker("mail", send)
        ...     await monque.start()
        ...     _ = await monque.enqueue("mail", {"to": "ann"})
    """

    def __init__(self, db: Any, options: SchedulerOptions | None = None, **given: Any) -> None:
        checked = options_from(options, given)
        self._settings = settings_of(checked, random_id=str(uuid4()))
        zone = find_zone(LOCAL)
        assert zone is not None
        self._zone = zone
        self._driver = Driver(db, self._settings, zone=zone)
        self._codec: Any = db.codec_options
        self._initialized = False
        self._stats: dict[str, tuple[float, QueueStats]] = {}

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def scheduler_instance_id(self) -> str:
        """The name that this scheduler writes as the owner of the jobs that it runs."""
        return self._settings.me

    async def __aenter__(self) -> Monque:
        await self.initialize()
        await self._driver.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._driver.leave(error)

    async def initialize(self) -> None:
        """Create the indexes, and take over jobs of owners that are gone. A second call does nothing.

        Raises:
            MonqueConnectionError: The server refuses, or another scheduler of this name is alive.

        Source: specs/monque.md#sec-5-1

        Examples:
            >>> await monque.initialize()
        """
        if self._initialized:
            return
        count = await self._run(operations.INITIALIZE, operations.initialize(self._settings, lambda: clock().wall))
        self._initialized = True
        if count:
            self._driver.notify(StaleRecovered(count))

    async def start(self) -> None:
        """Start running jobs. Does nothing if it is already running.

        Raises:
            MonqueConnectionError: It was not initialized.
            UsageError: It was not entered with `async with`.

        Source: specs/monque.md#sec-8-5

        Examples:
            >>> monque.worker("mail", send)
            >>> await monque.start()
            >>> monque.is_healthy
            True
        """
        if not self._initialized:
            raise MonqueConnectionError("Monque not initialized. Call initialize() before start().")
        if not self._driver.is_entered:
            raise UsageError("monque", self._settings.me, "must be entered with `async with` before it starts")
        await self._driver.start()

    async def stop(self) -> None:
        """Take no more jobs, and wait at most `shutdown_timeout` for those that are running. Does nothing if it is not
        running.

        Handlers that run longer are not interrupted before the end of `async with`.

        Source: specs/monque.md#sec-8-5

        Examples:
            >>> await monque.start()
            >>> await monque.stop()
            >>> monque.is_healthy
            False
        """
        self._stats.clear()
        await self._driver.stop()

    @property
    def is_healthy(self) -> bool:
        """Whether it is initialized and running. Sends no command."""
        return self._initialized and self._driver.is_running

    def snapshot(self) -> WorkerSnapshot:
        """Return the jobs that it holds, and what it waits for.

        Examples:
            >>> monque.snapshot().state
            'stopped'
        """
        return self._driver.snapshot()

    # --- handlers and events ------------------------------------------------------------------------------------------

    def worker(
        self,
        name: str,
        handler: Handler,
        *,
        concurrency: int | None = None,
        replace: bool = False,
        data_type: Any = None,
    ) -> None:
        """Run the jobs of a name with a handler: before or after `start`.

        Args:
            name: The name of the jobs.
            handler: An async function of the `Job`. Its result is ignored; an exception makes the run fail.
            concurrency: How many of its jobs run at a time; None, the default: `worker_concurrency`.
            replace: Whether it may replace another handler; False by default.
            data_type: The type that payloads are converted to, any that msgspec decodes; None, the default: unchanged.
                A payload that does not fit makes the run fail.

        Raises:
            WorkerRegistrationError: The name already has a handler.
            InvalidJobIdentifierError: A name that Monque refuses.
            UsageError: Another bad argument.

        Source: specs/monque.md#sec-8-1

        Examples:
            >>> monque.worker("mail", send, concurrency=10)
            >>> monque.worker("mail", send, replace=True)
        """
        self._driver.register(name, handler, concurrency, replace=replace, data_type=check_data_type(data_type))

    def on(self, kind: type[Any], callback: Callable[[Any], Any]) -> None:
        """Call a function with each event of a kind.

        Args:
            kind: A class of `monque_protocol.events`, such as `JobCompleted`.
            callback: The function, async or not.

        Raises:
            UsageError: There is no such class, or the callback is not a function.

        Source: specs/monque.md#sec-10

        Examples:
            >>> monque.on(JobCompleted, lambda event: print(event.job.id))
        """
        check_callback(kind, callback)
        self._driver.on(kind, callback)

    def events(self) -> EventStream:
        """Return an iterator over all events from now on; it ends when the scheduler is left.

        Examples:
            >>> events = monque.events()
            >>> _ = await monque.cancel_job(job.id)
            >>> async for event in events:
            ...     print(type(event).__name__)
            ...     break
            JobCancelled
        """
        return self._driver.events()

    # --- adding -------------------------------------------------------------------------------------------------------

    async def enqueue(
        self, name: str, data: Any, *, unique_key: str | None = None, run_at: datetime | Millis | None = None
    ) -> Job[Any]:
        """Add a job. With a key, return the job that is pending or running with that key, if there is one.

        Args:
            name: The name of the job.
            data: The payload: a value that BSON can store, or a struct or dataclass of such values.
            unique_key: The key; None by default.
            run_at: When it is due: an aware `datetime`, or milliseconds since the Unix epoch; None, the default: now.

        Returns:
            The job as it was stored.

        Raises:
            InvalidJobIdentifierError: A name or key that Monque refuses.
            PayloadTooLargeError: The payload is above `max_payload_size`.
            MonqueConnectionError: The command failed; `number` 11000: another caller was first with this key.
            UsageError: Another bad argument.

        Source: specs/monque.md#sec-5-2, specs/monque.md#sec-5-3

        Examples:
            >>> job = await monque.enqueue("mail", {"to": "ann"}, unique_key="welcome ann")
            >>> job.status
            'pending'
            >>> (await monque.enqueue("mail", {"to": "bob"}, unique_key="welcome ann")).data
            {'to': 'ann'}
        """
        self._check_initialized()
        data = self._check_new(name, data, unique_key)
        now = clock().wall
        due = now if run_at is None else moment("run_at", run_at)
        return await self._add(operations.ENQUEUE, name, data, unique_key, due, now, None)

    async def now(self, name: str, data: Any) -> Job[Any]:
        """Add a job that is due now: see `enqueue`.

        Args:
            name: The name of the job.
            data: The payload.

        Returns:
            The job as it was stored.

        Raises:
            MonqueConnectionError: As `enqueue`, with its other errors.

        Source: specs/monque.md#sec-5-4

        Examples:
            >>> (await monque.now("mail", {"to": "ann"})).name
            'mail'
        """
        return await self.enqueue(name, data)

    async def schedule(self, cron: str, name: str, data: Any, *, unique_key: str | None = None) -> Job[Any]:
        """Add a recurring job. Without a key, each call adds another one.

        Args:
            cron: The expression, read in the time zone of the process.
            name: The name of the job.
            data: The payload, as in `enqueue`.
            unique_key: The key; None by default. An active job with this key stays as it is.

        Returns:
            The job as it was stored.

        Raises:
            InvalidCronError: The expression cannot be read, or is never due.

        Source: specs/monque.md#sec-5-4

        Examples:
            >>> job = await monque.schedule("0 9 * * 1", "report", {}, unique_key="weekly")
            >>> job.repeat_interval
            '0 9 * * 1'
        """
        self._check_initialized()
        data = self._check_new(name, data, unique_key)
        now = clock().wall
        due = next_cron(cron, after=now, zone=self._zone)
        return await self._add(operations.SCHEDULE, name, data, unique_key, due, now, cron)

    def _check_new(self, name: str, data: Any, unique_key: str | None) -> Any:
        check_name(name)
        if unique_key is not None:
            check_key(unique_key)
        data = payload_of(data)
        limit = self._settings.max_payload
        if limit is not None:
            try:
                size = len(bson.encode({"data": data}, codec_options=self._codec))
            except (BSONError, OverflowError, UnicodeEncodeError) as error:
                raise PayloadTooLargeError(-1, limit, str(error)) from error
            check_payload(size, self._settings)
        return data

    async def _add(
        self, what: str, name: str, data: Any, unique_key: str | None, due: Millis, now: Millis, cron: str | None
    ) -> Job[Any]:
        collection = self._settings.collection
        command: Command[Job[Any]]
        if unique_key is None:
            command = commands.insert(
                collection, ObjectId(), name, data, next_run_at=due, now=now, repeat_interval=cron
            )
        else:
            command = commands.upsert(
                collection, name, data, unique_key=unique_key, next_run_at=due, now=now, repeat_interval=cron
            )
        job = await self._run(what, iter(command))
        self._signal(job)
        return job

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get_job(self, job_id: str) -> Job[Any] | None:
        """Return a job, or None if there is none.

        Args:
            job_id: Its id.

        Raises:
            UsageError: The id is not text.
            MonqueConnectionError: The command failed.

        Source: specs/monque.md#sec-5-15

        Examples:
            >>> (await monque.get_job(job.id)).status
            'pending'
            >>> await monque.get_job("no id")
        """
        key = self._key(job_id)
        return None if key is None else await self._call("get job", commands.get_job(self._settings.collection, key))

    async def get_jobs(
        self,
        *,
        name: str | None = None,
        status: str | Sequence[str] | None = None,
        limit: int = 100,
        skip: int = 0,
    ) -> list[Job[Any]]:
        """Return jobs, those that are due first at the front.

        Args:
            name: Their name; None, the default: any.
            status: A state, or several; None, the default: any.
            limit: How many to return; 100 by default, 0 for all.
            skip: How many to skip at the front; 0 by default.

        Raises:
            UsageError: A bad argument.
            MonqueConnectionError: The command failed.

        Source: specs/monque.md#sec-5-15

        Examples:
            >>> [found.id == job.id for found in await monque.get_jobs(name="mail", status="pending", limit=10)]
            [True]
        """
        check_whole("limit", limit, least=0)
        check_whole("skip", skip, least=0)
        command = commands.get_jobs(self._settings.collection, name=name, status=status, limit=limit, skip=skip)
        return await self._call("query jobs", command)

    async def get_jobs_with_cursor(
        self,
        *,
        cursor: str | None = None,
        limit: int = 50,
        direction: str = "forward",
        filter: ListFilter | None = None,
        sort: Sort | None = None,
    ) -> Page:
        """Return a page of jobs.

        Args:
            cursor: The token of the previous page; None, the default: the first page.
            limit: How many jobs per page; 50 by default.
            direction: `forward` (by default) or `backward`.
            filter: Which jobs to return; None, the default: all.
            sort: The order; None, the default: by id.

        Raises:
            InvalidCursorError: The token is invalid, or belongs to another sort.

        Source: specs/monque.md#sec-5-15

        Examples:
            >>> page = await monque.get_jobs_with_cursor(limit=20, sort=Sort("createdAt", "desc"))
            >>> len(page.jobs), page.has_next_page
            (1, False)
            >>> len((await monque.get_jobs_with_cursor(cursor=page.cursor, sort=Sort("createdAt", "desc"))).jobs)
            0
        """
        check_whole("limit", limit, least=1)
        operation = operations.get_page(
            self._settings.collection,
            ListFilter() if filter is None else check_filter(filter),
            Sort() if sort is None else check_sort(sort),
            cursor=cursor,
            direction=check_direction(direction),
            limit=limit,
            key_of=ObjectId,
        )
        return await self._manage("query jobs with cursor", operation)

    async def get_queue_stats(self, name: str | None = None) -> QueueStats:
        """Count jobs by state. The result is cached for `stats_cache_ttl`.

        Args:
            name: The name of the jobs; None, the default: any name.

        Raises:
            AggregationTimeoutError: It took more than 30 seconds.

        Source: specs/monque.md#sec-5-16

        Examples:
            >>> (await monque.get_queue_stats("mail")).pending
            1
        """
        kept = self._stats.get(commands.check_text("name", name) or "")
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        found = await self._call(operations.STATS, commands.get_stats(self._settings.collection, name))
        if self._settings.stats_ms:
            self._stats.pop(name or "", None)
            self._stats[name or ""] = time.monotonic() + self._settings.stats_ms / 1000, found
            # Several threads may be here.
            for oldest in list(self._stats)[:-_MOST_CACHED]:
                self._stats.pop(oldest, None)
        return found

    async def get_queue_view_summaries(self) -> list[QueueView]:
        """Count the jobs of each name, with the handlers of this scheduler, sorted by name.

        Raises:
            AggregationTimeoutError: It took more than 30 seconds.

        Source: specs/monque.md#sec-5-16

        Examples:
            >>> [(view.name, view.stats.total) for view in await monque.get_queue_view_summaries()]
            [('mail', 1)]
        """
        found = await self._call(operations.SUMMARIES, commands.get_summaries(self._settings.collection))
        stats = {each.name: each.stats for each in found}
        handlers = self._driver.handlers()
        views: list[QueueView] = []
        for name in sorted({*stats, *handlers}):
            active = handlers.get(name)
            views.append(
                QueueView(
                    name=name,
                    has_persisted_jobs=name in stats,
                    has_registered_worker=active is not None,
                    stats=stats.get(name, QueueStats()),
                    worker=None if active is None else WorkerView(*active),
                )
            )
        return views

    # --- managing -----------------------------------------------------------------------------------------------------

    async def cancel_job(self, job_id: str) -> Job[Any] | None:
        """Cancel a pending job and return it, or None if there is none. A cancelled job stays as it is.

        Args:
            job_id: Its id.

        Raises:
            JobStateError: It is in another state.

        Source: specs/monque.md#sec-5-12

        Examples:
            >>> (await monque.cancel_job(job.id)).status
            'cancelled'
        """
        key = self._key(job_id)
        if key is None:
            return None
        done = await self._run("cancel job", operations.cancel(self._settings.collection, key, now=clock().wall))
        if done is not None and done.previous_status is not None:
            self._driver.notify(JobCancelled(done.job))
        return None if done is None else done.job

    async def retry_job(self, job_id: str) -> Job[Any] | None:
        """Make a failed or cancelled job due now, and return it, or None if there is none.

        Args:
            job_id: Its id.

        Raises:
            JobStateError: It is in another state.
            MonqueConnectionError: `number` 11000: another job is active with its key.

        Source: specs/monque.md#sec-5-12

        Examples:
            >>> (await monque.retry_job(failed.id)).status
            'pending'
        """
        key = self._key(job_id)
        if key is None:
            return None
        done = await self._run("retry job", operations.retry(self._settings.collection, key, now=clock().wall))
        if done is None:
            return None
        self._driver.notify(JobRetried(done.job, done.previous_status or ""))
        self._signal(done.job)
        return done.job

    async def reschedule_job(self, job_id: str, run_at: datetime | Millis) -> Job[Any] | None:
        """Change when a pending job is due, and return it, or None if there is none.

        Args:
            job_id: Its id.
            run_at: When it is due: an aware `datetime`, or milliseconds since the Unix epoch.

        Raises:
            JobStateError: It is in another state.

        Source: specs/monque.md#sec-5-12

        Examples:
            >>> (await monque.reschedule_job(job.id, 4_000_000_000_000)).next_run_at
            4000000000000
        """
        due = moment("run_at", run_at)
        key = self._key(job_id)
        if key is None:
            return None
        operation = operations.reschedule(self._settings.collection, key, run_at=due, now=clock().wall)
        done = await self._run("reschedule job", operation)
        if done is None:
            return None
        self._signal(done.job)
        return done.job

    async def delete_job(self, job_id: str) -> bool:
        """Delete a job in any state, and return whether there was one.

        Args:
            job_id: Its id.

        Raises:
            UsageError: The id is not text.
            MonqueConnectionError: The command failed.

        Source: specs/monque.md#sec-5-12

        Examples:
            >>> await monque.delete_job(job.id)
            True
        """
        key = self._key(job_id)
        if key is None:
            return False
        done = await self._call("delete job", commands.delete(self._settings.collection, key))
        if done:
            self._driver.notify(JobDeleted(job_id))
        return done

    async def cancel_jobs(self, selector: Selector) -> int:
        """Cancel those of these jobs that are pending, and return their number.

        Args:
            selector: Which jobs.

        Raises:
            UsageError: It is not a `Selector`, or a bad one.
            MonqueConnectionError: The command failed.

        Source: specs/monque.md#sec-5-13

        Examples:
            >>> await monque.cancel_jobs(Selector(name="mail"))
            1
        """
        command = commands.cancel_many(self._settings.collection, check_selector(selector), now=clock().wall)
        count = 0 if command is None else await self._call("cancel jobs", command)
        if count:
            self._driver.notify(JobsCancelled(count))
        return count

    async def retry_jobs(self, selector: Selector) -> int:
        """Make those of these jobs that failed or were cancelled due within 30 seconds, and return their number.

        Args:
            selector: Which jobs.

        Raises:
            UsageError: It is not a `Selector`, or a bad one.
            MonqueConnectionError: The command failed; `number` 11000: another job is active with one of the keys.

        Source: specs/monque.md#sec-5-13

        Examples:
            >>> await monque.retry_jobs(Selector(status="failed"))
            0
        """
        operation = operations.retry_many(self._settings.collection, check_selector(selector), now=clock().wall)
        count, jobs = await self._manage("retry jobs", operation)
        if count:
            self._driver.notify(JobsRetried(count))
        for job in jobs:
            self._signal(job)
        return count

    async def delete_jobs(self, selector: Selector) -> int:
        """Delete these jobs, including running ones, and return their number. An empty selector means all jobs.

        Args:
            selector: Which jobs.

        Raises:
            UsageError: It is not a `Selector`, or a bad one.
            MonqueConnectionError: The command failed.

        Source: specs/monque.md#sec-5-13

        Examples:
            >>> await monque.delete_jobs(Selector(name="mail", older_than=4_000_000_000_000))
            1
        """
        command = commands.delete_many(self._settings.collection, check_selector(selector))
        count = await self._call("delete jobs", command)
        if count:
            self._driver.notify(JobsDeleted(count))
        return count

    # --- within -------------------------------------------------------------------------------------------------------

    def _check_initialized(self) -> None:
        if not self._initialized:
            raise MonqueConnectionError("Monque not initialized. Call initialize() first.")

    def _key(self, job_id: str) -> Any:
        self._check_initialized()
        return ObjectId(job_id) if operations.check_id(job_id) else None

    def _signal(self, job: Job[Any]) -> None:
        self._driver.signal(job.name, job.next_run_at)

    async def _call(self, what: str, command: Command[T]) -> T:
        self._check_initialized()
        return await self._run(what, iter(command))

    async def _manage(self, what: str, operation: Generator[Command[Any], Any, T]) -> T:
        self._check_initialized()
        return await self._run(what, operation)

    async def _run(self, what: str, operation: Generator[Command[Any], Any, T]) -> T:
        """Run the commands of an operation, one after the other."""
        reply: Any = None
        try:
            while True:
                try:
                    step = operation.send(reply)
                except StopIteration as stop:
                    return cast("T", stop.value)
                reply = await self._driver.perform(step)
        except BullMQError as error:
            known = wrapped(what, error)
            if known is error:
                raise
            raise known from error
