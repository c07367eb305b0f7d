"""The rules as a state machine of hypothesis, which reduces what it finds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.oracle import rules, scripts
from tests.oracle.harness import Bench
from tests.oracle.rules import RULES, World
from tests.support import servers

RANDOMS = st.randoms(use_true_random=False)
# More entries, more often chosen.
CHOICES = st.sampled_from([each for each, weight in RULES for _ in range(max(1, round(weight)))])


class Machine(RuleBasedStateMachine):
    """One sequence: hypothesis chooses the rules and what they draw."""

    bench: Bench

    @initialize(random=RANDOMS)
    def begin(self, random: Random) -> None:
        self.world = World(self.bench, random)

    @rule(each=CHOICES, random=RANDOMS)
    def step(self, each: rules.Rule, random: Random) -> None:
        self.world.random = random
        rules.apply(self.world, each)


@pytest.fixture(scope="module")
def machine() -> Iterator[type[Machine]]:
    with servers.start() as server, scripts.bench(server) as bench:

        class WithBench(Machine):
            pass

        WithBench.bench = bench
        yield WithBench


def test_sequences_that_hypothesis_drives(machine: type[Machine]) -> None:
    chosen = settings(
        max_examples=max(10, (settings.default.max_examples if settings.default else 50) // 5),
        stateful_step_count=40,
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    before = machine.bench.tally.calls
    run_state_machine_as_test(machine, settings=chosen)
    assert machine.bench.tally.calls - before >= 30 * 10
