"""Our scripts run as many commands as they are known to, on the oldest and the newest server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle import cost, profiles, scripts
from tests.oracle.cases import Case, case
from tests.oracle.directed.adding import dedup
from tests.oracle.harness import Bench
from tests.oracle.scripts import STRICT, Side
from tests.support import servers


def test_scripts_run_no_other_commands(bench: Bench) -> None:
    known, found = cost.recorded(), cost.costs(bench)
    assert known.keys() == found.keys()
    changed = {
        name: (known[name], run)
        for name, run in found.items()
        if any(now not in (before, cost.UNCOUNTED) for before, now in zip(known[name], run, strict=True))
    }
    assert changed == {}, "cases and how many commands they ran before and now; record them if that is meant"


@pytest.mark.parametrize("rule", [{}, {"ttl": 500_000}, {"ttl": 500_000, "extend": True}], ids=["", "ttl", "extend"])
def test_a_fleet_pays_no_command_for_the_repair_of_deduplication_keys(rule: dict[str, Any]) -> None:
    """Where the server is new enough (Redis 7.0): the first of these adds finds its id free, the second taken."""
    adds = case("06#L4 there", "two adds", dedup(**rule), dedup(**rule))
    assert _run(profiles.fleet_alone(), adds) == _run(STRICT, adds)


def _run(side: Side, adds: Case) -> list[int]:
    with servers.start(servers.ends()[-1]) as server, scripts.bench(server, side) as bench:
        return cost.of_case(bench, adds)
