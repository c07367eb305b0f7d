"""What the oracle makes of a mistake: a short case that can be pasted, and that shows the mistake on its own."""

from __future__ import annotations

import pytest

from tests.oracle import cases, report, scripts, sequences, states
from tests.oracle.calls import Call, Q, T, add, move_to_active, move_to_finished, pack, promote
from tests.oracle.cases import Case, case
from tests.oracle.harness import Bench
from tests.oracle.sequences import Found, lesser, opened, replay, shrink
from tests.oracle.test_mutants import MUTANTS, mutated

LONGEST = 10
SEQUENCES = 400

PLANTED = (
    "retries are exhausted too late",
    "a parent with one pending child is released",
    "promotion keeps the delay",
    "due jobs on the wrong end",
    "retrying counts no attempt",
)


def pasted(text: str) -> Case:
    """Run the text as `regressions.py` would."""
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    made: tuple[Case] = eval(f"({code})", {"Call": Call, "case": case, "pack": pack})
    return made[0]


def first_found(bench: Bench) -> Found:
    for number in range(SEQUENCES):
        found = sequences.run(bench, 1, number) or states.run(bench, 1, number)
        if found is not None:
            return found
    raise AssertionError("the mistake was not found")


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_gives_a_short_case_that_can_be_pasted(counting: Bench, name: str) -> None:
    right = scripts.ours()
    counting.replace({**right, **mutated(*MUTANTS[name])})
    found = first_found(counting)
    text = report.found(found)
    assert len(found.steps) <= LONGEST, text
    made = pasted(text)
    assert cases.run(counting, made) == list(found.differences)
    assert all(f"# differs: {each}" in text for each in found.differences)
    counting.replace(right)
    assert cases.run(counting, made) == []


def test_steps_and_parts_that_are_not_needed_are_left_out(counting: Bench) -> None:
    right = scripts.ours()
    counting.replace({**right, "promote": right["promote"].replace("'prev', 'delayed'", "'prev', 'late'")})
    steps = (
        add("addStandardJob"),
        ("HSET", f"{Q}a", "name", "n", "data", "{}", "priority", "0", "delay", "5"),
        ("ZADD", f"{Q}delayed", T, "a", T + 1, "b"),
        move_to_active(),
        move_to_finished(),
        ("SET", f"{Q}x", "1", "PX", 100_000),
        promote(id="a"),
    )
    found = shrink(counting, Found("planted", replay(counting, steps), steps))
    counting.replace(right)
    assert found.steps == (("ZADD", f"{Q}delayed", T, "a"), promote(id="a"))


def test_parts_of_a_step() -> None:
    assert list(lesser(("HSET", "k", "a", "1", "b", "2"))) == [("HSET", "k", "b", "2"), ("HSET", "k", "a", "1")]
    assert list(lesser(("HSET", "k", "a", "1"))) == []
    assert list(lesser(("SET", "k", "v", "PX", 5))) == [("SET", "k", "v")]
    assert list(lesser(("SET", "k", "v"))) == []
    assert list(lesser(("DEL", "k", "l"))) == []
    call = Call("updateData", ("k",), ("x", pack({"a": 1, "b": 2})))
    assert [opened(each.args[1]) for each in lesser(call) if isinstance(each, Call)] == [{"b": 2}, {"a": 1}]
    assert opened(b"\xc1") is opened(b"") is opened("text") is None
    assert opened(b"\xda\x00\x01a") is None
