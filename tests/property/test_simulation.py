"""Workers in simulated time: a short run without a violation, and planted faults that are each found by name."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from msgspec.structs import replace

from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.common.switches import FLEET_SWITCHES
from bullmq_protocol.common.units import Millis
from bullmq_protocol.model.failure import Failure
from bullmq_protocol.testing.simulate import (
    DispatchedLife,
    Life,
    TraceHeader,
    Violation,
    replay,
    replay_dispatched,
    simulate,
    simulate_dispatched,
)
from bullmq_protocol.worker._contact import Contact
from bullmq_protocol.worker._fetching import Fetching, WaitCall
from bullmq_protocol.worker._running import Running
from bullmq_protocol.worker._runs import Phase
from bullmq_protocol.worker._upkeep import Upkeep
from bullmq_protocol.worker.dispatch import Delivery, Dispatcher, Queued
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.options import WorkerSettings
from bullmq_protocol.worker.snapshot import WorkerState
from tools.simulate import main

STEPS = min(400 * max(25, settings().max_examples), 1_000_000)
"""10,000 with the fewest examples; `make simulate` has a million."""
FAULT_STEPS = 400_000


def test_a_short_run_breaks_nothing() -> None:
    steps, lives, jobs = simulate(STEPS)
    assert steps >= STEPS
    assert lives > STEPS // 5000
    assert jobs > 20 * lives


def _later(keys: QueueKeys, own: WorkerSettings, worker_id: str, *, batches: bool) -> WorkerMachine:
    return WorkerMachine(replace(keys, switches=FLEET_SWITCHES), own, worker_id, batches=batches)


def test_a_short_run_with_the_scripts_of_later_versions_breaks_nothing() -> None:
    """A delayed retry brings the next job there, and workers heal their queue."""
    steps, _, jobs = simulate(STEPS, make=_later)
    assert steps >= STEPS and jobs
    simulate_dispatched(STEPS // 4, make=_later)


class _Troubled(DispatchedLife):
    """A server that answers few deliveries as it should, and is down when some come."""

    def _fault(self) -> bool:
        return self._dice.chance(250)

    def _in(self, delay: Millis, act: Callable[[], None]) -> None:
        down = act.__qualname__ == "DispatchedLife._send.<locals>.arrive" and self._dice.chance(50)
        super()._in(delay, partial(self._while_down, act) if down else act)

    def _while_down(self, act: Callable[[], None]) -> None:
        before, self._down = self._down, True
        self._unrest(1)
        act()
        self._down = before


def test_outcomes_outlive_a_server_that_loses_and_refuses_calls() -> None:
    steps = sum(_Troubled(seed).run() for seed in range(28))
    assert steps > 20_000


def test_a_short_run_with_dispatchers_breaks_nothing() -> None:
    steps, lives, jobs = simulate_dispatched(STEPS // 2)
    assert steps >= STEPS // 2
    assert jobs > 20 * lives


@pytest.mark.parametrize("kind", [Life, DispatchedLife])
def test_a_seed_gives_the_same_life(kind: type[Life]) -> None:
    first, second = kind(7), kind(7)
    assert first.run() == second.run()
    assert first.jobs == second.jobs


class _OneTooMany(Fetching):
    def _may_fetch(self) -> bool:
        shared = self._shared
        return (
            shared.state is WorkerState.RUNNING
            and shared.connected
            and not self.under_way
            and len(shared.runs) <= shared.concurrency
        )


class _ReportsLostJobs(Upkeep):
    def _lose(self, run: Any) -> None:
        super()._lose(run)
        run.lost = False


class _ForgetsToRenew(Upkeep):
    def renew(self) -> None:
        self.renew_at = None


class _RenewsTooLate(Upkeep):
    # A property, since the part is one already when it becomes this.
    _period = property(lambda self: self._shared.settings.lock_ms * 3)


class _FetchesWhilePaused(Fetching):
    def _may_fetch(self) -> bool:
        shared = self._shared
        if shared.state is WorkerState.PAUSED:
            return shared.connected and not self.under_way and len(shared.runs) < shared.concurrency
        return super()._may_fetch()


class _ForgetsLostReports(Running):
    def _resume(self, run: Any) -> None:
        run.resend = None


class _ReportsTwice(Running):
    def returned(self, event: Any) -> None:
        super().returned(event)
        run = self.shared.runs.get(event.run)
        if run is not None and run.report is not None:
            self._send_report(run)


class _ForgetsNextDue(Fetching):
    def begin(self, fetched: Any, token: str) -> None:
        super().begin(fetched, token)
        self.next_due = None

    def marked(self, score: float | None) -> None:
        super().marked(score)
        self.next_due = None


class _NeverProbes(Contact):
    def go_offline(self, message: str, roll: float) -> None:
        super().go_offline(message, roll)
        self.probe_at = None


class _HoldsARunAfterClose(WorkerMachine):
    def _settle(self) -> None:
        runs, self._shared.runs = self._shared.runs, {}
        super()._settle()
        self._shared.runs = runs


class _NeverReleases(Running):
    def release_all(self) -> None:
        pass


class _NeverEnds(WorkerMachine):
    def _settle(self) -> None:
        pass


class _WaitsTwice(Fetching):
    def _wait(self) -> None:
        super()._wait()
        super()._wait()


class _FetchesTwice(Fetching):
    def _fetch(self) -> None:
        super()._fetch()
        super()._fetch()


class _SpeaksAfterTheEnd(WorkerMachine):
    def handle_all(self, events: Any, at: Any) -> list[Any]:
        if self.state is WorkerState.STOPPED:
            self._shared.at, self._shared.out = at, []
            self._upkeep.check_stalled()
            return self._shared.out
        return super().handle_all(events, at)


class _ReportsTooEarly(Running):
    def _run(self, run: Any) -> None:
        super()._run(run)
        if run.handler_alive:
            self._report_failure(run, Failure(message="early"), roll=0.5)


class _RenewsReports(Upkeep):
    def renew(self) -> None:
        runs = self._shared.runs
        phases = {number: run.phase for number, run in runs.items()}
        for run in runs.values():
            run.phase = Phase.RUNNING
        super().renew()
        for number, phase in phases.items():
            runs[number].phase = phase


class _SleepsAfterAnEmptyAnswer(Fetching):
    def _wait(self) -> None:
        shared = self._shared
        shared.pending = {k: v for k, v in shared.pending.items() if not isinstance(v, WaitCall)}


class _Spins(WorkerMachine):
    def deadline(self) -> int | None:
        deadline = super().deadline()
        return None if deadline is None else self._shared.at.mono


class _KeepsJobsAtTheEnd(Running):
    def _release(self, run: Any) -> None:
        self.drop(run)


class _NeverGivesUp(Contact):
    def probe_failed(self, message: str, roll: float) -> None:
        attempts, self.attempts = self.attempts, 0
        super().probe_failed(message, roll)
        self.attempts = attempts + 1


class _GivesUpAtOnce(Contact):
    def probe_failed(self, message: str, roll: float) -> None:
        self.attempts += 100
        super().probe_failed(message, roll)


class _WaitsInVain(Fetching):
    def poll(self, message: str) -> None:
        self.pause_silently(60_000)


def planted(*faults: type[Any]) -> Callable[..., WorkerMachine]:
    """Return what makes a machine with a fault: of that class, or with a part of that class."""

    def make(*args: Any, **options: Any) -> WorkerMachine:
        kind = next((fault for fault in faults if issubclass(fault, WorkerMachine)), WorkerMachine)
        machine = kind(*args, **options)
        for part in vars(machine).values():
            part_of = next((fault for fault in faults if type(part) in fault.__bases__), None)
            if part_of is not None:
                part.__class__ = part_of
        return machine

    return make


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (_NeverGivesUp, "gives up when it was asked to"),
        (_GivesUpAtOnce, "gives up when it was asked to"),
        (_WaitsInVain, "waiting work|due delayed job"),
        (_OneTooMany, "handlers are alive"),
        (_ReportsLostJobs, "after the lock was lost"),
        (_ForgetsToRenew, "renewed in time"),
        (_RenewsTooLate, "renewed in time"),
        (_FetchesWhilePaused, "paused or draining"),
        (_ForgetsLostReports, "every outcome is reported"),
        (_ReportsTwice, "one finishing call"),
        (_ForgetsNextDue, "due delayed job"),
        (_NeverProbes, "waiting work|outcome is reported"),
        (_HoldsARunAfterClose, "holds nothing"),
        ((_NeverEnds, _NeverReleases), "a close ends"),
        (_WaitsTwice, "one wait"),
        (_FetchesTwice, "one fetch"),
        (_SpeaksAfterTheEnd, "says nothing"),
        (_ReportsTooEarly, "before the handler is over"),
        (_RenewsReports, "report is under way"),
        (_SleepsAfterAnEmptyAnswer, "waiting work|due delayed job"),
        (_KeepsJobsAtTheEnd, "owes nothing|leaves no job active"),
        (_Spins, "does not spin"),
    ],
)
def test_a_planted_fault_is_found_and_replays(fault: type[Any] | tuple[type[Any], ...], rule: str) -> None:
    make = planted(*(fault if isinstance(fault, tuple) else (fault,)))
    with pytest.raises(Violation, match=rule) as caught:
        simulate(FAULT_STEPS, make=make)
    trace = caught.value.trace
    assert replay(trace, make) == trace
    assert replay(trace) == ""


class _WakesNobodyForOutcomes(Dispatcher[Any, Any]):
    def needs_hand(self) -> bool:
        return self.has_ready and super().needs_hand()


class _WakesNobodyForJobs(Dispatcher[Any, Any]):
    def needs_hand(self) -> bool:
        return bool(self._outcomes or self._returned) and super().needs_hand()


class _ThinksSomebodyComes(Dispatcher[Any, Any]):
    def requeue(self, delivery: Delivery | None) -> None:
        self.coming = True
        super().requeue(delivery)

    def take(self) -> Delivery | None:
        delivery = super().take()
        self.coming = self.coming or delivery is None
        return delivery


class _DropsWhatTheServerLeft(Dispatcher[Any, Any]):
    def delivered(self, delivery: Delivery, outcome: Any, roll: float, at: Any) -> list[Any]:
        actions = super().delivered(delivery, outcome, roll, at)
        if isinstance(outcome, list) and len(delivery.calls) > 1:
            for call in delivery.calls[len(outcome) :]:
                self._outcomes.remove(call)
        return actions


class _DeliversTwice(Dispatcher[Any, Any]):
    def take(self) -> Delivery | None:
        delivery = super().take()
        if delivery is not None:
            self.put(Queued([], [delivery.calls[0]]))
        return delivery


class _CountsNoDeliveries(Dispatcher[Any, Any]):
    def next(self) -> Any:
        self._deliveries = 0
        return super().next()

    def needs_hand(self) -> bool:
        self._deliveries = 0
        return super().needs_hand()


class _ForgetsReturns(Dispatcher[Any, Any]):
    def feed(self, events: Any, at: Any) -> list[Any]:
        del self._returned[1:]
        return super().feed(events, at)


class _ForgetsWhatWasCalledOff(Dispatcher[Any, Any]):
    def feed(self, events: Any, at: Any) -> list[Any]:
        actions = super().feed(events, at)
        if not self.machine.running_jobs:
            self._called_off.clear()
        return actions


@pytest.mark.parametrize(
    ("dispatch", "rule", "seed"),
    [
        (_WakesNobodyForOutcomes, "nobody is on the way", 0),
        (_WakesNobodyForJobs, "nobody is on the way", 0),
        (_ThinksSomebodyComes, "outcome is reported|renewed in time|waiting work|a close ends|holds nothing", 0),
        (_DropsWhatTheServerLeft, "outcome is reported|a close ends", 0),
        (_DeliversTwice, "one finishing call", 0),
        (_CountsNoDeliveries, "two deliveries", 80),
        (_ForgetsReturns, "outcome is reported|a close ends|waiting work", 0),
        (_ForgetsWhatWasCalledOff, "given back does not begin", 848),
    ],
)
def test_a_planted_fault_of_the_dispatcher_is_found_and_replays(
    dispatch: Callable[..., Dispatcher[Any, Any]], rule: str, seed: int
) -> None:
    with pytest.raises(Violation, match=rule) as caught:
        _meet(dispatch, seed)
    trace = caught.value.trace
    assert replay_dispatched(trace, dispatch) == trace
    assert replay(trace) == ""


def _meet(dispatch: Callable[..., Dispatcher[Any, Any]], seed: int) -> None:
    simulate_dispatched(FAULT_STEPS, seed=seed, dispatch=dispatch)
    fault = f"{dispatch.__module__}:{getattr(dispatch, '__qualname__', dispatch)}"
    pytest.fail(f"no life from seed {seed} on meets it; one that does: python -m tools.simulate --fault {fault}")


def test_a_trace_from_before_the_dispatcher_replays() -> None:
    header = msgspec.json.decode(b'{"seed":3,"steps":12,"violation":"x"}', type=TraceHeader)
    assert (header.seed, header.dispatched) == (3, False)
    assert msgspec.json.encode(header) == b'{"seed":3,"steps":12,"violation":"x"}'


def test_the_command_line_writes_a_trace_that_it_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"

    def command(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["simulate", *arguments])
        code = main()
        return code, capsys.readouterr().out

    assert "0 violations" in command("--steps", "1000", "--seed", "3", "--trace", str(trace))[1]
    assert "0 violations" in command("--steps", "1000", "--seed", "3", "--alone")[1]
    assert not trace.exists()
    # patched at the class, because the command line takes no machine
    with monkeypatch.context() as patch:
        patch.setattr(Running, "_resume", _ForgetsLostReports._resume)
        code, said = command("--steps", "100000", "--trace", str(trace))
        assert code == 1
        assert f"--replay {trace}" in said
        code, said = command("--replay", str(trace))
        assert code == 1
        assert "event for event" in said
    assert command("--replay", str(trace)) == (0, "no violation any more\n")


def test_the_command_line_finds_the_seed_of_a_life_that_meets_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(fault: str) -> int:
        trace = str(tmp_path / "trace.jsonl")
        monkeypatch.setattr("sys.argv", ["simulate", "--seed", "5", "--fault", fault, "--trace", trace])
        return main()

    assert command(f"{__name__}:_DeliversTwice") == 1
    found = re.search(r"one finishing call.*\(seed (\d+), step", capsys.readouterr().out)
    assert found is not None
    with pytest.raises(Violation, match="one finishing call"):
        DispatchedLife(int(found[1]), _DeliversTwice).run()
    for wrong in ("nowhere:X", f"{__name__}:_Nothing", "X"):
        with pytest.raises(SystemExit):
            command(wrong)
        assert "must be MODULE:CLASS" in capsys.readouterr().err


class _MeetsAFault(Fetching):
    def marked(self, score: float | None) -> None:
        raise LookupError(score)


@pytest.mark.contained
def test_a_contained_fault_is_a_violation_here() -> None:
    with pytest.raises(Violation, match="LookupError") as caught:
        simulate(FAULT_STEPS, make=planted(_MeetsAFault))
    assert caught.value.rule == "the machine meets no fault of its own"
