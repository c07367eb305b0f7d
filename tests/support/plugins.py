"""Plugins for pytest that others use beside ours: installed apart, so that they are no part of our own runs."""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINS = ("pytest-asyncio==1.5.0", "pytest-trio==0.8.0")


@functools.cache
def folder() -> Path:
    """Return the folder that has them, for PYTHONPATH; made at the first call, with pip."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    made = ROOT / ".cache" / f"plugins-{version}" / "-".join(pin.partition("==")[2] for pin in PINS)
    made.parent.mkdir(parents=True, exist_ok=True)
    with (made.parent / "lock").open("w") as lock:
        # Of two processes the second finds what the first has made.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            unfinished = made.parent / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            # What they need is there.
            command += ["--root-user-action=ignore", "--no-deps", "--target", str(unfinished), *PINS]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
            unfinished.rename(made)
    return made


def environment(beside: str) -> dict[str, str]:
    """Return the variables of a run of pytest that has this plugin (`asyncio` or `trio`; none: "")."""
    return {"PYTHONPATH": str(folder())} if beside else {}


def options(beside: str) -> list[str]:
    """Return the options of such a run: the other plugin stays away."""
    return ["-p", f"no:{'trio' if beside == 'asyncio' else 'asyncio'}"] if beside else []


def settings(beside: str, *, auto: bool = False) -> str:
    """Return the lines of its pytest.ini; with `auto` async tests need no mark."""
    lines = {"asyncio": ["asyncio_default_fixture_loop_scope = function"], "trio": [], "": []}[beside]
    if auto:
        lines.append({"asyncio": "asyncio_mode = auto", "trio": "trio_mode = true"}[beside])
    return "".join(f"{line}\n" for line in lines)
