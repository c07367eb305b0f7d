"""What several command modules share: decoders that know which call they belong to, so that an error code becomes a
full message. Frozen: commands compare."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeGuard, cast

import msgspec

from bullmq_protocol.common.codec import pack
from bullmq_protocol.common.reply import Reply, as_bytes, as_fields, as_int, as_list, as_text
from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import ServerError, UnexpectedReply, script_error
from bullmq_protocol.model.job import JobRecord


class Fetched(msgspec.Struct, frozen=True):
    """The answer of a fetch: a job, or why there is none.

    `limit_delay_ms` above 0: the queue is rate limited for this long. `next_due_at` above 0: nothing is ready, and the
    earliest delayed job is due then (wall clock). With neither: paused, at its maximum, or empty.

    Source: specs/02-worker-path.md#sec-15-1
    """

    job: JobRecord | None = None
    limit_delay_ms: Millis = 0
    next_due_at: Millis = 0


NOTHING = Fetched()


class Limiter(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit, counted for the whole queue.

    Args:
        max: How many jobs may start per period, at least 1.
        duration: The period in milliseconds, at least 1.

    Source: specs/02-worker-path.md#sec-10

    Examples:
        >>> WorkerOptions(limiter=Limiter(max=100, duration=60_000)).limiter
        Limiter(max=100, duration=60000)
    """

    max: int
    duration: Millis

    def packed(self) -> dict[str, int]:
        """Return the map that goes into the packed options."""
        return {"max": self.max, "duration": self.duration}


_FIRST_FIELDS: Final = ("name", "data", "opts", "timestamp", "delay", "priority")
_SHORT: Final = len(_FIRST_FIELDS) + 1


def as_fetched_at(reply: Reply, now: Millis) -> Fetched:
    """Return an answer of a call for several jobs at `now`: that of moveToActive, or a short one.

    Source: specs/08-batches.md#short-answer
    """
    if not isinstance(reply, (list, tuple)) or len(reply) != _SHORT:
        return as_fetched(reply)
    values = cast("list[bytes]", reply[:-1])
    try:
        # The shortest way to see that they are bytes, all of them.
        b"".join(values)
    except TypeError:
        values = [as_bytes(value) for value in values]
    fields: dict[str, bytes] = dict(zip(_FIRST_FIELDS, values))  # noqa: B905
    fields["processedOn"] = str(now).encode()
    fields["ats"] = b"1"
    return Fetched(JobRecord(as_text(reply[-1]), fields))


def as_fetched(reply: Reply) -> Fetched:
    """Return the four-element answer of moveToActive; nil and 0 mean "no job"."""
    if isinstance(reply, list) and len(reply) == 4:
        fields, job_id, limit_delay, next_due = reply
        if limit_delay == 0 == next_due and isinstance(job_id, bytes) and fields:
            return Fetched(JobRecord.from_fields(job_id.decode("utf-8", "surrogateescape"), as_fields(fields)))
    if reply is None or reply == 0:
        return NOTHING
    parts = as_list(reply)
    if not parts:
        return NOTHING
    if len(parts) != 4:
        raise UnexpectedReply("an answer of four elements", reply)
    fields, job_id, limit_delay, next_due = parts
    job = JobRecord.from_fields(as_text(job_id), as_fields(fields)) if fields else None
    return Fetched(job, as_int(limit_delay), as_int(next_due))


class JobCode(msgspec.Struct, frozen=True):
    """Integer reply of a command on one job: negative is an error of that job."""

    command: str
    job_id: str = "undefined"
    parent_key: str = "undefined"
    state: str = "undefined"

    def __call__(self, reply: Reply) -> int:
        code = as_int(reply)
        if code < 0:
            raise script_error(code, self.command, job_id=self.job_id, parent_key=self.parent_key, state=self.state)
        return code


class JobFlag(msgspec.Struct, frozen=True):
    """Integer reply of a command on one job: an error of that job, or whether it is the number `yes`."""

    code: JobCode
    yes: int

    def __call__(self, reply: Reply) -> bool:
        return self.code(reply) == self.yes


class AddedId(msgspec.Struct, frozen=True):
    """Reply of an add command: the id as a bulk string, or an error code as an integer (distinguished by type). In a
    call for several jobs, also the id of the existing job that took precedence, and 0.

    Source: specs/08-batches.md#gives-way
    """

    parent_key: str | None

    def __call__(self, reply: Reply) -> str:
        if isinstance(reply, bytes):
            # The usual one, of thousands in a bulk.
            return reply.decode("utf-8", "surrogateescape")
        if isinstance(reply, int):
            raise script_error(reply, "addJob", parent_key=self.parent_key or "undefined")
        return as_text(reply[0] if _gives_way(reply) else reply)


class AddedJob(NamedTuple):
    """The id of a job, and whether it was added: False for that of an existing job."""

    job_id: str
    added: bool


class AddedOrFound(msgspec.Struct, frozen=True):
    """Reply of addMany for one job, alone or as the part of a call for several, where an error stands apart."""

    parent_key: str | None

    def __call__(self, reply: Reply) -> AddedJob:
        if isinstance(reply, list) and len(reply) == 1:
            reply = reply[0]
            if isinstance(reply, list) and len(reply) == 1:
                raise ServerError(as_text(reply[0]))
        return AddedJob(AddedId(self.parent_key)(reply), not _gives_way(reply))


def _gives_way(reply: Reply) -> TypeGuard[list[Reply]]:
    return isinstance(reply, list) and len(reply) == 2 and reply[1] == 0


class FinishedReply(msgspec.Struct, frozen=True):
    """Reply of moveToFinished, also as part of that of finishMany: an error code, 0, or the answer of a fetch. So is
    that of moveToDelayed."""

    job_id: str
    now: Millis
    command: str = "moveToFinished"

    def __call__(self, reply: Reply) -> Fetched:
        if isinstance(reply, int) and reply < 0:
            raise script_error(reply, self.command, job_id=self.job_id, state="active")
        return as_fetched_at(reply, self.now)


def packed_fetch(token: str, lock_ms: Millis, limiter: Limiter | None, worker_name: str | None) -> bytes:
    """Return the packed options of a script that fetches one job.

    Source: specs/02-worker-path.md#sec-2-1
    """
    return pack(
        {
            "token": token,
            "lockDuration": lock_ms,
            "limiter": None if limiter is None else limiter.packed(),
            "name": worker_name,
        }
    )
