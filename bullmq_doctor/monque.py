"""Look over a collection of Monque's: `python -m bullmq_doctor.monque URL DATABASE [COLLECTION]`.

`look` reads facts (never writes), `examine` is the pure function that turns them into findings. Needs pymongo beside
the extra `doctor`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

import click
import msgspec
from bson.errors import BSONError
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from bullmq_doctor.examine import Finding, Severity
from monque_protocol.commands import indexes
from monque_protocol.cron import next_cron
from monque_protocol.document import Job, JobStatus, read_job, to_date
from monque_protocol.errors import InvalidCronError, InvalidJobIdentifierError
from monque_protocol.options import DEFAULT_COLLECTION, check_name

LOCK_MS = 1_800_000
"""Monque's default: jobs locked for longer are recovered by the next scheduler that starts."""
LATE_MS = 60_000
SILENT_MS = 90_000
"""Three heartbeats of Monque's default: an owner that is silent for longer is gone."""
MOST = 100
_SHOWN = 3
_CODES = {None: 0, Severity.NOTE: 0, Severity.WARNING: 1, Severity.ERROR: 3}
_ORDER = list(Severity)


class MonqueFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection holds: its indexes as the server lists them, and up to a hundred jobs of each kind.

    `conflicts`: name and key of which several jobs are active. `names`: those of pending and processing jobs.
    """

    collection: str
    now: int
    indexes: Sequence[Mapping[str, Any]]
    locked: Sequence[Job[Any]]
    silent: Sequence[Job[Any]]
    late: Sequence[Job[Any]]
    recurring: Sequence[Job[Any]]
    conflicts: Sequence[tuple[str, str]]
    unknown_states: Sequence[str]
    names: Sequence[str]


def look(database: Any, collection: str, now: int) -> MonqueFacts:
    """Read the facts. Raises the errors of pymongo."""
    jobs = database[collection]

    def found(**query: Any) -> list[Job[Any]]:
        return [read_job(each) for each in jobs.find({"name": {"$type": "string"}, **query}, limit=MOST)]

    active = {"status": {"$in": ["pending", "processing"]}}
    keyed = {**active, "uniqueKey": {"$exists": True}}
    group = {"_id": {"name": "$name", "key": "$uniqueKey"}, "count": {"$sum": 1}}
    pairs = jobs.aggregate([{"$match": keyed}, {"$group": group}, {"$match": {"count": {"$gt": 1}}}, {"$limit": MOST}])
    locked_before, silent_since = to_date(now - LOCK_MS), to_date(now - SILENT_MS)
    return MonqueFacts(
        collection=collection,
        now=now,
        indexes=[dict(each) for each in jobs.list_indexes()],
        locked=found(status="processing", lockedAt={"$lt": locked_before}),
        silent=found(status="processing", lockedAt={"$gte": locked_before}, lastHeartbeat={"$lt": silent_since}),
        late=found(status="pending", nextRunAt={"$lt": to_date(now - LATE_MS)}),
        recurring=found(repeatInterval={"$exists": True}, status={"$in": ["failed", "pending", "completed"]}),
        conflicts=[(str(each["_id"].get("name")), str(each["_id"].get("key"))) for each in pairs],
        unknown_states=[str(each) for each in jobs.distinct("status") if each not in tuple(JobStatus)],
        names=[str(each) for each in jobs.distinct("name", active)],
    )


def examine(facts: MonqueFacts) -> list[Finding]:
    """Return what is wrong."""
    return list(_examine(facts))


def _examine(facts: MonqueFacts) -> Iterator[Finding]:
    def found(check: str, severity: Severity, problem: str, fix: str) -> Finding:
        return Finding(check, severity, facts.collection, problem, fix)

    known = {_shape(each) for each in facts.indexes}
    keys = {shape[0] for shape in known}
    for index in indexes(retention=False):
        keyed, unique = _shape(index)
        if (keyed, unique) in known:
            continue
        if unique:
            problem = "is not unique" if keyed in keys else "is missing"
            yield found(
                "unique-index",
                Severity.ERROR,
                f"the index {index['name']} {problem}: unique keys hold back nothing",
                "start a scheduler without skip_index_creation; drop an index of that name with other options first",
            )
        else:
            yield found(
                "index",
                Severity.WARNING,
                f"the index {index['name']} is missing",
                "start a scheduler of Monque 1.10 or of ours without skip_index_creation",
            )
    if facts.conflicts:
        shown = ", ".join(f"{name}: {key}" for name, key in facts.conflicts[:_SHOWN])
        yield found(
            "key-conflict",
            Severity.ERROR,
            f"{len(facts.conflicts)} unique keys have several active jobs ({shown}): the unique index cannot be made",
            "cancel or delete all of them but one",
        )
    if facts.locked:
        yield found(
            "locked",
            Severity.ERROR,
            f"{len(facts.locked)} jobs have been locked for over {LOCK_MS // 60_000} minutes ({_ids(facts.locked)})",
            "if their owners are gone, start any scheduler: it recovers them; else raise lock_timeout everywhere",
        )
    if facts.silent:
        yield found(
            "silent-owner",
            Severity.WARNING,
            f"{len(facts.silent)} running jobs have had no heartbeat for {SILENT_MS // 1000} s ({_ids(facts.silent)})",
            "their schedulers are gone or blocked: the jobs run again when lock_timeout is over and a scheduler starts",
        )
    if facts.late:
        names = ", ".join(sorted({job.name for job in facts.late})[:_SHOWN])
        yield found(
            "late",
            Severity.WARNING,
            f"{len(facts.late)} pending jobs have been due for more than {LATE_MS // 1000} s ({names})",
            "run a scheduler with handlers for these names, or raise their concurrency",
        )
    yield from _recurring(facts, found)
    for name in facts.names:
        try:
            check_name(name)
        except InvalidJobIdentifierError as error:
            fix = "Monque 1.7 and later cannot add or register it: delete its jobs, and choose another name"
            yield found("name", Severity.WARNING, f"jobs have a name that Monque refuses: {error}", fix)
    if facts.unknown_states:
        states = ", ".join(facts.unknown_states[:_SHOWN])
        yield found("state", Severity.WARNING, f"jobs have states that Monque does not know: {states}", "mend them")


def _recurring(facts: MonqueFacts, found: Any) -> Iterator[Finding]:
    stopped = [job for job in facts.recurring if job.status != JobStatus.PENDING]
    if stopped:
        yield found(
            "recurring-stopped",
            Severity.ERROR,
            f"{len(stopped)} recurring jobs have stopped, their runs used up ({_ids(stopped)})",
            "retry them (retry_job), and see to their failure reason",
        )
    for job in facts.recurring:
        try:
            # What is no text is read as absent.
            next_cron(job.repeat_interval or "no text", after=facts.now, zone=UTC)
        except InvalidCronError as error:
            fix = "delete it and schedule it anew: each run would count as failed"
            yield found("recurring-cron", Severity.ERROR, f"recurring job {job.id}: {error}", fix)


def _ids(jobs: Sequence[Job[Any]]) -> str:
    return ", ".join(job.id for job in jobs[:_SHOWN]) + (", ..." if len(jobs) > _SHOWN else "")


def _shape(index: Mapping[str, Any]) -> tuple[tuple[tuple[str, int], ...], bool]:
    return tuple((field, int(order)) for field, order in index["key"].items()), bool(index.get("unique"))


@click.command(name="bullmq-doctor-monque")
@click.argument("url")
@click.argument("database")
@click.argument("collection", default=DEFAULT_COLLECTION)
def main(url: str, database: str, collection: str) -> None:
    """Say what is wrong with Monque's COLLECTION in the DATABASE at URL, and what mends it. Nothing is written.

    Exit code: 0 nothing found, 1 warnings, 3 errors, 4 the server cannot be examined.
    """
    kind: Any = MongoClient
    # Moments beyond the years 1 to 9999 would raise.
    client = kind(url, serverSelectionTimeoutMS=5_000, tz_aware=True, datetime_conversion="DATETIME_AUTO")
    try:
        findings = examine(look(client[database], collection, time.time_ns() // 1_000_000))
    except (PyMongoError, BSONError) as error:
        click.echo(f"bullmq-doctor: {error}", err=True)
        sys.exit(4)
    finally:
        client.close()
    for finding in findings:
        click.echo(f"{finding.severity.value}: {finding.where}: {finding.problem}\n  fix: {finding.fix}")
    if not findings:
        click.echo(f"{collection}: nothing is wrong")
    sys.exit(_CODES[max((finding.severity for finding in findings), key=_ORDER.index, default=None)])


if __name__ == "__main__":
    main()
