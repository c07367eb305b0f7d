"""Several schedulers on one collection in simulated time: skewed clocks, crashes, lost replies, slow handlers.

Everything is drawn from one seed. `Fleet.check` and `Fleet.look` hold what must be true meanwhile, `Fleet.unfinished`
shows what must be done at the end. `python -m tests.support.monque_simulation STEPS SEED` runs it.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from bullmq_protocol.common.units import Instant, Millis
from bullmq_protocol.errors import BullMQError, ConnectionLost
from bullmq_protocol.model.failure import Failure, FailureKind
from bullmq_protocol.worker.actions import Call, CancelWait, Notify, RunJob, Stopped, Wait
from bullmq_protocol.worker.events import (
    CallFailed,
    CloseRequested,
    Event,
    JobRaised,
    JobReturned,
    Replied,
    Tick,
    WaitCancelled,
)
from bullmq_protocol.worker.snapshot import WorkerState
from monque_protocol import commands
from monque_protocol.document import from_date
from monque_protocol.events import JobLost, JobReleased
from monque_protocol.operations import initialize
from monque_protocol.options import JobRetention, SchedulerOptions, settings_of
from monque_protocol.scheduler import SchedulerMachine
from tests.support.monque_model import Collection

NAMES = ("mail", "report", "clean")
START: Millis = 1_766_000_000_000
LOCK_MS = 30_000


def kind_of(command: Any) -> str:
    """Name a command as the scheduler knows it."""
    if command.name == "findAndModify":
        return "claim" if "sort" in command.document else "report"
    if command.name == "update":
        return "heartbeat" if command.document["updates"][0].get("multi") else "release"
    return str(command.name)


class Wrong(AssertionError):
    """A rule is broken."""


class Node:
    """One scheduler: its machine, its clock, and what is on its way to it."""

    def __init__(self, fleet: Fleet, number: int, skew: Millis) -> None:
        dice = fleet.dice
        self.fleet = fleet
        self.name = f"node-{number}"
        self.skew = skew
        self.alive = True
        self.watches = dice.random() < 0.5
        drawn: dict[str, Any] = {
            "scheduler_instance_id": self.name,
            "poll_interval": dice.choice((200, 1_000)),
            "heartbeat_interval": 1_000,
            "lock_timeout": LOCK_MS,
            "shutdown_timeout": dice.choice((500, 5_000)),
            "max_retries": dice.choice((1, 3, 10)),
            "base_retry_interval": 50,
            "worker_concurrency": dice.choice((1, 3, 5)),
            "instance_concurrency": dice.choice((None, 2, 6)),
            "job_retention": JobRetention(completed=600_000, interval=60_000) if dice.random() < 0.3 else None,
            "change_streams": self.watches,
        }
        self.settings = settings_of(SchedulerOptions(**{**drawn, **fleet.options}), random_id="unused")
        self.machine = SchedulerMachine(self.settings, zone=UTC)
        self.running: dict[int, Any] = {}
        self.stream: int | None = None
        self.begins = True

    def at(self) -> Instant:
        return Instant(self.fleet.now + self.skew, self.fleet.now)


class Fleet:
    """Schedulers, a collection, and the events between them."""

    def __init__(self, seed: int, *, nodes: int = 4, faults: float = 0.03, **options: Any) -> None:
        self.options = options
        self.dice = Random(seed)
        self.now: Millis = START
        self.faults = faults
        ids = count(1)
        self.collection = Collection(lambda: f"{next(ids):024x}", self.dice.random)
        self.collection.run(commands.create_indexes("jobs", retention=False).document)
        self._queue: list[tuple[Millis, int, Any]] = []
        self._order = count()
        self._numbers = count(1)
        self.nodes: list[Node] = []
        self.steps = 0
        self.added = 0
        self.finished: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        # Who runs a job, by its id, as far as its owner lives and has not lost it.
        self.owners: dict[str, Node] = {}
        self.taken_over: set[str] = set()
        # Runs that go on although their job was taken from them.
        self.excused: set[tuple[str, int]] = set()
        self.claimed_at: dict[str, Millis] = {}
        # What befalls the next commands of a kind: `not sent`, or `lost` with its reply.
        self.spoil: list[tuple[str, str]] = []
        self.raises = 0.2
        self.takes: Millis | None = None
        for _ in range(nodes):
            self.boot()

    # --- the world --------------------------------------------------------------------------------------------------

    def later(self, delay: Millis, what: Any) -> None:
        heappush(self._queue, (self.now + delay, next(self._order), what))

    def boot(self) -> None:
        """Start a scheduler, which recovers stale jobs first."""
        node = Node(self, next(self._numbers), self.dice.randint(-2_000, 2_000))
        stale = {
            each["_id"]: each.get("claimedBy")
            for each in self.collection.documents
            if each["status"] == "processing"
            and (from_date(each["lockedAt"]) or 0) < self.now + node.skew - node.settings.lock_ms
        }
        operation = initialize(node.settings, lambda: node.at().wall)
        step = next(operation)
        while True:
            try:
                step = operation.send(self.collection.run(step.document))
            except StopIteration:
                break
        self.taken_over |= stale.keys()
        for other in self.nodes:
            self.excused |= {(other.name, run) for run, job in other.running.items() if job.id in stale}
        self.nodes.append(node)
        for name in NAMES:
            self.act(node, node.machine.register(name, None, replace=False, at=node.at()))
        self.act(node, node.machine.start(node.at()))

    def add(self) -> None:
        dice, now = self.dice, self.now
        self.added += 1
        name = dice.choice(NAMES)
        due = now + dice.choice((0, 0, 0, dice.randint(0, 20_000)))
        if dice.random() < 0.3:
            pattern = "*/5 * * * * *" if dice.random() < 0.1 else None
            key = f"key-{dice.randint(1, 20)}"
            command: Any = commands.upsert(
                "jobs", name, {}, unique_key=key, next_run_at=due, now=now, repeat_interval=pattern
            )
        else:
            command = commands.insert("jobs", f"a{self.added:023x}", name, {}, next_run_at=due, now=now)
        job = command.decode(self.collection.run(command.document))
        for node in self.nodes:
            if node.alive and dice.random() < 0.5:
                self.act(node, node.machine.signal(job.name, job.next_run_at, node.at()))

    # --- what machines ask for --------------------------------------------------------------------------------------

    def act(self, node: Node, actions: Any) -> None:
        dice = self.dice
        for action in actions:
            match action:
                case Call(ticket, command):
                    self.later(dice.randint(1, 20), ("arrives", node, ticket, command))
                case Wait(ticket, _):
                    node.stream = ticket
                    self.later(dice.randint(1, 1_000), ("changes", node, ticket))
                case CancelWait(ticket):
                    self.later(1, ("answer", node, WaitCancelled(ticket)))
                case RunJob(run, job, _):
                    if job.id in self.owners and self.owners[job.id].alive and job.id not in self.taken_over:
                        raise Wrong(f"{job.id} runs on {self.owners[job.id].name} and on {node.name}")
                    for other in self.nodes:
                        for known, running in other.running.items():
                            if running.id == job.id and (other.name, known) not in self.excused:
                                raise Wrong(f"{job.id} begins on {node.name} while it runs on {other.name}")
                    self.owners[job.id] = node
                    self.taken_over.discard(job.id)
                    node.running[run] = job
                    took = dice.choice((1, 10, 200, 3_000)) if dice.random() < 0.99 else LOCK_MS * 2
                    self.later(self.takes or took, ("ends", node, run))
                case Notify(notice):
                    self.seen[type(notice).__name__] += 1
                    if isinstance(notice, JobLost) and not notice.uncertain and notice.job.id not in self.finished:
                        self.seen["explained by a takeover"] += 1
                    if isinstance(notice, JobReleased):
                        self.seen[f"released: {notice.reason}"] += 1
                case Stopped():
                    if node.machine.state is not WorkerState.STOPPED:
                        raise Wrong("stopped, and is not")
                case _:
                    raise Wrong(f"what is {action}?")

    def feed(self, node: Node, event: Event) -> None:
        if node.alive:
            self.act(node, node.machine.handle(event, node.at()))
            self.check(node)

    def perform(self, node: Node, ticket: int, command: Any) -> None:
        """A command arrives at the server, or does not; its reply comes, or does not."""
        dice = self.dice
        if self._is_spoiled(command, "not sent") or dice.random() < self.faults:
            self.later(10, ("answer", node, CallFailed.of(ticket, ConnectionLost("cut", maybe_applied=False))))
            return
        ends = command.name == "findAndModify" and command.document["update"].get("$set", {}).get("status")
        before = next(
            (each for each in self.collection.documents if each["_id"] == command.document.get("query", {}).get("_id")),
            None,
        )
        owner = None if before is None else before.get("claimedBy")
        try:
            reply = self.collection.run(command.document)
        except BullMQError as error:
            self.later(1, ("answer", node, CallFailed.of(ticket, error)))
            return
        if command.name == "update" and not command.document["updates"][0].get("multi") and reply["nModified"]:
            # A release.
            self.owners.pop(command.document["updates"][0]["q"]["_id"], None)
        value = reply.get("value") if command.name == "findAndModify" else None
        if value is not None:
            if before is not None and owner != node.name:
                raise Wrong(f"{node.name} ended {value['_id']} of {owner}")
            self._note(node, ends, value)
        # Of those that have done something.
        lost = (value is not None or reply.get("nModified")) and self._is_spoiled(command, "lost")
        lost = lost or dice.random() < self.faults
        event: Event = Replied(ticket, reply)
        if lost:
            event = CallFailed.of(ticket, ConnectionLost("cut", maybe_applied=True))
        self.later(dice.randint(1, 20), ("answer", node, event))

    def _is_spoiled(self, command: Any, how: str) -> bool:
        if (kind_of(command), how) not in self.spoil:
            return False
        self.spoil.remove((kind_of(command), how))
        return True

    def _note(self, node: Node, ends: str, value: Any) -> None:
        status = value["status"]
        if status == "processing":
            self.claimed_at[value["_id"]] = self.now
        if ends in ("completed", "failed"):
            if self.finished[value["_id"]]:
                raise Wrong(f"{value['_id']} was finished twice")
            self.finished[value["_id"]] += 1
        if status != "processing" and self.owners.get(value["_id"]) is node:
            del self.owners[value["_id"]]

    # --- one step ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.steps += 1
        dice = self.dice
        chance = dice.random()
        if self.steps % 500 == 0:
            self.look()
        if chance < 0.06:
            self.add()
        elif chance < 0.0603:
            self.crash()
        elif chance < 0.0606:
            self.close()
        elif chance < 0.0612 and self.nodes:
            self.jump(dice.choice(self.nodes), dice.randint(-5_000, 5_000))
        if len(self.nodes) < 3:
            self.boot()
        self.pass_time()

    def pass_time(self) -> None:
        """Let what is next happen."""
        due = min(
            ((deadline, node) for node in self.nodes if (deadline := node.machine.deadline()) is not None),
            key=lambda each: each[0],
            default=None,
        )
        if self._queue and (due is None or self._queue[0][0] <= due[0]):
            self.now, _, what = heappop(self._queue)
            self.happen(*what)
        elif due is not None:
            self.now = max(self.now, due[0])
            self.feed(due[1], Tick())

    def happen(self, kind: str, node: Node, *rest: Any) -> None:
        if kind == "arrives":
            # What a dead scheduler has sent still arrives.
            self.perform(node, *rest)
        elif not node.alive:
            return
        elif kind == "answer":
            if isinstance(rest[0], WaitCancelled) and node.stream != rest[0].ticket:
                return
            self.feed(node, rest[0])
        elif kind == "changes":
            self._answer_stream(node, rest[0])
        else:
            self._end(node, rest[0])

    def _answer_stream(self, node: Node, ticket: int) -> None:
        if node.stream != ticket or node.machine.state is not WorkerState.RUNNING:
            return
        if self.dice.random() < self.faults:
            self.feed(node, CallFailed.of(ticket, ConnectionLost("cut", maybe_applied=False)))
            return
        found = self.dice.sample(self.collection.documents, min(3, len(self.collection.documents)))
        batch = [{"operationType": "insert", "fullDocument": dict(each)} for each in found]
        self.feed(node, Replied(ticket, {"cursor": {"firstBatch": batch}}))

    def _end(self, node: Node, run: int) -> None:
        node.running.pop(run)
        chance = self.dice.random()
        if chance >= self.raises:
            self.feed(node, JobReturned(run, "null"))
        else:
            kind = FailureKind.CANCELLED if chance < 0.01 else FailureKind.ERROR
            self.feed(node, JobRaised(run, Failure(kind=kind, message="no"), self.dice.random()))

    def crash(self) -> None:
        alive = [node for node in self.nodes if node.alive]
        if alive:
            self._forget(self.dice.choice(alive))

    def jump(self, node: Node, skew: Millis) -> None:
        """Set the wall clock of a scheduler."""
        before = node.machine.deadline()
        node.skew = skew
        if node.machine.deadline() != before:
            raise Wrong("a jump of the wall clock has changed a timer")

    def close(self) -> None:
        running = [node for node in self.nodes if node.alive and node.machine.state is WorkerState.RUNNING]
        if running:
            self.feed(self.dice.choice(running), CloseRequested(force=self.dice.random() < 0.3))

    def _forget(self, node: Node) -> None:
        node.alive = False
        self.nodes.remove(node)

    def check(self, node: Node) -> None:
        """What holds after each step of a scheduler."""
        machine, settings = node.machine, node.settings
        for name in NAMES:
            most, _ = machine.active(name) or (0, 0)
            running = sum(job.name == name for job in node.running.values())
            if running > most:
                raise Wrong(f"{running} of {name} run, {most} may")
        if settings.instance_concurrency is not None and machine.running_jobs > settings.instance_concurrency:
            raise Wrong(f"{machine.running_jobs} run, {settings.instance_concurrency} may")
        if machine.state is WorkerState.RUNNING and (machine.deadline() or 0) > self.now + settings.safety_poll_ms:
            raise Wrong(f"{node.name} waits longer than from poll to poll")
        if machine.state is WorkerState.STOPPED and machine.running_jobs == 0:
            # A release may be under way, whose time was over.
            if machine.deadline() is not None:
                raise Wrong("a stopped scheduler still waits for something")
            self._forget(node)

    def look(self) -> None:
        """Whether each claim of a living scheduler is a run of its own; and drop what is over."""
        for node in self.nodes:
            held = set(node.machine.snapshot(self.now).jobs)
            for each in self.collection.documents:
                forgotten = each.get("claimedBy") == node.name and each["_id"] not in held
                since = self.now - self.claimed_at.get(each["_id"], self.now)
                if forgotten and node.machine.state is WorkerState.RUNNING and since > 10_000:
                    raise Wrong(f"{node.name} has forgotten {each['_id']}")
        self.collection.documents = [
            each for each in self.collection.documents if each["status"] in ("pending", "processing")
        ]

    # --- the end ----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """End all schedulers, start one anew after the time of the locks, and let it finish what is there."""
        self.faults = 0
        for node in list(self.nodes):
            self._forget(node)
        while self._queue:
            self.now, _, what = heappop(self._queue)
            self.happen(*what)
        for each in self.collection.documents:
            # What recurs would go on for ever.
            each.pop("repeatInterval", None)
        self.now += LOCK_MS * 3
        self.boot()
        last = self.now + 86_400_000
        while self.unfinished() and self.now < last:
            alive = self.nodes[0]
            deadline = alive.machine.deadline()
            if self._queue and (deadline is None or self._queue[0][0] <= deadline):
                self.now, _, what = heappop(self._queue)
                self.happen(*what)
            elif deadline is not None:
                self.now = max(self.now, deadline)
                self.feed(alive, Tick())

    def __str__(self) -> str:
        return f"{self.steps} steps, {self.added} jobs added: {dict(sorted(self.seen.items()))}"

    def unfinished(self) -> list[Any]:
        return [each for each in self.collection.documents if each["status"] in ("pending", "processing")]


def simulate(seed: int, steps: int) -> Fleet:
    """Take the steps, and bring it to its end."""
    fleet = Fleet(seed)
    for _ in range(steps):
        fleet.step()
    fleet.settle()
    return fleet


if __name__ == "__main__":
    ended = simulate(int(sys.argv[2]), int(sys.argv[1]))
    sys.stdout.write(f"{ended}; {len(ended.unfinished())} unfinished\n")
    sys.exit(bool(ended.unfinished()))
