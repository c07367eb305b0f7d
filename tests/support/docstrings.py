"""The docstrings of the facade: what they name, and the examples in them."""

import ast
import doctest
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import anyio.to_thread

import bullmq_anyio
import bullmq_anyio.relay
import bullmq_anyio.testing
import bullmq_sync
import bullmq_sync.relay
import bullmq_sync.testing

PACKAGES: tuple[ModuleType, ...] = (bullmq_anyio, bullmq_sync)
FACADE = ("Queue", "Job", "Worker", "Router", "JobFilter", "QueueEvents", "FlowProducer", "QueueEventsProducer")
# What methods of those return: only they make it.
RETURNED = ("EventStream", "Notices", "Pages", "Items")
FUNCTIONS = ("bullmq_scripts", "clock", "connect", "current_job", "perform", "run", "run_workers")
# Of the test kit.
KIT = ("assert_added", "assert_not_added", "fake_job", "queued", "run_handler", "travel", "work_off")
# In a module of their own, which a program imports if it wants it.
RELAY = ("Relay", "RelayNode")
_NOT_MADE = ("Job", "RelayNode", *RETURNED)
_CHECKER = doctest.OutputChecker()
_SECTION = re.compile(r"^(Args|Returns|Raises|Examples):\n((?: +.*\n|\n(?= ))+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+): (.+\n(?:     .+\n)*)", re.MULTILINE)


class Documented(NamedTuple):
    """A public callable or property of a class; the class itself, or a function, where `name` is empty."""

    package: ModuleType
    kind: str
    name: str
    member: Any

    @property
    def is_property(self) -> bool:
        return isinstance(self.member, property)

    @property
    def text(self) -> str:
        return inspect.getdoc(self.member.fget if self.is_property else self.member) or ""

    @property
    def label(self) -> str:
        return f"{self.package.__name__}.{self.kind}{'.' if self.name else ''}{self.name}"

    @property
    def signature(self) -> inspect.Signature | None:
        """What a caller gives and gets; None where there is nothing to call."""
        if self.is_property or (not self.name and self.kind in _NOT_MADE):
            return None
        return inspect.signature(self.member)


def documented() -> Iterator[Documented]:
    """Yield the classes of both packages with their public methods and properties, and the functions."""
    for package in PACKAGES:
        for name in FUNCTIONS:
            yield Documented(package, name, "", getattr(package, name))
        for name in KIT:
            yield Documented(package, name, "", getattr(package.testing, name))
        for name in (*FACADE, *RETURNED, *RELAY):
            kind = getattr(package.relay if name in RELAY else package, name)
            yield Documented(package, name, "", kind)
            owners = [owner for owner in reversed(kind.__mro__) if owner.__module__.startswith("bullmq_")]
            members = {name: member for owner in owners for name, member in vars(owner).items()}
            for member in members:
                if not member.startswith("_"):
                    yield Documented(package, name, member, members[member])


def sections(text: str) -> dict[str, str]:
    """Return the bodies of the sections of a docstring by name."""
    return dict(_SECTION.findall(f"{text}\n"))


def entries(text: str, section: str) -> dict[str, str]:
    """Return what a section of a docstring has entries for, with what it says of each."""
    return {name: " ".join(said.split()) for name, said in _ENTRY.findall(sections(text).get(section, ""))}


def examples(text: str) -> list[doctest.Example]:
    """Return the steps of the example of a docstring, each with the output that it promises."""
    return doctest.DocTestParser().get_examples(sections(text).get("Examples", ""))


def needed(steps: list[doctest.Example]) -> set[str]:
    """Return the names that an example reads before it sets them."""
    known: set[str] = set()
    found: set[str] = set()
    for step in steps:
        nodes = list(ast.walk(ast.parse(step.source)))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        inner = {node.target.id for node in nodes if isinstance(node, ast.comprehension) and hasattr(node.target, "id")}
        found |= {node.id for node in names if isinstance(node.ctx, ast.Load)} - known - inner
        known |= {node.id for node in names if isinstance(node.ctx, ast.Store)} - inner
    return found


async def play(steps: list[doctest.Example], names: dict[str, Any], *, in_threads: bool) -> list[str]:
    """Run the steps; return what went otherwise than they promise."""
    wrong: list[str] = []
    for step in steps:
        printed: list[str] = []
        names["print"] = lambda *values, printed=printed: printed.append(" ".join(map(str, values)))
        lines = ast.parse(step.source).body
        mode = "eval" if len(lines) == 1 and isinstance(lines[0], ast.Expr) else "exec"
        flags = 0 if in_threads else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        code = compile(step.source, "<example>", mode, flags)
        if in_threads:
            value = await anyio.to_thread.run_sync(eval, code, names, abandon_on_cancel=True)
        else:
            value = eval(code, names)
            if code.co_flags & inspect.CO_COROUTINE:
                value = await value
        got = "".join(f"{line}\n" for line in (*printed, *([] if value is None else [repr(value)])))
        if not _CHECKER.check_output(step.want, got, doctest.ELLIPSIS):
            wrong.append(f"{step.source.strip()}\n  promises {step.want.strip()!r}\n  shows    {got.strip()!r}")
    return wrong
