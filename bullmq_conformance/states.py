"""States, replies and events as the golden vectors write them: making, running, comparing.

`specs/README.md` describes the form.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypeAlias, TypedDict

from bullmq_conformance.wire import Part, Reply, Wire, listed, of_bytes, stored_in

TOLERANCE_MS = 2000
"""How far a lifetime, of a key or in a reply, may be from the recorded one."""

JSON_FIELDS = ("opts", "parent")
"""Fields of a job's hash whose JSON the scripts write: the order of members is the server's."""

NEW_ENTRIES = "2-0"
"""Entries of a start state have ids below, those that a call adds have ids above."""

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    # msgspec reads the types of structs that have it.
    Json = Any
"""What JSON has."""


class Entry(TypedDict):
    """A key: what a vector says of it, or what was found."""

    type: str
    value: Json
    ttl_ms: NotRequired[int]


class Call(TypedDict):
    """A call of a script."""

    keys: list[Json]
    args: list[Json]


class Vector(TypedDict):
    """One call, and what is there before and afterwards."""

    id: str
    title: str
    section: str
    inputs: NotRequired[Json]
    start: dict[str, Entry]
    call: Call
    reply: Json
    reply_tolerance_ms: NotRequired[int]
    decoded: NotRequired[Json]
    end: dict[str, Entry]
    events: dict[str, list[Json]]
    any_order: NotRequired[bool]


# Values


def members(value: Json) -> dict[str, Json]:
    """Return what is an object. Raises `TypeError`."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return value


def elements(value: Json) -> list[Json]:
    """Return what is an array. Raises `TypeError`."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not an array")
    return value


def text(raw: Reply | str) -> Json:
    """Write a bulk string: as text, or in base64 when it is no UTF-8."""
    if not isinstance(raw, bytes):
        return str(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def raw(value: Json) -> bytes:
    """Read a bulk string."""
    if isinstance(value, dict):
        return base64.b64decode(str(value["base64"]))
    return str(value).encode()


def score(given: Reply) -> Json:
    """Write a score."""
    number = float(of_bytes(given))
    if not math.isfinite(number):
        return "nan" if number != number else "inf" if number > 0 else "-inf"
    return int(number) if number.is_integer() else number


# Replies

FIELDS_AT = {"moveToActive": (0,), "moveToFinished": (0,), "moveToDelayed": (0,), "getJobScheduler": (0,)}
"""Where a reply holds a hash as a flat array."""


def reply(command: str, given: Reply, error_class: str = "ERR") -> Json:
    """Write a reply; of an error only its class."""
    if isinstance(given, Exception):
        return {"error": error_class}
    if isinstance(given, bytes):
        return text(given)
    if not isinstance(given, list):
        return given
    found = [reply("", each) for each in given]
    for place in FIELDS_AT.get(command, ()):
        if len(found) > place and isinstance(flat := given[place], list):
            found[place] = fields(flat)
    if command == "paginate" and len(found) == 5:
        found[4] = [fields(listed(flat)) for flat in listed(given[4])]
    if command == "getJobs":
        return [[_job(listed(job)) for job in listed(jobs)] for jobs in given]
    return found


def _job(pair: Sequence[Reply]) -> Json:
    id, flat = pair
    return [text(id), fields(listed(flat))]


def fields(flat: Sequence[Reply]) -> Json:
    """Write a hash that came as a flat array."""
    return {"fields": dict(sorted((name, text(value)) for name, value in _pairs(flat)))}


def _pairs(flat: Sequence[Reply]) -> list[tuple[str, Reply]]:
    """Return what came as a flat array by names."""
    return [(of_bytes(name).decode(), value) for name, value in zip(flat[::2], flat[1::2], strict=True)]


# States


def entry(kind: str, value: Reply, ttl: int | None) -> Entry:
    """Write one key."""
    found: Json
    if kind == "hash":
        found = {name: text(each) for name, each in sorted(_pairs(listed(value)), key=_name)}
    elif kind == "zset":
        found = {name: score(each) for name, each in _pairs(listed(value))}
    elif kind == "stream":
        found = [[text(part) for part in listed(each)] for each in listed(value)]
    elif kind == "string":
        found = text(value)
    else:
        found = [text(each) for each in listed(value)]
    return {"type": kind, "value": found} if ttl is None else {"type": kind, "value": found, "ttl_ms": ttl}


def _name(pair: tuple[str, Reply]) -> str:
    return pair[0]


def commands(state: Mapping[str, Entry]) -> list[tuple[Part, ...]]:
    """Return the Redis commands that make a state on an empty database."""
    made: list[tuple[Part, ...]] = []
    for key, each in state.items():
        value = each["value"]
        match each["type"]:
            case "hash":
                pairs = [(name, raw(one)) for name, one in members(value).items()]
                made.append(("HSET", key, *(part for pair in pairs for part in pair)))
            case "list":
                made.append(("RPUSH", key, *map(raw, elements(value))))
            case "set":
                made.append(("SADD", key, *map(raw, elements(value))))
            case "zset":
                scores = [(repr_score(one), name) for name, one in members(value).items()]
                made.append(("ZADD", key, *(part for pair in scores for part in pair)))
            case "stream":
                entries = enumerate(map(elements, elements(value)), 1)
                made += [("XADD", key, f"1-{at}", *map(raw, one)) for at, one in entries]
            case _:
                made.append(("SET", key, raw(value)))
        if "ttl_ms" in each:
            made.append(("PEXPIRE", key, each["ttl_ms"]))
    return made


def repr_score(value: Json) -> str:
    return value if isinstance(value, str) else repr(value)


# Comparing


class Difference(NamedTuple):
    """One place that differs from a vector: `reply`, `events`, or a key."""

    place: str
    expected: Json
    got: Json


def compared(
    vector: Vector, given: Json, end: Mapping[str, Entry], events: Mapping[str, list[Json]]
) -> list[Difference]:
    """Compare a reply, an end state and the new entries with those of a vector."""
    loose = vector.get("any_order", False)
    found: list[Difference] = []
    if not same_reply(vector, given):
        found.append(Difference("reply", vector["reply"], given))
    for key in sorted(vector["end"].keys() | end.keys()):
        one, other = vector["end"].get(key), end.get(key)
        if one is None or other is None or not _same_entry(one, other, loose):
            found.append(Difference(key, shown(one), shown(other)))
    if {key: _ordered(each, loose) for key, each in events.items()} != {
        key: _ordered(each, loose) for key, each in vector["events"].items()
    }:
        found.append(Difference("events", {**vector["events"]}, {**events}))
    return found


def shown(found: Entry | None) -> Json:
    """Return a key as JSON, null for none."""
    if found is None:
        return None
    made: dict[str, Json] = {"type": found["type"], "value": found["value"]}
    return {**made, "ttl_ms": found["ttl_ms"]} if "ttl_ms" in found else made


def same_reply(vector: Vector, given: Json) -> bool:
    """Tell whether a reply is that of a vector."""
    tolerance = vector.get("reply_tolerance_ms", 0)
    return _near(
        _ordered(vector["reply"], vector.get("any_order", False)),
        _ordered(given, vector.get("any_order", False)),
        tolerance,
    )


def _near(one: Json, other: Json, tolerance: int) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_near(*pair, tolerance) for pair in zip(one, other, strict=True))
    if tolerance and isinstance(one, int) and isinstance(other, int) and one > 0 and other > 0:
        return abs(one - other) <= tolerance
    if isinstance(one, dict) and isinstance(other, dict) and "fields" in one and "fields" in other:
        return _same_hash(members(one["fields"]), members(other["fields"]))
    return bool(one == other) and type(one) is type(other)


def _ordered(value: Json, loose: bool) -> Json:
    return in_order(value) if loose else value


def in_order(value: Json) -> Json:
    """Sort a list, of which the order is the server's."""
    return sorted(value, key=lambda each: json.dumps(each, sort_keys=True)) if isinstance(value, list) else value


def _same_entry(one: Entry, other: Entry, loose: bool) -> bool:
    if one["type"] != other["type"] or ("ttl_ms" in one) != ("ttl_ms" in other):
        return False
    if abs(one.get("ttl_ms", 0) - other.get("ttl_ms", 0)) > TOLERANCE_MS:
        return False
    if one["type"] == "hash":
        return _same_hash(members(one["value"]), members(other["value"]))
    if one["type"] == "zset":
        numbers = [{name: float(str(each)) for name, each in members(side["value"]).items()} for side in (one, other)]
        return numbers[0] == numbers[1]
    return bool(_ordered(one["value"], loose) == _ordered(other["value"], loose))


def _same_hash(one: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    return one.keys() == other.keys() and all(
        each == other[name] or (name in JSON_FIELDS and same_json(each, other[name])) for name, each in one.items()
    )


def same_json(one: Json, other: Json) -> bool:
    """Tell whether two texts are JSON of equal values."""
    try:
        return isinstance(one, str) and isinstance(other, str) and bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


# Running on a server


def run(wire: Wire, sha: str, dump: str, vector: Vector) -> tuple[Reply, dict[str, Entry], dict[str, list[Json]]]:
    """Run a vector on an empty database; return the reply, the end state and the new entries of its streams.

    `dump` is the SHA-1 of the script `DUMP`.
    """
    call = vector["call"]
    keys, args = [raw(each) for each in call["keys"]], [raw(each) for each in call["args"]]
    start = commands(vector["start"])
    replies = wire.run(
        [("FLUSHDB",), *start, ("EVALSHA", sha, len(keys), *keys, *args), ("EVALSHA", dump, 0, "full", "~oracle~")]
    )
    wrong = [each for each in replies[: len(start) + 1] if isinstance(each, Exception)]
    if wrong:
        raise ValueError(f"the start state cannot be made: {wrong[0]}")
    given, dumped = replies[-2:]
    end = {each.name.decode(): entry(each.kind, each.value, each.left) for each in stored_in(dumped)}
    streams = [key for key, each in end.items() if each["type"] == "stream"]
    fresh = wire.run([("XRANGE", key, NEW_ENTRIES, "+") for key in streams])
    events = {
        key: [_new_entry(listed(each)) for each in listed(found)]
        for key, found in zip(streams, fresh, strict=True)
        if found
    }
    return given, end, events


def _new_entry(pair: Sequence[Reply]) -> Json:
    return [text(part) for part in listed(pair[1])]
