"""What a fleet's clients agree on, as one value: whose scripts, in calls for one job or for several, by which switches.

A profile goes where queues and workers take `scripts`. `STRICT`, `FLEET` and `V6_7` have our scripts: the first does
what BullMQ 5.62.0 does, the second, which is the default, may work beside every version from there to 6.7, the third
does what 6.7.0 does. `switched` makes one of other switches; `profile_of` one of scripts that were found, such as
BullMQ's own out of its npm package. The text of a script is never part of a message or a `repr`.

Source: specs/06-later-versions.md#sec-8-3
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast, overload

import msgspec
from msgspec.structs import replace

from bullmq_protocol.command import Batch, Command, Script
from bullmq_protocol.common.switches import (
    FLEET_SWITCHES,
    STRICT_SWITCHES,
    V5_81_SWITCHES,
    V6_7_SWITCHES,
    Switches,
)
from bullmq_protocol.errors import UsageError
from bullmq_protocol.lazy import lazy_pattern
from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS
from bullmq_protocol.scripts._lua_later import LATER_SCRIPTS
from bullmq_protocol.scripts._lua_switched import COMMANDS, INCLUDES
from bullmq_protocol.scripts.packing import Packer

PACKAGE_VERSION = "5.62.0"
"""The version of BullMQ whose scripts our commands call."""

T = TypeVar("T")

_NAME: Final = lazy_pattern(r"""\bname: ['"]([A-Za-z0-9]+)['"]""")
_KEYS: Final = lazy_pattern(r"\bkeys: ([0-9]+)")
_CONTENT: Final = lazy_pattern(r"\bcontent\s*[:=]\s*`")
_PIECE: Final = lazy_pattern(r"[^\\`$]+|\\[`$\\nrtbfv'\"0\n]|\$(?!\{)|`")
_ESCAPES: Final = MappingProxyType(
    {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""},
)


class Profile(msgspec.Struct, frozen=True):
    """Scripts by name, and the switches by which they were made.

    `label` says whose they are, `digest` which exactly. `batches` tells whether the scripts for several jobs in one
    call are among them; BullMQ has none.
    """

    label: str
    scripts: Mapping[str, Script]
    batches: bool = False
    switches: Switches = STRICT_SWITCHES

    @property
    def digest(self) -> str:
        """SHA-256 over names and SHA-1s."""
        rows = "".join(f"{name} {self.scripts[name].sha1}\n" for name in sorted(self.scripts))
        return hashlib.sha256(rows.encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Profile({self.label!r}, digest={self.digest!r}, scripts={len(self.scripts)})"

    @overload
    def applied(self, step: Command[T]) -> Command[T]: ...
    @overload
    def applied(self, step: Batch) -> Batch: ...
    @overload
    def applied(self, step: Command[Any] | Batch) -> Command[Any] | Batch: ...
    def applied(self, step: Command[Any] | Batch) -> Command[Any] | Batch:
        """Return the step with the scripts of this profile. A script it does not know stays as it is.

        A command goes together with others if the profile has scripts for several jobs, with which it does.
        """
        return cast("Command[Any] | Batch", applier(self)(step))


def _as_it_is(step: Any) -> Any:
    return step


def applier(profile: Profile, then: Callable[[Any], Any] = _as_it_is) -> Callable[[Any], Any]:
    """Return what `Profile.applied` does, as a function for many steps: it remembers the scripts.

    `then` is called with the result, in its place: in a transport each command goes through here.
    """
    scripts = profile.scripts
    alone: dict[str, Script] = {}
    merging: dict[str, Script] = {}

    def find(script: Script) -> Script:
        found = alone[script.name] = scripts.get(script.name) or script
        return found

    def find_merging(script: Script, into: Script) -> Script | None:
        together = scripts.get(into.name) if profile.batches else None
        if together is None:
            return None
        found = find(script)
        if together is not into:
            found = replace(found, together=together)
        merging[script.name] = found
        return found

    def applied(step: Command[Any] | Batch) -> Any:
        if type(step) is not Command and isinstance(step, Batch):
            return then(replace(step, commands=tuple(map(each, step.commands))))
        script = step.script
        if script is None:
            return then(step)
        merge = step.merge
        if merge is None:
            own = alone.get(script.name) or find(script)
        else:
            merged = merging.get(script.name) or find_merging(script, merge.into.script)
            if merged is None:
                return then(replace(step, script=find(script), merge=None))
            own = merged
        return then(step if own is script else replace(step, script=own))

    each = applied if then is _as_it_is else applier(profile)
    return applied


class ScriptText(NamedTuple):
    """A script as it was found: its text, and how many keys its call has."""

    keys: int
    text: str


def profile_of(label: str, found: Mapping[str, ScriptText]) -> Profile:
    """Make a profile of these scripts; those that no command of ours calls are left out.

    Raises `UsageError` if one of ours is missing, or has another number of keys.
    """
    scripts: dict[str, Script] = {}
    for name, own in SCRIPTS.items():
        script = found.get(name)
        if script is None:
            raise UsageError("scripts", label, f"must hold {name}")
        if script.keys != own.keys:
            raise UsageError("scripts", label, f"must have {own.keys} keys for {name}, not {script.keys}")
        scripts[name] = _script(name, script.keys, script.text)
    return Profile(label, MappingProxyType(scripts))


def read_package_version(text: str) -> str:
    """Return the version of BullMQ from its package.json.

    Raises `UsageError` for another package, and for a version that our commands do not fit.
    """
    try:
        found = msgspec.json.decode(text)
        name, version = found["name"], found["version"]
    except (ValueError, KeyError, TypeError):
        raise UsageError("package.json", len(text), "must be that of an npm package") from None
    if name != "bullmq":
        raise UsageError("package", name, "must be bullmq")
    if version != PACKAGE_VERSION:
        raise UsageError("package", f"bullmq {version}", f"must be bullmq {PACKAGE_VERSION}")
    return PACKAGE_VERSION


def read_script_module(file: str, text: str) -> tuple[str, ScriptText]:
    """Return name, number of keys and text of the script in one built file of the package.

    The file holds one template literal without a `${`, and outside of it `name: '...'` and `keys: N`. All else is
    refused with a `UsageError` that names the file and shows none of it.
    """
    # A template literal has line feeds alone, whatever line ends the file has.
    text = text.replace("\r\n", "\n")
    begin = _CONTENT.search(text)
    if begin is None:
        raise _unreadable(file, "has no content")
    parts: list[str] = []
    at = begin.end()
    while True:
        piece = _PIECE.match(text, at)
        if piece is None:
            raise _unreadable(file, "has a content that is no plain template literal")
        at = piece.end()
        found = piece[0]
        if found == "`":
            break
        if found[0] == "\\":
            found = _ESCAPES.get(found[1], found[1])
        parts.append(found)
    outside = text[: begin.start()] + text[at:]
    names, keys = _NAME.findall(outside), _KEYS.findall(outside)
    if len(names) != 1 or len(keys) != 1 or _CONTENT.search(outside):
        raise _unreadable(file, "must say name, content and keys once each")
    return names[0], ScriptText(int(keys[0]), "".join(parts))


def _unreadable(file: str, why: str) -> UsageError:
    return UsageError("script", file, why)


def _script(name: str, keys: int, text: str) -> Script:
    return Script(name=name, sha1=hashlib.sha1(text.encode()).hexdigest(), keys=keys, source=text)


class _Switched(Mapping[str, Script]):
    """Scripts of a profile with switches, each packed when it is first asked for."""

    def __init__(self, switches: Switches) -> None:
        self._packer = Packer(COMMANDS, INCLUDES, switches.chosen)
        self._found: dict[str, Script] = {name: script for name, script in _ALL.items() if name not in COMMANDS}

    def __getitem__(self, name: str) -> Script:
        script = self._found.get(name)
        if script is None:
            # Threads that ask at once pack it twice, and both get the first.
            keys, text = self._packer.packed(name)
            own = _ALL[name]
            script = self._found.setdefault(name, own if text == own.source else _script(name, keys, text))
        return script

    @overload
    def get(self, name: str, /) -> Script | None: ...
    @overload
    def get(self, name: str, /, default: Script) -> Script: ...
    @overload
    def get(self, name: str, /, default: T) -> Script | T: ...
    def get(self, name: str, /, default: Any = None) -> Any:
        # That of `Mapping` raises and catches an exception for what is not there.
        return self._found.get(name) or (self[name] if name in _ALL else default)

    def __iter__(self) -> Iterator[str]:
        return iter(_ALL)

    def __len__(self) -> int:
        return len(_ALL)


_ALL: Final[Mapping[str, Script]] = MappingProxyType({**SCRIPTS, **OUR_SCRIPTS, **LATER_SCRIPTS})


def check_profile(scripts: object) -> Profile:
    """Return it as it is, or raise `UsageError` for anything but a profile."""
    if not isinstance(scripts, Profile):
        raise UsageError("scripts", scripts, "must be a Profile")
    return scripts


def switched(label: str, switches: Switches) -> Profile:
    """Make a profile of our scripts with these switches.

    Source: specs/06-later-versions.md#sec-8-3
    """
    return Profile(label, _Switched(switches), batches=True, switches=switches)


STRICT: Final = Profile("strict", MappingProxyType({**SCRIPTS, **OUR_SCRIPTS}), batches=True)
"""Our scripts, which do what those of BullMQ 5.62.0 do."""

FLEET: Final = switched("fleet", FLEET_SWITCHES)
"""Our scripts for queues on which clients from 5.62 to 6.7 work together."""

V6_7: Final = switched("6.7", V6_7_SWITCHES)
"""Our scripts, which do what those of BullMQ 6.7.0 do: for queues that no client before 6.0 works on."""

V5_81: Final = switched("5.81", V5_81_SWITCHES)
"""Our scripts, which do what those of BullMQ 5.81.5 do: for comparison with it."""

DEFAULT: Final = FLEET
"""The profile of queues, workers and flow producers that are given none."""
