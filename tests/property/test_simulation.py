"""Workers in simulated time: a short run without a violation, and planted faults that are each found by name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bullmq_protocol.model.failure import Failure
from bullmq_protocol.testing.simulate import Life, Violation, replay, simulate
from bullmq_protocol.worker.machine import WorkerMachine
from bullmq_protocol.worker.runs import PendingKind, Phase
from bullmq_protocol.worker.snapshot import WorkerState
from tools.simulate import main

STEPS = 100_000
FAULT_STEPS = 400_000


def test_a_short_run_breaks_nothing() -> None:
    steps, lives, jobs = simulate(STEPS)
    assert steps >= STEPS
    assert lives > 20
    assert jobs > 20 * lives


def test_a_seed_gives_the_same_life() -> None:
    first, second = Life(7), Life(7)
    assert first.run() == second.run()
    assert first.jobs == second.jobs


class _OneTooMany(WorkerMachine):
    def _may_fetch(self) -> bool:
        return (
            self._state is WorkerState.RUNNING
            and self._connected
            and not self._fetching
            and len(self._runs) <= self._concurrency
        )


class _ReportsLostJobs(WorkerMachine):
    def _lose(self, run: Any) -> None:
        super()._lose(run)
        run.lost = False


class _ForgetsToRenew(WorkerMachine):
    def _renew(self) -> None:
        self._renew_at = None


class _RenewsTooLate(WorkerMachine):
    def _renewal_period(self) -> int:
        return self._settings.lock_ms * 3


class _FetchesWhilePaused(WorkerMachine):
    def _may_fetch(self) -> bool:
        if self._state is WorkerState.PAUSED:
            return self._connected and not self._fetching and len(self._runs) < self._concurrency
        return super()._may_fetch()


class _ForgetsLostReports(WorkerMachine):
    def _resume_run(self, run: Any) -> None:
        run.resend = None


class _ReportsTwice(WorkerMachine):
    def _on_returned(self, event: Any) -> None:
        super()._on_returned(event)
        run = self._runs.get(event.run)
        if run is not None and run.report is not None:
            self._send_report(run)


class _ForgetsNextDue(WorkerMachine):
    def _take(self, fetched: Any, token: str) -> None:
        super()._take(fetched, token)
        self._next_due = None

    def _on_marker(self, score: float | None) -> None:
        super()._on_marker(score)
        self._next_due = None


class _NeverProbes(WorkerMachine):
    def _go_offline(self, message: str, roll: float) -> None:
        super()._go_offline(message, roll)
        self._probe_at = None


class _HoldsARunAfterClose(WorkerMachine):
    def _settle(self) -> None:
        runs, self._runs = self._runs, {}
        super()._settle()
        self._runs = runs


class _NeverEnds(WorkerMachine):
    def _give_back_all(self) -> None:
        pass

    def _settle(self) -> None:
        pass


class _ListensTwice(WorkerMachine):
    def _start_listening(self) -> None:
        super()._start_listening()
        super()._start_listening()


class _FetchesTwice(WorkerMachine):
    def _fetch(self) -> None:
        super()._fetch()
        super()._fetch()


class _SpeaksAfterTheEnd(WorkerMachine):
    def handle_all(self, events: Any, at: Any) -> list[Any]:
        if self._state is WorkerState.STOPPED:
            self._at, self._out = at, []
            self._check_stalled()
            return self._out
        return super().handle_all(events, at)


class _ReportsTooEarly(WorkerMachine):
    def _run(self, run: Any) -> None:
        super()._run(run)
        if run.handler_alive:
            self._report_failure(run, Failure(message="early"), roll=0.5)


class _RenewsReports(WorkerMachine):
    def _renew(self) -> None:
        phases = {number: run.phase for number, run in self._runs.items()}
        for run in self._runs.values():
            run.phase = Phase.RUNNING
        super()._renew()
        for number, phase in phases.items():
            self._runs[number].phase = phase


class _SleepsAfterAnEmptyAnswer(WorkerMachine):
    def _start_listening(self) -> None:
        self._pending = {k: v for k, v in self._pending.items() if v.kind is not PendingKind.LISTEN}


class _Spins(WorkerMachine):
    def deadline(self) -> int | None:
        deadline = super().deadline()
        return None if deadline is None else self._at.mono


class _KeepsJobsAtTheEnd(WorkerMachine):
    def _give_back(self, run: Any) -> None:
        self._drop_run(run)


class _NeverGivesUp(WorkerMachine):
    def _probe_failed(self, message: str, roll: float) -> None:
        attempts, self._attempts = self._attempts, 0
        super()._probe_failed(message, roll)
        self._attempts = attempts + 1


class _GivesUpAtOnce(WorkerMachine):
    def _probe_failed(self, message: str, roll: float) -> None:
        self._attempts += 100
        super()._probe_failed(message, roll)


class _WaitsInVain(WorkerMachine):
    def _poll(self, message: str) -> None:
        self._fetch_pause_until = self._at.mono + 60_000


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (_NeverGivesUp, "gives up when it was told to"),
        (_GivesUpAtOnce, "gives up when it was told to"),
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
        (_NeverEnds, "a close ends"),
        (_ListensTwice, "one listen"),
        (_FetchesTwice, "one fetch"),
        (_SpeaksAfterTheEnd, "says nothing"),
        (_ReportsTooEarly, "before the handler is over"),
        (_RenewsReports, "report is under way"),
        (_SleepsAfterAnEmptyAnswer, "waiting work|due delayed job"),
        (_KeepsJobsAtTheEnd, "owes nothing|leaves no job active"),
        (_Spins, "does not spin"),
    ],
)
def test_a_planted_fault_is_found_and_replays(make: Callable[..., WorkerMachine], rule: str) -> None:
    with pytest.raises(Violation, match=rule) as caught:
        simulate(FAULT_STEPS, make=make)
    trace = caught.value.trace
    assert replay(trace, make) == trace
    assert replay(trace) == ""


def test_the_command_line_writes_a_trace_that_it_replays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.jsonl"

    def command(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["simulate", *arguments])
        code = main()
        return code, capsys.readouterr().out

    assert "0 violations" in command("--steps", "1000", "--seed", "3", "--trace", str(trace))[1]
    assert not trace.exists()
    # patched at the class, because the command line takes no machine
    with monkeypatch.context() as patch:
        patch.setattr(WorkerMachine, "_resume_run", _ForgetsLostReports._resume_run)
        code, said = command("--steps", "100000", "--trace", str(trace))
        assert code == 1
        assert f"--replay {trace}" in said
        code, said = command("--replay", str(trace))
        assert code == 1
        assert "event for event" in said
    assert command("--replay", str(trace)) == (0, "no violation any more\n")


class _MeetsAFault(WorkerMachine):
    def _on_marker(self, score: float | None) -> None:
        raise LookupError(score)


@pytest.mark.contained
def test_a_contained_fault_is_a_violation_here() -> None:
    with pytest.raises(Violation, match="LookupError") as caught:
        simulate(FAULT_STEPS, make=_MeetsAFault)
    assert caught.value.rule == "the machine meets no fault of its own"
