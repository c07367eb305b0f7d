"""Run the same sequences on two databases, compare, and shrink what differs.

A difference has a signature: the request after which it is seen, and what kind of place it is in. Each signature is
found and shrunk once. A sequence goes on after a difference in a field's value that was seen before, and ends at any
other, since all that follows would differ too.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random

import hypothesis
import msgspec
from hypothesis import Phase, settings
from hypothesis.errors import NoSuchExample
from hypothesis.strategies import SearchStrategy

from bullmq_conformance.keyspace import PREFIX, Entry, Moments, Side, State, as_json, kind_of, lifetimes
from bullmq_conformance.program import Answer, Client
from bullmq_conformance.states import Json, elements, members, same_json
from bullmq_conformance.steps import (
    HOUR,
    LATER,
    LOCK_MS,
    QUEUES,
    Args,
    Operation,
    Request,
    Step,
    World,
    chosen,
    request,
    sequences,
)

SHRINKING = 300
"""How many sequences are run at most to make one shorter."""


class Hello(msgspec.Struct, frozen=True):
    """What a client says about itself."""

    can: list[str]
    client: str = "a client"
    version: str = ""
    options: list[str] | None = None


class Difference(msgspec.Struct, frozen=True):
    """One place in which a client differs from the reference."""

    place: str
    expected: Json
    got: Json
    kind: str
    """What kind of place it is, and how it differs."""
    local: bool
    """Whether it is about one value, so that what follows may be compared all the same."""


class Found(msgspec.Struct, frozen=True):
    """A signature, and the shortest sequence that shows it."""

    signature: str
    requests: list[Request]
    differences: list[Difference]
    repeated: bool = True
    """Whether it came again when the sequence was run once more."""


class Outcome(msgspec.Struct):
    """What one sequence gave."""

    requests: list[Request]
    signatures: dict[str, list[Difference]]
    ended: bool = False


class Report(msgspec.Struct):
    """What a client was asked and how it differs."""

    client: str
    client_version: str
    version: str
    reference: str
    """What it was compared with."""
    seed: int
    sequences: int
    requests: dict[str, int]
    left_out: list[str]
    found: list[Found]

    @property
    def total(self) -> int:
        """How many requests were compared."""
        return sum(self.requests.values())


class Arena:
    """A client and the reference, each on its own database of one server."""

    def __init__(self, client: Client, reference: Client, sides: tuple[Side, Side], moments: Moments) -> None:
        self.clients = (client, reference)
        self.sides = sides
        self._moments = moments
        moments.learn(*(n * LATER for n in range(1, 6)), *(n * HOUR for n in range(1, 7)))
        moments.learn_lifetime(LOCK_MS, 2 * LOCK_MS, LATER)
        self.counted: Counter[str] = Counter()
        self.known: dict[str, Operation] = {}
        self._opens = False

    def introduce(self, places: Sequence[Mapping[str, Json]]) -> tuple[Hello, Hello]:
        """Tell both where their database is; return what they say about themselves."""
        hello, other = (
            _hello(_checked(client.call("hello", place))) for client, place in zip(self.clients, places, strict=True)
        )
        can = set(hello.can) & set(other.can)
        self.known = chosen(can, hello.options)
        self._opens = "open" in can
        if not self.known:
            raise ValueError(f"the client says that it can do {hello.can!r}, of which nothing is asked here")
        return hello, other

    def run(self, steps: Sequence[Step], going_on: Callable[[str], bool] = lambda _: False) -> Outcome:
        """Run one sequence on both sides. It goes on after local differences that `going_on` takes."""
        world = World()
        return self._play(world, self._requests(world, steps), going_on)

    def replay(self, requests: Sequence[Request], going_on: Callable[[str], bool] = lambda _: False) -> Outcome:
        """Do the requests of a report again on both sides."""
        return self._play(World(), iter(requests), going_on)

    def _play(self, world: World, requests: Iterator[Request], going_on: Callable[[str], bool]) -> Outcome:
        outcome = Outcome([], {})
        seen = set[tuple[str, str]]()
        for side, client in zip(self.sides, self.clients, strict=True):
            _checked(client.call("reset", {}))
            side.begin()
            if not self._opens:
                side.wire.run([("HSET", f"{PREFIX}:{queue}:meta", "opts.maxLenEvents", "10000") for queue in QUEUES])
        for number, each in enumerate(requests, 1):
            answers = [
                self._do(side, client, number, each) for side, client in zip(self.sides, self.clients, strict=True)
            ]
            self.counted[each["call"]] += 1
            outcome.requests.append(each)
            states = [side.read() for side in self.sides]
            found = list(_compare((answers[0], answers[1]), (states[0], states[1]), opens=self._opens))
            fresh = [one for one in found if (one.place, repr((one.expected, one.got))) not in seen]
            seen = {(one.place, repr((one.expected, one.got))) for one in found}
            for one in fresh:
                outcome.signatures.setdefault(f"{each['call']}: {one.kind}", []).append(one)
            if fresh and not all(one.local and going_on(f"{each['call']}: {one.kind}") for one in fresh):
                outcome.ended = True
                break
            world.state = states[1]
            _note(world, each, answers[1])
        return outcome

    def _requests(self, world: World, steps: Sequence[Step]) -> Iterator[Request]:
        if self._opens:
            for queue in QUEUES:
                yield {"call": "open", "args": {"queue": queue}}
        for step in steps:
            found = request(self.known, world, step)
            if found is not None:
                yield found

    def _do(self, side: Side, client: Client, number: int, each: Request) -> Answer:
        """Do a request in a time of its own, so that a moment tells which request it belongs to."""
        args = {name: _own(side, name, value, each["args"]) for name, value in each["args"].items()}
        reason = args.get("reason")
        if isinstance(reason, str) and reason not in side.reasons:
            side.reasons.append(reason)
        before = max((end for _, end in side.windows.values()), default=0)
        while (start := _now()) <= before:
            time.sleep(0.0002)
        answer = client.call(each["call"], args)
        side.windows[number] = (start, _now())
        _learn(side, number, each, answer)
        return msgspec.structs.replace(answer, result=side.json(answer.result))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _hello(result: Json) -> Hello:
    try:
        return msgspec.convert(result, Hello)
    except msgspec.ValidationError as error:
        raise ValueError(f"the client's answer to hello is not as it must be: {error}") from None


def _checked(answer: Answer) -> Json:
    if answer.error is not None:
        raise ValueError(f"the client cannot begin: {answer.error}")
    return answer.result


def _own(side: Side, name: str, value: Json, args: Args) -> Json:
    """Return an argument as this side's client knows it."""
    if name == "token":
        return side.own(str(value))
    if name == "id" and "queue" in args:
        return side.raw_id(str(args["queue"]), str(value))
    if name == "jobs":
        return [{**members(job), "opts": _with_parent(side, members(job)["opts"])} for job in elements(value)]
    return _with_parent(side, value) if name == "opts" else value


def _with_parent(side: Side, opts: Json) -> Json:
    found = members(opts)
    if "parent" not in found:
        return found
    parent = members(found["parent"])
    queue = str(parent["queue"]).rpartition(":")[2]
    return {**found, "parent": {**parent, "id": side.raw_id(queue, str(parent["id"]))}}


def _learn(side: Side, number: int, each: Request, answer: Answer) -> None:
    """Note the token and the ids that a client made up."""
    if each["call"] == "take" and isinstance(answer.result, dict) and isinstance(answer.result.get("token"), str):
        side.name(str(answer.result["token"]), f"<token {number}>")
    if each["call"] == "flow":
        _name_nodes(side, f"{number}", answer.result, each["args"]["flow"])


_LONG = 16
"""An id of this many characters is none that a queue's counter gives."""


def _name_nodes(side: Side, place: str, added: Json, node: Json) -> None:
    if not isinstance(added, dict) or not isinstance(node, dict):
        return
    id, children, its = added.get("id"), added.get("children"), node.get("children")
    if isinstance(id, str) and len(id) >= _LONG and "jobId" not in members(node["opts"]):
        side.name(id, f"<job {place}>")
    if isinstance(children, list) and isinstance(its, list):
        for at, (child, one) in enumerate(zip(children, its, strict=False)):
            _name_nodes(side, f"{place}.{at}", child, one)


def _note(world: World, each: Request, answer: Answer) -> None:
    """Keep the list of held jobs."""
    args = each["args"]
    if each["call"] == "take" and isinstance(answer.result, dict):
        world.held.append((str(args["queue"]), str(answer.result["id"]), str(answer.result["token"])))
    gone = each["call"] in ("finish", "fail", "delay", "release")
    gone = gone or (each["call"] == "wait_for_children" and answer.result is True)
    if gone and answer.error is None:
        held = (args["queue"], args["id"], args["token"])
        world.held = [one for one in world.held if one != held]


# --- comparing --------------------------------------------------------------------------------------------------------


def _compare(answers: tuple[Answer, Answer], states: tuple[State, State], *, opens: bool) -> Iterator[Difference]:
    """Yield how the first answer and state differ from the second."""
    (got, wanted), (state, expected) = answers, states
    yield from _answers(got, wanted)
    for key in sorted(state.keys() | expected.keys()):
        one, other = expected.get(key), state.get(key)
        kind = kind_of(key)
        if one is None or other is None:
            shown = [None if each is None else as_json(each) for each in (one, other)]
            yield Difference(key, shown[0], shown[1], f"{kind} is {'there' if one is None else 'missing'}", False)
        elif one["type"] != other["type"]:
            yield Difference(key, as_json(one), as_json(other), f"{kind} is of another type", False)
        else:
            yield from _values(key, kind, one["type"], one["value"], other["value"], opens=opens)
            yield from _expiries(key, kind, one, other)


def _answers(got: Answer, wanted: Answer) -> Iterator[Difference]:
    if (got.error is None) != (wanted.error is None):
        kind = "answer is an error" if got.error is not None else "answer is no error"
        yield Difference("answer", _shown(wanted), _shown(got), kind, True)
    elif got.error is not None:
        if None not in (got.code, wanted.code) and got.code != wanted.code:
            yield Difference("answer", wanted.code, got.code, "answer has another code", True)
    elif got.result != wanted.result or type(got.result) is not type(wanted.result):
        if isinstance(got.result, dict) and isinstance(wanted.result, dict):
            for name in sorted(got.result.keys() | wanted.result.keys()):
                one, other = wanted.result.get(name), got.result.get(name)
                if one != other:
                    yield Difference(f"answer, {name}", one, other, f"answer differs in {name}", True)
        else:
            yield Difference("answer", wanted.result, got.result, "answer differs", True)


def _shown(answer: Answer) -> Json:
    return answer.result if answer.error is None else {"error": True, "code": answer.code}


def _expiries(key: str, kind: str, one: Entry, other: Entry) -> Iterator[Difference]:
    lives = "expires" in one, "expires" in other
    if lives[0] != lives[1]:
        how = "no" if lives[0] else "a"
    elif lives[0] and set(one.get("expires", ())).isdisjoint(other.get("expires", ())):
        how = "another"
    else:
        return
    shown: list[Json] = [[*lifetimes(each)] if "expires" in each else None for each in (one, other)]
    yield Difference(f"{key}, lifetime", shown[0], shown[1], f"{kind} has {how} lifetime", True)


def _values(key: str, kind: str, type_: str, one: Json, other: Json, *, opens: bool) -> Iterator[Difference]:
    if one == other:
        return
    if type_ == "hash":
        fields = members(one), members(other)
        for name in sorted(fields[0].keys() | fields[1].keys()):
            field = name if kind in ("<job>", "meta", "repeat:<id>") else "<child>"
            if name == "version" and kind == "meta" and not opens:
                continue
            yield from _field(f"{key}, {name}", f"{kind} {field}", fields[0].get(name), fields[1].get(name))
    elif type_ == "zset":
        scores = members(one), members(other)
        if scores[0].keys() != scores[1].keys():
            yield Difference(key, one, other, f"{kind} has other members", False)
        else:
            for name, wanted in sorted(scores[0].items()):
                if wanted != scores[1][name]:
                    yield Difference(f"{key}, {name}", wanted, scores[1][name], f"{kind} has another score", False)
    elif type_ == "stream":
        entries = [[members(each) for each in elements(side)] for side in (one, other)]
        yield from _entries(key, entries[0], entries[1])
    elif type_ == "string":
        yield Difference(key, one, other, f"{kind} has another value", True)
    else:
        yield Difference(key, one, other, f"{kind} has other elements", False)


def _field(place: str, kind: str, one: Json, other: Json) -> Iterator[Difference]:
    if one == other:
        return
    how = "is there" if one is None else "is missing" if other is None else "differs"
    if same_json(one, other):
        how = "is the same JSON in another text"
    yield Difference(place, one, other, f"{kind} {how}", True)


def _entries(key: str, one: list[dict[str, Json]], other: list[dict[str, Json]]) -> Iterator[Difference]:
    names = [[entry.get("event") for entry in side] for side in (one, other)]
    if names[0] != names[1]:
        at = next(
            (at for at, pair in enumerate(zip(names[0], names[1], strict=False)) if pair[0] != pair[1]),
            min(len(one), len(other)),
        )
        wanted, got = (side[at] if at < len(side) else None for side in (one, other))
        event = (wanted or got or {}).get("event")
        how = "is missing" if got is None or (wanted and len(one) > len(other)) else "is there"
        yield Difference(f"{key}, entry {at}", [*one[at:]], [*other[at:]], f"event {event} {how}", False)
        return
    for at, (wanted, got) in enumerate(zip(one, other, strict=True)):
        for name in sorted(wanted.keys() | got.keys()):
            kind = f"event {wanted.get('event')} {name}"
            yield from _field(f"{key}, entry {at}, {name}", kind, wanted.get(name), got.get(name))


# --- searching --------------------------------------------------------------------------------------------------------


def search(arena: Arena, *, seed: int, count: int, length: int, shrinking: int = SHRINKING) -> tuple[list[Found], int]:
    """Run `count` sequences; return each kind of difference with the shortest sequence, and how many were run.

    At most `shrinking` sequences are run to make one shorter.
    """
    strategy = sequences(arena.known, length)
    known: dict[str, None] = {}
    memory: dict[str, Outcome] = {}

    def outcome(steps: list[Step]) -> Outcome:
        text = json.dumps(steps, sort_keys=True)
        if text not in memory:
            memory[text] = arena.run(steps, lambda signature: signature in known)
            known.update(dict.fromkeys(memory[text].signatures))
        return memory[text]

    def collect(steps: list[Step]) -> bool:
        outcome(steps)
        return False

    _find(strategy, collect, seed, count)
    drawn, counted = len(memory), Counter(arena.counted)
    found = [_shrunk(arena, strategy, memory, signature, seed, count, shrinking) for signature in known]
    arena.counted = counted
    return found, drawn


class _Enough(BaseException):
    """Ends shrinking; hypothesis takes any other exception for a failure of its own kind."""


def _shrunk(
    arena: Arena,
    strategy: SearchStrategy[list[Step]],
    memory: Mapping[str, Outcome],
    signature: str,
    seed: int,
    count: int,
    shrinking: int,
) -> Found:
    """Make the first sequence that shows a difference shorter, as long as it shows it."""
    tried: dict[str, bool] = {text: signature in outcome.signatures for text, outcome in memory.items()}
    budget = len(tried) + shrinking
    best: list[list[Step]] = []

    def shows(steps: list[Step]) -> bool:
        text = json.dumps(steps, sort_keys=True)
        if text not in tried:
            if len(tried) >= budget:
                raise _Enough
            tried[text] = signature in arena.run(steps, lambda other: other != signature).signatures
        if tried[text]:
            # What shrinking tries is always simpler than what it has.
            best[:] = [steps]
        return tried[text]

    with suppress(_Enough):
        _find(strategy, shows, seed, count)
    (steps,) = best
    again = arena.run(steps, lambda other: other != signature)
    text = json.dumps(steps, sort_keys=True)
    differences = again.signatures.get(signature)
    if differences is None:
        differences = memory[text].signatures[signature] if text in memory else []
        return Found(signature, again.requests, differences, repeated=False)
    return _pruned(arena, Found(signature, again.requests, differences))


def _pruned(arena: Arena, found: Found) -> Found:
    """Leave out each request without which the difference is seen, too: shrinking may end before it tried them all."""
    signature = found.signature
    at = len(found.requests) - 1
    while at > 0:
        at -= 1
        if found.requests[at]["call"] != "open":
            again = arena.replay(_without(found.requests, at), lambda other: other != signature)
            if signature in again.signatures:
                found = Found(signature, again.requests, again.signatures[signature])
                at = min(at, len(found.requests) - 1)
    return found


_NUMBERED = re.compile(r"(<token |<job |@)(\d+)")


def _without(requests: Sequence[Request], at: int) -> list[Request]:
    """Return all requests but one; what is named by the number of a later request gets its new number."""
    kept = json.dumps([*requests[:at], *requests[at + 1 :]])
    text = _NUMBERED.sub(lambda named: f"{named[1]}{int(named[2]) - (int(named[2]) > at + 1)}", kept)
    return msgspec.json.decode(text, type=list[Request])


def _find(
    strategy: SearchStrategy[list[Step]],
    condition: Callable[[list[Step]], bool],
    seed: int,
    count: int,
    phases: Sequence[Phase] = (Phase.generate, Phase.shrink),
) -> list[Step] | None:
    limits = settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=phases,
    )
    try:
        return hypothesis.find(strategy, condition, settings=limits, random=Random(seed))
    except NoSuchExample:
        return None


def first(arena: Arena, *, seed: int, count: int, length: int) -> Outcome | None:
    """Return the outcome of the first sequence that differs, None if none of `count` does."""
    found: list[Outcome] = []

    def differs(steps: list[Step]) -> bool:
        if not found:
            outcome = arena.run(steps)
            found.extend([outcome] if outcome.signatures else [])
        return bool(found)

    _find(sequences(arena.known, length), differs, seed, count, phases=(Phase.generate,))
    return found[0] if found else None
