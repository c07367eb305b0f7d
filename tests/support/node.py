"""Node and the pinned BullMQ, installed once into `.cache/node` from the lock file in `tests/node`."""

import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

_LOCKED = Path(__file__).parents[1] / "node"
_NEWER = Path(__file__).parents[2] / "bench" / "node" / "6"
_CACHE = Path(__file__).parents[2] / ".cache" / "node"


def node_available() -> bool:
    """Tell whether Node and npm are installed."""
    return shutil.which("node") is not None and shutil.which("npm") is not None


@functools.cache
def node_version() -> str | None:
    """Return what `node --version` prints, None without Node."""
    if not node_available():
        return None
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def bullmq_folder() -> Path:
    """Return the `node_modules` folder that holds the pinned BullMQ, after installing it once."""
    return installed(_LOCKED)


def newer_folder() -> Path:
    """Return the `node_modules` folder of the newer BullMQ that profiles are compared with."""
    return installed(_NEWER)


def last_of_5_folder() -> Path:
    """Return the `node_modules` folder of the newest BullMQ 5."""
    return installed(_LOCKED / "5.81")


def otel_folder() -> Path:
    """Return the same folder with OpenTelemetry and BullMQ's adapter for it."""
    return installed(_LOCKED / "otel")


def board_folder() -> Path:
    """Return the folder of bull-board, with the newest BullMQ 5 and what drives a browser."""
    return installed(_LOCKED / "board")


def nest_folder() -> Path:
    """Return the folder of NestJS, with the newest BullMQ 5."""
    return installed(_LOCKED / "nest")


def bull_folder() -> Path:
    """Return the folder of Bull, BullMQ's predecessor, which keeps other keys."""
    return installed(_LOCKED / "bull")


FOLDERS: Mapping[str, Callable[[], Path]] = MappingProxyType(
    {"5.62.0": bullmq_folder, "5.81.5": last_of_5_folder, "6.7.0": newer_folder}
)
"""The pinned versions of BullMQ, from the oldest to the newest, and what installs each."""


@functools.cache
def installed(locked: Path) -> Path:
    """Return the `node_modules` folder of what the lock file in `locked` names, after installing it once."""
    files = [locked / "package.json", locked / "package-lock.json"]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    home = _CACHE / digest
    if not home.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as made:
            fresh = Path(made) / "fresh"
            fresh.mkdir()
            for file in files:
                shutil.copy(file, fresh)
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=fresh, stdin=subprocess.DEVNULL, capture_output=True, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"npm ci failed:\n{done.stdout}{done.stderr}")
            try:
                fresh.rename(home)
            except OSError:
                # Another test process was first; its folder is as good.
                if not home.exists():
                    raise
    return home / "node_modules"
