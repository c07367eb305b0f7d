"""The directed cases of part 06 hold in each pinned version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracle import cases, scripts
from tests.oracle.directed import later
from tests.oracle.harness import Bench
from tests.oracle.layouts import VERSIONS, Layout
from tests.support import servers


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture(scope="module", params=servers.ends())
def alone(request: pytest.FixtureRequest, version: str) -> Iterator[Bench]:
    """Give a bench with a version's scripts on both sides."""
    keys = scripts.recorded_keys(version)
    with (
        servers.start(request.param) as server,
        Bench(server.host, server.port, scripts.originals(version), {}, layout=Layout(version, (keys, keys))) as made,
    ):
        yield made


def test_the_cases_hold_in_their_version(alone: Bench, version: str) -> None:
    found = {case.name: cases.run(alone, case) for case in later.CASES[version]}
    assert {name: problems for name, problems in found.items() if problems} == {}
    if version != "5.62.0":
        assert later.missing(version, set(alone.tally.replies)) == []


@pytest.mark.parametrize("listed", [*later.CASES.values(), later.FLEET], ids=[*VERSIONS, "fleet"])
def test_names_of_cases_are_unique(listed: tuple[cases.Case, ...]) -> None:
    names = [case.name for case in listed]
    assert sorted(names) == sorted(set(names))
