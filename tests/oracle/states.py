"""Whole states that no sequence would reach, with odd numbers and wrong types, and calls aimed at them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from tests.oracle import calls
from tests.oracle.calls import Arg, Call, Command, P, Q, T, pack
from tests.oracle.harness import Bench
from tests.oracle.sequences import Found, replay, shrink

LISTS = ("wait", "paused", "active")
SETS = ("completed", "failed", "delayed", "prioritized", "waiting-children")
FAMILY = ("", ":lock", ":logs", ":dependencies", ":processed", ":failed", ":unsuccessful")
FLAGS = ("fpof", "cpof", "idof", "rdof")
PLAIN = ("1", "2", "3", "4", "5", "12", "a", "b")
COLONS = ("a:b:c", "x:y:z", f"repeat:s:{T}")
NAN, INF = float("nan"), float("inf")


class Draw:
    """A random source; `odd` answers are only given in a nasty case, options of later versions only to `later`."""

    def __init__(self, random: Random, *, later: bool = False) -> None:
        self.random = random
        self.later = later
        self.nasty = random.random() < 0.5
        self.much = random.choice((0.3, 1.0, 3.0))

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def odd(self, probability: float) -> bool:
        return self.nasty and self.random.random() < probability * self.much

    def some(self, items: Sequence[Any], *counts: int) -> list[Any]:
        return self.random.sample(items, min(len(items), self.pick(*counts)))


def fields(key: str, values: dict[str, Any]) -> list[Command]:
    return [("HSET", key, *[part for item in values.items() for part in item])] if values else []


def wrong_type(draw: Draw, key: str) -> list[Command]:
    return [
        ("DEL", key),
        draw.pick(
            ("SET", key, "str"),
            ("HSET", key, "f", "v"),
            ("RPUSH", key, "el", "1"),
            ("SADD", key, "m", "1"),
            ("ZADD", key, 1, "1"),
        ),
    ]


# Parts of a state


def meta(draw: Draw, base: str) -> list[Command]:
    found: dict[str, Any] = {}
    if draw.chance(0.55):
        found["opts.maxLenEvents"] = draw.pick("10000", "10000", "10000", "100", "5", "1", "0")
    if draw.odd(0.06):
        found["opts.maxLenEvents"] = draw.pick("abc", "-1", "1.5", "", "5 ")
    if draw.chance(0.22):
        found["paused"] = draw.pick("1", "1", "0", "")
    if draw.chance(0.3):
        found["concurrency"] = draw.pick("0", "1", "1", "2", "3", "50")
    if draw.odd(0.06):
        found["concurrency"] = draw.pick("abc", "", "1.5", "0x2", " 2 ", "-1", "nan", "1e1", "inf")
    if draw.chance(0.15):
        found["max"] = draw.pick("1", "3", "4", "100")
        found["duration"] = draw.pick("500000", "200000")
    if draw.odd(0.06):
        found["max"] = draw.pick("0", "-1", "abc", "", "2.5")
    if draw.odd(0.05):
        found["duration"] = draw.pick("0", "-700000.9", "abc", "", "200001.7", "0.5")
    if draw.chance(0.2):
        found["version"] = "bullmq:5.62.0"
    return fields(f"{base}meta", found)


def delayed_score(draw: Draw) -> Any:
    if draw.odd(0.1):
        return draw.pick(-20481, 0, -1, 5.5, (T + 7) * 4096 + 0.5, "inf", "-inf")
    due = T + draw.pick(0, 0, 1, 5, 500, 1000, -9, 5000, 123_456)
    return due * 4096 + draw.pick(0, 0, 1, 3, 17, 4093, 4094, 4095)


def score(draw: Draw, name: str) -> Any:
    if name == "delayed":
        return delayed_score(draw)
    if name == "prioritized":
        return draw.pick(4_294_967_297, 8_589_934_593, -4_294_967_294, 1, 5 * 2**32 + 4_294_967_295)
    return T - draw.pick(0, 0, 1, 2, 1000, 2000, 4000, 4500, 5000, 10**6) + draw.pick(0, 0, 0, 5)


def place(draw: Draw, base: str, id: str, name: str) -> Command:
    if name in LISTS:
        return (draw.pick("LPUSH", "RPUSH"), base + name, id)
    return ("ZADD", base + name, score(draw, name), id)


def job(draw: Draw, base: str, id: str) -> list[Command]:
    """The hash of a job, with its logs, lock and collections now and then."""
    key = base + id
    found: dict[str, Any] = {"name": "old"}
    if draw.chance(0.9):
        found |= {"data": '{"o":1}', "timestamp": str(T - draw.pick(0, 5, 1000))}
    if draw.chance(0.95):
        found["opts"] = draw.pick("{}", '{"attempts":3}', '{"repeat":{"every":1000}}', '{"repeat":false}', "[]")
        if draw.odd(0.06):
            found["opts"] = draw.pick("null", "5", '"abc"', "", "{bad", "[1,2]", '{"repeat":""}', "true")
    if draw.chance(0.9):
        found["priority"] = draw.pick("0", "0", "0", "1", "3", "2097152")
        if draw.odd(0.1):
            found["priority"] = draw.pick("x", "", "-1", "1.5", "1e3", "0x10", "-0", " 3 ", "nan", "inf")
    if draw.chance(0.9):
        found["delay"] = draw.pick("0", "0", "0", "1000", "5000")
        if draw.odd(0.08):
            found["delay"] = draw.pick("x", "", "-5", "0.1", "1000.5", "1e4", "10000000000001")
    for name, value in (
        ("atm", draw.pick("1", "2", "5")),
        ("ats", "1"),
        ("stc", draw.pick("0", "1", "2")),
        ("defa", "zz"),
        ("processedOn", "1"),
        ("pb", "old"),
        ("failedReason", "prev"),
        ("finishedOn", "9"),
        ("returnvalue", draw.pick('{"x":1}', "null", "")),
        ("deid", draw.pick("d", "d", "d2", "")),
        ("long", "x" * 80),
    ):
        if draw.chance(0.18):
            found[name] = value
    if draw.odd(0.04):
        found[draw.pick("atm", "stc", "ats")] = draw.pick("x", "", "1.5")
    if id.startswith("repeat:") and draw.chance(0.8):
        found["rjk"] = id.split(":", 1)[1].rsplit(":", 1)[0]
    elif draw.odd(0.04):
        found["rjk"] = draw.pick("s", "", "zz")
    made = fields(key, found)
    if draw.chance(0.2):
        made.append(("SET", f"{key}:lock", draw.pick("tk", "tk", "other", "0", ""), *draw.pick((), ("PX", 300_000))))
    if draw.chance(0.12):
        made.append(("RPUSH", f"{key}:logs", "row", "row2"))
    if draw.chance(0.06):
        made.append(("SADD", f"{key}:dependencies", f"{base}z"))
    if draw.chance(0.06):
        made.append(("HSET", f"{key}:processed", f"{base}z", "1"))
    if draw.chance(0.05):
        made.append(("HSET", f"{key}:failed", f"{base}z", "e"))
    if draw.chance(0.05):
        made.append(("ZADD", f"{key}:unsuccessful", 5, f"{base}z"))
    return made


def queue(draw: Draw, base: str, ids: Sequence[str], *, jobs: bool = True) -> list[Command]:
    """Everything a queue may have, each part with some probability."""
    made = meta(draw, base)
    for id in ids:
        if jobs and draw.chance(0.8):
            made += job(draw, base, id)
        for _ in range(draw.pick(0, 1, 1) if not draw.odd(0.2) else draw.pick(0, 2, 3)):
            made.append(place(draw, base, id, draw.pick(*LISTS, *SETS, "wait", "active", "delayed")))
        if draw.chance(0.25):
            made.append(("SADD", f"{base}stalled", id))
    for name, values in (
        ("id", ("0", "3", "41")),
        ("pc", ("0", "7", "4294967294", "4294967295")),
    ):
        if draw.chance(0.4):
            value = draw.pick(*values)
            if draw.odd(0.08):
                value = draw.pick("abc", "99999999999999", "9007199254740992", "9223372036854775807", "-5", "1.5")
            made.append(("SET", base + name, value))
    if draw.chance(0.3):
        value = draw.pick("1", "3", "5", "9007199254740991")
        if draw.odd(0.1):
            value = draw.pick("abc", "", "0", "-2", "1.5")
        made.append(("SET", f"{base}limiter", value, *(("PX", 300_000) if draw.chance(0.75) else ())))
    for member, at in (("0", 0), ("1", T + 5)):
        if draw.chance(0.25):
            made.append(("ZADD", f"{base}marker", at, member))
    for _ in range(draw.pick(0, 0, 0, 1, 3) if draw.chance(0.97) else draw.pick(99, 100, 101, 250)):
        made.append(("XADD", f"{base}events", "*", "event", "old"))
    for dedup in ("d", "d2"):
        if draw.chance(0.25):
            made.append(("SET", f"{base}de:{dedup}", draw.pick(*ids, "gone"), *draw.pick((), ("PX", 400_000))))
    if draw.chance(0.15):
        made.append(("RPUSH", base + draw.pick("wait", "paused"), draw.pick("0:1", "0:0", "0:77", "0:")))
    if draw.odd(0.03):
        made.append(("RPUSH", base + draw.pick(*LISTS), ""))
    if draw.chance(0.15):
        made.append(("ZADD", f"{base}repeat", draw.pick(T, T + 0.5, 5), "s"))
        made += fields(f"{base}repeat:s", {"name": "n", "every": "1000"})
    if draw.chance(0.1):
        made += [("SET", f"{base}stalled-check", "1", "PX", 400_000), ("ZADD", f"{base}delay", 1, "z")]
    return made


def link(draw: Draw, parent: tuple[str, str], child: str) -> list[Command]:
    """Tie a child to a parent, rightly for the most part, and put the parent somewhere."""
    base, id = parent
    key = base + id
    made: list[Command] = []
    found = {}
    if draw.chance(0.92):
        found["parentKey"] = key
    if draw.odd(0.08):
        found["parentKey"] = draw.pick("nocolon", ":x", "x:", ":", "", base)
    if draw.chance(0.9):
        found["parent"] = parent_text(draw, base, id)
    made += fields(child, found)
    if draw.chance(0.9):
        made.append(("SADD", f"{key}:dependencies", child, *draw.pick((), (f"{Q}other",))))
    if draw.chance(0.1):
        made.append(draw.pick(("HSET", f"{key}:processed", child, "1"), ("HSET", f"{key}:failed", child, "e")))
    if draw.chance(0.08):
        made.append(("ZADD", f"{key}:unsuccessful", 1, child))
    where = draw.pick(*["waiting-children"] * 5, "delayed", "failed", "completed", "wait", "active", "prioritized")
    for name in LISTS:
        made.append(("LREM", base + name, 0, id))
    for name in SETS:
        made.append(("ZREM", base + name, id))
    made.append(place(draw, base, id, where))
    return made


def parent_text(draw: Draw, base: str, id: str) -> str:
    link: dict[str, Any] = {"id": id, "queueKey": base[:-1]}
    for flag in draw.some(FLAGS, 0, 1, 1, 1, 2, 4):
        link[flag] = draw.chance(0.92)
    if draw.odd(0.1):
        name = draw.pick("id", "queueKey", *FLAGS)
        link[name] = draw.pick(None, "", 0, 5, 1.5, False, 100_000_000_000_000)
    if draw.odd(0.05):
        link.pop(draw.pick("id", "queueKey"))
    if draw.odd(0.03):
        return str(draw.pick("null", "", "[]", "5", '"abc"', "{bad", "true"))
    return msgspec.json.encode(link).decode()


def spoil(draw: Draw, ids: Sequence[str]) -> list[Command]:
    """Give keys a wrong type."""
    made: list[Command] = []
    if draw.odd(0.15):
        base = draw.pick(Q, Q, Q, P)
        names = [*LISTS, *SETS, "meta", "events", "marker", "pc", "id", "stalled", "repeat", "limiter", "de:d"]
        names += ["stalled-check", "metrics:completed", "metrics:completed:data", "repeat:s"]
        names += [id + part for id in ids for part in FAMILY]
        for _ in range(draw.pick(1, 1, 2)):
            made += wrong_type(draw, base + draw.pick(*names))
    return made


def junk(draw: Draw, packed: bytes, probability: float = 0.015) -> bytes:
    """Sometimes, bytes that do not decode or decode to something else."""
    if draw.odd(probability):
        return bytes(draw.pick(b"", b"\xc1", packed[:-1], b"\xc0", b"\x05", b"\x90", b"abc", b"\xc3", packed + packed))
    return packed


def moment(draw: Draw) -> Arg:
    if draw.odd(0.03):
        return str(draw.pick("abc", "", "1e3", "-5", "1700000000000.5", "0x10", " 7"))
    return str(T + draw.pick(0, 0, 0, 1, 7, 1000, 60_000, 123_456))


def number(draw: Draw, *usual: Any) -> Arg:
    if draw.odd(0.08):
        return str(draw.pick("", "abc", "1e3", "0.5", "-0", "Infinity", "-Infinity", "NaN", "0x10", " 7", "inf", "nan"))
    return str(draw.pick(*usual))


# Adding (part 01)


def dedup(draw: Draw) -> Any:
    found: dict[str, Any] = {"id": draw.pick("d", "d", "d", "d2", "d/ü")}
    if draw.chance(0.6):
        found["ttl"] = draw.pick(500_000, 900_000, 900_000.0, 0, -5)
    if draw.chance(0.4):
        found["extend"] = draw.pick(True, True, False, 0, "", None)
    if draw.chance(0.5):
        found["replace"] = draw.pick(True, True, False, 0, "", None)
    if draw.odd(0.08):
        found["ttl"] = draw.pick("5000", 0.5, 500_000.5, True, False, None, 1e15, 1e17, 1e20, INF, NAN, {}, "")
    if draw.odd(0.06):
        found["id"] = draw.pick("", 5, 5.5, True, False, None, {}, 1e15)
    if draw.later and draw.chance(0.5):
        found["keepLastIfActive"] = draw.pick(True, True, True, False, 0, "", None)
    if draw.later and draw.chance(0.3):
        found["reschedule"] = draw.pick(True, True, True, False, 0, "", None)
    items = list(found.items())
    draw.random.shuffle(items)
    return dict(items)


ODD_DELAYS: tuple[Any, ...] = (
    0,
    -5,
    "1000",
    "abc",
    10_000_000_000_001,
    True,
    False,
    None,
    {},
    [1],
    NAN,
    INF,
    "",
    1e21,
    1 / 3,
    "0x10",
    -0.0,
)
ODD_PRIORITIES: tuple[Any, ...] = (0, -1, "5", "abc", True, False, None, 2.5, NAN, INF, {}, "", 1e15, -0.0, "0")
ODD_VALUES: tuple[Any, ...] = (
    [],
    {},
    [None],
    [1, None, 3],
    [1, None, None],
    1e14,
    1e-7,
    1e21,
    "",
    [[], [{}]],
    2**53,
    -0.0,
    ["a/b"],
)


def options(draw: Draw, command: str) -> Any:
    found: dict[str, Any] = {}
    if draw.chance(0.8):
        found["attempts"] = draw.pick(0, 0, 3, 0.5)
    if command == "addDelayedJob" or draw.chance(0.2):
        found["delay"] = draw.pick(1, 5, 5, 1000, 1000, 5000, 0.1, 1000.5)
        if draw.odd(0.2):
            found["delay"] = draw.pick(*ODD_DELAYS)
    if command == "addPrioritizedJob" or draw.chance(0.15):
        found["priority"] = draw.pick(1, 2, 3, 5, 10, 2_097_152, 2_097_151)
        if draw.odd(0.2):
            found["priority"] = draw.pick(*ODD_PRIORITIES)
    if draw.chance(0.2):
        found["lifo"] = draw.pick(True, True, False, 0, "", "x", None)
    if draw.chance(0.45):
        found["de"] = dedup(draw)
    if draw.odd(0.02):
        found["de"] = draw.pick("str", 5, True, [], {}, False, None, ["x"], "")
    for name, values in (
        ("timestamp", (T,)),
        ("backoff", ({"type": "fixed", "delay": 1000}, {"type": "exponential", "delay": 1 / 3, "jitter": 0.5})),
        ("jobId", ("A", "", "x/y")),
        ("parent", ({"id": "P", "queue": "bull:q"},)),
        ("fpof", (True,)),
        ("removeOnComplete", (True, 5, {"age": 3600, "count": 10})),
        ("tm", ('a/b\x01\x7f"\\ü\u2028',)),
        ("zz", ODD_VALUES),
        ("repeat", ({"every": 1000, "count": 1, "offset": 3, "limit": None},)),
    ):
        if draw.chance(0.12):
            found[name] = draw.pick(*values)
    if draw.odd(0.04):
        found["bad"] = draw.pick(NAN, INF, [None] * 11 + [1], [None] * 9 + [1], {"a": -INF}, [1] * 40)
    if draw.odd(0.01):
        found["when"] = msgspec.Raw(
            draw.pick(b"\xc4\x01a", b"\xd6\xff\x00\x00\x00\x01", b"\xc1", b"\xca\x40\x49\x0f\xdb")
        )
    items = list(found.items())
    if draw.chance(0.5):
        draw.random.shuffle(items)
    if draw.odd(0.01):
        return draw.pick({}, [], [1], None, "str", 7, True)
    return dict(items)


def add_call(draw: Draw, ids: Sequence[str], parents: Sequence[tuple[str, str]]) -> Call:
    command = draw.pick("addStandardJob", "addDelayedJob", "addPrioritizedJob", "addParentJob")
    base = draw.pick(Q, Q, Q, P)
    found = options(draw, command)
    id: Any = draw.pick("", "", *ids, "new1", "new2", "a b")
    if draw.odd(0.04):
        id = draw.pick("meta", "id", "wait", "delayed", "events", "de:d", "completed", "0", None, True, "marker", {})
    key = pending = entry = None
    if draw.chance(0.5):
        where = draw.pick(*parents, *parents, (base, "gone"))
        key = where[0] + where[1]
        pending = f"{key}:dependencies"
        entry = {"id": where[1], "queueKey": where[0][:-1], **dict.fromkeys(draw.some(FLAGS, 0, 0, 1, 2), True)}
        if draw.odd(0.08):
            key, pending, entry = draw.pick(
                (key, None, entry),
                (key, pending, None),
                (None, pending, entry),
                (None, pending, None),
                (key, None, None),
                ("", pending, entry),
                (key, pending, {}),
                (key, "", entry),
            )
    dedup_options = found.get("de") if isinstance(found, dict) else None
    dedup_id = dedup_options.get("id") if isinstance(dedup_options, dict) else None
    dedup_key: Any = None
    if isinstance(dedup_id, str | int | float) and dedup_id not in ("", False):
        dedup_key = f"{base}de:{dedup_id}"
    if draw.odd(0.03):
        dedup_key = draw.pick(None, f"{base}de:d", f"{base}de:d2", "", 5, False, f"{base}meta")
    rule = draw.pick(None, None, None, None, "rk", "", "a/b:c")
    if draw.odd(0.02):
        rule = draw.pick(5, 1e21, True, False, {})
    name: Any = draw.pick("n", "n", 'nä/m"e', "", "x" * 70)
    if draw.odd(0.03):
        name = draw.pick(5, 1e21, 0.1, None, True, False, 1e15, {}, -0.0)
    at: Any = T + draw.pick(0, 0, 1, 7, 4096)
    at = float(at) if draw.chance(0.3) else at
    if draw.odd(0.03):
        at = draw.pick(
            None, str(T), T + 0.5, 0, -5, 1e15, 2**41 - 1, 2**41, 2**41 + 3, 1 / 3, True, "abc", 1e18, NAN, INF
        )
    head = [base, id, name, at, key, pending, entry, rule, dedup_key]
    while draw.chance(0.1) and head and head[-1] is None:
        head.pop()
    data: Arg = draw.pick("{}", '{"a":1}', "", "null", '{"ü":"/"}', '"' + "y" * 100 + '"', b"\xff\x00")
    return calls.add_packed(command, base, junk(draw, pack(head), 0.01), junk(draw, pack(found), 0.01), data)


def adding(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Adds on queues with jobs, parents, owners of deduplication ids and crowded milliseconds."""
    ids = [*PLAIN, "a:b:c", "x/y", "ü"]
    chosen = draw.some(ids, 2, 4, 7)
    made = queue(draw, Q, chosen) + queue(draw, P, draw.some(ids, 0, 2, 4))
    parents = [(Q, "P"), (P, "P"), (Q, chosen[0]), (P, "a:b:c")]
    for base, id in draw.some(parents, 1, 2, 4):
        made += job(draw, base, id)
        if draw.chance(0.7):
            made.append(("ZADD", f"{base}waiting-children", T - 5, id))
        if draw.chance(0.5):
            made.append(("DEL", f"{base}{id}:dependencies"))
    for id in chosen:
        if draw.chance(0.3):
            made += link(draw, draw.pick(*parents), Q + id)
        if draw.chance(0.3):
            made.append(("ZADD", Q + draw.pick("completed", "completed", "failed", "delayed"), T, id))
    if draw.chance(0.4):
        owner = draw.pick(*chosen)
        made.append(("SET", f"{Q}de:d", owner, *draw.pick((), ("PX", 400_000))))
        made.append(("ZADD", f"{Q}delayed", (T + 5) * 4096, owner))
    made += spoil(draw, chosen)
    return made, [add_call(draw, chosen, parents) for _ in range(draw.pick(1, 2, 3, 4))]


# Working (part 02)


def limiter(draw: Draw) -> Any:
    if draw.odd(0.12):
        return draw.pick(
            {"max": 0, "duration": 100_000},
            {"max": -1, "duration": 500_000},
            {"max": 5},
            {"duration": 5},
            {},
            {"max": 1, "duration": -700_000.9},
            {"max": 2, "duration": 0},
            {"max": "3", "duration": "500000"},
            {"max": "abc", "duration": 5},
            {"max": 3, "duration": "x"},
            {"max": 2.5, "duration": 100_001.5},
            {"max": False, "duration": False},
            {"max": 3, "duration": None},
            False,
            7,
            "str",
            True,
        )
    return draw.pick(None, None, {"max": draw.pick(1, 3, 4, 100), "duration": draw.pick(100_000, 600_000)})


def fetch_options(draw: Draw) -> dict[str, Any]:
    found: dict[str, Any] = {"token": draw.pick(*["tk"] * 8, "0", "tk2"), "lockDuration": draw.pick(300_000, 123_400)}
    found["limiter"] = limiter(draw)
    if draw.odd(0.04):
        found["token"] = draw.pick(None, 0, 5, False, "")
    if draw.odd(0.05):
        found["lockDuration"] = draw.pick(None, 0, -1, 1.5, "500000", "x")
    if draw.chance(0.5):
        found["name"] = draw.pick("w1", "ww", "", None)
    if draw.odd(0.03):
        found["name"] = draw.pick(5, False, True)
    return found


def fetching(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Fetches from queues with due jobs, limits and old markers."""
    ids = [*PLAIN, *draw.pick((), ("0:5", "0:123"), COLONS)]
    made = queue(draw, Q, draw.some(ids, 3, 6, 9)) + spoil(draw, ids)
    found = []
    for _ in range(draw.pick(1, 2, 3)):
        call = calls.move_to_active(Q, at=moment(draw), **fetch_options(draw))
        found.append(call.with_arg(2, junk(draw, bytes(call.args[2]))))  # type: ignore[arg-type]
    return made, found


ODD_KEEP: tuple[Any, ...] = (
    None,
    True,
    5,
    "str",
    "",
    [],
    False,
    {"count": "2"},
    {"count": 1.5},
    {"count": -1.5},
    {"count": False},
    {"count": None, "age": None},
    {"age": "4"},
    {"age": "x"},
    {"age": False},
    {"age": -5},
    {"age": 5, "count": "x"},
    {"age": 5, "count": 2.5},
    {"count": {}},
    {"count": "0"},
)
ODD_UPDATES: tuple[Any, ...] = (
    [],
    ["a"],
    ["a", 5],
    ["a", 1.5, "b", 10**15],
    ["a", None, "b", "c"],
    ["a", True],
    ["a", "b", "c"],
    {},
    {"a": "b"},
    "ab",
    5,
    None,
    ["deid", "dd", "parentKey", "bull:p:P"],
)


def finish_call(draw: Draw, id: str) -> Call:
    found = fetch_options(draw)
    keep: Any = draw.pick(
        {"count": -1},
        {"count": 0},
        {"count": draw.pick(1, 2, 3, 5)},
        {"age": draw.pick(0, 1, 4.5, 5, 100)},
        {"age": draw.pick(0, 1, 4.5, 5), "count": draw.pick(0, 1, 2, 3, -1)},
        {},
    )
    if draw.odd(0.1):
        keep = draw.pick(*ODD_KEEP)
    found["keepJobs"] = keep
    found["attempts"] = draw.pick(0, 1, 2, 3, 6) if not draw.odd(0.08) else draw.pick(None, "2", "x", 1.5, False, -1)
    found["maxMetricsSize"] = draw.pick("", "", "", 15, 5, 1, 100)
    if draw.odd(0.08):
        found["maxMetricsSize"] = draw.pick(None, 0, -3, 2.5, 0.5, "3", "x", False)
    for flag in FLAGS:
        found[flag] = draw.chance(0.3)
    outcome = draw.pick("completed", "failed")
    update: Any = None
    if outcome == "failed" and draw.chance(0.8):
        update = ["failedReason", "boom", "stacktrace", "[]", *draw.pick((), ("tm", "t"))]
    if draw.odd(0.05):
        update = draw.pick(*ODD_UPDATES)
    value = draw.pick("null", '{"x":1}', "") if outcome == "completed" else draw.pick("boom", "", "x y")
    fetch = draw.pick("1", "1", "0") if not draw.odd(0.05) else draw.pick("", "true", "01", "1.0")
    call = calls.move_to_finished(
        Q, id, outcome=outcome, value=value, at=moment(draw), fetch=fetch, update=update, **found
    )
    return call.with_arg(7, junk(draw, bytes(call.args[7])))  # type: ignore[arg-type]


def finishing(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Ends of jobs with parents in any state, old finished jobs, metrics, deduplication keys."""
    id = draw.pick("1", "2", "a", "a:b:c", "12")
    made = queue(draw, Q, draw.some([*PLAIN, "9", "20"], 1, 3, 6))
    parents = [(P, "P"), (P, "P"), (Q, "P"), (P, "a:b:c"), (Q, "2")]
    if draw.chance(0.7):
        made += queue(draw, P, draw.some(PLAIN, 0, 1, 3))
    key = Q + id
    if draw.chance(0.97):
        made += job(draw, Q, id)
    made.append((draw.pick("LPUSH", "RPUSH"), f"{Q}active", *draw.pick((id,), (id,), ("9", id, "2"), ("9",))))
    made.append(("SADD", f"{Q}stalled", id, "8"))
    made.append(("SET", f"{key}:lock", draw.pick(*["tk"] * 9, "zz"), "PX", 300_000))
    if draw.chance(0.05):
        made.append(("DEL", f"{key}:lock"))
    if draw.chance(0.85):
        made += [("DEL", f"{key}:dependencies"), ("DEL", f"{key}:unsuccessful")]
    if draw.chance(0.65):
        parent = draw.pick(*parents)
        if draw.chance(0.88):
            made += job(draw, *parent)
        made += link(draw, parent, key)
    if draw.chance(0.3):
        made += fields(key, {"deid": "d"})
        made.append(("SET", f"{Q}de:d", draw.pick(id, id, "77"), *draw.pick((), ("PX", 400_000))))
    outcome = draw.pick("completed", "failed")
    for _ in range(draw.pick(0, 0, 3, 6, 9)):
        old = draw.pick("20", "21", "22", "9", "10", "z", "a:b:d")
        made.append(("ZADD", Q + outcome, score(draw, outcome), old))
        if draw.chance(0.6):
            made += job(draw, Q, old)
            if draw.chance(0.5):
                made += link(draw, draw.pick(*parents), Q + old)
    if draw.chance(0.4):
        gap = draw.pick(0, 59_999, 60_000, 120_000, 600_000, 60_000 * 17, 60_000 * 200, -600_000)
        points = {"count": draw.pick("1", "7"), "prevTS": str(T - gap), "prevCount": draw.pick("0", "5")}
        if draw.odd(0.1):
            points[draw.pick("count", "prevTS", "prevCount")] = draw.pick("x", "", "1.5")
        if draw.odd(0.05):
            points.pop(draw.pick("prevTS", "prevCount"))
        made += fields(f"{Q}metrics:{outcome}", points)
        made += draw.pick([], [("RPUSH", f"{Q}metrics:{outcome}:data", "1", "2", "3")])
    made += spoil(draw, [id, "P", "2", "20"])
    return made, [finish_call(draw, id)]


WIDE = ("9999999999999", "99999999999998", "99999999999999", "999999999999999")
"""Counts that Lua and the server write differently one later."""


def plain_ending(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Ends of jobs that have nothing beside them, one thing, or a number that is odd."""
    made = fields(f"{Q}meta", {"opts.maxLenEvents": draw.pick("10000", "10000", "100", "5", *WIDE)})
    for id in ("1", "2"):
        made += fields(Q + id, {"name": "n", "data": "{}", "opts": "{}", "timestamp": T, "delay": 0, "priority": 0})
        made += fields(Q + id, {draw.pick("atm", "ats"): draw.pick("3", "9", *WIDE)}) if draw.chance(0.5) else []
    made += [("RPUSH", f"{Q}active", "1"), ("SET", f"{Q}1:lock", "tk", "PX", 300_000), ("LPUSH", f"{Q}wait", "2")]
    made += [("DEL", Q + draw.pick("active", "wait", "1", "1:lock"))] if draw.chance(0.15) else []
    made += [("ZADD", f"{Q}delayed", delayed_score(draw), "3")] if draw.chance(0.5) else []
    made += [("SADD", f"{Q}1:dependencies", f"{Q}9")] if draw.chance(0.2) else []
    made += [("ZADD", f"{Q}1:unsuccessful", 1, f"{Q}9")] if draw.chance(0.2) else []
    made += [("XADD", f"{Q}events", "*", "event", "old")] * draw.pick(0, 0, 0, 99, 100, 250)
    call = finish_call(draw, "1")
    usual = {
        "token": "tk",
        "lockDuration": 300_000,
        "limiter": None,
        "maxMetricsSize": "",
        "attempts": draw.pick(0, 1, 4),
    }
    usual["keepJobs"] = draw.pick({"count": -1}, {"count": 0}, {}, {"count": 1}, {"age": 5})
    call = call.with_arg(7, pack(usual))
    odd = ("abc", "", "nan", "inf", "1e3", "-5", "0x10", " 7", str(T + 0.5))
    return made, [call.with_arg(1, draw.pick(*odd)) if draw.chance(0.3) else call]


def stalling(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Stalled checks, with and without a check before."""
    ids = draw.pick(PLAIN, ("1", "2", "3", "4", "5", "9"), (*COLONS, "1"))
    made = queue(draw, Q, ids)
    for _ in range(draw.pick(1, 3, 6)):
        made.append(("RPUSH", f"{Q}active", draw.pick(*ids)))
        made.append(("SADD", f"{Q}stalled", draw.pick(*ids)))
    made += draw.pick([], [("SADD", f"{Q}stalled", "0:11"), ("RPUSH", f"{Q}active", "0:11")])
    if draw.chance(0.9):
        made.append(("DEL", f"{Q}stalled-check"))
    made += spoil(draw, ids)
    most = draw.pick("0", "1", "1", "2") if not draw.odd(0.1) else draw.pick("abc", "", "-1", "1.5", "1e1")
    interval = "300000" if not draw.odd(0.07) else draw.pick("0", "-1", "x", "1.5", "")
    return made, [calls.stalled_check(Q, most=most, at=moment(draw), interval=interval)]


def locking(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Locks and the two limit reads."""
    made = queue(draw, Q, PLAIN) + spoil(draw, PLAIN)
    count = draw.pick(0, 1, 2, 3, 5)
    tokens: Any = [draw.pick("tk", "other", "0", "x") for _ in range(count)]
    ids: Any = [draw.pick(*PLAIN) for _ in range(count)]
    if draw.odd(0.2):
        tokens = draw.pick(tokens[:-1], [*tokens, "tk"], [None, *tokens], {}, None, 5, "tk", [5] * count)
    if draw.odd(0.1):
        ids = draw.pick({}, None, 5, "1", [1, 2.0, 1.5], [True], [1e15], {"a": "1"})
    token = draw.pick("tk", "tk", "other", "0", "")
    span = draw.pick("300000", "500000") if not draw.odd(0.2) else draw.pick("0", "-1", "x", "1.5", "")
    most = draw.pick("0", "0", "0", "3", "4", "5", "abc", "", "-1", "00", "0.0", "2.5", "0x1", "nan", "inf")
    return made, [
        calls.extend_locks(Q, tokens=junk(draw, pack(tokens)), ids=junk(draw, pack(ids)), duration=span),
        calls.extend_lock(Q, draw.pick(*PLAIN), token=token, duration=span),
        calls.release_lock(Q, draw.pick(*PLAIN), token=token),
        calls.rate_limit_ttl(Q, most),
        calls.is_maxed(Q),
    ]


# Moving, editing, removing (part 03)


def family(draw: Draw, ids: Sequence[tuple[str, str]]) -> list[Command]:
    made: list[Command] = []
    for _ in range(draw.pick(0, 1, 2, 3, 4)):
        parent, child = draw.random.choice(ids), draw.random.choice(ids)
        if parent != child or draw.odd(0.05):
            made += link(draw, parent, child[0] + child[1])
    if draw.chance(0.3):
        chain = draw.some(list(ids), 2, 3, 4)
        for parent, child in itertools.pairwise(chain):
            made += link(draw, parent, child[0] + child[1])
    return made


def moving_call(draw: Draw, ids: Sequence[str]) -> Call:
    base = draw.pick(Q, Q, Q, P)
    id = draw.pick(*ids, *ids, "gone")
    token = draw.pick("tk", "tk", "0", "0", "0", "other", "")
    update: Any = draw.pick(None, ["failedReason", "x", "stacktrace", "[]"], ["n", 5, "f", 1.5, "big", 2**40, "r", 0.1])
    if draw.odd(0.08):
        update = draw.pick(*ODD_UPDATES, b"\xc1\xff")
    row = draw.pick("", "", "1", "2", "3", "10", "0", "-1", "-2", "1.5", "abc", "1e3")
    push = draw.pick("LPUSH", "RPUSH")
    delay = number(draw, 0, 0, 1, 1, 2, 5, 1000, -5, 0.5, 1000.25)
    skip = draw.pick("0", "1", "")
    makers: tuple[Callable[[], Call], ...] = (
        lambda: calls.move_to_delayed(base, id, at=moment(draw), delay=delay, token=token, skip=skip, update=update),
        lambda: calls.move_to_delayed(base, id, at=moment(draw), delay=delay, token=token, skip=skip, update=update),
        lambda: calls.retry_job(base, id, at=moment(draw), push=push, token=token, update=update),
        lambda: calls.retry_job(base, id, at=moment(draw), push=push, token=token, update=update),
        lambda: calls.back_to_wait(base, id, token=token),
        lambda: calls.update_progress(base, id, draw.pick("50", '{"a":1}', "", '"x"')),
        lambda: calls.add_log(base, id, draw.pick("row", "", "ü"), row),
        lambda: calls.update_data(base, id, draw.pick("{}", "", "null")),
        lambda: calls.save_stacktrace(base, id, draw.pick('["a"]', ""), draw.pick("boom", "")),
        lambda: calls.pause(base, on=draw.chance(0.5)),
        lambda: calls.remove_job(base, id, children=draw.pick("1", "1", "0")),
        lambda: calls.remove_job(base, id, children=draw.pick("1", "1", "0")),
        lambda: calls.obliterate(base, count=number(draw, 1, 2, 3, 5, 10, 1000, 0, -1), force=draw.pick("", "force")),
        lambda: calls.get_counts(base, *[draw.pick(*LISTS, *SETS) for _ in range(draw.pick(0, 1, 5))]),
        lambda: calls.get_state(base, id, version=draw.pick("getState", "getStateV2")),
        lambda: calls.is_finished(base, id, full=draw.pick("", "1", "0")),
        lambda: calls.move_to_waiting_children(base, id, token=token, child=draw.pick("", "", f"{Q}1", f"{P}2")),
        lambda: calls.promote(base, id),
        lambda: calls.change_delay(base, id, delay=delay, at=moment(draw)),
        lambda: calls.change_priority(base, id, priority=number(draw, 0, 0, 1, 2, 1.5, -1), lifo=draw.pick("0", "1")),
        lambda: calls.reprocess_job(base, id, state=draw.pick("failed", "completed"), push=push),
        lambda: calls.move_jobs_to_wait(
            base,
            state=draw.pick("failed", "completed", "delayed"),
            count=number(draw, 1, 2, 1000, 0, -1),
            until=draw.pick(moment(draw), "1.7976931348623157e+308"),
        ),
        lambda: calls.drain(base, delayed=draw.pick("0", "1", "")),
        lambda: calls.clean(
            base,
            state=draw.pick(*LISTS, *SETS),
            until=draw.pick(T, T - 1000, "-5", "999", "9"),
            limit=draw.pick("0", "1", "2"),
        ),
        lambda: calls.remove_unprocessed_children(base, id),
        lambda: calls.remove_child_dependency(base + id, draw.pick(Q, P) + draw.pick(*ids), base),
        lambda: calls.get_counts_per_priority(base, *[number(draw, 0, 1, 2, 5) for _ in range(draw.pick(0, 1, 3))]),
        lambda: calls.get_ranges(
            base,
            draw.pick("0", "1", "-2"),
            draw.pick("-1", "0", "2", "-3"),
            *draw.some((*LISTS, *SETS), 0, 1, 4),
            ascending=draw.pick("0", "1"),
        ),
        lambda: calls.is_job_in_list(base, draw.pick(*LISTS), id),
        lambda: calls.get_metrics(base, "completed"),
        lambda: calls.get_dependency_counts(base, id, "processed", "unprocessed", "ignored", "failed"),
        lambda: calls.paginate(
            base + id + draw.pick(":processed", ":dependencies", ":failed", ":unsuccessful"), "0", "-1"
        ),
    )
    return draw.random.choice(makers)()


ID_ARG = {"moveToDelayed": 2, "retryJob": 3, "moveJobFromActiveToWait": 0, "moveToWaitingChildren": 3}
"""Where the id stands among the arguments of a command for an active job."""


def moving(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Moves, edits, removals and reads on two queues with families."""
    ids = [*draw.some(PLAIN, 2, 4, 6), *draw.pick((), (), COLONS[:1], COLONS)]
    made = queue(draw, Q, ids) + queue(draw, P, ids[:2])
    made += family(draw, [(Q, id) for id in ids] + [(P, id) for id in ids[:2]])
    for base in (Q, P):
        if draw.chance(0.3):
            made += fields(f"{base}meta", {"paused": "1"})
    made += spoil(draw, ids)
    found = []
    for _ in range(draw.pick(1, 2, 4)):
        call = moving_call(draw, ids)
        if call.name in ID_ARG and draw.chance(0.7):
            id = str(call.args[ID_ARG[call.name]])
            base = Q if str(call.keys[0]).startswith(Q) else P
            made += [("LPUSH", f"{base}active", id), ("SET", f"{base}{id}:lock", "tk", "PX", 300_000)]
        found.append(call)
    return made, found


def settle(draw: Draw, base: str, id: str, *states: str) -> list[Command]:
    """Take a job out of wherever it is, and put it into one of the states."""
    made: list[Command] = [("LREM", base + name, 0, id) for name in LISTS]
    made += [("ZREM", base + name, id) for name in SETS]
    return [*made, place(draw, base, id, draw.pick(*states))]


def outcomes(draw: Draw, parent: str, child: str) -> list[Command]:
    """Move a child from the pending ones of its parent to the others, alone or beside another."""
    made: list[Command] = [("DEL", f"{parent}:dependencies")] if draw.chance(0.7) else []
    for key, chance in (("processed", 0.4), ("unsuccessful", 0.4), ("failed", 0.3)):
        if draw.chance(chance):
            named = draw.pick(child, child, f"{Q}other")
            key = f"{parent}:{key}"
            made.append(("ZADD", key, T, named) if key.endswith("unsuccessful") else ("HSET", key, named, "1"))
    return made


def aimed(draw: Draw) -> tuple[list[Command], list[Call]]:
    """A move of one job that is where it should be, with a parent or children, or of a batch."""
    id, push = draw.pick(*PLAIN, *COLONS), draw.pick("LPUSH", "RPUSH")
    key = Q + id
    made = queue(draw, Q, draw.some(PLAIN, 0, 3, 6)) + queue(draw, P, draw.some(PLAIN, 0, 2))
    if draw.chance(0.95):
        made += job(draw, Q, id)
    parent = draw.pick((P, "P"), (Q, "P"), (P, "a:b:c"))
    if draw.chance(0.6):
        made += job(draw, *parent) + link(draw, parent, key)
    if draw.chance(0.2):
        made.append(("LPUSH", Q + draw.pick("wait", "paused"), "0:5"))
    which = draw.random.randrange(7)
    if which == 0:
        made += settle(draw, Q, id, "delayed", "delayed", "delayed", "wait")
        delay = number(draw, 0, 0, 1, 1, 2, 5, 1000, -5, 0.5, 1000.25)
        call = calls.change_delay(Q, id, delay=delay, at=moment(draw))
    elif which == 1:
        made += settle(draw, Q, id, "wait", "wait", "paused", "prioritized", "prioritized", "delayed")
        priority = number(draw, 0, 0, 1, 2, 5, 1.5, 2_097_152, 3_000_000, -1)
        call = calls.change_priority(Q, id, priority=priority, lifo=draw.pick("0", "1", "1", ""))
    elif which == 2:
        made += settle(draw, Q, id, "delayed")
        call = calls.promote(Q, id)
    elif which == 3:
        state = draw.pick("failed", "completed")
        made += settle(draw, Q, id, state) + outcomes(draw, parent[0] + parent[1], key)
        call = calls.reprocess_job(Q, id, state=state, push=push)
    elif which == 4:
        children = [f"{Q}k", f"{P}k", f"{P}l"]
        made += settle(draw, Q, id, "active")
        made += [("DEL", f"{key}:dependencies"), ("DEL", f"{key}:unsuccessful")] if draw.chance(0.8) else []
        made += [("SADD", f"{key}:dependencies", *children[:2])] if draw.chance(0.9) else []
        made += [("SET", f"{key}:lock", "tk"), ("SADD", f"{Q}stalled", id)] if draw.chance(0.9) else []
        token = draw.pick("tk", "tk", "tk", "0", "")
        child = draw.pick("", "", *children)
        call = calls.move_to_waiting_children(Q, id, token=token, at=moment(draw), child=child)
    elif which == 5:
        state = draw.pick("failed", "completed", "delayed")
        for each in draw.some(PLAIN, 2, 4, 8):
            made += settle(draw, Q, each, state)
        until = draw.pick(moment(draw), str((T + 5) * 4096), "1.7976931348623157e+308")
        call = calls.move_jobs_to_wait(Q, state=state, count=number(draw, 1, 2, 3, 1000, 0, -1), until=until)
    else:
        call = calls.remove_child_dependency(key, draw.pick(parent[0] + parent[1], parent[0] + parent[1], f"{Q}1"))
    return made + spoil(draw, [id, "P"]), [call]


def ages(draw: Draw, key: str) -> list[Command]:
    """Moments in a job's hash, some of which are no usual ones."""
    found = {}
    for name in ("timestamp", "processedOn", "finishedOn"):
        if draw.chance(0.4):
            found[name] = str(T - draw.pick(0, 1, 1000, 5000, -10))
            if draw.odd(0.3):
                found[name] = draw.pick("999", "", "abc", "-5", "1e3", "17", "1700000000000.5")
    return fields(key, found) + ([("HDEL", key, "timestamp")] if draw.chance(0.1) else [])


def cleaning(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Removals of many, with jobs of schedulers, families that reach other queues, and odd ages."""
    current = [f"repeat:s:{T}", "repeat:s:5"]
    ids = [*draw.some(PLAIN, 3, 5, 8), *draw.pick((), current[:1], current), *draw.pick((), (), COLONS[:2])]
    others = draw.some(PLAIN, 1, 3)
    made = queue(draw, Q, ids) + queue(draw, P, others)
    for id in ids:
        made += job(draw, Q, id) if draw.chance(0.6) else []
        made += ages(draw, Q + id)
    if draw.chance(0.6):
        made += [("ZADD", f"{Q}repeat", draw.pick(T, T, 5), "s"), ("HSET", f"{Q}repeat:s", "name", "n")]
    state = draw.pick(*LISTS, *SETS)
    for id in ids:
        made += settle(draw, Q, id, state, state, *LISTS, *SETS) if draw.chance(0.8) else []
    made += family(draw, [(Q, id) for id in ids] + [(P, id) for id in others])
    made += [command for id in ids if draw.chance(0.2) for command in link(draw, draw.pick((P, "1"), (Q, "1")), Q + id)]
    for id in draw.some(ids, 0, 2):
        made += [*fields(Q + id, {"deid": "d"}), ("SET", f"{Q}de:d", draw.pick(id, "x"))]
    most = draw.pick("0", "0", "1", "2", "3", "100")
    if draw.odd(0.08):
        most = draw.pick("", "-1", "1.5", "abc", "-3")
    until = draw.pick(str(T), str(T), str(T - 1000), str(T + 10), "999", "2", "-5", "-Infinity", "Infinity")
    if draw.odd(0.08):
        until = draw.pick("abc", "", "1.5e12")
    clean = calls.clean(Q, state=state, until=until, limit=most)
    makers = (
        clean,
        clean,
        calls.drain(Q, delayed=draw.pick("0", "1", "1")),
        calls.obliterate(Q, count=number(draw, 1, 2, 3, 5, 8, 1000), force=draw.pick("", "force", "force")),
        calls.remove_job(Q, draw.pick(*ids), children=draw.pick("1", "1", "0")),
        calls.remove_unprocessed_children(Q, draw.pick(*ids)),
    )
    call = draw.random.choice(makers)
    if call.name == "obliterate" and draw.chance(0.9):
        made.append(("HSET", f"{Q}meta", "paused", "1"))
    return made + spoil(draw, ids), [call] * draw.pick(1, 1, 2)


def paging(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Reads of large collections, of ranges, and of metrics."""
    made = queue(draw, Q, draw.some(PLAIN, 2, 5, 8))
    size = draw.pick(1, 3, 50, 130, 400, 900)
    names = [f"{Q}{number}" for number in range(size)]
    hash = draw.chance(0.5)
    big = (
        ("HSET", f"{Q}big", *[part for name in names for part in (name, "1")]) if hash else ("SADD", f"{Q}big", *names)
    )
    made.append(big)
    made += [("RPUSH", f"{Q}metrics:completed:data", *map(str, range(5)))] if draw.chance(0.7) else []
    made += fields(f"{Q}metrics:completed", {"count": "5"}) if draw.chance(0.7) else []
    if draw.chance(0.4):
        made.append(("RPUSH", Q + draw.pick("wait", "paused"), draw.pick("0:1", "0:")))

    def place_in(*usual: str) -> Arg:
        return str(draw.pick("", "abc", "1.5", "-5", "1e2") if draw.odd(0.06) else draw.pick(*usual))

    def position() -> Arg:
        return place_in("0", "0", "1", "2", "5", "-1", "-1", "-2", "-3")

    def page() -> Call:
        return calls.paginate(
            draw.pick(f"{Q}big", f"{Q}big", f"{Q}big", f"{Q}1:processed", f"{Q}1", f"{Q}wait"),
            place_in("0", "0", "5", "100", "250", "399", "1000"),
            place_in("-1", "-1", "0", "5", "99", "100", "260", "2000"),
            place_in("0", "0", "0", "5", "64"),
            place_in("0", "0", "0", "7", "200", "300"),
            place_in("5", "5", "1", "2", "20", "0"),
            *draw.pick((), ("1",), ("",)),
        )

    makers: tuple[Callable[[], Call], ...] = (
        page,
        page,
        page,
        lambda: calls.get_ranges(
            Q, position(), position(), *draw.some((*LISTS, *SETS), 0, 1, 2, 4), ascending=draw.pick("0", "1", "1")
        ),
        lambda: calls.get_metrics(Q, "completed", start=position(), end=position()),
        lambda: calls.get_counts_per_priority(Q, *[number(draw, 0, 1, 2, 5, 1.5, -1) for _ in range(3)]),
        lambda: calls.get_counts(Q, *draw.some((*LISTS, *SETS), 1, 4)),
        lambda: calls.is_job_in_list(Q, draw.pick(*LISTS), draw.pick(*PLAIN)),
        lambda: calls.get_dependency_counts(Q, "1", *draw.some(("processed", "unprocessed", "ignored", "x"), 0, 2, 4)),
        lambda: calls.get_state(Q, draw.pick(*PLAIN), version=draw.pick("getState", "getStateV2")),
    )
    made += spoil(draw, ["1"])
    return made, [draw.random.choice(makers)() for _ in range(draw.pick(2, 5))]


# Schedulers (part 04)


def scheduling(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Advances of schedulers whose record, slot or next job is odd."""
    scheduler = draw.pick("s", "s", "s", "a:b", "", "ü", "0")
    now: Any = T + draw.random.randrange(10**8)
    every: Any = draw.pick(1, 1000, 60_000, 86_400_000, 7)
    if draw.odd(0.1):
        now = draw.pick(0, 1, 5, 1_234_567, 10**14, 2**41 + 3, 100_000_000_000_001)
        every = draw.pick(0.5, 1500.5, -1000, 0, 1e15, 3.7)
    before: Any = now - draw.pick(0, 1, 1000, -5, 60_000, 10**6, draw.random.randrange(10**7))
    if draw.odd(0.08):
        before = draw.pick(-5, 0, 0.5, 10**14, 100_000_000_000_001, 1e15 + 1)
    made = queue(draw, Q, draw.some(PLAIN, 0, 2, 4))
    record: dict[str, Any] = {"name": "sj"}
    if draw.chance(0.7):
        record["every"] = str(every)
    if draw.odd(0.08):
        record["every"] = draw.pick("x", "", "0", "-5", "1e3", " 1000 ")
    if draw.chance(0.6):
        record["offset"] = draw.pick("0", "777", "59999") if not draw.odd(0.1) else draw.pick("x", "", "1.5", "-3")
    if draw.chance(0.5):
        record["data"] = draw.pick('{"a":1}', "{}", "")
    if draw.chance(0.6):
        record["ic"] = draw.pick("1", "7") if not draw.odd(0.08) else draw.pick("x", "", "1.5")
    if draw.odd(0.05):
        record.pop("name")
    if draw.chance(0.95):
        made.append(("ZADD", f"{Q}repeat", repr(before), scheduler))
    if draw.chance(0.95):
        made += [("DEL", f"{Q}repeat:{scheduler}"), *fields(f"{Q}repeat:{scheduler}", record)]
    producer = f"repeat:{scheduler}:{before:.14g}"
    if draw.chance(0.85):
        made += fields(Q + producer, {"name": "sj", "rjk": scheduler})
    slot = draw.pick("", str(now + draw.random.randrange(10**6)), str(now))
    if draw.odd(0.06):
        slot = draw.pick("x", "0.5", "1e3", "0x10", "nan", "1e15", "inf")
    following = before + every if draw.chance(0.6) else slot
    if draw.chance(0.2):
        made += fields(f"{Q}repeat:{scheduler}:{following}", {"name": "taken"})
    if draw.chance(0.3):
        due = int(before + every) if abs(before + every) < 1e14 else T
        made.append(("ZADD", f"{Q}delayed", due * 4096 + draw.pick(0, 5, 4094, 4095), "crowd"))
    repeat: Any = {"every": every} if draw.chance(0.5) else {"pattern": "* * * * *"}
    repeat |= {"count": draw.pick(1, 2), "offset": draw.pick(None, None, 0, 777)}
    if draw.odd(0.06):
        repeat = draw.pick(None, False, {}, "txt", 5, True, [])
    found: dict[str, Any] = {"repeat": repeat, "jobId": f"repeat:{scheduler}:undefined", "timestamp": T}
    for name, values in (
        ("attempts", (0, 3)),
        ("priority", (0, 1, 7, 2_097_152) if not draw.odd(0.2) else (-1, 1.5, "7", None, False, "x")),
        ("lifo", (True, False, None, 0, "")),
        ("de", ({"id": "d"}, {"id": "d2", "ttl": 500}, {}, {"id": ""}, {"id": 12}, False, None)),
        ("delay", (NAN, 0, 5000)),
        ("parent", ({"id": "par", "queue": "bull:q"},)),
    ):
        if draw.chance(0.35):
            found[name] = draw.pick(*values)
    made += spoil(draw, [producer])
    call = calls.update_scheduler(
        Q,
        scheduler,
        slot=slot,
        data=draw.pick("{}", '{"b":2}', ""),
        options=junk(draw, pack(found)),
        at=str(now) if not draw.odd(0.03) else draw.pick("x", "", "1e12", " 17"),
        producer=producer if draw.chance(0.93) else draw.pick(f"repeat:{scheduler}:7", "", f"{producer} "),
        producer_key=draw.pick(None, None, "", f"{Q}prod"),
    )
    return made, [call] * draw.pick(1, 1, 2)


ODD_SCHEDULES = ([], "str", 5, {}, {"name": None}, {"name": 12}, {"name": False}, {"name": True, "every": 5})


def schedule(draw: Draw, every: Any, now: Any, *, cron: bool) -> Any:
    found: dict[str, Any] = {
        "name": draw.pick("sj", "sj", "ü", ""),
        "startDate": draw.pick(None, None, None, now + 5000, now - 5000, now, 0),
        "endDate": draw.pick(None, 1_893_456_000_000),
        "tz": draw.pick(None, "UTC", "Europe/London", ""),
        "pattern": "*/5 * * * *" if cron else None,
        "every": None if cron else every,
        "limit": draw.pick(None, 5, 0),
        "offset": None,
    }
    if draw.odd(0.06):
        found["startDate"] = draw.pick(False, now + 0.5, "17", 1e15, "x", "", NAN, True, str(now + 5000))
    if draw.odd(0.08):
        found["offset"] = draw.pick(0, 777, "0", "12", False, 1.5, -3, "x", True)
    if draw.odd(0.04):
        found["every"] = draw.pick("1000", False, True, NAN, INF, 0.5, -1000, "x")
    if draw.odd(0.03):
        found["limit"] = draw.pick(True, False, "x", 1.5, NAN)
    if draw.odd(0.03):
        return draw.pick(*ODD_SCHEDULES)
    return {name: value for name, value in found.items() if value is not None} if draw.chance(0.1) else found


def templates(draw: Draw) -> Any:
    if draw.odd(0.05):
        return draw.pick([], {"n": NAN}, [1, 2], "str", 5, None, {"n": {"m": INF}})
    return draw.pick(
        {}, {}, {"attempts": 3}, {"kl": 7, "tm": "md", "attempts": 3, "priority": 0}, {"a": None}, {"x": []}
    )


def upserting(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Schedulers that are created, replaced while their job waits or runs, read and removed."""
    scheduler = draw.pick("s", "s", "s", "a:b", "", "ü", "0", "with space", "x:y:z:w:v")
    now: Any = T + draw.random.randrange(10**8)
    every: Any = draw.pick(1, 1000, 60_000, 86_400_000, 7)
    if draw.odd(0.08):
        now = draw.pick(0, 1, 1_234_567.5, 10**14, 2**41 + 3, 100_000_000_000_001, T + 0.25, 253_402_300_800_000)
        every = draw.pick(0.5, 1500.5, -1000, -0.5, 1e15, 3.7, 1e-3)
    before: Any = draw.pick(None, now, now - every, now - every - 1, now + 1, now - draw.random.randrange(10**7))
    if draw.odd(0.08):
        before = draw.pick(-5, 0, 0.5, 1_234_567.25, 10**14, 100_000_000_000_001, 1e15 + 1, now + 0.5, 1e17)
    cron = draw.chance(0.4)
    made = queue(draw, Q, draw.some(PLAIN, 0, 2, 4))
    current = None
    if before is not None:
        current = f"repeat:{scheduler}:{before:.14g}"
        made.append(("ZADD", f"{Q}repeat", repr(before), scheduler))
        if draw.chance(0.85):
            made += job(draw, Q, current)
        for _ in range(draw.pick(0, 1, 1, 1, 2)):
            name = draw.pick("delayed", "delayed", "prioritized", "wait", "paused", "active", "completed")
            made.append(place(draw, Q, current, name))
        if draw.chance(0.15):
            made += link(draw, draw.pick((P, "P"), (Q, "1")), Q + current)
    if draw.chance(0.85):
        record: dict[str, Any] = {"name": "old", "zzz": "old"}
        record |= {name: value for name, value in (("offset", "777"), ("ic", "7"), ("data", "1")) if draw.chance(0.5)}
        if draw.odd(0.1):
            record[draw.pick("offset", "ic")] = draw.pick("x", "", "1.5", "-3")
        made += [("DEL", f"{Q}repeat:{scheduler}"), *fields(f"{Q}repeat:{scheduler}", record)]
    slot = draw.pick(now + draw.random.randrange(10**6), now, now - 5, now + 1, now if before is None else before)
    text: Arg = str(slot) if cron else ""
    if cron and draw.odd(0.08):
        text = draw.pick("x", "", "0.5", "1e3", "0x10", "nan", " 5")
    following: Any = text if cron else now if before is None else before + every
    if draw.chance(0.3):
        made += fields(f"{Q}repeat:{scheduler}:{following}", {"name": "taken"})
        if not cron and draw.chance(0.5):
            made += fields(f"{Q}repeat:{scheduler}:{following + every}", {"name": "taken too"})
    repeat: Any = {"every": every} if not cron else {"pattern": "*/5 * * * *"}
    repeat |= {"count": 1, "offset": draw.pick(None, None, 0, 777)}
    if draw.odd(0.05):
        repeat = draw.pick(None, False, {}, "txt", 5, True, [])
    found = options(draw, "addStandardJob")
    if isinstance(found, dict):
        found["repeat"] = repeat
    made += spoil(draw, [current or "1", f"repeat:{scheduler}"])
    add = calls.add_scheduler(
        Q,
        scheduler,
        slot=text,
        schedule=junk(draw, pack(schedule(draw, every, now, cron=cron))),
        data=draw.pick("{}", '{"a":1}', "", "null"),
        template=junk(draw, pack(templates(draw))),
        options=junk(draw, pack(found)),
        at=str(now) if not draw.odd(0.03) else draw.pick("x", "", "1e12", " 17"),
        producer_key=draw.pick("", "", "", f"{Q}prod") if not draw.odd(0.04) else f"{Q}wait",
    )
    others = [calls.remove_scheduler(Q, scheduler), calls.get_scheduler(Q, scheduler), add]
    return made, draw.pick([add], [add], [add, draw.pick(*others)], [draw.pick(*others)])


def repeating(draw: Draw) -> tuple[list[Command], list[Call]]:
    """Repeatable jobs of older clients."""
    oldest, member = draw.pick("n::::1000", "n:x:::* * *", "m", ""), draw.pick("m", "m", "n::::1000", "ü")
    made = queue(draw, Q, draw.some(PLAIN, 0, 2))
    stem = draw.pick("repeat:hash:", f"repeat:{member}:", "repeat::", "")
    for each, start in ((oldest, stem), (member, f"repeat:{member}:")):
        if draw.chance(0.6):
            slot = draw.pick(5, T, T + 1.5, 10**14)
            made.append(("ZADD", f"{Q}repeat", repr(slot), each))
            if draw.chance(0.6):
                made += fields(f"{Q}repeat:{each}", {"name": "x", "old": "1"})
            id = f"{start}{slot}"
            if draw.chance(0.8):
                made += job(draw, Q, id)
            if draw.chance(0.8):
                made.append(place(draw, Q, id, draw.pick("delayed", "delayed", "wait")))
    slot_text = str(draw.pick(T, 5, T + 1000)) if not draw.odd(0.08) else draw.pick("x", "", "1e3", "1.5")
    if draw.chance(0.3):
        made += fields(f"{Q}repeat:{member}:{slot_text}", {"name": "taken"})
    named: Any = {
        "name": draw.pick("n", ""),
        "endDate": draw.pick(None, 5, 1_893_456_000_000),
        "tz": draw.pick(None, "UTC", ""),
        "pattern": draw.pick(None, "* * * * *"),
        "every": draw.pick(None, 60_000, 1.5, "7"),
    }
    if draw.odd(0.08):
        named[draw.pick("name", "endDate", "tz", "every")] = draw.pick(None, False, True, 0, 5)
    made += spoil(draw, [f"repeat:{member}", f"repeat:{member}:5"])
    makers = (
        calls.add_repeatable(Q, member, oldest, slot=slot_text, schedule=junk(draw, pack(named))),
        calls.update_repeatable(Q, member, oldest, slot=slot_text),
        calls.remove_repeatable(Q, member, oldest, oldest_id=stem),
        calls.get_scheduler(Q, draw.pick(member, oldest)),
        calls.remove_scheduler(Q, draw.pick(member, oldest)),
    )
    return made, [draw.random.choice(makers) for _ in range(draw.pick(1, 1, 2))]


GENERATORS: tuple[tuple[Callable[[Draw], tuple[list[Command], list[Call]]], float], ...] = (
    (adding, 5),
    (fetching, 3),
    (finishing, 7),
    (plain_ending, 3),
    (stalling, 2),
    (locking, 1),
    (moving, 5),
    (aimed, 4),
    (cleaning, 4),
    (paging, 1.5),
    (scheduling, 2),
    (upserting, 3),
    (repeating, 1.5),
)
"""Every generator of a state with calls, and how often it comes."""


def state(seed: int, number: int) -> tuple[str, list[Command], list[Call]]:
    """Give one state with its calls, and its name."""
    random = Random(f"state/{seed}/{number}")
    generators, weights = zip(*GENERATORS, strict=True)
    generator = random.choices(generators, weights)[0]
    return f"{generator.__name__} state {seed}/{number}", *generator(Draw(random))


def run(bench: Bench, seed: int, number: int) -> Found | None:
    """Run one state; return the difference, if there is one, reduced."""
    name, made, found = state(seed, number)
    steps = (*made, *found)
    bench.reset(made, strict=False)
    for call in found:
        seen = bench.call(call).differences
        if seen:
            return shrink(bench, Found(name, replay(bench, steps) or seen, steps))
    return None
