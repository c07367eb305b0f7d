"""One job, as a queue returns it and as a processor gets it."""

from __future__ import annotations

from typing import Any, Generic, Literal, NoReturn, TypeVar, overload

from msgspec import UNSET

from bullmq_anyio.base import Items, JobBase
from bullmq_anyio.events import QueueEvents
from bullmq_anyio.generics import R, S
from bullmq_protocol.commands import jobs as commands
from bullmq_protocol.commands.cleaning import (
    clear_logs,
    remove_child_dependency,
    remove_own_deduplication_key,
    remove_unprocessed_children,
)
from bullmq_protocol.commands.finishing import move_job_from_active_to_wait, move_to_delayed
from bullmq_protocol.commands.getters import (
    Dependencies,
    JobLogs,
    get_children_values,
    get_dependency_counts,
    get_ignored_failures,
    is_in_list,
    is_in_set,
)
from bullmq_protocol.commands.jobs import FinishedState
from bullmq_protocol.commands.locks import extend_lock
from bullmq_protocol.commands.moving import (
    change_delay,
    change_priority,
    move_to_waiting_children,
    promote,
    reprocess_job,
)
from bullmq_protocol.common.codec import json_text, plain_text
from bullmq_protocol.common.keys import check_name
from bullmq_protocol.common.payloads import DataType, payload_type
from bullmq_protocol.common.units import Duration, Millis, check_flag, check_whole, to_ms
from bullmq_protocol.errors import JobNotFound, ParentNotFound, RetriedInPart, ServerError, UsageError, shown
from bullmq_protocol.events.waiters import check_reader
from bullmq_protocol.model.job import JobRecord
from bullmq_protocol.model.options import JobOptions, ParentRef, within_size
from bullmq_protocol.operations.read_dependencies import (
    Cursor,
    DependenciesPage,
    Dependency,
    DependencyKind,
    DependencyPages,
    get_dependencies,
    get_dependencies_page,
)
from bullmq_protocol.operations.read_logs import LogPages, get_job_logs

T = TypeVar("T")
V = TypeVar("V")

NO_TOKEN = "0"
"""Makes the scripts check no lock."""


class Job(JobBase, Generic[T, R, S]):
    """A job and its methods. Its values are those at the time when it was read; see `refresh`.

    Queues, flow producers and workers create jobs, and a processor gets one. Times are in milliseconds since the epoch,
    durations in milliseconds. Every call raises `TransportError` when the connection fails, `ServerError` when the
    server refuses the call, and `UsageError` for a bad argument before anything is sent. The methods list further
    errors.

    A value changes only when the server has accepted the change. `record` has every field as it was read; `token` is
    the token of the job's lock, or None if no worker took the job. For type checkers, `Job[Mail, int, Pools]` has the
    payload `Mail`, the result `int` and the `state` `Pools`; the last two may be omitted.

    Source: specs/01-data-model-and-adding.md#sec-3

    Examples:
        >>> job.name, job.data, job.attempts_made
        ('welcome', {'to': 'ada'}, 0)
    """

    def __repr__(self) -> str:
        return f"Job(id={shown(self.id)}, name={shown(self.name)}, queue={self.queue_name!r})"

    @property
    def id(self) -> str:
        """The job's id, unique within its queue."""
        return self.record.id

    @property
    def key(self) -> str:
        """The key of the job's hash in Redis; parents and children name each other by it."""
        return self._keys.job(self.id)

    @property
    def ref(self) -> ParentRef:
        """This job as the parent of others: `JobOptions(parent=job.ref)` adds a child to it."""
        return ParentRef(self.id, self._keys.qualified)

    @property
    def added(self) -> bool | None:
        """Whether `add` added this job. If False, a job existed already: this one has its `id`, and everything else as
        given to `add`; `refresh` reads the existing job.

        The reply to the add says this. With BullMQ's own scripts, and in flows, an existing job with the same id, or
        the owner of the deduplication id, is looked up in the same round trip, just before the add, so what others do
        between the two goes unnoticed. It is True for ids from the queue's counter, and None if it is unknown: for jobs
        that were read or taken, for those of job schedulers, and if the server refuses the look-up.
        """
        return self._added

    @property
    def name(self) -> str:
        """The kind of job."""
        return self.record.name

    @property
    def queue_name(self) -> str:
        """The name of the job's queue."""
        return self._keys.name

    @property
    def data(self) -> T:
        """The payload, as the `data_type` of the queue or worker. Raises `msgspec.DecodeError` if it does not fit."""
        if self._payload is UNSET:
            self._payload = self.record.data_as(self._data_type)
        data: T = self._payload
        return data

    @data.setter
    def data(self, value: object) -> NoReturn:
        raise UsageError("data", value, "cannot be assigned: call update_data, which also stores it")

    @property
    def opts(self) -> JobOptions:
        """The options stored with the job."""
        return self.record.opts

    @property
    def timestamp(self) -> Millis | None:
        """When the job was created, in milliseconds since the epoch; None if that is not stored."""
        return self.record.timestamp

    @property
    def delay(self) -> Millis:
        """How long the job waits before it may run, in milliseconds; 0 if it does not wait."""
        return self.record.delay or 0

    @property
    def priority(self) -> int:
        """From 1, the most urgent, to 2,097,151 or more; 0 for no priority, which runs before all others."""
        return self.record.priority or 0

    @property
    def attempts_made(self) -> int:
        """How many attempts have finished."""
        return self.record.attempts_made

    @property
    def attempts_started(self) -> int:
        """How many attempts have started."""
        return self.record.attempts_started

    @property
    def stalled_counter(self) -> int:
        """How often the job returned to the queue because its worker let the lock expire."""
        return self.record.stalled_counter

    @property
    def processed_on(self) -> Millis | None:
        """When a worker took the job last, in milliseconds since the epoch; None before."""
        return self.record.processed_on

    @property
    def finished_on(self) -> Millis | None:
        """When the job completed or failed for good, in milliseconds since the epoch; None before."""
        return self.record.finished_on

    @property
    def processed_by(self) -> str | None:
        """The name of the worker that took the job last; None if the worker has none."""
        return self.record.processed_by

    @property
    def progress(self) -> Any:
        """The last progress reported, as JSON values; 0 before the first report. Raises `PayloadError` if it is not
        JSON."""
        return self.record.progress

    @property
    def returnvalue(self) -> Any:
        """What the processor returned, as JSON values; None before, or if it is not JSON."""
        return self.record.returnvalue

    @property
    def failed_reason(self) -> str | None:
        """The text of the last failure; None without one."""
        return self.record.failed_reason

    @property
    def stacktrace(self) -> list[Any]:
        """The stack traces of failed attempts, one text each, the oldest first."""
        return self.record.stacktrace

    @property
    def parent_key(self) -> str | None:
        """The key of the parent's hash; None without a parent."""
        return self.record.parent_key

    @property
    def repeat_job_key(self) -> str | None:
        """The id of the job scheduler that made the job; None if none did."""
        return self.record.repeat_job_key

    @property
    def deduplication_id(self) -> str | None:
        """The deduplication id that the job was added with; None without one."""
        return self.record.deduplication_id

    @property
    def state(self) -> S:
        """In a processor, the value that the worker's lifespan yields. Raises `UsageError` if there is none."""
        if self._state is UNSET:
            raise UsageError("state", self.id, "is in the processors of a worker with lifespan=... alone")
        state: S = self._state
        return state

    @property
    def discarded(self) -> bool:
        """Whether `discard` was called."""
        return self._discarded

    async def update_progress(self, value: Any, *, strict: bool = False) -> None:
        """Store the job's progress and announce it to the readers of events.

        Args:
            value: Any value with a JSON form, up to `Limits.max_payload_bytes`.
            strict: True allows only whole numbers from 0 to 100. False by default.

        Raises:
            JobNotFound: The job no longer exists.

        Source: specs/03-transitions-admin-getters.md#update-progress

        Examples:
            >>> await job.update_progress({"sent": 2, "of": 5})
            >>> job.progress
            {'sent': 2, 'of': 5}
        """
        if check_flag("strict", strict) and (type(value) is not int or not 0 <= value <= 100):
            raise UsageError("progress", value, "must be a whole number from 0 to 100")
        text = within_size("progress", json_text(value, field="progress"), self._limits)
        await self._perform(commands.update_progress(self._keys, self.id, text))
        self._note(progress=text)

    async def update_data(self, data: T) -> None:
        """Replace the job's payload.

        Args:
            data: The new payload: any value with a JSON form, up to `Limits.max_payload_bytes`, of the `data_type` of
                the queue or worker.

        Raises:
            JobNotFound: The job no longer exists.

        Source: specs/03-transitions-admin-getters.md#update-data

        Examples:
            >>> await job.update_data({"to": "grace"})
            >>> job.data
            {'to': 'grace'}
        """
        payload = payload_type("data_type", self._data_type)
        text = within_size("data", json_text(data) if payload is None else payload.checked("data", data), self._limits)
        await self._perform(commands.update_data(self._keys, self.id, text))
        self._note(data=text)

    # --- log ----------------------------------------------------------------------------------------------------------

    async def log(self, row: str) -> int:
        """Append a row to the job's log. The job's option `keep_logs` limits how many rows are kept.

        Args:
            row: The text, up to `Limits.max_payload_bytes`.

        Returns:
            How many rows the log has now.

        Raises:
            JobNotFound: The job no longer exists.

        Source: specs/03-transitions-admin-getters.md#add-log

        Examples:
            >>> await job.log("looked up the address")
            1
        """
        if not isinstance(row, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("row", row, "must be a string")
        text = within_size("row", plain_text(row), self._limits)
        keep = self.record.opts.keep_logs
        kept = int(keep) if isinstance(keep, (int, float)) else 0
        return await self._perform(commands.add_log(self._keys, self.id, text, keep_logs=max(kept, 0)))

    async def get_logs(self, start: int = 0, end: int = -1, asc: bool = True) -> JobLogs:
        """Read rows of the job's log, and the number of rows in it.

        Args:
            start: The first row, 0 by default; a negative one counts from the end.
            end: The last row, inclusive; -1, the end, by default.
            asc: True, the default: the oldest row first. False: the newest first, and positions count from it.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await job.log("looked up the address")
            1
            >>> await job.get_logs()
            JobLogs(logs=['looked up the address'], count=1)
        """
        check_flag("asc", asc)
        return await self._run(get_job_logs(self._keys, self.id, start=start, end=end, ascending=asc))

    def iter_logs(self, page_size: int = 1000, asc: bool = True) -> Items[str]:
        """Read all rows of the job's log, a page at a time.

        Args:
            page_size: Rows per round trip, at least 1; 1,000 by default.
            asc: True, the default: the oldest row first. False: the newest first.

        Returns:
            An iterator over the rows; its `rest` is the plan of the remaining pages.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await job.log("looked up the address")
            1
            >>> async for row in job.iter_logs():
            ...     print(row)
            looked up the address
        """
        check_whole("page_size", page_size, least=1)
        check_flag("asc", asc)
        return Items(self._pages(LogPages(job_id=self.id, page_size=page_size, ascending=asc)), list)

    async def clear_logs(self, keep_logs: int = 0) -> None:
        """Remove rows of the job's log.

        Args:
            keep_logs: How many of the newest rows to keep; 0 by default.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await job.clear_logs()
        """
        await self._perform(clear_logs(self._keys, self.id, keep=check_whole("keep_logs", keep_logs, least=0)))

    # --- state --------------------------------------------------------------------------------------------------------

    async def get_state(self) -> str:
        """Return the job's state: `completed`, `failed`, `delayed`, `prioritized`, `active`, `waiting` or
        `waiting-children`; `unknown` if it is in none of them or does not exist.

        Source: specs/03-transitions-admin-getters.md#get-state

        Examples:
            >>> await job.get_state()
            'waiting'
        """
        return await self._perform(commands.get_state(self._keys, self.id))

    async def finished_state(self) -> FinishedState:
        """Tell whether the job has finished, and how.

        Returns:
            `status` is `completed`, `failed` or `pending`; `value` is the JSON text of the result or the text of the
                failure.

        Raises:
            JobNotFound: The job no longer exists.

        Source: specs/03-transitions-admin-getters.md#is-finished

        Examples:
            >>> await completed.finished_state()
            FinishedState(status='completed', value='"sent to ada"')
        """
        return await self._perform(commands.is_finished(self._keys, self.id))

    async def is_completed(self) -> bool:
        """Tell whether the job is completed.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await completed.is_completed()
            True
        """
        return await self._perform(is_in_set(self._keys.completed, self.id))

    async def is_failed(self) -> bool:
        """Tell whether the job has failed for good.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await failed.is_failed()
            True
        """
        return await self._perform(is_in_set(self._keys.failed, self.id))

    async def is_delayed(self) -> bool:
        """Tell whether the job is delayed.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await delayed.is_delayed()
            True
        """
        return await self._perform(is_in_set(self._keys.delayed, self.id))

    async def is_waiting_children(self) -> bool:
        """Tell whether the job waits for its children.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await parent.is_waiting_children()
            True
        """
        return await self._perform(is_in_set(self._keys.waiting_children, self.id))

    async def is_active(self) -> bool:
        """Tell whether the job is active.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await active.is_active()
            True
        """
        return await self._perform(is_in_list(self._keys.active, self.id))

    async def is_waiting(self) -> bool:
        """Tell whether the job is waiting, also in a paused queue. A prioritized job is not.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await job.is_waiting()
            True
        """
        waiting = await self._perform(is_in_list(self._keys.wait, self.id))
        return waiting or await self._perform(is_in_list(self._keys.paused, self.id))

    @overload
    async def wait_until_finished(
        self, queue_events: QueueEvents, timeout: Duration | None = None, *, result_type: None = None
    ) -> R: ...
    @overload
    async def wait_until_finished(
        self, queue_events: QueueEvents, timeout: Duration | None = None, *, result_type: DataType[V]
    ) -> V: ...
    async def wait_until_finished(
        self, queue_events: QueueEvents, timeout: Duration | None = None, *, result_type: Any = None
    ) -> Any:
        """Wait until the job has finished, and return its result.

        Args:
            queue_events: A running `QueueEvents` of the job's queue; one serves any number of callers.
            timeout: How long to wait at most, in milliseconds or as a `timedelta`. None, the default: no limit.
            result_type: The type to read the result into, of any kind that a queue's `data_type` may be. None, the
                default: that of the `JobType` it was added with, else JSON values.

        Raises:
            JobFailedError: The job failed for good.
            JobNotFound: The job was removed.
            WaitTimeout: It did not finish in time; it may still finish later.
            Closed: `queue_events` has been closed.
            PayloadMismatch: The result is not of `result_type`.

        Source: specs/04-schedulers-flows-events.md#sec-10

        Examples:
            >>> async with events, worker:
            ...     print(await job.wait_until_finished(events, timeout=10_000))
            sent to ada
        """
        check_reader(queue_events, QueueEvents, self._keys)
        kind = self._result_type if result_type is None else result_type
        return await queue_events.wait_until_finished(self.id, timeout, result_type=kind)

    # --- moves --------------------------------------------------------------------------------------------------------

    async def retry(
        self,
        state: Literal["failed", "completed"] = "failed",
        *,
        reset_attempts_made: bool = False,
        reset_attempts_started: bool = False,
    ) -> None:
        """Run the finished job again: move it to wait, or to prioritized if it has a priority; with the profile
        `STRICT` always to wait.

        Args:
            state: The state it is in: `failed`, the default, or `completed`.
            reset_attempts_made: True resets `attempts_made`, so the job has all its attempts again. False by default;
                the profile `STRICT` refuses True.
            reset_attempts_started: True resets `attempts_started`. False by default; the profile `STRICT` refuses True.

        Raises:
            JobNotFound: The job no longer exists.
            WrongState: The job is not in this state.
            RetriedInPart: The job waits again, but its parent ignores the failure of this child: there the scripts of
                `STRICT` stop, as those of BullMQ 5.62.0 do.

        Source: specs/03-transitions-admin-getters.md#reprocess-job

        Examples:
            >>> await failed.retry()
            >>> await failed.get_state()
            'waiting'
        """
        retrying = reprocess_job(
            self._keys,
            self.id,
            state=state,
            lifo=self.record.opts.lifo is True,
            reset_attempts_made=reset_attempts_made,
            reset_attempts_started=reset_attempts_started,
        )
        try:
            await self._perform(retrying)
        except ServerError as error:
            parent_key = self.record.parent_key
            if error.code != "WRONGTYPE" or parent_key is None or await self.get_state() in ("failed", "completed"):
                raise
            self._note(finishedOn="", processedOn="", failedReason="", returnvalue="")
            raise RetriedInPart(self.id, parent_key) from error
        gone = {"atm": ""} if reset_attempts_made else {}
        gone |= {"ats": ""} if reset_attempts_started else {}
        self._note(finishedOn="", processedOn="", failedReason="", returnvalue="", **gone)

    async def promote(self) -> None:
        """Make the delayed job ready now.

        Raises:
            WrongState: The job is not delayed.

        Source: specs/03-transitions-admin-getters.md#promote

        Examples:
            >>> await delayed.promote()
            >>> await delayed.get_state()
            'waiting'
        """
        await self._perform(promote(self._keys, self.id))
        self._note(delay="0")

    async def change_delay(self, delay: Duration) -> None:
        """Change when the delayed job is due.

        Args:
            delay: How long from now, in milliseconds or as a `timedelta`, at least 0.

        Raises:
            JobNotFound: The job no longer exists.
            WrongState: The job is not delayed.

        Source: specs/03-transitions-admin-getters.md#change-delay

        Examples:
            >>> await delayed.change_delay(5_000)
            >>> delayed.delay
            5000
        """
        delay_ms = check_whole("delay", to_ms("delay", delay), least=0)
        await self._perform(change_delay(self._keys, self.id, delay=delay_ms, now=self._clock().wall))
        self._note(delay=str(delay_ms))

    async def change_priority(self, priority: int = 0, *, lifo: bool = False) -> None:
        """Change the job's priority. A waiting job moves to its new position.

        Args:
            priority: From 1, the most urgent, to 2,097,151 (2,097,152 with the profile `STRICT`). 0, the default: no
                priority, which runs before all others.
            lifo: True puts a waiting job before others with the same priority. False, the default, puts it behind them.

        Raises:
            JobNotFound: The job no longer exists.

        Source: specs/03-transitions-admin-getters.md#change-priority

        Examples:
            >>> await job.change_priority(2)
            >>> await job.get_state()
            'prioritized'
        """
        await self._perform(change_priority(self._keys, self.id, priority=priority, lifo=lifo))
        self._note(priority=str(priority))

    async def move_to_delayed(self, timestamp_ms: Millis, token: str | None = None) -> None:
        """Move the active job to delayed without counting the attempt. A processor then raises `DelayedError`.

        Args:
            timestamp_ms: When the job is due, in milliseconds since the epoch. A time in the past means now.
            token: The lock's token. None, the default: the job's own `token`, or none if no worker took the job.

        Raises:
            JobNotFound: The job no longer exists.
            LockMissing: The job has no lock: it expired, or the job is not active.
            LockMismatch: Another worker holds the job.
            WrongState: The job is not active.

        Source: specs/03-transitions-admin-getters.md#move-to-delayed

        Examples:
            >>> await active.move_to_delayed(active.timestamp + 60_000)
            >>> await active.get_state()
            'delayed'
        """
        now = self._clock().wall
        delay = max(to_ms("timestamp_ms", timestamp_ms) - now, 0)
        await self._perform(
            move_to_delayed(self._keys, self.id, token=self._token(token), now=now, delay=delay, count_attempt=False)
        )
        self._note(delay=str(delay))

    async def move_to_wait(self, token: str | None = None) -> Millis:
        """Return the active job to the queue without counting the attempt. A processor then raises `WaitingError`.

        Args:
            token: The lock's token. None, the default: the job's own `token`, or none if no worker took the job.

        Returns:
            How long the queue is rate limited, in milliseconds; 0 or less if it is not.

        Raises:
            JobNotFound: The job no longer exists.
            LockMissing: The job has no lock: it expired, or the job is not active.
            LockMismatch: Another worker holds the job.

        Source: specs/03-transitions-admin-getters.md#move-job-from-active-to-wait

        Examples:
            >>> limited_ms = await active.move_to_wait()
            >>> await active.get_state()
            'waiting'
        """
        return await self._perform(move_job_from_active_to_wait(self._keys, self.id, token=self._token(token)))

    async def move_to_waiting_children(self, token: str | None = None, *, child: str | None = None) -> bool:
        """Move the active job to waiting-children until its children have finished. If this returns True, a processor
        then raises `WaitingChildrenError`.

        Args:
            token: The lock's token. None, the default: that of the job, which it has if a worker took it.
            child: The `key` of the one child to wait for. None, the default: all of them.

        Returns:
            True if the job waits; False if there is nothing to wait for, and the job stays active.

        Raises:
            JobNotFound: The job no longer exists.
            LockMissing: The job has no lock: it expired, or the job is not active.
            LockMismatch: Another worker holds the job.
            WrongState: The job is not active.
            ChildFailed: A child has failed that fails its parent.

        Source: specs/03-transitions-admin-getters.md#move-to-waiting-children

        Examples:
            >>> await active.move_to_waiting_children()
            False
        """
        own = self.token if token is None else check_name("token", token)
        if own is None:
            raise UsageError("token", None, "is needed: the job was not taken by a worker")
        child_key = None if child is None else check_name("child", child, max_length=None)
        return await self._perform(
            move_to_waiting_children(self._keys, self.id, token=own, now=self._clock().wall, child_key=child_key)
        )

    async def extend_lock(self, duration: Duration) -> bool:
        """Extend the job's lock. A worker does this for the jobs in its processor.

        Args:
            duration: How long the lock lasts from now on, in milliseconds or as a `timedelta`, above 0.

        Returns:
            False if the lock is no longer the job's own.

        Source: specs/03-transitions-admin-getters.md#extend-lock

        Examples:
            >>> await active.extend_lock(30_000)
            True
        """
        duration_ms = to_ms("duration", duration)
        if duration_ms <= 0:
            raise UsageError("duration", duration, "must be greater than 0")
        return await self._perform(extend_lock(self._keys, self.id, token=self._token(None), lock_ms=duration_ms))

    def discard(self) -> None:
        """Make the next failure of this run final, however many attempts are left.

        Examples:
            >>> active.discard()
            >>> active.discarded
            True
        """
        self._discarded = True

    async def remove(self, *, remove_children: bool = True) -> bool:
        """Remove the job if it is not locked, with its data and its children.

        Args:
            remove_children: False keeps the job's children; True by default.

        Returns:
            False if the job or one of its children is locked; then nothing is removed.

        Raises:
            JobBelongsToScheduler: It is the next job of a job scheduler: use `Queue.remove_job_scheduler`.

        Source: specs/03-transitions-admin-getters.md#remove-job

        Examples:
            >>> await job.remove()
            True
        """
        check_flag("remove_children", remove_children)
        return await self._perform(commands.remove_job(self._keys, self.id, remove_children=remove_children)) == 1

    async def refresh(self) -> None:
        """Read the job again, to update its values.

        Raises:
            JobNotFound: The job no longer exists.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> await job.refresh()
        """
        record = await self._perform(commands.get_job(self._keys, self.id))
        if record is None:
            raise JobNotFound("refresh", job_id=self.id)
        self._replace(record)

    async def remove_deduplication_key(self) -> bool:
        """Free the job's deduplication id, so that the next job with it is added. The job is unaffected.

        Returns:
            False if the job has none, or if another job owns it now.

        Source: specs/06-later-versions.md#sec-4-2-7

        Examples:
            >>> report = await queue.add("report", options=JobOptions(deduplication=Deduplication("daily")))
            >>> await report.remove_deduplication_key()
            True
        """
        deduplication_id = self.deduplication_id
        if deduplication_id is None:
            return False
        return await self._perform(remove_own_deduplication_key(self._keys, deduplication_id, self.id))

    # --- children and parent ------------------------------------------------------------------------------------------

    async def get_children_values(self) -> dict[str, Any]:
        """Return what the completed children returned, by the children's keys.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> values = await parent.get_children_values()
            >>> list(values.values())
            [250]
        """
        return await self._perform(get_children_values(self._keys, self.id))

    async def get_ignored_children_failures(self) -> dict[str, str]:
        """Return the texts of the failures of children that this job ignores, by the children's keys.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> failures = await parent.get_ignored_children_failures()
            >>> list(failures.values())
            ['torn out']
        """
        return await self._perform(get_ignored_failures(self._keys, self.id))

    async def get_failed_children_values(self) -> dict[str, str]:
        """Return the same as `get_ignored_children_failures`; BullMQ has both names.

        Source: specs/03-transitions-admin-getters.md#sec-10

        Examples:
            >>> failures = await parent.get_failed_children_values()
            >>> list(failures.values())
            ['torn out']
        """
        return await self.get_ignored_children_failures()

    async def get_dependencies(self) -> Dependencies:
        """Read all children in one step.

        Returns:
            The results of completed children, by key (`processed`); the keys of unfinished ones (`unprocessed`); the
                texts of ignored failures, by key (`ignored`); and the keys of children whose failure fails this job
                (`failed`).

        Source: specs/03-transitions-admin-getters.md#sec-12-4

        Examples:
            >>> children = await parent.get_dependencies()
            >>> len(children.processed), len(children.unprocessed), len(children.ignored)
            (1, 1, 1)
        """
        return await self._run(get_dependencies(self._keys, self.id))

    async def get_dependencies_page(
        self,
        *,
        processed: Cursor | None = None,
        unprocessed: Cursor | None = None,
        ignored: Cursor | None = None,
        failed: Cursor | None = None,
    ) -> DependenciesPage:
        """Read one page of children of each kind that is given a cursor. The next page begins at the cursor of this
        one; if that is 0, there is none.

        Args:
            processed: Where to continue among the completed children, and about how many to read: `Cursor(cursor=0,
                count=20)`. None, the default: none of them.
            unprocessed: The same for unfinished children; None by default.
            ignored: The same for children whose failure is ignored; None by default.
            failed: The same for children whose failure fails this job; None by default.

        Returns:
            A page for each kind that was requested, None for the others.

        Source: specs/03-transitions-admin-getters.md#sec-12-4

        Examples:
            >>> page = await parent.get_dependencies_page(unprocessed=Cursor(count=100))
            >>> len(page.unprocessed.children), page.unprocessed.cursor
            (1, 0)
        """
        return await self._run(
            get_dependencies_page(
                self._keys,
                self.id,
                processed=processed,
                unprocessed=unprocessed,
                ignored=ignored,
                failed=failed,
            )
        )

    def iter_dependencies(self, kind: DependencyKind, page_size: int = 100) -> Items[Dependency]:
        """Read all children of one kind, a page at a time. A child may appear twice if others are added or removed
        meanwhile.

        Args:
            kind: `processed`, `unprocessed`, `ignored` or `failed`; see `get_dependencies`.
            page_size: About how many children per round trip, at least 1; 100 by default.

        Returns:
            An iterator over the children, each with its `key` and the `value` of its kind; its `rest` is the plan of
                the remaining pages.

        Source: specs/03-transitions-admin-getters.md#sec-12-4

        Examples:
            >>> async for each in parent.iter_dependencies("processed"):
            ...     print(each.value)
            250
        """
        plan = DependencyPages(job_id=self.id, kind=kind, page_size=page_size)
        return Items(self._pages(plan.checked()), list)

    async def get_dependencies_count(self, *kinds: DependencyKind) -> dict[str, int]:
        """Count the children of each of these kinds.

        Args:
            kinds: `processed`, `unprocessed`, `ignored` or `failed`; see `get_dependencies`. Without any: all four.

        Returns:
            The number of children by kind.

        Source: specs/03-transitions-admin-getters.md#get-dependency-counts

        Examples:
            >>> await parent.get_dependencies_count("processed", "unprocessed")
            {'processed': 1, 'unprocessed': 1}
        """
        return await self._perform(get_dependency_counts(self._keys, self.id, kinds))

    async def remove_child_dependency(self) -> bool:
        """Break the job's link to its parent. If this was the last child that the parent waited for, the parent is
        released.

        Returns:
            False if there was no link.

        Raises:
            JobNotFound: The job no longer exists.
            ParentNotFound: The parent does not exist, or the job has none.

        Source: specs/03-transitions-admin-getters.md#remove-child-dependency

        Examples:
            >>> await child.remove_child_dependency()
            True
        """
        parent_key = self.record.parent_key
        if parent_key is None:
            # Asked for the key "" a server refuses users whose rules have no place for it.
            raise ParentNotFound("removeChildDependency", job_id=self.id)
        unlinked = await self._perform(remove_child_dependency(self._keys, self.id, parent_key))
        if unlinked:
            self._replace(self.record.without_parent())
        return unlinked

    async def remove_unprocessed_children(self) -> None:
        """Remove all unfinished children, and their children, except locked ones.

        Source: specs/03-transitions-admin-getters.md#remove-unprocessed-children

        Examples:
            >>> await parent.remove_unprocessed_children()
            >>> await parent.get_dependencies_count("unprocessed")
            {'unprocessed': 0}
        """
        await self._perform(remove_unprocessed_children(self._keys, self.id))

    # --- within -------------------------------------------------------------------------------------------------------

    def _token(self, token: str | None) -> str:
        return (self.token or NO_TOKEN) if token is None else check_name("token", token)

    def _note(self, **texts: str) -> None:
        """Take over the written values, field by field; an empty text is a field that is gone."""
        fields = {**self.record.fields, **{field: text.encode() for field, text in texts.items()}}
        self._replace(JobRecord(self.record.id, {field: value for field, value in fields.items() if value}))

    def _replace(self, record: JobRecord) -> None:
        self.record = record
        self._payload = UNSET
