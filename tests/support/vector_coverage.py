"""What the vectors of a command must cover, according to its row in `specs/commands.json`, and what one vector
covers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.support.json_schema import problems

Row = Mapping[str, Any]


def required(row: Row) -> set[str]:
    """Return every reply, error, option and event that the table names for a command."""
    found = {f"reply: {reply['meaning']}" for reply in row["replies"]}
    found |= {f"error {code}" for code in codes(row)}
    found |= {f"event {name}" for name in row["events"]}
    for argument in row["arguments"]:
        name = argument["name"]
        found |= {f"{name} = {value}" for value in argument.get("values", ())}
        found |= {f"{name} = {value}" for value in argument.get("values_special", ())}
        if "empty" in argument:
            found |= {f"{name} is empty", f"{name} is given"}
        if argument.get("optional"):
            found |= {f"{name} is left out"}
        found |= set(_members(name, argument.get("fields", argument.get("items", ()))))
    return found


def _members(path: str, fields: Sequence[Row]) -> Iterator[str]:
    for field in fields:
        name = f"{path}.{field['name']}"
        yield f"{name} is given"
        if field.get("optional"):
            yield f"{name} is nil"
        if "empty" in field:
            yield f"{name} is empty"
        yield from _members(name, field.get("fields", ()))


def codes(row: Row) -> list[int]:
    """Return the error codes of a command."""
    return [error if isinstance(error, int) else error["code"] for error in row["errors"]]


def error_code(row: Row, reply: Any) -> int | None:
    """Return the error code that a recorded reply is, if it is one."""
    code = reply[0] if isinstance(reply, list) and reply else reply
    return code if isinstance(code, int) and not isinstance(code, bool) and code in codes(row) else None


def covered(row: Row, vector: Mapping[str, Any]) -> set[str]:
    """Return what a vector covers, in the words of `required`; a reply that the table does not know is told as such."""
    reply = vector["reply"]
    found: set[str] = set()
    code = error_code(row, reply)
    if isinstance(reply, dict) and "error" in reply:
        found.add(f"error {reply['error']}")
    elif code is not None:
        found.add(f"error {code}")
    else:
        fitting = [each for each in row["replies"] if not problems(reply, each["schema"])]
        found |= {f"reply: {each['meaning']}" for each in fitting} or {"a reply that the table does not know"}
    for entries in vector["events"].values():
        found |= {f"event {entry[1]}" for entry in entries}
    args = vector["call"]["args"]
    for number, argument in enumerate(row["arguments"]):
        name = argument["name"]
        given = args[number:] if argument.get("rest") else args[number : number + 1]
        if not given and argument.get("optional"):
            found.add(f"{name} is left out")
        for value in given:
            if isinstance(value, str):
                found.add(f"{name} = {value}")
                found.add(f"{name} is {'given' if value else 'empty'}")
            else:
                found.add(f"{name} is given")
                decoded = value.get("msgpack")
                if isinstance(decoded, dict):
                    found |= set(_given(name, argument.get("fields", ()), decoded))
                elif isinstance(decoded, list) and "items" in argument:
                    named = {item["name"]: each for item, each in zip(argument["items"], decoded, strict=False)}
                    found |= set(_given(name, argument["items"], named))
    return found


def _given(path: str, fields: Sequence[Row], value: Mapping[str, Any]) -> Iterator[str]:
    for field in fields:
        name, member = f"{path}.{field['name']}", value.get(field["name"])
        if member is None:
            yield f"{name} is nil"
        elif member == "" and "empty" in field:
            yield f"{name} is empty"
        else:
            yield f"{name} is given"
            if isinstance(member, dict):
                yield from _given(name, field.get("fields", ()), member)


# Fingerprints

KNOWN = frozenset(
    (
        *("wait", "paused", "active", "prioritized", "delayed", "completed", "failed", "waiting-children"),
        *("meta", "id", "pc", "marker", "events", "limiter", "stalled", "stalled-check", "repeat", "delay"),
        *("priority", "metrics"),
    )
)
TAILS = ("lock", "logs", "dependencies", "processed", "failed", "unsuccessful", "data")
FIXED_FIELDS = frozenset(("name", "data", "opts", "event"))
NUMBER = re.compile(r"-?\d+(\.\d+)?(e[+-]?\d+)?")
BASE = re.compile(r"^(bull|\{b\}|a:b):(q|p|r)\b:?")


def fingerprint(command: str, vector: Mapping[str, Any]) -> str:
    """Return a vector with all ids and times replaced by one sign: two that differ still differ in more than those.

    Ids are those of jobs, schedulers and deduplication, and names of queues; times are numbers from 1000 up, moments
    and durations alike. Scores are replaced by their rank, lifetimes are left out.
    """
    ids = _ids(vector)
    shown = {
        "call": [command, [_word(key, ids) for key in vector["call"]["keys"]], _walk(vector["call"]["args"], ids)],
        "reply": _walk(vector["reply"], ids),
        "start": _state(vector["start"], ids),
        "end": _state(vector["end"], ids),
        "events": sorted(json.dumps(_walk(each, ids)) for each in vector["events"].values()),
    }
    return json.dumps(shown, sort_keys=True)


def _ids(vector: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    for state in (vector["start"], vector["end"]):
        for key, entry in state.items():
            rest = BASE.sub("", key)
            if rest not in KNOWN:
                for tail in TAILS:
                    rest = rest.removesuffix(f":{tail}")
                found |= {rest, rest.removeprefix("de:"), rest.removeprefix("repeat:")}
            elif entry["type"] in ("list", "set", "zset") and rest != "marker":
                found |= {each for each in entry["value"] if isinstance(each, str)}
    for key in vector["call"]["keys"]:
        rest = BASE.sub("", key)
        if rest not in KNOWN and not rest.startswith("metrics:"):
            for tail in TAILS:
                rest = rest.removesuffix(f":{tail}")
            found.add(rest)
    return {each for each in found if each and not each.startswith("metrics") and each not in KNOWN}


def _state(state: Mapping[str, Any], ids: set[str]) -> list[Any]:
    shown = []
    for key, entry in state.items():
        value = entry["value"]
        if entry["type"] == "zset":
            ranks = {each: rank for rank, each in enumerate(sorted({float(each) for each in value.values()}))}
            value = sorted((ranks[float(each)], _word(name, ids)) for name, each in value.items())
        elif entry["type"] == "set":
            value = sorted(_walk(value, ids), key=str)
        else:
            value = _walk(value, ids)
        shown.append([_word(key, ids), entry["type"], value, "ttl_ms" in entry])
    return sorted(shown, key=str)


def _walk(value: Any, ids: set[str]) -> Any:
    if isinstance(value, dict):
        if "msgpack" in value:
            return _walk(value["msgpack"], ids)
        return {
            _word(name, ids): each if name in FIXED_FIELDS and not isinstance(each, dict) else _walk(each, ids)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_walk(each, ids) for each in value]
    if isinstance(value, str):
        return _word(value, ids)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) > 999:
        return "T"
    return value


def _word(text: str, ids: set[str]) -> str:
    if text in ids:
        return "#"
    if NUMBER.fullmatch(text):
        return "T" if abs(float(text)) > 999 else text
    if not BASE.match(text):
        return text
    rest = BASE.sub("", text)
    if rest in ids:
        return "Q:#"
    for tail in TAILS:
        if rest.removesuffix(f":{tail}") in ids and rest.endswith(f":{tail}"):
            return f"Q:#:{tail}"
    for kind in ("de:", "repeat:"):
        if rest.startswith(kind):
            return f"Q:{kind}#"
    return f"Q:{rest}"
