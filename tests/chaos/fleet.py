"""Clients of every version on shared queues: `python -m tests.chaos.fleet --duration 600 --seed 1`.

BullMQ 5.62.0, 5.81.5 and 6.7.0 on Node, its Python port and ours in three adapters add, schedule, retry, pause and
resume as `docs/upgrading.md` permits, while workers of all of them are killed. Exit code 1 if anything does not add up.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Self

import redis

from tests.chaos.fleet_audit import Moment, Watch
from tests.support import servers
from tests.support.programs import ADAPTERS, PORT, AnswerError, Program, client, worker
from tests.support.servers import Server

FIRST, LAST_OF_5, NEWEST = NODES = ("node-5.62.0", "node-5.81.5", "node-6.7.0")
SIDES = (*NODES, PORT, *ADAPTERS)
MAY_RESUME = (NEWEST, *ADAPTERS)
"""Source: specs/06-later-versions.md#sec-5-2"""
MAY_PAUSE_AGAIN = (NEWEST, PORT, *ADAPTERS)
EVERYBODY, LATER = QUEUES = ("everybody", "later")
"""On `later` no worker of 5.62.0 is: it would lose what `keepLastIfActive` keeps back."""
WORKERS = {EVERYBODY: SIDES, LATER: (LAST_OF_5, NEWEST, PORT, "threads")}
SETTINGS = {
    "concurrency": 4,
    "lockDuration": 3000,
    "stalledInterval": 1000,
    # So many that no job fails by it: what is killed here is killed often.
    "maxStalledCount": 1000,
    "drainDelay": 1,
}
# Each means the same to every version (specs/06-later-versions.md#sec-4-6-7).
PATTERNS = ("* * * * * *", "*/2 * * * * *", "1-59/3 * * * * *")
INTERVALS = (300, 500, 800)
SERIES = ("s0", "s1", "s2", "c0", "c1")
MOST_WAITING = 300
LOOKED_AT_EVERY = 5
STRUCK_EVERY = 40
STOPPED_S = 4.0
"""Longer than a lock lasts: what a stopped worker holds is another's when it goes on."""
DRAIN_S = 120.0

Args = dict[str, Any]


class Action(NamedTuple):
    """One call of one client."""

    side: str
    name: str
    args: Args
    then: Callable[[Any], None]
    may_fail: bool = False


def nothing(_: Any) -> None:
    """What follows from most replies."""


class Fleet:
    """The clients and workers, and who may do what. `profile` is that of ours."""

    def __init__(self, server: Server, *, seed: int, profile: str = "fleet") -> None:
        self._server = server
        self._dice = random.Random(seed)
        self._profile = profile
        self._raw: Any = redis.Redis.from_url(server.url)
        self._pool = ThreadPoolExecutor(8)
        self._clients: dict[str, Program] = {}
        self._workers: dict[tuple[str, str], Program] = {}
        self._starting: dict[tuple[str, str], Future[Program]] = {}
        self._gone: list[tuple[str, str, Program]] = []
        self._stopped: dict[int, float] = {}
        self._numbers = iter(range(10**9))
        self._paused = dict.fromkeys(QUEUES, False)
        self._moments: dict[str, Moment] = {}
        self._schedulers: set[tuple[str, str]] = set()
        self.watches = {queue: Watch(self._raw, queue) for queue in QUEUES}
        self.counts: Counter[str] = Counter()
        self.by_side: Counter[tuple[str, str]] = Counter()
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        started = {side: self._pool.submit(client, side, self._server, profile=self._profile) for side in SIDES}
        for queue, sides in WORKERS.items():
            for side in sides:
                self._begin(queue, side)
        self._clients = {side: each.result() for side, each in started.items()}
        for program in self._clients.values():
            for queue in QUEUES:
                program.call("open", queue=queue)
        self._settle()
        self._look()
        return self

    def __exit__(self, *_: object) -> None:
        for process in list(self._stopped):
            self._go_on(process)
        self._settle()
        for side, program in [*self._clients.items(), *((side, each) for (_, side), each in self._workers.items())]:
            try:
                program.close()
            except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                self.problems.append(f"{side} does not end: {error}")
        self._pool.shutdown()
        self._raw.close()

    def _begin(self, queue: str, side: str) -> None:
        start = partial(worker, side, self._server, queue, profile=self._profile, **SETTINGS)
        self._starting[queue, side] = self._pool.submit(start)

    def _settle(self) -> None:
        """Take over the workers that were begun."""
        for place, each in self._starting.items():
            self._workers[place] = each.result()
        self._starting = {}

    # --- rounds -------------------------------------------------------------------------------------------------------

    def round(self, number: int) -> None:
        """Let every client do something at the same time, then perhaps strike."""
        actions = list(self._choose())
        begun = [(each, self._clients[each.side].begin(each.name, **each.args)) for each in actions]
        for action, answer in begun:
            try:
                reply = answer()
            except AnswerError as error:
                self.counts["refused"] += 1
                if not action.may_fail:
                    self.problems.append(f"{action.side} refused {action.name} {action.args}: {error}")
            else:
                self.by_side[action.side, action.name] += 1
                action.then(reply)
        self._strike(number)
        if number % LOOKED_AT_EVERY == 0 or any(each.name in ("pause", "resume") for each in actions):
            self._look()

    def _look(self) -> None:
        for queue, watch in self.watches.items():
            self._moments[queue] = watch.look()
            watch.look_at_kept()

    def _choose(self) -> Iterator[Action]:
        turns: dict[str, Action] = {}
        for queue in QUEUES:
            turn = self._turn(queue)
            if turn is not None:
                turns.setdefault(turn.side, turn)
        for side in SIDES:
            queue = self._dice.choice(QUEUES)
            if side in turns:
                yield turns[side]
            elif self._dice.random() < 0.25:
                yield self._other(side, queue)
            elif self._moments[queue].waiting < MOST_WAITING:
                yield self._add(side, queue)

    def _turn(self, queue: str) -> Action | None:
        """Perhaps pause or resume: who may, says section 5.2."""
        chance = self._dice.random()
        if not self._paused[queue] and chance < 0.08:
            return Action(self._dice.choice(SIDES), "pause", {"queue": queue}, partial(self._turned, queue, True))
        if self._paused[queue] and chance < 0.05:
            again = self._dice.choice(MAY_PAUSE_AGAIN)
            return Action(again, "pause", {"queue": queue}, partial(self._turned, queue, True))
        if self._paused[queue] and chance < 0.25:
            by = self._dice.choice(MAY_RESUME)
            return Action(by, "resume", {"queue": queue}, partial(self._turned, queue, False))
        return None

    def _turned(self, queue: str, paused: bool, _: Any) -> None:
        self.counts["pauses" if paused else "resumes"] += 1
        self._paused[queue] = paused

    # --- adding -------------------------------------------------------------------------------------------------------

    def _add(self, side: str, queue: str) -> Action:
        kind = self._dice.random()
        if kind < 0.1:
            return self._flow(side)
        if kind < 0.2:
            jobs = [self._job(side, queue) for _ in range(5)]
            return Action(side, "add_bulk", {"queue": queue, "jobs": jobs}, partial(self._acknowledged, queue))
        job = self._deduplicated(side, queue) if kind < 0.4 else self._job(side, queue)
        return Action(side, "add", {"queue": queue, "jobs": [job]}, partial(self._acknowledged, queue))

    def _acknowledged(self, queue: str, ids: Sequence[str]) -> None:
        self.counts["adds"] += len(ids)
        self.watches[queue].acknowledged.update(ids)

    def _name(self, side: str) -> str:
        return f"{side}-{next(self._numbers)}"

    def _job(self, side: str, queue: str) -> Args:
        dice = self._dice
        data: Args = {"work_ms": dice.choice((0, 1, 5, 20))}
        opts: Args = {}
        how = dice.random()
        if how < 0.2:
            opts["delay"] = dice.randrange(20, 800)
        elif how < 0.4:
            opts["priority"] = dice.randrange(1, 10)
        elif how < 0.5:
            opts["lifo"] = True
        if dice.random() < 0.2:
            data["fails"] = dice.randrange(1, 3)
            opts["attempts"] = data["fails"] + 1
            if dice.random() < 0.7:
                opts["backoff"] = {"type": "fixed", "delay": dice.randrange(20, 300)}
        elif dice.random() < 0.1:
            # Fails for good, until somebody retries it.
            data["fails"] = 1
        if dice.random() < 0.5:
            opts["jobId"] = self._name(side)
        return {"name": side, "data": data, "opts": opts}

    def _deduplicated(self, side: str, queue: str) -> Args:
        dice = self._dice
        rules: list[Args] = [{}, {"ttl": 300}, {"ttl": 300, "extend": True}, {"ttl": 500, "replace": True}]
        if queue == LATER and side != FIRST:
            rules += [{"keepLastIfActive": True}] * 4
        number = dice.randrange(len(rules))
        opts: Args = {"deduplication": {"id": f"d{min(number, 4)}-{dice.randrange(2)}", **rules[number]}}
        if "replace" in rules[number]:
            opts["delay"] = dice.randrange(100, 600)
        return {"name": side, "data": {"work_ms": dice.choice((1, 20, 60))}, "opts": opts}

    def _flow(self, side: str) -> Action:
        parent, name = self._dice.choice(QUEUES), self._name(side)
        children: list[Args] = []
        for number in range(self._dice.randrange(1, 4)):
            child = {"name": "child", "queueName": self._dice.choice(QUEUES), "data": {"work_ms": 2}}
            children.append({**child, "opts": {"jobId": f"{name}-{number}"}})
        flow = {"name": "parent", "queueName": parent, "data": {}, "opts": {"jobId": name}, "children": children}

        def then(reply: Any) -> None:
            self._acknowledged(parent, [reply])
            for child in children:
                self._acknowledged(child["queueName"], [child["opts"]["jobId"]])

        return Action(side, "flow", {"flow": flow}, then)

    # --- all else -----------------------------------------------------------------------------------------------------

    def _other(self, side: str, queue: str) -> Action:
        dice, states = self._dice, self._moments[queue].states
        kind = dice.randrange(7)
        if kind == 0:
            id = dice.choice(SERIES)
            template = {"name": id, "data": {"by": side}}
            cron = {"pattern": dice.choice(PATTERNS), "tz": "UTC"}
            repeat = cron if id.startswith("c") else {"every": dice.choice(INTERVALS)}
            args = {"queue": queue, "id": id, "repeat": repeat, "template": template}
            then = partial(self._scheduled, queue, id, True)
            # Where slots are taken by jobs that were started too often they refuse.
            return Action(side, "upsert_scheduler", args, then, may_fail=True)
        if kind == 1 and dice.random() < 0.3:
            id = dice.choice(SERIES)
            then = partial(self._scheduled, queue, id, False)
            return Action(side, "remove_scheduler", {"queue": queue, "id": id}, then)
        if kind == 2:
            options = {"state": "failed"}
            return Action(
                side, "method", {"queue": queue, "method": "retryJobs", "args": [], "options": options}, nothing
            )
        if kind == 3 and states["failed"]:
            args = {"queue": queue, "id": dice.choice(states["failed"]), "method": "retry", "args": ["failed"]}
            return Action(side, "method", args, nothing, may_fail=True)
        delayed = [each for each in states["delayed"] if not each.startswith("repeat:")]
        if kind == 4 and delayed:
            args = {"queue": queue, "id": dice.choice(delayed), "method": "promote", "args": []}
            return Action(side, "method", args, nothing, may_fail=True)
        waiting = [*states["wait"], *states["paused"], *states["prioritized"]]
        if kind == 5 and waiting:
            args = {"queue": queue, "id": dice.choice(waiting), "method": "changePriority", "args": []}
            options = {"priority": dice.choice((0, 1, 5))}
            return Action(side, "method", {**args, "options": options}, nothing, may_fail=True)
        return Action(side, "counts", {"queue": queue}, nothing)

    def _scheduled(self, queue: str, id: str, there: bool, _: Any) -> None:
        (self._schedulers.add if there else self._schedulers.discard)((queue, id))

    def _strike(self, number: int) -> None:
        """Now and then kill a worker, or stop it for longer than its locks last."""
        now = time.monotonic()
        for process in [each for each, until in self._stopped.items() if now >= until]:
            self._go_on(process)
        if self._starting:
            if all(each.done() for each in self._starting.values()):
                self._settle()
        elif number % STRUCK_EVERY == 0:
            queue, side = self._dice.choice(sorted(self._workers))
            program = self._workers[queue, side]
            if number % (2 * STRUCK_EVERY) == 0:
                os.kill(program.pid, signal.SIGSTOP)
                self._stopped.setdefault(program.pid, now + STOPPED_S)
                self.counts["stops"] += 1
            else:
                self._stopped.pop(program.pid, None)
                program.kill()
                self._gone.append((side, queue, program))
                self.counts["kills"] += 1
                self._begin(queue, side)

    def _go_on(self, process: int) -> None:
        del self._stopped[process]
        os.kill(process, signal.SIGCONT)

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Resume, end all series, let everything be processed, and look."""
        for process in list(self._stopped):
            self._go_on(process)
        self._settle()
        for queue in QUEUES:
            self._clients[NEWEST].call("resume", queue=queue)
            self._paused[queue] = False
        self._wait_for_series()
        for queue in QUEUES:
            for id in SERIES:
                self._clients["asyncio"].call("remove_scheduler", queue=queue, id=id)
        self._drain()
        for queue in QUEUES:
            self._clients["trio"].call("method", queue=queue, method="retryJobs", args=[], options={"state": "failed"})
        self._drain()
        for watch in self.watches.values():
            watch.look_at_end()
            self.problems += watch.problems
        self._compare_with_workers()

    def _wait_for_series(self) -> None:
        """Every series goes on: its next job is there, or a worker is about to make it."""
        limit = time.monotonic() + DRAIN_S
        for queue, id in sorted(self._schedulers):
            while not self._goes_on(queue, id):
                if time.monotonic() > limit:
                    self.problems.append(f"{queue}: the series of scheduler {id} has ended")
                    break
                time.sleep(0.1)

    def _goes_on(self, queue: str, id: str) -> bool:
        base = f"bull:{queue}:"
        slot = self._raw.zscore(f"{base}repeat", id)
        if slot is None:
            return False
        key = f"{base}repeat:{id}:{int(slot)}"
        return bool(self._raw.exists(key)) and not self._raw.hexists(key, "finishedOn")

    def _drain(self) -> None:
        limit = time.monotonic() + DRAIN_S
        while any(watch.look().unfinished for watch in self.watches.values()):
            if time.monotonic() > limit:
                self.problems.append("not everything was processed")
                return
            time.sleep(0.2)

    def _compare_with_workers(self) -> None:
        """No job was reported as completed by two workers; each side did its part."""
        completed: Counter[tuple[str, str]] = Counter()
        alive = [(side, queue, program) for (queue, side), program in self._workers.items()]
        for side, queue, program in (*alive, *self._gone):
            ids = program.ids("completed")
            completed.update((queue, job_id) for job_id in ids)
            self.by_side[side, "finished"] += len(ids)
        twice = [job for job, count in completed.items() if count > 1]
        self.problems += [f"completed by two workers: {job}" for job in twice]
        self.problems += [f"{side} did nothing" for side in SIDES if not self.by_side[side, "finished"]]

    def report(self) -> str:
        """Give a table of what each side did, and the line at the end."""
        words = ("add", "add_bulk", "flow", "upsert_scheduler", "method", "pause", "resume", "finished")
        rows = ["side".ljust(12) + "".join(word.rjust(17) for word in words)]
        rows += [side.ljust(12) + "".join(str(self.by_side[side, word]).rjust(17) for word in words) for side in SIDES]
        watches = self.watches.values()
        jobs = sum(len(watch.added) for watch in watches)
        stalled = sum(sum(watch.stalled.values()) for watch in watches)
        rows.append(
            f"chaos-fleet: {jobs} jobs, {self.counts['adds']} adds acknowledged, {self.counts['pauses']} pauses, "
            f"{self.counts['resumes']} resumes, {self.counts['kills']} kills, {self.counts['stops']} stops, "
            f"{stalled} started again, {sum(len(watch.lost) for watch in watches)} lost, "
            f"{sum(len(watch.twice) for watch in watches)} finished twice"
        )
        return "\n".join(rows)


def run(*, seed: int, duration_s: float = 0.0, rounds: int = 0, kind: str | None = None) -> list[str]:
    """Run for a time, and for this many rounds at least; print the report, return what does not add up."""
    with servers.start(kind) if kind else servers.start() as server:
        print(f"chaos-fleet: seed {seed}, {duration_s:.0f} s on {server.kind}, {', '.join(SIDES)}", flush=True)
        with Fleet(server, seed=seed) as fleet:
            number, end = 0, time.monotonic() + duration_s
            while number < rounds or time.monotonic() < end:
                number += 1
                fleet.round(number)
            fleet.finish()
        print("\n".join([fleet.report(), *fleet.problems[:40]]), flush=True)
        return fleet.problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--duration", type=float, default=60, help="seconds")
    parser.add_argument("--seed", type=int, help="of what is done; by default a random one")
    parser.add_argument("--server", help="kind of server, such as redis-7.0")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    return 1 if run(seed=seed, duration_s=options.duration, kind=options.server) else 0


if __name__ == "__main__":
    sys.exit(main())
