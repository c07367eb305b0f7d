"""The rules as a state machine of hypothesis, which chooses them, draws for them and reduces what it finds.

Hypothesis takes about ten times as long per sequence as the seeded source, so `make oracle` lets it drive one in ten.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.oracle import rules, sequences
from tests.oracle.harness import Bench
from tests.oracle.rules import Difference, World, rules_of
from tests.oracle.sequences import Found

STEPS = 40
RANDOMS = st.randoms(use_true_random=False)


def run(
    bench: Bench, count: int, seed_: int, *, shrink: bool = True, choices: Sequence[rules.Rule] = ()
) -> tuple[int, Found | None]:
    """Run up to `count` sequences of the rules `choices`, or of all; return how many began and what differs, reduced.

    Without `shrink` hypothesis leaves the reducing to `sequences.shrink`, which only drops steps but is quick.
    """
    begun = 0
    # More entries, more often chosen.
    choices = choices or [each for each, weight in rules_of(bench) for _ in range(max(1, round(weight)))]

    class Machine(RuleBasedStateMachine):
        @initialize(random=RANDOMS)
        def begin(self, random: Random) -> None:
            nonlocal begun
            begun += 1
            self.world = World(bench, random)

        @rule(each=st.sampled_from(choices), random=RANDOMS)
        def step(self, each: rules.Rule, random: Random) -> None:
            self.world.random = random
            rules.apply(self.world, each)

    chosen = settings(
        max_examples=count,
        stateful_step_count=STEPS,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        print_blob=False,
    )
    try:
        run_state_machine_as_test(seed(seed_)(Machine), settings=chosen)
    except Difference as found:
        name = f"hypothesis sequence, seed {seed_}"
        return begun, sequences.shrink(bench, Found(name, found.differences, tuple(found.log)))
    return begun, None
