"""Our scripts run as many commands as they are known to, on the oldest and the newest server."""

from __future__ import annotations

from tests.oracle import cost
from tests.oracle.harness import Bench


def test_scripts_run_no_other_commands(bench: Bench) -> None:
    known, found = cost.recorded(), cost.costs(bench)
    assert known.keys() == found.keys()
    changed = {
        name: (known[name], run)
        for name, run in found.items()
        if any(now not in (before, cost.UNCOUNTED) for before, now in zip(known[name], run, strict=True))
    }
    assert changed == {}, "cases and how many commands they ran before and now; record them if that is meant"
