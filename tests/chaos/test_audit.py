"""What the audit of a chaos run finds: each fault of a queue, planted into a story of a few lines."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.chaos.audit import STALL_LIMIT, Auditor, Findings, Recovery, recoveries, too_slow
from tests.chaos.conductor import Promotion, Struck
from tests.chaos.ledger import Entry
from tests.chaos.schedule import KINDS, plan
from tests.chaos.state import Event, State, Stored

MARK = "producer-trio-1.0.7"


class _Story(NamedTuple):
    """A job that was added, begun and completed, as ledger and server know it."""

    ledger: list[Entry]
    events: list[Event]
    jobs: dict[str, Stored]
    locks: list[str]
    struck: list[Struck]

    def note(self, at: int, word: str, *fields: str, process: str = "worker-trio-1") -> None:
        self.ledger.append(Entry(at, process, word, ("kept", *fields)))

    def happen(self, at: int, kind: str, reason: str = "") -> None:
        self.events.append(Event(at, kind, MARK, "1", reason))

    def store(self, *states: str, attempts: int = 1, reason: str = "", fails: int = 0) -> None:
        self.jobs["1"] = Stored(MARK, states, attempts, reason, fails)

    def state(self) -> dict[str, State]:
        return {"kept": State(self.jobs, self.events, self.locks, []), "lean": State({}, [], [], [])}

    def findings(self, promotions: list[Promotion] | None = None) -> Findings:
        return Auditor(self.ledger, self.state(), self.struck, promotions or []).findings()


def _added() -> _Story:
    story = _Story([], [], {}, [], [])
    story.note(990, "try", MARK, process="producer-trio-1")
    story.note(1_000, "ack", MARK, "1", process="producer-trio-1")
    story.happen(1_000, "added")
    return story


def _completed() -> _Story:
    story = _added()
    story.happen(2_000, "active")
    story.note(2_010, "start", "1", MARK, "1", "0")
    story.happen(3_000, "completed")
    story.note(3_010, "done", "1", MARK)
    story.store("completed")
    return story


def test_good_story_has_no_findings() -> None:
    found = _completed().findings()
    assert (found.jobs, found.lost, found.twice, found.restarts, found.problems) == (1, [], [], [], [])


def test_acknowledged_job_in_no_state_is_lost() -> None:
    assert _added().findings().lost == [("kept", MARK)]


def _again(story: _Story) -> None:
    story.happen(4_000, "completed")


def _noted_again(story: _Story) -> None:
    story.note(4_000, "done", "1", MARK)


@pytest.mark.parametrize("plant", [_again, _noted_again])
def test_second_finish_is_found_by_either_source(plant: Callable[[_Story], None]) -> None:
    story = _completed()
    plant(story)
    assert story.findings().twice == [("kept", "1", MARK)]


def _added_again(story: _Story) -> None:
    story.happen(1_500, "added")


def _refused_add(story: _Story) -> None:
    story.note(1_500, "not", MARK, process="producer-trio-1")


def _nobody_tried(story: _Story) -> None:
    del story.ledger[0]


def _left_lock(story: _Story) -> None:
    story.locks.append("1:lock")


def _no_state(story: _Story) -> None:
    story.store()


def _two_states(story: _Story) -> None:
    story.store("completed", "wait")


def _report_too_many(story: _Story) -> None:
    story.store("completed", attempts=2)


def _failed_without_a_reason(story: _Story) -> None:
    story.store("failed", reason="odd")


def _unnoted(story: _Story) -> None:
    del story.ledger[-1]


def _no_event(story: _Story) -> None:
    del story.events[-1]


def _begun_twice(story: _Story) -> None:
    story.note(2_500, "start", "1", MARK, "1", "0", process="worker-threads-1")


def _stalled(story: _Story) -> None:
    story.events[-1:-1] = [Event(2_500, "stalled", MARK, "1", ""), Event(2_600, "active", MARK, "1", "")]
    story.note(2_610, "start", "1", MARK, "2", "0", process="worker-threads-1")


def _stall_limit(story: _Story) -> None:
    story.events[-1] = Event(3_000, "failed", MARK, "1", STALL_LIMIT)
    story.store("failed", reason=STALL_LIMIT)


@pytest.mark.parametrize(
    ("plant", "reported"),
    [
        (_added_again, "was added twice"),
        (_refused_add, "is there, though its add was refused"),
        (_nobody_tried, "nobody added it"),
        (_left_lock, "lock was left behind"),
        (_no_state, "in no state"),
        (_two_states, "completed+wait"),
        (_report_too_many, "report 2 of 1"),
        (_failed_without_a_reason, "odd"),
        (_unnoted, "why nobody was told"),
        (_no_event, "not by the stream"),
        (_begun_twice, "began twice with one fetch"),
        (_stalled, "lost its lock at 2500, held by worker-trio-1"),
        (_stall_limit, "stall limit without two lost locks"),
    ],
)
def test_planted_fault_is_reported(plant: Callable[[_Story], None], reported: str) -> None:
    story = _completed()
    plant(story)
    assert any(reported in problem for problem in story.findings().problems)


def test_lost_lock_is_explained_by_a_fault_of_its_holder_alone() -> None:
    story = _completed()
    _stalled(story)
    story.struck.append(Struck("kill", "worker-threads", 2_100, 2_200))
    assert story.findings().problems
    story.struck.append(Struck("kill", "worker-trio", 2_100, 2_200))
    found = story.findings()
    assert (len(found.restarts), found.problems) == (1, [])


def test_lost_lock_is_explained_where_its_holder_got_no_cpu() -> None:
    story = _completed()
    _stalled(story)
    story.ledger.append(Entry(2_400, "worker-threads-1", "late", ("390",)))
    assert story.findings().problems
    story.ledger.append(Entry(2_400, "worker-trio-1", "late", ("390",)))
    assert story.findings().problems == []


def test_promoted_replica_must_lack_exactly_what_is_gone() -> None:
    nothing = {"kept": State({}, [], [], []), "lean": State({}, [], [], [])}
    gone = _added()
    gone.events.clear()
    assert gone.findings([Promotion(1_500, nothing)]).lost == []
    assert gone.findings([Promotion(900, nothing)]).lost == [("kept", MARK)]
    assert "is there all the same" in str(_completed().findings([Promotion(1_500, nothing)]).problems)


def test_finish_that_a_promoted_replica_lacked_may_come_again() -> None:
    story = _completed()
    before = {**story.state(), "kept": State(dict(story.jobs), story.events[:-1], [], [])}
    story.note(5_000, "done", "1", MARK, process="worker-asyncio-1")
    assert story.findings([Promotion(4_000, before)]).twice == []
    assert story.findings([Promotion(2_500, before)]).twice == [("kept", "1", MARK)]


def test_slow_recovery_is_reported_unless_another_fault_disturbed_it() -> None:
    starts = [Entry(at, "worker-trio-1", "start", (queue,)) for at in (1_000, 9_000) for queue in ("kept", "lean")]
    slow = list(recoveries(starts, [Struck("cut-after", "worker-trio", 1_900, 2_000)], ["trio"], patience_s=5))
    assert slow == [Recovery("cut-after", "trio", 7.0, 5)]
    assert len(list(too_slow(slow))) == 1
    both = [Struck("cut-after", "worker-trio", 1_900, 2_000), Struck("restart", "server", 3_000, 8_500)]
    measured = list(recoveries(starts, both, ["trio"], patience_s=5))
    assert measured == [Recovery("restart", "trio", 0.5, pytest.approx(7.6))]
    assert list(too_slow(measured)) == []


def test_seed_gives_the_same_faults_each_kind_once_a_round() -> None:
    slots = ["worker-trio", "worker-node", "producer-threads", "producer-node"]
    one, two = (plan(7, KINDS, slots, lock_ms=2000, pace=1.5) for _ in range(2))
    faults = [next(one) for _ in range(3 * len(KINDS))]
    assert faults == [next(two) for _ in faults]
    assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
    assert not any(fault.kind == "half-open" and fault.slot.endswith("node") for fault in faults)
