"""Whole states and calls for what came after 5.62.0, beside those of `states.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from tests.oracle import calls, later_calls, states
from tests.oracle.calls import Arg, Call, Command, P, Q, T, pack
from tests.oracle.layouts import whole
from tests.oracle.sequences import opened
from tests.oracle.states import LISTS, PLAIN, SETS, Draw, fields, job, link, queue, settle, spoil

Made = tuple[list[Command], list[Call]]


def kept(draw: Draw, base: str, ids: Sequence[str], dedup_id: str) -> list[Command]:
    """A job that is kept until the active one ends."""
    options: dict[str, Any] = {"attempts": draw.pick(0, 3), "de": {"id": dedup_id, "keepLastIfActive": True}}
    if draw.chance(0.3):
        options["de"] = draw.pick({"id": dedup_id, "ttl": 600_000}, {"id": dedup_id}, {"id": "other"})
    for name, values in (("delay", (1000, 5, 0, -5)), ("priority", (1, 3, 0, -2)), ("lifo", (True, False))):
        if draw.chance(0.25):
            options[name] = draw.pick(*values)
    if draw.odd(0.1):
        options = draw.pick({}, {"de": 5}, {"delay": "x"}, {"priority": "5"}, {"de": {"ttl": "x"}})
    found = {"name": "kept", "data": '{"k":1}', "opts": json.dumps(options)}
    if draw.chance(0.8):
        found["jid"] = draw.pick("77", "new1", *ids)
    if draw.chance(0.3):
        found |= {
            "pk": f"{P}P",
            "pd": json.dumps({"id": "P", "queueKey": P[:-1], "fpof": True}),
            "pdk": f"{P}P:dependencies",
        }
    if draw.chance(0.15):
        found["rjk"] = "s"
    if draw.odd(0.15):
        found.pop(draw.pick(*found))
    if draw.odd(0.05):
        found["opts"] = draw.pick("{bad", "", "[]", "5", '"x"')
    return [("DEL", f"{base}dn:{dedup_id}"), *fields(f"{base}dn:{dedup_id}", found)]


def widened(draw: Draw, call: Call) -> Call:
    """Give a call what later versions take."""
    call = whole(call)
    if call.name in calls.ADD_KEYS and draw.chance(0.5):
        head = opened(call.args[0])
        if isinstance(head, list) and len(head) == 9:
            call = later_calls.deferring(call, draw.pick("1", 1, True, 0, ""))
    elif call.name == "moveToFinished" and draw.chance(0.5):
        options = opened(call.args[7])
        keep = options.get("keepJobs") if isinstance(options, dict) else None
        if isinstance(options, dict) and isinstance(keep, dict):
            limit = draw.pick(1, 2, 3, 1000, 5) if not draw.odd(0.15) else draw.pick(0, -1, "2", 1.5, None, False, "x")
            call = call.with_arg(7, pack({**options, "keepJobs": {**keep, "limit": limit}}))
    elif call.name == "moveToDelayed" and draw.chance(0.7):
        packed = pack(states.fetch_options(draw))
        call = call.with_arg(7, draw.pick("1", "1", "1", "0", "")).with_arg(8, states.junk(draw, packed))
    elif call.name == "reprocessJob":
        call = later_calls.resetting(call, draw.pick("0", "1", ""), draw.pick("0", "1", ""))
    elif call.name == "pause":
        call = call.with_arg(1, draw.pick("1", "1", "0", "", "x"))
    elif call.name == "getCounts" and draw.chance(0.3):
        cut = draw.pick(T, T + 1, T + 500, 0, -5, "x", "1e3", "", str(T + 0.5))
        call = Call(call.name, call.keys, (str(cut), *call.args))
    return call


def deduplicating(draw: Draw) -> Made:
    """Adds with a holder that is active, delayed, gone or something else, and a job kept from before."""
    ids = draw.some(PLAIN, 2, 4, 6)
    made = queue(draw, Q, ids) + queue(draw, P, draw.some(PLAIN, 0, 2))
    made += job(draw, P, "P")
    owner = draw.pick(*ids, "gone")
    for dedup_id in ("d", "d2"):
        if draw.chance(0.7):
            made.append(("SET", f"{Q}de:{dedup_id}", owner, *draw.pick((), (), ("PX", 400_000))))
        if draw.chance(0.3):
            made += kept(draw, Q, ids, dedup_id)
    if owner != "gone":
        made += settle(draw, Q, owner, "active", "active", "active", "delayed", "delayed", "wait", "completed")
        if draw.chance(0.9):
            made += job(draw, Q, owner)
    made += spoil(draw, ids)
    return made, [_deduplicated(draw, ids) for _ in range(draw.pick(1, 2, 3))]


def _deduplicated(draw: Draw, ids: Sequence[str]) -> Call:
    call = states.add_call(draw, ids, [(P, "P"), (Q, ids[0])])
    options = opened(call.args[2])
    if not isinstance(options, dict) or "de" in options:
        return call
    rule = states.dedup(draw)
    call = call.with_arg(2, pack({**options, "de": rule}))
    head = opened(call.args[0])
    if isinstance(head, list) and len(head) == 9 and isinstance(rule.get("id"), str):
        head[8] = f"{head[0]}de:{rule['id']}"
        call = call.with_arg(0, pack(head))
    return call


def ending(draw: Draw) -> Made:
    """Ends of jobs with a deduplication id for which another job is kept."""
    made, found = states.finishing(draw)
    id = str(found[0].args[0])
    which = draw.pick("d", "d", "d2")
    made += fields(f"{Q}{id}", {"deid": which})
    if draw.chance(0.5):
        made += kept(draw, Q, [id, "5"], which)
    if draw.chance(0.7):
        made.append(("SET", f"{Q}de:{which}", draw.pick(id, id, "77"), *draw.pick((), (), ("PX", 400_000))))
    made += spoil(draw, [id, "77"])
    return made, found


def removing(draw: Draw) -> Made:
    """Removals of holders for which another job is kept."""
    made, found = states.cleaning(draw)
    for dedup_id in ("d", "d2"):
        if draw.chance(0.6):
            made += kept(draw, Q, ["1"], dedup_id)
    return made, found


def retrying(draw: Draw) -> Made:
    """Finished children that are run again, one or many."""
    ids = draw.some(PLAIN, 3, 5)
    made = queue(draw, Q, ids) + job(draw, P, "P")
    state = draw.pick("failed", "completed")
    for id in ids:
        made += job(draw, Q, id) + settle(draw, Q, id, state, state, state, "wait")
        if draw.chance(0.8):
            made += link(draw, (P, "P"), Q + id)
            if draw.chance(0.8):
                made.append(("SREM", f"{P}P:dependencies", Q + id))
                kind = draw.pick("processed", "failed", "unsuccessful")
                key = f"{P}P:{kind}"
                made.append(("ZADD", key, T, Q + id) if kind == "unsuccessful" else ("HSET", key, Q + id, "1"))
    made += spoil(draw, ids)
    push = draw.pick("LPUSH", "RPUSH")
    many = calls.move_jobs_to_wait(
        Q, state=state, count=draw.pick("1", "2", "1000"), until=draw.pick(T, T + 10, "+inf")
    )
    return made, [draw.pick(calls.reprocess_job(Q, draw.pick(*ids), state=state, push=push), many)]


def putting_off(draw: Draw) -> Made:
    """Jobs that are put off while others wait, are due, limited or held."""
    ids = draw.some(PLAIN, 3, 5, 7)
    made = queue(draw, Q, ids)
    id = ids[0]
    if draw.chance(0.95):
        made += job(draw, Q, id)
    made += settle(draw, Q, id, "active")
    made.append(("SET", f"{Q}{id}:lock", "tk", "PX", 300_000))
    if draw.chance(0.5):
        made.append(("HDEL", f"{Q}meta", "paused", "concurrency"))
    if draw.chance(0.2):
        made.append((draw.pick("LPUSH", "RPUSH"), f"{Q}wait", draw.pick("0:5", "0:0")))
    for other in ids[1:]:
        if draw.chance(0.3):
            made += fields(Q + other, {"defa": "zz"})
    made += spoil(draw, ids)
    delay = states.number(draw, 0, 1, 5, 1000, 1000)
    return made, [calls.move_to_delayed(Q, id, at=states.moment(draw), delay=delay, skip=draw.pick("0", "1"))]


def rescheduling(draw: Draw) -> Made:
    """Schedulers whose distance, offset or pattern changes, on queues in any state of pause."""
    make = draw.pick(states.upserting, states.upserting, states.scheduling)
    made, found = make(draw)
    at = {"addJobScheduler": (2, 5), "updateJobScheduler": (1, 3)}.get(found[0].name)
    if at is None:
        return made, found
    scheduler = str(found[0].args[at[0]])
    record = f"{Q}repeat:{scheduler}"
    schedule = opened(found[0].args[1]) if found[0].name == "addJobScheduler" else None
    if isinstance(schedule, dict) and isinstance(schedule.get("every"), int | float):
        every = schedule["every"]
        if draw.chance(0.8):
            made += fields(record, {"every": draw.pick(f"{every:.17g}", f"{every:.17g}", "1001", "x")})
        if draw.chance(0.4):
            schedule["offset"] = draw.pick(1, 0, 900, 59_999, 1.5, -3)
            found = [found[0].with_arg(1, pack(schedule)), *found[1:]]
        now = msgspec.convert(found[0].args[6], float, strict=False) if str(found[0].args[6]).isdigit() else T
        if draw.chance(0.3) and every > 0:
            start = draw.pick(now, now, now // every * every + every)
            for step in range(draw.pick(1, 2, 31, 32, 33, 34)):
                made += fields(f"{record}:{start + step * every:.14g}", {"name": "taken"})
    if draw.chance(0.3):
        made += fields(f"{Q}meta", {"paused": "1"})
    options = opened(found[0].args[at[1]])
    if isinstance(options, dict) and draw.chance(0.3):
        options["priority"] = draw.pick(-1, 0, 3, 1.5)
        found = [found[0].with_arg(at[1], pack(options)), *found[1:]]
    return made, found


def stalling(draw: Draw) -> Made:
    """Stalled checks of jobs whose scheduler lives, is gone, or is an old repeatable."""
    made, found = states.stalling(draw)
    for id in ("1", "2", "3", "a:b:c"):
        if draw.chance(0.5):
            made += fields(Q + id, {"rjk": draw.pick("s", "s", "old", "gone", "")})
            made += fields(Q + id, {"stc": draw.pick("1", "2", "5")})
    if draw.chance(0.5):
        made += fields(f"{Q}repeat:s", {"name": "n"})
    if draw.chance(0.5):
        made.append(("ZADD", f"{Q}repeat", T, "old"))
    return made, found


def reading(draw: Draw) -> Made:
    """The commands that came after 5.62.0."""
    ids = [*draw.some(PLAIN, 3, 5, 8), *draw.pick((), ("a:b:c",))]
    made = queue(draw, Q, ids)
    for dedup_id in ("d", "d2"):
        if draw.chance(0.4):
            made.append(("SET", f"{Q}de:{dedup_id}", draw.pick(*ids)))
    if draw.chance(0.3):
        made.append(("RPUSH", Q + draw.pick("wait", "paused"), draw.pick("0:1", "0:")))
    made += spoil(draw, ids)
    makers: tuple[Callable[[], Call], ...] = (
        lambda: _read_jobs(draw),
        lambda: _read_jobs(draw),
        lambda: _read_jobs(draw),
        lambda: _sweep(draw, ids),
        lambda: _release(draw, made, ids),
        lambda: _release(draw, made, ids),
        lambda: later_calls.remove_deduplication_key(id=draw.pick(*ids)),
        lambda: calls.get_counts(Q, *draw.some((*LISTS, *SETS), 1, 4)),
        lambda: calls.get_counts_per_priority(Q, "0", "1", "3"),
    )
    return made, [draw.random.choice(makers)() for _ in range(draw.pick(1, 2, 3))]


def _position(draw: Draw, *usual: int) -> Arg:
    return str(draw.pick("", "x", "1.5") if draw.odd(0.05) else draw.pick(*usual))


def _read_jobs(draw: Draw) -> Call:
    names = draw.some((*LISTS, *SETS), 1, 2, 4)
    start, end = _position(draw, 0, 0, 1, 2, 5, -1, -2), _position(draw, -1, 0, 1, 2, 4, 9, -2)
    rounds = _position(draw, 5, 5, 1, 0, 2)
    return later_calls.get_jobs(Q, start, end, *names, ascending=draw.pick("0", "1"), rounds=rounds)


def _sweep(draw: Draw, ids: Sequence[str]) -> Call:
    names = draw.some((*LISTS, *SETS, "stalled", "events", "meta", "id"), 3, 6, 10)
    parts = draw.some(("logs", "dependencies", "processed", "failed", "unsuccessful", "lock"), 0, 3, 6)
    return later_calls.remove_orphans(
        Q, tuple(names), tuple(parts), *draw.some([*ids, "gone", "old", "metrics"], 0, 2, 5)
    )


def _release(draw: Draw, made: list[Command], ids: Sequence[str]) -> Call:
    base, id = draw.pick((P, "P"), (Q, ids[0]))
    made += job(draw, base, id)
    made += settle(draw, base, id, "waiting-children", "waiting-children", "wait")
    if draw.chance(0.6):
        made.append(("DEL", f"{base}{id}:dependencies"))
    if draw.chance(0.3):
        made += fields(base + id, {"flowAttachmentFailed": draw.pick("1", "1", "")})
    return later_calls.release_parent(base, id, at=states.moment(draw))


def pausing(draw: Draw) -> Made:
    """Pauses and resumes, with one list or both, long ones now and then, and what puts jobs in line meanwhile."""
    ids = draw.some(PLAIN, 2, 4, 8)
    made = queue(draw, Q, ids)
    made += [("DEL", f"{Q}wait"), ("DEL", f"{Q}paused")] if draw.chance(0.5) else []
    long = draw.chance(0.02)
    for name in ("wait", "paused"):
        if draw.chance(0.6):
            count = draw.pick(6999, 7000, 7001, 14_001) if long else draw.pick(1, 2, 3)
            made.append(("RPUSH", Q + name, *[f"{name[0]}{number}" for number in range(count)]))
    if draw.chance(0.5):
        made += fields(f"{Q}meta", {"paused": "1"})
    made += spoil(draw, ids)
    makers: tuple[Callable[[], Call], ...] = (
        lambda: calls.pause(Q, on=True),
        lambda: calls.pause(Q, on=False),
        lambda: calls.pause(Q, on=False),
        lambda: states.add_call(draw, ids, [(Q, ids[0])]),
        lambda: calls.promote(Q, draw.pick(*ids)),
        lambda: calls.change_priority(Q, draw.pick(*ids), priority=draw.pick("0", "3"), lifo=draw.pick("0", "1")),
        lambda: calls.reprocess_job(Q, draw.pick(*ids), state=draw.pick("failed", "completed")),
        lambda: calls.obliterate(Q, count=draw.pick("1", "2", "1000"), force="force"),
        lambda: calls.drain(Q, delayed="1"),
        lambda: calls.get_counts_per_priority(Q, "0", "1"),
    )
    return made, [draw.random.choice(makers)() for _ in range(draw.pick(1, 2, 4))]


GENERATORS: tuple[tuple[Callable[[Draw], Made], float], ...] = (
    *states.GENERATORS,
    (deduplicating, 8),
    (ending, 5),
    (removing, 3),
    (retrying, 4),
    (putting_off, 4),
    (rescheduling, 6),
    (stalling, 2),
    (reading, 4),
    (pausing, 4),
)
"""Every generator of a state with calls, and how often it comes."""


def state(seed: int, number: int) -> tuple[str, list[Command], list[Call]]:
    """Give one state with its calls, and its name."""
    random = Random(f"later/{seed}/{number}")
    generators, weights = zip(*GENERATORS, strict=True)
    generator = random.choices(generators, weights)[0]
    draw = Draw(random, later=True)
    made, found = generator(draw)
    return f"{generator.__name__} later state {seed}/{number}", made, [widened(draw, call) for call in found]
