"""What a server holds of the queues, read without the library: jobs with their states, and the stream of events."""

import itertools
import json
from typing import Any, NamedTuple

import redis

from tests.chaos.load import QUEUES

_LISTS = ("wait", "active", "paused")
_SETS = ("prioritized", "delayed", "completed", "failed", "waiting-children")
_OTHERS = ("stalled", "stalled-check", "marker", "id", "pc", "meta", "events")
_UNFINISHED = ("wait", "active", "paused", "prioritized", "delayed", "waiting-children")
_BATCH = 2000

Client = Any


class Stored(NamedTuple):
    """A job's hash, and every state it stands in (one entry each time it stands there)."""

    mark: str
    states: tuple[str, ...]
    attempts: int
    reason: str
    fails: int
    """How many attempts were to fail."""


class Event(NamedTuple):
    """One entry of a queue's stream; `mark` is that of the job which had the id at that moment."""

    at: int
    kind: str
    mark: str
    id: str
    reason: str


class State(NamedTuple):
    """Everything about one queue. `strange` names keys and ids that should not be there."""

    jobs: dict[str, Stored]
    events: list[Event]
    locks: list[str]
    strange: list[str]

    def marks(self) -> set[str]:
        """Return the marks of the jobs that stand in a state or were completed."""
        held = {job.mark for job in self.jobs.values() if job.states}
        return held | {event.mark for event in self.events if event.kind == "completed"}


def unfinished(client: Client) -> int:
    """Count the jobs that are still to be worked on."""
    with client.pipeline(transaction=False) as pipe:
        for queue, name in itertools.product(QUEUES, _UNFINISHED):
            pipe.llen(f"bull:{queue}:{name}") if name in _LISTS else pipe.zcard(f"bull:{queue}:{name}")
        return sum(pipe.execute())


def events_so_far(client: Client) -> int:
    return sum(client.xlen(f"bull:{queue}:events") for queue in QUEUES)


def read_state(client: Client) -> dict[str, State]:
    return {queue: _read_queue(client, f"bull:{queue}:") for queue in QUEUES}


def _read_queue(client: Client, base: str) -> State:
    states: dict[str, list[str]] = {}
    for name in _LISTS + _SETS:
        members = client.lrange(base + name, 0, -1) if name in _LISTS else client.zrange(base + name, 0, -1)
        for member in members:
            states.setdefault(member, []).append(name)
    names = [key.removeprefix(base) for key in client.scan_iter(match=f"{base}*", count=_BATCH)]
    locks = [name for name in names if name.endswith(":lock")]
    ids = [name for name in names if ":" not in name and name not in _LISTS + _SETS + _OTHERS]
    jobs: dict[str, Stored] = {}
    for some in _batches(ids):
        with client.pipeline(transaction=False) as pipe:
            for job_id in some:
                pipe.hmget(base + job_id, "name", "atm", "failedReason", "data")
            for job_id, (mark, attempts, reason, data) in zip(some, pipe.execute(), strict=True):
                fails = json.loads(data)["fails"] if data else 0
                where = tuple(states.pop(job_id, ()))
                jobs[job_id] = Stored(mark or "?", where, int(attempts or 0), reason or "", fails)
    strange = [f"{base}{job_id} stands in {'+'.join(where)} without a hash" for job_id, where in states.items()]
    strange += [f"{base}{name}" for name in names if name.endswith((":logs", ":dependencies"))]
    return State(jobs, _read_events(client, f"{base}events"), locks, strange)


def _batches(ids: list[str]) -> list[list[str]]:
    return [ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH)]


def _read_events(client: Client, key: str) -> list[Event]:
    events: list[Event] = []
    marks: dict[str, str] = {}
    last = "-"
    while entries := client.xrange(key, min=last, count=10_000):
        for entry_id, fields in entries:
            kind, job_id = fields["event"], fields.get("jobId", "")
            if kind == "added":
                marks[job_id] = fields["name"]
            at = int(entry_id.partition("-")[0])
            events.append(Event(at, kind, marks.get(job_id, "?"), job_id, fields.get("failedReason", "")))
        last = f"({entries[-1][0]}"
    return events


def connect(port: int) -> Client:
    return redis.Redis(host="127.0.0.1", port=port, decode_responses=True, socket_timeout=30)
