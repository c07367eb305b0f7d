"""Job schedulers and old repeatable jobs: made, advanced, listed and removed by either side."""

import json
import os
from contextlib import ExitStack
from hashlib import md5
from itertools import pairwise
from typing import Any

import pytest
from redis import Redis

from tests.interop import state
from tests.support.programs import ADAPTERS, Program, client, until, worker
from tests.support.servers import Server

pytestmark = pytest.mark.any_python

RULES: dict[str, dict[str, Any]] = {
    "every": {"every": 600, "limit": 6},
    "cron": {"pattern": "* * * * * *", "tz": "Asia/Kolkata", "limit": 4},
}


@pytest.fixture(scope="module", params=RULES)
def all_node(
    request: pytest.FixtureRequest, home: Server, node: Program, raw: "Redis[bytes]"
) -> tuple[dict[str, Any], state.State]:
    rule = RULES[request.param]
    return rule, _work_off(home, node, node, raw, f"iq-{request.param}-node", rule, ("node", "node"))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_we_advance_a_scheduler_and_node_goes_on(
    adapter: str,
    home: Server,
    node: Program,
    raw: "Redis[bytes]",
    all_node: tuple[dict[str, Any], state.State],
    queue: str,
) -> None:
    rule, expected = all_node
    found = _work_off(home, node, node, raw, queue, rule, (adapter, "node"))
    assert state.differences(found, expected, races=("wake", "slot")) == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_node_advances_a_scheduler_of_ours_and_we_go_on(
    adapter: str,
    home: Server,
    node: Program,
    raw: "Redis[bytes]",
    all_node: tuple[dict[str, Any], state.State],
    queue: str,
) -> None:
    rule, expected = all_node
    with client(adapter, home) as ours:
        found = _work_off(home, ours, node, raw, queue, rule, ("node", adapter))
        assert ours.call("schedulers", queue=queue) == node.call("schedulers", queue=queue)
    assert state.differences(found, expected, races=("wake", "slot")) == []


TEMPLATES: list[dict[str, Any]] = [
    {"name": "n", "data": {}},
    {"name": "n", "data": None, "opts": {"backoff": {"type": "fixed", "delay": 500}, "keepLogs": 3}},
    {"name": "größe", "data": {"a": [1, None]}, "opts": {"attempts": 3, "removeOnComplete": {"count": 5}}},
]
LATER_RULES: list[dict[str, Any]] = [
    {"pattern": "0 0 1 1 *", "tz": "Europe/London", "startDate": 2_000_000_000_000, "endDate": 2_100_000_000_000},
    {"pattern": "*/10 30 4 L * *", "tz": "Australia/Lord_Howe", "limit": 3, "offset": 7},
    {"pattern": "0 0 * * 5L", "tz": "UTC+3"},
    {"every": 60_000, "offset": 7, "startDate": 2_000_000_000_000},
]


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("rule", LATER_RULES)
def test_a_scheduler_of_ours_is_stored_and_listed_as_nodes(
    adapter: str, rule: dict[str, Any], home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    with client(adapter, home) as ours:
        for number, template in enumerate(TEMPLATES):
            found = []
            for name, side in (("node", node), ("ours", ours)):
                made = f"{queue}-{number}-{name}"
                side.call("upsert_scheduler", queue=made, id="a:b", repeat=rule, template=template)
                # Again, over a job that waits.
                job_id = side.call("upsert_scheduler", queue=made, id="a:b", repeat=rule, template=template)
                lists = [each.call("schedulers", queue=made) for each in (node, ours)]
                assert lists[0] == lists[1]
                delay = raw.hget(f"bull:{made}:{job_id}", "delay") or b""
                found.append((job_id, lists, state.read(raw, [made], also={delay.decode(): "<delay>"})))
            assert found[0][:2] == found[1][:2]
            assert state.differences(found[1][2], found[0][2]) == []
            assert node.call("remove_scheduler", queue=f"{queue}-{number}-ours", id="a:b")
            assert ours.call("remove_scheduler", queue=f"{queue}-{number}-node", id="a:b")
            left = [state.read(raw, [f"{queue}-{number}-{name}"]) for name in ("node", "ours")]
            assert state.differences(left[1], left[0]) == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_repeatable_jobs_are_listed_processed_and_removed(
    adapter: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    often, yearly = {"every": 150, "limit": 4}, {"pattern": "0 0 1 1 *", "tz": "Europe/London"}
    with client(adapter, home) as ours:
        for name, rule in (("tick", often), ("year", yearly)):
            node.call("add", queue=queue, jobs=[{"name": name, "data": {"value": 1}, "opts": {"repeat": rule}}])
        lists = [side.call("schedulers", queue=queue) for side in (node, ours)]
        assert lists[0] == lists[1] and [each["name"] for each in lists[1]] == ["year", "tick"]
        for side in (adapter, "node"):
            with worker(side, home, queue) as working:
                working.wait(lambda _: working.count("completed") >= 2, "half of the runs")
            assert working.of("error") == []
        lists = [side.call("schedulers", queue=queue) for side in (node, ours)]
        assert lists[0] == lists[1] and [each.get("iterationCount") for each in lists[1]] == [None, 3]
        assert ours.call("remove_repeatable", queue=queue, job="year", repeat=yearly)
        assert not ours.call("remove_repeatable", queue=queue, job="year", repeat=yearly)
        key = lists[1][1]["key"]
        assert ours.call("method", queue=queue, method="removeRepeatableByKey", args=[key])
        assert node.call("schedulers", queue=queue) == []
    assert raw.zcard(f"bull:{queue}:delayed") == 0


OLDEST: dict[str, tuple[dict[str, Any], str]] = {
    "every": ({"every": 150, "limit": 4}, "150"),
    "pattern": ({"pattern": "* * * * * *", "tz": "Asia/Kolkata", "limit": 3, "jobId": "mine"}, "* * * * * *"),
    "offset": ({"offset": 40, "every": 150, "limit": 4}, "150"),
}


@pytest.mark.parametrize("rule", OLDEST)
def test_repeatable_jobs_of_the_oldest_generation_go_on_as_with_node(
    rule: str, home: Server, raw: "Redis[bytes]", queue: str
) -> None:
    repeat, suffix = OLDEST[rule]
    found = {}
    for side in ("node", *ADAPTERS):
        name = f"{queue}-{side}"
        member = f"tick:{repeat.get('jobId', '')}::{repeat.get('tz', '')}:{suffix}"
        slot = 1_700_000_000_000
        job_id = f"repeat:{_md5(f'tick7{_md5(member)}')}:{slot}"
        options = {"repeat": {**repeat, "count": 1}, "jobId": job_id, "delay": 5, "timestamp": 5, "prevMillis": slot}
        fields = {"name": "tick", "data": '{"id":7}', "opts": json.dumps({**options, "attempts": 2}), "timestamp": 5}
        raw.zadd(f"bull:{name}:repeat", {member: slot})
        raw.hset(f"bull:{name}:{job_id}", mapping={**fields, "delay": 5, "priority": 0})
        raw.zadd(f"bull:{name}:delayed", {job_id: slot * 4096})
        with worker(side, home, name) as working:
            working.wait(lambda _, runs=repeat["limit"], of=working: of.count("completed") >= runs, "all runs")
        assert working.of("error") == []
        slots = {done.rsplit(":", 1)[1]: f"<slot {index}>" for index, done in enumerate(working.ids("completed"))}
        assert len(slots) == repeat["limit"]
        found[side] = state.read(raw, [name], also=slots)
    for adapter in ADAPTERS:
        assert state.differences(found[adapter], found["node"], races=("wake", "slot")) == []


FLEET_SECONDS = int(os.environ.get("FLEET_SECONDS", "8"))


def test_a_mixed_fleet_runs_each_slot_once(home: Server, node: Program, queue: str) -> None:
    rules: dict[str, dict[str, Any]] = {"every": {"every": 1000}, "cron": {"pattern": "* * * * * *", "tz": "utc"}}
    sides = ("node", *ADAPTERS)
    # Two or three of the workers are always busy, so that no one of them takes every run.
    template = {"data": {"work_ms": 1300}}
    with ExitStack() as stack, client("asyncio", home) as ours:
        workers = [stack.enter_context(worker(side, home, queue)) for side in sides]
        for maker, (name, rule) in zip((node, ours), rules.items(), strict=True):
            maker.call("upsert_scheduler", queue=queue, id=name, repeat=rule, template={"name": name, **template})
        workers[0].wait(
            lambda _: (
                sum(each.count("completed") for each in workers) >= 2 * FLEET_SECONDS
                and all(each.count("completed") for each in workers)
            ),
            "all runs",
            FLEET_SECONDS + 60,
        )
        for name in rules:
            assert ours.call("remove_scheduler", queue=queue, id=name)
    assert [each.of("error") for each in workers] == [[]] * len(sides)
    runs = {side: each.ids("completed") for side, each in zip(sides, workers, strict=True)}
    every_run = [job_id for done in runs.values() for job_id in done]
    assert sorted(every_run) == sorted(job_id for each in workers for job_id in each.ids("started"))
    assert len(set(every_run)) == len(every_run)
    assert all(runs.values()), "each side has its share"
    for name in rules:
        slots = sorted(int(job_id.rsplit(":", 1)[1]) for job_id in every_run if job_id.startswith(f"repeat:{name}:"))
        assert len({slot % 1000 for slot in slots}) == 1
        # Where all were late by more than a period, a slot is left out.
        assert (slots[-1] - slots[0]) // 1000 + 1 - len(slots) <= 2
        assert len(slots) >= FLEET_SECONDS - 3


def _md5(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()


def _work_off(
    home: Server,
    maker: Program,
    node: Program,
    raw: "Redis[bytes]",
    queue: str,
    rule: dict[str, Any],
    sides: tuple[str, str],
) -> state.State:
    """Let one worker take the first runs and another one the rest; check the slots."""
    limit, period = rule["limit"], rule.get("every", 1000)
    template = {"name": "tick", "data": {"value": "✓"}, "opts": {"attempts": 2, "keepLogs": 5, "priority": 3}}
    maker.call("upsert_scheduler", queue=queue, id="tick", repeat=rule, template=template)
    done: list[str] = []
    for side in sides:
        # The first may finish one more while it closes.
        wanted = limit - len(done) if done else limit // 2
        with worker(side, home, queue) as working:
            working.wait(lambda _, wanted=wanted: working.count("completed") >= wanted, "its share of the runs")
        assert working.of("error") == []
        done += working.ids("completed")
    slots = [int(job_id.removeprefix("repeat:tick:")) for job_id in done]
    assert len(set(slots)) == limit
    assert all(later > earlier and (later - earlier) % period == 0 for earlier, later in pairwise(slots))
    (scheduler,) = node.call("schedulers", queue=queue)
    assert (scheduler["iterationCount"], scheduler["next"]) == (limit, slots[-1])
    return state.read(raw, [queue], also={str(slot): f"<slot {index}>" for index, slot in enumerate(slots)})


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_rule_that_cannot_be_followed_puts_its_job_back_with_a_clear_error(
    adapter: str, home: Server, node: Program, raw: "Redis[bytes]", queue: str
) -> None:
    rule = {"pattern": "* * * * * *", "limit": 9}
    job_id = node.call("upsert_scheduler", queue=queue, id="cron", repeat=rule, template={"name": "n", "data": {}})
    key = f"bull:{queue}:{job_id}"
    options = json.loads(raw.hget(key, "opts") or "")
    raw.hset(key, "opts", json.dumps({**options, "repeat": {**options["repeat"], "tz": "Europe/Nowhere"}}))
    with worker(adapter, home, queue) as ours:
        error: dict[str, Any] = ours.wait(lambda _: ours.of("error"), "the error")[0]
        assert "tz: is no known time zone" in error["message"]
        assert "(got 'Europe/Nowhere'); the job was delayed" in error["message"]
        # The error is reported as soon as it is known, the job is in delayed a moment later.
        until(lambda: node.call("state", queue=queue, id=job_id), "delayed")
    assert ours.ids("started") == []
    job = node.call("job", queue=queue, id=job_id)
    assert (job["attempts_made"], job["attempts_started"], job["failed_reason"]) == (0, 1, None)
    raw.hset(key, "opts", json.dumps(options))
    with worker("node", home, queue) as theirs:
        theirs.wait(lambda _: job_id in theirs.ids("completed"), "Node takes it")
    assert theirs.of("error") == []
