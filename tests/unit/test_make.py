"""What `make` runs: the targets that CI, hooks and pages name, how long they take, and that none is silent for long."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.progress import QUIET_S, Ticker
from tools import env, took

pytestmark = pytest.mark.any_python

_ROOT = Path(__file__).parents[2]
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTEST"))}


def recipe(target: str, *variables: str) -> str:
    """Return what make would run."""
    command = ["make", "-n", target, *variables]
    done = subprocess.run(command, cwd=_ROOT, env=_ENVIRONMENT, capture_output=True, text=True, check=True)
    return done.stdout


def steps(found: Any) -> Iterator[str]:
    """Yield every command in a workflow or a file of hooks."""
    if isinstance(found, dict):
        yield from (text for key, text in found.items() if key in ("run", "entry") and isinstance(text, str))
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from steps(each)


def test_unit_runs_neither_servers_nor_long_searches() -> None:
    halves = re.findall("-m pytest -q -m 'not search and not slow' (.+)", recipe("unit"))
    files = sorted(name for half in halves for name in half.split())
    there = sorted(str(path.relative_to(_ROOT)) for path in (_ROOT / "tests/unit").glob("test_*.py"))
    assert len(halves) == 2 and files == [name for name in there if not name.endswith("/test_failure.py")]
    # The others run all of it.
    for target in ("run-tests", "check"):
        assert not re.search("slow|search|test_failure", recipe(target))


def test_the_demo_has_an_environment_of_its_own_with_what_it_needs() -> None:
    lines = recipe("demo").splitlines()
    assert lines == [
        "python3 tools/env.py .venv-demo --extra anyio > /dev/null",
        ".venv-demo/bin/python -m examples.demo",
    ]
    names = {re.split(r"[<>=]", each)[0] for each in env.requirements("anyio")}
    assert names == {"msgspec", "anyio", "hiredis"}


def test_the_demo_imports_nothing_else() -> None:
    """Installed are msgspec, anyio and hiredis, and what these need."""
    code = "import sys, examples.demo; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True, check=True)
    known = {"msgspec", "anyio", "hiredis", "idna", "sniffio", "typing_extensions", "exceptiongroup"}
    ours = {"bullmq_protocol", "bullmq_anyio", "examples", "tests", "__main__", "sitecustomize", "usercustomize"}
    foreign = set(done.stdout.split()) - sys.stdlib_module_names - known - ours
    assert {name for name in foreign if not name.startswith("_")} == set()


def test_lint_is_in_check_and_refuses_every_stale_page() -> None:
    quick, whole = recipe("lint").splitlines(), recipe("check").splitlines()
    assert set(quick) <= set(whole)
    written = {tool.name for tool in (_ROOT / "tools").glob("*.py") if '"--check"' in tool.read_text()}
    pages = {"reference.py", "acl.py", "error_table.py", "conformance_page.py"}
    assert written == {*pages, "twin.py", "public_names.py", "anchors.py", "drawings.py"}
    for tool in (*(f"tools/{name}" for name in written), "lua/build.py"):
        assert f".venv/bin/python {tool} --check" in quick


def test_one_target_writes_what_lint_refuses_where_it_is_stale() -> None:
    """A script comes before its twins and pages, and the list of names after all that may add one."""
    checked = [line.removesuffix(" --check") for line in recipe("lint").splitlines() if line.endswith(".py --check")]
    written = [line for line in recipe("generated").splitlines() if re.search(r"(tools|lua)/\w+\.py$", line)]
    assert written == checked
    assert written[0].endswith(" lua/build.py") and written[-1].endswith(" tools/public_names.py")


@pytest.mark.parametrize("target", ["test", "test-3.11", "test-3.12"])
def test_tests_say_at_their_start_how_long_they_take(target: str) -> None:
    assert re.search(rf"tools/took\.py {re.escape(target)} \d+ make", recipe(target))


def test_ci_and_hooks_run_the_targets_of_the_makefile() -> None:
    workflow = yaml.safe_load((_ROOT / ".github/workflows/ci.yml").read_text())
    hooks = yaml.safe_load((_ROOT / ".pre-commit-config.yaml").read_text())
    ran = [text for text in (*steps(workflow), *steps(hooks)) if text.startswith("make")]
    assert sorted(ran) == ["make check", "make lint", "make test-all", "make unit"]
    for text in ran:
        assert recipe(text.removeprefix("make "))


def test_ci_names_no_host() -> None:
    for name in (".github/workflows/ci.yml", ".pre-commit-config.yaml"):
        assert re.findall(r"https?:|\b[\w-]+\.(?:com|org|io|net)\b", (_ROOT / name).read_text()) == []


def test_ci_ends_within_an_hour_and_a_half_whatever_hangs() -> None:
    script = (_ROOT / ".ci/run").read_text()
    stages = re.findall(r"^ *stage (\"[^\"]+\"|\w+) (\S+) ", script, re.MULTILINE)
    names = [
        "install",
        "provenance",
        "environments",
        "check",
        "documentation",
        "tests on 3.11",
        "switching threads",
        "planted faults",
        "tests on $version",
    ]
    assert [name.strip('"') for name, _ in stages] == names
    minutes = [int(limit) for _, limit in stages]
    # The last is that of two versions.
    assert sum(minutes) + minutes[-1] < 90
    assert 'timeout --kill-after=60 "${minutes}m"' in script


def test_ci_plants_a_sample_of_faults_that_is_bounded_in_time() -> None:
    assert " make mutants-sample\n" in (_ROOT / ".ci/run").read_text()
    lua, core = [line for line in recipe("mutants-sample").splitlines() if "tools.mutants" in line]
    assert sum(int(found) for line in (lua, core) for found in re.findall(r"--seconds (\d+)", line)) <= 60
    # Nothing takes what they say for good: a line that fails ends make.
    assert not re.search(r"\|\||;|^-", f"{lua}\n{core}", re.MULTILINE)


def test_ci_runs_the_unit_tests_once_on_each_python() -> None:
    """Those of 3.11 in `check`, whose environment is that of 3.11 where this is the usual Python."""
    script = (_ROOT / ".ci/run").read_text()
    assert " make check\n" in script and " make test-3.11 CHECKED=yes\n" in script
    assert " tests/unit tests/property" in recipe("check")
    assert "test -z 'yes' || test ! -L .venv-3.11 || echo tests/unit" in recipe("test-3.11", "CHECKED=yes")
    assert " tests/unit tests/property " in recipe("run-covered")
    assert " tests/unit" not in recipe("run-covered", "LEFT_OUT=tests/unit")


def test_every_room_is_run_once_and_test_alone_leaves_out_what_is_deep() -> None:
    rooms = {path.parent.name for path in (_ROOT / "tests").glob("*/test_*.py")}
    lines = [line for line in recipe("run-covered").splitlines() if "--dist loadfile" in line]
    named = re.findall(r" tests/(\w+)", "\n".join(lines))
    assert sorted(named) == sorted(rooms)
    assert [line.endswith(" tests/server") for line in lines if "--cov=" in line] == [True]
    for target, deep in (("test", "and not deep"), ("test-3.11", ""), ("test-3.12", "")):
        found = re.findall(r"-m '((?:not )?alone[^']*)'", recipe(target))
        assert {each.replace("not alone", "alone") for each in found} == {f"alone {deep}"}, target


def test_newer_pythons_share_the_ends_of_the_servers() -> None:
    ends = re.findall(r"^test-(\S+): export BULLMQ_TEST_END = (\w+)$", (_ROOT / "Makefile").read_text(), re.MULTILINE)
    assert ends == [("3.12", "oldest"), ("3.13", "newest"), ("switching", "newest")]
    assert "--brief" in recipe("test-3.12") and "BULLMQ_TEST_END" not in recipe("test-3.11")


def test_tasks_of_trio_run_in_both_orders() -> None:
    assert [re.findall(r"--trio-order (\w+)", recipe(f"test-{each}")) for each in ("3.12", "3.13")] == [
        ["kept"] * 4,
        ["reversed"] * 5,
    ]
    (again,) = [line for line in recipe("check").splitlines() if "--trio-order $order" in line]
    assert again.startswith("for order in kept reversed; do ") and again.endswith(" || exit 1; done")
    assert " tests/unit/test_primitives.py" in again and " tests/unit/test_kit.py" in again


def test_every_target_that_a_page_names_exists() -> None:
    makefile = (_ROOT / "Makefile").read_text()
    known = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)) | {"test-3.11", "test-3.12", "test-3.13"}
    pages = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").glob("*.md"))]
    named = {name for page in pages for name in re.findall(r"`make ([a-z][a-z0-9.-]*)", page.read_text())}
    assert "unit" in named
    assert named - known == set()


# --- how long it takes, and that nothing is silent ---


def test_what_it_took_is_reported_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(took, "FOLDER", tmp_path)
    monkeypatch.setattr(took.signal, "signal", lambda *_: None)
    assert took.main(["some", "15", sys.executable, "-c", "print('at work')"]) == 0
    first, work, last = capfd.readouterr().out.splitlines()
    assert (first, work) == ("some: takes about 15 minutes on two cores with nothing else to do", "at work")
    assert re.fullmatch(r"some: it took \d+ s", last)
    (tmp_path / "some").write_text("125\n")
    assert took.main(["some", "15", sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert capfd.readouterr().out.startswith("some: the last time it took 2 min 5 s here\n")
    # A run that failed says nothing about how long the whole takes.
    assert (tmp_path / "some").read_text() == "125\n"
    assert took.main(["some"]) == 2


def test_what_make_only_shows_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(took, "FOLDER", tmp_path)
    monkeypatch.setattr(took.signal, "signal", lambda *_: None)
    for flags in ("n", "ns --jobserver-auth=3,4 -- PYTHON=python3"):
        monkeypatch.setenv("MAKEFLAGS", flags)
        assert took.main(["some", "15", sys.executable, "-c", ""]) == 0
        assert not (tmp_path / "some").exists()
    for flags in ("", "s", " --no-print-directory -- IN=n"):
        monkeypatch.setenv("MAKEFLAGS", flags)
        assert took.main(["some", "15", sys.executable, "-c", ""]) == 0
        (tmp_path / "some").unlink()


def test_silence_is_shorter_than_30_s() -> None:
    assert QUIET_S < 30
    assert env.QUIET_S < 30


def test_a_ticker_speaks_where_nothing_is_heard() -> None:
    spoke = threading.Event()
    with Ticker(lambda seconds: spoke.set(), 0.001):
        assert spoke.wait(60)


def test_a_ticker_that_hears_something_is_silent() -> None:
    said: list[float] = []
    with Ticker(said.append, 3600) as ticker:
        ticker.heard()
    assert said == []


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_long_test_is_named_while_it_runs(processes: str, tmp_path: Path) -> None:
    """The test ends only after its name was read here; without that line both would wait for ever."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "conftest.py").write_text(
        "from tests.support.progress import Progress\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(Progress(0.01), 'progress')\n"
    )
    (tmp_path / "test_long.py").write_text(
        "import pathlib\ndef test_waits():\n    pathlib.Path(__file__).with_name('gate').read_text()\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-n", processes, "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["--rootdir", str(tmp_path), str(tmp_path)]
    environment = {**_ENVIRONMENT, "PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"}
    reported = ""
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        for line in run.stdout:
            reported += line
            if "longest running: test_long.py::test_waits" in line:
                gate.write_text("go on")
                break
        reported += run.stdout.read()
    assert run.returncode == 0, reported
    assert re.search(r"\[\d+ s: 0 tests done, 0 failed; longest running: test_long\.py::test_waits\]", reported)


# --- environments ---


def pyenv_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for environments, in which none is really made."""

    def make(base: str, folder: Path, python: Path, group: str, extra: str | None) -> None:
        python.parent.mkdir(parents=True)
        python.symlink_to(base)

    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(env, "ROOT", tmp_path)
    monkeypatch.setattr(env, "make", make)
    return tmp_path


def test_a_version_that_the_shared_environment_has_is_a_link_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, version = pyenv_of(tmp_path, monkeypatch), f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(env, "find_python", lambda wanted: sys.executable)
    # Without a shared one it has its own.
    assert env.main([".venv-x", version]) == 0
    assert not (root / ".venv-x").is_symlink()
    assert env.main([".venv"]) == 0
    assert env.main([".venv-x", version]) == 0
    assert (root / ".venv-x").readlink() == Path(".venv")
    assert capsys.readouterr().out.splitlines()[-1] == str(root / ".venv-x" / "bin" / "python")
    # Those of the tests are in it, another group of packages is not.
    for group in ("test", "newer"):
        assert env.main([f".venv-{group}", version, "--group", group]) == 0
        assert (root / f".venv-{group}").is_symlink()
    assert env.main([".venv-y", version, "--group", "mutants"]) == 0
    assert not (root / ".venv-y").is_symlink()
    # The shared one is stale: its own is made, and the shared one is left as it is.
    (root / ".venv" / "stamp").write_text("of another day")
    assert env.main([".venv-x", version]) == 0
    assert not (root / ".venv-x").is_symlink()
    assert (root / ".venv" / "bin" / "python").exists()
