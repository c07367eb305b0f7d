"""Record golden vectors: `python -m tests.oracle.record [COMMAND ...]` writes `specs/vectors/<command>.json`.

Without names those of later versions are recorded, too: `specs/vectors/<version>/<command>.json` has the directed cases
of part 06 in which a version does otherwise than the pinned one before it, and no inputs of a client.

A vector is a call on a start state of its own, with what BullMQ's script did on Redis 6.2, Redis 7.0 and Valkey 9: a
call whose outcome differs between them, or that has a lifetime about to end, is left out. The directed cases come
first; what the table `specs/commands.json` and the marks in our Lua name beside them comes from random states. Where
our builder makes a call with the same effects, the vector holds the builder's call and its inputs. Nothing depends on
the clock or on chance, so recording again gives the same files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bullmq_conformance.wire import stored_in
from lua import build
from tests.oracle import directed, record_cases, regressions, scripts, states
from tests.oracle.calls import Call, Command
from tests.oracle.cases import Case
from tests.oracle.directed import finishing, held, later, upset
from tests.oracle.harness import ANY_ORDER, COVERAGE, DUMP, Wire, error_class
from tests.oracle.inputs import canonical
from tests.oracle.layouts import VERSIONS, whole, with_args, with_keys
from tests.support import servers, vectors
from tests.support.vector_coverage import covered, fingerprint, required
from tests.support.vectors import Json, Vector

SEED = 1
STATES = 4000
"""Most random states to look at for what the directed cases leave out."""

RANDOM = "random"
SIZE = 7000
LARGE = 50_000
"""Longest vector in characters of JSON, of the directed cases and of those made for this."""

LEAST_PER_COMMAND = 8
SHORTEST_LIFE_MS = 4000
"""A lifetime of five seconds, of which a busy machine lets one pass, is long enough."""
TIMED = {"getRateLimitTtl": None, "moveJobFromActiveToWait": None, "moveToActive": 2, "moveToFinished": 2}
"""Replies with a remaining time: the whole reply, or an element of it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A call to be recorded: where it is from, and the state it meets."""

    title: str
    section: str
    start: dict[str, Json]
    call: Call
    most: int = SIZE


@dataclass(slots=True)
class Recorder:
    """The servers, with BullMQ's scripts, and ours counting their marks on the first."""

    wires: list[Wire]
    hashes: dict[str, str]
    ours: dict[str, str]
    dump: str
    found: dict[str, list[Vector]] = field(default_factory=dict)
    prints: set[str] = field(default_factory=set)
    reached: dict[str, set[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def state(self) -> dict[str, Json] | None:
        """Read the first server's database as a start state; None if it cannot be written as one."""
        (dump,) = self.wires[0].run([("EVALSHA", self.dump, 0, "full", COVERAGE)])
        found: dict[str, Json] = {}
        try:
            for each in stored_in(dump):
                if each.kind == "stream" and not each.value:
                    return None
                left = None if each.left is None else _rounded(each.left)
                found[each.name.decode()] = vectors.entry(each.kind, each.value, left)
        except UnicodeDecodeError:
            return None
        return found

    def steps(self, steps: Sequence[Call | Command]) -> None:
        """Run steps with BullMQ's scripts on the first server."""
        self.wires[0].run([self.step(step) for step in steps])

    def step(self, step: Call | Command) -> Command:
        if isinstance(step, Call):
            return ("EVALSHA", self.hashes[step.name], len(step.keys), *step.keys, *step.args)
        return step

    def outcome(self, source: Source, call: Call) -> Vector | None:
        """Run a call on every server; return the vector if all agree and it can be told in JSON."""
        vector: Vector = {
            "title": source.title,
            "section": source.section,
            "start": source.start,
            "call": _as_recorded(call),
        }
        if call.name in ANY_ORDER and _many_members(source.start):
            vector["any_order"] = True
        try:
            for wire in self.wires:
                given, end, events = vectors.run(wire, self.hashes[call.name], self.dump, vector)
                _settle(vector, call.name, given, end, events)
                if any(0 <= each.get("ttl_ms", -1) < SHORTEST_LIFE_MS for each in end.values()):
                    return None
        except (UnicodeDecodeError, ValueError, _Unlike):
            return None
        if any(0 <= each.get("ttl_ms", -1) < SHORTEST_LIFE_MS for each in source.start.values()):
            return None
        return vector if len(json.dumps(vector)) <= source.most else None

    def marks(self, vector: Vector, name: str) -> set[str]:
        """Return the branches that our script takes, having checked that it does the same."""
        wire = self.wires[0]
        given, end, events = vectors.run(wire, self.ours[name], self.dump, vector)
        shown = vectors.reply(name, given, error_class(given) if isinstance(given, Exception) else "")
        for problem in vectors.differences(vector, shown, end, events):
            self.wrong.append(f"{name}: {vector['title']}: ours differs: {problem}")
        flat = wire.run([("HGETALL", COVERAGE)])[0]
        return {mark.decode() for mark in flat[::2]}

    def consider(self, source: Source, *, only_new: bool, final: bool = True) -> None:
        """Record a call, as our builder makes it if that has the same effects, unless it adds nothing.

        Not final: keys of its start state that are not needed for what is new are left out.
        """
        name = source.call.name
        vector = self.outcome(source, source.call)
        if vector is None:
            return
        made = canonical(source.call)
        vector["inputs"] = None
        if made is not None:
            inputs, call = made
            better = vector if _as_recorded(call) == vector["call"] else self.outcome(source, call)
            if better is not None and _same_effects(vector, better):
                vector = {**better, "inputs": inputs}
        vector["decoded"] = vectors.decoding(name, vector)
        if fingerprint(name, vector) in self.prints:
            return
        adds = self.adds(name, vector)
        row = vectors.table()[name]
        wanted = {f"{who}{each}" for each in required(row) for who in ("", "client ")}
        known = self.reached.setdefault(name, set())
        fresh = {each for each in adds - known if each in wanted or each.startswith("mark ")}
        if only_new and not fresh:
            return
        if not final:
            smaller = self.smaller(source, vector, name, fresh)
            if smaller is not vector:
                vector, adds = smaller, self.adds(name, smaller)
            if fingerprint(name, vector) in self.prints:
                return
        self.prints.add(fingerprint(name, vector))
        if not vector.get("any_order"):
            known |= adds
        self.found.setdefault(name, []).append(vector)

    def adds(self, name: str, vector: Vector) -> set[str]:
        """Return all that a vector covers; `client ...` if a client makes the call."""
        found = covered(vectors.table()[name], vector) | {f"mark {mark}" for mark in self.marks(vector, name)}
        return found if vector["inputs"] is None else found | {f"client {each}" for each in found}

    def smaller(self, source: Source, vector: Vector, name: str, fresh: set[str]) -> Vector:
        """Leave out keys of the start state as long as what is new stays."""
        call = _call(name, vector)
        for key in list(vector["start"]):
            start = {each: value for each, value in vector["start"].items() if each != key}
            less = self.outcome(Source(source.title, source.section, start, call), call)
            if less is None:
                continue
            less["inputs"] = vector["inputs"]
            less["decoded"] = vectors.decoding(name, less)
            if fresh <= self.adds(name, less):
                vector = less
        return vector

    def missing(self, name: str) -> set[str]:
        """Return what the table names and no vector of a command has."""
        return required(vectors.table()[name]) - self.reached.get(name, set())

    def unreached(self) -> set[str]:
        """Return the marks that no vector reaches."""
        reached = {each.removeprefix("mark ") for found in self.reached.values() for each in found}
        return {mark for name in self.found for mark in build.marks(name)} - reached


def _as_recorded(call: Call) -> dict[str, list[Json]]:
    encodings = [each["encoding"] for each in vectors.table()[call.name]["arguments"]]
    encodings += [encodings[-1] if encodings else "text"] * len(call.args)
    return {
        "keys": [vectors.text(_bytes(key)) for key in call.keys],
        "args": [vectors.argument(arg, kind) for arg, kind in zip(call.args, encodings, strict=False)],
    }


def _call(name: str, vector: Vector) -> Call:
    call = vector["call"]
    return Call(name, tuple(map(vectors.raw, call["keys"])), tuple(map(vectors.raw, call["args"])))


class _Unlike(Exception):
    """Two servers disagree."""


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _rounded(ms: int) -> int:
    """Lifetimes have run for a moment when they are read; nobody sets one that is no multiple of 100 ms."""
    return (ms + 99) // 100 * 100


def _many_members(start: Mapping[str, Json]) -> bool:
    return any(
        entry["type"] in ("set", "hash")
        and len(entry["value"]) > 1
        and not (entry["type"] == "set" and all(str(each).isdigit() for each in entry["value"]))
        and not (entry["type"] == "hash" and not key.endswith((":processed", ":failed")))
        for key, entry in start.items()
    )


def _settle(vector: Vector, name: str, given: Any, end: dict[str, Json], events: dict[str, Json]) -> None:
    """Put an outcome into a vector, or compare it with the one that is there."""
    reply = vectors.reply(name, given, error_class(given) if isinstance(given, Exception) else "")
    if name in TIMED:
        place = TIMED[name]
        if place is None and isinstance(reply, int) and reply > 0:
            reply, vector["reply_tolerance_ms"] = _rounded(reply), vectors.TOLERANCE_MS
        elif place is not None and isinstance(reply, list) and isinstance(reply[place], int) and reply[place] > 0:
            reply[place], vector["reply_tolerance_ms"] = _rounded(reply[place]), vectors.TOLERANCE_MS
    for entry in end.values():
        if "ttl_ms" in entry:
            entry["ttl_ms"] = _rounded(entry["ttl_ms"])
    if "end" in vector:
        if vectors.differences(vector, reply, end, events):
            raise _Unlike
        return
    if vector.get("any_order"):
        reply = vectors.in_order(reply)
        end = {
            key: {**entry, "value": vectors.in_order(entry["value"])} if entry["type"] in ("list", "stream") else entry
            for key, entry in end.items()
        }
        events = {key: vectors.in_order(each) for key, each in events.items()}
    vector |= {"reply": reply, "end": end, "events": events}


def _same_effects(one: Vector, other: Vector) -> bool:
    """Tell whether two calls did the same, but for how a job's options are written."""
    stripped = []
    for vector in (one, other):
        end = {
            key: {**entry, "value": {name: each for name, each in entry["value"].items() if name != "opts"}}
            if entry["type"] == "hash"
            else entry
            for key, entry in vector["end"].items()
        }
        stripped.append({"end": end, "events": vector["events"], "reply": vector["reply"]})
    return not vectors.differences(stripped[0], stripped[1]["reply"], stripped[1]["end"], stripped[1]["events"])


def _sources(recorder: Recorder, cases: Sequence[Case], names: set[str]) -> Iterator[tuple[Source, bool]]:
    """Yield the calls of the cases; the last of a case is what it is about."""
    for case in cases:
        section = case.covers.split()[0]
        calls = [at for at, step in enumerate(case.steps) if isinstance(step, Call) and step.name in names]
        for at in calls:
            recorder.steps([("FLUSHDB",), *case.steps[:at]])
            start = recorder.state()
            step = case.steps[at]
            assert isinstance(step, Call)
            if start is not None:
                most = LARGE if case in record_cases.CASES else SIZE
                only_new = at != calls[-1] or case in finishing.PLAIN
                yield Source(case.title, section, start, step, most), only_new


def _kept(names: set[str]) -> Iterator[Source]:
    """Yield the random calls that were recorded before: the generators may have changed since."""
    for name in sorted(names):
        if (vectors.FOLDER / f"{name}.json").exists():
            for vector in vectors.load(name):
                if vector["section"] == RANDOM:
                    yield Source(vector["title"], RANDOM, vector["start"], _text(_call(name, vector)))


def _text(call: Call) -> Call:
    """Write as text what is text."""
    return Call(call.name, tuple(map(_readable, call.keys)), tuple(map(_readable, call.args)))


def _readable(value: Any) -> Any:
    try:
        found = value.decode()
    except UnicodeDecodeError:
        return value
    return found if found.isprintable() else value


def _random(recorder: Recorder, names: set[str], count: int) -> Iterator[Source]:
    """Yield calls of random states."""
    generators, weights = zip(*states.GENERATORS, strict=True)
    for number in range(count):
        random = Random(f"state/{SEED}/{number}")
        made, found = random.choices(generators, weights)[0](states.Draw(random))
        for at, call in enumerate(found):
            if call.name not in names:
                continue
            recorder.steps([("FLUSHDB",), *made, *found[:at]])
            start = recorder.state()
            if start is not None:
                yield Source(f"random state {SEED}/{number}", RANDOM, start, call)


def record(names: set[str], random_states: int = STATES) -> Recorder:
    """Record the vectors of some commands."""
    with ExitStack() as stack:
        wires = []
        for kind in servers.KINDS:
            server = stack.enter_context(servers.start(kind))
            wires.append(Wire(server.host, server.port))
            stack.callback(wires[-1].close)
        hashes: dict[str, str] = {}
        ours: dict[str, str] = {}
        for wire in wires:
            for target, texts in ((hashes, scripts.originals()), (ours, scripts.ours_instrumented())):
                for name, reply in zip(
                    texts, wire.run([("SCRIPT", "LOAD", each) for each in texts.values()]), strict=True
                ):
                    target[name] = reply.decode()
            dump = wire.run([("SCRIPT", "LOAD", DUMP)])[0].decode()
        recorder = Recorder(wires, hashes, ours, dump)
        # What no vector can tell: many entries, ids that have come to their end, replies that no table names.
        untold = {*map(id, upset.CASES), *map(id, held.UNTOLD)}
        cases = [*record_cases.CASES, *regressions.CASES, *(each for each in directed.CASES if id(each) not in untold)]
        for source, only_new in _sources(recorder, cases, names):
            recorder.consider(source, only_new=only_new)
        for final, others in ((True, _kept(names)), (False, _random(recorder, names, random_states))):
            for source in others:
                few = len(recorder.found.get(source.call.name, ())) < LEAST_PER_COMMAND
                recorder.consider(source, only_new=not few, final=final)
        return recorder


def record_later(version: str) -> dict[str, list[Vector]]:
    """Record in which directed cases of part 06 a version does otherwise than the pinned one before it."""
    before = VERSIONS[VERSIONS.index(version) - 1]
    found: dict[str, list[Vector]] = {}
    with ExitStack() as stack:
        wires = []
        for kind in servers.KINDS:
            server = stack.enter_context(servers.start(kind))
            wires.append(Wire(server.host, server.port))
            stack.callback(wires[-1].close)
        dump = _loaded(wires, {"dump": DUMP})["dump"]
        recorders = [Recorder(wires, _loaded(wires, scripts.originals(each)), {}, dump) for each in (version, before)]
        for case in later.CASES[version]:
            source = _later_source(recorders[0], case, version)
            if source is None or source.call.name not in recorders[0].hashes:
                continue
            name = source.call.name
            vector = recorders[0].outcome(source, source.call)
            if vector is None or _as_before_it(recorders[1], source, vector, before):
                continue
            if fingerprint(name, vector) not in recorders[0].prints:
                recorders[0].prints.add(fingerprint(name, vector))
                found.setdefault(name, []).append(vector)
    return found


def _loaded(wires: Sequence[Wire], texts: Mapping[str, str]) -> dict[str, str]:
    """Load scripts on every server; return their SHA-1s."""
    replies = [wire.run([("SCRIPT", "LOAD", each) for each in texts.values()]) for wire in wires]
    return {name: reply.decode() for name, reply in zip(texts, replies[0], strict=True)}


def _later_source(recorder: Recorder, case: Case, version: str) -> Source | None:
    """Return the last call of a case as a version takes it, and the state that it meets."""
    steps = [_fitted(step, version) if isinstance(step, Call) else step for step in case.steps]
    at = max(at for at, step in enumerate(steps) if isinstance(step, Call))
    recorder.steps([("FLUSHDB",), *steps[:at]])
    start = recorder.state()
    step = steps[at]
    assert isinstance(step, Call)
    return None if start is None else Source(case.title, case.covers.split()[0], start, step)


def _fitted(call: Call, version: str) -> Call:
    keys = scripts.recorded_keys(version)
    return with_keys(with_args(whole(call), version), keys.get(call.name, len(call.keys)))


def _as_before_it(recorder: Recorder, source: Source, vector: Vector, version: str) -> bool:
    """Tell whether another version does the same, called with the same keys and arguments."""
    call = _fitted(source.call, version)
    if source.call.name not in recorder.hashes or call != source.call:
        return False
    other = recorder.outcome(source, call)
    return other is not None and not vectors.differences(vector, other["reply"], other["end"], other["events"])


def file_text(name: str, found: Sequence[Vector], version: str = "5.62.0") -> str:
    """Return the file of a command: one line per member of a vector."""
    lines = []
    for number, vector in enumerate(found, 1):
        body = {"id": f"{name}-{number}", **{key: vector[key] for key in ORDER if key in vector}}
        members = ",\n".join(f"   {json.dumps(key)}: {json.dumps(body[key], ensure_ascii=False)}" for key in body)
        lines.append(f"  {{\n{members}\n  }}")
    head = f' "command": {json.dumps(name)},\n "bullmq": {json.dumps(version)},\n'
    return f'{{\n{head} "vectors": [\n' + ",\n".join(lines) + "\n ]\n}\n"


def as_before(name: str, found: Sequence[Vector], version: str = "5.62.0") -> list[Vector]:
    """Return the vectors with the lifetimes that the file of a command has, where these are near: a busy machine lets
    more of them pass."""
    before = vectors.load(name, version) if vectors.path(name, version).exists() else ()
    return [_near(*pair) for pair in zip(found, before, strict=False)] + list(found[len(before) :])


def _near(new: Any, old: Any, tolerance: int = 0) -> Any:
    """Return a value with the numbers of another in place of its own, where they are lifetimes and near."""
    if isinstance(new, dict) and isinstance(old, dict):
        ms = new.get("reply_tolerance_ms", 0)
        tolerances = {"ttl_ms": vectors.TOLERANCE_MS, "reply": ms, "start": 0, "end": 0}
        return {key: _near(each, old.get(key), tolerances.get(key, 0)) for key, each in new.items()}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [_near(*pair, tolerance) for pair in zip(new, old, strict=True)]
    are_numbers = type(new) is int and type(old) is int
    return old if are_numbers and 0 < old - new <= tolerance else new


ORDER = (
    *("title", "section", "any_order", "reply_tolerance_ms", "inputs", "start", "call", "reply", "decoded", "end"),
    "events",
)


def main(arguments: Sequence[str]) -> int:
    """Record, write and tell what is missing."""
    names = set(arguments or vectors.scripts())
    recorder = record(names)
    vectors.FOLDER.mkdir(exist_ok=True)
    total = 0
    for name in sorted(names):
        found = as_before(name, recorder.found.get(name, []))
        (vectors.FOLDER / f"{name}.json").write_text(file_text(name, found), encoding="utf-8")
        total += len(found)
        client = sum(vector["inputs"] is not None for vector in found)
        missing = sorted(recorder.missing(name))
        sys.stdout.write(
            f"{name}: {len(found)} vectors, {client} of a client; missing: {', '.join(missing) or 'none'}\n"
        )
    for problem in (*recorder.wrong, *(f"no vector reaches {mark}" for mark in sorted(recorder.unreached()))):
        sys.stdout.write(f"{problem}\n")
    for version in VERSIONS[1:] if not arguments else ():
        total += _write_later(version)
    sys.stdout.write(f"{total} vectors\n")
    return 1 if recorder.wrong else 0


def _write_later(version: str) -> int:
    """Record and write the vectors of a later version; return their number."""
    folder = vectors.FOLDER / version
    folder.mkdir(exist_ok=True)
    recorded = record_later(version)
    for path in folder.glob("*.json"):
        if path.stem not in recorded:
            path.unlink()
    for name, found in recorded.items():
        text = file_text(name, as_before(name, found, version), version)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    count = sum(map(len, recorded.values()))
    sys.stdout.write(f"{version}: {count} vectors of {len(recorded)} commands\n")
    return count


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
