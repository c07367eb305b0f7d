"""What two threads touch is named with its lock where it is made, and touched under that lock alone.

In `__init__` or `_begin`, a comment `# guarded by _lock` (or `lock`, `the lock of _threads`) names the attributes that
follow it, up to the next comment of the kind (`# replaced as a whole`, `# set once`, `# changed under`, `# the reader's
own`) or the end of the attributes. Every other use stands in a `with` of the lock or of a condition made of it, or in a
method whose docstring says "The lock is held". What the threads of a worker share is so guarded wherever it is used.
"""

import ast
import functools
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.any_python

_ROOT = Path(__file__).parents[2] / "bullmq_sync"
_HELD = "The lock is held"
_SHARED = "driving/threads.py"
_OWNERS = {
    "driver.py": "Driver",
    "thread_pool.py": "ThreadPool",
    "events.py": "QueueEvents",
    "manual.py": "Manual",
    "net/sharing.py": "Connecting",
    _SHARED: "WorkerThreads",
    "driving/audience.py": "Audience",
    "driving/base.py": "DriverBase",
    "driving/connections.py": "Connections",
    "driving/contact.py": "Contact",
    "driving/contact_base.py": "ContactBase",
    "driving/hands.py": "Hands",
    "driving/notifier.py": "Notifier",
    "driving/timer.py": "Timer",
}
_BASES = {
    "driver.py": "driving/base.py",
    "driving/contact.py": "driving/contact_base.py",
    "driving/notifier.py": "driving/audience.py",
}
_BEGINS = re.compile(r"^\s*# guarded by (_?lock|the lock of _threads)\b")
_ENDS = re.compile(r"^\s*# (replaced as a whole|set once|changed under|the reader's own)")
_ATTRIBUTE = re.compile(r"^        self\.(\w+)(: [^=]+)? = ")
# Where the lock cannot be taken by others any more, or not yet.
_FREE = {"__init__", "_begin", "_forked", "_renew", "renew"}
_THREADS = ("self._threads", "threads")


def guarded(source: str) -> set[str]:
    """The attributes that the comments name."""
    found: set[str] = set()
    on = False
    for line in source.splitlines():
        if _BEGINS.match(line):
            on = True
        elif _ENDS.match(line) or line.startswith("    def "):
            on = False
        elif on and (match := _ATTRIBUTE.match(line)):
            found.add(match[1])
    return found


def attributes(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


@functools.cache
def shared() -> frozenset[str]:
    """What the threads of a worker share under the lock."""
    return frozenset(guarded((_ROOT / _SHARED).read_text(encoding="utf-8")))


def test_parts_of_a_driver_that_use_the_lock_are_looked_at() -> None:
    using = {f"driving/{file.name}" for file in (_ROOT / "driving").glob("*.py") if "hreads.lock" in file.read_text()}
    assert using - {"driving/lending.py"} <= set(_OWNERS)


def uses(node: ast.AST, names: set[str], locks: set[str], held: bool = False) -> list[str]:
    """Where one of them is used without the lock."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        # What is made under a lock is called later, but for the conditions that are waited for.
        held = isinstance(node, ast.Lambda) and held
        if isinstance(node, ast.FunctionDef) and _HELD in (ast.get_docstring(node) or ""):
            held = True
    if isinstance(node, ast.With) and any(attributes(item.context_expr) in locks for item in node.items):
        return [found for each in node.body for found in uses(each, names, locks, True)]
    if not held and isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        if (owner == "self" and node.attr in names) or (owner in _THREADS and node.attr in shared()):
            return [f"line {node.lineno}: {node.attr}"]
    return [found for each in ast.iter_child_nodes(node) for found in uses(each, names, locks, held)]


def unguarded(source: str, owner: str, base: str = "") -> list[str]:
    kind = next(each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == owner)
    body = ast.get_source_segment(source, kind) or ""
    names = guarded(base) | guarded(body)
    assert names
    locks = {"_lock", "lock", "changed", "due", *re.findall(r"self\.(\w+) = threading\.Condition\(self\._lock\)", body)}
    methods = [each for each in kind.body if isinstance(each, ast.FunctionDef) and each.name not in _FREE]
    return [f"{method.name}, {found}" for method in methods for found in uses(method, names, locks)]


@pytest.mark.parametrize("name", _OWNERS)
def test_what_threads_share_is_touched_under_its_lock(name: str) -> None:
    base = (_ROOT / _BASES[name]).read_text() if name in _BASES else ""
    assert unguarded((_ROOT / name).read_text(), _OWNERS[name], base) == []


def test_a_use_without_the_lock_is_found() -> None:
    source = '''
class Shelf:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        # guarded by _lock
        self._books: list[str] = []
        # set once
        self._closed = False

    def put(self, book: str) -> None:
        with self._news:
            self._books.append(book)
        self._closed = True

    def take(self) -> str:
        """Take one. The lock is held."""
        return self._books.pop()

    def count(self) -> int:
        return len(self._books)
'''
    assert unguarded(source, "Shelf") == ["count, line 21: _books"]


def test_a_use_without_the_lock_of_what_threads_share_is_found() -> None:
    source = """
class Part:
    def __init__(self, threads: WorkerThreads) -> None:
        self._threads = threads
        # guarded by the lock of _threads
        self._machine = threads.machine

    def look(self) -> None:
        threads = self._threads
        with threads.lock:
            threads.armed = self._machine.deadline()
        self._threads.watched += 1
        return threads.armed, self._machine
"""
    assert unguarded(source, "Part") == ["look, line 12: watched", "look, line 13: armed", "look, line 13: _machine"]
