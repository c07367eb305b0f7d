"""Record the public names of the stable and provisional tiers: `python tools/public_names.py [--check]`.

`docs/stability.md` says what the tiers promise. The list is `tests/unit/public_names.txt`: one line for each name with
its signature, so that a change of what others may use is seen where it is reviewed.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "tests" / "unit" / "public_names.txt"
PACKAGES = (
    *("bullmq_protocol", "bullmq_anyio", "bullmq_sync", "bullmq_otel", "bullmq_prometheus", "bullmq_django"),
    *("bullmq_outbox", "bullmq_pytest"),
    *("monque_protocol", "monque_anyio", "monque_sync"),
)

TIERS = MappingProxyType(
    {
        "stable": (
            "bullmq_protocol",
            "bullmq_protocol.errors",
            "bullmq_anyio",
            "bullmq_anyio.net.redis_asyncio",
            "bullmq_sync",
            "bullmq_otel",
            "bullmq_prometheus",
            "bullmq_django",
            "bullmq_outbox",
            "monque_protocol.errors",
            "monque_protocol.events",
            "monque_protocol.options",
            "monque_anyio",
            "monque_sync",
        ),
        "provisional": (
            "bullmq_protocol.command",
            "bullmq_protocol.commands.*",
            "bullmq_protocol.common.codec",
            "bullmq_protocol.common.payloads",
            "bullmq_protocol.events.stream",
            "bullmq_protocol.model.failure",
            "bullmq_protocol.net.address",
            "bullmq_protocol.net.handshake",
            "bullmq_protocol.net.transport",
            "bullmq_protocol.observability.metrics",
            "bullmq_protocol.observability.telemetry",
            "bullmq_protocol.operations.*",
            "bullmq_protocol.relay.*",
            "bullmq_protocol.testing.*",
            "bullmq_protocol.worker.*",
            "bullmq_anyio.relay",
            "bullmq_anyio.testing",
            "bullmq_sync.relay",
            "bullmq_sync.testing",
            "bullmq_sync.testing.stateful",
            "bullmq_pytest",
            "bullmq_django.workers",
            "monque_protocol.backoff",
            "monque_protocol.commands",
            "monque_protocol.cron",
            "monque_protocol.cursor",
            "monque_protocol.document",
            "monque_protocol.operations",
            "monque_protocol.scheduler",
        ),
    }
)
"""Modules, or with `*` those of a room."""

_CALLED = ("__init__", "__call__", "__enter__", "__aenter__", "__iter__", "__aiter__")


def main(arguments: Sequence[str]) -> int:
    """Write the list, or tell whether it is stale; return the exit status."""
    if list(arguments) not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    text = listed()
    if not arguments:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print(f"tools/public_names.py: {TARGET.name} is stale, run python tools/public_names.py", file=sys.stderr)
        return 1
    return 0


def listed() -> str:
    """Return the text of the list."""
    names = Names()
    lines: list[str] = []
    for tier, patterns in TIERS.items():
        lines.append(f"# {tier}")
        for pattern in patterns:
            for module in names.modules(pattern):
                lines += names.of(module)
    return "\n".join(lines) + "\n"


class Names:
    """What the modules of our packages define, read from their text: nothing is imported."""

    def __init__(self, root: Path = ROOT, packages: Sequence[str] = PACKAGES) -> None:
        self._trees = {
            ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): ast.parse(
                file.read_text(encoding="utf-8")
            )
            for package in packages
            for file in sorted((root / package).rglob("*.py"))
        }

    def modules(self, pattern: str) -> list[str]:
        """Return the modules that a line of a tier names."""
        room = pattern.removesuffix(".*")
        found = [name for name in self._trees if name == pattern or (room != pattern and name.startswith(f"{room}."))]
        return [name for name in found if not name.rpartition(".")[2].startswith("_")]

    def of(self, module: str) -> list[str]:
        """Return a line for each public name of a module, and for each public member of its classes."""
        exported = self._exported(module)
        names = exported if exported is not None else [name for name in self._defined(module) if name[0] != "_"]
        return [f"{module}.{line}" for name in sorted(names) for line in self._lines(module, name)]

    def _exported(self, module: str) -> list[str] | None:
        for node in self._trees[module].body:
            if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == ["__all__"]:
                return [str(each) for each in ast.literal_eval(node.value)]
        return None

    def _defined(self, module: str) -> dict[str, list[ast.stmt]]:
        found: dict[str, list[ast.stmt]] = {}
        for node in self._trees[module].body:
            for name in _names(node):
                found.setdefault(name, []).append(node)
        return found

    def _home(self, module: str, name: str) -> tuple[str, str] | None:
        """Follow a name to the module of ours that defines it."""
        if name in self._defined(module):
            return module, name
        for node in _with_those_for_type_checkers(self._trees[module].body):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if (alias.asname or alias.name) == name and node.module in self._trees:
                        return self._home(node.module, alias.name)
        return None

    def _lines(self, module: str, name: str) -> Iterator[str]:
        home = self._home(module, name)
        if home is None:
            yield f"{name}: from elsewhere"
            return
        for node in self._defined(home[0])[home[1]]:
            if isinstance(node, ast.ClassDef):
                yield f"{name}: class({', '.join(ast.unparse(each) for each in node.bases)})"
                members: dict[str, list[str]] = {}
                self._members(home[0], node, members)
                for member in sorted(members):
                    yield from (f"{name}.{line}" for line in members[member])
            else:
                yield from _said(name, node)

    def _members(self, module: str, node: ast.ClassDef, members: dict[str, list[str]]) -> None:
        """Add the members of a class, and what it inherits from classes of ours and has not itself."""
        own: dict[str, list[str]] = {}
        for each in node.body:
            for name in _names(each):
                if name[0] != "_" or name in _CALLED:
                    own.setdefault(name, []).extend(_said(name, each))
        for name, lines in own.items():
            members.setdefault(name, lines)
        for base in node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            home = self._home(module, plain.id) if isinstance(plain, ast.Name) else None
            for inherited in self._defined(home[0])[home[1]] if home else ():
                if home and isinstance(inherited, ast.ClassDef):
                    self._members(home[0], inherited, members)


def _with_those_for_type_checkers(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, also those of `if TYPE_CHECKING`: such a name is imported when it is asked for."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body


def _names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign) and not _is_type_variable(node.value):
        return [each.id for each in node.targets if isinstance(each, ast.Name)]
    return []


def _is_type_variable(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in ("TypeVar", "TypeVarTuple", "ParamSpec")
    )


def _said(name: str, node: ast.stmt) -> Iterator[str]:
    """Yield the signature of a function, the type of a value."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        if decorators & {"property", "cached_property"}:
            yield f"{name}:{result.removeprefix(' ->')}"
        else:
            kind = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
            kind += "".join(f"{each} " for each in ("classmethod", "staticmethod", "overload") if each in decorators)
            yield f"{name}: {kind}({ast.unparse(node.args)}){result}"
    elif isinstance(node, ast.AnnAssign):
        yield f"{name}: {ast.unparse(node.annotation)}" + (f" = {_short(node.value)}" if node.value else "")
    elif isinstance(node, ast.Assign):
        yield f"{name} = {_short(node.value)}"
    elif isinstance(node, ast.ClassDef):
        yield f"{name}: class"


def _short(value: ast.expr) -> str:
    """A plain value or type as it is written; of what is made, its maker."""
    if isinstance(value, ast.Call):
        return f"{ast.unparse(value.func)}(...)"
    text = ast.unparse(value)
    return text if len(text) <= 120 else "..."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
