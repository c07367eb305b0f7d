"""Commands as values: the document that the server receives, how its reply is read, and whether it may be repeated.

A reply is the document that the server answers with. One function makes each command; `collection` is the name of the
collection, `now` the scheduler's own wall clock in milliseconds since the Unix epoch.

An operation is a generator of commands: `job = yield from claim(...)` gives the decoded value.

Source: specs/monque.md#sec-5
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

import msgspec

from bullmq_protocol.common.units import Millis
from bullmq_protocol.errors import UnexpectedReply, UsageError
from monque_protocol.cursor import FIELDS, Anchor, Sort
from monque_protocol.document import ACTIVE, Document, Job, JobStatus, moment, new_document, read_job, to_date

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

STATS_LIMIT_MS: Final[Millis] = 30_000
BULK_SPREAD_MS: Final[Millis] = 30_000
_LOCK: Final = ("lockedAt", "claimedBy", "lastHeartbeat")
_UNLOCK: Final = MappingProxyType({"lockedAt": "", "claimedBy": "", "lastHeartbeat": ""})
_KEY_FILTER: Final = MappingProxyType({"uniqueKey": {"$exists": True}, "status": {"$in": list(ACTIVE)}})


class Repeat(Enum):
    """Whether a command may be sent again after its reply was lost."""

    SAFE = "safe"
    """Idempotent: reads, heartbeats, clean-up."""
    GUARDED = "guarded"
    """Its condition guards it: a second run changes nothing, and its answer means "applied before, or not at all"."""
    UNSAFE = "unsafe"
    """A second run takes effect twice: it claims, or makes, another job."""


class Command(msgspec.Struct, Generic[T_co], frozen=True):
    """One command: `document` is what the server receives; `decode` reads the document that it answers with."""

    document: Document
    decode: Callable[[Document], T_co]
    repeat: Repeat

    @property
    def name(self) -> str:
        """The command's name on the wire: the first key."""
        return next(iter(self.document))

    @property
    def merge(self) -> None:
        """No two commands go together."""

    def __iter__(self) -> Generator[Command[T_co], Any, T_co]:
        """Yield the command itself; return the decoded reply: `value = yield from command`."""
        reply = yield self
        return self.decode(reply)


Operation: TypeAlias = Generator[Command[Any], Any, T]
"""A generator of commands: a function of their replies, single use."""


# --- replies ----------------------------------------------------------------------------------------------------------


def as_nothing(reply: Document) -> None:
    """Read a reply of which nothing is needed."""


def as_job(reply: Document) -> Job[Any] | None:
    """Read the document that `findAndModify` returns; None: no document met the condition."""
    if "value" not in reply:
        raise UnexpectedReply("a reply with value", reply)
    return None if reply["value"] is None else read_job(reply["value"])


def as_new_job(reply: Document) -> Job[Any]:
    """Read the document of an upsert."""
    job = as_job(reply)
    if job is None:
        raise UnexpectedReply("findAndModify with a document", reply)
    return job


def as_jobs(reply: Document) -> list[Job[Any]]:
    """Read the documents of `find`. What is no job is left out."""
    jobs: list[Job[Any]] = []
    for document in as_documents(reply):
        try:
            jobs.append(read_job(document))
        except UnexpectedReply:
            # Another program's.
            continue
    return jobs


def as_first_job(reply: Document) -> Job[Any] | None:
    """Read the first document of `find`; None: there is none."""
    documents = as_documents(reply)
    return read_job(documents[0]) if documents else None


def as_documents(reply: Document) -> list[Document]:
    """Read the documents of `find` or `aggregate`, which the adapter gathers in one batch."""
    cursor: object = reply.get("cursor")
    batch: object = cast("Document", cursor).get("firstBatch") if isinstance(cursor, Mapping) else None
    if not isinstance(batch, Sequence):
        raise UnexpectedReply("a cursor with a batch", reply)
    return list(cast("Sequence[Document]", batch))


def as_modified(reply: Document) -> int:
    """Read how many documents an `update` changed."""
    return _whole(reply, "nModified")


def as_deleted(reply: Document) -> int:
    """Read how many documents a `delete` removed."""
    return _whole(reply, "n")


def _whole(reply: Document, field: str) -> int:
    found = reply.get(field)
    if isinstance(found, bool) or not isinstance(found, int):
        raise UnexpectedReply(f"a reply with the number {field}", reply)
    return found


# --- start-up ---------------------------------------------------------------------------------------------------------


def _index(keys: Mapping[str, int], **options: object) -> dict[str, Any]:
    name = "_".join(f"{field}_{order}" for field, order in keys.items())
    return {"key": dict(keys), "name": name, "background": True, **options}


def indexes(*, retention: bool) -> list[dict[str, Any]]:
    """Return the indexes of a collection of jobs.

    Source: specs/monque.md#sec-3
    """
    made = [
        _index({"status": 1, "nextRunAt": 1}),
        _index({"name": 1, "uniqueKey": 1}, unique=True, partialFilterExpression=dict(_KEY_FILTER)),
        _index({"name": 1, "status": 1}),
        _index({"claimedBy": 1, "status": 1}),
        _index({"lastHeartbeat": 1, "status": 1}),
        _index({"name": 1, "status": 1, "nextRunAt": 1, "claimedBy": 1}),
        _index({"status": 1, "lockedAt": 1, "lastHeartbeat": 1}),
        *(_index({field: -1, "_id": -1}) for field in FIELDS),
    ]
    if retention:
        condition = {"status": {"$in": ["completed", "failed"]}, "updatedAt": {"$exists": True}}
        made.append(_index({"status": 1, "updatedAt": 1}, partialFilterExpression=condition))
    return made


def create_indexes(collection: str, *, retention: bool) -> Command[None]:
    """Make the indexes that are missing.

    Repeat:  safe
    Source:  specs/monque.md#sec-3
    """
    return Command({"createIndexes": collection, "indexes": indexes(retention=retention)}, as_nothing, Repeat.SAFE)


def recover_stale(collection: str, *, now: Millis, lock_ms: Millis) -> Command[int]:
    """Take jobs that have been locked for too long from their owners; return how many.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-1
    """
    query = {"status": "processing", "lockedAt": {"$lt": to_date(now - lock_ms)}}
    return _update(collection, query, _release(now), as_modified, Repeat.SAFE, many=True)


def find_collision(collection: str, *, me: str, now: Millis, heartbeat_ms: Millis) -> Command[Job[Any] | None]:
    """Look for a job that another scheduler of this name runs; None: there is none.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-1
    """
    recently = {"$gte": to_date(now - 2 * heartbeat_ms)}
    query = {"claimedBy": me, "status": "processing", "lastHeartbeat": recently}
    return Command({"find": collection, "filter": query, "limit": 1, "singleBatch": True}, as_first_job, Repeat.SAFE)


# --- adding -----------------------------------------------------------------------------------------------------------


def insert(
    collection: str,
    key: Any,
    name: str,
    data: Any,
    *,
    next_run_at: Millis,
    now: Millis,
    repeat_interval: str | None = None,
) -> Command[Job[Any]]:
    """Add a job without a unique key; `key` is its `_id`, which the caller has made.

    Repeat:  guarded: the second one conflicts with the `_id` of the first
    Source:  specs/monque.md#sec-5-2
    """
    document = new_document(name, data, next_run_at=next_run_at, now=now, repeat_interval=repeat_interval)
    document["_id"] = key

    def decode(reply: Document) -> Job[Any]:
        return read_job(document)

    return Command({"insert": collection, "ordered": True, "documents": [document]}, decode, Repeat.GUARDED)


def upsert(
    collection: str,
    name: str,
    data: Any,
    *,
    unique_key: str,
    next_run_at: Millis,
    now: Millis,
    repeat_interval: str | None = None,
) -> Command[Job[Any]]:
    """Add a job with a unique key, or return the one that is pending or processing under it.

    Repeat:  unsafe: the first one's job may be over by then, and a second one would be made
    Source:  specs/monque.md#sec-5-3
    """
    document = new_document(
        name, data, next_run_at=next_run_at, now=now, repeat_interval=repeat_interval, unique_key=unique_key
    )
    query = {"name": name, "uniqueKey": unique_key, "status": {"$in": list(ACTIVE)}}
    return Command(
        {
            "findAndModify": collection,
            "query": query,
            "update": {"$setOnInsert": document},
            "new": True,
            "upsert": True,
        },
        as_new_job,
        Repeat.UNSAFE,
    )


# --- the life of a claim ----------------------------------------------------------------------------------------------


def claim(collection: str, name: str, *, me: str, now: Millis, heartbeat_ms: Millis) -> Command[Job[Any] | None]:
    """Take the due job of this name that is due first; None: none is due.

    Repeat:  unsafe: it claims another one
    Source:  specs/monque.md#sec-5-5
    """
    at = to_date(now)
    taken = {"status": "processing", "claimedBy": me, "lockedAt": at, "lastHeartbeat": at}
    return Command(
        {
            "findAndModify": collection,
            "query": {"name": name, "status": "pending", "nextRunAt": {"$lte": at}},
            "update": {"$set": {**taken, "heartbeatInterval": heartbeat_ms, "updatedAt": at}},
            "sort": {"nextRunAt": 1},
            "new": True,
            "upsert": False,
        },
        as_job,
        Repeat.UNSAFE,
    )


def find_claims(collection: str, *, me: str) -> Command[list[Job[Any]]]:
    """Read id, name and claim of the jobs this scheduler owns, and nothing else: the rest may be what no client reads.

    Monque has no such command: it shows what a lost reply has claimed.

    Repeat:  safe
    Source:  specs/monque.md#sec-14
    """
    query = {"claimedBy": me, "status": "processing"}
    fields = {"name": 1, "lockedAt": 1}
    return Command({"find": collection, "filter": query, "projection": fields}, as_jobs, Repeat.SAFE)


def release(collection: str, job: Job[Any], *, me: str, now: Millis) -> Command[int]:
    """Give back a job that was claimed and does not run; return 1, or 0 where it is not this scheduler's any more.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-6
    """
    return _update(collection, _mine(job, me), _release(now), as_modified, Repeat.GUARDED)


def complete(collection: str, job: Job[Any], *, me: str, now: Millis) -> Command[Job[Any] | None]:
    """Store the success of a job that runs once; None: it is not this scheduler's any more.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-7
    """
    return _end(collection, job, me, {"status": "completed", "updatedAt": to_date(now)}, drops_reason=True)


def complete_recurring(
    collection: str, job: Job[Any], *, me: str, now: Millis, next_run_at: Millis
) -> Command[Job[Any] | None]:
    """Store the success of a recurring job, which is pending again; None: it is not this scheduler's any more.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-8
    """
    fields = {"status": "pending", "nextRunAt": to_date(next_run_at), "failCount": 0, "updatedAt": to_date(now)}
    return _end(collection, job, me, fields, drops_reason=True)


def retry_later(
    collection: str, job: Job[Any], *, me: str, now: Millis, next_run_at: Millis, reason: str
) -> Command[Job[Any] | None]:
    """Store a failure of a job that has tries left; None: it is not this scheduler's any more.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-9
    """
    fields = {"status": "pending", "failCount": job.fail_count + 1, "failReason": reason}
    fields |= {"nextRunAt": to_date(next_run_at), "updatedAt": to_date(now)}
    return _end(collection, job, me, fields, drops_reason=False)


def fail(collection: str, job: Job[Any], *, me: str, now: Millis, reason: str) -> Command[Job[Any] | None]:
    """Store the last failure of a job; None: it is not this scheduler's any more.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-10
    """
    fields = {"status": "failed", "failCount": job.fail_count + 1, "failReason": reason, "updatedAt": to_date(now)}
    return _end(collection, job, me, fields, drops_reason=False)


def of_claim(command: Command[T], job: Job[Any]) -> Command[T]:
    """Return the report or the release of a job with one more condition: the moment of the claim.

    Sent again after a lost reply it would else end another claim of the same scheduler's, made after the first one.

    Repeat:  guarded
    Source:  specs/monque.md#sec-14
    """
    locked = {"lockedAt": to_date(job.locked_at or 0)}
    document = dict(command.document)
    if "query" in document:
        document["query"] = {**document["query"], **locked}
    else:
        (update,) = document["updates"]
        document["updates"] = [{**update, "q": {**update["q"], **locked}}]
    return Command(document, command.decode, command.repeat)


def heartbeat(collection: str, *, me: str, now: Millis) -> Command[int]:
    """Give all jobs of this scheduler a sign of life; return how many there are.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-11
    """
    at = to_date(now)
    update = {"$set": {"lastHeartbeat": at, "updatedAt": at}}
    return _update(collection, {"claimedBy": me, "status": "processing"}, update, as_modified, Repeat.SAFE, many=True)


def clean(collection: str, status: str, *, now: Millis, keep_ms: Millis) -> Command[int]:
    """Delete jobs that ended in this state longer ago than they are kept; return how many.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-14
    """
    query = {"status": status, "updatedAt": {"$lt": to_date(now - keep_ms)}}
    return _delete(collection, query, Repeat.SAFE, many=True)


def _mine(job: Job[Any], me: str) -> dict[str, Any]:
    return {"_id": job.key, "status": "processing", "claimedBy": me}


def _release(now: Millis) -> Document:
    return {"$set": {"status": "pending", "updatedAt": to_date(now)}, "$unset": dict(_UNLOCK)}


def _end(collection: str, job: Job[Any], me: str, fields: Document, *, drops_reason: bool) -> Command[Job[Any] | None]:
    dropped = {**_UNLOCK, "failReason": ""} if drops_reason else dict(_UNLOCK)
    update = {"$set": fields, "$unset": dropped}
    return _modify(collection, _mine(job, me), update, new=True)


def _modify(collection: str, query: Document, update: Document, *, new: bool) -> Command[Job[Any] | None]:
    return Command(
        {"findAndModify": collection, "query": query, "update": update, "new": new, "upsert": False},
        as_job,
        Repeat.GUARDED,
    )


def _update(
    collection: str,
    query: Document,
    update: Document | list[Document],
    decode: Callable[[Document], int],
    repeat: Repeat,
    *,
    many: bool = False,
) -> Command[int]:
    one: dict[str, Any] = {"q": query, "u": update}
    if many:
        one["multi"] = True
    return Command({"update": collection, "updates": [one]}, decode, repeat)


def _delete(collection: str, query: Document, repeat: Repeat, *, many: bool) -> Command[int]:
    return Command({"delete": collection, "deletes": [{"q": query, "limit": 0 if many else 1}]}, as_deleted, repeat)


# --- managing one job -------------------------------------------------------------------------------------------------


def cancel(collection: str, key: Any, *, now: Millis) -> Command[Job[Any] | None]:
    """Cancel a job if it is pending; None: it is not.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-12
    """
    update = {"$set": {"status": "cancelled", "updatedAt": to_date(now)}}
    return _modify(collection, {"_id": key, "status": "pending"}, update, new=True)


def retry(collection: str, key: Any, *, now: Millis) -> Command[Job[Any] | None]:
    """Make a failed or cancelled job due now; return what it was before, None: it is in no such state.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-12
    """
    at = to_date(now)
    update = {
        "$set": {"status": "pending", "failCount": 0, "nextRunAt": at, "updatedAt": at},
        "$unset": {"failReason": "", **_UNLOCK},
    }
    return _modify(collection, {"_id": key, "status": {"$in": ["failed", "cancelled"]}}, update, new=False)


def reschedule(collection: str, key: Any, *, run_at: Millis, now: Millis) -> Command[Job[Any] | None]:
    """Give a pending job another time; None: it is not pending.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-12
    """
    update = {"$set": {"nextRunAt": to_date(run_at), "updatedAt": to_date(now)}}
    return _modify(collection, {"_id": key, "status": "pending"}, update, new=True)


def delete(collection: str, key: Any) -> Command[bool]:
    """Delete a job in any state; return whether there was one.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-12
    """

    def decode(reply: Document) -> bool:
        return as_deleted(reply) > 0

    return Command({"delete": collection, "deletes": [{"q": {"_id": key}, "limit": 1}]}, decode, Repeat.GUARDED)


def get_job(collection: str, key: Any) -> Command[Job[Any] | None]:
    """Read a job; None: there is none.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-15
    """
    return Command({"find": collection, "filter": {"_id": key}, "limit": 1}, as_first_job, Repeat.SAFE)


# --- managing many ----------------------------------------------------------------------------------------------------


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant; without any condition, all.

    Args:
        name: The name of the jobs; any by default, None, or empty.
        status: A state, or several; any by default, None.
        older_than: Created before: an aware `datetime`, or milliseconds since the Unix epoch; None by default.
        newer_than: Created after, as `older_than`; None by default.

    Source: specs/monque.md#sec-5-13

    Examples:
        >>> Selector(name="mail", status=["failed", "cancelled"]).query()
        {'name': 'mail', 'status': {'$in': ['failed', 'cancelled']}}
    """

    name: str | None = None
    status: str | Sequence[str] | None = None
    older_than: Any = None
    newer_than: Any = None

    def query(self) -> dict[str, Any]:
        """Return the condition of a command."""
        found: dict[str, Any] = {}
        if check_text("name", self.name):
            found["name"] = self.name
        if self.status is not None:
            found["status"] = _status(self.status)
        created: dict[str, Any] = {}
        if self.older_than is not None:
            created["$lt"] = to_date(moment("older_than", self.older_than))
        if self.newer_than is not None:
            created["$gt"] = to_date(moment("newer_than", self.newer_than))
        return {**found, "createdAt": created} if created else found

    def among(self, allowed: Sequence[str]) -> list[str]:
        """Return which of these states are meant."""
        if self.status is None:
            return list(allowed)
        asked = [self.status] if isinstance(self.status, str) else self.status
        return [status for status in allowed if status in asked]


def check_text(field: str, value: object) -> str | None:
    """Return a text or None, or raise `UsageError`: a document would be taken for a condition."""
    if value is not None and not isinstance(value, str):
        raise UsageError(field, value, "must be text")
    return value


def _status(status: str | Iterable[str]) -> Any:
    if not isinstance(status, str | list | tuple | set | frozenset):
        raise UsageError("status", status, "must be a state, or a list of states")
    statuses: list[Any] = [status] if isinstance(status, str) else list(cast("Iterable[Any]", status))
    for each in statuses:
        if not isinstance(each, str) or each not in tuple(JobStatus):
            raise UsageError("status", each, f"must be one of {', '.join(JobStatus)}")
    return str(status) if isinstance(status, str) else {"$in": [str(each) for each in statuses]}


def check_selector(selector: object) -> Selector:
    """Return a selector, or raise `UsageError`."""
    if not isinstance(selector, Selector):
        raise UsageError("selector", selector, "must be a Selector")
    return selector


def cancel_many(collection: str, selector: Selector, *, now: Millis) -> Command[int] | None:
    """Cancel the pending ones of these jobs; return how many. None: the selector means no pending ones.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-13
    """
    query = selector.query()
    if not selector.among(("pending",)):
        return None
    query["status"] = "pending"
    update = {"$set": {"status": "cancelled", "updatedAt": to_date(now)}}
    return _update(collection, query, update, as_modified, Repeat.GUARDED, many=True)


def retry_many(collection: str, selector: Selector, *, now: Millis) -> Command[int] | None:
    """Make the failed and cancelled ones of these jobs due within 30 seconds; return how many. None: it means none.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-13
    """
    query = selector.query()
    statuses = selector.among(("failed", "cancelled"))
    if not statuses:
        return None
    query["status"] = statuses[0] if len(statuses) == 1 else {"$in": statuses}
    at = to_date(now)
    spread: Document = {"$add": [at, {"$multiply": [{"$rand": {}}, BULK_SPREAD_MS]}]}
    fields: Document = {"status": "pending", "failCount": 0, "updatedAt": at, "nextRunAt": spread}
    pipeline: list[Document] = [{"$set": fields}, {"$unset": ["failReason", *_LOCK]}]
    return _update(collection, query, pipeline, as_modified, Repeat.GUARDED, many=True)


def find_retried(collection: str, selector: Selector, *, now: Millis) -> Command[list[Job[Any]]]:
    """Read name and time of the jobs that `retry_many` has just made due.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-13
    """
    query = {**selector.query(), "status": "pending", "updatedAt": to_date(now)}
    return Command(
        {"find": collection, "filter": query, "projection": {"name": 1, "nextRunAt": 1}}, as_jobs, Repeat.SAFE
    )


def delete_many(collection: str, selector: Selector) -> Command[int]:
    """Delete these jobs, running ones too; return how many.

    Repeat:  guarded
    Source:  specs/monque.md#sec-5-13
    """
    return _delete(collection, selector.query(), Repeat.GUARDED, many=True)


# --- reading ----------------------------------------------------------------------------------------------------------


def get_jobs(
    collection: str, *, name: str | None, status: str | Sequence[str] | None, limit: int, skip: int
) -> Command[list[Job[Any]]]:
    """Read jobs, those due first at the front; limit 0: all.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-15
    """
    query = Selector(name=name, status=status).query()
    return Command(
        {"find": collection, "filter": query, "sort": {"nextRunAt": 1}, "skip": skip, "limit": limit},
        as_jobs,
        Repeat.SAFE,
    )


class ListFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a listing holds: name, states, and bounds of moments, which belong to the range.

    Args:
        name: The name of the jobs; any by default, None, or empty.
        status: A state, or several; any by default, None.
        created_at_from: The earliest creation: an aware `datetime`, or milliseconds since the Unix epoch; none by
            default.
        created_at_to: The latest, likewise; none by default.
        updated_at_from: The earliest change, likewise; none by default.
        updated_at_to: The latest, likewise; none by default.
        next_run_at_from: The earliest time of a run, likewise; none by default.
        next_run_at_to: The latest, likewise; none by default.

    Source: specs/monque.md#sec-5-15

    Examples:
        >>> ListFilter(status="failed", updated_at_from=1_766_000_000_000).status
        'failed'
    """

    name: str | None = None
    status: str | Sequence[str] | None = None
    created_at_from: Any = None
    created_at_to: Any = None
    updated_at_from: Any = None
    updated_at_to: Any = None
    next_run_at_from: Any = None
    next_run_at_to: Any = None

    def query(self) -> dict[str, Any]:
        """Return the condition of a command."""
        found = Selector(name=self.name, status=self.status).query()
        ranges = (
            ("createdAt", "created_at", self.created_at_from, self.created_at_to),
            ("updatedAt", "updated_at", self.updated_at_from, self.updated_at_to),
            ("nextRunAt", "next_run_at", self.next_run_at_from, self.next_run_at_to),
        )
        for field, ours, first, last in ranges:
            bounds: dict[str, Any] = {}
            if first is not None:
                bounds["$gte"] = to_date(moment(f"{ours}_from", first))
            if last is not None:
                bounds["$lte"] = to_date(moment(f"{ours}_to", last))
            if bounds:
                found[field] = bounds
        return found


def check_filter(filter: object) -> ListFilter:
    """Return a filter, or raise `UsageError`."""
    if not isinstance(filter, ListFilter):
        raise UsageError("filter", filter, "must be a ListFilter")
    return filter


def get_page(
    collection: str, filter: ListFilter, sort: Sort, *, direction: str, anchor: tuple[Any, Anchor] | None, limit: int
) -> Command[list[Job[Any]]]:
    """Read one job more than a page holds, in the order of the walk. `anchor`: `_id` and place of the last page's end.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-15
    """
    order = 1 if (sort.direction == "asc") is (direction == "forward") else -1
    sorting = {"_id": order} if sort.by == "identifier" else {sort.by: order, "_id": order}
    query = filter.query()
    if anchor is not None:
        key, place = anchor
        beyond = "$gt" if order == 1 else "$lt"
        if sort.by == "identifier":
            bound: dict[str, Any] = {"_id": {beyond: key}}
        else:
            value = to_date(place.value or 0)
            bound = {"$or": [{sort.by: {beyond: value}}, {sort.by: value, "_id": {beyond: key}}]}
        # The bound and a range of dates may concern the same field.
        query = bound if not query else {"$and": [query, bound]}
    return Command({"find": collection, "filter": query, "sort": sorting, "limit": limit + 1}, as_jobs, Repeat.SAFE)


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs there are in each state, and in all; the mean time from creation to completion, rounded, in
    milliseconds, None without a completed job.

    Source: specs/monque.md#sec-5-16
    """

    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    total: int = 0
    avg_processing_duration_ms: int | None = None


def get_stats(collection: str, name: str | None) -> Command[QueueStats]:
    """Count the jobs of a name, or all.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-16
    """
    pipeline: list[Document] = [{"$match": {"name": name}}] if check_text("name", name) else []
    mean = {"$avg": {"$subtract": ["$updatedAt", "$createdAt"]}}
    facets = {
        "statusCounts": [{"$group": {"_id": "$status", "count": {"$sum": 1}}}],
        "avgDuration": [{"$match": {"status": "completed"}}, {"$group": {"_id": None, "avgMs": mean}}],
        "total": [{"$count": "count"}],
    }
    return _aggregate(collection, [*pipeline, {"$facet": facets}], _as_stats)


class NamedStats(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one name."""

    name: str
    stats: QueueStats


def get_summaries(collection: str) -> Command[list[NamedStats]]:
    """Count the jobs of each name, sorted by name.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-16
    """
    took = {"$subtract": ["$updatedAt", "$createdAt"]}
    is_done = {"$eq": ["$status", "completed"]}
    counts = {str(status): {"$sum": {"$cond": [{"$eq": ["$status", str(status)]}, 1, 0]}} for status in JobStatus}
    group = {
        "_id": "$name",
        **counts,
        "total": {"$sum": 1},
        "durationSum": {"$sum": {"$cond": [is_done, took, 0]}},
        "durationCount": {"$sum": {"$cond": [is_done, 1, 0]}},
    }
    return _aggregate(collection, [{"$group": group}], _as_summaries)


def _aggregate(collection: str, pipeline: list[Document], decode: Callable[[Document], T]) -> Command[T]:
    document: Document = {"aggregate": collection, "pipeline": pipeline, "cursor": {}, "maxTimeMS": STATS_LIMIT_MS}
    return Command(document, decode, Repeat.SAFE)


def _as_stats(reply: Document) -> QueueStats:
    documents = as_documents(reply)
    try:
        facets = msgspec.convert(documents[0], _Facets)
    except (IndexError, msgspec.ValidationError):
        raise UnexpectedReply("the counts of the states", reply) from None
    known = {str(status) for status in JobStatus}
    counts = {
        each.id: int(each.count) for each in facets.status_counts if isinstance(each.id, str) and each.id in known
    }
    mean = facets.mean[0].mean_ms if facets.mean else None
    return QueueStats(
        **counts,
        total=int(facets.total[0].count) if facets.total else 0,
        avg_processing_duration_ms=None if mean is None else _rounded(mean),
    )


def _as_summaries(reply: Document) -> list[NamedStats]:
    try:
        found = msgspec.convert(as_documents(reply), list[_Group])
    except msgspec.ValidationError:
        raise UnexpectedReply("the counts of each name", reply) from None
    named = [(group.id, group) for group in found if isinstance(group.id, str)]
    return [
        NamedStats(
            name=name,
            stats=QueueStats(
                pending=int(group.pending),
                processing=int(group.processing),
                completed=int(group.completed),
                failed=int(group.failed),
                cancelled=int(group.cancelled),
                total=int(group.total),
                avg_processing_duration_ms=_rounded(group.sum / group.count) if group.count else None,
            ),
        )
        for name, group in sorted(named, key=lambda each: each[0])
    ]


def _rounded(value: float) -> int:
    """Round as JavaScript does: halves go up."""
    return int((value + 0.5) // 1)


class _Count(msgspec.Struct):
    count: float
    id: Any = msgspec.field(default=None, name="_id")


class _Mean(msgspec.Struct):
    mean_ms: float | None = msgspec.field(default=None, name="avgMs")


class _Facets(msgspec.Struct):
    status_counts: list[_Count] = msgspec.field(name="statusCounts")
    mean: list[_Mean] = msgspec.field(name="avgDuration")
    total: list[_Count]


class _Group(msgspec.Struct):
    id: Any = msgspec.field(name="_id")
    total: float
    pending: float = 0
    processing: float = 0
    completed: float = 0
    failed: float = 0
    cancelled: float = 0
    sum: float = msgspec.field(default=0, name="durationSum")
    count: float = msgspec.field(default=0, name="durationCount")


# --- change streams ---------------------------------------------------------------------------------------------------


class Change(msgspec.Struct, frozen=True):
    """What a change means for schedulers: a job of this name is due at `next_run_at`, or (None) a slot may be free."""

    name: str
    next_run_at: Millis | None


def watch(collection: str) -> Command[list[Change]]:
    """Wait for changes of jobs. A hint, and nothing else: the job is still won by a claim.

    The driver keeps the stream open between two of these, and answers each with the changes since the last one; the
    first one, as soon as the server has opened the stream.

    Repeat:  safe
    Source:  specs/monque.md#sec-5-17
    """
    updated = [{f"updateDescription.updatedFields.{field}": {"$exists": True}} for field in ("status", "nextRunAt")]
    watched = [{"operationType": "insert"}, {"operationType": "update", "$or": updated}]
    pipeline = [{"$changeStream": {"fullDocument": "updateLookup"}}, {"$match": {"$or": watched}}]
    return Command({"aggregate": collection, "pipeline": pipeline, "cursor": {}}, _as_changes, Repeat.SAFE)


def _as_changes(reply: Document) -> list[Change]:
    changes: list[Change] = []
    for document in as_documents(reply):
        try:
            job = read_job(document.get("fullDocument"))
        except UnexpectedReply:
            # Deleted meanwhile, or no job.
            continue
        if job.status == "pending":
            changes.append(Change(job.name, job.next_run_at or 0))
        elif job.status in ("completed", "failed"):
            changes.append(Change(job.name, None))
    return changes
