"""The house rules: who may import whom, what the core never touches, no imports in functions, no sleeping."""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

_ROOT = Path(__file__).parents[2]
_CORE = "bullmq_protocol"
_ADAPTERS = ("bullmq_anyio", "bullmq_sync")
_FILES = [file for package in (_CORE, *_ADAPTERS) for file in sorted((_ROOT / package).rglob("*.py"))]

_FOUNDATION = ("_version", "errors", "units", "reply")
_BANNED = frozenset(
    (
        *("time", "random", "secrets", "uuid", "os", "pathlib", "io", "socket", "ssl", "select", "selectors"),
        *("threading", "queue", "asyncio", "concurrent", "multiprocessing", "logging", "warnings", "subprocess"),
        *("importlib", "tempfile", "shutil", "signal", "sys"),
    )
)
_BANNED_CALLS = ("open", "print", "input", "exec", "eval")
_CLOCKS = ("now", "utcnow", "today")
_NEVER = {
    "bullmq_anyio": ("asyncio", "trio", "threading", "bullmq_sync"),
    "bullmq_sync": ("anyio", "asyncio", "bullmq_anyio"),
}


class Import(NamedTuple):
    module: str
    names: tuple[str, ...]
    line: int


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def _imports(file: Path) -> Iterator[Import]:
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            yield Import(node.module or "", tuple(alias.name for alias in node.names), node.lineno)


def _path(file: Path) -> str:
    return str(file.relative_to(_ROOT))


def _module(file: Path) -> str:
    return ".".join(file.relative_to(_ROOT).with_suffix("").parts)


def _core_files() -> list[Path]:
    return [file for file in _FILES if file.is_relative_to(_ROOT / _CORE)]


def _room(module: str) -> tuple[str, str]:
    """Split `bullmq_protocol.commands.adding` into room and module; the modules at the top are in the room ""."""
    parts = module.split(".")[1:]
    if len(parts) >= 2 or parts[:1] in (["commands"], ["operations"], ["worker"], ["testing"]):
        return parts[0], parts[1] if len(parts) > 1 else "__init__"
    return "", parts[0] if parts else "__init__"


def _targets(found: Import) -> Iterator[str]:
    """Name the modules an import reaches: `from bullmq_protocol.commands import adding` is that of adding."""
    folder = _ROOT / found.module.replace(".", "/")
    if not folder.is_dir():
        yield found.module
        return
    for name in found.names:
        is_module = (folder / f"{name}.py").exists() or (folder / name).is_dir()
        yield f"{found.module}.{name}" if is_module else found.module


def _may_import(importer: str, target: str) -> bool:
    room, module = _room(importer)
    to_room, to_module = _room(target)
    if module == "__init__":
        return to_room == room or room == ""
    if target == f"{_CORE}._lua":
        return importer == f"{_CORE}.scripts" or room == "commands"
    if to_module == "wire":
        # It is for connections.
        return False
    if room == "":
        foundation = to_module in _FOUNDATION or module not in _FOUNDATION
        return to_room == "" and to_module not in ("__init__", "_lua") and foundation
    if to_room == "":
        return to_module != "__init__" and (to_module != "flow" or room != "commands")
    if to_room == room == "commands":
        return to_module.startswith("_")
    if to_room == room == "operations":
        return False
    return {
        "operations": to_room == "commands",
        "worker": to_room in ("commands", "worker"),
        "testing": True,
    }.get(room, False)


@pytest.mark.parametrize(
    ("importer", "target", "allowed"),
    [
        ("units", "errors", True),
        ("units", "command", False),
        ("command", "reply", True),
        ("command", "commands.adding", False),
        ("commands.adding", "_lua", True),
        ("scripts", "_lua", True),
        ("job", "_lua", False),
        ("operations.drain", "_lua", False),
        ("commands.adding", "commands.fetching", False),
        ("commands.adding", "worker.events", False),
        ("operations.drain", "commands.adding", True),
        ("operations.drain", "operations.clean", False),
        ("operations.drain", "worker.events", False),
        ("worker.machine", "worker.events", True),
        ("worker.machine", "operations.drain", False),
        ("worker.machine", "testing.clock", False),
        ("testing.simulate", "worker.machine", True),
        ("wire", "commands.batches", False),
        ("wire", "merge", True),
        ("commands.adding", "commands._merging", True),
        ("wire", "operations.drain", False),
        ("commands.batches", "wire", False),
    ],
)
def test_table_of_imports(importer: str, target: str, allowed: bool) -> None:
    assert _may_import(f"{_CORE}.{importer}", f"{_CORE}.{target}") is allowed


@pytest.mark.parametrize("file", _core_files(), ids=_path)
def test_core_imports_by_the_table(file: Path) -> None:
    importer = _module(file)
    wrong = [
        f"{file}:{found.line} {target}"
        for found in _imports(file)
        if found.module.partition(".")[0] == _CORE
        for target in _targets(found)
        if not _may_import(importer, target)
    ]
    assert wrong == []


def test_core_has_no_import_cycle() -> None:
    graph = {
        _module(file): {target for found in _imports(file) for target in _targets(found) if target.startswith(_CORE)}
        for file in _core_files()
        if file.name != "__init__.py"
    }
    order = list(TopologicalSorter(graph).static_order())
    assert set(graph) <= set(order)


@pytest.mark.parametrize("file", _core_files(), ids=_path)
def test_core_imports_the_standard_library_and_msgspec_alone(file: Path) -> None:
    extra = {"hypothesis"} if file.name == "strategies.py" else set()
    roots = {found.module.partition(".")[0]: found.line for found in _imports(file)}
    allowed = (sys.stdlib_module_names - _BANNED) | {_CORE, "msgspec"} | extra
    assert {root: line for root, line in roots.items() if root not in allowed} == {}


@pytest.mark.parametrize("file", _core_files(), ids=_path)
def test_core_reads_no_clock_and_touches_no_world(file: Path) -> None:
    wrong: list[str] = []
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Global):
            wrong.append(f"{node.lineno}: global")
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in _BANNED_CALLS:
                wrong.append(f"{node.lineno}: {called.id}()")
            owner = called.value if isinstance(called, ast.Attribute) else None
            name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
            if isinstance(called, ast.Attribute) and called.attr in _CLOCKS and name in ("datetime", "date"):
                wrong.append(f"{node.lineno}: {name}.{called.attr}()")
    assert wrong == []


@pytest.mark.parametrize("file", _core_files(), ids=_path)
def test_core_has_no_mutable_state_in_modules(file: Path) -> None:
    mutable = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    makers = ("list", "dict", "set", "defaultdict", "deque", "Counter", "OrderedDict", "bytearray", "count")
    wrong: list[str] = []
    for node in _tree(file).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            continue
        value = node.value
        made = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in makers
        if made or isinstance(value, mutable):
            wrong.append(f"{node.lineno}: wrap it in MappingProxyType, frozenset or tuple")
    assert wrong == []


@pytest.mark.parametrize("file", _FILES, ids=_path)
def test_no_imports_inside_functions(file: Path) -> None:
    inside = [
        inner.lineno
        for node in ast.walk(_tree(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    assert inside == []


@pytest.mark.parametrize("adapter", _ADAPTERS)
def test_adapter_keeps_to_its_colour_and_to_public_names(adapter: str) -> None:
    wrong: list[str] = []
    for file in _FILES:
        if not file.is_relative_to(_ROOT / adapter):
            continue
        for found in _imports(file):
            root = found.module.partition(".")[0]
            place = f"{_path(file)}:{found.line}"
            # A task for each job: in a task group of anyio's it costs twice as much.
            makes_tasks = root == "asyncio" and _path(file) == "bullmq_anyio/tasks.py"
            # Whether a task itself is cancelled, which anyio does not tell.
            asks_task = found.module == "asyncio" and tuple(found.names) == ("current_task",)
            if root in _NEVER[adapter] and not (makes_tasks or (asks_task and _path(file) == "bullmq_anyio/guard.py")):
                wrong.append(f"{place} {found.module}")
            if root in ("redis", "coredis") and root not in file.stem:
                wrong.append(f"{place} {found.module} outside its transport")
            parts = (*found.module.split("."), *found.names)
            if root == _CORE and any(part.startswith("_") and not part.startswith("__") for part in parts):
                wrong.append(f"{place} private: {'.'.join(parts)}")
    assert wrong == []


def test_importing_the_core_loads_no_loop_socket_thread_log_or_dice() -> None:
    modules = [_module(file).removesuffix(".__init__") for file in _core_files() if file.name != "strategies.py"]
    site = str(Path(msgspec.__file__).parents[1])
    program = (
        f"import sys; sys.path[:0] = [{str(_ROOT)!r}, {site!r}]\n"
        f"for name in {modules!r}: __import__(name)\n"
        "print(*sorted({'asyncio', 'socket', 'threading', 'logging', 'random', 'ssl'} & set(sys.modules)))"
    )
    # Without site, no start-up file of an installed package can load something first.
    done = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.mark.parametrize("folder", ["unit", "property"])
def test_fast_tests_never_sleep(folder: str) -> None:
    sleeping = [
        f"{_path(file)}:{number}"
        for file in sorted((_ROOT / "tests" / folder).rglob("*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\bsleep\(", line)
    ]
    assert sleeping == []


# Where a line of its own is meant: a field, an item, a rule, code.
_OWN_LINE = re.compile(r"[A-Z][a-z]+:|[-*|>@=]|\(?\d+[.)]|```")
_FEW_WORDS = 3
_LINE_LENGTH = 120


def ragged(text: str) -> list[int]:
    """Return the lines of docstrings that end early though the next word would have fitted, as rewrapping leaves."""
    lines = text.splitlines()
    found: list[int] = []
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if not isinstance(node.value.value, str):
            continue
        for number in range(node.lineno, node.end_lineno or node.lineno):
            line = lines[number - 1]
            words, following = (each.strip().strip('"').split() for each in (line, lines[number]))
            if not words or not following or len(words) > _FEW_WORDS or line.endswith(":"):
                continue
            if _OWN_LINE.match(words[0]) or _OWN_LINE.match(following[0]):
                continue
            if len(line) + 1 + len(following[0]) <= _LINE_LENGTH:
                found.append(number)
    return found


def test_a_ragged_docstring_is_seen() -> None:
    head = '"""Send one step.\n\nIt repeats a command by itself only when nothing was sent, or\n'
    assert ragged(f'{head}when the\ncommand is safe; then once.\n"""\n') == [4]
    assert ragged(f'{head}when the command is safe; then once.\n"""\n') == []
    assert ragged('"""Theory\n------\nA run.\n\nArgs:    id\nReply:   0\n\n- one\n- two\n"""\n') == []
    assert ragged(f'"""Call it.\n\n    {"x" * 115}\n    y\n    {"z" * 115}\n"""\n') == []


@pytest.mark.parametrize("file", _FILES, ids=_path)
def test_docstrings_are_not_ragged(file: Path) -> None:
    assert ragged(file.read_text(encoding="utf-8")) == []
