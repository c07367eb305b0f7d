"""Golden vectors as `specs/README.md` describes them: reading, writing, loading a start state, comparing an end."""

from __future__ import annotations

import base64
import functools
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bullmq_conformance.states import (
    TOLERANCE_MS,
    Json,
    Vector,
    commands,
    compared,
    entry,
    fields,
    in_order,
    raw,
    reply,
    run,
    same_reply,
    score,
    text,
)
from bullmq_protocol.errors import BullMQError, ScriptError
from bullmq_protocol.testing import vectors as kit
from tests.support.building import build

__all__ = [
    "FOLDER",
    "LATER",
    "SPECS",
    "TOLERANCE_MS",
    "Json",
    "Vector",
    "argument",
    "commands",
    "decoded",
    "decoding",
    "differences",
    "entry",
    "error",
    "everything",
    "fields",
    "in_order",
    "load",
    "of_version",
    "on_the_wire",
    "path",
    "raw",
    "reply",
    "run",
    "same_reply",
    "score",
    "scripts",
    "table",
    "text",
]

SPECS = Path(__file__).parents[2] / "specs"
FOLDER = kit.folder() / "vectors"


@functools.cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """Return the commands of `specs/commands.json` by name."""
    found = json.loads((SPECS / "commands.json").read_text(encoding="utf-8"))
    return {command["name"]: command for command in found["commands"]}


@functools.cache
def scripts() -> tuple[str, ...]:
    """Return the names of the commands that are scripts."""
    return tuple(name for name, command in table().items() if command["kind"] == "script")


LATER, load, of_version = kit.LATER, kit.load, kit.commands


def path(command: str, version: str = "5.62.0") -> Path:
    """Return the file of a command's vectors, of this version of BullMQ."""
    return (FOLDER if version == "5.62.0" else FOLDER / version) / f"{command}.json"


def everything() -> Iterable[tuple[str, Vector]]:
    """Yield every vector with its command."""
    for command in scripts():
        for vector in load(command):
            yield command, vector


# Values


def argument(value: bytes | str | int | float, encoding: str) -> Json:
    """Write an argument; of MessagePack with what is in it, where JSON can say that."""
    if not isinstance(value, bytes):
        return str(value)
    if not encoding.startswith("msgpack") or not value:
        return text(value)
    found = {"base64": base64.b64encode(value).decode()}
    try:
        decoded = _plain(msgspec.msgpack.decode(value))
    except (msgspec.DecodeError, ValueError, TypeError):
        return found
    return {**found, "msgpack": decoded}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("no JSON number")
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        if not all(isinstance(name, str) for name in value):
            raise TypeError("no JSON object")
        return {name: _plain(each) for name, each in value.items()}
    if value is None or isinstance(value, str | int | bool):
        return value
    raise TypeError("no JSON value")


# Replies


def on_the_wire(value: Json) -> Any:
    """Read a reply into what a client gets: bulk strings as bytes, hashes as flat arrays."""
    if isinstance(value, list):
        return [on_the_wire(each) for each in value]
    if isinstance(value, dict) and "fields" in value:
        return [part for name, each in value["fields"].items() for part in (name.encode(), raw(each))]
    if isinstance(value, str | dict):
        return raw(value)
    return value


def decoded(value: Any) -> Json:
    """Write a decoded value as JSON."""
    return _texts(msgspec.to_builtins(value, builtin_types=(bytes,), str_keys=True))


def decoding(command: str, vector: Vector) -> Json:
    """Return what our decoder makes of a vector's reply: a value or an error; None where no client makes the call."""
    if vector["inputs"] is None:
        return None
    reply = vector["reply"]
    if isinstance(reply, dict) and "error" in reply:
        return {"error": "ServerError", "code": reply["error"]}
    try:
        return {"value": decoded(build(command, vector["inputs"]).decode(on_the_wire(reply)))}
    except BullMQError as raised:
        return error(raised)


def error(raised: BullMQError) -> Json:
    """Write an error of ours."""
    if isinstance(raised, ScriptError):
        return {"error": type(raised).__name__, "code": raised.code, "message": str(raised)}
    return {"error": type(raised).__name__}


def _texts(value: Any) -> Json:
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, list | tuple):
        return [_texts(each) for each in value]
    if isinstance(value, dict):
        return {name: _texts(each) for name, each in value.items()}
    return value


# Comparing


def differences(vector: Vector, given: Json, end: Mapping[str, Json], events: Mapping[str, Json]) -> list[str]:
    """Compare a reply, an end state and the new entries with those of a vector."""
    return [f"{place}: {got!r}, recorded {wanted!r}" for place, wanted, got in compared(vector, given, end, events)]
