"""Plant a fault in a script of ours, see whether a call of the oracle's cases notices it, and go on to the next.

Usage: python -m tools.mutants.lua [--profile NAME] [--sample N] [--seed S] [--only FILE] [--part K/N] [--fresh]

Faults follow rules: a comparison or an arithmetic sign changes, `and` becomes `or`, a part of a condition goes, a
condition is negated, a number moves by one, a statement is dropped, two commands change places. Each is packed into the
scripts that hold its file, and run by what the tests of the oracle run with those scripts: regressions, directed cases,
the edges and some random batches, some random states. Our scripts equal BullMQ's in all of these, so what they answer
and leave is what a fault is compared with, and it needs no run of BullMQ's script: a fault takes milliseconds.

Outcomes are kept (`kept.py`): a run goes on where another was cut off, and does again what a change concerns, which is
the faults of a changed file, and survivors where a test is new. `--fresh` forgets them.

What no call can tell from the right script is listed in `lua_equivalent.toml`, with the reason. Exits with 1 when less
than 95 % of the others (90 % in a sample) are noticed, or a listed fault is none or is noticed.

With `--profile 5.81`, `6.7` or `fleet` the faults are those of the lines that `strict` does not have, and the cases of
`tests/oracle/directed/later` come first. Faults that no call can tell count as survivors there: 90 % must be noticed.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import hiredis

from lua import build
from tests.oracle import batches, cost, directed, later_states, profiles, regressions, scripts, states
from tests.oracle.calls import Call, Command
from tests.oracle.directed import later
from tests.oracle.harness import COVERAGE, DUMP, TTL_TOLERANCE_MS, Wire, commands_run, replies_equal
from tests.oracle.layouts import Layout
from tests.support import servers
from tools.mutants.kept import Kept, Known, digest

LEAST = 0.95
LEAST_OF_SAMPLE = 0.9
"""Of a few hundred faults, so that chance alone does not fail a run."""
OF_A_FILE = 25
FEWEST = 30
"""A sample with fewer faults fails."""
STATES = 1500
BATCHES = 600
HANGS_S = 5.0
EQUIVALENT = Path(__file__).with_name("lua_equivalent.toml")
KEPT = build.ROOT.parent / ".cache" / "mutants" / "lua.jsonl"

# Reading Lua

TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<comment>--[^\n]*)|(?P<string>'[^'\n]*'|\"[^\"\n]*\")|(?P<number>0x[0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>\.\.\.|\.\.|[~=<>]=|[-+*/%^#<>=(){}\[\];:,.])"
)
SWAPPED = {"==": "~=", "~=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "*": "/", "/": "*"}
COMPARISONS = ("==", "~=", "<", "<=", ">", ">=")
OPENING, CLOSING = ("(", "{", "["), (")", "}", "]")
BLOCKS = {"function": 1, "do": 1, "then": 1, "repeat": 1, "end": -1, "until": -1}
WORDS = {
    "and",
    "or",
    "not",
    "return",
    "if",
    "then",
    "else",
    "elseif",
    "end",
    "local",
    "function",
    "for",
    "while",
    "do",
    "in",
}


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a script and where it stands."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: in which file, by which rule, the line as it is, and the text of the file with the fault."""

    file: str
    rule: str
    number: int
    line: str
    becomes: str
    text: str = field(repr=False, compare=False)
    right: str = field(repr=False, compare=False)
    """The text of the file without it."""

    @property
    def digest(self) -> str:
        """What its outcome is kept under."""
        return digest(self.file, self.right, self.text)

    def __str__(self) -> str:
        return f"{self.file}:{self.number}: {self.rule}\n    {self.line}\n    {self.becomes}"


def tokens(text: str) -> list[Token]:
    """Return the words of a script, without space and comments."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        assert match is not None, text[at : at + 40]
        kind = match.lastgroup or ""
        if kind not in ("space", "comment"):
            found.append(Token(kind, match[0], match.start(), match.end()))
        at = match.end()
    return found


STRICT = "strict"


def names_of(profile: str, root: Path = build.ROOT) -> tuple[str, ...]:
    """Return the scripts of a profile."""
    return (*build.commands(root), *(build.apart("later", root) if profile != STRICT else ()), *build.own(root))


def mutants(root: Path = build.ROOT, profile: str = STRICT) -> list[Mutant]:
    """Return all faults of what is packed into the scripts of `strict`, file by file; of another profile those of the
    lines that `strict` does not have."""
    packed = {path for name in names_of(profile, root) for path in build.files_of(name, root)}
    found: list[Mutant] = []
    for path in sorted(packed, key=lambda path: str(path.relative_to(root))):
        own = lines_of_its_own(path, profile, root) if profile != STRICT else None
        made = of_file(str(path.relative_to(root)), path.read_text(encoding="utf-8"))
        found += [each for each in made if own is None or each.number in own]
    return found


def lines_of_its_own(path: Path, profile: str, root: Path) -> set[int]:
    """Return the numbers of the lines that a profile has, with some flags, and `strict` with none."""
    every = [frozenset(flags) for flags in ((), ("batch",), ("deferred", "batch"))]
    theirs, own = (
        {
            number
            for flags in every
            for number, _ in build._chosen_lines(path, build._Choice(profiles.switches_of(name).chosen, flags))
        }
        for name in (STRICT, profile)
    )
    return own if path.parent.name == "later" else own - theirs


def uncalled(tests: Sequence[Test], root: Path = build.ROOT) -> list[str]:
    """Return the files of scripts of ours that no test calls, since there is nothing to compare them with."""
    called = {name for test in tests for name in test.scripts}
    return [f"ours/{name}.lua" for name in build.own(root) if name not in called]


def of_file(file: str, text: str) -> Iterator[Mutant]:
    """Give the faults of one file, each text once."""
    seen = {text}
    for rule, start, end, put in edits(text, tokens(text)):
        changed = text[:start] + put + text[end:]
        if changed in seen:
            continue
        seen.add(changed)
        first = text.rfind("\n", 0, start) + 1
        last = text.find("\n", end) if text.find("\n", end) >= 0 else len(text)
        line, becomes = text[first:last], changed[first : last + len(changed) - len(text)]
        yield Mutant(file, rule, text.count("\n", 0, start) + 1, shown(line), shown(becomes), changed, text)


def shown(lines: str) -> str:
    """Write lines as one, without comments: what the list of equivalent faults is compared with."""
    parts = (line.strip() for line in lines.splitlines())
    return " ".join(part for part in parts if part and not part.startswith("--"))


Edit = tuple[str, int, int, str]


def edits(text: str, words: Sequence[Token]) -> Iterator[Edit]:
    """Give rule, start, end and new text of every change."""
    for at, word in enumerate(words):
        before = words[at - 1] if at else None
        unary = before is None or before.text in (*OPENING, ",", "=", "return", "and", "or", "not", *SWAPPED, "..")
        if word.kind == "sign" and word.text in SWAPPED and not (word.text == "-" and unary):
            rule = "comparison" if word.text in COMPARISONS else "arithmetic"
            yield rule, word.start, word.end, SWAPPED[word.text]
        elif word.kind == "name" and word.text in ("and", "or"):
            yield "logic", word.start, word.end, "or" if word.text == "and" else "and"
            yield from dropped_operands(words, at)
        elif word.kind == "name" and word.text == "not":
            yield "logic", word.start, word.end, ""
        elif word.kind == "name" and word.text in ("true", "false"):
            yield "constant", word.start, word.end, "false" if word.text == "true" else "true"
        elif word.kind == "number" and not (before and before.text == "["):
            value = float(word.text)
            for moved in (value + 1, value - 1):
                yield "constant", word.start, word.end, f"({moved:.17g})"
        elif word.kind == "string" and re.fullmatch(r"'-?\d+'", word.text):
            for moved_text in (int(word.text[1:-1]) + 1, int(word.text[1:-1]) - 1):
                yield "constant", word.start, word.end, f"'{moved_text}'"
        if word.kind == "name" and word.text in ("if", "elseif", "while"):
            stop = next(i for i in range(at, len(words)) if words[i].text in ("then", "do"))
            start, end = words[at + 1].start, words[stop - 1].end
            yield "condition", start, end, f"not ({text[start:end]})"
            if word.text != "while":
                yield "condition", start, end, "true"
                yield "condition", start, end, "false"
    yield from statement_edits(text, words)


def dropped_operands(words: Sequence[Token], at: int) -> Iterator[Edit]:
    """Drop what stands on one side of `and` or `or`, within its brackets."""
    ends = ("then", "do", "return", ",", "=", "if", "elseif", "while", "local", ";", "function", "end", "else", "for")
    for step in (1, -1):
        depth, here = 0, at + step
        while 0 <= here < len(words):
            word = words[here]
            opens, closes = (OPENING, CLOSING) if step > 0 else (CLOSING, OPENING)
            if word.text in opens:
                depth += 1
            elif word.text in closes:
                if depth == 0:
                    break
                depth -= 1
            elif depth == 0 and (
                word.text in ("and", "or", *ends) or (word.kind == "name" and begins(words, here, step))
            ):
                break
            here += step
        if step > 0:
            yield "operand", words[at].start, words[here - 1].end, ""
        else:
            yield "operand", words[here + 1].start, words[at].end, ""


def begins(words: Sequence[Token], at: int, step: int) -> bool:
    """Tell whether a name begins a new statement, when walking forward: two operands never follow each other."""
    if step < 0:
        return False
    before = words[at - 1]
    return (before.kind in ("name", "string", "number") and before.text not in WORDS) or before.text in CLOSING


def statement_edits(text: str, words: Sequence[Token]) -> Iterator[Edit]:
    """Drop statements that call or assign, and change the places of two commands that follow each other."""
    before: tuple[int, int] | None = None
    for start, end, commanding in statements(text, words):
        yield "dropped", start, end, ""
        if before is not None and commanding and not text[before[1] : start].strip():
            between = text[before[1] : start]
            yield "order", before[0], end, text[start:end] + between + text[before[0] : before[1]]
        before = (start, end) if commanding else None


def statements(text: str, words: Sequence[Token]) -> Iterator[tuple[int, int, bool]]:
    """Give start and end of each statement that is a call, an assignment to what is there, a `return` or a `break`."""
    heads = {match.start(1) for match in re.finditer(r"^[ ]*([A-Za-z_])", text, re.MULTILINE)}
    by_start = {word.start: at for at, word in enumerate(words)}
    for start in sorted(heads & by_start.keys()):
        at = by_start[start]
        word, following = words[at], words[at + 1].text if at + 1 < len(words) else ""
        outside = not continues(words, at)
        if word.kind != "name" or not outside or (word.text in WORDS and word.text != "return"):
            continue
        if word.text != "return" and following not in ("(", "=", ",", ".", "["):
            if word.text == "break":
                yield word.start, word.end, False
            continue
        depth, here = 0, at
        while here < len(words):
            text_here = words[here].text
            depth += (text_here in OPENING) + (text_here == "function") - (text_here in CLOSING)
            if text_here in ("if", "do", "for", "while") and depth:
                depth += text_here != "for" and text_here != "while"
            if text_here == "end":
                if depth == 0:
                    break
                depth -= 1
            ended = here + 1 == len(words) or (depth == 0 and "\n" in text[words[here].end : words[here + 1].start])
            if ended and not (here + 1 < len(words) and continues(words, here + 1)):
                here += 1
                break
            here += 1
        end = words[here - 1].end
        if word.text == "return" and not text[end:].strip():
            continue
        yield start, end, word.text in ("call", "emit", "emit_capped") and following == "("


def continues(words: Sequence[Token], at: int) -> bool:
    """Tell whether a word goes on with the expression of the line before."""
    if at == 0:
        return False
    word, before = words[at], words[at - 1]
    joining = ("and", "or", "..", "+", "-", "*", "/", ",", "(", "{", "[", "=", "==", "~=", "<", ">", "<=", ">=", "not")
    return word.text in ("and", "or", "..", "+", "*", "/", ")", "}", "]", ",") or before.text in joining


# What a case runs, and what comes of it

Seen = tuple[Any, ...]
Names = dict[str, str]
"""The SHA-1 of each script on the server."""


@dataclass(slots=True)
class Test:
    """A run of our scripts from an empty database: their names, and what was seen with the right ones."""

    scripts: frozenset[str]
    run: Callable[[Runner, Names], Seen]
    counted: bool
    """Whether the number of commands counts, too: `tests/oracle/test_cost.py` looks at it."""
    digest: str
    right: Seen = ()
    steady: bool | None = None
    """Whether the right scripts give the same twice; None before they have run."""


class Runner:
    """A server, and one database on it."""

    def __init__(self, kind: str | None) -> None:
        self._server = servers.start(kind, config=("--save", "", "--maxmemory", "300mb", "--lua-time-limit", "1000"))
        self.hangs = 0
        self._connect()

    def _connect(self) -> None:
        self.wire = Wire(self._server.host, self._server.port)
        self.wire._socket.settimeout(HANGS_S)
        self._dump = self.load(DUMP)

    def load(self, text: str) -> str:
        """Load a script; raise `ValueError` for one that does not compile."""
        reply = self.wire.run([("SCRIPT", "LOAD", text)])[0]
        if isinstance(reply, Exception):
            raise ValueError(str(reply))
        return str(reply.decode())

    def again(self) -> None:
        """Start anew, because a script does not end."""
        self.hangs += 1
        self.wire.close()
        self._server.kill()
        self._server.restart()
        self._connect()

    def stop(self) -> None:
        self.wire.close()
        self._server.kill()

    def steps(self, steps: Sequence[Call | Command], names: Names) -> Seen:
        """Run steps on an empty database in one write; return the calls' replies and the state after each."""
        written: list[Sequence[Any]] = [("FLUSHDB",)]
        asked: list[tuple[int, str]] = []
        for step in steps:
            if isinstance(step, Call):
                asked.append((len(written), step.name))
                written.append(INFO)
                written.append(("EVALSHA", names[step.name], len(step.keys), *step.keys, *step.args))
                written.append(INFO)
                written.append(("EVALSHA", self._dump, 0, "digest", COVERAGE))
            else:
                written.append(step)
        replies = self.wire.run(written)
        return tuple(
            (name, replies[at + 1], replies[at + 3], commands_run(replies[at + 2]) - commands_run(replies[at]))
            for at, name in asked
        )

    def batch(self, made: Sequence[Command], found: Sequence[Call], merged: batches.Merged, names: Names) -> Seen:
        """Run calls at once, as `batches.compare` does on our side."""
        before = self.wire.run([("FLUSHDB",), *made, INFO])[-1]
        answers: list[Any] = []
        given = 0
        while given < len(found):
            built = merged(found[given:])
            eval_ = ("EVALSHA", names[built.name], len(built.keys), *built.keys, *built.args)
            reply = self.wire.run([eval_])[0]
            answers.append(reply)
            if not isinstance(reply, list) or not reply:
                break
            given += len(reply)
            if built.name == "fetchMany" and not isinstance(reply[-1], list):
                break
            if built.name == "fetchMany" and reply[-1] and not isinstance(reply[-1][0], (list, bytes)):
                break
        after, state = self.wire.run([INFO, ("EVALSHA", self._dump, 0, "digest", COVERAGE)])
        return ((OURS, answers, state, commands_run(after) - commands_run(before)),)


def judging() -> str:
    """Return a digest of how what is seen is told from what is right."""
    judges = (Runner.steps, Runner.batch, same, loosely, replies_equal)
    return digest(DUMP, *map(inspect.getsource, judges))


OURS = "several"
INFO = ("INFO", "stats")


def same(right: Seen, seen: Seen, *, counted: bool) -> bool:
    """Compare what was seen as the oracle does; counted: with the number of commands."""
    if len(right) != len(seen):
        return False
    for (name, one, state, count), (_, other, other_state, other_count) in zip(right, seen, strict=True):
        if counted and name not in cost.SEEDED and count != other_count:
            return False
        if isinstance(other_state, Exception) or state[0] != other_state[0] or len(state[1]) != len(other_state[1]):
            return False
        if any(abs(a - b) > TTL_TOLERANCE_MS for a, b in zip(state[1], other_state[1], strict=True)):
            return False
        if not (loosely(one, other) if name == OURS else replies_equal(name, one, other)):
            return False
    return True


def loosely(one: Any, other: Any) -> bool:
    """Compare replies: errors by their class, remaining times within the tolerance."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(loosely, one, other))
    if isinstance(one, hiredis.ReplyError) or isinstance(other, hiredis.ReplyError):
        return replies_equal("", one, other)
    if isinstance(one, bytes) and isinstance(other, bytes) and one.startswith((b"ERR ", b"user_script", b"WRONGTYPE")):
        return other.startswith((b"ERR ", b"user_script", b"WRONGTYPE"))
    near = isinstance(one, int) and isinstance(other, int) and one > 1000 and other > 1000
    return bool(one == other) or (near and abs(one - other) <= TTL_TOLERANCE_MS)


def tests(profile: str = STRICT) -> list[Test]:  # noqa: PT028
    """Return everything that is run, the quick and telling first."""
    found: list[Test] = []
    judged = judging()

    def single(steps: Sequence[Call | Command], *, counted: bool) -> None:
        names = frozenset(step.name for step in steps if isinstance(step, Call))
        found.append(
            Test(names, lambda runner, shas: runner.steps(steps, shas), counted, digest(judged, steps, counted))
        )

    def several(made: list[Command], calls: list[Call], merged: batches.Merged, *, counted: bool) -> None:
        built = merged(calls)
        known = digest(judged, made, calls, built.name, built.keys, built.args, counted)
        found.append(
            Test(frozenset({built.name}), lambda runner, shas: runner.batch(made, calls, merged, shas), counted, known)
        )

    if profile != STRICT:
        version = profiles.OWN.get(profile, "6.7.0")
        keys = scripts.our_keys(scripts.Side(profiles.switches_of(profile), version))
        layout = Layout(version, (keys, keys))

        def fitted(steps: Sequence[Call | Command]) -> list[Call | Command]:
            return [layout.fitted(step, 1) if isinstance(step, Call) else step for step in steps]

        for case in (*(later.FLEET if profile == "fleet" else ()), *later.CASES[version], *directed.CASES):
            if all(step.name in keys for step in case.steps if isinstance(step, Call)):
                single(fitted(case.steps), counted=False)
        for number in range(BATCHES):
            several(*batches.later_state(1, number)[1:], counted=False)
        for number in range(STATES):
            _, made, calls = later_states.state(number % 4, number // 4)
            single(fitted((*made, *(call for call in calls if call.name in keys))), counted=False)
        return list({test.digest: test for test in reversed(found)}.values())[::-1]
    for case in (*directed.CASES, *regressions.CASES):
        single(case.steps, counted=True)
    for _, *edge in batches.edges():
        several(*edge, counted=True)
        single((*edge[0], *edge[1]), counted=False)
    for number in range(BATCHES):
        several(*batches.state(1, number)[1:], counted=False)
    for number in range(STATES):
        _, made, calls = states.state(number % 4, number // 4)
        single((*made, *calls), counted=False)
    return list({test.digest: test for test in reversed(found)}.values())[::-1]


# Planting


class Field:
    """The right scripts, the tests and their results, on one server."""

    def __init__(self, runner: Runner, kept: Kept, profile: str = STRICT) -> None:
        self.runner = runner
        self.kept = kept
        self.tests = tests(profile)
        self._profile = profile
        self._blocks = profiles.switches_of(profile).chosen
        self.again = 0
        """How many faults were tested."""
        self._heat: dict[str, Counter[int]] = {}
        self._names: Names = {}
        # A copy: editing the scripts meanwhile changes nothing here.
        self._root = Path(tempfile.mkdtemp(prefix="mutants-"))
        shutil.copytree(build.ROOT, self._root / "lua")
        self._load_all()
        self._numbers = {test.digest: number for number, test in enumerate(self.tests)}
        root = self._root / "lua"
        self._holders = {
            name: {str(path.relative_to(root)) for path in build.files_of(name, root)}
            for name in names_of(profile, root)
        }

    def _load_all(self) -> None:
        root = self._root / "lua"
        for name in names_of(self._profile, root):
            self._names[name] = self.runner.load(build.packaged(name, root, self._blocks))

    def close(self) -> None:
        shutil.rmtree(self._root)

    def plant(self, mutant: Mutant) -> str:
        """Return `killed`, `survived`, `broken` (it does not compile) or `same` (packed, it is the right text)."""
        holders = {name for name, files in self._holders.items() if mutant.file in files}
        heat = self._heat.setdefault(mutant.file, Counter())
        touched = {test.digest for test in self.tests if not holders.isdisjoint(test.scripts)}
        known = self.kept.of(mutant.digest, touched)
        if known.outcome is None:
            known = self._test(mutant, holders, sorted(touched - known.asked, key=lambda one: self._order(one, heat)))
            self.kept.keep(mutant.digest, known.outcome or "", by=known.by, asked=touched)
        if known.outcome == "killed":
            heat[self._numbers[known.by]] += 1
        return known.outcome or ""

    def _order(self, test: str, heat: Counter[int]) -> tuple[int, int]:
        """What noticed most faults of a file comes first, then what is quick."""
        number = self._numbers[test]
        return -heat[number], number

    def _test(self, mutant: Mutant, holders: set[str], asked: Sequence[str]) -> Known:
        self.again += 1
        if self.again % 100 == 0:
            self.runner.wire.run([("SCRIPT", "FLUSH")])
            self._load_all()
            self.runner.load(DUMP)
        root = self._root / "lua"
        names = {name: sha1 for name, sha1 in self._names.items() if name not in holders}
        (root / mutant.file).write_text(mutant.text, encoding="utf-8")
        test = None
        try:
            for one in asked:
                test = self.tests[self._numbers[one]]
                for name in test.scripts - names.keys():
                    names[name] = self.runner.load(build.packaged(name, root, self._blocks))
                if self._notices(test, names):
                    return Known("killed", by=one)
            return self._unnoticed(mutant, holders, root)
        except (ValueError, build.BuildError):
            return Known("broken")
        except (OSError, hiredis.ProtocolError):
            (root / mutant.file).write_text(mutant.right, encoding="utf-8")
            self.runner.again()
            self._load_all()
            assert test is not None
            # The right scripts end, after the same restart: it is the fault that does not.
            test.steady = None
            return Known("killed", by=test.digest) if self._is_steady(test) else Known("survived")
        finally:
            (root / mutant.file).write_text(mutant.right, encoding="utf-8")

    def _is_steady(self, test: Test) -> bool:
        """Run the right scripts when a test is first asked: most are never needed for a few faults."""
        if test.steady is None:
            test.right = test.run(self.runner, self._names)
            test.steady = same(test.right, test.run(self.runner, self._names), counted=False)
        return test.steady

    def _notices(self, test: Test, names: Names) -> bool:
        """Tell whether a test sees another thing than with the right scripts.

        What is right is looked at again before a fault counts as noticed: a server that was started anew gives the
        fields of large hashes, and the members of sets, in another order.
        """
        if not self._is_steady(test) or same(test.right, test.run(self.runner, names), counted=test.counted):
            return False
        right = test.run(self.runner, self._names)
        if same(test.right, right, counted=test.counted):
            return True
        test.right = right
        return not same(right, test.run(self.runner, names), counted=test.counted)

    def _unnoticed(self, mutant: Mutant, holders: set[str], root: Path) -> Known:
        texts = {name: build.packaged(name, root, self._blocks).encode() for name in holders}
        found = {name: hashlib.sha1(text, usedforsecurity=False) for name, text in texts.items()}
        if all(each.hexdigest() == self._names[name] for name, each in found.items()):
            return Known("same")
        return Known("survived")


# The list of equivalent faults


def listed(mutant: Mutant, entries: Sequence[dict[str, str]]) -> list[int]:
    """Return the numbers of the entries that name a fault."""
    return [
        number
        for number, entry in enumerate(entries)
        if entry["file"] == mutant.file
        and entry["line"] == mutant.line
        and entry.get("rule", mutant.rule) == mutant.rule
        and entry.get("becomes", mutant.becomes) == mutant.becomes
    ]


def sample(faults: Sequence[Mutant], count: int, random: Random) -> list[Mutant]:
    """Draw faults, some of a file after one another: what noticed one of them is likely to notice the next."""
    files: dict[str, list[Mutant]] = {}
    for each in faults:
        files.setdefault(each.file, []).append(each)
    # The largest of u ** (1 / size) are a weighted sample without repetition.
    drawn = sorted(files.values(), key=lambda own: random.random() ** (1 / len(own)), reverse=True)
    return [each for own in drawn for each in random.sample(own, min(OF_A_FILE, len(own)))][:count]


def main(arguments: Sequence[str]) -> int:
    """Run and print; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants.lua", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="plant this many, drawn by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="plant no more after this long")
    parser.add_argument("--only", default="", help="faults of files that hold this text in their name")
    parser.add_argument("--part", default="1/1", help="for instance 2/3: the second of three parts")
    parser.add_argument("--profile", default=STRICT, choices=profiles.CONSTANTS, help="plant in what it changes")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found out")
    asked = parser.parse_args(arguments)
    entries: list[dict[str, str]] = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    if asked.profile != STRICT:
        entries = []
    everything = mutants(profile=asked.profile)
    used = {number for mutant in everything for number in listed(mutant, entries)}
    stale = [entry for number, entry in enumerate(entries) if number not in used]
    chosen = [mutant for mutant in everything if asked.only in mutant.file]
    if asked.sample:
        chosen = sample(chosen, asked.sample, Random(asked.seed))
    part, parts = map(int, asked.part.split("/"))
    chosen = chosen[part - 1 :: parts]
    began = time.monotonic()
    outcomes: Counter[str] = Counter()
    noticed: list[Mutant] = []
    right_ones: set[int] = set()
    runner = Runner(None)
    try:
        kept = KEPT if asked.profile == STRICT else KEPT.with_name(f"lua-{asked.profile}.jsonl")
        ground = Field(runner, Kept(kept, fresh=asked.fresh), asked.profile)
        left_out = uncalled(ground.tests)
        for file in left_out:
            print(f"mutants: none in {file}, which no case of the oracle calls; tests/server takes its branches")
        chosen = [mutant for mutant in chosen if mutant.file not in left_out]
        spent = time.monotonic() - began
        print(f"mutants: {len(chosen)} of {len(everything)} faults, {len(ground.tests)} tests, {spent:.0f} s to begin")
        reported = time.monotonic()
        for number, mutant in enumerate(chosen, 1):
            if time.monotonic() - began > asked.seconds:
                break
            known = listed(mutant, entries)
            # No test notices these, which takes all of them to see.
            outcome = "equivalent" if known and asked.sample else ground.plant(mutant)
            if outcome == "survived":
                outcome = "equivalent" if known else outcome
                right_ones.update(known)
                if not known:
                    print(f"survived: {mutant}", flush=True)
            elif known and outcome == "killed":
                noticed.append(mutant)
            outcomes[outcome] += 1
            if time.monotonic() - reported > 30:
                reported = time.monotonic()
                print(
                    f"mutants: {number} of {len(chosen)}, {outcomes['survived']} survive, {ground.again} tested now, "
                    f"{reported - began:.0f} s",
                    flush=True,
                )
        ground.close()
    finally:
        runner.stop()
    # The same line may stand at another place of the file, too.
    noticed = [mutant for mutant in noticed if right_ones.isdisjoint(listed(mutant, entries))]
    for mutant in noticed:
        print(f"noticed, though listed as equivalent: {mutant}")
    for entry in stale:
        print(f"listed, but no such fault: {entry}")
    counted = outcomes["killed"] + outcomes["survived"]
    rate = outcomes["killed"] / counted if counted else 1.0
    print(
        f"mutants: Lua, {outcomes['killed']} of {counted} noticed ({rate:.1%}), {outcomes['survived']} survive, "
        f"{outcomes['equivalent']} equivalent, {outcomes['broken']} do not compile, {outcomes['same']} change nothing, "
        f"{runner.hangs} hang, {ground.again} tested now, {time.monotonic() - began:.0f} s"
    )
    least = LEAST_OF_SAMPLE if asked.sample or asked.profile != STRICT else LEAST
    if asked.sample and counted < FEWEST:
        print(f"mutants: {counted} faults in the time that was given say nothing")
        return 1
    return 1 if rate < least or stale or noticed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
