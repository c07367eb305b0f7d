"""One job, as a queue returns it and as a processor gets it."""

from __future__ import annotations

from typing import Any, Generic, Literal, NoReturn, TypeVar

from msgspec import UNSET

from bullmq_protocol.commands import jobs as commands
from bullmq_protocol.commands.cleaning import clear_logs, remove_child_dependency, remove_unprocessed_children
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
from bullmq_protocol.common.codec import json_text
from bullmq_protocol.common.keys import check_name
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
from bullmq_sync.base import Items, JobBase
from bullmq_sync.drive import clock
from bullmq_sync.events import QueueEvents

T = TypeVar("T")

NO_TOKEN = "0"
"""Makes the scripts check no lock."""


class Job(JobBase, Generic[T]):
    """A job and what can be done with it. Its values are those of the moment it was read; see `refresh`.

    Moments and durations are milliseconds. Methods raise `JobNotFound` where the job is gone, `TransportError` where
    the connection is, `UsageError` for a bad argument, and those that need the job's lock also `LockMissing` and
    `LockMismatch`.
    """

    def __repr__(self) -> str:
        return f"Job(id={shown(self.id)}, name={shown(self.name)}, queue={self.queue_name!r})"

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def key(self) -> str:
        """The key of its hash in Redis, which is how parents and children name each other."""
        return self._keys.job(self.id)

    @property
    def ref(self) -> ParentRef:
        """This job as the parent of others: `JobOptions(parent=job.ref)` adds a child to it."""
        return ParentRef(self.id, self._keys.qualified)

    @property
    def added(self) -> bool | None:
        """Whether `add` added this job: False for one that gave way to an existing job, whose id it has then, while all
        else is as given (`refresh` reads that job).

        An id of its own, or the owner of its deduplication id, is looked at in the same round trip, just before: what
        others do between the two is not seen. True for ids of the queue's counter; None where nothing tells: for jobs
        that were read or taken, for those of job schedulers, and where the server refuses the look.
        """
        return self._added

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def queue_name(self) -> str:
        return self._keys.name

    @property
    def data(self) -> T:
        """The payload, in the type the queue or worker was given. Raises `msgspec.DecodeError` if it does not fit."""
        if self._payload is UNSET:
            self._payload = self.record.data_as(self._data_type)
        data: T = self._payload
        return data

    @data.setter
    def data(self, value: object) -> NoReturn:
        raise UsageError("data", value, "cannot be assigned: call update_data, which also stores it")

    @property
    def opts(self) -> JobOptions:
        return self.record.opts

    @property
    def timestamp(self) -> Millis | None:
        return self.record.timestamp

    @property
    def delay(self) -> Millis:
        return self.record.delay or 0

    @property
    def priority(self) -> int:
        return self.record.priority or 0

    @property
    def attempts_made(self) -> int:
        return self.record.attempts_made

    @property
    def attempts_started(self) -> int:
        return self.record.attempts_started

    @property
    def stalled_counter(self) -> int:
        return self.record.stalled_counter

    @property
    def processed_on(self) -> Millis | None:
        return self.record.processed_on

    @property
    def finished_on(self) -> Millis | None:
        return self.record.finished_on

    @property
    def processed_by(self) -> str | None:
        return self.record.processed_by

    @property
    def progress(self) -> Any:
        return self.record.progress

    @property
    def returnvalue(self) -> Any:
        return self.record.returnvalue

    @property
    def failed_reason(self) -> str | None:
        return self.record.failed_reason

    @property
    def stacktrace(self) -> list[Any]:
        return self.record.stacktrace

    @property
    def parent_key(self) -> str | None:
        return self.record.parent_key

    @property
    def repeat_job_key(self) -> str | None:
        return self.record.repeat_job_key

    @property
    def deduplication_id(self) -> str | None:
        return self.record.deduplication_id

    @property
    def discarded(self) -> bool:
        """Whether `discard` was called."""
        return self._discarded

    def update_progress(self, value: Any, *, strict: bool = False) -> None:
        """Store the progress, any JSON value, and tell it to listeners. `strict`: a whole number from 0 to 100 only."""
        if check_flag("strict", strict) and (type(value) is not int or not 0 <= value <= 100):
            raise UsageError("progress", value, "must be a whole number from 0 to 100")
        text = within_size("progress", json_text(value, field="progress"), self._limits)
        self._perform(commands.update_progress(self._keys, self.id, text))
        self._note(progress=text)

    def update_data(self, data: T) -> None:
        """Replace the payload."""
        text = within_size("data", json_text(data), self._limits)
        self._perform(commands.update_data(self._keys, self.id, text))
        self._note(data=text)

    # --- log ----------------------------------------------------------------------------------------------------------

    def log(self, row: str) -> int:
        """Append a row to the job's log; return how many it has. The job's option `keep_logs` trims it."""
        if not isinstance(row, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("row", row, "must be a string")
        within_size("row", row, self._limits)
        keep = self.record.opts.keep_logs
        kept = int(keep) if isinstance(keep, (int, float)) else 0
        return self._perform(commands.add_log(self._keys, self.id, row, keep_logs=max(kept, 0)))

    def get_logs(self, start: int = 0, end: int = -1, asc: bool = True) -> JobLogs:
        """Read rows of the log, and how many there are; not `asc`: counted from the newest, the newest first."""
        check_flag("asc", asc)
        return self._run(get_job_logs(self._keys, self.id, start=start, end=end, ascending=asc))

    def iter_logs(self, page_size: int = 1000, asc: bool = True) -> Items[str]:
        """Read all rows of the log, `page_size` at a time; not `asc`: the newest first."""
        check_whole("page_size", page_size, least=1)
        check_flag("asc", asc)
        return Items(self._pages(LogPages(job_id=self.id, page_size=page_size, ascending=asc)), list)

    def clear_logs(self, keep_logs: int = 0) -> None:
        """Remove the rows of the log but the newest `keep_logs`."""
        self._perform(clear_logs(self._keys, self.id, keep=check_whole("keep_logs", keep_logs, least=0)))

    # --- state --------------------------------------------------------------------------------------------------------

    def get_state(self) -> str:
        """Return the state, as `Queue.get_job_state` does."""
        return self._perform(commands.get_state(self._keys, self.id))

    def finished_state(self) -> FinishedState:
        """Tell whether the job is finished, with its result as stored."""
        return self._perform(commands.is_finished(self._keys, self.id))

    def is_completed(self) -> bool:
        """Tell whether the job is completed."""
        return self._perform(is_in_set(self._keys.completed, self.id))

    def is_failed(self) -> bool:
        """Tell whether the job has failed for good."""
        return self._perform(is_in_set(self._keys.failed, self.id))

    def is_delayed(self) -> bool:
        """Tell whether the job is delayed."""
        return self._perform(is_in_set(self._keys.delayed, self.id))

    def is_waiting_children(self) -> bool:
        """Tell whether the job waits for its children."""
        return self._perform(is_in_set(self._keys.waiting_children, self.id))

    def is_active(self) -> bool:
        """Tell whether the job is active."""
        return self._perform(is_in_list(self._keys.active, self.id))

    def is_waiting(self) -> bool:
        """Tell whether the job is waiting or paused. A prioritized job is not."""
        waiting = self._perform(is_in_list(self._keys.wait, self.id))
        return waiting or self._perform(is_in_list(self._keys.paused, self.id))

    def wait_until_finished(
        self, queue_events: QueueEvents, timeout: Duration | None = None, *, result_type: Any = Any
    ) -> Any:
        """Wait until the job is finished, at most `timeout` milliseconds; return its result, read into `result_type`.

        `queue_events` must be reading the job's queue (`with queue_events:`); one serves any number of callers.
        Raises as `QueueEvents.wait_until_finished`: `JobFailedError`, `JobNotFound`, `WaitTimeout`, ...
        """
        check_reader(queue_events, QueueEvents, self._keys)
        return queue_events.wait_until_finished(self.id, timeout, result_type=result_type)

    # --- moves --------------------------------------------------------------------------------------------------------

    def retry(self, state: Literal["failed", "completed"] = "failed") -> None:
        """Run the finished job again: put it to wait, without regard to its priority. Its attempts are kept.

        Raises `WrongState` if it is not in this state, and `RetriedInPart` for a child whose failure its parent
        ignores: it waits again, but BullMQ 5.62.0's script stops there.
        """
        retrying = reprocess_job(self._keys, self.id, state=state, lifo=self.record.opts.lifo is True)
        try:
            self._perform(retrying)
        except ServerError as error:
            parent_key = self.record.parent_key
            if error.code != "WRONGTYPE" or parent_key is None or self.get_state() in ("failed", "completed"):
                raise
            self._note(finishedOn="", processedOn="", failedReason="", returnvalue="")
            raise RetriedInPart(self.id, parent_key) from error
        self._note(finishedOn="", processedOn="", failedReason="", returnvalue="")

    def promote(self) -> None:
        """Make the delayed job ready now. Raises `WrongState`."""
        self._perform(promote(self._keys, self.id))
        self._note(delay="0")

    def change_delay(self, delay: Duration) -> None:
        """Let the delayed job be due so long from now. Raises `WrongState`."""
        delay_ms = check_whole("delay", to_ms("delay", delay), least=0)
        self._perform(change_delay(self._keys, self.id, delay=delay_ms, now=clock().wall))
        self._note(delay=str(delay_ms))

    def change_priority(self, priority: int = 0, *, lifo: bool = False) -> None:
        """Change the priority, 0 (none) to 2,097,152; a waiting job is queued anew, with `lifo` before its equals."""
        self._perform(change_priority(self._keys, self.id, priority=priority, lifo=lifo))
        self._note(priority=str(priority))

    def move_to_delayed(self, timestamp_ms: Millis, token: str | None = None) -> None:
        """Put the active job into delayed until that moment, counting no attempt. Raise `DelayedError` afterwards."""
        now = clock().wall
        delay = max(to_ms("timestamp_ms", timestamp_ms) - now, 0)
        self._perform(
            move_to_delayed(self._keys, self.id, token=self._token(token), now=now, delay=delay, count_attempt=False)
        )
        self._note(delay=str(delay))

    def move_to_wait(self, token: str | None = None) -> Millis:
        """Give the active job back, counting no attempt; return how long the queue is rate limited.

        Raise `WaitingError` afterwards.
        """
        return self._perform(move_job_from_active_to_wait(self._keys, self.id, token=self._token(token)))

    def move_to_waiting_children(self, token: str | None = None, *, child: str | None = None) -> bool:
        """Park the active job until all its children are finished, or until the one child is, named by its `key`.

        Returns False if there is nothing to wait for: the job stays active. After True raise `WaitingChildrenError`.
        Raises `ChildFailed`.
        """
        own = self.token if token is None else check_name("token", token)
        if own is None:
            raise UsageError("token", None, "is needed: the job was not taken by a worker")
        if child is not None:
            check_name("child", child, max_length=None)
        return self._perform(
            move_to_waiting_children(self._keys, self.id, token=own, now=clock().wall, child_key=child)
        )

    def extend_lock(self, duration: Duration) -> bool:
        """Let the lock live so long from now; False when it is not ours any more. A worker does this by itself."""
        duration_ms = to_ms("duration", duration)
        if duration_ms <= 0:
            raise UsageError("duration", duration, "must be greater than 0")
        return self._perform(extend_lock(self._keys, self.id, token=self._token(None), lock_ms=duration_ms))

    def discard(self) -> None:
        """Let the next failure of this run be the last one, whatever attempts are left."""
        self._discarded = True

    def remove(self, *, remove_children: bool = True) -> bool:
        """Remove the job with its data and, by default, its children; False when one of them is locked."""
        check_flag("remove_children", remove_children)
        return self._perform(commands.remove_job(self._keys, self.id, remove_children=remove_children)) == 1

    def refresh(self) -> None:
        """Read the job again."""
        record = self._perform(commands.get_job(self._keys, self.id))
        if record is None:
            raise JobNotFound("refresh", job_id=self.id)
        self._replace(record)

    # --- children and parent ------------------------------------------------------------------------------------------

    def get_children_values(self) -> dict[str, Any]:
        """Return what the finished children returned, by their keys."""
        return self._perform(get_children_values(self._keys, self.id))

    def get_ignored_children_failures(self) -> dict[str, str]:
        """Return the texts of those children's failures that this job ignores, by their keys."""
        return self._perform(get_ignored_failures(self._keys, self.id))

    def get_failed_children_values(self) -> dict[str, str]:
        """Return the same as `get_ignored_children_failures`; BullMQ has both names."""
        return self.get_ignored_children_failures()

    def get_dependencies(self) -> Dependencies:
        """Read all children at one moment."""
        return self._run(get_dependencies(self._keys, self.id))

    def get_dependencies_page(
        self,
        *,
        processed: Cursor | None = None,
        unprocessed: Cursor | None = None,
        ignored: Cursor | None = None,
        failed: Cursor | None = None,
    ) -> DependenciesPage:
        """Read one page of each kind of children that is given a cursor; go on with that page's own, until it is 0."""
        return self._run(
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
        """Read all children of one kind, about `page_size` at a time. One may come twice while others come or go."""
        plan = DependencyPages(job_id=self.id, kind=kind, page_size=page_size)
        return Items(self._pages(plan.checked()), list)

    def get_dependencies_count(self, *kinds: DependencyKind) -> dict[str, int]:
        """Count the children of these kinds: `processed`, `unprocessed`, `ignored`, `failed`; without kinds, of all."""
        return self._perform(get_dependency_counts(self._keys, self.id, kinds))

    def remove_child_dependency(self) -> bool:
        """Break the link to the parent, which is released if this was its last child; False when there was no link.

        Raises `ParentNotFound`, also for a job without a parent.
        """
        parent_key = self.record.parent_key
        if parent_key is None:
            # Asked for the key "" a server refuses users whose rules have no place for it.
            raise ParentNotFound("removeChildDependency", job_id=self.id)
        unlinked = self._perform(remove_child_dependency(self._keys, self.id, parent_key))
        if unlinked:
            self._replace(self.record.without_parent())
        return unlinked

    def remove_unprocessed_children(self) -> None:
        """Remove all children, and theirs, that are neither finished nor locked."""
        self._perform(remove_unprocessed_children(self._keys, self.id))

    # --- within -------------------------------------------------------------------------------------------------------

    def _token(self, token: str | None) -> str:
        return (self.token or NO_TOKEN) if token is None else check_name("token", token)

    def _note(self, **texts: str) -> None:
        """Take over what was written, field by field; an empty text is a field that is gone."""
        fields = {**self.record.fields, **{field: text.encode() for field, text in texts.items()}}
        self._replace(JobRecord(self.record.id, {field: value for field, value in fields.items() if value}))

    def _replace(self, record: JobRecord) -> None:
        self.record = record
        self._payload = UNSET
