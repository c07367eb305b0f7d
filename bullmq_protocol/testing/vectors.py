"""The golden vectors: what each script command does, as JSON, for clients in any language.

A vector holds the keys before a call, the call, its reply, and the keys afterwards, as BullMQ's own scripts left them.
The README of the specification, under "Golden vectors", describes its members, and how to check a client or a server
side with them.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Final, TypeAlias

from bullmq_protocol.errors import UsageError, shown

Vector: TypeAlias = dict[str, Any]
"""One call, and what is there before and afterwards."""

PINNED: Final = "5.62.0"
"""The version of BullMQ of which every command has vectors."""
LATER: Final = ("5.81.5", "6.7.0")
"""Versions whose vectors show how they differ from the version before."""

# An installed package has them inside; in a checkout they stand in specs.
_PLACES = (Path(__file__).parent / "specs", Path(__file__).parents[2] / "specs")


@functools.cache
def folder() -> Path:
    """Return the folder of `commands.json`, the table of the commands, and of the vectors (`vectors/*.json`)."""
    return next(place for place in _PLACES if (place / "vectors").is_dir())


def commands(version: str = PINNED) -> tuple[str, ...]:
    """Return the names of the commands that have vectors of this version of BullMQ.

    Raises:
        UsageError: There are none of that version.
    """
    return tuple(sorted(each.stem for each in _of(version).glob("*.json") if each.stem != "schema"))


@functools.cache
def load(command: str, version: str = PINNED) -> tuple[Vector, ...]:
    """Return the vectors of a command.

    Args:
        command: Its name, such as `moveToFinished`.
        version: The version of BullMQ, `5.62.0` by default, which has all of them. `5.81.5` and `6.7.0` have those in
            which they differ from the version before.

    Raises:
        UsageError: There are none.

    Examples:
        >>> load("promote")[0]["id"]
        'promote-1'
    """
    path = _of(version) / f"{command}.json"
    if command not in commands(version):
        raise UsageError("command", command, f"has no vectors of {version}; there are {', '.join(commands(version))}")
    found: list[Vector] = json.loads(path.read_text(encoding="utf-8"))["vectors"]
    return tuple(found)


def _of(version: str) -> Path:
    if version != PINNED and version not in LATER:
        raise UsageError("version", version, f"must be one of {', '.join(map(shown, (PINNED, *LATER)))}")
    return folder() / "vectors" if version == PINNED else folder() / "vectors" / version
