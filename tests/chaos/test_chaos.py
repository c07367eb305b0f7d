"""A short run, with faults of every kind, and one with killed masters; the long ones are `make chaos`."""

from pathlib import Path

import pytest

from tests.chaos.__main__ import run
from tests.chaos.schedule import ABRUPT, KINDS

pytestmark = [pytest.mark.alone, pytest.mark.any_python]

# Kinder to a slow machine than `make chaos`.
_LOCK_MS, _STALLED_MS, _PATIENCE_S = 4000, 1500, 20.0


@pytest.mark.deep
def test_nothing_is_lost_or_finished_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems = run(
        seed=5,
        duration_s=90,
        # Each kind comes once before any comes again.
        most_faults=len(KINDS),
        folder=tmp_path,
        lock_ms=_LOCK_MS,
        stalled_ms=_STALLED_MS,
        pace_s=1.0,
        patience_s=_PATIENCE_S,
    )
    assert problems == []
    assert " 0 lost, 0 finished twice, " in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.deep
def test_killed_master_loses_what_its_replica_lacked(tmp_path: Path) -> None:
    problems = run(
        seed=6,
        duration_s=5,
        folder=tmp_path,
        kinds=(ABRUPT,),
        lock_ms=_LOCK_MS,
        stalled_ms=_STALLED_MS,
        pace_s=1.0,
        patience_s=_PATIENCE_S,
    )
    assert problems == []
