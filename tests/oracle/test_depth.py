"""Families of any depth: equal to BullMQ's scripts as far as those come, and done to the end beyond."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle import calls, scripts
from tests.oracle.calls import Call, Command, P, Q, T
from tests.oracle.harness import Bench

DEEPER = {"dependencies": 11_000, "processed": 11_000, "failed": 11_000, "unsuccessful": 11_000, "upward": 21_000}
"""Beyond what BullMQ's scripts come to."""


def member(base: str, id: str, **fields: str) -> Command:
    return ("HSET", base + id, *[part for item in ({"name": "n"} | fields).items() for part in item])


def line(depth: int, kind: str) -> list[Command]:
    """Jobs 0, 1, ..., each the only child of the one before: pending, or finished in one of three ways.

    Where BullMQ's scripts do not come to the end, parents do not wait: to find each again in a list takes too long.
    """
    made: list[Command] = [("HSET", f"{Q}meta", "paused", 1), member(Q, "0")]
    for number in range(1, depth):
        parent, child = f"{Q}{number - 1}", f"{Q}{number}"
        made.append(member(Q, str(number), parentKey=parent, deid=f"d{number}"))
        made.append(("SET", f"{Q}de:d{number}", number))
        if kind == "unsuccessful":
            made.append(("ZADD", f"{parent}:{kind}", 1, child))
        elif kind in ("dependencies", "upward"):
            made.append(("SADD", f"{parent}:dependencies", child))
        else:
            made.append(("HSET", f"{parent}:{kind}", child, "1"))
        if kind == "upward" or depth <= 1000:
            made.append(("ZADD", f"{Q}waiting-children", number, number - 1))
    made.append(("RPUSH", f"{Q}paused", depth - 1))
    made.append(("ZADD", f"{Q}completed", 1, depth - 1))
    return made


WAYS: dict[str, tuple[str, Callable[[], Call]]] = {
    "remove the first, all pending": ("dependencies", lambda: calls.remove_job(id="0")),
    "remove the first, all processed": ("processed", lambda: calls.remove_job(id="0")),
    "remove the first, all ignored": ("failed", lambda: calls.remove_job(id="0")),
    "remove the first, all failed": ("unsuccessful", lambda: calls.remove_job(id="0")),
    "remove children": ("dependencies", lambda: calls.remove_unprocessed_children(Q, "0")),
    "drain the last": ("upward", lambda: calls.drain(Q)),
    "clean the last": ("upward", lambda: calls.clean(Q, state="completed", until=T, limit="0")),
    "obliterate the last": ("upward", lambda: calls.obliterate(Q, count="1000", force="force")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("depth", [2, 3, 30, 1000])
def test_a_line_is_undone_as_by_bullmq(bench: Bench, way: str, depth: int) -> None:
    kind, call = WAYS[way]
    bench.reset(line(depth, kind))
    result = bench.call(call())
    assert not isinstance(result.reply, Exception)
    assert result.differences == ()


@pytest.fixture
def deep(counting: Bench) -> Bench:
    """Give a bench on one server: how deep calls of functions go is Lua's affair, which is the same in all of them."""
    counting.replace(scripts.ours())
    return counting


@pytest.mark.parametrize("way", WAYS)
def test_a_deep_line_is_undone_to_its_end(deep: Bench, way: str) -> None:
    kind, call = WAYS[way]
    deep.reset(line(DEEPER[kind], kind))
    assert isinstance(deep.call_one(0, call()), Exception), "BullMQ's script comes as far, too: make it deeper"
    assert not isinstance(deep.call_one(1, call()), Exception)
    assert jobs_left(deep) == ([f"{Q}0".encode()] if way == "remove children" else [])


def test_a_lock_far_below_refuses(deep: Bench) -> None:
    bench, depth = deep, DEEPER["dependencies"]
    bench.reset([*line(depth, "dependencies"), ("SET", f"{Q}{depth - 1}:lock", "tk")])
    before = bench.wire.run([("DBSIZE",)])
    assert bench.call_one(1, calls.remove_job(id="0")) == 0
    assert bench.wire.run([("DBSIZE",)]) == before


def jobs_left(bench: Bench) -> list[bytes]:
    """Return the keys of our side's job hashes."""
    return [name for name in bench.wire.run([("KEYS", f"{Q}[0-9]*")])[0] if name.rpartition(b":")[2].isdigit()]


def forest(random: Random, depth: int, *, loops: bool) -> list[Command]:
    """A family in two queues: each job a child, of any kind, of one of the last few before it, or of several."""
    bases = [random.choice((Q, Q, P)) for _ in range(depth)]
    made: list[Command] = [member(bases[0], "0")]
    for number in range(1, depth):
        child = f"{bases[number]}{number}"
        made.append(member(bases[number], str(number)))
        for _ in range(random.choice((1, 1, 1, 2))):
            above = random.randrange(max(0, number - random.choice((1, 1, 2, 5))), number)
            made += tie(random, f"{bases[above]}{above}", child)
        where = random.choice(("waiting-children", "wait", "delayed", "failed", "completed", "active", ""))
        if where in ("wait", "active"):
            made += [("RPUSH", bases[number] + where, number)] * random.choice((1, 1, 2))
        elif where:
            made.append(("ZADD", bases[number] + where, 5, number))
    if loops:
        low, high = sorted((random.randrange(depth), random.randrange(depth)))
        made += tie(random, f"{bases[high]}{high}", f"{bases[low]}{low}")
    return made


def tie(random: Random, parent: str, child: str) -> list[Command]:
    kind = random.choice(("dependencies",) * 5 + ("processed", "failed", "unsuccessful"))
    tied: list[Command] = [("HSET", child, "parentKey", parent)]
    if kind == "dependencies":
        return [*tied, ("SADD", f"{parent}:{kind}", child)]
    return [
        *tied,
        ("ZADD", f"{parent}:{kind}", 1, child) if kind == "unsuccessful" else ("HSET", f"{parent}:{kind}", child, "1"),
    ]


@settings(deadline=None)
@given(seed=st.integers(0, 10**9), depth=st.integers(1, 40), loops=st.booleans())
def test_a_family_is_undone_as_by_bullmq(bench: Bench, seed: int, depth: int, loops: bool) -> None:
    random = Random(seed)
    made = forest(random, depth, loops=loops)
    made += [("HSET", f"{Q}meta", "paused", 1)] if random.random() < 0.3 else []
    id = str(random.randrange(depth))
    call = random.choice(
        [
            calls.remove_job(id=id),
            calls.remove_job(id="0"),
            calls.remove_unprocessed_children(Q, id),
            calls.drain(Q, delayed="1"),
            calls.clean(Q, state=random.choice(("wait", "completed", "failed", "delayed")), until=T, limit="0"),
            calls.obliterate(Q, count="1000", force="force"),
        ]
    )
    bench.reset(made)
    assert bench.call(call).differences == ()
