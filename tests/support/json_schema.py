"""Check JSON values against JSON Schema 2020-12, as far as the schemas in `specs/` use it; other words are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
SILENT = frozenset(("$schema", "$id", "$defs", "title", "description", "examples", "$comment"))


Schema = Mapping[str, Any] | bool


def problems(value: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a value, each with its place."""
    return list(_problems(value, schema, schema, "$"))


def _problems(value: Any, schema: Schema, root: Mapping[str, Any], at: str) -> Iterator[str]:
    if isinstance(schema, bool):
        if not schema:
            yield f"{at}: nothing may be here"
        return
    for word, rule in schema.items():
        if word in SILENT or word in ("maxItems", "minItems", "additionalProperties", "items"):
            continue
        match word:
            case "$ref":
                found: Any = root
                for part in rule.removeprefix("#/").split("/"):
                    found = found[part]
                yield from _problems(value, found, root, at)
            case "type":
                names = [rule] if isinstance(rule, str) else rule
                if not any(_is(value, name) for name in names):
                    yield f"{at}: {value!r} is no {' or '.join(names)}"
            case "const":
                if not _equal(value, rule):
                    yield f"{at}: {value!r} is not {rule!r}"
            case "enum":
                if not any(_equal(value, each) for each in rule):
                    yield f"{at}: {value!r} is none of {rule!r}"
            case "pattern":
                if isinstance(value, str) and not re.search(rule, value):
                    yield f"{at}: {value!r} does not match {rule}"
            case "minimum":
                if _is(value, "number") and value < rule:
                    yield f"{at}: {value!r} is less than {rule!r}"
            case "maximum":
                if _is(value, "number") and value > rule:
                    yield f"{at}: {value!r} is more than {rule!r}"
            case "required":
                if isinstance(value, dict):
                    yield from (f"{at}: {name} is missing" for name in rule if name not in value)
            case "properties":
                if isinstance(value, dict):
                    for name, inner in rule.items():
                        if name in value:
                            yield from _problems(value[name], inner, root, f"{at}.{name}")
            case "prefixItems":
                if isinstance(value, list):
                    for number, (each, inner) in enumerate(zip(value, rule, strict=False)):
                        yield from _problems(each, inner, root, f"{at}[{number}]")
            case "anyOf":
                tried = [list(_problems(value, inner, root, at)) for inner in rule]
                if all(tried):
                    yield f"{at}: none of {len(rule)} fits: {min(tried, key=len)}"
            case "allOf":
                for inner in rule:
                    yield from _problems(value, inner, root, at)
            case _:
                raise ValueError(f"{word} is not supported")
    if isinstance(value, list):
        yield from _array(value, schema, root, at)
    if isinstance(value, dict) and "additionalProperties" in schema:
        for name in value.keys() - schema.get("properties", {}).keys():
            yield from _problems(value[name], schema["additionalProperties"], root, f"{at}.{name}")


def _array(value: Sequence[Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{at}: {len(value)} elements"
    if "items" in schema:
        start = len(schema.get("prefixItems", ()))
        for number, each in enumerate(value[start:], start):
            yield from _problems(each, schema["items"], root, f"{at}[{number}]")


def _is(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _equal(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)
