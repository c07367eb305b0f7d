"""Pack the Lua scripts of this folder into `bullmq_protocol/_lua.py`.

A command is `lua/<name>.lua`, or `lua/ours/<name>.lua` where BullMQ has no such script; shared behaviour is
`lua/includes/<name>.lua`. A file begins with directives:

    --- keys: <name>, <name> ...     commands only; the number of names is the number of KEYS; may be repeated
    --- args: <name>, <name> ...     commands only; may be repeated; a last name with `...` stands for any number
    --- include <name>               resolved recursively, each include once, dependencies first

A comment has a line of its own. `--@<mark>` is a comment that names a branch: the packaged form drops it, the
instrumented form counts it.

Usage: python lua/build.py [--check]     with --check: write nothing, exit 1 if `_lua.py` is stale
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
TARGET = ROOT.parent / "bullmq_protocol" / "_lua.py"

INCLUDE = re.compile(r"--- include ([a-z0-9_]+)")
DECLARE = re.compile(r"--- (keys|args):(.*)")
MARK = re.compile(r"\s*--@([a-z0-9-]+)")
USE = re.compile(r"\b(KEYS|ARGV)\[(\d+)\]")


class BuildError(Exception):
    """Tell which file breaks which rule."""


def commands(root: Path = ROOT) -> tuple[str, ...]:
    """Return the names of all commands, sorted."""
    return tuple(sorted(path.stem for path in root.glob("*.lua")))


def own(root: Path = ROOT) -> tuple[str, ...]:
    """Return the names of the commands in `ours/`, sorted: they are not among BullMQ's."""
    return tuple(sorted(path.stem for path in (root / "ours").glob("*.lua")))


def packaged(name: str, root: Path = ROOT) -> str:
    """Return the script as it is sent to a server: includes resolved, comments, marks and blank lines gone."""
    return "".join(_lines(name, root, lambda _file, _mark: None))


def instrumented(name: str, coverage_key: str, root: Path = ROOT) -> str:
    """Return the script with each mark counted in field `<file>:<mark>` of the hash `coverage_key`."""
    if not re.fullmatch(r"[\w:.{}~-]+", coverage_key):
        raise BuildError(f"{coverage_key!r} is no plain key")
    return "".join(
        _lines(name, root, lambda file, mark: f"redis.call('HINCRBY', '{coverage_key}', '{file}:{mark}', 1)\n")
    )


def marks(name: str, root: Path = ROOT) -> tuple[str, ...]:
    """Return `<file>:<mark>` for every mark of a command and its includes, in the order of the packaged text."""
    found: list[str] = []

    def note(file: str, mark: str) -> None:
        found.append(f"{file}:{mark}")

    for _ in _lines(name, root, note):
        pass
    return tuple(found)


def key_count(name: str, root: Path = ROOT) -> int:
    """Return the declared number of KEYS, after checking the used ones against it.

    Raises: BuildError if a command uses a position of KEYS or ARGV that its head does not declare.
    """
    declared: dict[str, list[str]] = {"keys": [], "args": []}
    seen: set[str] = set()
    for line in _read(_command(name, root)).splitlines():
        if match := DECLARE.fullmatch(line):
            seen.add(match[1])
            declared[match[1]] += [part.strip() for part in match[2].split(",") if part.strip()]
    if seen != {"keys", "args"}:
        raise BuildError(f"{name}: the head must declare keys and args")
    used = {"KEYS": 0, "ARGV": 0}
    for kind, position in USE.findall(packaged(name, root)):
        used[kind] = max(used[kind], int(position))
    keys, args = declared["keys"], declared["args"]
    if used["KEYS"] > len(keys):
        raise BuildError(f"{name}: KEYS[{used['KEYS']}] is used, {len(keys)} are declared")
    if used["ARGV"] > len(args) and not (args and args[-1].endswith("...")):
        raise BuildError(f"{name}: ARGV[{used['ARGV']}] is used, {len(args)} are declared")
    return len(keys)


def generate(root: Path = ROOT) -> str:
    """Return the text of `_lua.py`."""
    parts = [HEAD]
    names: dict[str, str] = {}
    for name in (*commands(root), *own(root)):
        source = packaged(name, root)
        sha1 = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        constant = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()
        names[name] = constant
        parts.append(
            f'{constant} = Script(\n    name="{name}",\n    sha1="{sha1}",\n    keys={key_count(name, root)},\n'
            f'    source="""\\\n{source}""",\n)\n\n'
        )
    for mapping, listed in (("SCRIPTS", commands(root)), ("OUR_SCRIPTS", own(root))):
        parts.append(
            MAPPING.format(mapping=mapping, listed="".join(f"            {names[name]},\n" for name in listed))
        )
    return "".join(parts)[:-1]


def main(arguments: list[str], root: Path = ROOT, target: Path = TARGET) -> int:
    """Write `target`, or only compare it; return the exit status."""
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        text = generate(root)
    except BuildError as error:
        print(f"lua/build.py: {error}", file=sys.stderr)
        return 1
    if not arguments:
        target.write_text(text, encoding="utf-8")
    elif not target.is_file() or target.read_text(encoding="utf-8") != text:
        print(f"lua/build.py: {target.name} is stale, run python lua/build.py", file=sys.stderr)
        return 1
    return 0


def _command(name: str, root: Path) -> Path:
    ours = root / "ours" / f"{name}.lua"
    return ours if ours.is_file() else root / f"{name}.lua"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BuildError(f"there is no {path.parent.name}/{path.name}") from None


def _order(path: Path, root: Path, open_files: tuple[Path, ...], done: list[Path]) -> None:
    """Append the file after everything it includes."""
    if path in done:
        return
    if path in open_files:
        raise BuildError(f"includes in a circle: {' -> '.join(file.stem for file in (*open_files, path))}")
    for line in _read(path).splitlines():
        if match := INCLUDE.fullmatch(line):
            _order(root / "includes" / f"{match[1]}.lua", root, (*open_files, path), done)
    done.append(path)


def _lines(name: str, root: Path, on_mark: Callable[[str, str], str | None]) -> Iterator[str]:
    """Yield the code lines of a command and its includes, with what `on_mark(file, mark)` gives for a mark."""
    files: list[Path] = []
    _order(_command(name, root), root, (), files)
    for path in files:
        seen: set[str] = set()
        for number, line in enumerate(_read(path).splitlines(), 1):
            where = f"{path.name}:{number}"
            code = line.strip()
            if code.startswith("--@"):
                match = MARK.fullmatch(line)
                if not match:
                    raise BuildError(f"{where}: a mark is letters, digits and hyphens")
                if match[1] in seen:
                    raise BuildError(f"{where}: the mark {match[1]} is there already")
                seen.add(match[1])
                if counted := on_mark(path.stem, match[1]):
                    yield counted
            elif code.startswith("---"):
                if not (INCLUDE.fullmatch(line) or DECLARE.fullmatch(line)):
                    raise BuildError(f"{where}: no directive: {line}")
            elif code and not code.startswith("--"):
                for forbidden in ("--", "[[", "]]", "[=", '"""', "\\"):
                    if forbidden in line:
                        raise BuildError(f"{where}: {forbidden} is not supported in a code line")
                yield line.rstrip() + "\n"


HEAD = '''"""Hold the packaged Lua scripts; written by `python lua/build.py`, never by hand."""

from collections.abc import Mapping
from types import MappingProxyType

from bullmq_protocol.command import Script

'''

MAPPING = """{mapping}: Mapping[str, Script] = MappingProxyType(
    {{
        script.name: script
        for script in (
{listed}        )
    }}
)

"""

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
