"""The relay's scripts: BullMQ 6.7.0's on one database, ours on another, on a server whose clock stands still in MULTI.

`python -m tests.oracle.relay` compares random sequences: `SEQUENCES` of them (1000), drawn by `SEED` (0). Nothing waits
for a lease to end: what the server's clock would do is done to both databases instead. With `--record` it writes what
BullMQ's scripts do in the cases to `specs/vectors/relay`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from lua import build
from tests.oracle.harness import COVERAGE, Wire
from tests.oracle.scripts import originals
from tests.support import relay_vectors, servers

VERSION = "6.7.0"
KIND = "valkey-9"
"""The server: Redis 7.0 and older look at the clock anew in each call."""
B = "bull::relay:{ns}"
NODES_KEY = f"{B}:nodes"
REGISTRY = "bull::relay:namespaces"
_MOST_STEPS = 120
FAR = 99_999_999_999_999
"""A moment that never comes."""

Step = tuple[Any, ...]
"""A script with what comes after its first argument, or a command of Redis that is done to both databases."""


class Difference(NamedTuple):
    """Where two sides parted."""

    name: str
    theirs: Any
    ours: Any
    steps: tuple[Step, ...]


def ours() -> dict[str, str]:
    """Return our scripts."""
    return {name: build.packaged(name) for name in build.apart("relay")}


def counting() -> dict[str, str]:
    """Return our scripts with counted marks."""
    return {name: build.instrumented(name, COVERAGE) for name in build.apart("relay")}


def marks() -> set[str]:
    """Return the marks of our scripts."""
    return {mark for name in build.apart("relay") for mark in build.marks(name)}


class Bench:
    """Both sides on one server."""

    def __init__(self, host: str, port: int, scripts: Mapping[str, str]) -> None:
        self._wire = Wire(host, port)
        theirs = {name: text for name, text in originals(VERSION).items() if name.startswith("relay")}
        assert theirs.keys() == scripts.keys()
        self._sides = [(0, self._load(theirs)), (1, self._load(scripts))]
        (self._dump,) = self._load({"": relay_vectors.DUMP}).values()
        self.calls = 0

    def _load(self, texts: Mapping[str, str]) -> dict[str, Any]:
        found = self._wire.run([("SCRIPT", "LOAD", text) for text in texts.values()])
        return dict(zip(texts, found, strict=True))

    def close(self) -> None:
        self._wire.close()

    def reset(self) -> None:
        self._wire.run([command for number, _ in self._sides for command in (("SELECT", number), ("FLUSHDB",))])

    def run(self, step: Step) -> tuple[Any, Any, Any]:
        """Do a step on both sides at one moment; return the reply of BullMQ's, and what differs, theirs and ours."""
        commands: list[Step] = [("MULTI",)]
        for number, known in self._sides:
            commands += [("SELECT", number), _call(step, known)]
        for number, _ in self._sides:
            commands += [("SELECT", number), ("EVALSHA", self._dump, 0, COVERAGE)]
        self.calls += 1
        done = self._wire.run([*commands, ("EXEC",)])[-1]
        _, theirs, _, ours, _, seen, _, our_seen = done
        if isinstance(theirs, Exception) and isinstance(ours, Exception):
            theirs = ours = "an error"
        if theirs != ours:
            return theirs, theirs, ours
        keys, our_keys = ({each[0]: each[1:] for each in found} for found in (seen, our_seen))
        wrong = [key for key in keys | our_keys if keys.get(key) != our_keys.get(key)]
        return theirs, *({key: found.get(key) for key in wrong} for found in (keys, our_keys))

    def reached(self) -> set[str]:
        """Return the marks that were counted since the databases were emptied."""
        flat = self._wire.run([("SELECT", 1), ("HGETALL", COVERAGE)])[-1]
        return {name.decode() for name in flat[::2]}

    def play(self, name: str, steps: Sequence[Step]) -> Difference | None:
        """Do steps on empty databases, up to the first difference."""
        self.reset()
        for number, step in enumerate(steps, 1):
            _, theirs, ours = self.run(step)
            if theirs != ours:
                return Difference(name, theirs, ours, tuple(steps[:number]))
        return None

    def random(self, seed: str) -> Difference | None:
        """Do a random sequence."""
        self.reset()
        done: list[Step] = []
        for step in _Sequence(seed).steps():
            done.append(step)
            _, theirs, ours = self.run(step)
            if theirs != ours:
                return Difference(f"random {seed}", theirs, ours, tuple(done))
        return None


def _call(step: Step, known: Mapping[str, Any]) -> Step:
    name, *args = step
    if name not in known:
        return step
    if name in ("relayGetNamespaces", "relayTouchNamespace"):
        return ("EVALSHA", known[name], 1, REGISTRY, *args)
    return ("EVALSHA", known[name], 1, NODES_KEY, B, *args)


# --- calls ----------------------------------------------------------------------------------------------------------


def register(node: str = "n1", *, lease: Any = 60_000, layout: str = "1", limit: Any = 10_000) -> Step:
    return ("relayRegisterNode", node, lease, "{}", layout, limit)


def subscribe(pattern: str, node: str = "n1", endpoint: str = "e1") -> Step:
    return ("relaySubscribe", node, endpoint, pattern)


def publish(topic: str, data: str = "d", *, retain: int = 0, limit: int = 4) -> Step:
    return ("relayPublish", topic, data, 10, retain, 17, limit)


def read(cursor: str = "0-0", node: str = "n1", count: int = 100) -> Step:
    return ("relayReadInbox", node, cursor, count)


def trim(cursor: str, limit: int, node: str = "n1") -> Step:
    return ("relayTrimInbox", node, cursor, limit)


def get(view: str, first: int = 0, last: int = -1, kind: str = "", value: str = "") -> Step:
    return ("relayGet", view, first, last, kind, value)


def over(node: str = "n1") -> Step:
    """The node's lease has ended, and nothing else has happened yet."""
    return ("ZADD", NODES_KEY, 1, node)


def gone(node: str = "n1") -> Step:
    """The node's record has expired."""
    return ("DEL", f"{B}:{node}:node")


def entry(number: int, node: str = "n1") -> Step:
    """An entry with an id that is known."""
    return ("XADD", f"{B}:{node}:inbox", f"{number}-0", "k", "msg")


READER = ("HSET", f"{B}:n1:node", "inFlight")

CASES: Mapping[str, tuple[Step, ...]] = {
    "ids that are none": (
        register(""),
        register("a.b"),
        register("x" * 65),
        subscribe("a", "a b"),
        subscribe("a", endpoint=""),
    ),
    "topics that are none": tuple(
        publish(text)
        for text in ("", "x" * 513, "a..b", ".a", "a.", "a b", "a|b", "a.*", ">", ".".join("abcdefghijklmnopq"))
    ),
    "patterns that are none": (
        register(),
        *(subscribe(text) for text in ("", "a.>.b", "a..*", ".".join("abcdefghijklmnopq"))),
    ),
    "patterns of all kinds": (
        register(),
        *(subscribe(text) for text in ("a", "a.*", "*.b", "a.>", ">", ".".join("abcdefghijklmnop"))),
    ),
    "another layout": (register(), register("n2", layout="2"), register("n2")),
    "an inbox limit that is no number": (register(limit=""), register("n2", limit="7")),
    "registered again": (register(), subscribe("a"), register(lease=70_000), get("nodes")),
    "registered after it was gone": (register(), subscribe("a.*"), gone(), register(), get("nodes"), get("patterns")),
    "what was left goes in parts": (
        register("n2"),
        register(),
        *(subscribe(f"m.{number}") for number in range(230)),
        gone(),
        register(),
        register(),
        register(),
        get("counts"),
    ),
    "a heartbeat": (
        ("relayHeartbeat", "n1", 60_000),
        register(),
        ("relayHeartbeat", "n1", 70_000),
        gone(),
        ("relayHeartbeat", "n1", 5),
    ),
    "unregistered": (
        register(),
        register("n2"),
        subscribe("a.*"),
        subscribe("a.*", "n2"),
        subscribe("b", "n2"),
        ("relayUnregisterNode", "n2"),
        ("relayUnregisterNode", "n2"),
        get("counts"),
        ("relayUnregisterNode", "n1"),
        get("counts"),
    ),
    "the last node goes, a message is retained": (
        register(),
        subscribe("a"),
        publish("a", retain=60_000),
        ("relayUnregisterNode", "n1"),
        get("used"),
        get("counts"),
    ),
    "a sweep": (
        ("relaySweep", 0),
        register(),
        register("n2"),
        register("n3"),
        subscribe("a.*"),
        subscribe("a.*", "n3"),
        over(),
        over("n3"),
        ("relaySweep", 1),
        ("relaySweep", 100),
        get("subscriptions"),
    ),
    "a sweep of all": (register(), subscribe("a"), over(), ("relaySweep", 100)),
    "a sweep of what was retained": (
        register(),
        publish("a", retain=60_000),
        ("ZADD", f"{B}:retained", 1, "b"),
        ("relaySweep", 100),
        get("retained"),
    ),
    "subscribed": (
        subscribe("a"),
        register(),
        subscribe("a"),
        subscribe("a"),
        subscribe("a.*"),
        subscribe("a.*"),
        subscribe("*.b"),
        subscribe(">"),
        gone(),
        subscribe("b"),
        get("subscriptions"),
    ),
    "subscribed to what is retained": (
        register(),
        publish("a", retain=60_000),
        subscribe("a"),
        subscribe("a"),
        subscribe("b"),
        subscribe(">"),
    ),
    "an endpoint that ends": (
        register(),
        register("n2"),
        subscribe("a.*"),
        subscribe("a.*", endpoint="e2"),
        subscribe("b"),
        subscribe("b", "n2"),
        ("relayRemoveEndpoint", "n1", "e1"),
        ("relayRemoveEndpoint", "n1", "e1"),
        ("relayRemoveEndpoint", "n1", "e2"),
        get("counts"),
    ),
    "published": (
        register(),
        register("n2"),
        subscribe("a.b"),
        subscribe("a.*"),
        subscribe("a.*", endpoint="e2"),
        subscribe("a.>", "n2"),
        subscribe("*.c", "n2"),
        subscribe("a.b.c", "n2"),
        publish("a.b"),
        publish("a.c"),
        publish("a"),
        publish("a.b.c"),
        publish("x.y"),
        read(),
        read(node="n2"),
    ),
    "published, too large": (register(), subscribe("a"), publish("a", "d" * 17), publish("a", "d" * 18)),
    "published to one whose lease is over": (
        register(),
        register("n2"),
        subscribe("a"),
        subscribe("a", "n2"),
        gone(),
        publish("a"),
    ),
    "published, the limit is not of the node": (
        register(),
        subscribe("a"),
        ("HDEL", f"{B}:n1:node", "maxLen"),
        *(publish("a", limit=2) for _ in range(3)),
        get("nodes"),
    ),
    "published into a full inbox, nothing was read": (
        register(limit=2),
        subscribe("a"),
        entry(1),
        entry(2),
        entry(3),
        publish("a"),
        get("nodes"),
    ),
    "published into a full inbox, a part was read": (
        register(limit=2),
        subscribe("a"),
        entry(1),
        entry(2),
        entry(3),
        (*READER, "1-0"),
        publish("a"),
        get("nodes"),
    ),
    "published into a full inbox, all was read": (
        register(limit=2),
        subscribe("a"),
        entry(1),
        entry(2),
        ("HSET", f"{B}:n1:node", "cursor", "9-0"),
        publish("a"),
        get("nodes"),
    ),
    "published into a full inbox, its place is 0": (
        register(limit=1),
        subscribe("a"),
        entry(1),
        (*READER, "0"),
        publish("a"),
        get("nodes"),
    ),
    "published and retained": (
        publish("a", retain=60_000),
        publish("a", "e", retain=50_000),
        publish("b", retain=40_000),
        ("ZADD", f"{B}:retained", 1, "c"),
        publish("d", retain=30_000),
        get("retained"),
        get("used"),
    ),
    "read": (
        read(),
        register(),
        read(),
        entry(1),
        entry(2),
        read(),
        read("1-0"),
        read("2-0"),
        read(count=1),
        gone(),
        read(),
    ),
    "acknowledged": (("relayAckInbox", "n1", "1-0"), register(), ("relayAckInbox", "n1", "1-0")),
    "trimmed": (
        trim("0-0", 5),
        register(),
        *(entry(number) for number in range(1, 7)),
        trim("0-0", 5),
        trim("0", 4),
        trim("3-0", 9),
        (*READER, "5-0"),
        trim("3-0", 1),
        trim("3-0", 0),
        get("nodes"),
    ),
    "trimmed without a record": (entry(1), entry(2), entry(3), trim("1-0", 1)),
    "retained no more": (
        ("relayDeleteRetained", "a.*"),
        ("relayDeleteRetained", "a"),
        publish("a", retain=60_000),
        publish("b", retain=50_000),
        ("relayDeleteRetained", "a"),
        ("relayDeleteRetained", "b"),
        register(),
        publish("a", retain=60_000),
        ("relayDeleteRetained", "a"),
    ),
    "what there is": (
        get("odd"),
        get("counts"),
        get("used"),
        get("nodes"),
        get("subscriptions"),
        get("patterns"),
        get("retained"),
        register(),
        register("n2"),
        subscribe("a.*"),
        subscribe("a.*", "n2"),
        subscribe("b", "n2", "e2"),
        publish("b", retain=60_000),
        publish("c", retain=50_000),
        ("HDEL", f"{B}:c:ret", "m"),
        ("ZADD", f"{B}:started", FAR, "n9"),
        *(
            get(view, first, last, *filter_by)
            for view in ("counts", "used", "nodes", "subscriptions", "patterns", "retained")
            for first, last in ((0, -1), (0, 0), (1, 1), (1, 0), (0, 7))
            for filter_by in (("", ""), ("node", "n2"), ("pattern", "a.*"))
        ),
    ),
    "used by a node": (register(), get("used"), over(), get("used")),
    "namespaces": (
        ("relayGetNamespaces",),
        ("relayTouchNamespace", "ns", 60_000),
        ("relayTouchNamespace", "ns", 50_000),
        ("relayTouchNamespace", "b", 70_000),
        ("ZADD", REGISTRY, 1, "c"),
        ("relayGetNamespaces",),
        ("relayTouchNamespace", "d", 5),
        ("relayTouchNamespace", "d", "x"),
    ),
    "arguments that are no numbers": (
        register(lease="x"),
        register(),
        ("relayHeartbeat", "n1", "x"),
        ("relaySweep", "x"),
        read(count=0),
        trim("0-0", -1),
        get("nodes", 0, 99),
        ("relayPublish", "a", "d", 10, "x", 17, 4),
        ("relayPublish", "a", "d", 10, 0, "x", 4),
    ),
}


# --- random sequences -----------------------------------------------------------------------------------------------

_NODES = ("n1", "n1", "n2", "n2", "n-3", "n_4")
_ENDPOINTS = ("e1", "e1", "e2", "e-3")
_TOPICS = ("a.b.c", "a.b.c", "a.b", "a", "x.y", "x.y.z", "q:1.%20.z_-", ".".join("abcdefghijklmnop"))
_PATTERNS = (*_TOPICS, "a.*", "a.*.c", "*.b.c", "a.>", ">", "*", "*.*", "x.>", "a.b.>", "*.>")
_BAD = ("", "a..b", "a.b|c", ".a", "a.", "a b", "a.>.b", "x" * 513, "\u00fc")
_VIEWS = ("counts", "used", "nodes", "subscriptions", "subscriptions", "patterns", "retained", "odd")
_KINDS = (
    *("register", "register", "beat", "leave", "sweep", "subscribe", "subscribe", "subscribe", "subscribe", "end"),
    *("publish", "publish", "publish", "publish", "read", "read", "ack", "trim", "delete", "get", "get", "names"),
    *("touch", "many", "over", "gone", "old"),
)


class _Sequence:
    """What a seed makes happen."""

    def __init__(self, seed: str) -> None:
        self._dice = Random(f"relay/{seed}")

    def steps(self) -> Iterator[Step]:
        for _ in range(self._dice.randint(10, 45)):
            yield from self._some()

    def _some(self) -> Iterator[Step]:
        pick, chance = self._dice.choice, self._dice.random
        node = pick(_NODES) if chance() < 0.97 else pick(("bad id", "", "x" * 65, "n.1"))
        topic = pick(_TOPICS) if chance() < 0.95 else pick((*_BAD, "a.*"))
        pattern = pick(_PATTERNS) if chance() < 0.95 else pick(_BAD)
        endpoint, cursor = pick(_ENDPOINTS), pick(("0-0", "0", "2-0", "9-0", str(FAR)))
        match pick(_KINDS):
            case "register":
                yield register(node, layout=pick("1111111112"), limit=pick((3, 5, "", 10_000)))
            case "beat":
                yield ("relayHeartbeat", node, 60_000)
            case "leave":
                yield ("relayUnregisterNode", node)
            case "sweep":
                yield ("relaySweep", pick((100, 1, 0)))
            case "subscribe":
                yield subscribe(pattern, node, endpoint)
            case "many" if chance() < 0.1:
                yield from (subscribe(f"m.{number}", node, endpoint) for number in range(120))
            case "end":
                yield ("relayRemoveEndpoint", node, endpoint)
            case "publish":
                yield publish(topic, "d" * pick((1, 5, 20)), retain=pick((0, 0, 60_000)))
            case "read":
                yield read(cursor, node, pick((1, 2, 100)))
            case "ack":
                yield ("relayAckInbox", node, cursor)
            case "trim":
                yield trim(cursor, pick((1, 2, 100)), node)
            case "delete":
                yield ("relayDeleteRetained", topic)
            case "get":
                kind = pick(("", "node", "pattern"))
                yield get(
                    pick(_VIEWS), pick((0, 0, 1)), pick((-1, -1, 0, 1, 3)), kind, node if kind == "node" else pattern
                )
            case "names":
                yield ("relayGetNamespaces",)
            case "touch":
                yield ("relayTouchNamespace", pick(("ns", "other")), pick((5, 60_000)))
            case "over":
                yield ("ZADD", NODES_KEY, "XX", 1, node)
            case "gone":
                yield gone(node)
            case "old":
                yield ("ZADD", f"{B}:retained", "XX", 1, topic)


def outcomes(wire: Wire, scripts: Mapping[str, str]) -> list[relay_vectors.Outcome]:
    """Return what these scripts reply and leave in the cases."""
    texts = {**scripts, "": relay_vectors.DUMP}
    replies = wire.run([("SCRIPT", "LOAD", text) for text in texts.values()])
    known = {name: sha.decode() for name, sha in zip(texts, replies, strict=True)}
    return [relay_vectors.run(wire, known, steps) for steps in asked().values()]


def asked() -> dict[str, list[dict[str, Any]]]:
    """Return the steps of the cases as the vectors have them, but for a case that would be as long as all others."""
    return {name: [_step(step) for step in steps] for name, steps in CASES.items() if len(steps) <= _MOST_STEPS}


def _step(step: Step) -> dict[str, Any]:
    name = step[0]
    words = [str(each) for each in _call(step, {name: name})] if name.startswith("relay") else list(map(str, step))
    return {"call": name, "keys": words[3:4], "args": words[4:]} if name.startswith("relay") else {"redis": words}


def recorded() -> list[relay_vectors.Outcome]:
    """Return what BullMQ's scripts do in the cases."""
    theirs = {name: text for name, text in originals(VERSION).items() if name.startswith("relay")}
    with servers.start(KIND) as server:
        wire = Wire(server.host, server.port)
        try:
            return outcomes(wire, theirs)
        finally:
            wire.close()


def main() -> int:
    """Run and print, or record the vectors; return the exit status."""
    if sys.argv[1:] == ["--record"]:
        done = zip(asked().items(), recorded(), strict=True)
        cases = [relay_vectors.case_of(title, steps, outcome) for (title, steps), outcome in done]
        relay_vectors.PATH.parent.mkdir(exist_ok=True)
        relay_vectors.PATH.write_text(relay_vectors.file_text(cases, VERSION), encoding="utf-8")
        return 0
    count, seed = int(os.environ.get("SEQUENCES", "1000")), os.environ.get("SEED", "0")
    with servers.start(KIND) as server:
        bench = Bench(server.host, server.port, ours())
        found = [bench.play(name, steps) for name, steps in CASES.items()]
        found += [bench.random(f"{seed}/{number}") for number in range(count)]
        bench.close()
    differences = [each for each in found if each is not None]
    for each in differences[:6]:
        sys.stdout.write(f"{each.name}: {each.theirs}, ours {each.ours}, after {each.steps[-12:]}\n")
    total = f"{count} sequences, {bench.calls} calls, {len(differences)} differences"
    sys.stdout.write(f"oracle: relay = {VERSION}: {total}\n")
    return bool(differences)


if __name__ == "__main__":
    sys.exit(main())
