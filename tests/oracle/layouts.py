"""KEYS and ARGV of each version. A call is *whole* when it has every key and argument that one of them takes.

`calls.py` makes calls of 5.62.0; `whole` widens them, `with_keys` and `with_args` cut them to what a script takes.

Source: specs/06-later-versions.md#sec-2-3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from tests.oracle.calls import Arg, Call

VERSIONS = ("5.62.0", "5.81.5", "6.7.0")
"""The pinned versions, from the oldest to the newest."""

_BASES = MappingProxyType(
    {"moveToDelayed": (1, "active"), "moveStalledJobsToWait": (0, "stalled"), "reprocessJob": (1, "events")}
)
"""Per command that is widened, a key that ends with the same word in each call."""

_DROPPED: Mapping[str, Mapping[int, tuple[int, ...]]] = MappingProxyType(
    {
        # marker active prioritized delayed job events meta stalled wait limiter paused pc
        "moveToDelayed": {8: (8, 9, 10, 11), 11: (10,), 12: ()},
        # job events set wait meta paused active marker prioritized pc
        "reprocessJob": {7: (5, 8, 9), 8: (8, 9), 9: (5,), 10: ()},
        # stalled wait active stalled-check meta paused marker events repeat
        "moveStalledJobsToWait": {8: (8,), 9: ()},
        # wait paused meta prioritized
        "getCountsPerPriority": {2: (1, 2), 4: ()},
    }
)
"""Per command, which keys of a whole call a script with so many keys does not take."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the scripts of the two sides of a bench take."""

    version: str
    """That of BullMQ's side: both sides are sent its arguments."""
    keys: tuple[Mapping[str, int], Mapping[str, int]]
    """How many keys each script takes, BullMQ's first."""

    def fitted(self, call: Call, side: int) -> Call:
        """Return a call as the script of a side takes it."""
        fit = with_args(whole(call), self.version)
        return with_keys(fit, self.keys[side].get(call.name, len(call.keys)))

    def knows(self, name: str) -> bool:
        """Tell whether both sides have a command."""
        return all(name in known for known in self.keys)


def whole(call: Call) -> Call:
    """Widen a call of 5.62.0; one that is whole already stays as it is."""
    if call.name not in _BASES and call.name != "pause":
        return call
    if call.name == "pause":
        return replace(call, args=(*call.args, "1")) if len(call.args) == 1 else call
    if len(call.keys) != 8:
        return call
    at, end = _BASES[call.name]
    base = str(call.keys[at]).removesuffix(end)
    more, args = {
        "moveToDelayed": ("wait limiter paused pc", ("0", "")),
        "moveStalledJobsToWait": ("repeat", ()),
        "reprocessJob": ("prioritized pc", ("0", "0")),
    }[call.name]
    return replace(call, keys=(*call.keys, *(base + name for name in more.split())), args=(*call.args, *args))


def with_keys(call: Call, count: int) -> Call:
    """Leave out what a script with so many keys does not take."""
    known = _DROPPED.get(call.name, {})
    if len(call.keys) == count or len(call.keys) != max(known, default=0):
        return call
    return replace(call, keys=tuple(key for at, key in enumerate(call.keys) if at not in known[count]))


def with_args(call: Call, version: str) -> Call:
    """Leave out the arguments that a version does not know."""
    args = call.args
    if call.name == "moveToDelayed" and version == "5.62.0":
        args = args[:7]
    elif call.name == "reprocessJob" and version == "5.62.0":
        args = args[:4]
    elif call.name == "pause" and version != "6.7.0":
        args = args[:1]
    elif call.name == "getCounts" and version != "6.7.0" and args and _is_number(args[0]):
        args = args[1:]
    return call if args is call.args else replace(call, args=args)


def _is_number(arg: Arg) -> bool:
    try:
        float(str(arg))
    except ValueError:
        return False
    return True
