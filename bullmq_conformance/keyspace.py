"""All keys of one side in a form in which two clients that did the same are equal.

Nothing is left out but the ids of stream entries. What is each client's own is replaced by what it means:

- A moment, wherever it stands, by the request in whose time it lies: `@4` is a moment while request 4 was done,
  `@4+600000` one that is 600,000 ms later, if that is a duration that some request named. The score of a delayed job
  is such a moment and its order within the millisecond. `@?` is a moment of the same day in no request's time; all
  other numbers stay as they are.
- The moment at which a key expires, in the same way, within 3 ms: the server counts it anew.
- A token by the request that returned it, an id that a client made up by its place in the answer.
- The version in `meta` by `<library>:<version>`, an entry of a stack trace by the reason in it.
- `opts` and `parent` by the JSON in them: scripts write them, in an order that is the server's.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NotRequired, TypeAlias

from bullmq_conformance import states
from bullmq_conformance.states import Json, elements, members
from bullmq_conformance.wire import DUMP, Reply, Stored, Wire, listed, of_bytes, stored_in

PREFIX = "bull"
SLACK_MS = 3
"""How far the expiry of a key may be outside of the request: Redis 6.2 reads the clock for each command."""

UNTIL = (2_000_000_000_000, 2_000_000_600_000)
"""Moments that are long to come: jobs are delayed until these, schedulers begin then."""


class Entry(states.Entry):
    """A key in this form. It has `expires` in place of `ttl_ms`."""

    expires: NotRequired[list[str]]


State: TypeAlias = dict[str, Entry]

_MOMENT = re.compile(r"(?<!\d)1[6-9]\d{11}(?!\d)")
_LEFT = re.compile(r"(?<!\d)\d{7,12}(?!\d)")
_VERSION = re.compile(r"[^:]+:.+")
NO_REQUEST = "@?"
_DAY_MS, _MINUTE_MS = 86_400_000, 60_000
_ORDER = 4096
"""A delayed job's score is its moment times this, plus its order within the millisecond."""


class Moments:
    """The durations that the requests of a sequence named, for both sides."""

    def __init__(self) -> None:
        self.durations: list[int] = [0]
        self.lifetimes: list[int] = []

    def learn(self, *durations: int) -> None:
        """Note durations by which a moment may be later than a request."""
        for each in durations:
            if each > 0 and each not in self.durations:
                self.durations.append(each)
                self.durations.sort()

    def learn_lifetime(self, *durations: int) -> None:
        """Note lifetimes of keys."""
        self.lifetimes += [each for each in durations if each not in self.lifetimes]


class Side:
    """One database: what its client did when, and what is that client's own."""

    def __init__(self, wire: Wire, moments: Moments) -> None:
        self.wire = wire
        self._dump = wire.load(DUMP)
        self._moments = moments
        self.begin()

    def begin(self) -> None:
        """Forget everything, and empty the database."""
        self.wire.run([("FLUSHDB",)])
        self.windows: dict[int, tuple[int, int]] = {}
        self._symbols: dict[str, str] = {}
        self._raw: dict[str, str] = {}
        self.reasons: list[str] = []
        self.known: list[int] = list(UNTIL)

    # What is the client's own

    def name(self, raw: str, symbol: str) -> None:
        """Call a token or an id by what it means from now on."""
        self._symbols[raw] = symbol
        # One may be the beginning of another.
        self._symbols = dict(sorted(self._symbols.items(), key=lambda pair: -len(pair[0])))
        self._raw[symbol] = raw

    def own(self, symbol: str) -> str:
        """Return what the client itself calls it."""
        return self._raw.get(symbol, symbol)

    def moment(self, raw: int) -> str:
        """Return which request a moment belongs to; a moment of these days that belongs to none says so, since the
        number would be another each time."""
        for duration in self._moments.durations:
            for number, (start, end) in self.windows.items():
                if start <= raw - duration <= end:
                    return f"@{number}+{duration}" if duration else f"@{number}"
        return NO_REQUEST if self._is_near(raw) and raw % _MINUTE_MS else str(raw)

    def _is_near(self, raw: int) -> bool:
        return any(abs(start - raw) < _DAY_MS for start, _ in self.windows.values())

    def left(self, raw: int) -> str:
        """Return until which known moment a time is left, seen from which request."""
        for known in self.known:
            for number, (start, end) in self.windows.items():
                if start <= known - raw <= end:
                    return f"{self.moment(known)}-@{number}"
        far = [known for known in self.known if not self._is_near(known)]
        near = next((known for known in far if self._is_near(known - raw)), None)
        return str(raw) if near is None else f"{near}-{NO_REQUEST}"

    def text(self, raw: str) -> str:
        """Return a text without what is the client's own."""
        for own, symbol in self._symbols.items():
            if own in raw:
                raw = raw.replace(own, symbol)
        raw = _MOMENT.sub(lambda found: self.moment(int(found[0])), raw)
        return _LEFT.sub(lambda found: self.left(int(found[0])), raw)

    def json(self, value: Json) -> Json:
        """Return a JSON value without what is the client's own."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(each) for each in value]
        if isinstance(value, dict):
            return {self.text(name): self._member(name, each) for name, each in value.items()}
        if isinstance(value, int) and not isinstance(value, bool):
            text = self.text(str(value))
            return value if text == str(value) else text
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            return self.json(int(value))
        return value

    def _member(self, name: str, value: Json) -> Json:
        if name == "offset" and isinstance(value, int) and (found := self._offset(str(value))) != str(value):
            return found
        return self.json(value)

    # The keys

    def read(self) -> State:
        """Read all keys."""
        # The lifetimes and the clock belong together: again, if something came between.
        stored, now, then = self._dumped()
        for _ in range(20):
            if then - now <= 1:
                break
            stored, now, then = self._dumped()
        found: State = {}
        self._learn_slots(stored)
        for each in stored:
            raw = each.name.decode("utf-8", "backslashreplace")
            key = self.text(raw)
            if key != raw:
                self._raw[key] = raw
            entry = states.entry(each.kind, each.value, None)
            found[key] = {"type": entry["type"], "value": self._value(key, entry["type"], entry["value"])}
            if each.left is not None:
                found[key]["expires"] = self._expiry(now + each.left)
        return found

    def _dumped(self) -> tuple[list[Stored], int, int]:
        """Return all keys, and the server's clock before and after."""
        before, dump, after = self.wire.run([("TIME",), ("EVALSHA", self._dump, 0, "full", ""), ("TIME",)])
        return list(stored_in(dump)), _ms(before), _ms(after)

    def _learn_slots(self, stored: Iterable[Stored]) -> None:
        """Note the next slots of schedulers: jobs store how long it is until these."""
        for each in stored:
            if each.kind == "zset" and each.name.endswith(b":repeat"):
                slots = [int(float(of_bytes(score))) for score in listed(each.value)[1::2]]
                self.known += [slot for slot in slots if slot not in self.known]

    def raw_id(self, queue: str, id: str) -> str:
        """Return the id of a job as the client knows it."""
        base = f"{PREFIX}:{queue}:"
        return self._raw.get(base + id, self._raw.get(id, base + id)).removeprefix(base)

    def _expiry(self, moment: int) -> list[str]:
        """Return which request and lifetime it may belong to: several, where requests follow each other closely."""
        return [
            f"@{number}+{lifetime}"
            for lifetime in self._moments.lifetimes
            for number, (start, end) in self.windows.items()
            if start - SLACK_MS <= moment - lifetime <= end + SLACK_MS
        ]

    def _value(self, key: str, kind: str, value: Json) -> Json:
        if kind == "hash":
            return {self.text(name): self._field(key, name, each) for name, each in members(value).items()}
        if kind == "zset":
            if key.endswith(":delayed"):
                return self._delayed(members(value))
            return {self.text(member): self._score(each) for member, each in members(value).items()}
        if kind == "set":
            return sorted((self.json(each) for each in elements(value)), key=str)
        if kind == "stream":
            return [self._entry(elements(flat)) for flat in elements(value)]
        return self.json(value)

    def _entry(self, flat: list[Json]) -> Json:
        return {self.text(str(name)): self.json(each) for name, each in zip(flat[::2], flat[1::2], strict=True)}

    def _delayed(self, scores: Mapping[str, Json]) -> Json:
        """Return when jobs are due. Those that a request made due together may be of one millisecond or of more: only
        their order is the same then."""
        numbers = {member: score for member, score in scores.items() if isinstance(score, int | float)}
        moments = {member: self.moment(int(score) // _ORDER) for member, score in numbers.items()}
        together: dict[str, list[str]] = {}
        for member in sorted(numbers, key=lambda each: numbers[each]):
            together.setdefault(moments[member], []).append(member)
        found = dict(scores)
        for moment, several in together.items():
            for place, member in enumerate(several):
                alone = f"order {int(numbers[member]) % _ORDER}"
                found[member] = f"{moment}, {alone if len(several) == 1 else f'place {place}'}"
        return {self.text(member): each for member, each in found.items()}

    def _score(self, score: Json) -> Json:
        if isinstance(score, float) and _MOMENT.match(repr(score)):
            # The marker holds the score of a delayed job divided by 4096.
            return f"{self.moment(int(score))}, order {round(score % 1 * _ORDER)}"
        return self.json(score)

    def _field(self, key: str, name: str, value: Json) -> Json:
        if not isinstance(value, str):
            return value
        if name == "stacktrace":
            return self._traces(value)
        if name in states.JSON_FIELDS:
            return _or_else(lambda: self.json(json.loads(value)), value)
        if name == "version" and key.endswith(":meta"):
            return "<library>:<version>" if _VERSION.fullmatch(value) else value
        if name == "offset" and ":repeat:" in key:
            return self._offset(value)
        return self.text(value)

    def _traces(self, value: str) -> Json:
        found = _or_else(lambda: json.loads(value), value)
        if not isinstance(found, list):
            return value
        return [
            next((f"<trace of {reason}>" for reason in self.reasons if reason in str(each)), "<trace>")
            for each in found
        ]

    def _offset(self, value: str) -> str:
        """Return of which request this is the moment within a period; that of a moment which all know stays."""
        periods = self._moments.durations[1:]
        if any(value == str(known % period) for known in UNTIL for period in periods):
            return value
        for period in periods:
            for number, (start, end) in self.windows.items():
                if value.isdigit() and (int(value) - start) % period <= end - start:
                    return f"@{number} modulo {period}"
        return value


def _ms(clock: Reply) -> int:
    """Return the milliseconds of a reply to `TIME`."""
    seconds, microseconds = (int(of_bytes(part)) for part in listed(clock))
    return seconds * 1000 + microseconds // 1000


def _or_else(read: Callable[[], Json], otherwise: Json) -> Json:
    try:
        return read()
    except ValueError:
        return otherwise


def kind_of(key: str) -> str:
    """Return what a key is, without the names of queue, job, scheduler or deduplication."""
    name = key.split(":", 2)[2] if key.count(":") >= 2 else key
    if name in QUEUE_KEYS or name.startswith("metrics:"):
        return name
    if name.startswith("de:"):
        return "de:<id>"
    if name.startswith("repeat:") and name.count(":") == 1:
        return "repeat:<id>"
    head, _, tail = name.rpartition(":")
    return f"<job>:{tail}" if head and tail in JOB_KEYS else "<job>"


QUEUE_KEYS = frozenset(
    (
        *(
            "id",
            "meta",
            "wait",
            "paused",
            "active",
            "prioritized",
            "delayed",
            "waiting-children",
            "completed",
            "failed",
        ),
        *("stalled", "stalled-check", "limiter", "pc", "marker", "events", "repeat"),
    )
)
JOB_KEYS = frozenset(("lock", "logs", "dependencies", "processed", "failed", "unsuccessful"))


def lifetimes(entry: Entry) -> list[int]:
    """Return which lifetimes a key may have; of which request depends on how long each took."""
    return sorted({int(each.partition("+")[2]) for each in entry.get("expires", ())})


def as_json(entry: Entry) -> Json:
    """Return a key as a report shows it."""
    made: dict[str, Json] = {"type": entry["type"], "value": entry["value"]}
    return {**made, "lifetime": [*lifetimes(entry)]} if "expires" in entry else made


def job_ids(state: Mapping[str, Entry], queue: str) -> list[str]:
    """Return the ids of the jobs that a queue stores."""
    base = f"{PREFIX}:{queue}:"
    return [
        key.removeprefix(base)
        for key, entry in state.items()
        if key.startswith(base) and entry["type"] == "hash" and kind_of(key) == "<job>"
    ]


def ids_in(state: Mapping[str, Entry], queue: str, name: str) -> list[str]:
    """Return the ids in a list or set of a queue."""
    entry = state.get(f"{PREFIX}:{queue}:{name}")
    value = [] if entry is None else entry["value"]
    return [str(each) for each in (value if isinstance(value, list | dict) else [])]
