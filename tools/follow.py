"""Say in one page what another version of BullMQ does otherwise: `python -m tools.follow 6.7.0 --base 6.5.4`.

The version is installed beside the pinned ones, into `.cache/follow`; the base is a pin or installed in the same way.
Scripts are opaque: the page has their names, SHA-256s and numbers of keys, what their calls look like on the wire, and
which directed cases and vectors give another reply or other keys with them. No text of a script is shown.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from tests.oracle import directed, scripts
from tests.oracle.calls import Call
from tests.oracle.directed import later
from tests.oracle.harness import Bench, Wire
from tests.oracle.layouts import Layout
from tests.support import servers, vectors
from tests.support.node import FOLDERS, node_available
from tests.support.servers import Server

_HERE = Path(__file__).parent
_ROOT = _HERE.parent
_CACHE = _ROOT / ".cache" / "follow"
_SCENARIO = _HERE / "follow.js"
_VERSION = re.compile(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
_SHOWN = 3


class Script(NamedTuple):
    """A script of a package: how many keys it takes, its SHA-256 and SHA-1, and its text, which nobody reads."""

    keys: int
    sha256: str
    sha1: str
    text: str


Scripts = Mapping[str, Script]


class Package(NamedTuple):
    """A version of BullMQ that is installed."""

    version: str
    modules: Path
    scripts: Scripts


class Differing(NamedTuple):
    """How many cases, or vectors, of a command were run, and the names of those that differ."""

    run: int
    names: tuple[str, ...]


class Shapes(NamedTuple):
    """What the calls of a script looked like on the wire."""

    arguments: frozenset[int]
    packed: Mapping[int, str]
    """Per argument that is packed: the length of its array, or the names of its map."""


# --- packages ---------------------------------------------------------------------------------------------------------


def order(version: str) -> tuple[Any, ...]:
    """Return what versions are sorted by; one with a suffix comes before the one without."""
    numbers, _, suffix = version.partition("-")
    return (*map(int, numbers.split(".")), suffix == "", suffix)


def base_of(version: str) -> str:
    """Return the newest pin before a version, or the oldest of all."""
    before = [pin for pin in scripts.RECORDS if order(pin) < order(version)]
    return max(before, key=order) if before else min(scripts.RECORDS, key=order)


def installed(version: str) -> Path:
    """Return the folder that holds a version of BullMQ, after installing it once."""
    if version in FOLDERS:
        return FOLDERS[version]()
    home = _CACHE / version
    if not (home / "made").exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        (home / "package.json").write_text('{"private": true}')
        # The driver is a package of its own since 6.0.10.
        wanted = (f"bullmq@{version}", "ioredis@5")
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", *wanted]
        done = subprocess.run(command, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"follow: npm cannot install bullmq {version}:\n{done.stdout}{done.stderr}")
        (home / "made").touch()
    return home / "node_modules"


def read(version: str, modules: Path) -> Package:
    """Read the scripts of an installed version."""
    return Package(
        version,
        modules,
        {
            name: Script(each["keys"], *_digests(each["content"]), each["content"])
            for name, each in scripts.dumped(modules).items()
        },
    )


def _digests(text: str) -> tuple[str, str]:
    data = text.encode()
    return hashlib.sha256(data).hexdigest(), hashlib.sha1(data).hexdigest()


def changed(base: Scripts, new: Scripts) -> list[str]:
    """Return the scripts that both have, with another text."""
    return sorted(name for name in base.keys() & new.keys() if base[name].sha256 != new[name].sha256)


# --- calls on the wire ------------------------------------------------------------------------------------------------

_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-f]{2}|.)")
_PLAIN = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


def words(line: bytes) -> list[bytes]:
    """Return the words of a command as `MONITOR` writes it."""

    def plain(found: re.Match[bytes]) -> bytes:
        return bytes([int(found[1][1:], 16)]) if len(found[1]) == 3 else _PLAIN.get(found[1], found[1])

    return [_ESCAPE.sub(plain, word) for word in _WORD.findall(line)]


def shapes(lines: Iterable[bytes], names: Mapping[str, str]) -> dict[str, Shapes]:
    """Return per script how it was called. `names` are those of the scripts by their SHA-1."""
    arguments: dict[str, set[int]] = defaultdict(set)
    packed: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for line in lines:
        command, *rest = words(line)
        if command.lower() == b"evalsha":
            name = names.get(rest[0].decode("ascii", "replace"))
        else:
            name = names.get(hashlib.sha1(rest[0]).hexdigest()) if command.lower() == b"eval" else None
        if name is None:
            continue
        given = rest[2 + int(rest[1]) :]
        arguments[name].add(len(given))
        for at, each in enumerate(given, 1):
            packed[name][at] |= _packed(each)
    return {
        name: Shapes(frozenset(counts), {at: " ".join(sorted(all_)) for at, all_ in packed[name].items() if all_})
        for name, counts in arguments.items()
    }


def _packed(argument: bytes) -> set[str]:
    # A map or an array, of at most 15 members or longer; a text or a number begins otherwise.
    if not argument or not (0x80 <= argument[0] <= 0x9F or 0xDC <= argument[0] <= 0xDF):
        return set()
    try:
        value = msgspec.msgpack.decode(argument)
    except (msgspec.DecodeError, ValueError):
        return set()
    if isinstance(value, list):
        return {f"[{len(value)}]"}
    return {str(name) for name in value} if isinstance(value, dict) else set()


def observed(package: Package, server: Server, scenario: Path = _SCENARIO) -> dict[str, Shapes]:
    """Let the package's own classes call its scripts, and return what the calls looked like."""
    wire = Wire(server.host, server.port)
    lines: list[bytes] = []
    wire.run([("FLUSHALL",), ("MONITOR",)])

    def listen() -> None:
        while True:
            line = wire.run([()])[0]
            if b"end of the scenario" in line:
                return
            lines.append(line)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    command = ["node", str(scenario), str(server.port)]
    environment = {"NODE_PATH": str(package.modules), "PATH": _path()}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    teller = Wire(server.host, server.port)
    teller.run([("PING", "end of the scenario")])
    listener.join()
    teller.close()
    wire.close()
    if done.returncode != 0:
        raise SystemExit(f"follow: bullmq {package.version} cannot be called:\n{done.stderr.decode()[-2000:]}")
    return shapes(lines, {script.sha1: name for name, script in package.scripts.items()})


def _path() -> str:
    node = shutil.which("node")
    assert node is not None
    return str(Path(node).parent)


def signatures(base: Package, new: Package, seen: Sequence[Mapping[str, Shapes]]) -> Iterator[str]:
    """Give a row per command that is called otherwise."""
    before, after = seen
    for name in sorted(base.scripts.keys() & new.scripts.keys()):
        keys = base.scripts[name].keys, new.scripts[name].keys
        one, other = before.get(name), after.get(name)
        found = [f"keys {keys[0]} → {keys[1]}"] if keys[0] != keys[1] else []
        if one and other:
            if one.arguments != other.arguments:
                found.append(f"arguments {_numbers(one.arguments)} → {_numbers(other.arguments)}")
            for at in sorted(one.packed.keys() | other.packed.keys()):
                was, now = (set(each.packed.get(at, "").split()) for each in (one, other))
                if was != now:
                    marks = [f"-{word}" for word in sorted(was - now)] + [f"+{word}" for word in sorted(now - was)]
                    found.append(f"ARGV[{at}] {' '.join(marks)}")
        if found:
            yield f"| `{name}` | {'; '.join(found)} |"


def _numbers(counts: Iterable[int]) -> str:
    return " or ".join(map(str, sorted(counts)))


# --- cases and vectors ------------------------------------------------------------------------------------------------


def cases_of(version: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Give the directed cases: those of all versions, and those of the pins up to this version."""
    chosen = list(directed.CASES)
    for pin, more in later.CASES.items():
        if order(pin) <= order(version):
            chosen += more
    # Most of the later ones do the same in each version, and expect something else.
    names = {case.steps: case.name for case in reversed(chosen)}
    for steps, name in reversed(names.items()):
        yield name, steps


def _vectors() -> Iterator[tuple[str, Sequence[Any]]]:
    for command, vector in vectors.everything():
        call = vector["call"]
        keys, args = ([vectors.raw(each) for each in call[part]] for part in ("keys", "args"))
        yield vector["id"], [*vectors.commands(vector["start"]), Call(command, tuple(keys), tuple(args))]


class Compared(NamedTuple):
    """Per command: its cases and its vectors that differ; commands whose calls nobody here can make."""

    cases: Mapping[str, Differing]
    vectors: Mapping[str, Differing]
    not_asked: frozenset[str]


def compared(
    base: Package,
    new: Package,
    server: Server,
    *,
    cases: Iterable[tuple[str, Sequence[Any]]] | None = None,
    vectors: Iterable[tuple[str, Sequence[Any]]] | None = None,
) -> Compared:
    """Run what asks a changed script with the scripts of both versions."""
    counts = tuple({name: script.keys for name, script in each.scripts.items()} for each in (base, new))
    layout = Layout(base_of_arguments(base.version), (counts[0], counts[1]))
    texts = [{name: script.text for name, script in each.scripts.items()} for each in (base, new)]
    other = frozenset(changed(base.scripts, new.scripts))
    lost: set[str] = set()
    with Bench(server.host, server.port, *texts, layout=layout) as bench:
        run = functools.partial(_differing, bench, other, lost)
        return Compared(
            run(cases_of(new.version) if cases is None else cases),
            run(_vectors() if vectors is None else vectors),
            frozenset(lost),
        )


def base_of_arguments(version: str) -> str:
    """Return the pin whose arguments a version is sent: the oldest that is not older, or the newest of all."""
    after = [pin for pin in scripts.RECORDS if order(pin) >= order(version)]
    return min(after, key=order) if after else max(scripts.RECORDS, key=order)


def _differing(
    bench: Bench, other: frozenset[str], lost: set[str], chosen: Iterable[tuple[str, Sequence[Any]]]
) -> dict[str, Differing]:
    run: dict[str, int] = defaultdict(int)
    names: dict[str, list[str]] = defaultdict(list)
    for name, steps in chosen:
        calls = [step for step in steps if isinstance(step, Call)]
        asked = {call.name for call in calls} & other
        if not asked or not all(bench.knows(call.name) for call in calls):
            continue
        unknown = {call.name for call in calls if not _fits(bench, call)}
        if unknown:
            lost |= unknown
            continue
        for each in asked:
            run[each] += 1
        first = _first_difference(bench, steps)
        if first is not None:
            names[first].append(name)
    return {name: Differing(run[name], tuple(names[name])) for name in {*run, *names}}


def _fits(bench: Bench, call: Call) -> bool:
    """Tell whether both sides get as many keys as they take: of a version later than all pins nobody knows which."""
    assert bench.layout is not None
    try:
        return all(
            len(bench.layout.fitted(call, side).keys) == counts[call.name]
            for side, counts in enumerate(bench.layout.keys)
        )
    except KeyError:
        return False


def _first_difference(bench: Bench, steps: Sequence[Any]) -> str | None:
    """Run a case; return the command whose call is the first to differ."""
    bench.reset()
    made: list[Any] = []
    for step in steps:
        if not isinstance(step, Call):
            made.append(step)
            continue
        bench.plain(made)
        made = []
        if bench.call(step).differences:
            return step.name
    return None


# --- the page ---------------------------------------------------------------------------------------------------------


def page(base: Package, new: Package, seen: Sequence[Mapping[str, Shapes]], found: Compared) -> Iterator[str]:
    """Write the page, and one line at its end."""
    added = sorted(new.scripts.keys() - base.scripts.keys())
    gone = sorted(base.scripts.keys() - new.scripts.keys())
    others = changed(base.scripts, new.scripts)
    rows = list(signatures(base, new, seen))
    yield f"# BullMQ {new.version} after {base.version}"
    yield ""
    yield "| Pin | Scripts of it that are the same |"
    yield "|---|---|"
    for pin, record in scripts.RECORDS.items():
        recorded = json.loads(record.read_text())
        same = sum(
            name in new.scripts and new.scripts[name].sha256 == each["sha256"] for name, each in recorded.items()
        )
        yield f"| {pin} | {same} of {len(recorded)} |"
    yield ""
    yield "## Scripts"
    yield ""
    yield f"- added: {_listed(f'`{name}-{new.scripts[name].keys}`' for name in added)}"
    yield f"- gone: {_listed(f'`{name}-{base.scripts[name].keys}`' for name in gone)}"
    yield f"- changed (by SHA-256): {_listed(f'`{name}`' for name in others)}"
    yield ""
    yield "## Signatures"
    yield ""
    if rows:
        yield "| Command | Number of keys, number of arguments, what is packed into them |"
        yield "|---|---|"
        yield from rows
    else:
        yield "None changed."
    unseen = sorted(name for name in others if not all(name in each for each in seen))
    if unseen:
        yield f"Arguments not seen: {_listed(f'`{name}`' for name in unseen)}"
    yield ""
    yield "## Directed cases and vectors that differ"
    yield ""
    commands = [name for name in others if name in found.cases or name in found.vectors]
    if commands:
        yield "| Command | Cases | Vectors | Among them |"
        yield "|---|---|---|---|"
    nothing = Differing(0, ())
    for name in commands:
        cases, vectors = found.cases.get(name, nothing), found.vectors.get(name, nothing)
        shown = "; ".join([*cases.names[:_SHOWN], *vectors.names[:_SHOWN]]) or "-"
        yield f"| `{name}` | {_share(cases)} | {_share(vectors)} | {shown} |"
    if found.not_asked:
        yield f"Not asked, as no pin has such calls: {_listed(f'`{name}`' for name in sorted(found.not_asked))}"
    unasked = sorted(set(others) - set(commands) - found.not_asked)
    if unasked:
        yield f"Changed, and no case asks: {_listed(f'`{name}`' for name in unasked)}"
    yield ""
    sums = [sum(len(each.names) for each in part.values()) for part in (found.cases, found.vectors)]
    yield (
        f"follow: bullmq {new.version} after {base.version}: {len(added)} scripts added, {len(gone)} gone, "
        f"{len(others)} changed, {len(rows)} signatures changed, {sums[0]} cases and {sums[1]} vectors differ"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _share(differing: Differing) -> str:
    return f"{len(differing.names)} of {differing.run}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="to be looked at")
    parser.add_argument("--base", help="to compare it with; the newest pin before it by default")
    asked = parser.parse_args(arguments)
    if not node_available():
        print("follow: Node and npm are needed")
        return 1
    for version in (asked.version, asked.base):
        if version is not None and not _VERSION.fullmatch(version):
            parser.error(f"{version} is no version")
    chosen = (asked.base or base_of(asked.version), asked.version)
    base, new = (read(version, installed(version)) for version in chosen)
    with servers.start() as server:
        seen = [observed(each, server) for each in (base, new)]
        found = compared(base, new, server)
    print("\n".join(page(base, new, seen, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
