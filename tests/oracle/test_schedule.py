"""Schedulers that live long: each run creates the next, early, in time, late, or after an outage."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import settings

from bullmq_protocol.command import Command
from bullmq_protocol.commands.fetching import move_to_active
from bullmq_protocol.common.keys import QueueKeys
from bullmq_protocol.model.job import NewJob
from bullmq_protocol.model.schedule import RepeatOptions, prepare_scheduler
from bullmq_protocol.operations.upsert_scheduler import upsert_scheduler
from bullmq_protocol.worker.advance import Schedule, advance, schedule_of
from tests.oracle import calls
from tests.oracle.calls import Q, T
from tests.oracle.harness import Bench, Reply
from tests.support.cron_parser import ask_node

R = TypeVar("R")

RUNS, HOUR = (300, 3600) if settings().max_examples >= 500 else (100, 250)
"""Runs of a rule, and of the pattern: in the long profile as many as an hour has seconds."""
DAY_MS = 86_400_000


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


@pytest.mark.parametrize(
    ("repeat", "start", "runs"),
    [
        (RepeatOptions(every=1000), T, RUNS),
        (RepeatOptions(pattern="*/7 * * * * *", tz="Europe/Berlin"), T, HOUR),
        # Six runs in each night, over the end of summer time there, in the fourth.
        (RepeatOptions(pattern="*/30 1-3 * * *", tz="Australia/Lord_Howe"), T + 140 * DAY_MS, 60),
    ],
    ids=str,
)
def test_successive_runs_as_our_worker_asks_for_them(
    bench: Bench, repeat: RepeatOptions, start: int, runs: int
) -> None:
    """The worker's commands through both scripts, and each slot of a pattern against cron-parser."""
    keys, random = QueueKeys.of("q"), Random(1)
    bench.reset()

    def perform(command: Command[R]) -> R:
        return command.decode(call(bench, calls.Call(command.name, command.keys, command.args)))

    scheduler = prepare_scheduler(keys, "s", repeat, NewJob("n", {"a": 1}), now_ms=start, zones=ZoneInfo)
    assert scheduler is not None
    command: Any = next(upsert_scheduler(keys, scheduler))
    now, due, asked, slots = start, start + perform(command).delay_ms, [], []
    for run in range(runs):
        now = max(now, due) + random.choice((0, 0, 0, 1, 3, 500, 1000, 5001))
        bench.plain([("DEL", f"{Q}events")] if run % 10 == 0 else [])
        job = perform(move_to_active(keys, token="tk", lock_ms=30_000, now=now)).job
        assert job is not None and schedule_of(job) == Schedule("s")
        step = advance(keys, job, Schedule("s"), now=now, zones=ZoneInfo)
        assert step is not None
        following = perform(step.command)
        asked.append({"pattern": repeat.pattern, "tz": repeat.tz, "at": now, "count": 1})
        slots.append(int(following.rsplit(":", 1)[1]))
        due = slots[-1]
        call(bench, calls.move_to_finished(id=job.id, at=now, keepJobs={"count": 0}))
    assert len(set(slots)) == runs
    if repeat.pattern:
        assert [{"runs": [slot]} for slot in slots] == ask_node({}, asked)["results"]
