"""States, replies and events as the golden vectors write them: making, running, comparing.

`specs/README.md` describes the form.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TOLERANCE_MS = 2000
"""How far a lifetime, of a key or in a reply, may be from the recorded one."""

JSON_FIELDS = ("opts", "parent")
"""Fields of a job's hash whose JSON the scripts write: the order of members is the server's."""

NEW_ENTRIES = "2-0"
"""Entries of a start state have ids below, those that a call adds have ids above."""

Vector = dict[str, Any]
Json = Any


# Values


def text(raw: bytes | str | int | float) -> Json:
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
        return base64.b64decode(value["base64"])
    return str(value).encode()


def score(given: bytes) -> Json:
    """Write a score."""
    number = float(given)
    if not math.isfinite(number):
        return "nan" if number != number else "inf" if number > 0 else "-inf"
    return int(number) if number.is_integer() else number


# Replies

FIELDS_AT = {"moveToActive": (0,), "moveToFinished": (0,), "moveToDelayed": (0,), "getJobScheduler": (0,)}
"""Where a reply holds a hash as a flat array."""


def reply(command: str, given: Any, error_class: str = "ERR") -> Json:
    """Write a reply; of an error only its class."""
    if isinstance(given, Exception):
        return {"error": error_class}
    if isinstance(given, bytes):
        return text(given)
    if not isinstance(given, list):
        return given
    found = [reply("", each) for each in given]
    for place in FIELDS_AT.get(command, ()):
        if len(found) > place and isinstance(given[place], list):
            found[place] = fields(given[place])
    if command == "paginate" and len(found) == 5:
        found[4] = [fields(flat) for flat in given[4]]
    if command == "getJobs":
        return [[[text(id), fields(flat)] for id, flat in jobs] for jobs in given]
    return found


def fields(flat: Sequence[bytes]) -> Json:
    """Write a hash that came as a flat array."""
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {"fields": dict(sorted((name.decode(), text(value)) for name, value in pairs))}


# States


def entry(kind: str, value: Any, ttl: int) -> Json:
    """Write one key."""
    found: dict[str, Any] = {"type": kind}
    if kind == "hash":
        found["value"] = {name.decode(): text(each) for name, each in sorted(value.items())}
    elif kind == "zset":
        pairs = zip(value[::2], value[1::2], strict=True)
        found["value"] = {member.decode(): score(each) for member, each in pairs}
    elif kind == "stream":
        found["value"] = [[text(part) for part in each] for each in value]
    elif kind == "string":
        found["value"] = text(value)
    else:
        found["value"] = [text(each) for each in value]
    if ttl >= 0:
        found["ttl_ms"] = ttl
    return found


def commands(state: Mapping[str, Json]) -> list[tuple[Any, ...]]:
    """Return the Redis commands that make a state on an empty database."""
    made: list[tuple[Any, ...]] = []
    for key, each in state.items():
        value = each["value"]
        match each["type"]:
            case "hash":
                made.append(("HSET", key, *(part for name, one in value.items() for part in (name, raw(one)))))
            case "list":
                made.append(("RPUSH", key, *map(raw, value)))
            case "set":
                made.append(("SADD", key, *map(raw, value)))
            case "zset":
                made.append(("ZADD", key, *(part for name, one in value.items() for part in (repr_score(one), name))))
            case "stream":
                made += [("XADD", key, f"1-{at}", *map(raw, one)) for at, one in enumerate(value, 1)]
            case _:
                made.append(("SET", key, raw(value)))
        if "ttl_ms" in each:
            made.append(("PEXPIRE", key, each["ttl_ms"]))
    return made


def repr_score(value: Json) -> str:
    return value if isinstance(value, str) else repr(value)


# Comparing


class Difference(NamedTuple):
    """One place that is otherwise than a vector says: `reply`, `events`, or a key."""

    place: str
    expected: Json
    got: Json


def compared(vector: Vector, given: Json, end: Mapping[str, Json], events: Mapping[str, Json]) -> list[Difference]:
    """Compare a reply, an end state and the new entries with those of a vector."""
    loose = bool(vector.get("any_order"))
    found: list[Difference] = []
    if not same_reply(vector, given):
        found.append(Difference("reply", vector["reply"], given))
    for key in sorted(vector["end"].keys() | end.keys()):
        one, other = vector["end"].get(key), end.get(key)
        if one is None or other is None or not _same_entry(one, other, loose):
            found.append(Difference(key, one, other))
    if {key: _ordered(each, loose) for key, each in events.items()} != {
        key: _ordered(each, loose) for key, each in vector["events"].items()
    }:
        found.append(Difference("events", vector["events"], events))
    return found


def same_reply(vector: Vector, given: Json) -> bool:
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
        return _same_hash(one["fields"], other["fields"])
    return bool(one == other) and type(one) is type(other)


def _ordered(value: Json, loose: bool) -> Json:
    return in_order(value) if loose else value


def in_order(value: Json) -> Json:
    """Sort a list, of which the order is the server's."""
    return sorted(value, key=lambda each: json.dumps(each, sort_keys=True)) if isinstance(value, list) else value


def _same_entry(one: Json, other: Json, loose: bool) -> bool:
    if one["type"] != other["type"] or ("ttl_ms" in one) != ("ttl_ms" in other):
        return False
    if abs(one.get("ttl_ms", 0) - other.get("ttl_ms", 0)) > TOLERANCE_MS:
        return False
    if one["type"] == "hash":
        return _same_hash(one["value"], other["value"])
    if one["type"] == "zset":
        numbers = [{name: float(each) for name, each in side["value"].items()} for side in (one, other)]
        return numbers[0] == numbers[1]
    return bool(_ordered(one["value"], loose) == _ordered(other["value"], loose))


def _same_hash(one: Mapping[str, Json], other: Mapping[str, Json]) -> bool:
    return one.keys() == other.keys() and all(
        each == other[name] or (name in JSON_FIELDS and _same_json(each, other[name])) for name, each in one.items()
    )


def _same_json(one: Json, other: Json) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except (TypeError, ValueError):
        return False


# Running on a server


def run(wire: Any, sha: str, dump: str, vector: Vector) -> tuple[Json, dict[str, Json], dict[str, Json]]:
    """Run a vector on an empty database; return the reply, the end state and the new entries of its streams.

    `wire` is a `tests.oracle.harness.Wire`, `dump` the SHA of its script `DUMP`.
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
    given, (parts, clocks) = replies[-2:]
    left = iter(clocks)
    end = {}
    for name, kind, value, expires in parts:
        if kind == b"hash":
            value = dict(zip(value[::2], value[1::2], strict=True))
        end[name.decode()] = entry(kind.decode(), value, next(left) if expires else -1)
    streams = [key for key, each in end.items() if each["type"] == "stream"]
    fresh = wire.run([("XRANGE", key, NEW_ENTRIES, "+") for key in streams])
    events = {
        key: [[text(part) for part in each[1]] for each in found]
        for key, found in zip(streams, fresh, strict=True)
        if found
    }
    return given, end, events
