"""Make a virtual environment with pip alone, then print its Python.

`python3 tools/env.py FOLDER [3.12] [--group mutants] [--extra anyio,sync]`

By default it holds everything that tests and checks need (the group `dev` of pyproject.toml). With `--extra` it holds
what those extras of pyproject.toml need and nothing else: no pip, no installed package, run from the root of the
repository.

It needs no `ensurepip`, which Debian keeps in a package of its own, and never installs into the system. The
environment is made again when pyproject.toml, this file or the Python changes. Where `.venv` is up to date
and has the version that is asked for, FOLDER becomes a link to it.
"""

import argparse
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

# Older Pythons have none: `main` says that they are too old.
with contextlib.suppress(ImportError):
    import tomllib

ROOT = Path(__file__).parents[1]
OLDEST = (3, 11)
SHARED = ".venv"
HELD = ("dev", "test", "newer")
"""What `.venv` holds: the group of everything, and those that are part of it."""
EXTRAS = "anyio,sync,cron,prometheus,otel,testing"
QUIET = ("--quiet", "--quiet", "--disable-pip-version-check", "--no-input", "--root-user-action=ignore")
QUIET_S = 20.0
"""After how long without a word a step says that it still runs."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("version", nargs="?")
    parser.add_argument("--group", default="dev")
    parser.add_argument("--extra")
    asked = parser.parse_args(arguments)
    folder = ROOT / asked.folder
    base = find_python(asked.version) if asked.version else sys.executable
    if base is None:
        print(f"env: no Python {asked.version} on PATH or in pyenv", file=sys.stderr)
        return 1
    version = version_of(base)
    if version is None or tuple(int(figure) for figure in version.split(".")) < OLDEST:
        print(f"env: Python 3.11 or newer is needed, {base} is {version}", file=sys.stderr)
        return 1
    python = folder / "bin" / "python"
    if asked.version and asked.group in HELD and asked.extra is None and serves(version):
        remove(folder)
        folder.symlink_to(SHARED)
        print(python)
        return 0
    if folder.is_symlink():
        remove(folder)
    stamp = folder / "stamp"
    wanted = stamp_of(base, version)
    if not (stamp.exists() and stamp.read_text() == wanted and version_of(str(python)) == version):
        stands = asked.extra is None and stamp.exists() and version_of(str(python)) == version
        if not (stands and update(folder, python, asked.group)):
            remove(folder)
            make(base, folder, python, asked.group, asked.extra)
        stamp.write_text(wanted)
    print(python)
    return 0


def remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def serves(version: str) -> bool:
    """Tell whether `.venv`, which the Python that runs this has made, is up to date and has that version."""
    stamp = ROOT / SHARED / "stamp"
    return (
        version == version_of(sys.executable)
        and stamp.exists()
        and stamp.read_text() == stamp_of(sys.executable, version)
        and version_of(str(stamp.parent / "bin" / "python")) == version
    )


def make(base: str, folder: Path, python: Path, group: str, extra: str | None) -> None:
    """Make the environment; every line of the tools goes to stderr, since stdout holds the answer alone."""
    began = time.monotonic()
    tell(f"making {folder.name} with {base}")
    run(base, "-m", "venv", "--without-pip", str(folder))
    # Any pip will do to fetch the environment's own: the base's, or that of the Python that runs this.
    pip = base if has_pip(base) else sys.executable
    install = (pip, "-m", "pip", "--python", str(python), "install", *QUIET)
    if extra is not None:
        needed = requirements(extra)
        tell(f"installing {', '.join(needed)}")
        # Compiling takes longer than a short program gains by it.
        run(*install, "--only-binary=:all:", "--no-compile", *needed)
    else:
        tell("installing pip")
        run(*install, "pip>=25.1")
        tell("installing the library, and what tests and checks need; that takes a few minutes")
        install_all(python, group)
    tell(f"{folder.name} is made, it took {time.monotonic() - began:.0f} s")


def update(folder: Path, python: Path, group: str) -> bool:
    """Install what changed into an environment that stands; False: it must be made anew. What is needed no more stays
    in it until then."""
    began = time.monotonic()
    tell(f"bringing {folder.name} up to date")
    try:
        install_all(python, group)
    except subprocess.CalledProcessError:
        return False
    tell(f"{folder.name} is up to date, it took {time.monotonic() - began:.0f} s")
    return True


def install_all(python: Path, group: str) -> None:
    """Install the library, and what tests and checks need."""
    run(str(python), "-m", "pip", "install", *QUIET, "--group", group, "--editable", f".[{EXTRAS}]")


def requirements(extra: str) -> list[str]:
    """Return what the library needs with some of its extras, separated by commas."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [each for name in extra.split(",") for each in project["optional-dependencies"][name]]
    return list(dict.fromkeys([*project["dependencies"], *optional]))


def tell(text: str) -> None:
    print(f"env: {text}", file=sys.stderr, flush=True)


def run(*command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "VIRTUAL_ENV")}
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    while True:
        try:
            code = process.wait(QUIET_S)
            break
        except subprocess.TimeoutExpired:
            tell(f"still at it after {time.monotonic() - began:.0f} s")
        except BaseException:
            process.kill()
            process.wait()
            raise
    if code != 0:
        raise subprocess.CalledProcessError(code, command)


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
