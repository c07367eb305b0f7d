"""From facts to findings; pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec

from bullmq_doctor.facts import Facts, QueueFacts, ServerFacts
from bullmq_protocol.model.cron import read_differently
from bullmq_protocol.net.server_info import MINIMUM_VERSION

SKEW_MS = 1_000
"""Clocks further apart are reported."""
LATE_MS = 10_000
"""A delayed job due for longer is reported: an idle worker looks every five seconds."""
FULL = 0.75
VERY_FULL = 0.9
FINISHED_SHARE = 0.5
MANY_FINISHED = 100_000
FEW_EVENTS = 100
MANY_EVENTS = 1_000_000
_SHOWN = 3
_KEEPS_LAST = (5, 72)
_WITHOUT_REPEATABLES = (6,)
_ENDS = 2
"""A repeatable whose key has this many colons ends with BullMQ 6."""


class Severity(Enum):
    """How bad it is; an error loses jobs or keeps them from running."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong: where (`server`, or a queue as it stands in the keys), what, and what mends it."""

    check: str
    severity: Severity
    where: str
    problem: str
    fix: str


def examine(facts: Facts) -> list[Finding]:
    """Return what is wrong, the server's first, each queue's in its order."""
    findings = list(_server(facts.server))
    for queue in facts.queues:
        findings += _queue(queue, facts.server)
    if not facts.queues:
        fix = "look at --prefix, with its braces, if there should be some"
        findings.append(Finding("no-queues", Severity.NOTE, "server", "has no queues of this prefix", fix))
    return findings


def _server(server: ServerFacts) -> Iterator[Finding]:
    def found(check: str, severity: Severity, problem: str, fix: str) -> Finding:
        return Finding(check, severity, "server", problem, fix)

    if server.version < MINIMUM_VERSION:
        yield found(
            "version",
            Severity.ERROR,
            f"version {_dotted(server.version)} is older than {_dotted(MINIMUM_VERSION)}, which BullMQ's scripts need",
            "upgrade the server",
        )
    if server.role not in ("master", ""):
        yield found(
            "replica",
            Severity.ERROR,
            "is a replica: it refuses to write (READONLY)",
            "connect to the master, or through its sentinels",
        )
    if server.policy not in ("noeviction", ""):
        yield found(
            "eviction",
            Severity.ERROR if server.memory_limit else Severity.WARNING,
            f"maxmemory-policy is {server.policy}: keys of jobs may be evicted",
            "CONFIG SET maxmemory-policy noeviction, and in the server's configuration file",
        )
    if server.memory_limit and server.memory_used > FULL * server.memory_limit:
        yield found(
            "memory",
            Severity.ERROR if server.memory_used > VERY_FULL * server.memory_limit else Severity.WARNING,
            f"uses {server.memory_used / server.memory_limit:.0%} of its {_size(server.memory_limit)}: "
            "adding fails with OOM when it is full",
            "raise maxmemory, or let finished jobs be removed (remove_on_complete, remove_on_fail, clean)",
        )
    if not server.append_only and not server.snapshots:
        yield found(
            "persistence",
            Severity.WARNING,
            "keeps nothing on disk: all jobs are lost when it restarts",
            "CONFIG SET appendonly yes, and in the server's configuration file",
        )
    elif not server.append_only:
        yield found(
            "persistence",
            Severity.NOTE,
            "writes snapshots only: jobs of the last minutes are lost when it crashes",
            "CONFIG SET appendonly yes, and in the server's configuration file",
        )
    if server.last_write != "ok":
        yield found(
            "last-write",
            Severity.ERROR,
            f"could not write to disk ({server.last_write}): it may refuse commands (MISCONF)",
            "look for the reason in the server's log: a full disk, missing rights",
        )
    if abs(server.skew_ms) > SKEW_MS:
        yield found(
            "clock",
            Severity.WARNING,
            f"its clock is {abs(server.skew_ms) / 1000:.1f} s {'ahead of' if server.skew_ms > 0 else 'behind'} this "
            "machine's: delays are counted by the clocks of producers and workers",
            "let all machines synchronise their clocks (NTP)",
        )
    if server.scripts is not None:
        yield found(
            "scripts",
            Severity.ERROR,
            f"does not run scripts: {server.scripts}",
            "ACL SETUSER <user> +eval +evalsha +script",
        )
    if server.clients is not None:
        yield found(
            "clients",
            Severity.NOTE,
            f"does not tell which workers are there: {server.clients}",
            "ACL SETUSER <user> +client|list",
        )
    if server.unsearched:
        yield found("search", Severity.NOTE, "has more keys than were searched for queues", "name the queues")


def _queue(queue: QueueFacts, server: ServerFacts) -> Iterator[Finding]:
    def found(check: str, severity: Severity, problem: str, fix: str) -> Finding:
        return Finding(check, severity, queue.name, problem, fix)

    counts = queue.counts
    ready = counts.get("wait", 0) + counts.get("prioritized", 0)
    waiting = ready + counts.get("paused", 0) + counts.get("delayed", 0)
    version = _version(queue)
    newer = queue.port or version >= _WITHOUT_REPEATABLES
    # On a cluster none of the queue's own commands works without a tag.
    if server.cluster and not queue.tagged:
        yield found(
            "hash-tag",
            Severity.ERROR,
            "has no hash tag: the cluster puts its keys into different slots (CROSSSLOT)",
            "put the prefix or the queue name into braces on all clients: layout=KeyLayout.TAGGED_PREFIX, on Node "
            '{prefix: "{bull}"}',
        )
    if not queue.known:
        yield found(
            "no-queue",
            Severity.WARNING,
            "is not there: no client has made it",
            "look at the name and at --prefix, with their braces",
        )
    if version or queue.port:
        seen = [f"BullMQ {_dotted(version)} on Node opened it last"] if version else []
        seen += ["workers of BullMQ's Python port wait for its jobs"] if queue.port else []
        yield found(
            "versions",
            Severity.NOTE,
            f"is shared with other clients: {', and '.join(seen)}",
            "look up what clients of BullMQ 5 and 6 may do beside each other (docs/upgrading.md)",
        )
    if queue.paused and counts.get("wait") and counts.get("paused"):
        yield found(
            "both-lists",
            Severity.ERROR,
            f"is paused, with {_jobs(counts['wait'])} in wait and {counts['paused']:,} in paused: a client of BullMQ 5 "
            "that resumes it, or pauses it again, destroys one of the lists",
            "resume it with this library in the profile fleet, or with BullMQ 6 on Node",
        )
    elif queue.paused and waiting:
        yield found(
            "paused",
            Severity.WARNING,
            f"is paused, and {_jobs(waiting)} wait{'s' if waiting == 1 else ''}",
            "queue.resume() if that is not on purpose",
        )
    if queue.left:
        yield found(
            "paused-list",
            Severity.ERROR,
            f"runs, with {_jobs(queue.left)} in its list paused, from which nobody fetches",
            "resume it once more, with this library in the profile fleet (whose workers do that when they start) or "
            "with BullMQ 6 on Node",
        )
    if queue.workers == 0 and waiting and not queue.paused:
        yield found(
            "no-workers",
            Severity.ERROR,
            f"has {_jobs(waiting)} to do and no worker that waits for them",
            "start a worker; look at the logs of those that ran",
        )
    if queue.unlocked:
        yield found(
            "stalled",
            Severity.ERROR if queue.workers == 0 else Severity.WARNING,
            f"has active jobs without a lock, whose workers are gone or hang: {_some(queue.unlocked)}",
            "a running worker's stalled check returns them; let no handler block the event loop for the lock's time",
        )
    if queue.late_ms > LATE_MS and not queue.paused and not queue.limited and queue.workers != 0:
        yield found(
            "overdue",
            Severity.ERROR,
            f"has delayed jobs that are due for {queue.late_ms / 1000:.0f} s",
            "look whether its workers are busy or hang (they promote what is due when they fetch); restart them",
        )
    if queue.unmarked and not queue.paused and not queue.limited and queue.workers:
        yield found(
            "no-marker",
            Severity.ERROR,
            f"has {_jobs(ready)} ready, none active, and nothing that wakes its workers",
            f"ZADD {queue.name}:marker 0 0",
        )
    if queue.missing:
        shown = _some([f"{job_id} ({state})" for state, job_id in queue.missing])
        yield found(
            "missing",
            Severity.ERROR,
            f"holds ids of jobs that do not exist (evicted, or deleted manually): {shown}",
            "remove the ids from their list (LREM) or sorted set (ZREM)",
        )
    if queue.orphans:
        yield found(
            "orphans",
            Severity.ERROR,
            f"has parents that wait for children which do not exist: {_some(queue.orphans)}",
            "remove these parents, or their last link with job.remove_child_dependency()",
        )
    if queue.kept:
        over = bool(queue.stranded)
        yield found(
            "kept-last",
            Severity.ERROR if over else Severity.NOTE if version >= _KEEPS_LAST else Severity.WARNING,
            f"holds jobs that were kept back (keepLastIfActive): {_some(queue.stranded or queue.kept)}; "
            + (
                "the job before is over: nothing adds them, or a later job of that id does, out of date"
                if over
                else "a worker before 5.72, or of ours in the profile strict, would not add them"
            ),
            "let only workers of BullMQ 5.72 or later, or of ours in the profile fleet, work on this queue"
            + (f"; what is kept stands in {queue.name}:dn:<id>: add it again, then delete the record" if over else ""),
        )
    if queue.repeatables:
        yield found(
            "repeatables",
            Severity.ERROR if newer else Severity.NOTE,
            f"has repeatable jobs of BullMQ 5, which BullMQ 6 loses: {_some(_losses(queue.repeatables))}",
            "make a job scheduler of each (upsert_job_scheduler), then remove the repeatable "
            "(remove_repeatable_by_key, or a client of BullMQ 5)",
        )
    if queue.unlisted:
        yield found(
            "unlisted-repeats",
            Severity.ERROR,
            "repeats jobs that no list of schedulers shows: BullMQ 6 added them with the option repeat, BullMQ 5 works "
            f"on them: {_some(queue.unlisted)}",
            "remove these jobs (each is the next of its series); use job schedulers",
        )
    differing = [f"{member} ({pattern}: {why})" for member, pattern, why in _differing(queue)]
    if differing:
        yield found(
            "cron-dialects",
            Severity.ERROR if newer else Severity.NOTE,
            f"has cron patterns that BullMQ 5 and 6 read differently: {_some(differing)}; a worker of BullMQ 6 that "
            "refuses one takes the job over and over, and never runs it",
            "write them without what differs, and upsert their schedulers",
        )
    zoneless = [member for member, _, zone in queue.patterns if not zone]
    if zoneless:
        yield found(
            "cron-zone",
            Severity.WARNING if queue.port else Severity.NOTE,
            f"has cron patterns without a zone: {_some(zoneless)}; Node reads them in the zone of the host, the Python "
            "port in UTC",
            "upsert their schedulers with tz",
        )
    if queue.finished_bytes > FINISHED_SHARE * server.memory_used > 0:
        yield found(
            "finished-memory",
            Severity.WARNING,
            f"its finished jobs hold about {_size(queue.finished_bytes)}, "
            f"{min(1.0, queue.finished_bytes / server.memory_used):.0%} of what the server uses",
            "set remove_on_complete and remove_on_fail; queue.clean() removes what is there",
        )
    finished = counts.get("completed", 0) + counts.get("failed", 0)
    if finished > MANY_FINISHED:
        yield found(
            "retention",
            Severity.NOTE,
            f"keeps {finished:,} finished jobs",
            "set remove_on_complete and remove_on_fail; queue.clean() removes what is there",
        )
    if queue.max_len_events is not None and not FEW_EVENTS <= queue.max_len_events <= MANY_EVENTS:
        few = queue.max_len_events < FEW_EVENTS
        yield found(
            "events",
            Severity.WARNING,
            f"keeps {queue.max_len_events:,} events: {'listeners miss some' if few else 'they hold much memory'}",
            "set max_len_events of every Queue (Node: streams.events.maxLen) to 10,000 or so",
        )


def _version(queue: QueueFacts) -> tuple[int, ...]:
    """Return which BullMQ on Node made its object of this queue last, () if it was none."""
    name, _, dotted = queue.version.partition(":")
    parts = dotted.split("-")[0].split(".")
    return tuple(map(int, parts)) if name == "bullmq" and all(map(str.isdecimal, parts)) else ()


def _differing(queue: QueueFacts) -> Iterator[tuple[str, str, str]]:
    """Return which patterns the dialects of cron read differently, and why.

    Source: specs/06-later-versions.md#sec-4-6-7
    """
    for member, pattern, _ in queue.patterns:
        why = read_differently(pattern)
        if why is not None:
            yield member, pattern, why


def _losses(members: tuple[str, ...]) -> list[str]:
    """Say of each repeatable what BullMQ 6 does to it.

    Source: specs/06-later-versions.md#sec-4-7-3
    """
    return [f"{member} ({'ends' if member.count(':') >= _ENDS else 'gets empty data'})" for member in members]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _jobs(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def _some(ids: tuple[str, ...] | list[str]) -> str:
    left = len(ids) - _SHOWN
    return ", ".join(ids[:_SHOWN]) + (f" and {left} more" if left > 0 else "")


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
