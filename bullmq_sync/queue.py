"""A queue: add jobs, look at them, administer it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from types import UnionType
from typing import Any, Generic, Literal, TypeVar

from msgspec import UNSET

from bullmq_protocol.commands import cleaning, getters, queues, schedulers, settings
from bullmq_protocol.commands import jobs as job_commands
from bullmq_protocol.commands.adding import add_job
from bullmq_protocol.commands.fetching import Limiter, rate_limit
from bullmq_protocol.commands.getters import JobLogs, Metrics
from bullmq_protocol.commands.queues import QueueSummary
from bullmq_protocol.commands.schedulers import JobScheduler
from bullmq_protocol.common.codec import check_type, json_text, listed
from bullmq_protocol.common.keys import DEFAULT_PREFIX, KeyLayout, QueueKeys, check_name
from bullmq_protocol.common.units import Duration, Millis, check_flag, check_whole, to_ms
from bullmq_protocol.errors import BulkAddError, UsageError, without_login
from bullmq_protocol.events.waiters import check_reader
from bullmq_protocol.model.job import JobRecord, Mould, NewJob, PreparedJob, check_options, mould_of
from bullmq_protocol.model.options import DEFAULT_LIMITS, JobOptions, Limits, validate, within_size
from bullmq_protocol.model.schedule import RepeatOptions, prepare_scheduler
from bullmq_protocol.observability.telemetry import (
    Attributes,
    TelemetryProvider,
    Tracing,
    guarded,
    names_of,
    new_with_context,
    with_context,
)
from bullmq_protocol.operations.add_jobs import add_each, add_many, add_one, added_record
from bullmq_protocol.operations.clean import PAGE_SIZE, Clean
from bullmq_protocol.operations.move_all import MoveAll
from bullmq_protocol.operations.obliterate import Obliterate
from bullmq_protocol.operations.paging import Page
from bullmq_protocol.operations.read_dependencies import DependencyRange, get_dependency_range
from bullmq_protocol.operations.read_jobs import JobPages, get_jobs
from bullmq_protocol.operations.read_logs import LogPages, get_job_logs
from bullmq_protocol.operations.read_schedulers import get_job_schedulers
from bullmq_protocol.operations.upsert_scheduler import upsert_scheduler
from bullmq_protocol.scripts.source import OWN, ScriptSource
from bullmq_sync.base import Items, Pages, QueueBase, check_callback, finish
from bullmq_sync.drive import Connection, check_parents, clock, run
from bullmq_sync.events import QueueEvents
from bullmq_sync.guard import provider_raised
from bullmq_sync.job import Job
from bullmq_sync.zones import find_zone

T = TypeVar("T")

_log = logging.getLogger("bullmq_sync")

_NO_OPTIONS = JobOptions()
_MOST_MOULDS = 64
"""So many pairs of name and options a queue remembers."""


class Queue(QueueBase, Generic[T]):
    """A queue by its name. Nothing is opened before the first call; safe to share between threads.

    `connection` is a URL, a `ConnectionOptions`, a transport (which stays its owner's), or None for the local server.
    `data_type`, when given, is anything msgspec can decode: payloads are checked against it and read into it; else they
    are JSON values. For type checkers a union is named twice: `Queue[A | B](name, data_type=A | B)`. `scripts` are
    ours or, from `bullmq_scripts`, BullMQ's own. `telemetry` makes spans and lets jobs carry their context (see
    `bullmq_protocol.observability.telemetry`), `BullMQOtel` for one.

    `max_len_events` is about how many events the queue keeps, for all its programs. 0 switches events off: readers get
    none, and those who wait for a job learn of its end only by asking every 15 s, or never if it is removed at its end.

    Every call raises `TransportError` where the connection fails, `ServerError` where the server refuses, and, before
    anything is sent, `UsageError` for a bad argument.

    Long operations go page by page: `..._pages` and `iter_...` return iterators whose `rest` is the plan of what is
    left; `pages` goes on with one.
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
        data_type: type[T] | UnionType | None = None,
        scripts: ScriptSource = OWN,
        telemetry: TelemetryProvider | None = None,
    ) -> None:
        check_type("data_type", data_type)
        telemetry = guarded(telemetry, provider_raised)
        super().__init__(
            QueueKeys.of(name, prefix=prefix, layout=layout),
            connection,
            scripts=scripts,
            max_len_events=max_len_events,
            skip_meta_update=skip_meta_update,
            telemetry=telemetry,
        )
        if not isinstance(default_job_options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("default_job_options", default_job_options, "must be a JobOptions")
        if not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("limits", limits, "must be a Limits")
        validate(default_job_options, limits=limits)
        self._add_all = add_many if scripts.batches else add_each
        self._defaults = default_job_options
        self._limits = limits
        self._data_type: Any = Any if data_type is None else data_type
        self._moulds: dict[tuple[str, int] | None, tuple[Mould, JobOptions]] = {}

    # --- adding -------------------------------------------------------------------------------------------------------

    def add(self, name: str, data: Any = UNSET, options: JobOptions | None = None) -> Job[T]:
        """Add one job; without data it has `{}`.

        Raises `UsageError` before anything is sent, `ParentNotFound`, `ParentNotReplaceable`. After a lost connection
        (`TransportError` with `maybe_applied`) the job may be there; with an id of your own it can be added again.
        """
        if options is None:
            options = _NO_OPTIONS
        if self._tracing is not None:
            return self._add_traced(self._tracing, name, data, options)
        return self._add(self._prepared(name, data, options))

    def _add(self, job: PreparedJob) -> Job[T]:
        if job.parent_key is not None:
            check_parents(self._transport, self._keys, [job])
        if not (self._checked and self._described):
            self._open()
        if job.deduplication_key is not None or job.job_id:
            return self._job(run(add_one(self._keys, job), self._transport))
        command = add_job(self._keys, job)
        return self._job(added_record(job, command.decode(self._transport.perform(command))))

    def _add_traced(self, tracing: Tracing, name: str, data: Any, options: JobOptions) -> Job[T]:
        with tracing.span("add", "producer", destination=f"{self.name}.{name}") as span:
            own = with_context(options, span.metadata(), replacing=True)
            added = self._add(self._prepared(name, data, own))
            span.set_attributes({"bullmq.job.name": name, "bullmq.job.id": added.id})
            return added

    def add_bulk(self, jobs: Sequence[NewJob]) -> list[Job[T]]:
        """Add several jobs in one round trip, in their order; nothing is sent if one of them is wrong, and its place is
        told (`jobs[2]: priority`).

        Raises `BulkAddError` if the server refused one: its `results` hold per job the job, or the error.
        """
        jobs = listed("jobs", jobs)
        if self._tracing is None:
            return self._add_bulk(jobs)
        names: Attributes = {"bullmq.job.bulk.names": names_of(jobs), "bullmq.job.bulk.count": len(jobs)}
        with self._tracing.span("addBulk", "producer", attributes=names) as span:
            metadata = span.metadata()
            return self._add_bulk([new_with_context(job, metadata) for job in jobs])

    def _add_bulk(self, jobs: Sequence[NewJob]) -> list[Job[T]]:
        prepared = self._prepare_all(jobs)
        if not prepared:
            return []
        check_parents(self._transport, self._keys, prepared)
        results = [
            self._job(result) if isinstance(result, JobRecord) else result
            for result in self.run(self._add_all(self._keys, prepared))
        ]
        added = [result for result in results if isinstance(result, Job)]
        if len(added) < len(results):
            raise BulkAddError(results)
        return added

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def get_job(self, job_id: str) -> Job[T] | None:
        """Read a job; None when there is none with this id."""
        record = self.call(job_commands.get_job(self._keys, _id(job_id)))
        return None if record is None else self._job(record)

    def get_job_state(self, job_id: str) -> str:
        """Return the state of a job: `completed`, `failed`, `delayed`, `prioritized`, `active`, `waiting`,
        `waiting-children`, or `unknown` (also when there is no such job)."""
        return self.call(job_commands.get_state(self._keys, _id(job_id)))

    def get_state(self, job_id: str) -> str:
        """Return the same as `get_job_state`."""
        return self.get_job_state(job_id)

    def get_ranges(self, states: str | Sequence[str], start: int = 0, end: int = 1, asc: bool = False) -> list[str]:
        """Return ids of jobs by their place in each of the states, both ends included; negative places count from the
        end. `asc`: next to run first, next due first, or finished first. `waiting` does not bring `paused` with it."""
        named = queues.check_states(_named(states))
        check_flag("asc", asc)
        return self.call(getters.get_ranges(self._keys, named, start=start, end=end, ascending=asc))

    def get_jobs(
        self, states: str | Sequence[str] = (), start: int = 0, end: int = -1, asc: bool = False
    ) -> list[Job[T]]:
        """Read the jobs at these places of each of the states (without states, of all of them), both ends included.

        `waiting` brings `paused` with it. The jobs are read after their places, so one that is gone by then is left
        out. For more than some thousand jobs use `iter_jobs`.
        """
        check_flag("asc", asc)
        records = self.run(get_jobs(self._keys, _named(states), start=start, end=end, ascending=asc))
        return self._jobs(records)

    def get_waiting(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read waiting jobs, paused ones too, the next to run first."""
        return self.get_jobs("waiting", start, end, asc=True)

    def get_waiting_children(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read jobs that wait for their children, the longest waiting first."""
        return self.get_jobs("waiting-children", start, end, asc=True)

    def get_active(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read active jobs, the first taken first."""
        return self.get_jobs("active", start, end, asc=True)

    def get_delayed(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read delayed jobs, the next due first."""
        return self.get_jobs("delayed", start, end, asc=True)

    def get_prioritized(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read prioritized jobs, the next to run first."""
        return self.get_jobs("prioritized", start, end, asc=True)

    def get_completed(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read completed jobs, the latest first."""
        return self.get_jobs("completed", start, end)

    def get_failed(self, start: int = 0, end: int = -1) -> list[Job[T]]:
        """Read failed jobs, the latest first."""
        return self.get_jobs("failed", start, end)

    def iter_jobs(self, states: str | Sequence[str] = (), page_size: int = 100, asc: bool = False) -> Items[Job[T]]:
        """Read all jobs in these states (without states, in all), one state after the other, `page_size` at a time.

        Jobs that move meanwhile may come twice or not at all.
        """
        named = queues.expand_states(_named(states))
        check_flag("asc", asc)
        check_whole("page_size", page_size, least=1)
        return Items(self.pages(JobPages(states=named, page_size=page_size, ascending=asc)), self._jobs)

    def remove(self, job_id: str, *, remove_children: bool = True) -> bool:
        """Remove a job with its data and, by default, its children; False when one of them is locked.

        Raises `JobBelongsToScheduler`. A job that is not there counts as removed.
        """
        shown = json_text({"removeChildren": check_flag("remove_children", remove_children)})
        with self._span("remove", attributes={"bullmq.job.id": job_id, "bullmq.job.options": shown}):
            command = job_commands.remove_job(self._keys, _id(job_id), remove_children=remove_children)
            return self.call(command) == 1

    def update_job_progress(self, job_id: str, progress: Any) -> None:
        """Store a job's progress, any JSON value, and tell it to listeners. Raises `JobNotFound`."""
        text = within_size("progress", json_text(progress, field="progress"), self._limits)
        with self._span("updateJobProgress", attributes={"bullmq.job.id": job_id, "bullmq.job.progress": text}):
            self.call(job_commands.update_progress(self._keys, _id(job_id), text))

    def wait_until_finished(
        self,
        job_id: str,
        queue_events: QueueEvents,
        timeout: Duration | None = None,
        *,
        result_type: Any = Any,
        may_not_exist: bool = False,
    ) -> Any:
        """Wait until a job is finished and return its result, as `QueueEvents.wait_until_finished`.

        `may_not_exist` also waits for a job that is still to be added.
        """
        check_reader(queue_events, QueueEvents, self._keys)
        return queue_events.wait_until_finished(job_id, timeout, result_type=result_type, may_not_exist=may_not_exist)

    def add_job_log(self, job_id: str, row: str, keep_logs: int | None = None) -> int:
        """Append a row to a job's log, keep the newest `keep_logs` rows (None or 0: all); return how many it has.

        Raises `JobNotFound`.
        """
        checked = within_size("row", _row(row), self._limits)
        return self.call(job_commands.add_log(self._keys, _id(job_id), checked, keep_logs=keep_logs))

    def get_job_logs(self, job_id: str, start: int = 0, end: int = -1, asc: bool = True) -> JobLogs:
        """Read rows of a job's log, and how many there are; not `asc`: counted from the newest, the newest first."""
        check_flag("asc", asc)
        return self.run(get_job_logs(self._keys, _id(job_id), start=start, end=end, ascending=asc))

    def iter_logs(self, job_id: str, page_size: int = 1000, asc: bool = True) -> Items[str]:
        """Read all rows of a job's log, `page_size` at a time; not `asc`: the newest first."""
        check_whole("page_size", page_size, least=1)
        check_flag("asc", asc)
        return Items(self.pages(LogPages(job_id=_id(job_id), page_size=page_size, ascending=asc)), list)

    def get_dependencies(
        self, parent_id: str, kind: Literal["processed", "pending"], start: int = 0, end: int = -1
    ) -> DependencyRange:
        """Read children of a job by their place in the order of a scan, with their jobs; both ends included."""
        checked = check_name("parent_id", parent_id, max_length=None)
        return self.run(get_dependency_range(self._keys, checked, kind, start=start, end=end))

    # --- counts and figures -------------------------------------------------------------------------------------------

    def get_job_counts(self, *states: str) -> dict[str, int]:
        """Count the jobs in these states, or in all of them; `waiting` brings `paused` with it."""
        return self.call(queues.get_job_counts(self._keys, states))

    def get_job_count_by_types(self, *states: str) -> int:
        """Return the sum of `get_job_counts`."""
        return sum((self.get_job_counts(*states)).values())

    def count(self) -> int:
        """Count the jobs that are still to be run: waiting, paused, delayed, prioritized, waiting for children."""
        return self.get_job_count_by_types("waiting", "delayed", "prioritized", "waiting-children")

    def get_summary(self) -> QueueSummary:
        """Return the five figures waiting, active, delayed, completed, failed; here waiting counts paused and
        prioritized jobs too."""
        return self.call(queues.get_summary(self._keys))

    def get_waiting_count(self) -> int:
        """Count waiting jobs, paused ones too."""
        return self.get_job_count_by_types("waiting")

    def get_waiting_children_count(self) -> int:
        """Count jobs that wait for their children."""
        return self.get_job_count_by_types("waiting-children")

    def get_active_count(self) -> int:
        """Count active jobs."""
        return self.get_job_count_by_types("active")

    def get_delayed_count(self) -> int:
        """Count delayed jobs."""
        return self.get_job_count_by_types("delayed")

    def get_prioritized_count(self) -> int:
        """Count prioritized jobs."""
        return self.get_job_count_by_types("prioritized")

    def get_completed_count(self) -> int:
        """Count completed jobs."""
        return self.get_job_count_by_types("completed")

    def get_failed_count(self) -> int:
        """Count failed jobs."""
        return self.get_job_count_by_types("failed")

    def get_counts_per_priority(self, priorities: Sequence[int]) -> dict[int, int]:
        """Count the waiting jobs of each of these priorities; 0: those without one."""
        return self.call(getters.get_counts_per_priority(self._keys, listed("priorities", priorities)))

    def get_metrics(self, outcome: Literal["completed", "failed"], start: int = 0, end: int = -1) -> Metrics:
        """Read how many jobs completed or failed per minute, the newest minute first; both ends included.

        There is something to read only if a worker has the option `metrics`.
        """
        return self.call(getters.get_metrics(self._keys, outcome, start=start, end=end))

    def export_prometheus_metrics(self, labels: Mapping[str, str] | None = None) -> str:
        """Return the counts of all states in the text form of Prometheus, each with these further labels."""
        if labels is not None and not isinstance(labels, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("labels", labels, "must map names to values")
        queues.prometheus_text(self.name, {}, labels or {})
        return queues.prometheus_text(self.name, self.get_job_counts(), labels or {})

    # --- the whole queue ----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause the queue for all workers; running jobs go on."""
        with self._span("pause"):
            self.call(queues.pause(self._keys))

    def resume(self) -> None:
        """Let all workers go on."""
        with self._span("resume"):
            self.call(queues.resume(self._keys))

    def is_paused(self) -> bool:
        """Tell whether the queue is paused."""
        return self.call(queues.is_paused(self._keys))

    def drain(self, delayed: bool = False) -> None:
        """Remove all waiting, paused and prioritized jobs, with `delayed` the delayed ones too, in one call.

        The server does nothing else meanwhile, some seconds for a million jobs; `clean` goes in pages. Active,
        finished and waiting-children jobs stay, and the next jobs of schedulers.
        """
        with self._span("drain", attributes={"bullmq.queue.drain.delay": delayed}):
            self.call(cleaning.drain(self._keys, delayed=delayed))

    def clean(
        self,
        grace: Duration,
        limit: int = 0,
        state: str = "completed",
        *,
        page_size: int = PAGE_SIZE,
        on_page: Callable[[Page[list[str]]], object] | None = None,
    ) -> list[str]:
        """Remove jobs of one state that are older than `grace` (milliseconds), at most `limit` of them (0: all).

        Returns their ids. The server does nothing else during a page; `on_page` is called after each.
        """
        check_callback(on_page)
        asked: Attributes = {
            "bullmq.queue.grace": to_ms("grace", grace),
            "bullmq.job.type": state,
            "bullmq.queue.clean.limit": limit,
        }
        with self._span("clean", attributes=asked) as span:
            parts = finish(self.clean_pages(grace, limit, state, page_size=page_size), on_page)
            ids = [job_id for part in parts for job_id in part]
            span.set_attributes({"bullmq.job.ids": ids})
            return ids

    def clean_pages(
        self, grace: Duration, limit: int = 0, state: str = "completed", *, page_size: int = PAGE_SIZE
    ) -> Pages[list[str]]:
        """Do what `clean` does, one page at each step; a page's value is the ids it removed."""
        grace_ms = check_whole("grace", to_ms("grace", grace), least=0)
        plan = Clean(state=state, until=clock().wall - grace_ms, limit=limit, page_size=page_size)
        return self.pages(plan.checked())

    def obliterate(
        self, *, force: bool = False, count: int = 1000, on_page: Callable[[Page[int]], object] | None = None
    ) -> None:
        """Pause the queue, then destroy it with all its jobs, `count` at a time. It cannot be undone.

        `on_page` is called after each page, with the number of jobs that are left. Raises `QueueHasActiveJobs` without
        `force`; the queue stays paused then.
        """
        check_callback(on_page)
        with self._span("obliterate"):
            finish(self.obliterate_pages(force=force, count=count), on_page)

    def obliterate_pages(self, *, force: bool = False, count: int = 1000) -> Pages[int]:
        """Do what `obliterate` does, one page at each step; a page's value is the number of jobs that are left."""
        check_flag("force", force)
        check_whole("count", count, least=1)
        return self.pages(Obliterate(force=force, count=count))

    def retry_jobs(
        self,
        state: Literal["failed", "completed"] = "failed",
        *,
        count: int = 1000,
        timestamp: Millis | None = None,
        on_page: Callable[[Page[int]], object] | None = None,
    ) -> None:
        """Move all failed (or completed) jobs that finished at `timestamp` (default: now) or before back to wait,
        `count` at a time, without regard to their priorities.

        `on_page` is called after each page, with the number of jobs that are left.
        """
        check_callback(on_page)
        pages = self.retry_pages(state, count=count, timestamp=timestamp)
        asked = {"state": state, "count": count, **({} if timestamp is None else {"timestamp": timestamp})}
        with self._span("retryJobs", "producer", attributes={"bullmq.queue.options": json_text(asked)}):
            finish(pages, on_page)

    def retry_pages(
        self,
        state: Literal["failed", "completed"] = "failed",
        *,
        count: int = 1000,
        timestamp: Millis | None = None,
    ) -> Pages[int]:
        """Do what `retry_jobs` does, one page at each step; a page's value is the number of jobs that are left."""
        if state not in ("failed", "completed"):
            raise UsageError("state", state, "must be failed or completed")
        check_whole("count", count, least=1)
        # Read once: a job that fails again at once is not retried again.
        until = clock().wall if timestamp is None else check_whole("timestamp", timestamp, least=0)
        return self.pages(MoveAll(state=state, count=count, until=until))

    def promote_jobs(self, *, count: int = 1000, on_page: Callable[[Page[int]], object] | None = None) -> None:
        """Move all delayed jobs to wait, `count` at a time, without regard to their priorities.

        `on_page` is called after each page, with the number of jobs that are left.
        """
        check_callback(on_page)
        pages = self.promote_pages(count=count)
        with self._span("promoteJobs", attributes={"bullmq.queue.options": json_text({"count": count})}):
            finish(pages, on_page)

    def promote_pages(self, *, count: int = 1000) -> Pages[int]:
        """Do what `promote_jobs` does, one page at each step; a page's value is the number of jobs that are left."""
        check_whole("count", count, least=1)
        return self.pages(MoveAll(state="delayed", count=count))

    def trim_events(self, max_length: int) -> int:
        """Trim the event stream to about `max_length` entries; return how many are gone."""
        with self._span("trimEvents", attributes={"bullmq.queue.event.max.length": max_length}):
            return self.call(cleaning.trim_events(self._keys, max_length))

    # --- limits -------------------------------------------------------------------------------------------------------

    def set_global_concurrency(self, concurrency: int) -> None:
        """Let at most so many jobs of the queue be active at a time, over all workers."""
        self.call(settings.set_global_concurrency(self._keys, concurrency))

    def get_global_concurrency(self) -> int | None:
        """Return the global concurrency, None when none is set."""
        return self.call(settings.get_global_concurrency(self._keys))

    def remove_global_concurrency(self) -> bool:
        """Lift the global concurrency; False when none was set."""
        return self.call(settings.remove_global_concurrency(self._keys)) > 0

    def is_maxed(self) -> bool:
        """Tell whether the queue's global concurrency is reached."""
        return self.call(queues.is_maxed(self._keys))

    def set_global_rate_limit(self, maximum: int, duration: Duration) -> None:
        """Let at most `maximum` jobs of the queue start per `duration` (milliseconds), over all workers."""
        duration_ms = to_ms("duration", duration)
        self.call(settings.set_global_rate_limit(self._keys, maximum, duration_ms))

    def get_global_rate_limit(self) -> Limiter | None:
        """Return the global rate limit, None when none is set."""
        return self.call(settings.get_global_rate_limit(self._keys))

    def remove_global_rate_limit(self) -> bool:
        """Lift the global rate limit; False when none was set."""
        return self.call(settings.remove_global_rate_limit(self._keys)) > 0

    def rate_limit(self, duration: Duration) -> None:
        """Limit the queue by hand for so long. Workers without a limiter look at it only after a `RateLimitError`."""
        duration_ms = to_ms("duration", duration)
        if duration_ms <= 0:
            raise UsageError("duration", duration, "must be greater than 0")
        with self._span("rateLimit", attributes={"bullmq.queue.rate.limit": duration_ms}):
            self.call(rate_limit(self._keys, ttl_ms=duration_ms))

    def get_rate_limit_ttl(self, maximum: int | None = None) -> Millis:
        """Return how long the queue is rate limited, in milliseconds; 0 or below: it is not."""
        if maximum is not None:
            check_whole("maximum", maximum, least=0)
        return self.call(queues.get_rate_limit_ttl(self._keys, maximum))

    def remove_rate_limit_key(self) -> bool:
        """End the running window of a rate limit, or a limit set by hand; False when there was none."""
        return self.call(cleaning.remove_rate_limit_key(self._keys)) > 0

    # --- deduplication ------------------------------------------------------------------------------------------------

    def get_deduplication_job_id(self, deduplication_id: str) -> str | None:
        """Return the id of the job that owns a deduplication id, None when it is free."""
        checked = check_name("deduplication_id", deduplication_id, max_length=None)
        return self.call(getters.get_deduplication_job_id(self._keys, checked))

    def remove_deduplication_key(self, deduplication_id: str) -> bool:
        """Let go of a deduplication id, so that the next job with it is added; False when it was free."""
        checked = check_name("deduplication_id", deduplication_id, max_length=None)
        with self._span("removeDeduplicationKey", attributes={"bullmq.job.deduplication.key": checked}):
            return self.call(cleaning.remove_deduplication_key(self._keys, checked)) > 0

    # --- schedulers ---------------------------------------------------------------------------------------------------

    def upsert_job_scheduler(
        self,
        scheduler_id: str,
        repeat: RepeatOptions,
        name: str | None = None,
        data: Any = UNSET,
        options: JobOptions | None = None,
    ) -> Job[T] | None:
        """Create or replace a job scheduler and its next job; None, with nothing written, when it would have no run.

        Its jobs have this name (default: its id), data and options, over the queue's defaults. A job that is not
        taken yet is replaced, and keeps its slot. Raises `UsageError` (`CronError` for the pattern) before anything
        is sent, `SchedulerIdTaken`, `SchedulerSlotsTaken`.
        """
        check_name("scheduler_id", scheduler_id, max_length=None)
        if options is not None and not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("options", options, "must be a JobOptions, such as JobOptions(delay=1000)")
        template = NewJob(scheduler_id if name is None else name, data, JobOptions() if options is None else options)
        place = f"{self.name}.{template.name}"
        named = {"bullmq.job.scheduler.id": scheduler_id}
        with self._span("add", "producer", destination=place, attributes=named) as span:
            prepared = prepare_scheduler(
                self._keys,
                scheduler_id,
                repeat,
                template,
                defaults=self._defaults,
                limits=self._limits,
                now_ms=clock().wall,
                zones=find_zone,
                data_type=self._data_type,
                metadata=None if self._tracing is None else span.metadata() or None,
            )
            if prepared is None:
                return None
            for warning in prepared.warnings:
                _log.warning("queue %s, job scheduler %s: %s", self.name, without_login(scheduler_id), warning)
            record = self.run(upsert_scheduler(self._keys, prepared))
            span.set_attributes({"bullmq.job.id": record.id})
            return self._job(record)

    def get_job_scheduler(self, scheduler_id: str) -> JobScheduler | None:
        """Read a job scheduler, or a repeatable job by its key; None when there is none."""
        checked = check_name("scheduler_id", scheduler_id, max_length=None)
        return self.call(schedulers.get_job_scheduler(self._keys, checked))

    def get_job_schedulers(self, start: int = 0, end: int = -1, asc: bool = False) -> list[JobScheduler]:
        """Read job schedulers by the order of their next jobs, both ends included; `asc`: next due first.

        Repeatable jobs of older clients are among them.
        """
        check_flag("asc", asc)
        return self.run(get_job_schedulers(self._keys, start=start, end=end, ascending=asc))

    def get_job_schedulers_count(self) -> int:
        """Count job schedulers, and the repeatable jobs of older clients."""
        return self.call(schedulers.count_job_schedulers(self._keys))

    def remove_job_scheduler(self, scheduler_id: str) -> bool:
        """Remove a job scheduler, and its next job if that is delayed; False when there is none."""
        checked = check_name("scheduler_id", scheduler_id, max_length=None)
        return self.call(schedulers.remove_job_scheduler(self._keys, checked))

    def get_repeatable_jobs(self, start: int = 0, end: int = -1, asc: bool = False) -> list[JobScheduler]:
        """Return the same as `get_job_schedulers`, for the sake of older programs."""
        return self.get_job_schedulers(start, end, asc)

    def remove_repeatable(self, name: str, repeat: RepeatOptions, job_id: str | None = None) -> bool:
        """Remove a repeatable job of an older client, with its delayed job; False when there is none.

        It is found by what it was added with: name, `every` or `pattern`, `tz`, `end_date`, and its id.
        """
        if not isinstance(repeat, RepeatOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("repeat", repeat, "must be a RepeatOptions")
        named = {"bullmq.job.name": name, **({} if job_id is None else {"bullmq.job.id": job_id})}
        with self._span("removeRepeatable", destination=f"{self.name}.{name}", attributes=named):
            key = schedulers.repeatable_key(name, repeat, job_id)
            return self.call(schedulers.remove_repeatable(self._keys, key))

    def remove_repeatable_by_key(self, key: str) -> bool:
        """Remove a repeatable job of an older client, or a job scheduler, by its key; False when there is none."""
        checked = check_name("key", key, max_length=None)
        with self._span("removeRepeatableByKey", attributes={"bullmq.job.key": checked}):
            return self.call(schedulers.remove_repeatable_by_key(self._keys, checked))

    # --- who else is there --------------------------------------------------------------------------------------------

    def get_version(self) -> str | None:
        """Return the library and version that last opened the queue."""
        return self.call(queues.get_version(self._keys))

    def get_workers(self) -> list[dict[str, str]]:
        """List the workers of this queue, of every library: attributes of CLIENT LIST; `rawname` ends with the worker's
        name."""
        return self.call(queues.get_workers(self._keys))

    def get_workers_count(self) -> int:
        """Count the workers of this queue, of every library."""
        return len(self.get_workers())

    def get_queue_events(self) -> list[dict[str, str]]:
        """List the programs that listen to the queue's events, as `get_workers` does."""
        return self.call(queues.get_queue_events(self._keys))

    def remove_deprecated_priority_key(self) -> bool:
        """Remove the key that very old versions of BullMQ used for priorities; False when there was none."""
        return self.call(cleaning.remove_deprecated_priority_key(self._keys)) > 0

    # --- within -------------------------------------------------------------------------------------------------------

    def _prepare(self, job: NewJob) -> PreparedJob:
        if not isinstance(job, NewJob):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("job", job, "must be a NewJob(name, data, options)")
        return self._prepared(job.name, job.data, job.options)

    def _prepare_all(self, jobs: Sequence[NewJob]) -> list[PreparedJob]:
        prepared: list[PreparedJob] = []
        try:
            for job in jobs:
                prepared.append(self._prepare(job))  # noqa: PERF401
        except UsageError as error:
            # As many are right as come before the wrong one.
            raise UsageError(f"jobs[{len(prepared)}]: {error.field}", error.value, error.rule) from None
        return prepared

    def _prepared(self, name: str, data: Any, options: JobOptions) -> PreparedJob:
        key = (name, id(options)) if type(name) is str else None
        known = self._moulds.get(key)
        if known is None:
            mould = self._mould(name, options)
            if mould.lasting and key is not None:
                if len(self._moulds) >= _MOST_MOULDS:
                    self._moulds.clear()
                # With the options, so that no others get their identity.
                self._moulds[key] = mould, options
        else:
            mould = known[0]
        for warning in mould.model.warnings:
            _log.warning("queue %s, job %s: %s", self.name, without_login(name), warning)
        return mould.prepare(data, time_ns() // 1_000_000)

    def _mould(self, name: str, options: JobOptions) -> Mould:
        if not isinstance(options, JobOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("options", options, "must be a JobOptions, such as JobOptions(delay=1000)")
        checked = check_options(self._defaults, options, limits=self._limits)
        if checked.options.repeat is not UNSET:
            raise UsageError("repeat", checked.options.repeat, "is for schedulers: use upsert_job_scheduler")
        return mould_of(self._keys, name, checked, limits=self._limits, data_type=self._data_type)

    def _job(self, record: JobRecord) -> Job[T]:
        return Job(record, self._keys, self._transport, self._data_type, limits=self._limits)

    def _jobs(self, records: Sequence[JobRecord]) -> list[Job[T]]:
        return [self._job(record) for record in records]


def _id(job_id: object) -> str:
    return check_name("job_id", job_id, max_length=None)


def _named(states: str | Sequence[str]) -> Sequence[str]:
    return (states,) if isinstance(states, str) else listed("states", states)


def _row(row: object) -> str:
    if not isinstance(row, str):
        raise UsageError("row", row, "must be a string")
    return row
