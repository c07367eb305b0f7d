"""Sequences driven by a seeded random source: the same rules as the hypothesis machine, at the speed of the servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.oracle.calls import Call, Command
from tests.oracle.harness import Bench
from tests.oracle.rules import RULES, Difference, World, apply

STEPS = (28, 45)
"""Fewest and most rules of a sequence; with flows and fetches they give more than 30 calls on average."""


@dataclass(frozen=True, slots=True)
class Found:
    """A difference: which sequence, what differs, and the fewest steps that show it."""

    name: str
    differences: tuple[str, ...]
    steps: tuple[Call | Command, ...]


def run(bench: Bench, seed: int, number: int) -> Found | None:
    """Run one sequence; return the difference, if there is one, with its steps reduced."""
    random = Random(f"{seed}/{number}")
    world = World(bench, random)
    rules, weights = zip(*RULES, strict=True)
    try:
        for rule in random.choices(rules, weights, k=random.randint(*STEPS)):
            apply(world, rule)
    except Difference as found:
        return shrink(bench, Found(f"sequence {seed}/{number}", found.differences, tuple(found.log)))
    return None


def replay(bench: Bench, steps: Sequence[Call | Command]) -> tuple[str, ...]:
    """Run steps from an empty server; return the first differences."""
    bench.reset()
    for step in steps:
        if isinstance(step, Call):
            result = bench.call(step)
            if result.differences:
                return result.differences
        else:
            bench.plain([step], strict=False)
    return ()


def shrink(bench: Bench, found: Found) -> Found:
    """Leave out steps, from the last to the first, as long as a difference stays."""
    steps = list(found.steps)
    differences = found.differences
    for at in reversed(range(len(steps))):
        fewer = steps[:at] + steps[at + 1 :]
        seen = replay(bench, fewer)
        if seen:
            steps, differences = fewer, seen
    return Found(found.name, differences, tuple(steps))
