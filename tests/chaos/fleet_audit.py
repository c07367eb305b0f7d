"""What a queue that every version shares holds, moment by moment, against what was acknowledged."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from redis import Redis

LISTS = ("wait", "paused", "active")
SETS = ("prioritized", "delayed", "waiting-children", "completed", "failed")
FINAL = ("completed", "failed")


class Moment(NamedTuple):
    """The states of a queue at one moment, and who is in them."""

    states: dict[str, list[str]]
    paused: bool

    @property
    def waiting(self) -> int:
        """How many jobs are in line, or will be."""
        return sum(len(self.states[name]) for name in ("wait", "paused", "prioritized", "delayed"))

    @property
    def unfinished(self) -> int:
        return sum(len(ids) for name, ids in self.states.items() if name not in FINAL)


class Watch:
    """One queue. Every look adds to `problems` what does not add up, each thing once."""

    def __init__(self, raw: Redis[bytes], queue: str) -> None:
        self._raw: Any = raw
        self._base = f"bull:{queue}:"
        self._seen = "-"
        self.queue = queue
        self.acknowledged: set[str] = set()
        self.added: Counter[str] = Counter()
        self.removed: set[str] = set()
        self.finished: Counter[str] = Counter()
        self.stalled: Counter[str] = Counter()
        self.lost: set[str] = set()
        self.twice: set[str] = set()
        self.problems: dict[str, None] = {}

    def look(self) -> Moment:
        """Look at all states and at the new events in one transaction, between calls of clients."""
        with self._raw.pipeline(transaction=True) as pipe:
            for name in LISTS:
                pipe.lrange(self._base + name, 0, -1)
            for name in SETS:
                pipe.zrange(self._base + name, 0, -1)
            pipe.hexists(f"{self._base}meta", "paused")
            pipe.xrange(f"{self._base}events", self._seen, "+")
            *members, paused, events = pipe.execute()
        # Old clients left markers in the lists.
        states = {
            name: [job_id.decode() for job_id in ids if not job_id.startswith(b"0:")]
            for name, ids in zip((*LISTS, *SETS), members, strict=True)
        }
        self._read(events)
        moment = Moment(states, bool(paused))
        self._check(moment)
        return moment

    def _read(self, events: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        for number, fields in events:
            self._seen = f"({number.decode()}"
            event, job_id = fields[b"event"], fields.get(b"jobId", b"").decode()
            if event == b"added":
                self.added[job_id] += 1
            elif event == b"removed":
                self.removed.add(job_id)
            elif event == b"stalled":
                self.stalled[job_id] += 1
            elif event in (b"completed", b"failed"):
                self.finished[job_id] += 1
            elif event == b"waiting" and fields.get(b"prev") == b"failed":
                # A retry of a failed job: it may finish once more.
                self.finished[job_id] -= 1
            if self.finished[job_id] > 1:
                self.twice.add(job_id)

    def _check(self, moment: Moment) -> None:
        places = Counter(job_id for ids in moment.states.values() for job_id in ids)
        self._tell("in two places at once", {job_id for job_id, count in places.items() if count > 1})
        # A scheduler takes the job back that it has added before; nothing tells of that.
        owned = {job_id for job_id in (*self.acknowledged, *self.added) if not job_id.startswith("repeat:")}
        lost = owned - places.keys() - self.removed
        self.lost |= lost
        self._tell("in no state", lost)
        self._tell("acknowledged, and no event tells of it", self.acknowledged - self.added.keys())
        if moment.states["paused"] and not moment.paused:
            self._tell("set aside in a queue that runs", set(moment.states["paused"]))

    def look_at_kept(self) -> None:
        """Look whether every payload that was kept back has an unfinished job that will bring it back."""
        for record in self._raw.scan_iter(f"{self._base}dn:*", count=1000):
            found = self._raw.eval(_KEPT, 1, record, self._base)
            if found is not None:
                self._tell("kept back, and nothing brings it back", {found.decode()})

    def look_at_hashes(self, moment: Moment) -> None:
        """Look whether every job that is listed exists, and every job that exists is listed."""
        listed = {job_id for ids in moment.states.values() for job_id in ids}
        stored = set()
        for key in self._raw.scan_iter(f"{self._base}*", count=1000, _type="hash"):
            if self._raw.hexists(key, "timestamp"):
                stored.add(key.decode().removeprefix(self._base))
        self._tell("listed without a hash", listed - stored)
        self._tell("stored and in no list", stored - listed)

    def look_at_end(self) -> Moment:
        """Look when everything has been processed."""
        moment = self.look()
        self.look_at_kept()
        self.look_at_hashes(moment)
        for name, ids in moment.states.items():
            if name != "completed":
                self._tell(f"{name} at the end", set(ids))
        self._tell("finished twice", self.twice)
        return moment

    def _tell(self, what: str, ids: set[str]) -> None:
        if ids:
            shown = sorted(ids)
            self.problems[f"{self.queue}: {what}: {', '.join(shown[:5])}{' ...' if shown[5:] else ''}"] = None


# The deduplication id of a record whose holder is over; nil while it is not.
_KEPT = """
local id = string.sub(KEYS[1], #ARGV[1] + 4)
if redis.call('EXISTS', KEYS[1]) == 0 then return nil end
local holder = redis.call('GET', ARGV[1] .. 'de:' .. id)
if holder and redis.call('EXISTS', ARGV[1] .. holder) == 1
  and redis.call('HEXISTS', ARGV[1] .. holder, 'finishedOn') == 0 then return nil end
return id
"""
