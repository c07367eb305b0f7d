"""Measure the house: what is written twice, what is too large, what is not documented. `python -m tools.measures`.

Each figure is counted from the text of the sources, so two revisions compare: run it in a checkout of each. What a line
counts is said by the function of the same name.
"""

import ast
import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tools import twin

ROOT = Path(__file__).parents[1]
ADAPTERS = ("bullmq_anyio", "bullmq_sync")
PACKAGES = ("bullmq_protocol", *ADAPTERS, "bullmq_doctor", "bullmq_otel", "bullmq_prometheus")
FACADE = {
    "queue": ("Queue",),
    "job": ("Job",),
    "worker": ("Worker",),
    "events": ("QueueEvents",),
    "producers": ("FlowProducer", "QueueEventsProducer"),
}
_PLACE_LINES = 6


class Sides(NamedTuple):
    """Two hand-kept modules of the same name, one in each adapter; lines without blank ones."""

    name: str
    ours: list[str]
    theirs: list[str]


class Size(NamedTuple):
    name: str
    methods: int
    attributes: int


class Words(NamedTuple):
    """Of a facade: its parameters, those that a docstring names, its public methods, those with an example."""

    parameters: int
    named: int
    methods: int
    examples: int


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Print the measures; return the exit status."""
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    pairs = list(hand_kept(root))
    identical = {pair.name: identical_lines(pair) for pair in pairs}
    sizes = list(classes(root))
    largest = max(sizes, key=lambda size: size.methods)
    inside = largest_inside(sizes)
    most = max(sizes, key=lambda size: size.attributes)
    words = facade(root)
    found = command_tests(root)
    rows = [
        ("identical lines in hand-kept pairs", str(sum(identical.values()))),
        *((f"  {name}", str(identical[name])) for name in sorted(identical, key=identical.__getitem__, reverse=True)),
        (f"places of a pair that share {_PLACE_LINES} lines or more", str(sum(map(shared_places, pairs)))),
        ("class with the most methods", f"{largest.name}: {largest.methods}"),
        ("  facade aside", f"{inside.name}: {inside.methods}"),
        ("class with the most attributes", f"{most.name}: {most.attributes}"),
        ("tests of a command outside commands/", str(len(found))),
        *((f"  {place}", "") for place in found),
        ("places in Lua that begin a job", str(len(lua_places(root, BEGINS)))),
        ("places in Lua that end a job", str(len(lua_places(root, ENDS)))),
        ("places in Lua that say what is plain", str(len(lua_places(root, PLAIN)))),
        ("facade: parameters named", f"{words.named} of {words.parameters}"),
        ("facade: methods with an example", f"{words.examples} of {words.methods}"),
    ]
    for name, value in rows:
        print(f"{name:60} {value}".rstrip())
    return 0


def hand_kept(root: Path) -> Iterator[Sides]:
    """Yield the modules that both adapters have and `tools/twin.py` does not write, wherever they lie in each."""
    ours, theirs = ({file.stem: file for file in (root / package).rglob("*.py")} for package in ADAPTERS)
    for name in sorted(ours.keys() & theirs.keys() - {*(name.rpartition("/")[2] for name in twin.NAMES), "__init__"}):
        yield Sides(name, _lines(ours[name]), _lines(theirs[name]))


def identical_lines(pair: Sides) -> int:
    """Count the lines that a comparison finds in both, in the same order."""
    return sum(block.size for block in _blocks(pair.ours, pair.theirs))


def shared_places(pair: Sides) -> int:
    """Count the places where both have six lines or more in a row; what is imported does not count."""
    blocks = _blocks(_without_imports(pair.ours), _without_imports(pair.theirs))
    return sum(1 for block in blocks if block.size >= _PLACE_LINES)


def classes(root: Path) -> Iterator[Size]:
    """Yield each class with the number of functions in it and of attributes that it sets on `self` or declares."""
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            for node in ast.walk(_tree(file)):
                if isinstance(node, ast.ClassDef):
                    methods = [
                        each
                        for each in node.body
                        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_overload(each)
                    ]
                    declared = {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}
                    on_self = {
                        each.attr
                        for method in methods
                        for each in ast.walk(method)
                        if isinstance(each, ast.Attribute)
                        and isinstance(each.ctx, ast.Store)
                        and isinstance(each.value, ast.Name)
                        and each.value.id == "self"
                    }
                    yield Size(f"{file.relative_to(root)} {node.name}", len(methods), len(declared | on_self))


def largest_inside(sizes: Iterable[Size]) -> Size:
    """Return the class with the most methods beside the facades."""
    facades = {name for names in FACADE.values() for name in names}
    return max((size for size in sizes if size.name.rpartition(" ")[2] not in facades), key=lambda size: size.methods)


def command_tests(root: Path) -> list[str]:
    """List where what a command is for is found out from positions in `args`, its name or its script."""
    found: list[str] = []
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            if {"commands", "testing"} & set(file.parts) or file.stem == "merge":
                continue
            found += [
                f"{file.relative_to(root)}: {ast.unparse(node)}"
                for node in ast.walk(_tree(file))
                if _is_command_test(node)
            ]
    return found


BEGINS = re.compile(r"'active', 'jobId', .*'prev', 'waiting'")
ENDS = re.compile(r"\bfield,\s*result, 'prev', 'active'|^\s*result, 'prev', 'active'")
PLAIN = re.compile(r"head(\[5\]|\.parent) [~=]= nil (or|and) head|(known|stored)([.\[]\w+\]?) or \3([.\[]\w+\]?) or \3")


def lua_places(root: Path, pattern: re.Pattern[str]) -> list[str]:
    """List the lines of the Lua sources with the event of a job that begins or ends, or that say what is plain.

    What is plain differs for a job to add, a queue to fetch from, and a job that ends: one line each.
    """
    return [
        f"{file.relative_to(root)}:{number}"
        for file in sorted((root / "lua").rglob("*.lua"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def facade(root: Path) -> Words:
    """Count in both adapters what the docstrings of queues, jobs, workers, events and producers name.

    A parameter is named by an entry under `Args:` in the docstring of its method, or of its class for `__init__`.
    Properties do not count: a sentence says what one is, and an example could only show its name again. Neither do
    overloads: the method that implements them documents them.
    """
    parameters = named = methods = examples = 0
    for package in ADAPTERS:
        for module, names in FACADE.items():
            for node in _tree(root / package / f"{module}.py").body:
                if not (isinstance(node, ast.ClassDef) and node.name in names):
                    continue
                for method in node.body:
                    if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                        continue
                    if method.name.startswith("_") and method.name != "__init__":
                        continue
                    if _is_overload(method) or any(map(_is_of_property, method.decorator_list)):
                        continue
                    text = ast.get_docstring(method) or ""
                    if method.name == "__init__":
                        text += ast.get_docstring(node) or ""
                    else:
                        methods += 1
                        examples += ">>> " in text
                    rest = [method.args.vararg] if method.args.vararg is not None else []
                    given = [each.arg for each in (*method.args.args[1:], *rest, *method.args.kwonlyargs)]
                    parameters += len(given)
                    named += sum(bool(re.search(rf"^    {each}: ", text, re.MULTILINE)) for each in given)
    return Words(parameters, named, methods, examples)


def _is_overload(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return "overload" in map(ast.unparse, method.decorator_list)


def _is_of_property(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).rpartition(".")[2] in ("property", "setter")


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def _lines(file: Path) -> list[str]:
    return [line.rstrip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def _blocks(ours: list[str], theirs: list[str]) -> list[difflib.Match]:
    return difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()


def _without_imports(lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    imported = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return [line for number, line in enumerate(lines, 1) if number not in imported]


def _is_command_test(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "args":
        # Those of an exception are another thing.
        return not (isinstance(node.value.value, ast.Name) and node.value.value.id in ("exc", "error"))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in ("can_merge", "queue_of")
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute):
        if node.left.attr == "name" and ast.unparse(node.left.value).endswith("command"):
            return isinstance(node.comparators[0], ast.Constant)
        is_identity = isinstance(node.ops[0], ast.Is | ast.IsNot)
        return node.left.attr == "script" and is_identity and not isinstance(node.comparators[0], ast.Constant)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
