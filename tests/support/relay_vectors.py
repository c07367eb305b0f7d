"""Golden vectors of the relay as `specs/README.md` describes them: reading, running, comparing.

The relay asks the server for the time. So moments are written as distances from the server's clock at their step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support import vectors

PATH = vectors.FOLDER / "relay" / "6.7.0.json"

DUMP = """
local found, names = {}, redis.call('KEYS', '*')
table.sort(names)
for _, key in ipairs(names) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'hash' then
    local flat, fields, values = redis.call('HGETALL', key), {}, {}
    for at = 1, #flat, 2 do
      fields[#fields + 1], values[flat[at]] = flat[at], flat[at + 1]
    end
    table.sort(fields)
    value = {}
    for _, field in ipairs(fields) do
      value[#value + 1], value[#value + 2] = field, values[field]
    end
  elseif kind == 'zset' then
    value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'stream' then
    value = redis.call('XRANGE', key, '-', '+')
  else
    value = redis.call('GET', key)
  end
  if key ~= ARGV[1] then
    found[#found + 1] = { key, kind, value, redis.call('PTTL', key) }
  end
end
return found
"""
"""Answers with every key of a database, but the one that is named: name, type, value, lifetime."""

_DAY_MS = 86_400_000
_ENTRY = re.compile(r"(\d{13})-\d+")

Json = Any


Outcome = list[tuple[Json, dict[str, Json]]]
"""Of each step the reply, None for a plain command, and every key of the database after it."""


def load() -> list[dict[str, Json]]:
    """Return the cases."""
    found: list[dict[str, Json]] = json.loads(PATH.read_text(encoding="utf-8"))["cases"]
    return found


def file_text(cases: Sequence[Mapping[str, Json]], version: str) -> str:
    """Return the text of the file, a line for each step."""
    parts = []
    for case in cases:
        steps = ",\n".join(f"    {json.dumps(step, ensure_ascii=False)}" for step in case["steps"])
        parts.append(f'  {{\n   "title": {json.dumps(case["title"])},\n   "steps": [\n{steps}\n   ]\n  }}')
    return f'{{\n "bullmq": {json.dumps(version)},\n "cases": [\n' + ",\n".join(parts) + "\n ]\n}\n"


def run(wire: Any, scripts: Mapping[str, str], steps: Sequence[Mapping[str, Json]]) -> Outcome:
    """Do the steps of a case on an empty database. A step has `call`, `keys` and `args`, or `redis`.

    `scripts` are SHA-1s by name, with that of `DUMP` by the empty one.
    """
    wire.run([("FLUSHDB",)])
    done: Outcome = []
    for step in steps:
        clock, reply, found = wire.run([("TIME",), _command(step, scripts), ("EVALSHA", scripts[""], 0)])
        now = int(clock[0]) * 1000 + int(clock[1]) // 1000
        state = {each[0].decode(): _entry(each, now) for each in found}
        done.append((_written(reply, now) if "call" in step else None, state))
    return done


def case_of(title: str, steps: Sequence[Mapping[str, Json]], outcome: Outcome) -> dict[str, Json]:
    """Return a case as the file has it: of each step the reply, and the keys that it changed (null: it went)."""
    before: dict[str, Json] = {}
    written = []
    for step, (reply, state) in zip(steps, outcome, strict=True):
        changed = {name: state.get(name) for name in before | state if not same(before.get(name), state.get(name))}
        told = {"reply": reply} if "call" in step else {}
        written.append({**step, **told, "changed": changed})
        before = {name: before[name] if name in before and name not in changed else state[name] for name in state}
    return {"title": title, "steps": written}


def differs(case: Mapping[str, Json], outcome: Outcome) -> bool:
    """Tell whether a reply or a state is another one than a case has."""
    expected: dict[str, Json] = {}
    for step, (reply, state) in zip(case["steps"], outcome, strict=True):
        expected = {name: each for name, each in (expected | step["changed"]).items() if each is not None}
        if not same(step.get("reply"), reply) or not same(expected, state):
            return True
    return False


def _command(step: Mapping[str, Json], scripts: Mapping[str, str]) -> tuple[Any, ...]:
    if "redis" in step:
        return tuple(step["redis"])
    return ("EVALSHA", scripts[step["call"]], len(step["keys"]), *step["keys"], *step["args"])


def _entry(each: Sequence[Any], now: int) -> Json:
    kind, value, lifetime = each[1].decode(), each[2], each[3]
    found: dict[str, Json] = {"type": kind}
    if kind in ("hash", "zset"):
        flat = [_written(part, now) for part in value]
        pairs = zip(value[::2], flat[1::2], strict=True)
        found["value"] = dict(sorted((name.decode(), each) for name, each in pairs))
    elif kind == "stream":
        found["value"] = [[_written(part, now) for part in fields] for _, fields in value]
    else:
        found["value"] = _written(value, now)
    return {**found, "ttl_ms": _rounded(lifetime, 1000)} if lifetime >= 0 else found


def _written(value: Any, now: int) -> Json:
    if isinstance(value, Exception):
        return {"error": "ERR"}
    if isinstance(value, list):
        return [_written(each, now) for each in value]
    if isinstance(value, int):
        moment = _moment(value, now)
        return value if moment is None else {**moment, "integer": True}
    if value is None:
        return None
    text = value.decode()
    entry = _ENTRY.fullmatch(text)
    if entry and abs(int(entry[1]) - now) < _DAY_MS:
        return {"entry": "new"}
    moment = _moment(int(text), now) if text.isascii() and text.isdigit() else None
    return text if moment is None else moment


def _moment(value: int, now: int) -> dict[str, Json] | None:
    """Return how far a number is from the clock, in whole seconds, if it is a moment."""
    if abs(value - now) < _DAY_MS:
        return {"clock_ms": _rounded(value - now, 1000)}
    if abs(value - now * 1000) < _DAY_MS * 1000:
        return {"clock_us": _rounded(value - now * 1000, 1_000_000)}
    return None


def _rounded(value: int, unit: int) -> int:
    return round(value / unit) * unit


def same(one: Json, other: Json) -> bool:
    """Tell whether two values are the same, moments and lifetimes within two seconds."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_member(name, one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def _same_member(name: str, one: Json, other: Json) -> bool:
    most = {"ttl_ms": 2000, "clock_ms": 2000, "clock_us": 2_000_000}.get(name)
    if most is not None and isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= most
    return same(one, other)
