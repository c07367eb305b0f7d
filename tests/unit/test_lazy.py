"""What is imported, compiled or looked up only when it is asked for: that a program starts quickly."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import bullmq_anyio
import bullmq_protocol
import bullmq_sync
from bullmq_protocol.lazy import METHODS, lazy_names, lazy_pattern

_ROOT = Path(__file__).parents[2]
_PACKAGES = (bullmq_protocol, bullmq_anyio, bullmq_sync)
_OF_A_WORKER = ("bullmq_protocol.worker", "bullmq_protocol.relay")
# Of the standard library what only a few programs need, and what takes long.
_SELDOM = ("calendar", "hashlib", "json", "zoneinfo")
_BY_STATEMENT = {
    "import bullmq_protocol": ("msgspec", "bullmq_protocol.errors", *_SELDOM),
    "import bullmq_anyio": ("msgspec", "anyio", "asyncio", "ssl", "bullmq_protocol.errors", *_SELDOM),
    "import bullmq_sync": ("msgspec", "redis", "ssl", "bullmq_protocol.errors", *_SELDOM),
    "from bullmq_protocol import Command, JobOptions, UsageError": (*_OF_A_WORKER, *_SELDOM, "bullmq_protocol.scripts"),
    "from bullmq_protocol import WorkerMachine, WorkerOptions": (*_SELDOM, "bullmq_protocol.scripts.profile"),
    "from bullmq_anyio import Queue": (*_OF_A_WORKER, "bullmq_anyio.driver", "calendar", "zoneinfo", "redis"),
    "from bullmq_sync import Queue": (*_OF_A_WORKER, "bullmq_sync.driver", "calendar", "json", "zoneinfo", "redis"),
    "from bullmq_anyio import Worker": ("bullmq_protocol.relay", "calendar", "zoneinfo", "redis"),
    "from bullmq_sync import Worker": ("bullmq_protocol.relay", "asyncio", "calendar", "json", "zoneinfo", "redis"),
}


def _names_for_type_checkers(package: object) -> dict[str, str]:
    file = getattr(package, "__file__", None)
    assert file is not None
    for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return {
                alias.name: str(each.module)
                for each in node.body
                if isinstance(each, ast.ImportFrom)
                for alias in each.names
            }
    raise AssertionError("it has none")


@pytest.mark.parametrize("package", _PACKAGES, ids=lambda package: package.__name__)
def test_a_program_finds_the_names_that_type_checkers_see(package: object) -> None:
    homes = _names_for_type_checkers(package)
    listed: list[str] = vars(package)["__all__"]
    assert set(homes) | {"VERSION", "__version__"} >= set(listed) >= set(homes)
    for name, home in homes.items():
        assert getattr(package, name) is getattr(import_module(home), name)
    assert set(listed) <= set(dir(package))
    name = "Kue"
    with pytest.raises(AttributeError, match=r"^module 'bullmq_\w+' has no attribute 'Kue'$"):
        getattr(package, name)


@pytest.mark.parametrize("statement", _BY_STATEMENT)
def test_an_import_loads_nothing_that_it_does_not_need(statement: str) -> None:
    program = (
        f"import sys; before = set(sys.modules); sys.path.insert(0, {str(_ROOT)!r}); {statement}\n"
        "print(*{part for name in set(sys.modules) - before for part in (name, name.partition('.')[0])})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & set(_BY_STATEMENT[statement]) == set()


def test_names_of_a_module_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    find, listed = lazy_names("bullmq_protocol.lazy", {"math": ("pi",)})
    monkeypatch.delitem(vars(sys.modules["bullmq_protocol.lazy"]), "pi", raising=False)
    assert "pi" in listed() and "lazy_names" in listed()
    assert find("pi") == sys.modules["math"].pi
    assert vars(sys.modules["bullmq_protocol.lazy"]).pop("pi") == sys.modules["math"].pi
    with pytest.raises(AttributeError, match=r"^module 'bullmq_protocol.lazy' has no attribute 'e'$"):
        find("e")


def test_a_pattern_is_compiled_at_its_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    compile_ = re.compile

    def counted(text: Any, flags: int = 0) -> re.Pattern[Any]:
        compiled.append((text, flags))
        return compile_(text, flags)

    monkeypatch.setattr(re, "compile", counted)
    lazy = lazy_pattern("a(b+)", re.IGNORECASE)
    assert compiled == []
    match = lazy.fullmatch("ABB")
    assert match is not None and match[1] == "BB"
    assert lazy.sub("-", "cabba") == "c-a"
    assert lazy_pattern(b"[0-9]").findall(b"a1b2") == [b"1", b"2"]
    assert compiled == [("a(b+)", re.IGNORECASE), (b"[0-9]", 0)]
    plain = compile_("a(b+)", re.IGNORECASE)
    assert [getattr(lazy, name) for name in METHODS] == [getattr(plain, name) for name in METHODS]


def test_a_lazy_pattern_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match=r"^a lazy pattern has no attribute 'pattern'$"):
        _ = lazy_pattern("a").pattern
