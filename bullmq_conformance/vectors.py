"""The golden vectors of a version: its own, and those of the versions before that hold for it too."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from importlib import resources

import msgspec

from bullmq_conformance.states import Vector
from bullmq_protocol.testing.vectors import commands, load

VERSIONS = ("5.62.0", "5.81.5", "6.7.0")
"""The versions of BullMQ that can be named, oldest first."""


@functools.cache
def own(version: str) -> Mapping[str, tuple[Vector, ...]]:
    """Return the vectors that a version brought, by command."""
    return {command: msgspec.convert(load(command, version), tuple[Vector, ...]) for command in commands(version)}


@functools.cache
def _gone() -> Mapping[str, Mapping[str, list[str]]]:
    text = (resources.files("bullmq_conformance") / "superseded.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, list[str]]] = json.loads(text)
    return found


def of_version(version: str) -> Iterator[tuple[str, str, Vector]]:
    """Yield command, name and vector of all that hold for a version. A name begins with the version that brought it.

    `superseded.json` has those that do not: BullMQ's own scripts of the later version give something else.
    """
    for since in VERSIONS[: VERSIONS.index(version) + 1]:
        gone = frozenset(_gone().get(version, {}).get(since, ()))
        for command, vectors in own(since).items():
            yield from ((command, f"{since}/{each['id']}", each) for each in vectors if each["id"] not in gone)
