"""Sequences that hypothesis drives, and what it makes of a mistake."""

from __future__ import annotations

from hypothesis import settings

from tests.oracle import machine, rules, scripts, sequences
from tests.oracle.harness import Bench


def test_sequences_that_hypothesis_drives(bench: Bench) -> None:
    count = max(4, settings().max_examples // 15)
    before = bench.tally.calls
    begun, found = machine.run(bench, count, 1)
    assert found is None
    assert bench.tally.calls - before >= 30 * begun


def test_a_mistake_is_found_and_reduced(counting: Bench) -> None:
    counting.replace({**scripts.ours(), "updateData": scripts.ours()["updateData"].replace("'data'", "'date'")})
    # Of all rules so few change a job's data that finding this one takes luck.
    _, found = machine.run(counting, 50, 1, shrink=False, choices=(rules.add, rules.edits))
    assert found is not None
    assert any("data" in text for text in found.differences)
    # One step makes a job, one changes its data.
    assert len(found.steps) <= 3
    assert sequences.replay(counting, found.steps) == found.differences
