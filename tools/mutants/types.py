"""Which faults the type checker refuses: it is one of the checks of each commit, and mutmut asks it in the same way.

The faulty functions stand beside the right ones, under names of their own, so that one run of mypy judges all of them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.mutants.rules import ROOT, Fault

PACKAGES = ("bullmq_protocol", "bullmq_anyio", "bullmq_sync")

# They say that a line cannot run or that a condition is always true, which is not what a type is wrong in.
_NOT_COUNTED = {"unreachable", "redundant-expr", "truthy-bool", "comparison-overlap"}


class _Copy(NamedTuple):
    first: int
    last: int
    fault: Fault | None
    """None: the function as it is, whose errors its faulty copies have, too."""


def refused(faults: Sequence[Fault], folder: Path) -> set[str]:
    """Return the digests of those that mypy refuses; `folder` is kept for the next run.

    Raises:
        RuntimeError: mypy did not run.
    """
    by_path: dict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_path[fault.function.module.path].append(fault)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    copies = {}
    for path, found in by_path.items():
        text, copies[path] = with_copies(found)
        (folder / path).write_text(text, encoding="utf-8")
    reported = _errors(folder)
    return {digest for path, found in copies.items() for digest in _wrong(found, reported[path])}


def with_copies(faults: Sequence[Fault]) -> tuple[str, list[_Copy]]:
    """Return a module's text in which copies follow each function, and where these are."""
    lines = list(faults[0].function.module.lines)
    by_function: dict[int, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_function[fault.function.at.last].append(fault)
    added: list[tuple[int, list[tuple[Fault | None, list[str]]]]] = []
    for last, found in sorted(by_function.items()):
        function = found[0].function
        decorators = lines[function.starts - 1 : function.at.first - 1]
        right = "".join(lines[function.at.first - 1 : function.at.last])
        texts = [(None, right), *((fault, fault.function_text) for fault in found)]
        name = function.node.name.value
        block = [
            (fault, [*decorators, *_renamed(text, name, number).splitlines(keepends=True)])
            for number, (fault, text) in enumerate(texts)
        ]
        added.append((last, block))
    copies, out, at = [], list[str](), 0
    for last, block in added:
        out += lines[at:last]
        at = last
        for fault, text in block:
            copies.append(_Copy(len(out) + 1, len(out) + len(text), fault))
            out += text
    return "".join([*out, *lines[at:]]), copies


def _renamed(text: str, name: str, number: int) -> str:
    if not text.endswith("\n"):
        text += "\n"
    return re.sub(rf"\bdef {re.escape(name)}\b", f"def {name}_fault_{number}", text, count=1)


def _errors(folder: Path) -> dict[str, list[tuple[int, str]]]:
    """Return by file the line of each error, and what it says."""
    options = ["--output=json", "--no-warn-unused-ignores", f"--cache-dir={folder / 'cache'}"]
    command = [sys.executable, "-m", "mypy", *options, *(each for name in PACKAGES for each in ("-p", name))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"mypy ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for line in done.stdout.splitlines():
        error = json.loads(line)
        if error["severity"] == "error" and error["code"] not in _NOT_COUNTED:
            found[error["file"]].append((error["line"], f"{error['code']}: {error['message']}"))
    return found


def _wrong(copies: Iterable[_Copy], errors: Sequence[tuple[int, str]]) -> set[str]:
    found = set()
    usual: Counter[str] = Counter()
    for copy in copies:
        own = Counter(
            # What it is called, and where the first of two definitions is, differs from copy to copy.
            re.sub(r"_fault_\d+|\bline \d+", "", message)
            for line, message in errors
            if copy.first <= line <= copy.last
        )
        if copy.fault is None:
            usual = own
        elif own - usual:
            found.add(copy.fault.digest)
    return found
