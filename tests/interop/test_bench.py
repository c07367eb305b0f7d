"""The bench runs, checks what it did, and writes what it prints. Its figures are no test."""

import json
from pathlib import Path

import pytest

from bench import __main__ as bench

pytestmark = pytest.mark.any_python


def test_a_tiny_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    chosen = ["--sides", "node-5,asyncio,limit", "--only", "add,large,latency,scripts,memory"]
    bench.main(["--quick", *chosen, "--jobs", "100", "--large", "1000", "--soak", "2000", "--json", str(file)])
    found = json.loads(file.read_text())
    assert found["rates"].keys() == {each.name for group in ("add", "large") for each in bench.SCENARIOS[group]}
    assert all(side["jobs_per_s"] > 0 for scenario in found["rates"].values() for side in scenario.values())
    assert found["rates"]["add 100 at once"].keys() == {"node-5", "asyncio", "limit"}
    assert {"addStandardJob", "moveToFinished"} <= found["scripts"]["node-5"].keys()
    assert {"addMany", "finishMany"} <= found["scripts"]["asyncio"].keys()
    assert found["latency"]["asyncio"]["p50_ms"] <= found["latency"]["asyncio"]["p99_ms"]
    reported = {row["what"]: row["measured"] for row in found["required"]}
    assert sum(measured is not None for measured in reported.values()) == 4
    printed = capsys.readouterr().out
    assert all(what in printed for what in reported)


def test_profiles_are_measured_beside_what_they_are_like(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    bench.main(["--quick", "--only", "profiles", "--jobs", "100", "--json", str(file)])
    found = json.loads(file.read_text())
    assert found["rates"].keys() == {each.name for each in bench.SCENARIOS["profiles"]}
    assert all(sides.keys() == set(bench.BY_PROFILE) for sides in found["rates"].values())
    reported = [row for row in found["required"] if row["measured"] is not None]
    assert [row["least"] for row in reported] == [0.97] * 4
