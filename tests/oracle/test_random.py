"""Seeded sequences and random states in a small budget; `make oracle` runs many more."""

from __future__ import annotations

import pytest

from tests.oracle import report, sequences, states
from tests.oracle.harness import Bench

SEQUENCES = 60
STATES = 1500


@pytest.mark.parametrize("seed", range(4))
def test_sequences(bench: Bench, seed: int) -> None:
    before = bench.tally.calls
    found = [sequences.run(bench, seed, number) for number in range(SEQUENCES // 4)]
    assert [report.found(each) for each in found if each is not None] == []
    assert bench.tally.calls - before >= 30 * SEQUENCES // 4


@pytest.mark.parametrize("seed", range(4))
def test_states(bench: Bench, seed: int) -> None:
    found = [states.run(bench, seed, number) for number in range(STATES // 4)]
    assert [report.found(each) for each in found if each is not None] == []
