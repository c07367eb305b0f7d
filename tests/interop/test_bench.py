"""The bench runs, checks what it did, and writes what it prints. Its figures are no test."""

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import __main__ as bench
from bench import processes, report, scenarios, sides, tables
from bench.peers import common
from tests.support import pages
from tests.support.port import PEERS
from tests.support.programs import AnswerError, Program, until

pytestmark = pytest.mark.any_python


@pytest.mark.deep
def test_a_tiny_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    chosen = ["--sides", "node-5,asyncio,limit", "--only", "add,large,latency,scripts,memory"]
    bench.main(["--quick", *chosen, "--jobs", "100", "--large", "1000", "--soak", "2000", "--json", str(file)])
    found = json.loads(file.read_text())
    assert found["rates"].keys() == {each.name for group in ("add", "large") for each in scenarios.SCENARIOS[group]}
    assert all(side["jobs_per_s"] > 0 for scenario in found["rates"].values() for side in scenario.values())
    assert found["rates"]["add 100 at once"].keys() == {"node-5", "asyncio", "limit"}
    for rows in found["rates"].values():
        assert all(row["server_us_per_job"] >= 0 for row in rows.values())
        assert all(row["cpu_us_per_job"] > 0 for side, row in rows.items() if side != "limit")
    assert {"addStandardJob", "moveToFinished"} <= found["scripts"]["node-5"].keys()
    assert {"addMany", "finishMany"} <= found["scripts"]["asyncio"].keys()
    assert found["latency"]["asyncio"]["p50_ms"] <= found["latency"]["asyncio"]["p99_ms"]
    reported = {row["what"]: row["measured"] for row in found["required"]}
    assert sum(measured is not None for measured in reported.values()) == 6
    printed = capsys.readouterr().out
    assert all(what in printed for what in reported)


@pytest.mark.deep
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


_HANGS = """
import json, subprocess, sys
below = subprocess.Popen(["sleep", "1000"])
print(json.dumps({"event": "ready", "below": below.pid}), flush=True)
sys.stdin.read()
below.wait()
"""
"""A side that answers no call, and goes on when its stdin ends; with a process of its own below it."""


def test_a_side_that_takes_too_long_is_killed_and_gets_a_second_chance_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = list[Program]()
    start = sides.start

    def started(side: str, *more: Any) -> Program:
        if side != "trio":
            return start(side, *more)
        hanging.append(Program([sys.executable, "-c", _HANGS]))
        hanging[-1].wait(lambda events: events)
        return hanging[-1]

    call = Program.call

    def hurried(self: Program, name: str, **args: Any) -> Any:
        return call(self, name, **{**args, "timeout": 0.2} if self in hanging else args)

    monkeypatch.setattr(sides, "start", started)
    monkeypatch.setattr(Program, "call", hurried)
    file = tmp_path / "bench.json"
    arguments = ["--quick", "--only", "add,flows", "--sides", "asyncio,trio", "--jobs", "100", "--json", str(file)]
    assert bench.main(arguments) == 1
    found = json.loads(file.read_text())
    names = [each.name for group in ("add", "flows") for each in scenarios.SCENARIOS[group]]
    assert list(found["failed"]) == [f"{name}: trio" for name in names]
    faults = list(found["failed"].values())
    assert all(fault.startswith("TooLateError: the answer of ") for fault in faults[:2])
    assert faults[2:] == ["TooLateError: not tried: took over 180 s in 2 scenarios before"] * 2
    assert all(found["rates"][name].keys() == {"asyncio"} for name in names)
    printed = capsys.readouterr().out
    assert all(f"failed: {each}: " in printed for each in found["failed"])
    assert "\nrequired " in printed
    assert len(hanging) == 2
    pids = [pid for program in hanging for pid in (program.pid, program.events[0]["below"])]
    until(lambda: [pid for pid in pids if _runs(pid)], [])


@pytest.mark.deep
def test_a_side_that_is_killed_is_named_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a call, which it does not read, and within one."""
    add_one, add_100, add_bulk = (each.name for each in scenarios.SCENARIOS["add"])
    call, calls = Program.call, list[str]()

    def killing(self: Program, name: str, **args: Any) -> Any:
        if self not in programs:
            return call(self, name, **args)
        calls.append(name)
        if len(calls) == 1:
            os.kill(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        answer = self.begin(name, **args)
        if len(calls) == 2:
            os.kill(self.pid, signal.SIGKILL)
        return answer()

    start, programs = sides.start, list[Program]()

    def started(side: str, *more: Any) -> Program:
        program = start(side, *more)
        if side == "trio":
            programs.append(program)
        return program

    monkeypatch.setattr(sides, "start", started)
    monkeypatch.setattr(Program, "call", killing)
    file = tmp_path / "bench.json"
    arguments = ["--quick", "--only", "add", "--sides", "asyncio,trio", "--jobs", "5000", "--json", str(file)]
    assert bench.main(arguments) == 1
    found = json.loads(file.read_text())
    faults = found["failed"]
    assert faults.keys() == {f"{add_one}: trio", f"{add_100}: trio"}
    assert faults[f"{add_one}: trio"].startswith("BrokenPipeError: ")
    assert "the program ended" in faults[f"{add_100}: trio"]
    assert found["rates"][add_100].keys() == {"asyncio"}
    assert found["rates"][add_bulk].keys() == {"asyncio", "trio"}
    assert len(programs) == 3


def _runs(pid: int) -> bool:
    """Whether there is such a process that has not ended; nobody may have waited for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_prints_what_it_has_leaves_nothing_and_is_resumed(
    tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "bench.json"
    chosen = ["--only", "flows,latency,memory", "--sides", "asyncio,threads", "--jobs", "100", "--soak", "2000"]
    command = [sys.executable, "-m", "bench", *chosen, "--rounds", "2", "--json", str(file)]
    (flows,) = scenarios.SCENARIOS["flows"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **pipes, cwd=pages.ROOT, start_new_session=True) as running:
        assert running.stdout is not None
        # The last row of the table; what follows is the latency, in the middle of which the run is ended.
        for line in running.stdout:
            if sides.NAMES["threads"] in line:
                break
        started = _below(running.pid)
        # As a terminal does.
        os.killpg(running.pid, number)
        printed = running.stdout.read()
    assert running.returncode == 128 + number
    assert "Traceback" not in printed
    assert "\nrequired " in printed
    assert f"written to {file}" in printed
    assert len(started) == 3, "a server and two sides"
    until(lambda: [pid for pid in started if _runs(pid)], [])
    found = json.loads(file.read_text())
    assert found["rates"].keys() == {flows.name}
    assert (found["latency"], found["memory"], found["failed"]) == ({}, {}, {})

    with subprocess.Popen([*command, "--resume"], stdout=subprocess.PIPE, text=True, cwd=pages.ROOT) as running:
        assert running.stdout is not None
        printed = running.stdout.read()
    assert running.returncode == 0
    assert f"\n{flows.name} " not in printed
    again = json.loads(file.read_text())
    assert again["rates"] == found["rates"]
    assert again["latency"].keys() == again["memory"].keys() == {"asyncio", "threads"}


def _below(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children]


def test_memory_is_kept_for_each_side_as_it_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "bench.json"
    arguments = ["--quick", "--only", "memory", "--sides", "asyncio,threads", "--soak", "2000", "--json", str(file)]
    call, begun = Program.call, list[Program]()

    def failing(self: Program, name: str, **args: Any) -> Any:
        if begun:
            # The first side's are in the file while the second one acts.
            assert json.loads(file.read_text())["memory"].keys() == {"asyncio"}
            raise AnswerError("no more")
        begun.append(self)
        return call(self, name, **args)

    with monkeypatch.context() as patched:
        patched.setattr(Program, "call", failing)
        assert bench.main(arguments) == 1
    found = json.loads(file.read_text())
    assert found["failed"] == {"memory: threads": "AnswerError: no more"}
    assert bench.main([*arguments, "--resume"]) == 0
    again = json.loads(file.read_text())
    assert again["memory"].keys() == {"asyncio", "threads"}
    assert again["memory"]["asyncio"] == found["memory"]["asyncio"]


@pytest.mark.parametrize(
    ("kept", "fault"),
    [
        (json.dumps({"format": report.FORMAT, "server": "none"}), "server is 'none' there, and "),
        ("{}", "format is None there, and "),
        ("[]", "bench.json is no file of the bench: it holds no object"),
        ('{"rates', "bench.json is no file of the bench: "),
    ],
)
def test_another_run_is_not_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: str, fault: str) -> None:
    file = tmp_path / "bench.json"
    file.write_text(kept)
    with pytest.raises(SystemExit):
        bench.main(["--sides", "asyncio", "--resume", "--json", str(file)])
    assert fault in capsys.readouterr().err
    assert file.read_text() == kept
    if "server" not in fault:
        # Its tables can be printed on any machine.
        with pytest.raises(SystemExit):
            tables.main([str(file)])
        assert fault in capsys.readouterr().err


def test_what_was_not_asked_for_before_is_measured_with_the_others(tmp_path: Path) -> None:
    """And what failed in a scenario that is not asked for now stays as it is."""
    add, *others = (each.name for each in scenarios.SCENARIOS["add"])
    file = tmp_path / "bench.json"
    kept = report.Figures(file, {}, {each: report.rates({"trio": [{"jobs": 1, "seconds": 1}]}) for each in others})
    kept.failed = {f"{others[0]}: node-5": "no", f"{others[1]}: trio": "no", "memory: trio": "no"}
    kept.save()
    acted = list[tuple[str, str]]()

    class TwoSides(bench.Bench):
        def __init__(self) -> None:
            self.rounds, self.sides = 1, ["asyncio", "trio"]

        def measure(self, scenario: scenarios.Scenario, side: str) -> report.Sample:
            acted.append((scenario.name, side))
            return {"jobs": 1, "seconds": 0.5}

        def latency(self, count: int, side: str) -> report.Sample:
            acted.append(("latency", side))
            return {"p50_ms": 1.0, "p99_ms": 1.0}

    for asked, measured in (
        (["trio"], [(others[1], "trio"), ("latency", "trio")]),
        (["trio"], []),
        (["asyncio"], [*((each, side) for each in (*others, "latency") for side in ("asyncio", "trio"))]),
        (["asyncio", "trio"], []),
    ):
        figures = report.Figures(file, {})
        figures.resume()
        run = bench.Run(TwoSides(), figures, samples=1, soak=1)
        run.bench.sides = asked
        for scenario in scenarios.SCENARIOS["add"]:
            if scenario.name != add:
                run.rates(scenario)
        run.other("latency")
        assert acted == measured
        acted.clear()
    found = json.loads(file.read_text())
    assert found["failed"] == {f"{others[0]}: node-5": "no", "memory: trio": "no"}
    assert [found["rates"][each]["trio"]["jobs_per_s"] for each in others] == [2, 2]
    assert found["latency"].keys() == {"asyncio", "trio"}
    assert list(tmp_path.iterdir()) == [file]


def _full(*_: object) -> None:
    raise OSError("full")


def test_the_figures_of_the_run_before_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, before = tmp_path / "bench.json", tmp_path / "bench.before.json"
    file.write_text("half an hour")
    figures = report.Figures(file, {})
    figures.try_file()
    # Nothing has been measured.
    figures.save()
    assert (file.read_text(), figures.is_written, list(tmp_path.iterdir())) == ("half an hour", False, [file])
    for side in ("asyncio", "trio"):
        figures.memory[side] = {"early_mb": 1.0, "late_mb": 1.0}
        figures.save()
        assert json.loads(file.read_text())["memory"] == figures.memory
    assert before.read_text() == "half an hour"
    assert figures.is_written
    monkeypatch.setattr(Path, "replace", _full)
    figures.save()
    assert not figures.is_written
    assert (
        capsys.readouterr().out == f"\nkept the figures of the run before in {before}\n\nnot written to {file}: full\n"
    )
    assert json.loads(file.read_text())["memory"] == figures.memory


def test_a_file_that_cannot_be_written_any_more_ends_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bench.json"
    begun, call = list[str](), Program.call

    def losing(self: Program, name: str, **args: Any) -> Any:
        if name not in begun:
            # Where the figures would go first, there is a folder.
            begun.append(name)
            (tmp_path / "bench.json.part").mkdir(exist_ok=True)
        return call(self, name, **args)

    monkeypatch.setattr(Program, "call", losing)
    arguments = ["--quick", "--only", "flows,latency", "--sides", "asyncio", "--jobs", "100", "--json", str(file)]
    assert bench.main(arguments) == 1
    assert begun == ["flows", "latency"]
    printed = capsys.readouterr().out
    assert f"\nnot written to {file}: [Errno 21] Is a directory" in printed
    assert "\nrequired " in printed
    assert printed.endswith(f"\nnot written to {file}\n")


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--sides", "asyncio,process"], "--sides: unknown: process; known: node-5, "),
        (["--only", "add,asyncio"], "--only: unknown: asyncio; known: add, process, "),
        (["--only", ","], "--only: empty; known: add, "),
        (["--jobs", "0"], "argument --jobs: 0 is less than 1"),
        (["--rounds", "-1"], "argument --rounds: -1 is less than 1"),
        (["--server", "redis-1"], "--server: redis-1 cannot be started here"),
        (["--json", "FOLDER"], "--json: "),
        (["--json", "FOLDER/file/bench.json"], "--json: "),
    ],
)
def test_what_cannot_be_asked_for(
    arguments: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    arguments = [each.replace("FOLDER", str(tmp_path)) for each in arguments]
    with pytest.raises(SystemExit) as ended:
        bench.main(["--quick", "--json", str(tmp_path / "bench.json"), *arguments])
    assert ended.value.code == 2
    assert f"bench: error: {fault}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize(
    ("module", "arguments", "fault"),
    [
        ("processes", ["--sides", "node-5"], "--sides: unknown: node-5; known: asyncio, "),
        ("processes", ["--processes", "1,x"], "--processes: '1,x': a comma list of numbers from 1 on"),
        ("processes", ["--processes", "0"], "--processes: '0': a comma list of numbers from 1 on"),
        ("waiting", ["--only", "add,all"], "--only: unknown: all; known: idle, "),
        ("waiting", ["--callers", "0"], "argument --callers: 0 is less than 1"),
        ("partitions", ["--jobs", "500"], "--jobs: 500 is no multiple of 3,000"),
        ("start", ["--rounds", "0"], "argument --rounds: 0 is less than 1"),
        ("tables", ["/nowhere/bench.json"], "[Errno 2] No such file or directory: '/nowhere/bench.json'"),
    ],
)
def test_what_cannot_be_asked_of_the_others(module: str, arguments: list[str], fault: str) -> None:
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    done = subprocess.run(command, cwd=pages.ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"bench.{module}: error: {fault}" in done.stderr
    assert done.stdout == ""


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


def test_a_latency_that_is_undecided_is_measured_again_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    p50s = {"asyncio": iter([9.0, 0.4, 0.8, 0.4, 0.4]), "node-5": iter([9.0, 0.8, 0.8, 0.8, 0.8])}

    class TwoSides(bench.Bench):
        def __init__(self) -> None:
            self.rounds, self.sides = 2, list(p50s)

        def latency(self, count: int, side: str) -> report.Sample:
            return {"p50_ms": next(p50s[side]), "p99_ms": 1.0}

    figures = report.Figures(tmp_path / "bench.json", {})
    bench.Run(TwoSides(), figures, samples=1, soak=1).other("latency")
    assert figures.latency["asyncio"] == {
        "rounds": {"p50_ms": [0.4, 0.8, 0.4, 0.4], "p99_ms": [1.0] * 4},
        "quartiles": {"p50_ms": [0.4, 0.5], "p99_ms": [1.0, 1.0]},
        "spread": {"p50_ms": 0.25, "p99_ms": 0.0},
        "p50_ms": 0.4,
        "p99_ms": 1.0,
    }
    assert json.loads(figures.file.read_text())["latency"] == figures.latency
    rows = {row["what"]: row for row in figures.required()}
    p50, p99 = (rows[f"latency {each}: ours, asyncio against {sides.NAMES['node-5']}"] for each in ("p50", "p99"))
    assert (p50["measured"], p50["decided"]) == (0.5, False)
    assert (p99["measured"], p99["decided"]) == (1.0, True)
    shown = {line.split("  ")[1]: line for line in capsys.readouterr().out.splitlines()[2:]}
    assert shown[sides.NAMES["asyncio"]].endswith("  not decided: p50")
    assert "not decided" not in shown[sides.NAMES["node-5"]]


def test_scenarios_keep_their_order(tmp_path: Path) -> None:
    """Also where one is measured again later."""
    names = [each.name for group in scenarios.SCENARIOS.values() for each in group]
    figures = report.Figures(tmp_path / "bench.json", {}, {name: {} for name in reversed(names)})
    figures.save()
    assert list(json.loads(figures.file.read_text())["rates"]) == names


@pytest.mark.parametrize("peer", PEERS)
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
    latency = report.latencies({side: [{"p50_ms": each, "p99_ms": each}] for side, each in ms.items()})
    figures = report.Figures(tmp_path / "bench.json", {}, rates={name: rows}, latency=latency)
    asked = {row["what"]: row for row in figures.required() if row.get("other") == "saq"}
    named = sides.NAMES[sides.BEST_PEER]
    assert {what: row["measured"] for what, row in asked.items()} == {
        f"{name}: ours, asyncio against {named}": 3.0,
        f"{name}: ours, trio against {named}": 0.6,
        f"{name}: ours, threads against {named}": None,
        f"latency p50: ours, asyncio against {named}": 0.25,
        f"latency p50: ours, trio against {named}": None,
        f"latency p50: ours, threads against {named}": None,
    }
    against = figures.against_peers()
    assert against[name] == {
        "asyncio": {"arq": 6.0, "huey": 1.5, "saq": 3.0},
        "trio": {"arq": 1.2, "huey": 0.3, "saq": 0.6},
    }
    assert against[scenarios.LATENCY] == {"asyncio": {"arq": 10.0, "huey": 2.0, "saq": 4.0}}
    best = report.against_best_peer(against)
    assert best[name] == {"best": "saq", "asyncio": 3.0, "trio": 0.6}
    assert best[scenarios.LATENCY] == {"best": "saq", "asyncio": 4.0}
    figures.save()
    assert json.loads(figures.file.read_text())["against_best_peer"] == best
    report.show_against_best_peer(best)
    [row] = [line for line in capsys.readouterr().out.splitlines() if name in line]
    assert row.split() == [*name.split(), "3.00", "0.60", "-", *sides.NAMES["saq"].split()]
    report.show_against_peers(against)
    report.show_required(list(asked.values()))
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split() == [*("times", "as", "fast:", *name.split()), "arq*", "huey", "saq*"]
    assert printed[2].split() == ["ours,", "asyncio", "6.00", "1.50", "3.00"]
    assert [line for line in printed if line.startswith("!") and line.endswith(f", {sides.NAMES['saq']}")] != []


def test_the_figures_of_a_file_make_the_tables_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speeds = {"asyncio": (3000, 3100), "node-5": (1000, 3000), "saq": (1000, 1000)}
    rounds = {side: [{"jobs": 3000, "seconds": 3000 / each} for each in both] for side, both in speeds.items()}
    for each in rounds["asyncio"]:
        each |= {"cpu_seconds": 0.06, "server_seconds": 0.03}
    ms = report.latencies({side: [{"p50_ms": 0.5, "p99_ms": 1.0}] for side in ("asyncio", "saq")})
    file = tmp_path / "bench.json"
    figures = report.Figures(
        file, {"format": report.FORMAT, "cores": 2}, {"process, concurrency 10": report.rates(rounds)}, ms
    )
    figures.memory["asyncio"] = {"early_mb": 40.0, "late_mb": 41.25}
    figures.save()
    tables.main([str(file)])
    lines = capsys.readouterr().out.splitlines()
    saq, node = sides.NAMES["saq"], sides.NAMES["node-5"]
    assert f"|  | {node} | ours, asyncio | {saq} |" in lines
    assert "| process, concurrency 10 | 2,000 (not decided) | 3,050 | 1,000 |" in lines
    assert "| process, concurrency 10 |  | 20.0 |  |" in lines
    assert "| process, concurrency 10 |  | 10.0 |  |" in lines
    assert "| ours, asyncio | 40.0 | 41.2 |" in lines
    assert f"| {saq} | 0.50 | 1.00 |" in lines
    assert f"| process, concurrency 10 | 3.05 | {saq} |" in lines
    assert f"| process, concurrency 10: ours, asyncio against {node} | **1.52** (not decided) | 1.6 |" in lines
    against = f"ours, asyncio against {sides.NAMES[sides.BEST_PEER]}"
    assert f"| process, concurrency 10: {against} ({saq}) | 3.05 | 3 |" in lines
    assert f"| latency p50: {against} ({saq}) | **1** | at most 0.33 |" in lines


@pytest.mark.parametrize(("bound", "off"), [("least", -0.01), ("most", 0.01)])
def test_a_ratio_at_its_bound_is_reached(bound: str, off: float, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"what": what, "measured": measured, bound: 1.5, "decided": True, "other": "node-5"}
        for what, measured in (("at", 1.5), ("beyond", 1.5 + off))
    ]
    _, _, at, beyond = tables.of_required(rows)
    assert at.startswith("| at | 1.5 | ")
    assert beyond.startswith(f"| beyond | **{1.5 + off:g}** | ")
    report.show_required(rows)
    _, _, at, beyond = capsys.readouterr().out.splitlines()
    assert at.startswith("  at ")
    assert beyond.startswith("! beyond ")


def test_each_peer_has_a_program_pins_and_a_row_in_the_docs() -> None:
    folder = pages.ROOT / "bench" / "peers"
    programs = {file.stem for file in folder.glob("*.py")} - {"__init__", "common", "processes"}
    assert programs == set(PEERS)
    _, _, section = pages.page("bench.md").partition("\n## Other queues for Python\n")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    promises = {line.split("|")[1].strip(): line.split("|")[-2].strip() for line in rows}
    said = {peer: promises[sides.NAMES[peer]] for peer in PEERS}
    assert said == {peer: "yes" if peer in sides.KEEP_PROMISE else "**no**" for peer in PEERS}


def test_each_row_is_asked_for() -> None:
    """Issue 18: trio and threads in no row behind Node, and nobody in any row behind another queue."""
    asked = {(each.scenario, each.side, each.other) for each in scenarios.REQUIRED}
    rows = [each for group in scenarios.SCENARIOS.values() for each in group]
    against_node = {
        (row.name, side, "node-5") for row in rows for side in ("trio", "threads") if {side, "node-5"} <= set(row.sides)
    }
    against_peers = {
        (row.name, side, sides.BEST_PEER) for row in rows for side in sides.OURS if {side, *PEERS} <= set(row.sides)
    }
    assert len(against_node) == 34
    assert len(against_peers) == 15
    assert against_node | against_peers <= asked
    # Its numbers, with a side of its own for uvloop.
    least = {(each.scenario, each.side): each.least for each in scenarios.REQUIRED if each.other == "node-5"}
    assert {scenario: value for (scenario, side), value in least.items() if side == "asyncio"} == {
        "process, concurrency 50": 2.0,
        "process, concurrency 200": 2.2,
        "process, concurrency 10": 1.6,
        "process, concurrency 16": 1.6,
        "add one by one": 1.8,
        "add 100 at once": 1.8,
        "bulk of 1,000": 2.6,
        "add delayed, 100 at once": 1.5,
        "add prioritized, 100 at once": 1.5,
        "add flows of 10 children, one by one": 1.5,
    }
    assert least["process, concurrency 1", sides.UVLOOP] == 1.5
    assert least["process, concurrency 50", "threads"] == 1.5
    latencies = {
        (each.percentile, each.side): each.most for each in scenarios.REQUIRED_LATENCIES if each.other == "node-5"
    }
    assert latencies == {(percentile, side): 1.0 for percentile in scenarios.PERCENTILES for side in sides.OURS}


@pytest.mark.deep
def test_processes_are_measured_beside_those_of_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "processes.json"
    chosen = ["--processes", "2", "--sides", "asyncio,threads", "--rounds", "1", "--json", str(file)]
    assert processes.main([*chosen, "--jobs", "400", "--idle-jobs", "1500"]) == 0
    computing, idle = json.loads(file.read_text())["tables"].items()
    assert computing[0] == "a handler that computes for 1 ms, processes: 2"
    assert idle[0] == "a handler that does nothing, processes: 2"
    for _, row in (computing, idle):
        assert row.keys() == {"node-5", "asyncio", "threads"}
        assert all(each["jobs_per_s"] > 0 and each["server_us_per_job"] > 0 for each in row.values())
    # The system counts the time of each process in steps of 10 ms.
    assert all(each["cpu_us_per_job"] > 850 for each in computing[1].values())
    assert all(0 < each["cpu_us_per_job"] < 850 for each in idle[1].values())
    assert capsys.readouterr().out.count("BullMQ 5.62.0 on Node") == 2


_BELOW = """
import sys, time
held = bytearray(b"x") * 200_000_000
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
        # What this process itself holds may become less meanwhile.
        assert common.memory_of_all() - held > 100
        during = common.cpu_of_all() - used
    assert during > 0.25
    # It has ended, and is waited for.
    assert common.cpu_of_all() - used >= during


def _started(*stamps: tuple[float, int]) -> bytes:
    return b"".join(struct.pack("dq", *each) for each in stamps)


def test_a_job_that_runs_twice_counts_once() -> None:
    asyncio.run(_count_starts())


async def _count_starts() -> None:
    reading, writing = os.pipe()
    try:
        starts = common.Starts(reading)
        os.write(writing, _started((0.5, 1)))
        # Of an earlier call.
        starts.forget()
        os.write(writing, _started((1.0, 0), (2.0, 0)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await starts.jobs(2)
        await starts.times(2)
        os.write(writing, _started((3.0, 1)))
        await starts.jobs(2)
        os.write(writing, _started((4.0, 1), (5.0, 2), (6.0, 2)))
        assert await starts.first_of(2) == 5.0
        os.write(writing, _started((7.0, 2), (8.0, 3)))
        assert await starts.first_of(3) == 8.0
    finally:
        os.close(reading)
        os.close(writing)


_GOES_ON = """
import asyncio
from bench.peers import common

common.ENDS_WITHIN_S = 0.1

async def work():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

async def main():
    async with common.beside(work()):
        await asyncio.sleep(0)

asyncio.run(main())
"""


def test_a_worker_that_does_not_end_ends_its_program() -> None:
    done = subprocess.run([sys.executable, "-c", _GOES_ON], cwd=pages.ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "the worker does not end\n")
