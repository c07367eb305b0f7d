"""Which faults come, whom they strike, and when: all of it from a seed."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

CUTS = ("cut-before", "cut-after", "cut-mid-reply", "half-open")
ABRUPT = "abrupt-failover"
END = "(the end)"
"""No fault: the moment when there are no more."""
KINDS = ("kill", "stop", *CUTS, "client-kill", "script-flush", "restart", "failover")
ON_SERVER = ("script-flush", "restart", "failover", ABRUPT)

_MARKERS = {
    # What a write must hold to be struck: a report (all results begin so), an add, a script, a blocking wait, anything.
    "worker": ("done:", "EVALSHA", "EVALSHA", "ZPOPMIN", "*"),
    "producer": ('"work_ms"', '"work_ms"', "EVALSHA", "*"),
}


class Fault(NamedTuple):
    """One fault: `pause` seconds after the one before, on this slot (`worker-trio`), with figures of its kind."""

    pause: float
    kind: str
    slot: str
    seconds: float = 0.0
    """How long the process stands, the server is away, or stale connections stay open."""
    marker: str = ""
    times: int = 1
    """Cuts in a row: the attempts to connect again are struck, too."""
    gently: bool = False
    """The server ends in good order instead of by SIGKILL."""
    settled: bool = True
    """Wait afterwards until whom it struck works again."""


def plan(seed: int, kinds: Sequence[str], slots: Sequence[str], *, lock_ms: int, pace: float) -> Iterator[Fault]:
    """Give faults without end: each kind once, in random order, before any comes again."""
    dice = random.Random(seed)
    while True:
        for kind in dice.sample(kinds, len(kinds)):
            yield _fault(dice, kind, slots, lock_ms=lock_ms, pace=pace)


def _fault(dice: random.Random, kind: str, slots: Sequence[str], *, lock_ms: int, pace: float) -> Fault:
    pause = dice.uniform(0.2, 2 * pace)
    settled = dice.random() < 0.6
    # Workers hold jobs, so they are struck twice as often.
    able = [slot for slot in slots for _ in range(2 if slot.startswith("worker") else 1)]
    if kind == "half-open":
        # Node's client has no time limit for a command.
        able = [slot for slot in able if not slot.endswith("node")]
    slot = "server" if kind in ON_SERVER else dice.choice(able)
    role = slot.partition("-")[0]
    if kind == "stop":
        return Fault(pause, kind, slot, dice.uniform(1.2, 1.7) * lock_ms / 1000)
    if kind == "kill":
        return Fault(pause, kind, slot, dice.uniform(0, 1.5))
    if kind == "restart":
        away = dice.choice((0, dice.uniform(0.2, 4), dice.uniform(0.2, 4), dice.uniform(6, 8)))
        return Fault(pause, kind, slot, away, gently=dice.random() < 0.5)
    if kind == "failover":
        return Fault(pause, kind, slot, dice.uniform(0, 0.8))
    if kind == ABRUPT:
        return Fault(pause, kind, slot, dice.uniform(0, 0.5))
    if kind in CUTS:
        marker = dice.choice(_MARKERS[role])
        if slot.endswith("node"):
            marker = marker.replace("EVALSHA", "evalsha").replace("ZPOPMIN", "zpopmin")
        times = 1 if kind == "half-open" else dice.choice((1, 1, 2, 3))
        return Fault(pause, kind, slot, marker=marker, times=times, settled=settled)
    return Fault(pause, kind, slot, settled=settled)
