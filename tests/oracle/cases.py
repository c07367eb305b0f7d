"""Directed cases: a start state, a call, and what the specification says must be there afterwards.

What is expected is compared with BullMQ's side, so a case also checks the specification; ours must equal it anyway.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.calls import Call, Command, Q, T
from tests.oracle.harness import TTL_TOLERANCE_MS, Bench, Entry, error_class, shown

Step = Call | Command


class _Any:
    """Equal to every reply."""


ANY = _Any()


@dataclass(frozen=True, slots=True)
class Case:
    """One directed case.

    `covers` names branches: `"02#5 8 q-lock; 02#W8 own"` are two of section 5 and one of W8 of part 02.
    `reply` is that of the last step: a value, a predicate, `ERROR` or `ANY`. `after` maps keys (those without a
    prefix belong to `bull:q:`) to what they hold, None for keys that are not there.
    """

    covers: str
    title: str
    steps: tuple[Step, ...]
    reply: Any = ANY
    after: Mapping[str, Any] = field(default_factory=dict)
    shortest: Mapping[str, Any] = field(default_factory=dict)
    """What differs on servers that print numbers in their shortest form: keys as in `after`, and `reply`."""

    @property
    def name(self) -> str:
        """Return the sections and the title."""
        return f"{' '.join(part.split()[0] for part in self.covers.split(';'))}: {self.title}"

    def branches(self) -> set[str]:
        """Return the branches as `section name`."""
        found = set()
        for part in self.covers.split(";"):
            section, *names = part.split()
            found |= {f"{section} {name}" for name in names}
        return found


def case(covers: str, title: str, *steps: Step | Iterable[Step], reply: Any = ANY, **after: Any) -> Case:
    """Make a case; steps may be nested, `after={...}` holds keys that are no Python names."""
    flat: list[Step] = []
    for step in steps:
        if isinstance(step, list):
            flat += step
        else:
            flat.append(step)  # type: ignore[arg-type]
    shortest = after.pop("shortest", {})
    return Case(covers, title, tuple(flat), reply, {**after.pop("after", {}), **after}, shortest)


# Start states


def job(id: str, base: str = Q, **fields: Any) -> Command:
    """The hash of a job as 02 §18 defines it, changed as said."""
    usual = {"name": "n", "data": "{}", "opts": "{}", "timestamp": T, "delay": 0, "priority": 0}
    return put(base + id, **(usual | fields))


def put(key: str, **fields: Any) -> Command:
    """Fields of a hash; `bull:q:` is put before a key without a colon."""
    return ("HSET", full(key), *[str(part) for item in fields.items() for part in item])


def meta(base: str = Q, **fields: Any) -> Command:
    """Settings of a queue."""
    return put(f"{base}meta", **fields)


def push(key: str, *ids: str) -> Command:
    """A list, from the left."""
    return ("RPUSH", full(key), *ids)


def zadd(key: str, members: Mapping[str, float | str]) -> Command:
    """A sorted set."""
    return ("ZADD", full(key), *[part for member, score in members.items() for part in (repr_score(score), member)])


def repr_score(score: float | str) -> str:
    return score if isinstance(score, str) else repr(score)


def full(key: str) -> str:
    """Return the key with the prefix of queue `bull:q` if it has none."""
    return key if key.startswith(("bull:", ":", "{")) else Q + key


# Replies


class Error:
    """Expect an error reply of a class."""

    def __init__(self, kind: str | None = None) -> None:
        self.kind = kind

    def __call__(self, reply: Any) -> bool:
        return isinstance(reply, Exception) and self.kind in (None, error_class(reply))

    def __repr__(self) -> str:
        return f"an error reply of class {self.kind or 'any'}"


ERROR = Error()
NONE = [0, 0, 0, 0]
"""Reply of a fetch that finds nothing."""


def took(id: str) -> Callable[[Any], bool]:
    """Expect a fetch that took a job."""

    def check(reply: Any) -> bool:
        return isinstance(reply, list) and isinstance(reply[0], list) and reply[1:] == [id.encode(), 0, 0]

    return check


def limited(most: int) -> Callable[[Any], bool]:
    """Expect a fetch that is rate limited for `most` ms or a little less."""

    def check(reply: Any) -> bool:
        return (
            isinstance(reply, list)
            and reply[:2] == [0, 0]
            and most - TTL_TOLERANCE_MS <= reply[2] <= most
            and reply[3] == 0
        )

    return check


def about(most: int) -> Callable[[Any], bool]:
    """Expect a remaining time of `most` ms or a little less."""

    def check(reply: Any) -> bool:
        return isinstance(reply, int) and most - TTL_TOLERANCE_MS <= reply <= most

    return check


# Expected keys


class Has(dict[str, Any]):
    """Some fields of a hash; None for a field that is not there."""


class Json:
    """JSON of which the order of members is the server's."""

    def __init__(self, text: str) -> None:
        self.value = json.loads(text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and bool(json.loads(other) == self.value)

    def __repr__(self) -> str:
        return f"JSON of {self.value!r}"


class Ttl:
    """A key with a lifetime of `most` ms or a little less, None for a key without, and a value."""

    def __init__(self, most: int | None, value: Any = ANY) -> None:
        self.most = most
        self.value = value

    def __repr__(self) -> str:
        return f"{self.value!r} for {self.most} ms"


def _decode(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if isinstance(value, dict):
        return {_decode(name): _decode(each) for name, each in value.items()}
    return value


def plain(entry: Entry | None) -> Any:
    """Return an entry as the cases write it: streams as texts without the word `event`, sorted sets as maps."""
    if entry is None:
        return None
    value = _decode(entry.value)
    if entry.kind == "zset":
        return {value[i]: float(value[i + 1]) for i in range(0, len(value), 2)}
    if entry.kind == "stream":
        return [" ".join(each[1:]) for each in value]
    if entry.kind == "set":
        return set(value)
    return value


def matches(expected: Any, entry: Entry | None) -> bool:
    """Tell whether a key holds what is expected."""
    if isinstance(expected, Ttl):
        if entry is None or not (expected.value is ANY or matches(expected.value, entry)):
            return False
        return (
            entry.ttl < 0 if expected.most is None else expected.most - TTL_TOLERANCE_MS <= entry.ttl <= expected.most
        )
    found = plain(entry)
    if isinstance(expected, Has):
        return isinstance(found, dict) and all(found.get(name) == value for name, value in expected.items())
    return bool(found == expected)


def reply_matches(expected: Any, reply: Any) -> bool:
    """Tell whether a reply is the one expected."""
    if expected is ANY:
        return True
    if callable(expected):
        return bool(expected(reply))
    return bool(_decode(reply) == expected)


def run(bench: Bench, case: Case) -> list[str]:
    """Run a case; return how the two sides differ, and how BullMQ's side differs from what the case expects."""
    bench.reset()
    problems: list[str] = []
    reply: Any = None
    made: list[Command] = []
    for step in case.steps:
        if not isinstance(step, Call):
            made.append(step)
            continue
        bench.plain(made)
        made = []
        result = bench.call(step)
        problems += result.differences
        reply = result.reply
    bench.plain(made)
    other = case.shortest if bench.shortest else {}
    expected_reply = other.get("reply", case.reply)
    if not reply_matches(expected_reply, reply):
        problems.append(f"the specification says reply {expected_reply!r}, BullMQ's is {shown(reply)}")
    after = {**case.after, **{key: value for key, value in other.items() if key != "reply"}}
    state = bench.state(0) if after else {}
    for key, expected in after.items():
        entry = state.get(full(key))
        if not matches(expected, entry):
            problems.append(f"the specification says {key} is {expected!r}, BullMQ's is {plain(entry)!r}")
    return problems


def run_ours(bench: Bench, case: Case) -> list[str]:
    """Run a case on our side alone; return how it differs from what the case expects."""
    bench.reset()
    reply: Any = None
    for step in case.steps:
        if isinstance(step, Call):
            reply = bench.call_one(1, step)
        else:
            bench.plain([step])
    problems: list[str] = []
    if not reply_matches(case.reply, reply):
        problems.append(f"the specification says reply {case.reply!r}, ours is {reply!r}")
    state = bench.state(1) if case.after else {}
    for key, expected in case.after.items():
        entry = state.get(full(key))
        if not matches(expected, entry):
            problems.append(f"the specification says {key} is {expected!r}, ours is {plain(entry)!r}")
    return problems
