"""Regressions and directed cases on the oldest and the newest server, and whether they reach every branch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.oracle import cases, directed, regressions, scripts
from tests.oracle.cases import Case
from tests.oracle.harness import Bench


def _problems(bench: Bench, chosen: Iterable[Case]) -> dict[str, list[str]]:
    """Run thousands of cases, each in the time that a test of its own would take to begin and end."""
    found = {case.name: cases.run(bench, case) for case in chosen}
    return {name: problems for name, problems in found.items() if problems}


def test_regressions(bench: Bench) -> None:
    assert _problems(bench, regressions.CASES) == {}


@pytest.mark.parametrize("module", directed.MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_directed_cases(bench: Bench, module: Any) -> None:
    assert _problems(bench, module.CASES) == {}


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
