"""What earlier runs found out, in `.cache/mutants/`: a run that was cut off goes on where it stopped.

A fault that a test noticed needs no second look while that test is among those that are run. One that survived is
tested again with the tests that are new to it, and with them alone. Tests are known by a digest of what they do, so
that a new case repeats the survivors of its scripts, and a changed file its own faults.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple


class Known(NamedTuple):
    """What is known of a fault: an outcome, or None with the tests that are still to be asked."""

    outcome: str | None
    asked: frozenset[str] = frozenset()
    """The tests that did not notice it."""
    by: str = ""
    """The test that noticed it."""


UNKNOWN = Known(None)


def digest(*parts: object) -> str:
    """Return a short digest of parts whose `repr` says what they are."""
    return hashlib.sha256("\x1f".join(map(repr, parts)).encode()).hexdigest()[:16]


class Kept:
    """Outcomes by the digest of a fault; each is written down at once."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        """Read what is there, or forget it. A line cut off at the end, as a kill leaves it, is left out."""
        self._path = path
        self._found: dict[str, Known] = {}
        self._sets: dict[str, frozenset[str]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        if path.exists():
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                path.write_text(whole, encoding="utf-8")
            for line in whole.splitlines():
                self._take(json.loads(line))

    def of(self, fault: str, tests: Collection[str]) -> Known:
        """Return what is known of a fault, if these are the tests that can see it."""
        known = self._found.get(fault, UNKNOWN)
        if known.outcome == "killed":
            return known if known.by in tests else UNKNOWN
        if known.outcome == "survived" and not known.asked.issuperset(tests):
            return Known(None, known.asked)
        return known

    def keep(self, fault: str, outcome: str, *, by: str = "", asked: Iterable[str] = ()) -> None:
        """Write down an outcome, with the test that noticed the fault or those that did not."""
        entry = {"fault": fault, "outcome": outcome}
        if by:
            entry["by"] = by
        lines = []
        if outcome == "survived":
            found = sorted(asked)
            entry["asked"] = digest(found)
            if entry["asked"] not in self._sets:
                lines.append({"tests": found, "set": entry["asked"]})
        lines.append(entry)
        with self._path.open("a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
        for line in lines:
            self._take(line)

    def _take(self, line: dict[str, object]) -> None:
        if "set" in line:
            tests = line["tests"]
            assert isinstance(tests, list)
            self._sets[str(line["set"])] = frozenset(map(str, tests))
            return
        asked = self._sets.get(str(line.get("asked")), frozenset())
        self._found[str(line["fault"])] = Known(str(line["outcome"]), asked, str(line.get("by", "")))
