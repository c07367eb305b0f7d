"""Several jobs in one call of ours against the same jobs one by one with BullMQ's scripts: replies and whole states.

States and calls are random and seeded, like those of `states`. Half of the states hold what no client leaves and a
server may hold (`KINDS`), but no key of the queue itself has a wrong type: what a call for several jobs postpones would
be refused at another point.

Calls of another profile than `strict` are compared with its own single scripts, which `profiles` compares with BullMQ's
(`later_state` has what came after 5.62.0).

`COUNT=25000 SEED=7 PROFILE=fleet python -m tests.oracle.batches` runs the edges and this many states, and nothing else
of the oracle.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from bullmq_protocol.command import Command as Built
from bullmq_protocol.command import Merge, Script
from bullmq_protocol.commands import batches
from bullmq_protocol.commands._merging import ADDS, OUTCOMES
from bullmq_protocol.commands._shared import Limiter
from bullmq_protocol.commands.adding import KINDS as ADD_KINDS
from bullmq_protocol.commands.finishing import PackedFinish
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.errors import ServerError
from bullmq_protocol.scripts import profile as profile_module
from bullmq_protocol.scripts._lua import OUR_SCRIPTS
from bullmq_protocol.scripts.profile import Profile
from lua import build
from tests.oracle import calls, later_calls, later_states, profiles, scripts, sequences, states
from tests.oracle.calls import Call, Command, P, Q, T, pack
from tests.oracle.harness import Bench, differences, error_class, replies_equal
from tests.oracle.states import PLAIN, Draw
from tests.support import servers

KEYS = QueueKeys.of("q")
REFUSED = object()
Merged = Callable[[Sequence[Call]], Built[Any]]


class Sound(Draw):
    """A source of states that a client could have left; hostile: of those, and of others."""

    def __init__(self, random: Random, *, hostile: bool = False) -> None:
        super().__init__(random)
        self.hostile = hostile

    def odd(self, probability: float) -> bool:
        return self.hostile and super().odd(probability)

    def of_client(self) -> Sound:
        """Return the same source for what only a client makes: the calls."""
        return Sound(self.random)


def plainly(draw: Sound, *, refused: bool) -> list[Command]:
    """Make a queue in which jobs can be plain, mostly, and whose waiting jobs are many, some of them to be refused."""
    sure = 1 if refused else 0.97
    made: list[Command] = [("HDEL", f"{Q}meta", name) for name in ("paused", "concurrency", "max") if draw.chance(sure)]
    if draw.chance(sure):
        made.append(("HSET", f"{Q}meta", "opts.maxLenEvents", draw.pick("10000", "10000", "100", "5")))
    made += [("DEL", f"{Q}{name}") for name in ("delayed", "wait", "active") if refused or draw.chance(0.9)]
    made += [("DEL", f"{Q}prioritized")] if draw.chance(0.5) else []
    made += [("ZADD", f"{Q}delayed", (T + 600_000) * 4096, "60")] if draw.chance(0.3) else []
    for id in draw.some(["41", "42", "43", "44", "45", "46", "47", "48"], 0, 2, 4, 8, 8):
        made += states.job(draw, Q, id)
        made += states.fields(Q + id, {"ats": "x"}) if refused and draw.chance(0.03) else []
        made += [("DEL", Q + id), ("SET", Q + id, "no hash")] if refused and draw.chance(0.03) else []
        made += [("HSET", Q + id, "data", "x" * 1_000_001)] if draw.chance(0.02) else []
        made.append((draw.pick("LPUSH", "LPUSH", "RPUSH"), f"{Q}wait", id))
    made += [("LPUSH", f"{Q}wait", draw.pick("0:0", "0:5", "41", *PLAIN))] if not refused and draw.chance(0.3) else []
    return made


def finishing(draw: Sound) -> tuple[list[Command], list[Call], Merged]:
    """Ends of several active jobs: of all kinds, some not there, not locked, not active or with children."""
    ids = draw.some([*PLAIN, "a:b:c", "20"], 2, 3, 5, 8)
    made = states.queue(draw, Q, draw.some([*PLAIN, "9", "20", "31", "32"], 1, 3, 6))
    made += states.queue(draw, P, draw.some(PLAIN, 0, 1, 3))
    parents = [(P, "P"), (Q, "P"), (P, "a:b:c"), (Q, draw.pick(*ids))]
    plain = draw.chance(0.4)
    simple = draw.chance(0.5)
    if simple:
        made += plainly(draw, refused=draw.chance(0.5))
    outcome = draw.pick("completed", "failed")
    usual = {
        "keepJobs": draw.pick({"count": -1}, {"count": 0}, {"count": 2}, {"age": 5}, {}),
        "attempts": draw.pick(0, 1, 2),
    }
    usual |= {"maxMetricsSize": draw.pick("", "", 5), "name": draw.pick(None, "w")}
    usual |= draw.pick({}, {}, {"limiter": {"max": draw.pick(1, 2, 50), "duration": 400_000}})
    if simple:
        usual |= {"keepJobs": draw.pick({"count": -1}, {"count": -1}, {"count": 0}, {}), "maxMetricsSize": ""}
        usual["limiter"] = None
    found, crowd, eager = [], draw.pick(0, 0.4), 0.6
    if simple and draw.chance(0.15):
        made.append(("RPUSH", f"{Q}wait", draw.pick(*ids)))
    if simple and draw.chance(0.15):
        # the last end of all
        made += [("DEL", f"{Q}{name}") for name in ("wait", "active", "prioritized")]
        crowd = eager = 0
    for at, id in enumerate(ids):
        while simple and draw.chance(crowd):
            made.append((draw.pick("LPUSH", "RPUSH"), f"{Q}active", f"7{draw.pick(1, 2, 3)}"))
        if simple and draw.chance(0.95):
            made += [*states.job(draw, Q, id), ("HDEL", Q + id, "parent", "parentKey", "deid")]
        if plain or draw.chance(0.93):
            made += states.job(draw, Q, id)
        if plain or draw.chance(0.8):
            made += [("DEL", f"{Q}{id}:{part}") for part in ("dependencies", "unsuccessful")]
        if draw.chance(0.95):
            made.append((draw.pick("LPUSH", "RPUSH"), f"{Q}active", id))
        token = draw.pick("tk", "tk", f"w:{at}", "0" if draw.chance(0.1) else "x" * draw.pick(5, 31, 32, 255, 256))
        made.append(("SET", f"{Q}{id}:lock", token if draw.chance(0.93) else "zz", "PX", 300_000))
        made += [("DEL", f"{Q}{id}:lock")] if draw.chance(0.05) else []
        made += [("SADD", f"{Q}stalled", id)] if draw.chance(0.4) else []
        made += states.fields(Q + id, {"atm": draw.pick("3", "0", "12")}) if draw.chance(0.2) else []
        made += states.fields(Q + id, {"defa": "why"}) if draw.chance(0.1) else []
        if not plain and draw.chance(0.02 if simple else 0.4):
            parent = draw.pick(*parents)
            made += states.job(draw, *parent)
            made += states.link(draw, parent, Q + id)
        if draw.chance(0.03):
            made += states.fields(Q + id, {"parent": "{", "parentKey": f"{P}P"})
        if draw.chance(0.02 if simple else 0.15):
            made += states.fields(Q + id, {"deid": "d"})
            made.append(("SET", f"{Q}de:d", draw.pick(id, "77"), *draw.pick((), ("PX", 400_000))))
        call = states.finish_call(draw.of_client(), id)
        options: dict[str, Any] = msgspec.msgpack.decode(call.args[7])  # type: ignore[arg-type]
        del options["token"]
        options = {"token": token, "name": None, "limiter": None, **options, "lockDuration": 300_000}
        options |= usual if plain or draw.chance(0.97 if simple else 0.5) else {}
        call = call.with_arg(7, pack(options)).with_arg(1, str(T + (0 if draw.chance(0.8) else draw.pick(1, 60_000))))
        found.append(call.with_arg(5, "1") if draw.chance(eager) else call)
    for _ in range(draw.pick(0, 0, 3)):
        old = draw.pick("21", "22", "z")
        made.append(("ZADD", Q + outcome, states.score(draw, outcome), old))
        made += states.job(draw, Q, old)
    if draw.chance(0.4):
        points = {"count": "7", "prevTS": str(T - draw.pick(0, 59_999, 60_000, 600_000, -600_000)), "prevCount": "5"}
        made += states.fields(f"{Q}metrics:{outcome}", points)
    if draw.chance(0.2):
        found.append(draw.pick(*found))
    if draw.chance(0.3):
        # a stream that is trimmed while the jobs end: whole nodes of 100 entries go
        made.append(("HSET", f"{Q}meta", "opts.maxLenEvents", draw.pick(1, 5, 90, 90, 90, 0)))
        made += [("XADD", f"{Q}events", "*", "event", "old")] * draw.random.randrange(180, 191)
    return made, found, lambda some: batches.finish_many(KEYS, [_finish(call) for call in some])


def fetching(draw: Sound) -> tuple[list[Command], list[Call], Merged]:
    """Fetches of several jobs."""
    made = states.queue(draw, Q, draw.some([*PLAIN, *draw.pick((), ("0:5",))], 3, 6, 9))
    simple, refused = draw.chance(0.5), draw.chance(0.5)
    if simple:
        made += plainly(draw, refused=refused)
    limiter = None if simple else draw.pick(None, None, {"max": draw.pick(1, 2, 50), "duration": 400_000})
    name = draw.pick(None, "w")
    tokens = [f"w:{at}" for at in range(draw.pick(1, 2, 3, 8))]
    if not (simple and refused) and draw.chance(0.1):
        tokens[-1] = "0"
    at = T + draw.pick(0, 0, 1000)
    found = [
        calls.move_to_active(Q, at=str(at), token=token, lockDuration=300_000, limiter=limiter, name=name)
        for token in tokens
    ]
    return (
        made,
        found,
        lambda some: batches.fetch_many(
            KEYS,
            tokens=tokens[len(tokens) - len(some) :],
            lock_ms=300_000,
            now=at,
            limiter=None if limiter is None else Limiter(**limiter),
            worker_name=name,
        ),
    )


def adding(draw: Sound) -> tuple[list[Command], list[Call], Merged]:
    """Adds of several jobs, of all kinds, with ids, parents and deduplication; some cannot be read."""
    ids = [*PLAIN, "a:b:c", "x/y", "ü"]
    chosen = draw.some(ids, 2, 4)
    made = states.queue(draw, Q, chosen) + states.queue(draw, P, draw.some(ids, 0, 2))
    parents = [(Q, "P"), (P, "P"), (Q, chosen[0])]
    for base, id in draw.some(parents, 1, 2):
        made += states.job(draw, base, id)
        made.append(("ZADD", f"{base}waiting-children", T - 5, id))
    for id in chosen:
        made += [("ZADD", Q + draw.pick("completed", "delayed"), T, id)] if draw.chance(0.3) else []
    simple = draw.chance(0.5)
    own = draw.chance(0.4)
    if simple:
        made += plainly(draw, refused=draw.chance(0.5))
        made += [("HSET", f"{Q}meta", "concurrency", draw.pick(1, 20))] if draw.chance(0.2) else []
        made += [("HSET", f"{Q}meta", "paused", 1)] if draw.chance(0.1) else []
        last = draw.pick(0, 7, 99_999_999_999_999, 100_000_000_000_000)
        made.append(("SET", f"{Q}id", last))
        made += [("SET", f"{Q}{last + draw.pick(1, 2)}", "no hash")] if draw.chance(0.3) else []
        made += [("SET", f"{Q}pc", draw.pick(5, 2**32 - 2, 2**32 + 1))] if draw.chance(0.3) else []
        for name, scores in (
            ("delayed", ((T + 5) * 4096, (T + 6) * 4096 - 2, (T + 6) * 4096 - 1, T * 4096 + 3)),
            ("prioritized", (2**33 + 1, 2**33 + 6, 0)),
        ):
            found_there = draw.some(["a", "b", str(last + 1), str(last + 2), "60"], 0, 0, 1, 2)
            made += [("ZADD", f"{Q}{name}", draw.pick(*scores), id) for id in found_there]
    sort = draw.pick("addStandardJob", "addStandardJob", "addDelayedJob", "addPrioritizedJob")
    family = draw.pick(None, None, *parents)
    kinds = draw.pick(("addStandardJob",), ("addStandardJob", "addDelayedJob"), tuple(calls.ADD_KEYS))
    found: list[Call] = []
    count = draw.pick(1, 2, 4, 8)
    same = draw.chance(0.4)
    while len(found) < count:
        if simple and draw.chance(0.95):
            id = draw.pick(*"abcdefghijklmnopqrstuvwxyz") if own else ""
            id = id if draw.chance(0.85) else draw.pick("", "", "pc", "completed", "id", "9", "a", chosen[0])
            given = draw.pick(
                *({}, {"attempts": 3}, {"lifo": True}, {"delay": 5, "priority": 2}),
                *({"delay": 5, "priority": 2}, {"delay": 1.5, "priority": 1}, {"delay": 5, "attempts": 2}),
            )
            name = draw.pick("n", "ü")
            kind = sort if draw.chance(0.97) else draw.pick(*calls.ADD_KEYS)
            above = family if draw.chance(0.97) else draw.pick(None, *parents, (Q, "gone"))
            at = T + draw.pick(0, 0, 0, 1, 0.5)
            found.append(calls.add(kind, id=id, options=given, at=at, name=name, parent=above))
            continue
        call = states.add_call(draw.of_client(), chosen, parents)
        ours = call.keys[-1] != call.keys[0] and str(call.keys[0]).startswith(Q)
        if call.name not in kinds or not ours or (call.name == "addParentJob" and _is_deduplicated(call)):
            continue
        if same and found and found[-1].name == call.name:
            call = call.with_arg(2, found[-1].args[2])
        if draw.chance(0.03):
            call = call.with_arg(draw.pick(0, 2), b"\xc1")
        found.append(call)
    return made, found, _add


def _is_deduplicated(call: Call) -> bool:
    """Tell whether it is no part of a call for several jobs if it has children."""
    options = _unpacked(call.args[2])
    return not isinstance(options, dict) or "de" in options


def flowing(draw: Sound, *, deferring: bool = False) -> tuple[list[Command], list[Call], Merged]:
    """Flows: jobs with children, then their children, some of which are there already; and the release of the parents
    after them."""
    chosen = draw.some([*PLAIN, "a", "b", "f"], 1, 3)
    made = states.queue(draw, Q, chosen) + plainly(draw, refused=draw.chance(0.2))
    for id in chosen:
        made += [("ZADD", Q + draw.pick("completed", "waiting-children", "delayed"), T, id)] if draw.chance(0.5) else []
        if draw.chance(0.5):
            place = Q + draw.pick("f", "g", "P")
            made += states.fields(Q + id, {"parentKey": place, "parent": "{}"})
    made += [("HSET", f"{Q}meta", "concurrency", draw.pick(1, 20))] if draw.chance(0.1) else []
    parents = [(Q, "f"), *draw.pick((), (), ((Q, "g"),), ((Q, "g"), (Q, "h")))]
    kind = draw.pick("addStandardJob", "addStandardJob", "addDelayedJob", "addPrioritizedJob")
    given = draw.pick({}, {"attempts": 3}, {"delay": 5, "priority": 2}, {"lifo": True, "priority": 1})
    found = [calls.add("addParentJob", id="f", options=draw.pick(given, given, {"delay": 7}, {"priority": 3}))]
    for above in parents[1:]:
        link = draw.pick(None, parents[0])
        found.append(calls.add("addParentJob", id=above[1], options=given, parent=link, flags=draw.pick((), ("fpof",))))
    names = draw.some([*"abcdefghijk", *chosen], 0, 1, 3, 6)
    family = parents[0] if draw.chance(0.8) else draw.pick(*parents, (P, "P"))
    made += states.job(draw, P, "P")
    for id in names:
        above = family if draw.chance(0.9) else draw.pick(*parents, None, (P, "P"), (Q, "gone"))
        sort = kind if draw.chance(0.9) else draw.pick(*calls.ADD_KEYS)
        at = T + draw.pick(0, 0, 0, 1)
        found.append(calls.add(sort, id=id if draw.chance(0.97) else "", options=given, at=at, parent=above))
    if deferring:
        found = [call.with_arg(0, pack([*_unpacked(call.args[0]), True])) for call in found]
        made += [("HSET", f"{Q}f", "flowAttachmentFailed", "1")] if draw.chance(0.1) else []
        found += [later_calls.release_parent(Q, id) for _, id in parents]
        found += [later_calls.release_parent(P, "P")] if draw.chance(0.1) else []
        if draw.chance(0.1):
            draw.random.shuffle(found)
    return made, found, _add


GENERATORS = (finishing, finishing, fetching, adding, flowing)

# What no client leaves, but a server may hold

WIDE = ("9999999999999", "99999999999998", "99999999999999", "999999999999999", "9007199254740991")
NO_NUMBERS = ("abc", "", "1.5", "-3", " 7", "nan", "1e3", "9223372036854775806", "9223372036854775807")
IDS = (*PLAIN, "a:b:c", "20", "41", "42", "43", "44", "60", "71")
QUEUE_KEYS = (
    *("wait", "paused", "meta", "id", "completed", "delayed", "active", "events", "marker", "prioritized", "pc"),
    "waiting-children",
)


def counters(draw: Draw) -> list[Command]:
    """A counter of ids or of priorities that the server refuses to count on, mostly without a stored cap."""
    made: list[Command] = [("DEL", f"{Q}meta")] if draw.chance(0.6) else []
    names = draw.some(["id", "id", "id", "pc"], 1, 2)
    return [*made, *[("SET", Q + name, draw.pick(*NO_NUMBERS, *WIDE)) for name in names]]


def widths(draw: Draw) -> list[Command]:
    """Counts that Lua and the server write differently one later."""
    made: list[Command] = []
    for id in draw.some(IDS, 2, 4, 9):
        found = {name: draw.pick(*WIDE) for name in draw.some(["atm", "ats", "stc"], 1, 2)}
        made += states.fields(Q + id, found) if draw.chance(0.8) else []
    return [*made, ("HSET", f"{Q}meta", "opts.maxLenEvents", draw.pick(*WIDE))] if draw.chance(0.3) else made


def settings(draw: Draw) -> list[Command]:
    """Settings of the queue that are no numbers. No window of a limit ends while the calls are made."""
    names = draw.some(["concurrency", "concurrency", "max", "duration", "opts.maxLenEvents"], 1, 1, 2)
    odd = {"duration": ("abc", "", "nan", "1e6", " 700000", "-700000.9", "500000.5")}
    made: list[Command] = [("HSET", f"{Q}meta", name, draw.pick(*odd.get(name, NO_NUMBERS))) for name in names]
    return [*made, ("DEL", f"{Q}limiter")] if draw.chance(0.5) else made


def points(draw: Draw) -> list[Command]:
    """Counts and moments of the metrics that are no numbers."""
    made: list[Command] = []
    for outcome in draw.some(["completed", "failed"], 1, 2):
        found = {
            name: draw.pick(*NO_NUMBERS, *WIDE) for name in draw.some(["count", "count", "prevTS", "prevCount"], 1, 2)
        }
        made += states.fields(f"{Q}metrics:{outcome}", found)
    return made


def types(draw: Draw) -> list[Command]:
    """Jobs, their locks and what else belongs to them, of another type."""
    made: list[Command] = []
    for id in draw.some(IDS, 1, 3, 8):
        made += states.wrong_type(draw, Q + id + draw.pick(":lock", ":lock", *states.FAMILY))
    return made


def nothing(draw: Draw) -> list[Command]:
    """Nothing on top of what hostile generators make."""
    return []


KINDS = (counters, widths, settings, points, types, nothing)


def _unpacked(packed: Any) -> Any:
    try:
        return msgspec.msgpack.decode(packed)
    except msgspec.DecodeError:
        return None


def colliding(draw: Draw, found: list[Call]) -> list[Call]:
    """Give some adds an id of their own that makes them a key of the queue.

    None with children: its hash would take the place of a list, say, and the jobs after it meet a queue whose own keys
    have a wrong type (specs/08-batches.md#sec-1-1).
    """
    made = []
    for call in found:
        if draw.chance(0.5) and call.name != "addParentJob":
            head = _unpacked(call.args[0])
            if isinstance(head, list) and len(head) > 1:
                head[1] = draw.pick(*QUEUE_KEYS, "limiter", "stalled", "de:d", "1:dependencies", "P:dependencies")
                call = call.with_arg(0, pack(head))
        made.append(call)
    return made


def edges() -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    """Give what chance seldom meets: name, start state, calls, and how they go together."""
    draw = Sound(Random(0))
    opened: list[Command] = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90)]

    def ending(title: str, ids: str, *more: Command, fetch: str = "1") -> tuple[str, list[Command], list[Call], Merged]:
        made = [*opened, *more]
        for id in ids:
            made += [*states.job(draw, Q, id), ("HDEL", Q + id, "parent", "parentKey", "deid", "atm")]
            made += [("RPUSH", f"{Q}active", id), ("SET", f"{Q}{id}:lock", "tk", "PX", 300_000)]
        options = dict.fromkeys(states.FLAGS, False) | {"name": None, "limiter": None}
        found = [calls.move_to_finished(Q, id, fetch=fetch, **options) for id in ids]
        return title, made, found, lambda some: batches.finish_many(KEYS, [_finish(call) for call in some])

    waiting: list[Command] = [("HSET", f"{Q}4{at}", "name", "n", "data", "x" * 600_000) for at in range(5)]
    waiting += [("LPUSH", f"{Q}wait", f"4{at}") for at in range(5)]
    yield ending("the last", "12", fetch="0")
    yield ending("data beyond the bound", "123", *waiting)
    yield ending("newer ones are active", "21", *[("RPUSH", f"{Q}active", f"7{at}") for at in range(5)])
    yield "id refused", [*opened, ("SET", f"{Q}2", "no hash")], [calls.add("addStandardJob")] * 3, _add
    for count in range(184, 192):
        made: list[Command] = [("XADD", f"{Q}events", "*", "event", "old")] * count
        yield ending(f"a stream of {count} entries", "12", *made, *waiting[::2], fetch="1")
    yield from borders()
    yield from conditions()


def _ending(
    ids: str,
    *more: Command,
    at: Sequence[int] = (),
    fields: Any = None,
    fetch: str = "1",
    **options: Any,
) -> tuple[list[Command], list[Call], Merged]:
    """Ends of plain jobs, the first as old as the last: start state, calls, how they go together."""
    made: list[Command] = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90)]
    job = ("name", "n", "data", "{}", "opts", "{}", "timestamp", T, "delay", 0, "priority", 0)
    made += [("HSET", Q + id, *job) for id in (*ids, "5", "6", "7")]
    for id in ids:
        made += [("RPUSH", f"{Q}active", id), ("SET", f"{Q}{id}:lock", "tk", "PX", 300_000)]
    made += [("LPUSH", f"{Q}wait", *"567"), *more]
    outcome = "completed" if fields is None else "failed"
    full = {"name": None, "limiter": None} | dict.fromkeys(states.FLAGS, False) | options
    found = [
        calls.move_to_finished(Q, id, outcome=outcome, update=fields, fetch=next_one, at=moment, **full)
        for id, moment, next_one in zip(ids, at or (T,) * len(ids), fetch * len(ids), strict=False)
    ]
    return made, found, lambda some: batches.finish_many(KEYS, [_finish(call) for call in some])


def borders() -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    """Give what makes a plain call a general one, or a general one differ from its jobs."""
    long: list[Command] = [("XADD", f"{Q}events", "*", "event", "old")] * 295
    due = [("ZADD", f"{Q}delayed", (T + later) * 4096, id) for later, id in ((500, "6"), (1500, "7"))]
    removing = {"keepJobs": {"count": 0}}
    failure = ["failedReason", "boom", "stacktrace", "[]"]
    yield "removed, long stream", *_ending("123", *long, **removing)
    yield "removed, failed, long stream", *_ending("123", *long, fields=failure, **removing)
    yield "fields with attempts", *_ending("12", fields=[*failure, "atm", "7"], attempts=8)
    yield "fields with a deduplication id", *_ending("12", ("SET", f"{Q}de:d", "1"), fields=[*failure, "deid", "d"])
    yield "metrics in a plain queue", *_ending("123", maxMetricsSize=5)
    yield (
        "metrics of an old minute",
        *_ending(
            "123",
            ("HSET", f"{Q}metrics:completed", "count", 7, "prevTS", T - 120_000, "prevCount", 5),
            at=(T, T + 60_000, T + 60_001),
            maxMetricsSize=5,
        ),
    )
    for moments in ((T, T + 1000, T + 2000), (T + 2000, T, T + 1000), (T, T, T + 1000)):
        yield f"jobs fall due at {moments}", *_ending("123", *due, at=moments)
    for score in ((T + 1) * 4096 - 1, (T + 1) * 4096, T * 4096, T * 4096 - 1):
        yield f"a job with score {score}", *_ending("12", ("ZADD", f"{Q}delayed", score, "6"))
    for kind, add in (("dependencies", ("SADD",)), ("unsuccessful", ("ZADD", 1))):
        for id in "123":
            tied: Command = (add[0], f"{Q}{id}:{kind}", *add[1:], f"{Q}9")
            yield f"{kind} of job {id}", *_ending("123", tied)
            yield f"{kind} of failed job {id}", *_ending("123", tied, fields=failure)
    for marker in ("0:5", "0:0", "0:"):
        yield f"an old marker {marker} comes next", *_ending("12", ("RPUSH", f"{Q}wait", marker))
        yield f"an old marker {marker} comes later", *_ending("123", ("RPUSH", f"{Q}wait", marker, "7", "6"))
    limiter = {"max": 2, "duration": 400_000}
    yield "a limit within the call", *_ending("123", limiter=limiter)
    yield "a stored limit", *_ending("123", ("HSET", f"{Q}meta", "max", 2, "duration", 400_000))
    yield "a limit that was reached", *_ending("123", ("SET", f"{Q}limiter", 2, "PX", 300_000), limiter=limiter)
    yield "a paused queue", *_ending("123", ("HSET", f"{Q}meta", "paused", 1), ("RENAME", f"{Q}wait", f"{Q}paused"))
    yield "a paused queue, jobs fall due", *_ending("123", ("HSET", f"{Q}meta", "paused", 1), *due, at=(T, T + 1000, T))
    for most in (1, 2, 3, 4, 9):
        yield f"concurrency {most}", *_ending("123", ("HSET", f"{Q}meta", "concurrency", most))
    for count in (0, 80, 89, 90, 91, 187, 188, 189, 190, 191, 295):
        stream: list[Command] = [("XADD", f"{Q}events", "*", "event", "old")] * count
        capped: list[Command] = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90), *stream]
        yield f"adds on a stream of {count}", capped, [calls.add("addStandardJob")] * 3, _add
        yield f"delayed adds on a stream of {count}", capped, [calls.add("addDelayedJob")] * 3, _add
    for order in itertools.permutations(("addStandardJob", "addDelayedJob", "addPrioritizedJob")):
        for start in ([], [("HSET", f"{Q}meta", "opts.maxLenEvents", 90)]):
            mixed = [calls.add(kind, options={"delay": 5, "priority": 2}) for kind in (*order, *order)]
            yield f"adds {' '.join(order)}, {len(start)}", list(start), mixed, _add
    capped = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90)]
    yield from among_readable_ones()
    replaced = {"de": {"id": "d", "replace": True}}
    first, later = (calls.add("addDelayedJob", options=own) for own in (replaced | {"delay": 5}, {"delay": 9}))
    last = calls.add("addStandardJob", options=replaced)
    yield "the first of two delayed jobs of the same call is replaced", capped, [first, later, last], _add
    for most in (0, 1, 9):
        bounded: list[Command] = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90, "concurrency", most)]
        kinds = ("addPrioritizedJob", "addStandardJob", "addPrioritizedJob", "addStandardJob")
        mixed = [calls.add(kind, options={"priority": 2}) for kind in kinds]
        yield f"adds of two kinds with concurrency {most}", bounded, mixed, _add
    for kind in ("addStandardJob", "addPrioritizedJob"):
        due_first = [calls.add("addDelayedJob", options=replaced | {"delay": 5}), calls.add(kind, options=replaced)]
        yield f"{kind} replaces a delayed job of the same call", capped, due_first, _add
    for name in QUEUE_KEYS:
        own = [calls.add("addStandardJob", id=id) for id in ("a", name, "b")]
        yield f"an own id {name}", capped, own, _add
    for ids in (("a", "a", "b"), ("a", "b", "a"), ("a", "", "b"), ("", "a", "")):
        yield f"own ids {ids}", capped, [calls.add("addStandardJob", id=id) for id in ids], _add
    held: list[Command] = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90, "paused", 1)]
    yield "adds to a paused queue", held, [calls.add("addStandardJob")] * 3, _add
    yield "adds of all kinds to a paused queue", held, [calls.add(kind) for kind in calls.ADD_KEYS][:3], _add
    for most in (0, 1, 2, 3):
        full: list[Command] = [
            ("HSET", f"{Q}meta", "opts.maxLenEvents", 90, "concurrency", most),
            ("RPUSH", f"{Q}active", "8", "9"),
        ]
        yield f"adds with concurrency {most}", full, [calls.add("addStandardJob")] * 3, _add
    for counter in ("abc", "9223372036854775806", "9007199254740990", "-9007199254740995", "99999999999998"):
        for cap in ([], [("HSET", f"{Q}meta", "opts.maxLenEvents", 90)]):
            yield f"counter {counter}", [("SET", f"{Q}id", counter), *cap], [calls.add("addStandardJob")] * 3, _add


ODD_TIMES: Sequence[Any] = (
    -1,
    0,
    0.5,
    1,
    1.5,
    2,
    99_999_999_999_999,
    10**14,
    10**14 + 1,
    10**15,
    None,
    "700000",
    "x",
    True,
)
"""Numbers about what has one text for Lua and for the server, and what is no number."""
ODD_LOCKS = [each for each in ODD_TIMES if each not in (1, 1.5, 2)]
"""Without those that end while it is compared."""


ODD_OPTIONS: Sequence[Any] = (None, True, False, {}, [], 0.1, 1.5, 10**14, 123_456_789_012_345_678, "5", "x", -1)


def conditions() -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    """Give each condition of the plain ways alone: the first call is plain but for one thing."""
    yield from _fetches()
    yield from _ends()
    yield from _adds()
    yield from _seldom()


def _fetches() -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    plain = ("name", "n", "data", "{}", "opts", "{}", "timestamp", T, "delay", 0, "priority", 0)
    made: list[Command] = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90)]
    made += [("HSET", Q + id, *plain) for id in "56789"]
    made += [("LPUSH", f"{Q}wait", *"567")]

    def case(
        title: str, *more: Command, count: int = 3, **options: Any
    ) -> tuple[str, list[Command], list[Call], Merged]:
        tokens = [f"w:{number}" for number in range(count)]
        given: dict[str, Any] = {"lockDuration": 300_000, "limiter": None, "name": None} | options
        found = [calls.move_to_active(Q, token=token, **given) for token in tokens]
        common = batches.fetch_many(KEYS, tokens=tokens, lock_ms=300_000, now=T)
        packed = pack(given)

        def merged(some: Sequence[Call]) -> Built[Any]:
            left = pack(tokens[len(tokens) - len(some) :])
            return replace(common, args=(*common.args[:2], packed, left))

        return f"fetches, {title}", [*made, *more], found, merged

    for lock in ODD_LOCKS:
        yield case(f"locks of {lock!r} ms", lockDuration=lock)
    for score in (
        -4096,
        -1,
        0,
        1,
        T * 4096,
        (T + 1) * 4096 - 1,
        (T + 1) * 4096,
        (T + 1) * 4096 + 1,
        (T + 2) * 4096 - 1,
    ):
        yield case(f"a job with score {score}", ("ZADD", f"{Q}delayed", score, "8"))
    for name, value in (("paused", 1), ("concurrency", 2), ("max", 2)):
        yield case(f"{name} is set", ("HSET", f"{Q}meta", name, value))
    yield case("nothing waits", ("DEL", f"{Q}wait"))
    yield case("a prioritized job waits", ("DEL", f"{Q}wait"), ("ZADD", f"{Q}prioritized", 2**32, "8"))
    yield case("as many as wait", count=3)
    yield case("more than wait", count=5)
    yield case("a job refused in the middle", ("DEL", f"{Q}6"), ("SET", f"{Q}6", "no hash"))
    yield case("a job without a hash in the middle", ("DEL", f"{Q}6"))
    for size in (500_000, 1_000_000):
        big = [("HSET", Q + id, "data", "x" * size) for id in "567"]
        yield case(f"jobs of {size} bytes", *big)
        yield case(f"jobs of {size} bytes, one after the other", *big, ("HSET", f"{Q}meta", "concurrency", 9))
    for due in (999, 1000, 1001):
        pairs = [part for at in range(due) for part in (T * 4096 - at, f"4{at}")]
        yield case(f"{due} fall due", ("ZADD", f"{Q}delayed", *pairs))
    for worker in (None, "w", 5, True):
        yield case(f"a worker called {worker!r}", name=worker)


def _ends() -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    failure = ["failedReason", "boom", "stacktrace", "[]"]
    for lock in ODD_LOCKS:
        yield f"ends, locks of {lock!r} ms", *_ending("123", lockDuration=lock)
    for keep in (
        {},
        {"count": 1},
        {"count": 1, "age": 5},
        {"age": 5},
        {"count": 0, "age": 5},
        {"age": 0},
        {"count": -2},
    ):
        finished = [("ZADD", f"{Q}completed", T - at * 1249, f"4{at}") for at in range(9)]
        old = [("HSET", f"{Q}4{at}", "name", "old") for at in range(9)]
        yield f"ends, kept by {keep}", *_ending("123", *finished, *old, keepJobs=keep)
    for keep in (3, True, None, "x", []):
        yield f"ends, kept by {keep!r}", *_ending("123", keepJobs=keep)
    for attempts in (None, "x", "2", 0, 0.5, 1, 2, 3):
        for made in ("0", "1", "x"):
            counted = ("HSET", f"{Q}1", "atm", made)
            yield f"failures with {attempts!r} of {made}", *_ending("12", counted, fields=failure, attempts=attempts)
            yield f"ends with {attempts!r} of {made}", *_ending("12", counted, attempts=attempts)
    for name, value in (
        *(("parentKey", ""), ("parentKey", f"{Q}9"), ("parent", ""), ("parent", "{}"), ("parent", "{"), ("deid", "")),
        *(("deid", "d"), ("defa", "why"), ("defa", "")),
    ):
        for id in "123":
            more = (("HSET", Q + id, name, value), ("SET", f"{Q}de:d", id))
            yield f"job {id} has {name} {value!r}", *_ending("123", *more)
            yield f"failed job {id} has {name} {value!r}", *_ending("123", *more, fields=failure)
    for fields in (
        *(
            ["failedReason", "boom"],
            ["failedReason"],
            ["tm", "t"],
            ["tm", "t", "failedReason"],
            [],
            ["failedReason", 5],
        ),
        *(["stacktrace", None], ["other", "x"], {"failedReason": "boom"}, 5, "x", ["failedReason", "a", "other", "x"]),
    ):
        yield f"failures with fields {fields}", *_ending("12", fields=fields)
    for id in "123":
        for token in ("zz", "0"):
            yield f"job {id} is locked by {token}", *_ending("123", ("SET", f"{Q}{id}:lock", token, "PX", 300_000))
        yield f"job {id} is not active", *_ending("123", ("LREM", f"{Q}active", 0, id))
        yield f"job {id} is not there", *_ending("123", ("DEL", Q + id))
        yield f"job {id} is active twice", *_ending("123", ("LPUSH", f"{Q}active", id))
        yield f"job {id} is active twice at the end", *_ending("123", ("RPUSH", f"{Q}active", id))
        yield f"job {id} waits, too", *_ending("123", ("RPUSH", f"{Q}wait", id))
        crowd = [("RPUSH", f"{Q}active", f"7{at}") for at in range(8)]
        yield f"job {id} is older than a crowd", *_ending("123", *crowd)
        yield f"job {id} is older than a crowd, twice", *_ending("123", ("LPUSH", f"{Q}active", id, id), *crowd)
        yield f"job {id} has a failed child that is kept", *_ending("123", ("ZADD", f"{Q}{id}:unsuccessful", 1, "c"))
    yield "an end is reported twice", *_ending("112")
    for fetch in ("0", "01", "10", "001"):
        yield f"ends that fetch {fetch}", *_ending("123", fetch=fetch)
        yield f"failures that fetch {fetch}", *_ending("123", fetch=fetch, fields=failure)
        yield f"ends that fetch {fetch}, none waits", *_ending("123", ("DEL", f"{Q}wait"), fetch=fetch)
    for count in range(180, 196):
        stream: list[Command] = [("XADD", f"{Q}events", "*", "event", "old")] * count
        for fetch, attempts in itertools.product("01", (1, 9)):
            title = f"failures on a stream of {count}, {attempts} attempts, fetching {fetch}"
            yield title, *_ending("12", *stream, fields=failure, fetch=fetch, attempts=attempts)
        yield f"ends on a stream of {count}", *_ending("12", *stream, fetch="0")
    yield (
        "a job falls due for the first alone",
        *_ending("12", ("ZADD", f"{Q}delayed", (T + 1500) * 4096, "6"), at=(T + 2000, T)),
    )
    for part in ("logs", "dependencies", "processed", "failed", "unsuccessful"):
        beside = ("ZADD", f"{Q}1:{part}", 1, "c")
        yield f"a failed job is removed with its {part}", *_ending("12", beside, fields=failure, keepJobs={"count": 0})
        yield f"a job is removed with its {part}", *_ending("12", beside, keepJobs={"count": 0})
    yield (
        "the only next one is refused",
        *_ending("1", ("DEL", f"{Q}wait", f"{Q}7"), ("SET", f"{Q}7", "x"), ("LPUSH", f"{Q}wait", 7)),
    )
    later = [("ZADD", f"{Q}delayed", (T + 500 + at) * 4096, f"8{at}") for at in range(3)]
    yield "none waits, some are due later", *_ending("12", ("DEL", f"{Q}wait"), *later)
    yield "ends with nothing waiting", *_ending("123", ("DEL", f"{Q}wait"))
    yield "ends with nothing waiting, others active", *_ending("123", ("DEL", f"{Q}wait"), ("LPUSH", f"{Q}active", "8"))
    yield "ends with one waiting", *_ending("123", ("DEL", f"{Q}wait"), ("LPUSH", f"{Q}wait", "7"))
    for score in (-4096, -1, 0, 1):
        yield f"ends, a job with score {score}", *_ending("12", ("ZADD", f"{Q}delayed", score, "6"))
    for name, value in (
        ("paused", 1),
        ("concurrency", 2),
        ("max", 2),
        ("opts.maxLenEvents", "x"),
        ("opts.maxLenEvents", ""),
    ):
        yield f"ends, {name} is {value!r}", *_ending("123", ("HSET", f"{Q}meta", name, value))
    for size in (500_000, 1_000_000):
        big = [("HSET", Q + id, "data", "x" * size) for id in "567"]
        yield f"ends, next ones of {size} bytes", *_ending("123", *big)
        yield f"ends, next ones of {size} bytes, counted", *_ending("123", *big, maxMetricsSize=5)
    for next_id in "567":
        yield f"ends, {next_id} is refused", *_ending("123", ("DEL", Q + next_id), ("SET", Q + next_id, "no hash"))
        yield f"ends, {next_id} is not there", *_ending("123", ("DEL", Q + next_id))


def _seldom() -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    """Give bounds that are met to the unit, and what is read again though nothing changed."""
    text = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'event', 'old') end"
    # One XTRIM takes 10,000 entries at most.
    long: Command = ("EVAL", text, 1, f"{Q}events", 10_400)
    yield "an end on a stream of 10,400", *_ending("1", long)
    yield "a counted end on a stream of 10,400", *_ending("1", long, maxMetricsSize=5)
    yield "counted ends without a cap", *_ending("123", ("HDEL", f"{Q}meta", "opts.maxLenEvents"), maxMetricsSize=5)
    for fetch in "01":
        # 2,000 for each that is forgotten, up to a million
        old: Command = ("ZADD", f"{Q}completed", *[part for at in range(500) for part in (T - 1, f"4{at}")])
        yield f"500 are forgotten, fetching {fetch}", *_ending("12", old, fetch=fetch, keepJobs={"count": 1})
    exact = [("HSET", Q + id, "data", "x" * 500_000) for id in "56"]
    yield "a million bytes, then what is not plain", *_ending("123", *exact, ("HSET", f"{Q}3", "deid", "d"))
    for token in ("1", "-1", "0"):
        locks = [("SET", f"{Q}{id}:lock", token) for id in "123"]
        yield f"counted ends with the token {token}", *_ending("123", *locks, token=token, maxMetricsSize=5)
    yield "counted ends, one has the id 0", *_ending("012", maxMetricsSize=5)
    yield "counted ends at the moment 0", *_ending("123", at=(0, 0, 0), maxMetricsSize=5)
    yield "ends at the moment 0, a job with score 5000", *_ending("12", ("ZADD", f"{Q}delayed", 5000, "6"), at=(0, 0))
    yield "ends at the moment -1, a job with score 100", *_ending("12", ("ZADD", f"{Q}delayed", 100, "6"), at=(-1, -1))
    yield "an end that fetches its own job", *_ending("1", ("RPUSH", f"{Q}wait", "1"))
    full: Command = ("HSET", f"{Q}metrics:completed", "count", 2**63 - 2, "prevTS", T, "prevCount", 5)
    yield "counted ends, the count takes one more", *_ending("123", full, maxMetricsSize=5)
    made, found, merged = _ending("123", maxMetricsSize=5)
    full_options: dict[str, Any] = {"name": None, "limiter": None} | dict.fromkeys(states.FLAGS, False)
    failed = calls.move_to_finished(Q, "2", outcome="failed", fetch="1", maxMetricsSize=5, **full_options)
    yield "a failure between ends, counted", made, [found[0], failed, found[2]], merged
    parent: list[Command] = [
        ("HSET", f"{Q}P", "name", "p", "delay", "0.5", "priority", 0),
        ("ZADD", f"{Q}waiting-children", 1, "P"),
        ("SADD", f"{Q}P:dependencies", f"{Q}2"),
        ("HSET", f"{Q}2", "parentKey", f"{Q}P", "parent", f'{{"id":"P","queueKey":"{Q[:-1]}"}}'),
    ]
    yield "a parent falls due within the call", *_ending("123", *parent, maxMetricsSize=5)


def _adds() -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    capped: list[Command] = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90)]
    kinds = ("addStandardJob", "addDelayedJob", "addPrioritizedJob")
    good = calls.add("addStandardJob")
    for moment in ODD_TIMES:
        for kind in kinds:
            yield f"{kind} at {moment!r}", capped, [calls.add(kind, at=moment), calls.add(kind, at=moment), good], _add
    for name, value in itertools.product(("delay", "priority", "lifo"), ODD_OPTIONS):
        for kind in kinds:
            odd = calls.add(kind, options={name: value})
            yield f"{kind} with {name} {value!r}", capped, [good, odd, odd, good], _add
    heads: list[list[Any]] = [
        *([Q, "", 5, T], [Q, "", None, T], [Q, 5, "n", T], [Q, "", "n", T, f"{Q}9"], [Q, "", "n", T, None, f"{Q}d"]),
        *([Q, "", "n", T, "", ""], [Q, "", "n", T, False, None], [Q, "", "n", T, None, False, None, "r"]),
        *([Q, "", "n", T, None, None, None, False], [Q, "", "n", T, f"{Q}1", f"{Q}1:dependencies", {"id": "1"}]),
    ]
    for head in heads:
        for more in ([], [("HSET", f"{Q}9", "name", "n"), ("HSET", f"{Q}1", "name", "n")]):
            odd = calls.add_packed("addStandardJob", Q, head, {"attempts": 0})
            yield f"adds with head {head[1:]}, {len(more)}", [*capped, *more], [odd, odd, good], _add
    for name, value in itertools.product(
        ("opts.maxLenEvents", "concurrency"), ("x", "", "0", "1", "-1", "1.5", "1e3", "0x10", " 7")
    ):
        yield f"adds, {name} is {value!r}", [*capped, ("HSET", f"{Q}meta", name, value)], [good] * 3, _add
    refused: list[Command] = [("SET", f"{Q}{at}", "no hash") for at in (1, 2, 3)]
    for count in (1, 2, 3):
        yield f"{count} refused adds of three", [*capped, *refused[:count]], [good] * 3, _add
        waiting: list[Command] = [("XADD", f"{Q}events", "*", "event", "old")] * 500
        yield f"{count} refused adds of three, long stream", [*capped, *refused[:count], *waiting], [good] * 3, _add
    for first, second in itertools.permutations((T, T + 1, T + 0.5), 2):
        yield (
            f"adds at {first}, {second}",
            capped,
            [calls.add("addStandardJob", at=at) for at in (first, second, first)],
            _add,
        )
    yield from _adds_of_a_kind(capped)
    for taken in (("HSET", f"{Q}a", "name", "old"), ("SET", f"{Q}a", "no hash"), ("DEL", f"{Q}a")):
        own = [calls.add("addStandardJob", id=id) for id in "bac"]
        yield f"own ids after {taken[0]}", [*capped, taken], own, _add


def _adds_of_a_kind(capped: list[Command]) -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    """Give adds of one kind that are plain, and that just aren't."""
    parent: list[Command] = [*capped, ("HSET", f"{Q}P", "name", "n"), ("ZADD", f"{Q}waiting-children", 1, "P")]
    other: list[Command] = [("HSET", f"{P}P", "name", "n")]
    given = {"delay": 5, "priority": 2}
    for kind in ("addStandardJob", "addDelayedJob", "addPrioritizedJob"):
        good = calls.add(kind, options=given)
        for count in (1, 2, 3):
            refused: list[Command] = [("SET", f"{Q}{at}", "no hash") for at in range(1, count + 1)]
            yield f"{kind}, {count} refused of three", [*capped, *refused], [good] * 3, _add
        later = calls.add(kind, options=given, at=T + 1)
        refused = [("SET", f"{Q}2", "no hash")]
        yield f"{kind}, one of another moment is refused", [*capped, *refused], [good, later, later, good], _add
        yield f"{kind}, one of the first moment is refused", [*capped, *refused], [later, good, good, later], _add
        yield f"{kind} after another", capped, [good, calls.add("addStandardJob"), good], _add
        for value in ("abc", "9223372036854775806", "4503599627370494", "-3", "4294967295"):
            for name in ("pc", "id"):
                yield f"{kind}, {name} is {value}", [*capped, ("SET", f"{Q}{name}", value)], [good] * 3, _add
        for score in ((T + 5) * 4096, (T + 6) * 4096 - 3, (T + 6) * 4096 - 2, (T + 6) * 4096 - 1):
            for id in ("1", "2", "b", "60"):
                there: list[Command] = [("ZADD", f"{Q}{name}", score, id) for name in ("delayed", "prioritized")]
                yield f"{kind}, {id} is in a set at {score}", [*capped, *there], [good] * 3, _add
                own = [calls.add(kind, id=each, options=given) for each in "bac"]
                yield f"{kind} of own ids, {id} is in a set at {score}", [*capped, *there], own, _add
        child = calls.add(kind, options=given, parent=(Q, "P"), flags=("fpof",))
        second = calls.add(kind, options=given, parent=(P, "P"))
        orphan = calls.add(kind, options=given, parent=(Q, "gone"))
        for title, some in {
            "three": [child] * 3,
            "of two parents": [child, second, child],
            "and one without": [child, good, child],
            "after one without": [good, child, child],
            "and an orphan": [child, orphan, child],
            "orphans": [orphan] * 3,
        }.items():
            for more in ([], other):
                yield f"{kind}, children: {title}, {len(more)}", [*parent, *more], some, _add
        for title, last in {
            "of a wrong type": ("SET", f"{Q}P:dependencies", "x"),
            "that are there": ("SADD", f"{Q}P:dependencies", f"{Q}1"),
        }.items():
            yield f"{kind}, pending children {title}", [*parent, last], [child] * 3, _add
        for more in ([], [("HSET", f"{Q}P:dependencies", "name", "n")]):
            own = [calls.add(kind, id=each, options=given, parent=(Q, "P")) for each in ("a", "P:dependencies", "b")]
            yield f"{kind}, a child has the name of the pending ones, {len(more)}", [*parent, *more], own, _add
        own = [calls.add(kind, id=each, options=given, parent=(Q, "P")) for each in ("a", "P", "b")]
        yield f"{kind}, a child has the name of its parent", parent, own, _add
        place, pending = f"{Q}P", f"{Q}P:dependencies"
        for link in (None, 5, "x", [], {}, {1: 1}):
            odd = calls.add_packed(kind, Q, [Q, "", "n", T, place, pending, link], given)
            yield f"{kind}, children linked by {link!r}", parent, [odd, odd], _add
            yield f"{kind}, a child linked by {link!r}", parent, [child, odd, child], _add
        other_parent = calls.add_packed(kind, Q, [Q, "", "n", T, f"{P}P", pending, {"id": "P"}], given)
        yield (
            f"{kind}, a child of another parent among the pending ones",
            [*parent, *other],
            [child, other_parent],
            _add,
        )
        for name, value in itertools.product(("delay", "priority"), ("abc", "5", "0x10", "", True, -3, 1.5, 1e300)):
            odd = calls.add(kind, options={name: value})
            yield f"{kind}, all with {name} {value!r}", capped, [odd, odd, odd], _add
        for above, below in (
            (place, None),
            (place, f"{Q}x"),
            ("", pending),
            (5, "5:dependencies"),
        ):
            odd = calls.add_packed(kind, Q, [Q, "", "n", T, above, below, {"id": "P"}], given)
            yield f"{kind}, children of {above!r} in {below!r}", parent, [odd, odd], _add
    for kind in ("5", "", "x"):
        yield f"kind {kind!r}", capped, [calls.add("addPrioritizedJob", options=given)] * 2, _of_kind(kind)


def _of_kind(kind: str) -> Merged:
    """Send adds of priority under another kind: all that is no standard or delayed job."""

    def add(some: Sequence[Call]) -> Built[Any]:
        built = _add(some)
        return replace(built, args=tuple(kind if at % 4 == 0 else arg for at, arg in enumerate(built.args)))

    return add


def among_readable_ones() -> Iterator[tuple[str, list[Command], list[Call], Merged]]:
    """Give adds of which one cannot be read, or is no job."""
    heads: list[Any] = [5, "abc", True, None, [], {}, [Q], [None, "", "n", T], [Q, None, "n", T], [Q, ["x"], "n", T]]
    packed = [*map(pack, heads), b"\xc1", b""]
    capped: list[Command] = [("HSET", f"{Q}meta", "opts.maxLenEvents", 90)]
    for kind in ("addStandardJob", "addDelayedJob", "addPrioritizedJob"):
        good = calls.add(kind, options={"priority": 2, "delay": 5})
        for part, values in ((0, packed), (2, [b"\xc1", b"", *map(pack, (5, "abc", True, None, []))])):
            for value in values:
                odd = good.with_arg(part, value)
                name = f"{kind}, of one {'head' if part == 0 else 'options'} {value.hex()}"
                yield name, capped, [good, good, odd, good, good], _add


def _add(some: Sequence[Call]) -> Built[Any]:
    return batches.add_many(KEYS, [_add_built(call) for call in some])


def state(seed: int, number: int) -> tuple[str, list[Command], list[Call], Merged]:
    """Give one state: its name, and what `edges` gives."""
    random = Random(f"batch/{seed}/{number}")
    generator = random.choice(GENERATORS)
    hostile = random.random() < 0.5
    draw = Sound(random, hostile=hostile)
    made, found, merged = generator(draw)
    name = f"{generator.__name__} batch {seed}/{number}"
    for kind in draw.some(KINDS, 1, 2) if hostile else ():
        made = made + kind(draw)
        name += f" {kind.__name__}"
    if hostile and generator in (adding, flowing) and draw.chance(0.3):
        found = colliding(draw, found)
        name += " colliding"
    return name, made, found, merged


def later_state(seed: int, number: int) -> tuple[str, list[Command], list[Call], Merged]:
    """Return the same with what came after 5.62.0: jobs that are kept for later, and that are only fetched to fail;
    adds that find another job active, delayed or gone; queues that clients of several versions have paused."""
    name, made, found, merged = state(seed, number)
    draw = Draw(Random(f"batch/later/{seed}/{number}"))
    for dedup_id in ("d", "d2"):
        made += later_states.kept(Sound(draw.random), Q, ["1", "5"], dedup_id) if draw.chance(0.5) else []
    for id in ("1", "2", "3", "41", "42", "43"):
        made += states.fields(Q + id, {"defa": "zz"}) if draw.chance(0.2) else []
    if draw.chance(0.3):
        made += [
            ("HSET", f"{Q}meta", "paused", "1"),
            *(("DEL", Q + list_) for list_ in draw.some(["wait", "paused"], 0, 1)),
        ]
    changed = []
    for call in found:
        if call.name == "moveToFinished" and draw.chance(0.4):
            made += states.fields(Q + str(call.args[0]), {"deid": draw.pick("d", "d2")})
        elif call.name in calls.ADD_KEYS and call.name != "addParentJob" and draw.chance(0.4):
            owner = draw.pick("1", "2", "gone")
            made.append(("SET", f"{Q}de:d", owner, *draw.pick((), (), ("PX", 400_000))))
            made += states.settle(draw, Q, owner, "active", "active", "delayed", "wait") if owner != "gone" else []
            head, options = sequences.opened(call.args[0]), sequences.opened(call.args[2])
            if isinstance(head, list) and len(head) >= 9 and isinstance(options, dict):
                rule = {"id": "d", draw.pick("keepLastIfActive", "reschedule", "extend", "replace"): True}
                rule |= draw.pick({}, {"keepLastIfActive": True}, {"ttl": 5000})
                head[8] = f"{Q}de:d"
                call = call.with_arg(0, pack(head)).with_arg(2, pack({**options, "de": rule}))
        changed.append(call)
    return f"{name} later", made, changed, merged


def flow_state(seed: int, number: int) -> tuple[str, list[Command], list[Call], Merged]:
    """Return a flow whose parents are released at its end."""
    random = Random(f"batch/flow/{seed}/{number}")
    return f"flow batch {seed}/{number}", *flowing(Sound(random, hostile=random.random() < 0.5), deferring=True)


def run(bench: Bench, seed: int, number: int) -> tuple[str, ...]:
    """Run one state; return the differences."""
    return compare(bench, *state(seed, number))


def bench_of(server: servers.Server, profile: Profile) -> Bench:
    """Open a bench whose two sides have the single scripts of a profile."""
    singles = {name: profile.scripts[name].source for name in (*build.commands(), *build.apart("later"))}
    return Bench(server.host, server.port, singles, {})


def compare(
    bench: Bench,
    name: str,
    made: list[Command],
    found: list[Call],
    merged: Merged,
    profile: Mapping[str, Script] | None = None,
) -> tuple[str, ...]:
    """Run calls one by one and at once, with the scripts of a profile; return the differences."""
    bench.reset(made, strict=False)
    singles = _one_by_one(bench, found)
    several = at_once(bench, found, merged, OUR_SCRIPTS if profile is None else profile)
    texts = []
    for at, (call, (one, added), other) in enumerate(zip(found, singles, several, strict=False)):
        if not _equal(call, one, other):
            texts.append(f"reply {at} of {call.name}: {one!r}, at once {other!r}")
        if added is not None and isinstance(one, bytes) and added == _gave_way(other):
            texts.append(f"reply {at} of {call.name}: {'added' if added else 'not added'}, at once {other!r}")
    if len(singles) != len(several):
        texts.append(f"{len(singles)} replies, at once {len(several)}")
    texts += differences(bench.state(0), bench.state(1))
    return tuple(f"{name}: {text}" for text in texts)


def singly(bench: Bench, name: str, made: list[Command], found: list[Call]) -> tuple[str, ...]:
    """Run calls one by one with BullMQ's scripts and with ours; return the differences."""
    bench.reset(made, strict=False)
    texts = [f"{name}, alone: {text}" for call in found for text in bench.call(call).differences]
    return tuple(texts)


def _one_by_one(bench: Bench, found: Sequence[Call]) -> list[tuple[Any, bool | None]]:
    """Return what each call was answered, and for adds whether the job was added, where the events tell."""
    replies: list[tuple[Any, bool | None]] = []
    bench.wire.run([("SELECT", bench.databases[0])])
    for call in found:
        bench.tally.calls += 1
        eval_ = ("EVALSHA", bench.hash_of(call.name), len(call.keys), *call.keys, *call.args)
        if call.name not in calls.ADD_KEYS:
            reply, added = bench.wire.run([eval_])[0], None
        else:
            reply, added = _added(bench, eval_)
        replies.append((reply, added))
        # calls that fetch end with the first that gives no job
        if call.name == "moveToActive" and isinstance(reply, list) and not isinstance(reply[0], list):
            break
    return replies


def _added(bench: Bench, eval_: Command) -> tuple[Any, bool | None]:
    """Run an add; tell from its events whether the job was stored, or None where they were trimmed or cannot be."""
    events = f"{Q}events"
    last, size_before, reply, size = bench.wire.run(
        [("XREVRANGE", events, "+", "-", "COUNT", 1), ("XLEN", events), eval_, ("XLEN", events)]
    )
    if isinstance(last, Exception) or isinstance(size, Exception):
        return reply, None
    new = bench.wire.run([("XRANGE", events, b"(" + last[0][0] if last else "-", "+")])[0]
    if not size or size - size_before != len(new):
        # A cap of 0 leaves none.
        return reply, None
    return reply, any(fields[:2] == [b"event", b"added"] for _, fields in new)


def _gave_way(reply: Any) -> bool:
    """specs/08-batches.md#gives-way"""
    return isinstance(reply, list) and len(reply) == 2 and reply[1] == 0


def at_once(bench: Bench, found: Sequence[Call], merged: Merged, profile: Mapping[str, Script]) -> list[Any]:
    """Run calls at once on our side; return what each was answered."""
    replies: list[Any] = []
    bench.wire.run([("SELECT", bench.databases[1])])
    while len(replies) < len(found):
        built = merged(found[len(replies) :])
        assert built.script is not None
        source = profile[built.name].source
        running = ("LLEN", f"{Q}active")
        before, reply, after = bench.wire.run(
            [running, ("EVAL", source, len(built.keys), *built.keys, *built.args), running]
        )
        if built.name == "fetchMany" and isinstance(reply, Exception):
            # the first job of the call was refused
            replies.append(reply)
            continue
        assert isinstance(reply, list), (built, reply)
        assert reply
        if built.name == "fetchMany":
            replies += reply
            if not isinstance(reply[-1][0], (list, bytes)):
                break
            if after - before > len(reply):
                # one more was taken and refused, which the call does not tell: specs/08-batches.md#fetch-many
                replies.append(REFUSED)
        else:
            replies += built.decode(reply)
    return replies


def _equal(call: Call, one: Any, other: Any) -> bool:
    if other is REFUSED:
        return isinstance(one, Exception)
    if isinstance(other, ServerError):
        return isinstance(one, Exception) and error_class(one) == error_class(other)
    if call.name in calls.ADD_KEYS and _gave_way(other):
        other = other[0]
    return replies_equal(call.name, one, _in_full(other, str(call.args[1])))


def _in_full(reply: Any, now: str) -> Any:
    """Return a short answer, specs/08-batches.md#short-answer, as moveToActive gives it."""
    if not isinstance(reply, list) or len(reply) != 7:
        return reply
    *values, job_id = reply
    names = (b"name", b"data", b"opts", b"timestamp", b"delay", b"priority", b"processedOn", b"ats")
    pairs = zip(names, [*values, now.encode(), b"1"], strict=True)
    return [[text for pair in pairs for text in pair], job_id, 0, 0]


def _built(call: Call) -> Built[Any]:
    return Built(call.name, tuple(map(str, call.keys)), call.args, lambda reply: reply)  # type: ignore[arg-type]


def _add_built(call: Call) -> Built[Any]:
    built = _built(call)
    return replace(built, merge=Merge(ADDS, Q, 0, (ADD_KINDS[call.name],)))


def _finish(call: Call) -> Built[Any]:
    packed = bytes(call.args[7])  # type: ignore[arg-type]
    token = next(iter(msgspec.msgpack.decode(packed).values()))
    rest = packed[len(PackedFinish(token, b"").packed()) :]
    assert PackedFinish(token, rest).packed() == packed
    built = _built(call)
    return replace(built, merge=Merge(OUTCOMES, Q, 0, (token, rest)))


def of_profile(server: servers.Server, profile: Profile, seed: int, count: int) -> Iterator[tuple[str, ...]]:
    """Compare the calls of a profile with its single ones: the edges, and states of both kinds."""
    with bench_of(server, profile) as bench:
        later = (later_state(seed, number) for number in range(count))
        flows = (flow_state(seed, number) for number in range(count if profile.switches.deferred_parent_release else 0))
        for each in itertools.chain(edges(), (state(seed, number) for number in range(count)), later, flows):
            yield compare(bench, *each, profile.scripts)


def of_strict(server: servers.Server, seed: int, count: int) -> Iterator[tuple[str, ...]]:
    """Compare the calls of `strict` with BullMQ's scripts: the edges, and states."""
    with scripts.bench(server) as bench:
        for edge in edges():
            yield (*singly(bench, *edge[:3]), *compare(bench, *edge))
        for number in range(count):
            yield run(bench, seed, number)


def main() -> int:
    """Run and print; return the exit status."""
    count, seed = int(os.environ.get("COUNT") or 2500), int(os.environ.get("SEED") or 0)
    label = os.environ.get("PROFILE", "strict")
    total = 0
    with servers.start() as server:
        profile = getattr(profile_module, profiles.CONSTANTS[label])
        each = of_strict(server, seed, count) if label == "strict" else of_profile(server, profile, seed, count)
        for texts in each:
            total += len(texts)
            sys.stdout.writelines(f"{text}\n" for text in texts)
            sys.stdout.flush()
    sys.stdout.write(f"batches: {label}, {count} states, seed {seed}, {server.kind}, {total} differences\n")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
