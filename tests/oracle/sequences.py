"""Sequences driven by a seeded random source: the same rules as the hypothesis machine, at the speed of the servers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from tests.oracle.calls import Call, Command, pack
from tests.oracle.harness import Bench
from tests.oracle.rules import Difference, World, apply, rules_of

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
    rules, weights = zip(*rules_of(bench), strict=True)
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
    """Leave out steps, then parts of steps, as long as a difference stays."""
    steps, differences = list(found.steps), found.differences

    def holds(fewer: list[Call | Command]) -> bool:
        nonlocal steps, differences
        seen = replay(bench, fewer)
        if seen:
            steps, differences = fewer, seen
        return bool(seen)

    size = max(1, len(steps) // 2)
    while size:
        before = len(steps)
        for at in reversed(range(0, before, size)):
            holds(steps[:at] + steps[at + size :])
        # Steps that others needed may have become free.
        size = size if size == 1 and len(steps) < before else size // 2
    at = 0
    while at < len(steps):
        if not any(holds([*steps[:at], less, *steps[at + 1 :]]) for less in lesser(steps[at])):
            at += 1
    return Found(found.name, differences, tuple(steps))


HEADS = {"HSET": (2, 2), "ZADD": (2, 2), "RPUSH": (2, 1), "LPUSH": (2, 1), "SADD": (2, 1), "SET": (3, 2)}
"""Per command, how long its head is and how many words go together after it."""


def lesser(step: Call | Command) -> Iterator[Call | Command]:
    """Yield the step without a part: a field, a member, a lifetime, or a member of a packed map."""
    if isinstance(step, Call):
        for at, arg in enumerate(step.args):
            packed = opened(arg)
            for name in packed if isinstance(packed, dict) else ():
                yield step.with_arg(at, pack({key: value for key, value in packed.items() if key != name}))
    elif step[0] in HEADS:
        head, width = HEADS[str(step[0])]
        rest = step[head:]
        if len(rest) > width or step[0] == "SET":
            for at in range(0, len(rest), width):
                yield (*step[:head], *rest[:at], *rest[at + width :])


def opened(arg: object) -> object:
    """Return what packed bytes hold, if packing it again gives the same bytes; else None."""
    if not isinstance(arg, bytes) or not arg:
        return None
    try:
        found = msgspec.msgpack.decode(arg)
    except msgspec.DecodeError:
        return None
    return found if pack(found) == arg else None
