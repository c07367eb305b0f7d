"""Run a folder of Lua files against the golden vectors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from bullmq_conformance import states, vectors
from bullmq_conformance.states import Json, Vector
from bullmq_conformance.wire import DUMP, Wire, error_class
from bullmq_protocol.errors import UsageError
from bullmq_protocol.scripts.profile import FLEET, STRICT, V5_81, V6_7, Profile

PROFILES: Mapping[str, Profile] = dict(zip(vectors.VERSIONS, (STRICT, V5_81, V6_7), strict=True))
"""Our profile that does what a version does."""
NAMED: Mapping[str, Profile] = {**PROFILES, "fleet": FLEET}
"""The same, and the default profile, which does what no version does."""
_FILE = re.compile(r"([A-Za-z][A-Za-z0-9]*)(?:-[0-9]+)?\.lua")


class Difference(msgspec.Struct, frozen=True):
    """One place that is otherwise: `reply`, `events`, or a key."""

    place: str
    expected: Json
    got: Json


class Case(msgspec.Struct, frozen=True):
    """One vector, and how the script differs from it."""

    name: str
    command: str
    title: str
    section: str
    differences: list[Difference]
    problem: str | None = None
    """Why it was not run."""

    @property
    def passed(self) -> bool:
        """Whether the script did what the vector says."""
        return not self.differences and self.problem is None


class Report(msgspec.Struct):
    """All cases of one folder."""

    folder: str
    version: str
    cases: list[Case]


def folder_scripts(folder: Path) -> dict[str, str]:
    """Return the scripts of a folder by command: `<command>.lua`, or `<command>-<number of keys>.lua` as BullMQ names
    them. Raises `UsageError`."""
    found: dict[str, str] = {}
    for file in sorted(folder.glob("*.lua")):
        name = _FILE.fullmatch(file.name)
        if name is None:
            raise UsageError("folder", file.name, "must be named <command>.lua or <command>-<number of keys>.lua")
        if name[1] in found:
            raise UsageError("folder", file.name, f"must hold one file for {name[1]}")
        found[name[1]] = file.read_text(encoding="utf-8")
    if not found:
        raise UsageError("folder", str(folder), "must hold files *.lua")
    return found


def write_scripts(folder: Path, version: str) -> int:
    """Write our scripts that do what a version's do into a folder; return how many."""
    folder.mkdir(parents=True, exist_ok=True)
    scripts = PROFILES[version].scripts
    names = sorted({command for command, _, _ in vectors.of_version(version)})
    for name in names:
        (folder / f"{name}.lua").write_text(scripts[name].source, encoding="utf-8")
    return len(names)


def run(wire: Wire, scripts: Mapping[str, str], version: str, *, partial: bool = False) -> Iterator[Case]:
    """Run all vectors of a version on the database of a connection, which each of them empties.

    With `partial` the vectors of commands without a script are left out; otherwise they are problems.
    """
    dump = wire.load(DUMP)
    loaded, problems = dict[str, str](), dict[str, str]()
    for name, text in scripts.items():
        try:
            loaded[name] = wire.load(text)
        except ValueError as error:
            problems[name] = str(error)
    for command, name, vector in vectors.of_version(version):
        if command in loaded:
            found = one(wire, loaded[command], dump, command, vector)
            yield Case(name, command, vector["title"], vector["section"], found)
        elif command in problems or not partial:
            problem = problems.get(command, "there is no script")
            yield Case(name, command, vector["title"], vector["section"], [], problem)


def one(wire: Wire, sha: str, dump: str, command: str, vector: Vector) -> list[Difference]:
    """Run one vector with a loaded script."""
    given, end, events = states.run(wire, sha, dump, vector)
    reply = states.reply(command, given, error_class(given) if isinstance(given, Exception) else "")
    return [Difference(*each) for each in states.compared(vector, reply, end, events)]


def summary(cases: Iterable[Case]) -> dict[str, tuple[int, int]]:
    """Return how many cases passed, and how many there are, by command."""
    found: dict[str, tuple[int, int]] = {}
    for case in cases:
        passed, count = found.get(case.command, (0, 0))
        found[case.command] = (passed + case.passed, count + 1)
    return found


def shown(value: Json) -> str:
    """Return a value as a report shows it."""
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)
