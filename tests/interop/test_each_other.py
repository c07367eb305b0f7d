"""One side adds, the other works, and both read the outcome."""

from typing import Any

import pytest

from tests.support.programs import ADAPTERS, Program, client, worker
from tests.support.servers import Server

_ODD_TEXT = 'größe \N{PARTY POPPER} \x00 \u2028 \\ " <&>'

JOBS: dict[str, dict[str, Any]] = {
    "plain": {"value": {"z": 1, "a": [1.5, None, True]}},
    "empty-text": {"value": ""},
    "odd-text": {"value": _ODD_TEXT, "logs": [_ODD_TEXT, ""], "progress": {"at": _ODD_TEXT}},
    "numbers": {"value": [0, -1, 0.1, 1e21, 1e-7, 2**53 - 1, 123456789012]},
    "no-value": {},
    "updated": {"value": 1, "update": {"seen": [_ODD_TEXT]}, "progress": 12.5},
    "retried": {"fails": 2, "value": "at last"},
    "retried-later": {"fails": 1, "value": "later"},
    "exhausted": {"fails": 9},
    "fatal": {"fatal": f"never: {_ODD_TEXT}"},
    "postponed": {"postpones": 1, "by_ms": 50, "value": "postponed"},
}
OPTS: dict[str, dict[str, Any]] = {
    "retried": {"attempts": 3, "stackTraceLimit": 1},
    "retried-later": {"attempts": 2, "backoff": {"type": "fixed", "delay": 60}},
    "exhausted": {"attempts": 2, "priority": 5},
    "fatal": {"attempts": 5},
    "plain": {"delay": 80},
    "numbers": {"priority": 1, "lifo": True},
    "odd-text": {"keepLogs": 1},
}


def _jobs() -> list[dict[str, Any]]:
    return [
        {"name": f"name of {name}", "data": data, "opts": {**OPTS.get(name, {}), "jobId": name}}
        for name, data in JOBS.items()
    ]


def _outcome(name: str) -> dict[str, Any]:
    """What both clients must read."""
    data, opts = JOBS[name], OPTS.get(name, {})
    tries = int(opts.get("attempts", 1))
    failures = 1 if "fatal" in data else min(int(data.get("fails", 0)), tries)
    failed = "fatal" in data or failures == tries
    made = failures + (not failed)
    return {
        "id": name,
        "name": f"name of {name}",
        "data": {**data, **data.get("update", {})},
        "progress": data.get("progress", 0),
        "returnvalue": None if failed else data.get("value"),
        "failed_reason": data.get("fatal", f"failure {failures}") if failures else None,
        "attempts_made": made,
        "attempts_started": made + int(data.get("postpones", 0)),
        "delay": 0,
        "priority": opts.get("priority", 0),
        "processed_by": "w1",
        "stacktraces": min(failures, opts.get("stackTraceLimit", failures)),
    }


def _exchange(server: Server, queue: str, adder: Program, side: str, readers: list[Program]) -> None:
    jobs = _jobs()
    single, bulk = jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]
    assert adder.call("add", queue=queue, jobs=single) == [job["opts"]["jobId"] for job in single]
    assert adder.call("add_bulk", queue=queue, jobs=bulk) == [job["opts"]["jobId"] for job in bulk]
    with worker(side, server, queue, concurrency=3, name="w1") as working:
        working.wait(lambda events: _finished(events) == len(jobs), "all jobs are finished")
    assert working.of("error") == []
    for reader in readers:
        for name in JOBS:
            job = reader.call("job", queue=queue, id=name)
            expected = _outcome(name)
            assert {field: job[field] for field in expected} == expected
            state = "failed" if name in ("exhausted", "fatal") else "completed"
            assert reader.call("state", queue=queue, id=name) == state
            assert job.get("logs", JOBS[name].get("logs", [])[-1:]) == JOBS[name].get("logs", [])[-1:]


def _finished(events: list[dict[str, Any]]) -> int:
    return sum(line["event"] == "completed" or (line["event"] == "failed" and line["final"]) for line in events)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_node_adds_and_we_process(adapter: str, home: Server, node: Program, queue: str) -> None:
    with client(adapter, home) as ours:
        _exchange(home, queue, node, adapter, [node, ours])


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_we_add_and_node_processes(adapter: str, home: Server, node: Program, queue: str) -> None:
    with client(adapter, home) as ours:
        _exchange(home, queue, ours, "node", [node, ours])
