"""Several jobs in one call of ours against the same jobs one by one with BullMQ's scripts: replies and whole states.

States and calls are random and seeded, like those of `states`, but no key has a wrong type: what a call for several
jobs postpones would be refused at another point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from bullmq_protocol._lua import OUR_SCRIPTS
from bullmq_protocol.command import Command as Built
from bullmq_protocol.commands import batches
from bullmq_protocol.commands._shared import Finish, Limiter
from bullmq_protocol.commands.finishing import PackedFinish
from bullmq_protocol.errors import ServerError
from bullmq_protocol.keys import QueueKeys
from tests.oracle import calls, states
from tests.oracle.calls import Call, Command, P, Q, T, pack
from tests.oracle.harness import Bench, differences, error_class, replies_equal
from tests.oracle.states import PLAIN, Draw

KEYS = QueueKeys.of("q")
Merged = Callable[[Sequence[Call]], Built[Any]]


class Sound(Draw):
    """A source of states that a client could have left."""

    def odd(self, probability: float) -> bool:
        return False


def plainly(draw: Draw, *, refused: bool) -> list[Command]:
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


def finishing(draw: Draw) -> tuple[list[Command], list[Call], Merged]:
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
        call = states.finish_call(draw, id)
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


def fetching(draw: Draw) -> tuple[list[Command], list[Call], Merged]:
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


def adding(draw: Draw) -> tuple[list[Command], list[Call], Merged]:
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
    kinds = draw.pick(("addStandardJob",), ("addStandardJob", "addDelayedJob"), tuple(calls.ADD_KEYS))
    found: list[Call] = []
    count = draw.pick(1, 2, 4, 8)
    same = draw.chance(0.4)
    while len(found) < count:
        if simple and draw.chance(0.95):
            id = draw.pick(*"abcdefghijklmnopqrstuvwxyz") if own else ""
            id = id if draw.chance(0.85) else draw.pick("", "", "pc", "completed", "id", "9", "a", chosen[0])
            given = draw.pick({}, {"attempts": 3}, {"lifo": True}, {"delay": 5, "priority": 2})
            name = draw.pick("n", "ü")
            found.append(calls.add("addStandardJob", id=id, options=given, at=T + draw.pick(0, 1, 0.5), name=name))
            continue
        call = states.add_call(draw, chosen, parents)
        ours = call.keys[-1] != call.keys[0] and str(call.keys[0]).startswith(Q)
        if call.name == "addParentJob" or call.name not in kinds or not ours:
            continue
        if same and found and found[-1].name == call.name:
            call = call.with_arg(2, found[-1].args[2])
        if draw.chance(0.03):
            call = call.with_arg(draw.pick(0, 2), b"\xc1")
        found.append(call)
    return made, found, _add


GENERATORS = (finishing, finishing, fetching, adding)


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


def _add(some: Sequence[Call]) -> Built[Any]:
    return batches.add_many(KEYS, [_built(call) for call in some])


def run(bench: Bench, seed: int, number: int) -> tuple[str, ...]:
    """Run one state; return the differences."""
    random = Random(f"batch/{seed}/{number}")
    generator = random.choice(GENERATORS)
    return compare(bench, f"{generator.__name__} batch {seed}/{number}", *generator(Sound(random)))


def compare(bench: Bench, name: str, made: list[Command], found: list[Call], merged: Merged) -> tuple[str, ...]:
    """Run calls one by one and at once; return the differences."""
    bench.reset(made, strict=False)
    singles = _one_by_one(bench, found)
    several = _at_once(bench, found, merged)
    texts = []
    for at, (call, one, other) in enumerate(zip(found, singles, several, strict=False)):
        if not _equal(call, one, other):
            texts.append(f"reply {at} of {call.name}: {one!r}, at once {other!r}")
    if len(singles) != len(several):
        texts.append(f"{len(singles)} replies, at once {len(several)}")
    texts += differences(bench.state(0), bench.state(1))
    return tuple(f"{name}: {text}" for text in texts)


def _one_by_one(bench: Bench, found: Sequence[Call]) -> list[Any]:
    replies: list[Any] = []
    bench.wire.run([("SELECT", bench.databases[0])])
    for call in found:
        bench.tally.calls += 1
        reply = bench.wire.run([("EVALSHA", bench.hash_of(call.name), len(call.keys), *call.keys, *call.args)])[0]
        replies.append(reply)
        # calls that fetch end with the first that gives no job
        if call.name == "moveToActive" and isinstance(reply, list) and not isinstance(reply[0], list):
            break
    return replies


def _at_once(bench: Bench, found: Sequence[Call], merged: Merged) -> list[Any]:
    replies: list[Any] = []
    bench.wire.run([("SELECT", bench.databases[1])])
    while len(replies) < len(found):
        built = merged(found[len(replies) :])
        assert built.script is not None
        source = OUR_SCRIPTS[built.name].source
        reply = bench.wire.run([("EVAL", source, len(built.keys), *built.keys, *built.args)])[0]
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
        else:
            replies += built.decode(reply)
    return replies


def _equal(call: Call, one: Any, other: Any) -> bool:
    if isinstance(other, ServerError):
        return isinstance(one, Exception) and error_class(one) == error_class(other)
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


def _finish(call: Call) -> Finish:
    packed = bytes(call.args[7])  # type: ignore[arg-type]
    token = next(iter(msgspec.msgpack.decode(packed).values()))
    rest = packed[len(PackedFinish(token, b"").packed()) :]
    assert PackedFinish(token, rest).packed() == packed
    built = _built(call)
    return Finish(built.name, built.keys, built.args, built.decode, token=token, rest=rest)
