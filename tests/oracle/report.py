"""How differences are shown: never with a word of BullMQ's scripts, so their error texts are left out."""

from __future__ import annotations

from tests.oracle.calls import Call, Command
from tests.oracle.sequences import Found


def step(each: Call | Command) -> str:
    """Write a step as it can be pasted into `regressions.py`."""
    if isinstance(each, Call):
        return f"Call({each.name!r}, {each.keys!r}, {each.args!r})"
    return repr(each)


def found(difference: Found) -> str:
    """Write a difference with the steps that lead to it."""
    lines = [difference.name]
    lines += [f"    {step(each)}," for each in difference.steps]
    lines += [f"  differs: {text}" for text in difference.differences]
    return "\n".join(lines)
