"""Regressions and directed cases on the oldest and the newest server, and whether they reach every branch."""

from __future__ import annotations

import pytest

from tests.oracle import cases, directed, regressions, scripts
from tests.oracle.cases import Case
from tests.oracle.directed import upset
from tests.oracle.harness import Bench

SINGLY = directed.CASES[: -len(upset.CASES)]
"""Those of the last module are as many again, and quick."""


@pytest.mark.parametrize("case", regressions.CASES, ids=lambda case: case.name)
def test_regression(bench: Bench, case: Case) -> None:
    assert cases.run(bench, case) == []


@pytest.mark.parametrize("case", SINGLY, ids=lambda case: case.name)
def test_directed_case(bench: Bench, case: Case) -> None:
    assert cases.run(bench, case) == []


def test_commands_stop_where_a_key_refuses(bench: Bench) -> None:
    found = {case.name: cases.run(bench, case) for case in upset.CASES}
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_every_branch_is_reached(counting: Bench) -> None:
    counting.replace(scripts.ours_instrumented())
    counting.tally.replies.clear()
    reached: set[str] = set()
    for case in directed.CASES:
        cases.run(counting, case)
        reached |= counting.reached().keys()
    assert directed.missing(directed.CASES, set(counting.tally.replies), scripts.marks(), reached) == []


def test_an_unreached_branch_is_named() -> None:
    everything = {(name, kind) for name, kinds in directed.REPLIES.items() for kind in kinds.split()}
    told = directed.missing(
        [case for case in directed.CASES if "02#10.2 table" not in case.branches()],
        everything - {("pause", "nil")},
        {"a:b"},
        set(),
    )
    assert "no directed case for branch 02#10.2 table" in told
    assert "no directed case makes pause reply nil" in told
    assert "no directed case reaches mark a:b" in told


def test_names_of_cases_are_unique() -> None:
    names = [case.name for case in (*regressions.CASES, *directed.CASES)]
    assert sorted(names) == sorted(set(names))
