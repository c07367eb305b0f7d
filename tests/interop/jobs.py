"""The 2,000 jobs of the mixed run, and what becomes of each.

A job's data says what happens to it, in both languages' workers (worker.js, python/worker.py), in this order:
logs: rows to log; progress: value; update: members to lay over the data; work_ms: time it takes; hangs: never end in
the first n starts; postpones, by_ms: move itself to delayed in the first n starts; fatal: fail for good
with this text; fails: fail the first n attempts; value: what it returns.
"""

import random
from typing import Any

Job = dict[str, Any]

BASE = "<base>"
"""Stands for the moment a run begins, in options."""


def mixed_jobs(count: int, *, seed: int = 5620) -> list[Job]:
    """Make the same jobs each time. Options stand in the order of `JobOptions`, in which we store them."""
    dice = random.Random(seed)
    jobs = []
    for number in range(count):
        data: dict[str, Any] = {"n": number, "work_ms": dice.choice((0, 1, 2, 4)), "value": _value(dice, number)}
        opts: dict[str, Any] = {}
        if dice.random() < 0.35:
            _make_fail(dice, data, opts)
        if dice.random() < 0.2:
            opts["delay"] = dice.choice((1, 40, 150, 400, 700))
        elif dice.random() < 0.3:
            opts["priority"] = dice.choice((1, 2, 3, 10, 2_097_151))
        elif dice.random() < 0.1:
            opts["lifo"] = True
        opts["timestamp"] = BASE
        opts["jobId"] = f"job-{number}"
        if dice.random() < 0.05:
            opts["removeOnComplete"] = True
        if dice.random() < 0.05:
            opts["removeOnFail"] = True
        if dice.random() < 0.1:
            data["logs"] = [f"row {row} of {number} ✓" for row in range(dice.randint(1, 3))]
            if dice.random() < 0.5:
                opts["keepLogs"] = 2
        if dice.random() < 0.1:
            data["progress"] = dice.choice((0, 50, 99.5, {"step": number}))
        if dice.random() < 0.05:
            data["update"] = {"seen": True}
        if "fails" in data and dice.random() < 0.3:
            opts["stackTraceLimit"] = dice.choice((0, 1, 2))
        jobs.append({"name": dice.choice(("mail", "image", "größe")), "data": data, "opts": opts})
    return jobs


def _value(dice: random.Random, number: int) -> Any:
    return dice.choice((None, number, number / 8, "", "fertig 🎉", True, [], [1, {"a": None}], {"z": 1, "a": [number]}))


def _make_fail(dice: random.Random, data: dict[str, Any], opts: dict[str, Any]) -> None:
    if dice.random() < 0.1:
        data["fatal"] = f"bad input {data['n']}"
        opts["attempts"] = 3
        return
    opts["attempts"] = dice.randint(1, 4)
    # Some succeed in the end, some use up their attempts.
    data["fails"] = dice.randint(1, 4)
    backoff = dice.choice((None, {"type": "fixed", "delay": 30}, {"type": "exponential", "delay": 20}, 25))
    if backoff is not None:
        opts["backoff"] = backoff


def with_base(jobs: list[Job], base_ms: int) -> list[Job]:
    """Fill in the moment a run begins."""
    return [{**job, "opts": {**job["opts"], "timestamp": base_ms}} for job in jobs]


def succeeds(job: Job) -> bool:
    """Tell whether a job completes in the end."""
    return "fatal" not in job["data"] and job["data"].get("fails", 0) < max(1, job["opts"].get("attempts", 1))


def attempts(job: Job) -> int:
    """Return how many attempts a job takes until it is finished."""
    if "fatal" in job["data"]:
        return 1
    return min(int(job["data"].get("fails", 0)) + 1, max(1, int(job["opts"].get("attempts", 1))))
