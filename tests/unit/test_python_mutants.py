"""How `tools/mutants/python.py` plants faults, and what it takes for noticed."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.mutants import python
from tools.mutants.rules import ROOT, code_of, code_with, faults_of, key_of
from tools.mutants.types import refused, with_copies

pytestmark = pytest.mark.any_python
MODULE = ROOT / "bullmq_protocol" / "operations" / "obliterate.py"
TESTS = """
import os
import pytest
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import UsageError
from bullmq_protocol.operations.obliterate import Obliterate

K = QueueKeys.of("q")


def test_that_sees():
    next(Obliterate(count=1).page(K))
    with pytest.raises(UsageError):
        next(Obliterate(count=0).page(K))


def test_that_passes_once():
    next(Obliterate(count=3).page(K))
    first = not os.path.exists(os.environ["MARK"])
    open(os.environ["MARK"], "a").close()
    assert first
"""


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


@pytest.mark.parametrize("path", ["operations/obliterate.py", "common/units.py", "net/merge.py", "errors.py"])
def test_a_function_alone_compiles_to_what_it_is_in_its_module(path: str) -> None:
    faults = faults_of(ROOT / "bullmq_protocol" / path)
    assert faults
    for fault in faults[:: max(len(faults) // 15, 1)]:
        whole = code_of(fault.source(), fault.function.module.file, fault.function)
        assert fault.alone() is not None
        assert code_with(fault) == whole
        if whole is not None:
            assert key_of(whole) == (fault.function.module.file, fault.function.starts, fault.function.name)


TWO_TESTS = """
import pytest
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import UsageError
from bullmq_protocol.operations.obliterate import Obliterate

K = QueueKeys.of("q")


def test_the_quickest():
    next(Obliterate(count=1).page(K))


def test_that_takes_longer():
    for _ in range(30_000):
        next(Obliterate(count=1).page(K))
    with pytest.raises(UsageError):
        next(Obliterate(count=0).page(K))
"""


def _planted(
    folder: Path, text: str = TESTS, *, budget: float = 5, longest: float = 5, more: float = 5
) -> tuple[dict[str, str], str]:
    """Plant the faults of MODULE in front of tests; return what came of each, and what was printed."""
    tests, results = folder / "test_planted.py", folder / "results.jsonl"
    tests.write_text(text)
    results.unlink(missing_ok=True)
    path = str(MODULE.relative_to(ROOT))
    order = {
        "packages": ["bullmq_protocol/operations"],
        "modules": [path],
        "only": [],
        "without": [],
        "longest": longest,
        "budget": budget,
        "longest_more": 5,
        "more": more,
        "types": None,
        "results": str(results),
        "kept": str(folder / "kept.jsonl"),
        "cache": str(folder),
        "fresh": False,
        "listed": [fault.dotted for fault in faults_of(MODULE)],
        "server": False,
        "for_tls": None,
    }
    environment = {**os.environ, "MUTANTS": json.dumps(order), "PYTHONPATH": str(ROOT), "MARK": str(folder / "mark")}
    options = ("-p", "tools.mutants.planting", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "-s")
    run = [sys.executable, "-m", "pytest", *options, f"--rootdir={folder}", str(tests)]
    done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, text=True)
    entries: list[dict[str, Any]] = list(python.read(results))
    assert entries[-1:] == [{"ended": True}], done.stdout + done.stderr
    return {f"{each['was']} -> {each['now']}": each["outcome"] for each in entries[:-1]}, done.stdout


def _entries(killed: int, survived: int, refused: int = 0) -> list[dict[str, Any]]:
    place = {"module": "bullmq_sync/driver.py", "function": "f", "was": "a", "now": "b", "place": "p", "tests": 1}
    made = [*["killed"] * killed, *["survived"] * survived, *["refused"] * refused]
    return [{**place, "outcome": each} for each in made] + [{"ended": True}]


def test_a_sample_fails_where_the_rate_drops(capsys: pytest.CaptureFixture[str]) -> None:
    core = python.PARTS[0]
    assert core.wanted == 90
    # Two standard deviations of 400 that are noticed by 90 % are 3 %.
    assert python.report(core, _entries(350, 50), whole=False) == 0
    assert python.report(core, _entries(345, 55), whole=False) == 1
    assert python.report(core, _entries(345, 35, 20), whole=False) == 0
    assert "345 by tests (86.2 %), 20 more by types; 35 survived" in capsys.readouterr().out
    assert python.report(core, _entries(400, 0)[:-1], whole=False) == 1
    assert "broke off" in capsys.readouterr().out


@pytest.mark.deep
@pytest.mark.slow
def test_what_the_quickest_tests_do_not_notice_is_taken_to_more(tmp_path: Path) -> None:
    check = 'check_whole("count", self.count, least=1)'
    dropped = f"{check} -> pass"
    assert _planted(tmp_path, TWO_TESTS, budget=0, longest=0.01, more=0)[0][dropped] == "survived"
    # Those that passed are not asked again.
    outcomes, printed = _planted(tmp_path, TWO_TESTS, budget=0, longest=0.01, more=60)
    assert outcomes[dropped] == "killed"
    again, printed = _planted(tmp_path, TWO_TESTS, budget=0, longest=0.01, more=60)
    assert again == outcomes
    assert "; 0 tested now" in printed


def test_copies_of_functions_stand_where_the_list_says() -> None:
    path = ROOT / "bullmq_protocol" / "errors.py"
    faults = faults_of(path)[::5]
    text, copies = with_copies(faults)
    lines = text.splitlines()
    ast.parse(text)
    assert [each.fault for each in copies if each.fault is not None] == faults
    for each in copies:
        assert sum("_fault_" in line for line in lines[each.first - 1 : each.last]) == 1
    for each in reversed(copies):
        del lines[each.first - 1 : each.last]
    assert lines == path.read_text().splitlines()


@pytest.mark.deep
@pytest.mark.slow
def test_the_type_checker_refuses_what_is_of_a_wrong_type(tmp_path: Path) -> None:
    faults = {each.texts()[1]: each for each in faults_of(ROOT / "bullmq_protocol" / "errors.py")}
    wrong = faults["super().__init__(without_login(None))"]
    right = faults['return text if len(text) <= most else f"{text[: most + 3]}..."']
    assert refused([wrong, right], tmp_path) == {wrong.digest}


@pytest.mark.deep
@pytest.mark.slow
def test_a_test_that_fails_without_the_fault_notices_nothing(tmp_path: Path) -> None:
    outcomes, printed = _planted(tmp_path)
    check = 'check_whole("count", self.count, least=1)'
    assert outcomes[f"{check} -> {check.replace('1', '2')}"] == "killed"
    assert outcomes[f"{check} -> pass"] == "killed"
    # Nothing sees what it is called in the refusal.
    assert outcomes[f"{check} -> {check.replace('count', 'COUNT', 1)}"] == "survived"
    assert "1 tests failed without any fault" in printed
    # Once more: all is known.
    (tmp_path / "mark").unlink()
    again, printed = _planted(tmp_path)
    assert again == outcomes
    assert "looking who covers what" not in printed


@pytest.mark.slow
def test_servers_that_a_fork_leaves_end_with_it() -> None:
    """They have a session of their own, and run on where their test ends with its process."""
    code = """
import os, subprocess
from tools.mutants import planting
planting._adopt()
kept = subprocess.Popen(["sleep", "600"])
before = planting._children()
pid = os.fork()
if pid == 0:
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    os._exit(planting.KILLED)
planting._end(pid)
print(len(planting._children() - before))
planting._reap(before)
print(planting._children() == before == {kept.pid}, kept.poll())
kept.kill()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1\nTrue None\n", "")
