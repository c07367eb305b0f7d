"""The bench runs, checks what it did, and writes what it prints. Its figures are no test."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench import report, scenarios, sides
from bench.peers import common
from tests.support import pages
from tests.support.port import PEERS
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


# taskiq's receiver may go on where it is to end; tests/interop/test_peers.py starts it.
@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer != "taskiq"])
def test_another_queue_takes_part(
    peer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bench.json"
    few = [each for each in scenarios.SCENARIOS["process"] if each.args["concurrency"] in (1, 10)]
    monkeypatch.setitem(scenarios.SCENARIOS, "process", tuple(few))
    chosen = ["--sides", f"asyncio,{peer}", "--only", "add,process,latency", "--jobs", "50"]
    assert bench.main(["--quick", *chosen, "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    of_peers = [each.name for group in ("add", "process") for each in scenarios.SCENARIOS[group] if peer in each.sides]
    assert len(of_peers) == 4
    assert all(found["rates"][name].keys() == {"asyncio", peer} for name in of_peers)
    assert found["latency"].keys() == {"asyncio", peer}
    assert found["against_peers"].keys() == {scenarios.LATENCY, *of_peers}
    asked = [row["measured"] for row in found["required"] if row.get("other") == peer and "asyncio" in row["what"]]
    assert len(asked) == (5 if peer in sides.KEEP_PROMISE else 0) and None not in asked
    assert f"{sides.NAMES[peer]} " in capsys.readouterr().out


def test_peers_stands_for_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    bench.main(["--quick", "--sides", "peers", "--only", "flows", "--json", str(file)])
    found = json.loads(file.read_text())
    assert found["rates"] == {scenarios.SCENARIOS["flows"][0].name: {}}


def test_the_memory_of_another_queue(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    arguments = ["--quick", "--sides", "huey", "--only", "memory", "--json", str(file)]
    assert bench.main(arguments) == 0
    memory = json.loads(file.read_text())["memory"]["huey"]
    assert 10 < memory["early_mb"] < memory["late_mb"] + 50


def test_a_peer_that_cannot_be_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(peer: str) -> Path:
        raise subprocess.CalledProcessError(1, ["pip", peer])

    monkeypatch.setattr(sides, "peer_python", nowhere)
    file = tmp_path / "bench.json"
    assert bench.main(["--quick", "--sides", "asyncio,huey", "--only", "latency", "--json", str(file)]) == 1
    found = json.loads(file.read_text())
    assert found["failed"].keys() == {"latency: huey"}
    assert "'pip', 'huey'" in found["failed"]["latency: huey"]
    assert found["latency"].keys() == {"asyncio"}


def test_ours_are_held_to_the_best_peer_that_keeps_the_promise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "huey" not in sides.KEEP_PROMISE
    speeds = {"asyncio": 3000, "trio": 600, "arq": 500, "saq": 1000, "huey": 2000}
    name = "process, concurrency 10"
    rows = report.rates({side: [{"jobs": 1000, "seconds": 1000 / each}] for side, each in speeds.items()})
    ms = {"asyncio": 0.5, "arq": 5.0, "saq": 2.0, "huey": 1.0}
    latency = {side: {"p50_ms": each, "p99_ms": each} for side, each in ms.items()}
    figures = report.Figures(tmp_path / "bench.json", {}, rates={name: rows}, latency=latency)
    asked = {row["what"]: row for row in figures.required() if row.get("other") == "saq"}
    best = sides.NAMES[sides.BEST_PEER]
    assert {what: row["measured"] for what, row in asked.items()} == {
        f"{name}: ours, asyncio against {best}": 3.0,
        f"{name}: ours, trio against {best}": 0.6,
        f"{name}: ours, threads against {best}": None,
        f"latency p50: ours, asyncio against {best}": 0.25,
    }
    against = figures.against_peers()
    assert against[name] == {
        "asyncio": {"arq": 6.0, "huey": 1.5, "saq": 3.0},
        "trio": {"arq": 1.2, "huey": 0.3, "saq": 0.6},
    }
    assert against[scenarios.LATENCY] == {"asyncio": {"arq": 10.0, "huey": 2.0, "saq": 4.0}}
    report.show_against_peers(against)
    report.show_required(list(asked.values()))
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == [*("times", "as", "fast:", *name.split()), "arq*", "huey", "saq*"]
    assert printed[2].split() == ["ours,", "asyncio", "6.00", "1.50", "3.00"]
    assert [line for line in printed if line.startswith("!") and line.endswith(f", {sides.NAMES['saq']}")] != []


def test_each_peer_has_a_program_pins_and_a_row_in_the_docs() -> None:
    folder = pages.ROOT / "bench" / "peers"
    programs = {file.stem for file in folder.glob("*.py")} - {"__init__", "common", "processes"}
    assert programs == set(PEERS)
    _, _, section = pages.page("bench.md").partition("\n## Other queues for Python\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    promises = {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in rows}
    said = {peer: promises[sides.NAMES[peer]] for peer in PEERS}
    assert said == {peer: "yes" if peer in sides.KEEP_PROMISE else "**no**" for peer in PEERS}


_BELOW = """
import sys, time
held = bytearray(b"x") * 50_000_000
while time.process_time() < 0.3:
    pass
print(flush=True)
sys.stdin.read()
"""


def test_what_processes_below_use_counts() -> None:
    used, held = common.cpu_of_all(), common.memory_of_all()
    with subprocess.Popen([sys.executable, "-c", _BELOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as below:
        assert below.stdout is not None
        below.stdout.readline()
        assert common.memory_of_all() - held > 45
        during = common.cpu_of_all() - used
    assert during > 0.25
    # It has ended, and is waited for.
    assert common.cpu_of_all() - used >= during
