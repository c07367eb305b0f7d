"""Make a virtual environment with pip alone: `python3 tools/env.py FOLDER [3.12]`, then print its Python.

It needs no `ensurepip`, which Debian keeps in a package of its own, and never installs into the system. The
environment is made again when pyproject.toml, this file or the Python changes.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLDEST = (3, 11)


def main(arguments: list[str]) -> int:
    folder = ROOT / arguments[0]
    base = find_python(arguments[1]) if len(arguments) > 1 else sys.executable
    if base is None:
        print(f"env: no Python {arguments[1]} on PATH or in pyenv", file=sys.stderr)
        return 1
    version = version_of(base)
    if version is None or tuple(int(figure) for figure in version.split(".")) < OLDEST:
        print(f"env: Python 3.11 or newer is needed, {base} is {version}", file=sys.stderr)
        return 1
    python = folder / "bin" / "python"
    stamp = folder / "stamp"
    wanted = stamp_of(base, version)
    if not (stamp.exists() and stamp.read_text() == wanted and version_of(str(python)) == version):
        shutil.rmtree(folder, ignore_errors=True)
        make(base, folder, python)
        stamp.write_text(wanted)
    print(python)
    return 0


def make(base: str, folder: Path, python: Path) -> None:
    """Make the environment; every line of the tools goes to stderr, since stdout holds the answer alone."""
    print(f"env: making {folder.name} with {base}", file=sys.stderr)
    run(base, "-m", "venv", "--without-pip", str(folder))
    # Any pip will do to fetch the environment's own: the base's, or that of the Python that runs this.
    pip = base if has_pip(base) else sys.executable
    quiet = ("--quiet", "--quiet", "--disable-pip-version-check", "--no-input", "--root-user-action=ignore")
    run(pip, "-m", "pip", "--python", str(python), "install", *quiet, "pip>=25.1")
    extras = "anyio,sync,cron,prometheus,otel,testing"
    run(str(python), "-m", "pip", "install", *quiet, "--group", "dev", "--editable", f".[{extras}]")


def run(*command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "VIRTUAL_ENV")}
    subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)


def find_python(version: str) -> str | None:
    """Find a Python that runs: pyenv's shims are on PATH also for versions that are not switched on."""
    on_path = shutil.which(f"python{version}")
    roots = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")]
    if on_path:
        roots.append(Path(on_path).parents[1])
    in_pyenv = [str(each) for root in roots for each in sorted(root.glob(f"versions/{version}.*/bin/python{version}"))]
    return next((each for each in (on_path, *reversed(in_pyenv)) if each and version_of(each) == version), None)


def version_of(python: str) -> str | None:
    ask = "import sys; print(f'{sys.version_info[0]}.{sys.version_info[1]}')"
    try:
        done = subprocess.run([python, "-c", ask], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def has_pip(python: str) -> bool:
    return subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0


def stamp_of(base: str, version: str) -> str:
    parts = [Path(__file__).read_bytes(), (ROOT / "pyproject.toml").read_bytes(), base.encode(), version.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
