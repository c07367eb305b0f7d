"""What each profile is compared with: `PROFILE` and `BULLMQ` of `make oracle`.

A profile of one version is compared with it, wholly. `fleet` mixes with three versions, so each tells about a part:

- 6.7.0 about all but pausing, in open queues, where nothing is paused and no list `paused` is left; and about the list
  that jobs are put in, where a client of 6.x has paused and only `wait` is filled.
- 5.62.0 and 5.81.5 about the layout alone (the other switches are theirs), in queues that 5.x can have, with only the
  list that the state of the pause names; and about the list that jobs are put in, where both are filled.

What has no counterpart (both lists filled before a pause or a resume, healing) are cases of `directed/later/fleet.py`.

Source: specs/06-later-versions.md#sec-8-2
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from msgspec.structs import replace

from bullmq_protocol.common.switches import Switches
from bullmq_protocol.scripts import profile as profiles
from tests.oracle import later_states, states
from tests.oracle.calls import ADD_KEYS, Call, Command, P, Q
from tests.oracle.cases import Case
from tests.oracle.harness import Bench
from tests.oracle.layouts import VERSIONS
from tests.oracle.scripts import Side
from tests.oracle.sequences import Found, opened, replay, shrink

CONSTANTS: Final = MappingProxyType({"strict": "STRICT", "5.81": "V5_81", "6.7": "V6_7", "fleet": "FLEET"})
"""The names of profiles and of their constants."""

OWN: Final = MappingProxyType({"strict": "5.62.0", "5.81": "5.81.5", "6.7": "6.7.0"})
"""The version that a profile is."""

AS_6_7: Final = MappingProxyType({"debounced_event": False, "write_nrjid": False, "scheduler_data_fallback": False})
"""The switches of `fleet` that keep what 6.0.0 dropped."""

LAYOUT: Final = MappingProxyType({"waiting_layout": "adaptive", "merging_pause": True})
"""The switches of the layout of `fleet`."""

_IN_A_WAY_OF_THEIR_OWN: Final = frozenset({"pause", "drain", "cleanJobsInSet", "obliterate", "addJobScheduler"})
"""Commands that look into the lists in a way of their own, or may empty them."""

_ONE_LIST: Final = _IN_A_WAY_OF_THEIR_OWN | {"changePriority", "getCountsPerPriority"}
"""Also those of 5.x that look into one of two filled lists."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of our sides, and the states and calls on which it must be as the version."""

    title: str
    side: Side
    fit: Callable[[list[Command]], list[Command]] = list
    """Change a start state."""
    allowed: Callable[[Bench, Call], bool] = lambda _bench, _call: True
    whole: bool = False
    """Whether nothing is left out, so that cases hold as they are written."""
    sequences: bool = True
    """Whether sequences from an empty database stay in such states."""


def profile(name: str) -> profiles.Profile:
    """Return a profile by its name."""
    found: profiles.Profile = getattr(profiles, CONSTANTS[name])
    return found


def switches_of(name: str) -> Switches:
    """Return the switches of a profile by its name."""
    return profile(name).switches


def comparisons(name: str, version: str) -> tuple[Comparison, ...]:
    """Return what a profile is compared on."""
    own = switches_of(name)
    if name != "fleet":
        return (Comparison("", Side(own, version), whole=version == OWN[name]),)
    if version == "6.7.0":
        side = Side(replace(own, **AS_6_7), version)
        return (
            Comparison("in open queues", side, open_queues, _no_pause),
            Comparison("paused, only wait filled", side, only_wait, _puts_in_wait, sequences=False),
        )
    rest = switches_of("strict" if version == "5.62.0" else "5.81")
    side = Side(replace(rest, **LAYOUT), version, free=frozenset({"pause"}))
    return (
        Comparison("in queues of 5.x", side, older_queues, _as_in_5x),
        Comparison("paused, both lists filled", side, set_aside, _puts_in_paused, sequences=False),
    )


def fleet_alone() -> Side:
    """Return the side of `fleet` as it is, for the cases that have no counterpart."""
    return Side(switches_of("fleet"), "6.7.0")


def versions_of(name: str) -> tuple[str, ...]:
    """Return the versions that a profile is compared with."""
    return VERSIONS if name == "fleet" else (OWN[name],)


def profile_of(version: str) -> str:
    """Return the profile that is a version."""
    return next(name for name, own in OWN.items() if own == version)


# States


def open_queues(made: list[Command]) -> list[Command]:
    """Neither a pause nor a list `paused`."""
    kept = list(made)
    for base in (Q, P):
        kept += [("HDEL", f"{base}meta", "paused"), ("DEL", f"{base}paused")]
    return kept


def older_queues(made: list[Command]) -> list[Command]:
    """Only the list that the state of the pause names."""
    return [*made, *(("DEL", base + ("wait" if _is_paused(made, base) else "paused")) for base in (Q, P))]


def only_wait(made: list[Command]) -> list[Command]:
    """Paused by 6.x while jobs waited."""
    kept = list(made)
    for base in (Q, P):
        kept += [("HSET", f"{base}meta", "paused", "1"), ("DEL", f"{base}paused"), ("RPUSH", f"{base}wait", "filler")]
    return kept


def set_aside(made: list[Command]) -> list[Command]:
    """Paused, with jobs that 5.x has set aside, and `wait` filled or not."""
    kept = list(made)
    for base in (Q, P):
        kept += [("HSET", f"{base}meta", "paused", "1"), ("RPUSH", f"{base}paused", "filler")]
    return kept


def _is_paused(made: list[Command], base: str) -> bool:
    return any(command[:2] == ("HSET", f"{base}meta") and "paused" in command[2::2] for command in made)


# Calls


def _no_pause(_bench: Bench, call: Call) -> bool:
    return call.name != "pause"


def _puts_in_wait(_bench: Bench, call: Call) -> bool:
    return call.name not in _IN_A_WAY_OF_THEIR_OWN


def _puts_in_paused(_bench: Bench, call: Call) -> bool:
    return call.name not in _ONE_LIST


def _as_in_5x(bench: Bench, call: Call) -> bool:
    """Leave out a resume of a queue that is not paused, which `fleet` marks, and keys of another type."""
    if call.name == "pause":
        found = bench.plain([("TYPE", key) for key in call.keys[:4]])
        kinds = (b"list", b"list", b"hash", b"zset")
        sound = all(each in (b"none", kind) for each, kind in zip(found, kinds, strict=True))
        return sound and (call.args[0] != "resumed" or bench.plain([("HEXISTS", call.keys[2], "paused")])[0] == 1)
    if call.name == "addJobScheduler":
        return call.args[8] == "" or not str(call.args[8]).endswith(":wait")
    if call.name in ADD_KEYS:
        # The hash of such a job would be the list, which `fleet` asks about.
        head = opened(call.args[0])
        return not isinstance(head, list) or "wait" not in head[1:2]
    # `fleet` does not ask whether the queue is paused
    return call.name != "getCountsPerPriority" or bench.plain([("TYPE", call.keys[2])])[0] in (b"hash", b"none")


# Running


def _generator(version: str) -> Any:
    return states.state if version == "5.62.0" else later_states.state


def run_case(bench: Bench, comparison: Comparison, case: Case) -> list[str]:
    """Run a directed case in such states, whatever it expects; return how the two sides differ."""
    bench.reset()
    made: list[Command] = []
    group: list[Command] = []
    found: list[str] = []
    for step in case.steps:
        if not isinstance(step, Call):
            group.append(step)
            continue
        made += group
        bench.plain([*group, *comparison.fit(made)[len(made) :]], strict=False)
        group = []
        found += bench.call(step).differences
    return found


def run_state(bench: Bench, comparison: Comparison, seed: int, number: int) -> Found | None:
    """Run one state; return the difference, if there is one, reduced."""
    name, made, found = _generator(comparison.side.version)(seed, number)
    steps = (*comparison.fit(made), *found)
    bench.reset(comparison.fit(made), strict=False)
    for call in found:
        seen = bench.call(call).differences
        if seen:
            return shrink(bench, Found(name, replay(bench, steps) or seen, steps))
    return None
