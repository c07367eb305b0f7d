"""Schedulers that live long: each run creates the next, early, in time, late, or after an outage."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.oracle import calls
from tests.oracle.calls import Q, T
from tests.oracle.harness import Bench, Reply

RUNS = 3600


def call(bench: Bench, each: calls.Call) -> Reply:
    result = bench.call(each)
    assert result.differences == ()
    return result.reply


@pytest.mark.parametrize("every", [1000, 7, 60_000])
def test_successive_runs_of_an_interval(bench: Bench, every: int) -> None:
    random = Random(every)
    bench.reset()
    options: dict[str, Any] = {"repeat": {"every": every, "count": 1}}
    reply = call(bench, calls.add_scheduler(schedule={"name": "n", "every": every}, options=options))
    due, slots = T + reply[1], set()
    for run in range(RUNS // (1 if every == 1000 else 10)):
        late = random.choice((0, 0, 0, 1, 3, every // 2, every, 5 * every + 1))
        now = due + late
        # before the stream is long enough to be trimmed, which depends on the moment
        bench.plain([("DEL", f"{Q}events")] if run % 10 == 0 else [])
        fetched = call(bench, calls.move_to_active(at=now))
        producer = fetched[1].decode()
        slots.add(producer)
        options["repeat"]["count"] = run + 2
        following = call(bench, calls.update_scheduler(options=options, at=now, producer=producer))
        call(bench, calls.move_to_finished(id=producer, at=now, keepJobs={"count": 0}))
        due = max(int(following.rsplit(b":", 1)[1]), now)
        assert following.decode() not in slots
    assert len(slots) == run + 1
