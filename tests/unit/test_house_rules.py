"""The house rules: who may import whom, what the core never touches, no imports in functions, no sleeping.

CONTRIBUTING has the same tables in words.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec
import pytest

_ROOT = Path(__file__).parents[2]
_CORE = "bullmq_protocol"
# The second system's core, which stands on what is neutral in the first.
_MONQUE = "monque_protocol"
_ADAPTERS = ("bullmq_anyio", "bullmq_sync")
# What stands on the core: the adapters, and what is installed or run beside them.
_BESIDE = (
    "bullmq_cli",
    "bullmq_conformance",
    "bullmq_django",
    "bullmq_doctor",
    "bullmq_otel",
    "bullmq_outbox",
    "bullmq_prometheus",
    "bullmq_pytest",
    "bench",
    "examples",
    "monque_anyio",
    "monque_sync",
)
_FILES = [
    file for package in (_CORE, _MONQUE, *_ADAPTERS, *_BESIDE) for file in sorted((_ROOT / package).rglob("*.py"))
]

_TEXTS = ("scripts._lua", "scripts._lua_later")

# Each room of the core, lowest first, and what it may import besides its own modules: rooms, or single modules of them.
_ROOMS = MappingProxyType(
    {
        "_version": (),
        "lazy": (),
        "errors": ("lazy",),
        "common": ("lazy", "errors"),
        "command": ("errors", "common"),
        "model": ("lazy", "errors", "common"),
        "events": ("errors", "common"),
        "scripts": ("lazy", "errors", "common.switches", "command"),
        "net": ("errors", "common", "command"),
        "commands": ("lazy", "errors", "common", "command", "model", "events", *_TEXTS, "net.merge"),
        "observability": ("errors", "common", "model"),
        "operations": (
            *("lazy", "errors", "common", "command", "model", "events", "net.merge", "commands", "observability"),
        ),
        "worker": ("errors", "common", "command", "model", "commands", "net.handshake", "net.merge", "observability"),
        "relay": ("lazy", "errors", "common", "command", "scripts._lua_relay"),
        "testing": ("errors", "common", "command", "model", "events", "commands", "net", "operations", "worker"),
    }
)
# What starts servers for tests, and reads files: it touches the world.
_WORLDLY = ("testing._append_only", "testing._docker", "testing.server", "testing.vectors")
# Modules of these rooms do not import each other, but for what they share.
_SHARED = MappingProxyType(
    {"commands": ("commands._shared", "commands._merging"), "operations": ("operations.paging", "operations.pausing")},
)
_NOT = MappingProxyType({"commands": ("model.flow",)})
# What only the first may import of its own room: the texts of the scripts; what connections pack.
_ONLY = MappingProxyType({**dict.fromkeys((*_TEXTS, "scripts._lua_switched"), ("scripts.profile",)), "net.wire": ()})

# What knows nothing of Redis and of queues, so that a system of another kind can stand on it: these import each other.
_NEUTRAL = (
    *("lazy", "errors", "common.codec", "common.reply", "common.units"),
    *("model.backoff", "model.categories", "model.cron", "model.failure"),
    *("observability.metrics", "observability.stack", "observability.telemetry"),
    *("worker.actions", "worker.dispatch", "worker.events", "worker.lifecycle", "worker.snapshot"),
)

# The modules of Monque's core, lowest first: each may import those before it, and of the other core what is neutral.
_MONQUE_MODULES = (
    *("errors", "document", "options", "backoff", "cron", "cursor", "commands", "events", "operations", "scheduler"),
)

# What stands on the core may import of it, and of others besides the standard library and msgspec.
_OF_THE_CORE = MappingProxyType(
    {
        "bullmq_anyio": tuple(room for room in _ROOMS if room not in ("_version", "testing")),
        "bullmq_anyio.net": ("errors", "common", "command", "net"),
        "bullmq_anyio.testing": tuple(room for room in _ROOMS if room not in ("_version", "relay", "scripts")),
        "bullmq_sync": tuple(room for room in _ROOMS if room not in ("_version", "testing")),
        "bullmq_sync.net": ("errors", "common", "command", "net"),
        "bullmq_sync.testing": tuple(room for room in _ROOMS if room not in ("_version", "relay", "scripts")),
        "bullmq_cli": ("errors", "worker.health"),
        "bullmq_conformance": (
            *("errors", "commands.schedulers", "model", "net.address", "scripts.profile"),
            *("testing.vectors", "worker.options"),
        ),
        "bullmq_django": ("common.keys", "model", "observability", "scripts.profile"),
        "bullmq_cli.ctl": tuple(room for room in _ROOMS if room not in ("_version", "testing", "relay", "worker")),
        "bullmq_doctor": ("errors", "common", "model.cron", "net.address", "net.server_info", "net.topology"),
        "bullmq_otel": ("observability.telemetry",),
        "bullmq_outbox": ("errors", "common.codec", "common.units", "model.outbox"),
        **dict.fromkeys(
            ("bullmq_outbox.aio", "bullmq_outbox.sync"),
            ("errors", "model.options", "operations.add_jobs", "operations.relay_entries", "scripts.profile"),
        ),
        "bullmq_prometheus": ("observability.metrics",),
        "bullmq_pytest": ("testing.clock", "testing.server"),
        "monque_anyio": _NEUTRAL,
        "monque_sync": _NEUTRAL,
        "bench": tuple(room for room in _ROOMS if room != "_version"),
        "bench.peers": (),
        "examples": tuple(room for room in _ROOMS if room != "_version"),
    }
)
_OF_OTHERS = MappingProxyType(
    {
        # typing_extensions: for type checkers alone, never loaded.
        "bullmq_anyio": ("anyio", "hiredis", "typing_extensions"),
        "bullmq_sync": ("hiredis", "typing_extensions"),
        "bullmq_sync.testing": ("hypothesis",),
        "bullmq_cli": ("click",),
        "bullmq_conformance": ("bullmq_sync", "click", "hiredis", "hypothesis"),
        "bullmq_django": (
            *("bullmq_sync", "bullmq_cli", "bullmq_doctor", "bullmq_outbox", "click"),
            *("asgiref", "django", "django_tasks"),
        ),
        "bullmq_cli.ctl": ("bullmq_sync", "bullmq_doctor", "click", "rich", "redis"),
        "bullmq_doctor": ("bullmq_cli.text", "redis", "click", "rich"),
        "bullmq_otel": ("opentelemetry",),
        "bullmq_outbox": ("sqlalchemy",),
        "bullmq_outbox.aio": ("bullmq_anyio", "anyio", "psycopg", "sqlalchemy"),
        "bullmq_outbox.sync": ("bullmq_sync", "psycopg", "sqlalchemy"),
        "bullmq_prometheus": ("prometheus_client",),
        "bullmq_pytest": ("pytest",),
        "monque_anyio": (_MONQUE, "anyio", "pymongo", "bson"),
        "monque_sync": (_MONQUE, "pymongo", "bson"),
        "bench": (
            *_ADAPTERS,
            "bullmq_conformance",
            "bullmq_outbox",
            "psycopg",
            "anyio",
            "trio",
            "hiredis",
            "redis",
            "tests.support",
        ),
        # Other queues, in environments that have nothing of ours.
        "bench.peers": ("arq", "celery", "dramatiq", "huey", "redis", "rq", "saq", "streaq", "taskiq", "taskiq_redis"),
        "examples": (
            *(*_ADAPTERS, "anyio", "trio", "redis", "coredis", "hypothesis", "tests.support"),
            *(_MONQUE, "monque_anyio", "pymongo"),
            *("django", "django_tasks", "shop", "fastapi", "flask", "httpx", "pydantic", "pytest", "starlette"),
        ),
    }
)
# One side of the bench is BullMQ's own port.
# One module of the doctor looks at the other system.
_ALONE = MappingProxyType({"bench/port.py": ("bullmq",), "bullmq_doctor/monque.py": (_MONQUE, "pymongo", "bson")})
# The rooms of the adapters: connections know nothing of queues and workers.
_NET_KNOWS = MappingProxyType({"bullmq_anyio": ("primitives", "wakes"), "bullmq_sync": ("forks", "primitives")})

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


_OF_THE_LOOP = ("add_reader", "add_writer", "remove_reader", "remove_writer", "call_soon", "call_later", "call_at")


class Import(NamedTuple):
    module: str
    names: tuple[str, ...]
    line: int


@pytest.fixture(scope="module", autouse=True)
def _trees_are_dropped() -> Iterator[None]:
    """They are half a million objects, through which each later look for garbage would go."""
    yield
    _nodes.cache_clear()
    _tree.cache_clear()


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


@functools.cache
def _nodes(file: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(file)))


def _imports(file: Path) -> Iterator[Import]:
    for node in _nodes(file):
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


def _pure_files() -> list[Path]:
    return [
        file
        for file in _FILES
        if file.is_relative_to(_ROOT / _MONQUE)
        or (file.is_relative_to(_ROOT / _CORE) and _room(_module(file))[1] not in _WORLDLY)
    ]


def _room(module: str) -> tuple[str, str]:
    """Split `bullmq_protocol.commands.adding` into room and name; a module at the top is a room of its own."""
    name = module.partition(".")[2] or "__init__"
    return name.partition(".")[0], name


def _targets(found: Import) -> Iterator[str]:
    """Name the modules an import reaches: `from bullmq_protocol.commands import adding` is that of adding."""
    folder = _ROOT / found.module.replace(".", "/")
    if not folder.is_dir():
        yield found.module
        return
    for name in found.names:
        is_module = (folder / f"{name}.py").exists() or (folder / name).is_dir()
        yield f"{found.module}.{name}" if is_module else found.module


def _is_among(module: str, listed: Iterable[str]) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in listed)


def _may_import(importer: str, target: str) -> bool:
    room, name = _room(importer)
    to_room, to_name = _room(target)
    if room == "__init__":
        return to_room != "testing"
    if name == f"{room}.__init__" or to_room == "__init__" or _is_among(to_name, _NOT.get(room, ())):
        # A room's `__init__` says what is in it, and imports nothing.
        return False
    if to_room == room:
        return (to_name not in _ONLY or name in _ONLY[to_name]) and to_name in _SHARED.get(room, (to_name,))
    return _is_among(to_name, _ROOMS.get(room, ()))


@pytest.mark.parametrize(
    ("importer", "target", "allowed"),
    [
        ("errors", "common.units", False),
        ("common.units", "errors", True),
        ("common.keys", "common.codec", True),
        ("common.units", "command", False),
        ("command", "common.reply", True),
        ("command", "commands.adding", False),
        ("model.job", "model.options", True),
        ("model.job", "command", False),
        ("model.job", "events.stream", False),
        ("events.waiters", "events.stream", True),
        ("events.stream", "model.job", False),
        ("commands.adding", "scripts._lua", True),
        ("commands.adding", "scripts.profile", False),
        ("scripts.profile", "scripts._lua", True),
        ("scripts._lua", "command", True),
        ("scripts._lua", "scripts.profile", True),
        ("operations.drain", "scripts._lua", False),
        ("commands.adding", "model.job", True),
        ("commands.adding", "model.flow", False),
        ("commands.adding", "commands._shared", True),
        ("commands.adding", "commands.fetching", False),
        ("commands.adding", "worker.events", False),
        ("commands.adding", "net.address", False),
        ("operations.drain", "commands.adding", True),
        ("operations.drain", "operations.paging", True),
        ("operations.drain", "operations.clean", False),
        ("operations.drain", "worker.events", False),
        ("observability.telemetry", "model.job", True),
        ("observability.telemetry", "worker.notices", False),
        ("worker.machine", "worker.events", True),
        ("worker.machine", "net.handshake", True),
        ("worker.machine", "net.topology", False),
        ("worker.machine", "operations.drain", False),
        ("worker.machine", "testing.clock", False),
        ("testing.simulate", "worker.machine", True),
        ("net.wire", "net.merge", True),
        ("net.wire", "commands.batches", False),
        ("commands._merging", "net.merge", True),
        ("commands.adding", "commands._merging", True),
        ("operations.drain", "net.merge", True),
        ("operations.drain", "net.topology", False),
        ("net.wire", "operations.drain", False),
        ("net.topology", "commands.batches", False),
        ("net.topology", "net.wire", False),
        ("commands.batches", "net.wire", False),
        ("model.__init__", "model.job", False),
        ("somewhere.new", "errors", False),
    ],
)
def test_table_of_imports(importer: str, target: str, allowed: bool) -> None:
    assert _may_import(f"{_CORE}.{importer}", f"{_CORE}.{target}") is allowed


def test_every_room_of_the_core_has_a_row_and_each_row_a_room() -> None:
    assert {_room(_module(file))[0] for file in _core_files()} - {"__init__"} == set(_ROOMS)
    lower: set[str] = set()
    for room, allowed in _ROOMS.items():
        assert {each.partition(".")[0] for each in allowed} <= lower, room
        lower.add(room)


def test_core_imports_by_the_table() -> None:
    wrong = [
        f"{file}:{found.line} {target}"
        for file in _core_files()
        for found in _imports(file)
        if found.module.partition(".")[0] == _CORE
        for target in _targets(found)
        if not _may_import(_module(file), target)
    ]
    assert wrong == []


@pytest.mark.parametrize("module", _NEUTRAL)
def test_what_is_neutral_imports_what_is_neutral(module: str) -> None:
    file = (_ROOT / _CORE / module.replace(".", "/")).with_suffix(".py")
    targets = [target for found in _imports(file) for target in _targets(found)]
    ours = [target.removeprefix(f"{_CORE}.") for target in targets if target.startswith(f"{_CORE}.")]
    assert set(ours) <= set(_NEUTRAL)


def _wrong_in_monque(importer: str, targets: Iterable[str]) -> list[str]:
    """Return what a module of Monque's core may not import, of the two cores."""
    name = importer.partition(".")[2]
    lower = _MONQUE_MODULES[: _MONQUE_MODULES.index(name)] if name in _MONQUE_MODULES else ()
    allowed = {f"{_MONQUE}.{each}" for each in lower} | {f"{_CORE}.{each}" for each in _NEUTRAL}
    return [each for each in targets if each.startswith((f"{_MONQUE}.", f"{_CORE}.")) and each not in allowed]


def test_monque_imports_what_is_lower_and_what_is_neutral() -> None:
    files = [file for file in _FILES if file.is_relative_to(_ROOT / _MONQUE)]
    assert {_module(file).partition(".")[2] for file in files} == {*_MONQUE_MODULES, "__init__"}
    wrong = [
        f"{file}:{found.line} {each}"
        for file in files
        for found in _imports(file)
        for each in _wrong_in_monque(_module(file), _targets(found))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("importer", "target", "allowed"),
    [
        ("monque_protocol.commands", "monque_protocol.document", True),
        ("monque_protocol.commands", "monque_protocol.scheduler", False),
        ("monque_protocol.scheduler", "bullmq_protocol.worker.actions", True),
        ("monque_protocol.scheduler", "bullmq_protocol.worker.machine", False),
        ("monque_protocol.commands", "bullmq_protocol.command", False),
        ("monque_protocol.somewhere_new", "monque_protocol.errors", False),
    ],
)
def test_table_of_imports_of_monque(importer: str, target: str, allowed: bool) -> None:
    assert (_wrong_in_monque(importer, [target]) == []) is allowed


@pytest.mark.parametrize("package", [_CORE, *_ADAPTERS, "bullmq_otel", "bullmq_prometheus"])
def test_bullmq_imports_nothing_of_monque(package: str) -> None:
    files = [file for file in _FILES if file.is_relative_to(_ROOT / package)]
    assert [found for file in files for found in _imports(file) if found.module.startswith("monque_")] == []


def test_core_has_no_import_cycle() -> None:
    graph = {
        _module(file): {target for found in _imports(file) for target in _targets(found) if target.startswith(_CORE)}
        for file in _core_files()
        if file.name != "__init__.py"
    }
    order = list(TopologicalSorter(graph).static_order())
    assert set(graph) <= set(order)


def test_core_imports_the_standard_library_and_msgspec_alone() -> None:
    allowed = (sys.stdlib_module_names - _BANNED) | {_CORE, _MONQUE, "msgspec"}
    wrong = [
        f"{file}:{found.line} {found.module}"
        for file in _pure_files()
        for found in _imports(file)
        if found.module.partition(".")[0] not in allowed
        and (file.name, found.module.partition(".")[0])
        not in (("strategies.py", "hypothesis"), ("lazy.py", "importlib"))
    ]
    wrong += [
        f"{file} {late}"
        for file in _pure_files()
        for late in re.findall(r"lazy_module\((.+?)\)", file.read_text(encoding="utf-8"))
        if late.strip('"') not in allowed and file.name != "lazy.py"
    ]
    assert wrong == []


def _of_the_world(node: ast.AST) -> str | None:
    """Return what reads a clock or touches the world there, or keeps a state."""
    if isinstance(node, ast.Global):
        return "global"
    if not isinstance(node, ast.Call):
        return None
    called = node.func
    if isinstance(called, ast.Name):
        return f"{called.id}()" if called.id in _BANNED_CALLS else None
    if isinstance(called, ast.Attribute) and called.attr in _CLOCKS:
        owner = called.value
        name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        return f"{name}.{called.attr}()" if name in ("datetime", "date") else None
    return None


def test_core_reads_no_clock_and_touches_no_world() -> None:
    wrong = [
        f"{file}:{getattr(node, 'lineno', 0)} {what}"
        for file in _pure_files()
        for node in _nodes(file)
        if (what := _of_the_world(node)) is not None
    ]
    assert wrong == []


def test_what_is_pure_imports_nothing_that_touches_the_world() -> None:
    worldly = {f"{_CORE}.{each}" for each in _WORLDLY}
    wrong = [
        f"{file}:{found.line}" for file in _pure_files() for found in _imports(file) if worldly & {*_targets(found)}
    ]
    assert wrong == []


def _is_mutable_state(node: ast.stmt) -> bool:
    mutable = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    makers = ("list", "dict", "set", "defaultdict", "deque", "Counter", "OrderedDict", "bytearray", "count")
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
        return False
    value = node.value
    made = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in makers
    return made or isinstance(value, mutable)


def test_core_has_no_mutable_state_in_modules() -> None:
    wrong = [
        f"{file}:{node.lineno}: wrap it in MappingProxyType, frozenset or tuple"
        for file in _pure_files()
        for node in _tree(file).body
        if _is_mutable_state(node)
    ]
    assert wrong == []


def _imports_in_functions(node: ast.AST, *, inside: bool = False) -> Iterator[int]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            if inside:
                yield child.lineno
        # No expression holds an import: only statements, and what groups them, are looked into.
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports_in_functions(child, inside=inside or is_function)


def test_an_import_in_a_function_is_seen_wherever_it_hides() -> None:
    lines = ["import a", "try:", " import b", "except E:", " import c", "class C:", " import d", " def m(self):"]
    lines += ["  if x:", "   import e", "  match y:", "   case 1:", "    from f import f", "async def g():", " try:"]
    lines += ["  pass", " except* E:", "  import h", " finally:", "  with z:", "   import i"]
    assert list(_imports_in_functions(ast.parse("\n".join(lines)))) == [10, 13, 18, 21]


def test_no_imports_inside_functions() -> None:
    assert [f"{file}:{line}" for file in _FILES for line in _imports_in_functions(_tree(file))] == []


@pytest.mark.parametrize("adapter", _ADAPTERS)
def test_adapter_keeps_to_its_kind_and_clients_to_their_modules(adapter: str) -> None:
    wrong: list[str] = []
    for file in _FILES:
        if not file.is_relative_to(_ROOT / adapter):
            continue
        for found in _imports(file):
            root = found.module.partition(".")[0]
            place = f"{_path(file)}:{found.line}"
            # A task for each job, and one that a callback takes for its own: in a task group of anyio's it costs twice.
            makes_tasks = root == "asyncio" and _path(file) in ("bullmq_anyio/tasks.py", "bullmq_anyio/apart.py")
            if root in _NEVER[adapter] and not makes_tasks:
                wrong.append(f"{place} {found.module}")
            if root in ("redis", "coredis") and root not in file.stem:
                wrong.append(f"{place} {found.module} outside its transport")
            if file.parent.name == "net" and root == adapter:
                known = found.module.removeprefix(f"{adapter}.")
                if not _is_among(known, ("net", *_NET_KNOWS[adapter])):
                    wrong.append(f"{place} {found.module} is above the connections")
    assert wrong == []


def test_the_event_loop_itself_is_called_in_two_modules() -> None:
    # asyncio's transports and streams take longer; anyio has no way to let the loop watch a socket.
    # The hook of a fork runs in no task.
    calling = {
        _path(file)
        for file in _FILES
        if file.is_relative_to(_ROOT / "bullmq_anyio")
        for node in _nodes(file)
        if isinstance(node, ast.Attribute) and node.attr in _OF_THE_LOOP
    }
    assert calling == {"bullmq_anyio/net/link.py", "bullmq_anyio/forks.py"}


def _row(file: Path) -> str:
    """Name the row of `_OF_THE_CORE`: that of the file's room or module where there is one, else of its package."""
    package, inner = file.relative_to(_ROOT).parts[0], _module(file).split(".")[1]
    return f"{package}.{inner}" if f"{package}.{inner}" in _OF_THE_CORE else package


@pytest.mark.parametrize("package", [*_ADAPTERS, *_BESIDE])
def test_what_stands_on_the_core_imports_by_its_row(package: str) -> None:
    wrong: list[str] = []
    for file in _FILES:
        if not file.is_relative_to(_ROOT / package):
            continue
        others = (package, *_OF_OTHERS.get(_row(file), _OF_OTHERS[package]), *_ALONE.get(_path(file), ()), "msgspec")
        # Clients stand in their transports' modules: see above.
        clients = ("redis",) if package in _ADAPTERS else ()
        for found in _imports(file):
            place = f"{_path(file)}:{found.line}"
            root = found.module.partition(".")[0]
            names = (*found.module.split("."), *found.names)
            if any(part.startswith("_") and not part.startswith("__") for part in names) and root.startswith("bullmq_"):
                wrong.append(f"{place} private: {'.'.join(names)}")
            if root == _CORE:
                for target in _targets(found):
                    name = _room(target)[1]
                    if name != "__init__" and not _is_among(name, _OF_THE_CORE[_row(file)]):
                        wrong.append(f"{place} {target} is not in the row of {_row(file)}")
            elif root not in sys.stdlib_module_names and root != "__future__":
                targets = set(_targets(found)) if root in ("tests", package) else {found.module}
                wrong += [f"{place} {target}" for target in targets if not _is_among(target, (*others, *clients))]
    assert wrong == []


def test_importing_the_core_loads_no_loop_socket_thread_log_or_dice() -> None:
    modules = [_module(file).removesuffix(".__init__") for file in _pure_files() if file.name != "strategies.py"]
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


# Where a line of its own is meant: a field, an entry, an item, a rule, code.
_OWN_LINE = re.compile(r"[A-Z][a-z]+:|\w+(, \w+)*:( |$)|[-*|>@=]|\(?\d+[.)] |```|\.\.\. ")
_FEW_WORDS = 3
_MUCH = 20
_LINE_LENGTH = 120


def ragged(text: str, nodes: Iterable[ast.AST] | None = None) -> list[int]:
    """Return the lines of docstrings that end early though the next word would have fitted, as rewrapping leaves.

    Early is after three words, or 20 columns before the longest line of the paragraph.
    """
    lines = text.splitlines()
    found: list[int] = []
    for numbers in _paragraphs(text, ast.walk(ast.parse(text)) if nodes is None else nodes):
        if lines[numbers[0] - 1].startswith("==="):
            # A table.
            continue
        longest = max(len(lines[number - 1]) for number in numbers)
        for number, following in pairwise(numbers):
            line, word = lines[number - 1], lines[following - 1].strip().strip('"').split()[0]
            is_early = len(line.strip().strip('"').split()) <= _FEW_WORDS or len(line) + _MUCH < longest
            if is_early and len(line) + 1 + len(word) <= _LINE_LENGTH:
                found.append(number)
    return found


def _paragraphs(text: str, nodes: Iterable[ast.AST]) -> Iterator[list[int]]:
    """Yield the numbers of those lines of docstrings that run on; what is shown in examples does not."""
    lines = text.splitlines()
    for node in nodes:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if not isinstance(node.value.value, str):
            continue
        paragraph: list[int] = []
        in_example = False
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            words = lines[number - 1].strip().strip('"')
            in_example = bool(words) and (in_example or words in ("Examples:", "\\b") or words[0] == "@")
            if not words or in_example or _OWN_LINE.match(words) or lines[number - 2].endswith((":", "--")):
                if paragraph:
                    yield paragraph
                paragraph = []
            if words and not in_example:
                paragraph.append(number)
        if paragraph:
            yield paragraph


def test_a_ragged_docstring_is_seen() -> None:
    head = '"""Send one step.\n\nIt repeats a command by itself only when nothing was sent, or\n'
    assert ragged(f'{head}when the\ncommand is safe; then once.\n"""\n') == [4]
    assert ragged(f'{head}when the command is safe; then once.\n"""\n') == []
    early = " ".join(["word"] * 18)
    assert ragged(f'"""Call it.\n\n{early} {early[:22]}\n{early}\n{early} {early[:22]}\n"""\n') == [4]
    assert ragged(f'"""Call it.\n\nArgs:\n    one: {early}\n    two: {early} {early[:22]}\n        more\n"""\n') == []
    assert ragged('"""Call it.\n\nExamples:\n    >>> one\n    a\n    >>> two\n"""\n') == []
    assert ragged('"""Call it.\n\n\\b\none\ntwo\n"""\n') == []
    assert ragged('"""Calls.\n\n=== ===\na   b\n    c\n=== ===\n"""\n') == []
    assert ragged('"""Theory\n------\nA run.\n\nArgs:    id\nReply:   0\n\n- one\n- two\n"""\n') == []
    assert ragged(f'"""Call it.\n\n    {"x" * 115}\n    y\n    {"z" * 115}\n"""\n') == []


def test_docstrings_are_not_ragged() -> None:
    found = {_path(file): ragged(file.read_text(encoding="utf-8"), _nodes(file)) for file in _FILES}
    assert {file: lines for file, lines in found.items() if lines} == {}
