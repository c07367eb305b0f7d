"""The two sets of scripts: BullMQ's own from a pinned npm package, as opaque texts, and ours of a profile.

`python -m tests.oracle.scripts` records the pinned packages anew, to be run only when a pin is moved.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from lua import build
from tests.oracle.calls import Call
from tests.oracle.harness import COVERAGE, Bench
from tests.oracle.layouts import Layout
from tests.support.node import FOLDERS
from tests.support.servers import Server

HERE = Path(__file__).parent
RECORDS = {
    "5.62.0": HERE / "scripts.sha256.json",
    "5.81.5": HERE / "scripts-5.81.5.sha256.json",
    "6.7.0": HERE / "scripts-6.7.0.sha256.json",
}


class Side(NamedTuple):
    """Which scripts of ours are compared with those of which version."""

    switches: Switches
    version: str
    free: frozenset[str] = frozenset()
    """Commands whose replies may differ."""

    @property
    def label(self) -> str:
        return f"{' '.join(sorted(self.switches.changed)) or 'strict'} {self.version}"


STRICT = Side(STRICT_SWITCHES, "5.62.0")


class ScriptsChanged(RuntimeError):
    """The installed BullMQ does not hold the scripts that were recorded."""


def dumped(modules: Path) -> dict[str, dict[str, Any]]:
    """Return name, number of keys and content of every script of an installed package."""
    target = modules.parent / "scripts.json"
    if not target.exists():
        part = target.with_suffix(".part")
        subprocess.run(["node", str(HERE / "dump_scripts.js"), str(modules), str(part)], check=True)
        part.replace(target)
    found: dict[str, dict[str, Any]] = json.loads(target.read_text())
    return found


def _record(scripts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {"keys": script["keys"], "sha256": hashlib.sha256(script["content"].encode()).hexdigest()}
        for name, script in sorted(scripts.items())
    }


def compare_with_record(scripts: dict[str, dict[str, Any]], version: str = STRICT.version) -> None:
    """Raise `ScriptsChanged` with the names that differ, never with a script's text."""
    recorded, found = json.loads(RECORDS[version].read_text()), _record(scripts)
    wrong = sorted(name for name in recorded.keys() | found.keys() if recorded.get(name) != found.get(name))
    if wrong:
        raise ScriptsChanged(f"not the scripts recorded in {RECORDS[version].name}: {', '.join(wrong)}")


def recorded_keys(version: str = STRICT.version) -> dict[str, int]:
    """Return the recorded number of keys of every script."""
    return {name: script["keys"] for name, script in json.loads(RECORDS[version].read_text()).items()}


@functools.cache
def originals(version: str = STRICT.version) -> dict[str, str]:
    """Return BullMQ's scripts by name, after comparing each with its recorded SHA-256 and number of keys."""
    scripts = dumped(FOLDERS[version]())
    compare_with_record(scripts, version)
    return {name: script["content"] for name, script in scripts.items()}


def names(side: Side = STRICT) -> tuple[str, ...]:
    """Return the names of our scripts that a side compares."""
    return build.commands() if side == STRICT else (*build.commands(), *build.apart("later"))


@functools.cache
def ours(side: Side = STRICT) -> Mapping[str, str]:
    """Return our scripts in the packaged form. Packing them takes a third of a second, and many tests ask for them."""
    chosen = side.switches.chosen
    return MappingProxyType({name: build.packaged(name, chosen=chosen) for name in names(side)})


def some(side: Side, chosen: Collection[str]) -> tuple[dict[str, str], dict[str, int]]:
    """Return some of our scripts in the packaged form, and how many keys they take."""
    blocks = side.switches.chosen
    return (
        {name: build.packaged(name, chosen=blocks) for name in chosen},
        {name: build.key_count(name, chosen=blocks) for name in chosen},
    )


def switched(side: Side) -> set[str]:
    """Return the names of our scripts that differ from those of `strict`."""
    return {name for name, text in ours(side).items() if text != ours().get(name)}


@functools.cache
def our_keys(side: Side = STRICT) -> Mapping[str, int]:
    """Return the number of keys of each of our scripts."""
    chosen = side.switches.chosen
    return MappingProxyType({name: build.key_count(name, chosen=chosen) for name in names(side)})


@functools.cache
def ours_instrumented(side: Side = STRICT) -> Mapping[str, str]:
    """Return our scripts with their branch marks counting."""
    chosen = side.switches.chosen
    return MappingProxyType({name: build.instrumented(name, COVERAGE, chosen=chosen) for name in names(side)})


def bench(server: Server, side: Side = STRICT, allowed: Callable[[Bench, Call], bool] | None = None) -> Bench:
    """Open a bench on a server, BullMQ's scripts against ours, for the calls that are allowed."""
    layout = None if side == STRICT else Layout(side.version, (recorded_keys(side.version), our_keys(side)))
    made = Bench(server.host, server.port, originals(side.version), ours(side), layout=layout, free=side.free)
    if allowed is not None:
        made.allowed = allowed
    return made


def marks(side: Side = STRICT) -> set[str]:
    """Return the marks of all our scripts."""
    chosen = side.switches.chosen
    return {mark for name in names(side) for mark in build.marks(name, chosen=chosen)}


if __name__ == "__main__":
    for each, record in RECORDS.items():
        record.write_text(json.dumps(_record(dumped(FOLDERS[each]())), indent=1) + "\n")
