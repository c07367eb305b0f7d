"""The two sets of scripts: BullMQ's own from the pinned npm package, as opaque texts, and ours.

`python -m tests.oracle.scripts` records the pinned package anew, to be run only when the pin is moved.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from lua import build
from tests.oracle.harness import COVERAGE, Bench
from tests.support.node import bullmq_folder
from tests.support.servers import Server

HERE = Path(__file__).parent
RECORD = HERE / "scripts.sha256.json"


class ScriptsChanged(RuntimeError):
    """The installed BullMQ does not hold the scripts that were recorded."""


def _dumped() -> dict[str, dict[str, Any]]:
    modules = bullmq_folder()
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


def compare_with_record(scripts: dict[str, dict[str, Any]]) -> None:
    """Raise `ScriptsChanged` with the names that differ, never with a script's text."""
    recorded, found = json.loads(RECORD.read_text()), _record(scripts)
    wrong = sorted(name for name in recorded.keys() | found.keys() if recorded.get(name) != found.get(name))
    if wrong:
        raise ScriptsChanged(f"not the scripts recorded in {RECORD.name}: {', '.join(wrong)}")


def recorded_keys() -> dict[str, int]:
    """Return the recorded number of keys of every script."""
    return {name: script["keys"] for name, script in json.loads(RECORD.read_text()).items()}


@functools.cache
def originals() -> dict[str, str]:
    """Return BullMQ's scripts by name, after comparing each with its recorded SHA-256 and number of keys."""
    scripts = _dumped()
    compare_with_record(scripts)
    return {name: script["content"] for name, script in scripts.items()}


def ours() -> dict[str, str]:
    """Return our scripts in the packaged form."""
    return {name: build.packaged(name) for name in build.commands()}


def ours_instrumented() -> dict[str, str]:
    """Return our scripts with their branch marks counting."""
    return {name: build.instrumented(name, COVERAGE) for name in build.commands()}


def bench(server: Server) -> Bench:
    """Open a bench on a server, BullMQ's scripts against ours."""
    return Bench(server.host, server.port, originals(), ours())


def marks() -> set[str]:
    """Return the marks of all our scripts."""
    return {mark for name in build.commands() for mark in build.marks(name)}


if __name__ == "__main__":
    RECORD.write_text(json.dumps(_record(_dumped()), indent=1) + "\n")
