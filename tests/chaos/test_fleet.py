"""A short run of every version on shared queues, and what the audit would say; the long run is `make chaos-fleet`."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.chaos.fleet import run
from tests.chaos.fleet_audit import Watch
from tests.support import servers

pytestmark = [pytest.mark.any_python, pytest.mark.any_server]


@pytest.mark.deep
@pytest.mark.node
def test_nothing_is_lost_or_finished_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(seed=11, rounds=160) == []
    assert capsys.readouterr().out.splitlines()[-1].endswith(" 0 lost, 0 finished twice")


@pytest.fixture(scope="module")
def raw() -> Iterator[Any]:
    with servers.start() as server, redis.Redis.from_url(server.url) as client:
        yield client


class Stage:
    """A queue as the keys and events of a healthy one are: job `a` waits, and is acknowledged."""

    def __init__(self, raw: Any) -> None:
        raw.flushall()
        self.raw = raw
        self.base = "bull:q:"
        self.watch = Watch(raw, "q")
        self.event("added", "a")
        raw.hset(f"{self.base}a", mapping={"name": "n", "timestamp": 1})
        raw.rpush(f"{self.base}wait", "a")
        self.watch.acknowledged.add("a")
        self.watch.look()
        assert self.problems == []

    def event(self, event: str, id: str, **more: str) -> None:
        self.raw.xadd(f"{self.base}events", {"event": event, "jobId": id, **more})

    @property
    def problems(self) -> list[str]:
        return list(self.watch.problems)


@pytest.fixture
def stage(raw: Any) -> Stage:
    return Stage(raw)


def test_a_lost_job_is_found(stage: Stage) -> None:
    stage.raw.delete("bull:q:wait")
    stage.watch.look()
    assert (stage.problems, stage.watch.lost) == (["q: in no state: a"], {"a"})


def test_a_lost_job_that_nobody_acknowledged_is_found(stage: Stage) -> None:
    stage.event("added", "b")
    stage.event("added", "repeat:s:1")
    stage.watch.look()
    assert stage.problems == ["q: in no state: b"]


def test_a_removed_job_is_not_lost(stage: Stage) -> None:
    stage.raw.delete("bull:q:wait")
    stage.event("removed", "a", prev="wait")
    stage.watch.look()
    assert stage.problems == []


def test_an_acknowledged_job_that_never_was_is_found(stage: Stage) -> None:
    stage.watch.acknowledged.add("b")
    stage.watch.look()
    assert stage.problems == ["q: in no state: b", "q: acknowledged, and no event tells of it: b"]


def test_a_job_in_two_places_is_found(stage: Stage) -> None:
    stage.raw.rpush("bull:q:wait", "a")
    stage.watch.look()
    stage.raw.lpop("bull:q:wait")
    stage.raw.zadd("bull:q:delayed", {"a": 1})
    stage.watch.look()
    assert stage.problems == ["q: in two places at once: a"]


def test_jobs_set_aside_in_a_queue_that_runs_are_found(stage: Stage) -> None:
    stage.raw.hset("bull:q:meta", "paused", 1)
    stage.raw.rename("bull:q:wait", "bull:q:paused")
    stage.watch.look()
    assert stage.problems == []
    stage.raw.hdel("bull:q:meta", "paused")
    stage.watch.look()
    assert stage.problems == ["q: set aside in a queue that runs: a"]


def test_a_job_that_finished_twice_is_found(stage: Stage) -> None:
    stage.raw.rename("bull:q:wait", "bull:q:completed-list")
    stage.raw.zadd("bull:q:completed", {"a": 1})
    # Failed, retried and completed: that is once.
    stage.event("failed", "a")
    stage.event("waiting", "a", prev="failed")
    stage.event("completed", "a")
    stage.watch.look()
    assert stage.watch.twice == set()
    stage.event("completed", "a")
    stage.watch.look_at_end()
    assert (stage.problems, stage.watch.twice) == (["q: finished twice: a"], {"a"})


def test_a_payload_that_nothing_brings_back_is_found(stage: Stage) -> None:
    stage.raw.hset("bull:q:dn:d", "name", "n")
    stage.raw.set("bull:q:de:d", "a")
    stage.watch.look_at_kept()
    assert stage.problems == []
    stage.raw.hset("bull:q:a", "finishedOn", 1)
    stage.watch.look_at_kept()
    assert stage.problems == ["q: kept back, and nothing brings it back: d"]


@pytest.mark.parametrize("end", ["gone", "free"])
def test_a_payload_without_a_holder_is_found(stage: Stage, end: str) -> None:
    stage.raw.hset("bull:q:dn:d", "name", "n")
    if end == "gone":
        stage.raw.set("bull:q:de:d", "nobody")
    stage.watch.look_at_kept()
    assert stage.problems == ["q: kept back, and nothing brings it back: d"]


def test_hashes_are_compared_with_lists_at_the_end(stage: Stage) -> None:
    stage.raw.hset("bull:q:b", "timestamp", 1)
    stage.raw.zadd("bull:q:completed", {"c": 1})
    stage.raw.hset("bull:q:repeat:s", "name", "a scheduler")
    stage.watch.look_at_end()
    assert stage.problems == ["q: listed without a hash: c", "q: stored and in no list: b", "q: wait at the end: a"]
