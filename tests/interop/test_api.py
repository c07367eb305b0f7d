"""Each capability in both directions: what one side does to a queue, the other sees, obeys and undoes; and what a call
leaves in Redis is the same from both."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from tests.interop import state
from tests.support.programs import ADAPTERS, Program, client, worker
from tests.support.servers import Server

BASE_MS = 1_700_000_000_000
LATE = 10_000_000


class Side:
    """One side's client, spoken to in BullMQ's words."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self._program = program

    def call(self, name: str, **args: Any) -> Any:
        return self._program.call(name, **args)

    def queue(self, queue: str, method: str, *args: Any, **options: Any) -> Any:
        return self._program.call("method", queue=queue, method=method, args=args, **_given(options))

    def job(self, queue: str, job_id: str, method: str, *args: Any, **options: Any) -> Any:
        return self._program.call("method", queue=queue, id=job_id, method=method, args=args, **_given(options))

    def add(self, queue: str, *job_ids: str, data: Any = None, **opts: Any) -> None:
        jobs = [{"name": "n", "data": data or {}, "opts": {"jobId": each, **opts}} for each in job_ids]
        self._program.call("add_bulk", queue=queue, jobs=jobs)

    def work_off(self, queue: str, count: int, **options: Any) -> None:
        """Let a worker in the client's process finish this many jobs: to start another takes half a second."""
        self._program.call("work_off", queue=queue, count=count, **options)

    def added(self, queue: str, **opts: Any) -> str:
        (job_id,) = self._program.call("add", queue=queue, jobs=[{"name": "n", "data": {}, "opts": opts}])
        return str(job_id)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {"options": options} if options else {}


@pytest.fixture(scope="module", params=ADAPTERS)
def ours(request: pytest.FixtureRequest, home: Server) -> Iterator[Side]:
    with client(request.param, home) as started:
        yield Side(request.param, started)


@pytest.fixture(params=["node first", "we first"])
def pair(request: pytest.FixtureRequest, node: Program, ours: Side) -> tuple[Side, Side]:
    """Both sides, in both orders."""
    theirs = Side("node", node)
    return (theirs, ours) if request.param == "node first" else (ours, theirs)


# --- one side does, the other sees -----------------------------------------------------------------------------------


def test_getters(pair: tuple[Side, Side], queue: str) -> None:
    first, second = pair
    first.add(queue, "a", "b", "c")
    second.work_off(queue, 3)
    first.add(queue, "d", "e", data={"fatal": "no"})
    first.work_off(queue, 2)
    second.add(queue, "f", "g", "h")
    second.add(queue, "i", "j", delay=LATE)
    second.add(queue, "k", priority=9)
    first.add(queue, "l", priority=3)
    calls: list[tuple[str, tuple[Any, ...]]] = [
        *(
            (f"get{name}", span)
            for span in ((), (0, 0), (1, -1), (-2, -1))
            for name in ("Waiting", "Delayed", "Completed", "Failed", "Active", "Prioritized", "WaitingChildren")
        ),
        *(
            ("getRanges", (["wait", "completed"], start, end, asc))
            for start, end in ((0, -1), (1, 1), (-1, -1), (2, 0))
            for asc in (True, False)
        ),
        ("getJobs", (["waiting", "failed", "delayed"], 0, 1, True)),
        ("getJobCounts", ()),
        ("getJobCounts", ("waiting", "failed")),
        ("getJobCountByTypes", ("waiting", "delayed")),
        ("count", ()),
        *((f"get{name}Count", ()) for name in ("Waiting", "Delayed", "Completed", "Failed", "Active", "Prioritized")),
        ("getCountsPerPriority", ([0, 3, 9, 4],)),
        ("getJobState", ("i",)),
        ("exportPrometheusMetrics", ({"env": "test"},)),
        ("getMetrics", ("completed",)),
    ]
    for method, args in calls[:-1]:
        assert first.queue(queue, method, *args) == second.queue(queue, method, *args), (method, args)
    assert first.queue(queue, "getWaiting") == ["f", "g", "h"]
    assert first.queue(queue, "getJobCounts", "delayed") == {"delayed": 2}


def test_logs_and_progress(pair: tuple[Side, Side], queue: str) -> None:
    first, second = pair
    first.add(queue, "a")
    assert [first.queue(queue, "addJobLog", "a", row) for row in ("one", "zwei ✓", "three")] == [1, 2, 3]
    for args in ((), (1, 1), (0, 1, False), (0, -1, False), (-2, -1)):
        found = second.queue(queue, "getJobLogs", "a", *args)
        assert found == first.queue(queue, "getJobLogs", "a", *args)
        assert found["count"] == 3
    assert second.queue(queue, "addJobLog", "a", "four", 2) == 2
    assert first.queue(queue, "getJobLogs", "a") == {"logs": ["three", "four"], "count": 2}
    second.job(queue, "a", "clearLogs", 1)
    assert first.queue(queue, "getJobLogs", "a")["logs"] == ["four"]
    first.queue(queue, "updateJobProgress", "a", {"step": 1.5})
    assert second._program.call("job", queue=queue, id="a")["progress"] == {"step": 1.5}


def test_clean_drain_retry_promote(pair: tuple[Side, Side], queue: str) -> None:
    first, second = pair
    first.add(queue, *"abcde", data={"fatal": "no"})
    first.work_off(queue, 5)
    assert second.queue(queue, "clean", 0, 2, "failed") == ["a", "b"]
    assert first.queue(queue, "getFailed") == ["e", "d", "c"]
    second.queue(queue, "retryJobs", state="failed", count=2)
    assert first.queue(queue, "getWaiting") == ["c", "d", "e"]
    first.add(queue, "f", "g", delay=LATE)
    second.queue(queue, "promoteJobs")
    assert first.queue(queue, "getWaiting") == ["c", "d", "e", "f", "g"]
    first.add(queue, "h", priority=1)
    first.add(queue, "i", delay=LATE)
    second.queue(queue, "drain")
    assert first.queue(queue, "getJobCounts", "waiting", "prioritized", "delayed") == {
        "waiting": 0,
        "prioritized": 0,
        "delayed": 1,
        "paused": 0,
    }
    second.queue(queue, "drain", True)
    assert first.queue(queue, "count") == 0


def test_moves_of_a_job(pair: tuple[Side, Side], queue: str) -> None:
    first, second = pair
    first.add(queue, "a", "b", "c", delay=LATE)
    second.job(queue, "c", "changeDelay", 1000)
    assert first.queue(queue, "getDelayed") == ["c", "a", "b"]
    second.job(queue, "b", "promote")
    assert first.job(queue, "b", "isWaiting") is True
    assert first.queue(queue, "getWaiting") == ["b"]
    second.job(queue, "b", "changePriority", priority=7, lifo=True)
    assert first.queue(queue, "getPrioritized") == ["b"]
    second.job(queue, "b", "changePriority", priority=0)
    first.work_off(queue, 1)
    assert first.job(queue, "b", "isCompleted") is True
    second.job(queue, "b", "retry", "completed")
    assert first.queue(queue, "getJobState", "b") == "waiting"
    for name in ("Completed", "Failed", "Delayed", "Active", "Waiting", "WaitingChildren"):
        assert first.job(queue, "a", f"is{name}") is second.job(queue, "a", f"is{name}") is (name == "Delayed")
    second.job(queue, "a", "remove")
    assert first.queue(queue, "getJobState", "a") == "unknown"


def test_deduplication(pair: tuple[Side, Side], queue: str) -> None:
    first, second = pair
    job_id = first.added(queue, deduplication={"id": "d"})
    assert second.queue(queue, "getDeduplicationJobId", "d") == job_id
    assert second.added(queue, deduplication={"id": "d"}) == job_id
    assert bool(second.queue(queue, "removeDeduplicationKey", "d")) is True
    assert first.queue(queue, "getDeduplicationJobId", "d") is None
    assert first.added(queue, deduplication={"id": "d"}) != job_id
    timed = first.added(queue, deduplication={"id": "t", "ttl": LATE})
    assert second.added(queue, deduplication={"id": "t", "ttl": LATE, "extend": True}) == timed
    old = first.added(queue, delay=LATE, deduplication={"id": "r", "ttl": LATE, "replace": True, "extend": True})
    new = second.added(queue, delay=LATE, deduplication={"id": "r", "ttl": LATE, "replace": True, "extend": True})
    assert new != old
    assert first.queue(queue, "getDelayed") == [new]
    assert first.queue(queue, "getDeduplicationJobId", "r") == new


def test_children(pair: tuple[Side, Side], node: Program, queue: str) -> None:
    first, second = pair
    node.call(
        "flow",
        flow={
            "name": "parent",
            "queueName": queue,
            "opts": {"jobId": "p"},
            "children": [
                {
                    "name": "c",
                    "queueName": queue,
                    "data": {"value": {"n": 1}},
                    "opts": {"jobId": "good", "priority": 1},
                },
                {
                    "name": "c",
                    "queueName": queue,
                    "data": {"fatal": "boom"},
                    "opts": {"jobId": "bad", "priority": 2, "ignoreDependencyOnFailure": True},
                },
                *({"name": "c", "queueName": queue, "opts": {"jobId": f"late{n}", "delay": LATE}} for n in range(3)),
            ],
        },
    )
    first.work_off(queue, 2)
    key = f"bull:{queue}:"
    for method in (
        "getChildrenValues",
        "getIgnoredChildrenFailures",
        "getFailedChildrenValues",
        "getDependenciesCount",
    ):
        assert first.job(queue, "p", method) == second.job(queue, "p", method), method
    assert second.job(queue, "p", "getChildrenValues") == {f"{key}good": {"n": 1}}
    assert second.job(queue, "p", "getIgnoredChildrenFailures") == {f"{key}bad": "boom"}
    left, right = (each.job(queue, "p", "getDependencies") for each in pair)
    for found in (left, right):
        found["unprocessed"].sort()
    assert left == right
    for kind in ("processed", "pending"):
        mine, others = (each.queue(queue, "getDependencies", "p", kind, 0, -1) for each in pair)
        assert mine["total"] == others["total"] == len(mine["items"]) == len(mine["jobs"])
    assert second.job(queue, "late0", "removeChildDependency") is True
    assert first.job(queue, "p", "getDependenciesCount")["unprocessed"] == 2
    second.job(queue, "p", "removeUnprocessedChildren")
    assert first.job(queue, "p", "getDependenciesCount")["unprocessed"] == 0
    assert first.job(queue, "p", "isWaiting") is True
    assert first.queue(queue, "getDelayed") == ["late0"]


# --- one side limits, the other obeys ---------------------------------------------------------------------------------


def test_global_concurrency(pair: tuple[Side, Side], home: Server, queue: str) -> None:
    first, second = pair
    first.queue(queue, "setGlobalConcurrency", 1)
    assert second.queue(queue, "getGlobalConcurrency") == 1
    first.add(queue, *"abcdefgh", data={"work_ms": 20})
    with worker(second.name, home, queue, concurrency=5) as working:
        working.wait(lambda _: working.count("started") > 1, "some have begun")
        working.wait(lambda _: working.count("completed") == 8, "all are done")
        order = [line["event"] for line in working.events if line["event"] in ("started", "completed")]
    assert all(order[: at + 1].count("started") - order[: at + 1].count("completed") <= 2 for at in range(len(order)))
    second.queue(queue, "removeGlobalConcurrency")
    assert first.queue(queue, "getGlobalConcurrency") is None


def test_global_rate_limit(pair: tuple[Side, Side], home: Server, raw: "Redis[bytes]", queue: str) -> None:
    first, second = pair
    first.queue(queue, "setGlobalRateLimit", 2, 300)
    assert second.queue(queue, "getGlobalRateLimit") == {"max": 2, "duration": 300}
    first.add(queue, *"abcdef")
    with worker(second.name, home, queue) as working:
        working.wait(lambda _: working.count("completed") == 6, "all are done")
    # When they were fetched: a handler may begin later.
    starts = sorted(int(raw.hget(f"bull:{queue}:{job_id}", "processedOn") or 0) for job_id in "abcdef")
    assert starts[2] - starts[0] >= 250
    assert starts[4] - starts[2] >= 250
    second.queue(queue, "removeGlobalRateLimit")
    assert first.queue(queue, "getGlobalRateLimit") is None


def test_manual_rate_limit(pair: tuple[Side, Side], home: Server, queue: str) -> None:
    first, second = pair
    first.queue(queue, "rateLimit", LATE)
    assert LATE - 10_000 < second.queue(queue, "getRateLimitTtl") <= LATE
    assert bool(second.queue(queue, "removeRateLimitKey")) is True
    assert first.queue(queue, "getRateLimitTtl") == -2
    with worker(second.name, home, queue, limiter={"max": 5, "duration": 1000}) as working:
        limited_at = time.time() * 1000
        first.queue(queue, "rateLimit", 400)
        first.add(queue, "a")
        working.wait(lambda _: working.count("completed") == 1, "the job is done")
    assert working.of("started")[0]["at"] - limited_at >= 390


def test_metrics(pair: tuple[Side, Side], queue: str) -> None:
    first, _ = pair
    first.add(queue, *"abcd")
    node_options, our_options = {"metrics": {"maxDataPoints": 5}}, {"metrics_max_data_points": 5}
    first.work_off(queue, 4, **(node_options if first.name == "node" else our_options))
    found = {each.name: each.queue(queue, "getMetrics", "completed") for each in pair}
    theirs = found.pop("node")
    (mine,) = found.values()
    assert (mine["total"], mine["prev_at"], mine["prev_total"]) == tuple(
        theirs["meta"][name] for name in ("count", "prevTS", "prevCount")
    )
    assert (mine["total"], mine["data"], mine["count"]) == (4, theirs["data"], theirs["count"])


# --- what a call leaves in Redis --------------------------------------------------------------------------------------

Act = Callable[[Side, str], Any]

ACTS: dict[str, Act] = {
    "clean failed": lambda side, queue: side.queue(queue, "clean", 0, 2, "failed"),
    "clean completed": lambda side, queue: side.queue(queue, "clean", 0, 0, "completed"),
    "clean delayed": lambda side, queue: side.queue(queue, "clean", 0, 0, "delayed"),
    "clean prioritized": lambda side, queue: side.queue(queue, "clean", 0, 1, "prioritized"),
    "drain": lambda side, queue: side.queue(queue, "drain"),
    "drain delayed": lambda side, queue: side.queue(queue, "drain", True),
    "retry failed": lambda side, queue: side.queue(queue, "retryJobs", count=2),
    "retry completed": lambda side, queue: side.queue(queue, "retryJobs", state="completed"),
    "promote all": lambda side, queue: side.queue(queue, "promoteJobs"),
    "promote": lambda side, queue: side.job(queue, "slow1", "promote"),
    "promote with priority": lambda side, queue: side.job(queue, "slow2", "promote"),
    "retry one": lambda side, queue: side.job(queue, "bad2", "retry"),
    "retry one completed": lambda side, queue: side.job(queue, "good1", "retry", "completed"),
    "change priority": lambda side, queue: side.job(queue, "wait1", "changePriority", priority=4),
    "change priority, lifo": lambda side, queue: side.job(queue, "urgent1", "changePriority", priority=5, lifo=True),
    "no priority any more": lambda side, queue: side.job(queue, "urgent2", "changePriority", priority=0),
    "update progress": lambda side, queue: side.queue(queue, "updateJobProgress", "wait1", [1, "✓"]),
    "update data": lambda side, queue: side.job(queue, "wait1", "updateData", {"b": 1, "a": [None]}),
    "log": lambda side, queue: [side.queue(queue, "addJobLog", "wait1", row, 2) for row in "abc"],
    "clear logs": lambda side, queue: [side.job(queue, "bad1", "log", "x"), side.job(queue, "bad1", "clearLogs")],
    "global limits": lambda side, queue: [
        side.queue(queue, "setGlobalConcurrency", 3),
        side.queue(queue, "setGlobalRateLimit", 5, 1000),
    ],
    "lift global limits": lambda side, queue: [
        side.queue(queue, "setGlobalConcurrency", 3),
        side.queue(queue, "removeGlobalConcurrency"),
        side.queue(queue, "setGlobalRateLimit", 5, 1000),
        side.queue(queue, "removeGlobalRateLimit"),
    ],
    "remove": lambda side, queue: side.job(queue, "wait1", "remove"),
    "remove deduplication": lambda side, queue: side.queue(queue, "removeDeduplicationKey", "d"),
    "trim events": lambda side, queue: side.queue(queue, "trimEvents", 5),
    "obliterate": lambda side, queue: side.queue(queue, "obliterate", force=True, count=3),
}


def _prepare(side: Side, queue: str) -> None:
    side.add(queue, "good1", "good2", timestamp=BASE_MS)
    side.add(queue, "bad1", "bad2", "bad3", "bad4", data={"fatal": "no"}, timestamp=BASE_MS)
    side.work_off(queue, 6)
    side.add(queue, "wait1", "wait2", timestamp=BASE_MS)
    side.add(queue, "slow1", timestamp=BASE_MS, delay=2 * LATE)
    side.add(queue, "slow2", timestamp=BASE_MS, delay=LATE, priority=3)
    side.add(queue, "urgent1", "urgent2", timestamp=BASE_MS, priority=5)
    side.add(queue, "single", timestamp=BASE_MS, deduplication={"id": "d"})


@pytest.mark.parametrize("act", ACTS)
def test_both_leave_the_same(act: str, ours: Side, node: Program, raw: "Redis[bytes]", queue: str) -> None:
    theirs = Side("node", node)
    left: list[state.State] = []
    for side in (ours, theirs):
        name = f"{queue}-{side.name}"
        _prepare(theirs, name)
        ACTS[act](side, name)
        left.append(state.read(raw, [name], base_ms=BASE_MS))
        theirs.queue(name, "obliterate", force=True)
    assert left[0] or act == "obliterate"
    assert state.differences(*left, races=("wake",)) == []
