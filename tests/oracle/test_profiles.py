"""Profiles other than `strict`, each beside the version of BullMQ that does the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bullmq_protocol.scripts.profile import switched
from lua import build
from tests.oracle import cases, scripts
from tests.oracle.directed import switched as directed
from tests.oracle.harness import Bench
from tests.oracle.scripts import Side
from tests.support import servers

SIDES = list(directed.CASES)


@pytest.fixture(scope="module", params=SIDES, ids=lambda side: side.label)
def side(request: pytest.FixtureRequest) -> Side:
    chosen: Side = request.param
    return chosen


@pytest.fixture(scope="module", params=servers.ends())
def bench(request: pytest.FixtureRequest, side: Side) -> Iterator[Bench]:
    with servers.start(request.param) as server, scripts.bench(server, side) as made:
        yield made


def test_its_cases_are_as_in_that_version(bench: Bench, side: Side) -> None:
    bench.replace(scripts.ours(side))
    found = {case.name: cases.run(bench, case) for case in directed.CASES[side]}
    assert {name: problems for name, problems in found.items() if problems} == {}


def test_its_cases_reach_what_it_changes(bench: Bench, side: Side) -> None:
    bench.replace(scripts.ours_instrumented(side))
    reached: set[str] = set()
    for case in directed.CASES[side]:
        cases.run(bench, case)
        reached |= bench.reached().keys()
    apart = {mark for name in build.apart("later") for mark in build.marks(name)}
    assert scripts.marks(side) - scripts.marks() - apart - reached == set()


def test_strict_would_be_found_out(bench: Bench, side: Side) -> None:
    """With the scripts of `strict` in its place the cases differ."""
    bench.replace(scripts.ours())
    differ = [case.name for case in directed.CASES[side] if cases.run(bench, case)]
    assert differ


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.label)
def test_a_profile_has_the_scripts_that_were_compared(side: Side) -> None:
    profile = switched("compared", side.switches)
    ours = {name: text for name, text in scripts.ours(side).items() if name in profile.scripts}
    assert {name: profile.scripts[name].source for name in ours} == ours
    keys = scripts.recorded_keys(side.version)
    changed = {name for name, script in profile.scripts.items() if script.source != scripts.ours().get(name)}
    assert {name: profile.scripts[name].keys for name in changed & keys.keys()} == {
        name: keys[name] for name in changed & keys.keys()
    }


def test_names_of_cases_are_unique() -> None:
    names: list[str] = [case.name for listed in directed.CASES.values() for case in listed]
    assert sorted(names) == sorted(set(names))
