"""No job is lost, and none runs twice while its owner lives: `python -m tests.monque.killed` in small."""

from pathlib import Path

from tests.monque.killed import run

JOBS = 300


def test_no_job_is_lost_and_none_runs_twice_while_its_owner_lives(mongodb: str, tmp_path: Path) -> None:
    outcome = run(mongodb, JOBS, 3, tmp_path)
    assert (outcome.ran, outcome.completed, outcome.killed, outcome.unexplained) == (JOBS, JOBS, 1, {}), str(outcome)
