"""What `tools/release.py` holds a release to; `make dist` runs it."""

import importlib.util
import re
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    monkeypatch.setattr(found, "DIST", tmp_path)
    return found


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return found


def test_every_extra_and_every_package_is_tried(release: ModuleType) -> None:
    project = _project()
    assert set(release.MODULES) == {"", *project["project"]["optional-dependencies"]}
    tried = {module.partition(".")[0] for modules in release.MODULES.values() for module in modules}
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert tried >= {each for each in shipped if "/" not in each}


@pytest.mark.parametrize("name", ["tests/unit/test_x.py", "bench/limit.py", "bullmq_sync/tests/x.py", "lua/addLog.lua"])
def test_a_wheel_with_tests_or_tools_is_refused(release: ModuleType, tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "bullmq_protocol-0.1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(name, "")
    with pytest.raises(release.StepError, match=re.escape(name)):
        release.contents()


def test_without_a_build_a_step_says_what_to_run(release: ModuleType) -> None:
    with pytest.raises(release.StepError, match=r"run the step `build` first"):
        release.metadata()


def test_an_unknown_step_is_named(release: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        release.main(["--only", "build,publish"])
    assert "unknown: publish" in capsys.readouterr().err


def test_a_step_that_fails_ends_the_run(release: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["--only", "metadata,contents"]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("metadata: FAILED: ")
    assert shown.out == ""


def test_the_tests_of_the_library_are_most_of_them(release: ModuleType) -> None:
    files = sorted((ROOT / "tests" / "unit").glob("test_*.py"))
    chosen = [each.name for each in files if release._of_the_library(each)]
    assert {"test_machine.py", "test_codec.py", "test_monque_scheduler.py"} <= set(chosen)
    assert "test_house_rules.py" not in chosen
    assert len(chosen) > len(files) / 2


def test_the_workflow_publishes_without_a_token() -> None:
    found = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    jobs = found["jobs"]
    assert {"run": "make dist"} in jobs["build"]["steps"]
    assert found["permissions"] == {"contents": "read"}
    assert jobs["publish"]["permissions"]["id-token"] == "write"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()
    (named,) = re.findall(r"s/\^(VERSION.*?)\\\(", (ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert named in (ROOT / "bullmq_protocol" / "_version.py").read_text()


@pytest.mark.parametrize(
    ("line", "public"),
    [
        ("bullmq_protocol/worker/health.py:0: health: Public object was removed", True),
        ("bullmq_anyio/queue.py:12: Queue.add(options): Parameter was removed", True),
        ("bullmq_protocol/scripts/source.py:0: packed_of: Public object was removed", False),
        ("bullmq_sync/workers.py:3: Queue.fetch: Public object was removed", False),
        ("INFO: loading", False),
    ],
)
def test_only_recorded_names_count_as_public(release: ModuleType, line: str, public: bool) -> None:
    recorded = (ROOT / "tests" / "unit" / "public_names.txt").read_text()
    assert release.is_of_public(line, recorded) is public
