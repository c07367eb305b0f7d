"""What two threads touch is named with its lock where it is made, and touched under that lock alone.

In `__init__`, a comment `# guarded by _lock` names the attributes that follow it, up to the next comment of the kind
(`# replaced as a whole`, `# set once`, `# changed under`, `# the reader's own`) or the end of the attributes. Every
other use stands in a `with` of the lock or of a condition made of it, or in a method whose docstring says
"The lock is held".
"""

import ast
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2] / "bullmq_sync"
_HELD = "The lock is held"
_OWNERS = {"worker.py": "Worker", "crew.py": "Crew", "events.py": "QueueEvents", "net/connection.py": "Connection"}
_BEGINS = re.compile(r"^\s*# guarded by _lock\b")
_ENDS = re.compile(r"^\s*# (replaced as a whole|set once|changed under|the reader's own)")
_ATTRIBUTE = re.compile(r"^        self\.(\w+)(: [^=]+)? = ")
# Where the lock cannot be taken by others any more, or not yet.
_FREE = {"__init__", "_forked", "_renew"}


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


def uses(node: ast.AST, names: set[str], locks: set[str], held: bool = False) -> list[str]:
    """Where one of them is used without the lock."""
    if isinstance(node, (ast.FunctionDef, ast.Lambda)):
        # What is made under a lock is called later, but for the conditions that are waited for.
        held = isinstance(node, ast.Lambda) and held
        if isinstance(node, ast.FunctionDef) and _HELD in (ast.get_docstring(node) or ""):
            held = True
    if isinstance(node, ast.With) and any(attributes(item.context_expr) in locks for item in node.items):
        return [found for each in node.body for found in uses(each, names, locks, True)]
    if (
        not held
        and isinstance(node, ast.Attribute)
        and node.attr in names
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ):
        return [f"line {node.lineno}: {node.attr}"]
    return [found for each in ast.iter_child_nodes(node) for found in uses(each, names, locks, held)]


def unguarded(source: str, owner: str) -> list[str]:
    kind = next(each for each in ast.parse(source).body if isinstance(each, ast.ClassDef) and each.name == owner)
    body = ast.get_source_segment(source, kind) or ""
    names = guarded(body)
    assert names
    locks = {"_lock", *re.findall(r"self\.(\w+) = threading\.Condition\(self\._lock\)", body)}
    methods = [each for each in kind.body if isinstance(each, ast.FunctionDef) and each.name not in _FREE]
    return [f"{method.name}, {found}" for method in methods for found in uses(method, names, locks)]


@pytest.mark.parametrize("name", _OWNERS)
def test_what_threads_share_is_touched_under_its_lock(name: str) -> None:
    assert unguarded((_ROOT / name).read_text(), _OWNERS[name]) == []


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
