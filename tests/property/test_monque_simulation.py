"""Several Monque schedulers in simulated time; MONQUE_STEPS=1000000 for more.

`tests/support/monque_simulation.py` has the world and its rules. A fault planted in the scheduler breaks one of them.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from monque_protocol import commands, scheduler
from monque_protocol.scheduler import SchedulerMachine
from tests.support.monque_simulation import Fleet, Wrong

STEPS = int(os.environ.get("MONQUE_STEPS", "6000"))
SEED = int(os.environ.get("MONQUE_SEED", "1"))


def simulate(seed: int, steps: int) -> Fleet:
    fleet = Fleet(seed)
    for _ in range(steps):
        fleet.step()
    fleet.settle()
    return fleet


def test_every_job_is_finished_once_and_runs_on_one_scheduler_at_a_time() -> None:
    fleet = simulate(SEED, STEPS)
    sys.stdout.write(f"\n{fleet.steps} steps, {fleet.added} jobs added: {dict(fleet.seen)}\n")
    assert fleet.unfinished() == []
    assert fleet.seen["JobCompleted"] > STEPS / 100 and fleet.seen["JobFailed"] and fleet.seen["JobErrored"]


def _counts_too_few(machine: SchedulerMachine, run: Any) -> None:
    del machine._runs[run.number]
    run.handler.running -= 2


def _forgets_lost_claims(machine: SchedulerMachine) -> list[Any]:
    machine._lost_claim = False
    return []


def _ends_without_owner(job: Any, me: str) -> dict[str, Any]:
    return {"_id": job.key}


PLANTED: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "more run than may": (SchedulerMachine, "_drop", _counts_too_few),
    "a lost claim is forgotten": (SchedulerMachine, "_look_for_claims", _forgets_lost_claims),
    "a job ends without its owner": (commands, "_mine", _ends_without_owner),
    "a claim takes what is processed": (
        scheduler.commands,
        "claim",
        lambda c, name, *, me, now, heartbeat_ms: _claim_of_anything(c, name, me, now, heartbeat_ms),
    ),
}
_claim = commands.claim


def _claim_of_anything(collection: str, name: str, me: str, now: int, heartbeat_ms: int) -> Any:
    command = _claim(collection, name, me=me, now=now, heartbeat_ms=heartbeat_ms)
    del command.document["query"]["status"]  # type: ignore[attr-defined]
    return command


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement = PLANTED[fault]
    monkeypatch.setattr(owner, name, replacement)
    assert any(_is_found(seed) for seed in range(1, 5))


def _is_found(seed: int) -> bool:
    try:
        return simulate(seed, 4000).unfinished() != []
    except Wrong:
        return True
