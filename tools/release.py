"""Build what goes to the index, and hold it to what a user does with it: `python tools/release.py [--only STEP,...]`.

Writes `dist/`: wheel, sdist, and a CycloneDX bill of materials. Each step prints one line; the first that fails ends
it. Needs the tools of the group `release` (`make dist` makes their environment) and nothing of the repository's own.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MODULES = MappingProxyType(
    {
        "": ("bullmq_protocol", "bullmq_outbox", "monque_protocol"),
        "anyio": ("bullmq_anyio",),
        "sync": ("bullmq_sync", "bullmq_outbox.sync.sqlite"),
        "cron": ("bullmq_protocol.model.schedule", "tzdata"),
        "prometheus": ("bullmq_prometheus",),
        "otel": ("bullmq_otel",),
        "doctor": ("bullmq_doctor",),
        "django": ("bullmq_django",),
        "cli": ("bullmq_cli.entry", "bullmq_cli.ctl.entry"),
        "conformance": ("bullmq_conformance.__main__",),
        "outbox-psycopg": ("bullmq_outbox.tables", "psycopg"),
        "outbox-sqlalchemy": ("bullmq_outbox.sqlalchemy",),
        "testing": ("bullmq_protocol.testing", "bullmq_protocol.testing.strategies", "bullmq_pytest"),
        "testing-docker": ("bullmq_protocol.testing.server", "testcontainers"),
        "monque-anyio": ("monque_anyio",),
        "monque-sync": ("monque_sync",),
    }
)
"""What must be importable where the wheel is installed with an extra, and with nothing else."""
_EPOCH = "1700000000"
"""The date of every file in the archives, so that the same sources give the same bytes."""
_NOT_SHIPPED = ("tests/", "bench/", "tools/", "lua/", "specs/")
_COMMAND = {
    "cli": ("bullmq-worker", "bullmq-ctl"),
    "conformance": ("bullmq-conformance",),
    "doctor": ("bullmq-doctor",),
}


class StepError(Exception):
    """A step found what must not be released."""


def main(arguments: list[str]) -> int:
    steps: dict[str, Callable[[], str]] = {
        "build": build,
        "metadata": metadata,
        "contents": contents,
        "bill": bill,
        "extras": extras,
        "unit": unit,
        "lowest": lowest,
        "names": names,
    }
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--only", default=",".join(steps), help="comma list of " + ", ".join(steps))
    asked = parser.parse_args(arguments).only.split(",")
    if unknown := [each for each in asked if each not in steps]:
        parser.error(f"unknown: {', '.join(unknown)}")
    for name in asked:
        try:
            print(f"{name}: {steps[name]()}", flush=True)
        except (StepError, subprocess.CalledProcessError) as error:
            print(f"{name}: FAILED: {error}", file=sys.stderr)
            return 1
    return 0


def wheel() -> Path:
    return _built("*.whl")


def sdist() -> Path:
    return _built("*.tar.gz")


def _built(pattern: str) -> Path:
    found = sorted(DIST.glob(pattern))
    if len(found) != 1:
        raise StepError(f"dist/{pattern}: one file is expected, there are {len(found)}; run the step `build` first")
    return found[0]


def _packages() -> list[str]:
    first = {module.partition(".")[0] for modules in MODULES.values() for module in modules}
    return sorted(each for each in first if each.startswith(("bullmq_", "monque_")))


def build() -> str:
    """Build twice, from two copies of what is committed: both must have the same bytes."""
    sums = []
    shutil.rmtree(DIST, ignore_errors=True)
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder) / "source", Path(folder) / "out"
            source.mkdir()
            archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
            _run(sys.executable, "-m", "build", "--outdir", str(out), str(source), SOURCE_DATE_EPOCH=_EPOCH)
            sums.append({each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in sorted(out.iterdir())})
            shutil.copytree(out, DIST, dirs_exist_ok=True)
    if sums[0] != sums[1]:
        raise StepError(f"two builds differ: {sums}")
    (DIST / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums[0].items()))
    return ", ".join(f"{name} ({(DIST / name).stat().st_size / 1e6:.2f} MB)" for name in sums[0]) + ", twice the same"


def metadata() -> str:
    """Check the metadata and that the long description renders."""
    _run(sys.executable, "-m", "twine", "check", "--strict", str(wheel()), str(sdist()))
    return "twine check passed"


def contents() -> str:
    """Check that the wheel holds the packages and neither tests nor tools, and that the sdist builds the same wheel."""
    inside = zipfile.ZipFile(wheel()).namelist()
    if wrong := [name for name in inside if name.startswith(_NOT_SHIPPED) or "/tests/" in name]:
        raise StepError(f"the wheel holds {wrong}")
    packages = _packages()
    if missing := [each for each in packages if f"{each}/py.typed" not in inside]:
        raise StepError(f"the wheel lacks {missing}, or their py.typed")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(sdist()) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(source), SOURCE_DATE_EPOCH=_EPOCH)
        if (Path(folder) / wheel().name).read_bytes() != wheel().read_bytes():
            raise StepError("the sdist builds another wheel")
    return f"{len(inside)} files in the wheel, {len(packages)} packages; the sdist builds the same wheel"


def bill() -> str:
    """Write the bill of materials of an environment that holds the wheel with all its extras."""
    target = DIST / "sbom.cdx.json"
    with _environment(",".join(extra for extra in MODULES if extra)) as python:
        command = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON")
        _run(*command, "-o", str(target), str(python))
    found = json.loads(target.read_text())
    named = {each["name"] for each in found["components"]}
    if PROJECT["name"] not in named or "msgspec" not in named:
        raise StepError(f"the bill of materials names only {sorted(named)}")
    return f"{len(named)} components in {target.relative_to(ROOT)}"


def extras() -> str:
    """Import in an empty environment what each extra alone is for, and what needs none."""
    offered = set(PROJECT["optional-dependencies"])
    if offered != set(MODULES) - {""}:
        raise StepError(f"MODULES and pyproject.toml differ: {sorted(offered ^ (set(MODULES) - {''}))}")
    for extra, modules in MODULES.items():
        with _environment(extra) as python:
            _run(str(python), "-I", "-W", "error", "-c", "; ".join(f"import {module}" for module in modules))
            for command in _COMMAND.get(extra, ()):
                _run(str(python.with_name(command)), "--help")
    return f"{len(MODULES)} environments: none, " + ", ".join(extra for extra in MODULES if extra)


def unit() -> str:
    """Run tests/unit against the installed wheel, with no package of the repository in reach."""
    return _unit(constraints=None)


def lowest() -> str:
    """The same with the lowest version of each dependency that pyproject.toml allows."""
    found = _lower_bounds()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.writelines(f"{name}=={version}\n" for name, version in sorted(found.items()))
        file.flush()
        done = _unit(constraints=file.name)
    return f"{done}, with " + ", ".join(f"{name} {version}" for name, version in sorted(found.items()))


def _lower_bounds() -> dict[str, str]:
    requirements = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]
    found = {}
    for each in (*PROJECT["dependencies"], *requirements):
        name, _, marker = each.partition(";")
        if "python_version" in marker and sys.version_info >= (3, 12):
            continue
        if match := re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?>=([\w.]+)", name.strip()):
            found[match[1]] = match[2]
    return found


def _unit(*, constraints: str | None) -> str:
    chosen = ",".join(extra for extra in MODULES if extra)
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    # What the tests need beside the library. Of what both need, the library's version.
    runner = [each for each in groups["newer"] if re.split(r"[=\[;]", each)[0] not in _lower_bounds()]
    if constraints is not None:
        # Old versions of the library's dependencies go with old ones of these.
        runner = [each.partition("==")[0] for each in runner]
    with _environment(chosen, *runner, constraints=constraints) as python, tempfile.TemporaryDirectory() as folder:
        for name in ("tests", "specs", "pyproject.toml"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, Path(folder) / name)
        files = [
            str(each.relative_to(ROOT)) for each in sorted(ROOT.glob("tests/unit/test_*.py")) if _of_the_library(each)
        ]
        command = (str(python), "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *files)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=_plain_environment())
        if done.returncode != 0:
            raise StepError(done.stdout[-3000:] + done.stderr[-1000:])
        where = subprocess.run(
            [str(python), "-c", "import bullmq_protocol; print(bullmq_protocol.__file__)"],
            cwd=folder, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        if "site-packages" not in where:
            raise StepError(f"the tests ran on {where}")
    return done.stdout.strip().splitlines()[-1].strip("= ")


def _of_the_library(file: Path) -> bool:
    """Tell a test of what is installed from one of the repository's files, or of every client library there is."""
    return not re.search(
        r"^(from|import) (tools|bench|lua|examples|aio_pika)\b|\bROOT\b|__file__", file.read_text(), re.MULTILINE
    )


def names() -> str:
    """Compare the public names with those of the last release, by its tag."""
    tags = subprocess.run(
        ["git", "tag", "--list", "v*", "--sort=-v:refname"], cwd=ROOT, check=True, capture_output=True
    )
    if not (last := tags.stdout.decode().split()):
        return "no release yet: nothing to compare with"
    recorded = _at(last[0], "tests/unit/public_names.txt")
    broken = []
    for package in (each for each in _packages() if _at(last[0], f"{each}/__init__.py")):
        command = (sys.executable, "-m", "griffe", "check", package, "--search", ".", "--against", last[0])
        done = subprocess.run([*command, "--format", "oneline", "--no-color"], cwd=ROOT, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise StepError(done.stderr[-3000:])
        broken += [each for each in (done.stdout + done.stderr).splitlines() if is_of_public(each, recorded)]
    if broken:
        raise StepError("gone or changed since {}:\n{}".format(last[0], "\n".join(broken)))
    return f"no public name of {last[0]} is gone or changed"


def _at(tag: str, file: str) -> str:
    """Return a file's text at a tag, empty if it was not there."""
    done = subprocess.run(["git", "show", f"{tag}:{file}"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else ""


def is_of_public(line: str, recorded: str) -> bool:
    """Tell whether a line of griffe is about a recorded name: griffe calls all names public that have no underscore."""
    if (found := re.match(r"(\w+)/[^:]*:\d+: ([\w.]+)", line)) is None:
        return False
    package, name = found.groups()
    return re.search(rf"^{package}\.(?:[\w.]+\.)?{re.escape(name)}(?:: | = |$)", recorded, re.MULTILINE) is not None


@contextmanager
def _environment(extra: str, *more: str, constraints: str | None = None) -> Iterator[Path]:
    """Make an environment that holds the wheel with extras, and nothing else but what is named; give its Python."""
    wanted = [f"{wheel()}[{extra}]" if extra else str(wheel()), *more]
    limits = ["-c", constraints] if constraints else []
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        _run(sys.executable, "-m", "venv", "--without-pip", folder)
        quiet = ("--quiet", "--quiet", "--disable-pip-version-check", "--no-input")
        _run(sys.executable, "-m", "pip", "--python", str(python), "install", *quiet, *limits, *wanted)
        yield python


def _plain_environment(**more: str) -> dict[str, str]:
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in hidden} | more


def _run(*command: str, **environment: str) -> None:
    done = subprocess.run(
        command, cwd=tempfile.gettempdir(), capture_output=True, text=True, env=_plain_environment(**environment)
    )
    if done.returncode != 0:
        raise StepError(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
