"""Run a call on both sides, BullMQ's script in one database and ours in another, and compare all that can be seen."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from bullmq_conformance.wire import DUMP, Reply, Wire, error_class
from tests.oracle.calls import Call, Command
from tests.oracle.layouts import Layout

TTL_TOLERANCE_MS = 5000
"""How far remaining lifetimes, of keys and in replies, may lie apart: the two sides run one after the other."""

COVERAGE = "~oracle~"
"""Key in which instrumented scripts count the branches they reach; not part of the compared state."""

ANY_ORDER = frozenset({"moveStalledJobsToWait", "removeJob", "removeUnprocessedChildren"})
"""Commands that loop over SMEMBERS or HGETALL: the order is the server's (02 §1.3, 03 §1.6)."""

JOBS = ("moveToActive", "moveToFinished", "moveToDelayed")
"""Commands that may reply with the next job."""

# How the server writes a number that a script hands to a command: 01 §1.2.
SHORTEST = "return redis.call('ECHO', 0.1)"

COPY = """
for _, name in ipairs(redis.call('KEYS', '*')) do
  if name ~= ARGV[2] then
    redis.call('COPY', name, name, 'DB', ARGV[1], 'REPLACE')
  end
end
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a dump."""

    kind: str
    value: Any
    ttl: int


State = dict[str, Entry]


@dataclass(frozen=True, slots=True)
class Result:
    """What a call gave on BullMQ's side, and how ours differs."""

    reply: Reply
    ours: Reply
    differences: tuple[str, ...] = ()


@dataclass(slots=True)
class Tally:
    """What was run so far."""

    calls: int = 0
    skipped: int = 0
    """Calls that were left out: not allowed, or of commands that one of the sides does not have."""
    replies: dict[tuple[str, str], int] = field(default_factory=dict)


def commands_run(info: Reply) -> int:
    """Return how many commands a server has run so far, of scripts too, from its `INFO stats`."""
    found = re.search(rb"total_commands_processed:(\d+)", info)
    assert found is not None
    return int(found[1])


class Bench:
    """Two databases of one server, the original scripts on one, ours on the other.

    `ours` holds the text of our scripts; a command that is not in it runs BullMQ's script on both sides. With a
    `layout` each side is called in its own way, and a command that one of them does not have is left out. So is a call
    that is not `allowed`. The replies of the commands in `free` may differ, but for errors.
    """

    def __init__(
        self,
        host: str,
        port: int,
        originals: Mapping[str, str],
        ours: Mapping[str, str],
        databases: tuple[int, int] = (0, 1),
        layout: Layout | None = None,
        free: frozenset[str] = frozenset(),
    ) -> None:
        self.wire = Wire(host, port)
        self.databases = databases
        self.layout = layout
        self.free = free
        self.allowed: Callable[[Bench, Call], bool] | None = None
        self.tally = Tally()
        self._ours = frozenset(ours)
        self._loaded: dict[str, str] = {}
        self._hashes = tuple(self._load(scripts) for scripts in (originals, {**originals, **ours}))
        self.shortest = self.wire.run([("EVAL", SHORTEST, 0)])[0] == b"0.1"
        self._dump, self._copy = self._load({"dump": DUMP, "copy": COPY}).values()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def _load(self, scripts: Mapping[str, str]) -> dict[str, str]:
        new = {name: text for name, text in scripts.items() if text not in self._loaded}
        replies = self.wire.run([("SCRIPT", "LOAD", text) for text in new.values()])
        for (name, text), reply in zip(new.items(), replies, strict=True):
            if isinstance(reply, Exception):
                raise ValueError(f"the server does not compile {name}")
            self._loaded[text] = reply.decode()
        return {name: self._loaded[text] for name, text in scripts.items()}

    def replace(self, ours: Mapping[str, str], keys: Mapping[str, int] | None = None) -> None:
        """Use other texts for some of our scripts, which take so many keys."""
        self._hashes = (self._hashes[0], {**self._hashes[1], **self._load(ours)})
        if self.layout is not None and keys is not None:
            theirs, before = self.layout.keys
            self.layout = Layout(self.layout.version, (theirs, {**before, **keys}))

    @property
    def version(self) -> str:
        """The version of BullMQ's side."""
        return "5.62.0" if self.layout is None else self.layout.version

    def knows(self, name: str) -> bool:
        """Tell whether both sides have a command."""
        return self.layout is None or self.layout.knows(name)

    def hash_of(self, name: str) -> str:
        """Return the SHA-1 of BullMQ's script of this name."""
        return self._hashes[0][name]

    def reset(self, state: Iterable[Command] = (), *, strict: bool = True) -> None:
        """Start again from an empty database and `state`; not strict: commands that fail are left out."""
        self.plain([("FLUSHDB",), *state], strict=strict)

    def plain(self, commands: Sequence[Command], *, strict: bool = True) -> list[Reply]:
        """Run ordinary commands on both sides; the replies are those of the first."""
        first, second = self.databases
        replies = self.wire.run([("SELECT", first), *commands, ("SELECT", second), *commands])
        replies = replies[1 : len(commands) + 1]
        for command, reply in zip(commands, replies, strict=True):
            if strict and isinstance(reply, Exception):
                raise ValueError(f"{command}: {reply}")
        return replies

    def call(self, call: Call) -> Result:
        """Run one call on both sides and compare reply and state."""
        if not self.knows(call.name) or (self.allowed is not None and not self.allowed(self, call)):
            self.tally.skipped += 1
            return Result(None, None)
        self.tally.calls += call.name in self._ours
        eval_ = [self.eval_one(side, call) for side in (0, 1)]
        dump = ("EVALSHA", self._dump, 0, "digest", COVERAGE)
        first, second = self.databases
        _, reply, seen, _, our_reply, our_seen = self.wire.run(
            [("SELECT", first), eval_[0], dump, ("SELECT", second), eval_[1], dump]
        )
        kind = (call.name, reply_kind(call.name, reply))
        self.tally.replies[kind] = self.tally.replies.get(kind, 0) + 1
        same_reply = self._same(call, reply, our_reply)
        if same_reply and seen[0] == our_seen[0] and _clocks_equal(seen[1], our_seen[1]):
            return Result(reply, our_reply)
        return self._compare(call, reply, our_reply)

    def eval_one(self, side: int, call: Call) -> tuple[Any, ...]:
        """Return the command that makes a call with the scripts of one side (0 is BullMQ's)."""
        call = call if self.layout is None else self.layout.fitted(call, side)
        return ("EVALSHA", self._hashes[side][call.name], len(call.keys), *call.keys, *call.args)

    def call_one(self, side: int, call: Call) -> Reply:
        """Run one call on one side only (0 is BullMQ's)."""
        return self.wire.run([("SELECT", self.databases[side]), self.eval_one(side, call)])[1]

    def _same(self, call: Call, reply: Reply, our_reply: Reply) -> bool:
        failed = isinstance(reply, Exception) or isinstance(our_reply, Exception)
        return replies_equal(call.name, reply, our_reply) or (call.name in self.free and not failed)

    def _compare(self, call: Call, reply: Reply, our_reply: Reply) -> Result:
        states = [self.state(side) for side in (0, 1)]
        found = []
        if not self._same(call, reply, our_reply):
            found.append(f"reply {shown(reply)}, ours {our_reply!r}")
        found += differences(*states)
        if found and call.name in ANY_ORDER:
            loose = [{name: _unordered(entry) for name, entry in state.items()} for state in states]
            if not differences(*loose) and _sorted(reply) == _sorted(our_reply):
                self.copy()
                found = []
        return Result(reply, our_reply, tuple(found))

    def copy(self) -> None:
        """Make our side equal to BullMQ's."""
        first, second = self.databases
        copy = ("EVALSHA", self._copy, 0, second, COVERAGE)
        self.wire.run([("SELECT", second), ("FLUSHDB",), ("SELECT", first), copy])

    def state(self, side: int) -> State:
        """Read all keys of one side (0 is BullMQ's)."""
        _, (parts, clocks) = self.wire.run(
            [("SELECT", self.databases[side]), ("EVALSHA", self._dump, 0, "full", COVERAGE)]
        )
        left = iter(clocks)
        state = {}
        for name, kind, value, expires in parts:
            if kind == b"hash":
                value = dict(zip(value[::2], value[1::2], strict=True))
            state[_text(name)] = Entry(kind.decode(), value, next(left) if expires else -1)
        return state

    def reached(self) -> dict[str, int]:
        """Return and clear the branch counts that instrumented scripts have left on our side."""
        _, flat, _ = self.wire.run([("SELECT", self.databases[1]), ("HGETALL", COVERAGE), ("DEL", COVERAGE)])
        return {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _unordered(entry: Entry) -> Entry:
    if entry.kind in ("list", "stream"):
        return Entry(entry.kind, sorted(map(repr, entry.value)), entry.ttl)
    return entry


def _sorted(reply: Reply) -> Reply:
    return sorted(reply) if isinstance(reply, list) else reply


def _clocks_equal(one: list[int], other: list[int]) -> bool:
    return len(one) == len(other) and all(abs(a - b) <= TTL_TOLERANCE_MS for a, b in zip(one, other, strict=True))


def differences(theirs: State, ours: State) -> list[str]:
    """Compare two dumps key by key."""
    found = []
    for name in sorted(theirs.keys() | ours.keys()):
        one, other = theirs.get(name), ours.get(name)
        if one is None or other is None:
            found.append(f"{name}: {one and one.value!r}, ours {other and other.value!r}")
        elif (one.kind, one.value) != (other.kind, other.value):
            found.append(f"{name} ({one.kind}): {one.value!r}, ours ({other.kind}) {other.value!r}")
        elif (one.ttl < 0) != (other.ttl < 0) or abs(one.ttl - other.ttl) > TTL_TOLERANCE_MS:
            found.append(f"{name}: {one.ttl} ms left, ours {other.ttl}")
    return found


def shown(reply: Reply) -> str:
    """Write a reply of BullMQ's side; the text of an error is that of its script and stays out."""
    return f"an error of class {error_class(reply)}" if isinstance(reply, Exception) else repr(reply)


def _near(one: Reply, other: Reply) -> bool:
    if one == other:
        return True
    both = isinstance(one, int) and isinstance(other, int)
    return both and one > 0 and other > 0 and abs(one - other) <= TTL_TOLERANCE_MS


def _fields(reply: list[Any]) -> list[Any]:
    return sorted(zip(reply[::2], reply[1::2], strict=True))


def replies_equal(name: str, one: Reply, other: Reply) -> bool:
    """Compare two replies: remaining times within the tolerance, a job's fields in any order, errors by their class."""
    if isinstance(one, Exception) or isinstance(other, Exception):
        both = isinstance(one, Exception) and isinstance(other, Exception)
        return both and error_class(one) == error_class(other)
    if one == other:
        return True
    if name in ("getRateLimitTtl", "moveJobFromActiveToWait"):
        return _near(one, other)
    if name == "paginate":
        return _same_page(one, other)
    if not isinstance(one, list) or not isinstance(other, list):
        return False
    if name == "getJobs":
        return _jobs_of_states(one) == _jobs_of_states(other)
    if name not in JOBS:
        return False
    if len(one) != 4 or len(other) != 4:
        return False
    if isinstance(one[0], list) and isinstance(other[0], list):
        return _fields(one[0]) == _fields(other[0]) and bool(one[1:] == other[1:])
    return one[:2] == other[:2] and _near(one[2], other[2]) and bool(one[3:] == other[3:])


def _jobs_of_states(reply: list[Any]) -> list[Any]:
    """Return the jobs of each state with their fields in one order."""
    return [[(id, _fields(hash_)) for id, hash_ in jobs] for jobs in reply]


def _same_page(one: list[Any], other: list[Any]) -> bool:
    """Compare pages: their elements, with the hashes behind them, in any order if all of the key was read. A hash has
    its fields in any order."""
    if len(one) != 5 or len(other) != 5 or one[:2] != other[:2] or one[3] != other[3]:
        return False
    if one[2] == other[2] and list(map(_fields, one[4])) == list(map(_fields, other[4])):
        return True
    if len(one[2]) < one[3]:
        return False
    if any(len(page[4]) not in (0, len(page[2])) for page in (one, other)):
        return False
    hashes = [list(map(_fields, page[4])) or [None] * len(page[2]) for page in (one, other)]
    pages = [sorted(zip(page[2], each, strict=True)) for page, each in zip((one, other), hashes, strict=True)]
    return pages[0] == pages[1]


def reply_kind(name: str, reply: Reply) -> str:
    """Name the kind of a reply, for the tally: the code or state itself, else the shape."""
    if isinstance(reply, Exception):
        return "error"
    if isinstance(reply, list):
        if name in JOBS:
            if isinstance(reply[0], list):
                return "job"
            return "limited" if reply[2] else "next" if reply[3] else "none"
        if name == "isFinished":
            return f"[{reply[0]}]"
        return "list" if reply else "empty"
    if reply is None:
        return "nil"
    if isinstance(reply, int):
        return str(reply) if reply <= 2 else "number"
    return _text(reply) if name in ("getState", "getStateV2") else "text"
