"""The bench runs, checks what it did, and writes what it prints. Its figures are no test."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench import report, scenarios
from tests.support.programs import AnswerError, Program

pytestmark = pytest.mark.any_python


def test_a_tiny_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    chosen = ["--sides", "node-5,asyncio,limit", "--only", "add,large,latency,scripts,memory"]
    bench.main(["--quick", *chosen, "--jobs", "100", "--large", "1000", "--soak", "2000", "--json", str(file)])
    found = json.loads(file.read_text())
    assert found["rates"].keys() == {each.name for group in ("add", "large") for each in scenarios.SCENARIOS[group]}
    assert all(side["jobs_per_s"] > 0 for scenario in found["rates"].values() for side in scenario.values())
    assert found["rates"]["add 100 at once"].keys() == {"node-5", "asyncio", "limit"}
    assert {"addStandardJob", "moveToFinished"} <= found["scripts"]["node-5"].keys()
    assert {"addMany", "finishMany"} <= found["scripts"]["asyncio"].keys()
    assert found["latency"]["asyncio"]["p50_ms"] <= found["latency"]["asyncio"]["p99_ms"]
    reported = {row["what"]: row["measured"] for row in found["required"]}
    assert sum(measured is not None for measured in reported.values()) == 6
    printed = capsys.readouterr().out
    assert all(what in printed for what in reported)


def test_profiles_are_measured_beside_what_they_are_like(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    bench.main(["--quick", "--only", "profiles", "--jobs", "100", "--json", str(file)])
    found = json.loads(file.read_text())
    assert found["rates"].keys() == {each.name for each in scenarios.SCENARIOS["profiles"]}
    assert all(sides.keys() == set(scenarios.BY_PROFILE) for sides in found["rates"].values())
    reported = [row for row in found["required"] if row["measured"] is not None]
    assert [row["least"] for row in reported] == [0.97] * 4


def test_a_side_that_fails_is_named_and_measured_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bench.json"
    chosen = [
        "--sides",
        "asyncio,threads",
        "--only",
        "flows,memory",
        "--jobs",
        "100",
        "--rounds",
        "2",
        "--soak",
        "2000",
    ]
    arguments = [*chosen, "--json", str(file)]
    call, begun, broken = Program.call, list[str](), list[str]()

    def failing(self: Program, name: str, **args: Any) -> Any:
        begun.append(name)
        if name == "flows" and not broken and begun.count("flows") == 3:
            broken.append(name)
            raise AnswerError("no more")
        return call(self, name, **args)

    monkeypatch.setattr(Program, "call", failing)
    assert bench.main(arguments) == 1
    found = json.loads(file.read_text())
    (flows,) = scenarios.SCENARIOS["flows"]
    (failed,) = found["failed"]
    lost = failed.rpartition(": ")[2]
    assert failed == f"{flows.name}: {lost}"
    assert found["rates"][flows.name].keys() == {"asyncio", "threads"} - {lost}
    assert found["memory"].keys() == {"asyncio", "threads"}
    assert f"failed: {failed}: AnswerError: no more" in capsys.readouterr().out

    begun.clear()
    assert bench.main([*arguments, "--resume"]) == 0
    assert set(begun) == {"flows"}
    again = json.loads(file.read_text())
    assert again["rates"][flows.name].keys() == {"asyncio", "threads"}
    assert again["memory"] == found["memory"]
    assert again["failed"] == {}


def test_another_run_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    file.write_text(json.dumps({"server": "none"}))
    with pytest.raises(SystemExit):
        bench.main(["--sides", "asyncio", "--resume", "--json", str(file)])
    assert "server is 'none' there, and " in capsys.readouterr().err
    assert json.loads(file.read_text()) == {"server": "none"}


@pytest.mark.parametrize(
    ("speeds", "quartiles", "spread", "decided"),
    [
        ([100.0], None, None, True),
        ([100.0, 90.0, 110.0, 105.0, 95.0], [95, 105], 0.1, True),
        ([100.0, 70.0, 200.0, 130.0, 80.0], [80, 130], 0.5, False),
    ],
)
def test_rounds_that_lie_far_apart_decide_nothing(
    speeds: Sequence[float], quartiles: list[int] | None, spread: float | None, decided: bool, tmp_path: Path
) -> None:
    rows = report.rates(
        {side: [{"jobs": 1000, "seconds": 1000 / each} for each in speeds] for side in ("asyncio", "node-5")}
    )
    row = rows["asyncio"]
    assert (row["jobs_per_s"], row["quartiles"], row["spread"]) == (100, quartiles, spread)
    assert report.undecided(rows) == ([] if decided else ["asyncio", "node-5"])
    figures = report.Figures(tmp_path / "bench.json", {}, rates={"bulk of 1,000": rows})
    (asked,) = [each for each in figures.required() if each["measured"] is not None]
    assert (asked["measured"], asked["decided"]) == (1.0, decided)


def test_an_undecided_scenario_is_measured_again_once(tmp_path: Path) -> None:
    speeds = iter([10.0, 100.0, 50.0, 100.0, 100.0])

    class OneSide(bench.Bench):
        def __init__(self) -> None:
            self.rounds, self.sides = 2, ["asyncio"]

        def measure(self, scenario: scenarios.Scenario, side: str) -> report.Sample:
            return {"jobs": 1, "seconds": 1 / next(speeds)}

    figures = report.Figures(tmp_path / "bench.json", {})
    scenario = scenarios.SCENARIOS["add"][0]
    bench.Run(OneSide(), figures, samples=1, soak=1).rates(scenario)
    assert figures.rates[scenario.name]["asyncio"]["rounds"] == [100, 50, 100, 100]
    assert json.loads(figures.file.read_text())["rates"] == figures.rates
