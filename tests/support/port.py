"""BullMQ's Python port, in an environment of its own: a partner process, whose sources nobody opens."""

import functools
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "3.4.4"
_PINNED = (f"bullmq=={VERSION}",)
_CACHE = Path(__file__).parents[2] / ".cache"


@functools.cache
def port_python() -> Path:
    """Return the Python of an environment that has the port, after making it once."""
    folder = _CACHE / f"port-{'-'.join(_PINNED)}"
    if not folder.exists():
        _CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE) as made:
            fresh = Path(made) / "port"
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(fresh)], check=True)
            python = str(fresh / "bin" / "python")
            command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *_PINNED]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
            try:
                fresh.rename(folder)
            except OSError:
                # Another process was first; its folder is as good.
                shutil.rmtree(fresh, ignore_errors=True)
    return folder / "bin" / "python"
