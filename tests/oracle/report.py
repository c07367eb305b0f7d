"""How differences are shown: never with a word of BullMQ's scripts, so their error texts are left out."""

from __future__ import annotations

from tests.oracle.calls import Call, Command
from tests.oracle.sequences import Found, opened
from tests.support import vectors


def step(each: Call | Command) -> str:
    """Write a step as it can be pasted into `regressions.py`."""
    if isinstance(each, Call):
        args = [f"pack({packed!r})" if (packed := opened(arg)) is not None else repr(arg) for arg in each.args]
        return f"Call({each.name!r}, {each.keys!r}, ({''.join(f'{arg}, ' for arg in args)}))"
    return repr(each)


def found(difference: Found) -> str:
    """Write a difference as a case for `regressions.py`, which then needs `Call` and `pack` of `calls`."""
    names = [each.name for each in difference.steps if isinstance(each, Call)]
    part, _, anchor = vectors.table()[names[-1]]["spec"].partition("#")
    lines = [f"# differs: {text}" for text in difference.differences]
    lines += ["case(", f'    "{part[:2]}#{anchor} found",', f"    {difference.name!r},"]
    lines += [f"    {step(each)}," for each in difference.steps]
    return "\n".join([*lines, "),"])
