"""Random lives of a worker machine, in simulated time. The bench checks the invariants after every step."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bullmq_protocol.errors import DelayedError, RateLimitError, UnrecoverableError
from bullmq_protocol.worker.events import JobReturned, Tick
from bullmq_protocol.worker.notices import Disconnected, JobCompleted, JobFailed, LockLost, Reconnected
from tests.support.machine_bench import FINISHING, NO_JOB, Bench, job_reply

LOCK_MS = 2_000
FETCHED = ("job", "job", "job", "job", "none", "limited", "later")
OUTCOMES = ("return", "return", "return", "return", "raise", "give up", "move", "limit")
REPORTED = ("next", "next", "next", "none", "refused")
LOSSES = ("sent", "unsent")


class WorkerLife(RuleBasedStateMachine):
    """Time jumps to the deadline; outcomes are mostly good; the worker is closed at most once, after some work."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(concurrency=2, lock_duration=LOCK_MS, stalled_interval=3_000, shutdown_timeout=4_000)
        self.jobs = 0
        self.closed = False

    def new_job(self) -> Any:
        self.jobs += 1
        return job_reply(str(self.jobs), opts='{"attempts":2,"backoff":100}')

    def has(self, *names: str) -> bool:
        return any(self.bench.has(name) for name in names)

    def finishing(self) -> str:
        return next(name for name in FINISHING if self.bench.has(name))

    @precondition(lambda self: self.has("moveToActive"))
    @rule(kind=st.sampled_from(FETCHED))
    def fetched(self, kind: str) -> None:
        reply = {
            "job": self.new_job() if kind == "job" else None,
            "none": NO_JOB,
            "limited": [0, 0, 150, 0],
            "later": [0, 0, 0, self.bench.wall + 400],
        }[kind]
        self.bench.reply("moveToActive", reply)

    @precondition(lambda self: self.bench.wait is not None)
    @rule(kind=st.sampled_from(("timeout", "now", "later", "lost")))
    def marker(self, kind: str) -> None:
        if self.bench.wait_cancelled:
            self.bench.end_wait()
        elif kind == "lost":
            self.bench.lose_wait()
        elif kind == "timeout":
            self.bench.advance(5_000)
            self.bench.marker(None)
        else:
            score = 0 if kind == "now" else self.bench.wall + 250
            self.bench.marker([b"k", b"m", str(score).encode()])

    @precondition(lambda self: bool(self.bench.handlers))
    @rule(kind=st.sampled_from(OUTCOMES), newest=st.booleans())
    def handler_ends(self, kind: str, newest: bool) -> None:
        run = (max if newest else min)(self.bench.handlers)
        action = self.bench.handlers[run]
        if run in self.bench.cancelled:
            del self.bench.handlers[run]
            self.bench.tell(JobReturned(run, "null"))
            return
        if kind == "return":
            self.bench.returned(action.job.id)
            return
        error = {
            "raise": RuntimeError("boom"),
            "give up": UnrecoverableError(),
            "move": DelayedError(),
            "limit": RateLimitError(),
        }[kind]
        self.bench.raised(action.job.id, error)

    @precondition(lambda self: self.has(*FINISHING))
    @rule(kind=st.sampled_from(REPORTED))
    def reported(self, kind: str) -> None:
        name = self.finishing()
        wants_next = name == "moveToFinished" and self.bench.call(name).command.args[5] == "1"
        if kind == "refused":
            self.bench.reply(name, -2)
        elif kind == "next" and wants_next:
            self.bench.reply(name, self.new_job())
        else:
            self.bench.reply(name, 0)

    @precondition(lambda self: self.has("extendLocks"))
    @rule(lost=st.sampled_from((False, False, False, True)))
    def renewed(self, lost: bool) -> None:
        ids = [action.job.id.encode() for action in self.bench.handlers.values()]
        self.bench.reply("extendLocks", ids[:1] if lost else [])

    @precondition(lambda self: self.has("moveStalledJobsToWait", "PTTL", "PING", "ZADD"))
    @rule()
    def upkeep(self) -> None:
        for name, reply in (("moveStalledJobsToWait", []), ("PTTL", 3_000), ("PING", b"PONG"), ("ZADD", 0)):
            if self.bench.has(name):
                self.bench.reply(name, reply)

    @precondition(lambda self: bool(self.bench.calls))
    @rule(kind=st.sampled_from(LOSSES), roll=st.floats(0, 0.999))
    def connection_lost(self, kind: str, roll: float) -> None:
        for call in list(self.bench.calls.values()):
            if call.ticket in self.bench.calls:
                self.bench.lose(call.command.name, maybe_applied=kind == "sent", roll=roll)

    @precondition(lambda self: bool(self.bench.calls))
    @rule(message=st.sampled_from(("OOM no memory", "ERR broken")))
    def refused(self, message: str) -> None:
        self.bench.refuse(next(iter(self.bench.calls.values())).command.name, message)

    @precondition(lambda self: self.bench.machine.deadline() is not None)
    @rule(late=st.sampled_from((0, 0, 0, 3, 40)))
    def time_passes(self, late: int) -> None:
        deadline = self.bench.machine.deadline()
        assert deadline is not None
        self.bench.advance(max(0, deadline - self.bench.mono) + late)
        self.bench.tell(Tick(0.5))

    @rule(jump=st.sampled_from((-3_600_000, 3_600_000)))
    def wall_clock_jumps(self, jump: int) -> None:
        before = self.bench.machine.snapshot().jobs
        self.bench.wall += jump
        assert self.bench.machine.snapshot().jobs == before

    @precondition(lambda self: self.jobs > 3)
    @rule(pause=st.booleans())
    def pause_or_resume(self, pause: bool) -> None:
        if pause:
            self.bench.pause()
        else:
            self.bench.resume()

    @precondition(lambda self: self.jobs > 4 and not self.closed)
    @rule(force=st.booleans())
    def close(self, force: bool) -> None:
        self.closed = True
        self.bench.close(force=force)

    @precondition(lambda self: self.bench.stopped is not None)
    @rule()
    def stopped_says_nothing(self) -> None:
        assert self.bench.machine.handle(Tick(0.5), self.bench.at()) == []
        assert self.bench.machine.snapshot().state == "stopped"

    @invariant()
    def every_held_lock_is_watched(self) -> None:
        machine = self.bench.machine
        snapshot = machine.snapshot()
        running = set(snapshot.jobs) - set(snapshot.reporting)
        # A worker that shuts down says so, whether it is connected or not.
        connected = len(self.bench.said(Disconnected)) == len(self.bench.said(Reconnected))
        if running and connected and not self.has("extendLocks", "moveJobFromActiveToWait"):
            deadline = machine.deadline()
            lost = {notice.job.id for notice in self.bench.said(LockLost)}
            assert running <= lost or (deadline is not None and deadline <= self.bench.mono + LOCK_MS // 2)

    @invariant()
    def an_outcome_is_told_once(self) -> None:
        done = [notice.job.id for notice in self.bench.notices if isinstance(notice, JobCompleted)]
        done += [n.job.id for n in self.bench.notices if isinstance(n, JobFailed)]
        assert len(done) == len(set(done))

    def teardown(self) -> None:
        """Whatever happened: a forced close on a working connection ends in a stop."""
        bench = self.bench
        bench.close(force=True)
        for _ in range(200):
            if bench.stopped is not None:
                break
            if bench.wait is not None:
                bench.end_wait()
            elif bench.calls:
                name = next(iter(bench.calls.values())).command.name
                bench.reply(name, NO_JOB if name == "moveToActive" else [] if "ocks" in name or "tall" in name else 0)
            else:
                self.time_passes_to_the_end()
        assert bench.stopped is not None, bench.machine.snapshot()

    def time_passes_to_the_end(self) -> None:
        self.bench.tick()


TestWorkerLife = WorkerLife.TestCase
