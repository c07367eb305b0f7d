"""BullMQ's Python port, in an environment of its own: a partner process, whose sources nobody opens. Other libraries
that pages compare with, likewise."""

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "3.4.4"
OTHERS = {"celery": "celery[redis]==5.7.0", "rq": "rq==3.0.0", "arq": "arq==0.28.0"}
"""What pages compare with."""
_CACHE = Path(__file__).parents[2] / ".cache"


def port_python() -> Path:
    """Return the Python of an environment that has the port, after making it once."""
    return python_with(f"bullmq=={VERSION}")


@functools.cache
def python_with(pinned: str) -> Path:
    """Return the Python of an environment that has one package and what it needs, after making it once."""
    folder = _CACHE / f"port-{pinned}"
    if not folder.exists():
        _CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as made:
            fresh = Path(made) / "port"
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
            python = str(fresh / "bin" / "python")
            command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", pinned]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
            try:
                fresh.rename(folder)
            except OSError:
                # Another process was first; its folder is as good.
                shutil.rmtree(fresh, ignore_errors=True)
    return folder / "bin" / "python"
