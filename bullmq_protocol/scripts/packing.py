"""Pack a script for a profile: take the blocks that its switches choose, as `lua/build.py` does for `strict`.

What the build did already: steps are pasted, fields of records are numbers, comments are gone. Left are blocks,
includes, lazy includes, and names of KEYS and ARGV.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from bullmq_protocol.lazy import lazy_pattern

_FLAGS: Final = lazy_pattern(r"^--- flags: (.*)$", re.MULTILINE)
_NAMED: Final = lazy_pattern(r"\b(?:KEYS|ARGV)\.[A-Za-z_]\w*")


class _Taken(NamedTuple):
    """What is taken of a file: the includes, and its lines; names of KEYS and ARGV, if it is a command."""

    includes: list[str]
    lines: list[str]
    heads: dict[str, list[str]]


class Packer:
    """Packs commands by name, out of commands and includes with all their blocks.

    `chosen` is what holds of the switches, `Switches.chosen`.
    """

    def __init__(self, commands: Mapping[str, str], includes: Mapping[str, str], chosen: frozenset[str]) -> None:
        self._commands = commands
        self._includes = includes
        self._chosen = chosen
        self._taken: dict[tuple[str, frozenset[str]], _Taken] = {}

    def packed(self, name: str) -> tuple[int, str]:
        """Return the number of keys and the text of a command."""
        text = self._commands[name]
        holding = self._chosen.union(*[flags.split(", ") for flags in _FLAGS.findall(text)])
        command = _taken(text, holding)
        files: list[str] = []
        self._order(command.includes, holding, files)
        parts: list[str] = []
        for number, include in enumerate(files, 1):
            self._append(parts, self._include(include, holding), files[:number], holding)
        self._append(parts, command, files, holding)
        heads = command.heads
        places = {
            f"{table}.{key}": f"{table}[{at}]"
            for table, keys in (("KEYS", heads["keys"]), ("ARGV", heads["args"]))
            for at, key in enumerate(keys, 1)
        }
        return len(heads["keys"]), _NAMED.sub(lambda match: places[match[0]], "".join(parts))

    def _include(self, name: str, holding: frozenset[str]) -> _Taken:
        found = self._taken.get((name, holding))
        if found is None:
            found = self._taken[name, holding] = _taken(self._includes[name], holding)
        return found

    def _order(self, names: list[str], holding: frozenset[str], done: list[str]) -> None:
        for name in names:
            if name not in done:
                self._order(self._include(name, holding).includes, holding, done)
                done.append(name)

    def _append(self, parts: list[str], file: _Taken, known: list[str], holding: frozenset[str]) -> None:
        for line in file.lines:
            if not line.startswith("--- lazy "):
                parts.append(line)
                continue
            name, _, functions = line.removeprefix("--- lazy ").partition(": ")
            files = list(known)
            self._order([name], holding, files)
            parts.append(f"local function load_{name}()\n")
            for number in range(len(known), len(files)):
                self._append(parts, self._include(files[number], holding), files[: number + 1], holding)
            parts.append(f"return {functions}end\n")


def _taken(text: str, holding: frozenset[str]) -> _Taken:
    """Read a file of the build."""
    includes: list[str] = []
    lines: list[str] = []
    heads: dict[str, list[str]] = {"keys": [], "args": []}
    # Of each open block: whether the branch is taken, and whether one was, or the lines around it are not.
    taken, blocks = True, [(True, True)]
    for line in text.splitlines(keepends=True):
        if not line.startswith("---"):
            if taken:
                lines.append(line)
            continue
        begin, _, rest = line[4:].strip().partition(" ")
        if begin == "end":
            blocks.pop()
        elif begin in ("when", "unless"):
            taken = blocks[-1][0] and _holds(begin, rest, holding)
            blocks.append((taken, taken or not blocks[-1][0]))
        elif begin in ("elsewhen", "else"):
            was_taken = blocks[-1][1]
            taken = not was_taken and (begin == "else" or _holds(begin, rest, holding))
            blocks[-1] = (taken, was_taken or taken)
        elif taken and begin == "include":
            includes.append(rest)
        elif taken and begin == "lazy":
            lines.append(line)
        elif taken and begin in ("keys:", "args:"):
            heads[begin[:-1]] += rest.split()
        taken = blocks[-1][0]
    return _Taken(includes, lines, heads)


def _holds(begin: str, condition: str, holding: frozenset[str]) -> bool:
    is_so = False
    for words in condition.split(" or "):
        name, *values = words.split()
        is_so = is_so or (any(f"{name} {value}" in holding for value in values) if values else name in holding)
    return is_so is (begin != "unless")
