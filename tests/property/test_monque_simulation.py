"""Several Monque schedulers in simulated time; MONQUE_STEPS=1000000 for more.

`tests/support/monque_simulation.py` has the world and its rules. A fault planted in the scheduler breaks one of them.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from monque_protocol import commands
from monque_protocol.scheduler import SchedulerMachine
from tests.support.monque_simulation import LOCK_MS, NAMES, Fleet, Wrong, simulate

STEPS = int(os.environ.get("MONQUE_STEPS", "6000"))
SEED = int(os.environ.get("MONQUE_SEED", "1"))


def test_every_job_is_finished_once_and_runs_on_one_scheduler_at_a_time() -> None:
    fleet = simulate(SEED, STEPS)
    sys.stdout.write(f"\n{fleet}\n")
    assert fleet.unfinished() == []
    assert fleet.seen["JobCompleted"] > STEPS / 100 and fleet.seen["JobFailed"] and fleet.seen["JobErrored"]


# --- planted faults, each with the events that it takes ---------------------------------------------------------------


def quiet(nodes: int, *, raises: float = 0.0) -> Fleet:
    """Return a world in which nothing befalls schedulers by chance."""
    fleet = Fleet(SEED, nodes=nodes, faults=0, worker_concurrency=3, instance_concurrency=None, max_retries=10)
    fleet.raises = raises
    return fleet


def go_on(fleet: Fleet, ms: int) -> None:
    """Let that time pass, without anything new."""
    until = fleet.now + ms
    while fleet.now < until:
        fleet.pass_time()
    fleet.look()


def many_jobs() -> None:
    fleet = quiet(4)
    fleet.takes = 3_000
    for _ in range(200):
        fleet.add()
    go_on(fleet, 30_000)


def lost_reply_to_a_claim() -> None:
    fleet = quiet(1)
    fleet.spoil.append(("claim", "lost"))
    fleet.add()
    go_on(fleet, 40_000)


def lost_reply_to_a_claim_and_a_release_that_is_not_sent() -> None:
    fleet = quiet(1)
    fleet.spoil += [("claim", "lost"), ("release", "not sent")]
    fleet.add()
    go_on(fleet, 40_000)


def report_that_is_not_sent() -> None:
    fleet = quiet(1)
    fleet.spoil.append(("report", "not sent"))
    fleet.add()
    go_on(fleet, 40_000)


def lost_replies_to_reports_of_failures() -> None:
    fleet = quiet(1, raises=1.0)
    fleet.takes = 3_000
    fleet.spoil += [("report", "lost")] * 6
    for _ in range(6):
        fleet.add()
    (node,) = fleet.nodes
    for _ in range(3_000):
        # Something lets it look for jobs all the time.
        for name in NAMES:
            fleet.act(node, node.machine.signal(name, None, node.at()))
        fleet.pass_time()


def crash() -> None:
    fleet = quiet(3)
    for _ in range(20):
        fleet.add()
    for _ in range(12):
        go_on(fleet, 300)
        fleet.crash()
        fleet.boot()


def handler_slower_than_the_lock() -> None:
    fleet = quiet(2)
    fleet.takes = LOCK_MS * 2
    for _ in range(3):
        fleet.add()
    go_on(fleet, LOCK_MS + 25_000)
    fleet.boot()
    go_on(fleet, LOCK_MS * 4)


def two_owners() -> None:
    fleet = quiet(2)
    for _ in range(30):
        fleet.add()
    go_on(fleet, 20_000)


def skewed_clock() -> None:
    fleet = quiet(2)
    for node in fleet.nodes:
        fleet.jump(node, 3_600_000)
    fleet.add()
    go_on(fleet, 10_000)


def _counts_too_few(machine: SchedulerMachine, run: Any) -> None:
    del machine._runs[run.number]
    run.handler.running -= 2


def _forgets_lost_claims(machine: SchedulerMachine) -> list[Any]:
    machine._lost_claim = False
    return []


_failed_call = SchedulerMachine._failed_call


def _forgets_releases(machine: SchedulerMachine, ticket: int, error: Any, at: Any) -> list[Any]:
    kind = machine._calls[ticket].kind
    actions = _failed_call(machine, ticket, error, at)
    if kind.value == "release":
        machine._lost_claim = False
    return actions


def _drops_reports(machine: SchedulerMachine, run: Any, error: Any, at: Any) -> list[Any]:
    machine._drop(run)
    return []


def _ends_without_owner(job: Any, me: str) -> dict[str, Any]:
    return {"_id": job.key}


_recover = commands.recover_stale
_claim = commands.claim


def _recovers_all(collection: str, *, now: int, lock_ms: int) -> Any:
    return _recover(collection, now=now + 10_000, lock_ms=0)


def _claims_anything(collection: str, name: str, *, me: str, now: int, heartbeat_ms: int) -> Any:
    command = _claim(collection, name, me=me, now=now, heartbeat_ms=heartbeat_ms)
    del command.document["query"]["status"]  # type: ignore[attr-defined]
    return command


def _polls_by_the_wall_clock(machine: SchedulerMachine, at: Any) -> list[Any]:
    actions = _poll(machine, at)
    machine._poll_at = at.wall + machine.settings.poll_ms
    machine._heartbeat_at = at.wall + machine.settings.heartbeat_ms
    return actions


_poll = SchedulerMachine._poll

PLANTED: dict[str, tuple[Any, str, Callable[..., Any], Callable[[], None]]] = {
    "more run than may": (SchedulerMachine, "_drop", _counts_too_few, many_jobs),
    "a lost claim is forgotten": (SchedulerMachine, "_look_for_claims", _forgets_lost_claims, lost_reply_to_a_claim),
    "a release that was not sent is forgotten": (
        SchedulerMachine,
        "_failed_call",
        _forgets_releases,
        lost_reply_to_a_claim_and_a_release_that_is_not_sent,
    ),
    "a report that was not sent is dropped": (
        SchedulerMachine,
        "_on_report_failed",
        _drops_reports,
        report_that_is_not_sent,
    ),
    "a report sent again ends a later claim": (
        commands,
        "of_claim",
        lambda command, job: command,
        lost_replies_to_reports_of_failures,
    ),
    "a job ends without its owner": (commands, "_mine", _ends_without_owner, handler_slower_than_the_lock),
    "a crash makes others take what lives": (commands, "recover_stale", _recovers_all, crash),
    "a claim takes what is processed": (commands, "claim", _claims_anything, two_owners),
    "timers go by the wall clock": (SchedulerMachine, "_poll", _polls_by_the_wall_clock, skewed_clock),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_by_the_events_that_it_takes(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement, scenario = PLANTED[fault]
    scenario()
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(Wrong):
        scenario()
