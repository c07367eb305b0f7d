"""Everything a queue left in Redis, in a form in which two runs of the same jobs are equal.

`LEFT_OUT` is the whole list of what is not compared, with the reason. All the rest is: every key, its type, whether it
expires, every field and member, list and stream contents.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from redis import Redis

State = dict[str, Any]

TIME = "<time>"
_TIMES = re.compile(r'(?<="timestamp":)(\d+|<slot \d+>)|(?<="delay":)\d+')


class LeftOut(NamedTuple):
    """What is replaced by a placeholder before comparing. `part` names the kind of content in the key."""

    key: str
    """Regular expression for the whole key, without the queue's prefix."""
    part: str
    """A hash field, an event field (`event.field`), `score`, `key` (all of it) or `order`."""
    why: str
    race: str = ""
    """Left out only in runs with this race: `order`, several workers; `wake`, they close when the last job is done;
    `slot`, the next run of a scheduler may be due before its job is added, which then waits at once."""
    keep: Callable[[str], Any] = lambda _: TIME
    """What remains of the value."""


LEFT_OUT = (
    LeftOut(r"meta", "version", "names the library that made the queue object"),
    LeftOut(r".*", "processedOn", "a time"),
    LeftOut(r".*", "finishedOn", "a time"),
    LeftOut(
        r".*",
        "timestamp",
        "a time, compared where the caller set it",
        keep=lambda text: text if text == "<base>" else TIME,
    ),
    LeftOut(r".*", "stacktrace", "texts of the language; compared: how many", keep=lambda text: len(json.loads(text))),
    LeftOut(r"events", "delayed.delay", "a time: the moment of the due job"),
    LeftOut(r"completed|failed|waiting-children|.*:unsuccessful", "score", "a time"),
    LeftOut(r"stalled-check", "key", "a time, and gone after the stalled interval"),
    LeftOut(r".*:lock", "value", "a random token"),
    LeftOut(r"repeat", "score", "a time: the next slot"),
    LeftOut(r"repeat:[^:]*", "offset", "a time: the first slot modulo the period"),
    LeftOut(r"repeat:[^:]*", "opts", "the order of its members is that of Lua's tables", keep=json.loads),
    LeftOut(
        r"repeat:.*:.*", "opts", "its members timestamp and delay are times", keep=lambda text: _TIMES.sub(TIME, text)
    ),
    LeftOut(r"completed|failed", "order", "who finished first; in one millisecond the names decide"),
    LeftOut(r"events", "order", "who was first; compared: the sequence of each job's events", race="order"),
    LeftOut(r"events", "drained", "how often a worker found nothing", race="wake"),
    LeftOut(r"marker", "key", "who woke up last", race="wake"),
    LeftOut(r"events", "delayed", "whether the run was still to come", race="slot"),
    LeftOut(r"events", "waiting", "the same: it tells of the state before", race="slot"),
)
"""Stream ids are times too and are not read at all."""


def read(
    raw: "Redis[bytes]", names: Sequence[str], *, base_ms: int | None = None, also: Mapping[str, str] | None = None
) -> State:
    """Read all keys of the queues (default prefix). Queue names become `<0>`, `<1>`...; the base time `<base>`.

    `also` maps more texts to placeholders.
    """
    texts = {**{name: f"<{index}>" for index, name in enumerate(names)}, **(also or {})}
    if base_ms is not None:
        texts[str(base_ms)] = "<base>"
    keys = sorted(key for name in names for key in raw.scan_iter(f"bull:{name}:*", count=10_000))
    with raw.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
            pipe.pttl(key)
        answers = pipe.execute()
        types = [kind.decode() for kind in answers[::2]]
        for key, kind in zip(keys, types, strict=True):
            _READ[kind](pipe, key)
        values = pipe.execute()

    def text(value: bytes | str | float) -> str:
        if not isinstance(value, (bytes, str)):
            return repr(value)
        found = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
        for name, placeholder in texts.items():
            found = found.replace(name, placeholder)
        return found

    state: State = {}
    for key, kind, ttl, value in zip(keys, types, answers[1::2], values, strict=True):
        content = _tidy(kind, value, text)
        if base_ms is not None and key.endswith((b":delayed", b":marker")):
            # Both hold moments; in the set with 12 bits more for the order.
            unit = 4096 if key.endswith(b":delayed") else 1
            content = [(member, score - base_ms * unit if score else score) for member, score in content]
        state[text(key).removeprefix("bull:")] = {"type": kind, "expires": ttl >= 0, "value": content}
    return state


_READ: Mapping[str, Callable[[Any, bytes], Any]] = {
    "string": lambda pipe, key: pipe.get(key),
    "list": lambda pipe, key: pipe.lrange(key, 0, -1),
    "set": lambda pipe, key: pipe.smembers(key),
    "zset": lambda pipe, key: pipe.zrange(key, 0, -1, withscores=True),
    "hash": lambda pipe, key: pipe.hgetall(key),
    "stream": lambda pipe, key: pipe.xrange(key),
}


def _tidy(kind: str, value: Any, text: Callable[[Any], str]) -> Any:
    if kind == "hash":
        return {text(field): text(content) for field, content in value.items()}
    if kind == "zset":
        return [(text(member), score) for member, score in value]
    if kind == "stream":
        return [{text(field): text(content) for field, content in fields.items()} for _, fields in value]
    if kind == "set":
        return sorted(map(text, value))
    return list(map(text, value)) if kind == "list" else text(value)


def comparable(state: State, *, races: Sequence[str] = ()) -> State:
    """Apply `LEFT_OUT`."""
    result = {}
    for key, entry in state.items():
        bare = key.partition(":")[2]
        rules = [rule for rule in LEFT_OUT if re.fullmatch(rule.key, bare) and (not rule.race or rule.race in races)]
        parts = {rule.part: rule for rule in rules}
        if "key" in parts:
            continue
        value = entry["value"]
        if entry["type"] == "hash":
            value = {field: parts[field].keep(text) if field in parts else text for field, text in value.items()}
        elif entry["type"] == "zset":
            value = [(member, TIME if "score" in parts else score) for member, score in value]
            value = sorted(value) if "order" in parts else value
        elif entry["type"] == "string" and "value" in parts:
            value = TIME
        elif entry["type"] == "stream":
            value = [_event(fields, parts) for fields in value if fields["event"] not in parts]
            value = _by_job(value) if "order" in parts else value
        result[key] = {**entry, "value": value}
    return result


def _event(fields: Mapping[str, str], parts: Mapping[str, LeftOut]) -> dict[str, Any]:
    return {
        field: parts[f"{fields['event']}.{field}"].keep(text) if f"{fields['event']}.{field}" in parts else text
        for field, text in fields.items()
    }


def _by_job(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    jobs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for fields in events:
        jobs[fields.get("jobId", "")].append(fields)
    return jobs


def differences(ours: State, theirs: State, *, races: Sequence[str] = ()) -> list[str]:
    """Return one line per key in which two states differ; empty when they are equal."""
    left, right = comparable(ours, races=races), comparable(theirs, races=races)
    different = [key for key in sorted(left.keys() | right.keys()) if left.get(key) != right.get(key)]
    return [f"{key}: {_shortened(left.get(key), right.get(key))}" for key in different]


def _shortened(ours: Any, theirs: Any) -> str:
    if ours is None or theirs is None:
        return f"only with {'Node' if ours is None else 'us'}: {str(theirs if ours is None else ours)[:300]}"
    if isinstance(ours["value"], dict) and isinstance(theirs["value"], dict):
        names = [
            n for n in ours["value"].keys() | theirs["value"].keys() if ours["value"].get(n) != theirs["value"].get(n)
        ]
        pairs = [f"{name}: {ours['value'].get(name)!r} and {theirs['value'].get(name)!r}" for name in sorted(names)]
        return f"{len(names)} fields or jobs; " + "; ".join(pairs)[:600]
    if isinstance(ours["value"], list) and isinstance(theirs["value"], list):
        index = next((i for i, (a, b) in enumerate(zip(ours["value"], theirs["value"], strict=False)) if a != b), -1)
        at = f"{ours['value'][index]!r} and {theirs['value'][index]!r}" if index >= 0 else "one is longer"
        return f"lengths {len(ours['value'])} and {len(theirs['value'])}; first difference at {index}: {at}"
    return f"{str(ours)[:300]} and {str(theirs)[:300]}"


# --- snapshots during a run ------------------------------------------------------------------------------------------

_LISTS = ("wait", "paused", "active")
_SETS = ("prioritized", "delayed", "waiting-children", "completed", "failed")


class Snapshot(NamedTuple):
    """All states of one queue at one moment."""

    states: dict[str, list[str]]
    added: int
    """What the id counter says."""
    removed: int
    """Jobs gone by their own retention, as the stream tells."""
    unlocked: list[str]
    """Active jobs without a lock."""

    def problems(self, concurrency: int) -> list[str]:
        """Check what must hold at every moment."""
        ids = Counter(job_id for members in self.states.values() for job_id in members)
        found = [f"{job_id} is in {n} states at once" for job_id, n in ids.items() if n > 1]
        if len(self.states["active"]) > concurrency:
            found.append(f"{len(self.states['active'])} jobs are active with a concurrency of {concurrency}")
        found += [f"{job_id} is active and has no lock" for job_id in self.unlocked]
        if sum(ids.values()) + self.removed != self.added:
            found.append(f"{sum(ids.values())} jobs are in a state and {self.removed} gone, {self.added} were added")
        return found


def snapshot(raw: "Redis[bytes]", queue: str, gone_when_done: Callable[[str, str], bool]) -> Snapshot:
    """Look at all states in one transaction. `gone_when_done(job id, event)` tells which jobs retention removes."""
    base = f"bull:{queue}:"
    with raw.pipeline(transaction=True) as pipe:
        for name in _LISTS:
            pipe.lrange(base + name, 0, -1)
        for name in _SETS:
            pipe.zrange(base + name, 0, -1)
        pipe.get(base + "id")
        pipe.xrange(base + "events")
        pipe.eval(_UNLOCKED, 1, base + "active", base)
        *members, added, events, unlocked = pipe.execute()
    states = {name: [job_id.decode() for job_id in ids] for name, ids in zip(_LISTS + _SETS, members, strict=True)}
    done = [(fields[b"jobId"].decode(), fields[b"event"].decode()) for _, fields in events if b"jobId" in fields]
    removed = sum(gone_when_done(job_id, event) for job_id, event in done)
    return Snapshot(states, int(added or 0), removed, [job_id.decode() for job_id in unlocked])


_UNLOCKED = """
local found = {}
for _, id in ipairs(redis.call("LRANGE", KEYS[1], 0, -1)) do
  if redis.call("EXISTS", ARGV[1] .. id .. ":lock") == 0 then found[#found + 1] = id end
end
return found
"""
