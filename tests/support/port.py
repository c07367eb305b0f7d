"""BullMQ's Python port, in an environment of its own: a partner process, whose sources nobody opens. Other queues,
with which the bench and pages compare, likewise."""

import functools
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "3.4.4"
_ROOT = Path(__file__).parents[2]
_CACHE = _ROOT / ".cache"
_PINS = _ROOT / "bench" / "peers"
PEERS = tuple(sorted(file.stem for file in _PINS.glob("*.txt")))
"""Other queues for Python."""
OTHERS = ("celery", "rq", "arq")
"""Those that pages compare with."""


def port_python() -> Path:
    """Return the Python of an environment that has the port, after making it once."""
    return python_with(f"bullmq=={VERSION}")


def pins_of(peer: str) -> tuple[str, ...]:
    """Return what the environment of a peer holds: the library first, then all that it needs."""
    return tuple((_PINS / f"{peer}.txt").read_text().split())


def plain(pin: str) -> str:
    """Return a pin without its extras."""
    return re.sub(r"\[.*\]", "", pin)


def peer_python(peer: str) -> Path:
    """Return the Python of the environment of a peer, after making it once."""
    return python_with(*pins_of(peer))


@functools.cache
def python_with(*pinned: str) -> Path:
    """Return the Python of an environment that has these packages and what they need, after making it once."""
    rest = f"-{hashlib.sha256(' '.join(pinned).encode()).hexdigest()[:8]}" if pinned[1:] else ""
    # Without extras: dramatiq looks for its scripts by a pattern, to which brackets in a path mean something else.
    folder = _CACHE / f"port-{plain(pinned[0])}{rest}"
    if not folder.exists():
        _CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as made:
            fresh = Path(made) / "port"
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
            python = str(fresh / "bin" / "python")
            command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *pinned]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
            try:
                fresh.rename(folder)
            except OSError:
                # Another process was first; its folder is as good.
                shutil.rmtree(fresh, ignore_errors=True)
    return folder / "bin" / "python"
