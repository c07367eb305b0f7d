"""One job, as a queue returns it and as a processor gets it."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Generic, TypeVar

from bullmq_anyio.drive import clock, perform
from bullmq_protocol.codec import json_text
from bullmq_protocol.command import Command
from bullmq_protocol.commands import jobs as commands
from bullmq_protocol.commands.finishing import move_job_from_active_to_wait, move_to_delayed
from bullmq_protocol.commands.jobs import FinishedState
from bullmq_protocol.commands.locks import extend_lock
from bullmq_protocol.errors import JobNotFound, UsageError
from bullmq_protocol.job import JobRecord
from bullmq_protocol.keys import QueueKeys
from bullmq_protocol.options import JobOptions
from bullmq_protocol.transport import AsyncTransport
from bullmq_protocol.units import Duration, Millis, to_ms

T = TypeVar("T")
R = TypeVar("R")

NO_TOKEN = "0"
"""Makes the scripts check no lock."""


class Job(Generic[T]):
    """A job and what can be done with it. Its values are those of the moment it was read; see `refresh`.

    Moments and durations are milliseconds. Methods raise `JobNotFound` where the job is gone, `TransportError` where
    the connection is, and those that need the job's lock also `LockMissing` and `LockMismatch`.
    """

    def __init__(
        self,
        record: JobRecord,
        *,
        keys: QueueKeys,
        transport: AsyncTransport,
        data_type: Any = Any,
        token: str | None = None,
    ) -> None:
        self.record = record
        self.token = token
        self._keys = keys
        self._transport = transport
        self._data_type = data_type
        self._discarded = False

    def __repr__(self) -> str:
        return f"Job(id={self.id!r}, name={self.name!r}, queue={self.queue_name!r})"

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def queue_name(self) -> str:
        return self._keys.name

    @cached_property
    def data(self) -> T:
        """The payload, in the type the queue or worker was given. Raises `msgspec.DecodeError` if it does not fit."""
        data: T = self.record.data_as(self._data_type)
        return data

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

    async def update_progress(self, value: Any, *, strict: bool = False) -> None:
        """Store the progress, any JSON value, and tell it to listeners. `strict`: a whole number from 0 to 100 only."""
        if strict and (type(value) is not int or not 0 <= value <= 100):
            raise UsageError("progress", value, "must be a whole number from 0 to 100")
        text = json_text(value, field="progress")
        await self._perform(commands.update_progress(self._keys, self.id, text))
        self._note("progress", text)

    async def log(self, row: str) -> int:
        """Append a row to the job's log; return how many it has. The job's option `keep_logs` trims it."""
        if not isinstance(row, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError("row", row, "must be a string")
        keep = self.record.opts.keep_logs
        return await self._perform(
            commands.add_log(self._keys, self.id, row, keep_logs=int(keep) if isinstance(keep, (int, float)) else None)
        )

    async def update_data(self, data: T) -> None:
        """Replace the payload."""
        text = json_text(data)
        await self._perform(commands.update_data(self._keys, self.id, text))
        self._note("data", text)

    async def extend_lock(self, duration: Duration) -> bool:
        """Let the lock live so long from now; False when it is not ours any more. A worker does this by itself."""
        duration_ms = to_ms("duration", duration)
        if duration_ms <= 0:
            raise UsageError("duration", duration, "must be greater than 0")
        return await self._perform(extend_lock(self._keys, self.id, token=self._token(None), lock_ms=duration_ms))

    async def move_to_delayed(self, timestamp_ms: Millis, token: str | None = None) -> None:
        """Put the active job into delayed until that moment, counting no attempt. Raise `DelayedError` afterwards."""
        now = clock().wall
        delay = max(to_ms("timestamp_ms", timestamp_ms) - now, 0)
        await self._perform(
            move_to_delayed(self._keys, self.id, token=self._token(token), now=now, delay=delay, count_attempt=False)
        )

    async def move_to_wait(self, token: str | None = None) -> Millis:
        """Give the active job back, counting no attempt; return how long the queue is rate limited.

        Raise `WaitingError` afterwards.
        """
        return await self._perform(move_job_from_active_to_wait(self._keys, self.id, token=self._token(token)))

    async def get_state(self) -> str:
        """Return the state, as `Queue.get_state` does."""
        return await self._perform(commands.get_state(self._keys, self.id))

    async def finished_state(self) -> FinishedState:
        """Tell whether the job is finished, with its result as stored."""
        return await self._perform(commands.is_finished(self._keys, self.id))

    async def remove(self, *, remove_children: bool = True) -> bool:
        """Remove the job with its data and, by default, its children; False when one of them is locked."""
        return await self._perform(commands.remove_job(self._keys, self.id, remove_children=remove_children)) == 1

    def discard(self) -> None:
        """Let the next failure of this run be the last one, whatever attempts are left."""
        self._discarded = True

    async def refresh(self) -> None:
        """Read the job again."""
        record = await self._perform(commands.get_job(self._keys, self.id))
        if record is None:
            raise JobNotFound("refresh", job_id=self.id)
        self._replace(record)

    async def _perform(self, command: Command[R]) -> R:
        return await perform(self._transport, command)

    def _token(self, token: str | None) -> str:
        return token or self.token or NO_TOKEN

    def _note(self, field: str, text: str) -> None:
        self._replace(JobRecord(self.record.id, {**self.record.fields, field: text.encode()}))

    def _replace(self, record: JobRecord) -> None:
        self.record = record
        self.__dict__.pop("data", None)
