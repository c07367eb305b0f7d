"""The rules by which faults are planted in Python: mutmut's operators, and two of our own.

mutmut's runner is not used. It leaves out every decorated function (all properties here), writes attributes of its own
into classes, which msgspec's structs and enums take for theirs, and starts pytest anew for each fault.

Not touched: type annotations, decorators, docstrings, the type of a `cast`, `len`, `isinstance`, the `strict` of a
`zip` (a check of our own), and the words of an error that is raised, of an assertion or of a line in the log. Faults
are planted in functions only; what runs at import is not changed. They live in the process of the tests: programs that
a test starts run without them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import NamedTuple

import libcst as cst
from libcst._nodes.internal import CodegenState
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

from tools.mutants.kept import digest

ROOT = Path(__file__).parents[2]

_LEFT_ALONE = {"len", "isinstance", "assert_never", "TypeVar"}
_LOGGERS = {"log", "_log", "logger", "_logger", "_LOG", "LOG"}
_EXACT = (cst.Equal, cst.NotEqual, cst.Is, cst.IsNot, cst.In, cst.NotIn)


class Lines(NamedTuple):
    """The first and the last line of a piece of text."""

    first: int
    last: int


class Function:
    """An outermost function or method, in which faults are planted."""

    def __init__(
        self, module: _Module, classes: tuple[tuple[int, str], ...], node: cst.FunctionDef, starts: int, at: Lines
    ) -> None:
        self.module, self.classes, self.node = module, classes, node
        """Classes: the line and the name of each that it stands in."""
        self.name = ".".join((*(name for _, name in classes), node.name.value))
        self.starts = starts
        """The line of its first decorator, or of `def`: what its code object has for its first line."""
        self.at = at


@dataclass(frozen=True, eq=False)
class Fault:
    """One change in one function."""

    function: Function
    original: cst.CSTNode
    mutated: cst.CSTNode
    at: Lines
    parameter: str | None
    """The name of the parameter whose default is changed."""

    @property
    def place(self) -> str:
        return f"{self.function.module.path}:{self.at.first} {self.function.module.name}.{self.function.name}"

    @property
    def dotted(self) -> str:
        return f"{self.function.module.name}.{self.function.name}"

    @cached_property
    def digest(self) -> str:
        """What its outcome is kept under: the function as it is, and with the fault."""
        at = self.function.at
        was = self.function.module.lines[at.first - 1 : at.last]
        return digest(self.dotted, was, self.function_text, self.parameter)

    def source(self) -> str:
        """Return the module's text with this fault in it."""
        lines, at = self.function.module.lines, self.function.at
        return "".join([*lines[: at.first - 1], self.function_text, *lines[at.last :]])

    def alone(self) -> str | None:
        """Return the function with this fault within its class, at its place in a module that holds nothing else.

        It compiles in a fraction of the time. None where the function stands in another block.
        """
        module, at, classes = self.function.module, self.function.at, self.function.classes
        first = module.lines[at.first - 1]
        if len(first) - len(first.lstrip()) != 4 * len(classes):
            return None
        lines = [
            module.lines[at - 1].rstrip("\n") if at in module.imports else "" for at in range(1, self.function.starts)
        ]
        for depth, (line, name) in enumerate(classes):
            lines[line - 1] = f"{'    ' * depth}class {name}:"
        decorators = "".join(module.lines[self.function.starts - 1 : at.first - 1])
        return "\n".join(lines) + "\n" + decorators + self.function_text

    @cached_property
    def function_text(self) -> str:
        changed = self.function.node.deep_replace(self.original, self.mutated)
        assert isinstance(changed, cst.FunctionDef)
        bare = changed.with_changes(leading_lines=(), decorators=(), lines_after_decorators=())
        first = self.function.module.lines[self.function.at.first - 1]
        indent = first[: len(first) - len(first.lstrip())]
        state = CodegenState(default_indent="    ", default_newline="\n", indent_tokens=[indent] if indent else [])
        bare._codegen(state)
        return "".join(state.tokens)

    def texts(self) -> tuple[str, str]:
        """Return the lines that differ, without and with the fault, each in one line."""
        before, after = self.function.module.text.splitlines(), self.source().splitlines()
        while before and after and before[0] == after[0]:
            del before[0], after[0]
        while before and after and before[-1] == after[-1]:
            del before[-1], after[-1]
        return tuple(" ".join(line.strip() for line in lines) for lines in (before, after))  # type: ignore[return-value]


class _Module:
    def __init__(self, path: Path) -> None:
        self.path = str(path.relative_to(ROOT))
        self.file = str(path)
        self.name = self.path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        self.text = path.read_text()
        self.lines = self.text.splitlines(keepends=True)
        # Calls of what is imported compile otherwise than calls of other names.
        imports = [node for node in ast.parse(self.text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        self.imports = {at for node in imports for at in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def faults_of(path: Path) -> list[Fault]:
    """Return every fault that the rules know for a file."""
    module = _Module(path)
    visitor = _Visitor(module)
    MetadataWrapper(cst.parse_module(module.text), unsafe_skip_copy=True).visit(visitor)
    return visitor.faults


def code_of(source: str, file: str, function: Function) -> CodeType | None:
    """Compile a module's text and return the code of one of its functions; None where it does not compile."""
    try:
        code = compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return next((each for each in _codes(code) if key_of(each)[1:] == (function.starts, function.name)), None)


def code_with(fault: Fault) -> CodeType | None:
    """Return the code of a function with a fault in it; None where that does not compile."""
    file, alone = fault.function.module.file, fault.alone()
    code = code_of(alone, file, fault.function) if alone is not None else None
    return code if code is not None else code_of(fault.source(), file, fault.function)


def key_of(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_qualname


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


class _Visitor(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, module: _Module) -> None:
        super().__init__()
        self.faults: list[Fault] = []
        self._module = module
        self._classes: list[tuple[int, str]] = []
        self._function: Function | None = None
        self._places: list[Lines] = []
        self._raising = 0
        self._parameter: str | None = None

    def on_visit(self, node: cst.CSTNode) -> bool:
        position = self.get_metadata(PositionProvider, node, None)
        if position is not None:
            self._places.append(Lines(position.start.line, position.end.line))
        else:
            self._places.append(self._places[-1])
        if isinstance(node, cst.ClassDef) and self._function is None:
            self._classes.append((self._places[-1].first, node.name.value))
        if isinstance(node, cst.FunctionDef) and self._function is None:
            self._function = self._entered(node)
        if _is_message(node):
            self._raising += 1
        if isinstance(node, cst.Param) and self._places and self._owns(node):
            self._parameter = node.name.value
        if self._is_left_alone(node):
            return False
        if isinstance(node, cst.Call) and _name(node.func) == "cast":
            node.args[1].visit(self)
            return False
        if isinstance(node, cst.Call) and _name(node.func) == "zip" and self._function is not None:
            self._plant(node)
            for each in node.args:
                if each.keyword is None:
                    each.visit(self)
            return False
        if self._function is not None:
            self._plant(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        node = original_node
        self._places.pop()
        if isinstance(node, cst.Param) and self._owns(node):
            self._parameter = None
        if _is_message(node):
            self._raising -= 1
        if self._function is not None and node is self._function.node:
            self._function = None
        if isinstance(node, cst.ClassDef) and self._function is None:
            self._classes.pop()

    def _entered(self, node: cst.FunctionDef) -> Function:
        starts = self._places[-1].first
        if node.decorators:
            starts = self.get_metadata(PositionProvider, node.decorators[0]).start.line
        return Function(self._module, tuple(self._classes), node, starts, self._places[-1])

    def _owns(self, node: cst.Param) -> bool:
        function = self._function
        if function is None:
            return False
        parameters = function.node.params
        return any(node is each for each in (*parameters.params, *parameters.kwonly_params, *parameters.posonly_params))

    def _is_left_alone(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.TypeAlias):
            return True
        if isinstance(node, cst.FunctionDef):
            return any(_name(each.decorator) == "overload" for each in node.decorators)
        if isinstance(node, cst.Param):
            return node.default is None or not isinstance(node.default, cst.Name | cst.BaseNumber | cst.BaseString)
        if isinstance(node, cst.FormattedString):
            return self._raising > 0
        if isinstance(node, cst.Expr):
            return isinstance(node.value, cst.BaseString | cst.Ellipsis)
        return isinstance(node, cst.Call) and _name(node.func) in _LEFT_ALONE

    def _plant(self, node: cst.CSTNode) -> None:
        assert self._function is not None
        if self._raising and isinstance(node, cst.BaseString):
            return
        for mutated in _mutations(node):
            self.faults.append(Fault(self._function, node, mutated, self._places[-1], self._parameter))


def _mutations(node: cst.CSTNode) -> Iterable[cst.CSTNode]:
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            yield from (each for each in operator(node) if not _is_no_change(node, each))
    yield from _negated(node)
    yield from _dropped(node)


def _is_no_change(node: cst.CSTNode, mutated: cst.CSTNode) -> bool:
    """Tell whether a fault is none: None for False (another rule makes it True), or a `zip` that is not `strict`."""
    if isinstance(node, cst.Assign | cst.AnnAssign):
        return node.value is not None and _name(node.value) == "False"
    if isinstance(node, cst.Call) and isinstance(mutated, cst.Call):
        changed = [each for each in node.args if each not in mutated.args]
        if _name(node.func) == "zip" and any(each.keyword is not None for each in changed):
            return True
        return len(mutated.args) == len(node.args) and [_name(each.value) for each in changed] == ["False"]
    if isinstance(node, cst.SimpleString) and isinstance(mutated, cst.SimpleString):
        # Python knows encodings in any case.
        return node.raw_value.lower() == mutated.raw_value.lower() and node.raw_value in ("utf-8", "utf-16-le", "ascii")
    return False


def _negated(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """`if x` becomes `if not (x)`, unless another rule turns the condition round."""
    if not isinstance(node, cst.If | cst.While):
        return
    test = node.test
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return
    single = isinstance(test, cst.Comparison) and len(test.comparisons) == 1
    if single and isinstance(test.comparisons[0].operator, _EXACT):
        return
    if _name(test) in ("True", "False"):
        return
    parenthesised = test.with_changes(lpar=[*test.lpar, cst.LeftParen()], rpar=[cst.RightParen(), *test.rpar])
    turned = cst.UnaryOperation(cst.Not(), parenthesised)
    if isinstance(node, cst.If):
        yield node.with_changes(test=turned, whitespace_before_test=cst.SimpleWhitespace(" "))
    else:
        yield node.with_changes(test=turned, whitespace_after_while=cst.SimpleWhitespace(" "))


def _dropped(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A call whose value nobody takes becomes `pass`."""
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call | cst.Await | cst.Yield):
        yield cst.Pass()


def _is_message(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Raise | cst.Assert):
        return True
    if not isinstance(node, cst.Call):
        return False
    called = node.func
    if isinstance(called, cst.Attribute):
        return _name(called.value) in _LOGGERS
    return _name(called).endswith("Error") or _name(called) == "say"


def _name(node: cst.CSTNode) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""
