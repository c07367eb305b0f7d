"""What a fleet's clients agree on, as one value: whose scripts, in calls for one job or for several, by which switches.

A profile goes where queues and workers take `scripts`. `STRICT` has our scripts, and does what BullMQ 5.62.0 does;
`switched` makes one that differs by a switch; `profile_of` one of scripts that were found, such as BullMQ's own out of
its npm package. The text of a script is never part of a message or a `repr`.

Source: specs/06-later-versions.md#sec-8-3
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, overload

import msgspec
from msgspec.structs import replace

from bullmq_protocol.command import Batch, Command, Merger, Script
from bullmq_protocol.common.switches import STRICT_SWITCHES, Switches
from bullmq_protocol.errors import UsageError
from bullmq_protocol.scripts._lua import OUR_SCRIPTS, SCRIPTS
from bullmq_protocol.scripts._lua_switched import SWITCHED

PACKAGE_VERSION = "5.62.0"
"""The version of BullMQ whose scripts our commands call."""

T = TypeVar("T")

_NAME: Final = re.compile(r"""\bname: ['"]([A-Za-z0-9]+)['"]""")
_KEYS: Final = re.compile(r"\bkeys: ([0-9]+)")
_CONTENT: Final = re.compile(r"\bcontent\s*[:=]\s*`")
_PIECE: Final = re.compile(r"[^\\`$]+|\\[`$\\nrtbfv'\"0\n]|\$(?!\{)|`")
_ESCAPES: Final = MappingProxyType(
    {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""},
)


class Profile(msgspec.Struct, frozen=True, dict=True):
    """Scripts by name, and the switches by which they were made.

    `label` says whose they are, `digest` (SHA-256 over names and SHA-1s) which exactly. `batches` tells whether the
    scripts for several jobs in one call are among them; BullMQ has none.
    """

    label: str
    digest: str
    scripts: Mapping[str, Script]
    batches: bool = False
    switches: Switches = STRICT_SWITCHES

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

        Commands that go together with others do so with this profile's scripts for several jobs, if it has them.
        """
        if isinstance(step, Batch):
            return replace(step, commands=tuple(map(self.applied, step.commands)))
        script = step.script
        if script is None:
            return step
        own = self.scripts.get(script.name, script)
        merge = step.merge
        if merge is None:
            return step if own is script else replace(step, script=own)
        if not self.batches:
            return step if own is script else replace(step, script=own, merge=None)
        return replace(step, script=own, merge=replace(merge, into=self._merger(merge.into)))

    def _merger(self, into: Merger) -> Merger:
        """Return what makes the same calls with the scripts of this profile."""
        mergers = self._mergers
        own = mergers.get(into.name)
        if own is None:

            def build(queue: str, commands: Sequence[Command[Any]]) -> Command[Any]:
                return self.applied(into.build(queue, commands))

            own = mergers[into.name] = replace(into, build=build)
        return own

    @cached_property
    def _mergers(self) -> dict[str, Merger]:
        return {}


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
        sha1 = hashlib.sha1(script.text.encode()).hexdigest()
        scripts[name] = Script(name=name, sha1=sha1, keys=script.keys, source=script.text)
    return _profile(label, scripts)


def read_package_version(text: str) -> str:
    """Return the version of BullMQ from its package.json.

    Raises `UsageError` for another package, and for a version that our commands do not fit.
    """
    try:
        found = json.loads(text)
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


def _profile(
    label: str, scripts: Mapping[str, Script], *, batches: bool = False, switches: Switches = STRICT_SWITCHES
) -> Profile:
    rows = "".join(f"{name} {scripts[name].sha1}\n" for name in sorted(scripts))
    digest = hashlib.sha256(rows.encode()).hexdigest()
    return Profile(label, digest, MappingProxyType(dict(scripts)), batches, switches)


STRICT: Final = _profile("strict", {**SCRIPTS, **OUR_SCRIPTS}, batches=True)
"""Our scripts, which do what those of BullMQ 5.62.0 do."""

DEFAULT: Final = STRICT
"""The profile of queues, workers and flow producers that are given none."""


def check_profile(scripts: object) -> Profile:
    """Return it as it is, or raise `UsageError` for anything but a profile."""
    if not isinstance(scripts, Profile):
        raise UsageError("scripts", scripts, "must be a Profile")
    return scripts


def switched(label: str, switches: Switches) -> Profile:
    """Make a profile of our scripts that differs from `STRICT` by these switches.

    Source: specs/06-later-versions.md#sec-8-3
    """
    scripts = dict(STRICT.scripts)
    for name, text in SWITCHED.items():
        keys, source = composed(text, switches.chosen)
        scripts[name] = Script(name=name, sha1=hashlib.sha1(source.encode()).hexdigest(), keys=keys, source=source)
    return _profile(label, scripts, batches=True, switches=switches)


def composed(text: str, chosen: frozenset[str]) -> ScriptText:
    """Take the chosen blocks of a text of `_lua_switched`, as `lua/build.py` would pack them."""
    lines: list[str] = []
    keys, taken = 0, True
    for line in text.splitlines(keepends=True):
        word, _, rest = line.strip().removeprefix("--- ").partition(" ")
        if not line.startswith("---"):
            lines += [line] if taken else []
        elif word == "when":
            taken = rest in chosen
        elif word == "keys:":
            keys += len(rest.split(",")) if taken else 0
        else:
            taken = word == "end" or not taken
    return ScriptText(keys, "".join(lines))
